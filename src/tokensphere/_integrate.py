"""The ordinary differential equations' one integrator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import DOP853, DenseOutput

from tokensphere._check import Array

# The slope in the middle of [0, 1] of a polynomial of degree 7, from its values at eight nodes.
_NODES = (1 - np.cos((2 * np.arange(8) + 1) * np.pi / 16)) / 2
_SLOPE = np.linalg.inv(np.vander(_NODES - 0.5, increasing=True))[1]
# Defect of an interpolation, over the error allowed: five times its error or more. Nearly all are
# below 2; up to 12 where perturbations grow in long steps, and thousands where they decay in them.
_WORST = 20.0


def integrate(
    velocity: Callable[[Array], Array], start: Array, times: Array, rtol: float
) -> tuple[Array, int]:
    """Integrate y' = velocity(y) from ``times[0]``; return states at ``times`` and the evaluations.

    Dormand and Prince's method of order 8 with error control (DOP853); the local error is kept
    below ``rtol * (1 + |y|)`` in the root-mean-square over the components. A step may contain many
    times; its interpolation has to solve the equation in its middle, up to 20 times that error,
    or the step is halved. (Near an attractive state steps grow beyond where the method is stable.
    The error at their end is controlled, but inside it could be hundreds of times larger.)
    """
    states = np.empty((times.size, *start.shape), dtype=start.dtype)
    states[:] = start
    if times[-1] == times[0] or start.size == 0:
        return states, 0
    later = np.unique(times)
    # in units of the whole span: USA at beta = 700 lives on a time scale of 1e-304, the square of
    # whose speeds, in the solver's choice of a first step, is no longer a number
    span = float(later[-1] - later[0])
    looks = (later - later[0]) / span

    def field(_: float, y: Array) -> Array:
        return (span * velocity(y.reshape(start.shape))).ravel()

    def solver_from(t: float, y: Array, first_step: float | None) -> DOP853:
        least = max(rtol, 100 * np.finfo(np.float64).eps)
        return DOP853(field, t, y, 1.0, first_step=first_step, rtol=least, atol=rtol)

    found = np.empty((later.size, start.size))
    solver = solver_from(0.0, start.ravel().astype(np.float64, copy=False), None)
    seen = evaluations = 0
    while solver.status == "running":
        t, y = solver.t, solver.y
        message = solver.step()
        if message is not None:
            stopped = later[0] + span * solver.t
            raise RuntimeError(f"the integrator gave up at t = {stopped:g}: {message}")
        reached = int(np.searchsorted(looks, solver.t, side="right"))
        if reached == seen:
            continue
        between = solver.dense_output()
        if _defect(solver, between, rtol) > _WORST:
            evaluations += solver.nfev
            solver = solver_from(t, y, (solver.t - t) / 2)
            continue
        found[seen:reached] = between(looks[seen:reached]).T
        seen = reached
    states[:] = found.reshape((later.size, *start.shape))[np.searchsorted(later, times)]
    return states, evaluations + int(solver.nfev)


def _defect(solver: DOP853, between: DenseOutput, rtol: float) -> float:
    """How far the interpolation is from solving the equation, over the error allowed."""
    step = solver.t - solver.t_old
    middle = between(solver.t_old + step / 2)
    slope = sum(w * between(solver.t_old + step * x) for w, x in zip(_SLOPE, _NODES, strict=True))
    gap = slope - step * solver.fun(solver.t_old + step / 2, middle)
    return float(np.sqrt(np.mean((gap / (rtol * (1 + np.abs(middle)))) ** 2)))
