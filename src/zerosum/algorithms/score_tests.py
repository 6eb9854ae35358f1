"""Score tests on noisy sums: laws under the null hypothesis with the privacy noise counted.

Model
-----
A release holds noisy sums of groups g = 1..G. A test forms scores U_g: what a group's sum has beyond its expectation
under the null hypothesis, with nuisance parameters (a common mean, ranks, margins) taken from the same release. The
scores add up to 0. With p_g the share of group g and z_g its sum about the null value,

    U = A z,    A = I - p 1',    Cov U = A (V + E) A',    W = U' (Cov U)^- U.

V (G, G) is the sampling covariance under the null hypothesis and E the covariance of the known privacy noise. W is
chi-squared with G - 1 degrees of freedom to first order. The score form is used and not Wald's ratio of a difference
and its error for two reasons. No noisy count is a divisor. The variance about the null value is linear in the noisy
sums, so that it has no bias. Its law is near the normal one for small numbers too: for 10 units without noise the score
form of Student's test rejects in 4.1 % of cases at the level of 5 % of the normal law (Student: 5 %).

Tables of counts may have cells with few units. Their law is drawn: tables with the released margins, noise added,
scores formed anew from each (parametric bootstrap).

Free post-processing of released numbers. References: Rao 1948 (score tests); Gaboardi et al. 2016 (chi-squared tests
with noise); Schuirmann 1987 (equivalence).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zerosum.arrays import Floats

Alternative = Literal["two-sided", "less", "greater"]

# Tables drawn for the law of a table's statistic. The standard error of a p value of 0.05 is then 0.003. Chosen by
# hand.
DRAWS = 4999
# Fewest drawn tables beyond the observed one for a p value that is their share; below, the chi-squared tail is used.
# Chosen by hand.
_EXCEEDING_LEAST = 10
# Seed of these draws: a fixed one, so that a repeated evaluation of an archived release has the same p value.
_SEED = 33
# Largest number of scores of a drawn table: the time grows with its cube. Larger tables take the chi-squared law.
# Chosen by hand.
_SCORES_MOST = 20
# Smallest number of units of a test of groups in standard deviations of its noise, where the number is not public.
# Chosen by hand.
_TOTAL_LEAST = 3.0
# Smallest eigenvalue of a covariance matrix that counts, over the largest. A numerical guard.
_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of groups with their covariance under the null hypothesis, and how the scores grow with an effect."""

    value: Floats  # (G,); for one sample (1,)
    covariance: Floats  # (G, G), sampling and noise
    growth: Floats  # (G, G), derivative of the scores by the groups' means
    free: int  # degrees of freedom

    def statistic(self) -> float:
        """W, chi-squared with `free` degrees of freedom under the null hypothesis; 0 where the scores cannot vary."""
        return float(self.value @ _inverse(self.covariance) @ self.value)

    def standard(self) -> float:
        """The score of the last group over its standard deviation; with one degree of freedom its square is W."""
        std = math.sqrt(max(float(self.covariance[-1, -1]), 0.0))
        return float(self.value[-1]) / std if std > 0 else 0.0

    def p_value(self, alternative: Alternative) -> float:
        """The p value; a directed alternative needs one degree of freedom.

        Parameters
        ----------
        alternative : {"two-sided", "less", "greater"}
            "greater": the last group, or the only sample, has a larger mean.
        """
        if alternative == "two-sided":
            return chi_squared_tail(self.statistic(), self.free)
        return normal_tail(self.standard() if alternative == "greater" else -self.standard())

    def power(self, effect: float, level: float, alternative: Alternative) -> float:
        """Probability of a p value of at most `level` where the means differ.

        Parameters
        ----------
        effect : float
            Difference of the two groups' means, or of a sample's from the null value. With more groups, twice the
            standard deviation of their means, on average over all directions.
        level : float
            Level of the test.
        alternative : {"two-sided", "less", "greater"}
            As in `p_value`. A directed alternative has the power for an effect in its direction.
        """
        groups = len(self.value)
        # E[m m'] of means with standard deviation effect/2 in a random direction; of a single sample the effect itself.
        means = np.full((1, 1), effect**2)
        if groups > 1:
            means = (effect / 2) ** 2 * groups / (groups - 1) * (np.eye(groups) - 1 / groups)
        shift = float(np.trace(_inverse(self.covariance) @ self.growth @ means @ self.growth.T))
        return noncentral_power(shift, self.free, level, directed=alternative != "two-sided")


