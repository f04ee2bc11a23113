import itertools
import linecache
import os
import shutil
import signal
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fakebook as fake
import numpy as np
import pytest
import xarray as xr

from companion import _session, ensemble
from companion.errors import Problem

HERE = Path(__file__).parent
GRID: dict[str, list[Any]] = {"steps": [4, 16], "drift": [0.0, 0.5, 1.0]}


@pytest.fixture(autouse=True)
def _walks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let this process and its workers import the functions of these tests."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for name in (_session.SCHEDULER, _session.WORKERS, "COMPANION_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


def run(name: str = "end", **options: Any) -> xr.Dataset:
    import walks  # type: ignore[import-not-found]

    options = {"grid": GRID, "replicates": 10, "seed": 1, **options}
    return ensemble.run(getattr(walks, name), **options)


def calls() -> list[str]:
    path = Path(os.environ["CALLS"])
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def dask_address() -> Iterator[tuple[str, Any]]:
    """A scheduler with two workers, each a process of its own."""
    from distributed import LocalCluster

    sys.path.insert(0, str(HERE))  # the workers are given this process's path
    with warnings.catch_warnings():
        # a busy disk is no failure
        warnings.filterwarnings("ignore", "Creating scratch directories is taking")
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
    with cluster:
        yield cluster.scheduler_address, cluster
    sys.path.remove(str(HERE))


# --- what comes back ---


def test_the_result_has_named_axes_with_their_values() -> None:
    found = run()
    assert found.end.dims == ("steps", "drift", "replicate")
    assert found.end.shape == (2, 3, 10)
    assert found.steps.values.tolist() == [4, 16]
    assert found.drift.values.tolist() == [0.0, 0.5, 1.0]
    # seven standard errors: a wrong axis would be off by far more
    means = found.end.mean("replicate")
    expected = found.steps * found.drift
    assert (abs(means - expected) < 7 * np.sqrt(found.steps / 10)).all()


def test_several_results_and_axes_of_their_own() -> None:
    found = run("matrix", grid={"size": [5, 8]}, replicates=3, axes={"place": [10, 20, 30]})
    assert found.trace.dims == ("size", "replicate")
    assert found.diagonal.dims == ("size", "replicate", "place")
    assert found.place.values.tolist() == [10, 20, 30]


def test_an_array_of_fewer_dimensions_has_the_first_axes() -> None:
    def both(rng: np.random.Generator) -> dict[str, Any]:
        return {"row": np.arange(2.0), "table": np.arange(6.0).reshape(2, 3), "number": 1.0}

    found = ensemble.run(both, {}, replicates=2, seed=1, axes={"x": [5, 6], "y": [7, 8, 9]})
    assert found.number.dims == ("replicate",)
    assert found.row.dims == ("replicate", "x")
    assert found.table.dims == ("replicate", "x", "y")
    assert found.table.sel(x=6, y=7, replicate=1) == 3.0
    with pytest.raises(ValueError, match=r"shape \(2, 3\) for 'table'"):
        ensemble.run(both, {}, replicates=2, seed=1, axes={"x": [5, 6]})


def test_no_parameters_at_all() -> None:
    found = ensemble.run(lambda rng: rng.normal(), {}, replicates=3, seed=1)
    assert found["<lambda>"].dims == ("replicate",)
    assert len(set(found["<lambda>"].values)) == 3


def test_the_results_of_one_replicate_can_be_had_alone() -> None:
    import walks

    found = run().end.sel(steps=16, drift=0.5, replicate=7)
    alone = ensemble.one(walks.end, {"steps": 16, "drift": 0.5}, replicate=7, seed=1)
    assert alone == found.item()


# --- the same numbers, however they are computed ---


def test_batches_do_not_matter() -> None:
    for batch in (1, 3, 10, 100):
        assert run(batch=batch).identical(run())


def test_the_order_and_the_rest_of_the_grid_do_not_matter() -> None:
    found = run(grid={"drift": [1, 0.5], "steps": [16]})
    assert found.end.transpose("steps", "drift", "replicate").equals(
        run().end.sel(steps=[16], drift=[1.0, 0.5])
    )


def test_more_replicates_keep_the_first_ones() -> None:
    assert run(replicates=25).end.isel(replicate=slice(10)).equals(run().end)


