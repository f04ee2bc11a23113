"""From the start to the clusters on the circle (beta = 5): ours, SciPy on the plain sum, Euler."""

import numpy as np
import pytest
from alternatives import dense_solve_ivp, plain_pairs

from tokensphere import circle

BETA, TIME, EULER_STEPS = 5.0, 0.6, 6000


def start(n):
    return np.random.default_rng(1).uniform(-np.pi, np.pi, n)


@pytest.mark.parametrize("n", [200, 1000, 20_000, 200_000])
def bench_circle_solve(measure, n):
    theta = start(n)
    measure(
        lambda: circle.solve(theta, BETA, [0, TIME], rtol=1e-6),
        rounds=1 if n > 1000 else 3,
        family="flow",
        who="tokensphere",
        n=n,
    )


@pytest.mark.parametrize("n", [200, 1000])
def bench_solve_ivp(measure, n):
    theta = start(n)
    measure(
        lambda: dense_solve_ivp(theta, BETA, TIME, 1e-6),
        rounds=1,
        family="flow",
        who="solve_ivp on the plain sum",
        n=n,
    )


@pytest.mark.parametrize("n", [200, 1000, 20_000])
def bench_euler_step(measure, n):
    """The sum over pairs for the first 1000 tokens at most: one step of all is n/rows times it."""
    theta, rows = start(n), min(n, 1000)
    measure(
        lambda: plain_pairs(theta, BETA, wanted=rows),
        rounds=3,
        family="flow",
        who="Euler step",
        n=n,
        rows=rows,
        steps=EULER_STEPS,
    )


def bench_circle_agrees(measure):
    """What is compared does the same."""
    theta = start(500)
    ours = circle.solve(theta, BETA, [0, TIME], rtol=1e-6).angles[-1]
    theirs = measure(
        lambda: dense_solve_ivp(theta, BETA, TIME, 1e-6),
        rounds=1,
        family="flow",
        who="solve_ivp on the plain sum",
        n=500,
    )
    np.testing.assert_allclose(theirs, ours, atol=1e-3)
