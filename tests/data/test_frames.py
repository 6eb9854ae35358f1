"""Frames of pandas, polars and Arrow, and text in arrays: as files are read, with errors of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerosum
from zerosum.algorithms import HistogramProgram, MeanProgram
from zerosum.data.frames import is_frame, is_text
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


def test_units_of_lazy_polars_frame_is_refused_with_collect() -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame(COLUMNS).lazy()
    with pytest.raises(BadData, match=r"collect\(\)"):
        units_of(lazy, "it", columns=["age"])
    for estimator in (zerosum.Mean(lower=0, upper=1), zerosum.Quantiles(ranges={"age": (0, 99)})):
        with pytest.raises(BadData, match=r"collect\(\)"):
            estimator.set_params(data="synthetic").fit({"a": lazy, "b": lazy, "c": lazy})


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
