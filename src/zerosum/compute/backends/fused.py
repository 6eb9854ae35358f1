"""Kernels for decisions in one pass over a GPU's memory, if Triton is installed.

Every program of a kernel reads the rows of one unit, or a piece of them of a fixed length, and nothing else. Its order
of summation depends on the kernel alone, which is compiled for a unit's own shape and for public shapes. The number of
units is no argument of any kernel, all arrays begin at addresses of the same alignment, and products and sums are not
contracted. So a unit's bits depend on that unit alone, as on the host. A device is tested for this on public numbers
before the kernels are used. ZEROSUM_TRITON=0 in the environment switches them off.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from zerosum.arrays import Array
from zerosum.compute.units import fold

_log = logging.getLogger(__name__)  # stays at the site
# Numbers that one program adds up or rounds. Chosen by hand; no benchmark recorded.
_PIECE = 1024
# The largest number of sources of a unit that one program holds in registers. Chosen by hand; no benchmark recorded.
_WIDEST = 64


@cache
def _installed() -> bool:
    """Whether Triton is installed and switched on."""
    return find_spec("triton") is not None and os.environ.get("ZEROSUM_TRITON", "1") != "0"


def serves(rows: Array) -> bool:
    """Whether there are kernels for these rows. Depends on their device and type, never on their values."""
    return bool(
        is_torch_array(rows)
        and rows.device.type == "cuda"
        and rows.dtype.is_floating_point
        and rows.element_size() >= 4
        and _installed()
        and _kernels_keep_bits(str(rows.device))
    )


@cache
def _kernels_keep_bits(device: str) -> bool:
    """Whether the kernels give a unit the same bits alone and at any position among others; tested once on public
    numbers. If they do not, or fail, slower plain operations take their place.
    """
    try:
        same = _same_bits(device)
    except Exception:
        _log.warning("kernels of Triton fail on %s and are not used", device, exc_info=True)
        return False
    if not same:
        _log.warning("kernels of Triton compute a unit by its place on %s and are not used", device)
    return same


def _same_bits(device: str) -> bool:
    """The test of `_kernels_keep_bits` for units of two public shapes, 40 x 24 and 7 x 3."""
    rng = np.random.default_rng(0)
    return all(_same_bits_of(device, rng, length, columns) for length, columns in ((40, 24), (7, 3)))


def _same_bits_of(device: str, rng: np.random.Generator, length: int, columns: int) -> bool:
    """The test for units of one shape: all kernels, on rolled and on sliced arrays of nine public units.

    Parameters
    ----------
    device : str
        The device.
    rng : Generator
        A generator with a public seed.
    length, columns : int
        The shape of a unit.
    """
    torch, count = _torch(), 9
    x = torch.from_numpy(rng.lognormal(sigma=2, size=(count, length, columns)) * rng.choice([-1.0, 1.0], columns))
    x = x.to(device)
    placed = [torch.from_numpy(each).to(device) for each in rng.uniform(0.5, 2, (2, length * columns))]
    worth = torch.from_numpy(np.append(rng.uniform(0.5, 2, columns), 0.1)).to(device)
    chosen = torch.from_numpy(np.arange(columns, dtype=np.int32) % 8).to(device)
    # The first row and the number of rows of each window.
    windows = torch.from_numpy(np.array([np.zeros(length), np.full(length, 5)], dtype=np.int32)).to(device)

    def made(x: Any) -> list[Any]:
        flat = x.reshape(len(x), -1)
        size = squares(flat)
        y, loud = scaled(recordings(x, [(0, length // 2), (length // 2, length)], True), worth)
        each = [size, whole(flat, 2.0**26 / torch.sqrt(size)), loud, y, each_product(y, y)]
        each.append(unmixing(y, chosen, windows, 5, (0.7, 0.1, 0.3), (0.2, 0.2, 1.5, 2.0), True))
        each += [*entered(flat, *placed), *entered(flat.float(), None, None)]
        return [one.reshape(len(x), -1) for one in each]

    base = made(x)
    # The same units at other positions.
    shifts = all(
        torch.equal(one.roll(shift, 0), other)
        for shift in (0, 1, count // 2)
        for one, other in zip(base, made(x.roll(shift, 0)), strict=True)
    )
    # The same units alone or among fewer others.
    return shifts and all(
        torch.equal(one[some], other)
        for some in (slice(0, 1), slice(3, 4), slice(2, 7), slice(4, count))
        for one, other in zip(base, made(x[some]), strict=True)
    )


def _kernels() -> Any:
    """The module of kernels, which imports Triton."""
    from zerosum.compute.backends import triton_kernels

    return triton_kernels


def _aligned(tensor: Any) -> Any:
    """The same numbers in one piece that begins at a multiple of 16 bytes, as all new tensors do."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def squares(rows: Array) -> Array:
    """The sum of the squares of each row, shape (rows,), in double precision."""
    torch = _torch()
    rows = _aligned(rows)
    count, columns = rows.shape
    block, warps = _shape(columns)
    pieces = -(-columns // block)
    sums = torch.empty(count, pieces, dtype=torch.float64, device=rows.device)
    if count:
        with torch.cuda.device(rows.device):
            _kernels().squares[(count, pieces)](rows, sums, columns, pieces, block, num_warps=warps, **_KERNEL_OPTIONS)
    # One partial sum for each piece of a row, added in the fixed order of `fold`.
    return fold(sums)


def whole(rows: Array, factor: Array) -> Array:
    """Each row times its factor, rounded to whole numbers, halves to even.

    Parameters
    ----------
    rows : tensor of shape (rows, columns)
    factor : tensor of shape (rows,)
        One factor for each row.
    """
    torch = _torch()
    rows = _aligned(rows)
    count, columns = rows.shape
    numbers = torch.empty(count, columns, dtype=torch.float64, device=rows.device)
    block, warps = _shape(columns)
    if count:
        with torch.cuda.device(rows.device):
            _kernels().whole[(count, -(-columns // block))](
                rows, _aligned(factor), numbers, columns, block, num_warps=warps, **_KERNEL_OPTIONS
            )
    return numbers


def entered(rows: Array, center: Array | None, scale: Array | None) -> tuple[Array, Array, Array]:
    """Rows centred, scaled and rounded to whole numbers (`rows.sized`, then `rows.whole`), in one pass.

    Parameters
    ----------
    rows : tensor of shape (rows, columns)
    center, scale : tensor of shape (columns,), optional
        Subtracted from each row, then divided by.

    Returns
    -------
    numbers : tensor of shape (rows, columns)
        Whole numbers.
    size : tensor of shape (rows,)
        The sum of the squares of each row of `numbers`.
    worth : tensor of shape (rows,)
        The value of 1 in `numbers`; 0 for a row of zeros or one that is not finite.
    """
    torch = _torch()
    rows = _aligned(rows)
    count, columns = rows.shape
    numbers = torch.empty(count, columns, dtype=torch.float64, device=rows.device)
    size, worth = (torch.empty(count, dtype=torch.float64, device=rows.device) for _ in range(2))
    block, warps = _shape(columns)
    if count:
        # A kernel needs a pointer in any case; the flags below say that it is not read.
        given = [rows if each is None else _aligned(each) for each in (center, scale)]
        with torch.cuda.device(rows.device):
            _kernels().entered[(count,)](
                rows,
                *given,
                numbers,
                size,
                worth,
                columns,
                center is not None,
                scale is not None,
                block,
                num_warps=warps,
                **_KERNEL_OPTIONS,
            )
    return numbers, size, worth


def recordings(rows: Array, runs: list[tuple[int, int]], standardise: bool) -> Array:
    """Units with each column of each recording at mean zero and, with `standardise`, at variance one.

    Parameters
    ----------
    rows : tensor of shape (units, rows, columns)
    runs : list of pairs of int
        The first row of each recording and its end.
    standardise : bool
        Whether to divide by the standard deviation.
    """
    torch = _torch()
    rows = _aligned(rows)
    count, length, columns = rows.shape
    result = torch.empty(rows.shape, dtype=torch.float64, device=rows.device)
    wide = 64 if columns > 32 else 32
    if count:
        with torch.cuda.device(rows.device):
            for first, last in runs:
                _kernels().recording[(count, -(-columns // wide))](
                    rows, result, length, columns, first, last, standardise, 16, wide, num_warps=4, **_KERNEL_OPTIONS
                )
    return result


def holds(sources: int) -> bool:
    """Whether one program can hold some rows of a unit with this number of sources."""
    return sources <= _WIDEST


def scaled(products: Array, worth: Array) -> tuple[Array, Array]:
    """Sources scaled to mean square 1 over their unit's rows, in single precision, and which sources are not silent.

    Parameters
    ----------
    products : tensor of shape (units, rows, sources)
        Products of whole numbers.
    worth : tensor of shape (sources + 1,)
        The value of 1 in the products by source, and last the effect of rounding. A unit whose products are no larger
        than that has no sources.
    """
    torch = _torch()
    products = _aligned(products)
    count, length, made = products.shape
    sources = torch.empty(products.shape, dtype=torch.float32, device=products.device)
    loud = torch.empty(count, made, dtype=torch.float64, device=products.device)
    if count:
        with torch.cuda.device(products.device):
            _kernels().scaled[(count,)](
                products,
                _aligned(worth),
                sources,
                loud,
                length,
                made,
                32,
                max(_power(made), 16),
                num_warps=4,
                **_KERNEL_OPTIONS,
            )
    return sources, loud > 0


def each_product(left: Array, right: Array) -> Array:
    """left' right of each unit, shape (units, m, n), in single precision.

    Parameters
    ----------
    left : tensor of shape (units, rows, m)
    right : tensor of shape (units, rows, n)
    """
    torch = _torch()
    left, right = _aligned(left), _aligned(right)
    (count, length, tall), wide = left.shape, right.shape[2]
    result = torch.empty(count, tall, wide, dtype=torch.float32, device=left.device)
    tile = 64 if max(tall, wide) > 32 else 32
    if count:
        with torch.cuda.device(left.device):
            _kernels().each_product[(count, -(-tall // tile) * -(-wide // tile))](
                left, right, result, length, tall, wide, 32, tile, tile, num_warps=4, **_KERNEL_OPTIONS
            )
    return result


def unmixing(
    sources: Array,
    chosen: Array,
    windows: Array,
    window: int,
    weights: tuple[float, float, float],
    constants: tuple[float, ...],
    both: bool,
) -> Array:
    """The contributions of units to `unmixing.UnmixingScore`, one unit a row.

    Parameters
    ----------
    sources : tensor of shape (units, rows, k)
        The scaled sources.
    chosen : int tensor of shape (k,)
        The number of each source's score, plus 4 if its sign is reversed.
    windows : int tensor of shape (2, rows)
        The first of the rows around each row, and their number.
    window : int
        The largest number of rows around a row.
    weights : tuple of three floats
        The weights of correlations and slopes, and the constant entry.
    constants : tuple of four floats
        The least size, the own part of a row's size, the factor inside tanh, and the end of the cube.
    both : bool
        Whether the fourth score is used.
    """
    torch = _torch()
    sources = _aligned(sources)
    count, length, made = sources.shape
    long = max(_power(made), 16)
    sizes = torch.empty_like(sources)
    out = torch.empty(count, made * (made - 1) + 3 * made + 1, dtype=torch.float64, device=sources.device)
    if count:
        chosen, begins, widths = (_aligned(each) for each in (chosen, windows[0, :], windows[1, :]))
        # One program for each piece of a unit; `around` reads a window that may extend into neighbouring pieces of the
        # same unit.
        block, warps = _shape(length * made)
        given = (length, made, window, *weights, *constants, both)
        # Fewer registers let more units run at the same time.
        more = {"num_warps": 4, "maxnreg": 128} if long <= 32 else {"num_warps": 8}
        # More stages would hold the rows of several steps, and fewer units would run at a time.
        more["num_stages"] = 1
        with torch.cuda.device(sources.device):
            _kernels().around[(count, -(-length * made // block))](
                sources, begins, widths, sizes, length, made, window, block, num_warps=warps, **_KERNEL_OPTIONS
            )
            _kernels().unmixing[(count,)](sources, sizes, chosen, out, *given, 16, long, **more, **_KERNEL_OPTIONS)
    return out


# No contraction of products and sums into fused multiply-adds: the bits are then those of IEEE operations.
_KERNEL_OPTIONS = {"enable_fp_fusion": False}


def _shape(columns: int) -> tuple[int, int]:
    """The number of entries that a program processes at once, and its number of warps."""
    block = min(_PIECE if columns <= 1 << 25 else 8 * _PIECE, max(_power(columns), 32))  # at most 2^16 pieces
    return block, min(8, max(1, block // 128))


def _power(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(0, number - 1).bit_length()


def _torch() -> Any:
    """PyTorch, which is present where tensors are."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch
