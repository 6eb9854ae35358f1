"""Descriptions, survival curves and quantiles against the same without privacy.

Run `python benchmarks/describe.py DATA [--runs 400] [--parts abcd]`.

DATA is the folder with `heart_disease_4site.npz`. Four sites, one colluding, delta = 1e-5, the secure sum. Programs run
as in a study, with the noise that a plan gives every release, but without sites.

Part a: heart disease at four hospitals with its missing values, by sex. How often 95 % intervals hold what the table
without privacy says (values clamped to the public ranges), the spread of estimates about it, and the same for data on
which nothing was tuned: skewed columns, five unequal groups, values missing, people with several rows.
Part b: a made-up cohort of 2000 with two groups: curves, intervals, and the log-rank test.
Part c: quantiles of normal, skewed and whole-valued columns.
Part d: intervals for the population: fresh samples, with the noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import DescribeProgram, Estimate, QuantilesProgram, SurvivalProgram
from zerosum.compute.units import Units
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]
DELTA, SITES = 1e-5, 4
QUARTILES = (0.25, 0.5, 0.75)

HEART_RANGES = {
    **{"age": (20.0, 90.0), "trestbps": (80.0, 200.0), "chol": (100.0, 600.0)},
    **{"thalach": (60.0, 210.0), "oldpeak": (-3.0, 7.0)},
}
HEART_LEVELS = {
    **{"sex": (0, 1), "cp": (1, 2, 3, 4), "fbs": (0, 1), "restecg": (0, 1, 2), "exang": (0, 1)},
    **{"slope": (1, 2, 3), "ca": (0, 1, 2, 3), "thal": (3, 6, 7)},
}


@dataclass(frozen=True)
class Data:
    """A question, and units whose categories are codes."""

    name: str
    question: DescribeProgram
    units: Units


def heart(folder: Path) -> Data:
    with np.load(folder / "heart_disease_4site.npz", allow_pickle=False) as file:
        rows, names = file["X"].astype(np.float64), [str(name) for name in file["feature_names"]]
    chol = names.index("chol")
    rows[:, chol] = np.where(rows[:, chol] == 0, np.nan, rows[:, chol])  # a code for missing
    for name, levels in HEART_LEVELS.items():
        at = names.index(name)
        codes = np.full(len(rows), np.nan)
        for code, level in enumerate(levels):
            codes[rows[:, at] == level] = code
        rows[:, at] = codes
    gone = np.isnan(rows).any(axis=0)
    question = DescribeProgram(
        columns=tuple(names),
        ranges=HEART_RANGES,
        levels=HEART_LEVELS,
        by="sex",
        missing={name: "observed" for name, some in zip(names, gone, strict=True) if some},
        whole=("age", "trestbps", "chol", "thalach"),
    )
    return Data("heart disease by sex", question, Units(rows))


def made_up(seed: int) -> list[Data]:
    """What nothing was tuned on."""
    rng = np.random.default_rng(seed)
    n = 3000
    group = rng.choice(5, n, p=[0.5, 0.25, 0.15, 0.07, 0.03]).astype(float)
    skewed = np.exp(rng.normal(1 + 0.2 * group, 0.8))
    count = rng.poisson(2 + group).astype(float)
    kind = rng.choice(3, n, p=[0.9, 0.09, 0.01]).astype(float)
    rows = np.column_stack([skewed, count, kind, group])
    rows[rng.random((n, 4)) < [0.2, 0, 0.4, 0]] = np.nan
    names = ("skewed", "count", "kind", "group")
    common = {"columns": names, "ranges": {"skewed": (0, 40), "count": (0, 30)}, "by": "group"}
    levels = {"kind": ("a", "b", "c"), "group": tuple("vwxyz")}
    rules = {"skewed": "observed", "kind": "observed"}
    five = DescribeProgram(**common, levels=levels, missing=rules, whole=("count",))
    people = rng.integers(0, 900, n)
    visits = DescribeProgram(columns=names[:3], ranges=common["ranges"], levels={"kind": levels["kind"]}, missing=rules)
    return [
        Data("made up, five groups", five, Units(rows)),
        Data("made up, people with several rows", visits, Units.from_groups(rows[:, :3], people)),
    ]


@dataclass(frozen=True)
class Truth:
    """The table without privacy, as the definitions of docs/describe.md have it; one weight for each row and column."""

    mean: Floats
    sd: Floats
    quantile: Floats
    proportion: Floats

    @classmethod
    def of(cls, data: Data) -> Truth:
        question, rows = data.question, np.asarray(data.units.rows)
        owner = np.repeat(np.arange(len(data.units)), 1 if data.units.offsets is None else np.diff(data.units.offsets))
        codes = None if question.by is None else rows[:, question.columns.index(question.by)]
        groups = [np.ones(len(rows), dtype=bool)]
        if codes is not None:
            groups = [~np.isnan(codes), *(codes == g for g in range(question.groups))]
        lines = [cls._line(question, rows, owner, who) for who in groups]
        return cls(*(np.array(each) for each in zip(*lines, strict=True)))

    @staticmethod
    def _line(
        question: DescribeProgram, rows: Floats, owner: NDArray[np.intp], who: NDArray[np.bool_]
    ) -> tuple[list[float], list[float], list[Floats], list[float]]:
        means, sds, quantiles, shares = [], [], [], []
        for name in question.columns:
            values = rows[:, question.columns.index(name)]
            here = who & ~np.isnan(values)
            weight = 1 / np.bincount(owner[here], minlength=owner[-1] + 1)[owner[here]]
            if name in question.ranges:
                x = np.clip(values[here], *question.ranges[name])
                n, mean = np.sum(weight), np.average(x, weights=weight)
                means.append(float(mean))
                sds.append(float(np.sqrt(np.average((x - mean) ** 2, weights=weight) * n / (n - 1))))
                order = np.argsort(x, kind="stable")
                below = np.cumsum(weight[order]) / n
                quantiles.append(np.array([x[order][np.searchsorted(below, q - 1e-12)] for q in QUARTILES]))
            elif name != question.by:
                levels = len(question.levels[name])
                shares += [float(np.average(values[here] == level, weights=weight)) for level in range(levels)]
        return means, sds, quantiles, shares


def held(ends: Floats, truth: Floats) -> Floats:
    return np.asarray((ends[..., 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[..., 1]), dtype=np.float64)


def part_a(data: Data, epsilons: Sequence[float], runs: int) -> None:
    truth = Truth.of(data)
    print(f"\n{data.name}: {len(data.units)} units, {runs} runs; how often 95 % intervals for these data hold")
    for epsilon in epsilons:
        rehearsal = Rehearsal(data.question, len(data.units), SITES, epsilon, DELTA)
        found = [rehearsal.run(data.units, 10_000 + seed) for seed in range(runs)]

        def covered(name: str, of: Floats, found: list[Estimate] = found) -> Floats:
            return np.asarray(np.mean([held(np.asarray(each[f"{name}_interval"]), of) for each in found], axis=0))

        means, shares = covered("mean", truth.mean), covered("proportion", truth.proportion)
        quantiles, sds = covered("quantile", truth.quantile), covered("sd", truth.sd)
        both = np.concatenate([means.ravel(), shares.ravel()])
        print(f"  epsilon {epsilon:g}: {rehearsal.algorithm.describe}")
        print(
            f"    means and proportions {both.mean():.4f} over {both.size} cells (least {both.min():.3f}, most "
            f"{both.max():.3f}); means {means.mean():.4f}, proportions {shares.mean():.4f}"
        )
        print(f"    quantiles {quantiles.mean():.4f} (least {quantiles.min():.3f}), sd {sds.mean():.4f}")
        if data.question.groups > 1:
            gaps = covered("difference", truth.mean[2:] - truth.mean[1])
            more = covered("proportion_difference", truth.proportion[2:] - truth.proportion[1])
            print(f"    differences of means {gaps.mean():.4f}, of proportions {more.mean():.4f}")
        errors = np.array([(np.asarray(each["mean"]) - truth.mean) / truth.sd for each in found])
        ranks = np.array([(np.asarray(each["quantile"]) - truth.quantile) / truth.sd[..., None] for each in found])
        points = 100 * np.array([np.asarray(each["proportion"]) - truth.proportion for each in found])
        for g, group in enumerate(found[0]["mean"].axes[0].labels):
            spread = ", ".join(
                f"{name} {spread:.3f}"
                for name, spread in zip(data.question.numbers, np.sqrt(np.mean(errors[:, g] ** 2, axis=0)), strict=True)
            )
            print(
                f"    {group}: rms error of means in sd: {spread}; of quartiles "
                f"{np.sqrt(np.mean(ranks[:, g] ** 2)):.3f}; of proportions "
                f"{np.sqrt(np.mean(points[:, g] ** 2)):.1f} points"
            )


def cohort(seed: int, ratio: float, n: int = 2000) -> tuple[Floats, Floats, Floats]:
    """Weibull times in two groups whose hazards have this ratio, censored at random and at the end of a study."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n).astype(float)
    event = 6 * np.where(group == 1, 1 / ratio, 1.0) ** (1 / 1.3) * rng.weibull(1.3, n)
    end = np.minimum(rng.exponential(12, n), rng.uniform(2, 10, n))
    return np.minimum(event, end), (event <= end).astype(float), group


