"""Loads a site's data for a plan. What is read, and how, depends on the plan's public question only.

`review_question` compares the question with the declared schema and reads no row. `load_for` reads the rows. At a
serving site it receives a list of `faults`, and no cell, run or document raises an error: a refusal that depends on
rows would reveal them. Without the list it serves the owner of the data, and errors describe the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from zerosum import algorithms
from zerosum.compute.units import Units
from zerosum.data.bids import SELECTED_BY
from zerosum.data.design import Design
from zerosum.data.documents import load_documents, load_vocabulary
from zerosum.data.formula import is_expanded
from zerosum.data.imaging import Masker, load_images
from zerosum.data.imputation import Imputation, ImputationModel
from zerosum.data.scans import MOTION_COLUMN
from zerosum.data.tables import CellFault, Tokens, check_reading, join_missing, load_units, table_names
from zerosum.errors import BadParameter, BadStudy, PolicyRefused, ZerosumError, first_fault
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question, columns_digest
from zerosum.site.schema import DataSchema, ImagesSchema, column_refusals
from zerosum.study.entries import ImagingTable
from zerosum.study.site_file import SiteFile, digest

Faults = list[CellFault | str]  # Cells of tables, and sentences about runs, that do not fit; for the owner of the data.
# Validators of three parts of a question. A plan comes from the coordinator, so its types are not trusted.
_CATEGORIES = TypeAdapter(dict[str, tuple[str | float | bool, ...]])
_RULES = TypeAdapter(dict[str, str | float | bool])
_DEFINITIONS = TypeAdapter(dict[str, str])
_TOKENS = TypeAdapter(dict[str, tuple[str | float, ...]] | tuple[str | float, ...])


def review_question(plan: Plan, site: SiteFile, schema: DataSchema) -> None:
    """Raise the first refusal of a plan whose question does not fit the declared schema. Reads the header of a table
    and the site's public files, but no row."""
    for refusal in question_refusals(plan, site, schema):
        raise refusal


def question_refusals(plan: Plan, site: SiteFile, schema: DataSchema) -> Iterator[ZerosumError]:
    """Yield all contradictions between a plan's question and the declared schema.

    Raises
    ------
    BadParameter
        If the question itself is malformed.
    """
    question = plan.question
    kind = _kind(question)
    # The checks below compare columns, which other kinds of data do not have.
    if kind != schema.kind:
        yield PolicyRefused(f"the plan asks about {_KINDS[kind]}, this site holds {_KINDS[schema.kind]}")
        return
    with _as_bad_parameter():
        for release in plan.releases:
            if question.n_columns and release.columns not in (None, question.n_columns):
                raise BadParameter(f"a release is of {release.columns} columns, the plan of {question.n_columns}")
        if kind == "images":
            imaging, space = _imaging(question, site)
            _check_columns(question, space.columns)
            yield from _image_refusals(imaging, space, schema.images)
        elif kind == "documents":
            words = load_vocabulary(_own_file(question, site, "vocabulary"))
            _check_columns(question, words)
            if schema.words not in (None, len(words)):
                yield PolicyRefused(f"this site's documents are counts of {schema.words} words, not of {len(words)}")
        elif (design := _design(question)) is not None:
            _check_columns(question, design.columns)
            # Policies decide by the sources.
            if strangers := [name for name in design.read if name not in question.sources]:
                raise BadParameter(f"the design reads {strangers[0]!r}, which has neither a range nor levels there")
            check_reading(design.read, site.unit_column, design.levels)
            _tokens(question, design.read, schema)
            # Before any row: a model that does not fit is a fault of the plan.
            _imputation(question, design, site)
            yield from _definition_refusals(question, design.read, schema)
            # The columns that are read, not those of the design matrix, which are made from them.
            yield from column_refusals(schema, design.read, design.levels, design.missing)
        else:
            columns = _columns(question, site)
            categories, rules = _roles(plan, columns)
            check_reading(columns, site.unit_column, categories)
            _tokens(question, columns, schema)
            _check_names(columns, site, schema)
            yield from _definition_refusals(question, columns, schema)
            yield from column_refusals(schema, columns, categories, rules)


# Kinds of data in messages.
_KINDS = {"table": "a table", "images": "brain images", "documents": "documents"}


