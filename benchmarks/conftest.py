"""What a benchmark records beside its time, and what of it is kept.

Every benchmark says what it is: ``family`` (what is computed), ``who`` (``tokensphere``, ``limit``:
the least that has to be done, or the name of what one would use instead), and its sizes.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

#: a thread looks for the peak, every millisecond: the system keeps only that of the process's whole
#: life, which importing libraries may have set
_IN_A_PROCESS = """
import threading, time
import psutil
{setup}
resident = lambda: psutil.Process().memory_info().rss
seen, done = [resident()], threading.Event()
def watch():
    while not done.wait(0.001):
        seen.append(resident())
watcher = threading.Thread(target=watch)
watcher.start()
start = time.perf_counter()
{work}
seconds = time.perf_counter() - start
done.set()
watcher.join()
print(seconds, max(seen) - seen[0])
"""


@pytest.fixture
def measure(benchmark: Any) -> Callable[..., Any]:
    """Time ``work`` several times: ``measure(work, family=..., who=..., n=...)``."""

    def run(work: Callable[[], Any], *, rounds: int = 7, **what: Any) -> Any:
        benchmark.extra_info.update(what)
        return benchmark.pedantic(work, rounds=rounds, warmup_rounds=1 if rounds > 1 else 0)

    return run


@pytest.fixture
def measure_alone(benchmark: Any) -> Callable[..., None]:
    """Time code in a process of its own; records ``seconds`` and ``memory``, extra bytes."""

    def run(setup: str, work: str, *, times: int = 1, **what: Any) -> None:
        code = _IN_A_PROCESS.format(setup=setup, work=work)

        def once() -> list[str]:
            command = [sys.executable, "-c", code]
            return subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.split()

        found = [once() for _ in range(times - 1)]
        found.append(benchmark.pedantic(once, rounds=1))
        seconds, memory = min((float(s), int(m)) for s, m in found)
        benchmark.extra_info.update(what, seconds=seconds, memory=memory)

    return run


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Keep what matters to the numbers, and no name of the machine."""
    cpu = machine_info.get("cpu", {})
    kept = {
        "processor": cpu.get("brand_raw", machine_info.get("machine", "")),
        "cores": cpu.get("count"),
        "python": machine_info.get("python_version"),
        "system": machine_info.get("system"),
        "memory": _memory(),
    }
    machine_info.clear()
    machine_info.update(kept)


def pytest_benchmark_update_json(config: Any, benchmarks: Any, output_json: dict[str, Any]) -> None:
    """Keep the shortest time of each: what the machine can do when nobody disturbs it."""
    output_json["benchmarks"] = [
        {"seconds": one["stats"]["min"], **one["extra_info"]} for one in output_json["benchmarks"]
    ]
    for name in ("commit_info", "version"):
        output_json.pop(name, None)


def _memory() -> float:
    return round(psutil.virtual_memory().total / 2**30, 1)
