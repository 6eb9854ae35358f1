"""Seeded runs and their hashes (`benchmarks/seeded_results.py`)."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import numpy as np

import seeded_results
from zerosum.algorithms import ALGORITHMS


def test_runs_of_every_algorithm_are_two_or_more() -> None:
    runs = seeded_results.runs().values()
    counted = Counter(run.args[0] for run in runs if isinstance(run, partial))
    assert {name for name in ALGORITHMS if counted[name] < 2} == set()


def test_run_with_one_seed_twice_has_the_same_digest() -> None:
    run = seeded_results.runs()["mean, secure-sum"]
    first, second = (seeded_results.numbers(run()) for _ in range(2))
    assert seeded_results.digest(first) == seeded_results.digest(second)


def test_digest_of_one_changed_bit_differs() -> None:
    before, after = {"mean": [1.0, 0.0]}, {"mean": [float(np.nextafter(1.0, 2.0)), 0.0]}
    assert seeded_results.digest(before) != seeded_results.digest(after)
    assert seeded_results.digest(before) != seeded_results.digest({"mean": [1.0, -0.0]})
    worst, where = seeded_results.difference(before, after)
    assert math.isclose(worst, 2**-52)
    assert where == ".mean[0]"


def test_difference_of_missing_entries_is_infinite() -> None:
    assert seeded_results.difference({"mean": 1.0}, {"mean": 1.0, "units": 3})[0] == math.inf
    assert seeded_results.difference({"mean": math.nan}, {"mean": math.nan}) == (0.0, "")
