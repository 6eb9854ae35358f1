"""Frames of pandas, polars and Arrow, and text in arrays: as files are read, with errors of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerosum
from zerosum.algorithms import HistogramProgram, MeanProgram
from zerosum.data.frames import frame_table, is_frame, is_text
from zerosum.data.tables import units_of
from zerosum.errors import BadData, BadParameter

pandas = pytest.importorskip("pandas")
COLUMNS: dict[str, Any] = {"bmi": [20.5, 30.0, 25.0], "age": [40, 50, 60], "sex": ["f", "m", "f"]}


def frames() -> list[Any]:
    found = [pandas.DataFrame(COLUMNS), pandas.DataFrame(COLUMNS).convert_dtypes()]
    for name in ("pyarrow", "polars"):
        try:
            library = __import__(name)
        except ImportError:
            continue
        found.append(library.table(COLUMNS) if name == "pyarrow" else library.DataFrame(COLUMNS))
    return found


@pytest.mark.parametrize("frame", frames(), ids=lambda frame: type(frame).__module__)
def test_units_of_frame_columns_are_found_by_name(frame: Any) -> None:
    assert is_frame(frame)
    categories = {"sex": ["m", "f"]}
    units = units_of(frame, "it", columns=["age", "sex", "bmi"], categories=categories)
    assert np.asarray(units.rows).tolist() == [[40, 1, 20.5], [50, 0, 30.0], [60, 1, 25.0]]
    with pytest.raises(BadData, match=r"'weight'.*'height'"):
        units_of(frame, "it", columns=["age", "weight", "height"])
    with pytest.raises(BadData, match="'sex'") as told:
        units_of(frame, "it", columns=["sex"])
    assert "'f'" not in str(told.value)
    with pytest.raises(BadData, match="'sex'"):
        units_of(frame, "it", columns=["sex"], categories={"sex": ["m"]})


def test_units_of_frame_missing_values_need_rule() -> None:
    frame = pandas.DataFrame({"age": [40.0, np.nan], "sex": ["f", None]})
    with pytest.raises(BadData) as told:
        units_of(frame, "it", columns=["age", "sex"], categories={"sex": ["f"]})
    assert all(name in str(told.value) for name in ("'age'", "'sex'"))  # both columns at once
    units = units_of(frame, "it", columns=["age", "sex"], categories={"sex": ["f"]}, missing=["age", "sex"])
    assert np.isnan(np.asarray(units.rows)[1]).all()


def test_units_of_frame_pandas_missing_values_become_nan() -> None:
    frame = pandas.DataFrame({"age": pandas.array([40, None], dtype="Int64"), "sex": pandas.array(["f", pandas.NA])})
    units = units_of(frame, "it", columns=["age", "sex"], categories={"sex": ["f"]}, missing=["age", "sex"])
    assert np.isnan(np.asarray(units.rows)).tolist() == [[False, False], [True, True]]


def described(frame: Any) -> Any:
    levels = {"sex": ["f", "m"]}
    return zerosum.Describe(
        ranges={"age": (20, 90)}, levels=levels, by="sex", missing="observed", random_state=0, data="synthetic"
    ).fit({"a": frame, "b": frame, "c": frame})


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_describe_table_of_any_frame_library_has_same_means(library: str) -> None:
    """With words, and what each library calls missing."""
    there = pytest.importorskip(library)
    many = 20
    columns = {"note": ["x"] * 4 * many, "age": [40, None, 60, 50] * many, "sex": ["f", "m", None, "m"] * many}
    if library == "pandas":
        frame = pandas.DataFrame(columns).astype({"age": "Int64", "sex": "string"})
    else:
        frame = there.table(columns) if library == "pyarrow" else there.DataFrame(columns)
    plain = pandas.DataFrame({name: pandas.Series(each, dtype=object) for name, each in columns.items()})
    assert np.array_equal(described(frame).mean_, described(plain).mean_)
    with pytest.raises(BadData, match="'sex'"):
        described(frame[["age"]] if library != "pyarrow" else frame.select(["age"]))


def test_units_of_lazy_polars_frame_equal_those_of_the_collected_one() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"age": [41.0, 52.0, None]})
    lazy, there = (units_of(each, "it", columns=["age"], missing=["age"]).rows for each in (frame.lazy(), frame))
    assert np.array_equal(lazy, there, equal_nan=True)


def test_estimator_takes_parquet_paths_and_duckdb_relations_as_it_takes_arrays(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(0)
    sites = {name: pa.table({"age": rng.uniform(20, 80, 30), "bmi": rng.uniform(18, 40, 30)}) for name in "abc"}
    with duckdb.connect() as connection:
        relations = {name: connection.from_arrow(table) for name, table in sites.items()}
        paths = {name: tmp_path / f"{name}.parquet" for name in sites}
        for name, path in paths.items():
            pq.write_table(sites[name], path)
        arrays = {name: np.column_stack([*table.columns]) for name, table in sites.items()}

        def mean(data: dict[str, Any]) -> Any:
            ranges: dict[str, Any] = {"lower": [18, 10], "upper": [100, 60], "unit": "person"}
            return zerosum.Mean(**ranges, random_state=0, data="synthetic").fit(data).mean_

        assert np.array_equal(mean(paths), mean(arrays))
        assert np.array_equal(mean(relations), mean(arrays))


def test_estimator_refuses_a_path_that_is_no_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age\n1\n")
    for given in (path, tmp_path / "nothing.parquet"):
        with pytest.raises(BadData):
            zerosum.Mean(lower=0, upper=1, unit="person", data="synthetic").fit({"a": given, "b": given, "c": given})


def test_run_accepts_frames_and_text() -> None:
    rng = np.random.default_rng(0)
    terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "unit": "person"}
    people = {
        name: pandas.DataFrame({"sex": rng.choice(["f", "m"], 30), "age": rng.uniform(20, 80, 30)}) for name in "abc"
    }
    ages = MeanProgram(columns=("age",), lower=np.array([0.0]), upper=np.array([100.0]))
    assert zerosum.run(ages, people, adjacency="replace-one", **terms).estimate["mean"].shape == (1,)
    counts = HistogramProgram(columns=("sex",), values=("f", "m"))
    for data in (people, {name: frame["sex"].tolist() for name, frame in people.items()}):
        found = zerosum.run(counts, data, **terms).estimate["counts"]
        assert found.value.sum() == pytest.approx(90, abs=60)
    with pytest.raises(BadParameter, match="'swap'"):
        zerosum.run(ages, people, adjacency="swap", **terms)
    with pytest.raises(BadData, match="'a'"):
        zerosum.run(counts, {name: [["f", "m"]] * 20 for name in "abc"}, **terms)
    with pytest.raises(BadData, match="'a'"):
        zerosum.run(ages, {name: [[1.0], [2.0, 3.0]] for name in "abc"}, **terms)
    assert [is_text(each) for each in ([1.0], [], [("f", 1)])] == [False, False, True]


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]"])
def test_missing_truth_value_does_not_change_how_others_are_read(kind: str) -> None:
    cells = [
        next(frame_table(pandas.DataFrame({"a": pandas.array(column, dtype=kind)}), "it").batches([0]))[0]
        for column in ([True, False, True], [True, False, None])
    ]
    whole, some = (np.asarray(each, dtype=np.float64) for each in cells)
    assert whole.tolist() == [1.0, 0.0, 1.0]
    assert some[:2].tolist() == [1.0, 0.0]
    assert np.isnan(some[2])
