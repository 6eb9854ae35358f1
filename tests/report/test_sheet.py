"""Several pictures in one file: well-formed, whole, in both schemes of colours, and nothing in it is fetched."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from zerosum.report.document import Bars, Curves, Series
from zerosum.report.sheet import sheet
from zerosum.report.style import DARK, LIGHT

SVG = "{http://www.w3.org/2000/svg}"
CURVES = Curves(
    "a < b & c", "about", "x", "y", (Series("one", (0.0, 1.0), (2.0, 3.0)), Series("two", (0.0, 1.0), (1.0, None)))
)
BARS = Bars("<script>", "about", ("p", "q"), (1.0, 2.0), (0.5, 1.5), (1.5, 2.5))


def test_a_sheet_is_whole_and_escapes_what_is_not_ours() -> None:
    drawn = sheet("a study \u202e& <more>", "about", [CURVES, BARS])
    root = ET.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    assert "a < b & c" in texts
    assert "<script>" in texts
    assert not list(root.iter(f"{SVG}script"))
    assert "\u202e" not in drawn.decode()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    offsets = [float(each.attrib["transform"].split()[1].rstrip(")")) for each in root.findall(f"{SVG}g")]
    assert len(offsets) == 2
    assert 0 < offsets[0] < offsets[1] < height
    assert width > 400


def test_every_class_that_is_drawn_has_a_rule_without_variables() -> None:
    drawn = sheet("s", "about", [CURVES, BARS]).decode()
    style = re.search("<style>(.*?)</style>", drawn, re.DOTALL)
    assert style is not None
    light, dark = style[1].split("@media(prefers-color-scheme:dark)")
    assert "var(" not in style[1]
    classes = {name for each in re.findall(r'class="([^"]+)"', drawn) for name in each.split()}
    for name in classes - {"point"}:  # a point is drawn by its series' rule
        assert f".{name}" in light, name
        assert f".{name}" in dark, name
    assert LIGHT["ink"] in light
    assert DARK["ink"] in dark
