"""What every solver of an evolution returns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tokensphere import sphere
from tokensphere._check import Array


@dataclass(frozen=True)
class Trajectory:
    """The states of a system at the times asked for.

    Attributes:
        times: shape ``(T,)``.
        states: shape ``(T, ..., n, d)`` for tokens, ``(T, ..., n)`` for angles.
        evaluations: how often the right-hand side (or the step of a scheme) was evaluated.
    """

    times: Array
    states: Array = field(repr=False)
    evaluations: int
    on_circle: bool = field(default=False, repr=False)

    @property
    def angles(self) -> Array:
        """Angles ``(T, ..., n)``: as integrated (unwrapped), or of tokens on the circle."""
        return self.states if self.on_circle else sphere.to_angles(self.states)

    @property
    def tokens(self) -> Array:
        """Tokens ``(T, ..., n, d)``, rows of unit length."""
        return sphere.from_angles(self.states) if self.on_circle else self.states

    def __len__(self) -> int:
        return int(np.size(self.times))
