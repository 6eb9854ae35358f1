"""Numbers and percentages as text, for tables and plots of a report."""

from __future__ import annotations

import math


def format_number(value: float | None, digits: int = 4) -> str:
    """A number with `digits` significant digits, without exponent for ordinary magnitudes; a dash if unknown.

    >>> format_number(123456.0), format_number(0.00012345), format_number(None), format_number(-2.50)
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


def format_percent(value: float | None) -> str:
    """A share as a percentage; a dash if unknown."""
    return "–" if value is None or not math.isfinite(value) else f"{format_number(100 * value, 3)} %"
