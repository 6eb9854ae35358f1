"""Records, tables and analyses from a result of synthetic data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import zerosum
from zerosum.algorithms.synthetic.tuning import TUNING
from zerosum.errors import BadParameter
from zerosum.study import synthetic_table
from zerosum.study.synthetic_table import SyntheticTable

Floats = NDArray[np.float64]


def people(count: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    sick = rng.random(count) < 0.3
    age = np.clip(rng.normal(45 + 12 * sick, 10, count), 20, 80).round()
    dose = rng.gamma(2 + sick, 2.0, count)
    return np.column_stack([age, dose, sick]).astype(np.float64)


SITES = {f"s{at}": people(1500, at) for at in range(4)}


@pytest.fixture(scope="module")
def fitted() -> zerosum.SyntheticData:
    return zerosum.SyntheticData(
        ranges={"x0": (20, 80), "x1": (0, 20)},
        levels={"x2": [0, 1]},
        whole=["x0"],
        bins=12,
        epsilon=2.0,
        random_state=3,
        data="synthetic",
    ).fit(SITES)


def test_records_have_values_of_their_columns(fitted: zerosum.SyntheticData) -> None:
    found = fitted.sample(500, random_state=1)
    assert all(isinstance(each, int) and 20 <= each <= 80 for each in found["x0"])
    assert all(isinstance(each, float) and 0 <= each <= 20 for each in found["x1"])
    assert set(found["x2"]) == {0, 1}
    # as the sites write them: a file of records has 1 and not 1.0
    assert all(isinstance(each, int) for each in found["x2"])
    assert found == fitted.sample(500, random_state=1)
    assert len(fitted.sample()["x0"]) == 6000


@pytest.mark.parametrize("rows", [0, -3, 2.5, True])
def test_records_of_a_number_that_is_none_are_refused(fitted: zerosum.SyntheticData, rows: Any) -> None:
    with pytest.raises(BadParameter):
        fitted.sample(rows)


def test_answer_contains_the_truth_within_its_error(fitted: zerosum.SyntheticData) -> None:
    rows = np.vstack(list(SITES.values()))
    truth = np.mean((rows[:, 0] >= 60) & (rows[:, 2] == 1))
    found = fitted.answer({"x0": (60, 80), "x2": 1})
    # four standard deviations: false alarms below 1 in 10 000 for a normal error
    assert abs(found[0] - truth) < 4 * float(np.asarray(found.std)[0])
    assert abs(found[0] - truth) < 0.03
    both = fitted.answer({"x2": [0, 1]})
    assert both[0] == pytest.approx(1.0)
    assert fitted.answer({"x2": None})[0] == 0
    assert fitted.answer({"x0": (60, np.inf), "x2": [1, None]})[0] == pytest.approx(found[0])


def test_marginal_of_more_cells_than_fit_is_refused(
    fitted: zerosum.SyntheticData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic_table, "TUNING", replace(TUNING, answer_cells_most=100))
    with pytest.raises(BadParameter):
        fitted.marginal(["x0", "x1"])


def test_marginal_has_shares_that_add_up_and_errors(fitted: zerosum.SyntheticData) -> None:
    found = fitted.marginal(["x2", "x0"])
    assert found.shape == (3, 13)
    assert np.sum(found.value) == pytest.approx(1.0)
    assert np.all(np.asarray(found.std) > 0)
    single = fitted.marginal(["x2"])
    assert np.allclose(np.asarray(single.std), fitted.noise_std_[-3:])


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.marginal(()),
        lambda model: model.marginal(("x0", "x0")),
        lambda model: model.marginal(("income",)),
        lambda model: model.answer({"x0": 3}),
        lambda model: model.answer({"x0": (60, 20)}),
        lambda model: model.answer({"x2": 7}),
        lambda model: model.answer({"x0": ("a", 30)}),
        lambda model: model.answer({"x0": (np.nan, 30)}),
        lambda model: model.records(5, -1),
        lambda model: model.records(5, 1.5),
        lambda model: model.inference(np.mean, twins=1),
    ],
)
def test_questions_that_do_not_fit_are_refused(fitted: zerosum.SyntheticData, call: Any) -> None:
    with pytest.raises(BadParameter):
        call(fitted.model_)


def test_inference_spread_is_wider_than_sampling(fitted: zerosum.SyntheticData) -> None:
    rows = np.vstack(list(SITES.values()))

    def difference(records: dict[str, list[Any]]) -> float:
        age, sick = np.array(records["x0"], dtype=float), np.array(records["x2"], dtype=float)
        return float(age[sick == 1].mean() - age[sick == 0].mean())

    found = fitted.inference(difference, twins=6)
    truth = rows[rows[:, 2] == 1, 0].mean() - rows[rows[:, 2] == 0, 0].mean()
    assert found.estimate == pytest.approx(truth, rel=0.3)
    # half of the standard error of a difference of means with 1800 and 4200 people and a spread of 10
    assert found.spread > 5 * np.sqrt(1 / 1800 + 1 / 4200)


def test_synthetic_table_of_another_result_is_refused() -> None:
    mean = zerosum.Mean(lower=0, upper=100, random_state=0, data="synthetic").fit([people(50, 1), people(50, 2)])
    with pytest.raises(BadParameter):
        SyntheticTable.of(mean.result_)


def test_schema_has_every_column(fitted: zerosum.SyntheticData) -> None:
    found = fitted.model_.schema()
    assert found["x0"]["kind"] == "whole number"
    assert found["x1"]["range"] == [0, 20]
    assert found["x2"]["levels"] == [0, 1]


def test_to_frame_has_a_row_for_each_record(fitted: zerosum.SyntheticData) -> None:
    pytest.importorskip("pandas")
    assert fitted.to_frame(20, random_state=0, library="pandas").shape == (20, 3)


def test_imputation_model_has_the_distributions_of_the_released_model(fitted: zerosum.SyntheticData) -> None:
    model = fitted.imputation_model(["x0", "x2"])
    assert list(model.columns) == ["x0", "x2"]
    assert model.columns["x2"].levels == (0, 1)
    at = fitted.model_.program.columns.index("x0")
    assert np.array_equal(model.columns["x0"].probabilities, fitted.model_.model.column(at))
    edges = fitted.model_.program.edges[at]
    assert np.array_equal(model.columns["x0"].quantiles[:, 0], edges[:-1])
    with pytest.raises(BadParameter):
        fitted.imputation_model(["income"])


def test_pair_error_grows_with_the_misfit_beyond_that_of_repetitions(fitted: zerosum.SyntheticData) -> None:
    excess = fitted.result_.estimate["pair_excess"].value
    assert np.all(excess >= 1)
    assert np.all(excess <= TUNING.excess_most)
