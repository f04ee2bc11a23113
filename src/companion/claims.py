"""Claims: what a chapter says it shows, checked where it is said.

A check that cannot fail is worth nothing. Every check therefore brings a *control*: a
deliberately wrong model that goes through the same check and must fail it. A control that
passes is an error of the chapter.

>>> result = check(
...     "circle-area",
...     "A unit disc has area π.",
...     source="derived here",
...     measured=3.1413,
...     expected=3.14159265,
...     tolerance=1e-3,
...     second_method="closed form",
...     control=Control("the area of the enclosing square", measured=4.0),
... )
>>> result
<claim circle-area: reproduced>

Statements are plain text with Unicode (β, γₖ), because they are also shown in a terminal.
"""

import html
import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from companion import _session
from companion._outputs import CLAIM, DEPENDS, NOT_REPRODUCED, OPEN, REPRODUCED, SIGNS
from companion._registry import Registry
from companion._text import check_id, number, numbers, plain, require_text

SOURCES = ("abstract 2410.23228", "abstract 2601.21942", "public code", "derived here")

_declared = Registry("claim")


class ControlPassed(Exception):
    """A deliberately wrong model passed the check, so the check shows nothing."""


class StaleFinding(Exception):
    """The text reports a failure, but the check passes: the text is wrong."""


@dataclass(frozen=True)
class Control:
    """A deliberately wrong model for a check.

    ``description`` says what is wrong in it; the values given replace those of the check,
    and with them the check must fail. In a check with an interval give ``expected`` or
    ``interval`` (the measured value takes no part in that verdict); in one with a tolerance
    ``measured``, ``expected`` or ``tolerance``.
    """

    description: str
    measured: ArrayLike | None = None
    expected: ArrayLike | None = None
    interval: tuple[ArrayLike, ArrayLike] | None = None
    tolerance: ArrayLike | None = None

    def __post_init__(self) -> None:
        require_text("the control's description", self.description)
        if all(getattr(self, f.name) is None for f in fields(self)[1:]):
            raise ValueError(f"control {self.description!r} changes nothing: give it values")


class Claim(_session.Shown):
    """A claim with its status; displays as a small box. ``record`` is what is stored."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__()
        self.record = record

    @property
    def id(self) -> str:
        """The claim's name in the ledger."""
        return str(self.record["id"])

    @property
    def status(self) -> str:
        """One of ``reproduced``, ``not reproduced``, ``depends on protocol``, ``open``."""
        return str(self.record["status"])

    def __repr__(self) -> str:
        return f"<claim {self.id}: {self.status}>"

    def _bundle(self) -> dict[str, Any]:
        return {
            "text/plain": as_text(self.record),
            "text/html": as_html(self.record),
            CLAIM: self.record,
        }


def check(
    id: str,
    statement: str,
    *,
    source: str,
    measured: ArrayLike,
    expected: ArrayLike,
    tolerance: ArrayLike | None = None,
    interval: tuple[ArrayLike, ArrayLike] | None = None,
    allowed_misses: int = 0,
    second_method: str,
    control: Control,
    finding: str | None = None,
    note: str = "",
) -> Claim:
    """Check a claim, show it as a box, and return it.

    Parameters
    ----------
    id
        lowercase words joined by hyphens, once in the whole book.
    statement
        what is claimed, one sentence of plain text with Unicode, no LaTeX.
    source
        where the claim comes from; starts with one of ``SOURCES``.
    measured, expected
        what the simulation gave, and what it should be; numbers, or arrays of one shape.
    tolerance
        absolute; the check passes iff ``|measured − expected| ≤ tolerance`` everywhere.
        A value that is not finite fails, except an infinity that equals the other one.
    interval
        ``(low, high)`` for the measured quantity, at a level chosen beforehand; the check
        passes iff ``low ≤ expected ≤ high`` everywhere, but for ``allowed_misses``.
        Give either a tolerance or an interval.
    allowed_misses
        of many intervals, how many may miss; a number fixed by the level beforehand.
    second_method
        how ``expected`` was got, independently of the simulation.
    control
        a wrong model for which this same check must fail.
    finding
        ``"not reproduced"`` or ``"depends on protocol"`` when the text reports that the check
        fails; ``note`` must then say why. It is an error if the check then passes.
    note
        a remark shown with the claim.

    Raises
    ------
    ValueError
        for an argument that makes no sense, naming it.
    ControlPassed
        if the wrong model passes.
    StaleFinding
        if a finding is reported but the check passes.

    A check that fails does not raise: its status says so, and the chapter goes on.
    """
    _check_words(id, statement, source)
    require_text("second_method", second_method)
    if (tolerance is None) == (interval is None):
        raise ValueError(f"claim {id!r}: give either a tolerance or an interval")
    if finding is not None:
        if finding not in (NOT_REPRODUCED, DEPENDS):
            raise ValueError(
                f"claim {id!r}: finding must be {NOT_REPRODUCED!r} or {DEPENDS!r}, not {finding!r}"
            )
        require_text("note (a finding needs one)", note)
    if not isinstance(control, Control):
        raise ValueError(f"claim {id!r}: control must be a claims.Control, not {control!r}")

    test = _Test(id, measured, expected, tolerance, interval, allowed_misses)
    wrong = _controlled(test, control)
    if wrong.passes():
        raise ControlPassed(
            f"claim {id!r}: the control {control.description!r} passes the check, "
            "so the check shows nothing"
        )
    passed = test.passes()
    if passed and finding is not None:
        raise StaleFinding(f"claim {id!r} is reported as {finding!r}, but its check passes")

    _declared.declare(id)
    record = {
        "id": id,
        "statement": statement.strip(),
        "source": source.strip(),
        "measured": plain(test.measured),
        "expected": plain(test.expected),
        "tolerance": plain(test.tolerance),
        "interval": plain(test.interval),
        "allowed_misses": allowed_misses,
        "verdict": test.verdict(),
        "second_method": second_method.strip(),
        "control": f"{control.description.strip()}: fails, as it must ({wrong.verdict()})",
        "finding": finding,
        "note": note.strip(),
        "status": REPRODUCED if passed else (finding or NOT_REPRODUCED),
    }
    return _declare(record)


