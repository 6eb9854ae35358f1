"""What decisions rest on, in one pass over a GPU's memory where Triton is installed.

Every program of a kernel sees the rows of one unit, or a piece of them of a fixed length, and nothing else. How it adds
up depends on the kernel alone, which is compiled for a unit's own shape and for public ones: the number of units is no
argument of any kernel, all arrays begin at addresses of the same alignment, and products and sums are not contracted.
So a unit's bits are its own, as they are on the host. A device shows that on public numbers before kernels serve it.

Tested in tests/statistics/test_gpu.py.
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
from zerosum.kernel.units import fold

_log = logging.getLogger(__name__)  # stays at the site
_PIECE = 1024  # numbers that one program adds up or rounds
_WIDEST = 64  # sources of a unit that one program holds


@cache
def _installed() -> bool:
    return find_spec("triton") is not None and os.environ.get("ZEROSUM_TRITON", "1") != "0"


def serves(rows: Array) -> bool:
    """Whether there are kernels for these rows: where they lie and what they are kept as, never what they hold."""
    return bool(
        is_torch_array(rows)
        and rows.device.type == "cuda"
        and rows.dtype.is_floating_point
        and rows.element_size() >= 4
        and _installed()
        and _keeps(str(rows.device))
    )


@cache
def _keeps(device: str) -> bool:
    """Whether the kernels give a unit the same bits alone and wherever it stands among others: tried on public numbers,
    once. Where they do not, or fail, plain operations take their place, which are slower."""
    try:
        found = _same_bits(device)
    except Exception:
        _log.warning("kernels of Triton fail on %s and are not used", device, exc_info=True)
        return False
    if not found:
        _log.warning("kernels of Triton compute a unit by its place on %s and are not used", device)
    return found


def _same_bits(device: str) -> bool:
    rng = np.random.default_rng(0)
    return all(_same_bits_of(device, rng, length, columns) for length, columns in ((40, 24), (7, 3)))


def _same_bits_of(device: str, rng: np.random.Generator, length: int, columns: int) -> bool:
    torch, count = _torch(), 9
    x = torch.from_numpy(rng.lognormal(sigma=2, size=(count, length, columns)) * rng.choice([-1.0, 1.0], columns))
    x = x.to(device)
    placed = [torch.from_numpy(each).to(device) for each in rng.uniform(0.5, 2, (2, length * columns))]
    worth = torch.from_numpy(np.append(rng.uniform(0.5, 2, columns), 0.1)).to(device)
    chosen = torch.from_numpy(np.arange(columns, dtype=np.int32) % 8).to(device)
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
    shifts = all(
        torch.equal(one.roll(shift, 0), other)
        for shift in (0, 1, count // 2)
        for one, other in zip(base, made(x.roll(shift, 0)), strict=True)
    )
    return shifts and all(
        torch.equal(one[some], other)
        for some in (slice(0, 1), slice(3, 4), slice(2, 7), slice(4, count))
        for one, other in zip(base, made(x[some]), strict=True)
    )


def _kernels() -> Any:
    from zerosum.statistics import triton_kernels

    return triton_kernels


def _aligned(tensor: Any) -> Any:
    """The same numbers in one piece that begins at a multiple of 16 bytes, as all new tensors do."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def squares(rows: Array) -> Array:
    """The sum of the squares of each row, in double precision."""
    torch = _torch()
    rows = _aligned(rows)
    count, columns = rows.shape
    block, warps = _shape(columns)
    pieces = -(-columns // block)
    found = torch.empty(count, pieces, dtype=torch.float64, device=rows.device)
    if count:
        with torch.cuda.device(rows.device):
            _kernels().squares[(count, pieces)](rows, found, columns, pieces, block, num_warps=warps, **_PLAIN)
    return fold(found)


def whole(rows: Array, factor: Array) -> Array:
    """Each row times its factor, rounded to whole numbers, halves to even."""
    torch = _torch()
    rows = _aligned(rows)
    count, columns = rows.shape
    found = torch.empty(count, columns, dtype=torch.float64, device=rows.device)
    block, warps = _shape(columns)
    if count:
        with torch.cuda.device(rows.device):
            _kernels().whole[(count, -(-columns // block))](
                rows, _aligned(factor), found, columns, block, num_warps=warps, **_PLAIN
            )
    return found


def entered(rows: Array, center: Array | None, scale: Array | None) -> tuple[Array, Array, Array]:
    """Rows less a centre and over a scale, as whole numbers (`rows.sized`, then `rows.whole`), the sum of the squares
    of these, and what a whole number is worth (0 for a row of nothing, or one that is not finite)."""
    torch = _torch()
    rows = _aligned(rows)
    count, columns = rows.shape
    numbers = torch.empty(count, columns, dtype=torch.float64, device=rows.device)
    size, worth = (torch.empty(count, dtype=torch.float64, device=rows.device) for _ in range(2))
    block, warps = _shape(columns)
    if count:
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
                **_PLAIN,
            )
    return numbers, size, worth


def recordings(rows: Array, runs: list[tuple[int, int]], standardise: bool) -> Array:
    """Units x rows x columns, each column of each recording brought to mean zero and, if asked for, to variance one."""
    torch = _torch()
    rows = _aligned(rows)
    count, length, columns = rows.shape
    found = torch.empty(rows.shape, dtype=torch.float64, device=rows.device)
    wide = 64 if columns > 32 else 32
    if count:
        with torch.cuda.device(rows.device):
            for first, last in runs:
                _kernels().recording[(count, -(-columns // wide))](
                    rows, found, length, columns, first, last, standardise, 16, wide, num_warps=4, **_PLAIN
                )
    return found


def holds(sources: int) -> bool:
    """Whether one program can hold some rows of a unit with so many sources."""
    return sources <= _WIDEST


def scaled(products: Array, worth: Array) -> tuple[Array, Array]:
    """Units x rows x sources times `worth` (one a source), each source over its unit's rows scaled to mean square
    1 and rounded to single precision, and which of them are not silent. A unit of which nothing is left but the last
    number of `worth`, what rounding may come to, has none."""
    torch = _torch()
    products = _aligned(products)
    count, length, made = products.shape
    found = torch.empty(products.shape, dtype=torch.float32, device=products.device)
    loud = torch.empty(count, made, dtype=torch.float64, device=products.device)
    if count:
        with torch.cuda.device(products.device):
            _kernels().scaled[(count,)](
                products,
                _aligned(worth),
                found,
                loud,
                length,
                made,
                32,
                max(_power(made), 16),
                num_warps=4,
                **_PLAIN,
            )
    return found, loud > 0


def each_product(left: Array, right: Array) -> Array:
    """left' right of each unit (units x rows x anything), in single precision."""
    torch = _torch()
    left, right = _aligned(left), _aligned(right)
    (count, length, tall), wide = left.shape, right.shape[2]
    found = torch.empty(count, tall, wide, dtype=torch.float32, device=left.device)
    tile = 64 if max(tall, wide) > 32 else 32
    if count:
        with torch.cuda.device(left.device):
            _kernels().each_product[(count, -(-tall // tile) * -(-wide // tile))](
                left, right, found, length, tall, wide, 32, tile, tile, num_warps=4, **_PLAIN
            )
    return found


def unmixing(
    sources: Array,
    chosen: Array,
    windows: Array,
    window: int,
    weights: tuple[float, float, float],
    constants: tuple[float, ...],
    both: bool,
) -> Array:
    """What units say in `unmixing.UnmixingScore`, one a row. `chosen` is the number of each source's score, plus 4 if
    it is turned over; `windows` holds where the rows around each row begin, and how many they are, at most `window`;
    the weights are those of correlations and slopes and the constant that is told; the other constants are the least
    size, the own part of a row's size, what tanh is of and where the cube ends."""
    torch = _torch()
    sources = _aligned(sources)
    count, length, made = sources.shape
    long = max(_power(made), 16)
    sizes = torch.empty_like(sources)
    told = torch.empty(count, made * (made - 1) + 3 * made + 1, dtype=torch.float64, device=sources.device)
    if count:
        chosen, begins, widths = (_aligned(each) for each in (chosen, windows[0, :], windows[1, :]))
        block, warps = _shape(length * made)
        given = (length, made, window, *weights, *constants, both)
        more = {"num_warps": 4, "maxnreg": 128} if long <= 32 else {"num_warps": 8}
        more["num_stages"] = 1  # more would hold several steps' rows, and fewer units at a time
        with torch.cuda.device(sources.device):
            _kernels().around[(count, -(-length * made // block))](
                sources, begins, widths, sizes, length, made, window, block, num_warps=warps, **_PLAIN
            )
            _kernels().unmixing[(count,)](sources, sizes, chosen, told, *given, 16, long, **more, **_PLAIN)
    return told


_PLAIN = {"enable_fp_fusion": False}


def _shape(columns: int) -> tuple[int, int]:
    """How many numbers a program takes at once, and by how many warps."""
    block = min(_PIECE if columns <= 1 << 25 else 8 * _PIECE, max(_power(columns), 32))  # at most 2^16 pieces
    return block, min(8, max(1, block // 128))


def _power(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _torch() -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch
