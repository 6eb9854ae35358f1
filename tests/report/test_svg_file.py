"""Several charts in one SVG file: valid, complete, in light and dark colours, without references to other files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from zerosum.report.document import Bars, Curves, Series
from zerosum.report.style import DARK, LIGHT
from zerosum.report.svg_file import svg_file

SVG = "{http://www.w3.org/2000/svg}"
CURVES = Curves(
    "a < b & c", "about", "x", "y", (Series("one", (0.0, 1.0), (2.0, 3.0)), Series("two", (0.0, 1.0), (1.0, None)))
)
BARS = Bars("<script>", "about", ("p", "q"), (1.0, 2.0), (0.5, 1.5), (1.5, 2.5))


def test_svg_file_has_every_chart_and_escapes_names() -> None:
    drawn = svg_file("a study \u202e& <more>", "about", [CURVES, BARS])
    root = ET.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    assert "a < b & c" in texts
    assert "<script>" in texts
    assert not list(root.iter(f"{SVG}script"))
    assert "\u202e" not in drawn.decode()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    charts = root.findall(f"{SVG}svg")
    tops = [float(each.attrib["y"]) for each in charts]
    ends = [top + float(each.attrib["height"]) for top, each in zip(tops, charts, strict=True)]
    assert 0 < tops[0] < ends[0] < tops[1] < ends[1] < height
    assert width > 400
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids))


def test_svg_file_colours_are_literal_and_have_dark_rules() -> None:
    drawn = svg_file("s", "about", [CURVES, BARS]).decode()
    light, dark = drawn.split("@media(prefers-color-scheme:dark)")
    assert "var(" not in drawn
    assert "url(" not in drawn
    rules, charts = dark.split("</style>")
    for colour in set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", charts)):
        assert f'[style*="{colour}"]' in rules
    assert LIGHT["ink"] in charts
    assert DARK["ink"] in rules
    assert "font" in light
