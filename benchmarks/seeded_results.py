"""Seeded runs of every algorithm and scheme on made-up data, each with a SHA-256 over the bits of its result.

    python benchmarks/seeded_results.py --out after.json
    python benchmarks/seeded_results.py --out after.json --compare before.json

With one seed two versions must give the same bits, or the changelog has the reason. The script uses only the interface
that 0.2 and later versions have, so that it also runs in a checkout of an older version (its path first in PYTHONPATH).
The number of BLAS threads can change sums, so set OMP_NUM_THREADS=1 for both runs.

The first nineteen runs (means under seven schemes, covariance, histogram, k-means, five PCAs, four ICAs) are of the
kinds that were hashed when 0.2 was re-arranged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import struct
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import zerosum
from zerosum import Policy, Units, algorithms
from zerosum.kernel.quantity import Quantity

Floats = NDArray[np.float64]
Sites = Mapping[str, Any]

SEED = 11
DELTA = 1e-5
NAMES = ("north", "east", "south", "west")
SIZES = (150, 250, 400, 700)
LOWER, UPPER = [18.0, 80.0, 12.0], [100.0, 220.0, 60.0]
COLUMNS = ["age", "systolic", "bmi"]


def result_of(name: str, parameters: Mapping[str, Any], sites: Sites, **terms: Any) -> dict[str, Any]:
    """Estimate of one algorithm with seeded noise.

    Parameters
    ----------
    name, parameters
        The algorithm and its public parameters, as in a study file.
    sites : dict
        Rows or units by site.
    **terms
        Further arguments of `zerosum.run`, and `statistics`, the registered statistics that the sites allow.
    """
    chosen: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA, "unit": "person", "random_state": SEED, **terms}
    statistics = chosen.pop("statistics", None)
    adjacency = chosen.get("adjacency", "replace-one")
    with TemporaryDirectory() as folder:
        policies = {
            site: Policy(
                population=site,
                data="synthetic",
                adjacency=adjacency,
                epsilon=100.0,
                publications=True,
                statistics=statistics,
                ledger=Path(folder) / f"{site}.sqlite",
            )
            for site in sites
        }
        return dict(zerosum.run(algorithms.build(name, parameters), sites, policies=policies, **chosen).estimate)


def seeded(name: str, parameters: Mapping[str, Any], sites: Sites, **terms: Any) -> partial[dict[str, Any]]:
    """A call of `result_of` for later, whose first argument is the name of the algorithm."""
    return partial(result_of, name, parameters, sites, **terms)


def split(rows: Floats) -> dict[str, Floats]:
    """Rows of sites of unequal size; the last site has the remaining rows."""
    return dict(zip(NAMES, np.split(rows, np.cumsum(SIZES)[:-1]), strict=True))


def patients(seed: int = 1) -> Floats:
    """Rows of shape (1500, 3) in the ranges of `COLUMNS`."""
    rows = np.random.default_rng(seed).normal([55.0, 130.0, 27.0], [15.0, 18.0, 5.0], (sum(SIZES), 3))
    return np.clip(rows, LOWER, UPPER)


def correlated(columns: int = 10, seed: int = 2) -> Floats:
    """Rows of shape (1500, columns) with a decreasing spectrum."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    rows: Floats = rng.normal(size=(sum(SIZES), columns)) * (3.0 * 0.6 ** np.arange(columns)) @ axes.T
    return rows


def recordings(people: int, rows: int, columns: int, seconds: float | None = None) -> dict[str, Units]:
    """People with time courses of four sources, autocorrelated where `seconds`, the time between rows, is given."""
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(4, columns))
    found = {}
    for name in NAMES:
        units = []
        for _ in range(people):
            sources = rng.laplace(size=(rows, 4))
            for at in range(1, rows if seconds else 1):
                sources[at] += np.array([0.9, 0.6, -0.5, 0.0]) * sources[at - 1]
            units.append(sources @ mixing + 0.3 * rng.normal(size=(rows, columns)))
        clock = [[seconds]] * people if seconds else None
        found[name] = Units.from_runs([[each] for each in units], clock) if clock else Units.from_list(units)
    return found


def labelled(people: int = 1500, seed: int = 4) -> dict[str, Floats]:
    """Eight numbers in three classes, and the class."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, people)
    waves = np.stack([np.sin(np.arange(8) * (each + 1) / 2) for each in range(3)])
    return split(np.column_stack([waves[classes] + rng.normal(size=(people, 8)), classes]))


def word_counts(seed: int = 5) -> dict[str, Floats]:
    """Counts of 16 words in documents about three topics."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(16, 0.2), 3)
    shares = rng.dirichlet(np.full(3, 0.3), sum(SIZES)) @ truth
    return split(np.stack([rng.multinomial(40, each) for each in shares]).astype(float))


