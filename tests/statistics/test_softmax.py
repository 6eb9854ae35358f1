"""Softmax gradients and predictions against plain formulas; searches for neighbours are in test_sensitivity.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import coordinates
from zerosum.statistics import build
from zerosum.statistics.features import build as feature_map
from zerosum.statistics.softmax import BIAS

Floats = NDArray[np.float64]

FEATURES: dict[str, Any] = {"kind": "random", "lower": [-1.0] * 3, "upper": [1.0] * 3, "waves": 8}
RNG = np.random.default_rng(0)
CENTER, PROJECTION = RNG.normal(size=11) / 9, RNG.normal(size=(11, 5))
WEIGHTS = RNG.normal(size=(6, 4))
SHARED: dict[str, Any] = {
    "columns": 4,
    "features": FEATURES,
    "classes": 4,
    "center": CENTER,
    "projection": PROJECTION,
    "weights": WEIGHTS,
}
ROWS = np.column_stack([RNG.uniform(-1, 1, (60, 3)), RNG.integers(0, 4, 60)])


def design(rows: Floats) -> Floats:
    z = (feature_map(FEATURES)(rows[:, :-1]).astype(np.float64) - CENTER) @ PROJECTION
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return np.column_stack([z, np.full(len(z), BIAS)])


def loss(weights: Floats, rows: Floats) -> float:
    logits = design(rows) @ weights
    own = logits[np.arange(len(rows)), rows[:, -1].astype(int)]
    return float(np.sum(np.log(np.sum(np.exp(logits), axis=1)) - own))


def test_softmax_gradient_equals_finite_differences() -> None:
    found = build("softmax_gradient", {**SHARED, "clip": 10.0}).total(Units(ROWS)).reshape(6, 4)
    for at in np.ndindex(6, 4):
        step = np.zeros((6, 4))
        step[at] = 1e-6
        slope = (loss(WEIGHTS + step, ROWS) - loss(WEIGHTS - step, ROWS)) / 2e-6
        assert found[at] == pytest.approx(slope, abs=1e-4)


def test_softmax_gradient_rows_of_person_are_averaged() -> None:
    stat = build("softmax_gradient", {**SHARED, "clip": 0.3})
    people = Units(ROWS, np.array([0, 20, 21, 60]))
    parts = [stat.total(Units(ROWS[a:b])) / (b - a) for a, b in ((0, 20), (20, 21), (21, 60))]
    assert np.allclose(stat.total(people), np.sum(parts, axis=0), atol=1e-9)
    assert all(np.linalg.norm(part) <= 0.3 for part in parts)


def test_feature_moments_equal_moments_of_features() -> None:
    stat = build("feature_moments", {"columns": 4, "features": FEATURES, "count": True})
    second, first, units = stat.split(stat.total(Units(ROWS)))  # type: ignore[attr-defined]
    x = feature_map(FEATURES)(ROWS[:, :-1]).astype(np.float64)
    assert np.allclose(second, x.T @ x)
    assert np.allclose(first, x.sum(axis=0))
    assert units == 60
    assert stat.size == coordinates.size(11) + 12


def test_softmax_predictions_are_counted_by_class_and_probability() -> None:
    stat = build("softmax_predictions", {**SHARED, "bins": 5})
    often, pairs, sure = stat.split(stat.total(Units(ROWS)))  # type: ignore[attr-defined]
    logits = design(ROWS) @ WEIGHTS
    p = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
    right = np.argmax(p, axis=1) == ROWS[:, -1]
    assert often.tolist() == [np.sum(right), np.sum(~right)]
    assert pairs.sum() == 60
    assert np.trace(pairs) == np.sum(right)
    assert sure[1].sum() == np.sum(right)
    assert sure.sum(axis=0).tolist() == np.histogram(np.max(p, axis=1), np.linspace(0, 1, 6))[0].tolist()


def test_softmax_gradient_features_are_computed_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    kind = type(feature_map(FEATURES))
    plain = kind.map_batch

    def counted(self: Any, rows: Any) -> Any:
        calls.append(1)
        return plain(self, rows)

    monkeypatch.setattr(kind, "map_batch", counted)
    units = Units(ROWS)
    first = build("softmax_gradient", {**SHARED, "clip": 0.3}).total(units)
    for turn in range(4):
        build("softmax_gradient", {**SHARED, "weights": WEIGHTS * turn, "clip": 0.3}).total(units)
    assert np.array_equal(build("softmax_gradient", {**SHARED, "clip": 0.3}).total(units), first)
    assert len(calls) == 1
    other = {**SHARED, "center": CENTER + 0.5, "clip": 0.3}
    changed = build("softmax_gradient", other).total(units)
    assert not np.allclose(changed, first)
    assert np.array_equal(changed, build("softmax_gradient", other).total(Units(ROWS)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"columns": 5}, "5"),
        ({"center": [0.0]}, "center"),
        ({"projection": np.eye(3)}, "projection"),
        ({"weights": np.eye(3)}, "weights"),
        ({"features": {"kind": "nothing"}}, "'nothing'"),
        ({"clip": 0.0}, "clip"),
        ({"weights": np.full((6, 4), math.nan)}, "weights"),
    ],
)
def test_softmax_gradient_bad_parameter_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        build("softmax_gradient", {**SHARED, "clip": 0.3, **change})


def test_softmax_gradient_bad_rows_stay_within_bound() -> None:
    stat = build("softmax_gradient", {**SHARED, "clip": 0.3})
    for row in ([math.nan] * 4, [math.inf, 0, 0, 1], [0, 0, 0, math.nan], [1e300, -1e300, 0, 7.0], [0, 0, 0, -1e300]):
        found = stat.total(Units(np.array([row], dtype=np.float64)))
        assert np.linalg.norm(found) <= 0.3
