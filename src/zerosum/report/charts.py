"""Charts of a report: matplotlib figures, written as SVG.

A chart has the light colours of the style sheet. `DARK_RULES` of `zerosum.report.style` replaces them on a dark screen.
Every chart has a title and a description for screen readers. Long labels continue on further lines. Equal documents
give equal bytes with one version of matplotlib.

Lengths are in points of the view box, and were chosen by hand. matplotlib's layout makes room for labels.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from markupsafe import Markup

from zerosum.errors import BadParameter
from zerosum.kernel.names import visible
from zerosum.report.document import Bars, Clouds, Curves, Forest, Grid, Intervals, Number, Picture, Plane, Slices
from zerosum.report.number_format import format_number, format_percent
from zerosum.report.style import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Width of a chart, of a small one that is placed beside others, and of one with text at both sides.
WIDTH, SMALL_WIDTH, WIDE = 400.0, 250.0, 560.0
PICTURE_FORMATS = ("svg", "pdf", "png")
COLOURS = 6  # number of series colours in the style sheet
# Font sizes of labels and of ticks for the layout: those of the page on narrow screens, which are the largest.
_LABEL_SIZE, _TICK_SIZE = 13.0, 12.0
_CHARACTER = 7.2  # approximate width of a character in a wide font, to decide whether labels are slanted
# Longest lines of labels in characters: of rows, of slanted columns, and of columns and small charts.
_LONGEST_LABEL, _LONGEST_SLANTED, _LONGEST_SHORT = 24, 48, 13
_MOST_LINES = 4  # lines of a label
_LINE = 16.0  # height of a line of text
_ROW = 30.0  # height of one row of intervals
_FOREST_ROW = 24.0  # height of one row of a forest plot
_MOST_COUNTS = 6  # numbers in a row below the axis
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
        # Without date and program the same document gives the same bytes, so that a reader can render the page again
        # and compare (`zerosum.report.verify`).
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314  # written by matplotlib
    _shorten(root, name)
    if picture.kind == "bars" and picture.small:
        root.set("class", "small")
    if picture.kind == "forest":
        root.set("class", "wide")
    return root


def picture_file(picture: Picture, suffix: str) -> bytes:
    """A chart as a file for a paper, without title: vectors (svg, pdf), or 300 dots per inch (png).

    Parameters
    ----------
    picture : Picture
        The chart.
    suffix : {"svg", "pdf", "png"}
        Format of the file. Text is outlines in SVG and TrueType in PDF, so that it looks the same everywhere.

    Raises
    ------
    BadParameter
        If there is no such format.
    """
    if suffix not in PICTURE_FORMATS:
        raise BadParameter(f"a picture is a file that ends with {', '.join(PICTURE_FORMATS)}, got {suffix!r}")
    import matplotlib

    with _settings("picture"), matplotlib.rc_context({"svg.fonttype": "path", "pdf.fonttype": 42}):
        figure = _figure(picture)
        figure.set_facecolor("white")
        buffer = io.BytesIO()
        # Without date and program the same picture gives the same bytes.
        metadata = {"Date": None} if suffix == "svg" else {"CreationDate": None} if suffix == "pdf" else {}
        figure.savefig(buffer, format=suffix, dpi=300, metadata=metadata)
    return buffer.getvalue()


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
        "svg.fonttype": "none",  # text stays text: screen readers read it, and the page chooses its font
        # Ids of elements are random without a salt.
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
    # Only ids that something refers to are kept: matplotlib gives one to every group.
    referenced = {each.get(_HREF, "")[1:] for each in root.iter() if each.get(_HREF)}
    for each in root.iter():
        each.text = each.text if (each.text or "").strip() else None
        each.tail = None
        if (own := each.attrib.pop("id", None)) in referenced:
            each.set("id", f"{name}-{own}")
        if reference := each.attrib.pop(_HREF, None):
            each.set("href", f"#{name}-{reference[1:]}")
        if path := each.get("d"):
            # Two decimals are finer than a pixel.
            path = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), path)
            each.set("d", re.sub(r"\s*([A-Za-z])\s*", r"\1", path))
        if each.tag.endswith("}text"):
            rules = [rule.strip() for rule in each.attrib.pop("style", "").split(";") if rule.strip()]
            each.set("style", "; ".join(rule for rule in rules if not rule.startswith("font")))
            if any(re.match(rf"font(-size)?: {_TICK_SIZE:g}px", rule) for rule in rules):
                each.set("class", "tick")
            # matplotlib writes a rotation by 0 degrees for upright text.
            if (each.get("transform") or "").startswith("rotate(-0 "):
                del each.attrib["transform"]


# ---- axes ----------------------------------------------------------------------------------------------------------


def _figure_of(height: float, width: float = WIDTH, columns: Sequence[float] = (1,)) -> tuple[Figure, list[Axes]]:
    """A figure with axes side by side, without frames and tick marks.

    Parameters
    ----------
    height, width : float
        Size in points.
    columns : sequence of float
        Relative widths of the axes.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=2 / 72, h_pad=2 / 72, wspace=0, hspace=0)  # makes room for labels
    # matplotlib measures figures in inches of 72 points. `Figure` is used without pyplot, whose figures are global.
    figure = Figure(figsize=(width / 72, height / 72), facecolor="none", layout=layout)
    panels = list(figure.subplots(1, len(columns), width_ratios=columns, squeeze=False)[0])
    for axes in panels:
        axes.set_facecolor("none")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=_TICK_SIZE, labelcolor=LIGHT["muted"], pad=6)
        axes.set_axisbelow(True)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure, panels