def _kind(question: Question) -> str:
    """Kind of data of a question, from the public files it names."""
    if {"mask", "atlas"} & question.files.keys():
        return "images"
    return "documents" if "vocabulary" in question.files else "table"


def _check_names(columns: Sequence[str], site: SiteFile, schema: DataSchema) -> None:
    """Check column names against an array file without names.

    A plan may name the columns of such an array freely if it names all of them. Otherwise each name must exist.
    """
    if schema.n_columns is None or len(columns) == schema.n_columns:
        return
    if unknown := set(columns) - set(table_names(site.path, site.unit_column, site.delimiter, site.encoding)):
        raise BadParameter(f"the data of this site have no column {min(unknown)!r}")


def _definition_refusals(
    question: Question, columns: Sequence[str], schema: DataSchema
) -> Iterator[PolicyRefused | BadParameter]:
    """Yield refusals of columns that the plan defines otherwise than the schema."""
    try:
        stated = _DEFINITIONS.validate_python(question.preprocessing.get("definitions", {}))
    except ValidationError:
        raise BadParameter("the definitions of a plan are texts by column") from None
    for name in columns:
        declared = schema.column(name)
        if name in stated and declared is not None and declared.definition != stated[name]:
            yield PolicyRefused(f"column {name!r} of this site has not the definition that the plan states")


def _image_refusals(imaging: ImagingTable, space: Masker, schema: ImagesSchema | None) -> Iterator[ZerosumError]:
    """Yield refusals by the declared facts about all runs. A run that contradicts these facts counts as zeros."""
    if schema is None:
        return
    # A missing library would otherwise be an error after the consent, in the middle of a study.
    imaging.preprocessing.check_libraries()
    seconds = imaging.seconds or schema.seconds
    if seconds is None:
        yield PolicyRefused("some runs of this site do not state the seconds between volumes: give `seconds`")
    # 0.5 / seconds is the Nyquist frequency.
    elif imaging.band is not None and imaging.band[1] >= 0.5 / seconds:
        yield PolicyRefused(
            f"the band ends at {imaging.band[1]:g} Hz, beyond what {seconds:g} s between volumes of this site resolve"
        )
    asked = (
        *imaging.confounds,
        *((MOTION_COLUMN,) if imaging.scrub_mm is not None and imaging.strategy is None else ()),
    )
    if unknown := [name for name in asked if name not in schema.confounds]:
        yield PolicyRefused(f"the tables of confounds of this site have no column {unknown[0]!r}")
    if imaging.strategy is not None and imaging.strategy not in schema.strategies:
        yield PolicyRefused(f"this site declares no confounds for the strategy {imaging.strategy!r}")
    # A run must have more volumes than regressors: the confounds, a constant and a trend.
    if len(imaging.confounds) + 2 >= schema.volumes:
        yield PolicyRefused(f"runs of this site have too few volumes for {len(imaging.confounds)} confounds")
    for name in SELECTED_BY:
        value = getattr(imaging, name)
        if value is not None and value not in schema.selectable.get(name, ()):
            yield PolicyRefused(f"this site has no images with {name} {value!r}")
    if not imaging.resample and schema.shape is not None and schema.affine is not None:
        # 1e-3 mm: headers store affines as float32. Chosen by hand; no benchmark recorded.
        same = space.shape == schema.shape and np.allclose(space.affine, schema.affine, atol=1e-3)
        if not same:
            yield PolicyRefused("images of this site lie on another grid than the study's: set `resample`")


def load_for(
    plan: Plan,
    site: SiteFile,
    schema: DataSchema | None = None,
    faults: Faults | None = None,
    raw: list[Units] | None = None,
) -> Units:
    """Units of a site in the columns of a plan, preprocessed as the plan states, on the site's device.

    Parameters
    ----------
    plan : Plan
        Its question names columns, categories and preprocessing.
    site : SiteFile
        Where the data are.
    schema : DataSchema, optional
        The declared schema. Its tokens for missing values apply beside the plan's.
    faults : list, optional
        Receives unfit cells and runs. None of them raises an error then.
    raw : list of Units, optional
        Receives the rows of a table as they were read, before a design makes its columns.
    """
    with _as_bad_parameter():
        return _load(plan, site, schema, faults, raw).on(site.device)