def noncentral_power(shift: float, free: int, level: float, *, directed: bool = False) -> float:
    """Probability that a chi-squared test of a level rejects.

    Parameters
    ----------
    shift : float
        Noncentrality: squared effect over its variance.
    free : int
        Degrees of freedom.
    level : float
        Level of the test.
    directed : bool
        Whether the test is for one direction, that of the effect; needs one degree of freedom.

    >>> round(noncentral_power(7.849, 1, 0.05), 3)
    0.8
    """
    from scipy.special import chdtri, chndtr, ndtr, ndtri

    if directed:
        return float(ndtr(math.sqrt(max(shift, 0.0)) + ndtri(level)))
    return 1 - float(chndtr(chdtri(free, level), free, max(shift, 0.0)))


def chi_squared_tail(statistic: float, free: int) -> float:
    """Upper tail of a chi-squared variable.

    >>> round(chi_squared_tail(3.841, 1), 3)
    0.05
    """
    from scipy.special import gammaincc  # heavy: loaded when it is used

    return float(gammaincc(free / 2, max(statistic, 0.0) / 2))


def normal_tail(z: float) -> float:
    """Upper tail of a standard normal variable.

    >>> round(normal_tail(1.645), 3)
    0.05
    """
    return 0.5 * math.erfc(z / math.sqrt(2))


def _inverse(covariance: Floats) -> Floats:
    """Pseudo-inverse of a symmetric matrix; directions without variance are left out."""
    return np.asarray(np.linalg.pinv(covariance, rcond=_RANK_TOLERANCE, hermitian=True))


# ---- means -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Noisy numbers of units, sums and sums of squares of values in [-1, 1] by group, and the noise of each."""

    counts: Floats  # (G,)
    sums: Floats  # (G,)
    squares: Floats  # (G,), of x^2
    count_noise: Floats  # (G, G), covariance
    sum_noise: float  # variance of a sum
    square_noise: float  # variance of (Q_g), the released sum of 2 x^2 - 1

    @property
    def total(self) -> float:
        """The number of units, at least 1."""
        return max(float(np.sum(self.counts)), 1.0)


