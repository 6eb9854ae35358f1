"""Attacks on published records: they succeed where nothing protects, and are at chance where noise is large."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.papers.methods import collaboration as methods
from zerosum.papers.methods import reidentification as attacks
from zerosum.papers.methods.records import Records
from zerosum.statistics.perceptron import Weights

RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((8, 40)) / 4


def records(count: int) -> Records:
    x = 0.5 + 0.1 * RNG.standard_normal((count, 8)) @ MIX + 0.01 * RNG.standard_normal((count, 40))
    return Records(np.clip(x, 0, 1), RNG.integers(0, 10, count))


SITES = [records(200) for _ in range(3)]
OTHERS, OWN = records(400).x, records(400).x


def test_fitted_map_of_colluder_equals_map_of_site() -> None:
    joint = methods.collaborate(SITES, 10, 0)
    found = attacks.fitted_map(joint.anchors, joint.mapped_anchors[1])
    assert np.allclose(found(OTHERS), joint.maps[1](OTHERS), atol=1e-8)


@pytest.mark.parametrize(
    ("noise", "linked", "left"), [(0.0, (0.99, 1.0), (0.0, 0.1)), (100.0, (0.0, 0.03), (0.9, 1.2))]
)
def test_linkage_attack_success_falls_with_noise(
    noise: float, linked: tuple[float, float], left: tuple[float, float]
) -> None:
    joint = methods.collaborate(SITES, 10, 0, noise)
    known = attacks.fitted_map(joint.anchors, joint.mapped_anchors[1])
    assert linked[0] <= attacks.linked(joint.published[1], known(SITES[1].x)) <= linked[1]
    simulated = known(OTHERS) + noise * RNG.standard_normal((len(OTHERS), 10))
    assert left[0] <= attacks.left_over(joint.published[1], SITES[1].x, simulated, OTHERS) <= left[1]
    apart = attacks.membership_auc(joint.published[1], known(SITES[1].x), known(OTHERS), noise, known(OWN))
    assert apart > 0.99 if noise == 0 else abs(apart - 0.5) < 0.1


def test_membership_attack_on_published_rows_weakens_with_noise() -> None:
    rng = np.random.default_rng(3)
    members, others, fresh = (10 * rng.standard_normal((60, 5)) for _ in range(3))
    found = []
    for noise in (1.0, 10.0, 100.0):
        published = members + noise * rng.standard_normal(members.shape)
        found.append(attacks.membership_auc(published, members, others, noise, fresh))
    assert found[0] > 0.99
    assert 0.55 < found[1] < found[0]
    assert abs(found[2] - 0.5) < 0.1


def test_federated_weights_reveal_membership_until_noise_hides_it() -> None:
    """Labels at random can only be learned by heart, which shows."""
    rng = np.random.default_rng(5)
    mine, own, others = (Records(rng.random((n, 40)), rng.integers(0, 10, n)) for n in (40, 80, 40))
    scores = {}
    for noise in (0.0, 3.0):
        heard: list[list[tuple[Weights, Weights]]] = []
        methods.federated(
            [mine, own], 0, rounds=2, epochs=15, noise=noise, clip=15.0 if noise else None, transcript=heard
        )
        assert len(heard) == 2
        assert all(len(answers) == 2 for answers in heard)
        told = [answers[0] for answers in heard]
        found = attacks.update_scores(told, own, Records.joined([mine, others]), size=40, epochs=15, seed=1, shadows=2)
        scores[noise] = attacks.pairs_won(found[:40], found[40:])
    assert scores[0.0] > 0.7
    assert abs(scores[3.0] - 0.5) < 0.25


def test_gradient_scores_of_noisy_total_reveal_membership() -> None:
    rng = np.random.default_rng(4)
    features, residuals = rng.standard_normal((60, 30)), rng.standard_normal((60, 4))
    total = features[:30].T @ residuals[:30]
    for noise, low, high in ((0.1, 0.9, 1.0), (1e4, 0.3, 0.7)):
        noisy = total + noise * rng.standard_normal(total.shape)
        found = attacks.gradient_scores([noisy], [residuals], features, [np.zeros_like(total)], 30)
        assert low <= attacks.pairs_won(found[:30], found[30:]) <= high


def test_margins_equal_log_odds() -> None:
    odds = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    assert np.allclose(attacks.margins(odds, np.array([0, 1])), np.log([0.7 / 0.3, 0.1 / 0.9]))
