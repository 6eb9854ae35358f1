"""Designs: levels, interactions and site effects by public rules, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.data.design import Design
from zerosum.errors import BadData
from zerosum.kernel.units import Units

DESIGN = Design(
    response="sick",
    ranges={"age": (20, 80)},
    levels={"sex": ("f", "m"), "ward": ("a", "b", "c"), "sick": (0, 1)},
    interactions=(("age", "sex"), ("sex", "ward")),
    site_effects=True,
    sites=("north", "south"),
)


def test_columns_and_their_ranges() -> None:
    assert DESIGN.read == ("age", "sex", "ward", "sick")
    assert DESIGN.columns == (
        *("age", "sex=m", "ward=b", "ward=c", "age:sex=m", "sex=m:ward=b", "sex=m:ward=c", "site=south", "sick"),
    )
    assert DESIGN.lower.tolist() == [20, 0, 0, 0, 0, 0, 0, 0, 0]
    assert DESIGN.upper.tolist() == [80, 1, 1, 1, 80, 1, 1, 1, 1]
    assert DESIGN.reference == {"sex": "f", "ward": "a", "site": "north"}


def test_rows_become_what_the_names_say() -> None:
    rows = np.array([[30.0, 0, 2, 1], [95.0, 1, 1, 0]])  # age 95 is beyond its range
    north, south = (DESIGN.expand(Units.from_rows(rows), site).rows for site in ("north", "south"))
    assert north.tolist() == [[30, 0, 0, 1, 0, 0, 0, 0, 1], [80, 1, 1, 0, 80, 1, 0, 0, 0]]
    assert np.array_equal(south[:, -2], [1, 1])
    assert np.all((south >= DESIGN.lower) & (south <= DESIGN.upper))


def test_a_row_is_expanded_alone_whoever_else_is_there() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [rng.uniform(0, 100, 50), rng.integers(0, 2, 50), rng.integers(0, 3, 50), rng.integers(0, 2, 50)]
    )
    whole = DESIGN.expand(Units.from_rows(rows), "south").rows
    alone = np.vstack([DESIGN.expand(Units.from_rows(rows[at : at + 1]), "south").rows for at in range(50)])
    assert np.array_equal(whole, alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"response": "death"}, "needs a public range, or two levels"),
        ({"levels": {"sex": ("f", "m"), "sick": (0, 1, 2)}}, "two levels"),
        ({"ranges": {"age": (80, 20)}}, "the lower one first"),
        ({"levels": {"sex": ("f",), "sick": (0, 1)}}, "at least two"),
        ({"ranges": {"age": (20, 80), "sex": (0, 1)}}, "numeric or categorical"),
        ({"interactions": (("age", "height"),)}, "two or more features"),
        ({"interactions": (("age",),)}, "two or more features"),
        ({"ordinary": {"sex": (0, 1)}}, "numeric features"),
    ],
)
def test_bad_designs_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design(**DESIGN.model_dump() | {"interactions": (), **change})


def test_data_of_another_shape_are_refused() -> None:
    with pytest.raises(BadData, match="columns of the design"):
        DESIGN.expand(Units.from_rows(np.zeros((3, 3))), "north")


def test_missing_values_are_what_the_design_says() -> None:
    filled = DESIGN.model_copy(
        update={"missing": {"age": 50.0, "ward": "b"}, "interactions": (), "site_effects": False}
    )
    rows = filled.expand(Units.from_rows(np.array([[np.nan, 0, np.nan, 1], [30.0, 1, 0, 0]])), "north").rows
    assert rows.tolist() == [[50, 0, 1, 0, 1], [30, 1, 0, 0, 0]]
    for wrong in ({"ward": "z"}, {"age": "old"}, {"height": 3.0}):
        with pytest.raises(ValueError, match="is taken for a missing"):
            Design(**DESIGN.model_dump() | {"missing": wrong})
