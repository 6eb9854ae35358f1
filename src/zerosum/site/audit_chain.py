"""The chain of an audit log: numbered lines, each with the digest of the line before it, and the head beside the log.

    line n      a JSON object with "number": n and "previous": the SHA-256 of line n - 1 without its line break
    head        "zerosum-audit 1 NUMBER DIGEST": the last line, in the file `audit.head`

A changed, inserted, removed or reordered line contradicts the digest in the next one. Removed lines at the end
contradict the head. The log may be rotated: the chain goes on in a new file. Lines of version 0.2, before the first
numbered one, are covered by the digest of the last of them only.

Order of steps: the line is synced, then the head is written. After a crash between the two the log has one line more
than the head, which is no fault if the line that the head names is unchanged. The head is overwritten in place and not
synced: after a power failure it may be older, and lines behind it are then not protected against removal. A process
that may write both files can write another history: for that case send the log to another machine, or keep the head of
each day.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerosum.errors import BadInput, CheckFailed

if sys.platform != "win32":
    import fcntl

START = "0" * 64  # the digest before the first line
_HEAD = re.compile(rb"zerosum-audit 1 ([0-9]{12}) ([0-9a-f]{64})\n")
_TAIL = 1 << 20  # bytes that are read to find the last line; lines are far shorter


@dataclass(frozen=True)
class Head:
    """The last line of a chain: its number, and the SHA-256 of its bytes."""

    number: int
    digest: str


def head_path(log: Path) -> Path:
    """The file of the head of a log."""
    return log.with_name("audit.head")


@contextmanager
def locked(log: Path) -> Iterator[int]:
    """The open file of the head, locked: commands and the serving process append one after the other."""
    # The head and not the log is locked: the log may be renamed by a rotation while a process waits for the lock.
    handle = os.open(head_path(log), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def last(handle: int, log: int) -> Head:
    """The last line of the chain: by the head, or by the log if that has later lines.

    Parameters
    ----------
    handle, log : int
        The open files of the head and of the log.
    """
    found = _HEAD.fullmatch(os.pread(handle, 200, 0))
    # A torn head, after a crash while it was overwritten, counts as none: then the last line of the log gives the
    # number.
    head = Head(int(found[1]), found[2].decode()) if found else Head(0, START)
    size = os.fstat(log).st_size
    text = os.pread(log, min(size, _TAIL), max(size - _TAIL, 0)).rstrip(b"\n")
    if not text:  # new, or rotated away
        return head
    line = text.rpartition(b"\n")[2]
    number = _fields(line).get("number")
    digest = hashlib.sha256(line).hexdigest()
    if isinstance(number, int):
        # A log that is behind its head has lost lines, or its last line was changed: the chain goes on from the head,
        # so that the fault stays visible. The same if there are later lines, but another one in the place of the head.
        if number <= head.number or _replaced(text, head):
            return head
        return Head(number, digest)
    return head if head.number else Head(0, digest)  # a log of version 0.2


def _replaced(text: bytes, head: Head) -> bool:
    """Whether the end of a log has a line with the number of the head and another digest."""
    lines = text.split(b"\n") if head.number else []
    named = [line for line in lines if _fields(line).get("number") == head.number]
    return any(hashlib.sha256(line).hexdigest() != head.digest for line in named)


def advance(handle: int, head: Head) -> None:
    """Write the head, after its line is durable."""
    os.pwrite(handle, f"zerosum-audit 1 {head.number:012d} {head.digest}\n".encode(), 0)


def linked(line: dict[str, Any], before: Head) -> tuple[bytes, Head]:
    """A line with its place in the chain as bytes, without a line break, and the new head.

    Parameters
    ----------
    line : dict
        Fields of the line, without `number` and `previous`.
    before : Head
        The last line so far.
    """
    text = json.dumps(line | {"number": before.number + 1, "previous": before.digest}).encode()
    return text, Head(before.number + 1, hashlib.sha256(text).hexdigest())


def verify(log: Path) -> tuple[int, int]:
    """Check the chain of a log and of its rotated parts (`audit.jsonl.1` and so on) against the head.

    Parameters
    ----------
    log : Path
        The log; rotated parts and the head lie beside it.

    Returns
    -------
    tuple of int
        The first and the last number. The first is above 1 if the oldest parts were moved away.

    Raises
    ------
    CheckFailed
        With the first fault.
    BadInput
        If a file cannot be read.
    """
    try:
        with _unchanging(log) as content:
            found = None if content is None else _HEAD.fullmatch(content)
            return _verify(log, Head(int(found[1]), found[2].decode()) if found else None)
    except OSError as error:
        raise BadInput(f"the audit log cannot be read: {error.strerror or error} ({error.filename or log})") from error


@contextmanager
def _unchanging(log: Path) -> Iterator[bytes | None]:
    """The content of the head, None if there is none, in a scope in which no process appends."""
    # Without the lock a line and its head could be written after the log was read, which would look like a log that
    # was cut off. The lock is a shared one, for which the right to read is sufficient.
    handle = None
    with suppress(FileNotFoundError):
        handle = os.open(head_path(log), os.O_RDONLY)
    try:
        if handle is not None and sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield None if handle is None else os.read(handle, 200)
    finally:
        if handle is not None:
            os.close(handle)


def _verify(log: Path, head: Head | None) -> tuple[int, int]:
    """`verify` with the head; None if it is missing or damaged."""
    # Compressed parts are not read: the chain begins after them. The order is by number, because names of rotated parts
    # differ between tools, and `.10` sorts before `.2`.
    parts = sorted(
        (part for part in log.parent.glob(f"{log.name}*") if part.suffix not in (".gz", ".zst")), key=_first_number
    )
    first, before = None, None
    for part in parts:
        for at, line in enumerate(_lines(part), start=1):
            number, previous = (_fields(line).get(name) for name in ("number", "previous"))
            where = f"line {at} of {part.name}"
            if not isinstance(number, int):
                # Only lines of version 0.2 have no number, and all of them come before the first numbered line.
                if before is not None and before.number:
                    raise CheckFailed(f"{where} has no number: it was changed, or written by another program")
                before = Head(0, hashlib.sha256(line).hexdigest())
                continue
            # The first line of all. A larger number is accepted: older parts may have been moved away.
            if before is None and number == 1:
                before = Head(0, START)
            if before is not None and (number, previous) != (before.number + 1, before.digest):
                raise CheckFailed(
                    f"{where} does not continue the line before it: a line was changed, inserted or removed there"
                )
            first = number if first is None else first
            before = Head(number, hashlib.sha256(line).hexdigest())
            # Here and not for the last line only: lines may be appended behind one that was changed.
            if head is not None and number == head.number and before != head:
                raise CheckFailed(f"line {number} was changed: it is not the one that the head names")
    if head is None:
        if before is None or not before.number:
            return 0, 0  # nothing was written yet, or by version 0.2 only
        raise CheckFailed(
            f"{head_path(log)} is missing or damaged: it cannot be seen whether lines at the end are missing"
        )
    if before is None or before.number < head.number:
        raise CheckFailed(
            f"the log ends at line {before.number if before else 0}, its head is line {head.number}: it was cut off"
        )
    return first or 0, before.number


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a part, without line breaks."""
    with path.open("rb") as file:
        for line in file:
            yield line.rstrip(b"\n")


def _first_number(path: Path) -> float:
    """The number of the first numbered line, for the order of parts; parts without one are older."""
    numbers: Iterable[object] = (_fields(line).get("number") for line in _lines(path))
    return next((number for number in numbers if isinstance(number, int)), 0)


def _fields(line: bytes) -> dict[str, Any]:
    """The fields of a line; none if it is no JSON object."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
