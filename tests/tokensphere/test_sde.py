"""The common-noise equation: its limit, its order, its sphere, and what is not its law.

Expectations over one step are exact here: the scheme's Gaussian variables are replaced by a
cubature formula that agrees with them to degree 5, which is all that weak order 2 rests on.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from tokensphere import flow, layers, sde, sphere, two_tokens


def cubature(dimension):
    """Points and weights that integrate degree 5 exactly against the standard Gaussian."""
    axis = np.sqrt(3) * np.eye(dimension)
    pairs = [
        s * axis[i] + t * axis[j]
        for i, j in itertools.combinations(range(dimension), 2)
        for s in (1, -1)
        for t in (1, -1)
    ]
    points = np.concatenate([np.zeros((1, dimension)), axis, -axis, pairs])
    weights = np.full(len(points), 1 / 36)
    weights[0] = 1 + dimension * (dimension - 7) / 18
    weights[1 : 1 + 2 * dimension] = (4 - dimension) / 18
    return points, weights


class Points:
    """In place of a generator: the points, one after the other."""

    def __init__(self, points):
        self.points = points

    def standard_normal(self, shape, dtype=float):
        first, self.points = np.split(self.points, [shape[0]])
        return first.reshape(shape)


def one_step(x, weights, beta, h, noise, pull=0.0):
    """All outcomes of a step from each of the weighted states ``x``, and their weights."""
    n, d = x.shape[1:]
    points, point_weights = cubature(2 * d * d if noise == "common" else 2 * n * d)
    step = {"common": sde._common, "independent": sde._independent}[noise]
    rng = Points(np.tile(points, (len(x), 1)))
    moved = step(np.repeat(x, len(points), axis=0), beta, h, rng, pull)
    return moved, np.outer(weights, point_weights).ravel()


def overlaps(x):
    return x @ np.swapaxes(x, -1, -2)


def pair(r, d):
    x = np.zeros((1, 2, d))
    x[0, 0, 0] = 1
    x[0, 1, :2] = r, np.sqrt(1 - r * r)
    return x


@pytest.mark.parametrize(("d", "pull"), [(2, 0.0), (3, 0.0), (4, 0.0), (3, 2.0)])
def test_weak_order_2_against_the_exact_expectation(d, pull):
    """The error of E[r] after one step falls like h^3."""
    r0, beta = -0.3, 1.5
    errors = []
    for h in (0.05, 0.025, 0.0125):
        x, weights = one_step(pair(r0, d), np.ones(1), beta, h, "common", pull)
        mean = weights @ overlaps(x)[:, 0, 1]
        errors.append(mean - two_tokens.expected_overlap(r0, h, beta, d, pull=pull))
    orders = np.log2(np.abs(np.divide(errors[:-1], errors[1:])))
    assert orders[-1] > 2.7


@pytest.mark.parametrize("noise", ["common", "independent"])
def test_weak_order_2_by_halving_the_step(noise):
    """For three tokens: one step against two halves; with the next test this is order 2."""
    beta, x0 = 1.5, sphere.uniform(3, 2, rng=np.random.default_rng(0), batch=(1,))
    differences = []
    for h in (0.025, 0.0125):
        x, weights = one_step(x0, np.ones(1), beta, h, noise)
        halves = one_step(*one_step(x0, np.ones(1), beta, h / 2, noise), beta, h / 2, noise)
        means = [
            np.einsum("k,kij->ij", w, overlaps(y) + overlaps(y) ** 2)
            for y, w in ((x, weights), halves)
        ]
        differences.append(np.abs(means[0] - means[1]).max())
    orders = np.log2(np.divide(differences[:-1], differences[1:]))
    assert orders[-1] > 2.6


@pytest.mark.parametrize(
    ("n", "d", "beta", "pull"),
    [(2, 2, 0.0, 0.0), (4, 2, 2.0, 0.0), (3, 3, 0.7, 1.5), (5, 3, 1.0, 0.0)],
)
@pytest.mark.parametrize("noise", ["common", "independent"])
def test_the_limit_is_the_ito_equation(n, d, beta, pull, noise):
    """The slopes at h = 0 of E[g] and E[g^2] are those that Ito's formula gives.

    dg_ij has drift (d - 2 + g^2) <y_i, y_j> - (d - 1)(|y_i|^2 + |y_j|^2) g / 2, without the
    first term when the noises are independent, and with a pull the change of the flow (<v_i, x_j>
    + <x_i, v_j> for v_i = P_i y_i) times it; its squared noise is
    |P_i x_j|^2 |y_i|^2 + |P_j x_i|^2 |y_j|^2 + 2 <P_j x_i, P_i x_j> <y_i, y_j>.
    """
    x0 = sphere.uniform(n, d, rng=np.random.default_rng(n + d), batch=(1,))
    x = x0[0]
    g = x @ x.T
    a = np.exp(beta * g)
    y = a / a.sum(axis=1, keepdims=True) @ x
    h_matrix, common = y @ y.T, float(noise == "common")
    q = np.diag(h_matrix)
    drift = common * (d - 2 + g**2) * h_matrix - (d - 1) / 2 * np.add.outer(q, q) * g
    v = y - np.einsum("ij,ij->i", x, y)[:, None] * x
    drift = drift + pull * (v @ x.T + x @ v.T)
    squared = (1 - g**2) * np.add.outer(q, q) - 2 * common * g * (1 - g**2) * h_matrix
    off = ~np.eye(n, dtype=bool)
    for function, expected in (
        (lambda g: g, drift),
        (np.square, 2 * g * drift + squared),
    ):
        slopes = []
        for h in (2e-3, 1e-3):
            moved, weights = one_step(x0, np.ones(1), beta, h, noise, pull)
            slopes.append(
                (np.einsum("k,kij->ij", weights, function(overlaps(moved))) - function(g)) / h
            )
        limit = 2 * slopes[1] - slopes[0]
        np.testing.assert_allclose(limit[off], expected[off], atol=2e-3)


def test_one_token_is_a_spherical_brownian_motion():
    # E<x_0, x_t> = exp(-(d-1) t / 2); 4.5 standard errors, fixed beforehand
    d, runs = 3, 4000
    x0 = np.tile(np.eye(d)[0], (runs, 1, 1))
    path = sde.solve(x0, 2.0, [0.0, 0.4, 1.0], steps=20, rng=np.random.default_rng(1))
    for t, x in zip(path.times, path.tokens, strict=True):
        along = x[:, 0, 0]
        expected = np.exp(-(d - 1) / 2 * t)
        assert abs(along.mean() - expected) <= 4.5 * along.std() / np.sqrt(runs) + 1e-15


def test_the_law_is_that_of_many_layers_and_not_that_of_independent_noise():
    # Kolmogorov-Smirnov at level 1e-4, fixed beforehand, on all three overlaps of n = 3
    beta, d, runs, t = 1.0, 4, 3000, 0.5
    rng = np.random.default_rng(5)
    x0 = np.tile(sphere.uniform(3, d, rng=rng), (runs, 1, 1))
    path = sde.solve(x0, beta, [0.0, t], steps=16, rng=rng).tokens[-1]
    control = sde.solve(x0, beta, [0.0, t], steps=16, noise="independent", rng=rng).tokens[-1]
    deep = layers.overlap_chain(overlaps(x0), beta, d, 256, horizon=t, rng=rng)
    refused = 0
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert stats.ks_2samp(overlaps(path)[:, i, j], deep[:, i, j]).pvalue > 1e-4
        refused += stats.ks_2samp(overlaps(control)[:, i, j], deep[:, i, j]).pvalue < 1e-4
    assert refused == 3


def test_a_few_steps_do_what_many_layers_do():
    """Four steps are closer to E[r_1] than 16 layers, whose error is 0.0153."""
    runs = 8000
    x0 = np.tile(pair(0.0, 4), (runs, 1, 1))
    x = sde.solve(x0, 1.5, [0.0, 1.0], steps=4, rng=np.random.default_rng(8)).tokens[-1]
    r = overlaps(x)[:, 0, 1]
    error = r.mean() - two_tokens.expected_overlap(0.0, 1.0, 1.5, 4)
    assert abs(error) < 4.5 * r.std() / np.sqrt(runs)


@pytest.mark.parametrize("noise", ["common", "independent", "none"])
@pytest.mark.parametrize(("beta", "n", "d"), [(0.0, 1, 2), (1e4, 5, 3), (2.0, 40, 16)])
def test_on_the_sphere_to_rounding(noise, beta, n, d):
    rng = np.random.default_rng(1)
    x0 = sphere.uniform(n, d, rng=rng, batch=(2,))
    path = sde.solve(x0, beta, [0.0, 0.01, 0.05], steps=7, noise=noise, rng=rng)
    np.testing.assert_allclose(np.linalg.norm(path.tokens, axis=-1), 1, atol=1e-15)
    assert path.tokens.shape == (3, 2, n, d)
    np.testing.assert_array_equal(path.tokens[0], x0)


def test_no_noise_is_the_flow_with_order_5():
    x0 = sphere.uniform(6, 3, rng=np.random.default_rng(4))
    times = [0.0, 0.5, 2.0]
    exact = flow.solve(x0, 2.0, times, rtol=1e-12).tokens
    rng = np.random.default_rng(1)
    errors = [
        np.abs(sde.solve(x0, 2.0, times, steps=s, noise="none", rng=rng).tokens - exact).max()
        for s in (8, 16, 32)
    ]
    assert np.log2(errors[1] / errors[2]) > 4.7
    assert errors[2] < 1e-6


@pytest.mark.parametrize("noise", ["common", "independent"])
def test_a_strong_pull_is_the_flow(noise):
    x0 = sphere.uniform(4, 3, rng=np.random.default_rng(4))
    exact = flow.solve(x0, 2.0, [0.0, 1.0], rtol=1e-11).tokens[-1]
    small, rng = 1e-10, np.random.default_rng(1)
    path = sde.solve(x0, 2.0, [0.0, small], steps=20, pull=1 / small, noise=noise, rng=rng)
    np.testing.assert_allclose(path.tokens[-1], exact, atol=2e-4)


def test_coincident_and_antipodal_tokens_stay_so():
    rng = np.random.default_rng(3)
    a, b = sphere.uniform(2, 5, rng=rng)
    same = sde.solve([a, b, a], 2.0, [0.0, 1.0], steps=50, rng=rng).tokens[-1]
    np.testing.assert_allclose(same[0], same[2], atol=1e-13)
    # beta = 3 > beta_c(5): the antipode attracts
    ends = sde.solve([a, -a], 3.0, [0.0, 1.0], steps=50, rng=rng).tokens[-1]
    np.testing.assert_allclose(ends[0], -ends[1], atol=1e-13)


class Turned(np.random.Generator):
    """Matrix normals seen from a turned frame: Q S Q^T."""

    def __init__(self, seed, q):
        super().__init__(np.random.PCG64(seed))
        self.q = q

    def standard_normal(self, *args, **kwargs):
        return self.q @ super().standard_normal(*args, **kwargs) @ self.q.T


def test_equivariance():
    rng = np.random.default_rng(6)
    n, d = 5, 3
    x0 = sphere.uniform(n, d, rng=rng, batch=(3,))
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    arguments = {"beta": 1.7, "times": [0.0, 0.3], "steps": 5}
    x = sde.solve(x0, **arguments, rng=np.random.default_rng(7)).tokens
    turned = sde.solve(x0 @ q.T, **arguments, rng=Turned(7, q)).tokens
    np.testing.assert_allclose(turned, x @ q.T, atol=1e-13)
    order = rng.permutation(n)
    moved = sde.solve(x0[:, order], **arguments, rng=np.random.default_rng(7)).tokens
    np.testing.assert_allclose(moved, x[:, :, order], atol=1e-13)


def test_draws_do_not_depend_on_blocks(monkeypatch):
    x0 = sphere.uniform(3, 4, rng=np.random.default_rng(1), batch=(7,))
    whole = sde.solve(x0, 1.0, [0.0, 1.0], steps=3, rng=np.random.default_rng(2)).tokens
    monkeypatch.setattr(sde, "_BLOCK", 70)
    blocks = sde.solve(x0, 1.0, [0.0, 1.0], steps=3, rng=np.random.default_rng(2)).tokens
    np.testing.assert_allclose(blocks, whole, atol=1e-14)


def test_steps_are_shared_out():
    assert sde._share(np.diff([0.0, 0.5, 1.0]), 10) == [5, 5]
    assert sde._share(np.diff([0.0, 1.0, 1.0, 4.0]), 8) == [2, 0, 6]
    assert sde._share(np.diff([0.0, 1e-9, 1.0]), 2) == [1, 1]
    assert sde._share(np.diff([0.0, 1e-9, 2e-9, 1.0]), 7) == [1, 1, 5]
    assert sde._share(np.diff(np.linspace(0, 1, 101)), 1000) == [10] * 100
    assert sde._share(np.array([]), 3) == []
    x0 = sphere.uniform(2, 3, rng=np.random.default_rng(1))
    path = sde.solve(x0, 1.0, [2.0, 2.0], steps=5, rng=np.random.default_rng(1))
    assert path.evaluations == 0
    np.testing.assert_array_equal(path.tokens[1], x0)
    path = sde.solve(x0, 1.0, [0.0, 1.0], steps=5, rng=np.random.default_rng(1))
    assert path.evaluations == 60


def test_float32_stays_float32():
    x0 = sphere.uniform(3, 4, rng=np.random.default_rng(1), dtype=np.float32)
    for noise in ("common", "independent", "none"):
        path = sde.solve(x0, 1.0, [0.0, 1.0], steps=3, noise=noise, rng=np.random.default_rng(1))
        assert path.tokens.dtype == np.float32
    empty = np.zeros((0, 3, 4))
    path = sde.solve(empty, 1.0, [0.0, 1.0], steps=3, rng=np.random.default_rng(1))
    assert path.tokens.shape == (2, 0, 3, 4)


X, RNG = np.eye(3), np.random.default_rng(1)
BAD = [
    (lambda: sde.solve(2 * X, 1.0, [0.0, 1.0], steps=1, rng=RNG), "x0 must have unit rows"),
    (lambda: sde.solve(X, -1.0, [0.0, 1.0], steps=1, rng=RNG), "beta must be .* got -1"),
    (lambda: sde.solve(X, 1.0, [1.0, 0.0], steps=1, rng=RNG), "times must be"),
    (lambda: sde.solve(X, 1.0, [0.0, 1.0], steps=0, rng=RNG), "steps must be a whole number >= 1"),
    (
        lambda: sde.solve(X, 1.0, [0.0, 1.0, 2.0, 3.0], steps=2, rng=RNG),
        "steps must be at least one for every interval .*here 3, got 2",
    ),
    (lambda: sde.solve(X, 1.0, [0.0], steps=1, noise="white", rng=RNG), 'noise must be one of "c'),
    (lambda: sde.solve(X, 1.0, [0.0], steps=1, noise="none", pull=-1, rng=RNG), "pull must be 0"),
    (lambda: sde.solve(X, 1.0, [0.0], steps=1, rng=None), "rng must be a numpy.random.Generator"),
    (lambda: sde.solve(X * np.nan, 1.0, [0.0], steps=1, rng=RNG), "x0 must be finite"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
