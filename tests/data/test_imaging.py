"""Brain images from folders: the right numbers, or `BadData` that names the file. Real NIfTI files throughout."""

from __future__ import annotations

import builtins
import gzip
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nilearn.maskers import NiftiLabelsMasker, NiftiMasker
from numpy.typing import NDArray

from helpers.brain_images import AFFINE, RAW, SHAPE, atlas, mask, nib, read, save, sidecar, table, volumes
from helpers.reproducibility import examples
from zerosum.data import nifti
from zerosum.data.imaging import Masker, Preprocessing, load_images
from zerosum.data.scans import MINIMUM_VOLUMES, open_scan, read_confounds, read_scan
from zerosum.errors import BadData, BadInput, BadParameter

Floats = NDArray[np.float64]


# The grid


def test_masker_columns_are_voxels_or_regions(tmp_path: Path) -> None:
    voxels = Masker.load(save(tmp_path / "mask.nii.gz", mask()), "mask")
    assert (len(voxels.columns), voxels.columns[0], voxels.columns[-1]) == (24, "v0001", "v0024")
    assert voxels.shape == SHAPE
    np.testing.assert_array_equal(voxels.affine, AFFINE)
    regions = Masker.load(save(tmp_path / "atlas.nii", atlas()), "atlas")
    assert regions.columns == ("r2", "r5", "r9")
    assert len({voxels.digest, regions.digest}) == 2


def test_masker_digest_follows_grid_and_labels(tmp_path: Path) -> None:
    one = Masker.load(save(tmp_path / "a.nii.gz", mask()), "mask")
    assert Masker.load(save(tmp_path / "b.nii", 255.0 * mask()), "mask").digest == one.digest
    moved = AFFINE + np.array([[0, 0, 0, 1.0], *np.zeros((3, 4))])
    smaller = mask()
    smaller[1, 1, 1] = 0
    others = [Masker.from_array(mask(), moved, "mask"), Masker.from_array(smaller, AFFINE, "mask")]
    assert len({one.digest, *(other.digest for other in others)}) == 3


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        ("mask", np.zeros(SHAPE, np.uint8), "empty"),
        ("atlas", np.zeros(SHAPE, np.uint8), "empty"),
        ("mask", np.ones((*SHAPE, 2), np.uint8), "4"),
        ("atlas", np.ones(SHAPE[:2], np.uint8), "2"),
        ("mask", atlas(), "4"),
        ("mask", np.full(SHAPE, np.nan), "finite"),
        ("atlas", np.full(SHAPE, 1.5), "atlas"),
        ("atlas", np.full(SHAPE, -1.0), "atlas"),
        ("atlas", np.ones(SHAPE, np.complex64), "values"),
    ],
)
def test_masker_bad_grid_is_refused(
    tmp_path: Path, kind: Literal["mask", "atlas"], values: NDArray[Any], named: str
) -> None:
    path = save(tmp_path / "a.nii.gz", values)
    with pytest.raises(BadData) as refused:
        Masker.load(path, kind)
    assert str(path) in str(refused.value)
    assert named in str(refused.value).replace(str(path), "")


def test_masker_bad_affine_is_refused(tmp_path: Path) -> None:
    image = nib.Nifti1Image(mask(), AFFINE)
    image.header["srow_x"] = [np.nan, 0, 0, 0]
    path = tmp_path / "a.nii"
    path.write_bytes(image.to_bytes()[:280] + np.full(4, np.nan, "<f4").tobytes() + image.to_bytes()[296:])
    with pytest.raises(BadData) as refused:
        Masker.load(path, "mask")
    assert "affine" in str(refused.value).replace(str(path), "")
    path.write_bytes(image.to_bytes()[:280] + np.zeros(12, "<f4").tobytes() + image.to_bytes()[328:])
    with pytest.raises(BadData) as refused:
        Masker.load(path, "mask")
    assert "affine" in str(refused.value).replace(str(path), "")


# One run


