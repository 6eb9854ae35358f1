"""Classifiers in scikit-learn's manner, and study files that ask for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import zerosum
from zerosum.errors import BadData, BadParameter
from zerosum.estimators import FeatureClassifier
from zerosum.statistics.features import Scattering

RNG = np.random.default_rng(0)
X = {name: RNG.uniform(-1, 1, (800, 2)) for name in ("north", "south", "west")}
Y = {name: np.where(np.prod(rows, axis=1) > 0, "same", "other") for name, rows in X.items()}
SETTINGS: dict[str, Any] = {
    "lower": -1,
    "upper": 1,
    "epsilon": 8.0,
    "rounds": 8,
    "random_state": 1,
    "data": "synthetic",
}
QUICK = {"kind": "random", "waves": 40}


def stripes(count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Images with stripes, across or along."""
    along = rng.integers(0, 2, count)
    waves = np.sin(np.arange(10)[None, :] * 1.6 + rng.uniform(0, 6, (count, 1)))
    images = np.where(along[:, None, None] == 1, waves[:, :, None], waves[:, None, :])
    images = images.repeat(10, axis=1)[:, :10] if images.shape[1] == 1 else images.repeat(10, axis=2)[:, :, :10]
    return 100 + 60 * images + 10 * rng.normal(size=(count, 10, 10)), along


def test_feature_classifier_predicts_named_classes_with_probabilities() -> None:
    fitted = FeatureClassifier(QUICK, classes=["same", "other"], evaluate_share=0.1, **SETTINGS).fit(X, Y)
    assert fitted.classes_.tolist() == ["same", "other"]
    assert set(fitted.predict(X["west"])) == {"same", "other"}
    assert fitted.score(X["west"], Y["west"]) > 0.85
    assert np.allclose(fitted.predict_proba(X["west"]).sum(axis=1), 1)
    low, high = fitted.accuracy_interval_
    assert low <= fitted.accuracy_ <= high
    assert fitted.confusion_.shape == (2, 2)
    assert fitted.calibration_.shape == (2, 10)
    assert len(fitted.result_.participants) == 10
    turned = FeatureClassifier(QUICK, classes=["other", "same"], evaluate_share=0.1, **SETTINGS).fit(X, Y)
    assert turned.score(X["west"], Y["west"]) > 0.85


def test_feature_classifier_images_equal_flattened_rows() -> None:
    rng = np.random.default_rng(3)
    sites = [stripes(150, rng) for _ in range(3)]
    settings = {**SETTINGS, "lower": 0, "upper": 255}
    fitted = FeatureClassifier("scattering", classes=[0, 1], **settings).fit(
        [images for images, _ in sites], [labels for _, labels in sites]
    )
    images, labels = stripes(200, rng)
    assert fitted.score(images, labels) > 0.9
    assert fitted.features_ == Scattering(height=10, width=10)
    flat = [np.reshape(each, (len(each), -1)) for each, _ in sites]
    again = FeatureClassifier(Scattering(height=10, width=10), classes=[0, 1], **settings)
    again.fit(flat, [labels for _, labels in sites])
    assert np.array_equal(again.weights_, fitted.weights_)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"classes": None, "random_state": None, "unit": "record"}, "classes"),
        ({"classes": ["same"]}, "classes"),
        ({"classes": ["same", "same"]}, "classes"),
        ({"lower": None, "random_state": None, "unit": "record"}, "lower"),
        ({"features": "waves"}, "'waves'"),
        ({"features": 3}, "features"),
        ({"features": "scattering"}, "height"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_feature_classifier_bad_parameter_is_refused(change: dict[str, Any], word: str) -> None:
    settings = {"features": QUICK, "classes": ["same", "other"], **SETTINGS, **change}
    with pytest.raises(BadParameter, match=word):
        FeatureClassifier(**settings).fit(X, Y)


def test_feature_classifier_undeclared_labels_are_refused() -> None:
    with pytest.raises(BadData, match="classes"):
        FeatureClassifier(QUICK, classes=["same", "none"], **SETTINGS).fit(X, Y)


CHECKED = [
    FeatureClassifier(
        {"kind": "random", "waves": 20}, scheme="pooled", epsilon=10.0, rounds=5, random_state=0, data="synthetic"
    )
]


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]  # sklearn is untyped
def test_feature_classifier_passes_sklearn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


STUDY = """
name = "stripes"
algorithm = "feature-classifier"

[unit]
kind = "record"

[parameters]
classes = [0, 1]
rounds = 5
evaluate_share = 0.1
features = { kind = "scattering", height = 10, width = 10 }

[privacy]
epsilon = 8.0
delta = 1e-5
random_state = 1
"""


def test_feature_classifier_study_file_of_images_is_accurate(tmp_path: Path) -> None:
    text, rng = STUDY, np.random.default_rng(4)
    for name in ("north", "south"):
        images, labels = stripes(120, rng)
        np.savez(tmp_path / f"{name}.npz", data=np.column_stack([images.reshape(120, -1), labels]))
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.npz"\n'
        text += f'policy = {{ population = "{name}", unit = "record", data = "synthetic", ledger = "{name}.sqlite" }}\n'
    (tmp_path / "study.toml").write_text(text)
    study = zerosum.Study.load(tmp_path / "study.toml")
    assert study.plan().question.parameters["features"]["kind"] == "scattering"  # type: ignore[index,call-overload]
    estimate = study.run().estimate
    assert estimate["weights"].axes[1].labels == ("0", "1")  # as they are written, not 0.0
    assert estimate["accuracy"][0] > 0.6


def test_feature_classifier_finished_checkpoint_costs_nothing_again(tmp_path: Path) -> None:
    policies = {
        name: zerosum.Policy(population=name, unit="record", data="synthetic", ledger=tmp_path / f"{name}.sqlite")
        for name in X
    }
    settings = {**SETTINGS, "random_state": None, "unit": "record", "policies": policies, "rounds": 4}
    asked = FeatureClassifier(QUICK, classes=["same", "other"], checkpoint=tmp_path / "kept", attempts=2, **settings)
    first = asked.fit(X, Y).weights_
    spent = [len(policy.open_ledger().entries()) for policy in policies.values()]
    again = asked.fit(X, Y)
    assert np.array_equal(again.weights_, first)
    assert [len(policy.open_ledger().entries()) for policy in policies.values()] == spent
    with pytest.raises(zerosum.ZerosumError, match="study"):
        asked.set_params(rounds=5).fit(X, Y)
