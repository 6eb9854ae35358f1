"""Killed at random moments, cut at every byte, flipped, full, raced: the ledger never counts too little."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zerosum.errors import LedgerRefused
from zerosum.kernel.accountant import epsilon
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Entry, Spend

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="sites are forked here")

ACCOUNT, CAP = Account("cohort", "person", "replace-one"), Cap(1e6, 1e-5)
MAIN, LOG, COUNTER = "l.sqlite", "l.sqlite-wal", "l.sqlite.counter"


def spend(number: int) -> Spend:
    return Spend("s", number, 0, "person", "mean", 2.0, 0.01, "aa")


class Nursery:
    """Runs one site at a time in a process of its own; see tests/helpers/ledger_children.py."""

    def __init__(self) -> None:
        script = Path(__file__).parents[1] / "helpers" / "ledger_children.py"
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # one thread, so that forking is sound
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.sent: list[int] = []
        self.last = ""  # what the site said besides its sends
        self.status = 0

    def start(self, path: Path, **order: Any) -> int:
        """A new site at work; its process id."""
        self.sent, self.last = [], ""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"path": str(path), "study": "s", "mu": 0.01, **order}) + "\n")
        self._process.stdin.flush()
        return self._listen("pid")

    def hear(self, sends: int) -> None:
        """Wait until the site has sent so often, however long that takes."""
        while len(self.sent) < sends:
            self._listen("sent")

    def finish(self) -> None:
        self.status = self._listen("dead")

    def _listen(self, awaited: str) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "sent":
                self.sent.append(int(rest))
            elif word != awaited:
                self.last = line
            if word == awaited:
                return int(rest)
        raise AssertionError("the nursery is gone")

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def nurseries() -> Iterator[list[Nursery]]:
    both = [Nursery(), Nursery()]
    yield both
    for each in both:
        each.close()


def copy(folder: Path, to: Path) -> None:
    """The state a machine would find after the crash; SQLite's shared memory does not outlive it."""
    to.mkdir()
    for name in (MAIN, LOG, COUNTER):
        if (folder / name).exists():
            shutil.copy(folder / name, to / name)


def test_ledger_200_kills_lose_no_send(tmp_path: Path, nurseries: list[Nursery]) -> None:
    """Every other site kills itself after some number of calls, wherever that is, from the making of the ledger on; the
    rest are killed from outside, some moments after some number of sends. Events are counted, not seconds: a slow
    machine sends as often as a fast one."""
    nursery, rng, kills = nurseries[0], random.Random(0), 200
    sends = entries = unsent = awaited = 0
    for number in range(kills):
        folder = tmp_path / f"ledger-{number // 50}"  # four ledgers, each of them made under fire
        if number % 50 == 0:
            sent: set[int] = set()
        if number % 50 < 5 or number % 2:
            calls = rng.randrange(1, 400 if number % 50 < 5 else 3000)
            nursery.start(folder / MAIN, epsilon=1e6, dies=calls)
        else:
            site, wanted = nursery.start(folder / MAIN, epsilon=1e6), rng.randint(1, 5)
            nursery.hear(wanted)
            time.sleep(rng.uniform(0, 0.004))  # into the next record, or a later one
            os.kill(site, signal.SIGKILL)
            awaited += wanted
        nursery.finish()
        assert nursery.status == -signal.SIGKILL, nursery.last
        assert not nursery.last
        sent.update(nursery.sent)
        if number % 4 > 1 and folder.exists():  # let the next site meet what the killed one left
            copy(folder, tmp_path / f"copy-{number}")
            folder = tmp_path / f"copy-{number}"
        with Ledger.open(folder / MAIN, ACCOUNT) as ledger:
            held = [entry.spend.round for entry in ledger.entries()]
            assert ledger.verify() == len(held)
            assert sent <= set(held)
        if number % 50 == 49:
            sends, entries, unsent = sends + len(sent), entries + len(held), unsent + len(set(held) - sent)
    assert sends >= awaited > kills
    assert unsent > 0  # kills landed between the commit and the send
    print(f"{kills} kills, {sends} sent, {entries} recorded, {unsent} of them not sent")  # shown with -s


def states(folder: Path) -> dict[str, tuple[dict[str, bytes], list[Entry]]]:
    """The files of a ledger as a crash can leave them: all in the log, counter behind, merged, both."""

    def read() -> dict[str, bytes]:
        return {n: (folder / n).read_bytes() for n in (MAIN, LOG, COUNTER) if (folder / n).exists()}

    found = {}
    with Ledger.open(folder / MAIN, ACCOUNT) as ledger:
        for number in range(2):
            ledger.record(spend(number), CAP)
        behind = (folder / COUNTER).read_bytes()
        ledger.record(spend(2), CAP)
        found["log"] = read(), ledger.entries()
        found["ahead"] = read() | {COUNTER: behind}, ledger.entries()
    found["closed"] = read(), found["log"][1]
    with Ledger.open(folder / MAIN, ACCOUNT) as ledger:
        ledger.record(spend(3), CAP)
        ledger._connection.execute("PRAGMA wal_checkpoint")  # merged, but the log's old frames stay in place
        ledger.record(spend(4), CAP)
        found["both"] = read(), ledger.entries()
    return found


