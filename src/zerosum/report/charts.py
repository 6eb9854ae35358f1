"""Charts of a report: matplotlib figures, written as SVG.

A chart has the light colours of the style sheet. `DARK_RULES` of `zerosum.report.style` replaces them on a dark screen.
Every chart has a title and a description for screen readers. Labels that are too long are cut; the table beside a chart
has them in full. Equal documents give equal bytes with one version of matplotlib.

Lengths are in points of the view box, and were chosen by hand. They are measured from the top left corner, as in SVG.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from markupsafe import Markup

from zerosum.kernel.names import visible
from zerosum.report.document import Bars, Clouds, Curves, Grid, Intervals, Number, Picture, Plane, Slices
from zerosum.report.number_format import format_number, format_percent
from zerosum.report.style import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Width of a chart, and of a small one that is placed beside others.
WIDTH, SMALL_WIDTH = 400.0, 250.0
COLOURS = 6  # number of series colours in the style sheet
# Font sizes of labels and of ticks. The style sheet of the page enlarges both on narrow screens.
_LABEL_SIZE, _TICK_SIZE = 12.0, 11.0
_CHARACTER = 7.2  # approximate width of a character in a wide font
_ROW = 30.0  # height of one row of intervals
_SLANTED_DISTANCE = 20.0  # smallest distance of slanted labels
_LARGEST = 1e150  # larger magnitudes are drawn at the end of the axis; differences of larger values could overflow
_SMALLEST = 1e-150  # shortest axis; matplotlib cannot divide shorter ones
_LEVELS = 5  # levels of a brain slice on either side of 0

_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
# matplotlib's settings are global, so charts are drawn one at a time.
_mutex = threading.Lock()


def draw(picture: Picture, name: str) -> Markup:
    """A chart as an SVG element for a page. `name` is the prefix of its ids, which must be unique on a page."""
    root = chart(picture, name)
    _label(root, picture.title, picture.about, name)
    # ElementTree escapes all text.
    return Markup(ElementTree.tostring(root, "unicode"))  # noqa: S704


def chart(picture: Picture, name: str) -> ElementTree.Element:
    """A chart as an SVG tree with a view box, without title and description."""
    with _settings(name):
        figure = _figure(picture)
        # Nothing is outside of its axes, and clipping would need references within the file.
        for artist in figure.findobj():
            artist.set_clip_on(False)
        buffer = io.BytesIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314  # written by matplotlib
    _shorten(root, name)
    if picture.kind == "bars" and picture.small:
        root.set("class", "small")
    return root


def _label(root: ElementTree.Element, title: str, about: str, name: str) -> None:
    """Give an SVG tree a title and a description for screen readers."""
    for at, (tag, text) in enumerate((("title", title), ("desc", about))):
        element = ElementTree.Element(f"{{{_SVG}}}{tag}", {"id": f"{name}-{tag}"})
        element.text = visible(text)
        root.insert(at, element)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")


@contextmanager
def _settings(name: str) -> Iterator[None]:
    """matplotlib with its default settings and those of charts, whatever the user has configured."""
    from matplotlib import style

    ElementTree.register_namespace("", _SVG)
    own = {
        "svg.fonttype": "none",  # text stays text: it can be read aloud, and the page chooses its font
        "svg.hashsalt": name,
        "text.parse_math": False,  # names of columns may contain dollar signs
        "font.size": _LABEL_SIZE,
        "text.color": LIGHT["ink"],
        "lines.solid_capstyle": "butt",
        "path.simplify": False,
    }
    with _mutex, warnings.catch_warnings(), style.context(["default", own]):
        # Fonts of the reader's browser are used, so characters that are missing in matplotlib's do not matter.
        warnings.filterwarnings("ignore", "Glyph")
        yield


def _shorten(root: ElementTree.Element, name: str) -> None:
    """Remove what a page does not need from matplotlib's SVG, and make its ids unique on a page.

    Fonts are removed, because the page chooses them. Text in the size of ticks gets the class "tick".
    """
    # Size and font are those of the page; metadata and the style sheet of the file are not used.
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    for child in list(root):
        if child.tag.endswith("metadata") or child.find(f"{{{_SVG}}}style") is not None:
            root.remove(child)
    referenced = {each.get(_HREF, "")[1:] for each in root.iter() if each.get(_HREF)}
    for each in root.iter():
        each.text = each.text if (each.text or "").strip() else None
        each.tail = None
        if (own := each.attrib.pop("id", None)) in referenced:
            each.set("id", f"{name}-{own}")
        if reference := each.attrib.pop(_HREF, None):
            each.set("href", f"#{name}-{reference[1:]}")
        if each.tag.endswith("}text"):
            rules = [rule.strip() for rule in each.attrib.pop("style", "").split(";") if rule.strip()]
            each.set("style", "; ".join(rule for rule in rules if not rule.startswith("font")))
            if any(re.match(rf"font(-size)?: {_TICK_SIZE:g}px", rule) for rule in rules):
                each.set("class", "tick")
            if (each.get("transform") or "").startswith("rotate(-0 "):
                del each.attrib["transform"]


# ---- axes ----------------------------------------------------------------------------------------------------------


def _new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of this size."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), facecolor="none")


def _axes(figure: Figure, left: float, top: float, right: float, bottom: float) -> Axes:
    """Axes between these edges, without frame and tick marks."""
    width, height = 72 * figure.get_size_inches()
    axes = figure.add_axes(
        (left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height), facecolor="none"
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=_TICK_SIZE, labelcolor=LIGHT["muted"], pad=6)
    axes.set_axisbelow(True)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def _rows(axes: Axes, labels: Sequence[str], room: float) -> None:
    """Rows from the top, with labels at the left that are cut to a width of `room`."""
    axes.set_ylim(max(len(labels), 1), 0)
    axes.set_yticks([at + 0.5 for at in range(len(labels))], [_cut(label, room) for label in labels])
    axes.tick_params(axis="y", labelsize=_LABEL_SIZE, labelcolor=LIGHT["ink"], pad=10)


def _values(axes: Axes, texts: Iterable[str]) -> None:
    """Texts at the right of each row."""
    for at, text in enumerate(texts):
        axes.annotate(
            text,
            (1, at + 0.5),
            (6, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center_baseline",
        )


def _numbers(axis: Axis, text: Callable[[float], str]) -> None:
    """Ticks at round numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def tick(value: float, _position: int) -> str:
        # The locator's computed multiples have rounding errors, also at 0.
        low, high = axis.get_view_interval()
        return text(0.0 if abs(value) < 1e-9 * abs(high - low) else float(value))

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(tick))


