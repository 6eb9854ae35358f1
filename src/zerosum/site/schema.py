"""The public description of a site's data, which the site declares once, before any proposal.

A coordinator chooses the parameters of a plan. If a refusal depended on rows, a coordinator could search for a person's
values by proposing again and again, at no cost. So a proposal is compared with this schema, and rows are not read to
decide about it. Rows are compared with the schema at the site's own desk only (`zerosum site schema`,
`zerosum check`, the start of `zerosum site run`), and what is found stays there.

Everything in a schema is public: analysts may have the file. A steward confirms it (`zerosum site schema --confirm`),
because a line such as `levels = ["asthma", "hiv"]` or `missing = true` may itself say something about one person.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zerosum.compute.units import Units
from zerosum.errors import BadStudy, PolicyRefused, first_fault
from zerosum.kernel.plan import Plan
from zerosum.kernel.statistic import Adjacency

Level = bool | float | str
Day = datetime.date
# Directives of dates with one meaning on every machine: no names of months, no years of two digits.
_DATE = r"^(?:%[dmYHMS]|[^%])+$"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnSchema(_Table):
    """One column of a table."""

    type: Literal["number", "category"] = "number"
    """Whether cells are numbers, or labels of categories."""
    missing: bool = Field(False, strict=True)
    """Whether values may be missing. A plan without a rule for missing values of this column is then refused."""
    tokens: tuple[str | float, ...] = ()
    """How missing values are written in the file, beside empty cells and NaN: `["NA", -9]`."""
    levels: tuple[Level, ...] = ()
    """The categories of the code book, by the names that plans use. A plan that names none of them is refused; a value
    that a plan does not name counts as "other or missing". Empty: not declared."""
    range: tuple[float, float] | None = None
    """The plausible range, from the subject and not from the data; `zerosum check` counts the values outside."""
    definition: str = ""
    """What the column means, as a study states it: of [OMOP](omop.md) sources, by `zerosum site fetch`. A plan that
    states another definition of the column is refused."""
    decimal: Literal[".", ","] = "."
    """The decimal mark of its numbers."""
    thousands: Literal["", ".", ",", "'", "\u2019", " ", "\u00a0", "\u202f"] = ""
    """The mark between groups of three digits, beside numbers without it."""
    date: str | None = Field(None, pattern=_DATE, max_length=40)
    """The pattern of its dates, which are read as numbers: `"%d.%m.%Y"`. Typed dates of Parquet files and databases
    are `"%Y-%m-%d"`."""
    origin: Day | None = None
    """Dates are days since this public day; by default since 1970-01-01."""
    age_at: Day | None = None
    """Dates of birth are the age on this public day instead, in completed years."""
    labels: dict[str, Level] = Field(default_factory=dict)
    """What words in the file stand for: categories, `{ w = "f", "2" = "f" }`, or numbers, `{ "<5" = 2.5 }`."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range must be two numbers, the lower one first, got {list(self.range)}")
        if self.type == "category" and self.range is not None:
            raise ValueError("a range is of numbers, and this column holds categories")
        if self.type == "category" and (self.decimal != "." or self.thousands or self.date is not None):
            raise ValueError("decimal, thousands and date are of numbers, and this column holds categories")
        if self.date is not None and not all(each in self.date for each in ("%d", "%m", "%Y")):
            raise ValueError(f"the pattern of a date has %d, %m and %Y, got {self.date!r}")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands must differ, and both are {self.decimal!r}")
        if self.date is not None and (self.decimal != "." or self.thousands):
            raise ValueError("a column holds dates or numbers: give date, or decimal and thousands")
        if (self.origin is not None or self.age_at is not None) and self.date is None:
            raise ValueError("origin and age_at are of dates: give their pattern, date")
        if self.origin is not None and self.age_at is not None:
            raise ValueError("dates are days since `origin` or ages at `age_at`, not both")
        if self.type == "number" and not all(_finite(each) for each in self.labels.values()):
            raise ValueError("labels of a column of numbers stand for finite numbers")
        return self

    @property
    def is_plain(self) -> bool:
        """Whether the cells of the column are written plainly, as numbers or as categories by their own names."""
        return self.decimal == "." and not self.thousands and self.date is None and not self.labels


