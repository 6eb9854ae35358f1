"""The operations that decisions rest on: elementwise, folded, or exact."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from zerosum.compute.backends.exact import (
    BITS,
    Exact,
    added,
    averages,
    clip_rows,
    counts,
    fold,
    folded,
    gram,
    products,
    sized,
    whole,
)
from zerosum.compute.devices import release_scope
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.grid import MOST_UNITS, TREE, rows_allowed
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.scatter import Scatter
from zerosum.statistics.user import statistic

Floats = NDArray[np.float64]

numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
tables = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=numbers)


def exact_norm(row: Floats) -> Fraction:
    """The square of the norm, without rounding."""
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@given(tables, st.floats(-100, 100))
def test_clip_rows_bounds_every_row_independently_of_others(rows: Floats, exponent: float) -> None:
    radius = min(max(10.0**exponent, 1e-100), 1e100)
    clipped = clip_rows(rows, radius)
    for row, kept in zip(rows, clipped, strict=True):
        assert exact_norm(kept) <= Fraction(radius) ** 2
        assert np.array_equal(clip_rows(row[None, :], radius)[0], kept)


@given(tables, st.sampled_from([None, 1e-100, 1e-3, 1.0, 1e100]))
@np.errstate(all="ignore")
def test_scatter_single_row_has_norm_at_most_one_and_is_unchanged(rows: Floats, clip: float | None) -> None:
    """The norm of w x x' is the square of the norm of the root of w times x, which is what enters the product."""
    parameters = {"normalise": True} if clip is None else {"normalise": False, "clip": clip}
    scatter = build("scatter", {"columns": rows.shape[1], **parameters})
    assert isinstance(scatter, Scatter)
    before = rows.copy()
    ((entered, weights, _measured),) = scatter._bounded(Units(rows))
    for row, kept in zip(rows, entered * np.sqrt(weights)[:, None], strict=True):
        assert exact_norm(kept) <= 1
        ((alone, weight, _),) = scatter._bounded(Units(row[None, :]))
        assert np.array_equal(alone[0] * np.sqrt(weight), kept)
        if clip is None and np.any(row):
            assert exact_norm(kept) > 1 - Fraction(1, 2**44)
    scatter.total(Units(rows))
    assert np.array_equal(rows, before)


@given(tables)
def test_clip_rows_row_within_radius_is_unchanged(rows: Floats) -> None:
    rows = rows / (1 + np.abs(rows).max()) * 1e-3
    kept = clip_rows(rows, 1.0)
    plain = np.array([math.sqrt(exact_norm(row)) > 1e-100 for row in rows])
    assert np.array_equal(kept[plain], rows[plain])
    assert np.allclose(kept, rows, rtol=1e-15, atol=1e-300)


@pytest.mark.parametrize("extreme", [math.nan, math.inf, 1e200, 1e-200, 0.0, 5e-324])
def test_clip_rows_extreme_row_leaves_bits_of_others(extreme: float) -> None:
    rows = np.random.default_rng(0).normal(size=(2000, 5))
    other = rows.copy()
    other[3] = extreme
    rest = np.arange(2000) != 3
    assert np.array_equal(clip_rows(rows, 1.0)[rest], clip_rows(other, 1.0)[rest])
    assert np.all(np.isfinite(clip_rows(other, 1.0)))


@given(tables)
def test_fold_of_row_is_sum_independent_of_others(rows: Floats) -> None:
    rows = np.clip(rows, -1e100, 1e100)
    total = fold(rows.copy())
    for row, found in zip(rows, total, strict=True):
        assert np.array_equal(fold(row[None, :].copy()), [found])
        exact = sum(map(Fraction, row.tolist()), Fraction(0))
        assert abs(Fraction(float(found)) - exact) <= Fraction(float(np.sum(np.abs(row)))) * 12 / 2**53 + Fraction(
            1, 10**300
        )


