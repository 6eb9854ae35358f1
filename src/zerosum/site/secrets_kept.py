"""The secrets of a site's contributions, kept for its own auditor: with data and plan they give all that was sent.

    secrets/PLAN/plan.json             the plan
    secrets/PLAN/ROUND-ATTEMPT.json    one contribution: its secret, the request, and the signed commitments

Every file has mode 0600 in folders of mode 0700, and is durable before the contribution is charged and sent. A reader
of such a file and the released sum can subtract this site's noise: it is as private as the data. So it is not in a
backup, it is deleted after the days that the site's file states, and sooner by `zerosum site audit forget STUDY`. The
masks of the secure sum do not follow from it.

A contribution that was not charged was not sent: the next one under the same round and attempt replaces its file. One
that was charged is never computed again (`zerosum.site.site`), so that its file stays.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerosum.errors import BadInput
from zerosum.kernel.plan import Plan
from zerosum.site.decisions import write_file

FOLDER = "secrets"
_PLAN = "plan.json"
# Longest request that is kept: of the parameters of most statistics. Requests with more, such as the weights of a large
# network in every step, would fill the disk. Chosen by hand.
MOST_REQUEST = 1 << 16
_DAY = 86400.0


@dataclass(frozen=True)
class Kept:
    """What a contribution followed from.

    Attributes
    ----------
    round, attempt : int
        Both from 0.
    secret : bytes
        The 256-bit secret of the attempt.
    about : bytes
        What the commitments name: set-up, attempt, request, site.
    committed : bytes
        The signed message with the commitments.
    request : bytes or None
        The frame of the request; empty for a round of draws, None if it was too long to be kept.
    """

    round: int
    attempt: int
    secret: bytes
    about: bytes
    committed: bytes
    request: bytes | None

    def as_text(self) -> bytes:
        """The content of a file."""
        request = None if self.request is None else base64.b64encode(self.request).decode()
        fields = {name: getattr(self, name).hex() for name in ("secret", "about", "committed")}
        return json.dumps({"round": self.round, "attempt": self.attempt, **fields, "request": request}).encode()

    @classmethod
    def of_text(cls, text: bytes) -> Kept:
        """The inverse of `as_text`."""
        fields: dict[str, Any] = json.loads(text)
        parts = [bytes.fromhex(fields[name]) for name in ("secret", "about", "committed")]
        request = None if fields["request"] is None else base64.b64decode(fields["request"])
        return cls(fields["round"], fields["attempt"], parts[0], parts[1], parts[2], request)


class KeptSecrets:
    """The secrets in a site's state folder.

    Parameters
    ----------
    state : Path
        The state folder.
    days : float
        How long a study's secrets are kept after its last contribution; 0: none is written.
    """

    def __init__(self, state: Path, days: float) -> None:
        self._folder, self._days = state / FOLDER, days

    def keep(self, plan: Plan, kept: Kept) -> None:
        """Store what a contribution follows from, and its plan; durable on return."""
        if self._days > 0:
            folder = self._folder / plan.digest()
            if not (folder / _PLAN).exists():
                write_file(folder / _PLAN, plan.to_json())
            write_file(folder / f"{kept.round}-{kept.attempt}.json", kept.as_text())

    def plan(self, wanted: str) -> Plan:
        """The plan of which something was kept, by the study's name, with or without the digits that make it unique,
        or by the first digits of its digest, eight at least.
        """
        found = []
        for digest in self.plans():
            with suppress(OSError):  # a study of which the first secret is just being written
                plan = Plan.from_json((self._folder / digest / _PLAN).read_bytes())
                names = plan.study, plan.study.rpartition(" ")[0]
                if (wanted and wanted in names) or (len(wanted) >= 8 and digest.startswith(wanted)):
                    found.append(plan)
        if len(found) != 1:
            named = ", ".join(each.digest() for each in found)
            raise BadInput(
                f"of {wanted!r} this site has kept no secrets: they are deleted after some days, and none are kept for "
                "schemes without a secure sum"
                if not found
                else f"{wanted!r} are several plans: give one of the digests {named}"
            )
        return found[0]

    def of(self, plan: str) -> Iterator[Kept]:
        """What was kept under a plan's digest, in the order of rounds and attempts."""
        found = []
        for path in self._folder.joinpath(plan).glob("*-*.json"):
            try:
                found.append(Kept.of_text(path.read_bytes()))
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise BadInput(f"the secrets in {path} cannot be read: {error}") from None
        yield from sorted(found, key=lambda each: (each.round, each.attempt))

    def plans(self) -> list[str]:
        """The digests of the plans of which secrets are kept."""
        return sorted(path.name for path in self._folder.glob("*") if path.is_dir())

    def forget(self, plan: str) -> None:
        """Delete the secrets of a plan."""
        shutil.rmtree(self._folder / plan, ignore_errors=True)

    def forget_old(self) -> None:
        """Delete the secrets of studies whose last contribution is older than the days to keep."""
        for plan in self.plans():
            with suppress(FileNotFoundError):  # forgotten by the command meanwhile
                # A new file in the folder changes the folder's time.
                if time.time() - (self._folder / plan).stat().st_mtime > self._days * _DAY:
                    self.forget(plan)