def open(id: str, statement: str, *, source: str, note: str) -> Claim:
    """Record a claim that nobody has checked yet; ``note`` says what it would take."""
    _check_words(id, statement, source)
    require_text("note", note)
    _declared.declare(id)
    empty = dict.fromkeys(("measured", "expected", "tolerance", "interval", "finding"))
    return _declare(
        {
            "id": id,
            "statement": statement.strip(),
            "source": source.strip(),
            **empty,
            "second_method": "",
            "control": "",
            "verdict": "",
            "note": note.strip(),
            "status": OPEN,
        }
    )


def is_failure(record: dict[str, Any]) -> bool:
    """Whether a claim fails without the text knowing it."""
    return record["status"] == NOT_REPRODUCED and not record.get("finding")


def _declare(record: dict[str, Any]) -> Claim:
    claim = Claim(record)
    claim._show()
    return claim


def _check_words(id: str, statement: str, source: str) -> None:
    check_id(id)
    require_text("statement", statement)
    if "$" in statement or "\\" in statement:
        raise ValueError(f"claim {id!r}: the statement is plain text with Unicode, not LaTeX")
    if not isinstance(source, str) or not source.startswith(SOURCES):
        raise ValueError(
            f"claim {id!r}: source must start with one of {', '.join(map(repr, SOURCES))}, "
            f"not {source!r}"
        )


class _Test:
    """The comparison itself, so that a control can go through exactly the same one."""

    def __init__(
        self,
        id: str,
        measured: ArrayLike,
        expected: ArrayLike,
        tolerance: ArrayLike | None,
        interval: tuple[ArrayLike, ArrayLike] | None,
        allowed_misses: int,
    ) -> None:
        self.id = id
        self.measured = self._numbers("measured", measured)
        self.expected = self._numbers("expected", expected)
        self.tolerance: NDArray[np.float64] | None = None
        self.interval: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        self.allowed_misses = allowed_misses
        shapes = {self.measured.shape, self.expected.shape} - {()}
        if len(shapes) > 1:
            raise ValueError(
                f"claim {id!r}: measured has shape {self.measured.shape}, "
                f"expected {self.expected.shape}; they must agree"
            )
        self.shape = shapes.pop() if shapes else ()
        if tolerance is not None:
            self.tolerance = self._fitting("tolerance", tolerance)
            if not np.all(self.tolerance >= 0) or np.any(np.isinf(self.tolerance)):
                raise ValueError(f"claim {id!r}: tolerance must be finite and ≥ 0")
        if interval is not None:
            try:
                low, high = interval
            except (TypeError, ValueError):
                raise ValueError(f"claim {id!r}: interval must be a pair (low, high)") from None
            self.interval = self._fitting("interval", low), self._fitting("interval", high)
            if np.any(self.interval[0] > self.interval[1]):
                raise ValueError(f"claim {id!r}: interval has low above high")
        whole = isinstance(allowed_misses, int | np.integer) and not isinstance(
            allowed_misses, bool
        )
        if not whole or allowed_misses < 0:
            raise ValueError(f"claim {id!r}: allowed_misses must be a whole number ≥ 0")
        if allowed_misses and (interval is None or allowed_misses >= math.prod(self.shape)):
            raise ValueError(
                f"claim {id!r}: allowed_misses={allowed_misses} needs more than that many intervals"
            )

    def _numbers(self, name: str, value: ArrayLike) -> NDArray[np.float64]:
        try:
            if np.iscomplexobj(value):
                raise TypeError
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"claim {self.id!r}: {name} must be real numbers") from None
        if array.size == 0:
            raise ValueError(f"claim {self.id!r}: {name} is empty, nothing would be checked")
        return array

    def _fitting(self, name: str, value: ArrayLike) -> NDArray[np.float64]:
        array = self._numbers(name, value)
        try:
            fits = np.broadcast_shapes(array.shape, self.shape) == self.shape
        except ValueError:
            fits = False
        # Scalars with an array of intervals: one expected value, many measurements.
        if not fits and self.shape == () and name == "interval":
            self.shape = array.shape
            fits = True
        if not fits:
            raise ValueError(
                f"claim {self.id!r}: {name} has shape {array.shape}, the values {self.shape}"
            )
        return array

    def misses(self) -> NDArray[np.bool_]:
        """Where the values do not agree."""
        if self.interval is not None:
            low, high = self.interval
            inside = (low <= self.expected) & (self.expected <= high)  # NaN compares false
            return np.atleast_1d(~np.broadcast_to(inside, self.shape))
        assert self.tolerance is not None
        return np.atleast_1d(~(self._deviation() <= self.tolerance))

    def passes(self) -> bool:
        return int(np.sum(self.misses())) <= self.allowed_misses

    def _deviation(self) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            deviation = np.abs(self.measured - self.expected)
        return np.where(self.measured == self.expected, 0.0, deviation)

    def verdict(self) -> str:
        """Say the comparison in a few words."""
        if self.interval is not None:
            low, high = self.interval
            if self.shape == ():
                width = float(high - low)
                return (
                    f"measured {numbers(self.measured, width)}, interval "
                    f"[{number(float(low), width)}, {number(float(high), width)}], "
                    f"expected {numbers(self.expected, width)}"
                )
            allowed = f"; {self.allowed_misses} may miss" if self.allowed_misses else ""
            misses = self.misses()
            return f"{misses.size - int(misses.sum())} of {misses.size} intervals hold{allowed}"
        assert self.tolerance is not None
        tolerance = float(np.min(self.tolerance))
        if self.shape == ():
            return (
                f"measured {numbers(self.measured, tolerance)}, expected "
                f"{numbers(self.expected, tolerance)} ± {number(tolerance)}"
            )
        deviation = np.ravel(np.broadcast_to(self._deviation(), self.shape))
        allowed_deviation = np.ravel(np.broadcast_to(self.tolerance, self.shape))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(deviation == 0, 0.0, deviation / allowed_deviation)
        worst = int(np.argmax(np.where(np.isnan(ratio), np.inf, ratio)))
        return (
            f"{deviation.size} values, worst deviation {number(float(deviation[worst]))} "
            f"where {number(float(allowed_deviation[worst]))} is allowed"
        )


