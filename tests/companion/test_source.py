"""Reading a book without running it: everything that can be wrong is one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakebook as fake
import jupytext
import pytest

from companion.book import open_book, page_names
from companion.errors import Problem
from companion.source import code_cells, read_page

PARAMETERS = fake.cell(
    "n = 2 * 10**4  # tokens\nbeta: float = 5.0\nkinds = ['a', 'b']"
    "\nscale = -1e-3\ndepth = len([1])",
    "parameters",
)


def test_parameters_are_read_without_running_them(book: Any) -> None:
    page = read_page("a", book.add("a", PARAMETERS))
    found = {name: (p.value, p.known) for name, p in page.parameters.items()}
    assert found == {
        "n": (20000, True),
        "beta": (5.0, True),
        "kinds": (["a", "b"], True),
        "scale": (-1e-3, True),
        "depth": (None, False),
    }


def test_a_huge_power_is_not_computed(book: Any) -> None:
    page = read_page("a", book.add("a", fake.cell("n = 10**10**10", "parameters")))
    assert not page.parameters["n"].known


def test_cells_and_their_lines_are_those_of_the_notebook_reader(book: Any) -> None:
    text = (
        "# Title\n\n````{note}\n```{code-cell}\nnot = 'a cell'\n```\n````\n\n"
        + fake.cell("a = 1\n\nb = 2")
        + "```python\nneither = 1\n```\n\n"
        + "~~~\n```{code-cell}\n~~~\n\n"
        + "```{code-cell} ipython3\n---\ntags: [x, y]\n---\n\nc = 3\n```\n\n"
        + "```{code-cell} ipython3\n:tags: [z]\n:other: 1\nd = '''\n   ```'''\n```\n"
    )
    path = book.add("a", text)
    whole = path.read_text()
    cells = code_cells(whole)
    notebook = jupytext.reads(whole, fmt="md:myst")
    theirs = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.source for c in cells] == [c.source for c in theirs]
    assert [list(c.tags) for c in cells] == [c.metadata.get("tags", []) for c in theirs]
    lines = whole.splitlines()
    for cell in cells:
        assert lines[cell.line - 1] == cell.source.splitlines()[0]


def test_values_follow_the_profile_and_numbers_are_numbers(book: Any) -> None:
    page = read_page("a", book.add("a", PARAMETERS, "profiles:\n  quick: {n: 50, scale: 1e-8}"))
    assert page.overrides("quick") == {"n": 50, "scale": 1e-8}
    assert page.overrides("paper") == {}


@pytest.mark.parametrize(
    ("companion", "text", "message"),
    [
        ("profiles:\n  quick: {m: 1}", PARAMETERS, "no parameter 'm'; it has: n, beta, kinds"),
        ("profiles:\n  quick: {n: many}", PARAMETERS, "is a number"),
        ("profiles:\n  quick: {n: true}", PARAMETERS, "is a number"),
        ("profiles:\n  quick: {n: 1}", fake.cell("n = 1"), "no cell tagged 'parameters'"),
        ("profiles:\n  paper: {n: 1}", PARAMETERS, "'paper'"),
        ("profiles: [quick]", PARAMETERS, "profiles must map"),
        ("timeout: -1", PARAMETERS, "timeout"),
        ("timeout: soon", PARAMETERS, "timeout"),
        ("after: circle", PARAMETERS, "'all'"),
        ("profile: quick", PARAMETERS, "companion part"),
        ("", PARAMETERS + PARAMETERS, "not one"),
        ("profiles:\n  quick: {n: 1}", fake.cell("n = = 1", "parameters"), "line 18"),
    ],
)
def test_a_header_that_makes_no_sense(book: Any, companion: str, text: str, message: str) -> None:
    path = book.add("a", text, companion)
    with pytest.raises(Problem, match=message):
        read_page("a", path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\na: [\n---\n", "line 2: the header is not YAML"),
        ("---\na: 1\n", "does not end"),
        ("---\n- a\n---\n", "keys and values"),
        ("# No header\n\n" + fake.cell("1"), "no kernelspec"),
    ],
)
def test_a_broken_header(book: Any, text: str, message: str) -> None:
    path = book.add("a", text, plain=True)
    with pytest.raises(Problem, match=message):
        read_page("a", path)


@pytest.mark.parametrize(
    "file", ["book/../../x", "../x", "README", "/etc/passwd", "book/a/../../x"]
)
def test_a_page_that_leaves_the_book(book: Any, command: Callable[..., Any], file: str) -> None:
    (book.root / "_toc.yml").write_text(
        f"format: jb-book\nroot: book/index\nchapters:\n- file: {file}\n"
    )
    code, _, err = command("--root", book.root, "list")
    assert code == 2
    assert "leaves the book" in err
    assert err.count("\n") == 1


def test_a_link_that_leaves_the_book(book: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("# Elsewhere\n")
    book.add("a", "# A\n", plain=True).unlink()
    (book.root / "book" / "a.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(Problem, match="leaves the book"):
        open_book(book.root)


@pytest.mark.parametrize(
    ("toc", "message"),
    [("[", "not YAML"), ("- a", "root page"), ("root: 3", "root page")],
)
def test_a_broken_table_of_contents(book: Any, toc: str, message: str) -> None:
    (book.root / "_toc.yml").write_text(toc)
    with pytest.raises(Problem, match=message):
        list(page_names(book.root))


def test_all_kinds_of_entries_are_found(book: Any) -> None:
    (book.root / "_toc.yml").write_text(
        "root: book/index\nparts:\n- caption: One\n  chapters:\n  - file: book/a\n"
        "    sections:\n    - file: book/b.md\n  - url: https://example.org\n"
    )
    assert list(page_names(book.root)) == ["index", "a", "b"]


def test_missing_and_unreadable_pages(book: Any, command: Callable[..., Any]) -> None:
    path = book.add("a", "# A\n", plain=True)
    path.write_bytes("# Caf\xe9\n".encode("latin-1"))
    code, _, err = command("--root", book.root, "build")
    assert (code, err.count("\n")) == (2, 1)
    assert "not UTF-8" in err
    path.unlink()
    code, _, err = command("--root", book.root, "build")
    assert (code, err.count("\n")) == (2, 1)
    assert "no file" in err


def keys(book: Any, profile: str = "paper") -> dict[str, str]:
    opened = open_book(book.root)
    return opened.keys({c.name: profile for c in opened.chapters})


def test_a_key_changes_with_what_matters_and_with_nothing_else(book: Any) -> None:
    book.add("a", PARAMETERS, "profiles:\n  quick: {n: 5}")
    book.add("b", fake.cell("1"))
    book.add("c", fake.cell("2"), "after: all")
    before = keys(book)

    (book.root / "src" / "__pycache__").mkdir()
    (book.root / "src" / "__pycache__" / "model.pyc").write_text("x")
    (book.root / "book" / "index.md").write_text("# Other\n")
    assert keys(book) == before

    quick = keys(book, "quick")
    assert quick["a"] != before["a"]
    assert quick["b"] == before["b"]

    book.add("b", fake.cell("10"))
    edited = keys(book)
    assert edited["a"] == before["a"]
    assert edited["b"] != before["b"]
    assert edited["c"] != before["c"]  # it reads the results of b

    for change in (
        lambda: (book.root / "src" / "model.py").write_text("SLOPE = 3\n"),
        lambda: (book.root / "src" / "model.py").rename(book.root / "src" / "other.py"),
        lambda: (book.root / "requirements.txt").write_text("numpy==1\n"),
    ):
        earlier = keys(book)
        change()
        assert all(keys(book)[name] != earlier[name] for name in earlier)


def test_finding_a_chapter(book: Any) -> None:
    for name in ("one/a", "two/a", "two/b c"):
        book.add(name, fake.cell("1"))
    opened = open_book(book.root)
    assert opened.chapter("b c").name == "two/b c"
    assert opened.chapter("two/a").name == "two/a"
    assert opened.chapter("book/two/a.md").name == "two/a"
    with pytest.raises(Problem, match="more than one chapter; choose from: one/a, two/a"):
        opened.chapter("a")
    message = "'x' is no chapter, figure or claim; the chapters are: one/a, two/a, two/b c"
    with pytest.raises(Problem, match=message):
        opened.chapter("x")
