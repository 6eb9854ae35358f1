"""Intervals of 95 % in results and reports follow the noise law of the study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerosum.algorithms import HistogramProgram, MeanProgram
from zerosum.compute.units import Units
from zerosum.kernel.laplace import interval_factor
from zerosum.kernel.quantity import NORMAL_95, Quantity
from zerosum.kernel.terms import NoiseChoice
from zerosum.report.build import what_if
from zerosum.report.document import Bars, Intervals, Table
from zerosum.report.number_format import format_number
from zerosum.report.record import Result, read_estimate
from zerosum.report.result_blocks import result_blocks
from zerosum.report.tidy import tidy_tables
from zerosum.report.warnings import result_warnings
from zerosum.site.policy import Policy
from zerosum.study import run
from zerosum.study.planning import with_reach
from zerosum.study.rehearsal import Rehearsal

MEAN = MeanProgram(columns=("x",), lower=np.zeros(1), upper=np.ones(1))
COUNTS = HistogramProgram(columns=("x",), edges=np.arange(4.0))
# 4 sites, one of which colludes: 3 shares add up to Laplace noise, and 4 are added.
SHARES = 4 / 3


def study(program: Any, noise: NoiseChoice, folder: Path) -> Result:
    tables = {name: np.full((50, 1), 0.5) for name in "abcd"}
    policies = {name: Policy(population=name, ledger=folder / f"{name}.sqlite") for name in tables}
    return run(program, tables, epsilon=1.0, delta=1e-5, unit="person", colluders=1, noise=noise, policies=policies)


def shown(result: Result) -> list[float]:
    """Half widths of 95 % intervals, as the report of a result has them."""
    found: list[float] = []
    for block in result_blocks(result.estimate, result.plan.question):
        if isinstance(block, Intervals):
            found += [(row.high - row.low) / 2 for row in block.rows if row.high is not None and row.low is not None]
        if isinstance(block, Bars) and block.low:
            ends = zip(block.low, block.high, strict=True)
            found += [(high - low) / 2 for low, high in ends if low is not None and high is not None]
    return found


@pytest.mark.parametrize(("program", "name"), [(MEAN, "mean"), (COUNTS, "counts")])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_intervals_of_a_result_have_the_width_of_the_noise_law(
    program: Any, name: str, noise: NoiseChoice, tmp_path: Path
) -> None:
    result = study(program, noise, tmp_path)
    reach = interval_factor(SHARES) if noise == "laplace" else NORMAL_95
    std = np.asarray(result.estimate[name].std)
    assert shown(result) == pytest.approx((reach * std).tolist())
    table = tidy_tables(result.estimate)[name].records()
    widths = [(row["conf_high"] - row["conf_low"]) / 2 for row in table if row["kind"] == "pooled"]  # type: ignore[operator]
    assert widths == pytest.approx((reach * std).tolist())
    # The table of other budgets starts from the same half width.
    budgets = next(block for block in what_if(result) if isinstance(block, Table))
    assert any(format_number(float(reach * std[0]), 3) in cell for row in budgets.rows for cell in row)
    # Stored and read again; the file of a study with Gaussian noise is as it was.
    result.write(tmp_path / "out")
    assert read_estimate(tmp_path / "out")[name].reach == reach
    record = json.loads((tmp_path / "out" / "result.json").read_text())["quantities"][name]
    assert ("reach" in record) == (noise == "laplace")


def test_gaussian_intervals_are_those_of_the_normal_quantile_to_the_bit() -> None:
    std = np.random.default_rng(0).exponential(size=50)
    quantity = Quantity(np.zeros(50), "mean", (), std)
    assert np.array_equal(quantity.half_width, 1.959963984540054 * std)
    assert "reach" not in quantity.as_record()
    estimate = {"mean": quantity}
    assert with_reach(estimate, Rehearsal(MEAN, 40, 4, 1.0, 1e-5, noise="gaussian").plan, [("a",)]) is estimate


def test_intervals_widen_where_sites_are_lost() -> None:
    rehearsal = Rehearsal(MEAN, 40, 4, 1.0, 1e-5, noise="laplace")
    estimate = rehearsal.run(Units.from_rows(np.full((40, 1), 0.5)), 0)
    whole, fewer = (with_reach(estimate, rehearsal.plan, [names]) for names in (("a", "b", "c", "d"), ("a", "b", "c")))
    assert whole["mean"].reach == interval_factor(SHARES) < fewer["mean"].reach == interval_factor(1.0)
    assert whole["noise_std"].reach == NORMAL_95


def test_warning_of_a_wide_interval_has_the_width_of_the_noise_law() -> None:
    rehearsal = Rehearsal(MEAN, 40, 4, 1.0, 1e-5, noise="laplace")
    # Between the two laws: a normal interval fits into the range of width 1, a Laplace interval does not.
    std = np.array([1 / (NORMAL_95 + interval_factor(SHARES))])
    estimate = {"mean": Quantity(np.array([0.5]), "mean", (MEAN.column_axis,), std)}
    wide = with_reach(estimate, rehearsal.plan, [("a", "b", "c", "d")])
    texts = [" ".join(result_warnings(each, rehearsal.plan)) for each in (estimate, wide)]
    assert ["wider than its range" in text for text in texts] == [False, True]


@pytest.mark.parametrize("program", [MEAN, COUNTS])
def test_laplace_intervals_cover_the_truth_in_95_percent(program: Any) -> None:
    rehearsal, units, runs = Rehearsal(program, 40, 4, 1.0, 1e-5, noise="laplace"), np.full((40, 1), 0.5), 8000
    name = "mean" if program is MEAN else "counts"
    truth = np.asarray(rehearsal.run_without_noise(Units.from_rows(units))[name])[:1]
    inside = {True: 0, False: 0}
    for each in rehearsal.runs(Units.from_rows(units), range(runs)):
        found = with_reach(each, rehearsal.plan, [("a", "b", "c", "d")])[name]
        error = abs(float(found[0] - truth[0]))
        inside[True] += error <= found.half_width[0]
        inside[False] += error <= NORMAL_95 * np.asarray(found.std)[0]
    # Four standard errors of a coverage of 95 % in 8000 runs; the normal interval covers less.
    assert inside[True] / runs == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / runs))
    assert inside[False] < inside[True]
