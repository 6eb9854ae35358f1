"""Reading of delimited text by pyarrow, compared cell by cell with `csv.reader` and `number`, which define it."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import random
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.reproducibility import examples
from zerosum.data import formats
from zerosum.data.formats import Text, distinct, number, open_table
from zerosum.data.tables import CellFault, load_units
from zerosum.errors import BadData

HOSTILE = (
    *(
        "",
        " ",
        "1",
        "-1",
        "+1",
        " 1",
        "1 ",
        "\t1",
        "\u00a01\u2003",
        "1_000",
        "_1",
        "1e5",
        "1E+05",
        "1.",
        ".5",
        "-.5e-3",
    ),
    *("1e999", "-1e999", "1e-999", "inf", "-inf", "+inf", "Infinity", "nan", "NaN", "-nan", "nan(1)", "NA", "0x10"),
    *(
        "0x1p3",
        "1e",
        "e1",
        ".",
        "-",
        "--1",
        "1,5",
        "1.2.3",
        "1f",
        "1d5",
        "1\x00",
        "\x001",
        "١٢",
        "１２",
        "½",
        "1\n",
        "\n1",
    ),
    *(
        "4.9e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
    ),
    *(
        "9007199254740993",
        "0.1",
        "-0",
        "-0.0",
        "0e0",
        "00012",
        "1" * 400,
        "0." + "0" * 400 + "1",
        "9" * 309,
        "True",
        "'1'",
    ),
    *(
        "1e00000000000000000000005",
        "1e-00000000000000000000400",
        "0." + "3" * 900,
        "123456789" * 30 + ".5e-250",
        "\ufeff1",
    ),
)


def bits(values: Any) -> list[bytes]:
    """Doubles as bytes; all NaN are the same."""
    return [struct.pack("<d", math.nan if math.isnan(value) else value) for value in values]


def defined_rows(text: str, delimiter: str = ",") -> list[list[str]] | None:
    """Rows of the data by the definition, or None where the file is refused."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        width, *rows = len(next(reader)), *reader
    except csv.Error:
        return None
    if any(len(row) != width and (row or width == 1) for row in rows):
        return None
    return [row for row in rows if row]


