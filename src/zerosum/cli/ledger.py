"""`zerosum ledger`: entries and costs of a site's ledger, and its integrity.

The commands read; only a site that serves a study writes. Without a path they read every ledger that this user's
studies have charged: those in the default folder, and those that archived studies name. A ledger in use must have its
counter, the separate file that shows a ledger restored from an old backup; a copy that an auditor was given may lack
it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, ledger_app
from zerosum.errors import BadInput, BadParameter, CheckFailed, LedgerRefused
from zerosum.kernel.names import counted

if TYPE_CHECKING:
    from zerosum.site.ledger_records import Cap

# Guarantees of earlier versions that did not hold. The entries cannot be corrected afterwards: what the sites released
# stays released, so the ledger is shown as it was charged, with this remark.
_DOUBT_WARNING = (
    "Some entries were charged by Zerosum 0.1 under a guarantee that did not hold, or may not have held: they count as "
    "they were charged, and may have cost more. Functions of a site's own, clips below 1e-15 and the scheme "
    "cape-helper may have cost more too, which a ledger cannot show; the changelog explains this under 'Privacy'."
)
_EXPOSURE_WARNING = (
    "Some studies were agreed to automatically under Zerosum 0.2, when a coordinator could learn exact facts from a "
    "site with automatic consent: they count as they were charged, and may have cost more. No approval of a steward is "
    "on record for them; the changelog explains this under 'Privacy'."
)
_NO_COUNTER = "its counter is absent, so it is unknown whether this is the newest copy"
_ABSENT = "archived results were charged to it, and it is missing: restore its newest copy, unless it was temporary"
# Columns of the CSV, in their order.
_FIELDS = (
    *("ledger", "population", "number", "recorded", "study", "user", "algorithm", "columns", "statistic", "round"),
    *("attempt", "steps", "drawn", "charged_mu", "noise", "public_digest", "plan", "version", "consent", "exposed"),
)

Policy = Annotated[Path | None, typer.Option(help="The policy that names the ledger, its counter and the cap.")]
CounterOption = Annotated[Path | None, typer.Option(help="The ledger's counter, where it is not beside it.")]


@dataclass(frozen=True)
class _Place:
    """Where one ledger lies.

    Attributes
    ----------
    path : Path
        The ledger.
    counter : Path or None
        Its counter, where it is not beside the ledger.
    cap : Cap or None
        The cap of the policy that names the ledger: epsilon at a delta.
    copy : bool
        Whether this is a copy, which may lie without its counter.
    """

    path: Path
    counter: Path | None = None
    cap: Cap | None = None
    copy: bool = False


@ledger_app.command("show")
def ledger_show(
    path: Annotated[
        Path | None, typer.Argument(help="A ledger file; by default all that this user's studies have charged.")
    ] = None,
    policy: Policy = None,
    counter: CounterOption = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta at which epsilon is stated; by default that of the cap.")
    ] = None,
    csv_: Annotated[bool, typer.Option("--csv", help="Print the entries as CSV.")] = False,
    json_: Json = False,
) -> None:
    """Print studies with user, date, columns and cost, and what remains under the cap."""
    from zerosum.kernel.amounts import check_delta
    from zerosum.site.ledger import Ledger
    from zerosum.site.ledger_summary import statement

    if csv_ and json_:
        raise BadParameter("--csv or --json, not both")
    if delta is not None:
        check_delta(delta)
    records = []
    for place in _places(path, policy, counter):
        with Ledger.inspect(place.path, counter=place.counter, copy=place.copy) as ledger:
            record = statement(ledger, place.cap, delta)
        # `doubted` and `exposed` become one sentence for people and programs alike.
        exposed = any(line["exposed"] for line in record["studies"])
        warnings = [*([_DOUBT_WARNING] if record.pop("doubted") else []), *([_EXPOSURE_WARNING] if exposed else [])]
        records.append(record | {"warning": " ".join(warnings) or None})
    if csv_:
        _write_csv(records)
    elif json_:
        terminal.print_json(records if path is None and policy is None else records[0])
    else:
        # A ledger that is missing is reported only where all are listed: someone who names a file has asked about that
        # file.
        gone = _absent_ledgers() if path is None and policy is None else []
        if not records and not gone:
            terminal.out.print("no ledgers yet")
        for record in records:
            terminal.show_ledger(record)
            if record["newest"] is None:
                terminal.out.print(f"{record['ledger']}: {_NO_COUNTER}.", soft_wrap=True)
        for lost in gone:
            terminal.out.print(f"{lost}: {_ABSENT}.", soft_wrap=True)


@ledger_app.command("verify")
def ledger_verify(
    path: Annotated[
        Path | None, typer.Argument(help="A ledger file; by default all that this user's studies have charged.")
    ] = None,
    policy: Policy = None,
    counter: CounterOption = None,
    json_: Json = False,
) -> None:
    """Check a ledger's hash chain and its counter."""
    from zerosum.site.ledger import Ledger

    checked: list[dict[str, Any]] = []
    for place in _places(path, policy, counter):
        if not place.path.exists():
            raise BadInput(f"there is no ledger {place.path}")
        # Opening a ledger already verifies its chain and its counter, so a fault may show here.
        with _fault_as_failed_check(), Ledger.inspect(place.path, counter=place.counter, copy=place.copy) as ledger:
            note = _NO_COUNTER if ledger.unwitnessed else None
            checked.append({"ledger": str(place.path), "entries": ledger.verify(), "sound": True, "note": note})
    if path is None and policy is None:
        checked += [
            {"ledger": str(lost), "entries": None, "sound": False, "note": _ABSENT} for lost in _absent_ledgers()
        ]
    if json_:
        terminal.print_json(checked if path is None and policy is None else checked[0])
        return
    for line in checked:
        if not line["sound"]:
            terminal.out.print(f"{line['ledger']}: {line['note']}", soft_wrap=True)
            continue
        note = f"; {line['note']}" if line["note"] else ""
        held = counted(line["entries"], "entry", "entries")
        terminal.out.print(f"{line['ledger']}: sound, {held}{note}", soft_wrap=True)