def mean_scores(
    groups: GroupSums, *, equal_variances: bool, apart: Floats | None = None, null: float | None = None
) -> Scores:
    """Scores of the hypothesis that the means of groups differ by given numbers, or that one mean has a given value.

    Under the null hypothesis the mean of group g is m_g = m + a_g. The common m is estimated as sum (S_g - a_g n_g)/n.
    Then z_g = S_g - m_g n_g, with sampling variance SS_g = X_g - 2 m_g S_g + m_g^2 n_g (X_g the sum of squares), and
    noise variance var(S_g) + m_g^2 var(n_g).

    Parameters
    ----------
    groups : GroupSums
        The sums of one column.
    equal_variances : bool
        Whether one variance is estimated for all groups (Student, ANOVA) or one for each (Welch).
    apart : array of shape (G,), optional
        a_g; 0 by default.
    null : float, optional
        The null value of m, which is then not estimated: the test of one sample.
    """
    count, total = len(groups.counts), groups.total
    shift = np.zeros(count) if apart is None else apart
    common = null
    if common is None:
        # A private number of units that its noise hides gives no common mean, and the scores say nothing.
        if total < _TOTAL_LEAST * math.sqrt(max(float(np.sum(groups.count_noise)), 0.0)):
            return Scores(np.zeros(count), np.eye(count), np.zeros((count, count)), count - 1)
        common = float(np.clip(np.sum(groups.sums - shift * groups.counts) / total, -1, 1))
    mean = common + shift
    about = groups.sums - mean * groups.counts
    spread = groups.squares - 2 * mean * groups.sums + mean**2 * groups.counts
    share = np.maximum(groups.counts, 0.0)
    share = share / np.sum(share) if np.sum(share) > 0 else np.full(count, 1 / count)
    if equal_variances or count == 1:
        # The estimated common mean takes one degree of freedom; a null value takes none.
        free = total if null is not None else max(total - 1, 1.0)
        spread = max(float(np.sum(spread)), 0.0) * total / free * share
    else:
        # One degree of freedom of each group, as the group's own mean would take; at least two units.
        own = np.maximum(share * total, 2.0)
        spread = spread * own / (own - 1)
    spread = np.maximum(spread, 0.0)
    # The square of an estimated mean is too large by the variance of its noise, which is subtracted.
    blur = 0.0 if null is not None else count * groups.sum_noise / total**2
    squared = np.outer(mean, mean) - min(blur, float(np.min(mean**2)))
    covariance = np.diag(spread + groups.sum_noise) + squared * groups.count_noise
    if null is not None:
        return Scores(about, covariance, np.diag(groups.counts), 1)
    # The estimated common mean makes the sum over groups 0. By its formula a score has the noise of its own sum less
    # the group's share of that of all sums. The share is the noisy one, which may lie outside 0 to 1: given the noisy
    # counts, this is the exact covariance of the noise of the sums.
    noisy = groups.counts / np.sum(groups.counts) if np.sum(groups.counts) >= 1 else share
    leave = np.eye(count) - np.outer(noisy, np.ones(count))
    growth = leave @ np.diag(np.maximum(groups.counts, 0.0))
    return Scores(leave @ about, leave @ covariance @ leave.T, growth, count - 1)


# ---- ranks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BinNoise:
    """Noise of histograms by group: independent between groups, or conditioned on the total of all groups and bins."""

    covariance: Floats  # (bins, bins), of one group without the condition, for noise of variance 1
    variance: float
    groups: int
    total_known: bool

    def of(self, weights: Floats) -> Floats:
        """Covariance of the weighted sums of the groups, shape (groups, groups).

        Parameters
        ----------
        weights : array of shape (bins,)
            The same for all groups.
        """
        along = np.sum(self.covariance, axis=1)
        form = np.eye(self.groups) * float(weights @ self.covariance @ weights)
        if self.total_known:
            # Conditioning on the sum takes away the part of the noise along it.
            form = form - float(weights @ along) ** 2 / (self.groups * float(np.sum(along)))
        return np.asarray(self.variance * form)


def rank_scores(histograms: Floats, noise: BinNoise, pooled: Floats) -> Scores:
    """Scores of the hypothesis that all groups have one distribution, from mean ranks (Mann-Whitney, Kruskal-Wallis).

    The score of bin b is f_b, the share of all units below it plus half of its own. Group g has z_g = sum over b of
    (f_b - 1/2) h_gb, about the mean of f, and sampling variance n_g times that of f over all units.

    Parameters
    ----------
    histograms : array of shape (G, bins)
        Noisy, unbiased counts.
    noise : BinNoise
        Their noise.
    pooled : array of shape (bins,)
        Non-negative counts of all units.
    """
    count, whole = len(histograms), max(float(np.sum(pooled)), 1e-300)
    ranks = middle_ranks(pooled)
    ranks = ranks - float(ranks @ pooled) / whole
    variance = float(ranks**2 @ pooled) / whole
    sizes = np.maximum(np.sum(histograms, axis=1), 0.0)
    share = sizes / np.sum(sizes) if np.sum(sizes) > 0 else np.full(count, 1 / count)
    covariance = np.diag(share * whole * variance) + noise.of(ranks)
    leave = np.eye(count) - np.outer(share, np.ones(count))
    growth = leave @ np.diag(share * whole)
    return Scores(leave @ histograms @ ranks, leave @ covariance @ leave.T, growth, count - 1)


