"""The circle by Fourier series against plain sums, the general code and simulations."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.special import iv, ive

from tokensphere import attention, circle, flow, sphere

EPS = np.finfo(float).eps
KINDS = ("softmax", "unnormalized")


def plain_velocity(theta, beta, kind):
    """theta_i' = -sum_j w_ij sin(theta_i - theta_j), w = e^{beta cos}/n or its softmax."""
    n = len(theta)
    v = np.empty(n)
    for i in range(n):
        gap = [theta[i] - theta[j] for j in range(n)]
        w = [math.exp(beta * (math.cos(g) - 1)) for g in gap]
        total = -math.fsum(a * math.sin(g) for a, g in zip(w, gap))
        v[i] = total / math.fsum(w) if kind == "softmax" else total / n * math.exp(beta)
    return v


def draw(n, seed, batch=()):
    return np.random.default_rng(seed).uniform(0, 2 * np.pi, (*batch, n))


def quantiles(n, epsilon, k, phase):
    """Tokens at the quantiles of (1 + epsilon cos(k theta - phase)) / 2 pi, a crest at u = 0."""
    u = 2 * np.pi * (np.arange(n) + 0.5) / n
    theta = u.copy()
    for _ in range(60):
        theta = u - epsilon / k * np.sin(k * theta)
    return theta + phase / k


def scale(beta, kind):
    return 1.0 if kind == "softmax" else math.exp(beta)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.3, 5.0, 7.0, 40.0])
@pytest.mark.parametrize("n", [1, 2, 9, 64])
def test_velocity_against_plain_sums(n, beta, kind):
    theta = draw(n, 10 * n)
    np.testing.assert_allclose(
        circle.velocity(theta, beta, kind),
        plain_velocity(theta, beta, kind),
        rtol=0,
        atol=1e-13 * scale(beta, kind),
    )


def test_unnormalized_is_the_default():
    theta = draw(20, 1)
    default, named = circle.velocity(theta, 2.0), circle.velocity(theta, 2.0, "unnormalized")
    assert (default == named).all()


def test_two_tokens_attract():
    """Token 0 at angle 0, token 1 at +1: the first turns up, the second down, same speed."""
    v = circle.velocity([0.0, 1.0], 2.0)
    speed = math.exp(2 * math.cos(1)) * math.sin(1) / 2
    np.testing.assert_allclose(v, [speed, -speed], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 1.0, 5.0, 30.0])
def test_velocity_is_attention_along_the_circle(kind, beta):
    theta = draw(50, 3)
    v = attention.velocity(sphere.from_angles(theta), beta, kind)
    along = np.stack([-np.sin(theta), np.cos(theta)], axis=-1)
    np.testing.assert_allclose(
        circle.velocity(theta, beta, kind),
        (v * along).sum(axis=-1),
        rtol=0,
        atol=1e-13 * scale(beta, kind),
    )


def test_many_tokens_agree_with_few():
    """Whatever method is used at which n: a sample repeated r times moves as it did alone."""
    theta = draw(40, 4)
    for kind in KINDS:
        expected = plain_velocity(theta, 5.0, kind)
        for copies in (1, 30, 2_000, 10_000):
            v = circle.velocity(np.tile(theta, copies), 5.0, kind).reshape(copies, -1)
            np.testing.assert_allclose(
                v, np.tile(expected, (copies, 1)), rtol=0, atol=3e-12 * scale(5.0, kind)
            )


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_threads_change_no_bit_that_matters(kind, monkeypatch):
    theta = draw(7001, 3, batch=(2,))
    whole = circle.velocity(theta, 5.0, kind)
    monkeypatch.setattr(circle, "_PIECE", 1000)  # seven pieces and one token
    one = circle.velocity(theta, 5.0, kind)
    np.testing.assert_allclose(one, whole, rtol=0, atol=1e-13 * scale(5.0, kind))
    for threads in (2, 3):
        np.testing.assert_array_equal(circle.velocity(theta, 5.0, kind, threads=threads), one)
        paths = [
            circle.solve(theta, 5.0, [0, 1e-3], kind, rtol=1e-3, threads=t).angles
            for t in (1, threads)
        ]
        np.testing.assert_array_equal(*paths)


