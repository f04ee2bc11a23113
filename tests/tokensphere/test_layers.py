"""Random layers: the law of a layer, the limit of many, the overlap chain, and the control."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokensphere import attention, flow, layers, sphere, two_tokens


def overlaps(x):
    return x @ np.swapaxes(x, -1, -2)


def plain_layer(x, beta, h, v, pull=0.0):
    """x_i <- N(x_i + h a y_i + sqrt(h) V y_i), one token at a time."""
    y = attention.weights(x, beta) @ x
    moved = [x[i] + h * pull * y[i] + np.sqrt(h) * v @ y[i] for i in range(len(x))]
    return np.array([m / np.linalg.norm(m) for m in moved])


def same_law(a, b, level):
    """Kolmogorov-Smirnov on every overlap above the diagonal."""
    n = a.shape[-1]
    return all(
        stats.ks_2samp(a[:, i, j], b[:, i, j]).pvalue > level
        for i, j in itertools.combinations(range(n), 2)
    )


@pytest.mark.parametrize("pull", [0.0, -0.7, 40.0])
@pytest.mark.parametrize("entries", ["gaussian", "rademacher", "uniform"])
def test_a_layer_written_out_plainly(entries, pull):
    n, d, beta, depth, horizon = 3, 4, 1.3, 6, 2.0
    x0 = sphere.uniform(n, d, rng=np.random.default_rng(1), batch=(2,))
    options = {"horizon": horizon, "entries": entries, "keep": depth}
    found = layers.forward(x0, beta, depth, pull=pull, rng=np.random.default_rng(5), **options)
    rng, x = np.random.default_rng(5), x0
    for layer in range(depth):
        v = layers._draw((2, d, d), entries, x, rng)
        x = np.array([plain_layer(x[b], beta, horizon / depth, v[b], pull) for b in range(2)])
        np.testing.assert_allclose(found[layer], x, atol=1e-13)


def test_entries_have_mean_0_and_variance_1():
    rng = np.random.default_rng(2)
    for entries, fourth in (("gaussian", 3.0), ("rademacher", 1.0), ("uniform", 1.8)):
        v = layers._draw((200_000,), entries, np.zeros(0), rng)
        assert abs(v.mean()) < 4.5 / np.sqrt(v.size)
        assert (v**2).mean() == pytest.approx(1, abs=4.5 * 1.5 / np.sqrt(v.size))
        assert (v**4).mean() == pytest.approx(fourth, abs=4.5 * 10 / np.sqrt(v.size))


@pytest.mark.parametrize("factored", [True, False])
def test_the_drawn_products_have_the_right_covariance(factored, monkeypatch):
    # cov(V y_i, V y_j) = <y_i, y_j> I, for a singular set of y too
    monkeypatch.setattr(layers, "_factor_is_faster", lambda batch, n, d: factored)
    rng, runs, d = np.random.default_rng(3), 40_000, 5
    y = sphere.uniform(2, d, rng=rng)
    y = np.stack([y[0], y[1], y[0], -0.5 * y[1], 0 * y[0]])[:4]
    z = layers._common(np.tile(y, (runs, 1, 1)), "gaussian", rng)
    found = np.einsum("kia,kjb->ijab", z, z) / runs
    expected = (y @ y.T)[:, :, None, None] * np.eye(d)
    assert np.abs(found - expected).max() < 6 * np.sqrt(2 / runs)
    np.testing.assert_allclose(z[:, 2], z[:, 0], atol=1e-14)
    np.testing.assert_allclose(z[:, 3], -0.5 * z[:, 1], atol=1e-14)


def test_both_ways_to_draw_have_one_law(monkeypatch):
    # level 1e-4, fixed beforehand
    x0 = np.tile(sphere.uniform(3, 12, rng=np.random.default_rng(4)), (3000, 1, 1))
    found = []
    for factored in (True, False):
        monkeypatch.setattr(layers, "_factor_is_faster", lambda b, n, d, way=factored: way)
        x = layers.forward(x0, 1.0, 4, horizon=0.2, rng=np.random.default_rng(7 + factored))
        found.append(overlaps(x))
    assert same_law(*found, level=1e-4)


CHAINS = [(2, 2, 1.5), (2, 3, 1.0), (2, 40, 2.0), (3, 4, 1.0), (4, 9, 0.0), (5, 3, 2.0)]


@pytest.mark.parametrize(("n", "d", "beta"), CHAINS)
def test_the_overlap_chain_is_the_layers(n, d, beta):
    # d = n, n < d < 2n, d > 2n and d < n; level 1e-4, fixed beforehand
    rng, runs, horizon = np.random.default_rng(n * d), 3000, 1.5 / d
    x0 = np.tile(sphere.uniform(n, d, rng=rng), (runs, 1, 1))
    full = overlaps(layers.forward(x0, beta, 3, horizon=horizon, rng=rng))
    chain = layers.overlap_chain(overlaps(x0), beta, d, 3, horizon=horizon, rng=rng)
    assert same_law(full, chain, level=1e-4)
    # three at a time: the joint law, by a mixed moment
    if n > 2:
        mixed = [g[:, 0, 1] * g[:, 1, 2] * g[:, 0, 2] for g in (full, chain)]
        spread = np.sqrt(sum(m.var() for m in mixed) / runs)
        assert abs(mixed[0].mean() - mixed[1].mean()) < 4.5 * spread
    # the control: another dimension
    other = layers.overlap_chain(
        overlaps(x0), beta, d + max(2, d // 2), 3, horizon=2 * horizon, rng=rng
    )
    assert not same_law(full, other, level=1e-4)


@pytest.mark.parametrize(("n", "d"), [(2, 3), (3, 9), (4, 3)])
def test_the_overlap_chain_with_a_pull_is_the_layers(n, d):
    # level 1e-4, fixed beforehand
    rng, runs, beta, pull = np.random.default_rng(n + d), 3000, 1.2, 3.0
    x0 = np.tile(sphere.uniform(n, d, rng=rng), (runs, 1, 1))
    full = overlaps(layers.forward(x0, beta, 3, horizon=0.3, pull=pull, rng=rng))
    chain = layers.overlap_chain(overlaps(x0), beta, d, 3, horizon=0.3, pull=pull, rng=rng)
    assert same_law(full, chain, level=1e-4)
    # the control: a push of the same strength
    other = layers.overlap_chain(overlaps(x0), beta, d, 3, horizon=0.3, pull=-pull, rng=rng)
    assert not same_law(full, other, level=1e-4)


def test_a_strong_pull_is_the_flow():
    # variance s^2 at horizon T is pull 1/s^2 at horizon s^2 T; without noise it is the flow
    x0 = sphere.uniform(4, 3, rng=np.random.default_rng(2), batch=(3,))
    small = 1e-10
    drawn = {"horizon": 1.5 * small, "pull": 1 / small, "rng": np.random.default_rng(1)}
    none = layers.forward(x0, 2.0, 50, horizon=1.5, noise="none", rng=np.random.default_rng(1))
    for noise in ("common", "independent"):
        x = layers.forward(x0, 2.0, 50, noise=noise, **drawn)
        np.testing.assert_allclose(x, none, atol=2e-4)
    g = layers.overlap_chain(overlaps(x0), 2.0, 3, 50, **drawn)
    np.testing.assert_allclose(g, overlaps(none), atol=4e-4)


def test_order_1_in_the_depth_with_a_pull():
    """As without one; the bound is 4.5 sigma and a term of order 2."""
    runs, beta, d, pull = 40_000, 1.5, 4, 2.0
    g0 = np.tile(np.eye(2), (runs, 1, 1))
    exact = two_tokens.expected_overlap(0.0, 0.5, beta, d, pull=pull)
    error, sigma = {}, {}
    for depth in (8, 16):
        rng = np.random.default_rng(depth)
        r = layers.overlap_chain(g0, beta, d, depth, horizon=0.5, pull=pull, rng=rng)[:, 0, 1]
        error[depth], sigma[depth] = r.mean() - exact, r.std() / np.sqrt(runs)
    spread = np.hypot(sigma[8], 2 * sigma[16])
    assert abs(error[8] - 2 * error[16]) < 4.5 * spread + 0.1 * abs(error[8])
    assert abs(error[16]) < 0.02


@pytest.mark.parametrize("pull", [0.0, 5.0])
@pytest.mark.parametrize("d", [2, 3, 4, 500])
@pytest.mark.parametrize("beta", [0.0, 2.0, 1e4])
def test_two_tokens_written_out_are_the_general_step(d, beta, pull):
    r = np.random.default_rng(1).uniform(-1, 1, 500)
    r[:2] = 1, -1
    gram = np.ones((500, 2, 2))
    gram[:, 0, 1] = gram[:, 1, 0] = r
    written_out = layers._pair_step(gram, beta, d, 0.01, np.random.default_rng(2), pull)
    general = layers._overlap_step(gram, beta, d, 0.01, np.random.default_rng(2), pull)
    np.testing.assert_allclose(written_out, general, atol=2e-15)


def test_independent_noise_is_another_law():
    # every token alone has the same law, its overlaps have not; level 1e-4, fixed beforehand
    runs, d = 3000, 3
    x0 = np.tile(sphere.uniform(2, d, rng=np.random.default_rng(1)), (runs, 1, 1))
    x, y = (
        layers.forward(x0, 1.0, 16, noise=noise, rng=np.random.default_rng(9))
        for noise in ("common", "independent")
    )
    for a in range(d):
        assert stats.ks_2samp(x[:, 0, a], y[:, 0, a]).pvalue > 1e-4
    assert not same_law(overlaps(x), overlaps(y), level=1e-4)


def test_independent_noise_of_all_entries():
    rng, runs, d = np.random.default_rng(6), 20_000, 4
    y = np.tile(sphere.uniform(2, d, rng=rng) * [[1.0], [0.5]], (runs, 1, 1))
    for entries in ("gaussian", "rademacher", "uniform"):
        z = layers._independent(y, entries, rng)
        found = np.einsum("kia,kjb->ijab", z, z) / runs
        expected = np.diag([1, 0.25])[:, :, None, None] * np.eye(d)
        assert np.abs(found - expected).max() < 6 * np.sqrt(2 / runs)


def test_order_1_in_the_depth():
    """The error of E[r] halves when the number of layers doubles; the bounds are 4.5 sigma."""
    runs, r0, beta, d = 50_000, 0.0, 1.5, 4
    g0 = np.tile(np.eye(2), (runs, 1, 1))
    exact = two_tokens.expected_overlap(r0, 1.0, beta, d)
    errors, sigmas = [], []
    for depth in (4, 8, 16):
        r = layers.overlap_chain(g0, beta, d, depth, rng=np.random.default_rng(depth))[:, 0, 1]
        errors.append(r.mean() - exact)
        sigmas.append(r.std() / np.sqrt(runs))
    for k in (0, 1):
        spread = np.hypot(sigmas[k], 2 * sigmas[k + 1])
        # order 1 up to a term of order 2, which is a tenth of the error here
        assert abs(errors[k] - 2 * errors[k + 1]) < 4.5 * spread + 0.1 * errors[k]
    assert errors[0] > 10 * sigmas[0]


def test_the_limit_does_not_care_about_the_entries():
    runs, d, beta, depth = 4000, 3, 1.0, 128
    x0 = np.tile(np.eye(3)[:2], (runs, 1, 1))
    exact = two_tokens.expected_overlap(0.0, 0.5, beta, d)
    for entries in ("rademacher", "uniform"):
        x = layers.forward(
            x0, beta, depth, horizon=0.5, entries=entries, rng=np.random.default_rng(3)
        )
        r = overlaps(x)[:, 0, 1]
        assert abs(r.mean() - exact) < 4.5 * r.std() / np.sqrt(runs) + 0.5 / depth


@pytest.mark.parametrize(
    ("beta", "d", "r0", "horizon", "depth"),
    [(2.0, 3, 0.0, 16.0, 900), (3.0, 8, -0.4, 10.0, 1000), (3.2, 32, -0.5, 8.0, 2000)],
)
def test_antipodal_fraction_is_the_splitting_probability(beta, d, r0, horizon, depth):
    # binomial test at level 1e-4, fixed beforehand
    runs, rng = 1000, np.random.default_rng(12)
    g = np.tile([[1.0, r0], [r0, 1.0]], (runs, 1, 1))
    r = layers.overlap_chain(g, beta, d, depth, horizon=horizon, rng=rng)[:, 0, 1]
    assert np.mean(np.abs(r) > 0.9) > 0.995
    antipodal = int((r < 0).sum())
    p = two_tokens.antipodal_probability(r0, beta, d)
    assert stats.binomtest(antipodal, runs, p).pvalue > 1e-4


def test_no_noise_tends_to_the_flow():
    x0 = sphere.uniform(5, 3, rng=np.random.default_rng(2))
    exact = flow.solve(x0, 2.0, [0.0, 1.5], rtol=1e-11).tokens[-1]
    rng = np.random.default_rng(1)
    state = rng.bit_generator.state
    errors = [
        np.abs(layers.forward(x0, 2.0, L, horizon=1.5, noise="none", rng=rng) - exact).max()
        for L in (100, 200, 400)
    ]
    assert rng.bit_generator.state == state
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 2, rtol=0.05)


class Turned(np.random.Generator):
    """Matrix normals seen from a turned frame: Q V Q^T."""

    def __init__(self, seed, q):
        super().__init__(np.random.PCG64(seed))
        self.q = q

    def standard_normal(self, *args, **kwargs):
        return self.q @ super().standard_normal(*args, **kwargs) @ self.q.T


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 6),
    d=st.integers(2, 6),
    beta=st.one_of(st.floats(0, 20), st.just(1e4)),
    seed=st.integers(0, 10**6),
)
def test_equivariance_and_unit_norm(n, d, beta, seed):
    rng = np.random.default_rng(seed)
    n = max(n, 2)
    x0 = sphere.uniform(n, d, rng=rng, batch=(2,))
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    x = layers.forward(x0, beta, 3, horizon=0.3, rng=np.random.default_rng(seed))
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, atol=1e-15)
    # rounding moves the weights by beta roundings
    tolerance = 1e-13 * (1 + beta)
    turned = layers.forward(x0 @ q.T, beta, 3, horizon=0.3, rng=Turned(seed, q))
    np.testing.assert_allclose(turned, x @ q.T, atol=tolerance)
    order = rng.permutation(n)
    moved = layers.forward(x0[:, order], beta, 3, horizon=0.3, rng=np.random.default_rng(seed))
    np.testing.assert_allclose(moved, x[:, order], atol=tolerance)


@pytest.mark.parametrize("d", [4, 40])
def test_ties_are_kept_exactly(d):
    rng = np.random.default_rng(8)
    a, b, c = sphere.uniform(3, d, rng=rng)
    same = layers.forward([a, b, a, c, b], 2.0, 300, horizon=20 / d, rng=rng)
    np.testing.assert_array_equal(same[[2, 4]], same[[0, 1]])
    # beta = 0.1 is below the transition: the antipode repels, and yet it is invariant
    ends = layers.forward([a, -a, -b, b, a, -a], 0.1, 300, horizon=50.0, rng=rng)
    np.testing.assert_array_equal(ends[[0, 2]], -ends[[1, 3]])
    np.testing.assert_array_equal(ends[4:], ends[:2])
    ends = layers.forward([a, -a], 0.1, 300, horizon=5.0, pull=3.0, rng=rng)
    np.testing.assert_array_equal(ends[0], -ends[1])
    # unequal groups are not invariant: they leave the antipode
    x0 = np.stack([a, a, -a])
    left = layers.forward(x0, 0.1, 300, horizon=3.0, rng=rng)
    assert left[0] @ left[2] > -0.99
    none = layers.forward([a, -a, b, b], 1.0, 10, noise="none", rng=rng)
    np.testing.assert_array_equal(none[2], none[3])
    # independent noise keeps no tie
    apart = layers.forward([a, a], 1.0, 10, noise="independent", rng=rng)
    assert apart[0] @ apart[1] < 0.999


@pytest.mark.parametrize("d", [2, 3, 768])
def test_the_chain_at_singular_grams(d):
    rng = np.random.default_rng(9)
    ends = layers.overlap_chain([[1.0, -1.0], [-1.0, 1.0]], 0.0, d, 200, horizon=20.0, rng=rng)
    np.testing.assert_allclose(ends, [[1, -1], [-1, 1]], atol=1e-14)
    s = np.array([1.0, 1.0, -1.0, -1.0])
    groups = layers.overlap_chain(np.outer(s, s), 0.3, d, 200, horizon=20.0, rng=rng)
    np.testing.assert_allclose(groups, np.outer(s, s), atol=1e-13)
    s = np.array([1.0, 1.0, -1.0])
    unequal = layers.overlap_chain(np.outer(s, s), 0.3, d, 50, horizon=2.0, rng=rng)
    assert unequal[0, 1] == pytest.approx(1, abs=1e-13)
    assert unequal[0, 2] > -0.999999


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 8),
    d=st.sampled_from([2, 3, 8, 1024]),
    beta=st.one_of(st.floats(0, 20), st.just(1e4)),
    repeats=st.lists(st.integers(0, 7), max_size=3),
    seed=st.integers(0, 10**6),
)
def test_the_chain_stays_a_gram_matrix(n, d, beta, repeats, seed):
    rng = np.random.default_rng(seed)
    x = sphere.uniform(n, d, rng=rng)
    x = np.concatenate([x, *(np.array([[1.0], [-1.0]]) * x[k % n] for k in repeats)])
    g = layers.overlap_chain(overlaps(x), beta, d, 20, horizon=0.5, rng=rng)
    np.testing.assert_array_equal(np.diag(g), 1)
    np.testing.assert_array_equal(g, g.T)
    values = np.linalg.eigvalsh(g)
    assert values[0] > -1e-12
    assert (values > 1e-10).sum() <= d


def test_root_of_tokens_that_are_about_to_merge():
    """Nearly singular in many ways at once: the factor's error stays at the rounding level."""
    n, worst = 16, 0.0
    rng = np.random.default_rng(1)
    x = sphere.uniform(n, n, batch=(200,), rng=rng)
    g = x @ np.swapaxes(x, -1, -2)
    for _ in range(40):
        root = layers._root(g, 4096)
        worst = max(worst, np.abs(root @ np.swapaxes(root, -1, -2) - g).max())
        g = layers._overlap_step(g, 2.0, 4096, 0.1, rng)
    assert worst <= 32 * n * np.finfo(float).eps


