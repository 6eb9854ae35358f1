"""Speed as ratios, measured side by side: masks against the bare cipher, the sampler against numpy's and OpenDP's.

What is compared runs in turn, several times over, so that a busy machine slows all of it; medians are reported with the
lowest and the highest value.

    python benchmarks/secure_sum.py secagg [--large] [--json]     # --large adds 1000 sites with 10 000 numbers: minutes
    python benchmarks/secure_sum.py sampler [--json]              # with OpenDP beside it where it is installed
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from zerosum.errors import BadParameter, CheckFailed
from zerosum.noise.sampler import Sampler
from zerosum.secagg import masks
from zerosum.secagg.collector import Collector
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import Roster, SiteSession

OnStep = Callable[[int, int], None]
Row = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """What several measurements of one thing gave."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def show(self, factor: float, digits: int, unit: str) -> str:
        middle, low, high = (f"{factor * value:.{digits}f}" for value in (self.median, self.lowest, self.highest))
        return f"{middle}{unit} ({low} to {high})"


@dataclass(frozen=True)
class Masking:
    """One site masks one vector: seconds, and how many times as long as the cipher needs for the same key streams.

    The cipher runs in one thread, masks in several: beside the ratios of time, which fall with every free core,
    `work_ratio` is that of the processor time of all threads, which a busy machine hardly changes.
    """

    sites: int
    size: int
    threads: int
    cipher: Spread
    add: Spread  # masks.add alone
    mask: Spread  # SiteSession.commit and mask: commitments, masks, signatures, message
    add_ratio: Spread
    mask_ratio: Spread
    work_ratio: Spread


@dataclass(frozen=True)
class Memory:
    """The coordinator's peak while it folds and unmasks, in vectors, the message it is reading among them."""

    sites: int
    size: int
    vectors: float


@dataclass(frozen=True)
class Cost:
    """Seconds of one site (over all sites) and of the coordinator, in set-up and in a round that nobody is lost in."""

    sites: int
    size: int
    colluders: int
    dropouts: int
    neighbours: int
    set_up: Spread
    set_up_coordinator: float
    round: Spread
    round_coordinator: float


@dataclass(frozen=True)
class SecaggFigures:
    """What `bench_secagg` found."""

    masking: Masking
    memory: tuple[Memory, ...]
    costs: tuple[Cost, ...]

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[Row]:
        """Name and value, for a table."""
        each = self.masking
        head = f"{each.size} numbers, {each.sites} sites"
        rows = [
            (f"{head}: cipher alone, one thread", each.cipher.show(1e3, 1, " ms")),
            (f"{head}: masks, threads: {each.threads}", each.add.show(1e3, 1, " ms")),
            (f"{head}: masked message, threads: {each.threads}", each.mask.show(1e3, 1, " ms")),
            ("masks / cipher", each.add_ratio.show(1, 2, "")),
            ("masked message / cipher", each.mask_ratio.show(1, 2, "")),
            ("masked message / cipher, processor time", each.work_ratio.show(1, 2, "")),
        ]
        for line in self.memory:
            name = f"coordinator's memory, {line.size} numbers, {line.sites} sites"
            rows.append((name, f"{line.vectors:.2f} vectors"))
        for cost in self.costs:
            name = f"{cost.sites} sites ({cost.neighbours} neighbours each), {cost.size} numbers"
            rows += [
                (f"{name}: set-up, a site", cost.set_up.show(1e3, 1, " ms")),
                (f"{name}: set-up, coordinator", f"{1e3 * cost.set_up_coordinator:.1f} ms"),
                (f"{name}: round, a site", cost.round.show(1e3, 2, " ms")),
                (f"{name}: round, coordinator", f"{1e3 * cost.round_coordinator:.1f} ms"),
            ]
        return rows


@dataclass(frozen=True)
class Draws:
    """Nanoseconds a draw at one sigma, and how many times as long the others take; OpenDP's where it is installed."""

    sigma: float
    ours: Spread
    numpy: Spread
    opendp: Spread | None
    ours_to_numpy: Spread
    opendp_to_ours: Spread | None


@dataclass(frozen=True)
class SamplerFigures:
    """What `bench_sampler` found."""

    draws: int
    opendp_draws: int
    lines: tuple[Draws, ...]

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[Row]:
        """Name and value, for a table."""
        rows = []
        for line in self.lines:
            name = f"sigma 2^{math.log2(line.sigma):g}"
            rows += [
                (f"{name}: exact discrete Gaussian", line.ours.show(1, 1, " ns")),
                (f"{name}: numpy's standard_normal", line.numpy.show(1, 1, " ns")),
                (f"{name}: OpenDP", "not installed" if line.opendp is None else line.opendp.show(1, 0, " ns")),
                (f"{name}: ours / numpy", line.ours_to_numpy.show(1, 2, "")),
            ]
            if line.opendp_to_ours is not None:
                rows.append((f"{name}: OpenDP / ours", line.opendp_to_ours.show(1, 0, "")))
        return rows


