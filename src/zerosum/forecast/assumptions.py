"""Public assumptions about unseen data: distributions of columns, spectrum, explained variance, separation, length.

An assumption comes from public knowledge: the literature, an earlier publication, a public data set. A file that holds
private data of a site is refused (`_check_public`), because a forecast that is computed from it would be a release
without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.documents import load_documents
from zerosum.data.imaging import load_images
from zerosum.data.tables import load_units
from zerosum.errors import BadParameter, PolicyRefused
from zerosum.study.study_file import Study

# Accepted forms, for messages.
_SHAPES = "uniform, centered, tailed, normal:MEAN:SD, skewed:MEDIAN:FACTOR, shares:SHARE:SHARE:..."
_SPECTRA = "flat, power:EXPONENT, exponential:RATIO, or a file of eigenvalues"
# Guesses other than those about columns, and what they describe, for messages.
_ABOUT = {
    "spectrum": "of principal components",
    "r_squared": "of what a regression's features explain",
    "separation": "of clusters and classes",
    "rows": "of people with many rows in order of time",
    "correlation": "of columns with each other",
    "usual": "of the columns of tables",
    "whole": "of quantiles, covariances and regressions of columns within ranges",
}
_OPTIONS = {"usual": "--shape"}  # options that are not called like their field
# "centered": the range has 8 standard deviations of a normal distribution about its middle. "tailed": a log-normal
# column whose median lies at a twelfth of its range, and whose 84th percentile at twice that. Chosen by hand: numbers
# that people measure seldom fill the range that is declared for them.
_CENTERED_STDS = 8.0
_TAILED_MEDIAN, _TAILED_FACTOR = 1 / 12, 2.0
# Shares of the levels of a categorical column, proportional to 1/k^power for the k-th: equal, unequal, some rare.
_LEVEL_POWERS = {"uniform": 0.0, "centered": 1.0, "tailed": 2.0}
# Smallest distance of a share of people from 0 and 1, so that its normal quantile is finite.
_SHARE_MARGIN = 1e-15
# Width of a range, in standard deviations of the response, without a guess about it. Chosen by hand; no benchmark
# recorded.
_RANGE_WIDTH = 6.0


@dataclass(frozen=True)
class ColumnShape:
    """Distribution of a column within its public range, or the shares of its levels.

    Attributes
    ----------
    kind : str
        "uniform", "centered" (normal about the middle of the range, 8 standard deviations wide), "tailed" (log-normal
        from the lower end of the range, with a median at a twelfth of it), "normal" (mean, standard deviation),
        "skewed" (log-normal: median, factor) or "shares" (one per level). The first three also describe levels: equal
        shares, or shares in proportion to 1/k or 1/k^2 for the k-th level.
    numbers : tuple of float
        Parameters of the kind.
    """

    kind: str = "uniform"
    numbers: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ColumnShape:
        """Parse the value of a command-line option.

        >>> ColumnShape.parse("normal:60:15")
        ColumnShape(kind='normal', numbers=(60.0, 15.0))
        """
        kind, *rest = text.strip().split(":")
        try:
            numbers = tuple(float(each) for each in rest)
        except ValueError:
            raise BadParameter(f"a guess must be one of {_SHAPES}, got {text!r}") from None
        # Parameters of each kind. Shares are as many as are given, at least two.
        wanted = {"uniform": 0, "centered": 0, "tailed": 0, "normal": 2, "skewed": 2, "shares": max(len(numbers), 2)}
        if wanted.get(kind) != len(numbers) or not all(map(math.isfinite, numbers)):
            raise BadParameter(f"a guess must be one of {_SHAPES}, got {text!r}")
        if kind == "normal" and not numbers[1] > 0:
            raise BadParameter("the standard deviation of a guess must be positive")
        if kind == "skewed" and not (numbers[0] > 0 and numbers[1] > 1):
            raise BadParameter(
                "a skewed guess has a positive median, and a factor above 1: its middle two thirds lie "
                "between the median over the factor and the median times it"
            )
        if kind == "shares" and not (min(numbers) >= 0 and sum(numbers) > 0):
            raise BadParameter("shares of a guess must not be negative")
        return cls(kind, numbers)

    def numbers_in(self, low: float, high: float, count: int, rng: np.random.Generator) -> Floats:
        """Draw values of a numeric column, clipped to its range.

        Parameters
        ----------
        low, high : float
            Public range; infinite without one.
        count : int
            Number of values.
        rng : Generator
            Random generator.
        """
        return self.numbers_at(rng.random(count), low, high)

    def numbers_at(self, share: Floats, low: float, high: float) -> Floats:
        """Quantiles of a numeric column, clipped to its range.

        Parameters
        ----------
        share : array
            Shares of people below, in (0, 1).
        low, high : float
            Public range; infinite without one.
        """
        if self.kind == "shares":
            raise BadParameter("shares are guessed for columns of categories, and this one has a range")
        if self.kind == "uniform":
            return np.asarray(low + (high - low) * share)
        score = ndtri(np.clip(share, _SHARE_MARGIN, 1 - _SHARE_MARGIN))
        width = high - low
        if self.kind == "centered":
            numbers = (low + high) / 2 + width / _CENTERED_STDS * score
        elif self.kind == "tailed":
            numbers = low + width * _TAILED_MEDIAN * _TAILED_FACTOR**score
        else:
            a, b = self.numbers
            # "skewed" is log-normal: median a, and factor b between the median and the 84th percentile.
            numbers = a + b * score if self.kind == "normal" else a * b**score
        # As a site does: values beyond the range count as its ends.
        return np.asarray(np.clip(numbers, low, high))

    def levels_of(self, levels: int, count: int, rng: np.random.Generator) -> Floats:
        """Draw values of a categorical column, as indices of its levels.

        Parameters
        ----------
        levels : int
            Number of levels.
        count : int
            Number of values.
        rng : Generator
            Random generator.
        """
        return self.levels_at(rng.random(count), levels)

    def levels_at(self, share: Floats, levels: int) -> Floats:
        """Indices of the levels of a categorical column, by shares of people below, in (0, 1)."""
        if self.kind not in (*_LEVEL_POWERS, "shares") or (self.numbers and len(self.numbers) != levels):
            raise BadParameter(f"a column of {levels} categories is guessed as uniform, or by {levels} shares")
        power = _LEVEL_POWERS.get(self.kind, 0.0)
        sizes = np.array(self.numbers or np.arange(1, levels + 1) ** -power)
        ends = np.cumsum(sizes / sizes.sum())
        return np.minimum(np.searchsorted(ends, share, side="right"), levels - 1).astype(np.float64)

    def to_option(self) -> str:
        """The guess in the form that `parse` accepts."""
        return ":".join([self.kind, *(f"{each:g}" for each in self.numbers)])


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a covariance matrix, up to a common factor: a parametric form, or the values of a public file.

    `values(count)` gives the largest `count` of them in descending order. They are those of the columns as the study
    scales them or, with `relative`, of columns divided by half their ranges: without a statement about the spectrum,
    every column fills its range alike.
    """

    text: str
    values: Callable[[int], Floats]
    relative: bool = False

    @classmethod
    def parse(cls, text: str, folder: Path = Path()) -> Spectrum:
        """Parse the value of a command-line option. A path is relative to `folder`.

        >>> Spectrum.parse("power:1.0").values(4).tolist()
        [1.0, 0.5, 0.3333333333333333, 0.25]
        """
        kind, _, number = text.partition(":")
        try:
            amount = float(number) if number else math.nan
        except ValueError:
            amount = math.nan
        if kind == "flat" and not number:
            return cls(text, np.ones)
        if kind == "power" and 0 <= amount <= 20:
            return cls(text, lambda count: np.arange(1.0, count + 1) ** np.float64(-amount))
        if kind == "exponential" and 0 < amount <= 1:
            # The lower bound keeps the square roots of eigenvalues away from underflow.
            return cls(text, lambda count: np.maximum(amount ** np.arange(count), 1e-12))
        path = folder / text
        if not path.is_file():
            raise BadParameter(f"the spectrum must be {_SPECTRA}; got {text!r}")
        return cls(text, _read(path))


