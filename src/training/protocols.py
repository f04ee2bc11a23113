r"""What "suppressing the noise" may mean: formulas for the layers' matrices at initialisation.

$W_\ell$ are independent with independent centred normal entries of the standard variance 1/d
(one over the number of columns), $\bar W$ is their mean over layers, $W$ is one more such matrix.

=========  =============================================  =================================
rule       $V_\ell$ at initialisation                     what it suppresses
=========  =============================================  =================================
scaled     $\eta W_\ell$                                  the amplitude (the horizon is η²/d)
mean       $\bar W + \eta (W_\ell - \bar W)$              the deviation between layers
mixed      $\sqrt{1-\eta^2}\, W + \eta W_\ell$            the freshness; same law of each layer
identity   $I$                                            all of it
=========  =============================================  =================================

``tied`` makes all layers share one set of matrices throughout training, not only at its start;
``frozen`` keeps the layers as they are and trains only the embedding, the places and the head.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from training.model import Layers, Transformer

RULES = ("scaled", "mean", "mixed", "identity")
MODELS = ("paper", "usual")


@dataclass(frozen=True)
class Protocol:
    """A rule with its strength; the reference is ``Protocol("scaled", 1.0)``."""

    rule: str
    eta: float = 1.0
    tied: bool = False
    frozen: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        if not 0 <= self.eta < float("inf"):
            raise ValueError(f"eta must be a finite number >= 0, got {self.eta}")
        if self.rule == "mixed" and self.eta > 1:
            raise ValueError(f"eta must be at most 1 where rule is 'mixed', got {self.eta}")
        if self.tied and (self.rule, self.eta) != ("mixed", 0.0):
            raise ValueError("tied layers start equal: it needs rule 'mixed' with eta 0")


REFERENCE = Protocol("scaled")
SILENT = Protocol("scaled", 0.0)
SHARED = Protocol("mixed", 0.0)
TIED = Protocol("mixed", 0.0, tied=True)
IDENTITY = Protocol("identity")


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; ``model`` is ``"paper"`` or ``"usual"``."""

    model: str = "paper"
    depth: int = 8
    width: int = 32
    beta: float = 1.0
    tokens: int = 16
    pixels: int = 4
    classes: int = 10

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.depth < 1 or self.width < 2:
            raise ValueError(f"depth >= 1 and width >= 2, got {self.depth} and {self.width}")


def build(shape: Shape, protocol: Protocol, key: Array) -> Transformer:
    """Initialise a model. Embedding, places and head depend on ``key`` alone, not on the protocol.

    In the usual model the rule acts on the two matrices that write into the tokens, V and G
    (``identity`` puts G = 0); with ``mixed`` it acts on all, so that with η = 0 layers are equal.
    """
    keys = jax.random.split(key, 9)
    d = shape.width
    rest = protocol if protocol.rule == "mixed" else REFERENCE

    def stack(i: int, rows: int, columns: int, protocol: Protocol) -> Array:
        return matrices(protocol, shape.depth, rows, columns, keys[i])

    layers = Layers(values=stack(0, d, d, protocol))
    if shape.model == "usual":
        layers = Layers(
            values=layers.values,
            queries=stack(1, d, d, rest),
            keys=stack(2, d, d, rest),
            rise=stack(3, 2 * d, d, rest),
            fall=stack(4, d, 2 * d, protocol),
        )
    return Transformer(
        embedding=jax.random.normal(keys[5], (d, shape.pixels)) / shape.pixels**0.5,
        places=jax.random.normal(keys[6], (shape.tokens, d)),
        layers=layers,
        head=jax.random.normal(keys[7], (shape.classes, d)) / d**0.5,
        bias=jnp.zeros(shape.classes),
        depth=shape.depth,
        beta=shape.beta,
    )


def matrices(protocol: Protocol, depth: int, rows: int, columns: int, key: Array) -> Array:
    """Draw ``(depth, rows, columns)`` matrices by the rule; ``(1, rows, columns)`` if tied."""
    fresh, common = jax.random.split(key)
    w = jax.random.normal(fresh, (depth, rows, columns)) / columns**0.5
    eta = protocol.eta
    if protocol.rule == "identity":
        square = jnp.eye(rows) if rows == columns else jnp.zeros((rows, columns))
        return jnp.broadcast_to(square, w.shape)
    if protocol.rule == "mean":
        mean = w.mean(axis=0)
        return mean + eta * (w - mean)
    if protocol.rule == "mixed":
        one = jax.random.normal(common, (rows, columns)) / columns**0.5
        mixed = (1 - eta**2) ** 0.5 * one + eta * w
        return mixed[:1] if protocol.tied else mixed
    return eta * w
