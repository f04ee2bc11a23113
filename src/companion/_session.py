"""What a chapter's kernel knows about the build it runs in: a few environment variables.

Outside a build (JupyterLab, ``jupyter-book build .``, a test) none is set, and everything
falls back to what can be seen from the working folder.
"""

import json
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

OUTPUT = "COMPANION_OUTPUT"  # folder for what the chapter stores
INDEX = "COMPANION_INDEX"  # which executions of the other chapters belong to this build
PARAMETERS = "COMPANION_PARAMETERS"  # the chapter's parameters, as JSON
CHAPTER = "COMPANION_CHAPTER"
PROFILE = "COMPANION_PROFILE"  # with which this chapter is executed
WORKERS = "COMPANION_WORKERS"  # processes of an ensemble on this machine
SCHEDULER = "COMPANION_SCHEDULER"  # address of a Dask scheduler, for every ensemble


def building() -> bool:
    """Whether this process executes a chapter for ``companion build`` or ``run``."""
    return OUTPUT in os.environ


def book_root(start: Path | None = None) -> Path | None:
    """Return the folder with ``_toc.yml`` at or above ``start`` (default: the working folder)."""
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / "_toc.yml").is_file():
            return candidate
    return None


def compute_on(workers: int | None, scheduler: str | None) -> None:
    """Let the ensembles of this process and its children compute there."""
    for name, value in ((WORKERS, workers), (SCHEDULER, scheduler)):
        if value is not None:
            os.environ[name] = str(value)


def parameters() -> dict[str, Any]:
    """Return the parameters this chapter is executed with; empty outside a build."""
    found = json.loads(os.environ.get(PARAMETERS, "{}"))
    return found if isinstance(found, dict) else {}


def shell() -> Any:
    """Return the running IPython shell, or None; IPython is never imported just to ask."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def display(bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
    """Show a mime bundle in the notebook; without a notebook do nothing."""
    if shell() is not None:
        from IPython.display import display as show

        show(bundle, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]


class Shown(ABC):
    """Something displayed as it is made, which must not appear again as a cell's last value.

    ``claims.check(...)`` shows its box at once, so that a loop of checks shows them all.
    As the last expression of a cell the returned object would be shown a second time:
    within the cell that made it, it therefore displays as nothing.
    """

    def __init__(self) -> None:
        self._cell = _cell_number()

    @abstractmethod
    def _bundle(self) -> dict[str, Any]:
        """What is shown: media type → content."""

    def _metadata(self) -> dict[str, Any]:
        """Say what the HTML is, for :mod:`companion.sphinx_ext`."""
        return {"companion": {"kind": "html"}}

    def _show(self) -> None:
        display(self._bundle(), self._metadata())

    def _ipython_display_(self) -> None:
        if _cell_number() != self._cell:
            self._show()

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._bundle(), self._metadata()


def _cell_number() -> int | None:
    running = shell()
    return None if running is None else int(running.execution_count)
