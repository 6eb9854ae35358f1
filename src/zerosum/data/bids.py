"""Finds the images of each person in a folder: a BIDS data set (raw or derivative), or plain files, one per person.

The assignment of files to persons defines the protected unit. Anything that could split one person into two, or count a
recording twice, is therefore an error. Names of files and folders identify people, so messages mention them only in the
error's `detail`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zerosum.data.formats import readable, tsv_rows
from zerosum.data.nifti import is_nifti
from zerosum.errors import BadData

# BIDS entities of a run's name that the name of its confound table lacks.
_GRID = {"space", "cohort", "res", "den", "desc"}
_VERSIONS = _GRID | {"rec", "echo", "part"}  # BIDS entities that distinguish versions of one recording.
# Endings of confound tables: the current name of fMRIPrep, and that of earlier versions.
_CONFOUNDS = ("desc-confounds_timeseries.tsv", "desc-confounds_regressors.tsv")


# BIDS entities by which a study can select files.
SELECTED_BY = ("task", "space", "desc", "res")


@dataclass(frozen=True)
class Selection:
    """Selection of files in a BIDS data set by entities. None: any value."""

    task: str | None = None
    space: str | None = None
    desc: str | None = None
    res: str | None = None

    def admits(self, entities: dict[str, str]) -> bool:
        """Whether a file with these entities is selected."""
        wanted = {name: getattr(self, name) for name in SELECTED_BY}
        return all(value is None or entities.get(name) == value for name, value in wanted.items())


@dataclass(frozen=True)
class Recording:
    """Image file of one run, its JSON sidecars (nearest first) and its table of confounds."""

    path: Path
    sidecars: tuple[Path, ...]
    confounds: Path | None


@dataclass(frozen=True)
class BidsIndex:
    """Selected recordings by person, in order, and notes for the owner of the data.

    Every person with a recording is listed, also without a selected one. The coordinator chooses the selection and the
    number of people is public, so the number must not depend on the selection.
    """

    people: dict[str, tuple[Recording, ...]]
    notes: tuple[str, ...] = ()


def find_recordings(folder: Path, selection: Selection | None = None, faults: list[str] | None = None) -> BidsIndex:
    """Find all persons of a folder: a BIDS data set if it has participants.tsv or sub-* folders, else one file per
    person.

    Parameters
    ----------
    folder : Path
        The data folder.
    selection : Selection, optional
        Which files of a BIDS data set are read.
    faults : list of str, optional
        Receives faults of single persons. A person with two versions of a selected recording then has no recordings.
        Without the list this is an error.

    Raises
    ------
    BadData
        If the folder has no images, or the assignment of files to people is ambiguous.
    """
    chosen = selection or Selection()
    if not folder.is_dir():
        raise BadData(f"there is no folder {folder}")
    with readable(folder):
        subjects = [entry for entry in _entries(folder) if entry.name.startswith("sub-") and entry.is_dir()]
        if subjects or (folder / "participants.tsv").is_file():
            recordings = _bids(folder, subjects, chosen, faults)
        elif chosen != Selection():
            raise BadData(f"{folder} is not a BIDS data set, so there is nothing to select by task, space, desc or res")
        else:
            recordings = _flat_index(folder)
    return recordings


def _flat_index(folder: Path) -> BidsIndex:
    """Index of a folder with one file per person."""
    people: dict[str, tuple[Recording, ...]] = {}
    for path in _entries(folder):
        if not is_nifti(path.name):
            continue
        name = _stem(path)
        if "sub" in _entities(path):
            fault = f"an image in {folder} has a BIDS name: put runs into sub-*/func, beside a participants.tsv"
            raise BadData(fault, detail=path.name)
        # Similar names may be one person with two files, who would then count as two units.
        if _same_person([name, *people]):
            raise BadData(f"{folder} has two images of one name, or of names that are nearly the same", detail=name)
        sidecar, table = path.with_name(f"{name}.json"), path.with_name(f"{name}.tsv")
        sidecars = (sidecar,) if sidecar.is_file() else ()
        people[name] = (Recording(path, sidecars, table if table.is_file() else None),)
    if not people:
        raise BadData(f"{folder} has neither .nii or .nii.gz files nor sub-* folders")
    _check_files(folder, [recording.path for own in people.values() for recording in own])
    return BidsIndex(people)


def _bids(folder: Path, subjects: list[Path], selection: Selection, faults: list[str] | None) -> BidsIndex:
    """Index of a BIDS data set.

    Parameters
    ----------
    folder : Path
        The data set.
    subjects : list of Path
        Its folders sub-*.
    selection : Selection
        Which files are read.
    faults : list of str or None
        As in `find_recordings`.
    """
    listed = _participants(folder)
    whole = {subject.name: _runs(folder, subject) for subject in subjects}
    # An unlisted person would be a unit that the site's own list, and so the public count, does not have.
    if strangers := [name for name, runs in whole.items() if runs and name not in listed]:
        fault = f"{folder} has images of people who are not in its participants.tsv"
        raise BadData(fault, detail=", ".join(strangers))
    # All files are checked, not only selected ones. The coordinator chooses the selection and must not learn which
    # person's file is a link.
    _check_files(folder, [path for name in listed for path in whole.get(name, [])])
    people: dict[str, tuple[Recording, ...]] = {}
    for name in listed:
        if not whole.get(name):
            continue
        try:
            people[name] = _selected(folder, whole[name], selection)
        except BadData as error:
            if faults is None:
                raise
            faults.append(f"{error} ({error.detail})")
            people[name] = ()
    # With a list of faults an empty selection is no error: the coordinator chose the selection, and every
    # person counts as a unit of zeros.
    if not any(people.values()) and (faults is None or not people):
        raise BadData(f"{folder} has no *_bold.nii or *_bold.nii.gz of anybody in its participants.tsv, as selected")
    absent = [name for name in listed if name not in people]
    notes = [f"{len(absent)} listed in participants.tsv have no such images: {', '.join(absent)}"] if absent else []
    if unselected := [name for name, runs in people.items() if not runs]:
        notes.append(f"{len(unselected)} have no selected images, and count as zeros: {', '.join(unselected)}")
    return BidsIndex(people, tuple(notes))


def _participants(folder: Path) -> tuple[str, ...]:
    """Names listed in participants.tsv. A folder <data set>/derivatives/<pipeline> without that file uses the one of
    its data set."""
    path = folder / "participants.tsv"
    whole = folder.absolute()
    if not path.is_file() and whole.parent.name == "derivatives":
        path = whole.parent.parent / "participants.tsv"
    if not path.is_file():
        raise BadData(f"{folder} has no participants.tsv, which says who takes part")
    rows = [[cell.strip() for cell in row] for row in tsv_rows(path) if row]
    if not rows or rows[0].count("participant_id") != 1:
        raise BadData(f"{path} has no column participant_id, or more than one")
    at = rows[0].index("participant_id")
    if any(len(row) <= at or not row[at] for row in rows[1:]):
        raise BadData(f"participant_id is empty in a row of {path}")
    names = [f"sub-{row[at].removeprefix('sub-')}" for row in rows[1:]]
    if _same_person(names):
        raise BadData(f"{path} lists somebody twice, or under names that differ in case or zeros only")
    return tuple(names)


def _same_person(names: list[str]) -> bool:
    """Whether two names may be the same person: sub-01 and sub-1, sub-A and sub-a."""
    plain = {"-".join(part.lstrip("0") for part in name.casefold().split("-")) for name in names}
    return len(plain) < len(names)


def _runs(root: Path, subject: Path) -> list[Path]:
    """Image files of all runs of a person, ordered by session and name.

    Parameters
    ----------
    root : Path
        The data set, for messages.
    subject : Path
        The folder of one person, with or without sessions.
    """
    sessions = [entry for entry in _entries(subject) if entry.name.startswith("ses-") and entry.is_dir()]
    runs = []
    for folder in [subject, *sessions]:
        for path in _entries(folder / "func"):
            if not is_nifti(path.name) or not _stem(path).endswith("_bold"):
                continue
            entities = _entities(path)
            # The folder and the file name must agree on the person: either of the two may be the wrong one.
            expected = {"sub": subject.name[4:]} | ({} if folder is subject else {"ses": folder.name[4:]})
            if any(entities.get(name) != value for name, value in expected.items()):
                fault = f"an image in {root} lies in the folder of another person or session than its name says"
                raise BadData(fault, detail=str(path))
            runs.append(path)
    return runs


def _selected(root: Path, runs: list[Path], selection: Selection) -> tuple[Recording, ...]:
    """Selected runs of a person. Raises `BadData` for two versions of one recording, which would count it twice.

    Parameters
    ----------
    root : Path
        The data set.
    runs : list of Path
        All image files of one person.
    selection : Selection
        Which of them are read.
    """
    files: dict[frozenset[tuple[str, str]], Path] = {}
    for path in runs:
        entities = _entities(path)
        if not selection.admits(entities):
            continue
        # The recording is identified by all entities except those that distinguish versions of it.
        which = frozenset((name, value) for name, value in entities.items() if name not in _VERSIONS)
        if which in files:
            raise BadData(
                f"{root} has two versions of one recording: select one by space, desc or res",
                detail=f"{path} and {files[which].name}",
            )
        files[which] = path
    return tuple(Recording(path, _sidecars(root, path), _confounds(path)) for path in files.values())


def every_recording(folder: Path) -> dict[str, tuple[Recording, ...]]:
    """All recordings of all persons in every version, from which a selection selects."""
    people = find_recordings(folder, faults=[]).people
    subjects = {name: folder / name for name in people}
    # Plain files have no versions and no entities.
    if not any(path.is_dir() for path in subjects.values()):
        return people
    with readable(folder):
        return {
            name: tuple(Recording(path, _sidecars(folder, path), _confounds(path)) for path in _runs(folder, subject))
            for name, subject in subjects.items()
        }


def entity_values(recordings: Iterable[Recording], name: str) -> tuple[str, ...]:
    """Sorted values of a BIDS entity, such as the task, among these recordings."""
    values = {_entities(recording.path).get(name) for recording in recordings}
    return tuple(sorted(value for value in values if value is not None))


def _sidecars(root: Path, path: Path) -> tuple[Path, ...]:
    """JSON files of a run by the BIDS inheritance principle: from the run's folder up to the data set's, files whose
    entities are a subset of the run's, most specific first.

    Parameters
    ----------
    root : Path
        The data set, at which the search ends.
    path : Path
        An image file below it.
    """
    own = _entities(path).items()
    sidecars: list[Path] = []
    folder = path.parent
    while True:
        near = [
            entry
            for entry in _entries(folder)
            if (entry.name == "bold.json" or entry.name.endswith("_bold.json"))
            and entry.is_file()
            and _entities(entry).items() <= own
        ]
        # More entities are more specific. Values of the first file that has a field apply.
        sidecars += sorted(near, key=lambda entry: -len(_entities(entry)))
        if folder == root:
            return tuple(sidecars)
        folder = folder.parent


def _confounds(path: Path) -> Path | None:
    """Confound table of a run, or None."""
    # A confound table belongs to the run in all spaces and resolutions.
    parts = [part for part in _stem(path).split("_")[:-1] if part.partition("-")[0] not in _GRID]
    candidates = [path.with_name("_".join([*parts, ending])) for ending in _CONFOUNDS]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _entities(path: Path) -> dict[str, str]:
    """Entities of a BIDS name: sub-01_task-rest_bold gives {"sub": "01", "task": "rest"}. Other parts are ignored."""
    pairs = (part.partition("-") for part in _stem(path).split("_")[:-1])
    return {name: value for name, dash, value in pairs if dash}


def _stem(path: Path) -> str:
    """File name without its suffix, where .nii.gz counts as one."""
    return path.name[: -len(".nii.gz")] if path.name.lower().endswith(".nii.gz") else path.stem


def _entries(folder: Path) -> list[Path]:
    """Entries of a folder in the order of names, without hidden files."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _check_files(folder: Path, paths: Iterable[Path]) -> None:
    """Raise `BadData` for broken links, links out of the folder, and files with two names."""
    home = folder.resolve()
    whose: dict[tuple[int, int], str] = {}
    for path in paths:
        # Links are resolved: two links to one file would count one recording as two people's.
        real = path.resolve()
        if not real.is_file():
            raise BadData(f"an image in {folder} is not a file, or a link that leads nowhere", detail=str(path))
        if not real.is_relative_to(home):
            raise BadData(f"an image in {folder} is a link that leads out of it; put it there", detail=str(path))
        stored = real.stat()
        which = (stored.st_dev, stored.st_ino)  # hard links have different paths and the same inode
        if which in whose:
            raise BadData(f"two images in {folder} are the same file", detail=f"{path} and {whose[which]}")
        whose[which] = path.name