def _number_tick(value: float) -> str:
    """Text of a tick."""
    return format_number(value, 3)


def limits(values: Iterable[Number], *, zero: bool = False, margin: float = 0.04) -> tuple[float, float]:
    """Ends of an axis that includes all values with a relative margin, and 0 if `zero`. There is no margin beyond 0.

    >>> limits([1.0, None, 2.0], zero=True)
    (0.0, 2.08)
    """
    known = [value for value in values if value is not None and abs(value) < _LARGEST] or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= _SMALLEST:
        return (low if zero else low - 0.5 * max(abs(low), 1.0)), high + 0.5 * max(abs(high), 1.0)
    room = margin * (high - low)
    return (low if zero and low == 0 else low - room), (high if zero and high == 0 else high + room)


def _within(value: Number, ends: tuple[float, float]) -> float:
    """A value limited to the ends of its axis; unknown values are NaN, which matplotlib leaves out."""
    return math.nan if value is None else min(max(value, ends[0]), ends[1])


def _label_width(labels: Sequence[str], most: float) -> float:
    """Width of the longest label, at most `most`."""
    return min(max((len(visible(label)) for label in labels), default=0) * _CHARACTER + 6, most)


def _cut(label: str, width: float) -> str:
    """The label with visible characters only, shortened to the width."""
    most, label = max(int(width / _CHARACTER), 2), visible(label)
    return label if len(label) <= most else label[: most - 1] + "…"


