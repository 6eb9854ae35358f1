"""Estimates as quantities: a value, its noise where that is known, names along its axes, and what it is."""

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
    "number",  # nothing in particular
    "mean",  # a value for every column, in the units of the data
    "count",
    "share",
    "component",  # a direction among the columns
    "map",  # a component that is a picture where columns are places
    "filter",  # what rows are multiplied by
    "coefficient",
    "covariance",
    "center",  # of a cluster
    "scale",  # what columns are divided by
    "eigenvalue",
    "diagnostic",  # how far a result can be trusted
]
PICTURES = frozenset({"mean", "component", "map"})  # kinds that are pictures where columns are places


@dataclass(frozen=True)
class Axis:
    """One axis of a quantity: what runs along it, the name of each place, and what it is measured in where that is
    known ("" where a place has no unit)."""

    name: str
    labels: tuple[str, ...]
    units: tuple[str, ...] = ()

    @classmethod
    def numbered(cls, name: str, count: int) -> Axis:
        """Places without names of their own.

        >>> Axis.numbered("component", 2).labels
        ('1', '2')
        """
        return cls(name, tuple(str(at + 1) for at in range(count)))

    def as_record(self) -> dict[str, Any]:
        measured = {"units": list(self.units)} if self.units else {}
        return {"name": self.name, "labels": list(self.labels)} | measured


def columns_axis(columns: Sequence[str]) -> Axis:
    """The axis along which the columns of the data run."""
    return Axis("column", tuple(columns))


@dataclass(frozen=True, eq=False)
class Quantity(NDArrayOperatorsMixin):
    """An estimate. It computes like the array it holds.

    >>> mean = Quantity(np.array([1.0, 2.0]), "mean", (columns_axis(["age", "bmi"]),), np.array([0.1, 0.2]))
    >>> mean.labelled()
    {'age': 1.0, 'bmi': 2.0}
    >>> mean + 1
    array([2., 3.])
    """

    value: Floats
    kind: Kind = "number"
    axes: tuple[Axis, ...] = ()
    std: Floats | float | None = None  # the standard deviation that privacy adds, in every place

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", np.asarray(self.value, dtype=np.float64))
        if self.std is not None:
            object.__setattr__(self, "std", np.broadcast_to(np.asarray(self.std, dtype=np.float64), self.value.shape))
        if self.axes and tuple(len(axis.labels) for axis in self.axes) != self.value.shape:
            raise BadParameter("a quantity's axes must have a name for every place")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def labelled(self) -> Any:
        """The value by the names along its axes, nested where there are several."""
        if not self.axes:
            return {"value": self.value.tolist()}
        return _labelled(self.value, self.axes)

    def as_record(self) -> dict[str, Any]:
        """What is known of it beside its value."""
        return {
            "kind": self.kind,
            "axes": [axis.as_record() for axis in self.axes],
            "std": None if self.std is None else np.asarray(self.std).tolist(),
        }

    @classmethod
    def of_record(cls, value: Floats, record: dict[str, Any]) -> Quantity:
        """Back from what `as_record` says, and the value."""
        axes = tuple(Axis(each["name"], tuple(each["labels"]), tuple(each.get("units", ()))) for each in record["axes"])
        return cls(value, record["kind"], axes, None if record["std"] is None else np.array(record["std"], dtype=float))

    # ---- as an array -------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
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