def read_rows(path: Path, columns: int, **options: Any) -> list[list[str]]:
    table = open_table(path, None, None, **options)
    assert len(table.names) == columns
    found: list[list[str]] = []
    for batch in table.batches(range(columns)):
        texts = []
        for cells in batch:
            assert isinstance(cells, Text)
            texts.append(cells.strings.to_pylist())
        found += [list(row) for row in zip(*texts, strict=True)]
    return found


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file has many blocks, whose ends fall everywhere."""
    monkeypatch.setattr(formats, "_FIRST_BLOCK", 1)
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 5)
    monkeypatch.setattr(formats, "_BLOCK_BYTES_PER_COLUMN", 1)


def test_numbers_of_hostile_cells_are_those_of_the_definition() -> None:
    expected = bits(number(cell) for cell in HOSTILE)
    assert bits(Text.of(HOSTILE).numbers()) == expected
    for cell, value in zip(HOSTILE, expected, strict=True):
        assert bits(Text.of([cell]).numbers()) == [value], cell
        assert bits(Text.of([cell, "NA", "1"]).numbers())[0] == value, cell


def test_numbers_of_words_after_the_sample_are_those_of_the_definition() -> None:
    for first in ("1", "NA"):
        cells = [first, *["2.5"] * 5000, *HOSTILE, "3"]
        assert bits(Text.of(cells).numbers()) == bits(number(cell) for cell in cells)


@settings(max_examples=examples(300))
@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(HOSTILE), st.floats().map(str)), max_size=8))
@example([])
def test_numbers_of_random_cells_are_those_of_the_definition(cells: list[str]) -> None:
    assert bits(Text.of(cells).numbers()) == bits(number(cell) for cell in cells)


def test_numbers_of_random_digits_have_the_bits_of_python() -> None:
    generator = random.Random(20261118)
    cells = [repr(struct.unpack("<d", generator.randbytes(8))[0]) for _ in range(20_000)]
    for _ in range(20_000):
        # Long digit strings, and halfway cases between two neighbouring doubles.
        digits = "".join(generator.choices("0123456789", k=generator.randint(1, 40)))
        cells.append(f"{generator.choice(['', '-'])}{digits}.{digits[::-1]}e{generator.randint(-330, 310)}")
        low = generator.uniform(1e15, 9e15)
        cells.append(f"{(int(low) * 2 + 1) * 2 ** generator.randint(1, 60)}")
    expected = bits(number(cell) for cell in cells)
    assert bits(Text.of(cells).numbers()) == expected
    assert bits(Text.of([*cells, "NA"]).numbers()[:-1]) == expected


@given(st.lists(st.sampled_from(["a", "b", " a", "", "é", "1"])), st.data())
def test_distinct_cells_give_back_every_cell_in_order_of_appearance(cells: list[str], data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(cells) - 1)) if cells else st.just([])), dtype=np.intp)
    for chosen, some in ((None, cells), (rows, [cells[at] for at in rows])):
        for column in (Text.of(cells), np.array(cells, dtype=object)):
            codes, found = distinct(column, chosen)
            assert found == list(dict.fromkeys(some))
            assert [found[code] for code in codes] == some


CELLS = st.text(st.sampled_from('ab1 "\n\r;,é\x00\x1f'), max_size=5)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def files(draw: st.DrawFn, width: int) -> str:
    """Text of a file: rows as a writer quotes them, with damage."""
    text = io.StringIO(newline="")
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6))
    writer = csv.writer if draw(st.booleans()) else partial(csv.writer, quoting=csv.QUOTE_ALL)
    writer(text, lineterminator=draw(ENDS)).writerows(rows)
    body = text.getvalue()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.sampled_from(['"', ",", "\n", "\r", "\r\n", "x", '""', "\n\n"])) + body[at:]
    return body[: len(body) - draw(st.integers(0, 2))]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("width", [1, 2, 3])
@settings(max_examples=examples(400))
@given(data=st.data())
def test_delimited_file_has_the_rows_of_the_definition(tmp_path: Path, width: int, data: st.DataObject) -> None:
    text = ",".join("xyz"[:width]) + data.draw(ENDS) + data.draw(files(width))
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    expected = defined_rows(text)
    if expected is None:
        with pytest.raises(BadData) as refused:
            read_rows(path, width)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None
    else:
        assert read_rows(path, width) == expected


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("a,b\n1,2\n\n3\n", "line 4 has 1 cells, the header 2"),
        ('a,b\n"1\n\n1",2\n3,4,5\n', "line 5 has 3 cells, the header 2"),
        ("a\n1\r\n\r\n2\r\n", "line 3 has 0 cells, the header 1"),
        ('a,b\n1,"2"3\n', ""),
        ('a,b\n1,"2\n', ""),
        ('a,b\n1,"2""\n', ""),
        ("a,b\n1," + "x" * 140_000 + "\n", ""),
        ('a,b\n1,"' + "x,\n" * 50_000 + '"\n', ""),
        ('a,b\n"1",2\n' + "1,2\n" * 50_000 + '1,"' + '""\n' * 140_000 + '"\n', ""),
    ],
)
@pytest.mark.parametrize("columns", [["a"], None])
def test_fault_of_a_line_is_refused_whichever_columns_are_read(
    tmp_path: Path, text: str, detail: str, columns: list[str] | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    with pytest.raises(BadData) as refused:
        load_units(path, columns=columns, faults=[])
    assert refused.value.detail == detail
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_first_fault_of_a_file_is_the_one_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2,3\n" + b"1,2\n" * 3000 + b"4,\xff\n")
    with pytest.raises(BadData) as refused:
        load_units(path)
    assert refused.value.detail == "line 2 has 3 cells, the header 2"


def test_cell_longer_than_a_block_is_read(tmp_path: Path) -> None:
    long = "word " * 20_000
    path = tmp_path / "a.csv"
    path.write_text(f'a,b\n1,"{long}"\n2,{long}\n', encoding="utf-8")
    assert read_rows(path, 2) == [["1", long], ["2", long]]


def test_record_longer_than_a_block_is_read(tmp_path: Path) -> None:
    width = 60_000
    text = "\n".join([",".join(f"c{at}" for at in range(width)), *[",".join(["0.125"] * width)] * 3])
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    assert np.all(np.asarray(load_units(path, columns=["c0", "c59999"]).units.rows) == 0.125)
    path.write_text(text.replace("0.125", '"0.125"', 1), encoding="utf-8")
    assert np.asarray(load_units(path, columns=["c0", "c59999"]).units.rows).shape == (3, 2)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_encodings_give_the_same_text(tmp_path: Path, encoding: str, packed: bool) -> None:
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    content = 'a;b\r\n"ü;\r\né";ß\r\nx;""\r\n'.encode(encoding)
    path.write_bytes(gzip.compress(content) if packed else content)
    found = read_rows(path, 2, delimiter=";", encoding=None if encoding == "utf-8-sig" else encoding)
    assert found == [["ü;\r\né", "ß"], ["x", ""]]


def test_delimiter_outside_ascii_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a§b\n1§"x§\ny"\n\n2§z\n', encoding="utf-8")
    assert read_rows(path, 2, delimiter="§") == [["1", "x§\ny"], ["2", "z"]]


def test_columns_of_equal_names_are_read_by_position(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,a,b\n1,2,3\n", encoding="utf-8")
    assert read_rows(path, 3) == [["1", "2", "3"]]


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.sampled_from(["p", " p", "q", "r"]), st.sampled_from([*HOSTILE[:30], "-9", "-9.0", "?"]))))
def test_loaded_units_have_the_values_and_faults_of_each_cell_alone(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    """Cells of one column are read as if each were alone in its file."""
    path = tmp_path_factory.mktemp("table") / "a.csv"
    options: dict[str, Any] = {"columns": ["x", "y"], "missing_tokens": ["?", -9], "categories": {"y": ["1", "inf", 5]}}

    def load(some: list[tuple[str, str]]) -> tuple[list[list[bytes]], list[CellFault]]:
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("who", "x", "y"), *((who, cell, cell) for who, cell in some)])
        faults: list[CellFault] = []
        units = load_units(path, **options, unit_column="who", missing=["y"], faults=faults).units
        return [bits(row) for unit in units.each() for row in unit], faults

    if not rows:
        return
    alone = [load([row]) for row in rows]
    together, faults = load(rows)
    order = {label: at for at, label in reversed(list(enumerate(who.strip() for who, _ in rows)))}
    expected = sorted(range(len(rows)), key=lambda at: order[rows[at][0].strip()])
    assert together == [alone[at][0][0] for at in expected]
    firsts: dict[tuple[str, str], int] = {}
    for at, (_values, own) in enumerate(alone, 1):
        for fault in own:
            firsts.setdefault((fault.column, fault.kind), at)
    assert {(fault.column, fault.kind): fault.row for fault in faults} == firsts
    for _column, group in itertools.groupby(faults, key=lambda fault: fault.column):
        found = [fault.row for fault in group]
        assert found == sorted(found)
