"""Level and power of the tests of hypotheses, with the noise of a plan.

Run `python benchmarks/tests_level.py [--runs 1000] [--only NAME] [--power]`.

Four sites, one colluding, delta = 1e-5, the secure sum. Each run draws a fresh sample under the null hypothesis and the
noise of its plan, and counts p values of at most 0.05. The standard error of a share of 0.05 from 1000 runs is 0.007.
With `--power` the samples have an effect, and the share is set beside the power that the result states for it.

Cases: small and large numbers of people, unequal groups and variances, means far from the middle of the range, skewed
and whole-valued columns, rare categories, missing values, several columns; and the p values of other algorithms:
correlations, Table 1, the log-rank test, and Wald's test of a coefficient.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from zerosum.algorithms import ALGORITHMS, score_tests
from zerosum.compute.units import Units
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]
Rng = np.random.Generator
DELTA, SITES = 1e-5, 4
EPSILONS = (0.5, 1.0, 2.0, 4.0)
LEVEL = 0.05
# Tables drawn for each p value: fewer than in a study, so that many runs are quick. The level of a test whose law is
# drawn does not depend on their number: (1 + beyond)/(1 + draws) is exact for 499 at 0.05.
DRAWS = 499


@dataclass(frozen=True)
class Case:
    """A test with a way to draw its data: `draw(n, effect, rng)` gives rows with categories as codes."""

    name: str
    parameters: dict[str, Any]
    draw: Callable[[int, float, Rng], Floats]
    sizes: tuple[int, ...] = (40, 200, 1000, 5000)
    effects: tuple[float, ...] = ()  # by size, for the power
    # planned effect in `parameters` for an effect of `draw`
    planned: Callable[[float], float] = float
    columns: tuple[str, ...] = field(default=("value", "group"))
    algorithm: str = "hypothesis-test"
    # name and position of the p value in the estimate
    p: tuple[str, tuple[int, ...]] = ("p_value", (0,))


def two_means(
    share: float, spread: tuple[float, float] = (1.0, 1.0), at: float = 0.0
) -> Callable[[int, float, Rng], Floats]:
    """Normal values in two groups; ranges are -5 to 5."""

    def draw(n: int, effect: float, rng: Rng) -> Floats:
        group = (rng.random(n) < share).astype(float)
        value = at + effect * group + np.where(group > 0, spread[1], spread[0]) * rng.normal(size=n)
        return np.column_stack([value, group])

    return draw


def skewed(n: int, effect: float, rng: Rng) -> Floats:
    """Log-normal values, three groups of 60, 30 and 10 %."""
    group = rng.choice(3, n, p=[0.6, 0.3, 0.1]).astype(float)
    return np.column_stack([np.exp(0.8 * rng.normal(size=n)) + effect * (group == 1) - 4, group])


def scores(n: int, effect: float, rng: Rng) -> Floats:
    """Whole numbers 0 to 10, most of them small, in two groups of 70 and 30 %."""
    group = (rng.random(n) < 0.3).astype(float)
    return np.column_stack([rng.binomial(10, 0.15 + effect * group), group]).astype(float)


def one_sample(at: float, kind: str = "normal") -> Callable[[int, float, Rng], Floats]:
    """Values symmetric about `at`."""

    def draw(n: int, effect: float, rng: Rng) -> Floats:
        value = rng.normal(size=n) if kind == "normal" else rng.standard_t(2, size=n)
        return (at + effect + value)[:, None]

    return draw


def table(rows: tuple[float, ...], columns: tuple[float, ...]) -> Callable[[int, float, Rng], Floats]:
    """Two independent categories; an effect makes them equal for that share of people."""

    def draw(n: int, effect: float, rng: Rng) -> Floats:
        group = rng.choice(len(rows), n, p=rows)
        value = rng.choice(len(columns), n, p=columns)
        value = np.where(rng.random(n) < effect, np.minimum(group, len(columns) - 1), value)
        return np.column_stack([value, group]).astype(float)

    return draw


def shares(columns: tuple[float, ...]) -> Callable[[int, float, Rng], Floats]:
    """One category."""

    def draw(n: int, effect: float, rng: Rng) -> Floats:
        p = np.array(columns)
        p = (1 - effect) * p + effect * np.eye(len(p))[0]
        return rng.choice(len(p), n, p=p).astype(float)[:, None]

    return draw


def on_edge(share: float) -> Callable[[int, float, Rng], Floats]:
    """Two groups whose means are apart by the margin of 1: the worst case of the hypothesis of no equivalence."""
    return lambda n, effect, rng: two_means(share)(n, 1.0 - effect, rng)


def missing(n: int, effect: float, rng: Rng) -> Floats:
    """Two groups with a fifth of the values missing, and a group that is unknown for a tenth."""
    rows = two_means(0.4)(n, effect, rng)
    rows[rng.random(n) < 0.2, 0] = np.nan
    rows[rng.random(n) < 0.1, 1] = np.nan
    return rows


def linked(n: int, effect: float, rng: Rng) -> Floats:
    """Two columns that depend on a third one and, given it, on each other by the effect."""
    third = rng.normal(size=n)
    first = 0.7 * third + 0.7 * rng.normal(size=n)
    return np.column_stack([first, 0.7 * third + effect * first + 0.7 * rng.normal(size=n), third])


def separate(n: int, effect: float, rng: Rng) -> Floats:
    """Two columns with a correlation, one of them skewed."""
    first = rng.normal(size=n)
    return np.column_stack([first, np.exp(0.5 * (effect * first + np.sqrt(1 - effect**2) * rng.normal(size=n))) - 1])


def responding(n: int, effect: float, rng: Rng) -> Floats:
    """A response of two classes: the first of two correlated columns matters, and the second by the effect."""
    first = rng.normal(size=n)
    second = 0.5 * first + 0.85 * rng.normal(size=n)
    return np.column_stack([first, second, rng.random(n) < 1 / (1 + np.exp(0.5 - first - effect * second))])


def measured(n: int, effect: float, rng: Rng) -> Floats:
    """As `responding`, with a response that is a number."""
    rows = responding(n, effect, rng)
    return np.column_stack([rows[:, :2], rows[:, 0] + effect * rows[:, 1] + 1.5 * rng.normal(size=n)])


def characteristics(n: int, effect: float, rng: Rng) -> Floats:
    """A column of numbers, one of categories, and a group of 40 %."""
    group = (rng.random(n) < 0.4).astype(float)
    numbers = effect * group + rng.normal(size=n)
    return np.column_stack([numbers, rng.choice(3, n, p=[0.6, 0.3, 0.1]), group])


def lifetimes(n: int, effect: float, rng: Rng) -> Floats:
    """Exponential times with uniform censoring, in two groups of 60 and 40 %."""
    group = (rng.random(n) < 0.4).astype(float)
    time, end = rng.exponential(4 * np.exp(-effect * group)), rng.uniform(1, 12, n)
    return np.column_stack([np.minimum(time, end), time <= end, group])


def larger(effect: float) -> float:
    """Probability that a normal value shifted by the effect is larger than another one, less 1/2."""
    return float(ndtr(effect / np.sqrt(2)) - 0.5)


def signed(effect: float) -> float:
    """Rank correlation of normal values shifted by the effect: P(sum of two > 0) - P(sum of two < 0)."""
    return float(2 * ndtr(effect * np.sqrt(2)) - 1)


NUMBER = {"ranges": {"value": (-5.0, 5.0)}}
TWO = {**NUMBER, "levels": {"group": (0.0, 1.0)}, "by": "group"}
THREE = {**NUMBER, "levels": {"group": (0.0, 1.0, 2.0)}, "by": "group"}


def tabled(rows: int, columns: int) -> dict[str, Any]:
    levels = {"value": tuple(map(float, range(columns))), "group": tuple(map(float, range(rows)))}
    return {"test": "chi-squared", "levels": levels, "by": "group"}


CASES = (
    Case("t", {"test": "t", **TWO}, two_means(0.5), effects=(2.5, 1.0, 0.3, 0.1)),
    Case("t, a tenth in one group, mean 3", {"test": "t", **TWO}, two_means(0.1, at=3.0)),
    Case("t, one sample", {"test": "t", **NUMBER}, one_sample(0.0), effects=(1.0, 0.5, 0.15, 0.05), columns=("value",)),
    Case(
        "t, one sample, null 2, heavy tails",
        {"test": "t", **NUMBER, "null": {"value": 2.0}, "ranges": {"value": (-11.0, 15.0)}},
        one_sample(2.0, "t"),
        columns=("value",),
    ),
    Case(
        "welch, a fifth with 4 times the sd",
        {"test": "welch", **TWO},
        two_means(0.2, (0.5, 2.0)),
        effects=(3, 2, 1, 0.3),
    ),
    Case("welch, a fifth with a quarter of the sd", {"test": "welch", **TWO}, two_means(0.2, (2.0, 0.5))),
    Case("welch, missing values", {"test": "welch", **TWO, "missing": "observed"}, missing),
    Case("anova, three groups, skewed", {"test": "anova", **THREE}, skewed),
    Case("welch, three groups, skewed", {"test": "welch", **THREE}, skewed),
    Case("mann-whitney", {"test": "mann-whitney", **TWO}, two_means(0.5), effects=(2.5, 1.0, 0.3, 0.1), planned=larger),
    Case("mann-whitney, a tenth", {"test": "mann-whitney", **TWO}, two_means(0.1, at=2.0)),
    Case(
        "mann-whitney, whole numbers, ties",
        {"test": "mann-whitney", **TWO, "ranges": {"value": (0.0, 10.0)}, "whole": ("value",)},
        scores,
    ),
    Case("kruskal-wallis, skewed", {"test": "kruskal-wallis", **THREE}, skewed),
    Case(
        "wilcoxon",
        {"test": "wilcoxon", **NUMBER},
        one_sample(0.0),
        effects=(1.0, 0.5, 0.15, 0.05),
        planned=signed,
        columns=("value",),
    ),
    Case(
        "wilcoxon, null 2, heavy tails",
        {"test": "wilcoxon", **NUMBER, "null": {"value": 2.0}},
        one_sample(2.0, "t"),
        columns=("value",),
    ),
    Case("chi-squared 2 x 2", tabled(2, 2), table((0.5, 0.5), (0.5, 0.5)), effects=(0.8, 0.3, 0.1, 0.05)),
    Case("chi-squared 2 x 2, rare", tabled(2, 2), table((0.9, 0.1), (0.95, 0.05))),
    Case("chi-squared 3 x 4, rare", tabled(3, 4), table((0.6, 0.3, 0.1), (0.7, 0.2, 0.08, 0.02))),
    Case(
        "chi-squared, given shares",
        {
            "test": "chi-squared",
            "levels": {"value": (0.0, 1.0, 2.0)},
            "expected": {"value": (0.7, 0.25, 0.05)},
        },
        shares((0.7, 0.25, 0.05)),
        columns=("value",),
    ),
    Case(
        "equivalence, at the margin",
        {"test": "equivalence", **TWO, "margin": {"value": 1.0}},
        on_edge(0.3),
        effects=(1, 1, 1, 1),
    ),
    *(
        Case(
            f"correlation, {method}, one column skewed",
            {"lower": (-4.0, -2.0), "upper": (4.0, 6.0), "method": method},
            separate,
            effects=(0.8, 0.5, 0.2, 0.1),
            columns=("a", "b"),
            algorithm="correlation",
            p=("p_value", (0, 1)),
        )
        for method in ("pearson", "spearman")
    ),
    Case(
        "correlation, partial",
        {"lower": (-4.0,) * 3, "upper": (4.0,) * 3, "given": ("c",)},
        linked,
        effects=(0.8, 0.5, 0.2, 0.1),
        columns=("a", "b", "c"),
        algorithm="correlation",
        p=("p_value", (0, 1)),
    ),
    Case(
        "correlation, partial, of a 0/1 response",
        {"lower": (-4.0, -4.0, 0.0), "upper": (4.0, 4.0, 1.0), "given": ("a",)},
        responding,
        effects=(2, 1, 0.5, 0.3),
        columns=("a", "b", "y"),
        algorithm="correlation",
        p=("p_value", (0, 1)),
    ),
    *(
        Case(
            f"table 1, {name}",
            {
                "ranges": {"value": (-5.0, 5.0)},
                "levels": {"stage": (0.0, 1.0, 2.0), "group": (0.0, 1.0)},
                "by": "group",
            },
            characteristics,
            columns=("value", "stage", "group"),
            algorithm="describe",
            p=("group_p_value", (at,)),
        )
        for at, name in enumerate(("Welch", "Kruskal-Wallis", "chi-squared 2 x 3"))
    ),
    Case(
        "log-rank",
        {"edges": tuple(map(float, range(13))), "groups": (0.0, 1.0)},
        lifetimes,
        effects=(2, 1, 0.5, 0.3),
        columns=("time", "event", "group"),
        algorithm="survival",
        p=("log_rank_p", (0,)),
    ),
    Case(
        "Wald, logistic",
        {"lower": (-4.0, -4.0, 0.0), "upper": (4.0, 4.0, 1.0)},
        responding,
        effects=(2, 1, 0.5, 0.3),
        columns=("a", "b", "y"),
        algorithm="logistic-regression",
        p=("p_value", (1,)),
    ),
    Case(
        "Wald, linear",
        {"lower": (-4.0, -4.0, -8.0), "upper": (4.0, 4.0, 8.0)},
        measured,
        effects=(2, 1, 0.5, 0.3),
        columns=("a", "b", "y"),
        algorithm="linear-regression",
        p=("p_value", (1,)),
    ),
)


def rejected(case: Case, n: int, epsilon: float, runs: int, effect: float = 0.0) -> tuple[float, float]:
    """Share of runs with a p value of at most the level, and the mean of the power that results state."""
    parameters = dict(case.parameters)
    if effect and case.parameters.get("test", "chi-squared") not in ("equivalence", "chi-squared"):
        parameters["effect"] = {"value": case.planned(effect)}
    algorithm = ALGORITHMS[case.algorithm](columns=case.columns, **parameters)
    rehearsal = Rehearsal(algorithm, n, SITES, epsilon, DELTA)
    beyond, power = 0, []
    for run in range(runs):
        rows = case.draw(n, effect, np.random.default_rng([n, run, round(100 * epsilon)]))
        found = rehearsal.run(Units(rows), run)
        name, at = case.p
        beyond += int(found[name].value[at] <= LEVEL)
        power.append(float(found["power"][0]) if "power" in found else float("nan"))
    return beyond / runs, float(np.mean(power))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--power", action="store_true")
    options = parser.parse_args()
    score_tests.DRAWS = DRAWS
    what = "power seen (stated)" if options.power else "share of p <= 0.05 under the null hypothesis"
    print(f"{what}, {options.runs} runs; columns are epsilon {', '.join(f'{each:g}' for each in EPSILONS)}")
    every = []
    for case in CASES:
        if options.only not in case.name or (options.power and not case.effects):
            continue
        for at, n in enumerate(case.sizes):
            effect = case.effects[at] if options.power else 0.0
            found = [rejected(case, n, epsilon, options.runs, effect) for epsilon in EPSILONS]
            every += [share for share, _ in found]
            shown = "  ".join(f"{share:.3f}" + (f" ({power:.3f})" if options.power else "") for share, power in found)
            print(f"{case.name:45s} n {n:5d}  {shown}", flush=True)
    if not options.power:
        inside = np.mean([0.04 <= share <= 0.06 for share in every])
        print(f"mean {np.mean(every):.4f}, from {min(every):.3f} to {max(every):.3f}")
        print(f"{100 * inside:.0f} % within .04 to .06")


if __name__ == "__main__":
    main()
