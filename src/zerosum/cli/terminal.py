"""Output of the command line: tables for people or JSON for programs on stdout, progress on stderr.

Console markup is off, because names of studies, sites, columns and files come from users. Bold and red text is made
with `Text`. Names from files and messages of other parties pass through `visible`, which writes invisible characters
out: a terminal obeys control characters, and a name could otherwise hide or forge lines.

Sections of this module: progress, errors and interrupts, results, tables that fit the terminal, privacy reports and
ledgers. All functions print; none of them computes a figure of a result.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from zerosum.errors import BadInput, Interrupted, ZerosumError
from zerosum.kernel.amounts import cost_word
from zerosum.kernel.names import counted, visible
from zerosum.protocol.progress import Observer
from zerosum.protocol.progress import Progress as Seen

if TYPE_CHECKING:
    from zerosum.kernel.quantity import Quantity
    from zerosum.report.document import Table as ReportTable
    from zerosum.report.record import PrivacyReport

# Stage of a study (`zerosum.protocol.progress.Progress.stage`) as shown beside the progress bar.
_STAGES = {
    "loading": "loading data",
    "resumed": "resumed after round",
    "consent": "consent",
    "set-up": "setting up the secure sum",
    "round": "rounds",
    "writing": "writing",
}

# Cells that must stay on one line: numbers in decimal or exponential form.
_NUMBER = re.compile(r"[-+]?[\d.,]*(e[-+]?\d+)?|nan|inf|infinite")
SECONDS = 5.0  # s, interval between two lines of progress; chosen by hand, and stated in docs/cli.md
_BORDER_WIDTH = 3  # characters of a column's border and padding
_MIN_WORD = 8  # characters of a word before it may be folded into the next line
_LINES = 100  # largest number of lines of a table
_LEVELS = 6  # largest number of categories listed beside a column

out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_json(record: Any) -> None:
    """Print one JSON value on stdout.

    Parameters
    ----------
    record : JSON-compatible
        The value. Numbers that JSON cannot represent (infinities, NaN) become null.
    """
    from zerosum.report.json_text import finite

    # Not by a console, which would wrap lines at the width of the terminal.
    print(json.dumps(finite(record), indent=2))


class _Bar:
    """Progress bar on a terminal, with an estimate of the time left; removed at the end.

    Parameters
    ----------
    what : str
        Text in front of the bar.
    """

    def __init__(self, what: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=err, transient=True)
        self._task = self._bar.add_task(what, total=None)
        self._what = what

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, what: str, done: int, planned: int) -> None:
        """Show that `done` of `planned` steps of a stage are complete.

        Parameters
        ----------
        what : str
            Text of the stage.
        done, planned : int
            Steps, in a unit of the stage's own.
        """
        if what != self._what:  # the estimate of the time left starts anew with each stage
            self._bar.reset(self._task, description=what, total=planned)
            self._what = what
        self._bar.update(self._task, completed=done, total=planned)


class _Lines:
    """Progress in pipes and logs: a text line every few seconds, none for short tasks.

    Parameters
    ----------
    what : str
        Text in front of each line.
    clock : callable
        Seconds from any origin; tests pass their own.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._what = clock, what
        self._began = self._last_line = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def at(self, what: str, done: int, planned: int) -> None:
        """Like `_Bar.at`; prints only if the last line is `SECONDS` old."""
        now = self._clock()
        if what != self._what:
            self._what, self._began = what, now
        if now - self._last_line < SECONDS:
            return
        self._last_line = now
        # Mean time of a step so far, times the steps that are left. NaN before the first step: no comparison with it is
        # true.
        left = (now - self._began) / done * (planned - done) if 0 < done < planned else math.nan
        estimate = f", about {_format_duration(left)} left" if left > 0 else ""
        err.print(f"{what}: {done} of {planned}{estimate}", soft_wrap=True)


def _format_duration(seconds: float) -> str:
    """Remaining time with the precision of an estimate.

    >>> _format_duration(42), _format_duration(600), _format_duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _progress_display(what: str) -> _Bar | _Lines:
    """A bar if stderr is a terminal, otherwise lines."""
    return _Bar(what) if err.is_terminal else _Lines(what)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a task. Yields a callback for (done, planned).

    Parameters
    ----------
    what : str
        The task in a few words.
    """
    with _progress_display(what) as shown:
        yield lambda done, planned: shown.at(what, done, planned)


