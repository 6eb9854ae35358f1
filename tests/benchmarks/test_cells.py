"""Cells of a table over processes: nothing is computed twice, and a cut-off line loses nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import cells


def squared(cell: cells.Cell) -> tuple[cells.Cell, list[float]]:
    return cell, [float(cell[1]) ** 2, float(os.environ["OMP_NUM_THREADS"])]


def refused(cell: cells.Cell) -> tuple[cells.Cell, list[float]]:
    raise AssertionError(f"{cell} was known")


def test_cells_interrupted_run_resumes(tmp_path: Path) -> None:
    kept = tmp_path / "cells.jsonl"
    wanted: list[cells.Cell] = [("square", at, 0.5) for at in range(3)]
    first = cells.computed(wanted[:2], squared, 2, kept)
    assert first == {("square", 0, 0.5): [0.0, 1.0], ("square", 1, 0.5): [1.0, 1.0]}
    kept.write_text(kept.read_text()[:-5])
    assert len(cells.known(kept)) == 1
    assert cells.computed(wanted, squared, 2, kept)[("square", 2, 0.5)] == [4.0, 1.0]
    assert len(cells.known(kept)) == 3
    assert cells.computed(wanted, refused, 1, kept) == cells.known(kept)
