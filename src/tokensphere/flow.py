"""The deterministic flow of tokens on a sphere of any dimension."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, _xp, attention, sphere
from tokensphere._check import Array, Kind
from tokensphere._integrate import integrate
from tokensphere.trajectory import Trajectory

#: least local error that the velocities' rounding leaves room for, by floating type
_FINEST = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-13}


def solve(
    x0: ArrayLike,
    beta: float,
    times: ArrayLike,
    kind: Kind = "softmax",
    rtol: float | None = None,
) -> Trajectory:
    r"""Follow $\dot x_i = $ :func:`tokensphere.attention.velocity` from ``x0`` at ``times[0]``.

    Integrated in $R^d$ with the field extended by $f(x) = |x|\,\dot x(x/|x|)$, under which the
    direction of x moves exactly as on the sphere whatever its length; rows are unit to rounding.

    Args:
        x0: tokens, shape ``(..., n, d)``; leading axes are independent systems, which share the
            integrator's steps.
        beta: inverse temperature, >= 0; for ``"unnormalized"`` at most 700.
        times: where to look, non-decreasing; the first is the time of ``x0``.
        kind: ``"softmax"`` or ``"unnormalized"``; the latter moves on the time scale $e^{-\beta}$.
        rtol: local error allowed per step, at most 1e-1, in float64 at least 1e-13 (1e-8 if not
            given), in float32 at least 1e-6 (and so if not given). The method (DOP853) has order 8.

    Returns:
        A trajectory with ``.times (T,)``, ``.tokens (T, ..., n, d)``, ``.evaluations``.

    Velocities are evaluated in the tokens' own library, type and device; the integrator is
    SciPy's, whose n d numbers and error control are float64 on the host. So float32 tokens cost
    what float32 costs; at 1e-6 they take the same steps as float64, and err by some 1e-6 more
    wherever the flow does not itself magnify errors. Below that only the rounding of velocities
    would be resolved, in up to ten times as many steps.
    """
    x0, kind, times = _check.tokens(x0, "x0"), _check.kind(kind), _check.times(times)
    dtype = _xp.precision(x0)
    beta = attention.usable_beta(beta, kind, dtype)
    finest = _FINEST[dtype]
    if rtol is None:
        rtol = max(1e-8, finest)
    rtol = _check.number(rtol, "rtol", low=finest, high=0.1)

    def velocity(y: Array) -> Array:
        length = np.sqrt(_xp.dot(y, y))[..., None]
        x = _xp.beside((y / length).astype(dtype, copy=False), x0)
        return _xp.to_numpy(attention._velocity(x, beta, kind)) * length

    states, evaluations = integrate(velocity, _xp.to_numpy(x0), times, rtol)
    # the start is returned as given, not divided by a norm that differs from 1 by rounding
    moved = states[1:]
    if moved.size:
        states[1:] = sphere._normalize(moved)
    return Trajectory(times, _xp.beside(states, x0), evaluations)
