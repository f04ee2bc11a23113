"""The deterministic flow of tokens on a sphere of any dimension."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, attention, sphere
from tokensphere._check import Array, Kind
from tokensphere._integrate import integrate
from tokensphere.trajectory import Trajectory


def solve(
    x0: ArrayLike,
    beta: float,
    times: ArrayLike,
    kind: Kind = "softmax",
    rtol: float = 1e-8,
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
        rtol: local error allowed per step, from 1e-13 to 1e-1. The method (DOP853) has order 8.

    Returns:
        A trajectory with ``.times (T,)``, ``.tokens (T, ..., n, d)``, ``.evaluations``.
    """
    x0, kind, times = _check.tokens(x0, "x0"), _check.kind(kind), _check.times(times)
    beta = attention.usable_beta(beta, kind, x0.dtype)
    rtol = _check.number(rtol, "rtol", low=1e-13, high=0.1)

    def velocity(y: Array) -> Array:
        length = np.sqrt(np.einsum("...d,...d->...", y, y))[..., None]
        return attention._velocity(y / length, beta, kind) * length

    states, evaluations = integrate(velocity, x0, times, rtol)
    # the start is returned as given, not divided by a norm that differs from 1 by rounding
    moved = states[1:]
    if moved.size:
        states[1:] = sphere._normalize(moved)
    return Trajectory(times, states, evaluations)
