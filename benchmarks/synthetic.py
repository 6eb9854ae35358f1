"""Synthetic data against the data: tables, prediction, error bars, inference, and cost.

    python benchmarks/synthetic.py [tables|errors|inference|membership|scale] [--seeds 10] [--sets adult,randhie]

tables      mean total variation distance of all tables of one and two columns and of 100 tables of three columns, and
            the area under the ROC curve of gradient boosting trained on synthetic and tested on real records, by
            epsilon. References: independent columns, a bootstrap of the data, the real data. One line has eight sites
            of one label each: only the sum is seen, so that the split must not matter.
errors      coverage of the 95 % error bars of tables of one, two (measured and not) and three columns.
inference   error of a logistic regression on synthetic records over the spread of `inference`; usual intervals.
membership  a shadow attack on the released model: guesses of whether a person is in the data (--seeds 200).
scale       time, memory and bytes of a site against columns and rows.

Adult chose the settings (see `algorithms.synthetic.tuning`); the other sets did not. 80 % of the rows are fitted.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from zerosum.algorithms import SyntheticDataProgram
from zerosum.algorithms.synthetic.records import Model, distance, shares_of
from zerosum.compute.units import Units
from zerosum.estimators import SyntheticData
from zerosum.kernel.statistic import Adjacency
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


def kegg() -> Table:
    """KEGG metabolic relations: 63 608 graphs, 12 heavy-tailed numbers in equal bins; label: the last one's half."""
    rows = np.loadtxt(DATA / "keggundirected_data.csv.gz", delimiter=",")
    # the extremes are cut to a public range of five deviations on both sides
    kept = [at for at in range(27) if len(np.unique(rows[:, at])) > 2][:12]
    columns = [np.clip(rows[:, at], *(rows[:, at].mean() + rows[:, at].std() * np.array([-5, 5]))) for at in kept]
    return _table("kegg", columns, rows[:, -1] > np.median(rows[:, -1]))


def fair() -> Table:
    """A survey on extramarital affairs (statsmodels): 6366 people, 8 columns; label: any affair."""
    from statsmodels.datasets import fair as source

    frame = source.load_pandas().data
    return _table("fair", [frame[name] for name in frame.columns if name != "affairs"], frame["affairs"].to_numpy() > 0)


def anes() -> Table:
    """The American election study of 1996 (statsmodels): 944 people, 9 columns; label: the expected vote."""
    from statsmodels.datasets import anes96 as source

    frame = source.load_pandas().data
    names = [name for name in frame.columns if name not in ("vote", "logpopul")]
    return _table("anes", [frame[name] for name in names], frame["vote"].to_numpy() > 0, bins=16)


def pixels() -> Table:
    """Fashion MNIST: 20 000 pictures, 12 pixels in a row in 16 bins, which depend strongly; label: a shoe."""
    with np.load(DATA / "fashion_mnist.npz") as source:
        x, y = source["x_train"], source["y_train"]
    return _table("pixels", list(x[:, 14, 2:26:2].astype(np.float64).T), np.isin(y, (5, 7, 9)), bins=16)


def crime() -> Table:
    """Communities and crime: 1994 communities, 13 numbers; label: more violent crime than the median."""
    with np.load(DATA / "communities_crime.npz") as source:
        x, y = source["X"].astype(np.float64), source["y"]
    whole = [at for at in range(x.shape[1]) if not np.any(np.isnan(x[:, at]))][:91:7]
    return _table("crime", list(x[:, whole].T), y > np.median(y), bins=16)


