"""Charts from numbers: valid SVG for all numbers and names, with a title and a description for screen readers."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.reproducibility import examples
from zerosum.errors import BadParameter
from zerosum.report.charts import draw, limits, picture_file
from zerosum.report.document import (
    Bars,
    Cloud,
    Clouds,
    Curves,
    Forest,
    ForestRow,
    Grid,
    Interval,
    Intervals,
    Picture,
    Plane,
    Series,
    Slices,
)
from zerosum.report.number_format import format_number, format_percent
from zerosum.report.style import DARK_RULES, LIGHT

SVG = "{http://www.w3.org/2000/svg}"
LONG = "a very long name of a column " * 5
ROWS = Interval("a", 1.0, 0.5, 1.5, 0.0, 2.0, 0.2, 1.8), Interval(LONG, None, None, None, None, None)
SERIES = (
    Series("a", (0.0, 1.0), (1.0, 0.5), (0.9, 0.4), (1.0, 0.6), "steps"),
    Series("b", (0.0, None), (None, 1.0), style="dashed"),
)
CLOUDS = Cloud("a", 0.5, 0.5, 0.3, 0.1, 0.1), Cloud("b", None, 1.0)
BINS = tuple(f"{at} to {at + 1}" for at in range(50))
SHARES = Bars("t", "about", ("a", "b"), (1e-6, 0.5), whole=1.0)
FOREST = Forest(
    "t",
    "about",
    (
        ForestRow("a", 2.0, 1.6, 2.5, 1.25, 3.2, "2.00 (1.25 to 3.20)"),
        ForestRow("b", 0.5, 0.4, 0.625, 0.3125, 0.8),
        ForestRow("wide", 1.0, 1e-30, 1e30, 1e-40, 1e40),
        ForestRow("unknown", None, None, None, None, None),
    ),
    "odds ratio",
    True,
    1.0,
)
PICTURES: dict[str, Picture] = {
    "forest": FOREST,
    "intervals": Intervals("t", "about", ROWS),
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


def texts(root: ElementTree.Element) -> list[ElementTree.Element]:
    return list(root.iter(f"{SVG}text"))


def boxes(root: ElementTree.Element, colour: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of every filled path of this colour."""
    found = []
    for path in root.iter(f"{SVG}path"):
        if f"fill: {LIGHT[colour]}" in path.get("style", "") and path.get("d"):
            numbers = [float(each) for each in re.findall(r"-?[\d.]+", path.get("d", ""))]
            found.append((min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])))
    return found


@pytest.mark.parametrize("name", PICTURES)
def test_chart_is_valid_svg_with_title_and_description(name: str) -> None:
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
            assert not {"nan", "inf"} & set(re.findall("[a-z]+", value)), key
            if key in ("x", "y"):
                assert math.isfinite(float(value))
        if each.tag == f"{SVG}text" and each.get("transform") is None:
            assert 0 <= float(each.get("x", 0)) <= width
            assert 0 <= float(each.get("y", 0)) <= height + 1


@pytest.mark.parametrize("name", PICTURES)
def test_chart_colours_all_have_a_dark_rule(name: str) -> None:
    colours = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", draw(PICTURES[name], "p")))
    assert colours or name == "none"
    for colour in colours:
        assert f'[style*="{colour}"]' in DARK_RULES


def test_chart_drawn_twice_has_equal_bytes_and_no_shared_ids() -> None:
    for picture in PICTURES.values():
        assert draw(picture, "p") == draw(picture, "p")
    first, second = (re.findall(r' id="([^"]+)"', draw(PICTURES["clouds"], name)) for name in ("p", "q"))
    assert len(first) == len(set(first)) > 2
    assert not set(first) & set(second)


def test_chart_references_resolve_within_the_chart() -> None:
    root = tree(PICTURES["curves"])
    ids = {each.get("id") for each in root.iter()}
    references = [value for each in root.iter() for key, value in each.attrib.items() if key.endswith("href")]
    assert references == [] or {each[1:] for each in references} <= ids
    assert "url(" not in draw(PICTURES["curves"], "p")


def test_chart_labels_with_math_signs_or_missing_glyphs_stay_text() -> None:
    names = ("$\\frac$", "年齢", "<b>", "a\u202eb")
    shown = [each.text for each in texts(tree(Bars("t", "about", names, (1.0, 2.0, 3.0, 4.0))))]
    assert {"$\\frac$", "年齢", "<b>", "a\\u202eb"} <= set(shown)


