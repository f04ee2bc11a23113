r"""The backward equation of two tokens' overlap, for its expectation.

With $v(t,u) = E[\tanh u_t \mid u_0 = u]$ and $v = \tanh u + w$, the gain w solves
$$\partial_t w = a\,w' + (1-c)\,w'' + s,\qquad w(0,u) = 0,\qquad
  a = c(d-2) + (1-c)\tanh u + 2g\alpha,$$
where g is the pull, $s = (1-r^2)[c(d-2)-(1-c)r+2g\alpha]$ is the drift of r, and w vanishes at
both ends of the line.
"""

from __future__ import annotations

from math import factorial

import numpy as np
from scipy.linalg import solve_banded
from scipy.special import expit

from tokensphere._check import Array

#: central differences of order 8 for the first and second derivative, offsets -4..4
_FIRST = np.array([3, -32, 168, -672, 0, 672, -168, 32, -3]) / 840
_SECOND = np.array([-9, 128, -1008, 8064, -14350, 8064, -1008, 128, -9]) / 5040
#: largest difference between one step and its halves, which are then 100 times better. Rounding
#: makes differences of up to 1e-12 in long steps.
_TOLERANCE = 3e-11
#: stages of a step: order 2 * 4 - 1 = 7
_STAGES = 4


def expected_gain(
    u0: Array, times: Array, beta: float, d: int, pull: float = 0.0, refine: float = 1.0
) -> Array:
    r"""$E[r_t] - r_0$, shape ``(T, len(u0))``, for increasing ``times``.

    ``refine`` > 1 makes the grid in u finer by that factor, to measure its error.
    """
    grid = _grid(u0, float(times[-1]), beta, d, pull, refine)
    bands, source = _operator(grid, beta, d, pull)
    read = _interpolation(grid, u0)
    w = np.zeros(grid.size)
    out = np.empty((times.size, u0.size))
    now, step = 0.0, 0.01 / (d + abs(pull))
    for k, time in enumerate(times):
        while now < time:
            h = min(step, time - now)
            half = _step(_step(w, bands, source, h / 2), bands, source, h / 2)
            error = np.abs(half - _step(w, bands, source, h)).max()
            if error <= _TOLERANCE:
                w, now = half, (time if h == time - now else now + h)
            step = h * min(4.0, 0.9 * (_TOLERANCE / max(error, 1e-300)) ** (1 / (2 * _STAGES)))
        out[k] = read @ w
    return out


def _grid(u0: Array, time: float, beta: float, d: int, pull: float, refine: float) -> Array:
    """Equally spaced u, as far as a path from ``u0`` can go and come back.

    Near the ends tanh is 1 to rounding, so beyond 20 only the path's reach counts: at most
    8 standard deviations sqrt(2 t) and the fastest drift, or where the way back is improbable.
    """
    shift = 0.5 * np.log1p(beta)
    probe = np.linspace(-30 - shift, 30 + shift, 1201)
    a, diffusion = coefficients(probe, beta, d, pull)
    reach = 8 * np.sqrt(2 * time)
    low = min(-20 - shift, u0.min() - reach + min(0.0, a.min()) * time)
    rate = a[0] / diffusion[0]
    if rate < 0:
        low = max(low, -20 - shift + 36 / rate)
    high = 20 + shift + (20 if d == 2 else 0)
    if pull < 0:
        away = a[-1] / diffusion[-1]
        far = max(high, u0.max() + reach + max(0.0, a.max()) * time)
        high = min(far, high + 36 / away) if away > 0 else far
    # fronts of the solution are as sharp as 1 / log d
    spacing = 0.06 / (1 + np.log1p(max(d - 2, 0) + abs(pull))) / refine
    return np.linspace(low, high, int(np.ceil((high - low) / spacing)) + 1)


def coefficients(u: Array, beta: float, d: int, pull: float = 0.0) -> tuple[Array, Array]:
    """Drift a of u and half its squared noise, 1 - c; stable at any u."""
    e = expit(-2 * u)
    q = np.exp(-2 * beta * e)
    c = 2 * q / (1 + q) ** 2
    return c * (d - 2) + (1 - c) * (1 - 2 * e) + 2 * pull * q / (1 + q), 1 - c


def _operator(u: Array, beta: float, d: int, pull: float) -> tuple[Array, Array]:
    """The generator as a banded matrix (scipy's form) and the source."""
    h = (u[-1] - u[0]) / (u.size - 1)
    a, diffusion = coefficients(u, beta, d, pull)
    source = (a - 2 * diffusion * np.tanh(u)) / np.cosh(u) ** 2
    rows = a[:, None] / h * _FIRST + diffusion[:, None] / h**2 * _SECOND
    # left of the grid w is what it is at the first point (nothing happens there: it may be 0 or
    # 2); right of it w = 0
    for j in range(4):
        outside = rows[j, : 4 - j].sum()
        rows[j, : 4 - j] = 0
        rows[j, 4 - j] += outside
    bands = np.zeros((9, u.size))
    for k in range(-4, 5):
        # bands[4 - k, j] holds entry (j - k, j)
        i = np.arange(max(0, -k), min(u.size, u.size - k))
        bands[4 - k, i + k] = rows[i, 4 + k]
    return bands, source


def _rational() -> tuple[Array, Array]:
    """Poles in the upper half plane and residues of the Pade approximation (m-1, m) to e^z.

    These are the stability functions of the Radau IIA methods: order 2m - 1 and L-stable.
    """
    p, q = _STAGES - 1, _STAGES
    top = [_pade(p, q, j) for j in range(p + 1)]
    bottom = [(-1) ** j * _pade(q, p, j) for j in range(q + 1)]
    poles = np.polynomial.polynomial.polyroots(bottom)
    poles = poles[poles.imag > 0]
    slope = np.polynomial.polynomial.polyder(bottom)
    evaluate = np.polynomial.polynomial.polyval
    return poles, evaluate(poles, top) / evaluate(poles, slope)


def _pade(p: int, q: int, j: int) -> float:
    n = p + q
    return factorial(n - j) * factorial(p) / (factorial(n) * factorial(j) * factorial(p - j))


_POLES, _RESIDUES = _rational()


def _step(w: Array, bands: Array, source: Array, h: float) -> Array:
    """One step of w' = A w + s: sum over poles of c (hA - p)^-1 (w + h s / p)."""
    out = np.zeros(w.size)
    for pole, residue in zip(_POLES, _RESIDUES, strict=True):
        matrix = h * bands.astype(complex)
        matrix[4] -= pole
        out += 2 * (residue * solve_banded((4, 4), matrix, w + h / pole * source)).real
    return out


def _interpolation(grid: Array, u0: Array) -> Array:
    """Matrix (len(u0), len(grid)) of Lagrange interpolation through the 10 nearest points."""
    h = (grid[-1] - grid[0]) / (grid.size - 1)
    first = np.clip(np.floor((u0 - grid[0]) / h).astype(int) - 4, 0, grid.size - 10)
    position = (u0 - grid[0]) / h - first
    matrix = np.zeros((u0.size, grid.size))
    for j in range(10):
        others = [m for m in range(10) if m != j]
        value = np.prod([(position - m) / (j - m) for m in others], axis=0)
        matrix[np.arange(u0.size), first + j] = value
    return matrix
