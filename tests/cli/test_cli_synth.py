"""`zerosum synth`: records and tables from a folder with a result."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import zerosum
from helpers.command_line import as_json
from helpers.command_line import zerosum as command
from zerosum.cli.synth import _of_one_kind
from zerosum.data.imputation import ImputationModel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    sites = [np.column_stack([rng.integers(0, 2, 400), rng.normal(50, 10, 400)]) for _ in range(3)]
    fitted = zerosum.SyntheticData(levels={"x0": [0, 1]}, ranges={"x1": (0, 100)}, random_state=0, data="synthetic")
    found = tmp_path_factory.mktemp("synth") / "result"
    fitted.fit(sites).result_.write(found)
    return found


def test_synth_sample_writes_records_and_their_description(folder: Path, tmp_path: Path) -> None:
    out, schema = tmp_path / "made.csv", tmp_path / "schema.json"
    asked = ("synth", "sample", str(folder), "--rows", "25", "--seed", "1")
    assert command(*asked, "--out", str(out), "--schema", str(schema), cwd=tmp_path).returncode == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    assert set(rows[0]) == {"x0", "x1"}
    assert json.loads(schema.read_text())["columns"]["x0"]["levels"] == [0, 1]
    parquet = tmp_path / "made.parquet"
    assert command(*asked, "--out", str(parquet), cwd=tmp_path).returncode == 0
    assert pyarrow.parquet.read_table(parquet).num_rows == 25


def test_synth_sample_refuses_other_formats_and_existing_files(folder: Path, tmp_path: Path) -> None:
    assert command("synth", "sample", str(folder), "--out", "made.xls", cwd=tmp_path).returncode == 2
    (tmp_path / "made.csv").write_text("")
    assert command("synth", "sample", str(folder), "--out", "made.csv", cwd=tmp_path).returncode == 2
    assert (tmp_path / "made.csv").read_text() == ""
    # no half of the answer: the schema is not written if the records cannot be
    schema = tmp_path / "schema.json"
    for out in ("made.xls", "made.csv", "schema.json"):
        asked = ("synth", "sample", str(folder), "--out", out, "--schema", str(schema))
        assert command(*asked, cwd=tmp_path).returncode == 2
        assert not schema.exists()


def test_synth_model_writes_a_file_that_a_study_reads(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    assert command("synth", "model", str(folder), "--out", str(out), cwd=tmp_path).returncode == 0
    assert set(ImputationModel.load(out).columns) == {"x0", "x1"}
    # an existing file is kept
    assert command("synth", "model", str(folder), "--out", str(out), cwd=tmp_path).returncode == 2


def test_columns_of_several_types_are_words_in_parquet() -> None:
    found = _of_one_kind({"a": [1, "f", None, True], "b": [1, 2.5, None, 3]})
    assert found == {"a": ["1", "f", None, "True"], "b": [1, 2.5, None, 3]}


def test_synth_table_lists_cells_with_errors(folder: Path, tmp_path: Path) -> None:
    cells = as_json(command("synth", "table", str(folder), "--column", "x0", "--json", cwd=tmp_path))
    assert sum(cell["share"] for cell in cells) == pytest.approx(1.0)
    assert all(cell["half_width"] > 0 for cell in cells)
    assert "share" in command("synth", "table", str(folder), "--column", "x0", "--column", "x1", cwd=tmp_path).stdout
    printed = command("synth", "sample", str(folder), "--rows", "3", cwd=tmp_path).stdout
    assert len(printed.splitlines()) == 4
