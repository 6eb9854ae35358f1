"""How the command line speaks: tables for people and JSON for programs on stdout, progress on stderr.

Nothing printed is read as markup, since names of studies, sites, columns and files come from users; what is bold or red
is a `Text` that says so.

Tested in tests/cli/test_cli.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from zerosum.kernel.names import visible
from zerosum.protocol.progress import Observer
from zerosum.protocol.progress import Progress as Seen
from zerosum.report.coefficients import CoefficientTable
from zerosum.report.record import PrivacyReport, finite
from zerosum.report.sheets import Sheet

_STAGES = {
    "loading": "loading data",
    "resumed": "resumed after round",
    "consent": "consent",
    "set-up": "setting up the secure sum",
    "round": "rounds",
    "writing": "writing",
}

out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_json(record: Any) -> None:
    print(json.dumps(finite(record), indent=2))


def _bar() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, transient=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    with _bar() as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, planned: bar.update(task, completed=done, total=planned)


@contextmanager
def observed() -> Iterator[Observer]:
    """A bar that follows a study from stage to stage."""
    with _bar() as bar:
        task = bar.add_task("starting", total=None)

        def follow(seen: Seen) -> None:
            what = _STAGES[seen.stage] + (f" of {visible(seen.site)}" if seen.site and seen.stage == "loading" else "")
            bar.update(task, description=what, completed=seen.done, total=seen.planned)

        yield follow


def titled(title: str, rest: str) -> None:
    """A line that begins in bold."""
    out.print(Text.assemble((title, "bold"), rest))


def show_error(message: str, detail: str) -> None:
    err.print(Text.assemble(("error:", "bold red"), f" {visible(message)}"), soft_wrap=True)
    if detail:
        err.print(f"not for others: {visible(detail)}", soft_wrap=True)


def short(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(short(item) for item in value[:10])
        return f"[{shown}{', ...' if len(value) > 10 else ''}]"
    return f"{value:.6g}"


def show_report(report: PrivacyReport) -> None:
    table = Table("release", "numbers", "sensitivity", "share of mu²", "noise", "mu")
    for line in report.releases:
        cells = (
            f"{line.size}",
            f"{line.sensitivity:.4g}",
            f"{line.share:.3g}",
            f"{line.noise_std:.4g}",
            f"{line.mu:.4g}",
        )
        table.add_row(line.statistic, *cells)
    out.print(table)
    dealt = any(site.helper_epsilon is not None for site in report.per_site)
    headings = ("site", "mu", f"epsilon at delta {report.delta:g}", "published epsilon")
    table = Table(*headings, *(["epsilon against the dealer"] if dealt else []))
    for site in report.per_site:
        others = (site.published_epsilon, *([site.helper_epsilon] if dealt else []))
        shown = ["" if value is None else f"{value:.4f}" for value in others]
        table.add_row(site.site, f"{site.mu:.4f}", f"{site.epsilon:.4f}", *shown)
    out.print(table)
    out.print(f"public digest {report.public_digest}")
    out.print(
        f"{report.rounds} round{'s' if report.rounds > 1 else ''} of {report.exchanges} exchange"
        f"{'s' if report.exchanges > 1 else ''}, {report.bytes_per_site} bytes to and from each site."
    )
    if report.extra_delta > 0:
        out.print(f"Finite arithmetic adds {report.extra_delta:.2g} to delta, which is paid for.")
    for sentence in report.sentences():
        out.print(sentence)


def show_coefficients(coefficients: CoefficientTable) -> None:
    """Estimates with both kinds of 95 % intervals: about the pooled data, and about the population."""
    table = Table("coefficient", "estimate", "95 % pooled data", "95 % population", "")
    for line in coefficients.lines():
        table.add_row(visible(line[0]), *line[1:])
    out.print(table)


def show_sheets(sheets: Iterable[Sheet]) -> None:
    """Tables that fit 80 columns, as they are: a narrower terminal breaks their lines."""
    for sheet in sheets:
        title, *lines = str(sheet).splitlines()
        titled(title, "")
        out.print("\n".join(lines), soft_wrap=True)
        out.print()


def show_ledger(record: dict[str, Any]) -> None:
    population = visible(record["account"]["population"])
    title = f"{population}: epsilon {record['epsilon']:.4f} at delta {record['delta']:g} so far"
    doubted = ["guarantee"] if record["warning"] else []
    headings = ("study", "round", "statistic", "mu", "steps", *doubted)
    table = Table("#", Column("recorded", no_wrap=True), *headings, title=title)
    for entry in record["entries"]:
        spend = entry["spend"]
        table.add_row(
            str(entry["number"]),
            entry["recorded"][:19],
            visible(spend["study"]),
            str(spend["round"] + 1) + (f", attempt {spend['attempt'] + 1}" if spend["attempt"] else ""),
            visible(spend["statistic"]),
            f"{entry['charged_mu']:.4f}",
            f"{entry['drawn']} of {spend['steps']}" if spend["steps"] > 1 else "",
            *(entry[key] or "" for key in doubted),
        )
    out.print(table)
    if record["warning"]:
        out.print(record["warning"])
