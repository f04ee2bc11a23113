"""SVG drawings: smaller files, and the copy of a drawing that stands inside a page.

In that copy three things change: text and axes take the page's text colour, so that the figure
can be read in the dark theme; names inside the drawing are made unique, because several
drawings share one page; and the size follows the page's width.
"""

import html
import re

from companion._style import INK

_PROLOG = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
_ROOT = re.compile(r"<svg\b[^>]*>")
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_NAME = re.compile(r'\sid="([^"]+)"')
_LINK = re.compile(r'((?:xlink:)?href)="#([^"]+)"')
_URL = re.compile(r"url\(#([^)]+)\)")
_COORDINATES = re.compile(r'\s(?:d|x|y|points)="[^"]*"')
_DECIMAL = re.compile(r"-?\d+\.\d{3,}")
_INDENT = re.compile(r"(?m)^ +")
_SIZE = re.compile(r'viewBox="([-\d.]+) ([-\d.]+) ([\d.]+) ([\d.]+)"')


def compact(svg: str) -> str:
    """Return the drawing without metadata, indents, and digits below a hundredth of a point."""
    svg = _INDENT.sub("", _COMMENT.sub("", _METADATA.sub("", svg)))
    return _COORDINATES.sub(lambda m: _DECIMAL.sub(lambda n: _rounded(n[0]), m[0]), svg)


def _rounded(number: str) -> str:
    text = f"{float(number):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def inline(svg: str, prefix: str, alt: str) -> str:
    """Return the drawing as an ``<svg>`` element for a page; ``prefix`` makes names unique."""
    svg = compact(_PROLOG.sub("", svg, count=1))
    size = _SIZE.search(svg)
    if size is None:
        raise ValueError("this SVG has no viewBox")
    width, height = float(size[3]), float(size[4])

    used = {m[2] for m in _LINK.finditer(svg)} | {m[1] for m in _URL.finditer(svg)}
    svg = _NAME.sub(lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", svg)
    svg = _LINK.sub(lambda m: f'{m[1]}="#{prefix}-{m[2]}"', svg)
    svg = _URL.sub(lambda m: f"url(#{prefix}-{m[1]})", svg)
    svg = svg.replace(INK, "currentColor")

    # 1 pt = 4/3 px. The width in px lets the style sheet keep text readable on a phone.
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'class="companion-svg" role="img" aria-label="{html.escape(alt)}" '
        f'viewBox="0 0 {width:g} {height:g}" '
        f'style="--companion-width: {width * 4 / 3:.0f}px; width: 100%; '
        f'max-width: {width * 4 / 3:.0f}px; height: auto">'
    )
    return _ROOT.sub(lambda _: root, svg, count=1).strip()
