"""The plan: what a study will release, at what noise and cost, before any data is read.

A plan is public and frozen. The coordinator proposes it, every site computes its own cost from it, and whatever
is not in it is not released. The noise a site draws is `Plan.law(round)`, and so is the noise that is accounted.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, grid, published
from zerosum.kernel.names import check_name
from zerosum.kernel.schemes import Combine, Floats, Law, Mixing, Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.view import Coalition, calibrate, dealer_mu, worst_mu

Calibration = Literal["exact", "published"]

RUNNABLE_RATIO = 1e10
_PRIVATE_SIDE = 1 - 1e-14  # so that shares, added up again, do not pass the whole by a rounding

EXCHANGES = {
    Mixing.NONE: 1,
    Mixing.TRUSTED: 1,
    Mixing.BROADCAST: 3,  # the secure sum of the draws, and the contribution
    Mixing.HELPER: 1,
    Mixing.PAIRWISE: 2,
    Mixing.MASKED: 2,
}


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


@dataclass(frozen=True)
class Plan:
    """Everything public about a study.

    >>> plan = Plan("s", "mean", "person", Adjacency.REPLACE_ONE, 1.0, 1e-5, Scheme("local"), Coalition(1),
    ...             (PlannedSite("a"), PlannedSite("b")), (PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0),))
    >>> round(float(plan.law(0).own[0]), 2)
    7.46
    """

    study: str
    algorithm: str
    unit: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    scheme: Scheme
    coalition: Coalition
    sites: tuple[PlannedSite, ...]
    releases: tuple[PlannedRelease, ...]
    results_to_sites: bool = True
    calibration: Calibration = "exact"
    seed: int | None = None

    def __post_init__(self) -> None:
        amounts.check_epsilon(self.epsilon)
        amounts.check_delta(self.delta)
        self.coalition.honest(len(self.sites))
        for what, name in (("a study", self.study), ("an algorithm", self.algorithm)):
            check_name(what, name)
        for site in self.sites:
            check_name("a site", site.name)
        for release in self.releases:
            check_name("a statistic", release.statistic)
        names = [site.name for site in self.sites]
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
        if not self.releases:
            raise BadParameter("a plan needs at least one release")
        if math.fsum(release.share for release in self.releases) > 1 + 1e-9:
            raise BadParameter("the releases' shares of the budget add up to more than 1")
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
        if self.extra_delta > self.delta / 100:
            raise BadParameter(
                f"finite arithmetic would add {self.extra_delta:.2g} to delta, more than a hundredth of "
                f"{self.delta:g}: ask for fewer numbers, a smaller epsilon or a larger delta"
            )
        counted = self.scheme.combine is not Combine.SUMS or any(site.units is not None for site in self.sites)
        if self.adjacency is Adjacency.ADD_REMOVE and counted:
            raise BadParameter("under add-remove counts are data: declare no units and combine sums")

    @property
    def private(self) -> bool:
        """Whether a run of this plan protects anybody: not without noise, and not with noise from a seed."""
        return self.scheme.name != "non-private" and self.seed is None

    @cached_property
    def _shape(self) -> Law:
        shapes = [site.shape for site in self.sites]
        return self.scheme.law(shapes, self.coalition.honest(len(self.sites)))

    def law(self, round: int) -> Law:
        """The noise of one release, calibrated to its share of the budget."""
        return self._laws[round]

    def mus(self, round: int) -> Floats:
        """What one release costs each site, against its own worst coalition."""
        return self._costs[round]

    @cached_property
    def _laws(self) -> tuple[Law, ...]:
        known: dict[PlannedRelease, Law] = {}
        for release in self.releases:
            if release not in known:
                with _computable():
                    known[release] = self._calibrated(release)
        return tuple(known[release] for release in self.releases)

    @cached_property
    def _costs(self) -> tuple[Floats, ...]:
        known: dict[PlannedRelease, Floats] = {}
        for release, law in zip(self.releases, self._laws, strict=True):
            if release not in known:
                with _computable():
                    known[release] = worst_mu(law, release.sensitivity, self.coalition)
        return tuple(known[release] for release in self.releases)

    def _calibrated(self, release: PlannedRelease) -> Law:
        if self.scheme.name == "non-private":
            return self._shape
        if self.calibration == "published":
            # basic composition and the textbook formula, as in the papers
            eps, delta = self.epsilon * release.share, self.delta * release.share
            law = self._shape.scaled(published.gaussian_mechanism(release.sensitivity, 1.0, delta) / eps)
            return self._placed(law, release)
        mu = (
            accountant.mu_for(self.epsilon, self.delta - self.extra_delta)
            * math.sqrt(min(release.share, 1.0))
            * _PRIVATE_SIDE
        )
        law = calibrate(self._shape, release.sensitivity, self.coalition, mu)
        if not self.gridded:
            return law
        return calibrate(self._placed(law, release), release.sensitivity, self.coalition, mu)

    def _placed(self, law: Law, release: PlannedRelease) -> Law:
        return grid.place(law, release.sensitivity, release.bound, release.size) if self.gridded else law

    @property
    def gridded(self) -> bool:
        """Whether values and noise live on an integer grid, or are doubles (the zero-sum forms, for comparison)."""
        return self.scheme.name != "non-private" and self._shape.mixing in grid.GRIDDED

    def distance(self, round: int) -> float:
        """Total variation between a release as drawn and as accounted."""
        return grid.worst_distance(self.releases[round].size, len(self.sites)) if self.gridded else 0.0

    @property
    def extra_delta(self) -> float:
        """What finite arithmetic adds to delta, over the whole study."""
        distance = math.fsum(self.distance(r) for r in range(len(self.releases)))
        return (1 + math.exp(min(self.epsilon, 700.0))) * distance

    def site_epsilon(self, site: int) -> float:
        """The exact epsilon of a whole study for one site's units, at the study's delta."""
        return self._epsilon(float(self.site_mus()[site]))

    def coordinator_epsilon(self, site: int) -> float:
        """What the coordinator could reach with everything it holds; see `coordinator_mus`."""
        return self._epsilon(float(self.coordinator_mus()[site]))

    def _epsilon(self, mu: float) -> float:
        distance = math.fsum(self.distance(r) for r in range(len(self.releases)))
        return accountant.with_distance(lambda delta: accountant.epsilon(mu, delta), distance, self.delta)

    def site_mus(self) -> Floats:
        """What the whole study costs each site."""
        return np.asarray(np.sqrt(np.sum([self.mus(r) ** 2 for r in range(len(self.releases))], axis=0)))

    def coordinator_mus(self) -> Floats:
        """What the whole study costs each site if the coordinator uses the noise it dealt: more than planned where it
        is the helper, and the same everywhere else."""
        return self.site_mus() if self._shape.mixing is not Mixing.HELPER else self._dealer_mus

    @cached_property
    def _dealer_mus(self) -> Floats:
        rounds = zip(self._laws, self.releases, strict=True)
        squares = [dealer_mu(law, release.sensitivity, self.coalition) ** 2 for law, release in rounds]
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    def claimed_mus(self) -> Floats | None:
        """What the papers' theorems would claim for the same noise, where they have one and it applies."""
        S = len(self.sites)
        claimed = published.claimed_mu_squared(self.scheme.name, S, self.coalition.colluders)
        if claimed is None or self.coalition.dropouts or self.scheme.combine is not Combine.SUMS:
            return None
        total = np.zeros(S)
        for r, release in enumerate(self.releases):
            law = self.law(r)
            total += claimed * (release.sensitivity * law.factor / law.cancelling) ** 2
        return np.sqrt(total)

    def effective_units(self, names: tuple[str, ...], units: dict[str, int]) -> float:
        """What a released sum over these sites is to be divided by for a (weighted) mean over units."""
        law = self._shape
        index = {site.name: s for s, site in enumerate(self.sites)}
        return math.fsum(law.weight[index[n]] * law.factor[index[n]] * units[n] for n in names)

    @property
    def exchanges(self) -> int:
        """Messages to and from each site in a round."""
        signatures = 1 if self.scheme.secure and self.coalition.dropouts else 0
        return EXCHANGES[self._shape.mixing] + signatures

    @property
    def bytes_per_site(self) -> int:
        """What a site sends and receives over the whole study, in bytes; headers left out."""
        numbers = sum(release.size for release in self.releases)
        back = numbers if self.results_to_sites else 0
        vectors = {Mixing.BROADCAST: 3, Mixing.HELPER: 3}.get(self._shape.mixing, 1)
        return 8 * (vectors * numbers + back) + self._key_bytes

    @property
    def _key_bytes(self) -> int:
        """Keys, shares and signatures: everybody's keys and two shares for and from everybody for each release, then
        a share or a signature of everybody in each round (less where many sites have few neighbours)."""
        S, R = len(self.sites), len(self.releases)
        if self._shape.mixing is Mixing.PAIRWISE:
            return 32 * S * R
        if not self.scheme.secure:
            return 0
        opening = (33 + 68) * S if self.coalition.dropouts else 32
        return S * 32 * (R + 1) + 2 * S * 2 * 33 * R + opening * R

    def to_json(self) -> bytes:
        return _ADAPTER.dump_json(self)

    @staticmethod
    def from_json(text: bytes) -> Plan:
        """A plan that came from somewhere; whatever is wrong with it is one sentence."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
            raise BadParameter(f"the plan{' at ' + where if where else ''}: {what}") from None

    def digest(self) -> str:
        """SHA-256 of the plan: what a site agrees to."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()


@contextmanager
def _computable() -> Iterator[None]:
    """Numbers that are each sound can still be beyond double precision together."""
    try:
        with np.errstate(over="ignore", under="ignore"):
            yield
    except BadParameter:
        raise
    except (ArithmeticError, ValueError) as error:
        raise BadParameter("the plan's noise is beyond what can be computed: ask for less extreme numbers") from error


_ADAPTER = TypeAdapter(Plan)
