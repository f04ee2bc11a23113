"""Figures: each with number, caption, alt text, data, and files to take away.

``save`` shows a figure in the chapter and stores it as SVG and PDF with the data drawn in it
(CSV) and a description (JSON). ``show`` and ``gallery`` show figures of other chapters again.
Importing this module sets the book's look, see :mod:`companion._style`.
"""

import csv
import hashlib
import html
import io
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from companion import _interactive, _session, _svg, store
from companion._outputs import FIGURE
from companion._registry import Registry
from companion._style import COLOURS, DIVERGING, PAPER, SEQUENTIAL, shades, style
from companion._text import check_id, plain, require_text

__all__ = ["COLOURS", "DIVERGING", "SEQUENTIAL", "gallery", "save", "shades", "show", "style"]

MOST_BYTES = 5_000_000  # of one table: what is drawn, not all that was computed
DIGITS = 8  # of a number in a table: more than a drawing shows
FIRST_BUILD = "After `make book` this place shows"

_declared = Registry("figure")
_times = itertools.count(1)  # a figure may be shown twice on a page, with names of its own

style()


def save(
    fig: Figure,
    id: str,
    *,
    data: Mapping[str, Any],
    caption: str,
    alt: str,
    seed: object = None,
    parameters: Mapping[str, Any] | None = None,
    interactive: Any = None,
) -> None:
    """Show a figure, store it with its data, and close it.

    Parameters
    ----------
    fig
        a matplotlib figure, drawn with the book's own look; give it no background.
    id
        lowercase words joined by hyphens, once in the whole book. The text refers to the
        figure by ``{numref}`fig-<id>```.
    data
        what is drawn: column name → values in one dimension (lengths may differ); or, for
        several tables, table name → such a mapping.
    caption
        one or more sentences in MyST Markdown; mathematics between dollars.
    alt
        what is to be seen, for those who do not see it: plain text without LaTeX.
    seed, parameters
        kept with the data, beside the chapter's own parameters.
    interactive
        a plotly figure of the same thing, which takes the drawing's place on the screen where
        scripts run; files, paper and other pages show ``fig``. Its frames get a slider.

    Raises
    ------
    ValueError
        for a missing caption or alt text, an id used twice, data that is no table or larger
        than 5 MB (store what is drawn).

    Numbers in the tables are given to eight digits. With the profile *quick* there are only the
    drawing as SVG and the tables.

    The same figure gives the same bytes in every file.
    """
    check_id(id)
    require_text("caption", caption)
    require_text("alt", alt)
    if "$" in alt or "\\" in alt:
        raise ValueError(f"figure {id!r}: alt is read aloud; write plain text, not LaTeX")
    tables = _tables(id, data)
    turning = "" if interactive is None else _interactive.element(interactive, id, alt)
    _declared.declare(id)

    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    svg = _svg.compact(_render(fig, id, "svg", {"Date": None}).decode("utf-8"))
    content = {f"{id}.svg": svg.encode("utf-8")}
    if os.environ.get(_session.PROFILE) != "quick":  # they take most of the time
        content[f"{id}.pdf"] = _render(fig, id, "pdf", {"CreationDate": None})
        content[f"{id}.png"] = _render(fig, id, "png", {}, facecolor=PAPER, transparent=False)
    content |= tables
    record = {
        "id": id,
        "caption": caption.strip(),
        "alt": alt.strip(),
        "seed": plain(seed),
        "parameters": {**_session.parameters(), **plain(dict(parameters or {}))},
        "versions": store.versions(),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in content.items()},
    }
    for name, data_bytes in content.items():
        (folder / name).write_bytes(data_bytes)
    store.write_json(folder / f"{id}.json", record)

    drawing = _svg.inline(svg, id, record["alt"])
    bundle = {
        "text/plain": f"Figure {id}: {record['caption']}",
        "text/html": _figure_html(record, drawing + turning),
        FIGURE: record,
    }
    _close(fig)
    _session.display(bundle, {"companion": {"kind": "figure", **record}})


def show(id: str, *, inline: bool = True) -> "Again":
    """Show a figure of another chapter again, with a link to it.

    For a page executed after the others (``companion: after: all``). Before the first build
    it is a sentence that says so. With ``inline=False`` the site shows the figure's
    file, which keeps its own dark text: for a page with many.
    """
    check_id(id)
    found = [item for item in _all_figures() if item["id"] == id]
    return Again(found[:1], inline=inline, missing=f"{FIRST_BUILD} the figure {id}.")


def gallery() -> "Again":
    """Show all figures of the executed chapters, with links to where they were made.

    The site shows their files; the notebook itself lists them, or it would hold them all twice.
    """
    missing = f"{FIRST_BUILD} all figures of the book."
    return Again(_all_figures(), gallery=True, inline=False, missing=missing)


