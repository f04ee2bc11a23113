"""Figures that the reader can turn: a plotly figure in the place of a static drawing.

The page holds the plotly figure as data, beside the drawing. A small script of our own shows it
where JavaScript and WebGL run; otherwise, and on paper, the drawing stays. plotly itself is stored
once in the site, and loaded by the pages that need it; nothing comes from another host.
"""

import html
import re
import shutil
from pathlib import Path
from typing import Any

SCRIPT = "companion-interactive.js"
STATIC = Path(__file__).parent / "static"
ELEMENT = re.compile(r'<div class="companion-interactive".*?</script></div>', re.DOTALL)
MOST_BYTES = 1_000_000  # of one figure: every reader of the page loads it


def element(figure: Any, id: str, alt: str) -> str:
    """Return the plotly figure as a hidden element for the page.

    A figure with frames gets a button and a slider; name each frame by what the slider should say.
    """
    if not hasattr(figure, "to_json") or not hasattr(figure, "frames"):
        raise ValueError(
            f"figure {id!r}: interactive must be a plotly figure (graph_objects.Figure), "
            f"not {type(figure).__name__}"
        )
    nameless = [frame for frame in figure.frames if not frame.name]
    if nameless:
        raise ValueError(f"figure {id!r}: every frame needs a name, the slider shows it")
    data = figure.to_json().replace("</", "<\\/").replace("<!--", "<\\!--")
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"figure {id!r}: its interactive twin takes {len(data) / 1e6:.1f} MB of the page; "
            "show fewer points or frames, or round them (at most 1 MB)"
        )
    return (
        f'<div class="companion-interactive" data-alt="{html.escape(alt)}" hidden>'
        f'<script type="application/json">{data}</script></div>'
    )


def install(static: Path) -> None:
    """Copy plotly into a site's static files, if any page of the site asks for it."""
    pages = static.parent.rglob("*.html")
    if any(SCRIPT in page.read_text(encoding="utf-8") for page in pages):
        import plotly

        shutil.copyfile(
            Path(plotly.__file__).parent / "package_data" / "plotly.min.js",
            static / "plotly.min.js",
        )