def made() -> Table:
    """A made-up table of 12 000 people: 150 levels with Zipf's frequencies, rare categories, columns that nearly
    determine each other, a relation of three columns without relations of two, and heavy tails.
    """
    rng, n = np.random.default_rng(37), 12_000
    town = np.minimum(rng.zipf(1.6, n) - 1, 149)
    region = np.where(rng.random(n) < 0.97, town % 7, rng.integers(0, 7, n))
    rare = (rng.random(n) < 0.004 * (1 + region)).astype(int)
    income = np.exp(9 + 0.1 * region + 1.2 * rng.standard_t(3, n))
    tax = income * rng.uniform(0.25, 0.3, n)
    a, b = rng.integers(0, 2, n), rng.integers(0, 2, n)
    c = np.where(rng.random(n) < 0.9, a ^ b, rng.integers(0, 2, n))
    visits = np.minimum(rng.negative_binomial(1 + rare + a, 0.3), 30)
    label = rng.random(n) < 1 / (1 + np.exp(-(visits / 4 - 1.5 + rare + (region == 2))))
    codes = [town, region, rare, *(_binned(np.clip(each, 0, 2e5), 40) for each in (income, tax)), a, b, c, visits]
    columns = np.column_stack([*codes, label])
    ordered = tuple(at in (3, 4, 8) for at in range(10))
    return Table("made", columns.astype(np.intp), tuple((columns.max(axis=0) + 1).tolist()), ordered, 9)


SETS = {
    "adult": adult,
    "randhie": randhie,
    "covertype": covertype,
    "kegg": kegg,
    "fair": fair,
    "crime": crime,
    "made": made,
    "anes": anes,
    "pixels": pixels,
}


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


def fitted(table: Table, real: Codes, epsilon: float, seed: int) -> Model:
    """The model of one study of five sites: rehearsed with the noise of its plan."""
    program = table.program
    rehearsal = Rehearsal(program, len(real), 5, epsilon, DELTA, 1)
    found = rehearsal.run(Units.from_rows(program.coordinates(real)), seed)
    return Model(np.asarray(found["component_shares"]), program.sizes)


def by_site(table: Table, real: Codes, epsilon: float, seed: int) -> Codes:
    """Records of a study between eight sites that each have one label only, two of them colluding.

    Unlike `fitted`, sums are added up and masked between sites.
    """
    made, names = estimator(table, epsilon, seed), [f"c{at}" for at in range(len(table.sizes))]
    made.set_params(colluders=2)
    sorted_by_label = real[np.argsort(real[:, table.target], kind="stable")]
    parts = np.array_split(sorted_by_label, 8)
    made.fit({f"s{s}": pyarrow.table(dict(zip(names, part.T.tolist(), strict=True))) for s, part in enumerate(parts)})
    columns = made.model_.program.columns
    codes = made.model_.model.records(len(real), np.random.default_rng(seed))
    return np.asarray(codes[:, [columns.index(name) for name in names]])


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
            settings = ["5 sites, 1 colluder"]
            if table.name == "adult" and epsilon == 1:
                settings.append("8 sites of one label each, 2 colluders")
            for what in settings:
                found = []
                for seed in range(1, seeds + 1):
                    real, test = split(table, seed)
                    if what == settings[0]:
                        model = fitted(table, real, epsilon, seed)
                        made = model.records(len(real), np.random.default_rng(seed))
                    else:
                        made = by_site(table, real, epsilon, seed)
                    found.append(score(table, made, real, test))
                yield f"{table.name}, {what}, epsilon {epsilon:g}: {mean_of(found)}"


def estimator(table: Table, epsilon: float, seed: int, delta: float = DELTA) -> SyntheticData:
    """The estimator with the table's domains, for public data."""
    program = table.program
    return SyntheticData(
        ranges=program.ranges,
        levels=program.levels,
        whole=program.whole,
        bins=program.bins,
        target=program.target,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        data="public",
    )


def sites_of(table: Table, sites: int = 5) -> dict[str, Any]:
    """Arrow tables of equal sites."""
    names = [f"c{at}" for at in range(len(table.sizes))]
    parts = np.array_split(table.codes, sites)
    return {f"s{s}": pyarrow.table(dict(zip(names, part.T.tolist(), strict=True))) for s, part in enumerate(parts)}


