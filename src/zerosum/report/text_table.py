"""Tables of a report as text, by rich."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

from zerosum.kernel.names import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from zerosum.report.document import Table

# Characters per line.
WIDTH = 80
_NARROWEST = 6  # characters to which a column of text may be narrowed


def rich_table(table: Table, width: int = WIDTH) -> RichTable:
    """Table for a console, without title and lines.

    Numbers are aligned at the right and stay on one line. Long names and remarks continue on the next line.

    Parameters
    ----------
    table : Table
        The table.
    width : int
        Characters per line of the console. Columns move closer together in a table that would be too wide.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    # Two spaces between columns where they fit on the line, else one.
    gap = 2 if sum(_widths(table)) + 2 * (len(table.heading) - 1) <= width else 1
    rich = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for at, heading in enumerate(table.heading):
        text = _is_text(table, at)
        side: Literal["left", "right"] = "left" if text else "right"
        rich.add_column(Text(visible(heading)), justify=side, no_wrap=not text, overflow="fold")
    for row in table.rows:
        rich.add_row(*(Text(visible(cell)) for cell in row))
    return rich


def text_table(table: Table) -> str:
    """Title and rows as text with at most 80 columns, unless the numbers alone are wider."""
    from rich.console import Console

    buffer = io.StringIO()
    # Without colours and terminal codes: the text goes into files, mails and `str(table)`.
    Console(file=buffer, width=least_width(table), color_system=None, force_terminal=False).print(rich_table(table))
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join([*([visible(table.title)] if table.title else []), *lines])


def fits(table: Table) -> bool:
    """Whether a table has at most 80 columns."""
    return _narrowest(table) <= WIDTH


def least_width(table: Table, width: int = WIDTH) -> int:
    """Width at which no number is cut: `width`, or more if the table needs more."""
    return max(width, _narrowest(table))


def _widths(table: Table) -> list[int]:
    """Width of the longest cell of every column."""
    return [max(len(visible(line[at])) for line in (table.heading, *table.rows)) for at in range(len(table.heading))]


def _narrowest(table: Table) -> int:
    """Smallest width of a table: columns of text are narrowed, and all columns are one space apart."""
    widths = [min(width, _NARROWEST) if _is_text(table, at) else width for at, width in enumerate(_widths(table))]
    return sum(widths) + len(widths) - 1


def _is_text(table: Table, at: int) -> bool:
    """Whether a column has names or remarks: no cell of it has a digit, and one has a letter."""
    # The first columns name the rows, even if the names are numbers.
    if at < table.names:
        return True
    characters = "".join(row[at] for row in table.rows)
    return any(map(str.isalpha, characters)) and not any(map(str.isdigit, characters))