def signed_rank_scores(histogram: Floats, noise: BinNoise, pooled: Floats) -> Scores:
    """Scores of the hypothesis of symmetry about the middle of an odd number of bins (Wilcoxon's signed ranks).

    A bin at distance d from the middle has the rank f_d of its distance, and its counts enter with the sign of the
    side. Units in the middle bin do not count. Under symmetry the sign is independent of the distance: the sampling
    variance is sum over b of f_b^2 h_b.

    Parameters
    ----------
    histogram : array of shape (bins,)
        Noisy, unbiased counts; bins is odd.
    noise : BinNoise
        Their noise, of one group.
    pooled : array of shape (bins,)
        Non-negative counts.
    """
    half = len(histogram) // 2
    distance = pooled[half + 1 :] + pooled[:half][::-1]
    ranks = middle_ranks(distance)
    signed = np.concatenate([-ranks[::-1], [0.0], ranks])
    variance = float(signed**2 @ pooled) + float(noise.of(signed)[0, 0])
    weight = float(np.sum(np.abs(signed) * pooled))
    return Scores(np.array([float(signed @ histogram)]), np.array([[variance]]), np.array([[weight]]), 1)


def middle_ranks(counts: Floats) -> Floats:
    """The share of units below a bin plus half of its own share, (bins,); 1/2 in all bins where no unit is.

    >>> middle_ranks(np.array([1.0, 2.0, 1.0])).tolist()
    [0.125, 0.5, 0.875]
    """
    total = float(np.sum(counts))
    if total <= 0:
        return np.full(len(counts), 0.5)
    return np.asarray((np.cumsum(counts) - counts / 2) / total)


# ---- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TableTest:
    """Result of a chi-squared test of a table."""

    statistic: float
    free: int
    p_value: float
    weight: float  # noncentrality for Cohen's w = 1: w^2 times this number, on average over all directions


def table_test(table: Floats, noise: float, units: float | None, expected: Floats | None = None) -> TableTest:
    """Test of independence of rows and columns of a noisy table, or of given shares of the columns of one row.

    With row shares p, column shares q and N units the scores are U = A O B' for A = I - p 1' and B = I - q 1'. Their
    covariance is N (D_p - p p') x (D_q - q q') + s^2 A A' x B B', x the Kronecker product. Given shares are not
    estimated; there is one row, and A is 1.

    Parameters
    ----------
    table : array of shape (G, L)
        Noisy counts.
    noise : float
        s, the standard deviation of the noise of a count.
    units : float, optional
        The public number of units in the table; None: the sum of the table.
    expected : array of shape (L,), optional
        Shares of the columns under the null hypothesis, for a table of one row.
    """
    total = max(float(np.sum(table)) if units is None else units, 1.0)
    size = (max(table.shape[0] - 1, 1)) * (table.shape[1] - 1)
    rows, columns = _margins(table[None], expected)
    observed, scores, weight = _table_statistics(table[None], rows, columns, total, noise)
    tail = chi_squared_tail(float(observed[0]), size)
    result = TableTest(float(observed[0]), size, tail, float(weight[0]))
    if size > _SCORES_MOST or scores == 0:
        return result
    rng = np.random.default_rng(_SEED)
    chance = np.outer(rows[0], columns[0]).ravel()
    counts = rng.multinomial(round(total), chance / np.sum(chance), DRAWS).reshape(-1, *table.shape)
    drawn = counts + noise * rng.standard_normal(counts.shape)
    own = _margins(drawn, expected)
    whole = np.full(DRAWS, total) if units is not None else np.maximum(np.sum(drawn, axis=(1, 2)), 1.0)
    law = _table_statistics(drawn, *own, whole, noise)[0]
    # The statistic of an exact table is discrete: a tie counts as beyond, up to rounding.
    beyond = int(np.sum(law >= result.statistic * (1 - 1e-9)))
    p = (1 + beyond) / (1 + DRAWS)
    if beyond < _EXCEEDING_LEAST:
        # Too few draws lie beyond for their share to be a p value: the chi-squared tail, but not above the bound that
        # the draws give.
        p = min(tail, (1 + _EXCEEDING_LEAST) / (1 + DRAWS))
    return TableTest(result.statistic, size, p, result.weight)


