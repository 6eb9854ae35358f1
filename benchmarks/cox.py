"""Cox regression against the fit of all sites' data without privacy, on real sets and on made-up cohorts.

Run `python benchmarks/cox.py [DATA] [--runs 30] [--only rotterdam,support2] [--epsilon 0.5,1,3,6] [--cohorts 24]`.

DATA is the folder with `rotterdam.npz` (optional). The other sets come with the packages SurvSet and lifelines (`pip
install SurvSet lifelines`); ranges, horizons and the steps of times below are clinical common sense, declared without
looking at values. Four sites, one colluding, delta = 1e-5, one baseline for all. Sets of `HELD_OUT` run by `--only`
alone. The program is driven directly with exact sums and normal noise of each release's standard deviation;
`test_cox_program_in_study_equals_driven_program` checks that a study gives the same.

Columns: the squared error of logarithms of hazard ratios per standard deviation of a column, over their size
(`score_coefficients`); the share of 95 % intervals that hold the fit of all data (pooled), and, with people drawn with
replacement, the fit of all (population); standard errors over those of sampling alone; the share of coefficients that
are identified; the share of runs whose table has a caveat about coverage (`zerosum.report.caveats`); the C-index of a
held-out fifth, with and without privacy; and the mean distance of the baseline survival from Breslow's. `--poisson`
adds this project's Poisson regression with the time as exposure.

Published figures on Rotterdam in 0/1 units, for comparison (relative squared error at epsilon 1 / 3 / 6): FDPCox with
its sensitivity corrected 1.39 / .90 / .31.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import pickle
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from zerosum.algorithms import CoxRegressionProgram, Estimate, PoissonRegressionProgram
from zerosum.algorithms.program import Algorithm, PublicFacts
from zerosum.compute.units import Units
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.report.caveats import interval_caveats

Floats = NDArray[np.float64]
DELTA, SITES, COLLUDERS = 1e-5, 4, 1


@dataclass
class Cohort:
    """Covariates (N, p), times, events, public ranges, the horizon, and the step of times if there is one."""

    X: Floats
    time: Floats
    event: Floats
    lower: Floats
    upper: Floats
    horizon: float
    step: float | None = None

    def of(self, which: Any) -> Cohort:
        """Some of the people."""
        return Cohort(
            self.X[which], self.time[which], self.event[which], self.lower, self.upper, self.horizon, self.step
        )


# ---- real sets -----------------------------------------------------------------------------------------------------

# For each set: numeric columns with range and the value that stands for missing ones (and "log" for log(1 + x)), other
# columns (dummies for all levels but the first), horizon, step of times.
Column = tuple[float, float, float] | tuple[float, float, float, str]
SETS: dict[str, tuple[dict[str, Column], list[str], float, float | None]] = {
    "support2": (
        {
            **{"age": (18, 100, 65), "num_co": (0, 9, 1), "scoma": (0, 100, 0), "meanbp": (0, 200, 85)},
            **{"wblc": (0, 60, 9), "hrt": (0, 250, 90), "resp": (0, 70, 20), "temp": (32, 42, 37)},
            **{"crea": (0, 12, 1), "sod": (110, 170, 138)},
        },
        ["sex", "diabetes", "dementia", "ca"],
        2000,
        None,
    ),
    "flchain": (
        {"age": (50, 100, 65), "kappa": (0, 10, 1.3), "creatinine": (0, 5, 1), "lambda": (0, 10, 1.5)},
        ["sex", "mgus"],
        5200,
        None,
    ),
    "prostateSurvival": ({}, ["grade", "stage", "ageGroup"], 120, 1),
    "hdfail": ({"temp": (10, 60, 30)}, ["brand", "rsc", "rer", "psc"], 12000, None),
    "Framingham": (
        {"sbp": (80, 250, 130), "dbp": (40, 150, 80), "scl": (100, 500, 220), "age": (30, 70, 45), "bmi": (15, 50, 25)},
        ["sex"],
        11700,
        None,
    ),
    "rhc": (
        {
            **{"age": (18, 100, 60), "aps1": (0, 150, 50), "scoma1": (0, 100, 0), "meanbp1": (0, 200, 85)},
            **{"hrt1": (0, 250, 90), "resp1": (0, 70, 20), "temp1": (32, 42, 37), "crea1": (0, 12, 1)},
            **{"alb1": (0, 6, 3.5)},
        },
        ["sex", "ca", "dnr1", "swang1", "card", "seps"],
        2000,
        None,
    ),
    "nwtco": ({"age": (0, 200, 40)}, ["stage", "study", "instit", "histol"], 6300, None),
    "GBSG2": (
        {
            **{"age": (20, 80, 50), "tsize": (0, 100, 25), "pnodes": (0, 30, 3)},
            **{"progrec": (0, 8, 3, "log"), "estrec": (0, 8, 3, "log")},
        },
        ["horTh", "menostat", "tgrade"],
        2700,
        None,
    ),
    "cancer": ({"age": (30, 90, 60), "ph_karno": (0, 100, 80), "wt_loss": (-30, 70, 0)}, ["sex"], 1050, None),
    "Dialysis": ({"age": (0, 100, 60), "begin": (0, 45, 20)}, ["disease"], 45, 1),
    "dataDIVAT1": ({"ageR": (18, 85, 50), "year_tx": (2000, 2012, 2006)}, ["sexR", "graft"], 6200, None),
    "dataDIVAT3": (
        {"ageR": (0, 90, 50), "ageD": (0, 90, 50), "year_tx": (2000, 2010, 2005)},
        ["sexeR", "ante_diab", "pra"],
        4000,
        None,
    ),
    "Aids2": ({"age": (0, 85, 37)}, ["state", "sex", "T_categ"], 2500, None),
    "TRACE": ({"wmi": (0, 3, 1.5), "age": (20, 100, 65)}, ["sex", "chf", "diabetes", "vf"], 8.5, None),
    "UnempDur": (
        {
            **{"age": (18, 65, 35), "reprate": (0, 2, 0.5), "disrate": (0, 1, 0.1), "tenure": (0, 40, 4)},
            **{"logwage": (2, 8, 5.5)},
        },
        ["ui"],
        28,
        1,
    ),
    "divorce": ({}, ["heduc", "heblack", "mixed"], 75, None),
}
NAMES = ("rotterdam", *SETS, "rossi")
# Sets that were run once, after everything else was settled.
HELD_OUT: dict[str, tuple[dict[str, Column], list[str], float, float | None]] = {
    "smarto": (
        {
            **{"age": (18, 85, 60), "systbp": (80, 250, 140), "bmi": (15, 50, 26), "chol": (0, 15, 5)},
            **{"hdl": (0, 4, 1.2), "creat": (3, 7, 4.5, "log")},
        },
        ["sex", "cerebral", "aaa", "periph"],
        3500,
        None,
    ),
    "LeukSurv": ({"age": (14, 100, 65), "wbc": (0, 6.5, 2.5, "log"), "tpi": (-7, 10, 0)}, ["sex"], 5000, None),
    "colon": (
        {"age": (18, 90, 60), "nodes": (0, 30, 3)},
        ["rx", "sex", "obstruct", "adhere", "node4"],
        3350,
        None,
    ),
    "dataDIVAT2": ({"age": (18, 85, 50)}, ["hla", "retransplant", "ecd"], 17.5, None),
    "grace": (
        {"los": (0, 60, 5), "age": (20, 100, 70), "sysbp": (60, 250, 140)},
        ["revasc", "stchange"],
        181,
        None,
    ),
}


def load(name: str, folder: Path | None) -> Cohort | None:
    """A real set, or None where its package or file is not there."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

    if name == "rotterdam":
        if folder is None or not (folder / "rotterdam.npz").exists():
            return None
        with np.load(folder / "rotterdam.npz") as file:
            X = np.round(file["Z"] * math.sqrt(5))
            times, event = np.clip(file["t"] / 365.25, 0.02, 20), file["rfs"].astype(float)
        return Cohort(np.clip(X, 0, 1), times, event, np.zeros(6), np.ones(6), 20.0)
    package = importlib.util.find_spec("lifelines" if name == "rossi" else "SurvSet")
    if package is None or package.origin is None:
        return None
    root = Path(package.origin).parent
    if name == "rossi":
        # Read as a file: the package itself is not imported.
        table = pd.read_csv(root / "datasets" / "rossi.csv")
        X = table[["fin", "age", "race", "wexp", "mar", "paro", "prio"]].to_numpy(float)
        low, high = np.array([0, 15, 0, 0, 0, 0, 0.0]), np.array([1, 50, 1, 1, 1, 1, 20.0])
        times, event = table["week"].to_numpy(float), table["arrest"].to_numpy(float)
        return Cohort(np.clip(X, low, high), times, event, low, high, 52.0, 1.0)
    numeric, others, horizon, step = {**SETS, **HELD_OUT}[name]
    frames = {path.stem: path for path in (root / "resources" / "pickles").glob("*.pickle")}
    warnings.simplefilter("ignore", DeprecationWarning)  # the files were written by an older NumPy
    frame = pd.DataFrame(pickle.loads(frames[name].read_bytes()))
    columns, low_, high_ = [], [], []
    for column, (a, b, fill, *log) in numeric.items():
        values = frame[f"num_{column}"].astype(float).fillna(fill).to_numpy()
        columns.append(np.clip(np.log1p(np.maximum(values, 0)) if log else values, a, b))
        low_.append(float(a))
        high_.append(float(b))
    for column in others:
        text = frame[f"fac_{column}"].astype(str)
        for level in sorted(text.unique())[1:]:
            columns.append((text == level).to_numpy(float))
            low_.append(0.0)
            high_.append(1.0)
    times = np.maximum(frame["time"].to_numpy(float), horizon * 1e-5)
    event = frame["event"].to_numpy(float)
    return Cohort(np.array(columns).T, times, event, np.array(low_), np.array(high_), float(horizon), step)


