"""What the package is compared with: lower limits, and what one would write or use instead."""

from __future__ import annotations

import math
from collections.abc import Callable

import finufft
import numpy as np
from scipy.integrate import solve_ivp

Work = Callable[[], object]


# --- lower limits: the least that has to be done ---


def two_circle_transforms(theta: np.ndarray, modes: int) -> Work:
    """Return the two bare non-uniform FFTs that a velocity on the circle needs."""
    settings = {"eps": 1e-13, "isign": 1, "nthreads": 1, "spread_sort": 0, "upsampfac": 2.0}
    to_modes = finufft.Plan(1, (2 * modes + 1,), **settings)
    to_tokens = finufft.Plan(2, (2 * modes + 1,), **settings)
    ones = np.ones(theta.size, dtype=complex)

    def work() -> object:
        to_modes.setpts(theta)
        to_tokens.setpts(theta)
        return to_tokens.execute(to_modes.execute(ones))

    return work


def two_sphere_transforms(x: np.ndarray, degree: int, eps: float) -> Work:
    """Return the two bare transforms of a velocity on S^2: one there, two back together."""
    azimuth, polar = np.arctan2(x[:, 1], x[:, 0]), np.arccos(np.clip(x[:, 2], -1, 1))
    settings = {"eps": eps, "nthreads": 1, "upsampfac": 2.0}
    wide, narrow = (2 * degree + 3,) * 2, (2 * degree + 1,) * 2
    to_modes = finufft.Plan(1, wide, isign=-1, **settings)
    to_tokens = finufft.Plan(2, narrow, n_trans=2, isign=1, **settings)
    ones = np.ones(len(x), dtype=complex)

    def work() -> object:
        to_modes.setpts(azimuth, polar)
        to_tokens.setpts(azimuth, polar)
        modes = to_modes.execute(ones)[1:-1, 1:-1]
        return to_tokens.execute(np.stack([modes, modes]))

    return work


def product_and_exponential(x: np.ndarray) -> object:
    """Do the least that a dense attention has to do: two matrix products and one exponential."""
    w = x @ x.T
    np.exp(w, out=w)
    return w @ x


def layer_draws_and_products(x: np.ndarray, layers: int, rng: np.random.Generator) -> object:
    """Draw every layer's V and multiply: overlaps, attention, V."""
    batch, _, d = x.shape
    for _ in range(layers):
        y = (x @ np.swapaxes(x, -1, -2)) @ x
        out = y @ rng.standard_normal((batch, d, d))
    return out


def step_draws_and_products(x: np.ndarray, steps: int, rng: np.random.Generator) -> object:
    """Draw two matrices a step and multiply: 12 evaluations, in 6 of them with the drift."""
    batch, _, d = x.shape
    for _ in range(steps):
        s = rng.standard_normal((2, batch, d, d))
        for stage in range(12):
            g = x @ np.swapaxes(x, -1, -2)
            y = g @ x
            out = y @ s[stage % 2]
            if stage % 2:
                y @ np.swapaxes(x, -1, -2), y @ np.swapaxes(y, -1, -2), g @ y, g @ x
    return out


# --- what one would write first ---


def plain_pairs(theta: np.ndarray, beta: float, wanted: int | None = None) -> np.ndarray:
    """Sum over all pairs on the circle, as it is written; for the first ``wanted`` tokens."""
    targets = theta[:wanted]
    speed = np.empty_like(targets)
    for start in range(0, targets.size, 16):
        gap = targets[start : start + 16, None] - theta
        speed[start : start + 16] = -(np.exp(beta * np.cos(gap)) * np.sin(gap)).mean(axis=1)
    return speed


def dense_solve_ivp(theta: np.ndarray, beta: float, time: float, rtol: float) -> np.ndarray:
    """Integrate the sum over all pairs with SciPy's solver of order 8."""
    return solve_ivp(
        lambda _, y: plain_pairs(y, beta), (0, time), theta, method="DOP853", rtol=rtol, atol=rtol
    ).y[:, -1]


# --- what one would use instead: the same stochastic equation in diffrax ---


def diffrax_paths(x0: np.ndarray, beta: float, horizon: float, steps: int, paths: int) -> Work:
    """Return a compiled solver of the Stratonovich equation by Heun's method, in float64.

    The equation is that of :mod:`tokensphere.sde`, written again in JAX.
    """
    import diffrax
    import jax
    import lineax
    from jax import numpy as jnp

    d = x0.shape[-1]

    def attend(x):
        x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
        g = x @ x.T
        a = jax.nn.softmax(beta * g, axis=-1)
        return x, g, a, a @ x

    def tangent(x, v):
        return v - (x * v).sum(-1, keepdims=True) * x

    def drift(t, x, args):
        x, g, a, y = attend(x)
        k, h = y @ x.T, y @ y.T
        own, square = jnp.diag(k)[None, :], jnp.diag(h)[:, None]
        w = a * (beta * (k - own * g + h * g - square) - own)
        return tangent(x, -0.5 * (a @ y + w @ x))

    def noise(t, x, args):
        x, _, _, y = attend(x)
        shape = jax.ShapeDtypeStruct((d, d), x.dtype)
        return lineax.FunctionLinearOperator(lambda increment: tangent(x, y @ increment), shape)

    def one(key):
        motion = diffrax.UnsafeBrownianPath((d, d), key)
        terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(noise, motion))
        x = diffrax.diffeqsolve(
            terms,
            diffrax.Heun(),
            0.0,
            horizon,
            horizon / steps,
            jnp.asarray(x0),
            max_steps=steps + 1,
            adjoint=diffrax.ForwardMode(),
        ).ys[-1]
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    run = jax.jit(jax.vmap(one))

    def work() -> object:
        with jax.enable_x64(True):
            return np.asarray(run(jax.random.split(jax.random.key(1), paths)))

    work()  # compile
    return work


def pair(overlap: float, d: int) -> np.ndarray:
    """Two tokens with a given overlap."""
    x = np.zeros((2, d))
    x[0, 0], x[1, 0], x[1, 1] = 1, overlap, math.sqrt(1 - overlap**2)
    return x