def test_backward_error_of_the_factor():
    """R R^T = G to rounding, however near to singular."""
    rng = np.random.default_rng(10)
    x = sphere.uniform(6, 9, rng=rng, batch=(200,))
    # tokens 3, 4, 5 at distances 1e-16 ... 1 from tokens 0, 1, 2 or their antipodes
    scale = 10.0 ** rng.uniform(-16, 0, (200, 3, 1))
    x[:, 3:] = rng.choice([-1, 1], (200, 3, 1)) * x[:, :3] + scale * x[:, 3:]
    g = overlaps(sphere.normalize(x))
    root = layers._root(g, 9)
    assert np.abs(overlaps(root) - g).max() < 1e-13


def test_keep_and_shapes():
    x0 = sphere.uniform(3, 4, rng=np.random.default_rng(1), batch=(2, 5))
    rng = np.random.default_rng
    every = layers.forward(x0, 1.0, 10, rng=rng(3), keep=10)
    assert every.shape == (10, 2, 5, 3, 4)
    last = layers.forward(x0, 1.0, 10, rng=rng(3))
    np.testing.assert_array_equal(last, every[-1])
    np.testing.assert_array_equal(layers.forward(x0, 1.0, 10, rng=rng(3), keep=5), every[1::2])
    third = layers.forward(x0, 1.0, 10, rng=rng(3), keep=3)
    np.testing.assert_array_equal(third, every[[3, 6, 9]])
    np.testing.assert_array_equal(layers.forward(x0, 1.0, 10, rng=rng(3), keep=1)[0], last)
    g = layers.overlap_chain(overlaps(x0), 1.0, 7, 10, rng=rng(3), keep=5)
    assert g.shape == (5, 2, 5, 3, 3)
    np.testing.assert_array_equal(layers.overlap_chain(overlaps(x0), 1.0, 7, 10, rng=rng(3)), g[-1])
    still = layers.forward(x0, 1.0, 3, horizon=0.0, rng=rng(3))
    np.testing.assert_allclose(still, x0, atol=1e-15)


