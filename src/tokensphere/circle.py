r"""Tokens on the circle, where attention is a short Fourier series.

With angles $\theta_i$ and $m_k = \frac1n\sum_j e^{ik\theta_j}$, USA reads
$$\dot\theta_i = -\frac1n\sum_j e^{\beta\cos(\theta_i-\theta_j)}\sin(\theta_i-\theta_j)
  = -\operatorname{Im}\sum_{k\ge1} b_k\, e^{ik\theta_i}\,\overline{m_k},
  \qquad b_k = \frac{2k}{\beta} I_k(\beta),$$
because $e^{\beta\cos\theta} = I_0 + 2\sum_k I_k\cos k\theta$. SA divides this by
$Z(\theta_i) = I_0 + 2\sum_k I_k \operatorname{Re}(e^{ik\theta_i}\overline{m_k})$. The series
falls off like $e^{-k^2/2\beta}$: K = 26 terms give full precision at $\beta = 5$. So one velocity
costs O(nK) time and O(n) memory, exactly: no pair of tokens is left out.

The two sums, over tokens and over modes, are done as polynomials in $e^{i\theta}$ for few tokens
and as non-uniform fast Fourier transforms (FINUFFT, tolerance 1e-13) for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ive

from tokensphere import _check, harmonics
from tokensphere._check import Array, Kind
from tokensphere._integrate import integrate
from tokensphere.attention import usable_beta
from tokensphere.trajectory import Trajectory

if TYPE_CHECKING:
    from finufft import Plan

#: angles whose powers are held at a time: some twenty complex arrays of this length stay in cache
_BLOCK = 4096
#: from this many tokens on, FINUFFT beats powers (measured, one core)
_MANY = 2000
#: tokens that FINUFFT is given at a time: what it needs for them is all the memory there is need of
_PIECE = 2**20


def velocity(
    theta: ArrayLike, beta: float, kind: Kind = "unnormalized", *, threads: int = 1
) -> Array:
    r"""Angular velocity $\dot\theta$ of every token, shape ``(..., n)``.

    Args:
        theta: angles, shape ``(..., n)``; leading axes are independent systems.
        beta: inverse temperature, >= 0; for ``"unnormalized"`` at most 700.
        kind: ``"unnormalized"`` (USA) or ``"softmax"`` (SA).
        threads: how many share the work where there are more than a million tokens; the result
            is the same to the last bit whatever their number.

    Two tokens a quarter turn apart, at beta = 0, approach each other:

    >>> velocity([0.0, np.pi / 2], 0.0).round(12)
    array([ 0.5, -0.5])
    """
    theta, kind = _check.angles(theta), _check.kind(kind)
    threads = _check.whole(threads, "threads")
    return _field(usable_beta(beta, kind, theta.dtype), kind, threads)(theta)


def solve(
    theta0: ArrayLike,
    beta: float,
    times: ArrayLike,
    kind: Kind = "unnormalized",
    rtol: float = 1e-8,
    *,
    threads: int = 1,
) -> Trajectory:
    """Follow the angles from ``theta0`` at ``times[0]``.

    Args:
        theta0: angles, shape ``(..., n)``; leading axes are independent systems, which share
            the integrator's steps.
        beta: inverse temperature, as in :func:`velocity`.
        times: where to look, non-decreasing; the first is the time of ``theta0``.
        kind: ``"unnormalized"`` (the time scale is e^-beta) or ``"softmax"``.
        rtol: local error allowed per step, in radians, 1e-13 to 1e-1. The method (DOP853) has
            order 8.
        threads: as in :func:`velocity`.

    Returns:
        A trajectory with ``.times (T,)``, ``.angles (T, ..., n)`` (unwrapped: they do not jump
        at a full turn), ``.evaluations``.
    """
    theta0, kind, times = (
        _check.angles(theta0, "theta0"),
        _check.kind(kind),
        _check.times(times),
    )
    beta = usable_beta(beta, kind, theta0.dtype)
    rtol = _check.number(rtol, "rtol", low=1e-13, high=0.1)
    field = _field(beta, kind, _check.whole(threads, "threads"))
    states, evaluations = integrate(field, theta0, times, rtol)
    return Trajectory(times, states, evaluations, on_circle=True)


def modes(theta: ArrayLike, k: ArrayLike) -> Array:
    r"""Fourier coefficients $\hat\mu_k = \frac1n\sum_j e^{-ik\theta_j}$ of the tokens' measure.

    ``theta`` has shape ``(..., n)``, ``k`` (whole numbers) any shape: the result has shape
    ``(...) + k.shape``.

    >>> complex(modes([0.0, np.pi], 2).round(12))
    (1+0j)
    """
    theta = _check.angles(theta)
    degrees = _check.floating(k, "k")
    if (degrees != np.rint(degrees)).any():
        raise ValueError(f"k must be whole, got {_check._show(k)}")
    wanted = degrees.ravel().astype(np.int64)
    flat = theta.reshape((-1, theta.shape[-1]))
    largest = int(np.abs(wanted).max(initial=0))
    if largest <= 8 * wanted.size:  # few holes: all powers of e^i theta, one after the other
        positive = np.conj(_moments(_unit_circle(flat), largest))
        all_modes = np.concatenate([np.ones((len(flat), 1)), positive], axis=-1)
        found = all_modes[:, np.abs(wanted)]
        out = np.where(wanted < 0, np.conj(found), found)
    else:
        out = np.stack([np.exp(-1j * each * flat).mean(axis=-1) for each in wanted], axis=-1)
    return out.reshape(theta.shape[:-1] + degrees.shape)[()]


def from_modes(coefficients: ArrayLike, n: int) -> Array:
    r"""Place ``n`` tokens at the quantiles of a density given by its Fourier modes.

    The density is $\frac{1}{2\pi}(1 + 2\operatorname{Re}\sum_{k=1}^K \hat\mu_k e^{ik\theta})$,
    ``coefficients`` are $\hat\mu_1..\hat\mu_K$, shape ``(..., K)``; the result, ``(..., n)``, is
    ascending in $[0, 2\pi)$ and its :func:`modes` are the coefficients to spectral accuracy. A
    "quiet" start: ``n`` tokens without the $n^{-1/2}$ noise of a random draw. With
    $\hat\mu_k = N^{-1/2} Z_k$, $Z_k$ complex standard normal, they stand for N random tokens.

    Raises:
        ValueError: where the density is not positive.
    """
    n = _check.whole(n, "n")
    try:
        c = np.asarray(coefficients, dtype=np.complex128)
    except (ValueError, TypeError):
        c = np.full(1, np.nan)
    if c.ndim < 1 or c.shape[-1] < 1 or not np.isfinite(c).all():
        raise ValueError(
            f"coefficients must be finite, of shape (..., K) with K >= 1, "
            f"got {_check._show(coefficients)}"
        )
    flat = c.reshape((-1, c.shape[-1]))
    k = np.arange(1, c.shape[-1] + 1)
    grid = np.linspace(0, 2 * np.pi, 16 * c.shape[-1] + 1)
    q = _baby_steps(k.size)
    on_grid = _powers(np.broadcast_to(np.exp(1j * grid), (len(flat), grid.size)), q)
    lowest = 1 + 2 * _polynomial(on_grid, flat).real.min()
    if lowest <= 0:
        raise ValueError(
            f"coefficients must give a positive density, got one that falls to {lowest:.3g} "
            "times the uniform one"
        )
    integral = flat / (1j * k)
    at_zero = 2 * integral.sum(axis=-1, keepdims=True).real
    rise = grid + 2 * _polynomial(on_grid, integral).real - at_zero
    level = 2 * np.pi * (np.arange(n) + 0.5) / n
    theta = np.stack([np.interp(level, each, grid) for each in rise])
    for _ in range(8):  # Newton's steps from an interpolated start: each doubles the digits
        baby = _powers(np.exp(1j * theta), q)
        excess = theta + 2 * _polynomial(baby, integral).real - at_zero - level
        theta -= excess / (1 + 2 * _polynomial(baby, flat).real)
        if np.abs(excess).max() < 1e-14 * 2 * np.pi:
            break
    return theta.reshape((*c.shape[:-1], n))


def predicted_centres(theta0: ArrayLike, beta: float) -> Array:
    r"""Where clusters should form, from the start alone: the maxima of the fastest mode.

    $\theta_j = (2\pi j - \arg\hat\mu_k(0))/k$ with k = $k_{\max}(\beta)$: shape ``(..., k)``,
    ascending in $[-\pi, \pi)$. (The rule stands in the public notebook of paper B's authors.)
    """
    theta0, beta = _check.angles(theta0, "theta0"), _check.beta(beta)
    k = int(harmonics.dominant_mode(beta, 2))
    phase = np.angle(modes(theta0, k))
    centres = (2 * np.pi * np.arange(k) - phase[..., None]) / k
    return np.sort(np.remainder(centres + np.pi, 2 * np.pi) - np.pi, axis=-1)


@lru_cache(maxsize=64)
def _coefficients(beta: float) -> tuple[Array, Array]:
    r"""Return $e^{-\beta} b_k$ for k = 1..K and $e^{-\beta} I_k$ for k = 0..K, K as needed."""
    k = np.arange(1.0, 40 + int(np.sqrt(80 * beta)))
    b = 2 / k * np.exp(harmonics._log_growth_rate(k, beta, 2, "unnormalized") - beta)
    kept = max(1, int(np.flatnonzero(b > 1e-17 * b.max())[-1]) + 1)
    bessel = ive(np.arange(kept + 1.0), beta)
    return b[:kept], bessel


def _field(beta: float, kind: Kind, threads: int = 1) -> Callable[[Array], Array]:
    """Return the velocity as a function of the angles; it keeps what it can between calls."""
    b, bessel = _coefficients(beta)
    transforms = _transforms(b.size)

    def field(theta: Array) -> Array:
        flat = theta.reshape((-1, theta.shape[-1]))
        speed = (
            _by_nufft(flat, b, bessel, kind, transforms, threads)
            if theta.shape[-1] >= _MANY
            else _by_powers(flat, b, bessel, kind)
        )
        if kind == "unnormalized":
            speed *= np.exp(beta)
        return speed.reshape(theta.shape).astype(theta.dtype, copy=False)

    return field


def _by_powers(theta: Array, b: Array, bessel: Array, kind: Kind) -> Array:
    """Return the velocity, (systems, n), for USA without its e^beta: polynomials in e^{i theta}."""
    z = _unit_circle(theta)
    conjugate = np.conj(_moments(z, b.size))
    out = np.empty(theta.shape)
    for place in _blocks(z):
        baby = _powers(z[place], _baby_steps(b.size))
        speed = -_polynomial(baby, conjugate[place[0]] * b).imag
        if kind == "softmax":
            overlap = _polynomial(baby, conjugate[place[0]] * bessel[1:]).real
            speed /= bessel[0] + 2 * overlap
        out[place] = speed
    return out


def _by_nufft(
    theta: Array,
    b: Array,
    bessel: Array,
    kind: Kind,
    transforms: Callable[[], tuple[Plan, Plan]],
    threads: int,
) -> Array:
    """Do the same by two non-uniform FFTs, one system after the other, in pieces.

    Velocity and normaliser are real functions of the angle: one transform carries both, as
    imaginary and real part.
    """
    out = np.empty(theta.shape)
    pieces = [slice(i, i + _PIECE) for i in range(0, theta.shape[-1], _PIECE)]

    def moments(piece: Array) -> Array:
        to_modes, _ = transforms()
        to_modes.setpts(piece)
        return to_modes.execute(np.ones(piece.size, dtype=np.complex128))[b.size + 1 :]

    def speed(c: Array, piece: Array) -> Array:
        _, to_tokens = transforms()
        to_tokens.setpts(piece)
        value = to_tokens.execute(c)
        return value.imag / value.real if kind == "softmax" else value.imag

    with _map_over(threads if len(pieces) > 1 else 1) as over:
        for i, system in enumerate(theta.astype(np.float64, copy=False)):
            parts = [system[piece] for piece in pieces]
            # in the order of the pieces, whoever did them: the same bits on any number of threads
            m = sum(over(moments, parts)) / system.size
            c = np.zeros(2 * b.size + 1, dtype=np.complex128)
            # the real function -Im sum_k b_k m_k^* e^ik has coefficients i b_k m_k^* / 2 at k and
            # their conjugates at -k; times i, it is the imaginary part
            half = -0.5 * b * np.conj(m)
            c[b.size + 1 :], c[: b.size] = half, -np.conj(half)[::-1]
            if kind == "softmax":
                overlap = bessel[1:] * np.conj(m)
                c[b.size + 1 :] += overlap
                c[: b.size] += np.conj(overlap)[::-1]
                c[b.size] = bessel[0]
            for piece, value in zip(pieces, over(partial(speed, c), parts)):
                out[i, piece] = value
    return out


@contextmanager
def _map_over(threads: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a ``map`` that works on so many threads (FINUFFT and NumPy let go of Python's lock)."""
    if threads == 1:
        yield map
    else:
        with ThreadPoolExecutor(threads) as executor:
            yield executor.map


def _transforms(modes: int) -> Callable[[], tuple[Plan, Plan]]:
    """Return a function that plans the two transforms when first called, once for each thread.

    FINUFFT's own threads stay unused: with them, sums would come in another order, and other
    bits, every time.
    """
    own = local()

    def plans() -> tuple[Plan, Plan]:
        if not hasattr(own, "plans"):
            import finufft

            settings = {"eps": 1e-13, "isign": 1, "nthreads": 1, "spread_sort": 0, "upsampfac": 2.0}
            shape = (2 * modes + 1,)
            own.plans = finufft.Plan(1, shape, **settings), finufft.Plan(2, shape, **settings)
        return own.plans

    return plans


def _moments(z: Array, count: int) -> Array:
    r"""Return $m_k = \frac1n\sum_j z_j^k$, k = 1..count: (systems, n) to (systems, count)."""
    q = _baby_steps(count)
    giants = -(-count // q)
    out = np.zeros((z.shape[0], giants, q), dtype=np.complex128)
    for place in _blocks(z):
        baby = _powers(z[place], q)
        giant = np.empty((len(baby), giants, baby.shape[-1]), dtype=np.complex128)
        giant[:, 0] = 1
        for j in range(1, giants):
            np.multiply(giant[:, j - 1], baby[:, -1], out=giant[:, j])
        out[place[0]] += giant @ np.swapaxes(baby, -1, -2)
    return out.reshape((len(out), -1))[:, :count] / z.shape[-1]


def _polynomial(baby: Array, c: Array) -> Array:
    r"""Evaluate $\sum_k c_k z^k$, k = 1..K: baby powers (systems, q, n), c (systems, K).

    By baby steps and giant steps: the q coefficients of a giant step meet the baby powers in a
    matrix product, and Horner's rule in $z^q$ adds up the K/q giant steps.
    """
    q = baby.shape[-2]
    giants = -(-c.shape[-1] // q)
    padded = np.zeros((len(c), giants * q), dtype=np.complex128)
    padded[:, : c.shape[-1]] = c
    steps = padded.reshape((len(c), giants, q)) @ baby
    value = steps[:, -1]
    for j in range(giants - 2, -1, -1):
        value *= baby[:, -1]
        value += steps[:, j]
    return value


def _baby_steps(count: int) -> int:
    return max(1, round(count**0.5))


def _powers(z: Array, q: int) -> Array:
    """Return z, z^2, ..., z^q: (systems, n) to (systems, q, n)."""
    out = np.empty((len(z), q, z.shape[-1]), dtype=np.complex128)
    out[:, 0] = z
    for i in range(1, q):
        np.multiply(out[:, i - 1], z, out=out[:, i])
    return out


def _unit_circle(theta: Array) -> Array:
    """Return e^{i theta}."""
    z = np.empty(theta.shape, dtype=np.complex128)
    np.cos(theta, out=z.real)
    np.sin(theta, out=z.imag)
    return z


def _blocks(z: Array) -> Iterator[tuple[slice, slice]]:
    """Cover (systems, n) by pieces of at most _BLOCK numbers."""
    systems, n = z.shape
    several = max(1, _BLOCK // n)
    for i in range(0, systems, several):
        for j in range(0, n, _BLOCK):
            yield slice(i, i + several), slice(j, j + _BLOCK)