@pytest.mark.parametrize("name", ["run.nii", "run.nii.gz", "RUN.NII.GZ"])
def test_read_run_equals_nilearn_masker(tmp_path: Path, space: Masker, name: str) -> None:
    path = save(tmp_path / name, volumes(1).astype(np.float32))
    grid = nib.Nifti1Image(np.asarray(atlas() if space.kind == "atlas" else mask()), AFFINE)
    masker: Any
    if space.kind == "atlas":
        masker = NiftiLabelsMasker(grid, standardize=None, resampling_target=None)
    else:
        masker = NiftiMasker(grid, standardize=None)
    expected = masker.fit_transform(nib.Nifti1Image(volumes(1).astype(np.float32), AFFINE))
    np.testing.assert_allclose(read(path, space), expected, rtol=1e-5)


def test_read_run_scaled_integers_become_values(tmp_path: Path, voxels: Masker) -> None:
    image = nib.Nifti1Image(volumes(1), AFFINE)
    image.set_data_dtype(np.int16)
    nib.save(image, tmp_path / "a.nii.gz")
    rows = read(tmp_path / "a.nii.gz", voxels, Preprocessing(standardise=False, seconds=1.0))
    np.testing.assert_allclose(rows, voxels.transform(volumes(1)), atol=0.01)


def test_read_run_in_chunks_equals_whole(tmp_path: Path, space: Masker, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1))
    smooth = Preprocessing(smoothing_mm=6.0)
    whole, smoothed = read(path, space), read(path, space, smooth)
    monkeypatch.setattr(nifti, "_CHUNK_BYTES", 7 * 8 * int(np.prod(SHAPE)))
    np.testing.assert_array_equal(read(path, space), whole)
    np.testing.assert_array_equal(read(path, space, smooth), smoothed)


def test_preprocessing_standardise_gives_unit_variance_and_constant_columns_zero(
    tmp_path: Path, voxels: Masker
) -> None:
    values = volumes(1)
    values[2, 2, 2] = 123.4
    path = save(tmp_path / "a.nii.gz", values)
    for preprocessing in (Preprocessing(), Preprocessing(detrend=True), Preprocessing(detrend=True, band=(0.01, 0.1))):
        rows = read(path, voxels, preprocessing)
        still = np.flatnonzero(~rows.any(axis=0))
        assert still.tolist() == [int(voxels.labels[2, 2, 2]) - 1]
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(np.delete(rows.std(axis=0), still), 1)


def test_preprocessing_detrend_removes_trend(tmp_path: Path, voxels: Masker) -> None:
    time = np.arange(40.0)
    path = save(tmp_path / "a.nii.gz", volumes(1) + 3 * time)
    rows = read(path, voxels, Preprocessing(detrend=True, standardise=False))
    np.testing.assert_allclose((time - time.mean()) @ rows, 0, atol=1e-6)


def test_preprocessing_band_keeps_frequencies_inside(tmp_path: Path, voxels: Masker) -> None:
    time = 2.0 * np.arange(200)
    kept, slow, fast = (np.sin(2 * np.pi * hertz * time) for hertz in (0.05, 0.004, 0.2))
    path = save(tmp_path / "a.nii.gz", np.zeros((*SHAPE, 200)) + 100 + kept + 5 * slow + 5 * fast)
    rows = read(path, voxels, Preprocessing(band=(0.02, 0.1), standardise=False))
    np.testing.assert_allclose(rows[60:-60, 0], kept[60:-60], atol=0.1)
    low = read(path, voxels, Preprocessing(band=(0, 0.1), standardise=False))
    np.testing.assert_allclose(low[60:-60, 0], (100 + kept + 5 * slow)[60:-60], atol=0.1)
    with pytest.raises(BadData, match=r"0\.3") as refused:
        read(path, voxels, Preprocessing(band=(0.01, 0.3)))
    assert "0.25" in refused.value.detail


def test_preprocessing_band_on_short_run_is_finite(tmp_path: Path, voxels: Masker) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1, 12))
    assert np.isfinite(read(path, voxels, Preprocessing(band=(0.01, 0.1)))).all()