def bench_secagg(
    *,
    sites: int = 10,
    size: int = 1_000_000,
    repeats: int = 9,
    memory_sites: Sequence[int] = (4, 10, 30),
    cost_sites: Sequence[int] = (4, 10, 30, 100),
    cost_sizes: Sequence[int] = (1_000, 100_000),
    large: bool = False,
    on_step: OnStep = lambda done, planned: None,
) -> SecaggFigures:
    """The secure sum: masks against the cipher alone, the coordinator's memory, and cost against sites and size.

    `large` adds 1000 sites with 10 000 numbers each, all in this process: several minutes.
    """
    grid = [(s, d) for s in cost_sites for d in cost_sizes] + ([(1000, 10_000)] if large else [])
    planned, done = repeats + len(memory_sites) + len(grid), 0

    def step() -> None:
        nonlocal done
        done += 1
        on_step(done, planned)

    masking = _masking(sites, size, repeats, step)
    memory = []
    for count in memory_sites:
        memory.append(Memory(count, size, _peak(count, size) / (8 * size)))
        step()
    costs = []
    for count, numbers in grid:
        costs.append(_cost(count, numbers))
        step()
    return SecaggFigures(masking, tuple(memory), tuple(costs))


def bench_sampler(
    *,
    sigmas: Sequence[float] = (2.0**10, 2.0**20, 2.0**30),
    draws: int = 1_000_000,
    opendp_draws: int = 20_000,
    repeats: int = 9,
    on_step: OnStep = lambda done, planned: None,
) -> SamplerFigures:
    """The exact sampler, as a site uses it, against numpy's inexact normals and OpenDP's exact discrete Gaussian."""
    sampler, generator, lines = Sampler.system(), np.random.default_rng(), []
    for number, sigma in enumerate(sigmas):
        sampler.steps(1000, sigma)  # builds the table
        opendp = _opendp(sigma, opendp_draws)
        tasks: dict[str, Callable[[], object]] = {
            "ours": partial(sampler.steps, draws, sigma),
            "numpy": partial(generator.standard_normal, draws),
        }
        if opendp is not None:
            tasks["opendp"] = opendp

        def step(done: int, before: int = number * repeats) -> None:
            on_step(before + done, len(sigmas) * repeats)

        taken, _ = _side_by_side([tasks] * (repeats + 1), step)
        each = {name: [1e9 * t / (opendp_draws if name == "opendp" else draws) for t in taken[name]] for name in tasks}
        theirs = each.get("opendp")
        lines.append(
            Draws(
                sigma,
                Spread.of(each["ours"]),
                Spread.of(each["numpy"]),
                None if theirs is None else Spread.of(theirs),
                _ratio(each["ours"], each["numpy"]),
                None if theirs is None else _ratio(theirs, each["ours"]),
            )
        )
    return SamplerFigures(draws, opendp_draws, tuple(lines))


def _side_by_side(
    rounds: Sequence[Mapping[str, Callable[[], object]]], step: Callable[[int], None]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each task in each round, and of processor time, the tasks in turn; the first round warms up and does
    not count."""
    if len(rounds) < 2:
        raise BadParameter(f"at least one repeat is needed, got {len(rounds) - 1}")
    taken: dict[str, list[float]] = {name: [] for name in rounds[0]}
    work: dict[str, list[float]] = {name: [] for name in rounds[0]}
    for done, tasks in enumerate(rounds):
        for name, task in tasks.items():
            start, worked = perf_counter(), process_time()
            task()
            if done:
                work[name].append(process_time() - worked)
                taken[name].append(perf_counter() - start)
        step(done)
    return taken, work


def _ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def _opendp(sigma: float, draws: int) -> Callable[[], object] | None:
    """OpenDP's discrete Gaussian for a whole array at once, which is how it is fastest."""
    try:
        dp = importlib.import_module("opendp.prelude")
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=dp.f64)
    measurement = dp.m.make_gaussian(domain, metric, scale=sigma)
    zeros = np.zeros(draws, dtype=np.int64)
    return lambda: measurement(zeros)


def _masking(sites: int, size: int, repeats: int, step: Callable[[], None]) -> Masking:
    study = _Study(sites, attempts=repeats + 1)
    study.set_up()
    vector = np.random.default_rng().integers(0, 2**64, size, dtype=np.uint64)
    work, streams = vector.copy(), study.roster.shape.degree + 1
    keys = [(os.urandom(32), bool(stream % 2)) for stream in range(streams)]

    rounds: list[dict[str, Callable[[], object]]] = [
        {
            "cipher": partial(_cipher, [key for key, _ in keys], size),
            "add": partial(masks.add, work, keys),
            "mask": partial(_masked, study.sessions[0], vector, attempt),
        }
        for attempt in range(repeats + 1)
    ]
    taken, worked = _side_by_side(rounds, lambda done: step() if done else None)
    return Masking(
        sites,
        size,
        masks.THREADS,
        Spread.of(taken["cipher"]),
        Spread.of(taken["add"]),
        Spread.of(taken["mask"]),
        _ratio(taken["add"], taken["cipher"]),
        _ratio(taken["mask"], taken["cipher"]),
        _ratio(worked["mask"], worked["cipher"]),
    )


