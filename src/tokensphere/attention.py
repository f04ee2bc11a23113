r"""Self-attention as a velocity field on the sphere, and its energy.

Two models (Geshkovski, Letrouit, Polyanskiy, Rigollet, arXiv 2312.10794), with
$P_x v = v - \langle x, v\rangle x$:

* ``"softmax"`` (SA): $\dot x_i = P_{x_i} \sum_j A_{ij} x_j$,
  $A_{ij} = e^{\beta\langle x_i,x_j\rangle} / \sum_k e^{\beta\langle x_i,x_k\rangle}$;
* ``"unnormalized"`` (USA):
  $\dot x_i = P_{x_i} \frac1n \sum_j e^{\beta\langle x_i,x_j\rangle} x_j$.

Inside, only $e^{\beta(\langle x_i,x_j\rangle - 1)} \le 1$ is ever formed. For SA the factor
$e^\beta$ cancels, so any $\beta$ works; for USA it is a unit of time and is put back at the end,
which float64 allows up to $\beta = 700$ and float32 up to $\beta = 85$.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from tokensphere import _check, _xp
from tokensphere._check import Array, Kind
from tokensphere.sphere import _tangent

#: entries of a block of the n × n weight matrix: 512 KiB of float64, so that it stays in cache;
#: in other libraries than NumPy enough for a GPU to be busy, which is 128 MiB of float64
_BLOCK, _FOREIGN_BLOCK = 2**16, 2**24
#: largest beta whose exponential is still a number, by floating type
_LARGEST_BETA = {np.dtype(np.float32): 85.0, np.dtype(np.float64): 700.0}


def weights(x: ArrayLike, beta: float) -> Array:
    r"""Attention weights $A_{ij}$, shape ``(..., n, n)``; every row sums to one.

    >>> weights([[1.0, 0.0], [0.0, 1.0]], beta=0.0)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    x, beta = _check.tokens(x), _check.beta(beta)
    w = _xp.exp(beta * (x @ x.mT - 1))
    return w / _xp.total(w, keepdims=True)


def velocity(x: ArrayLike, beta: float, kind: Kind = "softmax") -> Array:
    r"""Velocity $\dot x$ of every token, shape ``(..., n, d)``, tangent to the sphere.

    Costs $O(n^2 d)$ time; the weight matrix of many tokens is never held whole, so memory
    is $O(nd)$.

    Args:
        x: tokens, shape ``(..., n, d)``; leading axes are independent systems.
        beta: inverse temperature, >= 0; for ``"unnormalized"`` at most 700 (float32: 85).
        kind: ``"softmax"`` (SA) or ``"unnormalized"`` (USA), see the module's head.
    """
    x, kind = _check.tokens(x), _check.kind(kind)
    return _velocity(x, usable_beta(beta, kind, _xp.precision(x)), kind)


def energy(x: ArrayLike, beta: float) -> Array:
    r"""Interaction energy $\frac{1}{2\beta n^2}\sum_{ij} e^{\beta\langle x_i,x_j\rangle}$.

    USA is its gradient ascent: $dE/dt = \frac1n\sum_i |\dot x_i|^2 \ge 0$.
    Shape ``(...)``. Needs $0 < \beta \le 700$ (float32: 85): at $\beta = 0$ it is infinite for all
    tokens alike, and below 2.2e-308 (float32: 1.2e-38) too large for a number.
    """
    x = _check.tokens(x)
    dtype = _xp.precision(x)
    smallest = float(np.finfo(dtype).tiny)
    beta = _check.number(beta, "beta", low=smallest, high=_LARGEST_BETA[dtype])
    _, mass = _sums(_xp.flat(x), beta)
    mean = _xp.reshape(_xp.of(x).mean(mass, axis=-1), x.shape[:-2]) / x.shape[-2]
    return float(np.exp(beta)) / (2 * beta) * mean


def usable_beta(beta: float, kind: Kind, dtype: np.dtype) -> float:
    """Check ``beta`` for a kind of attention: e^beta has to be a number where it is needed."""
    high = _LARGEST_BETA[dtype] if kind == "unnormalized" else np.inf
    return _check.number(beta, "beta", low=0.0, high=high)


def _velocity(x: Array, beta: float, kind: Kind) -> Array:
    """Evaluate the velocity of tokens that were checked before."""
    moment, mass = _sums(_xp.flat(x), beta)
    if kind == "softmax":
        moment /= mass[..., None]
    else:
        moment *= float(np.exp(beta)) / x.shape[-2]
    return _tangent(x, _xp.reshape(moment, x.shape))


def _sums(x: Array, beta: float) -> tuple[Array, Array]:
    r"""Return $\sum_j w_{ij} x_j$ and $\sum_j w_{ij}$.

    $w_{ij} = e^{\beta(\langle x_i,x_j\rangle - 1)}$; ``x`` is ``(batch, n, d)``. Each block of w
    serves its rows and, w being symmetric, its columns.
    """
    xp = _xp.of(x)
    moment, mass = xp.zeros_like(x), xp.zeros_like(x[..., 0])
    size = _BLOCK if xp is np else _FOREIGN_BLOCK
    for batch, rows, columns in _blocks(x.shape[0], x.shape[1], size):
        xi, xj = x[batch, rows, :], x[batch, columns, :]
        w = xi @ xj.mT
        w -= 1
        w *= beta
        w = _xp.exp(w)
        moment = _xp.add(moment, (batch, rows, ...), w @ xj)
        mass = _xp.add(mass, (batch, rows), _xp.total(w))
        if rows != columns:
            moment = _xp.add(moment, (batch, columns, ...), w.mT @ xi)
            mass = _xp.add(mass, (batch, columns), _xp.total(w, axis=-2))
    return moment, mass


def _blocks(batch: int, n: int, size: int) -> Iterator[tuple[slice, slice, slice]]:
    """Cover the upper triangle of every system's n × n matrix by blocks of at most ``size``."""
    parts = math.ceil(n / math.isqrt(size))
    edges = [n * i // parts for i in range(parts + 1)]  # of nearly equal lengths
    cuts = [slice(i, j) for i, j in itertools.pairwise(edges)]
    systems = max(1, size // math.ceil(n / parts) ** 2)
    for start in range(0, batch, systems):
        some = slice(start, min(start + systems, batch))
        for i, rows in enumerate(cuts):
            for columns in cuts[i:]:
                yield some, rows, columns
