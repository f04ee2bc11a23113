"""Reading a page's source without running it: header, code cells, parameters, profiles.

A page is MyST Markdown; one with code cells is a chapter. This reader is small on purpose:
listing a book or finding out that nothing changed must not load the notebook libraries.
"""

import ast
import hashlib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from companion.errors import Problem

DEFAULT_TIMEOUT = 3600  # seconds a cell may take
PROFILES = ("paper", "quick", "large")
DATA = (".json", ".csv", ".npz")  # what a page may read that lies beside it

_DECLARED = re.compile(r"""(?:figures\.save|claims\.check)\(\s*(?:\w+,\s*)?["']([a-z0-9-]+)["']""")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*(.*)$")
_OPTION = re.compile(r":([\w-]+):\s*(.*)$")
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class Cell:
    """A code cell: its code, its tags, and the line of the file its code starts at."""

    source: str
    tags: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Parameter:
    """A parameter's default: the text of the cell, and the value where it is plain."""

    text: str
    value: Any = None
    known: bool = False


@dataclass(frozen=True)
class Page:
    """A page of the book; ``name`` is its path below ``book/`` without the ending."""

    name: str
    path: Path
    text: str = field(repr=False)

    @cached_property
    def header(self) -> dict[str, Any]:
        """The YAML header, empty if there is none."""
        return _header(self)

    @cached_property
    def cells(self) -> list[Cell]:
        """The code cells, in order."""
        return code_cells(self.text)

    @cached_property
    def declares(self) -> set[str]:
        """The figures and claims that its code names."""
        return {name for cell in self.cells for name in _DECLARED.findall(cell.source)}

    @property
    def is_chapter(self) -> bool:
        """Whether there is something to execute."""
        return bool(self.cells)

    @property
    def settings(self) -> dict[str, Any]:
        """The ``companion`` part of the header."""
        found = self.header.get("companion")
        return found if isinstance(found, dict) else {}

    @property
    def timeout(self) -> float:
        """How many seconds one cell may take."""
        return float(self.settings.get("timeout", DEFAULT_TIMEOUT))

    @property
    def data(self) -> dict[str, str]:
        """The data files that share the page's name (``page.json``), with their hashes."""
        beside = (self.path.with_suffix(kind) for kind in DATA)
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in beside
            if path.is_file()
        }

    @property
    def after_all(self) -> bool:
        """Whether the page reads the results of the other chapters."""
        return "after" in self.settings

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of the cell tagged ``parameters`` with their defaults."""
        return _parameters(self)

    @property
    def profiles(self) -> dict[str, dict[str, Any]]:
        """What each profile changes."""
        found: dict[str, dict[str, Any]] = self.settings.get("profiles", {})
        return found

    def overrides(self, profile: str) -> dict[str, Any]:
        """Return the values a profile gives to parameters."""
        return self.checked(self.profiles.get(profile) or {})

    def checked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values for parameters, numbers made numbers; Problem for a name or kind wrong."""
        return {name: self._checked(name, value) for name, value in values.items()}

    def _checked(self, name: str, value: Any) -> Any:
        if name not in self.parameters:
            there = ", ".join(self.parameters) or "none"
            raise Problem(f"chapter {self.name} has no parameter {name!r}; it has: {there}")
        default = self.parameters[name]
        is_number = isinstance(default.value, int | float) and not isinstance(default.value, bool)
        if default.known and is_number:
            value = _as_number(value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Problem(
                    f"parameter {name!r} of chapter {self.name} is a number "
                    f"(default {default.text}), not {value!r}"
                )
        return value

    def check(self) -> None:
        """Raise Problem if the header or the cells make no sense."""
        known = {"profiles", "timeout", "after"}
        settings = self.header.get("companion", {})
        if not isinstance(settings, dict) or set(settings) - known:
            raise Problem(f"{self.path}: the header's companion part may have {sorted(known)}")
        if not self.is_chapter:
            return
        if "kernelspec" not in self.header:
            raise Problem(f"{self.path}: has code cells but no kernelspec in its header")
        if settings.get("after", "all") != "all":
            raise Problem(f"{self.path}: 'after' can only be 'all'")
        timeout = settings.get("timeout", DEFAULT_TIMEOUT)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
            raise Problem(f"{self.path}: timeout must be a number of seconds above 0")
        profiles = settings.get("profiles", {})
        if not isinstance(profiles, dict) or not all(
            isinstance(v, dict) and all(isinstance(k, str) for k in v) for v in profiles.values()
        ):
            raise Problem(f"{self.path}: profiles must map a profile to parameters and values")
        if "paper" in profiles:
            raise Problem(f"{self.path}: the profile 'paper' is the parameters cell itself")
        tagged = sum("parameters" in cell.tags for cell in self.cells)
        if tagged > 1:
            raise Problem(f"{self.path}: has {tagged} cells tagged 'parameters', not one")
        if tagged == 0 and any(profiles.values()):
            raise Problem(f"{self.path}: has profiles but no cell tagged 'parameters'")
        for profile in profiles:
            self.overrides(profile)


def read_page(name: str, path: Path) -> Page:
    """Read and check a page; Problem if it is missing, not UTF-8, or makes no sense."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Problem(f"_toc.yml names {name!r}, but there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise Problem(f"{path}: is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from None
    page = Page(name, path, text)
    page.check()
    return page


def value_from_text(text: str) -> Any:
    """Read a value as typed on the command line: YAML, with 1e-8 a number.

    >>> value_from_text("1e-8"), value_from_text("[1, 2]"), value_from_text("softmax")
    (1e-08, [1, 2], 'softmax')
    """
    try:
        return _as_number(yaml.safe_load(text))
    except yaml.YAMLError:
        return text


def code_cells(text: str) -> list[Cell]:
    """Find the code cells of a MyST page."""
    lines = text.splitlines()
    cells = []
    i = 0
    while i < len(lines):
        opening = _FENCE.match(lines[i])
        if not opening:
            i += 1
            continue
        fence = opening[1]
        closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*$")
        end = next((j for j in range(i + 1, len(lines)) if closing.match(lines[j])), len(lines))
        if opening[2].startswith("{code-cell}"):
            options, first = _options(lines, i + 1, end)
            tags = options.get("tags") or []
            tags = tags if isinstance(tags, list) else [tags]
            source = "\n".join(lines[first:end])
            cells.append(Cell(source, tuple(map(str, tags)), first + 1))
        i = end + 1
    return cells


def _options(lines: list[str], start: int, end: int) -> tuple[dict[str, Any], int]:
    """Return the options of a cell and the index of the first line of its code."""
    if start < end and lines[start].strip() == "---":
        stop = next((j for j in range(start + 1, end) if lines[j].strip() == "---"), start)
        block, first = "\n".join(lines[start + 1 : stop]), stop + 1
    else:
        first = start
        while first < end and _OPTION.match(lines[first]):
            first += 1
        block = "\n".join(line.lstrip(":") for line in lines[start:first])
    try:
        found = yaml.safe_load(block)
    except yaml.YAMLError:
        found = None
    while first < end and not lines[first].strip():
        first += 1  # the notebook reader drops blank lines at the top of a cell, too
    return (found if isinstance(found, dict) else {}), first


def _header(page: Page) -> dict[str, Any]:
    lines = page.text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}
    end = next((j for j in range(1, len(lines)) if lines[j].rstrip() in ("---", "...")), None)
    if end is None:
        raise Problem(f"{page.path}: the header that starts with --- does not end")
    try:
        found = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 2}" if mark is not None else ""
        raise Problem(f"{page.path}{line}: the header is not YAML") from None
    if not isinstance(found or {}, dict):
        raise Problem(f"{page.path}: the header must be YAML keys and values")
    return found or {}


def _parameters(page: Page) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for cell in page.cells:
        if "parameters" not in cell.tags:
            continue
        try:
            tree = ast.parse(cell.source)
        except SyntaxError as error:
            line = cell.line + (error.lineno or 1) - 1
            raise Problem(f"{page.path}, line {line}: the parameters cell: {error.msg}") from None
        for statement in tree.body:
            target: ast.expr | None = None
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
            elif isinstance(statement, ast.AnnAssign):
                target = statement.target
            value = getattr(statement, "value", None)
            if isinstance(target, ast.Name) and value is not None:
                text = ast.get_source_segment(cell.source, value) or ""
                try:
                    found[target.id] = Parameter(text, _literal(value), known=True)
                except ValueError:
                    found[target.id] = Parameter(text)
    return found


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal or of arithmetic on numbers; ValueError otherwise."""
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_number(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _number(node.left), _number(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > 64 or abs(left) > 1e6):
            raise ValueError("too large")
        try:
            return _OPERATORS[type(node.op)](left, right)
        except ArithmeticError as error:
            raise ValueError(str(error)) from None
    if isinstance(node, ast.List | ast.Tuple):
        values = [_literal(item) for item in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    return ast.literal_eval(node)


def _number(node: ast.expr) -> Any:
    value = _literal(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value


def _as_number(value: Any) -> Any:
    """Return a text like ``1e-8``, which YAML takes for a word, as the number it is."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    if isinstance(value, list):
        return [_as_number(item) for item in value]
    return value
