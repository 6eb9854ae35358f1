"""`zerosum audit` says what it found, and ends with exit code 4 where it found something."""

from __future__ import annotations

import json
import re

import pytest

from mutations import seeded
from zerosum.cli import _run


def test_cli_audit_of_helper_scheme_shows_both_trust_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["audit", "--scheme", "cape-helper", "--samples", "16000", "--json"]) == 0
    itself, apart = json.loads(capsys.readouterr().out)["audits"]
    assert (itself["helper_apart"], apart["helper_apart"]) == (False, True)
    assert itself["planned"] == apart["claimed"] == pytest.approx(1.5)
    assert itself["claimed"] == pytest.approx(2.1958, abs=1e-4)
    assert itself["faults"] == []


def test_cli_audit_repeated_noise_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with seeded("repeated-draws"):
        assert _run(["audit", "--scheme", "local", "--samples", "16000"]) == 4
    said = capsys.readouterr()
    assert "exceeded" in said.out
    assert "pairs" in said.out
    assert re.search(r"\binf\b.*\b1\.5000\b", said.err)


def test_audit_with_an_unknown_mistake_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["audit", "--mistake", "shared-ledger"]) == 2
    assert "shared-ledger" in capsys.readouterr().err
