"""One velocity of all tokens: on the circle, on the sphere S^2, and dense in any dimension."""

import numpy as np
import pytest
from alternatives import (
    plain_pairs,
    product_and_exponential,
    two_circle_transforms,
    two_sphere_transforms,
)

from tokensphere import attention, circle, globe, sphere

CROWDS = [10**3, 10**4, 10**5, 10**6, 10**7]


def angles(n):
    return np.random.default_rng(1).uniform(-np.pi, np.pi, n)


def tokens(n, d):
    return sphere.uniform(n, d, rng=np.random.default_rng(1))


def rounds(n):
    return 21 if n <= 10**5 else 3


@pytest.mark.parametrize("n", CROWDS)
def bench_circle(measure, n):
    field, theta = circle._field(5.0, "unnormalized"), angles(n)
    measure(lambda: field(theta), rounds=rounds(n), family="circle", who="tokensphere", n=n, beta=5)


@pytest.mark.parametrize("n", CROWDS)
def bench_circle_limit(measure, n):
    work = two_circle_transforms(angles(n), circle._coefficients(5.0)[0].size)
    measure(work, rounds=rounds(n), family="circle", who="limit", n=n, beta=5)


@pytest.mark.parametrize("n", [10**3, 10**4])
def bench_circle_plain(measure, n):
    theta = angles(n)
    measure(
        lambda: plain_pairs(theta, 5.0),
        rounds=2 if n > 1000 else 7,
        family="circle",
        who="plain sum",
        n=n,
        beta=5,
    )


@pytest.mark.parametrize("beta", [1, 10, 100, 1000, 10_000])
def bench_circle_beta(measure, beta):
    field, theta = circle._field(float(beta), "softmax"), angles(10**5)
    measure(lambda: field(theta), family="circle beta", who="tokensphere", n=10**5, beta=beta)


@pytest.mark.parametrize("threads", [1, 2])
def bench_circle_threads(measure, threads):
    theta = angles(10**7)
    measure(
        lambda: circle.velocity(theta, 5.0, threads=threads),
        rounds=3,
        family="circle threads",
        who="tokensphere",
        n=10**7,
        beta=5,
        threads=threads,
    )


@pytest.mark.parametrize("n", CROWDS)
def bench_globe(measure, n):
    field, x = globe._field(5.0, "softmax", 1, globe._EPS), tokens(n, 3)
    measure(lambda: field(x), rounds=rounds(n), family="globe", who="tokensphere", n=n, beta=5)


@pytest.mark.parametrize("n", CROWDS)
def bench_globe_limit(measure, n):
    work = two_sphere_transforms(tokens(n, 3), globe._multiplier(5.0).size - 1, globe._EPS)
    measure(work, rounds=rounds(n), family="globe", who="limit", n=n, beta=5)


@pytest.mark.parametrize("n", [10**3, 10**4])
def bench_globe_direct(measure, n):
    x = tokens(n, 3)
    measure(
        lambda: attention.velocity(x, 5.0), rounds=3, family="globe", who="direct sums", n=n, beta=5
    )


@pytest.mark.parametrize("beta", [1, 10, 100, 500])
def bench_globe_beta(measure, beta):
    field, x = globe._field(float(beta), "softmax", 1, globe._EPS), tokens(10**5, 3)
    measure(lambda: field(x), rounds=3, family="globe beta", who="tokensphere", n=10**5, beta=beta)


@pytest.mark.parametrize("n", [256, 1024, 4096])
def bench_attention(measure, n):
    x = tokens(n, 64)
    measure(lambda: attention.velocity(x, 3.0), family="attention", who="tokensphere", n=n, d=64)


@pytest.mark.parametrize("n", [256, 1024, 4096])
def bench_attention_limit(measure, n):
    x = tokens(n, 64)
    measure(lambda: product_and_exponential(x), family="attention", who="limit", n=n, d=64)


@pytest.mark.parametrize("d", [2, 8, 64, 256, 1024])
def bench_attention_dimension(measure, d):
    x = tokens(2048, d)
    measure(lambda: attention.velocity(x, 3.0), family="attention d", who="tokensphere", d=d)


@pytest.mark.parametrize("d", [2, 8, 64, 256, 1024])
def bench_attention_dimension_limit(measure, d):
    x = tokens(2048, d)
    measure(lambda: product_and_exponential(x), family="attention d", who="limit", d=d)
