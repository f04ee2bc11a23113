"""Exercises: how they are read, and that each one of the book works as it should."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from companion.book import open_book
from companion.exercises import Exercise, as_cells, exercises

BOOK = open_book(Path(__file__).parents[2])
TAUGHT = [
    page
    for page in BOOK.chapters
    if not page.name.startswith(("back/", "playground")) and not page.after_all
]
ALL = [(page.name, e) for page in TAUGHT for e in exercises(page.text)]

TEXT = """# Chapter

Text.

````{exercise} Waves
:label: ex-waves

How many?

```{code-block} python
:class: starter

answer = ...
```

```python
print("only shown")
```

```{code-block} python
:class: check

assert answer == 3, "count again"
```
````

````{solution} ex-waves
:class: dropdown

Three.

```{code-block} python
:class: solution

answer = 3
```
````

The end.
"""


def test_reading() -> None:
    assert exercises(TEXT) == [
        Exercise(
            "ex-waves", "Waves", "answer = ...", 'assert answer == 3, "count again"', "answer = 3"
        )
    ]


def test_cells_for_a_class() -> None:
    student, teacher = (as_cells(TEXT, solutions=s) for s in (False, True))
    for text in (student, teacher):
        assert "### Exercise: Waves" in text
        assert "```{code-cell} ipython3\nanswer = ...\n```" in text
        assert '```{code-cell} ipython3\nassert answer == 3, "count again"\n```' in text
        assert '```python\nprint("only shown")\n```' in text
        assert "{exercise}" not in text
        assert "{solution}" not in text
        assert text.rstrip().endswith("The end.")
    assert "Three." not in student
    assert "answer = 3\n" not in student
    assert "**Solution.**\n\nThree.\n\n```{code-cell} ipython3\nanswer = 3\n```" in teacher


def run(*parts: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "exercise"}
    plt.switch_backend("Agg")
    for part in parts:
        exec(compile(part, "exercise", "exec"), namespace)
    plt.close("all")
    return namespace


@pytest.mark.parametrize(("chapter", "exercise"), ALL, ids=[e.label for _, e in ALL])
def test_the_check_tells_a_starter_from_a_solution(chapter: str, exercise: Exercise) -> None:
    assert exercise.label.startswith("ex-"), chapter
    assert all((exercise.title, exercise.starter, exercise.check, exercise.solution))
    with pytest.raises(AssertionError) as failed:
        run(exercise.starter, exercise.check)
    assert len(str(failed.value)) > 10, "a check that fails says what may be wrong"
    run(exercise.starter, exercise.solution, exercise.check)


def test_labels_are_there_once() -> None:
    labels = [e.label for _, e in ALL]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("page", TAUGHT, ids=[page.name for page in TAUGHT])
def test_every_chapter_has_four(page: Any) -> None:
    assert len(exercises(page.text)) >= 4
