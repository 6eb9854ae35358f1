"""What many sites cost a site and the coordinator under `secure-sum`: bytes and messages, counted and computed, and
seconds of processor time, measured as far as one machine goes.

    python benchmarks/scale.py [--sites 4 40 400] [--computed 4000] [--size 1000] [--rounds 15] [--json]

One in ten sites may collude and one in ten may be lost (one of four). All sites run in this process, each with its
ledger on the disk, on the bytes that real ones get. Seconds are processor time, so that a busy machine changes little;
what lines and disks add is not in them. The study has one round, and keys for as many as `--rounds` says: set-up costs
what it would cost for those, a round is a round.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import numpy as np

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Propose, Secure, Secured
from zerosum.secagg import graph
from zerosum.secagg.keys import Identity
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import execute, make_plan, pin

PHASES = ("consent", "set-up", "round")


@dataclass(frozen=True)
class Cost:
    """Of one phase: bytes to and from one site and all of them, messages of one site, seconds of one site and of the
    coordinator (None: computed, and not measured)."""

    site_bytes: float
    coordinator_bytes: float
    messages: int
    site_seconds: float | None = None
    coordinator_seconds: float | None = None


@dataclass(frozen=True)
class Scale:
    sites: int
    colluders: int
    dropouts: int
    neighbours: int
    phases: dict[str, Cost]


def coalition(sites: int) -> Coalition:
    tenth = max(1, sites // 10)
    return Coalition(tenth, tenth)


def question(size: int) -> MeanProgram:
    return MeanProgram(columns=tuple(f"c{at}" for at in range(size)), clip=1.0)


def plan_for(sites: int, size: int, rounds: int) -> Plan:
    """A plan of a study with keys for so many rounds, the attempts among them, and somebody's key for each site."""
    some = "ab" * 32
    roster = tuple(PlannedSite(f"site-{at:04d}", 20, identity=some) for at in range(sites))
    terms = Terms(
        sites=roster,
        epsilon=2.0,
        delta=1e-5,
        scheme=Scheme("secure-sum"),
        coalition=coalition(sites),
        attempts=rounds - 1,
    )
    return make_plan(question(size), terms, "scale", noise="gaussian")


class Counting:
    """Counts and times what passes between the coordinator and sites in this process, by phase."""

    def __init__(self, engine: InProcess, sites: int) -> None:
        self._engine, self._sites = engine, sites
        self.bytes: dict[str, int] = defaultdict(int)
        self.messages: dict[str, int] = defaultdict(int)
        self.inside: dict[str, float] = defaultdict(float)  # of all sites together
        self.ends: dict[str, float] = {}

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        message = decode_message(next(iter(frames.values())))
        early = isinstance(message, Secure) and message.step in ("advertise", "share", "receive")
        phase = "consent" if isinstance(message, Propose) else "set-up" if early else "round"
        self.messages[phase] += 2
        replies = self._engine.exchange(frames)
        for frame in frames.values():
            began = process_time()
            name, reply = next(replies)
            self.inside[phase] += process_time() - began
            self.bytes[phase] += len(frame) + len(reply or b"")
            yield name, reply
        self.ends[phase] = process_time()


def measured(sites: int, size: int, rounds: int) -> Scale:
    """A whole study of so many sites in this process."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        members = []
        for at in range(sites):
            policy = Policy(population=f"p{at}", data="synthetic", epsilon=100.0, ledger=Path(folder, f"{at}.sqlite"))
            units = Units.from_rows(rng.normal(size=(20, size)) / math.sqrt(size))
            members.append(Site(f"site-{at:04d}", units, policy, Identity()))
        plan = pin(plan_for_new(sites, size, rounds), members)
        with closing(InProcess(members)) as engine:
            counting = Counting(engine, sites)
            began = process_time()
            execute(plan, question(size), counting)
    phases, start = {}, began
    for phase in PHASES:
        whole, start = counting.ends[phase] - start, counting.ends[phase]
        inside = counting.inside[phase]
        phases[phase] = Cost(
            counting.bytes[phase] / sites,
            counting.bytes[phase],
            counting.messages[phase],
            inside / sites,
            max(whole - inside, 0.0),
        )
    allowed = coalition(sites)
    shape = graph.shape(sites, allowed.colluders, allowed.dropouts)
    return Scale(sites, allowed.colluders, allowed.dropouts, shape.degree, phases)


def plan_for_new(sites: int, size: int, rounds: int) -> Plan:
    """The same plan, as yet without keys."""
    plan = plan_for(sites, size, rounds)
    bare = tuple(PlannedSite(site.name, site.units) for site in plan.sites)
    shared = {each: getattr(plan, each) for each in ("epsilon", "delta", "scheme", "coalition", "attempts")}
    return make_plan(question(size), Terms(sites=bare, **shared), "scale", noise="gaussian")


def computed(sites: int, size: int, rounds: int) -> Scale:
    """The same by the sizes of messages (docs/secure-sum.md), in a round in which nobody is lost."""
    plan, allowed = plan_for(sites, size, rounds), coalition(sites)
    shape = graph.shape(sites, allowed.colluders, allowed.dropouts)
    k, w, signers = shape.degree, math.ceil(sites / 8), (sites + allowed.colluders) // 2 + 1
    name = plan.sites[0].name
    heads = {step: len(encode(Secure(step, 1, b""))) for step in ("advertise", "share", "receive", "sign", "open")}
    back = len(encode(Secured(name, b"")))
    shares = 100 + k * (20 + 66 * rounds)
    consent = len(encode(Propose(plan))) + len(encode(Consent(name, 20)))
    set_up = heads["advertise"] + heads["share"] + heads["receive"] + 3 * back
    # ADVERT and ADVERTS; SHARES with its hashes of shares (DEALT), and DELIVERY; READY with hashes by neighbour
    set_up += 132 + 64 * rounds + 100 + sites * (136 + 64 * rounds)
    set_up += 2 * shares + 136 + 32 * rounds * (k + 1) + 132 + 64 * k
    request = question(size).requests(Adjacency.REPLACE_ONE)[0]
    one = len(encode(Contribute(0, 0, request))) + len(encode(Contribution(name, b""))) + 296 + 8 * size
    one += (
        heads["sign"] + heads["open"] + 2 * back + (100 + w) + (132 + w) + (100 + w + 68 * signers) + 132 + 33 * (k + 1)
    )
    counts = {"consent": 2, "set-up": 6, "round": 6}
    each = {"consent": consent, "set-up": set_up, "round": one}
    phases = {phase: Cost(each[phase], sites * each[phase], counts[phase]) for phase in PHASES}
    return Scale(sites, allowed.colluders, allowed.dropouts, k, phases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[4, 40, 400])
    parser.add_argument("--computed", type=int, nargs="*", default=[4000])
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = [measured(sites, asked.size, asked.rounds) for sites in asked.sites]
    found += [computed(sites, asked.size, asked.rounds) for sites in asked.computed]
    if asked.json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    print("sites  neighbours  phase     bytes, a site  bytes, all      messages  s, a site  s, coordinator")
    for each in found:
        for phase, cost in each.phases.items():
            times = (cost.site_seconds, cost.coordinator_seconds)
            shown = "  ".join("computed" if time is None else f"{time:.4f}" for time in times)
            head = f"{each.sites:5d}  {each.neighbours:10d}  {phase:8s}"
            print(f"{head}  {cost.site_bytes:13.0f}  {cost.coordinator_bytes:14.0f}  {cost.messages:8d}  {shown}")


if __name__ == "__main__":
    main()
