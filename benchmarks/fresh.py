"""Regressions on data that no setting was tuned on: error of every method, coverage of every coefficient.

    python benchmarks/fresh.py [--only fair,linear,...] [--epsilon 0.5 1 3] [--runs 30] [--methods ours,dp-gd,...]
                               [--set goal=predict ...] [--rounds 500 3000] [--each]

`--only` takes names or families of `fresh_data`. Eight unequal sites, 2 colluders, delta 1e-5, one record of a person
protected. Every setting of ours is left to the planner, unless `--set` gives one.

| method | trust | settings |
|---|---|---|
| ours | secure sum | the planner's |
| dp-gd | the same noise as a secure sum for every gradient | the best of a grid on these very data (see `Grid`) |
| adassp | the same noise on its three sums | none (linear) |
| objective | a trusted holder of all rows: it cannot run over sites | none (linear, logistic) |

The choice from the grid looks at the data and at the error, and is not paid for: dp-gd is shown at its best.
`explained` is the share of the deviance of the constant model that a fit explains on all rows (R^2 for least squares);
1 minus that share is what a reader of predictions sees. `error` is the squared error of the slopes against the fit
without privacy, in standard deviations of the columns, over the square of the slopes themselves: 1 is what zeros have.

Coverage: 90 % intervals of ours. `pooled` against the fit without privacy to the same rows; `population` against the
best fit to the distribution of made-up sets. Average and worst coefficient; `width` is the median width of the pooled
interval over 2 x 1.645 times the root mean squared error of that coefficient: 1 is ideal.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, xlogy

from fresh_data import CATALOGUE, POPULATIONS, DataSet, Unavailable, load
from zerosum.algorithms import LinearRegressionProgram, LogisticRegressionProgram, PoissonRegressionProgram
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.kernel.accountant import mu_for
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme, SiteShape
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition, calibrate
from zerosum.papers.methods import objective
from zerosum.papers.methods.records import Records
from zerosum.papers.methods.regression import ADASSP_SQUARED, adassp
from zerosum.study.planning import make_plan, resolve
from zerosum.study.rehearsal import PlanSimulation

COLLUDERS = 2
DELTA = 1e-5
PROGRAMS: dict[str, Any] = {
    "linear": LinearRegressionProgram,
    "logistic": LogisticRegressionProgram,
    "poisson": PoissonRegressionProgram,
}


# ---- error of a fit --------------------------------------------------------------------------------------------------


def deviance(family: str, y: Floats, predictor: Floats) -> float:
    """Deviance of a linear predictor: squared residuals, or twice the log likelihood below that of the response."""
    if family == "linear":
        return float(np.sum((y - predictor) ** 2))
    if family == "logistic":
        return float(2 * np.sum(np.logaddexp(0, predictor) - y * predictor))
    rate = np.exp(np.clip(predictor, -30, 30))
    return float(2 * np.sum(xlogy(y, np.where(y > 0, y, 1) / rate) - (y - rate)))


def explained(data: DataSet, found: Floats) -> float:
    """Share of the deviance of the constant model that coefficients (p + 1,) explain."""
    known = np.zeros(len(data.y)) if data.offset is None else data.offset
    null = data.y.mean()
    if data.family == "logistic":
        null = np.log(null / (1 - null))
    elif data.family == "poisson":
        null = np.log(data.y.sum() / np.exp(known).sum())
    predictor = data.x @ found[:-1] + found[-1] + known
    return 1 - deviance(data.family, data.y, predictor) / deviance(data.family, data.y, null + known)


def error(data: DataSet, found: Floats) -> float:
    """Squared error of the slopes over their size, both in standard deviations of the columns."""
    spread = data.x.std(axis=0)
    size = float(np.sum((data.pooled[:-1] * spread) ** 2))
    return float(np.sum(((found - data.pooled)[:-1] * spread) ** 2)) / size


# ---- ours ------------------------------------------------------------------------------------------------------------


def plan_for(data: DataSet, epsilon: float, settings: dict[str, Any]) -> PlanSimulation:
    """The study of a data set with a default plan."""
    low, high = data.table_ranges
    known = {} if data.offset is None else {"offset": "offset"}
    algorithm = PROGRAMS[data.family](columns=data.table_columns, lower=low, upper=high, **known, **settings)
    terms = Terms(
        sites=tuple(PlannedSite(f"site{at}", len(part)) for at, part in enumerate(data.parts)),
        epsilon=epsilon,
        delta=DELTA,
        scheme=Scheme(DEFAULT_SCHEME),
        coalition=Coalition(COLLUDERS),
    )
    plan: Plan = make_plan(resolve(algorithm, terms), terms, "fresh")
    return PlanSimulation(algorithm, plan)


@dataclass
class Coverage:
    """Intervals of repeated runs: whether they contain their targets, widths, and errors."""

    pooled: list[list[bool]] = field(default_factory=list)
    population: list[list[bool]] = field(default_factory=list)
    widths: list[Floats] = field(default_factory=list)
    errors: list[Floats] = field(default_factory=list)
    identified: list[Floats] = field(default_factory=list)

    def add(self, data: DataSet, estimate: dict[str, Floats]) -> None:
        """Record the slopes and the intercept of a run."""
        ends = estimate["pooled_interval_90"]
        self.pooled.append([bool(low <= at <= high) for (low, high), at in zip(ends, data.pooled, strict=True)])
        self.widths.append(ends[:, 1] - ends[:, 0])
        self.errors.append(np.append(estimate["coefficients"], estimate["intercept"]) - data.pooled)
        self.identified.append(estimate["identified"])
        if data.population is not None:
            ends = estimate["population_interval_90"]
            self.population.append([bool(a <= at <= b) for (a, b), at in zip(ends, data.population, strict=True)])

    def line(self) -> str:
        """Average and worst coverage, width over error, share of identified coefficients."""
        if not self.pooled:
            return "- | - | - | -"
        each = np.mean(self.pooled, axis=0)
        rms = np.sqrt(np.mean(np.square(self.errors), axis=0))
        width = float(np.median(np.median(self.widths, axis=0) / np.maximum(2 * 1.645 * rms, 1e-300)))
        people = np.mean(self.population, axis=0) if self.population else None
        shown = "-" if people is None else f"{people.mean():.3f} / {people.min():.2f}"
        return f"{each.mean():.3f} / {each.min():.2f} | {shown} | {width:.2f} | {np.mean(self.identified):.2f}"

    def each(self, data: DataSet) -> str:
        """Coverage of every coefficient."""
        names = (*data.columns, "intercept")
        found = zip(names, np.mean(self.pooled, axis=0), strict=True)
        return "  ".join(f"{name} {share:.2f}" for name, share in found)


def ours(data: DataSet, simulation: PlanSimulation, seed: int, coverage: Coverage) -> Floats:
    """Coefficients (p + 1,) of one run; its intervals are recorded."""
    estimate = {
        name: each.value for name, each in simulation.run([Units.from_rows(p) for p in data.parts], seed).items()
    }
    coverage.add(data, estimate)
    prefix = "score_" if "score_coefficients" in estimate else ""
    return np.append(estimate[f"{prefix}coefficients"], estimate[f"{prefix}intercept"])


# ---- baselines -------------------------------------------------------------------------------------------------------


def price_of_trust(sites: int = 8) -> float:
    """Noise of a secure sum over that of one trusted holder, at the same epsilon against colluders."""
    law = Scheme(DEFAULT_SCHEME).law([SiteShape()] * sites, sites - COLLUDERS)
    return float(calibrate(law, 1.0, Coalition(COLLUDERS), 1.0).noise_std)


@dataclass(frozen=True)
class Grid:
    """Settings of gradient descent that the best is taken from.

    Attributes
    ----------
    rounds : tuple of int
        Noisy gradients of all rows. mu^2 adds up over rounds, exactly.
    steps : tuple of float
        Step over the inverse of the largest curvature, sum of squared features times that of the loss.
    clips : tuple of float
        Bound on the norm of a row's gradient, over the typical norm: root of the number of columns times the standard
        deviation of a residual.
    standardise : tuple of bool
        Whether a tenth of mu^2 buys means and second moments of the columns first, to standardise them. Otherwise
        columns are in half ranges about the middle of their range.
    averaged : tuple of bool
        Whether the result is the mean of the second half of the iterates, or the last one.
    """

    rounds: tuple[int, ...] = (150, 500, 1500, 3000)
    steps: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    clips: tuple[float, ...] = (0.3, 1.0, 3.0)
    standardise: tuple[bool, ...] = (False, True)
    averaged: tuple[bool, ...] = (False, True)


SHARE_OF_SCALES = 0.1  # of mu^2, for means and second moments of the columns


def descend(data: DataSet, mu: float, rounds: int, standardise: bool, grid: Grid, seed: int) -> dict[Any, Floats]:
    """Coefficients (p + 1,) for every step and clip of the grid and both outputs, by noisy full-batch gradients.

    The response is divided by its half range (linear) or is left as it is. A Poisson model starts at the logarithm of
    the middle of the range; a round's clip bounds its gradient, so that no more about the response need be public.
    """
    rng = np.random.default_rng(seed)
    n, p = data.x.shape
    middle, half = data.ranges.mean(axis=1), np.ptp(data.ranges, axis=1) / 2
    inner, dear = (data.x - middle) / half, price_of_trust()
    center, scale, left = np.zeros(p), np.ones(p), mu
    if standardise:
        # In [-1, 1], (a - b)^2 + (a^2 - b^2)^2 is at most 4 for each column, so that the release moves by 2 sqrt p.
        std = 2 * np.sqrt(p) * dear / (mu * np.sqrt(SHARE_OF_SCALES) * n)
        center = inner.mean(axis=0) + std * rng.standard_normal(p)
        second = (inner**2).mean(axis=0) + std * rng.standard_normal(p)
        scale = np.sqrt(np.maximum(second - center**2, max(std, 1e-4)))
        left = mu * float(np.sqrt(1 - SHARE_OF_SCALES))
    design = np.column_stack([(inner - center) / scale, np.ones(n)])
    linear = data.family == "linear"
    lowest, highest = data.response
    y = (2 * data.y - lowest - highest) / (highest - lowest) if linear else data.y
    known = np.zeros(n) if data.offset is None else data.offset
    typical = np.sqrt(p + 1.0) * {"linear": 0.3, "logistic": 0.4}.get(data.family, np.sqrt(y.mean() + 1))
    curvature = (p + 1) * {"linear": 1.0, "logistic": 0.25}.get(data.family, y.mean() + 1e-3)
    tries = list(product(grid.steps, grid.clips))
    clips = typical * np.array([clip for _step, clip in tries])
    steps = np.array([step for step, _clip in tries]) / curvature
    noise = 2 * clips * np.sqrt(rounds) * dear / (left * n)
    norms = np.linalg.norm(design, axis=1)[:, None]
    w = np.zeros((p + 1, len(tries)))
    mean = np.zeros_like(w)
    for at in range(rounds):
        predictor = design @ w
        if linear:
            gap = predictor - y[:, None]
        elif data.family == "logistic":
            gap = expit(predictor) - y[:, None]
        else:
            gap = np.exp(np.minimum(predictor + known[:, None], 15)) - y[:, None]
        limit = clips / norms
        gradient = design.T @ np.clip(gap, -limit, limit) / n + noise * rng.standard_normal(w.shape)
        w = np.clip(w - steps * gradient, -50, 50)
        if at >= rounds // 2:
            mean += w / (rounds - rounds // 2)
    found: dict[Any, Floats] = {}
    for averaged, each in ((False, w), (True, mean)):
        slopes = each[:-1] / (scale * half)[:, None]
        constant = each[-1] - ((center * half + middle) @ slopes)
        if linear:
            slopes, constant = (
                slopes * (highest - lowest) / 2,
                constant * (highest - lowest) / 2 + (lowest + highest) / 2,
            )
        for column, (step, clip) in enumerate(tries):
            found[rounds, standardise, step, clip, averaged] = np.append(slopes[:, column], constant[column])
    return found


def gradient_descent(sets: Sequence[DataSet], epsilon: float, grid: Grid) -> tuple[str, list[Floats]]:
    """The best settings of the grid, by the mean of the explained deviance over the runs, and their coefficients."""
    mu = mu_for(epsilon, DELTA)
    runs: dict[Any, list[Floats]] = {}
    for rounds, standardise in product(grid.rounds, grid.standardise):
        for seed, data in enumerate(sets):
            for key, found in descend(data, mu, rounds, standardise, grid, seed).items():
                runs.setdefault(key, []).append(found)
    scores = {
        key: float(np.mean([max(explained(d, w), -1.0) for d, w in zip(sets, found, strict=True)]))
        for key, found in runs.items()
        if key[-1] in grid.averaged
    }
    best = max(scores, key=lambda key: scores[key])
    rounds, standardise, step, clip, averaged = best
    words = f"{rounds} rounds, step {step:g}, clip {clip:g}"
    return words + (", standardised" if standardise else "") + (", averaged" if averaged else ""), runs[best]


def _unit_rows(data: DataSet) -> tuple[Records, Floats]:
    """Rows of norm at most 1 with a constant, the response in [-1, 1] (linear); and the map back to slopes."""
    middle, half = data.ranges.mean(axis=1), np.ptp(data.ranges, axis=1) / 2
    p = len(half)
    x = np.column_stack([(data.x - middle) / half, np.ones(len(data.y))]) / np.sqrt(p + 1)
    lowest, highest = data.response
    linear = data.family == "linear"
    y = (2 * data.y - lowest - highest) / (highest - lowest) if linear else data.y
    back = np.zeros((p + 1, p + 1))
    back[:-1, :-1] = np.diag(1 / half)
    back[-1, :-1], back[-1, -1] = -middle / half, 1.0
    return Records(x, y), back / np.sqrt(p + 1) * ((highest - lowest) / 2 if linear else 1.0)


def _in_units(data: DataSet, w: Floats) -> Floats:
    found = _unit_rows(data)[1] @ w
    if data.family == "linear":
        found[-1] += sum(data.response) / 2
    return np.asarray(found)


def sufficient_statistics(data: DataSet, epsilon: float, seed: int) -> Floats:
    """AdaSSP with the noise of secure sums."""
    noise = float(np.sqrt(ADASSP_SQUARED)) * price_of_trust() / mu_for(epsilon, DELTA)
    return _in_units(data, adassp(_unit_rows(data)[0], noise, DELTA, np.random.default_rng(seed), isometric=True))


def perturbed_objective(data: DataSet, epsilon: float, seed: int) -> Floats:
    """Objective perturbation by a trusted holder."""
    model: Any = data.family
    return _in_units(
        data, objective.sound(model, _unit_rows(data)[0], epsilon, DELTA, np.random.default_rng(seed))
    )  # fmt: skip


# ---- table -----------------------------------------------------------------------------------------------------------

METHODS = ("non-private", "ours", "dp-gd", "adassp", "objective")
UNDEFINED = {("adassp", "logistic"), ("adassp", "poisson"), ("objective", "poisson")}  # method and family


def chosen(only: str) -> list[str]:
    """Names of the regressions in the catalogue that are asked for, by name or family."""
    wanted = [each for each in only.split(",") if each]
    found = []
    for name in CATALOGUE:
        try:
            family = POPULATIONS[name].family if name in POPULATIONS else load(name).family
        except Unavailable as reason:
            print(f"{name}: skipped, {reason}")
            continue
        if family in PROGRAMS and (not wanted or name in wanted or family in wanted):
            found.append(name)
    return found


def compare(
    name: str, epsilon: float, runs: int, methods: Iterable[str], settings: dict[str, Any], grid: Grid, each: bool
) -> None:
    """Print the lines of one data set at one epsilon."""
    sets = [load(name, seed) for seed in range(runs)]
    family = sets[0].family
    for method in methods:
        coverage, words = Coverage(), ""
        if (method, family) in UNDEFINED:
            continue
        if method == "non-private":
            found = [data.pooled for data in sets]
        elif method == "ours":
            found = []
            simulation = plan_for(sets[0], epsilon, settings)
            for seed, data in enumerate(sets):
                found.append(ours(data, simulation, seed, coverage))
        elif method == "dp-gd":
            words, found = gradient_descent(sets, epsilon, grid)
        else:
            fit = sufficient_statistics if method == "adassp" else perturbed_objective
            found = [fit(data, epsilon, seed) for seed, data in enumerate(sets)]
        share = np.array([explained(data, w) for data, w in zip(sets, found, strict=True)])
        wrong = np.array([error(data, w) for data, w in zip(sets, found, strict=True)])
        print(
            f"| {name} | {epsilon:g} | {method} | {share.mean():.3f} ± {share.std():.3f} | {share.min():.3f} | "
            f"{np.median(wrong):.3g} | {coverage.line()} | {words} |",
            flush=True,
        )
        if each and coverage.pooled:
            print(f"    pooled: {coverage.each(sets[0])}", flush=True)


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def main() -> None:
    """Run all sets that are asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names or families, with commas between them")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0, 10.0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--set", action="append", default=[], type=_setting, help="a setting of ours, name=value")
    parser.add_argument("--rounds", type=int, nargs="+", default=list(Grid.rounds), help="of gradient descent")
    parser.add_argument("--each", action="store_true", help="print the coverage of every coefficient")
    given = parser.parse_args()
    grid = Grid(rounds=tuple(given.rounds))
    print(
        "| data | epsilon | method | explained | worst run | error | pooled | population | width | known | settings |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, epsilon in product(chosen(given.only), given.epsilon):
            compare(name, epsilon, given.runs, given.methods.split(","), dict(given.set), grid, given.each)


if __name__ == "__main__":
    main()
