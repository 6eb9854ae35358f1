"""Coverage of the intervals of multinomial regression, and its accuracy beside scikit-learn's without privacy.

    python benchmarks/multinomial.py [--runs 50] [--epsilons 0.5 1 3] [--covertype DATA/covtype_60k.npz]

Made-up rows: normal columns clipped at three standard deviations, classes by a multinomial model. The sizes are in
`KINDS`. The fit on pooled data is scikit-learn's without a penalty. `pooled` is the share of 90 % intervals that
contain the pooled coefficients, `population` the true ones: mean over coefficients, and the worst one. With Covertype:
accuracy on the last fifth of the rows, five sites, ten numeric columns, seven classes. The digits of scikit-learn: the
same, 16 columns (means of blocks of four pixels), ten classes.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import zerosum

Floats = NDArray[np.float64]
SITES, LEVEL = 5, 1.6448536269514722
# Name: people, columns, classes, size of the true coefficients.
KINDS = {"small": (3000, 3, 3, 0.8), "usual": (10_000, 4, 3, 0.8), "wide": (20_000, 8, 4, 0.5)}


def fitted(x: Floats, y: NDArray[Any], bounds: dict[str, Any], epsilon: float, seed: int) -> Any:
    """A fit over equal sites."""
    parts = np.array_split(np.arange(len(x)), SITES)
    settings: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-5, "random_state": seed, "data": "synthetic"}
    model = zerosum.MultinomialRegression(response=np.unique(y).tolist(), **bounds, **settings)
    return model.fit([x[part] for part in parts], [y[part] for part in parts])


def coverage(kind: str, epsilon: float, runs: int) -> None:
    """Print one line about intervals."""
    units, columns, classes, size = KINDS[kind]
    rng = np.random.default_rng(5)
    true = np.vstack([np.zeros(columns), size * rng.normal(size=(classes - 1, columns))])
    base = np.append(0.0, 0.5 * rng.normal(size=classes - 1))
    found: dict[str, list[Any]] = {"pooled": [], "population": [], "std": [], "error": [], "known": []}
    for seed in range(runs):
        rng = np.random.default_rng([seed, 1])
        x = np.clip(rng.normal(size=(units, columns)), -3, 3)
        y = np.argmax(x @ true.T + base + rng.gumbel(size=(units, classes)), axis=1)
        ours = fitted(x, y, {"lower": -3, "upper": 3}, epsilon, seed)
        pooled = LogisticRegression(C=1e9, max_iter=1000).fit(x, y).coef_
        away = ours.coef_ - (pooled[1:] - pooled[0])
        found["pooled"].append(np.abs(away) <= LEVEL * ours.noise_std_)
        found["population"].append(np.abs(ours.coef_ - true[1:]) <= LEVEL * ours.population_std_)
        found["std"].append(np.median(ours.noise_std_))
        found["error"].append(np.sqrt(np.mean(away**2)))
        found["known"].append(np.mean([row.identified for row in ours.table_.rows]))
    shares = {name: np.mean(found[name], axis=0) for name in ("pooled", "population")}
    covered = "  ".join(f"{name} {each.mean():.3f} (worst {each.min():.2f})" for name, each in shares.items())
    print(
        f"{kind:>8} {epsilon:>4} {covered}  sd {np.mean(found['std']):.3f} error {np.mean(found['error']):.3f} "
        f"identified {np.mean(found['known']):.2f}",
        flush=True,
    )


def accuracy(name: str, x: Floats, y: NDArray[Any], bounds: dict[str, Any], epsilon: float, runs: int) -> None:
    """Print one line about predictions for the last fifth of the rows."""
    cut = len(x) * 4 // 5
    free = LogisticRegression(C=1e9, max_iter=1000).fit(x[:cut] / np.ptp(x[:cut], axis=0).clip(1e-9), y[:cut])
    best = free.score(x[cut:] / np.ptp(x[:cut], axis=0).clip(1e-9), y[cut:])
    ours = [fitted(x[:cut], y[:cut], bounds, epsilon, seed).score(x[cut:], y[cut:]) for seed in range(runs)]
    print(
        f"{name:>9} {epsilon:>4} accuracy {np.mean(ours):.3f} +- {np.std(ours):.3f}, not private {best:.3f}", flush=True
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--covertype", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for kind in given.kinds:
        for epsilon in given.epsilons:
            coverage(kind, epsilon, given.runs)
    pixels, digit = load_digits(return_X_y=True)
    blocks = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    for epsilon in given.epsilons:
        accuracy("digits", blocks, digit, {"lower": 0, "upper": 16}, epsilon, min(given.runs, 5))
    if given.covertype is not None:
        held = np.load(given.covertype)
        x = held["X"][:, :10].astype(np.float64)
        # Public ranges of the columns, from the description of the data.
        lower = np.array([1800, 0, 0, 0, -200, 0, 0, 0, 0, 0.0])
        upper = np.array([3900, 360, 70, 1400, 620, 7200, 255, 255, 255, 7200.0])
        for epsilon in given.epsilons:
            accuracy("covertype", x, held["y"], {"lower": lower, "upper": upper}, epsilon, min(given.runs, 3))


if __name__ == "__main__":
    main()
