"""Synthetic data against the data: tables, prediction, error bars, inference, and cost.

    python benchmarks/synthetic.py [tables|errors|inference|scale] [--seeds 10] [--sets adult,randhie,covertype]

tables      mean total variation distance of all tables of one and two columns and of 100 tables of three columns, and
            the area under the ROC curve of gradient boosting trained on synthetic and tested on real records, by
            epsilon. References: independent columns, a bootstrap of the data, the real data. "skewed" has eight sites,
            each with one label mostly, and two colluders: only the sum is seen, so that the split must not matter.
errors      coverage of the 95 % error bars of tables of one, two (measured and not) and three columns.
inference   coverage of intervals of `inference` for a logistic regression on synthetic records, and of the usual ones.
scale       time, memory and bytes of a site against columns and rows.

Adult chose the settings (see `algorithms.synthetic.tuning`); the other sets did not. 80 % of the rows are fitted.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from zerosum.algorithms import SyntheticDataProgram
from zerosum.algorithms.synthetic.records import Model, distance, shares_of
from zerosum.compute.units import Units
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
EPSILONS, DELTA, TRIPLES = (0.5, 1.0, 3.0), 1e-9, 100


@dataclass(frozen=True)
class Table:
    """Codes of categories, the number of categories of each column, and which columns are ordered."""

    name: str
    codes: Codes
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]
    target: int

    @property
    def program(self) -> SyntheticDataProgram:
        names = tuple(f"c{at}" for at in range(len(self.sizes)))
        numbers = {n: (0.0, s - 1.0) for n, s, o in zip(names, self.sizes, self.ordered, strict=True) if o}
        return SyntheticDataProgram(
            columns=names,
            ranges=numbers,
            whole=tuple(numbers),
            levels={n: tuple(range(s)) for n, s in zip(names, self.sizes, strict=True) if n not in numbers},
            bins=max(self.sizes),
            target=names[self.target],
        )


def adult() -> Table:
    """The discretised Adult data: 48 842 people, 14 columns; numbers have more than 20 codes."""
    domain = json.loads((DATA / "adult_discretised_domain.json").read_text())
    with gzip.open(DATA / "adult_discretised.csv.gz", "rt") as file:
        rows = [[int(row[name]) for name in domain] for row in csv.DictReader(file)]
    sizes = tuple(domain.values())
    return Table("adult", np.array(rows), sizes, tuple(size > 20 for size in sizes), len(sizes) - 1)


def _binned(values: Floats, bins: int) -> Codes:
    """Codes of equal bins of the range, or of the values where there are few."""
    levels = np.unique(values)
    if len(levels) <= bins:
        return np.asarray(np.searchsorted(levels, values), dtype=np.intp)
    low, high = values.min(), values.max()
    return np.asarray(np.clip(((values - low) / (high - low) * bins).astype(np.intp), 0, bins - 1))


def _table(name: str, columns: Sequence[Floats], label: NDArray[np.bool_], bins: int = 32) -> Table:
    """Columns in codes, and the label as the last one."""
    codes = [_binned(np.asarray(each, dtype=np.float64), bins) for each in columns] + [label.astype(np.intp)]
    sizes = tuple(int(each.max()) + 1 for each in codes)
    return Table(name, np.column_stack(codes), sizes, tuple(size > 2 for size in sizes), len(sizes) - 1)


def randhie() -> Table:
    """The RAND health insurance experiment (statsmodels): 20 190 records, 9 columns; label: any visit to a doctor."""
    from statsmodels.datasets import randhie as source

    frame = source.load_pandas().data
    return _table("randhie", [frame[name] for name in frame.columns if name != "mdvis"], frame["mdvis"].to_numpy() > 0)


def covertype() -> Table:
    """Covertype: 60 000 patches of forest, 10 numbers, wilderness and soil; label: spruce or fir."""
    with np.load(DATA / "covtype_60k.npz") as source:
        x, y = source["X"].astype(np.float64), source["y"]
    columns = [*x[:, :10].T, np.argmax(x[:, 10:14], axis=1), np.argmax(x[:, 14:], axis=1)]
    found = _table("covertype", columns, y == 1, bins=40)
    # soil and wilderness are categories without an order
    ordered = tuple(each and at not in (10, 11) for at, each in enumerate(found.ordered))
    return Table(found.name, found.codes, found.sizes, ordered, found.target)


SETS = {"adult": adult, "randhie": randhie, "covertype": covertype}


@dataclass(frozen=True)
class Score:
    """Mean total variation distances of tables of one, two and three columns, and the area under the ROC curve."""

    one: float
    two: float
    three: float
    auc: float

    def __str__(self) -> str:
        return f"{self.one:.4f} {self.two:.4f} {self.three:.4f}  {self.auc:.4f}"


def score(table: Table, made: Codes, real: Codes, test: Codes) -> Score:
    """Scores of records against the fitted data, and of a classifier on the test data."""
    columns, rng = range(len(table.sizes)), np.random.default_rng(0)
    triples = list(combinations(columns, 3))
    some = [triples[at] for at in rng.choice(len(triples), min(TRIPLES, len(triples)), replace=False)]

    def mean(tables: Sequence[tuple[int, ...]]) -> float:
        return float(
            np.mean([distance(shares_of(real, table.sizes, at), shares_of(made, table.sizes, at)) for at in tables])
        )

    inputs, label = [at for at in columns if at != table.target], table.target
    auc = float("nan")
    if len(np.unique(made[:, label])) > 1:
        booster = HistGradientBoostingClassifier(random_state=0).fit(made[:, inputs], made[:, label] == 1)
        auc = roc_auc_score(test[:, label] == 1, booster.predict_proba(test[:, inputs])[:, 1])
    return Score(mean([(at,) for at in columns]), mean(list(combinations(columns, 2))), mean(some), auc)


def split(table: Table, seed: int) -> tuple[Codes, Codes]:
    """80 % of the rows for the fit, and the others."""
    order, count = np.random.default_rng(seed).permutation(len(table.codes)), int(0.8 * len(table.codes))
    return table.codes[order[:count]], table.codes[order[count:]]


def fitted(table: Table, real: Codes, epsilon: float, seed: int, sites: int = 5, colluders: int = 1) -> Model:
    """The model of one study: rehearsed with the noise of its plan."""
    program = table.program
    rehearsal = Rehearsal(program, len(real), sites, epsilon, DELTA, colluders)
    found = rehearsal.run(Units.from_rows(program.coordinates(real)), seed)
    return Model(np.asarray(found["component_shares"]), program.sizes)


def mean_of(scores: Sequence[Score]) -> str:
    """Means and standard deviations over seeds."""
    every = np.array([[each.one, each.two, each.three, each.auc] for each in scores])
    pairs = zip(every.mean(axis=0), every.std(axis=0, ddof=min(1, len(every) - 1)), strict=True)
    return "  ".join(f"{mean:.4f} +- {spread:.4f}" for mean, spread in pairs)


def tables(names: Sequence[str], seeds: int, epsilons: Sequence[float]) -> Iterator[str]:
    """The lines of the first table."""
    yield "set, method, epsilon: total variation of tables of one, two, three columns; AUC (mean +- sd of seeds)"
    for table in (SETS[name]() for name in names):
        references: dict[str, list[Score]] = {"real data": [], "bootstrap": [], "independent columns": []}
        for seed in range(1, min(seeds, 3) + 1):
            real, test = split(table, seed)
            rng = np.random.default_rng(seed)
            references["real data"].append(score(table, real, real, test))
            references["bootstrap"].append(score(table, real[rng.integers(0, len(real), len(real))], real, test))
            shuffled = np.column_stack([rng.permutation(column) for column in real.T])
            references["independent columns"].append(score(table, shuffled, real, test))
        for what, scores in references.items():
            yield f"{table.name}, {what}: {mean_of(scores)}"
        for epsilon in epsilons:
            settings = [("5 sites, 1 colluder", 5, 1)]
            if table.name == "adult" and epsilon == 1:
                settings.append(("8 sites, 2 colluders", 8, 2))
            for what, sites, colluders in settings:
                found = []
                for seed in range(1, seeds + 1):
                    real, test = split(table, seed)
                    model = fitted(table, real, epsilon, seed, sites, colluders)
                    made = model.records(len(real), np.random.default_rng(seed))
                    found.append(score(table, made, real, test))
                yield f"{table.name}, {what}, epsilon {epsilon:g}: {mean_of(found)}"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="tables", choices=("tables",))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sets", default="adult,randhie,covertype")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    given = parser.parse_args()
    began = time.perf_counter()
    for line in tables(given.sets.split(","), given.seeds, [float(each) for each in given.epsilons.split(",")]):
        print(f"{time.perf_counter() - began:6.0f} s  {line}", flush=True)


if __name__ == "__main__":
    main()