@pytest.mark.parametrize("noise", ["common", "independent", "none"])
@pytest.mark.parametrize("entries", ["gaussian", "rademacher", "uniform"])
def test_types_and_extremes(noise, entries):
    for dtype, n, d in ((np.float32, 2, 40), (np.float32, 5, 3), (np.float64, 1, 2)):
        rng = np.random.default_rng(1)
        x0 = sphere.uniform(n, d, rng=rng, batch=(3,), dtype=dtype)
        x = layers.forward(x0, 1e4, 4, noise=noise, entries=entries, rng=rng)
        assert x.dtype == dtype
        assert np.abs(np.linalg.norm(x, axis=-1) - 1).max() < 4 * np.finfo(dtype).eps
        empty = layers.forward(x0[:0], 1.0, 4, noise=noise, entries=entries, rng=rng)
        assert empty.shape == (0, n, d)


def test_chain_types():
    rng = np.random.default_rng(1)
    g = layers.overlap_chain(np.eye(3, dtype=np.float32), 1e4, 1024, 5, rng=rng)
    assert g.dtype == np.float32
    assert layers.overlap_chain(np.zeros((0, 3, 3)), 1.0, 4, 5, rng=rng).shape == (0, 3, 3)
    np.testing.assert_array_equal(layers.overlap_chain([[1.0]], 1.0, 4, 5, rng=rng), [[1.0]])


