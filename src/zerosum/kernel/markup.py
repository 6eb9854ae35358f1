"""Tables in HTML, for notebooks.

Tested in tests/report/test_html.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def table(headings: Sequence[str], lines: Iterable[Sequence[Any]], title: str = "") -> str:
    """A table; everything in it is text, whatever it looks like.

    >>> table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_shown(cell))}</td>' for cell in line)}</tr>" for line in lines)
    said = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(each)}</p>" for each in sentences)


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.5g}"
    return "" if cell is None else str(cell)
