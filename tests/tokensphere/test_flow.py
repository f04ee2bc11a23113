"""The flows in any dimension: laws they obey, exact solutions, the solver's order."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tokensphere import _integrate, attention, flow, sphere

EPS = np.finfo(float).eps
KINDS = ("softmax", "unnormalized")


def plain_velocity(x, beta, kind):
    gram = x @ x.T
    kernel = np.exp(beta * gram)
    y = kernel @ x / (kernel.sum(axis=1)[:, None] if kind == "softmax" else len(x))
    return y - (x * y).sum(axis=1)[:, None] * x


def equiangular(n, d, rho):
    """n unit vectors in R^d, all of whose overlaps are rho."""
    gram = np.full((n, n), rho) + (1 - rho) * np.eye(n)
    values, vectors = np.linalg.eigh(gram)
    x = np.zeros((n, d))
    x[:, :n] = vectors * np.sqrt(np.maximum(values, 0))
    rotation = np.linalg.qr(np.random.default_rng(99).standard_normal((d, d)))[0]
    return sphere.normalize(x @ rotation)


def start(n, d, seed, batch=()):
    return sphere.uniform(n, d, rng=np.random.default_rng(seed), batch=batch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "beta"), [(6, 3, 2.0), (4, 8, 1.0), (9, 2, 4.0)])
def test_against_an_independent_solver(n, d, beta, kind):
    x0 = start(n, d, n)
    horizon = 4.0 if kind == "softmax" else 8.0 / math.exp(beta)
    times = horizon * np.array([0.0, 0.1, 0.5, 1.0])
    run = flow.solve(x0, beta, times, kind=kind, rtol=1e-10)
    assert run.tokens.shape == (4, n, d)
    assert (run.times == times).all()
    np.testing.assert_allclose(run.tokens[0], x0, atol=2 * EPS)
    reference = solve_ivp(
        lambda t, y: plain_velocity(y.reshape(n, d), beta, kind).ravel(),
        (0, horizon),
        x0.ravel(),
        method="LSODA",
        t_eval=times,
        rtol=1e-11,
        atol=1e-12,
    )
    np.testing.assert_allclose(run.tokens, reference.y.T.reshape(4, n, d), atol=1e-7)


def test_defaults():
    x0 = start(5, 3, 1)
    by_default = flow.solve(x0, 2.0, [0.0, 1.0])
    named = flow.solve(x0, 2.0, [0.0, 1.0], kind="softmax", rtol=1e-8)
    assert (by_default.tokens == named.tokens).all()
    assert by_default.evaluations == named.evaluations > 0


def test_times_are_measured_from_the_first():
    """The flow does not depend on time: shifting the times changes nothing."""
    x0 = start(5, 3, 2)
    a = flow.solve(x0, 2.0, [0.0, 0.5, 2.0], rtol=1e-10).tokens
    b = flow.solve(x0, 2.0, [3.0, 3.5, 5.0], rtol=1e-10).tokens
    np.testing.assert_allclose(a, b, atol=1e-9)
    one = flow.solve(x0, 2.0, [1.5])
    np.testing.assert_allclose(one.tokens, x0[None], atol=2 * EPS)
    twice = flow.solve(x0, 2.0, [0.0, 1.0, 1.0]).tokens
    np.testing.assert_array_equal(twice[1], twice[2])


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("beta", [0.0, 1.0, 4.0])
def test_equiangular_tokens_follow_their_equation(n, beta):
    """SA: rho' = 2 e^{b rho}(1-rho)((n-1)rho+1)/(e^b+(n-1)e^{b rho}); USA with 2/n."""
    d, rho0 = 9, -0.05
    x0 = equiangular(n, d, rho0)

    def softmax(t, rho):
        e = np.exp(beta * rho)
        return 2 * e * (1 - rho) * ((n - 1) * rho + 1) / (np.exp(beta) + (n - 1) * e)

    def unnormalized(t, rho):
        return 2 / n * np.exp(beta * rho) * (1 - rho) * ((n - 1) * rho + 1)

    times = np.linspace(0, 3, 7)
    for kind, equation in (("softmax", softmax), ("unnormalized", unnormalized)):
        tokens = flow.solve(x0, beta, times, kind=kind, rtol=1e-10).tokens
        rho = solve_ivp(
            equation, (0, 3), [rho0], method="LSODA", t_eval=times, rtol=1e-11, atol=1e-12
        ).y[0]
        gram = tokens @ np.swapaxes(tokens, -1, -2)
        off = gram[:, ~np.eye(n, dtype=bool)]
        np.testing.assert_allclose(off, np.repeat(rho[:, None], n * (n - 1), axis=1), atol=1e-7)
        assert rho[-1] > rho0 + 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_beta_zero_in_closed_form(kind):
    """Two tokens at beta = 0: the angle a between them obeys tan(a/2) = tan(a_0/2) e^{-t}."""
    a0, t = 2.0, np.array([0.0, 0.4, 1.0, 4.0])
    x0 = np.zeros((2, 5))
    x0[0, 0], x0[1, :2] = 1.0, (math.cos(a0), math.sin(a0))
    tokens = flow.solve(x0, 0.0, t, kind=kind, rtol=1e-11).tokens
    overlap = (tokens[:, 0] * tokens[:, 1]).sum(axis=-1)
    np.testing.assert_allclose(
        overlap, np.cos(2 * np.arctan(np.tan(a0 / 2) * np.exp(-t))), atol=1e-9
    )


