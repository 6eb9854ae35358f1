"""Constraints of constructor parameters: what satisfies them, and the message if a value does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerosum
from zerosum import algorithms, estimators
from zerosum.errors import BadParameter
from zerosum.estimators import validation
from zerosum.estimators.validation import RANGES, Constraint, check_parameters, one_of, optional

CASES: list[tuple[Constraint, list[Any], list[Any]]] = [
    (validation.POSITIVE, [1, 0.5, np.float64(2)], [0, -1, float("inf"), float("nan"), True, "1", None, [1.0]]),
    (validation.PROBABILITY, [0.5, 1e-9], [0, 1, True, "0.5"]),
    (validation.WHOLE_NUMBER, [0, -1, np.int64(3)], [0.5, True, "1", None]),
    (validation.SEED, [0, 7, np.uint8(1)], [-1, 0.0, True]),
    (validation.BOOLEAN, [True, np.False_], [0, None, "yes"]),
    (validation.TEXT, ["a"], [1, None]),
    (validation.MAPPING, [{}, {"a": 1}], [[], None]),
    (validation.LIST, [[], (1,), np.ones(2)], ["ab", 3, None]),
    (validation.RANGE, [(0, 1), [-1.5, 2], np.array([0, 1])], [(1, 0), (1, 1), 3, (0, 1, 2), ("a", "b"), None]),
    (validation.RANGES, [{}, {"age": (0, 1)}], [{"age": (1, 0)}, {"age": 1}, [(0, 1)]]),
    (validation.CLASSES, [[0, 1], ("a", "b", "c"), np.array([1, 2])], [[0], [0, 0], "ab", 2, [[0, 1], [2, 3]]]),
    (validation.TWO_CLASSES, [[0, 1], ("no", "yes")], [[0, 1, 2], [1, 1], 1]),
    (validation.WORDS, [["river"], ("a", "b")], [[], ["a", "a"], "ab"]),
    (one_of("person", "record"), ["person"], ["house", None, ["person"], np.ones(2)]),
    (optional(one_of("a", "b")), [None, "a"], ["c"]),
]


@pytest.mark.parametrize(("constraint", "good", "bad"), CASES, ids=[case[0].phrase for case in CASES])
def test_constraint_accepts_good_values_and_refuses_bad_ones(
    constraint: Constraint, good: list[Any], bad: list[Any]
) -> None:
    assert [constraint.holds(value) for value in good] == [True] * len(good)
    assert [constraint.holds(value) for value in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-1, "-1"),
        ("1", "'1'"),
        (None, "None"),
        (np.float64(-2.0), "-2.0"),
        (np.array([1, 2]), "[1, 2]"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, ...]"),
        ({"secret": 1}, "an object of type 'dict'"),
    ],
)
def test_message_has_the_name_the_requirement_and_a_short_value(value: Any, shown: str) -> None:
    with pytest.raises(BadParameter) as refused:
        check_parameters({"epsilon": validation.POSITIVE}, {"epsilon": value})
    assert str(refused.value) == f"epsilon must be positive, got {shown}"


@pytest.mark.parametrize("name", estimators.__all__)
def test_constraints_name_constructor_parameters_and_defaults_satisfy_them(name: str) -> None:
    estimator = getattr(zerosum, name)()
    parameters = estimator.get_params(deep=False)
    assert set(estimator._constraints) <= set(parameters)
    check_parameters(estimator._constraints, parameters)


@pytest.mark.parametrize("name", estimators.__all__)
def test_constraints_leave_unchanged_parameters_to_program(name: str) -> None:
    estimator = getattr(zerosum, name)
    converted = {"ranges", "levels", "probabilities", "classes", "features", "settings", "optimizer_settings", "shape"}
    converted |= {"null", "expected", "margin", "effect"}  # mappings, converted
    converted |= {"measured_in", "groups", "events", "by"}  # texts and lists, converted or read before the program
    converted |= {"whole", "totals", "impossible", "densities"}  # lists and mappings of synthetic data, converted
    converted |= {"covariates", "labels"}  # of connectivity, converted
    converted |= {"pairs", "smooth", "rising", "falling"}  # lists of additive models, converted
    assert set(estimator._constraints) & algorithms.fields(estimator._algorithm) <= converted


def test_message_about_a_dict_of_ranges_names_the_column() -> None:
    constraints = {"ranges": optional(RANGES)}
    check_parameters(constraints, {"ranges": {"age": (0, 1)}})
    check_parameters(constraints, {"ranges": None})
    with pytest.raises(BadParameter, match=r"ranges of 'bmi' .*\(50, 10\)"):
        check_parameters(constraints, {"ranges": {"age": (0, 1), "bmi": (50, 10)}})
