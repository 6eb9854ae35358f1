"""Bias of clipped gradients of least squares on made-up tables: the figures behind constants of linear regression.

    python benchmarks/clip_bias.py [--tables 100] [--people 150000]

Each table has 4 to 13 columns of several kinds (normal, binary, log-normal, Student's t, uniform, whole numbers), a
mean that may be no linear function, and errors of several laws whose spread may change. No privacy noise: the gradient
of the least squares of the whole table is 0, so that a clipped gradient there is the bias of the clip. In standard
deviations of the residuals, for columns of mean square 1. Printed:

- for clips of scores: the root mean square over the slopes of the bias, over the mean excess of the norms of scores,
  and the same of the intercept (`TUNING.closing_bias`);
- for the tightest separate clips of rows and residuals: the bias by quarters of the mean excess over 3
  (`TUNING.opening_excess`, `opening_floor`), and the normal estimate of the residual standard deviation over the true
  one (`TUNING.normal_doubt`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np

from zerosum.algorithms.regression.inference import relative_clip
from zerosum.arrays import Floats

CLIPS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
TIGHT = (1.5, 0.8)  # clip of residuals in standard deviations, squared clip of rows over their mean square
KINDS = ("normal", "binary", "skewed", "heavy", "uniform", "counts")


def columns(law: np.random.Generator, rng: np.random.Generator, people: int) -> Floats:
    """Correlated columns; `law` decides the kinds, `rng` draws the people."""
    count = int(law.integers(4, 14))
    mixing = np.eye(count) + law.uniform(0, 0.5) * law.normal(size=(count, count))
    kinds = law.choice(KINDS, size=count, p=[0.35, 0.2, 0.15, 0.1, 0.1, 0.1])
    spread, cut = law.uniform(0.3, 1.0, count), law.uniform(-1, 2, count)
    z = rng.normal(size=(people, count)) @ mixing.T / np.sqrt(np.sum(mixing**2, axis=1))
    made: dict[str, Callable[[int], Floats]] = {
        "normal": lambda j: z[:, j],
        "binary": lambda j: (z[:, j] > cut[j]).astype(np.float64),
        "skewed": lambda j: np.exp(spread[j] * z[:, j]),
        "heavy": lambda j: z[:, j] * np.sqrt(4 / rng.chisquare(4, people)),
        "uniform": lambda j: np.tanh(z[:, j]),
        "counts": lambda j: np.round(np.exp(0.5 * z[:, j] + 0.5)),
    }
    x = np.column_stack([made[kind](j) for j, kind in enumerate(kinds)])
    if law.random() < 0.25:  # a nearly collinear pair
        x[:, 0] = x[:, 1] + 0.3 * np.std(x[:, 1]) * rng.normal(size=people)
    return x


def table(seed: int, people: int) -> tuple[Floats, Floats]:
    """Standardised columns and a constant (people, D), and responses (people,)."""
    law, rng = np.random.default_rng(10_000 + seed), np.random.default_rng(seed)
    x = columns(law, rng, people)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    mean = x @ (law.normal(size=x.shape[1]) * (law.random(x.shape[1]) < 0.8))
    bend = law.choice([0.0, 0.1, 0.4], p=[0.5, 0.3, 0.2])
    mean = mean + bend * (x[:, 0] ** 2 + 1.5 * (x[:, 1] > 1) + x[:, 2] * x[:, 3])
    size = max(float(np.std(mean)), 0.3)
    errors: dict[str, Callable[[], Floats]] = {
        "normal": lambda: rng.normal(size=people),
        "t3": lambda: rng.standard_t(3, people) / 1.7,
        "t5": lambda: rng.standard_t(5, people) / 1.3,
        "gamma": lambda: (rng.gamma(1.5, 1.0, people) - 1.5) / 1.2,
        "skewed": lambda: (np.exp(0.8 * rng.normal(size=people)) - math.exp(0.32)) / 1.3,
        "mixture": lambda: rng.normal(size=people) * np.where(rng.random(people) < 0.05, 4, 1) / 1.3,
    }
    error = errors[str(law.choice(list(errors), p=[0.35, 0.1, 0.1, 0.2, 0.15, 0.1]))]()
    grows = law.choice(3, p=[0.5, 0.3, 0.2])
    if grows == 1:  # with some columns
        error = error * np.exp(np.clip(x @ (0.4 * law.normal(size=x.shape[1]) * (law.random(x.shape[1]) < 0.3)), -2, 2))
    if grows == 2:  # with the mean
        error = error * np.clip(0.5 + 0.5 * (mean - mean.mean()) / size, 0.1, 4)
    y = mean + math.exp(law.uniform(-1.2, 1.2)) * size * error
    # public ranges that nearly all values keep
    x, y = (np.clip(each, *np.quantile(each, (0.0002, 0.9998), axis=0)) for each in (x, y))
    return np.column_stack([x, np.ones(people)]), y


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--people", type=int, default=150_000)
    chosen = parser.parse_args()
    slopes, constants, tight = [], [], []
    for seed in range(chosen.tables):
        u, y = table(seed, chosen.people)
        gap = y - u @ np.linalg.lstsq(u, y, rcond=None)[0]
        gap = gap / np.std(gap)
        length = np.linalg.norm(u, axis=1) / math.sqrt(u.shape[1])
        norms = np.abs(gap) * length
        biases = [u.T @ (gap * (1 - np.minimum(1, clip / np.maximum(norms, 1e-9)))) / len(u) for clip in CLIPS]
        excess = np.array([np.mean(np.maximum(norms - clip, 0)) for clip in CLIPS])
        usable = np.where(excess > 2e-4, excess, np.nan)
        slopes.append([math.sqrt(float(np.mean(each[:-1] ** 2))) for each in biases] / usable)
        constants.append([abs(float(each[-1])) for each in biases] / usable)
        shrunk = np.minimum(1, math.sqrt(TIGHT[1]) / length)
        clipped = np.clip(shrunk * gap, -TIGHT[0], TIGHT[0])
        bias = (u * (shrunk * clipped)[:, None]).mean(axis=0)[:-1]
        normal = TIGHT[0] / relative_clip(float(np.mean(clipped**2)), TIGHT[0]) / math.sqrt(float(np.mean(shrunk**2)))
        tight.append([excess[1], math.sqrt(float(np.mean(bias**2))), normal])
    print("| clip of scores | tables | slopes: root mean square | median | intercept: root mean square |")
    print("|---|---|---|---|---|")
    for at, clip in enumerate(CLIPS):
        own, constant = np.array(slopes)[:, at], np.array(constants)[:, at]
        print(
            f"| {clip:g} | {np.sum(np.isfinite(own))} | {math.sqrt(float(np.nanmean(own**2))):.2f} | "
            f"{np.nanmedian(own):.2f} | {math.sqrt(float(np.nanmean(constant**2))):.2f} |"
        )
    print("\n| mean excess over 3 | bias at tight clips: root mean square | median | over the excess | normal std |")
    print("|---|---|---|---|---|")
    for part in np.array_split(np.array(sorted(tight)), 4):
        size = math.sqrt(float(np.mean(part[:, 1] ** 2)))
        print(
            f"| {part[0, 0]:.4f} to {part[-1, 0]:.4f} | {size:.4f} | {np.median(part[:, 1]):.4f} | "
            f"{size / np.mean(part[:, 0]):.2f} | {np.mean(part[:, 2]):.2f} |"
        )


if __name__ == "__main__":
    main()