def errors(names: Sequence[str], seeds: int, epsilons: Sequence[float]) -> Iterator[str]:
    """Coverage of the error bars, by kind of table: share of cells whose 95 % interval contains the data's share."""
    yield "set, epsilon: tables: share of cells (with a share above 0.001) within the 95 % error bars, and their width"
    for table in (SETS[name]() for name in names):
        columns = range(len(table.sizes))
        rng = np.random.default_rng(0)
        pairs = [tuple(each) for each in rng.permutation(list(combinations(columns, 2)))[:30].tolist()]
        triples = [tuple(each) for each in rng.permutation(list(combinations(columns, 3)))[:15].tolist()]
        for epsilon in epsilons:
            inside: dict[str, list[float]] = {}
            width: dict[str, list[float]] = {}
            for seed in range(1, seeds + 1):
                made = estimator(table, epsilon, seed)
                # columns of results: numbers first, then categories
                order = [int(name[1:]) for name in (*(made.ranges or {}), *(made.levels or {}))]
                made.fit(sites_of(table))
                for at in [*((each,) for each in columns), *pairs, *triples]:
                    kind = "one column"
                    if len(at) > 1:
                        measured = len(at) == 2 and made.measured_[order.index(at[0]), order.index(at[1])]
                        kind = "three columns" if len(at) == 3 else "measured pairs" if measured else "other pairs"
                    found = made.marginal([f"c{each}" for each in at])
                    real = np.zeros(found.shape)
                    seen = shares_of(table.codes, table.sizes, at)
                    real[tuple(slice(size) for size in seen.shape)] = seen
                    some = real > 0.001
                    inside.setdefault(kind, []).extend((np.abs(found.value - real) <= found.half_width)[some].tolist())
                    width.setdefault(kind, []).append(float(np.mean(2 * found.half_width[some])) if some.any() else 0.0)
            for kind, each in sorted(inside.items()):
                yield (
                    f"{table.name}, epsilon {epsilon:g}: {kind}: {np.mean(each):.3f} of {len(each)} cells, "
                    f"mean width {np.mean(width[kind]):.4f}"
                )


def inference(names: Sequence[str], seeds: int, epsilons: Sequence[float], twins: int) -> Iterator[str]:
    """Error of the slopes of a logistic regression of the target on three columns, and what is stated about it."""
    yield "set, epsilon: three slopes: rms error over the spread of `inference`; coverage of usual 95 % intervals"
    for table in (SETS[name]() for name in names):
        label = table.target
        inputs = [at for at in range(len(table.sizes)) if table.ordered[at]][:3]
        scale = table.codes[:, inputs].std(axis=0)

        def slopes(rows: Floats, scale: Floats = scale) -> tuple[Floats, Floats]:
            """Newton's method; coefficients and standard errors."""
            x = np.column_stack([np.ones(len(rows)), rows[:, :-1] / scale])
            b = np.zeros(x.shape[1])
            for _ in range(25):
                p = 1 / (1 + np.exp(-x @ b))
                hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-6 * np.eye(len(b))
                b = b + np.linalg.solve(hessian, x.T @ (rows[:, -1] - p))
            return b[1:], np.sqrt(np.diag(np.linalg.inv(hessian)))[1:]

        truth, _ = slopes(table.codes[:, [*inputs, label]].astype(float))
        names_used = [f"c{at}" for at in (*inputs, label)]

        def analysis(records: dict[str, list[Any]], used: Sequence[str] = names_used) -> Floats:
            return slopes(np.array([[each or 0 for each in records[name]] for name in used], dtype=float).T)[0]

        for epsilon in epsilons:
            ours, usual = [], []
            for seed in range(1, seeds + 1):
                made = estimator(table, epsilon, seed)
                made.fit(sites_of(table))
                found = made.inference(analysis, twins=twins, seed=seed)
                ours.append((found.estimate - truth) / found.spread)
                records = made.sample(random_state=seed)
                rows = np.array([[each or 0 for each in records[name]] for name in names_used], dtype=float).T
                b, std = slopes(rows)
                usual.append(np.abs(b - truth) <= 1.96 * std)
            ratio = math.sqrt(float(np.mean(np.square(ours))))
            yield (
                f"{table.name}, epsilon {epsilon:g}: {ratio:.2f}; {np.mean(usual):.3f} ({seeds} seeds, {twins} twins)"
            )


