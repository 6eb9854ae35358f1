"""Regressions in scikit-learn's manner, their table of coefficients, and study files with a design."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import zerosum
from zerosum.errors import BadData, BadInput, BadParameter, BadStudy, ResultWarning
from zerosum.estimators import LinearRegression, LogisticRegression, PoissonRegression, PolynomialLoss
from zerosum.report.coefficients import CoefficientTable

RNG = np.random.default_rng(0)
X = {name: RNG.uniform(-1, 1, (1500, 3)) for name in ("north", "south", "west")}
TRUE = np.array([0.8, -0.5, 0.0])
BOUNDS: dict[str, Any] = {"lower": -1, "upper": 1, "epsilon": 3.0, "random_state": 1, "data": "synthetic"}
SQUARED = [[0, 0, 1], [0, -2, 0], [1, 0, 0]]


def linear() -> dict[str, Any]:
    return {name: rows @ TRUE + 0.3 + np.random.default_rng(len(name)).normal(0, 0.2, 1500) for name, rows in X.items()}


def test_linear_regression_estimates_and_table_are_near_truth() -> None:
    y = linear()
    fitted = LinearRegression(response=(-3, 3), **BOUNDS).fit(X, y)
    assert np.max(np.abs(fitted.coef_ - TRUE)) < 0.1
    assert fitted.intercept_ == pytest.approx(0.3, abs=0.1)
    assert fitted.residual_std_ == pytest.approx(0.2, rel=0.3)
    assert fitted.predict(X["north"]).shape == (1500,)
    assert fitted.score(X["north"], y["north"]) > 0.8
    assert [row.name for row in fitted.table_.rows] == ["x0", "x1", "x2", "intercept"]
    for row, true in zip(fitted.table_.rows, [*TRUE, 0.3], strict=True):
        assert row.pooled_95[0] < row.pooled_90[0] < row.estimate < row.pooled_90[1] < row.pooled_95[1]
        assert row.population_std >= row.pooled_std > 0
        assert row.identified
        assert abs(row.estimate - true) < 5 * row.population_std
    lines = str(fitted.table_).splitlines()
    assert lines[0].split()[:2] == ["coefficient", "estimate"]
    assert len(lines) == 5
    assert fitted.table_.as_record()[0]["pooled_95"] == fitted.table_.rows[0].pooled_95


def test_linear_regression_at_tiny_budget_notes_unidentified_coefficients() -> None:
    small = {name: rows[:15] for name, rows in X.items()}
    fitted = LinearRegression(response=(-3, 3), **BOUNDS | {"epsilon": 0.05}).fit(
        small, {name: values[:15] for name, values in linear().items()}
    )
    assert not all(row.identified for row in fitted.table_.rows)
    assert "identified" in str(fitted.table_)
    assert any("identified" in note for note in fitted.notes_)
    assert np.all(np.isfinite(fitted.coef_))


def test_logistic_regression_estimates_and_named_classes_are_near_truth() -> None:
    y = {n: (RNG.random(1500) < 1 / (1 + np.exp(-3 * rows @ TRUE))).astype(int) for n, rows in X.items()}
    fitted = LogisticRegression(**BOUNDS).fit(X, y)
    assert fitted.coef_.shape == (1, 3)
    assert np.max(np.abs(fitted.coef_[0] - 3 * TRUE)) < 0.8
    assert np.allclose(fitted.predict_proba(X["west"]).sum(axis=1), 1)
    assert fitted.score(X["west"], y["west"]) > 0.7
    words = {name: np.where(values == 1, "yes", "no") for name, values in y.items()}
    named = LogisticRegression(response=("no", "yes"), **BOUNDS).fit(X, words)
    assert named.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(named.coef_, fitted.coef_)
    assert set(named.predict(X["west"])) == {"no", "yes"}


def test_poisson_regression_without_identified_slopes_warns_in_predict() -> None:
    rng = np.random.default_rng(4)
    x = [rng.uniform(-1, 1, (40, 3)) for _ in range(3)]
    y = [rng.poisson(2.0, 40) for _ in x]
    fitted = PoissonRegression(response=10, **BOUNDS | {"epsilon": 0.1}).fit(x, y)
    with pytest.warns(ResultWarning):
        fitted.predict(x[0])


def test_poisson_regression_is_near_truth_and_polynomial_loss_is_finite() -> None:
    y = {n: RNG.poisson(np.exp(rows @ TRUE)) for n, rows in X.items()}
    fitted = PoissonRegression(response=10, **BOUNDS).fit(X, y)
    assert np.max(np.abs(fitted.coef_ - TRUE)) < 0.2
    assert np.all(fitted.predict(X["west"]) > 0)
    own = PolynomialLoss(SQUARED, response=(-3, 3), **BOUNDS).fit(X, linear())
    assert own.coef_.shape == (3,)
    assert np.isfinite(own.loss_)
    assert not hasattr(own, "table_")


def test_linear_regression_labels_lists_and_dicts_give_same_fit() -> None:
    y = linear()
    whole, labels = np.vstack(list(X.values())), np.repeat(list(X), 1500)
    by_name = LinearRegression(response=(-3, 3), **BOUNDS).fit(X, y)
    labelled = LinearRegression(response=(-3, 3), **BOUNDS).fit(whole, np.concatenate(list(y.values())), sites=labels)
    assert np.array_equal(by_name.coef_, labelled.coef_)
    listed = LinearRegression(response=(-3, 3), **BOUNDS).fit(list(X.values()), list(y.values()))
    assert np.allclose(listed.coef_, by_name.coef_, atol=0.1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"response": (3, -3)}, "response"),
        ({"response": 3}, "response"),
        ({"lower": 2}, "lower"),
        ({"center": [0.0]}, "center"),
        ({"scale": [-1.0, 1, 1]}, "scale"),
        ({"standardise": "twice"}, "standardise"),
        ({"epsilon": 0}, "epsilon"),
    ],
)
def test_linear_regression_bad_parameter_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        LinearRegression(**BOUNDS | {"response": (-3, 3)} | change).fit(X, linear())


def test_regression_estimators_bad_responses_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path))
    y = linear()
    model = LinearRegression(response=(-3, 3), **BOUNDS)
    for wrong in (None, {"north": y["north"]}, {**y, "west": y["west"][:-1]}, {**y, "west": np.full(1500, np.nan)}):
        with pytest.raises(BadData):
            model.fit(X, wrong)
    with pytest.raises(BadParameter, match="lower"):
        LinearRegression(response=(-3, 3), unit="person").fit(X, y)
    with pytest.raises(BadParameter, match="response="):
        LinearRegression(lower=-1, upper=1, unit="person").fit(X, y)
    with pytest.raises(BadParameter, match="response="):
        PoissonRegression(lower=-1, upper=1, unit="person").fit(X, {name: np.abs(values) for name, values in y.items()})
    with pytest.raises(BadData, match="classes"):
        LogisticRegression(lower=-1, upper=1, unit="person").fit(X, y)
    with pytest.raises(BadData, match="negative"):
        PoissonRegression(response=3, **BOUNDS).fit(X, y)
    with pytest.raises(BadParameter, match="table"):
        PolynomialLoss(response=(-3, 3), **BOUNDS).fit(X, y)
    assert not list(tmp_path.iterdir())


def test_coefficient_table_of_estimate_without_errors_is_refused() -> None:
    with pytest.raises(BadInput, match="standard"):
        CoefficientTable.of({})


CHECKED = [
    LinearRegression(scheme="pooled", epsilon=10.0, random_state=0, data="synthetic"),
    LogisticRegression(scheme="pooled", epsilon=10.0, random_state=0, data="synthetic"),
    PoissonRegression(scheme="pooled", epsilon=10.0, random_state=0, data="synthetic"),
]


@pytest.mark.filterwarnings("ignore::zerosum.errors.ResultWarning")  # the tables of the checks are small
@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]  # sklearn is untyped
def test_regression_estimators_pass_sklearn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# ---- study files ---------------------------------------------------------------------------------------------------

STUDY = """
name = "who falls ill"
algorithm = "logistic-regression"

