# type: ignore
"""The kernels of `fused`, for Triton to compile: only a machine with a GPU loads this.

Conventions. `tl.program_id(0)` is the unit (or the row, where each row is a unit), which becomes a 64-bit number before
it is multiplied, since an array may have more than 2^31 numbers. The other program index is a piece of the unit. Names
in capitals are constants of the compilation; loads beyond a unit's end are masked. No program reads another unit, and
sums run over fixed blocks, so that the bits of a unit depend on that unit alone.
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
    """Sum of squares of one piece of a row of `columns` numbers; `found` is (rows, pieces)."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(rows + row * columns + at, mask=at < columns, other=0.0).to(tl.float64)
    tl.store(found + row * pieces + piece, tl.sum(x * x, axis=0))


@triton.jit
def whole(rows, factor, found, columns, BLOCK: tl.constexpr):
    """One piece of a row times the row's factor, rounded to whole numbers; `found` is (rows, columns)."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(rows + row * columns + at, mask=at < columns, other=0.0).to(tl.float64)
    tl.store(found + row * columns + at, (x * tl.load(factor + row) + _EVEN) - _EVEN, mask=at < columns)


@triton.jit
def _placed(rows, center, scale, row, at, columns, CENTER: tl.constexpr, SCALE: tl.constexpr):
    """Some columns of a row as doubles, less `center` and over `scale`; 0 beyond the end."""
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
    """One row centred, scaled, divided by its norm and rounded to whole numbers of norm 2^26. Writes `numbers` (rows,
    columns), and for each row the sum of their squares (`size`) and the value of 1 (`worth`). Three passes over the
    row: norm and largest entry; the norm again if it overflowed; rounding.
    """
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
    # As `exact.sized`: the squares of such a row would overflow or lose bits, so that it is divided by its largest
    # entry.
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
    # Two loops with the same arithmetic. The usual row has no division, and a row that is not finite stores zeros.
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
    """Some columns of one recording of a unit, rows `first` to `last`, at mean zero and with STANDARDISE at variance
    one; `found` is (units, length, columns).
    """
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
            # A masked row was loaded as 0 and would add the square of the mean.
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
    """Sources of a unit scaled to mean square 1 over its rows. Writes `found` (units, length, made) in single precision
    and `loud` (units, made), the sums of squares, 0 for a silent source.
    """
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


@triton.jit(do_not_specialize=["length"])
def each_product(left, right, found, length, tall, wide, DEEP: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr):
    """One tile of left' right of a unit, `left` (units, length, tall) and `right` (units, length, wide); `found` is
    (units, tall, wide).
    """
    unit, across = tl.program_id(0).to(tl.int64), (wide + WIDE - 1) // WIDE
    i = tl.program_id(1) // across * TALL + tl.arange(0, TALL)
    j = tl.program_id(1) % across * WIDE + tl.arange(0, WIDE)
    places = tl.arange(0, DEEP)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(0, length, DEEP):
        row = start + places
        here = (row < length)[:, None]
        at = unit * length + row[:, None]
        one = tl.load(left + at * tall + i[None, :], mask=here & (i < tall)[None, :], other=0.0)
        other = tl.load(right + at * wide + j[None, :], mask=here & (j < wide)[None, :], other=0.0)
        total = tl.dot(tl.trans(one), other, total, input_precision="ieee")
    inside = (i < tall)[:, None] & (j < wide)[None, :]
    tl.store(found + (unit * tall + i[:, None]) * wide + j[None, :], total, mask=inside)


@triton.jit(do_not_specialize=["length", "window"])
def around(sources, begins, widths, found, length, made, window, BLOCK: tl.constexpr):
    """The mean square over the window around each row, for one piece of a unit's rows and sources; `found` is (units,
    length, made).
    """
    base = tl.program_id(0).to(tl.int64) * length * made
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = at < length * made
    row, source = at // made, at % made
    begin = tl.load(begins + row, mask=here, other=0) * made + source
    width = tl.load(widths + row, mask=here, other=1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(0, window):
        # Every row takes `window` steps; a row whose window is shorter, at the ends of a recording, adds zeros.
        near = tl.load(sources + base + begin + step * made, mask=here & (step < width), other=0.0)
        total += near * near
    tl.store(found + base + at, total / width.to(tl.float32), mask=here)


@triton.jit
def _slope(along, power, slope):
    """How steep a score is beside its linear part, in its own size, and that size: infinite where nothing is left."""
    left = power - along * along
    size = tl.where(left > 1e-6, tl.sqrt(tl.maximum(left, 1e-6)), float("inf"))
    return (slope - along) / size, size


@triton.jit(do_not_specialize=["length", "window"])
def unmixing(
    sources,
    sizes,
    chosen,
    vectors,
    length,
    made,
    window,
    correlation_weight,
    slope_weight,
    constant,
    least,
    own,
    tanh_of,
    far,
    BOTH: tl.constexpr,
    TALL: tl.constexpr,
    LONG: tl.constexpr,
):
    """The contribution of one unit to `statistics.unmixing.UnmixingScore`, before it is divided by its norm.

    One pass over the unit's rows collects the sums of all scores and the products F and C; the part after the loop
    applies the formulas of `UnmixingScore._vectors_on_host`. `vectors` is (units, size): turns, correlations, slopes by
    score, constant.
    """
    unit = tl.program_id(0).to(tl.int64)
    base = unit * length * made
    places, source = tl.arange(0, TALL), tl.arange(0, LONG)
    known = source < made
    code = tl.load(chosen + source, mask=known, other=0)
    F = tl.zeros((LONG, LONG), dtype=tl.float32)
    C = tl.zeros((LONG, LONG), dtype=tl.float32)
    steep = tl.zeros((TALL, LONG), dtype=tl.float32)
    power = tl.zeros((TALL, LONG), dtype=tl.float32)
    along = tl.zeros((TALL, LONG), dtype=tl.float32)
    tanh_power = tl.zeros((TALL, LONG), dtype=tl.float32)
    tanh_along = tl.zeros((TALL, LONG), dtype=tl.float32)
    cube_steep = tl.zeros((TALL, LONG), dtype=tl.float32)
    cube_power = tl.zeros((TALL, LONG), dtype=tl.float32)
    cube_along = tl.zeros((TALL, LONG), dtype=tl.float32)
    both_steep = tl.zeros((TALL, LONG), dtype=tl.float32)
    both_power = tl.zeros((TALL, LONG), dtype=tl.float32)
    both_along = tl.zeros((TALL, LONG), dtype=tl.float32)
    score = (code % 4)[None, :]
    for start in range(0, length, TALL):
        row = start + places
        here = (row < length)[:, None] & known[None, :]
        at = base + row[:, None] * made + source[None, :]
        y = tl.load(sources + at, mask=here, other=0.0)
        near = tl.load(sizes + at, mask=here, other=0.0)
        square = y * y

        size = tl.where(here, 1.0 / (near * (1.0 - least) + least), 0.0)
        psi = y * size
        steep += size
        power += psi * psi
        along += psi * y
        picked = tl.where(score == 0, psi, 0.0)

        # tanh from exp of a negative argument, which cannot overflow; the sign is set afterwards.
        grown = tl.exp(tl.abs(y) * (-2.0 * tanh_of))
        psi = (1.0 - grown) / (1.0 + grown)
        psi = tl.where(y < 0, -psi, psi)
        tanh_power += psi * psi
        tanh_along += psi * y
        picked = tl.where(score == 1, psi, picked)

        cut = tl.minimum(square, far * far)
        psi = -(tl.minimum(tl.maximum(y, -far), far) * cut)
        cube_steep += tl.where(square >= far * far, 0.0, -cut)
        cube_power += psi * psi
        cube_along += psi * y
        picked = tl.where(score == 2, psi, picked)

        if BOTH:
            size = (near * (1.0 - own) + square * own) * (1.0 - least) + least
            size = tl.where(here, 1.0 / size, 0.0)
            psi = y * size
            both_steep += size
            both_power += psi * psi
            both_along += psi * y
            picked = tl.where(score == 3, psi, picked)

        # Single precision without TF32, which rounds factors to 10 bits.
        F = tl.dot(tl.trans(picked), y, F, input_precision="ieee")
        C = tl.dot(tl.trans(y), y, C, input_precision="ieee")

    rows = length.to(tl.float64)
    part = window.to(tl.float64)
    kind = code % 4
    scale = -2.0 * (1.0 - least)
    p, a = tl.sum(power, axis=0).to(tl.float64) / rows, tl.sum(along, axis=0).to(tl.float64) / rows
    slope, divisor = _slope(a, p, tl.sum(steep, axis=0).to(tl.float64) / rows + p * (scale / part))
    linear = a
    p, a = tl.sum(tanh_power, axis=0).to(tl.float64) / rows, tl.sum(tanh_along, axis=0).to(tl.float64) / rows
    tanh_slope, size = _slope(a, p, (1.0 - p) * tanh_of)
    linear, divisor = tl.where(kind == 1, a, linear), tl.where(kind == 1, size, divisor)
    p, a = tl.sum(cube_power, axis=0).to(tl.float64) / rows, tl.sum(cube_along, axis=0).to(tl.float64) / rows
    cube_slope, size = _slope(a, p, tl.sum(cube_steep, axis=0).to(tl.float64) / rows * 3.0)
    linear, divisor = tl.where(kind == 2, a, linear), tl.where(kind == 2, size, divisor)
    if BOTH:
        p, a = tl.sum(both_power, axis=0).to(tl.float64) / rows, tl.sum(both_along, axis=0).to(tl.float64) / rows
        _unused, size = _slope(a, p, p)
        linear, divisor = tl.where(kind == 3, a, linear), tl.where(kind == 3, size, divisor)
    worth = 1.0 / (tl.where(code >= 4, -divisor, divisor) * rows)  # turned over, or not

    together = C.to(tl.float64)
    mixed = (F.to(tl.float64) - together * linear[:, None]) * worth[:, None]
    pairs = made * (made - 1) // 2
    i, j = source[:, None], source[None, :]
    out = vectors + unit * (2 * pairs + 3 * made + 1)
    # Position of the pair (i, j), i < j, among the rows of the upper triangle without the diagonal.
    at = out + i * made - i * (i + 1) // 2 + j - i - 1
    inside = (i < j) & (j < made)
    tl.store(at, (mixed - tl.trans(mixed)) * 0.7071067811865476, mask=inside)
    tl.store(at + pairs, together * (correlation_weight / rows), mask=inside)
    loud = tl.sum(tl.where(i == j, together, 0.0), axis=0) > 0
    at = out + 2 * pairs + source
    tl.store(at, tl.where(loud, slope * slope_weight, 0.0), mask=known)
    tl.store(at + made, tl.where(loud, tanh_slope * slope_weight, 0.0), mask=known)
    tl.store(at + 2 * made, tl.where(loud, cube_slope * slope_weight, 0.0), mask=known)
    tl.store(out + 2 * pairs + 3 * made + source, constant + source.to(tl.float64), mask=source == 0)
