"""Figure 6 of capeDJICA: total epsilon against rounds by every accountant, and the exact value.

Two settings: that of the figure, with noise of variance 0.25 on G and on h for a sensitivity of one, and a run of
section V, calibrated for epsilon 0.5 in every round. Four sites, one of them colluding, delta = 1e-5. No data are
needed.

The papers account for the coordinator's view of the sum. For that view the exact value ("coordinator") is the smallest.
A coordinator that reads the messages and has a colluder sees more ("exact").
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np

from zerosum.papers.figures.experiment import Experiment, Run, Table
from zerosum.papers.figures.panels import subplots
from zerosum.papers.methods import ica_costs as costs

# Sites, colluding sites and components of the paper's experiments.
SITES, COLLUDERS, COMPONENTS = 4, 1, 20
# Names of the two settings.
FIGURE, SECTION = "figure 6, variance 0.25", "section V, epsilon 0.5 a round"
# Name of the accountant of section IV-A as printed.
WITH_STEP = "rdp with the step"

# Accountant to label, colour and line style.
_LOOKS: dict[str, tuple[str, str, str]] = {
    "composition": ("composition (Theorem 2)", "#b83b6f", ":"),
    WITH_STEP: ("RDP with the step in the noise (section IV-A as printed)", "#b5532a", ":"),
    "strong": ("strong composition", "#8057b8", "-"),
    "moments_printed": ("moments accountant, as printed", "#d9843b", "--"),
    "moments": ("moments accountant", "#d9843b", "-"),
    "rdp": ("RDP, as in the paper", "#3b6fd9", "-"),
    "rdp_best": ("RDP, best conversion", "#3b6fd9", "--"),
    "coordinator": ("exact, the sum alone", "#9aa5b1", "-"),
    "exact": ("exact, all that a coordinator and a colluder see", "#0b7a75", "-"),
}


def totals(run: Run) -> Table:
    """Total epsilon against rounds. `seeds` and `data` have no effect, since nothing is random."""
    swept = sorted({round(r) for r in np.geomspace(1, 1000, 40)}) if run.full else [1, 3, 10, 30, 100, 300, 1000]
    ratios = {FIGURE: 1 / math.sqrt(0.25), SECTION: costs.ratio(0.5)}
    planned = [(setting, rounds) for setting in ratios for rounds in swept]
    rows: Table = []
    run.on_step(0, len(planned))
    for done, (setting, rounds) in enumerate(planned, 1):
        claims = asdict(costs.claims(rounds, ratios[setting], sites=SITES, colluders=COLLUDERS))
        if setting == SECTION:
            step = 0.015 / math.log(COMPONENTS)
            claims[WITH_STEP] = costs.claimed_with_step(rounds, ratios[setting], step)
        for accountant in _LOOKS:
            if accountant in claims:
                row = {"setting": setting, "rounds": rounds, "accountant": accountant, "epsilon": claims[accountant]}
                rows.append(row)
        run.on_step(done, len(planned))
    return rows


def summary(rows: Table) -> Table:
    """Totals at a few numbers of rounds."""
    few = {1, 10, 100, 1000}
    return [row for row in rows if row["rounds"] in few]


def draw(rows: Table, path: Path) -> None:
    """One panel per setting, both axes logarithmic."""
    figure, panels = subplots(1, 2, figsize=(12.5, 6.0))
    for axes, setting in zip(panels, (FIGURE, SECTION), strict=True):
        for accountant, (label, colour, style) in _LOOKS.items():
            shown = [row for row in rows if (row["setting"], row["accountant"]) == (setting, accountant)]
            if not shown:
                continue
            axes.plot(
                [float(row["rounds"]) for row in shown],
                [float(row["epsilon"]) for row in shown],
                label=label,
                color=colour,
                ls=style,
                lw=2.5 if accountant == "exact" else 1.3,
                zorder=3 if accountant == "exact" else 2,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("rounds J")
        axes.set_title(setting, loc="left", fontsize=11)
        axes.grid(color="#e5e8eb")
    panels[0].set_ylabel(f"total ε at δ = {costs.DELTA:g}")
    handles, labels = panels[1].get_legend_handles_labels()  # this panel has all curves
    figure.legend(handles, labels, fontsize=9, loc="outside lower center", ncols=3)
    figure.suptitle(f"capeDJICA by every accountant: {SITES} sites, {COLLUDERS} colluding", fontsize=13)
    figure.savefig(path, dpi=120)


EXPERIMENTS = (
    Experiment(
        "accountants",
        totals,
        draw,
        summary,
        shown={"setting": "setting", "rounds": "rounds", "accountant": "accountant", "total eps": "epsilon"},
        data=("none",),
    ),
)
