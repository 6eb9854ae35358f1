"""Every statistic on a device that is not the host: no parameter stays behind, and nobody decides for others there.

array-api-strict's second device stands for a GPU where there is none. With one (`pytest -m gpu`), the same is asked of
PyTorch's tensors on it, through the fused kernels and without them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import array_api_strict
import numpy as np
import pytest
from array_api_compat import device as device_of
from numpy.typing import NDArray

import zerosum
from helpers.statistic_cases import SMALL, WHOLE_SITE, WIDE, Case, with_holes
from zerosum.algorithms import PCAProgram
from zerosum.compute.backends import fused
from zerosum.compute.backends.exact import added, counts, fold, gram, products
from zerosum.compute.devices import constant_on, exact, release_scope, to_device, to_numpy
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Runs, Units
from zerosum.errors import BadData, BadParameter, Refused, ZerosumError
from zerosum.kernel.grid import BLOCK_ROWS, summation_slack
from zerosum.kernel.statistic import Adjacency
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.statistics import build
from zerosum.statistics.vectors import VectorSum
from zerosum.study import SiteFile

Floats = NDArray[np.float64]

OTHER = array_api_strict.Device("device1")
CASES = SMALL + WIDE
OFFSETS = np.array([0, 1, 5, 9, 13, 50, 87, 124, 125, 160, 200, 240])
# single precision in between, Fourier transforms by another way, or records that only the host rounds
ROUNDING = {
    **{"unmixing_score": 1e-5, "fourth_cumulants": 1e-5, "band_scatter": 1e-6, "module_gradient": 1e-6},
    "rounded_scatter": 1e-3,
}
KERNELS = {
    "scatter": 1e-7,
    "scatter_column": 1e-7,
    "augmented_scatter": 1e-7,
}  # round single rows to 26 bits, which the host need not


def name(case: Case) -> str:
    return f"{case[0]}-{case[1].get('clip', '')}"


def elsewhere(rows: Floats) -> Any:
    return array_api_strict.asarray(rows, device=OTHER)


def cuda(rows: Floats) -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch.from_numpy(np.ascontiguousarray(rows)).cuda()


def has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


gpu = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="PyTorch finds no GPU here")]


def draws(stat: BoundedStatistic, rng: np.random.Generator, count: int) -> Iterator[Floats]:
    """Numbers, and codes or counts."""
    yield with_holes(stat, rng.normal(size=(count, stat.columns)), rng)
    yield with_holes(stat, rng.integers(0, 4, (count, stat.columns)).astype(float), rng)


def apart(stat: BoundedStatistic, one: Floats, other: Floats, units: int) -> float:
    return float(np.linalg.norm(one - other)) / (stat.sensitivity(Adjacency.ADD_REMOVE) * units)


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("there", [pytest.param(elsewhere, id="strict"), pytest.param(cuda, id="cuda", marks=gpu)])
def test_device_sum_equals_host_sum(
    case: Case, there: Callable[[Floats], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Records and people, some of them with several recordings; and no parameter stays on the host."""
    stat, rng = build(*case), np.random.default_rng(1)
    runs = Runs(np.sort(np.append(OFFSETS, [7, 60])), np.full(len(OFFSETS) + 1, 1.5))
    sizes = []
    for rows in draws(stat, rng, int(OFFSETS[-1])):
        for offsets, recordings in ((None, None), (OFFSETS, None), (OFFSETS, runs)):
            here = stat.total(Units(rows, offsets, recordings))
            found = stat.total(Units(there(rows), offsets, recordings))
            units = len(rows) if offsets is None else len(offsets) - 1
            allowed = (ROUNDING | KERNELS if there is cuda else ROUNDING).get(stat.name, 1e-10)
            assert apart(stat, here, found, units) <= allowed
            sizes.append(float(np.linalg.norm(here)))
    assert max(sizes) > 0
    assert not caplog.records  # no block failed: that would count as units of zeros


def test_device_constant_moves_once_per_release() -> None:
    constant, rows = np.arange(3.0), elsewhere(np.zeros((2, 3)))
    assert constant_on(constant, rows) is not constant_on(constant, rows)
    with release_scope(BLOCK_ROWS):
        moved = constant_on(constant, rows)
        assert moved is constant_on(constant, rows)
        assert device_of(moved) == OTHER
        assert constant_on(constant.copy(), rows) is not moved
    assert constant_on(constant, np.zeros(1)) is constant


