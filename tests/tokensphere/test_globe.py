"""S^2 by spherical harmonics against direct sums, Legendre polynomials and the laws of the flow."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import legval
from scipy.special import spherical_in

from tokensphere import attention, flow, globe, sphere

EPS = np.finfo(float).eps
KINDS = ("softmax", "unnormalized")


def plain_velocity(x, beta, kind, rows=slice(None)):
    kernel = np.exp(beta * (x[rows] @ x.T - 1))
    y = kernel @ x
    y = y / kernel.sum(axis=1)[:, None] if kind == "softmax" else y * math.exp(beta) / len(x)
    return y - (x[rows] * y).sum(axis=1)[:, None] * x[rows]


def start(n, seed, batch=()):
    return sphere.uniform(n, 3, rng=np.random.default_rng(seed), batch=batch)


def lattice(n):
    """Nearly equal areas: points along a spiral, symmetric under z -> -z."""
    i = np.arange(n) + 0.5
    z, phi = 1 - 2 * i / n, np.pi * (1 + 5**0.5) * i
    r = np.sqrt(1 - z * z)
    return np.stack([r * np.cos(phi), r * np.sin(phi), z], axis=-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.01, 1.0, 5.0, 20.0])
def test_velocity_against_direct_sums(beta, kind):
    """1e-10 of the largest velocity is the promise; the poles are ordinary points."""
    poles = np.array([[0, 0, 1.0], [0, 0, -1.0], [1e-9, 0, 1.0], [0, -1e-160, -1.0]])
    x = sphere.normalize(np.concatenate([poles, np.eye(3), -np.eye(3), start(600, 1)]))
    expected = plain_velocity(x, beta, kind)
    found = globe.velocity(x, beta, kind)
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
    # the projection rounds relative to what is projected, which is longer than the velocity
    mass = 1.0 if kind == "softmax" else np.exp(beta * (x @ x.T)).mean(axis=1).max()
    assert np.abs((found * x).sum(axis=-1)).max() < 8 * EPS * mass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [60.0, 300.0, 700.0])
def test_narrow_kernels(beta, kind):
    """Beyond the promised range the sums are still full; errors are relative to e^beta."""
    x = start(200, 2)
    expected = plain_velocity(x, beta, kind)
    unit = 1.0 if kind == "softmax" else math.exp(beta) / len(x)
    assert np.abs(globe.velocity(x, beta, kind) - expected).max() < 1e-11 * unit


@pytest.mark.parametrize("beta", [5.0, 20.0])
def test_twenty_thousand_tokens(beta):
    """Accurate to 1e-10, and at least 60 times faster than blocked direct sums."""
    x = start(20_000, 3)
    rows = np.arange(0, 20_000, 401)
    for kind in KINDS:
        expected = plain_velocity(x, beta, kind, rows)
        largest = np.abs(globe.velocity(x, beta, kind)).max()
        assert np.abs(globe.velocity(x, beta, kind)[rows] - expected).max() < 1e-11 * largest


def test_faster_than_direct_sums():
    x = start(20_000, 3)
    globe.velocity(x, 20.0)

    def seconds(function):
        begun = time.perf_counter()
        function(x, 20.0)
        return time.perf_counter() - begun

    fast = min(seconds(globe.velocity) for _ in range(7))
    assert seconds(attention.velocity) > 60 * fast


@pytest.mark.parametrize("kind", KINDS)
def test_small_systems(kind):
    e = np.array([0.6, 0.0, 0.8])
    for x in (e[None], np.tile(e, (5, 1)), np.stack([e, -e]), np.stack([e, -e, e])):
        assert np.abs(globe.velocity(x, 5.0, kind)).max() < 1e-13 * math.exp(5)
    x = np.stack([e, [0, 1.0, 0]])
    np.testing.assert_allclose(
        globe.velocity(x, 5.0, kind), plain_velocity(x, 5.0, kind), atol=1e-13
    )


@pytest.mark.parametrize("kind", KINDS)
def test_equivariance(kind):
    """The axis of the harmonics must not show."""
    rng = np.random.default_rng(4)
    x = start(300, 5)
    v = globe.velocity(x, 8.0, kind)
    atol = 1e-12 * np.abs(v).max()
    for seed in range(3):
        q = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0]
        turned = globe.velocity(sphere.normalize(x @ q.T), 8.0, kind)
        np.testing.assert_allclose(turned, v @ q.T, atol=atol)
    for q in (np.eye(3)[[1, 2, 0]], np.diag([-1.0, 1.0, 1.0]), np.diag([1.0, 1.0, -1.0])):
        np.testing.assert_allclose(globe.velocity(x @ q.T, 8.0, kind), v @ q.T, atol=atol)
    order = rng.permutation(300)
    np.testing.assert_allclose(globe.velocity(x[order], 8.0, kind), v[order], atol=atol)


def test_batches_dtype_threads_and_bits():
    x = start(50, 6, (2, 3))
    for kind in KINDS:
        v = globe.velocity(x, 3.0, kind)
        assert v.shape == x.shape
        for b in np.ndindex(2, 3):
            np.testing.assert_allclose(v[b], plain_velocity(x[b], 3.0, kind), atol=1e-13)
        assert (globe.velocity(x, 3.0, kind) == v).all()
        small = globe.velocity(x.astype(np.float32), 3.0, kind)
        assert small.dtype == np.float32
        np.testing.assert_allclose(small, v, atol=1e-5)
        np.testing.assert_allclose(globe.velocity(x, 3.0, kind, threads=2), v, atol=1e-13)
    assert (globe.velocity(x, 3.0) == globe.velocity(x, 3.0, "softmax")).all()


@pytest.mark.parametrize("kind", KINDS)
def test_solve_is_the_flow(kind):
    x0 = start(60, 7)
    times = np.array([0.0, 0.1, 0.3]) * (1.0 if kind == "unnormalized" else 15.0)
    fast = globe.solve(x0, 4.0, times, kind, rtol=1e-10)
    slow = flow.solve(x0, 4.0, times, kind, rtol=1e-10)
    assert fast.tokens.shape == (3, 60, 3)
    assert (fast.times == times).all()
    np.testing.assert_array_equal(fast.tokens[0], x0)
    np.testing.assert_allclose(fast.tokens, slow.tokens, atol=1e-7)
    assert np.abs(fast.tokens - x0).max() > 0.1
    assert np.abs(np.linalg.norm(fast.tokens, axis=-1) - 1).max() < 4 * EPS
    assert fast.evaluations > 0
    coarse = globe.solve(x0, 4.0, times, kind, rtol=1e-4)
    assert np.abs(coarse.tokens - slow.tokens).max() < 0.05
    assert coarse.evaluations < fast.evaluations
    batch = globe.solve(np.stack([x0, -x0]), 4.0, times, kind, rtol=1e-10).tokens
    np.testing.assert_allclose(batch[:, 1], -fast.tokens, atol=1e-7)


def test_solver_error_follows_rtol():
    x0 = start(100, 8)
    reference = flow.solve(x0, 5.0, [0.0, 0.2], "unnormalized", rtol=1e-13).tokens[-1]
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        run = globe.solve(x0, 5.0, [0.0, 0.2], "unnormalized", rtol=rtol)
        errors.append(np.abs(run.tokens[-1] - reference).max())
        assert errors[-1] < 1e3 * rtol
    assert errors[0] > 1e3 * errors[3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l", [1, 2, 3, 4, 5])
def test_planted_harmonic_grows_at_its_rate(l, kind):
    """A zonal perturbation P_l of the uniform density grows like e^{gamma_l t}.

    gamma_l = l (l + 1) lambda_l / beta with lambda_l = the modified spherical Bessel function
    i_l(beta). Tokens of a lattice are moved along the gradient of P_l, to and fro; half the
    difference is free of the lattice's own error and of second order terms.
    """
    beta, epsilon = 5.0, 1e-3
    rate = l * (l + 1) * spherical_in(l, beta) / beta
    if kind == "softmax":
        rate /= spherical_in(0, beta)
    x = lattice(3000)
    z = x[:, 2:]
    slope = legval(z, np.polynomial.legendre.legder([0] * l + [1]))
    gradient = slope * (np.array([0, 0, 1.0]) - z * x)
    amplitude = 0.0
    for sign in (1, -1):
        x0 = sphere.normalize(x + sign * epsilon * gradient)
        run = globe.solve(x0, beta, [0.0, 1 / rate], kind, rtol=1e-8).tokens
        amplitude = amplitude + sign * legval(run[..., 2], [0] * l + [1]).mean(axis=-1)
    assert amplitude[1] / amplitude[0] == pytest.approx(math.e, rel=2e-4)


def test_power_spectrum_against_legendre_sums():
    x = start(40, 9, (2,))
    degrees = [0, 1, 2, 3, 10, 31]
    power = globe.power_spectrum(x, degrees)
    assert power.shape == (2, 6)
    for b in range(2):
        gram = x[b] @ x[b].T
        for i, l in enumerate(degrees):
            expected = legval(np.clip(gram, -1, 1), [0] * l + [1]).mean()
            assert power[b, i] == pytest.approx(expected, abs=1e-13)
    one = globe.power_spectrum(x[0], 3)
    assert np.shape(one) == ()
    assert one == pytest.approx(power[0, 3], abs=1e-15)
    assert globe.power_spectrum(x[0], [[1, 2], [3, 10]]).shape == (2, 2)


def test_power_spectrum_of_known_measures():
    degrees = np.arange(121)
    point = sphere.normalize([[0.3, -0.5, 0.2]])
    np.testing.assert_allclose(globe.power_spectrum(point, degrees), 1, atol=1e-11)
    pair = np.concatenate([point, -point])
    np.testing.assert_allclose(globe.power_spectrum(pair, degrees), degrees % 2 == 0, atol=1e-11)
    # vertices of a cube: nothing in degrees 1, 2, 3; C_4 = 7/27, the mean of P_4 over its overlaps
    cube = sphere.normalize(
        np.array([[a, b, c] for a in (1, -1) for b in (1, -1) for c in (1, -1)])
    )
    power = globe.power_spectrum(cube, [1, 2, 3, 4])
    np.testing.assert_allclose(power, [0, 0, 0, 7 / 27], atol=1e-13)
    # a ring at height z: C_l = P_l(z)^2 up to the ring's own period
    phi = 2 * np.pi * np.arange(64) / 64
    ring = np.stack([0.8 * np.cos(phi), 0.8 * np.sin(phi), np.full(64, 0.6)], axis=-1)
    expected = [legval(0.6, [0] * l + [1]) ** 2 for l in range(20)]
    np.testing.assert_allclose(globe.power_spectrum(ring, np.arange(20)), expected, atol=1e-13)


def test_power_spectrum_of_noise():
    """Independent uniform tokens: 1/n on average; the 2 l + 1 orders are almost independent."""
    n = 4000
    power = globe.power_spectrum(start(n, 10, (40,)), np.arange(1, 21))
    share = n * power.mean(axis=0)
    spread = np.sqrt(2 / ((2 * np.arange(1, 21) + 1) * 40))
    assert (np.abs(share - 1) < 4.5 * spread).all()


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 60), st.integers(1, 12), st.integers(0, 2**32), st.sampled_from(KINDS))
def test_velocity_property(beta, n, seed, kind):
    x = start(n, seed)
    unit = 1.0 if kind == "softmax" else math.exp(beta) / n
    error = globe.velocity(x, beta, kind) - plain_velocity(x, beta, kind)
    assert np.abs(error).max() < 1e-12 * n * unit


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30), st.integers(0, 2**32))
def test_power_spectrum_is_invariant(n, seed):
    rng = np.random.default_rng(seed)
    x = sphere.uniform(n, 3, rng=rng)
    q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    power = globe.power_spectrum(x, np.arange(25))
    turned = globe.power_spectrum(sphere.normalize(x @ q.T), np.arange(25))
    np.testing.assert_allclose(turned, power, atol=1e-13)
    assert power[0] == pytest.approx(1, abs=1e-13)
    assert (power >= 0).all()
    assert (power <= 1 + 1e-13).all()
