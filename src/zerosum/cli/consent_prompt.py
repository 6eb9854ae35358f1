"""Consent prompt on the terminal of `zerosum site run`: pending plans are shown to the steward one by one."""

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
    """Background thread that prompts for each pending plan while a `with` block lasts.

    A plan without an answer, or with an answer other than yes and no, stays pending: `zerosum site approve` can decide
    about it from another terminal at any time. A process in the background does not prompt.
    """

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
                    except ZerosumError as error:  # for instance if another process has decided meanwhile
                        terminal.err.print(visible(str(error)))

    def _ask(self, digest: str) -> None:
        plan = self._consents.proposal(digest)
        terminal.err.print(f"\na plan waits: {visible(plan.study)} ({plan.algorithm}), digest {digest}", soft_wrap=True)
        names = plan.question.columns
        terminal.err.print(f"columns: {', '.join(visible(name) for name in names)}", soft_wrap=True)
        for each in privacy_report(plan).per_site:
            terminal.err.print(f"  {visible(each.site)}: epsilon {each.epsilon:.4f} at delta {plan.delta:g}")
        keyboard = sys.stdin.fileno()
        termios.tcflush(keyboard, termios.TCIFLUSH)  # discards input typed before the prompt
        terminal.err.print("take part? yes, no, or anything else to leave it waiting: ", end="")
        while not self._over.is_set() and self._consents.decision(digest) is None:
            if select.select([keyboard], [], [], 0.2)[0] and _in_front():
                said = os.read(keyboard, 4096).decode(errors="replace").partition("\n")[0].strip().lower()
                if said in ("yes", "no"):
                    self._decide(digest, "approved" if said == "yes" else "refused")
                return


def _in_front() -> bool:
    """Whether this process is in the foreground of the terminal. The system stops a background process that reads from
    it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # the terminal is gone
        return False
