"""The terms of a study: who takes part, what is protected, at what privacy, against whom."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, grid, published
from zerosum.kernel.names import check_name
from zerosum.kernel.schemes import Combine, NoiseLaw, Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.view import Coalition, calibrate

Calibration = Literal["exact", "published"]

RUNNABLE_RATIO = 1e10
_PRIVATE_SIDE = 1 - 1e-14  # so that shares, added up again, do not pass the whole by a rounding


@dataclass(frozen=True)
class PlannedSite:
    """A site on the roster, and what is public about it (see `SiteShape`)."""

    name: str
    units: int | None = None
    scale: float = 1.0
    weight: float | None = None
    identity: str | None = None  # the public half of its signing key, in hex, pinned

    def __post_init__(self) -> None:
        _ = self.shape  # refuses what makes no sense
        if self.identity is not None and not re.fullmatch("[0-9a-f]{64}", self.identity):
            raise BadParameter("a site's identity must be 32 bytes in hex")

    @property
    def shape(self) -> SiteShape:
        return SiteShape(self.units, self.scale, self.weight)


@dataclass(frozen=True)
class PlannedRelease:
    """One private sum: its statistic, L2 sensitivity, share of the study's mu^2, how many numbers it has, and the
    bound on the norm of one unit's contribution."""

    statistic: str
    sensitivity: float
    share: float
    size: int
    bound: float

    def __post_init__(self) -> None:
        amounts.check_amount("a release's sensitivity", self.sensitivity)
        amounts.check_amount("a release's bound", self.bound)
        amounts.check_amount("a release's share of the budget", self.share)
        amounts.check_count("a release's size", self.size)


_WHOLE = PlannedRelease("everything", sensitivity=1.0, share=1.0, size=1, bound=1.0)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On what terms a study is held, whatever it asks. A plan is its terms and what it will release."""

    sites: tuple[PlannedSite, ...]
    epsilon: float
    delta: float
    scheme: Scheme
    coalition: Coalition
    unit: str = "person"
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    results_to_sites: bool = True
    calibration: Calibration = "exact"
    seed: int | None = None

    def __post_init__(self) -> None:
        amounts.check_epsilon(self.epsilon)
        amounts.check_delta(self.delta)
        self.coalition.honest(len(self.sites))
        names = [site.name for site in self.sites]
        for name in names:
            check_name("a site", name)
        if len(set(names)) < len(names):
            raise BadParameter("two sites have the same name")
        if self.results_to_sites and self.coalition.colluders == 0 and not self.scheme.trusted:
            raise BadParameter(
                "results go back to the sites, and any of them can subtract its own noise from a result: "
                "plan for at least one colluder, or keep the results from the sites"
            )
        if self.scheme.ratio > RUNNABLE_RATIO and self.scheme.name in ("zero-sum", "pairwise"):
            raise BadParameter(
                f"cancelling noise {self.scheme.ratio:g} times the rest would leave its rounding errors in the sum; "
                f"a ratio of at most {RUNNABLE_RATIO:g} can be run"
            )
        if self.calibration == "published" and self.scheme.name not in (
            "pooled",
            "local",
            "cape-published",
            "cape-helper",
        ):
            raise BadParameter(f"the papers have no calibration for the scheme {self.scheme.name!r}")
        S, C, L = len(self.sites), self.coalition.colluders, self.coalition.dropouts
        if self.scheme.secure and C + 2 * L >= S:
            raise BadParameter(
                f"{C} colluders and {L} dropouts are too many for a secure sum over {S} sites: "
                "colluders + 2 dropouts must be less than the number of sites"
            )
        counted = self.scheme.combine is not Combine.SUMS or any(site.units is not None for site in self.sites)
        if self.adjacency is Adjacency.ADD_REMOVE and counted:
            raise BadParameter("under add-remove counts are data: declare no units and combine sums")

    @property
    def private(self) -> bool:
        """Whether a run on these terms protects anybody: not without noise, and not with noise from a seed."""
        return self.scheme.name != "non-private" and self.seed is None

    @cached_property
    def _shape(self) -> NoiseLaw:
        shapes = [site.shape for site in self.sites]
        return self.scheme.law(shapes, self.coalition.honest(len(self.sites)))

    def law_of(self, release: PlannedRelease, extra_delta: float) -> NoiseLaw:
        """The noise of a release, calibrated to its share of the budget; `extra_delta` is left to finite arithmetic."""
        with computable():
            return self._calibrated(release, extra_delta)

    def _calibrated(self, release: PlannedRelease, extra_delta: float) -> NoiseLaw:
        if self.scheme.name == "non-private":
            return self._shape
        if self.calibration == "published":
            # basic composition and the textbook formula, as in the papers
            eps, delta = self.epsilon * release.share, self.delta * release.share
            law = self._shape.scaled(published.gaussian_mechanism(release.sensitivity, 1.0, delta) / eps)
            return self._placed(law, release)
        mu = (
            accountant.mu_for(self.epsilon, self.delta - extra_delta)
            * math.sqrt(min(release.share, 1.0))
            * _PRIVATE_SIDE
        )
        law = calibrate(self._shape, release.sensitivity, self.coalition, mu)
        if not self.gridded:
            return law
        return calibrate(self._placed(law, release), release.sensitivity, self.coalition, mu)

    def _placed(self, law: NoiseLaw, release: PlannedRelease) -> NoiseLaw:
        return grid.place(law, release.sensitivity, release.bound, release.size) if self.gridded else law

    @property
    def gridded(self) -> bool:
        """Whether values and noise live on an integer grid, or are doubles (the zero-sum forms, for comparison)."""
        return self.scheme.name != "non-private" and self._shape.mechanism in grid.GRIDDED

    def distance_of(self, size: int) -> float:
        """Total variation between a release of so many numbers as drawn and as accounted."""
        return grid.worst_distance(size, len(self.sites)) if self.gridded else 0.0

    def paid_for(self, distance: float) -> float:
        """What a distance adds to delta."""
        return (1 + math.exp(min(self.epsilon, 700.0))) * distance

    @property
    def noise_of_everything(self) -> float:
        """The noise that a sum of sensitivity 1 would have if the whole budget went into it."""
        return self.law_of(_WHOLE, self.paid_for(self.distance_of(1))).noise_std


@contextmanager
def computable() -> Iterator[None]:
    """Numbers that are each sound can still be beyond double precision together."""
    try:
        with np.errstate(over="ignore", under="ignore"):
            yield
    except BadParameter:
        raise
    except (ArithmeticError, ValueError) as error:
        raise BadParameter("the plan's noise is beyond what can be computed: ask for less extreme numbers") from error
