"""Designs: levels, interactions and site effects by public rules, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.data.formula import Formula
from zerosum.data.spool import Storage
from zerosum.errors import BadData

DESIGN = Design(
    response="sick",
    ranges={"age": (20, 80)},
    levels={"sex": ("f", "m"), "ward": ("a", "b", "c"), "sick": (0, 1)},
    interactions=(("age", "sex"), ("sex", "ward")),
    site_effects=True,
    sites=("north", "south"),
)


def fault_of(fields: Mapping[str, object]) -> str:
    """Field and message of the one fault of a design, without the values that pydantic quotes."""
    with pytest.raises(ValidationError) as refused:
        Design.model_validate(fields)
    (fault,) = refused.value.errors()
    return f"{fault['loc']} {fault['msg']}"


def test_design_columns_and_ranges_follow_declaration() -> None:
    assert DESIGN.read == ("age", "sex", "ward", "sick")
    assert DESIGN.columns == (
        *("age", "sex=m", "ward=b", "ward=c", "age:sex=m", "sex=m:ward=b", "sex=m:ward=c", "site=south", "sick"),
    )
    assert DESIGN.lower.tolist() == [20, 0, 0, 0, 0, 0, 0, 0, 0]
    assert DESIGN.upper.tolist() == [80, 1, 1, 1, 80, 1, 1, 1, 1]
    assert DESIGN.reference == {"sex": "f", "ward": "a", "site": "north"}


def test_design_expand_rows_have_values_of_columns() -> None:
    rows = np.array([[30.0, 0, 2, 1], [95.0, 1, 1, 0]])  # age 95 is beyond its range
    north, south = (DESIGN.expand(Units.from_rows(rows), site).rows for site in ("north", "south"))
    assert north.tolist() == [[30, 0, 0, 1, 0, 0, 0, 0, 1], [80, 1, 1, 0, 80, 1, 0, 0, 0]]
    assert np.array_equal(south[:, -2], [1, 1])
    assert np.all((south >= DESIGN.lower) & (south <= DESIGN.upper))


def test_design_expand_row_is_independent_of_others() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [rng.uniform(0, 100, 50), rng.integers(0, 2, 50), rng.integers(0, 3, 50), rng.integers(0, 2, 50)]
    )
    whole = DESIGN.expand(Units.from_rows(rows), "south").rows
    alone = np.vstack([DESIGN.expand(Units.from_rows(rows[at : at + 1]), "south").rows for at in range(50)])
    assert np.array_equal(whole, alone)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"response": "death"}, "'death'"),
        ({"levels": {"sex": ("f", "m"), "sick": (0,)}}, "response"),
        ({"ranges": {"age": (80, 20)}}, "'age'"),
        ({"levels": {"sex": ("f",), "sick": (0, 1)}}, "'sex'"),
        ({"ranges": {"age": (20, 80), "sex": (0, 1)}}, "'sex'"),
        ({"interactions": (("age", "height"),)}, "height"),
        ({"interactions": (("age",),)}, "interaction"),
        ({"ordinary": {"sex": (0, 1)}}, "'sex'"),
        ({"offset": "age", "exposure": "age"}, "exposure"),
        ({"offset": "sex"}, "offset"),
        ({"weight": "age"}, "weight"),
        ({"exposure": "dose", "ranges": {"age": (20, 80), "dose": (0, 1)}}, "exposure"),
        ({"offset": "age", "weight": "age"}, "weight"),
        ({"hold_out": 0.2, "ranges": {"draw": (0, 1)}}, "'draw'"),
        ({"hold_out": 0.9}, "hold_out"),
        ({"indicators": ("age",)}, "'age'"),
        ({"measured_in": {"sex": "year"}}, "'sex'"),
        ({"formula": "age + height"}, "'height'"),
        ({"formula": "age + sick"}, "'sick'"),
        ({"formula": "ill ~ age"}, "response"),
        ({"formula": "age*sex", "interactions": (("age", "ward"),)}, "interactions"),
    ],
)
def test_design_bad_field_is_refused(change: dict[str, object], named: str) -> None:
    assert named in fault_of(DESIGN.model_dump() | {"interactions": (), **change})


def test_design_data_of_other_width_are_refused() -> None:
    with pytest.raises(BadData, match="4"):
        DESIGN.expand(Units.from_rows(np.zeros((3, 3))), "north")


def test_design_missing_values_are_filled_by_rules() -> None:
    filled = DESIGN.model_copy(
        update={"missing": {"age": 50.0, "ward": "b"}, "interactions": (), "site_effects": False}
    )
    rows = filled.expand(Units.from_rows(np.array([[np.nan, 0, np.nan, 1], [30.0, 1, 0, 0]])), "north").rows
    assert rows.tolist() == [[50, 0, 1, 0, 1], [30, 1, 0, 0, 0]]
    for wrong in ({"ward": "z"}, {"age": "old"}, {"height": 3.0}):
        assert repr(next(iter(wrong))) in fault_of(DESIGN.model_dump() | {"missing": wrong})


# ---- offsets, weights, units held out -------------------------------------------------------------------------------

ROLES = Design(
    response="falls",
    ranges={"age": (20, 80), "years": (0.5, 10), "trust": (0, 4), "falls": (0, 30)},
    exposure="years",
    weight="trust",
    hold_out=0.25,
    measured_in={"age": "year", "years": "year"},
    sites=("north", "south"),
)


def test_design_offset_weight_and_draw_stand_before_response() -> None:
    assert ROLES.features == ("age",)
    assert ROLES.read == ("age", "years", "trust", "falls")
    assert ROLES.columns == ("age", "log years", "trust", "draw", "falls")
    assert ROLES.lower == pytest.approx([20, np.log(0.5), 0, 0, 0])
    assert ROLES.upper == pytest.approx([80, np.log(10), 4, 1, 30])
    assert ROLES.center.shape == (1,)
    assert ROLES.roles == {
        **{"offset": "log years", "weight": "trust", "draw": "draw", "hold_out": 0.25},
        "measured_in": {"age": "year"},
    }
    rows = ROLES.expand(Units.from_rows(np.array([[30.0, 2, 1, 3], [40, 99, 5, 0]])), "south").rows
    assert rows[:, [0, 1, 2, 4]] == pytest.approx(np.array([[30, np.log(2), 1, 3], [40, np.log(10), 4, 0]]))


def test_design_draw_is_one_for_all_rows_of_unit() -> None:
    people = Units.from_list([np.array([[30.0, 2, 1, 3]] * (1 + at % 3)) for at in range(300)])
    one, again = (ROLES.expand(people, "north") for _ in range(2))
    drawn = [set(rows[:, 3]) for rows in one.each()]
    assert all(len(each) == 1 for each in drawn)
    assert len(set.union(*drawn)) == 300
    assert np.array_equal(one.rows, again.rows)
    assert np.mean([next(iter(each)) < 0.25 for each in drawn]) == pytest.approx(0.25, abs=0.1)


def test_design_offset_without_exposure_is_clamped_only() -> None:
    plain = Design(response="y", ranges={"x": (0, 1), "base": (-2, 2), "y": (-5, 5)}, offset="base")
    assert plain.roles == {"offset": "base"}
    assert plain.columns == ("x", "base", "y")
    assert plain.expand(Units.from_rows(np.array([[0.5, -7.0, 1.0]])), "a").rows.tolist() == [[0.5, -2, 1]]


# ---- formulas, units of measurement, missing values ------------------------------------------------------------------


def test_design_formula_equals_interactions() -> None:
    given = DESIGN.model_dump() | {"interactions": ()}
    listed = Design(**given | {"interactions": (("age", "sex"),)})
    for formula in ("age + sex + ward + age:sex", "age*sex + ward", "sick ~ age + sex + ward+age : sex"):
        assert Design(**given | {"formula": formula}).columns == listed.columns
    only = Design(**given | {"formula": "age"})
    assert only.read == ("age", "sick")
    assert only.columns == ("age", "site=south", "sick")
    assert Formula.parse("a*b*c").interactions == (("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c"))
    named = {key: value for key, value in given.items() if key != "response"}
    assert Design(**named | {"formula": "sick ~ age"}).response == "sick"


@pytest.mark.parametrize(
    "formula", ["", "age +", "f(age)", "age:", "age - 1", "a*b:c", "(a + b):c", "a^2", "a:b", "a + a:b"]
)
def test_formula_bad_syntax_is_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        Formula.parse(formula)
    for wrong in ("~ a", "y ~ z ~ a"):
        with pytest.raises(ValueError, match="response"):
            Formula.parse(wrong)


def test_design_products_have_units_of_measurement() -> None:
    design = Design(
        response="pressure",
        ranges={"age": (20, 80), "mass": (40, 150), "pressure": (60, 220)},
        levels={"sex": ("f", "m")},
        formula="age*mass + sex + age:sex",
        measured_in={"age": "year", "mass": "kg", "pressure": "mmHg"},
    )
    assert design.roles["measured_in"] == {
        **{"age": "year", "mass": "kg", "pressure": "mmHg"},
        **{"age:mass": "year kg", "age:sex=m": "year"},
    }


def test_design_own_rows_rule_and_missing_indicators_fill_columns() -> None:
    design = Design(
        response="sick",
        ranges={"age": (20, 80)},
        levels={"ward": ("a", "b"), "sick": (0, 1)},
        missing={"age": "own-rows", "ward": "b"},
        indicators=("ward", "age"),
    )
    nan = np.nan
    people = [np.array([[30.0, 0, 1], [nan, nan, 1], [99.0, 1, 0]]), np.array([[nan, 1.0, 0]])]
    found = design.expand(Units.from_list(people), "a")
    assert design.columns == ("age", "ward=b", "ward missing", "age missing", "sick")
    first, second = found.each()
    assert first.tolist() == [[30, 0, 0, 0, 1], [55, 1, 1, 1, 1], [80, 1, 0, 0, 0]]
    assert second.tolist() == [[50, 1, 0, 1, 0]]
    alone = [next(design.expand(Units.from_list([rows]), "a").each()) for rows in people]
    assert all(np.array_equal(one, other) for one, other in zip(alone, (first, second), strict=True))
    records = design.expand(Units.from_rows(people[0]), "a")  # no other rows: the middle
    assert records.rows[1].tolist() == [50, 1, 1, 1, 1]
    assert "'ward'" in fault_of(design.model_dump() | {"missing": {"ward": "own-rows", "age": 3.0}})


WHOLE = Design(
    response="sick",
    ranges={"age": (20, 80), "chol": (100, 400)},
    levels={"sex": ("f", "m"), "sick": (0, 1)},
    missing={"chol": "complete-cases", "sick": "complete-cases", "age": 50.0},
)


def test_design_complete_cases_give_rows_with_missing_values_weight_zero() -> None:
    assert WHOLE.columns == ("age", "chol", "sex=m", "complete", "sick")
    assert WHOLE.roles == {"weight": "complete"}
    gone = np.nan
    rows = np.array([[gone, 200.0, 1, 1], [30, gone, 0, 1], [40, 300, 1, gone]])
    found = WHOLE.expand(Units.from_rows(rows), "north").rows
    assert found[:, 3].tolist() == [1, 0, 0]
    assert found[0].tolist() == [50, 200, 1, 1, 1]
    assert np.all(np.isfinite(found))


def test_design_complete_cases_multiply_a_column_of_weights() -> None:
    weighted = WHOLE.model_copy(update={"ranges": {**WHOLE.ranges, "share": (0.0, 2.0)}, "weight": "share"})
    rows = np.array([[30, 200.0, 0, 1.5, 1], [30, np.nan, 0, 1.5, 1]])
    assert weighted.columns == ("age", "chol", "sex=m", "share", "sick")
    assert weighted.expand(Units.from_rows(rows), "north").rows[:, 3].tolist() == [1.5, 0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"missing": {"sick": 1}}, "outcomes"),
        ({"indicators": ["chol"]}, "indicator"),
        ({"ranges": {"age": (20, 80), "complete": (0, 1)}, "missing": {"age": "complete-cases"}}, "'complete'"),
    ],
)
def test_design_complete_cases_that_do_not_fit_are_refused(change: dict[str, object], word: str) -> None:
    assert word in fault_of(WHOLE.model_dump(exclude_defaults=True) | change)


@pytest.mark.parametrize("memory", [None, 1, 30_000])
def test_design_beyond_the_memory_setting_has_the_same_bits(
    memory: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws of units, means over a unit's own rows and functions of columns, over many blocks."""
    design = Design(
        response="sick",
        ranges={"age": (20, 80), "dose": (1, 9)},
        levels={"sex": ("f", "m"), "sick": (0, 1)},
        formula="bs(age, df=4) + log(dose) + dose + sex + sex:dose",
        missing={"age": "own-rows"},
        hold_out=0.25,
    )
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(10, 90, 3000), rng.uniform(0, 10, 3000), *rng.integers(0, 2, (2, 3000))])
    rows[rng.random(3000) < 0.1, 0] = np.nan
    rows[2000:] = rows[:1000]  # units that are equal have different draws, across blocks
    table = dict(zip(("age", "dose", "sex", "sick"), rows.T, strict=True))
    units = Units.from_groups(np.column_stack([table[name] for name in design.read]), np.arange(3000) // 2)
    whole = design.expand(units, "north")
    monkeypatch.setattr("zerosum.data.design._EXPANDED_ROWS", 100)
    monkeypatch.setattr("zerosum.compute.units._DRAWN_ROWS", 77)
    monkeypatch.setattr("zerosum.data.spool._FIRST_CHUNK", 1000)
    stored = design.expand(units, "north", storage=Storage(memory, tmp_path))
    assert isinstance(stored.rows, np.memmap) == (memory is not None)
    assert stored.rows.tobytes() == whole.rows.tobytes()
    assert stored.offsets is units.offsets
