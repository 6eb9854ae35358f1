"""Tables derived from coefficients: ratios, contrasts, steps, standardised coefficients, margins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.paper_results import linear, logistic
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.report.coefficients import CoefficientTable, combination
from zerosum.report.paper import coefficient_table
from zerosum.report.tidy import of_coefficients

Z95 = 1.959963984540054


def table(pooled: list[list[float]] | None = None, algorithm: str = "logistic-regression") -> CoefficientTable:
    """Two features and an intercept with known covariances."""
    covariance = np.array([[0.04, 0.01, 0.0], [0.01, 0.09, -0.02], [0.0, -0.02, 0.25]])
    axis = Axis("coefficient", ("age", "sex", "intercept"))
    values = np.array([0.05, 1.0, -3.0])
    estimate = {"coefficients": Quantity(values[:2]), "intercept": Quantity(values[2:])}
    for kind, factor in (("pooled", 1.0), ("population", 2.0)):
        std = np.sqrt(factor * np.diag(covariance))
        estimate[f"{kind}_std"] = Quantity(std, "diagnostic", (axis,))
        estimate[f"{kind}_covariance"] = Quantity(factor * covariance, "diagnostic", (axis, axis))
        for level, z in (("90", 1.6448536269514722), ("95", Z95)):
            estimate[f"{kind}_interval_{level}"] = Quantity(np.stack([values - z * std, values + z * std], axis=1))
    estimate["identified"] = Quantity(np.array([1.0, 1.0, 0.0]), "diagnostic", (axis,))
    return CoefficientTable.of(estimate, algorithm)


def test_ratios_are_exponentials_of_estimate_and_ends_without_intercept() -> None:
    plain, ratios = table(), table().ratios()
    assert (ratios.names, ratios.measure) == (("age", "sex"), "odds ratio")
    for row, ratio in zip(plain.rows, ratios.rows, strict=False):
        assert ratio.estimate == pytest.approx(math.exp(row.estimate))
        assert ratio.population_95 == pytest.approx(tuple(map(math.exp, row.population_95)))
        assert ratio.pooled_90 == pytest.approx(tuple(map(math.exp, row.pooled_90)))
        assert ratio.population_std == row.population_std
    assert "Odds ratios" in str(plain)


def test_ratios_of_linear_model_are_refused() -> None:
    with pytest.raises(BadInput, match="logistic"):
        table(algorithm="linear-regression").ratios()


def test_ratio_that_overflows_is_unknown_in_text() -> None:
    wide = table().contrast({"sex": 2000.0})
    assert CoefficientTable((wide,), ratio="odds ratio").ratios().rows[0].estimate == math.inf
    assert "inf" not in str(CoefficientTable((wide,), ratio="odds ratio").ratios())


def test_contrast_variance_is_the_quadratic_form_of_the_covariance() -> None:
    found = table().contrast({"age": 10.0, "sex": -1.0})
    assert found.name == "10*age - sex"
    assert found.estimate == pytest.approx(10 * 0.05 - 1.0)
    variance = 100 * 0.04 + 0.09 - 2 * 10 * 0.01
    assert found.pooled_std == pytest.approx(math.sqrt(variance))
    assert found.population_std == pytest.approx(math.sqrt(2 * variance))
    half = Z95 * math.sqrt(2 * variance)
    assert found.population_95 == pytest.approx((found.estimate - half, found.estimate + half))


def test_contrast_of_a_result_matches_a_shifted_feature() -> None:
    # The intercept of the model with age centred at 54 is intercept + 54 age.
    estimate = logistic().estimate
    found = CoefficientTable.of(estimate, "logistic-regression").contrast({"x0": 54.0, "intercept": 1.0})
    assert found.estimate == pytest.approx(float(estimate["intercept"]) + 54 * estimate["coefficients"][0])
    assert found.pooled_std < float(estimate["pooled_std"][-1])


def test_contrast_is_identified_by_its_own_variance() -> None:
    estimate = dict(logistic().estimate)
    axis = estimate["pooled_std"].axes[0]
    bound = 4 * estimate["pooled_covariance"].value
    weights = {"x0": 1.0, "x1": 1.0}
    estimate["identified_covariance"] = Quantity(bound, "diagnostic", (axis, axis))
    assert CoefficientTable.of(estimate).contrast(weights).identified
    estimate["identified_covariance"] = Quantity(bound / 8, "diagnostic", (axis, axis))
    assert not CoefficientTable.of(estimate).contrast(weights).identified


def test_contrast_without_covariances_needs_a_single_term() -> None:
    old = {name: each for name, each in logistic().estimate.items() if not name.endswith("covariance")}
    found = CoefficientTable.of(old, "logistic-regression")
    assert found.contrast({"x0": 10.0}).pooled_std == pytest.approx(10 * found.rows[0].pooled_std)
    with pytest.raises(BadInput, match="covariances"):
        found.contrast({"x0": 1.0, "x1": 1.0})


@pytest.mark.parametrize("weights", [{"height": 1.0}, {}, {"age": 0.0}, {"age": math.nan}])
def test_contrast_with_bad_weights_is_refused(weights: dict[str, float]) -> None:
    with pytest.raises(BadParameter):
        table().contrast(weights)


def test_per_scales_one_coefficient_and_keeps_contrasts_consistent() -> None:
    ten = table().per({"age": 10.0})
    assert ten.rows[0].label == "age (per 10)"
    assert ten.rows[0].estimate == pytest.approx(0.5)
    assert ten.rows[0].pooled_std == pytest.approx(10 * 0.2)
    assert ten.rows[1:] == table().rows[1:]
    assert ten.contrast({"age": 1.0, "sex": 1.0}).pooled_std == pytest.approx(
        table().contrast({"age": 10.0, "sex": 1.0}).pooled_std
    )
    with pytest.raises(BadParameter, match="positive"):
        table().per({"age": -1.0})


def test_standardised_coefficients_use_released_deviations() -> None:
    estimate = linear().estimate
    found = CoefficientTable.of(estimate, "linear-regression").standardised()
    factor = estimate["feature_std"][0] / float(estimate["response_std"])
    assert found.rows[0].estimate == pytest.approx(factor * estimate["coefficients"][0])
    assert estimate["feature_std"][0] == pytest.approx(9, rel=0.25)
    assert estimate["feature_mean"][0] == pytest.approx(54, abs=2)
    with pytest.raises(BadInput, match="standardise"):
        table().standardised()


def test_margins_are_predictions_with_transformed_intervals() -> None:
    model = table()
    (first, second) = model.margins({"sex": [0, 1], "age": 60}).rows
    score = 0.05 * 60 + 1 - 3
    assert second.estimate == pytest.approx(1 / (1 + math.exp(-score)))
    line = model.contrast({"age": 60.0, "sex": 1.0, "intercept": 1.0})
    assert second.population_95 == pytest.approx(tuple(1 / (1 + math.exp(-end)) for end in line.population_95))
    assert first.name == "sex = 0, age = 60"
    with pytest.raises(BadInput, match="age"):
        model.margins({"sex": 1})


def test_margins_at_released_means_are_near_the_share_of_cases() -> None:
    found = CoefficientTable.of(logistic().estimate, "logistic-regression").margins()
    assert found.rows[0].name == "at the means"
    assert found.rows[0].estimate == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age", ("", {"age": 1.0})),
        ("older men: 10*age + sex", ("older men", {"age": 10.0, "sex": 1.0})),
        ("- .5*sex=m - age:sex=m", ("", {"sex=m": -0.5, "age:sex=m": -1.0})),
        ("age + age", ("", {"age": 2.0})),
    ],
)
def test_combination_is_parsed(text: str, expected: tuple[str, dict[str, float]]) -> None:
    assert combination(text, ["age", "sex", "sex=m", "age:sex=m"]) == expected


@pytest.mark.parametrize("text", ["", "height", "age sex", "age +", "2**age", "age + 3"])
def test_combination_that_is_no_sum_is_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="combination"):
        combination(text, ["age", "sex"])


def test_table_of_hazard_model_has_no_intercept() -> None:
    estimate = {name: each for name, each in logistic().estimate.items() if name != "intercept"}
    axis = Axis("coefficient", ("x0", "x1"))
    for name in ("pooled_std", "population_std", "identified"):
        estimate[name] = Quantity(estimate[name].value[:2], "diagnostic", (axis,))
    found = CoefficientTable.of(estimate, "cox-regression")
    assert found.ratios().title == "Hazard ratios"
    assert found.names == ("x0", "x1")
    with pytest.raises(BadInput, match="intercept"):
        found.margins()


def test_p_values_and_reasons_of_a_result_are_in_its_tables() -> None:
    estimate = dict(logistic().estimate)
    axis = estimate["pooled_std"].axes[0]
    estimate["p_value"] = Quantity(np.array([0.0321, 1e-9, 0.5]), "diagnostic", (axis,))
    estimate["identified"] = Quantity(np.array([1.0, 0.0, 1.0]), "diagnostic", (axis,))
    estimate["unidentified_reason"] = Quantity(np.array([0.0, 2.0, 0.0]), "diagnostic", (axis,))
    found = CoefficientTable.of(estimate, "logistic-regression")
    text = str(found)
    assert "0.032" in text
    assert "< 0.001" in text
    assert found.rows[1].remark.endswith("nearly collinear with other columns")
    line = found.contrast({"x1": 1.0})
    assert line.p_value == pytest.approx(math.erfc(abs(line.estimate) / line.population_std / math.sqrt(2)))
    assert found.ratios().rows[0].p_value == 0.0321
    assert found.margins().rows[0].p_value is None
    tidy = of_coefficients(found).records()
    assert [(row["p_value"], row["kind"]) for row in tidy[:4:3]] == [(0.0321, "population"), (None, "pooled")]
    assert coefficient_table(found).heading[-1] == "p"


def test_joint_test_is_the_quadratic_form_of_the_population_covariance() -> None:
    found = table().joint(["age", "sex"])
    values, covariance = np.array([0.05, 1.0]), 2 * np.array([[0.04, 0.01], [0.01, 0.09]])
    assert found.statistic == pytest.approx(float(values @ np.linalg.solve(covariance, values)))
    assert (found.degrees_of_freedom, found.identified) == (2, True)
    # Two degrees of freedom: the tail of the chi-squared law is exp(-x/2).
    assert found.p_value == pytest.approx(math.exp(-found.statistic / 2))
    difference = table().joint(["10*age - sex"])
    assert difference.statistic == pytest.approx(
        (table().contrast({"age": 10, "sex": -1}).estimate / table().contrast({"age": 10, "sex": -1}).population_std)
        ** 2
    )


def test_joint_test_of_a_column_takes_all_its_levels() -> None:
    axis = Axis("coefficient", ("stage=b", "stage=c", "age", "intercept"))
    values, covariance = np.array([0.5, 1.0, 0.1, 0.0]), np.diag([0.1, 0.2, 0.3, 0.4])
    rows = {
        f"{kind}_std": Quantity(np.sqrt(np.diag(covariance)), "diagnostic", (axis,))
        for kind in ("pooled", "population")
    }
    ends = {
        f"{kind}_interval_{level}": Quantity(np.stack([values, values], axis=1))
        for kind in ("pooled", "population")
        for level in ("90", "95")
    }
    covariances = {f"{kind}_covariance": Quantity(covariance) for kind in ("pooled", "population")}
    estimate = (
        rows
        | ends
        | covariances
        | {
            "coefficients": Quantity(values[:3]),
            "intercept": Quantity(values[3:]),
            "identified": Quantity(np.array([1.0, 0.0, 1.0, 1.0]), "diagnostic", (axis,)),
        }
    )
    found = CoefficientTable.of(estimate, "logistic-regression").joint(["stage"], "stage of disease")
    assert found.statistic == pytest.approx(0.25 / 0.1 + 1 / 0.2)
    assert (found.degrees_of_freedom, found.identified, found.name) == (2, False, "stage of disease")


def test_joint_test_of_an_unknown_term_is_refused() -> None:
    with pytest.raises(BadParameter, match="combination"):
        table().joint(["weight"])
    with pytest.raises(BadParameter, match="needs"):
        table().joint([])
    with pytest.raises(BadInput, match="coefficients"):
        table().ratios().joint(["age"])


def test_adjusted_values_are_lost_by_tables_of_other_hypotheses() -> None:
    given = CoefficientTable.of(logistic().estimate, "logistic-regression").adjusted("holm")
    assert given.rows[0].p_adjusted is not None
    assert given.ratios().rows[0].p_adjusted == given.rows[0].p_adjusted
    assert given.per({"x0": 10}).test_headings == ("p",)
    assert given.adjusted("none").test_headings == ("p",)
    assert "adjusted p" in str(given)
