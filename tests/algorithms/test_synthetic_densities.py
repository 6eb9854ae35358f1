"""Public densities of columns of synthetic data: bins of equal mass, values within bins, parts of bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.algorithms import SyntheticDataProgram
from zerosum.algorithms.synthetic.densities import Density
from zerosum.errors import BadParameter

TRIANGLE = Density(0.0, 10.0, ((0.0, 1e-9), (10.0, 1.0)))


def test_density_of_the_logarithm_has_bins_of_equal_ratio() -> None:
    edges = Density(1.0, 1e6, "log").edges(6, whole=False)
    assert edges == pytest.approx(10.0 ** np.arange(7), rel=1e-6)


def test_density_of_a_polygon_has_bins_of_equal_mass() -> None:
    # F(x) = (x / 10)^2
    assert TRIANGLE.edges(4, whole=False) == pytest.approx(10 * np.sqrt(np.arange(5) / 4), abs=1e-3)


def test_density_of_whole_numbers_has_edges_at_halves() -> None:
    edges = Density(1.0, 1000.0, "log").edges(30, whole=True)
    assert np.all(edges % 1 == 0.5)
    assert (edges[0], edges[-1]) == (0.5, 1000.5)
    assert np.all(np.diff(edges) >= 1)


def test_density_values_within_a_bin_follow_it() -> None:
    places = (np.arange(1000) + 0.5) / 1000
    values = Density(1.0, 100.0, "log").drawn(np.full(1000, 1.0), np.full(1000, 100.0), places)
    assert np.median(values) == pytest.approx(10.0, rel=0.01)
    assert np.all((values >= 1) & (values <= 100))


def test_density_part_of_bins_adds_up_for_neighbouring_ranges() -> None:
    edges = TRIANGLE.edges(5, whole=False)
    below, above = TRIANGLE.part(edges, -np.inf, 6.0), TRIANGLE.part(edges, 6.0, np.inf)
    assert below + above == pytest.approx(np.ones(5))
    assert below.mean() == pytest.approx(0.36, abs=1e-3)


def test_density_uniform_is_that_of_equal_bins() -> None:
    uniform = Density(0.0, 8.0)
    assert uniform.edges(4, whole=False).tolist() == [0, 2, 4, 6, 8]
    assert uniform.part(np.array([-0.5, 3.5, 8.5]), 0.5, 3.5).tolist() == [0.75, 0.0]


@pytest.mark.parametrize(
    "densities",
    [
        {"income": "log"},
        {"age": "normal"},
        {"sex": "log"},
        {"age": ((0.0, 1.0), (50.0, 1.0))},
        {"age": ((0.0, 1.0), (100.0, 0.0))},
        {"age": ((0.0, 1.0), (60.0, 1.0), (50.0, 1.0), (100.0, 1.0))},
        {"age": "log"},
    ],
)
def test_synthetic_data_refuse_a_density_that_is_none(densities: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        SyntheticDataProgram(
            columns=("age", "sex"), ranges={"age": (0, 100)}, levels={"sex": ("f", "m")}, densities=densities
        )
