"""Kernels in C give what NumPy gives, and refuse what does not fit."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from helpers.native_kernels import KINDS, NUMPY, by_numpy, drawn, integers
from zerosum.algorithms import PCAProgram
from zerosum.algorithms.program import PublicFacts
from zerosum.compute.backends import native
from zerosum.compute.units import Units
from zerosum.kernel.grid import MAX_UNITS
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.rounded_scatter import LARGEST_NORM, STEP, RoundedScatter
from zerosum.statistics.scatter import Scatter, ScatterColumn, ScatterNorms

Floats = NDArray[np.float64]

ROOT = Path(__file__).parents[3]
KERNELS: Any = vars(native)["_native"]
BINS = {"lowest": 0.01, "highest": 1e4, "bins": 30}


# ---- there are kernels, and they are built -----------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no compiler here")
@pytest.mark.skipif(os.environ.get("ZEROSUM_NATIVE") == "0", reason="somebody wants none")
def test_native_kernels_with_compiler_are_present() -> None:
    """They are optional, so that a build which fails installs all the same; here that is no success."""
    assert native.present(), "to build them: python setup.py build_ext --inplace"
    assert "any" in KINDS


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no compiler here")
def test_native_kernels_compile_without_warning_and_refuse_fast_math(tmp_path: Path) -> None:
    def build(name: str, flags: str) -> tuple[list[Path], str]:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path / name)]
        done = subprocess.run(
            [*command, "--build-temp", str(tmp_path / "objects" / name)],
            cwd=ROOT,
            env={**os.environ, "CFLAGS": flags},
            capture_output=True,
            text=True,
            check=True,
        )
        return list((tmp_path / name).rglob("_native*.so")), done.stdout + done.stderr

    (library,), said = build("plain", "-O0 -Wall -Wextra -Wno-unused-parameter -Werror")
    assert "warning" not in said
    assert library.name == "_native.abi3.so"  # for every Python from 3.11 on
    assert build("fast", "-O0 -ffast-math")[0] == []  # left out, and NumPy computes


# ---- the same bits as NumPy's --------------------------------------------------------------------------------------


def parameters(trial: int, columns: int, rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {"columns": columns}
    if trial % 2:
        found["center"] = rng.normal(size=columns)
    if trial % 5 == 0:
        found["scale"] = rng.uniform(0.1, 3, size=columns)
    if trial % 4:
        found["lift"] = float(rng.uniform(0.1, 3))
    return found


def clipped(trial: int, columns: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"clip": float(rng.uniform(0.01, 100) * columns), "normalise": False} if trial % 7 else {}


def in_order(stat: ScatterColumn, rows: Floats) -> Floats:
    """The column by NumPy, one record after the other."""
    ((entered, weights, _measured),) = stat._bounded(Units(rows))
    share = weights * entered[:, -1]
    return np.asarray(np.add.accumulate(entered * share[:, None], axis=0)[-1])


COUNTS = (1, 2, 3, 255, 256, 257, 511, 513, 1023, 1024, 1025, 2049)


@np.errstate(all="ignore")
def test_native_kernels_of_any_width_equal_numpy_bits(computed: str) -> None:
    """Whatever the width is of what the processor takes at a time, and however many rows there are."""
    rng = np.random.default_rng(0)
    shapes = [(1 + trial % 130, int(rng.integers(1, 70))) for trial in range(260)]
    shapes += [(int(rng.choice([1, 7, 8, 9, 47, 48, 49, 95, 96, 97])), count) for count in COUNTS for _ in range(2)]
    for trial, (columns, count) in enumerate(shapes):
        rows = drawn(count, columns, rng, odd=trial % 3 == 0)
        common, clip = parameters(trial, columns, rng), clipped(trial, columns, rng)
        where = f"{count} rows of {columns} columns, trial {trial}"
        for stat in (RoundedScatter(**common, **clip), ScatterNorms(**common, **BINS)):
            assert np.array_equal(stat.sum_block(Units(rows)), by_numpy(stat, rows)), f"{stat.name}, {where}"
        column = ScatterColumn(**common, **clip)
        found = column.sum_block(Units(rows))
        if computed == NUMPY:  # its products add up in BLAS's order
            assert np.allclose(found, in_order(column, rows), rtol=1e-12, atol=1e-13 * count), where
        else:
            assert np.array_equal(found, in_order(column, rows)), where
    vanishing = np.array([[5000.0, -5e-324, 3.3, 1234.5]])  # times its weight one is zero, and has no sign
    assert np.array_equal(
        RoundedScatter(columns=4).sum_block(Units(vanishing)), by_numpy(RoundedScatter(columns=4), vanishing)
    )


@pytest.mark.usefixtures("computed")
def test_native_norms_equal_numpy_norms() -> None:
    rng = np.random.default_rng(1)
    for trial in range(60):
        rows = drawn(40, 1 + 2 * trial, rng, odd=True)
        common = parameters(trial, rows.shape[1], rng)
        stat = ScatterNorms(**common, **BINS)
        with np.errstate(all="ignore"):
            (measured,) = stat._measured(Units(rows))
            expected = np.sqrt(measured.norms) * measured.sizes
            if (placing := stat._native(Units(rows))) is not None:
                assert np.array_equal(placing.norms(rows), expected)
        assert np.count_nonzero(expected == 0) >= 1


@pytest.mark.parametrize("name", ["rounded_scatter", "scatter_norms", "scatter_column"])
def test_native_kernels_rows_in_any_memory_layout_give_same_sums(name: str, computed: str) -> None:
    rng = np.random.default_rng(2)
    plain = np.round(100 * rng.normal(size=(300, 9)))
    whole = rng.normal(size=(600, 18))
    whole[::2, 1::2] = plain
    mapped = np.frombuffer(b"x" + plain.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(plain.shape)
    assert not mapped.flags.aligned
    given = [plain.astype(kind) for kind in (np.float32, np.int64, np.int16, ">f8")]
    given += [np.asfortranarray(plain), whole[::2, 1::2], plain[::-1][::-1], mapped]
    for extra in ({}, {"center": np.arange(9), "scale": range(1, 10)}, {"lift": 3}):
        stat = build(name, {"columns": 9, **extra, **(BINS if name == "scatter_norms" else {})})
        expected = stat.sum_block(Units(plain))
        for rows in given:
            found = stat.sum_block(Units(rows))
            if computed == NUMPY:
                assert np.allclose(found, expected, rtol=1e-12)
            else:
                assert np.array_equal(found, expected)
    assert np.array_equal(stat.total(Units(csr_array(plain))), stat.total(Units(plain)))


def test_native_kernels_without_rows_give_zero(computed: str) -> None:
    for name in ("rounded_scatter", "scatter_norms", "scatter_column"):
        stat = build(name, {"columns": 5, **(BINS if name == "scatter_norms" else {})})
        assert not np.any(stat.total(Units(np.zeros((0, 5)))))
        if computed != NUMPY:
            assert not np.any(stat.sum_block(Units(np.zeros((0, 5)))))


# ---- what is not as it must be is refused, and nothing else happens ------------------------------------------------


@pytest.mark.skipif(not KINDS, reason="there are no kernels")
def test_native_kernel_array_of_other_length_is_refused() -> None:
    rows, vector, right = np.ones((4, 3)), np.ones(3), {"norms": 4, "column": 3, "scatter": 6}
    for name, size in right.items():
        kernel = getattr(KERNELS, name)
        kernel(rows, vector, vector, 0.0, 0.0, 3, np.empty(size))
        for wrong in (0, 1, size - 1, size + 1, 1000):
            with pytest.raises(ValueError, match="result"):
                kernel(rows, None, None, 0.0, 0.0, 3, np.empty(wrong))
        for columns in (0, -1, -(2**62), 2**24 + 1, 2**60, 2**63 - 1):
            with pytest.raises(ValueError, match="columns"):
                kernel(rows, None, None, 0.0, 0.0, columns, np.empty(size))
        for short in (np.ones(2), np.ones(4), np.ones(0), np.ones(3, np.float32), b""):
            for given in ((short, None), (None, short)):
                with pytest.raises(ValueError, match="scale"):
                    kernel(rows, *given, 0.0, 0.0, 3, np.empty(size))
        for other in (np.ones(13), b"1234567", np.ones((4, 3), np.float32)[:3]):
            with pytest.raises(ValueError, match="scale"):
                kernel(other, None, None, 0.0, 0.0, 3, np.empty(size))
        if name != "norms":  # the lift is one more
            with pytest.raises(ValueError, match="result"):
                kernel(rows, None, None, 1.0, 0.0, 3, np.empty(size))
        frozen = np.empty(size)
        frozen.flags.writeable = False
        for arguments in (
            (rows[:, ::2], None, None, 0.0, 0.0, 3, np.empty(size)),
            (rows, None, None, 0.0, 0.0, 3, frozen),
            (None, None, None, 0.0, 0.0, 3, np.empty(size)),
            (rows, None, None, 0.0, 0.0, 3, None),
            (rows, "text", 7, 0.0, 0.0, 3, np.empty(size)),
            (rows,),
        ):
            with pytest.raises((TypeError, ValueError, BufferError)):
                kernel(*arguments)
    with pytest.raises(ValueError, match="abacus"):
        KERNELS.kind("abacus")


@pytest.mark.skipif(not KINDS, reason="there are no kernels")
def test_native_kernel_extreme_parameters_stay_within_bounds(computed: str) -> None:
    """Parameters that no statistic lets through."""
    if computed == NUMPY:
        pytest.skip("of kernels only")
    strange = (0.0, -1.0, 5e-324, 1e-300, 1e300, 1.7e308, math.inf, -math.inf, math.nan)
    rows = np.array([strange, np.ones(9)])
    for lift in strange:
        for clip in strange:
            for center in (None, np.array(strange)):
                for name, size in (("norms", 2), ("column", 10), ("scatter", 55)):
                    out = np.empty(size if lift or name == "norms" else {"column": 9, "scatter": 45}[name])
                    getattr(KERNELS, name)(rows, center, center, lift, clip, 9, out)
                    if name == "scatter":
                        assert np.all(np.abs(out) <= 2 * LARGEST_NORM**2)
                        assert np.array_equal(out, np.rint(out))


# ---- blocks, threads, and what is not for kernels ------------------------------------------------------------------


def test_native_kernels_threads_and_blocks_change_no_bit(computed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.compute.statistic._WORTH_A_THREAD", 0)
    rng = np.random.default_rng(7)
    units = Units(rng.normal(size=(9000, 30)))
    stat = RoundedScatter(columns=30, lift=0.3)
    whole = stat.sum_block(units)
    for room, most in ((1 << 25, 4), (1 << 12, 18)):
        monkeypatch.setattr("zerosum.compute.units._BLOCK_BYTES", room)
        for threads in (1, 2, 3):
            with threadpool_limits(threads, user_api="blas"):
                assert stat._workers(units) == threads
                assert len(list(units.evenly(threads, stat.exact_bytes(units)))) >= (threads if most == 4 else most)
                assert np.array_equal(stat.total(units), whole)
        assert np.array_equal(stat.total(Units(csr_array(units.rows))), whole)
        assert np.array_equal(stat.total(Units(np.asfortranarray(units.rows))), whole)
    assert computed


def test_units_evenly_gives_blocks_of_similar_length_within_memory() -> None:
    for count, columns in ((1, 3), (2047, 3), (4095, 2), (4096, 2), (8192, 2), (10**5, 300), (9999, 12_000)):
        units = Units(np.broadcast_to(np.zeros(columns), (count, columns)))
        sizes = [len(block) for block in units.evenly(4, 8 * columns)]
        assert sum(sizes) == count
        assert max(sizes) * columns * 8 <= 1 << 25
        assert max(sizes) - min(sizes) <= len(sizes)
        assert len(sizes) % 4 == 0 or max(sizes) < 4096
    assert [len(block) for block in Units(np.zeros((0, 3))).evenly(4, 24)] == []


@pytest.mark.skipif(not KINDS, reason="there are no kernels")
def test_rounded_scatter_rows_read_in_place_take_no_copy(tmp_path: Path) -> None:
    rows = np.zeros((50, 20))
    stat = RoundedScatter(columns=20)
    np.save(tmp_path / "rows.npy", rows)
    for here in (rows, rows[10:], np.load(tmp_path / "rows.npy", mmap_mode="r")):
        assert stat.exact_bytes(Units(here)) == 8
    for copied in (rows.astype(np.float32), rows.astype(">f8"), np.asfortranarray(rows), rows[::2], csr_array(rows)):
        assert stat.exact_bytes(Units(copied)) == 160


def test_rounded_scatter_pass_holds_at_most_one_block(computed: str) -> None:
    rows = np.random.default_rng(8).normal(size=(60_000, 200))  # 96 MB
    stat = RoundedScatter(columns=200, lift=1.0)
    with threadpool_limits(1, user_api="blas"):
        tracemalloc.start()
        stat.total(Units(rows))
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert held < (1.3 if computed == NUMPY else 0.1) * (1 << 25)


@pytest.mark.usefixtures("computed")
def test_rounded_scatter_people_with_many_rows_are_not_rounded() -> None:
    rows, offsets = np.random.default_rng(9).normal(size=(60, 6)), np.arange(0, 61, 3)
    stat = RoundedScatter(columns=6, lift=0.2)
    units = Units(rows, offsets)
    assert not stat.adds_exactly(units)
    assert np.array_equal(stat.total(units), Scatter(columns=6, lift=0.2).total(units))


@pytest.mark.parametrize("params", [{"projection": np.eye(6)[:, :4] * 3}, {"fill": [0.5] * 6, "own_rows": [0]}])
def test_rounded_scatter_parameters_without_kernel_are_rounded_by_numpy(params: dict[str, Any]) -> None:
    rows = np.random.default_rng(10).normal(size=(50, 6))
    if "fill" in params:
        rows[::3, 2] = math.nan
    stat = RoundedScatter(columns=6, **params)
    assert stat._native(Units(rows)) is None
    assert stat.adds_exactly(Units(rows))
    found, plain = stat.total(Units(rows)), Scatter(columns=6, **params).total(Units(rows))
    integers(stat, rows)  # they are
    assert 0 < np.linalg.norm(found - plain) < 50e-3
    recordings = RoundedScatter(columns=6, per_recording="center")
    assert recordings._native(Units(rows)) is None
    assert not np.any(recordings.total(Units(rows)))  # one row has no others to be centred about


# ---- studies -------------------------------------------------------------------------------------------------------

STUDY = """
import hashlib, sys
import numpy as np
import zerosum
from zerosum.compute.backends import native
rng = np.random.default_rng(0)
rows = rng.normal(size=(3000, 12)) / np.arange(1, 13) + 0.3
found = zerosum.PCA(n_components=3, epsilon=2.0, lower=-3 * np.ones(12), upper=3 * np.ones(12), unit="record",
                    random_state=1, data="synthetic").fit([rows[:1000], rows[1000:]])
