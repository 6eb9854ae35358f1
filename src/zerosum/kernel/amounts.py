"""Checks of amounts: finite, positive, and such that their squares stay well inside double precision."""

from __future__ import annotations

import math

from zerosum.errors import BadParameter

SMALLEST, LARGEST = 1e-100, 1e100  # so that squares, and squares times noise, stay well inside double precision
MOST = 10**12  # largest count of any kind


def check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadParameter(f"epsilon must be positive and finite, got {epsilon:g}")
    check_amount("epsilon", epsilon)


def check_amount(what: str, value: float) -> None:
    """Refuse NaN, infinities, zero, negative numbers, and numbers whose squares would leave double precision."""
    if not SMALLEST <= value <= LARGEST:
        raise BadParameter(f"{what} must lie between {SMALLEST:g} and {LARGEST:g}, got {_shown(value)}")


def check_count(what: str, value: int, least: int = 1) -> None:
    if not least <= value <= MOST:
        raise BadParameter(f"{what} must be a whole number from {least} to {MOST:g}, got {_shown(value)}")


def _shown(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:  # an integer beyond double precision
        return "one with hundreds of digits"


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise BadParameter(f"delta must lie strictly between 0 and 1, got {delta:g}")
    check_amount("delta", delta)


def check_mu(mu: float) -> None:
    if math.isnan(mu) or mu < 0:
        raise BadParameter(f"mu must not be negative, got {mu:g}")
