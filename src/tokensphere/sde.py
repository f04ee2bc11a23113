r"""The limit of many random layers: attention driven by one matrix-valued Brownian motion.

With $y_i = \sum_j A_{ij}x_j$, $A_{ij}\propto e^{\beta\langle x_i,x_j\rangle}$ and a $d\times d$
matrix B of independent Brownian motions, the same for all tokens, in Itô's sense
$$dx_i = P_{x_i}\,dB\,y_i - \tfrac{d-1}{2}\,|y_i|^2\,x_i\,dt,$$
and in Stratonovich's sense, where the scheme below lives (derived here and checked against the
Itô equation's exact consequences),
$$dx_i = P_{x_i}\,{\circ\,dB}\,y_i - \tfrac12 P_{x_i}\sum_j \big(A_{ij}\,y_j
  + W_{ij}\,x_j\big)\,dt,\qquad
  W_{ij} = A_{ij}\big[\beta(K_{ij} - K_{jj}G_{ij} + H_{ij}G_{ij} - H_{ii}) - K_{jj}\big],$$
with $G = XX^T$, $K = YX^T$, $H = YY^T$. The drift is the price of the wandering attention: it
vanishes for one token. ``pull`` = a adds $a P_{x_i} y_i\,dt$ to either: the attraction of
attention itself, when the mean of V is not zero.

:func:`tokensphere.layers.forward` reaches the same law with an error of order 1/L; the scheme
here is of order 2, and shares nothing with it but the attention weights' definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, _xp
from tokensphere._check import Array
from tokensphere.sphere import _normalize, _tangent
from tokensphere.trajectory import Trajectory

Noise: TypeAlias = Literal["common", "independent", "none"]

#: Butcher's explicit Runge-Kutta method of order 5 in 6 stages
_STAGES = (
    (),
    (1 / 4,),
    (1 / 8, 1 / 8),
    (0, -1 / 2, 1),
    (3 / 16, 0, 0, 9 / 16),
    (-3 / 7, 2 / 7, 12 / 7, -12 / 7, 8 / 7),
)
_FINAL = (7 / 90, 0, 32 / 90, 12 / 90, 32 / 90, 7 / 90)
#: entries of a block of noise matrices: 2 MiB of float64
_BLOCK = 2**18


def solve(
    x0: ArrayLike,
    beta: float,
    times: ArrayLike,
    *,
    steps: int,
    pull: float = 0.0,
    noise: Noise = "common",
    rng: np.random.Generator,
) -> Trajectory:
    r"""Draw a path of the tokens at the given times: states ``(T, ..., n, d)``.

    Weak order 2, for Stratonovich's form of the equation (which is the same process). A step of
    length h follows two ordinary differential equations for unit time, with the noise frozen at
    matrices $S_1$, $S_2$ of Gaussian entries, $E[S_1^2]=\frac12$, $E[S_2^2]=\frac32$,
    $E[S_1S_2]=-\frac12$:
    $$\dot x = P_x\sqrt h\,S_1\,y,\qquad\text{then}\qquad
      \dot x = h\,b(x) + P_x\sqrt h\,S_2\,y,$$
    b being the Stratonovich drift and the pull (Ninomiya and Ninomiya, *Finance and Stochastics*
    13, 2009, with u = 1/2), each by Butcher's Runge-Kutta method of order 5. It needs $h d$ well
    below 1. Rows are of unit length to rounding, at every step.

    Args:
        x0: tokens at ``times[0]``, shape ``(..., n, d)``; every member of the leading axes gets
            a noise of its own.
        beta: inverse temperature, >= 0.
        times: non-decreasing; all of them are hit.
        steps: number of steps in all, at least one for every interval between different times;
            they are shared out so that the longest step is as short as can be.
        pull: the drift's coefficient a, beside a noise of unit strength; negative: a push. Noise
            of strength s for a time T is ``pull=a / s**2`` for the time $s^2T$.
        noise: ``"common"``, the model; ``"independent"``, every token its own Brownian motion
            (the control); ``"none"``, the flow $\dot x_i = P_{x_i}y_i$ of V = I, with order 5
            (``pull`` must then be 0).
        rng: source of randomness; not used by ``noise="none"``.

    >>> x0 = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> path = solve(x0, 1.0, [0.0, 0.5, 1.0], steps=10, rng=np.random.default_rng(1))
    >>> path.tokens.shape
    (3, 2, 3)
    """
    x, beta, times = _check.tokens(x0, "x0"), _check.beta(beta), _check.times(times)
    _check.choice(noise, "noise", ("common", "independent", "none"))
    pull = _check.pull(pull, noise)
    steps, rng = _check.whole(steps, "steps"), _check.generator(rng)
    gaps = np.diff(times)
    shares = _share(gaps, steps)
    step = {"common": _common, "independent": _independent, "none": _none}[noise]

    def states(state: Array) -> Iterator[Array]:
        yield state
        shape, x = state.shape, _normalize(_xp.flat(state))
        for gap, share in zip(gaps, shares, strict=True):
            for _ in range(share):
                x = step(x, beta, float(gap) / share, rng, pull)
            if share:
                state = _xp.reshape(x, shape)
            yield state

    evaluations = sum(shares) * len(_FINAL) * (1 if noise == "none" else 2)
    return Trajectory(times, _xp.stack(states(x), times.size), evaluations)


def _share(gaps: Array, steps: int) -> list[int]:
    """How many steps each interval gets: the longest step as short as possible."""
    least = int((gaps > 0).sum())
    if least > steps:
        raise ValueError(
            f"steps must be at least one for every interval between different times, "
            f"here {least}, got {steps}"
        )
    if least == 0:
        return [0] * gaps.size
    low, high = gaps.sum() / steps, gaps.max()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.ceil(gaps / middle).sum() <= steps else (middle, high)
    shares = np.ceil(gaps / high).astype(int)
    while shares.sum() < steps:
        shares[np.argmax(gaps / np.maximum(shares, 1))] += 1
    return [int(share) for share in shares]


def _common(x: Array, beta: float, h: float, rng: np.random.Generator, pull: float = 0.0) -> Array:
    d = x.shape[-1]

    def moved(x: Array) -> Array:
        first, second = _noise((x.shape[0], 2, d, d), h, x, rng)

        def alone(x: Array) -> Array:
            return _attend(x, beta)[2] @ first

        def with_drift(x: Array) -> Array:
            g, a, y = _attend(x, beta)
            return y @ second + h * (_common_drift(x, g, a, y, beta) + pull * y)

        return _follow(_follow(x, alone), with_drift)

    return _xp.join((moved(some) for some in _xp.cut(x, _BLOCK // (2 * d**2))), x)


def _independent(
    x: Array, beta: float, h: float, rng: np.random.Generator, pull: float = 0.0
) -> Array:
    # V_i y_i has the law of |y_i| times d normals, and so have the diffusions
    first, second = _noise((x.shape[0], 2, *x.shape[1:]), h, x, rng)

    def alone(x: Array) -> Array:
        y = _attend(x, beta)[2]
        return _length(y) * first

    def with_drift(x: Array) -> Array:
        _, a, y = _attend(x, beta)
        return _length(y) * second + h * (_independent_drift(x, a, y, beta) + pull * y)

    return _follow(_follow(x, alone), with_drift)


def _none(x: Array, beta: float, h: float, rng: np.random.Generator, pull: float = 0.0) -> Array:
    return _follow(x, lambda x: h * _attend(x, beta)[2])


def _noise(
    shape: tuple[int, ...], h: float, like: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    r"""The pair $\sqrt h S_1, \sqrt h S_2$; a member's draws lie together, whatever the block."""
    z = math.sqrt(h) * rng.standard_normal(shape, dtype=_xp.precision(like).type)
    first = math.sqrt(0.5) * z[:, 0]
    return _xp.beside(first, like), _xp.beside(z[:, 1] - first, like)