@pytest.mark.parametrize(("d", "beta", "count"), [(2, 1.0, 25), (3, 4.0, 25), (6, 9.0, 200)])
def test_usa_climbs_the_energy_at_the_mean_squared_speed(d, beta, count):
    """E never falls, and E(b) - E(a) = int_a^b n^{-1} sum_i |v_i|^2 dt (Gauss-Legendre).

    At beta = 9 the power comes in short bursts, one for each merging pair: the quadrature has
    converged (1e-10) with 200 panels, not with 50.
    """
    x0 = start(12, d, d)
    horizon = 6.0 / math.exp(beta / 2)
    node, weight = np.polynomial.legendre.leggauss(12)
    panels = np.linspace(0, horizon, count + 1)
    half = np.diff(panels)[:, None] / 2
    inner = panels[:-1, None] + half * (node + 1)
    times = np.concatenate([np.c_[panels[:-1], inner].ravel(), panels[-1:]])
    tokens = flow.solve(x0, beta, times, kind="unnormalized", rtol=1e-11).tokens
    power = (attention.velocity(tokens, beta, "unnormalized") ** 2).sum(axis=-1).mean(axis=-1)
    energy = attention.energy(tokens, beta)
    gain = (half * weight * power[:-1].reshape(count, 13)[:, 1:]).sum()
    assert energy[-1] - energy[0] > 0.1 * energy[0]
    assert energy[-1] - energy[0] == pytest.approx(gain, rel=1e-8)
    assert (np.diff(energy) >= -1e-12 * energy[-1]).all()


