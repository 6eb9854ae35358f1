"""Sources of many units at once on a device, in batches of one shape: what statistics of time courses begin with there.

Tested in tests/statistics/test_gpu.py.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from zerosum.arrays import Array
from zerosum.kernel.devices import is_gpu, like
from zerosum.statistics import fused
from zerosum.statistics.rows import BITS, INSIDE, Exact, doubles, fold, sized, whole
from zerosum.statistics.scatter import PerRecording, recordings_of

_TOGETHER = 1 << 27  # numbers of the sources of a batch on a GPU
_ENTERING = 1 << 29  # and of the rows that they are made of
_FEW = 32_000  # numbers elsewhere


def batch_units(rows: Array, entering: int, made: int) -> int:
    """How many units a batch holds, if one enters with so many numbers and so many are made of it."""
    units = min(_TOGETHER // made, _ENTERING // entering) if is_gpu(rows) else _FEW // max(made, entering)
    return max(1, int(units))


def inner(left: Array, right: Array) -> Array:
    """For each unit (units x rows x columns) left' right, a sum over its rows that does not round: of both factors as
    whole numbers, of 26 bits of a unit's norm, which is more than single precision holds."""
    xp = array_namespace(left)
    (one, first), (other, second) = _whole(left), _whole(right)
    return xp.matmul(xp.matrix_transpose(one), other) * (first * second)[:, None, None]


def _whole(values: Array) -> tuple[Array, Array]:
    """Units as whole numbers, and what one of these is worth."""
    xp = array_namespace(values)
    flat, size, norm = sized(doubles(xp.reshape(values, (values.shape[0], -1))))
    return xp.reshape(whole(flat, norm), values.shape), size * norm * (INSIDE * 2.0**-BITS)


def scaled_sources(
    rows: Array, unmixing: Exact, runs: NDArray[np.int64], per_recording: PerRecording
) -> tuple[Array, Array]:
    """The sources of units x rows x columns in single precision, each of mean square 1 over its unit's rows, and which
    of them are not silent. Up to the scale everything is computed in double precision, and nothing of it depends on the
    other units: `rows` says why."""
    xp, (units, length, columns) = array_namespace(rows), rows.shape
    own = doubles(recordings_of(rows, runs, per_recording))
    flat, _size, norm = sized(xp.reshape(own, (units, -1)))
    products = xp.reshape(unmixing.product(xp.reshape(whole(flat, norm), (-1, columns))), (units, length, -1))
    if fused.serves(products) and fused.holds(products.shape[2]):
        return fused.scaled(products, like(unmixing.worth, rows))
    seen = products * like(unmixing.worth[:-1], rows)[None, None, :]
    y = xp.reshape(unmixing.valid(xp.reshape(seen, (units, -1))), seen.shape)
    power = fold(y * y)
    scale = xp.sqrt(length / xp.where(power > 0, power, xp.ones_like(power)))
    return xp.astype(y * scale[:, None, :], xp.float32), power > 0


def averaged(values: Array, runs: NDArray[np.int64], window: int) -> Array:
    """The mean over `window` rows of the same recording around each; rows near an end have that of the nearest whole
    window. Units x rows x columns."""
    xp, parts = array_namespace(values), []
    for first, last in pairwise(runs.tolist()):
        wide = min(window, last - first)
        whole, before = last - first - wide + 1, wide // 2
        sums, length, start, found = values[:, first:last, :], 1, 0, []
        while True:  # sums over 1, 2, 4, ... rows, as the binary digits of the window ask for them
            if wide & length:
                found.append(sums[:, start : start + whole, :])
                start += length
            if 2 * length > wide:
                break
            sums = sums[:, :-length, :] + sums[:, length:, :]
            length *= 2
        middle = sum(found[1:], found[0]) * (1 / wide)
        shape = (
            (values.shape[0], before, values.shape[2]),
            (values.shape[0], last - first - before - whole, values.shape[2]),
        )
        ends = xp.broadcast_to(middle[:, :1, :], shape[0]), xp.broadcast_to(middle[:, -1:, :], shape[1])
        parts.append(xp.concat([ends[0], middle, ends[1]], axis=1))
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)
