"""The operator's command for plans that wait."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from helpers.site_service import refused, serve, tell
from helpers.small_studies import make
from zerosum.errors import AwaitingConsent
from zerosum.kernel.plan import Plan
from zerosum.protocol.messages import Propose
from zerosum.site.proposal_hook import ProposalHook

WRITE = "import json,os,sys; open(sys.argv[1], 'a').write(json.dumps([dict(os.environ), sys.stdin.read()]) + '\\n')"


def test_proposal_hook_gets_plan_as_text_and_environment(tmp_path: Path) -> None:
    plan = make("local", study="vitals; rm -rf $HOME")
    thread = ProposalHook("north", [sys.executable, "-c", WRITE, str(tmp_path / "out")])(plan)
    assert thread is not None
    thread.join()
    environment, text = json.loads((tmp_path / "out").read_text())
    assert environment["ZEROSUM_PLAN"] == plan.digest()
    assert environment["ZEROSUM_SITE"] == "north"
    assert f"zerosum site approve {plan.digest()}" in text
    assert environment["ZEROSUM_STUDY"] == plan.study
    assert ProposalHook("north", ())(plan) is None


@pytest.mark.parametrize("command", [["/nonexistent/program"], [sys.executable, "-c", "raise SystemExit(3)"]])
def test_proposal_hook_that_fails_is_logged(command: list[str], caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("zerosum").propagate = True
    thread = ProposalHook("north", command)(make("local"))
    assert thread is not None
    thread.join()
    assert "on_proposal" in caplog.text


def test_proposal_hook_whose_output_is_no_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("zerosum").propagate = True
    program = "import sys; sys.stderr.buffer.write(b'caf\\xe9'); raise SystemExit(3)"
    thread = ProposalHook("north", [sys.executable, "-c", program])(make("local"))
    assert thread is not None
    thread.join()
    assert "on_proposal ended with 3" in caplog.text


def test_service_calls_hook_once_for_each_plan_that_waits(tmp_path: Path) -> None:
    service, seen = serve(tmp_path, automatic=False), list[Plan]()
    service._on_proposal = seen.append
    plan = make("local")
    for _ in range(3):
        assert isinstance(refused(tell(service, plan, Propose(plan))), AwaitingConsent)
    assert seen == [plan]
