"""An imaging study from its file to maps: two small BIDS sites, a public mask or atlas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.brain_images import AFFINE, SHAPE, atlas, mask, nib, participants, save, table, volumes
from zerosum import Study
from zerosum.errors import BadData, BadStudy
from zerosum.protocol.progress import Progress
from zerosum.report.record import privacy_report

STUDY = """
name = "brains"
algorithm = "pca"

[parameters]
n_components = 2
per_recording = "standardise"
centering = "none"
clip = 1.0

[unit]
kind = "person"

[privacy]
epsilon = {epsilon}
delta = 1e-5
random_state = 1

[imaging]
{imaging}

[[sites]]
name = "north"
data = "north"
policy = {{ population = "north", minimum_units = 3, data = "synthetic", epsilon = 1e9 }}

[[sites]]
name = "south"
data = "south"
policy = {{ population = "south", minimum_units = 3, data = "synthetic", epsilon = 1e9 }}
"""
IMAGING = 'mask = "grid/mask.nii.gz"\ntask = "rest"'

MAPS = ["components.nii.gz", "components.png", "mean.nii.gz", "mean.png"]
TOLD = ["components.json", "mean.json", "dataset_description.json"]


def _pattern() -> Any:
    """Two parts of the brain that rise and fall together, against each other."""
    pattern = np.zeros(SHAPE)
    pattern[1:4, 1:3], pattern[1:4, 3:5] = 1, -1
    return pattern


def _study(folder: Path, imaging: str = IMAGING, epsilon: float = 30.0, text: str = STUDY) -> Path:
    save(folder / "grid" / "mask.nii.gz", mask())
    save(folder / "grid" / "atlas.nii.gz", atlas())
    for site, people in (("north", 4), ("south", 5)):
        names = [f"sub-{at}" for at in range(people)]
        participants(folder / site, names)
        for at, name in enumerate(names):
            for run in range(1, 2 + at % 2):
                seed = 100 * people + 10 * at + run
                wave = 30 * np.random.default_rng(seed).normal(size=20 + at)
                stem = folder / site / name / "func" / f"{name}_task-rest_run-{run}"
                save(stem.with_name(f"{stem.name}_bold.nii.gz"), volumes(seed, 20 + at) + _pattern()[..., None] * wave)
                rest = np.random.default_rng(seed).normal(size=20 + at)
                table(stem.with_name(f"{stem.name}_desc-confounds_timeseries.tsv"), {"rot_x": rest})
    path = folder / "study.toml"
    path.write_text(text.format(imaging=imaging, epsilon=epsilon))
    return path


@pytest.mark.parametrize("kind", ["mask", "atlas"])
def test_imaging_study_of_two_sites_finds_joint_pattern(tmp_path: Path, kind: str) -> None:
    study = Study.load(_study(tmp_path, f'{kind} = "grid/{kind}.nii.gz"\ndetrend = true'))
    seen: list[Progress] = []
    result = study.run(seen.append)
    read = [(each.site, each.done, each.planned) for each in seen if each.stage == "loading"]
    assert read == [*(("north", at, 6) for at in range(1, 7)), *(("south", at, 7) for at in range(1, 8))]
    assert study.space is not None
    expected = study.space.transform(_pattern())
    found = result.estimate["components"]
    assert found.shape == (2, len(study.space.columns))
    assert abs(found[0] @ expected) / np.linalg.norm(expected) > 0.95
    written = study.write(result, tmp_path / "out")
    assert [path.name for path in written] == [*MAPS, *TOLD]
    told = json.loads((tmp_path / "out" / "components.json").read_text())
    assert (told["Algorithm"], told["Epsilon"]) == ("pca", study.privacy.epsilon)
    assert told["Preprocessing"]["detrend"] is True
    assert told["Grid"] == {"Kind": kind, "SHA256": study.plan().question.files[kind]}  # as plans and ledgers say it
    described = json.loads((tmp_path / "out" / "dataset_description.json").read_text())
    assert (described["DatasetType"], described["GeneratedBy"][0]["Name"]) == ("derivative", "zerosum")
    values = nib.load(written[0]).get_fdata()[..., 0]
    assert abs(np.corrcoef(values[mask() > 0], _pattern()[mask() > 0])[0, 1]) > 0.95


def test_imaging_study_people_are_units_and_runs_keep_clock(tmp_path: Path) -> None:
    imaging = IMAGING + '\nconfounds = ["rot_x"]\nband = [0.01, 0.2]\nsmoothing_mm = 4.0\nseconds = 1.5'
    north, south = Study.load(_study(tmp_path, imaging)).load_sites()
    assert (len(north.units), len(south.units)) == (4, 5)
    assert north.units.runs is not None
    assert north.units.runs.seconds.tolist() == [1.5] * 6
    assert north.units.rows.shape[1] == 24


def test_imaging_study_plan_reads_grid_only(tmp_path: Path) -> None:
    path = _study(tmp_path)
    for image in [*tmp_path.glob("north/**/*.nii.gz"), *tmp_path.glob("south/**/*.nii.gz")]:
        image.unlink()
    report = privacy_report(Study.load(path).plan())
    assert report.releases[0].size == 24 * 25 // 2
    (tmp_path / "grid" / "mask.nii.gz").unlink()
    with pytest.raises(BadData, match=r"mask\.nii\.gz"):
        Study.load(path).plan()


@pytest.mark.parametrize(
    ("imaging", "word"),
    [
        ("", "mask"),
        ('mask = "a.nii"\natlas = "b.nii"', "atlas"),
        ('mask = "a.nii"\nband = [0.1, 0.01]', r"\[0.1, 0.01\]"),
        ('mask = "a.nii"\nband = [0.1]', "imaging.band"),
        ('mask = "a.nii"\nseconds = 0.0', "seconds"),
        ('mask = "a.nii"\nsmooth = 6', "imaging.smooth"),
    ],
)
def test_imaging_study_bad_entry_is_refused(tmp_path: Path, imaging: str, word: str) -> None:
    with pytest.raises(BadStudy, match=word):
        Study.load(_study(tmp_path, imaging))


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("n_components = 2", 'n_components = 2\ncolumns = ["v0001"]', "columns"),
        ('kind = "person"', 'kind = "record"', "unit"),
        ('kind = "person"', 'column = "who"', "unit"),
    ],
)
def test_imaging_study_entry_given_by_images_is_refused(tmp_path: Path, old: str, new: str, word: str) -> None:
    with pytest.raises(BadStudy, match=word):
        Study.load(_study(tmp_path, text=STUDY.replace(old, new)))


def test_imaging_study_with_categories_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "grid" / "one.nii", np.ones((1, 1, 1), np.uint8), affine=AFFINE)
    text = STUDY.replace('algorithm = "pca"', 'algorithm = "histogram"')
    lines = 'n_components = 2\nper_recording = "standardise"\ncentering = "none"\nclip = 1.0'
    path = _study(tmp_path, 'mask = "grid/one.nii"', text=text.replace(lines, 'values = ["a", "b"]'))
    with pytest.raises(BadStudy, match="categories"):
        Study.load(path).plan()


def test_imaging_study_in_docs_can_be_planned(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "imaging.md").read_text()
    (tmp_path / "study.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    regions = np.zeros((20, 6, 4), np.int16)
    regions[:, 1:4, 1:3] = np.arange(1, 21)[:, None, None]
    save(tmp_path / "grid" / "atlas.nii.gz", regions)
    study = Study.load(tmp_path / "study.toml")
    assert privacy_report(study.plan()).releases[0].size == 20 * 21 // 2
    assert study.imaging is not None
    documented = page.split("## The grid")[1].split("## What is refused")[0]
    assert all(f"`{name}`" in documented for name in type(study.imaging).model_fields)


def test_imaging_study_refusal_names_site_only(tmp_path: Path) -> None:
    path = _study(tmp_path)
    save(tmp_path / "south/sub-1/func/sub-1_task-rest_run-1_bold.nii.gz", volumes(1, 3))
    with pytest.raises(BadData, match=r"'south'.*\b10\b") as refused:
        Study.load(path).load_sites()
    assert "sub-1_task-rest_run-1_bold.nii.gz" in refused.value.detail
    assert refused.value.detail.endswith(" 3")
    assert "sub-1" not in str(refused.value)


def test_imaging_libraries_are_not_loaded_by_import_of_study() -> None:
    code = "import sys, zerosum.study; sys.exit(bool({'nibabel', 'nilearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cli_imaging_study_writes_maps_and_report(tmp_path: Path) -> None:
    path = _study(tmp_path, 'atlas = "grid/atlas.nii.gz"')
    command = [sys.executable, "-c", "from zerosum.cli import main; main()"]
    environment = {**os.environ, "ZEROSUM_STATE": str(tmp_path / "state")}
    for arguments in (["plan", str(path), "--json"], ["run", str(path), "--out", str(tmp_path / "out"), "--json"]):
        done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["maps"] == [*MAPS, *TOLD]
    names = [*MAPS, *TOLD, "estimate.npz", "plan.json", "report.html", "report.json", "result.json"]
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == sorted(names)