@pytest.mark.parametrize("terms", [100, 130, 5000])
@pytest.mark.parametrize("width", [3, 400])
def test_device_long_sums_are_added_in_pieces(terms: int, width: int) -> None:
    rng = np.random.default_rng(2)
    rows, weights = rng.normal(size=(700, width)), rng.uniform(size=700)
    places = rng.integers(0, 5, 700)
    there, heavy = elsewhere(rows), elsewhere(weights)
    where = array_api_strict.asarray(places, device=OTHER)
    with release_scope(terms):
        np.testing.assert_allclose(to_numpy(added(there)), rows.sum(axis=0), atol=1e-11)
        np.testing.assert_allclose(to_numpy(added(heavy)), weights.sum(), rtol=1e-14)
        np.testing.assert_allclose(to_numpy(gram(there)), rows.T @ rows, atol=1e-11)
        np.testing.assert_allclose(to_numpy(products(heavy[:, None], there)[0, :]), weights @ rows, atol=1e-11)
        np.testing.assert_allclose(to_numpy(counts(where, heavy, 5)), np.bincount(places, weights), rtol=1e-14)


def test_device_sum_in_pieces_stays_within_planned_rounding() -> None:
    """Within the bound that is planned for pieces, however many of them there are."""
    rows = np.ones((1 << 15, 1)) * 0.1
    with release_scope(BLOCK_ROWS):
        found = float(to_numpy(added(elsewhere(rows)))[0])
    assert abs(found - 0.1 * len(rows)) <= summation_slack(units=1) * 0.1 * len(rows) / 2


@pytest.mark.parametrize("number", range(3), ids=["scatter", "augmented_scatter", "unmixing_score"])
def test_device_people_of_many_shapes_are_summed_exactly(number: int) -> None:
    """Each is a batch of its own: additions of these are no part of the planned rounding, and must not show."""
    rng = np.random.default_rng(8)
    people = [rng.normal(size=(rows, 2)) @ rng.normal(size=(2, 2)) for rows in range(3, 60)]
    stat = [
        build("scatter", {"columns": 2}),
        build("augmented_scatter", {"columns": 2}),
        build("unmixing_score", {"columns": 2, "unmixing": [[1.0, 0.5], [-0.5, 1.0]]}),
    ][number]
    together = Units.from_list(people)
    found = stat.total(Units(elsewhere(np.asarray(together.rows)), together.offsets))
    each = np.stack([stat.total(Units(elsewhere(rows), np.array([0, len(rows)]))) for rows in people])
    nearest = np.array([math.fsum(column) for column in each.T.tolist()])
    np.testing.assert_allclose(found, nearest, rtol=0, atol=2.0**-53 * float(np.abs(each).sum(axis=0).max()))


def test_units_batches_hold_units_of_one_shape() -> None:
    rows = np.arange(24.0).reshape(12, 2)
    runs = Runs(np.array([0, 2, 3, 5, 6, 8, 10, 12]), np.array([1.0, 1, 1, 1, 1, 2, 1]))
    units = Units(rows, np.array([0, 3, 6, 8, 10, 12]), runs)
    found = [(batch.units.tolist(), batch.length, batch.runs.tolist()) for batch in units.batches()]
    assert found == [([0, 1], 3, [0, 2, 3]), ([2, 4], 2, [0, 2]), ([3], 2, [0, 2])]
    own = next(batch for batch in units.batches() if batch.units.tolist() == [2, 4])
    np.testing.assert_array_equal(own.of(rows), np.stack([rows[6:8], rows[10:12]]))


def test_device_failing_unit_counts_as_zeros() -> None:
    stat = build("vector_sum", {"columns": 2, "clip": 1.0})
    rows = np.array([[0.3, 0.4], [np.nan, 1.0], [0.1, 0.0]])
    np.testing.assert_allclose(stat.total(Units(elsewhere(rows))), [0.4, 0.4], rtol=1e-15)


@pytest.mark.parametrize("there", [pytest.param(elsewhere, id="strict"), pytest.param(cuda, id="cuda", marks=gpu)])
def test_device_products_of_whole_numbers_are_exact(there: Callable[[Floats], Any]) -> None:
    assert exact(there(np.zeros(1)))


def test_device_with_rounded_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(left: Any, right: Any) -> Any:
        xp = array_api_strict
        return xp.astype(xp.linalg.matmul(xp.astype(left, xp.float32), xp.astype(right, xp.float32)), xp.float64)

    units = Units(elsewhere(np.zeros((3, 2))))
    monkeypatch.setattr("zerosum.compute.devices.is_gpu", lambda rows: True)
    monkeypatch.setattr("zerosum.compute.devices._sound", set())
    units.check()
    monkeypatch.setattr("zerosum.compute.devices._sound", set())
    monkeypatch.setattr(array_api_strict, "matmul", shorter)
    with pytest.raises(Refused):
        units.check()


