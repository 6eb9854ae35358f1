"""Ordinary questions: for every algorithm its public parameters over made-up data, and for every statistic a request.

An algorithm without an entry in `QUESTIONS`, or a statistic without a case in tests/helpers/statistic_cases.py or here,
fails `test_differential_every_algorithm_and_statistic_has_case` with a sentence that says what to add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from differential.neighbours import (
    CODES,
    COLUMNS,
    NUMBERS,
    VOCABULARY,
    AnyPair,
    Change,
    Rng,
    document_pair,
    image_pair,
    table_pair,
)
from helpers import brain_images
from helpers.statistic_cases import SMALL
from zerosum.compute.statistic import BoundedMap
from zerosum.data.design import Design
from zerosum.statistics import BUILTIN, find
from zerosum.statistics.user import statistic

OWN = "first_and_spread"  # a statistic that this site registered itself
DOCUMENT_STATISTICS = (
    *("word_presence", "word_pairs", "topic_sums", "pair_norms", "pair_moment", "triple_moment"),
    *("distinct_pair_moment", "distinct_triple_moment"),
)

# Statistics whose cases need a library that is not in every environment: without it a site refuses, before it looks.
_MODULE = {"module": "perceptron", "settings": {"features": 2, "classes": 2, "hidden": 8}, "shape": [2]}
BARE: dict[str, dict[str, Any]] = {
    "module_gradient": {"columns": 3, "clip": 0.05, "batch": 16, "weights": [0.0] * 42, **_MODULE},
    "module_predictions": {"columns": 3, "clip": 1.0, "batch": 16, "weights": [0.0] * 42, **_MODULE},
}


@dataclass(frozen=True)
class Ask:
    """What a study asks: an algorithm with its parameters, over which kind of data, and what is done to data first."""

    algorithm: str
    kind: Literal["table", "documents", "images"]
    columns: tuple[str, ...]
    parameters: Mapping[str, Any]
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    design: Design | None = None
    read: tuple[str, ...] = ()  # columns of the file, where they are not those of the question
    grid: Literal["mask", "atlas"] = "atlas"
    statistic: str | None = None  # asked by itself, outside the algorithm's own requests
    given: Mapping[str, Any] = field(default_factory=dict)  # the parameters of that statistic

    def pair(self, rng: Rng, change: Change) -> AnyPair:
        """Neighbouring data that this question can be asked of."""
        if self.kind == "documents":
            return document_pair(rng, len(self.columns), change)
        if self.kind == "images":
            return image_pair(rng, self.grid, change)
        read = self.read or self.columns
        return table_pair(rng, read, change, numeric=not any(COLUMNS[name].is_text for name in read))


# ---- algorithms ------------------------------------------------------------------------------------------------


def _numbers(rng: Rng, least: int = 1, most: int = 3) -> tuple[str, ...]:
    names = rng.permutation([name for name in NUMBERS if name != "time"])
    return tuple(str(name) for name in names[: int(rng.integers(least, most + 1))])


def _ranges(names: tuple[str, ...]) -> dict[str, Any]:
    return {"lower": [COLUMNS[n].low for n in names], "upper": [COLUMNS[n].high for n in names]}


def _rule(rng: Rng, names: tuple[str, ...], *rules: Any) -> dict[str, Any]:
    """A rule for the missing values of those columns that may have some, or of some of them, or of none."""
    gaps = [name for name in names if name in COLUMNS and COLUMNS[name].gaps and rng.integers(4)]
    if not gaps or not rules:
        return {}
    return {"missing": {name: rules[int(rng.integers(len(rules)))] for name in gaps}}


def _ranged(name: str, least: int = 1, most: int = 3, *rules: Any, **more: Any) -> Callable[[Rng], Ask]:
    def ask(rng: Rng) -> Ask:
        columns = _numbers(rng, least, most)
        return Ask(name, "table", columns, _ranges(columns) | _rule(rng, columns, *(rules or (0.0, "own-rows"))) | more)

    return ask


def _components(name: str, **more: Any) -> Callable[[Rng], Ask]:
    """Of tables, or of images."""

    def ask(rng: Rng) -> Ask:
        if rng.integers(3):
            return _images(rng, name, more)
        columns = _numbers(rng, 3, 4)
        bounds = {"clip": 2.0, **_rule(rng, columns, 0.0, "own-rows")} if name == "pca" else {}
        return Ask(name, "table", columns, bounds | more)

    return ask


def _images(rng: Rng, algorithm: str, parameters: Mapping[str, Any]) -> Ask:
    grid: Literal["mask", "atlas"] = "mask" if rng.integers(4) == 0 else "atlas"
    columns = brain_images.grid(grid).columns
    bounds = {"clip": 3.0} if algorithm == "pca" else {}
    return Ask(algorithm, "images", columns, {**bounds, **parameters}, imaging(rng), grid=grid)


def imaging(rng: Rng) -> dict[str, Any]:
    """What is done to the runs of images: an ordinary choice of everything that a study file may ask for."""
    known: dict[str, Any] = {
        "scrub_mm": float(rng.choice([0.2, 0.5, 1.0])),
        "band": [0.01, float(rng.choice([0.1, 0.2, 0.24]))],
        "confounds": ["rot_x"] if rng.integers(2) else ["rot_x", "trans_x"],
        "detrend": True,
        "standardise": False,
        "seconds": 2.0,
        "task": "rest",
    }
    return {name: value for name, value in known.items() if rng.integers(4) == 0}


def _regression(name: str, response: str, **more: Any) -> Callable[[Rng], Ask]:
    def ask(rng: Rng) -> Ask:
        features = tuple(each for each in _numbers(rng, 1, 2) if each != response) or ("age",)
        if rng.integers(2) or name == "polynomial-loss":
            columns = (*features, response)
            low, high = (COLUMNS[response].low, COLUMNS[response].high) if not COLUMNS[response].levels else (0, 1)
            lower = [*(COLUMNS[n].low for n in features), low]
            bounds: dict[str, Any] = {"lower": lower, "upper": [*(COLUMNS[n].high for n in features), high]}
            return Ask(name, "table", columns, bounds | _rule(rng, features, 0.0, "own-rows") | more)
        group = str(rng.choice(["sex", "ward", "stage"]))
        levels: dict[str, Any] = {group: [_value(level) for level in COLUMNS[group].levels]}
        ranges = {each: (COLUMNS[each].low, COLUMNS[each].high) for each in features}
        if COLUMNS[response].levels:
            levels[response] = [0, 1]
        else:
            ranges[response] = (COLUMNS[response].low, COLUMNS[response].high)
        rules = {n: 20.0 if n in ranges else levels[n][0] for n in (*features, group) if COLUMNS[n].gaps}
        kept = {n: "impute" if rng.integers(3) == 0 else rule for n, rule in rules.items() if rng.integers(3)}
        design = Design(response=response, ranges=ranges, levels=levels, missing=kept)
        bounds = {"lower": design.lower, "upper": design.upper, **design.roles}
        return Ask(name, "table", design.columns, bounds | more, {}, design, tuple(design.read))

    return ask


def _multinomial(rng: Rng) -> Ask:
    """Three or four classes of a column of categories, by a design."""
    response = str(rng.choice(["ward", "stage"]))
    levels: dict[str, Any] = {response: [_value(level) for level in COLUMNS[response].levels]}
    features = tuple(_numbers(rng, 1, 2))
    ranges = {each: (COLUMNS[each].low, COLUMNS[each].high) for each in features}
    rules: dict[str, Any] = {n: 20.0 for n in features if COLUMNS[n].gaps}
    design = Design(response=response, ranges=ranges, levels=levels, missing=rules)
    bounds = {"lower": design.lower, "upper": design.upper, **design.roles}
    return Ask(
        "multinomial-regression", "table", design.columns, {**bounds, "rounds": 2}, {}, design, tuple(design.read)
    )


def _value(level: str) -> Any:
    return float(level) if level.isdigit() else level


def _cox(rng: Rng) -> Ask:
    """Survival times with columns as they are, or by a design: strata by site, by a column, or none; entry times."""
    features = tuple(each for each in _numbers(rng, 1, 2) if each != "dose") or ("age",)
    late = ("dose",) if rng.integers(3) == 0 else ()
    more: dict[str, Any] = {"rounds": 2, "parts": 2, "edges": [0.0, 1.0, 2.0, 5.0, 10.0]}
    more |= {"proportionality": 0.2} if rng.integers(2) else {}
    more |= {"concordance": 0.2, "hold_out": 0.5} if rng.integers(2) else {}
    if rng.integers(2):
        columns = (*features, *late, "time", "sick")
        high = [COLUMNS[n].high for n in (*features, *late)]
        bounds: dict[str, Any] = {"lower": [*(COLUMNS[n].low for n in features), *(0.0 for _ in late), 0.0, 0.0]}
        bounds |= {"upper": [*high, 10.0, 1.0], "entry": late[0] if late else None}
        return Ask("cox-regression", "table", columns, bounds | _rule(rng, features, 0.0, "own-rows") | more)
    ranges: dict[str, Any] = {each: (COLUMNS[each].low, COLUMNS[each].high) for each in features}
    ranges |= {"time": (0.0, 10.0)} | dict.fromkeys(late, (0.0, 10.0))
    levels: dict[str, Any] = {"sick": [0, 1], "ward": list(COLUMNS["ward"].levels)}
    strata = str(rng.choice(["none", "ward"]))
    rules = {n: "impute" if rng.integers(3) == 0 else 20.0 for n in features if COLUMNS[n].gaps and rng.integers(3)}
    roles: dict[str, Any] = {"time": "time", "entry": late[0] if late else None, "strata": strata}
    design = Design(response="sick", ranges=ranges, levels=levels, missing=rules, **roles)
    parameters = {"lower": design.lower, "upper": design.upper, **design.roles}
    return Ask("cox-regression", "table", design.columns, parameters | more, {}, design, tuple(design.read))


def _histogram(rng: Rng) -> Ask:
    name = str(rng.choice(list(COLUMNS)))
    column = COLUMNS[name]
    if column.levels:
        values: list[Any] = [_value(level) for level in column.levels]
        return Ask("histogram", "table", (name,), {"values": values})
    edges = np.linspace(column.low, column.high, 5).tolist()
    rule = _rule(rng, (name,), (column.low + column.high) / 2)
    return Ask("histogram", "table", (name,), {"edges": edges} | ({"missing": rule["missing"][name]} if rule else {}))


def _grouped(name: str, *, levels_too: bool) -> Callable[[Rng], Ask]:
    def ask(rng: Rng) -> Ask:
        numbers = _numbers(rng, 1, 2)
        groups = [str(each) for each in rng.permutation(["sex", "ward", "stage", "sick"])[: int(rng.integers(1, 3))]]
        levels = {each: [_value(level) for level in COLUMNS[each].levels] for each in groups}
        by = groups[0] if rng.integers(2) or not levels_too else None
        kept = {by: levels[by]} if not levels_too and by is not None else levels
        columns = (*numbers, *kept)
        parameters: dict[str, Any] = {
            "ranges": {n: [COLUMNS[n].low, COLUMNS[n].high] for n in numbers},
            "levels": kept,
            "by": by,
            "bins": 8,
        }
        return Ask(name, "table", columns, parameters | _rule(rng, columns, "observed"))

    return ask


def _hypothesis_test(rng: Rng) -> Ask:
    test = str(rng.choice(["t", "welch", "anova", "mann-whitney", "wilcoxon", "chi-squared"]))
    group, other = (str(each) for each in rng.permutation(["sex", "ward", "sick", "stage"])[:2])
    group = "sex" if test in ("t", "mann-whitney") else group
    numbers = () if test == "chi-squared" else _numbers(rng, 1, 2)
    levels = {} if test == "wilcoxon" else {group: [_value(level) for level in COLUMNS[group].levels]}
    if test == "chi-squared":
        other = "stage" if group == other else other
        levels[other] = [_value(level) for level in COLUMNS[other].levels]
    columns = (*numbers, *levels)
    parameters: dict[str, Any] = {
        "test": test,
        "ranges": {n: [COLUMNS[n].low, COLUMNS[n].high] for n in numbers},
        "levels": levels,
        "by": None if test == "wilcoxon" else group,
        "bins": 8,
        "correction": str(rng.choice(["none", "holm"])),
    }
    if test == "wilcoxon":
        parameters["null"] = {n: (COLUMNS[n].low + COLUMNS[n].high) / 2 for n in numbers}
    return Ask("hypothesis-test", "table", columns, parameters | _rule(rng, columns, "observed"))


def _survival(rng: Rng) -> Ask:
    parameters: dict[str, Any] = {"edges": [0.0, 2.0, 5.0, 10.0], "events": [0.0, 1.0]}
    if rng.integers(2):
        return Ask("survival", "table", ("time", "sick"), parameters)
    group = str(rng.choice(["sex", "ward"]))
    columns = ("time", "sick", group)
    rule = {"missing": {group: "observed"}} if COLUMNS[group].gaps and rng.integers(2) else {}
    return Ask("survival", "table", columns, parameters | {"groups": list(COLUMNS[group].levels)} | rule)


def _classes(rng: Rng) -> tuple[tuple[str, ...], list[Any]]:
    features = tuple(name for name in _numbers(rng, 2, 3) if not COLUMNS[name].gaps)[:2]
    features = features if len(features) == 2 else ("age", "dose")
    label = str(rng.choice(["sex", "ward", "sick", "stage"]))
    return (*features, label), [_value(level) for level in COLUMNS[label].levels]


def _featured(name: str, **more: Any) -> Callable[[Rng], Ask]:
    def ask(rng: Rng) -> Ask:
        columns, classes = _classes(rng)
        features = {"kind": "linear", **_ranges(columns[:-1])}
        return Ask(name, "table", columns, {"classes": classes, "features": features, **more})

    return ask


def _network(name: str, **more: Any) -> Callable[[Rng], Ask]:
    def ask(rng: Rng) -> Ask:
        columns, classes = _classes(rng)
        ranges = _ranges(columns[:-1])
        bounds = {"lower": [*ranges["lower"], 0.0], "upper": [*ranges["upper"], float(len(classes) - 1)]}
        return Ask(name, "table", columns, {"classes": classes, **bounds, **more})

    return ask


def _topics(name: str, **more: Any) -> Callable[[Rng], Ask]:
    def ask(rng: Rng) -> Ask:
        words = VOCABULARY[: int(rng.integers(5, 9))]
        return Ask(name, "documents", words, {"n_components": 2, **more})

    return ask


@statistic(OWN, length=2)
def _first_and_spread(rows: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """A site's own statistic, which fails for some people: those whose first value is negative."""
    if rows[0, 0] < 0:
        raise ValueError("a fault of the user's function")
    return [float(rows[0, 0]), float(rows.max() - rows.min())]


