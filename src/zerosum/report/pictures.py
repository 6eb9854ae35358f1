"""SVG plots of a report, drawn from a document's numbers and coloured by the page's style sheet.

Every plot has a title and a description for screen readers. Labels that are too long are cut; the table below a plot
has them in full. Lengths are in units of the view box, and were chosen by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import singledispatch

from zerosum.kernel.markup import Html, element
from zerosum.report.document import Bars, Clouds, Curves, Grid, Interval, Intervals, Picture, Plane, Slices
from zerosum.report.scales import Scale, percent, shown, spread, ticks

# Width of the view box.
WIDTH = 400.0
COLOURS = 6  # number of series colours in the style sheet
_CHARACTER = 7.2  # approximate width of a character in a wide font
# Height of one row of intervals.
_ROW = 30.0
_APART = 20.0  # smallest distance of slanted labels


def draw(picture: Picture, name: str) -> Html:
    """A plot as an SVG element. `name` is the prefix of its ids, which must be unique on a page."""
    height, parts = drawn(picture)
    title = element("title", picture.title, id=f"{name}-title")
    about = element("desc", picture.about, id=f"{name}-about")
    width = _wide(picture)
    return element(
        "svg",
        title,
        about,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-about",
        class_="small" if width < WIDTH else None,
    )


def _wide(picture: Picture) -> float:
    """Width of the view box of a plot."""
    return 250.0 if isinstance(picture, Bars) and picture.small else WIDTH


@singledispatch
def drawn(picture: Picture) -> tuple[float, list[Html]]:
    """Height and elements of a plot."""
    raise TypeError(f"{type(picture).__name__} is no picture")


# ---- estimates with their intervals ------------------------------------------------------------------------------


@drawn.register
def _(picture: Intervals) -> tuple[float, list[Html]]:
    """Intervals in rows."""
    left = _label_width([row.label for row in picture.rows], 168.0)
    start, end, parts = left + 12, WIDTH - 62, []
    common = None
    if picture.shared:
        places = [each for row in picture.rows for each in (row.value, *_ends(row))]
        common = Scale.over(places, start, end, zero=True)
    height = 8.0 + _ROW * len(picture.rows) + 24
    if common is not None:
        parts += list(_below(common, 8.0, height - 24))
        if common.low < 0 < common.high:
            parts.append(_line(common(0), 8.0, common(0), height - 24, "zero"))
    for at, row in enumerate(picture.rows):
        y = 8 + _ROW * (at + 0.5)
        low, high = spread((row.start, row.end))
        scale = common or Scale(low, high, start, end)
        parts.append(_text(left, y + 4, _cut(row.label, left), "end"))
        if common is None:
            parts.append(_line(start, y, end, y, "axis"))
            for place, value, side in ((start, row.start, "start"), (end, row.end, "end")):
                parts.append(_text(place, y + 14, shown(value, 3), side, "tick"))
            if low < 0 < high:
                parts.append(_line(scale(0), y - 6, scale(0), y + 6, "axis"))
        if row.wide_low is not None and row.wide_high is not None:
            parts.append(_line(scale(row.wide_low), y, scale(row.wide_high), y, "wide"))
        if row.low is not None and row.high is not None:
            parts.append(_line(scale(row.low), y, scale(row.high), y, "whisker"))
        if row.value is not None:
            parts.append(element("circle", cx=scale(row.value), cy=y, r=2.5, class_="dot"))
        parts.append(_text(WIDTH - 56, y + 4, shown(row.value), "start", "value"))
    return (height if common else height - 16), parts


def _ends(row: Interval) -> Sequence[float | None]:
    """Ends of the inner and outer interval."""
    return row.low, row.high, row.wide_low, row.wide_high


# ---- bars --------------------------------------------------------------------------------------------------------


@drawn.register
def _(picture: Bars) -> tuple[float, list[Html]]:
    """Bars, vertical or horizontal."""
    return _upright(picture) if picture.upright else _across(picture)


def _said(picture: Bars, value: float | None) -> str:
    """Value of a bar as text."""
    return percent(value) if picture.percent else shown(value, 3)


def _across(picture: Bars) -> tuple[float, list[Html]]:
    """Horizontal bars."""
    width = _wide(picture)
    row = 19.0 if picture.small else 24.0
    left = _label_width(picture.labels, width * 0.45)
    held = (*picture.values, *picture.high, *picture.low, picture.whole)
    scale = Scale.over(held, left + 10, width - 58, zero=True)
    parts = []
    for at, (label, value) in enumerate(zip(picture.labels, picture.values, strict=True)):
        y = 4 + row * at
        parts.append(_text(left, y + row / 2 + 4, _cut(label, left), "end"))
        # Negative values have another colour.
        parts.append(_box(scale(0), y + 3, scale(value), y + row - 3, "minus" if (value or 0) < 0 else "bar"))
        if picture.low and picture.high:
            parts.append(_line(scale(picture.low[at]), y + row / 2, scale(picture.high[at]), y + row / 2, "error"))
        parts.append(_text(width - 52, y + row / 2 + 4, _said(picture, value), "start", "value"))
    if scale.low < 0:
        parts.append(_line(scale(0), 2, scale(0), 4 + row * len(picture.labels), "zero"))
    return 8 + row * len(picture.labels), parts


def _upright(picture: Bars) -> tuple[float, list[Html]]:
    """Vertical bars. Labels are slanted if they are too long, and thinned out if they are too dense."""
    count, top, bottom, start = max(len(picture.labels), 1), 10.0, 190.0, 48.0
    scale = Scale.over((*picture.values, *picture.high, *picture.low), bottom, top, zero=True)
    parts = list(_beside(scale, start, WIDTH - 6, picture.percent))
    wide = (WIDTH - 6 - start) / count
    slanted = max((len(label) for label in picture.labels), default=0) * _CHARACTER > wide - 4
    # Labels are at least _APART apart; others are left out.
    every = max(1, math.ceil(_APART / wide)) if slanted else 1
    for at, (label, value) in enumerate(zip(picture.labels, picture.values, strict=True)):
        x = start + wide * at
        parts.append(_box(x + wide * 0.1, scale(0), x + wide * 0.9, scale(value), "bar"))
        if picture.low and picture.high:
            parts.append(_line(x + wide / 2, scale(picture.low[at]), x + wide / 2, scale(picture.high[at]), "error"))
        if at % every == 0:
            parts.append(_foot(x + wide / 2, bottom + 14, label, slanted))
    longest = max((len(_cut(label, 90)) for label in picture.labels), default=0)
    return bottom + (22 if not slanted else 16 + 0.75 * _CHARACTER * longest), parts


def _foot(x: float, y: float, label: str, slanted: bool) -> Html:
    """Label below a vertical bar."""
    turn = f"rotate(-45 {x:g} {y:g})" if slanted else None
    side = "end" if slanted else "middle"
    return element("text", _cut(label, 90), x=f"{x:g}", y=f"{y:g}", text_anchor=side, transform=turn, class_="tick")


# ---- curves ------------------------------------------------------------------------------------------------------


@drawn.register
def _(picture: Curves) -> tuple[float, list[Html]]:
    """Line plot with bands and a legend."""
    top, bottom, start, end = 22.0, 210.0, 48.0, WIDTH - 10
    across = Scale.over([x for each in picture.series for x in each.x], start, end)
    places = [y for each in picture.series for y in (*each.y, *each.low, *each.high)]
    up = Scale.over([*places, 1.0] if picture.percent else places, bottom, top, zero=True)
    parts = [*_beside(up, start, end, picture.percent), *_below(across, top, bottom, lines=False)]
    parts.append(_text(start, 12, picture.y_label, "start", "tick"))
    parts.append(_text(end, bottom + 32, picture.x_label, "end", "tick"))
    for at, each in enumerate(picture.series):
        colour, steps = f"s{at % COLOURS}", each.style == "steps"
        known = [(across(x), up(y)) for x, y in zip(each.x, each.y, strict=True) if x is not None and y is not None]
        if each.low and each.high:
            rows = zip(each.x, each.low, each.high, strict=True)
            band = [(across(x), up(a), up(b)) for x, a, b in rows if None not in (x, a, b)]
            if len(band) == 1:
                parts.append(_line(band[0][0], band[0][1], band[0][0], band[0][2], f"line {colour}"))
            there = _path([(x, a) for x, a, _ in band], steps)
            back = _path([(x, b) for x, _, b in band][::-1], steps, back=True).replace("M", "L", 1)
            parts.append(element("path", d=f"{there}{back}Z", class_=f"band {colour}"))
        if each.style != "dots":
            dashed = " dashed" if each.style == "dashed" else ""
            parts.append(element("path", d=_path(known, steps), class_=f"line {colour}{dashed}"))
        if each.style in ("dots", "line") and len(known) <= 40:
            parts += [element("circle", cx=x, cy=y, r=3, class_=f"point {colour}") for x, y in known]
    height = bottom + 40
    for at, each in enumerate(picture.series if len(picture.series) > 1 else ()):
        y = height + 18 * at + 6
        dashed = " dashed" if each.style == "dashed" else ""
        parts.append(_line(start, y, start + 22, y, f"line s{at % COLOURS}{dashed}"))
        parts.append(_text(start + 30, y + 4, _cut(each.label, WIDTH - start - 40), "start"))
    return height + (18 * len(picture.series) if len(picture.series) > 1 else 0), parts


def _path(places: Sequence[tuple[float, float]], steps: bool, *, back: bool = False) -> str:
    """SVG path through these points. With `steps` each value holds until the next point; `back` draws the steps from
    right to left."""
    words: list[str] = []
    for x, y in places:
        if words:
            # In steps the horizontal part comes first; on the way back the order is reversed.
            words.append((f"V{y:g}H{x:g}" if back else f"H{x:g}V{y:g}") if steps else f"L{x:g} {y:g}")
        else:
            words.append(f"M{x:g} {y:g}")
    return "".join(words)


# ---- grids, clouds, brains ---------------------------------------------------------------------------------------


@drawn.register
def _(picture: Grid) -> tuple[float, list[Html]]:
    """Heat map."""
    left, count = _label_width(picture.rows, 120.0), max(len(picture.columns), 1)
    wide = (WIDTH - left - 10) / count
    high = 28.0 if len(picture.rows) <= 12 else max(12.0, 336.0 / len(picture.rows))
    slanted = max((len(label) for label in picture.columns), default=0) * _CHARACTER > wide - 2
    if slanted:  # slanted labels need room to the right
        leans = [0.72 * _CHARACTER * len(_cut(label, 100)) for label in picture.columns]
        spill = max(lean - wide * (count - at - 0.5) for at, lean in enumerate(leans))
        wide -= max(spill, 0.0) / count
    longest = max((len(_cut(label, 100)) for label in picture.columns), default=0)
    top = 20.0 if not slanted else 14 + 0.72 * _CHARACTER * longest
    largest = max((abs(value) for line in picture.values for value in line if value is not None), default=0.0) or 1.0
    parts = []
    for at, label in enumerate(picture.columns):
        x = left + 8 + wide * (at + 0.5)
        turn = f"rotate(-45 {x:g} {top - 6:g})" if slanted else None
        side = "start" if slanted else "middle"
        parts.append(
            element(
                "text", _cut(label, 100), x=f"{x:g}", y=f"{top - 6:g}", text_anchor=side, transform=turn, class_="tick"
            )
        )
    numbered = wide >= 34 and high >= 20
    for r, (label, line) in enumerate(zip(picture.rows, picture.values, strict=True)):
        y = top + high * r
        parts.append(_text(left, y + high / 2 + 4, _cut(label, left), "end"))
        for c, value in enumerate(line):
            x = left + 8 + wide * c
            weight = 0.0 if value is None else 0.45 * abs(value) / largest
            kind = "cell minus" if (value or 0) < 0 else "cell"
            place = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{wide - 1.5:g}", "height": f"{high - 1.5:g}"}
            parts.append(element("rect", class_=kind, fill_opacity=f"{weight:.2f}", **place))
            if numbered:
                parts.append(_text(x + wide / 2, y + high / 2 + 4, shown(value, 3 if wide > 44 else 2), "middle"))
    return top + high * len(picture.rows) + 6, parts


@drawn.register
def _(picture: Clouds) -> tuple[float, list[Html]]:
    """Clusters as discs whose area grows with the share, with ellipses for their extent."""
    top, bottom, start, end = 22.0, 240.0, 48.0, WIDTH - 10
    across = Scale(*spread(picture.x_range), start, end)
    up = Scale(*spread(picture.y_range), bottom, top)
    parts = [*_beside(up, start, end), *_below(across, top, bottom, lines=False)]
    parts.append(_text(start, 12, _cut(picture.y_label, 200), "start", "tick"))
    parts.append(_text(end, bottom + 32, _cut(picture.x_label, 200), "end", "tick"))
    named: list[Html] = []
    for at, each in enumerate(picture.clouds):
        if each.x is None or each.y is None:
            continue
        x, y, colour = across(each.x), up(each.y), f"s{at % COLOURS}"
        radius = 4 if each.share is None else 4 + 10 * max(each.share, 0.0) ** 0.5
        above = radius
        if each.x_reach and each.y_reach:
            rx, ry = (across(each.x + each.x_reach) - x), (y - up(each.y + each.y_reach))
            parts.append(element("ellipse", cx=x, cy=y, rx=f"{rx:g}", ry=f"{ry:g}", class_=f"cloud {colour}"))
            above = max(radius, ry)
        parts.append(element("circle", cx=x, cy=y, r=f"{radius:g}", class_=f"point {colour}"))
        label = _cut(each.label, 90) + ("" if each.share is None else f", {percent(each.share)}")
        half = len(label) * _CHARACTER / 2
        centre = min(max(x, start + half), end - half)
        named.append(_text(centre, max(y - above - 5, top + 6), label, "middle", "over"))
    parts += named  # labels are drawn last, above all ellipses
    return bottom + 40, parts


@drawn.register
def _(picture: Slices) -> tuple[float, list[Html]]:
    """Brain slices side by side at a common scale."""
    wide = (WIDTH - 8.0 * (len(picture.planes) - 1)) / max(len(picture.planes), 1)
    sizes = [max((len(line) for line in plane.cells), default=1) or 1 for plane in picture.planes]
    cell = min((wide / size for size in sizes), default=1.0)
    heights = [cell * len(plane.cells) * (plane.stretch or 1.0) for plane in picture.planes]
    height, parts = max(heights, default=0.0), []
    for at, plane in enumerate(picture.planes):
        x = (wide + 8) * at + (wide - cell * sizes[at]) / 2
        y = (height - heights[at]) / 2
        turned = f"translate({x:.2f} {y:.2f}) scale({cell:.4f} {cell * (plane.stretch or 1.0):.4f})"
        parts.append(element("g", *_levels(plane), transform=turned))
        parts.append(_text((wide + 8) * at + wide / 2, height + 14, plane.name, "middle", "tick"))
    return height + 20, parts


def _levels(plane: Plane) -> Iterator[Html]:
    """One path per level of a slice, made of horizontal runs. The background is first."""
    runs: dict[int, list[str]] = {}
    for y, line in enumerate(plane.cells):
        x = 0
        while x < len(line):
            level, first = line[x], x
            while x < len(line) and line[x] == level:
                x += 1
            if level is not None:
                runs.setdefault(max(-5, min(level, 5)), []).append(f"M{first} {y}h{x - first}v1h-{x - first}z")
    # Strong levels are drawn over weak ones.
    for level in sorted(runs, key=abs):
        kind = "head" if level == 0 else "plus" if level > 0 else "minus"
        opacity = None if level == 0 else f"{0.15 + 0.17 * abs(level):.2f}"
        yield element("path", d="".join(runs[level]), class_=kind, fill_opacity=opacity)


# ---- drawing primitives ------------------------------------------------------------------------------------------


def _text(x: float, y: float, words: str, side: str = "start", kind: str | None = None) -> Html:
    """SVG text."""
    return element("text", words, x=f"{x:g}", y=f"{y:g}", text_anchor=side, class_=kind)


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> Html:
    """SVG line."""
    return element("line", x1=f"{x:g}", y1=f"{y:g}", x2=f"{to_x:g}", y2=f"{to_y:g}", class_=kind)


def _box(x: float, y: float, to_x: float, to_y: float, kind: str) -> Html:
    """SVG rectangle between two corners in any order."""
    place = {"x": f"{min(x, to_x):g}", "y": f"{min(y, to_y):g}"}
    return element("rect", width=f"{abs(to_x - x):g}", height=f"{abs(to_y - y):g}", class_=kind, **place)


def _below(scale: Scale, top: float, bottom: float, *, lines: bool = True) -> Iterator[Html]:
    """Horizontal axis with ticks."""
    yield _line(scale.start, bottom, scale.end, bottom, "axis")
    for value in ticks(scale.low, scale.high):
        if lines:
            yield _line(scale(value), top, scale(value), bottom, "guide")
        yield _text(scale(value), bottom + 16, shown(value, 3), "middle", "tick")


def _beside(scale: Scale, start: float, end: float, share: bool = False) -> Iterator[Html]:
    """Vertical axis with ticks and guide lines."""
    for value in ticks(scale.low, scale.high):
        yield _line(start, scale(value), end, scale(value), "guide")
        yield _text(start - 6, scale(value) + 4, percent(value) if share else shown(value, 3), "end", "tick")


def _label_width(labels: Sequence[str], most: float) -> float:
    """Width of the longest label, at most `most`."""
    return min(max((len(label) for label in labels), default=0) * _CHARACTER + 6, most)


def _cut(label: str, width: float) -> str:
    """The label, shortened to the width."""
    most = max(int(width / _CHARACTER), 2)
    return label if len(label) <= most else label[: most - 1] + "…"
