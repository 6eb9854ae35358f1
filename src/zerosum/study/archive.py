"""Archive of results: every run that charges a ledger is stored in the state folder, from its start.

    results/<id>/about.json   study name, start time, program, and the ledgers that were charged
    results/<id>/journal      requests and releases of every round; removed once the result is written
    results/<id>/room         placeholder that reserves disk space for the result
    results/<id>/result       the result, as `zerosum run --out` writes it

The id is the first 16 hexadecimal digits of the plan's digest. The archive holds only what the analyst may see. Other
users of the machine cannot read it: files have mode 0600 and folders 0700, independent of the umask.

Disk space for releases and result is reserved before anything is spent, so that a full disk cannot lose a release. The
result is written and synced before it is returned. A study killed in between has its releases in the journal. Its
result is computed again from them, at no privacy cost.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np

from zerosum import algorithms
from zerosum.algorithms import Algorithm
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.journal import NAME, Journal
from zerosum.disk import make_folder
from zerosum.errors import BadInput, Refused, ZerosumError
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.terms import Noise
from zerosum.report.record import Result, keep_folder, make_room, privacy_report, write_whole
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Total
from zerosum.site.policy import state_folder
from zerosum.site.site import Site
from zerosum.study.planning import resolve, result_of

# Bytes. Largest total size of releases that the journal stores with their values; for larger studies it stores only
# which rounds were released. Chosen by hand; no benchmark recorded.
_MAX_JOURNAL_BYTES = 1 << 28
# Largest number of array elements among the parameters of a program that about.json stores. For larger programs the
# study file is needed to compute a result again. Chosen by hand; no benchmark recorded.
_MAX_PROGRAM_ELEMENTS = 100_000
# Key of about.json: site name to the paths of its ledger and counter.
_LEDGERS = "ledgers"
# Required keys of about.json, with the values used for an archive entry that cannot be read.
_UNKNOWN: dict[str, Any] = {"study": "", "began": "", "journal": None, "program": None, _LEDGERS: {}}


def results_folder() -> Path:
    """Folder of the archive."""
    return state_folder() / "results"


def is_archived(plan: Plan, sites: Sequence[Site]) -> bool:
    """Whether a run is archived: it has noise, has no seed, and at least one site has private data."""
    return plan.private and any(site.policy.data == "private" for site in sites)


def charged_ledgers() -> list[tuple[Path, Path]]:
    """Paths of existing ledgers that archived studies charged, each with the path of its counter, sorted."""
    ledgers = {}
    for archived in ArchivedStudy.all():
        for path, counter in archived.about[_LEDGERS].values():
            if Path(path).is_file():
                ledgers[Path(path)] = Path(counter)
    return sorted(ledgers.items())


def missing_ledgers() -> list[Path]:
    """Paths of ledgers that studies with a result charged and that no longer exist."""
    done = [archived for archived in ArchivedStudy.all() if (archived.folder / "result").exists()]
    paths = {Path(path) for archived in done for path, _ in archived.about[_LEDGERS].values()}
    return sorted(path for path in paths if not path.is_file())


class ArchiveWriter:
    """Archive entry of a running study, as a context manager.

    Leaving the `with` block by an exception adds a note to the exception that states what was spent and stored.

    Parameters
    ----------
    plan : Plan
        The pinned plan.
    algorithm : Algorithm
        The program, stored so that the result can be computed again.
    sites : sequence of Site
        The sites whose ledgers will be charged.
    journal : Journal or None
        The journal of a checkpoint. None: a journal is created in the archive.

    Raises
    ------
    Refused
        If the plan was run before.
    BadInput
        If the disk space cannot be reserved. Nothing was spent then.
    """

    def __init__(self, plan: Plan, algorithm: Algorithm, sites: Sequence[Site], journal: Journal | None) -> None:
        self.plan, self.id = plan, plan.digest()[:16]
        self.folder = results_folder() / self.id
        self._own = journal is None
        # A plan is run once: a second run would charge the ledgers again under the same study name.
        if self._own and (self.folder / "result").exists():
            raise Refused(f"this plan was run before: 'zerosum results show {self.id}' shows its result")
        if self._own and (self.folder / NAME).exists():
            with _open_journal(self.folder) as before:
                if before.rounds:
                    raise Refused(f"this plan was run before: 'zerosum results show {self.id}' shows its result")
            # The earlier run made no request, so nothing was spent and its entry may be replaced.
            shutil.rmtree(self.folder)
        self._begins = self._own or not (self.folder / "about.json").exists()  # False: resumed from a checkpoint
        # Everything that is needed to find the ledgers and the releases again if the process is killed.
        about = {
            "id": self.id,
            "study": plan.study,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "journal": None if journal is None else str(journal.path.parent.absolute()),
            _LEDGERS: {
                site.name: [str(path.absolute()) for path in (site.policy.ledger_path, site.policy.counter_path)]
                for site in sites
            },
            "program": _program_record(algorithm),
        }
        try:
            make_folder(self.folder)
            # Zerosum 0.2 created the first folder with the mode of the umask
            for each in (self.folder.parent, self.folder):
                each.chmod(0o700)
            if not (self.folder / "about.json").exists():
                write_whole(self.folder / "about.json", (json.dumps(about, indent=2) + "\n").encode(), private=True)
            make_room(self.folder / "room", result_bytes(plan))
            # Reserved before the first request, as long as a full disk costs nothing.
            size = sum(_journal_bytes(plan))
            self.journal = journal or Journal.create(self.folder, plan, numbers=size <= _MAX_JOURNAL_BYTES)
            if self._own:
                try:
                    # 1024 bytes per round, and 200 for the commitments of a site, are an upper bound for a round
                    # without values. Chosen by hand; no benchmark recorded.
                    least = (1024 + 200 * len(plan.sites)) * (plan.rounds + plan.attempts)
                    self.journal.reserve(size if size <= _MAX_JOURNAL_BYTES else least)
                except BaseException:
                    self.journal.close()
                    raise
            keep_folder(self.folder)
        except (OSError, BadInput) as error:
            self._discard()
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise BadInput(
                f"no result could be stored in {self.folder} ({why}), so the study was not begun and nothing was "
                "spent: free disk space, or set ZEROSUM_STATE to another folder"
            ) from error
        except BaseException:
            self._discard()
            raise

    def conclude(self, result: Result) -> Result:
        """Write the result durably and return it. The caller must not use the result before this call."""
        # The reserved space is released immediately before the result is written into it.
        (self.folder / "room").unlink(missing_ok=True)
        stored = replace(result, kept=self.id)
        if not (self.folder / "result").exists():
            stored.write(self.folder / "result", private=True)
        if self._own:
            self.journal.close()
            (self.folder / NAME).unlink(missing_ok=True)
        return stored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Close the journal. On an error, remove an entry without requests, or else add a note on what was stored.

        The order matters: the journal is closed before it is read again for the note.
        """
        # Requests and not releases: a site may have charged its ledger although no release arrived.
        asked = self.journal.rounds
        if self._own:
            self.journal.close()
        if error is None:
            return
        if not asked:
            self._discard()  # No request was made, so nothing was spent.
            return
        with suppress(Exception):  # A failure here must not mask the original exception.
            error.add_note(ArchivedStudy.load(self.id).summary())

    def _discard(self) -> None:
        """Remove the entry, unless it existed before this run."""
        if self._begins:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class ArchivedStudy:
    """One archived study. `about` is the content of about.json."""

    id: str
    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def load(cls, id: str, *, damaged: bool = False) -> Self:
        """Read one entry by its id or a unique prefix of it.

        With `damaged=True` an entry that cannot be read is returned with unknown values; otherwise it raises
        `BadInput`.
        """
        # An empty id would be a prefix of every entry.
        folders = [path for path in _folders() if path.name.startswith(id)] if id else []
        if len(folders) != 1:
            which = "no result" if not folders else "several results"
            raise BadInput(f"there is {which} archived under {id!r}: 'zerosum results' lists them")
        return next(each for each in cls.all() if each.folder == folders[0]) if damaged else cls._read(folders[0])

    @classmethod
    def all(cls) -> list[Self]:
        """All entries, oldest first. An entry that cannot be read is included with unknown values and the key
        "damaged"."""
        lines = []
        for folder in _folders():
            try:
                lines.append(cls._read(folder))
            except BadInput:
                lines.append(cls(folder.name, folder, {"id": folder.name, "damaged": True} | _UNKNOWN))
        return sorted(lines, key=lambda each: str(each.about["began"]))

    @classmethod
    def _read(cls, folder: Path) -> Self:
        """Read and validate one folder of the archive. Raises `BadInput`."""
        try:
            about = json.loads((folder / "about.json").read_bytes())
            if not (isinstance(about, dict) and about.keys() >= _UNKNOWN.keys() and _has_valid_types(about)):
                raise ValueError("about.json is damaged")
            return cls(folder.name, folder, about)
        except (OSError, ValueError) as error:
            raise BadInput(f"the archived study in {folder} cannot be read: {error}") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """Content of `result.json`, or None if the study has no result. Raises `BadInput` if the file is damaged."""
        try:
            record: dict[str, Any] = json.loads((self.folder / "result" / "result.json").read_bytes())
            if not (isinstance(record, dict) and record.keys() >= {"algorithm", "estimate", "participants", "privacy"}):
                raise ValueError("result.json is damaged")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadInput(f"the archived result in {self.folder} cannot be read: {error}") from None
        return record

    def spent(self) -> dict[str, float | None]:
        """Exact epsilon charged for this study, by site, at the study's delta. None for a ledger that cannot be
        read."""
        charged: dict[str, float | None] = {}
        for site, (path, counter) in self.about[_LEDGERS].items():
            try:
                with Ledger.inspect(Path(path), counter=Path(counter)) as ledger:
                    # A ledger has entries of many studies; the name with its random suffix is unique.
                    mine = [each for each in ledger.entries() if each.spend.study == self.about["study"]]
                    total = Total().plus((each.spend, each.charged_mu) for each in mine)
                charged[site] = total.epsilon(self._delta) if mine else 0.0
            except ZerosumError:
                charged[site] = None
        return charged

    @property
    def _delta(self) -> float:
        """Delta of the study, from the result or the journal."""
        try:
            if (result := self.result) is not None:
                return float(result["privacy"]["delta"])
            with _open_journal(self._journal) as journal:
                return journal.plan.delta
        except BadInput:
            # Only for display: neither result nor journal can be read. 1e-5 is the default delta of `Budget`.
            return 1e-5

    @property
    def _journal(self) -> Path:
        """Folder of the journal: the checkpoint's, or this entry's own."""
        return Path(self.about["journal"] or self.folder)

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible summary: state, rounds, cost, and the result or the privacy report.

        States: done (result exists), released (all rounds released, no result), stopped, not begun, unreadable (journal
        damaged or missing, budget may be spent), damaged (result cannot be read).
        """
        record = {"id": self.id, "study": self.about["study"], "began": self.about["began"], "spent": self.spent()}
        nothing = {"asked": 0, "released": 0, "planned": 0}
        try:
            result = self.result
        except BadInput as error:
            return record | {"state": "damaged", "algorithm": "", "rounds": nothing, "fault": str(error)}
        if result is not None:
            rounds = result["participants"]
            released = sum(bool(names) for names in rounds)
            known = {"asked": len(rounds), "released": released, "planned": result["privacy"]["rounds"]}
            return record | {"state": "done", "algorithm": result["algorithm"], "rounds": known, "result": result}
        try:
            with _open_journal(self._journal) as journal:
                plan, released = journal.plan, len(journal.released_rounds())
                rounds = {"asked": journal.rounds, "released": released, "planned": plan.rounds}
        except BadInput as error:  # Stopped before the first request, or the journal is missing or damaged.
            state = "unreadable" if self._may_have_begun() else "not begun"
            return record | {"state": state, "algorithm": "", "rounds": nothing, "fault": str(error)}
        state = "released" if released == plan.rounds else "stopped" if rounds["asked"] else "not begun"
        report = privacy_report(plan).as_record()
        return record | {"state": state, "algorithm": plan.algorithm, "rounds": rounds, "privacy": report}

    def _may_have_begun(self) -> bool:
        """Whether a study without a readable journal may have spent budget. A journal always exists before the first
        charge."""
        if "damaged" in self.about or self.about["journal"] is not None or (self.folder / NAME).exists():
            return True
        spent = self.spent()
        there = [site for site, paths in self.about[_LEDGERS].items() if any(Path(each).exists() for each in paths)]
        return any(spent[site] != 0 for site in there)

    def summary(self) -> str:
        """One sentence: cost, released rounds, and the command that shows the entry."""
        record = self.as_record()
        rounds, spent = record["rounds"], [each for each in record["spent"].values() if each is not None]
        cost = f"epsilon {max(spent):.4f} at most was spent at a site" if spent else "the ledgers record what was spent"
        lost, was = rounds["asked"] - rounds["released"], "was" if rounds["planned"] == 1 else "were"
        return (
            f"{cost}; {rounds['released']} of {counted(rounds['planned'], 'round')} {was} released"
            f"{f', {lost} may be lost' if lost else ''}; the study is archived: 'zerosum results show {self.id}'"
        )

    def export(self, out: Path, algorithm: Algorithm | None = None) -> bool:
        """Write the result to the folder `out`. Returns whether there is one.

        A missing result is computed from the releases if possible. Otherwise `record.json` and `releases.npz`, with the
        sum of every released round, are written.

        Parameters
        ----------
        out : Path
            Folder to create.
        algorithm : Algorithm, optional
            The program. By default the stored one; needed for programs that were too large to store.
        """
        if self.result is None:
            self._compute_result(algorithm)
        if self.result is not None:
            _copy(self.folder / "result", out)
            return True
        with _open_journal(self._journal) as journal:
            arrays = {f"round_{r + 1}": release.value for r, release in _stored_releases(journal)}
        Result.place(out, {"record.json": self.as_record()}, {"releases.npz": arrays})
        return False

    def remove(self) -> None:
        """Delete the entry and the disk space it reserves. Refused while the study is running.

        Deletes only files written by `ArchiveWriter`, and about.json last, so that an interrupted removal can be
        repeated. Ledgers and checkpoints are not changed.
        """
        if self.folder.is_symlink():
            raise Refused(f"{self.folder} is a symbolic link: nothing was removed")
        ledgers = [Path(path).resolve() for pair in self.about[_LEDGERS].values() for path in pair]
        if any(path.is_relative_to(self.folder.resolve()) for path in ledgers):
            raise Refused(f"{self.folder} contains a ledger: nothing was removed")
        try:
            journal = Journal.open(self._journal)  # Takes the lock of the journal, which one process can hold.
        except Refused as error:
            raise Refused(f"the study {self.id} is running: nothing was removed") from error
        except BadInput:
            journal = None
        try:
            # Named files only: a file that a user has put here is not deleted.
            if (self.folder / "result").exists():
                shutil.rmtree(self.folder / "result")
            for name in ("room", NAME, "about.json"):
                (self.folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # The folder holds files of other origin and stays.
                self.folder.rmdir()
        except OSError as error:
            raise BadInput(f"the archived study in {self.folder} could not be removed: {error.strerror}") from error
        finally:
            if journal is not None:
                journal.close()

    def _compute_result(self, algorithm: Algorithm | None) -> None:
        """Compute and store the result from the journal, if the journal has every release that the program requests."""
        algorithm = algorithm or _build_program(self.about["program"])
        if algorithm is None:
            return
        with _open_journal(self._journal) as journal:
            plan = journal.plan
            # The caller may have passed another program; its releases would be matched to the wrong rounds.
            noise: Noise = "laplace" if any(release.laplace for release in plan.releases) else "gaussian"
            if resolve(algorithm, plan).releases(plan.adjacency, noise) != plan.releases:
                raise BadInput(f"the program is not the one of the study {plan.study!r}")
            try:
                outcome = conduct(plan, resolve(algorithm, plan).program(plan.adjacency), _NoSites(), journal=journal)
            # The journal lacks a release; the entry stays as it is.
            except ZerosumError:
                return
        (self.folder / "room").unlink(missing_ok=True)
        result_of(outcome, self.id).write(self.folder / "result", private=True)


def _has_valid_types(about: Mapping[str, Any]) -> bool:
    """Whether the values of about.json have the expected types."""
    texts, ledgers = [about["study"], about["began"], about["journal"] or ""], about[_LEDGERS]
    if not isinstance(ledgers, dict) or not all(isinstance(e, list) and len(e) == 2 for e in ledgers.values()):
        return False
    return all(isinstance(each, str) for each in texts + [path for pair in ledgers.values() for path in pair])


class _NoSites:
    """Engine without sites. A request that is not in the journal raises, so that nothing is spent."""

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Refuse every request."""
        raise Refused("no site is contacted again")


