"""The player: a real `Service` over files, and a coordinator that sends it one case's frames.

Schemes in which a site needs nothing from others are played by messages to that site alone. All others are played by
`conduct`, with the real coordinator and two more sites that hold public data. Either way the site that is fuzzed gets
frames of the real codec, the case's injected frames among them, and only its replies are in the transcript.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from differential.cases import IDENTITIES, NAMES, OTHER_UNITS, OTHERS, TARGET, Case
from differential.neighbours import schema_of
from differential.questions import OWN
from differential.transcript import Difference, Transcript, differences, ledger_fault
from helpers.frame_mutations import mutated
from zerosum.compute.units import Units
from zerosum.coordinator.conduct import conduct
from zerosum.errors import Abandoned, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import NoiseMechanism
from zerosum.protocol.codec import decode_message, decode_reply, encode
from zerosum.protocol.messages import Contribute, Contribution, Message, Propose, Reply
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.host import answer
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.service import Service
from zerosum.site.site import Site
from zerosum.statistics import BUILTIN
from zerosum.study.site_data import review_question
from zerosum.study.site_file import SiteFile
from zerosum.study.site_schema import data_version, served_units

ALONE = (NoiseMechanism.NONE, NoiseMechanism.TRUSTED)  # a site needs nothing from others for these
Side = Literal["left", "right"]


def open_site(folder: Path, entries: Mapping[str, Any], policy: Mapping[str, Any], schema: DataSchema) -> Service:
    """The service of a site whose data lie in a folder: as `zerosum site run` makes it, without a socket.

    The data are not compared with the schema first, as `zerosum site run` does: neighbours with cells that no schema
    allows are played too, and must not differ either.

    Parameters
    ----------
    folder
        The site's folder, with its data and public files.
    entries
        The entries of its site file that follow from its data: the same for both neighbours.
    policy
        The entries of its policy.
    schema
        The public description of its data: the same for both neighbours.
    """
    allowed = {name: value for name, value in policy.items() if value is not None}
    file = SiteFile(name=TARGET, folder=folder, policy={**allowed, "ledger": "ledger.sqlite"}, **entries)
    if file.source is not None:
        file.fetch()  # at the desk, before the site serves
    version = data_version(file)
    return Service(
        TARGET,
        file.own_policy(),
        IDENTITIES[TARGET],
        lambda plan: served_units(plan, file, schema, version),
        Consents(file.state_folder, automatic=True),
        AuditLog(file.audit_log),
        schema=schema,
        review=lambda plan: review_question(plan, file, schema),
        kept=file.kept_secrets,
    )


class Coordinator:
    """Sends frames to the fuzzed site and keeps the transcript; an engine for `conduct`, which reaches all sites."""

    def __init__(self, case: Case, service: Service, others: Mapping[str, Site], log: Path) -> None:
        self.transcript = Transcript()
        self.answered: list[tuple[int, int]] = []  # rounds and attempts of the main plan, in order
        self._case, self._service, self._others = case, service, others
        self._frames, self._log = 0, log

    def tell(self, message: Message, plan: Plan) -> None:
        self._send(encode(message), plan.digest())

    def _send(self, frame: bytes, digest: str) -> bytes:
        raw = self._service.answer(bytes.fromhex(digest), frame)
        message = _read(frame)
        reply: Reply = decode_reply(raw)
        self.transcript.reply(message, reply, len(raw), self._own_words())
        if isinstance(reply, Contribution) and isinstance(message, Contribute):
            key = message.round, message.attempt
            if key not in self.answered:
                self.answered.append(key)
        return raw

    def _own_words(self) -> str:
        """Why the site refused, in its own log's words: they stay there, and help whoever reads a difference."""
        if not self._log.exists():
            return ""
        last = json.loads(self._log.read_text().splitlines()[-1])
        return str(last.get("detail") or last["words"]) if last["event"] == "refused" else ""

    def main(self, frame: bytes) -> bytes:
        """A frame of the main plan, after what the case injects before it."""
        digest = self._case.plan.digest()
        for injection in self._case.injections:
            if injection.at == self._frames:
                own = frame if injection.message is None else encode(injection.message)
                if injection.garbled is not None:
                    own = mutated(own, random.Random(injection.garbled))
                self._send(own, digest)
        self._frames += 1
        return self._send(frame, digest)

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, frame in frames.items():
            yield name, self.main(frame) if name == TARGET else answer(self._others[name], frame)


def _read(frame: bytes) -> Message | None:
    """The message of a frame for the transcript, as the site reads it; None where it cannot."""
    try:
        return decode_message(frame)
    except ZerosumError:
        return None
    except Exception:  # the site's answer to it is what counts
        return None


