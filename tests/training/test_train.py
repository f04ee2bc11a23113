from dataclasses import replace

import jax
import numpy as np
import pytest

from training import data, train
from training.protocols import REFERENCE, SILENT, TIED, Shape

IMAGES = data.digits()
SHAPE = Shape(depth=2, width=8)
BUDGET = train.Budget(epochs=6, every=3, batch=25, train=500)


def fit(images=IMAGES, protocol=REFERENCE, seed=1, rate=0.03, **options):
    first = train.start(SHAPE, protocol, seed)
    return train.train(images, first, BUDGET, seed=seed, rate=rate, **options)


@pytest.fixture(scope="module")
def run():
    return fit()


def test_a_run_learns(run):
    assert run.curves.loss.shape == run.curves.test.shape == (2,)
    assert run.curves.loss[1] < run.curves.loss[0] < 2.3
    assert run.curves.test[1] > 0.3


def test_the_same_seed_gives_the_same_run(run):
    again, other = fit(), fit(seed=2)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(run), jax.tree.leaves(again)))
    assert (run.curves.loss != other.curves.loss).all()


def test_the_last_accuracy_is_that_of_the_last_model(run):
    parts = train.split(IMAGES, BUDGET)
    for part, curve in ((parts.validation, run.curves.validation), (parts.test, run.curves.test)):
        logits = run.last(IMAGES.patches[part])
        found = (np.asarray(logits).argmax(axis=1) == IMAGES.labels[part]).mean()
        assert found == pytest.approx(float(curve[-1]), abs=1e-6)


def test_nothing_is_learned_from_shuffled_labels():
    # Of all the labels, so those of the test images are independent of the training set.
    curves = fit(data.shuffled(IMAGES, 5)).curves
    assert abs(float(curves.test[-1]) - 0.1) < 3.5 * (0.1 * 0.9 / BUDGET.test) ** 0.5
    assert curves.loss[-1] > 2.1


def test_only_the_training_images_matter_for_the_model(run):
    parts = train.split(IMAGES, BUDGET)
    labels = IMAGES.labels.copy()
    labels[np.concatenate([parts.validation, parts.test])] = 0
    other = fit(replace(IMAGES, labels=labels))
    assert all((a == b).all() for a, b in zip(*map(jax.tree.leaves, (run.last, other.last))))


def test_frozen_layers_stay_and_the_rest_moves():
    run = fit(protocol=TIED, frozen=True)
    assert run.last.layers.values.shape == (1, 8, 8)
    assert (run.first.layers.values == run.last.layers.values).all()
    for name in ("embedding", "places", "head", "bias"):
        assert (getattr(run.first, name) != getattr(run.last, name)).any()


def test_silent_layers_learn():
    run = fit(protocol=SILENT)
    assert not run.first.layers.values.any()
    assert (run.last.layers.values != 0).all()


def test_a_budget_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="every must divide epochs, got 4 and 6"):
        replace(BUDGET, every=4)
    with pytest.raises(ValueError, match="batch must divide train, got 30 and 500"):
        replace(BUDGET, batch=30)
