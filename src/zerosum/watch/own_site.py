"""A site as its steward sees it: what waits, what is under way, what its ledger has spent and has left.

Read from the site's own files, by whoever may read them: `site.toml`, `state/` and the ledger. Data are not read, and
the details of the audit log, which may tell of data, are left out.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from zerosum.errors import BadInput, ZerosumError
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.protocol.stream import alive
from zerosum.site.audit_log import AuditLog
from zerosum.site.consents import Consents, Decision
from zerosum.site.ledger import Ledger
from zerosum.site.policy import Policy
from zerosum.site.statement import statement
from zerosum.site.steward import decide
from zerosum.study.site_file import SiteFile
from zerosum.watch.fresh import Fresh

State = Literal["waits", "approved", "refused", "agreed", "over", "stopped"]
_LINES = 200  # of the audit log that are kept in memory, of each study and of all
_SEEN = 5000  # studies that are remembered from the log, the newest


@dataclass(frozen=True)
class Account:
    """What stands in the ledger, as it was read last."""

    epsilon: float = 0.0
    delta: float = 0.0
    cap: float = 0.0
    left: float = 0.0  # what one more study may cost
    releases: int = 0
    studies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name, as a statement has them
    known: bool = False  # whether it was read at all
    fault: str = ""  # why it cannot be read just now


@dataclass(frozen=True)
class Line:
    time: str
    event: str
    words: str


@dataclass(frozen=True)
class Taken:
    """One study at this site."""

    key: str
    name: str
    state: State
    plan: str = ""  # digest
    algorithm: str = ""
    columns: tuple[str, ...] = ()
    rounds: int = 0  # that left
    planned: int = 0
    first: str = ""
    last: str = ""
    epsilon: float | None = None
    reason: str = ""


@dataclass
class _Seen:
    """What the log says of one plan."""

    study: str
    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=_LINES))
    first: str = ""
    last: str = ""
    rounds: set[int] = field(default_factory=set)
    planned: int = 0
    agreed: bool = False


class LogReader:
    """Follows an audit log: each line is read once, what is no line is passed by. A replaced log is read anew."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._file = path, 0, 0
        self.lines: deque[Line] = deque(maxlen=_LINES)
        self.plans: dict[str, _Seen] = {}
        self.faulty = 0

    def follow(self) -> None:
        try:
            with self._path.open("rb") as file:
                stat = self._path.stat()
                if stat.st_ino != self._file or stat.st_size < self._at:
                    self._at, self._file, self.faulty, self.plans = 0, stat.st_ino, 0, {}
                    self.lines.clear()
                file.seek(self._at)
                for raw in file:
                    if not raw.endswith(b"\n"):  # being written
                        break
                    self._at += len(raw)
                    self._take(raw)
        except FileNotFoundError:
            return
        except OSError as error:
            raise BadInput(f"the audit log cannot be read: {error.strerror or error}") from None

    def _take(self, raw: bytes) -> None:
        try:
            said = json.loads(raw)
            line = Line(str(said["time"]), str(said["event"]), str(said["words"]))
            digest, study = said.get("plan"), str(said.get("study", ""))
            round, rounds = said.get("round"), said.get("rounds")
        except (ValueError, TypeError, KeyError, AttributeError):
            self.faulty += 1
            return
        self.lines.append(line)
        if line.event in ("started", "stopped"):
            for each in self.plans.values():
                each.agreed = False
        if not isinstance(digest, str):
            return
        seen = self.plans.pop(digest, None) or _Seen(study, first=line.time)
        self.plans[digest] = seen  # the one heard of last is last
        if len(self.plans) > _SEEN:
            self.plans.pop(next(iter(self.plans)))
        seen.lines.append(line)
        seen.last = line.time
        if isinstance(rounds, int):
            seen.planned = rounds
        if line.event == "consented":
            seen.agreed = True
        if line.event == "released" and isinstance(round, int):
            seen.rounds.add(round)