class Again(_session.Shown):
    """Figures of other chapters, shown once more."""

    def __init__(
        self,
        items: list[dict[str, Any]],
        *,
        missing: str,
        gallery: bool = False,
        inline: bool = True,
    ) -> None:
        super().__init__()
        self._cell = None  # shown when it is displayed, not when it is made
        self.items = items
        self._missing = missing
        self._gallery = gallery
        self._inline = inline

    def __repr__(self) -> str:
        if not self.items:
            return self._missing
        return "\n".join(f"Figure {i['id']} ({i['chapter']}): {i['caption']}" for i in self.items)

    def _bundle(self) -> dict[str, Any]:
        drawings = [_figure_html(i, self._drawing(i), link=i["link"]) for i in self.items]
        body = "".join(drawings) or f'<p class="companion-missing">{self._missing}</p>'
        return {"text/plain": repr(self), "text/html": body}

    def _drawing(self, item: dict[str, Any]) -> str:
        if not self._inline:
            return ""
        return _svg.inline(item["svg"].read_text("utf-8"), item["prefix"], item["alt"])

    def _metadata(self) -> dict[str, Any]:
        if not self.items:
            return super()._metadata()
        keys = ("id", "caption", "alt", "link", "claims", "files")
        items = [{key: item[key] for key in keys} for item in self.items]
        record = {"kind": "again", "gallery": self._gallery, "inline": self._inline}
        return {"companion": {**record, "figures": items}}


def _all_figures() -> list[dict[str, Any]]:
    """Return every figure of the executed chapters, with its file and a link to it."""
    root = _session.book_root()
    found: list[dict[str, Any]] = []
    for execution in store.executions(root).values() if root is not None else ():
        assert root is not None
        page = Path(os.path.relpath(root / "book" / execution.chapter, Path.cwd())).as_posix()
        for record in execution.figures():
            svg = execution.folder / "figures" / f"{record['id']}.svg"
            prefix = f"again{next(_times)}-{record['id']}"
            link = f"{quote(page)}.html#fig-{record['id']}"
            tested = {id: f"{quote(page)}.html#claim-{id}" for id in record.get("claims", ())}
            found.append({**record, "svg": svg, "prefix": prefix, "link": link, "claims": tested})
    return found


def _folder() -> Path:
    if _session.building():
        return Path(os.environ[_session.OUTPUT]) / "figures"
    root = _session.book_root()
    return Path("figures") if root is None else store.build_folder(root) / "figures"


def _render(fig: Figure, id: str, kind: str, metadata: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": id}):
        fig.savefig(buffer, format=kind, metadata=metadata, **{"transparent": True, **options})
    return buffer.getvalue()


def _close(fig: Figure) -> None:
    from matplotlib import pyplot

    pyplot.close(fig)


def _figure_html(record: dict[str, Any], drawing: str, link: str | None = None) -> str:
    name = "" if link else f' id="fig-{record["id"]}"'
    more = f' <a href="{html.escape(link)}">From the chapter</a>' if link else ""
    return (
        f'<figure class="companion-figure"{name}><div class="companion-drawing">{drawing}</div>'
        f"<figcaption>{html.escape(record['caption'], quote=False)}{more}</figcaption></figure>"
    )


def _tables(id: str, data: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the CSV files, name → content."""
    if not isinstance(data, Mapping) or not data:
        raise ValueError(f"figure {id!r}: data must map column names to values, and not be empty")
    nested = [isinstance(value, Mapping) for value in data.values()]
    if all(nested):
        for name in data:
            check_id(name)
        return {f"{id}.{name}.csv": _csv(id, table) for name, table in data.items()}
    if any(nested):
        raise ValueError(f"figure {id!r}: data mixes tables and columns; name every table")
    return {f"{id}.csv": _csv(id, data)}


def _cells(values: np.ndarray) -> list[Any]:
    if values.dtype.kind != "f":
        return values.tolist()
    return [f"{value:.{DIGITS}g}" for value in values.tolist()]


def _csv(id: str, table: Mapping[str, ArrayLike]) -> bytes:
    columns = {str(name): np.atleast_1d(np.asarray(values)) for name, values in table.items()}
    for name, values in columns.items():
        if values.ndim != 1 or values.dtype.kind not in "biufUS":
            raise ValueError(
                f"figure {id!r}: column {name!r} must be numbers or words in one dimension, "
                f"not {values.dtype} of shape {values.shape}"
            )
    lists = [_cells(values) for values in columns.values()]
    length = max(map(len, lists), default=0)
    if length == 0:
        raise ValueError(f"figure {id!r}: data has no values")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for i in range(length):
        writer.writerow([values[i] if i < len(values) else "" for values in lists])
    content = text.getvalue().encode("utf-8")
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"figure {id!r}: its data take {len(content) / 1e6:.0f} MB; store what is drawn, "
            "not all that was computed (at most 5 MB)"
        )
    return content
