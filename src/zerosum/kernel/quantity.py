"""Typed estimates: a value, the standard deviation of its noise where known, labels along its axes, and its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike

from zerosum.arrays import Floats
from zerosum.errors import BadParameter

Kind = Literal[
    "number",  # no special kind
    "mean",  # one value per column, in the units of the data
    "count",
    "share",
    "component",  # a direction in the space of the columns
    "map",  # a component that can be drawn as an image where columns are positions
    "filter",  # a vector that rows are multiplied by
    "coefficient",
    "covariance",
    "center",  # centre of a cluster
    "scale",  # divisor of each column
    "eigenvalue",
    "diagnostic",  # a measure of the reliability of a result
]
# 97.5 % quantile of the normal distribution: half width of a 95 % interval of normal noise, in standard deviations
NORMAL_95 = 1.959963984540054
PICTURES = frozenset({"mean", "component", "map"})  # kinds that can be drawn as images where columns are positions


@dataclass(frozen=True)
class Axis:
    """One axis of a quantity: its name, the label of each position, and the unit of measurement of each position where
    known ("" for a position without a unit).
    """

    name: str
    labels: tuple[str, ...]
    units: tuple[str, ...] = ()

    @classmethod
    def numbered(cls, name: str, count: int) -> Axis:
        """Axis with positions labelled 1, 2, and so on.

        >>> Axis.numbered("component", 2).labels
        ('1', '2')
        """
        return cls(name, tuple(str(at + 1) for at in range(count)))

    def as_record(self) -> dict[str, Any]:
        """The axis as JSON values."""
        measured = {"units": list(self.units)} if self.units else {}
        return {"name": self.name, "labels": list(self.labels)} | measured


def columns_axis(columns: Sequence[str]) -> Axis:
    """The axis of the columns of the data."""
    return Axis("column", tuple(columns))


@dataclass(frozen=True, eq=False)
class Quantity(NDArrayOperatorsMixin):
    """An estimate. Arithmetic on it is arithmetic on the array `value`.

    `axes` has one entry per dimension of `value`, or is empty.

    >>> mean = Quantity(np.array([1.0, 2.0]), "mean", (columns_axis(["age", "bmi"]),), np.array([0.1, 0.2]))
    >>> mean.labelled()
    {'age': 1.0, 'bmi': 2.0}
    >>> mean + 1
    array([2., 3.])
    """

    value: Floats
    kind: Kind = "number"
    axes: tuple[Axis, ...] = ()
    # standard deviation of the privacy noise in each entry, same shape as value; None if unknown
    std: Floats | float | None = None
    # half width of the 95 % interval of that noise, in standard deviations; larger where the noise is not normal
    reach: float = NORMAL_95

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", np.asarray(self.value, dtype=np.float64))
        if self.std is not None:
            object.__setattr__(self, "std", np.broadcast_to(np.asarray(self.std, dtype=np.float64), self.value.shape))
        if self.axes and tuple(len(axis.labels) for axis in self.axes) != self.value.shape:
            raise BadParameter(
                "a quantity's axes must have one label for each entry, got "
                f"{[len(axis.labels) for axis in self.axes]} labels for shape {self.value.shape}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def half_width(self) -> Floats:
        """Half width of the 95 % interval of the privacy noise in each entry; 0 where the noise is unknown."""
        return np.zeros(self.shape) if self.std is None else self.reach * np.asarray(self.std)

    def labelled(self) -> Any:
        """The value as a dictionary by the labels of its axes, nested where there are several."""
        if not self.axes:
            return {"value": self.value.tolist()}
        return _labelled(self.value, self.axes)

    def as_record(self) -> dict[str, Any]:
        """The metadata without the value, as JSON values."""
        return {
            "kind": self.kind,
            "axes": [axis.as_record() for axis in self.axes],
            "std": None if self.std is None else np.asarray(self.std).tolist(),
        } | ({} if self.reach == NORMAL_95 else {"reach": self.reach})

    @classmethod
    def of_record(cls, value: Floats, record: dict[str, Any]) -> Quantity:
        """The quantity from a value and the metadata of `as_record`."""
        axes = tuple(Axis(each["name"], tuple(each["labels"]), tuple(each.get("units", ()))) for each in record["axes"])
        std = None if record["std"] is None else np.array(record["std"], dtype=float)
        return cls(value, record["kind"], axes, std, record.get("reach", NORMAL_95))

    # ---- as an array -------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        # Arithmetic returns plain arrays: after an operation `std` would no longer be the noise of the result.
        plain = [each.value if isinstance(each, Quantity) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **named)

    def __getitem__(self, at: Any) -> Any:
        return self.value[at]

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __float__(self) -> float:
        return float(self.value.item())

    def __matmul__(self, other: ArrayLike) -> Floats:
        return np.asarray(self.value @ np.asarray(other))

    def __rmatmul__(self, other: ArrayLike) -> Floats:
        return np.asarray(np.asarray(other) @ self.value)

    def tolist(self) -> Any:
        return self.value.tolist()

    def round(self, decimals: int = 0) -> Floats:
        return self.value.round(decimals)

    @property
    def T(self) -> Floats:  # noqa: N802
        return self.value.T


def _labelled(value: Floats, axes: tuple[Axis, ...]) -> Any:
    if not axes:
        return float(value)
    return {label: _labelled(part, axes[1:]) for label, part in zip(axes[0].labels, value, strict=True)}
