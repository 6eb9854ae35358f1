"""Temporal ICA as published: the iteration and settings of capeDJICA, and DP-djICA (Imtiaz et al. 2019 and 2016).

capeDJICA, djICA, conv, the pooled form and one site alone are sums over sites: the program `cape-djica`
(`zerosum.papers.programs.ica`) under the schemes of `zerosum.papers.methods.ica_costs.SCHEMES`, which the figures
rehearse (`zerosum.papers.rehearsal`). DP-djICA, whose noise is inside the nonlinear function of every time point, is no
sum of bounded contributions plus noise and is a function here. **Public or synthetic data only**: its noise comes from
a seeded generator, and no ledger is charged. The reduction to R columns is in `zerosum.papers.methods.reduction`, the
costs are in `zerosum.papers.methods.ica_costs`.

Symbols of the papers: W unmixing matrix (R x R), b bias, z = W x + b, y = 1 - 2 g(z) = -tanh(z/2) with the sigmoid g, G
and h the gradients of the infomax objective log abs(det W) + mean of sum log g'(z):

    G = mean over time points of (I + y z') W        h = mean of y         W <- W + rho G,  b <- b + rho h

Each time point is clipped at B_G = 30 in Frobenius norm (h at B_h = sqrt(B_G)). (I + y z') is the relative gradient at
(W, b). The update of b leaves out its part in b. This changes the path but not the limit, where h = 0.

Choices where the papers are incomplete:
- "Check upper bound and perform learning rate adjustment": the rule is not given. When an entry of W exceeds
  `Settings.upper_bound`, the run starts again from W = I with half the step.
- DP-djICA prints G without dividing by the number of time points, and I where N I belongs. At its step this diverges in
  the first round. The mean is taken, as in capeDJICA.
- DP-djICA calls the reduced data whitened, but neither paper's reduction whitens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel import amounts
from zerosum.statistics.published import InfomaxGradient

Reals = NDArray[np.floating[Any]]

CLIP = 30.0  # B_G, clip of the gradient of a time point
ROUND_DELTA = 1e-2  # delta of one round (capeDJICA, section V); the total has another delta
_BLOCK = 4096  # time points per block, so that a block fits in the cache


@dataclass(frozen=True)
class Settings:
    """Settings of a run; the defaults are those of the papers."""

    rounds: int = 1000
    step: float | None = None  # None: 0.015/log R
    tolerance: float = 1e-6  # stop when the squared spectral norm of a change of W is below
    upper_bound: float = 1e8
    clip: float = CLIP  # clip of a time point's G in Frobenius norm; of its h, the square root
    delta: float = ROUND_DELTA  # delta of one round

    def first_step(self, R: int) -> float:
        """Initial step for R components."""
        return 0.015 / math.log(R) if self.step is None else self.step


# The papers' settings.
PAPERS = Settings()


class Ascent:
    """The gradient ascent from W = I and b = 0, one `move` a round.

    Attributes
    ----------
    W, b : arrays of shape (R, R) and (R,)
        Unmixing matrix and bias.
    rounds : int
        Rounds made, the number to account for.
    finished : bool
        Whether all rounds are made or a change fell below the tolerance.
    """

    def __init__(self, R: int, settings: Settings) -> None:
        self._settings, self._step = settings, settings.first_step(R)
        self.W, self.b = np.eye(R), np.zeros(R)
        self.rounds, self.finished = 0, False

    def move(self, G: Floats, h: Floats) -> None:
        """One round along the gradients G (R, R) and h (R,)."""
        self.rounds += 1
        # DP-djICA, Algorithm 3, lines 11 to 13, and the last lines of Algorithm 4 of capeDJICA.
        change = self._step * G
        # The restart rule for divergence; see the module's docstring.
        if not np.all(np.isfinite(change)) or np.max(np.abs(self.W + change)) > self._settings.upper_bound:
            self.W, self.b, self._step = np.eye(len(self.b)), np.zeros(len(self.b)), self._step / 2
        else:
            self.W, self.b = self.W + change, self.b + self._step * h
            # The stopping rule of both algorithms, on the squared spectral norm of the step. With the papers' noise on
            # G a step is longer than that, and all rounds are made.
            self.finished = float(np.linalg.norm(change, 2)) ** 2 < self._settings.tolerance
        self.finished = self.finished or self.rounds >= self._settings.rounds


def plain_gradient(statistic: InfomaxGradient, units: Units) -> Floats:
    """The sum of an `InfomaxGradient` over units in plain arithmetic, in the precision of the rows.

    No R x R matrix per time point is needed: norm((I + y z') W)^2 = norm(W)^2 + 2 y'Qz + norm(y)^2 z'Qz with Q = W W'.
    """
    rows = units.rows
    W, V, R, kind = statistic.unmixing, statistic.projection, statistic.sources, rows.dtype
    filters = (W.T if V is None else V @ W.T).astype(kind)
    b, Q, own = statistic.bias.astype(kind), (W @ W.T).astype(kind), float(np.sum(W * W))
    clip, root = statistic.clip, math.sqrt(statistic.clip)
    # Each unit weighs 1. The weights of its rows are exactly 1 until the end where all units have as many rows.
    mean = len(rows) / len(units)
    weights = (units.row_weights(np.empty(0)) * mean).astype(kind)
    outer, fraction, h = np.zeros((R, R)), 0.0, np.zeros(R)
    for start in range(0, len(rows), _BLOCK):
        weight = weights[start : start + _BLOCK]
        z = rows[start : start + _BLOCK] @ filters + b
        # y = 1 - 2 g(z) with the logistic g (Algorithm 4, line 7) is -tanh(z/2), which does not overflow.
        y = np.tanh(z * kind.type(-0.5))
        Qz, size = z @ Q, np.einsum("ni,ni->n", y, y)
        squared = own + 2 * np.einsum("ni,ni->n", y, Qz) + size * np.einsum("ni,ni->n", z, Qz)
        # Algorithm 4, line 8: divide by max(1, norm/B_G). Rounding can make a squared norm near 0 negative.
        factor = clip / np.maximum(clip, np.sqrt(np.maximum(squared, 0))) * weight
        fraction += float(factor.sum())
        h += y.T @ (root / np.maximum(root, np.sqrt(size)) * weight)
        y *= factor[:, None]
        outer += y.T @ z
    return np.concatenate([np.ravel(fraction * W + outer @ W) / clip, h / root]) / mean


def dp_djica(
    sites: Sequence[Reals],
    epsilon: float,
    rng: np.random.Generator,
    settings: Settings = PAPERS,
    ambient: int | None = None,
) -> Ascent:
    """DP-djICA, Algorithm 3: Laplace noise norm(W)_1/epsilon on every entry of z in every round.

    **Not private as a whole**: see `zerosum.papers.methods.reduction.NOT_PRIVATE`. The iteration alone protects a time
    point, not a person, and only for rows of norm at most 1/(2 sqrt(D)), with D columns before reduction (`ambient`;
    default R). The rows are divided by the largest norm of all sites, which is not private; W unmixes the divided rows.
    There is no delta and no clip.
    """
    R = _columns(sites)
    amounts.check_epsilon(epsilon)
    bound = 1 / (2 * math.sqrt(R if ambient is None else ambient))
    largest = max(float(np.sqrt(np.max(np.einsum("ni,ni->n", rows, rows)))) for rows in sites)
    if not largest > 0:
        raise BadData("all rows are zero")
    total = sum(len(rows) for rows in sites)
    ascent = Ascent(R, settings)
    while not ascent.finished:
        # Algorithm 3, line 4. numpy's 1-norm of a matrix is the largest column sum, which is how far W moves a vector
        # of L1 norm 1 (DP-djICA, equations 7 to 9).
        spread = float(np.linalg.norm(ascent.W, 1)) / epsilon
        outer, h = np.zeros((R, R)), np.zeros(R)
        for rows in sites:
            for start in range(0, len(rows), _BLOCK):
                # The rows are scaled in W and not in memory: all volumes of a figure are several gigabytes.
                z = rows[start : start + _BLOCK] @ (bound / largest * ascent.W.T) + ascent.b
                z += rng.laplace(0.0, spread, z.shape)
                y = -np.tanh(z / 2)
                outer += y.T @ z
                h += y.sum(axis=0)
        # The mean over time points of (I + y z') W; the identity gives W itself, and needs no sum.
        ascent.move(ascent.W + outer @ ascent.W / total, h / total)
    return ascent


def _columns(sites: Sequence[Reals]) -> int:
    """Number of columns. Raises `BadData` for empty or inconsistent sites."""
    if not sites or any(rows.ndim != 2 or len(rows) == 0 for rows in sites):
        raise BadData("every site must have rows, one time point each")
    columns = {rows.shape[1] for rows in sites}
    if len(columns) > 1 or max(columns) < 2:
        raise BadData(f"all sites must have the same columns, at least two, got {sorted(columns)}")
    return int(columns.pop())
