"""Records from files: the right numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from helpers.reproducibility import examples
from helpers.table_formats import FORMATS, NAMES, every_format
from zerosum.data import formats
from zerosum.data.tables import TableData, load_units
from zerosum.errors import BadData


def _rows(loaded: TableData) -> list[list[float]]:
    return np.asarray(loaded.units.rows).tolist()  # type: ignore[no-any-return]  # tolist is typed as Any


def _by_unit(loaded: TableData) -> list[list[list[float]]]:
    return [unit.tolist() for unit in loaded.units.each()]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "site.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write


@every_format
@settings(max_examples=examples(40))
@given(
    table=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_load_units_every_format_restores_table(tmp_path: Path, file: str, table: NDArray[np.float64]) -> None:
    names = [f"column {index}" for index in range(table.shape[1])]
    path = tmp_path / file
    path.unlink(missing_ok=True)
    FORMATS[file](path, table, names)
    loaded = load_units(path)
    assert _rows(loaded) == table.tolist()
    assert len(loaded.units) == len(table)
    assert loaded.columns == (tuple(names) if file != "a.npy" else tuple(map(str, range(len(names)))))


@every_format
def test_load_units_columns_are_selected_and_ordered(tmp_path: Path, file: str) -> None:
    table = np.arange(12.0).reshape(4, 3)
    FORMATS[file](tmp_path / file, table, NAMES)
    columns = ("2", "0") if file == "a.npy" else ("dose", "age")
    loaded = load_units(tmp_path / file, columns=columns)
    assert loaded.columns == columns
    assert _rows(loaded) == table[:, [2, 0]].tolist()


@every_format
def test_load_units_rows_of_one_label_are_one_unit(tmp_path: Path, file: str) -> None:
    table = np.array([[7, 1, 2], [5, 3, 4], [7, 5, 6]])
    FORMATS[file](tmp_path / file, table, ("who", "x", "y"))
    unit_column = "0" if file == "a.npy" else "who"
    loaded = load_units(tmp_path / file, unit_column=unit_column)
    assert loaded.columns == (("1", "2") if file == "a.npy" else ("x", "y"))
    assert _by_unit(loaded) == [[[1, 2], [5, 6]], [[3, 4]]]


@every_format
def test_load_units_categories_become_index(tmp_path: Path, file: str) -> None:
    FORMATS[file](tmp_path / file, np.array([[1.0, 10.0], [2.0, 20.0], [1.0, 30.0]]), ("sex", "x"))
    sex = "0" if file == "a.npy" else "sex"
    spellings: list[list[str | float | bool]] = [[2, 1], ["2", "1"], [2.0, 1.0], ["2", True]]
    for declared in spellings:
        loaded = load_units(tmp_path / file, categories={sex: declared})
        assert _rows(loaded) == [[1, 10], [0, 20], [1, 30]]


@every_format
def test_load_units_rows_beyond_batch_are_read(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_BATCH_ROWS", 4)
    table = np.array([[row % 3, row, -row] for row in range(11)])
    FORMATS[file](tmp_path / file, table, NAMES)
    first, second = ("0", "1") if file == "a.npy" else NAMES[:2]
    loaded = load_units(tmp_path / file, columns=[second], unit_column=first)
    assert _by_unit(loaded) == [[[row] for row in range(unit, 11, 3)] for unit in range(3)]
    with pytest.raises(BadData, match=f"'{first}'") as refused:
        load_units(tmp_path / file, categories={first: [1]})
    assert "1" in refused.value.detail  # the row


def test_load_units_large_array_is_mapped_without_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for dtype in (np.float32, np.float64):
        for shape in ((6,), (6, 2), (3, 2, 4)):
            path.unlink(missing_ok=True)
            np.save(path, np.arange(np.prod(shape), dtype=dtype).reshape(shape))
            rows = load_units(path).units.rows
            assert isinstance(rows, np.memmap)
            assert rows.dtype == dtype
            assert not rows.flags.owndata


def test_load_units_other_number_types_become_float64(tmp_path: Path) -> None:
    for dtype in ("?", "i1", "u8", ">f8", "f2", "g"):
        path = tmp_path / f"{np.dtype(dtype).name}.npy"
        np.save(path, np.array([[0, 1]], dtype=dtype))
        units = load_units(path).units
        assert units.rows.dtype == np.float64
        assert units.rows.tolist() == [[0, 1]]


@pytest.mark.parametrize("order", ["C", "F"])
def test_load_units_three_dimensional_array_has_units_of_rows(tmp_path: Path, order: Any) -> None:
    path = tmp_path / "a.npy"
    cube = np.arange(24.0).reshape(2, 3, 4)
    np.save(path, np.asarray(cube, order=order))
    assert _by_unit(load_units(path)) == cube.tolist()
    assert _by_unit(load_units(path, columns=["3", "1"])) == cube[:, :, [3, 1]].tolist()
    encoded = load_units(path, columns=["0"], categories={"0": [20, 16, 12, 8, 4, 0]})
    assert _by_unit(encoded) == [[[5], [4], [3]], [[2], [1], [0]]]
    with pytest.raises(BadData, match="'0'"):
        load_units(path, unit_column="0")


def test_load_units_unnamed_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 5.0]]))
    assert load_units(path, columns=NAMES).columns == NAMES
    loaded = load_units(path, columns=("age", "bmi"), unit_column="0")
    assert loaded.columns == ("age", "bmi")
    assert _by_unit(loaded) == [[[2, 3], [4, 5]]]
    with pytest.raises(BadData) as refused:
        load_units(path, columns=("age", "bmi"))
    assert "3" in refused.value.detail  # the number of columns
    with pytest.raises(BadData, match="'bmi'"):
        load_units(path, columns=("0", "bmi", "2"))
    with pytest.raises(BadData, match="'3'"):
        load_units(path, columns=("1", "2", "3"))


def test_load_units_npz_data_and_unit_labels_are_read(tmp_path: Path) -> None:
    table, path = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tmp_path / "a.npz"
    np.savez(path, anything=table)
    assert _rows(load_units(path)) == table.tolist()
    np.savez(path, data=table, other=np.zeros(9))
    assert _rows(load_units(path)) == table.tolist()
    np.savez(path, data=table, units=np.array(["b", "a", " b"]))
    for unit_column in (None, "units"):
        loaded = load_units(path, unit_column=unit_column)
        assert loaded.columns == ("0", "1")
        assert _by_unit(loaded) == [[[1, 2], [5, 6]], [[3, 4]]]
    with pytest.raises(BadData, match="'0'"):
        load_units(path, unit_column="0")


@pytest.mark.parametrize("seconds", [2, np.float32(2.0), [2.0, 2.0, 0.5]])
def test_load_units_npz_offsets_and_clocks_are_read(tmp_path: Path, seconds: Any) -> None:
    path, table = tmp_path / "a.npz", np.arange(14.0).reshape(7, 2)
    np.savez(path, data=table, offsets=[0, 5, 7])
    assert _by_unit(load_units(path)) == [table[:5].tolist(), table[5:].tolist()]
    assert load_units(path).units.runs is None
    np.savez(path, data=table, offsets=[0, 5, 7], run_offsets=np.array([0, 2, 5, 7], np.uint8), seconds=seconds)
    for columns in (None, ["1", "0"]):
        loaded = load_units(path, columns=columns)
        assert loaded.units.runs is not None
        assert loaded.units.runs.offsets.tolist() == [0, 2, 5, 7]
        assert loaded.units.runs.seconds.tolist() == np.broadcast_to(seconds, 3).tolist()
        assert len(loaded.units) == 2


def test_load_units_npz_without_runs_has_one_run_per_unit(tmp_path: Path) -> None:
    np.savez(tmp_path / "equal.npz", data=np.zeros((3, 4, 2)), seconds=0.8)
    np.savez(tmp_path / "whole.npz", data=np.zeros((12, 2), int), offsets=[0, 4, 8, 12], seconds=[0.8, 0.8, 0.8])
    for name in ("equal.npz", "whole.npz"):
        runs = load_units(tmp_path / name).units.runs
        assert runs is not None
        assert runs.offsets.tolist() == [0, 4, 8, 12]
        assert runs.seconds.tolist() == [0.8] * 3


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"offsets": [0, 4]}, "offsets"),
        ({"offsets": [1, 6]}, "offsets"),
        ({"offsets": [0, 3, 3, 6]}, "offsets"),
        ({"offsets": [0, 5, 3, 6]}, "offsets"),
        ({"offsets": np.array([0, 5, 3, 6], np.uint8)}, "offsets"),
        ({"offsets": [0.0, 6.0]}, "offsets"),
        ({"offsets": 6}, "offsets"),
        ({"offsets": [[0, 6]]}, "offsets"),
        ({"offsets": [0, 6], "units": list("aabbcc")}, "offsets"),
        ({"data": np.zeros((3, 2, 1)), "offsets": [0, 6]}, "offsets"),
        ({"run_offsets": [0, 6]}, "seconds"),
        ({"offsets": [0, 6], "run_offsets": [0, 6]}, "seconds"),
        ({"seconds": 2.0}, "offsets"),
        ({"seconds": 2.0, "units": list("aabbcc")}, "offsets"),
        ({"offsets": [0, 3, 6], "run_offsets": [0, 2, 6], "seconds": 1.0}, "unit"),
        ({"offsets": [0, 3, 6], "run_offsets": [0, 3], "seconds": 1.0}, "run_offsets"),
        ({"offsets": [0, 3, 6], "seconds": [1.0]}, "seconds"),
        ({"offsets": [0, 3, 6], "seconds": "fast"}, "seconds"),
        ({"offsets": [0, 3, 6], "seconds": [1.0, 0.0]}, "seconds"),
        ({"offsets": [0, 3, 6], "seconds": np.nan}, "seconds"),
    ],
)
def test_load_units_npz_bad_clock_is_refused(tmp_path: Path, arrays: dict[str, Any], named: str) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **({"data": np.zeros((6, 2))} | arrays))
    with pytest.raises(BadData, match=named) as refused:
        load_units(path)
    assert str(path) in str(refused.value)
    with pytest.raises(BadData):
        load_units(path, unit_column="0")


def test_load_units_long_integer_labels_stay_distinct(tmp_path: Path) -> None:
    labels = np.array([2**53, 2**53 + 1, 2**53])
    np.savez(tmp_path / "a.npz", data=np.arange(3.0), units=labels)
    np.save(tmp_path / "a.npy", np.column_stack([labels, np.arange(3)]))
    pq.write_table(pa.table({"0": labels, "x": np.arange(3.0)}), tmp_path / "a.parquet")
    for file, unit_column in {"a.npz": None, "a.npy": "0", "a.parquet": "0"}.items():
        assert _by_unit(load_units(tmp_path / file, unit_column=unit_column)) == [[[0], [2]], [[1]]]


def test_load_units_csv_with_quotes_blanks_and_byte_order_mark_is_read(write: Callable[..., Path]) -> None:
    path = write('\ufeffwho, age ,note\r\n"Müller, A.", 61 ,"any\nthing"\r\n\r\nb,6.2e1,\r\n"Müller, A. ",+63,x')
    loaded = load_units(path, columns=["age"], unit_column="who")
    assert _by_unit(loaded) == [[[61], [63]], [[62]]]


def test_load_units_text_categories_match_any_spelling(write: Callable[..., Path]) -> None:
    path = write("sex,smoker,grade\nf,TRUE,01\n m,False,1.0\nf,true,2\n")
    declared: dict[str, list[str | float | bool]] = {
        "sex": ["m", "f"],
        "smoker": [False, True],
        "grade": ["2", 1],
    }
    assert _rows(load_units(path, categories=declared)) == [[1, 1, 1], [0, 0, 1], [1, 1, 0]]
    with pytest.raises(BadData, match="'sex'") as refused:
        load_units(path, columns=["sex"], categories={"sex": ["m", "F"]})
    assert "1" in refused.value.detail  # the row
    empty = write("sex,x\nf,1\n,2\n")
    assert _rows(load_units(empty, categories={"sex": ["f", ""]})) == [[0, 1], [1, 2]]
    with pytest.raises(BadData, match=r"'sex'.*own-rows"):
        load_units(empty, categories={"sex": ["f"]})


def test_load_units_parquet_column_types_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {
        "flag": pa.array([True, False]),
        "small": pa.array([1, 2], pa.uint8()),
        "half": pa.array(np.array([0.5, 1.5], np.float16)),
        "exact": pa.array(["1.25", "2.50"]).cast(pa.decimal128(5, 2)),
        "a.b": pa.array([3.0, 4.0]),
        "sex": pa.array(["f", "m"]).dictionary_encode(),
        "kind": pa.array(["x", "y"], pa.large_string()),
    }
    pq.write_table(pa.table(columns), path)
    loaded = load_units(path, categories={"sex": ["m", "f"], "kind": ["x", "y"]})
    assert loaded.columns == tuple(columns)
    assert _rows(loaded) == [[1, 1, 0.5, 1.25, 3, 1, 0], [0, 2, 1.5, 2.5, 4, 0, 1]]
    assert len(load_units(path, columns=["small"], unit_column="sex").units) == 2