@pytest.mark.parametrize("columns", [1, 2, 7, 50, 784, 4001])
def test_exact_products_of_whole_numbers_in_any_order_are_exact(columns: int) -> None:
    """Rows all along the matrix, so that sums grow as far as they can."""
    rng = np.random.default_rng(columns)
    matrix = np.column_stack([np.ones(columns), rng.normal(size=columns), rng.standard_cauchy(columns)])
    exact = Exact.of(matrix)
    rows = np.vstack([matrix.T, rng.normal(size=(4, columns)), np.eye(columns)[:1]])
    scaled, _size, norm = sized(rows)
    left = whole(scaled, norm)
    assert np.array_equal(left, np.rint(left))
    assert np.all(np.linalg.norm(left, axis=1) <= 2**BITS + math.sqrt(columns) / 2)
    found = exact.product(left)
    for i, row in enumerate(left):
        for j, column in enumerate(exact.numbers.T):
            assert int(found[i, j]) == sum(int(a) * int(b) for a, b in zip(row, column, strict=True))
            assert abs(int(found[i, j])) < 2**53
    shuffled = rng.permutation(columns)
    again = Exact(exact.numbers[shuffled], exact.unit).product(left[:, shuffled])
    assert np.array_equal(again, found)


def test_exact_values_below_rounding_are_not_valid() -> None:
    """Rows orthogonal to the matrix to ever more digits: what is left of them is heard down to the last bits."""
    rng = np.random.default_rng(3)
    matrix = np.linalg.qr(rng.normal(size=(12, 4)))[0]
    exact = Exact.of(matrix)
    hidden = rng.normal(size=(30, 12))
    hidden -= hidden @ matrix @ matrix.T
    for part, heard in ((1.0, True), (1e-5, True), (1e-9, False), (0.0, False)):
        rows = hidden + part * rng.normal(size=(30, 4)) @ matrix.T
        flat, _size, norm = sized(rows.reshape(1, -1))
        seen = exact.product(whole(flat, norm).reshape(-1, 12))
        assert exact.above_rounding(np.sqrt(np.mean(seen**2, axis=0))[None]).tolist() == [heard]
        assert not (np.any(exact.valid((seen * exact.worth[:-1]).reshape(1, -1))) and not heard)


