"""The exact theory of two tokens against closed forms and against other ways to compute it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm

from tokensphere import _backward, attention, flow, two_tokens

BETAS = st.one_of(st.floats(0, 10), st.sampled_from([0.0, 1e-8, 100.0, 1e4]))
OVERLAPS = st.floats(-1 + 1e-12, 1 - 1e-12)
DIMENSIONS = st.sampled_from([2, 3, 4, 7, 64, 1024])


def plain_c(r, beta):
    return 0.5 / np.cosh(beta * (1 - r) / 2) ** 2


def pair(r):
    return np.array([[1.0, 0.0], [r, np.sqrt(1 - r * r)]])


def mass(start, end, beta, d, pull=0.0):
    """Integral of S'/S'(start) between two u, by an adaptive Runge-Kutta method."""

    def slope(u, y):
        z = beta * (1 - np.tanh(u))
        inner = (d - 2 + pull * (1 + np.exp(-z))) / np.cosh(z)
        return [np.tanh(u) + inner, np.exp(-y[0])]

    span = abs(end - start)
    found = solve_ivp(slope, (start, end), [0, 0], "DOP853", rtol=1e-12, atol=1e-14 * span)
    return abs(found.y[1, -1])


def marched_probability(r0, beta, d, pull=0.0):
    """The splitting probability from the scale density, marched away from u0 both ways."""
    u0 = np.arctanh(r0)
    rate = 1 - (d - 2 + pull * (1 + np.exp(-2 * beta))) / np.cosh(2 * beta)
    right = 15 + 30 / (d - 1 + 2 * pull)
    up = mass(u0, u0 + right, beta, d, pull)
    down = mass(u0, u0 - 15 - 30 / rate, beta, d, pull)
    return up / (up + down)


@pytest.mark.parametrize("d", [2, 3, 17])
def test_coefficients_are_the_plain_formula(d):
    r, beta = np.meshgrid(np.linspace(-1, 1, 41), [0.0, 0.5, 3.0])
    c = plain_c(r, beta)
    drift = (1 - r**2) * (c * (d - 2) - (1 - c) * r)
    np.testing.assert_allclose(two_tokens.drift(r, beta, d), drift, atol=1e-14 * d)
    noise = np.sqrt(2 * (1 - c)) * (1 - r**2)
    np.testing.assert_allclose(two_tokens.diffusion(r, beta, d), noise, atol=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.8, 3.0])
def test_the_pull_is_the_flow_of_attention(beta):
    # drift(pull) - drift(0) = pull * dr/dt of the deterministic flow, from the tokens themselves
    for r in (-0.9, -0.2, 0.5):
        x = pair(r)
        v = attention.velocity(x, beta)
        change = v[0] @ x[1] + x[0] @ v[1]
        added = two_tokens.drift(r, beta, 5, pull=-1.7) - two_tokens.drift(r, beta, 5)
        assert added == pytest.approx(-1.7 * change, abs=1e-13)


@pytest.mark.parametrize(
    ("beta", "d", "pull"),
    [(0.0, 2, 0), (1.3, 3, 0), (0.4, 9, 0), (2.5, 30, 0), (0.7, 4, 3.0), (1.5, 6, -4.0)],
)
def test_exponents_are_the_slopes_at_the_ends(beta, d, pull):
    # d log(1 -+ r) by Ito's formula, a hair from each end
    eps = 1e-6
    near = {1: 1 - eps, -1: -1 + eps}
    rate = {
        end: -end * two_tokens.drift(r, beta, d, pull=pull) / eps
        - two_tokens.diffusion(r, beta, d) ** 2 / (2 * eps**2)
        for end, r in near.items()
    }
    consensus, antipode = two_tokens.lyapunov_exponents(beta, d, pull=pull)
    assert consensus == -(d - 1) - 2 * pull
    assert rate[1] == pytest.approx(consensus, abs=1e-4 * d)
    assert rate[-1] == pytest.approx(antipode, abs=1e-4 * d)


@settings(max_examples=50, deadline=None)
@given(d=st.integers(3, 4096), factor=st.floats(0.5, 2))
def test_the_antipode_attracts_above_the_critical_beta(d, factor):
    beta = factor * two_tokens.critical_beta(d)
    _, antipode = two_tokens.lyapunov_exponents(beta, d)
    probability = two_tokens.antipodal_probability(0.0, beta, d)
    if abs(factor - 1) > 1e-12 and beta > 0:
        assert (antipode < 0) == (factor > 1)
    assert (probability > 0) == (antipode < 0)


def test_critical_beta_values():
    values = [0, 0, 0.658479, 1.238944, 2.047033]
    np.testing.assert_allclose(two_tokens.critical_beta([2, 3, 4, 8, 32]), values, atol=5e-7)
    assert two_tokens.critical_beta(512) == pytest.approx(np.arccosh(510) / 2, rel=1e-15)


def test_critical_beta_with_a_pull():
    d, pull = np.array([2, 3, 4, 8, 64])[:, None], np.array([0.6, 1.0, 7.5, 1e3])
    beta = two_tokens.critical_beta(d, pull=pull)
    # the root of cosh 2b = d - 2 + g (1 + exp(-2b)), by substitution
    gap = np.cosh(2 * beta) - (d - 2) - pull * (1 + np.exp(-2 * beta))
    np.testing.assert_allclose(gap / np.cosh(2 * beta), 0, atol=1e-13)
    np.testing.assert_allclose(two_tokens.lyapunov_exponents(beta, d, pull=pull)[1], 0, atol=1e-12)
    # in d = 2 a pull up to 1/2 is too weak at every beta
    np.testing.assert_array_equal(two_tokens.critical_beta(2, pull=[0.0, 0.3, 0.5]), 0)
    assert two_tokens.lyapunov_exponents(0.0, 2, pull=0.5)[1] == 0


def test_exponents_keep_their_digits():
    # d = 3: lambda = -2 tanh^2 beta
    betas = np.array([1e-9, 1e-4, 1.0, 30.0, 1e4])
    np.testing.assert_allclose(
        two_tokens.lyapunov_exponents(betas, 3)[1], -2 * np.tanh(betas) ** 2, rtol=1e-14
    )


@pytest.mark.parametrize("beta", [0.0, 0.3, 10.0, 1e4])
def test_d_2_is_arccos_over_pi_whatever_beta(beta):
    r0 = np.array([-1 + 1e-15, -0.99, -0.5, 0.0, 0.3, 0.9, 1 - 1e-15])
    np.testing.assert_allclose(
        two_tokens.antipodal_probability(r0, beta, 2), np.arccos(r0) / np.pi, rtol=1e-13
    )


@pytest.mark.parametrize(
    ("r0", "beta", "d"),
    [
        (0.0, 1.0, 3),
        (0.0, 2.0, 3),
        (0.0, 2.0, 8),
        (0.0, 3.0, 8),
        (0.0, 3.0, 32),
        (-0.9, 1.4, 8),
        (0.6, 0.8, 4),
        (-0.3, 6.0, 200),
    ],
)
def test_antipodal_probability_against_marching(r0, beta, d):
    expected = marched_probability(r0, beta, d)
    assert two_tokens.antipodal_probability(r0, beta, d) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("r0", "beta", "d", "pull"),
    [
        (0.0, 2.0, 3, 1.0),
        (0.0, 1.0, 2, 0.4),
        (-0.6, 3.0, 8, 20.0),
        (0.3, 2.0, 3, -0.9),
        (0.0, 2.5, 12, -5.2),
        (-0.8, 2.5, 30, -14.3),
    ],
)
def test_antipodal_probability_with_a_pull_against_marching(r0, beta, d, pull):
    expected = marched_probability(r0, beta, d, pull)
    found = two_tokens.antipodal_probability(r0, beta, d, pull=pull)
    assert found == pytest.approx(expected, rel=1e-9)
    # a control: the pull counted half
    assert two_tokens.antipodal_probability(r0, beta, d, pull=pull / 2) != pytest.approx(
        expected, rel=1e-3
    )


def test_antipodal_probability_in_all_four_phases():
    # (beta, d, pull): only consensus, both, only the antipode, neither
    cases = [(1.0, 8, 0.0), (3.0, 8, 0.0), (3.0, 8, -4.0), (0.8, 32, -16.0)]
    signs = [
        tuple(bool(rate < 0) for rate in two_tokens.lyapunov_exponents(b, d, pull=g))
        for b, d, g in cases
    ]
    assert signs == [(True, False), (True, True), (False, True), (False, False)]
    p = [two_tokens.antipodal_probability(0.0, b, d, pull=g) for b, d, g in cases]
    assert p[0] == 0
    assert 0 < p[1] < 1
    assert p[2] == 1
    assert p[3] == 0


def test_the_probability_falls_with_the_pull():
    p = two_tokens.antipodal_probability(0.0, 2.0, 3, pull=np.linspace(-0.999, 12, 60))
    assert (np.diff(p) < 0).all()
    assert p[0] > 0.9
    np.testing.assert_array_equal(
        two_tokens.antipodal_probability(0.2, 2.0, [3, 4], pull=0.0),
        two_tokens.antipodal_probability(0.2, 2.0, [3, 4]),
    )


def test_antipodal_probability_values():
    beta, d = [2, 1, 2, 3, 3], [3, 3, 8, 8, 32]
    np.testing.assert_allclose(
        two_tokens.antipodal_probability(0.0, beta, d),
        [0.336366305121, 0.222422563062, 0.092862695427, 0.208286956897, 0.045269019723],
        atol=1e-12,
    )


def test_zero_at_and_below_the_transition():
    assert two_tokens.antipodal_probability(-0.999, 0.0, 3) == 0
    assert two_tokens.antipodal_probability(-0.999, 0.6, 4) == 0
    assert two_tokens.antipodal_probability(-0.999, 3.0, 512) == 0
    assert two_tokens.antipodal_probability(0.0, 0.0, 2) == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("d", [3, 8, 40])
def test_just_above_the_transition_it_opens_linearly(d):
    # the total mass is that of the tail, S'(-infinity) e^{-rate |u|}: P / rate has a limit,
    # approached linearly
    def ratio(eps):
        beta = 0.5 * np.arccosh((d - 2) / (1 - eps)) if d > 3 else np.arctanh(np.sqrt(eps / 2))
        rate = 1 - (d - 2) / np.cosh(2 * beta)
        return two_tokens.antipodal_probability(0.0, beta, d) / rate

    a, b, c = ratio(1e-3), ratio(5e-4), ratio(2.5e-4)
    assert c == pytest.approx(b, rel=2e-3)
    assert (a - b) / (b - c) == pytest.approx(2, rel=0.02)


def test_large_beta_limit():
    # c vanishes but within 1/beta of consensus: P -> 1/2 - arcsin(r0)/pi for every d
    r0 = np.array([-0.7, 0.0, 0.6])
    limit = 0.5 - np.arcsin(r0) / np.pi
    errors = [
        np.abs(two_tokens.antipodal_probability(r0, beta, 64) - limit).max()
        for beta in (1e4, 1e6, 1e8)
    ]
    # in u the wall stands at log(beta)/2: errors fall like beta^(-1/2)
    assert errors[0] < 0.03
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=0.02)


def test_deep_in_the_tail_relative_digits_remain():
    # right of the maximum of S', P(r1)/P(r0) = int_u1 S' / int_u0 S'; both from S' itself here
    beta, d = 4.0, 300
    u = np.arctanh([0.3, 0.8])
    between, beyond = mass(u[0], u[1], beta, d), mass(u[1], u[1] + 3, beta, d)
    g = quad(lambda v: 1 / np.cosh(beta * (1 - np.tanh(v))), *u, epsrel=1e-13)[0]
    beyond *= np.cosh(u[0]) / np.cosh(u[1]) * np.exp(-(d - 2) * g)
    expected = beyond / (between + beyond)
    p = two_tokens.antipodal_probability([0.3, 0.8], beta, d)
    assert p[1] < 1e-20
    assert p[1] / p[0] == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(r0=st.tuples(OVERLAPS, OVERLAPS), beta=BETAS, d=DIMENSIONS)
def test_probability_falls_with_the_overlap_and_the_dimension(r0, beta, d):
    low, high = sorted(r0)
    p = two_tokens.antipodal_probability([low, high], beta, d)
    assert np.isfinite(p).all()
    assert 0 <= p[1] <= p[0] * (1 + 1e-12) <= 1 + 1e-11
    assert two_tokens.antipodal_probability(high, beta, d + 1) <= p[1] * (1 + 1e-11)


def test_arguments_broadcast():
    r0, beta, d = np.array([-0.5, 0.2])[:, None, None], np.array([1.0, 3.0])[:, None], [2, 5, 9]
    p = two_tokens.antipodal_probability(r0, beta, d)
    assert p.shape == (2, 2, 3)
    assert p[1, 0, 2] == two_tokens.antipodal_probability(0.2, 1.0, 9)
    assert two_tokens.antipodal_probability(np.zeros((0, 3)), 1.0, 4).shape == (0, 3)
    assert two_tokens.expected_overlap(np.zeros((0, 3)), 1.0, 1.0, 4).shape == (0, 3)


def test_expected_overlap_values():
    assert two_tokens.expected_overlap(0.0, 1.0, 1.5, 4) == pytest.approx(0.370385, abs=5e-7)
    assert two_tokens.expected_overlap(-0.3, 1.0, 1.0, 8) == pytest.approx(0.824893, abs=5e-7)


def chebyshev_overlap(r0, t, beta, d, pull=0.0, size=220):
    """E[r_t] by Chebyshev collocation in r itself and a dense matrix exponential."""
    j = np.arange(size + 1)
    r = np.cos(np.pi * j / size)
    c = np.where((j == 0) | (j == size), 2.0, 1.0) * (-1.0) ** j
    gap = r[:, None] - r[None, :] + np.eye(size + 1)
    first = np.outer(c, 1 / c) / gap
    first -= np.diag(first.sum(axis=1))
    drift, diffusion = two_tokens.drift(r, beta, d, pull=pull), two_tokens.diffusion(r, beta, d)
    generator = drift[:, None] * first + diffusion[:, None] ** 2 / 2 * (first @ first)
    v = expm(t * generator) @ r
    gaps = r0 - r
    weights = 1 / (gaps * c)
    return weights @ v / weights.sum()


@pytest.mark.parametrize(
    ("r0", "t", "beta", "d", "pull"),
    [
        (0.1, 1.0, 1.5, 4, 0.0),
        (-0.31, 0.5, 1.0, 8, 0.0),
        (0.7, 0.7, 3.0, 2, 0.0),
        (-0.9, 0.2, 0.0, 20, 0.0),
        (0.1, 0.6, 1.5, 4, 2.0),
        (0.6, 0.6, 1.5, 4, -3.0),
        (0.3, 0.15, 0.8, 12, -8.0),
    ],
)
def test_expected_overlap_against_collocation_in_r(r0, t, beta, d, pull):
    expected = chebyshev_overlap(r0, t, beta, d, pull)
    found = two_tokens.expected_overlap(r0, t, beta, d, pull=pull)
    assert found == pytest.approx(expected, abs=2e-7)


def test_a_push_is_followed_for_long():
    # consensus repels: the antipode wins in the end, however near to 1 the start
    r = two_tokens.expected_overlap(0.999999, [4.0, 40.0], 2.0, 3, pull=-2.0)
    assert r[0] > -0.99
    assert r[1] == pytest.approx(-1, abs=5e-3)


@pytest.mark.parametrize(("beta", "d"), [(2.0, 3), (3.0, 8), (0.7, 2)])
def test_expected_overlap_ends_at_the_splitting_probability(beta, d):
    r0 = np.array([-0.95, 0.0, 0.4])
    limit = 1 - 2 * two_tokens.antipodal_probability(r0, beta, d)
    np.testing.assert_allclose(two_tokens.expected_overlap(r0, 400.0, beta, d), limit, atol=1e-9)


@pytest.mark.parametrize(
    ("r0", "t", "beta", "d"),
    [(0.0, 1.0, 1.5, 4), (-0.5, 3.0, 1e4, 8), (-0.99, 20.0, 0.66, 4), (0.0, 0.05, 100.0, 200)],
)
def test_expected_overlap_does_not_depend_on_the_grid(r0, t, beta, d, monkeypatch):
    u0, times = np.arctanh([r0]), np.array([t])
    usual = _backward.expected_gain(u0, times, beta, d)
    monkeypatch.setattr(_backward, "_TOLERANCE", 3e-12)
    finer = _backward.expected_gain(u0, times, beta, d, refine=1.7)
    assert usual == pytest.approx(finer, abs=1e-10)


def test_expected_overlap_of_many_at_once():
    r0, t = np.array([-0.4, 0.2, 0.2])[:, None], np.array([0.7, 0.0, 0.1, 0.7])
    together = two_tokens.expected_overlap(r0, t, 2.0, 3)
    assert together.shape == (3, 4)
    np.testing.assert_array_equal(together[:, 1], r0[:, 0])
    np.testing.assert_array_equal(together[1], together[2])
    alone = two_tokens.expected_overlap(0.2, 0.1, 2.0, 3)
    assert together[1, 2] == pytest.approx(alone, abs=1e-10)


@pytest.mark.parametrize(
    ("u", "beta", "d", "pull"),
    [(0.2, 1.5, 4, 0.0), (-0.6, 3.0, 2, 0.0), (1.0, 2.0, 12, 0.0), (0.2, 1.5, 4, -2.0)],
)
def test_simulation_has_weak_order_2(u, beta, d, pull):
    """The error of the mean after one step, by Gauss-Hermite quadrature, falls like h^3."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    class Nodes:
        def standard_normal(self, shape):
            return nodes

    def error(h):
        start = np.full(nodes.size, u)
        moved = np.tanh(two_tokens._platen_step(start, beta, d, h, Nodes(), pull))
        mean = weights @ moved / weights.sum()
        return mean - two_tokens.expected_overlap(np.tanh(u), h, beta, d, pull=pull)

    h = np.array([1 / 8, 1 / 16, 1 / 32]) / np.sqrt(d)
    errors = np.array([error(x) for x in h])
    orders = np.log2(np.abs(errors[:-1] / errors[1:]))
    assert orders[-1] > 2.6


