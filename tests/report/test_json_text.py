"""Records as JSON: what is read back is what was written, and tables of numbers stand in one line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.report.json_text import finite, readable

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
RECORDS = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def refuse(constant: str) -> float:
    raise ValueError(constant)


@given(RECORDS)
def test_json_text_read_back_is_same(record: Any) -> None:
    told = finite(record)
    assert json.loads(readable(told), parse_constant=refuse) == told


@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), min_size=1))
def test_json_text_table_is_one_line_and_exact(table: list[list[float]]) -> None:
    text = readable({"table": table})
    assert len(text.splitlines()) == 3
    found = json.loads(text)["table"]
    assert [[each.hex() for each in row] for row in found] == [[each.hex() for each in row] for row in table]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_text_value_not_finite_becomes_null(value: float) -> None:
    assert finite({"a": [1.0, value], "b": value, "c": [[value]]}) == {"a": [1.0, None], "b": None, "c": [[None]]}
