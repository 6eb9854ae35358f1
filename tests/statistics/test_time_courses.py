"""Scores, cumulants and band moments: what one unit says is its own business, whatever it holds."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import coordinates
from zerosum.statistics import build
from zerosum.statistics.sources import moving_average, windows_of
from zerosum.statistics.unmixing import SCORES, Score, UnmixingScore

Floats = NDArray[np.float64]

MIXED: dict[str, Any] = {"columns": 3, "unmixing": [[1.0, 0.2, 0.0], [0.1, 1.0, -0.3], [0.0, 0.4, 1.0]]}
BANDS: dict[str, Any] = {"columns": 3, "projection": np.eye(3), "edges": [0.0, 0.1, 0.3, 0.5], "seconds": 1.0}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("unmixing_score", MIXED),
    ("unmixing_score", MIXED | {"scores": ["tanh", "cube", "both"], "per_recording": "center", "signs": [1, -1, 1]}),
    ("unmixing_score", MIXED | {"scores": ["volatility"] * 3, "per_recording": "standardise", "window": 1000}),
    ("fourth_cumulants", MIXED),
    ("fourth_cumulants", MIXED | {"per_recording": "center", "memory": 0.0}),
    ("fourth_cumulants", MIXED | {"window": 1}),
    ("band_scatter", BANDS),
    ("band_scatter", BANDS | {"per_recording": "standardise"}),
]


def unit(rng: np.random.Generator, rows: int, size: float = 1.0) -> Floats:
    return np.asarray(size * rng.standard_t(4, size=(rows, 3)))


@pytest.mark.parametrize(("name", "params"), CASES)
def test_time_course_statistics_equal_sum_over_units(name: str, params: dict[str, Any]) -> None:
    """In stretches of equal length, with odd ones between, and next to units that hold no numbers at all."""
    rng = np.random.default_rng(0)
    units = [unit(rng, rows) for rows in (40, 40, 40, 17, 40, 1, 40, 40, 2, 33)]
    units[2] = unit(rng, 40, 1e300)
    units[4] = np.zeros((40, 3))
    statistic = build(name, params)
    alone = [statistic.total(Units.from_list([each])) for each in units]
    assert np.allclose(statistic.total(Units.from_list(units)), np.sum(alone, axis=0), atol=1e-12)
    assert np.all(np.linalg.norm(alone, axis=1) <= 1)
    assert np.linalg.norm(alone[0]) == pytest.approx(1.0)
    assert not np.any(alone[4])


@pytest.mark.parametrize("per_recording", ["none", "center", "standardise"])
@pytest.mark.parametrize("name", ["unmixing_score", "fourth_cumulants"])
def test_time_course_statistics_units_of_one_shape_are_batched_without_difference(
    name: str, per_recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With others between them or not, in rows or in columns, one recording or several, few or so many that they are
    computed with in parts."""
    rng = np.random.default_rng(11)
    W = rng.normal(size=(5, 8))
    statistic = build(name, {"columns": 8, "unmixing": W, "per_recording": per_recording})
    cuts = [(30, 20), (50,), (1100,), (50,), (30, 20), (20, 30), (1100,), *[(250,)] * 20, (50,)]
    people = [[rng.standard_t(4, size=(rows, 8)) for rows in person] for person in cuts]
    units = Units.from_runs(people, [[1.0] * len(person) for person in people])
    alone = np.sum([statistic.total(Units.from_runs([each], [[1.0] * len(each)])) for each in people], axis=0)
    assert np.allclose(statistic.total(units), alone, rtol=0, atol=1e-11)
    monkeypatch.setattr("zerosum.statistics.sources._CACHED", 1 << 13)
    assert np.allclose(statistic.total(units), alone, rtol=0, atol=1e-11)
    columns = np.asfortranarray(units.rows)
    apart = [Units(columns, units.offsets, units.runs).between(n, n + 1) for n in range(len(units))]
    alone = np.sum([statistic.total(each) for each in apart], axis=0)
    assert np.allclose(statistic.total(Units(columns, units.offsets, units.runs)), alone, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("name", "params"), CASES)
