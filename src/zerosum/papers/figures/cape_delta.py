"""Figures 5 and 6 of the capeFM paper (5a to d of capeDJICA): delta of CAPE at a given epsilon, as claimed and exactly,
against its noise (`cape-delta`) and against the share of colluding sites (`cape-collusion`).

The noise tau of a message is given relative to the sensitivity of a site's function, so no data are needed. The papers
compare with delta_conv of the conventional scheme with the same noise in the result, where a message has noise
tau/sqrt(S), and with delta_pool of pooled data with the same noise in the result. Beside the claims are the exact
values for the whole view of a coordinator and its colluders, as many as the paper permits (ceil(S/3) - 1) or a swept
number, and that of a secure sum with the same noise in the result.

The claim is wrong in both directions: its mu is too small (colluders know their own draws), and its conversion from mu
to delta is loose (twice a bound of the tail, where the exact value subtracts another tail).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from zerosum.kernel import accountant
from zerosum.kernel.calculator import account
from zerosum.kernel.published import theorem_1
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition
from zerosum.papers.figures.experiment import Experiment, Run, Table
from zerosum.papers.figures.panels import subplots

# Numbers of sites and values of epsilon, one panel each.
SITES, EPSILONS = (5, 10, 30), (1.0, 3.0)

# Curve to label, colour and line style.
_LOOKS: dict[str, tuple[str, str, str]] = {
    "conv claimed": ("conv, as claimed", "#8057b8", "--"),
    "conv exact": ("conv, exactly", "#8057b8", "-"),
    "cape claimed": ("CAPE, as claimed (Theorem 1)", "#d9843b", "--"),
    "cape exact": ("CAPE, exactly", "#d9843b", "-"),
    "secure sum exact": ("secure sum, exactly", "#0b7a75", "-"),
    "pooled exact": ("pooled data (δ_pool), exactly", "#9aa5b1", "-"),
}


def claimed_delta(mu_squared: float, epsilon: float) -> float:
    """delta of Theorem 1: 2 sigma_z/(epsilon - mu_z) phi((epsilon - mu_z)/sigma_z), at most 1.

    >>> round(claimed_delta(1.25, 5.575), 7)
    1e-05
    """
    spread = math.sqrt(mu_squared)
    # The privacy loss is normal with mean mu^2/2 and variance mu^2 (capeDJICA, Theorem 1: mu_z and sigma_z).
    x = (epsilon - mu_squared / 2) / spread
    return min(1.0, 2 / x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)) if x > 0 else 1.0


def deltas(sites: int, epsilon: float, tau: float, colluders: int | None = None) -> dict[str, float]:
    """All deltas at noise `tau`, relative to the sensitivity of a site, with the paper's number of colluders or
    another."""
    coalition = Coalition(math.ceil(sites / 3) - 1 if colluders is None else colluders)

    def exact(scheme: str, own: float) -> float:
        # Only mu is used; it does not depend on delta, and 0.5 is a placeholder.
        cost = account(Scheme(scheme), sites=sites, coalition=coalition, sensitivity=1.0, delta=0.5, tau=own)
        return accountant.delta(cost.mu, epsilon)

    own = tau / math.sqrt(sites)  # noise of a message without cancelling noise, for the same noise in the result
    claimed = theorem_1(sites, coalition.colluders)
    return {
        # The classical formula tau = sqrt(2 ln(1.25/delta))/epsilon, solved for delta.
        "conv claimed": min(1.0, 1.25 * math.exp(-((epsilon * own) ** 2) / 2)),
        "conv exact": exact("local", own),
        "cape claimed": math.nan if claimed is None else claimed_delta(claimed / tau**2, epsilon),
        "cape exact": exact("cape-published", tau),
        "secure sum exact": exact("secure-sum", own),
        "pooled exact": exact("pooled", tau),
    }


def cape_delta(run: Run) -> Table:
    """delta against noise. `seeds` and `data` have no effect, since nothing is random."""
    planned = [
        (sites, epsilon, float(tau))
        for sites in SITES
        for epsilon in EPSILONS
        for tau in np.geomspace(0.5, 16, 41 if run.full else 11) * math.sqrt(3 / epsilon)
    ]
    rows: Table = []
    run.on_step(0, len(planned))
    for done, (sites, epsilon, tau) in enumerate(planned, 1):
        for name, delta in deltas(sites, epsilon, tau).items():
            rows.append({"sites": sites, "epsilon": epsilon, "tau": tau, "curve": name, "delta": delta})
        run.on_step(done, len(planned))
    return rows


def summary(rows: Table) -> Table:
    """Three of the noise levels of every setting."""
    lines: Table = []
    for sites in SITES:
        for epsilon in EPSILONS:
            own = [row for row in rows if (row["sites"], row["epsilon"]) == (sites, epsilon)]
            noises = sorted({float(row["tau"]) for row in own})
            few = {noises[len(noises) * part // 4] for part in (1, 2, 3)}
            lines += [row for row in own if row["tau"] in few]
    return lines


def draw(rows: Table, path: Path) -> None:
    """One panel for each number of sites and epsilon, both axes logarithmic."""
    figure, panels = subplots(len(EPSILONS), len(SITES), figsize=(12.5, 7.5), sharey=True)
    for line, epsilon in zip(panels, EPSILONS, strict=True):
        for axes, sites in zip(line, SITES, strict=True):
            for name, (label, colour, style) in _LOOKS.items():
                shown = [row for row in rows if (row["sites"], row["epsilon"], row["curve"]) == (sites, epsilon, name)]
                noises, values = ([float(row[column]) for row in shown] for column in ("tau", "delta"))
                axes.plot(noises, values, label=label, color=colour, ls=style, lw=1.8)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(1e-10, 2)
            colluders = math.ceil(sites / 3) - 1
            axes.set_title(f"{sites} sites, {colluders} colluding, ε = {epsilon:g}", loc="left", fontsize=11)
            axes.grid(color="#e5e8eb")
        line[0].set_ylabel("δ")
    for axes in panels[-1]:
        axes.set_xlabel("noise of a message τ over the sensitivity")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, loc="outside lower center", ncols=3)
    figure.suptitle("The δ of CAPE, as claimed and exactly, at the same noise in the result", fontsize=13)
    figure.savefig(path, dpi=120)


# Sites and epsilon of the panels of `cape-collusion`, and the exact delta of pooled data, which sets the noise.
COLLUSION, POOLED_DELTA = ((10, 1.0), (30, 1.0), (10, 3.0), (30, 3.0)), 1e-5


def cape_collusion(run: Run) -> Table:
    """delta against the share of colluding sites, at the noise at which pooled data have a delta of 1e-5.

    Theorem 1 covers less than a third of the sites (figures 5c-d of capeDJICA and 6 of capeFM end there). The exact
    value is for any number up to all sites but one. `seeds`, `full` and `data` have no effect.
    """
    planned = [(sites, epsilon, colluders) for sites, epsilon in COLLUSION for colluders in range(sites)]
    rows: Table = []
    run.on_step(0, len(planned))
    for done, (sites, epsilon, colluders) in enumerate(planned, 1):
        tau = 1 / accountant.mu_for(epsilon, POOLED_DELTA)
        for name, delta in deltas(sites, epsilon, tau, colluders).items():
            rows.append(
                {
                    "sites": sites,
                    "epsilon": epsilon,
                    "tau": tau,
                    "colluders": colluders,
                    "share": colluders / sites,
                    "curve": name,
                    "delta": delta,
                }
            )
        run.on_step(done, len(planned))
    return rows


def collusion_summary(rows: Table) -> Table:
    """No colluders, the papers' largest number, two thirds of the sites, and all but one."""
    lines: Table = []
    for sites, epsilon in COLLUSION:
        few = {0, math.ceil(sites / 3) - 1, 2 * sites // 3, sites - 1}
        own = [row for row in rows if (row["sites"], row["epsilon"]) == (sites, epsilon)]
        lines += [row for row in own if row["colluders"] in few and row["curve"] in ("cape claimed", "cape exact")]
    return lines


def draw_collusion(rows: Table, path: Path) -> None:
    """One panel for each number of sites and epsilon; the range of Theorem 1 is shaded."""
    figure, panels = subplots(2, 2, figsize=(12.5, 8.2), sharex=True)
    for axes, (sites, epsilon) in zip(panels.T.flat, COLLUSION, strict=True):
        for name, (label, colour, style) in _LOOKS.items():
            shown = [row for row in rows if (row["sites"], row["epsilon"], row["curve"]) == (sites, epsilon, name)]
            shares, values = ([float(row[column]) for row in shown] for column in ("share", "delta"))
            axes.plot(shares, values, label=label, color=colour, ls=style, lw=1.8, marker="o", markersize=2.5)
        axes.axvspan(0, (math.ceil(sites / 3) - 1) / sites, color="#d9843b", alpha=0.08, lw=0)
        axes.set_yscale("log")
        axes.set_ylim(1e-6, 2)
        axes.set_title(f"{sites} sites, ε = {epsilon:g} (shaded: Theorem 1)", loc="left", fontsize=11)
        axes.grid(color="#e5e8eb")
    for axes in panels[:, 0]:
        axes.set_ylabel("δ")
    for axes in panels[-1]:
        axes.set_xlabel("share of the sites that collude, S_C/S")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, loc="outside lower center", ncols=3)
    figure.suptitle(
        f"The δ of CAPE against colluders, at the noise of δ = {POOLED_DELTA:g} for pooled data", fontsize=13
    )
    figure.savefig(path, dpi=120)


EXPERIMENTS = (
    Experiment(
        "cape-collusion",
        cape_collusion,
        draw_collusion,
        collusion_summary,
        shown={
            "sites": "sites",
            "eps": "epsilon",
            "tau": "tau",
            "colluders": "colluders",
            "curve": "curve",
            "delta": "delta",
        },
        data=("none",),
    ),
    Experiment(
        "cape-delta",
        cape_delta,
        draw,
        summary,
        shown={"sites": "sites", "eps": "epsilon", "tau": "tau", "curve": "curve", "delta": "delta"},
        data=("none",),
    ),
)
