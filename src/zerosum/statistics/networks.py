"""From each unit's rows to the covariance of its networks: what dual regression and connectivity begin with.

With rows x_t in R^V (t = 1, ..., T) after centring or standardising within recordings, and a public matrix P (V x k):

    y_t = P' x_t                 shape (k,)
    K   = sum over t of y_t y_t'  shape (k, k), up to a positive factor

Arithmetic. What follows from K decides about a unit (a clip), so that the bits of K must depend on the unit alone.
Rows, P and y are rounded to whole numbers of 26 bits of their norm, whose products are exact in any order
(`zerosum.compute.backends.exact`). The factor is the square of a norm of the unit: correlations and regressions on K do
not depend on it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import Field

from zerosum.arrays import Array
from zerosum.compute.backends.exact import Exact, constant_on, doubles, sized, whole
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Batch, Units, pieces
from zerosum.statistics.scatter import PerRecording, recordings_of

# Most numbers of the rows of units that are computed together, or of their matrices; a batch has at least one unit.
_BATCH_NUMBERS = 1 << 21


class NetworkStatistic(BoundedStatistic):
    """Base of statistics of the covariances between networks of each unit.

    Parameters
    ----------
    columns : int
        Number of columns of the data.
    per_recording : {"none", "center", "standardise"}
        Bring each column of each recording to mean zero, and with "standardise" to variance one.
    """

    adds_in_pieces: ClassVar[bool] = True
    adds_units: ClassVar[bool] = True
    columns: int = Field(gt=0)
    per_recording: PerRecording = "none"

    @property
    @abstractmethod
    def unit_numbers(self) -> int:
        """Numbers of the largest matrix of one unit, which it has whatever the number of its rows."""

    def rows_by_shape(self, block: Units) -> Iterator[tuple[Batch, slice, Array]]:
        """The rows of a block as doubles, those of units of one shape together, shape (units, rows, columns)."""
        for batch in block.batches():
            rows = batch.of(block.rows)
            # Units of few rows have matrices that are larger than their rows.
            each = max(batch.length * self.columns, self.unit_numbers)
            for some in pieces(len(batch), max(1, _BATCH_NUMBERS // each)):
                yield batch, some, doubles(rows[some, ...])

    def numbers(self, rows: Array, batch: Batch, exact: Exact | None) -> tuple[Array, Array]:
        """Whole numbers of norm about 2^26 in proportion to y, shape (units, rows, k), and the factor of each unit.

        Parameters
        ----------
        rows : array of shape (units, rows, V)
            The rows of units of one shape.
        batch : Batch
            Their recordings.
        exact : Exact or None
            The public matrix P; None for the rows themselves.

        Returns
        -------
        numbers : array of shape (units, rows, k)
        worth : array of shape (units,)
            y is `numbers` times this, up to a factor that all units and matrices have in common.
        """
        own = recordings_of(rows, batch.runs, self.per_recording)
        xp, (units, length, width) = array_namespace(own), own.shape
        flat, size, norm = sized(xp.reshape(own, (units, -1)))
        worth = size
        if exact is not None:
            norms = xp.reshape(xp.broadcast_to(norm[:, None], (units, length)), (-1,))
            products = exact.projections(xp.reshape(flat, (units * length, width)), norms)
            # A unit whose products are no larger than the rounding of its rows counts as zero.
            worth = worth * norm
            flat, size, norm = sized(exact.valid(xp.reshape(products, (units, -1))))
            worth = worth * size
        return xp.reshape(whole(flat, norm), (units, length, -1)), worth * norm


def first_rows(block: Units, batch: Batch, some: slice, column: int) -> Array:
    """The value of a column in the first row of each unit, shape (units,): a person's covariate, equal in all rows."""
    rows = doubles(block.rows[:, column])
    xp = array_namespace(rows)
    return xp.take(rows, constant_on(batch.begins[some], rows), axis=0)


def zeros(like: Array, *shape: int) -> Array:
    """Zeros in the namespace and on the device of an array."""
    xp = array_namespace(like)
    return xp.zeros(shape, dtype=xp.float64, device=device_of(like))
