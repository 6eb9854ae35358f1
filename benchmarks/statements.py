"""Whether stated errors mean what they say: intervals of correlations and survival curves, and carried topics.

    python benchmarks/statements.py [--parts cst] [--runs 200] [--epsilon 0.5 1 3 10]

Made-up data, eight sites, two colluding, secure sum, delta 1e-5. Every run draws new people.

c: 95 % intervals of covariances and correlations, for the pooled data and for the population: average and worst
coverage over pairs of columns, median width of a correlation's interval, share of correlations that are unknown.
s: 95 % intervals of survival curves over all points that are shown, and the share of points that are shown. `narrow`
are the points whose number at risk is above four standard deviations of its noise, where the delta method enters.
t: topics of documents of several lengths, some without any topics: how many are carried, how many agree with a true
topic (cosine of the deviations from the mean topic at least .5), and how many of the carried ones do.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from itertools import product

import numpy as np

from zerosum.algorithms import CovarianceProgram, SurvivalProgram, TopicsProgram
from zerosum.algorithms.survival import CLEARLY
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.statistics.survival import SurvivalTable
from zerosum.study.rehearsal import Rehearsal

SITES, DELTA, COLLUDERS = 8, 1e-5, 2


def rehearsal(algorithm: object, units: int, epsilon: float) -> Rehearsal:
    """A study of so many units with a default plan."""
    return Rehearsal(algorithm, units, SITES, epsilon, DELTA, COLLUDERS)  # type: ignore[arg-type]


def inside(ends: Floats, truth: Floats) -> Floats:
    """Whether intervals contain the truth, up to rounding; NaN where there is no truth."""
    found = (ends[..., 0] - 1e-9 <= truth) & (truth <= ends[..., 1] + 1e-9)
    return np.where(np.isfinite(truth), found, np.nan)


def shares(covered: Floats) -> str:
    """Average and worst coverage along the first axis."""
    each = np.nanmean(covered, axis=0)
    return f"{np.nanmean(covered):.3f} / {np.nanmin(each):.2f}" if np.any(np.isfinite(covered)) else "-"


# ---- correlations ----------------------------------------------------------------------------------------------------


def pair(columns: int, r: float) -> Floats:
    """Correlations of which that of the first two columns is r, and all others are 0."""
    found = np.eye(columns)
    found[0, 1] = found[1, 0] = r
    return found


def falling(columns: int, r: float) -> Floats:
    """Correlations r^k of columns that are k apart."""
    return np.asarray(r ** np.abs(np.subtract.outer(range(columns), range(columns))).astype(np.float64))


# name: people, correlations, standard deviation and mean of the columns in half ranges
TABLES: dict[str, tuple[int, Floats, float, float]] = {
    "r = .5, 5 columns": (5000, pair(5, 0.5), 0.35, 0.0),
    "r = .99, 4 columns": (8000, pair(4, 0.99), 0.3, 0.2),
    "r = -.92, off the middle": (13_000, pair(6, -0.92), 0.2, 0.6),
    "12 columns": (4000, falling(12, 0.8), 0.3, 0.0),
    "20 columns, 500 people": (500, falling(20, 0.6), 0.25, 0.1),
    "narrow columns": (5000, pair(4, 0.7), 0.05, 0.5),
    "200 people": (200, pair(3, 0.6), 0.35, 0.0),
    "r = .9999": (8000, pair(3, 0.9999), 0.3, 0.0),
}


def correlations(runs: int, epsilons: list[float]) -> None:
    """Print a line for each table and epsilon."""
    print("| table | epsilon | covariances | population | correlations | population | width | unknown |")
    print("|---|---|---|---|---|---|---|---|")
    names = ["covariance_interval", "covariance_population_interval"]
    names += ["correlation_interval", "correlation_population_interval"]
    for (name, (people, related, sd, mean)), epsilon in product(TABLES.items(), epsilons):
        p = len(related)
        root: Floats = np.asarray(np.linalg.cholesky(related + 1e-12 * np.eye(p)), dtype=np.float64)
        upper = np.triu_indices(p, 1)

        def drawn(seed: int, count: int, root: Floats = root, sd: float = sd, mean: float = mean) -> Floats:
            rng = np.random.default_rng([5, seed])
            return np.clip(mean + sd * (rng.normal(size=(count, len(root))) @ root.T), -1, 1)

        many = drawn(10**6, 400_000)
        algorithm = CovarianceProgram(columns=tuple(f"x{at}" for at in range(p)), lower=-np.ones(p), upper=np.ones(p))
        study = rehearsal(algorithm, people, epsilon)
        covered: dict[str, list[Floats]] = {each: [] for each in names}
        widths, unknown = [], []
        for run in range(runs):
            rows = drawn(run, people)
            found = study.run(Units.from_rows(rows), run)
            truths = map(
                np.asarray, (np.cov(rows.T, bias=True), np.cov(many.T), np.corrcoef(rows.T), np.corrcoef(many.T))
            )
            for each, truth in zip(names, truths, strict=True):
                covered[each].append(inside(found[each].value, truth)[upper])
            ends = found["correlation_interval"].value
            widths.append((ends[..., 1] - ends[..., 0])[upper])
            unknown.append(np.asarray(found["correlation"].std)[upper] >= 1)
        cells = " | ".join(shares(np.array(covered[each])) for each in names)
        print(f"| {name} | {epsilon:g} | {cells} | {np.median(widths):.3f} | {np.mean(unknown):.2f} |", flush=True)


# ---- survival --------------------------------------------------------------------------------------------------------

# name: shape and scale of a Weibull law of events, and the range of uniform losses
CURVES = {
    "constant rate": (1.0, 6.0, (0.0, 12.0)),
    "early events": (0.6, 3.0, (1.0, 10.0)),
    "many lost": (1.0, 8.0, (0.0, 5.0)),
}
LAYOUTS = ((16, 1), (12, 2))  # bins and groups


def survival(runs: int, epsilons: list[float]) -> None:
    """Print a line for each curve, number of people, epsilon and layout."""
    print(
        "| curve | people | epsilon | bins, groups | shown | narrow | these data | narrow alone | population | width |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (name, law), people, epsilon, layout in product(CURVES.items(), (100, 228, 1000, 5000), epsilons, LAYOUTS):
        (shape, scale, lost), (bins, groups) = law, layout
        edges, names = np.linspace(0, 8, bins + 1), ("time", "event", "group")[: 1 + groups]
        more = {"groups": (0, 1)} if groups == 2 else {}
        study = rehearsal(SurvivalProgram(columns=names, edges=edges, **more), people, epsilon)
        quiet = SurvivalTable(columns=len(names), edges=edges, **({"group": 2, "groups": 2} if groups == 2 else {}))
        factors = np.array([1.0, 1.4])[:groups]
        truth = np.exp(-((edges[None, 1:] / (scale * factors[:, None])) ** shape))
        shown, narrow, pooled, alone, population, widths = ([] for _ in range(6))
        for run in range(runs):
            rng = np.random.default_rng([7, run])
            group = rng.integers(0, groups, people)
            event, end = scale * factors[group] * rng.weibull(shape, people), rng.uniform(*lost, people)
            rows = np.column_stack([np.minimum(event, end), event <= end, group][: len(names)]).astype(np.float64)
            exact = kaplan_meier(quiet.total(Units.from_rows(rows)).reshape(groups, -1))
            found = study.run(Units.from_rows(rows), run)
            there = np.isfinite(found["survival"].value)
            risk, std = found["at_risk"].value, np.asarray(found["at_risk"].std)
            clear = np.cumsum(risk <= np.maximum(CLEARLY * std, 1.0), axis=1) == 0
            ends = found["survival_interval"].value
            held = inside(ends, np.where(there, exact, np.nan))
            shown.append(there)
            narrow.append(clear)
            pooled.append(held)
            alone.append(np.where(clear, held, np.nan))
            population.append(inside(found["survival_population_interval"].value, np.where(there, truth, np.nan)))
            widths.append(np.where(there, ends[..., 1] - ends[..., 0], np.nan))
        cells = f"{shares(np.array(pooled))} | {np.nanmean(alone):.3f} | {shares(np.array(population))}"
        print(
            f"| {name} | {people} | {epsilon:g} | {bins}, {groups} | {np.mean(shown):.2f} | {np.mean(narrow):.2f} | "
            f"{cells} | {np.nanmedian(widths):.2f} |",
            flush=True,
        )


def kaplan_meier(table: Floats) -> Floats:
    """Actuarial curves (groups, bins) of a table without noise; NaN where nobody is at risk."""
    leaving = table[:, 0:-1:2] + table[:, 1:-1:2]
    later = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1] + table[:, -1:]
    risk = later - table[:, 0:-1:2] / 2
    return np.asarray(np.cumprod(1 - table[:, 1:-1:2] / np.where(risk > 0, risk, np.nan), axis=1))


# ---- topics ----------------------------------------------------------------------------------------------------------

CORPORA = ((17, 2000), (17, 8000), (60, 3000), (200, 3000))  # mean words of a document less 3, and documents
VOCABULARY, TOPICS = 1500, 10


def documents(length: int, count: int, topical: float, seed: int) -> tuple[Floats, Floats]:
    """Word counts (count, VOCABULARY) and true topics; a share `topical` of the words depends on the topic.

    Topics are of unequal size and overlap: each has a tenth of the vocabulary, rare words included.
    """
    rng = np.random.default_rng([77, 1000 + seed])
    common = 1 / np.arange(1, VOCABULARY + 1)
    common /= common.sum()
    topics = np.tile((1 - topical) * common, (TOPICS, 1))
    for row in topics:
        chosen = rng.choice(VOCABULARY, size=VOCABULARY // 10, replace=False)
        weight = np.sqrt(common[chosen]) * rng.gamma(0.7, size=len(chosen))
        row[chosen] += topical * weight / weight.sum()
    sizes = rng.dirichlet(np.full(TOPICS, 2.0))
    share = rng.dirichlet(1.5 * sizes, size=count) if topical else np.full((count, TOPICS), 1 / TOPICS)
    expected = share @ topics
    counts = rng.multinomial(3 + rng.poisson(length, size=count), expected / expected.sum(axis=1, keepdims=True))
    return counts.astype(np.float64), topics


def topics(runs: int, epsilons: list[float]) -> None:
    """Print a line for each corpus and epsilon."""
    print("| topical words | words | documents | epsilon | carried | agree with a topic | of the carried agree |")
    print("|---|---|---|---|---|---|---|")
    words = tuple(f"w{at}" for at in range(VOCABULARY))
    algorithm = TopicsProgram(columns=words, n_components=TOPICS, path="pairs")
    for topical, (length, count), epsilon in product((0.0, 0.5), CORPORA, epsilons):
        study = rehearsal(algorithm, count, epsilon)
        carried, agree = [], []
        for run in range(runs):
            counts, true = documents(length, count, topical, run)
            found = study.run(Units.from_rows(counts), run)
            kept = [int(label[1:]) for label in found["topics"].axes[1].labels]
            near = deviations(found["topics"].value) @ deviations(true[:, kept]).T
            carried.append(found["carried"].value > 0)
            agree.append(np.max(near, axis=1) >= 0.5 if topical else np.zeros(TOPICS, dtype=bool))
        chosen, right = np.array(carried), np.array(agree)
        number = chosen.sum(axis=1)
        share = f"{right[chosen].mean():.2f}" if chosen.any() else "-"
        print(
            f"| {topical:.0%} | {length + 3} | {count} | {epsilon:g} | {number.mean():.1f} ± {number.std():.1f} | "
            f"{right.sum(axis=1).mean():.1f} | {share} |",
            flush=True,
        )


def deviations(rows: Floats) -> Floats:
    """Topics less their mean, in units of its root, with norm 1."""
    rows = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-12)
    mean = rows.mean(axis=0)
    found = (rows - mean) / np.sqrt(mean + 1e-9)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))


PARTS: dict[str, Callable[[int, list[float]], None]] = {"c": correlations, "s": survival, "t": topics}


def main() -> None:
    """Print the tables of the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cst")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0, 10.0])
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in given.parts:
            PARTS[part](given.runs, given.epsilon)


if __name__ == "__main__":
    main()
