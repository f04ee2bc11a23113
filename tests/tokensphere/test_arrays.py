"""Tokens of any array library: results in its library, type and on its device, the same numbers.

Two libraries stand for all. ``array_api_strict`` has the standard and nothing else, and a device
whose arrays NumPy cannot read: what were converted silently would raise. JAX is a real one, whose
arrays cannot be changed and whose floating type is float32 unless told otherwise.
"""

import subprocess
import sys

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tokensphere import (
    attention,
    circle,
    clusters,
    flow,
    globe,
    harmonics,
    layers,
    meanfield,
    sde,
    sphere,
    two_tokens,
)

FAR = strict.Device("device1")
#: rounding in the operations of a call; some of them are unstable in the direction of time
TOLERANCE = {np.float32: 2e-5, np.float64: 2e-13}


def rng():
    return np.random.default_rng(3)


def uniform(*shape, seed=1, dtype=np.float64):
    *batch, n, d = shape
    return sphere.uniform(n, d, rng=np.random.default_rng(seed), batch=tuple(batch), dtype=dtype)


def gram(x):
    return x @ x.mT


def far(x):
    return strict.asarray(x, device=FAR)


def near(x):
    """NumPy's view of a far array, made in the test and nowhere else."""
    return np.from_dlpack(x)


def forward(**options):
    return lambda x: layers.forward(x, 2.0, 4, rng=rng(), keep=2, **options)


def stochastic(**options):
    return lambda x: sde.solve(x, 2.0, [0, 0.1, 0.1, 0.3], steps=3, rng=rng(), **options).states


def overlaps(d, **options):
    return lambda g: layers.overlap_chain(g, 2.0, d, 2, rng=rng(), keep=2, **options)


X, MANY, WIDE = (3, 5, 3), (300, 2, 9), (40, 2, 16)
#: what -> (function, shape of the tokens or, for the overlap chain, of those it comes from)
CALLS = {
    "normalize": (lambda x: sphere.normalize(3 * x), X),
    "tangent": (lambda x: sphere.tangent(x, 2 * x + 1), X),
    "angles": (lambda x: sphere.to_angles(sphere.from_angles(x[..., 0])), X),
    "weights": (lambda x: attention.weights(x, 2.0), X),
    "velocity, SA": (lambda x: attention.velocity(x, 2.0), X),
    "velocity, USA": (lambda x: attention.velocity(x, 2.0, "unnormalized"), X),
    "energy": (lambda x: attention.energy(x, 2.0), X),
    "energy of one system": (lambda x: attention.energy(x, 2.0), (5, 3)),
    "beta of the same library": (lambda x: attention.weights(x, x[0, 0] ** 2), (5, 3)),
    "forward": (forward(), X),
    "forward, through a factor": (forward(), WIDE),
    "forward, pulled": (forward(pull=0.5), X),
    "forward, independent": (forward(noise="independent"), X),
    "forward, none": (forward(noise="none"), X),
    "forward, signs": (forward(entries="rademacher"), X),
    "forward, independent signs": (forward(entries="rademacher", noise="independent"), X),
    "forward, uniform entries": (forward(entries="uniform"), X),
    "overlaps": (overlaps(16), (3, 3, 16)),
    "overlaps, outer part": (overlaps(6, pull=0.5), (3, 4, 4)),
    "overlaps of pairs": (overlaps(9), MANY),
    "overlaps of pairs, pulled": (overlaps(2, pull=0.5), (300, 2, 2)),
    "sde": (stochastic(), X),
    "sde, pulled": (stochastic(pull=0.5), X),
    "sde, independent": (stochastic(noise="independent"), X),
    "sde, none": (stochastic(noise="none"), X),
    "flow, SA": (lambda x: flow.solve(x, 2.0, [0, 0.5, 1]).states, X),
    "flow, USA": (lambda x: flow.solve(x, 2.0, [0, 0.1], "unnormalized").states, X),
}

#: those that JAX runs too: it compiles every operation anew for every shape, which takes its time
IN_JAX = [
    "normalize", "velocity, SA", "energy", "forward", "overlaps of pairs", "sde", "flow, SA",
]  # fmt: skip


