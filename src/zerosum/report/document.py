"""What a report says, before it is a page: sections of blocks, each a text, a table or the numbers of a picture.

`report.json` is a document as JSON, and the page is drawn from it and from nothing else.

Tested in tests/report/test_compose.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from zerosum.errors import BadInput, first_fault

Number = Annotated[float, Field(allow_inf_nan=False)] | None  # None: not known
FORMAT = "zerosum report 1"
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
    """So many columns at the left name their line. A folded one is opened by whoever wants the numbers."""

    title: str
    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    folded: bool = False
    kind: Literal["table"] = "table"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Interval:
    """An estimate between two ends, and between two more where there is a second kind of error, on an axis."""

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
    """Estimates below each other, all on one axis (`shared`), or each on its own."""

    title: str
    about: str
    rows: tuple[Interval, ...]
    shared: bool = False
    kind: Literal["intervals"] = "intervals"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Bars:
    """A bar for each label, with the 95 % of its noise where that is known; `small` ones stand side by side."""

    title: str
    about: str
    labels: tuple[str, ...]
    values: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()
    upright: bool = False
    percent: bool = False
    small: bool = False
    whole: Number = None  # what a bar of full length stands for, at least
    kind: Literal["bars"] = "bars"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Series:
    label: str
    x: tuple[Number, ...]
    y: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()
    style: Literal["line", "steps", "dashed", "dots"] = "line"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Curves:
    title: str
    about: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    percent: bool = False
    kind: Literal["curves"] = "curves"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Grid:
    """Numbers by row and column, the largest the strongest in colour."""

    title: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[Number, ...], ...]
    kind: Literal["grid"] = "grid"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Cloud:
    """A cluster: its centre, its share of everybody, and how far it reaches along both axes."""

    label: str
    x: Number
    y: Number
    share: Number = None
    x_reach: Number = None
    y_reach: Number = None
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Clouds:
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
    """A cut through a brain: cells from the top line down, from -5 to 5, None outside."""

    name: str
    cells: tuple[tuple[int | None, ...], ...]
    stretch: Number = 1.0  # how high a cell is for its width
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Slices:
    """One map: cuts through its strongest place."""

    title: str
    about: str
    planes: tuple[Plane, ...]
    kind: Literal["slices"] = "slices"
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


Picture = Intervals | Bars | Curves | Grid | Clouds | Slices
Block = Annotated[Text | Table | Picture, Field(discriminator="kind")]


@dataclass(frozen=True)
class Section:
    name: str  # its address in the page
    heading: str
    blocks: tuple[Block, ...]
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class Document:
    """A report: what programs look for by name, and what people read in order."""

    study: str
    algorithm: str
    written: str
    title: str
    summary: str
    coordinator: str  # the key it is signed with
    plan_digest: str
    proposal_digest: str
    public_digest: str
    files: Mapping[str, str]  # of the same result, and their SHA-256
    privacy: Mapping[str, JsonValue]  # the keys of `zerosum plan`
    participants: tuple[tuple[str, ...], ...]
    versions: Mapping[str, str]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    site: str = ""  # whose copy it is, with what only that site may read
    format: Literal["zerosum report 1"] = field(default="zerosum report 1")
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def to_json(self) -> bytes:
        return _ADAPTER.dump_json(self, indent=1)

    @staticmethod
    def from_json(text: bytes) -> Document:
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise BadInput(f"this is no report: {first_fault(error)}") from None


_ADAPTER = TypeAdapter(Document)


def known(value: Any) -> float | None:
    """A number as a document holds it: what is not finite is not known."""
    number = float(value)
    return number if math.isfinite(number) else None


def all_known(values: Iterable[Any]) -> tuple[float | None, ...]:
    return tuple(known(value) for value in values)