@pytest.mark.parametrize("there", [pytest.param(cuda, id="cuda", marks=gpu)])
def test_fused_kernels_are_used_on_gpu_if_installed(there: Callable[[Floats], Any]) -> None:
    """They passed their test of places, unless Triton is not installed or not wanted."""
    assert fused.serves(there(np.zeros(1))) == fused._installed()


def test_fused_kernels_of_torch_that_couple_units_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With PyTorch's operations in place of the kernels: some that keep a unit's bits, then some that do not."""
    pytest.importorskip("torch")

    def squares(rows: Any) -> Any:
        return fold((rows * rows).double())

    def pair(values: Any, *_more: Any) -> tuple[Any, Any]:
        return values.float(), fold(values * values) > 0

    def three(values: Any, *_more: Any) -> tuple[Any, Any, Any]:
        return values.double() * 2, squares(values.reshape(len(values), -1)), squares(values.reshape(len(values), -1))

    for name, made in (
        ("squares", squares),
        ("whole", lambda rows, factor: rows * factor[:, None]),
        ("recordings", lambda rows, *_more: rows * 1.5),
        ("scaled", pair),
        ("entered", three),
        ("each_product", lambda left, right: left * right),
        ("unmixing", lambda sources, *_more: sources.double() * 3),
    ):
        monkeypatch.setattr(fused, name, made)
    fused._kernels_keep_bits.cache_clear()
    assert fused._kernels_keep_bits("cpu")
    fused._kernels_keep_bits.cache_clear()
    monkeypatch.setattr(fused, "squares", lambda rows: squares(rows) * (1 + 1e-15 * len(rows)))
    assert not fused._kernels_keep_bits("cpu")
    fused._kernels_keep_bits.cache_clear()
    monkeypatch.setattr(fused, "squares", lambda rows: 1 / 0)
    assert not fused._kernels_keep_bits("cpu")
    fused._kernels_keep_bits.cache_clear()
    assert [record.exc_info is not None for record in caplog.records] == [False, True]  # wrong numbers, an exception
    assert all("cpu" in record.getMessage() for record in caplog.records)


def test_device_that_is_absent_or_misspelt_is_refused(tmp_path: Path) -> None:
    units = Units(np.zeros((3, 2)))
    assert units.on("cpu") is units
    wrong: list[Any] = [
        "gpu",
        "cuda:x",
        "mps",
        "meta",
        "",
        "CPU",
        " cuda",
        "cuda\n",
        "cuda:",
        "cuda:01",
        "cuda:-1",
        "cuda:\u0661",
    ]
    file = tmp_path / "site.toml"
    for name in [*wrong, 0, True, ["cuda"]]:
        file.write_text(f"name = 'north'\ndata = 'north.npy'\ndevice = {json.dumps(name)}\n")
        with pytest.raises(BadParameter, match="device"):
            units.on(name)
        with pytest.raises(ZerosumError, match="device"):
            SiteFile.load(file)
    if not has_gpu():
        with pytest.raises(BadParameter, match="PyTorch"):
            units.on("cuda")


def test_device_rows_beyond_memory_are_streamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The way to the device is array-api-strict's here: blocks move one by one, and all of them count."""
    rows = np.random.default_rng(3).normal(size=(1000, 3))
    np.save(tmp_path / "rows.npy", rows)
    moved: list[int] = []

    def to_device(block: Floats, device: str) -> Any:
        moved.append(len(block))
        return elsewhere(np.asarray(block))

    monkeypatch.setattr("zerosum.compute.units.to_device", to_device)
    monkeypatch.setattr("zerosum.compute.units.available_bytes", lambda where, wanted=0: 100 * 200)
    units = Units(np.load(tmp_path / "rows.npy", mmap_mode="r"), device="elsewhere")
    stat = build("scatter", {"columns": 3, "center": [0.1, 0.2, 0.3]})
    np.testing.assert_allclose(stat.total(units), stat.total(Units(rows)), atol=1e-12)
    assert len(moved) > 5
    assert sum(moved) == 1000
    half = np.arange(1000) % 2 == 0
    np.testing.assert_allclose(stat.total(units.chosen(half)), stat.total(Units(rows[half])), atol=1e-12)


