"""Export of results: tidy tables, documents, Table 1, methods text; the numbers are those of the estimate."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import zerosum
from helpers.paper_results import described, linear, logistic
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.significance import adjusted
from zerosum.report.coefficients import p_text
from zerosum.report.export import Changes, exported, pictures, tidy
from zerosum.report.methods_text import methods
from zerosum.report.paper import PaperTable, Row, docx, html_page, latex
from zerosum.report.record import Result
from zerosum.report.table_one import table_one
from zerosum.report.tidy import tidy_tables

# A name of a row that is longer than its column.
LONG = "x0=Age at the first visit of the study, completed years"


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


# ---- tidy tables ---------------------------------------------------------------------------------------------------


def test_tidy_coefficients_have_the_columns_of_broom_and_all_digits() -> None:
    estimate = logistic().estimate
    rows = rows_of(exported(logistic(), "csv", ("coefficients",))["coefficients.csv"])
    assert list(rows[0]) == [
        *("term", "estimate", "std_error", "conf_low", "conf_high", "conf_level", "kind", "identified", "unit"),
        "p_value",
    ]
    assert {row["kind"] for row in rows} == {"population", "pooled"}
    for row in rows:
        at = ("x0", "x1", "intercept").index(row["term"])
        assert float(row["std_error"]) == estimate[f"{row['kind']}_std"][at]
        assert float(row["conf_high"]) == estimate[f"{row['kind']}_interval_95"][at, 1]
        assert row["identified"] in ("TRUE", "FALSE")


def test_tidy_csv_of_ratios_is_read_back_by_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(io.BytesIO(exported(logistic(), "csv", ("odds_ratios",))["odds_ratios.csv"]))
    own = logistic().to_frame("odds_ratios", "pandas")
    assert frame["identified"].dtype == bool
    assert np.array_equal(frame[["estimate", "conf_low", "conf_high"]], own[["estimate", "conf_low", "conf_high"]])
    assert np.allclose(np.log(frame["estimate"][:2]), logistic().estimate["coefficients"].value)
    # As in broom, the error of a ratio is that of its logarithm.
    assert np.allclose(frame["std_error"][:2], logistic().estimate["population_std"].value[:2])


def test_to_frame_unknown_table_or_library_is_refused() -> None:
    with pytest.raises(BadParameter, match="odds_ratios"):
        logistic().to_frame("hazard_ratios")
    with pytest.raises(BadInput, match="no_such_library"):
        logistic().to_frame("", "no_such_library")  # type: ignore[arg-type]


def test_tidy_quantity_has_one_row_for_each_kind_of_interval() -> None:
    axis = columns_axis(["a", "b"])
    estimate = {
        "mean": Quantity(np.array([1.0, 2.0]), "mean", (axis,), np.array([0.1, math.nan])),
        "mean_population_interval": Quantity(np.array([[0.0, 2.0], [1.0, 3.0]])),
        "noise_std": Quantity(np.array([0.1])),
    }
    (table,) = tidy_tables(estimate).values()
    found = table.records()
    assert [(row["term"], row["kind"], row["conf_low"]) for row in found] == [
        ("a", "population", 0.0),
        ("b", "population", 1.0),
        ("a", "pooled", pytest.approx(1 - 0.1959964)),
        ("b", "pooled", None),
    ]


def test_tidy_symmetric_matrix_has_each_pair_once() -> None:
    axis = columns_axis(["a", "b", "c"])
    matrix = np.array([[1.0, 0.2, 0.3], [0.2, 1.0, 0.4], [0.3, 0.4, 1.0]])
    table = tidy_tables({"correlation": Quantity(matrix, "number", (axis, axis))})["correlation"]
    assert table.columns[:2] == ("column", "column_2")
    assert len(table.rows) == 6


def test_tidy_description_has_groups_levels_and_table_one() -> None:
    tables = tidy(described())
    assert next(iter(tables)) == "table1"
    (share,) = [
        row
        for row in tables["proportion"].records()
        if (row["group"], row["level"], row["kind"]) == ("x3 = 1", "x2 = 2", "pooled")
    ]
    assert share["estimate"] == described().estimate["proportion"][2, 2]
    assert len(tables["quantile"].rows) == 2 * described().estimate["quantile"].value.size


def test_json_export_has_methods_and_every_table() -> None:
    record = json.loads(exported(linear(), "json")["tables.json"])
    assert record["algorithm"] == "linear-regression"
    assert {"coefficients", "standardised_coefficients"} <= record["tables"].keys()
    assert len(record["methods"]) == 3


def test_derived_tables_are_exported_on_request() -> None:
    changes = Changes.parse(["x0=10"], ["both: 10*x0 + x1"], ["x1=0,1"])
    files = exported(logistic(), "csv", (), changes)
    (row, _) = rows_of(files["contrasts.csv"])
    assert row["term"] == "both"
    assert len(rows_of(files["predicted_probabilities.csv"])) == 4
    (step, *_) = rows_of(files["coefficients.csv"])
    assert float(step["estimate"]) == pytest.approx(10 * logistic().estimate["coefficients"][0])
    with pytest.raises(BadParameter, match="regressions"):
        exported(described(), "csv", (), changes)


@pytest.mark.parametrize("text", ["x0", "x0=", "=3", "x0=ten"])
def test_changes_that_are_no_assignment_are_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="COLUMN=NUMBER"):
        Changes.parse(per=[text])


def test_export_unknown_table_names_the_tables() -> None:
    with pytest.raises(BadParameter, match="odds_ratios"):
        exported(logistic(), "latex", ("table1",))


# ---- documents -----------------------------------------------------------------------------------------------------

ODD = PaperTable(
    "odd", "50 % of $x_1$ & more", ("", "a#b"), (Row(("<b>\\^~", "[−1]")), Row(("x", "1 † ±"), 1)), ("{n}",)
)


def test_latex_escapes_names_and_has_three_rules() -> None:
    text = latex([ODD])
    assert [text.count(rule) for rule in ("\\toprule", "\\midrule", "\\bottomrule")] == [1, 1, 1]
    assert "50 \\% of \\$x\\_1\\$ \\& more" in text
    assert "\\textless{}b\\textgreater{}\\textbackslash{}\\textasciicircum{}\\textasciitilde{}" in text
    assert "{[}$-$1]" in text
    assert "\\quad x & 1 $^\\dagger$ $\\pm$ \\\\" in text
    assert text.count("{") == text.count("}") + text.count("\\{") - text.count("\\}")


def test_latex_label_has_letters_digits_and_hyphens_only() -> None:
    odd = PaperTable("a_b}\\input{x", ODD.title, ODD.heading, ODD.rows, ODD.notes)
    assert r"\label{tab:a-b-input-x}" in latex([odd])


@pytest.mark.parametrize("name", ["../mean", "/tmp/mean", "a\\b", "C:mean"])
def test_csv_name_that_leads_out_of_the_folder_is_refused(name: str) -> None:
    result = linear()
    strange = replace(result, estimate={**result.estimate, name: Quantity(np.ones(2))})
    with pytest.raises(BadInput, match="name of a file"):
        exported(strange, "csv")


def test_html_escapes_names() -> None:
    page = html_page("<script>", [ODD], ["a & b"])
    assert "<script>" not in page
    assert "&lt;b&gt;" in page
    assert page.count("<tr>") == 3


def test_latex_and_html_have_the_same_numbers_as_the_estimate() -> None:
    low, high = np.exp(logistic().estimate["population_interval_95"][1])
    cell = f"{math.exp(logistic().estimate['coefficients'][1]):.2f} ({low:.2f} to {high:.2f})"
    for format_, name in (("latex", "tables.tex"), ("html", "tables.html")):
        assert cell in exported(logistic(), format_)[name].decode()


def test_docx_has_tables_text_and_forest_plot() -> None:
    word = pytest.importorskip("docx")
    found = word.Document(io.BytesIO(exported(logistic(), "docx")["tables.docx"]))
    first = found.tables[0]
    assert first.cell(0, 1).text.startswith("Odds ratio")
    assert (
        first.cell(1, 1)
        .text.replace("\N{NO-BREAK SPACE}", " ")
        .startswith(f"{math.exp(logistic().estimate['coefficients'][0]):.3f} (")
    )
    assert len(found.inline_shapes) == 1
    assert "logistic regression" in found.paragraphs[1].text


def test_docx_without_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(BadInput, match=r"zerosum\[docx\]"):
        docx("t", [ODD])


# ---- Table 1 -------------------------------------------------------------------------------------------------------


def cells(table: PaperTable, first: str) -> list[str]:
    (row,) = [row for row in table.rows if row.cells[0] == first]
    return [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row.cells[1:]]


def counts(texts: list[str]) -> list[int]:
    return [int(text.split(" ")[0]) for text in texts]


def test_table_one_groups_add_up_to_one_n() -> None:
    table = table_one(described().estimate, described().plan.question)
    sizes = [int(found[1]) for head in table.heading if (found := re.search(r"N\s=\s(\d+)", head))]
    assert sizes[0] == sum(sizes[1:]) == 900
    levels = [counts(cells(table, level)[:3]) for level in ("0", "1", "2")]
    assert [sum(each) for each in zip(*levels, strict=True)] == sizes
    assert all(row[0] == row[1] + row[2] for row in levels)
    missing = counts(cells(table, "x1, missing, n (%)")[:3])
    assert missing[0] == missing[1] + missing[2]
    assert missing[0] == pytest.approx(180, abs=60)
    assert not [row for row in table.rows if row.cells[0] == "x0, missing, n (%)"]


def test_table_one_standardised_difference_is_that_of_its_means() -> None:
    estimate = described().estimate
    table = table_one(estimate, described().plan.question)
    mean, sd = estimate["mean"].value[:, 0], estimate["sd"].value[:, 0]
    expected = abs(mean[1] - mean[2]) / math.sqrt((sd[1] ** 2 + sd[2] ** 2) / 2)
    assert float(cells(table, "x0, mean (SD)")[-2]) == pytest.approx(expected, abs=0.006)
    assert table.heading[-2:] == ("SMD", "p")


def test_table_one_p_values_are_those_of_the_estimate() -> None:
    tests = described().estimate["group_p_value"]
    assert tests.axes[0].labels == (
        "x0: Welch",
        "x1: Welch",
        "x0: Kruskal-Wallis",
        "x1: Kruskal-Wallis",
        "x2: chi-squared",
    )
    known = dict(zip(tests.axes[0].labels, tests.value, strict=True))
    table = table_one(described().estimate, described().plan.question)
    # Age differs by half a standard deviation between the groups, the other columns do not differ.
    assert cells(table, "x0, mean (SD)")[-1] == "< 0.001"
    assert float(cells(table, "x0, median [IQR]")[-1]) < 0.01
    assert cells(table, "x1, mean (SD)")[-1] == p_text(known["x1: Welch"])
    assert cells(table, "x2, n (%)")[-1] == p_text(known["x2: chi-squared"])
    assert cells(table, "x1, missing, n (%)")[-1] == ""


def test_table_one_correction_adjusts_all_its_tests_together() -> None:
    tests = described().estimate["group_p_value"]
    expected = dict(zip(tests.axes[0].labels, adjusted(tests.value, "holm"), strict=True))
    text = exported(described(), "csv", ("table1",), Changes.parse(correction="holm"))["table1.csv"]
    (row,) = [row for row in rows_of(text) if row["Characteristic"] == "x1, mean (SD)"]
    assert row["adjusted p"] == p_text(expected["x1: Welch"]) != p_text(float(tests.value[1]))
    records = tidy(described(), Changes.parse(correction="holm"))["group_p_adjusted"].records()
    assert [each["estimate"] for each in records] == pytest.approx(list(expected.values()))


# ---- corrections and joint tests -------------------------------------------------------------------------------------


def test_export_correction_of_coefficients_leaves_the_intercept_out() -> None:
    rows = rows_of(exported(logistic(), "csv", ("coefficients",), Changes.parse(correction="holm"))["coefficients.csv"])
    of = {row["term"]: row for row in rows if row["kind"] == "population"}
    expected = adjusted(np.array([float(of[name]["p_value"]) for name in ("x0", "x1")]), "holm")
    assert [float(of[name]["p_adjusted"]) for name in ("x0", "x1")] == pytest.approx(expected.tolist())
    assert of["intercept"]["p_adjusted"] == ""
    text = exported(logistic(), "latex", ("odds_ratios",), Changes.parse(correction="holm"))["tables.tex"].decode()
    assert "adjusted p" in text
    assert "for 2 tests, by Holm" in text


def test_export_correction_without_p_values_is_refused() -> None:
    rng = np.random.default_rng(0)
    mean = zerosum.Mean(lower=[0.0], upper=[1.0], random_state=0, data="synthetic")
    result = mean.fit({name: rng.random((50, 1)) for name in "abc"}).result_
    with pytest.raises(BadParameter, match="p values"):
        exported(result, "csv", (), Changes.parse(correction="holm"))


def test_export_joint_tests_have_a_table_of_their_own() -> None:
    changes = Changes.parse(tests=["x0; x1", "x1"], correction="benjamini-hochberg")
    both, one = rows_of(exported(logistic(), "csv", ("joint_tests",), changes)["joint_tests.csv"])
    assert (both["term"], both["df"], one["df"]) == ("x0; x1", "2.0", "1.0")
    assert float(both["p_value"]) == pytest.approx(float(logistic().estimate["wald_p_value"].value[0]))
    assert float(both["p_adjusted"]) >= float(both["p_value"])
    assert "joint-tests" in exported(logistic(), "latex", ("joint_tests",), changes)["tables.tex"].decode()
    with pytest.raises(BadParameter, match="regressions"):
        exported(described(), "csv", (), changes)


def test_table_one_category_difference_of_two_levels_is_that_of_a_proportion() -> None:
    groups, axis = Axis("group", ("all", "g = a", "g = b")), Axis("level", ("s = 0", "s = 1"))
    share = np.array([[0.6, 0.4], [0.7, 0.3], [0.5, 0.5]])
    estimate = {
        "proportion": Quantity(share, "share", (groups, axis), 0.01),
        "proportion_observed": Quantity(np.full((3, 2), 100.0), "count", (groups, axis)),
        "units": Quantity(np.array([200.0, 100.0, 100.0]), "count", (groups,), np.array([0.0, 3.0, 3.0])),
    }
    question = described().plan.question.of(("s", "g"), {"by": "g", "levels": {"s": [0, 1], "g": ["a", "b"]}})
    table = table_one(estimate, question)
    expected = 0.2 / math.sqrt((0.7 * 0.3 + 0.5 * 0.5) / 2)
    # A result of an earlier version has no tests.
    assert table.heading[-1] == "SMD"
    assert float(cells(table, "s, n (%)")[-1]) == pytest.approx(expected, abs=0.005)
    assert cells(table, "1")[:3] == ["80 (40.0)", "30 (30.0)", "50 (50.0)"]


def test_table_one_of_another_result_is_refused() -> None:
    with pytest.raises(BadInput, match="describe"):
        table_one(logistic().estimate, logistic().plan.question)


def test_labels_replace_names_of_columns_and_levels() -> None:
    changes = Changes.parse(labels=["x0=Age, years", "x2:1=stage II", "x3:1=Treated"])
    text = exported(described(), "latex", ("table1",), changes)["tables.tex"].decode()
    assert "Age, years, mean (SD)" in text
    assert "\\quad stage II &" in text
    assert "Treated (N" in text
    assert "x0" not in text.partition("\\medskip")[0]


# ---- pictures and methods ------------------------------------------------------------------------------------------


def test_pictures_forest_plot_follows_steps() -> None:
    plain, step = (pictures(logistic(), changes) for changes in (None, Changes.parse(per=["x0=10"])))
    assert list(plain) == list(step) == ["odds-ratios"]
    (one, _), (ten, _) = plain["odds-ratios"].rows, step["odds-ratios"].rows  # type: ignore[union-attr]
    assert ten.value == pytest.approx(one.value**10)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("result", [logistic, linear, described])
def test_methods_name_sites_columns_and_guarantee(result: object) -> None:
    found: Result = result()  # type: ignore[operator]
    first, second, third = methods(found)
    assert "3 sites" in first
    assert "x0" in first
    assert "not private" in second  # a seeded run
    assert "95 %" in third


def test_result_file_has_the_ratios_of_a_regression(tmp_path: object) -> None:
    record = logistic().as_record()
    assert record["effects"]["measure"] == "odds ratio"
    assert record["effects"]["rows"][0]["estimate"] == pytest.approx(math.exp(logistic().estimate["coefficients"][0]))
    assert "effects" not in described().as_record()


def test_tidy_baseline_survival_has_its_intervals() -> None:
    axes = Axis("stratum", ("north",)), Axis("time", ("1", "2"))
    ends = np.array([[[0.8, 1.0], [0.6, 0.9]]])
    estimate = {
        "baseline_survival": Quantity(np.array([[0.9, 0.75]]), "share", axes),
        "baseline_population_interval": Quantity(ends, "number"),
    }
    (table,) = tidy_tables(estimate).values()
    assert [(row["time"], row["conf_low"], row["kind"]) for row in table.records()] == [
        ("1", 0.8, "population"),
        ("2", 0.6, "population"),
    ]


def test_tidy_effect_of_a_hypothesis_test_has_a_population_interval() -> None:
    axis = (Axis("column", ("age",)),)
    estimate = {
        "effect": Quantity(np.array([1.5]), "number", axis),
        "effect_interval": Quantity(np.array([[0.5, 2.5]]), "number", (*axis, Axis("end", ("lower", "upper")))),
    }
    rows = [row for table in tidy_tables(estimate).values() for row in table.records()]
    assert [(row["conf_low"], row["conf_high"], row["kind"]) for row in rows] == [(0.5, 2.5, "population")]


def test_word_table_p_values_and_intervals_fit_on_one_line() -> None:
    pytest.importorskip("docx")
    from docx import Document

    document = Document(
        io.BytesIO(exported(described(), "docx", ("table1",), Changes.parse(labels=[LONG]))["tables.docx"])
    )
    (table,) = document.tables
    total = 0.0
    for column in range(1, len(table.columns)):
        width = table.columns[column].width.cm
        total += width
        longest = max(len(row.cells[column].text) for row in table.rows[1:])
        # A digit of Calibri at 9 points is 0.161 cm wide; cells have margins of 0.19 cm.
        assert width >= 0.38 + 0.161 * longest
    assert total + table.columns[0].width.cm <= 17.01


def test_labels_are_in_the_notes_of_table_one() -> None:
    text = exported(described(), "latex", ("table1",), Changes.parse(labels=["x0=Age, years"]))["tables.tex"].decode()
    assert "Age, years $\\pm$" in text
