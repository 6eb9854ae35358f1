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
COMPLETE = "complete-cases"
VALUE = "a value to take instead"
# Each rule with its meaning, for messages.
MEANINGS = {
    OWN_ROWS: f'"{OWN_ROWS}" (the mean of the same unit\'s other rows, or the public middle)',
    OBSERVED: f'"{OBSERVED}" (only what is there counts)',
    COMPLETE: f'"{COMPLETE}" (a row with a missing value has weight 0)',
}
RULES = f"{VALUE}, {MEANINGS[OWN_ROWS]} or {MEANINGS[OBSERVED]}"
# Names of other packages for what has another name here, or is not available.
_ELSEWHERE = {
    ("multiple-imputation", "multiple", "imputation", "mice", "mi"): (
        "sites do not impute from a model: release a model of the columns (algorithm synthetic-data) and impute in its "
        "records"
    ),
    ("indicator", "indicators", "missing-indicator"): (
        "a 0/1 column for missing values beside an imputed one is `indicators` of a design or of from_formula"
    ),
    ("drop", "dropna", "listwise", "omit", "na.omit", "complete", "complete-case", COMPLETE): (
        f'rows are left out of linear, logistic and Poisson regressions by "{COMPLETE}", and values of other '
        f'algorithms, but for Cox regressions, by "{OBSERVED}"'
    ),
    ("mean", "median", "mode", "most-frequent"): (
        "a mean or a median of the data is not public: give a value from subject knowledge"
    ),
}


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


def unknown_rule(rule: object, rules: Sequence[str], column: str = "") -> str:
    """The message for a rule that an algorithm does not have.

    Parameters
    ----------
    rule : object
        The rule that was given.
    rules : sequence of str
        The rules of the algorithm, in words.
    column : str
        The column that it was given for; by default several.

    >>> unknown_rule("listwise", [VALUE, MEANINGS[OBSERVED]])[-88:]
    '"complete-cases", and values of other algorithms, but for Cox regressions, by "observed"'
    """
    word = str(rule).lower().replace("_", "-").replace(" ", "-")
    hints = [text for words, text in _ELSEWHERE.items() if word in words]
    several = " or ".join([", ".join(rules[:-1]), rules[-1]] if len(rules) > 1 else rules)
    whose = f"of {column!r}" if column else "for all columns or by the name of each"
    return "; ".join([f"missing {whose} must be {several}, got {rule!r}", *hints])


def refusal(column: str) -> str:
    """The message for a missing value that no rule covers."""
    return f"{column} has missing values and no rule for them: where an algorithm has rules, `missing` may be {RULES}"


def refusal_by_rules(columns: Sequence[str], rules: Sequence[str]) -> str:
    """The message for missing values of several columns, with the rules of one algorithm.

    Parameters
    ----------
    columns : sequence of str
        The columns as they are called in messages, each once.
    rules : sequence of str
        The rules of the algorithm, in words; none if it has no rules.

    >>> refusal_by_rules(["column 'age'", "column 'bmi'"], [VALUE])
    "column 'age' and column 'bmi' have missing values and no rule for them: `missing` may be a value to take instead"
    """
    named = " and ".join([", ".join(columns[:-1]), columns[-1]] if len(columns) > 1 else columns)
    verb = "have" if len(columns) > 1 else "has"
    if not rules:
        return f"{named} {verb} missing values, and this algorithm has no rules for them: leave the columns out"
    several = " or ".join([", ".join(rules[:-1]), rules[-1]] if len(rules) > 1 else rules)
    return f"{named} {verb} missing values and no rule for them: `missing` may be {several}"
