"""HTML with all foreign text escaped: elements, and the tables of notebooks.

Text enters a page through `element` only, which escapes every child that is not an element. Invisible characters, such
as those that reverse the direction of writing, are written out.

Tested in tests/report/test_html.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from zerosum.kernel.names import visible

_EMPTY = frozenset({"base", "input", "link", "meta"})  # elements of HTML without an end


class Html(str):
    """Text that is markup already."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def text(child: object) -> Html:
    """Markup as it is, None as nothing, anything else as text.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    if isinstance(child, Html):
        return child
    return Html("" if child is None else escape(visible(str(child))))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. Children that are not elements are text. Attributes that are None or False are left out, True gives a
    bare attribute, and `class_` is `class`.

    >>> element("p", "a < b", element("b", "c"), class_="x", hidden=True)
    '<p class="x" hidden>a &lt; b<b>c</b></p>'
    """
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = "" if name in _EMPTY else f"{''.join(map(text, children))}</{name}>"
    return Html(f"<{name}{told}>{inside}")


def table(headings: Sequence[str], lines: Iterable[Sequence[Any]], title: str = "") -> Html:
    """A table; every cell is text, even if it looks like markup.

    >>> table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = element("thead", element("tr", *(element("th", each) for each in headings)))
    body = [element("tr", *(element("td", _shown(cell)) for cell in line)) for line in lines]
    said = [element("caption", title)] if title else []
    return element("table", *said, head, element("tbody", *body))


def paragraphs(sentences: Iterable[str]) -> Html:
    return Html("".join(element("p", each) for each in sentences))


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.5g}"
    return "" if cell is None else str(cell)
