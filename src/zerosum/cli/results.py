"""`zerosum results`: list, show, export and remove archived results, and their tables for a paper, at no privacy cost.

Every run that charges a ledger is archived (`zerosum.study.archive`), because a result that was paid for and then lost
could only be bought again. Showing a stored release again reveals nothing new, so it costs nothing. Removing an
archived result frees disk space and gives no budget back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from zerosum.cli import terminal
from zerosum.cli.app import Json, results_app
from zerosum.errors import BadInput, BadParameter, Refused
from zerosum.kernel.names import counted, visible

if TYPE_CHECKING:
    from zerosum.report.export import Changes
    from zerosum.report.record import Result

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

Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="COLUMN=TEXT or COLUMN:LEVEL=TEXT: other names in tables of text and forest plots."),
]
IdOrFolder = Annotated[
    str,
    typer.Argument(metavar="ID", help="As `zerosum results` lists it, or its beginning; or a folder with a result."),
]


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


class Format(StrEnum):
    """Formats of `zerosum results export`."""

    CSV = "csv"
    JSON = "json"
    LATEX = "latex"
    HTML = "html"
    DOCX = "docx"


class Adjustment(StrEnum):
    """Corrections for several tests."""

    NONE = "none"
    HOLM = "holm"
    BENJAMINI_HOCHBERG = "benjamini-hochberg"


@results_app.command("export")
def results_export(
    id: IdOrFolder,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder, like that of `zerosum run`; with --format a new file, or a folder for csv."),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Tables for a paper or for R, instead of the whole result.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Name of a table; all if none is given. May be repeated.")
    ] = None,
    per: Annotated[
        list[str] | None, typer.Option(help="COLUMN=STEP: coefficients and ratios for a step, such as age=10.")
    ] = None,
    contrast: Annotated[
        list[str] | None,
        typer.Option(help="A combination of coefficients, such as 'older men: 10*age + sex'. May be repeated."),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=A,B: predictions at these values, the other columns at their means."),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="A joint test of coefficients, separated by semicolons: 'smoker=old; smoker=yes'; or a column, for "
            "all its levels. May be repeated."
        ),
    ] = None,
    correction: Annotated[
        Adjustment, typer.Option(help="Adjustment of the p values of each table for its number of tests.")
    ] = Adjustment.NONE,
    random_intercept: Annotated[
        bool,
        typer.Option("--random-intercept", help="Linear models with site_effects: a random intercept by site instead."),
    ] = False,
    label: Labels = None,
    study: Annotated[
        Path | None, typer.Option(help="The study file, for maps of images, or if the result needs its files.")
    ] = None,
    json_: Json = False,
) -> None:
    """Write a result again, or its tables for a paper; of a stopped study, its releases. Nothing is spent."""
    from zerosum.report.build import write_report
    from zerosum.report.export import Changes
    from zerosum.study import Study
    from zerosum.study.archive import ArchivedStudy

    if format_ is not None:
        _write_tables(
            stored_result(id),
            format_,
            out,
            table or (),
            Changes.parse(
                per or (), contrast or (), margin or (), label or (), test or (), correction.value, random_intercept
            ),
        )
        return
    if out is None:
        raise BadParameter("give --out, a new folder; or --format, for tables alone")
    # Refused and not ignored: the files of the whole result would lack the table that the option names.
    if table or per or contrast or margin or label or test or random_intercept or correction is not Adjustment.NONE:
        raise BadParameter(
            "--table, --per, --contrast, --margin, --test, --correction, --random-intercept and --label are about "
            "tables: give --format with them"
        )
    loaded = None if study is None else Study.load(study)
    whole = ArchivedStudy.load(id).export(out, None if loaded is None else loaded.build_algorithm())
    has_plan = whole and (out / "plan.json").exists()  # early versions wrote no plan
    maps = []
    # `illustrate` writes the report too. Without the study file there is no grid, so no maps of images.
    if has_plan and loaded is not None:
        maps = loaded.illustrate(out)
    elif has_plan:
        write_report(out)
    if json_:
        terminal.print_json({"folder": str(out), "complete": whole, "maps": [path.name for path in maps]})
        return
    what = "the result" if whole else "the releases before the study was stopped"
    terminal.out.print(f"written to {out}: {what}", soft_wrap=True)


def stored_result(id: str) -> Result:
    """The result of an archived study, or of a folder that `zerosum run` wrote.

    Parameters
    ----------
    id : str
        The id of a study, its beginning, or a folder with a result.json.
    """
    from zerosum.report.record import Result
    from zerosum.study.archive import ArchivedStudy

    if (Path(id) / "result.json").is_file():
        return Result.read(Path(id))
    archived = ArchivedStudy.load(id)
    if archived.result is None:
        raise BadInput(f"the study {archived.id} has no result: 'zerosum results show {archived.id}' has its state")
    return Result.read(archived.folder / "result")


def _write_tables(result: Result, format_: Format, out: Path | None, names: Sequence[str], changes: Changes) -> None:
    """Write tables of a result in one format, to a file, a folder, or the standard output.

    Parameters
    ----------
    result : Result
        The result.
    format_ : Format
        The format.
    out : Path or None
        A new file; for CSV with several tables a new folder; None for the standard output.
    names : sequence of str
        Names of the tables; all if empty.
    changes : Changes
        Derived tables, tests, corrections and labels.
    """
    from zerosum.report.export import exported

    files = exported(result, format_.value, tuple(names), changes)
    if out is None:
        # A Word file is binary and would garble a terminal.
        if format_ is Format.DOCX:
            raise BadParameter("a Word file needs --out FILE.docx")
        if len(files) > 1:
            raise BadParameter(f"give --out FOLDER, or one --table: {', '.join(Path(name).stem for name in files)}")
        # Not by rich, which would wrap and colour lines: the output may be piped into a file.
        print("".join(content.decode() for content in files.values()), end="")
        return
    # CSV has one file for each table. A path without an ending names a folder, also for a single table.
    written = _write_files(files, out, folder=format_ is Format.CSV and (len(files) > 1 or not out.suffix))
    for path in written:
        terminal.out.print(f"written to {path}", soft_wrap=True)


def _write_files(files: Mapping[str, bytes], out: Path, *, folder: bool) -> list[Path]:
    """Write files to a folder under their names, or the only one to a path; an existing file is not replaced.

    Parameters
    ----------
    files : mapping of str to bytes
        Contents by name.
    out : Path
        Folder or file.
    folder : bool
        Whether `out` is a folder.
    """
    from zerosum.report.record import write_whole

    places = {out / name: content for name, content in files.items()} if folder else dict.fromkeys([out], b"")
    if not folder:
        # One value: all formats but CSV have one file.
        (places[out],) = files.values()
    # Nothing is written if one of the files exists.
    if there := [path for path in places if path.exists()]:
        raise BadInput(f"{there[0]} exists already; choose another place")
    for path, content in places.items():
        write_whole(path, content)
    return list(places)


@results_app.command("methods")
def results_methods(id: IdOrFolder, json_: Json = False) -> None:
    """Print the paragraphs on methods for a paper, from the plan of a study."""
    from zerosum.report.methods_text import methods

    # From the stored result alone: the text is the same whenever it is printed.
    paragraphs = methods(stored_result(id))
    if json_:
        terminal.print_json(list(paragraphs))
        return
    terminal.out.print("\n\n".join(map(visible, paragraphs)), soft_wrap=True, markup=False, highlight=False)


@results_app.command("picture")
def results_picture(
    id: IdOrFolder,
    out: Annotated[
        Path | None, typer.Option(help="A new file that ends with .svg, .pdf or .png; the names are listed without it.")
    ] = None,
    picture: Annotated[str | None, typer.Option(help="Name of a picture; needed if there are several.")] = None,
    per: Annotated[
        list[str] | None, typer.Option(help="COLUMN=STEP: ratios for a step in the forest plot, such as age=10.")
    ] = None,
    label: Labels = None,
    json_: Json = False,
) -> None:
    """Write a picture of a result for a paper, such as a forest plot or survival curves, as vectors or PNG."""
    from zerosum.report.charts import picture_file
    from zerosum.report.export import Changes, pictures

    charts = pictures(stored_result(id), Changes.parse(per=per or (), labels=label or ()))
    if out is None:
        if json_:
            terminal.print_json({name: each.title for name, each in charts.items()})
            return
        for name, each in charts.items():
            terminal.out.print(f"{name}: {visible(each.title)}", soft_wrap=True, markup=False, highlight=False)
        return
    # A guess between several pictures could put the wrong one into a paper.
    if picture is None and len(charts) > 1:
        raise BadParameter(f"this result has several pictures, choose one with --picture: {', '.join(charts)}")
    if not charts or (picture is not None and picture not in charts):
        raise BadParameter(f"there is no picture {picture or ''!r}; pictures: {', '.join(charts) or 'none'}")
    chosen = charts[picture or next(iter(charts))]
    # The ending of the name chooses the format.
    (path,) = _write_files({out.name: picture_file(chosen, out.suffix.removeprefix("."))}, out, folder=False)
    if json_:
        terminal.print_json({"file": str(path)})
        return
    terminal.out.print(f"written to {path}", soft_wrap=True)


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
