"""Score and second moments of a Cox model, with units stopped before they contribute too much.

Symbols. With public cumulative hazards L_g at the edges (linear between them) and public coefficients, a row of
stratum g with predictor eta has the expected number of events E = exp(eta) (L_g(time) - L_g(entry)), and its residual
is d - E, d = 1 if the event of interest ends it. Consecutive bins of time form K parts; E is the sum of E_k over parts.
Each feature v is in [-1, 1], and z = W v + o with a public matrix W and vector o. In part k and stratum g a row has

    x = (z, a e_k, c e_g),    n = |x|^2 = |z|^2 + a^2 + c^2,    and the weight w, a function of n and public numbers.

**The path of a unit.** At time t of its observation (rows one after another, each through its parts) a unit has

    g(t) = sum w x (d - E)/B,    M(t) = sum w x x' (d + E)/(2 B),    T(t) = trace of M(t),

sums over the parts of rows up to t. Its contribution is (g, b M) at the end of its path.

**Stopping.** A unit is censored at the first time t at which it would leave

    Q(g, T) = 2 |g|^2 + b^2 T^2 <= 2,

or at which an event would make it leave. Before an event g and T are functions of the features up to t and of public
numbers, so that the time of censoring is predictable: d - E keeps the mean zero given the features at the true model
(optional stopping; Andersen and Gill 1982). Clipping the residual instead would bias it. Rows near the center may
expect more events than B before they are stopped, rows far from it at least B.

**Weighting.** w = min(1, (n + b^2 n^2/8)^(-1/2)) makes Q <= 2 for one event alone, at every B >= 1. The mean of
w x (d - E) is zero as well, whereas shortened features would be those of another model.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import exponential, fold
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.cox import CoxRows, Episodes
from zerosum.statistics.holdout import units_of_part

# Largest weight b of second moments with `all_rows`, which leaves |g| <= 1/2 of the room; and otherwise.
ALL_ROWS_MOST, CURVATURE_MOST = 1.2, 4.0
# Least weight a of a part of the time, and the largest one.
PART_LEAST, PART_MOST = 0.01, 0.5
# Linear predictors are clipped to this absolute value before exp, which avoids overflow. exp(-30) = 9e-14. Chosen by
# hand; no benchmark recorded.
_STEEPEST = 30.0
# Hazards, and entries of W and o, are at most this large, so that no product of theirs overflows.
_LARGEST_HAZARD, _LARGEST_ENTRY = 1e100, 1e50
# Room that a unit has less of than Q <= 2: rounding errors of a step are below 1e-14, so that 10^5 steps keep to 2.
_ROUNDING = 1e-9


class CoxStep(CoxRows):
    """Score and second moments of a Cox model at public coefficients and hazards, in one release (see the module).

    The sum over units of (g, b M), M in isometric coordinates and without the entries that are always zero (two
    different parts, two different strata). So the columns of z may be correlated with the time, and parts of the
    baseline are fitted jointly with the coefficients. With `all_rows` the second moments are b times the mean of
    w x x' over the rows of a unit, without the part constants, whether there was an event or not. They are known
    better where few rows have an event. Here w = min(1, 1/n, ((1 - b^2/2)/n)^(1/2)), and a unit is stopped before it
    leaves 2 |g|^2 <= 2 - b^2.

    Sensitivity. M is a sum of positive semidefinite matrices, so that its Frobenius norm is at most its trace T, and
    the inner product of the matrices of two units is not negative. For two units

        |g - g'|^2 + b^2 |M - M'|^2 <= 2 |g|^2 + 2 |g'|^2 + b^2 T^2 + b^2 T'^2 = Q + Q' <= 4,

    thus D = 2 under replacement, whatever the rows of the units are, how many there are, and how they follow each
    other. With `all_rows` the trace of w x x' without part constants is at most w n <= 1, that of their mean as well,
    and 2 |g|^2 + b^2 <= 2 gives the same. A unit without rows that count contributes zero, with Q = 0. D = 2 is
    approached by two units whose rows are short (T is of the order of |x| |g|) with opposite directions, stopped
    without an event.

    Adding or removing a unit moves the sum by at most the norm of (g, b M), the root of |g|^2 + b^2 T^2 <= 2 - |g|^2:
    sqrt(2). It is approached where the events expected before cancel in g that of an event. With `all_rows`
    |g|^2 <= 1 - b^2/2 and thus at most sqrt(1 + b^2/2).

    The proof uses nothing but the values of Q at the end of paths, which `_path` computes from the numbers that enter
    the sum; the margin `_ROUNDING` covers their rounding.

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
        B >= 1.
    part_weight, stratum_weight : float
        a and c.
    curvature : float
        b, the weight of second moments.
    all_rows : bool
        Whether second moments are of all rows alike.
    since : float
        Time from which on rows are observed: what happened before does not count.
    columns, lower, upper, edges, entry, strata, causes, cause, part, hold_out, fill, own_rows
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
    curvature: float = Field(default=1.0, ge=0.01, le=CURVATURE_MOST)
    all_rows: bool = False
    since: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _step_fits(self) -> Self:
        p = self.features
        if self.coefficients.shape != (p,) or self.shift.shape != (p,) or self.matrix.shape != (p, p):
            raise ValueError(f"coefficients, shift and matrix must have {p} rows, one for each feature")
        rising = np.diff(self.hazards, axis=-1) >= 0
        if self.hazards.shape != (self.strata, self.bins + 1) or not np.all(rising) or np.any(self.hazards[:, 0] != 0):
            raise ValueError("hazards must hold a cumulative hazard for each stratum and edge, which rises from 0")
        if not np.all(self.hazards <= _LARGEST_HAZARD):
            raise ValueError(f"hazards must be at most {_LARGEST_HAZARD:g}, got {np.max(self.hazards):g}")
        if not np.all(np.abs(self.matrix) <= _LARGEST_ENTRY) or not np.all(np.abs(self.shift) <= _LARGEST_ENTRY):
            raise ValueError(f"entries of matrix and shift must be at most {_LARGEST_ENTRY:g}")
        if not all(np.diff((0, *self.parts)) > 0) or self.parts[-1] != self.bins:
            raise ValueError(f"parts must rise up to the number of bins, {self.bins}")
        if self.all_rows and self.curvature > ALL_ROWS_MOST:
            raise ValueError(f"curvature must be at most {ALL_ROWS_MOST:g} with all_rows, got {self.curvature:g}")
        return self

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 8 * (self.columns + 8 + 2 * len(self.parts) + self.strata)

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
        return math.sqrt(1 + self.curvature**2 / 2) if self.all_rows else math.sqrt(2)

    def sum_block(self, block: Units) -> Floats:
        """The sum over a block: score of features, parts and strata, then the second moments."""
        block = units_of_part(block, self.part, self.hold_out)
        rows = self.episodes(block).since(self.since)
        part, counts = self._expected(rows)
        z = np.stack([fold(rows.v * row[None, :]) for row in self.matrix], axis=1) + self.shift
        # Every row is in one part and one stratum at a time: |x|^2 is |z|^2 + a^2 + c^2 for every k.
        n = fold(z * z) + self.part_weight**2 + self.stratum_weight**2
        weight = weights(n, self.curvature, all_rows=self.all_rows)
        counts, event = self._path(rows, len(block), part, counts, weight[:, None] * z, weight, n)
        # Nothing is decided about a row below, so that matrix products over rows may round.
        happened = np.zeros_like(counts)
        happened[np.arange(len(n)), part] = event
        residual = (happened - counts) / self.bound
        whole = weight * np.sum(residual, axis=1)
        groups = np.zeros((len(n), self.strata))
        groups[np.arange(len(n)), rows.stratum] = self.stratum_weight
        score = [whole @ z, self.part_weight * (weight @ residual), whole @ groups]
        # w (d + E)/2B: events and expected events estimate the same information.
        half = weight[:, None] * (happened + counts) / (2 * self.bound)
        moved = np.sum(half, axis=1)
        if self.all_rows:
            # The mean over the rows of a unit.
            moved = weight / np.bincount(rows.unit, minlength=len(block))[rows.unit]
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

    def _expected(self, rows: Episodes) -> tuple[NDArray[np.intp], Floats]:
        """The part of the end of each row, and its expected number of events by part (rows, K).

        `fold` and elementwise operations only: the bits of a row depend on the row alone.
        """
        hazards, ends = self.hazards, np.array([0, *self.parts])
        eta = fold(rows.v * self.coefficients[None, :])
        rate = exponential(np.clip(eta, -_STEEPEST, _STEEPEST))
        from_, to = (rate * self._cumulative(rows.stratum, times) for times in (rows.begin, rows.end))
        # A bin belongs to the part that ends after it.
        part = np.minimum(np.searchsorted(ends[1:], self._bin(rows.end), side="right"), len(self.parts) - 1)
        # Expected numbers from the entry to the ends of parts, at most that of the row: their differences are E_k.
        whole = np.maximum(to - from_, 0.0)[:, None]
        spent = np.clip(rate[:, None] * hazards[rows.stratum][:, ends] - from_[:, None], 0.0, whole)
        # Nothing is expected after the part of the row's time, whatever is rounded.
        spent = np.where(np.arange(len(ends)) > part[:, None], whole, spent)
        return part, np.diff(spent, axis=1)

    def _path(
        self,
        rows: Episodes,
        units: int,
        part: NDArray[np.intp],
        counts: Floats,
        wz: Floats,
        weight: Floats,
        n: Floats,
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Expected numbers and events up to the stop of each unit.

        In a segment, a part k of a row, a unit at (g, T) that expects e events more is at g - e y/B and
        T + e tau/(2 B), with y = w x and tau = w n. Q is a convex quadratic polynomial of e there, and so it is after
        an event, at g + y/B and T + tau/(2 B). The unit may go on as long as both are at most 2.

        Parameters
        ----------
        rows : Episodes
            The rows in order.
        units : int
            Number of units of the block.
        part : int array of shape (rows,)
            Part of the end of each row.
        counts : array of shape (rows, K)
            Expected numbers of events.
        wz : array of shape (rows, p)
            w z.
        weight, n : array of shape (rows,)
            w and n.

        Returns
        -------
        counts : array of shape (rows, K)
            At most the given ones.
        event : bool array of shape (rows,)
            Whether the event of the row counts.
        """
        B, K = self.bound, len(self.parts)
        limit = 2 - (self.curvature**2 if self.all_rows else 0.0) - _ROUNDING
        # With `all_rows` second moments do not depend on the path: T is zero here and the limit is smaller.
        b2 = 0.0 if self.all_rows else self.curvature**2
        tau, y2 = weight * n, weight * weight * n
        # g of each unit by feature, part and stratum; |g|^2; T; and whether the unit is still observed.
        of_z, of_part, of_stratum = (np.zeros((units, width)) for width in (wz.shape[1], K, self.strata))
        g2, T, alive = np.zeros(units), np.zeros(units), np.ones(units, dtype=bool)
        used, event = np.zeros_like(counts), np.zeros(len(n), dtype=bool)
        # The first rows of all units, then the second ones: a unit is there once at a time.
        order = np.argsort(rows.place, kind="stable")
        bounds = np.cumsum(np.bincount(rows.place, minlength=1))
        for first, last in zip([0, *bounds[:-1]], bounds, strict=True):
            here = order[first:last]
            here = here[alive[rows.unit[here]]]
            # Parts in which a row is neither observed nor has its event are left out; then its unit moves on. A unit of
            # thousands of rows, most of them in one part, or stopped early, takes few passes.
            passes = (counts[here] > 0) | ((part[here][:, None] == np.arange(K)) & rows.event[here][:, None])
            for k in np.flatnonzero(np.any(passes, axis=0)):
                here_now = here[passes[:, k]]
                at = here_now[alive[rows.unit[here_now]]]
                if not len(at):
                    continue
                u, group = rows.unit[at], rows.stratum[at]
                part_size, stratum_size = self.part_weight * weight[at], self.stratum_weight * weight[at]
                gy = fold(of_z[u] * wz[at]) + part_size * of_part[u, k] + stratum_size * of_stratum[u, group]
                own, size = y2[at], tau[at]
                square = (2 * own + b2 * size * size / 4) / B**2
                # Q - limit as square e^2 + 2 slope e + now, without and with an event.
                now = 2 * g2[u] + b2 * T[u] ** 2 - limit
                slope = (b2 * T[u] * size / 2 - 2 * gy) / B
                after = T[u] + size / (2 * B)
                now_after = 2 * (g2[u] + 2 * gy / B + own / B**2) + b2 * after**2 - limit
                slope_after = (b2 * after * size / 2 - 2 * (gy + own / B)) / B
                most = np.minimum(_root(square, slope, now), _root(square, slope_after, now_after))
                e = np.minimum(counts[at, k], most)
                dies = rows.event[at] & (part[at] == k)
                goes_on = (counts[at, k] <= most) & ~(dies & (now_after > 0))
                used[at, k] = e
                event[at] |= dies & goes_on
                alive[u] = goes_on
                step = e / B
                of_z[u] -= step[:, None] * wz[at]
                of_part[u, k] -= step * part_size
                of_stratum[u, group] -= step * stratum_size
                g2[u] = np.maximum(g2[u] - 2 * step * gy + step * step * own, 0.0)
                T[u] += step * size / 2
        return used, event

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
            Sum of w (d + E)/2 times the products of the same; entries of parts are zero with `all_rows`, where the
            factor is w alone.
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


def weights(n: Floats, curvature: float, *, all_rows: bool) -> Floats:
    """w for rows of squared length n, elementwise.

    Parameters
    ----------
    n : array
        |x|^2, positive.
    curvature : float
        b.
    all_rows : bool
        Whether second moments are of all rows alike.

    >>> weights(np.array([0.5, 100.0]), 1.0, all_rows=False).round(3).tolist()
    [1.0, 0.014]
    """
    b2 = curvature**2
    longest = np.maximum(n / (1 - b2 / 2), n * n) if all_rows else np.maximum(n + b2 * n * n / 8, b2 * n * n / 2)
    # The factor keeps an event of a unit, with Q = 2 up to rounding, within the limit of `_path`.
    return np.asarray((1 - _ROUNDING) / np.sqrt(np.maximum(longest, 1.0)))


def _root(square: Floats, slope: Floats, now: Floats) -> Floats:
    """The largest e >= 0 up to which square e^2 + 2 slope e + now stays at most 0; 0 if now > 0. Elementwise.

    Parameters
    ----------
    square, slope, now : array of shape (rows,)
        Coefficients; the first ones are positive.
    """
    below = np.minimum(now, 0.0)
    whole = np.sqrt(slope * slope - square * below)
    # The form without a difference of nearly equal numbers. The largest divisor is at least the root of square |now|.
    found = np.where(slope > 0, -below / np.maximum(slope + whole, 1e-300), (whole - slope) / square)
    return np.where(now > 0, 0.0, found)
