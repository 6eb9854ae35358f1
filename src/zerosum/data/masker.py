"""Public grid of an imaging study: mask or atlas, conversion between volumes and columns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.arrays import Floats
from zerosum.data.nifti import Nifti
from zerosum.errors import BadData

# Largest distance between corresponding corners of two equal grids, mm. Chosen by hand; no benchmark recorded.
_TOLERANCE_MM = 1e-3


@dataclass(frozen=True, eq=False)
class Masker:
    """Mask (a column is a voxel) or atlas (a column is the mean over a region) on a grid of voxels.

    It is public: it comes from a template and not from the data. `labels`, shape (x, y, z), has the 1-based column of
    each voxel, 0 outside. `affine` (4, 4) maps voxel indices to mm.

    >>> space = Masker.from_array(np.array([[[0, 7, 7, 3]]]), np.eye(4), "atlas")
    >>> space.columns, space.transform(np.array([[[9.0, 1.0, 2.0, 4.0]]])).tolist()
    (('r3', 'r7'), [4.0, 1.5])
    >>> space.inverse_transform(np.array([[5.0, 6.0]])).tolist()
    [[[[0.0], [6.0], [6.0], [5.0]]]]
    """

    affine: Floats
    labels: NDArray[np.int32]
    columns: tuple[str, ...]
    kind: Literal["mask", "atlas"]

    @classmethod
    def load(cls, path: Path, kind: Literal["mask", "atlas"]) -> Masker:
        """Read a 3D NIfTI file: a mask with 0 and one other value, or an atlas of integers, 0 outside."""
        image = Nifti.open(path)
        if len(image.shape) != 3:
            raise BadData(f"{path} has {len(image.shape)} dimensions; the {kind} of a study has three")
        try:
            return cls.from_array(image.values(), image.affine, kind)
        except BadData as error:
            raise error if str(path) in str(error) else BadData(f"{path}: {error}") from None

    @classmethod
    def from_array(cls, values: ArrayLike, affine: ArrayLike, kind: Literal["mask", "atlas"]) -> Masker:
        """Make a grid from an array.

        Parameters
        ----------
        values : array of shape (x, y, z)
            Mask with 0 and one other value, or atlas of integers, 0 outside.
        affine : array of shape (4, 4)
            Voxel indices to mm.
        kind : "mask" or "atlas"
            Meaning of the values.

        Raises
        ------
        BadData
            For other shapes or values.
        """
        volume, matrix = np.asarray(values), np.array(affine, dtype=np.float64)
        if volume.ndim != 3 or matrix.shape != (4, 4) or not np.isfinite(matrix).all():
            raise BadData(f"a {kind} has three dimensions and a finite affine of shape (4, 4), got {volume.shape}")
        if not np.isfinite(volume).all():
            raise BadData(f"the {kind} has values that are not finite")
        levels = np.unique(volume)
        inside = levels[levels != 0]
        if len(inside) == 0:
            raise BadData(f"the {kind} is empty")
        if kind == "mask":
            if len(inside) > 1:
                raise BadData(f"a mask holds zeros and one other value, but {len(levels)} values are there")
            labels = np.zeros(volume.shape, dtype=np.int32)
            count = int(np.count_nonzero(volume))
            labels[volume != 0] = np.arange(1, count + 1)
            # Names are zero-padded, so that their text order is the order of the grid.
            width = len(str(count))
            return cls(matrix, labels, tuple(f"v{at:0{max(4, width)}}" for at in range(1, count + 1)), kind)
        # `inside` is sorted, so that its first entry is the smallest.
        if inside[0] < 0 or np.any(inside != np.round(inside)):
            raise BadData("an atlas holds a whole number for each region and 0 outside")
        # Numbers of regions may have gaps. Columns are in the order of these numbers.
        labels = np.where(volume == 0, 0, np.searchsorted(inside, volume) + 1).astype(np.int32)
        return cls(matrix, labels, tuple(f"r{int(label)}" for label in inside), kind)

    @classmethod
    def from_nilearn(cls, masker: Any) -> Masker:
        """The grid of a masker of nilearn: voxels of a `NiftiMasker`, or regions of a `NiftiLabelsMasker`.

        A `NiftiMapsMasker` has maps that overlap and no grid of columns: give its maps as templates
        (`zerosum.data.templates.load_templates`).

        Parameters
        ----------
        masker : nilearn.maskers.NiftiMasker or nilearn.maskers.NiftiLabelsMasker
            A masker with an image, fitted or not.

        Raises
        ------
        BadData
            For a masker without a public image, such as a `NiftiMasker` that would compute its mask from data.
        """
        # The labels come first, because a masker of labels may have a mask, too.
        for name, is_atlas in (("labels_img", True), ("mask_img", False)):
            image = getattr(masker, f"{name}_", None) or getattr(masker, name, None)
            if image is None:
                continue
            if isinstance(image, str | Path):
                return cls.load(Path(image), "atlas" if is_atlas else "mask")
            return cls.from_array(image.get_fdata(), image.affine, "atlas" if is_atlas else "mask")
        raise BadData(
            "the masker has no public image: give a NiftiMasker with mask_img, or a NiftiLabelsMasker; the maps of a "
            "NiftiMapsMasker are templates"
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of voxels along each axis."""
        x, y, z = self.labels.shape
        return x, y, z

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Boolean array of the voxels that belong to a column."""
        return self.labels > 0

    @cached_property
    def _members(self) -> NDArray[np.intp]:
        """0-based column of each voxel inside, in the order of the grid."""
        return self.labels[self.inside].astype(np.intp) - 1

    @cached_property
    def _average(self) -> Any:
        """Sparse matrix (columns, voxels inside) that averages over regions."""
        count, members = len(self.columns), self._members
        # Each voxel has the weight 1 / (size of its region), so that a row of the matrix averages over the region.
        weights = 1 / np.bincount(members, minlength=count)[members]
        import scipy.sparse as sp

        return sp.csr_array((weights, (members, np.arange(len(members)))), shape=(count, len(members)))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of grid and labels, for comparison between sites."""
        digest = hashlib.sha256(f"{self.kind} {self.shape} {' '.join(self.columns)}".encode())
        # Adding 0.0 turns -0.0 into 0.0, which has other bytes.
        digest.update((np.round(self.affine, 4) + 0.0).astype("<f8").tobytes())
        digest.update(self.labels.astype("<i4").tobytes())
        return digest.hexdigest()

    def check_grid(self, image: Nifti) -> None:
        """Raise `BadData` for an image on another grid."""
        if image.shape[:3] != self.shape:
            raise image.wrong(
                f"{{}} has another grid than the {self.kind}, which has {self.shape} voxels: resample it",
                f"it has {image.shape[:3]}",
            )
        # Affine maps differ most at a corner of the grid.
        corners = np.array([[x, y, z, 1] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) * [*self.shape, 1]
        if np.abs(corners @ (image.affine - self.affine).T).max() > _TOLERANCE_MM:
            raise image.wrong(
                f"the affine of {{}} differs from that of the {self.kind}: its voxels lie elsewhere; resample it to "
                "the study's grid"
            )

    def transform(self, volumes: Floats) -> Floats:
        """Volumes (x, y, z, T) as rows (T, columns); one volume (x, y, z) as one row."""
        voxels = volumes[self.inside]
        if self.kind == "atlas":
            voxels = self._average @ voxels
        return np.asarray(voxels.T)

    def inverse_transform(self, maps: ArrayLike) -> Floats:
        """Maps (R, columns) as volumes (x, y, z, R), 0 outside."""
        values = np.asarray(maps, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            raise BadData(f"maps must be a table of {len(self.columns)} columns, got shape {values.shape}")
        volumes = np.zeros((*self.shape, len(values)))
        volumes[self.inside] = values[:, self._members].T
        return volumes
