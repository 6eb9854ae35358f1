"""Forecasts of what no public range describes: made-up recordings, documents and classes, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerosum.algorithms import ICAProgram
from zerosum.compute.units import Runs, Units
from zerosum.errors import BadParameter, PolicyRefused
from zerosum.forecast import (
    Advisor,
    Assumptions,
    ColumnShape,
    Setting,
    Spectrum,
    compare,
    read_like,
    read_spectrum,
    what_if,
)
from zerosum.forecast.empirical_population import EmpiricalPopulation, select_units
from zerosum.forecast.measures import measure_of
from zerosum.forecast.populations import population_of
from zerosum.forecast.structured_populations import Classes, Documents, Recordings
from zerosum.forecast.sweep import search
from zerosum.study import Study
from zerosum.study.rehearsal import PlanSimulation

WIDE: dict[str, Any] = {"lower": [0, 0, 0], "upper": [1, 10, 100]}
LINEAR: dict[str, Any] = {"classes": [0, 1, 2], "features": {"kind": "linear", **WIDE}}
ASKED: dict[str, dict[str, Any]] = {
    "ica": {"columns": [f"c{at}" for at in range(8)], "n_components": 2, "rounds": 4},
    "topics": {"columns": [f"w{at}" for at in range(60)], "n_components": 3, "path": "pairs"},
    "feature-classifier": {**LINEAR, "rounds": 8, "learning_rate": 10.0},
    "neural-classifier": {"columns": ["a", "b", "c", "y"], "classes": [0, 1, 2], "hidden": 4, "steps": 20, **WIDE},
    "data-collaboration": LINEAR,
}
FAST = ("topics", "feature-classifier", "data-collaboration")


def study_of(algorithm: str, parameters: dict[str, Any] | None = None, epsilon: float = 2.0, **more: Any) -> Study:
    usual: dict[str, Any] = {
        "name": "s",
        "unit": {"kind": "person"},
        "privacy": {"epsilon": epsilon, "delta": 1e-5},
        "sites": [{"name": f"s{at}", "units": 150} for at in range(4)],
    }
    return Study(algorithm=algorithm, parameters=parameters or ASKED[algorithm], **usual | more)


# ---- worlds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"band": (0.01, 0.1), "seconds": 2.0}])
def test_recordings_population_components_are_found_by_run(more: dict[str, Any]) -> None:
    algorithm = study_of("ica", ASKED["ica"] | more).build_algorithm()
    assert isinstance(algorithm, ICAProgram)
    population = population_of(algorithm, Assumptions(rows=40))
    assert isinstance(population, Recordings)
    people = population.people(30, np.random.default_rng(0))
    assert len(people) == 30
    assert people.largest == 40
    assert population.numbers_each == 40 * 8
    assert {"40", "2"} <= set(population.description.split())  # rows, components
    rows = np.asarray(people.rows)
    strength = np.var(rows @ population.maps.T, axis=0)  # 1, and noise of 0.25 * 2 / 8
    assert strength == pytest.approx([1.0625, 1.0625], rel=0.35)
    study = study_of("ica", ASKED["ica"] | more, scheme={"name": "non-private"})
    found = PlanSimulation(study.build_algorithm(), study.plan()).run(people, 0)
    lost = measure_of(algorithm).values(found, people, population.truth)  # type: ignore[union-attr]
    assert np.max(lost) < 0.1


def test_recordings_population_lies_in_span_of_public_basis() -> None:
    basis = np.eye(8)[:, 2:5]
    population = population_of(ICAProgram(columns=ASKED["ica"]["columns"], n_components=2, basis=basis), Assumptions())
    assert isinstance(population, Recordings)
    assert np.linalg.norm(population.maps[:, [0, 1, 5, 6, 7]]) == pytest.approx(0, abs=1e-12)


def test_recordings_population_for_pca_has_spectrum() -> None:
    names = [f"c{at}" for at in range(6)]
    study = study_of("pca", {"columns": names, "clip": 1.0, "n_components": 2, "per_recording": "center"})
    assumptions = Assumptions(rows=30, spectrum=Spectrum.parse("power:2"))
    population = population_of(study.build_algorithm(), assumptions)
    assert population is not None
    people = population.people(50, np.random.default_rng(0))
    assert people.largest == 30
    values = np.linalg.eigvalsh(np.cov(np.asarray(people.rows).T))[::-1]
    assert values[:2] / values[0] == pytest.approx([1, 1 / 4], rel=0.15)
    advisor = Advisor(study, assumptions)
    assert "30" in advisor.description.split()  # rows of a person
    assert 0 <= (advisor.at(advisor.own, 8).expected or 0) < 0.5


def test_documents_population_has_one_topic_and_declared_length() -> None:
    population = population_of(study_of("topics", ASKED["topics"] | {"length": 12}).build_algorithm(), Assumptions())
    assert isinstance(population, Documents)
    people = population.people(500, np.random.default_rng(1))
    assert people.is_sparse
    assert set(np.asarray(people.rows.sum(axis=1)).ravel()) == {12.0}
    assert population.truth is not None
    common = np.asarray(people.rows.mean(axis=0)).ravel() / 12
    assert np.abs(common - np.mean(population.truth, axis=0)).sum() < 0.1
    first = population.people(40, np.random.default_rng(1)).dense().rows
    assert np.any(np.argmax(first @ population.truth.T, axis=1)[:10] != 0)  # in no order


@pytest.mark.parametrize("separation", [2.0, 5.0])
def test_classes_population_has_guessed_separation(separation: float) -> None:
    population = population_of(study_of("feature-classifier").build_algorithm(), Assumptions(separation=separation))
    assert isinstance(population, Classes)
    rows = np.asarray(population.people(6000, np.random.default_rng(0)).rows)
    means = np.array([rows[rows[:, -1] == k, :-1].mean(axis=0) for k in range(3)])
    spread = np.mean([rows[rows[:, -1] == k, :-1].std(axis=0) for k in range(3)], axis=0)
    apart = min(float(np.linalg.norm((means[i] - means[j]) / spread)) for i in range(3) for j in range(i))
    assert apart == pytest.approx(separation, rel=0.1)
    assert rows[:, :-1].min() >= 0
    assert np.all(rows[:, :-1].max(axis=0) <= [1, 10, 100])


@pytest.mark.parametrize("shape", [(12, 12), (2, 9, 9)])
def test_classes_population_images_are_smooth_and_within_range(shape: tuple[int, ...]) -> None:
    parameters = {"classes": [0, 1], "shape": shape, "model": "there is none", "lower": 0, "upper": 255}
    images = {"classes": [0, 1], "features": {"kind": "scattering", "height": 12, "width": 12}}
    plain = study_of("neural-classifier", parameters) if len(shape) > 2 else study_of("feature-classifier", images)
    population = population_of(plain.build_algorithm(), Assumptions())
    assert isinstance(population, Classes)
    assert "24" in population.description.split()  # patterns
    rows = np.asarray(population.people(200, np.random.default_rng(0)).rows)[:, :-1].reshape(200, *shape)
    assert 0 <= rows.min() < rows.max() <= 255
    steps = np.std(np.diff(rows, axis=-1)) / np.std(rows)
    assert steps < 1.2  # of white noise it is 1.41


def test_classes_population_image_of_one_pixel_has_columns() -> None:
    parameters = {"classes": [0, 1], "shape": (3, 1, 1), "model": "there is none", "lower": 0, "upper": 1}
    population = population_of(study_of("neural-classifier", parameters).build_algorithm(), Assumptions())
    assert isinstance(population, Classes)
    assert population.people(5, np.random.default_rng(0)).columns == 4


def test_empirical_population_people_keep_their_rows() -> None:
    units = Units.from_list([[[1.0]], [[2.0], [3.0]], [[4.0]]])
    assert [each.ravel().tolist() for each in select_units(units, np.array([1, 1, 0])).each()] == [[2.0, 3.0]] * 2 + [
        [1.0]
    ]
    recorded = Units(units.rows, units.offsets, Runs(np.array([0, 1, 3, 4]), np.array([1.0, 2.0, 3.0])))
    runs = select_units(recorded, np.array([2, 1])).runs
    assert runs is not None
    assert runs.seconds.tolist() == [3.0, 2.0]
    population = EmpiricalPopulation(Units(np.arange(8.0)[:, None]), None, hold_out=True)
    assert population.truth is not None
    assert population.truth.ravel().tolist() == [3.0, 7.0]
    assert not np.isin(np.asarray(population.people(50, np.random.default_rng(0)).rows), [3.0, 7.0]).any()
    with pytest.raises(BadParameter, match="4"):
        EmpiricalPopulation(Units(np.zeros((3, 1))), None, hold_out=True)


# ---- guesses that would not count ----------------------------------------------------------------------------------

THREE: dict[str, Any] = {"columns": ["a", "b", "c"], "lower": [0, 0, 0], "upper": [10, 100, 1]}


@pytest.mark.parametrize(
    ("algorithm", "parameters", "assumptions", "word"),
    [
        ("mean", THREE, Assumptions(r_squared=0.3), "--r-squared"),
        ("mean", THREE, Assumptions(spectrum=Spectrum.parse("flat")), "--spectrum"),
        ("mean", THREE, Assumptions(separation=6.0), "--separation"),
        ("mean", THREE, Assumptions(rows=50), "--rows"),
        ("pca", {**THREE, "n_components": 2}, Assumptions(rows=50), "--rows"),
        ("pca", {**THREE, "n_components": 2}, Assumptions(separation=2.0), "--separation"),
        ("linear-regression", THREE, Assumptions(spectrum=Spectrum.parse("flat")), "--spectrum"),
        ("mixture", {**THREE, "n_components": 2}, Assumptions(r_squared=0.5), "--r-squared"),
        ("topics", None, Assumptions(rows=50), "--rows"),
        ("ica", None, Assumptions(separation=2.0), "--separation"),
        ("feature-classifier", None, Assumptions(r_squared=0.1), "--r-squared"),
        ("mean", THREE, Assumptions(like=Units(np.ones((4, 3))), r_squared=0.1), "--r-squared"),
        ("ica", None, Assumptions(columns={"c0": ColumnShape()}), "columns"),
        ("topics", None, Assumptions(columns={"w0": ColumnShape()}), "columns"),
        ("neural-classifier", None, Assumptions(columns={"a": ColumnShape()}), "columns"),
        ("ica", None, Assumptions(like=Units(np.ones((4, 8)))), "rows"),
    ],
)
def test_forecast_guess_that_does_not_apply_is_refused(
    algorithm: str, parameters: dict[str, Any] | None, assumptions: Assumptions, word: str
) -> None:
    with pytest.raises(BadParameter, match=word):
        Advisor(study_of(algorithm, parameters), assumptions)
    with pytest.raises(BadParameter, match=word):
        compare(study_of(algorithm, parameters), ["local"], seeds=2, made_up=True, assumptions=assumptions)


def test_forecast_too_large_population_is_refused_with_advice() -> None:
    names = [f"c{at}" for at in range(5001)]
    with pytest.raises(BadParameter, match="5001"):
        Advisor(study_of("ica", {"columns": names, "n_components": 2}))
    advisor = Advisor(study_of("data-collaboration"))
    with pytest.raises(BadParameter, match="--people 5000000"):
        advisor.at(Setting(1.0, 4, 1, 6 * 10**6), 8)
    long = Advisor(study_of("ica", {"columns": names[:2000], "n_components": 2}), Assumptions(rows=1000))
    with pytest.raises(BadParameter, match="--rows"):
        long.at(long.own, 8)
    recorded = {**THREE, "n_components": 2, "per_recording": "standardise"}
    with pytest.raises(BadParameter, match="per_recording"):
        Advisor(study_of("pca", recorded))


def test_read_like_folder_with_private_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "1.txt").write_text("a b c")
    sites = [{"name": f"s{at}", "data": tmp_path / "site"} for at in range(2)]
    study = study_of("topics", {"n_components": 2}, vocabulary="words.txt", folder=tmp_path, sites=sites)
    for path in (tmp_path / "site", tmp_path, tmp_path / "site" / "1.txt"):
        with pytest.raises(PolicyRefused, match="private"):
            read_like(study, path)
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "1.txt").write_text("a b b")
    link = tmp_path / "public" / "2.txt"
    for make, target in (
        (link.symlink_to, tmp_path / "site" / "1.txt"),
        (link.symlink_to, tmp_path),
        (link.hardlink_to, tmp_path / "site" / "1.txt"),
    ):
        make(target)
        with pytest.raises(PolicyRefused, match="private"):
            read_like(study, tmp_path / "public")
        link.unlink()
    assert read_like(study, tmp_path / "public").rows.toarray().tolist() == [[1.0, 2.0, 0.0]]


def test_read_spectrum_from_private_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((4, 3)))
    np.save("public.npy", [3.0, 2.0, 1.0])
    sites = [{"name": f"s{at}", "data": "a.npy"} for at in range(2)]
    study = study_of("pca", {**THREE, "n_components": 2}, folder=tmp_path, sites=sites)
    with pytest.raises(PolicyRefused, match="private"):
        read_spectrum(study, "a.npy")
    assert read_spectrum(study, "public.npy").values(2).tolist() == [3.0, 2.0]
    assert read_spectrum(study, "flat").values(2).tolist() == [1.0, 1.0]


# ---- forecasts and comparisons -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ASKED)
def test_forecast_loss_has_values_with_and_without_privacy(algorithm: str) -> None:
    advisor = Advisor(study_of(algorithm), Assumptions(rows=40) if algorithm == "ica" else None)
    found = advisor.at(advisor.own, 4)
    assert found.runs == (8 if algorithm == "data-collaboration" else 4)
    assert found.standard_error is not None
    assert 0 < found.standard_error < 0.5
    assert found.expected is not None
    assert found.without is not None
    assert 0 <= found.without <= 1
    assert found.privacy == pytest.approx(max(found.expected - found.without, 0.0))
    assert 0 < (found.spread or 0.0) < 0.7
    assert found.privacy >= 0
    assert found.sampling == 0
    assert advisor.level
    record = found.as_record()
    assert record["expected"] == pytest.approx(found.expected)
    assert record["lines"][0]["without_privacy"] == found.lines[0].without
    assert advisor.at(advisor.own, 4) == found  # by seeds alone


def test_forecast_runs_per_setting_follow_requested_number() -> None:
    for algorithm, usual, some in (("topics", 24, 8), ("data-collaboration", 400, 25)):
        advisor = Advisor(study_of(algorithm))
        assert advisor.default_runs == usual
        assert advisor.runs_per_setting(usual) == some
        assert advisor.runs_per_setting(8) == (8 if algorithm == "topics" else 2)


def test_what_if_bad_target_is_refused_before_rehearsal() -> None:
    def never(done: int, planned: int) -> None:
        raise AssertionError("it was rehearsed")

    for target in ({"topic 9": 0.1}, {"": 0.0}, {"topic 1": float("nan")}):
        with pytest.raises(BadParameter, match=r"topic 9|positive"):
            what_if(study_of("topics"), target=target, on_step=never)


def test_forecast_description_states_reference_without_known_truth() -> None:
    study = study_of("topics")
    assert "privacy" not in Advisor(study).description
    like = Assumptions(like=Units(np.eye(60)))
    assert "privacy" in Advisor(study, like).description
    assert "public" in Advisor(study, like).source


@pytest.mark.parametrize("algorithm", FAST)
def test_forecast_loss_falls_with_epsilon(algorithm: str) -> None:
    advisor = Advisor(study_of(algorithm))
    lost = [advisor.at(Setting(epsilon, 4, 1, 600), 8).expected or 0.0 for epsilon in (0.2, 20.0)]
    assert lost[1] < lost[0] - 0.02
    target = search(advisor, {"": 0.1}, 4)
    assert target.epsilon is None or 0.01 < target.epsilon <= 100


@pytest.mark.parametrize("algorithm", FAST)
def test_forecast_loss_agrees_with_simulation(algorithm: str) -> None:
    study = study_of(algorithm, epsilon=10.0)
    advisor = Advisor(study)
    forecast = advisor.at(advisor.own, 10)
    built = study.build_algorithm()
    population, measure = population_of(built, Assumptions()), measure_of(built)
    assert population is not None
    assert measure is not None
    rehearsed, lost = PlanSimulation(built, study.plan()), []
    for sample in range(5):
        people = population.people(600, np.random.default_rng([9, sample]))
        draws = rehearsed.runs(people, range(5000 + 2 * sample, 5002 + 2 * sample))
        lost += [measure.values(each, people, population.truth) for each in draws]
    counts = [line.counts for line in measure.lines]
    assert forecast.expected == pytest.approx(float(np.mean(np.array(lost)[:, counts])), abs=0.06)


@pytest.mark.parametrize("algorithm", ["topics", "feature-classifier"])
def test_compare_schemes_by_loss_ranks_local_below_pooled(algorithm: str) -> None:
    found = compare(study_of(algorithm), ["non-private,pooled,local"], seeds=2, made_up=True)
    errors = {line.scheme: line.error for line in found.lines}
    assert found.loss
    assert all(error is not None and 0 <= error <= 1 for error in errors.values())
    assert (errors["local"] or 0) > (errors["pooled"] or 0)


def test_compare_too_many_synthetic_people_are_refused() -> None:
    with pytest.raises(BadParameter, match="--people 125000"):
        compare(study_of("ica"), ["pooled"], made_up=True, people=10**6)


def test_compare_data_collaboration_publishes_records() -> None:
    found = compare(study_of("data-collaboration", epsilon=20.0), ["non-private,local"], seeds=2, made_up=True)
    errors = [line.error for line in found.lines]
    assert all(error is not None and error < 0.7 for error in errors)


def test_compare_components_refer_to_result_without_privacy(tmp_path: Path) -> None:
    """On public data of sites, where no truth is known."""
    algorithm = study_of("ica").build_algorithm()
    population = population_of(algorithm, Assumptions(rows=40))
    assert population is not None
    sites = []
    for at in range(3):
        people = population.people(20, np.random.default_rng(at))
        units = np.repeat(np.arange(20), 40)
        np.savez(tmp_path / f"{at}.npz", X=people.rows, columns=list(algorithm.columns), units=units)
        policy = {"population": f"p{at}", "data": "public", "ledger": f"{at}.sqlite"}
        sites.append({"name": f"s{at}", "data": tmp_path / f"{at}.npz", "policy": policy})
    found = compare(study_of("ica", sites=sites, folder=tmp_path), ["non-private,pooled"], seeds=2)
    assert found.lines[0].error == pytest.approx(0, abs=1e-9)
    assert 0 < (found.lines[1].error or 0) <= 1