def _read(path: Path) -> Callable[[int], Floats]:
    """Read eigenvalues from a .npy or text file. Raises `BadParameter`."""
    try:
        rows = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, delimiter=None)
    except (OSError, ValueError):
        raise BadParameter(f"the spectrum {path} is not a plain list of numbers") from None
    # In descending order, whatever the order of the file.
    known = np.sort(np.asarray(rows, dtype=np.float64).ravel())[::-1]
    if not known.size or not np.all(np.isfinite(known)) or known[-1] < 0 or known[0] <= 0:
        raise BadParameter(f"the spectrum {path} must hold eigenvalues: finite, none negative, one positive")

    def values(count: int) -> Floats:
        if known.size < count:
            raise BadParameter(f"the spectrum {path} has {known.size} eigenvalues, and the study {count} columns")
        return known[:count]

    return values


@dataclass(frozen=True)
class Assumptions:
    """Public assumptions about data that have not been seen. None: no assumption.

    Parameters
    ----------
    columns : mapping of str to ColumnShape
        Distribution of each column. Default: uniform over the range, or equal shares of levels.
    like : Units, optional
        Public or synthetic units with the study's columns, which are drawn from instead.
    spectrum : Spectrum, optional
        Eigenvalues, for principal components.
    r_squared : float, optional
        Share of the response's variance that the features of a regression explain, 0 to 0.99.
    separation : float, optional
        Distance of neighbouring clusters or classes, in standard deviations within one.
    rows : int, optional
        Rows per recording, 30 to 10000.
    correlation : float, optional
        Correlation of the normal scores of neighbouring columns, 0 to 0.99; of columns k apart, its k-th power.
    usual : ColumnShape, optional
        Distribution of columns that `columns` does not name: uniform, centered or tailed. None: uniform.
    whole : tuple of str
        Columns that hold whole numbers, so that many people have the same value.
    """

    columns: Mapping[str, ColumnShape] = field(default_factory=dict)
    like: Units | None = None
    spectrum: Spectrum | None = None
    r_squared: float | None = None
    separation: float | None = None
    rows: int | None = None
    correlation: float | None = None
    usual: ColumnShape | None = None
    whole: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.correlation is not None and not 0 <= self.correlation <= 0.99:
            raise BadParameter(f"correlation must lie between 0 and 0.99, got {self.correlation:g}")
        if self.usual is not None and self.usual.kind not in _LEVEL_POWERS:
            raise BadParameter(f"the shape of all columns must be one of {', '.join(_LEVEL_POWERS)}")
        if self.r_squared is not None and not 0 <= self.r_squared <= 0.99:
            raise BadParameter(f"r_squared must lie between 0 and 0.99, got {self.r_squared:g}")
        if self.separation is not None and not 0 < self.separation <= 1000:
            raise BadParameter(f"separation must be positive, and at most 1000, got {self.separation:g}")
        if self.rows is not None and not 30 <= self.rows <= 10_000:
            raise BadParameter(f"rows must lie between 30 and 10000, got {self.rows}")

    def check_used(self, used: Collection[str], why: str) -> None:
        """Raise `BadParameter` for a guess that the algorithm does not use.

        A guess without effect is an error, because its author would take the forecast for one that depends on it.

        Parameters
        ----------
        used : collection of str
            Fields that the algorithm uses.
        why : str
            Reason for the message.
        """
        for name, about in _ABOUT.items():
            if getattr(self, name) not in (None, ()) and name not in used:
                option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
                raise BadParameter(f"{option} is {about}, and would have no effect: {why}; leave it out")

    def shape(self, name: str) -> ColumnShape:
        """Distribution of a column."""
        return self.columns.get(name, self.usual or ColumnShape())

    def check(self, names: Sequence[str]) -> None:
        """Raise `BadParameter` for guesses about columns that the study does not have."""
        for name in (*self.columns, *self.whole):
            if name not in names:
                raise BadParameter(f"there is a guess about {name!r}, which is not one of the study's columns")

    def response(self, name: str, low: float, high: float) -> tuple[float, float]:
        """Mean and standard deviation of a regression's response, which cannot be uniform."""
        shape = self.columns.get(name)
        # In the middle of its range, which spans six standard deviations.
        if shape is None:
            return (low + high) / 2, (high - low) / _RANGE_WIDTH
        if shape.kind != "normal":
            raise BadParameter(f"the response {name!r} is guessed by its mean and spread: normal:MEAN:SD")
        return shape.numbers[0], shape.numbers[1]


