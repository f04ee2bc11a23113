"""Where executed chapters are kept.

``_build/executed/<chapter>/<key>/`` holds one execution: ``notebook.ipynb``, ``record.json``,
``claims.json`` and ``figures/``. It is put together elsewhere and renamed into place, so a
folder that exists is whole. ``_build/book.json``, the index, says which execution of each
chapter belongs to the last build.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from companion import _session

KEPT = 4  # executions kept per chapter: two profiles, before and after an edit
PACKAGES = ("numpy", "scipy", "finufft", "matplotlib", "ipykernel", "papermill", "jupytext")


@dataclass(frozen=True)
class Execution:
    """One execution of a chapter, read from its folder."""

    chapter: str
    key: str
    profile: str
    folder: Path

    @property
    def notebook(self) -> Path:
        """The executed notebook."""
        return self.folder / "notebook.ipynb"

    def record(self) -> dict[str, Any]:
        """Return when, how long, with what it was executed."""
        record: dict[str, Any] = read_json(self.folder / "record.json")
        return record

    def claims(self) -> list[dict[str, Any]]:
        """Return the claims of the chapter, in the order of the text."""
        found: list[dict[str, Any]] = read_json(self.folder / "claims.json")
        return [{**claim, "chapter": self.chapter, "profile": self.profile} for claim in found]

    def figures(self) -> list[dict[str, Any]]:
        """Return the figures of the chapter, in the order of the text."""
        found: list[dict[str, Any]] = read_json(self.folder / "figures.json")
        return [{**figure, "chapter": self.chapter, "profile": self.profile} for figure in found]


def build_folder(root: Path) -> Path:
    """Return the folder for everything that is made, ``_build``."""
    return root / "_build"


def executed_folder(root: Path, chapter: str) -> Path:
    """Return the folder of all executions of a chapter."""
    return build_folder(root) / "executed" / chapter


def lookup(root: Path, chapter: str, key: str, profile: str) -> Execution | None:
    """Return the stored execution with this key, or None."""
    execution = Execution(chapter, key, profile, executed_folder(root, chapter) / key)
    needed = ("notebook.ipynb", "record.json", "claims.json", "figures.json")
    if all((execution.folder / name).is_file() for name in needed):
        return execution
    return None


def keep(root: Path, execution: Execution, made: Path) -> Execution:
    """Move the finished folder ``made`` to its place, replacing an older one with the same key."""
    place = executed_folder(root, execution.chapter) / execution.key
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        shutil.rmtree(place)
    made.rename(place)
    return Execution(execution.chapter, execution.key, execution.profile, place)


def prune(root: Path, chapter: str, keys: Iterable[str]) -> None:
    """Remove old executions of a chapter, but never those with one of ``keys``."""
    folder = executed_folder(root, chapter)
    found = [f.parent for f in folder.glob("*/record.json")]
    found.sort(key=lambda f: (f / "record.json").stat().st_mtime, reverse=True)
    for old in found[KEPT:]:
        if old.name not in set(keys):
            shutil.rmtree(old, ignore_errors=True)


def index_path(root: Path) -> Path:
    """Return the index: the one of the build in progress if this process belongs to one."""
    given = os.environ.get(_session.INDEX)
    return Path(given) if given else build_folder(root) / "book.json"


def executions(root: Path) -> dict[str, Execution]:
    """Return the execution of each chapter in the last build, in the order of the book.

    Empty when nothing was built yet. What the index names but the disk no longer has is left out.
    """
    try:
        entries = read_json(index_path(root))["chapters"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found = {}
    for chapter, entry in entries.items():
        execution = lookup(root, chapter, entry["key"], entry["profile"])
        if execution is not None:
            found[chapter] = execution
    return found


def write_index(path: Path, chapters: Iterable[Execution]) -> None:
    """Write an index file, whole or not at all."""
    entries = {e.chapter: {"key": e.key, "profile": e.profile} for e in chapters}
    write_json(path, {"chapters": entries})


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers may depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
