"""capeDJICA on fMRI in the layout of ABIDE: a small made-up file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum.errors import BadData
from zerosum.papers.figures import abide, find


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Recordings of 40 people: heavy-tailed sources, mixed alike, as integers."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(abide.COMPONENTS + 4, abide.COMPONENTS + 4))
    volumes = mixing @ rng.laplace(size=(abide.COMPONENTS + 4, 40 * 30))
    quantised = np.clip(np.round(volumes * 8), -127, 127).astype(np.int8)
    np.savez(tmp_path / abide.FILE, q=quantised, offsets=np.arange(0, 40 * 30 + 1, 30))
    return tmp_path


def test_abide_figure_has_the_starting_point_and_the_exact_cost(folder: Path, tmp_path: Path) -> None:
    sites = abide.load(folder, 40)
    pooled = np.concatenate(sites)
    assert np.allclose(pooled.T @ pooled / len(pooled), np.eye(abide.COMPONENTS), atol=1e-3)
    rows = find("ica-abide").run(tmp_path / "out", None, folder, seeds=1)
    assert rows[0]["method"] == "start, W = I"
    assert 0 < float(rows[0]["gain_index"]) < 1
    private = [row for row in rows if row["method"] == "capeDJICA"]
    assert all(float(row["exact_epsilon"]) > float(row["epsilon"]) for row in private)
    assert (tmp_path / "out" / "ica-abide.png").exists()


def test_abide_without_its_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="--folder"):
        abide.load(None, 40)
    with pytest.raises(BadData, match="abide"):
        abide.load(tmp_path, 40)
