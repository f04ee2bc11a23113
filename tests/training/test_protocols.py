import jax
import numpy as np
import pytest

from training.protocols import (
    IDENTITY,
    REFERENCE,
    SHARED,
    SILENT,
    TIED,
    Protocol,
    Shape,
    build,
    matrices,
)

L, D = 50, 40


def draw(protocol, rows=D, columns=D, seed=1):
    return np.asarray(matrices(protocol, L, rows, columns, jax.random.key(seed)))


def test_the_reference_has_independent_entries_of_the_standard_variance():
    w = draw(REFERENCE, 2 * D, D)
    size = w.size
    assert w.shape == (L, 2 * D, D)
    assert abs(w.mean()) < 5 * (1 / D / size) ** 0.5
    assert abs(w.var() * D - 1) < 5 * (2 / size) ** 0.5
    assert abs((w[1:] * w[:-1]).mean()) * D < 5 * size**-0.5


def test_scaled_multiplies_the_reference():
    np.testing.assert_allclose(draw(Protocol("scaled", 0.3)), 0.3 * draw(REFERENCE), rtol=1e-6)
    assert not draw(SILENT).any()


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_mean_shrinks_the_deviation_from_the_mean_over_layers(eta):
    w, v = draw(REFERENCE), draw(Protocol("mean", eta))
    np.testing.assert_allclose(v.mean(axis=0), w.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(v - v.mean(axis=0), eta * (w - w.mean(axis=0)), atol=1e-6)


@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0])
def test_mixed_keeps_the_law_of_a_layer_and_correlates_the_layers(eta):
    v = draw(Protocol("mixed", eta))
    assert abs(v.var() * D - 1) < 5 * (2 / D**2) ** 0.5
    correlation = (v[1:] * v[:-1]).mean() * D
    assert abs(correlation - (1 - eta**2)) < 5 * (2 / D**2) ** 0.5


def test_shared_layers_are_equal_tied_ones_are_one():
    shared, tied = draw(SHARED), draw(TIED)
    assert (shared == shared[0]).all()
    assert tied.shape == (1, D, D)
    assert (tied[0] == shared[0]).all()
    assert (draw(IDENTITY) == np.eye(D)).all()


def test_protocols_differ_in_the_layers_alone():
    key = jax.random.key(3)
    a, b = (build(Shape(), protocol, key) for protocol in (REFERENCE, IDENTITY))
    for name in ("embedding", "places", "head", "bias"):
        assert (getattr(a, name) == getattr(b, name)).all()
    assert a.head.shape == (10, 32)


def test_in_the_usual_model_the_rule_acts_on_what_writes_into_the_tokens():
    key, shape = jax.random.key(3), Shape(model="usual", depth=4)
    a, silent, shared, identity = (
        build(shape, p, key).layers for p in (REFERENCE, SILENT, SHARED, IDENTITY)
    )
    for layers in (silent, identity):
        assert not layers.fall.any()
        for name in ("queries", "keys", "rise"):
            assert (getattr(layers, name) == getattr(a, name)).all()
    assert not silent.values.any()
    assert all((m == m[0]).all() for m in jax.tree.leaves(shared))
    assert a.rise.shape == (4, 64, 32)
    assert abs(float(a.fall.std()) * 8 - 1) < 0.05  # 64 columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Scaled",), "rule must be one of .*, got 'Scaled'"),
        (("scaled", -0.1), "eta must be a finite number >= 0, got -0.1"),
        (("scaled", float("nan")), "eta must be"),
        (("mixed", 1.1), "eta must be at most 1"),
        (("scaled", 1.0, True), "tied layers start equal"),
    ],
)
def test_senseless_protocols_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Protocol(*arguments)


def test_senseless_shapes_are_refused():
    with pytest.raises(ValueError, match="model must be one of paper, usual, got 'small'"):
        Shape(model="small")
    with pytest.raises(ValueError, match="got 0 and 32"):
        Shape(depth=0)
