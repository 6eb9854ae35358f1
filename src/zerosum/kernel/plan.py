"""The plan of a study: its releases, their noise and their cost, computed before any data is read.

A plan is public and frozen. The coordinator proposes it, and every site computes its own cost from it. A release that
is not in the plan is not made. The noise that a site draws in a round is `Plan.law(round)`, and the accounting uses the
same object.

Terms. A release is one entry of `Plan.releases`: one sum, one publication, or one phase of many steps. A round is one
exchange with the sites: one for every release, and one for every step of a phase. Rounds are numbered from 0 over the
whole study.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from zerosum import html
from zerosum.arrays import Floats
from zerosum.errors import BadParameter, first_fault
from zerosum.kernel import accountant, amounts, laplace, published
from zerosum.kernel.computed_once import kept_property
from zerosum.kernel.events import Event, LaplaceSum, Publication, Sampling, Subsampled, Sum
from zerosum.kernel.names import check_name
from zerosum.kernel.phases import step_mus
from zerosum.kernel.question import Question
from zerosum.kernel.schemes import Combine, NoiseLaw, NoiseMechanism
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PRIVATE_SIDE, STRICT, PlannedRelease, PlannedSite, Terms, computable
from zerosum.kernel.view import Coalition, dealer_mu, worst_mu

# most numbers that one site publishes: a message of 2^28 bytes, its header included
MOST_PUBLISHED = (1 << 25) - (1 << 17)
# most rounds and attempts: secure aggregation makes keys for each of them before the first round. Chosen by hand; no
# benchmark recorded
MOST_ROUNDS = 100_000
# most different releases with Laplace noise: each takes milliseconds in every step of a calibration
MOST_LAPLACE = 4
# relative precision of the factor on the targets of Laplace noise that is planned beside other releases
_PRECISION = 1e-3
MOST_PHASES = 4  # most different sub-sampled phases: every site spends about a second of accounting on each

# Requests to each site in one round, by mechanism; `Plan.exchanges` adds the round of signatures.
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
    """All public facts of a study: its terms, its name, its releases, and the question in words.

    Parameters
    ----------
    study, algorithm:
        Names, without control characters.
    releases:
        The releases in their order; their shares of the budget add up to at most 1.
    question:
        The parameters in readable form. No cost depends on it.

    Further parameters are those of `Terms`. A plan whose shares, sizes or finite arithmetic exceed the limits is
    refused.

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
        if (different := len({release for release in self.releases if release.laplace})) > MOST_LAPLACE:
            raise BadParameter(
                f"a plan may have {MOST_LAPLACE} different releases with Laplace noise at most, got {different}"
            )
        # The tolerance allows for shares such as 1/3 that do not add up to 1 in floating point; `_targets` stays below
        # the whole budget by PRIVATE_SIDE.
        if math.fsum(release.share for release in self.releases) > 1 + 1e-9:
            total = math.fsum(release.share for release in self.releases)
            raise BadParameter(f"the releases' shares of the budget must add up to at most 1, got {total:g}")
        # The accounting reserves `extra_delta` out of delta. More than a hundredth would make the noise visibly larger.
        if self.extra_delta > self.delta / 100:
            raise BadParameter(
                f"finite arithmetic would add {self.extra_delta:.2g} to delta, more than a hundredth of "
                f"{self.delta:g}: ask for fewer numbers, a smaller epsilon or a larger delta"
            )

    def _check(self, release: PlannedRelease) -> None:
        """Refuse a release that these terms cannot account for."""
        check_name("a statistic", release.statistic)
        if release.laplace:
            self._check_laplace()
        if release.kind == "publication" and self.parents:
            raise BadParameter(
                "a publication has no masks, and an inner node of a tree would read the rows of the sites below it: "
                "plan it without a tree"
            )
        if release.kind == "sum" and release.sampled is None:
            return
        if release.sampled is not None and self.calibration != "exact":
            raise BadParameter("the papers have no calibration for sub-sampled steps: set rate = 1")
        what = "a publication" if release.kind == "publication" else "a sub-sampled sum"
        if self.adjacency is not Adjacency.REPLACE_ONE:
            raise BadParameter(f"{what} is accounted for replaced units: plan it with replace-one neighbours")
        if release.kind == "publication" and any(site.units is None for site in self.sites):
            undeclared = [site.name for site in self.sites if site.units is None]
            raise BadParameter(
                "a publication needs the number of units of every site: declare units in the study, got none for "
                f"{', '.join(map(repr, undeclared))}"
            )
        if (
            release.kind == "publication"
            and release.size * max(site.units or 0 for site in self.sites) > MOST_PUBLISHED
        ):
            raise BadParameter(
                f"a site would publish more than {MOST_PUBLISHED} numbers, which does not fit a message: publish fewer "
                "numbers of each, or ask for sums"
            )

    def _check_laplace(self) -> None:
        """Refuse Laplace noise where these terms cannot account for it."""
        if self.scheme.name not in laplace.LAPLACE_SCHEMES:
            raise BadParameter(
                f"Laplace noise is divided under the schemes {', '.join(laplace.LAPLACE_SCHEMES)}, not under "
                f"{self.scheme.name!r}: use noise = 'gaussian'"
            )
        if self.calibration != "exact":
            raise BadParameter("the papers have no calibration for Laplace noise: use calibration = 'exact'")
        if self.phases:
            raise BadParameter("a study with sub-sampled phases has Gaussian noise throughout: use noise = 'gaussian'")

    @classmethod
    def of(
        cls,
        terms: Terms,
        study: str,
        algorithm: str,
        releases: tuple[PlannedRelease, ...],
        question: Question | None = None,
    ) -> Plan:
        """Build the plan of a study on these terms."""
        shared = {each.name: getattr(terms, each.name) for each in fields(Terms)}
        return cls(study=study, algorithm=algorithm, releases=releases, question=question or Question(), **shared)

    def without(self, names: Collection[str]) -> Plan:
        """Return the plan without these sites, within the number of absences that the plan allows.

        The remaining sites draw more noise, so that the cost per site is the same. The new plan tolerates as many
        losses as before, or as many as the smaller number of sites can.
        """
        if not names or len(set(names)) > self.absences or not set(names) <= {site.name for site in self.sites}:
            raise BadParameter(f"this plan allows {self.absences} of its sites to be left out, not {', '.join(names)}")
        for child, parent in self.parents.items():
            if parent in names and child not in names:
                raise BadParameter(
                    f"the messages of {child!r} travel through {parent!r}: leave both out, or plan another tree"
                )
        sites = tuple(site for site in self.sites if site.name not in names)
        parents = {child: parent for child, parent in self.parents.items() if child not in names}
        colluders, most = self.coalition.colluders, len(sites) - self.coalition.colluders - 1
        # Secure aggregation needs colluders + 2 dropouts < sites (checked in `Terms`); other schemes need one honest
        # site.
        losses = min(self.coalition.dropouts, most // 2 if self.scheme.facts.secure else most)
        left = self.absences - len(set(names))
        return replace(self, sites=sites, coalition=Coalition(colluders, losses), absences=left, parents=parents)

    def identified(self, sites: tuple[PlannedSite, ...]) -> Plan:
        """Return the plan with the public keys of its sites.

        Noise and cost do not depend on keys: the new plan shares what was calibrated, and is not validated again.

        Parameters
        ----------
        sites:
            The roster of this plan, with identities.
        """
        keyless, given = ([replace(site, identity=None) for site in each] for each in (self.sites, sites))
        if keyless != given:
            raise BadParameter(
                f"identities must be for the sites of the plan, {', '.join(site.name for site in self.sites)}, got "
                f"{', '.join(site.name for site in sites) or 'none'}"
            )
        keyed = copy.copy(self)
        keyed.__dict__["sites"] = sites
        keyed.__dict__.pop("_digest", None)
        return keyed

    def noise_ratio(self, epsilon: float) -> float:
        """Standard deviation of the noise that the same releases would have at another epsilon, over the present one.

        Noise is inversely proportional to the target mu of a release, up to the rounding of the grid, which adds at
        most 1/FINE to the sensitivity (`zerosum.kernel.grid`). The ratio is the same for all releases, except for
        sub-sampled phases: it is the largest one.

        Parameters
        ----------
        epsilon:
            The epsilon of the whole study.

        Raises
        ------
        BadParameter
            The epsilon cannot be planned.
        """
        amounts.check_epsilon(epsilon)
        if epsilon == self.epsilon:
            return 1.0
        if self.calibration == "published":
            asked = replace(self, epsilon=epsilon)
            return max(asked.published_noise(each) / self.published_noise(each) for each in self.releases)
        other = object.__new__(Plan)  # neither validated nor calibrated: only its targets are asked for
        other.__dict__.update({each.name: getattr(self, each.name) for each in fields(self)} | {"epsilon": epsilon})
        return max(mine / theirs for mine, theirs in zip(self._targets, other._targets, strict=True))

    # ---- rounds ------------------------------------------------------------------------------------------------

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        """The first round of every release, and as the last entry the number of rounds."""
        return tuple(accumulate((release.steps for release in self.releases), initial=0))

    @property
    def rounds(self) -> int:
        """Number of rounds: one for every release, and for every step of a phase."""
        return self._firsts[-1]

    @cached_property
    def phases(self) -> int:
        """Number of different sub-sampled phases. Phases with equal share, rate and steps share one calibration."""
        return len({(release.share, release.sampled) for release in self.releases if release.sampled is not None})

    def position(self, round: int) -> int:
        """Index of the release that a round belongs to."""
        return bisect_right(self._firsts, round) - 1

    def first_round(self, release: int) -> int:
        """The first round of a release."""
        return self._firsts[release]

    def release(self, round: int) -> PlannedRelease:
        """The release that a round belongs to."""
        return self.releases[self.position(round)]

    def law(self, round: int) -> NoiseLaw:
        """The noise of one round, calibrated to its release's share of the budget."""
        return self._laws[self.position(round)]

    def mus(self, round: int) -> Floats:
        """Cost mu of one round for each site, against the site's own worst coalition; shape (S,). For Laplace noise the
        pure epsilon of the round.
        """
        return self._costs[self.position(round)]

    def distance(self, round: int) -> float:
        """Total variation between one round as drawn and as accounted."""
        return self.distance_of(self.release(round))

    # ---- noise and cost ----------------------------------------------------------------------------------------

    @kept_property
    def _targets(self) -> tuple[float, ...]:
        """The target mu of one round of every release; for Laplace noise the target epsilon.

        For releases without sub-sampling mu^2 is additive, so a release with share w of the budget and k steps has
        mu_round^2 = w/k mu_study^2. Sub-sampled phases are calibrated by their accounting (`zerosum.kernel.phases`).
        Where rounds may be tried again, releases without sub-sampling leave room for their most expensive round, once
        for each attempt.
        """
        whole = self.whole_mu(self.extra_delta)
        shares = [min(release.share, 1.0) for release in self.releases]
        plain = [r for r, release in enumerate(self.releases) if release.plain]
        rounds = {r: shares[r] / self.releases[r].steps for r in plain}
        bought = math.fsum(shares[r] for r in plain)
        # sum of w + attempts * max(w/k), times `room`, equals the sum of w: every attempt may be used on the most
        # expensive round.
        room = bought / (bought + self.attempts * max(rounds.values())) if plain else 1.0
        targets = {r: whole * math.sqrt(share * room) * PRIVATE_SIDE for r, share in rounds.items()}
        phases = [(r, sampling) for r, release in enumerate(self.releases) if (sampling := release.sampled) is not None]
        if phases:
            rest = self._plain_mu({r: targets[r] for r in plain})
            asked = tuple((shares[r], self._with_attempts(sampling)) for r, sampling in phases)
            steps = step_mus(whole, rest, asked, self.epsilon, self.delta - self.extra_delta)
            targets |= {r: mu * PRIVATE_SIDE for (r, _), mu in zip(phases, steps, strict=True)}
        if pure := [release for release in self.releases if release.laplace]:
            pure_targets = self._pure_targets(Counter(pure), whole, self._plain_mu({r: targets[r] for r in plain}))
            targets |= {r: pure_targets[release] for r, release in enumerate(self.releases) if release.laplace}
        return tuple(targets[r] for r in range(len(self.releases)))

    def _pure_targets(
        self, pure: Mapping[PlannedRelease, int], whole: float, rest: float
    ) -> dict[PlannedRelease, float]:
        """The target epsilon of every release with Laplace noise.

        A release with share w alone may cost as much as a Gaussian release of mu = sqrt(w) mu_study. Losses of
        different kinds do not add by squares, so one factor on all of them brings the composition down to the budget. A
        study that is one release needs none: its pure epsilon is that of the study.

        Parameters
        ----------
        pure:
            How often each release with Laplace noise is in the plan.
        whole:
            The mu of the whole study.
        rest:
            The mu of all plain releases together.
        """
        if len(self.releases) == 1 and not self.attempts:
            return dict.fromkeys(pure, self.epsilon * PRIVATE_SIDE)
        delta = self.delta - self.extra_delta
        alone = {each: accountant.epsilon(whole * math.sqrt(min(each.share, 1.0)), delta) for each in pure}

        def fits(factor: float) -> bool:
            events = []
            for each, target in alone.items():
                law = self.law_for(each, target * factor)
                losses = laplace.losses(law, each.accounted)
                worst = int(np.argmax(losses))
                moves = laplace.moves(law, each.accounted, worst)
                events.append(LaplaceSum(float(losses[worst]), moves, pure[each] * (1 + self.attempts)))
            return accountant.trial_epsilon(rest, events, delta) <= self.epsilon

        low, high = 0.0, 1.0
        if fits(high):
            low = high
        while high - low > _PRECISION * high:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
            if high < 1e-6:
                raise BadParameter("the plain releases leave no budget for the Laplace noise: give them smaller shares")
        return {each: target * low * PRIVATE_SIDE for each, target in alone.items()}

    def _plain_mu(self, mus: Mapping[int, float]) -> float:
        """The mu of all releases that are not sub-sampled, given the mu of one round of each, with every attempt used
        on the most expensive round.
        """
        squares = [self.releases[r].steps * mu**2 for r, mu in mus.items()]
        again = [max(mus.values(), default=0.0) ** 2] * self.attempts
        return math.sqrt(math.fsum(squares + again))

    def _with_attempts(self, sampling: Sampling) -> Sampling:
        """A sub-sampled phase with every attempt used on it.

        Losses that are not Gaussian have no most expensive place: attempts spread over two kinds of releases can cost
        more than all of them on either. So where a study has several kinds, each is accounted with every attempt.
        """
        return Sampling(sampling.rate, sampling.steps + self.attempts)

    @kept_property
    def _laws(self) -> tuple[NoiseLaw, ...]:
        """The calibrated noise of every release."""
        # Equal releases with equal targets share one law: a study of many equal rounds is calibrated once.
        known: dict[tuple[PlannedRelease, float], NoiseLaw] = {}
        asked = list(zip(self.releases, self._targets, strict=True))
        for release, mu in asked:
            if (release, mu) not in known:
                known[release, mu] = self.law_for(release, mu)
        return tuple(known[each] for each in asked)

    @kept_property
    def _costs(self) -> tuple[Floats, ...]:
        """The cost mu of one round of every release for each site. It is computed from the calibrated law, not copied
        from the target.
        """
        known: dict[tuple[PlannedRelease, float], Floats] = {}
        for release, mu, law in zip(self.releases, self._targets, self._laws, strict=True):
            if (release, mu) not in known:
                with computable():
                    if release.laplace:
                        known[release, mu] = laplace.losses(law, release.accounted)
                    else:
                        known[release, mu] = worst_mu(law, release.accounted, self.coalition)
        return tuple(known[each] for each in zip(self.releases, self._targets, strict=True))

    @cached_property
    def _distance(self) -> float:
        """Total variation between the whole study as drawn and as accounted, every attempt included."""
        rounds = [self.distance_of(release) for release in self.releases]
        again = self.attempts * max(rounds)
        return math.fsum([*(each * r.steps for each, r in zip(rounds, self.releases, strict=True)), again])

    @property
    def extra_delta(self) -> float:
        """The part of delta that pays for finite arithmetic, over the whole study."""
        return self.paid_for(self._distance)

    def event(self, release: int, site: int) -> Event:
        """The event of one release, all its steps included, for the accountant of one site (`site` is its index)."""
        planned, mu = self.releases[release], float(self._costs[release][site])
        if (sampling := planned.sampled) is not None:
            return Subsampled(mu, sampling.rate, sampling.steps)
        if planned.laplace:
            return LaplaceSum(mu, self.moves(release, site))
        # k steps without sub-sampling compose to sqrt(k) mu.
        return Publication(mu) if planned.kind == "publication" else Sum(mu * math.sqrt(planned.steps))

    def moves(self, release: int, site: int) -> int:
        """For a release with Laplace noise, the number of grid steps by which one unit of a site moves the sum, in L1
        norm.
        """
        return laplace.moves(self._laws[release], self.releases[release].accounted, site)

    def site_epsilon(self, site: int) -> float:
        """The epsilon of the whole study for the units of one site, at the study's delta: exact, and with attempts the
        largest value that they can lead to.
        """
        if site not in self._site_epsilons:
            self._site_epsilons[site] = self._epsilon(self._costs, site)
        return self._site_epsilons[site]

    @cached_property
    def _site_epsilons(self) -> dict[int, float]:
        """Values of `site_epsilon` by site. They are computed on demand, since with sub-sampled phases each may take a
        second.
        """
        return {}

    @kept_property
    def worst_epsilon(self) -> float:
        """The largest `site_epsilon`. A site for which no release costs more than for another site is not accounted
        separately.
        """
        costs = np.array(self._costs).T  # shape (sites, releases)
        dearest: list[int] = []
        # epsilon increases with the mu of every release, so a site that another site dominates in every release cannot
        # be the worst.
        for site in np.argsort(-costs.sum(axis=1), kind="stable").tolist():
            if not any(bool(np.all(costs[site] <= costs[other])) for other in dearest):
                dearest.append(site)
        return max(self.site_epsilon(site) for site in dearest)

    def coordinator_epsilon(self, site: int) -> float:
        """The epsilon of one site against a coordinator that uses all its knowledge; see `coordinator_mus`."""
        return self._epsilon(self._dealer_costs, site)

    def best_guess(self, site: int) -> float:
        """Probability that the best test between two neighbours is right, for a unit of this site; see
        `accountant.best_guess`.
        """
        return self.best_guess_of(self._costs, site)

    def best_guess_of(self, costs: tuple[Floats, ...], site: int) -> float:
        """The same for other costs of one round of every release, such as those against another recipient
        (`zerosum.kernel.recipients`).
        """
        return accountant.best_guess(*self._loss(costs, site), self._distance)

    def _epsilon(self, costs: tuple[Floats, ...], site: int) -> float:
        """The epsilon of one site for given costs, with the distance of finite arithmetic included."""
        plain, others = self._loss(costs, site)
        return accountant.with_distance(accountant.mixed_curve(plain, others), self._distance, self.delta)

    def _loss(self, costs: tuple[Floats, ...], site: int) -> tuple[float, tuple[Subsampled | LaplaceSum, ...]]:
        """The mu of all plain releases, and all other releases, for one site."""
        mus = {r: float(each[site]) for r, each in enumerate(costs)}
        plain = self._plain_mu({r: mu for r, mu in mus.items() if self.releases[r].plain})
        phases = {r: self._with_attempts(s) for r, release in enumerate(self.releases) if (s := release.sampled)}
        others: list[Subsampled | LaplaceSum] = [
            Subsampled(mus[r], each.rate, each.steps) for r, each in phases.items()
        ]
        # As for phases, every attempt may be used on each of them.
        pure = [r for r, release in enumerate(self.releases) if release.laplace]
        others += [LaplaceSum(mus[r], self.moves(r, site), 1 + self.attempts) for r in pure]
        return plain, tuple(others)

    def site_mus(self) -> Floats:
        """Cost mu of the whole study for each site, shape (S,). With sub-sampled phases, the mu of one sum that has the
        same epsilon.
        """
        return self._total(self._costs)

    def coordinator_mus(self) -> Floats:
        """Cost mu of the whole study for each site if the coordinator uses the noise that it dealt. Larger than
        `site_mus` where the coordinator is the helper, and equal to `site_mus` for every other scheme.
        """
        return self._total(self._dealer_costs)

    def _total(self, costs: tuple[Floats, ...]) -> Floats:
        """Total mu of every site for given costs of one round of each release."""
        if all(release.plain for release in self.releases):
            squares = [release.steps * mus**2 for release, mus in zip(self.releases, costs, strict=True)]
            squares += [np.max(costs, axis=0) ** 2] * self.attempts
            return np.asarray(np.sqrt(np.sum(squares, axis=0)))
        worth = [self._epsilon(costs, s) for s in range(len(self.sites))]
        return np.array([accountant.mu_for(eps, self.delta) if 0 < eps < math.inf else eps for eps in worth])

    @kept_property
    def _dealer_costs(self) -> tuple[Floats, ...]:
        """The costs against a coordinator that uses the noise that it dealt."""
        if not self.scheme.facts.deals_noise:
            return self._costs
        rounds = zip(self._laws, self.releases, strict=True)
        return tuple(dealer_mu(law, release.accounted, self.coalition) for law, release in rounds)

    def claimed_mus(self) -> Floats | None:
        """The mu that the papers' theorems would claim for the same noise, shape (S,); None where they have no theorem
        or it does not apply.
        """
        S = len(self.sites)
        claimed = published.claimed_mu_squared(self.scheme.name, S, self.coalition.colluders)
        usual = all(release.kind == "sum" and release.plain for release in self.releases)
        usual = usual and not self.coalition.dropouts and not self.attempts
        if claimed is None or self.scheme.combine is not Combine.SUMS or not usual:
            return None
        total = np.zeros(S)
        for release, law in zip(self.releases, self._laws, strict=True):
            total += release.steps * claimed * (release.sensitivity * law.factor / law.cancelling) ** 2
        return np.sqrt(total)

    def effective_units(self, names: tuple[str, ...], units: dict[str, int]) -> float:
        """Divisor that turns a released sum over these sites into a (weighted) mean over units: the
        sum of p_s c_s n_s.
        """
        law = self._shape
        index = {site.name: s for s, site in enumerate(self.sites)}
        return math.fsum(law.weight[index[n]] * law.factor[index[n]] * units[n] for n in names)

    @property
    def exchanges(self) -> int:
        """Number of exchanges with each site in a round."""
        signatures = 1 if self.scheme.facts.secure and self.coalition.dropouts else 0
        return EXCHANGES[self.scheme.facts.mechanism] + signatures

    @property
    def bytes_per_site(self) -> int:
        """Bytes that a site sends and receives over the whole study, without headers. An estimate for planning."""
        units = max(site.units or 1 for site in self.sites)
        numbers = sum(
            release.size * (units if release.kind == "publication" else release.steps) for release in self.releases
        )
        back = numbers if self.results_to_sites else 0
        # Vectors of `size` numbers that travel in a round: these two mechanisms exchange noise as well as the
        # contribution.
        vectors = {NoiseMechanism.BROADCAST: 3, NoiseMechanism.HELPER: 3}.get(self.scheme.facts.mechanism, 1)
        return 8 * (vectors * numbers + back) + self._key_bytes

    @property
    def _key_bytes(self) -> int:
        """Bytes of keys, shares and signatures of secure aggregation, or of the public keys of pairwise streams.

        For each release: the keys of all sites, and two shares for and from every site. In each round: a share or a
        signature of every site. Where many sites have few neighbours the true number is smaller.
        """
        S, R = len(self.sites), self.rounds + self.attempts
        if self.scheme.facts.mechanism is NoiseMechanism.PAIRWISE:
            return 32 * S * R
        if not self.scheme.facts.secure:
            return 0
        opening = (33 + 68) * S if self.coalition.dropouts else 32
        return S * 32 * (R + 1) + 2 * S * 2 * 33 * R + opening * R

    def _repr_html_(self) -> str:
        """HTML for notebooks: the releases, and the cost of each site."""
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
        by_release = html.table(headings, releases, title)
        by_site = html.table(
            ("site", "mu", f"epsilon at delta {self.delta:g}"), costs, f"public digest {self.public_digest}"
        )
        return str(by_release + by_site)

    # ---- as text -----------------------------------------------------------------------------------------------

    def to_json(self) -> bytes:
        """The plan as canonical JSON; `digest` is computed from these bytes."""
        return _ADAPTER.dump_json(self, exclude=self._unsaid)

    @property
    def _unsaid(self) -> dict[str, Any]:
        """Fields left out of the JSON when they have default values, so that digests of older plans do not change."""
        unsaid: dict[str, Any] = {
            name: True for name in ("attempts", "absences", "coordinator", "parents") if not getattr(self, name)
        }
        gaussian = {r: {"noise"} for r, release in enumerate(self.releases) if not release.laplace}
        approval = {name for name in ("purpose", "permit") if not getattr(self.question, name)}
        return unsaid | ({"releases": gaussian} if gaussian else {}) | ({"question": approval} if approval else {})

    @staticmethod
    def from_json(text: bytes) -> Plan:
        """Read a plan from JSON. An invalid plan raises `BadParameter` with one sentence."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise BadParameter(f"the plan: {first_fault(error)}") from None

    def digest(self) -> str:
        """SHA-256 of the plan, with the sites' public keys and the study's random name: a site
        consents to this digest.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()

    @cached_property
    def proposal_digest(self) -> str:
        """SHA-256 of the plan without any public key: the digest of the file that was approved, the same for every
        coordinator that runs it.
        """
        keyless = self.identified(tuple(replace(site, identity=None) for site in self.sites))
        keyless.__dict__["coordinator"] = None
        return hashlib.sha256(keyless.to_json()).hexdigest()

    @cached_property
    def public_digest(self) -> str:
        """SHA-256 of the public facts of the study. Two runs have the same digest if they ask the same of the same
        sites on the same terms, whatever the run is called and whichever keys the sites hold.
        """
        record = _ADAPTER.dump_python(self, mode="json", exclude=self._unsaid | {"coordinator": True})
        del record["study"]
        for site in record["sites"]:
            del site["identity"]
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


_ADAPTER = TypeAdapter(Plan)
