"""Forecasts: public guesses, made-up people, and what is predicted against what seeded runs show."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerosum.algorithms import CustomProgram
from zerosum.compute.units import Units
from zerosum.errors import BadParameter, PolicyRefused
from zerosum.forecast import Advisor, Assumptions, ColumnShape, Setting, Spectrum, read_like, what_if
from zerosum.forecast.measures import match_centers, measure_of
from zerosum.forecast.populations import ClustersPopulation, SpectrumPopulation, population_of
from zerosum.forecast.settings import study_in_setting, units_per_site
from zerosum.forecast.sweep import search
from zerosum.study import Study
from zerosum.study.rehearsal import PlanSimulation

THREE: dict[str, Any] = {"columns": ["a", "b", "c"], "lower": [0, 0, 0], "upper": [10, 100, 1]}
RANGES: dict[str, Any] = {"columns": ["a"], "ranges": {"a": (0, 10)}}
MANY: dict[str, Any] = {"columns": [f"c{at}" for at in range(12)], "lower": [-1] * 12, "upper": [1] * 12}
SKEWED = Assumptions(columns={"a": ColumnShape.parse("skewed:1.5:2")})


def study_of(algorithm: str, parameters: dict[str, Any], epsilon: float = 1.0, **more: Any) -> Study:
    usual: dict[str, Any] = {
        "name": "s",
        "unit": {"kind": "person"},
        "privacy": {"epsilon": epsilon, "delta": 1e-5},
        "sites": [{"name": f"s{at}", "units": 300 + 100 * at} for at in range(4)],
    }
    return Study(algorithm=algorithm, parameters=parameters, **usual | more)


# ---- guesses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", ["", "normal", "normal:1", "normal:1:0", "normal:nan:1", "skewed:0:2", "skewed:1:1", "shares:-1:2", "x:1"]
)
def test_column_shape_bad_text_is_refused(said: str) -> None:
    with pytest.raises(BadParameter):
        ColumnShape.parse(said)


@pytest.mark.parametrize("said", ["power:", "power:-1", "exponential:2", "flat:1", "there/is/no/file", "power:inf"])
def test_spectrum_bad_text_is_refused(said: str) -> None:
    with pytest.raises(BadParameter, match="spectrum"):
        Spectrum.parse(said)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "said", "word"),
    [
        ("k-means", THREE | {"n_clusters": 2}, "a=normal:5:1", "columns"),
        ("pca", THREE | {"n_components": 1}, "a=normal:5:1", "columns"),
        ("survival", {"columns": ["t", "e"], "edges": [0, 1, 2]}, "e=uniform", "'e'"),
        ("logistic-regression", THREE, "c=normal:0.1:0.3", "shares:9:1"),
        ("logistic-regression", THREE, "c=shares:1:1:1", "shares:9:1"),
        ("poisson-regression", THREE, "c=normal:-1:1", "normal:MEAN:SD"),
        ("poisson-regression", THREE, "c=uniform", "normal:MEAN:SD"),
    ],
)
def test_advisor_guess_without_effect_is_refused(
    algorithm: str, parameters: dict[str, Any], said: str, word: str
) -> None:
    name, _, shape = said.partition("=")
    with pytest.raises(BadParameter, match=word):
        Advisor(study_of(algorithm, parameters), Assumptions({name: ColumnShape.parse(shape)}))


def test_advisor_description_has_guessed_shapes() -> None:
    survival = study_of("survival", {"columns": ["t", "e"], "edges": [0, 1, 2]})
    assumed = Advisor(survival).description
    told = Advisor(survival, Assumptions({"t": ColumnShape.parse("skewed:0.5:2")})).description
    assert "skewed:0.5:2" in told
    assert "skewed" not in assumed
    assumptions = Assumptions({"c": ColumnShape.parse("shares:9:1")})
    assert "shares:9:1" in Advisor(study_of("logistic-regression", THREE), assumptions).description


def test_spectrum_from_file_is_sorted_and_checked(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.array([1.0, 4.0, 2.0]))
    assert Spectrum.parse(str(tmp_path / "s.npy")).values(2).tolist() == [4.0, 2.0]
    with pytest.raises(BadParameter, match="3 eigenvalues"):
        Spectrum.parse(str(tmp_path / "s.npy")).values(5)
    (tmp_path / "t.txt").write_text("1 nan")
    with pytest.raises(BadParameter, match="finite"):
        Spectrum.parse(str(tmp_path / "t.txt"))


def test_column_shape_samples_follow_guess_within_ranges() -> None:
    rng = np.random.default_rng(0)
    skewed = ColumnShape.parse("skewed:10:2").numbers_in(0, 200, 20_000, rng)
    assert np.median(skewed) == pytest.approx(10, rel=0.03)
    assert np.quantile(skewed, 0.841) == pytest.approx(20, rel=0.05)
    normal = ColumnShape.parse("normal:50:10").numbers_in(0, 60, 20_000, rng)
    assert normal.max() == 60
    levels = ColumnShape.parse("shares:3:1").levels_of(2, 20_000, rng)
    assert np.mean(levels) == pytest.approx(0.25, abs=0.02)
    with pytest.raises(BadParameter, match="3 shares"):
        ColumnShape.parse("shares:3:1").levels_of(3, 10, rng)
    with pytest.raises(BadParameter, match="'z'"):
        population_of(study_of("mean", THREE).build_algorithm(), Assumptions(columns={"z": ColumnShape()}))


def test_read_like_private_data_of_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,0.3\n")
    study = study_of("mean", THREE)
    own = [{"name": f"s{at}", "data": tmp_path / "a.csv"} for at in range(4)]
    whole = Study(**{**study.model_dump(), "sites": own})
    with pytest.raises(PolicyRefused, match="private"):
        read_like(whole, tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("a,b,c\n1,2,0.3\n4,5,0.6\n")
    assert len(read_like(whole, tmp_path / "b.csv")) == 2


# ---- settings ------------------------------------------------------------------------------------------------------


def test_units_per_site_add_up_and_leave_no_site_empty() -> None:
    assert units_per_site(1000, [300, 500, 200]).tolist() == [300, 500, 200]
    for people in (3, 4, 17, 100):
        found = units_per_site(people, [1, 1000, 1])
        assert found.sum() == people
        assert found.min() >= 1


def test_study_in_setting_changes_setting_only() -> None:
    study = study_of("mean", THREE)
    own = Setting.of(study)
    assert own == Setting(1.0, 4, 1, 1800)
    assert study_in_setting(study, own).plan().public_digest == study.plan().public_digest
    other = study_in_setting(study, Setting(2.0, 10, 3, 5000)).plan()
    assert (other.epsilon, len(other.sites), other.coalition.colluders) == (2.0, 10, 3)
    assert sum(site.units or 0 for site in other.sites) == 5000
    with pytest.raises(BadParameter, match="--people"):
        Setting.of(study_of("mean", THREE, sites=[{"name": "a"}, {"name": "b"}]))


def test_study_in_setting_keeps_undeclared_counts() -> None:
    open_ = study_of(
        "mean", THREE, sites=[{"name": "a"}, {"name": "b"}], unit={"kind": "person", "adjacency": "add-remove"}
    )
    plan = study_in_setting(open_, Setting.of(open_, 500)).plan()
    assert [site.units for site in plan.sites] == [None, None]
    assert Advisor(open_, people=500).at(Setting.of(open_, 500)).privacy > 0


# ---- what is predicted, and what is seen ---------------------------------------------------------------------------


def spreads(study: Study, assumptions: Assumptions, runs: int, samples: int = 4) -> np.ndarray[Any, Any]:
    """The standard deviation of every number among runs on the same people, all of them."""
    algorithm, people = study.build_algorithm(), Setting.of(study).people
    population, measure = population_of(algorithm, assumptions), measure_of(algorithm)
    assert population is not None
    assert measure is not None
    whole = PlanSimulation(algorithm, study.plan())
    found = []
    for sample in range(samples):
        units = population.people(people, np.random.default_rng([7, sample]))
        draws = whole.runs(units, range(1000 * sample, 1000 * sample + runs // samples))
        found.append([measure.values(each, units, population.truth) for each in draws])
    return np.asarray(np.sqrt(np.mean(np.var(found, axis=1, ddof=1), axis=0)))


@pytest.mark.parametrize(
    ("algorithm", "parameters", "assumptions", "runs"),
    [
        ("mean", THREE, Assumptions(), 80),
        ("mean", {**THREE, "clip": 0.5}, SKEWED, 80),
        ("histogram", {"columns": ["a"], "edges": [0.0, 1.0, 4.0, 10.0]}, SKEWED, 80),
        ("quantiles", RANGES, Assumptions(), 60),
        ("quantiles", RANGES, SKEWED, 60),
        ("covariance", THREE, Assumptions(), 60),
        ("logistic-regression", THREE, Assumptions(), 40),
        ("survival", {"columns": ["t", "e"], "edges": [0.0, 1.0, 2.0, 4.0]}, Assumptions(), 60),
        ("mixture", {**THREE, "n_components": 2, "scaling": "ranges"}, Assumptions(), 24),
    ],
)
def test_forecast_spread_agrees_with_simulation(
    algorithm: str, parameters: dict[str, Any], assumptions: Assumptions, runs: int
) -> None:
    """Wide, since runs are few here; `benchmarks/what_if.py` has the narrow figures."""
    study = study_of(algorithm, parameters)
    advisor = Advisor(study, assumptions)
    said = advisor.at(advisor.own, runs)
    seen = spreads(study, advisor.assumptions, runs)
    scale = np.array([line.scale for line in said.lines])
    forecast = np.array([line.noise for line in said.lines])
    ratio = math.sqrt(float(np.mean((forecast / scale) ** 2) / np.mean((seen / scale) ** 2)))
    assert ratio == pytest.approx(1, abs=0.3)


def test_forecast_of_test_is_its_power_for_the_planned_effect() -> None:
    question: dict[str, Any] = {
        "columns": ["a", "g"],
        "test": "welch",
        "ranges": {"a": [0.0, 10.0]},
        "levels": {"g": [0, 1]},
        "by": "g",
    }
    planned = Advisor(study_of("hypothesis-test", question | {"effect": {"a": 1.0}}))
    assert planned.level == "power"
    weak, strong = (planned.at(replace(planned.own, epsilon=epsilon), 8) for epsilon in (0.2, 4.0))
    lost = [each.expected if each.expected is not None else np.nan for each in (strong, weak)]
    # eight rehearsals of the strong study may all reject
    assert 0 <= lost[0] < lost[1] < 1
    without = Advisor(study_of("hypothesis-test", question))
    assert without.at(without.own, 20).lines[0].noise > 0
    with pytest.raises(BadParameter, match="effect"):
        Advisor(study_of("hypothesis-test", question | {"levels": {"g": [0, 1, 2]}}))


def test_forecast_by_fewer_people_agrees_with_simulation() -> None:
    """The same forecast, whether all are made up or some stand for them."""
    study = study_of(
        "linear-regression", {**THREE, "rounds": 4}, sites=[{"name": f"s{at}", "units": 2500} for at in range(4)]
    )
    advisor = Advisor(study)
    said = advisor.at(advisor.own, 48)
    seen = spreads(study, advisor.assumptions, 48, samples=2)
    ratio = [line.noise / each for line, each in zip(said.lines, seen, strict=True)]
    assert float(np.mean(ratio)) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("said", ["power:1", "exponential:0.7"])
def test_forecast_lost_energy_agrees_with_simulation(said: str) -> None:
    assumptions = Assumptions(spectrum=Spectrum.parse(said))
    study = study_of("pca", {**MANY, "n_components": 2})
    advisor = Advisor(study, assumptions)
    forecast = advisor.at(advisor.own, 100).lines[0].bias
    algorithm = study.build_algorithm()
    population, measure = population_of(algorithm, assumptions), measure_of(algorithm)
    assert population is not None
    assert measure is not None
    people = population.people(1800, np.random.default_rng(99))
    lost = [
        measure.values(each, people, None)[0] for each in PlanSimulation(algorithm, study.plan()).runs(people, range(8))
    ]
    assert forecast == pytest.approx(float(np.mean(lost)), abs=0.03)
    assert 0 < forecast < 0.5


def test_spectrum_population_has_declared_spectrum() -> None:
    algorithm = study_of("pca", {**MANY, "n_components": 2}).build_algorithm()
    population = population_of(algorithm, Assumptions(spectrum=Spectrum.parse("power:2")))
    assert isinstance(population, SpectrumPopulation)
    rows = population.people(40_000, np.random.default_rng(0)).rows
    values = np.linalg.eigvalsh(np.cov(np.asarray(rows).T))[::-1]
    assert values[:4] / values[0] == pytest.approx([1, 1 / 4, 1 / 9, 1 / 16], rel=0.05)
    assert np.sqrt(np.mean(np.var(np.asarray(rows), axis=0))) == pytest.approx(0.25, rel=0.05)


def test_match_centers_in_any_order_restores_truth() -> None:
    population = population_of(study_of("mixture", {**THREE, "n_components": 3}).build_algorithm(), Assumptions())
    assert isinstance(population, ClustersPopulation)
    assert population.truth is not None
    assert population.separation >= 6
    assert match_centers(population.truth[[2, 0, 1]], population.truth, np.array([10.0, 100.0, 1.0])) == pytest.approx(
        population.truth
    )


# ---- sweeps and targets --------------------------------------------------------------------------------------------


def test_forecast_error_falls_with_budget_people_and_sites_and_rises_with_colluders() -> None:
    found = what_if(study_of("survival", {"columns": ["t", "e"], "edges": [0.0, 1.0, 2.0]}), runs=16)
    for kind, falls in (("epsilon", True), ("people", True), ("sites", True), ("colluders", False)):
        errors = [each.privacy for each in found.around[kind]]
        assert len(errors) >= 2
        assert errors == sorted(errors, reverse=falls), kind
    assert all(found.own in row for row in found.around.values())
    sampling = [each.sampling for each in found.around["people"]]
    assert sampling == pytest.approx([found.own.sampling * math.sqrt(f) for f in (4, 2, 1, 0.5, 0.25)], rel=0.01)
    assert found.as_record()["own"]["runs"] == 16


def test_target_search_finds_smallest_sufficient_epsilon() -> None:
    study = study_of("mean", THREE)
    advisor = Advisor(study)
    own = advisor.at(advisor.own)
    for wanted in (own.privacy / 3, own.privacy, own.privacy * 5):
        target = search(advisor, {"": wanted}, 2)
        assert target.forecast is not None
        assert target.forecast.privacy <= wanted
        less = advisor.at(Setting(0.98 * (target.epsilon or 0), 4, 1, 1800))
        assert less.privacy > wanted
    by_name = search(advisor, {"b": own.lines[1].privacy}, 2)
    assert by_name.epsilon == pytest.approx(1.0, rel=0.02)
    with pytest.raises(BadParameter, match="'z'"):
        search(advisor, {"z": 1.0}, 2)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BadParameter, match="positive"):
            search(advisor, {"": wrong}, 2)


def test_forecast_counts_hidden_values_and_target_excludes_them() -> None:
    """A curve ends where noise is larger than all people: the errors of what is left look better than they are."""
    edges = {"columns": ["t", "e"], "edges": [0, 1, 2, 3, 4]}
    advisor = Advisor(study_of("survival", edges, epsilon=0.012))
    found = advisor.at(advisor.own, 16)
    assert [line.label for line in found.lines] == ["all, 1", "all, 2", "all, 3", "all, 4"]
    assert found.lines[-1].missing == 1.0
    assert math.isnan(found.lines[-1].privacy)
    assert 0 < found.privacy < 1
    assert found.lines[-1] in found.hidden
    assert "all, 4" in found.as_record()["hidden"]
    target = search(advisor, {"": 2 * found.privacy}, 16)  # which what is left has reached already
    assert target.forecast is not None
    assert (target.epsilon or 0) > 0.012
    assert not target.forecast.hidden
    with pytest.raises(BadParameter, match="noise"):
        Advisor(study_of("survival", edges, epsilon=1e-4)).at(advisor.own.__class__(1e-4, 4, 1, 1800), 8)


def test_target_search_of_unreachable_error_has_no_epsilon() -> None:
    advisor = Advisor(study_of("mean", THREE))
    assert search(advisor, {"": 1e-12}, 2).epsilon is None
    near = advisor.at(replace(advisor.own, epsilon=55.0))  # 64 can no longer be planned
    assert search(advisor, {"": near.privacy}, 2).epsilon == pytest.approx(55, rel=0.02)


def test_forecast_of_custom_program_or_without_noise_is_refused() -> None:
    own: dict[str, Any] = {"columns": ["a", "b", "c"], "statistic": "a name", "clip": 1.0}
    for assumptions in (Assumptions(columns={"a": ColumnShape()}), Assumptions(like=Units(np.ones((2, 3))))):
        with pytest.raises(BadParameter, match="'statistic'"):
            population_of(CustomProgram(**own), assumptions)
    with pytest.raises(BadParameter, match="scheme"):
        Advisor(study_of("mean", THREE, scheme={"name": "non-private"}))


def test_forecast_with_scaled_site_agrees_with_simulation() -> None:
    """By formula and by rehearsal through weighted sites alike."""
    sites = [{"name": f"s{at}", "units": 300, "scale": 0.5 if at == 0 else 1.0} for at in range(4)]
    study = study_of("mean", THREE, sites=sites)
    advisor = Advisor(study)
    said = advisor.at(advisor.own)
    plan, algorithm = study.plan(), study.build_algorithm()
    rng = np.random.default_rng(0)
    parts = [Units(rng.uniform(0, 1, (300, 3)) * [10, 100, 1]) for _ in range(4)]
    drawn = [np.asarray(each["mean"].value) for each in PlanSimulation(algorithm, plan).runs(parts, range(100))]
    seen = np.std(drawn, axis=0, ddof=1)
    assert np.array([line.noise for line in said.lines]) == pytest.approx(seen, rel=0.3)
    weights = np.array([0.5, 1, 1, 1])
    expected = np.average([np.mean(np.asarray(part.rows), axis=0) for part in parts], axis=0, weights=weights)
    assert np.mean(drawn, axis=0) == pytest.approx(expected, abs=5 * float(np.max(seen)))
