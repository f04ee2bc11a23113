"""How claims and figures stand in an executed notebook; light, so that any tool can read them."""

from typing import Any

CLAIM = "application/vnd.companion.claim+json"
FIGURE = "application/vnd.companion.figure+json"

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
DEPENDS = "depends on protocol"
OPEN = "open"
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
