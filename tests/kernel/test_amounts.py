"""Which amounts are taken, and that a refusal is one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import amounts


@pytest.mark.parametrize(
    ("check", "taken", "refused"),
    [
        (amounts.check_epsilon, [1e-100, 1.0, 1e100], [0.0, -1.0, math.inf, math.nan, 1e-101, 1e101]),
        (amounts.check_delta, [1e-100, 0.5, math.nextafter(1, 0)], [0.0, 1.0, -0.1, math.nan, 1e-101]),
        (amounts.check_mu, [0.0, 1.0, math.inf], [-1e-300, -math.inf, math.nan]),
    ],
)
def test_amount_at_the_edge_is_taken_and_beyond_is_refused(
    check: Callable[[float], None], taken: list[float], refused: list[float]
) -> None:
    for value in taken:
        check(value)
    for value in refused:
        with pytest.raises(BadParameter):
            check(value)


def test_count_within_bounds_is_taken_and_outside_is_refused() -> None:
    for value, least in ((1, 1), (0, 0), (10**12, 1)):
        amounts.check_count("rounds", value, least)
    for value, least in ((0, 1), (-1, 0), (10**12 + 1, 1)):
        with pytest.raises(BadParameter, match="rounds"):
            amounts.check_count("rounds", value, least)


def test_count_of_hundreds_of_digits_is_refused_without_quoting_it() -> None:
    with pytest.raises(BadParameter, match="rounds") as refused:
        amounts.check_count("rounds", 10**400)
    assert "0" * 100 not in str(refused.value)


def test_squares_of_amounts_stay_exact_enough() -> None:
    """Squares of what is taken neither overflow nor lose digits below the normal numbers."""
    for value in (amounts.SMALLEST, amounts.LARGEST):
        assert math.isclose(math.sqrt(value * value), value, rel_tol=1e-15)


@pytest.mark.parametrize("value", [1e-9, 0.1, 0.12345, 0.99995, 1.0, 2.0000000000000004, 9.9991, 12.34501, 123456.0])
def test_format_epsilon_of_any_value_rounds_up_within_a_thousandth(value: float) -> None:
    stated = float(amounts.format_epsilon(value))
    assert value * (1 - 1e-12) <= stated <= value * 1.001


def test_format_epsilon_of_a_value_above_a_cap_does_not_read_like_the_cap() -> None:
    for cap in (0.25, 1.0, 2.0, 10.0, 0.1):
        assert amounts.format_epsilon(cap * (1 + 1e-15)) == f"{cap:g}"
        assert float(amounts.format_epsilon(cap * (1 + 1e-11))) > cap


def test_format_epsilon_of_zero_and_of_infinity_is_exact() -> None:
    assert amounts.format_epsilon(0.0) == "0"
    assert amounts.format_epsilon(math.inf) == "inf"
