"""Accuracy forecasts: `zerosum plan --what-if`, and `zerosum compare`.

Both commands read a study file and no private data, and charge no ledger. `plan --what-if` varies the privacy budget,
the number of people, sites and colluders around the study's own setting, and forecasts the error of every number of the
result (`zerosum.forecast`). `compare` runs the study under every scheme on public or synthetic data. A forecast needs
assumptions about the people: options state them, and the output repeats them, so that a figure is not read as a fact
about the study.

An algorithm with a loss (a share of wrong predictions, for instance) is forecast by that loss itself (`WhatIf.level`):
"privacy adds" is then the loss with privacy minus the loss without. For all others the figure is a standard error due
to the noise.
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
from zerosum.cli.app import Json, SiteFiles, StudyFile, app, load_study
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.names import visible

if TYPE_CHECKING:
    from zerosum.forecast import Assumptions, Comparison, Forecast, WhatIf
    from zerosum.report.document import Picture
    from zerosum.study import Study

_LINES = 24  # largest number of lines in tables of a result's numbers

# Options of both commands, and of `zerosum plan`.
People = Annotated[int | None, typer.Option(help="Number of people at all sites, if the sites do not declare it.")]
Guess = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=SHAPE",
        help="Distribution of a column: uniform, centered, tailed, normal:MEAN:SD, skewed:MEDIAN:FACTOR, "
        "shares:SHARE:SHARE.",
    ),
]
Like = Annotated[
    Path | None, typer.Option(help="A public or synthetic file with the study's columns, from which people are drawn.")
]
SpectrumOption = Annotated[
    str | None,
    typer.Option("--spectrum", help="Spectrum for PCA: power:EXPONENT, exponential:RATIO, flat, or a file."),
]
RSquared = Annotated[
    float | None, typer.Option(help="Share of a regression's response that its features explain; default 0.3.")
]
Separation = Annotated[
    float | None,
    typer.Option(
        help="Distance of neighbouring clusters (default 6) or classes (default 4), in standard deviations within one."
    ),
]
Rows = Annotated[int | None, typer.Option(help="Rows per person in time order (ICA); default 100.")]
Correlation = Annotated[
    float | None, typer.Option(help="Correlation of neighbouring columns, 0 to 0.99: regressions and covariances.")
]
Shape = Annotated[
    str | None, typer.Option(help="Distribution of all columns without a guess: uniform, centered or tailed.")
]
Whole = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column of whole numbers; may be given more than once.")
]


# ---- what if -------------------------------------------------------------------------------------------------------


def print_forecasts(
    study: Study,
    out: Path | None,
    json_: bool,
    *,
    people: int | None,
    assumptions: Assumptions,
    targets: Sequence[str],
    runs: int | None,
) -> None:
    """Print forecasts around a study's own setting, and draw them if `out` is given.

    Parameters
    ----------
    study : Study
        The study.
    out : Path or None
        File for the picture, which must end in .svg.
    json_ : bool
        Print JSON instead of tables.
    people : int or None
        People at all sites together; by default as the roster declares.
    assumptions : Assumptions
        What is assumed about the data.
    targets : sequence of str
        Values of `--target-error`.
    runs : int or None
        Rehearsals for the study's own setting; None for the default.
    """
    from zerosum.forecast import what_if
    from zerosum.report.record import write_whole

    _check_picture(out, "with --what-if, --out names the picture: a file that ends in .svg")
    with terminal.progress("rehearsing") as on_step:
        target = _targets(targets)
        forecast = what_if(study, assumptions, people=people, runs=runs, target=target, on_step=on_step)
    if out is not None:
        from zerosum.report.svg_file import svg_file

        adds = (
            "What is lost with privacy and without it"
            if forecast.level
            else "What privacy and sampling add to the result"
        )
        about = f"{adds}, {forecast.unit}."
        write_whole(out, svg_file(f"{forecast.study}: what to expect", about, pictures_of(forecast)))
    if json_:
        terminal.print_json(forecast.as_record() | ({} if out is None else {"picture": str(out)}))
        return
    _show(forecast)
    if out is not None:
        terminal.out.print(f"\npicture: {out}", soft_wrap=True)


def _check_picture(out: Path | None, named: str) -> None:
    """Raise an error if the picture cannot be written, before the forecast is computed.

    Parameters
    ----------
    out : Path or None
        File of the picture.
    named : str
        Error message for a file that is no .svg, with the option that names it.
    """
    if out is None:
        return
    if out.suffix != ".svg":
        raise BadParameter(named)
    if out.exists():
        raise BadInput(f"{out} exists already; choose another place")
    # The folder may not exist yet; it is created below the nearest parent that does.
    nearest = next(parent for parent in out.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise BadInput(f"{out} could not be written: {nearest} is not a writable folder")


def assumptions_of(
    study: Study,
    guess: Sequence[str] | None,
    like: Path | None,
    *,
    spectrum: str | None,
    r_squared: float | None,
    separation: float | None,
    rows: int | None,
    correlation: float | None,
    shape: str | None,
    whole: Sequence[str] | None,
) -> Assumptions:
    """Assumptions about the people of a study, from the options.

    Parameters
    ----------
    study : Study
        The study, whose columns the guesses must name.
    guess : sequence of str or None
        `COLUMN=SHAPE`, the distribution of a column.
    like : Path or None
        A public file from which people are drawn.
    spectrum : str or None
        Eigenvalues of the covariance matrix (PCA).
    r_squared : float or None
        Share of the response's variance that the features explain (regression).
    separation : float or None
        Distance of neighbouring clusters or classes, in standard deviations within one.
    rows : int or None
        Rows per person in time order (ICA).
    correlation : float or None
        Correlation of neighbouring columns.
    shape : str or None
        Distribution of all columns without a guess.
    whole : sequence of str or None
        Columns of whole numbers.

    Returns
    -------
    Assumptions
        Entries that are None have defaults, which depend on the algorithm.
    """
    from zerosum.forecast import Assumptions, ColumnShape, read_like, read_spectrum

    columns = {}
    for option in guess or ():
        name, separator, own = option.partition("=")
        if not separator:
            raise BadParameter(f"a guess must be COLUMN=SHAPE, got {option!r}")
        columns[name.strip()] = ColumnShape.parse(own)
    if like is not None and columns:
        # The file determines the distribution of every column: a guess beside it would have no effect.
        raise BadParameter("people are drawn from a public file (--like) or from guesses (--guess): not both")
    drawn = None if like is None else read_like(study, like)
    kind = None if spectrum is None else read_spectrum(study, spectrum)
    usual = None if shape is None else ColumnShape.parse(shape)
    return Assumptions(
        columns,
        drawn,
        kind,
        r_squared,
        separation,
        rows,
        correlation,
        usual,
        tuple(each.strip() for each in whole or ()),
    )


def _targets(options: Sequence[str]) -> dict[str, float] | None:
    """Errors to reach, by the name of a number; None if there is none.

    Parameters
    ----------
    options : sequence of str
        `NUMBER` for the error as a whole, or `NAME=NUMBER` for one number of the result.
    """
    from zerosum.forecast import SUMMARY

    targets = {}
    for each in options:
        # The last equals sign: a name of a number may contain one.
        name, separator, error = each.rpartition("=")
        try:
            targets[name.strip() if separator else SUMMARY] = float(error)
        except ValueError:
            raise BadParameter(f"--target-error is a number, or NAME=NUMBER, got {each!r}") from None
    return targets or None


def _show(forecast: WhatIf) -> None:
    """Print the forecast: settings around the study's own, its numbers, hidden numbers, and the target.

    Parameters
    ----------
    forecast : WhatIf
        The forecast. `around` has one row of forecasts for each kind of setting (epsilon, people, sites, colluders),
        and `own` is that of the study itself.
    """
    from zerosum.forecast import LARGEST

    terminal.print_titled(visible(forecast.study), f" ({forecast.algorithm}): what to expect, {forecast.unit}")
    if forecast.caveat:
        terminal.out.print(f"{forecast.caveat}.")
    terminal.out.print(f"Assumptions: {visible(forecast.description)}.")
    _show_structures(forecast)
    # The people are a sample of a population, which adds an error that no budget removes. Noise far below that error
    # hardly matters.
    sampled = any(line.sampling > 0 for line in forecast.own.lines)
    more = ("sampling adds", "together") if sampled else (forecast.level, "without privacy") if forecast.level else ()
    table = Table("", Column("setting", justify="right"), Column("privacy adds", no_wrap=True), *more, "")
    for kind, row in forecast.around.items():
        for at, each in enumerate(row):
            own = "this study" if each.setting == forecast.own.setting else ""
            if each.hidden:
                own += f"{', ' if own else ''}{len(each.hidden)} hidden"
            value = f"{getattr(each.setting, kind):g}"
            cells = map(_figure, (each.sampling, each.together)[: len(more)])
            shown = _levels(each) if forecast.level else [_figure(each.privacy), *cells]
            table.add_row(kind if at == 0 else "", value, *shown, own, end_section=at == len(row) - 1)
    terminal.show_table(table)
    _show_lines(forecast, sampled)
    _show_hidden(forecast)
    if forecast.target is not None:
        wanted = ", ".join(
            f"{name} {error:g}" if name else f"{error:g}" for name, error in forecast.target.wanted.items()
        )
        if forecast.target.forecast is None:
            sentence = f"No epsilon up to {LARGEST:g} that can be planned reaches an error of {visible(wanted)}: "
            sentence += "more people may."
        else:
            # A formula gives the epsilon exactly, rehearsals with an error of their own.
            about = "about " if forecast.own.runs else ""
            sentence = f"An error of {visible(wanted)} takes {about}epsilon {forecast.target.epsilon:g}."
        for name, epsilon in forecast.target.others:
            needed = f"no epsilon up to {LARGEST:g} is enough" if epsilon is None else f"about {epsilon:g}"
            sentence += f" With {name} data: {needed}."
        terminal.out.print(sentence)
    if forecast.level:
        terminal.out.print(
            f"A single run of this study differs from what is expected by {forecast.own.spread or 0.0:.2g} (one "
            "standard deviation)."
        )
    how = "by formula" if forecast.own.runs == 0 else f"from {forecast.own.runs} rehearsals on {forecast.source}"
    if forecast.own.runs and not forecast.level:
        how += f", and off by about {100 * forecast.own.relative_error:.2g} % by chance"
    if forecast.level:
        # The other settings get a fraction of the rehearsals of the study's own; the smallest number is stated.
        others = [each.runs for row in forecast.around.values() for each in row if each.setting != forecast.own.setting]
        how += f", of other settings from {min(others, default=0)}; ± is one standard error of their mean"
    terminal.out.print(f"Figures are {how}. No private data were read, and nothing was spent.")


def _show_structures(forecast: WhatIf) -> None:
    """Print the errors over plausible structures of the data, where not all facts are stated."""
    if not forecast.structures:
        return
    low, high = map(_figure, forecast.range)
    terminal.out.print(
        f"Not all of this is stated: over plausible structures of the data privacy adds {low} to {high}. The tables "
        "below are for typical data. --correlation, --shape, --guess, --whole, --spectrum or --like state more."
    )
    table = Table("structure", Column("privacy adds", no_wrap=True), "assumptions")
    table.add_row("typical", _figure(forecast.own.privacy), visible(forecast.description))
    for each in forecast.structures:
        table.add_row(each.name, _figure(each.forecast.privacy), visible(each.description))
    terminal.show_table(table)


def _levels(each: Forecast) -> list[str]:
    """Cells for a loss: the increase due to privacy, then 1 - loss, expected and without privacy."""
    added = f"{each.privacy:.4f} ± {each.standard_error or 0.0:.4f}"
    return [added, f"{1 - (each.expected or 0.0):.4f}", f"{1 - (each.without or 0.0):.4f}"]


def _show_lines(forecast: WhatIf, sampled: bool) -> None:
    """Print the forecast of every number in its own unit."""
    own = forecast.own
    more = ("sampling adds", "together") if sampled else ("expected", "without privacy") if forecast.level else ()
    table = Table("this study, what is lost" if forecast.level else "this study", "privacy adds", *more)
    for line in own.lines[:_LINES]:
        # A loss has no sampling error of its own here: the columns are the losses with and without privacy.
        loss = (line.expected or 0.0, line.without or 0.0)
        cells = (line.privacy, *(loss if forecast.level else (line.sampling, line.together)))[: 1 + len(more)]
        table.add_row(visible(line.label), *map(_figure, cells))
    terminal.show_table(table)
    if len(own.lines) > _LINES:
        terminal.out.print(f"and {len(own.lines) - _LINES} more: --json has them all")


def _show_hidden(forecast: WhatIf) -> None:
    """Print the numbers that noise is likely to suppress; errors refer to the others."""
    if not any(each.hidden for row in forecast.around.values() for each in row):
        return
    terminal.out.print(
        "Hidden numbers are not in the result, because noise is larger than they are. Errors refer to the others."
    )
    if hidden := forecast.own.hidden:
        names = ", ".join(f"{visible(line.label)} ({100 * line.missing:.0f} %)" for line in hidden[:_LINES])
        more = f" and {len(hidden) - _LINES} more" if len(hidden) > _LINES else ""
        terminal.out.print(f"Hidden in this study, with their share of the rehearsals: {names}{more}.")


def _figure(value: float) -> str:
    """Three significant digits; empty for a figure that is unknown or infinite."""
    return f"{value:.3g}" if math.isfinite(value) else ""


def pictures_of(forecast: WhatIf) -> list[Picture]:
    """One curve of the error for each kind of setting."""
    from zerosum.report.document import Curves, Series, all_known

    drawn: list[Picture] = []
    for kind, row in forecast.around.items():
        # A single point is no curve.
        if len(row) < 2:
            continue
        x = all_known(getattr(each.setting, kind) for each in row)
        if forecast.level:
            series = [Series("expected", x, all_known(each.expected or 0.0 for each in row))]
            series.append(Series("without privacy", x, all_known(each.without or 0.0 for each in row), style="dashed"))
        else:
            series = [Series("what privacy adds", x, all_known(each.privacy for each in row))]
        if any(each.sampling > 0 for each in row):
            series.append(Series("what sampling adds", x, all_known(each.sampling for each in row), style="dashed"))
        drawn.append(Curves(f"The error against {kind}", forecast.unit, kind, forecast.unit, tuple(series)))
    return drawn


# ---- compare -------------------------------------------------------------------------------------------------------


@app.command()
def compare(
    study: StudyFile,
    schemes: Annotated[
        list[str] | None,
        typer.Option(
            help="A scheme, or several with commas between; all of them by default.", autocompletion=complete.schemes
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Number of runs of each scheme.")] = 5,
    site: SiteFiles = None,
    made_up: Annotated[bool, typer.Option("--made-up", help="Use synthetic people, from public guesses.")] = False,
    people: People = None,
    guess: Guess = None,
    like: Like = None,
    spectrum: SpectrumOption = None,
    r_squared: RSquared = None,
    separation: Separation = None,
    rows: Rows = None,
    correlation: Correlation = None,
    shape: Shape = None,
    whole: Whole = None,
    out: Annotated[Path | None, typer.Option(help="File for the picture: FILE.svg.")] = None,
    json_: Json = False,
) -> None:
    """Run one study under every scheme on public or synthetic data. Spends nothing."""
    from zerosum import forecast as module
    from zerosum.report.record import write_whole

    _check_picture(out, "--out names the picture: a file that ends in .svg")
    loaded = load_study(study, site)
    options: dict[str, Any] = {"spectrum": spectrum, "r_squared": r_squared, "separation": separation, "rows": rows}
    options |= {"correlation": correlation, "shape": shape, "whole": whole or None}
    # Without --made-up the runs use the public data of the study's sites, and a guess would have no effect.
    if not made_up and (guess or any(each is not None for each in (people, like, *options.values()))):
        raise BadParameter("guesses apply to synthetic people: give --made-up")
    assumptions = assumptions_of(loaded, guess, like, **options)
    with terminal.progress("running every scheme") as on_step:
        comparison = module.compare(
            loaded,
            schemes or (module.ALL,),
            seeds=seeds,
            made_up=made_up,
            assumptions=assumptions,
            people=people,
            on_step=on_step,
        )
    if out is not None:
        from zerosum.report.svg_file import svg_file

        write_whole(out, svg_file(f"{comparison.study}: every scheme", _about(comparison), [_bars(comparison)]))
    if json_:
        terminal.print_json(comparison.as_record() | ({} if out is None else {"picture": str(out)}))
        return
    _show_comparison(comparison)
    if out is not None:
        terminal.out.print(f"\npicture: {out}", soft_wrap=True)


def _about(comparison: Comparison) -> str:
    """Sentence below the title of a picture: what the bars and lines are."""
    ends = f"lines go from the least to the largest of {comparison.seeds} seeds"
    against = "" if comparison.loss else " against the result without privacy"
    return f"The error{against}, {comparison.unit}; {ends}."


def _bars(comparison: Comparison) -> Picture:
    """Bar chart of the error under each scheme that ran.

    Schemes that cannot run the study have no bar, nor has the run without noise, which has no epsilon.
    """
    from zerosum.report.document import Bars, all_known

    ran = [line for line in comparison.lines if line.error is not None and line.epsilon is not None]
    columns: Mapping[str, Any] = {
        name: all_known(getattr(line, name) for line in ran) for name in ("error", "low", "high")
    }
    labels = tuple(line.heading.replace(", as published", "*") for line in ran)
    title = f"The error of {comparison.algorithm}, {comparison.unit} (*: noise as published)"
    return Bars(title, _about(comparison), labels, columns["error"], columns["low"], columns["high"])


def _show_comparison(comparison: Comparison) -> None:
    """Print the error under each scheme, and why some do not run.

    Parameters
    ----------
    comparison : Comparison
        The runs. A line without an error is a scheme that cannot run this study.
    """
    terminal.print_titled(visible(comparison.study), f" ({comparison.algorithm}): the error, {comparison.unit}")
    terminal.out.print(f"Data: {visible(comparison.data)}. {comparison.seeds} seeds.")
    # A hidden number is in no error: without this column a scheme that hides more would look better.
    hides = any(line.hidden for line in comparison.lines)
    table = Table("scheme", "trusted", "error", "least", "largest", *(["hidden"] if hides else []), "epsilon")
    for line in comparison.lines:
        if line.error is None:
            continue
        cells = [_figure(math.nan if each is None else each) for each in (line.error, line.low, line.high)]
        cells += [f"{line.hidden:.3g}"] if hides else []
        # A run without noise protects no unit: its epsilon is infinite, and not unknown.
        table.add_row(line.heading, line.trusted, *cells, "infinite" if line.epsilon is None else f"{line.epsilon:.4f}")
    terminal.show_table(table)
    if hides:
        terminal.out.print("Hidden: mean number of values per run that noise suppresses; errors refer to the others.")
    for line in comparison.lines:
        if line.refused:
            terminal.out.print(f"{line.heading} does not run this study: {visible(line.refused)}.")
    terminal.out.print(f"Spent: {comparison.spent}.")