def _series_colour(at: int) -> str:
    """Colour of a series by its number."""
    return LIGHT[f"s{at % COLOURS}"]


@singledispatch
def _figure(picture: Picture) -> Figure:
    """The figure of a chart."""
    raise TypeError(f"{type(picture).__name__} is not a chart")


# ---- estimates with their intervals --------------------------------------------------------------------------------


@_figure.register(Intervals)
def _intervals(picture: Intervals) -> Figure:
    """Intervals in rows, each on its own axis, whose ends are written below it. A mark shows 0."""
    rows, labels = picture.rows, [row.label for row in picture.rows]
    left = _label_width(labels, 168.0)
    bottom = 8.0 + _ROW * max(len(rows), 1)
    figure = _new_figure(bottom + 8)
    axes = _axes(figure, left + 12, 8.0, WIDTH - 62, bottom)
    _rows(axes, labels, left)
    axes.set_xlim(0, 1)
    muted = LIGHT["muted"]
    tick: dict[str, Any] = {"va": "center_baseline", "fontsize": _TICK_SIZE, "color": muted}
    for at, row in enumerate(rows):
        y, ends = at + 0.5, limits((row.start, row.end), margin=0)
        zero, value, low, high, wide_low, wide_high = (
            (_within(each, ends) - ends[0]) / (ends[1] - ends[0])  # share of the row's axis
            for each in (0.0, row.value, row.low, row.high, row.wide_low, row.wide_high)
        )
        axes.hlines(y, 0, 1, muted, linewidth=1)
        axes.text(0, y + 0.42, format_number(row.start, 3), ha="left", **tick)
        axes.text(1, y + 0.42, format_number(row.end, 3), ha="right", **tick)
        if ends[0] < 0 < ends[1]:
            axes.vlines(zero, y - 0.2, y + 0.2, muted, linewidth=1)
        axes.hlines(y, wide_low, wide_high, LIGHT["accent"], linewidth=1.5)
        axes.hlines(y, low, high, LIGHT["accent"], linewidth=10, alpha=0.45)
        axes.plot(value, y, "o", color=LIGHT["ink"], markersize=5, markeredgewidth=0)
    _values(axes, (format_number(row.value) for row in rows))
    return figure


# ---- bars ----------------------------------------------------------------------------------------------------------


@_figure.register(Bars)
def _bars(picture: Bars) -> Figure:
    """Bars, vertical or horizontal."""
    return _vertical_bars(picture) if picture.upright else _horizontal_bars(picture)


def _horizontal_bars(picture: Bars) -> Figure:
    """Bars in rows, with labels at the left and values at the right. Negative values have another colour."""
    width = SMALL_WIDTH if picture.small else WIDTH
    bottom = 4 + (19.0 if picture.small else 24.0) * max(len(picture.labels), 1)
    left = _label_width(picture.labels, width * 0.45)
    ends = limits((*picture.values, *picture.high, *picture.low, picture.whole), zero=True)
    figure = _new_figure(bottom + 4, width)
    axes = _axes(figure, left + 10, 4.0, width - 58, bottom)
    _rows(axes, picture.labels, left)
    axes.set_xlim(ends)
    places = [at + 0.5 for at in range(len(picture.labels))]
    lengths = [_within(value, ends) for value in picture.values]
    colours = [LIGHT["warm"] if (value or 0) < 0 else LIGHT["accent"] for value in picture.values]
    axes.barh(places, lengths, 0.75, color=colours)
    if picture.low and picture.high:
        low, high = ([_within(each, ends) for each in side] for side in (picture.low, picture.high))
        axes.hlines(places, low, high, LIGHT["ink"], linewidth=1.5)
    if ends[0] < 0:
        axes.axvline(0, color=LIGHT["muted"], linewidth=1, linestyle=(0, (3, 3)))
    _values(axes, (_bar_text(picture, value) for value in picture.values))
    return figure


def _bar_text(picture: Bars, value: Number) -> str:
    """Value of a bar as text."""
    return format_percent(value) if picture.percent else format_number(value, 3)


