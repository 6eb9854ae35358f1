"""Rules for missing values, as a question says them."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.missing import MEANINGS, VALUE, is_number, refusal_by_rules, rules_by_column, unknown_rule

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
        Units.from_rows(rows).check([0], ["column 'age'", "column 'bmi'"], [MEANINGS["observed"]])
    # The rules of the algorithm and no others.
    assert str(refused.value) == refusal_by_rules(["column 'bmi'"], [MEANINGS["observed"]])
    assert "own-rows" not in str(refused.value)
    with pytest.raises(BadData):  # no rule covers an infinite value
        Units.from_rows([[1.0, np.inf]]).check([0, 1])


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("multiple-imputation", "synthetic-data"),
        ("MICE", "synthetic-data"),
        ("indicator", "`indicators`"),
        ("na.omit", "complete-cases"),
        ("median", "not public"),
    ],
)
def test_unknown_rule_of_another_package_has_advice(rule: str, advice: str) -> None:
    message = unknown_rule(rule, [VALUE], "bmi")
    assert advice in message
    assert {"bmi", VALUE} <= {part for part in ("bmi", VALUE) if part in message}
    assert repr(rule) in message


def test_unknown_rule_without_counterpart_has_no_advice() -> None:
    assert unknown_rule("forward-fill", [VALUE]).endswith("got 'forward-fill'")
