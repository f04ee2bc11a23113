r"""Where the tokens are: whether they have collapsed, and how much room they fill.

For the tokens of one image, shape ``(..., n, d)``: overlaps $r = \langle x_i, x_j\rangle$ of pairs,
the share of nearly antipodal pairs, and the effective rank, the exponential of the entropy of the
eigenvalues of $\frac1n X X^\top$ (they add up to one): 1 where all tokens lie on one line, n
where they are orthogonal.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

BINS = 40  # of the histogram of overlaps, on [-1, 1]
ANTIPODAL = -0.9  # a pair below this overlap counts as antipodal
MERGED = 0.9


def overlaps(x: Array) -> Array:
    """Overlaps of all pairs of tokens: ``(..., n (n - 1) / 2)``."""
    gram = jnp.einsum("...id,...jd->...ij", x, x)
    return gram[(..., *jnp.triu_indices(x.shape[-2], 1))]


def effective_rank(x: Array) -> Array:
    """Effective rank of the tokens: ``(...)``."""
    shares = jnp.linalg.eigvalsh(jnp.einsum("...id,...jd->...ij", x, x) / x.shape[-2])
    shares = jnp.clip(shares, 1e-12, 1.0)
    return jnp.exp(-(shares * jnp.log(shares)).sum(axis=-1))


def summary(x: Array) -> dict[str, Array]:
    """Describe many images' tokens ``(images, n, d)`` in a few numbers.

    ``between`` is the share of the variance of the mean tokens that lies between images (what a
    linear reading of the mean can use): E|m - E m|^2 / E|x|^2, m the mean of an image's tokens.
    """
    r = overlaps(x)
    mean = x.mean(axis=-2)
    return {
        "mean_overlap": r.mean(),
        "merged": (r > MERGED).mean(),
        "antipodal": (r < ANTIPODAL).mean(),
        "rank": effective_rank(x).mean(),
        "between": ((mean - mean.mean(axis=0)) ** 2).sum(axis=-1).mean(),
        "histogram": jnp.histogram(r, bins=BINS, range=(-1.0, 1.0 + 1e-6))[0] / r.size,
    }
