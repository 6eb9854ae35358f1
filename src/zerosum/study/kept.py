"""Nothing spent is ever lost: every study that charges a ledger is kept in the state folder, from its start.

    results/<id>/about.json   what was asked, when, and which ledgers were charged
    results/<id>/journal      every round that was asked and released; gone once the result is there
    results/<id>/room         nothing: room on the disk for the result
    results/<id>/result       the result, as `zerosum run --out` writes it

The id is the beginning of the plan's digest. All of it is what the one who asked may see anyway, and nobody else on the
machine: files have mode 0600, folders 0700, whatever the umask. Room for the
releases and the result is taken before anything is spent, so that a disk that fills up meanwhile loses nothing, and the
result is on the disk, synced, before anybody is told of it. A study that was killed in between has its releases in the
journal; its result is computed from them again, which spends nothing.
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
from zerosum.report.record import Result, keep_folder, make_room, privacy_report, write_whole
from zerosum.site.account import Total
from zerosum.site.ledger import Ledger
from zerosum.site.policy import state_folder
from zerosum.site.site import Site
from zerosum.study.planning import resolve, result_of

_MOST = 1 << 28  # bytes of releases; of longer studies the journal says which rounds were released, and not what
_NUMBERS = 100_000  # parameters of a program; of larger ones the study file is needed to compute a result again
_LEDGERS = "ledgers"
_UNKNOWN: dict[str, Any] = {"study": "", "began": "", "journal": None, "program": None, _LEDGERS: {}}


def results_folder() -> Path:
    return state_folder() / "results"


def is_kept(plan: Plan, sites: Sequence[Site]) -> bool:
    """Whether a run is a spend that counts: with noise, without a seed, on somebody's private data."""
    return plan.private and any(site.policy.data == "private" for site in sites)


def charged_ledgers() -> list[tuple[Path, Path]]:
    """The ledgers that kept studies charged, wherever they lie, as far as they still are there; and their counters."""
    found = {}
    for kept in Kept.all():
        for path, counter in kept.about[_LEDGERS].values():
            if Path(path).is_file():
                found[Path(path)] = Path(counter)
    return sorted(found.items())


def missing_ledgers() -> list[Path]:
    """Ledgers that studies with a result charged, and that are no longer where they were."""
    done = [kept for kept in Kept.all() if (kept.folder / "result").exists()]
    paths = {Path(path) for kept in done for path, _ in kept.about[_LEDGERS].values()}
    return sorted(path for path in paths if not path.is_file())


