"""What a public function may be given: one check per kind of argument.

Each check returns the argument in the form the kernels want, or raises ``ValueError`` naming
the argument, what was given and what is allowed. Inner loops never call these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _xp
from tokensphere._xp import Array as Array

Kind: TypeAlias = Literal["softmax", "unnormalized"]

#: how far a row may be from the unit sphere, by floating type
UNIT_TOLERANCE = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-6}


def array(value: ArrayLike, name: str) -> Array:
    """Return ``value`` as a finite float32 or float64 array of its own library.

    Other real types become the library's default (NumPy: float64); lists become NumPy arrays.
    """
    try:
        if _xp.is_foreign(value):
            x = cast(Array, value)
            if not _xp.is_real(x):
                raise ValueError
            x = _xp.as_floating(x)
        else:
            x = np.asarray(value)
            if x.dtype not in UNIT_TOLERANCE:
                if x.dtype.kind not in "iuf":
                    raise ValueError
                x = x.astype(np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{name} must be an array of real numbers, got {_show(value)}") from None
    finite = _xp.of(x).isfinite(x)
    if not (finite.all() if isinstance(x, np.ndarray) else _xp.of(x).all(finite)):
        raise ValueError(f"{name} must be finite, got {_show(x[~finite])}")
    return x


def floating(value: ArrayLike, name: str) -> Array:
    """Return the same as a NumPy array, whatever its library: for functions that use NumPy."""
    return _xp.to_numpy(array(value, name))


def tokens(
    value: ArrayLike, name: str = "x", read: Callable[[ArrayLike, str], Array] = array
) -> Array:
    """Tokens: a float array (..., n, d) with n >= 1, d >= 2 and unit rows."""
    x = read(value, name)
    if x.ndim < 2 or x.shape[-2] < 1 or x.shape[-1] < 2:
        raise ValueError(
            f"{name} must have shape (..., n, d) with n >= 1 and d >= 2, got shape {(*x.shape,)}"
        )
    if 0 not in x.shape:
        xp, tolerance = _xp.of(x), UNIT_TOLERANCE[_xp.precision(x)]
        off = xp.abs(xp.sqrt(_xp.dot(x, x)) - 1.0)
        worst = float(off.max() if xp is np else xp.max(off))
        if not worst <= tolerance:
            raise ValueError(
                f"{name} must have unit rows (to {tolerance:g} in {x.dtype}), "
                f"got a row whose norm is off by {worst:.3g}; see tokensphere.sphere.normalize"
            )
    return x


def angles(
    value: ArrayLike, name: str = "theta", read: Callable[[ArrayLike, str], Array] = floating
) -> Array:
    """Angles: a float array (..., n) with n >= 1."""
    theta = read(value, name)
    if theta.ndim < 1 or theta.shape[-1] < 1:
        raise ValueError(
            f"{name} must have shape (..., n) with n >= 1, got shape {(*theta.shape,)}"
        )
    return theta


def number(
    value: Any,
    name: str,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """A finite real number between ``low`` and ``high`` (ends excluded where ``open_``)."""
    ok = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not ok and (isinstance(value, np.ndarray) or _xp.is_foreign(value)):
        ok = value.ndim == 0 and _xp.is_real(value)
    if ok:
        given = float(value)
        above = given > low if open_low else given >= low
        below = given < high if open_high else given <= high
        if np.isfinite(given) and above and below:
            return given
    bounds = []
    if np.isfinite(low):
        bounds.append(f"{'>' if open_low else '>='} {low:g}")
    if np.isfinite(high):
        bounds.append(f"{'<' if open_high else '<='} {high:g}")
    allowed = " and ".join(["a finite number", *bounds])
    raise ValueError(f"{name} must be {allowed}, got {_show(value)}")


def whole(value: Any, name: str, *, low: int = 1) -> int:
    """A whole number >= ``low``; 3.0 counts as 3."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if is_number and not isinstance(value, bool) and np.isfinite(value) and value >= low:
        rounded = int(value)
        if rounded == value:
            return rounded
    raise ValueError(f"{name} must be a whole number >= {low}, got {_show(value)}")


def beta(value: Any) -> float:
    """The inverse temperature, >= 0."""
    return number(value, "beta", low=0.0)


def betas(value: ArrayLike) -> Array:
    """Inverse temperatures as an array, each >= 0."""
    array = floating(value, "beta")
    if (array < 0).any():
        raise ValueError(f"beta must be >= 0, got {_show(array[array < 0])}")
    return array


def dimension(value: Any) -> int:
    """The dimension of the space, >= 2."""
    return whole(value, "d", low=2)


def kind(value: Any) -> Kind:
    """Which attention: normalised rows or not."""
    if value not in ("softmax", "unnormalized"):
        raise ValueError(f'kind must be "softmax" or "unnormalized", got {_show(value)}')
    return cast(Kind, value)


def choice(value: Any, name: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise ValueError(f"{name} must be one of {words}, got {_show(value)}")
    return cast(str, value)


def pull(value: Any, noise: str) -> float:
    """The mean of V; without noise V = I, and there is nothing to choose."""
    given = number(value, "pull")
    if given and noise == "none":
        raise ValueError(f'pull must be 0 with noise="none", where V = I, got {given:g}')
    return given


def times(value: ArrayLike) -> Array:
    """Times: at least one, never going back; on the host, whatever library they come from."""
    t = floating(value, "times").astype(np.float64)
    if t.ndim != 1 or t.size < 1 or (np.diff(t) < 0).any():
        raise ValueError(
            f"times must be a non-empty, non-decreasing list of numbers, got {_show(value)}"
        )
    return t


def generator(value: Any) -> np.random.Generator:
    """The source of randomness; there is no hidden default."""
    if not isinstance(value, np.random.Generator):
        raise ValueError(
            f"rng must be a numpy.random.Generator, e.g. numpy.random.default_rng(1), "
            f"got {_show(value)}"
        )
    return value


def _show(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 80 else text[:77] + "..."
