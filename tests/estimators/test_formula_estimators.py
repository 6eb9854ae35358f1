"""Regressions from formulas and frames: the same fit as from the design's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from zerosum.data.design import Design
from zerosum.errors import BadData, BadParameter
from zerosum.estimators import LinearRegression, LogisticRegression, PoissonRegression
from zerosum.estimators.formula import design_units

FREE: dict[str, Any] = {"scheme": "non-private", "random_state": 0, "data": "synthetic"}
RANGES = {"age": (20, 80), "dose": (1, 9), "size": (-5, 15)}
LEVELS = {"sex": ("f", "m"), "sick": ("no", "yes")}


def frame(n: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    age, dose, male = rng.uniform(20, 80, n), rng.uniform(1, 9, n), rng.random(n) < 0.4
    size = 2 * np.log(dose) + 0.05 * age - male + rng.normal(0, 0.3, n)
    sick = rng.random(n) < 1 / (1 + np.exp(-(0.08 * (age - 50) + 1.0 * male)))
    falls = rng.poisson(np.exp(0.3 * np.log(dose)))
    words = {"sex": np.where(male, "m", "f"), "sick": np.where(sick, "yes", "no"), "note": ["free text"] * n}
    return pa.table({"age": age, "dose": dose, "size": size, "falls": falls, **words})


SITES = {"north": frame(1500, 1), "south": frame(1200, 2)}


def test_from_formula_linear_regression_finds_function_of_column() -> None:
    fitted = LinearRegression.from_formula(
        "size ~ log(dose) + age*sex", SITES, ranges=RANGES, levels=LEVELS, site_effects=True, **FREE
    )
    assert tuple(fitted.feature_names_in_) == ("log(dose)", "age", "sex=m", "age:sex=m", "site=south")
    assert fitted.coef_[:2] == pytest.approx([2.0, 0.05], abs=0.1)
    rows = fitted.design_table(SITES["south"].drop_columns(["size"]), "south")
    residuals = np.asarray(SITES["south"]["size"]) - fitted.predict(rows)
    assert np.std(residuals) == pytest.approx(0.3, abs=0.03)
    assert "free text" not in repr(fitted.result_.plan.question)


def test_from_formula_logistic_regression_has_levels_as_classes() -> None:
    fitted = LogisticRegression.from_formula(
        "sick ~ bs(age, knots=[50]) + sex", list(SITES.values()), ranges=RANGES, levels=LEVELS, **FREE
    )
    assert fitted.classes_.tolist() == ["no", "yes"]
    found = fitted.predict(fitted.design_table(SITES["north"]))
    assert np.mean(found == np.asarray(SITES["north"]["sick"])) > 0.7
    assert fitted.p_value_.shape == (5,)


def test_from_formula_poisson_regression_takes_exposure_and_complete_cases() -> None:
    holes = SITES["north"].to_pydict()
    holes["age"] = [None if at % 3 == 0 else value for at, value in enumerate(holes["age"])]
    sites = {"north": pa.table(holes), "south": SITES["south"]}
    fitted = PoissonRegression.from_formula(
        "falls ~ age",
        sites,
        ranges={**RANGES, "falls": (0, 12)},
        exposure="dose",
        missing={"age": "complete-cases"},
        **FREE,
    )
    assert fitted.coef_.shape == (1,)
    whole = {"north": pa.table(holes).filter(pa.compute.is_valid(pa.table(holes)["age"])), "south": SITES["south"]}
    complete = PoissonRegression.from_formula(
        "falls ~ age", whole, ranges={**RANGES, "falls": (0, 12)}, exposure="dose", **FREE
    )
    assert fitted.coef_ == pytest.approx(complete.coef_, abs=0.002)


@pytest.mark.parametrize(
    ("formula", "change", "word"),
    [
        ("log(dose)", {}, "response"),
        ("size ~ height", {}, "height"),
        ("sick ~ age", {}, "range"),
        ("size ~ log(age) + exp(age)", {}, "beyond"),
    ],
)
def test_from_formula_that_does_not_fit_is_refused(formula: str, change: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        LinearRegression.from_formula(formula, SITES, **{"ranges": RANGES, "levels": LEVELS, **FREE, **change})


def test_from_formula_faults_of_data_name_site_and_column() -> None:
    with pytest.raises(BadData, match=r"south.*'dose'"):
        LinearRegression.from_formula(
            "size ~ dose",
            {"north": SITES["north"], "south": SITES["south"].drop_columns(["dose"])},
            ranges=RANGES,
            **FREE,
        )
    with pytest.raises(BadData, match="frame"):
        LinearRegression.from_formula("size ~ dose", SITES["north"], ranges=RANGES, **FREE)
    with pytest.raises(BadParameter, match="from_formula"):
        LinearRegression().design_table(SITES["north"])
    with pytest.raises(BadData, match="rows"):
        design_units(Design(response="size", ranges=RANGES), SITES["north"].slice(0, 0), "north", None)
