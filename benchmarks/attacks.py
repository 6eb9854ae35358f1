"""The attacks that 0.1 did not withstand.

    python benchmarks/attacks.py

Each line says what an attacker reached and what was claimed. Ledgers lie in a temporary folder. Before the tree was
rearranged (commit cf0fc9f) the same file ran against 0.1 too, with its `src` as PYTHONPATH.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

os.environ["ZEROSUM_STATE"] = tempfile.mkdtemp()

import zerosum
from zerosum.algorithms import MeanProgram
from zerosum.algorithms.program import Algorithm, Program
from zerosum.compute.units import Units
from zerosum.coordinator.conduct import conduct
from zerosum.data.tables import load_units
from zerosum.engines.in_process import InProcess
from zerosum.errors import Refused
from zerosum.kernel import accountant
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import decode_message, decode_reply
from zerosum.protocol.messages import Contribute, DealtNoise
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics import build
from zerosum.study import make_plan, pin

Floats = NDArray[np.float64]

np.seterr(all="ignore")
D = 50
FAR = 10 * np.eye(3, D)
CENTERS = np.vstack([np.random.default_rng(0).normal(size=(2, D)) / 10, FAR])  # two near each other, three nobody is at
CLUSTERS = {"columns": D, "clip": 3.0, "centers": CENTERS}


def moved(stat: Any, here: Units, there: Units) -> float:
    return float(np.linalg.norm(stat.total(here) - stat.total(there)))


def people(others: Floats, rows: int) -> Units:
    """Others with one row each, then one person with this many."""
    offsets = np.concatenate([np.arange(len(others) + 1), [len(others) + rows]])
    return Units(np.vstack([others, np.full((rows, others.shape[1]), 0.01)]), offsets.astype(np.int64))


def on_the_bisector(rng: np.random.Generator, count: int) -> Floats:
    across = CENTERS[0] - CENTERS[1]
    free = rng.normal(size=D) / 10
    free -= across * (free @ across) / (across @ across)
    return np.tile((CENTERS[0] + CENTERS[1]) / 2 + free, (count, 1))


def worst_crowd() -> tuple[Floats, float]:
    """A crowd on a bisector that one person's second row moves most."""
    stat, rng = build("cluster_sums", CLUSTERS), np.random.default_rng(1)
    crowds = [on_the_bisector(rng, count) for _ in range(300) for count in (238, 239, 240)]
    apart = [moved(stat, people(crowd, 1), people(crowd, 2)) for crowd in crowds]
    return crowds[int(np.argmax(apart))], max(apart)


class OneLook(Algorithm):
    name: ClassVar[str] = "one-look"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(build("cluster_sums", CLUSTERS)),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        return {"sums": Quantity(release.value)}


def guesses(crowd: Floats, tries: int = 60) -> int:
    """How often an adversary tells, from the result of a private study at epsilon 1, whether a person has two rows."""
    stat, question = build("cluster_sums", CLUSTERS), OneLook(columns=tuple(f"x{i}" for i in range(D)))
    worlds = [people(crowd, 1), people(crowd, 2)]
    expected = [stat.total(world) for world in worlds]
    rng, right = np.random.default_rng(2), 0
    others = {name: Units.from_list(list(rng.normal(size=(30, 1, D)))) for name in "bc"}
    rest = sum((stat.total(units) for units in others.values()), np.zeros(stat.size))
    for number in range(tries):
        truth = int(rng.integers(2))
        policies = {name: Policy(population=f"{name} {number}") for name in "abc"}
        data = {"a": worlds[truth], **others}
        result = zerosum.run(question, data, epsilon=1.0, delta=1e-5, policies=policies)
        seen = result.estimate["sums"] - rest
        right += truth == int(np.argmin([np.linalg.norm(seen - each) for each in expected]))
    return right