def cohort(seed: int) -> Cohort:
    """A made-up cohort: plain, follow-up that goes with a column, effects that fade, or a factor whose reference level
    has few events."""
    r = np.random.default_rng(50_000 + seed)
    kind = ("plain", "staggered", "fading", "levels")[seed % 4]
    n, p = int(np.exp(r.uniform(np.log(1200), np.log(16000)))), int(r.integers(4, 14))
    rho = r.uniform(0, 0.6)
    same = rho * np.ones((p, p)) + (1 - rho) * np.eye(p)
    decay = rho ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    normal = r.standard_normal((n, p)) @ np.linalg.cholesky(same if r.random() < 0.5 else decay).T
    X, low, high = np.empty((n, p)), np.zeros(p), np.ones(p)
    for j in range(p):
        u = r.random()
        if u < 0.5:
            X[:, j] = normal[:, j] > norm.ppf(1 - r.choice([0.5, 0.3, 0.15, 0.05]))
        elif u < 0.85:
            high[j] = r.uniform(2.5, 4.5)
            low[j] = -high[j]
            X[:, j] = np.clip(normal[:, j], low[j], high[j])
        else:
            X[:, j], high[j] = np.clip(np.exp(0.7 * normal[:, j]), 0, 12), 12
    b = r.standard_normal(p) * (r.random(p) < 0.7)
    if kind == "levels":
        level = r.choice(4, n, p=r.dirichlet([3, 3, 3, 3]))
        for k in range(3):
            X[:, k], low[k], high[k] = level == k + 1, 0, 1
        b[:3] = r.uniform(0.3, 1.5) + 0.2 * r.standard_normal(3)
    scaled = (X - X.mean(0)) / np.maximum(X.std(0), 1e-9)
    b = b / max(float(np.std(scaled @ b)), 1e-9) * r.uniform(0.3, 1.2)
    eta, shape, exponential = scaled @ b, r.uniform(0.6, 1.8), -np.log(r.random(n))
    times = exponential * np.exp(-eta)
    if kind == "fading":
        later = eta - (1 - r.uniform(0, 0.6)) * scaled[:, :2] @ b[:2]
        cut = np.quantile(times, 0.3)
        times = np.where(times < cut, times, cut + (exponential - cut * np.exp(eta)) * np.exp(-later))
    times = times ** (1 / shape)
    share, horizon, u = r.uniform(0.06, 0.65), 10.0, r.random()
    if kind == "staggered":
        z = scaled[:, int(r.integers(p))] * r.uniform(0.4, 1) + 0.6 * r.standard_normal(n)
        ends = norm.cdf(z / np.std(z)) * 0.95 + 0.05
    elif u < 0.5:
        ends = r.uniform(0.2, 1.0, n)
    else:
        ends = np.where(r.random(n) < 0.3, r.uniform(0, 1, n), 1.0)
    low_scale, high_scale = 1e-5, 1e6
    for _ in range(60):
        middle = math.sqrt(low_scale * high_scale)
        more = np.mean(times * middle <= ends * horizon) > share
        low_scale, high_scale = (middle, high_scale) if more else (low_scale, middle)
    times = times * low_scale
    kept = X.std(0) > 0
    event = (times <= ends * horizon).astype(float)
    observed = np.maximum(np.minimum(times, ends * horizon), 1e-6)
    return Cohort(X[:, kept], observed, event, low[kept], high[kept], horizon)


