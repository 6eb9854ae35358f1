"""Tests of hypotheses: SciPy's p values without noise, the level with it, power, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from helpers.program_results import Floats, result_of
from zerosum.algorithms import HypothesisTestProgram, score_tests
from zerosum.algorithms.hypothesis_test import noncentrality
from zerosum.algorithms.score_tests import chi_squared_tail, mean_scores, middle_ranks, noncentral_power
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.significance import adjusted
from zerosum.kernel.statistic import Adjacency
from zerosum.study.rehearsal import Rehearsal

NUMBER: dict[str, Any] = {"columns": ("value",), "ranges": {"value": (-6.0, 6.0)}}
TWO: dict[str, Any] = {
    "columns": ("value", "group"),
    "ranges": {"value": (-6.0, 6.0)},
    "levels": {"group": (0.0, 1.0)},
    "by": "group",
}
THREE = TWO | {"levels": {"group": (0.0, 1.0, 2.0)}}
TABLE: dict[str, Any] = {
    "test": "chi-squared",
    "columns": ("value", "group"),
    "levels": {"value": (0.0, 1.0, 2.0), "group": (0.0, 1.0)},
    "by": "group",
}


def sample(n: int, groups: int, seed: int, effect: float = 0.0) -> Floats:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    return np.column_stack([0.5 + effect * group + (1 + 0.5 * (group == 0)) * rng.normal(size=n), group])


def of_groups(rows: Floats) -> list[Floats]:
    return [rows[rows[:, 1] == g, 0] for g in np.unique(rows[:, 1])]


# The score form and SciPy's tests agree to first order: 2000 people.
@pytest.mark.parametrize("effect", [0.02, 0.08, 0.15])
def test_hypothesis_test_of_means_without_noise_is_near_scipy(effect: float) -> None:
    rows = sample(2000, 2, 1, effect)
    parts = of_groups(rows)
    student = result_of(HypothesisTestProgram(test="t", **TWO), Units(rows))
    assert student["p_value"][0] == pytest.approx(stats.ttest_ind(*parts).pvalue, abs=0.005)
    welch = result_of(HypothesisTestProgram(test="welch", **TWO), Units(rows))
    assert welch["p_value"][0] == pytest.approx(stats.ttest_ind(*parts, equal_var=False).pvalue, abs=0.005)
    less = result_of(HypothesisTestProgram(test="welch", alternative="less", **TWO), Units(rows))
    directed = stats.ttest_ind(parts[1], parts[0], equal_var=False, alternative="less").pvalue
    assert less["p_value"][0] == pytest.approx(directed, abs=0.005)
    assert welch["effect"][0] == pytest.approx(parts[1].mean() - parts[0].mean())
    exact = stats.ttest_ind(parts[1], parts[0], equal_var=False).confidence_interval()
    assert welch["effect_interval"][0] == pytest.approx([exact.low, exact.high], abs=0.01)
    three = sample(2000, 3, 2, effect)
    anova = result_of(HypothesisTestProgram(test="anova", **THREE), Units(three))
    assert anova["p_value"][0] == pytest.approx(stats.f_oneway(*of_groups(three)).pvalue, abs=0.005)


def test_hypothesis_test_of_one_sample_without_noise_is_near_scipy() -> None:
    values = sample(1500, 1, 3)[:, :1]
    student = result_of(HypothesisTestProgram(test="t", null={"value": 0.55}, **NUMBER), Units(values))
    assert student["p_value"][0] == pytest.approx(stats.ttest_1samp(values[:, 0], 0.55).pvalue, abs=0.005)
    signed = HypothesisTestProgram(test="wilcoxon", null={"value": 0.55}, bins=1001, **NUMBER)
    found = result_of(signed, Units(values))
    assert found["p_value"][0] == pytest.approx(stats.wilcoxon(values[:, 0] - 0.55).pvalue, abs=0.02)


def test_hypothesis_test_by_ranks_without_noise_is_near_scipy() -> None:
    rows = sample(1500, 2, 4, 0.1)
    first, second = of_groups(rows)
    found = result_of(HypothesisTestProgram(test="mann-whitney", bins=1024, **TWO), Units(rows))
    exact = stats.mannwhitneyu(second, first)
    assert found["p_value"][0] == pytest.approx(exact.pvalue, abs=0.01)
    assert found["effect"][0] == pytest.approx(exact.statistic / len(first) / len(second), abs=0.002)
    three = sample(1500, 3, 5, 0.1)
    kruskal = result_of(HypothesisTestProgram(test="kruskal-wallis", bins=1024, **THREE), Units(three))
    assert kruskal["p_value"][0] == pytest.approx(stats.kruskal(*of_groups(three)).pvalue, abs=0.01)
    whole = np.column_stack([np.clip(np.round(rows[:, 0]), -6, 6), rows[:, 1]])
    ties = result_of(HypothesisTestProgram(test="mann-whitney", whole=("value",), **TWO), Units(whole))
    first, second = of_groups(whole)
    assert ties["p_value"][0] == pytest.approx(stats.mannwhitneyu(first, second).pvalue, abs=0.005)


def test_hypothesis_test_of_tables_without_noise_is_scipy() -> None:
    rng = np.random.default_rng(6)
    rows = np.column_stack([rng.choice(3, 400, p=[0.5, 0.3, 0.2]), rng.integers(0, 2, 400)]).astype(float)
    counts = np.array([[np.sum((rows[:, 1] == g) & (rows[:, 0] == v)) for v in range(3)] for g in range(2)])
    exact = stats.chi2_contingency(counts, correction=False)
    found = result_of(HypothesisTestProgram(**TABLE), Units(rows))
    assert found["statistic"][0] == pytest.approx(exact.statistic)
    assert found["p_value"][0] == pytest.approx(exact.pvalue, abs=0.03)  # drawn: four standard errors of 4999 draws
    shares = (0.4, 0.35, 0.25)
    one = TABLE | {
        "columns": ("value",),
        "levels": {"value": (0.0, 1.0, 2.0)},
        "by": None,
        "expected": {"value": shares},
    }
    given = result_of(HypothesisTestProgram(**one), Units(rows[:, :1]))
    fitted = stats.chisquare(counts.sum(axis=0), 400 * np.array(shares))
    assert given["statistic"][0] == pytest.approx(fitted.statistic)
    assert given["degrees_of_freedom"][0] == 2


def test_hypothesis_test_of_small_table_without_noise_has_level_of_fisher() -> None:
    table = np.array([[8.0, 1.0], [2.0, 7.0]])
    drawn = score_tests.table_test(table, 0.0, 18.0).p_value
    asymptotic = chi_squared_tail(stats.chi2_contingency(table, correction=False).statistic, 1)
    # the unconditional law of a small table lies between the asymptotic one and Fisher's
    assert asymptotic * 0.8 < drawn < stats.fisher_exact(table).pvalue


# 400 runs: a share beyond 0.5 +- 4 standard errors of 0.011 has a false-alarm rate of 1e-4.
@pytest.mark.parametrize(
    ("parameters", "n"),
    [
        ({"test": "welch", **TWO}, 60),
        ({"test": "anova", **THREE}, 300),
        ({"test": "mann-whitney", "bins": 32, **TWO}, 100),
    ],
)
def test_hypothesis_test_under_null_with_noise_has_its_level(parameters: dict[str, Any], n: int) -> None:
    algorithm = HypothesisTestProgram(**parameters)
    rehearsal = Rehearsal(algorithm, n, 4, 1.0, 1e-5)
    groups = algorithm.groups
    rng = np.random.default_rng(7)
    p = []
    for run in range(400):
        rows = np.column_stack([rng.normal(size=n), rng.integers(0, groups, n)])
        p.append(float(rehearsal.run(Units(rows), run)["p_value"][0]))
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.044)
    assert np.mean(np.array(p) <= 0.5) == pytest.approx(0.5, abs=0.1)


def test_hypothesis_test_power_agrees_with_simulation() -> None:
    rehearsal = Rehearsal(HypothesisTestProgram(test="t", effect={"value": 1.0}, **TWO), 300, 4, 1.0, 1e-5)
    rng, found = np.random.default_rng(8), []
    for run in range(200):
        group = rng.integers(0, 2, 300)
        found.append(rehearsal.run(Units(np.column_stack([group + rng.normal(size=300), group])), run))
    seen = np.mean([each["p_value"][0] <= 0.05 for each in found])
    stated = np.mean([each["power"][0] for each in found])
    assert 0.2 < seen < 0.98
    assert stated == pytest.approx(seen, abs=0.13)  # four standard errors of 200 runs


def test_hypothesis_test_equivalence_rejects_inside_its_margin_only() -> None:
    algorithm = HypothesisTestProgram(test="equivalence", margin={"value": 1.0}, **TWO)
    rng = np.random.default_rng(9)
    group = rng.integers(0, 2, 4000)
    noise = rng.normal(size=4000)
    near, far = (Units(np.column_stack([effect * group + noise, group])) for effect in (0.1, 1.5))
    assert result_of(algorithm, near)["p_value"][0] < 1e-6
    assert result_of(algorithm, far)["p_value"][0] > 0.999
    assert result_of(algorithm, near)["power"][0] > 0.99
    values = Units(0.1 + noise[:, None])
    one = HypothesisTestProgram(test="equivalence", margin={"value": 0.5}, **NUMBER)
    assert result_of(one, values)["p_value"][0] < 1e-6


def test_hypothesis_test_missing_values_are_left_out() -> None:
    rows = sample(800, 2, 10, 0.2)
    gone = rows.copy()
    gone[::5, 0] = np.nan
    algorithm = HypothesisTestProgram(test="welch", missing="observed", **TWO)
    kept = result_of(HypothesisTestProgram(test="welch", **TWO), Units(rows[np.isfinite(gone[:, 0])]))
    assert result_of(algorithm, Units(gone))["p_value"][0] == pytest.approx(kept["p_value"][0])


def test_hypothesis_test_correction_adjusts_over_columns() -> None:
    rng = np.random.default_rng(11)
    group = rng.integers(0, 2, 600)
    rows = np.column_stack([0.3 * group + rng.normal(size=600), rng.normal(size=600), group])
    parameters: dict[str, Any] = {
        "test": "t",
        "columns": ("a", "b", "group"),
        "ranges": {"a": (-5.0, 5.0), "b": (-5.0, 5.0)},
        "levels": {"group": (0.0, 1.0)},
        "by": "group",
    }
    for name in ("holm", "benjamini-hochberg"):
        found = result_of(HypothesisTestProgram(correction=name, **parameters), Units(rows))
        assert found["p_adjusted"].tolist() == adjusted(found["p_value"], name).tolist()
    assert "p_adjusted" not in result_of(HypothesisTestProgram(**parameters), Units(rows))


def test_hypothesis_test_under_add_remove_counts_units_privately() -> None:
    algorithm = HypothesisTestProgram(test="t", **NUMBER)
    (request,) = algorithm.requests(Adjacency.ADD_REMOVE)
    assert request.statistic.sensitivity(Adjacency.ADD_REMOVE) == pytest.approx(np.sqrt(2))
    found = result_of(algorithm, Units(sample(500, 1, 12)[:, :1]), Adjacency.ADD_REMOVE)
    assert found["p_value"][0] < 1e-6


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"test": "t", **THREE}, "anova"),
        ({"test": "mann-whitney", **THREE}, "kruskal-wallis"),
        ({"test": "anova", **NUMBER}, "by"),
        ({"test": "wilcoxon", **TWO}, "mann-whitney"),
        ({**TABLE, "by": None}, "expected"),
        ({"test": "t", **TABLE | {"test": "t"}}, "ranges"),
        ({**TABLE, "columns": ("v", *TABLE["columns"]), "ranges": {"v": (0.0, 1.0)}}, "levels"),
        ({"test": "equivalence", **TWO}, "margin"),
        ({"test": "t", "margin": {"value": 1.0}, **TWO}, "margin"),
        ({"test": "t", "null": {"value": 0.0}, **TWO}, "one sample"),
        ({"test": "t", "columns": ("value",), "ranges": {"value": (80.0, 200.0)}}, "null"),
        ({"test": "t", "effect": {"other": 1.0}, **TWO}, "other"),
        ({"test": "t", "effect": {"value": -1.0}, **TWO}, "positive"),
        ({"test": "anova", "alternative": "less", **THREE}, "alternative"),
    ],
)
def test_hypothesis_test_that_does_not_fit_is_refused(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        HypothesisTestProgram(**parameters)


def test_score_tests_without_units_do_not_reject() -> None:
    assert middle_ranks(np.zeros(3)).tolist() == [0.5, 0.5, 0.5]
    assert score_tests.table_test(np.zeros((2, 2)), 0.0, None).p_value == 1
    nothing = score_tests.GroupSums(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros((2, 2)), 0.0, 0.0)
    scores = mean_scores(nothing, equal_variances=True)
    assert (scores.statistic(), scores.p_value("greater"), noncentrality(scores)) == (0.0, 0.5, 0.0)


def test_noncentral_power_of_directed_test_is_that_of_normal_law() -> None:
    assert noncentral_power(6.18, 1, 0.05, directed=True) == pytest.approx(0.8, abs=0.002)
    assert noncentral_power(0.0, 3, 0.05) == pytest.approx(0.05)
