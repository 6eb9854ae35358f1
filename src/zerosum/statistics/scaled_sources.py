"""Scaled sources of many units at once on a device, in batches of one shape, for statistics of time courses."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from zerosum.arrays import Array
from zerosum.compute.backends import fused
from zerosum.compute.backends.exact import Exact, doubles, fold, sized, whole
from zerosum.compute.devices import constant_on, is_gpu
from zerosum.statistics.scatter import PerRecording, recordings_of

_TOGETHER = 1 << 27  # most numbers of sources in one batch on a GPU
_ENTERING = 1 << 29  # most numbers of rows in one batch on a GPU
_BATCH_NUMBERS = 32_000  # most numbers in one batch on other devices
_SHORT = 1 << 15  # most numbers of a unit that one kernel program reads three times: they stay in a GPU's cache


def batch_units(rows: Array, entering: int, made: int) -> int:
    """Number of units in a batch, for units of `entering` numbers whose sources have `made` numbers.

    Parameters
    ----------
    rows : array
        Decides between the limits of a GPU and of other devices.
    entering : int
        Numbers of the rows of one unit.
    made : int
        Numbers that are computed for one unit.
    """
    units = min(_TOGETHER // made, _ENTERING // entering) if is_gpu(rows) else _BATCH_NUMBERS // max(made, entering)
    return max(1, int(units))


def scaled_sources(
    rows: Array, unmixing: Exact, runs: NDArray[np.int64], per_recording: PerRecording
) -> tuple[Array, Array]:
    """The sources of `rows` (units, rows, columns) in single precision, each of mean square 1 over its unit's rows, and
    which of them are not zero.

    All steps before the scaling are computed in double precision by operations whose result for a unit does not depend
    on other units (`compute.backends.exact`).

    Parameters
    ----------
    rows : array of shape (units, rows, columns)
        Units of one shape on a device.
    unmixing : Exact
        W' in whole numbers, of shape (columns, R).
    runs : int array
        The first row of each recording, and the end of the last one.
    per_recording : {"none", "center", "standardise"}
        As for `SourceStatistic`.

    Returns
    -------
    y : array of shape (units, rows, R)
        Scaled sources; zeros for a source that is silent.
    loud : bool array of shape (units, R)
        Whether each source is not zero.
    """
    xp, (units, length, columns) = array_namespace(rows), rows.shape
    own = doubles(recordings_of(rows, runs, per_recording))
    numbers = xp.reshape(_whole_numbers(xp.reshape(own, (units, -1))), (-1, columns))
    products = xp.reshape(unmixing.product(numbers), (units, length, -1))
    if fused.serves(products) and fused.holds(products.shape[2]):
        return fused.scaled(products, constant_on(unmixing.worth, rows))
    sources = products * constant_on(unmixing.worth[:-1], rows)[None, None, :]
    y = xp.reshape(unmixing.valid(xp.reshape(sources, (units, -1))), sources.shape)
    # Whether a source is silent is a decision about its unit, hence `fold`.
    power = fold(y * y)
    scale = xp.sqrt(length / xp.where(power > 0, power, xp.ones_like(power)))
    return xp.astype(y * scale[:, None, :], xp.float32), power > 0


def _whole_numbers(units: Array) -> Array:
    """Units, one in a row, as whole numbers of norm 2^26; by one kernel program for each unit if units are short."""
    if fused.serves(units) and units.shape[1] <= _SHORT:
        return fused.entered(units, None, None)[0]
    flat, _size, norm = sized(units)
    return whole(flat, norm)
