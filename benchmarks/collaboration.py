"""Data Collaboration against training through the private sum: the paper's tables, one guarantee for all, and attacks.

    python benchmarks/collaboration.py DATA [--only tables,guarantee,record,attacks] [--data mnist,fashion]
        [--seeds 5] [--jobs 2] [--cells FILE]

DATA holds mnist.npz and fashion_mnist.npz. `tables` has the paper's at their sizes, its numbers beside ours;
`guarantee` every method at the same epsilon for a whole record, delta 1e-5; `record` what the paper's epsilon of 50 for
a pixel is worth for a record; `attacks` how often published records are recognised, and what is left to guess about
them. Zerosum's programs are rehearsed: with their planned noise, and without sites; one of the ten colludes.

Cells are spread over `--jobs` processes of one thread and about a gigabyte each. With `--cells` they are kept as JSON
lines, and a run that was interrupted goes on with those that are missing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cells import Cell, Results, computed
from zerosum.algorithms import DataCollaborationProgram, FeatureClassifierProgram
from zerosum.compute.units import Units
from zerosum.kernel import accountant
from zerosum.kernel.request import PrivatePublication
from zerosum.papers.figures import collaboration as figures
from zerosum.papers.methods import collaboration as methods
from zerosum.papers.methods import reidentification as attacks
from zerosum.papers.methods.records import Records
from zerosum.papers.programs.federated import CLIP, LOCAL_EPOCHS
from zerosum.statistics import perceptron
from zerosum.statistics.softmax import BIAS, SoftmaxGradient
from zerosum.study.rehearsal import Rehearsal

EPSILONS = (50.0, 8.0, 4.0, 1.0)
PIXELS: dict[str, Any] = {"kind": "linear", "lower": [0.0] * 784, "upper": [255.0] * 784}
GUARANTEED = (
    "private sum, scattering",
    "private sum, pixels",
    "rigorous DC, scattering",
    "rigorous DC, pixels",
    "centralized DP (trusted curator), scattering",
    "FL-DP, one round, sensitivity as proved",
)
Floats = NDArray[np.float64]


@cache
def loaded(folder: Path, name: str) -> tuple[Records, Records]:
    return figures.load(name, folder)


def mean_and_spread(found: list[float]) -> str:
    spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
    return f"{100 * np.mean(found):5.1f} +-{100 * spread:3.1f}"


# ---- the paper's tables ----------------------------------------------------------------------------------------------


def table_cells(name: str, seeds: int) -> list[Cell]:
    """Tables 1 to 3 (MNIST) or 4 to 6 (Fashion-MNIST): data, records, method, width, seed; the longest first."""
    return [
        ("tables", name, records, method, width, seed)
        for records in (1000, 100)
        for method in (*figures.TRAVELLING, *figures.REDUCED)
        for width in (figures.WIDTHS if method in figures.REDUCED else (0,))
        for seed in range(seeds)
    ]


def table_cell(folder: Path, name: str, records: int, method: str, width: int, seed: int) -> list[float]:
    images, test = loaded(folder, name)
    return [figures.accuracy(method, figures.shared_out(images, records, seed), test, width, seed)]


def show_tables(found: Results, name: str, seeds: int) -> None:
    for records in (100, 1000):
        print(f"\n{name}, {figures.CLIENTS} clients of {records}, {seeds} seeds: ours (the paper's)")
        for method in (*figures.REDUCED, *figures.TRAVELLING):
            shown = []
            for width in figures.WIDTHS if method in figures.REDUCED else (0,):
                each = [found[("tables", name, records, method, width, seed)][0] for seed in range(seeds)]
                shown.append(f"{mean_and_spread(each)} ({figures.paper(name, method, records, width):.1f})")
            print(f"  {method:12s}", "  ".join(shown))


# ---- one guarantee for all -------------------------------------------------------------------------------------------


def guarantee_cells(name: str, seeds: int) -> list[Cell]:
    return [
        ("guarantee", name, method, epsilon, seed)
        for method in GUARANTEED
        for epsilon in EPSILONS
        for seed in range(seeds)
    ]


def guarantee_cell(folder: Path, name: str, method: str, epsilon: float, seed: int) -> list[float]:
    """The same epsilon for a whole record and its label, 10 clients of 1000."""
    images, test = loaded(folder, name)
    drawn = figures.shared_out(images, 1000, seed)
    if method.startswith("FL-DP"):
        noise = methods.federated_noise(epsilon, figures.OUR_DELTA, 1000, rounds=1, exact=True)
        weights = methods.federated(drawn, seed, rounds=1, epochs=10, noise=noise, clip=CLIP)
        return [perceptron.accuracy(weights, test.x, test.y)]
    if method.startswith("centralized"):
        return [figures.ours("private sum", drawn, test, epsilon, seed, scheme="pooled")]
    kind, space = method.split(", ")
    return [figures.ours(kind, drawn, test, epsilon, seed, PIXELS if space == "pixels" else figures.FEATURES)]


def show_guarantee(found: Results, name: str, seeds: int) -> None:
    print(f"\n{name}, 10 clients of 1000, {seeds} seeds, epsilon for a record at delta {figures.OUR_DELTA:g}")
    print("| method | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |")
    for method in GUARANTEED:
        shown = [
            mean_and_spread([found[("guarantee", name, method, epsilon, seed)][0] for seed in range(seeds)])
            for epsilon in EPSILONS
        ]
        print(f"| {method} | " + " | ".join(shown) + " |")


# ---- what the paper's epsilon is worth -------------------------------------------------------------------------------


def record(folder: Path, name: str) -> None:
    """What epsilon 50 for one pixel is for whole records: the whole image, and what its projection shows of it."""
    images, _test = loaded(folder, name)
    site = figures.shared_out(images, 1000, 0)[0]
    chosen = np.random.default_rng(0).permutation(len(images.y))[:3000]
    one, other = images.x[chosen[:1500]], images.x[chosen[1500:]]
    print(f"\n{name}: nominal epsilon 50 at delta 0.01, noise {methods.published_noise():.4f}; a record's epsilon")
    spaces = [("all 784 pixels", methods.Reduction(np.zeros(784), np.eye(784)))]
    spaces += [(f"{k} components", methods.Reduction.of(site.x, k)) for k in (10, 50, 100)]
    for what, seen in spaces:
        apart = np.linalg.norm(seen(one) - seen(other), axis=1)
        found = [methods.record_epsilon(float(each)) for each in (np.median(apart), apart.max())]
        print(f"  {what:16s} median pair {found[0]:8.0f}   worst of 1500 pairs {found[1]:8.0f}")
    print(f"  all pixels turned over (norm 28): {methods.record_epsilon(28.0):.0f}")
    for records in (100, 1000):
        claimed, proved = methods.federated_epsilons(methods.EPSILON, methods.DELTA, records)
        print(f"  FL-DP, {records} records: {claimed:.1f} if its sensitivity held, {proved:.0f} as proved")


# ---- attacks ---------------------------------------------------------------------------------------------------------

LINKED: tuple[str, ...] = ("DC, 50 components", "DC-DP as published, nominal 50")
LINKED += tuple(f"rigorous DC, epsilon {each:g}" for each in EPSILONS)
TRAINED: tuple[str, ...] = ("FL, no noise", "FL-DP as published, nominal 50")
TRAINED += tuple(f"private sum, epsilon {each:g}" for each in EPSILONS)


def attack_cells(name: str, seeds: int) -> list[Cell]:
    return [("attacks", name, what, seed) for what in (*TRAINED, *LINKED) for seed in range(seeds)]


def attack_cell(folder: Path, name: str, what: str, seed: int) -> list[float]:
    """The first client's 1000 records, among 1000 candidates; the attacker has 5000 other images of its own."""
    images, _test = loaded(folder, name)
    clients = figures.shared_out(images, 1000, seed)
    mine = clients[0]
    fresh = np.random.default_rng(seed).permutation(len(images.y))[10_000:16_000]
    own = Records(images.x[fresh[:5000]], images.y[fresh[:5000]])
    others = Records(images.x[fresh[5000:]], images.y[fresh[5000:]])
    if what in TRAINED:
        scores = (_scores_by_updates if what.startswith("FL") else _scores_by_gradients)(
            what, clients, own, others, seed
        )
        return [attacks.pairs_won(scores[:1000], scores[1000:])]
    rng = np.random.default_rng([seed, 9])
    if not what.startswith("rigorous"):
        noise = methods.published_noise() if what.startswith("DC-DP") else 0.0
        joint = methods.collaborate(clients, 50, seed, noise)
        known = attacks.fitted_map(joint.anchors, joint.mapped_anchors[0])
        published, members, absent, reference = joint.published[0], known(mine.x), known(others.x), known(own.x)
    else:
        published, noise, mapped = _published(clients, float(what.split()[-1]), seed)
        members, absent, reference = mapped(mine), mapped(others), mapped(own)
    simulated = reference + noise * rng.standard_normal(reference.shape)
    return [
        attacks.linked(published, members),
        attacks.membership_auc(published, members, absent, noise, reference),
        attacks.left_over(published, mine.x, simulated, own.x),
    ]


