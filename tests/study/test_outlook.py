"""What to expect before spending: ranges, what would be enough, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.command_line import zerosum
from zerosum.algorithms import GuidedICAProgram, ICAProgram, MeanProgram, PCAProgram
from zerosum.algorithms.expectation import GOOD, LEAST, found, resting_spectrum, separated
from zerosum.errors import Refused
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.study.outlook import outlook_of

COLUMNS = tuple(f"r{at}" for at in range(60))
ALGORITHMS: dict[str, Any] = {
    "ica": ICAProgram(columns=COLUMNS, n_components=5, band=(0.01, 0.1)),
    "people": PCAProgram(columns=COLUMNS, n_components=5, per_recording="standardise", centering="none", clip=1.0),
    "records": PCAProgram(columns=COLUMNS, n_components=5, clip=1.0),
    "guided-ica": GuidedICAProgram(columns=COLUMNS, templates=np.eye(60)[:5]),
}


def terms(people: int | None, epsilon: float = 1.0) -> Terms:
    sites = tuple(PlannedSite(name, None if people is None else people // 4) for name in "abcd")
    return Terms(
        sites=sites, epsilon=epsilon, delta=1e-5, scheme=Scheme(DEFAULT_SCHEME), coalition=Coalition(1), unit="person"
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_outlook_grows_with_people_and_with_epsilon(name: str) -> None:
    found_ = [outlook_of(ALGORITHMS[name], each) for each in (terms(24), terms(400), terms(400, 8.0))]
    judged = [each.expected.judged for each in found_ if each is not None]
    assert len(judged) == 3
    for end in (0, 1):
        assert judged[0][end] <= judged[1][end] <= judged[2][end] <= 1
    assert all(0 <= low <= high for low, high in judged)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_outlook_of_what_would_be_enough_is_enough(name: str) -> None:
    outlook = outlook_of(ALGORITHMS[name], terms(100))
    assert outlook is not None
    assert outlook.expected.judged[1] < GOOD
    assert outlook.people_needed is not None
    again = outlook_of(ALGORITHMS[name], terms(4 * (outlook.people_needed // 4 + 1)))
    assert again is not None
    assert again.expected.judged[1] >= GOOD - 0.05
    if outlook.epsilon_needed is not None:
        more = outlook_of(ALGORITHMS[name], terms(100, outlook.epsilon_needed))
        assert more is not None
        assert more.expected.judged[1] >= GOOD - 0.05


def test_outlook_of_too_few_people_is_refused() -> None:
    outlook = outlook_of(ALGORITHMS["ica"], terms(24))
    assert outlook is not None
    assert outlook.expected.judged[1] < LEAST
    with pytest.raises(Refused, match="anyway"):
        outlook.check()
    assert outlook.as_record()["enough"] is False
    many = outlook_of(ALGORITHMS["ica"], terms(4000))
    assert many is not None
    many.check()


def test_outlook_without_a_number_of_people_or_a_figure_is_none() -> None:
    assert outlook_of(ALGORITHMS["ica"], terms(None)) is None
    assert outlook_of(MeanProgram(columns=("a",), clip=1.0), terms(100)) is None
    assert outlook_of(ALGORITHMS["ica"], replace(terms(100), scheme=Scheme("non-private"))) is None


def test_directions_below_the_edge_of_noise_are_found_by_chance_only() -> None:
    spectrum = resting_spectrum(100)
    single, cosines = found(spectrum, 5, 100, 100.0)
    assert np.mean(cosines) < 0.4
    assert single < 0.3
    assert found(spectrum, 5, 100, 1e-9)[0] == pytest.approx(1, abs=1e-6)


def test_separation_that_finds_nothing_is_below_one_that_costs_nothing() -> None:
    for cosines in (np.ones(5), np.linspace(1, 0.1, 5)):
        least, most = separated(cosines)
        assert 0 < least < most <= 1


STUDY = """
name = "few"
algorithm = "ica"
[parameters]
columns = {columns}
n_components = 4
band = [0.01, 0.1]
[unit]
kind = "person"
[privacy]
epsilon = 1.0
delta = 1e-5
[[sites]]
name = "a"
units = {units}
[[sites]]
name = "b"
units = {units}
[[sites]]
name = "c"
units = {units}
"""


@pytest.mark.parametrize("units", [8, 4000])
def test_plan_is_written_only_if_enough_is_expected_or_anyway(units: int, tmp_path: Path) -> None:
    study, plan = tmp_path / "s.toml", tmp_path / "plan.json"
    study.write_text(STUDY.format(columns=[f"c{at}" for at in range(150)], units=units))
    ran = zerosum("plan", "s.toml", "--out", "plan.json", cwd=tmp_path)
    assert (ran.returncode == 0) == plan.exists() == (units == 4000)
    assert "what to expect" in ran.stdout
    ran = zerosum("plan", "s.toml", "--out", "again.json", "--anyway", cwd=tmp_path)
    assert ran.returncode == 0
    assert (tmp_path / "again.json").exists()
