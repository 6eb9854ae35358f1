# type: ignore
"""The kernels of `fused`, for Triton to compile: only a machine with a GPU loads this.

Tested in tests/statistics/test_gpu.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

# 1.5 * 2^52: a number below 2^51 that is added to it and taken off again is rounded to a whole one, halves to even
_EVEN = tl.constexpr(6755399441055744.0)
_WHOLE = tl.constexpr(67108864.0)  # 2^26 for a norm of 1
_INSIDE = tl.constexpr(1 + 2.0**-46)
_LARGEST = tl.constexpr(1.7976931348623157e308)


@triton.jit
def squares(rows, found, columns, pieces, BLOCK: tl.constexpr):
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(rows + row * columns + at, mask=at < columns, other=0.0).to(tl.float64)
    tl.store(found + row * pieces + piece, tl.sum(x * x, axis=0))


@triton.jit
def whole(rows, factor, found, columns, BLOCK: tl.constexpr):
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(rows + row * columns + at, mask=at < columns, other=0.0).to(tl.float64)
    tl.store(found + row * columns + at, (x * tl.load(factor + row) + _EVEN) - _EVEN, mask=at < columns)


@triton.jit
def _placed(rows, center, scale, row, at, columns, CENTER: tl.constexpr, SCALE: tl.constexpr):
    x = tl.load(rows + row * columns + at, mask=at < columns, other=0.0).to(tl.float64)
    if CENTER:
        x = x - tl.load(center + at, mask=at < columns, other=0.0)
    if SCALE:
        x = x / tl.load(scale + at, mask=at < columns, other=1.0)
    return x


@triton.jit
def entered(
    rows, center, scale, numbers, size, worth, columns, CENTER: tl.constexpr, SCALE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    largest = tl.zeros((BLOCK,), dtype=tl.float64)
    unsound = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        x = _placed(rows, center, scale, row, start + places, columns, CENTER, SCALE)
        total += x * x
        high = tl.abs(x)
        sound = high <= _LARGEST
        unsound += tl.where(sound, 0, 1)
        largest = tl.maximum(largest, tl.where(sound, high, 0.0))
    square, most, bad = tl.sum(total, axis=0), tl.max(largest, axis=0), tl.sum(unsound, axis=0) > 0
    divisor = most * 0.0 + 1.0
    if (square <= 1e-200) | (square >= 1e200):
        if most > 0:
            divisor = most
        again = tl.zeros((BLOCK,), dtype=tl.float64)
        for start in range(0, columns, BLOCK):
            x = _placed(rows, center, scale, row, start + places, columns, CENTER, SCALE) / divisor
            again += x * x
        square = tl.sum(again, axis=0)
    norm = tl.sqrt(square)
    nothing = bad | (norm == 0)
    factor = tl.where(nothing, 0.0, _WHOLE / (tl.where(nothing, 1.0, norm) * _INSIDE))
    entering = tl.zeros((BLOCK,), dtype=tl.float64)
    if nothing | (divisor != 1.0):
        for start in range(0, columns, BLOCK):
            at = start + places
            x = _placed(rows, center, scale, row, at, columns, CENTER, SCALE)
            x = (tl.where(nothing, 0.0, x / divisor) * factor + _EVEN) - _EVEN
            entering += x * x
            tl.store(numbers + row * columns + at, x, mask=at < columns)
    else:
        for start in range(0, columns, BLOCK):
            at = start + places
            x = _placed(rows, center, scale, row, at, columns, CENTER, SCALE)
            x = (x * factor + _EVEN) - _EVEN
            entering += x * x
            tl.store(numbers + row * columns + at, x, mask=at < columns)
    tl.store(size + row, tl.sum(entering, axis=0))
    tl.store(worth + row, tl.where(nothing, 0.0, divisor * (norm * (1 / _WHOLE))))


@triton.jit(do_not_specialize=["length", "first", "last"])
def recording(
    rows, found, length, columns, first, last, STANDARDISE: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr
):
    unit = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    places = tl.arange(0, TALL).to(tl.int64)
    base = unit * length * columns
    total = tl.zeros((TALL, WIDE), dtype=tl.float64)
    for start in range(first, last, TALL):
        row = start + places
        here = (row < last)[:, None] & (column < columns)[None, :]
        total += tl.load(rows + base + row[:, None] * columns + column[None, :], mask=here, other=0.0).to(tl.float64)
    mean = tl.sum(total, axis=0) / (last - first).to(tl.float64)
    spread = mean * 0.0 + 1.0
    if STANDARDISE:
        total = tl.zeros((TALL, WIDE), dtype=tl.float64)
        for start in range(first, last, TALL):
            row = start + places
            here = (row < last)[:, None] & (column < columns)[None, :]
            x = tl.load(rows + base + row[:, None] * columns + column[None, :], mask=here, other=0.0).to(tl.float64)
            x = tl.where(here, x - mean[None, :], 0.0)
            total += x * x
        spread = tl.sqrt(tl.sum(total, axis=0) / (last - first).to(tl.float64))
        spread = tl.where(spread > 0, spread, 1.0)
    for start in range(first, last, TALL):
        row = start + places
        here = (row < last)[:, None] & (column < columns)[None, :]
        at = base + row[:, None] * columns + column[None, :]
        x = tl.load(rows + at, mask=here, other=0.0).to(tl.float64)
        x = x - mean[None, :]
        if STANDARDISE:
            x = x / spread[None, :]
        tl.store(found + at, x, mask=here)


@triton.jit(do_not_specialize=["length"])
def scaled(products, worth, found, loud, length, made, TALL: tl.constexpr, LONG: tl.constexpr):
    unit = tl.program_id(0).to(tl.int64)
    base = unit * length * made
    places, source = tl.arange(0, TALL), tl.arange(0, LONG)
    value = tl.load(worth + source, mask=source < made, other=0.0)
    power = tl.zeros((TALL, LONG), dtype=tl.float64)
    largest = tl.zeros((TALL, LONG), dtype=tl.float64)
    for start in range(0, length, TALL):
        row = start + places
        here = (row < length)[:, None] & (source < made)[None, :]
        y = tl.load(products + base + row[:, None] * made + source[None, :], mask=here, other=0.0) * value[None, :]
        power += y * y
        largest = tl.maximum(largest, tl.abs(y))
    left = tl.max(tl.max(largest, axis=1), axis=0) > tl.load(worth + made)
    loudness = tl.where(left, tl.sum(power, axis=0), 0.0)
    scale = tl.sqrt(length.to(tl.float64) / tl.where(loudness > 0, loudness, 1.0))
    scale = tl.where(left, value * scale, 0.0)
    for start in range(0, length, TALL):
        row = start + places
        here = (row < length)[:, None] & (source < made)[None, :]
        at = base + row[:, None] * made + source[None, :]
        y = tl.load(products + at, mask=here, other=0.0) * scale[None, :]
        tl.store(found + at, y.to(tl.float32), mask=here)
    tl.store(loud + unit * made + source, loudness, mask=source < made)
