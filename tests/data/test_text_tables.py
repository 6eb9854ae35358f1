"""Text files as hospitals have them: semicolons, tabs, Latin-1, labels of their own; and everything wrong at once."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from zerosum.data.tables import load_units
from zerosum.errors import BadData, BadParameter

TEXT = "sex,age\nw,40\nm,50\n"


def write(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_load_units_other_delimiter_is_named_in_error(mark: str, tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace(",", mark))
    with pytest.raises(BadData, match=re.escape(json.dumps(mark))):
        load_units(path, columns=["age"])
    assert np.asarray(load_units(path, columns=["age"], delimiter=mark).units.rows).ravel().tolist() == [40, 50]


def test_load_units_tsv_is_read_and_commas_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace(",", "\t"), "t.tsv")
    assert len(load_units(path, columns=["age"]).units) == 2
    packed = tmp_path / "t.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(load_units(packed, columns=["age"]).units) == 2
    with pytest.raises(BadData, match='","'):
        load_units(write(tmp_path, TEXT, "u.tsv"), columns=["age"])


def test_load_units_other_encoding_is_named_in_error(tmp_path: Path) -> None:
    path = write(tmp_path, "größe,name\n180,Jürgen\n", encoding="latin-1")
    with pytest.raises(BadData, match="latin-1"):
        load_units(path, columns=["größe"])
    assert np.asarray(load_units(path, columns=["größe"], encoding="latin-1").units.rows).tolist() == [[180]]
    late = write(tmp_path, "a,b\n" + "1,x\n" * 5000 + "1,ü\n", "late.csv", "latin-1")
    with pytest.raises(BadData, match="latin-1"):
        load_units(late, columns=["a"])
    with pytest.raises(BadParameter, match="klingon"):
        load_units(path, columns=["größe"], encoding="klingon")
    with pytest.raises(BadParameter, match="'::'"):
        load_units(path, columns=["größe"], delimiter="::")


def test_load_units_labels_are_mapped_to_categories(tmp_path: Path) -> None:
    path, categories = write(tmp_path, TEXT), {"sex": ["f", "m"]}
    with pytest.raises(BadData, match="'sex'"):
        load_units(path, columns=["sex"], categories=categories)
    labels: dict[str, dict[str, str | float | bool]] = {"sex": {"w": "f"}, "of another study": {"x": "y"}}
    found = load_units(path, columns=["sex"], categories=categories, labels=labels)
    assert np.asarray(found.units.rows).ravel().tolist() == [0, 1]
    with pytest.raises(BadParameter, match="'sex'"):
        load_units(path, columns=["sex"], categories=categories, labels={"sex": {"w": "female"}})
    with pytest.raises(BadParameter, match="'sex'"):
        load_units(path, columns=["sex"], categories=categories, labels={"sex": {"m": "f"}})


def test_load_units_all_faults_of_file_are_in_one_error(tmp_path: Path) -> None:
    path = write(tmp_path, "who,age,sex,weight\na,40,f,60\n,old,f,70\nb,50,x,\n")
    with pytest.raises(BadData) as told:
        load_units(path, columns=["age", "sex", "weight"], unit_column="who", categories={"sex": ["f", "m"]})
    for name in ("who", "age", "sex", "weight"):
        assert repr(name) in str(told.value)
    for secret in ("old", "70"):
        assert secret not in str(told.value).replace(str(tmp_path), "")
    assert {"2", "3"} <= set(re.findall(r"\d+", told.value.detail))  # the rows


def test_load_units_progress_rises_to_file_size(tmp_path: Path) -> None:
    path, seen = write(tmp_path, "a\n" + "1\n" * 100_000), []
    load_units(path, columns=["a"], on_scan=lambda done, planned: seen.append((done, planned)))
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert {planned for _, planned in seen} == {path.stat().st_size}
    assert seen[0][0] < seen[-1][0] <= path.stat().st_size