# ---- without privacy -----------------------------------------------------------------------------------------------


def cox(X: Floats, times: Floats, event: Floats) -> tuple[Floats, Floats]:
    """Maximiser of the partial likelihood with Breslow's ties, by Newton's method, and its inverse information."""
    size = np.where(X.std(0) > 0, X.std(0), 1)
    Z, order = (X - X.mean(0)) / size, np.argsort(-times, kind="stable")
    Z, t, d = Z[order], times[order], event[order]
    last, dead = np.searchsorted(-t, -t, side="right") - 1, np.flatnonzero(d > 0)
    p = Z.shape[1]
    b, upper = np.zeros(p), np.triu_indices(p)
    squares = Z[:, upper[0]] * Z[:, upper[1]]

    def likelihood(b: Floats) -> float:
        eta = np.clip(Z @ b, -50, 50)
        return float(np.sum(eta[dead]) - np.sum(np.log(np.cumsum(np.exp(eta))[last[dead]])))

    now, information = likelihood(b), np.eye(p)
    for _ in range(60):
        w = np.exp(np.clip(Z @ b, -50, 50))
        S0 = np.cumsum(w)[last[dead]]
        mean = np.cumsum(Z * w[:, None], axis=0)[last[dead]] / S0[:, None]
        second = np.sum(np.cumsum(squares * w[:, None], axis=0)[last[dead]] / S0[:, None], axis=0)
        information = np.zeros((p, p))
        information[upper] = second
        information = information + np.triu(information, 1).T - mean.T @ mean + 1e-9 * np.eye(p)
        step, factor = np.linalg.solve(information, np.sum(Z[dead] - mean, axis=0)), 1.0
        while factor > 1e-4 and not likelihood(b + factor * step) >= now - 1e-9:
            factor /= 2
        b = b + factor * step
        now = likelihood(b)
        if np.max(np.abs(factor * step)) < 1e-8:
            break
    return b / size, np.linalg.inv(information) / np.outer(size, size)


