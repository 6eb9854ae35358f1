"""Folders of brain images: who is who, and which files are whose."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.brain_images import AFFINE, RAW, bids, mask, participants, read, save, sidecar, table, volumes
from zerosum.data.bids import find_recordings
from zerosum.data.imaging import ImagingData, Masker, Preprocessing, Selection, load_images
from zerosum.errors import BadData

Floats = NDArray[np.float64]


def _people(found: ImagingData) -> dict[str, Floats]:
    return dict(zip(found.people, found.units.each(), strict=True))


def test_load_images_runs_and_sessions_of_person_are_one_unit(tmp_path: Path, space: Masker) -> None:
    folder = bids(
        tmp_path / "site",
        {
            "sub-02": [("task-rest", 12)],
            "sub-01": [("ses-a_task-rest_run-1", 10), ("ses-a_task-rest_run-2", 11), ("ses-b_task-rest", 15)],
        },
    )
    steps: list[tuple[int, int]] = []
    found = load_images(folder, space, RAW, on_scan=lambda done, planned: steps.append((done, planned)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.people == ("sub-02", "sub-01")
    assert found.notes == ()
    assert found.columns == space.columns
    assert found.units.offsets is not None
    assert found.units.runs is not None
    assert found.units.offsets.tolist() == [0, 12, 48]
    assert found.units.runs.offsets.tolist() == [0, 12, 22, 33, 48]
    assert found.units.runs.seconds.tolist() == [2.0] * 4
    paths = [folder / "sub-02/func/sub-02_task-rest_bold.nii.gz"]
    paths += [folder / f"sub-01/ses-a/func/sub-01_ses-a_task-rest_run-{run}_bold.nii.gz" for run in (1, 2)]
    paths += [folder / "sub-01/ses-b/func/sub-01_ses-b_task-rest_bold.nii.gz"]
    np.testing.assert_array_equal(found.units.rows, np.vstack([read(path, space) for path in paths]))


def test_load_images_every_run_is_standardised_separately(tmp_path: Path, space: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-a", 12), ("task-b", 20)]})
    found = load_images(folder, space)
    for part in (slice(0, 12), slice(12, 32)):
        np.testing.assert_allclose(found.units.rows[part].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(found.units.rows[part].std(axis=0), 1)


def test_load_images_person_without_selected_run_is_unit_of_zeros(tmp_path: Path, voxels: Masker) -> None:
    """A coordinator selects: how many people have such a run must not show in the public number of units."""
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)], "sub-2": [("task-game", 13)]})
    found = load_images(folder, voxels, RAW, Selection(task="rest"))
    assert found.people == ("sub-1", "sub-2")
    assert [bool(np.all(rows == 0)) for rows in found.units.each()] == [False, True]
    assert "sub-2" in found.notes[0]


def test_load_images_selection_filters_tasks_spaces_and_derivatives(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12), ("task-game", 13)]})
    func = folder / "sub-1/func"
    for at, name in enumerate(("space-MNI_desc-preproc", "space-T1w_desc-preproc", "space-MNI_res-2_desc-smooth")):
        save(func / f"sub-1_task-rest_{name}_bold.nii.gz", volumes(9, 20 + at))
    save(func / "sub-1_task-rest_sbref.nii.gz", volumes(9)[..., 0])
    save(folder / "sub-1/anat/sub-1_T1w.nii.gz", volumes(9)[..., 0])

    def lengths(**wanted: str) -> list[int]:
        return [len(rows) for rows in load_images(folder, voxels, RAW, Selection(**wanted)).units.each()]

    assert lengths(task="game") == [13]
    assert lengths(task="rest", space="MNI", desc="preproc") == [20]
    assert lengths(space="T1w") == [21]
    assert lengths(res="2") == [22]
    for wanted in ({}, {"task": "rest"}, {"space": "MNI"}):
        with pytest.raises(BadData) as refused:
            lengths(**wanted)
        assert {"space", "desc", "res"} <= set(re.findall(r"\w+", str(refused.value)))
    with pytest.raises(BadData, match=r"participants\.tsv"):
        lengths(task="sleep")


def test_load_images_derivatives_use_participants_of_data_set(tmp_path: Path, voxels: Masker) -> None:
    folder = tmp_path / "site" / "derivatives" / "fmriprep"
    save(folder / "sub-1/func/sub-1_task-rest_desc-preproc_bold.nii.gz", volumes(1))
    with pytest.raises(BadData, match=r"participants\.tsv"):
        load_images(folder, voxels)
    participants(tmp_path / "site", ["sub-1"])
    assert load_images(folder, voxels).people == ("sub-1",)


@pytest.mark.parametrize("ending", ["timeseries", "regressors"])
def test_load_images_confounds_of_derived_run_are_found(tmp_path: Path, voxels: Masker, ending: str) -> None:
    func = tmp_path / "sub-1/func"
    participants(tmp_path, ["1"])
    motion = np.random.default_rng(0).normal(size=40)
    for run in (1, 2):
        name = f"sub-1_task-rest_run-{run}"
        save(func / f"{name}_space-MNI_res-2_desc-preproc_bold.nii.gz", volumes(run) + 99 * motion)
    table(func / f"sub-1_task-rest_run-1_desc-confounds_{ending}.tsv", {"rot_x": motion})
    with pytest.raises(BadData) as refused:
        load_images(tmp_path, voxels, Preprocessing(("rot_x",)))
    assert "run-2" in refused.value.detail
    table(func / f"sub-1_task-rest_run-2_desc-confounds_{ending}.tsv", {"rot_x": motion})
    rows = load_images(tmp_path, voxels, Preprocessing(("rot_x",))).units.rows
    np.testing.assert_allclose((motion - motion.mean()) @ rows[:40], 0, atol=1e-8)


def test_load_images_clock_is_inherited_from_nearest_sidecar(tmp_path: Path, voxels: Masker) -> None:
    participants(tmp_path, ["1", "2", "3"])
    for person in (1, 2, 3):
        save(tmp_path / f"sub-{person}/func/sub-{person}_task-rest_bold.nii.gz", volumes(person), None)
    sidecar(tmp_path / "bold.json", RepetitionTime=9)
    sidecar(tmp_path / "task-rest_bold.json", RepetitionTime=3)
    sidecar(tmp_path / "task-game_bold.json", RepetitionTime=7)
    sidecar(tmp_path / "sub-2/sub-2_task-rest_bold.json", RepetitionTime=4)
    sidecar(tmp_path / "sub-3/func/sub-3_task-rest_bold.json", EchoTime=1)
    runs = load_images(tmp_path, voxels).units.runs
    assert runs is not None
    assert runs.seconds.tolist() == [3, 4, 3]


def test_load_images_participant_without_images_is_noted(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)]}, listed=["sub-1", "sub-2", "sub-3"])
    (folder / "sub-3").mkdir()
    found = load_images(folder, voxels)
    assert found.people == ("sub-1",)
    (note,) = found.notes
    assert re.findall(r"sub-\d", note) == ["sub-2", "sub-3"]


def test_load_images_person_not_in_participants_is_refused(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)], "sub-2": [("task-rest", 12)]}, listed=["sub-1"])
    with pytest.raises(BadData, match=r"participants\.tsv") as refused:
        load_images(folder, voxels)
    assert "sub-2" in refused.value.detail


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "participant_id"),
        ("age\n1\n", "participant_id"),
        ("participant_id\nsub-1\nsub-1\n", "tsv"),
        ("participant_id\nsub-1\n1\n", "tsv"),
        ("age\tparticipant_id\n1\tsub-1\n2\n", "participant_id"),
        ("participant_id\tage\n\t3\n", "participant_id"),
        ("participant_id\n", "bold"),
        ("participant_id\n\xff\n", "tsv"),
    ],
)
def test_participants_table_bad_content_is_refused(tmp_path: Path, voxels: Masker, content: str, named: str) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)]})
    (folder / "participants.tsv").write_bytes(content.encode("latin-1"))
    if content.startswith("participant_id\n") and "sub" not in content:
        (folder / "sub-1").rename(folder / "other")
    with pytest.raises(BadData, match=named):
        load_images(folder, voxels)


def test_load_images_file_in_wrong_folder_is_refused(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)], "sub-2": [("ses-a_task-rest", 12)]})
    for place, name in (("sub-1", "sub-2_task-rest"), ("sub-2/ses-a", "sub-2_task-rest"), ("sub-1", "rest")):
        path = save(folder / place / "func" / f"{name}_bold.nii.gz", volumes(1))
        with pytest.raises(BadData) as refused:
            load_images(folder, voxels)
        assert str(path) in refused.value.detail
        path.unlink()
    assert len(load_images(folder, voxels).units) == 2


@pytest.mark.parametrize("fault", ["short", "finite", "grid", "stranger", "folder", "confounds"])
def test_load_images_error_names_no_person_and_no_count(tmp_path: Path, voxels: Masker, fault: str) -> None:
    """The sentence is the same whoever's images are at fault; at the site, the detail says whose."""
    said, details = set(), set()
    for at, wrong in enumerate((["ann"], ["bob", "cat"], ["ann", "bob", "cat"])):
        people = [f"sub-{name}" for name in ("ann", "bob", "cat", "dan")]
        listed = [name for name in people if not (fault == "stranger" and name[4:] in wrong)]
        folder = bids(tmp_path / f"{at}" / "site", {key: [("task-rest", 12)] for key in people}, listed=listed)
        for name in wrong:
            path = folder / f"sub-{name}" / "func" / f"sub-{name}_task-rest_bold.nii.gz"
            match fault:
                case "short":
                    save(path, volumes(1, 3 + len(wrong)))
                case "finite":
                    save(path, np.where(np.arange(12) == at, np.nan, volumes(1, 12)))
                case "grid":
                    save(path, volumes(1, 12, (5, 6, 5 + at)))
                case "folder":
                    path.rename(path.with_name(f"sub-x{name}_task-rest_bold.nii.gz"))
        with pytest.raises(BadData) as refused:
            load_images(folder, voxels, Preprocessing(("x",), seconds=2.0) if fault == "confounds" else None)
        message = str(refused.value).replace(str(folder), "FOLDER")
        assert "FOLDER" in message
        said.add(message)
        details.add(refused.value.detail.replace(str(folder), ""))
    assert len(said) == 1
    assert not {"ann", "bob", "cat", "dan", "sub-"} & set(re.split(r"[ _/.]", said.pop()))
    assert fault == "confounds" or len(details) > 1


