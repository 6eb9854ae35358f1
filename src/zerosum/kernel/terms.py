"""The terms of a study: who takes part, what is protected, at what privacy, against whom.

Tested in tests/kernel/test_plan.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, grid, published
from zerosum.kernel.events import Sampling
from zerosum.kernel.names import check_identity, check_name
from zerosum.kernel.schemes import Combine, NoiseLaw, Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.view import Coalition, calibrate

Calibration = Literal["exact", "published"]

RUNNABLE_RATIO = 1e10
MOST_ATTEMPTS = 1000
PRIVATE_SIDE = 1 - 1e-14  # so that shares, added up again, do not pass the whole by a rounding


STRICT = ConfigDict(extra="forbid")  # a plan with entries that mean nothing here is refused


@dataclass(frozen=True)
class PlannedSite:
    """A site on the roster, and what is public about it (see `SiteShape`)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    units: int | None = None
    scale: float = 1.0
    weight: float | None = None
    identity: str | None = None  # the public half of its signing key, in hex, pinned

    def __post_init__(self) -> None:
        _ = self.shape  # refuses what makes no sense
        if self.identity is not None:
            check_identity("a site's identity", self.identity)

    @property
    def shape(self) -> SiteShape:
        return SiteShape(self.units, self.scale, self.weight)


