"""Figure 2 of the capePCA paper: captured energy of private principal components against epsilon, records and delta.

Five sites, one of them colluding. Every method of the papers runs twice: at the same exact epsilon as Zerosum, and at
the published calibration, with the exact epsilon beside it. The papers' methods receive data as the papers prepare them
(centred at the mean, divided by the largest norm: not private). Zerosum receives records in public ranges and pays for
its mean.

The metric is tr(V' A V) over its non-private value, with A the second moment of all records about their mean. The
capePCA paper does not give N_s, the fixed epsilon or the synthetic covariance; those here are our choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.algorithms.pca.program import PCAProgram
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.papers.figures.experiment import (
    SHOWN_SETTING,
    SHOWN_SPREAD,
    Carry,
    Experiment,
    OnStep,
    Run,
    Table,
    averages,
    curve,
    run_count,
)
from zerosum.papers.figures.panels import subplots
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import pca as baselines
from zerosum.papers.programs import CapePCAProgram
from zerosum.papers.rehearsal import PublicData, published_tau

SITES, COLLUDERS = 5, 1
EPSILON, DELTA = 0.5, 1e-5  # values where they are not varied
OURS = "zerosum"
COLUMNS = ("data", "method", "calibration", "epsilon", "exact_epsilon", "delta", "records", "seed", "energy")

# Ranges of Covertype's ten measured columns, from the description of the data set; the other 44 are 0 or 1.
_COVERTYPE = (
    (1859, 3858),  # elevation, m
    (0, 360),  # aspect, degrees
    (0, 66),  # slope, degrees
    (0, 1397),  # horizontal distance to water, m
    (-173, 601),  # vertical distance to water, m
    (0, 7117),  # distance to a road, m
    (0, 254),  # hillshade at 9, at noon and at 15 hours
    (0, 254),
    (0, 254),
    (0, 7173),  # distance to a fire point, m
)
# Data set to file name.
_FILES = {"mnist": "mnist.npz", "covertype": "covtype_60k.npz"}
# Data set to number of components.
_COMPONENTS = {"synthetic": 50, "mnist": 50, "covertype": 10}
# Records and seeds of quick and full runs; chosen by hand.
_QUICK_ROWS = {"synthetic": 10_000, "mnist": 10_000, "covertype": 60_000}
_QUICK_SEEDS = {"synthetic": 3, "mnist": 2, "covertype": 3}
_FULL_ROWS, _FULL_SEEDS = 60_000, 10


# ---- the data -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Records:
    """Records in public ranges [0, 1], in random order, and the number of components."""

    name: str
    rows: Floats
    components: int

    def sites(self, records: int) -> list[Floats]:
        """The first `records` of each site."""
        return [self.rows[s::SITES][:records] for s in range(SITES)]


def load(data: str, folder: Path | None = None, rows: int | None = None) -> Records:
    """One of the three data sets. The two real ones are read from `folder`."""
    if data not in _COMPONENTS:
        raise BadParameter(f"unknown data {data!r}; there are {', '.join(_COMPONENTS)}")
    records = synthetic(rows or _FULL_ROWS) if data == "synthetic" else _real(data, folder)
    order = np.random.default_rng(0).permutation(len(records))[:rows]
    return Records(data, records[order], _COMPONENTS[data])


def synthetic(rows: int, columns: int = 200, seed: int = 0) -> Floats:
    """Normal records with mean zero and a fixed covariance with eigenvalues exp(-j/20) + 0.01.

    They are mapped to [0, 1] by one public factor and shift, with four of the largest standard deviations on either
    side.
    """
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    values = np.exp(-np.arange(columns) / 20) + 0.01
    # Variance of a column: the diagonal of basis diag(values) basis'.
    spread = float(np.sqrt(np.max((basis**2) @ values)))
    drawn = (rng.standard_normal((rows, columns)) * np.sqrt(values)) @ basis.T
    return np.asarray(np.clip(0.5 + drawn / (8 * spread), 0.0, 1.0))


def _real(data: str, folder: Path | None) -> Floats:
    """Read MNIST or Covertype and scale it to [0, 1]."""
    if folder is None:
        raise BadData(f"the data set {data} is read from a folder: name one that holds {_FILES[data]} with --folder")
    path, key = folder / _FILES[data], {"mnist": "x_train", "covertype": "X"}[data]
    if not path.exists():
        raise BadData(f"the data set {data} is not here: there is no file {path}")
    try:
        with np.load(path) as stored:
            raw = np.asarray(stored[key], dtype=np.float64)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadData(f"the file {path} is not the data set {data}: an array named {key!r} cannot be read") from error
    raw = raw.reshape(len(raw), -1)
    wide = {"mnist": 784, "covertype": 54}[data]
    if raw.shape[1] != wide:
        raise BadData(f"the file {path} is not the data set {data}: {wide} columns are needed, it has {raw.shape[1]}")
    if data == "mnist":
        return np.asarray(raw / 255)
    ranges = np.array([*_COVERTYPE, *[(0, 1)] * (wide - len(_COVERTYPE))], dtype=np.float64)
    return np.clip((raw - ranges[:, 0]) / (ranges[:, 1] - ranges[:, 0]), 0.0, 1.0)


# ---- one run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    """One point of a sweep."""

    epsilon: float
    delta: float
    records: int  # at each site


class _Setting:
    """Data of one point as each method receives them, and the reference for the metric."""

    def __init__(self, data: Records, records: int) -> None:
        self.sites, self.components = data.sites(records), data.components
        self.records = len(self.sites[-1])
        # The papers' methods need sites of equal size; the last site is the smallest.
        self.sites = [rows[: self.records] for rows in self.sites]
        everyone = np.concatenate(self.sites)
        mean = everyone.mean(axis=0)
        largest = float(np.sqrt(np.max(np.sum((everyone - mean) ** 2, axis=1))))
        # the papers' preparation, which is not private
        self.prepared = [(rows - mean) / largest for rows in self.sites]
        self.data, self.first = PublicData(self.prepared), PublicData(self.prepared[:1])
        D = everyone.shape[1]
        self.program = CapePCAProgram(columns=tuple(f"x{i}" for i in range(D)), n_components=self.components, clip=1.0)
        self.matrix = np.mean([baselines.second_moment(rows) for rows in self.prepared], axis=0)
        self.best = float(np.sum(np.linalg.eigvalsh(self.matrix)[-self.components :]))

    def energy(self, vectors: Floats) -> float:
        """Captured energy as a fraction of the best."""
        # tr(V' A V) without the product of two wide matrices.
        return float(np.sum(vectors * (self.matrix @ vectors)) / self.best)

    def non_private(self) -> Floats:
        """Components of all records together, without noise; one per column."""
        return np.asarray(self.data.rehearse(self.program)["components"]).T

    def published(self, method: str, tau: float, rng: np.random.Generator) -> Floats:
        """Components by a published method with noise `tau` of the sum; one per column."""
        if method == "dp-dis-pca":
            return baselines.dp_dis_pca(self.prepared, self.components, tau, rng)
        data = self.first if method in baselines.ONE_SITE_METHODS else self.data
        scatter = data.rehearse(self.program, baselines.SCHEMES[method], tau, rng)
        return np.asarray(scatter["components"]).T


def ours(sites: Sequence[Floats], K: int, epsilon: float, delta: float, seed: int) -> Floats:
    """Components by Zerosum, one per column: default settings, each record a unit, seeded noise."""
    D = sites[0].shape[1]
    algorithm = PCAProgram(
        columns=tuple(f"x{i}" for i in range(D)), n_components=K, lower=np.zeros(D), upper=np.ones(D)
    )
    named = {f"site {s}": rows for s, rows in enumerate(sites, 1)}
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=COLLUDERS, unit="record", seed=seed)
    return np.asarray(result.estimate["components"]).T


def _measure(data: str, setting: _Setting, point: _Point, seeds: Sequence[int], step: Callable[[], None]) -> Table:
    """Every method at one point."""
    rows: Table = []
    K, epsilon, delta = setting.components, point.epsilon, point.delta

    def add(method: str, calibration: str, exact: float, seed: int, vectors: Floats) -> None:
        values = (data, method, calibration, epsilon, exact, delta, setting.records, seed, setting.energy(vectors))
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        step()

    add("non-private", "none", float("inf"), 0, setting.non_private())
    for seed in seeds:
        add(OURS, "exact", epsilon, seed, ours(setting.sites, K, epsilon, delta, seed))
    published = published_tau(epsilon, delta)
    for index, method in enumerate(baselines.SCHEMES):
        exact = baselines.tau_for_exact(method, epsilon, delta, SITES, COLLUDERS)
        true = baselines.exact_epsilon(method, epsilon, delta, SITES, COLLUDERS)
        for seed in seeds:
            for which, tau, worth in (("exact", exact, epsilon), ("published", published, true)):
                # same draws for both calibrations, which differ in scale only
                rng = np.random.default_rng([seed, index])
                add(method, which, worth, seed, setting.published(method, tau, rng))
    return rows


def _sweep(data: Records, points: Sequence[_Point], seeds: Sequence[int], on_step: OnStep) -> Table:
    """Every method at every point."""
    planned = len(points) * (1 + len(seeds) * (1 + 2 * len(baselines.SCHEMES)))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        on_step(done, planned)

    rows: Table = []
    on_step(0, planned)
    setting: _Setting | None = None
    for point in points:
        if setting is None or setting.records != point.records:
            setting = _Setting(data, point.records)
        rows += _measure(data.name, setting, point, seeds, step)
    return rows


# ---- the three experiments ------------------------------------------------------------------------------------------


def _prepare(run: Run) -> tuple[Records, range]:
    """Load the data and choose the seeds."""
    runs = run_count(run.seeds, _FULL_SEEDS if run.full else _QUICK_SEEDS.get(run.data, 1))
    rows = _FULL_ROWS if run.full else _QUICK_ROWS.get(run.data, _FULL_ROWS)
    return load(run.data, run.folder, rows), range(runs)


def pca_epsilon(run: Run) -> Table:
    """Captured energy against epsilon (figures 2a to 2c)."""
    loaded, chosen = _prepare(run)
    records = len(loaded.rows) // SITES
    swept = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0) if run.full else (0.1, 0.3, 1.0)
    return _sweep(loaded, [_Point(epsilon, DELTA, records) for epsilon in swept], chosen, run.on_step)


def pca_samples(run: Run) -> Table:
    """Captured energy against the records of a site (figures 2d to 2f)."""
    loaded, chosen = _prepare(run)
    most = len(loaded.rows) // SITES
    swept = [most // part for part in ((24, 12, 6, 3, 2, 1) if run.full else (16, 4, 1))]
    return _sweep(loaded, [_Point(EPSILON, DELTA, records) for records in swept], chosen, run.on_step)


def pca_delta(run: Run) -> Table:
    """Captured energy against delta (figures 2g to 2i)."""
    loaded, chosen = _prepare(run)
    records = len(loaded.rows) // SITES
    swept = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if run.full else (1e-7, 1e-5, 1e-3)
    return _sweep(loaded, [_Point(EPSILON, delta, records) for delta in swept], chosen, run.on_step)


# ---- summary and pictures -------------------------------------------------------------------------------------------


def summary(rows: Table) -> Table:
    """Mean and standard deviation of the energy over seeds, one row per setting."""
    return averages(rows, ["energy"])


# Method to label and colour.
_LOOKS: dict[str, tuple[str, str]] = {
    OURS: ("Zerosum", "#0b7a75"),
    "pooled": ("trusted coordinator (pooled)", "#9aa5b1"),
    "cape-broadcast": ("capePCA, as in capeDJICA", "#d9843b"),
    "cape-helper": ("capePCA, noise dealer", "#b5532a"),
    "conv": ("conv", "#8057b8"),
    "dp-dis-pca": ("DPdisPCA", "#3b6fd9"),
    "analyze-gauss": ("one site alone", "#b83b6f"),
}


def draw(rows: Table, path: Path, x: Literal["epsilon", "records", "delta"] = "epsilon") -> None:
    """Two panels: all methods at the same exact epsilon, and the published calibration at its exact epsilon."""
    lines = summary(rows)
    figure, panels = subplots(1, 2, figsize=(12.5, 6.4), sharey=True)
    for axes, calibration in zip(panels, ("exact", "published"), strict=True):
        for method, (label, colour) in _LOOKS.items():
            chosen = "exact" if method == OURS else calibration
            shown = [line for line in lines if (line["method"], line["calibration"]) == (method, chosen)]
            if not shown:
                continue
            along = "exact_epsilon" if x == "epsilon" else x
            shown.sort(key=lambda line: float(line[along]))
            worth = [float(line["exact_epsilon"]) for line in shown]
            if chosen == "published" and x != "epsilon":
                ends = f"{min(worth):.2g}", f"{max(worth):.2g}"
                label = f"{label}: ε = {ends[0] if ends[0] == ends[1] else ' to '.join(ends)}"
            curve(axes, shown, along, "energy", label=label, colour=colour, bold=method == OURS)
        axes.axhline(1.0, color="black", lw=1, ls="--", label="non-private")
        axes.set_xscale("log")
        named = {"epsilon": "exact ε", "records": "records at each site", "delta": "δ"}[x]
        axes.set_xlabel(named)
        axes.grid(color="#e5e8eb")
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    panels[0].set_ylabel("captured energy, as a fraction of the non-private one")
    panels[0].set_title("every method at the same exact ε", loc="left", fontsize=11)
    panels[1].set_title("the papers' calibration, at its true ε", loc="left", fontsize=11)
    data = str(rows[0]["data"]) if rows else ""
    figure.suptitle(f"Private principal components, {data}: {SITES} sites, {COLLUDERS} colluding", fontsize=13)
    figure.savefig(path, dpi=120)


_SWEPT: dict[str, tuple[Carry, Literal["epsilon", "records", "delta"]]] = {
    "pca-epsilon": (pca_epsilon, "epsilon"),
    "pca-samples": (pca_samples, "records"),
    "pca-delta": (pca_delta, "delta"),
}
EXPERIMENTS = tuple(
    Experiment(
        name=name,
        carry=carry,
        draw=partial(draw, x=x),
        summary=summary,
        shown=SHOWN_SETTING | {"delta": "delta", "records": "records", "energy": "energy"} | SHOWN_SPREAD,
        data=tuple(_COMPONENTS),
    )
    for name, (carry, x) in _SWEPT.items()
)
