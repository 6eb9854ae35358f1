"""People's sources by the kernel in C: the numbers of NumPy, and nobody changes another's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.backends import native
from zerosum.compute.units import Runs, Units
from zerosum.statistics.unmixing import SCORES, UnmixingScore

pytestmark = pytest.mark.skipif(not native.present(), reason="the kernels in C were not compiled")

Floats = NDArray[np.float64]


def by_numpy(statistic: UnmixingScore, units: Units, monkeypatch: pytest.MonkeyPatch) -> Floats:
    with monkeypatch.context() as without:
        without.setattr(native, "_native", None)
        return statistic.total(units)


def some_statistic(rng: np.random.Generator, sources: int, columns: int, **more: Any) -> UnmixingScore:
    scores = tuple(rng.choice([*SCORES, "both"], size=sources).tolist())
    signs = rng.choice([-1.0, 1.0], size=sources)
    return UnmixingScore(
        columns=columns, unmixing=rng.normal(size=(sources, columns)), scores=scores, signs=signs, **more
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 127, 128, 129, 300])
@pytest.mark.parametrize("sources", [2, 7, 8, 9, 20, 25, 33])
def test_native_unmixing_score_equals_numpy(
    kind: str, rows: int, sources: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng([rows, sources])
    statistic = some_statistic(rng, sources, sources + 3, window=int(rng.integers(1, 20)))
    units = Units(rng.laplace(size=(4 * rows, sources + 3)), np.arange(0, 4 * rows + 1, rows))
    expected = by_numpy(statistic, units, monkeypatch)
    if rows > sources:
        assert np.linalg.norm(statistic.total(units) - expected) <= 1e-5 * np.linalg.norm(expected)
    else:  # of few rows sources are nearly straight: what is left of a score is small, and its direction rounds
        assert np.linalg.norm(statistic.total(units) - expected) <= 1e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("per_recording", ["none", "center", "standardise"])
def test_native_unmixing_several_recordings_of_any_length_equal_numpy(
    kind: str, per_recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    lengths = [40, 5, 60, 40, 5, 60, 9, 90]  # three recordings, the same again, and two
    runs = Runs(np.concatenate([[0], np.cumsum(lengths)]), np.full(len(lengths), 2.0))
    units = Units(rng.laplace(size=(sum(lengths), 6)), np.array([0, 105, 210, 309]), runs)
    statistic = some_statistic(rng, 6, 6, per_recording=per_recording, window=9)
    expected = by_numpy(statistic, units, monkeypatch)
    assert np.linalg.norm(statistic.total(units) - expected) <= 1e-5 * np.linalg.norm(expected)


def test_native_unmixing_rows_of_any_size_count_and_nan_gives_zero(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    rows = rng.laplace(size=(7, 50, 5)) * np.array([1, 1e160, 1e-160, 1e300, 1e-300, 1, 0])[:, None, None]
    rows[5, 3, 2] = np.nan
    statistic = some_statistic(rng, 5, 5)
    for person in rows:
        units = Units(person, np.array([0, 50]))
        one, expected = statistic.total(units), by_numpy(statistic, units, monkeypatch)
        assert np.linalg.norm(one - expected) <= 1e-5
        assert abs(np.linalg.norm(one) - np.linalg.norm(expected)) <= 1e-12  # 1, or 0
    assert np.linalg.norm(statistic.total(Units(rows[0], np.array([0, 50])))) == pytest.approx(1)
    assert not np.any(statistic.total(Units(rows[5], np.array([0, 50]))))
    assert not np.any(statistic.total(Units(rows[6], np.array([0, 50]))))


def test_native_unmixing_sources_below_rounding_give_zero(kind: str) -> None:
    rng = np.random.default_rng(5)
    rows = np.concatenate([rng.laplace(size=(60, 3)) * 1e-12, rng.laplace(size=(60, 1))], axis=1)
    heard = UnmixingScore(columns=4, unmixing=np.eye(4)[:3] + 1e-3)
    deaf = UnmixingScore(columns=4, unmixing=np.eye(4)[:3])  # the one column that is loud is not asked for
    units = Units(rows, np.array([0, 60]))
    assert np.linalg.norm(heard.total(units)) == pytest.approx(1)
    assert not np.any(deaf.total(units))


def test_native_unmixing_person_alone_and_among_others_has_same_bits(kind: str) -> None:
    """Bit for bit, wherever it stands and whoever is beside it, also where it lies otherwise in memory."""
    rng = np.random.default_rng(6)
    for columns, rows in ((3, 7), (10, 64), (20, 250)):
        statistic = some_statistic(rng, columns, columns)
        people = rng.laplace(size=(6, rows, columns))
        alone = [statistic.total(Units(person.copy(), np.array([0, rows]))) for person in people]
        for person in range(6):
            for count in (1, 2, 5):
                others = rng.laplace(size=(count, rows, columns)) * 10.0 ** rng.integers(-200, 200)
                silent = np.zeros((count, rows, columns))
                for beside in (others, silent):
                    at = int(rng.integers(count + 1))
                    crowd = np.insert(beside, at, people[person], axis=0)
                    units = Units(crowd.reshape(-1, columns), np.arange(0, rows * (count + 1) + 1, rows))
                    both = statistic.sum_block(units)
                    rest = [statistic.sum_block(Units(each, np.array([0, rows]))) for each in crowd]
                    assert np.array_equal(rest[at], alone[person])
                    expected = np.zeros(statistic.size)
                    for each in rest:  # in their order, as the kernel adds
                        expected = expected + each
                    assert np.array_equal(both, expected)
        shifted = np.empty(people[0].size + 1)[1:].reshape(rows, columns)  # not on a line of the cache
        shifted[...] = people[0]
        assert np.array_equal(statistic.total(Units(shifted, np.array([0, rows]))), alone[0])


def test_native_unmixing_norm_of_person_is_at_most_one(kind: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        sources, rows = int(rng.integers(2, 12)), int(rng.integers(1, 40))
        statistic = some_statistic(rng, sources, sources, window=int(rng.integers(1, 12)))
        person = rng.standard_t(1, size=(rows, sources)) * 10.0 ** rng.integers(-150, 150)
        said = statistic.total(Units(person, np.array([0, rows])))
        assert np.sqrt(np.sum(said**2)) <= 1 + 1e-15


def test_native_unmixing_mismatched_arrays_are_refused() -> None:
    statistic = UnmixingScore(columns=3, unmixing=np.eye(3))
    exact, runs, chosen, signs = statistic._exact, np.array([0, 5]), statistic._score_numbers, np.ones(3)
    people, weights = np.zeros((2, 5, 3)), (0.7, 0.1, 0.3)
    assert native.unmixing(people, exact, runs, chosen, signs, 9, weights).shape == (statistic.size,)
    for wrong in (
        {"runs": np.array([0, 4])},
        {"runs": np.array([0, 6])},
        {"runs": np.array([1, 5])},
        {"runs": np.array([0, 3, 2, 5])},
        {"runs": np.array([5])},
        {"chosen": np.array([0, 1, 4], dtype=np.int32)},
        {"chosen": np.array([0, -1, 1], dtype=np.int32)},
        {"signs": np.ones(2)},
        {"people": np.zeros((2, 5, 4))},
        {"window": 0},
    ):
        given = {"people": people, "runs": runs, "chosen": chosen, "signs": signs, "window": 9} | wrong
        with pytest.raises(ValueError, match="array"):
            native.unmixing(exact=exact, weights=weights, **given)  # type: ignore[arg-type]
