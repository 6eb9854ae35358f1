"""What a study would be worth: forecasts for `zerosum plan --what-if`, and `zerosum compare`.

Tested in tests/cli/test_cli_forecast.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from zerosum.cli import complete, terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.names import visible

if TYPE_CHECKING:
    from zerosum.forecast import Assumptions, Comparison, Forecast, WhatIf
    from zerosum.report.document import Picture
    from zerosum.study import Study

_LINES = 24  # of the table of a result's numbers

People = Annotated[int | None, typer.Option(help="How many people there are in all, where sites do not declare it.")]
Guess = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=SHAPE",
        help="How a column may lie: uniform (the default), normal:MEAN:SD, skewed:MEDIAN:FACTOR, shares:SHARE:SHARE.",
    ),
]
Like = Annotated[Path | None, typer.Option(help="A public or made-up file with the study's columns, to draw from.")]
SpectrumOption = Annotated[
    str | None,
    typer.Option(
        "--spectrum", help="Of a PCA: power:EXPONENT (power:1 by default), exponential:RATIO, flat, or a file."
    ),
]
RSquared = Annotated[
    float | None, typer.Option(help="How much of a regression's response its features explain; 0.3 by default.")
]
Separation = Annotated[
    float | None,
    typer.Option(help="Of neighbouring clusters (6 by default) or classes (4), in standard deviations within one."),
]
Rows = Annotated[
    int | None, typer.Option(help="Of people with many rows in order of time (ICA): how many; 100 by default.")
]


# ---- what if -------------------------------------------------------------------------------------------------------


def print_forecasts(
    study: Study,
    out: Path | None,
    json_: bool,
    *,
    people: int | None,
    guesses: Assumptions,
    targets: Sequence[str],
    runs: int | None,
) -> None:
    """Print forecasts around a study's own setting, and draw them if a place is given."""
    from zerosum.forecast import what_if
    from zerosum.report.record import write_whole

    _check_picture(out, "with --what-if, --out names the picture: a file that ends in .svg")
    with terminal.progress("rehearsing") as on_step:
        target = _targets(targets)
        found = what_if(study, guesses, people=people, runs=runs, target=target, on_step=on_step)
    if out is not None:
        from zerosum.report.sheet import sheet

        adds = (
            "What is lost with privacy and without it" if found.level else "What privacy and sampling add to the result"
        )
        about = f"{adds}, {found.unit}."
        write_whole(out, sheet(f"{found.study}: what to expect", about, pictures_of(found)))
    if json_:
        terminal.print_json(found.as_record() | ({} if out is None else {"picture": str(out)}))
        return
    _show(found)
    if out is not None:
        terminal.out.print(f"\npicture: {out}", soft_wrap=True)