@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 1e-40, 1e30, 1e155, 1e308])
@pytest.mark.parametrize("rows", [1, 2, 3, 50])
def test_time_course_statistics_any_values_have_norm_at_most_one(
    name: str, params: dict[str, Any], size: float, rows: int
) -> None:
    rng = np.random.default_rng(1)
    statistic = build(name, params)
    with np.errstate(over="ignore"):
        drawn = [size * rng.normal(size=(rows, 3)), np.full((rows, 3), size), size * rng.choice([-1.0, 1.0], (rows, 3))]
    for each in drawn:
        held = np.nan_to_num(each, posinf=1e308, neginf=-1e308)
        assert float(np.linalg.norm(statistic.total(Units.from_list([held])))) <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_time_course_statistics_of_other_number_types_are_same(dtype: Any) -> None:
    rows = np.random.default_rng(2).integers(-100, 100, (60, 3)).astype(dtype)
    for name, params in CASES:
        statistic = build(name, params)
        offsets = np.array([0, 30, 60])
        assert np.allclose(
            statistic.total(Units(rows, offsets)), statistic.total(Units(rows.astype(np.float64), offsets))
        )


@pytest.mark.parametrize("score", SCORES)
def test_unmixing_score_is_zero_at_solution_and_points_back_to_it(score: Score) -> None:
    rng = np.random.default_rng(3)
    people = [rng.laplace(size=(200, 2)) for _ in range(300)]
    for angle in (-0.2, 0.0, 0.2):
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        statistic = UnmixingScore(columns=2, unmixing=turn, scores=(score, score))
        told = statistic.split(statistic.total(Units.from_list(people)) / 300)
        slope = told.slopes[SCORES.index(score)]
        assert np.all(slope > 0)
        found = told.turns[0] / np.sum(slope)
        assert found == pytest.approx(angle, abs=0.06)


def test_band_scatter_bands_add_up_to_second_moment() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(51, 3))
    statistic = build("band_scatter", BANDS | {"edges": [0.0, 0.2, 0.6]})
    moments = statistic.split(statistic.total(Units.from_list([rows])))  # type: ignore[attr-defined]
    centred = rows - rows.mean(axis=0)
    whole = np.sum(moments, axis=0)
    assert np.allclose(whole / np.trace(whole), centred.T @ centred / np.sum(centred**2))
    assert all(np.min(np.linalg.eigvalsh(moment)) > -1e-12 for moment in moments)


def test_band_scatter_frequencies_follow_clock_of_recording() -> None:
    time = np.arange(600)
    slow, fast = np.sin(2 * np.pi * 0.05 * time), np.sin(2 * np.pi * 0.2 * time)
    person = np.stack([slow, fast, 0 * time], axis=1)
    params = {key: value for key, value in BANDS.items() if key != "seconds"}
    statistic = build("band_scatter", params)
    for rows, seconds in ((person, 1.0), (person[::2], 2.0)):
        moments = statistic.split(statistic.total(Units.from_runs([[rows]], [[seconds]])))  # type: ignore[attr-defined]
        assert moments[0, 0, 0] == pytest.approx(moments[1, 1, 1], rel=0.02)
        assert moments[0, 1, 1] == pytest.approx(0, abs=1e-3)


def test_time_course_statistics_recordings_of_person_stay_separate() -> None:
    """Cutting a recording where it is quiet changes nothing; gluing two recordings together does."""
    values = np.array([[[1.0], [1.0], [9.0], [9.0]]], dtype=np.float32)
    assert moving_average(values[:, :2], 2).ravel().tolist() == [1.0, 1.0]
    assert moving_average(values, 2).ravel().tolist() == [1.0, 1.0, 5.0, 9.0]
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(30, 3)), 20 * rng.normal(size=(30, 3))
    statistic = build("unmixing_score", MIXED | {"scores": ["volatility"] * 3})
    apart = statistic.total(Units.from_runs([[first, second]], [[1.0, 1.0]]))
    glued = statistic.total(Units.from_list([np.vstack([first, second])]))
    assert np.linalg.norm(apart - glued) > 0.01


