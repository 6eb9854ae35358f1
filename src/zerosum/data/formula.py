"""Formulas of designs in the manner of R and statsmodels: terms, functions of columns, splines and polynomials.

A formula is a sum of terms. A term is a factor or a product of factors. A factor is a column, or a function of columns:

    function      meaning                                                        columns of the design
    log, log2, log10, log1p, exp, expm1, sqrt, abs, sin, cos                    1
    I(...)        arithmetic with + - * / ** and numbers                         1
    C(x)          the column x itself, which has declared levels                 levels - 1
    center(x)     x less the middle of its range                                 1
    scale(x)      x less the middle of its range, over half its width            1
    poly(x, d)    Legendre polynomials of degree 1 to d on the range             d
    bs(x, ...)    B-splines: knots=[...] or df=n, degree=3                       knots + degree
    cr(x, ...)    natural cubic splines: knots=[...] or df=n                     inner knots + 1

Every factor is a function of one row and of public constants. Functions that take their constants from the data in
other packages (centres, scales, knots, orthogonal polynomials) take them from the public ranges: knots that are not
given are equally spaced. Values are clamped to their ranges first, and the range of each factor is computed when the
formula is read, so that no cell is outside the domain of a function and none raises an error.

A formula in a plan comes from the coordinator. It is parsed into this short list of functions and is never evaluated as
Python. Brackets, powers and `-` of terms are expanded by the library formulaic at the desk of the analyst; the expanded
formula, which has only `+` and `:`, goes into the plan.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from zerosum.arrays import Floats

Range = tuple[float, float]
Interval = tuple[float, float]

# Largest magnitude of a value of a function: beyond it products of terms could overflow. Chosen by hand.
_LARGEST = 1e12
# Largest number of knots, degree of polynomials, and degree of splines. Chosen by hand.
_MOST_KNOTS, _MOST_DEGREE, _MOST_SPLINE_DEGREE = 50, 10, 5
# Points at which the range of a basis is found, beside its knots: the statistic clamps to this range. Chosen by hand.
_GRID = 2001
# Longest formula, and deepest expression: a plan is parsed before anything else is known about it. Chosen by hand.
_LONGEST, _DEEPEST = 20_000, 20
# Most factors of a product by *, which stands for up to 2^n terms: a design may have 2000 terms. Chosen by hand.
_MOST_FACTORS = 10
_BASES = ("poly", "bs", "cr")
_ONE_NUMBER: dict[str, Callable[[Any], Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
}
# Least argument of functions that need one, and whether it is excluded.
_DOMAIN = {"log": (0.0, True), "log2": (0.0, True), "log10": (0.0, True), "log1p": (-1.0, True), "sqrt": (0.0, False)}
_RULE = (
    "a formula is made of columns and functions of columns, joined by +, and products of them by : or *, as in "
    "'age + sex + age:sex + log(dose)'"
)


@dataclass(frozen=True)
class Formula:
    """Parsed formula: response (or None), features, and interactions as tuples of features.

    A feature is a factor: the name of a column, or a function of columns.
    """

    response: str | None
    features: tuple[str, ...]
    interactions: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Formula:
        """Parse a formula: factors joined by +, products by : (the product alone) or * (factors and their products).

        >>> Formula.parse("sick ~ age*sex + ward")
        Formula(response='sick', features=('age', 'sex', 'ward'), interactions=(('age', 'sex'),))
        """
        _check_length(text)
        left, tilde, right = text.rpartition("~")
        features: list[str] = []
        interactions: list[tuple[str, ...]] = []
        for term in _split(right, "+"):
            products = _split(term, "*")
            if len(products) > _MOST_FACTORS:
                # Their combinations are counted before they are listed: a short text could name billions.
                raise ValueError(f"a product by * may have {_MOST_FACTORS} factors, got {len(products)}")
            names = [_tidy(name) for part in products for name in _split(part, ":")]
            if not all(names) or (len(products) > 1 and len(_split(term, ":")) > 1):
                raise ValueError(f"{_RULE}, got the term {term.strip()!r}")
            for name in names:
                _check_factor(name)
            if len(products) > 1 or len(names) == 1:
                # A name may occur in several terms and enters once.
                features += [name for name in names if name not in features]
            longest = range(2, len(names) + 1) if len(products) > 1 else [len(names)] if len(names) > 1 else []
            terms = [parts for length in longest for parts in itertools.combinations(names, length)]
            # a:b and b:a are the same product.
            interactions += [parts for parts in terms if set(parts) not in map(set, interactions)]
        if tilde and (not left.strip() or "~" in left):
            raise ValueError(f"a formula must have one response, before its ~, got {text!r}")
        # A product without its main effects depends on the coding of the columns.
        if alone := [name for parts in interactions for name in parts if name not in features]:
            raise ValueError(f"the formula has a product with {alone[0]!r} and no term {alone[0]!r}: add that term")
        return cls(left.strip() or None, tuple(features), tuple(interactions))


def expanded(text: str) -> str:
    """The formula with only + and : between its factors, for a plan.

    Brackets, powers, `-`, `/` and `%in%` of terms are expanded by formulaic (extra `formula`); other formulas are
    returned as they are.

    Parameters
    ----------
    text : str
        A formula in the manner of R.

    >>> expanded("sick ~ age*sex")
    'sick ~ age*sex'
    """
    if is_expanded(text):
        return text
    left, tilde, right = text.rpartition("~")
    try:
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise ValueError(
            f"{_RULE}; brackets, powers and minus signs between terms need the package formulaic: pip install "
            f"'zerosum[formula]'; got {text!r}"
        ) from None
    try:
        terms_ = DefaultFormulaParser().get_terms(right)
        names = [[str(factor) for factor in term.factors] for term in terms_]
    except Exception as error:  # formulaic raises several kinds of its own, and of the parser below it
        raise ValueError(f"the formula {text!r} cannot be read: {error}") from None
    # formulaic adds an intercept to every formula; only "- 1" or "+ 0" removes it.
    if ["1"] not in names:
        raise ValueError("whether there is an intercept is the parameter `intercept`, not a term of the formula")
    # By the number of factors, then in the order of the text, as in R.
    names.sort(key=lambda factors: (len(factors), [right.find(factor) for factor in factors]))
    joined = " + ".join(":".join(factors) for factors in names if factors != ["1"])
    return f"{left}{tilde} {joined}".strip()


def is_expanded(text: str) -> bool:
    """Whether a formula has only +, : and * between its factors, as in a plan: no parser of R's formulas is needed.

    Parameters
    ----------
    text : str
        A formula. Longer ones than a plan may have raise `ValueError`.
    """
    _check_length(text)
    terms = [each.strip() for each in _split(text.rpartition("~")[2], "+")]
    names = [name.strip() for term in terms for part in _split(term, "*") for name in _split(part, ":")]
    # A bracket that is not the argument of a function, or an operator of terms outside brackets.
    nested = any(name.startswith("(") or _outside(name) & set("-^/%|") or "**" in _bare(name) for name in names)
    return not nested and not {"0", "1", ""} & set(names)


def _check_length(text: str) -> None:
    """Refuse a formula that is too long to be parsed."""
    if len(text) > _LONGEST:
        raise ValueError(f"a formula may have {_LONGEST} characters, and this one has {len(text)}")


def _bare(text: str) -> str:
    """The text outside all brackets."""
    depth, characters = 0, []
    for sign in text:
        depth -= sign in ")]"
        if depth == 0 and sign not in ")]":
            characters.append(sign)
        depth += sign in "(["
    return "".join(characters)


def _outside(text: str) -> set[str]:
    """The characters outside all brackets."""
    return set(_bare(text))


def _split(text: str, sign: str) -> list[str]:
    """Parts of a text between signs that are outside brackets. A double sign (`**`) does not split.

    >>> _split("a + I(b + c)", "+")
    ['a ', ' I(b + c)']
    """
    parts, depth, start = [], 0, 0
    for at, each in enumerate(text):
        depth += (each in "([") - (each in ")]")
        double = text[at : at + 2] == 2 * sign or text[max(at - 1, 0) : at + 1] == 2 * sign
        if each == sign and depth == 0 and not double:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _tidy(name: str) -> str:
    """A factor in one spelling, so that a plan's columns do not depend on blanks."""
    name = name.strip()
    if "(" not in name:
        return name
    # C(column) is the column, whose levels are declared.
    # Blanks are removed afterwards: a pattern with blanks on both sides takes cubic time on a text of blanks.
    if (categories := re.fullmatch(r"C\(([^(),]+)\)", name)) and (column := categories[1].strip()):
        return column
    try:
        return ast.unparse(ast.parse(name, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{_RULE}, got the term {name!r}") from None


def _check_factor(name: str) -> None:
    """Refuse a factor that is neither a column nor a function of columns."""
    if "(" in name:
        Function.parse(name)
    # Characters of other formula languages that are refused; other characters may be part of a column's name.
    elif any(sign in name for sign in ")^|%/`-*") or name in ("0", "1"):
        raise ValueError(f"{_RULE}, got the term {name!r}")


@dataclass(frozen=True)
class Function:
    """A factor that is a function of columns.

    Parameters
    ----------
    text : str
        The factor.
    kind : str
        A basis ("poly", "bs", "cr"), or "" for a single column of the design.
    argument : ast.expr
        What is evaluated: the whole factor, or the argument of the basis.
    options : tuple
        Options of the basis: names and values.
    """

    text: str
    kind: str
    argument: ast.expr
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Function:
        """Parse a factor. Raises `ValueError` for any other function or expression."""
        try:
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"{_RULE}, got the term {text!r}") from None
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _BASES:
            return cls._basis(text, tree, tree.func.id)
        _check(tree, text)
        return cls(text, "", tree)._reading()

    @classmethod
    def _basis(cls, text: str, call: ast.Call, kind: str) -> Function:
        """A spline or polynomial with its options."""
        names = {"poly": ("degree",), "bs": ("df", "knots", "degree"), "cr": ("df", "knots")}[kind]
        if not call.args or len(call.args) > 1 + len(names):
            raise ValueError(f"{text!r} needs a column, and may have {', '.join(names)}")
        try:
            given = [(name, ast.literal_eval(value)) for name, value in zip(names, call.args[1:], strict=False)]
            given += [(str(each.arg), ast.literal_eval(each.value)) for each in call.keywords]
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"the options of {text!r} must be numbers or lists of numbers") from None
        options = dict(given)
        if len(options) < len(given) or (strangers := set(options) - set(names)):
            odd = min(strangers) if len(options) == len(given) else "twice the same option"
            raise ValueError(f"{text!r} may have {', '.join(names)}, got {odd}")
        _check(call.args[0], text)
        basis = cls(text, kind, call.args[0], tuple(options.items()))
        basis._check_options()
        return basis._reading()

    def _reading(self) -> Function:
        """This function, if it reads a column: a constant is the intercept, and has no values for rows."""
        if not self.columns:
            raise ValueError(f"the term {self.text!r} is a constant: a term must contain a column")
        return self

    def _check_options(self) -> None:
        """Refuse options of a basis that are no public constants of a sensible size."""
        options = dict(self.options)
        for name, most in (
            ("degree", _MOST_DEGREE if self.kind == "poly" else _MOST_SPLINE_DEGREE),
            ("df", _MOST_KNOTS),
        ):
            value = options.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(f"{name} of {self.text!r} must be a whole number from 1 to {most}, got {value!r}")
        if "knots" in options:
            knots = options["knots"]
            numbers = isinstance(knots, list | tuple) and all(
                isinstance(each, int | float) and not isinstance(each, bool) and abs(each) <= _LARGEST for each in knots
            )
            if not numbers or not 1 <= len(knots) <= _MOST_KNOTS or any(np.diff(knots) <= 0):
                raise ValueError(f"knots of {self.text!r} must be rising numbers, {_MOST_KNOTS} at most")
            if "df" in options:
                raise ValueError(f"{self.text!r} has knots and df: give one of them")
        elif self.kind in ("bs", "cr") and "df" not in options:
            raise ValueError(
                f"{self.text!r} needs knots=[...], public positions of the inner knots, or df=n, which spaces them "
                "equally over the range"
            )
        if self.kind == "bs" and options.get("df", _MOST_KNOTS) < options.get("degree", 3):
            raise ValueError(
                f"df of {self.text!r} must be at least its degree, {options.get('degree', 3)}, got {options['df']}"
            )
        if self.kind == "cr" and options.get("df", 2) < 2:
            raise ValueError(f"df of {self.text!r} must be at least 2, got {options['df']}")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that the function reads, in order."""
        # By node and not by name: a column may have the name of a function.
        called = {id(node.func) for node in ast.walk(self.argument) if isinstance(node, ast.Call)}
        names = [node for node in ast.walk(self.argument) if isinstance(node, ast.Name) and id(node) not in called]
        return tuple(dict.fromkeys(node.id for node in names))

    def terms(self, ranges: Mapping[str, Range]) -> list[tuple[str, float, float]]:
        """The columns of the design, as (name, low, high).

        Parameters
        ----------
        ranges : mapping
            Public range of each column. A function whose argument may leave its domain raises `ValueError`.
        """
        low, high = _interval(self.argument, ranges, self.text)
        if not self.kind:
            return [(self.text, low, high)]
        if not low < high:
            raise ValueError(
                f"the argument of {self.text!r} has the value {low:g} on the whole declared range: it must vary"
            )
        knots = self._knots(low, high)
        # Bases are smooth and piecewise polynomial: their extreme values on a fine grid and at the knots.
        at = np.unique(np.concatenate([np.linspace(low, high, _GRID), knots]))
        values = self._expand(at, low, high)
        return [(f"{self.text}[{j + 1}]", float(np.min(each)), float(np.max(each))) for j, each in enumerate(values.T)]

    def evaluate(self, values: Mapping[str, Floats], ranges: Mapping[str, Range]) -> list[Floats]:
        """The columns of the design for rows, each of shape (rows,).

        Parameters
        ----------
        values : mapping
            The columns that the function reads, clamped to their ranges; NaN stays NaN.
        ranges : mapping
            Public range of each column.
        """
        with np.errstate(all="ignore"):
            value = _value(self.argument, values, ranges)
        if not self.kind:
            return [np.asarray(value, dtype=np.float64)]
        low, high = _interval(self.argument, ranges, self.text)
        # Rounding may leave a value of the argument just outside its interval.
        value = np.clip(np.asarray(value, dtype=np.float64), low, high)
        gone = np.isnan(value)
        expanded_ = self._expand(np.where(gone, low, value), low, high)
        return [np.where(gone, np.nan, each) for each in expanded_.T]

    def _knots(self, low: float, high: float) -> Floats:
        """Inner knots of a spline; empty for polynomials.

        Parameters
        ----------
        low, high : float
            Public range of the argument. Knots that are not given divide it into equal parts.
        """
        options = dict(self.options)
        if "knots" in options:
            knots = np.asarray(options["knots"], dtype=np.float64)
            if not (low < knots[0] and knots[-1] < high):
                raise ValueError(f"knots of {self.text!r} must lie within its range of {low:g} to {high:g}")
            return knots
        inner = {"bs": options.get("df", 0) - options.get("degree", 3), "cr": options.get("df", 0) - 1}.get(
            self.kind, 0
        )
        return np.asarray(np.linspace(low, high, inner + 2)[1:-1])

    def _expand(self, at: Floats, low: float, high: float) -> Floats:
        """Values of the basis at points of [low, high], shape (points, columns).

        "poly": P_1, ..., P_d at x = 2 (at - low)/(high - low) - 1. "bs": B-splines on the knots with both ends repeated
        degree + 1 times. "cr": natural cubic splines that are 1 at one knot and 0 at the others.

        Parameters
        ----------
        at : array of shape (points,)
            Values of the argument, within the range.
        low, high : float
            Public range of the argument.
        """
        options = dict(self.options)
        if self.kind == "poly":
            # Legendre polynomials are orthogonal on the range, as R's are on the data. The constant is left out.
            x = (at - low) / (high - low) * 2 - 1
            return np.asarray(np.polynomial.legendre.legvander(x, options.get("degree", 1))[:, 1:])
        from scipy.interpolate import BSpline, CubicSpline  # heavy: loaded when it is used

        knots = self._knots(low, high)
        # All bases of a spline add up to 1, the intercept: the first one is left out.
        if self.kind == "cr":
            places = np.concatenate([[low], knots, [high]])
            return np.asarray(CubicSpline(places, np.eye(len(places)), bc_type="natural")(at)[:, 1:])
        degree = options.get("degree", 3)
        ends = np.concatenate([np.full(degree + 1, low), knots, np.full(degree + 1, high)])
        return np.asarray(BSpline(ends, np.eye(len(knots) + degree + 1), degree)(at)[:, 1:])


@lru_cache(maxsize=256)
def function_terms(text: str, ranges: tuple[tuple[str, Range], ...]) -> tuple[tuple[str, float, float], ...]:
    """`Function.terms` of a factor, computed once for the same ranges of its columns.

    Parameters
    ----------
    text : str
        The factor.
    ranges : tuple
        Names and ranges of its columns.
    """
    return tuple(Function.parse(text).terms(dict(ranges)))


def _check(node: ast.expr, text: str, depth: int = 0) -> None:
    """Refuse any expression but columns, numbers, arithmetic and the functions of this module."""
    if depth > _DEEPEST:
        raise ValueError(f"the term {text!r} is nested too deeply")
    match node:
        case ast.Name():
            return
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            if not abs(value) <= _LARGEST:
                raise ValueError(f"a number of {text!r} is too large")
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _check(operand, text, depth + 1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            _check(left, text, depth + 1)
            return _check(right, text, depth + 1)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=power)) if isinstance(power, int | float):
            if isinstance(power, bool) or not 0 < power <= _MOST_DEGREE:
                raise ValueError(f"a power in {text!r} must be above 0 and at most {_MOST_DEGREE}, got {power}")
            return _check(left, text, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            if name in (*_ONE_NUMBER, "I"):
                return _check(argument, text, depth + 1)
            if name in ("center", "scale"):
                if not isinstance(argument, ast.Name):
                    raise ValueError(f"{name} takes the name of a column, in {text!r}")
                return None
    known = ", ".join([*_ONE_NUMBER, "I", "center", "scale", *_BASES])
    raise ValueError(
        f"the term {text!r} of the formula may contain columns, numbers, + - * / ** and these functions only: {known}"
    )


def _interval(node: ast.expr, ranges: Mapping[str, Range], text: str) -> Interval:
    """The smallest interval by interval arithmetic that contains all values of an expression."""
    match node:
        case ast.Name(id=name):
            return ranges[name]
        case ast.Constant(value=value):
            return float(value), float(value)  # type: ignore[arg-type]
        case ast.UnaryOp(op=op, operand=operand):
            low, high = _interval(operand, ranges, text)
            return (-high, -low) if isinstance(op, ast.USub) else (low, high)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=power)):
            low, high = _interval(left, ranges, text)
            if float(power) != int(power) and low < 0:  # type: ignore[arg-type]
                raise ValueError(
                    f"the power in {text!r} is not a whole number: its base must be at least 0, got {low:g}"
                )
            try:
                ends = [_bounded(math.pow(end, float(power)), text) for end in (low, high)]  # type: ignore[arg-type]
            except OverflowError:
                _bounded(math.inf, text)
            # An even power of an interval around 0 has its least value there.
            return min([*ends, 0.0]) if low < 0 < high else min(ends), max(ends)
        case ast.BinOp(left=left, op=op, right=right):
            (a, b), (c, d) = _interval(left, ranges, text), _interval(right, ranges, text)
            if isinstance(op, ast.Add):
                return _bounded(a + c, text), _bounded(b + d, text)
            if isinstance(op, ast.Sub):
                return _bounded(a - d, text), _bounded(b - c, text)
            if isinstance(op, ast.Div):
                if c <= 0 <= d:
                    raise ValueError(f"{text!r} divides by numbers from {c:g} to {d:g}, which include 0")
                corners = [_bounded(x / y, text) for x in (a, b) for y in (c, d)]
            else:
                corners = [_bounded(x * y, text) for x in (a, b) for y in (c, d)]
            return min(corners), max(corners)
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            low, high = _interval(argument, ranges, text)
            return _of_function(name, low, high, text)
    raise ValueError(f"the term {text!r} has no range")  # excluded by `_check`


def _of_function(name: str, low: float, high: float, text: str) -> Interval:
    """The interval of a function of one number."""
    match name:
        case "I":
            return low, high
        case "center":
            return (low - high) / 2, (high - low) / 2
        case "scale":
            return -1.0, 1.0
        case "sin" | "cos":
            return -1.0, 1.0
        case "abs":
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    least, excluded = _DOMAIN.get(name, (-math.inf, False))
    if low < least or (excluded and low == least):
        above = "above" if excluded else "at least"
        raise ValueError(f"{text!r} needs numbers {above} {least:g}, and the range goes down to {low:g}")
    # All other functions rise.
    with np.errstate(all="ignore"):
        return _bounded(float(_ONE_NUMBER[name](low)), text), _bounded(float(_ONE_NUMBER[name](high)), text)


def _bounded(value: float, text: str) -> float:
    """The value, if it is of a size that sums can hold."""
    if not abs(value) <= _LARGEST:
        raise ValueError(f"{text!r} has values beyond {_LARGEST:g} on the declared ranges")
    return value


def _value(node: ast.expr, values: Mapping[str, Floats], ranges: Mapping[str, Range]) -> Any:
    """Values of an expression that `_check` has passed.

    Every row is evaluated by itself, by elementwise operations: a row's values do not depend on the rows beside it.

    Parameters
    ----------
    node : ast.expr
        The expression.
    values : mapping of str to array of shape (rows,)
        Columns, clamped to their ranges.
    ranges : mapping of str to (float, float)
        Public ranges, for `center` and `scale`.
    """
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.UnaryOp(op=op, operand=operand):
            numbers = _value(operand, values, ranges)
            return -numbers if isinstance(op, ast.USub) else numbers
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=power)):
            base = _value(left, values, ranges)
            if float(power) != int(power):  # type: ignore[arg-type]
                return np.power(base, float(power))  # type: ignore[arg-type]
            numbers = base
            # Repeated products: each is rounded alike in every row, on every machine.
            for _ in range(int(power) - 1):  # type: ignore[arg-type]
                numbers = numbers * base
            return numbers
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _value(left, values, ranges), _value(right, values, ranges)
            match op:
                case ast.Add():
                    return one + other
                case ast.Sub():
                    return one - other
                case ast.Mult():
                    return one * other
            return one / other
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            numbers = _value(argument, values, ranges)
            if name == "I":
                return numbers
            if name in ("center", "scale"):
                low, high = ranges[argument.id]  # type: ignore[attr-defined]
                numbers = numbers - (low + high) / 2
                return numbers / ((high - low) / 2) if name == "scale" else numbers
            return _ONE_NUMBER[name](numbers)
    raise ValueError("this expression has no value")  # excluded by `_check`
