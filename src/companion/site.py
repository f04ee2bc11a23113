"""The site: executed notebooks are staged, and Jupyter Book builds from there.

The site is made aside and swapped in when it is whole; when nothing it is made from has
changed it is not made again. It is always made from scratch: Sphinx repeats neither the
warnings of pages it does not read again, nor writes new titles into old pages.
"""

import hashlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from companion import store
from companion.book import Book, open_book
from companion.errors import Failed, Problem
from companion.store import Execution

FIGURES = "_figures"  # in the stage; see companion.sphinx_ext
# In the text [words](page.md#place), or further down [name]: page.md
_LINK = re.compile(r"(\]\(<?|^\[[^\]]+\]:\s*<?)([^\s()<>#:]+)\.md(?=[#)>\s]|$)", re.MULTILINE)
SHOWN = 12  # warnings printed
REPOSITORY = "COMPANION_REPOSITORY"  # address of the repository on the web, where it is known
NOTEBOOKS_BRANCH = "notebooks"  # where the workflow pushes the executed notebooks
_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


class SiteFailed(Failed):
    """Jupyter Book gave warnings or stopped; the message has them."""


def build_site(book: Book, executions: list[Execution], *, fresh: bool) -> Path:
    """Build the site if anything changed, and return its first page."""
    folder = store.build_folder(book.root)
    page, stamp = folder / "html" / "index.html", folder / "site.json"
    key = _site_key(book, executions)
    if not fresh and page.is_file() and _read_stamp(stamp) == key:
        print("site … unchanged", flush=True)
        return page

    started = time.perf_counter()
    scratch = folder / "tmp" / "site"
    shutil.rmtree(scratch, ignore_errors=True)
    stage(book, executions, folder / "stage")
    _run_jupyter_book(folder / "stage", scratch, folder / "site.log")
    made = scratch / "_build" / "html"

    # From here on the stamp tells the truth whenever we are stopped.
    stamp.unlink(missing_ok=True)
    old = folder / "tmp" / "old"
    shutil.rmtree(old, ignore_errors=True)
    if (folder / "html").exists():
        (folder / "html").rename(old)
    made.rename(folder / "html")
    store.write_json(stamp, {"key": key})
    shutil.rmtree(old, ignore_errors=True)
    print(f"site … {time.perf_counter() - started:.1f} s", flush=True)
    return page


def stage(book: Book, executions: list[Execution], place: Path) -> None:
    """Write what Jupyter Book reads: settings, executed notebooks, plain pages, other files."""
    shutil.rmtree(place, ignore_errors=True)
    source = book.root / "book"
    chapters = {page.name for page in book.chapters}
    for path in _other_files(source):
        target = place / "book" / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for page in book.pages:
        if not page.is_chapter:
            target = place / "book" / f"{page.name}.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            text = _relinked(page.text, page.name, chapters)
            target.write_text(text, encoding="utf-8")
    (place / FIGURES).mkdir(parents=True)
    for execution in executions:
        target = place / "book" / f"{execution.chapter}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        notebook = store.read_json(execution.notebook)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                text = "".join(cell["source"])
                cell["source"] = _relinked(text, execution.chapter, chapters)
        target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for path in sorted((execution.folder / "figures").iterdir()):
            if path.suffix != ".png":
                shutil.copyfile(path, place / FIGURES / path.name)
    shutil.copyfile(book.root / "_toc.yml", place / "_toc.yml")
    text = yaml.safe_dump(_staged_config(_config(book.root)), allow_unicode=True, sort_keys=False)
    (place / "_config.yml").write_text(text, encoding="utf-8")


def _relinked(text: str, page: str, chapters: set[str]) -> str:
    """Turn links to a chapter's .md into links to the .ipynb that stands in its place here."""

    def relink(match: re.Match[str]) -> str:
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(match[2])))
        return f"{match[1]}{match[2]}.ipynb" if linked in chapters else match[0]

    return _LINK.sub(relink, text)