@contextmanager
def study_progress() -> Iterator[Observer]:
    """Show the progress of a study. Yields its observer."""
    with _progress_display("starting") as shown:

        def follow(progress: Seen) -> None:
            # Sites load their data one after the other, so the name shows whose data take long.
            what = _STAGES[progress.stage] + (
                f" of {visible(progress.site)}" if progress.site and progress.stage == "loading" else ""
            )
            shown.at(what, progress.done, progress.planned)

        yield follow


@contextmanager
def report_interrupt() -> Iterator[list[str]]:
    """Report what was spent after Ctrl-C.

    Yields a list, into which the caller puts the id of the archived result once the study is complete.
    """
    archived: list[str] = []
    try:
        yield archived
    except KeyboardInterrupt as stop:
        # A run that has made a request has a note on the exception, which states the cost (`ArchiveWriter.__exit__`).
        notes = getattr(stop, "__notes__", None) or ["nothing was spent"]
        if archived:
            notes = ["the study was complete", *(_export_hint(id) for id in archived if id)]
        raise Interrupted("; ".join(["interrupted", *notes])) from stop


def _export_hint(id: str) -> str:
    """The command with which an archived result is written."""
    return f"the result is archived, and 'zerosum results export {id} --out FOLDER' writes it at no cost"


@contextmanager
def name_archive_on_failure(id: str) -> Iterator[None]:
    """Add the command that exports the archived result to an error of writing it elsewhere."""
    try:
        yield
    except (ZerosumError, OSError) as error:
        if not id:
            raise
        raise BadInput(f"{error}; {_export_hint(id)}") from error


def print_titled(title: str, rest: str) -> None:
    """Print a line that begins in bold."""
    out.print(Text.assemble((title, "bold"), rest))


def show_error(message: str, detail: str) -> None:
    """Print an error to stderr.

    Parameters
    ----------
    message : str
        One sentence, which may be forwarded to others.
    detail : str
        Facts for the holder of the data, on a line that is marked as not for others.
    """
    err.print(Text.assemble(("error:", "bold red"), f" {visible(message)}"), soft_wrap=True)
    if detail:
        err.print(f"not for others: {visible(detail)}", soft_wrap=True)


def short(value: Any) -> str:
    """A value of a result as text: six significant digits, and the first ten entries of a list.

    >>> short(3.14159265), short([1.0, 2.0]), short(None)
    ('3.14159', '[1, 2]', '')
    """
    if isinstance(value, list):
        shown = ", ".join(short(item) for item in value[:10])
        return f"[{shown}{', ...' if len(value) > 10 else ''}]"
    return "" if value is None else f"{value:.6g}"


def show_result(estimate: Mapping[str, Quantity], record: dict[str, Any]) -> None:
    """Print a result as a table of its own kind if there is one, otherwise by name.

    Parameters
    ----------
    estimate : mapping
        Quantities by name.
    record : dict
        The result in its JSON form.
    """
    from zerosum.report.coefficients import CoefficientTable
    from zerosum.report.tables import tables_of

    # Only regressions release this quantity; they have a table of coefficients.
    if "pooled_std" in estimate:
        show_tables(CoefficientTable.of(estimate, record["algorithm"]).tables())
        show_fit(estimate)
    elif tables := tables_of(estimate):
        show_tables(tables)
    else:
        show_estimate(record)


