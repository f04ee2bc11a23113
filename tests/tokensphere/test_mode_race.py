"""The race of the modes against drawing it, and against simulated tokens."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import iv

from tokensphere import circle, mode_race


def draw(n, beta, level, size, seed):
    """Arrival times of modes 1..12 in ``size`` races, from their definition."""
    k = np.arange(1, 13)
    gamma = k**2 * iv(k, beta) / beta
    z2 = np.random.default_rng(seed).exponential(size=(size, 12))
    return np.maximum((math.log(n) + 2 * math.log(level) - np.log(z2)) / (2 * gamma), 0)


@pytest.mark.parametrize(
    ("n", "beta", "level"), [(2e4, 5.0, 0.1), (1e3, 7.0, 0.3), (1e6, 2.0, 0.2)]
)
def test_against_drawing(n, beta, level):
    size = 200_000
    t = draw(n, beta, level, size, 1)
    first = t.min(axis=-1)
    winner = np.bincount(t.argmin(axis=-1), minlength=12) / size
    shares = mode_race.shares(n, beta, level)
    spread = np.sqrt(shares[:12] * (1 - shares[:12]) / size)
    # a race that has a leader at the start has no winner
    started = 1 - mode_race.survival(0.0, n, beta, level)
    assert (np.abs(winner - shares[:12]) < 4.5 * spread + started + 1e-6).all()
    assert shares.sum() == pytest.approx(1 - started, abs=1e-9)
    mean = mode_race.mean_arrival(n, beta, level)
    assert mean == pytest.approx(first.mean(), abs=4.5 * first.std() / math.sqrt(size))
    for quantile in (0.1, 0.5, 0.9):
        at = np.quantile(first, quantile)
        late = mode_race.survival(at, n, beta, level)
        assert late == pytest.approx(1 - quantile, abs=5 * 0.5 / math.sqrt(size))


def test_large_n():
    """The fastest mode wins in the end, at log n / (2 gamma_max) to leading order."""
    for beta, k in ((5.0, 3), (7.0, 4)):
        gamma = k**2 * iv(k, beta) / beta
        shares = [mode_race.shares(10.0**power, beta, 0.1)[k - 1] for power in (4, 8, 100, 300)]
        assert sorted(shares) == shares
        assert shares[-1] > 0.99
        low, high = (mode_race.mean_arrival(10.0**power, beta, 0.1) for power in (290, 300))
        assert high - low == pytest.approx(10 * math.log(10) / (2 * gamma), rel=1e-3)


def test_tokens_run_this_race():
    """1000 random tokens, 48 times: their modes start and grow as the race assumes."""
    n, beta, level, seeds = 1000, 5.0, 0.1, 48
    theta = np.random.default_rng(2).uniform(0, 2 * np.pi, (seeds, n))
    times = np.linspace(0, 0.2, 41)
    run = circle.solve(theta, beta, times, rtol=1e-5)
    k = np.arange(1, 7)
    height = np.abs(circle.modes(run.angles, k))
    assert stats.kstest((n * height[0] ** 2).ravel(), stats.expon.cdf).pvalue > 1e-3
    predicted = (np.log(level / height[0]) / (k**2 * iv(k, beta) / beta)).min(axis=-1)
    arrival = np.empty(seeds)
    for seed in range(seeds):
        highest = height[:, seed].max(axis=-1)
        after = int(np.argmax(highest >= level))
        before = np.log(highest[after - 1 : after + 1])
        share = (math.log(level) - before[0]) / (before[1] - before[0])
        arrival[seed] = times[after - 1] + share * (times[1] - times[0])
    # the modes act on each other at second order: on log amplitudes that is of order `level`,
    # on times of order level / gamma
    assert np.abs(arrival - predicted).mean() < level / (9 * iv(3, beta) / beta)
    mean = mode_race.mean_arrival(n, beta, level)
    assert arrival.mean() == pytest.approx(mean, abs=4 * arrival.std() / math.sqrt(seeds))
