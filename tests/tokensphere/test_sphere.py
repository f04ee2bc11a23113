"""Drawing tokens, projecting, angles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tokensphere import sphere

EPS = np.finfo(float).eps


@pytest.mark.parametrize(("n", "d", "batch"), [(1, 2, ()), (5, 3, (4,)), (2, 1024, (2, 3))])
def test_uniform_shape_norm_dtype(n, d, batch):
    x = sphere.uniform(n, d, rng=np.random.default_rng(3), batch=batch)
    assert x.shape == (*batch, n, d)
    assert x.dtype == np.float64
    assert np.abs(np.linalg.norm(x, axis=-1) - 1).max() < 4 * EPS
    small = sphere.uniform(n, d, rng=np.random.default_rng(3), batch=batch, dtype=np.float32)
    assert small.dtype == np.float32
    # float32 rounds the same draws: dtype changes precision, not the sample
    assert np.abs(small - x).max() < 1e-7


def test_uniform_depends_on_the_generator_only():
    first = sphere.uniform(7, 3, rng=np.random.default_rng(5))
    np.random.seed(0)  # noqa: NPY002  the global state must not matter
    again = sphere.uniform(7, 3, rng=np.random.default_rng(5))
    other = sphere.uniform(7, 3, rng=np.random.default_rng(6))
    assert (first == again).all()
    assert not (first == other).any()


@pytest.mark.parametrize("d", [2, 3, 4, 8, 100])
def test_uniform_has_the_law_of_the_sphere(d):
    """A coordinate t of a uniform point has (1+t)/2 ~ Beta((d-1)/2, (d-1)/2), in any direction."""
    x = sphere.uniform(20_000, d, rng=np.random.default_rng(d))
    direction = np.ones(d) / np.sqrt(d)
    for t in (x[:, 0], x[:, -1], x @ direction):
        p = stats.kstest((1 + t) / 2, stats.beta((d - 1) / 2, (d - 1) / 2).cdf).pvalue
        assert p > 1e-4
    # tokens are independent: <x_i, x_{i+1}> has the law of a coordinate too
    overlap = (x[0::2] * x[1::2]).sum(axis=-1)
    p = stats.kstest((1 + overlap) / 2, stats.beta((d - 1) / 2, (d - 1) / 2).cdf).pvalue
    assert p > 1e-4


def test_normalize_values_and_scale():
    np.testing.assert_array_equal(sphere.normalize([[3.0, 4.0]]), [[0.6, 0.8]])
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((6, 4, 5))
    unit = sphere.normalize(rows)
    expected = rows / np.sqrt((rows**2).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(unit, expected, rtol=4 * EPS)
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(sphere.normalize(rows * scale), unit, rtol=1e-13)
    assert sphere.normalize(rows.astype(np.float32)).dtype == np.float32
    assert sphere.normalize(rows[0, 0]).shape == (5,)


def test_normalize_refuses_a_zero_row():
    with pytest.raises(ValueError, match=r"x .*zero"):
        sphere.normalize([[1.0, 0.0], [0.0, 0.0]])


def test_tangent_is_the_projection():
    rng = np.random.default_rng(2)
    x = sphere.uniform(6, 4, rng=rng, batch=(3,))
    v = rng.standard_normal((3, 6, 4))
    w = sphere.tangent(x, v)
    for b in range(3):
        for i in range(6):
            projector = np.eye(4) - np.outer(x[b, i], x[b, i])
            np.testing.assert_allclose(w[b, i], projector @ v[b, i], atol=8 * EPS)
    assert np.abs((w * x).sum(axis=-1)).max() < 8 * EPS
    np.testing.assert_allclose(sphere.tangent(x, w), w, atol=8 * EPS)
    np.testing.assert_allclose(sphere.tangent(x, x), 0, atol=8 * EPS)
    assert sphere.tangent(x.astype(np.float32), v.astype(np.float32)).dtype == np.float32


def test_angles_run_counterclockwise_from_the_first_axis():
    x = sphere.from_angles([0.0, np.pi / 2, np.pi, -np.pi / 2])
    np.testing.assert_allclose(x, [[1, 0], [0, 1], [-1, 0], [0, -1]], atol=EPS)
    assert sphere.to_angles([[-1.0, 0.0]])[0] == np.pi
    assert sphere.from_angles(np.zeros((3, 5), np.float32)).shape == (3, 5, 2)
    assert sphere.from_angles(np.zeros(5, np.float32)).dtype == np.float32


@given(st.lists(st.floats(-3.14, 3.14), min_size=1, max_size=8))
def test_angles_round_trip(theta):
    back = sphere.to_angles(sphere.from_angles(theta))
    assert np.abs(back - theta).max() < 4 * EPS * np.pi


@given(st.integers(2, 1024), st.integers(1, 5), st.integers(0, 2**32))
def test_projection_never_leaves_the_tangent_plane(d, n, seed):
    rng = np.random.default_rng(seed)
    x = sphere.uniform(n, d, rng=rng)
    v = rng.standard_normal((n, d))
    w = sphere.tangent(x, v)
    assert np.abs((w * x).sum(axis=-1)).max() <= 8 * EPS * np.linalg.norm(v, axis=-1).max()
    assert (np.linalg.norm(w, axis=-1) <= np.linalg.norm(v, axis=-1) * (1 + 4 * EPS)).all()
