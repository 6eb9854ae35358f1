"""Pydantic models of the tables in a study file ([unit], [privacy], [scheme], [[sites]], [imaging], ...).

Each entry is described by the string below it. docs/entries.md is generated from these strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from zerosum.data.imaging import Masker, Preprocessing, Selection
from zerosum.data.scans import Strategy
from zerosum.kernel.schemes import DEFAULT_SCHEME, Combine
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Calibration, NoiseChoice
from zerosum.kernel.tree import balanced


class Table(BaseModel):
    """Base of all tables: immutable, and unknown entries are errors."""

    # A misspelt entry, such as `dropout`, would otherwise be ignored, and its default would be used in silence.
    model_config = ConfigDict(frozen=True, extra="forbid")


class UnitTable(Table):
    """Table [unit]: the protected unit and the neighbouring relation."""

    kind: Literal["person", "record"]
    """What is protected: `person`, the owner of all rows with one label in the unit column (without that column, of
    one row), or `record`, each row. May be left out with `[imaging]`, where it is `person`."""
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    """Which data sets are neighbours: one unit replaced, or one added or removed. It must match every site's policy."""


class PrivacyTable(Table):
    """Table [privacy]: the budget of the whole study."""

    epsilon: float
    """Exact upper bound on the cost of the whole study for any unit."""
    delta: float
    """The delta at which epsilon holds, for the whole study."""
    calibration: Calibration = "exact"
    """`published`: noise by the papers' formulas, for `pooled`, `local` and the cape schemes, on public or
    synthetic data only."""
    noise: NoiseChoice = "gaussian"
    """Law of the noise: `gaussian`, `laplace`, or `auto`, which takes the one with the smaller noise for a mean or a
    histogram in one release, and Gaussian noise for all else."""
    random_state: int | None = None
    """A seed for reproducible noise, which gives no protection; public or synthetic data only."""
    attempts: int = 0
    """How many rounds, in all, may be repeated after a loss or a kill; paid for in advance with more noise, whether
    used or not."""


class CoalitionTable(Table):
    """Table [coalition]: the adversary, and how many sites may be lost."""

    colluders: int | None = None
    """C, the sites that may collude with the coordinator; by default max(1, ceil(S/3) - 1)."""
    dropouts: int = 0
    """L, the sites that may be lost in a round; C + L < S, and where a secure sum runs (`secure-sum`, `zero-sum`,
    `cape-published`) C + 2L < S."""
    absences: int = 0
    """How many sites may be left out if they are lost before anything is released; the others then bear the noise,
    for no more than `epsilon`."""


class PermitTable(Table):
    """Table [permit]: the approval of a study and who answers for it. It travels in the plan and is public. Entries
    that are left out are named as missing in the [dossier](dossier.md)."""

    number: str | None = None
    """The number of the permit, of the ethics vote or of the data access agreement."""
    authority: str | None = None
    """The body that gave the permit."""
    valid_until: date | None = None
    """The last day of the permit: `2027-12-31`."""
    legal_basis: str | None = None
    """The legal basis of the processing: `"GDPR Art. 9(2)(j)"`."""
    controller: str | None = None
    """The organisation that answers for the study and publishes its result."""
    controller_kind: Literal["Academic", "Government", "Industry", "Nonprofit"] | None = None
    """The kind of that organisation, for a public registry."""
    contact: str | None = None
    """A person or an address for questions, of the study and not of a patient."""
    region: str | None = None
    """The region that the data describe, or whose law applies."""
    sector: Literal["Education", "Government", "Healthcare", "Technology"] | None = None
    """The sector that the data describe, for a public registry."""
    retention: str | None = None
    """How long the result and its journal are kept."""

    @field_validator("*")
    @classmethod
    def _check_text(cls, value: object) -> object:
        """Refuse an empty text: an entry that is left out is reported as missing."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("must not be empty; leave the entry out")
        return value

    def texts(self) -> dict[str, str]:
        """The entries that are set, as text for the plan."""
        return {name: str(value) for name, value in self.model_dump(mode="json", exclude_none=True).items()}


class TreeTable(Table):
    """Table [tree]: along which sites messages travel, under `secure-sum`; by default each site exchanges messages with
    the coordinator."""

    fan_out: int | None = None
    """A balanced tree: the coordinator and every inner node have at most this number of children, at least 2. Sites are
    placed level by level in the order of the roster. Either `fan_out` or `parents` must be given."""
    parents: dict[str, str] = Field(default_factory=dict)
    """The parent of each site that does not exchange messages with the coordinator itself: `{ east = "north" }`."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        """Require exactly one of `fan_out` and `parents`."""
        if (self.fan_out is None) == (not self.parents):
            raise ValueError(f"give either fan_out or parents, got {'neither' if self.fan_out is None else 'both'}")
        return self

    def parents_of(self, names: Sequence[str]) -> dict[str, str]:
        """The parent of each site of a roster that has one."""
        return self.parents if self.fan_out is None else balanced(names, self.fan_out)


class SchemeTable(Table):
    """Table [scheme]: how the noise of the sites combines."""

    name: str = DEFAULT_SCHEME
    """`secure-sum`, `local` or `pooled`, on an integer grid; for comparison, in double precision, `zero-sum`,
    `pairwise`, `cape-published`, `cape-helper`; or `non-private`."""
    ratio: float = 100.0
    """Noise that cancels over noise that stays, for `zero-sum` and `pairwise`; up to 1e10."""
    combine: Combine = Combine.SUMS
    """How unequal sites are combined; `means` and `weighted` are the papers' forms, for the cape schemes."""