def _vertical_bars(picture: Bars) -> Figure:
    """Bars in columns. Labels are slanted if they are too long, and thinned out if they are too dense."""
    count, bottom, left = max(len(picture.labels), 1), 190.0, 48.0
    wide = (WIDTH - 6 - left) / count
    labels = [_cut(label, 90) for label in picture.labels]
    longest = max(map(len, labels), default=0)
    slanted = longest * _CHARACTER > wide - 4
    every = max(1, math.ceil(_SLANTED_DISTANCE / wide)) if slanted else 1
    ends = limits((*picture.values, *picture.high, *picture.low), zero=True)
    figure = _new_figure(bottom + (22 if not slanted else 16 + 0.75 * _CHARACTER * longest))
    axes = _axes(figure, left, 10.0, WIDTH - 6, bottom)
    axes.set_xlim(0, count)
    axes.set_ylim(ends)
    _numbers(axes.yaxis, format_percent if picture.percent else _number_tick)
    axes.grid(axis="y", color=LIGHT["rule"], linewidth=1)
    places = [at + 0.5 for at in range(len(labels))]
    axes.bar(places, [_within(value, ends) for value in picture.values], 0.8, color=LIGHT["accent"])
    if picture.low and picture.high:
        low, high = ([_within(each, ends) for each in side] for side in (picture.low, picture.high))
        axes.vlines(places, low, high, LIGHT["ink"], linewidth=1.5)
    axes.set_xticks(places[::every], labels[::every])
    if slanted:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    return figure


# ---- curves --------------------------------------------------------------------------------------------------------


@_figure.register(Curves)
def _curves(picture: Curves) -> Figure:
    """Curves with bands, and a legend below if there are several."""
    several = len(picture.series) > 1
    top, bottom, left, right = 22.0, 210.0, 48.0, WIDTH - 10
    across = limits(x for each in picture.series for x in each.x)
    heights = [y for each in picture.series for y in (*each.y, *each.low, *each.high)]
    up = limits([*heights, 1.0] if picture.percent else heights, zero=True)
    figure = _new_figure(bottom + 40 + (18 * len(picture.series) if several else 0))
    axes = _plane_axes(figure, (left, top, right, bottom), across, up, picture.x_label, picture.y_label)
    if picture.percent:
        _numbers(axes.yaxis, format_percent)
    for at, each in enumerate(picture.series):
        colour, steps = _series_colour(at), each.style == "steps"
        if each.low and each.high:
            rows = [row for row in zip(each.x, each.low, each.high, strict=True) if None not in row]
            x = [_within(row[0], across) for row in rows]
            low, high = ([_within(row[side], up) for row in rows] for side in (1, 2))
            # A band over one place has no area; a line shows its extent.
            if len(rows) == 1:
                axes.vlines(x, low, high, colour, linewidth=2)
            elif rows:
                step: Literal["post"] | None = "post" if steps else None
                axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, step=step)
        points = [(_within(x, across), _within(y, up)) for x, y in zip(each.x, each.y, strict=True)]
        points = [point for point in points if not any(map(math.isnan, point))]
        line = {"line": "-", "steps": "-", "dashed": (0, (2.5, 2)), "dots": ""}[each.style]
        marker = "o" if each.style in ("dots", "line") and len(points) <= 40 else ""
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=colour,
            linewidth=2,
            linestyle=line,
            drawstyle="steps-post" if steps else "default",
            marker=marker,
            markersize=6,
            markeredgewidth=0,
            label=_cut(each.label, WIDTH - left - 40),
        )
    if several:
        _, height = 72 * figure.get_size_inches()
        figure.legend(
            *axes.get_legend_handles_labels(),
            loc="upper left",
            bbox_to_anchor=(left / WIDTH, 1 - (bottom + 38) / height),
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=1.8,
            labelspacing=0.35,
        )
    return figure


