"""When and on what each chapter was executed, as a table for a page of the book."""

import html
import os
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from companion import _session, store
from companion.ledger import Table

FIRST_BUILD = "No chapter has been executed yet; `make book` does that."
HEADS = ("Chapter", "Executed", "Profile", "Time", "Figures", "Claims")


def table() -> Table:
    """Return a row per executed chapter, and what it was executed with."""
    root = _session.book_root()
    found = list(store.executions(root).values()) if root is not None else []
    if not found:
        return Table(FIRST_BUILD, f'<p class="companion-missing">{html.escape(FIRST_BUILD)}</p>')
    rows, machines = [], dict[str, None]()
    for execution in found:
        record = execution.record()
        rows.append(_row(execution, record))
        machines[_machine(record)] = None
    text = [" | ".join(HEADS), *(" | ".join(row) for _, row in rows), *machines]
    assert root is not None
    body = "".join(
        f'<tr><td><a href="{_link(root, name)}">{html.escape(row[0])}</a></td>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for name, row in rows
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    notes = "".join(f"<p>{html.escape(machine)}</p>" for machine in machines)
    return Table(
        "\n".join(text),
        f'<div class="companion-scroll"><table class="table companion-status"><thead><tr>{heads}'
        f"</tr></thead><tbody>{body}</tbody></table></div>{notes}",
    )


def _row(execution: store.Execution, record: dict[str, Any]) -> tuple[str, list[str]]:
    when = datetime.fromisoformat(record["when"])
    return execution.chapter, [
        execution.chapter,
        f"{when:%Y-%m-%d %H:%M} UTC",
        execution.profile,
        f"{record['seconds']:.0f}\N{NO-BREAK SPACE}s",
        str(len(execution.figures())),
        str(len(execution.claims())),
    ]


def _machine(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"On {record['cores']} cores, {record['platform']}, with {versions}."


def _link(root: Path, chapter: str) -> str:
    page = Path(os.path.relpath(root / "book" / chapter, Path.cwd())).as_posix()
    return html.escape(f"{quote(page)}.html")
