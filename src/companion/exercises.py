"""Exercises of a chapter: a question, code to start from, a check of one's own, a solution.

In a chapter they are written so, at the end (the fences get longer from the inside out)::

    ````{exercise} A title
    :label: ex-circle-waves

    The question.

    ```{code-block} python
    :class: starter

    import numpy as np
    answer = ...  # replace the dots
    ```

    ```{code-block} python
    :class: check

    assert answer == 3, "count the waves, not their zeros"
    ```
    ````

    ````{solution} ex-circle-waves
    :class: dropdown

    Why it is so.

    ```{code-block} python
    :class: solution

    answer = 3
    ```
    ````

The check runs after the starter and fails with a message that helps; it passes after the starter
and the solution. The book does not execute them; the tests do, and ``companion notebooks``
makes cells of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPENING = re.compile(r"(`{3,}|:{3,})\s*\{(exercise|solution|code-block)\}\s*(.*?)\s*$")
_OPTION = re.compile(r":([\w-]+):\s*(.*?)\s*$")


@dataclass(frozen=True)
class Exercise:
    """One exercise; ``solution`` is the code of its solution."""

    label: str
    title: str
    starter: str
    check: str
    solution: str


@dataclass(frozen=True)
class _Block:
    """A fenced block: lines ``start`` to ``end`` (not included) of the text."""

    kind: str
    argument: str
    options: dict[str, str]
    body: list[str]
    start: int
    end: int

    def code(self, role: str) -> str:
        found = [b for b in _blocks(self.body) if b.options.get("class") == role]
        return "\n\n".join("\n".join(block.body).strip() for block in found)

    def words(self) -> str:
        """The text without the code that becomes cells."""
        lines = list(self.body)
        for block in reversed(list(_blocks(self.body))):
            if block.options.get("class") in ("starter", "check", "solution"):
                del lines[block.start : block.end]
        return "\n".join(lines).strip()


def exercises(text: str) -> list[Exercise]:
    """Return the exercises of a page, in order."""
    blocks = list(_blocks(text.splitlines()))
    solutions = {b.argument: b.code("solution") for b in blocks if b.kind == "solution"}
    return [
        Exercise(
            label=block.options.get("label", ""),
            title=block.argument,
            starter=block.code("starter"),
            check=block.code("check"),
            solution=solutions.get(block.options.get("label", ""), ""),
        )
        for block in blocks
        if block.kind == "exercise"
    ]


def as_cells(text: str, *, solutions: bool) -> str:
    """Return a page's source with cells for the code of exercises, and maybe solutions."""
    lines = text.splitlines()
    for block in reversed(list(_blocks(lines))):
        if block.kind == "exercise":
            cells = [block.code("starter"), block.code("check")]
            head = f"### Exercise: {block.argument}"
        elif block.kind == "solution" and solutions:
            cells, head = [block.code("solution")], "**Solution.**"
        elif block.kind == "solution":
            cells, head = [], ""
        else:
            continue
        parts = [head, block.words()] if head else []
        parts += [f"```{{code-cell}} ipython3\n{cell}\n```" for cell in cells if cell]
        lines[block.start : block.end] = ["\n\n".join(parts)]
    return "\n".join(lines) + "\n"


def _blocks(lines: list[str]) -> Iterator[_Block]:
    """Yield the outermost blocks of the three kinds."""
    i = 0
    while i < len(lines):
        opening = _OPENING.match(lines[i])
        if opening is None:
            i += 1
            continue
        closing = re.compile(rf"{re.escape(opening[1][0])}{{{len(opening[1])},}}\s*$")
        end = next((j for j in range(i + 1, len(lines)) if closing.match(lines[j])), len(lines))
        body, options = lines[i + 1 : end], {}
        while body and (option := _OPTION.match(body[0])):
            options[option[1]] = option[2]
            body = body[1:]
        yield _Block(opening[2], opening[3], options, body, i, end + 1)
        i = end + 1
