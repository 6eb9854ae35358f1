"""The estimator of additive models: fits, predictions, explanations, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor

from zerosum import AdditiveModel, Mean
from zerosum.errors import BadData, BadParameter
from zerosum.report.tables import records_of
from zerosum.study.additive_shapes import AdditiveShapes

Floats = NDArray[np.float64]
GIVEN: dict[str, Any] = {
    "ranges": {"x0": (-1, 1), "x1": (-1, 1)},
    "levels": {"x2": ["a", "b"]},
    "epsilon": 4.0,
    "random_state": 0,
    "data": "synthetic",
}


def rows(count: int, seed: int) -> tuple[NDArray[Any], Floats]:
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(-1, 1, (count, 2))
    words = rng.choice(["a", "b"], count)
    eta = 3 * np.abs(numbers[:, 0]) - 1.5 + (words == "b")
    return np.column_stack([numbers.astype(object), words]), eta


SITES = [rows(3000, at) for at in range(3)]
X = [table for table, _ in SITES]
LABELS = [
    np.where(np.random.default_rng(at).random(3000) < 1 / (1 + np.exp(-eta)), "ill", "well")
    for at, (_, eta) in enumerate(SITES)
]
NUMBERS = [eta + 0.3 * np.random.default_rng(at).normal(size=3000) for at, (_, eta) in enumerate(SITES)]


@pytest.fixture(scope="module")
def classifier() -> AdditiveModel:
    return AdditiveModel(response=("well", "ill"), **GIVEN).fit(X, LABELS)


@pytest.fixture(scope="module")
def regressor() -> AdditiveModel:
    return AdditiveModel(task="regression", response=(-4, 5), pairs=[("x0", "x2")], **GIVEN).fit(X, NUMBERS)


def test_additive_classifier_predicts_declared_classes(classifier: AdditiveModel) -> None:
    test, eta = rows(4000, 9)
    assert is_classifier(classifier)
    assert classifier.classes_.tolist() == ["well", "ill"]
    found = classifier.predict(test)
    assert np.mean(found == np.where(eta > 0, "ill", "well")) > 0.9
    second = classifier.predict_proba(test)[:, 1]
    assert np.array_equal(second > 0.5, found == "ill")
    assert np.corrcoef(classifier.decision_function(test), eta)[0, 1] > 0.95


def test_additive_regressor_explains_the_variance(regressor: AdditiveModel) -> None:
    test, eta = rows(4000, 9)
    assert is_regressor(regressor)
    assert regressor.score(test, eta) > 0.9
    with pytest.raises(BadParameter):
        regressor.predict_proba(test)
    with pytest.raises(BadParameter):
        regressor.decision_function(test)


def test_additive_explanations_add_up_to_the_predictor(classifier: AdditiveModel, regressor: AdditiveModel) -> None:
    test, _ = rows(20, 9)
    for each, value in ((classifier, classifier.decision_function(test)), (regressor, regressor.predict(test))):
        explained = each.explain(test)
        assert [sum(own.values()) for own in explained] == pytest.approx(value.tolist())
        sizes = [abs(effect) for name, effect in explained[0].items() if name != "constant"]
        assert sizes == sorted(sizes, reverse=True)


def test_additive_shape_is_labelled_and_centred(classifier: AdditiveModel) -> None:
    shape = classifier.shape("x2")
    assert shape.axes[0].labels == ("a", "b", "missing")
    assert shape[1] - shape[0] == pytest.approx(1, abs=0.3)
    with pytest.raises(BadParameter):
        classifier.shape("income")


def test_additive_prediction_of_missing_value_has_the_cell_of_missing_values(classifier: AdditiveModel) -> None:
    found = classifier.explain([[None, 0.0, "a"]])[0]
    # no value is missing in the data
    assert found["x0"] == classifier.shape("x0")[-1] == 0


def test_additive_terms_are_in_tables_and_records(classifier: AdditiveModel) -> None:
    (table,) = classifier.sheets()
    assert table.rows[0][0] == "x0"
    assert len(records_of(classifier.result_.estimate)["effect"]) == len(classifier.effects_)
    assert max(classifier.importance_, key=lambda name: classifier.importance_[name]) == "x0"


def test_additive_shapes_of_another_result_are_refused() -> None:
    mean = Mean(lower=0, upper=1, random_state=0, data="synthetic").fit([np.zeros((20, 1)), np.ones((20, 1))])
    with pytest.raises(BadParameter):
        AdditiveShapes.of(mean.result_)


def test_additive_model_is_cloned_with_its_parameters() -> None:
    model = AdditiveModel(task="regression", response=(0, 1), rising=["x0"], **GIVEN)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("given", "labels", "error"),
    [
        ({"ranges": None, "levels": None}, LABELS, BadParameter),
        ({"response": ("well", "sick")}, LABELS, BadData),
        ({"response": ("well",)}, LABELS, BadParameter),
        ({"rising": ["x2"]}, LABELS, BadParameter),
        ({"task": "regression"}, LABELS, BadData),
        ({"task": "ranking"}, LABELS, BadParameter),
    ],
)
def test_additive_model_that_does_not_fit_is_refused(given: dict[str, Any], labels: Any, error: Any) -> None:
    with pytest.raises(error):
        AdditiveModel(**GIVEN | given).fit(X, labels)


def test_additive_regression_of_private_data_needs_a_public_range() -> None:
    sites = {name: np.ones((9, 1)) for name in "ab"}
    with pytest.raises(BadParameter):
        AdditiveModel(task="regression", ranges={"x0": (0, 1)}).fit(sites, {name: np.ones(9) for name in "ab"})
