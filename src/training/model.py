r"""The Transformer: images as tokens on the sphere, random value matrices, a linear reading.

A patch $p_i$ becomes a token by $x_i = N(E p_i + q_i)$, with $N(v) = v/|v|$ and learned places
$q_i$. A layer of the *paper's model* (keys and queries fixed at $\sqrt\beta I$) is
$$x_i \leftarrow N\bigl(x_i + L^{-1/2}\, V_\ell y_i\bigr),\qquad
  y_i = \sum_j A_{ij} x_j,\quad A_{ij} \propto e^{\beta\langle x_i, x_j\rangle}.$$
The *usual model* learns keys and queries, $A_{ij} \propto e^{\sqrt d\langle Q x_i, K x_j\rangle}$,
and adds a feed-forward half-layer,
$x_i \leftarrow N(x_i + L^{-1/2} d^{-1/2} G\,\phi(\sqrt d F x_i))$ with $\phi$ = GELU.
The class is read from the mean of the last tokens, $\sqrt d H \bar x + b$.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array


class Layers(eqx.Module):
    """The matrices of all layers, stacked: ``(L, ...)``; ``(1, ...)`` where layers share them."""

    values: Array  # V (L, d, d)
    queries: Array | None = None  # Q (L, d, d)
    keys: Array | None = None  # K (L, d, d)
    rise: Array | None = None  # F (L, 2d, d)
    fall: Array | None = None  # G (L, d, 2d)


class Transformer(eqx.Module):
    """A Transformer of ``depth`` layers at inverse temperature ``beta``."""

    embedding: Array  # E (d, pixels of a patch)
    places: Array  # q (tokens, d)
    layers: Layers
    head: Array  # H (classes, d)
    bias: Array  # b (classes,)
    depth: int = eqx.field(static=True)
    beta: float = eqx.field(static=True)

    def tokens(self, patches: Array) -> Array:
        """Patches ``(..., tokens, pixels)`` to the last layer's tokens ``(..., tokens, d)``."""
        x = normalize(patches @ self.embedding.T + self.places)
        layers = jax.tree.map(
            lambda m: jnp.broadcast_to(m, (self.depth, *m.shape[1:])), self.layers
        )
        x, _ = jax.lax.scan(lambda x, layer: (self._layer(x, layer), None), x, layers)
        return x

    def __call__(self, patches: Array) -> Array:
        """Patches ``(..., tokens, pixels)`` to logits ``(..., classes)``."""
        mean = self.tokens(patches).mean(axis=-2)
        return jnp.sqrt(mean.shape[-1]) * mean @ self.head.T + self.bias

    def _layer(self, x: Array, layer: Layers) -> Array:
        step, root = self.depth**-0.5, x.shape[-1] ** 0.5
        if layer.queries is None or layer.keys is None:
            overlap = jnp.einsum("...id,...jd->...ij", x, x)
            weights = jnp.exp(self.beta * (overlap - 1))  # at most 1, and never all small
            weights = weights / weights.sum(axis=-1, keepdims=True)
        else:
            pairs = x @ layer.queries.T, x @ layer.keys.T
            weights = jax.nn.softmax(root * jnp.einsum("...id,...jd->...ij", *pairs), axis=-1)
        y = weights @ x
        x = normalize(x + step * y @ layer.values.T)
        if layer.rise is not None and layer.fall is not None:
            hidden = jax.nn.gelu(root * x @ layer.rise.T)
            x = normalize(x + step / root * hidden @ layer.fall.T)
        return x


def normalize(x: Array) -> Array:
    """Divide rows by their length."""
    return x * jax.lax.rsqrt((x * x).sum(axis=-1, keepdims=True))


def loss(model: Transformer, patches: Array, labels: Array) -> Array:
    """Mean cross-entropy of the classes."""
    return optax.softmax_cross_entropy_with_integer_labels(model(patches), labels).mean()
