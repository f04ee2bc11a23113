"""One case: tune its rate on validation images, train the final runs, look at what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from training import data, geometry
from training.model import Transformer
from training.plan import BRIEF, Case, Plan
from training.protocols import REFERENCE, matrices
from training.train import Budget, Run, arrays, right, split, start, train

KEPT = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the initial matrices, when they are taken out again
EXTREMES = (1e-4, 1.0)  # no rate is tried beyond
EARLY = Budget(epochs=1, every=1, batch=25, train=500)


def tune(images: data.Images, case: Case, plan: Plan) -> dict[str, Any]:
    """Search the rate of highest mean final validation accuracy, among ``first`` times 2^k.

    Try two rates, and go on in the direction of the better one until the best is bracketed. Of
    equals the smaller is the better. No test accuracy is used.
    """
    tried: dict[float, list[float]] = {}

    def score(rate: float) -> float:
        if rate not in tried:
            runs = [fit(images, case, seed, rate) for seed in plan.tuning_seeds]
            tried[rate] = [float(run.curves.validation[-1]) for run in runs]
        return float(np.mean(tried[rate]))

    low, high = plan.first_rates
    factor = high / low
    best = low if score(low) >= score(high) else high
    if best == low:
        while best / factor >= EXTREMES[0] and score(best / factor) >= score(best):
            best /= factor
    else:
        while best * factor <= EXTREMES[1] and score(best * factor) > score(best):
            best *= factor
    rates = sorted(tried)
    return {"rates": rates, "validation": plain([tried[rate] for rate in rates]), "rate": best}


def fit(images: data.Images, case: Case, seed: int, rate: float) -> Run:
    """Train the case's run of a seed."""
    first = start(case.shape, case.protocol, seed)
    return train(images, first, case.budget, seed=seed, rate=rate, frozen=case.protocol.frozen)


def probe(images: data.Images, case: Case, plan: Plan, seed: int | None = None) -> dict[str, Any]:
    """Return what another machine must find again almost to the digit.

    The mean loss of the first 20 steps, by default of the first seed; later steps amplify
    differences of rounding.
    """
    early = replace(case, budget=EARLY)
    run = fit(images, early, plan.seeds[0] if seed is None else seed, plan.first_rates[0])
    return {"loss": plain(run.curves.loss[0])}


def final(images: data.Images, case: Case, plan: Plan, rate: float) -> dict[str, Any]:
    """Train a run for each seed of the plan and describe the runs before and after."""
    runs = [fit(images, case, seed, rate) for seed in plan.seeds]
    shares = np.array([probabilities(images, case, run.last) for run in runs])
    labels = images.labels[split(images, case.budget).test]
    hits = shares.argmax(axis=-1) == labels
    found: dict[str, Any] = {
        "rate": rate,
        "seeds": list(plan.seeds),
        "curves": {
            name: plain([getattr(run.curves, name) for run in runs])
            for name in ("loss", "validation", "test")
        },
        "test": plain(hits.mean(axis=1)),
        "right_by_image": hits.sum(axis=0).tolist(),
        "ensemble": plain((shares.mean(axis=0).argmax(axis=-1) == labels).mean()),
        "first": geometries(images, case, [run.first for run in runs]),
        "last": geometries(images, case, [run.last for run in runs]),
    }
    if case.name == "long-reference":
        found["removal"] = removal(images, case, runs, plan, rate)
    return found


def probabilities(images: data.Images, case: Case, model: Transformer) -> Any:
    """Return the classes' probabilities of the test images ``(images, classes)``."""
    test = split(images, case.budget).test
    return np.asarray(_probabilities(model, jnp.asarray(images.patches[test])))


@eqx.filter_jit
def _probabilities(model: Transformer, patches: Array) -> Array:
    return jax.nn.softmax(model(patches))


def removal(
    images: data.Images, case: Case, runs: Sequence[Run], plan: Plan, rate: float
) -> dict[str, Any]:
    r"""Take the initial noise out of trained layers: $V_\ell - (1 - \eta) V_\ell(0)$.

    Controls: another sample of the noise in its place, ``replaced``; and in ``refitted`` what is
    not in the layers (embedding, places, head) is trained again on the frozen layers, without
    the noise and, for comparison, with it.
    """
    pixels, parts = arrays(images), split(images, case.budget)
    count = eqx.filter_jit(lambda model: right(model, pixels, parts.test).mean())

    def changed(run: Run, kept: float, other: Array | float = 0.0) -> Transformer:
        values = run.last.layers.values - (1 - kept) * run.first.layers.values + other
        return with_values(run.last, values)

    def refit(run: Run, seed: int, kept: float) -> Any:
        model = changed(run, kept)
        return count(train(images, model, BRIEF, seed=seed, rate=rate, frozen=True).last)

    pairs = list(zip(runs, plan.seeds))
    gained = [run.last.layers.values - run.first.layers.values for run in runs]
    return {
        "kept": list(KEPT),
        "test": plain([[count(changed(run, kept)) for run in runs] for kept in KEPT]),
        "replaced": plain([count(changed(run, 0.0, fresh(case, seed))) for run, seed in pairs]),
        "refitted_with": plain([refit(run, seed, 1.0) for run, seed in pairs]),
        "refitted_without": plain([refit(run, seed, 0.0) for run, seed in pairs]),
        "size": plain([jnp.linalg.norm(change) for change in gained]),
        "noise_size": plain([jnp.linalg.norm(run.first.layers.values) for run in runs]),
    }


def with_values(model: Transformer, values: Array) -> Transformer:
    """Return the model with other value matrices."""
    return eqx.tree_at(lambda m: m.layers.values, model, values)


def fresh(case: Case, seed: int) -> Array:
    """Draw value matrices of the reference's law that no run has seen."""
    key = jax.random.fold_in(jax.random.key(seed), 2)
    return matrices(REFERENCE, case.shape.depth, case.shape.width, case.shape.width, key)


def geometries(images: data.Images, case: Case, models: Sequence[Transformer]) -> dict[str, Any]:
    """Describe the last tokens of the test images by run; of the histograms return the mean."""
    patches = jnp.asarray(images.patches[split(images, case.budget).test])
    found = [_geometry(model, patches) for model in models]
    histogram = np.mean([one.pop("histogram") for one in found], axis=0)
    names = {name: plain([one[name] for one in found]) for name in found[0]}
    return {**names, "histogram": plain(histogram)}


@eqx.filter_jit
def _geometry(model: Transformer, patches: Array) -> dict[str, Array]:
    return geometry.summary(model.tokens(patches))


def plain(values: Any) -> Any:
    """Return numbers for a file, with six digits."""
    return np.round(np.asarray(values, dtype=float), 6).tolist()