def _plane_axes(
    figure: Figure,
    edges: tuple[float, float, float, float],
    across: tuple[float, float],
    up: tuple[float, float],
    x_label: str,
    y_label: str,
) -> Axes:
    """Axes with numbers on both sides.

    Parameters
    ----------
    figure : Figure
        The figure.
    edges : tuple of float
        Left, top, right and bottom edge.
    across, up : tuple of float
        Ends of the horizontal and of the vertical axis.
    x_label, y_label : str
        Labels, at the right below the axes and at the left above them.
    """
    axes = _axes(figure, *edges)
    axes.set_xlim(across)
    axes.set_ylim(up)
    for axis in (axes.xaxis, axes.yaxis):
        _numbers(axis, _number_tick)
    axes.grid(axis="y", color=LIGHT["rule"], linewidth=1)
    axes.spines["bottom"].set(visible=True, color=LIGHT["muted"], linewidth=1)
    tick: dict[str, Any] = {"fontsize": _TICK_SIZE, "color": LIGHT["muted"]}
    axes.annotate(_cut(y_label, 200), (0, 1), (0, 10), xycoords="axes fraction", textcoords="offset points", **tick)
    axes.annotate(
        _cut(x_label, 200), (1, 0), (0, -32), xycoords="axes fraction", textcoords="offset points", ha="right", **tick
    )
    return axes


# ---- grids, clouds, brains -----------------------------------------------------------------------------------------


@_figure.register(Grid)
def _grid(picture: Grid) -> Figure:
    """Heat map. The opacity of a cell grows with the magnitude; negative values have another colour."""
    from matplotlib.patches import Rectangle

    left, count = _label_width(picture.rows, 120.0), max(len(picture.columns), 1)
    columns = [_cut(label, 100) for label in picture.columns]
    longest = max(map(len, columns), default=0)
    right = WIDTH - 2
    slanted = longest * _CHARACTER > (right - left - 8) / count - 2
    if slanted:  # slanted labels lean to the right, and need room there
        lean = 0.72 * _CHARACTER * longest
        right -= max(lean - (right - left - 8) / count / 2, 0.0)
    wide = (right - left - 8) / count
    high = 28.0 if len(picture.rows) <= 12 else max(12.0, 336.0 / len(picture.rows))
    top = 14 + 0.72 * _CHARACTER * longest if slanted else 20.0
    bottom = top + high * max(len(picture.rows), 1)
    figure = _new_figure(bottom + 6)
    axes = _axes(figure, left + 8, top, right, bottom)
    _rows(axes, picture.rows, left)
    axes.tick_params(axis="y", pad=8)
    axes.set_xlim(0, count)
    axes.xaxis.tick_top()
    axes.set_xticks([at + 0.5 for at in range(len(columns))], columns)
    if slanted:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set(ha="left", va="baseline", rotation_mode="anchor")
    largest = max((abs(value) for line in picture.values for value in line if value is not None), default=0.0) or 1.0
    numbered = wide >= 34 and high >= 20
    for r, line in enumerate(picture.values):
        for c, value in enumerate(line):
            # At most 0.45, so that numbers can be read on every cell.
            weight = 0.0 if value is None else 0.45 * abs(value) / largest
            colour = LIGHT["warm"] if (value or 0) < 0 else LIGHT["accent"]
            size = 1 - 1.5 / wide, 1 - 1.5 / high
            axes.add_patch(Rectangle((c, r), *size, facecolor=colour, alpha=round(weight, 2), edgecolor="none"))
            if numbered:
                text = format_number(value, 3 if wide > 44 else 2)
                axes.text(c + 0.5, r + 0.5, text, ha="center", va="center_baseline")
    return figure


