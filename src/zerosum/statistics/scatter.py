"""Each unit's own second moment, bounded in Frobenius norm: what principal components are made of."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, Floats, to_numpy
from zerosum.kernel.units import Array, Units

Within = Literal["nothing", "center", "standardise"]

LEAST = 1e-100  # what has a smaller norm counts as nothing: its squares would underflow
INSIDE = 1 + 2.0**-40  # norms are computed to this, so that what is divided by them stays inside the bound


class OwnMatrix(BoundedStatistic):
    """What is made of each unit's own matrix Z, the mean of x x' over its rows.

    Rows are centred at `center` and divided by `scale` first (public constants or earlier releases), may be centred
    or standardised within each recording of the unit, which uses the unit's own rows only, and are last multiplied by
    `onto` (columns x k, public or from earlier releases), where that is given.
    """

    columns: int = Field(gt=0)
    center: FloatArray | None = None
    scale: FloatArray | None = None
    within: Within = "nothing"
    onto: FloatArray | None = None

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.onto is not None and (self.onto.ndim != 2 or self.onto.shape[0] != self.columns or not self.onto.size):
            raise ValueError(f"onto must have {self.columns} rows and some columns, got shape {self.onto.shape}")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.columns,):
                raise ValueError(f"{what} must hold one number for each of the {self.columns} columns")
        if self.scale is not None and not np.all(self.scale > 0):
            raise ValueError("every scale must be positive")
        return self

    @property
    def width(self) -> int:
        """The order of Z."""
        return self.columns if self.onto is None else int(self.onto.shape[1])

    @property
    def row_bytes(self) -> int:
        return 8 * 4 * max(self.columns, self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def _measured(self, block: Units) -> tuple[Array, Array, Array]:
        """The rows as they enter, and for each unit the norm of its Z and what its rows were divided by beforehand.

        Most are divided by 1; where squares would over- or underflow, by the largest entry.
        """
        xp = array_namespace(block.rows)
        rows = xp.astype(block.rows, xp.float64, copy=False)
        if self.center is not None:
            rows = rows - xp.asarray(self.center)[None, :]
        if self.scale is not None:
            rows = rows / xp.asarray(self.scale)[None, :]
        if block.offsets is None:
            rows = rows if self.onto is None else self._projected(rows, xp)
            with np.errstate(over="ignore"):
                norms = xp.sum(rows * rows, axis=1)
            plain = (norms > 1e-100) & (norms < 1e100)
            if bool(xp.all(plain)):
                return rows, norms * INSIDE, xp.ones_like(norms)
            scaled, largest = _scaled(rows, xp)  # row by row: nobody is computed otherwise for what another one holds
            norms = xp.where(plain, norms, xp.sum(scaled * scaled, axis=1))
            return xp.where(plain[:, None], rows, scaled), norms * INSIDE, xp.where(plain, xp.ones_like(norms), largest)
        parts, norms_, largest_ = [], [], []
        for recordings in Units(rows, block.offsets, block.runs).recordings():
            own = xp.concat([within_recording(each, self.within, xp) for each, _seconds in recordings])
            own, count = own if self.onto is None else xp.matmul(own, xp.asarray(self.onto)), own.shape[0]
            flat, largest = _scaled(xp.reshape(own, (1, -1)), xp)
            own = xp.reshape(flat, (count, -1))
            wide = own.shape[0] > own.shape[1]
            gram = xp.matmul(xp.matrix_transpose(own), own) if wide else xp.matmul(own, xp.matrix_transpose(own))
            norm = xp.sqrt(xp.sum(gram * gram)) / count * INSIDE
            parts.append(own)
            norms_.append(xp.reshape(norm, (1,)))
            largest_.append(largest)
        return xp.concat(parts), xp.concat(norms_), xp.concat(largest_)

    def _projected(self, rows: Array, xp: Any) -> Array:
        """Records times `onto`; what is nothing but the rounding of a record counts as nothing, since how a product of
        many records rounds depends on how many there are."""
        scaled, largest = _scaled(rows, xp)
        onto = xp.asarray(self.onto)
        with np.errstate(over="ignore", invalid="ignore"):
            seen = xp.matmul(scaled, onto)
            heard = xp.max(xp.abs(seen), axis=1) > 1e-12 * self.columns * xp.max(xp.abs(onto))
            return xp.where(heard[:, None], seen * largest[:, None], xp.zeros_like(seen))


def within_recording(rows: Array, within: Within, xp: Any) -> Array:
    """The rows of one recording, each column brought to mean zero and, with "standardise", to variance one."""
    if within != "nothing":
        rows = rows - xp.mean(rows, axis=0, keepdims=True)
    if within == "standardise":
        spread = xp.std(rows, axis=0, keepdims=True)
        rows = rows / xp.where(spread > 0, spread, xp.ones_like(spread))
    return rows


class Scatter(OwnMatrix):
    """The sum over units of Z divided by its Frobenius norm (`normalise`), or by c and then clipped at norm 1.

    Released in isometric coordinates. A program that clips multiplies by c again.

    Sensitivity. What a unit contributes is positive semidefinite, and its norm is at most 1 whatever c is. For two of
    them norm(Z - W)^2 = norm(Z)^2 + norm(W)^2 - 2 tr(Z W) <= 2, since tr(Z W) >= 0: D = sqrt(2), attained by orthogonal
    rank-one Z and W. Added or removed: 1.
    """

    name: ClassVar[str] = "scatter"
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    normalise: bool = True

    @property
    def size(self) -> int:
        return coordinates.size(self.width)

    def sum_block(self, block: Units) -> Array:
        rows, weights = self._bounded(block)
        xp = array_namespace(rows)
        rows = rows * xp.sqrt(weights)[:, None]  # one array times its own transpose costs half
        return coordinates.pack(to_numpy(xp.matmul(xp.matrix_transpose(rows), rows)))

    def _bounded(self, block: Units) -> tuple[Array, Array]:
        """The rows as they enter, and the weight of each, so that a unit contributes the sum of weight x x'."""
        rows, norms, largest = self._measured(block)
        xp = array_namespace(rows)
        weights = self._weights(norms, largest, xp)
        if block.offsets is None:
            return rows, weights
        counts = [last - first for first, last in pairwise(block.offsets.tolist())]
        spread = [xp.broadcast_to(weights[u : u + 1] / count, (count,)) for u, count in enumerate(counts)]
        return rows, xp.concat(spread)

    def _weights(self, norms: Array, largest: Array, xp: Any) -> Array:
        """What brings matrices of these norms to norm 1, or divides them by c up to that; one without any stays zero.

        The rows they were made of had been divided by `largest`; a weight of its square puts that back.
        """
        weights = 1 / xp.where(norms > 0, norms, xp.ones_like(norms))
        if not self.normalise:
            root = math.sqrt(self.clip)
            back = (xp.clip(largest, 0.0, 1e150 * root) / root) ** 2
            weights = xp.where(weights < back, weights, back)
        return xp.where(norms > 0, weights, xp.zeros_like(norms))