def _rows(axes: Axes, labels: Sequence[str], most: int = _LONGEST_LABEL) -> None:
    """Rows from the top, with labels at the left.

    Parameters
    ----------
    axes : Axes
        The axes; row number `at` lies between y = at and at + 1.
    labels : sequence of str
        One label for each row.
    most : int
        Longest line of a label in characters.
    """
    # Ends in this order, so that y grows downwards as in a table.
    axes.set_ylim(max(len(labels), 1), 0)
    axes.set_yticks([at + 0.5 for at in range(len(labels))], [_wrapped(label, most) for label in labels])
    axes.tick_params(axis="y", labelsize=_LABEL_SIZE, labelcolor=LIGHT["ink"], pad=8)


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


def _columns(axes: Axes, labels: Sequence[str], slanted: bool, every: int = 1) -> None:
    """Labels of columns.

    Parameters
    ----------
    axes : Axes
        The axes; column number `at` lies between x = at and at + 1.
    labels : sequence of str
        One label for each column.
    slanted : bool
        Whether the labels are too long to stand side by side.
    every : int
        Distance of the columns that get a label: all, or every second, third and so on.
    """
    axes.set_xlim(0, max(len(labels), 1))
    axes.set_xticks([at + 0.5 for at in range(len(labels))][::every], labels[::every])
    if slanted:
        axes.tick_params(axis="x", labelrotation=45)
        # A slanted label is anchored at the end that is next to its column.
        above = axes.xaxis.get_ticks_position() == "top"
        for label in axes.get_xticklabels():
            label.set(ha="left" if above else "right", va="baseline" if above else "top", rotation_mode="anchor")


def _slant(labels: Sequence[str], width: float) -> tuple[list[str], bool, float]:
    """How the labels of columns are drawn.

    Parameters
    ----------
    labels : sequence of str
        The labels.
    width : float
        Width of a column, points.

    Returns
    -------
    labels : list of str
        The labels, cut.
    slanted : bool
        Whether they are wider than a column.
    height : float
        Height that they need, points; sin 45° = 0.71 of the longest, if they are slanted.
    """
    cut = [_cut(label, _LONGEST_SLANTED) for label in labels]
    longest = _CHARACTER * max(map(len, cut), default=0)
    return cut, longest > width - 4, (0.72 * longest + 14 if longest > width - 4 else 20.0)


