"""Export of a result: files with its tables in one format, and its pictures by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.significance import Correction, adjusted, adjusted_pairs
from zerosum.report.coefficients import CoefficientTable, JointTest, combination
from zerosum.report.document import Forest, Picture, Table, Text
from zerosum.report.guarantee_text import study_title
from zerosum.report.json_text import finite
from zerosum.report.methods_text import methods
from zerosum.report.paper import (
    PaperTable,
    coefficient_table,
    docx,
    html_page,
    joint_table,
    labelled,
    latex,
    paper_tables,
)
from zerosum.report.record import Result
from zerosum.report.result_blocks import result_blocks
from zerosum.report.tidy import TidyTable, of_coefficients, of_joint_tests, tidy_tables

FORMATS = ("csv", "json", "latex", "html", "docx")
_SUFFIXES = {"csv": "csv", "json": "json", "latex": "tex", "html": "html", "docx": "docx"}
# Pictures that go into a Word file; others are made with `zerosum results picture`.
_IN_DOCUMENTS = ("forest", "curves")

T = TypeVar("T")


@dataclass(frozen=True)
class Changes:
    """Tables of a regression that are derived on request.

    Attributes
    ----------
    per : mapping of str to float
        Steps of features (`CoefficientTable.per`).
    contrasts : tuple of str
        Combinations as text (`coefficients.combination`), about coefficients per unit, not per step.
    margins : mapping of str to sequence of float
        Values of features (`CoefficientTable.margins`).
    labels : mapping of str to str
        Other names of columns, terms and levels ("COLUMN = LEVEL") in tables of text and in forest plots.
    tests : mapping of str to tuple of str
        Terms of joint tests of coefficients by the name of the test (`CoefficientTable.joint`).
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment of the p values of each table for its number of tests.
    """

    per: Mapping[str, float] = field(default_factory=dict)
    contrasts: tuple[str, ...] = ()
    margins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    correction: Correction = "none"

    @classmethod
    def parse(
        cls,
        per: Sequence[str] = (),
        contrasts: Sequence[str] = (),
        margins: Sequence[str] = (),
        labels: Sequence[str] = (),
        tests: Sequence[str] = (),
        correction: Correction = "none",
    ) -> Changes:
        """The changes from texts of a command line. Raises `BadParameter`.

        Parameters
        ----------
        per, contrasts, margins, labels, tests : sequence of str
            COLUMN=STEP; combinations; COLUMN=A,B; COLUMN=TEXT or COLUMN:LEVEL=TEXT; terms separated by semicolons.
        correction : {"none", "holm", "benjamini-hochberg"}
            Adjustment of p values.
        """
        steps = {}
        for each in per:
            name, values = _assignment(each)
            if len(values) != 1:
                raise BadParameter(f"{each!r} must be COLUMN=STEP, one number")
            steps[name] = values[0]
        names = {}
        for each in labels:
            # The last equals sign separates: names of terms may contain others.
            name, separator, text = each.rpartition("=")
            if not (separator and name.strip() and text.strip()):
                raise BadParameter(f"{each!r} must be COLUMN=TEXT or COLUMN:LEVEL=TEXT")
            column, colon, level = name.strip().rpartition(":")
            names[name.strip()] = text.strip()
            if colon:  # a level, unless it is the name of an interaction
                names[f"{column} = {level}"] = text.strip()
        # Names of terms may contain commas ("bs(age, df=4)[1]") and colons (interactions), so that semicolons separate.
        joint = {text.strip(): tuple(filter(None, map(str.strip, text.split(";")))) for text in tests}
        return cls(steps, tuple(contrasts), dict(map(_assignment, margins)), names, joint, correction)

    @property
    def derive(self) -> bool:
        """Whether tables of a regression are derived."""
        return bool(self.per or self.contrasts or self.margins or self.tests)


def _assignment(text: str) -> tuple[str, list[float]]:
    """Name and numbers of COLUMN=A,B. The last equals sign separates: names of terms may contain others."""
    name, separator, values = text.rpartition("=")
    try:
        numbers = [float(each) for each in values.split(",")]
    except ValueError:
        numbers = []
    if not (separator and name.strip() and numbers):
        raise BadParameter(f"{text!r} must be COLUMN=NUMBER")
    return name.strip(), numbers


def coefficient_tables(result: Result, changes: Changes) -> list[CoefficientTable]:
    """Tables of a regression: ratios, coefficients, standardised ones, contrasts, margins; empty for other results.

    Parameters
    ----------
    result : Result
        The result.
    changes : Changes
        Steps, contrasts and margins. Raises `BadParameter` if the result is no regression.
    """
    if "pooled_std" not in result.estimate:
        if changes.derive:
            raise BadParameter("--per, --contrast, --margin and --test are for regressions with standard errors")
        return []
    table = CoefficientTable.of(result.estimate, result.plan.algorithm)
    stepped = table.per(changes.per) if changes.per else table
    found = [stepped.ratios()] if table.ratio else []
    found.append(stepped)
    if table.feature_std:
        found.append(table.standardised())
    if changes.contrasts:
        # Contrasts are about coefficients per unit, whatever `per` is: their weights state the steps.
        combined = table.contrasts(_combinations(changes.contrasts, table.names))
        found.append(combined.named("contrast"))
        if table.ratio:
            found.append(combined.ratios().named(f"{table.ratio} of contrast"))
    if changes.margins:
        found.append(table.margins(changes.margins))
    return [each.adjusted(changes.correction) if each.tested else each for each in found]


def joint_tests(result: Result, changes: Changes) -> list[JointTest]:
    """Joint tests of coefficients, adjusted for their number if there is a correction.

    Parameters
    ----------
    result : Result
        The result.
    changes : Changes
        The tests. Raises `BadParameter` if the result is no regression.
    """
    if not changes.tests:
        return []
    if "pooled_std" not in result.estimate:
        raise BadParameter("--test is for regressions with standard errors")
    table = CoefficientTable.of(result.estimate, result.plan.algorithm)
    found = [table.joint(terms, name) for name, terms in changes.tests.items()]
    if changes.correction == "none":
        return found
    values = adjusted(np.array([each.p_value for each in found]), changes.correction).tolist()
    return [replace(each, p_adjusted=value) for each, value in zip(found, values, strict=True)]


def _corrected(result: Result, correction: Correction) -> Mapping[str, Quantity]:
    """The estimate with adjusted p values of hypothesis tests, correlations and group comparisons.

    Parameters
    ----------
    result : Result
        The result.
    correction : {"none", "holm", "benjamini-hochberg"}
        "none" leaves the estimate as it is, with the correction of the study if it has one.
    """
    if correction == "none" or "pooled_std" in result.estimate:
        return result.estimate
    pairs = {"p_value": "p_adjusted", "group_p_value": "group_p_adjusted"}
    if not (tests := [name for name in pairs if name in result.estimate]):
        raise BadParameter("--correction is for results with p values, and this result has none")
    found = dict(result.estimate)
    for name in tests:
        p = found[name]
        values = adjusted_pairs(p.value, correction) if p.value.ndim == 2 else adjusted(p.value, correction)
        found[pairs[name]] = replace(p, value=values)
    return found


def _combinations(texts: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Weights of combinations by their name, by default their text."""
    found = {}
    for text in texts:
        name, weights = combination(text, names)
        found[name or text.strip()] = weights
    return found