def _units(given: Records) -> Units:
    return Units(np.column_stack([255 * given.x, given.y]).astype(np.float32))


def _settings() -> dict[str, Any]:
    columns = (*(f"p{i}" for i in range(784)), "class")
    return {"columns": columns, "classes": tuple(map(float, range(10))), "features": figures.FEATURES}


def _published(clients: list[Records], epsilon: float, seed: int) -> tuple[Floats, float, Any]:
    """What the first client published, under which noise, and the map, which everybody knows."""
    program = DataCollaborationProgram(**_settings(), keep_records=True)
    rehearsal = Rehearsal(program, 10_000, 10, epsilon, figures.OUR_DELTA)
    found, requests = rehearsal.run_with_requests(_units(Records.joined(clients)), seed)
    request = requests[-1]
    assert isinstance(request, PrivatePublication)
    statistic = request.statistic
    return found["records"].value[:1000], float(found["noise"][0]), lambda given: statistic.rows(_units(given))


def _scores_by_updates(what: str, clients: list[Records], own: Records, others: Records, seed: int) -> Floats:
    """By the first client's weights, round by round; the scores of its records, and of others."""
    noise = methods.federated_noise(50.0, 0.01, 1000) if what.startswith("FL-DP") else 0.0
    heard: list[Any] = []
    methods.federated(clients, seed, noise=noise, clip=CLIP if noise else None, transcript=heard)
    candidates = Records.joined([clients[0], others])
    told = [answers[0] for answers in heard]
    return attacks.update_scores(told, own, candidates, size=1000, epochs=LOCAL_EPOCHS, seed=seed)


