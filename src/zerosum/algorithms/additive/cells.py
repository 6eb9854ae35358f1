"""Cells of the columns of an additive model: fine bins are merged where the released counts do not support them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerosum.algorithms.additive.tuning import TUNING
from zerosum.algorithms.synthetic.bins import Coding
from zerosum.arrays import Floats


def widths_of(bins: int) -> tuple[int, ...]:
    """Widths of the nested grids of an ordered column, in fine bins; none for a column with few bins.

    Parameters
    ----------
    bins : int
        The number of fine bins.

    >>> widths_of(1024), widths_of(16)
    ((1, 8, 64), ())
    """
    if bins <= TUNING.plain:
        return ()
    found = [1]
    while bins / found[-1] > TUNING.plain:
        found.append(found[-1] * TUNING.fan)
    return tuple(found)


def merged(grids: Sequence[Floats], widths: Sequence[int], bins: int, least: float, most: int) -> Coding:
    """The cell of every fine bin: every cell has at least a given count, and there are at most `most` cells.

    Parameters
    ----------
    grids : sequence of arrays
        Noisy counts of each grid, the finest first.
    widths : sequence of int
        Width of the bins of each grid.
    bins : int
        The number of fine bins.
    least : float
        Least count of a cell.
    most : int
        Most cells.

    Returns
    -------
    cells : array of shape (bins,)
        0, 1, ... without gaps, rising.
    """
    while True:
        found = _merged(grids, widths, bins, least)
        if found[-1] < most:
            return found
        least *= 1.5


def _merged(grids: Sequence[Floats], widths: Sequence[int], bins: int, least: float) -> Coding:
    """`merged` for one least count.

    A bin of a wide grid is opened if it holds twice the least count and one of its parts half of it. Then neighbours
    are joined until each cell has the least count; a cell ends before a much larger one, which would hide it.
    """
    leaves: list[tuple[int, int, float]] = []

    def visit(level: int, at: int) -> None:
        parts = range(0)
        if level:
            factor = widths[level] // widths[level - 1]
            parts = range(factor * at, min(factor * (at + 1), len(grids[level - 1])))
        if parts and grids[level][at] > 2 * least and max(grids[level - 1][each] for each in parts) > least / 2:
            for each in parts:
                visit(level - 1, each)
        else:
            leaves.append((at * widths[level], min((at + 1) * widths[level], bins), float(grids[level][at])))

    for at in range(len(grids[-1])):
        visit(len(grids) - 1, at)
    found = np.zeros(bins, dtype=np.intp)
    current, held, joined = 0, 0.0, 0
    for at, (low, high, count) in enumerate(leaves):
        following = leaves[at + 1][2] if at + 1 < len(leaves) else 0.0
        found[low:high] = current
        held, joined = held + count, joined + 1
        # The noise of a sum of k counts grows with the root of k.
        if held > least * np.sqrt(joined) or (following > 3 * least and held > 0):
            current, held, joined = current + 1, 0.0, 0
    if joined and current:
        found[found == current] = current - 1
    return found


def coarse(cells: int, most: int) -> Coding:
    """A coding of a column's cells, the last of which is for missing values, to at most `most` and one for these.

    >>> coarse(5, 2).tolist()
    [0, 0, 1, 1, 2]
    """
    bins = min(cells - 1, most)
    return np.append(np.arange(cells - 1) * bins // max(cells - 1, 1), bins).astype(np.intp)