def test_replicates_points_and_seeds_are_independent() -> None:
    values = np.concatenate([run(seed=s).end.values.ravel() for s in (1, 2)])
    assert len(set(values)) == values.size
    many = ensemble.run(
        lambda rng, *, a: rng.normal(), {"a": list(range(30))}, replicates=60, seed=3
    )["<lambda>"].values
    # correlations between neighbours along both axes, six standard errors of independent ones
    for one, two in ((many[1:], many[:-1]), (many[:, 1:], many[:, :-1])):
        assert abs((one * two).mean()) < 6 / np.sqrt(one.size)


def test_two_processes_give_the_same_bits() -> None:
    for name, options in (("end", {}), ("matrix", {"grid": {"size": [64, 200]}})):
        extra = {"axes": {"place": [1, 2, 3]}} if name == "matrix" else {}
        with ensemble.executor(workers=2) as two:
            assert run(name, on=two, batch=3, **options, **extra).identical(
                run(name, **options, **extra)
            )


def test_any_executor_will_do() -> None:
    with ThreadPoolExecutor(3) as threads:
        assert run(on=threads, batch=1).identical(run())


def test_a_function_of_a_notebook_reaches_the_workers() -> None:
    shift = 100.0

    def shifted(rng: np.random.Generator, *, a: int) -> float:
        return shift + a

    with ensemble.executor(workers=2) as two:
        found = ensemble.run(shifted, {"a": [1, 2]}, replicates=2, seed=1, on=two)
    assert found.shifted.values.tolist() == [[101, 101], [102, 102]]


def test_dask_gives_the_same_bits_even_if_a_worker_is_killed(
    dask_address: tuple[str, Any], tmp_path: Path
) -> None:
    address, cluster = dask_address
    with ensemble.executor(scheduler=address) as there:
        assert run(on=there, batch=2).identical(run())
    victim = next(iter(cluster.workers.values())).pid  # a nanny restarts what it watches

    class Killing(Executor):
        """Passes the work on, and kills a worker in the middle of it."""

        submitted = 0

        def __init__(self, there: Executor) -> None:
            self._max_workers = 2
            self._there = there

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            self.submitted += 1
            future = self._there.submit(fn, *args, **kwargs)
            if self.submitted == 10:
                time.sleep(0.03)  # so that it is at work
                os.kill(victim, signal.SIGKILL)
            return future

    with ensemble.executor(scheduler=address) as there:
        found = run("slow_end", on=Killing(there), batch=2, folder=tmp_path / "pieces")
    np.testing.assert_array_equal(found.slow_end, run().end)


def test_the_environment_says_where_to_compute(
    dask_address: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_session.SCHEDULER, dask_address[0])
    assert run().identical(run())
    with ensemble.executor() as there:
        assert type(there).__module__.startswith("distributed")
    monkeypatch.delenv(_session.SCHEDULER)
    monkeypatch.setenv(_session.WORKERS, "2")
    with ensemble.executor() as there:
        assert there.submit(os.getpid).result() != os.getpid()


SWEEP = """import os
import pathlib

import matplotlib.pyplot as plt
import numpy as np

from companion import ensemble, figures

drifts = [0.0, 0.5, 1.0]
calls = pathlib.Path(os.environ["CALLS"])


def end(rng, *, drift):
    (calls / str(os.getpid())).touch()
    return rng.normal(drift, 1.0, n).sum()


(calls / "here").write_text(str(os.getpid()))
ends = ensemble.run(end, {"drift": drifts}, replicates=8, seed=1, batch=1)
fig, ax = plt.subplots()
ax.plot(drifts, ends.end.mean("replicate"))
figures.save(fig, "ends", data={"drift": drifts, "end": ends.end.mean("replicate").values},
             caption="Ends.", alt="A rising line.", seed=1)"""


