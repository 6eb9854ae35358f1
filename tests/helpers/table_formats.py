"""Small tables in every format that sites keep records in."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

Table = NDArray[Any]
NAMES = ("age", "bmi", "dose")


def _write_npy(path: Path, table: Table, names: Sequence[str]) -> None:
    np.save(path, table)


def _write_npz(path: Path, table: Table, names: Sequence[str]) -> None:
    np.savez(path, data=table, columns=np.array(names))


def _write_small_npz(path: Path, table: Table, names: Sequence[str]) -> None:
    np.savez_compressed(path, X=table, columns=np.array(names))


def csv_bytes(table: Table, names: Sequence[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([list(names), *table.tolist()])
    return text.getvalue().encode()


def _write_csv(path: Path, table: Table, names: Sequence[str]) -> None:
    path.write_bytes(csv_bytes(table, names))


def _write_csv_gz(path: Path, table: Table, names: Sequence[str]) -> None:
    path.write_bytes(gzip.compress(csv_bytes(table, names)))


def _write_parquet(path: Path, table: Table, names: Sequence[str]) -> None:
    pq.write_table(pa.table(dict(zip(names, table.T, strict=True))), path)


FORMATS: dict[str, Callable[[Path, Table, Sequence[str]], None]] = {
    "a.npy": _write_npy,
    "a.npz": _write_npz,
    "small.npz": _write_small_npz,
    "a.csv": _write_csv,
    "A.CSV.GZ": _write_csv_gz,
    "a.parquet": _write_parquet,
}

every_format = pytest.mark.parametrize("file", FORMATS)
