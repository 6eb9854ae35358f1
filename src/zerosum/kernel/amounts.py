"""Checks of amounts (finite, positive, with squares well inside double precision), and the text of an epsilon."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

from zerosum.errors import BadParameter

SMALLEST, LARGEST = 1e-100, 1e100  # so that squares, and squares times noise, stay well inside double precision
MOST_UNITS = 10**12  # largest count of any kind
_DIGITS = Context(prec=4, rounding=ROUND_CEILING)  # of a stated epsilon
# Relative excess that is rounding error of the accountant, and not cost: the tolerance of the checks against caps.
_ROUNDING_ERROR = Decimal("1e-12")


def check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadParameter(f"epsilon must be positive and finite, got {epsilon:g}")
    check_amount("epsilon", epsilon)


def check_amount(what: str, value: float) -> None:
    """Refuse NaN, infinities, zero, negative numbers, and numbers whose squares would leave double precision."""
    if not SMALLEST <= value <= LARGEST:
        raise BadParameter(f"{what} must lie between {SMALLEST:g} and {LARGEST:g}, got {_shown(value)}")


def check_count(what: str, value: int, least: int = 1) -> None:
    if not least <= value <= MOST_UNITS:
        raise BadParameter(f"{what} must be a whole number from {least} to {MOST_UNITS:g}, got {_shown(value)}")


def _shown(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:  # an integer beyond double precision
        return "one with hundreds of digits"


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise BadParameter(f"delta must lie strictly between 0 and 1, got {delta:g}")
    check_amount("delta", delta)


def format_epsilon(value: float) -> str:
    """An epsilon with four significant digits, rounded up, so that the stated epsilon is never below the exact one.

    An epsilon that exceeds a cap does not read like the cap: both use the same tolerance of 1e-12. Without it
    a study that costs exactly 2 would be stated as 2.001, since its computed epsilon is 2.0000000000000004.

    >>> format_epsilon(1.5), format_epsilon(1.23401), format_epsilon(10.000001), format_epsilon(0.000123412)
    ('1.5', '1.235', '10.01', '0.0001235')
    >>> format_epsilon(2.0000000000000004), format_epsilon(2.00000000001)
    ('2', '2.001')
    """
    if not math.isfinite(value) or value <= 0:
        return f"{value:g}"
    return f"{float(_DIGITS.create_decimal(Decimal(float(value)) * (1 - _ROUNDING_ERROR))):g}"


def check_mu(mu: float) -> None:
    if math.isnan(mu) or mu < 0:
        raise BadParameter(f"mu must not be negative, got {mu:g}")


def cost_word(noise: str) -> str:
    """What stands before a cost in a column of mus: the cost of a release with Laplace noise is a pure epsilon.

    >>> cost_word("gaussian"), cost_word("laplace")
    ('', 'epsilon ')
    """
    return "epsilon " if noise == "laplace" else ""
