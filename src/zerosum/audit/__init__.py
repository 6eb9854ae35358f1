"""Privacy audit: attacks recorded transcripts to check the claimed privacy.

A study runs in one process with synthetic data. A recorder stores every message that the coordinator reads, and the
colluding sites hand over everything they drew or received. From these the adversary builds its view of each round: a
matrix with one row per known quantity and one column per number of the release. Each column is an independent copy of
the same noise.

The adversary has no knowledge of the scheme. On half of the columns it estimates the covariance of its rows and derives
the linear discriminant for a change in the victim's contribution, which is the optimal test for Gaussian views. On the
other half it measures the noise of this discriminant. Two neighbouring data sets differ in one unit of the victim,
which is replaced by the worst other unit that a numerical search finds. The distance of their contributions, divided by
the measured noise, is the mu reached.

The claim fails if it is below the confidence interval around the mu reached. The interval extends Z standard errors to
either side, with a relative width of Z / sqrt(2 n) for n samples. A sound claim fails at most once in 3.4 million
checks, and about once in 3.7 million at the default size. The method applies to views that are Gaussian or nearly so,
as in all schemes here at a mu of 1 and above.

Of a publication the adversary reads every row. The victim's row is that of the differing unit. The discriminant is the
likelihood ratio of its two possible rows, and all rows of its site give the size of their noise. The order in which a
site publishes is secret; the audit reveals it to the adversary.

Along a tree the adversary also has what every inner node reads: masked vectors and partial sums. They are further rows
of its view, less the contributions in them that it knows. Under sound masks these rows are uniform, and no combination
with them reaches more.

This assumes that the numbers of a release, and the releases, are independent. `correlation` tests that assumption: it
searches for repeated noise in the errors of the adversary's estimates, over all numbers, rounds and studies, and in all
draws of all sites. If the error of one estimate has correlation r with that of another, their difference reaches 1 /
sqrt(1 - r) times the mu, which is infinite for noise that is used twice. `marginals` tests the same streams for
noise that is too small, missing or not normal. Either is a fault even if this coalition gains nothing from it.

Laplace noise is attacked in the same way, with the pure epsilon in place of mu: the L1 distance of the two
contributions over the scale of the noise, whose estimate from n numbers has the relative standard error 1 / sqrt(n).
What the coalition cannot subtract are the shares of the honest sites that were not lost, which should add up to Laplace
noise: its normal scores are tested as normal noise. So are the sums of every run of as many sites in the order of the
roster, colluders included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import Algorithm, MeanProgram
from zerosum.arrays import Floats
from zerosum.audit import correlation, marginals
from zerosum.audit.adversary import (
    Attack,
    Draw,
    attack,
    candidates,
    contributed,
    laplace_attack,
    rehearsed,
    worst_pair,
)
from zerosum.audit.transcript import ColludingSite, Recorder, masked_at_nodes, planned_size, record_draws, view
from zerosum.compute.units import Units
from zerosum.coordinator.conduct import conduct
from zerosum.engines.tree import Tree
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, Release, Request
from zerosum.kernel.schemes import NoiseMechanism, Scheme
from zerosum.kernel.terms import Noise, PlannedRelease, PlannedSite, Terms
from zerosum.kernel.tree import balanced
from zerosum.kernel.view import Coalition, dealer_mu
from zerosum.protocol.messages import Contribute, Message, Prepare, Secure
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import make_plan, pin, resolve

# Half width of the confidence interval, in standard errors.
Z = 5.0
# Largest slope of the normal scores of Laplace noise of scale 1: the ratio of the densities at 0.
_STEEPEST = 0.5 * math.sqrt(2 * math.pi)
# Index of the attacked site.
VICTIM = 0
MOST_STUDIES = 2000  # largest number of studies in one audit, which takes minutes; chosen by hand


@dataclass(frozen=True)
class Finding:
    """Result of an audit.

    `planned` is the mu that the sites are charged; with `noise` "laplace" all values are pure epsilons. `claimed` is
    the largest mu that this adversary may reach. It is larger under `cape-helper`, where the coordinator itself is the
    helper, unless the helper is separate. `low` and `high` are the confidence interval of `reached`, from `samples`
    numbers.
    """

    scheme: str
    algorithm: str
    sites: int
    colluders: int
    dropouts: int
    planned: float
    claimed: float
    reached: float
    low: float
    high: float
    samples: int
    helper_apart: bool = False
    faults: tuple[str, ...] = ()
    fan_out: int | None = None
    noise: Noise = "gaussian"

    @property
    def holds(self) -> bool:
        """Whether the claim is not below the confidence interval, and the noise has no fault."""
        return self.claimed >= self.low and not self.faults

    @property
    def tight(self) -> bool:
        """Whether the claim is within the confidence interval."""
        return self.low <= self.claimed <= self.high

    @property
    def name(self) -> str:
        """Name of the scheme, and of the adversary if there are two."""
        if self.fan_out is not None:
            return f"{self.scheme} (tree)"
        return f"{self.scheme} (helper apart)" if self.helper_apart else self.scheme

    @property
    def verdict(self) -> str:
        """Result in a few words."""
        if self.claimed < self.low:
            return "exceeded"
        return "wrong noise" if self.faults else "tight" if self.tight else "not exceeded"


def audit(
    scheme: Scheme,
    algorithm: Algorithm | None = None,
    *,
    sites: int = 4,
    colluders: int = 1,
    dropouts: int = 0,
    mu: float = 1.5,
    units: int = 12,
    samples: int = 100_000,
    declare_units: bool = False,
    helper_apart: bool = False,
    fan_out: int | None = None,
    noise: Noise = "gaussian",
    site_kind: type[Site] = Site,
    on_step: Callable[[int, int], None] = lambda done, planned: None,
) -> Finding:
    """Attack a scheme that runs a program, until `samples` numbers of noise were observed.

    Parameters
    ----------
    scheme : Scheme
        The scheme; it must have noise.
    algorithm : Algorithm, optional
        The program; by default a mean of 8000 columns.
    sites, colluders, dropouts : int
        Number of sites, of colluding sites and of sites lost in each round.
    mu : float
        Planned cost of the study, as the mu of Gaussian differential privacy; with Laplace noise its pure epsilon.
    units : int
        Units per site.
    samples : int
        Numbers of noise to observe. More samples narrow the confidence interval.
    declare_units : bool
        Make counts public in the plan, as required for combinations of means and for publications.
    helper_apart : bool
        Withhold the noise of a trusted helper from the coordinator, as in capePCA. Otherwise the coordinator is the
        helper.
    fan_out : int, optional
        Run the study along a balanced tree (`zerosum.kernel.tree`). The adversary has the transcript of every inner
        node too, beside those of the coordinator and of the colluders.
    noise : str
        The noise law; "laplace" for programs of one release that can have it.
    site_kind : type
        Class of the honest sites.
    on_step : callable
        Receives (done, planned) after each study.

    Raises
    ------
    BadParameter
        If the scheme has no noise, the program subsamples, or too many studies would be needed.
    """
    if not scheme.facts.noisy:
        raise BadParameter("the non-private scheme claims nothing that could be audited")
    chosen = algorithm or MeanProgram(columns=tuple(f"x{i}" for i in range(8000)), clip=1.0)
    coalition = Coalition(colluders, dropouts)
    coalition.honest(sites)
    # Only to state the budget of the plan, which is then converted back to mu; the audit compares mu.
    delta = 1e-5
    names = [f"site {s}" for s in range(sites)]
    terms = Terms(
        sites=tuple(PlannedSite(name, units if declare_units else None) for name in names),
        parents={} if fan_out is None else balanced(names, fan_out),
        epsilon=mu if noise == "laplace" else accountant.epsilon(mu, delta),
        delta=delta,
        scheme=scheme,
        coalition=coalition,
    )
    requests = resolve(chosen, terms).requests(terms.adjacency)
    # A publication needs public numbers of units: they determine the shape of what is sent.
    if any(isinstance(each, PrivatePublication) for each in requests):
        terms = replace(terms, sites=tuple(replace(site, units=units) for site in terms.sites))
    plan = make_plan(chosen, terms, "audit", noise=noise)
    if noise == "laplace" and len(plan.releases) > 1:
        raise BadParameter("the audit attacks Laplace noise in studies of one release, and this one has several")
    if any(release.sampled is not None for release in plan.releases):
        raise BadParameter(
            "the audit attacks only releases in which every unit takes part, and this plan draws secret samples: set "
            "rate = 1, or audit another study"
        )
    chosen = resolve(chosen, plan)
    # The release with the fewest numbers determines the number of studies.
    shortest = min(numbers(release, units) for release in plan.releases)
    needed = math.ceil(samples / shortest)
    if needed > MOST_STUDIES:
        raise BadParameter(
            f"{samples} samples of a program that releases {shortest} numbers take {needed} studies, and "
            f"{MOST_STUDIES} are the most: ask for at most {MOST_STUDIES * shortest} samples, or audit a program that "
            "releases more numbers"
        )
    # The pair of units that the adversary distinguishes best, over the whole study.
    draw = candidates(chosen)
    one, other = worst_pair(rehearsed(chosen, draw, units), draw, noise=noise)
    attacks: dict[int, list[Attack]] = {}
    distances: dict[int, float] = {}
    drawn: dict[str, list[marginals.Stream]] = {}
    shares: dict[str, list[Floats]] = {}
    words: list[tuple[str, NDArray[np.uint64]]] = []
    with TemporaryDirectory() as folder:
        for number in range(needed):
            # The two data sets alternate, so that an error in either of them is found.
            world = (one, other) if number % 2 == 0 else (other, one)
            study = replace(plan, study=f"audit {number}")
            run = _Run(study, chosen, world, draw, units, Path(folder), site_kind, colluders, helper_apart)
            for round, (attack, moved) in enumerate(run.attack()):
                attacks.setdefault(round, []).append(attack)
                distances[round] = max(distances.get(round, 0.0), moved)
            for name, stream in run.drawn():
                drawn.setdefault(name, []).append(stream)
            for name, share in run.shares():
                shares.setdefault(name, []).append(share)
            words += run.words()
            on_step(number + 1, needed)
    # The round with the fewest values determines the width of the interval.
    sample_size = min(sum(each.seen for each in attack) for attack in attacks.values())
    reached, faults = _reached_mu(plan, attacks, distances)
    streams = {name: _stacked(parts) for name, parts in drawn.items()}
    # Sums of shares of Laplace noise overlap: the shares themselves are tested for independence, by their ranks.
    rng = np.random.default_rng(0)
    independent = {name: marginals.rank_scores(np.concatenate(parts), rng) for name, parts in shares.items()}
    independent |= {name: s.values.ravel() for name, s in streams.items() if not shares}
    faults += tuple(dependence.says for dependence in correlation.search(independent))
    faults += tuple(dependence.says for dependence in correlation.same_words(words))
    faults += marginals.search(streams)
    # Relative standard error of a standard deviation from n normal values: 1 / sqrt(2 n); of the scale of n Laplace
    # values: 1 / sqrt(n).
    error = Z / math.sqrt(sample_size if noise == "laplace" else 2 * sample_size)
    return Finding(
        scheme.name,
        chosen.name,
        sites,
        colluders,
        dropouts,
        # mu of the study: the root of the sum of squares over its rounds.
        planned=accountant.compose(float(plan.mus(round)[VICTIM]) for round in attacks),
        claimed=accountant.compose(_claimed(plan, round, helper_apart) for round in attacks),
        reached=reached,
        low=reached * (1 - error),
        high=reached * (1 + error),
        samples=sample_size,
        helper_apart=helper_apart,
        faults=faults,
        fan_out=fan_out,
        noise=noise,
    )


def _claimed(plan: Plan, round: int, helper_apart: bool) -> float:
    """The mu of one release against this adversary.

    A coordinator that deals the cancelling noise subtracts it from every message. Against it only the site's own noise
    remains.
    """
    law = plan.law(round)
    if law.mechanism is NoiseMechanism.HELPER and not helper_apart:
        return float(dealer_mu(law, plan.release(round).sensitivity, plan.coalition)[VICTIM])
    return float(plan.mus(round)[VICTIM])


def _reached_mu(
    plan: Plan, attacks: Mapping[int, list[Attack]], distances: Mapping[int, float]
) -> tuple[float, tuple[str, ...]]:
    """The mu reached over all rounds, and the faults of the estimates' noise."""
    mus, streams = [], {}
    for round, same_round in attacks.items():
        law = plan.law(round)
        if law.decay > 0:
            # The scale is the mean of the absolute errors over all studies.
            noise = sum(each.noise * each.seen for each in same_round) / sum(each.seen for each in same_round)
            if noise == 0 or not all(each.errors.size for each in same_round):
                return math.inf, ("what the coalition knows adds up to the victim's numbers, with no noise left",)
            mus.append(distances[round] / noise)
            scores = marginals.normal_scores(np.stack([each.errors for each in same_round]) / noise)
            streams[f"the estimate{_of(round, attacks)}"] = marginals.Stream(
                scores, _STEEPEST * law.step / noise, planned=False, slack=Z / math.sqrt(scores.size)
            )
            continue
        squares = sum(each.noise**2 * each.seen for each in same_round)
        # An estimate without errors (`Attack.errors` is empty) reads the victim's numbers exactly.
        if squares == 0 or not all(each.errors.size for each in same_round):
            return math.inf, ("what the coalition knows adds up to the victim's numbers, with no noise left",)
        # pooled over all studies, since a single one may have few numbers
        noise = math.sqrt(squares / sum(each.seen for each in same_round))
        mus.append(distances[round] / noise)
        errors = np.stack([each.errors for each in same_round]) / noise
        slack = max(each.slack for each in same_round)
        streams[f"the estimate{_of(round, attacks)}"] = marginals.Stream(
            errors, law.step / noise, planned=False, slack=slack
        )
    dependences = correlation.search({name: stream.values.ravel() for name, stream in streams.items()})
    # The difference of two estimates with correlation r has variance 2 (1 - r) times that of one.
    rest = 1 - max((dependence.correlation for dependence in dependences), default=0.0)
    reached = accountant.compose(mus) / math.sqrt(rest) if rest > 1e-9 else math.inf
    return reached, tuple(dependence.says for dependence in dependences) + marginals.search(streams)


