"""What was spent, and whether the record is sound.

Tested in tests/cli/test_cli.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, ledger_app
from zerosum.errors import BadInput, CheckFailed, LedgerRefused

_DOUBTED = (
    "Some entries were charged by Zerosum 0.1 under a guarantee that did not hold, or may not have held: they count as "
    "they were charged, and may have cost more. Functions of a site's own, clips below 1e-15 and the scheme "
    "cape-helper may have cost more too, which a ledger cannot tell; the changelog says why, under 'Privacy'."
)


@ledger_app.command("show")
def ledger_show(
    path: Annotated[Path | None, typer.Argument(help="A ledger file; without one, list those of this user.")] = None,
    delta: Annotated[float, typer.Option(help="The delta at which the total epsilon is stated.")] = 1e-5,
    json_: Json = False,
) -> None:
    """What a population has spent so far."""
    from zerosum.site.ledger import Ledger

    paths = [path] if path is not None else _ledgers()
    records = []
    for file in paths:
        with Ledger.inspect(file) as ledger:
            doubts, drawn = ledger.doubts(), Counter(step.reservation for step in ledger.draws())
            records.append(
                {
                    "ledger": str(file),
                    "account": asdict(ledger.account),
                    "epsilon": ledger.epsilon(delta),
                    "delta": delta,
                    "mu": ledger.mu,
                    "warning": _DOUBTED if any(doubts) else None,
                    "entries": [
                        asdict(entry) | {"guarantee": doubt, "drawn": 1 + drawn[entry.number]}
                        for entry, doubt in zip(ledger.entries(), doubts, strict=True)
                    ],
                }
            )
    if json_:
        terminal.print_json(records if path is None else records[0])
        return
    if not records:
        terminal.out.print("no ledgers yet")
    for record in records:
        terminal.show_ledger(record)


@ledger_app.command("verify")
def ledger_verify(
    path: Annotated[Path | None, typer.Argument(help="A ledger file; without one, all of this user's.")] = None,
    json_: Json = False,
) -> None:
    """Check a ledger's hash chain and its counter."""
    from zerosum.site.ledger import Ledger

    checked = []
    for file in [path] if path is not None else _ledgers():
        if not file.exists():
            raise BadInput(f"there is no ledger {file}")
        with _checking(), Ledger.inspect(file) as ledger:
            checked.append({"ledger": str(file), "entries": ledger.verify(), "sound": True})
    if json_:
        terminal.print_json(checked if path is None else checked[0])
        return
    for line in checked:
        terminal.out.print(f"{line['ledger']}: sound, {line['entries']} entries")


@contextmanager
def _checking() -> Iterator[None]:
    """Here a fault is what was looked for, not what was run into."""
    try:
        yield
    except LedgerRefused as error:
        raise CheckFailed(str(error)) from error


def _ledgers() -> list[Path]:
    from zerosum.site.policy import ledger_folder

    return sorted(ledger_folder().glob("*.sqlite"))
