"""The benchmark of held-out cases runs, and says what is ahead of what."""

from __future__ import annotations

from pathlib import Path

import pytest

import heldout


def test_heldout_case_is_compared_with_all_methods(capsys: pytest.CaptureFixture[str]) -> None:
    heldout.table("few", heldout.few(Path()), 2, (3.0,))
    told = capsys.readouterr().out
    assert told.startswith("few, eps 3: rule 0.9")
    assert all(f"{method} 0." in told for method in ("ranges", "paid mean", "paid clip", "cape", "conv", "pooled"))
    assert told.rstrip().endswith("se")
