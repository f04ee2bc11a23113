"""The commands on results written by hand: no kernel runs here."""

import errno
import json
import re
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakebook as fake
import pytest

from companion import claims, ledger, serve, store
from companion.book import open_book
from companion.claims import Control
from companion.notebooks import without_solutions
from companion.store import Execution

Command = Callable[..., tuple[int, str, str]]


def claim(id: str, measured: float = 1.0, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"source": "derived here"} | options
    return claims.check(
        id,
        f"Statement <{id}>.",
        measured=measured,
        expected=1.0,
        tolerance=0.1,
        second_method="counting",
        control=Control("two", measured=2.0),
        **given,
    ).record


def executed(book: Any, **results: list[dict[str, Any]]) -> None:
    """Write a store in which these chapters were executed with these claims."""
    opened = open_book(book.root)
    keys = opened.keys({c.name: "paper" for c in opened.chapters})
    executions = []
    for name, records in results.items():
        execution = Execution(name, keys[name], "paper", book.root / "made" / name)
        (execution.folder / "figures").mkdir(parents=True)
        (execution.folder / "notebook.ipynb").write_text("{}")
        store.write_json(execution.folder / "claims.json", records)
        store.write_json(execution.folder / "figures.json", [])
        record = {"when": "2026-01-01T00:00:00+00:00", "seconds": 1.5}
        store.write_json(execution.folder / "record.json", record)
        executions.append(store.keep(book.root, execution, execution.folder))
    store.write_index(book.root / "_build" / "book.json", executions)


@pytest.fixture
def two(book: Any) -> Any:
    book.add("a", fake.cell("n = 1", "parameters"), "profiles:\n  quick: {n: 5}")
    book.add("b", fake.cell("2"))
    return book


def test_claims_as_data_and_as_text(two: Any, command: Command) -> None:
    executed(two, a=[claim("one")], b=[claim("two", source="abstract 2410.23228")])
    code, out, err = command("--root", two.root, "claims", "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert [(r["id"], r["chapter"], r["status"]) for r in rows] == [
        ("one", "a", "reproduced"),
        ("two", "b", "reproduced"),
    ]
    for key in ("statement", "source", "measured", "expected", "tolerance", "second_method"):
        assert rows[0][key] not in (None, "")
    assert "fails, as it must" in rows[0]["control"]
    code, out, _ = command("--root", two.root, "claims")
    assert code == 0
    assert "✓ reproduced" in out
    assert max(map(len, out.splitlines())) <= 110


def test_a_claim_that_fails_is_exit_code_1(two: Any, command: Command) -> None:
    known = claim("known", measured=5.0, finding="not reproduced", note="We tried.")
    later = claims.open("later", "Later.", source="derived here", note="Needs time.").record
    executed(two, a=[claim("one"), known, later], b=[])
    assert command("--root", two.root, "claims")[0] == 0
    executed(two, a=[claim("off", measured=5.0)], b=[])
    code, _, err = command("--root", two.root, "claims", "--json")
    assert code == 1
    assert "not reproduced: off" in err


def test_claims_tell_what_is_stale_or_missing(two: Any, command: Command) -> None:
    executed(two, a=[claim("one")])
    two.add("a", fake.cell("3"))
    _, _, err = command("--root", two.root, "claims")
    assert "not executed: b" in err
    assert "changed since the last build: a" in err


def test_nothing_executed_yet(two: Any, command: Command) -> None:
    for arguments in (["claims"], ["claims", "--json"], ["figures"]):
        code, _, err = command("--root", two.root, *arguments)
        assert code == 2
        assert err == "companion: nothing was executed yet; run `companion build` first\n"


def test_a_damaged_index_is_no_results(two: Any, command: Command) -> None:
    executed(two, a=[claim("one")])
    (two.root / "_build" / "book.json").write_text('{"chapters": ')
    assert command("--root", two.root, "claims")[0] == 2


