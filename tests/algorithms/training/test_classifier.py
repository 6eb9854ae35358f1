"""The classifier on public features: what it learns, what it says of itself, and that an audit finds nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms import FeatureClassifierProgram
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.training.classifier import whitener
from zerosum.algorithms.training.evaluation import quality_of
from zerosum.audit import audit
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.holdout import held_out
from zerosum.statistics.softmax import SoftmaxPredictions
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]

FEATURES: dict[str, Any] = {"kind": "random", "lower": [-1.0] * 2, "upper": [1.0] * 2, "waves": 60}
PROGRAM: dict[str, Any] = {"columns": ("x", "y", "class"), "classes": ("no", "yes"), "features": FEATURES}


def checkers(count: int, seed: int = 0) -> Units:
    """Two classes that no line parts."""
    rows = np.random.default_rng(seed).uniform(-1, 1, (count, 2))
    return Units(np.column_stack([rows, rows[:, 0] * rows[:, 1] > 0]))


def test_feature_classifier_of_checkers_learns_and_states_accuracy() -> None:
    asked = Rehearsal(FeatureClassifierProgram(**PROGRAM, evaluate_share=0.05), 6000, 3, 4.0, 1e-5)
    found = asked.run(checkers(6000), 1)
    low, high = found["accuracy_interval_95"].tolist()
    assert 0.9 < found["accuracy"][0] <= 1
    assert low < found["accuracy"][0] <= high
    assert found["confusion"].shape == (2, 2)
    assert found["confusion"].value.sum() == pytest.approx(600, abs=150)
    assert found["weights"].axes[1].labels == ("no", "yes")
    assert found["calibration"].shape == (2, 10)


def test_feature_classifier_held_out_units_do_not_enter_training() -> None:
    """Whoever is held out may have any label, the weights stay the same."""
    units = checkers(500)
    turned = Units(np.asarray(units.rows).copy())
    out = held_out(units, 0.2)
    program = FeatureClassifierProgram(**PROGRAM, evaluate_share=0.1, hold_out=0.2, rounds=4)
    asked = Rehearsal(program, 500, 3, 4.0, 1e-5)
    fitted = {request.statistic.part for request in asked.run_with_requests(units, 0)[1][:-1]}  # type: ignore[attr-defined]
    judged = asked.run_with_requests(units, 0)[1][-1].statistic
    assert fitted == {"fitted"}
    assert judged.part == "held-out"  # type: ignore[attr-defined]
    assert isinstance(judged, BoundedStatistic)
    assert len(judged.entering(turned)) == int(np.sum(out))


def test_feature_classifier_resolve_follows_noise_and_keeps_given_fields() -> None:
    program = FeatureClassifierProgram(**PROGRAM)
    loud, quiet = (program.resolve(PublicFacts(noise, 10_000)) for noise in (20.0, 1.0))
    for one, other in ((loud.rounds, quiet.rounds), (loud.clip, quiet.clip), (loud.learning_rate, quiet.learning_rate)):
        assert one is not None
        assert other is not None
        assert one < other
    assert quiet.resolve(PublicFacts(20.0, 10_000)) == quiet
    kept = FeatureClassifierProgram(**PROGRAM, rounds=3, clip=0.2, learning_rate=9.0).resolve(PublicFacts(1.0, None))
    assert (kept.rounds, kept.clip, kept.learning_rate) == (3, 0.2, 9.0)


def test_feature_classifier_few_features_take_shorter_steps() -> None:
    """Gradient descent is stable up to 4 k for k directions; before, the step ignored k."""
    for features in (4, 40):
        ends = {"lower": [-1.0] * features, "upper": [1.0] * features}
        program = FeatureClassifierProgram(
            columns=(*(f"x{at}" for at in range(features)), "class"),
            classes=(0.0, 1.0),
            features={"kind": "linear", **ends},
        )
        for noise in (0.1, 1.0, 30.0):
            chosen = program.resolve(PublicFacts(noise, 30_000))
            assert chosen.learning_rate is not None
            assert chosen.learning_rate <= 2 * features


@pytest.mark.parametrize("adjacency", Adjacency)
def test_feature_classifier_requests_equal_planned_releases(adjacency: Adjacency) -> None:
    program = FeatureClassifierProgram(**PROGRAM, rounds=3, evaluate_share=0.1)
    planned = program.requests(adjacency)
    assert [request.statistic.name for request in planned] == [
        "feature_moments",
        "softmax_gradient",
        "softmax_predictions",
    ]
    assert sum(request.share for request in planned) == pytest.approx(1)


def test_whitener_direction_of_noise_alone_is_zero() -> None:
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    covariance = turned @ np.diag([9.0, 4, 1, 0.1, -0.1, -0.2]) @ turned.T
    found = whitener(covariance, 5, 0.0)
    assert np.allclose(found.T @ covariance @ found, np.diag([1, 1, 1, 1, 0]), atol=1e-5)


def test_feature_classifier_accuracy_interval_covers() -> None:
    """Of the population's accuracy, over samples and noise."""
    rng, covered = np.random.default_rng(1), []
    statistic = SoftmaxPredictions(
        columns=3,
        features=FEATURES,
        classes=2,
        center=np.zeros(62),
        projection=np.eye(62)[:, :3],
        weights=np.zeros((4, 2)),
    )
    for _ in range(2000):
        right = rng.binomial(400, 0.8)
        value = np.zeros(statistic.size)
        value[:2] = right, 400 - right
        release = Release(value + 9.0 * rng.normal(size=value.shape), 9.0, 400.0, ("a",))
        low, high = quality_of(statistic, release, ["0", "1"])["accuracy_interval_95"].tolist()
        covered.append(low <= 0.8 <= high)
    assert 0.935 <= np.mean(covered) <= 0.965


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"classes": ("no",)}, "classes"),
        ({"classes": ("no", "no")}, "classes"),
        ({"columns": ("x", "class")}, "columns"),
        ({"features": {"kind": "none"}}, "'none'"),
        ({"rounds": 0}, "rounds"),
        ({"evaluate_share": 0.7}, "evaluate_share"),
        ({"hold_out": 1.0}, "hold_out"),
    ],
)
def test_classifier_bad_parameter_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        FeatureClassifierProgram(**{**PROGRAM, **change})


@pytest.mark.slow
def test_feature_classifier_audit_does_not_exceed_claim() -> None:
    found = audit(Scheme("secure-sum"), FeatureClassifierProgram(**PROGRAM, rounds=3, evaluate_share=0.1), samples=400)
    assert found.holds, found
