"""Public template maps of a study: arrays, files, atlases, masks of regions, and maskers of nilearn.

Every form becomes one table of maps (R, columns) on the columns of the study. Templates are public: they come from a
template, from an atlas or from an open study, and never from the people of the study.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.formats import readable
from zerosum.data.masker import Masker
from zerosum.data.nifti import Nifti, is_nifti
from zerosum.errors import BadData


def load_templates(source: Any, space: Masker | None = None) -> Floats:
    """Template maps as a table, one map a row.

    Parameters
    ----------
    source : array, path, or masker of nilearn
        An array (R, columns); an `.npy` file of one; a 4D NIfTI file, one map a volume; a 3D NIfTI file of whole
        numbers, each of which is the mask of a region; a `NiftiMapsMasker` or `NiftiLabelsMasker`, whose maps or
        regions are taken.
    space : Masker, optional
        The public grid of the study, required for images.

    Raises
    ------
    BadData
        If the file cannot be read, has another shape, or has values that are not finite.

    Examples
    --------
    >>> load_templates([[1.0, 0.0], [0.0, 2.0]]).shape
    (2, 2)
    """
    for name in ("maps_img", "labels_img"):
        if hasattr(source, name):
            source = getattr(source, f"{name}_", None) or getattr(source, name)
    if hasattr(source, "get_fdata"):
        maps = _of_values(np.asarray(source.get_fdata(), dtype=np.float64), source.affine, space, "the image")
    elif isinstance(source, str | Path):
        maps = _of_file(Path(source), space)
    else:
        maps = np.atleast_2d(np.asarray(source, dtype=np.float64))
    if maps.ndim != 2 or maps.size == 0:
        raise BadData(f"templates are a table with a row for each map, got shape {maps.shape}")
    if not np.isfinite(maps).all():
        raise BadData("templates have values that are not finite")
    return maps


def _of_file(path: Path, space: Masker | None) -> Floats:
    if is_nifti(path.name):
        if space is None:
            raise BadData(f"{path} is an image: templates of images need a grid, which says what becomes a column")
        image = Nifti.open(path)
        space.check_grid(image)
        if len(image.shape) == 3:
            return _of_values(np.asarray(image.values()), image.affine, space, str(path))
        return np.concatenate([space.transform(volumes) for _first, volumes in image.volumes()])
    if path.suffix.lower() != ".npy":
        raise BadData(f"{path} has no templates: .npy, or with images .nii or .nii.gz")
    if not path.is_file():
        raise BadData(f"there is no file {path}")
    with readable(path):
        return np.atleast_2d(np.asarray(np.load(path, allow_pickle=False), dtype=np.float64))


def _of_values(values: Floats, affine: Floats, space: Masker | None, name: str) -> Floats:
    """Maps from the values of an image of three or four dimensions."""
    if space is None:
        raise BadData(f"{name} is an image: templates of images need a grid, which says what becomes a column")
    if values.shape[:3] != space.shape or not np.allclose(affine, space.affine, atol=1e-3):
        raise BadData(f"{name} has another grid than the {space.kind} of the study: resample it")
    if values.ndim == 4:
        return space.transform(values)
    regions = np.unique(values)
    regions = regions[regions != 0]
    if len(regions) < 1 or np.any(regions != np.round(regions)):
        raise BadData(
            f"{name} has three dimensions: as templates it holds a whole number for each region, and 0 outside"
        )
    return np.stack([space.transform((values == region).astype(np.float64)) for region in regions])


def region_names(source: Any) -> tuple[str, ...]:
    """The names of the regions of a nilearn masker or of an atlas file, where it has some; else empty."""
    return tuple(str(each) for each in (getattr(source, "labels", None) or ()))
