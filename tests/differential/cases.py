"""Cases: from one integer a plan, its siblings, a pair of neighbours and a script of messages.

A case is public in all of its parts but the pair. Its subject follows from its seed, so that any run of consecutive
seeds plays every algorithm and every statistic.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from differential.mutate import (
    MUTATIONS,
    Asked,
    as_statistic,
    mutated_request,
    mutation_for,
    pick,
)
from differential.neighbours import MODEL, MOST_ROWS, PLACES, AnyPair, Change, Rng, TablePair
from differential.questions import BARE, DELTA, EPSILONS, OWN, QUESTIONS, Ask, ask_statistic, is_published
from helpers import brain_images
from zerosum.algorithms import ALGORITHMS
from zerosum.algorithms import build as build_algorithm
from zerosum.algorithms.program import planned
from zerosum.compute.statistic import BoundedMap
from zerosum.errors import ZerosumError
from zerosum.kernel.events import Sampling
from zerosum.kernel.laplace import LAPLACE_SCHEMES
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Noise, PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.papers.programs import PROGRAMS
from zerosum.protocol.messages import Contribute, Dismiss, Message, Prepare, Propose, Secure
from zerosum.secagg.keys import Identity
from zerosum.statistics import BUILTIN, find
from zerosum.study.planning import Provenance, make_plan, resolve

TARGET, OTHERS = "s1", ("s0", "s2")  # the site that is fuzzed stands between the others on the roster
NAMES = ("s0", "s1", "s2")
IDENTITIES = {name: Identity.of(hashlib.sha256(name.encode()).digest()) for name in NAMES}
OTHER_UNITS = 12  # of each of the other sites, whose data are public
MOST_REQUESTS = 5  # of a program: later rounds repeat the same kinds of statistics
SAMPLED = "sampled phase"
SUBJECTS = (
    *(f"algorithm {name}" for name in sorted([*ALGORITHMS, *PROGRAMS])),
    *(f"statistic {name}" for name in sorted(BUILTIN)),
    SAMPLED,
)


@dataclass(frozen=True)
class Injection:
    """A message that the site gets before its own frame number `at`; without a message that frame comes twice."""

    at: int
    message: Message | None
    garbled: int | None = None  # the seed of changes in the frame's bytes


@dataclass(frozen=True)
class Case:
    """One game: everything that is public about it, and the pair of data sets."""

    seed: int
    subject: str
    pair: AnyPair
    plan: Plan
    siblings: tuple[Plan, ...]  # proposed too, before the plan itself
    mutations: tuple[tuple[str, ...], ...]  # of the plan and of each sibling
    requests: tuple[Request, ...]
    injections: tuple[Injection, ...]
    tail: tuple[Message, ...]  # sent after the study
    policy: dict[str, Any]

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.plan, *self.siblings)


class NoCase(Exception):
    """The generator made no plan of a subject: a fault of the generator."""


def case(seed: int, subject: str | None = None) -> Case:
    """The case of a seed, the same in every process; of a subject where one is stated."""
    subject = subject or SUBJECTS[seed % len(SUBJECTS)]
    rng = np.random.default_rng(seed)
    failures: list[str] = []
    for _ in range(20):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of programs that are told made-up numbers
                return _case(seed, subject, rng)
        except ZerosumError as error:  # a draw that is no study, such as a publication under add-remove
            failures.append(str(error))
    raise NoCase(f"seed {seed}: no plan of {subject}: {failures[-1]}")


def _case(seed: int, subject: str, rng: Rng) -> Case:
    if subject == SAMPLED:
        return _sampled(seed, rng)
    kind, name = subject.split(" ", 1)
    ask = QUESTIONS[name](rng) if kind == "algorithm" else ask_statistic(name, rng)
    change: Change = pick(rng, ["replace", "replace", "replace", "add", "remove"])
    pair = ask.pair(rng, change)
    if isinstance(pair, TablePair) and pair.format != "npy":
        # By the seed and not by a draw, so that the rest of a case does not depend on the places there are.
        place = PLACES[(seed + seed // len(SUBJECTS)) % len(PLACES)]
        if place in ("file", "memory") or (pair.format != "sqlite" and not pair.spelled):
            pair = replace(pair, place=place)
    terms = _terms(rng, pair)
    base, requests = _asked(rng, ask, terms, seed)
    plan, done = _mutated(rng, base, pair.kind, int(pick(rng, [0, 0, 1, 1, 2])))
    siblings = [_mutated(rng, base, pair.kind, int(rng.integers(1, 3))) for _ in range(int(rng.integers(6)))]
    siblings = [(replace(each, study=f"{base.study} {at}"), how) for at, (each, how) in enumerate(siblings)]
    faithful = float(pick(rng, [1.0, 0.8, 0.4]))  # how often a request is the one that was planned
    requests = tuple(each if rng.random() < faithful else mutated_request(rng, each) for each in requests)
    return Case(
        seed,
        subject,
        pair,
        plan,
        tuple(each for each, _ in siblings),
        (done, *(how for _, how in siblings)),
        requests,
        tuple(_injections(rng, plan, requests)),
        tuple(_tail(rng, plan, requests)),
        _policy(rng, pair),
    )


def _sampled(seed: int, rng: Rng) -> Case:
    """A phase of sub-sampled sums, with an attempt. Its accounting takes a second, and many at a smaller epsilon, so
    that there is one plan of it and no mutated one; requests are mutated as always."""
    ask = replace(ask_statistic("vector_sum", rng), given={"columns": 2, "clip": 1.0})
    ask = replace(ask, algorithm="mean", kind="table", columns=("age", "bmi"), parameters={"missing": {"bmi": 0.0}})
    ask = replace(ask, preprocessing={})
    pair = ask.pair(rng, "replace")
    terms = replace(_terms(rng, pair), epsilon=20.0, attempts=1, unit="person", scheme=Scheme("local"))
    request = PrivateSum(find("vector_sum")(**ask.given), 1.0, Sampling(0.25, 2))
    question = Question.of(ask.columns, ask.parameters)
    plan = Plan.of(terms, f"fuzz {seed}", "mean", (planned(request, terms.adjacency),), question)
    requests = (request, request)
    tail = (Contribute(1, 1, request), *_tail(rng, plan, requests))
    injections = tuple(_injections(rng, plan, requests))
    return Case(seed, SAMPLED, pair, plan, (), ((),), requests, injections, tail, _policy(rng, pair))


def _policy(rng: Rng, pair: AnyPair) -> dict[str, Any]:
    """The site's own policy: the account of people, or of records where nobody owns several."""
    return {
        "population": "people",
        "adjacency": pair.adjacency,
        "epsilon": 1e4,
        "minimum_units": 1,
        "rows_per_unit": MOST_ROWS if rng.integers(4) else None,
        "trusted_coordinator": bool(rng.integers(2)),
        "publications": True,
        "statistics": (*sorted(BUILTIN), OWN),
    }


