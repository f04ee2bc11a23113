"""Executing chapters, each in a process of its own, several at a time."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from companion import _session
from companion.source import Page

GRACE = 5.0  # seconds a worker has to end after its lifeline was cut


@dataclass(frozen=True)
class Job:
    """A chapter to execute, and where its results go."""

    page: Page
    key: str
    profile: str
    overrides: dict[str, Any]
    output: Path
    failed: Path
    timeout: float
    scratch: Path
    index: Path | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of all parameters; a default that is not plain, as its text."""
        defaults = {
            name: parameter.value if parameter.known else parameter.text
            for name, parameter in self.page.parameters.items()
        }
        return {**defaults, **self.overrides}


@dataclass(frozen=True)
class Failure:
    """Where and why a chapter stopped."""

    chapter: str
    name: str
    message: str
    cell: int | None = None
    line: int | None = None
    line_in_cell: int | None = None
    notebook: Path | None = None
    source: Path | None = None

    def __str__(self) -> str:
        place = f"chapter {self.chapter}"
        if self.cell:
            place += f", cell {self.cell}"
        if self.line_in_cell:
            place += f", line {self.line_in_cell} of the cell"
        lines = [f"{place}: {self.name}: {self.message}"]
        if self.source and self.line:
            lines.append(f"  source: {self.source}:{self.line}")
        if self.notebook:
            lines.append(f"  executed so far: {self.notebook}")
        return "\n".join(lines)


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[str]
    log: Path
    failure: dict[str, Any] | None = None
    done: bool = False
    started: float = field(default_factory=time.perf_counter)


class Watcher:
    """What happens during execution; the progress display overrides what it shows."""

    def started(self, job: Job) -> None:
        """Note that a chapter begins."""

    def cell(self, job: Job, cell: int, cells: int) -> None:
        """Note that a chapter reached a cell."""

    def tick(self) -> None:
        """Note that a second went by."""

    def ended(self, job: Job, seconds: float, failure: Failure | None) -> None:
        """Note that a chapter ended."""


def run_all(
    jobs: Iterable[Job],
    *,
    at_once: int,
    watcher: Watcher,
    finished: Callable[[Job], None],
    fail_fast: bool = False,
) -> list[Failure]:
    """Execute the jobs, ``at_once`` at a time, and return the failures.

    ``finished(job)`` is called for each that succeeded, with its output folder complete.
    With ``fail_fast`` the first failure stops the others. However this function is left,
    no worker and no kernel is left running.
    """
    waiting = deque(jobs)
    running: dict[int, _Running] = {}
    messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
    failures: list[Failure] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once and not (fail_fast and failures):
                job = waiting.popleft()
                _prepare(job.scratch)
                worker = _start(job)
                running[worker.process.pid] = worker
                threading.Thread(
                    target=_listen, args=(worker.process, messages), daemon=True
                ).start()
                watcher.started(job)
            if not running:
                break
            try:
                pid, message = messages.get(timeout=1.0)
            except queue.Empty:
                watcher.tick()
                continue
            worker = running[pid]
            if message is None:
                del running[pid]
                failure = _outcome(worker)
                watcher.ended(worker.job, time.perf_counter() - worker.started, failure)
                if failure is None:
                    finished(worker.job)
                else:
                    failures.append(failure)
                    if fail_fast:
                        break
            elif "cell" in message:
                watcher.cell(worker.job, message["cell"], message["cells"])
            elif "failed" in message:
                worker.failure = message["failed"]
            elif "done" in message:
                worker.done = True
    finally:
        _stop(running.values())
    return failures


def _matplotlib_folder(scratch: Path) -> str:
    return os.environ.get("MPLCONFIGDIR") or str(scratch / "matplotlib")


def _prepare(scratch: Path) -> None:
    """Let matplotlib list the fonts once, or it says in the first chapter that it does so."""
    folder = Path(_matplotlib_folder(scratch))
    if not list(folder.glob("fontlist-*.json")):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", "import matplotlib.font_manager"],
            env={**os.environ, "MPLCONFIGDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def _start(job: Job) -> _Running:
    job.output.mkdir(parents=True, exist_ok=True)
    job.scratch.mkdir(parents=True, exist_ok=True)
    log = job.output.with_suffix(".log")
    environment = {
        **os.environ,
        _session.OUTPUT: str(job.output),
        _session.PARAMETERS: json.dumps(job.parameters, default=str),
        _session.CHAPTER: job.page.name,
        _session.PROFILE: job.profile,
        # One thread each, so that numbers do not depend on how many chapters run at once.
        **dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
            "1",
        ),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        # A reader's own start-up files and settings must not change the book.
        "IPYTHONDIR": str(job.scratch / "ipython"),
        "MPLCONFIGDIR": _matplotlib_folder(job.scratch),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    environment.pop(_session.INDEX, None)
    if job.index is not None:
        environment[_session.INDEX] = str(job.index)
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "companion._worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal reaches only us
        )
    worker = _Running(job, process, log)
    order = {
        "chapter": job.page.name,
        "text": job.page.text,
        "cwd": str(job.page.path.parent),
        "key": job.key,
        "profile": job.profile,
        "overrides": job.overrides,
        "parameters": job.parameters,
        "timeout": job.timeout,
        "output": str(job.output),
        "failed": str(job.failed),
    }
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(order, default=str) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it died at once; its log says why
    return worker


def _listen(
    process: subprocess.Popen[str], messages: "queue.Queue[tuple[int, dict[str, Any] | None]]"
) -> None:
    stream: IO[str] | None = process.stdout
    assert stream is not None
    with stream:
        for line in stream:
            messages.put((process.pid, json.loads(line)))
    process.wait()
    messages.put((process.pid, None))


def _outcome(worker: _Running) -> Failure | None:
    _close(worker.process)
    page = worker.job.page
    if worker.failure is not None:
        report = dict(worker.failure)
        return Failure(
            page.name, source=page.path, **{**report, "notebook": Path(report["notebook"])}
        )
    if worker.done and worker.process.returncode == 0:
        worker.log.unlink(missing_ok=True)
        return None
    log = worker.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = log[-1] if log else f"exit code {worker.process.returncode}"
    return Failure(page.name, "the process that executes it ended early", last)


def _stop(workers: Iterable[_Running]) -> None:
    """End workers: cutting the lifeline makes each kill its kernel and itself."""
    workers = list(workers)
    for worker in workers:
        _close(worker.process)
    end = time.monotonic() + GRACE
    for worker in workers:
        try:
            worker.process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def _close(process: subprocess.Popen[str]) -> None:
    try:
        if process.stdin is not None:
            process.stdin.close()
    except OSError:
        pass
