"""Statistics defined by a user: a function of one unit, whose values are clipped here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import clip_rows
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency, Positive
from zerosum.statistics import register


class UserStatistic(BoundedStatistic):
    """The sum over units of a function of the unit's rows, clipped to norm c.

    The function is called with one unit's rows (a copy) and the public `options`, one unit at a time, and may use
    nothing else: it must not remember earlier units. If it fails, or returns anything but `length` finite numbers, the
    unit counts as zero.

    Sensitivity. Contributions v lie in the ball of radius c: norm(v - v') <= 2c when one is replaced, c when one is
    added or removed, whatever the function does.

    Parameters
    ----------
    columns : int
        Number of columns of the data.
    clip : float
        c, the largest norm of a contribution.
    options : mapping of str to float
        Public arguments of the function, which a plan states.
    """

    in_threads: ClassVar[bool] = False  # the function need not be thread-safe
    columns: int = Field(gt=0)
    clip: Positive
    options: Mapping[str, float] = Field(default_factory=dict)

    length: ClassVar[int]
    function: ClassVar[Callable[..., ArrayLike]]

    @property
    def size(self) -> int:
        """The number of values that the function returns."""
        return self.length

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def sum_block(self, block: Units) -> Array:
        """The sum of the clipped values of some units."""
        # One call for each unit: a function of several units could make one unit's value depend on another.
        values = np.vstack([self._one(rows.copy()) for rows in block.each()])
        return np.sum(clip_rows(values, self.clip), axis=0)

    def _one(self, rows: Floats) -> Floats:
        """The values of the function for one unit, shape (size,); zeros if it fails.

        Parameters
        ----------
        rows : array of shape (rows, columns)
            A copy of the unit's rows: a function that writes to its argument must not change the data.
        """
        try:
            value = np.array(type(self).function(rows, **self.options), dtype=np.float64)  # a copy: it may be reused
        except Exception:  # an error must not reveal information about a unit to the coordinator
            return np.zeros(self.length)
        return value.reshape(-1) if value.size == self.length else np.zeros(self.length)


def statistic(name: str, *, length: int) -> Callable[[Callable[..., ArrayLike]], type[UserStatistic]]:
    """Register a function of one unit's rows as a statistic of `length` numbers.

    Parameters
    ----------
    name : str
        The name in plans and policies.
    length : int
        How many numbers the function returns.

    Returns
    -------
    callable
        A decorator that replaces the function by the statistic.

    >>> @statistic("row_range", length=1)
    ... def row_range(rows):
    ...     return [rows.max() - rows.min()]
    >>> row_range(columns=2, clip=5.0).total(Units.from_rows([[0.0, 1.0], [2.0, 5.0]])).tolist()
    [4.0]
    """
    if length < 1:
        raise BadParameter(f"a statistic needs at least one number, got length {length}")

    def wrap(function: Callable[..., ArrayLike]) -> type[UserStatistic]:
        body = {
            "name": name,
            "length": length,
            "function": staticmethod(function),
            "__doc__": function.__doc__,
            "__module__": function.__module__,
        }
        kind = type(name, (UserStatistic,), body)
        register(kind)
        return kind

    return wrap
