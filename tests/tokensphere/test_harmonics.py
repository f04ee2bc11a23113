"""Eigenvalues and growth rates against quadrature, series, continued fractions and tables."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import eval_chebyt, eval_gegenbauer, gammaln, roots_jacobi

from tokensphere import harmonics

DIMENSIONS = (2, 3, 4, 8, 64)

USA_TABLE = {
    (2, 5.0): (4.867128, 14.004492, 18.596070, 16.346351, 10.789873, 5.704457),
    (2, 7.0): (22.291299, 70.863606, 109.511340, 116.580001, 96.019594, 64.778980),
    (3, 5.0): (4.749545, 9.259590, 9.978086, 7.583100, 4.470845, 2.154307),
    (3, 10.0): (198.238193, 482.379599, 707.049557, 783.040847, 710.518748, 550.186907),
}
SA_TABLE = {(8, 20.0): (0.292760, 0.532334, 0.680060, 0.726337, 0.686208, 0.588759)}

SWITCHES = {
    2: (1.044457, 3.165434, 6.211298, 10.228483, 15.236277),
    3: (1.816155, 4.425293, 7.962380, 12.477433, 17.984894),
    4: (2.528520, 5.655823, 9.698786, 14.717612, 20.727556),
    8: (5.251111, 10.500342, 16.595043, 23.642704, 31.670632),
    64: (42.618439, 77.736599, 112.636637, 148.133744, 184.448635),
}


def quadrature_eigenvalue(k, beta, d):
    """Funk-Hecke: the mean of e^{beta t} C_k(t)/C_k(1) against (1-t^2)^{(d-3)/2}."""
    t, w = roots_jacobi(120, (d - 3) / 2, (d - 3) / 2)
    if d == 2:
        zonal = eval_chebyt(k, t)
    else:
        zonal = eval_gegenbauer(k, d / 2 - 1, t) / eval_gegenbauer(k, d / 2 - 1, 1.0)
    return (w * np.exp(beta * t) * zonal).sum() / w.sum()


def series_log_eigenvalue(k, beta, d):
    """log of (beta/2)^k Gamma(d/2)/Gamma(k+d/2) (1 + (beta/2)^2/(k+d/2) + ...): small beta."""
    total, term = 1.0, 1.0
    for m in range(1, 60):
        term *= (beta / 2) ** 2 / (m * (k + d / 2 + m - 1))
        total += term
    return k * math.log(beta / 2) + math.lgamma(d / 2) - math.lgamma(k + d / 2) + math.log(total)


def ratios(beta, d, kmax):
    """lambda_k / lambda_0 for k = 0..kmax by the continued fraction of Bessel ratios.

    r_nu = I_{nu+1}/I_nu obeys r_nu = 1/(2(nu+1)/beta + r_{nu+1}): downwards every term is
    positive, so the recurrence is stable at any beta.
    """
    nu = d / 2 - 1
    start = kmax + int(4 * beta) + 200
    r, found = 0.0, np.empty(kmax + 1)
    for i in range(start, -1, -1):
        r = 1.0 / (2 * (nu + i + 1) / beta + r)
        if i < kmax:
            found[i + 1] = r
    found[0] = 1.0
    return np.cumprod(found)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8, 17])
@pytest.mark.parametrize("beta", [0.3, 2.0, 9.0, 25.0])
def test_eigenvalues_by_quadrature(d, beta):
    scale = math.exp(beta)
    for k in range(9):
        expected = quadrature_eigenvalue(k, beta, d)
        # quadrature loses digits by cancellation where lambda_k is tiny
        assert harmonics.kernel_eigenvalue(k, beta, d) == pytest.approx(
            expected, rel=1e-11, abs=1e-14 * scale
        )


def test_eigenvalues_in_closed_form():
    """d = 3: lambda_0 = sinh b / b, lambda_1 = (cosh b - sinh b / b)/b.  d = 2: I_k."""
    for b in (0.5, 2.0, 11.0):
        assert harmonics.kernel_eigenvalue(0, b, 3) == pytest.approx(math.sinh(b) / b, rel=1e-13)
        assert harmonics.kernel_eigenvalue(1, b, 3) == pytest.approx(
            (math.cosh(b) - math.sinh(b) / b) / b, rel=1e-12
        )
        assert harmonics.kernel_eigenvalue(0, b, 2) == pytest.approx(np.i0(b), rel=1e-13)


@pytest.mark.parametrize(("d", "beta"), list(USA_TABLE))
def test_growth_rates_unnormalized(d, beta):
    for k, value in enumerate(USA_TABLE[d, beta], 1):
        assert harmonics.growth_rate(k, beta, d) == pytest.approx(value, abs=5.1e-7)
        assert harmonics.growth_rate(k, beta, d, "unnormalized") == pytest.approx(value, abs=5.1e-7)


@pytest.mark.parametrize(("d", "beta"), list(SA_TABLE))
def test_growth_rates_softmax(d, beta):
    for k, value in enumerate(SA_TABLE[d, beta], 1):
        assert harmonics.growth_rate(k, beta, d, "softmax") == pytest.approx(value, abs=5.1e-7)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_switches(k, d):
    beta = harmonics.mode_switch(k, d)
    assert beta == pytest.approx(SWITCHES[d][k - 1], abs=5.1e-7)
    for kind in ("softmax", "unnormalized"):
        left, right = (harmonics.growth_rate(j, beta, d, kind) for j in (k, k + 1))
        assert left == pytest.approx(right, rel=1e-9)
    assert harmonics.dominant_mode(beta * (1 - 1e-6), d) == k
    assert harmonics.dominant_mode(beta * (1 + 1e-6), d) == k + 1


@pytest.mark.parametrize("d", [2, 3, 8, 64, 512])
@pytest.mark.parametrize("beta", [0.01, 0.5, 5.0, 60.0, 1e3, 1e4])
def test_softmax_rates_by_continued_fraction(d, beta):
    """gamma_k = k (k+d-2) lambda_k / (beta lambda_0), from 0.01 to 10^4."""
    kmax = 400 if beta >= 1e3 else 40
    lam = ratios(beta, d, kmax)
    k = np.arange(1, kmax + 1)
    expected = k * (k + d - 2) * lam[1:] / beta
    measured = np.array([harmonics.growth_rate(int(j), beta, d, "softmax") for j in k])
    usable = expected > 1e-290
    np.testing.assert_allclose(measured[usable], expected[usable], rtol=2e-11)
    assert harmonics.dominant_mode(beta, d) == k[np.argmax(expected)]


@pytest.mark.parametrize(("d", "beta"), [(512, 0.01), (1024, 1e-3), (64, 1e-4), (2, 1e-3)])
def test_rates_where_bessel_functions_underflow(d, beta):
    for k in (1, 2, 3, 5):
        log_eigenvalue = series_log_eigenvalue(k, beta, d)
        assert math.log(harmonics.kernel_eigenvalue(k, beta, d)) == pytest.approx(
            log_eigenvalue, abs=1e-11
        )
        expected = k * (k + d - 2) * math.exp(log_eigenvalue) / beta
        assert harmonics.growth_rate(k, beta, d) == pytest.approx(expected, rel=1e-11)
        ratio = math.exp(log_eigenvalue - series_log_eigenvalue(0, beta, d))
        assert harmonics.growth_rate(k, beta, d, "softmax") == pytest.approx(
            k * (k + d - 2) * ratio / beta, rel=1e-11
        )
    assert harmonics.dominant_mode(beta, d) == 1


@pytest.mark.parametrize("d", [2, 3, 8, 512])
def test_limit_of_no_interaction(d):
    """beta -> 0: lambda_1 / beta -> 1/d, every higher rate goes to 0."""
    assert harmonics.kernel_eigenvalue(0, 0.0, d) == 1
    assert harmonics.kernel_eigenvalue(1, 0.0, d) == 0
    for kind in ("softmax", "unnormalized"):
        assert harmonics.growth_rate(1, 0.0, d, kind) == pytest.approx((d - 1) / d, rel=1e-14)
        assert harmonics.growth_rate(2, 0.0, d, kind) == 0
    assert harmonics.dominant_mode(0.0, d) == 1


def test_logarithms_where_numbers_end():
    """log lambda_k by summing the ascending series in logarithms, all terms positive."""
    for k, beta, d in ((0, 1e3, 2), (3, 1e4, 3), (2000, 700.0, 2), (40, 900.0, 1024), (5, 30.0, 8)):
        m = np.arange(0, 3 * int(beta) + 200)
        terms = (k + 2 * m) * np.log(beta / 2) - gammaln(m + 1) - gammaln(k + m + d / 2)
        expected = terms.max() + np.log(np.exp(terms - terms.max()).sum()) + math.lgamma(d / 2)
        # gammaln of large numbers is what limits the series here
        size = np.abs(gammaln(k + m + d / 2)).max()
        assert harmonics.log_kernel_eigenvalue(k, beta, d) == pytest.approx(
            expected, abs=1e-15 * size + 1e-12
        )
    assert harmonics.kernel_eigenvalue(1, 1e4, 2) == np.inf
    assert harmonics.growth_rate(1, 1e4, 2) == np.inf
    assert harmonics.kernel_eigenvalue(2000, 1.0, 3) == 0


def test_arguments_broadcast():
    k, beta, d = np.array([1, 2, 3]), np.array([[0.0], [4.0]]), 3
    for function in (harmonics.kernel_eigenvalue, harmonics.growth_rate):
        table = function(k, beta, d)
        assert table.shape == (2, 3)
        for place in np.ndindex(2, 3):
            assert table[place] == function(k[place[1]], beta[place[0], 0], d)
    best = harmonics.dominant_mode([[1.0], [5.0]], [2, 8])
    assert best.tolist() == [[1, 1], [3, 1]]


def test_law_of_large_beta_on_the_circle():
    """k_max is close to sqrt(2 beta)."""
    for beta in (100.0, 1e3, 1e4):
        assert abs(harmonics.dominant_mode(beta, 2) - math.sqrt(2 * beta)) <= 1


def test_sum_of_eigenvalues_rebuilds_the_kernel():
    """e^{beta t} = sum_l (2l+1) lambda_l P_l(t) on S^2."""
    beta, t = 6.0, np.linspace(-1, 1, 9)
    lam = [harmonics.kernel_eigenvalue(k, beta, 3) for k in range(50)]
    series = np.polynomial.legendre.legval(t, [(2 * k + 1) * v for k, v in enumerate(lam)])
    np.testing.assert_allclose(series, np.exp(beta * t), atol=1e-13 * math.exp(beta))


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-3, 300.0), st.integers(2, 1024), st.integers(1, 30))
def test_rates_properties(beta, d, k):
    """Eigenvalues are positive and fall with k; USA / SA = lambda_0; recurrence of I_nu."""
    low, mid, high = (harmonics.kernel_eigenvalue(j, beta, d) for j in (k - 1, k, k + 1))
    assert low > mid > high >= 0 or mid < 1e-290
    usa, sa = harmonics.growth_rate(k, beta, d), harmonics.growth_rate(k, beta, d, "softmax")
    if sa > 1e-280:
        zero = harmonics.kernel_eigenvalue(0, beta, d)
        assert usa == pytest.approx(sa * zero, rel=1e-11)
        # I_{nu-1} - I_{nu+1} = (2 nu / beta) I_nu, nu = k + d/2 - 1
        assert low - high == pytest.approx((2 * k + d - 2) / beta * mid, rel=1e-9)
