"""Attention weights, velocities and the energy against sums written out plainly."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokensphere import attention, sphere

EPS = np.finfo(float).eps
KINDS = ("softmax", "unnormalized")


def plain_weights(x, beta):
    """A_ij = e^{beta <x_i, x_j>} / sum_k e^{beta <x_i, x_k>}, one entry at a time."""
    n = len(x)
    a = np.empty((n, n))
    for i in range(n):
        scores = [beta * math.fsum(x[i] * x[j]) for j in range(n)]
        terms = [math.exp(s - max(scores)) for s in scores]
        a[i] = [t / math.fsum(terms) for t in terms]
    return a


def plain_velocity(x, beta, kind):
    """P_{x_i} sum_j w_ij x_j with w_ij = A_ij, or e^{beta <x_i, x_j>} / n."""
    n, d = x.shape
    v = np.zeros((n, d))
    weights = plain_weights(x, beta) if kind == "softmax" else None
    for i in range(n):
        y = np.zeros(d)
        for j in range(n):
            w = math.exp(beta * math.fsum(x[i] * x[j])) / n if weights is None else weights[i, j]
            y += w * x[j]
        v[i] = y - math.fsum(x[i] * y) * x[i]
    return v


def plain_energy(x, beta):
    """(1 / 2 beta) n^{-2} sum_ij e^{beta <x_i, x_j>}."""
    n = len(x)
    total = math.fsum(math.exp(beta * math.fsum(x[i] * x[j])) for i in range(n) for j in range(n))
    return total / (2 * beta * n**2)


def rotation(d, rng):
    """An orthogonal matrix, reflections included."""
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


@pytest.mark.parametrize("beta", [0.0, 0.7, 5.0, 60.0])
@pytest.mark.parametrize(("n", "d"), [(1, 2), (2, 2), (7, 3), (5, 8), (23, 4)])
def test_against_plain_sums(n, d, beta):
    x = sphere.uniform(n, d, rng=np.random.default_rng(n * d))
    np.testing.assert_allclose(attention.weights(x, beta), plain_weights(x, beta), rtol=1e-13)
    for kind in KINDS:
        expected = plain_velocity(x, beta, kind)
        scale = 1.0 if kind == "softmax" else math.exp(beta)
        np.testing.assert_allclose(
            attention.velocity(x, beta, kind), expected, rtol=0, atol=2e-14 * scale
        )
    if beta:
        np.testing.assert_allclose(attention.energy(x, beta), plain_energy(x, beta), rtol=1e-13)


def test_softmax_is_the_default():
    x = sphere.uniform(6, 3, rng=np.random.default_rng(0))
    assert (attention.velocity(x, 2.0) == attention.velocity(x, 2.0, "softmax")).all()


def test_two_tokens_by_hand():
    """Two tokens at angle a on the circle: the whole motion is along the arc, towards the other."""
    a, beta = 1.1, 1.7
    x = sphere.from_angles([0.0, a])
    e = math.exp(beta), math.exp(beta * math.cos(a))
    np.testing.assert_allclose(
        attention.weights(x, beta), np.array([[e[0], e[1]], [e[1], e[0]]]) / sum(e), rtol=4 * EPS
    )
    towards = np.array([[0.0, 1.0], [math.sin(a), -math.cos(a)]])
    soft = e[1] / sum(e) * math.sin(a)
    hard = e[1] / 2 * math.sin(a)
    np.testing.assert_allclose(attention.velocity(x, beta), soft * towards, atol=1e-15)
    np.testing.assert_allclose(
        attention.velocity(x, beta, "unnormalized"), hard * towards, atol=1e-15
    )


def test_weights_rows_belong_to_the_moving_token():
    """Three tokens, two together: row i holds what token i looks at."""
    x = sphere.from_angles([0.0, 0.0, np.pi])
    w = attention.weights(x, 1.0)
    assert w[0, 2] == pytest.approx(math.exp(-1) / (2 * math.e + math.exp(-1)))
    assert w[2, 0] == pytest.approx(math.exp(-1) / (math.e + 2 * math.exp(-1)))
    np.testing.assert_allclose(w.sum(axis=-1), 1, rtol=4 * EPS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 1.0, 30.0])
def test_special_configurations_stand_still(kind, beta):
    scale = 1.0 if kind == "softmax" else math.exp(beta)
    e = np.zeros(5)
    e[0] = 1.0
    for x in (e[None], np.tile(e, (4, 1)), np.stack([e, -e]), np.stack([e, e, -e])):
        assert np.abs(attention.velocity(x, beta, kind)).max() <= 2 * EPS * scale
    # an orthonormal basis and its negative, a regular polygon: no direction is preferred
    cross = np.concatenate([np.eye(4), -np.eye(4)])
    assert np.abs(attention.velocity(cross, beta, kind)).max() <= 4 * EPS * scale
    polygon = sphere.from_angles(2 * np.pi * np.arange(5) / 5)
    assert np.abs(attention.velocity(polygon, beta, kind)).max() <= 8 * EPS * scale


def test_beta_zero_is_the_mean():
    x = sphere.uniform(9, 4, rng=np.random.default_rng(4))
    mean = x.mean(axis=0)
    expected = mean - (x @ mean)[:, None] * x
    for kind in KINDS:
        np.testing.assert_allclose(attention.velocity(x, 0.0, kind), expected, atol=4 * EPS)
    np.testing.assert_array_equal(attention.weights(x, 0.0), np.full((9, 9), 1 / 9))


@pytest.mark.parametrize("d", [2, 3, 1024])
def test_softmax_at_beta_ten_thousand(d):
    rng = np.random.default_rng(8)
    x = sphere.uniform(12, d, rng=rng)
    # close neighbours, so that the softmax is not just the identity
    x[6:] = sphere.normalize(x[:6] + 0.01 * rng.standard_normal((6, d)) / np.sqrt(d))
    beta = 1e4
    w, v = attention.weights(x, beta), attention.velocity(x, beta)
    expected = plain_weights(x, beta)
    assert expected[0, 6] > 1e-3
    # the scores are known to beta * eps only
    np.testing.assert_allclose(w, expected, atol=4 * beta * EPS)
    np.testing.assert_allclose(v, plain_velocity(x, beta, "softmax"), atol=4 * beta * EPS * 0.01)
    assert np.isfinite(v).all()


@pytest.mark.parametrize("kind", KINDS)
def test_many_dimensions(kind):
    x = sphere.uniform(6, 1024, rng=np.random.default_rng(9))
    np.testing.assert_allclose(
        attention.velocity(x, 3.0, kind), plain_velocity(x, 3.0, kind), atol=1e-14
    )


@pytest.mark.parametrize("kind", KINDS)
def test_equivariance_and_tangency(kind):
    rng = np.random.default_rng(10)
    x = sphere.uniform(11, 5, rng=rng)
    v = attention.velocity(x, 4.0, kind)
    q, p = rotation(5, rng), rng.permutation(11)
    scale = 1.0 if kind == "softmax" else math.exp(4.0)
    np.testing.assert_allclose(attention.velocity(x @ q.T, 4.0, kind), v @ q.T, atol=1e-14 * scale)
    np.testing.assert_allclose(attention.velocity(x[p], 4.0, kind), v[p], atol=1e-14 * scale)
    assert np.abs((v * x).sum(axis=-1)).max() < 1e-14 * scale
    np.testing.assert_allclose(attention.energy(x @ q.T, 4.0), attention.energy(x, 4.0), rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_doubling_every_token_changes_nothing(kind):
    """Both flows see the empirical measure only: the 1/n belongs there."""
    x = sphere.uniform(6, 3, rng=np.random.default_rng(11))
    twice = np.concatenate([x, x])
    v = attention.velocity(x, 2.0, kind)
    np.testing.assert_allclose(
        attention.velocity(twice, 2.0, kind), np.concatenate([v, v]), atol=1e-14
    )
    assert attention.energy(twice, 2.0) == pytest.approx(attention.energy(x, 2.0), rel=1e-14)


def test_batches_are_independent():
    x = sphere.uniform(5, 3, rng=np.random.default_rng(12), batch=(2, 4))
    w, e = attention.weights(x, 2.0), attention.energy(x, 2.0)
    assert w.shape == (2, 4, 5, 5)
    assert np.shape(e) == (2, 4)
    for kind in KINDS:
        v = attention.velocity(x, 2.0, kind)
        assert v.shape == x.shape
        for b in np.ndindex(2, 4):
            np.testing.assert_allclose(v[b], plain_velocity(x[b], 2.0, kind), atol=1e-14)
            np.testing.assert_allclose(w[b], plain_weights(x[b], 2.0), rtol=1e-13)
            np.testing.assert_allclose(e[b], plain_energy(x[b], 2.0), rtol=1e-13)


def test_float32_is_kept():
    x = sphere.uniform(8, 3, rng=np.random.default_rng(13))
    small = x.astype(np.float32)
    assert attention.weights(small, 2.0).dtype == np.float32
    for kind in KINDS:
        v = attention.velocity(small, 2.0, kind)
        assert v.dtype == np.float32
        np.testing.assert_allclose(v, attention.velocity(x, 2.0, kind), atol=2e-6)
    v = attention.velocity(small, 1e4)
    assert np.isfinite(v).all()


def test_input_is_not_changed():
    x = sphere.uniform(8, 3, rng=np.random.default_rng(14))
    copy = x.copy()
    for kind in KINDS:
        attention.velocity(x, 2.0, kind)
    attention.weights(x, 2.0)
    attention.energy(x, 2.0)
    assert (x == copy).all()


def test_energy_at_the_smallest_beta():
    x = sphere.uniform(3, 2, rng=np.random.default_rng(1))
    tiny = float(np.finfo(float).tiny)
    assert attention.energy(x, tiny) == pytest.approx(1 / (2 * tiny), rel=1e-14)


def test_usa_is_the_gradient_of_the_energy():
    """d/ds E(x + s w) = n^{-1} sum_i <chi(x_i), w_i> for every tangent field w."""
    rng = np.random.default_rng(15)
    beta = 2.3
    x = sphere.uniform(6, 4, rng=rng)
    for _ in range(3):
        w = sphere.tangent(x, rng.standard_normal(x.shape))
        s = 1e-3
        e = [plain_energy(sphere.normalize(x + h * w), beta) for h in (2 * s, s, -s, -2 * s)]
        slope = (-e[0] + 8 * e[1] - 8 * e[2] + e[3]) / (12 * s)
        inner = (attention.velocity(x, beta, "unnormalized") * w).sum() / len(x)
        assert slope == pytest.approx(inner, rel=1e-7)


def test_energy_of_known_measures():
    beta = 3.0
    one = np.array([[1.0, 0.0]])
    pair = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert attention.energy(one, beta) == pytest.approx(math.exp(beta) / (2 * beta), rel=1e-14)
    assert attention.energy(pair, beta) == pytest.approx(math.cosh(beta) / (2 * beta), rel=1e-14)
    # the regular polygon integrates e^{beta cos} to I_0(beta) up to aliasing
    polygon = sphere.from_angles(2 * np.pi * np.arange(40) / 40)
    assert attention.energy(polygon, beta) == pytest.approx(np.i0(beta) / (2 * beta), rel=1e-13)


def test_where_the_exponential_ends():
    """e^beta is a number up to 700 in float64, 85 in float32; beyond, an error, not inf."""
    x = sphere.from_angles([0.0, 0.001, 2.0])
    for dtype, last in ((np.float64, 700.0), (np.float32, 85.0)):
        tokens = x.astype(dtype)
        v = attention.velocity(tokens, last, "unnormalized")
        assert np.isfinite(v).all()
        assert v[0, 1] > 0.001 * math.exp(last) / 4
        assert np.isfinite(attention.energy(tokens, last))
        with pytest.raises(ValueError, match=f"beta must be .*{last:g}"):
            attention.velocity(tokens, last + 1, "unnormalized")
        with pytest.raises(ValueError, match=f"beta must be .*{last:g}"):
            attention.energy(tokens, last + 1)
    with pytest.raises(ValueError, match="beta must be"):
        attention.energy(x, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_large_n_is_exact_and_needs_little_memory(kind):
    """Blocks must not change the result, and n x n numbers are never held."""
    n, d, beta = 6000, 3, 3.0
    x = sphere.uniform(n, d, rng=np.random.default_rng(16))
    attention.velocity(x[:100], beta, kind)
    tracemalloc.start()
    try:
        v = attention.velocity(x, beta, kind)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * n * 8 / 10
    rows = np.r_[0:3, n // 2, n - 3 : n]
    kernel = np.exp(beta * (x[rows] @ x.T))
    y = kernel @ x / (kernel.sum(axis=1, keepdims=True) if kind == "softmax" else n)
    expected = y - (x[rows] * y).sum(axis=1, keepdims=True) * x[rows]
    np.testing.assert_allclose(v[rows], expected, atol=1e-13 * math.exp(beta))


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 1e4), st.integers(1, 9), st.sampled_from([2, 3, 7, 64]), st.integers(0, 2**32))
def test_softmax_properties(beta, n, d, seed):
    x = sphere.uniform(n, d, rng=np.random.default_rng(seed))
    w, v = attention.weights(x, beta), attention.velocity(x, beta)
    assert (w >= 0).all()
    assert np.abs(w.sum(axis=-1) - 1).max() < 8 * n * EPS
    # y lies in the unit ball, so the velocity is at most 1 long; and it is tangent
    assert np.linalg.norm(v, axis=-1).max() <= 1 + 8 * EPS
    assert np.abs((v * x).sum(axis=-1)).max() < 8 * EPS
    # a token sees itself best
    assert (w.argmax(axis=-1) == np.arange(n)).all() or beta < 1e-6


@settings(deadline=None, max_examples=30)
@given(st.floats(0.01, 30), st.integers(1, 9), st.integers(2, 9), st.integers(0, 2**32))
def test_both_kinds_differ_by_the_normaliser(beta, n, d, seed):
    """USA velocity of token i = SA velocity times n^{-1} sum_k e^{beta <x_i, x_k>}."""
    x = sphere.uniform(n, d, rng=np.random.default_rng(seed))
    z = np.exp(beta * (x @ x.T)).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        attention.velocity(x, beta, "unnormalized"),
        attention.velocity(x, beta) * z,
        atol=1e-13 * math.exp(beta),
    )
    e = attention.energy(x, beta)
    assert e <= math.exp(beta) / (2 * beta) * (1 + 1e-13)
    assert e == pytest.approx(z.mean() / (2 * beta), rel=1e-13)
