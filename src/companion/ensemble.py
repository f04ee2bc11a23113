"""Ensembles: one function, a grid of parameters, many random replicates, any number of cores.

>>> from companion import ensemble
>>> def end(rng, *, steps, drift):
...     return rng.normal(drift, 1.0, steps).sum()
>>> grid = {"steps": [4, 16], "drift": [0.0, 0.5, 1.0]}
>>> ends = ensemble.run(end, grid, replicates=100, seed=1)
>>> ends.end.dims
('steps', 'drift', 'replicate')
>>> float(ends.end.sel(steps=16, drift=1.0).mean("replicate").round(1))
15.4

Every replicate has a generator of its own, made from the seed, the *values* of its parameters and
its number. So the numbers are the same on one core or a hundred, in any order and batching, and
for a part of the grid; numerical libraries run on one thread, since rounding depends on that, too.
Work is submitted through :class:`concurrent.futures.Executor`: to this process, to processes on
this machine, or to a Dask cluster, see :func:`executor`.
"""

import hashlib
import inspect
import itertools
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import cloudpickle
import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from companion import _session, store
from companion._pieces import Pieces, Results
from companion.book import code_hash
from companion.errors import Problem

__all__ = ["PointFailed", "executor", "one", "run"]

PATIENCE = "10s"  # with a scheduler that does not answer
Function = Callable[..., Any]
Point = dict[str, Any]


class PointFailed(Problem):
    """The function raised an exception; the message says where and how to repeat it alone."""


