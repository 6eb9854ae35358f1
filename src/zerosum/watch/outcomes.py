"""Short tables of a result for the watch page. The report beside the result has the details."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from markupsafe import Markup

from zerosum import html
from zerosum.errors import BadInput, ZerosumError
from zerosum.kernel.quantity import Quantity
from zerosum.report.coefficients import CoefficientTable
from zerosum.report.document import Table
from zerosum.report.record import read_estimate
from zerosum.report.tables import tables_of
from zerosum.watch.cache import RecentCache
from zerosum.watch.studies import as_json

# File name of the report.
REPORT = "report.html"
_MOST_ROWS = 60  # largest number of rows of a table
_MOST_COLUMNS = 12  # largest number of columns of a table
_MOST_VALUES = 8  # largest number of values in a line
_CACHE_SIZE = 32  # number of rendered results in the cache

# Rendered results by folder and modification time.
_cache: RecentCache[Markup] = RecentCache(_CACHE_SIZE)


def outcome(folder: Path) -> Markup:
    """Tables of a result. Cached until the result changes."""
    try:
        # A result is written once; the modification time covers a folder that was removed and written again.
        key = str(folder), (folder / "result.json").stat().st_mtime_ns
        # Rendered outside the lock of the cache, so that a large result does not block other pages.
        return _cache.get(key) or _cache.put(key, _render(folder))
    # A result may be damaged or of another version. The page then names that, and the other sections remain.
    except (ZerosumError, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return html.call("watch/result.html", "unreadable")


def has_report(folder: Path) -> bool:
    """Whether a result has a report."""
    return (folder / REPORT).is_file()


def read_report(folder: Path) -> bytes:
    """The report file. Raises `BadInput`."""
    try:
        return (folder / REPORT).read_bytes()
    except OSError:
        raise BadInput("there is no report of this study") from None


def _render(folder: Path) -> Markup:
    """Render the result of a folder."""
    record, estimate = as_json(folder / "result.json"), read_estimate(folder)
    # Sites that took part in each round, of which the page shows the last.
    rounds = record["participants"]
    lines: list[tuple[str, str]] = []
    if "pooled_std" in estimate:
        # As in `zerosum.cli.terminal.show_result`: a table of its own kind, otherwise quantities by name.
        tables = CoefficientTable.of(estimate, record["algorithm"]).tables()
    elif not (tables := tables_of(estimate)):
        for name, quantity in estimate.items():
            table = _table(name, quantity)
            if table is None:
                lines.append((name, _line(quantity)))
            else:
                tables.append(table)
    return html.call(
        "watch/result.html",
        "result",
        record.get("warnings", []),
        tables,
        lines,
        [str(site) for site in (rounds[-1] if rounds else [])],
        _MOST_ROWS,
    )


def _table(name: str, quantity: Quantity) -> Table | None:
    """Table of a quantity: with its noise for one axis, with a column for each label for two; else None."""
    if len(quantity.axes) == 1 and quantity.value.ndim == 1:
        axis, value = quantity.axes[0], quantity.value
        units = axis.units or ("",) * len(axis.labels)
        # One axis: a line for each label, with the standard deviation of the noise where it is known.
        labels = [f"{label} ({unit})" if unit else label for label, unit in zip(axis.labels, units, strict=True)]
        columns = [labels, [f"{each:.6g}" for each in value.tolist()]]
        if quantity.std is not None:
            std = np.broadcast_to(quantity.std, value.shape)
            columns.append(["" if np.isnan(noise) else f"{noise:.3g}" for noise in std.tolist()])
        heading = (axis.name, name, "noise")[: len(columns)]
        return Table(name, heading, tuple(zip(*columns, strict=True)))
    if len(quantity.axes) == 2 and quantity.value.ndim == 2 and quantity.value.shape[1] <= _MOST_COLUMNS:
        # Two axes: only if the columns fit on a page.
        down, across = quantity.axes
        lines = zip(down.labels, quantity.value.tolist(), strict=True)
        rows = tuple((label, *(f"{each:.5g}" for each in numbers)) for label, numbers in lines)
        return Table(name, (down.name, *across.labels), rows)
    return None


def _line(quantity: Quantity) -> str:
    """The values of a quantity, or its shape if there are too many."""
    if quantity.value.size <= _MOST_VALUES:
        return ", ".join(f"{each:.6g}" for each in quantity.value.ravel().tolist())
    along = " by ".join(f"{len(axis.labels)} ({axis.name})" for axis in quantity.axes)
    size = " by ".join(str(each) for each in quantity.value.shape)
    return f"{along or size} numbers"
