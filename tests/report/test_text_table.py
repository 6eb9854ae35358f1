"""Tables for a terminal: 80 columns whatever columns are called, and records with every number."""

from __future__ import annotations

import json

import numpy as np

from zerosum.algorithms import DescribeProgram, MeanProgram, SurvivalProgram
from zerosum.compute.units import Units
from zerosum.report.document import Table
from zerosum.report.json_text import finite
from zerosum.report.tables import records_of, tables_of
from zerosum.report.text_table import fits, least_width
from zerosum.study.rehearsal import Rehearsal

LONG = "a measurement with a name that is far too long for any terminal"


def test_tables_of_description_fit_80_columns_with_all_records() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(1234567, 1000, 500), rng.integers(0, 2, 500), rng.integers(0, 3, 500)])
    question = DescribeProgram(
        columns=(LONG, f"kind of {LONG}", "arm"),
        ranges={LONG: (1.23e6, 1.24e6)},
        levels={f"kind of {LONG}": ("yes", "no"), "arm": ("first", "second", "third")},
        by="arm",
        probabilities=(0.1, 0.25, 0.5, 0.75, 0.9),
    )
    estimate = Rehearsal(question, 500, 4, 1.0, 1e-5).run(Units(rows), 0)
    tables = tables_of(estimate)
    titles = [table.title for table in tables]
    assert sum(title.startswith("Quantiles") for title in titles) == 3  # two and two and one
    assert {"Means", "Units", "Proportions", "Differences of means"} <= set(titles)
    assert max(len(line) for table in tables for line in str(table).splitlines()) <= 80
    records = records_of(estimate)
    assert len(records["quantile"]) == 4 * 5
    assert records["mean"][1]["group"] == "arm = first"
    assert {"mean", "std", "interval", "population_interval", "observed", "sd"} <= records["mean"][0].keys()
    json.dumps(finite(records), allow_nan=False)


def test_tables_of_survival_end_where_curve_is_unknown() -> None:
    rows = np.column_stack([np.random.default_rng(0).exponential(3, 300), np.ones(300)])
    question = SurvivalProgram(columns=("time", "event"), edges=range(30))
    estimate = Rehearsal(question, 300, 4, 0.1, 1e-5).run(Units(rows), 0)
    curve, *_ = tables_of(estimate)
    assert curve.rows[-1][3] == "-"
    assert max(len(line) for line in str(curve).splitlines()) <= 80
    json.dumps(finite(records_of(estimate)), allow_nan=False)


def test_tables_of_other_estimate_are_empty() -> None:
    estimate = Rehearsal(MeanProgram(columns=("x",), clip=1.0), 10, 4, 1.0, 1e-5).run(Units(np.ones((10, 1))), 0)
    assert tables_of(estimate) == []
    assert records_of(estimate) == {}


def test_table_as_text_keeps_every_number_and_wraps_names() -> None:
    table = Table("Counts", ("name", "number", "interval"), ((LONG, "12", "1 to 2"), ("b [x]", "3456789", "–")))
    title, heading, *lines = str(table).splitlines()
    assert title == "Counts"
    assert heading.split() == ["name", "number", "interval"]
    assert max(map(len, lines)) <= 80
    assert "b [x]" in lines[-1]  # not read as markup
    assert lines[-1].split()[-2:] == ["3456789", "–"]
    assert "".join("".join(lines[:-1]).split()).startswith("ameasurement")
    wide = Table("Wide", ("name", *"abcdefgh"), ((LONG, *("1.2345678 to 2.3456",) * 8),))
    assert str(wide).count("1.2345678 to 2.3456") == 8
    assert least_width(wide) > 80
    assert not fits(wide)