def _custom(rng: Rng) -> Ask:
    columns = _numbers(rng, 1, 3)
    return Ask("statistic", "table", columns, {"statistic": OWN, "clip": 1.0})


def _synthetic(rng: Rng) -> Ask:
    grouped = _grouped("describe", levels_too=True)(rng)
    given = {name: grouped.parameters[name] for name in ("ranges", "levels")}
    return Ask("synthetic-data", "table", grouped.columns, {**given, "bins": 4, "table_cells": 60})


def _guided(rng: Rng) -> Ask:
    if rng.integers(3):
        columns = brain_images.grid("atlas").columns
        templates = np.eye(len(columns))[:1].tolist()
        return Ask("guided-ica", "images", columns, {"templates": templates}, imaging(rng))
    columns = _numbers(rng, 3, 4)
    return Ask("guided-ica", "table", columns, {"templates": [[1.0, *[0.5] * (len(columns) - 1)]]})


def _connectivity(rng: Rng) -> Ask:
    regions = _numbers(rng, 2, 3)
    group = str(rng.choice(["sex", "ward", "sick", "stage"]))
    if rng.integers(2):
        levels = [_value(level) for level in COLUMNS[group].levels]
        return Ask("connectivity", "table", (*regions, group), {"group": group, "levels": levels, "clip": 1.0})
    *regions_, covariate = _numbers(rng, 3, 3)
    ranges = {covariate: [COLUMNS[covariate].low, COLUMNS[covariate].high]}
    return Ask("connectivity", "table", (*regions_, covariate), {"covariates": ranges, "clip": 1.0})


