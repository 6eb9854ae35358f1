"""`zerosum synth`: records and tables from a result of synthetic data, at no privacy cost."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from zerosum.cli import terminal
from zerosum.cli.app import Json, synth_app
from zerosum.cli.results import IdOrFolder, stored_result
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.names import counted, visible

if TYPE_CHECKING:
    from zerosum.study.synthetic_table import Records

# Cells of a table that the terminal shows; --json has all of them. Chosen by hand.
_MOST_SHOWN = 40


@synth_app.command("sample")
def synth_sample(
    id: IdOrFolder,
    rows: Annotated[int | None, typer.Option(help="Number of records; by default that of the people.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new .csv or .parquet file; else CSV on stdout.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same records.")] = None,
    schema: Annotated[Path | None, typer.Option(help="A new JSON file that describes the columns.")] = None,
) -> None:
    """Draw synthetic records from a result, as often as you like. Nothing is spent."""
    from zerosum.report.record import write_whole
    from zerosum.study.synthetic_table import SyntheticTable

    _check_places(out, schema)
    table = SyntheticTable.of(stored_result(id))
    records = table.records(rows, seed)
    if schema is not None:
        write_whole(schema, (json.dumps({"columns": table.schema()}, indent=2) + "\n").encode())
    if out is None:
        # Not by rich, which would wrap and colour lines: the output may be piped into a file.
        print(_csv(records), end="")
        return
    count = len(next(iter(records.values())))
    if out.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        # Through memory and not to the path: `write_whole` replaces no file and leaves no half of one.
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(_of_one_kind(records)), buffer)
        write_whole(out, buffer.getvalue())
    else:
        write_whole(out, _csv(records).encode())
    terminal.out.print(f"written to {out}: {counted(count, 'record')}", soft_wrap=True)


@synth_app.command("model")
def synth_model(
    id: IdOrFolder,
    out: Annotated[Path, typer.Option(help="A new JSON file.")],
    column: Annotated[
        list[str] | None, typer.Option(help="A column that the regression reads, given several times; by default all.")
    ] = None,
) -> None:
    """Write the public model from which sites draw missing values of a regression (rule "impute"). Nothing is spent."""
    from zerosum.report.record import write_whole
    from zerosum.study.synthetic_table import SyntheticTable

    _check_places(None, out)
    model = SyntheticTable.of(stored_result(id)).imputation_model(column or None)
    write_whole(out, model.content().encode())
    terminal.out.print(f"written to {out}: {counted(len(model.columns), 'column')}", soft_wrap=True)


def _check_places(out: Path | None, schema: Path | None) -> None:
    """Refuse files that cannot be written, before records are drawn and one of both files is there."""
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise BadParameter(f"--out must end in .csv or .parquet, got {out.name!r}")
    if out is not None and out == schema:
        raise BadParameter(f"--out and --schema must be two files, got {out} twice")
    for path in (out, schema):
        if path is not None and path.exists():
            raise BadInput(f"{path} exists already; choose another place")


def _of_one_kind(records: Records) -> Records:
    """Records for formats whose columns have one type: levels of several types are written as words."""
    from zerosum.algorithms.groups import shown

    found: Records = {}
    for name, values in records.items():
        kinds = {float if type(value) is int else type(value) for value in values if value is not None}
        found[name] = [None if each is None else shown(each) for each in values] if len(kinds) > 1 else values
    return found


def _csv(records: Records) -> str:
    """Records as CSV; a missing value is an empty cell."""
    text = io.StringIO()
    # The default of `csv` is \r\n, which line-based tools take as part of the last cell.
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records)
    writer.writerows(zip(*records.values(), strict=True))
    return text.getvalue()


@synth_app.command("table")
def synth_table(
    id: IdOrFolder,
    column: Annotated[list[str], typer.Option(help="A column; one to four, given several times.")],
    json_: Json = False,
) -> None:
    """Show the table of one to four columns with error bars. Nothing is spent; the errors take some seconds."""
    from zerosum.study.synthetic_table import SyntheticTable

    found = SyntheticTable.of(stored_result(id)).marginal(tuple(column))
    half = found.half_width
    cells = [
        {
            **{axis.name: axis.labels[at] for axis, at in zip(found.axes, place, strict=True)},
            "share": float(found.value[place]),
            "half_width": float(half[place]),
        }
        # Largest shares first: the terminal shows the first `_MOST_SHOWN` cells only.
        for place in sorted(_places(found.value.shape), key=lambda place: -found.value[place])
    ]
    if json_:
        terminal.print_json(cells)
        return
    table = Table(*(visible(name) for name in column), "share", "95 %")
    for cell in cells[:_MOST_SHOWN]:
        share, reach = float(str(cell["share"])), float(str(cell["half_width"]))
        table.add_row(*(visible(str(cell[name])) for name in column), f"{share:.4f}", f"+-{reach:.4f}")
    terminal.show_table(table)
    if len(cells) > _MOST_SHOWN:
        terminal.out.print(f"the {_MOST_SHOWN} largest of {len(cells)} cells; --json has all of them", soft_wrap=True)


def _places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All positions of an array of that shape."""
    import numpy as np

    return list(np.ndindex(*shape))