def _load(
    plan: Plan, site: SiteFile, schema: DataSchema | None, faults: Faults | None, raw: list[Units] | None
) -> Units:
    """Dispatch on the kind of data."""
    question = plan.question
    match _kind(question):
        case "images":
            return _images(question, site, faults)
        case "documents":
            return _documents(question, site)
    # Without a list the reader raises at an unfit cell; with one it records the cell and continues.
    cells: list[CellFault] | None = None if faults is None else []
    categories: Mapping[str, Any]
    rules: Mapping[str, Any]
    design = _design(question)
    if design is not None:
        _check_columns(question, design.columns)
        columns, categories, rules = design.read, design.levels, design.missing
    else:
        columns = _columns(question, site)
        categories, rules = _roles(plan, columns)
    table = load_units(
        site.path,
        columns=columns,
        unit_column=site.unit_column,
        categories=categories,
        missing=rules,
        missing_tokens=_tokens(question, columns, schema),
        faults=cells,
        **site.reading(schema),
    )
    if faults is not None:
        faults += cells or []
    if raw is not None:
        raw.append(table.units)
    if design is not None:
        # The site's name selects its own effect, where sites have effects of their own.
        imputation = _imputation(question, design, site)
        return design.expand(table.units, site.name, strict=faults is None, storage=site.storage, imputation=imputation)
    _check_columns(question, table.columns)
    return table.units


def fault_lines(faults: Faults, rules: Sequence[str] | None = None) -> list[str]:
    """Sentences about unfit cells and runs, for the owner of the data.

    Parameters
    ----------
    faults : list
        Unfit cells and runs.
    rules : sequence of str, optional
        The rules for missing values of the algorithm, in words: columns with missing values are then in one sentence.
    """
    if rules is not None:
        cells = [each for each in faults if not isinstance(each, str)]
        faults = [*join_missing(cells, rules), *(each for each in faults if isinstance(each, str))]
    return [each if isinstance(each, str) else f"{each.sentence} (data row {each.row})" for each in faults]


@contextmanager
def _as_bad_parameter() -> Iterator[None]:
    """Convert validation errors of pydantic to `BadParameter`."""
    try:
        yield
    except ValidationError as error:
        raise BadParameter(f"the plan's question: {first_fault(error)}") from None


def _design(question: Question) -> Design | None:
    """The design in a question, or None."""
    design = question.preprocessing.get("design")
    formula = design.get("formula") if isinstance(design, dict) else None
    # The parser of R's formulas expands powers without a limit, and its input would come from the coordinator.
    if isinstance(formula, str) and not is_expanded(formula):
        raise BadParameter("the plan's question: the formula of the design is not expanded into + and :")
    return None if design is None else Design.model_validate(design)


def _imputation(question: Question, design: Design, site: SiteFile) -> Imputation | None:
    """How missing values are drawn, from the site's own copy of the public model; None without that rule."""
    if "imputation" not in question.files:
        return design.imputation(None)
    try:
        model = ImputationModel.load(_own_file(question, site, "imputation"))
    except BadStudy:
        raise BadParameter("the imputation of the study is a file of this site that holds no model") from None
    return design.imputation(model)


def _columns(question: Question, site: SiteFile) -> tuple[str, ...]:
    """Columns that a plan asks about.

    A plan lists the names, or, for many columns, only their number and digest. Then they are either all columns of the
    file in its order, or the default names of unnamed columns (x0, x1, ..., class).
    """
    if len(question.columns) == question.n_columns:
        return question.columns
    own = table_names(site.path, site.unit_column, site.delimiter, site.encoding)
    if question.n_columns != len(own):
        raise BadParameter("the data do not have as many columns as the plan asks about")
    numbered = (*(f"x{at}" for at in range(len(own) - 1)), "class")
    return numbered if columns_digest(numbered) == question.columns_digest else own


