"""Public cells and their clusters: starts of k-means and of mixtures. Nothing here reads data.

References: T. Gonzalez, Clustering to minimize the maximum intercluster distance, 1985 (`farthest_points`); D. Arthur
and S. Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007 (the starts of `weighted_kmeans`).
"""

from __future__ import annotations

import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from zerosum.arrays import Floats

# Starts of `weighted_kmeans`; the best one is taken. Chosen by hand; no benchmark recorded.
_RESTARTS = 20


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


def weighted_kmeans(points: Floats, weights: Floats, clusters: int, seed: int, restarts: int = _RESTARTS) -> Floats:
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