@pytest.mark.parametrize("window", [1, 2, 3, 7, 8, 9, 20, 21, 30, 100])
@pytest.mark.parametrize("shape", [(3, 30, 2), (1, 1, 4), (5, 9, 1)])
def test_moving_average_equals_mean_of_rows_around(window: int, shape: tuple[int, int, int]) -> None:
    """In fresh memory and in memory that holds something else, which does not show."""
    values = np.random.default_rng(12).normal(size=shape)
    begins, widths = windows_of((0, shape[1]), window)
    wanted = [values[:, a : a + n].mean(axis=1) for a, n in zip(begins, widths, strict=True)]
    spare = [np.full(shape, np.nan) for _ in range(3)]
    for found in (
        moving_average(values, window),
        moving_average(values, window, spare),
        to_numpy(moving_average(array_api_strict.asarray(values), window)),
    ):
        np.testing.assert_allclose(found, np.stack(wanted, axis=1), atol=1e-14)
    assert np.shares_memory(moving_average(values, window, spare), spare[0])


def test_unmixing_score_slopes_equal_finite_differences() -> None:
    """Against differences: psi of sources that are a little larger, less psi, the sizes around them kept as they are
    but for a row's own part."""
    rng = np.random.default_rng(13)
    y = rng.laplace(size=(40, 3))
    y = y / np.sqrt(np.mean(y**2, axis=0))
    statistic = build("unmixing_score", {"columns": 3, "unmixing": np.eye(3), "window": 40})
    told = statistic.split(statistic.total(Units.from_list([y])))  # type: ignore[attr-defined]

    def tanh(y: Floats) -> Floats:
        return np.tanh(1.5 * y)

    def cube(y: Floats) -> Floats:
        return -(np.clip(y, -2, 2) ** 3)

    for number, psi in ((1, tanh), (2, cube)):
        value, step = psi(y), 1e-6
        along = np.mean(value * y, axis=0)
        slope = np.mean(psi(y + step) - psi(y - step), axis=0) / (2 * step)
        wanted = (slope - along) / np.sqrt(np.mean(value**2, axis=0) - along**2)
        np.testing.assert_allclose(told.slopes[number] / told.scale, wanted, rtol=1e-4)
    assert not np.any(told.slopes[0])  # within one window volatility is linear


def test_band_scatter_packed_bands_have_norm_of_matrices() -> None:
    statistic = build("band_scatter", BANDS)
    value = np.random.default_rng(6).normal(size=statistic.size)
    moments = statistic.split(value)  # type: ignore[attr-defined]
    assert np.sqrt(np.sum(moments**2)) == pytest.approx(np.linalg.norm(value))
    assert np.allclose(np.concatenate([coordinates.pack(moment) for moment in moments]), value)


def test_band_scatter_tiny_matrix_has_norm_at_most_one() -> None:
    """Where squares underflow, a norm is too small and what is divided by it too large."""
    rows = np.random.default_rng(0).normal(size=(60, 12))
    for exponent in np.linspace(-85, -40, 200):
        bands = {"columns": 12, "projection": 10**exponent * np.eye(12), "edges": [0, 0.05, 0.1, 0.25], "seconds": 2.0}
        assert np.linalg.norm(build("band_scatter", bands).total(Units.from_list([rows]))) <= 1
    with pytest.raises(BadParameter, match="slope_weight"):
        build("unmixing_score", MIXED | {"slope_weight": 1e-162})


