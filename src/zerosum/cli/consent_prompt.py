"""Consent prompt on the terminal of `zerosum site run`: pending plans are shown to the steward one by one.

The prompt is one of three ways to decide, beside `zerosum site approve` and the watch page. All three write the same
files in the site's state folder, and the site reads those files. The prompt therefore polls: a plan may arrive at any
time, and another process may decide about it while the question is on the screen.
"""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import threading
from collections.abc import Callable, Mapping

from zerosum.cli import terminal
from zerosum.errors import ZerosumError
from zerosum.kernel.names import visible
from zerosum.kernel.plan import Plan
from zerosum.report.record import privacy_report
from zerosum.site.decisions import Consents, Decision

_MOST_RANGES = 30  # ranges that are shown, so that the question stays on the screen; chosen by hand

# Stores the decision about the plan with this digest.
Decide = Callable[[str, Decision], None]


class ConsentPrompt:
    """Background thread that prompts for each pending plan while a `with` block lasts.

    A plan without an answer, or with an answer other than yes and no, stays pending: `zerosum site approve` can decide
    about it from another terminal at any time. A process in the background does not prompt.

    Parameters
    ----------
    consents : Consents
        The store of proposals and decisions.
    decide : callable
        Stores a decision, given the plan's digest and "approved" or "refused".
    budget : callable
        What is left of the cap with a plan, in one sentence.
    """

    def __init__(self, consents: Consents, decide: Decide, budget: Callable[[Plan], str]) -> None:
        self._consents, self._decide, self._budget = consents, decide, budget
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zerosum-steward", daemon=True)

    def __enter__(self) -> ConsentPrompt:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        """Prompt for every plan that waits, each once in this process, until the block ends."""
        prompted_plans: set[str] = set()
        # s between two looks at the folder of proposals; chosen by hand. Waiting on the event ends the thread at once
        # when the site stops.
        while not self._over.wait(0.5):
            for digest in self._consents.waiting():
                if digest not in prompted_plans and not self._over.is_set() and _in_front():
                    prompted_plans.add(digest)
                    try:
                        self._ask(digest)
                    except ZerosumError as error:  # for instance if another process has decided meanwhile
                        terminal.err.print(visible(str(error)))

    def _ask(self, digest: str) -> None:
        """Show one plan and read the answer.

        Only a line that is `yes` or `no` decides. Everything that other parties chose (names of studies, columns and
        sites) is printed with invisible characters written out, because a terminal obeys control characters.

        Parameters
        ----------
        digest : str
            Digest of the plan, under which the proposal and the decision are stored.
        """
        plan = self._consents.proposal(digest)
        terminal.err.print(f"\na plan waits: {visible(plan.study)} ({plan.algorithm}), digest {digest}", soft_wrap=True)
        if plan.question.purpose:
            terminal.err.print(f"purpose: {visible(plan.question.purpose)}", soft_wrap=True, markup=False)
        names = plan.question.columns
        terminal.err.print(f"columns: {', '.join(visible(name) for name in names)}", soft_wrap=True)
        for line in range_lines(plan):
            # The brackets of a range are text and not console markup.
            terminal.err.print(f"  {line}", soft_wrap=True, markup=False)
        for each in privacy_report(plan).per_site:
            terminal.err.print(f"  {visible(each.site)}: epsilon {each.epsilon:.4f} at delta {plan.delta:g}")
        terminal.err.print(f"here: {self._budget(plan)}", soft_wrap=True)
        keyboard = sys.stdin.fileno()
        # A line that was typed for the plan before must not approve this one.
        termios.tcflush(keyboard, termios.TCIFLUSH)
        terminal.err.print("take part? yes, no, or anything else to leave it waiting: ", end="")
        # Not `input()`, which would block the end of the site and could not notice a decision from elsewhere: the
        # keyboard is polled every 0.2 s (chosen by hand), below what a person notices.
        while not self._over.is_set() and self._consents.decision(digest) is None:
            # In its normal mode a terminal delivers whole lines, so one read has the answer. The foreground is checked
            # again right before the read, which would stop a background process.
            if select.select([keyboard], [], [], 0.2)[0] and _in_front():
                answer = os.read(keyboard, 4096).decode(errors="replace").partition("\n")[0].strip().lower()
                if answer in ("yes", "no"):
                    self._decide(digest, "approved" if answer == "yes" else "refused")
                return


def range_lines(plan: Plan) -> list[str]:
    """The public ranges and levels of a plan's columns, one line for each; at most `_MOST_RANGES`."""
    given, design = plan.question.parameters, plan.question.preprocessing.get("design")
    lower, upper = given.get("lower"), given.get("upper")
    ranges: dict[str, object] = {}
    if isinstance(lower, list) and isinstance(upper, list) and len(lower) == len(upper) == len(plan.question.columns):
        ranges |= dict(zip(plan.question.columns, zip(lower, upper, strict=True), strict=True))
    # A design and a description have their ranges and levels by the columns of the table.
    for table in (given, design):
        if isinstance(table, Mapping):
            for entry in ("ranges", "levels"):
                if isinstance(found := table.get(entry), Mapping):
                    ranges |= found
    lines = [f"{visible(name)}: {visible(json.dumps(value))}" for name, value in ranges.items()]
    more = len(lines) - _MOST_RANGES
    return [*lines[:_MOST_RANGES], *([f"and {more} more: zerosum site dry-run lists them"] if more > 0 else [])]


def _in_front() -> bool:
    """Whether this process is in the foreground of the terminal. The system stops a background process that reads from
    it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # the terminal is gone
        return False
