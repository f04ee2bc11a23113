"""Plain notebooks of the chapters, for a class: with the solutions or without."""

import re
import shutil
from pathlib import Path
from typing import Any

from companion import store
from companion.book import Book
from companion.errors import Problem
from companion.exercises import as_cells
from companion.store import Execution

_EXERCISE = re.compile(r"^(`{3,}|:{3,})\s*\{(exercise|solution)", re.MULTILINE)
_OPENING = re.compile(r" {0,3}(`{3,}|:{3,})\s*\{(solution|solution-start|solution-end)\}")


def write_notebooks(
    book: Book,
    output: Path,
    *,
    solutions: bool = True,
    executed: bool = False,
    repository: str | None = None,
) -> list[Path]:
    """Write every chapter as an .ipynb below ``output``, with its data, and return the notebooks.

    ``executed`` takes the notebooks of the last build, with what they show; otherwise they are
    made from the chapters' text, without. ``repository``, an address that git can clone, gives
    them a first cell that installs the book's packages from there where they are missing.
    """
    import nbformat

    found = store.executions(book.root) if executed else {}
    written = []
    for page in book.chapters:
        if executed and page.name not in found:
            raise Problem(f"chapter {page.name} was not executed yet; run `companion build` first")
        notebook = (
            _executed(found[page.name], solutions) if executed else _plain(page.text, solutions)
        )
        if not solutions:
            notebook.cells = [cell for cell in notebook.cells if not _is_solution(cell)]
        if repository:
            notebook.cells.insert(0, _installing(repository))
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        path = output / f"{page.name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]
        for name in page.data:
            shutil.copyfile(page.path.with_name(name), path.with_name(name))
        written.append(path)
    return written


def _plain(text: str, solutions: bool) -> Any:
    import jupytext

    text = as_cells(text, solutions=solutions)
    return jupytext.reads(text if solutions else without_solutions(text), fmt="md:myst")


def _executed(execution: Execution, solutions: bool) -> Any:
    """Return the executed notebook, in whose words the exercises stand, with cells for them."""
    import nbformat

    notebook = nbformat.read(execution.notebook, as_version=4)  # type: ignore[no-untyped-call]
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and _EXERCISE.search(cell.source):
            cells += _plain(cell.source, solutions).cells
        else:
            cells.append(cell)
    notebook.cells = cells
    return notebook


def _installing(repository: str) -> Any:
    import nbformat

    return nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
        "# Installs the book's packages where they are missing, as on Colab.\n"
        "import importlib.util\n\n"
        'if importlib.util.find_spec("tokensphere") is None:\n'
        f'    %pip install --quiet "git+{repository}"',
        metadata={"tags": ["remove-cell"]},
    )


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
