"""Labels of a unit column as numbers: those of a Python dictionary, whatever the batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.data.formats import Cells, Text
from zerosum.data.owners import Owners
from zerosum.data.spool import Storage
from zerosum.errors import BadData


def of(batches: list[Cells], memory: int | None = None) -> list[int]:
    owners, rows = Owners("empty", Storage(memory)), 0
    for batch in batches:
        owners.add(batch, rows)
        rows += len(batch)
    return [int(number) for number in owners.numbers().ravel()]


def in_python(labels: list[Any]) -> list[int]:
    """A dictionary of labels without outer spaces: the definition."""
    seen: dict[Any, int] = {}
    return [seen.setdefault(each.strip() if isinstance(each, str) else each, len(seen)) for each in labels]


TEXT = ["ann", "bob", " ann", "ann\u00a0", "\x1cbob", "A", "a", "nan", "5", "5.0", "anna b", "\u00e9", "e\u0301", "b,c"]


@pytest.mark.parametrize("memory", [None, 1])
@pytest.mark.parametrize("waiting", [1, 1 << 25])
def test_owners_of_text_are_those_of_a_dictionary(
    memory: int | None, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zerosum.data.owners._WAITING_BYTES", 8 * waiting)
    rng = np.random.default_rng(waiting)
    labels = [TEXT[at] for at in rng.integers(0, len(TEXT), 3000)]
    batches: list[Cells] = [Text.of(labels[start : start + 171]) for start in range(0, 3000, 171)]
    assert of(batches, memory) == in_python(labels)


def test_owners_without_spaces_are_those_of_a_dictionary() -> None:
    labels = [f"person-{at}" for at in np.random.default_rng(0).integers(0, 200, 1000)]
    assert of([Text.of(labels[:300]), Text.of(labels[300:])]) == in_python(labels)


@pytest.mark.parametrize(
    "batches",
    [
        [np.array([3.0, -0.0, 0.0, 1e-300, 3.0]), np.array([0.1, 0.1 + 2**-56, 3.0, 1e300])],
        [np.array([5, 3, 5, -3]), np.array([3, 2**60, 7])],
        # A batch with whole numbers beyond 2^53 comes as Python's, the one before it as doubles.
        [np.array([5.0, -0.0, float(2**53)]), np.array([2**60 + 1, 5, 2**53, 0, 2**60, 2**53 + 1], dtype=object)],
        [np.array([True, False, True])],
        [np.array(["ann", "bob ", "bob"])],
        [np.array([3.0, 2.0], dtype=np.float32), np.array([2.0, 0.5], dtype=np.float32)],
    ],
)
def test_owners_of_arrays_are_those_of_a_dictionary(batches: list[Any]) -> None:
    assert of(batches) == in_python([each for batch in batches for each in batch.tolist()])


@pytest.mark.parametrize(
    "batch",
    [Text.of(["a", "  ", "b"]), Text.of(["a", "", "b"]), np.array([1.0, np.nan]), np.array([1, np.nan], dtype=object)],
)
def test_owner_without_a_label_is_an_error_with_the_row(batch: Cells) -> None:
    with pytest.raises(BadData) as raised:
        of([Text.of(["x", "y"]) if isinstance(batch, Text) else np.array([1.0, 2.0]), batch])
    assert raised.value.detail == "data row 4"


def test_sizes_of_owners_count_their_rows() -> None:
    owners = Owners("empty")
    owners.add(Text.of(["a", "b", "a"]), 0)
    owners.add(Text.of(["c", "a "]), 3)
    assert len(owners) == 3
    assert owners.sizes().tolist() == [3, 1, 1]
