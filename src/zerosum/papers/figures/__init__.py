"""Reproductions of the papers' figures and tables, one command each, on public or synthetic data only.

Each module ends with `EXPERIMENTS`, a tuple of `Experiment`. Experiments are registered here by name.
"""

from __future__ import annotations

from pathlib import Path

from zerosum.errors import BadParameter
from zerosum.papers.figures import (
    abide,
    accountants,
    cape_delta,
    collaboration,
    communication,
    djica,
    ica,
    mixture,
    network,
    pca,
    regression,
    topics,
)
from zerosum.papers.figures.catalogue import CATALOGUE, Entry
from zerosum.papers.figures.experiment import Experiment, OnStep, Table, quiet

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (
        pca,
        ica,
        abide,
        djica,
        regression,
        network,
        mixture,
        topics,
        collaboration,
        cape_delta,
        accountants,
        communication,
    )
    for experiment in module.EXPERIMENTS
}


def find(name: str) -> Experiment:
    """Experiment by name. Raises `BadParameter` for unknown names."""
    if name not in EXPERIMENTS:
        raise BadParameter(f"unknown figure {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def reproduce(
    name: str, data: str | None, folder: Path | None, out: Path, full: bool = False, on_step: OnStep = quiet
) -> Table:
    """Run one experiment, write its CSV file and picture to `out`, and return its rows.

    Parameters
    ----------
    name : str
        Name of the experiment.
    data : str, optional
        Data set; by default the experiment's first.
    folder : Path, optional
        Folder with real data sets.
    out : Path
        Output folder.
    full : bool
        The papers' sizes, instead of a quick run.
    on_step : callable
        Receives (done, planned).
    """
    return find(name).run(out, data, folder, full=full, on_step=on_step)


__all__ = ["CATALOGUE", "EXPERIMENTS", "Entry", "Experiment", "find", "reproduce"]
