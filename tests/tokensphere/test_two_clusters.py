"""Two clusters against the plain formulas, other methods, and the layered model itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tokensphere import layers, two_clusters, two_tokens
from tokensphere.two_clusters import mean_merge_time


def plain(r, sizes, beta, d):
    """Drift and squared noise as they follow from the speeds q_i and the mixing S."""
    m1, m2 = sizes
    a1 = m2 * np.exp(beta * r) / (m1 * np.exp(beta) + m2 * np.exp(beta * r))
    a2 = m1 * np.exp(beta * r) / (m2 * np.exp(beta) + m1 * np.exp(beta * r))
    q = 2 - 2 * (a1 * (1 - a1) + a2 * (1 - a2)) * (1 - r)
    p = r + (a1 + a2 - 2 * a1 * a2) * (1 - r)
    return (d - 2 + r**2) * p - (d - 1) / 2 * q * r, (1 - r**2) * (q - 2 * r * p)


def marched_time(sizes, beta, d, r0, merged):
    """Solve sigma^2 T''/2 + mu T' = -1 for G = T', from G(-1) = -1/mu(-1), in log(1 + r)."""
    ell = math.log(sizes[1] / sizes[0])

    def coefficients(up):
        r, total = up - 1, math.cosh(beta * (2 - up)) + math.cosh(ell)
        s, delta = math.cosh(ell) / total, math.sinh(ell) / total
        mu = (1 - r) * (up * (s * (d - 2 + r) - r) - (d - 1) * r * delta**2)
        return mu, 2 * (1 - r) ** 2 * up * (delta**2 + up * (1 - s))

    def slope(x, y):
        up = math.exp(x)
        mu, squared = coefficients(up)
        return [-2 * up * (1 + mu * y[0]) / squared, up * y[0]]

    ends = np.log([1e-13, 1 + r0, 1 + merged])
    start = [-1 / coefficients(0.0)[0], 0.0]
    found = solve_ivp(slope, ends[[0, 2]], start, "Radau", ends[1:], rtol=1e-8, atol=1e-10)
    return found.y[1, 0] - found.y[1, 1]


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (7, 3), (1, 400)])
@pytest.mark.parametrize("d", [2, 3, 12])
def test_coefficients_are_the_plain_formula(sizes, d):
    r, beta = np.meshgrid(np.linspace(-1, 1, 41), [0.0, 0.4, 2.0])
    drift, squared = plain(r, sizes, beta, d)
    np.testing.assert_allclose(two_clusters.drift(r, sizes, beta, d), drift, atol=1e-13 * d)
    noise = two_clusters.diffusion(r, sizes, beta, d)
    np.testing.assert_allclose(noise**2, squared, atol=1e-13)


@settings(max_examples=50, deadline=None)
@given(
    m=st.integers(1, 10**6),
    beta=st.floats(0, 1e4),
    d=st.integers(2, 1000),
    r=st.floats(-1, 1),
)
def test_equal_groups_are_two_tokens(m, beta, d, r):
    drift = two_clusters.drift(r, (m, m), beta, d)
    assert drift == pytest.approx(two_tokens.drift(r, beta, d), rel=1e-12, abs=1e-12 * d)
    noise = two_clusters.diffusion(r, (m, m), beta, d)
    assert noise == pytest.approx(two_tokens.diffusion(r, beta, d), rel=1e-7, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    beta=st.floats(0, 1e4),
    r=st.floats(-1, 1),
)
def test_the_groups_are_interchangeable(sizes, beta, r):
    for function in (two_clusters.drift, two_clusters.diffusion):
        value = function(r, sizes, beta, 5)
        assert value == pytest.approx(function(r, sizes[::-1], beta, 5), rel=1e-9, abs=1e-13)


def test_unequal_groups_leave_the_antipode():
    # 1 + r is there a squared Bessel process of dimension d - 1: drift / (noise^2 / (1 + r))
    for sizes, beta, d in (((1, 2), 1.0, 3), ((3, 10), 0.3, 2), ((15, 17), 4.0, 8)):
        eps = 1e-12
        drift = two_clusters.drift(-1.0, sizes, beta, d)
        squared = two_clusters.diffusion(-1 + eps, sizes, beta, d) ** 2
        assert drift > 0
        assert drift * eps / squared == pytest.approx((d - 1) / 4, rel=2e-3)
    assert two_clusters.drift(-1.0, (4, 4), 1.0, 3) == 0


VALUES = [
    ((1, 2), 1.0, 3, 0.0, 4.4857216245),
    ((1, 2), 0.5, 3, 0.0, 3.5344961914),
    ((1, 3), 1.0, 4, 0.0, 2.0654335764),
    ((1, 2), 3.0, 3, -0.9, 381.7022165024),
    ((15, 17), 4.0, 8, -0.9, 6792.6721542461),
]


@pytest.mark.parametrize(("sizes", "beta", "d", "r0", "expected"), VALUES)
def test_merge_time_values(sizes, beta, d, r0, expected):
    assert mean_merge_time(sizes, beta, d, r0=r0) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("sizes", "beta", "d", "r0", "merged"),
    [
        *[(*case[:4], 0.99) for case in VALUES],
        ((2, 3), 1.5, 2, -0.99, 0.9),
        ((1, 50), 0.0, 2, 0.5, 0.999),
        ((9, 4), 0.7, 40, -0.5, 0.0),
    ],
)
def test_merge_time_against_the_differential_equation(sizes, beta, d, r0, merged):
    expected = marched_time(sizes, beta, d, r0, merged)
    time = mean_merge_time(sizes, beta, d, r0=r0, merged=merged)
    assert time == pytest.approx(expected, rel=1e-6)


def test_equal_groups_merge_in_finite_mean_time_only_below_the_transition():
    critical = two_tokens.critical_beta(8)
    times = [mean_merge_time((5, 5), b, 8, r0=0.0) for b in critical * np.array([0, 0.9, 0.999])]
    assert 0 < times[0] < times[1] < times[2] < np.inf
    assert mean_merge_time((5, 5), critical * 1.001, 8, r0=0.0) == np.inf
    # equality: cosh 2 beta = 1 = d - 2
    assert mean_merge_time((5, 5), 0.0, 3, r0=0.0) == np.inf
    assert mean_merge_time((5, 5), 0.0, 2, r0=0.0) == np.inf
    # nearly equal groups are close to equal ones where those merge, and slow where they do not
    near = mean_merge_time((10**6, 10**6 + 1), 0.3, 8, r0=0.0)
    assert near == pytest.approx(mean_merge_time((5, 5), 0.3, 8, r0=0.0), rel=1e-6)
    assert mean_merge_time((10**6, 10**6 + 1), 2.0, 8, r0=0.0) > 1e4


def agrees(mean, error, expected, h, d):
    """Within 4.5 standard errors and the layers' own error, relative d h; fixed beforehand."""
    return abs(mean - expected) < 4.5 * error + d * h * expected