# ---- plans -----------------------------------------------------------------------------------------------------

_SCHEMES = ["local"] * 12 + ["secure-sum"] * 4 + ["zero-sum", "pairwise", "cape-published", "cape-helper", "pooled"]


def _terms(rng: Rng, pair: AnyPair) -> Terms:
    adjacency = Adjacency(pair.adjacency)
    counted = adjacency is Adjacency.REPLACE_ONE and bool(rng.integers(3))
    units = {TARGET: pair.units, **dict.fromkeys(OTHERS, OTHER_UNITS)}
    return Terms(
        sites=tuple(
            PlannedSite(name, units[name] if counted else None, identity=IDENTITIES[name].public.hex())
            for name in NAMES
        ),
        epsilon=float(pick(rng, EPSILONS)),
        delta=DELTA,
        scheme=Scheme(str(pick(rng, _SCHEMES))),
        coalition=Coalition(1),
        unit="record" if rng.integers(8) == 0 else "person",
        adjacency=adjacency,
        attempts=int(pick(rng, [0, 0, 1, 2])),
    )


def _asked(rng: Rng, ask: Ask, terms: Terms, seed: int) -> tuple[Plan, tuple[Request, ...]]:
    """The base plan of a question, and what its program asks for, given made-up releases."""
    made_of = Provenance(_preprocessing(ask), _files(ask))
    if ask.statistic is None:
        algorithm = build_algorithm(ask.algorithm, {**ask.parameters, "columns": ask.columns})
        plan = make_plan(algorithm, terms, "fuzz", made_of, "auto")
        program = resolve(algorithm, plan).program(plan.adjacency)
        requests = tuple(_driven(np.random.default_rng(seed), program, terms))
    else:
        requests, releases = _raw(rng, ask, terms)
        question = Question.of(ask.columns, ask.parameters, made_of.preprocessing, made_of.files)
        plan = Plan.of(terms, "fuzz", ask.algorithm, releases, question)
    return replace(plan, study=f"fuzz {seed}"), requests


def _preprocessing(ask: Ask) -> dict[str, Any]:
    if ask.design is not None:
        return {**ask.preprocessing, "design": ask.design.model_dump(mode="json")}
    return dict(ask.preprocessing)


def _files(ask: Ask) -> dict[str, str]:
    """The digests of public files, as `Pair.write` writes them at the site."""
    if ask.kind == "documents":
        return {"vocabulary": hashlib.sha256(("\n".join(ask.columns) + "\n").encode()).hexdigest()}
    if ask.design is not None and ask.design.imputed:
        return {"imputation": hashlib.sha256(MODEL.content().encode()).hexdigest()}
    return {ask.grid: _grid_digest(ask.grid)} if ask.kind == "images" else {}


