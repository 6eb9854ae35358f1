"""`zerosum describe`: descriptive table of columns, from a study file, or from data files and options.

The command is the short way to a first table: the options are translated into the record of a study file (`_study`),
and the study then runs like any other. There is no second path that could charge or protect differently. With a study
file the options of the question are refused, because two places for one question could contradict each other.

Ranges and levels must be declared. They are public: a range or a list of categories that is computed from private data
would be a release of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadParameter
from zerosum.protocol.progress import Progress

if TYPE_CHECKING:
    from zerosum.study import Study

# Algorithms whose estimates are printed as a descriptive table.
_TABLES = ("describe", "quantiles", "survival")


@app.command()
def describe(
    files: Annotated[
        list[str], typer.Argument(help="A study file (TOML), or the data of each site: FILE or NAME=FILE, two or more.")
    ],
    range_: Annotated[
        list[str] | None, typer.Option("--range", help="COLUMN=LOW:HIGH, the public range of a column of numbers.")
    ] = None,
    levels: Annotated[
        list[str] | None, typer.Option(help="COLUMN=A,B,C, the public categories of a column, in order.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="The column of the groups; its levels must be given.")] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=observed or COLUMN=VALUE, rule for missing values; observed: all columns."),
    ] = None,
    missing_token: Annotated[
        list[str] | None, typer.Option(help="Token of a missing value: NA, or COLUMN=0 for one column.")
    ] = None,
    quantile: Annotated[list[float] | None, typer.Option(help="Which quantiles; by default the quartiles.")] = None,
    whole: Annotated[list[str] | None, typer.Option(help="A column that holds whole numbers.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of the whole table.")] = None,
    delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")] = 1e-5,
    unit: Annotated[str | None, typer.Option(help="Unit that is protected: person or record.")] = None,
    unit_column: Annotated[
        str | None, typer.Option(help="Column with a label of the person; rows with equal labels belong to one person.")
    ] = None,
    adjacency: Annotated[str, typer.Option(help="replace-one or add-remove.")] = "replace-one",
    delimiter: Annotated[
        list[str] | None, typer.Option(help="Between the cells of text files: ';' or tab, or NAME=';' at one site.")
    ] = None,
    encoding: Annotated[
        list[str] | None, typer.Option(help="Of text files: latin-1, or NAME=latin-1 at one site; else UTF-8.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the result and the privacy report.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be released; spends nothing.")] = False,
    json_: Json = False,
) -> None:
    """Count, mean, spread, quartiles and proportions, by group, with intervals. Spends budget unless --plan."""
    from zerosum.report.record import privacy_report, try_target
    from zerosum.report.tables import records_of, tables_of
    from zerosum.study import Study, resolve, result_bytes

    if len(files) == 1 and files[0].endswith(".toml"):
        given = (range_, levels, by, missing, missing_token, quantile, whole, epsilon, unit, unit_column)
        given_of_files = (delimiter, encoding)
        if any(each is not None for each in (*given, *given_of_files)):
            raise BadParameter("options of the question belong into the study file, if there is one")
        study = Study.load(Path(files[0]))
        if study.algorithm not in _TABLES:
            raise BadParameter(f"the study's algorithm is none of {', '.join(_TABLES)}: use `zerosum run`")
    else:
        # Without a default: the budget decides how accurate the table is and what remains for later studies.
        if epsilon is None:
            raise BadParameter("give the privacy budget of the table: --epsilon")
        parameters = _parameters(range_ or (), levels or (), by, missing or (), quantile, whole)
        protected = {"unit": unit, "unit_column": unit_column, "adjacency": adjacency}
        sites = _sites(files, delimiter or (), encoding or ())
        study = _study(sites, parameters, _tokens(missing_token or ()), epsilon, delta, protected)
    # The plan that is shown is the plan that runs: its random name and its digest are made here once.
    planned = study.plan()
    report, description = privacy_report(planned), resolve(study.build_algorithm(), planned).describe
    if plan:
        if json_:
            terminal.print_json(report.as_record() | {"describe": description})
            return
        terminal.print_titled(report.algorithm, f": {description}")
        terminal.show_report(report)
        return
    if out is not None:
        # Before anything is spent: a full disk must not cost the result of a study that was paid for.
        try_target(out, result_bytes(planned))
    with terminal.report_interrupt() as over:
        with terminal.study_progress() as observer:
            result = study.run(observer, planned, approved=False)
            # From here on Ctrl-C loses nothing: the result is in the archive.
            over.append(result.kept)
            if out is not None:
                observer(Progress("writing", 0, 1))
                with terminal.name_archive_on_failure(result.kept):
                    study.write(result, out)
                observer(Progress("writing", 1, 1))
        if json_:
            folder = {} if out is None else {"folder": str(out)}
            terminal.print_json(
                result.as_record() | {"table": records_of(result.estimate), "describe": description} | folder
            )
            return
        terminal.show_tables(tables_of(result.estimate))
        if description:
            terminal.out.print(description[0].upper() + description[1:] + ".")
        for sentence in result.report.sentences():
            terminal.out.print(sentence)
        terminal.show_warnings(result.warnings)
        places = [f"written to {out}"] if out is not None else []
        if places := [*places, *([f"kept as {result.kept}"] if result.kept else [])]:
            terminal.out.print("\n" + ", ".join(places), soft_wrap=True)


def _parameters(
    ranges: Sequence[str],
    levels: Sequence[str],
    by: str | None,
    missing: Sequence[str],
    quantile: Sequence[float] | None,
    whole: Sequence[str] | None,
) -> dict[str, Any]:
    """Parameters of the algorithm, as in a study file.

    Parameters
    ----------
    ranges, levels, missing : sequence of str
        Values of the options, `COLUMN=...` each.
    by : str or None
        Column of the groups.
    quantile : sequence of float or None
        Probabilities of the quantiles.
    whole : sequence of str or None
        Columns of whole numbers.

    Returns
    -------
    dict
        Entries that were not given are left out, so that the algorithm's defaults apply.

    Raises
    ------
    BadParameter
        If no column is declared, or one twice: a column is either a number with a range or a category with levels.
    """
    parameters: dict[str, Any] = {
        "ranges": {name: _range(name, value) for name, value in map(_split_option, ranges)},
        "levels": {name: [_value(each) for each in value.split(",")] for name, value in map(_split_option, levels)},
    }
    columns = [name for name, _ in map(_split_option, (*ranges, *levels))]
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise BadParameter(f"column {twice!r} is declared twice: give it one --range or one --levels")
    if not columns:
        raise BadParameter("declare the columns: --range COLUMN=LOW:HIGH, --levels COLUMN=A,B")
    # `observed` without a column is the rule for all columns; a rule for one column replaces it.
    rules: dict[str, Any] = dict.fromkeys(columns, "observed") if "observed" in missing else {}
    rules |= {
        name: _value(value) for name, value in map(_split_option, (each for each in missing if each != "observed"))
    }
    named = {"by": by, "missing": rules or None, "probabilities": quantile, "whole": whole}
    return parameters | {"columns": columns} | {name: value for name, value in named.items() if value is not None}


def _study(
    sites: Sequence[dict[str, str]],
    parameters: dict[str, Any],
    tokens: Any,
    epsilon: float,
    delta: float,
    protected: dict[str, str | None],
) -> Study:
    """Study with one site per data file, run in this process.

    Parameters
    ----------
    sites : sequence of dict
        Entries of the sites, from `_sites`.
    parameters : dict
        Parameters of the algorithm, from `_parameters`.
    tokens : list or dict
        Texts that mean a missing value, from `_tokens`.
    epsilon, delta : float
        Privacy budget of the whole table.
    protected : dict
        Values of `--unit`, `--unit-column` and `--adjacency`.

    Raises
    ------
    BadParameter
        If the protected unit is not stated: whether a person or a row is protected is part of the guarantee, so there
        is no default.
    """
    from zerosum.study import Study

    # A column with labels of people says that several rows belong to one person, so the unit is the person.
    kind: str | None = protected["unit"] or (None if protected["unit_column"] is None else "person")
    if kind not in ("person", "record"):
        raise BadParameter("give the unit that is protected: --unit person, --unit record, or --unit-column COLUMN")
    if protected["adjacency"] not in ("replace-one", "add-remove"):
        raise BadParameter("--adjacency must be replace-one or add-remove")
    # Without the entry the study file's own rule applies: every row is a unit.
    column = {} if protected["unit_column"] is None else {"column": protected["unit_column"]}
    record: dict[str, Any] = {
        "name": "describe",
        "algorithm": "describe",
        "parameters": parameters,
        "missing_tokens": tokens,
        "unit": {"kind": kind, "adjacency": protected["adjacency"]} | column,
        "privacy": {"epsilon": epsilon, "delta": delta},
        "sites": list(sites),
    }
    return Study(**record)


def _sites(files: Sequence[str], delimiters: Sequence[str], encodings: Sequence[str]) -> list[dict[str, str]]:
    """Entries of the sites: name (by default of the file), data, delimiter and encoding.

    Parameters
    ----------
    files : sequence of str
        `FILE` or `NAME=FILE`, one for each site.
    delimiters, encodings : sequence of str
        Values of the options, for all sites or for one.
    """
    if len(files) < 2:
        raise BadParameter("give the data of at least two sites, or one study file")
    sites = [_site(each) for each in files]
    # Ledgers and settings by site have the name as their key.
    names = [site["name"] for site in sites]
    if len(set(names)) < len(names):
        raise BadParameter("two sites have the same name: give NAME=FILE")
    between, written = _by_site("--delimiter", delimiters, names), _by_site("--encoding", encodings, names)
    for site in sites:
        if (mark := between.get(site["name"])) is not None:
            # A tab can hardly be typed on a command line.
            site["delimiter"] = "\t" if mark in ("tab", "\\t") else mark
        if (encoding := written.get(site["name"])) is not None:
            site["encoding"] = encoding
    return sites


def _by_site(option: str, values: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Value of an option for each site: VALUE for all sites, NAME=VALUE for one.

    Parameters
    ----------
    option : str
        Name of the option, for the message.
    values : sequence of str
        Values of the option in the order they were given.
    names : sequence of str
        Names of the sites.
    """
    folders: dict[str, str] = {}
    for each in sorted(
        values, key=lambda each: each.partition("=")[0] in names
    ):  # values for one site override the value for all
        name, separator, value = each.partition("=")
        if separator and name in names:
            folders[name] = value
        elif separator and name:
            raise BadParameter(f"{option}: no site is called {name!r}")
        else:
            folders |= dict.fromkeys(names, each)
    return folders


