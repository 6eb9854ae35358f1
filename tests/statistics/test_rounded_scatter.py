"""Whole numbers keep the bound that is claimed for them, whoever computes."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.native_kernels import added, drawn, integers
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.rounded_scatter import LARGEST_NORM, STEP, TARGET, RoundedScatter, _drawn, round_rows
from zerosum.statistics.scatter import Scatter

Floats = NDArray[np.float64]


@cache
def long_rows() -> Floats:
    """Rows that would be too long if they were rounded up and down as drawn: searched for among 400 000 whose entries
    lie in the middle between two whole numbers."""
    rng, columns = np.random.default_rng(3), 20
    rows = (1 + 1e-7 * rng.normal(size=(400_000, columns))) * rng.choice([-1, 1], columns)
    stat = RoundedScatter(columns=columns)
    weighed = stat._weighed(Units(rows), TARGET)
    whole = np.floor(weighed + _drawn(weighed))
    return np.asarray(rows[np.sum(whole * whole, axis=1) > LARGEST_NORM**2])[:100]


def test_rounded_scatter_rows_too_long_are_rounded_towards_zero(computed: str) -> None:
    rows = long_rows()
    assert len(rows) > 3
    stat = RoundedScatter(columns=20)
    entry = math.floor(TARGET / math.sqrt(20))
    for row in rows:
        whole = integers(stat, row[None, :])
        assert {whole[i][i] for i in range(20)} == {entry**2}
        assert whole[0][1] == entry**2 * int(np.sign(row[0] * row[1]))
    rng, longest = np.random.default_rng(3), 0.0
    for columns in (5, 11, 40, 200):
        stat = RoundedScatter(columns=columns)
        for row in rng.normal(size=(60, 1, columns)):
            trace = sum(line[i] for i, line in enumerate(integers(stat, row)))
            assert trace <= LARGEST_NORM**2
            longest = max(longest, trace / TARGET**2)
    assert longest > 1 + 1 / TARGET, "no row was rounded up: more than the target would not be needed"


def test_rounded_scatter_records_and_neighbours_stay_within_sensitivity(computed: str) -> None:
    """In whole numbers: |x|^4 <= L^4 alone, and two are |x|^4 + |y|^4 - 2 (x'y)^2 <= 2 L^4 apart."""
    rng, longest = np.random.default_rng(4), int(LARGEST_NORM)
    for columns in (1, 2, 4, 7, 8, 33, 60):
        for params in ({}, {"lift": 0.7}, {"clip": 0.3 * columns, "normalise": False}):
            stat = RoundedScatter(columns=columns, **params)
            bound = stat.sensitivity(Adjacency.ADD_REMOVE) ** 2 * TARGET**4
            rows = [*drawn(20, columns, rng, odd=True), *np.eye(columns)[:3], *np.ones((1, columns))]
            alike = [np.where(np.arange(columns) < columns // 2, one, 0.0) for one in (1.0, -1.0)]
            with np.errstate(all="ignore"):
                said = [integers(stat, row[None, :]) for row in [*rows, *alike, alike[0][::-1]]]
            for one in said:
                assert _square(one) <= min(bound, longest**4)
                for other in said:
                    apart = added(one, [[-each for each in line] for line in other])
                    assert _square(apart) <= 2 * longest**4
    for adjacency, plain in ((Adjacency.ADD_REMOVE, 1.0), (Adjacency.REPLACE_ONE, math.sqrt(2))):
        for columns in (1, 3, 784, 2000, 20_000, 10**6):
            stat = RoundedScatter(columns=columns)
            claimed = stat.sensitivity(adjacency)
            assert claimed >= plain * (longest / TARGET) ** 2
            assert claimed <= plain * (2048 / 2046) ** 2 * (1 + 1e-5 * math.sqrt(columns))


def _square(matrix: list[list[int]]) -> int:
    return sum(each * each for line in matrix for each in line)


def test_rounded_scatter_record_alone_and_among_others_is_same(computed: str) -> None:
    """To the last whole number, whoever stands beside it in a pair, a panel or a strip."""
    rng = np.random.default_rng(5)
    for columns, count in ((3, 300), (20, 30), (48, 65), (50, 40), (97, 21)):
        for params in ({}, {"lift": 0.4}, {"center": rng.normal(size=columns)}, {"clip": 5.0, "normalise": False}):
            stat = RoundedScatter(columns=columns, **params)
            rows = drawn(count, columns, rng, odd=True)
            rows[-1] = long_rows()[0] if columns == 20 else 1.0
            with np.errstate(all="ignore"):
                alone = [integers(stat, row[None, :]) for row in rows]
                total = [[0] * stat.width for _ in range(stat.width)]
                for one in alone:
                    total = added(total, one)
                assert integers(stat, rows) == total
                assert integers(stat, rows[rng.permutation(count)]) == total


@pytest.mark.parametrize("count", [255, 256, 257, 1023, 1024, 1025, 3000])
def test_rounded_scatter_longest_32_bit_sums_do_not_wrap(count: int, computed: str) -> None:
    """All rows alike, along a column or between two, so that every product has the same sign and is as large as any."""
    columns = 50
    for at in (0, 7, 8, 47, 48, 49):
        rows = np.zeros((count, columns))
        rows[:, at] = -1e9
        alone = RoundedScatter(columns=columns)
        whole = integers(alone, rows)
        assert whole[at][at] in {count * math.floor(TARGET) ** 2, count * math.ceil(TARGET) ** 2}
        assert _square(whole) == whole[at][at] ** 2
        rows[:, (at + 3) % columns] = 1e9
        stat = RoundedScatter(columns=columns, clip=1e-9, normalise=False)
        mixed, one = integers(stat, rows), integers(stat, rows[:1])
        half = TARGET / math.sqrt(2)
        assert one[at][at] in (math.floor(half) ** 2, math.ceil(half) ** 2)
        assert mixed == [[count * each for each in line] for line in one]
        assert mixed[at][(at + 3) % columns] < 0


def test_round_rows_keeps_mean_of_entries() -> None:
    """Whatever stands beside them; and not all alike that are equal."""
    rng = np.random.default_rng(11)
    for value in (0.0, 0.25, -0.4, 7.9, -1000.5, 1300.0):
        rows = np.column_stack([np.full(40_000, value), rng.normal(size=40_000), np.full(40_000, -value)])
        round_rows(rows)
        for column, mean in ((0, value), (2, -value)):
            share = mean - math.floor(mean)
            assert set(rows[:, column]) == {math.floor(mean), math.ceil(mean)}
            assert abs(np.mean(rows[:, column]) - mean) <= 5 * math.sqrt(share * (1 - share) / 40_000)
        if value % 1:
            assert abs(np.corrcoef(rows[:, 0], rows[:, 2])[0, 1]) < 0.03


@pytest.mark.parametrize("world", ["isotropic", "one factor", "small columns", "zeros and ones"])
def test_rounded_scatter_rounding_error_is_within_planned_bound(world: str) -> None:
    """Also where records are alike, so that what is rounded away of each would add up if it were always the same."""
    rng = np.random.default_rng(6)
    for columns in (12, 40, 160):
        rows = rng.normal(size=(20_000, columns))
        scales = np.geomspace(1, 1e-4, columns)
        if world == "one factor":
            rows = (rows[:, :1] + 0.1 * rows) * scales
        elif world == "small columns":
            rows = np.column_stack([3000 + 200 * rows[:, :1], rows[:, 1:] < -0.5])
        elif world == "zeros and ones":
            rows = (rows < 0).astype(float)
        stat = RoundedScatter(columns=columns)
        one, other = (each.total(Units(rows)) for each in (Scatter(columns=columns), stat))
        planned = math.sqrt(2 * len(rows) / columns) * STEP
        apart, places = coordinates.unpack(one - other, columns), np.arange(columns)
        own = apart[places, places]
        apart[places, places] = 0.0
        assert 0.1 * planned < float(np.std(apart)) < 2 * planned
        assert np.all(-own <= len(rows) / (4 * TARGET**2) + 9 * planned)  # what a square gains when it is rounded
