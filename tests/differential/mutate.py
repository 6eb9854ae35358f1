"""Mutations of public parameters: of plain values, of a plan's question, of its releases, and of raw requests.

A mutated plan is still a `Plan`: what `Plan` itself refuses never reaches a site. The question inside it is not checked
by `Plan`, so it may say anything: the algorithm's own validation is the coordinator's, and a site must not rely on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast, get_args, get_origin

import numpy as np

from differential.neighbours import COLUMNS, CONFOUNDS, WORDS, Rng
from differential.questions import cases_of
from helpers.statistic_cases import SMALL
from zerosum.compute.statistic import BoundedMap, BoundedStatistic
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.statistics import BUILTIN, find

DICTIONARY: tuple[Any, ...] = (
    *COLUMNS,
    *(level for column in COLUMNS.values() for level in column.levels),
    *WORDS,
    *("own-rows", "observed", "record", "person", "all", "fitted", "held-out", "rest"),
    *(0, 1, 2, 3, -9, 0.5, 1e9, True, False, None),
)


def pick(rng: Rng, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def mutated_value(rng: Rng, value: Any) -> Any:
    """Another value of about the same shape: one step of a generic mutation."""
    match value:
        case np.ndarray():
            return mutated_value(rng, value.tolist())
        case bool():
            return pick(rng, [not value, None])
        case int():
            return pick(rng, [0, 1, value + 1, value - 1, 2 * value, -value, 1000])
        case float():
            return pick(rng, [0.0, -value, 2 * value, value / 2, value + 1, 1e-9, 1e9, 0.5])
        case list() | tuple():
            return _mutated_list(rng, list(value))
        case dict():
            return _mutated_dict(rng, dict(value))
    return pick(rng, DICTIONARY)


def _mutated_list(rng: Rng, items: list[Any]) -> list[Any]:
    if not items:
        return [pick(rng, DICTIONARY)]
    at = int(rng.integers(len(items)))
    match int(rng.integers(6)):
        case 0 | 1:
            return items[:at] + items[at + 1 :]  # a value left out: an oracle if somebody has it
        case 2:
            return [*items, pick(rng, DICTIONARY)]
        case 3:
            return [*items[:at], pick(rng, DICTIONARY), *items[at + 1 :]]
        case 4:
            return items[::-1]
    return [*items[:at], mutated_value(rng, items[at]), *items[at + 1 :]]


def _mutated_dict(rng: Rng, items: dict[str, Any]) -> dict[str, Any]:
    if not items or rng.integers(5) == 0:
        return items | {str(pick(rng, list(COLUMNS))): pick(rng, DICTIONARY)}
    name = pick(rng, list(items))
    if rng.integers(3) == 0:
        return {key: value for key, value in items.items() if key != name}
    return items | {name: mutated_value(rng, items[name])}


LEVELS = ("values", "levels", "classes", "groups", "events")  # parameters that hold public categories


# ---- plans -----------------------------------------------------------------------------------------------------

Mutation = Callable[[Rng, Plan], Plan]


def _asking(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, question=replace(plan.question, **changes))


def _parameters(rng: Rng, plan: Plan) -> Plan:
    known = dict(plan.question.parameters)
    name = pick(rng, list(known))
    return _asking(plan, parameters=known | {name: mutated_value(rng, known[name])})


def _levels(rng: Rng, plan: Plan) -> Plan:
    """Categories with one left out, invented or exchanged."""
    known = dict(plan.question.parameters)
    named = [n for n in LEVELS if known.get(n)]
    if not named:
        return _asking(plan, parameters=known | {"values": list(pick(rng, [["f", "m"], [0, 1], ["north"]]))})
    name = pick(rng, named)
    return _asking(plan, parameters=known | {name: _other_levels(rng, known[name])})


def _other_levels(rng: Rng, levels: Any) -> Any:
    """Categories, of one column or by column; more often than not without one of them."""
    if isinstance(levels, dict) and levels:
        name = pick(rng, list(levels))
        return levels | {name: _other_levels(rng, levels[name])}
    if isinstance(levels, list | tuple) and len(levels) > 1 and rng.integers(3):
        at = int(rng.integers(len(levels)))
        return [*levels[:at], *levels[at + 1 :]]
    return mutated_value(rng, levels)


def _missing(rng: Rng, plan: Plan) -> Plan:
    """A rule for missing values of all columns, of some by name, or of none."""
    rules = [0.0, "own-rows", "observed", "f", None]
    names = plan.question.columns or ("age",)
    some = {str(name): pick(rng, rules[:4]) for name in names if rng.integers(2)}
    return _asking(plan, parameters=dict(plan.question.parameters) | {"missing": pick(rng, [*rules, some, some])})


def _tokens(rng: Rng, plan: Plan) -> Plan:
    """Words that count as missing, among them values that people have."""
    asked = [COLUMNS[name] for name in plan.question.columns if name in COLUMNS]
    held = [each for column in asked for each in (*column.levels, column.low, column.high)]
    words = [pick(rng, [*held, *WORDS[1:], 0, -9, 1e9]) for _ in range(int(rng.integers(1, 4)))]
    tokens: Any = words
    if rng.integers(2):
        tokens = {str(pick(rng, plan.question.columns or ("age",))): words}
    return _asking(plan, preprocessing=dict(plan.question.preprocessing) | {"missing_tokens": tokens})


def _design(rng: Rng, plan: Plan) -> Plan:
    known = dict(plan.question.preprocessing)
    design = known.get("design")
    if not isinstance(design, dict):
        return _tokens(rng, plan)
    part = pick(rng, [name for name in ("levels", "levels", "missing", "missing", "ranges") if design.get(name)])
    other = _other_levels(rng, design[part]) if part == "levels" else mutated_value(rng, design[part])
    return _asking(plan, preprocessing=known | {"design": design | {part: other}})


def _imaging(rng: Rng, plan: Plan) -> Plan:
    """Another preparation of runs, where data are images; else some that tables ignore."""
    known = dict(plan.question.preprocessing)
    choices: dict[str, Sequence[Any]] = {
        "scrub_mm": [0.01, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, None],
        "band": [[0.01, 0.1], [0.0, 0.2], [0.01, 0.24], [0.01, 0.4], [0.05, 0.5], None],
        "confounds": [[], ["rot_x"], list(CONFOUNDS), ["trans_x"], ["unknown"]],
        "strategy": ["simple", "scrubbing", "compcor", None],
        "detrend": [True, False],
        "standardise": [True, False],
        "seconds": [None, 1.0, 2.0, 5.0],
        "smoothing_mm": [None, 4.0],
        "resample": [True, False],
        "task": [None, "rest", "other"],
        "desc": [None, "preproc", "other"],
    }
    name = pick(rng, [*choices, "scrub_mm", "scrub_mm", "band", "confounds"])
    return _asking(plan, preprocessing=known | {name: pick(rng, choices[name])})


def _columns(rng: Rng, plan: Plan) -> Plan:
    """Columns left out, exchanged, twice or unknown, with the digest that belongs to them, or another number."""
    names = [str(name) for name in mutated_value(rng, list(plan.question.columns))]
    digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()
    if rng.integers(5) == 0:
        return _asking(plan, n_columns=plan.question.n_columns + 1)
    return _asking(plan, columns=tuple(names), n_columns=len(names), columns_digest=digest)


def _files(rng: Rng, plan: Plan) -> Plan:
    files = dict(plan.question.files)
    use = pick(rng, [*files, "mask", "vocabulary"])
    return _asking(plan, files=files | {use: pick(rng, [*files.values(), "0" * 64])})


def _record(rng: Rng, plan: Plan) -> Plan:
    return replace(plan, unit="record" if plan.unit == "person" else "person")


def _counts(rng: Rng, plan: Plan) -> Plan:
    """The declared number of units of a site: none, or another."""
    at = int(rng.integers(len(plan.sites)))
    units = plan.sites[at].units
    other = pick(rng, [None, 1, (units or 12) + 1, (units or 12) - 1])
    return replace(plan, sites=tuple(replace(s, units=other) if n == at else s for n, s in enumerate(plan.sites)))


def _release(rng: Rng, plan: Plan) -> Plan:
    """A release that is planned otherwise than its statistic has it."""
    at = int(rng.integers(len(plan.releases)))
    planned = plan.releases[at]
    change: dict[str, Any] = pick(
        rng,
        [
            {"columns": pick(rng, [None, 1, 2, 3, (planned.columns or 1) + 1])},
            {"size": planned.size + 1},
            {"sensitivity": planned.sensitivity * 2},
            {"bound": planned.bound / 2},
            {"share": planned.share / 2},
            {"kind": "publication" if planned.kind == "sum" else "sum"},
            {"sampling": Sampling(1.0, 2)},
            {"statistic": pick(rng, sorted(BUILTIN))},
        ],
    )
    changed = replace(planned, **change)
    return replace(plan, releases=(*plan.releases[:at], changed, *plan.releases[at + 1 :]))


def _terms(rng: Rng, plan: Plan) -> Plan:
    change: dict[str, Any] = pick(
        rng,
        [
            {"epsilon": plan.epsilon / 8},
            {"epsilon": 2000.0},
            {"attempts": 2},
            {"seed": 7},
            {"results_to_sites": not plan.results_to_sites},
            {"algorithm": pick(rng, ["mean", "describe", "pca", "nothing"])},
            {"study": "another"},
        ],
    )
    return replace(plan, **change)


MUTATIONS: dict[str, tuple[Mutation, int]] = {  # with weights: what a site reads its data by comes more often
    "parameters": (_parameters, 4),
    "levels": (_levels, 4),
    "missing": (_missing, 3),
    "missing_tokens": (_tokens, 4),
    "design": (_design, 4),
    "imaging": (_imaging, 4),
    "columns": (_columns, 2),
    "files": (_files, 1),
    "unit": (_record, 3),
    "declared units": (_counts, 1),
    "releases": (_release, 2),
    "terms": (_terms, 1),
}


def mutation_for(rng: Rng, plan: Plan, kind: str) -> str:
    """Which mutation comes next: of images mostly of their preparation, of designs mostly of the design."""
    weights = {name: weight for name, (_, weight) in MUTATIONS.items()}
    if kind == "images":
        weights |= {"imaging": 16}
    if kind != "table":
        weights |= {"columns": 1, "levels": 1, "missing_tokens": 1, "missing": 1}
    if kind == "table":
        weights |= {"imaging": 0}
    if "design" in plan.question.preprocessing:
        weights |= {"design": 16}
    if any(plan.question.parameters.get(each) for each in LEVELS):
        weights |= {"levels": 16}
    names = [name for name, weight in weights.items() for _ in range(weight)]
    return str(pick(rng, names))


# ---- requests --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A statistic as a request names it: by its name and any parameters, valid or not, as a frame can hold them."""

    name: str
    given: Mapping[str, Any]
    every_unit: ClassVar[bool] = True  # a hostile coordinator sends requests that ours would not make

    def parameters(self) -> dict[str, Any]:
        return dict(self.given)


