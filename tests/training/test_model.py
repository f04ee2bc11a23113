import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.special import erf

from training.model import loss
from training.protocols import REFERENCE, TIED, Shape, build

PATCHES = np.random.default_rng(3).standard_normal((2, 5, 3))


def make(model="paper", protocol=REFERENCE, **sizes):
    sizes = {"depth": 3, "width": 4, "beta": 1.7, "tokens": 5, "pixels": 3, "classes": 6} | sizes
    return build(Shape(model=model, **sizes), protocol, jax.random.key(1))


def by_hand(model, patches):
    """The logits of one image, token by token, in plain NumPy."""
    model = jax.tree.map(np.asarray, model)
    layers, depth = model.layers, model.depth
    x = [model.embedding @ p + q for p, q in zip(patches, model.places)]
    x = [v / np.linalg.norm(v) for v in x]
    d = len(x[0])
    for step in range(depth):
        at = step if len(layers.values) == depth else 0
        moved = []
        for one in x:
            if layers.queries is None:
                score = [model.beta * one @ other for other in x]
            else:
                q = layers.queries[at] @ one
                score = [np.sqrt(d) * q @ (layers.keys[at] @ other) for other in x]
            weight = np.exp(score) / np.exp(score).sum()
            y = sum(w * other for w, other in zip(weight, x))
            v = one + layers.values[at] @ y / np.sqrt(depth)
            v = v / np.linalg.norm(v)
            if layers.rise is not None:
                h = layers.rise[at] @ (np.sqrt(d) * v)
                h = h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))) / 2
                v = v + layers.fall[at] @ h / np.sqrt(depth * d)
                v = v / np.linalg.norm(v)
            moved.append(v)
        x = moved
    return np.sqrt(d) * model.head @ (sum(x) / len(x)) + model.bias


@pytest.mark.parametrize("kind", ["paper", "usual"])
@pytest.mark.parametrize("protocol", [REFERENCE, TIED])
def test_the_model_is_its_formula(kind, protocol):
    model = make(kind, protocol)
    found = eqx.filter_jit(model)(jnp.asarray(PATCHES))
    for logits, patches in zip(found, PATCHES):
        np.testing.assert_allclose(logits, by_hand(model, patches), rtol=2e-5, atol=2e-6)


def test_gelu_is_the_gelu():
    x = jnp.linspace(-3, 3, 7)
    exact = np.asarray(x) * (1 + erf(np.asarray(x) / np.sqrt(2))) / 2
    np.testing.assert_allclose(jax.nn.gelu(x), exact, atol=2e-3)


def test_tokens_are_unit_vectors_at_any_temperature():
    for beta in (0.0, 1.0, 500.0):
        x = make(beta=beta).tokens(jnp.asarray(PATCHES))
        np.testing.assert_allclose((x * x).sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["paper", "usual"])
def test_gradients_agree_with_finite_differences(kind):
    with jax.enable_x64(True):
        model = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), make(kind, depth=2))
        arrays, rest = eqx.partition(model, eqx.is_array)
        labels = jnp.array([4, 1])

        @jax.jit
        def f(arrays):
            return loss(eqx.combine(arrays, rest), jnp.asarray(PATCHES), labels)

        assert f(arrays).dtype == jnp.float64
        check_grads(f, (arrays,), order=1, modes=["rev"], atol=1e-8, rtol=1e-7, eps=1e-5)
