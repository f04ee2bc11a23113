"""The files of the site: every link leads somewhere, and nothing comes from another host."""

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

ADDRESS = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)


@cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> frozenset[str]:
    page = parsed(path)
    return frozenset(str(e["id"]) for e in page.select("[id]")) | frozenset(
        str(e["name"]) for e in page.select("a[name]")
    )


def pages(site: Path) -> list[Path]:
    found = [p for p in sorted(site.rglob("*.html")) if "_static" not in p.relative_to(site).parts]
    assert len(found) > 3
    return found


def broken_links(site: Path, page: Path) -> list[str]:
    broken = []
    for element in parsed(page).select("a[href], link[href], img[src], script[src], source[src]"):
        address = str(element.get("href") or element.get("src"))
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.is_file() or not target.is_relative_to(site.resolve()):
            broken.append(f"{page.relative_to(site)}: {address}")
        elif parts.fragment and target.suffix == ".html":
            name = unquote(parts.fragment)
            if name not in anchors(target):
                broken.append(f"{page.relative_to(site)}: {address} has no such place")
    return broken


def outside(page: Path) -> list[str]:
    """Return what the page would load from another host."""
    loaded = "script[src], img[src], iframe[src], source[src], video[src], audio[src], embed[src]"
    found = [str(e["src"]) for e in parsed(page).select(loaded)]
    found += [str(e["href"]) for e in parsed(page).select("link[href]")]
    found += [str(e["data"]) for e in parsed(page).select("object[data]")]
    return [address for address in found if ADDRESS.match(address)]


def test_no_link_is_broken(site: Path) -> None:
    assert [b for page in pages(site.resolve()) for b in broken_links(site.resolve(), page)] == []


def test_nothing_comes_from_another_host(site: Path) -> None:
    assert {p.name: outside(p) for p in pages(site) if outside(p)} == {}
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", text), style
        assert not re.search(r"@import\s+['\"]?(?:url\()?['\"]?(?:https?:)?//", text), style


def test_no_reference_is_unresolved(site: Path) -> None:
    for page in pages(site):
        text = parsed(page).get_text()
        assert "(???)" not in text, page
        assert not parsed(page).select(".problematic, .system-message"), page


def test_every_name_in_our_own_content_is_there_once(site: Path) -> None:
    for page in pages(site):
        names = Counter(str(e["id"]) for e in parsed(page).select("article [id]"))
        twice = {name for name, number in names.items() if number > 1}
        # sphinx-proof and sphinx-exercise give all of theirs on a page the same names.
        assert twice <= {"proof", "proof-content", "exercise-content", "solution-content"}, page


def test_every_figure_has_number_caption_words_and_files(site: Path) -> None:
    seen = 0
    profiles = json.loads((site.parent / "book.json").read_text())["chapters"].values()
    quick = any(chapter["profile"] == "quick" for chapter in profiles)
    wanted = {"SVG"} if quick else {"SVG", "PDF"}
    for page in pages(site):
        for figure in parsed(page).select("figure.companion-figure"):
            seen += 1
            drawing = figure.select_one("svg[role=img], img")
            assert drawing is not None
            assert str(drawing.get("aria-label") or drawing["alt"]).strip()
            assert figure.select_one("figcaption").get_text(strip=True)
            links = {a.get_text() for a in figure.select(".companion-links a")}
            assert wanted <= links
            if figure.get("id"):
                assert str(figure["id"]).startswith("fig-")
                assert figure.select_one(".caption-number") is not None
                assert "code" in links
    assert seen > 0


def test_the_pages_hold_no_dead_button(site: Path) -> None:
    for page in pages(site):
        for link in parsed(page).select("a[href], button[onclick]"):
            target = str(link.get("href") or link.get("onclick"))
            assert "executablebooks/jupyter-book" not in target, page
            assert "binder-examples" not in target, page


def test_the_site_is_small_enough(site: Path) -> None:
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert size < 25e6
    assert (site / "_static" / "scripts" / "fontawesome.js").stat().st_size < 1e5


def test_the_checks_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="missing.html">x</a><a href="#nowhere">x</a><a href="../x">x</a>'
        '<a href="#here" id="here">x</a><script src="https://cdn.example.org/x.js"></script>'
        '<img src="//example.org/x.png"><link href="local.css">'
    )
    assert len(broken_links(tmp_path, page)) == 4
    assert len(outside(page)) == 2


def test_jupyter_book_alone_builds_it_too(small_book: Path) -> None:
    command = "from jupyter_book.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "build", ".", "--path-output", "alone", "-W", "-n"],
        cwd=small_book,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING:" not in done.stderr
    page = small_book / "alone" / "_build" / "html" / "book" / "part one" / "demo.html"
    assert 'id="fig-parabola"' in page.read_text()
    assert 'id="claim-mean-of-square"' in page.read_text()


def test_the_first_use_of_a_term_leads_to_the_glossary(small_site: Path) -> None:
    page = parsed(small_site / "book" / "curves.html")
    (link,) = page.select("a.companion-term")
    assert link["href"] == "words.html#term-hyperbola"
    assert link.find_parent("li").get_text().strip() == "Another hyperbola: hyperbolas!"
    assert link.get_text() == "hyperbola"
    assert not parsed(small_site / "book" / "words.html").select("a.companion-term")


def test_no_term_is_linked_twice_on_a_page(site: Path) -> None:
    for page in pages(site):
        links = [str(link["href"]) for link in parsed(page).select("a.companion-term")]
        assert len(links) == len(set(links)), page
        assert not parsed(page).select("a a"), page


def test_the_gallery_shows_files_and_the_status_names_the_chapter(small_site: Path) -> None:
    page = parsed(small_site / "book" / "ledger.html")
    pictures = page.select(".companion-gallery img")
    assert pictures
    assert all(str(p["src"]) == "../_static/figures/parabola.svg" for p in pictures[:1])
    row = page.select_one(".companion-status tbody tr")
    assert row is not None
    assert row.select_one("a")["href"] == "part%20one/demo.html"
    cells = [cell.get_text() for cell in row.select("td")]
    assert cells[0] == "part one/demo"
    assert cells[2] == "quick"
    assert int(cells[4]) >= 1
    assert int(cells[5]) >= 1
