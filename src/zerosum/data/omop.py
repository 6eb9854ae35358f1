"""Person-level variables of an OMOP database (Common Data Model 5.3 and 5.4), by public definitions.

A public file defines a cohort and variables by the identifiers of OMOP's concepts. The study names that file, and so
does each site, whose database stays its own. `Definitions.statement` writes one query for PostgreSQL and DuckDB, with
one row for each person:

    people     person_id, year of birth, sex: one row for each person, also if a table repeats the person
    indexed    the index day: a public day, or the first record of some concepts; and the person's observation period
               that contains it
    cohort     persons with `prior_days` of observation before the index day, without the excluded concepts up to it
    v0, v1 ... one row for each person with records for that variable

Every part is joined and grouped by person_id, and nothing else is compared between rows. So whether a person is in the
result, and that person's cells, depend on that person's records and on the site's vocabulary only; records of other
people cannot change them. `tests/data/test_omop.py` changes the records of one person and compares all other rows.

The text of a query has whole numbers, days and names of tables from this module; the only text of others in it are
names of columns and the database's schema, which are plain identifiers. Windows of variables end at the index day or
before it, so that no variable of the past looks into the future.
"""

# ruff: noqa: S608 # texts of queries are built from numbers, days and plain identifiers only

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from zerosum.errors import BadStudy, first_fault

# OMOP stores identifiers in 32 bits; the largest is 2^31 - 1.
Concept = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
# Days of a century: before the first records of any database.
_ALL_DAYS = 36525
_MALE, _FEMALE = 8507, 8532
# A plain identifier; PostgreSQL cuts names after 63 bytes.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
# Tables of records: name, column of the concept, column of the day, column of the identifier.
_TABLES = {
    "condition": ("condition_occurrence", "condition_concept_id", "condition_start_date", "condition_occurrence_id"),
    "drug": ("drug_exposure", "drug_concept_id", "drug_exposure_start_date", "drug_exposure_id"),
    "measurement": ("measurement", "measurement_concept_id", "measurement_date", "measurement_id"),
    "death": ("death", "", "death_date", ""),
}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Records(_Table):
    """Some records of a person, by concepts."""

    kind: Literal["condition", "drug", "death"]
    """Conditions, exposures to drugs, or death, which has no concepts."""
    concepts: tuple[Concept, ...] = ()
    """Standard concepts of OMOP, by their identifiers: `[201826]`."""
    descendants: bool = Field(False, strict=True)
    """Whether concepts below these count too, by the site's table `concept_ancestor`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind == "death") == bool(self.concepts) or (self.kind == "death" and self.descendants):
            raise ValueError(f"{self.kind} {'has no' if self.kind == 'death' else 'needs'} concepts")
        return self


class CohortTable(_Table):
    """Table [cohort]: the persons, and the index day of each."""

    index: date | Records
    """The index day: a public day, `2015-01-01`, or each person's first record,
    `{ kind = "condition", concepts = [201826] }`. Only persons under observation on that day are in the cohort."""
    prior_days: int = Field(0, ge=0, le=_ALL_DAYS, strict=True)
    """The fewest days of observation before the index day."""
    without: Records | None = None
    """Persons with such a record on the index day or before it are left out."""

    @field_validator("index")
    @classmethod
    def _plain_day(cls, value: date | Records) -> date | Records:
        if isinstance(value, date) and not date(1900, 1, 1) <= value <= date(2100, 1, 1):
            raise ValueError(f"a day of 1900 to 2100, got {value}")
        return value


class OutcomeTable(Records):
    """Table [outcome]: the event after the index day, for variables of the kinds `time` and `event`."""

    horizon: int = Field(_ALL_DAYS, ge=1, le=_ALL_DAYS, strict=True)
    """Persons without the event are censored after this number of days, or at the end of their observation."""


class Variable(_Table):
    """Table [variables.NAME]: one column."""

    kind: Literal["age", "sex", "condition", "drug", "measurement", "time", "event"]
    """`age`: the year of the index day minus that of birth. `sex`: `"female"`, `"male"` or `"other"`. `condition`,
    `drug`: 1 with such a record, else 0. `measurement`: a number, missing without a record. `time`: days to the outcome
    or to censoring. `event`: 1 if the outcome was seen, else 0."""
    concepts: tuple[Concept, ...] = ()
    """Of `condition`, `drug` and `measurement`."""
    descendants: bool = Field(False, strict=True)
    """Whether concepts below these count too."""
    days: tuple[int, int] = (-365, 0)
    """First and last day of the records, from the index day; the last is at most 0."""
    value: Literal["last", "mean"] = "last"
    """Of several measurements: the last one (of one day, that with the largest identifier), or their mean."""
    unit: Concept | None = None
    """Only measurements with this concept of a unit."""
    range: tuple[float, float] | None = None
    """The plausible range, for the schemas that sites draft. It changes no value."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        recorded = self.kind in ("condition", "drug", "measurement")
        if recorded != bool(self.concepts) or (self.descendants and not recorded):
            raise ValueError(f"a variable of the kind {self.kind!r} {'needs' if recorded else 'has no'} concepts")
        if not recorded and "days" in self.model_fields_set:
            raise ValueError(f"a variable of the kind {self.kind!r} has no days")
        if self.kind != "measurement" and ({"value", "unit"} & self.model_fields_set):
            raise ValueError("value and unit are of measurements")
        if not -_ALL_DAYS <= self.days[0] <= self.days[1] <= 0:
            raise ValueError(f"days are two whole numbers up to 0, the lower one first, got {list(self.days)}")
        if self.range is not None and (self.kind == "sex" or not self.range[0] < self.range[1]):
            raise ValueError("a range is of numbers, the lower one first")
        return self


