"""Rules for missing values, as a question says them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.missing import is_number, refusal, rules_by_column

COLUMNS = ("age", "bmi")


def test_rules_by_column_of_one_rule_or_dict_gives_rule_for_each_column() -> None:
    assert rules_by_column(None, COLUMNS) == {}
    assert rules_by_column(3.0, COLUMNS) == {"age": 3.0, "bmi": 3.0}
    assert rules_by_column({"bmi": "own-rows"}, COLUMNS) == {"bmi": "own-rows"}
    with pytest.raises(BadParameter, match="height"):
        rules_by_column({"height": 3.0}, COLUMNS)
    assert is_number(0.0)
    assert not is_number(True)
    assert not is_number(float("nan"))


def test_units_check_nan_without_rule_is_refused() -> None:
    rows = np.array([[1.0, np.nan], [2.0, 3.0]])
    Units.from_rows(rows).check([1])
    with pytest.raises(BadData):
        Units.from_rows(rows).check()
    with pytest.raises(BadData, match="bmi") as refused:
        Units.from_rows(rows).check([0], ["column 'age'", "column 'bmi'"])
    assert str(refused.value) == refusal("column 'bmi'")
    assert {"missing", "own-rows", "observed"} <= set(re.findall(r"[\w-]+", str(refused.value)))
    with pytest.raises(BadData):  # no rule covers an infinite value
        Units.from_rows([[1.0, np.inf]]).check([0, 1])
