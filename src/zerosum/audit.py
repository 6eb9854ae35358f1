"""The audit: an adversary on real transcripts. A guarantee nobody attacks is a hope.

A study runs over the in-process engine with synthetic data. A recorder keeps every message the coordinator reads, and
the colluding sites hand over everything they drew or were dealt. From that the adversary builds its view of each
round: one row per thing it knows, one column per number of the release, each column an independent copy of the same
noise. It is told nothing about the scheme's mathematics. It learns how its rows vary together on half of the columns,
takes the linear discriminant for a change in the victim's contribution, which is optimal for Gaussian views, and
measures on the other half how large its noise is. Two neighbouring worlds, one unit of the victim replaced by the
worst other one that a numerical search finds, are as far apart as their contributions; that distance over that noise
is the mu reached.

The claim fails when it lies below the interval around the mu reached. The interval is Z standard errors wide on either
side, relative width Z/sqrt(2n): a sound claim fails once in 3.4 million checks. It works for views that are Gaussian
or nearly so, which all schemes here are at mu of 1 and above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zerosum.algorithms import Algorithm, Mean
from zerosum.algorithms.program import RangedAlgorithm
from zerosum.engines.coordinator import conduct
from zerosum.engines.in_process import InProcess
from zerosum.engines.scripted import drive
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.plan import Plan, PlannedSite
from zerosum.kernel.request import Contribute, Contribution, Lost, Message, Prepare, PrivateSum, Release, Reply, Secure
from zerosum.kernel.schemes import Floats, Mixing, Scheme, draw_step
from zerosum.kernel.statistic import Adjacency, BoundedStatistic
from zerosum.kernel.units import Units
from zerosum.kernel.view import Coalition
from zerosum.site.contribute import Site
from zerosum.site.noise import NoiseShare, Steps
from zerosum.site.policy import Policy
from zerosum.statistics import build
from zerosum.study import make_plan, pin, settle

Z = 5.0
VICTIM = 0


@dataclass(frozen=True)
class Finding:
    """What an audit came to."""

    scheme: str
    algorithm: str
    sites: int
    colluders: int
    dropouts: int
    claimed: float
    reached: float
    low: float
    high: float
    samples: int

    @property
    def holds(self) -> bool:
        """Whether the claim is not below what an attacker reaches."""
        return self.claimed >= self.low

    @property
    def tight(self) -> bool:
        """Whether the claim is what an attacker reaches."""
        return self.low <= self.claimed <= self.high


# ---- what the coalition sees ---------------------------------------------------------------------------------


class _ColludingShare(NoiseShare):
    """A colluder's noise: everything it draws or is dealt, it hands over."""

    handed: list[Floats]
    last: Any = None

    def draw(self) -> Steps:
        drawn = super().draw()
        self.handed.append(np.asarray(drawn * draw_step(self._law), dtype=np.float64))
        return drawn

    def noisy(self, total: Floats, dealt: Any) -> Floats | Steps:
        if self._law.mixing is Mixing.HELPER:
            self.handed.append(dealt[0])
        self.last = super().noisy(total, dealt)
        return self.last  # type: ignore[no-any-return]  # what super returns

    def _stream(self, other: int, key: bytes) -> Floats:
        stream = super()._stream(other, key)
        self.handed.append(stream)
        return stream


class ColludingSite(Site):
    """A site that follows the protocol and tells the coordinator everything."""

    def __init__(self, name: str, units: Units, policy: Policy) -> None:
        super().__init__(name, units, policy)
        self.told: list[_ColludingShare] = []

    def _new_share(self, *arguments: Any) -> NoiseShare:
        share = _ColludingShare(*arguments)
        share.handed = []
        self.told.append(share)
        return share


class Recorder:
    """An engine that keeps what passes: every byte the coordinator can read."""

    def __init__(self, engine: InProcess) -> None:
        self._engine = engine
        self.seen: list[tuple[Message, Reply]] = []

    def exchange(self, messages: Mapping[str, Message]) -> Iterator[Reply]:
        for reply in self._engine.exchange(messages):
            if not isinstance(reply, Lost):
                self.seen.append((messages[reply.site], reply))
            yield reply