# A statistic of a whole site reads its rows at the host.
@pytest.mark.parametrize("case", [case for case in SMALL if case[0] not in WHOLE_SITE], ids=name)
def test_device_streamed_rows_give_host_sum(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Single precision, Fortran's order and a part of a table included; sums are made on the device."""
    stat, rng = build(*case), np.random.default_rng(9)
    moved: list[int] = []

    def to_device(block: Floats, device: str) -> Any:
        moved.append(len(block))
        return elsewhere(np.ascontiguousarray(block))

    monkeypatch.setattr("zerosum.compute.units.to_device", to_device)
    monkeypatch.setattr(
        "zerosum.compute.units.available_bytes", lambda where, wanted=0: 1 << 14 if isinstance(where, str) else None
    )
    table = np.asfortranarray(next(draws(stat, rng, 300))[:240].astype(np.float32))
    for offsets in (None, OFFSETS):
        here, found = (stat.total(Units(table, offsets, device=device)) for device in (None, "cpu"))
        units = len(table) if offsets is None else len(offsets) - 1
        assert apart(stat, here, found, units) <= ROUNDING.get(stat.name, 1e-10)
    assert moved
    assert not caplog.records


@pytest.mark.parametrize("kind", ["?", "i1", "u1", "u2", "i4", "u4", "u8", "f2", ">f4", ">f8", ">i2", "g"])
def test_to_device_any_real_numbers_become_torch_tensor_unchanged(kind: str) -> None:
    pytest.importorskip("torch")
    table = np.arange(24).reshape(6, 4).astype(kind)
    for rows in (table, np.asfortranarray(table), table[::2, 1:], table[:0]):
        rows.flags.writeable = False  # as a mapped file
        moved = to_device(rows, "cpu")
        np.testing.assert_array_equal(moved.double().numpy(), rows.astype(np.float64))
        moved.zero_()
    np.testing.assert_array_equal(table, np.arange(24).reshape(6, 4).astype(kind))
    with pytest.raises(BadData):
        to_device(table.astype(complex), "cpu")


def test_device_out_of_memory_halves_blocks_or_ends_round() -> None:
    """Whatever the library calls it: blocks are halved, and one unit that does not fit ends the round."""

    class Wide(VectorSum):
        name: ClassVar[str] = "wide"

        def sum_block(self, block: Units) -> Any:
            if len(block) > fits:
                raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
            return super().sum_block(block)

    stat, units = Wide(columns=2, clip=1.0), Units(np.full((50, 2), 0.5))
    fits = 4
    np.testing.assert_allclose(stat.total(units), [25.0, 25.0])
    fits = 0
    with pytest.raises(MemoryError):
        stat.total(units)


def test_study_on_device_equals_study_on_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the same seed, and so with the same draws, which a thread makes while the device adds up."""
    rng = np.random.default_rng(6)
    data = {name: rng.normal(size=(300, 4)) * [3, 2, 1, 0.5] for name in ("a", "b", "c")}
    begun: list[int] = []
    begin = NoiseShare.begin

    def listening(share: NoiseShare) -> None:
        begun.append(1)
        begin(share)

    monkeypatch.setattr(NoiseShare, "begin", listening)
    monkeypatch.setattr("zerosum.compute.units.to_device", lambda block, device: elsewhere(np.asarray(block)))
    monkeypatch.setattr(
        "zerosum.compute.units.available_bytes", lambda where, wanted=0: 1 << 20 if isinstance(where, str) else None
    )
    found = []
    for device in (None, "elsewhere"):
        sites = {name: Units(rows, device=device) for name, rows in data.items()}
        policies = {
            name: Policy(population=name, data="synthetic", unit="record", ledger=tmp_path / f"{device}-{name}.sqlite")
            for name in data
        }
        algorithm = PCAProgram(columns=("p", "q", "r", "s"), n_components=2, clip=5.0)
        found.append(
            zerosum.run(
                algorithm, sites, epsilon=5.0, delta=1e-5, unit="record", policies=policies, random_state=3
            ).estimate["components"]
        )
        assert bool(begun) == (device is not None)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


@pytest.mark.parametrize("case", [each for each in SMALL if each[0] in ("scatter", "unmixing_score", "vector_sum")])
@pytest.mark.parametrize("there", [pytest.param(cuda, id="cuda", marks=gpu)])
def test_fused_kernels_equal_plain_operations(
    case: Case, there: Callable[[Floats], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, rng = build(*case), np.random.default_rng(4)
    units = Units(there(rng.normal(size=(240, stat.columns))), OFFSETS)
    fast = stat.total(units)
    monkeypatch.setattr(fused, "serves", lambda rows: False)
    assert apart(stat, fast, stat.total(units), len(units)) <= ROUNDING.get(stat.name, 1e-7)
