"""An ICA study from its file to maps: three small BIDS sites with planted components, and public bases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.brain_images import SHAPE, atlas, mask, nib, participants, save
from zerosum import Study
from zerosum.algorithms import ICAProgram
from zerosum.algorithms.metrics import matched
from zerosum.data.bases import cosines
from zerosum.data.fmri import garch_sources
from zerosum.data.masker import Masker
from zerosum.errors import BadData, BadInput, BadParameter, BadStudy
from zerosum.forecast import Advisor, Assumptions, read_like

Floats = NDArray[np.float64]
CLOCKS = {"north": 2.0, "east": 1.5, "south": 2.0}
BAND = "band = [0.01, 0.2]"

STUDY = """
name = "components"
algorithm = "ica"
{basis}

[parameters]
n_components = 3
{parameters}

[privacy]
epsilon = 20.0
delta = 1e-5
random_state = 1

[imaging]
{imaging}
"""
SITE = """
[[sites]]
name = "{name}"
data = "{name}"
policy = {{ population = "{name}", minimum_units = 3, data = "synthetic", epsilon = 1e9 }}
"""
MASK = 'mask = "grid/mask.nii.gz"\nstandardise = false'


def planted() -> Floats:
    """Three smooth maps on the whole grid, (x, y, z, 3)."""
    x, y, z = np.meshgrid(*(np.arange(n) for n in SHAPE), indexing="ij")
    bumps = [(1.0, 1.5, 1.0), (3.0, 2.5, 2.0), (1.5, 4.0, 1.5)]
    return np.stack([np.exp(-((x - a) ** 2 + (y - b) ** 2 + (z - c) ** 2) / 2) for a, b, c in bumps], axis=3)


def courses(kind: str, people: int, length: int, seconds: float, seed: int) -> Any:
    """Sources that change in size, or that differ in how fast they move."""
    rng = np.random.default_rng(seed)
    if kind == "volatile":
        return garch_sources(people, 3, length, rng=rng)
    kept = [np.exp(-0.5 * ((np.fft.rfftfreq(length, seconds) - f) / 0.02) ** 2) for f in (0.03, 0.09, 0.16)]
    waves = np.fft.irfft(np.fft.rfft(rng.normal(size=(people, 3, length)), axis=2) * np.array(kept), length, axis=2)
    return np.swapaxes(waves / waves.std(axis=2, keepdims=True), 1, 2)


def write(folder: Path, imaging: str = MASK, parameters: str = "", basis: str = "", kind: str | None = None) -> Path:
    """A study file with its grid; with `kind`, also the images of eight people at each site."""
    save(folder / "grid" / "mask.nii.gz", mask())
    save(folder / "grid" / "atlas.nii.gz", atlas())
    for at, (site, seconds) in enumerate(CLOCKS.items() if kind else ()):
        names = [f"sub-{person}" for person in range(8)]
        participants(folder / site, names)
        rng = np.random.default_rng(100 + at)
        for name, own in zip(names, courses(kind or "", 8, 100, seconds, at), strict=True):
            values = 100 + 10 * planted() @ own.T + rng.normal(size=(*SHAPE, len(own)))
            save(folder / site / name / "func" / f"{name}_task-rest_bold.nii.gz", values, seconds)
    path = folder / "study.toml"
    text = STUDY.format(imaging=imaging, parameters=parameters, basis=basis)
    path.write_text(text + "".join(SITE.format(name=name) for name in CLOCKS))
    return path


def command(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "ZEROSUM_STATE": str(folder / "state")}
    line = [sys.executable, "-c", "from zerosum.cli import main; main()", *arguments]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(path: Path) -> ICAProgram:
    algorithm = Study.load(path).build_algorithm()
    assert isinstance(algorithm, ICAProgram)
    return algorithm


# ---- from the file to the maps ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "imaging", "solver"),
    [("volatile", MASK, "fixed-point"), ("rhythmic", f"{MASK}\n{BAND}", "second-order")],
)
def test_cli_ica_study_writes_maps_and_report(tmp_path: Path, kind: str, imaging: str, solver: str) -> None:
    path = write(tmp_path, imaging, kind=kind)
    assert solver in command(tmp_path, "plan", str(path))
    record = json.loads(command(tmp_path, "run", str(path), "--out", str(tmp_path / "out"), "--json"))
    assert record["maps"] == ["maps.nii.gz", "maps.png", "maps.json", "dataset_description.json"]
    found = nib.load(tmp_path / "out" / "maps.nii.gz").get_fdata()
    assert found.shape == (*SHAPE, 3)
    inside = mask() > 0
    assert np.all(matched(found[inside].T, planted()[inside].T).correlations > 0.9)
    assert (tmp_path / "out" / "maps.png").stat().st_size > 1000
    assert np.all(np.array(record["estimate"]["stability"]) > 0.9)


def test_ica_study_as_many_components_as_regions_writes_maps(tmp_path: Path) -> None:
    path = write(tmp_path, 'atlas = "grid/atlas.nii.gz"', kind="volatile")
    study = Study.load(path)
    written = study.write(study.run(), tmp_path / "out")
    assert [each.name for each in written] == ["maps.nii.gz", "maps.png", "maps.json", "dataset_description.json"]


def test_ica_study_in_docs_can_be_planned(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ica.md").read_text()
    (tmp_path / "study.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    regions = np.zeros((20, 6, 4), np.int16)
    regions[:, 1:4, 1:3] = np.arange(1, 21)[:, None, None]
    save(tmp_path / "grid" / "atlas.nii.gz", regions)
    releases = Study.load(tmp_path / "study.toml").plan().releases
    assert [line.statistic for line in releases] == ["scatter"] * 2 + ["band_scatter"]


# ---- what the file hands on ------------------------------------------------------------------------------------


def test_ica_study_band_and_seconds_follow_imaging_entries(tmp_path: Path) -> None:
    assert built(write(tmp_path)).chosen == "fixed-point"
    by_band = built(write(tmp_path, f"{MASK}\n{BAND}"))
    assert (by_band.band, by_band.seconds, by_band.chosen) == ((0.01, 0.2), None, "second-order")
    forced = built(write(tmp_path, f"{MASK}\nseconds = 2.0"))
    assert (forced.band, forced.seconds, forced.chosen) == (None, 2.0, "second-order")
    told = built(write(tmp_path, f"{MASK}\n{BAND}\nseconds = 2.0", "band = [0.02, 0.1]\nseconds = 1.0"))
    assert (told.band, told.seconds) == ((0.02, 0.1), 1.0)
    assert built(write(tmp_path, f"{MASK}\n{BAND}", 'solver = "fixed-point"')).chosen == "fixed-point"


def test_pca_study_with_band_gets_no_band(tmp_path: Path) -> None:
    path = write(tmp_path, f"{MASK}\n{BAND}\nseconds = 2.0", "clip = 1.0")
    path.write_text(path.read_text().replace('"ica"', '"pca"'))
    assert Study.load(path).build_algorithm().name == "pca"


def test_ica_study_basis_of_public_maps_contains_result(tmp_path: Path) -> None:
    path = write(tmp_path, basis='basis = "grid/networks.nii.gz"', kind="volatile")
    extra = np.random.default_rng(0).normal(size=(*SHAPE, 2))
    save(tmp_path / "grid" / "networks.nii.gz", np.concatenate([planted(), extra], axis=3))
    study = Study.load(path)
    assert study.plan().releases[0].size == 5 * 6 // 2
    maps = study.run().estimate["maps"].value
    assert study.public_basis is not None
    inside = np.linalg.qr(study.public_basis)[0]
    assert np.allclose(inside @ (inside.T @ maps.T), maps.T)
    assert np.all(matched(maps, planted()[mask() > 0].T).correlations > 0.9)


def test_ica_study_basis_for_regions_and_from_array_is_loaded(tmp_path: Path) -> None:
    regions = 'atlas = "grid/atlas.nii.gz"'
    save(tmp_path / "grid" / "networks.nii", planted())
    by_region = built(write(tmp_path, regions, basis='basis = "grid/networks.nii"')).basis
    assert by_region is not None
    assert np.allclose(by_region[1], planted()[atlas() == 5].mean(axis=0))
    np.save(tmp_path / "templates.npy", np.eye(3))
    assert built(write(tmp_path, regions, basis='basis = "templates.npy"')).width == 3


def test_ica_study_basis_for_tables_is_loaded(tmp_path: Path) -> None:
    path = write(tmp_path, basis='basis = "templates.npy"', parameters='columns = ["a", "b", "c", "d"]')
    np.save(tmp_path / "templates.npy", np.eye(4)[:, :3])
    path.write_text(path.read_text().replace(f"[imaging]\n{MASK}\n", '[unit]\nkind = "person"\n'))
    assert built(path).width == 3


def test_ica_study_frequencies_give_cosine_basis(tmp_path: Path) -> None:
    algorithm = built(write(tmp_path, f"{MASK}\nfrequencies = 2"))
    assert algorithm.width == 8
    assert built(write(tmp_path, 'atlas = "grid/atlas.nii.gz"\nfrequencies = 2')).width == 3  # three regions
    assert built(write(tmp_path, f"{MASK}\nfrequencies = 9")).width == 24  # as many as voxels


def test_cosines_are_independent_and_span_low_frequencies() -> None:
    inside = np.random.default_rng(1).random((9, 8, 7)) < 0.7
    space = Masker.from_array(inside, np.eye(4), "mask")
    basis = cosines(space, 3)
    assert basis.shape == (int(inside.sum()), 27)
    assert np.allclose(np.linalg.norm(basis, axis=0), 1)
    assert np.linalg.cond(basis) < 1e3
    x, y = np.nonzero(inside)[:2]
    wave = np.cos(np.pi * 2 * (x + 0.5) / 9) * np.cos(np.pi * (y + 0.5) / 8)
    assert np.linalg.norm(wave - basis @ np.linalg.lstsq(basis, wave)[0]) < 1e-9
    thin = Masker.from_array((np.arange(9) < 2)[:, None, None] & np.ones((9, 8, 7), bool), np.eye(4), "mask")
    assert cosines(thin, 3).shape[1] == 2 * 3 * 3  # along x two voxels leave two of three
    with pytest.raises(BadParameter, match="frequencies"):
        cosines(space, 0)


# ---- what is refused -------------------------------------------------------------------------------------------


def test_ica_study_with_two_bases_is_refused(tmp_path: Path) -> None:
    for change in (
        {"basis": 'basis = "a.npy"', "imaging": f"{MASK}\nfrequencies = 2"},
        {"basis": 'basis = "a.npy"', "parameters": "basis = [[1.0]]"},
        {"imaging": f"{MASK}\nfrequencies = 2", "parameters": "basis = [[1.0]]"},
    ):
        with pytest.raises(BadStudy, match="basis"):
            Study.load(write(tmp_path, **change))
    with pytest.raises(BadStudy, match=r"imaging\.frequencies"):
        Study.load(write(tmp_path, f"{MASK}\nfrequencies = 0"))


def test_pca_study_with_basis_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, f"{MASK}\nfrequencies = 2", "clip = 1.0")
    path.write_text(path.read_text().replace('"ica"', '"pca"'))
    with pytest.raises(BadStudy, match="basis"):
        Study.load(path).plan()


@pytest.mark.parametrize(
    ("name", "error", "word"),
    [
        ("nowhere.npy", BadData, "nowhere.npy"),
        ("nowhere.nii", BadData, "nowhere.nii"),
        ("basis.csv", BadData, "basis.csv"),
        ("short.npy", BadParameter, r"\(7, 3\)"),
        ("flat.npy", BadData, r"\(24,\)"),
        ("holes.npy", BadData, "finite"),
        ("text.npy", BadData, "text.npy"),
        ("grid/mask.nii.gz", BadData, "mask.nii.gz"),
        ("other.nii", BadData, r"\(5, 6, 4\)"),
        ("twice.npy", BadParameter, "independent"),
    ],
)
def test_ica_study_bad_basis_file_is_refused(tmp_path: Path, name: str, error: type[BadInput], word: str) -> None:
    path = write(tmp_path, basis=f'basis = "{name}"')
    (tmp_path / "basis.csv").write_text("1,2\n")
    (tmp_path / "text.npy").write_text("no array")
    for stem, value in {
        "short": np.ones((7, 3)),
        "flat": np.ones(24),
        "holes": np.full((24, 3), np.nan),
        "twice": np.ones((24, 4)),
    }.items():
        np.save(tmp_path / f"{stem}.npy", value)
    save(tmp_path / "other.nii", np.ones((4, 4, 4, 3)))
    with pytest.raises(error, match=word):
        Study.load(path).plan()


def test_ica_study_basis_of_images_without_grid_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, basis='basis = "grid/mask.nii.gz"', parameters='columns = ["a", "b", "c", "d"]')
    path.write_text(path.read_text().replace(f"[imaging]\n{MASK}\n", '[unit]\nkind = "person"\n'))
    with pytest.raises(BadData, match="imaging"):
        Study.load(path).plan()


# ---- before anything runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("imaging", [MASK, f"{MASK}\n{BAND}"])
def test_ica_study_forecast_needs_grid_only(tmp_path: Path, imaging: str) -> None:
    study = Study.load(write(tmp_path, imaging, 'solver = "auto"'))  # and there are no images
    advisor = Advisor(study, Assumptions(rows=40), people=40)
    found = advisor.at(advisor.own, 8)
    assert [line.label for line in found.lines] == ["component 1", "component 2", "component 3"]
    assert 0 <= (found.without or 0) <= (found.expected or 0) <= 1
    assert {"40", "3"} <= set(advisor.description.split())  # rows of a recording, components


def test_ica_study_forecast_draws_from_public_images(tmp_path: Path) -> None:
    study = Study.load(write(tmp_path, kind="volatile"))
    like = read_like(study, tmp_path / next(iter(CLOCKS)))  # which its policy calls synthetic
    assert like.runs is not None
    advisor = Advisor(study, Assumptions(like=like), people=40)
    assert "8" in advisor.description.split()  # the people of the file
    assert 0 <= (advisor.at(advisor.own, 8).expected or 0) <= 1