@lru_cache
def _grid_digest(grid: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = brain_images.save(
            Path(folder) / f"{grid}.nii", brain_images.mask() if grid == "mask" else brain_images.atlas()
        )
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _driven(rng: Rng, program: Any, terms: Terms) -> Iterator[Request]:
    """The requests of a program that is told made-up sums: they depend on no data. One that gives up at such numbers
    is asked no further."""
    with suppress(StopIteration, ZerosumError, ArithmeticError, ValueError, np.linalg.LinAlgError):
        request = next(program)
        for _ in range(MOST_REQUESTS):
            yield request
            size, counts = request.statistic.size, tuple(site.units or OTHER_UNITS for site in terms.sites)
            published = isinstance(request, PrivatePublication)
            value = rng.normal(size=(sum(counts), size) if published else size)
            units = None if terms.adjacency is Adjacency.ADD_REMOVE else float(sum(counts))
            request = program.send(Release(value, 0.1, units, NAMES, counts if published else ()))


def _raw(rng: Rng, ask: Ask, terms: Terms) -> tuple[tuple[Request, ...], tuple[PlannedRelease, ...]]:
    """One or two releases of a statistic, as sums, as phases, or as publications."""
    name, count = str(ask.statistic), int(rng.integers(1, 3))
    try:
        statistic = find(name)(**ask.given)
    except (ZerosumError, ImportError):
        if name not in BARE:
            raise
        bare = as_statistic(Asked(name, ask.given))
        size = len(ask.given["weights"])
        release = PlannedRelease(name, 2.0, 1.0, size, 1.0, ask.given["columns"])
        return (PrivateSum(bare),), (release,)
    if is_published(name) and rng.integers(3):
        published = PrivatePublication(cast("BoundedMap", statistic), 1 / count)
        return (published,) * count, (planned(published, terms.adjacency),) * count
    sampling = Sampling(1.0, 2) if rng.integers(6) == 0 else None
    request = PrivateSum(statistic, 1 / count, sampling)
    # Laplace noise where the statistic and the scheme can have it; other draws stay as they are.
    able = statistic.sensitivity_l1(terms.adjacency) is not None and terms.scheme.name in LAPLACE_SCHEMES
    noise: Noise = "laplace" if able and sampling is None and rng.integers(2) else "gaussian"
    releases = (planned(request, terms.adjacency, noise),) * count
    return (request,) * sum(each.steps for each in releases), releases


def _mutated(rng: Rng, plan: Plan, kind: str, times: int) -> tuple[Plan, tuple[str, ...]]:
    """The plan after some mutations; what `Plan` itself refuses is left as it was."""
    done: list[str] = []
    for _ in range(times):
        name = mutation_for(rng, plan, kind)
        with suppress(ZerosumError, TypeError, ValueError, LookupError):
            changed = MUTATIONS[name][0](rng, plan)
            changed = Plan.from_json(changed.to_json())  # as it arrives
            _ = changed.mus(0)
            if name == "design" and "design" not in plan.question.preprocessing:
                name = "missing_tokens"  # which is mutated instead
            if changed.digest() != plan.digest():
                plan, done = changed, [*done, name]
    return plan, tuple(done)


# ---- scripts ---------------------------------------------------------------------------------------------------


def _injections(rng: Rng, plan: Plan, requests: tuple[Request, ...]) -> Iterator[Injection]:
    if not requests or rng.integers(2):
        return
    for _ in range(int(rng.integers(1, 4))):
        garbled = int(rng.integers(1 << 30)) if rng.integers(8) == 0 else None
        message = None if rng.integers(3) == 0 else _stray(rng, plan, requests)
        garbled = None if message is None else garbled  # a frame of the secure sum is random itself
        yield Injection(int(rng.integers(6)), message, garbled)


def _tail(rng: Rng, plan: Plan, requests: tuple[Request, ...]) -> Iterator[Message]:
    for _ in range(int(rng.integers(4))):
        if requests:
            yield _stray(rng, plan, requests)
    if rng.integers(3) == 0:
        yield Dismiss()


def _stray(rng: Rng, plan: Plan, requests: tuple[Request, ...]) -> Message:
    """A message that an honest coordinator would not send now: another round or attempt, a mutated request, a step of
    a secure sum, the plan again."""
    round = int(rng.integers(len(requests) + 1))
    attempt = int(pick(rng, [0, 0, 1, 2]))
    request = requests[min(round, len(requests) - 1)]
    makers: list[Callable[[], Message]] = [
        *[lambda: Contribute(round, attempt, mutated_request(rng, request))] * 5,
        *[lambda: Contribute(round, attempt, request)] * 2,
        lambda: Prepare(round, attempt),
        lambda: Propose(plan, bool(rng.integers(2))),
        lambda: Secure(pick(rng, ["advertise", "share", "receive", "sign", "open"]), attempt, rng.bytes(40)),
    ]
    return makers[int(rng.integers(len(makers)))]()
