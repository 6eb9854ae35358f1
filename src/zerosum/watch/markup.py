"""Building blocks of watch pages: paragraphs, tables, bars, badges, sections that are updated one by one.

Names of studies, sites and columns, and reasons, come from other parties. They enter a page only through `element`,
which escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zerosum.kernel.markup import Html, element, text

Child = object  # Html is inserted unchanged, None is omitted, anything else is escaped text


def join(children: Iterable[Child], between: str = "") -> Html:
    """Concatenation of children."""
    return Html(between.join(map(text, children)))


def paragraph(*children: Child, class_: str | None = None) -> Html:
    """A paragraph."""
    return element("p", *children, class_=class_)


def table(headings: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str, numbers: int = 0) -> Html:
    """A table in a region that scrolls horizontally.

    Parameters
    ----------
    headings : sequence
        Column headings.
    rows : iterable of sequences
        Cells; the first of each row is its heading.
    caption : str
        Caption, also the label of the region.
    numbers : int
        Number of last columns that are aligned as numbers.
    """
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
    """Description list."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in lines))


def bar(done: float, whole: float, kind: str = "") -> Html:
    """Progress bar, hidden from screen readers: the text beside it has the same content."""
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
    """Coloured label; `kind` is its CSS class."""
    return element("span", words, class_=f"badge {kind}")


def moment(iso: str) -> Html:
    """A time in UTC. The page's script shows it in the reader's time zone."""
    return element("time", f"{iso[:16].replace('T', ' ')} UTC", datetime=iso) if iso else Html("")


def more(title: Child, *children: Child) -> Html:
    """Collapsed block."""
    return element("details", element("summary", title), *children)


@dataclass(frozen=True)
class Section:
    """A part of a page that is updated separately."""

    id: str
    title: str
    body: Html


@dataclass(frozen=True)
class Page:
    """A page, with a status sentence for screen readers (`said`)."""

    title: str
    sections: tuple[Section, ...]
    said: str = ""
    home: bool = False
    count: int = 0  # number of waiting plans, shown in the title of the tab

    @property
    def tab(self) -> str:
        """Title of the browser tab."""
        return f"({self.count}) {self.title} - Zerosum" if self.count else f"{self.title} - Zerosum"
