"""The benchmark of forecasts runs, and its cases are what they are called."""

from __future__ import annotations

import pytest

import what_if


def test_forecasts_are_held_against_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["what_if.py", "--parts", "m", "--runs", "100"])
    what_if.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 8
    assert all(0.8 < float(line.split()[6]) < 1.2 for line in lines)


def test_every_part_has_two_epsilons_two_sizes_and_skewed_data() -> None:
    for part in "mqrge":
        cases = list(what_if.cases(part))
        assert len({case.epsilon for case in cases}) == 2
        assert len({case.people for case in cases}) == 2
        assert {case.data for case in cases} & {"skewed", "uneven"}
        assert all(case.study.plan().releases for case in cases)


def test_runs_through_sites_are_those_of_the_study() -> None:
    case = next(what_if.cases("m"))
    found = what_if.seen(case, 20, 0, through_sites=True)
    assert found.shape == (10, 2, 3)
