"""Weights that a site trains: their bound for any rows, and what they are a function of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import perceptron
from zerosum.statistics.local_training import LocalTraining

HIDDEN = (4, 3)


def training(**given: Any) -> LocalTraining:
    """A network of two features and two hidden layers, from random weights."""
    weights = perceptron.flat(perceptron.start(2, 3, 0, HIDDEN))
    settings: dict[str, Any] = {"columns": 3, "classes": 3, "hidden": HIDDEN, "clip": 1.0, "largest_site": 10}
    return LocalTraining(**settings | {"weights": weights} | given)


def plain(**given: Any) -> LocalTraining:
    """A linear model of two features, from zero weights."""
    return LocalTraining(**{"columns": 3, "clip": 1e-3, "epochs": 1, "weights": np.zeros(6), "largest_site": 1} | given)


def rows(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(size=(count, 2)), rng.integers(0, 3, count)])


@pytest.mark.parametrize("adjacency", Adjacency)
def test_local_training_majority_of_another_class_attains_its_sensitivity(adjacency: Adjacency) -> None:
    """Features of zero: the biases alone move, in the direction of the class that most rows have."""
    rest, one, other = np.zeros((2, 3)), np.zeros((3, 3)), np.array([[0.0, 0.0, 1.0]] * 3)
    statistic = plain()
    here = statistic.total(Units.from_list([rest[:1], rest[1:], other]))
    before = [rest[:1], rest[1:]] if adjacency is Adjacency.ADD_REMOVE else [rest[:1], rest[1:], one]
    moved = float(np.linalg.norm(here - statistic.total(Units.from_list(before))))
    assert moved == pytest.approx(statistic.sensitivity(adjacency), rel=1e-9)
    assert moved <= statistic.sensitivity(adjacency)


@pytest.mark.parametrize("clip", [1e-6, 1.0, 1e3])
def test_local_training_of_any_rows_stays_in_the_ball(clip: float) -> None:
    statistic = training(clip=clip, largest_site=3, step=10.0)
    drawn = [size * rows(count, count) for count in (1, 2, 40, 70) for size in (0.0, 1.0, 1e20, 1e200, 1e307)]
    for each in [*drawn, np.full((3, 3), np.nan), np.full((3, 3), np.inf), -np.full((3, 3), 1e308)]:
        assert np.linalg.norm(statistic.total(Units(each))) <= clip


def test_local_training_sites_that_differ_in_every_record_are_within_sensitivity() -> None:
    statistic = training(clip=0.1, epochs=20)
    found = [statistic.total(Units(10 * rows(count, seed))) for count, seed in ((5, 1), (40, 2), (33, 3), (1, 4))]
    for one in found:
        for other in found:
            assert np.linalg.norm(one - other) <= statistic.sensitivity(Adjacency.REPLACE_ONE)


def test_local_training_is_training_then_clip_then_share_of_the_largest_site() -> None:
    data = rows(50)
    expected = perceptron.flat(
        perceptron.train(
            data[:, :2], data[:, 2].astype(np.int64), epochs=3, seed=7, weights=perceptron.start(2, 3, 0, HIDDEN)
        )
    )
    found = training(epochs=3, seed=7, clip=1e6, largest_site=200).total(Units(data))
    assert found == pytest.approx(expected / 4, rel=1e-15)
    clipped = training(epochs=3, seed=7, clip=0.5, largest_site=20).total(Units(data))
    assert clipped == pytest.approx(0.5 * expected / np.linalg.norm(expected), rel=1e-9)


def test_local_training_counts_units_for_its_weight_and_trains_on_all_their_rows() -> None:
    data = rows(40)
    people = training().total(Units(data, np.array([0, 1, 3, 40])))
    assert people * 10 / 3 == pytest.approx(training().total(Units(data)), rel=1e-12)


def test_local_training_twice_gives_the_same_bits() -> None:
    assert training().total(Units(rows(90))).tobytes() == training().total(Units(rows(90))).tobytes()


def test_local_training_without_units_contributes_nothing() -> None:
    assert not np.any(training().total(Units(np.zeros((0, 3)))))


def test_local_training_from_weights_beyond_single_precision_is_zero() -> None:
    assert not np.any(plain(weights=np.full(6, 1e60)).total(Units(rows(5))))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"weights": np.zeros(5)}, "weights"),
        ({"hidden": (0,)}, "hidden"),
        ({"epochs": 0}, "epochs"),
        ({"largest_site": 0}, "largest_site"),
        ({"clip": 0.0}, "clip"),
        ({"classes": 1}, "classes"),
        ({"step": -1.0}, "step"),
    ],
)
def test_local_training_refuses_parameters_that_do_not_fit(given: dict[str, Any], field: str) -> None:
    with pytest.raises(BadParameter, match=field):
        plain(**given)
