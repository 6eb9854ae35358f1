"""Each unit's second moment by frequency: what separates sources that differ in how fast they move."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.errors import BadData
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, Floats, to_numpy
from zerosum.kernel.units import Array, Units
from zerosum.statistics.scatter import INSIDE, LEAST, Within, within_recording


class BandScatter(BoundedStatistic):
    """The sum over units of their second moments in frequency bands, all divided together by their norm.

    Rows are multiplied by `onto`; the moment of a band is the real part of the sum of f f* over the Fourier
    coefficients f of the recording whose frequency lies in it, in hertz by the recording's own clock, so that
    scanners with different times between volumes say the same. Recordings of a unit weigh by their length. Covariances
    at any lag follow from the bands (they are their cosine transform), and all bands add up to the second moment.

    Sensitivity. The real part of a sum of f f* is positive semidefinite, and so is the block-diagonal matrix of all
    bands, which has norm at most 1. As for `Scatter`, two such are at most sqrt(2) apart (lagged covariances, which are
    indefinite, would be 2 apart). Added or removed: 1.
    """

    name: ClassVar[str] = "band_scatter"
    columns: int = Field(gt=0)
    onto: FloatArray
    edges: FloatArray
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    within: Within = "center"

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.onto.ndim != 2 or self.onto.shape[0] != self.columns or not self.onto.size:
            raise ValueError(f"onto must have {self.columns} rows and some columns, got shape {self.onto.shape}")
        if self.edges.ndim != 1 or len(self.edges) < 3 or self.edges[0] < 0 or not np.all(np.diff(self.edges) > 0):
            raise ValueError("edges must rise from zero or more, and make two bands at least")
        return self

    @property
    def bands(self) -> int:
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        return self.bands * coordinates.size(int(self.onto.shape[1]))

    @property
    def row_bytes(self) -> int:
        return 8 * (2 * self.columns + 4 * int(self.onto.shape[1]))

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def check(self, units: Units) -> None:
        super().check(units)
        if self.seconds is None and units.runs is None:
            raise BadData("nothing says how many seconds lie between two rows: give seconds, or recordings with clocks")

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite says nothing
    def sum_block(self, block: Units) -> Array:
        xp = array_namespace(block.rows)
        onto = xp.asarray(self.onto)
        total = np.zeros(self.size)
        for recordings in block.recordings():
            own = np.zeros((self.bands, self.onto.shape[1], self.onto.shape[1]))
            for each, clock in recordings:
                rows = within_recording(xp.astype(each, xp.float64, copy=False), self.within, xp)
                own += self._moments(to_numpy(xp.matmul(rows, onto)), self.seconds or clock or math.nan)
            norm = float(np.sqrt(np.sum(own * own))) * INSIDE
            if math.isfinite(norm) and norm > LEAST:
                total += np.concatenate([coordinates.pack(moment) for moment in own / norm])
        return total

    def _moments(self, rows: Floats, seconds: float) -> Floats:
        """One recording's second moment in every band."""
        spectrum = np.fft.rfft(rows, axis=0)
        frequency = np.fft.rfftfreq(len(rows), seconds)
        moments = []
        for low, high in pairwise(self.edges.tolist()):
            inside = spectrum[(frequency >= low) & (frequency < high)]
            moments.append((inside.real.T @ inside.real + inside.imag.T @ inside.imag) * (2 / len(rows)))
        return np.stack(moments)

    def split(self, value: Floats) -> Floats:
        """A released sum as one matrix a band."""
        width = self.onto.shape[1]
        return np.stack([coordinates.unpack(part, width) for part in np.split(value, self.bands)])
