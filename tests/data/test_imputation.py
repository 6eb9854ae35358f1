"""Draws of missing values from a public model: a function of one unit and of public values, with the model's
distribution.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.data.imputation import ColumnModel, Imputation, ImputationModel
from zerosum.errors import BadParameter, BadStudy

# Two components: smokers are old, and sick.
MODEL = ImputationModel(
    columns={
        "age": ColumnModel(quantiles=[[20, 30, 40], [40, 60, 80]], probabilities=[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]),
        "smoker": ColumnModel(levels=("no", "yes"), probabilities=[[0.7, 0.1, 0.2], [0.2, 0.8, 0.0]]),
        "sick": ColumnModel(levels=(0, 1), probabilities=[[0.9, 0.1, 0.0], [0.4, 0.6, 0.0]]),
    }
)
DESIGN = Design(
    response="sick",
    ranges={"age": (20, 80)},
    levels={"smoker": ("no", "yes"), "sick": (0, 1)},
    missing={"smoker": "impute", "age": "impute"},
)


SIZES = (1, 3, 6, 14, 16)  # rows of five people


def imputation(design: Design = DESIGN) -> Imputation:
    found = design.imputation(MODEL)
    assert found is not None
    return found


def people(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.uniform(20, 80, count), rng.integers(0, 2, count), rng.integers(0, 2, count)])
    rows[rng.random(count) < 0.3, 1] = np.nan
    rows[rng.random(count) < 0.3, 0] = np.nan
    return rows


def test_imputed_values_have_the_distribution_of_the_model() -> None:
    # Young and not sick: P(component 1) is proportional to .9 * .9 * .8, P(component 2) to .2 * .4 * 1.
    weights = np.array([0.9 * 0.9 * 0.8, 0.2 * 0.4 * 1.0])
    expected = weights @ [0.1 / 0.8, 0.8] / weights.sum()
    rows = np.tile([25.0, np.nan, 0.0], (400, 1))
    units = Units(rows)
    _, filled = imputation().completed(units, units.own_draws(twins="apart"))
    assert len(filled) == 4000
    # the standard deviation of the mean of 4000 independent draws is .007, and stratified ones have less
    assert filled[:, 1].mean() == pytest.approx(expected, abs=0.025)
    assert np.all(filled[:, 0] == 25)


def test_imputed_numbers_lie_in_bins_with_the_probability_of_the_model() -> None:
    weights = np.array([0.1 * 0.1, 0.8 * 0.6])  # smoker, sick
    expected = weights @ [0.1, 0.8] / weights.sum()
    units = Units(np.tile([np.nan, 1.0, 1.0], (400, 1)))
    _, filled = imputation().completed(units, units.own_draws(twins="apart"))
    assert np.mean(filled[:, 0] > 40) == pytest.approx(expected, abs=0.025)
    # half of the mass of a bin lies below its middle quantile
    assert np.mean(filled[filled[:, 0] > 40, 0] > 60) == pytest.approx(0.5, abs=0.04)
    assert filled[:, 0].min() >= 20
    assert filled[:, 0].max() <= 80


def test_design_with_imputation_copies_units_with_missing_values_only() -> None:
    rows = np.array([[30.0, 1.0, 0.0], [30.0, np.nan, 1.0], [np.nan, np.nan, 1.0]])
    found = DESIGN.expand(Units(rows), "north", imputation=imputation())
    assert found.offsets is not None
    assert found.offsets.tolist() == [0, 1, 11, 21]
    assert np.all(np.isfinite(found.rows))
    # of the first copied person only what was missing differs between the copies
    assert np.all(found.rows[1:11, 0] == 30)
    assert set(found.rows[1:11, 1].tolist()) == {0.0, 1.0}


def test_design_with_imputation_maps_each_unit_alone_to_the_same_bits() -> None:
    """Neighbouring data are mapped to neighbouring data: so every statistic keeps its sensitivity."""
    # Equal units differ by a running count, so that the units here are different.
    rows = np.unique(people(80), axis=0)
    rows = rows[[at for at in range(len(rows)) if not np.isnan(rows[at, 0])]]
    drawn = imputation()
    whole = DESIGN.expand(Units(rows), "north", imputation=drawn)
    assert whole.offsets is not None
    for at in range(len(rows)):
        alone = DESIGN.expand(Units(rows[at : at + 1]), "north", imputation=drawn)
        own = whole.rows[whole.offsets[at] : whole.offsets[at + 1]]
        assert np.array_equal(own, alone.rows)


def test_design_with_imputation_of_persons_counts_rows_of_all_copies() -> None:
    rows = people(40)
    rows[5, 0] = np.nan
    owners = Units(rows, np.cumsum([0, *SIZES]))
    found = DESIGN.expand(owners, "north", imputation=imputation())
    assert found.offsets is not None
    # a unit has at most twelve rows after copying, unless it has more itself
    assert owners.offsets is not None
    gaps = [bool(np.isnan(rows[a:b]).any()) for a, b in pairwise(owners.offsets)]
    expected = [size * times if gap else size for gap, size, times in zip(gaps, SIZES, (10, 4, 2, 1, 1), strict=True)]
    assert np.diff(found.offsets).tolist() == expected
    assert len(found.rows) == found.offsets[-1]


def test_imputed_values_of_garbage_never_raise() -> None:
    """Cells come from a site, and the plan from a coordinator: no cell may make a site fail."""
    rng = np.random.default_rng(1)
    values = np.array([np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0, 1.0, 7.0, 0.5])
    rows = rng.choice(values, (500, 3))
    found = DESIGN.expand(Units(rows), "north", strict=False, imputation=imputation())
    assert np.all(np.isfinite(found.rows) | np.isnan(found.rows))


@pytest.mark.parametrize(
    "design",
    [
        {"missing": {"sick": "impute"}},
        {"missing": {"income": "impute"}},
        {"missing": {"age": "impute"}, "imputations": 13},
    ],
)
def test_design_refuses_imputation_of_what_is_no_feature(design: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Design.model_validate(DESIGN.model_dump() | design)


def test_imputation_refuses_a_model_that_does_not_fit() -> None:
    without = ImputationModel(columns={name: MODEL.columns[name] for name in ("age", "smoker")})
    with pytest.raises(BadParameter, match="'sick'"):
        DESIGN.imputation(without)
    other = DESIGN.model_copy(update={"levels": {"smoker": ("no", "often"), "sick": (0, 1)}})
    with pytest.raises(BadParameter, match="'often'"):
        other.imputation(MODEL)
    numbers = DESIGN.model_copy(update={"ranges": {"age": (20, 80), "smoker": (0, 1)}, "levels": {"sick": (0, 1)}})
    with pytest.raises(BadParameter, match="'smoker'"):
        numbers.imputation(MODEL)
    with pytest.raises(BadParameter):
        DESIGN.imputation(None)
    with pytest.raises(BadParameter):
        DESIGN.model_copy(update={"missing": {}}).imputation(MODEL)


def test_imputation_of_cox_regression_has_one_draw() -> None:
    design = Design(
        response="sick",
        time="months",
        ranges={"age": (20, 80), "months": (0, 60)},
        levels={"smoker": ("no", "yes"), "sick": (0, 1)},
        missing={"smoker": "impute"},
    )
    months = ColumnModel(quantiles=[[0, 60]], probabilities=[[1.0, 0.0], [1.0, 0.0]])
    drawn = design.imputation(ImputationModel(columns={**MODEL.columns, "months": months}))
    assert drawn is not None
    assert drawn.copies == 1
    rows = np.column_stack([people(50), np.full(50, 12.0)])[:, [0, 1, 3, 2]]
    rows[:, 0] = 50.0
    found = design.expand(Units(rows), "north", imputation=drawn)
    assert found.offsets is None
    assert len(found) == 50


def test_model_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(MODEL.content())
    again = ImputationModel.load(path)
    assert again.content() == MODEL.content()
    for text in ("{", "[]", '{"columns": {}}', '{"columns": {"a": {"levels": ["x"], "probabilities": [[2, 0]]}}}'):
        path.write_text(text)
        with pytest.raises(BadStudy):
            ImputationModel.load(path)