def clusters(seed: int = 6) -> dict[str, Floats]:
    """Three clusters of three columns."""
    rng = np.random.default_rng(seed)
    centres = np.array([[24.0, 95.0, 60.0], [38.0, 120.0, 90.0], [33.0, 260.0, 75.0]])
    rows = centres[rng.choice(3, sum(SIZES), p=[0.5, 0.3, 0.2])] + rng.normal(size=(sum(SIZES), 3)) * (3.0, 22.0, 5.0)
    return split(np.clip(rows, [12.0, 40.0, 40.0], [60.0, 400.0, 120.0]))


def responses(kind: str, seed: int = 7) -> dict[str, Floats]:
    """Two features and a response: `linear`, `logistic` or `poisson`."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (sum(SIZES), 2))
    eta = 0.3 + x @ [0.8, -0.5]
    y = {
        "linear": np.clip(eta + rng.normal(0, 0.3, len(x)), -3, 3),
        "logistic": (rng.random(len(x)) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": np.minimum(rng.poisson(np.exp(eta)), 20).astype(float),
    }[kind]
    return split(np.column_stack([x, y]))


def survival_times(seed: int = 8) -> dict[str, Floats]:
    """Months, whether the event happened, and a group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, sum(SIZES))
    event, leaves = rng.exponential(40 + 30 * group), rng.uniform(10, 80, len(group))
    return split(np.column_stack([np.minimum(event, leaves), event <= leaves, group]).astype(float))


def with_gaps(seed: int = 9) -> dict[str, Floats]:
    """Rows of `patients` with missing values."""
    rows = patients()
    rows[np.random.default_rng(seed).random(rows.shape) < 0.1] = np.nan
    return split(rows)


@zerosum.statistic("seeded_results_pressure", length=2)
def pressure(rows: Floats) -> tuple[float, float]:
    """Mean age, and mean systolic pressure less the age, of one person."""
    means = rows.mean(axis=0)
    return float(means[0]), float(means[1] - means[0])


def through_study_file() -> dict[str, Any]:
    """A study file with tables and a token for missing values."""
    with TemporaryDirectory() as folder:
        text = 'name = "seeded"\nalgorithm = "covariance"\nmissing_tokens = ["NA"]\n'
        text += '[unit]\nkind = "person"\ncolumn = "id"\n[parameters]\ncolumns = ["age", "bmi"]\n'
        text += "lower = [18, 12]\nupper = [100, 60]\nmissing = { age = 50, bmi = 30 }\n"
        text += f"[privacy]\nepsilon = 4.0\ndelta = {DELTA}\nrandom_state = {SEED}\n"
        for name, rows in split(patients()).items():
            lines = [
                f"{at // 2},{'NA' if at % 9 == 0 else row[0]},{'' if at % 13 == 0 else row[2]}"
                for at, row in enumerate(rows)
            ]
            Path(folder, f"{name}.csv").write_text("\n".join(["id,age,bmi", *lines]) + "\n", encoding="utf-8")
            text += f'[[sites]]\nname = "{name}"\ndata = "{name}.csv"\n'
            text += f'[sites.policy]\npopulation = "{name}"\ndata = "synthetic"\nledger = "{name}.sqlite"\n'
        path = Path(folder, "study.toml")
        path.write_text(text, encoding="utf-8")
        return dict(zerosum.Study.load(path).run().estimate)


def estimator(
    name: str, attributes: tuple[str, ...], rows: Floats, y: Floats | None = None, **settings: Any
) -> Callable[[], dict[str, Any]]:
    """A fit of an estimator, and some of its attributes."""

    def make() -> dict[str, Any]:
        chosen = {"epsilon": 4.0, "delta": DELTA, "random_state": SEED, "data": "synthetic", **settings}
        fitted = getattr(zerosum, name)(**chosen).fit(rows, y, sites=np.repeat(NAMES, SIZES))
        return {attribute: getattr(fitted, attribute) for attribute in attributes}

    return make


def regression(
    name: str, kind: str, response: tuple[float, float] | float | None = None
) -> Callable[[], dict[str, Any]]:
    """A fit of a regression estimator; `response` is the public range, or highest count, of the response."""
    rows = np.vstack(list(responses(kind).values()))
    limits: dict[str, Any] = {} if response is None else {"response": response}
    attributes = ("coef_", "intercept_")
    return estimator(name, attributes, rows[:, :2], rows[:, 2], lower=[-1.0, -1.0], upper=[1.0, 1.0], **limits)


