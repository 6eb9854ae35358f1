"""Whose images a folder holds: a BIDS data set (raw or derived), or plain files, one a person.

Which files belong to one person decides what is protected. So whatever could make one person look like two, or count a
recording twice, is refused. Names of files and folders name people, so they are said in an error's `detail` only.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zerosum.data.formats import readable
from zerosum.data.nifti import is_nifti
from zerosum.errors import BadData

_GRID = {"space", "cohort", "res", "den", "desc"}  # entities that a table of confounds does not share with its run
_VERSIONS = _GRID | {"rec", "echo", "part"}  # entities that tell versions of one recording apart
_CONFOUNDS = ("desc-confounds_timeseries.tsv", "desc-confounds_regressors.tsv")


SELECTED_BY = ("task", "space", "desc", "res")


@dataclass(frozen=True)
class Selection:
    """Which files of a BIDS data set are meant; None: whatever is there."""

    task: str | None = None
    space: str | None = None
    desc: str | None = None
    res: str | None = None

    def admits(self, entities: dict[str, str]) -> bool:
        wanted = {name: getattr(self, name) for name in SELECTED_BY}
        return all(value is None or entities.get(name) == value for name, value in wanted.items())


@dataclass(frozen=True)
class Recording:
    """A file of a run, the JSON files that may describe it (nearest first), and its table of confounds."""

    path: Path
    sidecars: tuple[Path, ...]
    confounds: Path | None


@dataclass(frozen=True)
class BidsIndex:
    """Each person's selected recordings in order, and notes for the owner of the data.

    Everybody with a recording is listed, selected or not: the coordinator of a study chooses the selection, and the
    number of people is public, so it must not depend on whose recordings are selected.
    """

    people: dict[str, tuple[Recording, ...]]
    notes: tuple[str, ...] = ()


def find_recordings(folder: Path, selection: Selection | None = None, faults: list[str] | None = None) -> BidsIndex:
    """Everybody in a folder: a BIDS data set if it has participants.tsv or sub-* folders, else one file a person.

    A person with two versions of a selected recording is an error, or, where a list of `faults` is given, somebody
    without recordings, noted in that list.
    """
    chosen = selection or Selection()
    if not folder.is_dir():
        raise BadData(f"there is no folder {folder}")
    with readable(folder):
        subjects = [entry for entry in _entries(folder) if entry.name.startswith("sub-") and entry.is_dir()]
        if subjects or (folder / "participants.tsv").is_file():
            found = _bids(folder, subjects, chosen, faults)
        elif chosen != Selection():
            raise BadData(f"{folder} is not a BIDS data set, so there is nothing to select by task, space, desc or res")
        else:
            found = _plain(folder)
    return found


def _plain(folder: Path) -> BidsIndex:
    people: dict[str, tuple[Recording, ...]] = {}
    for path in _entries(folder):
        if not is_nifti(path.name):
            continue
        name = _stem(path)
        if "sub" in _entities(path):
            fault = f"an image in {folder} has a BIDS name: put runs into sub-*/func, beside a participants.tsv"
            raise BadData(fault, detail=path.name)
        if _alike([name, *people]):
            raise BadData(f"{folder} has two images of one name, or of names that are nearly the same", detail=name)
        sidecar, table = path.with_name(f"{name}.json"), path.with_name(f"{name}.tsv")
        sidecars = (sidecar,) if sidecar.is_file() else ()
        people[name] = (Recording(path, sidecars, table if table.is_file() else None),)
    if not people:
        raise BadData(f"{folder} has neither .nii or .nii.gz files nor sub-* folders")
    _check_files(folder, [recording.path for own in people.values() for recording in own])
    return BidsIndex(people)


def _bids(folder: Path, subjects: list[Path], selection: Selection, faults: list[str] | None) -> BidsIndex:
    listed = _participants(folder)
    whole = {subject.name: _runs(folder, subject) for subject in subjects}
    if strangers := [name for name, runs in whole.items() if runs and name not in listed]:
        fault = f"{folder} has images of people who are not in its participants.tsv"
        raise BadData(fault, detail=", ".join(strangers))
    # All files, selected or not: a coordinator selects, and must not learn whose file is a link.
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
    if not any(people.values()) and (faults is None or not people):
        raise BadData(f"{folder} has no *_bold.nii or *_bold.nii.gz of anybody in its participants.tsv, as selected")
    absent = [name for name in listed if name not in people]
    notes = [f"{len(absent)} listed in participants.tsv have no such images: {', '.join(absent)}"] if absent else []
    if unselected := [name for name, runs in people.items() if not runs]:
        notes.append(f"{len(unselected)} have no selected images, and count as zeros: {', '.join(unselected)}")
    return BidsIndex(people, tuple(notes))


def _participants(folder: Path) -> tuple[str, ...]:
    """Who is listed; a folder <data set>/derivatives/<pipeline> without a list has that of its data set."""
    path = folder / "participants.tsv"
    whole = folder.absolute()
    if not path.is_file() and whole.parent.name == "derivatives":
        path = whole.parent.parent / "participants.tsv"
    if not path.is_file():
        raise BadData(f"{folder} has no participants.tsv, which says who takes part")
    with readable(path), path.open(encoding="utf-8-sig", newline="") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file, delimiter="\t", strict=True) if row]
    if not rows or rows[0].count("participant_id") != 1:
        raise BadData(f"{path} has no column participant_id, or more than one")
    at = rows[0].index("participant_id")
    if any(len(row) <= at or not row[at] for row in rows[1:]):
        raise BadData(f"participant_id is empty in a row of {path}")
    names = [f"sub-{row[at].removeprefix('sub-')}" for row in rows[1:]]
    if _alike(names):
        raise BadData(f"{path} lists somebody twice, or under names that differ in case or zeros only")
    return tuple(names)


def _alike(names: list[str]) -> bool:
    """Whether two of them may well be one person: sub-01 and sub-1, sub-A and sub-a."""
    plain = {"-".join(part.lstrip("0") for part in name.casefold().split("-")) for name in names}
    return len(plain) < len(names)


def _runs(root: Path, subject: Path) -> list[Path]:
    """All images of a person's runs, in the order of sessions and names."""
    sessions = [entry for entry in _entries(subject) if entry.name.startswith("ses-") and entry.is_dir()]
    found = []
    for folder in [subject, *sessions]:
        for path in _entries(folder / "func"):
            if not is_nifti(path.name) or not _stem(path).endswith("_bold"):
                continue
            entities = _entities(path)
            expected = {"sub": subject.name[4:]} | ({} if folder is subject else {"ses": folder.name[4:]})
            if any(entities.get(name) != value for name, value in expected.items()):
                fault = f"an image in {root} lies in the folder of another person or session than its name says"
                raise BadData(fault, detail=str(path))
            found.append(path)
    return found