def _folders() -> list[Path]:
    """Folders of all archive entries."""
    folder = results_folder()
    return [path.parent for path in folder.glob("*/about.json")] if folder.is_dir() else []


def _open_journal(folder: Path) -> Journal:
    """Open a journal for reading. Raises `BadInput` if there is none."""
    journal = Journal.inspect(folder)
    if journal is None:
        raise BadInput(f"the journal of the study is no longer in {folder}")
    return journal


def _stored_releases(journal: Journal) -> Iterator[tuple[int, Any]]:
    """Yield (round, release) for every round whose values are stored."""
    for round in journal.released_rounds():
        try:
            release = journal.look(round)
        except Refused:  # the journal of a large study has no values
            continue
        if release is not None:
            yield round, release


def _copy(source: Path, out: Path) -> None:
    """Copy the files of a result to a new folder."""
    Result.place(out, {}, {}, {path.name: path.read_bytes() for path in source.iterdir()})


def _journal_bytes(plan: Plan) -> Iterator[int]:
    """Yield upper bounds, in bytes, on the parts of a journal: the releases, repeated attempts, public keys.

    A release has 8 bytes per number (float64). The other sizes (1024 per record, 200 for the commitments of a site, 256
    and 64 for keys) are bounds chosen by hand; no benchmark recorded.
    """
    record = 1024 + 200 * len(plan.sites)
    units = sum(site.units or 1 for site in plan.sites)
    for release in plan.releases:
        yield release.steps * (record + 8 * release.size * (units if release.kind == "publication" else 1))
    yield (plan.attempts + 1) * (record + 8 * max(release.size for release in plan.releases))
    yield len(plan.sites) * (256 + 64 * (plan.rounds + plan.attempts))  # a public key and a hash for each sum


