"""The coordinator's journal: what it asked and what was released, on the disk before anything else happens.

A journal is one file that only grows. First the plan; then, for every attempt at a round, a record before anything is
sent (round, attempt, digest of the request) and one with the release once it is there, before the program sees it; at
last that the study is over. The secure sum's public keys are there from when they were shared, so that a study goes on
with the sites that have theirs still. Before the first round there may be a record about sites that are left out, as
the plan allows. A study that was killed is continued by giving the releases to its program again.

    "zerosum journal 1\\n"
    8 bytes     length of a record
    32 bytes    SHA-256 of the digest before and the record
    ...         the record: a line of JSON, and the numbers of a release as little-endian doubles

A record is synced before the next one is begun, so only the last can be torn. Then nothing rests on it yet: it is
dropped. A fault before the last record is damage, and refused. Nothing in a journal is private: releases are what the
coordinator may see of a study, and the request digests name public parameters.

Room for records that are yet to come may be reserved (zeros at the end of the file), so that a disk which fills up
meanwhile is not full for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from zerosum.arrays import Floats
from zerosum.disk import make_folder, sync_folder
from zerosum.errors import Abandoned, BadInput, Refused
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Release

if sys.platform != "win32":
    import fcntl

NAME = "journal"
_MAGIC = b"zerosum journal 1\n"
_HEAD = struct.Struct(">Q8s32s")  # a record's length, what that is known by, and the chain's digest with the record
_START = bytes(32)  # the digest before the first record


@dataclass
class _Round:
    request: str
    session: str | None  # whose keys the last attempt was asked under
    attempt: int = 0  # the last one
    listed: tuple[str, ...] | None = None  # whose vectors are in its secure sum, once that is settled
    release: tuple[int, int] | None = None  # where in the file, and how long


class Journal:
    """One study's journal, open for writing by one process. Use it in a `with` block."""

    plan: Plan
    original: Plan  # before any site was left out

    def __init__(self, path: Path, *, writing: bool = True, numbers: bool = True, plan: Plan | None = None) -> None:
        """For `create`, `open` and `inspect`: read a journal from its beginning, and go on at its end."""
        self.path, self.finished, self.extra = path, False, 0
        self._writing, self._numbers, self._created = writing, numbers, plan
        self.session: str | None = None  # digest of the sites' keys in the last set-up that was completed
        self._keys: tuple[int, int] | None = None  # where in the file they are, and how long
        self._rounds: list[_Round] = []
        self._digest, self._end = _START, 0
        with _refusing(path):
            self._file: BinaryIO = path.open("r+b" if writing else "rb")
        try:
            with _refusing(path):
                if writing:
                    self._lock()
                self._read()
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def create(cls, folder: Path, plan: Plan, *, numbers: bool = True) -> Self:
        """A new journal, which appears whole, with its plan, and never over another one.

        Without `numbers` it says which rounds were released and not what: a record, from which nobody can go on.
        """
        path = folder / NAME
        with _refusing(path):
            make_folder(folder)
            handle, name = tempfile.mkstemp(prefix=f".{NAME}-", dir=folder)  # mode 0600
            try:
                with os.fdopen(handle, "wb") as file:
                    record = _packed({"kind": "plan"}) + plan.to_json()
                    file.write(_MAGIC + _head(len(record), _chained(_START, record)) + record)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(name, path)
            finally:
                Path(name).unlink(missing_ok=True)
            with suppress(PermissionError):
                sync_folder(folder)
        return cls(path, numbers=numbers, plan=plan)

    @classmethod
    def inspect(cls, folder: Path) -> Self | None:
        """The journal in a folder, if there is one, to read: whoever is at work with it is not disturbed."""
        path = folder / NAME
        return cls(path, writing=False) if path.exists() else None

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        """The journal in a folder, if there is one."""
        path = folder / NAME
        return cls(path) if path.exists() else None

    def reserve(self, size: int) -> None:
        """Keep room on the disk for so many bytes of records, or refuse while nothing has been asked."""
        if not hasattr(os, "posix_fallocate"):  # elsewhere a full disk is met when it is full
            return
        with _refusing(self.path):
            os.posix_fallocate(self._file.fileno(), self._end, max(size, 1))
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._writing and not self._file.closed:
            with suppress(OSError):
                self._file.truncate(self._end)  # what was reserved and not used
        with suppress(OSError):  # of a full disk, once more: `_write` has said so, and a torn record is dropped
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what is known --------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """How many rounds were asked."""
        return len(self._rounds)

    def settled(self, round: int) -> bool:
        """Whether it is known what came of a round: a release, or nothing and the program went on."""
        if self.finished or round + 1 < len(self._rounds):
            return True
        return round < len(self._rounds) and self._rounds[round].release is not None

    def in_flight(self, round: int) -> bool:
        """Whether a round was asked, and what came of it is not known."""
        return round < len(self._rounds) and not self.settled(round)

    def attempt(self, round: int) -> int:
        """The last attempt at a round that was asked."""
        return self._rounds[round].attempt

    def same_keys(self, round: int) -> bool:
        """Whether the last attempt at a round was asked under the keys of the last set-up: sites may have made new ones
        since, and the study been stopped before it was asked again."""
        return self._rounds[round].session == self.session

    def keys(self) -> bytes | None:
        """Everybody's public keys of the last set-up; earlier versions kept none."""
        if self._keys is None:
            return None
        with _refusing(self.path):
            self._file.seek(self._keys[0])
            return _unpacked(self._file.read(self._keys[1]))[1] or None

    @property
    def spare(self) -> int:
        """How many sites the study can go on without: a secure sum needs the keys of those who are away."""
        if not self._rounds or (self.plan.scheme.facts.secure and self.keys() is None):
            return 0
        return self.plan.coalition.dropouts

    def listed(self, round: int, attempt: int) -> tuple[str, ...] | None:
        """Whose vectors the sites were told are in the sum of an attempt, if they were told."""
        known = self._rounds[round] if round < len(self._rounds) else None
        return known.listed if known is not None and known.attempt == attempt else None

    def recall(self, round: int, request: str) -> Release:
        """What came of a settled round; the program must have asked for the same."""
        self._same(round, request)
        release = self.look(round)
        if release is None:
            raise Abandoned(f"round {round + 1} was abandoned")
        return release

    def released_rounds(self) -> tuple[int, ...]:
        """The rounds whose release is known to have arrived."""
        return tuple(at for at, each in enumerate(self._rounds) if each.release is not None)

    def look(self, round: int) -> Release | None:
        """The release of a round, where it was written down."""
        place = self._rounds[round].release
        if place is None:
            return None
        with _refusing(self.path):
            self._file.seek(place[0])
            fields, numbers = _unpacked(self._file.read(place[1]))
        if not fields.get("kept", True):
            raise Refused(f"the journal {self.path} says that round {round + 1} was released, and not what")
        value: Floats = np.frombuffer(numbers, dtype="<f8").astype(np.float64).reshape(fields["shape"])
        return Release(value, fields["noise_std"], fields["units"], tuple(fields["names"]), tuple(fields["rows"]))

    def _same(self, round: int, request: str) -> None:
        if round >= len(self._rounds) or self._rounds[round].request != request:
            raise Refused(
                f"the program asks for something else in round {round + 1} than is written in the journal {self.path}: "
                "continue with the same version of everything, or begin anew in another folder"
            )

    # ---- what is written down ---------------------------------------------------------------------------------------

    def asked(self, round: int, attempt: int, request: str) -> None:
        """Before anything is sent."""
        self._write({"kind": "asked", "round": round, "attempt": attempt, "request": request})

    def set_up(self, keys: bytes) -> None:
        """Once the secure sum is set up, and before any round is asked under everybody's public keys."""
        session = hashlib.sha256(keys).hexdigest()
        kept = keys if self.plan.coalition.dropouts else b""  # without losses everybody must be there anyway
        if session != self.session or (kept and self.keys() is None):
            self._write({"kind": "session", "session": session}, kept)

    def settled_list(self, round: int, attempt: int, names: Sequence[str]) -> None:
        """Before sites are told whose vectors are in a sum: they sign one list and no other."""
        if self.listed(round, attempt) is None:
            self._write({"kind": "listed", "round": round, "attempt": attempt, "names": list(names)})

    def released(self, round: int, release: Release) -> None:
        """Before the program sees it."""
        fields = {"kind": "release", "round": round, "noise_std": release.noise_std, "units": release.units}
        fields |= {"names": release.participants, "rows": release.rows, "shape": release.value.shape}
        if not self._numbers:
            self._write(fields | {"kept": False})
            return
        self._write(fields, np.ascontiguousarray(release.value, dtype="<f8").reshape(-1).view(np.uint8).data)

    def leave_out(self, names: Sequence[str]) -> None:
        """Go on without these sites, before anything is asked; refused where the plan does not allow it."""
        if self._rounds or self.finished:
            raise Refused("the study has begun: what was asked under one plan is not continued under another")
        self.plan.without(names)  # before it is written down
        self._write({"kind": "without", "names": list(names)})

    def finish(self) -> None:
        """The program has returned; to whoever only reads, that is nothing to write down."""
        if self._writing and not self.finished:
            self._write({"kind": "done"})

    def _write(self, fields: dict[str, Any], numbers: bytes | memoryview = b"") -> None:
        text = _packed(fields)
        length, digest = len(text) + len(numbers), _chained(self._digest, text, numbers)
        with _refusing(self.path):
            at = self._file.seek(self._end)
            self._file.write(_head(length, digest) + text)
            self._file.write(numbers)
            self._file.flush()
            os.fsync(self._file.fileno())
        self._take(fields, at + _HEAD.size, length)
        self._digest, self._end = digest, at + _HEAD.size + length

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise self._damaged("it does not begin as one")
        at = len(_MAGIC)
        while at < size:
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                self._drop(at, last=True)
                break
            length, mark, digest = _HEAD.unpack(head)
            if mark != _mark(length):  # else a length that was changed would make everything behind it a torn record
                self._drop(at, self._nothing_after(at + _HEAD.size))
                break
            end = at + _HEAD.size + length
            record = self._file.read(length) if end <= size else b""
            if end > size or digest != _chained(self._digest, record):
                self._drop(at, end >= size or self._nothing_after(end))
                break
            fields, text = _unpacked(record)
            if at == len(_MAGIC):
                self.plan = self.original = self._created or Plan.from_json(text)
            try:
                self._take(fields, at + _HEAD.size, length)
            except (LookupError, TypeError) as error:
                raise self._damaged(f"a record at {at} makes no sense") from error
            self._digest, at = digest, end
        self._end = at
        if not hasattr(self, "plan"):
            raise self._damaged("it holds no plan")

    def _nothing_after(self, at: int) -> bool:
        """Whether the rest is zeros: reserved, or what some file systems leave where a write was cut off."""
        self._file.seek(at)
        return not any(any(part) for part in iter(lambda: self._file.read(1 << 16), b""))

    def _drop(self, at: int, last: bool) -> None:
        """What follows is no record: the last one, torn, or damage."""
        if not hasattr(self, "plan"):
            raise self._damaged("it holds no plan")
        if not last:
            raise self._damaged(f"the record at {at} does not match its digest")
        if self._writing:
            self._file.truncate(at)
            os.fsync(self._file.fileno())

    def _take(self, fields: dict[str, Any], at: int, length: int) -> None:
        match fields["kind"]:
            case "asked":
                if fields["round"] == len(self._rounds):
                    self._rounds.append(_Round(fields["request"], self.session))
                self._same(fields["round"], fields["request"])
                if (known := self._rounds[fields["round"]]).attempt != fields["attempt"]:
                    known.attempt, known.listed, known.session = fields["attempt"], None, self.session
                self.extra = max(self.extra, fields["attempt"])
            case "session":
                self.session, self._keys = fields["session"], (at, length)
            case "listed":
                self._rounds[fields["round"]].listed = tuple(fields["names"])
            case "release":
                self._rounds[fields["round"]].release = at, length
            case "without":
                self.plan = self.plan.without(fields["names"])
            case "done":
                self.finished = True

    def _lock(self) -> None:
        if sys.platform != "win32":
            for _ in range(10):
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # a monitor holds it for a moment to see whether anybody is at work
                    time.sleep(0.02)
                else:
                    return
            raise Refused(f"another process is at work with the journal {self.path}")

    def _damaged(self, how: str) -> BadInput:
        return BadInput(f"the journal {self.path} is damaged: {how}")


def _packed(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _unpacked(record: bytes) -> tuple[dict[str, Any], bytes]:
    text, _, numbers = record.partition(b"\n")
    fields: dict[str, Any] = json.loads(text)
    return fields, numbers


def _head(length: int, digest: bytes) -> bytes:
    return _HEAD.pack(length, _mark(length), digest)


def _mark(length: int) -> bytes:
    return hashlib.sha256(b"length" + length.to_bytes(8, "big")).digest()[:8]


def _chained(before: bytes, *parts: bytes | memoryview) -> bytes:
    chain = hashlib.sha256(before)
    for part in parts:
        chain.update(part)
    return chain.digest()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"the journal {path} cannot be used: {error.strerror or error}") from error