def tidy(result: Result, changes: Changes | None = None) -> dict[str, TidyTable]:
    """Tidy tables of a result by name, with the derived ones; of a descriptive study also Table 1 as text.

    Parameters
    ----------
    result : Result
        The result.
    changes : Changes, optional
        Steps, contrasts and margins.
    """
    tables = [of_coefficients(each) for each in coefficient_tables(result, changes or Changes())]
    # Coefficients first, as in broom; ratios are derived from them.
    derived = {each.name: each for each in sorted(tables, key=lambda each: each.name != "coefficients")}
    wanted = changes or Changes()
    estimate = _corrected(result, wanted.correction)
    if tests := joint_tests(result, wanted):
        derived["joint_tests"] = of_joint_tests(tests)
    found = derived | {
        name: each for name, each in tidy_tables(estimate, result.plan.algorithm).items() if name not in derived
    }
    papers = _papers(result, Changes(labels=wanted.labels, correction=wanted.correction))
    if "table1" in papers:
        found = {"table1": papers["table1"].as_tidy()} | found
    return found


def _papers(result: Result, changes: Changes) -> dict[str, PaperTable]:
    """Tables for a paper by name, with the derived ones."""
    units = [site.units for site in result.plan.sites]
    total = None if any(each is None for each in units) else float(sum(each or 0 for each in units))
    # A regression is adjusted after steps and contrasts are derived; other results have their p values in the estimate.
    if changes.derive or (changes.correction != "none" and "pooled_std" in result.estimate):
        found = {each.name: each for each in map(coefficient_table, coefficient_tables(result, changes))}
        if tests := joint_tests(result, changes):
            found["joint_tests"] = joint_table(tests, changes.correction)
    else:
        estimate, algorithm = _corrected(result, changes.correction), result.plan.algorithm
        found = paper_tables(estimate, result.plan.question, algorithm, total, changes.correction)
    return {name: each.labelled(changes.labels) for name, each in found.items()} if changes.labels else found