def test_exact_seen_equals_product_to_26_bits() -> None:
    rng = np.random.default_rng(1)
    matrix, rows = rng.normal(size=(30, 4)) * [1e-50, 1, 1e30, 3], rng.normal(size=(9, 30)) * 1e40
    exact, (scaled, size, norm) = Exact.of(matrix), sized(rows)
    seen = exact.projections(scaled, norm) * (size * norm)[:, None]
    error = np.abs(seen - rows @ matrix) / np.linalg.norm(rows, axis=1)[:, None] / np.linalg.norm(matrix, axis=0)
    assert np.max(error) < 2.0**-BITS * math.sqrt(30)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("vector_sum", {"columns": 2, "clip": 5e-324}),
        ("vector_sum", {"columns": 2, "clip": 1e101}),
        ("vector_sum", {"columns": 2, "clip": math.nan}),
        ("vector_sum", {"columns": 1, "clip": 1.0, "lower": [0.0], "upper": [5e-324]}),
        ("vector_sum", {"columns": 1, "clip": 1.0, "lower": [-1e200], "upper": [1e200]}),
        ("second_moment", {"columns": 2, "clip": 1.0, "mean_weight": 1e-200}),
        ("cluster_sums", {"columns": 1, "clip": 1.0, "centers": [[1e200]]}),
        ("scatter", {"columns": 1, "scale": [1e-200]}),
        ("scatter", {"columns": 1, "center": [math.inf]}),
        ("scatter_norms", {"columns": 1, "lowest": 1e-300, "highest": 1.0, "bins": 2}),
        ("unmixing_score", {"columns": 2, "unmixing": [[1e300, 0], [0, 1]]}),
        ("band_scatter", {"columns": 1, "projection": [[1.0]], "edges": [0, 1, 2], "seconds": 1e-200}),
    ],
)
def test_statistic_parameter_out_of_range_is_refused(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        build(name, params)


def test_custom_statistic_that_reuses_array_stays_within_sensitivity() -> None:
    kept = np.zeros(2)

    @statistic("reuses_its_array", length=2)
    def reuses(rows: Floats) -> Floats:
        kept[:] = rows[0]
        return kept

    stat = reuses(columns=2, clip=1.0)
    rest = [[1.0, 0.0]] * 100
    here, there = (stat.total(Units.from_rows([*rest, last])) for last in ([1.0, 0.0], [-1.0, 0.0]))
    assert here == pytest.approx([101.0, 0.0])
    assert np.linalg.norm(here - there) <= stat.sensitivity(Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("at_once", [1, 7, 50, 1000])
def test_averages_of_unit_have_same_bits_with_any_others(at_once: int) -> None:
    rng = np.random.default_rng(0)
    units = [rng.normal(size=(size, 3)) * 10.0 ** rng.uniform(-5, 5, (size, 1)) for size in (1, 130, 2, 50, 7, 51)]

    def cubes(rows: Floats) -> Floats:
        return np.asarray(np.concatenate([rows, rows**3], axis=1))

    def means(chosen: list[Floats]) -> Floats:
        held = Units.from_list(chosen)
        return np.asarray(averages(held, np.asarray(held.rows), cubes, at_once))

    whole = means(units)
    for at, unit in enumerate(units):
        assert np.array_equal(means([unit])[0], whole[at])
        assert np.array_equal(means([units[-1], unit])[1], whole[at])
        assert whole[at] == pytest.approx(cubes(unit).mean(axis=0), rel=1e-9, abs=1e-3)


def test_third_moment_person_with_many_rows_takes_bounded_memory() -> None:
    """Their tensors, 1.3 GB, are never there at once."""
    stat = build("third_moment", {"columns": 20, "clip": 1e6, "projection": np.eye(20), "correction": np.zeros(20)})
    row = np.random.default_rng(0).normal(size=(1, 20))
    person = Units(np.repeat(row, 100_000, axis=0), np.array([0, 100_000]))
    tracemalloc.start()
    found = stat.total(person)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**28
    assert found == pytest.approx(stat.total(Units(row)), rel=1e-9)


def test_clip_rows_in_any_order_bounds_every_row() -> None:
    rows = np.array([[30.0, 40.0], [0.3, 0.4], [-6.0, 8.0], [1e200, 0.0]])
    for order in ([0, 1, 2, 3], [1, 3, 0, 2], [2, 0, 3, 1], [3, 2, 1, 0]):
        for count in range(1, 5):
            assert np.all(np.linalg.norm(clip_rows(rows[order[:count]], 1.0), axis=1) <= 1.0)


# ---- sums over more units than blocks of the usual length serve ------------------------------------------------------

SUMS: dict[str, Any] = {
    "added": lambda rows: added(rows * rows),
    "gram": lambda rows: gram(rows).ravel(),
    "products": lambda rows: products(rows, rows).ravel(),
    "counts": lambda rows: counts(np.zeros(len(rows), dtype=np.intp), rows[:, 0] ** 2, 2)[:1],
}


def relative_error(found: Floats, terms: Floats) -> float:
    """The largest error of sums whose terms are all equal to `terms`, in units of 2^-53 of the sum of the terms."""
    exact = sum((Fraction(float(term)) for term in terms), Fraction(0))
    return max(float(abs(Fraction(float(each)) - exact) / exact) for each in found) * 2.0**53


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("units", [MOST_UNITS, 10**8, 2 * 10**7])
def test_sums_over_many_units_stay_within_planned_rounding(name: str, units: int) -> None:
    """Rows that round worst in a row: one large term, and terms that each vanish beside it."""
    rows = np.full((2048, 2), 2.0**-27)
    rows[0] = 1.0
    with release_scope(rows_allowed(units)):
        error = relative_error(SUMS[name](rows), rows[:, 0] ** 2)
    assert error <= rows_allowed(units) + 1
    if name in ("added", "counts"):  # the usual order is that of the rows; a library's product may have another one
        assert relative_error(SUMS[name](rows), rows[:, 0] ** 2) > 500


@pytest.mark.parametrize("name", ["gram", "products", "counts"])
def test_sums_over_many_units_in_parts_stay_within_planned_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.compute.backends.exact._HOST_NUMBERS", 50)
    rows = np.full((2048, 2), 2.0**-27)
    rows[0] = 1.0
    with release_scope(rows_allowed(MOST_UNITS)):
        error = relative_error(SUMS[name](rows), rows[:, 0] ** 2)
    assert error <= rows_allowed(MOST_UNITS) + 4  # the compensated sum of parts


@given(arrays(np.float64, st.tuples(st.integers(1, 300), st.just(2)), elements=st.floats(-1e100, 1e100)))
def test_folded_sum_is_as_accurate_as_two_additions(parts: Floats) -> None:
    for column, found in zip(parts.T, folded(parts.copy()), strict=True):
        error = abs(Fraction(float(found)) - sum((Fraction(float(x)) for x in column), Fraction(0)))
        assert error <= TREE * Fraction(2) ** -53 * sum((abs(Fraction(float(x))) for x in column), Fraction(0))


def test_whole_counts_of_many_units_are_exact() -> None:
    places = np.arange(5000) % 7
    with release_scope(rows_allowed(MOST_UNITS)):
        assert counts(places, np.ones(5000), 7).tolist() == np.bincount(places).tolist()
