"""Data Collaboration and federated learning as published: what they compute, and what they are worth."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.papers.methods import collaboration as methods
from zerosum.papers.methods.records import Records
from zerosum.papers.programs.federated import CLIP, ROUNDS
from zerosum.statistics import perceptron


def blobs(count: int, seed: int, columns: int = 30) -> Records:
    """Ten classes around centres of their own, columns in 0 to 1."""
    centers = np.random.default_rng(99).random((10, columns))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, count)
    return Records(np.clip(centers[y] + 0.15 * rng.standard_normal((count, columns)), 0, 1), y)


SITES = [blobs(80, seed) for seed in range(4)]
TEST = blobs(500, 100)


def test_perceptron_gradient_equals_finite_differences() -> None:
    weights = perceptron.start(5, 3, 0, hidden=(7, 4))
    rng = np.random.default_rng(0)
    x, y = rng.random((6, 5)).astype(np.float32), rng.integers(0, 3, 6)

    def loss() -> float:
        out = perceptron.logits(weights, x).astype(np.float64)
        return float(np.mean(np.log(np.exp(out).sum(axis=1)) - out[np.arange(6), y]))

    found = perceptron.gradient(weights, x, y)
    for tensor, slope in zip(weights, found, strict=True):
        at = np.unravel_index(int(np.argmax(np.abs(slope))), slope.shape)
        kept, ends = tensor[at], []
        for turn in (1e-3, -1e-3):
            tensor[at] = kept + turn
            ends.append(loss())
        tensor[at] = kept
        assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(float(slope[at]), rel=0.02, abs=1e-4)


def test_data_collaboration_alignment_reduces_difference_of_sites() -> None:
    """Sites' maps differ by more than a turn, and aligned they nearly agree on records nobody has seen."""
    joint = methods.collaborate(SITES, 30, 0)
    views = [each - each.mean(axis=0) for each in (joint.returned(at, TEST.x) for at in range(2))]
    raw = [each - each.mean(axis=0) for each in (joint.maps[at](TEST.x) for at in range(2))]
    assert np.linalg.norm(views[0] - views[1]) < 0.3 * np.linalg.norm(views[0])
    assert np.linalg.norm(raw[0] - raw[1]) > np.linalg.norm(raw[0])


def test_data_collaboration_beats_one_site_and_federated_learns() -> None:
    few = [blobs(15, seed) for seed in range(6)]
    alone = perceptron.train(few[0].x, few[0].y, epochs=40)
    together = methods.collaboration_accuracy(few, TEST, 12, 0, epochs=40)
    assert together > perceptron.accuracy(alone, TEST.x, TEST.y) + 0.05
    averaged = methods.federated(few, 0, rounds=8, epochs=5)
    assert perceptron.accuracy(averaged, TEST.x, TEST.y) > 0.8


def test_data_collaboration_published_noise_protects_pixel_not_record() -> None:
    """A replaced record, with the map as it is: what the server sees moves as far as the mapped records are apart."""
    noise = methods.published_noise()
    assert methods.record_epsilon(1.0) == pytest.approx(50, rel=1e-6)
    one, other = TEST.x[0], TEST.x[np.flatnonzero(TEST.y != TEST.y[0])[0]]
    reduction = methods.Reduction.of(SITES[0].x, 30)
    moved = float(np.linalg.norm(reduction(one) - reduction(other)))
    assert moved == pytest.approx(float(np.linalg.norm(one - other)), rel=1e-6)
    assert methods.record_epsilon(moved) == accountant.epsilon(moved / noise, methods.DELTA)
    assert methods.record_epsilon(moved) > 75
    # the map is computed from the records: its own neighbour moves everybody's row, which no noise was planned for
    replaced = SITES[0].x.copy()
    replaced[0] = 1 - replaced[0]
    again = methods.Reduction.of(replaced, 30)
    assert np.linalg.norm(again(SITES[0].x[1:]) - reduction(SITES[0].x[1:])) > 1.0


def test_dc_dp_anchors_mapped_without_noise_tell_neighbours_apart() -> None:
    """The coordinator needs the mapped anchors of one site only: no epsilon holds for a record."""
    replaced = Records(SITES[0].x.copy(), SITES[0].y)
    replaced.x[0] = 1 - replaced.x[0]
    seen = [
        methods.collaborate([own, *SITES[1:]], 10, 0, methods.published_noise()).mapped_anchors[0]
        for own in (SITES[0], SITES[0], replaced)
    ]
    assert np.array_equal(seen[0], seen[1])
    assert np.linalg.norm(seen[0] - seen[2]) > 1.0


def test_federated_epsilon_claimed_is_far_below_proved() -> None:
    claimed, proved = methods.federated_epsilons(50.0, 0.01, 100)
    assert claimed < 50 < 1000 * 50 < proved
    noise = methods.federated_noise(8.0, 1e-5, 100, exact=True)
    worth = accountant.epsilon(2 * CLIP * np.sqrt(ROUNDS) / noise, 1e-5)
    assert worth == pytest.approx(8.0, rel=1e-6)
    with pytest.raises(BadParameter):
        methods.federated_noise(1.0, 0.01, 0)
