"""The book on paper."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader

from companion.errors import Problem
from companion.pdf import _target, write_pdf


def test_the_small_book_is_printed(small_site: Path, browser: Any, tmp_path: Path) -> None:
    root, output = small_site.parents[1], tmp_path / "book.pdf"
    command = [sys.executable, "-m", "companion", "--root", str(root), "pdf", "--output"]
    done = subprocess.run([*command, str(output)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(small_site.rglob(".print*"))
    reader = PdfReader(output)
    words = [page.extract_text() for page in reader.pages]
    assert len(words) > 3
    assert "A small book" in words[0]
    assert "Contents" in words[1]
    assert "Welcome." in words[2]
    assert reader.outline, "no outline"
    links = [
        annotation.get_object()
        for page in reader.pages
        for annotation in page.get("/Annots", [])
        if annotation.get_object()["/Subtype"] == "/Link"
    ]
    inside = [link for link in links if "/Dest" in link]
    assert inside
    there = reader.named_destinations
    assert all(str(link["/Dest"]) in there for link in inside), "a link that leads nowhere"
    outside = [str(link["/A"]["/URI"]) for link in links if "/A" in link]
    assert not any(address.startswith("file:") for address in outside)
    # formulas are typeset, not shown as they were written
    whole = "\n".join(words)
    assert "\\frac" not in whole
    assert "\\(" not in whole
    # a figure's path is drawn: its page has more than text
    assert any(b" l\n" in page.get_contents().get_data() for page in reader.pages)


def test_where_links_lead() -> None:
    numbers = {"book/a.html": "page0", "book/part/b c.html": "page1"}
    for address, page, target in [
        ("#x", "book/a.html", "#page0-x"),
        ("part/b%20c.html", "book/a.html", "#page1"),
        ("../a.html#y", "book/part/b c.html", "#page0-y"),
        ("../_static/figures/f.svg", "book/a.html", None),
        ("https://example.org/", "book/a.html", "https://example.org/"),
    ]:
        assert _target(address, page, numbers) == target


def test_nothing_to_print_is_one_line(tmp_path: Path) -> None:
    from companion.book import open_book

    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.md").write_text("# A\n")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    with pytest.raises(Problem, match="no site to print"):
        write_pdf(open_book(tmp_path), tmp_path / "book.pdf")
