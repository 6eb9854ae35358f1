"""Renders a document as one HTML file without scripts or external resources (templates/page.html)."""

from __future__ import annotations

import re
from itertools import groupby

from markupsafe import Markup

from zerosum import html
from zerosum.report.charts import draw
from zerosum.report.document import Bars, Block, Document, Section, Table
from zerosum.report.style import CSS

_ONE_LINE = 20  # characters; longer cells may be wrapped
_WORD = 24  # characters; longer words, such as digests, may be wrapped anywhere
# Small numbers and percentages, which must not be wrapped.
_UNBROKEN = re.compile(r"(\d[\d.]*(?:e-\d+| %))")


def render(document: Document, json_digest: str) -> bytes:
    """Render a document as HTML, up to the place of its signature.

    Parameters
    ----------
    document : Document
        The report.
    json_digest : str
        SHA-256 of the JSON file that the page belongs to; it is printed in the footer.

    Returns
    -------
    bytes
        UTF-8 text without the closing tags, which are part of the seal (`zerosum.report.signature`).
    """
    page = html.render(
        "report/page.html",
        document=document,
        json_digest=json_digest,
        css=Markup(CSS),  # noqa: S704  # a constant of this package
        draw=draw,
        # Functions that the template calls.
        unbroken=_UNBROKEN.split,
        side_by_side=_side_by_side,
        number_columns=_number_columns,
        wrapping=_wrapping,
    )
    return page.encode("utf-8")


def _side_by_side(section: Section) -> list[tuple[bool, list[tuple[str, Block]]]]:
    """Blocks of a section with their ids, in runs: (True, small charts that are placed side by side), or (False, other
    blocks)."""
    numbered = [(f"{section.name}-{at}", block) for at, block in enumerate(section.blocks)]
    # groupby combines neighbouring blocks only, so the order of blocks is kept.
    runs = groupby(numbered, lambda each: isinstance(each[1], Bars) and each[1].small)
    return [(small, list(blocks)) for small, blocks in runs]


def _number_columns(table: Table) -> set[int]:
    """Indices of the columns that contain numbers only."""
    return {
        at
        for at in range(table.names, len(table.heading))
        if table.rows and all(len(row) > at and _is_number(row[at]) for row in table.rows)
    }


def _wrapping(cell: str, one_line: bool) -> str:
    """CSS class of a cell.

    Parameters
    ----------
    cell : str
        Text of the cell.
    one_line : bool
        Whether short text in this column stays on one line.

    Returns
    -------
    str
        "long" for text without spaces, such as a digest, which may be wrapped anywhere; "short" for text on one line;
        or "".
    """
    if max(map(len, cell.split()), default=0) > _WORD:
        return "long"
    return "short" if one_line and len(cell) <= _ONE_LINE else ""


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, a percentage or a dash."""
    try:
        float(cell.removesuffix(" %").replace("–", "0").replace("±", ""))
    except ValueError:
        return False
    return True