@_figure.register(Clouds)
def _clouds(picture: Clouds) -> Figure:
    """Clusters as discs whose area grows with the share, with ellipses for their extent."""
    across, up = limits(picture.x_range, margin=0), limits(picture.y_range, margin=0)
    left, top, right, bottom = edges = 48.0, 22.0, WIDTH - 10, 240.0
    figure = _new_figure(bottom + 40)
    axes = _plane_axes(figure, edges, across, up, picture.x_label, picture.y_label)
    point_x, point_y = (across[1] - across[0]) / (right - left), (up[1] - up[0]) / (bottom - top)
    for at, each in enumerate(picture.clouds):
        if each.x is None or each.y is None:
            continue
        x, y, colour = _within(each.x, across), _within(each.y, up), _series_colour(at)
        radius = 4 if each.share is None else 4 + 10 * max(each.share, 0.0) ** 0.5
        above = radius * point_y
        if each.x_reach and each.y_reach:
            # An ellipse that reaches beyond the axes is flattened at their ends.
            turns = [2 * math.pi * turn / 64 for turn in range(64)]
            ring_x = [_within(each.x + min(each.x_reach, _LARGEST) * math.cos(turn), across) for turn in turns]
            ring_y = [_within(each.y + min(each.y_reach, _LARGEST) * math.sin(turn), up) for turn in turns]
            axes.fill(ring_x, ring_y, facecolor=(colour, 0.14), edgecolor=colour, linewidth=1)
            above = max(above, max(ring_y) - y)
        axes.plot(x, y, "o", color=colour, markersize=2 * radius, markeredgewidth=0)
        text = _cut(each.label, 90) + ("" if each.share is None else f", {format_percent(each.share)}")
        half = len(text) * _CHARACTER / 2 * point_x
        # Labels stay within the axes. Their ground is half transparent, so that they can be read on ellipses.
        axes.text(
            min(max(x, across[0] + half), across[1] - half),
            min(y + above + 5 * point_y, up[1] - 6 * point_y),
            text,
            ha="center",
            zorder=3,
            bbox={"facecolor": LIGHT["page"], "edgecolor": "none", "alpha": 0.7, "pad": 1},
        )
    return figure


@_figure.register(Slices)
def _slices(picture: Slices) -> Figure:
    """Brain slices side by side at a common scale."""
    wide = (WIDTH - 8.0 * (len(picture.planes) - 1)) / max(len(picture.planes), 1)
    sizes = [max((len(line) for line in plane.cells), default=1) or 1 for plane in picture.planes]
    cell = min((wide / size for size in sizes), default=1.0)
    heights = [max(cell * len(plane.cells) * (plane.stretch or 1.0), 1.0) for plane in picture.planes]
    height = max(heights, default=1.0)
    figure = _new_figure(height + 20)
    for at, (plane, size, tall) in enumerate(zip(picture.planes, sizes, heights, strict=True)):
        left, top = (wide + 8) * at + (wide - cell * size) / 2, (height - tall) / 2
        axes = _axes(figure, left, top, left + cell * size, top + tall)
        axes.set_xlim(0, size)
        axes.set_ylim(max(len(plane.cells), 1), 0)
        _levels(axes, plane)
        x, y = ((wide + 8) * at + wide / 2) / WIDTH, 6 / (height + 20)
        figure.text(x, y, visible(plane.name), ha="center", fontsize=_TICK_SIZE, color=LIGHT["muted"])
    return figure


def _levels(axes: Axes, plane: Plane) -> None:
    """One path per level of a slice, made of horizontal runs of equal cells."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    boxes: dict[int, list[tuple[int, int]]] = {}
    for y, line in enumerate(plane.cells):
        x = 0
        for level, run in groupby(line):
            first, x = x, x + len(list(run))
            if level is not None:
                corners = [(first, y), (x, y), (x, y + 1), (first, y + 1), (first, y)]
                boxes.setdefault(max(-_LEVELS, min(level, _LEVELS)), []).extend(corners)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    # Strong levels are drawn over weak ones.
    for level in sorted(boxes, key=abs):
        path = Path(boxes[level], codes * (len(boxes[level]) // len(codes)))
        colour = LIGHT["head" if level == 0 else "accent" if level > 0 else "warm"]
        opacity = 1.0 if level == 0 else 0.15 + 0.17 * abs(level)
        axes.add_patch(PathPatch(path, facecolor=colour, alpha=round(opacity, 2), edgecolor="none"))
