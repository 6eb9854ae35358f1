"""Files that are refused: `BadData` that names the file and quotes none of its cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.reproducibility import examples
from helpers.table_formats import FORMATS, NAMES, Table, csv_bytes, every_format
from zerosum.data.tables import TableData, load_units
from zerosum.errors import BadData, BadParameter


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


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _check_refusal(path: Path, named: str, numbers: list[int]) -> None:
    """A load fails; the message, apart from the path, names this, and the detail has these numbers."""
    with pytest.raises(BadData) as refused:
        load_units(path)
    assert re.search(named, str(refused.value).replace(str(path), ""))
    assert _numbers(refused.value.detail) == numbers


def _load(path: Path, expected: list[list[float]]) -> str:
    """How a load of a damaged file ends: "right", or "refused" in one sentence about this file."""
    try:
        loaded = load_units(path)
    except BadData as refusal:
        error = refusal
    else:
        assert _rows(loaded) == expected
        return "right"
    assert str(path) in str(error)
    assert "\n" not in str(error)
    assert error.__suppress_context__ or error.__context__ is None
    return "refused"


@pytest.mark.parametrize("file", [file for file in FORMATS if file != "a.csv"])
def test_load_units_truncated_file_is_refused_or_whole(tmp_path: Path, file: str) -> None:
    table = np.random.default_rng(0).normal(size=(9, 3))
    FORMATS[file](tmp_path / file, table, NAMES)
    whole = (tmp_path / file).read_bytes()
    path = tmp_path / f"cut-{file}"
    for length in range(len(whole)):
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:length])
        _load(path, table.tolist())
    path.write_bytes(whole)
    assert _load(path, table.tolist()) == "right"


def test_load_units_truncated_csv_is_refused_or_has_first_rows(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(9, 3))
    whole = csv_bytes(table, NAMES)
    path = tmp_path / "a.csv"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            rows = _rows(load_units(path))
        except BadData:
            continue
        assert rows[:-1] == table[: len(rows) - 1].tolist()
        assert rows[-1][:-1] == table[len(rows) - 1, :-1].tolist()  # the last number may have lost digits


@every_format
@settings(max_examples=examples(60))
@given(data=st.data())
def test_load_units_damaged_file_loads_or_is_refused(tmp_path: Path, file: str, data: st.DataObject) -> None:
    path = tmp_path / file
    path.unlink(missing_ok=True)
    FORMATS[file](path, np.arange(12.0).reshape(4, 3), NAMES)
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.unlink()
    path.write_bytes(damaged)
    with suppress(BadData):
        load_units(path).units.check()


@every_format
def test_load_units_file_of_no_format_is_refused(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    with pytest.raises(BadData, match=re.escape(file)):
        load_units(path)
    path.mkdir()
    with pytest.raises(BadData, match=re.escape(file)):
        load_units(path)
    path.rmdir()
    for content in (
        b"",
        b"\n",
        b"\x00",
        b"\xff\xfea\x00",
        b"PK\x03\x04",
        b"\x93NUMPY",
        b"PAR1",
        b"\x1f\x8b",
        b"\x80\x04.",
    ):
        path.write_bytes(content)
        with pytest.raises(BadData):
            load_units(path)


@every_format
def test_load_units_format_under_another_name_is_refused(tmp_path: Path, file: str) -> None:
    for other, writer in FORMATS.items():
        written = tmp_path / f"written-{other}"
        writer(written, np.ones((2, 3)), NAMES)
        if Path(file.lower()).suffix != Path(other.lower()).suffix:
            (tmp_path / file).unlink(missing_ok=True)
            (tmp_path / file).write_bytes(written.read_bytes())
            assert _load(tmp_path / file, []) == "refused"


@pytest.mark.parametrize("name", ["a.txt", "a", "npy", "a.gz", "a.csv.bz2"])
def test_load_units_unknown_format_is_refused(write: Callable[..., Path], name: str) -> None:
    with pytest.raises(BadData, match=r"\.npz"):
        load_units(write("a\n1\n", name))


def test_load_units_unreadable_file_error_has_reason(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "denied")

    path = write("a\n1\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BadData, match="denied"):
        load_units(path)


@every_format
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_load_units_value_that_is_not_finite_is_refused(tmp_path: Path, file: str, value: float) -> None:
    FORMATS[file](tmp_path / file, np.array([[1.0, 2.0], [3.0, value]]), ("x", "y"))
    with pytest.raises(BadData):
        load_units(tmp_path / file)
    FORMATS[file](tmp_path / f"b{file}", np.array([[1.0, 2.0], [3.0, 4.0]]), ("x", "y"))
    assert len(load_units(tmp_path / f"b{file}").units) == 2


@every_format
def test_load_units_unknown_or_repeated_column_is_refused(tmp_path: Path, file: str) -> None:
    FORMATS[file](tmp_path / file, np.ones((2, 3)), NAMES)
    first = "0" if file == "a.npy" else "age"
    with pytest.raises(BadData, match="'17'"):
        load_units(tmp_path / file, columns=["17"])
    with pytest.raises(BadData, match="'who'"):
        load_units(tmp_path / file, unit_column="who")
    with pytest.raises(BadData):
        load_units(tmp_path / file, columns=[])
    for asked in ({"columns": [first, first]}, {"columns": [first], "unit_column": first}):
        with pytest.raises(BadParameter):
            load_units(tmp_path / file, **asked)
    with pytest.raises(BadParameter, match="'who'"):
        load_units(tmp_path / file, categories={"who": [1]})


@pytest.mark.parametrize("declared", [[1, 1], ["1", 1.0], [True, 1], ["a", " a"], ["01", "1"], [np.nan], [np.inf]])
def test_load_units_category_declared_twice_is_refused(
    write: Callable[..., Path], declared: list[str | float | bool]
) -> None:
    with pytest.raises(BadParameter, match="'a'"):
        load_units(write("a\n1\n"), categories={"a": declared})


def test_load_units_no_categories_leave_every_value_outside(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(BadData, match="'0'") as refused:
        load_units(tmp_path / "a.npy", categories={"0": []})
    assert _numbers(refused.value.detail) == [1]


@pytest.mark.parametrize(
    ("text", "named", "numbers"),
    [
        ("", "empty", []),
        ("\na,b\n1,2\n", "empty", []),
        (" , \n1,2\n", "empty", []),
        ("a,b\n", "rows", []),
        ("a,b", "rows", []),
        ("a,b\n\n\n", "rows", []),
        ("64,71\n1,2\n", "name", []),
        ("a,b,a\n1,2,3\n", "name", []),
        ("a, a\n1,2\n", "name", []),
        (",a\n0,1\n", "1", []),
        ("a,b\n1,2\n3\n", "header", [3, 1, 2]),
        ("a,b\n1,2,3\n", "header", [2, 3, 2]),
        ("a\n1\n\n2\n", "header", [3, 0, 1]),
        ("a,b\n1,2\n,4\n", "1.*own-rows", [2]),
        ("a,b\n1,  \n", "2.*own-rows", [1]),
        ("a,b\n1,2\n3,", "2.*own-rows", [2]),
        ("a,b\n1,2\n3,secret\n", "2.*missing_tokens", [2]),
        ("a,b\n1,2\n3,1_000\n", "2.*missing_tokens", [2]),
        ("a,b\n1,NA\n", "2.*missing_tokens", [1]),
        ("a,b\n1,1e999\n", "2.*missing_tokens", [1]),
        ("a;b\n1;2\n", "delimiter", []),
        ('a,b\n1,"2\n', "", []),
        ("a,b\n1," + "2" * 200_000 + "\n", "", []),
    ],
)
def test_load_units_bad_csv_is_refused(write: Callable[..., Path], text: str, named: str, numbers: list[int]) -> None:
    _check_refusal(write(text), named, numbers)


def test_load_units_other_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(BadData, match="latin-1"):
        load_units(path)


@pytest.mark.parametrize("blank", ["", "  "])
def test_load_units_empty_unit_label_is_refused(write: Callable[..., Path], blank: str) -> None:
    with pytest.raises(BadData, match="'who'") as refused:
        load_units(write(f"who,x\na,1\n{blank},2\n"), unit_column="who")
    assert _numbers(refused.value.detail) == [2]


def test_load_units_error_quotes_no_cell(write: Callable[..., Path]) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("who,x\nann,1\nbob,secret\n", {}),
        ("who,x\nann,1\nbob,secret\n", {"columns": ["x"]}),
        ("who,x\nann,1\nbob,secret\n", {"categories": {"x": [1]}, "unit_column": "who"}),
        ("secret,714159\nbob,641357\n", {}),  # no header: the first line is a record
        ("secret,714159\nbob,641357\n", {"columns": ["age"]}),
        ("secret,secret\n1,2\n", {}),
        ('who,x\nann,1\nbob,"secret', {}),
    ]
    for text, options in cases:
        with pytest.raises(BadData) as caught:
            load_units(write(text), **options)
        shown = [str(caught.value), str(caught.value.__cause__)]
        assert not any(cell in words for words in shown for cell in ("secret", "bob", "ann", "714159", "641357"))
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def _faulty(file: str, rows: Sequence[int], fault: str) -> tuple[Table, dict[str, Any]]:
    """Ten rows of which these are at fault, as text, and what the loader is told."""
    table = np.array([[f"p{row}", f"{row + 0.5}", "f"] for row in range(10)], dtype=object)
    options: dict[str, Any] = {"columns": ["x", "sex"], "unit_column": "who", "categories": {"sex": ["f", "m"]}}
    for nth, row in enumerate(rows):
        match fault:
            case "number":
                table[row, 1] = ("secret", "inf", "")[nth]
            case "category":
                table[row, 2] = ("x", "7", "")[nth]
            case "label":
                table[row, 0] = " " * nth
    return table, options


@pytest.mark.parametrize("file", ["a.csv", "A.CSV.GZ", "a.parquet"])
@pytest.mark.parametrize("fault", ["number", "category", "label"])
def test_load_units_error_is_same_for_any_faulty_rows(tmp_path: Path, file: str, fault: str) -> None:
    """A fault in one row, in another or in three, of whatever kind: the message that may travel is the same."""
    said, details = set(), set()
    for rows in ([2], [6], [2, 6, 8], [0, 1], [9]):
        table, options = _faulty(file, rows, fault)
        (tmp_path / file).unlink(missing_ok=True)
        FORMATS[file](tmp_path / file, table, ("who", "x", "sex"))
        with pytest.raises(BadData) as caught:
            load_units(tmp_path / file, **options)
        said.add(str(caught.value))
        details.add(caught.value.detail)
    assert len(said) == 1
    assert len(details) > 1  # here, at the site, it is said which


@pytest.mark.parametrize("lines", [[3], [3, 7, 9], [7]])
def test_load_units_ragged_lines_give_one_message_without_numbers(write: Callable[..., Path], lines: list[int]) -> None:
    rows = ["1,2" + ",3" * (line in lines) * line for line in range(10)]
    path = write("a,b\n" + "\n".join(rows) + "\n")
    with pytest.raises(BadData) as caught:
        load_units(path)
    assert str(path) in str(caught.value)
    assert not _numbers(str(caught.value).replace(str(path), ""))
    assert _numbers(caught.value.detail)[0] == lines[0] + 2


@pytest.mark.parametrize("file", ["a.npy", "a.npz", "small.npz", "a.parquet"])
def test_load_units_error_of_array_is_same_for_any_faulty_rows(tmp_path: Path, file: str) -> None:
    said = set()
    for rows in ([2], [2, 6, 8], [5]):
        table = np.arange(20.0).reshape(10, 2)
        table[rows, 1] = [np.nan, np.inf, -np.inf][: len(rows)]
        (tmp_path / file).unlink(missing_ok=True)
        FORMATS[file](tmp_path / file, table, ("x", "y"))
        with pytest.raises(BadData) as caught:
            load_units(tmp_path / file)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize("about", ["units", "offsets", "seconds", "run_offsets", "shape"])
def test_load_units_error_does_not_depend_on_number_of_rows(tmp_path: Path, about: str) -> None:
    said = set()
    for size in (6, 9):
        held: dict[str, Any] = {"data": np.ones((size, 2))}
        match about:
            case "units":
                held["units"] = np.arange(size + 1)
            case "offsets":
                held["offsets"] = [0, 3, size + 1]
            case "seconds":
                held |= {"offsets": [0, *range(3, size + 1, 3)], "seconds": np.ones(7)}
            case "run_offsets":
                held |= {"offsets": [0, size], "seconds": 2.0, "run_offsets": [0, size - 1]}
            case "shape":
                held["data"] = np.ones((size, 1, 2, 2))
        np.savez(tmp_path / "a.npz", **held)
        with pytest.raises(BadData) as caught:
            load_units(tmp_path / "a.npz")
        said.add(str(caught.value))
    assert len(said) == 1


def test_load_units_error_sent_to_others_has_no_detail(write: Callable[..., Path]) -> None:
    with pytest.raises(BadData) as caught:
        load_units(write("a\n1\nsecret\n"))
    error = caught.value.about("site 'a'")
    assert error.detail == caught.value.detail
    assert _numbers(error.detail) == [2]
    assert error.detail in str(error.__notes__)
    travels = error.public()
    assert str(travels) == str(error)
    assert error.detail not in f"{travels} {travels!r} {vars(travels)}"


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.zeros((3, 0)),
        np.zeros(0),
        np.float64(3),
        np.zeros((2, 0, 3)),
        np.zeros((1, 2, 3, 4)),
        np.array([1j]),
        np.array(["secret"]),
        np.array([{"secret": 1}], dtype=object),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.zeros(2, dtype=[("a", float)]),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_load_units_array_that_is_no_table_is_refused(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", data=array)
    for file in ("a.npy", "a.npz"):
        with pytest.raises(BadData, match=re.escape(file)) as refused:
            load_units(tmp_path / file)
        assert "secret" not in f"{refused.value} {refused.value.detail}"


@pytest.mark.parametrize(
    ("arrays", "named", "numbers"),
    [
        ({}, "data", []),
        ({"units": [1, 2], "columns": ["a"]}, "data", []),
        ({"a": [1.0], "b": [2.0]}, "data", []),
        ({"data": [1.0, 2.0], "columns": ["a", "b"]}, "columns", []),
        ({"data": [1.0, 2.0], "columns": [1]}, "columns", []),
        ({"data": [[1.0, 2.0]], "columns": ["a", "a"]}, "name", []),
        ({"data": [1.0, 2.0], "units": [1]}, "units", []),
        ({"data": [1.0, 2.0], "units": [[1], [2]]}, "units", []),
        ({"data": [1.0, 2.0], "units": ["a", " "]}, "'units'", [2]),
        ({"data": [1.0, 2.0], "units": [1.0, np.nan]}, "'units'", [2]),
        ({"data": [[[1.0], [2.0]]], "units": [1, 2]}, "units", []),
        ({"data": [1.0], "units": np.array([None])}, "", []),  # a pickle, which is not read
    ],
)
def test_load_units_bad_npz_is_refused(tmp_path: Path, arrays: dict[str, Any], named: str, numbers: list[int]) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    _check_refusal(tmp_path / "a.npz", named, numbers)


@pytest.mark.parametrize(
    ("column", "named", "numbers"),
    [
        (pa.array([1, None]), "1.*own-rows", [2]),
        (pa.array([1.0, None]), "1.*own-rows", [2]),
        (pa.array(["1", None]), "1.*own-rows", [2]),
        (pa.nulls(2), "1.*own-rows", [1]),
        (pa.array(["1", "secret"]), "1.*missing_tokens", [2]),
        (pa.array([[1], [2]]), "'a'", []),
        (pa.array([{"b": 1}]), "'a'", []),
        (pa.array([1], pa.timestamp("s")), '1.*date = "%Y-%m-%d"', [1]),
        (pa.array([1], pa.duration("s")), "'a'", []),
        (pa.array([b"1"]), "'a'", []),
        (pa.array([], pa.float64()), "rows", []),
    ],
)
def test_load_units_bad_parquet_is_refused(tmp_path: Path, column: Any, named: str, numbers: list[int]) -> None:
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    _check_refusal(tmp_path / "a.parquet", named, numbers)


def test_load_units_parquet_repeated_or_no_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(BadData, match="name"):
        load_units(path)
    pq.write_table(pa.table({}), path)
    with pytest.raises(BadData):
        load_units(path)
    pq.write_table(pa.table({"who": ["a", None], "x": [1, 2]}), path)
    with pytest.raises(BadData, match="'who'") as refused:
        load_units(path, unit_column="who")
    assert _numbers(refused.value.detail) == [2]
