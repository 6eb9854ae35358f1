"""Who is held out is a unit's own affair."""

from __future__ import annotations

import array_api_strict
import numpy as np

from zerosum.compute.units import Units
from zerosum.statistics.holdout import held_out, units_of_part


def test_held_out_side_of_unit_is_independent_of_others() -> None:
    rng = np.random.default_rng(0)
    people = [rng.normal(size=(int(rng.integers(1, 4)), 3)) for _ in range(2000)]
    out = held_out(Units.from_list(people), 0.2)
    assert abs(np.mean(out) - 0.2) < 4 * np.sqrt(0.16 / 2000)
    order = rng.permutation(2000)[:700]
    assert np.array_equal(held_out(Units.from_list([people[at] for at in order]), 0.2), out[order])
    more = held_out(Units.from_list(people), 0.5)
    assert np.all(more[out])


def test_chosen_parts_are_complete_and_disjoint() -> None:
    rows = np.random.default_rng(1).normal(size=(300, 2))
    units = Units(rows)
    fitted, judged = units_of_part(units, "fitted", 0.3), units_of_part(units, "held-out", 0.3)
    assert len(fitted) + len(judged) == 300
    assert {tuple(row) for row in fitted.rows} | {tuple(row) for row in judged.rows} == {tuple(row) for row in rows}
    assert units_of_part(units, "all", 0.3) is units
    strict = units_of_part(Units(array_api_strict.asarray(rows)), "held-out", 0.3)
    assert np.array_equal(np.from_dlpack(strict.rows), judged.rows)
