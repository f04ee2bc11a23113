"""The ordinary differential equations' one integrator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

from tokensphere._check import Array


def integrate(
    velocity: Callable[[Array], Array], start: Array, times: Array, rtol: float
) -> tuple[Array, int]:
    """Integrate y' = velocity(y) from ``times[0]``; return states at ``times`` and the evaluations.

    Dormand and Prince's method of order 8 with error control (DOP853); the local error is kept
    below ``rtol * (1 + |y|)`` in the root-mean-square over the components.
    """
    states = np.empty((times.size, *start.shape), dtype=start.dtype)
    states[:] = start
    if times[-1] == times[0] or start.size == 0:
        return states, 0
    later = np.unique(times)
    # in units of the whole span: USA at beta = 700 lives on a time scale of 1e-304, the square of
    # whose speeds, in the solver's choice of a first step, is no longer a number
    span = float(later[-1] - later[0])
    solution = solve_ivp(
        lambda _, y: (span * velocity(y.reshape(start.shape))).ravel(),
        (0.0, 1.0),
        start.ravel().astype(np.float64, copy=False),
        method="DOP853",
        t_eval=(later - later[0]) / span,
        rtol=max(rtol, 100 * np.finfo(np.float64).eps),
        atol=rtol,
    )
    if not solution.success:
        stopped = later[0] + span * solution.t[-1]
        raise RuntimeError(f"the integrator gave up at t = {stopped:g}: {solution.message}")
    found = solution.y.T.reshape((later.size, *start.shape))
    states[:] = found[np.searchsorted(later, times)]
    return states, int(solution.nfev)