def test_preprocessing_confounds_are_regressed_out(tmp_path: Path, space: Masker) -> None:
    rng = np.random.default_rng(0)
    motion, drift = rng.normal(size=40), np.cumsum(rng.normal(size=40))
    path = save(tmp_path / "a.nii.gz", volumes(1) + 50 * motion + 20 * drift)
    cells = ["n/a", *map(str, drift[1:])]
    confounds = table(tmp_path / "c.tsv", {"x": motion, "other": ["n/a"] * 40, "x_derivative1": cells})
    rows = read(path, space, Preprocessing(("x", "x_derivative1")), confounds=confounds)
    first = np.concatenate([[0], drift[1:]])
    for removed in (motion, first):
        np.testing.assert_allclose((removed - removed.mean()) @ rows, 0, atol=1e-8)
    plain = read(path, space)
    design = np.column_stack([np.ones(40), motion, first])
    expected = plain - design @ np.linalg.lstsq(design, plain)[0]
    np.testing.assert_allclose(rows, expected / expected.std(axis=0), atol=1e-8)


def test_confounds_bad_table_is_refused(tmp_path: Path, voxels: Masker) -> None:
    path, numbers = tmp_path / "c.tsv", ["0.5"] * 12

    def refused(named: str, counts: list[str], columns: dict[str, list[str]], name: str = "x") -> None:
        with pytest.raises(BadData) as error:
            read_confounds(table(path, columns), [name], 12)
        assert named in str(error.value)
        assert str(path) not in str(error.value)
        assert str(path) in error.value.detail
        assert re.findall(r"\d+", error.value.detail.replace(str(path), "")) == counts
        assert "secret" not in f"{error.value} {error.value.detail}"

    refused("'y'", [], {"x": numbers}, "y")
    refused("rows", ["11", "12"], {"x": numbers[1:]})
    refused("'x'", ["1"], {"x": ["n/a", *numbers[1:]]})
    refused("'x_derivative1'", ["3"], {"x_derivative1": ["n/a", "1", "n/a", *numbers[3:]]}, "x_derivative1")
    refused("'x'", ["2"], {"x": ["1", "secret", *numbers[2:]]})
    refused("'x'", ["2"], {"x": ["1", "inf", *numbers[2:]]})
    first = ["n/a", *numbers[1:]]
    assert read_confounds(table(path, {"framewise_displacement": first}), ["framewise_displacement"], 12)[0, 0] == 0
    for content in ("", "x\n1\t2\n", "x\tx\n" + "1\t2\n" * 12):
        path.write_text(content)
        with pytest.raises(BadData):
            read_confounds(path, ["x"], 12)
    run = save(tmp_path / "a.nii.gz", volumes(1, 12))
    with pytest.raises(BadData) as missing:
        open_scan(run, voxels, Preprocessing(("x",)))
    assert "confounds" in str(missing.value)
    many = Preprocessing(tuple(f"c{at}" for at in range(10)))
    with pytest.raises(BadData) as short:
        open_scan(run, voxels, many, confounds=path)
    assert "10" in str(short.value)
    assert "12" in short.value.detail.replace(str(tmp_path), "")


def test_preprocessing_scrub_leaves_moved_volumes_out(tmp_path: Path, space: Masker) -> None:
    values = volumes(2)
    moved = np.zeros(40)
    moved[[7, 8, 30]] = 0.9
    path = save(tmp_path / "a.nii.gz", values)
    confounds = table(tmp_path / "c.tsv", {"framewise_displacement": ["n/a", *moved[1:]], "x": np.arange(40.0) ** 2})
    still = np.flatnonzero(moved < 0.5)
    plain = read(path, space, Preprocessing(standardise=False))
    scrubbed = read(path, space, Preprocessing(standardise=False, scrub_mm=0.5), confounds=confounds)
    np.testing.assert_array_equal(scrubbed, plain[still])
    cleaned = read(path, space, Preprocessing(("x",), scrub_mm=0.5, standardise=False), confounds=confounds)
    regressor = np.arange(40.0)[still] ** 2
    np.testing.assert_allclose((regressor - regressor.mean()) @ cleaned, 0, atol=1e-6)
    filled = np.empty_like(cleaned)
    preprocessing = Preprocessing(("x",), scrub_mm=0.5)
    scan = open_scan(path, space, preprocessing, confounds=confounds)
    assert scan.volumes == 37
    assert read_scan(scan, space, preprocessing, filled) is filled
    np.testing.assert_allclose(filled.std(axis=0), 1)
    with pytest.raises(BadData) as missing:
        open_scan(path, space, Preprocessing(scrub_mm=0.5))
    assert "confounds" in str(missing.value)


