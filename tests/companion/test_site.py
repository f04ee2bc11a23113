"""What is staged for Jupyter Book."""

import pytest

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
