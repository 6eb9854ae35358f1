"""Training through the private sum: programs on scripted releases, what the planner chooses, and how well it learns."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum import run
from zerosum.algorithms import NeuralClassifierProgram, build
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.training.models import make_model
from zerosum.algorithms.training.optimisers import Momentum, TorchOptimiser, make_optimiser
from zerosum.compute.units import Units
from zerosum.errors import Abandoned, BadParameter
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.site.policy import Policy
from zerosum.statistics.holdout import held_out
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: make test-torch")


def made(features: int = 4, **extra: Any) -> NeuralClassifierProgram:
    names = (*(f"x{i}" for i in range(features)), "class")
    return NeuralClassifierProgram(columns=names, lower=np.full(features, -4.0), upper=np.full(features, 4.0), **extra)


def rings(count: int, seed: int = 0) -> Floats:
    """Two classes that no line tells apart: inside and outside of a circle; two columns more say nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    return np.column_stack([x, np.hypot(x[:, 0], x[:, 1]) > 1.18])


def accuracy(algorithm: NeuralClassifierProgram, weights: Any, rows: Floats) -> float:
    chance = algorithm.probabilities(np.asarray(weights), rows[:, :-1])
    return float(np.mean(chance.argmax(axis=1) == rows[:, -1]))


def test_neural_classifier_of_rings_learns() -> None:
    rows, others = rings(4000), rings(1000, seed=1)
    rehearsal = Rehearsal(made(center=np.zeros(4), scale=np.ones(4), steps=60), len(rows), 4, 3.0, 1e-5)
    found = rehearsal.run(Units.from_rows(rows), seed=0)
    assert isinstance(rehearsal.algorithm, NeuralClassifierProgram)
    assert accuracy(rehearsal.algorithm, found["weights"], others) > 0.85
    assert float(found["steps_taken"][0]) == 60


def test_neural_classifier_several_classes_with_sampling_learn() -> None:
    rng = np.random.default_rng(2)
    label = rng.integers(0, 3, 3000)
    rows = np.column_stack([rng.normal(size=(3000, 4)) + 2 * np.eye(3, 4)[label], label])
    algorithm = made(classes=("a", "b", "c"), rate=0.5, steps=15)
    rehearsal = Rehearsal(algorithm, 3000, 4, 1.0, 1e-5)
    found, asked = rehearsal.run_with_requests(Units.from_rows(rows), 0)
    assert isinstance(rehearsal.algorithm, NeuralClassifierProgram)
    assert accuracy(rehearsal.algorithm, found["weights"], rows) > 0.7
    assert len(asked) == 15 == rehearsal.plan.rounds
    assert len(rehearsal.plan.releases) == 1


def test_neural_classifier_accuracy_interval_is_of_held_out_units() -> None:
    rows = rings(4000)
    algorithm = made(steps=60, scale=np.ones(4), evaluate_share=0.2, hold_out=0.2)
    rehearsal = Rehearsal(algorithm, len(rows), 4, 5.0, 1e-5)
    found, asked = rehearsal.run_with_requests(Units.from_rows(rows), 0)
    assert isinstance(rehearsal.algorithm, NeuralClassifierProgram)
    out = held_out(Units.from_rows(rows), 0.2)
    true = accuracy(rehearsal.algorithm, found["weights"], rows[out])
    low, high = found["accuracy_interval_95"].tolist()
    assert low <= true <= high
    assert high - low < 0.12
    assert [request.share for request in asked] == pytest.approx([0.8] * 60 + [0.2])
    assert found["confusion"].shape == (2, 2)


def test_neural_classifier_every_step_equals_planned_request() -> None:
    algorithm = made(steps=3)
    (template,) = algorithm.requests(Adjacency.REPLACE_ONE)
    program = algorithm.program(Adjacency.REPLACE_ONE)
    request = next(program)
    seen = []
    for _ in range(3):
        assert isinstance(request, PrivateSum)
        assert request.statistic.size == template.statistic.size
        assert request.statistic.sensitivity(Adjacency.REPLACE_ONE) == 2.0
        seen.append(request.statistic.parameters()["weights"])
        try:
            request = program.send(Release(np.ones(template.statistic.size), 0.1, 10.0, ("a", "b")))
        except StopIteration as stop:
            found = stop.value
    assert np.array_equal(seen[0], algorithm.first_weights())
    assert not np.array_equal(seen[1], seen[0])
    assert found["weights"].shape == seen[0].shape


