"""The terms of a study: its sites, the protected unit, the privacy budget, the noise scheme and the threat model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, grid, laplace, published
from zerosum.kernel.events import Sampling
from zerosum.kernel.names import check_identity, check_name
from zerosum.kernel.schemes import RUNNABLE_RATIO, Combine, NoiseLaw, NoiseMechanism, Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.tree import SiteTree
from zerosum.kernel.view import Coalition, calibrate

Calibration = Literal["exact", "published"]
# Noise law of a release.
Noise = Literal["gaussian", "laplace"]
# What a user asks for: "auto" lets the planner choose (`zerosum.study.planning`).
NoiseChoice = Literal["auto", "gaussian", "laplace"]

MOST_ATTEMPTS = 1000  # limits repeated rounds of one study; chosen by hand, no benchmark recorded
# factor on every target mu, so that rounding cannot make the sum of the shares exceed the whole budget
PRIVATE_SIDE = 1 - 1e-14


# a plan with an unknown field is refused, so that no version ignores a condition that another version states
STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class PlannedSite:
    """A site on the roster with its public facts (see `SiteShape`)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    units: int | None = None
    scale: float = 1.0
    weight: float | None = None
    identity: str | None = None  # public signing key in hex; a site with another key is not this site

    def __post_init__(self) -> None:
        _ = self.shape  # validates the values
        if self.identity is not None:
            check_identity("a site's identity", self.identity)

    @property
    def shape(self) -> SiteShape:
        """The facts that the noise depends on."""
        return SiteShape(self.units, self.scale, self.weight)