def test_load_images_person_without_still_volumes_is_unit_of_zeros(tmp_path: Path, voxels: Masker) -> None:
    for person, moved in (("ann", 0.1), ("bob", 2.0)):
        save(tmp_path / f"{person}.nii.gz", volumes(3))
        table(tmp_path / f"{person}.tsv", {"framewise_displacement": [moved] * 40})
    found = load_images(tmp_path, voxels, Preprocessing(scrub_mm=0.5))
    assert found.people == ("ann", "bob")
    ann, bob = found.units.each()
    assert ann.shape == (40, 24)
    assert np.all(bob == 0)
    assert bob.shape == (MINIMUM_VOLUMES, 24)
    found.units.check()
    assert any("bob" in note for note in found.notes)
    with pytest.raises(BadData):
        load_images(tmp_path, voxels, Preprocessing(scrub_mm=0.05))


def test_preprocessing_strategies_equal_nilearn(tmp_path: Path, voxels: Masker) -> None:
    """fMRIPrep's names and columns; the first volume has no derivative."""
    rng, length = np.random.default_rng(4), 60
    stem = tmp_path / "sub-1_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
    save(stem, volumes(4, length))
    kinds = ("", "_derivative1", "_power2", "_derivative1_power2")
    axes = [f"{way}_{axis}" for way in ("trans", "rot") for axis in "xyz"]
    columns: dict[str, list[Any]] = {
        f"{name}{kind}": ["n/a" if "derivative" in kind else 0.1, *rng.normal(size=length - 1)]
        for name in (*axes, "csf", "white_matter", "global_signal")
        for kind in kinds
    }
    columns |= {f"cosine0{at}": list(rng.normal(size=length)) for at in range(2)}
    moved = np.full(length, 0.05)
    moved[20] = 3.0
    columns |= {"framewise_displacement": ["n/a", *moved[1:]], "std_dvars": ["n/a", *[1.0] * (length - 1)]}
    confounds = table(tmp_path / "sub-1_task-rest_desc-confounds_timeseries.tsv", columns)
    (tmp_path / "sub-1_task-rest_desc-confounds_timeseries.json").write_text("{}")
    simple = open_scan(stem, voxels, Preprocessing(strategy="simple"), confounds=confounds)
    assert simple.regressors is not None
    assert (simple.volumes, simple.regressors.shape) == (length, (length, 24 + 2 + 2))  # motion, tissue, cosines
    scrubbing = open_scan(stem, voxels, Preprocessing(strategy="scrubbing", scrub_mm=0.5), confounds=confounds)
    assert 20 not in scrubbing.kept
    assert read(stem, voxels, Preprocessing(strategy="simple"), confounds=confounds).shape == (
        length,
        voxels.inside.sum(),
    )
    with pytest.raises(BadData, match="'compcor'") as error:
        open_scan(stem, voxels, Preprocessing(strategy="compcor"), confounds=confounds)
    assert "sub-1" not in str(error.value).split("\n")[0]


def test_read_run_on_other_grid_is_resampled_if_requested(tmp_path: Path, voxels: Masker) -> None:
    """A pattern that is linear in space keeps its values, wherever the voxels lie."""
    x, y, z = np.meshgrid(*(np.arange(2 * n) for n in SHAPE), indexing="ij")
    finer = AFFINE.copy()
    finer[:3, :3] /= 2
    places = np.einsum("ij,jxyz->ixyz", finer[:3, :3], np.stack([x, y, z])) + finer[:3, 3, None, None, None]
    pattern = 3 * places[0] - 2 * places[1] + places[2]
    path = save(tmp_path / "a.nii.gz", pattern[..., None] * np.linspace(1, 2, 12), affine=finer)
    with pytest.raises(BadData, match="5, 6, 4"):
        open_scan(path, voxels, RAW)
    rows = read(path, voxels, Preprocessing(resample=True, standardise=False))
    inside = np.argwhere(voxels.inside)
    expected = (inside @ AFFINE[:3, :3].T + AFFINE[:3, 3]) @ [3, -2, 1]
    np.testing.assert_allclose(rows, np.linspace(1, 2, 12)[:, None] * expected[None, :], rtol=1e-5, atol=1e-4)


