r"""Tokens on $S^2$, where attention is a short series of spherical harmonics.

With the Funk-Hecke eigenvalues $\lambda_l$ of d = 3 and the addition theorem,
$$e^{\beta\langle x,y\rangle} = \sum_l (2l+1)\lambda_l P_l(\langle x,y\rangle)
  = 4\pi \sum_{lm} \lambda_l\, Y_{lm}(x)\,\overline{Y_{lm}(y)}.$$
So the sums $F_w(x) = \frac1n\sum_j w_j e^{\beta\langle x,x_j\rangle}$, with weights w = 1 (the
normaliser of SA) and w = the three coordinates of $x_j$ (whose projection on the tangent plane is
the velocity), need three steps: transform the tokens' measure, multiply degree l by
$4\pi\lambda_l$, evaluate at the tokens. The series falls off like $e^{-l^2/2\beta}$: it ends at
degree 25 for $\beta = 5$, 44 for $\beta = 20$.

Both transforms are fast: in the angles $(\theta, \varphi)$ every $Y_{lm}$ is a trigonometric
polynomial of degree l on the torus (the double Fourier sphere). They are non-uniform FFTs of
dimension 2, and a small linear map for each order m. No pair of tokens is left out, nothing is
divided by $\sin\theta$, and the cost is $O(n + L^3)$ instead of $O(n^2)$.

:func:`velocity` and :func:`solve` give what :func:`tokensphere.attention.velocity` and
:func:`tokensphere.flow.solve` give in d = 3. From about a thousand tokens on, these are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import finufft
import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, harmonics, sphere
from tokensphere._check import Array, Kind
from tokensphere._integrate import integrate
from tokensphere.attention import usable_beta
from tokensphere.trajectory import Trajectory

#: above it the kernel is so narrow that a series of harmonics stops being short
_LARGEST_BETA = 700.0
#: of a power spectrum: the tables take 8 L^3 bytes
_LARGEST_DEGREE = 300
#: coefficients below this share of the largest are left out
_CUT = 1e-17
#: the transforms' relative accuracy, at its best and at its worst (used where rtol is coarse)
_EPS, _COARSE_EPS = 1e-14, 1e-10


def velocity(x: ArrayLike, beta: float, kind: Kind = "softmax", *, threads: int = 1) -> Array:
    r"""Velocity $\dot x$ of every token, shape ``(..., n, 3)``, tangent to the sphere.

    The error, against sums over all pairs, is a few 1e-13 of the largest weighted sum; for iid
    uniform tokens the velocities are $O(\sqrt n)$ times smaller than that.

    Args:
        x: tokens on $S^2$, shape ``(..., n, 3)``; leading axes are independent systems.
        beta: inverse temperature, 0 to 700 (float32 and ``"unnormalized"``: 85).
        kind: ``"softmax"`` (SA) or ``"unnormalized"`` (USA), see :mod:`tokensphere.attention`.
        threads: of the transforms. With one, the same tokens give the same bits every time.

    Raises:
        ValueError: an argument is not as above.

    At beta = 0 tokens move towards the mean; a token between two others stays:

    >>> v = velocity([[1.0, 0, 0], [0, 0, 1.0], [-1.0, 0, 0]], 0.0)
    >>> np.abs(v).max(axis=-1).round(6)
    array([0.333333, 0.      , 0.333333])
    """
    x, beta, kind, threads = _arguments(x, "x", beta, kind, threads)
    return _field(beta, kind, threads, _EPS)(x)


def solve(
    x0: ArrayLike,
    beta: float,
    times: ArrayLike,
    kind: Kind = "softmax",
    rtol: float = 1e-8,
    *,
    threads: int = 1,
) -> Trajectory:
    r"""Follow $\dot x_i = $ :func:`velocity` from ``x0`` at ``times[0]``.

    The same equation, extension to $R^3$ and integrator as :func:`tokensphere.flow.solve`.

    Args:
        x0: tokens, shape ``(..., n, 3)``; leading axes are independent systems, which share the
            integrator's steps.
        beta: inverse temperature, as in :func:`velocity`.
        times: where to look, non-decreasing; the first is the time of ``x0``.
        kind: ``"softmax"`` or ``"unnormalized"``; the latter moves on the time scale $e^{-\beta}$.
        rtol: local error allowed per step, from 1e-13 to 1e-1. The method (DOP853) has order 8.
        threads: as in :func:`velocity`.

    Returns:
        A trajectory with ``.times (T,)``, ``.tokens (T, ..., n, 3)``, ``.evaluations``.
    """
    x0, beta, kind, threads = _arguments(x0, "x0", beta, kind, threads)
    times = _check.times(times)
    rtol = _check.number(rtol, "rtol", low=1e-13, high=0.1)
    # far enough below rtol, though velocities are smaller than the sums they come from
    field = _field(beta, kind, threads, min(max(1e-4 * rtol, _EPS), _COARSE_EPS))

    def extended(y: Array) -> Array:
        length = np.sqrt(np.einsum("...d,...d->...", y, y))[..., None]
        return field(y / length) * length

    states, evaluations = integrate(extended, x0, times, rtol)
    if len(states) > 1:
        states[1:] = sphere._normalize(states[1:])
    return Trajectory(times, states, evaluations)


def power_spectrum(x: ArrayLike, degrees: ArrayLike) -> Array:
    r"""Angular power spectrum $C_l$ of the tokens' measure: how much of it has degree l.

    With $a_{lm} = \frac1n\sum_j \overline{Y_{lm}(x_j)}$,
    $$C_l = \frac{4\pi}{2l+1}\sum_m |a_{lm}|^2
      = \frac1{n^2}\sum_{ij} P_l(\langle x_i, x_j\rangle).$$
    $C_0 = 1$; one point has $C_l = 1$ for every l, independent uniform tokens have 1/n on average
    for l >= 1. The density's square norm is $\frac{1}{4\pi}\sum_l (2l+1) C_l$.

    Args:
        x: tokens on $S^2$, shape ``(..., n, 3)``.
        degrees: whole numbers l from 0 to 300, any shape.

    Returns:
        Shape ``(...) + degrees.shape``.

    >>> power_spectrum([[0, 0, 1.0], [0, 0, -1.0]], [0, 1, 2]).round(12)
    array([1., 0., 1.])
    """
    x = _tokens(x, "x")
    wanted = _check.floating(degrees, "degrees")
    if (wanted != np.rint(wanted)).any() or (wanted < 0).any() or (wanted > _LARGEST_DEGREE).any():
        raise ValueError(
            f"degrees must be whole numbers from 0 to 300, got {_check._show(degrees)}"
        )
    wanted = wanted.astype(int)
    top = int(wanted.max(initial=0))
    plan = _plan(1, top, 1, 1, _EPS)
    systems = x.reshape((-1, *x.shape[-2:])).astype(np.float64, copy=False)
    power = np.zeros((len(systems), top + 1))
    for place, tokens in enumerate(systems):
        plan.setpts(*_spherical(tokens))
        modes = plan.execute(np.full(len(tokens), 1 / len(tokens), dtype=np.complex128))
        for m, table in enumerate(_tables(top)):
            amplitude = table @ modes[top + m]
            # a real measure: orders m and -m carry the same power
            power[place, m:] += (1 if m == 0 else 2) * np.abs(amplitude) ** 2
    power *= 4 * np.pi / (2 * np.arange(top + 1) + 1)
    return power[:, wanted].reshape(x.shape[:-2] + wanted.shape)[()]


def _tokens(x: ArrayLike, name: str) -> Array:
    x = _check.tokens(x, name, _check.floating)
    if x.shape[-1] != 3:
        raise ValueError(f"{name} must lie on S^2, shape (..., n, 3), got shape {x.shape}")
    return x


def _arguments(
    x: ArrayLike, name: str, beta: float, kind: Kind, threads: int
) -> tuple[Array, float, Kind, int]:
    x, kind = _tokens(x, name), _check.kind(kind)
    beta = _check.number(beta, "beta", low=0.0, high=_LARGEST_BETA)
    return x, usable_beta(beta, kind, x.dtype), kind, _check.whole(threads, "threads")


def _spherical(x: Array) -> tuple[Array, Array]:
    """Return azimuth and polar angle of unit vectors (n, 3), accurate near the poles too."""
    return np.arctan2(x[:, 1], x[:, 0]), np.arctan2(np.hypot(x[:, 0], x[:, 1]), x[:, 2])


def _plan(way: int, degree: int, several: int, threads: int, eps: float) -> finufft.Plan:
    """Plan a transform from tokens to modes (1) or from modes to tokens (2): (azimuth, polar)."""
    return finufft.Plan(
        way,
        (2 * degree + 1, 2 * degree + 1),
        n_trans=several,
        eps=eps,
        isign=-1 if way == 1 else 1,
        nthreads=threads,
        upsampfac=2.0,
    )


def _field(beta: float, kind: Kind, threads: int, eps: float) -> Callable[[Array], Array]:
    """Return the velocity as a function of the tokens; the plans are made once."""
    multiplier = _multiplier(beta)
    degree = multiplier.size - 1
    # the coordinates are of degree 1: the measure's modes are needed one degree further
    to_modes = _plan(1, degree + 1, 1, threads, eps)
    to_tokens = _plan(2, degree, 2, threads, eps)
    unit = np.exp(beta) if kind == "unnormalized" else 1.0

    def field(x: Array) -> Array:
        out = np.empty_like(x)
        systems = x.reshape((-1, *x.shape[-2:])).astype(np.float64, copy=False)
        for tokens, moved in zip(systems, out.reshape(systems.shape)):
            angles = _spherical(tokens)
            to_modes.setpts(*angles)
            to_tokens.setpts(*angles)
            modes = to_modes.execute(np.full(len(tokens), 1 / len(tokens), dtype=np.complex128))
            flat, upright = to_tokens.execute(_convolve(_weighted(modes), multiplier))
            sums = np.stack([flat.real, flat.imag, upright.real], axis=-1)
            sums = sphere._tangent(tokens, sums)
            moved[:] = sums / upright.imag[:, None] if kind == "softmax" else unit * sums
        return out

    return field


def _weighted(modes: Array) -> Array:
    r"""Return the modes of the measure weighted by $x + iy$ and by $z + i$.

    ``modes[m, p]`` is the mean of $e^{-i(m\varphi + p\theta)}$. As $x + iy = \sin\theta\,
    e^{i\varphi}$ and $z = \cos\theta$ are sums of exponentials themselves, weighting by them moves
    the indices by one. Two real weights share one complex transform: the kernel is real, so they
    stay real and imaginary part until the end.
    """
    weighted = np.empty((2, modes.shape[0] - 2, modes.shape[1] - 2), dtype=np.complex128)
    weighted[0] = (modes[:-2, :-2] - modes[:-2, 2:]) / 2j
    weighted[1] = (modes[1:-1, :-2] + modes[1:-1, 2:]) / 2 + 1j * modes[1:-1, 1:-1]
    return weighted


def _convolve(modes: Array, multiplier: Array) -> Array:
    """Project on the harmonics, multiply degree l by ``multiplier[l]``, return to modes."""
    degree = multiplier.size - 1
    # numbers of one order in one column, real and imaginary parts side by side
    columns = np.ascontiguousarray(np.moveaxis(modes, 0, -1)).view(np.float64)
    out = np.empty_like(columns)
    for m, table in enumerate(_tables(degree)):
        both = [degree + m, degree - m]
        harmonic = table @ columns[both]
        harmonic *= multiplier[m:, None]
        out[both] = table.T @ harmonic
    return np.ascontiguousarray(np.moveaxis(out.view(np.complex128), -1, 0))


@lru_cache(maxsize=64)
def _multiplier(beta: float) -> Array:
    r"""Return $4\pi e^{-\beta}\lambda_l$ for l = 0..L, L as needed for full precision."""
    l = np.arange(40 + int(np.sqrt(80 * beta)))
    if beta == 0:
        return np.array([4 * np.pi, 0.0])
    share = np.exp(harmonics.log_kernel_eigenvalue(l, beta, 3) - beta)
    last = int(np.flatnonzero((2 * l + 1) * share > _CUT * share[0])[-1])
    return 4 * np.pi * share[: max(last, 1) + 1]


@lru_cache(maxsize=4)
def _tables(degree: int) -> tuple[Array, ...]:
    r"""Return, for each order m, the Fourier coefficients in $\theta$ of $\bar P_{lm}(\cos\theta)$.

    $Y_{lm} = \bar P_{lm}(\cos\theta)\,e^{im\varphi}$ is orthonormal; entry m has shape
    ``(degree + 1 - m, 2 degree + 1)`` for l = m..degree and frequencies -degree..degree. For odd m
    the coefficients are imaginary and stored without their i: it meets its conjugate in
    :func:`_convolve`. (Condon-Shortley's sign is left out for the same reason.)

    The values come from the usual three-term recurrence in l at equal angles on the *whole*
    circle, where $\sin\theta$ keeps its sign, and are exact for trigonometric polynomials.
    """
    size = 2 * degree + 2
    theta = 2 * np.pi * np.arange(size) / size
    cosine, sine = np.cos(theta), np.sin(theta)
    sectoral = np.full(size, 1 / np.sqrt(4 * np.pi))
    tables = []
    for m in range(degree + 1):
        if m:
            sectoral = np.sqrt((2 * m + 1) / (2 * m)) * sine * sectoral
        values = np.empty((degree + 1 - m, size))
        values[0] = sectoral
        for i in range(1, len(values)):
            l = m + i
            scale = np.sqrt((4 * l * l - 1) / (l * l - m * m))
            values[i] = scale * cosine * values[i - 1]
            if i > 1:
                before = np.sqrt(((l - 1) ** 2 - m * m) / (4 * (l - 1) ** 2 - 1))
                values[i] -= scale * before * values[i - 2]
        spectrum = np.fft.rfft(values, axis=-1)[:, : degree + 1] / size
        # an even function of theta for even m, an odd one for odd m
        half = spectrum.imag if m % 2 else spectrum.real
        mirrored = -half[:, :0:-1] if m % 2 else half[:, :0:-1]
        tables.append(np.concatenate([mirrored, half], axis=-1))
        tables[-1].setflags(write=False)
    return tuple(tables)
