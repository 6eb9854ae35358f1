"""Whole studies whose processes are killed at random: ledgers against journals, over sockets, NVIDIA FLARE or Flower.

Four sites and a coordinator are processes of their own. While studies of six rounds run, a process is chosen at random
and killed by SIGKILL after a random time: a site, the coordinator, over FLARE also a relay, a client, the job or the
server, over Flower a node, the ServerApp or the SuperLink. It is started again, and the study is resumed until it ends.
With `--restores` a site loses its disk, too, and is restored from a backup that was made while studies ran.

After each study, for every site: the ledger verifies; no round and attempt is in it twice; it has no round that the
journal does not have; and each release of the journal is in the ledgers of the sites that took part in it. A restored
ledger has spent at least as much as the one that was lost.

    .venv/bin/python benchmarks/kills.py [--kills 100] [--restores 20] [--seed 0]
    .venv-flare/bin/python benchmarks/kills.py --carrier flare --kills 10
    .venv-flower/bin/python benchmarks/kills.py --carrier flower --kills 10
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.deployment import NAMES, Deployment
from zerosum.cli import _run
from zerosum.coordinator.journal import NAME as JOURNAL
from zerosum.errors import ZerosumError
from zerosum.protocol.stream import alive
from zerosum.site.ledger import Ledger
from zerosum.study.coordinating import Settings, begin, coordinate, give_up
from zerosum.study.site_backup import backup, restore

ROUNDS, ATTEMPTS = 6, 8
WORD = "a passphrase of a benchmark"
EACH = 5.0  # epsilon: more than one of these studies costs
PARAMETERS = f"n_clusters = 1\nrounds = {ROUNDS - 3}"  # after three releases that come before these rounds


class Carrier(Protocol):
    """What carries the studies, and which of its processes can be killed."""

    victims: tuple[str, ...]

    def begin(self, study: Path) -> None:
        """Begin a study."""

    def running(self) -> bool:
        """Whether a process carries the study out now."""

    def resume(self) -> None:
        """Carry the study on."""

    def kill(self, victim: str) -> None:
        """Kill a process, and start it again unless `resume` does."""

    def close(self) -> None:
        """End all processes."""


def forked(work: Callable[[], object], log: Path) -> int:
    """A child that does this work: nothing is imported again, which takes seconds of processor time."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            try:
                work()
                code = 0
            except ZerosumError as error:
                print(type(error).__name__, error, flush=True)
                code = 3
        os._exit(code)
    return child


