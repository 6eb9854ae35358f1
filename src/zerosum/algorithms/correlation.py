"""Correlations of columns with intervals and tests: Pearson's, Spearman's, and partial ones.

Model
-----
With rows x in half ranges (p numbers), the release holds the sums of x x' and of x (`SecondMoment`). Let m be the mean,
C the covariance, E the noise of the second moment (isometric: variance s^2 on the diagonal and s^2/2 off it), e that of
the mean (variance t^2 in each entry). For vectors u, v

    u'Cv has noise u'Ev - (u'm)(e'v) - (v'm)(e'u) + smaller terms.                                                (1)

The partial correlation of columns i and j given columns Z is that of the residuals u_i'x, with u_i = e_i - sum over Z
of b_z e_z for the least squares coefficients b. It is u_i'C u_j over the root of the two residual variances. To first
order the noise of b drops out. Without Z it is Pearson's correlation.

Spearman's correlation is Pearson's of ranks. A first release gives the distribution function of each column between
public bins (`GroupedRanks`). The second one has the second moments of its values (`RankMoment`). A rank of a noisy
distribution function is a rising curve of the value, so that its noise changes the correlation to second order only.

Variances of (1), with |u|^2 = u'u, are for the pair u, v

    s^2/2 (|u|^2 |v|^2 + (u'v)^2) + t^2 ((u'm)^2 |v|^2 + (v'm)^2 |u|^2 + 2 (u'm)(v'm) u'v),

since a symmetric matrix E of isometric noise has E[(u'Ev)^2] = s^2 |(uv' + vu')/2|^2. Where the number of units is
private, all sums are divided by a noisy number: its relative noise times u'Cv - (u'm)(v'm) is added.

P values are score tests of zero correlation: the sampling variance of u_i'C u_j is then the product of the two residual
variances over n. Intervals for the population add the sampling variance on Fisher's scale, 1/(n - 3 - |Z|), times 1 +
r^2/2 for ranks (Bonett and Wright 2000). All of this is free post-processing.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.intervals import ENDS, Z, within
from zerosum.algorithms.program import Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.quantiles import non_negative_counts
from zerosum.algorithms.score_tests import normal_tail
from zerosum.arrays import Floats
from zerosum.kernel.missing import OWN_ROWS
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.significance import Correction, adjusted_pairs
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.groups import MOST_BINS, GroupedRanks
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.rank_moments import RankMoment

# Bins of a distribution function where the noise is not known; the fewest and the most that the planner chooses. Chosen
# by hand.
_BINS, _FEWEST, _MANY = 64, 16, 256
# Weight of first moments as a share of the clip, as in `covariance`.
_MEAN_WEIGHT = 0.5


class CorrelationProgram(RangedAlgorithm):
    """Correlations of all pairs of columns, or partial ones given other columns, with intervals and p values.

    Results, (columns, columns) without those of `given`: `correlation` with the standard deviation that privacy adds
    (1: unknown), `correlation_interval` for the pooled data and `correlation_population_interval` for the population
    (95 %), `p_value` of the hypothesis of no correlation, and `p_adjusted` with a correction. Partial correlations are
    attenuated by the noise in the columns of `given` where that noise is not small beside their variances.

    Parameters
    ----------
    method : {"pearson", "spearman"}
        Of the values, or of their ranks between public bins.
    given : tuple of str
        Columns whose linear effect is removed from all others.
    rank_share : float
        Share of the budget for the distribution functions, with "spearman".
    bins : int, optional
        Number of bins of a distribution function; the planner's choice if not given.
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment for the number of pairs.
    """

    name: ClassVar[str] = "correlation"
    method: Literal["pearson", "spearman"] = "pearson"
    given: tuple[str, ...] = ()
    rank_share: float = Field(default=0.3, gt=0, lt=1)
    bins: int | None = Field(default=None, ge=2, le=MOST_BINS)
    correction: Correction = "none"

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        """Refuse fewer than two columns, unknown columns in `given`, and rules that ranks do not have."""
        if strangers := [name for name in self.given if name not in self.columns]:
            raise ValueError(f"given names {strangers[0]!r}, which is not one of the columns")
        if len(self.related) < 2:
            raise ValueError("columns must have two or more besides those of given")
        if self.lower is None:
            raise ValueError("lower and upper are required: public ranges of all columns")
        if self.method == "spearman" and OWN_ROWS in self.rules.values():
            raise ValueError("missing must be a number with method = 'spearman': ranks have no rule 'own-rows'")
        return self

    @property
    def related(self) -> tuple[str, ...]:
        """The columns whose correlations are computed."""
        return tuple(name for name in self.columns if name not in self.given)

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the number of bins: a bin holds about the noise of a cumulative count, for units spread evenly."""
        if self.method == "pearson" or self.bins is not None:
            return self
        if facts.units is None or facts.noise == 0:
            return self.model_copy(update={"bins": _BINS})
        # `GroupedRanks` has a sensitivity of sqrt(2 columns); the factor 2.2 is `_RANK_NOISE` of `quantiles`.
        noise = 2.2 * facts.noise * math.sqrt(2 * len(self.columns) / self.rank_share)
        wanted = min(max(facts.units / noise, _FEWEST), _MANY)
        return self.model_copy(update={"bins": int(2 ** round(math.log2(wanted)))})

    @property
    def describe(self) -> str:
        """The method, for the plan."""
        partial = f", given {', '.join(self.given)}" if self.given else ""
        bins = f"; {self.bins} bins in a column for a share of {self.rank_share:g}" if self.method == "spearman" else ""
        return f"{self.method} correlations of {len(self.related)} columns{partial}{bins}"

    @property
    def ranks(self) -> GroupedRanks:
        """The statistic of the distribution functions."""
        assert self.lower is not None  # noqa: S101  # checked by `_columns_fit`
        assert self.upper is not None  # noqa: S101
        ends = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
        edges = tuple(np.linspace(low, high, (self.bins or _BINS) + 1) for low, high in ends)
        count = len(self.columns)
        return GroupedRanks(
            columns=count, positions=tuple(range(count)), edges=edges, fill=self.filling.get("fill", ())
        )

    def moments(self, adjacency: Adjacency, heights: Floats | None = None) -> SecondMoment:
        """The statistic of the second moments, of ranks if `heights` are given.

        Parameters
        ----------
        adjacency : Adjacency
            Under add/remove neighbours the release also counts the units.
        heights : array of shape (columns, bins + 1), optional
            Curve of each column at its edges, from -1 to 1: 2 F - 1 of a distribution function F.
        """
        weight = _MEAN_WEIGHT * self.radius
        common = {**self.bounds, "mean_weight": weight, "count": adjacency is Adjacency.ADD_REMOVE}
        return SecondMoment(**common) if heights is None else RankMoment(**common, heights=heights)

    @property
    def _straight(self) -> Floats | None:
        """Curves that leave values as they are, as a template; None without ranks."""
        if self.method == "pearson":
            return None
        return np.tile(np.linspace(-1, 1, (self.bins or _BINS) + 1), (len(self.columns), 1))

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The distribution functions (with ranks), and the second moments."""
        if self.method == "pearson":
            return (PrivateSum(self.moments(adjacency)),)
        moments = PrivateSum(self.moments(adjacency, self._straight), 1 - self.rank_share)
        return PrivateSum(self.ranks, self.rank_share), moments

    def program(self, adjacency: Adjacency) -> Program:
        """One or two releases, then the correlations of all pairs."""
        heights = None
        if self.method == "spearman":
            release = yield PrivateSum(self.ranks, self.rank_share)
            tables = self.ranks.split(release.value)
            heights = np.stack([_distribution(table[0], release.units) for table in tables])
        statistic = self.moments(adjacency, heights)
        release = yield PrivateSum(statistic, 1.0 if heights is None else 1 - self.rank_share)
        second, first, counted = statistic.split(release.value)
        units = release.units if release.units is not None else max(counted or 1.0, 1.0)
        noise = release.noise_std / units
        mean_noise = noise / (math.sqrt(2) * statistic.mean_weight)
        count_noise = 0.0 if counted is None else noise / statistic.mean_weight**2
        mean = np.zeros(len(self.columns)) if first is None else first / units
        # E[m m'] exceeds the square of the mean by the variance of its noise: added back
        covariance = second / units - np.outer(mean, mean) + mean_noise**2 * np.eye(len(mean))
        tested = [self.columns.index(name) for name in self.related]
        controls = [self.columns.index(name) for name in self.given]
        pairs = Pairs(covariance, mean, noise, mean_noise, count_noise, tested, controls)
        return self._quantities(pairs, units)

    def _quantities(self, pairs: Pairs, units: float) -> dict[str, Quantity]:
        """Correlations, intervals and p values as quantities.

        Parameters
        ----------
        pairs : Pairs
            Covariances of the residuals and their noise; k columns are related.
        units : float
            Number of units, public or released.
        """
        count = len(pairs.residuals)
        axis = Axis("column", self.related)
        # Fisher 1921; each control takes one degree of freedom (Fisher 1924).
        free = max(units - 3 - len(self.given), 1.0)
        value, std = pairs.correlation
        point = np.clip(value, -1, 1)
        side = Z * std
        pooled = within(np.stack([value - side, value + side], axis=-1), value, point, -1.0, 1.0)
        # Fisher's scale has a variance that hardly depends on the correlation; 0.9999 keeps its end finite.
        spread = (1 + point**2 / 2 if self.method == "spearman" else 1.0) / free
        center = np.arctanh(np.clip(point, -0.9999, 0.9999))
        sampled = np.tanh(np.stack([center - Z * np.sqrt(spread), center + Z * np.sqrt(spread)], axis=-1))
        # Sampling error and privacy noise are independent: the squares of their distances add up on each side.
        below, above = np.hypot(point - sampled[..., 0], side), np.hypot(sampled[..., 1] - point, side)
        population = np.clip(np.stack([point - below, point + above], axis=-1), -1, 1)
        own = np.eye(count, dtype=bool)
        pooled[own], population[own] = 1.0, 1.0
        p = np.where(own, 0.0, pairs.p_values(max(units - len(self.given), 1.0)))
        quantities = {
            "correlation": Quantity(np.where(own, 1.0, point), "covariance", (axis, axis), np.where(own, 0.0, std)),
            "correlation_interval": Quantity(pooled, "number", (axis, axis, ENDS)),
            "correlation_population_interval": Quantity(population, "number", (axis, axis, ENDS)),
            "p_value": Quantity(p, "diagnostic", (axis, axis)),
        }
        if self.correction != "none":
            quantities["p_adjusted"] = Quantity(adjusted_pairs(p, self.correction), "diagnostic", (axis, axis))
        return quantities


class Pairs:
    """Correlations of residuals of all pairs of columns, from a noisy covariance matrix.

    Parameters
    ----------
    covariance : array of shape (p, p)
        C, noisy and unbiased.
    mean : array of shape (p,)
        m, noisy.
    noise, mean_noise, count_noise : float
        s and t of the module docstring, and the standard deviation of the number of units over that number.
    tested, controls : list of int
        The columns that are related, and those whose effect is removed.
    """

    def __init__(
        self,
        covariance: Floats,
        mean: Floats,
        noise: float,
        mean_noise: float,
        count_noise: float,
        tested: list[int],
        controls: list[int],
    ) -> None:
        self.mean, self.noise, self.mean_noise, self.count_noise = mean, noise, mean_noise, count_noise
        self.residuals = np.eye(len(mean))[tested]  # (k, p), the vectors u_i
        self._adjusted = True
        if controls:
            values, vectors = np.linalg.eigh(covariance[np.ix_(controls, controls)])
            # The edge of the noise of that covariance. A direction below it cannot be removed, and what it explains
            # would pass for a partial correlation (rejections at .05: up to 11 %). Then nothing is known.
            least = noise * math.sqrt(len(controls) / 2)
            self._adjusted = noise == 0 or bool(values[0] > least)
            inverse = np.where(values > least, 1 / np.where(values > least, values, 1.0), 0.0)
            slopes = covariance[np.ix_(tested, controls)] @ (vectors * inverse) @ vectors.T
            self.residuals[:, controls] = -slopes
        self.covariance = self.residuals @ covariance @ self.residuals.T  # (k, k)
        self._raw = covariance
        self._variance = self._variances()
        diagonal = np.diag(self.covariance)
        # A residual variance that does not differ from 0 by more than its noise leaves its correlations unknown.
        self.known = (diagonal > Z * np.sqrt(np.diag(self._variance))) & self._adjusted

    def _variances(self) -> Floats:
        """Variance of the noise of u_i'C u_j, by (1), shape (k, k)."""
        # (1): inner is u'v, length |u|^2, along u'm.
        inner = self.residuals @ self.residuals.T
        length = np.diag(inner)
        along = self.residuals @ self.mean
        matrix = self.noise**2 / 2 * (np.outer(length, length) + inner**2)
        means = self.mean_noise**2 * (
            np.outer(along**2, length) + np.outer(length, along**2) + 2 * np.outer(along, along) * inner
        )
        # The number of units divides the second moment and the square of the mean.
        counts = (self.covariance - np.outer(along, along)) ** 2 * self.count_noise**2
        return np.asarray(matrix + means + self.mean_noise**4 * np.outer(length, length) + counts)

    @property
    def correlation(self) -> tuple[Floats, Floats]:
        """Correlations before they are clipped, and the standard deviation of their noise, at most 1; (k, k) each.

        With x = u_i and y = u_j over the roots of their residual variances, a change E of C changes the correlation r
        by <E, M>, M = (x y' + y x')/2 - r (x x' + y y')/2. The variance of <E, M> is s^2 |M|^2, and the noise of the
        mean adds 4 t^2 |M m|^2.
        """
        diagonal = np.where(self.known, np.diag(self.covariance), 1.0)
        unit = self.residuals / np.sqrt(diagonal)[:, None]
        value = self.covariance / np.sqrt(np.outer(diagonal, diagonal))
        count = len(unit)
        std = np.ones((count, count))
        for i in range(count):
            for j in range(i):
                if not (self.known[i] and self.known[j]):
                    value[i, j] = value[j, i] = 0.0
                    continue
                x, y, r = unit[i], unit[j], float(np.clip(value[i, j], -1, 1))
                m = (np.outer(x, y) + np.outer(y, x)) / 2 - r / 2 * (np.outer(x, x) + np.outer(y, y))
                along = m @ self.mean
                variance = self.noise**2 * np.sum(m**2) + 4 * self.mean_noise**2 * along @ along
                # The noise of the count scales C alone, up to the mean, and drops out of the ratio there.
                variance += (self.count_noise * float(self.mean @ along)) ** 2
                std[i, j] = std[j, i] = min(math.sqrt(variance), 1.0)
        return value, std

    def p_values(self, units: float) -> Floats:
        """Two-sided p values of no correlation, (k, k).

        Parameters
        ----------
        units : float
            Number of units, less the number of controls.
        """
        own = np.maximum(np.diag(self.covariance), 0.0)
        std = np.sqrt(np.outer(own, own) / units + self._variance)
        # Under the null hypothesis the covariance of two residuals has the sampling variance v_i v_j/n.
        z = np.divide(np.abs(self.covariance), std, out=np.zeros_like(std), where=std > 0)
        z = np.where(self._adjusted, z, 0.0)
        return np.array([[min(2 * normal_tail(float(each)), 1.0) for each in row] for row in z])


def _distribution(noisy: Floats, units: float | None) -> Floats:
    """A curve from -1 to 1 at the edges of bins, from a release of `GroupedRanks`: 2 F - 1.

    Parameters
    ----------
    noisy : array of shape (bins,)
        Released R h.
    units : float, optional
        The public number of units.
    """
    counts = non_negative_counts(noisy, units)
    total = float(np.sum(counts))
    if total <= 0:
        return np.asarray(np.linspace(-1, 1, len(counts) + 1))
    rising = np.concatenate([[0.0], np.cumsum(counts)]) / total
    # Exactly from -1 to 1 and never falling, whatever the rounding.
    return np.asarray(np.maximum.accumulate(np.clip(2 * rising - 1, -1.0, 1.0)))