class Definitions(_Table):
    """A public file that defines the columns of OMOP sites.

    >>> cohort = {"index": {"kind": "condition", "concepts": [201826]}, "prior_days": 365}
    >>> sbp = {"kind": "measurement", "concepts": [3004249], "days": [-90, 0]}
    >>> found = Definitions(cohort=cohort, variables={"age": {"kind": "age"}, "sbp": sbp})
    >>> found.definition("age")
    '{"cohort":{"index":{"concepts":[201826],"kind":"condition"},"prior_days":365},"variable":{"kind":"age"}}'
    """

    cohort: CohortTable
    """Who is counted, and from which day."""
    outcome: OutcomeTable | None = None
    """What follows."""
    variables: dict[str, Variable] = Field(min_length=1, max_length=200)
    """The columns, by name."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        followed = [name for name, each in self.variables.items() if each.kind in ("time", "event")]
        if bool(followed) != (self.outcome is not None):
            raise ValueError("variables of the kinds time and event need an [outcome], which is for them only")
        if unfit := [name for name in self.variables if not _NAME.match(name)]:
            raise ValueError(f"the name of a column has letters, digits and _, at most 63, got {unfit[0]!r}")
        # DuckDB takes names that differ in case for equal.
        if len({name.lower() for name in self.variables}) < len(self.variables):
            raise ValueError("two variables have the same name")
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file. Raises `BadStudy`."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise BadStudy(f"the definitions {path} cannot be read: {error.strerror or error}") from None
        except ValidationError as error:
            raise BadStudy(f"the definitions {path}: {first_fault(error)}") from None
        except ValueError as error:  # not UTF-8, or not TOML
            raise BadStudy(f"the definitions {path} are not a TOML file: {error}") from None

    def definition(self, name: str) -> str:
        """The definition of a column as one line, for plans and schemas. Equal lines are equal definitions."""
        variable = self.variables[name]
        parts: dict[str, BaseModel] = {"cohort": self.cohort, "variable": variable}
        if variable.kind in ("time", "event") and self.outcome is not None:
            parts["outcome"] = self.outcome
        record = {part: each.model_dump(mode="json", exclude_defaults=True) for part, each in parts.items()}
        record["variable"].pop("range", None)  # changes no value
        return json.dumps(record, sort_keys=True, separators=(",", ":"))

    def columns(self) -> dict[str, dict[str, Any]]:
        """What a schema declares about each column, as its entries."""
        return {name: {"definition": self.definition(name), **_entries(each)} for name, each in self.variables.items()}

    def statement(self, schema: str | None = None) -> str:
        """The query, for PostgreSQL and DuckDB.

        Parameters
        ----------
        schema : str, optional
            The schema of the database that holds the tables, a plain identifier.
        """
        parts = list(self._parts("" if schema is None else f"{schema}."))
        columns = ", ".join(f'{_cell(at, each)} AS "{name}"' for at, (name, each) in enumerate(self.variables.items()))
        joined = " ".join(f"LEFT JOIN v{at} ON v{at}.person_id = c.person_id" for at in self._recorded())
        followed = "" if self.outcome is None else " LEFT JOIN follow f ON f.person_id = c.person_id"
        ctes = ",\n".join(f"{name} AS ({text})" for name, text in parts)
        return f"WITH {ctes}\nSELECT {columns} FROM cohort c {joined}{followed} ORDER BY c.person_id"

    def _recorded(self) -> list[int]:
        """Places of the variables with a part of their own."""
        return [at for at, each in enumerate(self.variables.values()) if each.concepts]

    def _parts(self, at: str) -> Iterator[tuple[str, str]]:
        """Names and texts of the parts of the query. `at`: prefix of tables."""
        # MAX and GROUP BY: one row for each person, whatever the table holds.
        yield (
            "people",
            (
                "SELECT person_id, MAX(year_of_birth) AS born, MAX(gender_concept_id) AS sex "
                f"FROM {at}person GROUP BY person_id"
            ),
        )
        index = self.cohort.index
        first = (
            f"SELECT person_id, DATE '{index.isoformat()}' AS day FROM people"
            if isinstance(index, date)
            else f"SELECT r.person_id, MIN({_day(index.kind)}) AS day FROM {_where(index, at)} GROUP BY r.person_id"
        )
        yield "first", first
        yield (
            "indexed",
            (
                "SELECT i.person_id, i.day, p.born, p.sex, "
                "MIN(CAST(o.observation_period_start_date AS DATE)) AS since, "
                "MAX(CAST(o.observation_period_end_date AS DATE)) AS until FROM first i "
                "JOIN people p ON p.person_id = i.person_id "
                f"JOIN {at}observation_period o ON o.person_id = i.person_id "
                "AND i.day BETWEEN CAST(o.observation_period_start_date AS DATE) "
                "AND CAST(o.observation_period_end_date AS DATE) GROUP BY i.person_id, i.day, p.born, p.sex"
            ),
        )
        without = ""
        if (left := self.cohort.without) is not None:
            without = (
                f" AND NOT EXISTS (SELECT 1 FROM {_where(left, at)} AND r.person_id = x.person_id "
                f"AND {_day(left.kind)} <= x.day)"
            )
        yield "cohort", f"SELECT x.* FROM indexed x WHERE x.day - x.since >= {self.cohort.prior_days}{without}"
        for place in self._recorded():
            yield f"v{place}", _records_of(list(self.variables.values())[place], at)
        if self.outcome is not None:
            day, horizon = _day(self.outcome.kind), self.outcome.horizon
            yield (
                "outcome",
                (
                    f"SELECT c.person_id, MIN({day}) AS day FROM cohort c CROSS JOIN {_where(self.outcome, at)} "
                    f"AND r.person_id = c.person_id AND {day} > c.day GROUP BY c.person_id"
                ),
            )
            # Censored at the end of the observation or at the horizon, whichever is first.
            yield (
                "follow",
                (
                    "SELECT e.person_id, e.day, e.censored, o.day AS event FROM (SELECT c.person_id, c.day, "
                    f"LEAST(c.until, c.day + {horizon}) AS censored FROM cohort c) e "
                    "LEFT JOIN outcome o ON o.person_id = e.person_id AND o.day <= e.censored"
                ),
            )


def _entries(variable: Variable) -> dict[str, Any]:
    """Entries of a schema that follow from the definition of a column alone."""
    if variable.kind == "sex":
        return {"type": "category", "levels": ["female", "male", "other"]}
    found: dict[str, Any] = {"type": "number", "missing": variable.kind == "measurement"}
    if variable.kind in ("condition", "drug", "event"):
        found["range"] = [0, 1]
    return found | ({} if variable.range is None else {"range": list(variable.range)})


def _day(kind: str) -> str:
    """The day of a record `r`."""
    return f"CAST(r.{_TABLES[kind][2]} AS DATE)"


def _where(records: Records | Variable, at: str) -> str:
    """Table of records `r` with the condition on concepts, ready for further conditions."""
    table, concept, day, _ = _TABLES[records.kind]
    there = f"{at}{table} r WHERE r.{day} IS NOT NULL"
    if not records.concepts:
        return there
    listed = ", ".join(str(int(each)) for each in records.concepts)
    below = (
        f" OR r.{concept} IN (SELECT descendant_concept_id FROM {at}concept_ancestor "
        f"WHERE ancestor_concept_id IN ({listed}))"
        if records.descendants
        else ""
    )
    return f"{there} AND (r.{concept} IN ({listed}){below})"


def _records_of(variable: Variable, at: str) -> str:
    """Part of the query with one row for each person with records for a variable."""
    _, _, _, own = _TABLES[variable.kind]
    day, (first, last) = _day(variable.kind), variable.days
    chosen = (
        f"FROM cohort c CROSS JOIN {_where(variable, at)} AND r.person_id = c.person_id "
        f"AND {day} - c.day BETWEEN {first} AND {last}"
    )
    if variable.kind != "measurement":
        return f"SELECT DISTINCT c.person_id {chosen}"
    chosen += " AND r.value_as_number IS NOT NULL"
    chosen += "" if variable.unit is None else f" AND r.unit_concept_id = {int(variable.unit)}"
    number = "CAST(r.value_as_number AS DOUBLE PRECISION)"
    if variable.value == "last":
        # A fixed order also within one day, so that the value does not depend on the order of rows.
        order = f"ORDER BY c.person_id, {day} DESC, r.{own} DESC"
        return f"SELECT DISTINCT ON (c.person_id) c.person_id, {number} AS value {chosen} {order}"
    # In a fixed order, since a sum of doubles depends on it.
    total = f"SUM({number} ORDER BY {day}, r.{own})"
    return f"SELECT c.person_id, {total} / COUNT(*) AS value {chosen} GROUP BY c.person_id"


def _cell(place: int, variable: Variable) -> str:
    """The cell of a variable in the row of a person."""
    match variable.kind:
        case "age":
            return "CAST(EXTRACT(YEAR FROM c.day) - c.born AS DOUBLE PRECISION)"
        case "sex":
            return f"CASE c.sex WHEN {_FEMALE} THEN 'female' WHEN {_MALE} THEN 'male' ELSE 'other' END"
        case "measurement":
            return f"v{place}.value"
        case "time":
            return "CAST(COALESCE(f.event, f.censored) - f.day AS DOUBLE PRECISION)"
        case "event":
            return "CAST(CASE WHEN f.event IS NULL THEN 0 ELSE 1 END AS DOUBLE PRECISION)"
    return f"CAST(CASE WHEN v{place}.person_id IS NULL THEN 0 ELSE 1 END AS DOUBLE PRECISION)"
