"""The capeFM paper's network: its gradients, its clips, its noise, and what it is truly worth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.papers.methods import network as methods
from zerosum.papers.methods.network import Classes
from zerosum.statistics.network import TwoLayerGradient


def flat(tensors: methods.Tensors) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([each.ravel() for each in tensors])


def test_network_methods_gradients_equal_statistic() -> None:
    data = Classes.drawn("norm", 50, 0)
    weights = methods.start(np.random.default_rng(0))
    for clip, bound in (("all", 1.0), (None, 1e9)):
        stat = TwoLayerGradient(
            columns=51, hidden=methods.HIDDEN, clip=bound, radius=1e3, weights=flat(weights),
            scale=np.full(50, math.sqrt(50) / 2),
        )  # fmt: skip
        wanted = stat.total(Units.from_rows(np.column_stack([data.x, data.y])))
        assert flat(methods.gradients(weights, data, clip)) == pytest.approx(wanted, abs=1e-5)  # type: ignore[arg-type]


def test_network_methods_tensor_clipped_alone_moves_by_one_and_all_four_by_two() -> None:
    data = Classes.drawn("coordinate", 200, 3)
    weights = methods.start(np.random.default_rng(1))
    farthest = 0.0
    for at in range(200):
        one = methods.gradients(weights, Classes(30 * data.x[at : at + 1], data.y[at : at + 1]), "each")
        assert all(np.linalg.norm(each) <= 1 + 1e-12 for each in one)
        farthest = max(farthest, float(np.linalg.norm(flat(one))))
    assert 1.8 < farthest <= 2 + 1e-12


@pytest.mark.parametrize("method", methods.SCHEMES)
def test_network_methods_exact_calibration_costs_requested_epsilon(method: str) -> None:
    assert methods.exact_epsilon(method, "exact", 0.7, 1e-5) == pytest.approx(0.7)
    pooled = methods.cost("pooled", "exact", 0.7, 1e-5, 4, 1).noise_std
    assert pooled == pytest.approx(2 * math.sqrt(methods.ITERATIONS) / accountant.mu_for(0.7, 1e-5))
    assert methods.cost(method, "exact", 0.7, 1e-5, 4, 1).noise_std >= pooled * (1 - 1e-12)


def test_network_methods_published_calibration_costs_more_than_stated() -> None:
    tau = math.sqrt(2 * math.log(125)) / 0.5
    mu = math.sqrt(4 * methods.ITERATIONS) / tau
    assert methods.exact_epsilon("conv", "published", 0.5, 1e-5) == pytest.approx(accountant.epsilon(mu, 1e-5))
    assert methods.exact_epsilon("cape", "published", 0.5, 1e-5) > 10


def test_network_methods_learn_and_noise_reduces_accuracy() -> None:
    data, others = Classes.drawn("coordinate", 2000, 0), Classes.drawn("coordinate", 2000, 1)
    scores = {method: methods.accuracy(methods.train(method, data, 0.5, 1e-5, 0), others) for method in methods.METHODS}
    assert scores["non-private"] > 0.99
    assert all(score > 0.8 for score in scores.values())
    with pytest.raises(BadParameter, match="'secure-sum'"):
        methods.exact_epsilon("secure-sum", "published", 1.0, 1e-5)