def _view(plan: Plan, round: int, recorder: Recorder, colluding: list[ColludingSite], released: Floats) -> Floats:
    """The rows of one round, the victim's first."""
    law = plan.law(round)
    shares = [site.told[round] for site in colluding]
    if law.mixing is Mixing.TRUSTED:
        return released[None, :]
    if law.mixing is Mixing.MASKED:
        # the coalition takes its own vectors out of the sum; the masked ones are uniform and tell nothing more
        theirs = sum((np.asarray(share.last, dtype=np.float64) * law.step for share in shares), np.zeros(len(released)))
        return (released - theirs)[None, :]
    names = {site.name for site in colluding}
    rows, known = [], []
    for message, reply in recorder.seen:
        if isinstance(message, Contribute) and message.round == round and isinstance(reply, Contribution):
            if law.mixing is Mixing.HELPER:
                known.append(message.dealt[1])
            if law.mixing is Mixing.BROADCAST and not known:
                known.append(np.asarray(message.dealt[0], dtype=np.float64) * draw_step(law))
            if reply.site not in names:
                rows.append(np.asarray(reply.payload, dtype=np.float64) * (law.step or 1.0))
    return np.vstack([*rows, *known, *(row for share in shares for row in share.handed)])


# ---- the adversary ---------------------------------------------------------------------------------------------


def reached_noise(view: Floats, centre: Floats) -> tuple[float, int]:
    """The noise left in the best unbiased estimate of the victim's numbers, and on how many it was measured.

    `centre` is what the rows would be without noise, which the adversary of differential privacy knows.
    """
    noise = view - centre
    half = noise.shape[1] // 2
    if half < 50 * (len(noise) - 1):
        raise BadParameter(
            f"a release of {noise.shape[1]} numbers is too short to attack this scheme, whose view has {len(noise)} "
            f"parts: audit a program that releases at least {100 * (len(noise) - 1)} numbers"
        )
    pick = np.zeros(len(noise))
    pick[0] = 1.0
    spread = np.sqrt(np.mean(noise[:, :half] ** 2, axis=1))
    scaled = noise / spread[:, None]
    covariance = scaled[:, :half] @ scaled[:, :half].T / half
    direction = np.linalg.lstsq(covariance, pick / spread, rcond=1e-13)[0] / spread
    score = direction @ noise[:, half:]
    return float(np.sqrt(np.mean(score**2)) / abs(direction[0])), noise.shape[1] - half


def worst_pair(releases: Sequence[tuple[BoundedStatistic, float]], draw: Draw, seed: int = 0) -> tuple[Floats, Floats]:
    """Two units whose contributions to a whole study are as far apart as a search can find, each release of the study
    weighing by its share of the budget: a pool of candidates, then small moves."""
    rng = np.random.default_rng(seed)
    pool = [unit for _ in range(60) for unit in draw(rng)]
    weights = [math.sqrt(share) / stat.sensitivity(Adjacency.REPLACE_ONE) for stat, share in releases]

    def said(unit: Floats) -> Floats:
        parts = [w * stat.total(Units.from_list([unit])) for w, (stat, _share) in zip(weights, releases, strict=True)]
        return np.concatenate(parts)

    values = np.array([said(unit) for unit in pool])
    gram = values @ values.T
    squares = np.diag(gram)
    apart = squares[:, None] + squares[None, :] - 2 * gram
    first, second = np.unravel_index(int(np.argmax(apart)), apart.shape)
    pair = [pool[int(first)], pool[int(second)]]

    def distance(units: list[Floats]) -> float:
        one, other = (said(unit) for unit in units)
        return float(np.linalg.norm(one - other))

    best, width = distance(pair), 0.3
    for move in range(150):
        which = move % 2
        tried = list(pair)
        scale = float(np.max(np.abs(pair[which]))) or 1.0
        tried[which] = pair[which] + width * scale * rng.normal(size=pair[which].shape)
        found = distance(tried)
        if found > best:
            pair, best = tried, found
        else:
            width = max(0.9 * width, 1e-3)
    return pair[0], pair[1]


