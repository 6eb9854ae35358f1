"""What one `zerosum run` builds, as `benchmarks/traces.py` counts it: a second plan must not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

import traces

MOST_FRAMES = 16  # from the command down to the sum over units, both included


@pytest.mark.parametrize("algorithm", ["mean", "logistic-regression"])
def test_run_builds_one_plan_and_one_algorithm(algorithm: str, tmp_path: Path) -> None:
    found = traces.trace_run(traces.write_study(tmp_path / "study", algorithm), tmp_path / "out").record()
    assert (found["plans"], found["algorithms"]) == (1, 1)
    assert found["plans read"] == 1  # by the sites, from the bytes that they were sent
    assert 0 < found["frames"] <= MOST_FRAMES
