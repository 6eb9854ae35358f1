"""k-means in a fixed number of rounds.

Model
-----
Rows x (D columns, in half ranges about the middle of the public ranges) are assigned to the nearest of K centers.
Lloyd's algorithm moves each center to the mean of its rows, and repeats.

What is released
----------------
Every round releases for each center the count and the sum of the rows nearest to it (`ClusterSums`, sensitivity 2 if a
unit is replaced), and all rounds have equal shares of the budget. Everything else is free post-processing:

1. The first round uses C = `Tuning.cells_per_cluster` K public cells in place of centers. Their noisy means, weighted
   by their counts, are clustered by weighted k-means (`weighted_kmeans`). The sensitivity does not depend on C.
2. In each of the other rounds a center moves to sum/count, unless the count may be noise.

References: S. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28 (1982); D. Arthur and S.
Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007 (the starts of `weighted_kmeans`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field
from threadpoolctl import threadpool_limits

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.clusters import ClusterSums


@dataclass(frozen=True)
class Tuning:
    """Tuned constants of k-means, each with its unit and its source."""

    cells_per_cluster: int = 8
    """Public cells of the first round for each cluster. Chosen by hand; no benchmark recorded."""
    candidates_per_cell: int = 50
    """Random points of the public domain from which each cell is chosen. Chosen by hand: with more points the cells
    would only be slightly farther apart."""
    count_evidence: float = 2.0
    """Smallest count of a center that moves, in standard deviations of the noise of a count. Below it, sum/count would
    be mostly noise. One-sided, normal: an empty cluster moves with probability 2.3 per cent. Chosen by hand; no
    benchmark recorded."""
    restarts: int = 20
    """Starts of `weighted_kmeans`; the best one is taken. Chosen by hand; no benchmark recorded."""


TUNING = Tuning()


class KMeansProgram(RangedAlgorithm):
    """k-means: one round over public cells for the start, then rounds of Lloyd's algorithm.

    The sensitivity does not grow with the number of cells, so the first round costs as much as any other. A cluster
    whose count is below two standard deviations of the noise (`Tuning.count_evidence`) keeps its center.

    Results: `centers` in the units of the data, `counts` of the last round, and `count_noise_std`.

    Parameters
    ----------
    n_clusters : int
        K.
    rounds : int
        Number of releases, the first round included; each has the share 1/rounds.
    start : int
        Public seed of the cells.
    columns, lower, upper, clip, missing
        As for `RangedAlgorithm`.
    """

    name: ClassVar[str] = "k-means"
    n_clusters: int = Field(gt=0)
    rounds: int = Field(default=5, gt=1)
    start: int = 0  # seed of the public cells, nothing else

    def _statistic(self, centers: Floats) -> ClusterSums:
        """The statistic of a round at public centers (C, D), in half ranges."""
        return ClusterSums(**self.bounds, centers=centers)

    def _request(self, centers: Floats) -> PrivateSum:
        """The request of a round at centers (C, D)."""
        return PrivateSum(self._statistic(centers), 1 / self.rounds)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """A round over the cells, then `rounds` - 1 rounds over K centers. The templates have cells as centers, since
        the sensitivity does not depend on them.
        """
        cells = self.cells()
        return (self._request(cells), *[self._request(cells[: self.n_clusters])] * (self.rounds - 1))

    def cells(self) -> Floats:
        """Public cells (C, D) in half ranges: random points of the public domain, each the farthest from those before
        it. No data enter."""
        rng = np.random.default_rng(self.start)
        count = TUNING.cells_per_cluster * self.n_clusters
        candidates = rng.uniform(-1, 1, (TUNING.candidates_per_cell * count, len(self.columns)))
        if self.lower is None:
            # Without ranges the domain is a ball; the cube inscribed in it has half edges of radius/sqrt(D).
            candidates *= self.radius / np.sqrt(len(self.columns))
        return farthest_points(candidates, count)

    def program(self, adjacency: Adjacency) -> Program:
        """The round over public cells, weighted k-means on their means, then Lloyd's rounds."""
        centers = self.cells()
        release = yield self._request(centers)
        points, counts = self._lloyd_step(centers, release.value, release.noise_std)
        valid = counts > 0
        # With a small budget fewer cells than clusters may have a count above the noise. Then the largest counts
        # decide: cells below the noise have count 0 and keep their public place.
        if np.sum(valid) >= self.n_clusters:
            centers = weighted_kmeans(points[valid], counts[valid], self.n_clusters, self.start)
        else:
            centers = points[np.argsort(-counts, kind="stable")[: self.n_clusters]]
        for _ in range(self.rounds - 1):
            release = yield self._request(centers)
            # Counts are reported as released; `_lloyd_step` sets those below the noise to zero.
            counts, _sums = self._statistic(centers).split(release.value)
            centers, _counts_above_noise = self._lloyd_step(centers, release.value, release.noise_std)
        axis = Axis.numbered("cluster", self.n_clusters)
        return {
            "centers": Quantity(self.middle + self.half * centers, "center", (axis, self.column_axis)),
            "counts": Quantity(counts, "count", (axis,), release.noise_std),
            "count_noise_std": Quantity(np.array([release.noise_std]), "diagnostic"),
        }

    def _lloyd_step(self, centers: Floats, value: Floats, noise: float) -> tuple[Floats, Floats]:
        """One Lloyd step: the new centers, and the counts, with counts below the noise set to zero.

        Parameters
        ----------
        centers : array (K, D)
            Centers of the request, in half ranges.
        value : array (K (1 + D),)
            Its release.
        noise : float
            Standard deviation of the noise of a count.

        Returns
        -------
        centers : array (K, D)
            sum/count, projected into the public domain; the old center where the count may be noise.
        counts : array (K,)
            Counts above `Tuning.count_evidence` standard deviations, else 0.
        """
        counts, sums = self._statistic(centers).split(value)
        valid = counts > TUNING.count_evidence * noise
        # The divisor 1 of the other centers only avoids a division by zero: their quotient is not used.
        moved = sums / np.where(valid, counts, 1.0)[:, None]
        return np.where(valid[:, None], self._inside(moved), centers), np.where(valid, counts, 0.0)

    def _inside(self, points: Floats) -> Floats:
        """Points (K, D) projected into the public domain: noise can move a mean outside of it."""
        if self.lower is not None:
            points = np.clip(points, -1, 1)
        # Rows are also clipped to norm `radius`, so no mean of rows is longer.
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        return np.asarray(points * np.minimum(1, self.radius / np.maximum(norms, 1e-300)))


