"""The process that executes one chapter; started by :mod:`companion.execute`, never by hand.

It reads one line of JSON from its standard input, the job, and writes lines of JSON to its
standard output: how far it is, and how it ended. Its standard input stays open for as long as
the parent lives. When that ends, for whatever reason, the kernel is killed and so is this
process: a killed build leaves nothing running.
"""

import json
import os
import platform
import re
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill import execute_notebook
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines
from papermill.exceptions import PapermillExecutionError

from companion import source, store
from companion._outputs import CLAIM, declared, figures_with_claims

_ANSI = re.compile("\x1b\\[[0-9;]*[A-Za-z]")
_PLACE = re.compile(r"Cell In\[(\d+)\], line (\d+)|<ipython-input-(\d+)[^>]*>.*line (\d+)")
INJECTED = "injected-parameters"


class _State:
    """What the signal for the end needs to know: the kernel, and the notebook as it is now."""

    client: Any = None
    notebook: Any = None
    cell = 0


class _Engine(Engine):  # type: ignore[misc]
    """papermill's own engine, but telling how far it is."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
        _State.notebook = nb_man.nb
        started = nb_man.cell_start

        def cell_start(cell: Any, cell_index: int, **kwargs: Any) -> None:
            _State.cell = cell_index
            _tell(cell=cell_index, cells=len(nb_man.nb.cells))
            started(cell, cell_index, **kwargs)

        nb_man.cell_start = cell_start
        _State.client = PapermillNotebookClient(
            nb_man,
            kernel_name=kernel_name,
            timeout=options["execution_timeout"],
            startup_timeout=options["start_timeout"],
            shutdown_kernel="immediate",
        )
        return _State.client.execute()


def main() -> int:
    """Execute the job read from standard input; 0 if the chapter ran to its end."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    papermill_engines.register("companion", _Engine)
    try:
        _execute(job)
    except _Stopped as stopped:
        failed = Path(job["failed"])
        failed.parent.mkdir(parents=True, exist_ok=True)
        _write(_clean(_State.notebook), failed)
        _tell(failed={**stopped.report, "notebook": str(failed)})
        return 1
    _tell(done=True)
    return 0


class _Stopped(Exception):
    def __init__(self, **report: Any) -> None:
        super().__init__(report)
        self.report = report


def _execute(job: dict[str, Any]) -> None:
    output = Path(job["output"])
    (output / "figures").mkdir(parents=True, exist_ok=True)
    notebook = jupytext.reads(job["text"], fmt="md:myst")
    _State.notebook = notebook
    cells = source.code_cells(job["text"])
    started, clock = datetime.now(UTC), time.perf_counter()
    try:
        notebook = execute_notebook(
            notebook,
            None,
            parameters=job["overrides"],
            engine_name="companion",
            cwd=job["cwd"],
            progress_bar=False,
            execution_timeout=job["timeout"],
        )
    except PapermillExecutionError as error:
        # papermill adds remarks to the notebook; without them its index is right again.
        cells_left = [cell for cell in _State.notebook.cells if not _is_remark(cell)]
        _State.notebook.cells = cells_left
        raise _stopped(
            cells, error.cell_index, error.ename, error.evalue, error.traceback
        ) from None
    except CellTimeoutError:
        message = f"the cell ran longer than {job['timeout']:g} s"
        raise _stopped(cells, _State.cell, "Timeout", message) from None
    except DeadKernelError:
        message = "the kernel died (killed, or out of memory?)"
        raise _stopped(cells, _State.cell, "DeadKernel", message) from None
    for index, cell in enumerate(notebook.cells):
        # sys.exit() ends a chapter silently; what comes after it would be missing.
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            raise _stopped(cells, index, "SystemExit", "the chapter stopped before this cell")

    _clean(notebook)
    _write(notebook, output / "notebook.ipynb")
    store.write_json(output / "claims.json", declared(notebook, CLAIM))
    store.write_json(output / "figures.json", figures_with_claims(notebook))
    record = {
        "chapter": job["chapter"],
        "key": job["key"],
        "profile": job["profile"],
        "parameters": job["parameters"],
        "seconds": round(time.perf_counter() - clock, 3),
        "when": started.isoformat(timespec="seconds"),
        "versions": store.versions(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }
    store.write_json(output / "record.json", record)


def _stopped(
    cells: list[source.Cell],
    index: int,
    name: str,
    message: str,
    traceback: list[str] | None = None,
) -> _Stopped:
    """Say where in the source the cell with this index of the executed notebook stopped."""
    code = [c for c in _State.notebook.cells[: index + 1] if c.cell_type == "code"]
    own = [c for c in code if INJECTED not in c.metadata.get("tags", [])]
    line_in_cell = _line_in_cell("\n".join(traceback or []), code[-1].execution_count)
    line = None
    n = len(own)
    if 1 <= n <= len(cells):
        line = cells[n - 1].line + (line_in_cell or 1) - 1
    return _Stopped(cell=n, line=line, line_in_cell=line_in_cell, name=name, message=message)


def _is_remark(cell: Any) -> bool:
    return "papermill-error-cell-tag" in cell.metadata.get("tags", [])


def _line_in_cell(traceback: str, execution: int | None) -> int | None:
    """Return the line that a traceback names in the cell executed as number ``execution``."""
    for match in _PLACE.finditer(_ANSI.sub("", traceback)):
        count, line = match[1] or match[3], match[2] or match[4]
        if execution is None or int(count) == execution:
            return int(line)
    return None


def _clean(notebook: Any) -> Any:
    """Remove what differs from run to run, and hide the cell with the injected parameters."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        for name in ("papermill", "execution"):
            cell.metadata.pop(name, None)
        tags = cell.metadata.get("tags", [])
        if INJECTED in tags and "remove-cell" not in tags:
            cell.metadata["tags"] = [*tags, "remove-cell"]
    return notebook


def _write(notebook: Any, path: Path) -> None:
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]


def _tell(**message: Any) -> None:
    _CHANNEL.write(json.dumps(message) + "\n")
    _CHANNEL.flush()


def _die_with_parent() -> None:
    while sys.stdin.readline():
        pass
    try:
        kernel = _State.client.km.provisioner.pid
        # The kernel leads a process group of its own: this ends its children, too.
        os.killpg(kernel, signal.SIGKILL)
    except (AttributeError, TypeError, OSError):
        pass  # no kernel yet, or none any more
    os._exit(3)


if __name__ == "__main__":
    # Whatever a library prints must not mix with the messages.
    _CHANNEL = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.exit(main())