def _selected(root: Path, runs: list[Path], selection: Selection) -> tuple[Recording, ...]:
    """The selected ones of a person's runs; two versions of one recording would count it twice."""
    seen: dict[frozenset[tuple[str, str]], Path] = {}
    for path in runs:
        entities = _entities(path)
        if not selection.admits(entities):
            continue
        which = frozenset((name, value) for name, value in entities.items() if name not in _VERSIONS)
        if which in seen:
            raise BadData(
                f"{root} has two versions of one recording: select one by space, desc or res",
                detail=f"{path} and {seen[which].name}",
            )
        seen[which] = path
    return tuple(Recording(path, _sidecars(root, path), _confounds(path)) for path in seen.values())


def every_recording(folder: Path) -> dict[str, tuple[Recording, ...]]:
    """All recordings of everybody in a folder, in every version: what a selection selects from."""
    people = find_recordings(folder, faults=[]).people
    subjects = {name: folder / name for name in people}
    if not any(path.is_dir() for path in subjects.values()):
        return people
    with readable(folder):
        return {
            name: tuple(Recording(path, _sidecars(folder, path), _confounds(path)) for path in _runs(folder, subject))
            for name, subject in subjects.items()
        }


def entity_values(recordings: Iterable[Recording], name: str) -> tuple[str, ...]:
    """The values that a BIDS entity, such as the task, has among these recordings."""
    values = {_entities(recording.path).get(name) for recording in recordings}
    return tuple(sorted(value for value in values if value is not None))


def _sidecars(root: Path, path: Path) -> tuple[Path, ...]:
    """By BIDS's principle of inheritance: from the run's own folder up to the data set's, those whose names agree."""
    own = _entities(path).items()
    found: list[Path] = []
    folder = path.parent
    while True:
        near = [
            entry
            for entry in _entries(folder)
            if (entry.name == "bold.json" or entry.name.endswith("_bold.json"))
            and entry.is_file()
            and _entities(entry).items() <= own
        ]
        found += sorted(near, key=lambda entry: -len(_entities(entry)))
        if folder == root:
            return tuple(found)
        folder = folder.parent


def _confounds(path: Path) -> Path | None:
    parts = [part for part in _stem(path).split("_")[:-1] if part.partition("-")[0] not in _GRID]
    candidates = [path.with_name("_".join([*parts, ending])) for ending in _CONFOUNDS]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _entities(path: Path) -> dict[str, str]:
    """sub-01_task-rest_bold -> sub: 01, task: rest. What is not of that form says nothing."""
    pairs = (part.partition("-") for part in _stem(path).split("_")[:-1])
    return {name: value for name, dash, value in pairs if dash}


def _stem(path: Path) -> str:
    return path.name[: -len(".nii.gz")] if path.name.lower().endswith(".nii.gz") else path.stem


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, in the order of names; hidden files, such as copying leaves behind, are none of it."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _check_files(folder: Path, paths: Iterable[Path]) -> None:
    """Refuse links that lead nowhere or out of the folder, and one file under two names."""
    home = folder.resolve()
    whose: dict[tuple[int, int], str] = {}
    for path in paths:
        real = path.resolve()
        if not real.is_file():
            raise BadData(f"an image in {folder} is not a file, or a link that leads nowhere", detail=str(path))
        if not real.is_relative_to(home):
            raise BadData(f"an image in {folder} is a link that leads out of it; put it there", detail=str(path))
        stored = real.stat()
        which = (stored.st_dev, stored.st_ino)  # hard links have another path, and the same number
        if which in whose:
            raise BadData(f"two images in {folder} are the same file", detail=f"{path} and {whose[which]}")
        whose[which] = path.name
