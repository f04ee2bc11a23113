"""Links to the glossary: at the first use of each term on a page.

The setting ``companion_terms`` in ``_config.yml`` maps a term of the glossary to a regular
expression for the words that stand for it in the text. Headings, captions, code and links stay as
they are.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ConfigError
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

_CLOSED = (
    *(nodes.title, nodes.caption, nodes.legend, nodes.reference, nodes.literal, nodes.term),
    nodes.citation,
)
_UNLINKED = "/slides/"  # the pages whose text is shown on a wall


class TermLinks(SphinxPostTransform):
    """Let the first use of each term lead to the glossary."""

    default_priority = 20  # links of the text's own are there by then
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Run the transform."""
        page = self.env.docname
        known = self.env.domaindata["std"]["objects"]
        if _UNLINKED in f"/{page}":
            return
        for term, words in self.config.companion_terms.items():
            place = known.get(("term", term))
            if place is None:
                raise ConfigError(f"companion_terms: no glossary has the term {term!r}")
            pattern = re.compile(rf"\b(?:{words})\b")
            if place[0] != page:
                self._link_first(pattern, *place)

    def _link_first(self, pattern: re.Pattern[str], page: str, name: str) -> None:
        for text in self.document.findall(nodes.Text):
            found = pattern.search(text)
            if found is None or not _open(text):
                continue
            if isinstance(text.parent, nodes.emphasis) and found[0] != text:
                continue  # a title of a paper
            before, word, after = text[: found.start()], found[0], text[found.end() :]
            link = make_refnode(
                self.app.builder, self.env.docname, page, name, nodes.inline("", word)
            )
            link["classes"].append("companion-term")
            parts = [nodes.Text(before), link, nodes.Text(after)]
            text.parent.replace(text, [part for part in parts if part.astext()])
            return


def _open(text: nodes.Text) -> bool:
    """Whether a link may stand here: in a paragraph, and in nothing that has its own."""
    above, paragraph = text.parent, False
    while above is not None:
        if isinstance(above, _CLOSED) or "companion-gallery" in above.get("classes", ()):
            return False
        if isinstance(above, nodes.paragraph):
            if any(isinstance(child, nodes.raw) for child in above):
                return False  # it may be a link in HTML
            paragraph = True
        above = above.parent
    return paragraph


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.add_config_value("companion_terms", {}, "html")
    app.add_post_transform(TermLinks)
