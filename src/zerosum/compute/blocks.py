"""Sums of many blocks: a compensated running sum, on the host or on a device.

A block is a part of a site's units that is computed in one pass. Kahan's compensated summation keeps the rounding error
of the running sum independent of the number of blocks; `kernel.grid.summation_slack` accounts for it.
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Array, Floats
from zerosum.compute.devices import on_host, to_numpy

# Numbers of a sum that are added at a time: 64 KiB in double precision, so that they stay in the processor's cache.
PIECE = 1 << 13


class Running:
    """A compensated sum of vectors (Kahan): the rounding error of one addition is added with the next vector, unless
    the sum is `exact`. The sum stays where the vectors are, on the host or on a device.

    Parameters
    ----------
    size : int
        Length of the vectors.
    exact : bool
        Whether no addition rounds (`BoundedStatistic.adds_exactly`); then no error is stored.
    """

    def __init__(self, size: int, *, exact: bool = False) -> None:
        self._size, self._exact = size, exact
        self._here: Floats | None = None
        self._lost: Floats | None = None  # rounding error of the total on the host; None for a single vector
        self._there: tuple[Array, Array] | None = None  # total and rounding error on a device

    def add(self, part: Array) -> None:
        """Add one vector of shape (size,). The first vector is stored without a rounding error, which starts at 0."""
        if not on_host(part):
            self._there = (part, part * 0.0) if self._there is None else compensated(*self._there, part)
        elif self._here is None:
            # A copy, since later parts are added to it in place, and `part` may be memory that the statistic uses
            # again.
            self._here = np.array(part, dtype=np.float64)
        elif self._exact:
            # Sums of whole numbers below 2^53 do not round, so there is no error to carry.
            self._here += part
        else:
            self._lost = np.zeros(self._size) if self._lost is None else self._lost
            _add_up(self._here, self._lost, part)

    def total(self) -> Floats:
        """The sum so far as a NumPy vector; zeros if nothing was added, as for a site whose sample is empty."""
        # Both sums exist if some units were added up on the host, because they failed on the device.
        parts = [] if self._here is None else [self._here]
        parts += [] if self._there is None else [to_numpy(self._there[0])]
        return sum(parts[1:], parts[0]) if parts else np.zeros(self._size)


def _add_up(total: Floats, lost: Floats, part: Floats) -> None:
    """`compensated` in place, in pieces that stay in the processor's cache."""
    added, raised = np.empty(PIECE), np.empty(PIECE)
    for start in range(0, len(total), PIECE):
        here = slice(start, min(start + PIECE, len(total)))
        more, higher = added[: here.stop - start], raised[: here.stop - start]
        np.add(part[here], lost[here], out=more)
        np.add(total[here], more, out=higher)
        # The part of `more` that reached the total; what is missing of it is the rounding error, which the next line
        # keeps.
        np.subtract(higher, total[here], out=lost[here])
        np.subtract(more, lost[here], out=lost[here])
        total[here] = higher


def compensated(total: Array, lost: Array, part: Array) -> tuple[Array, Array]:
    """Return the total with one more part, and the rounding error of this addition, to be added with the next part.

    Parameters
    ----------
    total, lost : array of shape (size,)
        The sum so far, and the rounding error of its last addition.
    part : array of shape (size,)
        What is added.
    """
    # Evaluated left to right, as written: a compiler or library that reassociates these lines makes the error zero.
    added = part + lost
    raised = total + added
    return raised, added - (raised - total)
