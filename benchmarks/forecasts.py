"""Forecasts beside what the same studies show on fresh data, without and with a public file of the same kind.

    python benchmarks/forecasts.py [--runs 30] [--epsilon 1] [--only diabetes,...]

For each question about a set of `fresh_data`: the error that privacy adds, as `zerosum plan --what-if` forecasts it
from the study file alone, its range over plausible structures of the data, and the forecast with `--like` and a public
file; all over the error that runs of the study show. The study has one half of the rows, the public file the other
half. Seen: root mean square (or mean increase of a loss) over `--runs` seeds of the difference to the result of the
same program without privacy, on five random halves of the rows, in the unit of the forecast. The standard error of what
is seen is about 10 % with 30 runs. Eight sites, two colluding, delta 1e-5.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fresh_data import DataSet, Unavailable, load
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.forecast import Advisor, Assumptions, what_if
from zerosum.forecast.measures import measure_of
from zerosum.study import Study
from zerosum.study.entries import SchemeTable
from zerosum.study.rehearsal import PlanSimulation

SITES = 8
HALVES = 5  # random halves of the rows, each with a share of the runs


@dataclass(frozen=True)
class Case:
    """A question about a data set.

    Attributes
    ----------
    data : str
        Name in `fresh_data`.
    algorithm : str
        Algorithm of the study.
    columns : tuple of str
        Columns of the study; all, and then the response of a regression, if empty.
    more : dict
        Further parameters.
    """

    data: str
    algorithm: str
    columns: tuple[str, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()

    def table(self, data: DataSet) -> tuple[Floats, tuple[str, ...], Floats, Floats]:
        """Rows, names and ranges of the study's columns."""
        low, high = data.table_ranges
        names = data.table_columns
        chosen = self.columns or (names if self.algorithm.endswith("regression") else data.columns)
        at = [names.index(name) for name in chosen]
        return data.rows[:, at], tuple(f"c{each}" for each in at), low[at], high[at]

    def study(self, rows: int, names: tuple[str, ...], low: Floats, high: Floats, epsilon: float) -> Study:
        """The study of so many people."""
        parameters: dict[str, Any] = {"columns": list(names), **dict(self.more)}
        if self.algorithm in ("quantiles", "describe"):
            ranges = zip(low.tolist(), high.tolist(), strict=True)
            parameters["ranges"] = dict(zip(names, ranges, strict=True))
        else:
            parameters |= {"lower": low.tolist(), "upper": high.tolist()}
        units = np.diff(np.linspace(0, rows, SITES + 1).astype(int)).tolist()
        return Study(
            name="forecast",
            algorithm=self.algorithm,
            parameters=parameters,
            unit={"kind": "person"},
            privacy={"epsilon": epsilon, "delta": 1e-5, "random_state": 0},
            coalition={"colluders": 2},
            sites=[{"name": f"s{at}", "units": each} for at, each in enumerate(units)],
        )


CASES = (
    Case("diabetes", "linear-regression"),
    Case("house-prices", "linear-regression"),
    Case("same-twice", "linear-regression"),
    Case("skewed", "linear-regression"),
    Case("fair", "logistic-regression"),
    Case("wrong-link", "logistic-regression"),
    Case("indicators", "logistic-regression"),
    Case("visits", "poisson-regression"),
    Case("anes96", "quantiles", ("age", "income", "TVnews"), (("whole", ("c5", "c7", "c1")),)),
    Case("randhie", "quantiles", ("y", "disea"), (("whole", ("c9",)),)),
    Case("breast-cancer", "pca", (), (("n_components", 4),)),
    Case("digits", "pca", (), (("n_components", 10),)),
    Case("house-prices", "covariance"),
)


def seen(study: Study, rows: Floats, runs: int) -> float:
    """The error that privacy adds to the study on random halves of these rows, in the unit of its forecast."""
    algorithm = study.build_algorithm()
    measure = measure_of(algorithm)
    assert measure is not None
    open_ = study.model_copy(update={"scheme": SchemeTable(name="non-private")})
    free = PlanSimulation(open_.build_algorithm(), open_.plan())
    private = PlanSimulation(algorithm, study.plan())
    counted = np.array([line.counts for line in measure.lines])
    scale = np.array([line.scale for line in measure.lines])
    gaps, each = [], max(runs // HALVES, 2)
    for at in range(HALVES):
        half = np.random.default_rng(at).permutation(len(rows))[::2]
        units = Units(rows[half])
        plain = free.run(units, 0)
        anchor = measure.make_anchor(plain) if measure.make_anchor is not None else None
        base = measure.values(plain, units, anchor)
        seeds = range(10**6 + at * each, 10**6 + (at + 1) * each)
        found = [measure.values(one, units, anchor) for one in private.runs(units, seeds)]
        gaps.append(((np.array(found) - base) / scale)[:, counted])
    gap = np.concatenate(gaps)
    return float(np.nanmean(gap)) if measure.loss else float(np.sqrt(np.nanmean(gap**2)))


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--rehearsals", type=int, default=120)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | algorithm | seen | forecast over seen | range over seen | with --like |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        if given.only and case.data not in given.only.split(","):
            continue
        try:
            data = load(case.data)
        except Unavailable as reason:
            print(f"{case.data}: skipped, {reason}")
            continue
        rows, names, low, high = case.table(data)
        half = np.random.default_rng(0).permutation(len(rows))
        own, public = rows[half[::2]], rows[half[1::2]]
        study = case.study(len(own), names, low, high, given.epsilon)
        # an error of zero has no ratio
        shown = seen(study, rows, given.runs) or np.nan
        like = Advisor(study, Assumptions(like=Units(public)))
        near = like.at(like.own, given.rehearsals if not like.level else 24).privacy / shown
        found = what_if(study, runs=given.rehearsals if not like.level else 24)
        low_, high_ = getattr(found, "range", (np.nan, np.nan))
        print(
            f"| {case.data} | {case.algorithm} | {shown:.3g} | {found.own.privacy / shown:.2g} | "
            f"{low_ / shown:.2g} to {high_ / shown:.2g} | {near:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