def verdict(folder: Path, files: dict[str, bytes], entries: list[Entry]) -> str:
    """Put these files down and open the ledger: what it holds must reach its counter, or it is refused."""
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        with Ledger.open(folder / MAIN, ACCOUNT) as ledger:
            held = ledger.verify()
            assert ledger.entries() == entries[:held]
    except LedgerRefused as error:
        return "refused" if "\n" not in str(error) else "refused in several lines"
    assert held >= int(files[COUNTER].split()[2])
    return "whole" if held == len(entries) else "shorter"


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("state", ["log", "ahead", "closed", "both"])
def test_ledger_cut_at_any_byte_never_counts_too_little(tmp_path: Path, state: str, step: int) -> None:
    """The counter's few bytes are always cut at each place, the large files at each `step`-th."""
    original, trial = tmp_path / "original", tmp_path / "trial"
    original.mkdir()
    trial.mkdir()
    files, entries = states(original)[state]
    assert verdict(trial, files, entries) == "whole"
    found = Counter[tuple[str, str]]()
    for name, content in files.items():
        for end in range(0, len(content), 1 if name == COUNTER else step):
            found[name, verdict(trial, files | {name: content[:end]}, entries)] += 1
    print(f"{found.total()} cuts of {state}: {sorted(found.items())}")  # shown with -s
    assert {outcome for _, outcome in found} <= {"whole", "refused", "shorter"}
    assert found[COUNTER, "refused"] == len(files[COUNTER])
    assert found[MAIN, "refused"] > 0
    assert state == "ahead" or all(outcome != "shorter" for _, outcome in found)  # the counter knows them all


@pytest.mark.parametrize("state", ["log", "closed"])
def test_ledger_flipped_byte_is_refused_or_harmless(tmp_path: Path, state: str) -> None:
    original, trial = tmp_path / "original", tmp_path / "trial"
    original.mkdir()
    trial.mkdir()
    files, entries = states(original)[state]
    rng, found = random.Random(1), Counter[tuple[str, str]]()
    for name, content in files.items():
        for place in range(0, len(content), 3):
            changed = bytearray(content)
            changed[place] ^= rng.randrange(1, 256)
            found[name, verdict(trial, files | {name: bytes(changed)}, entries)] += 1
    print(f"{found.total()} flips of {state}: {sorted(found.items())}")  # shown with -s
    assert {outcome for _, outcome in found} == {"whole", "refused"}


@pytest.mark.parametrize("limit", [60, 3000, 33_000, 50_000, 90_000])
def test_ledger_full_disk_stops_sends(tmp_path: Path, nurseries: list[Nursery], limit: int) -> None:
    nursery, path = nurseries[0], tmp_path / MAIN
    nursery.start(path, epsilon=1e6, limit=limit)
    nursery.finish()
    assert nursery.status == 0
    assert nursery.last.startswith("refused "), nursery.last
    assert bool(nursery.sent) == (limit > 32_768)  # SQLite shares memory in a file of that size
    with Ledger.open(path, ACCOUNT) as ledger:
        held = [entry.spend.round for entry in ledger.entries()]
        assert held[: len(nursery.sent)] == nursery.sent
        assert len(held) <= len(nursery.sent) + 1
        ledger.record(spend(len(held)), CAP)  # there is room again


def test_ledger_two_processes_together_stay_within_cap(tmp_path: Path, nurseries: list[Nursery]) -> None:
    cap = epsilon(0.2 * 30.5**0.5, 1e-5)  # thirty spends of 0.2 fit
    for repeat in range(8):
        path = tmp_path / f"{repeat}" / MAIN
        for name, nursery in zip("ab", nurseries, strict=True):
            nursery.start(path, epsilon=cap, mu=0.2, study=name)
        for nursery in nurseries:
            nursery.finish()
            assert nursery.last == "spent\n", nursery.last
        with Ledger.open(path, ACCOUNT) as ledger:
            held = {(entry.spend.study, entry.spend.round) for entry in ledger.entries()}
        assert len(held) == 30
        assert held == {(n, r) for n, each in zip("ab", nurseries, strict=True) for r in each.sent}
        assert ledger.counter.read_text().split()[2] == "30"


def test_ledger_after_fork_is_refused(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / MAIN, ACCOUNT) as ledger:
        ledger._process += 1  # as a forked child would find it
        with pytest.raises(LedgerRefused, match="fork"):
            ledger.record(spend(0), CAP)