def test_neural_classifier_lost_step_is_left_out_and_all_lost_end_study() -> None:
    algorithm = made(steps=2, averaging=0.0)
    size = len(algorithm.first_weights())
    program = algorithm.program(Adjacency.REPLACE_ONE)
    next(program)
    program.throw(Abandoned("too few"))
    with pytest.raises(StopIteration) as ended:
        program.send(Release(np.ones(size), 0.1, 10.0, ("a",)))
    assert float(ended.value.value["steps_taken"][0]) == 1
    program = algorithm.program(Adjacency.REPLACE_ONE)
    next(program)
    program.throw(Abandoned("too few"))
    with pytest.raises(Abandoned):
        program.throw(Abandoned("too few"))


def test_neural_classifier_last_weights_are_averaged() -> None:
    size = len(made().first_weights())
    gradient = np.zeros(size)
    gradient[0] = 1.0
    ends = {}
    for averaging in (0.0, 0.5, 1.0):
        algorithm = made(steps=4, averaging=averaging, momentum=0.0, learning_rate=1.0)
        program = algorithm.program(Adjacency.REPLACE_ONE)
        next(program)
        try:
            while True:
                program.send(Release(gradient, 0.0, 1.0, ("a",)))
        except StopIteration as stop:
            ends[averaging] = float(algorithm.first_weights()[0] - stop.value["weights"][0])
    assert ends == pytest.approx({0.0: 4.0, 0.5: 3.5, 1.0: 2.5})


def test_neural_classifier_resolve_smaller_noise_plans_more_steps_and_keeps_given_fields() -> None:
    ways = []
    for noise in (30.0, 10.0, 3.0, 1.0):
        chosen = made().resolve(PublicFacts(noise, 10_000))
        assert chosen.resolve(PublicFacts(99.0, 7)).describe == chosen.describe
        assert chosen.steps is not None
        assert chosen.learning_rate is not None
        ways.append((chosen.steps, chosen.steps * chosen.learning_rate))
    assert [steps for steps, _ in ways] == sorted(steps for steps, _ in ways)
    assert [way for _, way in ways] == sorted(way for _, way in ways)
    fixed = made(steps=7, learning_rate=0.3, clip=0.2).resolve(PublicFacts(5.0, 100))
    assert (fixed.steps, fixed.learning_rate, fixed.clip) == (7, 0.3, 0.2)
    sampled = made(rate=0.01).resolve(PublicFacts(5.0, 10_000))
    assert sampled.steps == 1000
    assert "0.01" in sampled.describe


def test_neural_classifier_built_by_name_runs_over_sites(tmp_path: Any) -> None:
    rows = rings(1200)
    algorithm = build(
        "neural-classifier",
        {"columns": ["a", "b", "c", "d", "class"], "lower": [-4] * 4, "upper": [4] * 4, "steps": 5, "hidden": 4},
    )
    sites = {name: rows[k::3] for k, name in enumerate("xyz")}
    policies = {name: Policy(population=name, unit="record", ledger=tmp_path / f"{name}.sqlite") for name in sites}
    result = run(algorithm, sites, epsilon=2.0, delta=1e-5, unit="record", policies=policies)
    assert result.estimate["weights"].shape == ((4 + 1) * 4 + 4 + 1,)
    assert len(result.participants) == 5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optimizer": "LBFGS"}, "optimizer"),
        ({"classes": ("a", "a")}, "classes"),
        ({"lower": None}, "upper"),
        ({"lower": None, "upper": None, "clip": 1.0}, "upper"),
        ({"scale": [1.0]}, "scale"),
        ({"settings": {"a": 1}}, "settings"),
        ({"model": "tanh-cnn", "shape": (2, 3)}, "shape"),
        ({"lower": [-1, -1, -1, -1, 1]}, "classes"),
        ({"steps": 0}, "steps"),
    ],
)
def test_neural_classifier_bad_parameter_is_refused(change: dict[str, Any], named: str) -> None:
    params = {"columns": ("a", "b", "c", "d", "class"), "lower": [-4] * 4, "upper": [4] * 4} | change
    with pytest.raises(BadParameter, match=named):
        NeuralClassifierProgram(**params)


