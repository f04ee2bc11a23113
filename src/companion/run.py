"""One chapter with the reader's own parameters; the book's own results stay as they are."""

import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from companion import store
from companion.book import open_book
from companion.build import ChaptersFailed
from companion.execute import Job, run_all
from companion.progress import progress


def run(
    root: Path,
    chapter: str,
    *,
    profile: str,
    values: dict[str, Any],
    output: Path | None,
    timeout: float | None,
) -> tuple[Path, list[dict[str, Any]]]:
    """Execute a chapter with these parameters; return its folder of results and its claims."""
    book = open_book(root)
    book.check_profile(profile)
    page = book.chapter(chapter)
    overrides = {**page.overrides(profile), **page.checked(values)}
    folder = store.build_folder(root) / "runs" / page.name
    place = output or folder / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    place.mkdir(parents=True, exist_ok=True)
    title = page.name.rsplit("/", 1)[-1]
    with tempfile.TemporaryDirectory(dir=place, prefix=".unfinished-") as aside:
        job = Job(
            page=page,
            key="",
            profile=profile,
            overrides=overrides,
            output=Path(aside) / "chapter",
            failed=place / f"{title}-failed.ipynb",
            timeout=timeout or page.timeout,
            scratch=store.build_folder(root) / "cache",
        )
        view = progress(1)
        try:
            failures = run_all([job], at_once=1, watcher=view, finished=lambda _: None)
        finally:
            view.close()
        if failures:
            raise ChaptersFailed(failures, 0)
        (job.output / "notebook.ipynb").replace(place / f"{title}.ipynb")
        for name in ("claims.json", "figures.json", "record.json"):
            (job.output / name).replace(place / name)
        shutil.copytree(job.output / "figures", place / "figures", dirs_exist_ok=True)
    claims: list[dict[str, Any]] = store.read_json(place / "claims.json")
    return place, claims
