"""State of a site for its steward: waiting plans, studies, ledger, audit log.

Read from the site's own files (`site.toml`, `state/`, ledger) with the user's permissions. Data are not read. Details
in the audit log, which may describe data, are left out.
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
from zerosum.site.decisions import Consents, Decision
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_summary import statement
from zerosum.site.policy import Policy
from zerosum.site.steward import decide
from zerosum.study.site_file import SiteFile
from zerosum.watch.cache import TimedCache

# waits: for the steward's decision; approved: not yet begun; refused: by the steward; agreed: under way; over: the last
# round was answered; stopped: interrupted, or without news.
State = Literal["waits", "approved", "refused", "agreed", "over", "stopped"]
_MOST_LINES = 200  # audit log lines in memory, of each study and of all
_MOST_PLANS = 5000  # newest studies of the log in memory


@dataclass(frozen=True)
class LedgerState:
    """Content of the ledger at the last reading. Epsilon values are at the cap's delta."""

    epsilon: float = 0.0
    delta: float = 0.0
    cap: float = 0.0
    left: float = 0.0  # largest epsilon of one more study
    releases: int = 0
    # lines of the ledger statement by study name
    studies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    known: bool = False  # whether the ledger was read
    fault: str = ""  # reason why it cannot be read now


@dataclass(frozen=True)
class LogLine:
    """One event of the audit log."""

    time: str
    event: str
    text: str


@dataclass(frozen=True)
class StudyState:
    """One study at this site.

    Attributes
    ----------
    key : str
        Key in addresses: the digest of the plan, or of the name for old ledger entries.
    state : State
        State shown on the page.
    plan : str
        Digest of the plan, if known.
    columns : tuple of str
        Columns that the study asks about.
    rounds, planned : int
        Rounds answered by this site, and planned rounds.
    first, last : str
        Times of the first and the latest event.
    epsilon : float or None
        Epsilon charged at this site.
    reason : str
        Reason of a refusal.
    """

    key: str
    name: str
    state: State
    plan: str = ""  # digest
    algorithm: str = ""
    columns: tuple[str, ...] = ()
    rounds: int = 0  # rounds answered by this site
    planned: int = 0
    first: str = ""
    last: str = ""
    epsilon: float | None = None
    reason: str = ""


@dataclass
class _PlanEvents:
    """Events of one plan in the audit log."""

    study: str
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=_MOST_LINES))
    first: str = ""
    last: str = ""
    rounds: set[int] = field(default_factory=set)
    planned: int = 0
    agreed: bool = False


class LogReader:
    """Follows an audit log incrementally. Malformed lines are counted and skipped. A replaced log is read from its
    start."""

    def __init__(self, path: Path) -> None:
        # Bytes that were read, and the inode they were read from.
        self._path, self._at, self._file = path, 0, 0
        self.lines: deque[LogLine] = deque(maxlen=_MOST_LINES)
        self.plans: dict[str, _PlanEvents] = {}
        self.faulty = 0

    def follow(self) -> None:
        """Read the lines appended since the last call. Raises `BadInput`."""
        try:
            with self._path.open("rb") as file:
                stat = self._path.stat()
                # A rotated or truncated log.
                if stat.st_ino != self._file or stat.st_size < self._at:
                    self._at, self._file, self.faulty, self.plans = 0, stat.st_ino, 0, {}
                    self.lines.clear()
                file.seek(self._at)
                for raw in file:
                    if not raw.endswith(b"\n"):  # incomplete line
                        break
                    self._at += len(raw)
                    self._take(raw)
        except FileNotFoundError:
            return
        except OSError as error:
            raise BadInput(f"the audit log cannot be read: {error.strerror or error}") from None

    def _take(self, raw: bytes) -> None:
        """Process one line."""
        try:
            record = json.loads(raw)
            line = LogLine(str(record["time"]), str(record["event"]), str(record["words"]))
            digest, study = record.get("plan"), str(record.get("study", ""))
            round, rounds = record.get("round"), record.get("rounds")
        # One malformed line must not hide the others.
        except (ValueError, TypeError, KeyError, AttributeError):
            self.faulty += 1
            return
        self.lines.append(line)
        # A restarted site has no study under way until it consents again.
        if line.event in ("started", "stopped"):
            for each in self.plans.values():
                each.agreed = False
        if not isinstance(digest, str):
            return
        events = self.plans.pop(digest, None) or _PlanEvents(study, first=line.time)
        self.plans[digest] = events  # re-inserted, so that the order is that of the latest event
        # The oldest by its latest event.
        if len(self.plans) > _MOST_PLANS:
            self.plans.pop(next(iter(self.plans)))
        events.lines.append(line)
        events.last = line.time
        if isinstance(rounds, int):
            events.planned = rounds
        if line.event == "consented":
            events.agreed = True
        # A set, since a repeated attempt logs the same round again.
        if line.event == "released" and isinstance(round, int):
            events.rounds.add(round)


