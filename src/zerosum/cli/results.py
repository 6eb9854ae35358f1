"""Results of studies that spent: looking again is not spending.

Tested in tests/cli/test_cli_results.py.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from zerosum.cli import terminal
from zerosum.cli.app import Json, results_app
from zerosum.errors import BadParameter, Refused
from zerosum.kernel.names import counted, visible

_STATES = {
    "done": "done",
    "released": "stopped after its last release: export computes the result",
    "stopped": "stopped: what was released can be exported",
    "not begun": "stopped before anything was asked or spent",
    "unreadable": "its journal cannot be read",
    "damaged": "its result cannot be read",
}
_SHOWN = 12  # of an id, where the list is narrow
Id = Annotated[str, typer.Argument(metavar="ID", help="As `zerosum results` lists it, or its beginning.")]


@results_app.callback(invoke_without_command=True)
def results(context: typer.Context, json_: Json = False) -> None:
    """Results of studies that spent: listed, shown and written again, free."""
    if context.invoked_subcommand is not None:
        return
    from zerosum.study.archive import ArchivedStudy

    records = [each.as_record() for each in ArchivedStudy.all()]
    for record in records:
        record.pop("result", None)
        record.pop("privacy", None)
    if json_:
        terminal.print_json(records)
        return
    if not records:
        terminal.out.print("no results yet")
        return
    for record in records:
        rounds, spent = record["rounds"], [each for each in record["spent"].values() if each is not None]
        told = [
            record["algorithm"],
            f"{rounds['released']} of {counted(rounds['planned'], 'round')}" if rounds["planned"] else "",
            f"epsilon {max(spent):.4f}" if spent else "",
            _STATES[record["state"]],
        ]
        terminal.titled(record["id"], f"  {record['began'][:16].replace('T', ' ')}  {visible(record['study'])}")
        terminal.out.print("  " + ", ".join(filter(None, told)), soft_wrap=True)


@results_app.command("show")
def results_show(id: Id, json_: Json = False) -> None:
    """One study: its result, or the rounds that were released before it was stopped; and what it cost."""
    from zerosum.report.record import read_estimate
    from zerosum.study.archive import ArchivedStudy

    kept = ArchivedStudy.load(id)
    record = kept.as_record()
    if json_:
        terminal.print_json(record)
        return
    terminal.titled(visible(record["study"]), f" ({record['algorithm']}), {record['began'][:19]} UTC")
    if record["state"] == "done":
        terminal.show_result(read_estimate(kept.folder / "result"), record["result"])
        terminal.show_warnings(record["result"].get("warnings", []))
    else:
        terminal.out.print(_STATES[record["state"]])
    terminal.out.print(kept.told().rpartition(";")[0] + ".", soft_wrap=True)
    _spent(record["spent"])


def _spent(spent: dict[str, Any]) -> None:
    table = Table("site", "epsilon spent")
    for site, epsilon in spent.items():
        table.add_row(visible(site), "its ledger cannot be read from here" if epsilon is None else f"{epsilon:.4f}")
    terminal.show_table(table)


@results_app.command("export")
def results_export(
    id: Id,
    out: Annotated[Path, typer.Option(help="A new folder, as that of `zerosum run`.")],
    study: Annotated[
        Path | None, typer.Option(help="The study file, for the maps of images, or where the result needs its files.")
    ] = None,
    json_: Json = False,
) -> None:
    """Write a result again; of a study that was stopped, what was released. Nothing is asked and nothing spent."""
    from zerosum.report.compose import write_report
    from zerosum.study import Study
    from zerosum.study.archive import ArchivedStudy

    loaded = None if study is None else Study.load(study)
    whole = ArchivedStudy.load(id).export(out, None if loaded is None else loaded.build_algorithm())
    told = whole and (out / "plan.json").exists()  # results of before reports have none
    maps = []
    if told and loaded is not None:
        maps = loaded.illustrate(out)
    elif told:
        write_report(out)
    if json_:
        terminal.print_json({"folder": str(out), "complete": whole, "maps": [path.name for path in maps]})
        return
    what = "the result" if whole else "what was released before the study was stopped"
    terminal.out.print(f"{what} was written to {out}", soft_wrap=True)


@results_app.command("remove")
def results_remove(
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="As `zerosum results` lists it, or its beginning.")
    ] = None,
    not_begun: Annotated[
        bool, typer.Option("--not-begun", help="All studies that were stopped before anything was asked or spent.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    json_: Json = False,
) -> None:
    """Remove a result that is kept; it cannot be written again. What was spent stays spent: no ledger is touched."""
    from zerosum.study.archive import ArchivedStudy

    if (id is None) != not_begun:
        raise BadParameter("name one result, or say --not-begun")
    if not_begun:
        chosen = [each for each in ArchivedStudy.all() if each.as_record()["state"] == "not begun"]
    else:
        chosen = [ArchivedStudy.load(str(id), damaged=True)]
    if not json_:
        for each in chosen:
            record = each.as_record()
            terminal.titled(each.id, f" {visible(record['study'])}: {_STATES[record['state']]}")
    if chosen and not yes:
        _confirm(asks=not json_)
    removed = []
    for each in chosen:
        with suppress(*((Refused,) if not_begun else ())):  # one that begins just now stays
            each.remove()
            removed.append(each.id)
    if json_:
        terminal.print_json({"removed": removed})
        return
    terminal.out.print(f"{len(removed)} removed; ledgers stay as they are")


def _confirm(*, asks: bool) -> None:
    """Whoever does not say yes has removed nothing."""
    question = "Remove this? It cannot be exported again, and what was spent stays spent."
    try:
        sure = asks and typer.confirm(question)
    except typer.Abort:
        sure = False
    if not sure:
        raise BadParameter("nothing was removed: it takes a yes, or --yes")