def read_like(study: Study, path: Path) -> Units:
    """Read public or synthetic units with the study's columns. A path that holds a site's private data is refused
    before it is read."""
    _check_public(study, path)
    if study.imaging is not None and study.space is not None:
        return load_images(path, study.space, study.imaging.preprocessing, study.imaging.selection).units
    if study.words is not None:
        return load_documents(path, study.words)
    algorithm, design = study.build_algorithm(), study.full_design
    return load_units(
        path,
        columns=algorithm.columns if design is None else design.read,
        categories=algorithm.categories if design is None else design.levels,
        missing=algorithm.rules if design is None else design.missing,
        missing_tokens=study.missing_tokens,
    ).units


def read_spectrum(study: Study, text: str) -> Spectrum:
    """Parse a spectrum. A path that holds a site's private data is refused before it is read."""
    _check_public(study, Path(text))
    return Spectrum.parse(text)


def _check_public(study: Study, path: Path) -> None:
    """Raise `PolicyRefused` if a path overlaps with private data of a site."""
    for file in study.site_files:
        if _overlap(file.path, path) and file.load_policy(study.unit.kind, study.unit.adjacency).data == "private":
            raise PolicyRefused(
                f"{path} holds the private data of site {file.name!r}: forecasts are made from public or made-up data"
            )


def _overlap(data: Path, path: Path) -> bool:
    """Whether two paths are equal, nested, connected by symbolic links, or share files by hard links."""
    if not path.exists():
        return False
    one, other = data.resolve(), path.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        return True
    # A folder may contain links to the data, and a hard link has no path in common with them.
    links = (each.resolve() for each in path.rglob("*") if each.is_symlink())
    return any(one.is_relative_to(link) for link in links) or bool(_inodes(data) & _inodes(path))


def _inodes(path: Path) -> set[tuple[int, int]]:
    """(device, inode) of a path and of everything below it. Hard links to a file share them."""
    inodes = set()
    for each in (path, *path.rglob("*")):
        with suppress(OSError):
            held = each.stat()
            inodes.add((held.st_dev, held.st_ino))
    return inodes