def test_bids_link_outside_or_broken_is_refused(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)]}, listed=["sub-1", "sub-2"])
    outside = save(tmp_path / "outside.nii.gz", volumes(1))
    func = folder / "sub-2" / "func"
    func.mkdir(parents=True)
    link = func / "sub-2_task-rest_bold.nii.gz"
    for target in (outside, tmp_path / "nothing.nii.gz", link, folder / "sub-1/func/sub-1_task-rest_bold.nii.gz"):
        link.symlink_to(target)
        with pytest.raises(BadData):
            load_images(folder, voxels)
        link.unlink()
    link.mkdir()
    with pytest.raises(BadData) as refused:
        load_images(folder, voxels)
    assert str(link) in refused.value.detail
    link.rmdir()
    annexed = save(folder / ".git/annex/objects/1.nii.gz", volumes(1))  # as DataLad keeps them
    link.symlink_to(annexed)
    assert len(load_images(folder, voxels).units) == 2
    (folder / "sub-1").rename(folder / "kept")
    (folder / "sub-1").symlink_to(folder)
    assert load_images(folder, voxels).people == ("sub-2",)


def test_load_images_odd_file_names_are_ignored(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)]})
    func = folder / "sub-1/func"
    for name in ("._sub-1_task-rest_bold.nii.gz", "-_bold.json", "sub-1_\udcff.json", "_.tsv", "ses-"):
        (func / name).write_bytes(b"junk")
    (folder / "sub-").mkdir()
    (folder / "sub-9").write_text("a file")
    assert load_images(folder, voxels).people == ("sub-1",)