def concordance(times: Floats, event: Floats, score: Floats, rng: np.random.Generator) -> float:
    """Harrell's C over up to 2000 people with an event against all."""
    dead = np.flatnonzero(event > 0)
    dead = rng.permutation(dead)[:2000]
    right = pairs = 0.0
    for i in dead:
        later = times > times[i]
        pairs += float(np.sum(later))
        right += float(np.sum(score[i] > score[later])) + 0.5 * float(np.sum(score[i] == score[later]))
    return right / max(pairs, 1.0)


# ---- the program ---------------------------------------------------------------------------------------------------


def mu_of(epsilon: float) -> float:
    """mu of Gaussian differential privacy with this epsilon at DELTA."""

    def excess(mu: float) -> float:
        tail = norm.logcdf(-epsilon / mu - mu / 2)
        return float(norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon + tail) - DELTA)

    return float(brentq(excess, 1e-4, 100))


def driven(algorithm: Algorithm, rows: Floats, epsilon: float, rng: np.random.Generator) -> Estimate:
    """The estimate of a program from exact sums with normal noise, as colluding sites see it."""
    unit = math.sqrt(SITES / (SITES - COLLUDERS)) / mu_of(epsilon)
    algorithm = algorithm.resolve(PublicFacts(unit, len(rows)))
    units, program = Units.from_rows(rows), algorithm.program(Adjacency.REPLACE_ONE)
    request = next(program)
    while True:
        assert isinstance(request, PrivateSum)
        std = unit * request.statistic.sensitivity(Adjacency.REPLACE_ONE) / math.sqrt(request.share)
        total = request.statistic.total(units)
        try:
            request = program.send(Release(total + std * rng.standard_normal(total.size), std, len(rows), ("all",)))
        except StopIteration as stop:
            estimate: Estimate = stop.value
            return estimate


