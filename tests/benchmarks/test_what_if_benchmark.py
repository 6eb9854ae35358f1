"""The benchmark of forecasts runs, and its cases are what they are called."""

from __future__ import annotations

import numpy as np
import pytest

import what_if


def test_what_if_benchmark_forecast_errors_agree_with_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["what_if.py", "--parts", "m", "--runs", "100"])
    what_if.main()
    lines, table = (part.splitlines()[1:] for part in capsys.readouterr().out.split("\n\n"))
    assert len(lines) == 8
    assert all(0.8 < float(line.split()[6]) < 1.2 for line in lines)
    assert [line.split()[:2] for line in table] == [["mean", "8"]]


def test_what_if_benchmark_share_off_by_chance_equals_simulation() -> None:
    rng = np.random.default_rng(0)
    ratio = np.sqrt(rng.chisquare(150, 20_000) / 150 / (rng.chisquare(300, 20_000) / 300))
    assert what_if.outside(150, 300) == pytest.approx(np.mean(np.abs(ratio - 1) > 0.15), abs=0.005)


def test_what_if_benchmark_forecast_losses_agree_with_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["what_if.py", "--parts", "d", "--runs", "24", "--rehearsals", "32"])
    what_if.main()
    lines, table = (part.splitlines()[1:] for part in capsys.readouterr().out.split("\n\n"))
    assert all(abs(float(line.split()[6])) < 0.15 for line in lines)
    assert "means" in table[0]


def test_what_if_benchmark_every_part_has_two_epsilons_two_sizes_and_skewed_data() -> None:
    for part in "mqrge":
        cases = list(what_if.cases(part))
        assert len({case.epsilon for case in cases}) == 2
        assert len({case.people for case in cases}) == 2
        assert {case.data for case in cases} & {"skewed", "uneven"}
        assert all(case.study.plan().releases for case in cases)
    for part in "itcnd":
        assert len({case.study.plan().epsilon for case in what_if.losses(part)}) == 2


def test_what_if_benchmark_runs_through_sites_have_shape_of_study() -> None:
    case = next(what_if.cases("m"))
    found = what_if.seen(case, 16, 0, through_sites=True)
    assert found.shape == (2, 8, 3)
