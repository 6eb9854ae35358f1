"""A made-up OMOP database: tables as lists of rows, written to DuckDB or PostgreSQL, and variables by plain Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[tuple[Any, ...]]
Tables = dict[str, Rows]

SCHEMAS = {
    "person": "person_id int, gender_concept_id int, year_of_birth int",
    "observation_period": (
        "observation_period_id int, person_id int, observation_period_start_date date, observation_period_end_date date"
    ),
    "condition_occurrence": (
        "condition_occurrence_id int, person_id int, condition_concept_id int, condition_start_date date"
    ),
    "drug_exposure": "drug_exposure_id int, person_id int, drug_concept_id int, drug_exposure_start_date date",
    "measurement": (
        "measurement_id int, person_id int, measurement_concept_id int, measurement_date date, "
        "value_as_number numeric, unit_concept_id int"
    ),
    "death": "person_id int, death_date date",
    "concept_ancestor": "ancestor_concept_id int, descendant_concept_id int",
}
# Position of person_id in the rows of each table of persons.
OWNER = {
    name: next(at for at, each in enumerate(columns.split(", ")) if each.startswith("person_id"))
    for name, columns in SCHEMAS.items()
    if "person_id" in columns
}
DIABETES, TYPE_2, STROKE, CANCER = 201820, 201826, 381316, 443392
METFORMIN, SYSTOLIC, MMHG, KPA = 1503297, 3004249, 8876, 44777602
FEMALE, MALE = 8532, 8507
FIRST, LAST = date(2008, 1, 1), date(2020, 12, 31)

DEFINITIONS = f"""\
[cohort]
index = {{ kind = "condition", concepts = [{DIABETES}], descendants = true }}
prior_days = 180
without = {{ kind = "condition", concepts = [{CANCER}] }}

[outcome]
kind = "condition"
concepts = [{STROKE}]
horizon = 1825

[variables.age]
kind = "age"
range = [18, 110]

[variables.sex]
kind = "sex"

[variables.sbp]
kind = "measurement"
concepts = [{SYSTOLIC}]
unit = {MMHG}
range = [60, 260]

[variables.sbp_mean]
kind = "measurement"
concepts = [{SYSTOLIC}]
unit = {MMHG}
value = "mean"
days = [-730, 0]

[variables.metformin]
kind = "drug"
concepts = [{METFORMIN}]
days = [-90, 0]

[variables.days]
kind = "time"

[variables.stroke]
kind = "event"
"""


def people(rng: np.random.Generator, count: int, first: int = 1) -> Tables:
    """Records of persons with these numbers. Strokes are more frequent with age and with blood pressure."""
    found: Tables = {name: [] for name in SCHEMAS}
    # Type 2 diabetes lies below diabetes; OMOP lists each concept below itself, too.
    found["concept_ancestor"] = [(DIABETES, DIABETES), (DIABETES, TYPE_2)]
    for person in range(first, first + count):
        add_person(rng, found, person)
    return found


def add_person(rng: np.random.Generator, found: Tables, person: int) -> None:
    """Add the records of one person."""

    def day(start: date, end: date) -> date:
        return start + timedelta(days=int(rng.integers(max((end - start).days, 1))))

    def add(table: str, *cells: Any) -> None:
        # Numbers of records are those of the person, so that other persons keep theirs.
        counts[table] += 1
        found[table].append((person * 1000 + counts[table], person, *cells))

    counts: Counter[str] = Counter()

    born = int(rng.integers(1930, 1985))
    found["person"].append((person, int(rng.choice([FEMALE, MALE, 0], p=[0.5, 0.47, 0.03])), born))
    start, end = day(FIRST, date(2011, 1, 1)), day(date(2014, 1, 1), LAST)
    add("observation_period", start, end)
    index = day(date(2010, 1, 1), date(2014, 1, 1))
    if rng.random() < 0.9:
        for at in range(int(rng.integers(1, 4))):
            add("condition_occurrence", int(rng.choice([DIABETES, TYPE_2])), index + timedelta(days=30 * at))
    if rng.random() < 0.05:
        add("condition_occurrence", CANCER, day(FIRST, LAST))
    pressure = float(rng.normal(135, 15))
    for _ in range(int(rng.integers(0, 6))):
        unit, value = (MMHG, pressure + float(rng.normal(0, 5))) if rng.random() < 0.9 else (KPA, 17.0)
        number = None if rng.random() < 0.05 else round(value, 1)
        # Several on one day: the last one is that with the largest number.
        add("measurement", SYSTOLIC, index - timedelta(days=100 * int(rng.integers(-1, 9))), number, unit)
    if rng.random() < 0.6:
        add("drug_exposure", METFORMIN, index - timedelta(days=int(rng.integers(-60, 200))))
    hazard = math.exp(0.06 * (index.year - born - 55) + 0.04 * (pressure - 135)) / 3000
    stroke = index + timedelta(days=1 + int(rng.exponential(1 / hazard)))
    if stroke < date(2030, 1, 1):
        add("condition_occurrence", STROKE, stroke)
    if rng.random() < 0.1:
        found["death"].append((person, end))


def persons_of(tables: Tables, kept: Callable[[int], bool]) -> Tables:
    """The records of some persons, and the vocabulary."""
    return {name: [row for row in rows if name not in OWNER or kept(row[OWNER[name]])] for name, rows in tables.items()}


def write_duckdb(path: Path, tables: Mapping[str, Rows], schema: str = "main") -> None:
    """Write the tables to a DuckDB file."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        write(connection.execute, tables, schema)


