"""Figures 4 and 5 (bottom) of the capeAGN paper: errors of topics against epsilon, documents and delta.

Five sites, one of them colluding; D = 10 words with K = 5 topics and D = 50 with K = 10, drawn from a Dirichlet law
(0.3), documents of three words, each of one topic. Every published method runs twice: at the same exact epsilon as
Zerosum, and at its own calibration, with the epsilon that this is truly worth beside it. The metric is the mean
distance to the true topics, matched by optimal assignment (the paper takes the nearest).

Tested in tests/papers/figures/test_topic_figures.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.algorithms import Topics
from zerosum.algorithms.metrics import component_error
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.papers.figures.experiment import Carry, Experiment, OnStep, Table, averages, quiet
from zerosum.papers.figures.mixture import COLLUDERS, COLUMNS, DELTA, EPSILON, OURS, SITES, Point, draw
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import topics as published

_DATA = {"d10": (10, 5), "d50": (50, 10)}
_RECORDS, _SEEDS, _LENGTH = 10_000, 10, 3  # documents at a site, unless they vary; words in each


@dataclass(frozen=True)
class Made:
    """Topics, and by site the counts of documents and their first three words."""

    topics: Floats
    sites: list[Floats]
    words: list[published.Words]

    @classmethod
    def drawn(cls, columns: int, count: int, length: int, records: int, seed: int) -> Made:
        """Topics of equal weight, each word drawn from its document's."""
        rng = np.random.default_rng([11, seed])
        topics = rng.dirichlet(np.full(columns, 0.3), count)
        which = rng.integers(count, size=SITES * records)
        below = np.cumsum(topics, axis=1)[which][:, None, :-1]
        first = np.sum(rng.random((len(which), 3))[:, :, None] > below, axis=2)
        counts = rng.multinomial(length - 3, topics[which]).astype(np.float64)
        np.add.at(counts, (np.arange(len(which))[:, None], first), 1.0)
        return cls(topics, list(np.array_split(counts, SITES)), list(np.array_split(first, SITES)))


def ours(made: Made, epsilon: float, delta: float, seed: int) -> Floats:
    """Zerosum's topics: the defaults, each document a unit, with noise from a seed."""
    K, D = made.topics.shape
    named = {f"site {s}": rows for s, rows in enumerate(made.sites, 1)}
    algorithm = Topics(columns=tuple(f"w{i}" for i in range(D)), n_components=K, length=_LENGTH)
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=COLLUDERS, unit="record", seed=seed)
    estimate = result.estimate["topics"]
    whole = np.zeros((K, D))
    whole[:, [int(name[1:]) for name in estimate.axes[1].labels]] = estimate.value
    return whole


def published_errors(made: Made, point: Point, seed: int) -> list[tuple[str, str, float, float]]:
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


def _sweep(data: str, points: Sequence[Point], seeds: int | None, full: bool, on_step: OnStep) -> Table:
    if data not in _DATA:
        raise BadParameter(f"unknown data {data!r}; there are {', '.join(_DATA)}")
    runs = seeds if seeds is not None else _SEEDS if full else 2
    if runs < 1:
        raise BadParameter(f"at least one seed is needed, got {runs}")
    D, K = _DATA[data]
    rows: Table = []
    on_step(0, len(points) * runs)
    for at, point in enumerate(points):
        for seed in range(runs):
            made = Made.drawn(D, K, _LENGTH, point.records, seed)
            mine = component_error(ours(made, point.epsilon, point.delta, seed), made.topics)
            found = [(OURS, "exact", point.epsilon, mine), *published_errors(made, point, seed)]
            for method, which, true, error in found:
                asked = (point.epsilon, true, point.delta, point.records, seed, error)
                rows.append(dict(zip(COLUMNS, (data, method, which, *asked), strict=True)))
            on_step(at * runs + seed + 1, len(points) * runs)
    return rows


def stm_epsilon(
    data: str, folder: Path | None = None, *, full: bool = False, seeds: int | None = None, on_step: OnStep = quiet
) -> Table:
    """Errors against epsilon (figure 4, top)."""
    swept = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0) if full else (0.1, 0.5, 1.0, 3.0)
    sizes = (2000, _RECORDS) if full else (_RECORDS,)
    points = [Point(epsilon, DELTA, records) for records in sizes for epsilon in swept]
    return _sweep(data, points, seeds, full, on_step)


def stm_samples(
    data: str, folder: Path | None = None, *, full: bool = False, seeds: int | None = None, on_step: OnStep = quiet
) -> Table:
    """Errors against the documents of a site (figure 4, bottom)."""
    swept = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000) if full else (1000, 3000, 10_000)
    return _sweep(data, [Point(EPSILON, DELTA, records) for records in swept], seeds, full, on_step)


def stm_delta(
    data: str, folder: Path | None = None, *, full: bool = False, seeds: int | None = None, on_step: OnStep = quiet
) -> Table:
    """Errors against delta (figure 5, bottom)."""
    swept = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if full else (1e-6, 1e-4, 1e-2)
    return _sweep(data, [Point(EPSILON, delta, _RECORDS) for delta in swept], seeds, full, on_step)


def summary(rows: Table) -> Table:
    """Mean and standard deviation of the error over seeds, a row for every other setting."""
    return averages(rows, ["error", "exact_epsilon"])


_SWEPT: dict[str, tuple[Carry, Literal["epsilon", "records", "delta"]]] = {
    "otd-stm-epsilon": (stm_epsilon, "epsilon"),
    "otd-stm-samples": (stm_samples, "records"),
    "otd-stm-delta": (stm_delta, "delta"),
}
EXPERIMENTS = tuple(
    Experiment(
        name=name,
        carry=carry,
        draw=partial(draw, x=x, what=("Single topic model", "topics")),
        summary=summary,
        shown={
            "method": "method",
            "calibration": "calibration",
            "asked eps": "epsilon",
            "exact eps": "exact_epsilon",
            "delta": "delta",
            "records": "records",
            "error": "error",
            "spread": "spread",
            "runs": "runs",
        },
        data=tuple(_DATA),
    )
    for name, (carry, x) in _SWEPT.items()
)
