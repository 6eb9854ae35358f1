"""A nursery of sites: for every order on its input it forks a site that spends until it is refused or killed.

A site records a spend and then writes `sent ROUND`, which stands for the contribution leaving it. The nursery
writes `pid N` once a site runs and `dead STATUS` once it does not. Forking from a process that has imported
everything makes a site cheap enough to be killed hundreds of times. With `dies` in its order, a site kills itself at
that many calls of functions, Python's or C's: a moment inside whatever it is at, and the same on any machine.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from zerosum.errors import BudgetExceeded, LedgerRefused
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Spend


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # short enough for a pipe to take it whole


def die_after(calls: int) -> None:
    left = count(calls, -1)

    def look(frame: object, event: str, argument: object) -> None:
        if next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)


def site(order: dict[str, Any]) -> None:
    if limit := order.get("limit"):  # no file may grow beyond it: writes fail as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if dies := order.get("dies"):
        die_after(dies)
    account, cap = Account("cohort", "person", "replace-one"), Cap(order["epsilon"], 1e-5)
    try:
        with Ledger.open(Path(order["path"]), account) as ledger:
            for number in count(len(ledger.entries())):
                ledger.record(Spend(order["study"], number, 0, "person", "mean", 2.0, order["mu"], "aa"), cap)
                say(f"sent {number}")
    except BudgetExceeded:
        say("spent")
    except LedgerRefused as error:
        say(f"refused {error}")


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                site(json.loads(line))
                status = 0
            finally:
                os._exit(status)
        say(f"pid {child}")
        _, status = os.waitpid(child, 0)
        say(f"dead {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
