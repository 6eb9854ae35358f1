"""Public feature maps: what they compute, and that a row's features are its own, to the last bit."""

from __future__ import annotations

import math
from typing import Any

import array_api_strict
import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.errors import BadParameter
from zerosum.statistics import features
from zerosum.statistics.features import FeatureMap, build
from zerosum.statistics.features.random import cosine
from zerosum.statistics.features.scattering import morlet

Floats = NDArray[np.float64]

MAPS: list[dict[str, Any]] = [
    {"kind": "linear", "lower": [-1.0] * 6, "upper": [2.0] * 6},
    {"kind": "random", "lower": [-1.0] * 6, "upper": [2.0] * 6, "waves": 37, "bandwidth": 0.2},
    {"kind": "scattering", "height": 12, "width": 9, "lowest": -1.0, "highest": 2.0},
    {"kind": "scattering", "height": 8, "width": 8, "scales": 3, "angles": 3, "cosines": 2},
]


@pytest.mark.parametrize("settings", MAPS, ids=lambda each: each["kind"])
def test_features_of_row_are_same_at_any_position_among_any_others(settings: dict[str, Any]) -> None:
    made = build(settings)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3 * made.batch // 2 + 5, made.inputs)) * 10 ** rng.uniform(-2, 2, (1, made.inputs))
    whole = made(rows)
    assert whole.shape == (len(rows), made.size)
    assert whole.dtype == np.float32
    assert np.all(np.linalg.norm(whole.astype(np.float64), axis=1) <= 1 + 1e-6)
    for at in rng.integers(0, len(rows), 12).tolist():
        assert np.array_equal(made(rows[at : at + 1])[0], whole[at])
        beside = rng.choice([1e300, -1e300, 0.0, math.nan, math.inf], (int(rng.integers(1, 70)), made.inputs))
        cut = int(rng.integers(0, len(beside)))
        with np.errstate(all="ignore"):
            among = made(np.vstack([beside[:cut], rows[at : at + 1], beside[cut:]]))
        assert np.array_equal(among[cut], whole[at])


@pytest.mark.parametrize("settings", MAPS, ids=lambda each: each["kind"])
def test_features_of_other_array_library_are_same(settings: dict[str, Any]) -> None:
    made = build(settings)
    rows = np.random.default_rng(1).normal(size=(9, made.inputs))
    other = made(array_api_strict.asarray(rows))
    assert np.allclose(np.from_dlpack(other), made(rows), atol=1e-6)


def test_scattering_equals_direct_convolution() -> None:
    """One channel of each order, convolved pixel by pixel around the edges of the padded image."""
    made = build({"kind": "scattering", "height": 8, "width": 8, "angles": 2, "cosines": 2, "highest": 1.0})
    image = np.random.default_rng(2).random((8, 8))
    padded = np.pad(image, 4, mode="symmetric")

    def convolved(picture: Floats, j: int, turn: float) -> Floats:
        wavelet = np.fft.ifft2(morlet(picture.shape, j, turn, 2))
        side = range(len(picture))
        moved = [
            [np.sum(picture * np.roll(wavelet[::-1, ::-1], (y + 1, x + 1), axis=(0, 1))) for x in side] for y in side
        ]
        return np.asarray(np.abs(np.array(moved)))

    def sampled(picture: Floats, step: int) -> Floats:
        middle = (4 * (np.arange(2) + 1) + 1.5) / step
        away = np.arange(len(picture))[None, :] - middle[:, None]
        away -= len(picture) * np.round(away / len(picture))
        weights = np.exp(-0.5 * (away / (1.6 / step)) ** 2)
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(weights @ picture @ weights.T)

    first = [convolved(padded, 0, turn) for turn in (0.0, math.pi / 2)]
    coarse = [convolved(padded, 1, turn)[::2, ::2] for turn in (0.0, math.pi / 2)]
    second = [convolved(first[0], 1, turn)[::2, ::2] for turn in (0.0, math.pi / 2)]
    third = [convolved(first[1], 1, turn)[::2, ::2] for turn in (0.0, math.pi / 2)]
    groups = [[sampled(padded, 1)], [sampled(each, 1) for each in first]]
    groups += [[sampled(each, 2) for each in second], [sampled(each, 2) for each in third]]
    groups += [[sampled(each, 2) for each in coarse]]
    cosines = np.array([[math.sqrt(0.5)] * 2, [math.cos(math.pi / 4), math.cos(3 * math.pi / 4)]])
    expected: list[float] = []
    for group in groups:
        stacked = np.stack(group)
        stacked = (stacked - stacked.mean()) / (stacked.std() + 1e-3)
        for channel in stacked:
            expected += (cosines @ channel @ cosines.T).ravel().tolist()
    found = made(image.reshape(1, -1))[0]
    assert found.shape == (made.size,) == (9 * 4,)
    assert np.allclose(found, np.array(expected) / np.linalg.norm(expected), atol=2e-5)