def lifetimes() -> dict[str, Any]:
    """Times to an event that depend on two columns, with censoring, of all sites."""
    rng = np.random.default_rng(11)
    columns = rng.normal(size=(sum(SIZES), 2))
    death = rng.exponential(4.0 * np.exp(-0.7 * columns[:, 0]))
    end = rng.uniform(2, 10, len(columns))
    return split(np.column_stack([columns, np.minimum(death, end), death <= end]).astype(np.float64))


def runs() -> dict[str, Callable[[], dict[str, Any]]]:
    """Every run by name, the nineteen first."""
    table, wide, groups = split(patients()), split(correlated()), clusters()
    ranged = {"columns": COLUMNS, "lower": LOWER, "upper": UPPER}
    ten = {"columns": [f"c{at}" for at in range(10)], "clip": 10.0}
    three = {"columns": ["bmi", "glucose", "pulse"], "lower": [12.0, 40.0, 40.0], "upper": [60.0, 400.0, 120.0]}
    voices = {"columns": [f"v{at}" for at in range(6)]}
    model = {"columns": ["a", "b", "y"]}
    linear = {**model, "lower": [-1.0, -1.0, -3.0], "upper": [1.0, 1.0, 3.0]}
    binary = {**model, "lower": [-1.0, -1.0, 0.0], "upper": [1.0, 1.0, 1.0]}
    counts = {**model, "lower": [-1.0, -1.0, 0.0], "upper": [1.0, 1.0, 20.0]}
    signal = {"columns": [*(f"lead{at}" for at in range(8)), "rhythm"], "classes": [0, 1, 2]}
    waves = {"kind": "random", "lower": [-3.0] * 8, "upper": [3.0] * 8, "waves": 30}
    box = {"lower": [-3.0] * 8 + [0.0], "upper": [3.0] * 8 + [2.0]}
    words = {"columns": [f"w{at}" for at in range(16)], "n_components": 3, "n_words": 16}
    described = {"columns": [*COLUMNS, "sex"], "levels": {"sex": [0.0, 1.0]}, "by": "sex"}
    ranges = {name: (low, high) for name, low, high in zip(COLUMNS, LOWER, UPPER, strict=True)}
    sex = np.random.default_rng(10).integers(0, 2, sum(SIZES)).astype(float)
    by_sex = split(np.column_stack([patients(), sex]))
    by_levels = {"levels": {"sex": [0.0, 1.0]}, "by": "sex"}
    one_by_sex = {name: rows[:, [0, -1]] for name, rows in by_sex.items()}
    hazards = {"columns": ["a", "b", "time", "event"], "lower": [-3, -3, 0, 0], "upper": [3, 3, 10, 1]}
    square = {"table": [[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]]}
    people = recordings(60, 30, 6)
    classes = {**binary, "upper": [1.0, 1.0, 2.0], "classes": ["none", "mild", "severe"]}
    three_classes = {
        name: np.column_stack([rows[:, :2], np.digitize(rows[:, 2], [-0.3, 0.3])])
        for name, rows in responses("linear").items()
    }
    schemes = ("secure-sum", "zero-sum", "pairwise", "cape-published", "cape-helper", "pooled", "local")
    found = {f"mean, {scheme}": seeded("mean", ranged, table, scheme=scheme) for scheme in schemes}
    return found | {
        "covariance": seeded("covariance", ranged, table),
        "histogram, edges": seeded("histogram", {"columns": ["age"], "edges": list(range(20, 101, 10))}, column(table)),
        "k-means": seeded("k-means", {**three, "n_clusters": 3}, groups),
        "pca": seeded("pca", {**ten, "n_components": 3}, wide),
        "pca, ranges": seeded("pca", {**ranged, "n_components": 2, "centering": "ranges"}, table),
        "pca, subspace": seeded("pca", {**ten, "n_components": 3, "solver": "subspace", "centering": "none"}, wide),
        "pca, recordings": seeded(
            "pca", {**voices, "clip": 30.0, "n_components": 3, "per_recording": "center"}, people
        ),
        "pca, large noise": seeded("pca", {**ten, "n_components": 3, "small_looks": 4}, wide, epsilon=0.3),
        "ica": seeded("ica", {**voices, "n_components": 4}, people),
        "ica, fixed point": seeded("ica", {**voices, "n_components": 3, "solver": "fixed-point", "start": 1}, people),
        "ica, second order": seeded(
            "ica",
            {**voices, "n_components": 3, "solver": "second-order", "seconds": 2.0, "band": [0.01, 0.2]},
            recordings(60, 60, 6, seconds=2.0),
        ),
        "ica, basis": seeded(
            "ica",
            {**voices, "n_components": 3, "basis": np.eye(6)[:, :4].tolist(), "per_recording": "standardise"},
            people,
        ),
        # From here on: what the nineteen do not cover, and the newer algorithms.
        "pca, rounded": seeded("pca", {**ten, "n_components": 3, "rounded": True}, wide, epsilon=0.5),
        "pca, columns in memory order": seeded(
            "pca", {**ten, "n_components": 3}, {name: np.asfortranarray(rows) for name, rows in wide.items()}
        ),
        "mean, non-private": seeded("mean", ranged, table, scheme="non-private"),
        "mean, pooled, published": seeded("mean", ranged, table, scheme="pooled", calibration="published", epsilon=0.5),
        "mean, cape-published, published": seeded(
            "mean", ranged, table, scheme="cape-published", calibration="published", epsilon=0.5
        ),
        "mean, add-remove": seeded("mean", ranged, table, adjacency="add-remove"),
        "mean, attempts and dropouts": seeded("mean", ranged, table, attempts=1, dropouts=1, epsilon=2.0),
        "mean, missing value": seeded(
            "mean", {**ranged, "missing": {"age": 50.0, "systolic": 120.0, "bmi": 25.0}}, with_gaps()
        ),
        "mean, observed": seeded("mean", {**ranged, "missing": "observed"}, with_gaps()),
        "covariance, pooled": seeded("covariance", {**ranged, "mean_weight": 0.8}, table, scheme="pooled"),
        "covariance, study file": through_study_file,
        "histogram, values": seeded("histogram", {"columns": ["sex"], "values": [0.0, 1.0]}, column(by_sex, 3)),
        "k-means, local": seeded("k-means", {**three, "n_clusters": 3, "rounds": 3}, groups, scheme="local"),
        "correlation": seeded("correlation", ranged, table),
        "correlation, spearman": seeded("correlation", {**ranged, "method": "spearman"}, table),
        "hypothesis test": seeded(
            "hypothesis-test",
            {"columns": ["age", "sex"], "test": "welch", "ranges": {"age": ranges["age"]}, **by_levels},
            one_by_sex,
        ),
        "hypothesis test, ranks": seeded(
            "hypothesis-test",
            {"columns": ["age", "sex"], "test": "mann-whitney", "ranges": {"age": ranges["age"]}, **by_levels},
            one_by_sex,
        ),
        "cox regression": seeded("cox-regression", hazards, lifetimes()),
        "cox regression, one baseline, large noise": seeded("cox-regression", hazards, lifetimes(), epsilon=0.5),
        "additive model of numbers": seeded("additive-model", {"columns": COLUMNS, "ranges": ranges}, table),
        "additive model of classes, add-remove": seeded(
            "additive-model",
            {"columns": ["age", "sex"], "ranges": {"age": ranges["age"]}, "levels": by_levels["levels"]},
            one_by_sex,
            adjacency="add-remove",
        ),
        "multinomial regression": seeded("multinomial-regression", classes, three_classes),
        "multinomial regression, pooled": seeded(
            "multinomial-regression", {**classes, "standardise": "dp", "rounds": 4}, three_classes, scheme="pooled"
        ),
        "guided ica": seeded("guided-ica", {**voices, "templates": np.eye(6)[:2]}, people, epsilon=8.0),
        "guided ica, add-remove": seeded(
            "guided-ica", {**voices, "templates": np.eye(6)[:2]}, people, epsilon=8.0, adjacency="add-remove"
        ),
        "connectivity": seeded("connectivity", {**voices, "clip": 4.0}, people),
        "connectivity, partial": seeded("connectivity", {**voices, "clip": 4.0, "partial": True}, people),
        "synthetic data": seeded("synthetic-data", {"columns": COLUMNS, "ranges": ranges, "bins": 8}, table),
        "synthetic data with a target, add-remove": seeded(
            "synthetic-data",
            {
                "columns": ["age", "sex"],
                "ranges": {"age": ranges["age"]},
                "levels": by_levels["levels"],
                "target": "sex",
            },
            one_by_sex,
            adjacency="add-remove",
        ),
        "describe": seeded("describe", {"columns": COLUMNS, "ranges": ranges}, table),
        "describe by group": seeded("describe", {**described, "ranges": ranges}, by_sex),
        "describe by group, add-remove": seeded(
            "describe", {**described, "ranges": ranges}, by_sex, adjacency="add-remove"
        ),
        "quantiles": seeded("quantiles", {"columns": COLUMNS, "ranges": ranges}, table),
        "quantiles by group": seeded("quantiles", {**described, "ranges": ranges, "probabilities": [0.1, 0.5]}, by_sex),
        "survival": seeded(
            "survival",
            {"columns": ["months", "died"], "edges": list(range(0, 61, 6))},
            {name: rows[:, :2] for name, rows in survival_times().items()},
        ),
        "survival by group": seeded(
            "survival",
            {"columns": ["months", "died", "arm"], "edges": list(range(0, 61, 6)), "groups": [0.0, 1.0]},
            survival_times(),
        ),
        "linear regression": seeded("linear-regression", {**linear, "evaluate_share": 0.1}, responses("linear")),
        "linear regression, gradient": seeded(
            "linear-regression", {**linear, "method": "gradient"}, responses("linear")
        ),
        "logistic regression": seeded("logistic-regression", {**binary, "evaluate_share": 0.1}, responses("logistic")),
        "logistic regression, polynomial": seeded(
            "logistic-regression", {**binary, "method": "polynomial"}, responses("logistic")
        ),
        "logistic regression, newton": seeded(
            "logistic-regression", {**binary, "method": "newton", "standardise": "dp"}, responses("logistic")
        ),
        "poisson regression": seeded("poisson-regression", counts, responses("poisson")),
        "poisson regression, pooled": seeded("poisson-regression", counts, responses("poisson"), scheme="pooled"),
        "polynomial loss": seeded("polynomial-loss", {**linear, **square}, responses("linear")),
        "polynomial loss, local": seeded(
            "polynomial-loss", {**linear, **square, "ridge": 0.1}, responses("linear"), scheme="local"
        ),
        "mixture, tensor": seeded(
            "mixture", {**three, "n_components": 3, "scaling": "ranges", "start": "tensor"}, groups
        ),
        "mixture, cells": seeded(
            "mixture", {**three, "n_components": 3, "scaling": "ranges", "start": "cells"}, groups
        ),
        "topics, tensor": seeded("topics", {**words, "path": "tensor"}, word_counts(), epsilon=8.0),
        "topics, pairs": seeded("topics", {**words, "path": "pairs"}, word_counts(), epsilon=8.0),
        "feature classifier": seeded("feature-classifier", {**signal, "features": waves, "directions": 12}, labelled()),
        "feature classifier, evaluated": seeded(
            "feature-classifier",
            {**signal, "features": waves, "directions": 12, "rounds": 10, "evaluate_share": 0.3},
            labelled(),
        ),
        "network": seeded("neural-classifier", {**signal, **box, "steps": 8, "hidden": 4}, labelled()),
        "network, sub-sampled": seeded(
            "neural-classifier",
            {**signal, **box, "steps": 8, "hidden": 4, "rate": 0.3, "evaluate_share": 0.3},
            labelled(),
        ),
        "data collaboration": seeded("data-collaboration", {**signal, "features": waves}, labelled(), epsilon=8.0),
        "data collaboration, random": seeded(
            "data-collaboration", {**signal, "features": waves, "reduction": "random"}, labelled(), epsilon=8.0
        ),
        "registered statistic": seeded(
            "statistic",
            {"columns": COLUMNS, "statistic": "seeded_results_pressure", "clip": 200.0},
            table,
            statistics=("seeded_results_pressure",),
        ),
        "registered statistic, local": seeded(
            "statistic",
            {"columns": COLUMNS, "statistic": "seeded_results_pressure", "clip": 200.0},
            table,
            scheme="local",
            statistics=("seeded_results_pressure",),
        ),
        "estimator PCA": estimator(
            "PCA", ("components_", "explained_variance_"), correlated(), n_components=3, clip=10.0
        ),
        "estimator KMeans": estimator(
            "KMeans", ("cluster_centers_", "counts_"), patients(), n_clusters=2, lower=LOWER, upper=UPPER
        ),
        "estimator StandardScaler": estimator(
            "StandardScaler", ("mean_", "scale_"), patients(), lower=LOWER, upper=UPPER
        ),
        "estimator GaussianMixture": estimator(
            "GaussianMixture", ("means_", "weights_"), patients(), n_components=2, lower=LOWER, upper=UPPER
        ),
        "estimator LinearRegression": regression("LinearRegression", "linear", (-3.0, 3.0)),
        "estimator LogisticRegression": regression("LogisticRegression", "logistic"),
        "estimator PoissonRegression": regression("PoissonRegression", "poisson", 20.0),
    }


