"""The planner of subspace iteration: number of rounds, their shares and the width of the basis, from public facts.

Model. Subspace iteration releases A Q + noise in each round and orthonormalises the result
(`spectrum.subspace_iteration`). More rounds converge further, but each has a smaller share w of the budget and so the
noise S(1)/sqrt(w). The best compromise depends on A, which is not known. A is replaced by a public model: n times a
diagonal matrix of trace 1 whose eigenvalues fall as k^-1.5. The planner simulates all candidate schedules on the model,
with a fixed seed, and takes the shortest of those that capture nearly the most energy.

Nothing here reads data, so nothing is released. Reference: M. Hardt and E. Price, The noisy power method, NIPS 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from zerosum.algorithms.pca.tuning import TUNING
from zerosum.arrays import Floats

# Number of units that a planner assumes where the number is not public. Other algorithms use it too, so it is no field
# of `Tuning`. Chosen by hand; no benchmark recorded.
GUESSED_UNITS = 10_000


@dataclass(frozen=True)
class Schedule:
    """`rounds` rounds whose shares grow geometrically, the last `growth` times the first, and a basis with `extra`
    columns more than components, which are dropped at the end.

    >>> Schedule(3, 4.0, 0).shares
    (0.14285714285714285, 0.2857142857142857, 0.5714285714285714)
    """

    rounds: int = TUNING.rounds
    growth: float = TUNING.growth
    extra: int = TUNING.extra

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each round, of the budget of all rounds; they add up to 1."""
        weights = [self.growth ** (r / max(self.rounds - 1, 1)) for r in range(self.rounds)]
        return tuple(weight / math.fsum(weights) for weight in weights)


@lru_cache(maxsize=32)
def choose_schedule(
    columns: int,
    components: int,
    units: int | None,
    noise: float,
    rounds: int | None = None,
    growth: float | None = None,
    extra: int | None = None,
) -> Schedule:
    """The shortest schedule whose captured energy on the public model is within the tolerance of the best.

    A diagonal model is general enough: normal noise and a random first basis have the same law in every basis. A large
    model is replaced by a smaller one with the same ratio of noise sqrt(columns) to the last wanted eigenvalue.

    Parameters
    ----------
    columns, components : int
        D and K.
    units : int, optional
        n; `GUESSED_UNITS` if it is not public.
    noise : float
        Standard deviation of an entry of a product that takes the whole budget.
    rounds, growth, extra : optional
        Fields of `Schedule` that are given and not searched.
    """
    lengths = TUNING.round_candidates if rounds is None else (rounds,)
    rises = TUNING.growth_candidates if growth is None else (growth,)
    # The basis cannot be wider than D.
    widths = sorted(
        {min(more, columns - components) for more in (TUNING.extra_candidates if extra is None else (extra,))}
    )
    candidates = {
        Schedule(length, rise, width)
        for length in lengths
        for rise in (rises if length > 1 else rises[:1])
        for width in widths
    }
    if len(candidates) == 1:
        return candidates.pop()
    K = min(components, TUNING.model_components)
    D = min(columns, TUNING.model_columns, max(TUNING.model_entries // (K + widths[-1]), 2 * K))
    values, last = _power_law(D), float(_power_law(columns)[components - 1])
    # Noise of the smaller model: the ratio of noise sqrt(D) to the K-th eigenvalue stays the same.
    model_noise = noise * math.sqrt(columns / D) * float(values[K - 1]) / last
    signal = (units or GUESSED_UNITS) * values
    energies = {schedule: _captured_energy(signal, K, model_noise, schedule) for schedule in candidates}
    enough = max(energies.values()) - TUNING.energy_tolerance
    short = [schedule for schedule, energy in energies.items() if energy >= enough]
    return min(short, key=lambda each: (each.rounds * (components + each.extra), -energies[each]))


def _power_law(columns: int) -> Floats:
    """The eigenvalues of the model, of shape (columns,): falling, with sum 1."""
    values = np.arange(1, columns + 1) ** -TUNING.spectrum_exponent
    return np.asarray(values / np.sum(values))


def _captured_energy(signal: Floats, components: int, noise: float, schedule: Schedule) -> float:
    """Energy that one simulated subspace iteration captures, over the best possible: a number from 0 to 1.

    Parameters
    ----------
    signal : array of shape (D,)
        Eigenvalues of the model.
    components : int
        K, the number of directions that are wanted.
    noise : float
        Standard deviation of an entry at share 1.
    schedule : Schedule
        Shares of the rounds and number of extra columns.
    """
    rng = np.random.default_rng(0)
    width = min(components + schedule.extra, len(signal))
    basis = np.linalg.qr(rng.normal(size=(len(signal), width)))[0]
    for share in schedule.shares:
        # One release: the product with the current basis, with noise that falls as 1/sqrt(share).
        product = signal[:, None] * basis + noise / math.sqrt(share) * rng.normal(size=basis.shape)
        basis = np.linalg.qr(product)[0]
    # The extra columns are dropped: only the leading singular vectors of the last product count.
    directions = np.linalg.svd(product, full_matrices=False)[0][:, :components]
    return float(np.sum(signal @ directions**2) / np.sum(signal[:components]))