X, G, RNG = np.eye(3), np.eye(3), np.random.default_rng(1)
BAD = [
    (lambda: layers.forward(2 * X, 1.0, 3, rng=RNG), "x0 must have unit rows"),
    (lambda: layers.forward(np.ones(3), 1.0, 3, rng=RNG), "x0 must have shape"),
    (lambda: layers.forward(X, np.nan, 3, rng=RNG), "beta must be a finite number .*, got nan"),
    (lambda: layers.forward(X, 1.0, 0, rng=RNG), "depth must be a whole number >= 1, got 0"),
    (lambda: layers.forward(X, 1.0, 3, horizon=-1, rng=RNG), "horizon must be .* got -1"),
    (lambda: layers.forward(X, 1.0, 3, noise="white", rng=RNG), "noise must be one of"),
    (
        lambda: layers.forward(X, 1.0, 3, noise="none", pull=2.0, rng=RNG),
        'pull must be 0 with noise="none", where V = I, got 2',
    ),
    (lambda: layers.forward(X, 1.0, 3, entries="cauchy", rng=RNG), "entries must be one of"),
    (lambda: layers.forward(X, 1.0, 3, keep=4, rng=RNG), "keep must be at most depth = 3, got 4"),
    (lambda: layers.forward(X, 1.0, 3, rng=1), "rng must be a numpy.random.Generator"),
    (lambda: layers.overlap_chain(G[:2], 1.0, 3, 3, rng=RNG), "gram0 must have shape"),
    (lambda: layers.overlap_chain(2 * G, 1.0, 3, 3, rng=RNG), "gram0 must have ones on its diag"),
    (
        lambda: layers.overlap_chain([[1.0, 0.2], [0.1, 1.0]], 1.0, 3, 3, rng=RNG),
        "gram0 must be symmetric .* off by 0.1",
    ),
    (
        lambda: layers.overlap_chain([[1.0, 1.5], [1.5, 1.0]], 1.0, 3, 3, rng=RNG),
        "gram0 must be positive semidefinite, got the eigenvalue -0.5",
    ),
    (lambda: layers.overlap_chain(G, 1.0, 2, 3, rng=RNG), "gram0 must have rank at most d = 2"),
    (lambda: layers.overlap_chain(G * np.nan, 1.0, 3, 3, rng=RNG), "gram0 must be finite"),
    (lambda: layers.overlap_chain(G, 1.0, 1, 3, rng=RNG), "d must be a whole number >= 2, got 1"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