def membership(runs: int) -> Iterator[str]:
    """A shadow attack: is a chosen person in the data? The attacker knows all other records, and the studies' code.

    The statistic is the log likelihood of the person's record under the released model. Half of the runs have the
    person and half another one. The attacker chooses a threshold on half of the runs and guesses on the others.
    """
    rng = np.random.default_rng(0)
    base = rng.integers(0, 3, (400, 5))
    base[:, 1] = np.where(rng.random(400) < 0.8, base[:, 0], base[:, 1])
    person, other = np.array([2, 0, 1, 2, 1]), np.array([0, 0, 0, 0, 0])
    program = SyntheticDataProgram(
        columns=tuple(f"c{at}" for at in range(5)), levels={f"c{at}": (0, 1, 2) for at in range(5)}, table_cells=200
    )
    for epsilon in (1.0, 8.0, None):
        rehearsal = Rehearsal(
            program, 401, 5, epsilon or 1.0, 1e-5, 1, "non-private" if epsilon is None else "secure-sum"
        )
        scores: dict[bool, list[float]] = {True: [], False: []}
        for run in range(runs):
            for present in (True, False):
                rows = np.vstack([base, person if present else other]).astype(float)
                found = rehearsal.run(Units(rows), 2 * run + present)
                model = Model(np.asarray(found["component_shares"]), program.sizes)
                factors = [model.column(at)[:, code] for at, code in enumerate(person)]
                scores[present].append(float(np.log(np.mean(np.prod(factors, axis=0)) + 1e-12)))
        half = runs // 2
        learnt, tested = (
            {k: np.array(v[part]) for k, v in scores.items()} for part in (slice(half), slice(half, None))
        )
        cuts = np.sort(np.concatenate([learnt[True], learnt[False]]))
        best = max(cuts, key=lambda cut: np.mean(learnt[True] >= cut) + np.mean(learnt[False] < cut))
        right = (np.mean(tested[True] >= best) + np.mean(tested[False] < best)) / 2
        bound = "none" if epsilon is None else f"{rehearsal.plan.best_guess(0):.3f}"
        yield f"epsilon {epsilon}: right {right:.3f} of {2 * (runs - half)} guesses (bound {bound})"


def scale(epsilons: Sequence[float]) -> Iterator[str]:
    """Time and bytes of a site against columns and rows."""
    yield "columns, rows: seconds of a site's sums, of the study with the errors of pairs; kB a site; peak memory in MB"
    for columns, rows in ((10, 10_000), (14, 40_000), (30, 40_000), (60, 40_000), (100, 40_000), (14, 1_000_000)):
        rng = np.random.default_rng(0)
        data = rng.integers(0, 6, (rows, columns)).astype(float)
        program = SyntheticDataProgram(
            columns=tuple(f"c{at}" for at in range(columns)),
            levels={f"c{at}": tuple(range(6)) for at in range(columns)},
        )
        rehearsal = Rehearsal(program, rows, 5, epsilons[0], DELTA, 1)
        began = time.perf_counter()
        rehearsal.run(Units(data), 1)
        whole = time.perf_counter() - began
        began = time.perf_counter()
        sent = 0
        for request in program.requests(Adjacency.REPLACE_ONE):
            request.statistic.total(Units(data[: rows // 5]))
            sent += 8 * request.statistic.size
        site = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield f"{columns}, {rows}: {site:.2f} s, {whole:.1f} s; {sent / 1000:.0f} kB; {peak:.0f} MB"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ("tables", "errors", "inference", "membership", "scale")
    parser.add_argument("what", nargs="?", default="tables", choices=every)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sets", default="adult,randhie,covertype")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--twins", type=int, default=10)
    given = parser.parse_args()
    sets, epsilons = given.sets.split(","), [float(each) for each in given.epsilons.split(",")]
    lines = {
        "tables": lambda: tables(sets, given.seeds, epsilons),
        "errors": lambda: errors(sets, given.seeds, epsilons),
        "inference": lambda: inference(sets, given.seeds, epsilons, given.twins),
        "membership": lambda: membership(given.seeds),
        "scale": lambda: scale(epsilons),
    }
    began = time.perf_counter()
    for line in lines[given.what]():
        print(f"{time.perf_counter() - began:6.0f} s  {line}", flush=True)


if __name__ == "__main__":
    main()
