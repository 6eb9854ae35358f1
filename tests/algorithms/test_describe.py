"""Descriptions and quantiles: what they are without noise, how often intervals hold with it, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from helpers.program_results import Floats, result_of
from zerosum.algorithms import DescribeProgram, QuantilesProgram
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.quantiles import Curve, QuantileAlgorithm
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.study.rehearsal import Rehearsal

QUESTION: dict[str, Any] = {
    "columns": ("age", "kind", "arm"),
    "ranges": {"age": (20, 90)},
    "levels": {"kind": ("a", "b", "c"), "arm": (0, 1)},
    "by": "arm",
}


def people(n: int = 400, seed: int = 0, holes: float = 0.0) -> Floats:
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 2, n)
    rows = np.column_stack([np.clip(rng.normal(50 + 5 * arm, 9), 20, 90), rng.choice(3, n, p=[0.6, 0.3, 0.1]), arm])
    rows[:, :2][rng.random((n, 2)) < holes] = np.nan
    return rows


def parts(rows: Floats) -> list[Floats]:
    return [rows, rows[rows[:, 2] == 0], rows[rows[:, 2] == 1]]


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_describe_without_noise_equals_plain_table(adjacency: Adjacency, holes: float) -> None:
    rows = people(holes=holes)
    question = DescribeProgram(**QUESTION, missing={"age": "observed", "kind": "observed"} if holes else None, bins=512)
    found = result_of(question, Units(rows), adjacency)
    for g, part in enumerate(parts(rows)):
        age = part[~np.isnan(part[:, 0]), 0]
        assert found["observed"][g, 0] == pytest.approx(len(age))
        assert found["mean"][g, 0] == pytest.approx(age.mean())
        assert found["sd"][g, 0] == pytest.approx(age.std(ddof=1))
        assert np.allclose(found["mean_interval"][g, 0], age.mean())
        exact = np.quantile(age, [0.25, 0.5, 0.75], method="inverted_cdf")
        assert np.allclose(found["quantile"][g, 0], exact, atol=70 / 512)
        ends = found["quantile_interval"][g, 0]
        assert np.all((ends[:, 0] <= exact) & (exact <= ends[:, 1]) & (ends[:, 1] - ends[:, 0] < 70 / 512 + 1e-9))
        kind = part[~np.isnan(part[:, 1]), 1]
        assert np.allclose(found["proportion"][g], [np.mean(kind == level) for level in range(3)])
        assert found["units"][g] == pytest.approx(len(part))
    low, high = (part[~np.isnan(part[:, 0]), 0] for part in parts(rows)[1:])
    assert found["difference"][0, 0] == pytest.approx(high.mean() - low.mean())
    width = np.diff(found["difference_population_interval"][0, 0])[0]
    error = math.sqrt(low.var(ddof=1) / len(low) + high.var(ddof=1) / len(high))
    assert width == pytest.approx(2 * 1.96 * error, rel=1e-3)


def test_describe_missing_value_rule_counts_as_filled_value() -> None:
    rows = people(holes=0.3)
    filled = np.where(np.isnan(rows), [50.0, 2.0, 0.0], rows)
    rules = {"age": 50.0, "kind": "c"}
    one = result_of(DescribeProgram(**QUESTION, missing=rules), Units(rows))
    two = result_of(DescribeProgram(**QUESTION), Units(filled))
    assert all(np.allclose(one[name], two[name], equal_nan=True) for name in two)


@pytest.mark.parametrize(("seed", "n", "epsilon", "holes"), [(1, 300, 4.0, 0.2), (2, 2000, 1.0, 0.0)])
def test_describe_intervals_cover_table_without_privacy(seed: int, n: int, epsilon: float, holes: float) -> None:
    rows = people(n, seed, holes)
    rules = {"age": "observed", "kind": "observed"} if holes else None
    rehearsal = Rehearsal(DescribeProgram(**QUESTION, missing=rules), n, 4, epsilon, 1e-5)
    some = [part[~np.isnan(part[:, 0]), 0] for part in parts(rows)]
    truth = {
        "mean": np.array([[age.mean()] for age in some]),
        "quantile": np.array([[np.quantile(age, [0.25, 0.5, 0.75], method="inverted_cdf")] for age in some]),
        "proportion": np.array(
            [[np.mean(part[~np.isnan(part[:, 1]), 1] == level) for level in range(3)] for part in parts(rows)]
        ),
    }
    held: dict[str, list[float]] = {name: [] for name in truth}
    for run in range(150):
        found = rehearsal.run(Units(rows), run)
        for name, value in truth.items():
            ends = np.asarray(found[f"{name}_interval"])
            held[name].append(float(np.mean((ends[..., 0] <= value + 1e-9) & (value - 1e-9 <= ends[..., 1]))))
            inside = np.asarray(found[name])
            assert np.all((ends[..., 0] <= inside + 1e-9) & (inside - 1e-9 <= ends[..., 1]))
    # cells of a run share their noise: 150 runs leave about 2 %
    assert np.mean(held["mean"]) == pytest.approx(0.95, abs=0.045)
    assert np.mean(held["proportion"]) == pytest.approx(0.95, abs=0.04)
    assert np.mean(held["quantile"]) >= 0.94


def test_describe_estimates_beyond_possible_values_have_intervals_inside() -> None:
    """Thirty people at the end of the range, under noise larger than they are: no interval is a point, every one holds
    its estimate, differences too, and none leaves what is possible."""
    rows = np.column_stack([np.full(30, 90.0), np.zeros(30), np.arange(30) % 2])
    rehearsal = Rehearsal(DescribeProgram(**QUESTION), 30, 4, 1.0, 1e-5)
    most = {"mean": (20, 90), "proportion": (0, 1), "difference": (-70, 70), "proportion_difference": (-1, 1)}
    edge = 0
    for run in range(100):
        found = rehearsal.run(Units(rows), run)
        edge += int(np.sum(np.asarray(found["mean"]) == 90))
        for name, (low, high) in most.items():
            value = np.asarray(found[name])
            for kind in ("interval", "population_interval"):
                ends = np.asarray(found[f"{name}_{kind}"])
                assert np.all((ends[..., 0] <= value + 1e-9) & (value - 1e-9 <= ends[..., 1])), name
                assert np.all(ends[..., 1] - ends[..., 0] > 1e-6 * (high - low)), name
                assert np.all((low - 1e-9 <= ends) & (ends <= high + 1e-9)), name
    assert edge > 50  # it is not about something that does not happen


def test_quantiles_of_whole_numbers_are_whole() -> None:
    rng = np.random.default_rng(3)
    ages = np.clip(np.round(rng.normal(55, 15, 5000)), 18, 100)
    question = QuantilesProgram(columns=("age",), ranges={"age": (18, 100)}, whole=("age",), probabilities=(0.1, 0.5))
    found = Rehearsal(question, 5000, 3, 2.0, 1e-5).run(Units(ages[:, None]), 0)
    exact = np.quantile(ages, [0.1, 0.5], method="inverted_cdf")
    assert np.all(np.abs(np.asarray(found["quantile"])[0, 0] - exact) <= 1)
    assert np.all(np.asarray(found["quantile_interval"]) % 1 == 0)
    coarse = QuantilesProgram(columns=("x",), ranges={"x": (0, 999)}, whole=("x",), bins=64)
    assert coarse.edges("x")[0] == -0.5
    assert coarse.edges("x")[-1] == 999.5
    assert np.all(coarse.edges("x") % 1 == 0.5)


def test_quantiles_edges_of_whole_numbers_beyond_64_bits_are_even() -> None:
    edges = QuantilesProgram(columns=("n",), ranges={"n": (0.0, 1e60)}, whole=("n",), bins=4).edges("n")
    assert np.allclose(edges[1:], np.linspace(0, 1e60, 5)[1:])


def test_describe_budget_split_follows_public_facts_and_is_in_description() -> None:
    question = DescribeProgram(**QUESTION)
    settled = question.resolve(PublicFacts(noise=5.0, units=1000))
    assert sum(settled.split.values()) == pytest.approx(1)
    assert settled.resolve(PublicFacts(noise=5.0, units=1000)) == settled
    assert all(part in settled.describe for part in settled.split)
    assert settled.bins == 32
    assert question.resolve(PublicFacts(noise=5.0, units=10**6)).bins == 1024
    assert question.resolve(PublicFacts(noise=5.0, units=None)).bins == 128
    own = DescribeProgram(**QUESTION, shares={"means": 0.5, "quantiles": 0.25, "proportions": 0.25})
    assert [release.share for release in own.releases(Adjacency.REPLACE_ONE)] == [0.5, 0.25, 0.25]
    only = DescribeProgram(**QUESTION, parts=("means",))
    assert [release.statistic for release in only.releases(Adjacency.REPLACE_ONE)] == ["grouped_moments"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"ranges": {}}, "'age'"),
        ({"ranges": {"age": (20, 90), "kind": (0, 1)}}, "'kind'"),
        ({"ranges": {"age": (20, 90), "bmi": (0, 1)}}, "'bmi'"),
        ({"ranges": {"age": (90, 20)}}, "'age'"),
        ({"ranges": {"age": (20, math.inf)}}, "'age'"),
        ({"levels": {"kind": ("a", "a"), "arm": (0, 1)}}, "'kind'"),
        ({"levels": {"kind": ("a",), "arm": (0, 1)}}, "'kind'"),
        ({"by": "age"}, "'age'"),
        ({"missing": {"age": "own-rows"}}, "'observed'"),
        ({"missing": {"kind": "d"}}, "'kind'"),
        ({"missing": {"age": "unknown"}}, "'age'"),
        ({"whole": ("kind",)}, "'kind'"),
        ({"probabilities": (0.5, 0.25)}, "probabilities"),
        ({"probabilities": (0.0, 0.5)}, "probabilities"),
        ({"parts": ()}, "parts"),
        ({"shares": {"means": 1.0}}, "shares"),
        ({"shares": {"means": 0.6, "quantiles": 0.6, "proportions": -0.2}}, "shares"),
        ({"bins": 1}, "bins"),
    ],
)
def test_describe_bad_parameter_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        DescribeProgram(**(QUESTION | change))


def test_quantiles_of_levels_are_refused() -> None:
    with pytest.raises(BadParameter, match="ranges"):
        QuantilesProgram(**QUESTION)
    assert issubclass(QuantilesProgram, QuantileAlgorithm)
    assert issubclass(QuantileAlgorithm, GroupedAlgorithm)


def test_curve_of_nobody_has_whole_range_as_interval() -> None:
    curve = Curve.of(np.full(4, -30.0), 10.0, np.arange(5.0), None, False)
    assert curve.interval(0.5) == (0.0, 4.0)
    assert 0 <= curve.quantile(0.5) <= 4
