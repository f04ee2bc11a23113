"""Arrays of any library: tokens may be NumPy's, JAX's, PyTorch's or others' of the array API.

Every kernel is written once, in the words of the array API standard, which NumPy follows:
``xp = of(x)`` is the library of ``x``, and ``xp.exp(x)`` stays in its library, type and device.
Here is the rest: what the standard lacks, and what NumPy does faster in place. The type ``Array``
says NumPy's, and means any.

Nothing leaves its library unasked. Where numbers have to go to the host it is :func:`to_numpy`
that takes them, and :func:`beside` that brings them back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, cast

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def of(x: Any) -> Any:
    """The library of ``x``: a module with the functions of the array API."""
    return np if isinstance(x, np.ndarray) else compat.array_namespace(x)


def is_foreign(value: object) -> bool:
    """Whether ``value`` is an array of a library other than NumPy."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return compat.is_array_api_obj(value)


def is_real(x: Any) -> bool:
    """Whether an array holds integers or floating-point numbers."""
    xp = of(x)
    return hasattr(x, "dtype") and bool(xp.isdtype(x.dtype, ("integral", "real floating")))


def as_floating(x: Any) -> Array:
    """Make other types than float32 and float64 the library's default floating type."""
    xp = of(x)
    if x.dtype in (xp.float32, xp.float64):
        return x
    return xp.astype(x, xp.__array_namespace_info__().default_dtypes()["real floating"])


def precision(x: Any) -> np.dtype[Any]:
    """NumPy's name for the type of ``x``, float32 or float64."""
    if isinstance(x, np.ndarray):
        return x.dtype
    return np.dtype(np.float64 if x.dtype == of(x).float64 else np.float32)


def to_numpy(x: Any) -> Array:
    """Copy an array of any library to the host, as NumPy's; NumPy's own are returned as they are.

    What came from another library may be read-only.
    """
    if isinstance(x, np.ndarray):
        return x
    if compat.is_torch_array(x):
        return np.asarray(x.detach().cpu())
    if compat.is_cupy_array(x):
        return x.get()
    return np.asarray(x) if compat.is_jax_array(x) else np.from_dlpack(x)


def beside(values: Array, x: Any) -> Array:
    """Bring NumPy's ``values`` into the library of ``x`` and onto its device; the type is kept."""
    if isinstance(x, np.ndarray):
        return values
    return of(x).asarray(values, device=compat.device(x))


def reshape(x: Any, shape: tuple[int, ...]) -> Array:
    """As the standard's; like the next four it spares NumPy's small arrays some microseconds."""
    return x.reshape(shape) if isinstance(x, np.ndarray) else of(x).reshape(x, shape)


def flat(x: Any) -> Array:
    """All leading axes as one: shape ``(batch, n, d)``."""
    return reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def total(x: Any, axis: int = -1, keepdims: Any = False) -> Array:
    """The standard's ``sum``, along one axis."""
    if isinstance(x, np.ndarray):
        return np.add.reduce(x, axis=axis, keepdims=keepdims)
    return of(x).sum(x, axis=axis, keepdims=keepdims)


def largest(x: Any, axis: int = -1, keepdims: Any = False) -> Array:
    """The standard's ``max``, along one axis."""
    if isinstance(x, np.ndarray):
        return np.maximum.reduce(x, axis=axis, keepdims=keepdims)
    return of(x).max(x, axis=axis, keepdims=keepdims)


def diagonal(x: Any) -> Array:
    """Diagonals of the matrices in the last two axes; NumPy's can be written to."""
    if isinstance(x, np.ndarray):
        return np.einsum("...ii->...i", x)
    return of(x).linalg.diagonal(x)


def dot(x: Any, y: Any) -> Array:
    """Inner products along the last axis."""
    if isinstance(x, np.ndarray):
        return np.einsum("...d,...d->...", x, y)
    # no matrix product: some libraries' round float32 to ten bits on a GPU
    return of(x).sum(x * y, axis=-1)


def exp(x: Any) -> Array:
    """Exponential of an array that is not needed any more."""
    return np.exp(x, out=x) if isinstance(x, np.ndarray) else of(x).exp(x)


def put(x: Any, where: Any, values: Any) -> Array:
    """``x[where] = values``, in place where the library can; use what is returned."""
    if not isinstance(x, np.ndarray) and compat.is_jax_array(x):
        return cast(Any, x).at[where].set(values)
    x[where] = values
    return cast(Array, x)


def add(x: Any, where: Any, values: Any) -> Array:
    """``x[where] += values``, in place where the library can; use what is returned."""
    if not isinstance(x, np.ndarray) and compat.is_jax_array(x):
        return cast(Any, x).at[where].add(values)
    x[where] += values
    return cast(Array, x)


def pick(x: Any, index: Any) -> Array:
    """The entry or row ``x[b, index[b]]`` of every member b of a batch."""
    if isinstance(x, np.ndarray):
        return x[_members(len(x)), index]
    places = of(x).reshape(index, (-1, *[1] * (x.ndim - 1)))
    return of(x).take_along_axis(x, places, axis=1)[:, 0, ...]


def put_each(x: Any, index: Any, values: Any) -> Array:
    """``x[b, index[b]] = values[b]`` for every b, in place where the library can."""
    if isinstance(x, np.ndarray):
        x[_members(len(x)), index] = values
        return x
    xp = of(x)
    chosen = beside(np.arange(x.shape[1]), x) == index[:, None]
    return xp.where(chosen, values if isinstance(values, float) else values[:, None], x)


def stack(arrays: Iterable[Any], count: int) -> Array:
    """``count`` >= 1 arrays along a new first axis; NumPy's as they come, so never held twice."""
    arrays = iter(arrays)
    first = next(arrays)
    if not isinstance(first, np.ndarray):
        return of(first).stack([first, *arrays])
    out = np.empty((count, *first.shape), first.dtype)
    out[0] = first
    for k, array in enumerate(arrays, 1):
        out[k] = array
    return out


@functools.lru_cache(maxsize=1)
def _members(count: int) -> Array:
    return np.arange(count)


def cut(x: Any, length: int) -> Iterator[Array]:
    """Pieces of at most ``length`` along the first axis, or of one where that is less than one."""
    length = max(1, length)
    for start in range(0, x.shape[0], length):
        yield x[start : min(start + length, x.shape[0]), ...]


def join(pieces: Iterable[Any], like: Any) -> Array:
    """Put pieces one behind the other along the first axis, to the shape of ``like``."""
    if not isinstance(like, np.ndarray):
        parts = list(pieces)
        return of(like).concat(parts) if parts else like
    out, start = np.empty_like(like), 0
    for piece in pieces:
        out[start : start + len(piece)] = piece
        start += len(piece)
    return out
