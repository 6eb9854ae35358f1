"""The page: landmarks, headings in order, tables with named lines, colours that can be read."""

from __future__ import annotations

from itertools import pairwise

import pytest

from helpers.html_tree import Tree
from zerosum.report.document import Bars, Document, Intervals, Section, Table, Text
from zerosum.report.page import render
from zerosum.report.style import CSS, DARK, GROUND, LIGHT, TEXT


def document(*blocks: object) -> Document:
    sections = (Section("one", "One", blocks), Section("two", "Two", (Text(("said",), "warning"),)))  # type: ignore[arg-type]
    return Document("s", "mean", "now", "t", "u", "k", "p", "q", "r", {}, {}, (), {}, (), sections)


TABLE = Table("Numbers", ("name", "value", "said"), (("a", "1.5", "x"), ("b", "–", "y" * 64)))
PAGE = Tree(
    render(
        document(Text(("p",)), Text(("a", "b"), "points"), TABLE, Table("More", ("a",), (("b",),), folded=True),
                 Bars("A", "about", ("w",), (1.0,), small=True), Bars("B", "about", ("w",), (1.0,), small=True),
                 Intervals("C", "about", ())),
        "d" * 64,
    ).decode() + "</body></html>"
)  # fmt: skip


def test_page_has_landmarks_and_headings_in_order() -> None:
    tags = [tag for tag, _ in PAGE.seen]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(landmark) == 1
    levels = [int(tag[1]) for tag in tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    (html,) = PAGE.of("html")
    assert html["lang"] == "en"


def test_page_ids_are_unique_and_references_resolve() -> None:
    ids = [each["id"] for _, each in PAGE.seen if "id" in each]
    assert len(ids) == len(set(ids))
    for _, each in PAGE.seen:
        for name in (each.get("aria-labelledby") or "").split():
            assert name in ids
        if (each.get("href") or "").startswith("#"):
            assert (each["href"] or "")[1:] in ids


def test_page_tables_have_scoped_headings_and_keyboard_scrolling() -> None:
    heads = PAGE.of("th")
    assert {each["scope"] for each in heads} == {"row", "col"}
    assert [each.get("class") for each in heads if each["scope"] == "col"][:3] == [None, "number", None]
    frames = [each for each in PAGE.of("div") if each.get("class") == "scroll"]
    assert len(frames) == 2
    assert all(each["tabindex"] == "0" and each["role"] == "region" for each in frames)
    assert any(each.get("class") == "long" for each in PAGE.of("td"))


def test_page_small_pictures_are_side_by_side() -> None:
    assert [each.get("class") for each in PAGE.of("div")].count("side") == 1
    assert all(each["role"] == "img" for each in PAGE.of("svg"))


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_page_colours_have_sufficient_contrast(colours: dict[str, str]) -> None:
    for text in TEXT:
        for ground in GROUND:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for at in range(6):  # lines and discs: 3 to 1
        assert contrast(colours[f"s{at}"], colours["page"]) >= 3
    for sign in ("positive", "negative"):  # numbers on the strongest cell of a grid
        cell = mixed(colours[sign], colours["page"], 0.45)
        assert contrast(colours["ink"], cell) >= 4.5


def test_page_style_sheet_loads_nothing_and_has_dark_scheme() -> None:
    assert "url(" not in CSS
    assert "@import" not in CSS
    assert "prefers-color-scheme:dark" in CSS
    assert "@media print" in CSS
    assert "</" not in CSS


def mixed(colour: str, ground: str, share: float) -> str:
    pairs = zip(_parts(colour), _parts(ground), strict=True)
    return "#" + "".join(f"{round(255 * (share * a + (1 - share) * b)):02x}" for a, b in pairs)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _parts(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]


def _luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _parts(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
