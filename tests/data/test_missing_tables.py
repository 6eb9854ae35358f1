"""Missing values in files: read where a rule covers the column, and refused by its name elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.table_formats import FORMATS, every_format
from zerosum.data.tables import load_units
from zerosum.errors import BadData, BadParameter

NAN = np.nan


def same(found: object, rows: list[list[float]]) -> bool:
    return np.array_equal(np.asarray(found), np.array(rows), equal_nan=True)


@every_format
def test_load_units_column_with_missing_rule_may_have_nan(tmp_path: Path, file: str) -> None:
    table = np.array([[1.0, NAN], [NAN, 2.0], [3.0, 4.0]])
    FORMATS[file](tmp_path / file, table, ("x", "y"))
    names: dict[str, Any] = {"columns": ["x", "y"]}
    assert same(load_units(tmp_path / file, **names, missing=["x", "y"]).units.rows, table.tolist())
    with pytest.raises(BadData, match="'y'") as refused:
        load_units(tmp_path / file, **names, missing=["x"])
    assert all(rule in str(refused.value) for rule in ("own-rows", "observed"))
    assert "\n" not in str(refused.value)
    FORMATS[file](tmp_path / f"b{file}", np.where(np.isnan(table), np.inf, table), ("x", "y"))
    with pytest.raises(BadData):
        load_units(tmp_path / f"b{file}", **names, missing=["x", "y"])


def test_load_units_missing_tokens_must_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,0\nNA,0.0\n ,3\nnan,-9\n")
    both: dict[str, Any] = {"missing": ["x", "y"]}
    with pytest.raises(BadData, match="missing_tokens"):
        load_units(path, **both)
    assert same(load_units(path, **both, missing_tokens=["NA"]).units.rows, [[1, 0], [NAN, 0], [NAN, 3], [NAN, -9]])
    by_column: dict[str, list[str | float]] = {"x": ["NA"], "y": [0, "-9"]}
    found = load_units(path, **both, missing_tokens=by_column).units.rows
    assert same(found, [[1, NAN], [NAN, NAN], [NAN, 3], [NAN, NAN]])
    with pytest.raises(BadData, match="own-rows"):
        load_units(path, missing=["x"], missing_tokens=by_column)
    with pytest.raises(BadParameter, match="'z'"):
        load_units(path, missing=["z"])
    with pytest.raises(BadParameter, match="'z'"):
        load_units(path, missing_tokens={"z": [0]})


def test_load_units_missing_code_in_array_becomes_nan(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1.0, 0.0], [2.0, 5.0]]))
    found = load_units(tmp_path / "a.npy", missing=["1"], missing_tokens={"1": [0]}).units.rows
    assert same(found, [[1, NAN], [2, 5]])


def test_load_units_category_may_be_missing_but_not_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,sex\n1,f\n2,\n3,?\n4,m\n")
    read: dict[str, Any] = {"columns": ["sex"], "categories": {"sex": ["f", "m"]}}
    tokens: dict[str, Any] = {"missing_tokens": ["?"]}
    assert same(load_units(path, **read, missing=["sex"], **tokens).units.rows, [[0], [NAN], [NAN], [1]])
    with pytest.raises(BadData, match="'sex'") as refused:
        load_units(path, **read, missing=["sex"])
    assert "3" in refused.value.detail  # the row
    with pytest.raises(BadData, match=r"'sex'.*own-rows"):
        load_units(path, **read, **tokens)
    declared = {"sex": ["f", "m", "?"]}  # a category is no token
    rows = load_units(path, columns=["sex"], categories=declared, missing=["sex"], **tokens).units.rows
    assert same(rows, [[0], [NAN], [2], [1]])
