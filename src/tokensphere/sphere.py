r"""The sphere $S^{d-1}$: drawing tokens on it, projecting onto it and onto its tangent planes.

Tokens are arrays of shape ``(..., n, d)`` whose rows are unit vectors. They may be NumPy's, or of
any other library of the array API standard (JAX, PyTorch, ...): here and in attention, layers, sde
and flow, results stay in the library, type and device of the tokens given.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tokensphere import _check, _xp
from tokensphere._check import Array


def uniform(
    n: int,
    d: int,
    *,
    rng: np.random.Generator,
    batch: tuple[int, ...] = (),
    dtype: DTypeLike = float,
) -> Array:
    """Draw ``n`` independent uniform tokens: shape ``(*batch, n, d)``.

    A standard normal vector divided by its norm is uniform on the sphere. They are NumPy's, like
    ``rng``; another library's ``asarray`` takes them on.

    >>> uniform(3, 2, rng=np.random.default_rng(1), batch=(5,)).shape
    (5, 3, 2)
    """
    n, d = _check.whole(n, "n"), _check.dimension(d)
    rng = _check.generator(rng)
    if np.dtype(dtype) not in _check.UNIT_TOLERANCE:
        raise ValueError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
    shape = (*(_check.whole(b, "batch", low=0) for b in batch), n, d)
    return _normalize(rng.standard_normal(shape)).astype(dtype, copy=False)


def normalize(x: ArrayLike) -> Array:
    """Divide every row of ``x``, shape ``(..., d)``, by its Euclidean norm.

    Rows are scaled by their largest entry first, so that neither tiny nor huge rows
    under- or overflow. A zero row has no direction: ``ValueError``.

    >>> normalize([[3.0, 4.0], [0.0, 1e-300]])
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    x = _check.array(x, "x")
    if x.ndim < 1 or x.shape[-1] < 2:
        raise ValueError(f"x must have shape (..., d) with d >= 2, got shape {(*x.shape,)}")
    xp = _xp.of(x)
    largest = xp.max(xp.abs(x), axis=-1, keepdims=True)
    if xp.any(largest == 0):
        raise ValueError("x must have no zero row: a zero vector has no direction")
    return _normalize(x / largest)


def tangent(x: ArrayLike, v: ArrayLike) -> Array:
    r"""Project ``v`` onto the tangent planes at ``x``: $P_x v = v - \langle x, v\rangle x$.

    Both have shape ``(..., n, d)`` and broadcast against each other.

    >>> tangent([[1.0, 0.0]], [[2.0, 3.0]])
    array([[0., 3.]])
    """
    x, v = _check.tokens(x), _check.array(v, "v")
    if _xp.of(v) is not _xp.of(x):
        raise ValueError(f"v must be an array of the library of x, {type(x)}, got {type(v)}")
    if v.ndim < 1 or v.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"v must have rows of length {x.shape[-1]} like x, got shape {(*v.shape,)}"
        )
    return _tangent(x, v)


def from_angles(theta: ArrayLike) -> Array:
    r"""Tokens on the circle, $(\cos\theta, \sin\theta)$: ``(..., n)`` to ``(..., n, 2)``."""
    theta = _check.angles(theta, "theta", _check.array)
    xp = _xp.of(theta)
    return xp.stack([xp.cos(theta), xp.sin(theta)], axis=-1)


def to_angles(x: ArrayLike) -> Array:
    r"""Angles in $(-\pi, \pi]$ of tokens on the circle: ``(..., n, 2)`` to ``(..., n)``."""
    x = _check.tokens(x)
    if x.shape[-1] != 2:
        raise ValueError(f"x must lie on the circle, shape (..., n, 2), got shape {(*x.shape,)}")
    return _xp.of(x).atan2(x[..., 1], x[..., 0])


def _normalize(x: Array) -> Array:
    return x / _xp.of(x).sqrt(_xp.dot(x, x))[..., None]


def _tangent(x: Array, v: Array) -> Array:
    return v - _xp.dot(x, v)[..., None] * x