def program_of(data: Cohort) -> CoxRegressionProgram:
    names = tuple(f"x{j}" for j in range(data.X.shape[1]))
    return CoxRegressionProgram(
        columns=(*names, "time", "event"),
        lower=np.append(data.lower, [0, 0]),
        upper=np.append(data.upper, [data.horizon, 1]),
        time_step=data.step,
    )


def rows_of(data: Cohort) -> Floats:
    return np.column_stack([data.X, data.time, data.event])


def poisson_of(data: Cohort, epsilon: float, rng: np.random.Generator) -> Floats:
    """Coefficients of this project's Poisson regression with the time as exposure."""
    shortest = 1e-3 * data.horizon
    names = tuple(f"x{j}" for j in range(data.X.shape[1]))
    program = PoissonRegressionProgram(
        columns=(*names, "log time", "event"),
        lower=np.append(data.lower, [math.log(shortest), 0]),
        upper=np.append(data.upper, [math.log(data.horizon), 1]),
        offset="log time",
    )
    rows = np.column_stack([data.X, np.log(np.clip(data.time, shortest, data.horizon)), data.event])
    return np.asarray(driven(program, rows, epsilon, rng)["coefficients"].value)


def holds(estimate: Estimate, kind: str, truth: Floats) -> Floats:
    """Whether the 95 % interval of each coefficient holds the truth."""
    low, high = estimate[f"{kind}_interval_95"].value.T
    return np.asarray((low <= truth) & (truth <= high), dtype=np.float64)


def breslow(data: Cohort, b: Floats, at: Floats, ends: Floats) -> Floats:
    """Survival at `ends` of a unit with covariates `at`, from the fit of all data."""
    w, order = np.exp((data.X - at) @ b), np.argsort(data.time)
    at_risk = np.cumsum(w[order][::-1])[::-1]
    first = np.searchsorted(data.time[order], data.time[order])
    hazard = np.cumsum(data.event[order] / at_risk[first])
    place = np.searchsorted(data.time[order], ends, side="right")
    return np.asarray(np.exp(-np.concatenate([[0.0], hazard])[place]))


