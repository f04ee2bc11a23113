"""Time the hot paths beside what else could be done, in one run; print ratios and memory.

Run: ``python benchmarks/compare.py``. How to read it: see README.md beside this file.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import finufft
import numpy as np

from tokensphere import attention, circle, globe, layers, sphere, two_tokens

rng = np.random.default_rng(1)


def seconds(work: Callable[[], object], at_least: float = 0.5) -> float:
    """Return the shortest of several runs: what the machine can do when nobody disturbs it."""
    best, spent = np.inf, 0.0
    while best == np.inf or spent < at_least:
        start = time.perf_counter()
        work()
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best


def megabytes(work: Callable[[], object]) -> float:
    """Return the peak of what Python and NumPy allocate meanwhile."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def row(what: str, ours: Callable[[], object], other: str, theirs: Callable[[], object]) -> None:
    """Print one comparison."""
    mine, memory = seconds(ours), megabytes(ours)
    yours = seconds(theirs, at_least=0.0)
    ratio = f"{other:30} {yours:9.4f} s  x {yours / mine:.3g}"
    print(f"{what:44} {mine:9.4f} s {memory:8.1f} MB   {ratio}")


def plain_pairs(theta: np.ndarray, beta: float) -> np.ndarray:
    """Sum over all pairs on the circle, as it is written."""
    speed = np.empty_like(theta)
    for start in range(0, theta.size, 64):
        gap = theta[start : start + 64, None] - theta
        speed[start : start + 64] = -(np.exp(beta * np.cos(gap)) * np.sin(gap)).mean(axis=1)
    return speed


def two_transforms(theta: np.ndarray, modes: int) -> Callable[[], object]:
    """Return the two bare non-uniform FFTs that a velocity on the circle needs."""
    settings = {"eps": 1e-13, "isign": 1, "nthreads": 1, "spread_sort": 0, "upsampfac": 2.0}
    to_modes = finufft.Plan(1, (2 * modes + 1,), **settings)
    to_tokens = finufft.Plan(2, (2 * modes + 1,), **settings)
    ones = np.ones(theta.size, dtype=complex)

    def work() -> object:
        to_modes.setpts(theta)
        to_tokens.setpts(theta)
        return to_tokens.execute(to_modes.execute(ones))

    return work


def product_and_exponential(x: np.ndarray) -> object:
    """Do the least that a dense attention has to do: two matrix products and one exponential."""
    w = x @ x.T
    np.exp(w, out=w)
    return w @ x


def products_through_the_factor() -> None:
    """Print V Y both ways, over n, d and batch, in turns: which is chosen, and what that loses."""
    print("V Y: n, d, batch; n d normals through a factor, or V whole; chosen / faster")
    for n, d, batch in itertools.product((2, 8, 32, 128), (8, 32, 128, 512), (1, 30, 1000)):
        if n > d or batch * d * d > 2e7:
            continue
        y = sphere.uniform(n, d, batch=(batch,), rng=rng)
        draw = (
            lambda y=y: layers._through_factor(y, rng),
            lambda y=y: layers._with_whole_matrix(y, "gaussian", rng),
        )
        took = np.min([[seconds(work, at_least=0.02) for work in draw] for _ in range(4)], axis=0)
        loss = took[0 if layers._factor_is_faster(batch, n, d) else 1] / took.min()
        print(f"{n:5} {d:5} {batch:6} {took[0]:12.2e} s {took[1]:12.2e} s   x {loss:.2f}")


CROWD = """
import resource, time, numpy as np
from tokensphere import circle, clusters, sphere, globe
{0}
start = time.perf_counter()
{1}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(f"{{time.perf_counter() - start:9.1f}} s {{peak:8.2f}} GB of the whole process; {2}")
"""


def crowds() -> None:
    """Print how long large crowds take to their clusters, each in a process of its own."""
    print("10^6 tokens on the circle to their clusters, beta 5:", end=" ", flush=True)
    draw = "theta = np.random.default_rng(1).uniform(-np.pi, np.pi, 10**6)"
    solve = "end = circle.solve(theta, 5.0, [0, 0.6], rtol=1e-5).angles[-1]"
    found = "{clusters.count(end, 0.02, 0.01)} clusters"
    subprocess.run([sys.executable, "-c", CROWD.format(draw, solve, found)], check=True)
    print("10^5 tokens on the sphere to their pattern, beta 6: ", end=" ", flush=True)
    draw = "x = sphere.uniform(10**5, 3, rng=np.random.default_rng(1))"
    solve = "end = globe.solve(x, 6.0, [0, 0.2], 'unnormalized', rtol=1e-5).tokens[-1]"
    found = "largest angular power {globe.power_spectrum(end, [1, 2, 3, 4]).max():.2f}"
    subprocess.run([sys.executable, "-c", CROWD.format(draw, solve, found)], check=True)


def main() -> None:
    """Print all comparisons."""
    crowds()
    for n in (2_000, 20_000, 1_000_000):
        theta = rng.uniform(-np.pi, np.pi, n)
        field = circle._field(5.0, "unnormalized")
        modes = circle._coefficients(5.0)[0].size
        row(
            f"circle, beta 5, n {n}",
            lambda field=field, theta=theta: field(theta),
            "two bare FINUFFT calls",
            two_transforms(theta, modes),
        )
    theta = rng.uniform(-np.pi, np.pi, 20_000)
    row(
        "circle, beta 5, n 20000",
        lambda: circle.velocity(theta, 5.0),
        "plain sum over pairs",
        lambda: plain_pairs(theta, 5.0),
    )
    x = sphere.uniform(4096, 64, rng=rng)
    row(
        "attention, n 4096, d 64",
        lambda: attention.velocity(x, 3.0),
        "two products, one exponential",
        lambda: product_and_exponential(x),
    )
    y = sphere.uniform(20_000, 3, rng=rng)
    row(
        "globe, beta 5, n 20000",
        lambda: globe.velocity(y, 5.0),
        "direct sums in blocks",
        lambda: attention.velocity(y, 5.0),
    )
    pairs = sphere.uniform(2, 512, batch=(200,), rng=rng)
    gram = pairs @ np.swapaxes(pairs, -1, -2)
    row(
        "overlap chain, n 2, d 512, 200 runs, 5 layers",
        lambda: layers.overlap_chain(gram, 1.0, 512, 5, rng=rng),
        "drawing V, rademacher",
        lambda: layers.forward(pairs, 1.0, 5, entries="rademacher", rng=rng),
    )
    row(
        "overlap chain, d 64",
        lambda: layers.overlap_chain(gram, 1.0, 64, 50, rng=rng),
        "the same, d 4096",
        lambda: layers.overlap_chain(gram, 1.0, 4096, 50, rng=rng),
    )
    products_through_the_factor()
    beta, d = np.linspace(0, 6, 100)[:, None], np.arange(2, 102)
    start = time.perf_counter()
    two_tokens.antipodal_probability(0.0, beta, d)
    print(f"antipodal_probability on a 100 x 100 grid    {time.perf_counter() - start:9.4f} s")


if __name__ == "__main__":
    main()