def test_merge_time_of_equal_groups_against_the_layers():
    # below the transition
    beta, d, h = 0.5, 8, 1 / 200
    found = simulated_time((1, 1), beta, d, 0.0, h, paths=800)
    assert agrees(*found, mean_merge_time((1, 1), beta, d, r0=0.0), h, d)
    # the control: one dimension less
    assert not agrees(*found, mean_merge_time((1, 1), beta, d - 1, r0=0.0), h, d)


def test_merge_time_of_unequal_groups_against_the_layers():
    beta, d, h = 1.0, 4, 1 / 100
    found = simulated_time((1, 3), beta, d, 0.0, h, paths=1000)
    assert agrees(*found, mean_merge_time((1, 3), beta, d, r0=0.0), h, d)
    # the control: other sizes
    assert not agrees(*found, mean_merge_time((2, 3), beta, d, r0=0.0), h, d)


def simulated_time(sizes, beta, d, r0, h, paths):
    """Mean first layer, times h, at which two groups' overlap passes 0.99."""
    rng = np.random.default_rng(20)
    group = np.repeat([0, 1], sizes)
    gram = np.tile(np.where(group[:, None] == group, 1.0, r0), (paths, 1, 1))
    times = np.full(paths, np.nan)
    alive, layer = np.arange(paths), 0
    while alive.size:
        layer += 1
        gram = layers.overlap_chain(gram, beta, d, 1, horizon=h, rng=rng)
        merged = gram[:, 0, -1] >= 0.99
        times[alive[merged]] = layer * h
        alive, gram = alive[~merged], gram[~merged]
    return times.mean(), times.std() / np.sqrt(paths)


def test_it_grows_exponentially_in_beta():
    # log T grows by 2 for a unit of beta, up to terms that vanish like 1/beta
    betas = np.array([5.0, 6.0, 20.0, 21.0, 150.0, 151.0])
    logs = np.log([mean_merge_time((2, 3), b, 5, r0=-0.5) for b in betas])
    assert (np.abs(np.diff(logs)[::2] - 2) < 3 / betas[::2] ** 2).all()
    with pytest.raises(OverflowError, match="finite but above 1e308: its logarithm is 19999"):
        mean_merge_time((1, 2), 1e4, 3, r0=0.0)


def test_the_time_is_additive_along_the_way():
    # r0 -> a -> merged
    for sizes, beta, d in (((1, 2), 2.0, 3), ((3, 3), 0.2, 30), ((1, 1000), 0.1, 64)):
        whole = mean_merge_time(sizes, beta, d, r0=-0.7, merged=0.999)
        parts = mean_merge_time(sizes, beta, d, r0=-0.7, merged=0.2) + mean_merge_time(
            sizes, beta, d, r0=0.2, merged=0.999
        )
        assert whole == pytest.approx(parts, rel=1e-11)


def test_merged_already_and_far_ends():
    assert mean_merge_time((1, 2), 1.0, 3, r0=0.995) == 0
    assert mean_merge_time((4, 4), 3.0, 3, r0=0.99) == 0
    ends = mean_merge_time((1, 2), 1.0, 3, r0=-1 + 1e-15, merged=1 - 1e-15)
    assert mean_merge_time((1, 2), 1.0, 3, r0=-0.99, merged=0.99) < ends < 100


BAD = [
    (lambda: mean_merge_time((1, 2, 3), 1.0, 3, r0=0.0), "sizes must be two whole numbers"),
    (lambda: mean_merge_time(3, 1.0, 3, r0=0.0), "sizes must be two whole numbers, got 3"),
    (lambda: mean_merge_time((0, 2), 1.0, 3, r0=0.0), "sizes must be a whole number >= 1, got 0"),
    (lambda: mean_merge_time((1, 2), -1.0, 3, r0=0.0), "beta must be .* >= 0, got -1"),
    (lambda: mean_merge_time((1, 2), 1.0, 1, r0=0.0), "d must be a whole number >= 2, got 1"),
    (lambda: mean_merge_time((1, 2), 1.0, 3, r0=-1.0), "r0 must be .* > -1 and < 1, got -1"),
    (lambda: mean_merge_time((1, 2), 1.0, 3, r0=np.nan), "r0 must be"),
    (lambda: mean_merge_time((1, 2), 1.0, 3, r0=0.0, merged=1.0), "merged must be .* < 1, got 1"),
    (lambda: two_clusters.drift(-1.5, (1, 2), 1.0, 3), "r must satisfy .*-1.5"),
    (lambda: two_clusters.diffusion(0.0, (1, 2), np.nan, 3), "beta must be finite"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
