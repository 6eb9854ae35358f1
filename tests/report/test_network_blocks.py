"""Blocks, tables and terminal output of guided ICA and connectivity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.program_results import exact
from zerosum.algorithms import ConnectivityProgram, GuidedICAProgram
from zerosum.algorithms.program import Algorithm, PublicFacts
from zerosum.cli.terminal import show_estimate
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.question import Question
from zerosum.kernel.statistic import Adjacency
from zerosum.report.document import Bars, Forest, Grid, Text
from zerosum.report.network_blocks import connectivity, differences
from zerosum.report.tables import tables_of

RNG = np.random.default_rng(0)
COLUMNS = tuple(f"r{at}" for at in range(150))
PEOPLE = Units.from_list([np.hstack([RNG.normal(size=(40, 4)), np.full((40, 1), at % 2)]) for at in range(12)])
BRAINS = Units.from_list([RNG.normal(size=(40, 150)) for _ in range(12)])
GUIDED = GuidedICAProgram(columns=COLUMNS, templates=np.eye(150)[:3]).resolve(PublicFacts(1.0, 12))
GROUPS = ConnectivityProgram(columns=("a", "b", "c", "d", "x"), group="x", levels=("no", "yes"), clip=2.0)
WITHIN = ConnectivityProgram(columns=("a", "b", "c", "d", "x"), covariates={"x": (0.0, 1.0)}, clip=2.0)
QUESTION = Question.of(COLUMNS, {})


def estimate(algorithm: Algorithm, units: Units, noise: float = 0.0) -> Any:
    return drive(algorithm.program(Adjacency.REPLACE_ONE), exact(units, noise=noise))[0]  # type: ignore[arg-type]


def record(found: dict[str, Quantity]) -> dict[str, Any]:
    return {
        "estimate": {name: each.value.tolist() for name, each in found.items()},
        "quantities": {name: each.as_record() for name, each in found.items()},
        "privacy": {"question": {"columns": [], "parameters": {}}},
    }


def test_guided_blocks_say_that_nothing_is_above_the_noise() -> None:
    blocks = list(differences(estimate(GUIDED, BRAINS, noise=1e4), QUESTION, None))
    (warning,) = (each for each in blocks if isinstance(each, Text))
    assert warning.tone == "warning"
    assert [each.title for each in blocks if isinstance(each, Bars)] == ["Share kept"]


@pytest.mark.parametrize("program", [GROUPS, WITHIN], ids=["groups", "covariates"])
def test_connectivity_blocks_have_matrices_edges_and_tests(program: ConnectivityProgram) -> None:
    blocks = list(connectivity(estimate(program, PEOPLE), QUESTION, None))
    grids = [each for each in blocks if isinstance(each, Grid)]
    assert all(each.rows == ("a", "b", "c", "d") for each in grids)
    assert len(grids) == (3 if program is GROUPS else 1)
    (edges,) = (each for each in blocks if isinstance(each, Forest))
    assert len(edges.rows) == 6
    assert any(isinstance(each, Text) and "chi-squared" in each.sentences[0] for each in blocks)


@pytest.mark.parametrize(("program", "units"), [(GUIDED, BRAINS), (GROUPS, PEOPLE), (WITHIN, PEOPLE)])
def test_results_of_networks_are_printed_without_raw_voxels(
    program: Algorithm, units: Units, capsys: pytest.CaptureFixture[str]
) -> None:
    found = estimate(program, units)
    assert not tables_of(found)
    show_estimate(record(found))
    shown = capsys.readouterr().out
    if program is GUIDED:
        assert "3 by 150 numbers" in shown
        assert "r149" not in shown
