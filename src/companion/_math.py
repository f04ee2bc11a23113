"""Formulas: those near the window are typeset first, the rest when the browser is idle.

A chapter has hundreds, which take longer than all the rest of the page. What is put together from
a page to be printed or projected needs all of them at once.

A browser may begin a line with the comma after a formula, since to it a formula is a picture.
What touches a formula without a space is therefore kept with it, see :class:`KeepTogether`.
"""

import itertools
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

SCRIPT = "companion-math.js"  # typesets the rest
_LAZY = {"loader": {"load": ["ui/lazy"]}}
_WORDS = re.compile(r"\s+|[–—]|[^\s–—]+")
_BREAKS = re.compile(r"[\s–—]")
_AS_WRITTEN = '"loader": {"load": ["ui/lazy"]}'  # by Sphinx, into the page


def settings(given: dict[str, Any] | None) -> dict[str, Any]:
    """Return MathJax's settings."""
    return {**(given or {}), **_LAZY}


def at_once(script: str) -> str:
    """Return a page's script with MathJax's settings, so that it typesets all formulas at once."""
    return script.replace(_AS_WRITTEN, '"loader": {}')


class KeepTogether(SphinxPostTransform):
    """Put each formula and what touches it into one element, which the style does not break."""

    default_priority = 30  # links that are made of the text are there by then
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Run the transform."""
        for above in {id(f.parent): f.parent for f in self.document.findall(nodes.math)}.values():
            above[:] = _together(above.children)


def _together(children: list[nodes.Node]) -> list[nodes.Node]:
    pieces: list[nodes.Node] = []
    for child in children:
        words = _WORDS.findall(child) if isinstance(child, nodes.Text) else ()
        pieces += [nodes.Text(word) for word in words] or [child]
    found: list[nodes.Node] = []
    for touching, run in itertools.groupby(pieces, _touches):
        group = list(run)
        if touching and len(group) > 1 and any(isinstance(p, nodes.math) for p in group):
            found.append(nodes.inline("", "", *group, classes=["companion-together"]))
        else:
            found += group
    return found


def _touches(piece: nodes.Node) -> bool:
    """Whether it is a formula, or text that would be torn off one."""
    if isinstance(piece, nodes.Text):
        return not _BREAKS.match(piece)
    return isinstance(piece, nodes.math)


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.add_js_file(SCRIPT, loading_method="defer")
    app.add_post_transform(KeepTogether)
