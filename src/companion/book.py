"""The book as a whole: its root, its table of contents, its pages, and keys of executions."""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from companion import _session
from companion.errors import Problem
from companion.source import PROFILES, Page, read_page

KEY_LENGTH = 20
_NOT_SOURCE = {"__pycache__", ".ipynb_checkpoints"}


@dataclass(frozen=True)
class Book:
    """A book: ``root`` holds ``_toc.yml``, the pages lie in ``book/``."""

    root: Path
    pages: list[Page]

    @property
    def chapters(self) -> list[Page]:
        """The pages to execute, in the order of the book."""
        return [page for page in self.pages if page.is_chapter]

    @property
    def profiles(self) -> list[str]:
        """The profiles one can ask for."""
        named = [name for page in self.chapters for name in page.profiles]
        return list(dict.fromkeys([*PROFILES, *named]))

    def chapter(self, name: str) -> Page:
        """Find a chapter by its name, a last part of it, or a figure or claim that it makes."""
        name = name.removesuffix(".md").removeprefix("book/")
        found = [c for c in self.chapters if c.name == name]
        found = found or [c for c in self.chapters if c.name.rsplit("/", 1)[-1] == name]
        found = found or [c for c in self.chapters if name in c.declares]
        if len(found) == 1:
            return found[0]
        names = ", ".join(c.name for c in (found or self.chapters)) or "none"
        if found:
            raise Problem(f"{name!r} is more than one chapter; choose from: {names}")
        raise Problem(f"{name!r} is no chapter, figure or claim; the chapters are: {names}")

    def check_profile(self, profile: str) -> None:
        """Raise Problem if no such profile exists."""
        if profile not in self.profiles:
            there = ", ".join(self.profiles)
            raise Problem(f"there is no profile {profile!r}; there are: {there}")

    @cached_property
    def code(self) -> str:
        """A hash of all that a chapter's numbers depend on beside its own text."""
        return code_hash(self.root)

    def key(self, page: Page, overrides: dict[str, Any], others: Iterable[str] = ()) -> str:
        """Return the key of an execution; ``others`` are the keys it reads the results of."""
        content = [page.text, overrides, self.code, sorted(others), page.data]
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

    def keys(self, profile_of: dict[str, str]) -> dict[str, str]:
        """Return the key each chapter has now, for the profile given for it."""
        keys: dict[str, str] = {}
        for page in sorted(self.chapters, key=lambda page: page.after_all):
            others = [keys[c.name] for c in self.chapters if not c.after_all if page.after_all]
            keys[page.name] = self.key(page, page.overrides(profile_of[page.name]), others)
        return keys


def find_root(given: Path | None = None) -> Path:
    """Return the book's root: ``given``, or the next folder upwards with a ``_toc.yml``."""
    if given is not None:
        if not (given / "_toc.yml").is_file():
            raise Problem(f"{given} holds no book (no _toc.yml)")
        return given.resolve()
    root = _session.book_root()
    if root is None:
        raise Problem("there is no book here: no _toc.yml in this folder or above it")
    return root


def open_book(root: Path) -> Book:
    """Read the table of contents and every page; Problem for whatever is wrong in them."""
    names = list(dict.fromkeys(page_names(root)))
    folder = root / "book"
    pages = []
    for name in names:
        path = folder / f"{name}.md"
        if not path.resolve().is_relative_to(folder.resolve()):
            raise Problem(f"_toc.yml names {name!r}, which leaves the book's folder")
        pages.append(read_page(name, path))
    return Book(root, pages)


def page_names(root: Path) -> Iterator[str]:
    """Yield the pages that ``_toc.yml`` names, in order, as paths below ``book/``."""
    path = root / "_toc.yml"
    try:
        toc = yaml.safe_load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Problem(f"{path}: is not UTF-8") from None
    except yaml.YAMLError:
        raise Problem(f"{path}: is not YAML") from None
    if not isinstance(toc, dict) or not isinstance(toc.get("root"), str):
        raise Problem(f"{path}: must name a root page (root: book/index)")
    yield _page_name(toc["root"])
    yield from _files(toc)


def _files(entry: Any) -> Iterator[str]:
    if isinstance(entry, dict):
        if isinstance(entry.get("file"), str):
            yield _page_name(entry["file"])
        for part in ("parts", "chapters", "sections", "subtrees", "entries"):
            for item in entry.get(part) or []:
                yield from _files(item)


def _page_name(file: str) -> str:
    name = file.removesuffix(".md")
    if not name.startswith("book/") or ".." in Path(name).parts:
        raise Problem(f"_toc.yml names {file!r}, which leaves the book's folder book/")
    return name.removeprefix("book/")


def code_hash(root: Path) -> str:
    """Return a hash of the book's packages, what they require, and the version of Python."""
    digest = hashlib.sha256(platform.python_version().encode())
    for path in _code_files(root):
        digest.update(b"\0" + path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _code_files(root: Path) -> list[Path]:
    files = [root / "requirements.txt"] if (root / "requirements.txt").is_file() else []
    source = root / "src"
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(
            p in _NOT_SOURCE or p.startswith(".") or p.endswith(".egg-info") for p in parts
        )
        if path.is_file() and not hidden:
            files.append(path)
    return files
