"""Spellings of numbers and dates in a site's files: decimal commas, thousands separators, dates, words for numbers.

A site declares in its own schema how the cells of a column are written. A declared spelling is a function from one cell
to one number; it depends on no other cell and on no plan:

    decimal, thousands   "1.234,5" with decimal = "," and thousands = "." is 1234.5
    date, origin         "03.04.1970" with date = "%d.%m.%Y" and origin = 1970-01-01 is 92 (days)
    date, age_at         "03.04.1970" with age_at = 2026-01-01 is 55 (completed years)
    values               "<5" with values = {"<5": 2.5} is 2.5

A cell in none of these forms is no number, also if it would be one in the plain spelling: "1.5" with a decimal comma.
It then counts as every cell that is no number: as a missing value where the column has a rule for these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from zerosum.data.formats import Cells, Text, number

Day: TypeAlias = date
# Stands for a cell that is a number in the plain spelling and none in the declared one.
_UNFIT = "(not as declared)"
# Common spellings, with the settings that read them. A number such as "1,234" may be either of two, and is none here.
_SHAPES: tuple[tuple[re.Pattern[str], dict[str, str]], ...] = (
    (re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+,\d+"), {"decimal": ",", "thousands": "."}),
    (re.compile(r"[+-]?\d*,(?:\d{1,2}|\d{4,})|[+-]?(?:0|\d{4,}),\d+"), {"decimal": ","}),
    (re.compile(r"[+-]?\d{1,3}(?:,\d{3})+\.\d+|[+-]?\d{1,3}(?:,\d{3}){2,}"), {"thousands": ","}),
    (re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}"), {"date": "%d.%m.%Y"}),
    (re.compile(r"\d{4}-\d{2}-\d{2}"), {"date": "%Y-%m-%d"}),
)


@dataclass(frozen=True)
class Spelling:
    """How the cells of a column of numbers are written.

    Parameters
    ----------
    decimal : str
        The decimal mark.
    thousands : str
        The mark between groups of three digits; empty for none. Numbers without it are read too.
    date : str
        Pattern of dates, with %d, %m, %Y and others of `datetime.strptime`. The column then holds dates.
    origin : date, optional
        Dates are days since this day. Default: 1970-01-01.
    age_at : date, optional
        Dates are days of birth, read as the age on this day in completed years.
    values : mapping
        Words that stand for numbers.

    Examples
    --------
    >>> Spelling(decimal=",", thousands=".", values={"<5": 2.5}).numbers(["1.234,5", "12", "1.5", "<5"])
    [1234.5, 12.0, nan, 2.5]
    >>> Spelling(date="%d.%m.%Y", age_at=date(2026, 4, 2)).numbers(["03.04.1970", "31.02.1970"])
    [55.0, nan]
    """

    decimal: str = "."
    thousands: str = ""
    date: str = ""
    origin: Day | None = None
    age_at: Day | None = None
    values: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """The settings, in words for a message."""
        given = {"decimal": self.decimal, "thousands": self.thousands} if not self.date else {"date": self.date}
        return ", ".join(f'{name} = "{value}"' for name, value in given.items() if value)

    @cached_property
    def _pattern(self) -> str:
        """Pattern of a number as declared, for pyarrow's matcher (RE2) and for Python's."""
        mark, point = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(?:[0-9]+|[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+)" if mark else "[0-9]+"
        return rf"^\s*[+-]?(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"

    def numbers(self, cells: Sequence[str]) -> list[float]:
        """The number in each cell, NaN where a cell has another form."""
        return [number(cell) for cell in self.plain(Text.of(cells)).strings.to_pylist()]

    def plain(self, cells: Cells, tokens: Collection[str | float] = ()) -> Text:
        """The cells in the plain spelling of numbers, which `number` reads.

        Cells that are `tokens` for missing values, empty cells and words stay as they are. Each cell is converted by
        itself.

        Parameters
        ----------
        cells : Cells
            A batch of cells. Numbers of a typed column have no spelling, except where they are dates such as 19700403.
        tokens : collection
            Tokens for missing values, as text and as numbers.
        """
        import pyarrow as pa
        from pyarrow import compute

        text = cells if isinstance(cells, Text) else Text.of([_typed(cell) for cell in cells.tolist()])
        strings = text.strings
        if self.date or not isinstance(cells, Text):
            typed = not isinstance(cells, Text) and not self.date
            codes, contents = text.distinct()
            converted = [self._converted(cell, tokens, typed=typed) for cell in contents]
            return Text(pa.array(converted, pa.string()).take(pa.array(codes)))
        # A column in one pass; the few other cells one by one.
        regular = compute.match_substring_regex(strings, self._pattern)
        words = self._words(tokens)
        regular = compute.and_(regular, compute.invert(compute.is_in(compute.utf8_trim_whitespace(strings), words)))
        there = np.asarray(regular)
        codes, contents = text.distinct(np.flatnonzero(~there))
        converted = [self._converted(cell, tokens) for cell in contents]
        marked = strings if not self.thousands else compute.replace_substring(strings, self.thousands, "")
        marked = marked if self.decimal == "." else compute.replace_substring(marked, self.decimal, ".")
        others = pa.array(converted, pa.string()).take(pa.array(codes))
        return Text(compute.replace_with_mask(marked, compute.invert(regular), others))

    def _words(self, tokens: Collection[str | float]) -> object:
        """Words and tokens that are looked at one by one, as an Arrow array."""
        import pyarrow as pa

        return pa.array(sorted({*self.values, *(each for each in tokens if isinstance(each, str))}), pa.string())

    def _converted(self, cell: str, tokens: Collection[str | float], *, typed: bool = False) -> str:
        """One cell in the plain spelling. `typed`: the cell is a number of a typed column."""
        word, plainly = cell.strip(), number(cell)
        if word in self.values:
            return repr(float(self.values[word]))
        if word in tokens or plainly in tokens or word == "" or word.lower() == "nan" or typed:
            return cell
        found = self._day(word) if self.date else self._number(word)
        # A plain number that is not written as declared must not be read as one.
        return repr(found) if np.isfinite(found) else cell if np.isnan(plainly) else _UNFIT

    def _number(self, word: str) -> float:
        """The number in a word, or NaN."""
        if re.match(self._pattern, word, re.ASCII) is None:
            return np.nan
        word = word.replace(self.thousands, "") if self.thousands else word
        return number(word.replace(self.decimal, "."))

    def _day(self, word: str) -> float:
        """Days or years of the date in a word, or NaN."""
        try:
            day = datetime.strptime(word, self.date).date()
        except ValueError:
            return np.nan
        if self.age_at is None:
            return float((day - (self.origin or date(1970, 1, 1))).days)
        before = (self.age_at.month, self.age_at.day) < (day.month, day.day)
        return float(self.age_at.year - day.year - before)


def _typed(cell: object) -> str:
    """Text of a cell of a typed column; whole numbers without a point."""
    if isinstance(cell, float):
        return "" if cell != cell else f"{cell:.0f}" if cell.is_integer() else repr(cell)
    return "" if cell is None else str(cell)


def suggestions(cells: Sequence[str], counts: NDArray[np.intp]) -> Counter[tuple[tuple[str, str], ...]]:
    """Settings that would read cells that are no plain numbers, with the number of cells that each would read.

    Parameters
    ----------
    cells : sequence of str
        Distinct cells.
    counts : array of int
        How often each occurs.
    """
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for cell, count in zip(cells, counts.tolist(), strict=True):
        for shape, settings in _SHAPES:
            if shape.fullmatch(cell.strip()):
                found[tuple(settings.items())] += count
    return found


def settings_for(found: Counter[tuple[tuple[str, str], ...]]) -> dict[str, str]:
    """The settings that read most of the suggested cells; empty if there are none.

    >>> settings_for(suggestions(["1.234,5", "2,5", "12"], np.array([1, 5, 1])))
    {'decimal': ',', 'thousands': '.'}
    """
    if not found:
        return {}
    best = dict(found.most_common(1)[0][0])
    for other in found:
        # Numbers with a decimal comma may have points between thousands or not.
        if dict(other).items() >= best.items():
            best = dict(other)
    return best