class Sites:
    """The processes of the sites."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._children: dict[str, int] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        path = self.deployment.folder / name / "site.toml"
        log = self.deployment.folder / f"{name}.log"
        self._children[name] = forked(lambda: _run(["site", "run", str(path)]), log)
        end = time.monotonic() + 120
        while not alive(self.deployment.site(name).socket, 5.0):
            assert time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        child = self._children.pop(name)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def close(self) -> None:
        for name in list(self._children):
            self.kill(name)


class OverSockets:
    """A coordinator in a child of this process."""

    victims: tuple[str, ...] = ("site", "site", "coordinator")

    def __init__(self, sites: Sites, rng: random.Random) -> None:
        self._sites, self._rng, self._child, self._state = sites, rng, 0, Path()

    def begin(self, study: Path) -> None:
        folder = study.parent
        self._state = folder / "studies" / study.stem
        given: dict[str, Any] = {"sites": self._sites.deployment.sockets(), "seconds": 60.0, "wait": 60.0, "every": 0.1}
        begin(Settings(study=study, out=folder / f"{study.stem}-out", patience=2.0, **given), self._state)

    def running(self) -> bool:
        if self._child and os.waitpid(self._child, os.WNOHANG)[0]:
            self._child = 0
        return self._child > 0

    def resume(self) -> None:
        state = self._state
        self._child = forked(lambda: coordinate(state, lambda sites: None), state.parent / "coordinator.log")

    def kill(self, victim: str) -> None:
        if victim == "coordinator":
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0
        else:
            name = self._rng.choice(NAMES)
            self._sites.kill(name)
            self._sites.start(name)

    def close(self) -> None:
        self._sites.close()


class OverFlare:
    """A FLARE server and four clients."""

    victims: tuple[str, ...] = ("site", "relay", "client", "job", "server")

    def __init__(self, sites: Sites, rng: random.Random) -> None:
        from helpers.flare_federation import Flare

        self._sites, self._rng = sites, rng
        self._flare, self._job, self._submitted = Flare(sites.deployment), Path(), None
        self._flare.start()

    def begin(self, study: Path) -> None:
        self._job = self._flare.job(study, seconds=60, wait=100, patience=2)

    def running(self) -> bool:
        submitted: Any = self._submitted
        return submitted is not None and submitted.poll() is None

    def resume(self) -> None:
        self._submitted = self._flare.submit(self._job)  # type: ignore[assignment]

    def kill(self, victim: str) -> None:
        name = self._rng.choice(NAMES)
        if victim == "site":
            self._sites.kill(name)
            self._sites.start(name)
        elif victim in ("client", "server"):
            name = name if victim == "client" else "server"
            self._flare.kill(name)
            if name == "server" and self._submitted is not None:
                self._submitted.kill()
                self._submitted.communicate()
            self._flare.start(name)
        else:
            with suppress(ValueError, ProcessLookupError):  # the job has no process yet, or none any more
                os.kill(self._flare.job_process(name if victim == "relay" else "server"), signal.SIGKILL)

    def close(self) -> None:
        self._flare.stop()
        self._sites.close()


class OverFlower:
    """A SuperLink and four nodes."""

    victims: tuple[str, ...] = ("site", "node", "ServerApp", "SuperLink")

    def __init__(self, sites: Sites, rng: random.Random) -> None:
        from helpers.flower_federation import Flower

        self._sites, self._rng, self._app, self._until = sites, rng, Path(), 0.0
        self._flower = Flower(sites.deployment)
        self._flower.start()

    def begin(self, study: Path) -> None:
        self._app = self._flower.app(study, patience=2)

    def running(self) -> bool:
        # A run has no process until SuperExec has started it.
        return bool(self._flower.server_apps()) or time.monotonic() < self._until

    def resume(self) -> None:
        self._flower.run(self._app)
        self._until = time.monotonic() + 30

    def kill(self, victim: str) -> None:
        name = self._rng.choice(NAMES)
        if victim == "site":
            self._sites.kill(name)
            self._sites.start(name)
        elif victim == "node":
            self._flower.kill(name)
            self._flower.start(name)
        elif victim == "ServerApp":
            for pid in self._flower.server_apps():
                os.kill(pid, signal.SIGKILL)
            self._until = 0.0
        else:
            for each in ("superexec", "superlink"):
                self._flower.kill(each)
            self._flower.start("superlink", "superexec")
            self._until = 0.0

    def close(self) -> None:
        self._flower.stop()
        self._sites.close()


CARRIERS: dict[str, Callable[[Sites, random.Random], Carrier]] = {
    "sockets": OverSockets,
    "flare": OverFlare,
    "flower": OverFlower,
}


def records(state: Path) -> list[dict[str, Any]]:
    """The records of a journal, by their lines of JSON (format: `zerosum.coordinator.journal`)."""
    data, head = (state / JOURNAL).read_bytes(), struct.Struct(">Q8s32s")
    found, at = [], data.index(b"\n") + 1
    while at + head.size <= len(data):
        length, *_ = head.unpack_from(data, at)
        at += head.size
        if not length or at + length > len(data):
            break
        found.append(json.loads(data[at : at + length].partition(b"\n")[0]))
        at += length
    return found


def spent(deployment: Deployment, name: str, study: str) -> list[tuple[int, int]]:
    """Round and attempt of each entry of a study in a site's ledger, which is verified first."""
    policy = deployment.site(name).own_policy()
    with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
        ledger.verify()
        entries = [each.spend for each in ledger.entries()]
    return [(each.round, each.attempt) for each in entries if each.study.partition(" ")[0] == study]


def compare(deployment: Deployment, study: str, restored: set[str]) -> list[str]:
    """Differences between the ledgers and the journal of a study; none if all is well.

    Parameters
    ----------
    deployment : Deployment
        The sites.
    study : str
        Name of the study.
    restored : set of str
        Sites whose disk was lost after this study began: their ledgers may lack entries, for which they were charged.
    """
    state, wrong = deployment.folder / "studies" / study, []
    written = records(state)
    asked = {(each["round"], each["attempt"]) for each in written if each["kind"] == "asked"}
    last = {each["round"]: each["attempt"] for each in written if each["kind"] == "asked"}
    released = [each["round"] for each in written if each["kind"] == "release"]
    if released != sorted(set(released)):
        wrong.append(f"{study}: rounds {released} in the journal")
    done = state.parent.parent / f"{study}-out" / "result.json"
    took = json.loads(done.read_text())["participants"] if done.exists() else []
    for name in NAMES:
        entries = spent(deployment, name, study)
        if len(set(entries)) != len(entries):
            wrong.append(f"{study}, {name}: {entries} spent twice")
        if not set(entries) <= asked:
            wrong.append(f"{study}, {name}: {set(entries) - asked} spent and not in the journal")
        part = {(round, last[round]) for round, names in enumerate(took) if name in names}
        if name not in restored and not part <= set(entries):
            wrong.append(f"{study}, {name}: {part - set(entries)} released and not in the ledger")
    return wrong