class LedgerReader:
    """A ledger, read again whenever its files have changed, by a thread of its own: another process may hold it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._account, self._mark = Account(), ()
        self._thread: threading.Thread | None = None

    def latest(self, policy: Policy, patience: float = 2.0) -> Account:
        """What was read last. Only where nothing was read yet, it waits a little."""
        with self._mutex:
            mark = _mark(policy)
            if mark != self._mark and (self._thread is None or not self._thread.is_alive()):
                self._mark = mark
                self._thread = threading.Thread(target=self._read, args=(policy,), name="zerosum-ledger", daemon=True)
                self._thread.start()
            thread, first = self._thread, not self._account.known
        if thread is not None and first:
            thread.join(patience)
        with self._mutex:
            if not self._account.known and thread is not None and thread.is_alive():
                return replace(self._account, fault="the ledger is being read, or another process holds it")
            return self._account

    def _read(self, policy: Policy) -> None:
        try:
            found = _account(policy)
        except ZerosumError as error:
            with self._mutex:
                self._mark = ()  # and try again
                self._account = replace(self._account, fault=str(error))
            return
        with self._mutex:
            self._account = found


def _mark(policy: Policy) -> tuple[Any, ...]:
    """What changes whenever something is spent, or the cap is another one."""
    path, found = policy.ledger_path, []
    for each in (path, path.with_name(f"{path.name}-wal"), policy.counter_path):
        with suppress(OSError):
            stat = each.stat()
            found.append((stat.st_mtime_ns, stat.st_size))
    return (str(path), policy.cap, *found)


def _account(policy: Policy) -> Account:
    cap = policy.cap
    if not policy.ledger_path.exists():
        return Account(0.0, cap.delta, cap.epsilon, cap.epsilon, known=True)
    with Ledger.inspect(policy.ledger_path, counter=policy.counter_path) as ledger:
        said = statement(ledger, cap)
    studies = {line["study"]: line for line in said["studies"]}
    return Account(
        said["epsilon"], cap.delta, cap.epsilon, said["left"], len(said["entries"]), studies, known=True, fault=""
    )


@dataclass(frozen=True)
class Standing:
    """Everything that a site's page shows, at one moment."""

    name: str
    population: str
    unit: str
    automatic: bool
    serves: bool
    account: Account
    studies: tuple[Taken, ...]  # the newest first
    lines: tuple[Line, ...]
    faults: tuple[str, ...]


