"""`zerosum site convert-redcap`, `zerosum site convert-fhir`: tables from exports, drafts of studies from dictionaries.

The dictionary of a REDCap project and the definitions for FHIR are public. What the commands propose for a study and
for a site's schema follows from them alone, so that an analyst can run them without data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, site_app
from zerosum.errors import BadParameter
from zerosum.kernel.names import counted

OutOption = Annotated[Path | None, typer.Option(help="A new Parquet file, the data of the site.")]
StudyOption = Annotated[Path | None, typer.Option(help="A new study file, drafted without data.")]


@site_app.command("convert-redcap")
def convert_redcap(
    dictionary: Annotated[Path, typer.Argument(help="The project's data dictionary, CSV.")],
    export: Annotated[Path | None, typer.Option(help="An export of records, CSV, with codes or labels.")] = None,
    out: OutOption = None,
    study: StudyOption = None,
    json_: Json = False,
) -> None:
    """Convert a REDCap export to a table, and its data dictionary to the draft of a study file.

    Free text, files and fields marked as identifiers are left out.
    """
    from zerosum.study.converting import convert_redcap as convert
    from zerosum.study.converting import read_dictionary

    known = read_dictionary(dictionary)
    rows = None
    if (export is None) != (out is None):
        raise BadParameter("an export and the file to write belong together: --export FILE --out FILE")
    if export is not None and out is not None:
        rows = convert(known, export, out)
    # A project with repeated events has several rows with one record: without `unit_column` each row would be a unit.
    _finish(known.columns, out, rows, study, json_, left_out=known.left_out, unit_column=known.record)


@site_app.command("convert-fhir")
def convert_fhir(
    definitions: Annotated[Path, typer.Argument(help="The public definitions of the variables, TOML.")],
    folder: Annotated[Path | None, typer.Option(help="The folder of the bulk files, *.ndjson.")] = None,
    out: OutOption = None,
    study: StudyOption = None,
    json_: Json = False,
) -> None:
    """Convert FHIR bulk files (Patient, Observation, Condition) to a table with one row for each patient."""
    from zerosum.study.converting import convert_fhir as convert
    from zerosum.study.converting import read_fhir

    known = read_fhir(definitions)
    rows = None
    if (folder is None) != (out is None):
        raise BadParameter("a folder and the file to write belong together: --folder FOLDER --out FILE")
    if folder is not None and out is not None:
        # Records are read only with both options. The draft of a study needs the definitions alone.
        rows = convert(known, folder, out)
    _finish(known.columns(), out, rows, study, json_)


def _finish(
    columns: Mapping[str, Mapping[str, Any]],
    out: Path | None,
    rows: int | None,
    study: Path | None,
    json_: bool,
    *,
    left_out: tuple[str, ...] = (),
    unit_column: str | None = None,
) -> None:
    """Write the draft of a study, and print what was written.

    Parameters
    ----------
    columns : mapping
        Entries of a schema, by column.
    out : Path or None
        The table, if one was written.
    rows : int or None
        Its number of rows.
    study : Path or None
        The study file to write.
    json_ : bool
        Print as JSON.
    left_out : tuple of str
        Fields that are in no table.
    unit_column : str or None
        The column of units.
    """
    from zerosum.report.record import write_whole
    from zerosum.study.converting import study_draft

    if study is not None:
        # Refuses to overwrite a file.
        write_whole(study, study_draft(columns, study.stem).encode())
    if json_:
        record = {"columns": dict(columns), "left_out": list(left_out), "unit_column": unit_column, "rows": rows}
        files = {"file": None if out is None else str(out), "study": None if study is None else str(study)}
        terminal.print_json(record | files)
        return
    if out is not None and rows is not None:
        owner = "" if unit_column is None else f' and unit_column = "{unit_column}"'
        terminal.out.print(f"written: {out}, {counted(rows, 'row')}, {counted(len(columns), 'column')}", soft_wrap=True)
        terminal.out.print(f'in site.toml: data = "{out.name}"{owner}; then: zerosum site schema', soft_wrap=True)
    if study is not None:
        terminal.out.print(f"written: {study}; read it, choose columns, ranges and the budget", soft_wrap=True)
    if out is None and study is None:
        for name, own in columns.items():
            shown = ", ".join(f"{key} = {value}" for key, value in own.items() if key != "definition")
            terminal.out.print(f"{name}: {shown}", soft_wrap=True)
    # Named, because a reader of the dictionary would look for these fields in the table.
    if left_out:
        terminal.out.print(f"left out (free text, files, identifiers): {', '.join(left_out)}", soft_wrap=True)