@pytest.mark.parametrize("n", [300, 3000])
def test_many_modes(n):
    """beta = 10^4 needs hundreds of modes; the softmax normaliser may be as small as 1/n."""
    theta = draw(n, 5)
    beta = 1e4
    v = circle.velocity(theta, beta, "softmax")
    gap = theta[:, None] - theta
    w = np.exp(-2 * beta * np.sin(gap / 2) ** 2)
    expected = -(w * np.sin(gap)).sum(axis=1) / w.sum(axis=1)
    # the Fourier sum is relative to its largest value, Z only to 1/n
    np.testing.assert_allclose(v, expected, rtol=0, atol=n * 1e-13)


def test_large_beta_softmax_survives():
    for theta in ([0.3], [0.3, 0.3, 0.3], [0.3, 0.3 + np.pi], [0.0, 0.01, 3.0]):
        v = circle.velocity(theta, 1e4, "softmax")
        np.testing.assert_allclose(v, plain_velocity(np.array(theta), 1e4, "softmax"), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_symmetries(kind):
    theta = draw(30, 6)
    v = circle.velocity(theta, 5.0, kind)
    tol = {"rtol": 0, "atol": 1e-13 * scale(5.0, kind)}
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_allclose(circle.velocity(theta + 0.7, 5.0, kind), v, **tol)
    np.testing.assert_allclose(circle.velocity(-theta, 5.0, kind), -v, **tol)
    np.testing.assert_allclose(circle.velocity(theta[order], 5.0, kind), v[order], **tol)
    wound = theta + 2 * np.pi * np.random.default_rng(1).integers(-3, 4, 30)
    np.testing.assert_allclose(circle.velocity(wound, 5.0, kind), v, **tol)
    if kind == "unnormalized":  # a symmetric interaction: the mean angle stays
        assert abs(v.sum()) < 30 * tol["atol"]


@pytest.mark.parametrize("kind", KINDS)
def test_stationary(kind):
    tol = 1e-13 * scale(5.0, kind)
    for theta in ([1.0], [1.0] * 5, [1.0, 1.0 + np.pi], 2 * np.pi * np.arange(7) / 7):
        assert np.abs(circle.velocity(theta, 5.0, kind)).max() < tol


def test_batches_and_float32():
    theta = draw(12, 7, (2, 3))
    for kind in KINDS:
        v = circle.velocity(theta, 3.0, kind)
        assert v.shape == theta.shape
        for b in np.ndindex(2, 3):
            np.testing.assert_allclose(
                v[b], plain_velocity(theta[b], 3.0, kind), atol=1e-13 * scale(3.0, kind)
            )
        small = circle.velocity(theta.astype(np.float32), 3.0, kind)
        assert small.dtype == np.float32
        np.testing.assert_allclose(small, v, atol=1e-5 * scale(3.0, kind))


def test_modes_by_hand():
    theta = draw(50, 8, (3,))
    for k in (1, 2, 7):
        expected = np.exp(-1j * k * theta).mean(axis=-1)
        np.testing.assert_allclose(circle.modes(theta, k), expected, atol=1e-14)
        np.testing.assert_allclose(circle.modes(theta, [0, k])[:, 1], expected, atol=1e-14)
    # a bump at angle a: mode k has phase -k a
    assert np.angle(circle.modes(np.array([0.4]), 3)) == pytest.approx(-1.2)
    # density (1 + e cos(k theta - phase)) / 2 pi: mode k is (e / 2) e^{-i phase}
    planted = circle.modes(quantiles(4000, 0.1, 3, 0.9), 3)
    assert planted == pytest.approx(0.05 * np.exp(-0.9j), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_solve_against_an_independent_solver(kind):
    theta, beta = draw(12, 9), 3.0
    times = np.array([0.0, 0.1, 0.35, 0.6])
    if kind == "softmax":
        times = 10 * times
    run = circle.solve(theta, beta, times, kind=kind, rtol=1e-10)
    assert (run.times == times).all()
    assert run.angles.shape == (4, 12)
    np.testing.assert_array_equal(run.angles[0], theta)
    reference = solve_ivp(
        lambda t, y: plain_velocity(y, beta, kind),
        (0, times[-1]),
        theta,
        method="Radau",
        t_eval=times,
        rtol=1e-9,
        atol=1e-11,
    )
    np.testing.assert_allclose(run.angles, reference.y.T, atol=1e-6)
    general = flow.solve(sphere.from_angles(theta), beta, times, kind=kind, rtol=1e-10)
    np.testing.assert_allclose(run.tokens, general.tokens, atol=1e-7)
    assert run.evaluations > 0


def test_two_tokens_in_closed_form():
    """USA, n = 2, gap g: g' = -e^{beta cos g} sin g; at beta = 0, tan(g/2) = tan(g_0/2) e^{-t}."""
    gap, t = 2.5, np.array([0.0, 0.5, 2.0, 5.0])
    for kind in KINDS:
        run = circle.solve([0.0, gap], 0.0, t, kind=kind, rtol=1e-11)
        expected = 2 * np.arctan(np.tan(gap / 2) * np.exp(-t))
        np.testing.assert_allclose(run.angles[:, 1] - run.angles[:, 0], expected, atol=1e-9)
        np.testing.assert_allclose(run.angles.mean(axis=1), gap / 2, atol=1e-9)


def test_solver_error_follows_rtol():
    theta = draw(40, 11)
    reference = circle.solve(theta, 5.0, [0.0, 0.3], rtol=1e-13).angles[-1]
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        errors.append(
            np.abs(circle.solve(theta, 5.0, [0.0, 0.3], rtol=rtol).angles[-1] - reference).max()
        )
        # the flow separates neighbours by up to e^{gamma t}: leave it a factor
        assert errors[-1] < 3e3 * rtol
    assert errors[0] > 10 * errors[2] > 100 * errors[3] / 10


def test_solve_batches():
    theta = draw(10, 12, (3,))
    run = circle.solve(theta, 3.0, [0.0, 0.2, 0.4], rtol=1e-10)
    assert run.angles.shape == (3, 3, 10)
    for b in range(3):
        alone = circle.solve(theta[b], 3.0, [0.0, 0.2, 0.4], rtol=1e-10)
        np.testing.assert_allclose(run.angles[:, b], alone.angles, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_planted_mode_grows_at_its_rate(k, kind):
    """Mode k of the uniform density grows like e^{gamma_k t}, gamma_k = k^2 I_k / beta."""
    beta, epsilon = 5.0, 1e-5
    rate = k**2 * (iv(k, beta) if kind == "unnormalized" else ive(k, beta) / ive(0, beta)) / beta
    t = 3.0 / rate
    theta = quantiles(400, epsilon, k, 0.4)
    run = circle.solve(theta, beta, [0.0, t / 2, t], kind=kind, rtol=1e-11)
    m = circle.modes(run.angles, k)
    np.testing.assert_allclose(m[0], epsilon / 2 * np.exp(-0.4j), atol=1e-9)
    # corrections are of second order in the amplitude; phases do not turn
    np.testing.assert_allclose(m[1] / m[0], np.exp(1.5), rtol=1e-4)
    np.testing.assert_allclose(m[2] / m[0], np.exp(3.0), rtol=1e-4)


@pytest.mark.parametrize(("beta", "k", "phase"), [(5.0, 3, 0.9), (7.0, 4, -2.0), (2.0, 2, 2.5)])
def test_clusters_form_at_the_predicted_centres(beta, k, phase):
    """The planted mode makes k clusters, each at a crest; a wrong sign would put them elsewhere.

    The start is symmetric about every crest, so the centres are exact.
    """
    theta = quantiles(240, 1e-2, k, phase)
    centres = circle.predicted_centres(theta, beta)
    assert centres.shape == (k,)
    gamma = k**2 * iv(k, beta) / beta
    final = circle.solve(theta, beta, [0.0, 14 / gamma], rtol=1e-8).angles[-1]
    gap = np.abs(np.angle(np.exp(1j * (final[:, None] - centres))))
    nearest = gap.argmin(axis=1)
    assert (np.bincount(nearest, minlength=k) == 240 // k).all()
    # four fifths of the tokens have gathered there; the others are still on their way
    close = np.sort(gap.min(axis=1))[: 4 * 240 // 5]
    assert close.max() < 0.05
    for j in range(k):
        mine = np.angle(np.exp(1j * (final[nearest == j] - centres[j])))
        assert abs(np.median(mine)) < 1e-6
    # crests of cos(k theta - phase)
    np.testing.assert_allclose(np.cos(k * centres - phase), 1, atol=1e-12)


def test_largest_beta_of_the_unnormalized_flow():
    run = circle.solve([0.0, 0.01, 2.0], 700.0, [0.0, math.exp(-700.0)])
    gap = solve_ivp(  # in units of e^{-700}; the third token is too far to matter
        lambda t, g: -2 / 3 * np.exp(-1400 * np.sin(g / 2) ** 2) * np.sin(g),
        (0, 1),
        [0.01],
        rtol=1e-10,
        atol=1e-14,
    ).y[0, -1]
    assert run.angles[-1, 1] - run.angles[-1, 0] == pytest.approx(gap, abs=1e-8)
    assert run.angles[-1, 2] == 2.0
    with pytest.raises(ValueError, match=r"beta must be .*700"):
        circle.velocity([0.0, 1.0], 701.0)
    assert np.isfinite(circle.velocity(np.zeros(3, np.float32), 85.0)).all()
    with pytest.raises(ValueError, match=r"beta must be .*85"):
        circle.velocity(np.zeros(3, np.float32), 86.0)


def test_predicted_centres_by_formula_and_batches():
    theta = draw(200, 13, (2, 3))
    centres = circle.predicted_centres(theta, 5.0)
    assert centres.shape == (2, 3, 3)
    phase = np.angle(np.exp(-3j * theta).mean(axis=-1))
    for j in range(3):
        expected = (2 * np.pi * j - phase) / 3
        distance = np.angle(np.exp(1j * (centres - expected[..., None])))
        assert np.abs(distance).min(axis=-1).max() < 1e-12
    assert (np.diff(centres, axis=-1) > 0).all()
    assert centres.min() >= -np.pi
    assert centres.max() < np.pi
    turned = circle.predicted_centres(theta + 0.25, 5.0)
    distance = np.angle(np.exp(1j * (turned[..., :, None] - centres[..., None, :] - 0.25)))
    assert np.abs(distance).min(axis=-1).max() < 1e-12


def test_quiet_start_from_modes():
    """Quantiles of 1 + 2 Re sum_k mu_k e^{ik theta}: the modes come back, the order is kept."""
    rng = np.random.default_rng(15)
    c = 0.05 * (rng.standard_normal((2, 3, 6)) + 1j * rng.standard_normal((2, 3, 6)))
    theta = circle.from_modes(c, 400)
    assert theta.shape == (2, 3, 400)
    assert (np.diff(theta, axis=-1) > 0).all()
    assert theta.min() >= 0
    assert theta.max() < 2 * np.pi
    np.testing.assert_allclose(circle.modes(theta, np.arange(1, 7)), c, atol=1e-10)
    assert np.abs(circle.modes(theta, np.arange(40, 50))).max() < 1e-6
    # cumulative mass (j + 1/2)/n, written out for one system
    k = np.arange(1, 7)
    t = theta[1, 2][:, None]
    mass = theta[1, 2] + 2 * (c[1, 2] * (np.exp(1j * k * t) - 1) / (1j * k)).real.sum(axis=-1)
    np.testing.assert_allclose(mass / (2 * np.pi), (np.arange(400) + 0.5) / 400, atol=1e-13)
    # one mode: the phase of the crest is that of quantiles() above
    planted = circle.from_modes([0.0, 0.0, 0.05 * np.exp(-0.9j)], 300)
    np.testing.assert_allclose(np.cos(3 * circle.predicted_centres(planted, 5.0) - 0.9), 1)
    with pytest.raises(ValueError, match="positive"):
        circle.from_modes([0.6], 10)


def test_memory_is_linear():
    theta = draw(200_000, 14)
    circle.velocity(theta[:10], 5.0)
    for kind in KINDS:
        tracemalloc.start()
        try:
            circle.velocity(theta, 5.0, kind)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16 * theta.nbytes


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 200), st.integers(1, 12), st.integers(0, 2**32), st.sampled_from(KINDS))
def test_velocity_property(beta, n, seed, kind):
    theta = np.random.default_rng(seed).uniform(-10, 10, n)
    v, expected = circle.velocity(theta, beta, kind), plain_velocity(theta, beta, kind)
    unit = 1.0 if kind == "softmax" else math.exp(beta)
    assert np.abs(v - expected).max() <= 1e-12 * unit


@settings(deadline=None, max_examples=20)
@given(st.floats(0, 8), st.integers(2, 10), st.integers(0, 2**32))
def test_order_on_the_circle_is_kept(beta, n, seed):
    """Tokens never overtake each other: a flow of a smooth field."""
    theta = np.sort(np.random.default_rng(seed).uniform(0, 2 * np.pi, n))
    run = circle.solve(theta, beta, [0.0, 0.5, 1.0], kind="softmax")
    assert (np.diff(run.angles, axis=-1) > -1e-7).all()
    assert (run.angles[..., -1] - run.angles[..., 0] < 2 * np.pi + 1e-7).all()
