"""OMOP sources: variables as plain Python computes them, on DuckDB and PostgreSQL, and each person for itself."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from helpers import omop_database as omop
from helpers.postgresql import PASSWORD, connected, serve_postgresql
from zerosum.data.omop import Definitions
from zerosum.data.sources import Source, defined_columns, fetch
from zerosum.errors import BadData, BadStudy

duckdb = pytest.importorskip("duckdb")
COLUMNS = ["age", "sex", "sbp", "sbp_mean", "metformin", "days", "stroke"]
SYNTHEA = Path(__file__).parents[3] / "shared" / "data" / "omop" / "synthea27nj_5.4.zip"


def source(folder: Path, text: str = omop.DEFINITIONS, **entries: Any) -> Source:
    """A source of DuckDB's file in a folder."""
    (folder / "variables.toml").write_text(text)
    given = {"engine": "duckdb", "database": "cdm.duckdb", "kind": "omop", "variables": "variables.toml"}
    return Source.model_validate(given | entries)


def fetched(folder: Path, own: Source) -> list[list[Any]]:
    """Rows of a fetched snapshot."""
    path = fetch(own, folder, folder / "state" / "data.parquet").path
    return [list(row.values()) for row in pq.read_table(path).to_pylist()]


def rows_of(folder: Path, tables: omop.Tables, text: str = omop.DEFINITIONS) -> list[list[Any]]:
    """Rows of tables, by DuckDB."""
    (folder / "cdm.duckdb").unlink(missing_ok=True)
    omop.write_duckdb(folder / "cdm.duckdb", tables)
    return fetched(folder, source(folder, text))


def as_text(rows: list[list[Any]]) -> list[list[str]]:
    """Rows with every bit of their numbers; a missing value is NaN."""
    return [
        [cell if isinstance(cell, str) else float("nan" if cell is None else cell).hex() for cell in row]
        for row in rows
    ]


def test_omop_variables_are_those_of_plain_python(tmp_path: Path) -> None:
    tables = omop.people(np.random.default_rng(1), 300)
    found, wanted = rows_of(tmp_path, tables), list(omop.expected(tables).values())
    assert 150 < len(wanted) < 290
    assert {row[1] for row in wanted} == {"female", "male", "other"}
    assert all(0 < sum(row[at] == 1 for row in wanted) < len(wanted) for at in (4, 6))
    assert any(row[2] != row[2] for row in wanted)
    assert as_text(found) == as_text(wanted)


def test_omop_records_of_one_person_change_that_row_only(tmp_path: Path) -> None:
    """Neighbouring databases: one person is replaced, removed, or broken in ways that no standard allows."""
    rng = np.random.default_rng(2)
    tables = omop.people(rng, 60)
    whole = omop.expected(tables)
    assert as_text(rows_of(tmp_path, tables)) == as_text(list(whole.values()))
    for trial, person in enumerate([*rng.choice(60, 5, replace=False).tolist(), 0, 59]):
        own = 1 + int(person)
        others = omop.persons_of(tables, own.__ne__)
        rest = as_text([row for each, row in whole.items() if each != own])
        changed = {name: list(rows) for name, rows in others.items()}
        if trial % 3:
            omop.add_person(rng, changed, own)
        if trial % 3 == 2:  # twice in the table of persons, overlapping periods, records without days and numbers
            changed["person"] += [(own, omop.MALE, None), (own, omop.FEMALE, 1900)]
            changed["observation_period"] += [(-1, own, omop.FIRST, omop.LAST), (-2, own, omop.FIRST, omop.LAST)]
            changed["condition_occurrence"] += [(-1, own, omop.TYPE_2, None), (-2, own, omop.STROKE, omop.LAST)]
            changed["measurement"] += [(-1, own, omop.SYSTOLIC, date(2012, 1, 1), 10**12, omop.MMHG)]
        found = as_text(rows_of(tmp_path, changed))
        assert len(found) - len(rest) in (0, 1)
        missing = list(found)
        for row in rest:
            missing.remove(row)
        assert len(missing) == len(found) - len(rest)