@dataclass(frozen=True)
class PlannedRelease:
    """One release: one sum, one publication, or one phase of many steps.

    Parameters
    ----------
    statistic:
        Name of the statistic.
    sensitivity:
        D, the largest L2 distance between the sums (publication: the rows) of two neighbours; L1 for Laplace noise.
    share:
        Share of the study's budget, in mu^2; a phase has one share for all its steps.
    size:
        How many numbers the release has; for a publication, how many numbers each unit has.
    bound:
        C, the largest norm of one unit's contribution, L2 or L1 as for D: how far one unit more or less moves the sum.
    columns:
        How many columns the data must have; None in plans of version 0.1.
    kind:
        A sum over units, or a publication of one row per unit.
    sampling:
        Poisson sampling rate and number of steps; None for a single round over all units.
    noise:
        The noise law. For "laplace" (`zerosum.kernel.laplace`) `sensitivity` and `bound` are in L1 norm.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    statistic: str
    sensitivity: float
    share: float
    size: int
    bound: float
    columns: int | None = None  # absent in plans of version 0.1
    kind: Literal["sum", "publication"] = "sum"
    sampling: Sampling | None = None
    noise: Noise = "gaussian"  # absent in plans before 0.3

    @property
    def laplace(self) -> bool:
        """Whether the release has Laplace noise."""
        return self.noise == "laplace"

    @property
    def steps(self) -> int:
        """Number of rounds."""
        return 1 if self.sampling is None else self.sampling.steps

    @property
    def sampled(self) -> Sampling | None:
        """The Poisson sampling; None where every unit takes part in every step."""
        return None if self.sampling is None or self.sampling.full else self.sampling

    @property
    def plain(self) -> bool:
        """Whether the release has Gaussian noise and no sub-sampling, so that its cost is additive in mu^2."""
        return self.sampled is None and not self.laplace

    @property
    def accounted(self) -> float:
        """The distance that mu divides by the noise. Without sampling it is D. Under sampling a unit is present or
        absent, which moves a sum by at most its bound C (`zerosum.kernel.events.Subsampled`).
        """
        return self.sensitivity if self.sampled is None else self.bound

    def __post_init__(self) -> None:
        if self.laplace and (self.kind != "sum" or self.sampling is not None):
            raise BadParameter(
                "Laplace noise is for single sums over all units: plan publications and phases without it"
            )
        if self.sampling is not None and self.kind != "sum":
            raise BadParameter(f"only sums can be sub-sampled, got sampling for a {self.kind}")
        amounts.check_amount("a release's sensitivity", self.sensitivity)
        amounts.check_amount("a release's bound", self.bound)
        amounts.check_amount("a release's share of the budget", self.share)
        amounts.check_count("a release's size", self.size)


_EVERYTHING = PlannedRelease("everything", sensitivity=1.0, share=1.0, size=1, bound=1.0)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a study, independent of the question. A plan consists of its terms and its releases.

    Parameters
    ----------
    sites:
        The roster.
    epsilon, delta:
        The guarantee for the units of every site with scale 1, over the whole study.
    scheme:
        The noise scheme.
    coalition:
        How many sites may collude with the coordinator, and how many may be lost in a round.
    unit:
        The protected unit: "person" (may own many rows) or "record" (one row).
    adjacency:
        The neighbouring relation.
    results_to_sites:
        Whether the sites receive the releases.
    calibration:
        "exact" is the accounting of this package. "published" is the papers' formula, for comparison
        (`published_noise`).
    seed:
        A seed for reproducible noise. A run with a seed protects no unit.
    attempts:
        How many rounds, in total, may be repeated; the budget pays for them whether they are used or not.
    absences:
        How many sites may be left out before the first release; the remaining sites draw more noise.
    coordinator:
        Public signing key of the coordinator in hex, which signs reports; None if it is not pinned.
    parents:
        For each site the site through which its messages travel (`zerosum.kernel.tree`). Sites that are not named
        exchange messages with the coordinator itself. No cost depends on it.
    """

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
    attempts: int = 0  # part of the cost in any case
    absences: int = 0  # before the first release only
    coordinator: str | None = None  # pinned public key
    parents: Mapping[str, str] = field(default_factory=dict)

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
            twice = next(name for name in names if names.count(name) > 1)
            raise BadParameter(f"the names of sites must be different, got {twice!r} twice")
        # A site that receives the result knows its own noise g_s and can subtract it, so it has the knowledge of one
        # colluder.
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
        # The weights of the remaining sites would no longer add up to 1, and no site has agreed to other ones.
        if self.absences and any(site.weight is not None for site in self.sites):
            raise BadParameter(f"weights are those of all sites: declare no absences with them, got {self.absences}")
        if self.attempts and self.calibration != "exact":
            raise BadParameter(
                f"attempts must be 0 with calibration = {self.calibration!r}, got {self.attempts}: the papers have no "
                "calibration for rounds that may be tried again"
            )
        if self.calibration == "published" and not self.scheme.facts.published:
            raise BadParameter(f"the papers have no calibration for the scheme {self.scheme.name!r}")
        S, C, L = len(self.sites), self.coalition.colluders, self.coalition.dropouts
        # The threshold of secret shares must exceed what colluders hold and must be reachable after L losses, for both
        # of a site's secrets (`zerosum.secagg.graph`).
        if self.scheme.facts.secure and C + 2 * L >= S:
            raise BadParameter(
                f"{C} colluders and {L} dropouts are too many for a secure sum over {S} sites: "
                "colluders + 2 dropouts must be less than the number of sites"
            )
        _ = self.tree  # validates the names
        if self.parents and self.scheme.facts.mechanism is not NoiseMechanism.MASKED:
            raise BadParameter(
                f"a tree needs the scheme 'secure-sum', got {self.scheme.name!r}: under it an inner node would read "
                "the messages of the sites below it without masks"
            )
        # An inner node reads messages of other sites, as the coordinator of a star does, and knows its own noise.
        if self.parents and self.coalition.colluders == 0:
            raise BadParameter(
                "an inner node of a tree reads messages of other sites and knows its own noise: plan for at least one "
                "colluder"
            )
        # Under add-remove neighbours the number of units differs between neighbours, so a declared count would disclose
        # it.
        counted = self.scheme.combine is not Combine.SUMS or any(site.units is not None for site in self.sites)
        if self.adjacency is Adjacency.ADD_REMOVE and counted:
            raise BadParameter("under add-remove counts are data: declare no units and combine sums")

    @property
    def private(self) -> bool:
        """Whether a run on these terms protects the units: not without noise, and not with noise from a known seed."""
        return self.scheme.facts.noisy and self.seed is None

    @cached_property
    def tree(self) -> SiteTree:
        """The tree along which messages travel; without `parents` a star."""
        return SiteTree([site.name for site in self.sites], self.parents)

    @cached_property
    def _shape(self) -> NoiseLaw:
        """The noise of a sum at unit scale."""
        return self._shape_of(self.scheme)

    def _shape_of(self, scheme: Scheme) -> NoiseLaw:
        """The noise of a scheme at unit scale, for these sites and this coalition."""
        return scheme.law([site.shape for site in self.sites], self.coalition.honest(len(self.sites)))

    def shape(self, release: PlannedRelease) -> NoiseLaw:
        """The noise of a release at unit scale. A publication has local noise: no noise of other sites protects a
        single row.
        """
        if release.kind == "publication" and self.scheme.facts.noisy:
            return self._local_shape
        return self._shape

    @cached_property
    def _local_shape(self) -> NoiseLaw:
        """The noise of a publication at unit scale."""
        return self._shape_of(Scheme("local"))

    def whole_mu(self, extra_delta: float) -> float:
        """The mu of the whole study, at the delta that finite arithmetic leaves: delta - `extra_delta`."""
        if not extra_delta <= self.delta / 100:
            # A delta above a hundredth protects too little to be advised.
            enough = f", of {100 * extra_delta:.2g} or more at this epsilon" if extra_delta < 1e-4 else ""
            raise BadParameter(
                f"finite arithmetic would add {extra_delta:.2g}, more than a hundredth, to a delta of {self.delta:g}: "
                f"ask for a smaller epsilon than {self.epsilon:g}, or a larger delta{enough}"
            )
        with computable():
            return accountant.mu_for(self.epsilon, self.delta - extra_delta)

    def law_for(self, release: PlannedRelease, mu: float) -> NoiseLaw:
        """Return the noise with which one round of a release costs no site more than `mu`, which for Laplace noise is
        the pure epsilon of the round.
        """
        shape, moved = self.shape(release), release.accounted
        with computable():
            if release.laplace:
                honest = self.coalition.honest(len(self.sites))
                return laplace.place(shape, moved, release.bound, release.size, honest, mu)
            if not self.scheme.facts.noisy:
                return shape
            if self.calibration == "published":
                law = shape.scaled(self.published_noise(release))
                return grid.drawable(self._placed(law, release))
            # Calibrate twice: the grid's step depends on the noise, and the grid then adds `rounding` to the
            # sensitivity and takes step^2/12 from the variance. The second calibration covers both.
            law = calibrate(shape, moved, self.coalition, mu)
            if not self.gridded(release):
                return law
            return grid.drawable(calibrate(self._placed(law, release), moved, self.coalition, mu))

    def published_noise(self, release: PlannedRelease) -> float:
        """The papers' tau of a release, by basic composition: the release has its share of epsilon and of delta.

        A sum has the textbook formula of the Gaussian mechanism (capeDJICA, capePCA, capeFM). In a phase of many steps
        each step has this noise, since section 5.1 of capeFM sets tau for epsilon "per iteration". A publication has
        the analytic Gaussian mechanism (DC-DP, section IV), for the sensitivity of a whole record.
        """
        eps, delta = self.epsilon * release.share, self.delta * release.share
        if release.kind == "publication":
            return release.sensitivity / accountant.mu_for(eps, delta)
        return published.gaussian_mechanism(release.sensitivity, 1.0, delta) / eps

    def _placed(self, law: NoiseLaw, release: PlannedRelease) -> NoiseLaw:
        """Put a law on its grid, if the release has one."""
        if not self.gridded(release):
            return law
        return grid.place(law, release.accounted, release.bound, release.size, self._steps_of(release))

    def gridded(self, release: PlannedRelease) -> bool:
        """Whether values and noise are integers on a grid. If not, they are doubles (schemes with cancelling noise, for
        comparison).
        """
        return self.scheme.facts.noisy and self.shape(release).mechanism in grid.GRIDDED

    def distance_of(self, release: PlannedRelease) -> float:
        """Total variation between one round of a release as drawn and as accounted."""
        if not self.gridded(release):
            return 0.0
        # in a publication only the site of the row draws noise for it
        drawing = 1 if release.kind == "publication" else len(self.sites)
        if release.laplace:  # the noise is exact on the grid, except for the error of the sampler
            return grid.worst_distance(release.size, drawing, math.inf)
        return grid.worst_distance(release.size, drawing, self._steps_of(release))

    def _steps_of(self, release: PlannedRelease) -> float:
        """Number of grid steps in a standard deviation, for all steps of a release together."""
        return grid.steps_for(release.size * release.steps, self.paid_for(1.0) / self.delta)

    def paid_for(self, distance: float) -> float:
        """The delta that a total variation distance costs: (1 + e^eps) distance.

        If P' and Q' are within t of P and Q, and P(A) <= e^eps Q(A) + delta, then P'(A) <= e^eps Q'(A) + delta + (1 +
        e^eps) t. The exponent is limited to 700 to avoid overflow in double precision.
        """
        return (1 + math.exp(min(self.epsilon, 700.0))) * distance

    @cached_property
    def noise_of_everything(self) -> float:
        """Standard deviation of the noise of a sum of sensitivity 1 if it had the whole budget."""
        mu = self.whole_mu(self.paid_for(self.distance_of(_EVERYTHING)))
        return self.law_for(_EVERYTHING, mu * PRIVATE_SIDE).noise_std


@contextmanager
def computable() -> Iterator[None]:
    """Turn an arithmetic error into `BadParameter`: values that are each valid can exceed double precision together."""
    try:
        with np.errstate(over="ignore", under="ignore"):
            yield
    except BadParameter:
        raise
    except (ArithmeticError, ValueError) as error:
        raise BadParameter("the plan's noise is beyond what can be computed: ask for less extreme numbers") from error