# ---- the audit ---------------------------------------------------------------------------------------------------


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
    forget_colluders: bool = False,
    site_kind: type[Site] = Site,
    on_step: Callable[[int, int], None] = lambda done, planned: None,
) -> Finding:
    """Attack a scheme running a program, until `samples` numbers of noise were seen.

    `declare_units` makes counts public in the plan, as combining means needs them. `forget_colluders` plans as if
    nobody colluded, one of the mistakes an audit must find.
    """
    if scheme.name == "non-private":
        raise BadParameter("the non-private scheme claims nothing that could be audited")
    chosen = algorithm or Mean(columns=tuple(f"x{i}" for i in range(8000)), clip=1.0)
    coalition = Coalition(colluders, dropouts)
    coalition.honest(sites)
    delta = 1e-5
    plan = make_plan(
        chosen,
        [PlannedSite(f"site {s}", units if declare_units else None) for s in range(sites)],
        name="audit",
        epsilon=accountant.epsilon(mu, delta),
        delta=delta,
        scheme=scheme,
        coalition=Coalition(0, dropouts) if forget_colluders else coalition,
        results_to_sites=not forget_colluders,
    )
    chosen = settle(chosen, plan)
    draw = candidates(chosen)
    one, other = worst_pair(rehearsed(chosen, draw, units), draw)
    needed = math.ceil(samples / min(release.size for release in plan.releases))
    squares: dict[int, list[float]] = {}
    counts: dict[int, int] = {}
    distances: dict[int, float] = {}
    with TemporaryDirectory() as folder:
        for number in range(needed):
            world = (one, other) if number % 2 == 0 else (other, one)
            study = replace(plan, study=f"audit {number}")
            run = _Run(study, chosen, world, draw, units, Path(folder), site_kind, colluders)
            for round, (noise, seen, moved) in enumerate(run.attack()):
                squares.setdefault(round, []).append(noise**2 * seen)
                counts[round] = counts.get(round, 0) + seen
                distances[round] = max(distances.get(round, 0.0), moved)
            on_step(number + 1, needed)
    noises = {round: math.sqrt(sum(squares[round]) / counts[round]) for round in squares}
    reached = accountant.compose(distances[round] / noises[round] for round in noises)
    claimed = accountant.compose(float(plan.mus(round)[VICTIM]) for round in noises)
    seen = min(counts.values())
    error = Z / math.sqrt(2 * seen)
    return Finding(
        scheme.name,
        chosen.name,
        sites,
        colluders,
        dropouts,
        claimed,
        reached,
        reached * (1 - error),
        reached * (1 + error),
        seen,
    )


Draw = Callable[[np.random.Generator], list[Floats]]


def rehearsed(algorithm: Algorithm, draw: Draw, units: int) -> list[tuple[BoundedStatistic, float]]:
    """What a study of this algorithm asks for, played without noise, and the share of each release: later requests
    depend on earlier results, and an attacker knows about what they will be."""
    rng = np.random.default_rng(1)
    table = Units.from_list([draw(rng)[0] for _ in range(units)])
    asked: list[tuple[BoundedStatistic, float]] = []

    def answer(request: PrivateSum) -> Release:
        statistic = build(request.statistic, request.params)
        asked.append((statistic, request.share))
        return Release(statistic.total(table), 0.0, float(units), ())

    drive(algorithm.program(Adjacency.REPLACE_ONE), answer)
    return asked


