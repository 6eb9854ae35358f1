"""Data Collaboration against training through the private sum: the paper's tables, one guarantee for all, and attacks.

    python benchmarks/collaboration.py DATA [--only tables,guarantee,record,attacks] [--data mnist,fashion] [--seeds 5]

DATA holds mnist.npz and fashion_mnist.npz. `tables` has the paper's at their sizes, its numbers beside ours;
`guarantee` every method at the same epsilon for a whole record, delta 1e-5; `record` what the paper's epsilon of 50 for
a pixel is worth for a record; `attacks` how often published records are recognised, and what is left to guess about
them. Zerosum's programs are rehearsed: with their planned noise, and without sites; one of the ten colludes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import DataCollaboration, FeatureClassifier
from zerosum.kernel.request import PrivatePublication
from zerosum.kernel.units import Units
from zerosum.papers.figures import collaboration as figures
from zerosum.papers.methods import collaboration as methods
from zerosum.papers.methods import perceptron
from zerosum.papers.methods import reidentification as attacks
from zerosum.papers.methods.collaboration import Records
from zerosum.statistics.softmax import BIAS
from zerosum.study.rehearsal import Rehearsal

EPSILONS = (38.0, 8.0, 4.0, 1.0)  # 50 at delta 1e-5 is refused: finite arithmetic has e^50 to pay for
PIXELS: dict[str, Any] = {"kind": "linear", "lower": [0.0] * 784, "upper": [255.0] * 784}
Floats = NDArray[np.float64]


def told(found: list[float]) -> str:
    spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
    return f"{100 * np.mean(found):5.1f} +-{100 * spread:3.1f}"


def tables(folder: Path, name: str, seeds: int) -> None:
    """Tables 1 to 3 (MNIST) or 4 to 6 (Fashion-MNIST)."""
    images, test = figures.load(name, folder)
    for records in (100, 1000):
        print(f"\n{name}, {figures.CLIENTS} clients of {records}, {seeds} seeds: ours (the paper's)")
        for method in (*figures.REDUCED, *figures.TRAVELLING):
            cells = []
            for width in figures.WIDTHS if method in figures.REDUCED else (0,):
                found = [
                    figures.accuracy(method, figures.shared_out(images, records, seed), test, width, seed)
                    for seed in range(seeds)
                ]
                cells.append(f"{told(found)} ({figures.paper(name, method, records, width):.1f})")
            print(f"  {method:12s}", "  ".join(cells), flush=True)


def guarantee(folder: Path, name: str, seeds: int) -> None:
    """The same epsilon for a whole record and its label, 10 clients of 1000."""
    images, test = figures.load(name, folder)
    rows: dict[str, list[str]] = {}

    def add(row: str, found: list[float]) -> None:
        rows.setdefault(row, []).append(told(found))
        print(f"  {row}: {rows[row][-1]}", flush=True)

    print(
        f"\n{name}, 10 clients of 1000, {seeds} seeds, epsilon {EPSILONS} for a record at delta {figures.OUR_DELTA:g}"
    )
    for epsilon in EPSILONS:
        drawn = [figures.shared_out(images, 1000, seed) for seed in range(seeds)]
        for what, settings in (("scattering", figures.FEATURES), ("pixels", PIXELS)):
            for method in figures.OURS:
                found = [figures.ours(method, each, test, epsilon, at, settings) for at, each in enumerate(drawn)]
                add(f"{method}, {what}", found)
        pooled = [
            figures.ours("private sum", each, test, epsilon, at, scheme="pooled") for at, each in enumerate(drawn)
        ]
        add("centralized DP (trusted curator), scattering", pooled)
        noise = methods.federated_noise(epsilon, figures.OUR_DELTA, 1000, rounds=1, exact=True)
        federated = [
            methods.federated(each, at, rounds=1, epochs=10, noise=noise, clip=methods.CLIP)
            for at, each in enumerate(drawn)
        ]
        add(
            "FL-DP, one round, sensitivity as proved", [perceptron.accuracy(each, test.x, test.y) for each in federated]
        )
    print("| method | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |")
    for row, cells in rows.items():
        print(f"| {row} | " + " | ".join(cells) + " |")


def record(folder: Path, name: str) -> None:
    """What epsilon 50 for one pixel is for whole records: the whole image, and what its projection shows of it."""
    images, _test = figures.load(name, folder)
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


def attacked(folder: Path, name: str) -> None:
    """The first client's 1000 records, among 1000 candidates; the attacker has 5000 other images of its own."""
    images, _test = figures.load(name, folder)
    clients = figures.shared_out(images, 1000, 0)
    mine = clients[0]
    fresh = np.random.default_rng(0).permutation(len(images.y))[10_000:16_000]
    own, others = images.x[fresh[:5000]], Records(images.x[fresh[5000:]], images.y[fresh[5000:]])
    rng = np.random.default_rng(9)
    print(
        f"\n{name}: linked (chance 0.1 %), told apart from others (chance 50 %), variance left (guessing the mean: 1)"
    )

    def show(what: str, linked: float, apart: float, left: float) -> None:
        print(f"  {what:44s} {100 * linked:6.1f} %  {100 * apart:6.1f} %  {left:6.3f}", flush=True)

    for what, noise in (("DC, 50 components", 0.0), ("DC-DP as published, nominal 50", methods.published_noise())):
        joint = methods.collaborate(clients, 50, 0, noise)
        known = attacks.fitted_map(joint.anchors, joint.mapped_anchors[0])
        simulated = known(own) + noise * rng.standard_normal((len(own), 50))
        show(
            what,
            attacks.linked(joint.published[0], known(mine.x)),
            attacks.told_apart(joint.published[0], known(mine.x), known(others.x)),
            attacks.left_over(joint.published[0], mine.x, simulated, own),
        )
    joined = Records.joined(clients)
    units = Units(np.column_stack([255 * joined.x, joined.y]).astype(np.float32))
    columns = (*(f"p{i}" for i in range(784)), "class")
    shared: dict[str, Any] = {"columns": columns, "classes": tuple(map(float, range(10))), "features": figures.FEATURES}
    for epsilon in EPSILONS:
        rehearsal = Rehearsal(DataCollaboration(**shared, keep_records=True), 10_000, 10, epsilon, figures.OUR_DELTA)
        found, requests = rehearsal.asked(units, 0)
        request, published = requests[-1], found["records"].value[:1000]
        assert isinstance(request, PrivatePublication)

        def mapped(x: Floats, y: Any, request: PrivatePublication = request) -> Floats:
            return request.statistic.rows(Units(np.column_stack([255 * x, y]).astype(np.float32)))

        reference = mapped(own, images.y[fresh[:5000]])
        simulated = reference + found["noise"][0] * rng.standard_normal(reference.shape)
        members = mapped(mine.x, mine.y)
        show(
            f"rigorous DC-DP, epsilon {epsilon:g}",
            attacks.linked(published, members),
            attacks.told_apart(published, members, mapped(others.x, others.y)),
            attacks.left_over(published, mine.x, simulated, own),
        )
    # what publishes no record: nothing to link or to turn back, a model's losses are what is left to look at
    for what, noise in (
        ("FL, no noise", 0.0),
        ("FL-DP as published, nominal 50", methods.federated_noise(50.0, 0.01, 1000)),
    ):
        weights = methods.federated(clients, 0, noise=noise, clip=methods.CLIP if noise else None)
        losses = [_likelihood(perceptron.logits(weights, each.x), each.y) for each in (mine, others)]
        print(f"  {what:44s}      -    {100 * attacks.pairs_won(*losses):6.1f} %       -", flush=True)
    for epsilon in (8.0, 1.0):
        program = FeatureClassifier(**shared)
        found = Rehearsal(program, 10_000, 10, epsilon, figures.OUR_DELTA).run(units, 0)
        losses = []
        for each in (mine, others):
            z = (np.asarray(program.feature_map(255 * each.x)) - found["center"].value) @ found["projection"].value
            z /= np.linalg.norm(z, axis=1, keepdims=True)
            out = z @ found["weights"].value[:-1] + BIAS * found["weights"].value[-1]
            losses.append(_likelihood(out, each.y))
        won = attacks.pairs_won(*losses)
        print(f"  {f'private sum, epsilon {epsilon:g}':44s}      -    {100 * won:6.1f} %       -", flush=True)


def _likelihood(logits: Any, labels: Any) -> Floats:
    """Of every record's true class, on a logarithmic scale."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(logits[np.arange(len(labels)), labels] - np.log(np.exp(logits).sum(axis=1)), dtype=np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="tables,guarantee,record,attacks")
    parser.add_argument("--data", default="mnist,fashion")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    wanted, began = given.only.split(","), time.perf_counter()
    for name in given.data.split(","):
        if "record" in wanted:
            record(given.folder, name)
        if "attacks" in wanted:
            attacked(given.folder, name)
        if "guarantee" in wanted:
            guarantee(given.folder, name, min(given.seeds, 3))
        if "tables" in wanted:
            tables(given.folder, name, given.seeds)
        print(f"[{time.perf_counter() - began:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
