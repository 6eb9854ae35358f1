"""NIfTI files as they lie on disk: opened once for the header, and read a few volumes at a time.

Tested in tests/data/test_imaging.py.
"""

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

_CHUNK_BYTES = 1 << 26  # volumes in float64 held beside what is kept of them
_DENSEST_GZIP = 1032  # bytes that one byte of a .gz can stand for at most
_SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}


def nibabel() -> Any:
    """The library, where it is installed."""
    try:
        import nibabel
    except ImportError:
        raise BadInput(
            "to read and write brain images, install nibabel and nilearn: pip install zerosum[neuro]"
        ) from None
    return nibabel


def is_nifti(name: str) -> bool:
    return name.lower().endswith((".nii", ".nii.gz"))


@dataclass(frozen=True, eq=False)
class Nifti:
    """What a file's header says; the values stay on disk."""

    path: Path
    shape: tuple[int, ...]
    affine: Floats
    seconds: float | None  # between volumes; None where the header does not say, or not in which unit
    kind: Any  # the class of nibabel's that reads it
    called: str | None = None  # in messages, where the name of the file is not for others

    @classmethod
    def open(cls, path: Path, called: str | None = None) -> Nifti:
        """Read the header only, or raise `BadData`."""
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
        if claimed > size * (_DENSEST_GZIP if _packed(path) else 1):
            raise wrong("{} is cut short: its header says more values than it can hold", f"{claimed} bytes")
        if affine.shape != (4, 4) or not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
            raise wrong("the affine of {} is not finite, or flat: it does not say where the voxels lie")
        return cls(path, shape, affine, seconds, type(image), called)

    def wrong(self, what: str, detail: str = "") -> BadData:
        """An error that says `what`, with this image for {}, and keeps what is not for others to itself."""
        return _wrong(self.path, self.called, what, detail)

    def values(self) -> NDArray[Any]:
        """All of it at once."""
        with _reading(self.path, self.called), self._image() as image:
            return np.asarray(image.dataobj)

    def volumes(self) -> Iterator[tuple[int, Floats]]:
        """The volumes of a 4D file in order, some at a time: (number of the first, array of x, y, z, some)."""
        some = max(1, _CHUNK_BYTES // (8 * int(np.prod(self.shape[:3]))))
        with _reading(self.path, self.called), self._image() as image:
            for start in range(0, self.shape[3], some):
                yield start, np.asarray(image.dataobj[..., start : start + some], dtype=np.float64)

    @contextmanager
    def _image(self) -> Iterator[Any]:
        # one stream from begin to end: nibabel by itself would unpack a .gz from its start for every slice, and would
        # not reach the checksum at its end
        with _stream(self.path) as stream:
            yield self.kind.from_stream(stream)
            while stream.read(1 << 20):
                pass


def _stream(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if _packed(path) else path.open("rb")


def _packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _clock(header: Any) -> float | None:
    zooms, unit = header.get_zooms(), header.get_xyzt_units()[1]
    if len(zooms) < 4 or unit not in _SECONDS:
        return None
    seconds = float(zooms[3]) * _SECONDS[unit]
    return seconds if np.isfinite(seconds) and seconds > 0 else None


def _wrong(path: Path, called: str | None, what: str, detail: str) -> BadData:
    whose = [] if called is None else [str(path)]
    message = what.replace("{}", str(path) if called is None else called)
    return BadData(message, detail=": ".join(whose + ([detail] if detail else [])))


@contextmanager
def _reading(path: Path, called: str | None) -> Iterator[None]:
    library = nibabel()
    damage = (library.filebasedimages.ImageFileError, library.spatialimages.HeaderDataError)
    with readable(path, *damage, called=called), np.errstate(all="ignore"):
        yield
