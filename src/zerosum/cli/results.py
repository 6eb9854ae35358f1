"""Results of studies that spent: looking again is not spending.

Tested in tests/cli/test_results.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from zerosum.cli import terminal
from zerosum.cli.app import Json, results_app
from zerosum.kernel.names import visible
from zerosum.report.compose import write_report
from zerosum.report.record import read_estimate

_STATES = {
    "done": "done",
    "released": "stopped after its last release: export computes the result",
    "stopped": "stopped: what was released can be exported",
    "not begun": "stopped before anything was asked or spent",
    "unreadable": "its journal cannot be read",
    "damaged": "its result cannot be read",
}
Id = Annotated[str, typer.Argument(metavar="ID", help="As `zerosum results` lists it, or its beginning.")]


@results_app.callback(invoke_without_command=True)
def results(context: typer.Context, json_: Json = False) -> None:
    """Results of studies that spent: listed, shown and written again, free."""
    if context.invoked_subcommand is not None:
        return
    from zerosum.study.kept import Kept

    records = [each.as_record() for each in Kept.all()]
    for record in records:
        record.pop("result", None)
        record.pop("privacy", None)
    if json_:
        terminal.print_json(records)
        return
    if not records:
        terminal.out.print("no results yet")
        return
    table = Table(Column("id", no_wrap=True), Column("began", no_wrap=True), "study", "algorithm", "rounds", "epsilon")
    table.add_column("state")
    for record in records:
        rounds, spent = record["rounds"], [each for each in record["spent"].values() if each is not None]
        table.add_row(
            record["id"],
            record["began"][:16].replace("T", " "),
            visible(record["study"]),
            record["algorithm"],
            f"{rounds['released']} of {rounds['planned']}",
            f"{max(spent):.4f}" if spent else "",
            _STATES[record["state"]],
        )
    terminal.out.print(table)


@results_app.command("show")
def results_show(id: Id, json_: Json = False) -> None:
    """One study: its result, or the rounds that were released before it was stopped; and what it cost."""
    from zerosum.study.kept import Kept

    kept = Kept.load(id)
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
    terminal.out.print(table)


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
    from zerosum.study import Study
    from zerosum.study.kept import Kept

    loaded = None if study is None else Study.load(study)
    whole = Kept.load(id).export(out, None if loaded is None else loaded.build_algorithm())
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
