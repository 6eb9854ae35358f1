"""Structures of the data: what is stated, what is completed, and the range of a forecast over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from zerosum.errors import BadParameter
from zerosum.forecast import Advisor, Assumptions, ColumnShape, Spectrum, structures_of, what_if
from zerosum.forecast.populations import correlated_scores, population_of
from zerosum.study import Study

TABLE: dict[str, Any] = {"columns": ["a", "b", "c", "y"], "lower": [0, 0, 0, 0], "upper": [10, 100, 1, 50]}
COUNTS: dict[str, Any] = {"columns": ["a", "b"], "ranges": {"a": (0, 20), "b": (0, 0.5)}}
STATED = Assumptions(usual=ColumnShape("uniform"), correlation=0.0)


def study_of(algorithm: str, parameters: dict[str, Any]) -> Study:
    return Study(
        name="s",
        algorithm=algorithm,
        parameters=parameters,
        unit={"kind": "person"},
        privacy={"epsilon": 2.0, "delta": 1e-5},
        sites=[{"name": f"s{at}", "units": 500} for at in range(4)],
    )


def people_of(algorithm: str, parameters: dict[str, Any], assumptions: Assumptions, count: int = 20_000) -> Any:
    population = population_of(study_of(algorithm, parameters).build_algorithm(), assumptions)
    assert population is not None
    return np.asarray(population.people(count, np.random.default_rng(0)).rows)


@pytest.mark.parametrize("r", [0.0, 0.5, 0.95])
def test_correlated_scores_have_correlation_of_neighbours_and_its_powers(r: float) -> None:
    scores = correlated_scores(40_000, 4, r, np.random.default_rng(0))
    found = np.corrcoef(scores.T)
    expected = r ** np.abs(np.subtract.outer(range(4), range(4)))
    assert np.allclose(found, expected, atol=0.02)
    assert np.allclose(scores.std(axis=0), 1, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "middle", "deviation"), [("uniform", 50, 28.9), ("centered", 50, 12.5), ("tailed", 8.33, 8.3)]
)
def test_column_shape_of_all_columns_is_relative_to_range(shape: str, middle: float, deviation: float) -> None:
    rows = people_of("covariance", TABLE, Assumptions(usual=ColumnShape(shape)))
    assert np.median(rows[:, 1]) == pytest.approx(middle, rel=0.03)
    assert rows[:, 1].std() == pytest.approx(deviation, rel=0.1)
    assert rows[:, 1].min() >= 0
    assert rows[:, 1].max() <= 100


def test_regression_population_takes_range_of_0_to_1_for_yes_and_no() -> None:
    rows = people_of("linear-regression", TABLE, Assumptions(usual=ColumnShape("centered"), correlation=0.5))
    assert set(rows[:, 2]) == {0.0, 1.0}
    assert rows[:, 2].mean() == pytest.approx(0.3, abs=0.02)
    stated = Assumptions({"c": ColumnShape("uniform")}, usual=ColumnShape("centered"))
    assert len(set(people_of("linear-regression", TABLE, stated)[:, 2])) > 1000


def test_whole_columns_of_study_and_of_assumptions_are_whole() -> None:
    own = people_of("quantiles", {**COUNTS, "whole": ["a"]}, Assumptions())
    assert np.all(own[:, 0] == np.rint(own[:, 0]))
    assumed = people_of("quantiles", COUNTS, Assumptions(whole=("a",)))
    assert np.all(assumed[:, 0] == np.rint(assumed[:, 0]))
    assert not np.all(people_of("quantiles", COUNTS, Assumptions())[:, 0] % 1 == 0)
    with pytest.raises(BadParameter, match="'b'"):
        people_of("quantiles", COUNTS, Assumptions(whole=("b",)))


@pytest.mark.parametrize(
    ("algorithm", "parameters", "stated", "count"),
    [
        ("linear-regression", TABLE, Assumptions(), 3),
        ("linear-regression", TABLE, Assumptions(correlation=0.3), 3),
        ("linear-regression", TABLE, STATED, 1),
        ("linear-regression", TABLE, replace(STATED, r_squared=0.5), 1),
        ("poisson-regression", TABLE, STATED, 3),
        ("poisson-regression", TABLE, replace(STATED, columns={"y": ColumnShape("normal", (4.0, 2.0))}), 1),
        ("covariance", TABLE, Assumptions(), 3),
        ("pca", {**TABLE, "n_components": 2}, Assumptions(), 3),
        ("pca", {**TABLE, "n_components": 2}, Assumptions(spectrum=Spectrum.parse("flat")), 1),
        ("quantiles", COUNTS, Assumptions(), 3),
        ("quantiles", COUNTS, Assumptions(usual=ColumnShape("uniform"), whole=("a",)), 1),
        ("mean", TABLE, Assumptions(), 1),
        ("mixture", {**TABLE, "n_components": 2}, Assumptions(), 1),
    ],
)
def test_structures_complete_what_is_not_stated(
    algorithm: str, parameters: dict[str, Any], stated: Assumptions, count: int
) -> None:
    found = structures_of(study_of(algorithm, parameters).build_algorithm(), stated)
    assert len(found) == count
    assert [each.name for each in found] == (["typical", "favourable", "difficult"] if count == 3 else [""])
    for each in found:
        assert stated.columns.items() <= each.assumptions.columns.items()
        assert stated.correlation in (None, each.assumptions.correlation)
        assert stated.usual in (None, each.assumptions.usual)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "assumptions", "word"),
    [
        ("quantiles", COUNTS, Assumptions(correlation=0.5), "--correlation"),
        ("mixture", {**TABLE, "n_components": 2}, Assumptions(usual=ColumnShape("tailed")), "--shape"),
        ("pca", {**TABLE, "n_components": 2}, Assumptions(whole=("a",)), "--whole"),
        ("mean", TABLE, Assumptions(correlation=0.5), "--correlation"),
    ],
)
def test_advisor_structure_without_effect_is_refused(
    algorithm: str, parameters: dict[str, Any], assumptions: Assumptions, word: str
) -> None:
    with pytest.raises(BadParameter, match=word):
        Advisor(study_of(algorithm, parameters), assumptions)


@pytest.mark.parametrize("bad", [{"correlation": 1.0}, {"correlation": -0.1}, {"usual": ColumnShape("normal", (1, 2))}])
def test_assumptions_impossible_structure_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        Assumptions(**bad)


def test_what_if_of_regression_has_range_over_structures_and_caveat() -> None:
    study = study_of("linear-regression", {**TABLE, "rounds": 4})
    found = what_if(study, runs=8)
    low, high = found.range
    assert low < found.own.privacy < high
    assert [each.name for each in found.structures] == ["favourable", "difficult"]
    assert "0.5" in found.caveat
    record = found.as_record()
    assert record["range"] == [low, high]
    assert len(record["structures"]) == 2


def test_what_if_target_has_epsilon_of_every_structure() -> None:
    found = what_if(study_of("covariance", {**TABLE, "columns": ["a", "b", "c", "d"]}), runs=8, target={"": 0.2})
    assert found.target is not None
    assert [name for name, _epsilon in found.target.others] == ["favourable", "difficult"]
    assert set(found.target.as_record()["structures"]) == {"favourable", "difficult"}


def test_advisor_of_regression_on_independent_columns_says_so() -> None:
    study = study_of("linear-regression", TABLE)
    assert "independent" in Advisor(study, STATED).caveat
    assert Advisor(study_of("quantiles", COUNTS)).caveat == ""
