"""A study of every algorithm, drawn: what fits it is there, and says what was found."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from gallery_studies import STUDIES
from zerosum.algorithms import ALGORITHMS
from zerosum.data.masker import Masker
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.question import Question
from zerosum.report.build import write_report
from zerosum.report.document import Bars, Block, Clouds, Curves, Forest, Grid, Intervals, Slices, Table, Text
from zerosum.report.result_blocks import result_blocks
from zerosum.report.signature import check
from zerosum.report.slices import slices

#: Pictures that the report of an algorithm has, by their titles.
DRAWN: dict[str, set[str]] = {
    "mean": {"Means"},
    "histogram": {"How many in each bin"},
    "covariance": {"Means", "Correlations"},
    "correlation": {"Correlations"},
    "describe": {"Means", "Proportions", "Differences of means", "Quantiles"},
    "quantiles": {"Quantiles"},
    "survival": {"Survival"},
    "cox-regression": {"Hazard ratios", "Survival at typical covariates"},
    "hypothesis-test": {"Effects"},
    "linear-regression": {"Coefficients", "Residuals"},
    "logistic-regression": {"Odds ratios", "Scores by class"},
    "multinomial-regression": {"Odds ratios"},
    "poisson-regression": {"Rate ratios"},
    "pca": {"Energy of the components", "Components"},
    "ica": {"Energy of the components", "Component 1", "Component 2", "Component 3", "Component 4", "Stability"},
    "k-means": {"Clusters"},
    "mixture": {"Clusters"},
    "topics": {"Topic"},
    "feature-classifier": {"Confusion", "Calibration"},
    "neural-classifier": {"Confusion", "Calibration"},
    "data-collaboration": {"Weights"},
    "polynomial-loss": set(),  # of one's own: their numbers by name, below
    "synthetic-data": {"age", "sex", "smoking", "Relations between columns"},
    "guided-ica": {"Component 1", "Component 2", "Difference 1", "Share kept"},
    "connectivity": {"Connectivity of control", "Difference of patient from control", "Edges"},
    "additive-model": {"Importance", "age", "dose", "ward"},
    "statistic": set(),
}
PICTURES = (Intervals, Forest, Bars, Curves, Grid, Clouds, Slices)


def titles(blocks: list[Block]) -> set[str]:
    return {block.title for block in blocks if isinstance(block, PICTURES)}


def test_result_blocks_cases_have_every_algorithm() -> None:
    assert set(STUDIES) == set(DRAWN) == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("name", "title", "labels"),
    [
        ("polynomial-loss", "Coefficients", ["age", "bmi"]),
        ("statistic", "Mean", ["1", "2"]),
    ],
)
def test_result_blocks_quantity_without_chart_is_table(name: str, title: str, labels: list[str]) -> None:
    result, _ = STUDIES[name]()
    blocks = result_blocks(result.estimate, result.plan.question)
    (table,) = [block for block in blocks if isinstance(block, Table) and block.title == title]
    assert [row[0] for row in table.rows] == labels
    assert float(table.rows[0][1]) == pytest.approx(result.estimate[title.lower()][0], rel=1e-3)


def test_result_blocks_classes_keep_their_spelling() -> None:
    result, _ = STUDIES["data-collaboration"]()
    (drawn,) = [b for b in result_blocks(result.estimate, result.plan.question) if isinstance(b, Grid)]
    assert drawn.columns == ("0", "1", "2")


def test_result_blocks_survival_has_names_of_columns() -> None:
    result, _ = STUDIES["survival"]()
    (drawn,) = [b for b in result_blocks(result.estimate, result.plan.question) if isinstance(b, Curves)]
    assert drawn.x_label == "months"
    assert [each.label for each in drawn.series] == ["treatment = 0", "treatment = 1"]


def test_result_blocks_survival_band_and_counts_end_with_the_curve() -> None:
    groups, times = Axis("group", ("all",)), Axis("time", ("1", "2", "3"))
    ends = np.array([[[0.7, 0.9], [0.5, 0.8], [0.0, 0.8]]])
    estimate = {
        "survival": Quantity(np.array([[0.8, 0.6, np.nan]]), "share", (groups, times)),
        "survival_interval": Quantity(ends, "number"),
        "survival_population_interval": Quantity(ends, "number"),
        "at_risk": Quantity(np.array([[95.0, 70.0, 3.0]]), "count", (groups, times)),
        "at_risk_start": Quantity(np.array([[100.0, 75.0, 4.0]]), "count", (groups, times)),
        "median": Quantity(np.array([2.5]), "number", (groups,)),
        "median_interval": Quantity(np.array([[2.0, 3.0]]), "number"),
        "median_population_interval": Quantity(np.array([[2.0, 3.0]]), "number"),
    }
    (drawn,) = [block for block in result_blocks(estimate, Question()) if isinstance(block, Curves)]
    (curve,) = drawn.series
    assert curve.y == (1.0, 0.8, 0.6, None)
    assert [low is None for low in curve.low] == [high is None for high in curve.high] == [False, False, False, True]
    assert curve.counts == (100.0, 75.0, None, None)


def test_result_blocks_log_rank_z_is_the_root_of_chi_square() -> None:
    result, _ = STUDIES["survival"]()
    (test,) = [
        block
        for block in result_blocks(result.estimate, result.plan.question)
        if isinstance(block, Table) and block.title == "Log-rank test"
    ]
    found = dict(zip(test.heading, test.rows[0], strict=True))
    assert float(found["z"]) ** 2 == pytest.approx(float(found["chi-square"]), rel=0.02)
    assert float(result.estimate["log_rank_z"]) ** 2 == pytest.approx(float(result.estimate["log_rank_statistic"]))


LONG = {"ica", "feature-classifier", "neural-classifier", "topics"}  # what they show is tested below, too


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in STUDIES]
)
def test_result_blocks_of_every_algorithm_have_expected_charts(name: str, tmp_path: Path) -> None:
    result, space = STUDIES[name]()
    blocks = result_blocks(result.estimate, result.plan.question, space, result.plan.algorithm)
    found = titles(blocks)
    assert {title.split(" 1:")[0] for title in found if title.startswith("Topic 1")} | found >= DRAWN[name]
    result.write(tmp_path / name)
    page = write_report(tmp_path / name, space).read_bytes()
    assert b"could not be drawn" not in page
    assert len(page) < 200_000
    check(page, "html")


def test_result_blocks_interval_chart_has_estimates_and_ranges() -> None:
    result, _ = STUDIES["mean"]()
    blocks = result_blocks(result.estimate, result.plan.question)
    (drawn,) = [block for block in blocks if isinstance(block, Intervals)]
    mean = result.estimate["mean"]
    for at, row in enumerate(drawn.rows):
        assert row.value == mean[at]
        assert row.high is not None
        assert row.high - mean[at] == pytest.approx(mean.half_width[at])
    assert drawn.rows[0].label == "age (years)"
    assert (drawn.rows[0].start, drawn.rows[0].end) == (18.0, 100.0)


def test_result_blocks_unknown_quantities_are_listed() -> None:
    estimate = {
        "sum": Quantity(np.arange(3.0), std=1.0),
        "one": Quantity(np.array([2.5]), std=0.5),
        "large": Quantity(np.zeros((200, 300))),
    }
    blocks = result_blocks(estimate, Question())
    listed, numbers, everything = (block for block in blocks if isinstance(block, Table))
    assert listed.title == "Sum"
    assert listed.rows == (("1", "0", "± 1.96"), ("2", "1", "± 1.96"), ("3", "2", "± 1.96"))
    assert numbers.rows == (("one", "2.5", "± 0.98"),)
    assert [row[:2] for row in everything.rows] == [("sum", "3"), ("one", "1"), ("large", "200 x 300")]


def test_result_blocks_wide_results_have_few_charts() -> None:
    axis = Axis("column", tuple(f"c{at}" for at in range(5000)))
    estimate = {
        "mean": Quantity(np.zeros(5000), "mean", (axis,), np.ones(5000)),
        "noise_std": Quantity(np.ones(5000), "diagnostic", (axis,)),
        "components": Quantity(np.ones((30, 5000)), "component", (Axis.numbered("component", 30), axis)),
    }
    blocks = result_blocks(estimate, Question(parameters={"lower": [0.0] * 5000, "upper": [1.0] * 5000}))
    assert not any(isinstance(block, Intervals) for block in blocks)
    assert sum(isinstance(block, Bars) for block in blocks) <= 12
    assert all(len(block.labels) <= 40 for block in blocks if isinstance(block, Bars))


def test_result_blocks_classifier_without_evaluation_states_it() -> None:
    weights = Quantity(np.ones((2, 2)), "coefficient", (Axis.numbered("direction", 2), Axis.numbered("class", 2)))
    estimate = {"weights": weights, "projection": Quantity(np.ones((2, 2)))}
    said = [block.sentences[0] for block in result_blocks(estimate, Question()) if isinstance(block, Text)]
    assert len(said) == 1
    assert "released" in said[0]


def test_result_blocks_calibration_leaves_noisy_bins_out() -> None:
    bins = Axis("probability of the predicted class", tuple(map(str, range(10))))
    counts = np.array([[2.0] * 9 + [100.0], [1.0] * 9 + [90.0]])
    labels = Axis("class", ("a", "b"))
    estimate = {
        "accuracy": Quantity(np.array([0.9]), "share", std=0.01),
        "accuracy_interval_95": Quantity(np.array([0.88, 0.92])),
        "confusion": Quantity(np.eye(2), "count", (labels, labels), 1.0),
        "calibration": Quantity(counts, "count", (Axis("units", ("all", "right")), bins), 1.0),
    }
    (curve,) = [block for block in result_blocks(estimate, Question()) if isinstance(block, Curves)]
    assert curve.series[0].x == (0.95,)
    assert curve.series[0].y == (0.9,)
    fitted, held_out = (
        next(block for block in result_blocks(estimate, question) if isinstance(block, Text)).sentences[0]
        for question in (Question(), Question(parameters={"hold_out": 0.1}))
    )
    assert fitted != held_out  # which units were counted
    assert "not" in held_out.split()
    assert "not" not in fitted.split()


def test_result_blocks_topics_are_shown_by_words() -> None:
    words, topics = Axis("column", tuple(f"w{at}" for at in range(30))), Axis.numbered("topic", 2)
    found = np.zeros((2, 30))
    found[0, 3], found[1, 7] = 0.5, 0.4
    estimate = {"topics": Quantity(found, "share", (topics, words)), "weights": Quantity(np.array([0.7, 0.3]))}
    drawn = [block for block in result_blocks(estimate, Question()) if isinstance(block, Bars)]
    assert [re.findall(r"\d+", each.title) for each in drawn] == [["1", "70"], ["2", "30"]]
    assert [each.labels[0] for each in drawn] == ["w3", "w7"]
    assert all(len(each.labels) == 8 for each in drawn)


def test_result_blocks_maps_are_slices_with_grid_and_bars_without(voxels: Masker) -> None:
    axis = Axis.numbered("component", 14), Axis("column", voxels.columns)
    estimate = {"maps": Quantity(np.random.default_rng(0).normal(size=(14, len(voxels.columns))), "map", axis)}
    assert sum(isinstance(block, Slices) for block in result_blocks(estimate, Question(), voxels)) == 12
    listed = [block for block in result_blocks(estimate, Question()) if isinstance(block, Bars)]
    assert len(listed) == 12
    assert listed[0].title == "Component 1"


def test_slices_go_through_middle_of_strongest_region() -> None:
    """Its peak is at the border of the brain, where a cut would show one cell of it."""
    inside = np.zeros((9, 9, 9), dtype=np.uint8)
    inside[1:8, 1:8, 1:8] = 1
    inside[0, 4, 4] = 1
    space = Masker.from_array(inside, np.eye(4), "mask")
    volume = np.zeros(inside.shape)
    volume[0:5, 4, 4] = [-1.0, -0.9, -0.8, -0.7, -0.6]
    volume[6, 6, 6] = 0.95  # of the other sign, and elsewhere
    (cut,) = slices(space.transform(volume[..., None]), space, ["1"])
    assert [plane.name for plane in cut.planes] == ["x = 2 mm", "y = 4 mm", "z = 4 mm"]
    assert "reaches -1;" in cut.about


def test_slices_go_through_strongest_voxel(voxels: Masker) -> None:
    values = np.zeros((1, len(voxels.columns)))
    values[0, 7] = -2.0
    (cut,) = slices(values, voxels, ["1"])
    assert len(cut.planes) == 3
    for plane in cut.planes:
        cells = [cell for line in plane.cells for cell in line if cell is not None]
        assert min(cells) == -5
        assert sum(cell == -5 for cell in cells) == 1
        assert set(cells) == {0, -5}


def test_slices_of_fine_grid_are_averaged() -> None:
    space = Masker.from_array(np.ones((120, 90, 60), dtype=np.uint8), np.eye(4), "mask")
    (cut,) = slices(np.ones((1, len(space.columns))), space, ["1"])
    for plane in cut.planes:
        assert max(len(plane.cells), max(map(len, plane.cells))) <= 44
        assert {cell for line in plane.cells for cell in line} == {5}


def test_slices_of_zeros_or_nan_are_empty(voxels: Masker) -> None:
    for value in (0.0, math.nan):
        (cut,) = slices(np.full((1, len(voxels.columns)), value), voxels, ["1"])
        assert {cell for line in cut.planes[0].cells for cell in line} <= {0, None}