def first() -> str:
    crowd, apart = worst_crowd()
    twins = CLUSTERS | {"centers": np.vstack([CENTERS[:1], np.nextafter(CENTERS[:1], 1), FAR])}
    stat, rng = build("cluster_sums", twins), np.random.default_rng(3)
    near = max(moved(stat, people(x, 1), people(x, 2)) for x in rng.normal(size=(60, 239, D)) / 7)
    return (
        f"k-means: a second row moves the sum by {apart:.4g}, with twin centres by {near:.4g}, D = 2;"
        f" guessed right {guesses(crowd)} of 60"
    )


def second() -> str:
    """A crowd at the threshold of what is heard after a product, found by bisection; then one record more."""
    rng, columns, width = np.random.default_rng(4), 80, 50
    found = {"scatter": 0.0, "scatter_norms": 0.0}
    for _ in range(30):
        projection = np.linalg.qr(rng.normal(size=(columns, columns)))[0][:, :width]
        free = rng.normal(size=columns)
        free -= projection @ (projection.T @ free)
        for name, params in (("scatter", {}), ("scatter_norms", {"lowest": 1e-12, "highest": 1e-8, "bins": 2})):
            stat = build(name, {"columns": columns, "projection": projection, **params})
            low, high = 0.0, 1e-3
            for _ in range(70):
                middle = (low + high) / 2
                one = stat.total(Units.from_rows(np.tile(free + middle * projection[:, -1], (250, 1))))
                low, high = (low, middle) if one[-1] > 0 or (name == "scatter" and np.any(one)) else (middle, high)
            for shift in high + 2e-17 * np.arange(-8, 9):  # as finely as the crowd itself is rounded
                crowd = np.tile(free + shift * projection[:, -1], (251, 1))
                found[name] = max(found[name], moved(stat, Units.from_rows(crowd), Units.from_rows(crowd[:250])))
    return "one record more: " + ", ".join(f"{name} moves by {apart:.4g}" for name, apart in found.items()) + ", D = 1"


def third() -> str:
    told = []
    for name, clip, size, extra in (
        ("cluster_sums", 5e-324, 1.0, {"centers": [[0.0, 1.0], [1.0, 0.0]]}),
        ("vector_sum", 2.6e-16, 1e308, {}),
        ("vector_sum", 1e-20, 1e303, {}),
        ("second_moment", 2.6e-16, 1e308, {}),
    ):
        try:
            stat = build(name, {"columns": 2, "clip": clip, **extra})
        except ValueError:
            told.append(f"{name} clip {clip:g}: refused when it is built")
            continue
        rng, worst = np.random.default_rng(5), 0.0
        for _ in range(4000):
            pair = [Units.from_rows(np.clip(size * rng.normal(size=(1, 2)), -1.7e308, 1.7e308)) for _ in range(2)]
            worst = max(worst, moved(stat, *pair) / stat.sensitivity(Adjacency.REPLACE_ONE))
        told.append(f"{name} clip {clip:g}: {worst:.3g} of D")
    rows = np.random.default_rng(6).normal(size=(2000, 5))
    other = rows.copy()
    other[0] = 1e200
    try:
        from zerosum.compute.backends.exact import clip_rows
    except ImportError:
        from zerosum.kernel.statistic import clip_rows  # type: ignore[attr-defined,no-redef]
    bits = int(np.sum(np.any(clip_rows(rows, 1.0)[1:] != clip_rows(other, 1.0)[1:], axis=1)))
    return "; ".join(told) + f"; a row of 1e200 changed the bits of {bits} of 1999 others"


class Recorded:
    def __init__(self, engine: InProcess) -> None:
        self._engine, self.seen = engine, []  # type: ignore[var-annotated]

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for site, reply in self._engine.exchange(frames):
            self.seen.append((decode_message(frames[site]), decode_reply(reply or b"")))
            yield site, reply


