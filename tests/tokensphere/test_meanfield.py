"""The mean-field equation: two solvers against each other, exact rates, symmetries and tokens."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import iv, ive
from scipy.stats import wasserstein_distance

from tokensphere import circle, meanfield

EPS = np.finfo(float).eps
KINDS = ("softmax", "unnormalized")
SOLVERS = (
    functools.partial(meanfield.solve_characteristics, tokens=1024),
    functools.partial(meanfield.solve_spectral, modes=128),
)
SOLVER_NAMES = ("characteristics", "spectral")


def angles(size):
    return 2 * np.pi * np.arange(size) / size


def bumps(size, shift=0.0):
    """A smooth density with no symmetry: two bumps of different height and width."""
    theta = angles(size) - shift
    bump = np.exp(2 * np.cos(theta - 1)) + 3 * np.exp(0.8 * np.cos(theta + 1.7)) + 1
    return bump / (bump.mean() * 2 * np.pi)


def rate(k, beta, kind):
    if kind == "unnormalized":
        return k**2 * iv(k, beta) / beta
    return k**2 * ive(k, beta) / ive(0, beta) / beta


def interpolated(run, t, theta):
    """The trigonometric interpolant of a spectral solution at other angles."""
    size = run.angles.shape[1]
    k = np.arange(1, size // 2 + 1)
    mode = run.modes(k)[t]
    return (1 + 2 * (np.exp(1j * np.outer(theta, k)) @ mode).real) / (2 * np.pi)


@pytest.mark.parametrize("kind", KINDS)
def test_the_solvers_agree(kind):
    """Two independent methods, to 1e-7, on modes and on the density itself."""
    horizon = 0.15 if kind == "unnormalized" else 2.0
    times = horizon * np.array([0.0, 0.3, 1.0])
    moving = meanfield.solve_characteristics(bumps(64), 4.0, times, kind, tokens=2048, rtol=1e-10)
    fixed = meanfield.solve_spectral(bumps(64), 4.0, times, kind, modes=192, rtol=1e-10)
    assert fixed.tail is not None
    assert fixed.tail.max() < 1e-8
    k = np.arange(1, 30)
    np.testing.assert_allclose(moving.modes(k), fixed.modes(k), atol=1e-8)
    for t in range(3):
        seen = interpolated(fixed, t, moving.angles[t])
        np.testing.assert_allclose(moving.density[t], seen, rtol=1e-6, atol=1e-7)
    # the density has changed a great deal meanwhile
    assert moving.density[2].max() > 1.5 * moving.density[0].max()


def test_convergence_in_tokens_beats_any_power():
    """The midpoint rule in the cumulative mass, on a density with a contrast of 100."""
    theta = angles(32)
    density = np.exp(1.5 * np.cos(theta - 1) + 0.8 * np.cos(2 * theta))
    k = np.arange(1, 9)
    exact = meanfield.solve_spectral(density, 4.0, [0.0, 0.4], "softmax", rtol=1e-11).modes(k)
    errors = []
    for n in (128, 256, 512, 1024):
        run = meanfield.solve_characteristics(
            density, 4.0, [0.0, 0.4], "softmax", tokens=n, rtol=1e-11
        )
        errors.append(np.abs(run.modes(k) - exact)[1].max())
    order = np.log2(np.array(errors[:-1]) / errors[1:])
    assert order[0] > 2
    assert (np.diff(order) > 2).all()
    assert errors[-1] < 1e-8


def test_they_part_where_modes_run_out():
    """Collapsing into clusters: the tail announces where the spectral solution ends."""
    theta = angles(64)
    times = np.linspace(0, 0.4, 17)
    density = 1 + 0.05 * np.cos(3 * theta) + 0.01 * np.sin(theta)
    moving = meanfield.solve_characteristics(density, 5.0, times, tokens=4096)
    fixed = meanfield.solve_spectral(density, 5.0, times, modes=96)
    k = np.arange(1, 13)
    error = np.abs(moving.modes(k) - fixed.modes(k)).max(axis=-1)
    good = fixed.tail < 1e-6
    assert 3 < good.sum() < 17
    assert good[: good.sum()].all()
    assert error[good].max() < 1e-6
    assert error[-1] > 1e-3
    # the characteristics go on: tokens gather in three points of a third each, or nearly so
    end = moving.angles[-1]
    assert moving.density[-1].max() > 1e3
    assert np.abs(moving.modes(3)[-1]) > 0.8
    assert (np.diff(end) >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS, ids=SOLVER_NAMES)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_growth_rates(solver, kind, k):
    """Small perturbations of the uniform density grow at gamma_k, and keep their phase."""
    beta, epsilon, phase = 5.0, 1e-6, 0.7
    gamma = rate(k, beta, kind)
    density = 1 + epsilon * np.cos(k * angles(32) - phase)
    mode = solver(density, beta, [0.0, 2 / gamma], kind, rtol=1e-12).modes(k)
    np.testing.assert_allclose(mode[0], epsilon / 2 * np.exp(-1j * phase), atol=1e-14)
    np.testing.assert_allclose(mode[1] / mode[0], math.exp(2), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_beta_zero_is_a_mobius_flow(kind):
    """chi = -Im(conj(m_1) e^{i theta}): tan(theta/2) scales by e^{-s} about the mean direction.

    From uniform plus a first harmonic of a symmetric density, the point at the mean's direction
    stays, its antipode stays, and log|tan((theta - a)/2)| falls equally fast for all.
    """
    theta = angles(64)
    density = 1 + 0.3 * np.cos(theta - 0.5)
    times = [0.0, 1.0, 2.5]
    run = meanfield.solve_characteristics(density, 0.0, times, kind, tokens=2048, rtol=1e-11)
    moved = np.log(np.abs(np.tan((run.angles - 0.5) / 2)))
    fall = moved - moved[0]
    for t in (1, 2):
        assert fall[t].max() - fall[t].min() < 1e-7
        assert fall[t].mean() < -0.1
    # s' = |m_1|; and the density follows from the map of the initial quantiles
    ratio = np.sin(run.angles[0] - 0.5) / np.sin(run.angles - 0.5)
    expected = run.density[0] * ratio
    inner = np.abs(np.sin(run.angles[0] - 0.5)) > 0.05
    np.testing.assert_allclose(run.density[:, inner], expected[:, inner], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS, ids=SOLVER_NAMES)
def test_mass_is_conserved_to_rounding(solver, kind):
    times = np.linspace(0, 0.05 if kind == "unnormalized" else 1.0, 6)
    run = solver(bumps(64), 4.0, times, kind)
    np.testing.assert_allclose(run.mass.sum(axis=-1), 1, rtol=0, atol=32 * EPS)
    np.testing.assert_allclose(run.modes(0), 1, rtol=0, atol=32 * EPS)
    # and, by the trapezoidal rule, in the density that the tokens report
    if solver is SOLVERS[0]:
        gaps = np.diff(run.angles, append=run.angles[:, :1] + 2 * np.pi)
        total = (gaps * (run.density + np.roll(run.density, -1, axis=-1)) / 2).sum(axis=-1)
        np.testing.assert_allclose(total, 1, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS, ids=SOLVER_NAMES)
def test_rotation_and_reflection(solver):
    times = [0.0, 0.04]
    k = np.arange(1, 9)
    plain = solver(bumps(96), 4.0, times, rtol=1e-10).modes(k)
    turned = solver(bumps(96, 0.6), 4.0, times, rtol=1e-10).modes(k)
    np.testing.assert_allclose(turned, plain * np.exp(-0.6j * k), atol=1e-8)
    mirrored = solver(np.roll(bumps(96)[::-1], 1), 4.0, times, rtol=1e-10).modes(k)
    np.testing.assert_allclose(mirrored, np.conj(plain), atol=1e-8)
    # scale does not matter: densities are divided by their mass
    doubled = solver(2 * bumps(96), 4.0, times, rtol=1e-10).modes(k)
    np.testing.assert_allclose(doubled, plain, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS, ids=SOLVER_NAMES)
def test_uniform_is_stationary(solver):
    run = solver(np.ones(16), 5.0, [0.0, 0.2])
    np.testing.assert_allclose(run.density, 1 / (2 * np.pi), rtol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS, ids=SOLVER_NAMES)
def test_period_is_kept(solver):
    """A 2 pi / 3 periodic start stays so: modes that are no multiples of 3 remain zero."""
    density = np.exp(0.2 * np.cos(3 * angles(96)) + 0.1 * np.sin(6 * angles(96)))
    run = solver(density, 5.0, [0.0, 0.05, 0.1])
    assert np.abs(run.modes([1, 2, 4, 5, 7, 8])).max() < 1e-9
    assert np.abs(run.modes(3)[-1]) > 2 * np.abs(run.modes(3)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_the_characteristics_are_tokens_of_the_circle(kind):
    """Equal weights at the quantiles: exactly the flow of n tokens."""
    horizon = 0.3 if kind == "unnormalized" else 5.0
    run = meanfield.solve_characteristics(
        bumps(32), 4.0, [0.0, horizon], kind, tokens=200, rtol=1e-11
    )
    tokens = circle.solve(run.angles[0], 4.0, [0.0, horizon], kind=kind, rtol=1e-11)
    np.testing.assert_allclose(run.angles, tokens.angles, atol=1e-8)


def test_quantiles_and_start():
    theta = angles(33)
    density = (1 + 0.4 * np.cos(theta - 1) + 0.2 * np.sin(2 * theta)) / (2 * np.pi)
    run = meanfield.solve_characteristics(density, 1.0, [0.0], tokens=50)
    x = run.angles[0]

    def cumulative(t):
        whole = t + 0.4 * (np.sin(t - 1) + np.sin(1)) + 0.1 * (1 - np.cos(2 * t))
        return whole / (2 * np.pi)

    np.testing.assert_allclose(cumulative(x), (np.arange(50) + 0.5) / 50, atol=1e-13)
    exact = (1 + 0.4 * np.cos(x - 1) + 0.2 * np.sin(2 * x)) / (2 * np.pi)
    np.testing.assert_allclose(run.density[0], exact, rtol=1e-12)
    spectral = meanfield.solve_spectral(density, 1.0, [0.0], modes=40)
    assert spectral.angles.shape == (1, 81)
    exact = (1 + 0.4 * np.cos(angles(81) - 1) + 0.2 * np.sin(2 * angles(81))) / (2 * np.pi)
    np.testing.assert_allclose(spectral.density[0], exact, rtol=1e-12)


def test_highest_mode_of_an_even_grid():
    """1 + 0.3 cos(2 theta) on four angles: the mode on the edge is a cosine, of full height."""
    for size in (4, 5, 8):
        density = 1 + 0.3 * np.cos(2 * angles(size))
        run = meanfield.solve_characteristics(density, 1.0, [0.0], tokens=300)
        exact = (1 + 0.3 * np.cos(2 * run.angles)) / (2 * np.pi)
        np.testing.assert_allclose(run.density, exact, rtol=1e-12)
        for solver in SOLVERS:
            mode = solver(density, 1.0, [0.0]).modes([1, 2, 3])
            np.testing.assert_allclose(mode, [[0, 0.15, 0]], atol=1e-12)


def test_galerkin_without_aliasing():
    """With few modes, the first instant against the convolution written out.

    d mu_k / dt = -ik sum_{l + m = k} (i gamma_l / l) mu_l mu_m over |l|, |m|, |k| <= N.
    """
    top, beta, t = 4, 5.0, 1e-7
    rng = np.random.default_rng(6)
    density = 1 + 0.3 * rng.uniform(size=2 * top + 1)
    mode = np.fft.fft(density) / density.sum()  # index k modulo 2 N + 1

    def slope(k):
        total = 0.0
        for l in range(-top, top + 1):
            if l and abs(k - l) <= top:
                total += 1j * abs(l) ** 2 * iv(abs(l), beta) / beta / l * mode[l] * mode[k - l]
        return -1j * k * total

    run = meanfield.solve_spectral(density, beta, [0.0, t], modes=top, rtol=1e-13)
    found = np.diff(run.modes(np.arange(1, top + 1)), axis=0)[0] / t
    np.testing.assert_allclose(found, [slope(k) for k in range(1, top + 1)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [9999, 1000])
def test_rough_start(size):
    """Uniform plus white noise of 1 % per cell, odd and even grids: both solvers, same modes."""
    density = 1 + 0.01 * np.random.default_rng(3).standard_normal(size)
    times = [0.0, 0.1, 0.2]
    moving = meanfield.solve_characteristics(density, 5.0, times, tokens=2 * size, rtol=1e-7)
    fixed = meanfield.solve_spectral(density, 5.0, times, modes=256, rtol=1e-7)
    k = np.arange(1, 9)
    expected = np.fft.fft(density)[k] / density.sum()
    np.testing.assert_allclose(moving.modes(k)[0], expected, atol=1e-6)
    np.testing.assert_allclose(fixed.modes(k)[0], expected, atol=1e-14)
    # noise above mode 256 is not in the second: it reaches low modes at second order, 1e-4^2
    np.testing.assert_allclose(moving.modes(k), fixed.modes(k), atol=1e-5)
    assert np.abs(fixed.modes(3)[2]) > 10 * np.abs(fixed.modes(3)[0])


def test_many_tokens_approach_the_density():
    """n iid tokens stay close to the equation: W_1 falls like n^{-1/2} at a fixed time."""
    times, beta = [0.0, 0.1], 3.0
    run = meanfield.solve_characteristics(bumps(64), beta, times, tokens=4096)
    rng = np.random.default_rng(4)
    mean = []
    for n in (100, 1600):
        distance = []
        for _ in range(40):
            start = np.interp(rng.uniform(size=n), (np.arange(4096) + 0.5) / 4096, run.angles[0])
            end = circle.solve(start, beta, times).angles[-1]
            distance.append(meanfield.transport_distance(end, run.angles[-1]))
        mean.append(np.mean(distance))
    # 16 times the tokens: a quarter, within four standard errors (each mean is known to 7 %)
    assert mean[0] / mean[1] == pytest.approx(4, rel=0.4)


def test_smoothed_density_is_a_sum_of_gaussians():
    theta = np.random.default_rng(5).uniform(0, 2 * np.pi, (2, 7))
    width, size = 0.3, 90
    found = meanfield.smoothed_density(theta, size, width)
    assert found.shape == (2, size)
    x = angles(size)
    expected = np.zeros((2, size))
    for turn in range(-3, 4):
        gap = x - theta[..., None] + 2 * np.pi * turn
        expected += np.exp(-(gap**2) / (2 * width**2)).mean(axis=1)
    expected /= width * np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(found.mean(axis=-1) * 2 * np.pi, 1, atol=1e-14)
    assert meanfield.smoothed_density(theta.astype(np.float32), 90, 0.3).dtype == np.float32


def test_transport_distance_by_hand():
    w = meanfield.transport_distance
    assert w([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == 0
    assert w([0.1], [6.2]) == pytest.approx(0.1 + 2 * np.pi - 6.2, abs=1e-14)
    assert w([0.0, 0.0], [np.pi]) == pytest.approx(np.pi)
    assert w([0.0, np.pi], [0.1, np.pi - 0.2]) == pytest.approx(0.15)
    # all rotate by 0.05: every token goes 0.05, none goes round
    ring = angles(10)
    assert w(ring, ring + 0.05) == pytest.approx(0.05)
    # one point against the uniform: the mean distance, pi/2
    assert w([1.0], angles(100_000)) == pytest.approx(np.pi / 2, abs=1e-6)
    assert w(np.zeros((3, 2, 4)), np.ones((2, 5))).shape == (3, 2)
    with pytest.raises(ValueError, match="other must"):
        w(np.zeros((3, 4)), np.zeros((2, 4)))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32), st.floats(-9, 9))
def test_transport_distance_properties(n, m, seed, shift):
    """On an arc shorter than half the circle it is the distance on the line; and a metric."""
    rng = np.random.default_rng(seed)
    w = meanfield.transport_distance
    a, b = rng.uniform(0, 3, n), rng.uniform(0, 3, m)
    assert w(a, b) == pytest.approx(wasserstein_distance(a, b), abs=1e-12)
    assert w(a + shift, b + shift) == pytest.approx(w(a, b), abs=1e-12)
    a, b, c = (rng.uniform(0, 2 * np.pi, size) for size in (n, m, 5))
    assert w(a, b) == pytest.approx(w(b, a), abs=1e-12)
    assert w(a, b) <= w(a, c) + w(c, b) + 1e-12
    assert w(a, b) <= np.pi + 1e-12
    # no cut of the circle transports for less
    cuts = [
        wasserstein_distance((a - cut) % (2 * np.pi), (b - cut) % (2 * np.pi))
        for cut in np.concatenate([a, b])
    ]
    assert w(a, b) <= min(cuts) + 1e-12


@settings(deadline=None, max_examples=10)
@given(st.floats(0, 6), st.integers(0, 2**32), st.sampled_from(KINDS))
def test_solvers_agree_property(beta, seed, kind):
    rng = np.random.default_rng(seed)
    theta = angles(32)
    density = np.exp(
        sum(rng.normal() / k * np.cos(k * theta - rng.uniform(0, 6)) for k in (1, 2, 3))
    )
    t = 0.3 * (1.0 if kind == "softmax" else math.exp(-beta))
    moving = meanfield.solve_characteristics(density, beta, [0.0, t], kind, tokens=4096, rtol=1e-9)
    fixed = meanfield.solve_spectral(density, beta, [0.0, t], kind, modes=256, rtol=1e-9)
    k = np.arange(1, 9)
    np.testing.assert_allclose(moving.modes(k), fixed.modes(k), atol=1e-7)
