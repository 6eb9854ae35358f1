"""Missing values: the public rules that a question may have for a column.

Inside a site a missing value is NaN. A missing value in a column without a rule is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from zerosum.errors import BadParameter

Rule = bool | float | str  # a value to take instead, or one of the words below
Missing = Rule | Mapping[str, Rule] | None

OWN_ROWS = "own-rows"
OBSERVED = "observed"
RULES = (
    'a value to take instead, "own-rows" (the mean of the same unit\'s other rows, or the public middle) or "observed" '
    "(only what is there counts)"
)


def rules_by_column(missing: Missing, columns: Sequence[str]) -> dict[str, Rule]:
    """The rule of every column that has one: one for all, or by name.

    >>> rules_by_column("observed", ["age", "bmi"])
    {'age': 'observed', 'bmi': 'observed'}
    >>> rules_by_column({"bmi": 25.0}, ["age", "bmi"])
    {'bmi': 25.0}
    """
    if missing is None:
        return {}
    if not isinstance(missing, Mapping):
        return dict.fromkeys(columns, missing)
    if strangers := [name for name in missing if name not in columns]:
        raise BadParameter(f"missing has a rule for {strangers[0]!r}, which is not one of the columns")
    return {name: missing[name] for name in columns if name in missing}


def is_number(rule: Rule) -> bool:
    """Whether a rule is a number to take instead."""
    return not isinstance(rule, bool | str) and math.isfinite(rule)


def refusal(column: str) -> str:
    """The message for a missing value that no rule covers."""
    return f"{column} has missing values and no rule for them: where an algorithm has rules, `missing` may be {RULES}"
