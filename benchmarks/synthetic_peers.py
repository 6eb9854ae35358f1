"""MST and AIM of one trusted holder of all records (OpenDP), beside `benchmarks/synthetic.py`.

    uv venv peers && uv pip install --python peers/bin/python -e . "opendp[mbi]==0.16.0" statsmodels
    peers/bin/python benchmarks/synthetic_peers.py [--method MST|AIM] [--sets adult,randhie,covertype] [--seeds 3]

OpenDP's releases are pinned to versions that clash with this project's, so that it has an environment of its own, and
CI does not run it. Both methods see all records, protect a person added or removed, and are accounted in zero-
concentrated privacy: they need less noise than sites that protect a replaced person. Domains, the split of rows and the
scores are those of `benchmarks/synthetic.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from importlib import import_module
from typing import Any

import numpy as np

from synthetic import DELTA, SETS, Codes, Table, mean_of, score, split


def rho_of(epsilon: float, delta: float) -> float:
    """The largest rho whose (rho)-zCDP implies (epsilon, delta) (Canonne, Kamath and Steinke 2020, proposition 12)."""
    order = 1 + np.geomspace(1e-4, 1e4, 20_000)

    def reached(rho: float) -> float:
        return float(np.min(rho * order + np.log1p(-1 / order) - np.log(delta * order) / (order - 1)))

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) <= epsilon else (low, middle)
    return low


def made_by(method: str, table: Table, real: Codes, epsilon: float, seed: int) -> Codes:
    """Records of a peer's release, as many as there are people.

    Parameters
    ----------
    method : str
        "MST" or "AIM", with OpenDP's defaults.
    table : Table
        Its domains are public.
    real : array
        The people.
    epsilon : float
        With `DELTA`.
    seed : int
        For the choice of records; OpenDP's noise has no seed.
    """
    dp, polars = import_module("opendp.prelude"), import_module("polars")
    dp.enable_features("contrib")
    names = [f"c{at}" for at in range(len(table.sizes))]
    frame = polars.LazyFrame(dict(zip(names, real.T.astype(np.int64), strict=True)))
    keys = {name: list(range(size)) for name, size in zip(names, table.sizes, strict=True)}
    algorithm = getattr(import_module("opendp.extras.mbi"), method)()
    # OpenDP divides rho among its queries in doubles, and may find their sum above it by a rounding error: then with a
    # value that is smaller by a thousandth.
    for rho in rho_of(epsilon, DELTA) * (1 - 1e-3 * np.arange(6)):
        context: Any = dp.Context.compositor(
            data=frame,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(rho=float(rho)),
            split_evenly_over=1,
        )
        try:
            released = context.query().select(*names).contingency_table(keys=keys, algorithm=algorithm).release()
            break
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error):
                raise
    else:
        raise RuntimeError(f"{method} found its own budget too small six times")
    drawn, rng = released.synthesize().select(names).to_numpy().astype(np.float64), np.random.default_rng(seed)
    # OpenDP has a category of undeclared values in each column, which noise fills: in its place a value of the column.
    for column in drawn.T:
        strange = ~np.isfinite(column)
        column[strange] = rng.choice(column[~strange], int(strange.sum()))
    chosen = rng.permutation(len(drawn))
    # The number of records of a release has noise, of about one in a thousand.
    return np.asarray(drawn[np.resize(chosen, len(real))].astype(np.intp))


def main() -> None:
    """Print a line for each set and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="MST", choices=("MST", "AIM"))
    parser.add_argument("--sets", default="adult,randhie,covertype")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", default="1")
    given = parser.parse_args()
    print(f"{given.method}, pooled, add/remove, delta {DELTA:g}: tables of one, two, three columns; AUC", flush=True)
    for name in given.sets.split(","):
        table = SETS[name]()
        for epsilon in map(float, given.epsilons.split(",")):
            found, began = [], time.perf_counter()
            for seed in range(1, given.seeds + 1):
                real, test = split(table, seed)
                found.append(score(table, made_by(given.method, table, real, epsilon, seed), real, test))
            seconds = math.ceil((time.perf_counter() - began) / given.seeds)
            print(f"{name}, epsilon {epsilon:g}: {mean_of(found)}  ({given.seeds} runs, {seconds} s each)", flush=True)


if __name__ == "__main__":
    main()
