"""Axes and numbers of plots: ticks, scaling to coordinates, number formats.

Tested in tests/report/test_pictures.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_MOST = 1e150  # values beyond are drawn at the end of the axis; differences of larger values could overflow


def shown(value: float | None, digits: int = 4) -> str:
    """A number with `digits` significant digits, without exponent for ordinary magnitudes; a dash if unknown.

    >>> shown(123456.0), shown(0.00012345), shown(None), shown(-2.50)
    ('123456', '0.0001234', '–', '-2.5')
    """
    if value is None or not math.isfinite(value):
        return "–"
    # Very small and very large numbers keep their exponent.
    if value and not 1e-5 <= abs(value) < 1e7:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float | None) -> str:
    """A share as a percentage; a dash if unknown."""
    return "–" if value is None or not math.isfinite(value) else f"{shown(100 * value, 3)} %"


def spread(values: Iterable[float | None]) -> tuple[float, float]:
    """Smallest and largest known value; (0, 1) if none is known."""
    found = [value for value in values if value is not None and abs(value) < _MOST]
    return (min(found), max(found)) if found else (0.0, 1.0)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` round numbers between two ends; empty for an invalid range.

    >>> ticks(0.0, 10.0), [shown(at) for at in ticks(-0.3, 0.31)]
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], ['-0.2', '0', '0.2'])
    """
    if not -1e300 <= low < high <= 1e300:  # step sizes of the locator overflow beyond
        return []
    from matplotlib.ticker import MaxNLocator  # slow import, needed for plots only

    found = MaxNLocator(nbins=most - 1, steps=[1, 2, 5, 10]).tick_values(low, high)
    # The locator's ticks enclose the range, and its computed multiples have rounding errors. A tick at an end may lie
    # just outside the range, and the tick at zero may be slightly off.
    slack = 1e-9 * (high - low)
    return [0.0 if abs(at) <= slack else float(at) for at in found if low - slack <= at <= high + slack]


@dataclass(frozen=True)
class Scale:
    """Linear map from values [low, high] to coordinates [start, end]. `start` may exceed `end` (vertical axes)."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float | None], start: float, end: float, *, zero: bool = False) -> Scale:
        """Scale that includes all values with a margin of 4 %, and 0 if `zero`."""
        low, high = spread(values)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        room = 0.04 * (high - low) or max(abs(high), 1.0) * 0.5
        return cls(low if zero and low == 0 else low - room, high if zero and high == 0 else high + room, start, end)

    def __call__(self, value: float | None) -> float:
        """Coordinate of a value, limited to the axis."""
        if value is None or self.high == self.low:
            return self.start
        share = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 2)
