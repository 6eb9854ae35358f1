"""Training through the private sum: run `python benchmarks/network.py speed | accounting | paper`.

`speed` (needs PyTorch and Opacus): the sum of clipped per-example gradients of 256 images, of a convolutional net with
26 010 weights, by `ModuleGradient` and by Opacus' GradSampleModule, side by side in one run; ratios with their spread.

`accounting`: the noise of a step, full batch and Poisson samples at equal steps, for a replaced unit, held against
dp-accounting's privacy loss distributions; and what accounting for added and removed units would have allowed.

`paper`: the capeFM paper's net under every scheme at the same exact epsilon and as published, for both readings of its
data (`--seeds`, `--full` for our program with the planner's own steps).

Accuracy on images has a script of its own, which needs PyTorch and NumPy alone: `benchmarks/network_images.py`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from zerosum.compute.units import Units
from zerosum.kernel import accountant
from zerosum.kernel.events import Sampling
from zerosum.kernel.phases import step_mu
from zerosum.papers.figures.experiment import Run

DELTA = 1e-5
RECORDS = 60_000


# ---- speed ----------------------------------------------------------------------------------------------------------


def speed(repeats: int, count: int = 256) -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]
    from opacus.grad_sample import GradSampleModule  # type: ignore[import-not-found,unused-ignore]

    from zerosum.statistics.module import ModuleGradient
    from zerosum.statistics.module_gradients import Architecture
    from zerosum.statistics.module_registry import tanh_cnn

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random((count, 784)), rng.integers(0, 10, count)])
    weights = Architecture.of("tanh-cnn", {}, (1, 28, 28), 10, "float32").start(0)
    common: dict[str, Any] = {"columns": 785, "classes": 10, "module": "tanh-cnn", "shape": (1, 28, 28), "clip": 0.1}
    stat, units = ModuleGradient(**common, weights=weights), Units.from_rows(rows)
    x = torch.from_numpy(rows[:, :-1].astype(np.float32)).reshape(-1, 1, 28, 28)
    y = torch.from_numpy(rows[:, -1].astype(np.int64))
    theirs = GradSampleModule(tanh_cnn())

    def ours() -> Any:
        return stat.total(units)

    def opacus() -> Any:
        theirs.zero_grad(set_to_none=True)
        for each in theirs.parameters():
            each.grad_sample = None
        torch.nn.functional.cross_entropy(theirs(x), y, reduction="sum").backward()
        samples = [each.grad_sample for each in theirs.parameters()]
        norms = torch.sqrt(sum(each.flatten(1).square().sum(1) for each in samples))
        factors = (0.1 / norms).clamp(max=1)
        return [torch.einsum("b,b...->...", factors, each) for each in samples]

    print(f"{stat.size} weights, {count} examples in batches of {stat.runner(units).batch}, one thread")
    times = {"zerosum": timed(ours, 2), "opacus": timed(opacus, 2)}
    for _ in range(repeats):
        times["zerosum"] += timed(ours, 1)
        times["opacus"] += timed(opacus, 1)
    here, there = (1e3 * np.array(times[name][2:]) for name in ("zerosum", "opacus"))
    low, middle, high = np.quantile(here / there, (0.1, 0.5, 0.9))
    print(f"zerosum {np.median(here):.1f} ms of processor time, opacus {np.median(there):.1f} ms")
    print(f"ratio {middle:.3f} (10 to 90 %: {low:.3f} to {high:.3f}, {repeats} pairs)")


def timed(work: Callable[[], Any], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.process_time()  # one thread: what others do on the machine counts less
        work()
        found.append(time.process_time() - began)
    return found


# ---- accounting -----------------------------------------------------------------------------------------------------


def pld_epsilon(mu: float, rate: float, steps: int, *, replaced: bool = True) -> float:
    """By dp-accounting alone; `mu` is a step's for a unit that is there or not."""
    import dp_accounting
    from dp_accounting import pld

    relation = dp_accounting.NeighboringRelation
    found = pld.PLDAccountant(relation.REPLACE_ONE if replaced else relation.ADD_OR_REMOVE_ONE)
    found.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1 / mu)), steps)
    return float(found.get_epsilon(DELTA))


def largest(fits: Callable[[float], bool], low: float, high: float = 4.0) -> float:
    for _ in range(10):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def accounting(settings: list[tuple[float, int]], epsilons: list[float]) -> None:
    print("noise of the mean gradient times N/C, by a step's noise over the clip C and the rate q; a unit replaced")
    for epsilon in epsilons:
        whole = accountant.mu_for(epsilon, DELTA)
        for rate, steps in settings:
            full = 2 * steps**0.5 / whole
            mu = step_mu(whole, Sampling(rate, steps), DELTA)
            again = pld_epsilon(mu, rate, steps)
            loose = largest(lambda m: pld_epsilon(m, rate, steps, replaced=False) <= epsilon, mu)  # noqa: B023
            print(
                f"eps {epsilon:g}, q {rate:.4f}, {steps} steps: full batch {full:.1f} (eps by PLD "
                f"{pld_epsilon(1 / full, 1.0, steps):.3f}), sampled {1 / mu / rate:.1f} (eps by PLD {again:.3f}; noise "
                f"over the clip {1 / mu:.3f}); add-remove would allow {loose / mu:.2f} times less",
                flush=True,
            )


# ---- the paper's net ------------------------------------------------------------------------------------------------


def paper(seeds: int, full: bool) -> None:
    from zerosum.papers.figures import network as figures

    for data in figures.DATA:
        lines = figures.summary(figures.carry("epsilon", Run(data, seeds=seeds, full=full)))
        print(f"means 1 apart in {'norm' if data == 'norm' else 'every coordinate'}; accuracy on other examples")
        for method, calibration in dict.fromkeys((line["method"], line["calibration"]) for line in lines):
            own = [line for line in lines if (line["method"], line["calibration"]) == (method, calibration)]
            told = ", ".join(
                f"eps {line['epsilon']:g}"
                + (f" (truly {line['exact_epsilon']:.3g})" if calibration == "published" else "")
                + f": {line['accuracy']:.4f} +- {line['spread']:.4f}"
                for line in own
            )
            print(f"  {method}, {calibration}: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("speed", "accounting", "paper"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--full", action="store_true")
    asked = parser.parse_args()
    if asked.what == "speed":
        speed(asked.repeats)
    elif asked.what == "accounting":
        accounting([(512 / RECORDS, 1170), (2048 / RECORDS, 440)], [1.0, 3.0, 8.0])
    else:
        paper(asked.seeds, asked.full)


if __name__ == "__main__":
    main()
