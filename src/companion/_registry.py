"""Names declared in one chapter: each once."""

from companion import _session


class Registry:
    """The claim ids, or the figure ids, that this process has declared so far."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._names: set[str] = set()

    def declare(self, name: str) -> None:
        """Note ``name``; a second declaration raises ValueError.

        In an interactive notebook (a kernel outside a build) a cell may be run again, and
        then the later declaration simply replaces the earlier one.
        """
        if name in self._names and (_session.building() or _session.shell() is None):
            raise ValueError(f"{self.what} id {name!r} is declared twice in this chapter")
        self._names.add(name)

    def clear(self) -> None:
        """Forget every name (for tests)."""
        self._names.clear()