class Keeping:
    """A study on its way into the state folder. In a `with` block: leaving it by an error says what is on record."""

    def __init__(self, plan: Plan, algorithm: Algorithm, sites: Sequence[Site], journal: Journal | None) -> None:
        self.plan, self.id = plan, plan.digest()[:16]
        self.folder = results_folder() / self.id
        self._own = journal is None
        if self._own and (self.folder / "result").exists():
            raise Refused(f"this plan was run before: 'zerosum results show {self.id}' has what came of it")
        if self._own and (self.folder / NAME).exists():
            with _opened(self.folder) as before:
                if before.rounds:
                    raise Refused(f"this plan was run before: 'zerosum results show {self.id}' has what came of it")
            shutil.rmtree(self.folder)
        self._begins = self._own or not (self.folder / "about.json").exists()  # or it goes on, from a checkpoint
        about = {
            "id": self.id,
            "study": plan.study,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "journal": None if journal is None else str(journal.path.parent.absolute()),
            _LEDGERS: {
                site.name: [str(path.absolute()) for path in (site.policy.ledger_path, site.policy.counter_path)]
                for site in sites
            },
            "program": _written(algorithm),
        }
        try:
            make_folder(self.folder)
            for each in (self.folder.parent, self.folder):  # Zerosum 0.2 made the first as the umask said
                each.chmod(0o700)
            if not (self.folder / "about.json").exists():
                write_whole(self.folder / "about.json", (json.dumps(about, indent=2) + "\n").encode(), private=True)
            make_room(self.folder / "room", room_of(plan))
            size = sum(_bytes(plan))
            self.journal = journal or Journal.create(self.folder, plan, numbers=size <= _MOST)
            if self._own:
                try:
                    self.journal.reserve(size if size <= _MOST else 1024 * (plan.rounds + plan.attempts))
                except BaseException:
                    self.journal.close()
                    raise
            keep_folder(self.folder)
        except (OSError, BadInput) as error:
            self._forget()
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise BadInput(
                f"no result could be kept in {self.folder} ({why}), so nothing was asked and nothing spent: make room, "
                "or set ZEROSUM_STATE to another folder"
            ) from error
        except BaseException:
            self._forget()
            raise

    def conclude(self, result: Result) -> Result:
        """Write the result down, durably; only then may anybody hear of it."""
        (self.folder / "room").unlink(missing_ok=True)
        told = replace(result, kept=self.id)
        if not (self.folder / "result").exists():
            told.write(self.folder / "result", private=True)
        if self._own:
            self.journal.close()
            (self.folder / NAME).unlink(missing_ok=True)
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        asked = self.journal.rounds
        if self._own:
            self.journal.close()
        if error is None:
            return
        if not asked:
            self._forget()  # nothing was spent
            return
        with suppress(Exception):  # what happened matters more than what can be said about it
            error.add_note(Kept.load(self.id).told())

    def _forget(self) -> None:
        if self._begins:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Kept:
    """A study that was kept, and what is known of it."""

    id: str
    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def load(cls, id: str, *, damaged: bool = False) -> Self:
        """By its id, or by so much of it that there is one; one that cannot be read only where `damaged` will do."""
        found = [path for path in _folders() if path.name.startswith(id)] if id else []
        if len(found) != 1:
            which = "no result" if not found else "several results"
            raise BadInput(f"there is {which} kept under {id!r}: 'zerosum results' lists them")
        return next(each for each in cls.all() if each.folder == found[0]) if damaged else cls._read(found[0])

    @classmethod
    def all(cls) -> list[Self]:
        """Every one, the oldest first; one that cannot be read does not hide the others."""
        found = []
        for folder in _folders():
            try:
                found.append(cls._read(folder))
            except BadInput:
                found.append(cls(folder.name, folder, {"id": folder.name, "damaged": True} | _UNKNOWN))
        return sorted(found, key=lambda each: str(each.about["began"]))

    @classmethod
    def _read(cls, folder: Path) -> Self:
        try:
            about = json.loads((folder / "about.json").read_bytes())
            if not (isinstance(about, dict) and about.keys() >= _UNKNOWN.keys() and _readable(about)):
                raise ValueError("about.json is not as it was written")
            return cls(folder.name, folder, about)
        except (OSError, ValueError) as error:
            raise BadInput(f"what is kept in {folder} cannot be read: {error}") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """What `result.json` holds, where there is a result."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "result" / "result.json").read_bytes())
            if not (isinstance(found, dict) and found.keys() >= {"algorithm", "estimate", "participants", "privacy"}):
                raise ValueError("result.json is not as it was written")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadInput(f"the result kept in {self.folder} cannot be read: {error}") from None
        return found

    def spent(self) -> dict[str, float | None]:
        """The exact epsilon that each site's ledger was charged for this study, at the study's delta; None where the
        ledger cannot be read from here."""
        charged: dict[str, float | None] = {}
        for site, (path, counter) in self.about[_LEDGERS].items():
            try:
                with Ledger.inspect(Path(path), counter=Path(counter)) as ledger:
                    mine = [each for each in ledger.entries() if each.spend.study == self.about["study"]]
                    total = Total().plus((each.spend, each.charged_mu) for each in mine)
                charged[site] = total.epsilon(self._delta) if mine else 0.0
            except ZerosumError:
                charged[site] = None
        return charged

    @property
    def _delta(self) -> float:
        try:
            if (result := self.result) is not None:
                return float(result["privacy"]["delta"])
            with _opened(self._journal) as journal:
                return journal.plan.delta
        except BadInput:
            return 1e-5

    @property
    def _journal(self) -> Path:
        return Path(self.about["journal"] or self.folder)

    def as_record(self) -> dict[str, Any]:
        """What came of the study: its result, or the rounds that were released and the one that was lost."""
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
            with _opened(self._journal) as journal:
                plan, released = journal.plan, len(journal.released_rounds())
                rounds = {"asked": journal.rounds, "released": released, "planned": plan.rounds}
        except BadInput as error:  # it was stopped before anything was asked, or its journal is gone or damaged
            state = "unreadable" if self._may_have_begun() else "not begun"
            return record | {"state": state, "algorithm": "", "rounds": nothing, "fault": str(error)}
        state = "released" if released == plan.rounds else "stopped" if rounds["asked"] else "not begun"
        report = privacy_report(plan).as_record()
        return record | {"state": state, "algorithm": plan.algorithm, "rounds": rounds, "privacy": report}

    def _may_have_begun(self) -> bool:
        """Whether a study whose journal cannot be read may have spent: nothing is spent before there is one."""
        if "damaged" in self.about or self.about["journal"] is not None or (self.folder / NAME).exists():
            return True
        spent = self.spent()
        there = [site for site, paths in self.about[_LEDGERS].items() if any(Path(each).exists() for each in paths)]
        return any(spent[site] != 0 for site in there)

    def told(self) -> str:
        """What is on record, in a sentence."""
        record = self.as_record()
        rounds, spent = record["rounds"], [each for each in record["spent"].values() if each is not None]
        cost = (
            f"epsilon {max(spent):.4f} at most was spent at a site" if spent else "what was spent stands in the ledgers"
        )
        lost, was = rounds["asked"] - rounds["released"], "was" if rounds["planned"] == 1 else "were"
        return (
            f"{cost}; {rounds['released']} of {counted(rounds['planned'], 'round')} {was} released"
            f"{f', {lost} may be lost' if lost else ''}; what is known is kept: 'zerosum results show {self.id}'"
        )

    def export(self, out: Path, algorithm: Algorithm | None = None) -> bool:
        """Write the result again, computed from the releases where it has to be; whether there is one. What was
        released otherwise: `record.json`, and `releases.npz` with the sum of every round."""
        if self.result is None:
            self._finish(algorithm)
        if self.result is not None:
            _copy(self.folder / "result", out)
            return True
        with _opened(self._journal) as journal:
            arrays = {f"round_{r + 1}": release.value for r, release in _releases(journal)}
        Result.place(out, {"record.json": self.as_record()}, {"releases.npz": arrays})
        return False

    def remove(self) -> None:
        """Take the study out of the state folder, and the room it holds with it. Refused while it is being run.

        Only what `Keeping` wrote is removed, what says that it is kept last: a removal that is cut short can be made
        again. Ledgers stay as they are, and so does a checkpoint.
        """
        if self.folder.is_symlink():
            raise Refused(f"{self.folder} is a link, and what is kept lies elsewhere: nothing was removed")
        ledgers = [Path(path).resolve() for pair in self.about[_LEDGERS].values() for path in pair]
        if any(path.is_relative_to(self.folder.resolve()) for path in ledgers):
            raise Refused(f"a ledger lies in {self.folder}: nothing was removed")
        try:
            journal = Journal.open(self._journal)  # which only one process can
        except Refused as error:
            raise Refused(f"the study {self.id} is being run: nothing was removed") from error
        except BadInput:
            journal = None
        try:
            if (self.folder / "result").exists():
                shutil.rmtree(self.folder / "result")
            for name in ("room", NAME, "about.json"):
                (self.folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # something else lies there
                self.folder.rmdir()
        except OSError as error:
            raise BadInput(f"what is kept in {self.folder} could not be removed: {error.strerror}") from error
        finally:
            if journal is not None:
                journal.close()

    def _finish(self, algorithm: Algorithm | None) -> None:
        """Compute the result from the releases, where all that the program asks for is there."""
        algorithm = algorithm or _program(self.about["program"])
        if algorithm is None:
            return
        with _opened(self._journal) as journal:
            plan = journal.plan
            if resolve(algorithm, plan).releases(plan.adjacency) != plan.releases:
                raise BadInput(f"the program is not the one of the study {plan.study!r}")
            try:
                outcome = conduct(plan, resolve(algorithm, plan).program(plan.adjacency), _Nobody(), journal=journal)
            except ZerosumError:
                return
        (self.folder / "room").unlink(missing_ok=True)
        result_of(outcome, self.id).write(self.folder / "result", private=True)


def _readable(about: Mapping[str, Any]) -> bool:
    """Whether the values of a record are of the kinds that were written."""
    texts, ledgers = [about["study"], about["began"], about["journal"] or ""], about[_LEDGERS]
    if not isinstance(ledgers, dict) or not all(isinstance(e, list) and len(e) == 2 for e in ledgers.values()):
        return False
    return all(isinstance(each, str) for each in texts + [path for pair in ledgers.values() for path in pair])


class _Nobody:
    """An engine without sites: what is not in the journal is not known."""

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        raise Refused("no site is asked again")


def _folders() -> list[Path]:
    folder = results_folder()
    return [path.parent for path in folder.glob("*/about.json")] if folder.is_dir() else []


def _opened(folder: Path) -> Journal:
    journal = Journal.inspect(folder)
    if journal is None:
        raise BadInput(f"the journal of the study is no longer in {folder}")
    return journal


def _releases(journal: Journal) -> Iterator[tuple[int, Any]]:
    for round in journal.released_rounds():
        try:
            release = journal.look(round)
        except Refused:  # of a long study: only that it was released
            continue
        if release is not None:
            yield round, release


def _copy(source: Path, out: Path) -> None:
    Result.place(out, {}, {}, {path.name: path.read_bytes() for path in source.iterdir()})


def _bytes(plan: Plan) -> Iterator[int]:
    """What each release takes in a journal."""
    units = sum(site.units or 1 for site in plan.sites)
    for release in plan.releases:
        yield release.steps * (1024 + 8 * release.size * (units if release.kind == "publication" else 1))
    yield (plan.attempts + 1) * (1024 + 8 * max(release.size for release in plan.releases))
    yield len(plan.sites) * (256 + 32 * (plan.rounds + plan.attempts))  # public keys of the secure sum


def room_of(plan: Plan) -> int:
    """Bytes of a result, generously: as text and as numbers, each with its error."""
    numbers = sum(release.size for release in plan.releases)
    return min((1 << 18) + 48 * numbers + 200 * plan.rounds, _MOST // 2)


def _written(algorithm: Algorithm) -> dict[str, Any] | None:
    """A program in words, where it is one of ours and can be read back."""
    if algorithms.ALGORITHMS.get(algorithm.name) is not type(algorithm):
        return None
    values = {name: getattr(algorithm, name) for name in type(algorithm).model_fields}
    if sum(value.size for value in values.values() if isinstance(value, np.ndarray)) > _NUMBERS:
        return None
    try:
        parameters = json.loads(json.dumps(values, default=_plain))
    except (TypeError, ValueError):
        return None
    return {"name": algorithm.name, "parameters": parameters}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError


def _program(written: Mapping[str, Any] | None) -> Algorithm | None:
    if written is None:
        return None
    try:
        return algorithms.build(written["name"], written["parameters"])
    except ZerosumError:
        return None