def test_chart_ignores_matplotlib_settings_of_user() -> None:
    import matplotlib

    plain = draw(PICTURES["curves"], "p")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red"}):
        assert draw(PICTURES["curves"], "p") == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_bar_lengths_are_proportional_to_values() -> None:
    root = tree(Bars("t", "about", ("a", "b", "c"), (1.0, 2.0, -1.0)))
    first, second = (right - left for left, _, right, _ in boxes(root, "accent"))
    (negative,) = (right - left for left, _, right, _ in boxes(root, "warm"))
    assert second == pytest.approx(2 * first, abs=0.1)
    assert negative == pytest.approx(first, abs=0.1)


def test_chart_bars_with_whole_are_scaled_to_whole() -> None:
    short, half = (right - left for left, _, right, _ in boxes(tree(SHARES), "accent"))
    _, full = (right - left for left, _, right, _ in boxes(tree(replace(SHARES, whole=None)), "accent"))
    assert short < 0.1
    assert half == pytest.approx(full / 2, rel=0.01)


def test_steps_keep_their_height_until_the_next_point() -> None:
    root = tree(Curves("t", "about", "x", "y", (Series("a", (0.0, 1.0, 2.0), (1.0, 0.5, 0.2), style="steps"),)))
    (line,) = [each.get("d", "") for each in root.iter(f"{SVG}path") if "stroke-width: 2" in each.get("style", "")]
    numbers = [float(each) for each in re.findall(r"-?[\d.]+", line)]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(points) == 5
    for number, ((x, y), (next_x, next_y)) in enumerate(pairwise(points)):
        assert (y == next_y) if number % 2 == 0 else (x == next_x)


def test_slice_levels_cover_every_cell_once() -> None:
    cells = ((None, 1, 1, 0), (0, -5, 5, 5), (None, None, 7, 0))
    root = tree(Slices("t", "about", (Plane("x", cells),)))
    areas = []
    for path in root.iter(f"{SVG}path"):
        if "fill: #" in path.get("style", ""):
            for box in path.get("d", "").split("z")[:-1]:
                numbers = [float(each) for each in re.findall(r"-?[\d.]+", box)]
                areas.append((max(numbers[::2]) - min(numbers[::2])) * (max(numbers[1::2]) - min(numbers[1::2])))
    known = sum(cell is not None for line in cells for cell in line)
    assert sum(areas) == pytest.approx(known * min(areas), rel=1e-4)  # the smallest box is one cell


def test_slanted_labels_stay_inside_and_apart() -> None:
    names = tuple(f"a long name {at}" for at in range(9))
    heads = [each for each in texts(tree(Grid("t", "about", ("r",), names, ((1.0,) * 9,)))) if each.get("transform")]
    assert len(heads) == 9
    assert all(_corner(each)[0] + math.sqrt(0.5) * 6.5 * len(each.text or "") <= 402 for each in heads)
    feet = [_corner(each)[0] for each in texts(tree(PICTURES["upright"])) if each.get("transform")]
    assert min(b - a for a, b in pairwise(feet)) >= 20


def _corner(text: ElementTree.Element) -> tuple[float, float]:
    """Position of a text, from its attributes or its transformation."""
    if text.get("x") is not None:
        return float(text.get("x", 0)), float(text.get("y", 0))
    x, y = re.findall(r"-?[\d.]+", (text.get("transform") or "").partition("translate(")[2].partition(")")[0])
    return float(x), float(y)


def test_cluster_label_is_above_its_ring() -> None:
    root = tree(PICTURES["clouds"])
    ((left, top, right, _),) = (box for box in boxes(root, "s0") if box[2] - box[0] > 20)
    (name,) = [each for each in texts(root) if (each.text or "").startswith("a, ")]
    assert float(name.get("y", 0)) < top
    assert float(name.get("x", 0)) == pytest.approx((left + right) / 2, abs=0.01)


def test_cluster_ring_beyond_the_axes_is_cut_at_their_ends() -> None:
    wide = Clouds("t", "about", "x", "y", (0.0, 1.0), (0.0, 1.0), (Cloud("a", 0.5, 0.5, 0.3, 1e300, 1e300),))
    root = tree(wide)
    left, top, right, bottom = max(boxes(root, "s0"), key=lambda box: box[2] - box[0])
    (line,) = [each for each in root.iter(f"{SVG}path") if f"stroke: {LIGHT['muted']}" in each.get("style", "")]
    start, low, end, _ = (float(each) for each in re.findall(r"-?[\d.]+", line.get("d", "")))
    assert (left, right, bottom) == pytest.approx((start, end, low))
    assert top > 0


NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))


