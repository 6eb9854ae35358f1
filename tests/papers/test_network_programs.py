"""The network of capeFM and federated averaging: programs against plain NumPy, written for these tests."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.papers.figures import network as figure
from zerosum.papers.figures.network import Classes
from zerosum.papers.methods import collaboration
from zerosum.papers.methods.records import Records
from zerosum.papers.programs import CapeNetworkProgram, FLDPProgram
from zerosum.papers.rehearsal import PublicData
from zerosum.statistics import perceptron
from zerosum.statistics.network import TwoLayer
from zerosum.statistics.published import TensorClippedGradient

P, HIDDEN, STEPS = figure.COLUMNS, 6, 12
NAMES = (*(f"x{at}" for at in range(P)), "class")


def network(**given: Any) -> CapeNetworkProgram:
    ends = np.full(P, 12.0)
    settings: dict[str, Any] = {"columns": NAMES, "lower": -ends, "upper": ends, "hidden": HIDDEN, "steps": STEPS}
    return CapeNetworkProgram(**settings | {"center": 0 * ends, "scale": np.ones(P)} | given)


def gradients(weights: Floats, data: Classes, clip: Literal["joint", "tensor"] | None) -> Floats:
    """The sum over examples of the gradient, clipped to norm 1."""
    net = TwoLayer.of_flat(weights, P, HIDDEN, 2)
    x = data.x * 2 / math.sqrt(P)
    Z = x @ net.first + net.bias
    A = np.maximum(Z, 0)
    e = 1 / (1 + np.exp(-(A @ net.second[:, 0] + net.constant))) - data.y
    B = (Z > 0) * net.second[:, 0] * e[:, None]
    total = np.zeros(len(weights))
    for at in range(len(x)):
        tensors = [np.outer(x[at], B[at]), B[at], A[at] * e[at], np.array([e[at]])]
        if clip == "tensor":
            tensors = [each / max(1.0, float(np.linalg.norm(each))) for each in tensors]
        one = np.concatenate([each.ravel() for each in tensors])
        total += one / max(1.0, float(np.linalg.norm(one))) if clip == "joint" else one
    return total


@pytest.mark.parametrize("clip", ["joint", "tensor", None])
def test_cape_network_without_noise_equals_numpy_training(clip: Literal["joint", "tensor"] | None) -> None:
    data = Classes.drawn("coordinate", 90, 0)
    algorithm = network(clipping=clip or "joint", clip=1.0 if clip else 1e6, start=4)
    found = PublicData(np.split(data.rows, [20, 70])).rehearse(algorithm)["weights"]
    weights = TwoLayer.start(P, HIDDEN, 2, 4)
    velocity = np.zeros_like(weights)
    for _ in range(STEPS):
        velocity = 0.9 * velocity + gradients(weights, data, clip) / 90
        weights = weights - 0.5 * velocity
    # Inputs and first-layer weights are products in whole numbers of 26 bits: 2^-26 = 1.5e-8 in each step.
    assert np.asarray(found) == pytest.approx(weights, abs=1e-6)


def test_tensor_clipped_gradient_of_one_example_has_four_tensors_of_norm_one_at_most() -> None:
    data = Classes.drawn("coordinate", 200, 3)
    statistic = network().statistic(network().first_weights())
    assert isinstance(statistic, TensorClippedGradient)
    farthest = 0.0
    for row in np.column_stack([30 * data.x, data.y]):
        net = TwoLayer.of_flat(statistic.total(Units.from_rows(row[None, :])), P, HIDDEN, 2)
        tensors = net.first, net.bias, net.second, net.constant
        assert all(np.linalg.norm(each) <= 1 + 1e-12 for each in tensors)
        farthest = max(farthest, math.sqrt(sum(float(np.sum(each**2)) for each in tensors)))
    assert 1.8 < farthest <= 2 + 1e-12


def test_cape_network_does_not_clip_inputs_within_their_ranges() -> None:
    statistic = network(center=np.full(P, 3.0)).statistic(network().first_weights())
    corner = np.append(np.full(P, -12.0), 1.0)
    inside = statistic.examples(Units.from_rows(corner[None, :]))[0]
    assert np.linalg.norm(inside) <= statistic.parameters()["radius"] <= np.linalg.norm(inside) * (1 + 1e-12)


# ---- noise of the figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", figure.SCHEMES)
def test_network_figure_exact_noise_costs_the_requested_epsilon(method: str) -> None:
    pooled, exact = figure.noise_of("pooled", "exact", 0.7, network(clipping="joint"))
    assert exact == 0.7
    assert pooled == pytest.approx(2 * math.sqrt(STEPS) / accountant.mu_for(0.7, figure.DELTA))
    assert figure.noise_of(method, "exact", 0.7, network(clipping="joint"))[1] == 0.7


def test_network_figure_published_noise_costs_more_than_stated() -> None:
    tau = math.sqrt(2 * math.log(125)) / 0.5  # for sensitivity 1
    algorithm = network(clipping="tensor", steps=25)
    noise, exact = figure.noise_of("conv", "published", 0.5, algorithm)
    assert noise == pytest.approx(2 * tau)
    assert exact == pytest.approx(accountant.epsilon(math.sqrt(4 * 25) / tau, figure.DELTA))
    assert figure.noise_of("cape", "published", 0.5, algorithm)[1] == pytest.approx(11.24, abs=0.01)
    with pytest.raises(BadParameter, match="'secure-sum'"):
        figure.noise_of("secure-sum", "published", 1.0, algorithm)


# ---- federated averaging ---------------------------------------------------------------------------------------------


def records(count: int, seed: int) -> Records:
    """Pixels in multiples of 1/256, which are exact in single precision."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, count)
    x = rng.integers(0, 100, (count, 20)) / 256
    x[np.arange(count), y] = 1.0
    return Records(x, y)


