"""capeDJICA on fMRI in the layout of ABIDE: a small made-up file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum.errors import BadData
from zerosum.papers.figures import abide, find
from zerosum.papers.figures.experiment import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of all people: heavy-tailed sources, mixed alike, as integers. Every third is twice as long."""
    rng = np.random.default_rng(0)
    lengths = np.where(np.arange(abide.PEOPLE) % 3 == 0, 8, 4)
    mixing = rng.normal(size=(abide.COMPONENTS + 4, abide.COMPONENTS + 4))
    volumes = mixing @ rng.laplace(size=(abide.COMPONENTS + 4, lengths.sum()))
    quantised = np.clip(np.round(volumes * 8), -127, 127).astype(np.int8)
    path = tmp_path_factory.mktemp("abide")
    np.savez(path / abide.FILE, q=quantised, offsets=np.cumsum([0, *lengths]))
    return path


def test_abide_volumes_are_white_and_belong_to_people_of_four_equal_sites(folder: Path) -> None:
    sites = abide.load(folder, 400)
    assert [len(site) for site in sites] == [100] * abide.SITES
    pooled = np.concatenate([site.rows for site in sites])
    assert np.allclose(pooled.T @ pooled / len(pooled), np.eye(abide.COMPONENTS), atol=1e-3)
    sizes = [np.diff(site.offsets) for site in sites if site.offsets is not None]
    assert {int(size) for each in sizes for size in each} == {4, 8}


@pytest.mark.parametrize("name", [experiment.name for experiment in abide.EXPERIMENTS])
def test_abide_figure_has_the_starting_point_and_the_exact_cost(name: str, folder: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    rows = find(name).run(tmp_path, None, folder, seeds=1, on_step=lambda *step: steps.append(step))
    assert steps == [(done, len(rows) - 1) for done in range(len(rows))]
    assert rows[0]["method"] == "start, W = I"
    assert 0 < float(rows[0]["gain_index"]) < 1
    private = [row for row in rows if row["method"] == "capeDJICA"]
    assert all(float(row["exact_epsilon"]) > float(row["epsilon"]) for row in private)
    swept = {"subjects": "people", "delta": "delta"}.get(name.split("-")[2] if name.count("-") > 1 else "", "epsilon")
    assert len({row[swept] for row in private}) == 3
    assert {row["people"] for row in private} == {
        "ica-abide": {772},
        "ica-abide-256": {256},
        "ica-abide-subjects": {64, 256, 772},
        "ica-abide-subjects-2": {64, 256, 772},
        "ica-abide-delta": {772},
    }[name]
    assert (tmp_path / f"{name}.png").exists()


def test_abide_figure_delta_enters_the_noise_of_a_round(folder: Path) -> None:
    rows = [row for row in abide.carry("delta", Run("abide", folder, seeds=1)) if row["method"] == "capeDJICA"]
    costs = {float(row["delta"]): float(row["exact_epsilon"]) for row in rows if row["step"] == "step 0.3"}
    # More noise a round at a smaller delta, whose total is at that smaller delta.
    assert sorted(costs) == [1e-7, 1e-5, 1e-3]
    assert len(set(costs.values())) == 3


def test_abide_without_its_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="--folder"):
        abide.load(None, 40)
    with pytest.raises(BadData, match="abide"):
        abide.load(tmp_path, 40)
