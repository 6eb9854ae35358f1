"""Maps on the brain: written on the study's grid, read back by nilearn, and drawn the same way every time."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from nilearn.maskers import NiftiMasker

from helpers.brain_images import AFFINE, SHAPE, atlas, mask, nib
from zerosum.data.imaging import Masker
from zerosum.errors import BadData, BadInput, BadParameter
from zerosum.report import maps as module
from zerosum.report.maps import draw_maps, write_maps


@pytest.fixture
def voxels() -> Masker:
    return Masker.from_array(mask(), AFFINE, "mask")


@pytest.fixture
def regions() -> Masker:
    return Masker.from_array(atlas(), AFFINE, "atlas")


@pytest.mark.parametrize("name", ["maps.nii", "maps.nii.gz"])
def test_write_maps_read_back_is_same(tmp_path: Path, voxels: Masker, name: str) -> None:
    maps = np.random.default_rng(0).normal(size=(3, 24))
    path = tmp_path / "new" / name
    write_maps(maps, voxels, path)
    image = nib.load(path)
    assert image.shape == (*SHAPE, 3)
    assert image.get_data_dtype() == np.float32
    np.testing.assert_array_equal(image.affine, AFFINE)
    np.testing.assert_array_equal(voxels.transform(image.get_fdata()), maps.astype(np.float32))
    assert not image.get_fdata()[mask() == 0].any()
    masker = NiftiMasker(nib.Nifti1Image(mask(), AFFINE), standardize=None).fit()
    np.testing.assert_array_equal(masker.transform(image), maps.astype(np.float32))
    assert [entry.name for entry in path.parent.iterdir()] == [name]


def test_write_maps_regions_are_filled_whole(tmp_path: Path, regions: Masker) -> None:
    write_maps(np.array([[1.0, 2.0, -3.0]]), regions, tmp_path / "maps.nii.gz")
    values = nib.load(tmp_path / "maps.nii.gz").get_fdata()[..., 0]
    for label, value in ((0, 0), (2, 1), (5, 2), (9, -3)):
        assert np.all(values[atlas() == label] == value)


def test_write_maps_plain_vector_is_one_map(tmp_path: Path, regions: Masker) -> None:
    write_maps(np.arange(3.0), regions, tmp_path / "maps.nii")
    assert nib.load(tmp_path / "maps.nii").shape == (*SHAPE, 1)


def test_write_maps_and_draw_maps_same_input_gives_same_bytes(
    tmp_path: Path, voxels: Masker, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = np.random.default_rng(0).normal(size=(2, 24))
    for name, write in (("maps.nii.gz", write_maps), ("maps.png", draw_maps)):
        write(maps, voxels, tmp_path / name)
        first = (tmp_path / name).read_bytes()
        monkeypatch.setattr("time.time", lambda: 2e9)
        write(maps, voxels, tmp_path / "again" / name)
        assert (tmp_path / "again" / name).read_bytes() == first


@pytest.mark.parametrize("count", [1, 4, 23])
def test_draw_maps_picture_shows_every_map(tmp_path: Path, voxels: Masker, count: int) -> None:
    maps = np.random.default_rng(0).normal(size=(count, 24))
    draw_maps(maps, voxels, tmp_path / "maps.png", labels=[f"component {at}" for at in range(count)])
    pixels = matplotlib.image.imread(tmp_path / "maps.png")
    assert pixels.shape[0] >= 150
    assert pixels.std() > 0.02


def test_draw_maps_of_zeros_writes_picture(tmp_path: Path, voxels: Masker) -> None:
    draw_maps(np.zeros((2, 24)), voxels, tmp_path / "maps.png")
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")


def test_canonical_volumes_keep_peak_with_right_side_on_right(voxels: Masker) -> None:
    values = np.zeros((1, 24))
    values[0, voxels.labels[1, 4, 2] - 1] = -5.0  # x runs from right to left here
    volumes, inside, affine = module.canonical(voxels.inverse_transform(values), voxels)
    peak = np.unravel_index(int(np.argmax(np.abs(volumes[..., 0]))), SHAPE)
    assert [int(at) for at in peak] == [3, 4, 2]
    assert affine[0, 0] > 0
    np.testing.assert_allclose(affine @ [*peak, 1], AFFINE @ [1, 4, 2, 1])
    assert inside.sum() == 24


def test_write_maps_and_draw_maps_bad_input_is_refused(tmp_path: Path, voxels: Masker) -> None:
    for write, path in ((write_maps, tmp_path / "a.nii.gz"), (draw_maps, tmp_path / "a.png")):
        with pytest.raises(BadData, match="24"):
            write(np.zeros((2, 23)), voxels, path)
        for wrong in (np.full((1, 24), np.nan), np.zeros((0, 24))):
            with pytest.raises(BadParameter, match="finite"):
                write(wrong, voxels, path)
        (tmp_path / "file").touch()
        with pytest.raises(BadInput, match=str(tmp_path / "file")):
            write(np.zeros((1, 24)), voxels, tmp_path / "file" / path.name)
        assert not path.exists()
    with pytest.raises(BadParameter, match=r"\.nii\.gz"):
        write_maps(np.zeros((1, 24)), voxels, tmp_path / "a.img")
    with pytest.raises(BadParameter, match=r"\.png"):
        draw_maps(np.zeros((1, 24)), voxels, tmp_path / "a.pdf")
    with pytest.raises(BadParameter, match="2 labels"):
        draw_maps(np.zeros((1, 24)), voxels, tmp_path / "a.png", labels=["a", "b"])


def test_write_maps_failed_write_leaves_existing_file(
    tmp_path: Path, voxels: Masker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "maps.nii.gz"
    path.write_text("before")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nib, "save", full)
    with pytest.raises(BadInput, match="space"):
        write_maps(np.zeros((1, 24)), voxels, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