[unit]
kind = "person"

[design]
response = "sick"
site_effects = true
interactions = [["age", "sex"]]

[design.ranges]
age = [20, 80]

[design.levels]
sex = ["f", "m"]
sick = ["no", "yes"]

[privacy]
epsilon = 4.0
delta = 1e-5
random_state = 1
"""


def write(folder: Path, text: str = STUDY) -> Path:
    rng = np.random.default_rng(1)
    for name in ("north", "south"):
        age, male = rng.uniform(20, 80, 600), rng.random(600) < 0.5
        sick = rng.random(600) < 1 / (1 + np.exp(-(age - 50) / 10 - male))
        lines = [f"{a:.1f},{'m' if m else 'f'},{'yes' if s else 'no'}" for a, m, s in zip(age, male, sick, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["age,sex,sick", *lines]) + "\n")
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv"\n'
        text += f'policy = {{ population = "{name}", data = "synthetic", ledger = "{name}.sqlite" }}\n'
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def test_regression_study_with_design_has_named_coefficients(tmp_path: Path) -> None:
    study = zerosum.Study.load(write(tmp_path))
    plan = study.plan()
    assert plan.question.columns == ("age", "sex=m", "age:sex=m", "site=south", "sick")
    assert plan.question.preprocessing["design"]["levels"]["sex"] == ["f", "m"]  # type: ignore[index,call-overload]
    table = CoefficientTable.of(study.run().estimate)
    assert [row.name for row in table.rows] == ["age", "sex=m", "age:sex=m", "site=south", "intercept"]
    assert table.rows[0].estimate > 0
    other = zerosum.Study.load(write(tmp_path, STUDY.replace("[20, 80]", "[20, 81]")))
    assert other.plan().public_digest != plan.public_digest


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('algorithm = "logistic-regression"', 'algorithm = "mean"', "design"),
        ("[design]", '[parameters]\ncolumns = ["age"]\n\n[design]', "columns"),
        ('["f", "m"]', '["f"]', "sex"),
        ('response = "sick"', 'response = "death"', "death"),
    ],
)
def test_regression_study_with_bad_design_is_refused(old: str, new: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(BadStudy, match=word):
        zerosum.Study.load(write(tmp_path, STUDY.replace(old, new))).plan()


def test_regression_study_missing_values_need_rule_in_design(tmp_path: Path) -> None:
    path = write(tmp_path)
    file = tmp_path / "north.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], ",f,yes", *lines[2:]]) + "\n")
    with pytest.raises(BadData, match="'age'"):
        zerosum.Study.load(path).run()
    path.write_text(path.read_text().replace("[design.ranges]", "[design.missing]\nage = 50\n\n[design.ranges]"))
    assert zerosum.Study.load(path).run().report.worst_epsilon <= 4.0 + 1e-6


# ---- offsets and weights -------------------------------------------------------------------------------------------


def test_poisson_regression_with_offset_and_weights_is_near_truth() -> None:
    rng = np.random.default_rng(5)
    years = {name: rng.uniform(0.2, 3, 1500) for name in X}
    some = {name: (rng.random(1500) < 0.7).astype(float) for name in X}
    # whoever weighs nothing has another rate altogether
    y = {n: rng.poisson(years[n] * np.exp(rows @ TRUE) * np.where(some[n] > 0, 1, 4)) for n, rows in X.items()}
    logs = {name: np.log(values) for name, values in years.items()}
    model = PoissonRegression(response=30, offset_range=(-1.7, 1.2), **BOUNDS | {"epsilon": 8.0})
    fitted = model.fit(X, y, offset=logs, weights=some)
    assert np.max(np.abs(fitted.coef_ - TRUE)) < 0.25
    assert fitted.intercept_ == pytest.approx(0.0, abs=0.15)
    assert [row.name for row in fitted.table_.rows] == ["x0", "x1", "x2", "intercept"]
    ratio = fitted.predict(X["west"], offset=logs["west"]) / fitted.predict(X["west"])
    assert np.allclose(ratio, years["west"])
    whole = {"X": np.vstack(list(X.values())), "sites": np.repeat(list(X), 1500)}
    again = model.fit(
        whole["X"],
        np.concatenate(list(y.values())),
        sites=whole["sites"],
        offset=np.concatenate(list(logs.values())),
        weights=np.concatenate(list(some.values())),
    )
    assert np.array_equal(again.coef_, fitted.coef_)
    assert again.fit(X, y).coef_.shape == (3,)  # and without them


def test_regression_with_offset_of_numbers_and_classes_is_near_truth() -> None:
    rng = np.random.default_rng(6)
    shift = {name: rng.uniform(-1, 1, 1500) for name in X}
    y = {name: values + shift[name] for name, values in linear().items()}
    fitted = LinearRegression(response=(-4, 4), offset_range=(-1, 1), **BOUNDS).fit(X, y, offset=shift)
    assert np.max(np.abs(fitted.coef_ - TRUE)) < 0.1
    assert fitted.residual_std_ == pytest.approx(0.2, rel=0.3)
    sick = {n: (rng.random(1500) < 1 / (1 + np.exp(-3 * rows @ TRUE - shift[n]))).astype(int) for n, rows in X.items()}
    model = LogisticRegression(offset_range=(-1, 1), **BOUNDS).fit(X, sick, offset=shift)
    assert np.max(np.abs(model.coef_[0] - 3 * TRUE)) < 0.8
    odds = model.decision_function(X["west"], offset=shift["west"]) - model.decision_function(X["west"])
    assert np.allclose(odds, shift["west"])
    with pytest.raises(BadData, match="offset"):
        model.predict_proba(X["west"], offset=shift["west"][1:])


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"weights": {name: np.full(1500, 1.5) for name in X}}, "weights"),
        ({"weights": {name: np.full(1500, np.nan) for name in X}}, "weights"),
        ({"weights": {name: np.ones(7) for name in X}}, "weights"),
        ({"offset": {"north": np.ones(1500)}}, "offset"),
        ({"offset": [np.ones(1500)]}, "offset"),
    ],
)
def test_regression_estimators_bad_offsets_and_weights_are_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(BadData, match=word):
        LinearRegression(response=(-3, 3), **BOUNDS).fit(X, linear(), **given)
    with pytest.raises(BadParameter, match="offset"):
        LinearRegression(response=(-3, 3), lower=-1, upper=1, unit="person").fit(X, linear(), offset=linear())
    with pytest.raises(BadParameter, match="offset_range"):
        LinearRegression(response=(-3, 3), offset_range=3, **BOUNDS).fit(X, linear(), offset=linear())


COUNTS = """
name = "falls"
algorithm = "poisson-regression"