def run(
    function: Function,
    grid: Mapping[str, Sequence[Any]],
    *,
    replicates: int,
    seed: int,
    axes: Mapping[str, Any] | None = None,
    batch: int | None = None,
    on: Executor | None = None,
    folder: Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Call ``function(rng, **point)`` at every point of the grid, ``replicates`` times.

    Parameters
    ----------
    function
        returns a number, an array, or a mapping from names to numbers and arrays, of the same
        shape at every point. On other processes it is imported if it is in a module, and sent
        along if it was defined in a notebook, with the functions and constants that it uses there.
    grid
        parameter → its values: numbers, words or truth values, none twice.
    replicates, seed
        how many independent calls at each point; where their random numbers come from.
    axes
        names and values of the axes of an array that the function returns, in order; an array of
        fewer dimensions has the first of them.
    batch
        calls in one piece of work, by default an eighth of the replicates. Large enough to take
        longer than sending it, small enough not to be missed when it is lost.
    on
        where to compute; by default :func:`executor` with its own defaults.
    folder
        where finished pieces are kept: what was finished when a run ended, however it ended, is
        not computed again, unless the function's source, what it uses of the notebook, the seed,
        the book's code or the versions of the libraries have changed. While the book is built it
        is a place in ``_build``; else nothing is kept without a folder.
    progress
        whether to show a bar; by default on a terminal and in a notebook, not while building.

    Returns
    -------
    xarray.Dataset
        a variable per name (the function's own if it returns no mapping), with the axes of the
        grid, then ``replicate``, then ``axes``.

    Raises
    ------
    PointFailed
        if the function fails. What was finished before is kept.
    ValueError
        for what makes no sense, or results whose shape differs from point to point.
    """
    points = _points(grid)
    if replicates < 1:
        raise ValueError(f"replicates must be at least 1, not {replicates}")
    batch = -(-replicates // 8) if batch is None else batch
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    gathered = _Gathered(function, grid, replicates, dict(axes or {}))
    shown = _shown(progress)
    with ExitStack() as stack:
        pieces = None
        if folder or _session.building():
            pieces = stack.enter_context(_pieces(function, seed, folder))
        missing = gathered.read(pieces, points, batch)
        left = sum(count for _, _, count in missing)
        total = len(points) * replicates
        if pieces and shown:
            tqdm.write(_what_was_found(gathered.name, pieces, total, left), file=sys.stderr)
        if missing:
            where = on or stack.enter_context(executor())
            bar = stack.enter_context(
                tqdm(desc=gathered.name, total=total, initial=total - left, disable=not shown)
            )
            # pickled once, and opened inside the work, where an error can be reported
            sent = function if isinstance(where, _Here) else cloudpickle.dumps(function)
            work = ((sent, seed, points[i], first, count) for i, first, count in missing)
            for (i, first, count), results in _stream(where, work, missing):
                if pieces:
                    pieces.write(_key(points[i]), first, count, results)
                gathered.add(i, points[i], first, results)
                bar.update(count)
    return gathered.dataset()


def one(function: Function, point: Mapping[str, Any], *, replicate: int, seed: int) -> Any:
    """Call the function once, just as :func:`run` does: to look into a single replicate."""
    with threadpool_limits(1):
        return function(_generator(seed, dict(point), replicate), **point)


@contextmanager
def executor(workers: int | None = None, scheduler: str | None = None) -> Iterator[Executor]:
    """Yield where to compute: this process, processes on this machine, or a Dask cluster.

    ``scheduler`` is a Dask scheduler's address, such as ``tcp://10.0.0.1:8786``; without one,
    ``workers`` processes are started here, or none if it is 1. The defaults are the environment
    variables COMPANION_SCHEDULER and COMPANION_WORKERS, which ``companion build --scheduler`` and
    ``--workers`` set; else 1.
    """
    address = scheduler or (None if workers else os.environ.get(_session.SCHEDULER))
    count = workers or int(os.environ.get(_session.WORKERS, "1"))
    if address:
        from distributed import Client, KilledWorker

        try:
            client = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
        except OSError:
            raise Problem(f"no Dask scheduler answers at {address}") from None
        with client:
            try:
                client.run(__import__, __name__)
            except ImportError as error:
                raise Problem(
                    f"the workers of {address} lack the book's packages: {error}"
                ) from None
            with client.get_executor(pure=False) as there:  # type: ignore[no-untyped-call]
                try:
                    yield there
                except KilledWorker as error:
                    raise Problem(f"the cluster lost worker after worker: {error}") from None
    elif count > 1:
        # unlike the standard one it takes functions that were defined in a notebook
        from loky import ProcessPoolExecutor

        with ProcessPoolExecutor(max_workers=count) as there:
            try:
                yield there
            except BaseException:
                there.shutdown(wait=False, kill_workers=True)
                raise
    else:
        yield _Here()


class _Here(Executor):
    """Computes at once, in this process."""

    _max_workers = 1

    def submit(self, fn: Function, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class _Gathered:
    """The results so far, in arrays made when the first piece tells their shape."""

    def __init__(
        self,
        function: Function,
        grid: Mapping[str, Sequence[Any]],
        replicates: int,
        axes: dict[str, Any],
    ) -> None:
        self.name = function.__name__
        self._grid = {name: list(values) for name, values in grid.items()}
        self._replicates = replicates
        self._axes = {name: np.asarray(values) for name, values in axes.items()}
        taken = set(self._grid) & set(self._axes) | ({*self._grid, *self._axes} & {"replicate"})
        if taken:
            raise ValueError(f"two axes have the same name: {', '.join(sorted(taken))}")
        self._arrays: Results = {}

    def read(
        self, pieces: Pieces | None, points: list[Point], batch: int
    ) -> list[tuple[int, int, int]]:
        """Take what is on disk; return (point, first replicate, how many) of what is missing."""
        missing = []
        for i, point in enumerate(points):
            absent = np.ones(self._replicates, dtype=bool)
            for first, results in pieces.read(_key(point), self._replicates) if pieces else ():
                self.add(i, point, first, results)
                absent[first : first + len(next(iter(results.values())))] = False
            first = 0
            while first < self._replicates:
                if not absent[first]:
                    first += 1
                    continue
                here = absent[first : first + batch]
                count = len(here) if here.all() else int(here.argmin())
                missing.append((i, first, count))
                first += count
        return missing

    def add(self, i: int, point: Point, first: int, results: Results) -> None:
        """Put the results of some replicates of point ``i`` into their place."""
        if not self._arrays:
            for name, values in results.items():
                if values.shape[1:] != self._lengths()[: values.ndim - 1]:
                    raise ValueError(
                        f"{self.name} returns an array of shape {values.shape[1:]} for {name!r}; "
                        f"the axes named for it have the lengths {self._lengths()}"
                    )
            shape = (*map(len, self._grid.values()), self._replicates)
            self._arrays = {
                name: np.empty((*shape, *values.shape[1:]), values.dtype)
                for name, values in results.items()
            }
        sizes = [len(values) for values in self._grid.values()]
        place = tuple(int(k) for k in np.unravel_index(i, sizes)) if sizes else ()
        if results.keys() != self._arrays.keys():
            raise ValueError(
                f"{self.name} returns {', '.join(results)} at {_say(point)}, "
                f"elsewhere {', '.join(self._arrays)}"
            )
        for name, values in results.items():
            whole = self._arrays[name]
            if whole.shape[len(self._grid) + 1 :] != values.shape[1:]:
                raise ValueError(
                    f"{self.name} returns {name!r} of shape {values.shape[1:]} at {_say(point)}, "
                    f"elsewhere {whole.shape[len(self._grid) + 1 :]}"
                )
            if not np.can_cast(values.dtype, whole.dtype, "same_kind"):
                whole = self._arrays[name] = whole.astype(np.result_type(whole, values))
            whole[place][first : first + len(values)] = values

    def dataset(self) -> xr.Dataset:
        dims = (*self._grid, "replicate")
        variables = {
            name: ((*dims, *list(self._axes)[: values.ndim - len(dims)]), values)
            for name, values in self._arrays.items()
        }
        coordinates = {**self._grid, "replicate": np.arange(self._replicates), **self._axes}
        return xr.Dataset(variables, coordinates)

    def _lengths(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self._axes.values())


def _stream(
    where: Executor, work: Iterator[tuple[Any, ...]], labels: list[tuple[int, int, int]]
) -> Iterator[tuple[tuple[int, int, int], Results]]:
    """Yield results as they come, with only as much submitted as keeps every worker busy."""
    ahead = 2 * _capacity(where)
    pending: dict[Future[Results], tuple[int, int, int]] = {}
    queue = zip(labels, work)
    try:
        while True:
            for label, task in itertools.islice(queue, ahead - len(pending)):
                pending[where.submit(_piece, *task)] = label
            if not pending:
                return
            done = wait(pending, return_when=FIRST_COMPLETED).done
            # in the order of submission: a set of futures has an order of chance
            for future in [future for future in pending if future in done]:
                label = pending.pop(future)
                yield label, future.result()
    except _Raised as error:
        raise PointFailed(str(error)) from error.__cause__
    except (BrokenExecutor, CancelledError) as error:
        raise Problem(
            f"a worker of the ensemble was lost ({error or 'its scheduler is gone'}); "
            "what was finished is kept if it has a folder: start again to compute the rest"
        ) from error
    finally:
        for future in pending:
            future.cancel()


class _Raised(Exception):
    """What a worker reports about a function that failed."""


def _piece(sent: Function | bytes, seed: int, point: Point, first: int, count: int) -> Results:
    """Call the function for some replicates; runs on a worker."""
    try:
        function = cloudpickle.loads(sent) if isinstance(sent, bytes) else sent
    except Exception as error:
        raise _Raised(
            f"a worker cannot load the function: {type(error).__name__}: {error}; "
            "install what it needs there, or define it in the notebook"
        ) from error
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for replicate in range(first, first + count):
            found = _call(function, seed, point, replicate)
            rows.append(dict(found) if isinstance(found, Mapping) else {function.__name__: found})
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def _call(function: Function, seed: int, point: Point, replicate: int) -> Any:
    try:
        return function(_generator(seed, point, replicate), **point)
    except Exception as error:
        name = function.__name__
        raise _Raised(
            f"{name} failed at {_say(point)}, replicate {replicate}: "
            f"{type(error).__name__}: {error}; to repeat it alone: "
            f"ensemble.one({name}, {point}, replicate={replicate}, seed={seed})"
        ) from error


def _generator(seed: int, point: Point, replicate: int) -> np.random.Generator:
    words = np.frombuffer(hashlib.sha256(_text(point).encode()).digest()[:16], dtype="<u4")
    sequence = np.random.SeedSequence(seed, spawn_key=(*map(int, words), replicate))
    return np.random.default_rng(sequence)


def _points(grid: Mapping[str, Sequence[Any]]) -> list[Point]:
    columns: dict[str, list[Any]] = {}
    for name, values in grid.items():
        columns[name] = [v.item() if isinstance(v, np.generic) else v for v in values]
        for value in columns[name]:
            if not isinstance(value, str | int | float) or value != value:
                raise ValueError(f"{name}: a value is a number, a word or true, not {value!r}")
        if len({_text({name: value}) for value in columns[name]}) < len(columns[name]):
            raise ValueError(f"{name} has the same value twice")
        if not columns[name]:
            raise ValueError(f"{name} has no values")
    return [dict(zip(columns, values)) for values in itertools.product(*columns.values())]


def _text(point: Point) -> str:
    """Write a point so that equal values look alike: 2 and 2.0 are the same number."""
    items = {k: float(v) if type(v) in (int, float) else v for k, v in point.items()}
    return json.dumps(items, sort_keys=True)


def _key(point: Point) -> str:
    return hashlib.sha256(_text(point).encode()).hexdigest()[:16]


def _say(point: Point) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in point.items()) or "the only point"


def _pieces(function: Function, seed: int, folder: Path | None) -> Pieces:
    """Return the place of an ensemble's pieces: one for each thing that numbers depend on."""
    root = _session.book_root()
    if folder is None:
        assert root is not None
        chapter = os.environ.get(_session.CHAPTER, "")
        folder = store.build_folder(root) / "ensembles" / chapter / function.__name__
    description: dict[str, object] = {
        "function": textwrap.dedent(inspect.getsource(function)),
        "uses": _uses(function),
        "seed": seed,
        "code": code_hash(root) if root else None,
        "versions": store.versions(),
    }
    text = json.dumps(description, sort_keys=True)
    return Pieces(folder / hashlib.sha256(text.encode()).hexdigest()[:16], description)


def _uses(function: Function) -> dict[str, str]:
    """Return what a notebook's function takes from the notebook: functions' source, hashes of data.

    What belongs to a module is left out: the book's code and the libraries' versions are known.
    """
    found: dict[str, str] = {}
    waiting = [function]
    while waiting:
        here = waiting.pop()
        if not inspect.isfunction(here) or here.__module__ != "__main__":
            continue
        inside = [cell.cell_contents for cell in here.__closure__ or ()]
        values = dict(zip(here.__code__.co_freevars, inside))
        values |= {n: here.__globals__[n] for n in _names(here.__code__) if n in here.__globals__}
        values |= {"()": (here.__defaults__, here.__kwdefaults__)}
        for name, value in values.items():
            key, value = f"{here.__qualname__}.{name}", inspect.unwrap(value)
            if key in found or inspect.ismodule(value):
                continue
            if not inspect.isroutine(value) and not inspect.isclass(value):
                found[key] = hashlib.sha256(cloudpickle.dumps(value)).hexdigest()
            elif value.__module__ == "__main__":
                found[key] = textwrap.dedent(inspect.getsource(value))
                waiting.append(value)
    return found


def _names(code: CodeType) -> set[str]:
    """Return the names that a function's code, and the functions inside it, may look up."""
    inner = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inner)


def _what_was_found(name: str, pieces: Pieces, total: int, left: int) -> str:
    damaged = f", {pieces.damaged} damaged piece(s) to be made again" if pieces.damaged else ""
    return f"{name}: {total - left} of {total} runs found in {pieces.folder}{damaged}"


def _capacity(where: Executor) -> int:
    """How many calls an executor works on at a time."""
    workers = getattr(where, "_max_workers", None)
    if workers is None and hasattr(where, "_client"):
        workers = sum(where._client.nthreads().values())
    return int(workers or os.cpu_count() or 1)


def _shown(progress: bool | None) -> bool:
    if progress is None:
        return not _session.building() and (sys.stderr.isatty() or _session.shell() is not None)
    return progress
