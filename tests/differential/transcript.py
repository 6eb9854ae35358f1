"""Transcripts: everything that a coordinator gets from a site, and what the site writes down, less noise and time.

A transcript is a list of lines in order: for each message the reply with all its fields and its length in bytes, then
the ledger, the audit log and the counters. Noisy payloads are reduced to their type and shape, bytes of secure sums to
their length. Two neighbours must have equal transcripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Message,
    Prepare,
    Prepared,
    Propose,
    Refusal,
    Reply,
    Secure,
    Secured,
)
from zerosum.site.ledger_records import Draw, Entry

FOLLOWS = "follows from an earlier difference"
ORDER = "number or order of lines"
INTERNAL = "this site met an internal error"


@dataclass(frozen=True)
class Line:
    """One thing that was said or written down: in answer to what, and what."""

    about: str
    said: str

    def __str__(self) -> str:
        return f"{self.about}: {self.said}"


@dataclass
class Transcript:
    """Lines in order, and what is wrong with them whatever the other data set has."""

    lines: list[Line] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)  # of refusals, by their lines; not compared

    def reply(self, message: Message | None, reply: Reply, size: int, why: str = "") -> None:
        """One reply of so many bytes; `why` a site refused, by its own log, is kept beside the lines."""
        if isinstance(reply, Refusal):
            self.reasons[len(self.lines)] = why
        self.lines.append(Line(message_in_words(message), f"{reply_in_words(reply)}, {size} bytes"))
        if isinstance(reply, Refusal) and str(reply.error) == INTERNAL:
            self.faults.append(f"internal error in answer to {message_in_words(message)}")

    def ledger(self, entries: Sequence[Entry], draws: Sequence[Draw]) -> None:
        self.lines += [Line("ledger", entry_in_words(entry)) for entry in entries]
        self.lines += [Line("ledger", f"draw of round {each.round}, attempt {each.attempt}") for each in draws]

    def log(self, text: str) -> None:
        for row in text.splitlines():
            line: dict[str, Any] = json.loads(row)
            kept = {name: value for name, value in line.items() if name not in ("time", "plan", "detail", "previous")}
            if "commitments" in kept:  # salted hashes: their number is for everybody, as that of masked numbers
                kept["commitments"] = f"{len(kept['commitments'])} digits"
            self.lines.append(Line("audit log", json.dumps(kept, sort_keys=True)))

    def counts(self, counts: dict[str, int]) -> None:
        self.lines.append(Line("counters", json.dumps(dict(sorted(counts.items())))))


def message_in_words(message: Message | None) -> str:
    match message:
        case None:
            return "a frame that is no message"
        case Propose(plan, keep):
            return f"proposal of {plan.study!r}" + (", once more" if keep else "")
        case Contribute(round, attempt, request):
            kind = "publication" if isinstance(request, PrivatePublication) else "sum"
            return f"round {round}, attempt {attempt}, a {kind} of {request.statistic.name!r}"
        case Prepare(round, attempt):
            return f"preparation of round {round}, attempt {attempt}"
        case Secure(step, attempt, _):
            return f"step {step!r} of the secure sum, attempt {attempt}"
    return type(message).__name__


def reply_in_words(reply: Reply) -> str:
    match reply:
        case Consent(site, units):
            return f"Consent of {site!r} with {units} units"
        case Refusal(site, error):
            return f"Refusal of {site!r}, {error.code}: {error}"
        case Contribution(site, payload):
            return f"Contribution of {site!r}, {_payload(payload)}"
        case Prepared(site, payload):
            return f"Prepared by {site!r}, {_payload(payload)}"
        case Secured(site, data):
            return f"Secured by {site!r}, {_payload(data)}"
    return str(reply)


def _payload(payload: Any) -> str:
    """Noise and masks hide the numbers; their type and number are for everybody."""
    if isinstance(payload, np.ndarray):
        finite = "" if np.all(np.isfinite(payload)) else ", not finite"
        return f"{payload.dtype} of shape {payload.shape}{finite}"
    return f"{len(payload)} bytes within"


def entry_in_words(entry: Entry) -> str:
    spend, asked = entry.spend, json.dumps(entry.asked, sort_keys=True, default=str)
    return (
        f"round {spend.round}, attempt {spend.attempt}, {spend.kind} of {spend.statistic!r} by {spend.unit}, "
        f"sensitivity {spend.sensitivity!r}, mu {spend.mu!r}, charged {entry.charged_mu!r}, rate {spend.rate!r}, "
        f"steps {spend.steps}, distance {spend.distance!r}, asked {asked}"
    )


# ---- comparison ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A line in which two transcripts differ, and what kind of difference that is."""

    kind: str
    at: int
    left: str
    right: str
    reason: str = ""  # of a refusal, in words that stay at the site: names, numbers and paths are left out

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.kind}, line {self.at + 1}{why}\n  left:  {self.left}\n  right: {self.right}"


