"""NIfTI files: header on opening, volumes in chunks."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.data.formats import readable
from zerosum.errors import BadData, BadInput

_CHUNK_BYTES = 1 << 26  # bytes of float64 volumes in memory at once; chosen by hand
_DENSEST_GZIP = 1032  # largest compression ratio of the deflate format
# Seconds per time unit of a header.
_SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}


def nibabel() -> Any:
    """The nibabel module. Raises `BadInput` with install instructions if it is missing."""
    try:
        import nibabel
    except ImportError:
        raise BadInput(
            "to read and write brain images, install nibabel and nilearn: pip install zerosum[neuro]"
        ) from None
    return nibabel


def is_nifti(name: str) -> bool:
    """Whether a file name has a NIfTI suffix."""
    return name.lower().endswith((".nii", ".nii.gz"))


@dataclass(frozen=True, eq=False)
class Nifti:
    """Header of a NIfTI file. The values stay on disk.

    Attributes
    ----------
    path : Path
        The file.
    shape : tuple of int
        Voxels along each axis; the fourth axis is time.
    affine : array of shape (4, 4)
        Voxel indices to mm.
    seconds : float or None
        Interval between volumes, s.
    kind : type
        nibabel class of the image.
    called : str or None
        Description in messages instead of the path.
    """

    path: Path
    shape: tuple[int, ...]
    affine: Floats
    seconds: float | None  # interval between volumes, s; None if the header has no interval or unit
    kind: Any  # nibabel class of the image
    called: str | None = None  # description in messages, if the file name identifies a person

    @classmethod
    def open(cls, path: Path, called: str | None = None) -> Nifti:
        """Read the header only. Raises `BadData`."""
        library = nibabel()

        def wrong(what: str, detail: str = "") -> BadData:
            return _wrong(path, called, what, detail)

        if not is_nifti(path.name):
            raise wrong("{} is neither .nii nor .nii.gz")
        if not path.is_file():
            raise wrong("there is no file {}")
        with _reading(path, called):
            image = library.load(path)
            if not isinstance(image, library.Nifti1Image):
                raise wrong("{} is not a NIfTI volume")
            if image.get_data_dtype().kind not in "biuf":
                raise wrong("{} holds values that are not real numbers")
            shape, affine = tuple(int(n) for n in image.shape), np.asarray(image.affine, dtype=np.float64)
            seconds = _clock(image.header)
            claimed, size = math.prod(shape) * image.get_data_dtype().itemsize, path.stat().st_size
        if min(shape, default=0) < 1:
            raise wrong("{} holds no voxels")
        # A header may claim any size. Refusing it here avoids allocating memory for a damaged or malicious file.
        if claimed > size * (_DENSEST_GZIP if _packed(path) else 1):
            raise wrong("{} is cut short: its header says more values than it can hold", f"{claimed} bytes")
        if affine.shape != (4, 4) or not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
            raise wrong("the affine of {} is not finite, or flat: it does not say where the voxels lie")
        return cls(path, shape, affine, seconds, type(image), called)

    def wrong(self, what: str, detail: str = "") -> BadData:
        """`BadData` with message `what`, where {} stands for this image. The path and `detail` are in the error's
        detail."""
        return _wrong(self.path, self.called, what, detail)

    def values(self) -> NDArray[Any]:
        """All values as one array."""
        with _reading(self.path, self.called), self._image() as image:
            return np.asarray(image.dataobj)

    def volumes(self) -> Iterator[tuple[int, Floats]]:
        """Yield chunks of a 4D file in order: (index of the first volume, array of shape (x, y, z, n))."""
        some = max(1, _CHUNK_BYTES // (8 * int(np.prod(self.shape[:3]))))
        with _reading(self.path, self.called), self._image() as image:
            for start in range(0, self.shape[3], some):
                yield start, np.asarray(image.dataobj[..., start : start + some], dtype=np.float64)

    @contextmanager
    def _image(self) -> Iterator[Any]:
        """The open image, whose values are read as one stream."""
        # One stream from start to end. nibabel would decompress a .gz from its start for every slice, and would not
        # verify the checksum at its end.
        with _stream(self.path) as stream:
            yield self.kind.from_stream(stream)
            # Reading to the end verifies the checksum of a .gz file, and finds a file that is cut short.
            while stream.read(1 << 20):
                pass


def _stream(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed."""
    return cast(BinaryIO, gzip.open(path, "rb")) if _packed(path) else path.open("rb")


def _packed(path: Path) -> bool:
    """Whether a file is compressed."""
    return path.suffix.lower() == ".gz"


def _clock(header: Any) -> float | None:
    """Interval between volumes in seconds, or None."""
    zooms, unit = header.get_zooms(), header.get_xyzt_units()[1]
    if len(zooms) < 4 or unit not in _SECONDS:
        return None
    # Headers often have 0 for an unknown interval, and some writers leave NaN.
    seconds = float(zooms[3]) * _SECONDS[unit]
    return seconds if np.isfinite(seconds) and seconds > 0 else None


def _wrong(path: Path, called: str | None, what: str, detail: str) -> BadData:
    """`BadData` that mentions the path only in its detail if `called` is given."""
    whose = [] if called is None else [str(path)]
    message = what.replace("{}", str(path) if called is None else called)
    return BadData(message, detail=": ".join(whose + ([detail] if detail else [])))


@contextmanager
def _reading(path: Path, called: str | None) -> Iterator[None]:
    """Convert nibabel's errors to `BadData`, and ignore floating-point warnings."""
    library = nibabel()
    damage = (library.filebasedimages.ImageFileError, library.spatialimages.HeaderDataError)
    with readable(path, *damage, called=called), np.errstate(all="ignore"):
        yield