def _scores_by_gradients(what: str, clients: list[Records], own: Records, others: Records, seed: int) -> Floats:
    """By the noisy totals of gradients, round by round; the scores of the first client's records, and of others."""
    program = FeatureClassifierProgram(**_settings())
    rehearsal = Rehearsal(program, 10_000, 10, float(what.split()[-1]), figures.OUR_DELTA)
    found, heard = rehearsal.run_with_releases(_units(Records.joined(clients)), seed)
    candidates = Records.joined([clients[0], others])

    def features(given: Records) -> Floats:
        z = (np.asarray(program.feature_map(255 * given.x)) - found["center"].value) @ found["projection"].value
        z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30)
        return np.column_stack([z, np.full(len(z), BIAS)])

    mine, reference = features(candidates), features(own)
    totals, residuals, means = [], [], []
    for request, release in heard:
        if isinstance(request.statistic, SoftmaxGradient):
            weights, clip = request.statistic.weights, request.statistic.clip / np.sqrt(1 + BIAS**2)
            totals.append(release.value.reshape(mine.shape[1], -1))
            residuals.append(_residuals(mine @ weights, candidates.y, clip))
            means.append(reference.T @ _residuals(reference @ weights, own.y, clip) / len(own.y))
    return attacks.gradient_scores(totals, residuals, mine, means, 10_000)


def _residuals(logits: Floats, labels: Any, clip: float) -> Floats:
    """The true class less the expected one would be a step; the gradient has the other sign. Of norm at most `clip`."""
    logits = logits - logits.max(axis=1, keepdims=True)
    found = np.exp(logits)
    found /= found.sum(axis=1, keepdims=True)
    found[np.arange(len(labels)), labels] -= 1
    return np.asarray(found * np.minimum(1, clip / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-30)))


def show_attacks(found: Results, name: str, seeds: int) -> None:
    print(f"\n{name}, {seeds} seeds: linked (chance 0.1 %), told apart from others (chance 50 %),", end=" ")
    print("variance left (guessing the mean: 100 %)")
    for what in (*LINKED, *TRAINED):
        each = np.array([found[("attacks", name, what, seed)] for seed in range(seeds)]).T
        shown = [mean_and_spread(list(column)) for column in each]
        print(f"  {what:34s}", "  ".join(shown if len(shown) > 1 else ["     -    ", *shown, "     -    "]), most(what))


def most(what: str) -> str:
    """How often anybody at best picks the member of a pair, who knows all other records: two worlds in which one of the
    two took part are neighbours, and Phi(mu / 2) is the best test between them."""
    if not what.startswith(("rigorous", "private")):
        return ""
    mu = accountant.mu_for(float(what.split()[-1]), figures.OUR_DELTA)
    return f"(told apart: at most {100 * ndtr(mu / 2):.1f})"


PARTS: dict[str, tuple[Callable[..., list[Cell]], Callable[..., list[float]], Callable[..., None]]] = {
    "attacks": (attack_cells, attack_cell, show_attacks),
    "guarantee": (guarantee_cells, guarantee_cell, show_guarantee),
    "tables": (table_cells, table_cell, show_tables),
}


def work(folder: Path, cell: Cell) -> tuple[Cell, list[float]]:
    """One cell, in a process of its own."""
    part, *rest = cell
    return cell, PARTS[str(part)][1](folder, *rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="tables,guarantee,record,attacks")
    parser.add_argument("--data", default="mnist,fashion")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path)
    given = parser.parse_args()
    wanted, names, began = given.only.split(","), given.data.split(","), time.perf_counter()
    seeds = {part: given.seeds if part == "tables" else min(given.seeds, 3) for part in PARTS}
    cells = [cell for name in names for part in PARTS if part in wanted for cell in PARTS[part][0](name, seeds[part])]
    found = computed(cells, partial(work, given.folder), given.jobs, given.cells) if cells else {}
    for name in names:
        if "record" in wanted:
            record(given.folder, name)
        for part in PARTS:
            if part in wanted:
                PARTS[part][2](found, name, seeds[part])
    print(f"[{time.perf_counter() - began:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
