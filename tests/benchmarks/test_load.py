"""The table of loads: every case ends, and the proxy carries what a socket does."""

from __future__ import annotations

import pytest

import load


def test_load_of_a_small_case_is_measured_with_and_without_proxy() -> None:
    plain = load.measure(load.Case("plain", rounds=5))
    line = load.measure(load.Case("line", rounds=5, delay=0.01, loss=0.1))
    # Requests have released numbers, whose texts differ in length by a few bytes.
    assert 0 < plain.megabytes == pytest.approx(line.megabytes, rel=0.01)
    assert plain.sites > 0


def test_load_of_studies_at_once_carries_all_of_them() -> None:
    one, two = (load.measure(load.Case("studies", rounds=5, studies=studies)) for studies in (1, 2))
    assert two.megabytes > 1.5 * one.megabytes


def test_load_case_has_a_contribution_of_the_stated_size() -> None:
    for case in load.CASES["numbers"]:
        moments = case.columns * (case.columns + 1) // 2
        assert 0.95 * case.numbers <= moments <= 1.05 * case.numbers