[parameters]
evaluate_share = 0.1

[unit]
kind = "person"

[design]
formula = "falls ~ age*sex"
exposure = "years"
weight = "trust"
hold_out = 0.2

[design.ranges]
age = [20, 80]
years = [0.5, 4]
trust = [0, 2]
falls = [0, 30]

[design.levels]
sex = ["f", "m"]

[design.measured_in]
age = "year"

[privacy]
epsilon = 8.0
delta = 1e-5
random_state = 1
"""


def test_poisson_study_with_exposure_weights_and_hold_out_is_near_truth(tmp_path: Path) -> None:
    rng, text = np.random.default_rng(1), COUNTS
    for name in ("north", "south"):
        age, male, years = rng.uniform(20, 80, 2000), rng.random(2000) < 0.5, rng.uniform(0.5, 4, 2000)
        falls = rng.poisson(years * np.exp(0.02 * (age - 50) + 0.5 * male))
        trust = rng.uniform(0, 2, 2000)
        cells = zip(age, male, years, trust, falls, strict=True)
        lines = [f"{a:.1f},{'m' if m else 'f'},{y:.2f},{t:.3f},{f}" for a, m, y, t, f in cells]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,years,trust,falls", *lines]) + "\n")
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv"\n'
        text += f'policy = {{ population = "{name}", data = "synthetic", ledger = "{name}.sqlite" }}\n'
    (tmp_path / "study.toml").write_text(text)
    study = zerosum.Study.load(tmp_path / "study.toml")
    assert study.plan().question.columns == ("age", "sex=m", "age:sex=m", "log years", "trust", "draw", "falls")
    result = study.run()
    table = CoefficientTable.of(result.estimate)
    assert [row.label for row in table.rows] == ["age (per year)", "sex=m", "age:sex=m (per year)", "intercept"]
    assert "age (per year)" in str(table)
    assert table.as_record()[0]["unit"] == "per year"
    slope = table.rows[0]
    assert abs(slope.estimate - 0.02) < 3 * slope.population_std < 0.1
    assert float(result.estimate["held_out_residual_std"]) > 0
    record = result.as_record()
    assert record["quantities"]["coefficients"]["axes"][0]["units"] == ["per year", "", "per year"]
    (tmp_path / "study.toml").write_text(text.replace("evaluate_share = 0.1", 'weight = "trust"'))
    with pytest.raises(BadStudy, match="weight"):
        zerosum.Study.load(tmp_path / "study.toml").plan()