def test_list(two: Any, command: Command) -> None:
    executed(two, a=[claim("one")])
    code, out, _ = command("--root", two.root, "list")
    assert code == 0
    assert "n = 1, quick: 5" in out
    assert "claims: one" in out
    assert "1.5 s" in out
    assert "not executed yet" in out
    two.add("a", fake.cell("3"))
    assert "changed since" in command("--root", two.root, "list")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "c"], "'c' is no chapter, figure or claim; the chapters are: a, b"),
        (["run", "a", "-p", "m", "1"], "no parameter 'm'; it has: n"),
        (["run", "a", "-p", "n", "many"], "parameter 'n' of chapter a is a number (default 1)"),
        (["run", "a", "-p", "n", "-3", "-p", "m", "-1"], "no parameter 'm'; it has: n"),
        (["run", "b", "-p", "n", "1"], "no parameter 'n'; it has: none"),
        (["run", "a", "--profile", "huge"], "no profile 'huge'; there are: paper, quick, large"),
        (["build", "--profile", "huge"], "no profile 'huge'; there are: paper, quick, large"),
        (["build", "--jobs", "0"], "--jobs"),
        (["bild"], "bild"),
        (["figures", "--format", "gif"], "gif"),
        (["serve"], "no site yet"),
    ],
)
def test_mistakes_are_one_line(
    two: Any, command: Command, arguments: list[str], message: str
) -> None:
    code, out, err = command("--root", two.root, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("companion: ")
    assert message in err


def test_outside_of_a_book(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = command("build")
    assert (code, err.count("\n")) == (2, 1)
    assert "no book here" in err


def test_the_book_is_found_upwards(two: Any, command: Command, monkeypatch: Any) -> None:
    monkeypatch.chdir(two.root / "book" / "_static")
    assert "not executed yet" in command("list")[1]


def test_a_full_disk_is_one_line(two: Any, command: Command, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "write_json", full)
    code, _, err = command("--root", two.root, "build")
    assert (code, err) == (2, "companion: the disk is full\n")


def test_the_ledger(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two.root / "book")
    assert "make book" in ledger.table().html
    assert "make book" in ledger.summary().html
    executed(
        two,
        a=[claim("one", source="abstract 2601.21942"), claim("off", measured=9.0)],
        b=[claim("three", source="abstract 2410.23228 and more")],
    )
    table = ledger.table().html
    assert re.findall(r'href="([^"]+)"', table) == [
        "b.html#claim-three",
        "a.html#claim-one",
        "a.html#claim-off",
    ]
    assert "Statement &lt;one&gt;." in table
    assert table.count("<caption>") == 3
    assert ledger.summary().text == "3 claims: 2 reproduced, 1 not reproduced"


def test_links_are_relative_to_the_page(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    book.add("b", fake.cell("2"))
    executed(book, b=[claim("one")])
    (book.root / "book" / "back").mkdir()
    monkeypatch.chdir(book.root / "book" / "back")
    assert 'href="../b.html#claim-one"' in ledger.table().html


def test_old_executions_go_but_never_a_current_one(book: Any) -> None:
    folder = store.executed_folder(book.root, "a")
    for number in range(store.KEPT + 3):
        (folder / f"key{number}").mkdir(parents=True)
        store.write_json(folder / f"key{number}" / "record.json", {})
    kept = f"key{0}"
    store.prune(book.root, "a", [kept])
    left = {path.name for path in folder.iterdir()}
    assert kept in left
    assert store.KEPT <= len(left) <= store.KEPT + 1


def test_serve(two: Any, command: Command) -> None:
    html = two.root / "_build" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("hello")
    with serve.server(two.root, 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        port = running.server_address[1]
        assert running.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert answer.read() == b"hello"
        code, _, err = command("--root", two.root, "serve", "--port", port)
        running.shutdown()
        thread.join()
    assert (code, err.count("\n")) == (2, 1)
    assert f"port {port} cannot be used" in err


def test_notebooks_with_and_without_solutions(book: Any, command: Command) -> None:
    solution = "````{solution} ex\n```python\nanswer = 42\n```\n````\n"
    gated = (
        "```{solution-start} two\n```\n\nBecause.\n\n"
        + fake.cell("result = 43")
        + "```{solution-end}\n```\n"
    )
    text = "# A\n\nQuestion.\n\n" + solution + gated + fake.cell("x = 44", "solution") + "End.\n"
    book.add("part/a", text)
    (book.root / "book" / "part" / "a.csv").write_text("7")
    for option, there in (("--solutions", True), ("--no-solutions", False)):
        code, _, _ = command("--root", book.root, "notebooks", option)
        assert code == 0
        assert (book.root / "_build" / "notebooks" / "part" / "a.csv").read_text() == "7"
        notebook = (book.root / "_build" / "notebooks" / "part" / "a.ipynb").read_text()
        for word in ("42", "Because", "43", "44"):
            assert (word in notebook) is there
        assert "Question." in notebook
        assert "End." in notebook


def test_executed_notebooks_that_install_what_they_need(book: Any, command: Command) -> None:
    exercise = (
        "````{exercise} Sum\n:label: ex-sum\n\nHow much?\n\n"
        "```{code-block} python\n:class: starter\n\ntotal = ...\n```\n````\n\n"
        "````{solution} ex-sum\n:class: dropdown\n\nThree.\n````\n"
    )
    book.add("part/a", "# A\n\n" + fake.cell("print(40 + 2)") + exercise)
    where = ("--root", book.root, "notebooks", "--executed")
    code, _, err = command(*where)
    assert code == 2
    assert "part/a was not executed yet" in err
    assert book.run("build").returncode == 0
    assert command(*where, "--repository", "https://example.org/a/b@abc")[0] == 0
    path = book.root / "_build" / "notebooks" / "part" / "a.ipynb"
    cells = json.loads(path.read_text())["cells"]
    assert '"git+https://example.org/a/b@abc"' in "".join(cells[0]["source"])
    shown = [cell for cell in cells if cell["cell_type"] == "code" and cell["outputs"]]
    assert shown[0]["outputs"][0]["text"] == ["42\n"]
    assert any("".join(cell["source"]) == "total = ..." for cell in cells)
    assert not any("{exercise}" in "".join(cell["source"]) for cell in cells)
    assert any("Three." in "".join(cell["source"]) for cell in cells)
    assert command(*where, "--no-solutions")[0] == 0
    assert "Three." not in path.read_text()
    assert "total = ..." in path.read_text()


def test_buttons_appear_where_the_repository_is_known(
    book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.add("part/a", "# A\n\n" + fake.cell("print(40 + 2)"))
    assert book.run("build").returncode == 0
    page = book.root / "_build" / "html" / "book" / "part" / "a.html"
    assert "colab" not in page.read_text()
    monkeypatch.setenv("COMPANION_REPOSITORY", "https://github.com/owner/name")
    assert book.run("build").returncode == 0
    text = page.read_text()
    assert "colab.research.google.com/github/owner/name/blob/notebooks/book/part/a.ipynb" in text
    assert "mybinder.org/v2/gh/owner/name/notebooks" in text


def test_a_solution_without_an_end_goes_to_the_end() -> None:
    assert without_solutions("a\n\n:::{solution} x\nb\n") == "a\n\n"


def test_a_quick_build_has_no_pdf_to_copy(book: Any, command: Command) -> None:
    book.add("part one/demo", fake.DEMO, "profiles:\n  quick: {n: 12}")
    book.add("ledger", fake.LEDGER, "after: all")
    done = book.run("build", "--profile", "quick")
    assert done.returncode == 0, done.stderr
    assert command("--root", book.root, "figures")[0] == 0
    code, _, err = command("--root", book.root, "figures", "--format", "pdf")
    assert (code, err.count("\n")) == (2, 1)
    assert "figure parabola was not made as pdf: the profile quick makes svg only" in err