def _site(text: str) -> dict[str, str]:
    """Entry of one site, from `FILE` or `NAME=FILE`. A file `east.csv.gz` without a name is the site `east`."""
    name, separator, path = text.partition("=")
    return {"name": name, "data": path} if separator else {"name": Path(text).name.split(".")[0], "data": text}


def _tokens(options: Sequence[str]) -> Any:
    """Missing-value tokens: a list for all columns, or a table by column.

    The two forms are not mixed: a study file has one or the other, and a token for all columns beside one for a column
    would leave open whether the second replaces the first.
    """
    by_column: dict[str, list[str]] = {}
    for each in options:
        if "=" in each:
            name, token = _split_option(each)
            by_column.setdefault(name, []).append(token)
    if by_column and len(by_column) < len(options) and any("=" not in each for each in options):
        raise BadParameter("--missing-token is for all columns, or always COLUMN=TOKEN")
    return by_column or list(options)


def _split_option(option: str) -> tuple[str, str]:
    """Column and value of `COLUMN=VALUE`. The first equals sign separates: values may contain others."""
    name, separator, value = option.partition("=")
    if not separator:
        raise BadParameter(f"{option!r} must be COLUMN=...")
    return name.strip(), value.strip()


def _range(name: str, text: str) -> tuple[float, float]:
    """Lower and upper end of a public range.

    Parameters
    ----------
    name : str
        The column, for the message.
    text : str
        `LOW:HIGH`.
    """
    try:
        low, high = (float(each) for each in text.split(":"))
    except ValueError:
        raise BadParameter(f"the range of {name!r} must be LOW:HIGH, two numbers") from None
    return low, high


def _value(text: str) -> str | float:
    """A finite number if it is one, otherwise the text."""
    try:
        number = float(text)
    except ValueError:
        return text.strip()
    # `nan` and `inf` parse as numbers but are levels or tokens of a text column here.
    return number if math.isfinite(number) else text.strip()
