"""What a person sees while chapters are executed: a line each, with bars on a terminal."""

import sys
from typing import IO, Any

from companion.execute import Failure, Job, Watcher


class Lines(Watcher):
    """Plain lines, for a log or a pipe."""

    def __init__(self, total: int, stream: IO[str] | None = None) -> None:
        self.total = total
        self.stream = stream or sys.stdout
        self._numbers: dict[str, int] = {}

    def say(self, text: str) -> None:
        """Print a line at once, even into a pipe."""
        print(text, file=self.stream, flush=True)

    def unchanged(self, chapter: str) -> None:
        """Note a chapter that need not be executed."""
        self.say(f"{self._place(chapter)} … unchanged")

    def started(self, job: Job) -> None:
        """Say that a chapter begins."""
        self.say(f"{self._place(job.page.name)} …")

    def ended(self, job: Job, seconds: float, failure: Failure | None) -> None:
        """Say how a chapter ended."""
        end = f"{seconds:.1f} s" if failure is None else f"FAILED after {seconds:.1f} s"
        self.say(f"{self._place(job.page.name)} … {end}")

    def close(self) -> None:
        """Leave the terminal tidy."""

    def _place(self, chapter: str) -> str:
        number = self._numbers.setdefault(chapter, len(self._numbers) + 1)
        return f"[{number}/{self.total}] {chapter}"


class Bars(Lines):
    """A bar per running chapter that counts its cells."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._bars: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        from tqdm import tqdm

        tqdm.write(text, file=self.stream)

    def started(self, job: Job) -> None:
        """Open a bar; its length is known at the first cell."""
        from tqdm import tqdm

        self._bars[job.page.name] = tqdm(
            desc=self._place(job.page.name),
            unit="cell",
            total=0,
            dynamic_ncols=True,
            leave=False,
            file=self.stream,
            bar_format="{desc} … starting {elapsed}",
        )

    def cell(self, job: Job, cell: int, cells: int) -> None:
        """Move the bar."""
        bar = self._bars.get(job.page.name)
        if bar is not None:
            bar.bar_format = "{desc} |{bar:20}| cell {n_fmt}/{total_fmt} {elapsed}"
            bar.total = cells
            bar.n = cell + 1
            bar.refresh()

    def tick(self) -> None:
        """Let the clocks run."""
        for bar in self._bars.values():
            bar.refresh()

    def ended(self, job: Job, seconds: float, failure: Failure | None) -> None:
        """Close the bar and leave a line."""
        bar = self._bars.pop(job.page.name, None)
        if bar is not None:
            bar.close()
        super().ended(job, seconds, failure)

    def close(self) -> None:
        """Remove bars that are still there."""
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()


def progress(total: int) -> Lines:
    """Return bars on a terminal, lines elsewhere."""
    return Bars(total) if sys.stdout.isatty() else Lines(total)
