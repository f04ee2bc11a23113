"""How many clusters tokens form, and whether they form an antipodal pair.

Distances are angles on the sphere, in radians. Tokens of another library than NumPy are counted on
the host, and the counts are NumPy's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, sphere
from tokensphere._check import Array

#: tokens compared with all the others at a time
_BLOCK = 256


def count(x_or_theta: ArrayLike, tol: float = 0.1, min_share: float = 0.0) -> Array:
    """Count the groups of tokens linked by steps of at most ``tol`` (single linkage).

    Args:
        x_or_theta: tokens ``(..., n, d)`` or angles ``(..., n)``. An array of at least two axes
            all of whose rows have unit length is read as tokens.
        tol: longest step within a group, an angle in radians, 0 <= tol < pi.
        min_share: leave out groups with a smaller share of the tokens than this (the stragglers
            on their way between clusters); 0 counts every group.

    Returns:
        Whole numbers, shape ``(...)``.

    >>> int(count([0.0, 0.05, 3.0, 6.25], tol=0.1))
    2
    """
    tol = _check.number(tol, "tol", low=0.0, high=np.pi, open_high=True)
    min_share = _check.number(min_share, "min_share", low=0.0, high=1.0)
    given = _check.floating(x_or_theta, "x_or_theta")
    if _are_tokens(given):
        x = _check.tokens(given, "x_or_theta")
        if x.shape[-1] > 2:
            return _count_each(x.reshape((-1, *x.shape[-2:])), tol, min_share, x.shape[:-2])
        given = sphere.to_angles(x)
    theta = _check.angles(given, "x_or_theta")
    return _count_angles(theta.reshape((-1, theta.shape[-1])), tol, min_share, theta.shape[:-1])


def antipodal_split(x: ArrayLike, tol: float = 0.1) -> Array:
    """Sizes of the two groups where tokens form one cluster or an antipodal pair of clusters.

    Args:
        x: tokens, shape ``(..., n, d)``.
        tol: every token must lie within this angle of the first token or of its antipode.

    Returns:
        Whole numbers ``(..., 2)``, the larger first: ``[n, 0]`` is one cluster, ``[m, n - m]`` an
        antipodal pair, ``[0, 0]`` neither.

    >>> antipodal_split([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    array([2, 1])
    """
    x = _check.tokens(x, "x", _check.floating)
    tol = _check.number(tol, "tol", low=0.0, high=np.pi / 2, open_high=True)
    flipped = x + x[..., :1, :]
    apart = x - x[..., :1, :]
    # chords, not overlaps: the overlap cannot tell angles below 1e-8 apart
    near = np.sqrt(np.einsum("...d,...d->...", apart, apart)) <= _chord(tol)
    far = np.sqrt(np.einsum("...d,...d->...", flipped, flipped)) <= _chord(tol)
    same, opposite = near.sum(axis=-1), far.sum(axis=-1)
    sizes = np.stack([np.maximum(same, opposite), np.minimum(same, opposite)], axis=-1)
    return np.where((same + opposite == x.shape[-2])[..., None], sizes, 0)


def _are_tokens(given: Array) -> bool:
    if given.ndim < 2 or given.shape[-1] < 2:
        return False
    length = np.sqrt(np.einsum("...d,...d->...", given, given))
    return bool((np.abs(length - 1) <= _check.UNIT_TOLERANCE[given.dtype]).all())


def _chord(angle: float) -> float:
    """Length of the chord of an angle, a little longer so that rounding cuts no link."""
    return float(2 * np.sin(angle / 2)) * (1 + 1e-12) + 1e-15


def _count_angles(theta: Array, tol: float, min_share: float, shape: tuple[int, ...]) -> Array:
    """Cut the sorted circle at the gaps wider than tol."""
    out = np.empty(len(theta), dtype=np.int64)
    n = theta.shape[-1]
    ordered = np.sort(np.remainder(theta.astype(np.float64), 2 * np.pi), axis=-1)
    gaps = np.diff(ordered, axis=-1, append=ordered[:, :1] + 2 * np.pi)
    for i, gap in enumerate(gaps):
        cuts = np.flatnonzero(gap > tol + 1e-12)
        sizes = np.diff(cuts, append=cuts[:1] + n) if cuts.size else np.array([n])
        out[i] = (sizes >= min_share * n).sum()
    return out.reshape(shape)[()]


def _count_each(x: Array, tol: float, min_share: float, shape: tuple[int, ...]) -> Array:
    n = x.shape[-2]
    out = [sum(size >= min_share * n for size in _group_sizes(system, tol)) for system in x]
    return np.array(out, dtype=np.int64).reshape(shape)[()]


def _group_sizes(x: Array, tol: float) -> list[int]:
    """Grow groups from their newest members; whoever is reached leaves the crowd for good."""
    radius2 = _chord(tol) ** 2
    crowd, sizes = x, []
    while len(crowd):
        newest, crowd, size = crowd[:1], crowd[1:], 1
        while len(newest):
            front, newest = newest[:_BLOCK], newest[_BLOCK:]
            reached = np.zeros(len(crowd), dtype=bool)
            for start in range(0, len(crowd), _BLOCK):
                part = crowd[start : start + _BLOCK]
                apart = ((part[:, None, :] - front[None, :, :]) ** 2).sum(axis=-1)
                reached[start : start + _BLOCK] = (apart <= radius2).any(axis=-1)
            newest = np.concatenate([newest, crowd[reached]])
            crowd = crowd[~reached]
            size += int(reached.sum())
        sizes.append(size)
    return sizes