def _additive(rng: Rng) -> Ask:
    grouped = _grouped("describe", levels_too=True)(rng)
    given: dict[str, Any] = {name: grouped.parameters[name] for name in ("ranges", "levels")}
    numbers, categories = tuple(given["ranges"]), tuple(given["levels"])
    # a class or a number as the response, which is the last column
    two = [name for name in categories if len(given["levels"][name]) == 2]
    response = two[0] if two and rng.integers(2) else numbers[0]
    features = [name for name in (*numbers, *categories) if name != response]
    pairs = [features[:2]] if len(features) > 1 and rng.integers(2) else []
    return Ask("additive-model", "table", (*features, response), {**given, "bins": 20, "rounds": 2, "pairs": pairs})


QUESTIONS: dict[str, Callable[[Rng], Ask]] = {
    "mean": _ranged("mean", 1, 3, 0.0, "own-rows", "observed"),
    "histogram": _histogram,
    "covariance": _ranged("covariance", 2, 3),
    "correlation": _ranged("correlation", 2, 3, 20.0, method="spearman", bins=4),
    "k-means": _ranged("k-means", 2, 3, n_clusters=2, rounds=2),
    "mixture": _ranged("mixture", 2, 3, n_components=2, rounds=1),
    "topics": _topics("topics", n_words=4),
    "pca": _components("pca", n_components=2),
    "ica": _components("ica", n_components=2, rounds=3, n_passes=1),
    "statistic": _custom,
    # opening rounds, the histogram of scores and closing rounds; the planner would leave out the histogram here
    "linear-regression": _regression("linear-regression", "dose", rounds=6, closing_rounds=2),
    "logistic-regression": _regression("logistic-regression", "sick"),
    "multinomial-regression": _multinomial,
    "poisson-regression": _regression("poisson-regression", "visits"),
    "cox-regression": _cox,
    "polynomial-loss": _regression(
        "polynomial-loss", "dose", table=[[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]]
    ),
    "feature-classifier": _featured("feature-classifier", directions=2, rounds=2),
    "neural-classifier": _network("neural-classifier", steps=3, hidden=4),  # the phase of another case is sub-sampled
    "data-collaboration": _featured("data-collaboration", n_components=2),
    "describe": _grouped("describe", levels_too=True),
    "quantiles": _grouped("quantiles", levels_too=False),
    "survival": _survival,
    "hypothesis-test": _hypothesis_test,
    "synthetic-data": _synthetic,
    "guided-ica": _guided,
    "connectivity": _connectivity,
    "additive-model": _additive,
    "cape-pca": _ranged("cape-pca", 2, 3, n_components=2),
    "cape-fm": _ranged("cape-fm", 2, 3),
    "cape-agn-mixture": _ranged("cape-agn-mixture", 2, 3, n_components=2, variance=0.1),
    "cape-agn-topics": _topics("cape-agn-topics"),
    "cape-djica": _components("cape-djica", n_components=2, rounds=3, row_clip=5.0),
    "cape-network": _network("cape-network", steps=3, hidden=4),
    "fl-dp": _network("fl-dp", largest_site=8, hidden=[4], rounds=2, epochs=1),
}


