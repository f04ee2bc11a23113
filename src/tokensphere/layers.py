r"""Tokens through randomly initialised attention layers.

One of L layers, with $h = T/L$, $y_i = \sum_j A_{ij} x_j$, $A_{ij} \propto
e^{\beta\langle x_i,x_j\rangle}$ and $N(v) = v/|v|$ (the model of arXiv 2601.21942 as far as its
abstract and public notes tell; derived and tested here):
$$x_i \leftarrow N(x_i + \sqrt{h}\; V y_i),$$
where $V \in R^{d\times d}$ is drawn afresh in every layer with independent entries of mean 0 and
variance 1, *the same V for all tokens*. As $L\to\infty$ the law tends, with an error of order
1/L, to the equation that :mod:`tokensphere.sde` solves, at time T. With ``pull`` = a the mean of
V is not zero but $\sqrt h\,a I$: a drift, of the size at which it and the noise both count,
$$x_i \leftarrow N(x_i + h a\,y_i + \sqrt{h}\; V y_i).$$

Only $V Y$ is ever needed. For Gaussian V and fewer tokens than dimensions it is drawn as
$n d$ normals through a triangular factor of the tokens' $y$ (the same law as drawing V); the
overlaps alone form a Markov chain of their own, :func:`overlap_chain`, whose cost does not
depend on d at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check
from tokensphere._check import Array
from tokensphere.sphere import _normalize

Noise: TypeAlias = Literal["common", "independent", "none"]
Entries: TypeAlias = Literal["gaussian", "rademacher", "uniform"]

#: normals of a block of matrices V: 2 MiB of float64
_BLOCK = 2**18
#: overlaps this close to 1 or -1 are looked at for coincident and antipodal tokens
_NEAR = 1e-6


def forward(
    x0: ArrayLike,
    beta: float,
    depth: int,
    *,
    horizon: float = 1.0,
    pull: float = 0.0,
    noise: Noise = "common",
    entries: Entries = "gaussian",
    rng: np.random.Generator,
    keep: int | None = None,
) -> Array:
    r"""Send tokens through ``depth`` random layers; returns the last tokens ``(..., n, d)``.

    Args:
        x0: tokens, shape ``(..., n, d)``; each member of the leading axes is a system of its
            own, with its own V.
        beta: inverse temperature, >= 0.
        depth: number of layers L.
        horizon: total time T; a layer's residual is scaled by $\sqrt{T/L}$. ``horizon=depth``
            gives unscaled residuals, and entries of variance 1/d at horizon T are
            ``horizon=T / d``.
        pull: what the drift $a y_i$ counts beside the noise of unit variance; negative: a push.
            Mean a and variance $s^2$ at horizon T are ``pull=a / s**2, horizon=s**2 * T``.
        noise: ``"common"``, the model. ``"independent"`` gives every token a V of its own: every
            token alone then has the same law, their overlaps another (the control). ``"none"``
            is the deterministic contrast V = I: a drift and not a noise, it is scaled by
            $h = T/L$ and not by its root, $x \leftarrow N(x + h y)$, so that it too has a limit:
            the flow of :func:`tokensphere.flow.solve` at time T; ``pull`` must then be 0.
        entries: law of the entries of V: ``"gaussian"``, ``"rademacher"`` (-1 or 1) or
            ``"uniform"`` (on $[-\sqrt3,\sqrt3]$); all have mean 0 and variance 1.
        rng: source of randomness; not used by ``noise="none"``.
        keep: return k = ``keep`` depths ``(k, ..., n, d)``: after layers $\lceil jL/k\rceil$,
            j = 1..k. The last is L; the start is not among them.

    Unit norm holds to rounding at every depth. Coincident tokens stay coincident, and a
    configuration that is its own mirror image (antipodal groups of equal sizes) stays so,
    exactly, where the model does it: under common noise and under none.

    >>> x0 = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> forward(x0, beta=1.0, depth=12, keep=3, rng=np.random.default_rng(1)).shape
    (3, 2, 3)
    """
    x, beta = _check.tokens(x0, "x0"), _check.beta(beta)
    horizon = _check.number(horizon, "horizon", low=0.0)
    _check.choice(noise, "noise", ("common", "independent", "none"))
    pull = _check.pull(pull, noise)
    _check.choice(entries, "entries", ("gaussian", "rademacher", "uniform"))
    rng, kept = _check.generator(rng), _kept(depth, keep)
    shape, x = x.shape, _normalize(x.reshape((-1, *x.shape[-2:])))
    h = horizon / kept[-1]
    ties = None if noise == "independent" else _Ties.of(x)
    out = np.empty((len(kept), *x.shape), x.dtype)
    position = 0
    for layer in range(1, kept[-1] + 1):
        y = _weights(x @ np.swapaxes(x, -1, -2), beta) @ x
        if noise == "none":
            x = x + h * y
        elif noise == "common":
            x = x + math.sqrt(h) * _common(y, entries, rng)
        else:
            x = x + math.sqrt(h) * _independent(y, entries, rng)
        if pull:
            x = x + h * pull * y
        x = _normalize(x)
        if ties is not None:
            x = ties.restore(x)
        if layer == kept[position]:
            out[position] = x
            position += 1
    out = out.reshape((len(kept), *shape))
    return out[0] if keep is None else out


def overlap_chain(
    gram0: ArrayLike,
    beta: float,
    d: int,
    depth: int,
    *,
    horizon: float = 1.0,
    pull: float = 0.0,
    rng: np.random.Generator,
    keep: int | None = None,
) -> Array:
    r"""The overlaps alone, through ``depth`` random layers, at a cost that does not depend on d.

    Under common Gaussian noise the Gram matrix $G = XX^T$ of :func:`forward` is itself a Markov
    chain. In a basis of the tokens' span, $G = RR^T$ and with weights A from G, $C = AR$ and
    $h = T/L$, the part of V inside the span is a matrix N of independent normals and the part
    leading out of it enters only through a Wishart matrix $BB^T$ with $d - m$ degrees of freedom
    (m = min(n, d)), drawn by its Bartlett factor B:
    $$G' = MM^T + h\,(CB)(CB)^T,\qquad M = R + h a\,C + \sqrt h\,CN,$$
    rescaled to a unit diagonal. A layer costs $O(n^3)$ time and $O(n^2)$ random numbers. The law
    is exactly that of ``forward(...)`` followed by ``x @ x.T``.

    Args:
        gram0: overlaps at the start, shape ``(..., n, n)``: symmetric, unit diagonal, positive
            semidefinite (singular is fine: coincident and antipodal tokens), rank at most d.
        beta: inverse temperature, >= 0.
        d: dimension, >= 2; n may be larger.
        depth: number of layers L.
        horizon: total time T.
        pull: the drift a, as in :func:`forward`.
        rng: source of randomness.
        keep: as in :func:`forward`; the result is then ``(k, ..., n, n)``.

    Overlaps within about 8n roundings of 1 or -1 count as coincident or antipodal.

    >>> rng = np.random.default_rng(1)
    >>> overlap_chain(np.eye(3), beta=2.0, d=768, depth=12, rng=rng).shape
    (3, 3)
    """
    beta, d = _check.beta(beta), _check.dimension(d)
    g = _gram(gram0, d)
    horizon = _check.number(horizon, "horizon", low=0.0)
    pull = _check.number(pull, "pull")
    rng, kept = _check.generator(rng), _kept(depth, keep)
    shape, g = g.shape, g.reshape((-1, *g.shape[-2:]))
    h = horizon / kept[-1]
    out = np.empty((len(kept), *g.shape), g.dtype)
    position = 0
    step = _pair_step if shape[-1] == 2 else _overlap_step
    for layer in range(1, kept[-1] + 1):
        g = step(g, beta, d, h, rng, pull)
        if layer == kept[position]:
            out[position] = g
            position += 1
    out = out.reshape((len(kept), *shape))
    return out[0] if keep is None else out


def _overlap_step(
    g: Array, beta: float, d: int, h: float, rng: np.random.Generator, pull: float = 0.0
) -> Array:
    root = _root(g, d)
    batch, _, m = root.shape
    draws = _inner_and_outer_draws(batch, m, d, g.dtype, rng)
    mixed = _weights(g, beta) @ root
    moved = math.sqrt(h) * (mixed @ draws)
    moved[..., :m] += root + h * pull * mixed if pull else root
    new = moved @ np.swapaxes(moved, -1, -2)
    scale = 1 / np.sqrt(np.einsum("bii->bi", new))
    new *= scale[:, :, None] * scale[:, None, :]
    new = (new + np.swapaxes(new, -1, -2)) / 2
    np.clip(new, -1, 1, out=new)
    np.einsum("bii->bi", new)[...] = 1
    return new


def _pair_step(
    g: Array, beta: float, d: int, h: float, rng: np.random.Generator, pull: float = 0.0
) -> Array:
    """Do the same step, with the same draws, for n = 2: written out, it takes half the time."""
    r = g[:, 0, 1]
    draws = math.sqrt(h) * _inner_and_outer_draws(len(g), 2, d, g.dtype, rng)
    if pull:  # a multiple of the identity beside N
        draws[:, [0, 1], [0, 1]] += h * pull
    rest = (1 - r) * (1 + r)
    s = np.sqrt(np.where(rest <= 16 * np.finfo(g.dtype).eps, 0, rest))
    other = 1 / (1 + np.exp(np.minimum(beta * (1 - r), 80)))  # weight of the other token
    first, second = draws[:, 0].T, draws[:, 1].T
    one = (1 - other + other * r) * first + other * s * second
    two = (other + (1 - other) * r) * first + (1 - other) * s * second
    one[0] += 1
    two[0] += r
    two[1] += s
    overlap = (one * two).sum(axis=0) / np.sqrt((one * one).sum(axis=0) * (two * two).sum(axis=0))
    new = np.ones_like(g)
    new[:, 0, 1] = new[:, 1, 0] = np.clip(overlap, -1, 1)
    return new


def _inner_and_outer_draws(
    batch: int, m: int, d: int, dtype: np.dtype, rng: np.random.Generator
) -> Array:
    """Draw N, and beside it B: chi variables on the diagonal, normals below it, zeros above."""
    columns = min(m, d - m)
    draws = rng.standard_normal((batch, m, m + columns), dtype=dtype.type)
    if columns:
        bartlett, i = draws[..., m:], np.arange(columns)
        bartlett *= np.tri(m, columns, -1, dtype=dtype)
        shapes = np.broadcast_to((d - m - i) / 2, (batch, columns))
        bartlett[:, i, i] = np.sqrt(2 * rng.standard_gamma(shapes, dtype=dtype.type))
    return draws


def _root(g: Array, d: int) -> Array:
    """A factor R, shape ``(batch, n, min(n, d))``, of Gram matrices: R R^T = G to rounding."""
    n = g.shape[-1]
    if n > d:
        values, vectors = np.linalg.eigh(g)
        return vectors[..., -d:] * np.sqrt(np.maximum(values[..., None, -d:], 0))
    # Cholesky, column by column for the whole batch, the token with most left to explain first:
    # once that is rounding so is all the rest, and nothing small was ever divided by something
    # smaller (tokens about to merge make G singular, layer after layer).
    root, batch = np.zeros_like(g), np.arange(len(g))
    left = np.einsum("bii->bi", g).copy()
    tiny = 8 * n * np.finfo(g.dtype).eps
    for j in range(n):
        pivot = left.argmax(axis=-1)
        most = left[batch, pivot]
        column = g[batch, :, pivot] - np.einsum(
            "bik,bk->bi", root[:, :, :j], root[batch, pivot, :j]
        )
        column[batch, pivot] = most
        column *= np.where(most > tiny, 1 / np.sqrt(np.maximum(most, tiny)), 0)[:, None]
        root[:, :, j] = column
        left -= column**2
        left[batch, pivot] = 0
    return root


def _gram(value: ArrayLike, d: int) -> Array:
    g = _check.floating(value, "gram0")
    if g.ndim < 2 or g.shape[-1] != g.shape[-2] or g.shape[-1] < 1:
        raise ValueError(f"gram0 must have shape (..., n, n) with n >= 1, got shape {g.shape}")
    if not g.size:
        return g
    tolerance = _check.UNIT_TOLERANCE[g.dtype]
    diagonal = np.abs(np.einsum("...ii->...i", g) - 1).max()
    if diagonal > tolerance:
        raise ValueError(
            f"gram0 must have ones on its diagonal (to {tolerance:g}), got {1 + diagonal:.6g}"
        )
    skew = np.abs(g - np.swapaxes(g, -1, -2)).max()
    if skew > tolerance:
        raise ValueError(f"gram0 must be symmetric (to {tolerance:g}), it is off by {skew:.3g}")
    values = np.linalg.eigvalsh(g)
    if values.min() < -tolerance * g.shape[-1]:
        raise ValueError(
            f"gram0 must be positive semidefinite, got the eigenvalue {values.min():.3g}"
        )
    rank = int((values > tolerance * g.shape[-1]).sum(axis=-1).max())
    if rank > d:
        raise ValueError(f"gram0 must have rank at most d = {d}, got rank {rank}")
    return g


def _kept(depth: int, keep: int | None) -> list[int]:
    """After which layers tokens are returned; the last is ``depth``."""
    depth = _check.whole(depth, "depth")
    if keep is None:
        return [depth]
    keep = _check.whole(keep, "keep")
    if keep > depth:
        raise ValueError(f"keep must be at most depth = {depth}, got {keep}")
    return [-(-depth * j // keep) for j in range(1, keep + 1)]


def _weights(g: Array, beta: float) -> Array:
    # no row has an overlap above that with itself, 1
    w = np.exp(beta * (g - 1))
    w /= w.sum(axis=-1, keepdims=True)
    return w


def _common(y: Array, entries: Entries, rng: np.random.Generator) -> Array:
    """V y_i for all tokens i of a system, one V a system; ``y`` is ``(batch, n, d)``."""
    batch, n, d = y.shape
    if entries == "gaussian" and n == 1:
        return _independent(y, entries, rng)
    if entries == "gaussian" and _factor_is_faster(batch, n, d):
        return _through_factor(y, rng)
    return _with_whole_matrix(y, entries, rng)


def _through_factor(y: Array, rng: np.random.Generator) -> Array:
    # y = r^T q^T: V q is d x n independent normals. From y itself, not from y y^T, whose root
    # would lose half of the digits of tokens that are about to merge.
    r = np.linalg.qr(np.swapaxes(y, -1, -2), mode="r")
    return np.swapaxes(r, -1, -2) @ rng.standard_normal(y.shape, dtype=y.dtype.type)


def _with_whole_matrix(y: Array, entries: Entries, rng: np.random.Generator) -> Array:
    d = y.shape[-1]
    out = np.empty_like(y)
    for block in _blocks(len(y), d * d):
        v = _draw((len(y[block]), d, d), entries, y.dtype, rng)
        out[block] = y[block] @ np.swapaxes(v, -1, -2)
    return out


def _independent(y: Array, entries: Entries, rng: np.random.Generator) -> Array:
    """V_i y_i with a V_i for every token."""
    if entries == "gaussian":
        return np.linalg.norm(y, axis=-1, keepdims=True) * rng.standard_normal(
            y.shape, dtype=y.dtype.type
        )
    d = y.shape[-1]
    flat = y.reshape(-1, d)
    out = np.empty_like(flat)
    for block in _blocks(len(flat), d * d):
        v = _draw((len(flat[block]), d, d), entries, y.dtype, rng)
        out[block] = (v @ flat[block][..., None])[..., 0]
    return out.reshape(y.shape)


def _factor_is_faster(batch: int, n: int, d: int) -> bool:
    """Where, as measured, QR factorisations cost less than the d^2 - n d normals they save."""
    few = 8 * n <= (3 * d if d >= 12 else 2 * d)
    return d >= 8 and few and batch * d * (d - n) >= 3000


def _draw(
    shape: tuple[int, ...], entries: Entries, dtype: np.dtype, rng: np.random.Generator
) -> Array:
    """Entries of mean 0 and variance 1."""
    if entries == "gaussian":
        return rng.standard_normal(shape, dtype=dtype.type)
    if entries == "rademacher":
        return (2 * rng.integers(0, 2, shape, dtype=np.int8) - 1).astype(dtype)
    return math.sqrt(12) * (rng.random(shape, dtype=dtype.type) - 0.5)


def _blocks(count: int, size: int) -> Iterator[slice]:
    step = max(1, _BLOCK // size)
    for start in range(0, count, step):
        yield slice(start, start + step)


@dataclass(frozen=True)
class _Ties:
    """Which tokens are, by symmetry, plus or minus another one, and will be for ever.

    Rounding breaks such ties, and where the tie is unstable the error grows exponentially.
    """

    source: Array
    sign: Array

    @classmethod
    def of(cls, x: Array) -> _Ties | None:
        """Find the exact ties of tokens ``(batch, n, d)``; None if there are none."""
        batch, n, _ = x.shape
        g = np.abs(x @ np.swapaxes(x, -1, -2))
        np.einsum("bii->bi", g)[...] = 0
        near = np.flatnonzero((g > 1 - _NEAR).any(axis=(1, 2)))
        source = np.tile(np.arange(n), (batch, 1))
        sign = np.ones((batch, n), x.dtype)
        for b in near:
            source[b], sign[b] = _tied(x[b] + 0)
        if (source == np.arange(n)).all():
            return None
        return cls(source, sign[..., None])

    def restore(self, x: Array) -> Array:
        return self.sign * np.take_along_axis(x, self.source[..., None], axis=1)


def _tied(x: Array) -> tuple[Array, Array]:
    """For every token of one system, the first token it equals up to sign, and the sign."""
    rows, first, back, count = np.unique(
        x, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    mirrored, opposite = np.unique(-rows + 0, axis=0, return_index=True)
    sign = np.ones(len(x), x.dtype)
    source = first[back]
    # rows[opposite[k]] = -mirrored[k]: an antipode stays one only if all tokens have theirs
    if np.array_equal(rows, mirrored) and np.array_equal(count, count[opposite]):
        other = first[opposite][back]
        sign[other < source] = -1
        source = np.minimum(source, other)
    return source, sign