def test_simulation_follows_the_theory():
    # levels fixed beforehand: 4.5 standard errors; chi-square at 1e-5
    rng = np.random.default_rng(11)
    r0, beta, d, paths = 0.1, 2.0, 3, 8000
    times = np.array([0.0, 0.5, 0.5, 20.0])
    r = two_tokens.simulate(r0, beta, d, times, paths=paths, rng=rng)
    assert r.shape == (4, paths)
    np.testing.assert_array_equal(r[0], r0)
    np.testing.assert_array_equal(r[1], r[2])
    expected = two_tokens.expected_overlap(r0, 0.5, beta, d)
    assert abs(r[1].mean() - expected) < 4.5 * r[1].std() / np.sqrt(paths)
    assert np.mean(np.abs(r[3]) > 0.9) > 0.999
    ended = int((r[3] < 0).sum())
    p = two_tokens.antipodal_probability(r0, beta, d)
    assert stats.binomtest(ended, paths, p).pvalue > 1e-5
    # a control: the probability of the next dimension is refused
    wrong = two_tokens.antipodal_probability(r0, beta, d + 1)
    assert stats.binomtest(ended, paths, wrong).pvalue < 1e-5


def test_simulation_near_both_ends():
    # 1 - r and 1 + r change at the rates of the exponents, long after r rounds to its end
    rng = np.random.default_rng(2)
    for u, sign, which in ((6.0, 1, 0), (-6.0, -1, 1)):
        start = np.full(4000, u)
        moved = start
        for _ in range(64):
            moved = two_tokens._platen_step(moved, 2.0, 3, 1 / 32, rng)
        # log(1 - |r|) = -2 |u|, up to a constant
        rate = -sign * 2 * (moved - start) / 2.0
        exponent = two_tokens.lyapunov_exponents(2.0, 3)[which]
        assert abs(rate.mean() - exponent) < 4.5 * rate.std() / np.sqrt(4000)


