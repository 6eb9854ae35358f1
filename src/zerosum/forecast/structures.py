"""Plausible structures of data of which a user has stated only a part.

The error of a regression, of a correlation, of a quantile and of a principal component depends on how the columns are
distributed and correlated. What a user does not state is completed in three ways:

    typical      columns normal within their ranges, neighbours correlated, a falling spectrum, some events
    favourable   uniform, independent columns, a steep spectrum, frequent events
    difficult    skewed, strongly correlated columns, tied whole numbers, a flatter spectrum, rare events

A forecast is made for the typical structure, and its range is that over all three. The values were chosen by hand: the
typical structure is a table of measurements, the other two are as far to either side as tables of people commonly are.
`benchmarks/forecasts.py` compares them with real tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from zerosum.algorithms import (
    Algorithm,
    CovarianceProgram,
    LogisticRegressionProgram,
    PCAProgram,
    PoissonRegressionProgram,
)
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.regression.base import Regression
from zerosum.data.design import Design
from zerosum.forecast.assumptions import Assumptions, ColumnShape, Spectrum
from zerosum.forecast.populations import ranges_of

# Whole numbers in a range of at most this width are tied in the difficult structure.
_TIED_WIDTH = 200.0


@dataclass(frozen=True)
class Completion:
    """Values of the facts that are not stated.

    Attributes
    ----------
    name : str
        "typical", "favourable" or "difficult".
    shape : str
        Of columns without a guess.
    correlation : float
        Of neighbouring columns.
    spectrum : str
        Of principal components.
    events : float
        Share of people with the event, of a logistic regression.
    counts : float
        Mean count over the upper end of its range, of a Poisson regression.
    whole : bool
        Whether columns with few whole numbers in their range hold only these.
    """

    name: str
    shape: str
    correlation: float
    spectrum: str
    events: float
    counts: float
    whole: bool = False


COMPLETIONS = (
    Completion("typical", "centered", 0.5, "power:1.3", events=0.3, counts=1 / 12),
    Completion("favourable", "uniform", 0.0, "exponential:0.5", events=0.5, counts=1 / 6),
    Completion("difficult", "tailed", 0.95, "power:0.6", events=0.1, counts=1 / 24, whole=True),
)


@dataclass(frozen=True)
class Structure:
    """Assumptions in which every fact is known, and the name of what completed them ("" if nothing was missing)."""

    name: str
    assumptions: Assumptions


def structures_of(
    algorithm: Algorithm, assumptions: Assumptions, design: Design | None = None
) -> tuple[Structure, ...]:
    """The structures that agree with what is stated, the typical one first; a single one if nothing is missing.

    Parameters
    ----------
    algorithm : Algorithm
        The study's algorithm.
    assumptions : Assumptions
        What is stated.
    design : Design or None
        The design of a regression.

    Examples
    --------
    >>> from zerosum.algorithms import CovarianceProgram
    >>> table = CovarianceProgram(columns=("a", "b"), lower=[0, 0], upper=[1, 2])
    >>> [each.name for each in structures_of(table, Assumptions())]
    ['typical', 'favourable', 'difficult']
    >>> stated = Assumptions(usual=ColumnShape("uniform"), correlation=0.0)
    >>> [each.name for each in structures_of(table, stated)]
    ['']
    """
    if assumptions.like is not None:
        return (Structure("", assumptions),)
    each = [Structure(one.name, _completed(algorithm, assumptions, design, one)) for one in COMPLETIONS]
    first = each[0]
    others = tuple(one for one in each[1:] if one.assumptions != first.assumptions)
    return (first, *others) if others else (Structure("", first.assumptions),)


def _completed(
    algorithm: Algorithm, assumptions: Assumptions, design: Design | None, completion: Completion
) -> Assumptions:
    """The assumptions with the facts that the algorithm depends on and that are not stated."""
    if isinstance(algorithm, PCAProgram):
        if assumptions.spectrum is not None:
            return assumptions
        return replace(assumptions, spectrum=replace(Spectrum.parse(completion.spectrum), relative=True))
    if not isinstance(algorithm, Regression | GroupedAlgorithm | CovarianceProgram):
        return assumptions
    ranges = ranges_of(algorithm) if design is None else design.ranges
    inputs = _inputs(algorithm, design)
    # A column of categories of a descriptive table has no distribution within a range.
    described = [name for name in inputs if name in ranges or isinstance(algorithm, Regression)]
    guessed = all(name in assumptions.columns for name in described)
    complete = assumptions
    if assumptions.usual is None and not guessed and ranges:
        complete = replace(complete, usual=ColumnShape(completion.shape))
    # Quantiles and means of a column do not depend on the others.
    joint = not isinstance(algorithm, GroupedAlgorithm) and len(inputs) > 1
    if assumptions.correlation is None and joint:
        complete = replace(complete, correlation=completion.correlation)
    if isinstance(algorithm, Regression):
        complete = _with_response(algorithm, complete, design, completion)
    if completion.whole and not assumptions.whole and isinstance(algorithm, GroupedAlgorithm):
        complete = replace(complete, whole=_tied(algorithm, ranges))
    return complete


def _with_response(
    algorithm: Regression, assumptions: Assumptions, design: Design | None, completion: Completion
) -> Assumptions:
    """The assumptions with the share of events or the mean count of the response, unless they are stated."""
    name = algorithm.columns[-1] if design is None else design.read[-1]
    if name in assumptions.columns:
        return assumptions
    if isinstance(algorithm, LogisticRegressionProgram):
        shape = ColumnShape("shares", (1 - completion.events, completion.events))
    elif isinstance(algorithm, PoissonRegressionProgram):
        high = ranges_of(algorithm)[algorithm.columns[-1]][1]
        # The spread follows from the mean; the second number is not used.
        shape = ColumnShape("normal", (high * completion.counts, math.sqrt(high * completion.counts)))
    else:
        return assumptions
    return replace(assumptions, columns={**assumptions.columns, name: shape})


def _inputs(algorithm: Algorithm, design: Design | None) -> tuple[str, ...]:
    """Columns that are made up: all, or those before the response of a regression."""
    columns = algorithm.columns if design is None else design.read
    return tuple(columns[:-1] if isinstance(algorithm, Regression) else columns)


def _tied(algorithm: GroupedAlgorithm, ranges: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Columns whose range could be one of few whole numbers."""
    declared = getattr(algorithm, "whole", ())
    return tuple(
        name
        for name, (low, high) in ranges.items()
        if name not in declared
        and float(low).is_integer()
        and float(high).is_integer()
        # A range with two whole numbers at least.
        and 1 <= math.floor(high) - math.ceil(low) <= _TIED_WIDTH
    )
