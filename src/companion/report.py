"""What the commands ``list`` and ``claims`` print."""

import shutil
import textwrap
from pathlib import Path
from typing import Any

from companion import store
from companion._outputs import SIGNS
from companion.book import Book
from companion.errors import Problem
from companion.source import Page
from companion.store import Execution

JSON_KEYS = (
    *("id", "statement", "source", "chapter", "measured", "expected", "tolerance", "interval"),
    *("allowed_misses", "verdict", "second_method", "control", "status", "finding", "note"),
    "profile",
)


def executed(book: Book) -> dict[str, Execution]:
    """Return the last build's executions; Problem if there are none."""
    found = store.executions(book.root)
    if not found:
        raise Problem("nothing was executed yet; run `companion build` first")
    return found


def changed_since(book: Book, found: dict[str, Execution]) -> list[str]:
    """Return the executed chapters that would be executed again now."""
    profile_of = {
        c.name: found[c.name].profile if c.name in found else "paper" for c in book.chapters
    }
    keys = book.keys({n: p if p in book.profiles else "paper" for n, p in profile_of.items()})
    return [name for name, e in found.items() if keys.get(name) != e.key]


def warnings(book: Book, found: dict[str, Execution]) -> list[str]:
    """Return what a reader of the last build's results should know."""
    lines = []
    missing = [c.name for c in book.chapters if c.name not in found]
    changed = [name for name in changed_since(book, found) if name not in missing]
    if missing:
        lines.append(f"not executed: {', '.join(missing)}")
    if changed:
        lines.append(f"changed since the last build: {', '.join(changed)}")
    return lines


def claims_as_json(found: dict[str, Execution]) -> list[dict[str, Any]]:
    """Return the ledger as plain data."""
    rows = [claim for e in found.values() for claim in e.claims()]
    return [{key: row.get(key) for key in JSON_KEYS} for row in rows]


def claims_as_text(found: dict[str, Execution]) -> str:
    """Return the ledger for a terminal."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    blocks = []
    for row in claims_as_json(found):
        lines = [f"{SIGNS[row['status']]} {row['status']:<20} {row['id']}  ({row['chapter']})"]
        lines += _wrapped(row["statement"], width, "  ")
        details = [
            ("source", row["source"]),
            ("result", row["verdict"]),
            ("second method", row["second_method"]),
            ("control", row["control"]),
            ("note", row["note"]),
        ]
        for name, value in details:
            if value:
                lines += _wrapped(f"{name}: {value}", width, "    ")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) if blocks else "the executed chapters make no claims"


def chapters_as_text(book: Book) -> str:
    """Return every chapter with its parameters, figures, claims and last execution."""
    found = store.executions(book.root)
    changed = set(changed_since(book, found))
    return "\n\n".join(
        "\n".join(_chapter(page, found.get(page.name), page.name in changed))
        for page in book.chapters
    )


def _chapter(page: Page, execution: Execution | None, changed: bool) -> list[str]:
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    lines = [page.name]
    for name, parameter in page.parameters.items():
        there = {p: v[name] for p, v in page.profiles.items() if name in (v or {})}
        profiles = "".join(f", {profile}: {value}" for profile, value in there.items())
        lines += _wrapped(f"{name} = {parameter.text}{profiles}", width, "    ")
    if execution is None:
        return [*lines, "  not executed yet"]
    record = execution.record()
    figures = ", ".join(f["id"] for f in execution.figures()) or "none"
    claims = ", ".join(c["id"] for c in execution.claims()) or "none"
    lines += _wrapped(f"figures: {figures}", width, "  ")
    lines += _wrapped(f"claims: {claims}", width, "  ")
    lines.append(
        f"  executed {record['when']}, profile {execution.profile}, {record['seconds']:.1f} s"
        + ("; changed since" if changed else "")
    )
    return lines


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )


def copy_figures(book: Book, kinds: list[str], output: Path) -> int:
    """Copy every figure with its data into a folder, with a manifest; return how many.

    The manifest says of each figure: caption, chapter, profile, parameters, seed, the claims
    checked in its section, hashes of its files (the data are CSV), versions, and when it was made.
    """
    found = executed(book)
    output.mkdir(parents=True, exist_ok=True)
    manifest = []
    for execution in found.values():
        record = execution.record()
        for figure in execution.figures():
            there = {name.rsplit(".", 1)[1] for name in figure["files"]}
            for kind in kinds:
                if kind not in there:
                    raise Problem(
                        f"figure {figure['id']} was not made as {kind}: the profile "
                        f"{execution.profile} makes {', '.join(sorted(there - {'csv'}))} only"
                    )
            files = {
                name: digest
                for name, digest in figure["files"].items()
                if name.rsplit(".", 1)[1] in (*kinds, "csv")
            }
            for name in files:
                shutil.copyfile(execution.folder / "figures" / name, output / name)
            manifest.append(
                {
                    **figure,
                    "files": files,
                    "executed": record["when"],
                    "key": execution.key,
                }
            )
    store.write_json(output / "manifest.json", manifest)
    return len(manifest)
