"""`zerosum reproduce`: figures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerosum.cli import complete, terminal
from zerosum.cli.app import Json, app


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="pca-epsilon, pca-samples, pca-delta, ica-epsilon, ica-subjects, ica-delta, ica-maps, fm-epsilon, "
            "fm-samples, fm-delta, fm-error, nn-epsilon, nn-samples, otd-mog-epsilon, otd-mog-samples, otd-mog-delta, "
            "dc-mnist, dc-fashion, cape-delta or accountants.",
            autocompletion=complete.experiments,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set: synthetic (default); mnist or covertype for pca-*; synthetic-50, crime or kegg for fm-*."
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Folder with the files of real data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the numbers (CSV) and the picture (PNG).")] = Path("reproduced"),
    full: Annotated[
        bool, typer.Option("--full", help="The papers' sizes and ten runs, instead of a quick run.")
    ] = False,
    json_: Json = False,
) -> None:
    """Reproduce a figure of the papers: their methods and ours, with published and exact privacy costs."""
    from zerosum.papers.figures import find

    experiment = find(name)
    with terminal.progress(name) as on_step:
        rows = experiment.run(out, data, folder, full=full, on_step=on_step)
    lines = experiment.summary(rows)
    if json_:
        terminal.print_json({"figure": name, "data": experiment.dataset(data), "folder": str(out), "rows": lines})
        return
    terminal.show_lines(list(experiment.shown), [[line[each] for each in experiment.shown.values()] for line in lines])
    terminal.out.print(f"written to {out}", soft_wrap=True)