def show_estimate(record: dict[str, Any]) -> None:
    """Print estimates by name: vectors as tables with one line per label, the others below.

    Parameters
    ----------
    record : dict
        The JSON form of a result, with `estimate` (values), `quantities` (axes and units) and `privacy` (question).
    """
    estimate, quantities = record["estimate"], record["quantities"]
    # Vectors along the same axis share a table: means and standard deviations by column, for instance.
    tables: dict[tuple[str, ...], list[str]] = {}
    for name, quantity in quantities.items():
        if len(quantity["axes"]) == 1 and len(quantity["axes"][0]["labels"]) <= _LINES:
            tables.setdefault(_places(quantity["axes"][0]), []).append(name)
    # Public ranges are shown beside the estimates of columns: values beyond them were clipped, which a reader has to
    # know.
    bounds = _ranges(record["privacy"]["question"])
    plain = {shown: a for each in quantities.values() for axis in each["axes"] for shown, a in _axis_labels(axis)}
    ranges = {shown: bounds[a] for shown, a in plain.items() if a in bounds}
    for (axis, *labels), names in tables.items():
        columns = {name: [short(estimate[name][at]) for at in range(len(labels))] for name in names}
        if axis == "column" and any(label in ranges for label in labels):
            columns["range"] = [ranges.get(label, "") for label in labels]
        _show_columns(axis, [visible(label) for label in labels], columns)
    for name, quantity in quantities.items():
        if not any(name in names for names in tables.values()):
            of = " by ".join(axis["name"] for axis in quantity["axes"])
            # Hundreds of numbers without their places say nothing: voxels of maps, or edges.
            if len(quantity["axes"]) > 1 and len(quantity["axes"][-1]["labels"]) > _LINES:
                print_titled(name, f" ({of}): {_extent(estimate[name])}")
                continue
            print_titled(name, f"{f' ({of})' if of else ''}: {short(estimate[name])}")
            if quantity["axes"] and len(quantity["axes"][-1]["labels"]) <= _LINES:
                out.print("  " + ", ".join(map(visible, _places(quantity["axes"][-1])[1:])), style="dim")


def _extent(values: list[Any]) -> str:
    """The shape and the range of a nested list of numbers.

    >>> _extent([[1.0, -2.0, 0.5], [0.0, 3.0, None]])
    '2 by 3 numbers from -2 to 3; the files have all of them'
    """
    shape: list[int] = []
    level: Any = values
    flat = list(values)
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else 0
    while flat and isinstance(flat[0], list):
        flat = [each for part in flat for each in part]
    known = [each for each in flat if each is not None]
    ends = f" from {short(min(known))} to {short(max(known))}" if known else ""
    return f"{' by '.join(map(str, shape))} numbers{ends}; the files have all of them"


def show_table(table: Table) -> None:
    """Print a table within the width of the terminal.

    Numbers are not broken, and long words are folded. If a table is too wide, borders are left out first, and then
    numbers may be broken.

    Parameters
    ----------
    table : Table
        The table; its columns are changed.
    """
    least = _fit(table)
    if least + _BORDER_WIDTH * len(table.columns) + 1 > out.width:
        table.box, table.padding = box.SIMPLE_HEAD, (0, 0, 0, 0)
        if least + len(table.columns) + 1 > out.width:
            for column in table.columns:
                column.min_width = None
    out.print(table)


def _fit(table: Table) -> int:
    """Set overflow and least width of each column; returns the sum of the least widths.

    rich shrinks columns in proportion to their content. Without a least width it would cut a number in two where a name
    beside it could continue on the next line.
    """
    least = 0
    for column in table.columns:
        column.overflow = "fold"
        cells = [str(cell) for cell in column.cells]
        longest = max((cell_len(word) for word in str(column.header).split()), default=0)
        if column.no_wrap or all(_NUMBER.fullmatch(cell) for cell in cells):
            column.min_width = max(min(longest, _MIN_WORD), *map(cell_len, cells), 0)
            least += column.min_width
        else:
            least += max(
                min(longest, _MIN_WORD), *(min(cell_len(word), _MIN_WORD) for cell in cells for word in cell.split()), 0
            )
    return least


