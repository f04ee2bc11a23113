"""Pieces of an ensemble on disk: written whole or not at all, and checked when read.

A piece holds the results of a few replicates at one point of the grid. Its file's name says which,
and ends with a hash of its content: a piece that was cut off, or changed by a failing disk, is
found out and made again.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from companion import store
from companion.errors import Problem

Results = dict[str, np.ndarray]

_NAME = re.compile(r"([0-9a-f]{16})-(\d+)-(\d+)-([0-9a-f]{16})\.npz")


@dataclass
class Pieces:
    """The folder of one ensemble; use it in a ``with`` statement, which locks it."""

    folder: Path
    description: dict[str, object]
    damaged: int = 0
    _found: dict[str, list[tuple[int, int, Path]]] = field(default_factory=dict)

    def __enter__(self) -> "Pieces":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise Problem(f"another run of the ensemble in {self.folder} is going on") from None
        for rubbish in self.folder.glob(".*"):
            rubbish.unlink()  # of a run that was killed while it wrote
        store.write_json(self.folder / "ensemble.json", self.description)
        for path in sorted(self.folder.glob("*.npz")):
            name = _NAME.fullmatch(path.name)
            if name:
                place = self._found.setdefault(name[1], [])
                place.append((int(name[2]), int(name[3]), path))
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def read(self, point: str, replicates: int) -> Iterator[tuple[int, Results]]:
        """Yield (first replicate, results) of the whole pieces of a point, in order."""
        for first, count, path in sorted(self._found.get(point, [])):
            if first + count > replicates:
                continue
            results = _read(path, count)
            if results is None:
                self.damaged += 1
                path.unlink()
            else:
                yield first, results

    def write(self, point: str, first: int, count: int, results: Results) -> None:
        """Store a finished piece."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **results)
        content = buffer.getvalue()
        name = f"{point}-{first}-{count}-{_hash(content)}.npz"
        partial = self.folder / f".{name}.{os.getpid()}"
        try:
            partial.write_bytes(content)
            partial.replace(self.folder / name)
        except OSError:
            partial.unlink(missing_ok=True)  # half a piece on a full disk helps nobody
            raise


def _read(path: Path, count: int) -> Results | None:
    content = path.read_bytes()
    if not path.name.endswith(f"-{_hash(content)}.npz"):
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        results = {name: stored[name] for name in stored.files}
    return results if all(len(r) == count for r in results.values()) else None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