def given(name, dtype):
    function, shape = CALLS[name]
    x = uniform(*shape, dtype=dtype)
    return function, (gram(x) if name.startswith("overlaps") else x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", list(CALLS))
def test_the_standard_and_nothing_else(name, dtype):
    function, x = given(name, dtype)
    found, expected = function(far(x)), function(x)
    assert type(found) is type(far(x))
    assert found.device == FAR
    assert found.dtype == getattr(strict, np.dtype(dtype).name)
    assert np.asarray(expected).dtype == dtype
    np.testing.assert_allclose(near(found), expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", IN_JAX)
def test_jax_in_float64_draws_the_same_numbers(name):
    function, x = given(name, np.float64)
    with jax.enable_x64(True):
        device = jax.devices("cpu")[0]
        found = function(jnp.asarray(x, device=device))
        assert isinstance(found, jax.Array)
        assert found.devices() == {device}
        assert found.dtype == np.float64
        np.testing.assert_allclose(np.asarray(found), function(x), atol=TOLERANCE[np.float64])


@pytest.mark.parametrize("name", ["forward", "flow, SA"])
def test_jax_as_it_comes_computes_in_float32(name):
    function, x = given(name, np.float64)
    found = function(jnp.asarray(x))
    assert found.dtype == np.float32
    expected = function(x.astype(np.float32))
    np.testing.assert_allclose(np.asarray(found), expected, atol=TOLERANCE[np.float32])


def test_blocks_of_another_size_change_nothing(monkeypatch):
    x = uniform(2, 9, 3)
    expected = attention.velocity(x, 2.0)
    monkeypatch.setattr(attention, "_FOREIGN_BLOCK", 4**2)
    np.testing.assert_allclose(near(attention.velocity(far(x), 2.0)), expected, atol=1e-15)


def test_ties_are_kept():
    x = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    found = near(layers.forward(far(x), 2.0, 40, rng=rng()))
    assert (found[0] == -found[1]).all()
    assert (found[2] == -found[3]).all()


def test_the_overlap_chain_of_more_tokens_than_dimensions_stays_a_gram_matrix():
    g = near(layers.overlap_chain(far(gram(uniform(5, 3))), 2.0, 3, 4, rng=rng()))
    values = np.linalg.eigvalsh(g)
    np.testing.assert_allclose(values[:2], 0, atol=1e-14)
    assert (values[2:] > 0.01).all()
    assert (np.diagonal(g) == 1).all()


def test_no_systems_at_all():
    for function in (forward(), stochastic(), lambda x: attention.velocity(x, 2.0)):
        assert function(far(np.zeros((0, 3, 3)))).shape[-3:] == (0, 3, 3)


def test_trajectories_have_numpy_times_and_the_angles_of_their_library():
    x0 = far(uniform(4, 2))
    path = flow.solve(x0, 2.0, far(np.array([0.0, 0.2])))
    assert type(path.times) is np.ndarray
    assert path.times.dtype == np.float64
    assert path.angles.device == FAR
    assert (near(path.tokens[0, ...]) == near(x0)).all()


def test_counts_are_numpy_whole_numbers():
    x = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    for library in (far, jnp.asarray):
        split = clusters.antipodal_split(library(x))
        assert type(split) is np.ndarray
        assert split.tolist() == [2, 1]
        count = clusters.count(library(x))
        assert isinstance(count, np.integer)
        assert count == 2


def test_all_other_functions_answer_in_numpy():
    theta, x = uniform(6, 2)[:, 0].copy(), uniform(6, 3)
    for function, value in (
        (lambda t: circle.velocity(t, 2.0), theta),
        (lambda t: circle.solve(t, 2.0, [0, 0.1]).states, theta),
        (lambda t: circle.modes(t, [3]), theta),
        (lambda t: meanfield.smoothed_density(t, 64, 0.5), theta),
        (lambda x: globe.velocity(x, 2.0), x),
        (lambda b: harmonics.growth_rate(2, b, 3), np.abs(theta)),
        (lambda r: two_tokens.drift(r, 2.0, 3), theta),
    ):
        found, expected = function(far(value)), function(value)
        assert type(found) is np.ndarray
        assert (found == expected).all()


def test_other_types_become_the_default_of_their_library():
    corner = np.eye(3, dtype=int)
    assert attention.weights(far(corner), 2.0).dtype == strict.float64
    assert attention.weights(jnp.asarray(corner), 2.0).dtype == np.float32
    assert attention.weights(jnp.eye(3, dtype=jnp.bfloat16), 2.0).dtype == np.float32


def test_errors_are_those_of_numpy_tokens():
    library = far
    x = np.float32(uniform(4, 3))
    for bad, words in (
        (np.where(x == x[0, 0], np.float32(np.nan), x), r"x must be finite, got "),
        (x[0], r"x must have shape \(\.\.\., n, d\) with .* got shape \(3,\)"),
        (
            2 * x,
            r"x must have unit rows \(to 0.001 in .*float32\), got a row whose norm is off by 1",
        ),
        (x + np.complex64(0), r"x must be an array of real numbers"),
        (x > 0, r"x must be an array of real numbers"),
    ):
        with pytest.raises(ValueError, match="^" + words) as caught:
            attention.velocity(library(bad), 2.0)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"^x must have no zero row"):
        sphere.normalize(library(0 * x))
    with pytest.raises(ValueError, match=r"^beta must be a finite number and >= 0 and <= 85"):
        attention.velocity(library(x), 86.0, "unnormalized")
    with pytest.raises(ValueError, match=r"^beta must be a finite number and >= 0, got "):
        attention.velocity(library(x), library(x[0]))
    with pytest.raises(ValueError, match=r"^gram0 must be positive semidefinite"):
        layers.overlap_chain(library(np.array([[1.0, 2], [2, 1]])), 2.0, 3, 2, rng=rng())


def test_errors_name_what_is_wrong_with_jax_arrays():
    with pytest.raises(ValueError, match=r"^x must be finite, got Array\("):
        attention.velocity(jnp.asarray([[1.0, jnp.nan]]), 2.0)
    with pytest.raises(ValueError, match=r"^x must have unit rows \(to 0.001 in float32\)"):
        attention.velocity(jnp.asarray([[1.0, 1.0]]), 2.0)


def test_two_libraries_do_not_mix():
    x = uniform(4, 3)
    for one, other in ((x, far(x)), (far(x), x), (jnp.asarray(x), x)):
        with pytest.raises(ValueError, match=r"^v must be an array of the library of x, .* got "):
            sphere.tangent(one, other)


def test_a_far_array_is_one_that_numpy_cannot_read():
    """Otherwise the tests above would prove nothing."""
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        np.exp(far(uniform(4, 3)))
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        np.asarray(far(uniform(4, 3)))


def test_importing_the_package_imports_no_other_library():
    code = (
        "import sys, tokensphere.sde, tokensphere.flow, tokensphere.layers\n"
        "print([m for m in ('jax', 'torch', 'cupy', 'array_api_strict') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