class OwnSite:
    """A site, found by its file as `zerosum site` finds it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._loaded = SiteFile.load(file)
        self._policy = self._loaded.own_policy()
        self._changed = file.stat().st_mtime_ns
        self._fault = ""
        self._log = LogReader(self._loaded.audit_log)
        self._ledger = LedgerReader()
        self._serving = Fresh(lambda: alive(self._loaded.socket, 2.0), seconds=3.0)
        self._plans: dict[str, Plan | None] = {}
        self._mutex = threading.Lock()

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def name(self) -> str:
        return self._loaded.name

    @property
    def automatic(self) -> bool:
        return self._loaded.consent.automatic

    def consents(self) -> Consents:
        return Consents(self._loaded.state_folder, automatic=self.automatic)

    def plan(self, digest: str) -> Plan | None:
        """A plan that waits or was decided about; None where it was not kept."""
        if self._plans.get(digest) is None:
            if len(self._plans) > 256:
                self._plans.clear()
            try:
                self._plans[digest] = self.consents().plan(digest)
            except BadInput:
                self._plans[digest] = None
        return self._plans[digest]

    def decide(self, digest: str, decision: Decision, reason: str) -> str:
        """As `zerosum site approve` and `refuse` do. An approval is of a plan that waits: what was read is decided."""
        consents = self.consents()
        if decision == "approved" and digest not in consents.waiting():
            raise BadInput("that plan does not wait here any more: it was decided about, or its file is gone")
        if decision == "approved" and self.plan(digest) is None:
            raise BadInput("the plan cannot be read, so nobody can have read it before approving")
        log = AuditLog(self._loaded.audit_log)
        return decide(consents, log, digest, decision, reason=reason, where="on the page")

    def lines(self, digest: str) -> tuple[Line, ...]:
        with self._mutex:  # another thread may be following the log
            seen = self._log.plans.get(digest)
            return () if seen is None else tuple(seen.lines)

    def standing(self) -> Standing:
        with self._mutex:
            return self._stands()

    def _stands(self) -> Standing:
        faults = [self._reload()]
        try:
            self._log.follow()
        except BadInput as error:
            faults.append(str(error))
        if self._log.faulty:
            faults.append(f"{counted(self._log.faulty, 'line')} of the audit log cannot be read")
        account, consents = self._ledger.latest(self._policy), self.consents()
        studies: dict[str, Taken] = {}
        try:
            waiting = frozenset(consents.waiting())
        except OSError:
            waiting = frozenset()
            faults.append("what waits cannot be read: who may read the state folder?")
        unread = 0
        for digest in {**dict.fromkeys(self._log.plans), **dict.fromkeys(waiting)}:
            try:
                studies[digest] = self._taken(digest, consents, digest in waiting, account)
            except (ZerosumError, OSError):
                unread += 1
        if unread:
            faults.append(
                f"what was decided about {counted(unread, 'plan')} cannot be read: who may read the state folder?"
            )
        named = {each.name for each in studies.values()}
        for name, line in account.studies.items():  # from before there was a log, or of a run in one process
            if name not in named:
                taken = _from_ledger(name, line)
                studies[taken.key] = taken
        order = sorted(studies.values(), key=lambda each: (each.last, each.key), reverse=True)
        return Standing(
            self._loaded.name,
            self._policy.population,
            self._policy.unit,
            self.automatic,
            self._serving(),
            account,
            tuple(order),
            tuple(self._log.lines),
            tuple(fault for fault in faults if fault),
        )

    def _reload(self) -> str:
        """Take up a changed file; a fault in it is told, and what was read before holds."""
        try:
            changed = self.file.stat().st_mtime_ns
            if changed != self._changed:
                loaded = SiteFile.load(self.file)
                policy = loaded.own_policy()
                if loaded.audit_log != self._loaded.audit_log:
                    self._log = LogReader(loaded.audit_log)
                self._loaded, self._policy, self._changed, self._fault = loaded, policy, changed, ""
        except (ZerosumError, OSError) as error:
            self._fault = str(error) if isinstance(error, ZerosumError) else f"the site file cannot be read: {error}"
        return self._fault

    def _taken(self, digest: str, consents: Consents, waits: bool, account: Account) -> Taken:
        seen = self._log.plans.get(digest)
        plan = self.plan(digest) if waits or seen is None else self._plans.get(digest)
        name = seen.study if seen is not None and seen.study else (plan.study if plan is not None else digest[:16])
        line = account.studies.get(name, {})
        asked = line.get("asked", {})
        rounds, planned = (len(seen.rounds), seen.planned) if seen is not None else (0, 0)
        decision = None if waits else consents.decision(digest)
        first, last = (seen.first, seen.last) if seen is not None else ("", "")
        return Taken(
            digest,
            name,
            _state(waits, decision, seen, planned),
            digest,
            str(asked.get("algorithm") or (plan.algorithm if plan is not None else "")),
            tuple(asked.get("columns") or (plan.question.columns if plan is not None else ())),
            rounds,
            planned or (plan.rounds if plan is not None else 0),
            first,
            last,
            line.get("epsilon"),
            consents.reason(digest) if decision == "refused" else "",
        )


def _state(waits: bool, decision: Decision | None, seen: _Seen | None, planned: int) -> State:
    if waits:
        return "waits"
    if decision == "refused":
        return "refused"
    if seen is not None and planned and planned in seen.rounds:
        return "over"
    if seen is not None and seen.agreed:
        return "agreed"
    return "stopped" if seen is not None and seen.rounds else "approved" if decision == "approved" else "stopped"


def _from_ledger(name: str, line: Mapping[str, Any]) -> Taken:
    asked, plan = line["asked"], line["plan"] or ""
    return Taken(
        plan or hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest(),
        name,
        "over",
        plan,
        asked.get("algorithm", ", ".join(line["statistics"])),
        tuple(asked.get("columns", ())),
        line["entries"],
        0,
        line["first"],
        line["last"],
        line["epsilon"],
    )
