"""What is staged for Jupyter Book, and what is left out of the site."""

import pytest

from companion._lean import without_icons
from companion.site import _relinked

CHAPTERS = {"part/one", "part/two words", "index"}


@pytest.mark.parametrize(
    ("page", "text", "staged"),
    [
        ("index", "[a](part/one.md)", "[a](part/one.ipynb)"),
        ("index", "[a](./part/one.md#here)", "[a](./part/one.ipynb#here)"),
        (
            "part/one",
            "[a](../index.md) [b](two%20words.md)",
            "[a](../index.ipynb) [b](two%20words.ipynb)",
        ),
        ("part/one", "[a](<two words.md>)", "[a](<two words.md>)"),
        ("index", "x [a]\n\n[a]: part/one.md\n", "x [a]\n\n[a]: part/one.ipynb\n"),
        ("index", "[a](plain.md)", "[a](plain.md)"),
        ("index", "[a](https://example.org/part/one.md)", "[a](https://example.org/part/one.md)"),
        ("index", "the file part/one.md, (part/one.md)", "the file part/one.md, (part/one.md)"),
    ],
)
def test_links_to_chapters_follow_them(page: str, text: str, staged: str) -> None:
    assert _relinked(text, page, CHAPTERS) == staged


def test_icons_are_kept_by_any_of_their_names() -> None:
    moon, glass, one, brand = (
        'moon:[384,512,[127769,9214],"f186","M223.5"],',
        '"magnifying-glass":[512,512,[128269,"search"],"f002","M416"],',
        '1:[256,512,[],"31",["M1","M2"]],',
        '"cc-visa":[576,512,[],"f1f0","M470"]',
    )
    script = f"var a={{{moon}{glass}{one}{brand}}};f(a)"
    assert without_icons(script, {"moon", "search"}) == f"var a={{{moon}{glass}}};f(a)"
    assert (
        without_icons(script, {"magnifying-glass", "cc-visa"}) == f"var a={{{glass}{brand}}};f(a)"
    )
    assert without_icons(script, {"1"}) == f"var a={{{one}}};f(a)"
    assert without_icons(script, set()) == "var a={};f(a)"
