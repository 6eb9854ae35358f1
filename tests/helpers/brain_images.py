"""Small brains for tests: NIfTI files and BIDS folders with real headers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import nibabel
import numpy as np
from numpy.typing import NDArray

from zerosum.data.imaging import Masker, Preprocessing
from zerosum.data.scans import open_scan, read_scan

Floats = NDArray[np.float64]
nib: Any = nibabel  # typed in part only

SHAPE = (5, 6, 4)
AFFINE = np.array([[-3.0, 0, 0, 20], [0, 3, 0, -30], [0, 0, 4, -10], [0, 0, 0, 1]])


def mask() -> NDArray[np.uint8]:
    inside = np.zeros(SHAPE, np.uint8)
    inside[1:4, 1:5, 1:3] = 1
    return inside


def atlas() -> NDArray[np.int16]:
    """Regions 2, 5 and 9."""
    regions = np.zeros(SHAPE, np.int16)
    regions[1:4, 1:3, 1:3] = 5
    regions[1:4, 3:5, 1] = 2
    regions[1:4, 3:5, 2] = 9
    return regions


def volumes(seed: int, length: int = 40, shape: Sequence[int] = SHAPE) -> Floats:
    return np.random.default_rng(seed).normal(100, 10, size=(*shape, length))


def save(
    path: Path, values: NDArray[Any], seconds: float | None = 2.0, affine: Floats = AFFINE, unit: str = "sec"
) -> Path:
    """Write one image; `seconds` None: the header does not say in which unit its clock is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(values, affine)
    if seconds is not None and values.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], seconds))
        image.header.set_xyzt_units("mm", unit)
    nib.save(image, path)
    return path


def participants(folder: Path, names: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["participant_id\tage", *(f"{name}\t{40 + at}" for at, name in enumerate(names))]
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")


def sidecar(path: Path, **record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def table(path: Path, columns: Mapping[str, Iterable[Any]]) -> Path:
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path.write_text("\n".join("\t".join(str(cell) for cell in row) for row in rows) + "\n")
    return path


def bids(folder: Path, runs: dict[str, Sequence[tuple[str, int]]], listed: Sequence[str] | None = None) -> Path:
    """A raw data set: for each person the (entities after the person, volumes) of its runs, with seeds in order."""
    participants(folder, list(runs) if listed is None else listed)
    seed = sum(map(ord, folder.name))
    for person, recordings in runs.items():
        for entities, length in recordings:
            seed += 1
            session = next((part for part in entities.split("_") if part.startswith("ses-")), "")
            name = f"{person}_{entities}_bold.nii.gz"
            save(folder / person / session / "func" / name, volumes(seed, length))
    return folder


def grid(kind: Literal["mask", "atlas"]) -> Masker:
    return Masker.from_array(mask() if kind == "mask" else atlas(), AFFINE, kind)


RAW = Preprocessing(standardise=False)


def read(path: Path, space: Masker, preprocessing: Preprocessing = RAW, **files: Any) -> Floats:
    return read_scan(open_scan(path, space, preprocessing, **files), space, preprocessing)