def result_bytes(plan: Plan) -> int:
    """Bytes reserved for a result: an upper bound for its text and binary files, with an error for each number.

    The factors (256 KiB, 48 per number, 200 per round) were chosen by hand; no benchmark recorded.
    """
    numbers = sum(release.size for release in plan.releases)
    return min((1 << 18) + 48 * numbers + 200 * plan.rounds, _MAX_JOURNAL_BYTES // 2)


def _program_record(algorithm: Algorithm) -> dict[str, Any] | None:
    """Name and JSON parameters of a program. None if no name finds it, or if it is too large or has no JSON form."""
    try:
        if algorithms.find(algorithm.name) is not type(algorithm):
            return None
    except ZerosumError:
        return None
    values = {name: getattr(algorithm, name) for name in type(algorithm).model_fields}
    if sum(value.size for value in values.values() if isinstance(value, np.ndarray)) > _MAX_PROGRAM_ELEMENTS:
        return None
    try:
        parameters = json.loads(json.dumps(values, default=_json_default))
    except (TypeError, ValueError):
        return None
    return {"name": algorithm.name, "parameters": parameters}


def _json_default(value: Any) -> Any:
    """JSON form of numpy arrays and scalars, for `json.dumps`."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError


def _build_program(written: Mapping[str, Any] | None) -> Algorithm | None:
    """Build a program from the output of `_program_record`. None if that is impossible in this version."""
    if written is None:
        return None
    try:
        return algorithms.build(written["name"], written["parameters"])
    except ZerosumError:
        return None