class LedgerReader:
    """Reads a ledger again after its files change. Reading uses a separate thread, because another process may hold the
    lock of the ledger."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._latest, self._mark = LedgerState(), ()
        self._thread: threading.Thread | None = None

    def latest(self, policy: Policy, patience: float = 2.0) -> LedgerState:
        """The last reading. Waits up to `patience` seconds only if there is none yet."""
        with self._mutex:
            # Reading the ledger starts only when its files changed.
            mark = _mark(policy)
            if mark != self._mark and (self._thread is None or not self._thread.is_alive()):
                self._mark = mark
                self._thread = threading.Thread(target=self._read, args=(policy,), name="zerosum-ledger", daemon=True)
                self._thread.start()
            thread, first = self._thread, not self._latest.known
        if thread is not None and first:
            # Outside the lock: other pages are not blocked while this one waits for the first reading.
            thread.join(patience)
        with self._mutex:
            if not self._latest.known and thread is not None and thread.is_alive():
                return replace(self._latest, fault="the ledger is being read, or another process holds it")
            return self._latest

    def _read(self, policy: Policy) -> None:
        """Read the ledger (in its thread)."""
        try:
            entries = _read_ledger(policy)
        except ZerosumError as error:
            with self._mutex:
                # The former figures stay on the page, with the fault beside them.
                self._mark = ()  # the next call tries again
                self._latest = replace(self._latest, fault=str(error))
            return
        with self._mutex:
            self._latest = entries


def _mark(policy: Policy) -> tuple[Any, ...]:
    """Tuple that changes with every spend and with the cap."""
    path, marks = policy.ledger_path, []
    for each in (path, path.with_name(f"{path.name}-wal"), policy.counter_path):
        with suppress(OSError):
            stat = each.stat()
            # SQLite writes to the file with the suffix -wal first, and the counter changes with every charge.
            marks.append((stat.st_mtime_ns, stat.st_size))
    return (str(path), policy.cap, *marks)


def _read_ledger(policy: Policy) -> LedgerState:
    """Read and sum up the ledger of a policy."""
    cap = policy.cap
    if not policy.ledger_path.exists():
        return LedgerState(0.0, cap.delta, cap.epsilon, cap.epsilon, known=True)
    with Ledger.inspect(policy.ledger_path, counter=policy.counter_path) as ledger:
        record = statement(ledger, cap)
    studies = {line["study"]: line for line in record["studies"]}
    return LedgerState(
        record["epsilon"], cap.delta, cap.epsilon, record["left"], len(record["entries"]), studies, known=True
    )


@dataclass(frozen=True)
class SiteState:
    """Snapshot of all content of a site's pages.

    Attributes
    ----------
    automatic : bool
        Whether plans that fit the policy need no steward.
    serves : bool
        Whether the site's process answers at its socket.
    ledger : LedgerState
        Ledger at the last reading.
    studies : tuple of StudyState
        Studies, newest first.
    lines : tuple of LogLine
        Latest events of the audit log.
    faults : tuple of str
        Parts that cannot be read.
    """

    name: str
    population: str
    unit: str
    automatic: bool
    serves: bool
    ledger: LedgerState
    studies: tuple[StudyState, ...]  # newest first
    lines: tuple[LogLine, ...]
    faults: tuple[str, ...]


class SiteReader:
    """Reads the state of a site from its site file, and stores decisions.

    The reader works beside the site's own process and holds none of its locks for long: it follows the audit log, reads
    the ledger in a thread, and asks the socket whether the process answers.

    Parameters
    ----------
    file : Path
        The site file (`site.toml`). It is loaded again when it changes.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._loaded = SiteFile.load(file)
        self._policy = self._loaded.own_policy()
        self._changed = file.stat().st_mtime_ns
        self._fault = ""
        self._log = LogReader(self._loaded.audit_log)
        self._ledger = LedgerReader()
        self._serving = TimedCache(lambda: alive(self._loaded.socket, 2.0), seconds=3.0)
        # Plans by digest. A plan never changes under its digest, so an entry stays valid.
        self._plans: dict[str, Plan | None] = {}
        self._mutex = threading.Lock()

    @property
    def policy(self) -> Policy:
        """The policy, as last loaded."""
        return self._policy

    @property
    def name(self) -> str:
        """Name of the site."""
        return self._loaded.name

    @property
    def automatic(self) -> bool:
        """Whether plans that fit the policy need no steward."""
        return self._loaded.consent.automatic

    def consents(self) -> Consents:
        """Stored plans and decisions."""
        return Consents(self._loaded.state_folder, automatic=self.automatic)

    def plan(self, digest: str) -> Plan | None:
        """A waiting or decided plan by its digest; None if it was not stored."""
        # A plan that could not be read is tried again, since its file may arrive later. The cache is limited to 256
        # plans.
        if self._plans.get(digest) is None:
            if len(self._plans) > 256:
                self._plans.clear()
            try:
                self._plans[digest] = self.consents().plan(digest)
            except BadInput:
                self._plans[digest] = None
        return self._plans[digest]

    def decide(self, digest: str, decision: Decision, reason: str) -> str:
        """Approve or refuse a plan, as `zerosum site approve` and `refuse` do.

        Only a waiting, readable plan can be approved: the steward decides about the plan that was shown.
        """
        consents = self.consents()
        # A page may have been open for hours. A refusal is always possible, an approval only of what waits now.
        if decision == "approved" and digest not in consents.waiting():
            raise BadInput("this plan does not wait any more: it was approved or refused, or its file was removed")
        if decision == "approved" and self.plan(digest) is None:
            raise BadInput("the plan cannot be read, so it cannot have been read before the approval")
        log = AuditLog(self._loaded.audit_log)
        return decide(consents, log, digest, decision, reason=reason, where="on the page")

    def lines(self, digest: str) -> tuple[LogLine, ...]:
        """Audit log lines of a plan."""
        with self._mutex:  # another thread may be reading the log
            events = self._log.plans.get(digest)
            return () if events is None else tuple(events.lines)

    def state(self) -> SiteState:
        """Snapshot of the site. Thread-safe."""
        with self._mutex:
            return self._read()

    def _read(self) -> SiteState:
        """Snapshot of the site; the caller holds the lock. Unreadable parts become faults."""
        faults = [self._reload()]
        try:
            self._log.follow()
        except BadInput as error:
            faults.append(str(error))
        if self._log.faulty:
            faults.append(f"{counted(self._log.faulty, 'line')} of the audit log cannot be read")
        ledger, consents = self._ledger.latest(self._policy), self.consents()
        studies: dict[str, StudyState] = {}
        try:
            waiting = frozenset(consents.waiting())
        except OSError:
            waiting = frozenset()
            faults.append("the waiting plans cannot be read: check the permissions of the state folder")
        unread = 0
        # A dictionary as an ordered set: plans of the log, then those that wait without an event.
        for digest in {**dict.fromkeys(self._log.plans), **dict.fromkeys(waiting)}:
            try:
                studies[digest] = self._study(digest, consents, digest in waiting, ledger)
            except (ZerosumError, OSError):
                unread += 1
        if unread:
            plans = counted(unread, "plan")
            faults.append(f"the decisions about {plans} cannot be read: check the permissions of the state folder")
        named = {each.name for each in studies.values()}
        for name, line in ledger.studies.items():  # studies older than the log, and runs in one process
            if name not in named:
                study = _from_ledger(name, line)
                studies[study.key] = study
        order = sorted(studies.values(), key=lambda each: (each.last, each.key), reverse=True)
        return SiteState(
            self._loaded.name,
            self._policy.population,
            self._policy.unit,
            self.automatic,
            self._serving(),
            ledger,
            tuple(order),
            tuple(self._log.lines),
            tuple(fault for fault in faults if fault),
        )

    def _reload(self) -> str:
        """Reload a changed site file. On an error the former content stays valid, and the fault is returned."""
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

    def _study(self, digest: str, consents: Consents, waits: bool, ledger: LedgerState) -> StudyState:
        """One study from log, plan, decision and ledger."""
        events = self._log.plans.get(digest)
        # The file of a plan is read only where the log has nothing about it; a list of thousands of studies would
        # otherwise read as many files.
        plan = self.plan(digest) if waits or events is None else self._plans.get(digest)
        name = (
            events.study if events is not None and events.study else (plan.study if plan is not None else digest[:16])
        )
        line = ledger.studies.get(name, {})
        question = line.get("asked", {})
        rounds, planned = (len(events.rounds), events.planned) if events is not None else (0, 0)
        decision = None if waits else consents.decision(digest)
        first, last = (events.first, events.last) if events is not None else ("", "")
        return StudyState(
            digest,
            name,
            _state(waits, decision, events, planned),
            digest,
            str(question.get("algorithm") or (plan.algorithm if plan is not None else "")),
            tuple(question.get("columns") or (plan.question.columns if plan is not None else ())),
            rounds,
            planned or (plan.rounds if plan is not None else 0),
            first,
            last,
            line.get("epsilon"),
            consents.reason(digest) if decision == "refused" else "",
        )


def _state(waits: bool, decision: Decision | None, events: _PlanEvents | None, planned: int) -> State:
    """State of a study at this site."""
    if waits:
        return "waits"
    if decision == "refused":
        return "refused"
    # Rounds in the log are counted from 1, so the last round equals their number.
    if events is not None and planned and planned in events.rounds:
        return "over"
    if events is not None and events.agreed:
        return "agreed"
    # Rounds were answered but the site has no consented study now: interrupted. An approval without a round has not
    # begun.
    return "stopped" if events is not None and events.rounds else "approved" if decision == "approved" else "stopped"


def _from_ledger(name: str, line: Mapping[str, Any]) -> StudyState:
    """A study that is known from the ledger only."""
    question, plan = line["asked"], line["plan"] or ""
    return StudyState(
        # Entries of early versions have no digest of a plan; a digest of the name keeps the address free of characters
        # from others.
        plan or hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest(),
        name,
        "over",
        plan,
        question.get("algorithm", ", ".join(line["statistics"])),
        tuple(question.get("columns", ())),
        line["entries"],
        0,
        line["first"],
        line["last"],
        line["epsilon"],
    )
