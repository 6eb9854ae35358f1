"""Brain maps as slices of a few levels, for the plots of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.data.masker import Masker
from zerosum.report.document import Plane, Slices
from zerosum.report.maps import PLANES, canonical, strongest_region
from zerosum.report.number_format import format_number

_LEVELS = 5  # levels on either side of 0
_MOST_CELLS = 44  # largest number of cells along a side; finer grids are averaged


def slices(maps: Floats, space: Masker, labels: Sequence[str], noun: str = "Component") -> Iterator[Slices]:
    """Yield, for each map, slices through its strongest region. The right side of the body is on the right.

    Parameters
    ----------
    maps : array of shape (R, columns)
        Maps; NaN counts as 0.
    space : Masker
        Public grid.
    labels : sequence of str
        Names of the maps.
    noun : str
        What a map is, before its name.
    """
    volumes, inside, affine = canonical(space.inverse_transform(np.nan_to_num(maps)), space)
    # Voxel sizes in mm: the lengths of the columns of the affine map from voxel indices to mm.
    zooms = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))
    for at, label in enumerate(labels[: len(maps)]):
        volume = np.where(inside, volumes[..., at], 0.0)
        peak, middle = strongest_region(volume)
        largest = float(np.abs(volume[peak])) or 1.0
        # The slice's position in mm, for its label.
        place = affine @ [*middle, 1]
        planes = []
        for cut, called in PLANES:
            across, up = (float(zooms[each]) for each in range(3) if each != cut)
            flat = np.take(volume, middle[cut], axis=cut) / largest, np.take(inside, middle[cut], axis=cut)
            planes.append(Plane(f"{called} = {place[cut]:.0f} mm", _cells(*flat), up / across))
        about = (
            "Cuts through the middle of its strongest region, which reaches "
            f"{format_number(float(volume[peak]), 3)}; red is positive, blue negative; left is left."
        )
        yield Slices(f"{noun} {label}", about, tuple(planes))


def _cells(values: Floats, inside: NDArray[np.bool_]) -> tuple[tuple[int | None, ...], ...]:
    """Levels of a slice in lines from the top. Cells of a coarsened grid are means over the voxels inside."""
    # Voxels along a side of a cell, rounded up.
    every = max(1, -(-max(values.shape) // _MOST_CELLS))
    # Number of voxels inside per cell; the mean is over these.
    count = _block_sums(inside.astype(np.float64), every)
    mean = _block_sums(np.where(inside, values, 0.0), every) / np.maximum(count, 1)
    levels = np.clip(np.rint(_LEVELS * mean), -_LEVELS, _LEVELS).astype(int)
    # Arrays have x first and grow upwards; lines of a picture come from the top.
    lines = zip(levels.T[::-1], (count > 0).T[::-1], strict=True)
    return tuple(tuple(int(a) if b else None for a, b in zip(*line, strict=True)) for line in lines)


def _block_sums(values: Floats, every: int) -> Floats:
    """Sums over squares of `every` x `every` cells."""
    if every == 1:
        return values
    # Padded to a multiple of the cell size.
    wide, high = (-(-length // every) * every for length in values.shape)
    padded = np.pad(values, ((0, wide - values.shape[0]), (0, high - values.shape[1])))
    return np.asarray(padded.reshape(wide // every, every, high // every, every).sum(axis=(1, 3)))
