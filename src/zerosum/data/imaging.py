"""Brain images of one site: folder to `Units`, one unit per person and one recording per run.

The number of people is public, and the coordinator chooses the preprocessing. All people are therefore counted: a
person without a usable run is a unit of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zerosum.arrays import Floats
from zerosum.compute.units import Runs, Units
from zerosum.data.bids import Selection, find_recordings
from zerosum.data.masker import Masker
from zerosum.data.scans import MINIMUM_VOLUMES, Preprocessing, Scan, open_scan, read_scan
from zerosum.errors import BadData, ZerosumError

__all__ = ["ImagingData", "Masker", "OnScan", "Preprocessing", "Selection", "load_images"]

OnScan = Callable[[int, int], None]  # (runs read, runs in all)


@dataclass(frozen=True, eq=False)
class ImagingData:
    """Units of a site, column names, names of the people in order, and notes for the owner of the data."""

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
    faults: list[str] | None = None,
) -> ImagingData:
    """Load the images of one site.

    Parameters
    ----------
    folder : Path
        A BIDS data set (participants.tsv and sub-*/[ses-*/]func/*_bold.nii[.gz], raw or derivative), or plain .nii and
        .nii.gz files, one per person.
    space : Masker
        Public grid of the study, which defines the columns.
    preprocessing : Preprocessing, optional
        Processing of each run; by default its columns are standardised.
    selection : Selection, optional
        Which files of a BIDS data set are read.
    on_scan : callable, optional
        Called after each run with (done, total).
    faults : list of str, optional
        Receives faults of single runs. Such runs are left out or count as zeros, and raise no error: a refusal would
        reveal properties of a run to the coordinator.

    Returns
    -------
    ImagingData
        `units.rows` has shape (volumes of all runs, columns). All headers are checked before the first volume is read.
        One array is filled run by run, so memory is that array and about five times one run's rows.

    Raises
    ------
    BadData
        If the folder or an image cannot be used and `faults` is not given.

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
    recordings = find_recordings(folder, selection, faults)
    scans: list[list[Scan]] = []
    for own in recordings.people.values():
        scans.append([])
        for run in own:
            with _of(folder, faults):
                scans[-1].append(
                    open_scan(run.path, space, preprocessing, sidecars=run.sidecars, confounds=run.confounds)
                )
    people = list(recordings.people)
    scans, notes = _still(people, scans)
    if faults is None and not any(scans):
        raise BadData(f"{folder}: no person has a run with {MINIMUM_VOLUMES} volumes below the motion threshold")
    clock = next((scan.seconds for own in scans for scan in own), 1.0)
    # A person without a run gets a run of zeros that is long enough for every statistic. Its sampling interval has no
    # effect.
    lengths = [[scan.volumes for scan in own] or [MINIMUM_VOLUMES] for own in scans]
    clocks = [[scan.seconds for scan in own] or [clock] for own in scans]
    begins = np.cumsum([0, *(length for own in lengths for length in own)]).astype(np.int64)
    firsts = np.cumsum([0, *map(len, lengths)])
    rows = _array(folder, int(begins[-1]), len(space.columns))
    total, done = sum(map(len, scans)), 0
    for person, still in enumerate(scans):
        for at, scan in enumerate(still, int(firsts[person])):
            part, complete = rows[begins[at] : begins[at + 1]], False
            with _of(folder, faults):
                read_scan(scan, space, preprocessing, part)
                complete = True
            # A run that failed after the headers were checked counts as zeros: its length is already fixed.
            if not complete:
                part[:] = 0
            done += 1
            if on_scan is not None:
                on_scan(done, total)
        if not still:
            rows[begins[firsts[person]] : begins[firsts[person + 1]]] = 0
    seconds = np.array([step for own in clocks for step in own])
    units = Units(rows, begins[firsts], Runs(begins, seconds))
    if faults is None:
        with _of(folder):
            units.check()
    return ImagingData(units, space.columns, tuple(people), (*recordings.notes, *notes))


def _still(people: list[str], scans: list[list[Scan]]) -> tuple[list[list[Scan]], list[str]]:
    """Scans without those that scrubbing left too short, and notes with the people concerned. The decision about a
    person depends on that person's motion only.

    Parameters
    ----------
    people : list of str
        Names, for the notes.
    scans : list of list of Scan
        Runs of each person.
    """
    left = [[scan for scan in own if scan.volumes >= MINIMUM_VOLUMES] for own in scans]
    runs = sum(len(own) for own in scans) - sum(len(own) for own in left)
    gone = [name for name, before, own in zip(people, scans, left, strict=True) if before and not own]
    notes = [f"{runs} runs moved too much, of {len(gone)} people all: {', '.join(gone) or 'nobody'}"] if runs else []
    return left, notes


@contextmanager
def _of(folder: Path, faults: list[str] | None = None) -> Iterator[None]:
    """Prefix errors with the folder, not with the image, whose name identifies a person.

    With a list of `faults`, errors of a run are added to it and not raised. Other errors, such as a missing library,
    are raised.
    """
    try:
        yield
    except BadData as error:
        if faults is None:
            raise error.about(str(folder)) from None
        faults.append(f"{error} ({error.detail})" if error.detail else str(error))
    except ZerosumError:
        raise
    except Exception as error:  # Libraries may fail on unusual values, and their messages may quote them.
        if faults is None:
            raise
        faults.append(f"a run cannot be cleaned ({type(error).__name__}: {error})")


def _array(folder: Path, rows: int, columns: int) -> Floats:
    """Uninitialised array, or `BadData` if memory is insufficient."""
    try:
        return np.empty((rows, columns))
    except MemoryError:
        raise BadData(
            f"the images in {folder} come to more numbers than this machine's memory holds: use an atlas, or a coarser "
            "mask",
            detail=f"{8e-9 * rows * columns:.1f} GB",
        ) from None