def column(table: Mapping[str, Floats], at: int = 0) -> dict[str, Floats]:
    """One column of every site's rows."""
    return {name: rows[:, at : at + 1] for name, rows in table.items()}


def numbers(value: Any) -> Any:
    """A result as JSON: arrays as lists, numbers without rounding."""
    if isinstance(value, Mapping):
        return {str(key): numbers(each) for key, each in value.items()}
    if isinstance(value, Quantity):
        # Field by field: the text of an array has eight digits only, and later versions may have further fields.
        axes = [[axis.name, *axis.labels] for axis in value.axes]
        return {"value": numbers(value.value), "std": numbers(value.std), "kind": value.kind, "axes": axes}
    if isinstance(value, np.ndarray):
        return [numbers(each) for each in value.tolist()]
    if isinstance(value, list | tuple):
        return [numbers(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every number and text of a result, by its path."""
    if isinstance(value, dict):
        return {k: v for key in sorted(value) for k, v in leaves(value[key], f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for at, each in enumerate(value) for k, v in leaves(each, f"{path}[{at}]").items()}
    return {path: value}


def digest(result: Any) -> str:
    """SHA-256 over the paths and the bits of all numbers; -0.0 and 0.0 differ."""
    sha = hashlib.sha256()
    for path, value in leaves(result).items():
        bits = struct.pack("<d", value) if isinstance(value, float) else repr(value).encode()
        sha.update(path.encode() + b"\0" + bits + b"\0")
    return sha.hexdigest()


def difference(before: Any, after: Any) -> tuple[float, str]:
    """Largest relative difference of two results, and the path of the number that has it.

    Infinite if a path is in one result only, or if texts differ.
    """
    old, new = leaves(before), leaves(after)
    one_sided = sorted(set(old) ^ set(new))
    if one_sided:
        return math.inf, f"only in one version: {', '.join(one_sided[:3])}"
    worst, where = 0.0, ""
    for path, first in old.items():
        second = new[path]
        if isinstance(first, float | int) and isinstance(second, float | int):
            if first == second or (math.isnan(first) and math.isnan(second)):
                continue
            share = abs(first - second) / max(abs(first), abs(second))
        else:
            share = 0.0 if first == second else math.inf
        if share > worst or math.isnan(share):
            worst, where = share, path
    return worst, where


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Markdown table of all runs: equal or not, and the largest relative difference."""
    lines = ["| run | same bits | largest relative difference | where |", "|---|---|---|---|"]
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in before or name not in after:
            lines.append(f"| {name} | missing in one file | | |")
            continue
        old, new = before[name], after[name]
        if old["sha256"] == new["sha256"]:
            lines.append(f"| {name} | yes | 0 | |")
        else:
            worst, where = difference(old["result"], new["result"])
            lines.append(f"| {name} | no | {worst:.2g} | {where} |")
    return "\n".join(lines)


def measure(chosen: str = "") -> dict[str, Any]:
    """Hash and result of every run whose name contains `chosen`; errors are results, too."""
    found: dict[str, Any] = {}
    for name, make in runs().items():
        if chosen not in name:
            continue
        began = time.process_time()
        try:
            result = numbers(make())
        except (zerosum.ZerosumError, ValueError, TypeError) as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        found[name] = {"sha256": digest(result), "result": result}
        spent = time.process_time() - began
        print(f"{name:34} {found[name]['sha256'][:16]}  {spent:5.1f} s  {result.get('error', '')}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file for hashes and results")
    parser.add_argument("--compare", type=Path, help="file of an earlier call, of another version for instance")
    parser.add_argument("--only", default="", help="runs whose name contains this text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"zerosum {zerosum.__version__} in {Path(zerosum.__file__).parent}", file=sys.stderr)
    with TemporaryDirectory() as folder:
        os.environ["ZEROSUM_STATE"] = folder
        found = measure(options.only)
    if options.out:
        options.out.write_text(json.dumps(found), encoding="utf-8")
    if options.compare:
        before = json.loads(options.compare.read_text(encoding="utf-8"))
        print("\n" + compare({name: before[name] for name in before if options.only in name}, found))


if __name__ == "__main__":
    main()
