"""Declarative checks of constructor parameters, in the manner of scikit-learn's `_parameter_constraints`.

A class lists a `Constraint` for each parameter that no program checks: privacy parameters, and parameters that are
converted before the program sees them. The fields of a program are checked by the program itself. scikit-learn's own
function is not used: it is private, and its message ("The 'epsilon' parameter of Mean must be a float in the range
(0.0, inf). Got -1 instead.") and its error type differ from those of the other interfaces of Zerosum.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from zerosum.errors import BadParameter


@dataclass(frozen=True)
class Constraint:
    """What a parameter must be: a phrase that completes "<parameter> must be ...", and the test itself."""

    phrase: str
    holds: Callable[[Any], bool]
    each: Constraint | None = None  # of the values of a dict, so that a message names the key


def optional(constraint: Constraint) -> Constraint:
    """The same constraint, which None satisfies too."""
    return Constraint(
        f"None or {constraint.phrase}", lambda value: value is None or constraint.holds(value), constraint.each
    )


def one_of(*values: str) -> Constraint:
    """One of a few texts.

    >>> one_of("person", "record").phrase
    "'person' or 'record'"
    """
    names = [repr(value) for value in values]
    return Constraint(
        f"{', '.join(names[:-1])} or {names[-1]}", lambda value: isinstance(value, str) and value in values
    )


def of_type(phrase: str, *types: type) -> Constraint:
    """An instance of one of the types."""
    return Constraint(phrase, lambda value: isinstance(value, types))


# True and False are numbers in Python; as an epsilon they are a mistake.
def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_range(value: Any) -> bool:
    try:
        # NaN fails the comparison below, so that it needs no check of its own.
        ends = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return ends.shape == (2,) and bool(ends[0] < ends[1])


def _differ(value: Any, least: int) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        return False
    labels = np.asarray(value)
    return labels.ndim == 1 and len(labels) >= least and len(np.unique(labels)) == len(labels)


POSITIVE = Constraint("positive", lambda value: _is_real(value) and 0 < value < math.inf)
PROBABILITY = Constraint("between 0 and 1", lambda value: _is_real(value) and 0 < value < 1)
WHOLE_NUMBER = Constraint("a whole number", _is_whole)
SEED = Constraint("a whole number that is not negative", lambda value: _is_whole(value) and value >= 0)
BOOLEAN = of_type("True or False", bool, np.bool_)
TEXT = of_type("a text", str)
MAPPING = of_type("a dict", Mapping)
LIST = Constraint("a list", lambda value: not isinstance(value, str) and isinstance(value, Sequence | np.ndarray))
RANGE = Constraint("a public range: two numbers, the lower one first", _is_range)
RANGES = Constraint(
    "a dict from column names to public ranges: two numbers each, the lower one first",
    lambda value: isinstance(value, Mapping) and all(_is_range(each) for each in value.values()),
    RANGE,
)
CLASSES = Constraint("two or more different labels", lambda value: _differ(value, 2))
TWO_CLASSES = Constraint("the two classes, the reference first", lambda value: _differ(value, 2) and len(value) == 2)
WORDS = Constraint("a list of different words", lambda value: _differ(value, 1))


def check_parameters(constraints: Mapping[str, Constraint], parameters: Mapping[str, Any]) -> None:
    """Raise `BadParameter` for the first parameter that does not satisfy its constraint.

    Parameters
    ----------
    constraints : mapping of str to Constraint
        Constraints by parameter name.
    parameters : mapping of str to object
        Values by parameter name.

    >>> check_parameters({"epsilon": POSITIVE}, {"epsilon": -1})
    Traceback (most recent call last):
        ...
    zerosum.errors.BadParameter: epsilon must be positive, got -1
    """
    for name, constraint in constraints.items():
        if constraint.each is not None and isinstance(parameters[name], Mapping):
            for key, value in parameters[name].items():
                if not constraint.each.holds(value):
                    raise BadParameter(f"{name} of {key!r} must be {constraint.each.phrase}, got {_shown(value)}")
        if not constraint.holds(parameters[name]):
            raise BadParameter(f"{name} must be {constraint.phrase}, got {_shown(parameters[name])}")


def _shown(value: Any) -> str:
    """A value for a message: short, and without the contents of objects."""
    if value is None or isinstance(value, str | Real | list | tuple | np.ndarray):
        # Shortened, since a parameter may be an array as long as the data.
        return reprlib.repr(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    # The text of a frame or of `Units` would show rows.
    return f"an object of type {type(value).__name__!r}"
