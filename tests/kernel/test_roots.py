"""Brent's method against SciPy's, from which its iterates are taken."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq

from zerosum.kernel.accountant import epsilon, mu_for
from zerosum.kernel.roots import find_root

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "cubic": lambda x: x**3 - 2 * x - 5,
    "steep": lambda x: math.expm1(5 * (x - 2.1)),
    "step": lambda x: -1.0 if x < 2.0945514815423265 else 1.0,
    "infinite": lambda x: -math.inf if x < 2 else math.log(x - 1) - 0.1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("ends", [(0.0, 3.0), (1.0, 100.0), (3.0, 0.0)])
def test_root_of_a_bracketed_function_is_that_of_scipy(name: str, ends: tuple[float, float]) -> None:
    function = FUNCTIONS[name]
    assert find_root(function, *ends) == brentq(function, *ends)
    strict = brentq(function, *ends, xtol=1e-300, rtol=1e-15)
    assert find_root(function, *ends, absolute=1e-300, relative=1e-15) == strict


def test_root_at_an_end_is_returned() -> None:
    assert find_root(lambda x: x - 1, 1.0, 2.0) == 1.0
    assert find_root(lambda x: x - 2, 1.0, 2.0) == 2.0


def test_bracket_without_a_change_of_sign_raises() -> None:
    with pytest.raises(ValueError, match="same sign"):
        find_root(lambda x: x * x + 1, -1.0, 1.0)


def test_function_that_is_flat_at_its_root_raises_as_in_scipy() -> None:
    def flat(x: float) -> float:
        return (x - 2.1) ** 3

    with pytest.raises(RuntimeError):
        brentq(flat, 0.0, 3.0)
    with pytest.raises(ArithmeticError):
        find_root(flat, 0.0, 3.0)


@pytest.mark.parametrize(
    ("found", "bits"),
    [
        (epsilon(1.0, 1e-5), "0x1.1823af986dfa9p+2"),
        (epsilon(0.05, 1e-9), "0x1.0a7105e6930cap-2"),
        (mu_for(1.0, 1e-5), "0x1.127bfe5f64f0fp-2"),
        (mu_for(0.01, 1e-7), "0x1.6a0f1a718afeep-9"),
    ],
)
def test_calibration_gives_the_values_of_earlier_versions(found: float, bits: str) -> None:
    assert found == pytest.approx(float.fromhex(bits), rel=1e-15)


def test_numpy_arguments_give_python_floats() -> None:
    assert type(epsilon(np.float64(1.0), 1e-5)) is float
    assert type(mu_for(np.float64(1.0), 1e-5)) is float