def exported(
    result: Result, format_: str, names: tuple[str, ...] = (), changes: Changes | None = None
) -> dict[str, bytes]:
    """Files of a result in one format, by name: one for each table in CSV, else one.

    Parameters
    ----------
    result : Result
        The result.
    format_ : {"csv", "json", "latex", "html", "docx"}
        CSV and JSON hold tidy tables with all digits; the others hold tables of text, notes and the methods text, and
        Word also forest plots and survival curves.
    names : tuple of str
        Names of the tables; all if empty.
    changes : Changes, optional
        Steps, contrasts and margins of a regression.

    Raises
    ------
    BadParameter
        If there is no such format or table.
    """
    if format_ not in FORMATS:
        raise BadParameter(f"the format must be one of {', '.join(FORMATS)}, got {format_!r}")
    wanted = changes or Changes()
    title, suffix = study_title(result.plan.study), _SUFFIXES[format_]
    if format_ in ("csv", "json"):
        tables = _chosen(tidy(result, wanted), names)
        if format_ == "csv":
            # Names are those of quantities in a result that others may have written: none may lead out of a folder.
            if stray := [name for name in tables if set("/\\:\0") & set(name)]:
                raise BadInput(f"{stray[0]!r} cannot be the name of a file")
            return {f"{name}.{suffix}": each.to_csv().encode() for name, each in tables.items()}
        record: dict[str, Any] = {
            "study": result.plan.study,
            "algorithm": result.plan.algorithm,
            "methods": list(methods(result)),
            "tables": {name: each.records() for name, each in tables.items()},
        }
        return {f"tables.{suffix}": (json.dumps(finite(record), indent=1, ensure_ascii=False) + "\n").encode()}
    papers = list(_chosen(_papers(result, wanted), names).values())
    # A chosen table stands alone; the whole export is a draft of the paper's section.
    text = () if names else methods(result)
    if format_ == "latex":
        return {f"tables.{suffix}": latex(papers, text).encode()}
    if format_ == "html":
        return {f"tables.{suffix}": html_page(title, papers, text).encode()}
    drawn = [] if names else [each for each in pictures(result, wanted).values() if each.kind in _IN_DOCUMENTS]
    return {f"tables.{suffix}": docx(title, papers, text, drawn)}


def _chosen(tables: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    """The tables of these names, or all. Raises `BadParameter`."""
    if not tables:
        raise BadInput("this result has no tables")
    if unknown := [name for name in names if name not in tables]:
        raise BadParameter(f"there is no table {unknown[0]!r}; tables: {', '.join(tables)}")
    return {name: tables[name] for name in names} if names else dict(tables)


def pictures(result: Result, changes: Changes | None = None) -> dict[str, Picture]:
    """Pictures of a result by name, those of the report. Names are titles in lower case with hyphens.

    Parameters
    ----------
    result : Result
        The result.
    changes : Changes, optional
        Steps of features, and labels, in forest plots.
    """
    found: dict[str, Picture] = {}
    per, names = (changes or Changes()).per, (changes or Changes()).labels
    if per:
        # Ratios come first where the model has them: they are what a forest plot of a paper shows.
        shared = coefficient_tables(result, Changes(per))[0]
        found[_slug(shared.title)] = _labelled(shared.forest(), names)
    for block in result_blocks(result.estimate, result.plan.question, algorithm=result.plan.algorithm):
        if isinstance(block, Text | Table):
            continue
        # A forest plot with steps replaces the one without.
        if per and isinstance(block, Forest) and _slug(block.title) in found:
            continue
        name = _slug(block.title)
        if isinstance(block, Forest):
            block = _labelled(block, names)
        free = next(each for each in (name, *(f"{name}-{at}" for at in range(2, 10000))) if each not in found)
        found[free] = block
    return found


def _labelled(picture: Forest, labels: Mapping[str, str]) -> Forest:
    """A forest plot with other names of its rows."""
    return replace(picture, rows=tuple(replace(row, label=labelled(row.label, labels)) for row in picture.rows))


def _slug(title: str) -> str:
    """A title as a name: lower case, with hyphens.

    >>> _slug("Odds ratios (95 %)")
    'odds-ratios-95'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