def write(run: Callable[[str], Any], tables: Mapping[str, Rows], schema: str) -> None:
    """Create the tables and insert the rows."""
    for name, rows in tables.items():
        run(f"CREATE TABLE {schema}.{name} ({SCHEMAS[name]})")
        if rows:
            run(f"INSERT INTO {schema}.{name} VALUES {', '.join(map(_literal_row, rows))}")


def _literal_row(row: tuple[Any, ...]) -> str:
    """A row as SQL text."""
    words = ["NULL" if cell is None else f"'{cell}'" if isinstance(cell, date) else repr(cell) for cell in row]
    return f"({', '.join(words)})"


def expected(tables: Tables) -> dict[int, list[Any]]:
    """The variables of `DEFINITIONS` by plain Python, by person."""
    own: dict[int, Tables] = {row[0]: {name: [] for name in OWNER} for row in tables["person"]}
    for name, at in OWNER.items():
        for record in tables[name]:
            own[record[at]][name].append(record)
    return {
        person: row
        for (person, sex, born) in sorted(tables["person"])
        if (row := _row(own[person], person, sex, born)) is not None
    }


def _row(tables: Tables, person: int, sex: int, born: int) -> list[Any] | None:
    """The row of one person, or None outside the cohort."""

    def days(concepts: Sequence[int]) -> list[date]:
        return sorted(row[3] for row in tables["condition_occurrence"] if row[1] == person and row[2] in concepts)

    if not (diabetes := days([DIABETES, TYPE_2])):
        return None
    index = diabetes[0]
    periods = [row for row in tables["observation_period"] if row[1] == person and row[2] <= index <= row[3]]
    if not periods or (index - min(row[2] for row in periods)).days < 180:
        return None
    if any(day <= index for day in days([CANCER])):
        return None
    known = [
        ((index - row[3]).days, row[0], float(row[4]))
        for row in tables["measurement"]
        if row[1] == person and row[4] is not None and row[5] == MMHG
    ]
    last = min(((ago, -number, value) for ago, number, value in known if 0 <= ago <= 365), default=(0, 0, math.nan))
    mean, count = 0.0, 0
    for ago, _, value in sorted(known, key=lambda each: (-each[0], each[1])):
        if 0 <= ago <= 730:
            mean, count = mean + value, count + 1
    drug = any(
        row[1] == person and row[2] == METFORMIN and 0 <= (index - row[3]).days <= 90 for row in tables["drug_exposure"]
    )
    end = min(max(row[3] for row in periods), index + timedelta(days=1825))
    strokes = [day for day in days([STROKE]) if index < day <= end]
    return [
        float(index.year - born),
        {FEMALE: "female", MALE: "male"}.get(sex, "other"),
        last[2],
        mean / count if count else math.nan,
        float(drug),
        float(((strokes or [end])[0] - index).days),
        float(bool(strokes)),
    ]
