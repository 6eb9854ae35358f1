"""The plan: what a study will release, at what noise and cost, before any data is read.

A plan is public and frozen. The coordinator proposes it, every site computes its own cost from it, and whatever
is not in it is not released. The noise a site draws is `Plan.law(round)`, and so is the noise that is accounted.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from zerosum.arrays import Floats
from zerosum.errors import BadParameter, first_fault
from zerosum.kernel import accountant, markup, published
from zerosum.kernel.computed_once import kept_property
from zerosum.kernel.events import Event, Publication, Sampling, Subsampled, Sum
from zerosum.kernel.names import check_name
from zerosum.kernel.phases import step_mus
from zerosum.kernel.question import Question
from zerosum.kernel.schemes import Combine, NoiseLaw, NoiseMechanism
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PRIVATE_SIDE, STRICT, PlannedRelease, Terms, computable
from zerosum.kernel.view import Coalition, dealer_mu, worst_mu

MOST_PUBLISHED = (1 << 25) - (1 << 17)  # numbers of one site: a message of a quarter of a gigabyte, its head included
MOST_ROUNDS = 100_000  # a secure sum makes keys for each before it begins
MOST_PHASES = 4  # different sub-sampled ones: every site spends about a second of accounting on each

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

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    study: str
    algorithm: str
    releases: tuple[PlannedRelease, ...]
    question: Question = field(default_factory=Question)

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, name in (("a study", self.study), ("an algorithm", self.algorithm)):
            check_name(what, name)
        if not self.releases:
            raise BadParameter("a plan needs at least one release")
        for release in self.releases:
            self._check(release)
        if self.rounds + self.attempts > MOST_ROUNDS:
            raise BadParameter(
                f"a plan may have {MOST_ROUNDS} rounds and attempts at most, got {self.rounds + self.attempts}"
            )
        if self.phases > MOST_PHASES:
            raise BadParameter(
                f"a plan may have {MOST_PHASES} different sub-sampled phases at most, got {self.phases}: give some "
                "of them the same share, rate and number of steps"
            )
        if math.fsum(release.share for release in self.releases) > 1 + 1e-9:
            raise BadParameter("the releases' shares of the budget add up to more than 1")
        if self.extra_delta > self.delta / 100:
            raise BadParameter(
                f"finite arithmetic would add {self.extra_delta:.2g} to delta, more than a hundredth of "
                f"{self.delta:g}: ask for fewer numbers, a smaller epsilon or a larger delta"
            )

    def _check(self, release: PlannedRelease) -> None:
        check_name("a statistic", release.statistic)
        if release.kind == "sum" and release.sampling is None:
            return
        what = "a publication" if release.kind == "publication" else "a phase of many steps"
        if self.calibration != "exact":
            raise BadParameter(f"the papers have no calibration for {what}")
        if release.kind == "sum" and release.sampled is None:
            return
        what = "a publication" if release.kind == "publication" else "a sub-sampled sum"
        if self.adjacency is not Adjacency.REPLACE_ONE:
            raise BadParameter(f"{what} is accounted for replaced units: plan it with replace-one neighbours")
        if release.kind == "publication" and any(site.units is None for site in self.sites):
            raise BadParameter("a publication needs every site's number of units, declared in the study")
        if (
            release.kind == "publication"
            and release.size * max(site.units or 0 for site in self.sites) > MOST_PUBLISHED
        ):
            raise BadParameter(
                f"a site would publish more than {MOST_PUBLISHED} numbers, which does not fit a message: publish fewer "
                "numbers of each, or ask for sums"
            )

    @classmethod
    def of(
        cls,
        terms: Terms,
        study: str,
        algorithm: str,
        releases: tuple[PlannedRelease, ...],
        question: Question | None = None,
    ) -> Plan:
        """What a study on these terms releases."""
        shared = {each.name: getattr(terms, each.name) for each in fields(Terms)}
        return cls(study=study, algorithm=algorithm, releases=releases, question=question or Question(), **shared)

    def without(self, names: Collection[str]) -> Plan:
        """The same study without these sites, as far as the plan allows that: the others' noise makes up for theirs at
        the same cost, and it tolerates as many losses as before, or as fewer sites can."""
        if not names or len(set(names)) > self.absences or not set(names) <= {site.name for site in self.sites}:
            raise BadParameter(f"this plan allows {self.absences} of its sites to be left out, not {', '.join(names)}")
        sites = tuple(site for site in self.sites if site.name not in names)
        colluders, most = self.coalition.colluders, len(sites) - self.coalition.colluders - 1
        losses = min(self.coalition.dropouts, most // 2 if self.scheme.facts.secure else most)
        left = self.absences - len(set(names))
        return replace(self, sites=sites, coalition=Coalition(colluders, losses), absences=left)

    # ---- rounds ------------------------------------------------------------------------------------------------

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        """The first round of every release, and how many rounds there are."""
        return tuple(accumulate((release.steps for release in self.releases), initial=0))

    @property
    def rounds(self) -> int:
        """How many rounds there are: one for every release, and for every step of a phase."""
        return self._firsts[-1]

    @cached_property
    def phases(self) -> int:
        """How many different sub-sampled phases there are, by what their accounting depends on."""
        return len({(release.share, release.sampled) for release in self.releases if release.sampled is not None})

    def position(self, round: int) -> int:
        """Which release a round belongs to."""
        return bisect_right(self._firsts, round) - 1

    def first_round(self, release: int) -> int:
        return self._firsts[release]

    def release(self, round: int) -> PlannedRelease:
        """What a round releases."""
        return self.releases[self.position(round)]

    def law(self, round: int) -> NoiseLaw:
        """The noise of one round, calibrated to its release's share of the budget."""
        return self._laws[self.position(round)]

    def mus(self, round: int) -> Floats:
        """What one round costs each site, against its own worst coalition."""
        return self._costs[self.position(round)]

    def distance(self, round: int) -> float:
        """Total variation between one round as drawn and as accounted."""
        return self.distance_of(self.release(round))

    # ---- noise and cost ----------------------------------------------------------------------------------------

    @kept_property
    def _targets(self) -> tuple[float, ...]:
        """The mu of a round of every release: in proportion to the root of its share, or by its phase's accounting.

        Where rounds may be tried again, what is not sub-sampled leaves room for its dearest round that many times more.
        """
        whole = self.whole_mu(self.extra_delta)
        shares = [min(release.share, 1.0) for release in self.releases]
        plain = [r for r, release in enumerate(self.releases) if release.sampled is None]
        rounds = {r: shares[r] / self.releases[r].steps for r in plain}
        bought = math.fsum(shares[r] for r in plain)
        room = bought / (bought + self.attempts * max(rounds.values())) if plain else 1.0
        targets = {r: whole * math.sqrt(share * room) * PRIVATE_SIDE for r, share in rounds.items()}
        phases = [(r, sampling) for r, release in enumerate(self.releases) if (sampling := release.sampled) is not None]
        if phases:
            rest = self._plain_mu({r: targets[r] for r in plain})
            asked = tuple((shares[r], self._with_attempts(sampling)) for r, sampling in phases)
            steps = step_mus(whole, rest, asked, self.epsilon, self.delta - self.extra_delta)
            targets |= {r: mu * PRIVATE_SIDE for (r, _), mu in zip(phases, steps, strict=True)}
        return tuple(targets[r] for r in range(len(self.releases)))

    def _plain_mu(self, mus: Mapping[int, float]) -> float:
        """The mu of what is not sub-sampled, by that of a round of each release, every attempt used on the dearest."""
        squares = [self.releases[r].steps * mu**2 for r, mu in mus.items()]
        again = [max(mus.values(), default=0.0) ** 2] * self.attempts
        return math.sqrt(math.fsum(squares + again))

    def _with_attempts(self, sampling: Sampling) -> Sampling:
        """A sub-sampled phase with every attempt used on it.

        Losses that are not Gaussian have no dearest place: attempts spread over two kinds of releases can cost more
        than all of them on either. So where a study has several kinds, each is accounted with every attempt.
        """
        return Sampling(sampling.rate, sampling.steps + self.attempts)

    @kept_property
    def _laws(self) -> tuple[NoiseLaw, ...]:
        known: dict[tuple[PlannedRelease, float], NoiseLaw] = {}
        asked = list(zip(self.releases, self._targets, strict=True))
        for release, mu in asked:
            if (release, mu) not in known:
                known[release, mu] = self.law_for(release, mu)
        return tuple(known[each] for each in asked)

    @kept_property
    def _costs(self) -> tuple[Floats, ...]:
        known: dict[tuple[PlannedRelease, float], Floats] = {}
        for release, mu, law in zip(self.releases, self._targets, self._laws, strict=True):
            if (release, mu) not in known:
                with computable():
                    known[release, mu] = worst_mu(law, release.accounted, self.coalition)
        return tuple(known[each] for each in zip(self.releases, self._targets, strict=True))

    @cached_property
    def _distance(self) -> float:
        rounds = [self.distance_of(release) for release in self.releases]
        again = self.attempts * max(rounds)
        return math.fsum([*(each * r.steps for each, r in zip(rounds, self.releases, strict=True)), again])

    @property
    def extra_delta(self) -> float:
        """What finite arithmetic adds to delta, over the whole study."""
        return self.paid_for(self._distance)

    def event(self, release: int, site: int) -> Event:
        """What a release, all its steps, is to one site's accountant."""
        planned, mu = self.releases[release], float(self._costs[release][site])
        if (sampling := planned.sampled) is not None:
            return Subsampled(mu, sampling.rate, sampling.steps)
        return Publication(mu) if planned.kind == "publication" else Sum(mu * math.sqrt(planned.steps))

    def site_epsilon(self, site: int) -> float:
        """The epsilon of a whole study for one site's units, at the study's delta: exact, and with attempts the most
        that they can make of it."""
        if site not in self._site_epsilons:
            self._site_epsilons[site] = self._epsilon(self._costs, site)
        return self._site_epsilons[site]

    @cached_property
    def _site_epsilons(self) -> dict[int, float]:
        """Those that were asked for: with sub-sampled phases each may take a second."""
        return {}

    @kept_property
    def worst_epsilon(self) -> float:
        """The largest `site_epsilon`. A site that no release costs more than another site is not accounted."""
        costs = np.array(self._costs).T  # sites x releases
        dearest: list[int] = []
        for site in np.argsort(-costs.sum(axis=1), kind="stable").tolist():
            if not any(bool(np.all(costs[site] <= costs[other])) for other in dearest):
                dearest.append(site)
        return max(self.site_epsilon(site) for site in dearest)

    def coordinator_epsilon(self, site: int) -> float:
        """What the coordinator could reach with everything it holds; see `coordinator_mus`."""
        return self._epsilon(self._dealer_costs, site)

    def best_guess(self, site: int) -> float:
        """How often whoever has to tell one of this site's units from another is right, at most, having tossed a coin
        between the two; see `accountant.best_guess`."""
        return accountant.best_guess(*self._loss(self._costs, site), self._distance)

    def _epsilon(self, costs: tuple[Floats, ...], site: int) -> float:
        plain, sampled = self._loss(costs, site)
        return accountant.with_distance(accountant.mixed_curve(plain, sampled), self._distance, self.delta)

    def _loss(self, costs: tuple[Floats, ...], site: int) -> tuple[float, tuple[Subsampled, ...]]:
        """The mu of all plain releases, and the sub-sampled phases."""
        mus = {r: float(each[site]) for r, each in enumerate(costs)}
        plain = self._plain_mu({r: mu for r, mu in mus.items() if self.releases[r].sampled is None})
        phases = {r: self._with_attempts(s) for r, release in enumerate(self.releases) if (s := release.sampled)}
        return plain, tuple(Subsampled(mus[r], each.rate, each.steps) for r, each in phases.items())

    def site_mus(self) -> Floats:
        """What the whole study costs each site; with sub-sampled phases, the mu of one sum of the same epsilon."""
        return self._total(self._costs)

    def coordinator_mus(self) -> Floats:
        """What the whole study costs each site if the coordinator uses the noise it dealt: more than planned where it
        is the helper, and the same everywhere else."""
        return self._total(self._dealer_costs)

    def _total(self, costs: tuple[Floats, ...]) -> Floats:
        if all(release.sampled is None for release in self.releases):
            squares = [release.steps * mus**2 for release, mus in zip(self.releases, costs, strict=True)]
            squares += [np.max(costs, axis=0) ** 2] * self.attempts
            return np.asarray(np.sqrt(np.sum(squares, axis=0)))
        worth = [self._epsilon(costs, s) for s in range(len(self.sites))]
        return np.array([accountant.mu_for(eps, self.delta) if 0 < eps < math.inf else eps for eps in worth])

    @kept_property
    def _dealer_costs(self) -> tuple[Floats, ...]:
        if not self.scheme.facts.deals_noise:
            return self._costs
        rounds = zip(self._laws, self.releases, strict=True)
        return tuple(dealer_mu(law, release.accounted, self.coalition) for law, release in rounds)

    def claimed_mus(self) -> Floats | None:
        """What the papers' theorems would claim for the same noise, where they have one and it applies."""
        S = len(self.sites)
        claimed = published.claimed_mu_squared(self.scheme.name, S, self.coalition.colluders)
        usual = all(release.kind == "sum" and release.sampling is None for release in self.releases)
        usual = usual and not self.coalition.dropouts and not self.attempts
        if claimed is None or self.scheme.combine is not Combine.SUMS or not usual:
            return None
        total = np.zeros(S)
        for release, law in zip(self.releases, self._laws, strict=True):
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
        signatures = 1 if self.scheme.facts.secure and self.coalition.dropouts else 0
        return EXCHANGES[self.scheme.facts.mechanism] + signatures

    @property
    def bytes_per_site(self) -> int:
        """What a site sends and receives over the whole study, in bytes; headers left out."""
        units = max(site.units or 1 for site in self.sites)
        numbers = sum(
            release.size * (units if release.kind == "publication" else release.steps) for release in self.releases
        )
        back = numbers if self.results_to_sites else 0
        vectors = {NoiseMechanism.BROADCAST: 3, NoiseMechanism.HELPER: 3}.get(self.scheme.facts.mechanism, 1)
        return 8 * (vectors * numbers + back) + self._key_bytes

    @property
    def _key_bytes(self) -> int:
        """Keys, shares and signatures: everybody's keys and two shares for and from everybody for each release, then
        a share or a signature of everybody in each round (less where many sites have few neighbours)."""
        S, R = len(self.sites), self.rounds + self.attempts
        if self.scheme.facts.mechanism is NoiseMechanism.PAIRWISE:
            return 32 * S * R
        if not self.scheme.facts.secure:
            return 0
        opening = (33 + 68) * S if self.coalition.dropouts else 32
        return S * 32 * (R + 1) + 2 * S * 2 * 33 * R + opening * R

    def _repr_html_(self) -> str:
        """For notebooks: what will be released, and what that costs each site."""
        releases = [
            (
                each.statistic,
                each.size,
                each.sensitivity,
                each.share,
                self.law(self.first_round(r)).noise_std,
                each.steps,
            )
            for r, each in enumerate(self.releases)
        ]
        headings = ("release", "numbers", "sensitivity", "share of mu²", "noise of the sum", "steps")
        costs = [
            (site.name, float(mu), self.site_epsilon(s))
            for s, (site, mu) in enumerate(zip(self.sites, self.site_mus(), strict=True))
        ]
        title = f"{self.study} ({self.algorithm}): {', '.join(self.question.columns[:10])}"
        return markup.table(headings, releases, title) + markup.table(
            ("site", "mu", f"epsilon at delta {self.delta:g}"), costs, f"public digest {self.public_digest}"
        )

    # ---- as text -----------------------------------------------------------------------------------------------

    def to_json(self) -> bytes:
        return _ADAPTER.dump_json(self, exclude=self._unsaid)

    @property
    def _unsaid(self) -> set[str]:
        """What a plan does not say where it is as ever: plans without any of these keep their digests."""
        return {name for name in ("attempts", "absences", "coordinator") if not getattr(self, name)}

    @staticmethod
    def from_json(text: bytes) -> Plan:
        """A plan that came from somewhere; whatever is wrong with it is one sentence."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise BadParameter(f"the plan: {first_fault(error)}") from None

    def digest(self) -> str:
        """SHA-256 of the plan, its roster's keys and the study's random name included: what a site agrees to."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()

    @cached_property
    def proposal_digest(self) -> str:
        """SHA-256 of the plan without anybody's keys: the digest of the file that was approved, whoever runs it."""
        keyless = copy.copy(self)  # as it was checked, and not built again
        keyless.__dict__["coordinator"] = None
        keyless.__dict__["sites"] = tuple(replace(site, identity=None) for site in self.sites)
        return hashlib.sha256(keyless.to_json()).hexdigest()

    @cached_property
    def public_digest(self) -> str:
        """SHA-256 of what is public about the study: the same whenever the same is asked of the same sites on the same
        terms, whatever the run is called and whichever keys they hold."""
        record = _ADAPTER.dump_python(self, mode="json", exclude=self._unsaid | {"coordinator"})
        del record["study"]
        for site in record["sites"]:
            del site["identity"]
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


_ADAPTER = TypeAdapter(Plan)