def _three_digits(value: Number) -> str:
    """A number with three significant digits."""
    return format_number(value, 3)


def _numbers(axis: Axis, text: Callable[[float], str] = _three_digits) -> None:
    """Ticks at round numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def tick(value: float, _position: int) -> str:
        # The locator's computed multiples have rounding errors, also at 0.
        low, high = axis.get_view_interval()
        return text(0.0 if abs(value) < 1e-9 * abs(high - low) else float(value))

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(tick))


def _plane(axes: Axes, across: tuple[float, float], up: tuple[float, float], x_label: str, y_label: str) -> None:
    """Axes with numbers on both sides.

    Parameters
    ----------
    axes : Axes
        The axes.
    across, up : tuple of float
        Their ends, horizontal and vertical.
    x_label, y_label : str
        What they show.
    """
    axes.set(xlim=across, ylim=up)
    _numbers(axes.xaxis)
    _numbers(axes.yaxis)
    axes.grid(axis="y", color=LIGHT["rule"], linewidth=1)
    axes.spines["bottom"].set(visible=True, color=LIGHT["muted"], linewidth=1)
    title, below = (_wrapped(label, 2 * _LONGEST_LABEL) for label in (y_label, x_label))
    axes.set_title(title, loc="left", fontsize=_TICK_SIZE, color=LIGHT["muted"])
    axes.set_xlabel(below, loc="right", fontsize=_TICK_SIZE, color=LIGHT["muted"])


def limits(values: Iterable[Number], *, zero: bool = False, margin: float = 0.04) -> tuple[float, float]:
    """Ends of an axis that includes all values with a relative margin. There is no margin beyond 0.

    Parameters
    ----------
    values : iterable of float or None
        Values to include; None and magnitudes above 1e150 are left out.
    zero : bool
        Whether 0 is included.
    margin : float
        Share of the length of the axis, added at either end.

    >>> limits([1.0, None, 2.0], zero=True)
    (0.0, 2.08)
    """
    known = [value for value in values if value is not None and abs(value) < _LARGEST] or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    # All values are equal: an axis of any positive length shows them.
    if high - low <= _SMALLEST:
        return (low if zero else low - 0.5 * max(abs(low), 1.0)), high + 0.5 * max(abs(high), 1.0)
    room = margin * (high - low)
    return (low if zero and low == 0 else low - room), (high if zero and high == 0 else high + room)


def _within(value: Number, ends: tuple[float, float]) -> float:
    """A value limited to the ends of its axis; unknown values are NaN, which matplotlib leaves out."""
    return math.nan if value is None else min(max(value, ends[0]), ends[1])


def _cut(label: str, most: int = _LONGEST_LABEL) -> str:
    """The label with visible characters only, shortened to `most` characters."""
    label = visible(label)
    return label if len(label) <= most else label[: most - 1] + "…"


def _wrapped(label: str, most: int = _LONGEST_LABEL) -> str:
    """The label with visible characters only, in lines of at most `most` characters.

    >>> _wrapped("resting blood pressure at admission")
    'resting blood pressure\\nat admission'
    """
    lines = textwrap.wrap(visible(label), most, drop_whitespace=True) or [""]
    return "\n".join([*lines[: _MOST_LINES - 1], _cut(" ".join(lines[_MOST_LINES - 1 :]), most)][: len(lines)])


def _line_count(labels: Iterable[str], most: int = _LONGEST_LABEL) -> int:
    """Largest number of lines of a label."""
    return max((_wrapped(label, most).count("\n") + 1 for label in labels), default=1)


def _series_colour(at: int) -> str:
    """Colour of a series by its number."""
    return LIGHT[f"s{at % COLOURS}"]


@singledispatch
def _figure(picture: Picture) -> Figure:
    """The figure of a chart."""
    raise TypeError(f"{type(picture).__name__} is not a chart")


@_figure.register(Intervals)
def _intervals(picture: Intervals) -> Figure:
    """Intervals in rows, each on its own axis, whose ends are written below it. A mark shows 0."""
    rows, muted = picture.rows, LIGHT["muted"]
    # A label of three lines is higher than a row.
    height = max(_ROW, _LINE * _line_count(row.label for row in rows) + 4)
    figure, (axes,) = _figure_of(height * max(len(rows), 1) + 8)
    _rows(axes, [row.label for row in rows])
    axes.set_xlim(0, 1)
    tick: dict[str, Any] = {"va": "center_baseline", "fontsize": _TICK_SIZE, "color": muted}
    for at, row in enumerate(rows):
        # Every row has its own scale, so values are drawn as shares of the row's axis, from 0 to 1.
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


@_figure.register(Forest)
def _forest(picture: Forest) -> Figure:
    """Estimates and intervals on one axis. An arrow stands at the end of an interval that leaves the axis."""
    rows = picture.rows
    height = max(_FOREST_ROW, _LINE * _line_count(row.label for row in rows) + 4)
    figure, (axes,) = _figure_of(height * max(len(rows), 1) + 44, WIDE)
    _rows(axes, [row.label for row in rows])
    ends = _forest_ends(picture)
    axes.set(xlim=ends, xscale="log" if picture.log else "linear")
    if picture.log:
        _log_numbers(axes.xaxis, ends)
    else:
        _numbers(axes.xaxis)
    axes.grid(axis="x", color=LIGHT["rule"], linewidth=1)
    axes.spines["bottom"].set(visible=True, color=LIGHT["muted"], linewidth=1)
    axes.set_xlabel(_wrapped(picture.x_label, 2 * _LONGEST_LABEL), fontsize=_TICK_SIZE, color=LIGHT["muted"])
    if picture.neutral is not None:
        axes.axvline(_within(picture.neutral, ends), color=LIGHT["muted"], linewidth=1, linestyle=(0, (3, 3)))
    for at, row in enumerate(rows):
        y = at + 0.5
        value, low, high, wide_low, wide_high = (
            _within(each, ends) for each in (row.value, row.low, row.high, row.wide_low, row.wide_high)
        )
        axes.hlines(y, wide_low, wide_high, LIGHT["accent"], linewidth=1.5)
        axes.hlines(y, low, high, LIGHT["accent"], linewidth=8, alpha=0.45)
        for end, beyond, marker in (
            (wide_low, _beyond(row.wide_low, ends) < 0, "<"),
            (wide_high, _beyond(row.wide_high, ends) > 0, ">"),
        ):
            if beyond:
                axes.plot(end, y, marker, color=LIGHT["accent"], markersize=6, markeredgewidth=0)
        # An estimate beyond the axis has its arrow only.
        if row.value is not None and not _beyond(row.value, ends):
            axes.plot(value, y, "s", color=LIGHT["ink"], markersize=5.5, markeredgewidth=0)
    _values(axes, (row.text for row in rows))
    return figure


def _forest_ends(picture: Forest) -> tuple[float, float]:
    """Ends of the axis of a forest plot: all estimates, and intervals up to three times the extent of the estimates.

    An interval much wider than the others would leave them no room; it ends with an arrow.
    """
    link: Callable[[float], float] = math.log if picture.log else float
    back: Callable[[float], float] = math.exp if picture.log else float
    held = [
        [link(each) for each in values if each is not None and abs(each) < _LARGEST and (each > 0 or not picture.log)]
        for values in zip(*((row.value, row.wide_low, row.wide_high) for row in picture.rows), strict=True)
    ] or [[], [], []]
    if not any(held):
        return (0.1, 10.0) if picture.log else (-1.0, 1.0)
    neutral = [] if picture.neutral is None or (picture.log and picture.neutral <= 0) else [link(picture.neutral)]
    # The median half width is that of an ordinary row; a few wide rows do not change it.
    widths = sorted(high - low for low, high in zip(held[1], held[2], strict=False)) or [0.0]
    room = 1.5 * widths[len(widths) // 2]
    centre = sorted(held[0]) or neutral or [0.0]
    # Estimates far from the middle half belong to rows that are not identified.
    low_quarter, high_quarter = centre[len(centre) // 4], centre[(3 * len(centre)) // 4]
    least, most = (
        low_quarter - 3 * room - (high_quarter - low_quarter),
        high_quarter + 3 * room + (high_quarter - low_quarter),
    )
    shown = [min(max(each, least), most) for values in held for each in values]
    low, high = limits([*shown, *neutral])
    # The exponential of 300 is a finite number.
    return back(max(low, -300.0) if picture.log else low), back(min(high, 300.0) if picture.log else high)


def _beyond(value: Number, ends: tuple[float, float]) -> int:
    """1 for a value above the axis, -1 for one below, 0 for one on it or an unknown one."""
    return 0 if value is None else (value > ends[1]) - (value < ends[0])


def _log_numbers(axis: Axis, ends: tuple[float, float]) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, or at fewer where they are too many."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    decades = range(math.floor(math.log10(ends[0])) - 1, math.ceil(math.log10(ends[1])) + 1)
    for steps in ((1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in decades for step in steps if ends[0] <= step * 10.0**power <= ends[1]]
        if len(ticks) <= 6:
            break
    # Of many decades every second, third and so on.
    ticks = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _position: format_number(value, 3)))


@_figure.register(Bars)
def _bars(picture: Bars) -> Figure:
    """Bars with lines for their intervals. Negative values of horizontal bars have another colour."""
    ends = limits((*picture.values, *picture.high, *picture.low, picture.whole), zero=True)
    values, low, high = ([_within(each, ends) for each in side] for side in (picture.values, picture.low, picture.high))
    places = [at + 0.5 for at in range(len(picture.labels))]
    text = format_percent if picture.percent else _three_digits
    error: Callable[..., Any]
    if picture.upright:
        labels, slanted, room = _slant(picture.labels, (WIDTH - 60) / max(len(places), 1))
        figure, (axes,) = _figure_of(190 + room)
        # Of many columns only every second, third and so on gets a label, at least `_SLANTED_DISTANCE` apart.
        dense = math.ceil(_SLANTED_DISTANCE * max(len(places), 1) / (WIDTH - 60))
        _columns(axes, labels, slanted, max(1, dense) if slanted else 1)
        axes.set_ylim(ends)
        _numbers(axes.yaxis, text)
        axes.grid(axis="y", color=LIGHT["rule"], linewidth=1)
        axes.bar(places, values, 0.8, color=LIGHT["accent"])
        error = axes.vlines
    else:
        row, width = (19.0, SMALL_WIDTH) if picture.small else (24.0, WIDTH)
        most = _LONGEST_SHORT if picture.small else _LONGEST_LABEL
        row = max(row, _LINE * _line_count(picture.labels, most) + 2)
        figure, (axes,) = _figure_of(row * max(len(places), 1) + 4, width)
        _rows(axes, picture.labels, most)
        axes.set_xlim(ends)
        colours = [LIGHT["warm"] if (value or 0) < 0 else LIGHT["accent"] for value in picture.values]
        axes.barh(places, values, 0.75, color=colours)
        if ends[0] < 0:
            axes.axvline(0, color=LIGHT["muted"], linewidth=1, linestyle=(0, (3, 3)))
        _values(axes, map(text, picture.values))
        error = axes.hlines
    if picture.low and picture.high:
        error(places, low, high, LIGHT["ink"], linewidth=1.5)
    return figure


@_figure.register(Curves)
def _curves(picture: Curves) -> Figure:
    """Curves with bands, and a legend below if there are several."""
    several = len(picture.series) > 1
    across = limits(x for each in picture.series for x in each.x)
    heights = [y for each in picture.series for y in (*each.y, *each.low, *each.high)]
    up = limits([*heights, 1.0] if picture.percent else heights, zero=True)
    counted = [each for each in picture.series if any(count is not None for count in each.counts)]
    below = _LINE * (len(counted) + 1) if counted else 0.0
    figure, (axes,) = _figure_of(250 + (18 * len(picture.series) if several else 0) + below)
    _plane(axes, across, up, picture.x_label, picture.y_label)
    _counts_below(axes, picture, across)
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
        # Unknown values are left out: the line connects the values beside them.
        points = [point for point in points if not any(map(math.isnan, point))]
        line = {"line": "-", "steps": "-", "dashed": (0, (2.5, 2)), "dots": ""}[each.style]
        # Marks show where values were computed; many of them would hide the line.
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
            label=_wrapped(each.label, 2 * _LONGEST_LABEL),
        )
    if several:
        figure.legend(
            loc="outside lower left",
            frameon=False,
            borderpad=0.5 if counted else 0,
            handlelength=1.8,
            labelspacing=0.35,
        )
    return figure


def _counts_below(axes: Axes, picture: Curves, across: tuple[float, float]) -> None:
    """Rows of numbers below the axis, one for each series that has them, such as numbers at risk."""
    rows = [(at, each) for at, each in enumerate(picture.series) if any(count is not None for count in each.counts)]
    if not rows:
        return
    several = len(picture.series) > 1
    place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "va": "center"}
    # Below the tick labels and the label of the axis.
    first = -(3 * _LINE)
    axes.annotate(
        picture.counts_label, (across[0], 0), (0, first), ha="left", fontsize=_TICK_SIZE, color=LIGHT["muted"], **place
    )
    for line, (at, each) in enumerate(rows, start=1):
        known = [k for k, (x, count) in enumerate(zip(each.x, each.counts, strict=False)) if None not in (x, count)]
        # Every second, third and so on, so that numbers do not touch.
        chosen = known[:: math.ceil(len(known) / _MOST_COUNTS)]
        colour = _series_colour(at)
        if several:
            label = _cut(each.label, _LONGEST_SHORT)
            axes.annotate(
                label,
                (across[0], 0),
                (-8, first - line * _LINE),
                ha="right",
                fontsize=_TICK_SIZE,
                color=colour,
                **place,
            )
        for k in chosen:
            text = format_number(round(max(each.counts[k] or 0.0, 0.0)), 6)
            position = _within(each.x[k], across), 0
            axes.annotate(
                text, position, (0, first - line * _LINE), ha="center", fontsize=_TICK_SIZE, color=colour, **place
            )


@_figure.register(Grid)
def _grid(picture: Grid) -> Figure:
    """Heat map. The opacity of a cell grows with the magnitude; negative values have another colour."""
    from matplotlib.patches import Rectangle

    lines = [line for label in picture.rows for line in _wrapped(label).split("\n")]
    names = _CHARACTER * max(map(len, lines), default=0)
    wide = (WIDTH - 20 - names) / max(len(picture.columns), 1)
    # Cells become lower if there are many rows, so that the map stays about as high as 12 rows.
    high = 28.0 if len(picture.rows) <= 12 else max(12.0, 336.0 / len(picture.rows))
    columns, slanted, room = _slant(picture.columns, wide)
    figure, (axes,) = _figure_of(room + high * max(len(picture.rows), 1) + 4)
    _rows(axes, picture.rows)
    axes.xaxis.tick_top()
    _columns(axes, columns, slanted)
    largest = max((abs(value) for line in picture.values for value in line if value is not None), default=0.0) or 1.0
    for r, line in enumerate(picture.values):
        for c, value in enumerate(line):
            # At most 0.45, so that numbers can be read on every cell.
            weight = 0.0 if value is None else 0.45 * abs(value) / largest
            colour = LIGHT["negative" if (value or 0) < 0 else "positive"]
            size = 1 - 1.5 / wide, 1 - 1.5 / high
            axes.add_patch(Rectangle((c, r), *size, facecolor=colour, alpha=round(weight, 2), edgecolor="none"))
            # Points; numbers in smaller cells would overlap.
            if wide >= 36 and high >= 20:
                text = format_number(value, 3 if wide > 48 else 2)
                axes.text(c + 0.5, r + 0.5, text, ha="center", va="center_baseline")
    return figure


@_figure.register(Clouds)
def _clouds(picture: Clouds) -> Figure:
    """Clusters as discs whose area grows with the share, with ellipses for their extent."""
    across, up = limits(picture.x_range, margin=0), limits(picture.y_range, margin=0)
    figure, (axes,) = _figure_of(280)
    _plane(axes, across, up, picture.x_label, picture.y_label)
    # An ellipse as a polygon of 64 corners: clipping would need references (see `chart`).
    turns = [2 * math.pi * turn / 64 for turn in range(64)]
    # The ground of labels is half transparent, so that they can be read on ellipses.
    ground = {"facecolor": LIGHT["page"], "edgecolor": "none", "alpha": 0.7, "pad": 1}
    for at, each in enumerate(picture.clouds):
        if each.x is None or each.y is None:
            continue
        x, y, colour = _within(each.x, across), _within(each.y, up), _series_colour(at)
        # Area, not radius, is in proportion to the share, above a smallest disc.
        radius = 4 if each.share is None else 4 + 10 * max(each.share, 0.0) ** 0.5
        axes.plot(x, y, "o", color=colour, markersize=2 * radius, markeredgewidth=0)
        top = y
        if each.x_reach and each.y_reach:
            # An ellipse that reaches beyond the axes is flattened at their ends.
            ring_x = [_within(each.x + min(each.x_reach, _LARGEST) * math.cos(turn), across) for turn in turns]
            ring_y = [_within(each.y + min(each.y_reach, _LARGEST) * math.sin(turn), up) for turn in turns]
            axes.fill(ring_x, ring_y, facecolor=(colour, 0.14), edgecolor=colour, linewidth=1)
            top, radius = max(ring_y), 0
        text = _cut(each.label) + ("" if each.share is None else f", {format_percent(each.share)}")
        axes.annotate(text, (x, top), (0, radius + 5), textcoords="offset points", ha="center", zorder=3, bbox=ground)
    return figure


@_figure.register(Slices)
def _slices(picture: Slices) -> Figure:
    """Brain slices side by side at a common scale."""
    sizes = [max((len(line) for line in plane.cells), default=1) or 1 for plane in picture.planes] or [1]
    heights = [len(plane.cells) * (plane.stretch or 1.0) for plane in picture.planes]
    figure, panels = _figure_of(WIDTH / sum(sizes) * max(heights, default=1.0) + 20, columns=sizes)
    for axes, plane, size in zip(panels, picture.planes, sizes, strict=False):
        axes.set(xlim=(0, size), ylim=(max(len(plane.cells), 1), 0), aspect=plane.stretch or 1.0, anchor="S")
        axes.set_xlabel(visible(plane.name), fontsize=_TICK_SIZE, color=LIGHT["muted"])
        _levels(axes, plane)
    return figure


def _levels(axes: Axes, plane: Plane) -> None:
    """One path per level of a slice, made of horizontal runs of equal cells."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    # Level to corners of rectangles. One path per level and runs of cells keep the file small: a slice has up to 44 x
    # 44 cells.
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
        colour = LIGHT["head" if level == 0 else "positive" if level > 0 else "negative"]
        # Level 0 is the head itself, level 5 is opaque: 0.15 + 0.17 * 5 = 1.
        opacity = 1.0 if level == 0 else 0.15 + 0.17 * abs(level)
        axes.add_patch(PathPatch(path, facecolor=colour, alpha=round(opacity, 2), edgecolor="none"))
