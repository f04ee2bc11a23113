"""What the benchmarks compare with does the same work: else their ratios say nothing."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tokensphere import attention, circle, globe, sphere, two_tokens

FILE = Path(__file__).parents[2] / "benchmarks" / "alternatives.py"


@pytest.fixture(scope="module")
def alternatives():
    spec = importlib.util.spec_from_file_location("alternatives", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plain_pairs(alternatives):
    theta = np.random.default_rng(1).uniform(-np.pi, np.pi, 300)
    exact = circle.velocity(theta, 5.0)
    np.testing.assert_allclose(alternatives.plain_pairs(theta, 5.0), exact, atol=1e-11)
    np.testing.assert_allclose(alternatives.plain_pairs(theta, 5.0, 17), exact[:17], atol=1e-11)


def test_dense_solve_ivp(alternatives):
    theta = np.random.default_rng(1).uniform(-np.pi, np.pi, 60)
    end = circle.solve(theta, 5.0, [0, 0.1], rtol=1e-9).angles[-1]
    np.testing.assert_allclose(
        alternatives.dense_solve_ivp(theta, 5.0, 0.1, 1e-9), end, rtol=0, atol=1e-6
    )


def test_bare_transforms_have_the_sizes_of_ours(alternatives):
    theta = np.random.default_rng(1).uniform(-np.pi, np.pi, 3000)
    modes = circle._coefficients(5.0)[0].size
    assert alternatives.two_circle_transforms(theta, modes)().shape == theta.shape
    x = sphere.uniform(500, 3, rng=np.random.default_rng(1))
    degree = globe._multiplier(5.0).size - 1
    assert alternatives.two_sphere_transforms(x, degree, 1e-14)().shape == (2, 500)


def test_products_and_draws_have_the_shapes_of_ours(alternatives):
    rng = np.random.default_rng(1)
    x = sphere.uniform(5, 3, batch=(4,), rng=rng)
    assert alternatives.product_and_exponential(x[0]).shape == attention.velocity(x[0], 1.0).shape
    assert alternatives.layer_draws_and_products(x, 2, rng).shape == x.shape
    assert alternatives.step_draws_and_products(x, 2, rng).shape == x.shape


def test_diffrax_solves_the_same_equation(alternatives):
    """Mean overlap of a pair: exact value within four standard errors and Heun's own error."""
    d, beta, horizon, paths = 3, 1.0, 0.2, 5000
    ends = alternatives.diffrax_paths(alternatives.pair(0.3, d), beta, horizon, 16, paths)()
    overlap = (ends[:, 0] * ends[:, 1]).sum(axis=-1)
    exact = two_tokens.expected_overlap(0.3, horizon, beta, d)
    assert ends.dtype == np.float64
    assert abs(overlap.mean() - exact) < 4 * overlap.std() / paths**0.5 + 0.004
    assert abs(0.3 - exact) > 0.02  # something happened
