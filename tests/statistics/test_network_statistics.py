"""The gradient of the network with one hidden layer: right, clipped as it says, and a person's own average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.network import TwoLayer, TwoLayerGradient

Floats = NDArray[np.float64]


def made(classes: int = 2, clip: float = 1e6, seed: int = 0, **extra: Any) -> tuple[TwoLayerGradient, Floats]:
    """A network of 6 features and 5 hidden units, and rows with classes for it."""
    rng = np.random.default_rng(seed)
    weights = TwoLayer.start(6, 5, classes, seed) + 0.1 * rng.normal(size=TwoLayer.size(6, 5, classes))
    rows = np.column_stack([rng.normal(size=(40, 6)), rng.integers(0, classes, 40)])
    return TwoLayerGradient(
        columns=7, hidden=5, classes=classes, clip=clip, radius=100.0, weights=weights, **extra
    ), rows


def loss(stat: TwoLayerGradient, weights: Floats, rows: Floats) -> float:
    network = TwoLayer.of_flat(weights, stat.columns - 1, stat.hidden, stat.classes)
    chance = network.probabilities(rows[:, :-1])
    return -float(np.sum(np.log(chance[np.arange(len(rows)), rows[:, -1].astype(int)])))


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_two_layer_gradient_equals_finite_differences(classes: int) -> None:
    stat, rows = made(classes)
    found = stat.total(Units.from_rows(rows))
    step = 1e-5 * np.eye(stat.size)
    slopes = [(loss(stat, stat.weights + h, rows) - loss(stat, stat.weights - h, rows)) / 2e-5 for h in step]
    assert found == pytest.approx(np.array(slopes), abs=1e-4)


def one_by_one(stat: TwoLayerGradient, rows: Floats) -> Floats:
    free = stat.model_copy(update={"clip": 1e9})
    return np.array([free.total(Units.from_rows(row[None, :])) for row in rows])


@pytest.mark.parametrize("classes", [2, 4])
def test_two_layer_gradient_example_is_clipped_over_all_tensors(classes: int) -> None:
    stat, rows = made(classes, clip=1.3)
    each = one_by_one(stat, rows)
    norms = np.linalg.norm(each, axis=1)
    assert 3 < np.sum(norms > 1.3) < 37
    wanted = np.sum(each * np.minimum(1, 1.3 / norms)[:, None], axis=0)
    assert stat.total(Units.from_rows(rows)) == pytest.approx(wanted, abs=1e-12)


def test_two_layer_gradient_examples_of_person_are_clipped_and_averaged() -> None:
    stat, rows = made(clip=0.3)
    each = one_by_one(stat, rows)
    sizes = [1, 7, 2, 30]
    people = np.split(rows, np.cumsum(sizes)[:-1])
    wanted = np.zeros(stat.size)
    for own in np.split(each, np.cumsum(sizes)[:-1]):
        wanted += np.mean([row * min(1, 0.3 / np.linalg.norm(row)) for row in own], axis=0)
    assert stat.total(Units.from_list(people)) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_two_layer_gradient_sensitivity_is_attained_within_two_percent(classes: int) -> None:
    stat, rows = made(classes, clip=0.05)
    farthest = 0.0
    for row in rows:
        for label in range(classes):
            other = np.append(row[:-1], label)
            here, there = (stat.total(Units.from_rows(each[None, :])) for each in (row, other))
            farthest = max(farthest, float(np.linalg.norm(here - there)))
        assert np.linalg.norm(here) <= stat.sensitivity(Adjacency.ADD_REMOVE) * (1 + 1e-12)
    far = stat.sensitivity(Adjacency.REPLACE_ONE)
    assert farthest <= far * (1 + 1e-12)
    if classes == 2:
        assert farthest >= 0.98 * far


def test_two_layer_gradient_with_ranges_keeps_classes() -> None:
    plain, rows = made(3, clip=0.5)
    rows[:, :-1] = np.clip(rows[:, :-1], -3, 3)
    ranged = plain.model_copy(
        update={"lower": np.array([-3.0] * 6 + [0.0]), "upper": np.array([3.0] * 6 + [2.0]), "scale": np.full(6, 1 / 3)}
    )
    assert ranged.total(Units.from_rows(rows)) == pytest.approx(plain.total(Units.from_rows(rows)), abs=1e-5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weights": np.zeros(3)}, "41"),
        ({"weights": np.full(41, 1e7)}, "weights"),
        ({"classes": 1}, "classes"),
        ({"center": [1.0]}, "center"),
        ({"scale": np.zeros(6)}, "scale"),
        ({"columns": 1}, "feature"),
    ],
)
def test_two_layer_gradient_bad_parameter_is_refused(change: dict[str, Any], named: str) -> None:
    params: dict[str, Any] = {"columns": 7, "hidden": 5, "clip": 1.0, "weights": np.zeros(41)}
    with pytest.raises(BadParameter, match=named):
        TwoLayerGradient(**params | change)


def test_gradient_of_a_person_with_cancelling_rows_leaves_others_unrounded() -> None:
    """The coordinator chooses weights, radius and clip; rows of +G and -G with a mean of zero are not small."""
    features, hidden, size, clip = 4, 8, 2.0**19, 1e-8
    first, second = np.full(features * hidden, size), np.array([size, -size] * (hidden // 2))
    weights = np.concatenate([first, np.zeros(hidden), second, np.zeros(1)])
    params = {"columns": 5, "hidden": hidden, "weights": weights, "radius": 1e6, "clip": clip}
    statistic = build("two_layer_gradient", params)
    others = [np.array([[1.0, 2.0, 3.0, 4.0, 0.0]])] * 200
    cancelling = np.array([[2.0**18] * 4 + [0.0], [2.0**18] * 4 + [1.0]])
    one, two = (statistic.total(Units.from_list([*others, unit])) for unit in (cancelling, np.zeros((2, 5))))
    assert np.linalg.norm(one - two) <= 2 * clip * (1 + 1e-9)
