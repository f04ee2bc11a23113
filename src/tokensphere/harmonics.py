r"""Linear stability of the uniform measure: Funk-Hecke eigenvalues and growth rates.

Convolution with $e^{\beta\langle x,y\rangle}$ against the uniform probability measure multiplies
spherical harmonics of degree k by (Funk-Hecke)
$$\lambda_k(\beta,d) = \Gamma(d/2)\,(2/\beta)^{d/2-1}\, I_{k+d/2-1}(\beta),$$
and a perturbation of the uniform density of degree k grows at the rate
$$\gamma_k = k(k+d-2)\,\lambda_k/\beta \quad\text{(USA)},\qquad
  \gamma_k = k(k+d-2)\,\lambda_k/(\beta\lambda_0) \quad\text{(SA)}.$$
Both are derived in the book's chapter on clusters. Everything is computed from
$\log[\lambda_k (2/\beta)^k]$, which neither under- nor overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import gammaln, ive, poch, xlogy

from tokensphere import _check
from tokensphere._check import Array, Kind

#: coefficients of the polynomials U_0..U_4 of the Debye expansion of I_nu (DLMF 10.41.10)
_DEBYE = (
    ((1.0,), 1.0),
    ((3.0, -5.0), 24.0),
    ((81.0, -462.0, 385.0), 1152.0),
    ((30375.0, -369603.0, 765765.0, -425425.0), 414720.0),
    ((4465125.0, -94121676.0, 349922430.0, -446185740.0, 185910725.0), 39813120.0),
)


def kernel_eigenvalue(k: ArrayLike, beta: ArrayLike, d: ArrayLike) -> Array:
    r"""Funk-Hecke eigenvalue $\lambda_k(\beta, d)$; in d = 2 it is $I_k(\beta)$.

    ``k`` (whole, >= 0), ``beta`` (>= 0) and ``d`` (whole, >= 2) broadcast. Relative accuracy is
    about 1e-12. The value grows like $e^\beta$ and is ``inf`` where float64 ends, beta near 700;
    :func:`log_kernel_eigenvalue` has no such limit.

    >>> kernel_eigenvalue([0, 1], 0.0, 3)
    array([1., 0.])
    """
    with np.errstate(over="ignore"):
        return np.exp(log_kernel_eigenvalue(k, beta, d))[()]


def log_kernel_eigenvalue(k: ArrayLike, beta: ArrayLike, d: ArrayLike) -> Array:
    r"""Logarithm of :func:`kernel_eigenvalue`: finite for every beta > 0."""
    k, beta, d = _arguments(k, beta, d, low=0)
    return (_log_reduced(k, beta, d) + xlogy(k, beta / 2))[()]


def growth_rate(k: ArrayLike, beta: ArrayLike, d: ArrayLike, kind: Kind = "unnormalized") -> Array:
    r"""Growth rate $\gamma_k$ of degree-k perturbations of the uniform density.

    ``k`` (whole, >= 1), ``beta`` (>= 0) and ``d`` (whole, >= 2) broadcast. At $\beta = 0$ only
    $\gamma_1 = (d-1)/d$ is not zero. ``"unnormalized"`` is ``inf`` where it leaves float64 (beta
    near 700); ``"softmax"`` is finite everywhere.

    >>> growth_rate([2, 3, 4], 5.0, 2).round(3)
    array([14.004, 18.596, 16.346])
    """
    kind = _check.kind(kind)
    k, beta, d = _arguments(k, beta, d, low=1)
    with np.errstate(over="ignore"):
        return np.exp(_log_growth_rate(k, beta, d, kind))[()]


def dominant_mode(beta: ArrayLike, d: ArrayLike) -> Array:
    r"""Degree of fastest growth, $k_{\max} = \arg\max_k \gamma_k$; the same for SA and USA.

    ``beta`` and ``d`` broadcast. For d = 2 and large beta, $k_{\max}\approx\sqrt{2\beta}$.

    >>> dominant_mode([5.0, 7.0], 2)
    array([3, 4])
    """
    _, beta, d = _arguments(1, beta, d, low=1)
    # gamma_k falls off like exp(-k^2 / 2 beta) past its maximum near sqrt(2 beta)
    best = np.empty(beta.shape, dtype=np.int64)
    for place in np.ndindex(beta.shape):
        k = np.arange(1, int(2 * np.sqrt(2 * beta[place])) + 10, dtype=float)
        rates = _log_growth_rate(k, beta[place], d[place], "softmax")
        best[place] = 1 + int(np.argmax(rates))
    return best[()]


def mode_switch(k: int, d: int) -> float:
    r"""The $\beta$ at which $\gamma_{k+1}$ overtakes $\gamma_k$, where $k_{\max}$ goes k to k + 1.

    With $\nu = k + d/2 - 1$ it solves $I_{\nu+1}/I_\nu = k(k+d-2)/((k+1)(k+d-1)) =: q$. The
    ratio grows with beta between $\beta/(a + \sqrt{\beta^2 + a^2})$ for a = $\nu+1$ and for
    a = $\nu + 1/2$ (Amos 1974), which brackets the root by $2aq/(1-q^2)$.

    >>> round(mode_switch(2, 2), 6)
    3.165434
    """
    k, d = _check.whole(k, "k"), _check.dimension(d)
    nu = k + d / 2 - 1
    q = k * (k + d - 2) / ((k + 1) * (k + d - 1))

    def gap(beta: float) -> float:
        this, following = _log_growth_rate(np.array([k, k + 1.0]), beta, d, "softmax")
        return float(following - this)

    low, high = (2 * a * q / (1 - q * q) for a in (nu + 0.5, nu + 1.0))
    return float(brentq(gap, low * (1 - 1e-9), high * (1 + 1e-9), xtol=1e-13 * high, rtol=1e-14))


def _arguments(k: Any, beta: Any, d: Any, low: int) -> tuple[Array, Array, Array]:
    beta = _check.betas(beta).astype(np.float64)
    whole = []
    for value, name, least in ((k, "k", low), (d, "d", 2)):
        array = _check.floating(value, name).astype(np.float64)
        if (array != np.rint(array)).any() or (array < least).any():
            raise ValueError(f"{name} must be whole and >= {least}, got {_check._show(value)}")
        whole.append(array)
    return tuple(np.broadcast_arrays(whole[0], beta, whole[1]))  # type: ignore[return-value]


def _log_growth_rate(k: Any, beta: Any, d: Any, kind: Kind) -> Array:
    # lambda_k / beta = (1/2) (beta/2)^(k-1) * reduced: regular at beta = 0
    log_rate = (
        np.log(k * (k + d - 2) / 2) + xlogy(np.subtract(k, 1), beta / 2) + _log_reduced(k, beta, d)
    )
    if kind == "softmax":
        log_rate = log_rate - _log_reduced(0, beta, d)
    return log_rate


def _log_reduced(k: Any, beta: Any, d: Any) -> Array:
    r"""Return $\log[\lambda_k (2/\beta)^k]$, also at beta = 0.

    Three ways: the ascending series $\frac{1}{(d/2)_k}\,{}_0F_1(;\nu+1;\beta^2/4)$, all of whose
    terms are positive, while it is short; beyond, the scaled Bessel function; and where that
    underflows, Debye's expansion, whose order is then above 700 and its relative error below 1e-14.
    """
    k, beta, d = np.broadcast_arrays(
        np.asarray(k, float), np.asarray(beta, float), np.asarray(d, float)
    )
    nu = k + d / 2 - 1
    z = beta**2 / 4
    out = np.empty(nu.shape)
    short = z <= 50 * (nu + 1)
    out[short] = _log_series(nu[short], z[short]) - _log_poch(d[short] / 2, k[short])
    if not short.all():
        far = ~short
        nu, beta, half_d, k = nu[far], beta[far], d[far] / 2, k[far]
        scaled = ive(nu, beta)
        tiny = scaled < 1e-290
        log_bessel = np.empty(nu.shape)
        log_bessel[~tiny] = np.log(scaled[~tiny]) + beta[~tiny]
        log_bessel[tiny] = _log_debye(nu[tiny], beta[tiny])
        out[far] = log_bessel + gammaln(half_d) - nu * np.log(beta / 2)
    return out


def _log_series(nu: Array, z: Array) -> Array:
    """Logarithm of 0F1(; nu + 1; z) for z <= 50 (nu + 1), summed term by term."""
    term, total, m = np.ones_like(nu), np.ones_like(nu), 0
    while term.size and (term > 1e-17 * total).any():
        m += 1
        term = term * (z / (m * (nu + m)))
        total = total + term
    return np.log(total)


def _log_poch(a: Array, k: Array) -> Array:
    """Logarithm of the rising factorial (a)_k."""
    with np.errstate(over="ignore"):
        direct = poch(a, k)
    safe = np.isfinite(direct) & (direct > 0)
    return np.where(safe, np.log(np.where(safe, direct, 1.0)), gammaln(a + k) - gammaln(a))


def _log_debye(nu: Array, beta: Array) -> Array:
    """Logarithm of I_nu(beta) for large nu, uniformly in beta (DLMF 10.41.3)."""
    z = beta / nu
    root = np.sqrt(1 + z * z)
    eta = root + np.log(z / (1 + root))
    t2 = 1 / (1 + z * z)
    series = np.zeros_like(nu)
    for s, (coefficients, denominator) in enumerate(_DEBYE):
        polynomial = np.polynomial.polynomial.polyval(t2, coefficients)
        series += t2 ** (s / 2) * polynomial / denominator / nu**s
    return nu * eta - 0.5 * np.log(2 * np.pi * nu) - 0.25 * np.log(1 + z * z) + np.log(series)