def test_softmax_energy_never_falls_either():
    """SA is a gradient ascent of the same energy in another metric."""
    x0 = start(16, 3, 5)
    tokens = flow.solve(x0, 4.0, np.linspace(0, 30, 200), rtol=1e-10).tokens
    energy = attention.energy(tokens, 4.0)
    assert (np.diff(energy) >= -1e-9 * energy[-1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_stay_on_the_sphere_to_rounding(kind):
    for d, beta, horizon in ((2, 9.0, 1.0), (3, 1.0, 50.0), (256, 2.0, 20.0)):
        tokens = flow.solve(start(10, d, 6), beta, np.linspace(0, horizon, 11), kind=kind).tokens
        assert np.abs(np.linalg.norm(tokens, axis=-1) - 1).max() < 4 * EPS


@pytest.mark.parametrize("kind", KINDS)
def test_equivariance(kind):
    rng = np.random.default_rng(7)
    x0 = start(8, 4, 7)
    q, p = np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.permutation(8)
    times = [0.0, 0.3, 1.0]
    tokens = flow.solve(x0, 2.0, times, kind=kind, rtol=1e-11).tokens
    turned = flow.solve(sphere.normalize(x0 @ q.T), 2.0, times, kind=kind, rtol=1e-11).tokens
    np.testing.assert_allclose(turned, tokens @ q.T, atol=1e-9)
    shuffled = flow.solve(x0[p], 2.0, times, kind=kind, rtol=1e-11).tokens
    np.testing.assert_allclose(shuffled, tokens[:, p], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_error_follows_rtol(kind):
    x0 = start(10, 3, 8)
    times = [0.0, 2.0]
    reference = flow.solve(x0, 2.0, times, kind=kind, rtol=1e-13).tokens[-1]
    errors, work = [], []
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        run = flow.solve(x0, 2.0, times, kind=kind, rtol=rtol)
        errors.append(np.abs(run.tokens[-1] - reference).max())
        work.append(run.evaluations)
        assert errors[-1] < 100 * rtol
    assert work == sorted(work)
    # a high-order method: ten times the work buys far more than ten times the accuracy
    assert errors[0] > 1e3 * errors[3]
    assert work[3] < 10 * work[0]


def test_batches():
    x0 = start(5, 3, 9, (2, 2))
    run = flow.solve(x0, 2.0, [0.0, 0.5, 1.0], rtol=1e-10)
    assert run.tokens.shape == (3, 2, 2, 5, 3)
    for b in np.ndindex(2, 2):
        alone = flow.solve(x0[b], 2.0, [0.0, 0.5, 1.0], rtol=1e-10)
        np.testing.assert_allclose(run.tokens[:, *b], alone.tokens, atol=1e-8)


def test_float32_is_kept():
    x0 = start(6, 3, 10)
    run = flow.solve(x0.astype(np.float32), 2.0, [0.0, 1.0])
    assert run.tokens.dtype == np.float32
    expected = flow.solve(x0, 2.0, [0.0, 1.0]).tokens
    np.testing.assert_allclose(run.tokens, expected, atol=1e-5)
    assert np.abs(np.linalg.norm(run.tokens, axis=-1) - 1).max() < 4 * np.finfo(np.float32).eps


@pytest.mark.parametrize(
    ("n", "beta", "horizon"), [(32, 2.0, 5.0), (32, 9.0, 20.0), (8, 1.0, 60.0)]
)
def test_float32_costs_no_more_steps_and_few_roundings(n, beta, horizon):
    """At the least rtol: evaluations and errors as stated, against float64 at 1e-12."""
    small = start(n, 3, 5).astype(np.float32)
    x0 = sphere.normalize(small.astype(np.float64))
    times = [0.0, horizon / 2, horizon]
    run = flow.solve(small, beta, times)
    exact = flow.solve(x0, beta, times, rtol=1e-12).tokens
    like64 = flow.solve(x0, beta, times, rtol=1e-6)
    assert run.evaluations <= 1.25 * like64.evaluations
    np.testing.assert_allclose(run.tokens, exact, atol=2e-5)
    # and the velocities really were float32: float64 is reproduced to more digits than this
    by_default = flow.solve(x0, beta, times).tokens
    assert np.abs(run.tokens - exact).max() > 10 * np.abs(by_default - exact).max()


def test_float32_has_a_least_rtol_of_its_own():
    small = start(6, 3, 10).astype(np.float32)
    by_default, named = (flow.solve(small, 2.0, [0, 1.0], **o) for o in ({}, {"rtol": 1e-6}))
    assert (by_default.tokens == named.tokens).all()
    with pytest.raises(
        ValueError, match=r"^rtol must be a finite number and >= 1e-06 and <= 0.1, got"
    ):
        flow.solve(small, 2.0, [0, 1.0], rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_still_configurations_stay(kind):
    e = np.zeros(4)
    e[1] = 1.0
    for x0 in (e[None], np.tile(e, (3, 1)), np.stack([e, -e])):
        tokens = flow.solve(x0, 3.0, [0.0, 1.0], kind=kind).tokens
        np.testing.assert_allclose(tokens[-1], x0, atol=1e-12)


def test_softmax_at_beta_ten_thousand():
    x0 = start(6, 3, 11)
    x0[3:] = sphere.normalize(x0[:3] + 0.01 * start(3, 3, 12))
    tokens = flow.solve(x0, 1e4, np.linspace(0, 30, 5)).tokens
    assert np.abs(np.linalg.norm(tokens, axis=-1) - 1).max() < 4 * EPS
    # neighbours at distance 0.01 merge, the three pairs stay where they were
    assert np.abs(tokens[-1, :3] - tokens[-1, 3:]).max() < 1e-6
    assert np.abs(tokens[-1] - x0).max() < 0.02


def test_largest_beta_of_the_unnormalized_flow():
    x0 = start(5, 3, 14)
    tokens = flow.solve(x0, 700.0, [0.0, math.exp(-700.0)], kind="unnormalized").tokens
    assert np.abs(np.linalg.norm(tokens, axis=-1) - 1).max() < 4 * EPS
    with pytest.raises(ValueError, match=r"beta must be .*700"):
        flow.solve(x0, 701.0, [0.0, 1.0], kind="unnormalized")


def test_all_tokens_meet():
    """SA, tokens in an open hemisphere: one point in the end."""
    x0 = start(10, 5, 13)
    x0[:, 0] = np.abs(x0[:, 0])
    tokens = flow.solve(x0, 1.0, [0.0, 60.0]).tokens
    assert np.abs(tokens[-1] - tokens[-1, :1]).max() < 1e-8


@settings(deadline=None, max_examples=15)
@given(
    st.floats(0, 6, allow_subnormal=False),
    st.integers(1, 6),
    st.sampled_from([2, 3, 16]),
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
)
def test_flow_properties(beta, n, d, seed, kind):
    """Norms to rounding, energy up, and the flow composes: solve(t) then solve(s) = solve(t+s)."""
    x0 = sphere.uniform(n, d, rng=np.random.default_rng(seed))
    t = 1.0 if kind == "softmax" else math.exp(-beta)
    run = flow.solve(x0, beta, [0.0, t, 2 * t], kind=kind, rtol=1e-10).tokens
    assert np.abs(np.linalg.norm(run, axis=-1) - 1).max() < 4 * EPS
    again = flow.solve(run[1], beta, [0.0, t], kind=kind, rtol=1e-10).tokens[-1]
    np.testing.assert_allclose(again, run[2], atol=1e-7)
    if beta > 0:
        energy = attention.energy(run, beta)
        assert (np.diff(energy) >= -1e-9 * energy[-1]).all()


def spread(x):
    """Root mean square distance of coordinates from the mean token's, as errors are measured."""
    return np.sqrt(np.mean(((x - x.mean(axis=-2, keepdims=True)) / (1 + np.abs(x))) ** 2, (-2, -1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rtol", [1e-3, 1e-4, 1e-6])
def test_between_the_steps_the_error_is_as_small_as_at_their_ends(kind, rtol):
    # where one cluster attracts, steps grow until the method is hardly stable
    unit = np.exp(-1.5) if kind == "unnormalized" else 1.0
    times = unit * np.linspace(0, 60, 400)
    for seed in range(4):
        x0 = start(12, 5, seed)
        path = flow.solve(x0, 1.5, times, kind, rtol=rtol).tokens
        exact = flow.solve(x0, 1.5, times, kind, rtol=1e-12).tokens
        merged = spread(exact) < rtol / 10
        assert merged.sum() > 50
        assert spread(path)[merged].max() < 10 * rtol
        energy = [attention.energy(x, 1.5) for x in path]
        assert np.diff(energy).min() > -10 * rtol * np.ptp(energy)


def test_the_integrators_polynomial_check_is_exact():
    rng = np.random.default_rng(8)
    for _ in range(20):
        p = np.polynomial.Polynomial(rng.standard_normal(8))
        assert abs(_integrate._SLOPE @ p(_integrate._NODES) - p.deriv()(0.5)) < 1e-12
    assert abs(_integrate._SLOPE @ _integrate._NODES**9 - 9 * 0.5**8) > 1e-6
