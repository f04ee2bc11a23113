import ast
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from training import compare, data, results, study
from training.__main__ import main
from training.plan import PROFILES, TABLES
from training.protocols import REFERENCE
from training.train import Budget

IMAGES = data.digits()
CASE = replace(PROFILES["quick"].cases[0], budget=Budget(epochs=1, every=1, train=25))
PLAN = replace(PROFILES["quick"], cases=(CASE,))


def parabola(monkeypatch, peak):
    """Let the validation accuracy be a function of the rate, and count what is tried."""
    tried = []

    def fit(images, case, seed, rate):
        tried.append(rate)
        score = 1 - abs(np.log2(rate / peak)) / 20
        return SimpleNamespace(curves=SimpleNamespace(validation=[0.0, score]))

    monkeypatch.setattr(study, "fit", fit)
    return tried


@pytest.mark.parametrize("peak", [0.0025, 0.01, 0.02, 0.16])
def test_the_best_rate_is_bracketed(monkeypatch, peak):
    tried = parabola(monkeypatch, peak)
    found = study.tune(IMAGES, CASE, PLAN)
    assert found["rate"] == pytest.approx(peak)
    assert min(tried) < peak < max(tried)
    assert found["rates"] == sorted(set(tried))
    assert len(tried) == len(set(tried)) * len(PLAN.tuning_seeds)


def test_the_search_ends_where_no_rate_is_best(monkeypatch):
    for peak in (1e9, 1e-9):
        parabola(monkeypatch, peak)
        assert 1e-4 <= study.tune(IMAGES, CASE, PLAN)["rate"] <= 1


def never(*_):
    raise AssertionError("a finished piece is made again")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(results.PROFILES, "tiny", PLAN)
        return folder, results.compute("tiny", IMAGES, folder)


def test_an_interrupted_run_goes_on_where_it_stopped(found, monkeypatch):
    folder, first = found
    monkeypatch.setitem(results.PROFILES, "tiny", PLAN)
    monkeypatch.setattr(study, "tune", never)
    (folder / "reference.final.json").unlink()
    again = results.compute("tiny", IMAGES, folder)
    assert again == first  # and the same seed gives the same numbers
    monkeypatch.setitem(results.PROFILES, "tiny", replace(PLAN, seeds=(5,)))
    with pytest.raises(AssertionError):  # another plan does not take the pieces of this one
        results.compute("tiny", IMAGES, folder)


def test_what_is_found_about_a_case(found):
    case = found[1]["cases"]["reference"]
    assert np.shape(case["curves"]["validation"]) == (2, 1)
    np.testing.assert_allclose(np.ravel(case["curves"]["test"]), case["test"], atol=1e-6)
    assert len(case["right_by_image"]) == 497
    mean = np.sum(case["right_by_image"]) / 497 / 2
    assert mean == pytest.approx(np.mean(case["test"]), abs=1e-6)
    assert sum(case["first"]["histogram"]) == pytest.approx(1, abs=1e-4)


def test_taking_the_noise_out_and_not_taking_it_out():
    runs = [study.fit(IMAGES, CASE, seed, 0.01) for seed in PLAN.seeds]
    found = study.removal(IMAGES, CASE, runs, PLAN, 0.01)
    shares = [study.probabilities(IMAGES, CASE, run.last) for run in runs]
    labels = IMAGES.labels[study.split(IMAGES, CASE.budget).test]
    kept = [(share.argmax(axis=1) == labels).mean() for share in shares]
    np.testing.assert_allclose(found["test"][0], kept, atol=1e-6)
    noise = study.start(CASE.shape, REFERENCE, 0).layers.values
    assert found["noise_size"][0] == pytest.approx(float((noise**2).sum() ** 0.5), rel=1e-5)
    other = study.fresh(CASE, 0)
    assert other.shape == noise.shape
    assert (other != noise).all()


def test_no_half_file_and_no_changed_file_is_read(tmp_path, monkeypatch):
    results.write(tmp_path / "training" / "stored" / "x.json", {"cases": {"a": 1}, "sha256": "0"})
    assert [p.name for p in (tmp_path / "training" / "stored").iterdir()] == ["x.json"]
    monkeypatch.setattr(results.resources, "files", lambda name: tmp_path / name)
    with pytest.raises(ValueError, match="'x' do not have their hash"):
        results.load("x")
    with pytest.raises(ValueError, match="profile must be one whose results are stored, got 'y'"):
        results.load("y")


