"""Training: every step of a run in one compiled call.

A run has a seed, which fixes its initial matrices and its batches, and a learning rate. The
split of the images is the same for all, so protocols are compared seed by seed, image by image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from training import data
from training.model import Transformer, loss
from training.protocols import Protocol, Shape, build


@dataclass(frozen=True)
class Budget:
    """How long to train, and on how many images.

    Adam's rate falls to zero along half a cosine. Accuracies are taken every ``every`` epochs.
    ``split`` is the seed of the split.
    """

    epochs: int
    every: int
    batch: int = 25
    train: int = 1000
    validation: int = 300
    test: int = 497
    split: int = 2026

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.every < 1 or self.epochs % self.every:
            raise ValueError(f"every must divide epochs, got {self.every} and {self.epochs}")
        if self.batch < 1 or self.train % self.batch:
            raise ValueError(f"batch must divide train, got {self.batch} and {self.train}")


class Curves(NamedTuple):
    """What was seen during training, ``(epochs / every,)`` each."""

    loss: Array  # mean training loss since the last look
    validation: Array  # accuracy
    test: Array  # accuracy


class Run(NamedTuple):
    """A model before and after training."""

    first: Transformer
    last: Transformer
    curves: Curves


def start(shape: Shape, protocol: Protocol, seed: int) -> Transformer:
    """Initialise the model of a seed."""
    return build(shape, protocol, jax.random.fold_in(jax.random.key(seed), 0))


def train(
    images: data.Images,
    first: Transformer,
    budget: Budget,
    *,
    seed: int,
    rate: float,
    frozen: bool = False,
) -> Run:
    """Train a model with Adam; the seed is that of the batches. ``frozen`` keeps the layers."""
    key = jax.random.fold_in(jax.random.key(seed), 1)
    parts = split(images, budget)
    last, curves = _train(first, arrays(images), parts, jnp.float32(rate), key, budget, frozen)
    return Run(first, last, curves)


def arrays(images: data.Images) -> tuple[Array, Array]:
    """Return patches and labels for jax."""
    return jnp.asarray(images.patches), jnp.asarray(images.labels)


def split(images: data.Images, budget: Budget) -> data.Split:
    """Return the budget's split of the images."""
    return data.split(
        len(images.labels),
        budget.split,
        train=budget.train,
        validation=budget.validation,
        test=budget.test,
    )


def right(model: Transformer, images: tuple[Array, Array], chosen: ArrayLike) -> Array:
    """Whether each chosen image's class has the largest logit: ``(images,)``."""
    chosen = jnp.asarray(chosen)
    return model(images[0][chosen]).argmax(axis=-1) == images[1][chosen]


@eqx.filter_jit
def _train(
    model: Transformer,
    images: tuple[Array, Array],
    split: data.Split,
    rate: Array,
    key: Array,
    budget: Budget,
    frozen: bool,
) -> tuple[Transformer, Curves]:
    steps = budget.train // budget.batch
    fall = optax.cosine_decay_schedule(1.0, budget.epochs * steps)
    optimiser = optax.adam(lambda count: rate * fall(count))

    def thaw(model: Transformer) -> Transformer:
        if not frozen:
            return model
        return eqx.tree_at(lambda m: m.layers, model, jax.lax.stop_gradient(model.layers))

    def step(carry: Any, chosen: Array) -> Any:
        model, state = carry
        batch = images[0][chosen], images[1][chosen]
        value, slope = jax.value_and_grad(lambda m: loss(thaw(m), *batch))(model)
        change, state = optimiser.update(slope, state)
        return (optax.apply_updates(model, change), state), value

    def epoch(carry: Any, key: Array) -> Any:
        order = jax.random.permutation(key, jnp.asarray(split.train))
        return jax.lax.scan(step, carry, order.reshape(steps, budget.batch))

    def look(carry: Any, keys: Array) -> Any:
        carry, losses = jax.lax.scan(epoch, carry, keys)
        seen = [right(carry[0], images, part).mean() for part in (split.validation, split.test)]
        return carry, Curves(losses.mean(), *seen)

    keys = jax.random.split(key, budget.epochs).reshape(-1, budget.every)
    (model, _), curves = jax.lax.scan(look, (model, optimiser.init(model)), keys)
    return model, curves
