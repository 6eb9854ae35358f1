"""Short tables of a result for the watch page. The report beside the result has the details.

Tested in tests/watch/test_boards.py.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.errors import BadInput, ZerosumError
from zerosum.kernel.markup import Html, element
from zerosum.kernel.quantity import Quantity
from zerosum.report.coefficients import CoefficientTable
from zerosum.report.record import read_estimate
from zerosum.report.sheets import sheets_of
from zerosum.watch.markup import join, paragraph, table
from zerosum.watch.studies import as_json

# File name of the report.
REPORT = "report.html"
# Largest number of rows of a table.
_LINES = 60
_WIDE = 12  # largest number of columns of a table
_FEW = 8  # largest number of values in a line
# Number of rendered results in the cache.
_KNOWN = 32

# Cache by folder and modification time, oldest first.
_known: OrderedDict[tuple[str, int], Html] = OrderedDict()
_mutex = threading.Lock()


def outcome(folder: Path) -> Html:
    """Tables of a result. Cached until the result changes."""
    try:
        mark = str(folder), (folder / "result.json").stat().st_mtime_ns
        with _mutex:
            if mark in _known:
                return _known[mark]
        # Rendered outside the lock, so that a large result does not block other pages.
        drawn = _draw(folder)
    except (ZerosumError, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return paragraph("The result cannot be read: its files are damaged, or were moved.", class_="fault")
    with _mutex:
        _known[mark] = drawn
        while len(_known) > _KNOWN:
            _known.popitem(last=False)
    return drawn


def has_report(folder: Path) -> bool:
    """Whether a result has a report."""
    return (folder / REPORT).is_file()


def read_report(folder: Path) -> bytes:
    """The report file. Raises `BadInput`."""
    try:
        return (folder / REPORT).read_bytes()
    except OSError:
        raise BadInput("there is no report of this study") from None


def _draw(folder: Path) -> Html:
    """Render the result of a folder."""
    record, estimate = as_json(folder / "result.json"), read_estimate(folder)
    participants = record["participants"]
    last = participants[-1] if participants else []
    parts: list[Html] = [paragraph("warning: ", each, class_="warning") for each in record.get("warnings", [])]
    if "pooled_std" in estimate:
        rows = [line[:4] for line in CoefficientTable.of(estimate).lines()]
        heading = ("coefficient", "estimate", "95 % pooled data", "95 % population")
        parts.append(_limited(heading, rows, "Coefficients", 3))
    elif sheets := sheets_of(estimate):
        parts += [
            _limited(sheet.heading, list(sheet.rows), sheet.title, len(sheet.heading) - sheet.names) for sheet in sheets
        ]
    else:
        parts += [_quantity(name, quantity) for name, quantity in estimate.items()]
    parts.append(paragraph("In the last round took part: ", ", ".join(map(str, last)), "."))
    return join(parts)


def _quantity(name: str, quantity: Quantity) -> Html:
    """One quantity: a table with noise (one axis), a table (two axes), a line (few values), or its shape."""
    if len(quantity.axes) == 1 and quantity.value.ndim == 1:
        axis, value = quantity.axes[0], quantity.value
        std = np.full(value.shape, np.nan) if quantity.std is None else np.broadcast_to(quantity.std, value.shape)
        units = axis.units or ("",) * len(axis.labels)
        rows = [
            (f"{label} ({unit})" if unit else label, f"{each:.6g}", "" if np.isnan(noise) else f"{noise:.3g}")
            for label, unit, each, noise in zip(axis.labels, units, value.tolist(), std.tolist(), strict=True)
        ]
        noisy = quantity.std is not None
        heading = (axis.name, name, *(["noise"] if noisy else []))
        return _limited(heading, [row if noisy else row[:2] for row in rows], name, 2 if noisy else 1)
    if len(quantity.axes) == 2 and quantity.value.ndim == 2 and quantity.value.shape[1] <= _WIDE:
        down, across = quantity.axes
        lines = zip(down.labels, quantity.value.tolist(), strict=True)
        cells = [(label, *(f"{each:.5g}" for each in numbers)) for label, numbers in lines]
        return _limited((down.name, *across.labels), cells, name, len(across.labels))
    if quantity.value.size <= _FEW:
        values = ", ".join(f"{each:.6g}" for each in quantity.value.ravel().tolist())
        return paragraph(element("strong", name), f": {values}")
    along = " by ".join(f"{len(axis.labels)} ({axis.name})" for axis in quantity.axes)
    size = " by ".join(str(each) for each in quantity.value.shape)
    return paragraph(element("strong", name), f": {along or size} numbers")


def _limited(heading: Any, rows: list[Any], title: str, numbers: int) -> Html:
    """A table with at most 60 rows."""
    rest = len(rows) - _LINES
    shown = table(heading, rows[:_LINES], title, numbers)
    return join([shown, paragraph(f"and {rest} more lines, in the result's files")]) if rest > 0 else shown
