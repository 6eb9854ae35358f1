"""Baseline hazards from the noisy table of exits. Free post-processing.

The marginal cumulative hazard H of a stratum is the sum over bins of events over time at risk. It is not the baseline
of the model: with a predictor that spreads by s, units of high risk leave early. `uncover` inverts that for a normal
predictor,

    E exp(-L(t) exp(s g)) = exp(-H(t)),    g standard normal.

What remains (follow-up that depends on the columns, predictors that are not normal) is corrected by the parts of the
time that are fitted with the coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.cox.tuning import TUNING
from zerosum.arrays import Floats

# Nodes of the quadrature over a normal variable; 21 are exact for polynomials of degree 41.
NODES = 21


@cache
def normal_nodes() -> tuple[Floats, Floats]:
    """Nodes and weights of the Gauss-Hermite quadrature of a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / np.sum(weights)


@dataclass(frozen=True, eq=False)
class Exits:
    """The table after corrections: marginal cumulative hazards (G, bins + 1), events (G, bins), units (G,); the number
    of the merged bin of each bin (G, bins); and whether the number at risk is too small to be known (G, bins)."""

    hazards: Floats
    events: Floats
    units: Floats
    merged: NDArray[np.intp]
    thin: NDArray[np.bool_]

    @property
    def total(self) -> float:
        """Number of events, at least 5."""
        return max(float(np.sum(self.events)), TUNING.stand_out_events)


def exits_of(
    table: Floats, events: float, entries: Floats, edges: Floats, noise: float, units: float | None, *, entry: bool
) -> Exits:
    """Hazards and events from a released table.

    Parameters
    ----------
    table : array of shape (G, 2 bins + 1)
        Noisy counts of exits without and with the event by bin, then of units observed longer.
    events : float
        Noisy number of all events.
    entries : array of shape (G, bins)
        Noisy counts of entries after time 0, by bin; zero without.
    edges : array of shape (bins + 1,)
        Edges of the bins.
    noise : float
        Standard deviation of the noise of an entry.
    units : float or None
        Public number of units, if there is one.
    entry : bool
        Whether `entries` were released.
    """
    strata, bins = len(table), len(edges) - 1
    counts = table.copy()
    # The least change that gives the counts their public total: the same for every entry, as their noise is the same.
    if units is not None:
        counts += (units - np.sum(counts)) / counts.size
    # Events were counted by bin and once more in all. Both counts of the total are averaged by their noise, and bins
    # share the difference; exits without the event compensate, so that units remain.
    cells = strata * bins
    more = (events - np.sum(counts[:, 1 : 2 * bins : 2])) * cells / (cells + 1)
    counts[:, 1 : 2 * bins : 2] += more / cells
    counts[:, 0::2] -= more / (strata * (bins + 1))
    died = counts[:, 1 : 2 * bins : 2]
    gone = counts[:, 0 : 2 * bins : 2] + died
    size = np.maximum(np.sum(counts, axis=1), 1.0)
    found = [_marginal(died[g], gone[g], entries[g], size[g], edges, noise, entry=entry) for g in range(strata)]
    hazards, smooth, merged = (np.array(each) for each in zip(*found, strict=True))
    # Units at risk at the beginning of each bin, against the noise of the 2 j entries before it.
    at_risk = size[:, None] - np.cumsum(np.hstack([np.zeros((strata, 1)), (gone - entries)[:, :-1]]), axis=1)
    if entry:
        at_risk -= np.maximum(np.sum(entries, axis=1), 0.0)[:, None]
    unknown = TUNING.risk_stand_out * noise * np.sqrt(2 * np.arange(1, bins + 1))
    return Exits(hazards, smooth, size, merged, at_risk < TUNING.at_risk_least * size[:, None] + unknown)