@dataclass(frozen=True)
class PlannedRelease:
    """One release, or one phase of many steps: its statistic, L2 sensitivity, share of the study's budget, how
    many numbers it has (of a publication: for each unit), and the bound on the norm of one unit's contribution."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    statistic: str
    sensitivity: float
    share: float
    size: int
    bound: float
    columns: int | None = None  # that data must have; plans of 0.1 do not say
    kind: Literal["sum", "publication"] = "sum"
    sampling: Sampling | None = None

    @property
    def steps(self) -> int:
        """How many rounds it takes."""
        return 1 if self.sampling is None else self.sampling.steps

    @property
    def sampled(self) -> Sampling | None:
        """How its units are sampled; None where everybody takes part in every step."""
        return None if self.sampling is None or self.sampling.full else self.sampling

    @property
    def accounted(self) -> float:
        """What mu is this over the noise: under sampling a unit is there or not, which moves a sum by its bound."""
        return self.sensitivity if self.sampled is None else self.bound

    def __post_init__(self) -> None:
        if self.sampling is not None and self.kind != "sum":
            raise BadParameter("only sums can be sub-sampled")
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
    attempts: int = 0  # how many rounds, in all, may be tried once more; paid for, whether used or not
    absences: int = 0  # how many sites may be left out before anything is released; those that stay bear the noise
    coordinator: str | None = None  # the public half of the key that reports are signed with, in hex, pinned

    def __post_init__(self) -> None:
        if self.coordinator is not None:
            check_identity("a coordinator's identity", self.coordinator)
        amounts.check_epsilon(self.epsilon)
        amounts.check_delta(self.delta)
        self.coalition.honest(len(self.sites))
        names = [site.name for site in self.sites]
        for name in names:
            check_name("a site", name)
        if len(set(names)) < len(names):
            raise BadParameter("two sites have the same name")
        if self.results_to_sites and self.coalition.colluders == 0 and not self.scheme.facts.sees_data:
            raise BadParameter(
                "results go back to the sites, and any of them can subtract its own noise from a result: "
                "plan for at least one colluder, or keep the results from the sites"
            )
        if self.scheme.ratio > RUNNABLE_RATIO and self.scheme.facts.ratio:
            raise BadParameter(
                f"cancelling noise {self.scheme.ratio:g} times the rest would leave its rounding errors in the sum; "
                f"a ratio of at most {RUNNABLE_RATIO:g} can be run"
            )
        if not (isinstance(self.attempts, int) and 0 <= self.attempts <= MOST_ATTEMPTS):
            raise BadParameter(f"attempts must be a whole number from 0 to {MOST_ATTEMPTS}, got {self.attempts}")
        S = len(self.sites)
        if not (isinstance(self.absences, int) and 0 <= self.absences <= max(S - self.coalition.colluders - 2, 0)):
            raise BadParameter(
                f"absences must be a whole number that leaves two honest sites of {S}, got {self.absences}"
            )
        if self.attempts and self.calibration != "exact":
            raise BadParameter("the papers have no calibration for rounds that may be tried again")
        if self.calibration == "published" and not self.scheme.facts.published:
            raise BadParameter(f"the papers have no calibration for the scheme {self.scheme.name!r}")
        S, C, L = len(self.sites), self.coalition.colluders, self.coalition.dropouts
        if self.scheme.facts.secure and C + 2 * L >= S:
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
        return self.scheme.facts.noisy and self.seed is None

    @cached_property
    def _shape(self) -> NoiseLaw:
        return self._shape_of(self.scheme)

    def _shape_of(self, scheme: Scheme) -> NoiseLaw:
        return scheme.law([site.shape for site in self.sites], self.coalition.honest(len(self.sites)))

    def shape(self, release: PlannedRelease) -> NoiseLaw:
        """The noise of a release at unit scale. What is published one by one has noise that nobody else shares."""
        if release.kind == "publication" and self.scheme.facts.noisy:
            return self._local_shape
        return self._shape

    @cached_property
    def _local_shape(self) -> NoiseLaw:
        return self._shape_of(Scheme("local"))

    def whole_mu(self, extra_delta: float) -> float:
        """The mu of the whole study; `extra_delta` is left to finite arithmetic."""
        if not extra_delta <= self.delta / 100:
            raise BadParameter(
                f"finite arithmetic would add more than a hundredth to a delta of {self.delta:g}: ask for a smaller "
                "epsilon or a larger delta"
            )
        with computable():
            return accountant.mu_for(self.epsilon, self.delta - extra_delta)

    def law_for(self, release: PlannedRelease, mu: float) -> NoiseLaw:
        """The noise with which a release costs no site more than this."""
        shape, moved = self.shape(release), release.accounted
        with computable():
            if not self.scheme.facts.noisy:
                return shape
            if self.calibration == "published":
                # basic composition and the textbook formula, as in the papers
                eps, delta = self.epsilon * release.share, self.delta * release.share
                law = shape.scaled(published.gaussian_mechanism(release.sensitivity, 1.0, delta) / eps)
                return grid.drawable(self._placed(law, release))
            law = calibrate(shape, moved, self.coalition, mu)
            if not self.gridded(release):
                return law
            return grid.drawable(calibrate(self._placed(law, release), moved, self.coalition, mu))

    def _placed(self, law: NoiseLaw, release: PlannedRelease) -> NoiseLaw:
        if not self.gridded(release):
            return law
        return grid.place(law, release.accounted, release.bound, release.size, self._steps_of(release))

    def gridded(self, release: PlannedRelease) -> bool:
        """Whether values and noise live on an integer grid, or are doubles (the zero-sum forms, for comparison)."""
        return self.scheme.facts.noisy and self.shape(release).mechanism in grid.GRIDDED

    def distance_of(self, release: PlannedRelease) -> float:
        """Total variation between one round of a release as drawn and as accounted."""
        if not self.gridded(release):
            return 0.0
        drawing = 1 if release.kind == "publication" else len(self.sites)  # a row's noise is its own site's
        return grid.worst_distance(release.size, drawing, self._steps_of(release))

    def _steps_of(self, release: PlannedRelease) -> float:
        return grid.steps_for(release.size * release.steps, self.paid_for(1.0) / self.delta)

    def paid_for(self, distance: float) -> float:
        """What a distance adds to delta."""
        return (1 + math.exp(min(self.epsilon, 700.0))) * distance

    @property
    def noise_of_everything(self) -> float:
        """The noise that a sum of sensitivity 1 would have if the whole budget went into it."""
        mu = self.whole_mu(self.paid_for(self.distance_of(_WHOLE)))
        return self.law_for(_WHOLE, mu * PRIVATE_SIDE).noise_std


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