def _length(y: Array) -> Array:
    return _xp.of(y).linalg.vector_norm(y, axis=-1, keepdims=True)


def _follow(x: Array, field: Callable[[Array], Array]) -> Array:
    """Follow x' = P_x field(x), extended off the sphere by field(x/|x|), for unit time."""
    slopes: list[Array] = []
    for row in _STAGES:
        at = x
        for weight, slope in zip(row, slopes, strict=True):
            if weight:
                at = at + weight * slope
        at = _normalize(at)
        slopes.append(_tangent(at, field(at)))
    return _normalize(x + sum(w * slope for w, slope in zip(_FINAL, slopes, strict=True) if w))


def _attend(x: Array, beta: float) -> tuple[Array, Array, Array]:
    """Overlaps G, weights A and y = A x."""
    g = x @ x.mT
    a = _xp.exp(beta * (g - _xp.largest(g, keepdims=True)))
    a /= _xp.total(a, keepdims=True)
    return g, a, a @ x


def _common_drift(x: Array, g: Array, a: Array, y: Array, beta: float) -> Array:
    """Stratonovich drift, up to a multiple of x_i, which the projection removes."""
    k, gram = y @ x.mT, y @ y.mT
    own, square = _xp.diagonal(k)[..., None, :], _xp.diagonal(gram)[..., None]
    w = a * (beta * (k - own * g + gram * g - square) - own)
    return -0.5 * (a @ y + w @ x)


def _independent_drift(x: Array, a: Array, y: Array, beta: float) -> Array:
    k, square = y @ x.mT, _xp.dot(y, y)[..., None]
    own = _xp.diagonal(a)[..., None]
    return -0.5 * (own * y + beta * ((a * k) @ x - square * y))
