"""What a person sees during a build."""

import io
from pathlib import Path

import pytest

from companion.execute import Failure, Job
from companion.progress import Bars, Lines, progress
from companion.source import Page


def job(name: str) -> Job:
    path = Path(f"{name}.md")
    return Job(Page(name, path, ""), "", "paper", {}, path, path, 1.0, path)


def test_lines_keep_the_number_of_a_chapter() -> None:
    stream = io.StringIO()
    view = Lines(3, stream)
    view.unchanged("a")
    view.started(job("b"))
    view.started(job("c"))
    view.cell(job("c"), 0, 3)
    view.ended(job("c"), 1.26, Failure("c", "ValueError", "no"))
    view.ended(job("b"), 41.2, None)
    assert stream.getvalue().splitlines() == [
        "[1/3] a … unchanged",
        "[2/3] b …",
        "[3/3] c …",
        "[3/3] c … FAILED after 1.3 s",
        "[2/3] b … 41.2 s",
    ]


def test_bars_count_cells_and_leave_a_line() -> None:
    view = Bars(1)
    view.stream = io.StringIO()
    view.started(job("a"))
    view.tick()
    view.cell(job("a"), 1, 4)
    view.ended(job("a"), 2.0, None)
    view.close()
    shown = view.stream.getvalue()
    assert "a … starting" in shown
    assert "cell 2/4" in shown
    assert shown.rstrip().endswith("[1/1] a … 2.0 s")


def test_no_bars_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert type(progress(1)) is Lines


def test_a_failure_says_where() -> None:
    failure = Failure(
        "a", "ValueError", "no", cell=3, line=40, line_in_cell=2, source=Path("book/a.md")
    )
    assert str(failure).splitlines() == [
        "chapter a, cell 3, line 2 of the cell: ValueError: no",
        "  source: book/a.md:40",
    ]