def play(case: Case, side: Side, folder: Path) -> Transcript:
    """One side's transcript. The folder is emptied before and after: both sides lie at the same path."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "site").mkdir(parents=True)
    entries = case.pair.write(side, folder / "site")
    service = open_site(folder / "site", entries, case.policy, schema_of(case.pair, strict=bool(case.seed % 3)))
    alone = all(case.plan.law(round).mechanism in ALONE for round in range(case.plan.rounds))
    others = {} if alone else _others(case, folder)
    log = folder / "site" / "state" / "audit.jsonl"
    coordinator = Coordinator(case, service, others, log)
    try:
        for sibling in case.siblings:
            coordinator.tell(Propose(sibling), sibling)
        if alone:
            coordinator.main(encode(Propose(case.plan)))
            for round, request in enumerate(case.requests):
                coordinator.main(encode(Contribute(round, 0, request)))
        else:
            with suppress(ZerosumError):  # the coordinator gives up at a refusal
                conduct(case.plan, _program(case.requests), coordinator)
        for message in case.tail:
            coordinator.tell(message, case.plan)
        transcript = coordinator.transcript
        _write_down(case, service, coordinator, log)
    finally:
        service.close()
        for site in others.values():
            site.close()
        shutil.rmtree(folder, ignore_errors=True)
    return transcript


def _write_down(case: Case, service: Service, coordinator: Coordinator, log: Path) -> None:
    """What the site wrote down itself, at the end of the transcript."""
    transcript = coordinator.transcript
    with service.policy.open_ledger() as ledger:
        entries, draws = ledger.entries(), ledger.draws()
    transcript.ledger(entries, draws)
    if case.plan.scheme.facts.noisy:
        fault = ledger_fault(case.plan, NAMES.index(TARGET), coordinator.answered, entries, len(draws))
        transcript.faults += [fault] if fault else []
    transcript.log(log.read_text() if log.exists() else "")
    transcript.counts(dict(service.counts))


def _program(requests: tuple[Request, ...]) -> Generator[Request, Release, None]:
    for request in requests:
        with suppress(Abandoned):
            yield request


def _others(case: Case, folder: Path) -> dict[str, Site]:
    """The other sites of the roster, which hold public data of the shape that the plan asks for."""
    columns = next((release.columns for release in case.plan.releases if release.columns), 1)
    rows = np.random.default_rng(0).normal(size=(OTHER_UNITS, columns))
    settings = {"adjacency": case.pair.adjacency, "unit": "person", "rows_per_unit": 1}
    return {
        name: Site(
            name,
            Units.from_rows(rows),
            Policy.throwaway(name, folder / f"{name}.sqlite", statistics=(*sorted(BUILTIN), OWN), **settings),
            IDENTITIES[name],
        )
        for name in OTHERS
    }


@dataclass(frozen=True)
class Outcome:
    """What came of a case: how its transcripts differ, what is wrong with either, and the lines of the left one."""

    case: Case
    differences: tuple[Difference, ...]
    faults: tuple[str, ...]
    transcript: Transcript

    @property
    def sound(self) -> bool:
        return not self.differences and not self.faults

    def __str__(self) -> str:
        case, pair = self.case, self.case.pair
        said = [
            f"{case.subject} under {case.plan.scheme.name!r}, {pair.kind}, {pair.change} a person: {pair.trait!r}",
            *(f"{plan.study!r} is mutated in {', '.join(how) or 'nothing'}" for plan, how in self.mutated),
            *(str(each) for each in self.differences[:3]),
            *self.faults[:3],
            f"again: cd tests && python -m differential --first {case.seed} --cases 1",
        ]
        return "\n".join(said)

    @property
    def mutated(self) -> tuple[tuple[Plan, tuple[str, ...]], ...]:
        return tuple(zip(self.case.plans, self.case.mutations, strict=True))


def compare(case: Case, folder: Path) -> Outcome:
    """Play both sides of a case in a folder, and compare them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a site that serves does not make errors of them
        left, right = play(case, "left", folder), play(case, "right", folder)
        coupled = _coupled(case, folder)
    return Outcome(case, tuple(differences(left, right)), (*left.faults, *right.faults, *coupled), left)


def _coupled(case: Case, folder: Path) -> list[str]:
    """Whether somebody else's rows are read differently because of the person that differs. Sensitivities rest on
    that: a unit's rows, as a statistic gets them, follow from that unit's own records and from public values."""
    if case.pair.change != "replace":
        return []  # people are compared by their places
    schema, found = schema_of(case.pair, strict=bool(case.seed % 3)), []
    sides: list[list[bytes] | None] = []
    for side in ("left", "right"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        entries = case.pair.write(side, folder)
        file = SiteFile(name=TARGET, folder=folder, **entries)
        if file.source is not None:
            file.fetch()
        try:
            review_question(case.plan, file, schema)
            units = served_units(case.plan, file, schema, data_version(file))
            sides.append([rows.tobytes() for rows in units.each()])
        except ZerosumError:
            sides.append(None)
    shutil.rmtree(folder, ignore_errors=True)
    left, right = sides
    if left is None or right is None or len(left) != len(right) or len(left) != len(case.pair.left):
        return []  # refused, which the transcripts compare; or rows that have no owner
    same = [a == b for a, b in zip(case.pair.left, case.pair.right, strict=True)]
    found = [at for at, alike in enumerate(same) if alike and left[at] != right[at]]
    return [f"the rows of {len(found)} other people are read differently, of person {found[0]} first"] if found else []


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for sites, in memory where there is such a place: ledgers and logs sync every line."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="zerosum-differential-", dir=place) as folder:
        yield Path(folder)