@settings(max_examples=examples(15), deadline=None)
@given(values=st.lists(NUMBERS, max_size=6), upright=st.booleans())
@example(values=[5e-324, -5e-324], upright=True)
@example(values=[1.7e308, -1.7e308], upright=False)
def test_charts_of_any_numbers_have_finite_coordinates(values: list[Any], upright: bool) -> None:
    labels = tuple(str(at) for at in range(len(values)))
    drawn: str = draw(Bars("t", "about", labels, tuple(values), tuple(values), tuple(values), upright=upright), "p")
    places = tuple(float(at) for at in range(len(values)))
    drawn += draw(Curves("t", "about", "x", "y", (Series("a", places, tuple(values), counts=tuple(values)),)), "q")
    rows = tuple(ForestRow(label, *[value] * 5) for label, value in zip(labels, values, strict=True))
    drawn += draw(Forest("t", "about", rows, "x", log=upright, neutral=1.0), "r")
    assert "nan" not in drawn
    assert "inf" not in drawn


@given(values=st.lists(NUMBERS, max_size=6), zero=st.booleans())
def test_limits_enclose_ordinary_values(values: list[Any], zero: bool) -> None:
    low, high = limits(values, zero=zero)
    assert low < high
    assert all(low <= value <= high for value in values if value is not None and abs(value) < 1e150)
    assert not zero or low <= 0 <= high


def test_format_number_is_short() -> None:
    assert [format_number(v) for v in (0.0, 12.0, 0.12345, 1234567.0, 1e9, -0.00001)] == [
        *("0", "12", "0.1235", "1234567", "1e+09", "-0.00001"),
    ]
    assert [format_percent(v) for v in (0.5, None, math.inf)] == ["50 %", "–", "–"]


# ---- forest plots, counts below an axis, labels ---------------------------------------------------------------------


def test_forest_rows_share_a_logarithmic_axis() -> None:
    bars = [
        [float(each) for each in re.findall(r"-?[\d.]+", path.get("d", ""))]
        for path in tree(FOREST).iter(f"{SVG}path")
        if "stroke-width: 8" in path.get("style", "")
    ]
    (first, second), spread = bars[:2], math.log(2.5 / 1.6)
    # Equal ratios have equal lengths, and the rows are as far apart as the logarithms of their estimates.
    assert first[2] - first[0] == pytest.approx(second[2] - second[0], abs=0.1)
    scale = (first[2] - first[0]) / spread
    assert first[0] - second[0] == pytest.approx(scale * math.log(4), rel=0.01)


def test_forest_interval_beyond_the_axis_stays_inside_the_picture() -> None:
    root = tree(FOREST)
    width = float(root.attrib["viewBox"].split()[2])
    assert root.get("class") == "wide"
    lines = [path for path in root.iter(f"{SVG}path") if "stroke-width: 8" in path.get("style", "")]
    assert len(lines) == 4  # the last one is empty
    for path in lines:
        for number in re.findall(r"[ML](-?[\d.]+)", path.get("d", "")):
            assert -1 <= float(number) <= width + 1


@pytest.mark.parametrize("log", [True, False])
def test_forest_without_numbers_is_drawn(log: bool) -> None:
    empty = Forest("t", "about", (ForestRow("a", None, None, None, None, None),), "x", log, None)
    assert "a" in [each.text for each in texts(tree(empty))]
    assert tree(Forest("t", "about", (), "x", log)).get("viewBox")


def test_long_row_labels_are_wrapped_and_not_cut() -> None:
    name = "systolic blood pressure at admission, right arm, seated"
    for picture in (
        replace(FOREST, rows=(replace(FOREST.rows[0], label=name),)),
        Intervals("t", "about", (Interval(name, 1.0, 0.0, 2.0, 0.0, 2.0),)),
        Bars("t", "about", (name, "z"), (1.0, 2.0)),
    ):
        shown = [each.text or "" for each in texts(tree(picture))]
        assert not any("…" in each for each in shown)
        assert " ".join(each for each in shown if each and each in name) == name


def test_curves_have_numbers_at_risk_below_the_axis() -> None:
    series = tuple(
        Series(label, (0.0, 1.0, 2.0), (1.0, 0.5, 0.2), style="steps", counts=counts)
        for label, counts in (("a", (90.0, 41.4, None)), ("b", (80.0, -2.0, 5.0)))
    )
    root = tree(Curves("t", "about", "time", "survival", series, counts_label="number at risk"))
    shown = list(texts(root))
    words = [each.text for each in shown]
    assert {"number at risk", "90", "41", "80", "0", "5"} <= set(words)
    place = {each.text: _corner(each)[1] for each in shown}
    assert place["number at risk"] < place["90"] < place["80"]
    assert place["90"] == pytest.approx(place["41"], abs=0.1)


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_picture_file_has_its_format_and_is_reproducible(suffix: str, start: bytes) -> None:
    found = picture_file(FOREST, suffix)
    assert found.startswith(start)
    assert picture_file(FOREST, suffix) == found


def test_picture_file_of_another_format_is_refused() -> None:
    with pytest.raises(BadParameter, match="svg, pdf, png"):
        picture_file(FOREST, "gif")
