r"""Comparing protocols: paired by seed and by image, with intervals.

The difference of two cases has two sources of chance, the seeds and the test images. With $D_s$
the difference of accuracy at seed s (of S) and $E_i$ the difference of the share of seeds that are
right about image i (of N),
$$\widehat{\mathrm{Var}} = \frac{\mathrm{var}_s D_s}{S} + \frac{\mathrm{var}_i E_i}{N},$$
which counts what varies with both twice and so errs on the wide side; Student's t with S - 1
degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

SUPPORTS, UNDECIDED, CONTRADICTS = "supports", "undecided", "contradicts"


class Difference(NamedTuple):
    """Accuracy of a case minus accuracy of its reference, with an interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the case supports the claim that it is worse than its reference."""
        if self.high < 0:
            return SUPPORTS
        return CONTRADICTS if self.low > 0 else UNDECIDED


def difference(
    case: dict[str, Any], reference: dict[str, Any], confidence: float, comparisons: int = 1
) -> Difference:
    """Compare two stored cases; ``comparisons`` such intervals hold together at ``confidence``."""
    if case["seeds"] != reference["seeds"]:
        raise ValueError(
            f"both cases must have the same seeds, got {case['seeds']} and {reference['seeds']}"
        )
    by_seed = np.subtract(case["test"], reference["test"])
    by_image = np.subtract(case["right_by_image"], reference["right_by_image"]) / by_seed.size
    error = np.sqrt(by_seed.var(ddof=1) / by_seed.size + by_image.var(ddof=1) / by_image.size)
    half = _quantile(confidence, comparisons, by_seed.size) * error
    mean = float(by_seed.mean())
    return Difference(mean, float(mean - half), float(mean + half))


def interval(values: Any, confidence: float, comparisons: int = 1) -> tuple[float, float, float]:
    """Mean over seeds with Student's interval for the mean over all seeds: mean, low, high."""
    values = np.asarray(values, dtype=float)
    half = _quantile(confidence, comparisons, values.size) * stats.sem(values)
    mean = float(values.mean())
    return mean, float(mean - half), float(mean + half)


def _quantile(confidence: float, comparisons: int, seeds: int) -> float:
    return float(stats.t.isf((1 - confidence) / 2 / comparisons, seeds - 1))


def table(
    cases: dict[str, Any], reference: str, names: Sequence[str], confidence: float
) -> dict[str, Difference]:
    """Compare several cases with one; their intervals hold together at ``confidence``."""
    count = len(names)
    return {n: difference(cases[n], cases[reference], confidence, count) for n in names}
