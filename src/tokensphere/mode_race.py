r"""The race of the modes: when, and by which mode, random tokens on the circle leave uniformity.

A random uniform start of n tokens puts $\hat\mu_k(0) = n^{-1/2} Z_k$ into mode k, the
$Z_k$ being independent complex normal, $|Z_k|^2$ exponential with mean 1. While the modes are
small each grows by itself, $\hat\mu_k(t) = e^{\gamma_k t}\hat\mu_k(0)$, and reaches the size r
("level") at
$$t_k = \frac{\log n + 2\log r - \log |Z_k|^2}{2\gamma_k},\qquad
  P(t_k > t) = 1 - \exp(-n r^2 e^{-2\gamma_k t}).$$
The first to arrive wins. Everything here follows from these two lines (derived here, for USA on
the circle); it knows nothing of what the modes do to each other once they are large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad_vec

from tokensphere import _check, harmonics
from tokensphere._check import Array


def survival(t: ArrayLike, n: float, beta: float, level: float) -> Array:
    r"""Probability that no mode has reached ``level`` by time t: $\prod_k P(t_k > t)$.

    ``n`` may be any number >= 1, ``level`` lies in (0, 1], ``beta`` in (0, 700].
    """
    t = _check.floating(t, "t")
    rates = _rates(beta)
    return np.exp(_log_late(t[..., None], _squared(n, level), rates).sum(axis=-1))[()]


def mean_arrival(n: float, beta: float, level: float) -> float:
    """Mean time at which the first mode reaches ``level``, counted as 0 if it starts there.

    >>> round(mean_arrival(20000, 5.0, 0.1), 4)
    0.1453
    """
    strength, rates = _squared(n, level), _rates(beta)

    def late(t: float) -> float:
        return float(np.exp(_log_late(t, strength, rates).sum()))

    mean, _ = quad_vec(late, 0.0, _end(strength, rates))
    return float(mean)


def shares(n: float, beta: float, level: float) -> Array:
    """Probability that mode k arrives first, for k = 1, 2, ...; they add up to one.

    (To the probability that some mode starts above ``level``, which has no winner.)

    >>> shares(20000, 5.0, 0.1)[:5].round(3)
    array([0.   , 0.088, 0.619, 0.288, 0.005])
    """
    strength, rates = _squared(n, level), _rates(beta)

    def density(t: float) -> Array:
        waiting = strength * np.exp(-2 * rates * t)
        late = _log_late(t, strength, rates)
        # of mode k alone: -dP(t_k > t)/dt = 2 gamma_k a e^-a; times all the others being late
        return 2 * rates * waiting * np.exp(-waiting + late.sum() - late)

    won, _ = quad_vec(density, 0.0, _end(strength, rates), epsabs=1e-12, epsrel=1e-10)
    return np.asarray(won)


def _rates(beta: float) -> Array:
    beta = _check.number(beta, "beta", low=0.0, open_low=True, high=700.0)
    k = np.arange(1.0, 10 + int(np.sqrt(40 * beta)))
    return harmonics.growth_rate(k, beta, 2)


def _squared(n: float, level: float) -> float:
    n = _check.number(n, "n", low=1.0)
    level = _check.number(level, "level", low=0.0, high=1.0, open_low=True)
    return n * level**2


def _end(strength: float, rates: Array) -> float:
    """Return a time by which the race is over but for a probability of about 1e-17."""
    return (max(np.log(strength), 0.0) + 40.0) / (2 * float(rates.max()))


def _log_late(t: ArrayLike, strength: float, rates: Array) -> Array:
    """Logarithm of P(t_k > t) for every mode (last axis)."""
    return np.log(-np.expm1(-strength * np.exp(-2 * rates * np.asarray(t))))
