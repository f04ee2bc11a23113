"""Random layers and the stochastic equation: beside their own limit, and beside diffrax."""

import numpy as np
import pytest
from alternatives import (
    diffrax_paths,
    layer_draws_and_products,
    pair,
    step_draws_and_products,
)

from tokensphere import layers, sde, sphere, two_tokens

#: systems, tokens, dimensions: many small ones, a Transformer's head, a Transformer's width
SIZES = [(2000, 2, 16), (200, 32, 32), (8, 128, 64), (1, 128, 768)]
LAYERS, STEPS = 10, 2
PATHS, OVERLAP, D, BETA, HORIZON = 20_000, 0.3, 8, 2.0, 1.0


def systems(batch, n, d):
    return sphere.uniform(n, d, batch=(batch,), rng=np.random.default_rng(1))


@pytest.mark.parametrize(("batch", "n", "d"), SIZES)
def bench_layers(measure, batch, n, d):
    x, rng = systems(batch, n, d), np.random.default_rng(1)
    measure(
        lambda: layers.forward(x, 2.0, LAYERS, rng=rng),
        family="layers",
        who="tokensphere",
        batch=batch,
        n=n,
        d=d,
        steps=LAYERS,
    )


@pytest.mark.parametrize(("batch", "n", "d"), SIZES)
def bench_layers_limit(measure, batch, n, d):
    x, rng = systems(batch, n, d), np.random.default_rng(1)
    measure(
        lambda: layer_draws_and_products(x, LAYERS, rng),
        family="layers",
        who="limit",
        batch=batch,
        n=n,
        d=d,
        steps=LAYERS,
    )


@pytest.mark.parametrize(("batch", "n", "d"), SIZES)
def bench_sde(measure, batch, n, d):
    x, rng = systems(batch, n, d), np.random.default_rng(1)
    measure(
        lambda: sde.solve(x, 2.0, [0, 1e-4], steps=STEPS, rng=rng),
        rounds=5,
        family="sde",
        who="tokensphere",
        batch=batch,
        n=n,
        d=d,
        steps=STEPS,
    )


@pytest.mark.parametrize(("batch", "n", "d"), SIZES)
def bench_sde_limit(measure, batch, n, d):
    x, rng = systems(batch, n, d), np.random.default_rng(1)
    measure(
        lambda: step_draws_and_products(x, STEPS, rng),
        rounds=5,
        family="sde",
        who="limit",
        batch=batch,
        n=n,
        d=d,
        steps=STEPS,
    )


@pytest.mark.parametrize("d", [64, 512, 4096])
@pytest.mark.parametrize("n", [2, 16])
def bench_overlap_chain(measure, n, d):
    x, rng = systems(200, n, max(n, 16)), np.random.default_rng(1)
    gram = x @ np.swapaxes(x, -1, -2)
    measure(
        lambda: layers.overlap_chain(gram, 2.0, d, LAYERS, rng=rng),
        family="chain",
        who="tokensphere",
        batch=200,
        n=n,
        d=d,
        steps=LAYERS,
    )


def fresh():
    return np.random.default_rng(1)


def error(ends):
    """Return how far the mean overlap of a pair is from its exact value, and the standard error."""
    overlap = (ends[:, 0] * ends[:, 1]).sum(axis=-1)
    exact = two_tokens.expected_overlap(OVERLAP, HORIZON, BETA, D)
    return {"error": overlap.mean() - exact, "uncertainty": overlap.std() / len(overlap) ** 0.5}


@pytest.mark.parametrize("steps", [4, 8, 16])
def bench_pairs_sde(measure, benchmark, steps):
    x = np.broadcast_to(pair(OVERLAP, D), (PATHS, 2, D))
    ends = measure(
        lambda: sde.solve(x, BETA, [0, HORIZON], steps=steps, rng=np.random.default_rng(1)).tokens[
            -1
        ],
        rounds=2,
        family="pairs",
        who="tokensphere.sde",
        steps=steps,
        d=D,
        n=2,
    )
    benchmark.extra_info.update(error(ends))


@pytest.mark.parametrize("steps", [16, 32, 64, 128])
def bench_pairs_layers(measure, benchmark, steps):
    x = np.broadcast_to(pair(OVERLAP, D), (PATHS, 2, D))
    ends = measure(
        lambda: layers.forward(x, BETA, steps, horizon=HORIZON, rng=fresh()),
        rounds=2,
        family="pairs",
        who="tokensphere.layers",
        steps=steps,
        d=D,
        n=2,
    )
    benchmark.extra_info.update(error(ends))


@pytest.mark.parametrize("steps", [16, 32, 64, 128])
def bench_pairs_diffrax(measure, benchmark, steps):
    work = diffrax_paths(pair(OVERLAP, D), BETA, HORIZON, steps, PATHS)
    ends = measure(work, rounds=2, family="pairs", who="diffrax, Heun", steps=steps, d=D, n=2)
    benchmark.extra_info.update(error(ends))
