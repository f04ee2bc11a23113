"""Every public function refuses bad input with an error that names the argument.

The table below gives each function a call that works; each argument's bad values are put in one
at a time. A function that is missing from the table fails the last test.
"""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

import tokensphere

X = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8], [0.0, -1.0, 0.0]])
THETA = np.array([0.1, 2.0, -1.0])
NAN, INF = float("nan"), float("inf")


def rng():
    return np.random.default_rng(1)


#: what is not a value of each sort of argument
TOKENS = [
    np.where(X == 0.6, NAN, X), np.where(X == 0.6, INF, X), X[0], X[:, :1], X[:0], 2 * X,
    0 * X, X + 1e-5, np.float32(X) * np.float32(1.01), X + 0j, "tokens", None, [[1.0, 0.0], [1.0]],
]  # fmt: skip
ANGLES = [np.array([NAN, 1.0]), [INF], 0.5, [], THETA + 0j, "angles", None]
REALS = [NAN, INF, -INF, "1", None, 1j, [1.0, 2.0], True]
BETA = [*REALS, -1e-9, -5]
BETAS = [NAN, INF, "one", None, 1j, -1e-9, [1.0, -2.0], [1.0, NAN]]
WHOLE = [NAN, INF, -1, 0, 1.5, "2", None, [1, 2], True]
WHOLES = [NAN, INF, -1, 1.5, "two", None, 1j, [1, 1.5], [1, NAN]]
DIMENSION = [*WHOLE, 1]
KIND = ["hard", "Softmax", "", None, 1]
TIMES = [[], 1.0, [1.0, 0.5], [0.0, NAN], [0.0, INF], [[0.0, 1.0]], "now", None]
RTOL = [*REALS, 0.0, -1e-8, 1.0]
RNG = [None, 1, np.random, "seed", np.random.RandomState(1)]
TOL = [*REALS, -0.1, 4.0]
SHARE = [*REALS, -0.1, 1.1]

DENSITY = 1 + 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)
DENSITIES = [
    [1.0, NAN, 1.0], [1.0, INF, 1.0], [1.0, 1.0], [1.0, 0.0, 1.0, 1.0], [1.0, -1.0, 1.0],
    np.ones((2, 8)), 1.0, [], np.ones(8) + 0j, "flat", None,
    [1.0, 1.0, 1.0, 0.01, 0.01, 1.0, 1.0, 1.0],  # positive on its grid, not between
]  # fmt: skip
COUNT = [*REALS, 0, 0.5, -3]
LEVEL = [*REALS, 0.0, -0.1, 1.1]
RACE_BETA = [*BETA, 0.0, 701.0]
HORIZON = [*REALS, -0.1]
PULLS = [NAN, INF, "pull", None, 1j]
NOISE = ["Common", "", None, 1, "some"]
OVERLAPS = [NAN, INF, 1.1, -1.1, "r", None, 1j]
SIZES = [(1,), (1, 2, 3), (0, 1), (1, -1), (1.5, 1), (NAN, 1), "ab", None, 3]

