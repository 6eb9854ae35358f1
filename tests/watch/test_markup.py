"""Whatever others call their studies, sites and columns is text on the page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helpers.watch_page import HOSTILE, parsed
from zerosum.kernel.markup import Html, element, text
from zerosum.kernel.names import visible
from zerosum.watch.markup import bar, join, moment, more, pairs, paragraph, table

ANY = st.text(st.characters(), max_size=40)


@given(ANY)
def test_text_stays_text_wherever_it_stands(said: str) -> None:
    made = join(
        [
            paragraph(said),
            element("a", said, href=said, title=said),
            table([said, "b"], [[said, said]], said, 1),
            pairs([(said, said)]),
            more(said, said),
        ]
    )
    made.encode()  # no half of a surrogate pair
    found = parsed(made)
    known = {*("p", "a", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd")}
    assert set(found.tags) <= known | {"details", "summary"}
    assert set(found.attributes) <= {"href", "title", "class", "tabindex", "role", "aria-label", "scope"}
    assert found.words == visible(said) * 4 + "b" + visible(said) * 6


def test_hostile_names_open_nothing_and_run_nothing() -> None:
    made = element("p", HOSTILE, class_=HOSTILE)
    assert parsed(made).tags == ["p"]
    assert parsed(made).words == HOSTILE
    assert text("a\u202eb\n<") == "a\\u202eb\\n&lt;"
    assert text(Html("<b>")) == "<b>"
    assert text(None) == ""
    assert element("meta", name="n", content=HOSTILE).count("<") == 1
    assert parsed(moment(HOSTILE)).tags == ["time"]


def test_a_bar_never_leaves_its_frame() -> None:
    for done, whole in ((5, 0), (-1, 4), (9, 4), (float("nan"), 1), (1, float("nan"))):
        (width,) = [each.split('"')[1] for each in bar(done, whole).split("width=")[2:3]]
        assert 0 <= float(width) <= 100
    assert bar(1, 2).count("</rect>") == 2  # in SVG nothing is empty by itself: one would lie in the other, unseen
