"""Several charts in one standalone SVG file, with light and dark colours and without fonts or network access."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from zerosum.kernel.names import visible
from zerosum.report.charts import WIDTH, chart
from zerosum.report.document import Picture
from zerosum.report.style import DARK_RULES, LIGHT

# Lengths in points of the view box, chosen by hand.
_MARGIN, _HEAD, _TITLE, _GAP = 16.0, 34.0, 24.0, 22.0
_FONTS = (
    "text{font:12px system-ui,sans-serif}.tick{font-size:11px}.head{font-weight:600;font-size:15px}"
    ".title{font-weight:600}"
)


def svg_file(heading: str, about: str, pictures: Sequence[Picture]) -> bytes:
    """Make one SVG file of several charts, with light and dark colours by the reader's preference.

    Parameters
    ----------
    heading, about : str
        Title, and description for screen readers.
    pictures : sequence of Picture
        Charts, from top to bottom.
    """
    parts, y = [_text(heading, _MARGIN + 14, "head")], _MARGIN + _HEAD
    for at, picture in enumerate(pictures):
        drawn = chart(picture, f"chart-{at}")
        height = float(drawn.attrib["viewBox"].split()[3])
        # A chart is an SVG element with a view box; placed inside another one, it needs a position and a size.
        drawn.attrib |= {"x": f"{_MARGIN:g}", "y": f"{y + _TITLE:g}", "width": f"{WIDTH:g}", "height": f"{height:g}"}
        parts += [_text(picture.title, y + 14, "title"), drawn]
        y += _TITLE + height + _GAP
    width, height = WIDTH + 2 * _MARGIN, y
    root = _element(
        "svg",
        viewBox=f"0 0 {width:g} {height:g}",
        # Twice the points of the view box, as the size in which programs open the file.
        width=f"{2 * width:g}",
        height=f"{2 * height:g}",
        role="img",
    )
    root.set("aria-labelledby", "title about")
    ground = _element("rect", width=f"{width:g}", height=f"{height:g}", style=f"fill: {LIGHT['page']}")
    style = _element("style", text=f"{_FONTS}@media(prefers-color-scheme:dark){{{DARK_RULES}}}")
    root.extend([_element("title", heading, id="title"), _element("desc", about, id="about"), style, ground, *parts])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, "unicode")}\n'.encode()


def _element(tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    """An SVG element with text."""
    element = ElementTree.Element(f"{{http://www.w3.org/2000/svg}}{tag}", attributes)
    element.text = None if text is None else visible(text)
    return element


def _text(words: str, y: float, kind: str) -> ElementTree.Element:
    """A line of text at the left margin."""
    element = _element("text", words, x=f"{_MARGIN:g}", y=f"{y:g}", style=f"fill: {LIGHT['ink']}")
    element.set("class", kind)
    return element