def as_statistic(asked: Asked) -> BoundedStatistic:
    """For the codec, which takes the name and the parameters of a statistic and nothing else."""
    return cast("BoundedStatistic", asked)


def mutated_request(rng: Rng, request: Request) -> Request:
    """A request that the plan did not announce: other parameters, another statistic, kind, share or sampling."""
    name, given = request.statistic.name, dict(request.statistic.parameters())
    kind = PrivatePublication if isinstance(request, PrivatePublication) else PrivateSum
    share, sampling = request.share, request.sampling if isinstance(request, PrivateSum) else None
    optional = bool(_OPTIONAL & given.keys())  # parameters that change what a request is about come first
    match int(rng.integers(2, 5)) if optional and rng.integers(2) else int(rng.integers(8)):
        case 0 | 1:
            for _ in range(int(rng.integers(1, 3))):
                field = pick(rng, list(given))
                given[field] = _other(rng, name, field, given[field])
        case 2 | 3 | 4:
            given = _crossed(rng, name, given)
        case 5:
            name = str(pick(rng, sorted(BUILTIN)))
            given = dict(pick(rng, cases_of(name)))
        case 6:
            kind = PrivateSum if kind is PrivatePublication else PrivatePublication
        case 7:
            share, sampling = share / 2, pick(rng, [None, Sampling(1.0, 2), Sampling(0.5, 2)])
    statistic = as_statistic(Asked(name, given))
    if kind is PrivateSum:
        return PrivateSum(statistic, share, sampling)
    return PrivatePublication(cast("BoundedMap", statistic), share)


def _other(rng: Rng, name: str, field: str, value: Any) -> Any:
    """Another value of a parameter; where only a few words are allowed, one of these."""
    known = find(name).model_fields.get(field)
    if known is not None and get_origin(known.annotation) is Literal:
        return pick(rng, get_args(known.annotation))
    return mutated_value(rng, value)


def _crossed(rng: Rng, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """With the parameters that another case gives and this statistic has too: they often belong together."""
    fields = find(name).model_fields
    others = [
        {key: value for key, value in parameters.items() if key in fields and key not in ("columns", "features")}
        for _, parameters in SMALL
    ]
    rare = [each for each in others if each.keys() & _OPTIONAL]
    if rare and rng.integers(4):
        found = pick(rng, rare)
        return given | {key: value for key, value in found.items() if key in _OPTIONAL}
    return given | dict(pick(rng, [each for each in others if each] or [{}]))


_OPTIONAL = {"part", "hold_out", "count", "fill", "own_rows", "group", "words", "per_recording", "offset", "kept"}
