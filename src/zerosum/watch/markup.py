"""What the page is made of: paragraphs, tables, bars, and its sections, each sent again by itself when it changes.

Names of studies, sites, columns and reasons come from others: they become part of the page through `element` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zerosum.kernel.markup import Html, element, text

Child = object  # Html as it is; None is nothing; anything else is text


def join(children: Iterable[Child], between: str = "") -> Html:
    return Html(between.join(map(text, children)))


def paragraph(*children: Child, class_: str | None = None) -> Html:
    return element("p", *children, class_=class_)


def table(headings: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str, numbers: int = 0) -> Html:
    """A table that scrolls by itself where it is too wide; the last `numbers` columns are aligned as numbers."""
    first = len(headings) - numbers

    def cell(name: str, at: int, child: Child, **more: object) -> Html:
        return element(name, child, class_="number" if at >= first else None, **more)

    head = element("tr", *(cell("th", at, each, scope="col") for at, each in enumerate(headings)))
    body = [
        element("tr", element("th", row[0], scope="row"), *(cell("td", at, each) for at, each in enumerate(row[1:], 1)))
        for row in rows
    ]
    inner = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def pairs(lines: Iterable[tuple[str, Child]]) -> Html:
    """Names and what they stand for."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in lines))


def bar(done: float, whole: float, kind: str = "") -> Html:
    """How much of something, as a picture; whoever cannot see it reads the words beside it."""
    share = min(max(done / whole, 0.0), 1.0) if whole > 0 and math.isfinite(done) else 0.0
    return element(
        "svg",
        element("rect", class_="whole", width=100, height=6),
        element("rect", class_="done", width=f"{100 * share:.2f}", height=6),
        class_=f"bar {kind}".strip(),
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def badge(words: str, kind: str) -> Html:
    return element("span", words, class_=f"badge {kind}")


def moment(iso: str) -> Html:
    """A time, which the page's script shows as the reader's own."""
    return element("time", f"{iso[:16].replace('T', ' ')} UTC", datetime=iso) if iso else Html("")


def more(title: Child, *children: Child) -> Html:
    return element("details", element("summary", title), *children)


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
