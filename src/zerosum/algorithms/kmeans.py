"""k-means in a fixed number of rounds.

Every round releases for each center the count and the sum of the rows nearest to it (`ClusterSums`), and all rounds
have equal shares of the budget. A center moves to sum/count (Lloyd's step). The first round uses many public cells in
place of centers; their noisy means, weighted by their counts, are clustered by k-means++ at the coordinator.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.clusters import ClusterSums

_CELLS = 8  # public cells per cluster in the first round; chosen by hand, no benchmark recorded


class KMeansProgram(RangedAlgorithm):
    """k-means: one round over public cells for the start, then rounds of Lloyd's algorithm.

    The sensitivity does not grow with the number of cells, so the first round costs as much as any other. A cluster
    whose count is below two standard deviations of the noise keeps its center.

    Results: `centers` in the units of the data, `counts` of the last round, and `count_noise_std`.
    """

    name: ClassVar[str] = "k-means"
    n_clusters: int = Field(gt=0)
    rounds: int = Field(default=5, gt=1)
    start: int = 0  # seed of the public cells, nothing else

    def _statistic(self, centers: Floats) -> ClusterSums:
        return ClusterSums(**self.bounds, centers=centers)

    def _request(self, centers: Floats) -> PrivateSum:
        return PrivateSum(self._statistic(centers), 1 / self.rounds)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        cells = self.cells()
        return (self._request(cells), *[self._request(cells[: self.n_clusters])] * (self.rounds - 1))

    def cells(self) -> Floats:
        """Public cells: random points of the public domain, each the farthest from those before it. No data enter."""
        rng = np.random.default_rng(self.start)
        count = _CELLS * self.n_clusters
        candidates = rng.uniform(-1, 1, (50 * count, len(self.columns)))
        if self.lower is None:
            candidates *= self.radius / np.sqrt(len(self.columns))
        chosen = [candidates[0]]
        distance = np.full(len(candidates), np.inf)
        while len(chosen) < count:
            distance = np.minimum(distance, np.sum((candidates - chosen[-1]) ** 2, axis=1))
            chosen.append(candidates[int(np.argmax(distance))])
        return np.array(chosen)

    def program(self, adjacency: Adjacency) -> Program:
        centers = self.cells()
        release = yield self._request(centers)
        points, counts = self._moved(centers, release.value, release.noise_std)
        valid = counts > 0
        if np.sum(valid) >= self.n_clusters:
            centers = weighted_kmeans(points[valid], counts[valid], self.n_clusters, self.start)
        else:
            centers = points[np.argsort(-counts, kind="stable")[: self.n_clusters]]
        for _ in range(self.rounds - 1):
            release = yield self._request(centers)
            counts, _sums = self._statistic(centers).split(release.value)
            centers, _heard = self._moved(centers, release.value, release.noise_std)
        axis = Axis.numbered("cluster", self.n_clusters)
        return {
            "centers": Quantity(self.middle + self.half * centers, "center", (axis, self.column_axis)),
            "counts": Quantity(counts, "count", (axis,), release.noise_std),
            "count_noise_std": Quantity(np.array([release.noise_std]), "diagnostic"),
        }

    def _moved(self, centers: Floats, value: Floats, noise: float) -> tuple[Floats, Floats]:
        """One Lloyd step: the new centers, and the counts, with counts below the noise set to zero.

        Parameters
        ----------
        centers : array (K, D)
            Centers of the request, in half ranges.
        value : array
            Its release.
        noise : float
            Standard deviation of the noise of a count.
        """
        counts, sums = self._statistic(centers).split(value)
        valid = counts > 2 * noise
        moved = sums / np.where(valid, counts, 1.0)[:, None]
        return np.where(valid[:, None], self._inside(moved), centers), np.where(valid, counts, 0.0)

    def _inside(self, points: Floats) -> Floats:
        """Points projected into the public domain: noise can move a mean outside of it."""
        if self.lower is not None:
            points = np.clip(points, -1, 1)
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        return np.asarray(points * np.minimum(1, self.radius / np.maximum(norms, 1e-300)))


def weighted_kmeans(points: Floats, weights: Floats, clusters: int, seed: int, restarts: int = 20) -> Floats:
    """The best of several k-means++ runs on weighted points (Arthur and Vassilvitskii 2007). Free post-processing.

    Parameters
    ----------
    points, weights : arrays (n, D) and (n,)
        Noisy means of cells, and their counts.
    clusters : int
        Number of centers.
    seed : int
        Public seed of the starts.
    restarts : int
        Number of runs; the one with the least weighted sum of squared distances is returned.

    Returns
    -------
    centers : array (clusters, D)
        In lexicographic order, so that the result does not depend on the run.

    >>> weighted_kmeans(np.array([[0.0], [0.2], [5.0]]), np.array([1.0, 1.0, 3.0]), 2, 0).round(2).ravel().tolist()
    [0.1, 5.0]
    """
    rng = np.random.default_rng(seed)
    best, lowest = points[:clusters], np.inf
    for _ in range(restarts):
        centers = points[rng.choice(len(points), 1, p=weights / weights.sum())]
        while len(centers) < clusters:
            gap = weights * np.min(_squared(points, centers), axis=1)
            chance = gap / gap.sum() if gap.sum() > 0 else weights / weights.sum()
            centers = np.vstack([centers, points[rng.choice(len(points), 1, p=chance)]])
        for _ in range(30):
            nearest = np.argmin(_squared(points, centers), axis=1)
            member = (nearest[:, None] == np.arange(clusters)) * weights[:, None]
            mass = member.sum(axis=0)
            centers = np.where(mass[:, None] > 0, member.T @ points / np.maximum(mass, 1e-300)[:, None], centers)
        cost = float(weights @ np.min(_squared(points, centers), axis=1))
        if cost < lowest:
            best, lowest = centers, cost
    return best[np.lexsort(best.T[::-1])]


def _squared(points: Floats, centers: Floats) -> Floats:
    return np.asarray(np.sum((points[:, None, :] - centers[None, :, :]) ** 2, axis=2))