def _config(root: Path) -> dict[str, Any]:
    path = root / "_config.yml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Problem(f"there is no {path}") from None
    except UnicodeDecodeError:
        raise Problem(f"{path}: is not UTF-8") from None
    except yaml.YAMLError:
        raise Problem(f"{path}: is not YAML") from None
    if not isinstance(config, dict):
        raise Problem(f"{path}: must be YAML keys and values")
    return config


def _buttons() -> dict[str, Any]:
    """Return the settings of buttons to Binder and Colab, if the repository's address is known.

    The workflow that publishes the site knows it, and pushes the executed notebooks to a branch.
    """
    address = os.environ.get(REPOSITORY)
    if not address:
        return {}
    return {
        "repository": {"url": address, "branch": NOTEBOOKS_BRANCH},
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
            "thebe": False,
        },
    }


def _staged_config(config: dict[str, Any]) -> dict[str, Any]:
    sphinx = config.get("sphinx") or {}
    settings = {**(sphinx.get("config") or {}), "companion_figures": FIGURES}
    return {
        **config,
        **_buttons(),
        "execute": {**(config.get("execute") or {}), "execute_notebooks": "off"},
        "sphinx": {**sphinx, "config": settings},
    }


def _other_files(source: Path) -> list[Path]:
    return [
        path
        for path in sorted(source.rglob("*"))
        if path.is_file()
        and path.suffix not in (".md", ".ipynb")
        and not any(part.startswith(".") for part in path.relative_to(source).parts)
        and "__pycache__" not in path.parts
    ]


def _site_key(book: Book, executions: list[Execution]) -> str:
    """Return a hash of everything the site is made from."""
    digest = hashlib.sha256(book.code.encode())
    digest.update(json.dumps(_buttons()).encode())
    root = book.root
    files = [root / "_config.yml", root / "_toc.yml", *_other_files(root / "book")]
    files += [page.path for page in book.pages if not page.is_chapter]
    files += [execution.notebook for execution in executions]
    names = [page.name for page in book.pages]
    digest.update(json.dumps([names, [str(f) for f in files]]).encode())
    for path in files:
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _read_stamp(path: Path) -> str | None:
    try:
        return str(store.read_json(path)["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _run_jupyter_book(stage_folder: Path, output: Path, log: Path) -> None:
    """Run Jupyter Book with every warning an error; SiteFailed with the warnings."""
    command = [sys.executable, "-c", _JUPYTER_BOOK, "build", str(stage_folder)]
    command += ["--path-output", str(output), "-W", "-n", "--keep-going", "--all"]
    environment = {**os.environ, "PYTHONUTF8": "1", "NO_COLOR": "1", "MPLBACKEND": "agg"}
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    text = log.read_text(encoding="utf-8", errors="replace")
    found = [line for line in text.splitlines() if "WARNING:" in line or "ERROR:" in line]
    if code or found:
        if any("No space left on device" in line for line in text.splitlines()):
            raise Problem("the disk is full")
        shown = found[:SHOWN] or text.strip().splitlines()[-SHOWN:]
        shown = [line.replace(str(stage_folder) + os.sep, "") for line in shown]
        more = f"\n  … and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise SiteFailed(
            "the site was not built:\n  " + "\n  ".join(shown) + more + f"\n  everything: {log}"
        )


def is_current(root: Path) -> bool:
    """Whether the built site is what a build would make now, in whatever profile."""
    book = open_book(root)
    found = store.executions(root)
    profile_of = {name: execution.profile for name, execution in found.items()}
    if [c.name for c in book.chapters] != list(found):
        return False
    if book.keys(profile_of) != {name: execution.key for name, execution in found.items()}:
        return False
    folder = store.build_folder(root)
    stamp = _read_stamp(folder / "site.json")
    return (folder / "html" / "index.html").is_file() and stamp == _site_key(
        book, list(found.values())
    )