def _marginal(
    died: Floats, gone: Floats, entries: Floats, units: float, edges: Floats, noise: float, *, entry: bool
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Cumulative hazard at the edges, smoothed events by bin, and merged bins, of one stratum. Bins are merged until
    their events stand out of the noise.

    With d events in a merged bin of length l, and R_0 and R_1 units at risk at its ends, the hazard is the occurrence
    over exposure rate d/(l (R_0 + R_1)/2), constant within the bin.

    Parameters
    ----------
    died, gone : array of shape (bins,)
        Noisy numbers of events, and of all exits, by bin.
    entries : array of shape (bins,)
        Noisy numbers of entries after time 0; zero without.
    units : float
        Number of units of the stratum.
    edges : array of shape (bins + 1,)
        Edges of the bins.
    noise : float
        Standard deviation of the noise of an entry.
    entry : bool
        Whether `entries` were released.

    Returns
    -------
    hazard : array of shape (bins + 1,)
        Cumulative hazard, 0 at time 0.
    smooth : array of shape (bins,)
        Events, spread evenly over merged bins.
    merged : int array of shape (bins,)
        The number of the merged bin.
    """
    bins, k = len(died), 0
    hazard, smooth, merged = [0.0], np.zeros(bins), np.zeros(bins, dtype=np.intp)
    least = TUNING.at_risk_least * units
    # Units that enter later are not at risk at time 0.
    risk = units - (max(float(np.sum(entries)), 0.0) if entry else 0.0)
    while k < bins:
        j, events, left, came = k, 0.0, 0.0, 0.0
        while j < bins:
            events, left, came, j = events + died[j], left + gone[j], came + entries[j], j + 1
            # The noise of a sum of j - k bins.
            if events > TUNING.stand_out * noise * np.sqrt(j - k) + TUNING.stand_out_events:
                break
        events = max(events, TUNING.events_least)
        # Noise may make exits fewer than the events among them.
        after = max(risk + came - max(left, events), least)
        # The mean of the numbers at risk at both ends times the length is the time at risk (trapezoidal rule).
        rate = events / (max((risk + after) / 2, least) * (edges[j] - edges[k]))
        hazard += list(hazard[-1] + rate * (edges[k + 1 : j + 1] - edges[k]))
        smooth[k:j] = events * np.diff(edges[k : j + 1]) / (edges[j] - edges[k])
        merged[k:j] = k
        risk, k = after, j
    return np.array(hazard), smooth, merged


def uncover(hazards: Floats, spread: float) -> Floats:
    """Baseline L from the marginal cumulative hazard H (see the module), elementwise.

    Parameters
    ----------
    hazards : array
        Marginal cumulative hazards, at least 0.
    spread : float
        s, the standard deviation of the predictor; at most `TUNING.spread_most` is used.

    Returns
    -------
    array
        As `hazards`; without noise the marginal law of survival at L is that at H.

    >>> uncover(np.array([0.0, 1.0]), 0.0).tolist()
    [0.0, 1.0]
    >>> bool(uncover(np.array([1.0]), 1.0)[0] > 1.0)
    True
    """
    spread = min(spread, TUNING.spread_most)
    # The correction is of the relative order spread^2: at most 1e-6 here.
    if spread < 1e-3:
        return hazards
    nodes, weights = normal_nodes()
    # The marginal hazard of a grid of baselines, interpolated: it rises with the baseline.
    grid = np.concatenate([[0.0], np.exp(np.linspace(-9, 4, 200))])
    survival = np.exp(-grid[:, None] * np.exp(spread * nodes)) @ weights
    return np.asarray(np.interp(hazards, -np.log(np.maximum(survival, 1e-12)), grid))


def parts_of(events: Floats, parts: int) -> tuple[int, ...]:
    """Ends of `parts` runs of bins with about the same number of events each.

    Parameters
    ----------
    events : array of shape (bins,)
        Positive numbers.
    parts : int
        At most the number of bins.

    >>> parts_of(np.ones(6), 3)
    (2, 4, 6)
    """
    bins, cumulative = len(events), np.cumsum(events) / np.sum(events)
    ends: list[int] = []
    for k in range(1, parts):
        nearest = int(np.argmin(np.abs(cumulative - k / parts))) + 1
        # Every part has a bin: at least one after the last end, and one left for each part that follows.
        ends.append(min(max(nearest, (ends[-1] if ends else 0) + 1), bins - (parts - k)))
    return (*ends, bins)


def bent(hazards: Floats, parts: tuple[int, ...], logarithms: Floats) -> Floats:
    """Cumulative hazards (G, bins + 1) with the hazard in each part multiplied by exp(logarithm).

    Parameters
    ----------
    hazards : array of shape (G, bins + 1)
        Cumulative hazards from 0.
    parts : tuple of int
        Ends of the parts, in bins.
    logarithms : array of shape (K,)
        Logarithm of the factor of each part.
    """
    factor = np.repeat(np.exp(logarithms), np.diff((0, *parts)))
    # Increments change, so that the curve stays continuous and rising.
    rising = np.cumsum(np.diff(hazards, axis=-1) * factor, axis=-1)
    return np.concatenate([np.zeros((len(hazards), 1)), rising], axis=-1)
