"""Maps on the MNI template by nilearn, and names of components by their best match in an atlas."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from helpers.brain_images import nib
from zerosum.data.masker import Masker
from zerosum.errors import BadData
from zerosum.report.brain_pictures import best_matches, draw_brains
from zerosum.report.maps import maps_image

AFFINE = np.diag([20.0, 20.0, 20.0, 1.0])
AFFINE[:3, 3] = (-70.0, -100.0, -50.0)
SPACE = Masker.from_array(np.ones((8, 10, 7)), AFFINE, "mask")


def test_draw_brains_picture_has_positive_values_in_red(tmp_path: Path) -> None:
    maps = np.zeros((2, len(SPACE.columns)))
    maps[0, 200:260] = 1.0
    draw_brains(maps, SPACE, tmp_path / "maps_brain.png", labels=["one", "two"], threshold=0.1)
    pixels = matplotlib.image.imread(tmp_path / "maps_brain.png")[..., :3]
    red = (pixels[..., 0] > 0.3) & (pixels[..., 1] < 0.2) & (pixels[..., 2] < 0.3)
    assert red.sum() > 100
    assert [each.name for each in tmp_path.iterdir()] == ["maps_brain.png"]


def test_best_matches_name_maps_of_either_sign(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    known = rng.normal(size=(3, len(SPACE.columns)))
    nib.save(maps_image(known, SPACE), tmp_path / "atlas.nii.gz")
    maps = np.array([-known[2], known[0] + 0.1 * rng.normal(size=known.shape[1])])
    assert best_matches(maps, SPACE, tmp_path / "atlas.nii.gz")[0] == "region 3 (r = 1.00)"
    (tmp_path / "atlas.tsv").write_text("index\tname\n1\tvisual\n2\tmotor\n3\tdefault\n")
    names = best_matches(maps, SPACE, tmp_path / "atlas.nii.gz")
    assert [each.partition(" ")[0] for each in names] == ["default", "visual"]
    (tmp_path / "atlas.tsv").write_text("index\tname\n1\tvisual\n")
    with pytest.raises(BadData, match="names"):
        best_matches(maps, SPACE, tmp_path / "atlas.nii.gz")
