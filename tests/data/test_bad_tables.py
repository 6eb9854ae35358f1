"""Files that are refused: `BadData` that names the file and quotes none of its cells."""

from __future__ import annotations

import builtins
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
def test_a_file_cut_short_is_refused_or_whole(tmp_path: Path, file: str) -> None:
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


def test_a_csv_cut_short_is_refused_or_some_of_its_rows(tmp_path: Path) -> None:
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
def test_a_damaged_file_loads_or_is_refused(tmp_path: Path, file: str, data: st.DataObject) -> None:
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
def test_what_is_not_a_file_of_its_format(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    with pytest.raises(BadData, match="there is no file"):
        load_units(path)
    path.mkdir()
    with pytest.raises(BadData, match="there is no file"):
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
def test_one_format_under_the_name_of_another(tmp_path: Path, file: str) -> None:
    for other, writer in FORMATS.items():
        written = tmp_path / f"written-{other}"
        writer(written, np.ones((2, 3)), NAMES)
        if Path(file.lower()).suffix != Path(other.lower()).suffix:
            (tmp_path / file).unlink(missing_ok=True)
            (tmp_path / file).write_bytes(written.read_bytes())
            assert _load(tmp_path / file, []) == "refused"


@pytest.mark.parametrize("name", ["a.txt", "a", "npy", "a.gz", "a.csv.bz2"])
def test_unknown_formats(write: Callable[..., Path], name: str) -> None:
    with pytest.raises(BadData, match=r"is none of \.npy"):
        load_units(write("a\n1\n", name))


def test_an_unreadable_file_says_why(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write("a\n1\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BadData, match="Permission denied"):
        load_units(path)


@every_format
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(tmp_path: Path, file: str, value: float) -> None:
    FORMATS[file](tmp_path / file, np.array([[1.0, 2.0], [3.0, value]]), ("x", "y"))
    with pytest.raises(
        BadData, match=r"some values are not finite|column 2 .*(has missing values|of .* is not a finite number)"
    ):
        load_units(tmp_path / file)


@every_format
def test_columns_that_are_not_there_or_asked_for_twice(tmp_path: Path, file: str) -> None:
    FORMATS[file](tmp_path / file, np.ones((2, 3)), NAMES)
    first = "0" if file == "a.npy" else "age"
    with pytest.raises(BadData, match="has no column '17'"):
        load_units(tmp_path / file, columns=["17"])
    with pytest.raises(BadData, match="has no column 'who'"):
        load_units(tmp_path / file, unit_column="who")
    with pytest.raises(BadData, match=r"no columns to read|the 0 names given"):
        load_units(tmp_path / file, columns=[])
    for asked in ({"columns": [first, first]}, {"columns": [first], "unit_column": first}):
        with pytest.raises(BadParameter, match="must all differ"):
            load_units(tmp_path / file, **asked)
    with pytest.raises(BadParameter, match="which is not a column to read"):
        load_units(tmp_path / file, categories={"who": [1]})


@pytest.mark.parametrize("declared", [[1, 1], ["1", 1.0], [True, 1], ["a", " a"], ["01", "1"], [np.nan], [np.inf]])
def test_categories_declared_twice(write: Callable[..., Path], declared: list[str | float | bool]) -> None:
    with pytest.raises(BadParameter, match=r"category \d of column 'a'"):
        load_units(write("a\n1\n"), categories={"a": declared})


def test_no_categories_leave_every_value_outside(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(BadData, match=r"some values of column '0' .*\n.*data row 1"):
        load_units(tmp_path / "a.npy", categories={"0": []})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, or its first line is"),
        ("\na,b\n1,2\n", "is empty, or its first line is"),
        (" , \n1,2\n", "is empty, or its first line is"),
        ("a,b\n", "has no rows"),
        ("a,b", "has no rows"),
        ("a,b\n\n\n", "has no rows"),
        ("64,71\n1,2\n", "holds numbers where the columns' names should be"),
        ("a,b,a\n1,2,3\n", "two columns of .* have the same name"),
        ("a, a\n1,2\n", "two columns of .* have the same name"),
        (",a\n0,1\n", "column 1 of .* has no name"),
        ("a,b\n1,2\n3\n", "some line of .* than its header\n.*line 3 has 1 cells, the header 2"),
        ("a,b\n1,2,3\n", "some line of .* than its header\n.*line 2 has 3 cells, the header 2"),
        ("a\n1\n\n2\n", "some line of .* than its header\n.*line 3 has 0 cells, the header 1"),
        ("a,b\n1,2\n,4\n", "column 1 of .* has missing values and no rule .*\n.*data row 2"),
        ("a,b\n1,  \n", "column 2 of .* has missing values and no rule .*\n.*data row 1"),
        ("a,b\n1,2\n3,", "column 2 of .* has missing values and no rule .*\n.*data row 2"),
        ("a,b\n1,2\n3,secret\n", "column 2 of .* is not a finite number in some row; .*\n.*data row 2"),
        ("a,b\n1,2\n3,1_000\n", "column 2 of .* is not a finite number in some row; .*\n.*data row 2"),
        ("a,b\n1,NA\n", "column 2 of .* is not a finite number in some row; .*\n.*data row 1"),
        ("a,b\n1,1e999\n", "column 2 of .* is not a finite number in some row; .*\n.*data row 1"),
        ("a;b\n1;2\n", "has semicolons and no commas: say delimiter"),
        ('a,b\n1,"2\n', "is cut short, damaged"),
        ("a,b\n1," + "2" * 200_000 + "\n", "is cut short, damaged"),
    ],
)
def test_bad_csv(write: Callable[..., Path], text: str, message: str) -> None:
    with pytest.raises(BadData, match=message):
        load_units(write(text))


def test_bad_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(BadData, match="is not UTF-8 text: say encoding"):
        load_units(path)


@pytest.mark.parametrize("blank", ["", "  "])
def test_empty_unit_labels_in_csv(write: Callable[..., Path], blank: str) -> None:
    with pytest.raises(BadData, match=r"column 'who' of .* whose row it is, but is empty in some row\n.*data row 2"):
        load_units(write(f"who,x\na,1\n{blank},2\n"), unit_column="who")


def test_no_message_quotes_a_cell(write: Callable[..., Path]) -> None:
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
def test_one_sentence_whichever_rows_are_at_fault(tmp_path: Path, file: str, fault: str) -> None:
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
def test_ragged_lines_are_refused_in_one_sentence(write: Callable[..., Path], lines: list[int]) -> None:
    rows = ["1,2" + ",3" * (line in lines) * line for line in range(10)]
    path = write("a,b\n" + "\n".join(rows) + "\n")
    with pytest.raises(BadData) as caught:
        load_units(path)
    assert str(caught.value) == f"some line of {path} has more or fewer cells than its header"
    assert caught.value.detail.startswith(f"line {lines[0] + 2} has ")


@pytest.mark.parametrize("file", ["a.npy", "a.npz", "small.npz", "a.parquet"])
def test_arrays_are_refused_without_their_rows_or_counts(tmp_path: Path, file: str) -> None:
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
def test_no_message_says_how_many_rows_there_are(tmp_path: Path, about: str) -> None:
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


def test_a_refusal_keeps_the_detail_at_home(write: Callable[..., Path]) -> None:
    with pytest.raises(BadData) as caught:
        load_units(write("a\n1\nsecret\n"))
    error = caught.value.about("site 'a'")
    assert error.detail == caught.value.detail == "data row 2"
    assert "row 2" in str(error.__notes__)
    travels = error.public()
    assert str(travels) == str(error)
    assert "row 2" not in f"{travels} {travels!r} {vars(travels)}"


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
def test_arrays_that_are_no_tables(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", data=array)
    for file in ("a.npy", "a.npz"):
        with pytest.raises(BadData, match=r"not rows and columns|not real numbers|damaged"):
            load_units(tmp_path / file)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "holds no array, or several"),
        ({"units": [1, 2], "columns": ["a"]}, "holds no array, or several"),
        ({"a": [1.0], "b": [2.0]}, "none of which is called data or X"),
        ({"data": [1.0, 2.0], "columns": ["a", "b"]}, "the columns of .* must be 1 names"),
        ({"data": [1.0, 2.0], "columns": [1]}, "the columns of .* must be 1 names"),
        ({"data": [[1.0, 2.0]], "columns": ["a", "a"]}, "two columns of .* have the same name"),
        ({"data": [1.0, 2.0], "units": [1]}, "one label for each of its rows"),
        ({"data": [1.0, 2.0], "units": [[1], [2]]}, "one label for each of its rows"),
        ({"data": [1.0, 2.0], "units": ["a", " "]}, "column 'units' of .* is empty in some row\n.*data row 2"),
        ({"data": [1.0, 2.0], "units": [1.0, np.nan]}, "column 'units' of .* is empty in some row\n.*data row 2"),
        ({"data": [[[1.0], [2.0]]], "units": [1, 2]}, "the units of"),
        ({"data": [1.0], "units": np.array([None])}, "damaged"),
    ],
)
def test_bad_npz(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadData, match=message):
        load_units(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None]), "column 1 of .* has missing values and no rule .*\n.*data row 2"),
        (pa.array([1.0, None]), "column 1 of .* has missing values and no rule .*\n.*data row 2"),
        (pa.array(["1", None]), "column 1 of .* has missing values and no rule .*\n.*data row 2"),
        (pa.nulls(2), "column 1 of .* has missing values and no rule .*\n.*data row 1"),
        (pa.array(["1", "secret"]), "column 1 of .* is not a finite number in some row; .*\n.*data row 2"),
        (pa.array([[1], [2]]), "column 'a' of .* holds neither numbers nor text"),
        (pa.array([{"b": 1}]), "column 'a' of .* holds neither numbers nor text"),
        (pa.array([1], pa.timestamp("s")), "column 'a' of .* holds neither numbers nor text"),
        (pa.array([b"1"]), "column 'a' of .* holds neither numbers nor text"),
        (pa.array([], pa.float64()), "has no rows"),
    ],
)
def test_bad_parquet(tmp_path: Path, column: Any, message: str) -> None:
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    with pytest.raises(BadData, match=message):
        load_units(tmp_path / "a.parquet")


def test_parquet_columns_twice_or_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(BadData, match="have the same name"):
        load_units(path)
    pq.write_table(pa.table({}), path)
    with pytest.raises(BadData, match="no columns to read"):
        load_units(path)
    pq.write_table(pa.table({"who": ["a", None], "x": [1, 2]}), path)
    with pytest.raises(BadData, match=r"column 'who' of .* is empty in some row\n.*data row 2"):
        load_units(path, unit_column="who")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    honest = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return honest(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadData, match=r"pip install zerosum\[parquet\]"):
        load_units(tmp_path / "a.parquet")
