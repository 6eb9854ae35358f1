"""Adversary of the audit: learned linear discriminant, and search for the two most distinguishable units.

Model. The view of a coalition in one round is V = M + N, of shape (rows, numbers): M is the part without noise, which
the adversary of differential privacy knows for both data sets, and the columns of N are independent with a common
covariance C, of shape (rows, rows). The victim's contribution is in row 1. The linear estimate d'V with d_1 = 1 has its
least variance at d = C^-1 e_1 / (C^-1)_11, the Gauss-Markov estimate; the variance is then 1 / (C^-1)_11. The mu of the
round is the distance of the two contributions divided by its root. The adversary estimates C on one half of the
columns, and the variance on the other, so that learning does not make the measured noise too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import Algorithm
from zerosum.algorithms.program import RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import PrivatePublication, Release, Request
from zerosum.kernel.statistic import Adjacency, Statistic
from zerosum.kernel.terms import Noise

# Draws a unit and its mirror image, each of shape (rows, columns).
Draw = Callable[[np.random.Generator], list[Floats]]

_SILENT = 8  # number of values that are not all zero by chance


@dataclass(frozen=True)
class Attack:
    """Attack on one release.

    Attributes
    ----------
    noise : float
        Standard deviation of the best unbiased estimate of the victim's numbers.
    seen : int
        Number of values from which it was measured.
    errors : array
        Error of the estimate for all numbers; empty for an estimate without noise.
    slack : float
        Bound on the relative change of the variance caused by learning on some of the numbers.
    """

    noise: float
    seen: int
    errors: Floats
    slack: float = 0.0


def attack(view: Floats, centre: Floats, spare: Sequence[Floats] = ()) -> Attack:
    """Learn the best estimate on one half of the numbers and measure it on the other. With a single row there is
    nothing to learn, and all numbers are measured.

    Parameters
    ----------
    view : array of shape (rows, numbers)
        What the coalition knows; the victim's row is first.
    centre : array of the same shape
        The rows without noise, which the adversary of differential privacy knows.
    spare : sequence of arrays
        Rows that should be useless. They are used if the release is long enough to learn from them.
    """
    noise = view - centre
    half = noise.shape[1] // 2
    # At least 50 columns per row keep the error of the estimated covariance small. Chosen by hand; no benchmark
    # recorded.
    if half < 50 * (len(noise) - 1):
        raise BadParameter(
            f"a release of {noise.shape[1]} numbers is too short to attack this scheme, whose view has {len(noise)} "
            f"parts: audit a program that releases at least {100 * (len(noise) - 1)} numbers"
        )
    # Rows that should be useless detect noise that is used twice: the discriminant finds a weight for them only if they
    # are correlated with the victim's row.
    if half >= 50 * (len(noise) + len(spare) - 1):
        noise = np.vstack([noise, *spare])
    if len(noise) == 1:
        # A single row: the estimate is the row itself.
        left = float(np.sqrt(np.mean(noise**2)))
        silent_release = left == 0 and noise.shape[1] >= _SILENT
        return Attack(left, noise.shape[1], np.zeros(0) if silent_release else noise[0])
    # Rows are scaled to variance 1, so that the limit on eigenvalues below is relative.
    spread = np.sqrt(np.mean(noise[:, :half] ** 2, axis=1))
    # The victim's row has no noise at all.
    if spread[0] == 0:
        return Attack(0.0, noise.shape[1] - half, np.zeros(0))
    noise, spread = noise[spread > 0], spread[spread > 0]
    scaled = noise / spread[:, None]
    values, vectors = np.linalg.eigh(scaled[:, :half] @ scaled[:, :half].T / half)
    # Eigenvalues at the level of rounding error: combinations of rows without noise.
    silent = values <= 1e-13 * max(1.0, float(values[-1]))
    if np.linalg.norm(vectors[0, silent]) > 1e-6:  # A noise-free combination that contains the victim's row.
        return Attack(0.0, noise.shape[1] - half, np.zeros(0))
    # Solution of C d = e_1 on the range of the covariance C: the direction of least variance with a fixed victim
    # component.
    direction = vectors[:, ~silent] @ (vectors[0, ~silent] / values[~silent])
    # Scaled back to the units of the victim's row, with weight 1 on it.
    errors = direction @ scaled * (spread[0] / direction[0])
    # A fit of k weights to m columns changes the variance by about k / m; 4 is a margin chosen by hand.
    slack = 4 * len(noise) / half
    return Attack(float(np.sqrt(np.mean(errors[half:] ** 2))), noise.shape[1] - half, errors, slack)


def laplace_attack(view: Floats, centre: Floats) -> Attack:
    """Measure the noise of the victim's row where it is Laplace noise.

    The likelihood ratio of two shifts depends on the shifts over the scale b of the noise alone, and the mean absolute
    error is the maximum likelihood estimate of b. The other rows are independent of the victim's (`correlation`).

    Parameters
    ----------
    view : array of shape (rows, numbers)
        What the coalition knows; the victim's row is first.
    centre : array of the same shape
        The rows without noise.
    """
    errors = (view - centre)[0]
    silent_release = not np.any(errors) and errors.size >= _SILENT
    return Attack(float(np.mean(np.abs(errors))), errors.size, np.zeros(0) if silent_release else errors)


def worst_pair(
    releases: Sequence[tuple[Statistic, float]], draw: Draw, seed: int = 0, noise: Noise = "gaussian"
) -> tuple[Floats, Floats]:
    """Two units whose contributions to a whole study have the largest distance found by a search.

    Parameters
    ----------
    releases : sequence of (statistic, share)
        The releases of the study; each is weighted by the root of its share and by its sensitivity.
    draw : Draw
        Draws candidates.
    seed : int
        Seed of the search.
    noise : str
        The noise law, which decides the norm of the distance: L2, or L1 for Laplace noise.
    """
    rng, order = np.random.default_rng(seed), 1 if noise == "laplace" else 2
    # 60 draws with their mirror images: 120 candidates, all pairs of which are compared. Chosen by hand.
    pool = [unit for _ in range(60) for unit in draw(rng)]
    weights = [math.sqrt(share) / stat.distance(Adjacency.REPLACE_ONE, noise) for stat, share in releases]

    def contribution(unit: Floats) -> Floats:
        parts = [w * stat.total(Units.from_list([unit])) for w, (stat, _share) in zip(weights, releases, strict=True)]
        return np.concatenate(parts)

    values = np.array([contribution(unit) for unit in pool])
    apart = np.array([np.linalg.norm(values - value, ord=order, axis=1) for value in values])
    first, second = np.unravel_index(int(np.argmax(apart)), apart.shape)
    pair = [pool[int(first)], pool[int(second)]]

    def distance(units: list[Floats]) -> float:
        one, other = (contribution(unit) for unit in units)
        return float(np.linalg.norm(one - other, ord=order))

    # Random local search: a step that does not improve the distance reduces the step size.
    best, width = distance(pair), 0.3
    for turn in range(150):
        which = turn % 2
        tried = list(pair)
        scale = float(np.max(np.abs(pair[which]))) or 1.0
        tried[which] = pair[which] + width * scale * rng.normal(size=pair[which].shape)
        reach = distance(tried)
        if reach > best:
            pair, best = tried, reach
        else:
            width = max(0.9 * width, 1e-3)
    return pair[0], pair[1]


def rehearsed(algorithm: Algorithm, draw: Draw, units: int) -> list[tuple[Statistic, float]]:
    """Statistics and shares of a study, run without noise. Later requests depend on earlier results, which an adversary
    knows approximately."""
    rng = np.random.default_rng(1)
    table = Units.from_list([draw(rng)[0] for _ in range(units)])
    releases: list[tuple[Statistic, float]] = []

    def answer(request: Request) -> Release:
        releases.append((request.statistic, request.share))
        if isinstance(request, PrivatePublication):
            return Release(request.statistic.rows(table), 0.0, float(units), (), (units,))
        return Release(contributed(request, table), 0.0, float(units), ())

    drive(algorithm.program(Adjacency.REPLACE_ONE), answer)
    return releases


def contributed(request: Request, units: Units, order: NDArray[np.intp] | None = None) -> Floats:
    """Contribution of a site without noise: the sum, or the published rows in a given order, flattened."""
    if isinstance(request, PrivatePublication):
        rows = request.statistic.rows(units)
        return (rows if order is None else rows[order]).ravel()
    return request.statistic.total(units)


def candidates(algorithm: Algorithm) -> Draw:
    """Function that draws units of an algorithm: single columns at their bounds, corners, and all columns at many
    scales, each with its mirror image. Categories are drawn separately."""
    columns = len(algorithm.columns)
    kinds = {algorithm.columns.index(name): len(each) for name, each in algorithm.categories.items()}

    def draw(rng: np.random.Generator) -> list[Floats]:
        # Units on and beyond the bound of the norm, in the coordinates in which the algorithm clips.
        if isinstance(algorithm, RangedAlgorithm):
            row = np.zeros(columns)
            kind = rng.integers(3)
            if kind == 0:
                row[rng.integers(columns)] = algorithm.radius
            elif kind == 1:
                row = rng.choice([-1.0, 1.0], columns) * algorithm.radius / np.sqrt(columns)
            else:
                row = rng.normal(size=columns)
                row *= algorithm.radius * 10 ** rng.uniform(-1, 1) / np.linalg.norm(row)
            return [(algorithm.middle + side * algorithm.half * row)[None, :] for side in (1, -1)]
        if len(kinds) == columns:
            return [np.array([[float(rng.integers(kinds[at])) for at in range(columns)]]) for _ in range(2)]
        # One unit in eight has an extreme magnitude: squares overflow above 1e154 and underflow below 1e-162, where a
        # clip may fail.
        scale = 10 ** (rng.uniform(-1, 2) if rng.integers(8) else rng.uniform(-170, 150))
        rows = scale * rng.standard_t(3, size=(algorithm.rows_of_a_unit, columns))
        if rng.integers(2):  # few nonzero columns, far from all other units
            rows = np.outer(rows[:, 0], rng.normal(size=columns) * (rng.random(columns) < 1 / columns))
        pair = [rows, -rows]
        for unit in pair:
            for at, many in kinds.items():
                unit[:, at] = rng.integers(many)
        return pair

    return draw
