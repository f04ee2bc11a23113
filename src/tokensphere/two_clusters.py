r"""Two clusters of merged tokens under random layers, and how long unequal ones stay apart.

Two groups of $m_1$ and $m_2$ coincident tokens stay two groups. With $z = \beta(1-r)$,
$\ell = \log(m_2/m_1)$ and
$$S = \frac{\cosh\ell}{\cosh z+\cosh\ell},\qquad
  \Delta = \frac{\sinh\ell}{\cosh z+\cosh\ell},\qquad D = \Delta^2 + (1+r)(1-S),$$
their overlap obeys (Itô)
$$dr = (1-r)\,\{(1+r)[S(d-2+r) - r] - (d-1)\,r\,\Delta^2\}\,dt + (1-r)\sqrt{2(1+r)D}\;dB.$$
Here $\alpha_1 = m_2e^{\beta r}/(m_1e^\beta + m_2e^{\beta r})$ is the weight of group 2 for group 1
and $\alpha_2$ likewise; $S = \alpha_1+\alpha_2-2\alpha_1\alpha_2$ and
$\Delta = \alpha_1-\alpha_2$. For $m_1=m_2$, $\Delta = 0$ and this is the equation of
:mod:`tokensphere.two_tokens`. For $m_1\ne m_2$ the two groups move at different speeds even
when antipodal, so that r = -1 is an entrance boundary (in d = 2 the angle between them passes
through $\pi$): antipodal groups of unequal size are only metastable, and all tokens merge in the
end. Derived here; we have seen it stated nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from tokensphere import _check, _quadrature
from tokensphere._check import Array
from tokensphere.two_tokens import _attraction

#: length of a panel in u = artanh r, in which the coefficients are analytic within pi/4
_PANEL = 0.5
#: by how much the logarithm of an integrand may change on a panel
_CHANGE = 6.0


def drift(r: ArrayLike, sizes: Sequence[int], beta: ArrayLike, d: int) -> Array:
    r"""Itô drift of the overlap of two groups; ``r`` and ``beta`` broadcast.

    >>> drift(-1.0, (1, 2), 0.0, 3).round(6)
    np.float64(0.444444)
    """
    r, ell, beta, d = _arguments(r, sizes, beta, d)
    s, delta = _mixing(beta * (1 - r), ell)
    inner = (1 + r) * (s * (d - 2 + r) - r) - (d - 1) * r * delta**2
    return ((1 - r) * inner)[()]


def diffusion(r: ArrayLike, sizes: Sequence[int], beta: ArrayLike, d: int) -> Array:
    r"""Coefficient $(1-r)\sqrt{2(1+r)D}$ of dB in the equation of the overlap (Itô).

    It does not depend on d, which is taken for symmetry with :func:`drift`.
    """
    r, ell, beta, d = _arguments(r, sizes, beta, d)
    s, delta = _mixing(beta * (1 - r), ell)
    return ((1 - r) * np.sqrt(2 * (1 + r) * (delta**2 + (1 + r) * (1 - s))))[()]


def mean_merge_time(
    sizes: Sequence[int], beta: float, d: int, *, r0: float, merged: float = 0.99
) -> float:
    r"""Mean time until two groups of tokens first have the overlap ``merged``.

    $$E[\tau] = \int_{r_0}^{r_m} s(x) \int_{-1}^x m(y)\,dy\,dx,\qquad
      m = 2/(\sigma^2 s),\quad (\log s)' = -2\mu/\sigma^2,$$
    with $\mu$ from :func:`drift` and $\sigma$ from :func:`diffusion`. All integrals are done in
    logarithms on Gauss-Legendre panels in u = artanh r; relative accuracy about 1e-11.

    It grows exponentially in $\beta$ for unequal groups. For equal groups it is ``inf`` where
    they can end antipodal ($\cosh 2\beta > d-2$), and also where $\cosh 2\beta = d-2$: they then
    merge with certainty, but after a time of infinite mean.

    Args:
        sizes: $(m_1, m_2)$, numbers of tokens in the groups.
        beta: inverse temperature, >= 0.
        d: dimension, >= 2.
        r0: overlap at the start, -1 < r0 < 1.
        merged: overlap at which they count as merged, -1 < merged < 1; 0 is returned if r0 is
            not below it.

    Raises:
        OverflowError: the time is finite but above 1e308 (beta > 350).

    >>> round(mean_merge_time((1, 2), 1.0, 3, r0=0.0), 3)
    4.486
    >>> mean_merge_time((5, 5), 1.0, 3, r0=0.0)
    inf
    """
    first, second = _sizes(sizes)
    beta, d = _check.beta(beta), _check.dimension(d)
    r0, merged = (
        _check.number(value, name, low=-1.0, high=1.0, open_low=True, open_high=True)
        for value, name in ((r0, "r0"), (merged, "merged"))
    )
    if r0 >= merged:
        return 0.0
    if first == second and _attraction(beta, d) >= 0:
        return np.inf
    log_time = _log_mean_merge_time(_log_ratio(first, second), beta, d, r0, merged)
    if log_time > np.log(np.finfo(float).max):
        raise OverflowError(
            f"the mean time is finite but above 1e308: its logarithm is {log_time:.6g}"
        )
    return float(np.exp(log_time))


def _log_mean_merge_time(ell: float, beta: float, d: int, r0: float, merged: float) -> float:
    u0, u1 = np.arctanh([r0, merged])
    # left of `low` all rates are constant to 1e-17
    low = -20 - 0.5 * np.log1p(beta)
    if ell:
        low += min(0.0, _log_delta(2 * beta, ell))
    edges = np.linspace(low, u0, int(np.ceil((u0 - low) / _PANEL)) + 1)
    edges = np.append(edges, np.linspace(u0, u1, int(np.ceil((u1 - u0) / _PANEL)) + 1)[1:])
    u, _ = _quadrature.nodes(edges)
    change = np.abs(_slope(u, ell, beta, d)[0]).max(axis=1) * _PANEL
    pieces = np.maximum(1, np.ceil(change / _CHANGE)).astype(int)
    # cut panels on which log s changes fast
    part = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    width = np.repeat(np.diff(edges) / pieces, pieces)
    edges = np.append(np.repeat(edges[:-1], pieces) + part * width, u1)
    u, half = _quadrature.nodes(edges)
    slope, log_d = _slope(u, ell, beta, d)
    log_s = -_running_sum(half, slope)
    # the inner integrand in u: m dr/du = 1 / ((1-r) D s)
    inner = -(_log_one_minus(u) + log_d + log_s)
    top = inner.max(axis=1, keepdims=True)
    scaled = half[:, None] * np.exp(inner - top)
    rate = d - 1.0 if ell else -float(_attraction(beta, d))
    first = inner[0, 0] - np.log(rate)
    panels = np.append(first, top[:, 0] + np.log(scaled @ _quadrature.WEIGHTS))
    before = np.logaddexp.accumulate(panels)[:-1, None]
    mass = np.logaddexp(before, top + np.log(scaled @ _quadrature.RUNNING.T))
    outer = _log_one_minus(u) + _log_one_minus(-u) + log_s + mass
    outer = outer[edges[:-1] >= u0]
    half = half[edges[:-1] >= u0]
    highest = outer.max()
    return float(highest + np.log(half @ np.exp(outer - highest) @ _quadrature.WEIGHTS))


def _running_sum(half: Array, values: Array) -> Array:
    """Integral from the first edge to every node."""
    before = np.concatenate([[0.0], np.cumsum(half * (values @ _quadrature.WEIGHTS))[:-1]])
    return before[:, None] + half[:, None] * (values @ _quadrature.RUNNING.T)


def _slope(u: Array, ell: float, beta: float, d: int) -> tuple[Array, Array]:
    """Minus the derivative of log s along u, and log D; no term under- or overflows."""
    log_up, z = _log_one_minus(-u), 2 * beta * expit(-2 * u)
    mix = _log_cosh(z) - _log_cosh(ell)
    s = expit(-mix)
    log_near = log_up - np.logaddexp(0, -mix)
    log_square = 2 * _log_delta(z, ell) if ell else np.full_like(u, -np.inf)
    log_d = np.logaddexp(log_near, log_square)
    r = np.tanh(u)
    up = np.exp(log_up - log_d)
    return up * (s * (d - 2 + r) - r) - (d - 1) * r * np.exp(log_square - log_d), log_d


def _log_one_minus(u: Any) -> Any:
    """Logarithm of 1 - tanh u."""
    return np.log(2) - np.logaddexp(0, 2 * u)


def _log_cosh(z: Any) -> Any:
    return np.abs(z) + np.log1p(np.exp(-2 * np.abs(z))) - np.log(2)


def _log_delta(z: Any, ell: Any) -> Any:
    """Logarithm of |sinh ell| / (cosh z + cosh ell), ell not 0."""
    log_sinh = np.abs(ell) + np.log(-np.expm1(-2 * np.abs(ell))) - np.log(2)
    return log_sinh - np.logaddexp(_log_cosh(z), _log_cosh(ell))


def _mixing(z: Array, ell: float) -> tuple[Array, Array]:
    """Return S and |Delta|."""
    s = expit(_log_cosh(ell) - _log_cosh(z))
    return s, np.exp(_log_delta(z, ell)) if ell else np.zeros_like(s)


def _log_ratio(first: int, second: int) -> float:
    """Logarithm of second / first, exact for neighbours too."""
    return float(np.log1p((second - first) / first))


def _sizes(sizes: Sequence[int]) -> tuple[int, int]:
    try:
        first, second = sizes
    except (TypeError, ValueError):
        raise ValueError(f"sizes must be two whole numbers, got {_check._show(sizes)}") from None
    return _check.whole(first, "sizes"), _check.whole(second, "sizes")


def _arguments(
    r: ArrayLike, sizes: Sequence[int], beta: ArrayLike, d: int
) -> tuple[Array, float, Array, int]:
    array = _check.floating(r, "r")
    if (np.abs(array) > 1).any():
        raise ValueError(
            f"r must satisfy -1 <= r <= 1, got {_check._show(array[np.abs(array) > 1])}"
        )
    return array, _log_ratio(*_sizes(sizes)), _check.betas(beta), _check.dimension(d)