@pytest.mark.parametrize(
    ("index", "count"), [("2012-01-01", None), ('{ kind = "drug", concepts = [1503297] }', None), ("2100-01-01", 0)]
)
def test_omop_index_may_be_a_public_day_or_a_drug(tmp_path: Path, index: str, count: int | None) -> None:
    tables = omop.people(np.random.default_rng(3), 40)
    cohort = f'[cohort]\nindex = {index}\n[outcome]\nkind = "death"\n'
    text = cohort + '[variables.age]\nkind = "age"\n[variables.t]\nkind = "time"\n[variables.e]\nkind = "event"\n'
    if count == 0:
        with pytest.raises(BadData, match="no rows"):
            rows_of(tmp_path, tables, text)
        return
    rows = rows_of(tmp_path, tables, text)
    assert 10 < len(rows) <= 40
    assert 0 < sum(row[2] for row in rows) < len(rows)
    if index == "2012-01-01":
        born = {row[0]: row[2] for row in tables["person"]}
        day, periods = date(2012, 1, 1), sorted(tables["observation_period"], key=lambda row: int(row[1]))
        seen = [row[1] for row in periods if row[2] <= day <= row[3]]
        assert [row[0] for row in rows] == [2012 - born[person] for person in seen]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server with the tables in the schema `cdm`."""
    yield from serve_postgresql()


def test_omop_postgresql_and_duckdb_give_the_same_bits(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = omop.people(np.random.default_rng(4), 120)
    with connected(postgresql) as cursor:
        cursor.execute("CREATE SCHEMA cdm")
        omop.write(cursor.execute, tables, "cdm")
    monkeypatch.setenv("READER", PASSWORD)
    own = source(tmp_path, engine="postgresql", database=postgresql, cdm_schema="cdm", password_env="READER")
    found = as_text(fetched(tmp_path, own))
    (tmp_path / "cdm.duckdb").unlink(missing_ok=True)
    omop.write_duckdb(tmp_path / "cdm.duckdb", tables, "cdm.cdm")  # a file and a schema of one name
    assert found == as_text(fetched(tmp_path, source(tmp_path, cdm_schema="cdm.cdm")))
    assert found == as_text(rows_of(tmp_path, tables)) == as_text(list(omop.expected(tables).values()))


@pytest.mark.skipif(not SYNTHEA.is_file(), reason="the Synthea data are not there")
def test_omop_synthea_variables_are_those_of_its_tables(tmp_path: Path) -> None:
    with ZipFile(SYNTHEA) as archive, duckdb.connect(str(tmp_path / "cdm.duckdb")) as connection:
        for name in omop.SCHEMAS:
            path = archive.extract(f"{name.upper()}.csv", tmp_path)
            kinds = [each.rsplit(" ", 1) for each in omop.SCHEMAS[name].split(", ")]
            types = ", ".join(f"'{column}': '{kind}'" for column, kind in kinds)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{path}', types={{{types}}})")
    text = """
