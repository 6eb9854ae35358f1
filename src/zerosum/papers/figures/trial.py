"""Runs one study on public or synthetic data with temporary ledgers, for figures and benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from numpy.typing import ArrayLike

from zerosum.algorithms import Algorithm
from zerosum.compute.units import Units
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, run


def run_trial(
    algorithm: Algorithm,
    sites: Mapping[str, ArrayLike | Units],
    *,
    epsilon: float,
    delta: float = 1e-5,
    colluders: int,
    scheme: str = DEFAULT_SCHEME,
    unit: Literal["person", "record"] = "person",
    seed: int | None,
) -> Result:
    """Run a study once. The sites' policies permit every study. With a seed the noise is reproducible and gives no
    privacy."""
    with tempfile.TemporaryDirectory(prefix="zerosum-trial-") as folder:
        policies = {
            name: Policy.throwaway(name, Path(folder) / f"{s}.sqlite", unit=unit, delta=delta, data="public")
            for s, name in enumerate(sites)
        }
        return run(
            algorithm,
            sites,
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=colluders,
            unit=unit,
            policies=policies,
            random_state=seed,
        )
