"""A training that is killed ten times: finished rounds are never run again, and a kill costs at most one attempt."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from zerosum.algorithms import FeatureClassifierProgram
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.study import run

KILLS, ROUNDS = 10, 200
DATA = {
    name: np.column_stack([rows, np.prod(rows, axis=1) > 0])
    for name, rows in ((each, np.random.default_rng(n).uniform(-1, 1, (300, 2))) for n, each in enumerate("abc"))
}
PROGRAM = FeatureClassifierProgram(
    columns=("x", "y", "class"),
    classes=(0, 1),
    features={"kind": "random", "lower": [-1.0, -1.0], "upper": [1.0, 1.0], "waves": 40},
    rounds=ROUNDS,
)


def policies(folder: Path) -> dict[str, Policy]:
    return {name: Policy(population=name, unit="record", ledger=folder / f"{name}.sqlite") for name in DATA}


def train(folder: Path) -> Result:
    settings = {"epsilon": 4.0, "delta": 1e-5, "unit": "record", "attempts": KILLS}
    return run(PROGRAM, DATA, **settings, policies=policies(folder), checkpoint=folder / "kept")  # type: ignore[arg-type]


@pytest.mark.slow
def test_training_killed_ten_times_resumes_within_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, killed = np.random.default_rng(0), 0
    while killed < KILLS:
        child = os.fork()
        if child == 0:
            train(tmp_path)
            os._exit(0)
        time.sleep(float(rng.uniform(0.5, 1.5)))
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        killed += 1
    result = train(tmp_path)
    assert len(result.participants) == ROUNDS + 1
    spent = []
    for policy in policies(tmp_path).values():
        with policy.open_ledger() as ledger:
            answered = [(each.spend.round, each.spend.attempt) for each in ledger.entries()]
            answered += [(each.round, each.attempt) for each in ledger.draws()]
            assert len(set(answered)) == len(answered)
            assert {round for round, _ in answered} == set(range(ROUNDS + 1))
            extra = sum(attempt > 0 for _, attempt in answered)
            assert extra <= killed
            assert ledger.epsilon(1e-5) <= 4.0 * (1 + 1e-12)
            spent.append((extra, round(ledger.epsilon(1e-5), 3)))
    with capsys.disabled():
        print(f"\n{killed} kills; attempts used and epsilon spent at each site: {spent}")
