"""The sites that are looked at: the book itself, and a small one that has everything."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from companion.site import is_current

REPOSITORY = Path(__file__).resolve().parents[2]


def _build(root: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "companion",
        "--root",
        str(root),
        "build",
        "--profile",
        "quick",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "_build" / "html"


def _fake_book(root: Path) -> Any:
    place = REPOSITORY / "tests" / "companion" / "fakebook.py"
    spec = importlib.util.spec_from_file_location("fakebook", place)
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    book = fake.FakeBook(root)
    book.add("part one/demo", fake.DEMO, "profiles:\n  quick: {n: 12}")
    book.add("ledger", fake.LEDGER, "after: all")
    book.add("slides/talk", fake.TALK, "after: all")
    _add_glossary(book)
    _add_playground(book)
    return book


def _add_glossary(book: Any) -> None:
    text = "# Words\n\n```{glossary}\nhyperbola\n  A curve; a parabola is another.\n```\n"
    book.add("words", text, plain=True)
    text = (
        "# A hyperbola\n\n## Hyperbolas\n\n*Of hyperbolas*, `hyperbola`, and "
        "<b>a hyperbola</b>.\n\n[A hyperbola](words.md) and one more.\n\n- Another hyperbola: "
        "hyperbolas!\n\nHyperbolas.\n"
    )
    book.add("curves", text, plain=True)
    settings = book.root / "_config.yml"
    text = settings.read_text(encoding="utf-8")
    key = "    myst_heading_anchors"
    terms = '    companion_terms: {hyperbola: "hyperbolas?"}\n'
    settings.write_text(text.replace(key, terms + key), encoding="utf-8")


def _add_playground(book: Any) -> None:
    """Add the book's own playground, and empty pages for the chapters that it names."""
    text = (REPOSITORY / "book" / "playground.md").read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"<(\w+/\w+)>`", text))):
        title = name.split("/")[1].replace("_", " ")
        book.add(name, f"# {title}\n\n## Nothing\n\nText.\n", plain=True)
    book.add("playground", text, plain=True)
    place = Path("book", "_static", "playground")
    shutil.copytree(REPOSITORY / place, book.root / place)


@pytest.fixture(scope="session")
def small_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = _fake_book(tmp_path_factory.mktemp("a small book")).root
    return root


@pytest.fixture(scope="session")
def small_site(small_book: Path) -> Path:
    """The built site of the small book."""
    return _build(small_book)


@pytest.fixture(scope="session", params=["small", "book"])
def site(request: pytest.FixtureRequest, small_site: Path) -> Path:
    """The folder of a built site.

    If the book was built and is current, it is looked at as it is. Otherwise it is built from
    a copy with the quick profile, so that a reader's own site is left alone.
    """
    if request.param == "small":
        return small_site
    if not (REPOSITORY / "_toc.yml").is_file():
        pytest.skip("there is no book here")
    if is_current(REPOSITORY):
        return REPOSITORY / "_build" / "html"
    copy = REPOSITORY / "_build" / "test-book"
    copy.mkdir(parents=True, exist_ok=True)
    with FileLock(copy.with_suffix(".lock")):  # test processes may run side by side
        for name in ("book", "src"):
            shutil.rmtree(copy / name, ignore_errors=True)
            unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
            shutil.copytree(REPOSITORY / name, copy / name, ignore=unwanted)
        for name in ("_config.yml", "_toc.yml", "requirements.txt"):
            shutil.copy(REPOSITORY / name, copy / name)
        return _build(copy)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser; without one the tests are skipped, but never on CI."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        message = "no Chromium on this machine: the pages were not looked at in a browser"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()