def candidates(algorithm: Algorithm) -> Draw:
    """How the search draws units of an algorithm: single columns at their bounds, corners, and all columns at many
    scales; each with its mirror image."""
    columns = len(algorithm.columns)

    def draw(rng: np.random.Generator) -> list[Floats]:
        if isinstance(algorithm, RangedAlgorithm):
            row = np.zeros(columns)
            kind = rng.integers(3)
            if kind == 0:
                row[rng.integers(columns)] = algorithm.radius
            elif kind == 1:
                row = rng.choice([-1.0, 1.0], columns) * algorithm.radius / np.sqrt(columns)
            else:
                row = rng.normal(size=columns)
                row *= algorithm.radius * 10 ** rng.uniform(-1, 1) / np.linalg.norm(row)
            return [(algorithm.middle + side * algorithm.half * row)[None, :] for side in (1, -1)]
        if algorithm.categories:
            kinds = len(next(iter(algorithm.categories.values())))
            return [np.full((1, columns), float(kind)) for kind in rng.integers(kinds, size=2)]
        scale = 10 ** (rng.uniform(-1, 2) if rng.integers(8) else rng.uniform(-170, 150))
        rows = scale * rng.standard_t(3, size=(algorithm.rows_of_a_unit, columns))
        if rng.integers(2):  # as far from anybody else as can be: one column alone, or few
            rows = np.outer(rows[:, 0], rng.normal(size=columns) * (rng.random(columns) < 1 / columns))
        return [rows, -rows]

    return draw


class _Run:
    """One study with a coalition of the last sites, the victim first, and losses just before the colluders."""

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
    ) -> None:
        self._algorithm, self._world = algorithm, world
        rng = np.random.default_rng(len(plan.study))
        S, L = len(plan.sites), plan.coalition.dropouts
        self._colluding: list[ColludingSite] = []
        self._sites: list[Site] = []
        for s, planned in enumerate(plan.sites):
            rows = [draw(rng)[0] for _ in range(units)]
            if s == VICTIM:
                rows[0] = world[0]
            policy = Policy(
                population=planned.name,
                data="synthetic",
                epsilon=1e6,
                minimum_units=1,
                minimum_colluders=0,
                statistics=tuple({release.statistic for release in plan.releases}),
                ledger=folder / f"{s} {plan.study}.sqlite",
            )
            if s >= S - colluders:
                self._colluding.append(ColludingSite(planned.name, Units.from_list(rows), policy))
                self._sites.append(self._colluding[-1])
            else:
                self._sites.append(site_kind(planned.name, Units.from_list(rows), policy))
        self._lost = {site.name for site in self._sites[S - colluders - L : S - colluders]}
        self._plan = pin(plan, self._sites)

    def attack(self) -> Iterator[tuple[float, int, float]]:
        """For each round: the noise reached, on how many numbers, and how far the two worlds are apart."""
        releases: list[tuple[PrivateSum, Release]] = []
        recorder = Recorder(InProcess(self._sites, self._loses))
        conduct(self._plan, self._algorithm.requests(self._plan.adjacency), self._watched(releases), recorder)
        for round, (request, release) in enumerate(releases):
            law = self._plan.law(round)
            statistic = build(request.statistic, request.params)
            present = [s for s in self._sites if s.name in release.participants and s not in self._colluding]
            sums = [law.factor[self._sites.index(s)] * statistic.total(s.units) for s in present]
            view = _view(self._plan, round, recorder, self._colluding, release.value)
            centre = np.zeros_like(view)
            if law.mixing in (Mixing.TRUSTED, Mixing.MASKED):
                everybody = self._sites if law.mixing is Mixing.TRUSTED else present
                totals = [law.factor[self._sites.index(s)] * statistic.total(s.units) for s in everybody]
                centre[0] = np.sum(totals, axis=0)
            else:
                centre[: len(sums)] = sums
            noise, seen = reached_noise(view, centre)
            rest = list(self._sites[VICTIM].units.each())[1:]  # a unit must not change what others say either
            here, there = (statistic.total(Units.from_list([unit, *rest])) for unit in self._world)
            yield noise, seen, float(law.factor[VICTIM] * np.linalg.norm(here - there))

    def _loses(self, site: str, message: Message) -> bool:
        return (
            site in self._lost
            and isinstance(message, Prepare | Contribute | Secure)
            and not (isinstance(message, Secure) and message.step in ("advertise", "share", "receive"))
        )

    def _watched(self, releases: list[tuple[PrivateSum, Release]]) -> Any:
        """The program, with its requests and releases written down."""
        program = self._algorithm.program(self._plan.adjacency)
        request = next(program)
        while True:
            release = yield request
            releases.append((request, release))
            try:
                request = program.send(release)
            except StopIteration as stop:
                return stop.value
