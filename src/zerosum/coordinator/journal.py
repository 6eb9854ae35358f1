"""The coordinator's journal: requests and releases, on the disk before the study continues.

A journal is one file that only grows. The first record holds the plan. For every attempt at a round there is one record
before a message is sent (round, attempt, digest of the request), and one with the release when it has arrived, before
the program sees it. The last record marks the end of the study. The public keys of secure aggregation are recorded when
they were shared, so that a study continues with the sites that still have theirs. A fault of a site that counts as lost
has a record with its evidence and, as its payload, the proof of its guilt if there is one. A release under the secure
sum has the signed commitments of its sites, in the order of their names. Before the first round there may be a record
of sites that are left out, as the plan allows. An interrupted study is continued by giving the recorded releases to its
program again.

Format of the file. Integers are big-endian (`struct` format ">Q8s32s" for the head of a record, 48 bytes):

    "zerosum journal 1\\n"
    8 bytes     length of the record in bytes
    8 bytes     check of the length: the first 8 bytes of SHA-256 of "length" and the 8 bytes above
    32 bytes    SHA-256 of the digest before (32 zero bytes for the first record) and the record
    ...         the record: a line of JSON, then its payload: the plan as JSON, public keys, the numbers of a release as
                little-endian doubles and the commitments of its sites, a proof of guilt, or nothing

The check of the length exists because a changed length would make all that follows look like one torn record.

A record is synced before the next one is begun, so only the last record can be torn. No message depends on a torn
record, and it is dropped. A fault before the last record is damage, and the journal is refused. A journal contains
nothing private: releases are what the coordinator may see of a study, and the request digests name public parameters.

Space for later records may be reserved (zeros at the end of the file), so that they do not fail on a disk that fills up
meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from zerosum.arrays import Floats
from zerosum.coordinator.faults import Fault
from zerosum.disk import make_folder, sync_folder
from zerosum.errors import Abandoned, BadInput, Refused
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Release

if sys.platform != "win32":
    import fcntl

NAME = "journal"
_MAGIC = b"zerosum journal 1\n"
_HEAD = struct.Struct(">Q8s32s")  # length of the record, check of the length, digest of the chain with the record
_START = bytes(32)  # the digest before the first record


@dataclass
class _Round:
    """State of one round in the journal."""

    request: str
    session: str | None  # digest of the keys under which the last attempt was sent
    attempt: int = 0  # the last one
    listed: tuple[str, ...] | None = None  # sites whose vectors are in its secure sum, when that is fixed
    release: tuple[int, int] | None = None  # position in the file, and length


class Journal:
    """One study's journal, open for writing by one process. Use it in a `with` block."""

    plan: Plan
    original: Plan  # before any site was left out

    def __init__(self, path: Path, *, writing: bool = True, numbers: bool = True, plan: Plan | None = None) -> None:
        """Read a journal from its beginning and continue at its end; used by `create`, `open` and `inspect`.

        Parameters
        ----------
        path:
            The file.
        writing:
            Whether to lock the file and write to it.
        numbers:
            Whether releases are recorded with their numbers.
        plan:
            The plan of a journal that was just created; else it is read from the file.
        """
        self.path, self.finished, self.extra = path, False, 0
        self._writing, self._numbers, self._created = writing, numbers, plan
        self.session: str | None = None  # digest of the sites' keys in the last complete set-up
        self._keys: tuple[int, int] | None = None  # position of the keys in the file, and length
        self._rounds: list[_Round] = []
        self.faults: list[Fault] = []  # of sites that were lost, in their order
        self._proofs: list[tuple[int, int]] = []  # position of each fault in the file, and length
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
        """A new journal. It appears whole, with its plan, and never replaces another one.

        Without `numbers` it records which rounds were released and not their numbers; such a journal cannot be resumed.
        """
        path = folder / NAME
        with _refusing(path):
            make_folder(folder)
            # Written and synced under another name first: a crash leaves no journal or a whole one, never one without
            # its plan.
            handle, name = tempfile.mkstemp(prefix=f".{NAME}-", dir=folder)  # mode 0600
            try:
                with os.fdopen(handle, "wb") as file:
                    record = _packed({"kind": "plan"}) + plan.to_json()
                    file.write(_MAGIC + _head(len(record), _chained(_START, record)) + record)
                    file.flush()
                    os.fsync(file.fileno())
                # `link` fails if the name exists, so that two processes cannot create one journal each.
                os.link(name, path)
            finally:
                Path(name).unlink(missing_ok=True)
            # The new name is durable only after the folder is synced.
            with suppress(PermissionError):
                sync_folder(folder)
        return cls(path, numbers=numbers, plan=plan)

    @classmethod
    def inspect(cls, folder: Path) -> Self | None:
        """The journal in a folder, if there is one, to read. It takes no lock, so a running study is not disturbed."""
        path = folder / NAME
        return cls(path, writing=False) if path.exists() else None

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        """The journal in a folder, if there is one."""
        path = folder / NAME
        return cls(path) if path.exists() else None

    def reserve(self, size: int) -> None:
        """Reserve disk space for `size` bytes of records, or refuse before the first request."""
        if not hasattr(os, "posix_fallocate"):  # other systems detect a full disk at the next write
            return
        with _refusing(self.path):
            # The zeros behind the last record are part of the format: `_nothing_after` separates them from a damaged
            # record.
            os.posix_fallocate(self._file.fileno(), self._end, max(size, 1))
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._writing and not self._file.closed:
            with suppress(OSError):
                self._file.truncate(self._end)  # release the reserved space
        with suppress(OSError):  # a full disk again: `_write` has raised it, and a torn record is dropped
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what is known --------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Number of rounds that were requested."""
        return len(self._rounds)

    def settled(self, round: int) -> bool:
        """Whether the result of a round is known: a release, or an abandoned round after which the
        program continued.
        """
        # A later request proves that the program continued after this round, with a release or with `Abandoned`.
        if self.finished or round + 1 < len(self._rounds):
            return True
        return round < len(self._rounds) and self._rounds[round].release is not None

    def in_flight(self, round: int) -> bool:
        """Whether a round was requested and its result is not known."""
        return round < len(self._rounds) and not self.settled(round)

    def attempt(self, round: int) -> int:
        """The last requested attempt at a round."""
        return self._rounds[round].attempt

    def same_keys(self, round: int) -> bool:
        """Whether the last attempt at a round was sent under the keys of the last set-up. Sites may have made new keys
        since, and the study may have stopped before the round was sent again.
        """
        return self._rounds[round].session == self.session

    def keys(self) -> bytes | None:
        """The public keys of all sites in the last set-up; None in journals of earlier versions."""
        if self._keys is None:
            return None
        with _refusing(self.path):
            self._file.seek(self._keys[0])
            return _unpacked(self._file.read(self._keys[1]))[1] or None

    @property
    def spare(self) -> int:
        """Number of sites that the study can continue without. Secure aggregation needs the recorded
        keys of absent sites.
        """
        if not self._rounds or (self.plan.scheme.facts.secure and self.keys() is None):
            return 0
        return self.plan.coalition.dropouts

    def listed(self, round: int, attempt: int) -> tuple[str, ...] | None:
        """The sites whose vectors are in the sum of an attempt, if that list was sent to the sites; else None."""
        known = self._rounds[round] if round < len(self._rounds) else None
        return known.listed if known is not None and known.attempt == attempt else None

    def recall(self, round: int, request: str) -> Release:
        """The result of a settled round. The program must have made the same request."""
        self._same(round, request)
        release = self.look(round)
        if release is None:
            raise Abandoned(f"round {round + 1} was abandoned")
        return release

    def released_rounds(self) -> tuple[int, ...]:
        """The rounds whose release is known to have arrived."""
        return tuple(at for at, each in enumerate(self._rounds) if each.release is not None)

    def look(self, round: int) -> Release | None:
        """The release of a round, if it was recorded."""
        place = self._rounds[round].release
        if place is None:
            return None
        with _refusing(self.path):
            self._file.seek(place[0])
            fields, numbers = _unpacked(self._file.read(place[1]))
        if not fields.get("kept", True):
            raise Refused(f"the journal {self.path} records that round {round + 1} was released, without its numbers")
        numbers = numbers[: len(numbers) - fields.get("signed", 0)]
        value: Floats = np.frombuffer(numbers, dtype="<f8").astype(np.float64).reshape(fields["shape"])
        return Release(value, fields["noise_std"], fields["units"], tuple(fields["names"]), tuple(fields["rows"]))

    def proof(self, fault: int) -> bytes:
        """The proof of guilt (`zerosum.secagg.blame`) that was recorded with a fault; empty if there is none."""
        with _refusing(self.path):
            self._file.seek(self._proofs[fault][0])
            return _unpacked(self._file.read(self._proofs[fault][1]))[1]

    def commitments(self, round: int) -> dict[str, bytes]:
        """The signed commitments of the sites in a release, by name; none in journals of earlier versions, and for
        other schemes.
        """
        place = self._rounds[round].release if round < len(self._rounds) else None
        if place is None:
            return {}
        with _refusing(self.path):
            self._file.seek(place[0])
            fields, payload = _unpacked(self._file.read(place[1]))
        names, size = fields["names"], fields.get("signed", 0) // max(1, len(fields["names"]))
        signed = payload[len(payload) - size * len(names) :]
        return {name: signed[at * size : (at + 1) * size] for at, name in enumerate(names)} if size else {}

    def _same(self, round: int, request: str) -> None:
        """Refuse a program whose request differs from the recorded one."""
        if round >= len(self._rounds) or self._rounds[round].request != request:
            raise Refused(
                f"the request of round {round + 1} differs from the one in the journal {self.path}: continue with the "
                "same versions of Zerosum and of its libraries, or begin anew in another folder"
            )

    # ---- what is written down ---------------------------------------------------------------------------------------

    def asked(self, round: int, attempt: int, request: str) -> None:
        """Record a request, before a message is sent."""
        self._write({"kind": "asked", "round": round, "attempt": attempt, "request": request})

    def set_up(self, keys: bytes) -> None:
        """Record that secure aggregation is set up, before a round is sent under these public keys."""
        session = hashlib.sha256(keys).hexdigest()
        # without tolerated losses every site must be present anyway
        kept = keys if self.plan.coalition.dropouts else b""
        if session != self.session or (kept and self.keys() is None):
            self._write({"kind": "session", "session": session}, kept)

    def settled_list(self, round: int, attempt: int, names: Sequence[str]) -> None:
        """Record the list of sites in a sum, before it is sent: a site signs one list per attempt and no other."""
        if self.listed(round, attempt) is None:
            self._write({"kind": "listed", "round": round, "attempt": attempt, "names": list(names)})

    def released(self, round: int, release: Release, commitments: Mapping[str, bytes] | None = None) -> None:
        """Record a release, before the program sees it, with the signed commitments of its sites."""
        fields = {"kind": "release", "round": round, "noise_std": release.noise_std, "units": release.units}
        fields |= {"names": release.participants, "rows": release.rows, "shape": release.value.shape}
        signed = b"".join((commitments or {})[name] for name in release.participants) if commitments else b""
        if signed:
            fields["signed"] = len(signed)
        if not self._numbers:
            self._write(fields | {"kept": False}, signed)
            return
        numbers = np.ascontiguousarray(release.value, dtype="<f8").reshape(-1).view(np.uint8).data
        self._write(fields, b"".join((numbers, signed)) if signed else numbers)

    def fault(self, fault: Fault, proof: bytes = b"") -> None:
        """Record the fault of a site that counts as lost, with a proof of its guilt if there is one."""
        self._write({"kind": "fault", "fault": fault.as_record()}, proof)

    def leave_out(self, names: Sequence[str]) -> None:
        """Continue without these sites, before the first request; refused if the plan does not allow it."""
        if self._rounds or self.finished:
            raise Refused("the study has begun: sites can be left out only before the first request")
        self.plan.without(names)  # raises if the plan does not allow it, before the record is written
        self._write({"kind": "without", "names": list(names)})

    def finish(self) -> None:
        """Record that the program returned. No-op for a read-only journal."""
        if self._writing and not self.finished:
            self._write({"kind": "done"})

    def _write(self, fields: dict[str, Any], numbers: bytes | memoryview = b"") -> None:
        """Append one record and sync it. The state in memory changes only after the record is durable."""
        text = _packed(fields)
        length, digest = len(text) + len(numbers), _chained(self._digest, text, numbers)
        with _refusing(self.path):
            # `_end` and not the end of the file: reserved space and the rest of a failed write are overwritten.
            at = self._file.seek(self._end)
            self._file.write(_head(length, digest) + text)
            self._file.write(numbers)
            self._file.flush()
            os.fsync(self._file.fileno())
        self._take(fields, at + _HEAD.size, length)
        self._digest, self._end = digest, at + _HEAD.size + length

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read all records, check the chain of digests, and drop a torn last record."""
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise self._damaged(f"its first bytes are not {_MAGIC!r}; is this a journal of zerosum?")
        at = len(_MAGIC)
        while at < size:
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                self._drop(at, last=True)
                break
            length, mark, digest = _HEAD.unpack(head)
            if mark != _mark(length):  # a wrong length would make all that follows look like one torn record
                self._drop(at, self._nothing_after(at + _HEAD.size))
                break
            # Three ways a crash can leave the last record: cut off at the end of the file, cut off inside reserved
            # space (zeros follow), or with all its length and some blocks not written. In each no other record follows.
            # A wrong digest with records behind it is damage: the lost record may be a request that sites have charged.
            end = at + _HEAD.size + length
            record = self._file.read(length) if end <= size else b""
            if end > size or digest != _chained(self._digest, record):
                self._drop(at, end >= size or self._nothing_after(end))
                break
            fields, text = _unpacked(record)
            # `_created` saves parsing a plan that this process has just written.
            if at == len(_MAGIC):
                self.plan = self.original = self._created or Plan.from_json(text)
            try:
                self._take(fields, at + _HEAD.size, length)
            except (LookupError, TypeError) as error:
                raise self._damaged(
                    f"the record at byte {at} (kind {fields.get('kind')!r}) lacks a field or names an unknown round"
                ) from error
            self._digest, at = digest, end
        self._end = at
        if not hasattr(self, "plan"):
            raise self._damaged("it holds no plan")

    def _nothing_after(self, at: int) -> bool:
        """Whether the rest is zeros: reserved space, or what some file systems leave where a write was cut off."""
        self._file.seek(at)
        return not any(any(part) for part in iter(lambda: self._file.read(1 << 16), b""))

    def _drop(self, at: int, last: bool) -> None:
        """Drop what follows: a torn last record. Anything else is damage."""
        if not hasattr(self, "plan"):
            raise self._damaged("it holds no plan")
        if not last:
            raise self._damaged(f"the record at byte {at} does not match its digest")
        if self._writing:
            self._file.truncate(at)
            os.fsync(self._file.fileno())

    def _take(self, fields: dict[str, Any], at: int, length: int) -> None:
        """Apply one record to the state in memory."""
        match fields["kind"]:
            case "asked":
                if fields["round"] == len(self._rounds):
                    self._rounds.append(_Round(fields["request"], self.session))
                self._same(fields["round"], fields["request"])
                # Another attempt has its own keys and its own list. The same attempt again, after a resume, keeps both.
                if (known := self._rounds[fields["round"]]).attempt != fields["attempt"]:
                    known.attempt, known.listed, known.session = fields["attempt"], None, self.session
                self.extra = max(self.extra, fields["attempt"])
            case "session":
                self.session, self._keys = fields["session"], (at, length)
            case "listed":
                self._rounds[fields["round"]].listed = tuple(fields["names"])
            case "release":
                self._rounds[fields["round"]].release = at, length
            case "fault":
                self.faults.append(Fault(**fields["fault"]))
                self._proofs.append((at, length))
            case "without":
                self.plan = self.plan.without(fields["names"])
            case "done":
                self.finished = True

    def _lock(self) -> None:
        """Lock the file for this process."""
        if sys.platform != "win32":
            for _ in range(10):
                try:
                    # Two coordinators with one journal would send different lists in one attempt, and overwrite each
                    # other's records.
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # a monitor holds it briefly to test whether a process is at work
                    time.sleep(0.02)
                else:
                    return
            raise Refused(f"another process has locked the journal {self.path}: wait until it ends, or stop it")

    def _damaged(self, how: str) -> BadInput:
        return BadInput(
            f"the journal {self.path} is damaged: {how}. Restore the file from a copy, or begin anew in another folder"
        )


def _packed(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _unpacked(record: bytes) -> tuple[dict[str, Any], bytes]:
    text, _, numbers = record.partition(b"\n")
    fields: dict[str, Any] = json.loads(text)
    return fields, numbers


def _head(length: int, digest: bytes) -> bytes:
    return _HEAD.pack(length, _mark(length), digest)


def _mark(length: int) -> bytes:
    """Check of a length: the first 8 bytes of a SHA-256."""
    return hashlib.sha256(b"length" + length.to_bytes(8, "big")).digest()[:8]


def _chained(before: bytes, *parts: bytes | memoryview) -> bytes:
    """Digest of the chain: SHA-256 of the digest before and the record."""
    chain = hashlib.sha256(before)
    for part in parts:
        chain.update(part)
    return chain.digest()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn errors of the disk into `BadInput`."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"the journal {path} cannot be used: {error.strerror or error}") from error