def _margins(tables: Floats, expected: Floats | None) -> tuple[Floats, Floats]:
    """Shares of rows (n, G) and of columns (n, L) of noisy tables (n, G, L): the nearest non-negative ones.

    Parameters
    ----------
    tables : array of shape (n, G, L)
        Noisy counts.
    expected : array of shape (L,), optional
        Given shares of the columns, which are then not estimated.
    """
    rows, columns = np.maximum(np.sum(tables, axis=2), 0.0), np.maximum(np.sum(tables, axis=1), 0.0)
    if expected is not None:
        columns = np.broadcast_to(expected, columns.shape)
    totals = [np.sum(each, axis=1, keepdims=True) for each in (rows, columns)]
    rows, columns = (
        np.where(total > 0, each / np.where(total > 0, total, 1.0), 1 / each.shape[1])
        for each, total in zip((rows, columns), totals, strict=True)
    )
    return rows, columns


def _table_statistics(
    tables: Floats, rows: Floats, columns: Floats, total: Floats | float, noise: float
) -> tuple[Floats, int, Floats]:
    """Statistics of tables.

    Parameters
    ----------
    tables : array of shape (n, G, L)
        Noisy counts.
    rows, columns : arrays of shape (n, G) and (n, L)
        Shares under the null hypothesis.
    total : array of shape (n,) or float
        Number of units.
    noise : float
        Standard deviation of the noise of a count.

    Returns
    -------
    statistics : array of shape (n,)
    scores : int
        Number of scores; 0 if nothing can vary.
    weight : array of shape (n,)
        Noncentrality for Cohen's w = 1.
    """
    whole = np.broadcast_to(np.asarray(total, dtype=np.float64), len(tables))
    (cells, across), (levels, along) = _factor(rows, len(rows[0]) > 1), _factor(columns, True)
    # Both factors have the same contrasts Z of the sampling covariance D - s s' and of the noise, so that the scores
    # have the covariance N (Z_r S_r Z_r') x (Z_c S_c Z_c') + noise^2 (...).
    scores = np.einsum("nag,ngl,nbl->nab", across[0], tables, along[0]).reshape(len(tables), -1)
    size = cells * levels
    sampling = np.einsum("nac,nbd->nabcd", across[1], along[1]).reshape(len(tables), size, size)
    sampling = whole[:, None, None] * sampling
    blur = np.einsum("nac,nbd->nabcd", across[2], along[2]).reshape(len(tables), size, size)
    covariance = sampling + noise**2 * blur
    # A table without noise may have an empty row or column, whose scores cannot vary: they are left out.
    inverse = np.linalg.pinv(covariance, rcond=_RANK_TOLERANCE, hermitian=True)
    statistics = np.einsum("na,nab,nb->n", scores, inverse, scores)
    weight = np.einsum("nab,nba->n", inverse[:1], sampling[:1]) / size * whole[:1]
    return np.maximum(statistics, 0.0), size, weight


def _factor(shares: Floats, several: bool) -> tuple[int, tuple[Floats, Floats, Floats]]:
    """One margin: contrasts of its scores, their sampling covariance, and that of their noise.

    Parameters
    ----------
    shares : array of shape (n, m)
        s, under the null hypothesis.
    several : bool
        Whether scores are about the margin; a single row is a sum and has no contrasts.

    Returns
    -------
    count : int
        Number of contrasts.
    parts : tuple of arrays
        Contrasts (n, count, m), and both covariances (n, count, count).
    """
    n, m = shares.shape
    if not several:
        one = np.ones((n, 1, 1))
        return 1, (np.ones((n, 1, m)), one, one)
    leave = np.eye(m)[None] - shares[:, :, None]
    # The scores add up to 0: the first is left out.
    contrast = leave[:, 1:, :]
    sampling = np.einsum("nl,lk->nlk", shares, np.eye(m)) - np.einsum("nl,nk->nlk", shares, shares)
    return m - 1, (contrast, sampling[:, 1:, 1:], contrast @ np.swapaxes(contrast, 1, 2))
