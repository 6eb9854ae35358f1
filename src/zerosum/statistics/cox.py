"""Sums for Cox regression: moments of covariates, the table of exits, and stopped martingale residuals.

A row holds p features, then the entry time and the stratum if the statistic has these columns, then the time and the
code of the event. The row was at risk from its entry (0 without one) to its time. Codes are 0, ..., causes - 1; the
event of interest is `cause`, and all others end the observation. Times are clipped to the horizon, the last of the
public edges; a row that is observed beyond it is censored there. A row with a missing value, with another code, with a
stratum other than 0, ..., G - 1, or with a time not after its entry contributes zero.

Symbols. With public cumulative hazards L_g at the edges (linear between them) and public coefficients, a row of
stratum g with predictor eta has the expected number of events E = exp(eta) (L_g(time) - L_g(entry)), and its residual
is d - E. Consecutive bins of time form K parts; E is the sum of E_k over parts. Each feature v is in [-1, 1], and
z = W v + o with a public matrix W and vector o.

**Stopping.** If E exceeds the bound B, the row is censored at the time at which its expected number reaches B: d is set
to 0 and E to B. This time is fixed by the features and by public values, so that d - E keeps the mean zero given the
features at the true model (optional stopping). Clipping the residual instead would bias it.

**Weighting.** A row enters with the weight w = 1/max(1, |z|^2 + a^2 + c^2), which depends on features alone. So the
mean of w z (d - E) is zero as well, whereas shortened features would be those of another model.

**Several rows.** A unit contributes the mean over its rows, which lies in the convex hull of the contributions of
single rows and zero. A hull has the diameter of its points, so that every bound holds for it.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import exponential, fold
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray
from zerosum.statistics.groups import MOST_BINS, codes_of
from zerosum.statistics.missing import Filled
from zerosum.statistics.regression import SQUARE

# Weight b of the second moments of all people in the first round; the proof of `CoxStep` holds up to it.
ALL_ROWS = math.sqrt(0.5) * (1 - 1e-12)
# Least weight a of a part of the time, and the largest one in the proof of `CoxStep`.
PART_LEAST, PART_MOST = 0.01, 0.5
# Linear predictors are clipped to this absolute value before exp, which avoids overflow. exp(-30) = 9e-14. Chosen by
# hand; no benchmark recorded.
_STEEPEST = 30.0


def free_curvature(part: float) -> float:
    """The largest weight b of second moments with which `CoxStep` has a sensitivity of 2.

    Parameters
    ----------
    part : float
        a, the weight of a part of the time.

    >>> round(free_curvature(0.0), 4), free_curvature(0.4) < free_curvature(0.3)
    (1.4142, True)
    """
    q = part**2
    # 2 f(q) <= 4 and case (iii) of the proof: (b^2/2)(1 + (1 - q)^2) + 3 q <= 2 and 1 + 4 q + (5/4) b^2 <= 4, with
    # b^2 <= 2. The factor keeps the rounded root below the bound.
    square = min(2.0, 2 * (2 - 3 * q) / (1 + (1 - q) ** 2), (3 - 4 * q) / 1.25)
    return math.sqrt(square) * (1 - 1e-12)


class CoxRows(Filled):
    """Base of the statistics of this module.

    Parameters
    ----------
    columns : int
        p features, the optional columns, the time and the event.
    lower, upper : array of shape (p,)
        Public ranges of the features, mapped to [-1, 1].
    edges : array of shape (bins + 1,)
        Rising public edges of the bins of time, from 0 to the horizon.
    entry : bool
        Whether there is a column with the time of entry.
    strata : int
        G, the number of strata; with more than one there is a column with the stratum, 0, ..., G - 1.
    causes, cause : int
        The number of codes of the event, and the code of the event of interest; 0 is no event.
    fill, own_rows
        As for `Filled`.
    """

    lower: FloatArray
    upper: FloatArray
    edges: FloatArray
    entry: bool = False
    strata: int = Field(default=1, ge=1, le=10_000)
    causes: int = Field(default=2, ge=2, le=1000)
    cause: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.features < 1:
            raise ValueError(f"a Cox regression needs a feature beside time and event, got {self.columns} columns")
        if self.lower.shape != (self.features,) or self.upper.shape != (self.features,):
            raise ValueError(f"lower and upper must hold one number for each of the {self.features} features")
        if not np.all(self.upper - self.lower >= SMALLEST):
            raise ValueError("every lower bound must lie below its upper bound")
        if self.edges.ndim != 1 or not 2 <= self.edges.size <= MOST_BINS + 1 or not np.all(np.diff(self.edges) > 0):
            raise ValueError(f"edges must rise, and make 1 to {MOST_BINS} bins")
        if self.edges[0] != 0:
            raise ValueError(f"edges must begin at 0, got {self.edges[0]:g}")
        if self.cause >= self.causes:
            raise ValueError(f"cause must be one of the {self.causes} codes of the event, got {self.cause}")
        return self

    @property
    def features(self) -> int:
        """p, the number of features."""
        return self.columns - 2 - int(self.entry) - int(self.strata > 1)

    @property
    def codes(self) -> dict[int, int]:
        """The columns that hold codes, with the number of codes of each."""
        event = {self.columns - 1: self.causes}
        return event | ({self.columns - 3: self.strata} if self.strata > 1 else {})

    @property
    def bins(self) -> int:
        """The number of bins of time."""
        return self.edges.size - 1

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 8 * (self.columns + 8)

    def check_values(self, units: Units) -> None:
        """Report to the owner of the data rows that would not count."""
        for block in units.blocks():
            *_rest, known = self._entered(block)
            if not np.all(known):
                raise BadData(
                    "some rows have an undeclared event or stratum, or a time that is negative or not after the entry"
                )

    def _entered(
        self, block: Units
    ) -> tuple[Floats, Floats, Floats, NDArray[np.bool_], NDArray[np.intp], NDArray[np.bool_]]:
        """Features v in [-1, 1] (rows, p); and for every row the entry, the time, whether the event happened up to the
        horizon, the stratum, and whether the row counts. Values of rows that do not count are replaced by zeros.
        """
        rows = to_numpy(self.filled(block))
        known = np.all(np.isfinite(rows), axis=1)
        rows = np.where(known[:, None], rows, 0.0)
        # `at` is the next optional column: the entry, then the stratum.
        half, at = (self.upper - self.lower) / 2, self.features
        v = np.clip((rows[:, :at] - (self.upper + self.lower) / 2) / half, -1.0, 1.0)
        horizon = float(self.edges[-1])
        begin = np.zeros(len(rows))
        if self.entry:
            begin, at = np.clip(rows[:, at], 0.0, horizon), at + 1
        stratum = np.zeros(len(rows), dtype=np.intp)
        if self.strata > 1:
            stratum, inside = codes_of(rows[:, at], self.strata)
            known &= inside
        # A code outside 0, ..., causes - 1 leaves the row out: it contributes zero, and raises nothing.
        event, inside = codes_of(rows[:, -1], self.causes)
        known &= inside & (rows[:, -2] >= 0)
        # Observed beyond the horizon: censored there.
        happened = (event == self.cause) & (rows[:, -2] <= horizon) & known
        end = np.clip(rows[:, -2], 0.0, horizon)
        if self.entry:
            known &= end > begin
        # A row that does not count has E = 0, whatever its times are.
        return v, begin, np.where(known, end, begin), happened & known, stratum, known

    def _weights(self, block: Units, known: NDArray[np.bool_]) -> Floats:
        """The weight of each row in its unit's mean; zero for a row that does not count."""
        weights: Floats = np.asarray(block.row_weights(np.zeros(1)), dtype=np.float64)
        return weights * known

    def _bin(self, times: Floats) -> NDArray[np.intp]:
        """The bin of each time; a time on an edge belongs to the bin that ends there."""
        return np.minimum(np.searchsorted(self.edges[1:], times, side="left"), self.bins - 1)