def test_preprocessing_smoothing_spreads_values_by_distance(tmp_path: Path, voxels: Masker) -> None:
    values = np.zeros((*SHAPE, 10))
    values[2, 3, 1] = 1.0
    values[0, 0, 0] = np.nan  # outside
    path = save(tmp_path / "a.nii.gz", values)
    rows = read(path, voxels, Preprocessing(smoothing_mm=6.0, standardise=False))
    assert rows[0, voxels.labels[2, 3, 1] - 1] == rows[0].max() < 0.5
    assert rows[0].min() > 0
    neighbour, next_slice = rows[0, voxels.labels[3, 3, 1] - 1], rows[0, voxels.labels[2, 3, 2] - 1]
    assert neighbour > next_slice  # 3 mm away, and 4 mm


@pytest.mark.parametrize(
    ("values", "affine", "named", "counts"),
    [
        (volumes(1)[..., 0], AFFINE, "dimensions", ["3"]),
        (volumes(1, 9), AFFINE, "10", ["9"]),
        (volumes(1, 20, (5, 6, 5)), AFFINE, "5, 6, 4", ["5", "6", "5"]),
        (volumes(1), AFFINE + np.diag([0.01, 0, 0, 0]), "affine", []),
        (volumes(1), AFFINE + np.outer([0, 0.01, 0, 0], [0, 0, 0, 1]), "affine", []),
        (volumes(1).astype(np.complex64), AFFINE, "values", []),
        (np.where(np.arange(40) == 17, np.nan, volumes(1)), AFFINE, "finite", []),
        (np.where(np.arange(40) == 17, -np.inf, volumes(1)), AFFINE, "finite", []),
        (np.full((*SHAPE, 40), 1e200), AFFINE, "1e100", []),
    ],
)
def test_scan_bad_run_is_refused(
    tmp_path: Path, voxels: Masker, values: NDArray[Any], affine: Floats, named: str, counts: list[str]
) -> None:
    path = save(tmp_path / "a.nii.gz", values, affine=affine)
    with pytest.raises(BadData) as refused:
        read(path, voxels)
    assert named in str(refused.value)
    assert "a.nii.gz" not in str(refused.value)
    assert str(path) in refused.value.detail
    assert re.findall(r"\d+", refused.value.detail.replace(str(path), "")) == counts


def test_read_run_grid_differing_by_rounding_is_accepted(tmp_path: Path, voxels: Masker) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1), affine=AFFINE + 1e-5 * np.eye(4))
    assert read(path, voxels).shape == (40, 24)


# Clocks


@pytest.mark.parametrize(("stated", "unit"), [(1.5, "sec"), (1500, "msec"), (1_500_000, "usec")])
def test_scan_clock_of_header_and_sidecar_must_agree(tmp_path: Path, voxels: Masker, stated: float, unit: str) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1), stated, unit=unit)
    assert open_scan(path, voxels, RAW).seconds == pytest.approx(1.5)
    near = sidecar(tmp_path / "a.json", RepetitionTime=1.5005)
    assert open_scan(path, voxels, RAW, sidecars=[near]).seconds == 1.5005
    far = sidecar(tmp_path / "b.json", RepetitionTime=2)
    with pytest.raises(BadData) as refused:
        open_scan(path, voxels, RAW, sidecars=[far])
    assert "seconds" in str(refused.value)
    assert {"1.5", "2"} <= set(re.findall(r"[\d.]+", refused.value.detail))
    assert open_scan(path, voxels, Preprocessing(seconds=0.7), sidecars=[far]).seconds == 0.7


def test_scan_clock_without_unit_needs_sidecar(tmp_path: Path, voxels: Masker) -> None:
    for name, seconds in (("a.nii", None), ("b.nii", 0.0)):
        path = save(tmp_path / name, volumes(1), seconds)
        with pytest.raises(BadData, match="RepetitionTime"):
            open_scan(path, voxels, RAW)
        silent, stated = sidecar(tmp_path / "s.json", EchoTime=0.03), sidecar(tmp_path / "t.json", RepetitionTime=3)
        assert open_scan(path, voxels, RAW, sidecars=[silent, stated]).seconds == 3


