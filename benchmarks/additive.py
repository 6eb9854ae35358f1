"""Additive models against peers on tables with a test part: AUC or explained variance, rounds, bytes, small numbers.

    python benchmarks/additive.py [--tables adult,kegg,diamonds,randhie] [--epsilon 0.5 1 4] [--seeds 10]
                                  [--methods ours,logistic,dp-gd,trees] [--write FOLDER] [--small] [--bytes]

Five equal sites, one colluder, delta 1e-6; every setting of ours is the planner's.

| method | trust | settings |
|---|---|---|
| ours | secure sum | the planner's |
| logistic | secure sum (`LogisticRegression`, one 0/1 column for each level) | the planner's, goal predict |
| dp-gd | the noise of a secure sum for every gradient of a logistic regression | the best of a grid on the test part |
| trees | none: gradient boosting of scikit-learn without privacy | defaults |

`--write` stores the tables for benchmarks/additive_peers.py (DP-EBM, in an environment of its own). Adult's
training part chose settings; diamonds (plotnine), kegg and randhie (statsmodels) chose none.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from zerosum.algorithms import AdditiveModelProgram, LogisticRegressionProgram
from zerosum.compute.units import Units
from zerosum.kernel.accountant import mu_for
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.study.planning import make_plan, resolve
from zerosum.study.rehearsal import PlanSimulation

Floats = NDArray[np.float64]
DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SITES, COLLUDERS, DELTA = 5, 1, 1e-6


@dataclass(frozen=True)
class Table:
    """Rows with the response last (codes for levels), and what is public about them."""

    name: str
    train: Floats
    test: Floats
    columns: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]
    levels: dict[str, tuple[float, ...]]
    whole: tuple[str, ...] = ()

    @property
    def classes(self) -> bool:
        """Whether the response is a class."""
        return self.columns[-1] in self.levels

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the program."""
        return {"columns": self.columns, "ranges": self.ranges, "levels": self.levels, "whole": self.whole}

    def score(self, predictor: Floats) -> float:
        """AUC, or explained variance of the test part."""
        truth = self.test[:, -1]
        return float(roc_auc_score(truth, predictor) if self.classes else r2_score(truth, predictor))


def _split(rows: Floats, share: float = 0.7) -> tuple[Floats, Floats]:
    order = np.random.default_rng(0).permutation(len(rows))
    cut = int(share * len(rows))
    return rows[order[:cut]], rows[order[cut:]]