told = b"".join(np.ascontiguousarray(each).tobytes() for each in
                (found.components_, found.mean_, found.explained_variance_))
print(native.present(), hashlib.sha256(told).hexdigest())
"""


@pytest.mark.skipif(not KINDS, reason="there are no kernels")
def test_study_without_native_kernels_has_same_result(tmp_path: Path) -> None:
    said = {}
    for wanted in ("1", "0"):
        environment = {**os.environ, "ZEROSUM_NATIVE": wanted, "ZEROSUM_STATE": str(tmp_path / wanted)}
        environment["PYTHONPATH"] = str(ROOT / "src")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", STUDY], env=environment, capture_output=True, text=True, check=True
        )
        said[wanted] = done.stdout.split()
    assert (said["1"][0], said["0"][0]) == ("True", "False")
    assert said["1"][1] == said["0"][1]


def test_pca_resolve_plans_rounding_where_noise_is_far_larger() -> None:
    few, pca = (PCAProgram(columns=tuple(f"x{i}" for i in range(D)), n_components=3, clip=1.0) for D in (99, 144))
    assert few.resolve(PublicFacts(5.0, 10**4)).rounded is False  # records may be equal, and products are cheap
    for noise, units, rounded in ((0.0, 10**4, False), (0.0, None, False), (5.0, 10**4, True), (1.0, None, True)):
        assert pca.resolve(PublicFacts(noise, units)).rounded is rounded
    for units in (10**5, MAX_UNITS):  # what rounding adds grows as the root of their number does
        added = math.sqrt(2 * units / 144) * STEP
        enough = added / (0.05 * math.sqrt(2))
        assert pca.resolve(PublicFacts(1.01 * enough, units)).rounded is True
        assert pca.resolve(PublicFacts(0.99 * enough, units)).rounded is False
    assert pca.resolve(PublicFacts(1.0, 10**12)).rounded is False
    for given in (True, False):
        kept = pca.model_copy(update={"rounded": given})
        assert kept.resolve(PublicFacts(0.0, 10**4)).rounded is given
    people = PCAProgram(columns=("a", "b"), n_components=1, clip=1.0, per_recording="center", n_passes=1)
    assert people.resolve(PublicFacts(5.0, 100)).rounded is False
    names = [release.statistic for release in pca.resolve(PublicFacts(5.0, 10**4)).releases(Adjacency.REPLACE_ONE)]
    assert names[-1] == "rounded_scatter"
    assert "scatter" not in names
