"""A site's own data for a plan: what to read, and how, follows from the plan's public question alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from zerosum import algorithms
from zerosum.data.design import Design
from zerosum.data.documents import load_documents, load_vocabulary
from zerosum.data.imaging import load_images
from zerosum.data.tables import load_units, table_names
from zerosum.errors import BadData, BadParameter, ZerosumError, first_fault
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question
from zerosum.kernel.units import Units
from zerosum.study.entries import ImagingTable
from zerosum.study.site_file import SiteFile, digest

_CATEGORIES = TypeAdapter(dict[str, tuple[str | float | bool, ...]])
_RULES = TypeAdapter(dict[str, str | float | bool])


def load_for(plan: Plan, site: SiteFile) -> Units:
    """The units of a site in the columns that a plan asks about, prepared as it says, on the site's device."""
    return _load(plan, site).on(site.device)


def _load(plan: Plan, site: SiteFile) -> Units:
    question = plan.question
    try:
        if {"mask", "atlas"} & question.files.keys():
            return _images(question, site)
        if "vocabulary" in question.files:
            return _documents(question, site)
        if (design := question.preprocessing.get("design")) is not None:
            return _designed(Design.model_validate(design), plan, site)
    except ValidationError as error:
        raise BadParameter(f"the plan's question: {first_fault(error)}") from None
    return _table(plan, site)


def _table(plan: Plan, site: SiteFile) -> Units:
    question = plan.question
    columns = _columns(question, site)
    categories, rules = _roles(plan, columns)
    table = load_units(
        site.path,
        columns=columns,
        unit_column=site.unit_column,
        categories=categories,
        missing=rules,
        missing_tokens=_tokens(question),
        **site.reading,
    )
    _same_columns(question, table.columns)
    return table.units


def _columns(question: Question, site: SiteFile) -> tuple[str, ...]:
    """The columns that a plan asks about: as it lists them, or, of too many to list, those whose digest it has: all of
    a file's in its order, or what pixels are called that have no names."""
    if len(question.columns) == question.n_columns:
        return question.columns
    own = table_names(site.path, site.unit_column)
    if question.n_columns != len(own):
        raise BadData("the data do not have as many columns as the plan asks about")
    numbered = (*(f"x{at}" for at in range(len(own) - 1)), "class")
    return numbered if _digest(numbered) == question.columns_digest else own


def _roles(plan: Plan, columns: tuple[str, ...]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The categories of columns, and where values may be missing, as the plan's algorithm has them. Large arrays among
    its parameters are named by digest in a plan, so it is not built whole; neither needs them."""
    kind = algorithms.ALGORITHMS.get(plan.algorithm)
    if kind is None:
        raise BadParameter("the plan is of an algorithm that is not known here")
    given = plan.question.parameters
    said: dict[str, Any] = {name: value for name, value in given.items() if name in kind.model_fields}
    try:
        algorithm = kind.model_construct(**{**said, "columns": columns})
        return _CATEGORIES.validate_python(algorithm.categories), _RULES.validate_python(algorithm.rules)
    except ZerosumError:
        raise
    except (ValidationError, TypeError, ValueError, AttributeError, LookupError):
        raise BadParameter("the plan's question does not say what its algorithm needs") from None


def _documents(question: Question, site: SiteFile) -> Units:
    words = load_vocabulary(_own_file(question, site, "vocabulary"))
    _same_columns(question, words)
    return load_documents(site.path, words)


def _own_file(question: Question, site: SiteFile, use: str) -> Path:
    """The site's own copy of a public file that a plan names by its digest."""
    own = [site.folder / path for path in site.files]
    found = next((path for path in own if digest(path) == question.files[use]), None)
    if found is None:
        raise BadData(f"the {use} of the study is not among the files of this site")
    return found


def _same_columns(question: Question, columns: Sequence[str]) -> None:
    """What is read is what the plan says that it asks about: policies go by that."""
    if _digest(columns) != question.columns_digest:
        raise BadData("the columns are not those that the plan's digest names")
    if len(question.columns) == question.n_columns and tuple(columns) != question.columns:
        raise BadData("the columns are not those that the plan names")


def _digest(columns: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(columns)).encode()).hexdigest()


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
    found = _own_file(question, site, use)
    known = {name: value for name, value in question.preprocessing.items() if name in ImagingTable.model_fields}
    imaging = ImagingTable.model_validate(known | {use: found.absolute()})
    space = imaging.load_space(site.folder)
    _same_columns(question, space.columns)
    return load_images(site.path, space, imaging.preprocessing, imaging.selection).units


def _tokens(question: Question) -> Any:
    return question.preprocessing.get("missing_tokens", ())
