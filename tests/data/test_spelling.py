"""Spellings of numbers and dates: every cell by itself, and no cell read in a spelling that is not declared."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from zerosum.data.formats import Text
from zerosum.data.spelling import Spelling, settings_for, suggestions
from zerosum.data.tables import CellFault, load_units
from zerosum.errors import BadData
from zerosum.site.schema import ColumnSchema

NAN = float("nan")
GERMAN = Spelling(decimal=",", thousands=".", values={"<5": 2.5})


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1.234,5", 1234.5),
        ("1234,5", 1234.5),
        (" -3,25 ", -3.25),
        ("12", 12),
        (",5", 0.5),
        ("1.234.567", 1234567),
        ("1,5e3", 1500),
        ("<5", 2.5),
        ("1.5", NAN),  # a number in the plain spelling only
        ("1.23", NAN),
        ("12.34,5", NAN),
        ("1,2,3", NAN),
        ("", NAN),
        ("k.A.", NAN),
        ("1_000", NAN),
        ("inf", NAN),
    ],
)
def test_spelling_german_numbers_are_read_as_declared_or_not_at_all(cell: str, value: float) -> None:
    assert np.array_equal(GERMAN.numbers([cell]), [value], equal_nan=True)


@given(st.lists(st.text("0123456789.,-+e <kA", max_size=8), max_size=12))
def test_spelling_of_a_cell_does_not_depend_on_other_cells(cells: list[str]) -> None:
    alone = [GERMAN.numbers([cell])[0] for cell in cells]
    assert np.array_equal(GERMAN.numbers(cells), alone, equal_nan=True)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_spelling_of_any_double_is_read_to_the_bit(value: float) -> None:
    assert GERMAN.numbers([repr(value).replace(".", ",")]) == [value]


def test_spelling_dates_are_days_or_completed_years() -> None:
    days = Spelling(date="%d.%m.%Y", origin=date(2020, 1, 1))
    assert days.numbers(["01.01.2020", "29.2.2020", "31.12.2019"]) == [0, 59, -1]
    age = Spelling(date="%Y%m%d", age_at=date(2026, 4, 3))
    assert age.numbers(["19700402", "19700403", "19700404"]) == [56, 56, 55]
    unfit = ["31.02.2020", "2020-01-01", "01.01.20", "43831", "", "01.01.2020 "[:-2]]
    assert np.isnan(days.numbers(unfit)).all()


def test_spelling_of_typed_columns_is_that_of_dates_only() -> None:
    dates = Spelling(date="%Y%m%d", origin=date(1970, 1, 1)).plain(np.array([19700403.0, NAN, 7.0]))
    assert np.array_equal(dates.numbers(), [92, NAN, NAN], equal_nan=True)
    # Doubles have no decimal mark.
    assert np.array_equal(GERMAN.plain(np.array([1.5, NAN, 1e22])).numbers(), [1.5, NAN, 1e22], equal_nan=True)


def test_spelling_tokens_stay_missing_in_the_files_own_words() -> None:
    tokens: set[str | float] = {"01.01.1900", "-9", -9.0}
    cells = Spelling(date="%d.%m.%Y").plain(Text.of(["01.01.1900", "02.01.1970", "-9"]), tokens)
    assert cells.strings.to_pylist() == ["01.01.1900", "1.0", "-9"]


@pytest.mark.parametrize(
    ("cells", "settings"),
    [
        (["1,5", "12", "2,25"], {"decimal": ","}),
        (["1.234,5", "2,5"], {"decimal": ",", "thousands": "."}),
        (["1,234.5", "12"], {"thousands": ","}),
        (["1,234", "5,678"], {}),  # either
        (["03.04.1970"], {"date": "%d.%m.%Y"}),
        (["1970-04-03"], {"date": "%Y-%m-%d"}),
        (["asthma"], {}),
    ],
)
def test_suggestions_name_the_setting_that_reads_the_cells(cells: list[str], settings: dict[str, str]) -> None:
    assert settings_for(suggestions(cells, np.ones(len(cells), dtype=np.intp))) == settings
    assert settings_for(Counter()) == {}


def test_load_units_unfit_cells_are_counted_as_missing_and_named_with_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a;b\n"1,5";03.04.1970\n1.5;1970-04-03\n;\n')
    spellings = {"a": GERMAN, "b": Spelling(date="%d.%m.%Y"), "of another study": GERMAN}
    faults: list[CellFault] = []
    options: dict[str, Any] = {"delimiter": ";", "spellings": spellings, "missing": ["a", "b"]}
    rows = load_units(path, **options, faults=faults).units.rows
    assert np.array_equal(rows, [[1.5, 92], [NAN, NAN], [NAN, NAN]], equal_nan=True)
    assert [(fault.kind, fault.row) for fault in faults] == [("unreadable", 2), ("unreadable", 2)]
    with pytest.raises(BadData, match=r'decimal = ",".*date = "%d'):
        load_units(path, **options)


@pytest.mark.parametrize(
    ("cell", "setting"), [('"1,5"', 'decimal = ","'), ("03.04.1970", 'date = "%d.%m.%Y"'), ("x", "missing_tokens")]
)
def test_load_units_undeclared_spelling_is_named_with_its_setting(tmp_path: Path, cell: str, setting: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a\n1\n{cell}\n")
    with pytest.raises(BadData) as refused:
        load_units(path, columns=["a"])
    assert setting in str(refused.value)


def test_typed_dates_of_parquet_are_days(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    zoned = pa.array([-1, None, 86400], pa.timestamp("s", "Europe/Berlin"))
    pq.write_table(pa.table({"day": pa.array([0, None, 59], pa.date32()), "time": zoned}), path)
    iso = Spelling(date="%Y-%m-%d", origin=date(1970, 1, 1))
    spellings = {"day": iso, "time": iso}
    rows = load_units(path, spellings=spellings, missing=["day", "time"]).units.rows
    assert np.array_equal(np.asarray(rows), [[0.0, 0.0], [NAN, NAN], [59.0, 1.0]], equal_nan=True)


@pytest.mark.parametrize(
    "entries",
    [
        {"decimal": ",", "thousands": ","},
        {"date": "%d.%m.%y"},
        {"date": "%d %b %Y"},
        {"date": "%m/%Y"},
        {"date": "%d.%m.%Y", "decimal": ","},
        {"date": "%d.%m.%Y", "origin": "2020-01-01", "age_at": "2020-01-01"},
        {"origin": "2020-01-01"},
        {"labels": {"<5": "low"}},
        {"labels": {"<5": float("inf")}},
        {"type": "category", "decimal": ","},
    ],
)
def test_schema_refuses_spellings_that_contradict_each_other(entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ColumnSchema(**entries)
