"""Every parameter and attribute of an estimator is documented, and every field of its program can be set."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import numpy as np
import pytest
from sklearn.base import clone

import zerosum
from zerosum import algorithms, estimators
from zerosum.data.fmri import make_fmri
from zerosum.estimators.documentation import FRAGMENTS, documented, fill

SOURCE = Path(__file__).parents[2]
NAMES = estimators.__all__
RNG = np.random.default_rng(0)
X = [RNG.uniform(-1, 1, (200, 3)) for _ in range(3)]
LABELS = [(rows[:, 0] > 0).astype(int) for rows in X]
RANGE: dict[str, Any] = {"lower": -1, "upper": 1}
REGRESSION: dict[str, Any] = RANGE | {"evaluate_share": 0.1, "hold_out": 0.2}
SQUARED = [[0, 0, 1], [0, -2, 0], [1, 0, 0]]
WORDS = [np.vstack([RNG.multinomial(8, p, size=100) for p in ((0.6, 0.3, 0.1), (0.1, 0.3, 0.6))]) for _ in range(3)]
RECORDINGS = make_fmri(36, sites=3, components=2, points=20, side=2, noise=0.1)
CATEGORIES = [np.column_stack([rows[:, 0], labels]) for rows, labels in zip(X, LABELS, strict=True)]
GROUPED: dict[str, Any] = {"ranges": {"x0": (-1, 1)}, "levels": {"x1": [0, 1]}, "by": "x1"}
PEOPLE = [
    [np.hstack([rows, np.full((20, 1), at % 2)]) for at, rows in enumerate(RNG.normal(size=(12, 20, 3)))]
    for _ in range(3)
]
TIMES = [np.column_stack([RNG.exponential(5, 200), np.ones(200), labels]) for labels in LABELS]

# The settings give every optional attribute a chance to appear.
FITS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "Mean": (RANGE | {"missing": "observed"}, (X,)),
    "Histogram": ({"edges": [-1, 0, 1]}, ([rows[:, 0] for rows in X],)),
    "Describe": (GROUPED, (CATEGORIES,)),
    "Quantiles": (GROUPED, (CATEGORIES,)),
    "SurvivalCurve": ({"edges": [0, 2, 4], "by": "group", "groups": [0, 1]}, (TIMES,)),
    "CoxRegression": (RANGE | {"horizon": 20.0}, (X, [rows[:, 0] for rows in TIMES], LABELS)),
    "HypothesisTest": (
        GROUPED | {"test": "equivalence", "margin": {"x0": 0.1}, "correction": "holm"},
        (CATEGORIES,),
    ),
    "SyntheticData": ({"ranges": {"x0": (-1, 1)}, "levels": {"x1": [0, 1]}, "bins": 4}, (CATEGORIES,)),
    "AdditiveModel": ({"ranges": {"x0": (-1, 1)}, "levels": {"x1": [0, 1]}, "rounds": 2}, (CATEGORIES, LABELS)),
    "StandardScaler": (RANGE, (X,)),
    "Covariance": (RANGE, (X,)),
    "Correlation": (RANGE | {"method": "spearman", "correction": "holm"}, (X,)),
    "KMeans": (RANGE | {"n_clusters": 2}, (X,)),
    "GaussianMixture": (RANGE | {"n_components": 2}, (X,)),
    "TopicModel": ({"n_components": 2}, (WORDS,)),
    "PCA": (RANGE, (X,)),
    "ICA": ({"rounds": 3}, ([np.asarray(RECORDINGS.observed(s)) for s in range(3)],)),
    "GuidedICA": ({"templates": RECORDINGS.maps.tolist()}, ([np.asarray(RECORDINGS.observed(s)) for s in range(3)],)),
    "Connectivity": ({"group": "x3", "levels": [0, 1], "clip": 1.0}, (PEOPLE,)),
    "LinearRegression": (REGRESSION | {"response": (-2, 2)}, (X, [rows @ [1, -1, 0.5] for rows in X])),
    "LogisticRegression": (REGRESSION, (X, LABELS)),
    "MultinomialRegression": (RANGE | {"response": [0, 1, 2]}, (X, [np.arange(len(rows)) % 3 for rows in X])),
    "PoissonRegression": (REGRESSION | {"response": 5}, (X, LABELS)),
    "PolynomialLoss": (RANGE | {"table": SQUARED, "response": (-1, 1)}, (X, LABELS)),
    "FeatureClassifier": (RANGE | {"classes": [0, 1], "rounds": 2, "evaluate_share": 0.1}, (X, LABELS)),
    "NeuralClassifier": (RANGE | {"classes": [0, 1], "steps": 2, "evaluate_share": 0.1}, (X, LABELS)),
    "DataCollaboration": (RANGE | {"classes": [0, 1], "keep_records": True}, (X, LABELS)),
}


def kind(name: str) -> Any:
    return getattr(zerosum, name)


def fitted(name: str, **changes: Any) -> Any:
    settings, data = FITS[name]
    return kind(name)(random_state=0, data="synthetic", **settings | changes).fit(*data)


@cache
def default_fit(name: str) -> Any:
    """The fit of `FITS`, made once for several tests that only read it."""
    return fitted(name)


def sections(docstring: str | None) -> dict[str, dict[str, str]]:
    """Descriptions by entry, for each section of a numpydoc docstring with entries."""
    parsed = griffe.Docstring(inspect.cleandoc(docstring or "")).parse("numpy", warnings=False)
    lists = [each for each in parsed if each.kind.value in ("parameters", "attributes")]
    return {each.kind.value: {entry.name: entry.description for entry in each.value} for each in lists}


def parameters(name: str) -> set[str]:
    return set(kind(name)._get_param_names())


def test_documentation_cases_have_fit_for_every_estimator() -> None:
    assert sorted(FITS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_estimator_parameters_section_has_exactly_constructor_parameters(name: str) -> None:
    entries = sections(kind(name).__doc__)["parameters"]
    assert set(entries) == parameters(name)
    assert all(entries.values())


@pytest.mark.parametrize("name", NAMES)
def test_estimator_attributes_section_has_every_fitted_attribute(name: str) -> None:
    entries = sections(kind(name).__doc__)["attributes"]
    attributes = {each for each in vars(default_fit(name)) if each.endswith("_") and not each.startswith("_")}
    assert attributes <= set(entries)
    assert all(entries.values())


@pytest.mark.parametrize("name", NAMES)
def test_estimator_docstring_has_example_and_no_placeholder(name: str) -> None:
    text = kind(name).__doc__
    assert ">>>" in text.split("Examples\n")[1]
    methods = [each for _name, each in inspect.getmembers(kind(name), inspect.isfunction)]
    assert not [each for each in (text, *(method.__doc__ or "" for method in methods)) if "%(" in each]


@pytest.mark.parametrize("name", NAMES)
def test_estimator_every_field_of_program_is_parameter_or_has_reason(name: str) -> None:
    estimator = kind(name)
    settable = {estimator._program_names.get(each, each) for each in parameters(name)}
    elsewhere = set(estimator._not_parameters)
    fields = algorithms.fields(estimator._algorithm)
    assert settable & fields | elsewhere & fields == fields
    assert not settable & elsewhere
    assert elsewhere <= fields
    page = (SOURCE / "docs" / "api.md").read_text("utf-8").split("## Programs")[0]
    assert not [each for each in elsewhere if f"`{each}`" not in page]


@pytest.mark.parametrize("name", NAMES)
def test_estimator_parameters_in_study_file_give_same_releases(name: str) -> None:
    plan = default_fit(name).result_.plan
    parameters = {**plan.question.parameters, "columns": list(plan.question.columns)}
    assert set(parameters) == algorithms.fields(plan.algorithm)
    record = {
        "name": "the same question",
        "algorithm": plan.algorithm,
        "unit": {"kind": "record"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "parameters": parameters,
        "sites": [{"name": site.name} for site in plan.sites],
    }
    program = zerosum.Study.model_validate(record).build_algorithm()
    assert program.releases(plan.adjacency, plan.releases[0].noise) == plan.releases


@pytest.mark.parametrize("name", NAMES)
def test_estimator_defaults_equal_program_defaults(name: str) -> None:
    estimator = kind(name)()
    fields = algorithms.ALGORITHMS[estimator._algorithm].model_fields
    for parameter, value in estimator.get_params(deep=False).items():
        field = fields.get(estimator._program_names.get(parameter, parameter))
        if field is None or field.is_required() or value is None:
            continue
        default = field.get_default(call_default_factory=True)
        assert value == default, parameter


@pytest.mark.parametrize("name", NAMES)
def test_estimator_parameters_survive_clone_and_set_params(name: str) -> None:
    settings, _data = FITS[name]
    estimator = kind(name)(random_state=0, data="synthetic", **settings)
    for parameter, value in settings.items():
        assert estimator.get_params()[parameter] is value
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(epsilon=2.5).epsilon == 2.5


def test_documentation_fragment_has_indentation_of_placeholder() -> None:
    assert fill("    %(budget)s\n95 % of %(budget)s") == "    " + FRAGMENTS["budget"].replace("\n", "\n    ") + (
        "\n95 % of %(budget)s"
    )
    with pytest.raises(KeyError):
        fill("%(unheard)s")

    @documented
    class Example:
        """Parameters.

        %(epsilon)s
        """

        def method(self) -> None:
            """Returns.

            %(delta)s
            """

    assert "epsilon : float" in str(Example.__doc__)
    assert "delta : float" in str(Example.method.__doc__)


def test_docs_site_shows_the_fragments_and_the_constructor() -> None:
    extension = griffe.load_extensions(str(SOURCE / "docsite" / "fragments.py"))
    package = griffe.load("zerosum", search_paths=[SOURCE / "src"], extensions=extension, submodules=True)
    shown = package["estimators.glm.LogisticRegression"]
    assert set(sections(shown.docstring.value)["parameters"]) == parameters("LogisticRegression")
    assert {each.name for each in shown.parameters} - {"self"} == parameters("LogisticRegression")
    assert "%(" not in package["estimators.base.JointEstimator.fit"].docstring.value


# ---- names of attributes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Mean", "std_error_", "noise_std_"),
        ("Mean", "observed_std_", "observed_noise_std_"),
        ("Describe", "std_error_", "noise_std_"),
        ("SurvivalCurve", "std_error_", "noise_std_"),
        ("StandardScaler", "std_error_", "noise_std_"),
        ("Covariance", "location_std_", "location_noise_std_"),
        ("Covariance", "covariance_std_", "noise_std_"),
        ("GaussianMixture", "means_std_", "noise_std_"),
        ("PCA", "explained_variance_std_", "explained_variance_noise_std_"),
        ("LinearRegression", "coef_std_", "population_std_"),
        ("DataCollaboration", "noise_", "noise_std_"),
        ("KMeans", "noise_std_", "counts_noise_std_"),
    ],
)
def test_estimator_renamed_attribute_names_new_one(name: str, old: str, new: str) -> None:
    assert new in sections(kind(name).__doc__)["attributes"]
    with pytest.raises(AttributeError, match=f"is now {new}"):
        getattr(kind(name)(), old)


def test_linear_regression_noise_std_equals_pooled_std() -> None:
    model = fitted("LinearRegression")
    rows = {row.name: row for row in model.table_.rows}
    assert model.noise_std_.tolist() == [rows[name].pooled_std for name in ("x0", "x1", "x2")]
    assert model.intercept_noise_std_ == rows["intercept"].pooled_std
    assert model.population_std_.tolist() == [rows[name].population_std for name in ("x0", "x1", "x2")]


# ---- parameters of the program -------------------------------------------------------------------------------------


def test_estimator_parameters_reach_program() -> None:
    rounds = {"method": "moment", "rounds": 3, "standardise_share": 0.1, "measured_in": {"x0": "year"}}
    model = fitted("LinearRegression", **rounds)
    given = model.result_.plan.question.parameters
    assert {name: given[name] for name in ("rounds", "hold_out", "draw")} == {
        "rounds": 3,
        "hold_out": 0.2,
        "draw": "draw",
    }
    assert model.table_.rows[0].unit == "per year"
    assert {"held_out_residuals", "held_out_residual_std"} <= set(model.evaluation_)
    assert not hasattr(fitted("LinearRegression", evaluate_share=0.0, hold_out=0.0), "evaluation_")


def test_regression_estimator_hold_out_does_not_change_columns() -> None:
    model = fitted("LogisticRegression")
    assert model.coef_.shape == (1, 3)
    assert "held_out_auc" in model.evaluation_
    assert "auc" in fitted("LogisticRegression", hold_out=0.0).evaluation_


def test_estimator_adjacency_add_remove_hides_numbers_of_units() -> None:
    model = fitted("Mean", adjacency="add-remove")
    assert model.result_.plan.adjacency is zerosum.Adjacency.ADD_REMOVE
    assert {site.units for site in model.result_.plan.sites} == {None}


# ---- ranges by name ------------------------------------------------------------------------------------------------

BY_NAME = {"x2": (-1, 2), "x0": (-2, 1), "x1": (-3, 3)}
BY_POSITION = {"lower": [-2, -3, -1], "upper": [1, 3, 2]}


@pytest.mark.parametrize(
    "name",
    [name for name, (settings, _data) in FITS.items() if "lower" in settings],
)
def test_estimator_ranges_by_name_and_by_position_give_same_study(name: str) -> None:
    named = fitted(name, ranges=BY_NAME, lower=None, upper=None).result_
    placed = fitted(name, **BY_POSITION).result_
    assert named.plan.public_digest == placed.plan.public_digest
    for key, quantity in placed.estimate.items():
        assert np.array_equal(named.estimate[key].value, quantity.value, equal_nan=True)


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"ranges": BY_NAME}, "not both"),
        ({"ranges": BY_NAME | {"age": (0, 1)}, "lower": None, "upper": None}, "'age'"),
        ({"ranges": {"x0": (0, 1), "x2": (0, 1)}, "lower": None, "upper": None}, "'x1'"),
        ({"ranges": BY_NAME | {"x1": (1, 0)}, "lower": None, "upper": None}, "'x1'"),
        ({"ranges": [(0, 1)] * 3, "lower": None, "upper": None}, "^ranges must be"),
    ],
)
@pytest.mark.parametrize("name", ["Mean", "StandardScaler", "LinearRegression"])
def test_estimator_ranges_that_do_not_fit_are_refused(name: str, change: dict[str, Any], parameter: str) -> None:
    with pytest.raises(zerosum.errors.BadParameter, match=parameter):
        fitted(name, **change)


def test_feature_classifier_ranges_by_name_for_pixels_are_refused() -> None:
    images = [RNG.uniform(0, 1, (20, 8, 8)) for _ in range(2)]
    labels = [np.arange(20) % 2 for _ in images]
    model = zerosum.FeatureClassifier("scattering", classes=[0, 1], ranges=BY_NAME, random_state=0, data="synthetic")
    with pytest.raises(zerosum.errors.BadParameter, match="lower and upper"):
        model.fit(images, labels)