class ImagesSchema(_Table):
    """What holds for every run of every person."""

    volumes: int = Field(ge=1, strict=True)
    """The fewest volumes of a run."""
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The longest time between two volumes; None: some runs do not say, and plans must give `seconds`."""
    confounds: tuple[str, ...] = ()
    """The columns that every run's table of confounds has."""
    strategies: tuple[str, ...] = ()
    """nilearn's strategies that the tables of confounds serve, such as `simple`."""
    selectable: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The values of the BIDS entities `task`, `space`, `desc` and `res` that a plan may select by."""
    shape: tuple[int, int, int] | None = None
    """The voxels along each axis, where all runs lie on one grid."""
    affine: tuple[tuple[float, float, float, float], ...] | None = None
    """The affine of that grid, four rows of four numbers."""


class DataSchema(_Table):
    """What is public about a site's data. `zerosum site schema` drafts it, and the steward confirms it.

    >>> DataSchema(units=60, columns={"age": ColumnSchema(range=(18, 100))}).columns["age"].missing
    False
    """

    kind: Literal["table", "images", "documents"] = "table"
    """What the data are."""
    units: int | None = Field(None, ge=0, strict=True)
    """How many units there are: sent to coordinators under `replace-one`. Left out under `add-remove`, where it is
    data."""
    rows_per_unit: int = Field(1, ge=1, strict=True)
    """The most rows that one unit owns."""
    n_columns: int | None = Field(None, ge=1, strict=True)
    """How many columns there are, where they are too many to list in `columns`."""
    columns_digest: str = ""
    """SHA-256 of the names of those, as plans have it."""
    missing: bool = Field(False, strict=True)
    """Whether values may be missing in columns that are not listed."""
    columns: dict[str, ColumnSchema] = Field(default_factory=dict)
    """The columns of a table by name, but for the one that says whose a row is."""
    images: ImagesSchema | None = None
    """Of brain images."""
    words: int | None = Field(None, ge=1, strict=True)
    """Of documents that are counts already: the number of words of their vocabulary."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.kind == "images" and self.images is None:
            raise ValueError("a schema of images needs [images]: the fewest volumes of a run, and its clock")
        if self.kind == "table" and not self.columns and self.n_columns is None:
            raise ValueError("a schema of a table needs its columns")
        return self

    @classmethod
    def of(cls, units: Units, adjacency: Adjacency) -> Self:
        """The facts about units in memory, for sites in the process of the data's owner.

        >>> DataSchema.of(Units.from_rows([[1.0, 2.0]]), Adjacency.ADD_REMOVE).units is None
        True
        """
        # Under add-remove two neighbouring data sets have different numbers of units, so that the number is private.
        counted = len(units) if adjacency is Adjacency.REPLACE_ONE else None
        return cls(units=counted, rows_per_unit=max(units.largest, 1), n_columns=max(units.columns, 1))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a schema from its TOML file."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise BadStudy(f"the schema {path} cannot be read: {error.strerror or error}") from None
        except ValidationError as error:
            raise BadStudy(f"the schema {path}: {first_fault(error)}") from None
        except ValueError as error:  # not UTF-8, or not TOML
            raise BadStudy(f"the schema {path} is not a TOML file: {error}") from None

    def digest(self) -> str:
        """SHA-256 of the content, however the file is laid out."""
        # Sorted keys, so that the order of lines and comments in the TOML file do not change the digest.
        record = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(record.encode()).hexdigest()

    def refusals(self, plan: Plan, position: int) -> Iterator[PolicyRefused]:
        """What this schema refuses about the units of a plan; `column_refusals` has what it refuses about columns."""
        if plan.unit == "record" and self.rows_per_unit > 1:
            yield PolicyRefused("the study protects single records, but units here own several rows")
        declared = plan.sites[position].units
        if declared is not None and self.units is not None and declared != self.units:
            yield PolicyRefused(f"the study declares {declared} units for this site, its schema {self.units}")

    def column(self, name: str) -> ColumnSchema | None:
        """One column as declared; None where there is none of that name."""
        if name in self.columns or self.n_columns is None:
            return self.columns.get(name)
        # A wide table does not list its columns; a column that does not exist is refused when the names are compared.
        return ColumnSchema(missing=self.missing)


def column_refusals(
    schema: DataSchema, columns: Sequence[str], categories: Mapping[str, Sequence[Any]], rules: Mapping[str, Any]
) -> Iterator[PolicyRefused]:
    """What a schema refuses about the columns of a plan.

    Parameters
    ----------
    columns
        The columns that the plan reads.
    categories
        By column, the categories that the plan names; the other columns are read as numbers.
    rules
        The columns in which the plan has a rule for missing values.

    Yields
    ------
    PolicyRefused
        One for each contradiction, in the order of `columns`.
    """
    for name in columns:
        found = schema.column(name)
        if found is None:
            yield PolicyRefused(f"the data of this site have no column {name!r}")
            continue
        if found.type == "category" and name not in categories:
            yield PolicyRefused(f"column {name!r} of this site holds categories, the plan reads numbers")
        if found.missing and name not in rules:
            yield PolicyRefused(
                f"column {name!r} of this site may have missing values, and the plan has no rule for them: "
                "where an algorithm has rules, give `missing`"
            )
        named = {comparable(level) for level in categories.get(name, ())}
        # A plan for other labels than the code book's would count every unit as "other": spent budget without a result.
        if found.levels and named and not named & {comparable(level) for level in found.levels}:
            yield PolicyRefused(f"column {name!r} of this site has none of the categories that the plan names")


def _finite(value: Level) -> bool:
    """Whether a label stands for a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def comparable(level: Any) -> float | str:
    """A level as files are compared with it: "1", 1.0 and true are one."""
    # Before `float`, in the same way as files are read: a Boolean column in text has the words "true" and "false".
    if isinstance(level, bool):
        return float(level)
    try:
        return float(level)
    except (TypeError, ValueError):
        text = str(level).strip()
        return {"true": 1.0, "false": 0.0}.get(text.lower(), text)