def kaplan_meier(time: Floats, event: Floats, at: Floats) -> Floats:
    """On exact times."""
    times = np.unique(time[event == 1])
    risk = len(time) - np.searchsorted(np.sort(time), times)
    deaths = np.bincount(np.searchsorted(times, time[event == 1]), minlength=len(times))
    curve = np.append(1.0, np.cumprod(1 - deaths / risk))
    return np.asarray(curve[np.searchsorted(times, at, side="right")])


def log_rank_z(time: Floats, event: Floats, group: Floats) -> float:
    """On exact times."""
    times = np.unique(time[event == 1])
    risk = len(time) - np.searchsorted(np.sort(time), times)
    ours = np.sum(group == 1) - np.searchsorted(np.sort(time[group == 1]), times)
    deaths = np.bincount(np.searchsorted(times, time[event == 1]), minlength=len(times))
    own = np.bincount(np.searchsorted(times, time[(event == 1) & (group == 1)]), minlength=len(times))
    share = ours / risk
    variance = deaths * share * (1 - share) * (risk - deaths) / np.maximum(risk - 1, 1)
    return float(np.sum(own - share * deaths) / np.sqrt(np.sum(variance)))


def part_b(runs: int) -> None:
    edges = np.linspace(0, 8, 17)
    question = SurvivalProgram(columns=("time", "event", "arm"), edges=edges, groups=("control", "treated"))
    print(f"\nsurvival: 2000 people, two groups, 16 bins of half a year, {runs} runs against curves on exact times")
    for ratio in (0.7, 1.0):
        time, event, group = cohort(0, ratio)
        units = Units(np.column_stack([time, event, group]))
        truth = np.array([kaplan_meier(time[group == g], event[group == g], edges[1:]) for g in (0, 1)])
        exact = log_rank_z(time, event, group)
        print(f"  hazard ratio {ratio:g}, log-rank z without privacy {exact:.2f}")
        for epsilon in (1.0, 4.0):
            rehearsal = Rehearsal(question, len(units), SITES, epsilon, DELTA)
            found = [rehearsal.run(units, seed) for seed in range(runs)]
            error = np.array([np.asarray(each["survival"]) - truth for each in found])
            cover = np.mean([held(np.asarray(each["survival_interval"]), truth) for each in found], axis=0)
            z = np.array([float(each["log_rank_pooled_z"]) for each in found])
            std = np.array([float(np.asarray(each["log_rank_pooled_z"].std).item()) for each in found])
            rejected = np.mean([float(each["log_rank_p"]) < 0.05 for each in found])
            by_time = np.sqrt(np.nanmean(error**2, axis=(0, 1)))
            print(
                f"    epsilon {epsilon:g}: rms error {np.sqrt(np.nanmean(error**2)):.4f} (first year {by_time[1]:.4f}, "
                f"last {by_time[-1]:.4f}), bias at most {np.max(np.abs(np.nanmean(error, axis=0))):.4f}; intervals "
                f"hold {cover.mean():.3f} (least {cover.min():.3f}); known {np.mean(np.isfinite(error)):.3f} of bins"
            )
            print(
                f"      log-rank z {z.mean():.2f}, spread {z.std():.2f}; within 1.96 of its noise's std of the exact "
                f"one {np.mean(np.abs(z - exact) < 1.96 * std):.3f}; p < 0.05 in {rejected:.3f}"
            )
    fresh = max(runs, 200)
    for ratio in (1.0, 0.7):
        often: dict[float, float] = {}
        for epsilon in (1.0, 4.0):
            rehearsal = Rehearsal(question, 2000, SITES, epsilon, DELTA)
            drawn = [Units(np.column_stack(cohort(5000 + seed, ratio))) for seed in range(fresh)]
            often[epsilon] = float(
                np.mean([float(rehearsal.run(each, seed)["log_rank_p"]) < 0.05 for seed, each in enumerate(drawn)])
            )
        plain = np.mean([abs(log_rank_z(*cohort(5000 + seed, ratio))) > 1.96 for seed in range(fresh)])
        said = ", ".join(f"epsilon {epsilon:g}: {share:.3f}" for epsilon, share in often.items())
        print(f"  {fresh} fresh cohorts, hazard ratio {ratio:g}: p < 0.05 in {said}, without privacy {plain:.3f}")