def _show_columns(axis: str, labels: Sequence[str], columns: Mapping[str, Sequence[str]]) -> None:
    """Print columns beside their labels, in several tables if one would be too wide.

    Parameters
    ----------
    axis : str
        Heading of the labels.
    labels : sequence of str
        One label for each line.
    columns : mapping
        Cells by the heading of the column.
    """
    table = Table(axis, *columns)
    for at, label in enumerate(labels):
        table.add_row(label, *(cells[at] for cells in columns.values()))
    names = list(columns)
    if len(names) > 1 and _fit(table) + _BORDER_WIDTH * (1 + len(names)) + 1 > out.width:
        # Halved until every part fits, and each part repeats the labels.
        for part in (names[: len(names) // 2], names[len(names) // 2 :]):
            _show_columns(axis, labels, {name: columns[name] for name in part})
        return
    show_table(table)


def show_warnings(sentences: Sequence[str]) -> None:
    """Print warnings, one per line."""
    for sentence in sentences:
        out.print(Text.assemble(("warning: ", "bold"), visible(sentence)), soft_wrap=True)


def _places(axis: dict[str, Any]) -> tuple[str, ...]:
    """Name of an axis and its labels, with their units of measurement.

    Parameters
    ----------
    axis : dict
        JSON form of an axis: `name`, `labels` and perhaps `units`.
    """
    return axis["name"], *(shown for shown, _ in _axis_labels(axis))


def _axis_labels(axis: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of a label with its unit of measurement, and the label alone, by which ranges are looked up."""
    units = axis.get("units") or [""] * len(axis["labels"])
    return [(f"{a} ({u})" if u else a, a) for a, u in zip(axis["labels"], units, strict=True)]


def _ranges(question: dict[str, Any]) -> dict[str, str]:
    """Public range, or categories, of each column that has one.

    Algorithms declare ranges in two forms: `lower` and `upper` with one number per column, or tables `ranges` and
    `levels` by the name of a column (descriptive tables).

    Parameters
    ----------
    question : dict
        `columns` in their order, and `parameters` of the algorithm.

    Returns
    -------
    dict
        Text by the name of a column; empty if the ranges cannot be assigned to columns.
    """
    lower, upper = (question["parameters"].get(name) for name in ("lower", "upper"))
    columns = question["columns"]
    if isinstance(ranges := question["parameters"].get("ranges"), dict):  # of descriptions
        levels = question["parameters"].get("levels") or {}
        categories = {
            name: ", ".join(x if isinstance(x, str) else short(x) for x in each)
            for name, each in levels.items()
            if len(each) <= _LEVELS
        }
        return categories | {name: f"{short(a)} to {short(b)}" for name, (a, b) in ranges.items()}
    if not (isinstance(lower, list) and isinstance(upper, list) and len(lower) == len(upper) == len(columns)):
        return {}
    return {name: f"{short(a)} to {short(b)}" for name, a, b in zip(columns, lower, upper, strict=True)}


def show_outlook(sentences: Sequence[str]) -> None:
    """Print what to expect of a study before it spends anything.

    Parameters
    ----------
    sentences : sequence of str
        `Outlook.sentences`.
    """
    first, *others = sentences
    print_titled("what to expect", f": {first}")
    for each in others:
        out.print(f"  {each}", soft_wrap=True)


def show_check(record: dict[str, Any]) -> None:
    """Print the findings of `zerosum check` at one site.

    Parameters
    ----------
    record : dict
        JSON form of a `SiteCheck`. It describes private data and is for the site's steward.
    """
    units = "" if record["units"] is None else f", {counted(record['units'], 'unit')}"
    verdict = "it would not run" if record["faults"] else "it would run"
    left = "" if record["left"] is None else f"; afterwards one more study may cost epsilon {record['left']:.4f}"
    print_titled(visible(record["site"]), f": {verdict}{units}{left}")
    if record["relays_for"]:
        out.print(f"  it relays the messages of {', '.join(map(visible, record['relays_for']))}", soft_wrap=True)
    for kind in ("faults", "warnings"):
        for sentence in record[kind]:
            out.print(
                Text.assemble((f"  {kind[:-1]}: ", "bold red" if kind == "faults" else "bold"), visible(sentence))
            )


def show_report(report: PrivacyReport) -> None:
    """Print releases, costs by site and the guarantee.

    Parameters
    ----------
    report : PrivacyReport
        The report of a plan or of a result. Equal releases that follow each other are one line, as "10 × vector_sum".
    """
    table = Table("release", "numbers", "sensitivity", "share of mu²", "noise", "mu")
    lines = [
        (
            line.statistic,
            f"{line.size}",
            f"{line.sensitivity:.4g}",
            f"{line.share:.3g}",
            f"{line.noise_std:.4g}",
            f"{cost_word(line.noise)}{line.mu:.4g}",
        )
        for line in report.releases
    ]
    for (statistic, *cells), alike in groupby(lines):
        times = len(list(alike))
        table.add_row(f"{times} × {statistic}" if times > 1 else statistic, *cells)
    show_table(table)
    # Columns that apply to some schemes only: a helper that deals noise, and a published theorem.
    dealt = any(site.helper_epsilon is not None for site in report.per_site)
    published = any(site.published_epsilon is not None for site in report.per_site)
    headings = ("site", "mu", f"epsilon at delta {report.delta:g}", *(["published epsilon"] if published else []))
    table = Table(*headings, *(["epsilon against the dealer"] if dealt else []))
    for site in report.per_site:
        others = [*([site.published_epsilon] if published else []), *([site.helper_epsilon] if dealt else [])]
        shown = ["" if value is None else f"{value:.4f}" for value in others]
        table.add_row(site.site, f"{site.mu:.4f}", f"{site.epsilon:.4f}", *shown)
    show_table(table)
    out.print(f"public digest {report.public_digest}")
    out.print(
        f"{report.rounds} round{'s' if report.rounds > 1 else ''} of {report.exchanges} exchange"
        f"{'s' if report.exchanges > 1 else ''}, {report.bytes_per_site} bytes to and from each site."
    )
    if report.extra_delta > 0:
        out.print(f"Finite arithmetic adds {report.extra_delta:.2g} to delta, which is included in the cost.")
    for sentence in report.sentences():
        out.print(sentence)


def show_fit(estimate: Mapping[str, Quantity]) -> None:
    """Print the goodness of fit of a regression, if it was released: scalars with their standard errors.

    Parameters
    ----------
    estimate : mapping
        Quantities by name; those with axes belong to other tables.
    """
    import numpy as np

    numbers = {name: each for name, each in estimate.items() if np.size(each.value) == 1 and not each.axes}
    if not numbers:
        return
    table = Table("fit", "estimate", "standard error")
    for name, each in numbers.items():
        std = None if each.std is None else float(np.ravel(each.std)[0])
        table.add_row(name, short(float(np.ravel(each.value)[0])), short(std))
    show_table(table)


def show_lines(headings: Sequence[str], lines: Sequence[Sequence[str | float]]) -> None:
    """Print a table of many columns.

    Columns with one value in all lines are printed once, above it. Columns that do not fit follow in further tables
    with the same line numbers.

    Parameters
    ----------
    headings : sequence of str
        Headings of the columns. The first column names the lines and is repeated in every table.
    lines : sequence of sequences
        One sequence of cells for each line.
    """
    cells = [[_figure(cell) for cell in line] for line in lines]
    columns = dict(zip(headings, zip(*cells, strict=True), strict=True)) if cells else {}
    alike = {heading: column[0] for heading, column in columns.items() if len(column) > 1 and len(set(column)) == 1}
    if alike:
        out.print("; ".join(f"{heading} {cell}" for heading, cell in alike.items()) + " in all lines")
    rest = [heading for heading in headings if heading not in alike] or list(headings[:1])
    # Headings may be broken between words, cells may not.
    widths = {heading: max(map(len, (*heading.split(), *columns.get(heading, ())))) for heading in rest}
    # one space between columns where two would make a second table necessary
    gap = 2 if sum(widths.values()) + 2 * (len(rest) - 1) <= out.width else 1
    parts, room = [rest[:1]], 0  # the first column names the line
    # Columns are put into the current table as long as they fit, in their order. `room` is the width that is left in
    # it; a table has at least one column beside the names, even if that is too wide.
    for heading in rest[1:]:
        if len(parts[-1]) > 1 and room < widths[heading]:
            parts.append(rest[:1])
        if len(parts[-1]) == 1:
            # If all columns fit into one table, it has no line numbers, and their width is available.
            whole = sum(widths.values()) + gap * (len(rest) - 1) <= out.width
            room = out.width - widths[rest[0]] - gap - (0 if whole else len(str(len(cells))) + gap)
        parts[-1] = [*parts[-1], heading]
        room -= widths[heading] + gap
    for part in parts:
        numbers = ["#"] if len(parts) > 1 else []
        table = Table(
            *(Column(each, overflow="fold", width=_fixed(widths.get(each))) for each in (*numbers, *part)),
            box=box.SIMPLE_HEAD,
            padding=(0, gap - 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        table.columns[len(numbers)].no_wrap = widths[part[0]] <= out.width // 2
        for at in range(len(cells)):
            table.add_row(*([str(at + 1)] if numbers else []), *(columns[heading][at] for heading in part))
        out.print(table)


def _fixed(width: int | None) -> int | None:
    """Width of a column of short cells, which is not reduced in favour of others; None for a column of long text."""
    return None if width is None or width > out.width // 3 else width


def _figure(cell: str | float) -> str:
    """A cell of a table: text unchanged, whole numbers in full, other numbers with four digits.

    >>> _figure("a"), _figure(10000), _figure(0.123456), _figure(25771.3), _figure(1e9)
    ('a', '10000', '0.1235', '25771', '1e+09')
    """
    if isinstance(cell, str | int):
        return str(cell)
    return f"{cell:.0f}" if 1e4 <= abs(cell) < 1e7 else f"{cell:.4g}"


def show_tables(tables: Iterable[ReportTable]) -> None:
    """Print the tables of a result. A terminal that is too narrow for the numbers wraps their lines.

    Parameters
    ----------
    tables : iterable of Table
        Tables of `zerosum.report.tables`.
    """
    from zerosum.report.text_table import least_width, rich_table

    for table in tables:
        print_titled(table.title, "")
        out.print(rich_table(table, out.width), width=least_width(table, out.width), crop=False)
        out.print()


def _column_list(question: dict[str, Any]) -> str:
    """Columns of a study with their ranges, as text.

    Parameters
    ----------
    question : dict
        What the ledger recorded about the question. Of many columns it has only some names; the first and last are
        printed, with the number of all.
    """
    names, bounds = question.get("columns", []), question.get("bounds", {})
    if question.get("n_columns", 0) > len(names):
        return f"{names[0]} ... {names[-1]} ({question['n_columns']})"
    ranges = _ranges({"columns": names, "parameters": bounds})
    return ", ".join(f"{name} ({ranges[name]})" if name in ranges else name for name in names)


def _span(first: int, last: int) -> str:
    """Two numbers as a range, or one number if they are equal."""
    return str(first) if last == first else f"{first} to {last}"


def show_ledger(record: dict[str, Any]) -> None:
    """Print what a ledger charged: one line for each study, then one for each group of equal entries.

    Parameters
    ----------
    record : dict
        Statement of a ledger (`zerosum.site.ledger_summary.statement`), with a `warning` or None.
    """
    population, cap = visible(record["account"]["population"]), record["cap"]
    title = f"{population}: epsilon {record['epsilon']:.4f} at delta {record['delta']:g} so far"
    if cap is not None:
        # The sum may be stated at another delta than that of the cap; what is left always refers to the cap.
        at = "" if cap["delta"] == record["delta"] else f" at delta {cap['delta']:g}"
        title += f"; under the cap of {cap['epsilon']:g}{at} one more study may cost {record['left']:.4f}"
    # Columns that only some ledgers need: older entries have no record of a consent, and most studies have no sub-
    # sampled steps.
    agreed = ["consent"] if any(line["consent"] for line in record["studies"]) else []
    headings = ("who", "asked", "columns", "epsilon", *agreed)
    studies = Table("study", Column("when (UTC)", no_wrap=True), *headings, title=title)
    for line in record["studies"]:
        question = line["asked"]
        studies.add_row(
            visible(line["study"]),
            line["first"][:16].replace("T", " "),
            visible(question.get("user", "")),
            question.get("algorithm", ", ".join(line["statistics"])),
            visible(_column_list(question)),
            f"{line['epsilon']:.4f}",
            *([f"{line['consent'] or ''}{', under 0.2' if line['exposed'] else ''}"] if agreed else []),
        )
    show_table(studies)
    doubted = ["guarantee"] if any(entry["guarantee"] for entry in record["entries"]) else []
    stepped = any(entry["spend"]["steps"] > 1 for entry in record["entries"])
    headings = ("study", "round", "statistic", "mu", *(["steps"] if stepped else []), *doubted)
    table = Table("#", Column("recorded", no_wrap=True), *headings)

    def cells_of(entry: dict[str, Any]) -> tuple[str, ...]:
        spend = entry["spend"]
        return (
            visible(spend["study"]),
            f", attempt {spend['attempt'] + 1}" if spend["attempt"] else "",
            visible(spend["statistic"]),
            f"{cost_word(entry['noise'])}{entry['charged_mu']:.4f}",
            *([f"{entry['drawn']} of {spend['steps']}" if spend["steps"] > 1 else ""] if stepped else []),
            *(entry[key] or "" for key in doubted),
        )

    # Rounds with equal cells that follow each other are one line, with the span of their numbers and rounds: a study
    # may have hundreds.
    for (study, attempt, *cells), alike in groupby(record["entries"], cells_of):
        first, *others = alike
        last = others[-1] if others else first
        rounds = _span(first["spend"]["round"] + 1, last["spend"]["round"] + 1) + attempt
        table.add_row(_span(first["number"], last["number"]), first["recorded"][:19], study, rounds, *cells)
    show_table(table)
    if record["warning"]:
        out.print(record["warning"])
