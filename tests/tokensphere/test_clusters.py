"""Counting clusters against a plain union of linked pairs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokensphere import clusters, sphere


def plain_sizes(distance, tol):
    """Connected components of the graph distance <= tol, by flooding."""
    n, seen, sizes = len(distance), set(), []
    for i in range(n):
        if i in seen:
            continue
        group, border = {i}, [i]
        while border:
            here = border.pop()
            new = {j for j in range(n) if j not in group and distance[here, j] <= tol}
            group |= new
            border += new
        seen |= group
        sizes.append(len(group))
    return sizes


def angle_between(x):
    """Angles between all pairs of tokens, accurate for small ones."""
    chord = np.linalg.norm(x[:, None] - x[None], axis=-1)
    return 2 * np.arcsin(np.minimum(chord / 2, 1))


def around(centre, n, spread, seed):
    noise = np.random.default_rng(seed).standard_normal((n, len(centre)))
    return sphere.normalize(np.asarray(centre, float) + spread * noise)


def test_angles_wrap_around():
    assert clusters.count([0.05, 2 * np.pi - 0.05], tol=0.11) == 1
    assert clusters.count([0.05, 2 * np.pi - 0.05], tol=0.09) == 2
    assert clusters.count([0.0, 2 * np.pi, -4 * np.pi, 20 * np.pi], tol=1e-6) == 1
    assert clusters.count([np.pi, -np.pi], tol=1e-6) == 1
    assert clusters.count([0.0, np.pi / 2, np.pi, -np.pi / 2], tol=0.1) == 4
    assert clusters.count([1.0], tol=0.0) == 1


def test_links_make_chains():
    """Single linkage: far ends belong together if every step between is short."""
    chain = 0.09 * np.arange(20)
    assert clusters.count(chain, tol=0.1) == 1
    assert clusters.count(chain, tol=0.08) == 20
    assert clusters.count(np.delete(chain, [5, 12]), tol=0.1) == 3
    assert clusters.count(sphere.from_angles(np.delete(chain, [5, 12])), tol=0.1) == 3
    # a closed ring has one group, not two
    ring = 2 * np.pi * np.arange(60) / 60
    assert clusters.count(ring, tol=0.11) == 1
    assert clusters.count(sphere.from_angles(ring), tol=0.11) == 1
    x = np.concatenate([sphere.from_angles(chain), np.zeros((20, 2))], axis=1)
    assert clusters.count(x, tol=0.1) == 1
    assert clusters.count(np.delete(x, [5, 12], axis=0), tol=0.1) == 3


@pytest.mark.parametrize("d", [3, 8, 512])
def test_planted_clusters_in_any_dimension(d):
    """The coordinate axes and their negatives, 20 tokens at each, shuffled."""
    axes = np.concatenate([np.eye(d)[:3], -np.eye(d)[:2]])
    x = np.concatenate([around(a, 20, 0.01 / math.sqrt(d), i) for i, a in enumerate(axes)])
    x = x[np.random.default_rng(0).permutation(100)]
    assert clusters.count(x, tol=0.2) == 5
    assert clusters.count(x, tol=1.7) == 1
    assert clusters.count(x.astype(np.float32), tol=0.2) == 5


def test_distance_is_an_angle():
    """Along the sphere: a gap of 2 radians has chord 1.683."""
    assert clusters.count([0.0, 2.0], tol=1.9) == 2
    assert clusters.count([0.0, 2.0], tol=2.01) == 1
    x = np.array([[1.0, 0, 0], [math.cos(2), math.sin(2), 0]])
    assert clusters.count(x, tol=1.9) == 2
    assert clusters.count(x, tol=2.01) == 1


def test_small_distances_are_told_apart():
    """1e-10 is far below what an overlap can resolve."""
    x = np.concatenate([sphere.from_angles([0.0, 1e-10, 3e-10]), np.zeros((3, 1))], axis=1)
    assert clusters.count(x, tol=1.5e-10) == 2
    assert clusters.count([0.0, 1e-10, 3e-10], tol=2.5e-10) == 1
    assert clusters.count(x, tol=0.5e-10) == 3


def test_stragglers():
    theta = np.concatenate([np.zeros(60), np.full(36, 2.0), np.full(4, 4.0)])
    for given_ in (theta, sphere.from_angles(theta)):
        assert clusters.count(given_) == 3
        assert clusters.count(given_, min_share=0.04) == 3
        assert clusters.count(given_, min_share=0.05) == 2
        assert clusters.count(given_, min_share=0.5) == 1


def test_batches():
    theta = np.array([[0.0, 0.01, 0.02, 3.0], [0.0, 1.0, 2.0, 3.0]])
    assert clusters.count(theta, tol=0.1).tolist() == [2, 4]
    assert clusters.count(sphere.from_angles(theta), tol=0.1).tolist() == [2, 4]
    x = sphere.uniform(12, 3, rng=np.random.default_rng(1), batch=(2, 3))
    found = clusters.count(x, tol=0.6)
    assert found.shape == (2, 3)
    for b in np.ndindex(2, 3):
        assert found[b] == len(plain_sizes(angle_between(x[b]), 0.6))
    split = clusters.antipodal_split(x)
    assert split.shape == (2, 3, 2)


def test_large_n():
    """Two caps of 4000 tokens each at the poles: blocks must not split them."""
    x = np.concatenate([around([0, 0, 1.0], 4000, 0.02, 2), around([0, 0, -1.0], 4000, 0.02, 3)])
    assert clusters.count(x, tol=0.3) == 2
    assert clusters.antipodal_split(x, tol=0.4).tolist() == [4000, 4000]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 14), st.sampled_from([2, 3, 5]), st.floats(0.0, 3.0), st.integers(0, 2**32))
def test_count_against_flooding(n, d, tol, seed):
    x = sphere.uniform(n, d, rng=np.random.default_rng(seed))
    expected = plain_sizes(angle_between(x), tol)
    assert clusters.count(x, tol=tol) == len(expected)
    if d == 2:
        assert clusters.count(sphere.to_angles(x), tol=tol) == len(expected)
    for share in (0.3, 0.6):
        kept = sum(size >= share * n for size in expected)
        assert clusters.count(x, tol=tol, min_share=share) == kept
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0]
    assert clusters.count(sphere.normalize(x @ q)[::-1], tol=tol) == len(expected)


def test_antipodal_split_by_hand():
    e = np.array([0.6, 0.8, 0.0])
    assert clusters.antipodal_split(np.stack([e, -e, -e, -e])).tolist() == [3, 1]
    assert clusters.antipodal_split(np.stack([-e, e, e])).tolist() == [2, 1]
    assert clusters.antipodal_split(np.stack([e, e, e])).tolist() == [3, 0]
    assert clusters.antipodal_split(e[None]).tolist() == [1, 0]
    assert clusters.antipodal_split(np.eye(3)[:2]).tolist() == [0, 0]
    assert clusters.antipodal_split(np.stack([e, -e, [0, 0, 1.0]])).tolist() == [0, 0]
    # within tol of the first token or of its antipode
    theta = np.array([0.0, 0.08, np.pi - 0.08, np.pi + 0.05])
    assert clusters.antipodal_split(sphere.from_angles(theta), tol=0.1).tolist() == [2, 2]
    assert clusters.antipodal_split(sphere.from_angles(theta), tol=0.07).tolist() == [0, 0]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(0, 8), st.sampled_from([2, 3, 64]), st.integers(0, 2**32))
def test_antipodal_split_property(same, opposite, d, seed):
    rng = np.random.default_rng(seed)
    e = sphere.uniform(1, d, rng=rng)[0]
    signs = rng.permutation(np.r_[np.ones(same), -np.ones(opposite)])
    x = sphere.normalize(
        signs[:, None] * e + 1e-3 / math.sqrt(d) * rng.standard_normal((same + opposite, d))
    )
    assert clusters.antipodal_split(x, tol=0.05).tolist() == sorted([same, opposite], reverse=True)
    assert clusters.count(x, tol=0.05) == (2 if opposite else 1)
