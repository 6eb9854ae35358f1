"""Nobody decides for others: what a unit contributes is the same alone and among any others, to the last bit of every
decision, and nobody moves a sum by more than its sensitivity.

No statistic is known to these tests but by its parameters (tests/helpers/statistic_cases.py): units near its
decisions are found by bisection, wherever its contribution jumps between two units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import array_api_strict
import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from helpers.statistic_cases import EXTREME, ONE_ROW, SMALL, WHOLE_SITE, WIDE, Case, with_holes
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel.grid import BLOCK_ROWS
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.sources import sums

Floats = NDArray[np.float64]

SUMS = [case for case in SMALL + WIDE if case[0] not in WHOLE_SITE]
# around the numbers of rows where BLAS changes kernels or cuts its blocks
COUNTS = [1, 2, 3, 4, 7, 8, 9, 16, 17, 32, 33, 48, 49, 64, 65, 96, 97, 171, 240, 241, 250, 251, 400, 401]
EXTREMES = [5e-324, 1e-308, 1e-200, 1e-154, 1e-20, 1.0, 1e20, 1e154, 1e200, 1.7e308]
ROUNDING = 1e-10  # what adding up may do, over the bound and for each unit; a decision does more


def namespaces() -> dict[str, Callable[[Floats], Any]]:
    known: dict[str, Callable[[Floats], Any]] = {
        "numpy": np.asarray,
        "numpy in columns": np.asfortranarray,
        "array_api_strict": array_api_strict.asarray,
    }
    if find_spec("torch") is not None:
        import torch  # type: ignore[import-not-found,unused-ignore]

        known["torch"] = torch.from_numpy
        if torch.cuda.is_available():
            known["cuda"] = lambda rows: torch.from_numpy(np.ascontiguousarray(rows)).cuda()
    return known


NAMESPACES = namespaces()


@contextmanager
def threads(count: int) -> Iterator[None]:
    with threadpool_limits(count, user_api="blas"):
        yield


# ---- units near decisions ---------------------------------------------------------------------------------------


def alone(stat: BoundedStatistic, unit: Floats, as_array: Callable[[Floats], Any] = np.asarray) -> Floats:
    listed = Units.from_list([unit])
    return stat.total(Units(as_array(np.asarray(listed.rows)), listed.offsets))


def single(stat: BoundedStatistic, unit: Floats, as_array: Callable[[Floats], Any] = np.asarray) -> Floats:
    """The same of a record."""
    return stat.total(Units(as_array(unit)))


def jump(stat: BoundedStatistic, one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Two units between these, next to each other to the last bit, between which the contribution still differs most:
    on either side of a decision, if there is one on the way."""
    told = single if len(one) == 1 else alone
    here, there = told(stat, one), told(stat, other)
    for _ in range(1100):
        middle = one / 2 + other / 2
        if np.array_equal(middle, one, equal_nan=True) or np.array_equal(middle, other, equal_nan=True):
            break
        between = told(stat, middle)
        if np.max(np.abs(between - here)) >= np.max(np.abs(there - between)):
            other, there = middle, between
        else:
            one, here = middle, between
    return one, other


def draw(stat: BoundedStatistic, rng: np.random.Generator, rows: int) -> Floats:
    if stat.name == "histogram" and getattr(stat, "edges", None) is None:
        return with_holes(stat, rng.integers(0, stat.size, (rows, 1)).astype(float), rng)
    clip = float(getattr(stat, "clip", 1.0))
    size = clip * 10 ** rng.uniform(-1, 1) if rng.integers(2) else 10 ** rng.uniform(-1, 1)
    return with_holes(stat, size * rng.normal(size=(rows, stat.columns)) / np.sqrt(stat.columns), rng)


def at_the_edge(stat: BoundedStatistic, rng: np.random.Generator, rows: int) -> list[Floats]:
    """Units on either side of some decisions, and a last bit away from them."""
    found = []
    for _ in range(3):
        for unit in jump(stat, draw(stat, rng, rows), draw(stat, rng, rows)):
            found.append(unit)
            if not (stat.name == "histogram" and getattr(stat, "edges", None) is None):
                found += [np.nextafter(unit, rng.choice([-1e300, 1e300], unit.shape)) for _ in range(2)]
    return found


def extremes(stat: BoundedStatistic, rng: np.random.Generator) -> list[Floats]:
    if stat.name == "histogram" and getattr(stat, "edges", None) is None:
        return []
    with np.errstate(over="ignore"):
        drawn = [
            size * rng.choice([-1.0, 1.0, 0.3, 0.0], (rows, stat.columns)) for size in EXTREMES for rows in (1, 1, 2)
        ]
    return [with_holes(stat, np.nan_to_num(unit, posinf=1.7e308, neginf=-1.7e308), rng) for unit in drawn]


def records(stat: BoundedStatistic, units: list[Floats], as_array: Callable[[Floats], Any]) -> Units:
    return Units(as_array(np.vstack(units)))


def people(stat: BoundedStatistic, units: list[Floats], as_array: Callable[[Floats], Any]) -> Units:
    listed = Units.from_list(units)
    return Units(as_array(np.asarray(listed.rows)), listed.offsets)


