"""Several plots in one standalone SVG file without style sheet, fonts or network access."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zerosum.kernel.markup import Html, element
from zerosum.report.document import Picture
from zerosum.report.pictures import WIDTH, drawn
from zerosum.report.style import CSS, DARK, LIGHT

# Lengths in units of the view box, chosen by hand.
_MARGIN, _HEAD, _TITLE, _GAP = 16.0, 34.0, 24.0, 22.0
# Selectors of the report's style sheet that concern plots.
_DRAWN = re.compile(
    r"^(svg (?:text|\.[a-z]+)|(?:\.[a-z]+\.s\d|\.(?:axis|guide|zero|bar|minus|error|line|dashed|band)\b))"
)
# Rules for text in addition to those of the report.
_OWN = "text{font:12px system-ui,sans-serif}.head{font-weight:600;font-size:15px}.title{font-weight:600}"


def sheet(heading: str, about: str, pictures: Sequence[Picture]) -> bytes:
    """Make one SVG file of several plots, with light and dark colours by the reader's preference.

    Parameters
    ----------
    heading, about : str
        Title, and description for screen readers.
    pictures : sequence of Picture
        Plots, from top to bottom.
    """
    parts: list[Html] = []
    y = _MARGIN + _HEAD
    for picture in pictures:
        height, inside = drawn(picture)
        parts.append(element("text", picture.title, x=f"{_MARGIN:g}", y=f"{y + 14:g}", class_="title"))
        parts.append(element("g", *inside, transform=f"translate({_MARGIN:g} {y + _TITLE:g})"))
        y += _TITLE + height + _GAP
    width, height = WIDTH + 2 * _MARGIN, y
    dark = "".join(_rules(DARK))
    style = f"{''.join(_rules(LIGHT))}@media(prefers-color-scheme:dark){{{dark}}}"
    drawing = element(
        "svg",
        element("title", heading, id="title"),
        element("desc", about, id="about"),
        Html(f"<style>{style}</style>"),
        element("rect", width=f"{width:g}", height=f"{height:g}", class_="page"),
        element("text", heading, x=f"{_MARGIN:g}", y=f"{_MARGIN + 14:g}", class_="head"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{2 * width:g}",
        height=f"{2 * height:g}",
        role="img",
        aria_labelledby="title about",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{drawing}\n'.encode()


def _rules(colours: dict[str, str]) -> list[str]:
    """Rules of the report's style sheet that plots need, with variables replaced by colours, since some viewers do not
    support CSS variables."""
    found = [_OWN, f".page{{fill:{colours['page']}}}"]
    for selectors, rule in re.findall(r"([^{}\n][^{}]*)\{([^{}]*)\}", CSS.replace(",\n", ",")):
        kept = [each.strip() for each in selectors.split(",") if _DRAWN.match(each.strip())]
        if kept:
            written = re.sub(r"var\(--(\w+)\)", lambda name: colours[name.group(1)], rule)
            found.append(f"{','.join(each.removeprefix('svg ') for each in kept)}{{{written}}}")
    return found