def test_load_images_plain_folder_has_one_image_per_person(tmp_path: Path, voxels: Masker) -> None:
    folder = tmp_path / "plain"
    motion = np.random.default_rng(0).normal(size=40)
    for at, name in enumerate(("ann.nii", "bob_2.nii.gz")):
        save(folder / name, volumes(at) + motion, None)
    (folder / "readme.txt").write_text("hello")
    sidecar(folder / "ann.json", RepetitionTime=2)
    sidecar(folder / "bob_2.json", RepetitionTime=0.8)
    for name in ("ann", "bob_2"):
        table(folder / f"{name}.tsv", {"x": motion})
    found = load_images(folder, voxels, Preprocessing(("x",)))
    assert found.people == ("ann", "bob_2")
    assert found.units.runs is not None
    assert found.units.runs.seconds.tolist() == [2, 0.8]
    for rows in _people(found).values():
        np.testing.assert_allclose((motion - motion.mean()) @ rows, 0, atol=1e-8)
    with pytest.raises(BadData, match="task"):
        load_images(folder, voxels, selection=Selection(task="rest"))
    save(folder / "ann.nii.gz", volumes(1))
    with pytest.raises(BadData) as refused:
        load_images(folder, voxels)
    assert refused.value.detail == "ann"


def test_bids_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="nowhere"):
        find_recordings(tmp_path / "nowhere")
    with pytest.raises(BadData, match=r"\.nii\.gz"):
        find_recordings(tmp_path)


def test_load_images_bad_header_is_refused_before_volumes_are_read(tmp_path: Path, voxels: Masker) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)], "sub-2": [("task-rest", 3)]})
    steps: list[int] = []
    with pytest.raises(BadData) as refused:
        load_images(folder, voxels, on_scan=lambda done, planned: steps.append(done))
    assert re.search(r"sub-2.*\b3\b", refused.value.detail)  # volumes
    assert steps == []


def test_bids_more_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bids(tmp_path / "site", {"sub-1": [("task-rest", 12)]})
    voxels = Masker.from_array(mask(), AFFINE, "mask")

    def full(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(BadData) as refused:
        load_images(folder, voxels)
    assert "GB" in refused.value.detail


def test_find_recordings_one_person_under_several_names_is_refused(tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    for name in ("sub-01_ses-1_task-rest_bold", "sub-01_ses-2_task-rest_bold"):
        save(flat / f"{name}.nii.gz", volumes(1))
    with pytest.raises(BadData, match="BIDS"):
        find_recordings(flat)
    for pair in (("sub-01", "sub-1"), ("sub-A", "sub-a")):
        with pytest.raises(BadData, match=r"participants\.tsv"):
            find_recordings(bids(tmp_path / "-".join(pair), {name: [("task-rest", 12)] for name in pair}))
    linked = tmp_path / "linked"
    first = save(linked / "ann.nii.gz", volumes(2))
    (linked / "bob.nii.gz").hardlink_to(first)
    with pytest.raises(BadData) as refused:
        find_recordings(linked)
    assert {"ann", "bob"} <= set(re.findall(r"\w+", refused.value.detail))