def bound(stat: BoundedStatistic) -> float:
    return stat.sensitivity(Adjacency.ADD_REMOVE)


class Tally:
    """How many sums were compared, and the most that was found; shown with -s."""

    cases = 0
    apart = 0.0  # what others changed about a unit, over its bound
    moved = 0.0  # how far a sum moved, over its sensitivity

    def show(self) -> None:
        print(f"{self.cases} sums; changed by others {self.apart:.2g} of the bound, moved {self.moved:.9f} of D")


TALLY = Tally()


def assert_uncoupled(stat: BoundedStatistic, units: Units, contributions: list[Floats], where: str) -> Floats:
    """The sum is the sum of what each contributes alone, but for what adding up rounds."""
    total = stat.total(units)
    changed = (total - np.sum(contributions, axis=0)) / bound(stat)
    apart = float(np.linalg.norm(changed)) / len(contributions)
    TALLY.cases += 1
    TALLY.apart = max(TALLY.apart, apart)
    assert apart <= ROUNDING, f"{where}: each of {len(contributions)} units moved by {apart:.2g} of its bound"
    return total


def assert_bounded(stat: BoundedStatistic, here: Floats, there: Floats, adjacency: Adjacency, where: str) -> None:
    moved = float(np.linalg.norm((here - there) / stat.sensitivity(adjacency)))
    TALLY.cases += 1
    TALLY.moved = max(TALLY.moved, moved)
    assert moved <= 1 + 1e-9, f"{where}: the sum moved by {moved:.4g} times its sensitivity"


# ---- the tests --------------------------------------------------------------------------------------------------


def name(case: Case) -> str:
    return f"{case[0]}-{case[1].get('clip', '')}"


@cache
def near_decisions(number: int) -> tuple[list[Floats], list[Floats]]:
    """For one case: records, and units of several rows. The same for all libraries and numbers of threads."""
    stat, rng = build(*SUMS[number]), np.random.default_rng(1)
    pool = at_the_edge(stat, rng, 1) + [draw(stat, rng, 1) for _ in range(6)] + extremes(stat, rng)[::3]
    longer = at_the_edge(stat, rng, 3)[:6] + [draw(stat, rng, rows) for rows in (2, 2, 17, 40)]
    return pool, longer


@pytest.mark.parametrize(
    "namespace", [pytest.param(each, marks=[pytest.mark.gpu] if each == "cuda" else []) for each in NAMESPACES]
)
@pytest.mark.parametrize("number", range(len(SUMS)), ids=lambda number: name(SUMS[number]))
def test_statistic_contribution_of_unit_near_decisions_is_independent_of_others(number: int, namespace: str) -> None:
    """With one and with two threads of BLAS.

    Libraries need not round alike (PyTorch's square root is not always the nearest number), so that "alone" means in
    the same arrays. On a GPU, and where single records are rounded, a record and a person of one row need not agree. A
    study has one kind of unit, which is public, and no unit changes what the others are.
    """
    stat, as_array = build(*SUMS[number]), NAMESPACES[namespace]
    pool, longer = near_decisions(number)
    said, valid = ([alone(stat, unit, as_array) for unit in units] for units in (pool, longer))
    plain = [single(stat, unit, as_array) for unit in pool]
    for count in (1,) if namespace == "cuda" else (1, 2):  # a GPU has no threads of BLAS
        rng = np.random.default_rng(count)
        with threads(count):
            for size in COUNTS if namespace == "numpy" else COUNTS[3::5]:
                picks = rng.integers(len(pool), size=size).tolist()
                chosen, contributions = [pool[i] for i in picks], [said[i] for i in picks]
                where = f"{size} records, {namespace}, {count} threads"
                without = assert_uncoupled(stat, records(stat, chosen, as_array), [plain[i] for i in picks], where)
                extra = int(rng.integers(len(pool)))  # one more record
                more, sums_of_all = [*chosen, pool[extra]], [*contributions, said[extra]]
                added = assert_uncoupled(
                    stat, records(stat, more, as_array), [plain[i] for i in (*picks, extra)], where
                )
                assert_bounded(stat, added, without, Adjacency.ADD_REMOVE, where)
                one = assert_uncoupled(stat, people(stat, more, as_array), sums_of_all, where)
                other = int(rng.integers(len(longer)))  # a unit of one row replaced by one of several
                more, sums_of_all = [*chosen, longer[other]], [*contributions, valid[other]]
                two = assert_uncoupled(stat, people(stat, more, as_array), sums_of_all, where)
                assert_bounded(stat, one, two, Adjacency.REPLACE_ONE, where)
    TALLY.show()


