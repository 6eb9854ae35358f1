"""Figures 4 and 5 (bottom) of the capeAGN paper: error of topics against epsilon, documents and delta.

Five sites, one of them colluding; D = 10 words with K = 5 topics and D = 50 with K = 10, drawn from a Dirichlet
distribution (0.3); documents of three words, each of one topic. Every published method runs twice: at the same exact
epsilon as Zerosum, and at its own calibration, with the exact epsilon beside it. The metric is the mean distance to the
true topics, matched by optimal assignment (the paper takes the nearest).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerosum.algorithms import Estimate, TopicsProgram
from zerosum.algorithms.metrics import component_error
from zerosum.arrays import Floats
from zerosum.papers.figures import components
from zerosum.papers.figures.components import COLLUDERS, OURS, SITES, Error, Point, experiments
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods.tensor import TOPIC_CLAIMS, valid
from zerosum.papers.programs import CapeAGNTopicsProgram

_LENGTH = 3  # words per document


@dataclass(frozen=True)
class TrueTopics:
    """Topics, and by site the word counts of documents."""

    topics: Floats
    sites: list[Floats]

    @classmethod
    def draw(cls, columns: int, count: int, length: int, records: int, seed: int) -> TrueTopics:
        """Topics of equal weight. The words of a document are drawn from its topic."""
        rng = np.random.default_rng([11, seed])
        topics = rng.dirichlet(np.full(columns, 0.3), count)
        which = rng.integers(count, size=SITES * records)
        counts = rng.multinomial(length, topics[which]).astype(np.float64)
        return cls(topics, list(np.array_split(counts, SITES)))


def ours(made: TrueTopics, epsilon: float, delta: float, seed: int) -> Floats:
    """Topics by Zerosum with default settings, each document a unit, seeded noise."""
    K, D = made.topics.shape
    named = {f"site {s}": rows for s, rows in enumerate(made.sites, 1)}
    algorithm = TopicsProgram(columns=tuple(f"w{i}" for i in range(D)), n_components=K, length=_LENGTH)
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=COLLUDERS, unit="record", seed=seed)
    estimate = result.estimate["topics"]
    whole = np.zeros((K, D))
    whole[:, [int(name[1:]) for name in estimate.axes[1].labels]] = estimate.value
    return whole


def published_errors(made: TrueTopics, point: Point, seed: int) -> list[Error]:
    """Every published method: method, calibration, exact epsilon, error."""
    K, D = made.topics.shape
    program = CapeAGNTopicsProgram(columns=tuple(f"w{i}" for i in range(D)), n_components=K, seed=seed)

    def error(estimate: Estimate) -> float:
        return component_error(np.asarray(estimate["topics"]), made.topics)

    # Topics without data: the worst case.
    random = valid(np.abs(np.random.default_rng(1000 + seed).normal(size=(K, D))))
    return [
        ("random", "none", 0.0, component_error(random, made.topics)),
        *components.published_errors(program, made.sites, TOPIC_CLAIMS, error, point, seed),
    ]


def errors(D: int, K: int, point: Point, seed: int) -> list[Error]:
    """Errors of Zerosum's topics and of every published method's."""
    made = TrueTopics.draw(D, K, _LENGTH, point.records, seed)
    mine = component_error(ours(made, point.epsilon, point.delta, seed), made.topics)
    return [(OURS, "exact", point.epsilon, mine), *published_errors(made, point, seed)]


EXPERIMENTS = experiments("otd-stm", ("Single topic model", "topics"), errors)
