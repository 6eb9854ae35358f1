"""The plan: what a study will release, at what noise and cost, before any data is read.

A plan is public and frozen. The coordinator proposes it, every site computes its own cost from it, and whatever
is not in it is not released. The noise a site draws is `Plan.law(round)`, and so is the noise that is accounted.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from pydantic import TypeAdapter, ValidationError

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import accountant, published
from zerosum.kernel.names import check_name
from zerosum.kernel.schemes import Combine, NoiseLaw, NoiseMechanism
from zerosum.kernel.terms import PlannedRelease, Terms, computable
from zerosum.kernel.view import dealer_mu, worst_mu

EXCHANGES = {
    NoiseMechanism.NONE: 1,
    NoiseMechanism.TRUSTED: 1,
    NoiseMechanism.BROADCAST: 3,  # the secure sum of the draws, and the contribution
    NoiseMechanism.HELPER: 1,
    NoiseMechanism.PAIRWISE: 2,
    NoiseMechanism.MASKED: 2,
}


@dataclass(frozen=True, kw_only=True)
class Plan(Terms):
    """Everything public about a study: its terms, its name, and all that it will release.

    >>> from zerosum.kernel.schemes import Scheme
    >>> from zerosum.kernel.terms import PlannedSite
    >>> from zerosum.kernel.view import Coalition
    >>> sites = PlannedSite("a"), PlannedSite("b")
    >>> terms = Terms(sites=sites, epsilon=1.0, delta=1e-5, scheme=Scheme("local"), coalition=Coalition(1))
    >>> plan = Plan.of(terms, "s", "mean", (PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0),))
    >>> round(float(plan.law(0).own[0]), 2)
    7.46
    """

    study: str
    algorithm: str
    releases: tuple[PlannedRelease, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, name in (("a study", self.study), ("an algorithm", self.algorithm)):
            check_name(what, name)
        for release in self.releases:
            check_name("a statistic", release.statistic)
        if not self.releases:
            raise BadParameter("a plan needs at least one release")
        if math.fsum(release.share for release in self.releases) > 1 + 1e-9:
            raise BadParameter("the releases' shares of the budget add up to more than 1")
        if self.extra_delta > self.delta / 100:
            raise BadParameter(
                f"finite arithmetic would add {self.extra_delta:.2g} to delta, more than a hundredth of "
                f"{self.delta:g}: ask for fewer numbers, a smaller epsilon or a larger delta"
            )

    @classmethod
    def of(cls, terms: Terms, study: str, algorithm: str, releases: tuple[PlannedRelease, ...]) -> Plan:
        """What a study on these terms releases."""
        shared = {each.name: getattr(terms, each.name) for each in fields(Terms)}
        return cls(study=study, algorithm=algorithm, releases=releases, **shared)

    def law(self, round: int) -> NoiseLaw:
        """The noise of one release, calibrated to its share of the budget."""
        return self._laws[round]

    def mus(self, round: int) -> Floats:
        """What one release costs each site, against its own worst coalition."""
        return self._costs[round]

    @cached_property
    def _laws(self) -> tuple[NoiseLaw, ...]:
        known: dict[PlannedRelease, NoiseLaw] = {}
        for release in self.releases:
            if release not in known:
                known[release] = self.law_of(release, self.extra_delta)
        return tuple(known[release] for release in self.releases)

    @cached_property
    def _costs(self) -> tuple[Floats, ...]:
        known: dict[PlannedRelease, Floats] = {}
        for release, law in zip(self.releases, self._laws, strict=True):
            if release not in known:
                with computable():
                    known[release] = worst_mu(law, release.sensitivity, self.coalition)
        return tuple(known[release] for release in self.releases)

    def distance(self, round: int) -> float:
        """Total variation between a release as drawn and as accounted."""
        return self.distance_of(self.releases[round].size)

    @property
    def extra_delta(self) -> float:
        """What finite arithmetic adds to delta, over the whole study."""
        return self.paid_for(math.fsum(self.distance(r) for r in range(len(self.releases))))

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
        return self.site_mus() if self._shape.mechanism is not NoiseMechanism.HELPER else self._dealer_mus

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
        return EXCHANGES[self._shape.mechanism] + signatures

    @property
    def bytes_per_site(self) -> int:
        """What a site sends and receives over the whole study, in bytes; headers left out."""
        numbers = sum(release.size for release in self.releases)
        back = numbers if self.results_to_sites else 0
        vectors = {NoiseMechanism.BROADCAST: 3, NoiseMechanism.HELPER: 3}.get(self._shape.mechanism, 1)
        return 8 * (vectors * numbers + back) + self._key_bytes

    @property
    def _key_bytes(self) -> int:
        """Keys, shares and signatures: everybody's keys and two shares for and from everybody for each release, then
        a share or a signature of everybody in each round (less where many sites have few neighbours)."""
        S, R = len(self.sites), len(self.releases)
        if self._shape.mechanism is NoiseMechanism.PAIRWISE:
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


_ADAPTER = TypeAdapter(Plan)
