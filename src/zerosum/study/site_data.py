"""A site's own data for a plan: what to read, and how, follows from the plan's public question alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from zerosum import algorithms
from zerosum.data.design import Design
from zerosum.data.imaging import load_images
from zerosum.data.tables import load_units
from zerosum.errors import BadData, BadParameter, first_fault
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question
from zerosum.kernel.units import Units
from zerosum.study.schema import ImagingTable
from zerosum.study.site_file import SiteFile, digest


def load_for(plan: Plan, site: SiteFile) -> Units:
    """The units of a site in the columns that a plan asks about, prepared as it says."""
    question = plan.question
    try:
        if {"mask", "atlas"} & question.files.keys():
            return _images(question, site)
        if (design := question.preprocessing.get("design")) is not None:
            return _designed(Design.model_validate(design), plan, site)
    except ValidationError as error:
        raise BadParameter(f"the plan's question: {first_fault(error)}") from None
    return _table(plan, site)


def _table(plan: Plan, site: SiteFile) -> Units:
    question = plan.question
    named = len(question.columns) == question.n_columns
    algorithm = algorithms.build(plan.algorithm, _parameters(question)) if named else None
    table = load_units(
        site.path,
        columns=question.columns if named else None,
        unit_column=site.unit_column,
        categories={} if algorithm is None else algorithm.categories,
        missing=() if algorithm is None else algorithm.rules,
        missing_tokens=_tokens(question),
        **site.reading,
    )
    _same_columns(question, table.columns)
    return table.units


def _same_columns(question: Question, columns: Sequence[str]) -> None:
    """What is read is what the plan says that it asks about: policies go by that."""
    if hashlib.sha256(json.dumps(list(columns)).encode()).hexdigest() != question.columns_digest:
        raise BadData("the columns are not those that the plan's digest names")
    if len(question.columns) == question.n_columns and tuple(columns) != question.columns:
        raise BadData("the columns are not those that the plan names")


def _parameters(question: Question) -> dict[str, Any]:
    """An algorithm's parameters as a plan says them; large arrays are named by digest, and nothing here needs them."""
    said = {name: value for name, value in question.parameters.items() if value is not None}
    small = {name: value for name, value in said.items() if not _is_digest(value)}
    return small | {"columns": question.columns}


def _is_digest(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"shape", "sha256"}


def _designed(design: Design, plan: Plan, site: SiteFile) -> Units:
    _same_columns(plan.question, design.columns)
    units = load_units(
        site.path,
        columns=design.read,
        unit_column=site.unit_column,
        categories=design.levels,
        missing=design.missing,
        missing_tokens=_tokens(plan.question),
        **site.reading,
    ).units
    return design.expand(units, site.name)


def _images(question: Question, site: SiteFile) -> Units:
    use = "mask" if "mask" in question.files else "atlas"
    own = [site.folder / path for path in site.files]
    found = next((path for path in own if digest(path) == question.files[use]), None)
    if found is None:
        raise BadData(f"the {use} of the study is not among the files of this site")
    known = {name: value for name, value in question.preprocessing.items() if name in ImagingTable.model_fields}
    imaging = ImagingTable.model_validate(known | {use: found.absolute()})
    space = imaging.load_space(site.folder)
    _same_columns(question, space.columns)
    return load_images(site.path, space, imaging.preprocessing, imaging.selection).units


def _tokens(question: Question) -> Any:
    return question.preprocessing.get("missing_tokens", ())