def test_simulation_starts_path_by_path():
    rng = np.random.default_rng(3)
    r = two_tokens.simulate([-0.5, 0.5], 1e4, 1024, [0.0, 0.01], paths=2, rng=rng)
    np.testing.assert_array_equal(r[0], [-0.5, 0.5])
    assert (np.abs(r) <= 1).all()


def test_a_strong_pull_is_the_flow():
    # noise of strength s for time t is pull 1/s^2 for time s^2 t; the flow has no noise at all
    beta, small, t = 1.0, 1e-8, 1.5
    x = flow.solve(pair(-0.4), beta, [0.0, t], rtol=1e-11).tokens[-1]
    rng = np.random.default_rng(4)
    r = two_tokens.simulate(-0.4, beta, 3, [0.0, small * t], pull=1 / small, paths=20, rng=rng)
    np.testing.assert_allclose(r[1], x[0] @ x[1], atol=5 * np.sqrt(small * t) + 2e-2)
    expected = two_tokens.expected_overlap(-0.4, 1e-3 * t, beta, 3, pull=1e3)
    assert expected == pytest.approx(x[0] @ x[1], abs=5e-3)


BAD = [
    (lambda: two_tokens.critical_beta(3, pull=-0.1), "pull must be >= 0, got .*-0.1"),
    (lambda: two_tokens.simulate(0.0, 1.0, 3, [0.0], pull=np.nan, paths=1, rng=None), "pull must"),
    (lambda: two_tokens.drift(1.1, 1.0, 3), "r must satisfy -1 <= r <= 1, got .*1.1"),
    (lambda: two_tokens.drift(np.nan, 1.0, 3), "r must be finite"),
    (lambda: two_tokens.diffusion(0.0, -1.0, 3), "beta must be >= 0, got .*-1"),
    (lambda: two_tokens.critical_beta(1), "d must be whole and >= 2, got .*1"),
    (lambda: two_tokens.critical_beta(2.5), "d must be whole and >= 2, got .*2.5"),
    (lambda: two_tokens.lyapunov_exponents(np.inf, 3), "beta must be finite"),
    (lambda: two_tokens.antipodal_probability(1.0, 1.0, 3), "-1 < r0 < 1, got .*1"),
    (lambda: two_tokens.antipodal_probability("x", 1.0, 3), "r0 must be an array of real"),
    (lambda: two_tokens.expected_overlap(-1.0, 1.0, 1.0, 3), "-1 < r0 < 1"),
    (lambda: two_tokens.expected_overlap(0.0, -1.0, 1.0, 3), "t must be >= 0, got .*-1"),
    (lambda: two_tokens.expected_overlap(0.0, 1.0, [1.0], 3), "beta must be a finite number"),
    (
        lambda: two_tokens.simulate(0.0, 1.0, 3, [1.0, 0.0], paths=1, rng=np.random.default_rng(1)),
        "times must be",
    ),
    (
        lambda: two_tokens.simulate(0.0, 1.0, 3, [0.0], paths=0, rng=np.random.default_rng(1)),
        "paths must be a whole number >= 1, got 0",
    ),
    (
        lambda: two_tokens.simulate(
            [0.0, 0.1], 1.0, 3, [0.0], paths=3, rng=np.random.default_rng(1)
        ),
        r"r0 must be one number or have shape \(3,\), got shape \(2,\)",
    ),
    (lambda: two_tokens.simulate(0.0, 1.0, 3, [0.0], paths=1, rng=7), "rng must be a numpy"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
