"""What is trained: cases, each a model, a protocol and a budget, with seeds and learning rates.

The validation accuracies of a pilot (one seed, six protocols) set the budgets and where the search
for a rate begins, before any test accuracy was looked at. Three cases were added later; see there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from training.protocols import IDENTITY, REFERENCE, SHARED, SILENT, TIED, Protocol, Shape
from training.train import Budget

BRIEF = Budget(epochs=6, every=3)
SHORT = Budget(epochs=12, every=6)
LONG = Budget(epochs=48, every=12)


@dataclass(frozen=True)
class Case:
    """One model under one protocol with one budget.

    ``rate_of`` names the case whose tuned rate is taken; by default the case tunes its own.
    """

    name: str
    protocol: Protocol
    budget: Budget
    shape: Shape = field(default_factory=Shape)
    rate_of: str | None = None


@dataclass(frozen=True)
class Plan:
    """Cases in the order of their training, final seeds, and seeds and first rates for tuning."""

    cases: tuple[Case, ...]
    seeds: tuple[int, ...] = tuple(range(8))
    tuning_seeds: tuple[int, ...] = (100, 101)
    first_rates: tuple[float, float] = (0.01, 0.02)
    names: dict[str, Case] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        names = {case.name: case for case in self.cases}
        if len(names) != len(self.cases):
            raise ValueError("cases must have different names")
        object.__setattr__(self, "names", names)

    def __getitem__(self, name: str) -> Case:
        if name not in self.names:
            raise ValueError(f"name must be one of {', '.join(self.names)}, got {name!r}")
        return self.names[name]


def _paper() -> tuple[Case, ...]:
    root = Shape().width ** 0.5  # η²/d = 1: entries of unit variance
    main = {
        "reference": REFERENCE,
        "silent": SILENT,
        "tied": TIED,
        "shared": SHARED,
        "identity": IDENTITY,
        "half": Protocol("scaled", 0.5),
        "double": Protocol("scaled", 2.0),
        "unit": Protocol("scaled", root),
        "mean-0": Protocol("mean", 0.0),
        "mean-half": Protocol("mean", 0.5),
    }
    frozen = {
        "frozen-reference": Protocol("scaled", frozen=True),
        "frozen-shared": Protocol("mixed", 0.0, frozen=True),
        "frozen-identity": Protocol("identity", frozen=True),
    }
    three = ("reference", "silent", "tied")
    cases = [Case(name, protocol, SHORT) for name, protocol in {**main, **frozen}.items()]
    cases += [Case(f"long-{name}", main[name], LONG, rate_of=name) for name in three]
    # Added when its tuning had chosen another rate than that of its neighbours (see the chapter).
    cases.append(Case("mean-half-same-rate", main["mean-half"], SHORT, rate_of="reference"))
    usual = Shape(model="usual")
    cases += [Case(f"usual-{name}", main[name], BRIEF, usual) for name in three]
    cases += [
        Case(f"depth-{depth}-{name}", main[name], BRIEF, Shape(depth=depth), rate_of=name)
        for depth in (8, 64, 32)
        for name in ("reference", "tied")
    ]
    cases += [Case(f"sharp-{name}", main[name], SHORT, Shape(beta=4.0)) for name in three]
    # Added when the rate of eight layers had turned out too large for 32.
    cases += [Case(f"tuned-32-{name}", main[name], BRIEF, Shape(depth=32)) for name in three[::2]]
    cases.append(Case("long-identity", IDENTITY, LONG, rate_of="identity"))
    return tuple(cases)


def _quick() -> tuple[Case, ...]:
    shape, budget = Shape(depth=2, width=8), Budget(epochs=2, every=1, train=200)
    return tuple(
        Case(name, protocol, budget, shape)
        for name, protocol in {"reference": REFERENCE, "silent": SILENT, "tied": TIED}.items()
    )


#: tables of comparisons: the reference, and what is compared with it
TABLES = {
    "twelve epochs": (
        "reference",
        ("silent", "half", "double", "unit", "mean-0", "mean-half", "shared", "tied", "identity"),
    ),
    "to a plateau": ("long-reference", ("long-silent", "long-tied", "long-identity")),
    "layers frozen": ("frozen-reference", ("frozen-shared", "frozen-identity")),
    "sharp attention": ("sharp-reference", ("sharp-silent", "sharp-tied")),
    "usual model": ("usual-reference", ("usual-silent", "usual-tied")),
    "32 layers, rate of 8": ("depth-32-reference", ("depth-32-tied",)),
    "64 layers, rate of 8": ("depth-64-reference", ("depth-64-tied",)),
    "32 layers, tuned": ("tuned-32-reference", ("tuned-32-tied",)),
}

PROFILES = {
    "quick": Plan(_quick(), seeds=(0, 1), tuning_seeds=(100,)),
    "paper": Plan(_paper()),
    "large": Plan(_paper(), seeds=tuple(range(32)), tuning_seeds=tuple(range(100, 108))),
}