class RosterTable(Table):
    """Table [[sites]]: the public facts about one site."""

    name: str = Field(min_length=1)
    """The site's name on the roster."""
    units: int | None = Field(default=None, gt=0)
    """The number of units, checked by the site; `means` and `weighted` need it; refused under `add-remove`, where
    counts are data."""
    scale: float = Field(default=1.0, gt=0, le=1)
    """For a site that wants more privacy: under `sums` its units have `scale` times the mu and weight of the others."""
    weight: float | None = Field(default=None, gt=0, le=1)
    """The weight of the site's mean, for `weighted`, by default by units; all sites or none, adding up to 1."""
    identity: str | None = None
    """The public half of the site's key, 64 digits in hex, as `zerosum site init` prints it; needed between
    machines."""


class ImagingTable(Table):
    """Table [imaging]: brain images as data. Public grid, selection of files, preprocessing of each run."""

    mask: Path | None = None
    """The public grid: a column for each voxel of this 3D image that is not 0. A mask or an atlas must be given."""
    atlas: Path | None = None
    """The public grid: a column for each region of this 3D image of whole numbers."""
    task: str | None = None
    """Only files with this task in their BIDS name."""
    space: str | None = None
    """Only files with this space in their BIDS name."""
    desc: str | None = None
    """Only files with this description in their BIDS name."""
    res: str | None = None
    """Only files with this resolution in their BIDS name."""
    smoothing_mm: float | None = None
    """A Gaussian over space, its full width at half maximum."""
    detrend: bool = False
    """Removes the linear trend of every column of a run."""
    band: tuple[float, float] | None = None
    """The lowest and the highest frequency to keep, in Hz."""
    confounds: tuple[str, ...] = ()
    """Columns of each run's table of confounds, regressed out."""
    strategy: Strategy | None = None
    """Confounds by nilearn's name for a choice of them, in place of `confounds`."""
    scrub_mm: float | None = None
    """Volumes whose framewise displacement is above this are left out."""
    resample: bool = False
    """Resamples runs on another grid of the same space to the study's grid, by linear interpolation."""
    standardise: bool = True
    """Mean 0 and variance 1 for every column within a run."""
    seconds: float | None = None
    """Seconds between volumes, in place of the files' values."""
    frequencies: int | None = Field(default=None, gt=0)
    """A public basis: number of lowest cosines along each axis of the grid; the basis has all their products."""

    @model_validator(mode="after")
    def _check_grid(self) -> Self:
        """Require exactly one of mask and atlas, and valid preprocessing."""
        if (self.mask is None) == (self.atlas is None):
            raise ValueError(f"give either a mask or an atlas, got {'neither' if self.mask is None else 'both'}")
        _ = self.preprocessing  # The constructor of Preprocessing validates the entries.
        return self

    @property
    def preprocessing(self) -> Preprocessing:
        """The entries that concern the preprocessing of a run."""
        names = [each.name for each in fields(Preprocessing)]
        return Preprocessing(**{name: getattr(self, name) for name in names})

    @property
    def selection(self) -> Selection:
        """The entries that select files by their BIDS names."""
        return Selection(self.task, self.space, self.desc, self.res)

    def load_space(self, folder: Path) -> Masker:
        """Read the public grid.

        Parameters
        ----------
        folder : Path
            Folder of the study file, which the path of mask or atlas is relative to.
        """
        return Masker.load(folder / (self.mask or self.atlas or ""), "atlas" if self.mask is None else "mask")
