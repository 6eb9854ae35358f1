"""Each unit's second moment by frequency band, which separates sources with different spectra.

The map of one unit: recordings x of m rows, centred, times P = `projection` (D x k), have the Fourier coefficients f of
shape (frequencies, k). For each band b

    M_b = Re sum over frequencies in b of f f*             shape (k, k)
    contribution = (M_1, ..., M_B) / sqrt(sum over b of norm(M_b)^2)

with Frobenius norms, in isometric coordinates (`kernel.coordinates`). Frequencies are in hertz by each recording's own
sampling interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import INSIDE, Exact, added, doubles, fold, sized, squares, summed, whole
from zerosum.compute.devices import on_host, to_numpy
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units, pieces
from zerosum.errors import BadData
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.scatter import PerRecording, per_recording_rows, recordings_of

_BATCH_NUMBERS = 1 << 28  # most numbers of the units that are processed together on a device


class BandScatter(BoundedStatistic):
    """The sum over units of their second moments in frequency bands, all divided together by their norm.

    Rows are multiplied by `projection`. The moment of a band is the real part of the sum of f f* over the Fourier
    coefficients f whose frequency lies in it, in hertz by the recording's own clock: recordings with different sampling
    intervals are comparable. Recordings of a unit weigh by their length. Covariances at any lag follow from the bands
    (they
    are their cosine transform), and all bands add up to the second moment.

    Sensitivity. The real part of a sum of f f* is positive semidefinite, and so is the block-diagonal matrix of all
    bands,
    which has norm at most 1. As for `Scatter`, two such matrices are at most sqrt(2) apart (lagged covariances, which
    are
    indefinite, would be 2 apart). Adding or removing a unit: 1.

    Parameters
    ----------
    columns : int
        D, the number of columns of the data.
    projection : array of shape (D, k)
        Public; rows are multiplied by it from the right.
    edges : array of shape (B + 1,)
        Rising edges of the bands in hertz.
    seconds : float, optional
        Seconds between two rows, for all recordings; by default each recording's own.
    per_recording : {"none", "center", "standardise"}
        As for `UnitMoment`.
    """

    name: ClassVar[str] = "band_scatter"
    adds_in_pieces: ClassVar[bool] = True
    columns: int = Field(gt=0)
    projection: FloatArray
    edges: FloatArray
    seconds: Positive | None = None
    per_recording: PerRecording = "center"

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.projection.ndim != 2 or self.projection.shape[0] != self.columns or not self.projection.size:
            raise ValueError(f"projection must have {self.columns} rows and a column, got {self.projection.shape}")
        if self.edges.ndim != 1 or len(self.edges) < 3 or self.edges[0] < 0 or not np.all(np.diff(self.edges) > 0):
            raise ValueError("edges must rise from zero or more, and make two bands at least")
        return self

    @property
    def bands(self) -> int:
        """B, the number of bands."""
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        """The distinct entries of B symmetric k x k matrices."""
        return self.bands * coordinates.size(int(self.projection.shape[1]))

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (2 * self.columns + 4 * int(self.projection.shape[1]))

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def check(self, units: Units) -> None:
        """Also refuse units without clocks, if `seconds` is not given. This depends on the form of the data, not on
        values.
        """
        super().check(units)
        if self.seconds is None and units.runs is None:
            raise BadData("nothing says how many seconds lie between two rows: give seconds, or recordings with clocks")

    @cached_property
    def _exact(self) -> Exact:
        """The projection in whole numbers, whose products do not round."""
        return Exact.of(self.projection)

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, band after band, shape (size,)."""
        if not on_host(block.rows):
            total = summed(self._batched(block))
            bands = [packed(total[band, ...]) for band in range(self.bands)]
            return array_namespace(total).concat(bands)
        xp = array_namespace(block.rows)
        total = np.zeros(self.size)
        for recordings in block.recordings():
            clocks = [self.seconds or clock or math.nan for _rows, clock in recordings]
            parts = [per_recording_rows(doubles(rows), self.per_recording, xp) for rows, _clock in recordings]
            total += self._contribution(self._projected(parts), clocks)
        return total

    def _projected(self, parts: list[Array]) -> list[Floats]:
        """One unit's recordings times `projection`, all divided by the unit's norm: an array of shape (rows, k) for
        each.

        Parameters
        ----------
        parts : list of array of shape (rows, D)
            The recordings of one unit.
        """
        xp = array_namespace(parts[0])
        flat, _size, norm = sized(xp.reshape(xp.concat(parts), (1, -1)))
        rows = xp.reshape(flat, (-1, self.columns))
        projections = self._exact.projections(rows, xp.broadcast_to(norm, (rows.shape[0],)))
        # Products of whole numbers add without rounding, so that a unit's contribution is independent of the units
        # beside it.
        projections = xp.reshape(self._exact.valid(xp.reshape(projections, (1, -1))), projections.shape)
        ends = np.cumsum([part.shape[0] for part in parts])[:-1]
        return np.split(to_numpy(projections), ends)

    def _contribution(self, parts: list[Floats], clocks: list[float]) -> Floats:
        """The moments of one unit in all bands, over their norm, shape (size,). Spectra enter as whole numbers:
        products are exact.

        Parameters
        ----------
        parts : list of array of shape (rows, k)
            The projected recordings of one unit.
        clocks : list of float
            Seconds between the rows of each.
        """
        spectra = [_spectrum(part) for part in parts]
        flat, _size, norm = sized(np.concatenate(spectra).reshape(1, -1))
        numbers = np.split(
            whole(flat, norm).reshape(-1, self.projection.shape[1]), np.cumsum([len(s) for s in spectra])[:-1]
        )
        moments = np.zeros((self.bands, self.projection.shape[1], self.projection.shape[1]))
        for each, part, seconds in zip(numbers, parts, clocks, strict=True):
            # Real and imaginary parts are two rows of the same frequency: Re f f* is the sum of both outer products.
            frequency = np.repeat(np.fft.rfftfreq(len(part), seconds), 2)
            for band, (low, high) in enumerate(pairwise(self.edges.tolist())):
                inside = each[(frequency >= low) & (frequency < high)]
                moments[band] += inside.T @ inside
        # `fold`, since the division by the norm is a decision about this unit.
        size = float(np.sqrt(fold((moments * moments).reshape(1, -1)))[0]) * INSIDE
        # A unit without power in any band contributes zero, as the proof allows.
        if not size > 0:
            return np.zeros(self.size)
        return np.concatenate([coordinates.pack(moment) for moment in moments / size])

    def _batched(self, block: Units) -> Iterator[Array]:
        """The same on a device, for many units of one shape together; partial sums of shape (B, k, k).

        The rounding of a device's Fourier transform depends on the number of units. Products with cosines and sines
        take its place, in whole numbers and thus exact.
        """
        xp, width = array_namespace(block.rows), int(self.projection.shape[1])
        for batch in block.batches():
            rows, runs = batch.of(block.rows), list(pairwise(batch.runs.tolist()))
            clocks = [
                self.seconds or clock for clock in ([math.nan] * len(runs) if batch.seconds is None else batch.seconds)
            ]
            # The largest intermediate array has the rows of the data, or four arrays of the projected width.
            few = max(1, _BATCH_NUMBERS // (batch.length * max(self.columns, 4 * width)))
            for some in pieces(len(batch), few):
                own = recordings_of(rows[some, ...], batch.runs, self.per_recording)
                units, _length, _columns = own.shape
                flat, _size, norm = sized(doubles(xp.reshape(own, (units, -1))))
                norms = xp.reshape(xp.broadcast_to(norm[:, None], (units, batch.length)), (-1,))
                projections = self._exact.projections(xp.reshape(flat, (-1, self.columns)), norms)
                flat, _size, norm = sized(self._exact.valid(xp.reshape(projections, (units, -1))))
                projections = xp.reshape(flat, (units, batch.length, width))
                norms = xp.reshape(xp.broadcast_to(norm[:, None], (units, width)), (-1,))
                spectra = []
                for first, last in runs:
                    part = xp.reshape(xp.permute_dims(projections[:, first:last, :], (0, 2, 1)), (units * width, -1))
                    transforms = xp.reshape(_waves(last - first).projections(part, norms), (units, width, -1))
                    spectra.append(xp.permute_dims(transforms, (0, 2, 1)))
                flat, _size, norm = sized(xp.reshape(xp.concat(spectra, axis=1), (units, -1)))
                numbers, at = xp.reshape(whole(flat, norm), (units, -1, width)), 0
                moments = [xp.zeros((units, width, width), dtype=xp.float64, device=device_of(rows))] * self.bands
                for (first, last), seconds in zip(runs, clocks, strict=True):
                    frequency = np.repeat(np.fft.rfftfreq(last - first, seconds), 2)
                    for band, (low, high) in enumerate(pairwise(self.edges.tolist())):
                        # Frequencies rise, so that those of a band are one slice.
                        inside = np.flatnonzero((frequency >= low) & (frequency < high))
                        if len(inside):
                            each = numbers[:, at + int(inside[0]) : at + int(inside[-1]) + 1, :]
                            moments[band] = moments[band] + xp.matmul(xp.matrix_transpose(each), each)
                    at += len(frequency)
                together = xp.stack(moments, axis=1)
                size = xp.sqrt(squares(xp.reshape(together, (units, -1)))) * INSIDE
                size = xp.where(size > 0, size, xp.ones_like(size))
                yield added(together / size[:, None, None, None])

    def split(self, value: Floats) -> Floats:
        """A released sum as one matrix a band.

        Parameters
        ----------
        value : array of shape (size,)
            A noisy sum.

        Returns
        -------
        array of shape (B, k, k)
            Symmetric matrices; noise may make them indefinite.
        """
        width = self.projection.shape[1]
        return np.stack([coordinates.unpack(part, width) for part in np.split(value, self.bands)])


@lru_cache(maxsize=16)
def _waves(length: int) -> Exact:
    """The Fourier transform of a recording of `length` rows as a matrix: scaled cosines and sines in turn, in whole
    numbers.
    """
    # Entries below 1e-12 are sines and cosines that are zero but for rounding.
    angle = 2 * np.pi * np.outer(np.arange(length), np.arange(length // 2 + 1)) / length
    waves = np.stack([np.cos(angle), -np.sin(angle)], axis=2).reshape(length, -1) * math.sqrt(2 / length)
    return Exact.of(np.where(np.abs(waves) < 1e-12, 0.0, waves))


def _spectrum(rows: Floats) -> Floats:
    """The Fourier coefficients of one recording: for each frequency a row of real parts and one of imaginary parts.

    Scaled so that the sum of their products is twice that of the rows (except at the ends of the spectrum).

    Parameters
    ----------
    rows : array of shape (rows, k)
        One recording.

    Returns
    -------
    array of shape (2 (rows // 2 + 1), k)
    """
    # Parseval: a factor sqrt(2/rows) makes the products add up to twice those of the rows, since the negative
    # frequencies of a real signal are left out.
    spectrum = np.fft.rfft(rows, axis=0) * math.sqrt(2 / len(rows))
    return np.stack([spectrum.real, spectrum.imag], axis=1).reshape(-1, rows.shape[1])
