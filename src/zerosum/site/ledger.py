"""A site's ledger: the spends of a population, recorded before a contribution leaves the site.

The order of steps makes it safe. For every contribution a site

    1. commits the spend to the ledger   SQLite, write-ahead log, synchronous=FULL: durable on return
    2. advances the counter              a small file: the number of entries, and the digest of the last one
    3. sends                             the caller, after `record` has returned

A crash before 1 leaves nothing recorded and nothing sent. A crash after 1 leaves a spend that may not have been sent.
So the ledger can count too much, never too little. The counter never runs ahead of the ledger. A ledger with fewer
entries, or with another digest at the counter's number, is an older copy and is refused. A ledger with more entries is
the result of a crash between 1 and 2, and the counter is brought up to it. The counter is written inside a write
transaction only, and always to the newest entry, so that two processes cannot move it back. Rolling back both files is
not detected: where that matters, keep the counter on another disk.

The ledger is one table of (number, body, digest). Row 0 names the account. Each digest is the SHA-256 of the digest
before it and the body, which is JSON with floats in the shortest form that reads back exactly. A body's `version` is
that of Zerosum when it was written (0.1 wrote none), its `plan` the digest of the plan. The file is created whole, by
one link, so that a ledger without row 0 is damaged.

A phase of many steps is one entry, charged whole at its first step. Every later step is a row of its own, which costs
nothing and is durable before the step leaves. So a site that restarts knows which steps were answered, and under which
plan they were paid for.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from zerosum.disk import make_folder
from zerosum.errors import BadParameter, BudgetExceeded, LedgerRefused
from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.site.accounting import decided
from zerosum.site.ledger_file import (
    START,
    as_json,
    beside,
    chained,
    connect,
    copy_file,
    create_file,
    read_counter,
    refusing,
    write_counter,
)
from zerosum.site.ledger_records import Account, Cap, Draw, Entry, Spend, StudyProgress, Total
from zerosum.version import VERSION

Asked = Callable[[], Mapping[str, Any]]


class Ledger:
    """One population's spends at one site. `open` it to record, `inspect` it to read, in a `with` block.

    >>> account = Account("cohort 7", "person", "replace-one")
    >>> spend = Spend("s1", 1, 0, "person", "mean", sensitivity=2.0, mu=0.5, request="c0ffee")
    >>> with Ledger.open(Path(tempfile.mkdtemp()) / "cohort.sqlite", account) as ledger:
    ...     ledger.record(spend, Cap(10.0, 1e-5)).number, round(ledger.epsilon(1e-5), 4)
    (1, 1.9931)
    """

    account: Account

    def __init__(
        self,
        path: Path,
        counter: Path,
        account: Account | None,
        called: Path | None = None,
        witness: tuple[int, str] | None = None,
    ) -> None:
        """Connect to an existing file; used by `open` and `inspect`.

        Parameters
        ----------
        path, counter:
            The ledger's file and its counter.
        account:
            The account that records; None: only to read.
        called:
            For a temporary copy, the original's path, which messages use.
        witness:
            For a temporary copy, the content of the counter before the copy was made.
        """
        self.path, self.counter, self._opener, self._passing = called or path, counter, account, called is not None
        self._witness, self.unwitnessed = witness, called is not None and witness is None
        self._closed = False
        self._mutex, self._process = threading.RLock(), os.getpid()
        with refusing(path):
            if path.stat().st_size == 0:  # SQLite would treat it as a new database and discard its log
                raise self._damaged("the file is empty")
            self._connection = connect(path)
        try:
            self.verify()
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def open(cls, path: Path, account: Account, *, counter: Path | None = None, create: bool = True) -> Self:
        """The account's ledger, verified. A new one if there is none, unless its counter or log shows
        that there was one.

        Parameters
        ----------
        path : Path
            The database.
        account : Account
            Must be the ledger's own.
        counter : Path, optional
            By default beside the ledger.
        create : bool
            Whether a ledger that does not exist is created.

        Raises
        ------
        LedgerRefused
            If the ledger is missing although its counter exists, is damaged, older than its counter, or of another
            account.
        """
        counter, log = counter or beside(path, ".counter"), beside(path, "-wal")
        with refusing(path):
            # The file exists before its log, and the log before a counter above 0. They are checked in reverse order,
            # so that
            # another process that creates a ledger at this moment is not mistaken for a loss.
            known, logged, exists = read_counter(counter), log.exists(), path.exists()
            if not exists and (logged or (known and known[0])):
                raise LedgerRefused(
                    f"the ledger {path} is missing, but {log if logged else counter} is there: bring back its"
                    " newest copy"
                )
            if not exists:
                if not create:
                    raise LedgerRefused(f"there is no ledger at {path}: check the path")
                make_folder(path.parent)
                create_file(path, account)
            make_folder(counter.parent)
        return cls(path, counter, account)

    @classmethod
    def inspect(cls, path: Path, *, counter: Path | None = None, copy: bool = False) -> Self:
        """Any ledger, verified, to read. Its account is read from the file, and the counter is not changed.

        A `copy`, as auditors have, and a ledger that cannot be written are read from a temporary copy. If the counter
        is missing there, it cannot be verified that the ledger is the newest one, and it is `unwitnessed`.

        Parameters
        ----------
        path : Path
            The database.
        counter : Path, optional
            By default beside the ledger.
        copy : bool
            Whether to read from a temporary copy in any case.
        """
        with refusing(path):
            if not path.is_file():
                raise LedgerRefused(f"there is no ledger at {path}: check the path")
            if not copy and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
                return cls(path, counter or beside(path, ".counter"), None)
            counter = counter or beside(path, ".counter")
            witness = read_counter(counter)  # read before the copy is made, so that the copy can only be newer
            with tempfile.TemporaryDirectory(prefix="zerosum-ledger-") as folder:
                own = Path(folder) / path.name
                copy_file(path, own)
                found = cls(own, counter, None, path, witness)
                found.close()  # all rows are in memory
            return found

    @property
    def usable(self) -> bool:
        """Whether this object may be used in this process: SQLite connections must not cross a fork."""
        return os.getpid() == self._process

    def close(self) -> None:
        """Close the connection. A ledger that was inspected from a copy stays readable from memory."""
        with self._mutex, refusing(self.path):
            self._closed = True
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(self, spend: Spend, cap: Cap, plan: str | None = None, asked: Asked | None = None) -> Entry:
        """Record a spend durably, or refuse it. The contribution may leave after this has returned.

        Parameters
        ----------
        spend:
            The spend; it names the request.
        cap:
            The population's cap; the spend is refused if the total would exceed it.
        plan:
            Digest of the plan. With it, the rounds of the study must go forward, all under this plan.
        asked:
            Returns the study in public words; called and recorded with a study's first entry only.
        """
        if not spend.request:
            raise BadParameter(f"{spend} names no request: give its digest")
        return decided(lambda: self._record(spend, cap, plan, asked))

    def _record(self, spend: Spend, cap: Cap, plan: str | None, asked: Asked | None) -> Entry:
        """The check against the cap and the insertion are in one write transaction, so that two processes cannot both
        pass.
        """
        with self._writing():
            # Inside the write transaction, whose lock no other process can hold at the same time: the decision is about
            # the rows that the new row will follow.
            self._in_turn(spend.study, spend.round, spend.attempt, plan)
            charged = self._fit([spend], cap)[0]
            fields = {"spend": spend.as_record(), "charged_mu": charged, "plan": plan, "cap": asdict(cap)}
            if asked is not None and spend.study not in self._standings:
                fields["asked"] = dict(asked())
            number = self._append(fields)
        return next(entry for entry in reversed(self._entries) if entry.number == number)

    def record_loss(self, spend: Spend, cap: Cap) -> None:
        """Record what entries that are lost may have cost. It is charged also if the total exceeds the cap then."""
        with self._writing():
            self._append({"spend": spend.as_record(), "charged_mu": spend.mu, "plan": None, "cap": asdict(cap)})

    @property
    def head(self) -> tuple[int, str]:
        """The number of the last row and its digest, as the counter has them."""
        with self._transaction("DEFERRED"):
            return len(self._digests) - 1, self._digests[-1]

    def digest(self, number: int) -> str:
        """The digest of a row."""
        with self._transaction("DEFERRED"):
            return self._digests[number]

    def draw(self, study: str, round: int, attempt: int, request: str, plan: str) -> Draw:
        """Record durably a step of the phase that this study reserved last. It costs nothing more.

        Parameters
        ----------
        study : str
            Name of the study.
        round, attempt : int
            The step.
        request : str
            Digest of the request in hex.
        plan : str
            Digest of the plan.
        """
        with self._writing():
            self._in_turn(study, round, attempt, plan)
            standing = self._standings.get(study, StudyProgress())
            # A step without a reservation was not paid for.
            if standing.left < 1:
                raise LedgerRefused(f"study {study!r} has no step left of what it reserved")
            step = {"study": study, "round": round, "attempt": attempt, "request": request}
            number = self._append({"draw": step | {"reservation": standing.reservation}, "plan": plan})
        return next(each for each in reversed(self._draws) if each.number == number)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A write transaction for one row; afterwards the row is read back and the counter advanced."""
        if self._opener is None:
            raise LedgerRefused(f"the ledger {self.path} was opened to be read: use Ledger.open to record")
        with self._transaction("IMMEDIATE"):
            yield
            self._connection.execute("COMMIT")
        # a second write transaction, so that no other process moves the counter meanwhile
        with self._transaction("IMMEDIATE"):
            self._advance()

    def _append(self, fields: dict[str, Any]) -> int:
        """Insert one row with its digest in the chain."""
        number, recorded = len(self._digests), datetime.now(UTC).isoformat(timespec="milliseconds")
        body = as_json(fields | {"version": VERSION, "number": number, "recorded": recorded})
        row = number, body, chained(self._digests[-1], body)
        self._connection.execute("INSERT INTO chain VALUES (?, ?, ?)", row)
        return number

    def _in_turn(self, study: str, round: int, attempt: int, plan: str | None) -> None:
        """Refuse a round that is over or an attempt that is used."""
        if plan is not None:
            standing = self._standings.get(study, StudyProgress())
            standing.check(study, plan)
            standing.check_turn(round, attempt)

    def standing(self, study: str, plan: str) -> StudyProgress:
        """The progress of a study; refused if the study is in this ledger under another plan."""
        with self._transaction("DEFERRED"):
            standing = self._standings.get(study, StudyProgress())
            standing.check(study, plan)
            return standing

    def check(self, spends: Iterable[Spend], cap: Cap, held: Iterable[Spend] = ()) -> None:
        """Refuse unless all of these could be recorded now, with `held` beside them. Nothing is recorded.

        Parameters
        ----------
        spends : iterable of Spend
            Spends that a plan still costs.
        cap : Cap
            The population's cap.
        held : iterable of Spend
            Reservations of other studies with consent.
        """
        decided(partial(self._check, list(spends), cap, list(held)))

    def _check(self, spends: Sequence[Spend], cap: Cap, held: Sequence[Spend]) -> None:
        """`check` in one consistent view of the ledger."""
        with self._transaction("DEFERRED"):
            self._fit(spends, cap, held)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Scope in which no other thread of this process records."""
        with self._mutex:
            yield

    def entries(self) -> list[Entry]:
        """All charged entries."""
        with self._transaction("DEFERRED"):
            return list(self._entries)

    def draws(self) -> list[Draw]:
        """The steps that were drawn from reservations, after the first of each."""
        with self._transaction("DEFERRED"):
            return list(self._draws)

    @property
    def mu(self) -> float:
        """The total mu of releases that were not sub-sampled."""
        with self._transaction("DEFERRED"):
            return self._total.mu

    @property
    def total(self) -> Total:
        """The total of all charges."""
        with self._transaction("DEFERRED"):
            return self._total

    def doubts(self) -> list[str | None]:
        """For every entry in order, what is wrong with the guarantee it was charged under, or None."""
        return [entry.doubt(self.account.adjacency) for entry in self.entries()]

    def epsilon(self, delta: float) -> float:
        """The epsilon that one unit has spent so far, sub-sampled releases included."""
        return self.total.epsilon(delta)

    def _repr_html_(self) -> str:
        """HTML for notebooks: each study, its question, and its cost."""
        from zerosum.site.ledger_summary import shown

        return shown(self)

    def verify(self) -> int:
        """Read all rows again and return their number; refuse a ledger with any fault."""
        if self._closed and self._passing:
            return len(self._digests) - 1
        with self._mutex:
            self._digests: list[str] = []  # digests of row 0 and of every entry
            self._entries: list[Entry] = []
            self._draws: list[Draw] = []
            self._standings: dict[str, StudyProgress] = {}
            self._known: set[tuple[str, int, int]] = set()  # the keys of all entries
            self._total = Total()
            with self._transaction("IMMEDIATE" if self._opener else "DEFERRED"):
                # Another mode than WAL has other durability rules, and a rollback journal beside a copy could undo
                # entries.
                mode = self._connection.execute("PRAGMA journal_mode").fetchone()[0]
                report = str(self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
                if (mode, report) != ("wal", "ok"):
                    raise self._damaged(f"in mode {mode!r} SQLite says {report.splitlines()[-1]!r}")
                if self._opener:
                    self._advance()
            return len(self._digests) - 1

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        """One consistent view of the ledger and its counter. Changes that are not committed inside are rolled back."""
        # SQLite's documentation forbids a connection across a fork: its locks belong to the process, and a child that
        # closes the file would release the parent's.
        if not self.usable:
            raise LedgerRefused(f"the ledger {self.path} was opened before a fork: open it in this process")
        if self._passing and self._closed:  # a temporary copy was verified whole and cannot change
            yield
            return
        with self._mutex, refusing(self.path):
            # IMMEDIATE takes the write lock at once. DEFERRED would take it at the first write, after the rows were
            # read, and fail if another process wrote in between.
            self._connection.execute(f"BEGIN {kind}")
            try:
                # The counter is read before the first row, so that the ledger can only be newer.
                known = self._witness if self._passing else read_counter(self.counter)
                self._absorb()
                self._compare(known)
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _absorb(self) -> None:
        """Read the last known row and all later ones, and check that each continues the chain."""
        # Only rows that are new to this object are read: the cost of a round does not grow with the age of the ledger.
        last = max(len(self._digests) - 1, 0)
        query = "SELECT number, body, digest FROM chain WHERE number >= ? ORDER BY number"
        rows = self._connection.execute(query, (last,)).fetchall()
        if not rows:
            raise self._damaged(f"row {last} is missing")
        for expected, (number, body, digest) in enumerate(rows, start=last):
            previous = self._digests[expected - 1] if expected else START
            if number != expected or digest != chained(previous, body):
                raise self._damaged(f"row {expected} does not match its digest")
            # The last known row is read again: a file that was replaced meanwhile has another digest there.
            if expected < len(self._digests):
                if digest != self._digests[expected]:
                    raise self._damaged(f"row {expected} was replaced")
                continue
            try:
                fields = json.loads(body)
                if expected == 0:
                    self._own(fields)
                elif "draw" in fields:
                    self._take_draw(Draw(expected, fields["recorded"], **fields["draw"]), fields["plan"])
                else:
                    spend, recorded = Spend(**fields["spend"]), fields["recorded"]
                    by = fields.get("version")  # entries of 0.1 have none
                    plan, asked = fields.get("plan"), fields.get("asked")
                    cap = Cap(**fields["cap"]) if "cap" in fields else None
                    charged = fields["charged_mu"]
                    self._take(Entry(expected, recorded, spend, charged, previous, digest, by, plan, asked, cap))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise self._damaged(f"row {expected} cannot be read ({error})") from error
            self._digests.append(digest)

    def _take(self, entry: Entry) -> None:
        """Add an entry to the totals and to its study's progress."""
        spend, before = entry.spend, self._standings.get(entry.spend.study, StudyProgress())
        reserved = entry.number, spend.steps - 1
        # an extra attempt at one step; the reservation of the phase continues
        if spend.attempt > 0 and spend.steps == 1:
            reserved = before.reservation, before.left
        self._total = self._total.plus([(spend, entry.charged_mu)])
        self._known.add(spend.key)
        self._entries.append(entry)
        self._standings[spend.study] = before.after(entry.plan, spend.round, spend.attempt, *reserved)

    def _take_draw(self, draw: Draw, plan: str) -> None:
        """Add a drawn step to its study's progress."""
        before = self._standings[draw.study]
        if before.left < 1 or draw.reservation != before.reservation:
            raise ValueError("a step without a reservation")
        self._known.add((draw.study, draw.round, draw.attempt))
        self._draws.append(draw)
        self._standings[draw.study] = before.after(plan, draw.round, draw.attempt, before.reservation, before.left - 1)

    def _own(self, fields: dict[str, Any]) -> None:
        """Check row 0: format and account."""
        if fields.pop("format") != 1:
            raise ValueError("written by another version")
        owner = Account(**fields)
        # Two populations, units or adjacencies in one ledger could not be composed: an entry of one says nothing about
        # the other.
        if self._opener and replace(self._opener, rows_per_unit=None) != owner:
            raise LedgerRefused(
                f"the ledger {self.path} belongs to {owner}, not to {self._opener}: give each its own ledger"
            )
        self.account = self._opener or owner

    def _compare(self, known: tuple[int, str] | None) -> None:
        """Refuse a ledger that is older than its counter, or that has lost its counter."""
        held = len(self._digests) - 1
        # Without its counter an older copy of the ledger looks complete, and what was spent since would be spent twice.
        if known is None and held and not self.unwitnessed:
            raise LedgerRefused(
                f"the ledger {self.path} holds {counted(held, 'entry', 'entries')}, but its counter {self.counter} is"
                " missing: bring back the counter"
            )
        if known and (known[0] > held or self._digests[known[0]] != known[1]):
            raise LedgerRefused(
                f"the ledger {self.path} is older than its counter, or another one: it holds"
                f" {counted(held, 'entry', 'entries')}, {self.counter} knows {known[0]}; bring back its newest copy"
            )

    def _advance(self) -> None:
        """Bring the counter up to the newest entry. Only inside a write transaction."""
        head = len(self._digests) - 1, self._digests[-1]
        if read_counter(self.counter) == head:
            return
        write_counter(self.counter, *head)

    def _fit(self, spends: Sequence[Spend], cap: Cap, held: Sequence[Spend] = ()) -> list[float]:
        """The mu that each spend is charged. Refused if a spend is known already, or if the total with these and with
        `held` exceeds the cap.

        Parameters
        ----------
        spends, held : sequence of Spend
            Spends to be recorded, and reservations beside them.
        cap : Cap
            The population's cap.

        Returns
        -------
        list of float
            The charged mu of each of `spends`.
        """
        fresh: set[tuple[str, int, int]] = set()
        for spend in spends:
            # The key is (study, round, attempt). A second charge for the same key would mean a second noisy answer to
            # the same request, whose average has less noise.
            if spend.key in self._known or spend.key in fresh:
                raise LedgerRefused(f"{spend} is in the ledger already: what was sent once is not sent again")
            fresh.add(spend.key)
        asked = [(spend, self.account.charge(spend)) for spend in spends]
        others = [(spend, self.account.charge(spend)) for spend in held]
        total = self._total.plus(asked + others).epsilon(cap.delta)
        if cap.exceeded(total):
            before = format_epsilon(self._total.epsilon(cap.delta))
            more = format_epsilon(Total().plus(asked).epsilon(cap.delta))
            promised = format_epsilon(Total().plus(others).epsilon(cap.delta)) if others else ""
            raise BudgetExceeded(
                f"population {self.account.population!r} has spent epsilon {before}, {more} was asked for,"
                f"{' some is held back for other studies that were agreed to,' if promised else ''}"
                f" and together that is {format_epsilon(total)} at delta {cap.delta:g}, above its lifetime cap of"
                f" {cap.epsilon:g}: ask for less, or for other people",
                detail=f"held back is epsilon {promised}" if promised else "",
            )
        return [mu for _, mu in asked]

    def _damaged(self, how: str) -> LedgerRefused:
        """The error for a ledger that does not fit its own digests; `how` states the fault."""
        return LedgerRefused(f"the ledger {self.path} is damaged ({how}): bring back its newest copy")
