"""The ledger: every claim of the book in one table, made from the executed chapters."""

import html
import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from companion import _session, claims, store
from companion._outputs import SIGNS

GROUPS = (
    ("Metastable clusters (paper B, arXiv 2410.23228)", "abstract 2410.23228"),
    ("Random layers (paper A, arXiv 2601.21942)", "abstract 2601.21942"),
    ("Public code", "public code"),
    ("Our own results", "derived here"),
)
CHECKED = (("Result", "verdict"), ("Second method", "second_method"), ("Control", "control"))
FIRST_BUILD = "No chapter has been executed yet; `make book` does that and fills the ledger."


class Table(_session.Shown):
    """Something to show as HTML, with a plain text beside it."""

    def __init__(self, text: str, html_text: str) -> None:
        super().__init__()
        self._cell = None  # shown when it is displayed, not when it is made
        self.text = text
        self.html = html_text

    def __repr__(self) -> str:
        return self.text

    def _bundle(self) -> dict[str, Any]:
        return {"text/plain": self.text, "text/html": self.html}


def all_claims(root: Path) -> list[dict[str, Any]]:
    """Return the claims of all executed chapters, in the order of the book."""
    return [claim for e in store.executions(root).values() for claim in e.claims()]


def table() -> Table:
    """Return all claims, grouped by where they come from, each linked to its chapter."""
    found = _found()
    if found is None:
        return _not_yet()
    text, body = [], []
    for title, source in GROUPS:
        rows = [claim for claim in found if claim["source"].startswith(source)]
        if not rows:
            continue
        text += [title, *(f"  {claim['status']}: {claim['statement']}" for claim in rows)]
        body.append(
            f'<div class="companion-scroll"><table class="companion-ledger table">'
            f"<caption>{html.escape(title)}</caption><thead><tr>"
            '<th scope="col">Status</th><th scope="col">Claim</th>'
            '<th scope="col">How it was checked</th></tr></thead><tbody>'
            + "".join(map(_row, rows))
            + "</tbody></table></div>"
        )
    profiles = ", ".join(dict.fromkeys(claim["profile"] for claim in found))
    text.append(f"Executed with the profile: {profiles}.")
    body.append(f'<p class="companion-profile">{html.escape(text[-1])}</p>')
    return Table("\n".join(text), "".join(body))


def summary() -> Table:
    """Return how many claims have which status."""
    found = _found()
    if found is None:
        return _not_yet()
    counts = Counter(claim["status"] for claim in found)
    statuses = [s for s in SIGNS if counts[s]]
    total = f"{len(found)} claim{'s' * (len(found) != 1)}: "
    text = total + ", ".join(f"{counts[s]} {s}" for s in statuses)
    body = " ".join(f"{claims.badge(s)} <b>{counts[s]}</b>" for s in statuses)
    return Table(text, f'<p class="companion-summary">{total}{body}</p>')


def claim(id: str) -> Table:
    """Show a claim of another chapter again, with a link to it.

    For a page executed after the others (``companion: after: all``). Before the first build
    it is a sentence that says so.
    """
    found = _found()
    if found is None:
        return _not_yet()
    for record in found:
        if record["id"] == id:
            box = claims.as_html(record).replace(f' id="claim-{id}"', "", 1)
            here = f'href="#claim-{id}"'
            return Table(claims.as_text(record), box.replace(here, f'href="{_link(record)}"', 1))
    raise ValueError(f"there is no claim {id!r} in the executed chapters")


def _found() -> list[dict[str, Any]] | None:
    root = _session.book_root()
    return (all_claims(root) or None) if root is not None else None


def _not_yet() -> Table:
    return Table(FIRST_BUILD, f'<p class="companion-missing">{html.escape(FIRST_BUILD)}</p>')


def _link(claim: dict[str, Any]) -> str:
    root = _session.book_root()
    assert root is not None
    page = Path(os.path.relpath(root / "book" / claim["chapter"], Path.cwd())).as_posix()
    return html.escape(f"{quote(page)}.html#claim-{claim['id']}")


def _row(claim: dict[str, Any]) -> str:
    note = f"<p>{html.escape(claim['note'])}</p>" if claim["note"] else ""
    checked = "".join(
        f"<dt>{name}</dt><dd>{html.escape(claim[key])}</dd>" for name, key in CHECKED if claim[key]
    )
    return (
        f"<tr><td>{claims.badge(claim['status'])}</td>"
        f'<td><p><a href="{_link(claim)}">{html.escape(claim["statement"])}</a></p>'
        f'<p class="companion-source">{html.escape(claim["source"])}</p>{note}</td>'
        f"<td>{f'<dl>{checked}</dl>' if checked else ''}</td></tr>"
    )
