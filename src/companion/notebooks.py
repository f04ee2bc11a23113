"""Plain notebooks of the chapters, for a class: with the solutions or without."""

import re
from pathlib import Path
from typing import Any

from companion.book import Book
from companion.exercises import as_cells

_OPENING = re.compile(r" {0,3}(`{3,}|:{3,})\s*\{(solution|solution-start|solution-end)\}")


def write_notebooks(book: Book, output: Path, *, solutions: bool) -> list[Path]:
    """Write every chapter as an .ipynb below ``output`` and return the files."""
    import jupytext
    import nbformat

    written = []
    for page in book.chapters:
        text = as_cells(page.text, solutions=solutions)
        text = text if solutions else without_solutions(text)
        notebook = jupytext.reads(text, fmt="md:myst")
        if not solutions:
            notebook.cells = [cell for cell in notebook.cells if not _is_solution(cell)]
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        path = output / f"{page.name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]
        written.append(path)
    return written


def without_solutions(text: str) -> str:
    """Return a page's source without its ``{solution}`` blocks.

    Also what stands between ``{solution-start}`` and ``{solution-end}`` goes.
    """
    kept: list[str] = []
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        opening = _OPENING.match(lines[i])
        if opening is None:
            kept.append(lines[i])
            i += 1
            continue
        i = _after_block(lines, i, opening[1])
        if opening[2] == "solution-start":
            while i < len(lines):
                ending = _OPENING.match(lines[i])
                if ending is not None and ending[2] == "solution-end":
                    i = _after_block(lines, i, ending[1])
                    break
                i += 1
    return "\n".join(kept) + "\n"


def _after_block(lines: list[str], start: int, fence: str) -> int:
    closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    for i in range(start + 1, len(lines)):
        if closing.match(lines[i]):
            return i + 1
    return len(lines)


def _is_solution(cell: Any) -> bool:
    return "solution" in cell.metadata.get("tags", [])