def _scaled(rows: Array, xp: Any) -> tuple[Array, Array]:
    """Rows with entries of at most 1, and what they were divided by; rows that are not finite become zero."""
    rows = xp.where(xp.all(xp.isfinite(rows), axis=1)[:, None], rows, xp.zeros_like(rows))
    largest = xp.max(xp.abs(rows), axis=1)
    return rows / xp.where(largest > 0, largest, xp.ones_like(largest))[:, None], largest


class ScatterProduct(Scatter):
    """The sum over units of Z Q for a public Q with orthonormal columns: `columns` x k numbers, never a square matrix.

    Sensitivity. norm(Z Q - W Q) <= norm(Z - W) norm_2(Q), and norm_2(Q) is at most 1 + 1e-9, which is checked: D is
    that of `Scatter` times 1 + 1e-9.
    """

    name: ClassVar[str] = "scatter_product"
    basis: FloatArray

    @model_validator(mode="after")
    def _orthonormal(self) -> Self:
        basis = self.basis
        if basis.ndim != 2 or basis.shape[0] != self.width or not 1 <= basis.shape[1] <= self.width:
            raise ValueError(f"the basis must have {self.width} rows and no more columns, got shape {basis.shape}")
        sound = bool(np.max(np.abs(basis)) <= 1 + 1e-9)  # else products overflow, and NaN is not greater than anything
        if not (sound and np.linalg.norm(basis.T @ basis - np.eye(basis.shape[1]), 2) <= 1e-9):
            raise ValueError("the columns of the basis must be orthonormal")
        return self

    @property
    def size(self) -> int:
        return int(self.basis.size)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return super().sensitivity(adjacency) * (1 + 1e-9)

    def sum_block(self, block: Units) -> Array:
        rows, weights = self._bounded(block)
        xp = array_namespace(rows)
        seen = xp.matmul(rows, xp.asarray(self.basis)) * weights[:, None]
        return xp.reshape(xp.matmul(xp.matrix_transpose(rows), seen), (-1,))


class ScatterNorms(OwnMatrix):
    """How many units have a Z whose Frobenius norm lies in each of `bins` bins, evenly spaced in its logarithm.

    Smaller and larger norms than `lowest` and `highest` count in the first and last bin. From this a clip is bought.

    Sensitivity. A unit counts in one bin: replacing it moves two counts by 1, D = sqrt(2). Added or removed: 1.
    """

    name: ClassVar[str] = "scatter_norms"
    lowest: float = Field(gt=0, allow_inf_nan=False)
    highest: float = Field(gt=0, allow_inf_nan=False)
    bins: int = Field(gt=1, le=10_000)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest must be below highest, got {self.lowest:g} and {self.highest:g}")
        return self

    @property
    def size(self) -> int:
        return self.bins

    @property
    def edges(self) -> Floats:
        """Where bins begin and the last one ends."""
        return np.geomspace(self.lowest, self.highest, self.bins + 1)

    def sum_block(self, block: Units) -> Array:
        _rows, norms, largest = self._measured(block)
        xp = array_namespace(norms)
        some, ones = norms > 0, xp.ones_like(norms)
        logs = xp.log(xp.where(some, norms, ones)) + 2 * xp.log(xp.where(some, largest, ones))
        above = some[:, None] & (logs[:, None] >= xp.asarray(np.log(self.edges[1:-1]))[None, :])
        bins = xp.sum(xp.astype(above, xp.float64), axis=1)
        hits = bins[:, None] == xp.arange(self.bins, dtype=xp.float64)[None, :]
        return xp.sum(xp.astype(hits, xp.float64), axis=0)
