import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from companion import claims
from companion.claims import Control, ControlPassed, StaleFinding


def check(id: str = "a-claim", **changes: Any) -> claims.Claim:
    given: dict[str, Any] = {
        "statement": "One is one.",
        "source": "derived here",
        "measured": 1.0,
        "expected": 1.05,
        "tolerance": 0.1,
        "second_method": "counting",
        "control": Control("two", measured=-99.0),
    } | changes
    if given.get("interval") is not None and "tolerance" not in changes:
        given["tolerance"] = None
    return claims.check(id, **given)


def test_a_check_within_tolerance_is_reproduced() -> None:
    record = check().record
    assert record["status"] == "reproduced"
    assert "fails, as it must" in record["control"]


def test_the_edge_of_the_tolerance_belongs_to_it() -> None:
    assert check(measured=1.0, expected=1.5, tolerance=0.5).status == "reproduced"
    assert check("b", measured=1.0, expected=1.501, tolerance=0.5).status == "not reproduced"


def test_one_of_many_values_off_fails() -> None:
    control = Control("all off", measured=[9.0, 9.0, 9.0])
    fine = {"expected": [1.0, 2.0, 3.0], "tolerance": [0.1, 0.1, 0.1], "control": control}
    assert check(measured=[1.0, 2.05, 3.0], **fine).status == "reproduced"
    assert check("b", measured=[1.0, 2.11, 3.0], **fine).status == "not reproduced"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails(bad: float) -> None:
    assert check(measured=bad).status == "not reproduced"


def test_equal_infinities_agree() -> None:
    assert check(measured=np.inf, expected=np.inf).status == "reproduced"
    assert check("b", measured=-np.inf, expected=np.inf).status == "not reproduced"
    assert check("c", measured=np.nan, expected=np.nan).status == "not reproduced"


def test_an_interval_must_hold_the_expected_value() -> None:
    control = Control("far away", interval=(5, 6))
    assert check(interval=(1.0, 1.1), control=control).status == "reproduced"
    assert check("b", interval=(0.8, 1.0), control=control).status == "not reproduced"
    assert check("c", interval=(np.nan, 2.0), control=control).status == "not reproduced"


def test_misses_are_allowed_only_as_many_as_said() -> None:
    low, high = np.array([0.0, 0.0, 2.0]), np.array([2.0, 2.0, 3.0])
    many = {
        "measured": [1.0, 1.0, 2.5],
        "expected": 1.05,
        "interval": (low, high),
        "control": Control("all off", interval=(low + 5, high + 5)),
    }
    assert check(**many).status == "not reproduced"
    assert check("b", **many, allowed_misses=1).status == "reproduced"
    with pytest.raises(ValueError, match="allowed_misses"):
        check("c", **many, allowed_misses=3)
    with pytest.raises(ValueError, match="allowed_misses"):
        check("d", allowed_misses=1)


def test_a_control_that_passes_is_an_error_naming_both() -> None:
    with pytest.raises(ControlPassed, match=r"a-claim.*nearly the same"):
        check(control=Control("nearly the same", measured=1.001))


def test_a_control_must_fail_even_when_the_claim_fails() -> None:
    with pytest.raises(ControlPassed):
        check(measured=7.0, control=Control("the right one", measured=1.05))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control": Control("same", measured=1.0)}, "changes nothing"),
        ({"interval": (1, 2), "control": Control("x", measured=9.0)}, "changes nothing"),
        ({"interval": (1, 2), "control": Control("x", tolerance=9.0)}, "tolerance"),
        ({"control": Control("x", interval=(1, 2))}, "interval"),
        ({"control": "no control"}, "Control"),
        ({"interval": (1, 2), "tolerance": 1.0}, "either"),
        ({"tolerance": None}, "either"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"tolerance": np.inf}, "tolerance"),
        ({"interval": (2, 1)}, "low above high"),
        ({"interval": 3}, "pair"),
        ({"measured": [1.0, 2.0], "expected": [1.0, 2.0, 3.0]}, "shape"),
        ({"measured": [], "expected": []}, "empty"),
        ({"measured": "many"}, "real numbers"),
        ({"measured": 1j}, "real numbers"),
        ({"source": "the paper's Theorem 3"}, "source"),
        ({"statement": r"$\beta$ is large"}, "plain text"),
        ({"statement": " "}, "statement"),
        ({"second_method": ""}, "second_method"),
        ({"finding": "not reproduced"}, "note"),
        ({"finding": "maybe", "note": "x"}, "finding"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(**change)


@pytest.mark.parametrize("id", ["", "Two", "a b", "a_b", "-a", "a--b", 3])
def test_an_id_is_lowercase_words(id: Any) -> None:
    with pytest.raises(ValueError, match="lowercase words"):
        check(id)


def test_a_control_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        Control("nothing")


def test_the_same_id_twice_is_refused() -> None:
    check()
    with pytest.raises(ValueError, match="twice"):
        check()


def test_a_known_failure_keeps_its_finding() -> None:
    for finding in ("not reproduced", "depends on protocol"):
        claim = check(finding.split()[0], measured=9.0, finding=finding, note="We tried.")
        assert claim.status == finding
        assert not claims.is_failure(claim.record)
    assert claims.is_failure(check(measured=9.0).record)


def test_a_finding_that_is_no_longer_true_is_an_error() -> None:
    with pytest.raises(StaleFinding, match="a-claim"):
        check(finding="not reproduced", note="We tried.")


def test_an_open_claim() -> None:
    claim = claims.open("later", "Noise hurts.", source="abstract 2601.21942", note="Needs data.")
    assert claim.status == "open"
    assert not claims.is_failure(claim.record)
    with pytest.raises(ValueError, match="note"):
        claims.open("later-too", "Noise hurts.", source="abstract 2601.21942", note="")


def test_the_box_is_escaped_and_complete() -> None:
    claim = check(statement="a < b & <script>alert(1)</script>", note="see > there")
    bundle, metadata = claim._repr_mimebundle_()
    html = bundle["text/html"]
    assert "<script>" not in html
    assert 'id="claim-a-claim"' in html
    for word in (
        "a &lt; b &amp;",
        "reproduced",
        "derived here",
        "counting",
        "two",
        "see &gt; there",
    ):
        assert word in html
    assert metadata["companion"]["kind"] == "html"


def test_the_record_is_json_with_whole_arrays() -> None:
    values = np.arange(100.0)
    record = check(
        measured=values,
        expected=values + 0.25,
        tolerance=0.5,
        control=Control("shifted", measured=values + np.inf),
    ).record
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again["measured"] == list(range(100))
    assert "100 values, worst deviation 0.25 where 0.5 is allowed" in again["verdict"]


@given(
    measured=st.floats(-1e6, 1e6),
    expected=st.floats(-1e6, 1e6),
    tolerance=st.floats(0, 1e6),
)
def test_the_verdict_is_the_definition(measured: float, expected: float, tolerance: float) -> None:
    claims._declared.clear()
    claim = check(
        measured=measured,
        expected=expected,
        tolerance=tolerance,
        control=Control("far", measured=1e9),
    )
    passed = abs(measured - expected) <= tolerance
    assert claim.status == ("reproduced" if passed else "not reproduced")