# ---- statistics ------------------------------------------------------------------------------------------------


def cases_of(name: str) -> list[dict[str, Any]]:
    """The sets of parameters that a statistic is asked with."""
    found = [parameters for known, parameters in SMALL if known == name]
    return found or ([BARE[name]] if name in BARE else [])


def ask_statistic(name: str, rng: Rng) -> Ask:
    """A raw plan for one statistic: over documents or images where those fit it, else over a table whose columns hold
    codes where the statistic takes codes."""
    cases = cases_of(name)
    given = cases[int(rng.integers(len(cases)))]
    columns = int(given.get("columns", 1))
    if name in DOCUMENT_STATISTICS and rng.integers(4):
        words = VOCABULARY[:columns]
        return Ask("topics", "documents", words, {"n_components": 2}, statistic=name, given=given)
    if columns == 3 and rng.integers(4) == 0:
        names = brain_images.grid("atlas").columns
        return Ask("pca", "images", names, {"n_components": 2}, imaging(rng), statistic=name, given=given)
    codes = _codes(name, given)
    free = [str(each) for each in rng.permutation(NUMBERS)]
    coded = [str(each) for each in rng.permutation(CODES)]
    names = tuple(_coded(coded, codes[at]) or free.pop() if at in codes else free.pop() for at in range(columns))
    if rng.integers(4 if codes else 2) == 0:  # the codes of levels, as the site makes them
        names = tuple(str(each) for each in rng.permutation(list(COLUMNS))[:columns])
        levels = {n: [_value(level) for level in COLUMNS[n].levels] for n in names if COLUMNS[n].levels}
        ranges = {n: [COLUMNS[n].low, COLUMNS[n].high] for n in names if n not in levels}
        grouped = {"ranges": ranges, "levels": levels, **_rule(rng, names, "observed")}
        return Ask("describe", "table", names, grouped, statistic=name, given=given)
    rules = _rule(rng, names, 0.0, "own-rows", "observed")
    return Ask("mean", "table", names, {"clip": 1.0, **rules}, statistic=name, given=given)


def _coded(free: list[str], codes: int) -> str | None:
    """The next column whose usual codes are all among so many; None where there is none left."""
    fitting = [name for name in free if len(COLUMNS[name].levels) <= codes]
    if not fitting:
        return None
    free.remove(fitting[-1])
    return fitting[-1]


def _codes(name: str, given: Mapping[str, Any]) -> Mapping[int, int]:
    """Which columns a statistic reads as codes, and how many codes each has."""
    if name in BARE:
        return {}
    return dict(getattr(find(name)(**given), "codes", None) or {})


def is_published(name: str) -> bool:
    return name in BUILTIN and issubclass(find(name), BoundedMap)


EPSILONS = (2.0, 6.0)  # few different ones, so that accounting is computed once
DELTA = 1e-5
