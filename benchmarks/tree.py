"""A secure sum along a tree against the star: bytes at the coordinator and at the busiest site, and time.

    python benchmarks/tree.py [--sites 10 30 100] [--sizes 100 10000 100000] [--fan-out N] [--megabits 100] [--json]

Both studies have the same sites, releases and losses tolerated; only the tree differs, with the square root of the
number of sites as fan-out. All sites run in this process, on the bytes that real ones get. Counted: the bytes of every
line between two parties, to and fro, without those between an inner node and its own site. Measured: processor time of
the coordinator and of every inner node, without that of the sites' own replies. Computed from both: the time of a round
if every party has one line of `--megabits` to all others, each level waits for the one below it to end, and all sites
compute at the same time. A third of the sites may collude and one in twenty may be lost.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import numpy as np

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.engines.tree import Tree
from zerosum.errors import CheckFailed
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.tree import balanced
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import decode_message
from zerosum.protocol.messages import Contribute, Message, Relay, Secure
from zerosum.secagg.keys import Identity
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import execute, make_plan, pin

COORDINATOR = ""
UNITS = 10  # people at each site: the fewest that the default policy admits
PHASES = ("set-up", "round")


@dataclass(frozen=True)
class Line:
    """One study in one phase: bytes to and from the coordinator and the busiest site, processor time of the coordinator
    and of the busiest inner node (0 in a star), and the computed time of the phase, all in seconds.
    """

    sites: int
    size: int
    fan_out: int | None  # None: a star
    phase: str
    coordinator_bytes: int
    busiest_bytes: int
    coordinator_seconds: float
    node_seconds: float
    elapsed: float


class Metered(InProcess):
    """Counts the bytes on every line, and the processor time of every party."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
        self.lines: dict[str, Counter[frozenset[str]]] = {phase: Counter() for phase in PHASES}
        self.seconds: dict[str, dict[str, float]] = {phase: defaultdict(float) for phase in PHASES}
        # The party that computes, and whether as a node (coordinator or inner node) or as a site.
        self._who, self._as_site, self._since, self._phase = COORDINATOR, False, process_time(), PHASES[0]

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        above = self._who
        for name, frame in frames.items():
            message = decode_message(frame)
            self._turn(name, not isinstance(message, Relay), _phase(message))
            reply = dict(super().exchange({name: frame}))[name]
            self._turn(above, False, self._phase)
            if name != above:
                self.lines[self._phase][frozenset((name, above))] += len(frame) + len(reply or b"")
            yield name, reply

    def _turn(self, who: str, as_site: bool, phase: str) -> None:
        """Charge the time so far to the party that computed, and let another one compute."""
        now = process_time()
        if not self._as_site:
            self.seconds[self._phase][self._who] += now - self._since
        self._who, self._as_site, self._since, self._phase = who, as_site, now, phase

    def bytes_at(self, phase: str, party: str) -> int:
        return sum(count for line, count in self.lines[phase].items() if party in line)


def _phase(message: Message) -> str:
    """Whether a message belongs to the set-up (with the consent) or to the round."""
    if isinstance(message, Relay):
        return _phase(decode_message(message.frames[0]))
    return PHASES[isinstance(message, Contribute) or (isinstance(message, Secure) and message.step in ("sign", "open"))]


def measured(sites: int, size: int, fan_out: int | None, megabits: float) -> list[Line]:
    """One study of a mean of `size` columns, with one round."""
    question = MeanProgram(columns=tuple(f"c{at}" for at in range(size)), clip=1.0)
    names = [f"site-{at:04d}" for at in range(sites)]
    terms = Terms(
        sites=tuple(PlannedSite(name, UNITS) for name in names),
        epsilon=2.0,
        delta=1e-5,
        scheme=Scheme("secure-sum"),
        coalition=Coalition(max(1, math.ceil(sites / 3) - 1), max(1, sites // 20)),
        parents={} if fan_out is None else balanced(names, fan_out),
    )
    rows = np.random.default_rng(0).normal(size=(UNITS, size)) / math.sqrt(size)
    with tempfile.TemporaryDirectory() as folder:
        members = []
        for name in names:
            policy = Policy(population=name, data="synthetic", epsilon=100.0, ledger=Path(folder, f"{name}.sqlite"))
            members.append(Site(name, Units.from_rows(rows), policy, Identity()))
        plan = pin(make_plan(question, terms, "tree", noise="gaussian"), members)
        with closing(Metered(members)) as engine:
            result = execute(plan, question, Tree(plan, engine))
    if result.participants != (tuple(names),):
        raise CheckFailed("a site is missing from the sum")
    return [_line(plan, engine, phase, size, fan_out, megabits) for phase in PHASES]


def _line(plan: Plan, engine: Metered, phase: str, size: int, fan_out: int | None, megabits: float) -> Line:
    names = [site.name for site in plan.sites]

    def elapsed(node: str, children: Sequence[str]) -> float:
        """Seconds until a node has its whole branch: its children's branches, its line to them, its own time."""
        carried = sum(engine.lines[phase][frozenset((node, child))] for child in children)
        own = 8 * carried / (1e6 * megabits) + engine.seconds[phase][node]
        return own + max((elapsed(child, plan.tree.children[child]) for child in children), default=0.0)

    return Line(
        sites=len(names),
        size=size,
        fan_out=fan_out,
        phase=phase,
        coordinator_bytes=engine.bytes_at(phase, COORDINATOR),
        busiest_bytes=max(engine.bytes_at(phase, name) for name in names),
        coordinator_seconds=engine.seconds[phase][COORDINATOR],
        node_seconds=max(engine.seconds[phase][name] for name in names),
        elapsed=elapsed(COORDINATOR, plan.tree.top),
    )


def compared(sites: int, size: int, fan_out: int | None, megabits: float) -> list[tuple[Line, Line]]:
    """The star and the tree side by side, phase by phase."""
    chosen = fan_out or max(2, round(math.sqrt(sites)))
    return list(zip(measured(sites, size, None, megabits), measured(sites, size, chosen, megabits), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--fan-out", type=int, default=None)
    parser.add_argument("--megabits", type=float, default=100.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: list[tuple[Line, Line]] = []
    if not asked.json:
        print("                                    bytes: coordinator         busiest site      s: coordinator   inner")
        print(
            "sites   numbers  fan-out  phase        star       tree       star       tree     star    tree    node",
            end="",
        )
        print("   computed: star    tree")
    for sites in asked.sites:
        for size in asked.sizes:
            pairs = compared(sites, size, asked.fan_out, asked.megabits)
            found += pairs
            for star, tree in () if asked.json else pairs:
                print(
                    f"{sites:5d}  {size:8d}  {tree.fan_out:7d}  {star.phase:6s}"
                    f"  {star.coordinator_bytes:9d}  {tree.coordinator_bytes:9d}"
                    f"  {star.busiest_bytes:9d}  {tree.busiest_bytes:9d}"
                    f"  {star.coordinator_seconds:7.3f} {tree.coordinator_seconds:7.3f} {tree.node_seconds:7.3f}"
                    f"        {star.elapsed:7.3f} {tree.elapsed:7.3f}",
                    flush=True,
                )
    if asked.json:
        print(json.dumps([[asdict(star), asdict(tree)] for star, tree in found], indent=2))


if __name__ == "__main__":
    main()
