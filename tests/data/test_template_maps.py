"""Templates from arrays, files, atlases and maskers of nilearn; grids from maskers of nilearn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nilearn.maskers import NiftiLabelsMasker, NiftiMapsMasker, NiftiMasker

from helpers.brain_images import AFFINE, SHAPE, atlas, mask, nib
from zerosum.data.masker import Masker
from zerosum.data.templates import load_templates
from zerosum.errors import BadData
from zerosum.report.maps import maps_image

SPACE = Masker.from_array(mask(), AFFINE, "mask")
MAPS = np.random.default_rng(0).normal(size=(3, len(SPACE.columns))).astype(np.float32).astype(np.float64)


def test_load_templates_has_the_same_maps_from_every_form(tmp_path: Path) -> None:
    image = maps_image(MAPS, SPACE)
    nib.save(image, tmp_path / "maps.nii.gz")
    np.save(tmp_path / "maps.npy", MAPS)
    forms: list[Any] = [
        MAPS,
        MAPS.tolist(),
        tmp_path / "maps.npy",
        tmp_path / "maps.nii.gz",
        str(tmp_path / "maps.npy"),
    ]
    for form in [*forms, image, NiftiMapsMasker(image)]:
        np.testing.assert_allclose(load_templates(form, SPACE), MAPS, rtol=1e-6)


def test_load_templates_of_regions_are_masks(tmp_path: Path) -> None:
    image = nib.Nifti1Image(atlas().astype(np.int16), AFFINE)
    nib.save(image, tmp_path / "atlas.nii.gz")
    regions = np.unique(atlas()[atlas() != 0])
    for form in (tmp_path / "atlas.nii.gz", NiftiLabelsMasker(image)):
        found = load_templates(form, SPACE)
        assert found.shape == (len(regions), len(SPACE.columns))
        assert set(np.unique(found)) <= {0.0, 1.0}


def test_masker_from_nilearn_is_the_masker_of_its_image(tmp_path: Path) -> None:
    voxels, regions = (
        nib.Nifti1Image(mask().astype(np.int16), AFFINE),
        nib.Nifti1Image(atlas().astype(np.int16), AFFINE),
    )
    assert Masker.from_nilearn(NiftiMasker(voxels, standardize=None)).digest == SPACE.digest
    assert Masker.from_nilearn(NiftiMasker(voxels, standardize=None).fit()).digest == SPACE.digest
    own = Masker.from_array(atlas(), AFFINE, "atlas")
    assert Masker.from_nilearn(NiftiLabelsMasker(regions)).digest == own.digest
    nib.save(regions, tmp_path / "atlas.nii.gz")
    assert Masker.from_nilearn(NiftiLabelsMasker(str(tmp_path / "atlas.nii.gz"))).digest == own.digest
    for other in (NiftiMasker(), NiftiMapsMasker(maps_image(MAPS, SPACE))):
        with pytest.raises(BadData, match="public image"):
            Masker.from_nilearn(other)


def test_load_templates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    image = nib.Nifti1Image(np.zeros((*SHAPE, 2), dtype=np.float32), np.diag([9.0, 9, 9, 1]))
    nib.save(image, tmp_path / "other.nii.gz")
    (tmp_path / "maps.txt").write_text("1 2")
    for form, word in (
        (np.full((1, 3), np.nan), "finite"),
        (np.zeros((0, 3)), "table"),
        (tmp_path / "maps.txt", "npy"),
        (tmp_path / "none.npy", "no file"),
        (tmp_path / "other.nii.gz", "elsewhere|grid"),
        (image, "grid"),
    ):
        with pytest.raises(BadData, match=word):
            load_templates(form, SPACE)
    with pytest.raises(BadData, match="grid"):
        load_templates(image)