def epsilon(deployment: Deployment, name: str) -> float:
    policy = deployment.site(name).own_policy()
    with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
        return ledger.epsilon(policy.delta)


def lose_disk(deployment: Deployment, sites: Sites, name: str, file: Path) -> list[str]:
    """A site loses its disk and is restored from a backup; the counter, on another disk, is left."""
    sites.kill(name)
    home, before = deployment.folder / name, epsilon(deployment, name)
    data = (home / "data.csv").read_bytes()
    shutil.rmtree(home)
    restore(file, home, WORD, each=EACH)
    (home / "data.csv").write_bytes(data)
    after = epsilon(deployment, name)
    sites.start(name)
    return [] if after >= before else [f"{name}: {before} spent before the disk was lost, {after} restored"]


def play(carrier: str, kills: int, restores: int, seed: int, folder: Path) -> dict[str, Any]:
    """Studies until so many processes were killed and so many disks lost; the figures and what was wrong."""
    rng, deployment = random.Random(seed), Deployment(folder, epsilon=100_000.0)
    for name in NAMES:  # what `restore` with `each` needs, and a counter on another disk
        path = folder / name / "site.toml"
        place = f'ledger = "state/ledger.sqlite"\ncounter = "{folder / "counters" / name}"\n'
        place += 'noise = ["gaussian"]\nmost_phases = 0\n'
        path.write_text(path.read_text().replace('ledger = "state/ledger.sqlite"\n', place))
    sites = Sites(deployment)
    made = CARRIERS[carrier](sites, rng)
    killed: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    files: dict[str, Path] = {}
    lost, began = 0, time.monotonic()
    try:
        while sum(killed.values()) < kills or lost < restores:
            number = sum(ended.values())
            study = deployment.study("k-means", name=f"s{number}", attempts=ATTEMPTS, parameters=PARAMETERS, seed=None)
            made.begin(study)
            result, restored = folder / f"s{number}-out" / "result.json", set[str]()
            here, failures = 0, 0
            most = rng.randrange(1, 8)  # kills in this study: its attempts must last
            while not result.exists() or made.running():
                if not made.running():
                    failures += 1
                    if failures > here + lost + 5:  # no attempt is left
                        break
                    made.resume()
                time.sleep(rng.expovariate(1 / 0.5) if carrier == "sockets" else rng.uniform(2, 12))
                if result.exists() or not made.running():
                    continue
                if here < most and sum(killed.values()) < kills:
                    victim = rng.choice(made.victims)
                    made.kill(victim)
                    killed[victim] += 1
                    here += 1
                elif lost < restores and len(restored) < 2:
                    name = rng.choice(NAMES)
                    if name in files:
                        wrong += lose_disk(deployment, sites, name, files.pop(name))
                        restored.add(name)
                        lost += 1
                    else:
                        files[name] = folder / f"{name}-{len(list(folder.glob('*.backup')))}.backup"
                        backup(folder / name / "site.toml", files[name], WORD)
            if carrier == "sockets" and not result.exists():
                with suppress(ZerosumError):  # nothing was begun
                    give_up(folder / "studies" / f"s{number}")
            ended["result" if result.exists() else "abandoned"] += 1
            wrong += compare(deployment, f"s{number}", restored)
            print(f"study {number}: {dict(killed)}, {lost} disks, {len(wrong)} faults", file=sys.stderr, flush=True)
    finally:
        made.close()
    took = {"seconds": time.monotonic() - began, "restores": lost}
    return took | {"killed": dict(killed), "ended": dict(ended), "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carrier", choices=sorted(CARRIERS), default="sockets")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--restores", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    # What commands print is no part of the figures.
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        found = play(asked.carrier, asked.kills, asked.restores, asked.seed, Path(folder))
    print(json.dumps(found, indent=2))
    if found["wrong"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
