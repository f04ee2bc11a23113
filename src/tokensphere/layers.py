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

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, _xp
from tokensphere._check import Array
from tokensphere.sphere import _normalize

Noise: TypeAlias = Literal["common", "independent", "none"]
Entries: TypeAlias = Literal["gaussian", "rademacher", "uniform"]

#: normals of a block of matrices V: 2 MiB of float64
_BLOCK = 2**18
#: overlaps this close to 1 or -1 are looked at for coincident and antipodal tokens; on a GPU a
#: library may have rounded them to ten bits
_NEAR, _FOREIGN_NEAR = 1e-6, 1e-2


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
    shape, x = x.shape, _normalize(_xp.flat(x))
    h = horizon / kept[-1]
    ties = None if noise == "independent" else _Ties.of(x)

    def layer(x: Array) -> Array:
        y = _weights(x @ x.mT, beta) @ x
        if noise == "none":
            x = x + h * y
        elif noise == "common":
            x = x + math.sqrt(h) * _common(y, entries, rng)
        else:
            x = x + math.sqrt(h) * _independent(y, entries, rng)
        if pull:
            x = x + h * pull * y
        x = _normalize(x)
        return x if ties is None else ties.restore(x)

    return _through(layer, x, kept, shape, keep)


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

    Overlaps within about 8n roundings of 1 or -1 count as coincident or antipodal. The same ``rng``
    gives the same numbers in every array library for n <= d; for n > d, where the basis is one of
    eigenvectors, the same law.

    >>> rng = np.random.default_rng(1)
    >>> overlap_chain(np.eye(3), beta=2.0, d=768, depth=12, rng=rng).shape
    (3, 3)
    """
    beta, d = _check.beta(beta), _check.dimension(d)
    g = _gram(gram0, d)
    horizon = _check.number(horizon, "horizon", low=0.0)
    pull = _check.number(pull, "pull")
    rng, kept = _check.generator(rng), _kept(depth, keep)
    shape, h = g.shape, horizon / kept[-1]
    step = _pair_step if shape[-1] == 2 else _overlap_step
    return _through(lambda g: step(g, beta, d, h, rng, pull), _xp.flat(g), kept, shape, keep)


def _through(
    layer: Callable[[Array], Array],
    state: Array,
    kept: list[int],
    shape: tuple[int, ...],
    keep: int | None,
) -> Array:
    """Apply a layer again and again, and return the states, of the given shape, that are kept."""

    def states(state: Array) -> Iterator[Array]:
        for before, after in itertools.pairwise([0, *kept]):
            for _ in range(before, after):
                state = layer(state)
            yield state

    out = _xp.stack(states(state), len(kept))
    out = _xp.reshape(out, (len(kept), *shape))
    return out[0, ...] if keep is None else out


def _overlap_step(
    g: Array, beta: float, d: int, h: float, rng: np.random.Generator, pull: float = 0.0
) -> Array:
    root = _root(g, d)
    xp, (batch, n, m) = _xp.of(g), root.shape
    draws = _inner_and_outer_draws(batch, m, d, g, rng)
    mixed = _weights(g, beta) @ root
    moved = math.sqrt(h) * (mixed @ draws)
    moved = _xp.add(moved, (..., slice(m)), root + h * pull * mixed if pull else root)
    new = moved @ moved.mT
    scale = 1 / xp.sqrt(_xp.diagonal(new))
    new *= scale[:, :, None] * scale[:, None, :]
    new = (new + new.mT) / 2
    if xp is not np:
        return xp.where(_identity(n, new) == 1, 1.0, xp.clip(new, -1, 1))
    np.minimum(np.maximum(new, -1, out=new), 1, out=new)
    _xp.diagonal(new)[...] = 1
    return new


def _pair_step(
    g: Array, beta: float, d: int, h: float, rng: np.random.Generator, pull: float = 0.0
) -> Array:
    """Do the same step, with the same draws, for n = 2: written out, it takes half the time."""
    xp, r = _xp.of(g), g[:, 0, 1]
    draws = math.sqrt(h) * _inner_and_outer_draws(g.shape[0], 2, d, g, rng)
    if pull:  # a multiple of the identity beside N
        draws = _xp.add(draws, (..., slice(2)), h * pull * _identity(2, g))
    rest = (1 - r) * (1 + r)
    s = xp.sqrt(xp.where(rest <= 16 * float(np.finfo(_xp.precision(g)).eps), 0.0, rest))
    other = 1 / (1 + xp.exp(xp.minimum(beta * (1 - r), 80.0)))  # weight of the other token
    first, second = draws[:, 0, :].T, draws[:, 1, :].T
    one = (1 - other + other * r) * first + other * s * second
    two = (other + (1 - other) * r) * first + (1 - other) * s * second
    one = _xp.add(one, (0, ...), 1.0)
    two = _xp.add(_xp.add(two, (0, ...), r), (1, ...), s)
    squares = _xp.total(one * one, axis=0) * _xp.total(two * two, axis=0)
    overlap = _xp.total(one * two, axis=0) / xp.sqrt(squares)
    overlap = xp.minimum(xp.maximum(overlap, -1.0), 1.0)
    new = xp.ones_like(g)
    return _xp.put(_xp.put(new, (..., 0, 1), overlap), (..., 1, 0), overlap)


def _identity(n: int, like: Array) -> Array:
    return _xp.beside(np.eye(n, dtype=_xp.precision(like)), like)


def _inner_and_outer_draws(
    batch: int, m: int, d: int, like: Array, rng: np.random.Generator
) -> Array:
    """Draw N, and beside it B: chi variables on the diagonal, normals below it, zeros above."""
    columns, dtype = min(m, d - m), _xp.precision(like)
    draws = rng.standard_normal((batch, m, m + columns), dtype=dtype.type)
    if columns:
        bartlett, i = draws[..., m:], np.arange(columns)
        bartlett *= np.tri(m, columns, -1, dtype=dtype)
        shapes = np.broadcast_to((d - m - i) / 2, (batch, columns))
        bartlett[:, i, i] = np.sqrt(2 * rng.standard_gamma(shapes, dtype=dtype.type))
    return _xp.beside(draws, like)


def _root(g: Array, d: int) -> Array:
    """A factor R, shape ``(batch, n, min(n, d))``, of Gram matrices: R R^T = G to rounding."""
    xp, n = _xp.of(g), g.shape[-1]
    if n > d:
        values, vectors = xp.linalg.eigh(g)
        return vectors[..., -d:] * xp.sqrt(xp.maximum(values[..., None, -d:], 0.0))
    # Cholesky, column by column for the whole batch, the token with most left to explain first:
    # once that is rounding so is all the rest, and nothing small was ever divided by something
    # smaller (tokens about to merge make G singular, layer after layer).
    root, left = xp.zeros_like(g), _xp.diagonal(g) + 0
    tiny = 8 * n * float(np.finfo(_xp.precision(g)).eps)
    for j in range(n):
        pivot = xp.argmax(left, axis=-1)
        most, known = _xp.largest(left), root[:, :, :j]
        column = _xp.pick(g.mT, pivot) - _xp.dot(known, _xp.pick(known, pivot)[:, None, :])
        column = _xp.put_each(column, pivot, most)
        column *= (1 / xp.sqrt(xp.where(most > tiny, most, math.inf)))[:, None]
        root = _xp.put(root, (..., j), column)
        left -= column**2
        left = _xp.put_each(left, pivot, 0.0)
    return root


def _gram(value: ArrayLike, d: int) -> Array:
    g = _check.array(value, "gram0")
    if g.ndim < 2 or g.shape[-1] != g.shape[-2] or g.shape[-1] < 1:
        raise ValueError(f"gram0 must have shape (..., n, n) with n >= 1, got shape {(*g.shape,)}")
    if 0 in g.shape:
        return g
    xp, tolerance = _xp.of(g), _check.UNIT_TOLERANCE[_xp.precision(g)]
    diagonal = float(xp.max(xp.abs(_xp.diagonal(g) - 1)))
    if diagonal > tolerance:
        raise ValueError(
            f"gram0 must have ones on its diagonal (to {tolerance:g}), got {1 + diagonal:.6g}"
        )
    skew = float(xp.max(xp.abs(g - g.mT)))
    if skew > tolerance:
        raise ValueError(f"gram0 must be symmetric (to {tolerance:g}), it is off by {skew:.3g}")
    values = _xp.to_numpy(xp.linalg.eigvalsh(g))
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
    w = _xp.exp(beta * (g - 1))
    w /= _xp.total(w, keepdims=True)
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
    xp = _xp.of(y)
    r = xp.linalg.qr(y.mT, mode="r") if xp is np else xp.linalg.qr(y.mT)[1]
    return r.mT @ _draw(y.shape, "gaussian", y, rng)


def _with_whole_matrix(y: Array, entries: Entries, rng: np.random.Generator) -> Array:
    d = y.shape[-1]

    def moved(some: Array) -> Array:
        return some @ _draw((some.shape[0], d, d), entries, y, rng).mT

    return _xp.join((moved(some) for some in _xp.cut(y, _BLOCK // d**2)), y)


def _independent(y: Array, entries: Entries, rng: np.random.Generator) -> Array:
    """V_i y_i with a V_i for every token."""
    d = y.shape[-1]
    if entries == "gaussian":
        length = _xp.of(y).linalg.vector_norm(y, axis=-1, keepdims=True)
        return length * _draw(y.shape, entries, y, rng)

    def moved(some: Array) -> Array:
        return (_draw((some.shape[0], d, d), entries, y, rng) @ some[..., None])[..., 0]

    single = _xp.reshape(y, (math.prod(y.shape[:-1]), d))
    single = _xp.join((moved(some) for some in _xp.cut(single, _BLOCK // d**2)), single)
    return _xp.reshape(single, y.shape)


def _factor_is_faster(batch: int, n: int, d: int) -> bool:
    """Where, as measured, QR factorisations cost less than the d^2 - n d normals they save."""
    few = 8 * n <= (3 * d if d >= 12 else 2 * d)
    return d >= 8 and few and batch * d * (d - n) >= 3000


def _draw(shape: tuple[int, ...], entries: Entries, like: Array, rng: np.random.Generator) -> Array:
    """Entries of mean 0 and variance 1, drawn on the host: the same in every library."""
    dtype = _xp.precision(like)
    if entries == "gaussian":
        draws = rng.standard_normal(shape, dtype=dtype.type)
    elif entries == "rademacher":
        draws = (2 * rng.integers(0, 2, shape, dtype=np.int8) - 1).astype(dtype)
    else:
        draws = math.sqrt(12) * (rng.random(shape, dtype=dtype.type) - 0.5)
    return _xp.beside(draws, like)


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
        xp, (batch, n, _) = _xp.of(x), x.shape
        g = xp.abs(x @ x.mT) * (1 - _identity(n, x))
        close = xp.any(g > 1 - (_NEAR if xp is np else _FOREIGN_NEAR), axis=(1, 2))
        source = np.tile(np.arange(n), (batch, 1))
        sign = np.ones((batch, n), _xp.precision(x))
        for b in np.flatnonzero(_xp.to_numpy(close)):
            source[b], sign[b] = _tied(_xp.to_numpy(x[int(b), ...]) + 0)
        if (source == np.arange(n)).all():
            return None
        return cls(_xp.beside(source[..., None], x), _xp.beside(sign[..., None], x))

    def restore(self, x: Array) -> Array:
        return self.sign * _xp.of(x).take_along_axis(x, self.source, axis=1)


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
