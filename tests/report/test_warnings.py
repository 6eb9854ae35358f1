"""Warnings follow from releases, and are not given where noise explains what is seen."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import zerosum
from zerosum.algorithms import (
    Algorithm,
    CovarianceProgram,
    DescribeProgram,
    HistogramProgram,
    MeanProgram,
    QuantilesProgram,
)
from zerosum.report.warnings import result_warnings
from zerosum.site.policy import Policy

PEOPLE = 2000


def warned(
    algorithm: Algorithm, values: Any, folder: Any, epsilon: float = 2.0, people: int = PEOPLE, seed: int = 0
) -> tuple[str, ...]:
    rng = np.random.default_rng(seed)
    data = {name: values(rng, people) for name in ("north", "east", "south")}
    policies = {name: Policy.throwaway(name, folder / f"{name}.sqlite", unit="person") for name in data}
    result = zerosum.run(algorithm, data, epsilon=epsilon, delta=1e-5, unit="person", policies=policies)
    assert result.as_record()["warnings"] == list(result.warnings)
    return result.warnings


def normal(centre: float, spread: float) -> Any:
    return lambda rng, people: np.column_stack([rng.normal(centre, spread, people), rng.normal(0, 1, people)])


RANGES: dict[str, Any] = {"columns": ("age", "other"), "lower": np.array([0.0, -5]), "upper": np.array([100.0, 5])}


def test_result_warnings_of_sound_question_are_empty(tmp_path: Any) -> None:
    for number, algorithm in enumerate((MeanProgram(**RANGES), CovarianceProgram(**RANGES))):
        assert warned(algorithm, normal(50, 15), tmp_path / str(number)) == ()
    edges = np.linspace(0, 100, 11)
    ages = HistogramProgram(columns=("age",), edges=edges)
    assert warned(ages, lambda rng, people: rng.normal(50, 15, (people, 1)), tmp_path / "h") == ()


@pytest.mark.parametrize(("centre", "end"), [(-300.0, "lower"), (900.0, "upper")])
def test_result_warnings_range_without_values_names_column_and_end(centre: float, end: str, tmp_path: Any) -> None:
    (said,) = warned(MeanProgram(**RANGES), normal(centre, 15), tmp_path)
    assert all(word in said for word in ("mean", "'age'", end))


GROUPED: dict[str, Any] = {"columns": ("age", "sex"), "levels": {"sex": (0.0, 1.0)}, "by": "sex"}


def ages_by_sex(rng: np.random.Generator, people: int) -> Any:
    return np.column_stack([rng.normal(50, 15, people), rng.integers(0, 2, people)])


@pytest.mark.parametrize("kind", [DescribeProgram, QuantilesProgram])
@pytest.mark.parametrize(("low", "high", "end"), [(300, 900, "lower"), (-300, -100, "upper")])
def test_result_warnings_description_over_range_without_values_names_column(
    kind: Any, low: float, high: float, end: str, tmp_path: Any
) -> None:
    assert warned(kind(ranges={"age": (0, 100)}, **GROUPED), ages_by_sex, tmp_path / "sound") == ()
    said = warned(kind(ranges={"age": (low, high)}, **GROUPED), ages_by_sex, tmp_path)
    assert all(word in said[-1] for word in ("quantiles", "'age'", end))
    assert (kind is QuantilesProgram) or all(word in said[0] for word in ("mean", "'age'", end))


def test_result_warnings_range_too_narrow_names_column(tmp_path: Any) -> None:
    narrow = RANGES | {"lower": np.array([49.0, -5]), "upper": np.array([51.0, 5])}
    (said,) = warned(CovarianceProgram(**narrow), normal(50, 30), tmp_path)
    assert "'age'" in said
    assert "'other'" not in said


def test_result_warnings_interval_wider_than_range_names_columns(tmp_path: Any) -> None:
    (said,) = warned(MeanProgram(**RANGES), normal(50, 15), tmp_path, epsilon=0.05, people=20)
    assert "'age', 'other'" in said
    assert "95 %" in said


@pytest.mark.parametrize("algorithm", [MeanProgram, CovarianceProgram])
def test_result_warnings_clip_that_cuts_everything_is_named(algorithm: Any, tmp_path: Any) -> None:
    cutting = algorithm(columns=("age", "other"), clip=1.0)
    assert "clip of 1" in "".join(warned(cutting, normal(50, 1), tmp_path / "a"))
    assert warned(algorithm(columns=("age", "other"), clip=100.0), normal(50, 1), tmp_path / "b") == ()


def test_result_warnings_bins_without_values_are_named(tmp_path: Any) -> None:
    ages = HistogramProgram(columns=("age",), edges=np.linspace(0, 10, 6))
    (said,) = warned(ages, lambda rng, people: rng.normal(50, 15, (people, 1)), tmp_path / "a")
    assert "last bin" in said
    few = warned(ages, lambda rng, people: rng.uniform(0, 10, (people, 1)), tmp_path / "b", epsilon=0.01, people=12)
    assert "noise" in few[-1]


def test_result_warnings_fewer_components_than_requested_are_counted(tmp_path: Any) -> None:
    pca = zerosum.algorithms.PCAProgram(columns=tuple("abcd"), clip=3.0, n_components=4)
    said = warned(pca, lambda rng, people: rng.normal(size=(people, 4)) * [2, 0.01, 0.01, 0.01], tmp_path, 0.3, 100)
    assert re.search(r"\b[0-3] of 4 components", "".join(said))


def test_result_warnings_of_empty_estimate_are_empty() -> None:
    from helpers.small_studies import make

    assert result_warnings({}, make()) == ()
