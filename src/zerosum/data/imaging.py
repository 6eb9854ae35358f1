"""One site's brain images, from a folder into `Units`: a person is a unit, each of its runs a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.bids import Selection, find_recordings
from zerosum.data.masker import Masker
from zerosum.data.scans import MINIMUM_VOLUMES, Preprocessing, Scan, open_scan, read_scan
from zerosum.errors import BadData
from zerosum.kernel.units import Runs, Units

__all__ = ["ImagingData", "Masker", "OnScan", "Preprocessing", "Selection", "load_images"]

OnScan = Callable[[int, int], None]  # how many runs are read, of how many


@dataclass(frozen=True, eq=False)
class ImagingData:
    """A site's units, the names of their columns, whose they are in order, and what was left out."""

    units: Units
    columns: tuple[str, ...]
    people: tuple[str, ...]
    notes: tuple[str, ...]


def load_images(
    folder: Path,
    space: Masker,
    preprocessing: Preprocessing | None = None,
    selection: Selection | None = None,
    *,
    on_scan: OnScan | None = None,
) -> ImagingData:
    """Load one site's images, or raise `BadData`.

    Parameters
    ----------
    folder
        A BIDS data set (participants.tsv and sub-*/[ses-*/]func/*_bold.nii[.gz], raw or derived), or plain .nii and
        .nii.gz files, one a person.
    space
        The study's public grid: what becomes a column.
    preprocessing
        What is done to each run by itself; by default its columns are standardised.
    selection
        Which files of a BIDS data set are meant.
    on_scan
        Called after each run with how many are done, of how many.

    Returns
    -------
    ImagingData
        `units.rows` has shape (volumes of all runs, columns). All headers are checked before the first volume is read,
        and one array is filled run after run: memory is that array and about five times one run's rows.

    Examples
    --------
    >>> import nibabel, tempfile
    >>> space = Masker.from_array(np.ones((2, 2, 1)), np.eye(4), "mask")
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for person in ("ann", "bob"):
    ...         run = nibabel.Nifti1Image(np.random.default_rng(0).normal(size=(2, 2, 1, 12)), np.eye(4))
    ...         nibabel.save(run, Path(name, f"{person}.nii.gz"))
    ...     found = load_images(Path(name), space, Preprocessing(seconds=2.0))
    >>> found.people, found.units.rows.shape, found.units.runs.seconds.tolist()
    (('ann', 'bob'), (24, 4), [2.0, 2.0])
    """
    preprocessing = preprocessing or Preprocessing()
    found = find_recordings(folder, selection)
    with _of(folder):
        scans = [
            [open_scan(run.path, space, preprocessing, sidecars=run.sidecars, confounds=run.confounds) for run in own]
            for own in found.people.values()
        ]
    people, scans, notes = _still(list(found.people), scans)
    if not scans:
        raise BadData(f"{folder}: nobody has a run with {MINIMUM_VOLUMES} volumes that moved less than the threshold")
    flat = [scan for person in scans for scan in person]
    begins = np.cumsum([0, *(scan.volumes for scan in flat)]).astype(np.int64)
    firsts = np.cumsum([0, *(len(person) for person in scans)])
    rows = _array(folder, int(begins[-1]), len(space.columns))
    for at, scan in enumerate(flat):
        with _of(folder):
            read_scan(scan, space, preprocessing, rows[begins[at] : begins[at + 1]])
        if on_scan is not None:
            on_scan(at + 1, len(flat))
    units = Units(rows, begins[firsts], Runs(begins, np.array([scan.seconds for scan in flat])))
    with _of(folder):
        units.check()
    return ImagingData(units, space.columns, tuple(people), (*found.notes, *notes))


def _still(people: list[str], scans: list[list[Scan]]) -> tuple[list[str], list[list[Scan]], list[str]]:
    """Without runs of which scrubbing leaves too little, and without those who have no other; a person's own movement
    decides about it alone."""
    left = [[scan for scan in own if scan.volumes >= MINIMUM_VOLUMES] for own in scans]
    runs = sum(len(own) for own in scans) - sum(len(own) for own in left)
    gone = [name for name, own in zip(people, left, strict=True) if not own]
    notes = [f"{runs} runs moved too much, of {len(gone)} people all: {', '.join(gone) or 'nobody'}"] if runs else []
    return [name for name in people if name not in gone], [own for own in left if own], notes


@contextmanager
def _of(folder: Path) -> Iterator[None]:
    """Errors name the folder, which a study names too, and leave out whose image it was."""
    try:
        yield
    except BadData as error:
        raise error.about(str(folder)) from None


def _array(folder: Path, rows: int, columns: int) -> Floats:
    try:
        return np.empty((rows, columns))
    except MemoryError:
        raise BadData(
            f"the images in {folder} come to more numbers than this machine's memory holds: use an atlas, or a coarser "
            "mask",
            detail=f"{8e-9 * rows * columns:.1f} GB",
        ) from None