[cohort]
index = 2010-01-01
[outcome]
kind = "condition"
concepts = [320128]
horizon = 3650
[variables]
age = { kind = "age" }
sex = { kind = "sex" }
sbp = { kind = "measurement", concepts = [3004249], days = [-3650, 0] }
sbp_mean = { kind = "measurement", concepts = [3004249], days = [-3650, 0], value = "mean" }
sinusitis = { kind = "condition", concepts = [40481087], days = [-36500, 0] }
days = { kind = "time" }
hypertension = { kind = "event" }
"""
    rows = fetched(tmp_path, source(tmp_path, text))
    pd: Any = pytest.importorskip("pandas")

    def table(name: str, *days: str) -> Any:
        return pd.read_csv(tmp_path / f"{name.upper()}.csv", parse_dates=list(days))

    index, years = pd.Timestamp("2010-01-01"), pd.Timedelta(days=3650)
    start, end_of = "observation_period_start_date", "observation_period_end_date"
    periods = table("observation_period", start, end_of)
    people = table("person").merge(periods[(periods[start] <= index) & (periods[end_of] >= index)], on="person_id")
    people = people.sort_values("person_id")
    conditions = table("condition_occurrence", "condition_start_date").rename(columns={"condition_start_date": "day"})
    pressure = table("measurement", "measurement_date").rename(columns={"measurement_date": "day"})
    pressure = pressure[(pressure.measurement_concept_id == 3004249) & pressure.day.between(index - years, index)]
    pressure = pressure.dropna(subset="value_as_number").sort_values(["day", "measurement_id"])
    assert len(rows) == len(people) == 21
    for row, person in zip(rows, people.itertuples(), strict=True):
        own = pressure[pressure.person_id == person.person_id]
        mine = conditions[conditions.person_id == person.person_id]
        end = min(person.observation_period_end_date, index + years)
        events = mine[(mine.condition_concept_id == 320128) & (mine.day > index) & (mine.day <= end)].day
        assert row[0] == 2010 - person.year_of_birth
        assert row[1] == {8532: "female", 8507: "male"}[person.gender_concept_id]
        assert row[2] == (own.value_as_number.iloc[-1] if len(own) else None)
        assert row[3] == pytest.approx(own.value_as_number.mean())
        assert row[4] == bool(len(mine[(mine.condition_concept_id == 40481087) & (mine.day <= index)]))
        assert row[5] == ((events.min() if len(events) else end) - index).days
        assert row[6] == bool(len(events))


def test_omop_snapshot_carries_definitions_ranges_and_levels(tmp_path: Path) -> None:
    rows_of(tmp_path, omop.people(np.random.default_rng(5), 30))
    found = defined_columns(tmp_path / "state" / "data.parquet")
    assert list(found) == COLUMNS
    assert (found["sex"]["type"], found["sex"]["levels"]) == ("category", ["female", "male", "other"])
    assert (found["sbp"]["missing"], found["sbp"]["range"], found["age"]["missing"]) == (True, [60, 260], False)
    definitions = Definitions.load(tmp_path / "variables.toml")
    assert found["sbp"]["definition"] == definitions.definition("sbp")


def test_omop_definitions_are_equal_if_and_only_if_they_mean_the_same() -> None:
    def of(text: str, name: str) -> str:
        return Definitions.model_validate(tomllib.loads(text)).definition(name)

    text = omop.DEFINITIONS
    assert of(text.replace("range = [60, 260]", ""), "sbp") == of(text, "sbp")  # a range changes no value
    for old, new, name in [
        (f"unit = {omop.MMHG}\nrange", "range", "sbp"),
        ("prior_days = 180", "prior_days = 181", "age"),
        ("descendants = true", "descendants = false", "metformin"),
        ("horizon = 1825", "horizon = 365", "stroke"),
        ("days = [-90, 0]", "days = [-91, 0]", "metformin"),
    ]:
        assert old in text
        assert of(text.replace(old, new), name) != of(text, name)
    assert of(text.replace("horizon = 1825", "horizon = 365"), "age") == of(text, "age")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("concepts = [381316]", "concepts = []"),
        ("concepts = [381316]", 'concepts = ["381316); DROP TABLE person"]'),
        ("concepts = [381316]", "concepts = [3.5]"),
        ("concepts = [381316]", "concepts = [-1]"),
        ("[variables.age]", '[variables."age\\" FROM person; --"]'),
        ("[variables.age]", '[variables.Sex]\nkind = "sex"\n[variables.age]'),
        ("days = [-90, 0]", "days = [-90, 1]"),
        ("days = [-90, 0]", "days = [0, -90]"),
        ('kind = "age"', 'kind = "age"\nconcepts = [1]'),
        ('value = "mean"', 'value = "median"'),
        ("prior_days = 180", "prior_days = true"),
        ('[variables.days]\nkind = "time"\n\n[variables.stroke]\nkind = "event"\n', ""),
    ],
)
def test_omop_definitions_refuse_text_and_contradictions(tmp_path: Path, old: str, new: str) -> None:
    assert old in omop.DEFINITIONS
    (tmp_path / "variables.toml").write_text(omop.DEFINITIONS.replace(old, new))
    with pytest.raises(BadStudy):
        Definitions.load(tmp_path / "variables.toml")


@pytest.mark.parametrize(
    "entries",
    [
        {"query": "SELECT 1"},
        {"variables": None},
        {"engine": "sqlite"},
        {"cdm_schema": "cdm; DROP TABLE person"},
        {"kind": "query"},
        {"database": ""},
    ],
)
def test_omop_source_refuses_entries_that_contradict_each_other(tmp_path: Path, entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        source(tmp_path, **entries)
