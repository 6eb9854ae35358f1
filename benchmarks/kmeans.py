"""Private k-means over sites beside mixtures and peers: agreement with the true groups, and the sum of squares.

    python benchmarks/kmeans.py [--runs 10] [--epsilons 0.5 1 3] [--cases blobs-2 ...] [--peer PYTHON]

Six made-up kinds of data in public ranges [-1, 1], 10 000 people at five sites, one colluding, delta 1e-5. The name of
a case has its kind, columns and clusters. For each method: the adjusted Rand index of the released centers against the
true groups, where there are groups, and the sum of squared distances to the nearest center over that of scikit-learn's
KMeans without privacy; means over runs and the worst run. With `--peer`, an interpreter that has diffprivlib, its
KMeans on the pooled data at the same epsilon (pure, one trusted holder) stands beside.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans as Lloyd
from sklearn.metrics import adjusted_rand_score

import zerosum

Floats = NDArray[np.float64]
SITES, UNITS = 5, 10_000
PEER = """
import json, sys, warnings
import numpy as np
from diffprivlib.models import KMeans
warnings.simplefilter("ignore")
given = np.load(sys.argv[1])
rows = given["rows"]
found = KMeans(int(given["clusters"]), epsilon=float(sys.argv[2]), bounds=(-1, 1), random_state=int(sys.argv[3]))
print(json.dumps(found.fit(rows).cluster_centers_.tolist()))
"""


def case(name: str, seed: int) -> tuple[Floats, NDArray[np.int64] | None, int]:
    """Rows in [-1, 1], their true groups, and the number of groups."""
    rng = np.random.default_rng([seed, len(name)])
    kind, *numbers = name.split("-")
    columns, clusters = int(numbers[0]), int(numbers[1])
    if kind == "uniform":
        return rng.uniform(-1, 1, (UNITS, columns)), None, clusters
    # Ten standard deviations apart for "far", about four for "near"; unequal shares for "rare".
    shares = np.full(clusters, 1 / clusters)
    if kind == "rare":
        shares = 0.6 ** np.arange(clusters)
    centers = rng.uniform(-0.7, 0.7, (1000, columns))
    chosen = [centers[0]]
    while len(chosen) < clusters:  # as far from each other as random points are
        distance = np.min([np.linalg.norm(centers - each, axis=1) for each in chosen], axis=0)
        chosen.append(centers[int(np.argmax(distance > np.quantile(distance, 0.5)))])
    places = np.array(chosen)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)[~np.eye(clusters, dtype=bool)].min()
    std = apart / {"far": 10.0, "rare": 8.0, "near": 4.0, "wide": 6.0}[kind]
    groups = rng.choice(clusters, UNITS, p=shares / shares.sum())
    scales = rng.uniform(0.4, 1.6, (clusters, columns)) if kind == "wide" else np.ones((clusters, columns))
    rows = places[groups] + std * scales[groups] * rng.normal(size=(UNITS, columns))
    return np.clip(rows, -1, 1), groups, clusters


CASES = ["far-2-5", "near-2-5", "rare-10-6", "near-30-8", "wide-30-5", "uniform-3-8"]


def scores(rows: Floats, groups: NDArray[np.int64] | None, centers: Floats, best: float) -> tuple[float, float]:
    """The adjusted Rand index (NaN without groups), and the sum of squares over the best one."""
    squares = np.array([np.sum((rows - center) ** 2, axis=1) for center in centers])
    nearest = np.argmin(squares, axis=0)
    agreement = np.nan if groups is None else float(adjusted_rand_score(groups, nearest))
    return agreement, float(np.sum(np.min(squares, axis=0))) / best


def compare(
    name: str, epsilon: float, runs: int, peer: str | None, folder: Path
) -> dict[str, list[tuple[float, float]]]:
    """Scores of every method on `runs` draws of a case.

    Parameters
    ----------
    name, epsilon : str and float
        The case and the budget.
    runs : int
        Number of draws.
    peer : str or None
        An interpreter that has diffprivlib.
    folder : Path
        Where rows for the peer are written.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(runs):
        rows, groups, clusters = case(name, seed)
        best = Lloyd(clusters, n_init=10, random_state=0).fit(rows)
        ends = np.full(rows.shape[1], 1.0)
        settings: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-5, "lower": -ends, "upper": ends}
        settings |= {"random_state": seed, "data": "synthetic"}
        sites = np.array_split(rows, SITES)
        centers = {
            "not private": best.cluster_centers_,
            "KMeans": zerosum.KMeans(clusters, **settings).fit(sites).cluster_centers_,
            "GaussianMixture": zerosum.GaussianMixture(clusters, **settings).fit(sites).means_,
        }
        if peer:
            np.savez(folder / "rows.npz", rows=rows, clusters=clusters)
            command = [peer, "-c", PEER, str(folder / "rows.npz"), str(epsilon), str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            centers["diffprivlib"] = np.array(json.loads(done.stdout.splitlines()[-1]))
        for method, each in centers.items():
            found.setdefault(method, []).append(scores(rows, groups, each, best.inertia_))
    return found


def main() -> None:
    """Print one line for each case, epsilon and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--peer", help="an interpreter that has diffprivlib")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        for name in given.cases:
            for epsilon in given.epsilons:
                found = compare(name, epsilon, given.runs, given.peer, Path(folder))
                for method, pairs in found.items():
                    rand, ratio = np.array(pairs).T
                    print(
                        f"{name:>12} {epsilon:>4} {method:<16} ARI {rand.mean():.3f} (least {rand.min():.3f})   "
                        f"squares {ratio.mean():.2f} (most {ratio.max():.2f})",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
