"""Networks in scikit-learn's manner, and study files that ask for one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import zerosum
from zerosum.errors import BadParameter
from zerosum.estimators import NeuralClassifier

RNG = np.random.default_rng(0)
X = {name: RNG.normal(size=(700, 2)) for name in ("north", "south", "west")}
Y = {name: np.where(np.linalg.norm(rows, axis=1) > 1.2, "far", "near") for name, rows in X.items()}
SETTINGS: dict[str, Any] = {
    "lower": -4,
    "upper": 4,
    "scale": 1,
    "epsilon": 8.0,
    "steps": 25,
    "random_state": 1,
    "data": "synthetic",
}

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: make test-torch")


def test_neural_classifier_predicts_named_classes_with_probabilities() -> None:
    net = NeuralClassifier(classes=["near", "far"], evaluate_share=0.2, **SETTINGS).fit(X, Y)
    assert net.classes_.tolist() == ["near", "far"]
    assert net.score(X["west"], Y["west"]) > 0.8
    chance = net.predict_proba(X["west"])
    assert np.allclose(chance.sum(axis=1), 1)
    assert np.array_equal(net.classes_[chance.argmax(axis=1)], net.predict(X["west"]))
    low, high = net.accuracy_interval_
    assert low <= net.accuracy_ <= high
    assert net.weights_.shape == (2 * 16 + 16 + 16 + 1,)
    assert len(net.result_.participants) == 26


def test_published_calibration_states_the_exact_epsilon_of_all_steps() -> None:
    settings = SETTINGS | {"calibration": "published", "scheme": "cape-published", "epsilon": 0.5, "delta": 0.01}
    net = NeuralClassifier(classes=["near", "far"], **settings).fit(X, Y)
    (release,) = net.privacy_.releases
    assert release.noise_std == pytest.approx(2 / 0.5 * np.sqrt(2 * np.log(1.25 / 0.01)))
    site = net.privacy_.per_site[0]
    assert site.epsilon > 5 * 0.5  # 25 steps, and a colluder knows its own draws
    assert any("25 steps" in note for note in net.privacy_.notes)
    with pytest.raises(BadParameter, match="sub-sampled"):
        NeuralClassifier(classes=["near", "far"], **settings | {"rate": 0.5}).fit(X, Y)


def test_neural_classifier_needs_ranges_and_accepts_people() -> None:
    with pytest.raises(BadParameter, match="lower"):
        NeuralClassifier(classes=["near", "far"], unit="record").fit(X, Y)
    people = [zerosum.Units.from_groups(rows, np.arange(len(rows)) // 7) for rows in X.values()]
    net = NeuralClassifier(classes=["near", "far"], **SETTINGS).fit(people, list(Y.values()))
    assert net.privacy_.unit == "person"


STUDY = """
name = "rings"
algorithm = "neural-classifier"
[parameters]
columns = ["a", "b", "c"]
classes = ["near", "far"]
lower = [-4, -4]
upper = [4, 4]
steps = 3
hidden = 4
[unit]
kind = "record"
[privacy]
epsilon = 2.0
delta = 1e-5
"""


def test_neural_classifier_study_file_gives_weights(tmp_path: Path) -> None:
    study = STUDY
    for name, rows in X.items():
        lines = [f"{a},{b},{c}" for (a, b), c in zip(rows, Y[name], strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,c", *lines]))
        policy = f'policy = {{population = "{name}", unit = "record", ledger = "{name}.sqlite"}}'
        study += f'[[sites]]\nname = "{name}"\ndata = "{name}.csv"\n{policy}\n'
    (tmp_path / "study.toml").write_text(study)
    loaded = zerosum.Study.load(tmp_path / "study.toml")
    result = loaded.run()
    assert result.estimate["weights"].shape == (2 * 4 + 4 + 4 + 1,)


@needs_torch
def test_neural_classifier_images_enter_torch_module() -> None:
    rng = np.random.default_rng(3)
    images = [rng.integers(0, 256, (60, 16, 16)).astype(float) for _ in range(3)]
    labels = [(each[:, :8].mean(axis=(1, 2)) > each[:, 8:].mean(axis=(1, 2))).astype(int) for each in images]
    how: dict[str, Any] = {"lower": 0, "upper": 255, "epsilon": 8.0, "steps": 5, "random_state": 0, "data": "synthetic"}
    net = NeuralClassifier("tanh-cnn", settings={"side": 16, "classes": 2}, classes=[0, 1], **how).fit(images, labels)
    assert net.predict_proba(images[0]).shape == (60, 2)
    assert np.all(np.isfinite(net.weights_))


CHECKED = [NeuralClassifier(scheme="pooled", epsilon=10.0, steps=20, random_state=0, data="synthetic")]


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]  # sklearn is untyped
def test_neural_classifier_passes_sklearn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