def adult() -> Table:
    """Income over 50 000; the usual training and test parts, 12 columns; "?" is missing."""
    ranges = {
        "age": (17.0, 90.0),
        "education-num": (1.0, 16.0),
        "capital-gain": (0.0, 99999.0),
        "capital-loss": (0.0, 4356.0),
        "hours-per-week": (1.0, 99.0),
    }
    names = ("workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country")
    with gzip.open(DATA / "adult.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    known = {name: sorted({row[name] for row in rows} - {"?"}) for name in names}
    codes = {name: {level: float(at) for at, level in enumerate(own)} for name, own in known.items()}
    table = np.array(
        [
            [float(row[name]) for name in ranges]
            + [codes[name].get(row[name], np.nan) for name in names]
            + [float(">50K" in row["income"])]
            for row in rows
        ]
    )
    train = np.array([row["split"] == "train" for row in rows])
    levels = {name: tuple(float(at) for at in range(len(own))) for name, own in known.items()}
    columns = (*ranges, *names, "income")
    return Table("adult", table[train], table[~train], columns, ranges, {**levels, "income": (0.0, 1.0)}, tuple(ranges))


def diamonds() -> Table:
    """Logarithm of the price of 53 940 diamonds (plotnine), 9 columns that are nearly collinear."""
    package = importlib.util.find_spec("plotnine")  # not imported: only its data are needed
    if package is None or package.origin is None:
        raise SystemExit("the table diamonds needs plotnine: pip install plotnine")
    with (Path(package.origin).parent / "data" / "diamonds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("DEFGHIJ"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    ranges = {"carat": (0.0, 5.0), "depth": (40.0, 80.0), "table": (40.0, 90.0), "x": (0.0, 12.0), "y": (0.0, 12.0)}
    ranges |= {"z": (0.0, 8.0), "price": (5.0, 10.0)}
    table = np.array(
        [
            [float(row[name]) for name in ranges if name != "price"]
            + [float(own.index(row[name])) for name, own in known.items()]
            + [np.log(float(row["price"]))]
            for row in rows
        ]
    )
    levels = {name: tuple(float(at) for at in range(len(own))) for name, own in known.items()}
    columns = (*(name for name in ranges if name != "price"), *known, "price")
    return Table("diamonds", *_split(table), columns, ranges, levels)


def kegg() -> Table:
    """KEGG metabolic relation network, directed: 63 608 rows, 27 columns and a number; ranges are rounded extremes."""
    with gzip.open(DATA / "keggundirected_data.csv.gz", "rt") as file:
        table = np.loadtxt(io.StringIO(file.read()), delimiter=",")
    columns = (*(f"x{at}" for at in range(table.shape[1] - 1)), "y")
    # The columns are standardised in this file, so that no range is known beforehand: from the data, for all methods.
    ranges = {
        name: (float(np.floor(own.min())), float(np.ceil(own.max()) + 1e-9))
        for name, own in zip(columns, table.T, strict=True)
    }
    ranges = {name: (low, max(high, low + 1)) for name, (low, high) in ranges.items()}
    return Table("kegg", *_split(table), columns, ranges, {})


def randhie() -> Table:
    """RAND health insurance experiment (statsmodels), 20 190 records: log(1 + visits to a doctor), 9 columns."""
    from statsmodels.datasets import randhie as source

    frame = source.load_pandas().data
    names = [name for name in frame.columns if name != "mdvis"]
    table = np.column_stack([frame[name].to_numpy(dtype=float) for name in names] + [np.log1p(frame["mdvis"])])
    bounds = {"lncoins": (0, 5), "idp": (0, 1), "lpi": (0, 8), "fmde": (0, 9), "physlm": (0, 1), "disea": (0, 60)}
    bounds |= {"hlthg": (0, 1), "hlthf": (0, 1), "hlthp": (0, 1)}
    ranges = {name: (float(bounds[name][0]), float(bounds[name][1])) for name in names} | {"visits": (0.0, 4.5)}
    return Table("randhie", *_split(table), (*names, "visits"), ranges, {})


TABLES = {"adult": adult, "diamonds": diamonds, "kegg": kegg, "randhie": randhie}


def terms_of(count: int, epsilon: float) -> Terms:
    """Five equal sites and one colluder."""
    sites = tuple(PlannedSite(f"site{at}", count // SITES + (at < count % SITES)) for at in range(SITES))
    return Terms(
        sites=sites, epsilon=epsilon, delta=DELTA, scheme=Scheme(DEFAULT_SCHEME), coalition=Coalition(COLLUDERS)
    )


def simulation(algorithm: Any, count: int, epsilon: float) -> PlanSimulation:
    """The study with its plan."""
    terms = terms_of(count, epsilon)
    plan: Plan = make_plan(resolve(algorithm, terms), terms, "additive")
    return PlanSimulation(algorithm, plan)


def ours(table: Table, epsilon: float, seeds: int) -> Iterator[tuple[float, float]]:
    """Score and seconds of each run."""
    study = simulation(AdditiveModelProgram(**table.parameters), len(table.train), epsilon)
    program = study.algorithm
    assert isinstance(program, AdditiveModelProgram)
    data = Units.from_rows(table.train)
    for seed in range(seeds):
        start = time.perf_counter()
        estimate = study.run(data, seed)
        yield table.score(program.predictor(estimate, table.test[:, :-1])), time.perf_counter() - start


def _one_hot(table: Table, rows: Floats) -> Floats:
    """Numbers in [-1, 1], and a 0/1 column for every level but the first; missing values at the middle, or none."""
    found = []
    for at, name in enumerate(table.columns[:-1]):
        if name in table.levels:
            found += [(rows[:, at] == level).astype(float) for level in table.levels[name][1:]]
        else:
            low, high = table.ranges[name]
            # Long tails: a logarithm of ranges over four decades.
            own = (
                np.log1p(rows[:, at] - low) / np.log1p(high - low)
                if high > 2000
                else (rows[:, at] - low) / (high - low)
            )
            found.append(np.nan_to_num(2 * np.clip(own, 0, 1) - 1))
    return np.column_stack(found)


def logistic(table: Table, epsilon: float, seeds: int) -> Iterator[tuple[float, float]]:
    """The regression of ours on levels as columns."""
    x, x_test = _one_hot(table, table.train), _one_hot(table, table.test)
    low = np.append(np.where(np.all((x == 0) | (x == 1), axis=0), 0.0, -1.0), 0.0)
    names = tuple(f"x{at}" for at in range(x.shape[1]))
    program = LogisticRegressionProgram(columns=(*names, "y"), lower=low, upper=np.ones(len(low)), goal="predict")
    study = simulation(program, len(x), epsilon)
    data = Units.from_rows(np.column_stack([x, table.train[:, -1]]))
    for seed in range(seeds):
        start = time.perf_counter()
        found = study.run(data, seed)
        eta = x_test @ found["score_coefficients"].value + float(found["score_intercept"][0])
        yield table.score(eta), time.perf_counter() - start


def dp_gd(table: Table, epsilon: float, seeds: int, tried: Sequence[int]) -> tuple[str, list[float]]:
    """Noisy full gradients of a logistic regression, the best of a grid by the mean score on the test part."""
    x, x_test = (np.column_stack([_one_hot(table, rows), np.ones(len(rows))]) for rows in (table.train, table.test))
    # Columns on one scale: rows of norm about 1 lose nothing by the clip.
    y, n = table.train[:, -1], len(x)
    mu, dear = mu_for(epsilon, DELTA), float(np.sqrt(SITES / (SITES - COLLUDERS)))
    norms = np.linalg.norm(x, axis=1)[:, None]
    tries = [(step, clip) for step in (0.3, 1.0, 3.0, 10.0) for clip in (0.5, 1.0, 2.0)]
    best: tuple[float, str, list[float]] = (-np.inf, "", [])
    for rounds in tried:
        found: dict[Any, list[float]] = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            w, mean = np.zeros((x.shape[1], len(tries))), np.zeros((x.shape[1], len(tries)))
            limit = np.array([clip for _, clip in tries]) / norms
            noise = 2 * np.array([clip for _, clip in tries]) * np.sqrt(rounds) * dear / (mu * n)
            steps = np.array([step for step, _ in tries]) * 4 / float(np.mean(norms**2))
            for at in range(rounds):
                gradient = x.T @ np.clip(expit(x @ w) - y[:, None], -limit, limit) / n
                w -= steps * (gradient + noise * rng.standard_normal(w.shape))
                if at >= rounds // 2:
                    mean += w / (rounds - rounds // 2)
            for averaged, each in ((False, w), (True, mean)):
                for key, own in zip(tries, each.T, strict=True):
                    found.setdefault((rounds, *key, averaged), []).append(table.score(x_test @ own))
        for key, scores in found.items():
            if np.mean(scores) > best[0]:
                best = (float(np.mean(scores)), f"rounds, step, clip, averaged: {key}", scores)
    return best[1], best[2]


def trees(table: Table) -> float:
    """Gradient boosting without privacy."""
    kind = HistGradientBoostingClassifier if table.classes else HistGradientBoostingRegressor
    model = kind(random_state=0).fit(table.train[:, :-1], table.train[:, -1])
    return table.score(
        model.predict_proba(table.test[:, :-1])[:, 1] if table.classes else model.predict(table.test[:, :-1])
    )


def line(name: str, scores: list[float], more: str = "") -> None:
    """Mean, spread over seeds and lowest score."""
    print(
        f"{name}: {np.mean(scores):.4f} +- {np.std(scores):.4f}, lowest {min(scores):.4f}, {len(scores)} seeds {more}",
        flush=True,
    )


def small(table: Table, seeds: int) -> None:
    """Few units: what the plan says, and the score."""
    for count in (1000, 3000, 10_000):
        part = Table(
            table.name, table.train[:count], table.test, table.columns, table.ranges, table.levels, table.whole
        )
        for epsilon in (0.1, 1.0):
            try:
                study = simulation(AdditiveModelProgram(**part.parameters), count, epsilon)
            except Exception as refusal:
                print(f"{count} units, epsilon {epsilon:g}: refused: {refusal}")
                continue
            line(f"{count} units, epsilon {epsilon:g}", [each for each, _ in ours(part, epsilon, seeds)])
            print(f"    {study.algorithm.describe}")


def sizes(table: Table, epsilon: float) -> None:
    """Releases and numbers of a site's messages."""
    study = simulation(AdditiveModelProgram(**table.parameters), len(table.train), epsilon)
    found = [request.statistic.size for request in study.algorithm.requests(study.plan.adjacency)]
    print(f"epsilon {epsilon:g}: {len(found)} releases, {sum(found)} numbers, {8 * sum(found) / 1000:.0f} kB")


def write(table: Table, folder: Path) -> None:
    """The table for benchmarks/additive_peers.py."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [table.ranges.get(name, (0.0, float(len(table.levels.get(name, ()))))) for name in table.columns]
    low, high = np.array(bounds).T
    nominal = np.array([name in table.levels for name in table.columns[:-1]])
    np.savez(
        folder / f"{table.name}.npz",
        train=table.train, test=table.test, classes=table.classes, nominal=nominal, low=low, high=high,
    )  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--tables", default="adult")
    asked.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 4.0])
    asked.add_argument("--seeds", type=int, default=10)
    asked.add_argument("--methods", default="ours,trees")
    asked.add_argument("--rounds", type=int, nargs="+", default=[150, 500, 1500, 3000], help="of dp-gd")
    asked.add_argument("--write", type=Path)
    asked.add_argument("--small", action="store_true")
    asked.add_argument("--bytes", action="store_true")
    given = asked.parse_args()
    for name in given.tables.split(","):
        table = TABLES[name]()
        print(f"## {name}: {len(table.train)} units, {len(table.columns) - 1} columns", flush=True)
        if given.write:
            write(table, given.write)
            continue
        if given.small:
            small(table, given.seeds)
            continue
        if "trees" in given.methods:
            print(f"boosted trees without privacy: {trees(table):.4f}", flush=True)
        for epsilon in given.epsilon:
            if given.bytes:
                sizes(table, epsilon)
                continue
            if "ours" in given.methods:
                runs = list(ours(table, epsilon, given.seeds))
                seconds = np.mean([each for _, each in runs])
                line(f"ours, epsilon {epsilon:g}", [each for each, _ in runs], f"{seconds:.1f} s")
            if "logistic" in given.methods and table.classes:
                line(f"logistic, epsilon {epsilon:g}", [each for each, _ in logistic(table, epsilon, given.seeds)])
            if "dp-gd" in given.methods and table.classes:
                words, scores = dp_gd(table, epsilon, given.seeds, given.rounds)
                line(f"dp-gd, epsilon {epsilon:g}", scores, words)


if __name__ == "__main__":
    main()
