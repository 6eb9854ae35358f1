"""Rounds of subspace iteration: how many, at what shares, with how wide a basis. Played out before anything runs.

Tested in tests/algorithms/pca/test_pca.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from zerosum.arrays import Floats

GUESSED_UNITS = 10_000  # where their number is not public
ROUNDS, GROWTH, EXTRA = (1, 2, 3, 4, 5, 6), (1.0, 2.0, 4.0, 8.0), (0, 10)
_GOOD_ENOUGH = 0.002  # of the energy is not worth another round
_MOST_COMPONENTS, _MOST_NUMBERS, _MOST_COLUMNS = 64, 80_000, 4_000  # a stand-in is no larger than this


@dataclass(frozen=True)
class Schedule:
    """`rounds` rounds whose shares grow geometrically, the last `growth` times the first, and a basis with `extra`
    columns more than components, which are dropped at the end.

    >>> Schedule(3, 4.0, 0).shares
    (0.14285714285714285, 0.2857142857142857, 0.5714285714285714)
    """

    rounds: int = 3
    growth: float = 2.0
    extra: int = 10

    @property
    def shares(self) -> tuple[float, ...]:
        weights = [self.growth ** (r / max(self.rounds - 1, 1)) for r in range(self.rounds)]
        return tuple(weight / math.fsum(weights) for weight in weights)


@lru_cache(maxsize=32)
def best(
    columns: int,
    components: int,
    units: int | None,
    noise: float,
    rounds: int | None = None,
    growth: float | None = None,
    extra: int | None = None,
) -> Schedule:
    """The schedule that captures most energy of a public stand-in, and of those nearly as good the shortest.

    `noise` is the standard deviation of a product that took the whole budget. What is given stays as it is.

    The stand-in is `units` times a diagonal matrix of trace one whose eigenvalues fall as k^-1.5: all that subspace
    iteration with normal noise needs, since both look the same in every basis. Its draws come from a fixed seed. A
    large one is replaced by a smaller one with the same ratio of noise sqrt(columns) to the last eigenvalue asked for.
    """
    lengths = ROUNDS if rounds is None else (rounds,)
    rises = GROWTH if growth is None else (growth,)
    widths = sorted({min(more, columns - components) for more in (EXTRA if extra is None else (extra,))})
    tried = {
        Schedule(length, rise, width)
        for length in lengths
        for rise in (rises if length > 1 else rises[:1])
        for width in widths
    }
    if len(tried) == 1:
        return tried.pop()
    K = min(components, _MOST_COMPONENTS)
    D = min(columns, _MOST_COLUMNS, max(_MOST_NUMBERS // (K + widths[-1]), 2 * K))
    values, last = _falling(D), float(_falling(columns)[components - 1])
    grown = noise * math.sqrt(columns / D) * float(values[K - 1]) / last
    signal = (units or GUESSED_UNITS) * values
    energies = {schedule: _energy(signal, K, grown, schedule) for schedule in tried}
    enough = max(energies.values()) - _GOOD_ENOUGH
    short = [schedule for schedule, energy in energies.items() if energy >= enough]
    return min(short, key=lambda found: (found.rounds * (components + found.extra), -energies[found]))


def _falling(columns: int) -> Floats:
    values = np.arange(1, columns + 1) ** -1.5
    return np.asarray(values / np.sum(values))


def _energy(signal: Floats, components: int, noise: float, schedule: Schedule) -> float:
    """What the components of one noisy subspace iteration capture of a diagonal matrix, against the best possible."""
    rng = np.random.default_rng(0)
    width = min(components + schedule.extra, len(signal))
    basis = np.linalg.qr(rng.normal(size=(len(signal), width)))[0]
    for share in schedule.shares:
        product = signal[:, None] * basis + noise / math.sqrt(share) * rng.normal(size=basis.shape)
        basis = np.linalg.qr(product)[0]
    found = np.linalg.svd(product, full_matrices=False)[0][:, :components]
    return float(np.sum(signal @ found**2) / np.sum(signal[:components]))
