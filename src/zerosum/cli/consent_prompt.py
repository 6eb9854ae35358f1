"""Consent on the terminal of a site that serves: plans that wait are shown to whoever sits there, one by one.

Tested in tests/cli/test_operations.py.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
from collections.abc import Callable

from zerosum.cli import terminal
from zerosum.errors import ZerosumError
from zerosum.kernel.names import visible
from zerosum.report.record import privacy_report
from zerosum.site.decisions import Consents, Decision

Decide = Callable[[str, Decision], None]


class ConsentPrompt:
    """Asks while a `with` block lasts. A plan that nobody answers, or answers with neither yes nor no, goes on waiting:
    `zerosum site approve` decides about it from elsewhere at any time. In the background nobody is asked."""

    def __init__(self, consents: Consents, decide: Decide) -> None:
        self._consents, self._decide = consents, decide
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zerosum-steward", daemon=True)

    def __enter__(self) -> ConsentPrompt:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        asked: set[str] = set()
        while not self._over.wait(0.5):
            for digest in self._consents.waiting():
                if digest not in asked and not self._over.is_set() and _in_front():
                    asked.add(digest)
                    try:
                        self._ask(digest)
                    except ZerosumError as error:  # decided about from elsewhere meanwhile, for instance
                        terminal.err.print(visible(str(error)))

    def _ask(self, digest: str) -> None:
        plan = self._consents.proposal(digest)
        terminal.err.print(f"\na plan waits: {visible(plan.study)} ({plan.algorithm}), digest {digest}", soft_wrap=True)
        names = plan.question.columns
        terminal.err.print(f"columns: {', '.join(visible(name) for name in names)}", soft_wrap=True)
        for each in privacy_report(plan).per_site:
            terminal.err.print(f"  {visible(each.site)}: epsilon {each.epsilon:.4f} at delta {plan.delta:g}")
        keyboard = sys.stdin.fileno()
        termios.tcflush(keyboard, termios.TCIFLUSH)  # what was typed before was no answer to this; what comes after is
        terminal.err.print("take part? yes, no, or anything else to leave it waiting: ", end="")
        while not self._over.is_set() and self._consents.decision(digest) is None:
            if select.select([keyboard], [], [], 0.2)[0] and _in_front():
                said = os.read(keyboard, 4096).decode(errors="replace").partition("\n")[0].strip().lower()
                if said in ("yes", "no"):
                    self._decide(digest, "approved" if said == "yes" else "refused")
                return


def _in_front() -> bool:
    """Whether this process has the terminal: one in the background that reads from it is stopped by the system."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # the terminal is gone
        return False