def measured(data: Cohort, epsilon: float, runs: int, poisson: bool) -> Iterator[tuple[str, float]]:
    """The columns of the table at one epsilon."""
    b, V = cox(data.X, data.time, data.event)
    size, people, program = data.X.std(0), len(data.X), program_of(data)
    length, own = float(np.sum((b * size) ** 2)), np.sqrt(np.diag(V))
    errors, raw, counts, C, distance, band, flagged = [], [], [], [], [], [], []
    cover: dict[str, list[Floats]] = {"pooled": [], "population": []}
    wide: dict[str, list[Floats]] = {"pooled": [], "population": []}
    other = []
    fold = np.random.default_rng(7).permutation(people) % 5
    for seed in range(runs):
        found = driven(program, rows_of(data), epsilon, np.random.default_rng(seed))
        score = found["score_coefficients"].value
        errors.append(float(np.sum(((score - b) * size) ** 2)) / length)
        raw.append(float(np.sum((score - b) ** 2) / np.sum(b**2)))
        counts.append(found["identified"].value)
        flagged.append(any(interval_caveats(found)))
        cover["pooled"].append(holds(found, "pooled", b))
        wide["pooled"].append(found["pooled_std"].value / own)
        survival = breslow(data, b, found["baseline_at"].value, program.times[1:])
        distance.append(float(np.mean(np.abs(found["baseline_survival"].value[0] - survival))))
        low, high = found["baseline_interval"].value[0].T
        band.append(float(np.mean((low <= survival) & (survival <= high))))
        drawn = np.random.default_rng(5000 + seed).integers(0, people, people)
        again = driven(program, rows_of(data.of(drawn)), epsilon, np.random.default_rng(900 + seed))
        cover["population"].append(holds(again, "population", b))
        wide["population"].append(again["population_std"].value / own)
        if people < 20_000 or seed < 5:
            held = fold == seed % 5
            rest = driven(program, rows_of(data.of(~held)), epsilon, np.random.default_rng(2000 + seed))
            own_score = data.X[held] @ rest["score_coefficients"].value
            rng = np.random.default_rng(seed)
            C.append(concordance(data.time[held], data.event[held], own_score, rng))
        if poisson:
            slopes = poisson_of(data, epsilon, np.random.default_rng(seed))
            other.append(float(np.sum(((slopes - b) * size) ** 2)) / length)
    yield "error", float(np.mean(errors))
    yield "sd", float(np.std(errors))
    yield "raw", float(np.mean(raw))
    for kind in cover:
        yield f"{kind} 95 %", float(np.mean(cover[kind]))
        yield f"{kind} width", float(np.median(wide[kind]))
    yield "identified", float(np.mean(counts))
    chosen = np.concatenate(counts) > 0
    yield (
        "pooled 95 % of identified",
        float(np.mean(np.concatenate(cover["pooled"])[chosen])) if chosen.any() else math.nan,
    )
    yield "flagged", float(np.mean(flagged))
    yield "C", float(np.mean(C))
    yield "|dS|", float(np.mean(distance))
    yield "band 95 %", float(np.mean(band))
    if poisson:
        yield "Poisson", float(np.mean(other))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--epsilon", default="0.5,1,3,6")
    parser.add_argument("--cohorts", type=int, default=0)
    parser.add_argument("--poisson", action="store_true")
    options = parser.parse_args()
    levels = [float(each) for each in options.epsilon.split(",")]
    chosen = [each for each in options.only.split(",") if each] or (list(NAMES) if not options.cohorts else [])
    sets: list[tuple[str, Cohort | None]] = [(name, load(name, options.data)) for name in chosen]
    sets += [(f"cohort {seed}", cohort(seed)) for seed in range(options.cohorts)]
    for name, data in sets:
        if data is None:
            print(f"{name}: not here (see the head of this file)")
            continue
        event = np.where(data.time > data.horizon, 0.0, data.event)
        data = Cohort(
            data.X, np.minimum(data.time, data.horizon), event, data.lower, data.upper, data.horizon, data.step
        )
        b, V = cox(data.X, data.time, data.event)
        size = data.X.std(0)
        sampling = float(np.sum(np.diag(V) * size**2) / np.sum((b * size) ** 2))
        fold, C = np.random.default_rng(7).permutation(len(data.X)) % 5, []
        for held in range(5):
            slopes, _ = cox(data.X[fold != held], data.time[fold != held], data.event[fold != held])
            some = fold == held
            C.append(concordance(data.time[some], data.event[some], data.X[some] @ slopes, np.random.default_rng(0)))
        shape = f"N {len(data.X)} p {data.X.shape[1]} events {int(data.event.sum())}"
        print(f"{name}: {shape}; sampling variance {sampling:.4f}; C without privacy {np.mean(C):.3f}", flush=True)
        for epsilon in levels:
            start = time.perf_counter()
            found = dict(measured(data, epsilon, options.runs, options.poisson))
            line = ", ".join(f"{key} {value:.4f}" for key, value in found.items())
            print(f"  epsilon {epsilon:g}: {line}  ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
