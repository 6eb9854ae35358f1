"""Replay for a site's auditor: what the site sent, computed again from its data, its plan and its secrets.

A contribution under the secure sum cannot be read by anybody, and its site could have sent any vector. But the site
signed a commitment to it (`zerosum.secagg.commitments`) before anything was opened. With the secret that was kept
(`zerosum.site.secrets_kept`) the vector is computed again, sum and noise, and its commitment compared

    with the message that the site signed,
    with the line of the audit log, whose chain shows later changes,
    with what the coordinator received, if its journal is at hand.

A difference means that the site sent something else than its present data give under the plan, or noise that was not
drawn from the secret. The data, the versions of Zerosum and of its libraries, and the device must be those of the
study: sums in double precision may differ in the last digit elsewhere, and then the rounded vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput, BadMessage
from zerosum.kernel.plan import Plan
from zerosum.protocol.roster import slot
from zerosum.secagg import commitments, wire
from zerosum.secagg.commitments import HASH_BYTES
from zerosum.secagg.keys import Identity
from zerosum.secagg.wire import Kind
from zerosum.site.secrets_kept import Kept
from zerosum.site.site import Site, own_position
from zerosum.study.site_data import Faults, load_for
from zerosum.study.site_file import SiteFile
from zerosum.study.site_schema import confirmed_schema

Finding = Literal[
    "as committed", "another vector", "another secret", "not signed", "not logged", "not received", "long"
]

# What each finding means, in the words of the command line.
MEANING: dict[Finding, str] = {
    "as committed": "what the site committed itself to follows from its data, the plan and the secret",
    "another vector": "the data, the plan and the secret give another vector than the one that was committed to",
    "another secret": "the commitment is to another secret than the one that was kept",
    "not signed": "the commitment was not signed by this site for this attempt",
    "not logged": "the audit log has no release with this commitment",
    "not received": "the coordinator's journal has another commitment of this site",
    "long": "the request was too long to be kept, so that nothing was computed again",
}


@dataclass(frozen=True)
class Replayed:
    """One contribution.

    Attributes
    ----------
    round, attempt : int
        Both from 0.
    finding : str
        The first fault, or "as committed".
    """

    round: int
    attempt: int
    finding: Finding


def replay(path: Path, wanted: str, received: Path | None = None) -> tuple[Plan, list[Replayed], int]:
    """Compute all contributions of a study again.

    Parameters
    ----------
    path : Path
        The site's file.
    wanted : str
        The study's name, or the first digits of the plan's digest.
    received : Path, optional
        The coordinator's folder of the study, with its journal.

    Returns
    -------
    tuple
        The plan, one finding for each contribution, and the number of releases in the audit log of which nothing was
        kept.
    """
    loaded = SiteFile.load(path)
    plan = loaded.kept_secrets.plan(wanted)
    logged = set(_logged(loaded.audit_log, plan))
    others = {} if received is None else _received(received, plan, loaded.name)
    identity = _identity(loaded, plan)
    schema, faults = confirmed_schema(loaded), Faults()
    site = Site(loaded.name, load_for(plan, loaded, schema, faults), loaded.own_policy(), identity, schema=schema)
    found = []
    for kept in loaded.kept_secrets.of(plan.digest()):
        finding = _finding(site, plan, kept)
        committed = "" if finding == "not signed" else wire.decode(kept.committed).body[HASH_BYTES:].hex()
        if finding == "as committed" and kept.request and committed not in logged:
            finding = "not logged"
        if finding == "as committed" and others.get((kept.round, kept.attempt), kept.committed) != kept.committed:
            finding = "not received"
        logged.discard(committed)
        found.append(Replayed(kept.round, kept.attempt, finding))
    return plan, found, len(logged)


def _finding(site: Site, plan: Plan, kept: Kept) -> Finding:
    """What a contribution computed again shows."""
    try:
        message = wire.decode(kept.committed)
        message.check(site.identity.public)
    except BadMessage:
        return "not signed"
    position = own_position(plan, site.name, site.identity)
    place = bytes.fromhex(plan.digest())[:16], slot(plan, kept.round, kept.attempt), position, Kind.COMMITTED
    if (message.study, message.attempt, message.sender, message.kind) != place:
        return "not signed"
    of_vector, of_secret = message.body[HASH_BYTES : 2 * HASH_BYTES], message.body[2 * HASH_BYTES :]
    if commitments.to_secret(kept.secret, kept.about) != of_secret:
        return "another secret"
    if kept.request is None:
        return "long"
    vector = site.recomputed(plan, kept)
    same = commitments.to_contribution(kept.secret, vector, kept.about) == of_vector
    return "as committed" if same else "another vector"


def _received(folder: Path, plan: Plan, name: str) -> dict[tuple[int, int], bytes]:
    """The messages with this site's commitments in the coordinator's journal, by round and attempt: those of releases
    that this site is in. Of other attempts the journal has none.
    """
    journal = Journal.inspect(folder)
    if journal is None:
        raise BadInput(f"{folder} holds no journal of a coordinator")
    with journal:
        if journal.plan.digest() != plan.digest():
            raise BadInput(f"the journal in {folder} is of another plan than {plan.digest()}")
        found = {(at, journal.attempt(at)): journal.commitments(at) for at in journal.released_rounds()}
    return {place: each[name] for place, each in found.items() if name in each}


def _identity(loaded: SiteFile, plan: Plan) -> Identity:
    """The key, a present or a former one, that the plan pins for this site."""
    pinned = {each.identity for each in plan.sites if each.name == loaded.name}
    own = [loaded.keep_identity(), *loaded.former_identities()]
    return next((key for key in own if key.public.hex() in pinned), own[0])


def _logged(log: Path, plan: Plan) -> Iterator[str]:
    """The commitments of a plan's releases in the audit log and its rotated parts."""
    digest = plan.digest()
    for part in sorted(log.parent.glob(f"{log.name}*")):
        if part.suffix in (".gz", ".zst"):
            continue
        for line in part.read_bytes().splitlines():
            with suppress(ValueError):  # `zerosum site audit verify` finds what is damaged
                fields = json.loads(line)
                if fields.get("plan") == digest and "commitments" in fields:
                    yield fields["commitments"]
