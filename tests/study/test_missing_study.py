"""Missing values in whole studies: from files with holes to an estimate, and four hospitals as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms import (
    CovarianceProgram,
    HistogramProgram,
    KMeansProgram,
    MeanProgram,
    MixtureProgram,
    PCAProgram,
)
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol.messages import Propose
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study, run

Floats = NDArray[np.float64]
NAN = np.nan

# two people at each site, one with several visits; sex is asked of everybody, weight and dose are not always known
TEXT = {
    "north": "patient,weight,dose,sex\na,60,1,f\na,,3,f\nb,80,NA,\n",
    "east": "patient,weight,dose,sex\nc,,2,m\nd,70,?,f\nd,,?,f\n",
}

STUDY = """
name = "holes"
algorithm = "{algorithm}"
missing_tokens = ["NA", "?"]

[parameters]
{parameters}

[unit]
kind = "person"
column = "patient"

[privacy]
epsilon = 1.0
delta = 1e-5
random_state = 0

[scheme]
name = "non-private"
"""


def study(folder: Path, algorithm: str, parameters: str) -> Study:
    text = STUDY.format(algorithm=algorithm, parameters=parameters)
    for site, rows in TEXT.items():
        (folder / f"{site}.csv").write_text(rows)
        (folder / f"{site}.policy.toml").write_text(
            f'population = "{site}"\ndata = "synthetic"\nminimum_units = 1\nledger = "{site}.sqlite"\n'
        )
        text += f'\n[[sites]]\nname = "{site}"\ndata = "{site}.csv"\npolicy = "{site}.policy.toml"\n'
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml")


RANGES = 'columns = ["weight", "dose"]\nlower = [50, 0]\nupper = [90, 4]\n'


@pytest.mark.parametrize(
    ("missing", "mean"),
    [
        ('missing = "observed"', [(60 + 80 + 70) / 3, (2 + 2) / 2]),
        ("[parameters.missing]\nweight = 50\ndose = 4", [(55 + 80 + 50 + 60) / 4, (2 + 4 + 2 + 4) / 4]),
        ('[parameters.missing]\nweight = "own-rows"\ndose = "own-rows"', [(60 + 80 + 70 + 70) / 4, 2.0]),
        ('[parameters.missing]\nweight = "observed"\ndose = 0', [(60 + 80 + 70) / 3, (2 + 0 + 2 + 0) / 4]),
    ],
)
def test_missing_study_rules_give_expected_means(tmp_path: Path, missing: str, mean: list[float]) -> None:
    asked = study(tmp_path, "mean", RANGES + missing)
    question = asked.plan().question
    assert question.missing
    assert question.preprocessing["missing_tokens"] == ["NA", "?"]
    found = asked.run().estimate
    assert np.asarray(found["mean"]) == pytest.approx(mean)
    if "observed" in missing:
        assert found["observed"].labelled() == {"weight": 3.0, "dose": 2.0 if "dose" not in missing else 4.0}


def test_missing_study_without_rule_names_column_and_rules(tmp_path: Path) -> None:
    for missing in ("", "[parameters.missing]\nweight = 50"):
        with pytest.raises(BadData, match=r"'north'.*'(weight|dose)'.*own-rows") as no:
            study(tmp_path, "mean", RANGES + missing).run()
        assert not re.search(r"\brow \d", str(no.value))
    assert not list(tmp_path.glob("*.sqlite"))


def test_missing_study_histogram_counts_observed_or_filled_values(tmp_path: Path) -> None:
    asked = 'columns = ["sex"]\nvalues = ["f", "m"]\nmissing = '
    assert study(tmp_path, "histogram", asked + '"observed"').run().estimate["counts"].tolist() == [2, 1]
    assert study(tmp_path, "histogram", asked + '"m"').run().estimate["counts"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ('missing = "mean"', "own-rows"),
        ("missing = true", "own-rows"),
        ("missing = nan", "own-rows"),
        ('missing = { height = "observed" }', "'height'"),
    ],
)
def test_missing_study_unknown_rule_is_refused(tmp_path: Path, parameters: str, word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        study(tmp_path, "mean", RANGES + parameters).plan()


def test_program_missing_rule_it_does_not_support_is_refused() -> None:
    bounds: dict[str, Any] = {"columns": ("a", "b"), "clip": 1.0}
    kinds: list[tuple[Any, dict[str, int]]] = [
        (CovarianceProgram, {}),
        (PCAProgram, {"n_components": 1}),
        (KMeansProgram, {"n_clusters": 2}),
        (MixtureProgram, {"n_components": 2}),
    ]
    for kind, more in kinds:
        with pytest.raises(BadParameter, match="'observed'"):
            kind(**bounds, **more, missing={"a": "observed"})
    with pytest.raises(BadParameter, match="'observed'"):
        HistogramProgram(columns=("a",), edges=[0, 1], missing="own-rows")
    with pytest.raises(BadParameter, match="missing"):
        HistogramProgram(columns=("a",), values=("observed", "x"), missing="observed")
    with pytest.raises(BadParameter, match="missing"):
        HistogramProgram(columns=("a",), values=("x", "y"), missing="z")


# ---- in memory ---------------------------------------------------------------------------------------------------


def throwaway(folder: Path, names: list[str], adjacency: Adjacency = Adjacency.REPLACE_ONE) -> dict[str, Policy]:
    made: dict[str, Any] = {"unit": "record", "delta": 1e-5, "adjacency": adjacency}
    return {name: Policy.throwaway(name, folder / f"{name}.sqlite", **made) for name in names}


def asked(algorithm: Any, sites: dict[str, Any], folder: Path, **terms: Any) -> Result:
    usual: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "scheme": "non-private",
        "unit": "record",
        "random_state": 0,
    }
    terms = usual | terms
    adjacency = terms.get("adjacency", Adjacency.REPLACE_ONE)
    return run(algorithm, sites, policies=throwaway(folder, list(sites), adjacency), **terms)


def test_covariance_and_pca_with_missing_rules_equal_filled_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.multivariate_normal([0, 1], [[1, 0.7], [0.7, 1]], 400).clip(-4, 4)
    rows[rng.random(rows.shape) < 0.2] = NAN
    filled = np.where(np.isnan(rows), [0.5, 1.0], rows)
    sites, rules = {"a": rows[:150], "b": rows[150:]}, {"x": 0.5, "y": 1.0}
    bounds: dict[str, Any] = {"columns": ("x", "y"), "lower": [-4, -4], "upper": [4, 4], "missing": rules}
    found = asked(CovarianceProgram(**bounds), sites, tmp_path).estimate
    assert np.allclose(found["covariance"], np.cov(filled.T, bias=True))
    pca = PCAProgram(**bounds, n_components=2)
    components = np.asarray(asked(pca, sites, tmp_path / "pca").estimate["components"])
    plain = np.linalg.eigh(np.cov(filled.T, bias=True))[1][:, ::-1].T
    assert np.allclose(np.abs(np.sum(components * plain, axis=1)), 1)
    with pytest.raises(BadData, match="'y'"):
        asked(CovarianceProgram(**bounds | {"missing": {"x": 0.5}}), sites, tmp_path)


def test_site_answer_with_missing_values_is_the_same_for_every_rule(tmp_path: Path) -> None:
    """One refusal after another would tell where values are missing: a site agrees whatever its rows hold."""
    rows = np.ones((20, 2))
    rows[3, 1] = NAN
    answers = []
    for missing in ({"a": 0.0}, {"b": 0.0}, 0.0, None):
        algorithm = MeanProgram(columns=("a", "b"), clip=1.0, missing=missing)
        site = Site("s", Units.from_rows(rows), throwaway(tmp_path, ["s"])["s"])
        try:
            site.handle(Propose(plan_of(algorithm)))
            answers.append("agreed")
        except ZerosumError as error:
            answers.append(str(error))
    assert answers == ["agreed"] * 4
    with pytest.raises(BadData, match="column 'b'"):  # the owner of the data is told
        MeanProgram(columns=("a", "b"), clip=1.0).check_missing(site.units)


def plan_of(algorithm: MeanProgram) -> Plan:
    sites = [{"name": "s"}, {"name": "t"}]
    parameters = {name: getattr(algorithm, name) for name in ("columns", "clip", "missing")}
    made = Study(
        name="p",
        algorithm="mean",
        parameters=parameters,
        unit={"kind": "record"},
        privacy={"epsilon": 1.0, "delta": 1e-5},
        scheme={"name": "local"},
        sites=sites,
    )
    return made.plan()


# ---- four hospitals ----------------------------------------------------------------------------------------------

LOWER = [20, 0, 1, 80, 100, 0, 0, 60, 0, -3, 1, 0, 3]
UPPER = [90, 1, 4, 200, 600, 1, 2, 210, 1, 7, 3, 3, 7]


def hospitals(path: Path) -> tuple[tuple[str, ...], dict[str, Floats], Floats]:
    """The columns, the rows of each hospital, and the mean of what is observed, as ranges leave it."""
    held = np.load(path)
    rows = held["X"].astype(np.float64)
    rows[rows[:, 4] == 0, 4] = NAN  # of cholesterol, 0 is a code
    sites = {str(name): rows[held["site"] == s] for s, name in enumerate(held["site_names"])}
    return tuple(map(str, held["feature_names"])), sites, np.nanmean(np.clip(rows, LOWER, UPPER), axis=0)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_missing_study_of_four_hospitals_has_stated_errors(
    tmp_path: Path, adjacency: Adjacency, real_data: Callable[[str], Path]
) -> None:
    """13 columns, 8 runs: the errors' mean square in units of what is said is 1, give or take 0.35."""
    columns, sites, truth = hospitals(real_data("heart_disease_4site.npz"))
    algorithm = MeanProgram(columns=columns, lower=LOWER, upper=UPPER, missing="observed")
    seen, counted = [], []
    there = np.sum([np.sum(~np.isnan(rows), axis=0) for rows in sites.values()], axis=0)
    for seed in range(8):
        found = asked(
            algorithm, sites, tmp_path / str(seed), scheme="pooled", epsilon=4.0, random_state=seed, adjacency=adjacency
        ).estimate
        seen.append((np.asarray(found["mean"]) - truth) / np.asarray(found["mean"].std))
        counted.append((np.asarray(found["observed"]) - there) / np.asarray(found["observed"].std))
    for errors in (np.array(seen), np.array(counted)):
        assert np.mean(errors**2) == pytest.approx(1.0, abs=0.35)
        assert np.max(np.abs(errors)) < 4.5
