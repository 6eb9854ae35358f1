"""TopicModel in scikit-learn's manner: its checks, sparse documents, and what it finds, says and predicts."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerosum.algorithms.metrics import component_error
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators import TopicModel

Floats = NDArray[np.float64]
WORDS = [f"{letter}{i}" for letter in "abc" for i in range(4)]


def truth() -> Floats:
    """Three topics, each mostly of its own four words."""
    return np.asarray(0.9 * np.kron(np.eye(3), [0.4, 0.3, 0.2, 0.1]) + 0.1 / 12, dtype=np.float64)


def documents(count: int = 3000, length: int = 12, seed: int = 0) -> tuple[Floats, NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    which = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    return rng.multinomial(length, truth()[which]).astype(float), which


def fitted(**more: Any) -> Any:
    given: dict[str, Any] = {"vocabulary": WORDS, "epsilon": 5.0, "random_state": 0, "data": "synthetic"} | more
    return TopicModel(3, **given).fit(list(np.array_split(documents()[0], 3)))


@parametrize_with_checks([TopicModel(2, scheme="pooled", epsilon=20.0, random_state=0, data="synthetic")])  # type: ignore[untyped-decorator]  # theirs
def test_topic_model_passes_sklearn_checks(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("more", [{}, {"length": 12}, {"path": "pairs"}], ids=str)
def test_topic_model_finds_topics_and_top_words(more: dict[str, Any]) -> None:
    found = fitted(**more)
    assert found.components_.shape == (3, 12)
    assert np.allclose(found.components_.sum(axis=1), 1)
    assert found.weights_.sum() == pytest.approx(1)
    assert component_error(found.components_, truth()) < (0.2 if more.get("path") else 0.05)
    assert {word[0] for word in found.top_words(3)[0]} == {"a"}  # the heaviest first
    if not more.get("path"):
        assert found.weights_ == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
        assert np.all(found.carried_)


def test_topic_model_predicts_topics_of_documents() -> None:
    found, (table, which) = fitted(), documents(500, seed=1)
    chances = found.transform(table)
    assert chances.sum(axis=1) == pytest.approx(np.ones(500))
    named = np.array(["abc".index(words[0][0]) for words in found.top_words(1)])
    assert np.mean(named[found.predict(table)] == which) > 0.98
    assert found.score(table) > np.log(1 / 12)  # better than any word anywhere
    assert found.get_feature_names_out().tolist() == ["topicmodel0", "topicmodel1", "topicmodel2"]
    assert found.score(np.zeros((1, 12))) == 0


def test_topic_model_sparse_documents_equal_dense() -> None:
    table = documents()[0]
    parts = np.array_split(table, 3)
    found, dense = TopicModel(3, vocabulary=WORDS, random_state=0, data="synthetic"), fitted(epsilon=1.0)
    found.fit([csr_array(part) for part in parts])
    assert found.components_ == pytest.approx(dense.components_, abs=1e-6)
    assert found.transform(csr_array(table)) == pytest.approx(dense.transform(table), abs=1e-4)
    assert found.score(csr_array(table)) == pytest.approx(dense.score(table), abs=1e-5)
    one = TopicModel(3, random_state=0, data="synthetic").fit(csr_array(table), sites=np.repeat(["x", "y", "z"], 1000))
    assert one.components_ == pytest.approx(dense.components_, abs=0.05)  # other noise: sites have other names


def test_topic_model_person_with_many_documents_counts_once() -> None:
    table = documents(900)[0]
    own = Units(csr_array(table), np.arange(0, 901, 3))
    found = TopicModel(3, vocabulary=WORDS, epsilon=20.0, random_state=0, data="synthetic").fit([own, own])
    assert found.privacy_.unit == "person"
    assert component_error(found.components_, truth()) < 0.15


def test_topic_model_topics_beyond_budget_are_noted() -> None:
    found = fitted(epsilon=0.001, path="pairs")
    assert not np.any(found.carried_)
    assert any("3 of 3 topics" in note for note in found.notes_)


def test_topic_model_bad_input_is_refused() -> None:
    table = documents(60)[0]
    with pytest.raises(BadData, match="Negative"):
        TopicModel(3, random_state=0, data="synthetic").fit([table, -table])
    with pytest.raises(BadParameter, match="vocabulary"):
        TopicModel(3, vocabulary=["a", "b"], random_state=0, data="synthetic").fit([table, table])
    with pytest.raises(BadParameter, match="topics"):
        TopicModel(13, random_state=0, data="synthetic").fit([table, table])
    with pytest.raises(NotFittedError):
        TopicModel(3).top_words()