@pytest.mark.parametrize("name", ["unmixing_score", "fourth_cumulants"])
def test_time_course_statistics_unit_of_rounding_is_independent_of_others(name: str) -> None:
    """Rows orthogonal to W: what is left of W x depends on how a product of many rows is cut up."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=20)
    statistic = build(name, {"columns": 20, "unmixing": np.tile(w, (3, 1))})
    hidden = rng.normal(size=(200, 20))
    hidden[:, -1] = -(hidden[:, :-1] @ w[:-1]) / w[-1]
    few, many = Units.from_rows(hidden), Units.from_rows(np.vstack([hidden, np.zeros((37, 20))]))
    assert np.allclose(statistic.total(few), statistic.total(many), atol=1e-12)
    for other in (5, 1):
        first = np.zeros((other, 20))
        units = Units.from_list([first, *hidden[:, None, :]])
        assert np.allclose(statistic.total(units), statistic.total(few), atol=1e-12)


def test_fourth_cumulants_equal_definition() -> None:
    """Without memory, against four nested loops; and packed with the norm of the whole tensor."""
    rng = np.random.default_rng(9)
    rows = rng.uniform(-1, 1, size=(50, 3))
    y = rows / np.sqrt(np.mean(rows**2, axis=0))
    y = y * np.sqrt(np.minimum(1, 15.0 / np.sum(y**2, axis=1)))[:, None]
    own = y.T @ y / 50
    wanted = np.einsum("ta,tb,tc,td->abcd", y, y, y, y) / 50
    for pairing in ("ab,cd->abcd", "ac,bd->abcd", "ad,bc->abcd"):
        wanted -= np.einsum(pairing, own, own)
    statistic = build("fourth_cumulants", {"columns": 3, "unmixing": np.eye(3), "memory": 0.0})
    found = statistic.split(statistic.total(Units.from_list([rows])))  # type: ignore[attr-defined]
    assert np.allclose(found, wanted / np.linalg.norm(wanted), atol=1e-5)


def test_fourth_cumulants_of_slow_gaussian_sources_vanish_and_of_bursts_not() -> None:
    """Autocorrelation alone is nothing that separates by kurtosis, whatever it does to products of neighbours."""
    rng = np.random.default_rng(10)
    slow = np.zeros((400, 400, 2))
    for t in range(1, 400):
        slow[:, t] = 0.9 * slow[:, t - 1] + rng.normal(size=(400, 2))
    bursts = np.exp(np.repeat(rng.normal(size=(400, 40, 2)), 10, axis=1)) * rng.normal(size=(400, 400, 2))
    statistic = build("fourth_cumulants", {"columns": 2, "unmixing": np.eye(2)})
    said = {
        name: statistic.split(statistic.total(Units.from_list(list(rows))) / 400)  # type: ignore[attr-defined]
        for name, rows in (("slow", slow[:, 100:]), ("bursts", bursts))
    }
    assert said["bursts"][0, 0, 0, 0] > 0.5
    assert abs(said["slow"][0, 0, 0, 0] - 3 * said["slow"][0, 0, 1, 1]) < 0.1  # the same in all directions
    assert abs(said["bursts"][0, 0, 0, 1]) < 0.1


def test_unmixing_score_bad_parameter_is_refused() -> None:
    for change in ({"scores": ["tanh"]}, {"signs": [1, 2, 1]}, {"scores": ["logcosh"] * 3}, {"memory": 1.0}):
        with pytest.raises(BadParameter, match=next(iter(change))):
            build("unmixing_score", MIXED | change)


def test_unmixing_score_of_linear_volatility_has_zero_slopes() -> None:
    """Within a recording no longer than the window every size is the same: volatility is linear there."""
    rows = np.random.default_rng(6).laplace(size=(9, 3))
    statistic = build("unmixing_score", MIXED | {"window": 9})
    told = statistic.split(statistic.total(Units.from_list([rows])))  # type: ignore[attr-defined]
    assert not np.any(told.slopes[0])
    assert np.all(told.slopes[1:])
    assert float(np.linalg.norm(told.turns)) > 0.1


def test_fourth_cumulants_window_longer_than_recording_equals_recording() -> None:
    rows = [np.random.default_rng(seed).laplace(size=(20, 3)) for seed in range(4)]
    one, other = (build("fourth_cumulants", MIXED | {"window": w}).total(Units.from_list(rows)) for w in (20, 10**9))
    np.testing.assert_array_equal(one, other)


def test_fourth_cumulants_too_many_sources_are_refused() -> None:
    with pytest.raises(BadParameter, match="101"):
        build("fourth_cumulants", {"columns": 101, "unmixing": np.eye(101)})
