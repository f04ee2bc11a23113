"""Large crowds, theory on a grid, the import, and several cores; where memory counts, alone."""

import os

import numpy as np
import pytest

from companion import ensemble
from tokensphere import layers, sphere, two_tokens

CIRCLE = """
import numpy as np
from tokensphere import circle
theta = np.random.default_rng(1).uniform(-np.pi, np.pi, {n})
circle.velocity(theta[:5000], 5.0)
"""
GLOBE = """
import numpy as np
from tokensphere import globe, sphere
x = np.random.default_rng(1).standard_normal(({n}, 3), dtype=np.float64)
x /= np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]
globe.velocity(x[:5000], 5.0)
"""


@pytest.mark.parametrize("n", [10**5, 10**6, 10**7])
def bench_circle_memory(measure_alone, n):
    measure_alone(
        CIRCLE.format(n=n),
        "circle.velocity(theta, 5.0)",
        family="circle memory",
        who="tokensphere",
        n=n,
    )


def bench_circle_of_ten_million(measure_alone):
    work = f"circle.velocity(theta, 5.0, threads={min(2, os.cpu_count() or 1)})"
    measure_alone(
        CIRCLE.format(n=10**7), work, times=3, family="circle 10^7", who="tokensphere", n=10**7
    )


def bench_circle_of_a_hundred_million(measure_alone):
    work = f"circle.velocity(theta, 5.0, threads={min(2, os.cpu_count() or 1)})"
    measure_alone(CIRCLE.format(n=10**8), work, family="circle memory", who="tokensphere", n=10**8)


@pytest.mark.parametrize("n", [10**5, 10**6, 10**7])
def bench_globe_memory(measure_alone, n):
    measure_alone(
        GLOBE.format(n=n), "globe.velocity(x, 5.0)", family="globe memory", who="tokensphere", n=n
    )


def bench_circle_to_its_clusters(measure_alone):
    measure_alone(
        CIRCLE.format(n=10**6),
        "circle.solve(theta, 5.0, [0, 0.6], rtol=1e-5)",
        family="crowd circle",
        who="tokensphere",
        n=10**6,
    )


def bench_globe_to_its_pattern(measure_alone):
    measure_alone(
        GLOBE.format(n=10**5),
        "globe.solve(x, 6.0, [0, 0.2], 'unnormalized', rtol=1e-5)",
        family="crowd globe",
        who="tokensphere",
        n=10**5,
    )


def bench_theory(measure):
    beta, d = np.linspace(0, 6, 100)[:, None], np.arange(2, 102)
    measure(
        lambda: two_tokens.antipodal_probability(0.0, beta, d),
        rounds=2,
        family="theory",
        who="tokensphere",
        n=10_000,
    )


@pytest.mark.parametrize("what", ["pass", "import tokensphere", "from tokensphere import circle"])
def bench_import(measure, what):
    import subprocess
    import sys

    measure(
        lambda: subprocess.run([sys.executable, "-c", what], check=True),
        rounds=5,
        family="import",
        who=what,
    )


def through_layers(rng, *, beta):
    x = sphere.uniform(16, 32, batch=(8,), rng=rng)
    end = layers.forward(x, beta, 256, rng=rng)
    return float((end[:, 0] * end[:, 1]).sum(axis=-1).mean())


@pytest.mark.parametrize("workers", sorted({1, 2, os.cpu_count() or 1}))
def bench_cores(measure, workers):
    """A sweep of some seconds, its workers' start included."""
    grid = {"beta": np.linspace(0, 4, 16).tolist()}

    def sweep():
        with ensemble.executor(workers) as there:
            return ensemble.run(through_layers, grid, replicates=4, seed=1, on=there)

    measure(sweep, rounds=1, family="cores", who="tokensphere", cores=workers)
