"""The single topic model as published: its moments, its sensitivities by enumeration, and what it costs."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import coordinates
from zerosum.papers.methods import topics


def test_topic_moments_equal_mean_over_word_orders() -> None:
    words = np.array([[0, 1, 2], [1, 1, 0]])
    assert topics.second_moment(words, 3).tolist() == [[0, 0.25, 0], [0.25, 0.5, 0], [0, 0, 0]]
    tensor = topics.projected_third(words, np.eye(3))
    assert tensor.sum() == pytest.approx(1)
    assert tensor[0, 1, 2] == tensor[2, 0, 1] == pytest.approx(1 / 12)
    assert tensor[0, 1, 1] == tensor[1, 1, 0] == pytest.approx(1 / 6)


def test_topic_moments_of_any_documents_differ_by_at_most_sensitivity() -> None:
    seen = [np.array([each]) for each in product(range(3), repeat=3)]
    second = [topics.second_moment(each, 3) for each in seen]
    third = [topics.projected_third(each, np.eye(3)) for each in seen]
    for moments in (second, third):
        apart = max(float(np.linalg.norm(coordinates.pack(a - b))) for a, b in product(moments, repeat=2))
        assert apart == pytest.approx(topics.SENSITIVITY)


@pytest.mark.parametrize("method", topics.METHODS)
def test_topic_methods_noise_for_exact_epsilon_is_below_published(method: str) -> None:
    exact = topics.noises_for_exact(method, 1.0, 0.01, 5, 1, 1000)
    claimed = topics.published_noises(method, 1.0, 0.01, 1000)
    worth = topics.exact_epsilon(method, 1.0, 0.01, 5, 1)
    assert exact[0] < claimed[0]
    assert 0.1 < worth < 1  # cautious, as textbooks are
    again = topics.noises_for_exact(method, worth, 0.01, 5, 1, 1000)
    if method != "avn":
        assert again == pytest.approx(claimed, rel=1e-6)


def test_topic_methods_valid_topics_are_probabilities() -> None:
    found = topics.valid(np.array([[2.0, -1.0, 2.0], [-1.0, -1.0, -2.0]]))
    assert found.tolist() == [[0.5, 0, 0.5], [1 / 3] * 3]
    assert np.allclose(topics.random_topics(5, 3).sum(axis=1), 1)


def test_topic_methods_bad_parameter_is_refused() -> None:
    with pytest.raises(BadParameter, match="'magic'"):
        topics.published_noises("magic", 1.0, 0.01, 10)
    with pytest.raises(BadParameter, match="record"):
        topics.noises_for_exact("conv", 1.0, 0.01, 5, 1, 0)
    assert math.isfinite(topics.published_noises("avn", 1.0, 0.01, 10)[1])
