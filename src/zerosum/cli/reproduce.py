"""`zerosum reproduce`: figures of the papers.

Each figure is an experiment of `zerosum.papers.figures` with a list of data sets, of which the first is used unless
`--data` names another. Synthetic data are made on the spot; files of real data sets must lie in `--folder`. Sizes are
reduced by default; `--full` has those of the papers and ten runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from typer.core import TyperCommand

from zerosum.cli import complete, terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadData, BadParameter

if TYPE_CHECKING:
    from zerosum.papers.figures.experiment import Experiment

# Argument that stands for every figure.
ALL = "all"


class _ListsFigures(TyperCommand):
    """A command whose help page ends with the table of all figures.

    The table is made when the page is shown: it loads the figures, which other help pages do not need.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of the command, then the table of the figures: name, paper and figure, data sets."""
        from zerosum.papers.figures import CATALOGUE, EXPERIMENTS

        super().format_help(ctx, formatter)
        table = Table("name", "figure", "--data", box=box.SIMPLE_HEAD, pad_edge=False)
        for name, experiment in EXPERIMENTS.items():
            # Figures of pure accounting need no data.
            data = "" if experiment.data == ("none",) else ", ".join(experiment.data)
            table.add_row(name, f"{CATALOGUE[name].paper}: {CATALOGUE[name].shows}", data)
        table.columns[0].no_wrap = True
        terminal.out.print(table)


@app.command(cls=_ListsFigures)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="A name of the list below, or all.", autocompletion=complete.experiments),
    ],
    data: Annotated[
        str | None, typer.Option(help="Data set, one of the list below; the first if it is not given.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder with the files of real data sets, such as mnist.npz.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the numbers (CSV) and the picture (PNG).")] = Path("reproduced"),
    full: Annotated[
        bool,
        typer.Option("--full", help="The papers' sizes and ten runs, which can take hours, instead of a quick run."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Quick runs, the default.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of runs of each setting; by default 10 with --full, fewer without.")
    ] = None,
    json_: Json = False,
) -> None:
    """Reproduce a figure of the papers: their methods and ours, with published and exact privacy costs.

    All figures, with the claims of the papers on one HTML page: zerosum reproduce all --quick.
    """
    from zerosum.papers.figures import EXPERIMENTS, find

    if full and quick:
        raise BadParameter("give either --full or --quick")
    if seeds is not None and seeds < 1:
        raise BadParameter(f"--seeds must be at least 1, got {seeds}")
    if name == ALL:
        if data is not None:
            raise BadParameter("--data belongs to one figure: leave it out with all")
        _reproduce_all(list(EXPERIMENTS.values()), folder, out, full, seeds, json_)
        return
    experiment = find(name)
    with terminal.progress(name) as on_step:
        rows = experiment.run(out, data, folder, full=full, seeds=seeds, on_step=on_step)
    lines = experiment.summary(rows)
    if json_:
        terminal.print_json({"figure": name, "data": experiment.dataset(data), "folder": str(out), "rows": lines})
        return
    terminal.show_lines(*experiment.printed(lines))
    # Settings may have different numbers of runs; the range is printed, or the number if they agree.
    runs = sorted({int(line["runs"]) for line in lines}) if "runs" in experiment.shown.values() else []
    several = f"; {' to '.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} runs of each setting" if runs else ""
    terminal.out.print(f"written to {out / experiment.stem(data)}.csv and .png{several}", soft_wrap=True)


def _reproduce_all(
    experiments: list[Experiment], folder: Path | None, out: Path, full: bool, seeds: int | None, as_json: bool
) -> None:
    """Run every figure on its first data set, and write a page with all of them.

    A figure whose data are not in `folder` is left out, and the page has the reason.

    Parameters
    ----------
    experiments : list of Experiment
        The figures in the order of the page.
    folder : Path or None
        Folder with the files of real data sets.
    out : Path
        Folder for numbers, pictures and the page.
    full : bool
        The papers' sizes instead of a quick run.
    seeds : int or None
        Runs of each setting; None for the default of each figure.
    as_json : bool
        Print the outcome as JSON.
    """
    from zerosum.papers.figures.page import Picture, write_page

    pictures: list[Picture] = []
    for number, experiment in enumerate(experiments, start=1):
        began = time.monotonic()
        reason = ""
        try:
            with terminal.progress(f"{experiment.name} ({number} of {len(experiments)})") as on_step:
                # A quick run of all figures takes fewer runs of each than a quick run of one figure.
                chosen = seeds if seeds is not None or full else experiment.brief_seeds
                experiment.run(out, None, folder, full=full, seeds=chosen, on_step=on_step)
        except BadData as error:
            reason = str(error)
        seconds = time.monotonic() - began
        pictures.append(Picture(experiment.name, experiment.stem(None), seconds, reason))
        # One line when each figure is done: the whole run may take hours.
        terminal.err.print(f"{experiment.name}: {reason or f'{seconds:.0f} s'}", soft_wrap=True)
    page = write_page(pictures, out, full=full)
    if as_json:
        terminal.print_json(
            {
                "page": str(page),
                "figures": [{"name": p.name, "seconds": p.seconds, "left_out": p.reason} for p in pictures],
            }
        )
        return
    left = sum(bool(each.reason) for each in pictures)
    whole = sum(each.seconds for each in pictures)
    terminal.out.print(f"{len(pictures) - left} figures in {whole:.0f} s, {left} left out: {page}", soft_wrap=True)