def _stacked(parts: list[marginals.Stream]) -> marginals.Stream:
    """One stream of all studies, with one row per study."""
    return replace(parts[0], values=np.stack([part.values for part in parts]))


def numbers(release: PlannedRelease, units: int) -> int:
    """Number of values that a site sends: the size of a sum, or of all published rows."""
    return release.size * (units if release.kind == "publication" else 1)


def _of(round: int, rounds: Collection[int]) -> str:
    """Clause with the number of the round, if there are several."""
    return f" in round {round + 1}" if len(rounds) > 1 else ""


class _Run:
    """One study. The first site is the victim, the last sites collude, and the sites before the colluders are lost."""

    def __init__(
        self,
        plan: Plan,
        algorithm: Algorithm,
        world: tuple[Floats, Floats],
        draw: Draw,
        units: int,
        folder: Path,
        site_kind: type[Site],
        colluders: int,
        helper_apart: bool,
    ) -> None:
        self._algorithm, self._world, self._helper_apart = algorithm, world, helper_apart
        # The seed depends on the length of the study's name only. The data need not differ between studies.
        rng = np.random.default_rng(len(plan.study))
        S, L = len(plan.sites), plan.coalition.dropouts
        self._colluding: list[ColludingSite] = []
        self._sites: list[Site] = []
        for s, planned in enumerate(plan.sites):
            rows = [draw(rng)[0] for _ in range(units)]
            if s == VICTIM:
                rows[0] = world[0]
            statistics = tuple({release.statistic for release in plan.releases})
            policy = Policy.throwaway(planned.name, folder / f"{s} {plan.study}.sqlite", statistics=statistics)
            if s >= S - colluders:
                self._colluding.append(ColludingSite(planned.name, Units.from_list(rows), policy))
                self._sites.append(self._colluding[-1])
            else:
                self._sites.append(site_kind(planned.name, Units.from_list(rows), policy))
        self._lost = {site.name for site in self._sites[S - colluders - L : S - colluders]}
        self._records = [record_draws(site) for site in self._sites]
        self._central: dict[int, Floats] = {}
        self._plan = pin(plan, self._sites)

    def drawn(self) -> Iterator[tuple[str, marginals.Stream]]:
        """Yield all draws of all sites and of a trusted coordinator, divided by their planned standard deviation, with
        a name for each. Noise that a site failed to draw is zero."""
        rounds = range(self._plan.rounds)
        for round, steps in self._central.items():
            law = self._plan.law(round)
            if law.decay > 0:
                scores, step = marginals.normal_scores(steps * law.decay), _STEEPEST * law.decay
            else:
                scores, step = steps * (law.step / law.central), law.step / law.central
            yield f"the noise of the coordinator{_of(round, rounds)}", marginals.Stream(scores, step)
        yield from self._sums_of_shares()
        for s, records in enumerate(self._records):
            for round, record in enumerate(records):
                law = self._plan.law(round)
                if law.decay > 0:
                    continue
                none = np.zeros(numbers(self._plan.release(round), len(self._sites[s].units)))
                for name, values in {"noise": none, **record.draws}.items():
                    if (std := planned_size(law, s, name)) > 0:
                        step = 1 / std if law.step > 0 else 0.0
                        yield f"the {name} of site {s}{_of(round, rounds)}", marginals.Stream(values / std, step)

    def shares(self) -> Iterator[tuple[str, Floats]]:
        """Yield the shares of Laplace noise of all sites that were asked, in steps, with a name for each. A share that
        a site failed to draw is zero."""
        rounds = range(self._plan.rounds)
        for round in rounds:
            law = self._plan.law(round)
            if law.decay == 0 or law.mechanism is NoiseMechanism.TRUSTED:
                continue
            none = np.zeros(self._plan.release(round).size)
            asked = [(s, records[round]) for s, records in enumerate(self._records) if len(records) > round]
            for s, record in asked:
                yield (
                    f"the noise of site {s}{_of(round, rounds)}",
                    np.asarray(record.draws.get("noise", none), dtype=np.float64),
                )

    def _sums_of_shares(self) -> Iterator[tuple[str, marginals.Stream]]:
        """Yield the sums of shares that should be Laplace noise, as normal scores: for every site that of its share and
        of those that follow on the roster, as many as make the whole noise."""
        # An audit of Laplace noise has one round.
        law, shares = self._plan.law(0), list(self.shares())
        if shares:
            for s in range(len(shares)):
                together = [shares[(s + k) % len(shares)][1] for k in range(law.parts)]
                # The scale b of discrete Laplace noise of parameter 1 - decay is 1 / log(1 / (1 - decay)) steps.
                scaled = np.sum(together, axis=0) * -math.log1p(-law.decay)
                name = f"{shares[s][0]} and of the next {law.parts - 1}"
                yield name, marginals.Stream(marginals.normal_scores(scaled), _STEEPEST * law.decay)

    def words(self) -> Iterator[tuple[str, NDArray[np.uint64]]]:
        """Yield the first words of the key stream of every sampler."""
        rounds = range(self._plan.rounds)
        for s, records in enumerate(self._records):
            for round, record in enumerate(records):
                yield f"the noise of site {s}{_of(round, rounds)}", record.words

    def attack(self) -> Iterator[tuple[Attack, float]]:
        """Run the study. Yield, for each round, the attack and the distance of the two data sets."""
        releases: list[tuple[Request, Release]] = []
        recorder = Recorder(self._sites, self._loses)
        conduct(self._plan, self._watched(releases), Tree(self._plan, recorder))
        for round, (request, release) in enumerate(releases):
            law = self._plan.law(round)
            contribution = partial(contributed, request)
            present = [s for s in self._sites if s.name in release.participants and s not in self._colluding]
            # the adversary knows the secret order: a worst case
            orders = [self._records[self._sites.index(s)][round].order for s in present]
            known = zip(present, orders, strict=True)
            sums = [law.factor[self._sites.index(s)] * contribution(s.units, order) for s, order in known]
            coalition_view = view(self._plan, round, recorder, self._colluding, release.value, self._helper_apart)
            centre = np.zeros_like(coalition_view)
            # Under these mechanisms the coalition sees one sum only.
            if law.mechanism in (NoiseMechanism.TRUSTED, NoiseMechanism.MASKED):
                summed = self._sites if law.mechanism is NoiseMechanism.TRUSTED else present
                totals = [law.factor[self._sites.index(s)] * contribution(s.units) for s in summed]
                centre[0] = np.sum(totals, axis=0)
                if law.central > 0 and law.step > 0:
                    sent = np.sum(np.rint(np.asarray(totals) / law.step), axis=0)
                    self._central[round] = np.rint(release.value / law.step) - sent
            else:
                centre[: len(sums)] = sums
            theirs = self._records[len(self._sites) - len(self._colluding) :]
            # The colluders' own noise should not help against the victim; `attack` includes it to find out.
            spare = [records[round].own for records in theirs if records[round].own.size]
            # Nor should what inner nodes read. Less the contributions in it, a vector without its masks would be noise
            # of the release.
            plain = {s.name: law.factor[at] * contribution(s.units) for at, s in enumerate(self._sites)}
            for names, vector in masked_at_nodes(self._plan, round, recorder):
                spare.append(vector - np.sum([plain[name] for name in names], axis=0))
            # The other units are included: a unit must not change their contributions either.
            rest = list(self._sites[VICTIM].units.each())[1:]
            # Distance of the two data sets in the released statistic, with all other units equal.
            here, there = (contribution(Units.from_list([unit, *rest])) for unit in self._world)
            if law.decay > 0:
                moved = np.linalg.norm(here - there, ord=1)
                yield laplace_attack(coalition_view, centre), float(law.factor[VICTIM] * moved)
                continue
            yield attack(coalition_view, centre, spare), float(law.factor[VICTIM] * np.linalg.norm(here - there))

    def _loses(self, site: str, message: Message) -> bool:
        """Whether a message to a site is lost. The first steps of the secure sum are delivered, so that the loss occurs
        in the round."""
        return (
            site in self._lost
            and isinstance(message, Prepare | Contribute | Secure)
            and not (isinstance(message, Secure) and message.step in ("advertise", "share", "receive"))
        )

    def _watched(self, releases: list[tuple[Request, Release]]) -> Any:
        """The program as a generator that also appends its requests and releases to `releases`."""
        # As a generator around the program, so that the study itself runs unchanged.
        program = self._algorithm.program(self._plan.adjacency)
        request = next(program)
        while True:
            release = yield request
            releases.append((request, release))
            try:
                request = program.send(release)
            except StopIteration as stop:
                return stop.value
