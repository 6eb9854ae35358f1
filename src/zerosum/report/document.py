"""Document model of a report: sections of blocks (text, table, or data of a plot), stored as report.json.

The HTML page is rendered from the document only, so that a reader of the JSON can render the page again and compare. A
document read from a file may come from another party: pydantic checks every field, unknown fields are errors, and
numbers are finite or null. Each kind of block has a field `kind`, by which the JSON is parsed into the class.

Plots hold their data and not their drawing. A program can read the numbers, and the drawing can change with the
version.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from zerosum.errors import BadInput, first_fault
from zerosum.report.text_table import text_table

Number = Annotated[float, Field(allow_inf_nan=False)] | None  # None: unknown
# Version of the format.
FORMAT = "zerosum report 1"
# Unknown fields of a block are errors.
# A field that this version does not know could change what the page ought to show.
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Text:
    """Paragraphs, or a list of points."""

    sentences: tuple[str, ...]
    tone: Literal["plain", "points", "warning", "promise"] = "plain"
    kind: Literal["text"] = "text"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Table:
    """Table whose first `names` columns are row headings. A folded table is collapsed on the page."""

    title: str
    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    folded: bool = False
    kind: Literal["table"] = "table"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __str__(self) -> str:
        """Title and rows as text with at most 80 columns."""
        return text_table(self)


@dataclass(frozen=True)
class Interval:
    """An estimate with an inner interval (low, high) and an optional outer one (wide_low, wide_high), on an axis from
    start to end."""

    label: str
    value: Number
    low: Number
    high: Number
    start: Number
    end: Number
    wide_low: Number = None
    wide_high: Number = None
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Intervals:
    """Estimates in rows, each on its own axis."""

    title: str
    about: str
    rows: tuple[Interval, ...]
    shared: Literal[False] = False  # has no effect; reports of 0.2 contain it
    kind: Literal["intervals"] = "intervals"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class ForestRow:
    """An estimate with an inner interval (low, high), an outer one (wide_low, wide_high), and its text."""

    label: str
    value: Number
    low: Number
    high: Number
    wide_low: Number
    wide_high: Number
    text: str = ""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Forest:
    """Forest plot: estimates in rows on one axis, with a line at the value of no effect."""

    title: str
    about: str
    rows: tuple[ForestRow, ...]
    x_label: str
    log: bool = False  # a logarithmic axis; values and ends at or below 0 are drawn at its end
    neutral: Number = 0.0
    kind: Literal["forest"] = "forest"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Bars:
    """Bar chart, with 95 % intervals of the noise if known. Small charts are placed side by side."""

    title: str
    about: str
    labels: tuple[str, ...]
    values: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()
    upright: bool = False
    percent: bool = False
    small: bool = False
    whole: Number = None  # smallest value at the end of the axis
    kind: Literal["bars"] = "bars"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Series:
    """One curve, with an optional band (low, high)."""

    label: str
    x: tuple[Number, ...]
    y: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()
    style: Literal["line", "steps", "dashed", "dots"] = "line"
    counts: tuple[Number, ...] = ()  # numbers at the places x, in a row below the axis
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Curves:
    """Line plot of several series."""

    title: str
    about: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    percent: bool = False
    counts_label: str = ""  # heading of the rows of numbers below the axis
    kind: Literal["curves"] = "curves"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Grid:
    """Heat map with row and column labels. The colour depends on the magnitude."""

    title: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[Number, ...], ...]
    kind: Literal["grid"] = "grid"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Cloud:
    """One cluster: centre, share of all units, and extent along both axes."""

    label: str
    x: Number
    y: Number
    share: Number = None
    x_reach: Number = None
    y_reach: Number = None
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Clouds:
    """Scatter plot of clusters."""

    title: str
    about: str
    x_label: str
    y_label: str
    x_range: tuple[Number, Number]
    y_range: tuple[Number, Number]
    clouds: tuple[Cloud, ...]
    kind: Literal["clouds"] = "clouds"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Plane:
    """Slice through a brain. Cells in lines from the top, with levels -5 to 5, None outside."""

    name: str
    cells: tuple[tuple[int | None, ...], ...]
    stretch: Number = 1.0  # height of a cell divided by its width
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Slices:
    """One brain map: slices through its strongest region."""

    title: str
    about: str
    planes: tuple[Plane, ...]
    kind: Literal["slices"] = "slices"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


Picture = Intervals | Forest | Bars | Curves | Grid | Clouds | Slices
Block = Annotated[Text | Table | Picture, Field(discriminator="kind")]


@dataclass(frozen=True)
class Section:
    """Section of a report."""

    name: str  # HTML id
    heading: str
    blocks: tuple[Block, ...]
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Document:
    """A report, a dossier or its summary: fields for programs, and sections for readers."""

    study: str
    algorithm: str
    written: str
    title: str
    summary: str
    coordinator: str  # public signing key, hexadecimal
    plan_digest: str
    proposal_digest: str
    public_digest: str
    files: Mapping[str, str]  # files of the result to their SHA-256
    privacy: Mapping[str, JsonValue]  # record of the privacy report, as `zerosum plan` prints it
    participants: tuple[tuple[str, ...], ...]
    versions: Mapping[str, str]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    site: str = ""  # site of a private copy; empty for the coordinator's report
    format: Literal["zerosum report 1", "zerosum dossier 1", "zerosum summary 1"] = "zerosum report 1"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    @property
    def name(self) -> str:
        """What the document is, which names its files: "report", "dossier" or "summary"."""
        return self.format.split()[1]

    def to_json(self) -> bytes:
        """JSON text, unsigned."""
        return _ADAPTER.dump_json(self, indent=1)

    @staticmethod
    def from_json(text: bytes) -> Document:
        """Parse JSON. Raises `BadInput`."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise BadInput(f"this is no report: {first_fault(error)}") from None


# Built once: compiling the validators of all blocks takes longer than reading a report.
_ADAPTER = TypeAdapter(Document)


def known(value: Any) -> float | None:
    """A finite number, or None."""
    # JSON has no infinities or NaN.
    number = float(value)
    return number if math.isfinite(number) else None


def all_known(values: Iterable[Any]) -> tuple[float | None, ...]:
    """Finite numbers, or None for each other value."""
    return tuple(known(value) for value in values)