def farthest_points(candidates: Floats, count: int) -> Floats:
    """Choose `count` of the candidates (n, D), the first one and then each the farthest from all chosen before it.

    This greedy choice covers the domain within twice the best possible radius (T. Gonzalez, Clustering to minimize the
    maximum intercluster distance, 1985).

    >>> farthest_points(np.array([[0.0], [1.0], [5.0], [9.0]]), 3).ravel().tolist()
    [0.0, 9.0, 5.0]
    """
    chosen, distance = [0], np.full(len(candidates), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.sum((candidates - candidates[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(np.argmax(distance)))
    return np.asarray(candidates[chosen])


def weighted_kmeans(
    points: Floats, weights: Floats, clusters: int, seed: int, restarts: int = TUNING.restarts
) -> Floats:
    """The best of several k-means++ runs on weighted points, by scikit-learn's `KMeans`. Free post-processing.

    Parameters
    ----------
    points, weights : arrays (n, D) and (n,)
        Noisy means of cells, and their counts (positive).
    clusters : int
        Number of centers, at most n.
    seed : int
        Public seed of the starts.
    restarts : int
        Number of runs; the one with the least weighted sum of squared distances is returned.

    Returns
    -------
    centers : array (clusters, D)
        In lexicographic order, so that the result does not depend on the run.

    Examples
    --------
    >>> weighted_kmeans(np.array([[0.0], [0.2], [5.0]]), np.array([1.0, 1.0, 3.0]), 2, 0).round(2).ravel().tolist()
    [0.1, 5.0]
    """
    from sklearn.cluster import KMeans  # heavy: loaded when it is used
    from sklearn.exceptions import ConvergenceWarning

    # Lloyd's algorithm to its fixed point: by default scikit-learn stops at steps of a hundredth of the spread.
    search = KMeans(clusters, n_init=restarts, random_state=seed, tol=0.0)
    # On several threads scikit-learn adds partial sums in the order in which threads finish, so the last bits would
    # differ between runs with more than 256 points.
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        # Fewer distinct points than clusters give equal centers, which is the right answer and needs no warning.
        warnings.simplefilter("ignore", ConvergenceWarning)
        centers = np.asarray(search.fit(points, sample_weight=weights).cluster_centers_, dtype=np.float64)
    return centers[np.lexsort(centers.T[::-1])]
