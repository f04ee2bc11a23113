"""Functions for the tests of ensembles, in a module that every worker can import."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np


def end(rng: np.random.Generator, *, steps: int, drift: float) -> float:
    """Where a random walk ends."""
    return float(rng.normal(drift, 1.0, steps).sum())


def slow_end(rng: np.random.Generator, *, steps: int, drift: float) -> float:
    """The same, in no hurry."""
    time.sleep(0.02)
    return end(rng, steps=steps, drift=drift)


def matrix(rng: np.random.Generator, *, size: int) -> dict[str, Any]:
    """What rounds otherwise on several threads: a product of matrices."""
    a = rng.standard_normal((size, size))
    return {"trace": np.trace(a @ a), "diagonal": np.diag(a @ a)[:3]}


def count_and_end(rng: np.random.Generator, *, steps: int, drift: float) -> float:
    """The same, and a line for each call in the file that CALLS names."""
    with Path(os.environ["CALLS"]).open("a") as file:
        file.write(f"{steps} {drift}\n")
    return end(rng, steps=steps, drift=drift)


def suicide(rng: np.random.Generator, *, steps: int, drift: float) -> float:
    """Kill the worker at one point, the first time only."""
    mark = Path(os.environ["CALLS"])
    if steps == 16 and drift == 0.5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return end(rng, steps=steps, drift=drift)


def picky(rng: np.random.Generator, *, steps: int, drift: float) -> float:
    """Fail at one point."""
    if steps == 16 and drift == 1.0:
        raise ValueError("not this one")
    return end(rng, steps=steps, drift=drift)