def test_a_chapter_gives_the_same_bytes_wherever_its_ensembles_compute(
    book: Any, dask_address: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = fake.cell("n = 20", "parameters") + fake.cell(SWEEP)
    book.add("sweep", f"# A sweep\n\n## Ends\n\n{sweep}")
    found = []
    places = ((), ("--workers", "2"), ("--scheduler", dask_address[0]))
    for number, place in enumerate(places):
        pids, output = tmp_path / f"pids-{number}", tmp_path / f"output-{number}"
        pids.mkdir()
        monkeypatch.setenv("CALLS", str(pids))
        shutil.rmtree(book.root / "_build" / "ensembles", ignore_errors=True)
        done = book.run("run", "sweep", *place, "--output", str(output))
        assert done.returncode == 0, done.stderr
        kernel = (pids / "here").read_text()
        assert {path.name for path in pids.iterdir()} - {"here"}
        assert (pids / kernel).exists() == (not place)
        files = ["figures.json", *(path.relative_to(output) for path in output.glob("figures/*"))]
        found.append({str(name): (output / name).read_bytes() for name in files})
    assert len(found[0]) > 2
    assert found[0] == found[1] == found[2]


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "PATIENCE", "1s")
    with (
        pytest.raises(Problem, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        ensemble.executor(scheduler="tcp://127.0.0.1:9"),
    ):
        pass


def test_a_cluster_that_loses_all_its_workers_is_one_line(dask_address: tuple[str, Any]) -> None:
    from distributed import KilledWorker

    lost = KilledWorker("piece", types.SimpleNamespace(address="tcp://10.0.0.2:1"), 3)
    with (
        pytest.raises(Problem, match="lost worker after worker"),
        ensemble.executor(scheduler=dask_address[0]),
    ):
        raise lost


def test_a_function_that_a_worker_cannot_import_is_said(
    dask_address: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = types.ModuleType("nowhere")
    exec("def missing(rng): return 0.0", nowhere.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere", nowhere)
    for options in ({"scheduler": dask_address[0]}, {"workers": 2}):
        with (
            pytest.raises(ensemble.PointFailed, match=r"cannot load the function.*nowhere"),
            ensemble.executor(**options) as there,
        ):
            ensemble.run(nowhere.missing, {}, replicates=1, seed=1, on=there)


# --- nothing is lost ---


def test_what_is_on_disk_is_not_computed_again(tmp_path: Path) -> None:
    once = run("count_and_end", folder=tmp_path / "pieces")
    assert len(calls()) == 60
    again = run("count_and_end", folder=tmp_path / "pieces", batch=7)
    assert len(calls()) == 60
    assert again.identical(once)
    more = run("count_and_end", folder=tmp_path / "pieces", replicates=15)
    assert len(calls()) == 90
    np.testing.assert_array_equal(more.count_and_end, run(replicates=15).end)
    run("count_and_end", folder=tmp_path / "pieces", seed=2)
    assert len(calls()) == 150


def test_what_a_function_uses_of_its_notebook_belongs_to_its_pieces(tmp_path: Path) -> None:
    """Helpers, constants, closures, defaults: whichever changes, nothing old is read."""
    cells = {
        "constant": "gain = np.array([1.5, 0.5])",
        "helper": "def helper(x): return (lambda y: y * gain.sum())(x)",
        "maker": "def make(shift):\n    def value(rng, *, a, scale=SCALE):\n"
        "        return scale * helper(a) + shift\n    return value",
        "run": "found = run(make(SHIFT), {'a': [1.0]}, replicates=1, seed=1, folder=folder)",
    }

    def value(**changed: str) -> float:
        notebook: dict[str, Any] = {
            "__name__": "__main__",
            "np": np,
            "run": ensemble.run,
            "folder": tmp_path,
        }
        for code in (cells | changed).values():
            text = code.replace("SCALE", "1.0").replace("SHIFT", "0.0")
            place = str(tmp_path / f"{hash(text)}.py")
            linecache.cache[place] = (len(text), None, text.splitlines(True), place)
            exec(compile(text, place, "exec"), notebook)
        return float(notebook["found"]["value"].item())

    assert value() == 2.0
    assert value() == 2.0
    assert len(list(tmp_path.rglob("*.npz"))) == 1
    assert value(constant="gain = np.array([1.5, 1.5])") == 3.0
    assert value(helper="def helper(x): return gain[0] * x + 1") == 2.5
    assert value(maker=cells["maker"].replace("SCALE", "2 * gain[0]")) == 6.0
    assert value(run=cells["run"].replace("SHIFT", "5.0")) == 7.0
    assert len(list(tmp_path.rglob("*.npz"))) == 5


@pytest.mark.parametrize("harm", ["cut", "empty", "flip", "vanish"])
def test_a_harmed_piece_is_found_and_made_again(tmp_path: Path, harm: str, capsys: Any) -> None:
    run("count_and_end", folder=tmp_path / "pieces", batch=5)
    pieces = sorted((tmp_path / "pieces").rglob("*.npz"))
    assert len(pieces) == 12
    content = bytearray(pieces[3].read_bytes())
    content[len(content) // 2] ^= 1
    if harm == "vanish":
        pieces[3].unlink()
    else:
        pieces[3].write_bytes({"cut": content[:-20], "empty": b"", "flip": content}[harm])
    again = run("count_and_end", folder=tmp_path / "pieces", batch=5, progress=True)
    assert len(calls()) == 65
    np.testing.assert_array_equal(again.count_and_end, run().end)
    said = capsys.readouterr().err
    assert "55 of 60 runs found" in said
    assert ("1 damaged piece" in said) == (harm != "vanish")


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Five times kill -9 at a random moment; then the same bits as without."""
    code = (
        "from pathlib import Path; import walks; from companion import ensemble; import sys;"
        f"ensemble.run(walks.slow_end, {GRID!r}, replicates=30, seed=1, batch=1,"
        f"folder=Path({str(tmp_path / 'pieces')!r}))"
    )
    rng = np.random.default_rng(5)
    finished = [0]
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 60
        while len(list(tmp_path.rglob("*.npz"))) <= finished[-1] and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.wait()
        finished.append(len(list(tmp_path.rglob("*.npz"))))
    assert 0 < finished[1] < finished[-1] < 180
    assert finished == sorted(finished)
    found = run("slow_end", folder=tmp_path / "pieces", replicates=30)
    np.testing.assert_array_equal(found.slow_end, run(replicates=30).end)
    assert not list(tmp_path.rglob(".*.npz*"))


def test_a_killed_process_is_one_line_and_what_was_finished_stays(tmp_path: Path) -> None:
    with (
        pytest.raises(Problem, match="a worker of the ensemble was lost"),
        ensemble.executor(workers=2) as two,
    ):
        run("suicide", on=two, batch=5, folder=tmp_path / "pieces")
    with ensemble.executor(workers=2) as two:
        found = run("suicide", on=two, batch=5, folder=tmp_path / "pieces")
    np.testing.assert_array_equal(found.suicide, run().end)


def test_a_full_disk_leaves_no_half_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = Path.write_bytes, itertools.count()

    def full(path: Path, content: bytes) -> int:
        if next(written) == 4:
            write(path, content[:30])
            raise OSError(28, "No space left on device", str(path))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        run("count_and_end", folder=tmp_path / "pieces", batch=5)
    assert len(list(tmp_path.rglob("*.npz*"))) == 4
    found = run("count_and_end", folder=tmp_path / "pieces", batch=5)
    assert len(calls()) == 60 + 10  # the piece that did not fit, and one that was under way
    np.testing.assert_array_equal(found.count_and_end, run().end)


def test_two_runs_in_one_folder_do_not_meet(tmp_path: Path) -> None:
    import walks

    with (
        ensemble._pieces(walks.end, 1, tmp_path / "pieces"),
        pytest.raises(Problem, match="another run"),
    ):
        run(folder=tmp_path / "pieces")


def test_only_a_few_pieces_wait_at_a_time() -> None:
    class Counting(ThreadPoolExecutor):
        most = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = super().submit(fn, *args, **kwargs)
            Counting.most = max(Counting.most, self._work_queue.qsize())
            return future

    with Counting(2) as threads:
        run("slow_end", on=threads, batch=1, replicates=20)
    assert Counting.most <= 4


# --- what goes wrong is said ---


def test_a_point_that_fails_is_named_and_can_be_repeated(tmp_path: Path) -> None:
    import walks

    for options in ({}, {"on": ThreadPoolExecutor(2)}):
        with pytest.raises(ensemble.PointFailed) as error:
            run("picky", **options)
        text = str(error.value)
        assert "picky failed at steps=16, drift=1.0, replicate" in text
        assert "ValueError: not this one" in text
        command = text.split("to repeat it alone: ")[1]
        with pytest.raises(ValueError, match="not this one"):
            eval(command, {"ensemble": ensemble, "picky": walks.picky})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicates": 0}, "replicates must be at least 1, not 0"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"grid": {"steps": [], "drift": [1.0]}}, "steps has no values"),
        ({"grid": {"steps": [4, 4.0], "drift": [1.0]}}, "steps has the same value twice"),
        ({"grid": {"steps": [4], "drift": [np.nan]}}, "drift: a value is"),
        ({"grid": {"steps": [4], "drift": [[1.0]]}}, "drift: a value is"),
        ({"axes": {"drift": [1, 2]}}, "same name: drift"),
        ({"grid": {"replicate": [1]}}, "same name: replicate"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**change)


def test_results_of_different_shape_are_refused() -> None:
    for _ in range(20):  # the first that differs is named, not one that chance finds first
        with pytest.raises(ValueError, match=r"aa at size=2, elsewhere a$"):
            ensemble.run(
                lambda rng, *, size: {"a" * size: 1.0}, {"size": [1, 2, 3]}, replicates=1, seed=1
            )
    with pytest.raises(ValueError, match="the axes named for it"):
        run("matrix", grid={"size": [5]}, axes={"place": [1, 2]})
