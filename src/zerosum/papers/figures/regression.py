"""Figures 3, 4 and 7 of the capeFM paper: loss and error of private linear regression against epsilon, records, delta.

Five sites, one of them colluding. Every method runs at the same exact epsilon, and those of the papers also at their
published calibration, with the exact epsilon beside it. The papers' methods receive the data as the capeFM paper
prepares them (columns in -1 to 1 and a constant, all divided by the largest norm: not private). AdaSSP, objective
perturbation and gradient descent receive all data. Gradient descent receives the best of five settings at every point,
chosen with the answer known. Zerosum receives columns in public ranges of -1 to 1.

The loss is f_D(w), the mean square of all residuals. `held_out` is that of a fifth of every site which another run did
not use. The error is |w - w*|/D for columns in -1 to 1, with w* the true coefficients if known (synthetic data), else
those of least squares. Values are medians and quartiles over seeds: the stationary point of a noisy polynomial without
a minimum has no mean. The paper does not give its N or the fixed epsilon. It has delta = 1e-5 for synthetic data; here
delta is 1e-3 for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from zerosum.arrays import Floats
from zerosum.papers.figures import fitting
from zerosum.papers.figures.experiment import Experiment, OnStep, Row, Run, Table, run_count
from zerosum.papers.figures.panels import subplots
from zerosum.papers.figures.regression_data import DATA, Regression, load
from zerosum.papers.methods import regression as methods
from zerosum.papers.methods.records import Records

SITES, COLLUDERS = 5, 1
EPSILON, DELTA = 0.5, 1e-3  # values where they are not varied
OURS, DESCENT = "zerosum", "dp-gd"


class Descent(NamedTuple):
    """Settings of gradient descent."""

    rounds: int
    momentum: float
    rate: float  # learning rate over the inverse of the largest curvature
    bound: float  # clip of residuals


# Settings of which the best is shown: short runs first, then a grid.
DESCENTS = (
    Descent(10, 0.0, 1.0, 1.0),
    Descent(30, 0.0, 1.0, 1.0),
    Descent(100, 0.0, 1.0, 1.0),
    Descent(300, 0.0, 1.0, 1.0),
    Descent(100, 0.9, 1.0, 1.0),
    *(Descent(*each) for each in product((150, 500, 1500, 3000), (0.0,), (1.0, 3.0), (0.25, 1.0))),
)
# Methods without a published calibration.
EXACT_ONLY = (DESCENT, "cape-fm-ridge")
# Records and seeds of quick runs, seeds of full runs; chosen by hand.
QUICK_ROWS, QUICK_SEEDS, FULL_SEEDS = 20_000, 5, 10
SYNTHETIC_ROWS = {False: 10_000, True: 40_000}  # rows of synthetic data; True for the sweep over records

Along = Literal["epsilon", "records", "delta"]


# ---- one setting ----------------------------------------------------------------------------------------------------


class Setting:
    """Records as each method receives them, and the reference for loss and error."""

    def __init__(self, x: Sequence[Floats], y: Sequence[Floats], weights: Floats | None) -> None:
        self.rows = [np.column_stack(pair) for pair in zip(x, y, strict=True)]
        each = [np.column_stack([own, np.ones(len(own))]) for own in x]
        everyone, response = np.concatenate(each), np.concatenate(y)
        self.radius = float(np.sqrt(np.max(np.einsum("ij,ij->i", everyone, everyone))))
        self.sites = methods.Sites(
            "linear", [Records(own / self.radius, given) for own, given in zip(each, y, strict=True)]
        )
        self.records = len(y[0])
        # Back to the scale of columns in -1 to 1.
        self.best = methods.non_private(self.sites) / self.radius
        self.weights = self.best if weights is None else weights
        self._moments = _moments(everyone, response)

    def loss(self, w: Floats) -> float:
        """Mean squared residual of all records."""
        return _loss(self._moments, w)

    def error(self, w: Floats) -> float:
        """|w - w*|/D."""
        return float(np.linalg.norm(w - self.weights) / len(w))


# X'X/n, X'y/n and y'y/n.
_Moments = tuple[Floats, Floats, float]


def _moments(x: Floats, y: Floats) -> _Moments:
    """Moments from which the loss follows without the records."""
    return x.T @ x / len(x), x.T @ y / len(x), float(np.mean(y * y))


def _loss(moments: _Moments, w: Floats) -> float:
    """Mean squared residual from moments."""
    # capeFM, equation (14), expanded: no pass over the records for each of some hundred coefficients.
    matrix, linear, constant = moments
    return float(w @ matrix @ w - 2 * w @ linear + constant)


@dataclass(frozen=True, eq=False)
class Settings:
    """All records, and four fifths of them with the rest for prediction."""

    whole: Setting
    part: Setting
    rest: _Moments

    @staticmethod
    def of(data: Regression, records: int) -> Settings:
        """Settings with `records` records per site."""
        x, y = ([values[s::SITES][:records] for s in range(SITES)] for values in (data.x, data.y))
        training = records - records // 5
        others = np.concatenate([own[training:] for own in x])
        rest = _moments(np.column_stack([others, np.ones(len(others))]), np.concatenate([own[training:] for own in y]))
        part = Setting([own[:training] for own in x], [own[:training] for own in y], data.weights)
        return Settings(Setting(x, y, data.weights), part, rest)


@dataclass(frozen=True)
class Point:
    """One point of a sweep."""

    epsilon: float
    delta: float
    records: int  # at each site


# (setting, seed) to coefficients.
Fit = Callable[[Setting, int], Floats]


def _fits(point: Point, method: str, calibration: methods.Calibration) -> list[Fit]:
    """Functions that run a method on a setting with a seed. The best of them is used."""
    if method == OURS:
        return [lambda setting, seed: fitting.ours(setting.rows, point.epsilon, point.delta, COLLUDERS, seed)]
    index = methods.METHODS.index(method)

    def fit(setting: Setting, seed: int, descent: Descent) -> Floats:
        rng = np.random.default_rng([seed, index])  # same draws for both calibrations
        coefficients = methods.fit(
            method,
            setting.sites,
            point.epsilon,
            point.delta,
            rng,
            calibration=calibration,
            colluders=COLLUDERS,
            **descent._asdict(),
        )
        return coefficients / setting.radius

    tried = DESCENTS if method == DESCENT else DESCENTS[:1]
    return [partial(fit, descent=each) for each in tried]


def _method_list() -> list[tuple[str, methods.Calibration]]:
    """Methods and calibrations."""
    private: list[tuple[str, methods.Calibration]] = [(OURS, "exact")] if fitting.available() else []
    private += [(method, "exact") for method in methods.METHODS]
    private += [(method, "published") for method in methods.METHODS if method not in EXACT_ONLY]
    return private


def _measure(
    data: Regression, settings: Settings, point: Point, seeds: Sequence[int], step: Callable[[], None]
) -> Table:
    """Every method at one point."""

    def row(method: str, calibration: str, exact: float, seed: int, whole: Floats, part: Floats) -> Row:
        return {
            "data": data.name,
            "method": method,
            "calibration": calibration,
            "epsilon": point.epsilon,
            "exact_epsilon": exact,
            "delta": point.delta,
            "records": settings.whole.records,
            "seed": seed,
            "loss": settings.whole.loss(whole),
            "error": settings.whole.error(whole),
            "held_out": _loss(settings.rest, part),
        }

    rows = [row("non-private", "none", float("inf"), 0, settings.whole.best, settings.part.best)]
    for method, calibration in _method_list():
        exact = point.epsilon
        if calibration == "published":
            exact = methods.exact_epsilon(
                method,
                "linear",
                point.epsilon,
                point.delta,
                sites=SITES,
                colluders=COLLUDERS,
                columns=settings.whole.sites.everyone.x.shape[1],
            )
        fits = _fits(point, method, calibration)
        # The best setting by the loss of the first seed, which is not private; only gradient descent has several.
        best = fits[0]
        if len(fits) > 1:
            best = min(fits, key=lambda fit: settings.whole.loss(fit(settings.whole, seeds[0])))
        rows += [
            row(method, calibration, exact, seed, best(settings.whole, seed), best(settings.part, seed))
            for seed in seeds
        ]
        step()
    return rows


def _sweep(data: Regression, points: Sequence[Point], seeds: Sequence[int], on_step: OnStep) -> Table:
    """Every method at every point. Settings are rebuilt when the number of records changes."""
    planned, done = len(points) * len(_method_list()), 0

    def step() -> None:
        nonlocal done
        done += 1
        on_step(done, planned)

    rows: Table = []
    on_step(0, planned)
    made: dict[int, Settings] = {}
    for point in points:
        if point.records not in made:
            made = {point.records: Settings.of(data, point.records)}
        rows += _measure(data, made[point.records], point, seeds, step)
    return rows


# ---- the experiments ------------------------------------------------------------------------------------------------


def _points(along: Along, most: int, full: bool) -> list[Point]:
    """Points along one axis; `most` is the largest number of records per site."""
    match along:
        case "epsilon":
            swept = (0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0) if full else (0.1, 0.5, 1.0, 3.0)
            return [Point(epsilon, DELTA, most) for epsilon in swept]
        case "records":
            parts = (16, 8, 4, 2, 1) if full else (16, 4, 1)
            return [Point(EPSILON, DELTA, most // part) for part in parts]
        case _:
            deltas = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if full else (1e-7, 1e-5, 1e-3)
            return [Point(EPSILON, delta, most) for delta in deltas]


def _prepare(run: Run, along: Sequence[Along]) -> tuple[Regression, int, range]:
    """Data, largest number of records per site, and seeds."""
    runs = run_count(run.seeds, FULL_SEEDS if run.full else QUICK_SEEDS)
    loaded = load(run.data, run.folder, SYNTHETIC_ROWS["records" in along])
    rows = len(loaded.x) if run.full else min(len(loaded.x), QUICK_ROWS)
    return loaded, rows // SITES, range(runs)


def carry(along: Along, run: Run) -> Table:
    """Loss against epsilon, records or delta (figures 3 and 4)."""
    loaded, most, chosen = _prepare(run, (along,))
    return _sweep(loaded, _points(along, most, run.full), chosen, run.on_step)


def carry_error(run: Run) -> Table:
    """Error of the coefficients against all three (figure 7)."""
    loaded, most, chosen = _prepare(run, ("epsilon",))
    points: list[Point] = []
    for along in _ALONG:
        points += [point for point in _points(along, most, run.full) if point not in points]
    return _sweep(loaded, points, chosen, run.on_step)


# ---- summary and pictures -------------------------------------------------------------------------------------------

# Axis to its label.
_ALONG: dict[Along, str] = {"epsilon": "exact ε", "records": "records at each site", "delta": "δ"}
# Columns that identify a setting.
_SETTING = ("data", "method", "calibration", "epsilon", "exact_epsilon", "delta", "records")


def summary(rows: Table, measured: Literal["loss", "error"] = "loss") -> Table:
    """Medians over seeds with the quartiles of `measured`, one row per setting."""
    groups: dict[tuple[str | int | float, ...], Table] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _SETTING), []).append(row)
    lines: Table = []
    for key, alike in groups.items():
        values = {name: [float(row[name]) for row in alike] for name in ("loss", "error", "held_out")}
        low, high = np.quantile(values[measured], (0.25, 0.75))
        line: Row = dict(zip(_SETTING, key, strict=True))
        line |= {name: float(np.median(numbers)) for name, numbers in values.items()}
        lines.append(line | {"low": float(low), "high": float(high), "runs": len(alike)})
    return lines


# Method to label and colour.
_LOOKS: dict[str, tuple[str, str]] = {
    OURS: ("Zerosum", "#0b7a75"),
    "cape-fm": ("capeFM", "#d9843b"),
    "cape-fm-ridge": ("capeFM with a ridge (ours)", "#b5532a"),
    "pooled-fm": ("improved functional mechanism (pooled)", "#e0b13f"),
    "conv": ("conv", "#8057b8"),
    "single-site": ("one site alone", "#b83b6f"),
    "dp-fm": ("dp-fm (pooled)", "#3b6fd9"),
    "objective-perturbation": ("objective perturbation (pooled)", "#5aa9e6"),
    "adassp": ("AdaSSP (pooled)", "#6b7783"),
    DESCENT: ("gradient descent (pooled, best of 21)", "#2f3a45"),
}


def _panel(axes: Any, lines: Table, along: Along, calibration: str, measured: Literal["loss", "error"]) -> None:
    """Plot all methods on one panel."""
    for method, (label, colour) in _LOOKS.items():
        chosen = "exact" if method in (OURS, *EXACT_ONLY) else calibration
        shown = [line for line in lines if (line["method"], line["calibration"]) == (method, chosen)]
        at = "exact_epsilon" if along == "epsilon" else along
        shown = sorted((line for line in shown if np.isfinite(float(line[at]))), key=lambda line: float(line[at]))
        if not shown:
            continue
        worth = [float(line["exact_epsilon"]) for line in shown]
        if chosen == "published" and along != "epsilon":
            ends = sorted({f"{min(worth):.2g}", f"{max(worth):.2g}"}, key=float)
            label = f"{label}: ε = {' to '.join(ends)}"
        middle, low, high = (np.array([float(line[name]) for line in shown]) for name in (measured, "low", "high"))
        axes.errorbar(
            [float(line[at]) for line in shown],
            middle,
            [middle - low, high - middle],
            label=label,
            color=colour,
            marker="o",
            markersize=4,
            capsize=3,
            lw=2.5 if method == OURS else 1.3,
            zorder=3 if method == OURS else 2,
        )
    bare = sorted((float(line["records"]), float(line[measured])) for line in lines if line["method"] == "non-private")
    if along == "records":
        axes.plot(*zip(*bare, strict=True), color="black", lw=1, ls="--", label="non-private")
    elif bare:
        axes.axhline(bare[0][1], color="black", lw=1, ls="--", label="non-private")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(_ALONG[along])
    axes.grid(color="#e5e8eb")


_TITLES = {"exact": "every method at the same ε", "published": "the papers' calibration, at its true ε"}


def _finish(figure: Any, rows: Table, what: str, path: Path) -> None:
    """Title, file, close."""

    title = f"Private linear regression, {rows[0]['data']}: {what}; {SITES} sites, {COLLUDERS} colluding"
    if not any(row["method"] == OURS for row in rows):
        title += f"\n(this version of Zerosum has no {fitting.ALGORITHM}: its curve is left out)"
    figure.suptitle(title, fontsize=13)
    figure.savefig(path, dpi=120)


def draw(rows: Table, path: Path, along: Along = "epsilon") -> None:
    """Two panels: all methods at the same epsilon, and the published calibration at its exact epsilon."""
    lines = summary(rows)
    figure, panels = subplots(1, 2, figsize=(13.5, 8.0), sharey=True)
    for axes, calibration in zip(panels, _TITLES, strict=True):
        _panel(axes, lines, along, calibration, "loss")
        axes.set_title(_TITLES[calibration], loc="left", fontsize=11)
        axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)  # outside of the curves
    panels[0].set_ylabel("loss, median and quartiles")
    _finish(figure, rows, "training loss", path)


def draw_error(rows: Table, path: Path) -> None:
    """One column each for epsilon, records and delta, one row per calibration."""
    lines = summary(rows, "error")
    most = max(int(line["records"]) for line in lines)
    fixed: dict[Along, float] = {"epsilon": EPSILON, "delta": DELTA, "records": most}
    figure, panels = subplots(2, 3, figsize=(14.5, 9.5), sharey=True)
    for line, calibration in zip(panels, _TITLES, strict=True):
        for axes, along in zip(line, _ALONG, strict=True):
            others = [name for name in fixed if name != along]
            _panel(axes, [row for row in lines if all(row[name] == fixed[name] for name in others)], along, calibration,
                   "error")  # fmt: skip
        line[0].set_title(_TITLES[calibration], loc="left", fontsize=11)
        line[0].set_ylabel("error of the coefficients, median and quartiles")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, loc="outside lower center", ncols=4)
    _finish(figure, rows, "error of the coefficients", path)


_SHOWN = {
    "method": "method",
    "noise": "calibration",
    "asked eps": "epsilon",
    "exact eps": "exact_epsilon",
    "delta": "delta",
    "n": "records",
}
_QUARTILES = {"25 %": "low", "75 %": "high", "runs": "runs"}
_SWEPT: dict[str, Along] = {"fm-epsilon": "epsilon", "fm-samples": "records", "fm-delta": "delta"}


EXPERIMENTS = (
    *(
        Experiment(
            name=name,
            carry=partial(carry, along),
            draw=partial(draw, along=along),
            summary=summary,
            shown=_SHOWN | {"loss (quartiles)": "loss"} | _QUARTILES | {"held out": "held_out"},
            data=DATA,
        )
        for name, along in _SWEPT.items()
    ),
    Experiment(
        name="fm-error",
        carry=carry_error,
        draw=draw_error,
        summary=partial(summary, measured="error"),
        shown=_SHOWN | {"error (quartiles)": "error"} | _QUARTILES,
        data=DATA[:2],
    ),
)
