"""The whole book as a PDF, printed by Chromium from one page put together from the site's pages.

Every page's article is taken as it stands in the built site, but for the gallery and the slides,
whose figures are all in the chapters. Names and links are made unique, so that a link to another
page leads to its place in the same document. Links to files beside the site, which a PDF cannot
hold, become plain text; cells whose code the page hides are left out.
"""

import html
import posixpath
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bs4 import BeautifulSoup

from companion import _math, store
from companion.book import Book
from companion.errors import Problem

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 600  # seconds for the browser
PATIENCE_OF_SCRIPTS = 120_000  # milliseconds, of the browser's own clock, to typeset formulas

_SCREEN_ONLY = (
    "details.hide, button, script, .headerlink, .companion-interactive, .companion-links, "
    ".playground noscript"
)
_ID = re.compile(r'(\s(?:id|name|for)=")([^"]+)"')
_REFERENCE = re.compile(r'((?:xlink:)?href="#|url\(#|aria-labelledby=")([^")]+)')
_STYLE = """
@page { size: A4; margin: 18mm 16mm; }
html { font-size: 8.5pt; }
body { background: #ffffff; }
mjx-container { font-size: 112% !important; overflow: visible !important; }
div.math { overflow: visible !important; }
article.bd-article { padding: 0; }
article.bd-article > section > h1 { break-before: page; }
h1, h2, h3, h4 { break-after: avoid; }
figure, .companion-claim, .admonition > .admonition-title { break-inside: avoid; }
.companion-drawing svg { max-height: 200mm; min-width: 0; }
pre { font-size: 7pt; white-space: pre-wrap; }
table.companion-ledger { font-size: 6.5pt; }
table.companion-ledger tr { break-inside: avoid; }
table.companion-ledger td { padding: 0.2rem; }
table.companion-ledger p, table.companion-ledger dd { margin: 0; }
table.companion-ledger dl { display: grid; gap: 0 0.5rem; grid-template-columns: max-content 1fr; }
.toggle-hidden, .toggle > * { visibility: visible; height: auto; opacity: 1; }
.companion-cover { text-align: center; padding-top: 70mm; }
.companion-contents { break-before: page; }
.companion-contents li { margin: 0.2rem 0; }
"""


def write_pdf(book: Book, output: Path) -> Path:
    """Print the built site into one PDF file and return its place."""
    site = store.build_folder(book.root) / "html"
    names = [name for name in _pages(book) if (site / name).is_file()]
    if not names:
        raise Problem("there is no site to print; run `companion build` first")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise Problem("printing needs Chromium or Chrome, and there is none on this machine")
    output.parent.mkdir(parents=True, exist_ok=True)
    # beside the pages, since they name their style sheets and formulas from there
    page = site / "book" / ".print.html"
    try:
        page.write_text(one_page(site, names, page.parent), encoding="utf-8")
        _print(browser, page, output)
    finally:
        page.unlink(missing_ok=True)
    return output


def one_page(site: Path, names: list[str], place: Path) -> str:
    """Return the site's pages as one, to lie in the folder ``place``."""
    numbers = {name: f"page{number}" for number, name in enumerate(names)}
    pages = {name: BeautifulSoup((site / name).read_text("utf-8"), "html.parser") for name in names}
    articles = [_article(pages[name], name, numbers, site, place) for name in names]
    first = pages[names[0]]
    heading = first.select_one("article h1")
    title = _text(heading) if heading else "Book"
    entries = "".join(
        f'<li><a href="#{numbers[name]}">{html.escape(_text(soup.select_one("article h1")))}</a>'
        for name, soup in pages.items()
    )
    head = "".join(
        _math.at_once(str(_moved(element, names[0], site, place)))
        for element in first.select('head link[rel="stylesheet"], head script, body script')
        if element.name == "link"
        or "MathJax" in element.text
        or "mathjax/" in str(element.get("src"))
    )
    return (
        '<!doctype html><html lang="en" data-theme="light" data-mode="light"><head>'
        f'<meta charset="utf-8"><title>{html.escape(title)}</title>{head}'
        f"<style>{_STYLE}</style></head><body>"
        f'<div class="companion-cover"><p style="font-size: 2.4em">{html.escape(title)}</p></div>'
        f'<nav class="companion-contents"><h1>Contents</h1><ol>{entries}</ol></nav>'
        + "".join(articles)
        + "</body></html>"
    )


def _pages(book: Book) -> list[str]:
    return [
        f"book/{page.name}.html"
        for page in book.pages
        if "figures.gallery()" not in page.text and not page.name.startswith("slides/")
    ]


def _article(
    soup: BeautifulSoup, name: str, numbers: dict[str, str], site: Path, place: Path
) -> str:
    article = soup.select_one("article.bd-article")
    if article is None:
        raise Problem(f"{site / name} holds no article")
    for element in article.select(_SCREEN_ONLY):
        element.decompose()
    for element in article.select("[src]"):
        _moved(element, name, site, place)
    for link in article.select("a[href]"):
        target = _target(str(link["href"]), name, numbers)
        if target is None:
            link.unwrap()
        else:
            link["href"] = target
    own = numbers[name]
    text = _ID.sub(lambda m: f'{m[1]}{own}-{m[2]}"', str(article))
    text = _REFERENCE.sub(
        lambda m: m[0] if m[2].startswith("page") else f"{m[1]}{own}-{m[2]}", text
    )
    return f'<div id="{own}">{text}</div>'


def _target(address: str, name: str, numbers: dict[str, str]) -> str | None:
    """Return where a link leads in the one page; None if it leads to a file."""
    if re.match(r"[a-z]+:", address):
        return address
    path, _, place = address.partition("#")
    page = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(path)))
    number = numbers.get(page if path else name)
    if number is None:
        return None
    return f"#{number}-{unquote(place)}" if place else f"#{number}"


def _moved(element: Any, name: str, site: Path, place: Path) -> Any:
    """Let an element that was on a page name its file from the folder of the one page."""
    for key in ("href", "src"):
        address = str(element.get(key) or "")
        if address and not re.match(r"[a-z]+:", address):
            file = posixpath.normpath(posixpath.join(posixpath.dirname(name), address))
            element[key] = posixpath.relpath(file, place.relative_to(site).as_posix())
    return element


def _text(element: Any) -> str:
    return element.get_text().replace("#", "").strip() if element is not None else ""


def _print(browser: str, page: Path, output: Path) -> None:
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-pdf-header-footer",
        "--generate-pdf-document-outline",
        f"--virtual-time-budget={PATIENCE_OF_SCRIPTS}",
        f"--print-to-pdf={output.resolve()}",
        page.resolve().as_uri(),
    ]
    output.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Problem(f"{browser} did not print the book within {PATIENCE} s") from None
    if not output.is_file():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Problem(f"{browser} did not print the book: {last}")