def fourth() -> str:
    told = []
    columns = tuple(f"x{i}" for i in range(20_000))
    for S in (4, 10, 30):
        question, coalition = MeanProgram(columns=columns, clip=1.0), Coalition.default(S)
        units = Units.from_rows(np.zeros((20, len(columns))))
        sites = [Site(f"s{s}", units, Policy(population=f"{S} {s}", data="synthetic")) for s in range(S)]
        shapes = [PlannedSite(site.name, 20) for site in sites]
        scheme = Scheme("cape-helper")
        terms = Terms(sites=tuple(shapes), epsilon=1.0, delta=1e-5, scheme=scheme, coalition=coalition)
        plan = make_plan(question, terms, "h", noise="gaussian")
        engine = Recorded(InProcess(sites))
        conduct(pin(plan, sites), question.program(plan.adjacency), engine)
        left = [
            reply.payload - message.noise_input.from_helper - message.noise_input.from_coordinator
            for message, reply in engine.seen
            if isinstance(message, Contribute) and isinstance(message.noise_input, DealtNoise)
        ]
        told.append(f"{accountant.epsilon(2.0 / float(np.std(left[0])), 1e-5):.2f}")
    data = {name: np.zeros((20, 2)) for name in "abcd"}
    try:
        question = MeanProgram(columns=("a", "b"), clip=1.0)
        zerosum.run(question, data, epsilon=1.0, delta=1e-5, scheme="cape-helper", unit="person")
        consent = "a default private policy consents"
    except Refused as error:
        consent = f"refused: {error}"
    reached = f"the coordinator, which deals, reaches epsilon {' / '.join(told)} at S = 4 / 10 / 30 where 1 is planned"
    return f"cape-helper: {reached}; {consent}"


def fifth() -> str:
    rows = np.random.default_rng(7).normal(size=(60, 3))
    has = []
    for offsets in (np.arange(61), np.array([*range(59), 60])):
        sites = [Units(rows, offsets.astype(np.int64)), Units(rows, np.arange(61))]
        pca = zerosum.PCA(n_components=2, epsilon=5.0, delta=1e-5, unit="person", random_state=0, data="synthetic")
        has.append(hasattr(pca.fit(sites), "explained_variance_ratio_"))
    return f"PCA has explained_variance_ratio_: {has[0]} if everybody owns one row, {has[1]} if one person owns two"


def sixth() -> str:
    folder, told = Path(tempfile.mkdtemp()), []
    for faults in ((3,), (3, 7, 9)):
        lines = ["a,b", *(f"{'oops' if row in faults else row},1" for row in range(12))]
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        try:
            load_units(folder / "t.csv", columns=("a", "b"))
        except ValueError as error:
            told.append(str(error).replace(str(folder) + "/", ""))
    return f"a fault in row 3: {told[0]!r}; in 3, 7 and 9: {told[1]!r}"


def seventh() -> str:
    kept = np.zeros(1)

    @zerosum.statistic("attack_reuses", length=1)
    def reuses(rows: Floats) -> Floats:
        kept[:] = rows[0, 0]
        return kept

    stat = reuses(columns=1, clip=1.0)
    ones = np.ones((100, 1))
    apart = moved(stat, Units.from_rows(ones), Units.from_rows(np.vstack([ones[1:], -ones[:1]])))
    return f"a function that reuses its array: moved {apart:.4g}, D = 2"


def eighth() -> str:
    terms = {"unit": "person", "adjacency": Adjacency.REPLACE_ONE, "epsilon": 1.0, "delta": 1e-5}
    roster = (PlannedSite("a"), PlannedSite("b"))
    release = PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0)
    whole: dict[str, Any] = terms | {"study": "s", "algorithm": "mean", "sites": roster, "releases": (release,)}
    plan = Plan(scheme=Scheme("local"), coalition=Coalition(1), **whole)
    try:
        hostile = replace(plan, releases=(replace(plan.releases[0], sensitivity=float("nan")),))
        hostile.law(0)
        said = "accepted"
    except ValueError as error:
        said = f"{type(error).__name__}: {error}"
    return f"a plan with sensitivity nan: {said}"


def main() -> None:
    for number, attack in enumerate((first, second, third, fourth, fifth, sixth, seventh, eighth), start=1):
        try:
            print(f"{number}. {attack()}", flush=True)
        except Exception as error:  # another version may fail in its own way
            print(f"{number}. {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
