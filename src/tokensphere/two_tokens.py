r"""Two tokens under random layers: the exact theory of their overlap.

Two tokens on $S^{d-1}$, driven by one matrix-valued Brownian motion (see
:mod:`tokensphere.sde` for the model), have an overlap $r = \langle x_1, x_2\rangle$ that is a
Markov process by itself. With $c(r) = \frac12 \operatorname{sech}^2(\beta(1-r)/2)$ (Itô)
$$dr = (1-r^2)\,[c\,(d-2) - (1-c)\,r]\,dt + \sqrt{2(1-c)}\,(1-r^2)\,dB,$$
and in $u = \operatorname{artanh} r$, where the coefficients are smooth on the whole line,
$$du = [c\,(d-2) + (1-c)\tanh u]\,dt + \sqrt{2(1-c)}\,dB.$$
If V has the mean $gI$ (``pull`` = g, beside a noise of unit variance; negative: a push), attention
draws the tokens together besides: to the bracket in dr and to the drift of u comes
$2g\alpha$, with $\alpha = 1/(1 + e^{\beta(1-r)})$ the weight of the other token.
Everything here is derived from these two lines (the book's chapter on two tokens has the
proofs) and computed in u; nothing is shared with the simulations, so that each checks the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.special import expit

from tokensphere import _backward, _check, _quadrature
from tokensphere._check import Array

#: length of a panel in u: the coefficients are analytic within pi/4 of the real line
_PANEL = 1.0
#: where the integrand is cut into panels right of its maximum: how far its logarithm fell
_DROPS = np.array([0.5, 1.0, 2.0, 3.5, 5.5, 8.0, 11.0, 15.0, 20.0, 27.0, 36.0, 48.0])
#: nodes and weights over the gap between two knots of a table, at most 1/10 long
_SHORT = legendre.leggauss(5)


def drift(r: ArrayLike, beta: ArrayLike, d: ArrayLike, *, pull: ArrayLike = 0.0) -> Array:
    r"""Itô drift $(1-r^2)[c(d-2) - (1-c)r + 2g\alpha]$ of the overlap; the arguments broadcast.

    >>> drift(0.0, 0.0, 4)
    np.float64(1.0)
    """
    r, beta, d = _overlaps(r, closed=True), _check.betas(beta), _dimensions(d)
    g = _check.floating(pull, "pull")
    c = _c(beta * (1 - r))
    toward = 2 * g * expit(-beta * (1 - r))
    return ((1 - r) * (1 + r) * (c * (d - 2) - (1 - c) * r + toward))[()]


def diffusion(r: ArrayLike, beta: ArrayLike, d: ArrayLike) -> Array:
    r"""Coefficient $\sqrt{2(1-c)}\,(1-r^2)$ of dB in the overlap's equation (Itô).

    It does not depend on the pull, nor on d, which is taken (and broadcast) for symmetry with
    :func:`drift`.
    """
    r, beta, d = _overlaps(r, closed=True), _check.betas(beta), _dimensions(d)
    r, beta, _ = np.broadcast_arrays(r, beta, d)
    return (np.sqrt(2 * (1 - _c(beta * (1 - r)))) * (1 - r) * (1 + r))[()]


def critical_beta(d: ArrayLike, *, pull: ArrayLike = 0.0) -> Array:
    r"""The inverse temperature above which the antipodal pair attracts.

    $\beta_c = \frac12\operatorname{arcosh}(d-2)$, from $\cosh 2\beta > d-2$; 0 for d = 3, and 0
    for d = 2, where the antipodal pair attracts at every $\beta$, 0 included. With a pull
    $g\ge 0$ it is the root of $\cosh 2\beta = d - 2 + g(1 + e^{-2\beta})$:
    $$e^{2\beta_c} = D + \sqrt{D^2 + 2g - 1},\qquad D = d - 2 + g,$$
    or 0 if the root is not positive. A push (g < 0) is refused: there may be two roots.

    >>> critical_beta([2, 3, 4, 8, 512]).round(6)
    array([0.      , 0.      , 0.658479, 1.238944, 3.463778])
    """
    d, g = np.broadcast_arrays(_dimensions(d), _check.floating(pull, "pull"))
    if (g < 0).any():
        raise ValueError(f"pull must be >= 0, got {_check._show(g[g < 0])}")
    middle = d - 2 + g
    root = middle + np.sqrt(np.maximum(middle * middle + 2 * g - 1, 0))
    pulled = np.log(np.maximum(root, 1)) / 2
    return np.where(g == 0, np.arccosh(np.maximum(d - 2, 1)) / 2, pulled)[()]


def lyapunov_exponents(
    beta: ArrayLike, d: ArrayLike, *, pull: ArrayLike = 0.0
) -> tuple[Array, Array]:
    r"""Exponential rates of 1 - r at consensus and of 1 + r at the antipodal pair.

    $-(d-1) - 2g$ and $\lambda = 2(c_-(d-1) - 1) + 4g\alpha_-$ with
    $c_- = \frac12\operatorname{sech}^2\beta$, $\alpha_- = 1/(1+e^{2\beta})$ and g the pull. A
    negative rate means that the end attracts. The arguments broadcast.

    >>> at_consensus, at_antipode = lyapunov_exponents(0.0, 5)
    >>> float(at_consensus), float(at_antipode)
    (-4.0, 2.0)
    """
    g = _check.floating(pull, "pull")
    beta, d, g = np.broadcast_arrays(_check.betas(beta), _dimensions(d), g)
    # (d-1) sech^2 - 2 = -2 (2 sinh^2 beta - (d-3)) / (1 + cosh 2 beta), without cancellation
    antipode = -2 * _attraction(beta, d, g) / (1 + _sech(2 * beta))
    return (-(d - 1.0) - 2 * g)[()], antipode[()]


def antipodal_probability(
    r0: ArrayLike, beta: ArrayLike, d: ArrayLike, *, pull: ArrayLike = 0.0
) -> Array:
    r"""Probability that two tokens with overlap ``r0`` end antipodal.

    $$P(r\to-1) = \int_{u_0}^\infty S' \Big/ \int_{-\infty}^\infty S', \qquad
      S'(u) = \operatorname{sech}(u)\,
      \exp\Big(-(d-2)\int_0^u \operatorname{sech}(\beta(1-\tanh v))\,dv\Big),$$
    with the scale density $S'$ of u, using
    $c/(1-c) = \operatorname{sech}(\beta(1-r))$. It is 0 where $\cosh 2\beta\le d-2$ (equality
    included), where every pair reaches consensus, and $\arccos(r_0)/\pi$ for d = 2, whatever
    $\beta$. A pull g puts $(d-2) + g(1 + e^{-\beta(1-\tanh v)})$ in the place of d - 2. If it is so
    negative that consensus no longer attracts, the probability is 1 where the antipode does, and
    0 where neither does and the overlap never settles.

    Gauss-Legendre panels in u with exact tails, in logarithms: relative accuracy about 1e-12
    (1e-12 d/1000 for larger d) for $\beta$ from 0 to 1e4.

    Args:
        r0: overlap at the start, -1 < r0 < 1.
        beta: inverse temperature, >= 0.
        d: dimension, >= 2.
        pull: mean of V, beside a noise of unit variance. The four broadcast.

    >>> antipodal_probability([0.5, 0.0], 2.0, 3).round(6)
    array([0.158518, 0.336366])
    """
    g = _check.floating(pull, "pull").astype(np.float64)
    r0, beta, d, g = np.broadcast_arrays(_overlaps(r0, "r0"), _check.betas(beta), _dimensions(d), g)
    u0 = np.arctanh(r0.astype(np.float64))
    attracts = _attraction(beta, d, g) > 0
    alone = d - 1 + 2 * g <= 0  # consensus does not
    result = np.where(attracts & alone, 1.0, 0.0)
    open_ = attracts & ~alone
    for b in np.unique(beta[open_]):
        table = _Table(float(b), pulled=bool(g[open_ & (beta == b)].any()))
        cases = np.unique(np.stack([d, g], axis=-1)[open_ & (beta == b)], axis=0)
        for dim, strength in cases:
            here = open_ & (beta == b) & (d == dim) & (g == strength)
            starts, back = np.unique(u0[here], return_inverse=True)
            logs, total = table.log_integrals(starts, float(dim), float(strength))
            result[here] = np.exp(np.minimum(logs - total, 0))[back]
    return result[()]


def expected_overlap(
    r0: ArrayLike, t: ArrayLike, beta: float, d: int, *, pull: float = 0.0
) -> Array:
    r"""Expected overlap $E[r_t]$ of two tokens with overlap ``r0`` at time 0.

    Solves the backward equation
    $\partial_t v = [c(d-2) + (1-c)\tanh u + 2g\alpha]\,\partial_u v + (1-c)\,\partial_u^2 v$,
    $v(0,u) = \tanh u$, by differences of order 8 in u on a line long enough for the time asked
    for and L-stable rational steps of order 7 in time, whose length is controlled. Absolute
    accuracy about 1e-10.

    Args:
        r0: overlap at the start, -1 < r0 < 1.
        t: time, >= 0; broadcasts with ``r0``. One solution serves all of them.
        beta: inverse temperature, >= 0.
        d: dimension, >= 2.
        pull: mean of V, beside a noise of unit variance.

    >>> expected_overlap(0.0, [0.0, 1.0], 1.5, 4).round(6)
    array([0.      , 0.370385])
    """
    beta, d = _check.beta(beta), _check.dimension(d)
    pull = _check.number(pull, "pull")
    r0, t = _overlaps(r0, "r0"), _check.floating(t, "t")
    if (t < 0).any():
        raise ValueError(f"t must be >= 0, got {_check._show(t[t < 0])}")
    r0, t = np.broadcast_arrays(r0.astype(np.float64), t.astype(np.float64))
    if not r0.size:
        return np.zeros(r0.shape)
    times, when = np.unique(t, return_inverse=True)
    starts, where = np.unique(r0, return_inverse=True)
    gain = _backward.expected_gain(np.arctanh(starts), times, beta, d, pull)
    return (r0 + gain[when, where].reshape(r0.shape))[()]


def simulate(
    r0: ArrayLike,
    beta: float,
    d: int,
    times: ArrayLike,
    *,
    pull: float = 0.0,
    paths: int,
    rng: np.random.Generator,
) -> Array:
    r"""Draw paths of the overlap: shape ``(T, paths)``.

    Integrates the equation of $u = \operatorname{artanh} r$ (Itô) with Platen's explicit scheme
    of weak order 2 (Kloeden and Platen, *Numerical Solution of Stochastic Differential
    Equations*, 1992, section 15.1). Steps are at most min(1/32, 1/(4d), 1/(8|g|)) long and every
    time asked for is hit. In u both ends are infinitely far away, so no path leaves (-1, 1) and the
    exponential rates near both ends are right; overlaps themselves round to -1 or 1 from
    |u| = 19 on.

    Args:
        r0: overlap at ``times[0]``, -1 < r0 < 1: one number, or one for each path.
        beta: inverse temperature, >= 0.
        d: dimension, >= 2.
        times: non-decreasing.
        pull: mean g of V, beside a noise of unit variance.
        paths: how many.
        rng: source of randomness.

    >>> rng = np.random.default_rng(1)
    >>> simulate(0.3, 2.0, 8, [0.0, 1.0], paths=5, rng=rng).shape
    (2, 5)
    """
    beta, d, times = _check.beta(beta), _check.dimension(d), _check.times(times)
    pull = _check.number(pull, "pull")
    paths, rng = _check.whole(paths, "paths"), _check.generator(rng)
    r0 = _overlaps(r0, "r0")
    if r0.shape not in ((), (paths,)):
        raise ValueError(f"r0 must be one number or have shape ({paths},), got shape {r0.shape}")
    u = np.broadcast_to(np.arctanh(r0.astype(np.float64)), paths)
    out = np.empty((times.size, paths))
    out[0] = r0
    longest = min(1 / 32, 1 / (4 * d), 1 / (8 * max(abs(pull), 1)))
    for k, gap in enumerate(np.diff(times)):
        steps = int(np.ceil(gap / longest))
        for _ in range(steps):
            u = _platen_step(u, beta, d, gap / steps, rng, pull)
        out[k + 1] = np.tanh(u) if steps else out[k]
    return out


class _Table:
    r"""The inner integrals on panels: $-\log S' + \log\operatorname{sech}u$ is their sum.

    $\int_0^u\operatorname{sech}z\,dv$, which counts d - 2 times, and if ``pulled`` besides
    $\int_0^u(1 + e^{-z})\operatorname{sech}z\,dv$, which counts g times; $z = \beta(1-\tanh v)$.
    """

    def __init__(self, beta: float, *, pulled: bool) -> None:
        self.beta = beta
        self.rates = (_rate, _pull_rate) if pulled else (_rate,)
        # beyond the ends the coefficients are constant to 1e-17
        panels = int(np.ceil((20 + 0.5 * np.log1p(beta)) / _PANEL))
        self.edges = _PANEL * np.arange(-panels, panels + 1)
        u, half = _quadrature.nodes(self.edges)
        # edges and nodes together: the knots
        self.knots = np.append(np.column_stack([self.edges[:-1], u]), self.edges[-1])
        self.at_knots = []
        for rate in self.rates:
            values = rate(u, beta)
            at_edges = np.concatenate([[0.0], np.cumsum(half * (values @ _quadrature.WEIGHTS))])
            at_edges -= at_edges[panels]
            at_nodes = at_edges[:-1, None] + half[:, None] * (values @ _quadrature.RUNNING.T)
            self.at_knots.append(
                np.append(np.column_stack([at_edges[:-1], at_nodes]), at_edges[-1])
            )
        self.log_sech = _log_sech(self.knots)

    def inner(self, u: Array, weights: tuple[float, float]) -> Array:
        """The weighted inner integrals at any u in the table, from the knot left of it."""
        k = np.clip(np.searchsorted(self.knots, u) - 1, 0, self.knots.size - 2)
        half = (u - self.knots[k]) / 2
        v = self.knots[k][..., None] + half[..., None] * (1 + _SHORT[0])
        return sum(
            weight * (at_knots[k] + half * (rate(v, self.beta) @ _SHORT[1]))
            for weight, rate, at_knots in zip(weights, self.rates, self.at_knots, strict=False)
        )

    def log_integrals(self, starts: Array, d: float, pull: float) -> tuple[Array, float]:
        r"""Logarithms of $\int_u^\infty S'$ for each u in ``starts`` and for u = -infinity.

        S' never grows faster than e^2u to the right, which the table's own panels resolve; right
        of its maximum, and of each start, panels end where it has fallen by given factors.
        """
        weights = (d - 2, pull)
        log_s = self.log_sech - sum(w * k for w, k in zip(weights, self.at_knots, strict=False))
        peak = int(np.argmax(log_s))
        right = self.knots[peak:]
        fall = np.maximum.accumulate(log_s[peak] - log_s[peak:])
        bases = np.append(np.interp(starts, right, fall), 0.0)
        cuts = np.interp(np.add.outer(bases, _DROPS).ravel(), fall, right)
        # the panels of the table left of all this need no new nodes
        kept = int(np.searchsorted(self.edges, min(starts[0], right[0]), side="right")) - 1
        inner = self.edges[kept:]
        inner = inner[inner <= cuts.max()]
        edges = np.unique(np.concatenate([inner, cuts, starts, right[:1]]))
        u, half = _quadrature.nodes(edges)
        values = np.concatenate(
            [
                log_s[:-1].reshape(-1, 1 + _quadrature.NODES.size)[:kept, 1:],
                _log_sech(u) - self.inner(u, weights),
            ]
        )
        half = np.append(np.full(kept, _PANEL / 2), half)
        top = values.max(axis=1)
        with np.errstate(divide="ignore"):  # two starts may be a denormal number apart
            logs = top + np.log(half * (np.exp(values - top[:, None]) @ _quadrature.WEIGHTS))
        # past the last cut nothing is left, unless the table ends there: an exponential tail
        end = log_s[-1] - np.log(d - 1 + 2 * pull) if cuts.max() == self.edges[-1] else -np.inf
        tails = np.logaddexp.accumulate(np.append(logs, end)[::-1])[::-1]
        left_rate = _attraction(self.beta, d, pull)
        total = np.logaddexp(tails[0], log_s[0] - np.log(left_rate))
        return tails[kept:][np.searchsorted(edges, starts)], float(total)


def _rate(u: Array, beta: float) -> Array:
    """Return sech(beta (1 - tanh u)) = c/(1-c), by 1 - tanh u = 2 expit(-2u)."""
    return _sech(2 * beta * expit(-2 * u))


def _pull_rate(u: Array, beta: float) -> Array:
    r"""Return $2\alpha/(1-c) = (1 + e^{-z})\operatorname{sech} z$, $z = \beta(1-\tanh u)$."""
    z = 2 * beta * expit(-2 * u)
    return (1 + np.exp(-z)) * _sech(z)


def _sech(z: Any) -> Any:
    q = np.exp(-np.abs(z))
    return 2 * q / (1 + q * q)


def _log_sech(u: Any) -> Any:
    return np.log(2) - np.abs(u) - np.log1p(np.exp(-2 * np.abs(u)))


def _attraction(beta: Any, d: Any, pull: Any = 0.0) -> Any:
    r"""$1 - [d - 2 + g(1+e^{-2\beta})]\operatorname{sech} 2\beta$: the rate at which S' dies out.

    That is, as u -> -infinity; positive where the antipodal pair attracts. Written as
    $(2\sinh^2\beta - (d-3) - g(1+e^{-2\beta}))/\cosh 2\beta$, so that d = 3 keeps its digits at
    small beta.
    """
    q = np.exp(-2 * beta)
    return (np.expm1(-2 * beta) ** 2 - 2 * (d - 3.0 + pull * (1 + q)) * q) / (1 + q * q)


def _c(z: Any) -> Any:
    r"""$c = \frac12\operatorname{sech}^2(z/2)$."""
    q = np.exp(-z)
    return 2 * q / (1 + q) ** 2


def _drift_and_noise(u: Array, beta: float, d: int, pull: float) -> tuple[Array, Array]:
    a, diffusion = _backward.coefficients(u, beta, d, pull)
    return a, np.sqrt(2 * diffusion)


def _platen_step(
    u: Array, beta: float, d: int, h: float, rng: np.random.Generator, pull: float = 0.0
) -> Array:
    root = np.sqrt(h)
    w = rng.standard_normal(u.shape)
    a, b = _drift_and_noise(u, beta, d, pull)
    ahead = u + a * h
    a_end, _ = _drift_and_noise(ahead + b * (root * w), beta, d, pull)
    _, up = _drift_and_noise(ahead + b * root, beta, d, pull)
    _, down = _drift_and_noise(ahead - b * root, beta, d, pull)
    return (
        u
        + (a_end + a) * (h / 2)
        + (up + down + 2 * b) * (root / 4 * w)
        + (up - down) * (root / 4) * (w * w - 1)
    )


def _overlaps(r: ArrayLike, name: str = "r", *, closed: bool = False) -> Array:
    array = _check.floating(r, name)
    outside = (np.abs(array) > 1) if closed else (np.abs(array) >= 1)
    if outside.any():
        allowed = f"-1 <= {name} <= 1" if closed else f"-1 < {name} < 1"
        raise ValueError(f"{name} must satisfy {allowed}, got {_check._show(array[outside])}")
    return array


def _dimensions(d: ArrayLike) -> Array:
    array = _check.floating(d, "d").astype(np.float64)
    wrong = (array != np.rint(array)) | (array < 2)
    if wrong.any():
        raise ValueError(f"d must be whole and >= 2, got {_check._show(array[wrong])}")
    return array
