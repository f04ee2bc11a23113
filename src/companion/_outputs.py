"""How claims and figures stand in an executed notebook; light, so that any tool can read them."""

import re
from typing import Any

CLAIM = "application/vnd.companion.claim+json"
FIGURE = "application/vnd.companion.figure+json"

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
DEPENDS = "depends on protocol"
OPEN = "open"
_FENCED = re.compile(r"^(`{3,}|~{3,}|:{3,}).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,2} ", re.MULTILINE)
SIGNS = {REPRODUCED: "✓", NOT_REPRODUCED: "✗", DEPENDS: "≈", OPEN: "?"}


def file_labels(figure: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the files of a figure that the site offers, each with a word for it.

    PNG is left out: a picture for slides, which the command ``figures`` copies.
    """
    labels = []
    tables = [name for name in figure["files"] if name.endswith(".csv")]
    order = ("svg", "pdf", "png", "csv")
    for name in sorted(figure["files"], key=lambda n: (order.index(n.rsplit(".", 1)[1]), n)):
        kind = name.rsplit(".", 1)[1].upper()
        if kind == "CSV":
            kind = "data" if len(tables) == 1 else f"data: {name.split('.')[1]}"
        if kind != "PNG":
            labels.append((kind, name))
    return labels


def declared(notebook: Any, mime: str) -> list[dict[str, Any]]:
    """Return what the cells declared under one of our mime types, each id once."""
    found: dict[str, dict[str, Any]] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            record = output.get("data", {}).get(mime)
            if record is not None:
                found.setdefault(record["id"], record)
    return list(found.values())


def figures_with_claims(notebook: Any) -> list[dict[str, Any]]:
    """Return the declared figures, each with the ids of the claims checked in its section.

    A section goes from one heading of the first or second level to the next. It is where the text
    speaks of the figure and of the claims together.
    """
    sections: list[dict[str, list[str]]] = [{FIGURE: [], CLAIM: []}]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and _HEADING.search(_FENCED.sub("", cell.source)):
            sections.append({FIGURE: [], CLAIM: []})
        for output in cell.get("outputs", []):
            for mime, ids in sections[-1].items():
                if mime in output.get("data", {}):
                    ids.append(output["data"][mime]["id"])
    claims_of = {id: section[CLAIM] for section in reversed(sections) for id in section[FIGURE]}
    return [
        {**figure, "claims": list(dict.fromkeys(claims_of[figure["id"]]))}
        for figure in declared(notebook, FIGURE)
    ]