def _cipher(keys: Sequence[bytes], size: int) -> None:
    """The key streams that `masks.add` needs, in the same blocks, and nothing else."""
    streams = [Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor() for key in keys]
    zeros, buffer = bytes(8 * masks.BLOCK), bytearray(8 * masks.BLOCK + 15)
    for start in range(0, size, masks.BLOCK):
        source = memoryview(zeros)[: 8 * min(masks.BLOCK, size - start)]
        for stream in streams:
            stream.update_into(source, buffer)


def _peak(sites: int, size: int) -> int:
    """Bytes the coordinator holds at most in a round, with all sites in this process but not counted."""
    study = _Study(sites)
    study.set_up()
    tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        study.round(size)
    finally:
        if not tracing:
            tracemalloc.stop()
    return study.peak


def _cost(sites: int, size: int) -> Cost:
    study = _Study(sites)
    set_up = study.set_up()
    one_round = study.round(size)
    return Cost(
        sites,
        size,
        study.roster.colluders,
        study.roster.dropouts,
        study.roster.shape.degree,
        Spread.of(set_up[:-1]),
        set_up[-1],
        Spread.of(one_round[:-1]),
        one_round[-1],
    )


class _Study:
    """A whole study in this process, with a stopwatch for each site and, last, for the coordinator."""

    def __init__(self, sites: int, attempts: int = 1) -> None:
        colluders = max(1, math.ceil(sites / 3) - 1)
        dropouts = min(max(1, sites // 20), (sites - colluders - 1) // 2)
        self._identities = [Identity() for _ in range(sites)]
        publics = tuple(identity.public for identity in self._identities)
        self.roster = Roster(os.urandom(16), publics, attempts, colluders, dropouts)
        self.sessions: list[SiteSession] = []
        self._collector = Collector(self.roster)
        self._spent = [0.0] * (sites + 1)
        self._held = self.peak = 0

    def set_up(self) -> list[float]:
        """Keys and shares; seconds each took."""
        self._spent = [0.0] * len(self._spent)
        for s, identity in enumerate(self._identities):
            self.sessions.append(self._site(s, SiteSession, self.roster, s, identity))
        for s, session in enumerate(self.sessions):
            self._coordinator(self._collector.take_advert, self._site(s, session.advertise))
        adverts = self._coordinator(self._collector.adverts)
        for s, session in enumerate(self.sessions):
            self._coordinator(self._collector.take_shares, self._site(s, session.share, adverts))
        for s, session in enumerate(self.sessions):
            delivery = self._coordinator(self._collector.delivery, s)
            self._coordinator(self._collector.take_ready, self._site(s, session.receive, delivery))
        return self._spent

    def round(self, size: int) -> list[float]:
        """One sum of vectors of so many numbers, checked; seconds each took."""
        self._spent = [0.0] * len(self._spent)
        collector, vector = self._collector, np.arange(size, dtype=np.uint64)
        self._coordinator(collector.begin, 0, size, b"bench")
        for s, session in enumerate(self.sessions):
            self._coordinator(collector.take_masked, 0, self._site(s, _masked, session, vector))
        listed = self._coordinator(collector.close_list, 0)
        if self.roster.dropouts:
            for s, session in enumerate(self.sessions):
                self._coordinator(collector.take_signature, 0, self._site(s, session.sign, 0, listed))
            listed = self._coordinator(collector.warrant, 0)
        for s, session in enumerate(self.sessions):
            self._coordinator(collector.take_opening, 0, self._site(s, session.open, 0, listed))
        total = self._coordinator(collector.result, 0)
        if not np.array_equal(total, vector * np.uint64(self.roster.sites)):
            raise CheckFailed("the secure sum is not the sum")
        return self._spent

    def _site(self, site: int, act: Callable[..., T], *arguments: Any) -> T:
        start = perf_counter()
        result = act(*arguments)
        self._spent[site] += perf_counter() - start
        return result

    def _coordinator(self, act: Callable[..., T], *arguments: Any) -> T:
        """As `_site`; what it allocates on top of what it holds and was sent counts as its memory while traced."""
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = self._site(-1, act, *arguments)
        now, peak = tracemalloc.get_traced_memory()
        sent = sum(len(part) for part in arguments if isinstance(part, (bytes, bytearray)))
        self.peak = max(self.peak, self._held + peak - before + sent)
        self._held += now - before
        return result


def _masked(session: SiteSession, vector: Ring, attempt: int = 0) -> bytes:
    """A site's masked vector with its commitments."""
    return session.mask(attempt, vector, b"bench", session.commit(attempt, vector, b"bench", bytes(32)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["secagg", "sampler"])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures: Any = bench_secagg(large=given.large) if given.what == "secagg" else bench_sampler()
    if given.json:
        print(json.dumps(figures.as_record(), indent=2))
        return
    for name, value in figures.rows():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
