"""The owner of each row: labels of a unit column as numbers in order of first appearance.

Labels are found in pyarrow's hash tables, not in Python objects: a batch of labels becomes a dictionary of its distinct
labels and one index for each row, and dictionaries of several batches are unified. Memory is needed for the distinct
labels, as text, and for a bounded number of batches. Indices beyond a limit go to a file (`zerosum.data.spool`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.data.formats import Cells, Text, distinct
from zerosum.data.spool import IN_MEMORY, Floats, Spool, Storage
from zerosum.errors import BadData

# Bytes of labels and indices of batches that wait until their dictionaries are unified. Chosen by hand; no benchmark
# recorded.
_WAITING_BYTES = 1 << 25
# A label that may have outer spaces, or none: its first or last character is no visible ASCII character. Python decides
# about these, as it does about cells (`str.strip`).
_TO_STRIP = r"\A\z|\A[^!-~]|[^!-~]\z"
# Whole numbers up to here are doubles exactly.
_EXACT = 2**53


class Owners:
    """Numbers of the labels of a unit column, batch by batch. Labels that differ in outer spaces only are equal.

    Parameters
    ----------
    message : str
        Message of the `BadData` that is raised for an empty label; its `detail` has the row.
    storage : Storage
        Where the number of each row is stored.

    >>> owners = Owners("a label is empty")
    >>> owners.add(Text.of(["ann", "bob", " ann"]), 0)
    >>> owners.numbers().ravel().tolist(), len(owners)
    ([0.0, 1.0, 0.0], 2)
    """

    def __init__(self, message: str, storage: Storage = IN_MEMORY) -> None:
        import pyarrow as pa

        self._message = message
        self._numbers = Spool(1, storage)
        self._known = pa.array([], pa.string())
        self._waiting: list[Any] = []

    def __len__(self) -> int:
        """The number of distinct labels of all batches."""
        self._unify()
        return len(self._known)

    def add(self, cells: Cells, before: int) -> None:
        """Add a batch of labels.

        Parameters
        ----------
        cells : Cells
            A batch of the unit column.
        before : int
            Number of earlier rows.

        Raises
        ------
        BadData
            If a label is empty or NaN.
        """
        labels = _encoded(cells, partial(self._refuse, before))
        self._waiting.append(labels)
        if sum(each.nbytes for each in self._waiting) > _WAITING_BYTES:
            self._unify()

    def numbers(self) -> Floats:
        """The number of each row's label, shape (rows, 1): whole numbers from 0, as doubles."""
        self._unify()
        return self._numbers.rows()

    def sizes(self) -> NDArray[np.int64]:
        """How many rows each label has."""
        counts = np.zeros(len(self), dtype=np.int64)
        numbers = self.numbers()
        for start in range(0, len(numbers), _WAITING_BYTES // 8):
            some = numbers[start : start + _WAITING_BYTES // 8, 0].astype(np.int64)
            counts += np.bincount(some, minlength=len(counts))
        return counts

    def _refuse(self, before: int, empty: NDArray[np.bool_]) -> None:
        """Raise `BadData` for the first row without a label."""
        raise BadData(self._message, detail=f"data row {before + int(np.argmax(empty)) + 1}")

    def _unify(self) -> None:
        """Give the labels of the waiting batches their numbers."""
        import pyarrow as pa

        if not self._waiting:
            return
        # A chunk without rows comes first: its dictionary keeps the numbers that are known already.
        none = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), self._known)
        unified = pa.chunked_array([none, *self._waiting]).unify_dictionaries()
        self._waiting = []
        self._known = unified.chunk(unified.num_chunks - 1).dictionary
        for chunk in unified.chunks[1:]:
            self._numbers.append_columns([np.asarray(chunk.indices).astype(np.float64)])


def _encoded(cells: Cells, refuse: Any) -> Any:
    """A batch of labels as an Arrow array of text with a dictionary.

    Parameters
    ----------
    cells : Cells
        A batch of the unit column.
    refuse : callable
        Called with the rows that have no label, if there are any.
    """
    import pyarrow as pa
    from pyarrow import compute

    if not isinstance(cells, Text) and cells.dtype.kind == "U":
        cells = Text.of(cells.tolist())
    if isinstance(cells, Text):
        labels = cells.strings.dictionary_encode()
        if not compute.any(compute.match_substring_regex(labels.dictionary, _TO_STRIP)).as_py():
            return labels
        stripped = pa.array([label.strip() for label in labels.dictionary.to_pylist()], pa.string())
    else:
        labels, stripped = _number_labels(cells)
    codes = np.asarray(labels.indices)
    empty = np.asarray(compute.equal(stripped, ""))[codes]
    if empty.any():
        refuse(empty)
    # Labels that became equal have one entry.
    merged = stripped.dictionary_encode()
    codes = np.asarray(merged.indices)[codes]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), merged.dictionary)


def _number_labels(cells: NDArray[Any]) -> tuple[Any, Any]:
    """Numbers as labels: an Arrow array with a dictionary, and the text of each entry, "" for NaN.

    Equal numbers have equal texts: a number that is a double exactly has the text of that double, also where other
    numbers of the column are larger whole numbers, which come as Python's.
    """
    import pyarrow as pa

    if cells.dtype.kind != "O":
        values = cells.astype(np.float64)
        if cells.dtype.kind in "bf" or bool(np.all(np.abs(values) < _EXACT)):
            # Adding 0 makes -0.0 equal to 0.0 also for a hash of its bits.
            labels = pa.array(values + 0.0, from_pandas=False).dictionary_encode()
            texts = labels.dictionary.cast(pa.string())
            gone = np.isnan(np.asarray(labels.dictionary))
            return labels, pa.array(np.where(gone, "", np.asarray(texts, dtype=object)), pa.string())
    codes, contents = distinct(cells)
    exact = [each if abs(each) > _EXACT else float(each) + 0.0 for each in contents]
    doubles = pa.array([float(each) for each in exact]).cast(pa.string()).to_pylist()
    texts = [
        "" if each != each else double if isinstance(each, float) else str(each)
        for each, double in zip(exact, doubles, strict=True)
    ]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(texts, pa.string())), pa.array(
        texts, pa.string()
    )
