"""The concordance index from a noisy table of scores by exit. Free post-processing.

Model
-----
n (Q, 2 T + 1) counts held-out units by bin q of the score and by exit: without and with the event in bins t of the
time, and observed longer. A pair is comparable if one unit had the event in a bin and the other left in a later bin; it
is concordant if the first one has the higher score, and counts half if both scores are in one bin:

    A = sum over t, q of d(q, t) (sum over q' < q of l(q', t) + l(q, t)/2),    B = the same with all q',

d the events and l(q, t) the units that left after bin t; C = A/B (Harrell). Both are sums of products of two different
entries, so that independent noise leaves their means as they are. Pairs in one bin of the score are half concordant
instead of somewhat more, which takes about the share 1/Q^2 from C - 1/2; pairs in one bin of the time, which are harder
to rank, are left out, which adds about as much.

The variance of C is, to first order, the sum of (dA - C dB)^2/B^2 over entries times that of the noise, with dA and dB
the derivatives by an entry; the second order adds the products of noise with noise; and sampling adds the sum of
n (dA - C dB)^2/B^2 (Hoeffding's projection).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats


@dataclass(frozen=True)
class Concordance:
    """C, the standard deviation of its noise, and that of noise and sampling together."""

    index: float
    noise: float
    std: float


def concordance_of(table: Floats, noise: float) -> Concordance:
    """C of a table (see the module); 1/2 with an infinite deviation if no pair stands out of the noise.

    Parameters
    ----------
    table : array of shape (Q, 2 T + 1)
        Noisy counts.
    noise : float
        Standard deviation of the noise of an entry.

    >>> table = np.array([[0.0, 10.0, 0.0, 50.0, 0.0], [0.0, 40.0, 0.0, 20.0, 0.0]])
    >>> concordance_of(table, 0.0).index > 0.7
    True
    """
    Q, bins = len(table), (table.shape[1] - 1) // 2
    events, gone = table[:, 1 : 2 * bins : 2], table[:, 0 : 2 * bins : 2] + table[:, 1 : 2 * bins : 2]
    # Units that left after each bin.
    later = np.cumsum(np.column_stack([gone, table[:, -1]])[:, ::-1], axis=1)[:, ::-1][:, 1:]
    # Weight of a pair: 1 if the first one has the higher score, 1/2 in one bin.
    weight = np.tril(np.ones((Q, Q)), -1) + np.eye(Q) / 2
    every = np.ones((Q, Q))
    A, B = (float(np.sum(events * (each @ later))) for each in (weight, every))
    if B <= 0:
        return Concordance(0.5, math.inf, math.inf)
    C = A / B

    def slopes(each: Floats) -> Floats:
        """The derivative by each entry of the table."""
        by_event = each @ later
        # Of an exit in a bin, by the events of all bins before it.
        before = np.cumsum(each.T @ events, axis=1)
        by_exit = np.column_stack([np.zeros(Q), before])
        found = np.zeros_like(table)
        found[:, 0 : 2 * bins : 2] = by_exit[:, :-1]
        found[:, 1 : 2 * bins : 2] = by_exit[:, :-1] + by_event
        found[:, -1] = by_exit[:, -1]
        return found

    slope = (slopes(weight) - C * slopes(every)) / B
    # Products of noise: every pair of an event's entry and one of the entries of later exits.
    pairs = sum(2 * (bins - 1 - t) + 1 for t in range(bins))
    second = noise**4 * float(np.sum((weight - C) ** 2)) * pairs / B**2
    of_noise = noise**2 * float(np.sum(slope**2)) + second
    sampling = max(float(np.sum(table * slope**2)), 0.0)
    return Concordance(min(max(C, 0.0), 1.0), math.sqrt(of_noise), math.sqrt(of_noise + sampling))