def _check_picture(out: Path | None, named: str) -> None:
    """What is wrong with the place of a picture is said before anybody waits for it."""
    if out is None:
        return
    if out.suffix != ".svg":
        raise BadParameter(named)
    if out.exists():
        raise BadInput(f"{out} exists already; choose another place")
    nearest = next(parent for parent in out.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise BadInput(f"{out} could not be written: {nearest} is no folder that files may be added to")


def assumptions_of(
    study: Study,
    guess: Sequence[str] | None,
    like: Path | None,
    *,
    spectrum: str | None,
    r_squared: float | None,
    separation: float | None,
    rows: int | None,
) -> Assumptions:
    from zerosum.forecast import Assumptions, ColumnShape, read_like, read_spectrum

    columns = {}
    for said in guess or ():
        name, separator, shape = said.partition("=")
        if not separator:
            raise BadParameter(f"a guess must be COLUMN=SHAPE, got {said!r}")
        columns[name.strip()] = ColumnShape.parse(shape)
    if like is not None and columns:
        raise BadParameter("people are drawn from a public file, or made up from guesses: not both")
    drawn = None if like is None else read_like(study, like)
    kind = None if spectrum is None else read_spectrum(study, spectrum)
    return Assumptions(columns, drawn, kind, r_squared, separation, rows)


def _targets(said: Sequence[str]) -> dict[str, float] | None:
    from zerosum.forecast import WHOLE

    found = {}
    for each in said:
        name, separator, error = each.rpartition("=")
        try:
            found[name.strip() if separator else WHOLE] = float(error)
        except ValueError:
            raise BadParameter(f"--target-error is a number, or NAME=NUMBER, got {each!r}") from None
    return found or None


def _show(found: WhatIf) -> None:
    from zerosum.forecast import LARGEST

    terminal.titled(visible(found.study), f" ({found.algorithm}): what to expect, {found.unit}")
    terminal.out.print(f"Taken for granted: {visible(found.says)}.")
    sampled = any(line.sampling > 0 for line in found.own.lines)
    more = ("sampling adds", "together") if sampled else (found.level, "without privacy") if found.level else ()
    table = Table("", Column("setting", justify="right"), Column("privacy adds", no_wrap=True), *more, "")
    for kind, row in found.around.items():
        for at, each in enumerate(row):
            own = "this study" if each.setting == found.own.setting else ""
            if each.hidden:
                own += f"{', ' if own else ''}{len(each.hidden)} hidden"
            value = f"{getattr(each.setting, kind):g}"
            cells = map(_figure, (each.sampling, each.together)[: len(more)])
            shown = _levels(each) if found.level else [_figure(each.privacy), *cells]
            table.add_row(kind if at == 0 else "", value, *shown, own, end_section=at == len(row) - 1)
    terminal.show_table(table)
    _show_lines(found, sampled)
    _show_hidden(found)
    if found.target is not None:
        asked = ", ".join(f"{name} {error:g}" if name else f"{error:g}" for name, error in found.target.wanted.items())
        if found.target.forecast is None:
            sentence = f"No epsilon up to {LARGEST:g} that can be planned reaches an error of {visible(asked)}: "
            sentence += "more people may."
        else:
            about = "about " if found.own.runs else ""
            sentence = f"An error of {visible(asked)} takes {about}epsilon {found.target.epsilon:g}."
        terminal.out.print(sentence)
    if found.level:
        terminal.out.print(
            f"A single run of this study differs from what is expected by {found.own.spread or 0.0:.2g} (one standard "
            "deviation)."
        )
    how = "by formula" if found.own.runs == 0 else f"from {found.own.runs} rehearsals on {found.drawn}"
    if found.own.runs and not found.level:
        how += f", and off by about {100 * found.own.doubt:.2g} % by chance"
    if found.level:
        others = [each.runs for row in found.around.values() for each in row if each.setting != found.own.setting]
        how += f", of other settings from {min(others, default=0)}; ± is one standard error of their mean"
    terminal.out.print(f"Figures are {how}. No private data were read, and nothing was spent.")


def _levels(each: Forecast) -> list[str]:
    """Where the figure is a loss: what privacy adds to it, then what is good, expected and without privacy."""
    added = f"{each.privacy:.4f} ± {each.standard_error or 0.0:.4f}"
    return [added, f"{1 - (each.expected or 0.0):.4f}", f"{1 - (each.without or 0.0):.4f}"]


def _show_lines(found: WhatIf, sampled: bool) -> None:
    """Every number of the result in its own unit."""
    own = found.own
    more = ("sampling adds", "together") if sampled else ("expected", "without privacy") if found.level else ()
    table = Table("this study, what is lost" if found.level else "this study", "privacy adds", *more)
    for line in own.lines[:_LINES]:
        loss = (line.expected or 0.0, line.without or 0.0)
        cells = (line.privacy, *(loss if found.level else (line.sampling, line.together)))[: 1 + len(more)]
        table.add_row(visible(line.label), *map(_figure, cells))
    terminal.show_table(table)
    if len(own.lines) > _LINES:
        terminal.out.print(f"and {len(own.lines) - _LINES} more: --json has them all")


def _show_hidden(found: WhatIf) -> None:
    """What would not be in the result at all: errors are of the numbers that are."""
    if not any(each.hidden for row in found.around.values() for each in row):
        return
    terminal.out.print("Hidden numbers are not in the result: noise is larger than they are. Errors are of the others.")
    if hidden := found.own.hidden:
        said = ", ".join(f"{visible(line.label)} ({100 * line.missing:.0f} %)" for line in hidden[:_LINES])
        more = f" and {len(hidden) - _LINES} more" if len(hidden) > _LINES else ""
        terminal.out.print(f"In this study, and in so many of the rehearsals: {said}{more}.")


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else ""


def pictures_of(found: WhatIf) -> list[Picture]:
    """What each setting makes of the error."""
    from zerosum.report.document import Curves, Series, all_known

    drawn: list[Picture] = []
    for kind, row in found.around.items():
        if len(row) < 2:
            continue
        x = all_known(getattr(each.setting, kind) for each in row)
        if found.level:
            series = [Series("expected", x, all_known(each.expected or 0.0 for each in row))]
            series.append(Series("without privacy", x, all_known(each.without or 0.0 for each in row), style="dashed"))
        else:
            series = [Series("what privacy adds", x, all_known(each.privacy for each in row))]
        if any(each.sampling > 0 for each in row):
            series.append(Series("what sampling adds", x, all_known(each.sampling for each in row), style="dashed"))
        drawn.append(Curves(f"The error against {kind}", found.unit, kind, found.unit, tuple(series)))
    return drawn


# ---- compare -------------------------------------------------------------------------------------------------------


@app.command()
def compare(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", autocompletion=complete.studies)],
    schemes: Annotated[
        list[str] | None,
        typer.Option(
            help="A scheme, or several with commas between; all of them by default.", autocompletion=complete.schemes
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="How often each scheme is run.")] = 5,
    site: Annotated[
        list[Path] | None, typer.Option(help="A site's own file, where the study file holds the public part only.")
    ] = None,
    made_up: Annotated[bool, typer.Option("--made-up", help="On people made up from public guesses.")] = False,
    people: People = None,
    guess: Guess = None,
    like: Like = None,
    spectrum: SpectrumOption = None,
    r_squared: RSquared = None,
    separation: Separation = None,
    rows: Rows = None,
    out: Annotated[Path | None, typer.Option(help="Where the picture goes: FILE.svg.")] = None,
    json_: Json = False,
) -> None:
    """One study under every scheme, on data that are public, synthetic or made up. Spends nothing."""
    from zerosum import forecast as module
    from zerosum.report.record import write_whole
    from zerosum.study import SiteFile, Study

    _check_picture(out, "--out names the picture: a file that ends in .svg")
    loaded = Study.load(study)
    if site:
        loaded = loaded.with_sites([SiteFile.load(path) for path in site])
    told = {"spectrum": spectrum, "r_squared": r_squared, "separation": separation, "rows": rows}
    if not made_up and (guess or any(each is not None for each in (people, like, *told.values()))):
        raise BadParameter("guesses are about people who are made up: say --made-up")
    guesses = assumptions_of(
        loaded, guess, like, spectrum=spectrum, r_squared=r_squared, separation=separation, rows=rows
    )
    with terminal.progress("running every scheme") as on_step:
        found = module.compare(
            loaded,
            schemes or (module.ALL,),
            seeds=seeds,
            made_up=made_up,
            guesses=guesses,
            people=people,
            on_step=on_step,
        )
    if out is not None:
        from zerosum.report.sheet import sheet

        write_whole(out, sheet(f"{found.study}: every scheme", _about(found), [_bars(found)]))
    if json_:
        terminal.print_json(found.as_record() | ({} if out is None else {"picture": str(out)}))
        return
    _show_comparison(found)
    if out is not None:
        terminal.out.print(f"\npicture: {out}", soft_wrap=True)


def _about(found: Comparison) -> str:
    ends = f"lines go from the least to the largest of {found.seeds} seeds"
    against = "" if found.loss else " against the result without privacy"
    return f"The error{against}, {found.unit}; {ends}."


def _bars(found: Comparison) -> Picture:
    from zerosum.report.document import Bars, all_known

    ran = [line for line in found.lines if line.error is not None and line.epsilon is not None]
    columns: Mapping[str, Any] = {
        name: all_known(getattr(line, name) for line in ran) for name in ("error", "low", "high")
    }
    labels = tuple(line.heading.replace(", as published", "*") for line in ran)
    title = f"The error of {found.algorithm}, {found.unit} (*: noise as published)"
    return Bars(title, _about(found), labels, columns["error"], columns["low"], columns["high"])


def _show_comparison(found: Comparison) -> None:
    terminal.titled(visible(found.study), f" ({found.algorithm}): the error, {found.unit}")
    terminal.out.print(f"Data: {visible(found.data)}. {found.seeds} seeds.")
    hides = any(line.hidden for line in found.lines)
    table = Table("scheme", "trusted", "error", "least", "largest", *(["hidden"] if hides else []), "epsilon")
    for line in found.lines:
        if line.error is None:
            continue
        cells = [_figure(math.nan if each is None else each) for each in (line.error, line.low, line.high)]
        cells += [f"{line.hidden:.3g}"] if hides else []
        table.add_row(line.heading, line.trusted, *cells, "infinite" if line.epsilon is None else f"{line.epsilon:.4f}")
    terminal.show_table(table)
    if hides:
        terminal.out.print(
            "Hidden: so many of the result's numbers are lost in the noise of a run; errors are of the others."
        )
    for line in found.lines:
        if line.refused:
            terminal.out.print(f"{line.heading} does not run this study: {visible(line.refused)}.")
    terminal.out.print(f"Spent: {found.spent}.")
