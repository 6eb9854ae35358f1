"""Data Collaboration in scikit-learn's manner, and study files that ask for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import zerosum
from zerosum.cli import _run
from zerosum.errors import BadParameter
from zerosum.estimators import DataCollaboration
from zerosum.site.audit_log import consent_in_words, release_in_words

RNG = np.random.default_rng(0)
X = {name: RNG.uniform(-1, 1, (800, 2)) for name in ("north", "south", "west")}
Y = {name: np.where(rows[:, 0] > 0, "right", "left") for name, rows in X.items()}
SETTINGS: dict[str, Any] = {"lower": -1, "upper": 1, "epsilon": 8.0, "random_state": 1, "data": "synthetic"}


def test_data_collaboration_publishes_records_and_predicts() -> None:
    fitted = DataCollaboration("linear", classes=["left", "right"], keep_records=True, **SETTINGS).fit(X, Y)
    assert fitted.score(X["west"], Y["west"]) > 0.85
    probabilities = fitted.predict_proba(X["west"])
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], fitted.predict(X["west"]))
    assert fitted.records_.shape == (2400, fitted.projection_.shape[1] + 2)
    assert np.std(fitted.records_) > fitted.noise_std_ > 0.5
    assert any("published" in note for note in fitted.notes_)
    assert any("FeatureClassifier" in note for note in fitted.notes_)
    public = DataCollaboration("linear", classes=["left", "right"], reduction="random", n_components=2, **SETTINGS)
    assert public.fit(X, Y).score(X["west"], Y["west"]) > 0.85
    assert not hasattr(public, "records_")


@pytest.mark.parametrize("reduction", ["dp", "random"])
def test_data_collaboration_classes_missing_at_site_or_everywhere_give_result(reduction: str) -> None:
    """Nothing fails, and what is published has the same shape whatever a site holds: refusals would speak of data."""
    y = Y | {"north": np.full(800, "left")}
    given: Any = {"classes": ["left", "right", "nobody's"], "reduction": reduction, "keep_records": True} | SETTINGS
    fitted = DataCollaboration("linear", **given).fit(X, y)
    assert fitted.records_.shape == (2400, fitted.projection_.shape[1] + 3)
    assert np.all(np.isfinite(fitted.weights_))
    shares = fitted.predict_proba(X["north"])
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.mean(fitted.predict(X["south"]) == "nobody's") < 0.1


def test_data_collaboration_of_one_unit_per_site_is_finite() -> None:
    """Two sites of one unit each, the same everywhere: nothing to learn, and nothing that fails or is not finite."""
    fitted = DataCollaboration("linear", classes=["left", "right"], **SETTINGS).fit(
        [np.zeros((1, 2))] * 2, [np.array(["left"])] * 2
    )
    assert np.all(np.isfinite(fitted.weights_))
    assert np.all(np.isfinite(fitted.predict_proba(np.zeros((3, 2)))))


def test_data_collaboration_without_ranges_is_refused() -> None:
    with pytest.raises(BadParameter, match="lower"):
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


def written(tmp_path: Path, seed: str = "random_state = 1") -> Path:
    text = STUDY.replace("random_state = 1", seed)
    for name, rows in X.items():
        lines = [f"{a:.6f},{b:.6f},{side}" for (a, b), side in zip(rows, Y[name], strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,side", *lines]))
        policy = f'population = "{name}", unit = "record", data = "synthetic", ledger = "{name}.sqlite"'
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv"\nunits = 800\n'
        text += f"policy = {{ {policy}, publications = true }}\n"
    (tmp_path / "study.toml").write_text(text)
    return tmp_path / "study.toml"


def test_data_collaboration_study_file_plans_publication(tmp_path: Path) -> None:
    study = zerosum.Study.load(written(tmp_path))
    assert [release.kind for release in study.plan().releases] == ["sum", "publication"]
    assert study.run().estimate["weights"].axes[1].labels == ("left", "right")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_data_collaboration_cli_recommends_feature_classifier_with_numbers(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--out", str(tmp_path / "out")] if command == "run" else []
    assert _run([command, str(written(tmp_path)), *into]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "'feature-classifier'" in said
    note = said.rpartition("'labelled_records'")[2]
    noise, records, average, summed = map(float, re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", note)[:4])
    assert records == 2400
    assert average == pytest.approx(noise / 2400**0.5, rel=0.05)
    assert summed == pytest.approx(average / 2400**0.5 * (3 / 2) ** 0.5, rel=0.1)  # one of three colludes


def test_data_collaboration_report_has_noise_of_row(tmp_path: Path) -> None:
    study = zerosum.Study.load(written(tmp_path))
    result = study.run()
    line = result.report.releases[1]
    assert line.kind == "publication"
    assert line.noise_std == pytest.approx(float(result.estimate["noise"][0]), rel=1e-9)


def test_data_collaboration_consent_text_names_publication(tmp_path: Path) -> None:
    """Under a scheme that hides sums, too: a publication is no sum."""
    plan = zerosum.Study.load(written(tmp_path)).plan()
    assert "publish" in consent_in_words(plan, 0)
    asked = zerosum.Study.load(tmp_path / "study.toml").build_algorithm().requests(plan.adjacency)
    total, published = (release_in_words(plan, 0, round, 0, request) for round, request in enumerate(asked))
    assert re.search(r"\bsum\b.*'feature_moments'", total)
    assert re.search(r"\b4 numbers\b.*labelled_records", published)
    assert "sum" not in published


CHECKED = [
    DataCollaboration({"kind": "random", "waves": 20}, scheme="pooled", epsilon=20.0, random_state=0, data="synthetic")
]


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]  # sklearn is untyped
def test_data_collaboration_passes_sklearn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
