r"""Infinitely many tokens on the circle: the continuity equation, by two independent solvers.

A density $\mu_t$ of tokens moves in the field it makes itself,
$$\partial_t\mu + \partial_\theta(\mu\,\chi[\mu]) = 0,\qquad
  \chi[\mu](\theta) = -\int e^{\beta\cos(\theta-\theta')}\sin(\theta-\theta')\,d\mu(\theta')$$
(USA; for SA, $\chi$ is divided by $Z(\theta) = \int e^{\beta\cos(\theta-\theta')}d\mu(\theta')$).
With the Fourier coefficients $\hat\mu_k = \int e^{-ik\theta}d\mu$ and the growth rates
$\gamma_k = k^2 I_k(\beta)/\beta$ of :mod:`tokensphere.harmonics`,
$$\chi(\theta) = \sum_{k\ne0}\frac{i\gamma_k}{k}\hat\mu_k e^{ik\theta},\qquad
  Z(\theta) = \sum_k I_k(\beta)\,\hat\mu_k e^{ik\theta}.$$

* :func:`solve_characteristics` carries tokens, started at the quantiles of the density, and the
  density they see. It has no numerical viscosity and goes on when clusters become points.
* :func:`solve_spectral` advances Fourier coefficients. It shares nothing with the first but the
  numbers $\gamma_k$, $I_k$ and the integrator, and agrees with it until its modes run out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import finufft
import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import next_fast_len

from tokensphere import _check, harmonics
from tokensphere._check import Array, Kind
from tokensphere._integrate import integrate
from tokensphere.attention import usable_beta

#: the non-uniform transforms' relative accuracy
_EPS = 1e-14


@dataclass(frozen=True)
class Evolution:
    r"""A density on the circle at the times asked for, as a solver sees it: at nodes.

    Attributes:
        times: shape ``(T,)``.
        angles: where the nodes are, shape ``(T, n)``, ascending.
        density: the density there, with respect to $d\theta$, shape ``(T, n)``.
        mass: how much of the measure each node stands for, shape ``(T, n)``; sums to 1.
        evaluations: how often the right-hand side was evaluated.
        tail: for :func:`solve_spectral`, shape ``(T,)``: the largest modulus in the highest tenth
            of the modes. Where it is not small, the modes have run out.
    """

    times: Array
    angles: Array = field(repr=False)
    density: Array = field(repr=False)
    mass: Array = field(repr=False)
    evaluations: int
    tail: Array | None = field(default=None, repr=False)

    def modes(self, k: ArrayLike) -> Array:
        r"""Fourier coefficients $\hat\mu_k = \int e^{-ik\theta}d\mu$: ``(T,) + k.shape``."""
        k = _whole_array(k, "k")
        out = np.empty((len(self.times), k.size), dtype=np.complex128)
        for place, degree in enumerate(k.ravel()):
            out[:, place] = (self.mass * np.exp(-1j * degree * self.angles)).sum(axis=-1)
        return out.reshape((len(self.times), *k.shape))


def solve_characteristics(
    density0: ArrayLike,
    beta: float,
    times: ArrayLike,
    kind: Kind = "unnormalized",
    *,
    tokens: int = 8192,
    rtol: float = 1e-8,
) -> Evolution:
    r"""Follow the density along the paths of tokens that start at its quantiles.

    Token j starts where the cumulative mass is (j + 1/2)/n and moves with $\dot\theta = \chi$;
    the density it sees obeys $\frac{d}{dt}\log\mu = -\partial_\theta\chi$. The field is that of the
    tokens: the midpoint rule in the cumulative mass, which converges faster than any power of n
    while the density is smooth on the scale of the tokens, and which is the exact flow of n
    tokens ever after. Mass is carried, so it is conserved exactly.

    Args:
        density0: the density at M equal angles $2\pi j/M$, M >= 3; between them it is the
            trigonometric interpolant, which has to be positive. It is divided by its mass.
        beta: inverse temperature, >= 0; for ``"unnormalized"`` at most 700.
        times: where to look, non-decreasing; the first is the time of ``density0``.
        kind: ``"unnormalized"`` (USA) or ``"softmax"`` (SA).
        tokens: how many, n. Take at least 2M where ``density0`` is rough.
        rtol: local error allowed per step, 1e-13 to 1e-1, for angles and logarithms of densities.

    >>> from tokensphere.harmonics import growth_rate
    >>> theta = 2 * np.pi * np.arange(64) / 64
    >>> run = solve_characteristics(1 + 1e-4 * np.cos(3 * theta), 5.0, [0.0, 0.1])
    >>> float(np.log(abs(run.modes(3))[1] / 0.5e-4) / 0.1 / growth_rate(3, 5.0, 2)).__round__(5)
    1.0
    """
    coefficients, beta, times, kind, rtol = _arguments(density0, beta, times, kind, rtol)
    n = _check.whole(tokens, "tokens")
    theta0 = _quantiles(coefficients, n)
    start = np.stack([theta0, np.log(_evaluate(coefficients, theta0)[0])])
    states, evaluations = integrate(_along_characteristics(beta, kind), start, times, rtol)
    mass = np.full((times.size, n), 1 / n)
    return Evolution(times, states[:, 0], np.exp(states[:, 1]), mass, evaluations)


def solve_spectral(
    density0: ArrayLike,
    beta: float,
    times: ArrayLike,
    kind: Kind = "unnormalized",
    *,
    modes: int = 512,
    rtol: float = 1e-8,
) -> Evolution:
    r"""Advance the Fourier coefficients $\hat\mu_k$, |k| <= N.

    $\frac{d}{dt}\hat\mu_k = -ik\,\widehat{(\mu\chi)}_k$, where the product is formed on a grid so
    fine that, for USA, no mode of it is mistaken for another (Galerkin's method, exactly). For SA
    the quotient by Z is not a finite series, and the grid is twice as fine as for USA. As
    $\hat\mu_0 = 1$ does not move, mass is conserved exactly. There is no viscosity, and no
    positivity: once a cluster is narrower than 1/N the solution is wrong, and ``tail`` says so.
    (The integrator's own noise in the highest modes is up to about 100 rtol.)

    Args:
        density0: the density at M equal angles $2\pi j/M$, as in :func:`solve_characteristics`.
            Its modes above N are left out.
        beta: inverse temperature, >= 0; for ``"unnormalized"`` at most 700.
        times: where to look, non-decreasing; the first is the time of ``density0``.
        kind: ``"unnormalized"`` (USA) or ``"softmax"`` (SA).
        modes: the highest mode N. Nodes returned are the 2N + 1 equal angles.
        rtol: local error allowed per step, 1e-13 to 1e-1, relative to the mass.
    """
    coefficients, beta, times, kind, rtol = _arguments(density0, beta, times, kind, rtol)
    top = _check.whole(modes, "modes")
    start = np.zeros(top, dtype=np.complex128)
    kept = min(top, coefficients.size - 1)
    start[:kept] = coefficients[1 : kept + 1]
    field = _advance_modes(top, beta, kind)
    # the integrator is for real numbers, pairs of them; its steps end at the times asked for,
    # because its interpolant, between them, blows up the noise of the highest modes
    states, evaluations = [start.view(np.float64)], 0
    for step in pairwise(times):
        reached, more = integrate(field, states[-1], np.array(step), rtol)
        states.append(reached[-1])
        evaluations += more
    ones = np.ones((times.size, 1))
    found = np.concatenate([ones, np.array(states).view(np.complex128)], axis=-1)
    size = 2 * top + 1
    density = np.fft.irfft(found, size, axis=-1) * size / (2 * np.pi)
    angles = np.broadcast_to(2 * np.pi * np.arange(size) / size, density.shape)
    tail = np.abs(found[:, -max(1, top // 10) :]).max(axis=-1)
    return Evolution(times, angles, density, density * (2 * np.pi / size), evaluations, tail)


def smoothed_density(theta: ArrayLike, size: int, width: float) -> Array:
    r"""Density of tokens, smoothed with a Gaussian of standard deviation ``width`` radians.

    The kernel is wrapped around the circle: mode k is multiplied by $e^{-k^2w^2/2}$.

    Args:
        theta: angles, shape ``(..., n)``.
        size: how many equal angles $2\pi j/$ ``size`` to give the density at.
        width: at least 18/``size``, so that the grid shows all of the result, and at most pi.

    Returns:
        The density with respect to $d\theta$, shape ``(..., size)``.

    One token, at its place and one width away:

    >>> peak = np.sqrt(2 * np.pi) * 0.5 * smoothed_density([0.0, 0.0], 100, 0.5)
    >>> peak[0].round(6), smoothed_density([0.5], 100, 0.5)[0].round(6) == 0.483941
    (np.float64(1.0), np.True_)
    """
    theta = _check.angles(theta)
    size = _check.whole(size, "size", low=6)
    width = _check.number(width, "width", low=18 / size, high=np.pi)
    top = (size - 1) // 2
    k = np.arange(top + 1)
    plan = _plan(1, top)
    flat = theta.reshape((-1, theta.shape[-1])).astype(np.float64, copy=False)
    out = np.empty((len(flat), size))
    for place, system in enumerate(flat):
        plan.setpts(system)
        mode = plan.execute(np.full(system.size, 1 / system.size, dtype=np.complex128))[top:]
        mode = mode * np.exp(-((k * width) ** 2) / 2)
        out[place] = np.fft.irfft(mode, size) * size / (2 * np.pi)
    return out.reshape((*theta.shape[:-1], size)).astype(theta.dtype, copy=False)


def transport_distance(theta: ArrayLike, other: ArrayLike) -> Array:
    r"""Wasserstein distance $W_1$, on the circle, between the measures of two sets of tokens.

    With the distribution functions F and G it is $\min_c \int_0^{2\pi} |F - G - c|\,d\theta$, where
    the best c, a median of F - G, stands for the place where the circle is cut.

    Args:
        theta: angles, shape ``(..., n)``.
        other: angles, shape ``(..., m)``; leading axes broadcast, n and m may differ.

    Returns:
        Shape ``(...)``, in radians, at most pi.

    >>> float(transport_distance([0.1], [-0.2]).round(12))
    0.3
    """
    theta, other = _check.angles(theta), _check.angles(other, "other")
    try:
        leading = np.broadcast_shapes(theta.shape[:-1], other.shape[:-1])
    except ValueError:
        raise ValueError(
            f"other must have leading axes that broadcast against those of theta {theta.shape}, "
            f"got shape {other.shape}"
        ) from None
    out = np.empty(leading)
    first = np.broadcast_to(theta, (*leading, theta.shape[-1]))
    second = np.broadcast_to(other, (*leading, other.shape[-1]))
    for place in np.ndindex(leading):
        out[place] = _transport(first[place], second[place])
    return out[()]


def _whole_array(value: ArrayLike, name: str) -> Array:
    array = _check.floating(value, name)
    if (array != np.rint(array)).any():
        raise ValueError(f"{name} must be whole, got {_check._show(value)}")
    return array


def _arguments(
    density0: ArrayLike, beta: float, times: ArrayLike, kind: Kind, rtol: float
) -> tuple[Array, float, Array, Kind, float]:
    density = _check.floating(density0, "density0").astype(np.float64, copy=False)
    if density.ndim != 1 or density.size < 3:
        raise ValueError(f"density0 must have shape (M,) with M >= 3, got shape {density.shape}")
    coefficients = np.fft.rfft(density) / density.size
    if density.size % 2 == 0:
        # the highest mode of an even grid is a cosine: half of it belongs to -k
        coefficients[-1] /= 2
    lowest = min(float(density.min()), float(_on_finer_grid(coefficients).min()))
    if not lowest > 0:
        raise ValueError(
            "density0 must be positive, between its grid points too (as a trigonometric "
            f"interpolant), got a least value of {lowest:.3g}"
        )
    kind = _check.kind(kind)
    return (
        coefficients / coefficients[0].real,
        usable_beta(beta, kind, density.dtype),
        _check.times(times),
        kind,
        _check.number(rtol, "rtol", low=1e-13, high=0.1),
    )


def _on_finer_grid(coefficients: Array) -> Array:
    """Values of the interpolant at 8 times as many points as it has modes on both sides."""
    size = 16 * coefficients.size
    return np.fft.irfft(coefficients, size) * size


def _hermitian(half: Array) -> Array:
    """Coefficients -K..K of a real function from those of 0..K."""
    return np.concatenate([np.conj(half[..., :0:-1]), half], axis=-1)


def _evaluate(coefficients: Array, theta: Array) -> tuple[Array, Array]:
    """Return the density and its integral from 0, of Fourier coefficients 0..K, at ``theta``."""
    k = np.arange(1, coefficients.size)
    integral = np.concatenate([[0], coefficients[1:] / (1j * k)])
    both = _hermitian(coefficients) + 1j * _hermitian(integral)
    plan = _plan(2, k.size)
    plan.setpts(theta)
    value = plan.execute(both)
    from_zero = theta + value.imag - 2 * integral.real.sum()
    return value.real / (2 * np.pi), from_zero / (2 * np.pi)


def _quantiles(coefficients: Array, n: int) -> Array:
    """Return where the cumulative mass is (j + 1/2)/n: Newton's method between grid points."""
    wanted = (np.arange(n) + 0.5) / n
    size = 16 * coefficients.size
    grid = 2 * np.pi * np.arange(size + 1) / size
    cumulative = _evaluate(coefficients, grid[:-1])[1]
    cumulative = np.append(cumulative, 1.0)
    cell = np.clip(np.searchsorted(cumulative, wanted) - 1, 0, size - 1)
    theta = np.interp(wanted, cumulative, grid)
    for _ in range(60):
        density, found = _evaluate(coefficients, theta)
        step = (wanted - found) / density
        # rounding may put the root a hair outside its cell
        theta = np.clip(theta + step, grid[cell] - 1e-12, grid[cell + 1] + 1e-12)
        if np.abs(step).max() < 1e-13:
            break
    return theta


def _kernel(beta: float) -> tuple[Array, Array]:
    r"""Return $e^{-\beta}\gamma_k$ and $e^{-\beta}I_k$ for k = 0..K, K as needed."""
    k = np.arange(1, 40 + int(np.sqrt(80 * beta)))
    with np.errstate(divide="ignore", under="ignore"):
        rate = np.exp(harmonics._log_growth_rate(k, beta, 2, "unnormalized") - beta)
        bessel = np.exp(harmonics.log_kernel_eigenvalue(np.append(0, k), beta, 2) - beta)
    last = int(np.flatnonzero(rate / k > 1e-17 * (rate / k).max())[-1]) + 1
    return np.append(0.0, rate[:last]), bessel[: last + 1]


def _plan(way: int, top: int, several: int = 1) -> finufft.Plan:
    """Plan a transform from nodes to modes -top..top (1), or back (2), on one thread."""
    return finufft.Plan(
        way,
        (2 * top + 1,),
        n_trans=several,
        eps=_EPS,
        isign=-1 if way == 1 else 1,
        nthreads=1,
        upsampfac=2.0,
    )


def _along_characteristics(beta: float, kind: Kind) -> Callable[[Array], Array]:
    """Return the velocity of (angles, log densities), shape (2, n)."""
    rate, bessel = _kernel(beta)
    k = np.arange(rate.size)
    # the field with its slope; for SA, the normaliser with its own
    ways = [(1j * rate / np.maximum(k, 1), -rate)]
    if kind == "softmax":
        ways.append((bessel, 1j * k * bessel))
    multiplier = np.array([_hermitian(value) + 1j * _hermitian(slope) for value, slope in ways])
    unit = np.exp(beta) if kind == "unnormalized" else 1.0
    to_modes, to_nodes = _plan(1, rate.size - 1), _plan(2, rate.size - 1, len(ways))

    def velocity(state: Array) -> Array:
        theta = np.ascontiguousarray(state[0])
        to_modes.setpts(theta)
        to_nodes.setpts(theta)
        mode = to_modes.execute(np.full(theta.size, 1 / theta.size, dtype=np.complex128))
        field = np.atleast_2d(to_nodes.execute((multiplier * mode).squeeze()))
        speed, slope = field[0].real, field[0].imag
        if kind == "softmax":
            z, z_slope = field[1].real, field[1].imag
            speed, slope = speed / z, (slope - speed / z * z_slope) / z
        return unit * np.stack([speed, -slope])

    return velocity


def _advance_modes(top: int, beta: float, kind: Kind) -> Callable[[Array], Array]:
    """Return the velocity of the coefficients 1..top, as pairs of real numbers."""
    rate, bessel = _kernel(beta)
    kept = min(rate.size - 1, top)
    factor = 1j * rate[1 : kept + 1] / np.arange(1, kept + 1)
    # modes |k| <= top of a product of orders top and kept: those above fold to > top
    size = next_fast_len((2 if kind == "softmax" else 1) * (2 * top + kept + 1), real=True)
    unit = np.exp(beta) if kind == "unnormalized" else 1.0
    k = np.arange(1, top + 1)

    def velocity(state: Array) -> Array:
        mode = state.view(np.complex128)
        density = np.fft.irfft(np.append(1.0, mode), size)
        speed = np.fft.irfft(np.append(0.0, factor * mode[:kept]), size) * size
        if kind == "softmax":
            around = np.append(bessel[0], bessel[1 : kept + 1] * mode[:kept])
            speed = speed / (np.fft.irfft(around, size) * size)
        flux = np.fft.rfft(density * speed)[1 : top + 1]
        return (-1j * unit * k * flux).view(np.float64)

    return velocity


def _transport(theta: Array, other: Array) -> float:
    places = np.remainder(np.concatenate([theta, other]).astype(np.float64), 2 * np.pi)
    jumps = np.concatenate(
        [np.full(theta.size, 1 / theta.size), np.full(other.size, -1 / other.size)]
    )
    order = np.argsort(places, kind="stable")
    places = places[order]
    difference = np.cumsum(jumps[order])
    lengths = np.diff(places, append=places[0] + 2 * np.pi)
    rank = np.argsort(difference, kind="stable")
    half = np.searchsorted(np.cumsum(lengths[rank]), np.pi)
    median = difference[rank[min(int(half), rank.size - 1)]]
    return float((np.abs(difference - median) * lengths).sum())
