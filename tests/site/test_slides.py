"""The slides of a lecture, opened from a folder as a lecturer does."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from companion.slides import deck

BROKEN = """() => [...document.querySelectorAll('.slides img')].filter(
  image => !(image.complete && image.naturalWidth > 100)).map(image => image.src)"""
# Of the slide that is shown: what is far away, and what the speaker says, has no size.
FORMULAS = """() => [...Reveal.getCurrentSlide().querySelectorAll('.math')].filter(
  m => !m.closest('.notes')).map(m => {
  const box = m.querySelector('mjx-container');
  return box && !box.querySelector('mjx-merror') ? box.offsetWidth : 0;
})"""
LOWEST = """() => Math.max(...[...Reveal.getCurrentSlide().children].map(
  element => element.offsetTop + element.offsetHeight))"""


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[[Path], Any]]:
    """Open slides; nothing may go wrong, and nothing may be asked of another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    wrong: list[str] = []

    def open_page(place: Path) -> Any:
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "requestfailed",
            lambda request: (
                None  # the page was left before it came
                if request.failure == "net::ERR_ABORTED"
                else wrong.append(f"failed: {request.url}")
            ),
        )
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else wrong.append(f"asked: {request.url}")
            ),
        )
        page.goto(place.as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        return page

    yield open_page
    context.close()
    assert wrong == []


def decks(site: Path) -> list[Path]:
    found = sorted((site / "slides").glob("*.html"))
    assert found
    return found


def test_slides_move_and_show_everything(site: Path, visit: Callable[[Path], Any]) -> None:
    for place in decks(site):
        page = visit(place)
        assert page.evaluate(BROKEN) == []
        formulas = []
        total = page.evaluate("Reveal.getTotalSlides()")
        for number in range(total):
            assert page.evaluate("Reveal.getIndices().h") == number
            assert page.evaluate(LOWEST) <= 720, f"slide {number + 1} is too long"
            formulas += page.evaluate(FORMULAS)
            page.keyboard.press("ArrowRight")
        assert formulas
        assert min(formulas) > 0
        assert page.evaluate("Reveal.getIndices().h") == total - 1
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("Reveal.getIndices().h") == total - 2


def test_every_slide_has_its_notes(site: Path) -> None:
    for place in decks(site):
        slides = BeautifulSoup(place.read_text("utf-8"), "html.parser").select(".slides > section")
        notes = [slide.select_one("aside.notes") for slide in slides]
        assert None not in notes
        minutes = [int(re.match(r"\s*(\d+) minute", note.get_text())[1]) for note in notes]
        if place.name == "lecture.html":
            assert 18 <= len(slides) <= 22
            assert sum(minutes) == 45


def test_slides_are_small(site: Path) -> None:
    shown = {
        site / "slides" / str(image["src"])
        for place in decks(site)
        for image in BeautifulSoup(place.read_text("utf-8"), "html.parser").select("img")
    }
    parts = [*decks(site), *(site / "_static" / "slides").iterdir()]
    assert shown
    assert all(picture.is_file() for picture in shown)
    assert sum(path.stat().st_size for path in parts) < 5e5


def test_slides_are_carried_away(
    small_book: Path, small_site: Path, visit: Callable[[Path], Any], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "companion", "--root", str(small_book), "slides"]
    done = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    copy = tmp_path / "slides" / "talk.html"
    assert str(copy) in done.stdout
    page = visit(copy)
    assert page.evaluate(BROKEN) == []
    assert page.locator(".slides a[href*='.html']").count() == 0
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert str(small_site / "slides" / "talk.html") in said


def test_a_deck_of_a_page() -> None:
    page = """<head><script src="../../_static/mathjax/x.js"></script><script src="no.js"></script>
    <article class="bd-article"><section><h1>T<a class="headerlink" href="#t">#</a></h1>Hi
    <section id="one"><h2>One</h2><a href="../part/a%20b.html#c">a</a>
    <div class="admonition say"><p>2 minutes</p></div></section>
    <section><h2>Two</h2></section></section></article>"""
    soup = BeautifulSoup(deck(page), "html.parser")
    slides = soup.select(".slides > section")
    assert [slide.find(["h1", "h2"]).get_text() for slide in slides] == ["T", "One", "Two"]
    assert slides[1].a["href"] == "../book/part/a%20b.html#c"
    assert slides[1].select_one("aside.notes") is not None
    assert slides[1].get("id") is None
    sources = [script["src"] for script in soup.select("head script")]
    assert sources == ["../_static/mathjax/x.js"]
