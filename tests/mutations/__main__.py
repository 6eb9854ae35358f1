"""`python -m mutations [FAULT ...]`, in the folder `tests`: seeds each fault and runs its guard.

Prints a line for each fault: verdict, seconds, processor seconds, guard. Each guard also runs once without a fault, the
guards of one test module together. Every run is a process forked from this one, which has imported the package already:
a run costs the collection of one test module and the guard itself. The exit code is 1 unless every guard passes without
a fault and fails with it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import NoReturn

import pytest

from mutations import FAULTS, seeded
from mutations.guards import GUARDS

ROOT = Path(__file__).parents[2]
# Libraries that most guards import. The modules of the package are imported by the faults themselves.
LIBRARIES = ("scipy.stats", "scipy.optimize", "dp_accounting", "zerosum.study", "zerosum.audit", "zerosum.algorithms")
# A guard that fails with one of these fails because of the edit itself, which proves nothing.
UNFIT = ("NameError", "SyntaxError", "AttributeError")


@dataclass(frozen=True)
class Job:
    """Guards to run, with a fault or without."""

    fault: str | None
    guards: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of a job."""

    job: Job
    verdict: str
    good: bool
    seconds: float
    cpu_seconds: float
    output: str

    def __str__(self) -> str:
        name = self.job.fault or f"no fault, {len(self.job.guards)} guards"
        guard = self.job.guards[0] if self.job.fault else self.job.guards[0].partition("::")[0]
        return f"{name:32} {self.verdict:12} {self.seconds:7.1f} s {self.cpu_seconds:7.1f} s CPU  {guard}"


class Selection:
    """Plugin of pytest that keeps the cases that guards name."""

    def __init__(self, guards: Sequence[str]) -> None:
        self._guards = [f"tests/{guard}" for guard in guards]

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if any(selects(guard, item.nodeid) for guard in self._guards)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def selects(guard: str, nodeid: str) -> bool:
    """Whether a guard stands for a test."""
    if guard.endswith("*"):
        return nodeid.startswith(guard[:-1])
    return nodeid == guard or nodeid.startswith(f"{guard}[")


def jobs(names: Sequence[str]) -> list[Job]:
    """A job without a fault for each test module, then one for each fault."""
    guards = sorted({GUARDS[name] for name in names})
    sound = [Job(None, tuple(group)) for _, group in groupby(guards, key=lambda guard: guard.partition("::")[0])]
    return sound + [Job(name, (GUARDS[name],)) for name in names]


def run(work: Iterable[Job], workers: int, limit: int) -> Iterator[Outcome]:
    """Run jobs in child processes, `workers` at a time, each for `limit` seconds at most."""
    waiting = deque(work)
    running: dict[int, tuple[Job, float, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < workers:
                job, log = waiting.popleft(), Path(folder) / str(len(waiting))
                if (pid := os.fork()) == 0:
                    _child(job, log, limit)
                running[pid] = job, time.monotonic(), log
            pid, status, usage = os.wait4(-1, 0)
            job, begun, log = running.pop(pid)
            output = log.read_text(encoding="utf-8", errors="replace")
            verdict, good = judged(job, os.waitstatus_to_exitcode(status), output)
            yield Outcome(job, verdict, good, time.monotonic() - begun, usage.ru_utime + usage.ru_stime, output)


def judged(job: Job, code: int, output: str) -> tuple[str, bool]:
    """Verdict on a job by the exit code of pytest, and whether it is as it should be."""
    if code == -signal.SIGALRM:
        return "TIME OUT", False
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return "NO TEST", False
    if job.fault is None:
        return ("passes", True) if code == pytest.ExitCode.OK else ("FAILS", False)
    if any(word in output for word in UNFIT):
        return "UNFIT", False
    return ("caught", True) if code == pytest.ExitCode.TESTS_FAILED else ("NOT CAUGHT", False)


def _child(job: Job, log: Path, limit: int) -> NoReturn:
    """Run the guards of a job in this process, and end it with pytest's exit code."""
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(ROOT)
        signal.alarm(limit)
        tests = sorted({f"tests/{guard.partition('[')[0]}" for guard in job.guards})
        options = ["-c", "pyproject.toml", "-o", "addopts=", "-p", "no:cacheprovider", "-x", "-q", "--tb=short"]
        with seeded(job.fault) if job.fault else nullcontext():
            code = int(pytest.main([*options, *tests], plugins=[Selection(job.guards)]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutations", description="Seeds faults and runs their guards.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="names of faults; all by default")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one process (default: 600)")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.faults) - set(FAULTS):
        parser.error(f"unknown faults: {', '.join(sorted(unknown))}")
    for name in LIBRARIES:
        import_module(name)
    for fault in FAULTS.values():  # imports the module of each, and refuses an edit that no longer fits
        with fault.seeded():
            pass
    begun, count, bad = time.monotonic(), 0, []
    for outcome in run(jobs(chosen.faults or list(FAULTS)), chosen.workers, chosen.limit):
        print(outcome, flush=True)
        count += outcome.job.fault is not None
        if not outcome.good:
            bad.append(outcome)
    for outcome in bad:
        print(f"\n{outcome}\n{outcome.output}")
    print(f"{count} faults in {time.monotonic() - begun:.0f} s, {len(bad)} runs not as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
