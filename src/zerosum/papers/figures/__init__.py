"""The papers' experiments, one command each; on public or synthetic data only.

A module of experiments ends with `EXPERIMENTS`, a tuple of `Experiment`; it is registered by its name here.
"""

from __future__ import annotations

from pathlib import Path

from zerosum.errors import BadParameter
from zerosum.papers.figures import (
    accountants,
    cape_delta,
    collaboration,
    ica,
    mixture,
    network,
    pca,
    regression,
    topics,
)
from zerosum.papers.figures.experiment import Experiment, OnStep, Table, quiet

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (pca, ica, regression, network, mixture, topics, collaboration, cape_delta, accountants)
    for experiment in module.EXPERIMENTS
}


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise BadParameter(f"unknown figure {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def reproduce(
    name: str, data: str | None, folder: Path | None, out: Path, full: bool = False, on_step: OnStep = quiet
) -> Table:
    """Run one experiment and write its numbers and its picture into `out`; returns the numbers."""
    return find(name).run(out, data, folder, full=full, on_step=on_step)


__all__ = ["EXPERIMENTS", "Experiment", "find", "reproduce"]
