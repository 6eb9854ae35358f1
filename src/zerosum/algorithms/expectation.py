"""What to expect of maps before anything is spent: their correlation with the maps without noise, from public facts.

A second moment over units, each of norm 1, is a matrix N L plus noise: L has the eigenvalues l_1 >= l_2 >= ..., and an
entry of the noise has the standard deviation s on the diagonal and s/sqrt(2) off it. This is a spiked Wigner matrix. In
V dimensions the noise alone has eigenvalues up to s sqrt(2 V), and a direction with N l_j above s sqrt(V/2) has a
squared cosine of about 1 - (s sqrt(V/2)/(N l_j))^2 with its estimate; below it, nothing but chance is left, R/V for R
directions. Close to this edge the formula is too optimistic, because one direction decides, so that `found` simulates
the matrix, in at most 200 dimensions with the noise that has the same edge. All depends on one number, x = s/N.

References: F. Benaych-Georges and R. R. Nadakuditi, The eigenvalues and eigenvectors of finite, low rank perturbations
of large random matrices, Advances in Mathematics 227, 2011.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from zerosum.arrays import Floats

# Below this expected correlation a study is refused unless the user insists: a map that correlates at .3 has less than
# a tenth of the variance in common with the map without noise.
LEAST = 0.3
# The correlation that `units` and `epsilon` of an outlook are for.
GOOD = 0.8
# Eigenvalues of the mean of people's second moments of norm 1 in resting-state fMRI: 0.59 j^-1.11, the fit to the first
# 20 of ABIDE (858 people, 200 regions). For single records j^-1.5, as the planner of PCA assumes.
RESTING = (0.59, 1.11)
RECORDS = 1.5
# For single records whose variance lies in few directions.
STEEP_RECORDS = 3.0
# Dimensions, repetitions and rotations of the simulation: a fraction of a second together. Chosen by hand.
_MOST_DIMENSIONS = 200
_REPEATS = 3
_ROTATIONS = 20


@dataclass(frozen=True)
class Expectation:
    """Expected correlations with the result without noise, from public facts alone.

    Parameters
    ----------
    low, high : float
        The range of what is expected of the maps, the mean over components.
    why : str
        What the two ends assume, in words.
    difference : (float, float), optional
        For guided ICA: the same for the difference from the templates, by which the result is judged.
    """

    low: float
    high: float
    why: str
    difference: tuple[float, float] | None = None

    @property
    def judged(self) -> tuple[float, float]:
        """The range that decides: of the difference where there is one, else of the maps."""
        return (self.low, self.high) if self.difference is None else self.difference

    @property
    def enough(self) -> bool:
        """Whether the upper end of the range is at least `LEAST`."""
        return self.judged[1] >= LEAST


def resting_spectrum(dimensions: int) -> Floats:
    """Assumed eigenvalues of people's mean second moment, shape (min(dimensions, 200),)."""
    scale, power = RESTING
    return scale * np.arange(1.0, min(dimensions, _MOST_DIMENSIONS) + 1) ** -power


def record_spectrum(dimensions: int, power: float) -> Floats:
    """Assumed eigenvalues of the mean of x x' over records of norm 1: they add up to 1."""
    values = np.arange(1.0, dimensions + 1) ** -power
    return np.asarray(values / values.sum())[:_MOST_DIMENSIONS]


def found(spectrum: Floats, count: int, dimensions: int, x: float) -> tuple[float, Floats]:
    """What is left of the leading directions in a noisy second moment.

    Parameters
    ----------
    spectrum : array
        l, in falling order.
    count : int
        R, the number of directions.
    dimensions : int
        V.
    x : float
        s/N.

    Returns
    -------
    single : float
        Mean correlation of matched single directions.
    cosines : array of shape (count,)
        Cosines of the angles between the two spaces, the mean of each over repetitions.

    Examples
    --------
    >>> single, cosines = found(np.array([1.0, 0.5]), 2, 100, 1e-6)
    >>> round(single, 3), cosines.round(3).tolist()
    (1.0, [1.0, 1.0])
    """
    single, cosines = _found(tuple(np.round(spectrum, 12).tolist()), count, dimensions, float(f"{x:.6g}"))
    return single, np.array(cosines)


@lru_cache(maxsize=256)
def _found(spectrum: tuple[float, ...], count: int, dimensions: int, x: float) -> tuple[float, tuple[float, ...]]:

    from scipy.optimize import linear_sum_assignment  # slow import, so it is left until it is needed

    if not x > 0:
        return 1.0, (1.0,) * count
    size = max(count, min(dimensions, _MOST_DIMENSIONS))
    signal = np.zeros(size)
    signal[: min(len(spectrum), size)] = spectrum[:size]
    rng, single, cosines = np.random.default_rng(0), [], []
    for _ in range(_REPEATS):
        noise = rng.normal(size=(size, size))
        # Off the diagonal x/sqrt(2); the factor keeps the edge x sqrt(2 V) of the noise in fewer dimensions.
        noise = (noise + noise.T) * (x / 2 * math.sqrt(dimensions / size))
        shared = np.linalg.eigh(np.diag(signal) + noise)[1][:, ::-1][:count, :count]
        pairs = np.abs(shared)
        single.append(pairs[linear_sum_assignment(-pairs)].mean())
        cosines.append(np.linalg.svd(shared, compute_uv=False))
    # Fewer dimensions have more agreement by chance than V have.
    chance = math.sqrt(count / max(dimensions, size)), math.sqrt(count / size)
    angles = np.mean(cosines, axis=0)
    if chance[1] > chance[0]:
        angles = np.where(angles < chance[1], angles * chance[0] / chance[1], angles)
    return float(np.mean(single)), tuple(float(each) for each in angles)


def separated(cosines: Floats) -> tuple[float, float]:
    """Mean correlation of maps in a space with those of another space, for the cosines between the two.

    The maps of either space are a random rotation of its directions.

    Parameters
    ----------
    cosines : array of shape (R,)
        Cosines of the angles between the spaces.

    Returns
    -------
    least, most : float
        For a separation that finds nothing, a random rotation whose maps are matched; and for one that costs nothing,
        whose maps are the projections of the others.

    >>> low, high = separated(np.ones(10))
    >>> 0.55 < low < 0.65, high
    (True, 1.0)
    """

    from scipy.optimize import linear_sum_assignment  # slow import, so it is left until it is needed

    rng, least, most = np.random.default_rng(0), [], []
    count = len(cosines)
    for _ in range(_ROTATIONS):
        one, other = (np.linalg.qr(rng.normal(size=(count, count)))[0] for _ in range(2))
        agreement = np.abs((one * cosines) @ other)
        least.append(agreement[linear_sum_assignment(-agreement)].mean())
        most.append(np.linalg.norm(one * cosines, axis=1).mean())
    return float(np.mean(least)), min(float(np.mean(most)), 1.0)
