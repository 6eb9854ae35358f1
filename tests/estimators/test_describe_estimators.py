"""Describe, Quantiles, SurvivalCurve and StandardScaler in scikit-learn's manner."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import several_tables
from zerosum.estimators.describe import Describe, Quantiles
from zerosum.estimators.mean import Mean
from zerosum.estimators.scaler import StandardScaler
from zerosum.estimators.survival import SurvivalCurve
from zerosum.estimators.tables import TableEstimator

Floats = NDArray[np.float64]
FREE: dict[str, Any] = {"scheme": "non-private", "random_state": 0, "data": "synthetic"}


class Frame:
    """As much of a data frame as is looked at."""

    ndim = 2

    def __init__(self, **columns: Any) -> None:
        self._columns = {name: np.asarray(values, dtype=object) for name, values in columns.items()}
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def to_numpy(self) -> Any:
        return np.column_stack(list(self._columns.values()))


@parametrize_with_checks([StandardScaler(scheme="pooled", epsilon=20.0, random_state=0, data="synthetic")])  # type: ignore[untyped-decorator]  # theirs
def test_standard_scaler_passes_sklearn_checks(
    estimator: BaseEstimator, check: Callable[[BaseEstimator], None]
) -> None:
    check(estimator)


def test_standard_scaler_without_noise_centres_and_scales() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal([50, 120], [10, 15], (600, 2))
    scaler = StandardScaler(lower=[0, 0], upper=[200, 300], **FREE).fit(rows)
    assert np.allclose(scaler.mean_, rows.mean(axis=0))
    assert np.allclose(scaler.scale_, rows.std(axis=0, ddof=1))
    assert np.allclose(scaler.inverse_transform(scaler.transform(rows)), rows)
    plain = StandardScaler(lower=[0, 0], upper=[200, 300], with_mean=False, with_std=False, **FREE).fit(rows)
    assert np.array_equal(plain.transform(rows), rows)
    holes = rows.copy()
    holes[::5, 0] = np.nan
    seen = StandardScaler(lower=[0, 0], upper=[200, 300], missing="observed", **FREE).fit(holes)
    assert np.allclose(seen.mean_, np.nanmean(holes, axis=0))
    pipe = make_pipeline(StandardScaler(lower=0, upper=300, **FREE), Mean(clip=10.0, **FREE)).fit(rows)
    assert np.allclose(pipe[-1].mean_, 0, atol=1e-9)


def test_standard_scaler_without_ranges_is_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(BadParameter, match="lower"):
        StandardScaler(scheme="pooled", unit="record").fit(rows)
    with pytest.raises(BadParameter, match="upper"):
        StandardScaler(lower=0, random_state=0, data="synthetic", scheme="pooled").fit(rows)
    assert "ranges" in StandardScaler(scheme="pooled", random_state=0, data="synthetic").fit(rows).notes_[-1]


def frames() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        name: Frame(
            arm=rng.choice(["p", "q"], 300),
            note=["free text"] * 300,
            age=[None if at % 10 == 0 else float(value) for at, value in enumerate(rng.normal(50, 9, 300))],
            stage=rng.choice(["I", "II", ""], 300),
        )
        for name in ("north", "south")
    }


def test_describe_estimator_of_frames_reads_declared_columns_only() -> None:
    sites = frames()
    table = Describe(
        ranges={"age": (0, 100)},
        levels={"arm": ["p", "q"], "stage": ["I", "II"]},
        by="arm",
        missing="observed",
        **FREE,
    ).fit(sites)
    assert table.groups_ == ("all", "arm = p", "arm = q")
    for g, arm in enumerate(("p", "q"), start=1):
        ages = [
            age
            for site in sites.values()
            for age, own in zip(site["age"], site["arm"], strict=True)
            if own == arm and age is not None
        ]
        assert table.mean_[g, 0] == pytest.approx(np.mean(ages))
        assert table.observed_[g, 0] == pytest.approx(len(ages))
    assert table.proportions_.sum(axis=1) == pytest.approx([2 / 2] * 3)
    assert "Means" in str(table)
    assert len(table.records()["mean"]) == 3
    again = clone(table)
    assert again.get_params()["ranges"] == {"age": (0, 100)}
    with pytest.raises(BadParameter, match="fit"):
        again.records()


def test_describe_estimator_p_values_without_noise_are_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 400)
    rows = np.column_stack([rng.normal(50 + 2 * group, 9), rng.integers(0, 3, 400), group])
    levels = {"x1": [0, 1, 2], "x2": [0, 1]}
    table = Describe(ranges={"x0": (0, 100)}, levels=levels, by="x2", **FREE).fit([rows[:200], rows[200:]])
    tests = table.result_.estimate["group_p_value"]
    found = dict(zip(tests.axes[0].labels, tests.value, strict=True))
    first, second = (rows[group == g, 0] for g in (0, 1))
    # Score tests have the null variance, Welch's test that of each group: they agree to first order.
    assert found["x0: Welch"] == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=0.2)
    # Ranks are those of bins.
    assert found["x0: Kruskal-Wallis"] == pytest.approx(stats.mannwhitneyu(first, second).pvalue, rel=0.3)
    counts = [[np.sum((group == g) & (rows[:, 1] == level)) for level in range(3)] for g in (0, 1)]
    # The law is drawn: 4999 tables.
    assert found["x1: chi-squared"] == pytest.approx(stats.chi2_contingency(counts).pvalue, abs=0.03)
    assert "adjusted p" in table.table_one("holm").heading
    alone = Describe(ranges={"x0": (0, 100)}, **FREE).fit([rows[:200, :1], rows[200:, :1]])
    assert "group_p_value" not in alone.result_.estimate


def test_quantiles_and_survival_curve_without_noise_are_exact() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(0, 1, (800, 1))
    found = Quantiles(ranges={"x0": (-4, 4)}, bins=1024, **FREE).fit(rows)
    assert np.allclose(found.quantiles_[0, 0], np.quantile(rows, [0.25, 0.5, 0.75]), atol=0.02)
    times = np.column_stack([np.arange(1, 101) / 10, np.ones(100)])
    curve = SurvivalCurve(edges=range(11), **FREE).fit(times)
    assert np.allclose(curve.survival_[0, :9], 1 - np.arange(1, 10) / 10)
    assert curve.median_[0] == pytest.approx(5)
    assert not hasattr(curve, "log_rank_p_")
    arms = np.column_stack([times, np.arange(100) % 2])
    assert SurvivalCurve(edges=range(11), by="arm", groups=[0, 1], **FREE).fit(arms).log_rank_p_ > 0.9


def test_describe_estimator_person_with_several_rows_counts_once() -> None:
    people = Units.from_list([np.array([[1.0], [3.0]]), np.array([[8.0]])])
    table = Describe(ranges={"x0": (0, 10)}, parts=["means"], **FREE).fit({"a": people, "b": people})
    assert table.mean_[0, 0] == pytest.approx(5)
    assert several_tables([people, people], (2,))
    assert isinstance(table, TableEstimator)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"levels": {"arm": ["p"], "stage": ["I", "II"]}}, "'arm'"),
        ({"ranges": {"note": (0, 1)}}, "'note'"),
        ({"ranges": {"weight": (0, 1)}}, "'weight'"),
        ({"missing": None}, "'age'"),
    ],
)
def test_describe_estimator_undeclared_data_are_refused(change: dict[str, Any], word: str) -> None:
    question: dict[str, Any] = {
        "ranges": {"age": (0, 100)},
        "levels": {"arm": ["p", "q"], "stage": ["I", "II"]},
        "missing": "observed",
    }
    with pytest.raises(BadData, match=word) as refused:
        Describe(**(question | change), **FREE).fit(frames())
    assert "free text" not in str(refused.value)
    with pytest.raises(BadData):
        SurvivalCurve(edges=[0, 1, 2], **FREE).fit(np.ones((4, 3)))
    with pytest.raises(BadParameter, match="edges"):
        SurvivalCurve(**FREE).fit(np.ones((4, 2)))


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({}, "ranges"),
        ({"ranges": [(20, 90)]}, "ranges"),
        ({"ranges": {"x0": (20, 90)}, "probabilities": 0.5}, "probabilities"),
    ],
)
def test_quantiles_bad_parameter_is_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        Quantiles(**FREE, **wrong).fit([np.ones((3, 1)), np.ones((3, 1))])