def _controlled(test: _Test, control: Control) -> _Test:
    """Return the same test with the control's values; ValueError if that changes nothing."""
    by_interval = test.interval is not None
    if by_interval and control.tolerance is not None:
        raise ValueError(f"claim {test.id!r}: the control has a tolerance, the check an interval")
    if not by_interval and control.interval is not None:
        raise ValueError(f"claim {test.id!r}: the control has an interval, the check a tolerance")
    wrong = _Test(
        test.id,
        test.measured if control.measured is None else control.measured,
        test.expected if control.expected is None else control.expected,
        test.tolerance if control.tolerance is None else control.tolerance,
        test.interval if control.interval is None else control.interval,
        test.allowed_misses,
    )
    used = ("expected", "interval") if by_interval else ("measured", "expected", "tolerance")
    if all(_same(getattr(test, name), getattr(wrong, name)) for name in used):
        more = " (in a check with an interval give the control's interval)" if by_interval else ""
        raise ValueError(
            f"claim {test.id!r}: the control {control.description!r} changes nothing{more}"
        )
    return wrong


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    pairs = zip(one, other) if isinstance(one, tuple) else [(one, other)]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def as_text(record: dict[str, Any]) -> str:
    """Write the claim for a terminal or a plain notebook."""
    lines = [f"{SIGNS[record['status']]} {record['status']}: {record['statement']}"]
    lines += [f"  {name}: {value}" for name, value in _details(record)]
    return "\n".join(lines)


def as_html(record: dict[str, Any]) -> str:
    """Write the claim as a box; ``id`` is ``claim-<id>``, so that the ledger can link to it."""
    details = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
        for name, value in _details(record)
    )
    return (
        f'<div class="companion-claim companion-{record["status"].replace(" ", "-")}" '
        f'id="claim-{record["id"]}" role="group" aria-label="Claim {record["id"]}">'
        f'<p class="companion-claim-head">{badge(record["status"])} '
        f'<a class="companion-claim-id" href="#claim-{record["id"]}">{record["id"]}</a></p>'
        f'<p class="companion-claim-statement">{html.escape(record["statement"])}</p>'
        f"<dl>{details}</dl></div>"
    )


def badge(status: str) -> str:
    """Show the status as a coloured word; the sign makes it readable without colours."""
    kind = status.replace(" ", "-")
    return (
        f'<span class="companion-badge companion-badge-{kind}">'
        f'<span aria-hidden="true">{SIGNS[status]}</span> {html.escape(status)}</span>'
    )


def _details(record: dict[str, Any]) -> list[tuple[str, str]]:
    details = [
        ("Source", record["source"]),
        ("Result", record["verdict"]),
        ("Second method", record["second_method"]),
        ("Control", record["control"]),
        ("Note", record["note"]),
    ]
    return [(name, value) for name, value in details if value]
