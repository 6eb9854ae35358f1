"""Experiment type: computes rows, writes CSV and a picture, and summarises for the terminal."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.errors import BadParameter

Row = dict[str, str | int | float]
Table = list[Row]
# Progress callback: (done, planned).
OnStep = Callable[[int, int], None]


_SHORT = {"objective-perturbation": "obj. perturbation"}  # long names, as they are printed
# Columns of a summary that are printed in the cell of the column before them, or, as the number of runs, not at all.
_MERGED = ("spread", "low", "high", "runs")


def quiet(done: int, planned: int) -> None:
    """Progress callback without effect."""
    return None


@dataclass(frozen=True)
class Run:
    """Settings of one run of an experiment."""

    data: str = "synthetic"  # name of the data set
    folder: Path | None = None  # where real data sets lie
    full: bool = False  # the papers' sizes, instead of a quick run
    seeds: int | None = None  # number of seeds; None for that of the size
    on_step: OnStep = quiet  # receives (done, planned): 0 first, then after each of the planned steps


# Runs an experiment and returns its rows.
Carry = Callable[[Run], Table]
# Headings to columns of printed tables that several experiments share: the setting of a run, and the end of a line.
SHOWN_SETTING = {
    "method": "method",
    "calibration": "calibration",
    "asked eps": "epsilon",
    "exact eps": "exact_epsilon",
}
SHOWN_SPREAD = {"spread": "spread", "runs": "runs"}


@dataclass(frozen=True)
class Experiment:
    """One figure of the papers.

    Attributes
    ----------
    name : str
        Name of the command.
    carry : Carry
        Computes the rows.
    draw : callable
        Saves the picture.
    summary : callable
        Turns rows into the lines of the printed table.
    shown : mapping of str to str
        Headings to columns of the printed table. A column `spread`, or the columns `low` and `high`, are printed in one
        cell with the column before them.
    data : tuple of str
        Data sets, the default first.
    brief_seeds : int, optional
        Seeds of a quick run of all figures; None for those of a quick run of this figure.
    """

    name: str
    carry: Carry
    draw: Callable[[Table, Path], None]
    summary: Callable[[Table], Table]
    shown: Mapping[str, str]
    data: tuple[str, ...] = ("synthetic",)
    brief_seeds: int | None = None

    def dataset(self, asked: str | None) -> str:
        """The data set to use; the first if none is given. Raises `BadParameter` for unknown names."""
        if asked is not None and asked not in self.data:
            raise BadParameter(f"unknown data {asked!r} for {self.name}; there are {', '.join(self.data)}")
        return self.data[0] if asked is None else asked

    def run(
        self,
        out: Path,
        data: str | None = None,
        folder: Path | None = None,
        *,
        full: bool = False,
        seeds: int | None = None,
        on_step: OnStep = quiet,
    ) -> Table:
        """Run and write `out`/NAME-DATA.csv and .png, or NAME.csv and .png if there is one data set."""
        chosen = self.dataset(data)
        rows = self.carry(Run(chosen, folder, full, seeds, on_step))
        out.mkdir(parents=True, exist_ok=True)
        write_csv(rows, out / f"{self.stem(data)}.csv")
        self.draw(rows, out / f"{self.stem(data)}.png")
        return rows

    def stem(self, data: str | None) -> str:
        """Name of the output files, without suffix."""
        return self.name if len(self.data) == 1 else f"{self.name}-{self.dataset(data)}"

    def printed(self, lines: Table) -> tuple[list[str], list[list[str | float]]]:
        """Headings and cells of the printed table, from the lines of `summary`."""
        headings = [each for each, column in self.shown.items() if column not in _MERGED]
        return headings, [[self._cell(line, column) for column in map(self.shown.get, headings)] for line in lines]

    def _cell(self, line: Row, column: str | None) -> str | float:
        """One cell: a value, with its standard deviation or quartiles if the next columns have them."""
        columns = list(self.shown.values())
        rest = columns[columns.index(column or "") + 1 :]
        value = line[column or ""]
        if rest[:1] == ["spread"] and not isinstance(value, str):
            return f"{float(value):.4g} ± {float(line['spread']):.2g}"
        if rest[:2] == ["low", "high"] and not isinstance(value, str):
            low, high = f"{float(line['low']):.2g}", f"{float(line['high']):.2g}"
            return f"{float(value):.2g}" + ("" if low == high else f" ({low}-{high})")
        return _SHORT.get(value, value) if isinstance(value, str) else value


def write_csv(rows: Table, path: Path) -> None:
    """Write rows as CSV. All rows have the columns of the first."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def averages(rows: Table, measured: Sequence[str], over: str = "seed") -> Table:
    """Means over seeds, one row for every other setting in order of appearance.

    The row also has the standard deviation of the first measured column (`spread`) and the number of runs.

    >>> averages([{"eps": 1, "seed": 0, "error": 2.0}, {"eps": 1, "seed": 1, "error": 4.0}], ["error"])
    [{'eps': 1, 'error': 3.0, 'spread': 1.0, 'runs': 2}]
    """
    groups: dict[tuple[tuple[str, str | int | float], ...], Table] = {}
    for row in rows:
        key = tuple((name, value) for name, value in row.items() if name != over and name not in measured)
        groups.setdefault(key, []).append(row)
    lines: Table = []
    for key, alike in groups.items():
        values = {name: [float(row[name]) for row in alike] for name in measured}
        means: Row = {name: float(np.mean(numbers)) for name, numbers in values.items()}
        lines.append(dict(key) | means | {"spread": float(np.std(values[measured[0]])), "runs": len(alike)})
    return lines


def run_count(asked: int | None, usual: int) -> int:
    """The number of runs that was asked for, or the usual one. Raises `BadParameter` for less than one."""
    runs = usual if asked is None else asked
    if runs < 1:
        raise BadParameter(f"at least one seed is needed, got {runs}")
    return runs


def curve(axes: Any, lines: Table, along: str, measured: str, *, label: str, colour: str, bold: bool) -> None:
    """Plot the mean of one method with its standard deviation as error bars."""
    axes.errorbar(
        [float(line[along]) for line in lines],
        [float(line[measured]) for line in lines],
        [float(line["spread"]) for line in lines],
        label=label,
        color=colour,
        marker="o",
        markersize=4,
        capsize=3,
        lw=2.5 if bold else 1.3,
        zorder=3 if bold else 2,
    )
