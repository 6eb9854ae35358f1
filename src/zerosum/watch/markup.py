"""HTML that is safe by how it is made: whatever is not `Html` already is text, and is escaped.

Names of studies, sites, columns and reasons come from others. Characters that do not show are written out first, so
that a name cannot run backwards through the rest of a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from zerosum.kernel.names import visible

_EMPTY = frozenset({"base", "input", "link", "meta"})  # of HTML, not of SVG


class Html(str):
    """Text that is markup, made by the functions of this module alone."""

    __slots__ = ()


Child = object  # Html as it is; None is nothing; anything else is text


def text(child: Child) -> Html:
    """
    >>> text("<b>")
    '&lt;b&gt;'
    """
    if isinstance(child, Html):
        return child
    return Html("") if child is None else Html(escape(visible(str(child)), quote=True))


def join(children: Iterable[Child], between: str = "") -> Html:
    return Html(between.join(text(child) for child in children))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. `class_` is class, `data_x` is data-x; an attribute that is None or False is left out, True is bare.

    >>> tag("a", "<x>", href='"', hidden=True, title=None)
    '<a href="&quot;" hidden>&lt;x&gt;</a>'
    """
    said = ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            said += f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
    return Html(f"<{name}{said}>") if name in _EMPTY else Html(f"<{name}{said}>{join(children)}</{name}>")


def paragraph(*children: Child, class_: str | None = None) -> Html:
    return tag("p", *children, class_=class_)


def table(headings: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str, numbers: int = 0) -> Html:
    """A table that scrolls by itself where it is too wide; the last `numbers` columns are aligned as numbers."""
    first = len(headings) - numbers

    def cell(name: str, at: int, child: Child, **more: object) -> Html:
        return tag(name, child, class_="number" if at >= first else None, **more)

    head = tag("tr", *(cell("th", at, each, scope="col") for at, each in enumerate(headings)))
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(cell("td", at, each) for at, each in enumerate(row[1:], 1)))
        for row in rows
    ]
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def pairs(lines: Iterable[tuple[str, Child]]) -> Html:
    """Names and what they stand for."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in lines))


def bar(done: float, whole: float, kind: str = "") -> Html:
    """How much of something, as a picture; whoever cannot see it reads the words beside it."""
    share = min(max(done / whole, 0.0), 1.0) if whole > 0 and math.isfinite(done) else 0.0
    return tag(
        "svg",
        tag("rect", class_="whole", width=100, height=6),
        tag("rect", class_="done", width=f"{100 * share:.2f}", height=6),
        class_=f"bar {kind}".strip(),
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def badge(words: str, kind: str) -> Html:
    return tag("span", words, class_=f"badge {kind}")


def moment(iso: str) -> Html:
    """A time, which the page's script shows as the reader's own."""
    return tag("time", f"{iso[:16].replace('T', ' ')} UTC", datetime=iso) if iso else Html("")


def more(title: Child, *children: Child) -> Html:
    return tag("details", tag("summary", title), *children)


@dataclass(frozen=True)
class Section:
    """A part of a page, which is sent again by itself whenever it changes."""

    id: str
    title: str
    body: Html


@dataclass(frozen=True)
class Page:
    """A page, and a sentence that is read out to whoever does not see it change."""

    title: str
    sections: tuple[Section, ...]
    said: str = ""
    home: bool = False
    count: int = 0  # of what waits for somebody: it stands in the title of the browser's tab

    @property
    def tab(self) -> str:
        return f"({self.count}) {self.title} - Zerosum" if self.count else f"{self.title} - Zerosum"