def _roles(plan: Plan, columns: tuple[str, ...]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Categories and missing-value rules of columns, from the plan's algorithm.

    A plan has only digests of large arrays among the parameters. The algorithm is therefore constructed without
    validation; categories and rules do not depend on these arrays.

    Returns
    -------
    categories, rules : mappings
        Declared categories, and rules for missing values, by column.

    Raises
    ------
    BadParameter
        For an unknown algorithm or malformed parameters.
    """
    kind = algorithms.find(plan.algorithm)
    given = plan.question.parameters
    known: dict[str, Any] = {name: value for name, value in given.items() if name in kind.model_fields}
    try:
        algorithm = kind.model_construct(**{**known, "columns": columns})
        return _CATEGORIES.validate_python(algorithm.categories), _RULES.validate_python(algorithm.rules)
    except ZerosumError:
        raise
    except (ValidationError, TypeError, ValueError, AttributeError, LookupError):
        raise BadParameter("the plan's question lacks parameters of its algorithm") from None


def _documents(question: Question, site: SiteFile) -> Units:
    """Documents as word counts, with the site's own copy of the vocabulary."""
    words = load_vocabulary(_own_file(question, site, "vocabulary"))
    _check_columns(question, words)
    return load_documents(site.path, words)


def _own_file(question: Question, site: SiteFile, use: str) -> Path:
    """Path of the site's own copy of a public file, found by the digest in the plan."""
    own = [site.folder / path for path in site.files]
    # By content and not by name: the coordinator must not choose which file of a site is read.
    file = next((path for path in own if digest(path) == question.files[use]), None)
    if file is None:
        raise BadParameter(f"the {use} of the study is not among the files of this site")
    return file


def _check_columns(question: Question, columns: Sequence[str]) -> None:
    """Check that the columns to be read are those named in the plan, since policies decide by the names in the plan.

    Parameters
    ----------
    question : Question
        The question of the plan, which has the digest of all names and, for few columns, the names.
    columns : sequence of str
        The columns that would be read.
    """
    if columns_digest(columns) != question.columns_digest:
        raise BadParameter("the columns are not those that the plan's digest names")
    if len(question.columns) == question.n_columns and tuple(columns) != question.columns:
        raise BadParameter("the columns are not those that the plan names")


def _imaging(question: Question, site: SiteFile) -> tuple[ImagingTable, Masker]:
    """Preprocessing of images, and the public grid from the site's own copy of the mask or atlas."""
    use = "mask" if "mask" in question.files else "atlas"
    file = _own_file(question, site, use)
    # Other entries of the preprocessing (`measured_in`, tokens) are not parameters of images.
    known = {name: value for name, value in question.preprocessing.items() if name in ImagingTable.model_fields}
    imaging = ImagingTable.model_validate(known | {use: file.absolute()})
    return imaging, imaging.load_space(site.folder)


def _images(question: Question, site: SiteFile, faults: Faults | None) -> Units:
    """Images as units. See `load_for` for `faults`."""
    imaging, space = _imaging(question, site)
    _check_columns(question, space.columns)
    runs: list[str] | None = None if faults is None else []
    units = load_images(site.path, space, imaging.preprocessing, imaging.selection, faults=runs).units
    if faults is not None:
        faults += runs or []
    return units


def _tokens(question: Question, columns: Sequence[str], schema: DataSchema | None) -> dict[str, list[str | float]]:
    """Tokens for missing values by column: those of the plan, then those of the schema."""
    try:
        asked = _TOKENS.validate_python(question.preprocessing.get("missing_tokens", ()))
    except ValidationError:
        raise BadParameter("missing_tokens must be a list of words and numbers, or such lists by column") from None
    return site_tokens(asked, columns, schema)


def site_tokens(asked: Tokens, columns: Sequence[str], schema: DataSchema | None) -> dict[str, list[str | float]]:
    """Tokens for missing values by column: those of a study, then those of a site's schema.

    Parameters
    ----------
    asked : sequence or mapping
        The tokens of the study, for all columns or by column.
    columns : sequence of str
        The columns to read.
    schema : DataSchema or None
        The site's schema.
    """
    # One list is for all columns.
    by_plan = asked if isinstance(asked, Mapping) else dict.fromkeys(columns, asked)
    if unknown := sorted(by_plan.keys() - set(columns)):
        raise BadParameter(f"tokens for missing values are given for {unknown[0]!r}, which is not a column to read")
    declared = {} if schema is None else {name: schema.columns[name].tokens for name in schema.columns}
    return {name: [*by_plan.get(name, ()), *declared.get(name, ())] for name in columns}
