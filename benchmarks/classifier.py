"""Accuracy and time of the linear classifier on public features, on images never looked at while settings were chosen.

    python benchmarks/classifier.py DATA [--only mnist,fashion,tables,time] [--seeds 3]

DATA holds mnist.npz and fashion_mnist.npz. The settings are one rule in the noise of a gradient, found on a part of the
training images; test images are used here alone. Studies are rehearsed: the program with its planned noise, ten sites,
three colluders, delta 1e-5. `time` runs one real study between ten sites in this process, with its secure sum and its
ledgers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import zerosum
from zerosum.algorithms import FeatureClassifierProgram
from zerosum.compute.units import Units
from zerosum.statistics.features import build
from zerosum.statistics.softmax import BIAS
from zerosum.study.rehearsal import Rehearsal

IMAGES = {"kind": "scattering", "height": 28, "width": 28}
SITES, COLLUDERS, DELTA = 10, 3, 1e-5
EPSILONS = (1.0, 3.0, 8.0)
SCHEMES = (("secure-sum", COLLUDERS), ("local", COLLUDERS), ("pooled", 0), ("non-private", 0))


def images(folder: Path, name: str, count: int | None = None) -> tuple[Units, NDArray[np.float32], NDArray[np.int64]]:
    """The training images with their labels as units, and features and labels of the test images."""
    data = np.load(folder / f"{name}.npz")
    train = data["x_train"][:count].reshape(-1, 784).astype(np.float32)
    labels = data["y_train"][:count].astype(np.float32)
    test = build(IMAGES)(data["x_test"].reshape(-1, 784).astype(np.float32))
    return Units(np.column_stack([train, labels])), np.asarray(test), data["y_test"].astype(int)


def program(classes: int, inputs: int, features: dict[str, object]) -> FeatureClassifierProgram:
    columns = (*(f"p{i}" for i in range(inputs)), "class")
    return FeatureClassifierProgram(columns=columns, classes=tuple(map(float, range(classes))), features=features)


def accuracy(estimate: zerosum.algorithms.Estimate, features: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    z = (features - estimate["center"].value) @ estimate["projection"].value
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    weights = estimate["weights"].value
    return float(np.mean(np.argmax(z @ weights[:-1] + BIAS * weights[-1], axis=1) == labels))


def table(folder: Path, name: str, seeds: int) -> None:
    began = time.perf_counter()
    units, test, labels = images(folder, name)
    program_ = program(10, 784, IMAGES)
    print(f"\n{name}, {len(units)} images, {SITES} sites, {COLLUDERS} colluders, delta {DELTA:g}, {seeds} seeds")
    for scheme, colluders in SCHEMES:
        for epsilon in EPSILONS if scheme != "non-private" else (8.0,):
            asked = Rehearsal(program_, len(units), SITES, epsilon, DELTA, colluders=max(colluders, 1), scheme=scheme)
            found = [accuracy(asked.run(units, seed), test, labels) for seed in range(seeds)]
            chosen = asked.algorithm
            assert isinstance(chosen, FeatureClassifierProgram)
            spread = f"{100 * np.mean(found):.2f} % (sd {100 * np.std(found, ddof=1) if seeds > 1 else 0:.2f})"
            told = f"{chosen.rounds} rounds, clip {chosen.clip:.2f}"
            print(
                f"  {scheme:12s} eps {epsilon:g}: {spread}   {told}   [{time.perf_counter() - began:.0f} s]", flush=True
            )


def made_up(folder: Path, seeds: int) -> None:
    """Tables: random waves against columns as they are, where classes are not linear in the columns."""
    print(f"\nmade-up table, 8 columns, 3 classes, 4 sites, 1 colluder, delta {DELTA:g}, {seeds} seeds")
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.7, 0.7, (12, 8))

    def draw(count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        which = rng.integers(0, 12, count)
        return np.clip(centers[which] + 0.25 * rng.normal(size=(count, 8)), -1, 1), which % 3

    (rows, labels), (test, truth) = draw(20_000), draw(5_000)
    units = Units(np.column_stack([rows, labels]))
    ranges = {"lower": [-1.0] * 8, "upper": [1.0] * 8}
    for kind in ("linear", "random"):
        settings: dict[str, object] = {"kind": kind, **ranges}
        features = np.asarray(build(settings)(test))
        for epsilon in EPSILONS:
            asked = Rehearsal(program(3, 8, settings), len(units), 4, epsilon, DELTA)
            found = [accuracy(asked.run(units, seed), features, truth) for seed in range(seeds)]
            print(f"  {kind:8s} eps {epsilon:g}: {100 * np.mean(found):.1f} %", flush=True)


def timed(folder: Path) -> None:
    """One real study, end to end, and where its time goes."""
    data = np.load(folder / "mnist.npz")
    parts = np.array_split(np.arange(60_000), SITES)
    images_of = {f"site {s}": data["x_train"][part] for s, part in enumerate(parts)}
    labels_of = {f"site {s}": data["y_train"][part] for s, part in enumerate(parts)}
    began = time.perf_counter()
    build(IMAGES)(data["x_train"][:3000].reshape(-1, 784))
    features = (time.perf_counter() - began) / 3000
    began = time.perf_counter()
    fitted = zerosum.FeatureClassifier(
        "scattering", classes=range(10), epsilon=3.0, delta=DELTA, colluders=COLLUDERS, random_state=0, data="synthetic"
    ).fit(images_of, labels_of)
    whole = time.perf_counter() - began
    rounds = len(fitted.result_.participants)
    print(f"\none study of 60 000 images at {SITES} sites in this process: {whole:.0f} s for {rounds} rounds")
    print(f"  features: {1000 * features:.2f} ms an image, {60_000 * features:.0f} s of it")
    print(f"  accuracy on test images: {100 * fitted.score(data['x_test'], data['y_test']):.2f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="mnist,fashion,tables,time")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    wanted = given.only.split(",")
    if "mnist" in wanted:
        table(given.data, "mnist", given.seeds)
    if "fashion" in wanted:
        table(given.data, "fashion_mnist", given.seeds)
    if "tables" in wanted:
        made_up(given.data, given.seeds)
    if "time" in wanted:
        timed(given.data)


if __name__ == "__main__":
    main()
