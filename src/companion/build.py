"""Building the book: execute what changed, then the site if anything changed.

What exists is complete: chapters and the site are made in ``_build/tmp`` and renamed into
place. A build that was stopped in whatever way leaves at most rubbish there, which the next
one removes.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from companion import store
from companion.book import Book, open_book
from companion.errors import Failed, Problem
from companion.execute import Failure, Job, run_all
from companion.progress import progress
from companion.site import build_site
from companion.store import Execution

STOPPED = "another build of this book is running; wait for it or stop it"


class ChaptersFailed(Failed):
    """Chapters that did not run to their end; the site was not built."""

    def __init__(self, failures: list[Failure], left: int) -> None:
        self.failures = failures
        self.left = left
        super().__init__(str(self))

    def __str__(self) -> str:
        n = len(self.failures)
        lines = [str(failure) for failure in self.failures]
        lines.append(f"{n} chapter{'s' * (n > 1)} failed; the site was not built")
        if self.left:
            lines[-1] += f" ({self.left} not executed)"
        return "\n".join(lines)


def build(
    root: Path,
    *,
    profile: str = "paper",
    jobs: int | None = None,
    force: bool = False,
    fail_fast: bool = False,
    timeout: float | None = None,
) -> Path:
    """Bring the book up to date and return the page to look at.

    Raises Problem for what the user can mend, ChaptersFailed if a chapter fails.
    """
    book = open_book(root)
    book.check_profile(profile)
    with _only_build(root):
        executions = _execute_changed(
            book, profile, jobs or os.cpu_count() or 1, force, fail_fast, timeout
        )
        page = build_site(book, executions, fresh=force)
        for execution in executions:
            store.prune(root, execution.chapter, [execution.key])
    return page


@contextmanager
def _only_build(root: Path) -> Iterator[None]:
    folder = store.build_folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "build.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise Problem(STOPPED) from None
    try:
        _clear(root)
        yield
        _clear(root)
    finally:
        lock.release()


def _scratch(root: Path) -> Path:
    return store.build_folder(root) / "tmp"


def _clear(root: Path) -> None:
    shutil.rmtree(_scratch(root), ignore_errors=True)


def _execute_changed(
    book: Book, profile: str, at_once: int, force: bool, fail_fast: bool, timeout: float | None
) -> list[Execution]:
    """Execute the chapters that changed; return one execution per chapter, in book order."""
    root = book.root
    keys = book.keys(dict.fromkeys((c.name for c in book.chapters), profile))
    done: dict[str, Execution] = {}
    view = progress(len(book.chapters))
    index = _scratch(root) / "book.json"

    def job(name: str) -> Job:
        page = book.chapter(name)
        return Job(
            page=page,
            key=keys[name],
            profile=profile,
            overrides=page.overrides(profile),
            output=_scratch(root) / "chapters" / keys[name],
            failed=store.build_folder(root) / "failed" / f"{name}.ipynb",
            timeout=timeout or page.timeout,
            scratch=store.build_folder(root) / "cache",
            index=index,
        )

    def finished(job: Job) -> None:
        execution = Execution(job.page.name, job.key, profile, job.output)
        done[job.page.name] = store.keep(root, execution, job.output)
        job.failed.unlink(missing_ok=True)

    try:
        for after_all in (False, True):
            names = [c.name for c in book.chapters if c.after_all is after_all]
            changed = []
            for name in names:
                stored = None if force else store.lookup(root, name, keys[name], profile)
                if stored is None:
                    changed.append(name)
                else:
                    done[name] = stored
                    view.unchanged(name)
            store.write_index(index, _in_order(book, done))
            # A chapter with much to say has much to compute: it begins first, so that no core
            # waits for it at the end.
            changed.sort(key=lambda name: len(book.chapter(name).text), reverse=True)
            failures = run_all(
                map(job, changed),
                at_once=at_once,
                watcher=view,
                finished=finished,
                fail_fast=fail_fast,
            )
            # Also after a failure: what did run can be looked at.
            store.write_index(store.build_folder(root) / "book.json", _in_order(book, done))
            if failures:
                left = len(book.chapters) - len(done) - len(failures)
                raise ChaptersFailed(failures, left)
            _check_unique(_in_order(book, done))
    finally:
        view.close()
    return _in_order(book, done)


def _in_order(book: Book, done: dict[str, Execution]) -> list[Execution]:
    return [done[c.name] for c in book.chapters if c.name in done]


def _check_unique(executions: Iterable[Execution]) -> None:
    """Raise Problem if two chapters declare the same claim or figure."""
    seen: dict[tuple[str, str], str] = {}
    for execution in executions:
        declared = [("claim", c["id"]) for c in execution.claims()]
        declared += [("figure", f["id"]) for f in execution.figures()]
        for what, id in declared:
            other = seen.setdefault((what, id), execution.chapter)
            if other != execution.chapter:
                raise Problem(
                    f"the {what} id {id!r} is declared by both {other} and {execution.chapter}"
                )
