"""Pictures from numbers: sound SVG whatever the numbers are, named for those who do not see it."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.reproducibility import examples
from zerosum.report.document import (
    Bars,
    Cloud,
    Clouds,
    Curves,
    Grid,
    Interval,
    Intervals,
    Picture,
    Plane,
    Series,
    Slices,
)
from zerosum.report.pictures import draw
from zerosum.report.scales import Scale, shown, ticks

SVG = "{http://www.w3.org/2000/svg}"
LONG = "a very long name of a column " * 5
ROWS = Interval("a", 1.0, 0.5, 1.5, 0.0, 2.0, 0.2, 1.8), Interval(LONG, None, None, None, None, None)
SERIES = (
    Series("a", (0.0, 1.0), (1.0, 0.5), (0.9, 0.4), (1.0, 0.6), "steps"),
    Series("b", (0.0, None), (None, 1.0), style="dashed"),
)
CLOUDS = Cloud("a", 0.5, 0.5, 0.3, 0.1, 0.1), Cloud("b", None, 1.0)
BINS = tuple(f"{at} to {at + 1}" for at in range(50))
PICTURES: dict[str, Picture] = {
    "intervals": Intervals("t", "about", ROWS),
    "shared": Intervals("t", "about", (Interval("a", -1.0, -2.0, 1.5, None, None),), shared=True),
    "bars": Bars("t", "about", ("a", LONG), (1.0, -2.0), (0.5, -3.0), (1.5, None)),
    "upright": Bars("t", "about", BINS, tuple(map(float, range(50))), upright=True),
    "small": Bars("t", "about", ("w",), (0.1,), percent=True, small=True),
    "none": Bars("t", "about", (), ()),
    "curves": Curves("t", "about", "x", "y", SERIES),
    "grid": Grid("t", "about", ("r", LONG), ("c", LONG), ((1.0, -1.0), (None, 0.0))),
    "clouds": Clouds("t", "about", "x", "y", (0.0, 1.0), (0.0, 1.0), CLOUDS),
    "slices": Slices("t", "about", (Plane("x = 0 mm", ((None, 1, 1), (0, -5, 5))), Plane("y = 0 mm", ()))),
}


def tree(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(draw(picture, "p"))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_sound_and_has_a_name(name: str) -> None:
    root = tree(PICTURES[name])
    assert root.get("role") == "img"
    title, about = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert about is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
    assert about.text == "about"
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for each in root.iter():
        for key, value in each.attrib.items():
            for number in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", value) if key not in ("class", "id") else ():
                assert math.isfinite(float(number))
            assert not {"nan", "inf"} & set(re.findall("[a-z]+", value))
        if each.tag in (f"{SVG}text",) and each.get("transform") is None:
            assert 0 <= float(each.get("x", 0)) <= width
            assert 0 <= float(each.get("y", 0)) <= height + 1


def test_bars_are_as_long_as_their_numbers() -> None:
    root = tree(Bars("t", "about", ("a", "b", "c"), (1.0, 2.0, -1.0)))
    lengths = [float(each.get("width", 0)) for each in root.iter(f"{SVG}rect")]
    assert lengths[1] == pytest.approx(2 * lengths[0], abs=0.1)
    assert lengths[2] == pytest.approx(lengths[0], abs=0.1)
    assert [each.get("class") for each in root.iter(f"{SVG}rect")] == ["bar", "bar", "minus"]


def test_small_parts_of_a_whole_are_short() -> None:
    root = tree(Bars("t", "about", ("a", "b"), (1e-6, 0.5), whole=1.0))
    short, half = (float(each.get("width", 0)) for each in root.iter(f"{SVG}rect"))
    (alone,) = (float(each.get("width", 0)) for each in tree(Bars("t", "about", ("a",), (1.0,))).iter(f"{SVG}rect"))
    assert short < 0.1
    assert half == pytest.approx(alone / 2, rel=0.05)


def test_steps_keep_their_height_until_the_next_one() -> None:
    root = tree(Curves("t", "about", "x", "y", (Series("a", (0.0, 1.0, 2.0), (1.0, 0.5, 0.2), style="steps"),)))
    (line,) = [each for each in root.iter(f"{SVG}path") if "line" in each.get("class", "")]
    assert re.fullmatch(r"M[\d. ]+(H[\d.]+V[\d.]+){2}", line.get("d", ""))


def test_levels_of_a_cut_cover_every_cell_once() -> None:
    cells = ((None, 1, 1, 0), (0, -5, 5, 5), (None, None, 7, 0))
    root = tree(Slices("t", "about", (Plane("x", cells),)))
    covered = 0
    for path in root.iter(f"{SVG}path"):
        covered += sum(int(run) for run in re.findall(r"h(\d+)v1", path.get("d", "")))
    assert covered == sum(cell is not None for line in cells for cell in line)


def test_slanted_labels_stay_on_the_picture_and_apart() -> None:
    names = tuple(f"a long name {at}" for at in range(9))
    root = tree(Grid("t", "about", ("r",), names, ((1.0,) * 9,)))
    heads = [each for each in root.iter(f"{SVG}text") if each.get("transform")]
    assert len(heads) == 9
    assert all(float(each.get("x", 0)) + math.sqrt(0.5) * 7 * len(each.text or "") <= 402 for each in heads)
    feet = [each for each in tree(PICTURES["upright"]).iter(f"{SVG}text") if each.get("transform")]
    places = [float(each.get("x", 0)) for each in feet]
    assert min(b - a for a, b in pairwise(places)) >= 20


def test_a_cluster_is_named_above_its_ring() -> None:
    root = tree(PICTURES["clouds"])
    (ring,) = root.iter(f"{SVG}ellipse")
    (name,) = [each for each in root.iter(f"{SVG}text") if each.get("class") == "over"]
    assert float(name.get("y", 0)) < float(ring.get("cy", 0)) - float(ring.get("ry", 0))
    assert float(name.get("x", 0)) == float(ring.get("cx", 0))


NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))


@settings(max_examples=examples(40))
@given(values=st.lists(NUMBERS, max_size=6), upright=st.booleans())
def test_any_numbers_can_be_drawn(values: list[Any], upright: bool) -> None:
    labels = tuple(str(at) for at in range(len(values)))
    drawn: str = draw(Bars("t", "about", labels, tuple(values), tuple(values), tuple(values), upright=upright), "p")
    places = tuple(float(at) for at in range(len(values)))
    drawn += draw(Curves("t", "about", "x", "y", (Series("a", places, tuple(values)),)), "q")
    assert "nan" not in drawn
    assert "inf" not in drawn


@example(low=-5e-324, high=0.0)
@given(low=st.floats(-1e300, 1e300), high=st.floats(-1e300, 1e300))
def test_ticks_lie_between_the_ends(low: float, high: float) -> None:
    found = ticks(low, high)
    assert len(found) <= 6
    for value in found:
        slack = 1e-8 * (high - low) + 1e-11
        assert low - slack <= value <= high + slack


def test_numbers_are_written_short() -> None:
    assert [shown(v) for v in (0.0, 12.0, 0.12345, 1234567.0, 1e9, -0.00001)] == [
        *("0", "12", "0.1235", "1234567", "1e+09", "-0.00001"),
    ]


def test_what_lies_beyond_an_axis_is_at_its_end() -> None:
    scale = Scale(0.0, 1.0, 10.0, 20.0)
    assert [scale(-5.0), scale(0.5), scale(9.0), scale(None)] == [10.0, 15.0, 20.0, 10.0]
