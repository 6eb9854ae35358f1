"""Data Collaboration in scikit-learn's manner, and study files that ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import zerosum
from zerosum.errors import BadParameter
from zerosum.estimators import DataCollaboration

RNG = np.random.default_rng(0)
X = {name: RNG.uniform(-1, 1, (800, 2)) for name in ("north", "south", "west")}
Y = {name: np.where(rows[:, 0] > 0, "right", "left") for name, rows in X.items()}
SETTINGS: dict[str, Any] = {"lower": -1, "upper": 1, "epsilon": 8.0, "random_state": 1, "data": "synthetic"}


def test_records_are_published_and_predictions_are_free() -> None:
    fitted = DataCollaboration("linear", classes=["left", "right"], keep_records=True, **SETTINGS).fit(X, Y)
    assert fitted.score(X["west"], Y["west"]) > 0.85
    probabilities = fitted.predict_proba(X["west"])
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], fitted.predict(X["west"]))
    assert fitted.records_.shape == (2400, fitted.projection_.shape[1] + 2)
    assert np.std(fitted.records_) > fitted.noise_ > 0.5
    assert any("a noisy record of every" in note for note in fitted.notes_)
    assert any("FeatureClassifier" in note for note in fitted.notes_)
    public = DataCollaboration("linear", classes=["left", "right"], reduction="random", n_components=2, **SETTINGS)
    assert public.fit(X, Y).score(X["west"], Y["west"]) > 0.85
    assert not hasattr(public, "records_")


def test_ranges_are_public() -> None:
    with pytest.raises(BadParameter, match="public ranges"):
        DataCollaboration("linear", classes=["left", "right"], unit="record").fit(X, Y)


STUDY = """
name = "sides"
algorithm = "data-collaboration"

[unit]
kind = "record"

[parameters]
columns = ["a", "b", "side"]
classes = ["left", "right"]
features = { kind = "linear", lower = [-1, -1], upper = [1, 1] }

[privacy]
epsilon = 8.0
delta = 1e-5
random_state = 1
"""


def test_a_study_file_asks_for_it(tmp_path: Path) -> None:
    text = STUDY
    for name, rows in X.items():
        lines = [f"{a:.6f},{b:.6f},{side}" for (a, b), side in zip(rows, Y[name], strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,side", *lines]))
        policy = f'population = "{name}", unit = "record", data = "synthetic", ledger = "{name}.sqlite"'
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv"\nunits = 800\n'
        text += f"policy = {{ {policy}, publications = true }}\n"
    (tmp_path / "study.toml").write_text(text)
    study = zerosum.Study.load(tmp_path / "study.toml")
    assert [release.kind for release in study.plan().releases] == ["sum", "publication"]
    assert study.run().estimate["weights"].axes[1].labels == ("left", "right")


CHECKED = [
    DataCollaboration({"kind": "random", "waves": 20}, scheme="pooled", epsilon=20.0, random_state=0, data="synthetic")
]


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]  # sklearn is untyped
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)
