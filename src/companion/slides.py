"""Slides: every page in ``book/slides`` is shown as a deck, too, with reveal.js.

A deck is made from the built page, so its figures, numbers and formulas are those of the book. Each
section is a slide; an admonition of the class ``say`` holds what the speaker says, and how long.
The page itself is the handout. Nothing comes from another host: a deck opens from a folder.
"""

import html
import posixpath
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bs4 import BeautifulSoup

from companion import _math, store
from companion.book import Book
from companion.errors import Problem

FOLDER = "slides"  # in the site, and the pages' folder in the book
REVEAL = ("dist/reset.css", "dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js", "LICENSE")
_FILES = "../_static/slides"  # from a deck
_ADDRESS = re.compile(r"[a-z]+:|#")


def install(site: Path) -> None:
    """Make the decks of a built site, and copy reveal.js for them."""
    pages = sorted((site / "book" / FOLDER).glob("*.html"))
    for page in pages:
        place = site / FOLDER / page.name
        place.parent.mkdir(exist_ok=True)
        place.write_text(deck(page.read_text(encoding="utf-8")), encoding="utf-8")
    if not pages:
        return
    package = find_spec("sphinx_revealjs")
    assert package is not None
    assert package.origin is not None
    files = site / "_static" / "slides"
    files.mkdir(parents=True, exist_ok=True)
    for name in REVEAL:
        source = Path(package.origin).parent / "_static" / "revealjs" / name
        shutil.copyfile(source, files / source.name)


def write_slides(book: Book, output: Path | None) -> list[Path]:
    """Return the decks of the built site; with ``output`` copies of them, with all they need."""
    site = store.build_folder(book.root) / "html"
    decks = sorted((site / FOLDER).glob("*.html"))
    if not decks:
        raise Problem("the site has no slides; run `companion build` first")
    if output is None:
        return decks
    formulas = Path("_static", "mathjax")  # loads more files than the page names
    shutil.copytree(site / formulas, output / formulas, dirs_exist_ok=True)
    return [_copied(deck, site, output) for deck in decks]


def deck(page: str) -> str:
    """Return the deck of a built page of ``book/slides``."""
    soup = BeautifulSoup(page, "html.parser")
    article = soup.select_one("article.bd-article")
    whole = article.select_one("section") if article is not None else None
    if whole is None or whole.h1 is None:
        raise Problem("a page of slides needs a title and a section for every slide")
    for element in whole.select(".headerlink, button, script, .slides-link, .cell_input"):
        element.decompose()
    sections = [section.extract() for section in whole.find_all("section", recursive=False)]
    title = whole.h1.get_text().strip()
    kept = [
        element
        for element in soup.select("head script, head link[rel=icon]")
        if element.name == "link" or "mathjax" in str(element).lower()
    ]
    slides = [_slide(section) for section in (whole, *sections)]
    head = _math.at_once("".join(str(_moved(element)) for element in kept))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        f'<link rel="stylesheet" href="{_FILES}/reset.css">'
        f'<link rel="stylesheet" href="{_FILES}/reveal.css">'
        f'<link rel="stylesheet" href="../_static/companion-slides.css">{head}'
        '</head><body><div class="reveal"><div class="slides">'
        + "".join(slides)
        + f'</div></div><script src="{_FILES}/reveal.js"></script>'
        f'<script src="{_FILES}/notes.js"></script>'
        '<script src="../_static/companion-slides.js"></script></body></html>\n'
    )


def _slide(section: Any) -> str:
    for figure in section.select("figure.companion-figure"):
        image = figure.img  # of figures.show(..., inline=False)
        if image is None:
            raise Problem("slides show the files of figures: figures.show(id, inline=False)")
        del image["loading"]
        figure.clear()
        figure.append(image)
        figure["class"] = ["slide-figure"]
    for notes in section.select(".admonition.say"):
        notes.name, notes["class"] = "aside", ["notes"]
    for element in section.select("[href], [src]"):
        _moved(element)
    for element in section.select("[id]"):
        del element["id"]  # reveal.js reads the names of slides from the address
    return f"<section>{section.decode_contents()}</section>"


def _moved(element: Any) -> Any:
    """Let an element of a page in ``book/slides`` name its file from the folder of the decks."""
    for key in ("href", "src"):
        address = str(element.get(key) or "")
        if address and not _ADDRESS.match(address):
            path = posixpath.normpath(posixpath.join("book", FOLDER, address))
            element[key] = posixpath.relpath(path, FOLDER)
    return element


def _copied(deck: Path, site: Path, output: Path) -> Path:
    """Copy a deck and the files that it shows; links to the book's pages become words."""
    soup = BeautifulSoup(deck.read_text(encoding="utf-8"), "html.parser")
    for element in soup.select("[href], [src]"):
        address = str(element.get("href") or element.get("src"))
        if _ADDRESS.match(address):
            continue
        if element.name == "a":
            element.unwrap()
            continue
        name = posixpath.normpath(posixpath.join(FOLDER, unquote(address).split("?")[0]))
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site / name, output / name)
    place = output / FOLDER / deck.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(str(soup), encoding="utf-8")
    return place
