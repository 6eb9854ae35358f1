"""What decisions that nobody else can touch cost: k-means and PCA's second look over their bare products.

    python benchmarks/decisions.py [--other SRC] [--repeat 7]

Prints time over the bare products of the same data, measured side by side in this run: the median of paired ratios and
the range. With `--other`, the folder `src` of another checkout, its code is measured in turn with this one's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

CASES = {
    "k-means, 60 000 x 50, 10 centres": (60_000, 50, 10),
    "k-means, 20 000 x 784, 50 centres": (20_000, 784, 50),
    "second look, records, 20 000 x 784": (20_000, 784, 0),
    "second look, 200 people of 150 x 200": (30_000, 200, -200),
}


def ratio(rows: int, columns: int, centres: int) -> float:
    """The time of one release's sum over that of its bare products."""
    from zerosum.compute.units import Units
    from zerosum.statistics import build

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)) / np.sqrt(columns)
    if centres > 0:
        C = rng.normal(size=(centres, columns)) / np.sqrt(columns)
        stat, units = build("cluster_sums", {"columns": columns, "clip": 2.0, "centers": C}), Units.from_rows(X)
        member = np.eye(centres)[rng.integers(centres, size=rows)]

        def bare() -> None:
            X @ C.T
            member.T @ X

    else:
        turned = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
        projection = (turned / np.geomspace(30, 1, columns)) @ turned.T
        stat = build("scatter", {"columns": columns, "projection": projection})
        units = Units.from_rows(X)
        if centres < 0:
            units = Units(X, np.linspace(0, rows, 1 - centres).astype(np.int64))

        def bare() -> None:
            Y = X @ projection
            Y.T @ Y

    times = []
    for run in (bare, lambda: stat.total(units)):
        run()
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return times[1] / times[0]


def measured(source: Path, repeat: int) -> dict[str, list[float]]:
    """Ratios by the code in that folder, each repeat in a process of its own."""
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(repeat):
        environment = os.environ | {"PYTHONPATH": str(source)}
        told = subprocess.run([sys.executable, __file__, "--one"], env=environment, capture_output=True, check=True)
        for name, value in json.loads(told.stdout).items():
            found[name].append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="the folder src of another checkout")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps({name: ratio(*case) for name, case in CASES.items()}))
        return
    sources = {"this": Path(__file__).parents[1] / "src"} | ({"other": given.other} if given.other else {})
    found: dict[str, dict[str, list[float]]] = {source: {name: [] for name in CASES} for source in sources}
    for _ in range(given.repeat):  # in turn, so that a busy machine is busy for both
        for source, folder in sources.items():
            for name, values in measured(folder, 1).items():
                found[source][name] += values
    for name in CASES:
        for source in sources:
            values = found[source][name]
            print(f"{name}: {source} {median(values):.2f} ({min(values):.2f} to {max(values):.2f}) times bare products")


if __name__ == "__main__":
    main()