#: module.function -> arguments: (a good value, bad values)
TABLE = {
    "sphere.uniform": {
        "n": (2, WHOLE), "d": (3, DIMENSION), "rng": (rng, RNG),
        "batch": ((2,), [(-1,), (1.5,), (NAN,)]), "dtype": (float, [int, complex, np.float16]),
    },
    "sphere.normalize": {"x": (2 * X, [[0.0, 0.0], [NAN, 1.0], [INF, 1.0], [1.0], 1.0, "x", None])},
    "sphere.tangent": {
        "x": (X, TOKENS), "v": (X, [X[:, :2], 1.0, np.full_like(X, NAN), "v", None, X + 0j]),
    },
    "sphere.from_angles": {"theta": (THETA, ANGLES)},
    "sphere.to_angles": {"x": (np.eye(2), [*TOKENS, X])},
    "attention.weights": {"x": (X, TOKENS), "beta": (1.0, BETA)},
    "attention.velocity": {
        "x": (X, TOKENS), "beta": (1.0, BETA), "kind": ("unnormalized", KIND),
    },
    "attention.energy": {"x": (X, TOKENS), "beta": (1.0, [*BETA, 0.0, 5e-324, 701.0])},
    "harmonics.kernel_eigenvalue": {
        "k": (0, WHOLES), "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]),
    },
    "harmonics.log_kernel_eigenvalue": {
        "k": (0, WHOLES), "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]),
    },
    "harmonics.growth_rate": {
        "k": (1, [*WHOLES, 0]), "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]),
        "kind": ("softmax", KIND),
    },
    "harmonics.dominant_mode": {"beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0])},
    "harmonics.mode_switch": {"k": (1, WHOLE), "d": (3, DIMENSION)},
    "flow.solve": {
        "x0": (X, TOKENS), "beta": (1.0, BETA), "times": ([0.0, 0.1], TIMES),
        "kind": ("softmax", KIND), "rtol": (1e-6, [bad for bad in RTOL if bad is not None]),
    },
    "circle.velocity": {
        "theta": (THETA, ANGLES), "beta": (1.0, [*BETA, 701.0]), "kind": ("unnormalized", KIND),
        "threads": (1, WHOLE),
    },
    "circle.solve": {
        "theta0": (THETA, ANGLES), "beta": (1.0, [*BETA, 701.0]), "times": ([0.0, 0.1], TIMES),
        "kind": ("unnormalized", KIND), "rtol": (1e-6, RTOL), "threads": (1, WHOLE),
    },
    "circle.modes": {"theta": (THETA, ANGLES), "k": (2, [NAN, INF, 1.5, "two", None, 1j])},
    "circle.predicted_centres": {"theta0": (THETA, ANGLES), "beta": (5.0, BETA)},
    "clusters.count": {
        "x_or_theta": (X, [np.array([NAN, 1.0]), 0.5, [], X + 0j, "x", None]),
        "tol": (0.1, TOL), "min_share": (0.1, SHARE),
    },
    "clusters.antipodal_split": {"x": (X, TOKENS), "tol": (0.1, TOL)},
    "circle.from_modes": {
        "coefficients": ([0.1 + 0.1j, 0.0], [[NAN, 0.1], [INF], [0.9, 0.9], [], 0.1, None, "x"]),
        "n": (5, WHOLE),
    },
    "globe.velocity": {
        "x": (X, [*TOKENS, np.eye(2)]), "beta": (1.0, [*BETA, 701.0]), "kind": ("softmax", KIND),
        "threads": (1, WHOLE),
    },
    "globe.solve": {
        "x0": (X, [*TOKENS, np.eye(2)]), "beta": (1.0, [*BETA, 701.0]),
        "times": ([0.0, 0.1], TIMES), "kind": ("softmax", KIND), "rtol": (1e-6, RTOL),
        "threads": (1, WHOLE),
    },
    "globe.power_spectrum": {
        "x": (X, [*TOKENS, np.eye(2)]), "degrees": ([0, 3], [NAN, INF, -1, 301, 0.5, "1", None]),
    },
    "meanfield.solve_characteristics": {
        "density0": (DENSITY, DENSITIES), "beta": (1.0, [*BETA, 701.0]),
        "times": ([0.0, 0.1], TIMES), "kind": ("unnormalized", KIND), "tokens": (32, WHOLE),
        "rtol": (1e-6, RTOL),
    },
    "meanfield.solve_spectral": {
        "density0": (DENSITY, DENSITIES), "beta": (1.0, [*BETA, 701.0]),
        "times": ([0.0, 0.1], TIMES), "kind": ("unnormalized", KIND), "modes": (32, WHOLE),
        "rtol": (1e-6, RTOL),
    },
    "meanfield.smoothed_density": {
        "theta": (THETA, ANGLES), "size": (64, [*WHOLE, 5]),
        "width": (0.5, [*REALS, 0.0, -1.0, 0.1, 4.0]),
    },
    "meanfield.transport_distance": {"theta": (THETA, ANGLES), "other": (THETA, ANGLES)},
    "mode_race.survival": {
        "t": (0.1, [NAN, INF, "now", None, 1j]), "n": (1000, COUNT), "beta": (5.0, RACE_BETA),
        "level": (0.1, LEVEL),
    },
    "mode_race.mean_arrival": {
        "n": (1000, COUNT), "beta": (5.0, RACE_BETA), "level": (0.1, LEVEL),
    },
    "mode_race.shares": {"n": (1000, COUNT), "beta": (5.0, RACE_BETA), "level": (0.1, LEVEL)},
    "layers.forward": {
        "x0": (X, TOKENS), "beta": (1.0, BETA), "depth": (4, WHOLE), "horizon": (1.0, HORIZON),
        "pull": (-0.5, REALS), "noise": ("common", NOISE), "entries": ("gaussian", KIND),
        "rng": (rng, RNG), "keep": (2, [NAN, 0, -1, 5, 1.5, "2"]),
    },
    "layers.overlap_chain": {
        "gram0": (X @ X.T, [
            np.eye(3)[:2], np.full((3, 3), NAN), 2 * np.eye(3), np.array([[1.0, 0.5], [0.4, 1.0]]),
            np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(3), "gram", None, 1j * np.eye(2),
        ]),
        "beta": (1.0, BETA), "d": (3, DIMENSION), "depth": (4, WHOLE), "horizon": (1.0, HORIZON),
        "pull": (-0.5, REALS), "rng": (rng, RNG), "keep": (2, [NAN, 0, -1, 5, 1.5, "2"]),
    },
    "sde.solve": {
        "x0": (X, TOKENS), "beta": (1.0, BETA), "times": ([0.0, 0.1, 0.2], TIMES),
        "steps": (4, [*WHOLE, 1]), "pull": (-0.5, REALS), "noise": ("common", NOISE),
        "rng": (rng, RNG),
    },
    "two_tokens.drift": {
        "r": (0.1, OVERLAPS), "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]),
        "pull": (-0.5, PULLS),
    },
    "two_tokens.diffusion": {
        "r": (0.1, OVERLAPS), "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]),
    },
    "two_tokens.critical_beta": {"d": (3, [*WHOLES, 1, 0]), "pull": (0.5, [*PULLS, -0.1])},
    "two_tokens.lyapunov_exponents": {
        "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]), "pull": (-0.5, PULLS),
    },
    "two_tokens.antipodal_probability": {
        "r0": (0.1, [*OVERLAPS, 1.0, -1.0]), "beta": (1.0, BETAS), "d": (3, [*WHOLES, 1, 0]),
        "pull": (-0.5, PULLS),
    },
    "two_tokens.expected_overlap": {
        "r0": (0.1, [*OVERLAPS, 1.0, -1.0]), "t": (0.1, [NAN, INF, -0.1, "now", None, 1j]),
        "beta": (1.0, BETA), "d": (3, DIMENSION), "pull": (-0.5, REALS),
    },
    "two_tokens.simulate": {
        "r0": (0.1, [*OVERLAPS, 1.0, -1.0, [0.1, 0.2]]), "beta": (1.0, BETA), "d": (3, DIMENSION),
        "times": ([0.0, 0.1], TIMES), "pull": (-0.5, REALS), "paths": (3, WHOLE),
        "rng": (rng, RNG),
    },
    "two_clusters.drift": {
        "r": (0.1, OVERLAPS), "sizes": ((1, 2), SIZES), "beta": (1.0, BETAS), "d": (3, DIMENSION),
    },
    "two_clusters.diffusion": {
        "r": (0.1, OVERLAPS), "sizes": ((1, 2), SIZES), "beta": (1.0, BETAS), "d": (3, DIMENSION),
    },
    "two_clusters.mean_merge_time": {
        "sizes": ((1, 2), SIZES), "beta": (1.0, BETA), "d": (3, DIMENSION),
        "r0": (0.1, [*REALS, 1.0, -1.0]), "merged": (0.9, [*REALS, 1.0, -1.0]),
    },
}  # fmt: skip


def present():
    """The modules of the package, private ones left out."""
    return [m.name for m in pkgutil.iter_modules(tokensphere.__path__) if m.name[0] != "_"]


def function_of(name):
    module, function = name.split(".")
    return getattr(importlib.import_module(f"tokensphere.{module}"), function)


def good(name):
    return {
        argument: value() if callable(value) and value is not float else value
        for argument, (value, _) in TABLE[name].items()
    }


CASES = [
    pytest.param(name, argument, bad, id=f"{name}-{argument}-{i}")
    for name, arguments in TABLE.items()
    for argument, (_, bads) in arguments.items()
    for i, bad in enumerate(bads)
]


@pytest.mark.parametrize("name", list(TABLE))
def test_good_input_is_taken(name):
    function_of(name)(**good(name))


@pytest.mark.parametrize(("name", "argument", "bad"), CASES)
def test_bad_input_is_named(name, argument, bad):
    arguments = good(name)
    arguments[argument] = bad
    with pytest.raises(ValueError, match=rf"^{re.escape(argument)} must ") as caught:
        function_of(name)(**arguments)
    # one line, not a page of numbers
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", list(TABLE))
def test_random_functions_have_no_hidden_default(name):
    signature = inspect.signature(function_of(name))
    if "rng" in signature.parameters:
        assert signature.parameters["rng"].default is inspect.Parameter.empty
        arguments = good(name)
        del arguments["rng"]
        with pytest.raises(TypeError, match="rng"):
            function_of(name)(**arguments)


@pytest.mark.parametrize("module", present())
def test_no_public_function_is_left_out(module):
    members = vars(importlib.import_module(f"tokensphere.{module}"))
    home = f"tokensphere.{module}"
    for name, member in members.items():
        if not inspect.isfunction(member) or name[0] == "_" or member.__module__ != home:
            continue
        if home == "tokensphere.attention" and name == "usable_beta":
            continue  # a check itself
        parameters = set(inspect.signature(member).parameters)
        assert f"{module}.{name}" in TABLE, f"{home}.{name} is not in this test's table"
        assert parameters == set(TABLE[f"{module}.{name}"]), f"arguments of {home}.{name}"
        assert member.__doc__, f"{home}.{name} has no docstring"