SITES = [records(count, count) for count in (40, 70, 25)]


def averaging(clip: float, **given: Any) -> FLDPProgram:
    names = (*(f"p{at}" for at in range(20)), "class")
    settings: dict[str, Any] = {"columns": names, "lower": 0.0, "upper": 1.0, "classes": tuple(range(10))}
    return FLDPProgram(**settings | {"largest_site": 70, "clip": clip, "hidden": (12,), "start": 3} | given)


def data_of(sites: list[Records]) -> PublicData:
    return PublicData([np.column_stack([site.x, site.y]) for site in sites])


def numpy_averaging(sites: list[Records], rounds: int, clip: float) -> Floats:
    weights = perceptron.start(20, 10, 3, (12,))
    for turn in range(rounds):
        sent = []
        for site in sites:
            trained = perceptron.flat(perceptron.train(site.x, site.y, epochs=2, seed=3 + turn, weights=weights))
            sent.append(len(site.y) * trained * min(1.0, clip / float(np.linalg.norm(trained))))
        mean = np.sum(sent, axis=0) / sum(len(site.y) for site in sites)
        weights = perceptron.of_flat(mean, 20, 10, (12,))
    return np.asarray(mean)


@pytest.mark.parametrize("clip", [1e6, 2.0])
@pytest.mark.parametrize(("rounds", "tolerance"), [(1, 1e-12), (4, 1e-6)])
def test_fl_dp_without_noise_equals_numpy_averaging(rounds: int, tolerance: float, clip: float) -> None:
    """Each round starts from weights in single precision, where a last bit in the mean becomes 6e-8."""
    found = np.asarray(data_of(SITES).rehearse(averaging(clip, rounds=rounds))["weights"])
    assert found == pytest.approx(numpy_averaging(SITES, rounds, clip), abs=tolerance)


def test_fed_avg_of_several_sites_learns() -> None:
    algorithm = averaging(1e6, rounds=10, epochs=5, step=0.02)
    weights = np.asarray(data_of(SITES).rehearse(algorithm)["weights"])
    test = records(300, 99)
    assert np.mean(algorithm.probabilities(weights, test.x).argmax(axis=1) == test.y) > 0.9


def test_fl_dp_noise_of_the_mean_decreases_with_sites_and_not_with_records() -> None:
    noise = {}
    for sites, count in ((2, 30), (4, 30), (4, 60)):
        data = data_of([records(count, seed) for seed in range(sites)])
        algorithm = averaging(2.0, rounds=1, epochs=1, largest_site=count)
        found = data.rehearse(algorithm, "pooled", 1.0, np.random.default_rng(0))
        noise[sites, count] = float(np.asarray(found["noise_std"])[0])
    assert noise == {(2, 30): 0.5, (4, 30): 0.25, (4, 60): 0.25}


def test_federated_with_a_transcript_sends_what_clients_return() -> None:
    heard: list[Any] = []
    weights = collaboration.federated(SITES, 0, rounds=2, epochs=1, clip=3.0, transcript=heard)
    assert [len(answers) for answers in heard] == [3, 3]
    for _before, returned in heard[-1]:
        assert np.linalg.norm(perceptron.flat(returned)) == pytest.approx(3.0, rel=1e-6)
    shares = np.array([40, 70, 25]) / 135
    mean = sum(share * perceptron.flat(own) for share, (_, own) in zip(shares, heard[-1], strict=True))
    assert perceptron.flat(weights) == pytest.approx(mean, abs=1e-6)
    assert perceptron.flat(heard[1][0][0]) == pytest.approx(
        sum(share * perceptron.flat(own) for share, (_, own) in zip(shares, heard[0], strict=True)), abs=1e-6
    )


def test_federated_with_noise_has_it_on_the_weights_of_every_client() -> None:
    """About 80 000 weights of each of three clients: a relative standard error of 0.15 %, checked at five of them."""
    heard: dict[float, list[Any]] = {0.0: [], 0.5: []}
    for noise, seen in heard.items():
        collaboration.federated(SITES, 0, rounds=1, epochs=1, clip=3.0, noise=noise, transcript=seen)
    moved = [
        perceptron.flat(loud[1]) - perceptron.flat(silent[1])
        for loud, silent in zip(heard[0.5][0], heard[0.0][0], strict=True)
    ]
    assert np.std(moved) == pytest.approx(0.5, rel=5 * 0.0015)
