"""Templates of the watch pages: names and reasons from other parties stay text wherever they are used."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.watch_page import HOSTILE, parsed
from zerosum import html
from zerosum.kernel.names import visible

PARTS = "watch/parts.html"
ANY = st.text(st.characters(), max_size=40)


@settings(deadline=None)
@given(ANY)
def test_any_text_in_parts_of_a_page_stays_text(text: str) -> None:
    rendered = [
        html.call(PARTS, "table", [text, "b"], [[text, text]], text, 1),
        html.call(PARTS, "pairs", [(text, text)]),
        html.call(PARTS, "badge", text, text),
        html.call(PARTS, "moment", text),
    ]
    for each in rendered:
        each.encode()  # no half of a surrogate pair
    found = parsed("".join(rendered))
    assert set(found.tags) <= {*("div", "table", "caption", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd")} | {
        *("span", "time"),
    }
    assert set(found.attributes) <= {"class", "tabindex", "role", "aria-label", "scope", "datetime"}
    times = 7 if text else 6
    assert "".join(found.words.split()).count("".join(visible(text).split()) or "b") >= (times - 1 if text else 1)


def test_hostile_name_in_an_attribute_or_a_text_opens_no_element() -> None:
    found = parsed(html.call(PARTS, "badge", HOSTILE, HOSTILE))
    assert found.tags == ["span"]
    assert found.words == HOSTILE
    assert parsed(html.call(PARTS, "moment", HOSTILE)).tags == ["time"]
    assert "a\\u202eb\\n&lt;" in html.call(PARTS, "badge", "a\u202eb\n<", "plain")


@pytest.mark.parametrize("done", [5.0, -1.0, 9.0, float("nan"), float("inf")])
@pytest.mark.parametrize("whole", [0.0, 4.0, float("nan")])
def test_bar_with_any_share_stays_in_its_frame(done: float, whole: float) -> None:
    bar = html.call(PARTS, "bar", done, whole)
    (width,) = [each.split('"')[1] for each in bar.split("width=")[2:3]]
    assert 0 <= float(width) <= 100
    assert bar.count("</rect>") == 2  # an SVG element that is not closed would contain the next one
    assert "aria-hidden" in bar
