"""Renders a document as one HTML file without scripts or external resources. All text is escaped."""

from __future__ import annotations

import re
from itertools import groupby

from zerosum.kernel.markup import Html, element
from zerosum.report.document import Bars, Block, Document, Section, Table, Text
from zerosum.report.pictures import draw
from zerosum.report.style import CSS

_ONE_LINE = 20  # characters; longer cells may be wrapped
# Small numbers and percentages, which must not be wrapped.
_UNBROKEN = re.compile(r"(\d[\d.]*(?:e-\d+| %))")
# Content Security Policy: no scripts, no external resources.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


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
    sections = [_section(section) for section in document.sections]
    links = [element("li", element("a", each.heading, href=f"#{each.name}")) for each in document.sections]
    body = [
        element("a", "To the report", href="#report", class_="skip"),
        element(
            "header",
            element("p", f"Report of a joint study · {document.algorithm}", class_="kind"),
            element("h1", document.title),
            element("p", *_whole(document.summary), class_="summary"),
        ),
        element("nav", element("ul", *links), aria_label="Contents"),
        element("main", *sections, id="report"),
        _footer(document, json_digest),
    ]
    head = "".join(
        [
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            element("title", f"{document.title}: report"),
            f"<style>{CSS}</style>",
        ]
    )
    page = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{"".join(body)}\n'
    return page.encode("utf-8")


def _footer(document: Document, json_digest: str) -> Html:
    """Signature key, digest of the JSON, and how to verify."""
    whose = f"site {document.site}" if document.site else "coordinator"
    return element(
        "footer",
        element("p", f"Written {document.written} and signed with the key of the {whose}."),
        element("p", "Key ", element("code", document.coordinator)),
        element("p", "SHA-256 of report.json ", element("code", json_digest)),
        element("p", "Whether a byte was changed since: ", element("code", "zerosum verify report.html")),
    )


def _section(section: Section) -> Html:
    """One section. Consecutive small charts are placed side by side."""
    parts: list[Html] = []
    numbered = list(enumerate(section.blocks))
    # groupby combines neighbouring blocks only, so the order of blocks is kept.
    for small, group in groupby(numbered, lambda each: isinstance(each[1], Bars) and each[1].small):
        drawn = [_block(block, f"{section.name}-{at}") for at, block in group]
        parts += [element("div", *drawn, class_="side")] if small else drawn
    heading = element("h2", section.heading, id=f"{section.name}-heading")
    return element("section", heading, *parts, id=section.name, aria_labelledby=f"{section.name}-heading")


def _block(block: Block, name: str) -> Html:
    """One text, table or plot."""
    if isinstance(block, Text):
        return _text(block)
    if isinstance(block, Table):
        shown = _table(block, f"{name}-title")
        if block.folded:
            return element("details", element("summary", block.title, id=f"{name}-title"), shown)
        return Html(element("p", block.title, class_="title", id=f"{name}-title") + shown)
    about = element("span", block.about, class_="about")
    return element("figure", element("figcaption", block.title, about), draw(block, name))


def _text(text: Text) -> Html:
    """Paragraphs or a list."""
    if text.tone == "points":
        return element("ul", *(element("li", *_whole(each)) for each in text.sentences))
    said = [element("p", *_whole(each)) for each in text.sentences]
    return element("div", *said, class_=None if text.tone == "plain" else text.tone)


def _whole(sentence: str) -> list[str | Html]:
    """The parts of a sentence, with small numbers and percentages in spans that are not wrapped.

    >>> "".join(_whole("at delta 1e-05"))
    'at delta <span class="whole">1e-05</span>'
    """
    parts = _UNBROKEN.split(sentence)
    return [element("span", each, class_="whole") if at % 2 else each for at, each in enumerate(parts) if each]


def _table(table: Table, title: str) -> Html:
    """A table in a region that scrolls horizontally, also by keyboard."""
    numbers = {
        at
        for at in range(table.names, len(table.heading))
        if table.rows and all(len(row) > at and _is_number(row[at]) for row in table.rows)
    }

    def kind(at: int) -> str | None:
        return "number" if at in numbers else None

    heads = [element("th", each, scope="col", class_=kind(at)) for at, each in enumerate(table.heading)]
    rows = [
        element(
            "tr",
            *(
                element("th", cell, scope="row", class_=_long(cell))
                if at < table.names
                else element("td", cell, class_=kind(at) or _long(cell) or _short(cell))
                for at, cell in enumerate(row)
            ),
        )
        for row in table.rows
    ]
    inside = [element("thead", element("tr", *heads)), element("tbody", *rows)]
    shown = element("table", *inside, aria_labelledby=title)
    return element("div", shown, class_="scroll", tabindex=0, role="region", aria_labelledby=title)


def _long(cell: str) -> str | None:
    """CSS class of text without spaces, such as a digest, which may be wrapped anywhere."""
    return "long" if max(map(len, cell.split()), default=0) > 24 else None


def _short(cell: str) -> str | None:
    """CSS class of text that stays on one line."""
    return "short" if len(cell) <= _ONE_LINE else None


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, a percentage or a dash."""
    try:
        float(cell.removesuffix(" %").replace("–", "0").replace("±", ""))
    except ValueError:
        return False
    return True