@contextmanager
def _fault_as_failed_check() -> Iterator[None]:
    """Raise a fault of a ledger as a failed check (exit code 4)."""
    try:
        yield
    except LedgerRefused as error:
        raise CheckFailed(str(error)) from error


def _places(path: Path | None, policy: Path | None, counter: Path | None) -> list[_Place]:
    """Ledgers to read: the given file, that of a policy, or all ledgers that this user's studies have charged.

    Parameters
    ----------
    path : Path or None
        A ledger file.
    policy : Path or None
        A policy, which names its ledger, counter and cap; `path` and `counter` replace the first two.
    counter : Path or None
        The counter of `path`.

    Returns
    -------
    list of _Place
        A single entry unless neither `path` nor `policy` is given.
    """
    from zerosum.site.policy import Policy, ledger_folder

    if policy is not None:
        loaded = Policy.load(policy)
        return [_Place(path or loaded.ledger_path, counter or loaded.counter_path, loaded.cap)]
    if path is None and counter is not None:
        raise BadParameter("--counter belongs to one ledger: name the ledger too")
    if counter is not None and not counter.is_file():
        raise BadInput(f"there is no counter {counter}")
    from zerosum.study.archive import charged_ledgers

    # By resolved path, since an archived study may name a ledger of the default folder through a link.
    known = {place.resolve(): _Place(place) for place in sorted(ledger_folder().glob("*.sqlite"))}
    for place, its_counter in charged_ledgers():
        known.setdefault(place.resolve(), _Place(place, its_counter))
    if path is None:
        return list(known.values())
    if counter is None and path.resolve() in known:  # a ledger in use must have its counter
        return [_Place(path, known[path.resolve()].counter)]
    return [_Place(path, counter, copy=True)]


def _absent_ledgers() -> list[Path]:
    """Ledgers that archived results were charged to and that do not exist any more. Their charges are in no sum."""
    from zerosum.study.archive import missing_ledgers

    return missing_ledgers()


def _write_csv(records: list[dict[str, Any]]) -> None:
    """One line per entry, with the facts of its study repeated in each line, so that a spreadsheet can filter them.

    Parameters
    ----------
    records : list of dict
        Statements of ledgers, from `zerosum.site.ledger_summary.statement`.
    """
    writer = csv.DictWriter(sys.stdout, _FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in records:
        studies = {line["study"]: line for line in record["studies"]}
        for entry in record["entries"]:
            line = studies[entry["spend"]["study"]]
            words = line["asked"]
            cells = entry["spend"] | entry | {key: words.get(key, "") for key in ("user", "algorithm", "public_digest")}
            cells |= {"consent": line["consent"] or "", "exposed": "yes" if line["exposed"] else ""}
            columns = ";".join(words.get("columns", []))
            account = {"ledger": record["ledger"], "population": record["account"]["population"]}
            writer.writerow(
                {key: _without_formula(value) for key, value in (cells | account | {"columns": columns}).items()}
            )


def _without_formula(value: Any) -> Any:
    """Text that a spreadsheet does not evaluate as a formula.

    Names of studies and users come from other parties. A cell that begins with one of these characters could be run as
    a formula on the steward's machine; a leading apostrophe makes it text.
    """
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