def differences(left: Transcript, right: Transcript) -> Iterator[Difference]:
    """Every line that differs, in order, up to where the transcripts are no longer about the same messages."""
    before = False
    for at, (one, other) in enumerate(zip_longest(left.lines, right.lines)):
        if one != other:
            reason = left.reasons.get(at) or right.reasons.get(at) or ""
            kind = _kind(one, other)
            if before and ("after consent" in kind or kind == ORDER):
                kind = FOLLOWS
            before = True
            yield Difference(kind, at, str(one), str(other), _plain(reason))
        if one is None or other is None or one.about != other.about:
            return


def _plain(reason: str) -> str:
    """A reason without what differs from case to case."""
    short = re.sub(r"'[^']*'|\S*/\S+", "...", reason.split(" data row")[0].split("; ")[0])
    return re.sub(r"[0-9][0-9.e+-]*", "#", short)[:100]


def _kind(one: Line | None, other: Line | None) -> str:
    known = one or other
    if known is None or one is None or other is None or one.about != other.about:
        return ORDER
    if known.about in ("ledger", "audit log", "counters"):
        return known.about
    stage = "before consent" if known.about.startswith("proposal") else "after consent"
    types = {one.said.split()[0], other.said.split()[0]}
    if types == {"Consent"}:
        return "number of units in the consent"
    if types == {"Refusal"}:
        return f"sentence of a refusal {stage}"
    if "Refusal" in types:
        return f"refusal {stage}"
    return "type, shape or size of a reply"


# ---- the ledger by the plan ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Charge:
    """What one answered round must cost, by the public plan alone."""

    round: int
    attempt: int
    mu: float
    rate: float | None
    steps: int


def expected_charges(plan: Plan, position: int, answered: Sequence[tuple[int, int]]) -> tuple[list[Charge], int]:
    """The ledger's entries for rounds and attempts that were answered, in order, and the number of draws.

    The first answer of a release pays for the release whole, however many steps it has. Later steps draw from that
    payment, and each answer under another attempt pays for one step more, at the rate of its phase.
    """
    charges: list[Charge] = []
    begun: set[int] = set()
    draws = 0
    for round, attempt in answered:
        release, planned = plan.position(round), plan.release(round)
        sampling = planned.sampling
        rate = None if sampling is None or sampling.rate == 1 else sampling.rate
        steps = 1 if sampling is None else sampling.steps
        first = release not in begun
        begun.add(release)
        if steps > 1 and not first and attempt == 0:
            draws += 1
            continue
        mu = float(plan.mus(round)[position])
        charges.append(Charge(round, attempt, mu, rate, steps if first else 1))
    return charges, draws


def ledger_fault(
    plan: Plan, position: int, answered: Sequence[tuple[int, int]], entries: Sequence[Entry], drawn: int
) -> str:
    """What a ledger has of a plan other than `expected_charges`; empty if nothing."""
    expected, draws = expected_charges(plan, position, answered)
    found = [
        Charge(s.round, s.attempt, s.mu, s.rate, s.steps) for entry in entries if (s := entry.spend).study == plan.study
    ]
    if found != expected:
        return f"the ledger has {found}, and by the plan it should have {expected}"
    return "" if drawn == draws else f"the ledger has {drawn} draws of reservations, by the plan it should have {draws}"