class CovariateMoments(CoxRows):
    """The sum over units of (v, q v^2)/sqrt(p) for the features v in [-1, 1].

    Sensitivity. As `ColumnMoments`: the pairs (v, q v^2) of one column are at most 2 apart by the parabola lemma of
    `zerosum.statistics.regression`, all p columns together at most 2 sqrt(p), and division by sqrt(p) gives D = 2,
    attained by values of 1 and -1 throughout. A row that does not count contributes zero, which is at most
    sqrt(1 + q^2) = 1.94 from any other. Adding or removing a unit moves the sum by at most sqrt(1 + q^2).

    Parameters
    ----------
    columns, lower, upper, edges, entry, strata, causes, cause, fill, own_rows
        As for `CoxRows`.
    """

    name: ClassVar[str] = "covariate_moments"

    @property
    def size(self) -> int:
        """2 p."""
        return 2 * self.features

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + SQUARE**2)

    def sum_block(self, block: Units) -> Floats:
        """The sum over a block: values, then squares."""
        v, *_rest, known = self._entered(block)
        weights = self._weights(block, known) / math.sqrt(self.features)
        return np.concatenate([weights @ v, SQUARE * (weights @ (v * v))])

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (sum of values, sum of squares), each of shape (p,)."""
        root = math.sqrt(self.features)
        return root * release[: self.features], root / SQUARE * release[self.features :]


class ExitTable(CoxRows):
    """For each stratum and bin the units that left without and with the event; those observed longer; and all events.

    The map of one row: 1 at the place (stratum, bin, event) or, beyond the horizon, at the last place of its stratum;
    the event indicator once more in an entry of its own; and with `entry`, 1 at the place (stratum, bin) of the entry
    if that is after time 0. The release has the entries G (2 bins + 1), then 1, then G bins with `entry`.

    Sensitivity. A row contributes zero or 1 at one place of the first block, a number in {0, 1} in the second and 1 at
    one place or zero in the third. Squared distances are at most 2, 1 and 2, so that D = sqrt(3), or sqrt(5) with
    `entry`. It is attained by a row with an event and one without, in two bins, and with two bins of entry. The norm is
    at most sqrt(2), with `entry` sqrt(3), which bounds an added or removed unit.

    Parameters
    ----------
    columns, lower, upper, edges, entry, strata, causes, cause, fill, own_rows
        As for `CoxRows`.
    """

    name: ClassVar[str] = "exit_table"

    @property
    def size(self) -> int:
        """G (2 bins + 1), one, and G bins with `entry`."""
        return self.strata * (2 * self.bins + 1) + 1 + self.strata * self.bins * int(self.entry)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        replaced = adjacency is Adjacency.REPLACE_ONE
        return math.sqrt((3 if replaced else 2) + (2 if replaced else 1) * int(self.entry))

    def sum_block(self, block: Units) -> Floats:
        """The table of a block, stratum after stratum, then the events, then the entries."""
        _v, begin, end, event, stratum, known = self._entered(block)
        weights = self._weights(block, known)
        width, longer = 2 * self.bins + 1, (end >= self.edges[-1]) & ~event
        # Pairs (without, with the event) by bin, then the place of rows observed beyond the horizon.
        place = np.where(longer, 2 * self.bins, 2 * self._bin(end) + event)
        table = np.bincount(stratum * width + place, weights=weights, minlength=self.strata * width)
        parts = [table, np.array([np.sum(weights[event])])]
        if self.entry:
            # Rows observed from time 0 on are the difference of all units and later entries: they need no entry of the
            # release.
            late = begin > 0
            parts.append(
                np.bincount(
                    (stratum * self.bins + self._bin(begin))[late],
                    weights=weights[late],
                    minlength=self.strata * self.bins,
                )
            )
        return np.concatenate(parts).astype(np.float64)

    def split(self, release: Floats) -> tuple[Floats, float, Floats]:
        """A release as (table of exits (G, 2 bins + 1), number of events, entries (G, bins))."""
        first = self.strata * (2 * self.bins + 1)
        entries = release[first + 1 :] if self.entry else np.zeros(self.strata * self.bins)
        return (
            release[:first].reshape(self.strata, -1),
            float(release[first]),
            entries.reshape(self.strata, self.bins),
        )


class CoxStep(CoxRows):
    """Score and second moments of a Cox model at public coefficients and hazards, in one release.

    A row has z (p numbers), the part constants a e_k (K), and the stratum constant c e_g (G). Let u_k = sqrt(w) (z,
    a e_k, c e_g) with the weight w of the row, so that |u_k| <= 1; d_k is 1 in the part of an event and 0 elsewhere.
    With r_k = (d_k - E_k)/B the contribution is

        (sqrt(w) sum_k r_k u_k,    b sum_k h_k u_k u_k'),    h_k = (d_k + E_k)/(2 B),

    the second in isometric coordinates, without the entries that are always zero (two different parts, two different
    strata). So the columns of z may be correlated with the time, and parts of the baseline are fitted jointly with the
    coefficients. With `all_rows` the second moments are b u u' without the part constants, of all rows alike. They
    are known better where few rows have an event.

    Sensitivity. Let q = a^2, and write (x, y) for a row's u_k = (x, y e_k) with y <= a, and s = sqrt(w) <= 1. E_k is
    zero in parts after the event. In (E_1, ..., E_K)/B, a point of the simplex {sum <= 1}, and in 1/B in [0, 1] the
    contribution is affine, so that the distance of two rows is largest at corners:

        0;   (-s u_k, (b/2) U_k);   (s u_j, (b/2) U_j);   (s y (e_j - e_k), (b/2) (U_j + U_k)) with k <= j,

    U_k = u_k u_k'. All U are positive semidefinite, with inner products (u.u')^2 >= 0.

    (i) Two corners of the second and third kind, kappa = |u.u'|: by the sphere lemma (`zerosum.statistics.regression`)
    |u| = 1 may be assumed, and the squared distance is at most 2 + 2 kappa + (b^2/4)(2 - 2 kappa^2). For b^2 <= 2 this
    grows with kappa, up to 4.
    (ii) Two of the fourth kind. For j != k, |U_j + U_k|^2 = 2 |u|^4 + 2 (u_j.u_k)^2 <= 2 + 2 (1 - y^2)^2, and for
    j = k it is at most 4 while the gradient is 0. The inner product of e_j - e_k and e_l - e_m is at least -1, because
    j > k and l > m exclude j = m together with k = l. So the squared distance is at most f(y^2) + f(y'^2) with
    f(t) = (b^2/2)(1 + (1 - t)^2) + 3 t. f is convex, hence at most max(b^2, f(q)).
    (iii) Second or third kind and fourth: |s u_k - s' y' (e_l - e_m)|^2 <= 1 + 2 q + 2 q, and the second moments are at
    most (b^2/4)(1 + 4) apart: 1 + 4 q + (5/4) b^2.
    (iv) Zero and any: at most max(1 + b^2/4, 2 q + b^2), which is below (ii) or (iii).

    So D^2 = max(4, 2 b^2, 2 f(q), 1 + 4 q + (5/4) b^2) for b^2 <= 2, which is 4 for b <= `free_curvature(a)`: the
    second moments cost nothing beside the score. D = 2 is attained at B = 1 by one row with |u| = 1, once with an event
    at the beginning and once stopped without one.

    With `all_rows` and b^2 <= 1/2: (i) 2 + 2 kappa + b^2 (2 - 2 kappa^2), which grows up to 4; (ii) 6 q + 2 b^2 <= 4
    for q <= 1/4; (iii) 1 + 4 q + 2 b^2 <= 3; (iv) less. So D = 2.

    Adding or removing a unit moves the sum by at most the largest norm of a corner, the root of
    max(1 + b^2/4, b^2, (b^2/2)(1 + (1 - q)^2) + 2 q), and with `all_rows` of 1 + b^2. A row that does not
    count contributes zero.

    Parameters
    ----------
    coefficients : array of shape (p,)
        Coefficients of v in the linear predictor.
    hazards : array of shape (G, bins + 1)
        Cumulative baseline hazards at the edges, from 0 on, for v = 0.
    parts : tuple of int, length K
        The number of the bin after the last of each part; rising, the last one is the number of bins.
    matrix, shift : arrays of shape (p, p) and (p,)
        W and o of z = W v + o.
    bound : float
        B >= 1, the expected number of events at which a row is stopped.
    part_weight, stratum_weight : float
        a and c.
    curvature : float
        b, the weight of second moments; at most `free_curvature(part_weight)`, with `all_rows` `ALL_ROWS`.
    all_rows : bool
        Whether second moments are of all rows alike.
    columns, lower, upper, edges, entry, strata, causes, cause, fill, own_rows
        As for `CoxRows`.
    """

    name: ClassVar[str] = "cox_step"
    coefficients: FloatArray
    hazards: FloatArray
    parts: tuple[int, ...] = Field(min_length=1, max_length=100)
    matrix: FloatArray
    shift: FloatArray
    bound: float = Field(default=1.0, ge=1, le=1e6)
    part_weight: float = Field(default=0.3, ge=PART_LEAST, le=PART_MOST)
    stratum_weight: float = Field(default=0.3, ge=0, le=1)
    curvature: float = Field(default=1.0, ge=0.01, le=math.sqrt(2))
    all_rows: bool = False

    @model_validator(mode="after")
    def _step_fits(self) -> Self:
        p = self.features
        if self.coefficients.shape != (p,) or self.shift.shape != (p,) or self.matrix.shape != (p, p):
            raise ValueError(f"coefficients, shift and matrix must have {p} rows, one for each feature")
        rising = np.diff(self.hazards, axis=-1) >= 0
        if self.hazards.shape != (self.strata, self.bins + 1) or not np.all(rising) or np.any(self.hazards[:, 0] != 0):
            raise ValueError("hazards must hold a cumulative hazard for each stratum and edge, which rises from 0")
        if not all(np.diff((0, *self.parts)) > 0) or self.parts[-1] != self.bins:
            raise ValueError(f"parts must rise up to the number of bins, {self.bins}")
        most = ALL_ROWS if self.all_rows else free_curvature(self.part_weight)
        if self.curvature > most:
            raise ValueError(
                f"curvature must be at most {most:g}, so that the sensitivity is 2, got {self.curvature:g}"
            )
        return self

    @property
    def _moments(self) -> int:
        """The number of second moments."""
        p, K, G = self.features, len(self.parts), self.strata
        within = coordinates.size(p) + p * G + G
        return within if self.all_rows else within + p * K + K + K * G

    @property
    def size(self) -> int:
        """The score, p + K + G numbers, and the second moments."""
        return self.features + len(self.parts) + self.strata + self._moments

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return 2.0
        q, b = self.part_weight**2, self.curvature**2
        if self.all_rows:
            return math.sqrt(1 + b)
        return math.sqrt(max(1 + b / 4, b, b / 2 * (1 + (1 - q) ** 2) + 2 * q))

    def sum_block(self, block: Units) -> Floats:
        """The sum over a block: score of features, parts and strata, then the second moments."""
        v, begin, end, event, stratum, known = self._entered(block)
        hazards, K = self.hazards, len(self.parts)
        # `fold` and elementwise operations up to the stopping: the bits of a row depend on the row alone.
        eta = fold(v * self.coefficients[None, :])
        rate = exponential(np.clip(eta, -_STEEPEST, _STEEPEST))
        from_, to = (rate * self._cumulative(stratum, times) for times in (begin, end))
        # Stopping: beyond the bound the row is censored, at the time at which its expected number is the bound.
        stopped = to - from_ > self.bound
        # min of the difference, and not from_ + bound: beside a large from_ the rounded sum may be up to 2 bounds away.
        expected = np.minimum(to - from_, self.bound)
        event = event & ~stopped
        ends = np.array([0, *self.parts])
        # A bin belongs to the part that ends after it.
        part = np.minimum(np.searchsorted(ends[1:], self._bin(end), side="right"), K - 1)
        # Expected numbers from the entry to the ends of parts, at most that of the row: their differences are E_k.
        spent = np.clip(rate[:, None] * hazards[stratum][:, ends] - from_[:, None], 0.0, expected[:, None])
        # Nothing is expected after the part of the row's time, whatever is rounded.
        spent = np.where(np.arange(K + 1) > part[:, None], expected[:, None], spent)
        counts = np.diff(spent, axis=1)  # E_k
        happened = np.zeros_like(counts)
        happened[np.arange(len(v)), part] = event
        z = np.stack([fold(v * row[None, :]) for row in self.matrix], axis=1) + self.shift
        # Every row is in one part and one stratum at a time: |u_k|^2 is |z|^2 + a^2 + c^2 for every k.
        constants = self.part_weight**2 + self.stratum_weight**2
        norm = fold(z * z) + constants
        weight = self._weights(block, known) / np.maximum(norm, 1.0)
        # Nothing is decided about a row below, so that matrix products over rows may round.
        residual = (happened - counts) / self.bound
        whole = weight * np.sum(residual, axis=1)
        groups = np.zeros((len(v), self.strata))
        groups[np.arange(len(v)), stratum] = self.stratum_weight
        score = [whole @ z, self.part_weight * (weight @ residual), whole @ groups]
        # w h_k: events and expected events estimate the same information. Their mean is at most (1 + B)/2, and thus h
        # at most 1 after the division by B.
        half = weight[:, None] * (happened + counts) / (2 * self.bound)
        moved = weight if self.all_rows else np.sum(half, axis=1)
        # Isometric coordinates: an entry off the diagonal stands for two equal ones and has the factor sqrt(2).
        root = math.sqrt(2)
        second = [
            coordinates.pack((z * moved[:, None]).T @ z),
            root * np.ravel((z * moved[:, None]).T @ groups),
            self.stratum_weight * (moved @ groups),
        ]
        if not self.all_rows:
            second += [
                root * self.part_weight * np.ravel(z.T @ half),
                self.part_weight**2 * np.sum(half, axis=0),
                root * self.part_weight * np.ravel(half.T @ groups),
            ]
        return np.concatenate([*score, *(self.curvature * each for each in second)])

    def _cumulative(self, stratum: NDArray[np.intp], times: Floats) -> Floats:
        """The cumulative hazard of each row's stratum at a time, linear within bins.

        Parameters
        ----------
        stratum : int array of shape (rows,)
            0, ..., G - 1.
        times : array of shape (rows,)
            Times from 0 to the horizon.

        Returns
        -------
        array of shape (rows,)
        """
        at = self._bin(times)
        low, high = self.hazards[stratum, at], self.hazards[stratum, at + 1]
        # The hazard is constant within a bin.
        share = (times - self.edges[at]) / (self.edges[at + 1] - self.edges[at])
        return np.asarray(low + (high - low) * share)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as score and second moments.

        Parameters
        ----------
        release : array of shape (size,)

        Returns
        -------
        score : array of shape (p + K + G,)
            Sum of w (d - E) times (z, a e_k, c e_g).
        moments : array of shape (p + K + G, p + K + G)
            Sum of w h B times the products of the same; entries of parts are zero with `all_rows`, where the factor
            is w alone.
        """
        p, K, G = self.features, len(self.parts), self.strata
        width = p + K + G
        score, rest = self.bound * release[:width], release[width:] / self.curvature
        moments, at = np.zeros((width, width)), 0

        def take(count: int) -> Floats:
            nonlocal at
            at += count
            return rest[at - count : at]

        x, k, g = slice(0, p), slice(p, p + K), slice(p + K, width)
        moments[x, x] = coordinates.unpack(take(coordinates.size(p)), p)
        moments[x, g] = take(p * G).reshape(p, G) / math.sqrt(2)
        moments[g, g] = np.diag(take(G))
        if not self.all_rows:
            moments[x, k] = take(p * K).reshape(p, K) / math.sqrt(2)
            moments[k, k] = np.diag(take(K))
            moments[k, g] = take(K * G).reshape(K, G) / math.sqrt(2)
        moments = np.triu(moments) + np.triu(moments, 1).T
        return score, moments if self.all_rows else self.bound * moments