def columns(n: int, seed: int) -> dict[str, tuple[Floats, tuple[float, float], tuple[str, ...]]]:
    rng = np.random.default_rng(seed)
    ages = np.clip(np.round(rng.normal(55, 16, n)), 0, 110)
    return {
        "normal": (rng.normal(120, 15, n), (60.0, 220.0), ()),
        "skewed": (np.exp(rng.normal(2, 0.9, n)), (0.0, 200.0), ()),
        "ages": (ages, (0.0, 110.0), ("x",)),
    }


def part_c(runs: int) -> None:
    print(f"\nquartiles, {runs} runs each: rms error in sd, mean width of the 95 % interval in sd, how often it holds")
    for n in (1000, 100_000):
        for epsilon in (0.5, 1.0, 2.0):
            for name in ("normal", "skewed", "ages"):
                error, width, hold, plain, bins = [], [], [], [], 0
                for seed in range(5):
                    values, limits, whole = columns(n, 100 + seed)[name]
                    units = Units(values[:, None])
                    question = QuantilesProgram(columns=("x",), ranges={"x": limits}, whole=whole)
                    rehearsal = Rehearsal(question, n, SITES, epsilon, DELTA)
                    bins = rehearsal.algorithm.ranks.bins[0]  # type: ignore[attr-defined]
                    truth = np.quantile(values, QUARTILES, method="inverted_cdf")
                    for run in range(max(runs // 5, 1)):
                        found = rehearsal.run(units, 1000 * seed + run)
                        ends = np.asarray(found["quantile_interval"])[0, 0]
                        error.append((np.asarray(found["quantile"])[0, 0] - truth) / values.std())
                        width.append((ends[:, 1] - ends[:, 0]) / values.std())
                        hold.append(held(ends, truth))
                    plain.append(_plain(values, rehearsal, limits, whole, truth) / values.std())
                print(
                    f"  {n} people, epsilon {epsilon:g}, {name}: error {np.sqrt(np.mean(np.square(error))):.4f}, width "
                    f"{np.mean(width):.4f}, held {np.mean(hold):.3f}; {bins} bins; error from a plain histogram "
                    f"{np.sqrt(np.mean(np.square(plain))):.4f}"
                )


def _plain(
    values: Floats, rehearsal: Rehearsal, limits: tuple[float, float], whole: tuple[str, ...], truth: Floats
) -> Floats:
    """Errors of quartiles from a plain noisy histogram of as many bins at the same cost: its cumulative sums, tied to
    the number of people and made to rise; twenty draws."""
    edges = rehearsal.algorithm.edges("x")  # type: ignore[attr-defined]
    counts = np.histogram(np.clip(values, edges[0], np.nextafter(edges[-1], -np.inf)), edges)[0]
    own = rehearsal.algorithm.ranks.sensitivity(rehearsal.plan.adjacency)  # type: ignore[attr-defined]
    std = rehearsal.noise[0] * np.sqrt(2) / own
    errors = []
    for seed in range(20):
        noisy = counts + std * np.random.default_rng(seed).normal(size=counts.size)
        noisy = np.cumsum(noisy - (np.sum(noisy) - len(values)) / len(noisy))
        noisy = (np.maximum.accumulate(noisy) + np.minimum.accumulate(noisy[::-1])[::-1]) / 2
        at = np.minimum(np.searchsorted(noisy, np.array(QUARTILES) * len(values)), len(noisy) - 1)
        middle = (edges[at] + edges[at + 1]) / 2
        errors.append(middle - truth)
    return np.array(errors)


def part_d(runs: int) -> None:
    print(f"\nintervals for the population, {runs} fresh samples with their noise: how often 95 % intervals hold")
    for n, epsilon in ((500, 4.0), (2000, 1.0), (2000, 4.0)):
        question = DescribeProgram(
            columns=("x", "kind", "arm"),
            ranges={"x": (0.0, 100.0)},
            levels={"kind": ("a", "b"), "arm": ("p", "q")},
            by="arm",
        )
        rehearsal = Rehearsal(question, n, SITES, epsilon, DELTA)
        mean, share, quantile, gap = [], [], [], []
        z = 0.6744897501960817
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            arm = rng.integers(0, 2, n)
            rows = np.column_stack([rng.normal(50 + 3 * arm, 8), rng.random(n) < 0.2 + 0.1 * arm, arm])
            found = rehearsal.run(Units(rows), seed)
            centers = np.array([50.0, 53.0])
            mean.append(held(np.asarray(found["mean_population_interval"])[1:, 0], centers))
            share.append(held(np.asarray(found["proportion_population_interval"])[1:, 1], np.array([0.2, 0.3])))
            wanted = centers[:, None] + 8 * np.array([-z, 0, z])
            quantile.append(held(np.asarray(found["quantile_population_interval"])[1:, 0], wanted))
            gap.append(held(np.asarray(found["difference_population_interval"])[0, 0], np.array(3.0)))
        print(
            f"  {n} people, epsilon {epsilon:g}: means {np.mean(mean):.3f}, proportions {np.mean(share):.3f}, "
            f"quantiles {np.mean(quantile):.3f}, differences {np.mean(gap):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--parts", default="abcd")
    chosen = parser.parse_args()
    if "a" in chosen.parts:
        part_a(heart(chosen.data), (1.0, 2.0, 4.0), chosen.runs)
        for data in made_up(3):
            part_a(data, (1.0, 4.0), chosen.runs)
    if "b" in chosen.parts:
        part_b(chosen.runs // 2)
    if "c" in chosen.parts:
        part_c(chosen.runs // 8)
    if "d" in chosen.parts:
        part_d(chosen.runs)


if __name__ == "__main__":
    main()
