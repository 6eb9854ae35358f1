"""Private PCA against what the same arithmetic costs without privacy: run `python benchmarks/pca.py [mnist.npz]`.

Two ratios, each measured side by side in one run: the whole private run at MNIST's size (centring, normalising, noise,
masks, ledgers) against a bare `X.T @ X` and `eigh`; and 20 000 columns by subspace iteration, from memory-mapped files,
against scikit-learn's randomized SVD.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import PCAProgram
from zerosum.compute.units import Units
from zerosum.site.policy import Policy
from zerosum.study import run

Floats = NDArray[np.float64]


def names(columns: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(columns))


def policies(sites: dict[str, Units], folder: Path, turn: int) -> dict[str, Policy]:
    return {
        name: Policy(population=f"{name} {turn}", unit="record", ledger=folder / f"{name} {turn}.sqlite")
        for name in sites
    }


def mnist_size(folder: Path, stored: Path | None) -> None:
    if stored is not None:
        with np.load(stored) as images:
            rows = images["x_train"].reshape(-1, 784) / 255.0
    else:
        rows = np.random.default_rng(0).uniform(size=(60_000, 784))
    sites = {f"s{s}": Units.from_rows(np.ascontiguousarray(rows[s::5])) for s in range(5)}
    algorithm = PCAProgram(columns=names(784), n_components=50, lower=np.zeros(784), upper=np.ones(784))
    ratios = []
    for turn in range(5):
        start = perf_counter()
        np.linalg.eigh(rows.T @ rows)
        bare = perf_counter() - start
        start = perf_counter()
        kept = policies(sites, folder, turn)
        run(algorithm, sites, epsilon=1.0, delta=1e-5, colluders=1, unit="record", policies=kept)
        ratios.append((perf_counter() - start) / bare)
    low, middle, high = min(ratios), sorted(ratios)[2], max(ratios)
    print(f"60 000 x 784, K=50: private run / bare X'X and eigh = {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)


class Anonymous(threading.Thread):
    """The most memory this process held beside mapped files, sampled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.running = 0, True

    def run(self) -> None:
        while self.running:
            fields = Path("/proc/self/statm").read_text().split()
            self.peak = max(self.peak, (int(fields[1]) - int(fields[2])) * resource.getpagesize())
            sleep(0.01)


def wide(folder: Path, columns: int = 20_000, rows: int = 5_000, components: int = 20) -> None:
    rng = np.random.default_rng(0)
    rank = 300
    axes = np.linalg.qr(rng.normal(size=(columns, rank)))[0]
    spread = 1 / np.arange(1, rank + 1)  # eigenvalues fall as k^-2
    sites = {}
    for s in range(4):
        file = folder / f"{s}.npy"
        table = np.lib.format.open_memmap(file, mode="w+", dtype=np.float64, shape=(rows, columns))
        for at in range(0, rows, 500):
            table[at : at + 500] = (rng.normal(size=(500, rank)) * spread) @ axes.T
        table.flush()
        sites[f"s{s}"] = Units.from_rows(np.load(file, mmap_mode="r"))
    algorithm = PCAProgram(columns=names(columns), n_components=components, clip=3.0, centering="none")
    before = Anonymous()
    before.start()
    sleep(0.1)
    idle = before.peak
    start = perf_counter()
    kept = policies(sites, folder, 99)
    result = run(algorithm, sites, epsilon=8.0, delta=1e-5, colluders=1, unit="record", policies=kept)
    private = perf_counter() - start
    before.running = False
    from sklearn.utils.extmath import randomized_svd

    pooled: Floats = np.vstack([np.asarray(units.rows) for units in sites.values()])
    start = perf_counter()
    _, _, best = randomized_svd(pooled, components, random_state=0)
    bare = perf_counter() - start

    def energy(vectors: Floats) -> float:
        return float(np.sum((vectors @ pooled.T) ** 2))

    share = energy(np.asarray(result.estimate["components"])) / energy(best)
    print(
        f"{4 * rows} x {columns}, K={components}, eps 8: {share:.3f} of the non-private energy, "
        f"{result.report.rounds} rounds, {result.report.bytes_per_site / 1e6:.1f} MB a site, "
        f"{(before.peak - idle) / 1e9:.2f} GB beyond the mapped data, "
        f"{private:.1f} s = {private / bare:.2f} times randomized SVD"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["ZEROSUM_STATE"] = temporary
        mnist_size(Path(temporary), Path(sys.argv[1]) if len(sys.argv) > 1 else None)
        wide(Path(temporary))