@pytest.mark.parametrize("case", SUMS + EXTREME, ids=name)
def test_statistic_extreme_values_and_parameters_stay_within_sensitivity(case: Case) -> None:
    stat, rng = build(*case), np.random.default_rng(2)
    units = extremes(stat, rng) + [draw(stat, rng, 1) for _ in range(20)] + at_the_edge(stat, rng, 1)
    rows = [unit for unit in units if len(unit) == 1]
    said, plain = [alone(stat, unit) for unit in units], [single(stat, unit) for unit in rows]
    for all_said in (said, plain) if stat.name in ONE_ROW else (said,):
        for one in all_said:
            assert_bounded(stat, one, np.zeros(stat.size), Adjacency.ADD_REMOVE, "one unit")
            # Over the sensitivity first: squares of contributions of 1e200 overflow.
            distances = np.linalg.norm((np.array(all_said) - one) / stat.sensitivity(Adjacency.REPLACE_ONE), axis=1)
            farthest = all_said[int(np.argmax(distances))]
            assert_bounded(stat, one, farthest, Adjacency.REPLACE_ONE, "two units")
    assert_uncoupled(stat, people(stat, units, np.asarray), said, "all people at once")
    assert_uncoupled(stat, records(stat, rows, np.asarray), plain, "all records at once")
    TALLY.show()


@pytest.mark.parametrize("case", SUMS, ids=name)
def test_statistic_block_boundaries_change_no_bit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, rng = build(*case), np.random.default_rng(3)
    pool = at_the_edge(stat, rng, 1)
    said = [single(stat, unit) for unit in pool]
    monkeypatch.setattr("zerosum.compute.units.BLOCK_ROWS", 128)
    for size in (127, 128, 129, 255, 256, 257):
        picks = rng.integers(len(pool), size=size).tolist()
        chosen = [pool[i] for i in picks]
        assert_uncoupled(stat, records(stat, chosen, np.asarray), [said[i] for i in picks], f"{size} in blocks of 128")


@pytest.mark.parametrize("size", [BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_statistic_whole_blocks_equal_sum_of_single_records(size: int) -> None:
    for case in [each for each in WIDE if each[0] in ("cluster_sums", "scatter", "scatter_norms", "rounded_scatter")]:
        stat, rng = build(*case), np.random.default_rng(4)
        pool = at_the_edge(stat, rng, 1)
        said = np.array([single(stat, unit) for unit in pool])
        picks = rng.integers(len(pool), size=size)
        total = stat.total(records(stat, [pool[i] for i in picks.tolist()], np.asarray))
        apart = float(np.linalg.norm(total - np.bincount(picks, minlength=len(pool)) @ said))
        assert apart <= ROUNDING * size * bound(stat)


@pytest.mark.parametrize("function", [np.tanh, np.reciprocal, np.sqrt, np.floor, np.rint])
def test_vector_functions_give_same_value_at_any_position(function: Callable[[Any], Any]) -> None:
    """In whole vectors and in what is left over at their ends, aligned and not."""
    numbers = np.random.default_rng(5).lognormal(sigma=3, size=1000).astype(np.float32)
    values = function(numbers)
    for start in range(40):
        for length in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 900):
            assert np.array_equal(function(numbers[start : start + length].copy()), values[start : start + length])
            assert np.array_equal(function(numbers[start : start + length]), values[start : start + length])


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 100, 250, 251, 1024])
def test_sums_and_products_of_unit_are_same_at_any_position(rows: int) -> None:
    """Whatever else is computed with in the same call, and however memory is aligned."""
    rng = np.random.default_rng(7)
    for sources, count, start in ((2, 1, 1), (3, 9, 3), (20, 5, 0), (20, 14, 5), (33, 2, 7)):
        numbers = rng.lognormal(sigma=2, size=start + 3 * count * sources * rows).astype(np.float32)
        psi = numbers[start : start + 2 * count * sources * rows].reshape(count, 2 * sources, rows)
        y = psi[:, sources:]
        means, products = sums(y, psi[:, :sources]), np.matmul(psi, y.transpose(0, 2, 1))
        for unit in range(count):
            own = psi[unit : unit + 1].copy()
            mine = own[:, sources:]
            assert np.array_equal(sums(mine, own[:, :sources])[0], means[unit])
            assert np.array_equal(np.matmul(own, mine.transpose(0, 2, 1))[0], products[unit])


@pytest.mark.parametrize("smallest", [1e-162, 1e-300, 5e-324, 1e-30, 1.0])
def test_centres_whose_squares_underflow_still_give_exact_products(smallest: float) -> None:
    """Permutations of one another tie for constant rows, so that any rounding of a product decides."""
    rng, columns = np.random.default_rng(6), 400
    for _ in range(8):
        base = np.maximum(1.57 * smallest * rng.uniform(0.5, 1, columns), 5e-324)
        base[0] *= 1.02
        centers = np.vstack([np.concatenate([base[:1], rng.permutation(base[1:])]) for _ in range(2)])
        stat = build("cluster_sums", {"columns": columns, "clip": 1.0, "centers": centers})
        crowd = np.tile(rng.uniform(0.5, 0.99) / columns**0.5, (1249, columns))
        one, two = (
            stat.total(Units(np.vstack([crowd, np.zeros((rows, columns))]), np.array([*range(1250), 1249 + rows])))
            for rows in (1, 2)
        )
        assert_bounded(stat, one, two, Adjacency.REPLACE_ONE, "a second row")
