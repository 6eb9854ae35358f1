"""Single means with Laplace noise in shares: error over pooled Laplace noise and over Gaussian noise.

For 4, 10 and 30 sites with the default number of colluders, at epsilon 1 and delta 1e-5, the noise of a mean of one
column is drawn by the sites' own sampler, site by site, and the root mean squared error of the released sum is compared
with that of discrete Laplace noise drawn by one trusted holder, and with that of the Gaussian release of the same plan.
The last table has the lifetime cost of many such studies of the same people under either law.

    python benchmarks/single_means.py [--seeds 20000]
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from zerosum.algorithms import MeanProgram
from zerosum.kernel.accountant import compose, epsilon, mixed_epsilon
from zerosum.kernel.events import LaplaceSum
from zerosum.kernel.laplace import interval_factor
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import Noise, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.noise.sampler import Sampler
from zerosum.study import make_plan

QUESTION = MeanProgram(columns=("x",), lower=np.zeros(1), upper=np.ones(1))


def plan(sites: int, scheme: str, noise: Noise) -> Plan:
    """The plan of one mean at epsilon 1 and delta 1e-5."""
    terms = Terms(
        sites=tuple(PlannedSite(f"s{s}") for s in range(sites)),
        epsilon=1.0,
        delta=1e-5,
        scheme=Scheme(scheme),
        coalition=Coalition.default(sites),
    )
    return make_plan(QUESTION, terms, "mean", noise=noise)


def errors(of: Plan, seeds: int) -> np.ndarray:
    """The noise of the released sum in `seeds` runs, in units of the sum, from the sampler of the sites."""
    law, sampler = of.law(0), Sampler.seeded(of.study.encode())
    drawing = [std for std in law.own if std > 0] or [law.central]
    if law.decay > 0:
        drawn = [sampler.laplace_steps(seeds, law.decay, law.parts) for _ in drawing]
    else:
        drawn = [sampler.steps(seeds, float(std) / law.step) for std in drawing]
    return np.asarray(np.sum(drawn, axis=0) * law.step)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    seeds = parser.parse_args().seeds
    print("sites  honest  rms error over pooled Laplace (sqrt(S/H))  Gaussian over Laplace  inside 95 % interval")
    for sites in (4, 10, 30):
        shares, pooled = plan(sites, "secure-sum", "laplace"), plan(sites, "pooled", "laplace")
        gaussian = plan(sites, "secure-sum", "gaussian")
        drawn = [errors(each, seeds) for each in (shares, pooled, gaussian)]
        rms = [float(np.sqrt(np.mean(each**2))) for each in drawn]
        # Relative standard error of a root mean square: half of that of the mean square.
        wide = [float(np.std(each**2) / np.mean(each**2) / math.sqrt(seeds) / 2) for each in drawn]
        law = shares.law(0)
        inside = float(np.mean(np.abs(drawn[0]) < interval_factor(law.shares) * law.noise_std))
        print(
            f"{sites:5}  {law.parts:6}  {rms[0] / rms[1]:.3f} +- {math.hypot(wide[0], wide[1]) * rms[0] / rms[1]:.3f}"
            f" ({math.sqrt(sites / law.parts):.3f})  "
            f"{rms[2] / rms[0]:.3f} +- {math.hypot(wide[0], wide[2]) * rms[2] / rms[0]:.3f}  {inside:.4f}"
        )
    one = plan(4, "secure-sum", "laplace")
    pure, mu = float(one.mus(0)[0]), float(plan(4, "secure-sum", "gaussian").mus(0)[0])
    print("studies of the same people   epsilon at delta 1e-5: Laplace   Gaussian")
    for studies in (1, 2, 5, 10, 20, 40):
        mixed = mixed_epsilon(0.0, [LaplaceSum(pure, one.moves(0, 0), studies)], 1e-5)
        print(f"{studies:26}  {mixed:31.3f}  {epsilon(compose([mu] * studies), 1e-5):9.3f}")


if __name__ == "__main__":
    main()