@pytest.mark.parametrize("content", ["", "[]", "{", '{"RepetitionTime": "2"}', '{"RepetitionTime": 0}', "\xff"])
def test_scan_bad_sidecar_is_refused(tmp_path: Path, voxels: Masker, content: str) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1))
    (tmp_path / "a.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(BadData, match=r"a\.json"):
        open_scan(path, voxels, RAW, sidecars=[tmp_path / "a.json"])


# Damaged files


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_read_run_truncated_file_is_refused(tmp_path: Path, voxels: Masker, name: str) -> None:
    whole = save(tmp_path / name, volumes(1, 12)).read_bytes()
    path = tmp_path / f"cut-{name}"
    for length in [*range(0, len(whole), max(1, len(whole) // 60)), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(BadData) as refused:
            read(path, voxels)
        assert str(path) in refused.value.detail
        assert not {str(path), "\n"} & {*str(refused.value).split(" "), *str(refused.value)}


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_read_run_damaged_header_loads_or_is_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    voxels = Masker.from_array(mask(), AFFINE, "mask")
    damaged = bytearray(nib.Nifti1Image(volumes(1, 12), AFFINE).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, 351))] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(gzip.compress(damaged) if name.endswith(".gz") else damaged)
    with suppress(BadData):
        assert np.isfinite(read(path, voxels, Preprocessing(seconds=2.0))).all()


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_scan_header_larger_than_file_is_refused(tmp_path: Path, voxels: Masker, name: str) -> None:
    path = save(tmp_path / name, volumes(1, 12))
    image = bytearray(nib.Nifti2Image(volumes(1, 12), AFFINE).to_bytes())
    image[48:56] = np.int64(2**40).tobytes()  # the number of volumes
    path.write_bytes(gzip.compress(image) if name.endswith(".gz") else image)
    with pytest.raises(BadData) as refused:
        open_scan(path, voxels, RAW)
    assert re.search(r"\d{12}", refused.value.detail)  # bytes


def test_read_run_flipped_byte_in_gzip_is_refused(tmp_path: Path, voxels: Masker) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1, 12))
    damaged = bytearray(path.read_bytes())
    damaged[-6] ^= 1  # the checksum itself: every volume is there
    path.write_bytes(damaged)
    with pytest.raises(BadData):
        read(path, voxels)


def test_scan_other_file_under_image_name_is_refused(tmp_path: Path, voxels: Masker) -> None:
    for name in ("a.nii", "a.nii.gz"):
        with pytest.raises(BadData):
            read(tmp_path / name, voxels)
        for content in (b"", b"\x1f\x8b", b"participant_id\n", bytes(400)):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(BadData):
                read(tmp_path / name, voxels)
    with pytest.raises(BadData, match=r"\.nii\.gz"):
        Masker.load(tmp_path / "mask.img", "mask")


# What a study may ask for


@pytest.mark.parametrize(
    "wrong",
    [
        {"confounds": ("a", "a")},
        {"confounds": ("a",), "strategy": "simple"},
        {"strategy": "guess"},
        {"strategy": "simple", "scrub_mm": 0.5},
        {"scrub_mm": 0.0},
        {"band": (0.1, 0.01)},
        {"band": (-1, 0.1)},
        {"band": (0.1, np.inf)},
        {"band": (np.nan, 0.1)},
        {"smoothing_mm": 0},
        {"smoothing_mm": np.nan},
        {"seconds": -2.0},
    ],
)
def test_preprocessing_bad_parameter_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        Preprocessing(**wrong)


@pytest.mark.parametrize("library", ["nibabel", "nilearn"])
def test_scan_without_libraries_names_the_extra(
    tmp_path: Path, voxels: Masker, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "a.nii.gz", volumes(1))
    honest = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.split(".")[0] == library:
            raise ImportError(name)
        return honest(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    for preprocessing in (Preprocessing(detrend=True), Preprocessing(smoothing_mm=5.0)):
        with pytest.raises(BadInput, match=r"zerosum\[neuro\]"):
            read(path, voxels, preprocessing)