def test_scattering_of_other_contrast_and_brightness_is_similar() -> None:
    made = build({"kind": "scattering", "height": 16, "width": 16, "highest": 1.0})
    image = np.random.default_rng(3).random((1, 256))
    assert np.max(np.abs(made(image / 2 + 0.3) - made(image))) < 0.03
    assert np.all(np.isfinite(made(np.zeros((1, 256)))))


def test_random_features_approximate_gaussian_kernel() -> None:
    rng = np.random.default_rng(4)
    settings = {"kind": "random", "lower": [-1.0] * 3, "upper": [1.0] * 3, "waves": 20_000, "bandwidth": 0.5}
    made, rows = build(settings), rng.uniform(-1, 1, (20, 3))
    waves = math.sqrt(2) * made(rows)[:, 3:].astype(np.float64)
    gaps = np.sum((rows[:, None, :] - rows[None, :, :]) ** 2, axis=2) / 3
    assert np.allclose(waves @ waves.T, np.exp(-0.5 * gaps * 1.5 / 0.25) / 2, atol=0.03)
    assert np.allclose(cosine(np.linspace(-3, 3, 1001)), np.cos(2 * np.pi * np.linspace(-3, 3, 1001)), atol=1e-13)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "kind"),
        ({"kind": "nothing"}, "'nothing'.*scattering"),
        ({"kind": "scattering", "height": 4, "width": 8}, "height"),
        ({"kind": "scattering", "height": 8, "width": 8, "scales": 4}, "16"),
        ({"kind": "scattering", "height": 8, "width": 8, "highest": 0.0}, "highest"),
        ({"kind": "linear", "lower": [0.0], "upper": [0.0]}, "upper"),
        ({"kind": "linear", "lower": [0.0], "upper": [1.0, 2.0]}, "upper"),
        ({"kind": "random", "lower": [0.0], "upper": [1.0], "wavs": 3}, "wavs"),
    ],
)
def test_features_bad_setting_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        build(settings)


def test_features_registered_kind_is_found_and_second_one_refused() -> None:
    class Squares(features.LinearFeatures):
        kind = "squares of tests"

        def map_batch(self, rows: Any) -> Any:
            return super().map_batch(rows) ** 2

    features.register(Squares)
    assert isinstance(build({"kind": "squares of tests", "lower": [0.0], "upper": [2.0]}), FeatureMap)

    class Other(features.LinearFeatures):
        kind = "squares of tests"

    with pytest.raises(BadParameter, match="squares"):
        features.register(Other)


def test_features_row_that_fails_has_zeros_and_others_unchanged() -> None:
    class Fragile(features.LinearFeatures):
        kind = "fragile, of tests"

        def map_batch(self, rows: Any) -> Any:
            if np.any(rows > 5):
                raise RuntimeError("a secret")
            return super().map_batch(rows)

    made = Fragile(lower=[0.0, 0.0], upper=[1.0, 1.0])
    rows = np.random.default_rng(5).random((1500, 2))
    plain = made(rows)
    rows[700] = 9.0
    found = made(rows)
    assert np.array_equal(found[700], np.zeros(2))
    assert np.array_equal(np.delete(found, 700, axis=0), np.delete(plain, 700, axis=0))
