"""Stored results: trained once, kept with everything needed to make them again.

Finished pieces are files of their own until all are there, so an interrupted run goes on where
it stopped. The stored file carries a hash of its results, so that a change by hand is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from tqdm import tqdm

from training import data, study
from training.plan import PROFILES, SHORT, Case, Plan
from training.protocols import Shape

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "scikit-learn", "numpy")


def compute(profile: str, images: data.Images, folder: Path) -> dict[str, Any]:
    """Compute all cases of a profile; finished pieces are kept in ``folder`` and read again."""
    plan = PROFILES[profile]
    tunings: dict[str, Any] = {}
    cases: dict[str, Any] = {}
    for case in tqdm(plan.cases, unit="case", dynamic_ncols=True):
        key = identity(case, plan, images)
        if case.rate_of is None:
            make_tuning = partial(study.tune, images, case, plan)
            tunings[case.name] = piece(folder, f"{case.name}.tuning", key, make_tuning)
        rate = tunings[case.rate_of or case.name]["rate"]
        make_final = partial(study.final, images, case, plan, rate)
        found = piece(folder, f"{case.name}.final", key | {"rate": rate}, make_final)
        if case.budget == SHORT and case.shape == Shape():
            make_probe = partial(study.probe, images, case, plan)
            found["probe"] = piece(folder, f"{case.name}.probe", key, make_probe)
        cases[case.name] = {"case": asdict(case), "tuning": tunings.get(case.name), **found}
    return packed(profile, images, plan, cases)


def identity(case: Case, plan: Plan, images: data.Images) -> dict[str, Any]:
    """Return what a piece depends on, as it is stored beside it."""
    settings = {k: v for k, v in asdict(plan).items() if k not in ("cases", "names")}
    made = {"images": images.name, "case": asdict(case), "plan": settings, "versions": versions()}
    return json.loads(json.dumps(made))


def piece(
    folder: Path, name: str, key: dict[str, Any], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return the piece with this name and key from its file, or make it and write the file."""
    path = folder / f"{name}.json"
    if path.is_file():
        stored = json.loads(path.read_text("utf-8"))
        if stored["key"] == key:
            return stored["result"]
    result = make()
    write(path, {"key": key, "result": result})
    return result


def write(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def packed(profile: str, images: data.Images, plan: Plan, cases: dict[str, Any]) -> dict[str, Any]:
    """Return the results as they are stored."""
    return {
        "profile": profile,
        "images": images.name,
        "made_by": f"python -m training --profile {profile}",
        "versions": versions(),
        "machine": platform.machine(),
        "seeds": list(plan.seeds),
        "tuning_seeds": list(plan.tuning_seeds),
        "sha256": digest(cases),
        "cases": cases,
    }


def load(profile: str = "paper") -> dict[str, Any]:
    """Read stored results; ValueError if there are none or their hash is not that of the file."""
    file = resources.files("training") / "stored" / f"{profile}.json"
    if not file.is_file():
        raise ValueError(f"profile must be one whose results are stored, got {profile!r}")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if digest(found["cases"]) != found["sha256"]:
        raise ValueError(f"the stored results of profile {profile!r} do not have their hash")
    return found


def digest(cases: dict[str, Any]) -> str:
    """Return the hash of results."""
    text = json.dumps(cases, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions that numbers may depend on."""
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in PACKAGES}
