"""Figures 4 and 5 (bottom) of the capeAGN paper: error of topics against epsilon, documents and delta.

Five sites, one of them colluding; D = 10 words with K = 5 topics and D = 50 with K = 10, drawn from a Dirichlet
distribution (0.3); documents of three words, each of one topic. Every published method runs twice: at the same exact
epsilon as Zerosum, and at its own calibration, with the exact epsilon beside it. The metric is the mean distance to the
true topics, matched by optimal assignment (the paper takes the nearest).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerosum.algorithms import TopicsProgram
from zerosum.algorithms.metrics import component_error
from zerosum.arrays import Floats
from zerosum.papers.figures.components import COLLUDERS, OURS, SITES, Error, Point, experiments
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import topics as published

_LENGTH = 3  # words per document


@dataclass(frozen=True)
class Made:
    """Topics, and by site the word counts of documents and their first three words."""

    topics: Floats
    sites: list[Floats]
    words: list[published.Words]

    @classmethod
    def drawn(cls, columns: int, count: int, length: int, records: int, seed: int) -> Made:
        """Topics of equal weight. The words of a document are drawn from its topic."""
        rng = np.random.default_rng([11, seed])
        topics = rng.dirichlet(np.full(columns, 0.3), count)
        which = rng.integers(count, size=SITES * records)
        # Inverse transform sampling of the first three words.
        below = np.cumsum(topics, axis=1)[which][:, None, :-1]
        first = np.sum(rng.random((len(which), 3))[:, :, None] > below, axis=2)
        counts = rng.multinomial(length - 3, topics[which]).astype(np.float64)
        np.add.at(counts, (np.arange(len(which))[:, None], first), 1.0)
        return cls(topics, list(np.array_split(counts, SITES)), list(np.array_split(first, SITES)))


def ours(made: Made, epsilon: float, delta: float, seed: int) -> Floats:
    """Topics by Zerosum with default settings, each document a unit, seeded noise."""
    K, D = made.topics.shape
    named = {f"site {s}": rows for s, rows in enumerate(made.sites, 1)}
    algorithm = TopicsProgram(columns=tuple(f"w{i}" for i in range(D)), n_components=K, length=_LENGTH)
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=COLLUDERS, unit="record", seed=seed)
    estimate = result.estimate["topics"]
    whole = np.zeros((K, D))
    whole[:, [int(name[1:]) for name in estimate.axes[1].labels]] = estimate.value
    return whole


def published_errors(made: Made, point: Point, seed: int) -> list[Error]:
    """Every published method: method, calibration, exact epsilon, error."""
    K, D = made.topics.shape

    def error(found: Floats) -> float:
        return component_error(found, made.topics)

    rows = [
        ("non-private", "none", float("inf"), error(published.non_private(made.words, D, K, seed))),
        ("random", "none", 0.0, error(published.random_topics(D, K, 1000 + seed))),
    ]
    asked = (point.epsilon, point.delta)
    for method in published.METHODS:
        exact = published.noises_for_exact(method, *asked, SITES, COLLUDERS, point.records)
        claimed = published.published_noises(method, *asked, point.records)
        worth = published.exact_epsilon(method, *asked, SITES, COLLUDERS)
        for which, noises, true in (("exact", exact, point.epsilon), ("published", claimed, worth)):
            rows.append((method, which, true, error(published.private(method, made.words, D, K, noises, seed))))
    return rows


def errors(D: int, K: int, point: Point, seed: int) -> list[Error]:
    """Errors of Zerosum's topics and of every published method's."""
    made = Made.drawn(D, K, _LENGTH, point.records, seed)
    mine = component_error(ours(made, point.epsilon, point.delta, seed), made.topics)
    return [(OURS, "exact", point.epsilon, mine), *published_errors(made, point, seed)]


EXPERIMENTS = experiments("otd-stm", ("Single topic model", "topics"), errors)