def test_the_stored_results_are_those_of_the_plan():
    stored, plan = results.load("paper"), PROFILES["paper"]
    assert list(stored["cases"]) == [case.name for case in plan.cases]
    for case in plan.cases:
        found = stored["cases"][case.name]
        key = results.identity(case, plan, IMAGES)
        assert found["case"] == key["case"]
        assert found["seeds"] == list(plan.seeds)
        assert len(found["test"]) == len(plan.seeds) >= 8
        if case.rate_of is None:
            rates, rate = found["tuning"]["rates"], found["rate"]
            assert rates[0] < rate
            assert rate < rates[-1] or 2 * rate > study.EXTREMES[1]
        else:
            assert found["rate"] == stored["cases"][case.rate_of]["rate"]


def test_the_tables_compare_cases_of_the_plan_that_differ_in_the_protocol_alone():
    plan = PROFILES["paper"]
    for reference, names in TABLES.values():
        for name in names:
            same = replace(plan[name], name="", protocol=REFERENCE, rate_of=None)
            assert same == replace(plan[reference], name="", protocol=REFERENCE, rate_of=None)
            assert plan[name].protocol != plan[reference].protocol
            assert plan[name].protocol.frozen == plan[reference].protocol.frozen
    with pytest.raises(ValueError, match=r"name must be one of reference, .* got 'loud'"):
        plan["loud"]


def stored(rng, shift=0.0, seeds=8, images=400):
    """Runs that are right about an image with a probability that depends on run and image."""
    chance = 0.8 + shift + rng.normal(0, 0.02, (seeds, 1)) + rng.normal(0, 0.1, images)
    right = rng.random((seeds, images)) < chance
    return {
        "seeds": list(range(seeds)),
        "test": right.mean(axis=1).tolist(),
        "right_by_image": right.sum(axis=0).tolist(),
    }


def test_intervals_of_differences_hold_as_often_as_they_say():
    rng = np.random.default_rng(4)
    found = [compare.difference(stored(rng, -0.02), stored(rng), 0.9) for _ in range(400)]
    covered = np.mean([d.low <= -0.02 <= d.high for d in found])
    assert 0.9 - 0.03 < covered <= 1  # wide, if anything
    assert np.mean([d.mean for d in found]) == pytest.approx(-0.02, abs=2e-3)


def test_verdicts():
    rng = np.random.default_rng(5)
    one, same = stored(rng), stored(rng)
    worse, better = stored(rng, -0.15), stored(rng, 0.15)
    for case, verdict in ((worse, "supports"), (same, "undecided"), (better, "contradicts")):
        assert compare.difference(case, one, 0.99).verdict == verdict
    many = compare.table({"a": one, "b": same, "c": worse}, "a", ["b", "c"], 0.99)
    assert many["b"] == compare.difference(same, one, 0.99, 2)
    assert many["b"].high > compare.difference(same, one, 0.99).high
    with pytest.raises(ValueError, match="same seeds"):
        compare.difference(one, {**one, "seeds": [1]}, 0.99)
    mean, low, high = compare.interval([1.0, 2.0, 3.0], 0.95)
    assert (mean, low) == pytest.approx((2, 2 - 4.302653 / 3**0.5))
    assert high - mean == pytest.approx(mean - low)


def test_the_command_names_what_is_missing(tmp_path):
    run = CliRunner().invoke
    assert "needs --data" in run(main, ["--images", "mnist"]).output
    missing = run(main, ["--images", "cifar10", "--data", str(tmp_path)])
    assert missing.exit_code == 1
    assert "data_batch_1" in missing.output


def test_the_command_writes_a_file(tmp_path, monkeypatch):
    monkeypatch.setitem(results.PROFILES, "quick", replace(PLAN, seeds=(0,)))
    done = CliRunner().invoke(main, ["--profile", "quick", "--work", str(tmp_path)])
    assert done.exit_code == 0, done.output
    stored = json.loads((tmp_path / "quick-digits.json").read_text("utf-8"))
    assert stored["sha256"] == results.digest(stored["cases"])
    assert stored["images"] == "digits"


def imported(room):
    """Names of the packages that a room of the house imports."""
    for path in Path(results.__file__).parents[1].joinpath(room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0]


def test_the_rooms_do_not_enter_each_other():
    assert not {"tokensphere", "companion"} & set(imported("training"))
    for room in ("tokensphere", "companion"):
        names = set(imported(room))
        assert names
        assert not {"training", "jax", "equinox", "optax"} & names