def test_neural_classifier_add_remove_is_refused() -> None:
    with pytest.raises(BadParameter, match="replace-one"):
        made().requests(Adjacency.ADD_REMOVE)


def test_optimiser_without_settings_needs_no_torch() -> None:
    assert isinstance(make_optimiser("SGD", 0.1, 0.9, {}), Momentum)


def test_models_share_one_interface() -> None:
    own: dict[str, Any] = {"hidden": 3, "batch": 8, "precision": "float64"}
    two = make_model("two-layer", 4, 2, settings={}, shape=None, **own)
    module = make_model("perceptron", 4, 2, settings={"features": 4, "classes": 2}, shape=None, **own)
    assert (two.gradient.name, two.predictions.name) == ("two_layer_gradient", "two_layer_predictions")
    assert (module.gradient.name, module.predictions.name) == ("module_gradient", "module_predictions")
    assert module.parameters(None)["shape"] == (4,)
    assert two.first_weights(0).shape == ((4 + 1) * 3 + 3 + 1,)


# ---- PyTorch --------------------------------------------------------------------------------------------------------


@needs_torch
def test_momentum_of_any_gradients_equals_torch_sgd() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = make_optimiser("SGD", 0.1, 0.9, {}), TorchOptimiser("SGD", 0.1, 0.9, {})
    here = there = rng.normal(size=5)
    for _ in range(4):
        gradient = rng.normal(size=5)
        here, there = ours.step(here, gradient), theirs.step(there, gradient)
    assert here == pytest.approx(there, abs=1e-12)


@needs_torch
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_neural_classifier_torch_module_under_noise_learns(optimizer: str) -> None:
    rows, others = rings(2000), rings(1000, seed=1)
    algorithm = made(
        model="perceptron",
        settings={"features": 4, "classes": 2, "hidden": 16},
        optimizer=optimizer,
        learning_rate=0.05 if optimizer == "Adam" else None,
        steps=30,
        batch=256,
        scale=np.ones(4),
    )
    rehearsal = Rehearsal(algorithm, len(rows), 4, 8.0, 1e-5)
    found = rehearsal.run(Units.from_rows(rows), 0)
    assert isinstance(rehearsal.algorithm, NeuralClassifierProgram)
    assert accuracy(rehearsal.algorithm, found["weights"], others) > 0.8


@needs_torch
def test_torch_optimiser_unknown_setting_is_refused() -> None:
    with pytest.raises(BadParameter, match="warmth"):
        TorchOptimiser("Adam", 0.1, 0.9, {"warmth": 1}).step(np.zeros(2), np.zeros(2))


@needs_torch
def test_neural_classifier_torch_module_over_sites_runs_and_unknown_model_is_refused(tmp_path: Any) -> None:
    rows = rings(300)
    settings: dict[str, Any] = {"features": 4, "classes": 2, "hidden": 8}
    sites = {name: rows[k::3] for k, name in enumerate("xyz")}
    policies = {name: Policy(population=name, unit="record", ledger=tmp_path / f"{name}.sqlite") for name in sites}
    algorithm = made(model="perceptron", settings=settings, steps=4, rate=0.5)
    result = run(algorithm, sites, epsilon=1.0, delta=1e-5, unit="record", policies=policies)
    assert result.estimate["weights"].shape == (4 * 8 + 8 + 8 * 2 + 2,)
    assert math.isfinite(float(np.sum(result.estimate["weights"])))
    with pytest.raises(BadParameter, match="'nowhere'"):
        made(model="nowhere").first_weights()
