"""Load that sites and a coordinator hold: time, memory and bytes of whole studies over sockets.

Each case has a new process with all its sites, every one behind a socket of its own with its ledger on the disk, and
this process with the coordinator. Varied are the number of sites, of rounds, of numbers in a contribution, of studies
at the same time, and the line between coordinator and sites: a proxy in a third process holds every packet back for a
while, and lets a share of the packets come 200 ms late, the first time-out of TCP for a lost packet.

Printed are wall seconds, seconds of processor time of the coordinator and of all sites together, the growth of the
largest resident memory of both in megabytes, and the bytes through the coordinator. On a busy machine wall seconds mean
little.

    .venv/bin/python benchmarks/load.py [--cases sites rounds numbers studies line] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.algorithms import CovarianceProgram, KMeansProgram, MeanProgram
from zerosum.algorithms.program import Algorithm
from zerosum.compute.units import Units
from zerosum.coordinator.consent import dismiss, gather
from zerosum.engines.counted import Traffic, TrafficCounter
from zerosum.engines.sockets import Sockets
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.server import Server
from zerosum.site.service import Service
from zerosum.study import execute, make_plan

UNITS = 40  # at each site
PACKET = 1460  # bytes
LATE = 0.2  # s, the first time-out of TCP for a lost packet in Linux
FRAME_BYTES = 1 << 28


@dataclass(frozen=True)
class Case:
    """One load. `numbers` is the size of a contribution: 0 for k-means with `rounds` rounds, else a covariance of the
    smallest table with so many moments."""

    label: str
    sites: int = 4
    rounds: int = 10
    numbers: int = 0
    studies: int = 1
    delay: float = 0.0  # s each way
    loss: float = 0.0  # share of packets

    @property
    def columns(self) -> int:
        return 2 if not self.numbers else int((2 * self.numbers) ** 0.5)

    def program(self) -> Algorithm:
        names = tuple(f"c{at}" for at in range(self.columns))
        if self.numbers:
            return CovarianceProgram(columns=names, clip=1.0)
        if self.rounds == 1:
            return MeanProgram(columns=names, clip=1.0)
        # One cluster has three releases before its rounds.
        return KMeansProgram(columns=names, clip=1.0, n_clusters=1, rounds=self.rounds - 3)


CASES = {
    "sites": [Case(f"{sites} sites", sites=sites) for sites in (4, 20, 50, 100, 200)],
    "rounds": [Case(f"{rounds} rounds", rounds=rounds) for rounds in (10, 100, 1000)],
    "numbers": [Case(f"{numbers:.0e} numbers", rounds=1, numbers=numbers) for numbers in (10**4, 10**5, 10**6)],
    "studies": [Case(f"{studies} studies at once", studies=studies) for studies in (1, 5, 20)],
    "line": [
        Case("50 ms each way", delay=0.05),
        Case("50 ms each way, 1 % lost", delay=0.05, loss=0.01),
        Case("200 ms each way, 5 % lost", delay=0.2, loss=0.05),
    ],
}


@dataclass(frozen=True)
class Load:
    """Measured figures of one case."""

    wall: float
    coordinator: float
    sites: float
    coordinator_mb: float
    sites_mb: float
    megabytes: float  # through the coordinator


def peak() -> float:
    """Largest resident memory of this process since `reset_peak`, in megabytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def reset_peak() -> float:
    """Start the measurement of the largest resident memory; the memory now, in megabytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def child(work: Callable[[], dict[str, float]]) -> tuple[int, Any, Any]:
    """A forked process that does this work when it has signalled that it is ready: its number, a file to read its lines
    from, and one to end it by closing."""
    out, into = os.pipe(), os.pipe()
    number = os.fork()
    if number:
        os.close(out[1])
        os.close(into[0])
        return number, os.fdopen(out[0]), os.fdopen(into[1], "w")
    code = 1
    with suppress(BaseException):
        os.close(out[0])
        os.close(into[1])
        sys.stdout, sys.stdin = os.fdopen(out[1], "w"), os.fdopen(into[0])
        print(json.dumps(work()), flush=True)
        code = 0
    os._exit(code)


def serve(case: Case, folder: Path, identities: list[Identity]) -> dict[str, float]:
    """All sites of a case, until the standard input is closed."""
    base, rng = reset_peak(), np.random.default_rng(0)
    servers, threads = [], []
    with ExitStack() as stack:
        for at, identity in enumerate(identities):
            home = folder / name_of(at)
            home.mkdir()
            units = Units.from_rows(rng.normal(size=(UNITS, case.columns)) / case.columns**0.5)
            service = Service(
                name_of(at),
                Policy(population=name_of(at), data="synthetic", epsilon=1e6, ledger=home / "ledger.sqlite"),
                identity,
                lambda plan, units=units: units,  # type: ignore[misc]
                Consents(home, automatic=True),
                AuditLog(home / "audit.jsonl"),
                schema=DataSchema(units=UNITS, n_columns=case.columns),
                most_studies=max(8, case.studies),
            )
            stack.callback(service.close)
            server = Server(folder / f"{name_of(at)}.socket", service, frame_bytes=FRAME_BYTES, seconds=600.0)
            threads.append(threading.Thread(target=server.serve))
            threads[-1].start()
            servers.append(server)
        print("ready", flush=True)
        sys.stdin.read()
        for server in servers:
            server.stop()
        for thread in threads:
            thread.join()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"seconds": used.ru_utime + used.ru_stime, "mb": peak() - base}


def name_of(at: int) -> str:
    return f"s{at:03d}"


def carry(case: Case, folder: Path) -> dict[str, float]:
    """The proxy: a socket NAME.line for each NAME.socket, with delay and loss in both directions."""
    rng = random.Random(0)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                when, part = await queue.get()
                await asyncio.sleep(when - time.monotonic())
                if not part:
                    break
                writer.write(part)
                await writer.drain()
            writer.close()

        sender, last = asyncio.create_task(send()), 0.0
        while True:
            part = await reader.read(PACKET)
            # What follows a lost packet waits for it, as in TCP.
            last = max(time.monotonic() + case.delay + LATE * (rng.random() < case.loss), last)
            queue.put_nowait((last, part))
            if not part:
                break
        await sender

    async def connect(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(path)
        with suppress(ConnectionError):
            await asyncio.gather(pump(reader, back), pump(there, writer))

    async def run() -> None:
        for at in range(case.sites):
            path = str(folder / f"{name_of(at)}.socket")
            await asyncio.start_unix_server(
                lambda reader, writer, path=path: connect(path, reader, writer),  # type: ignore[misc]
                str(folder / f"{name_of(at)}.line"),
            )
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print("{}", flush=True)
        os._exit(0)  # connections that are still open have no use

    asyncio.run(run())
    return {}


def plan_of(case: Case, identities: list[Identity], number: int) -> Plan:
    tenth = max(1, case.sites // 10)
    roster = tuple(
        PlannedSite(name_of(at), UNITS, identity=identity.public.hex()) for at, identity in enumerate(identities)
    )
    terms = Terms(sites=roster, epsilon=2.0, delta=1e-5, scheme=Scheme("secure-sum"), coalition=Coalition(tenth, tenth))
    plan = make_plan(case.program(), terms, f"load {number}", noise="gaussian")
    return replace(plan, coordinator=Identity().public.hex())


def study(case: Case, plan: Plan, paths: dict[str, Path], traffic: Traffic) -> None:
    """One study, from gathering to its end."""
    with closing(Sockets(paths, plan.digest(), seconds=600.0)) as engine:
        counted = TrafficCounter(engine, traffic)
        gather(plan, counted, lambda sites: None, seconds=1200.0, every=0.2)
        result = execute(plan, case.program(), counted)
        dismiss(counted, list(paths))
        if result.participants != (tuple(paths),) * plan.rounds:
            raise SystemExit(f"{case.label}: sites were lost")


def measure(case: Case) -> Load:
    identities = [Identity() for _ in range(case.sites)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ends = [child(lambda: serve(case, folder, identities))]
        assert ends[0][1].readline() == "ready\n"
        kind = "socket"
        if case.delay:
            kind = "line"
            ends.append(child(lambda: carry(case, folder)))
            assert ends[1][1].readline() == "ready\n"
        paths = {name_of(at): folder / f"{name_of(at)}.{kind}" for at in range(case.sites)}
        plans = [plan_of(case, identities, number) for number in range(case.studies)]
        traffic = [Traffic() for _ in plans]
        base, began, used = reset_peak(), time.monotonic(), time.process_time()
        faults: list[BaseException] = []

        def one(plan: Plan, counts: Traffic) -> None:
            try:
                study(case, plan, paths, counts)
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=one, args=each) for each in zip(plans, traffic, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall, cpu, grown = time.monotonic() - began, time.process_time() - used, peak() - base
        found: dict[str, float] = {}
        for number, lines, end in reversed(ends):
            end.close()
            found |= json.loads(lines.readline() or "{}")
            lines.close()
            os.waitpid(number, 0)
    if faults:
        raise faults[0]
    through = sum(each.bytes_in + each.bytes_out for each in traffic) / 1e6
    return Load(wall, cpu, found["seconds"], grown, found["mb"], through)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not asked.json:
        print("| load | wall s | coordinator s | sites s | coordinator MB | sites MB | MB through the coordinator |")
        print("|---|---|---|---|---|---|---|")
    measure(Case("first use of libraries", rounds=4))
    measure(Case("first use of libraries", rounds=1, numbers=100))
    for kind in asked.cases:
        for case in CASES[kind]:
            found = measure(case)
            if asked.json:
                print(json.dumps({"case": asdict(case), **asdict(found)}), flush=True)
                continue
            values = (found.wall, found.coordinator, found.sites, found.coordinator_mb, found.sites_mb, found.megabytes)
            print(f"| {case.label} | {' | '.join(f'{value:.3g}' for value in values)} |", flush=True)


if __name__ == "__main__":
    main()
