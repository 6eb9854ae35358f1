"""An account, its cap and its spends, for tests of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Spend

ACCOUNT, CAP = Account("cohort", "person", "replace-one"), Cap(10.0, 1e-5)


def spend(number: int = 0, mu: float = 0.1, **fields: Any) -> Spend:
    given: dict[str, Any] = {
        "study": "s",
        "attempt": 0,
        "unit": "person",
        "statistic": "mean",
        "sensitivity": 2.0,
    }
    return Spend(round=number, mu=mu, request="c0ffee", **given | fields)


def grown(path: Path, entries: int) -> Path:
    with Ledger.open(path, ACCOUNT) as ledger:
        for number in range(entries):
            ledger.record(spend(number), CAP)
    return path


def counter_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.counter")
