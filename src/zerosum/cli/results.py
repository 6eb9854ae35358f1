"""`zerosum results`: list, show, export and remove archived results, at no privacy cost.

Every run that charges a ledger is archived (`zerosum.study.archive`), because a result that was paid for and then lost
could only be bought again. Showing a stored release again reveals nothing new, so it costs nothing. Removing an
archived result frees disk space and gives no budget back.
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

# State of an archived study (`ArchivedStudy.as_record`) as a sentence.
_STATES = {
    "done": "done",
    "released": "stopped after its last release: export computes the result",
    "stopped": "stopped: its releases can be exported",
    "not begun": "stopped before the first round: nothing was spent",
    "unreadable": "its journal cannot be read",
    "damaged": "its result cannot be read",
}
_ID_DIGITS = 12  # of an id, where the list is narrow
Id = Annotated[str, typer.Argument(metavar="ID", help="As `zerosum results` lists it, or its beginning.")]


@results_app.callback(invoke_without_command=True)
def results(context: typer.Context, json_: Json = False) -> None:
    """List archived results of studies; showing and exporting them is free."""
    if context.invoked_subcommand is not None:
        return
    from zerosum.study.archive import ArchivedStudy

    records = [each.as_record() for each in ArchivedStudy.all()]
    for record in records:
        # The list is short; `show` has the numbers and the guarantee.
        record.pop("result", None)
        record.pop("privacy", None)
    if json_:
        terminal.print_json(records)
        return
    if not records:
        terminal.out.print("no results yet")
        return
    for record in records:
        # The largest cost at a site whose ledger can be read from here.
        rounds, spent = record["rounds"], [each for each in record["spent"].values() if each is not None]
        details = [
            record["algorithm"],
            f"{rounds['released']} of {counted(rounds['planned'], 'round')}" if rounds["planned"] else "",
            f"epsilon {max(spent):.4f}" if spent else "",
            _STATES[record["state"]],
        ]
        terminal.print_titled(record["id"], f"  {record['began'][:16].replace('T', ' ')}  {visible(record['study'])}")
        terminal.out.print("  " + ", ".join(filter(None, details)), soft_wrap=True)


@results_app.command("show")
def results_show(id: Id, json_: Json = False) -> None:
    """Show one study: its result, or the rounds released before it was stopped, and its cost."""
    from zerosum.report.record import read_estimate
    from zerosum.study.archive import ArchivedStudy

    archived = ArchivedStudy.load(id)
    record = archived.as_record()
    if json_:
        terminal.print_json(record)
        return
    terminal.print_titled(visible(record["study"]), f" ({record['algorithm']}), {record['began'][:19]} UTC")
    if record["state"] == "done":
        terminal.show_result(read_estimate(archived.folder / "result"), record["result"])
        terminal.show_warnings(record["result"].get("warnings", []))
    else:
        terminal.out.print(_STATES[record["state"]])
    # The summary ends with the command that is running now, which is left out.
    terminal.out.print(archived.summary().rpartition(";")[0] + ".", soft_wrap=True)
    _spent(record["spent"])


def _spent(spent: dict[str, Any]) -> None:
    """Print what the study was charged at each site.

    Parameters
    ----------
    spent : dict
        Epsilon by the name of a site; None for a ledger that cannot be read.
    """
    table = Table("site", "epsilon spent")
    for site, epsilon in spent.items():
        table.add_row(visible(site), "its ledger cannot be read from here" if epsilon is None else f"{epsilon:.4f}")
    terminal.show_table(table)


@results_app.command("export")
def results_export(
    id: Id,
    out: Annotated[Path, typer.Option(help="A new folder, like that of `zerosum run`.")],
    study: Annotated[
        Path | None, typer.Option(help="The study file, for maps of images, or if the result needs its files.")
    ] = None,
    json_: Json = False,
) -> None:
    """Write a result again; for a study that was stopped, its releases. No site is contacted and nothing is spent."""
    from zerosum.report.build import write_report
    from zerosum.study import Study
    from zerosum.study.archive import ArchivedStudy

    loaded = None if study is None else Study.load(study)
    whole = ArchivedStudy.load(id).export(out, None if loaded is None else loaded.build_algorithm())
    has_plan = whole and (out / "plan.json").exists()  # early versions wrote no plan
    maps = []
    if has_plan and loaded is not None:
        maps = loaded.illustrate(out)
    elif has_plan:
        write_report(out)
    if json_:
        terminal.print_json({"folder": str(out), "complete": whole, "maps": [path.name for path in maps]})
        return
    what = "the result" if whole else "the releases before the study was stopped"
    terminal.out.print(f"written to {out}: {what}", soft_wrap=True)


@results_app.command("remove")
def results_remove(
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="As `zerosum results` lists it, or its beginning.")
    ] = None,
    not_begun: Annotated[
        bool,
        typer.Option("--not-begun", help="All studies that were stopped before the first round: nothing was spent."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    json_: Json = False,
) -> None:
    """Remove an archived result, which cannot be exported afterwards. Ledgers keep what was spent."""
    from zerosum.study.archive import ArchivedStudy

    if (id is None) != not_begun:
        raise BadParameter("name one result, or give --not-begun")
    if not_begun:
        chosen = [each for each in ArchivedStudy.all() if each.as_record()["state"] == "not begun"]
    else:
        # An entry that cannot be read can still be removed: otherwise it would take up disk space for good.
        chosen = [ArchivedStudy.load(str(id), damaged=True)]
    if not json_:
        for each in chosen:
            record = each.as_record()
            terminal.print_titled(each.id, f" {visible(record['study'])}: {_STATES[record['state']]}")
    if chosen and not yes:
        _confirm(asks=not json_)
    removed = []
    for each in chosen:
        with suppress(*((Refused,) if not_begun else ())):  # a study that has begun meanwhile is not removed
            each.remove()
            removed.append(each.id)
    if json_:
        terminal.print_json({"removed": removed})
        return
    terminal.out.print(f"{len(removed)} removed; ledgers stay as they are")


def _confirm(*, asks: bool) -> None:
    """Ask for confirmation. Raises `BadParameter` without a yes.

    Parameters
    ----------
    asks : bool
        Whether to ask. A program that reads JSON cannot answer and must give `--yes`.
    """
    question = "Remove this? It cannot be exported again, and what was spent stays spent."
    try:
        sure = asks and typer.confirm(question)
    # The end of input, as in a pipe, or Ctrl-C: no answer is no consent.
    except typer.Abort:
        sure = False
    if not sure:
        raise BadParameter("nothing was removed: answer yes, or give --yes")
