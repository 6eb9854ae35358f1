"""Table I of capeDJICA (table 1 of capeFM): communication of a site and of the aggregator, measured in bytes.

The papers state orders of growth in the number of sites S, the size of the vector D and, for the scheme of Heikkilä et
al. (2017), the number of compute nodes M. Here one mean of D columns is computed under every scheme with noise, by
sites in this process that read and write the frames of real ones (`zerosum.protocol.codec`). Bytes are counted in both
directions, in three phases:

- consent: the plan, which has a line for each site and the names of the columns, and the answer. The papers have no
  such phase.
- set-up: public keys and shares of secrets for one round (secure aggregation only).
- round: everything else, for one release.

The aggregator sends and receives the bytes of all sites. No site is lost, and ceil(S/3) - 1 sites may collude, but at
least one. The scheme of Heikkilä et al. and those that Goryczka et al. (2013) compare are not in Zerosum and have no
measurement.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess
from zerosum.kernel.schemes import SCHEMES, Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.papers.figures.experiment import Experiment, Row, Run, Table
from zerosum.protocol.codec import Frame, decode_message
from zerosum.protocol.messages import Propose, Secure
from zerosum.secagg.keys import Identity
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import execute, make_plan, pin

# Numbers of sites and of columns, and those that a full run adds.
SITES, NUMBERS = (4, 8, 16), (10, 100, 1000)
MORE_SITES, MORE_NUMBERS = (32,), (10_000,)
PEOPLE = 10  # units of each site, the least that a policy admits by default; no message grows with them
SET_UP_STEPS = ("advertise", "share", "receive")  # of secure aggregation, before the first round

# Scheme to the row of the papers, its orders for a site and for the aggregator, and a colour. In brackets: not in the
# table itself.
_PRINTED: dict[str, tuple[str, str, str, str]] = {
    "pooled": ("", "", "", "#9aa5b1"),
    "local": ("(conventional scheme, text)", "Θ(D)", "Θ(SD)", "#8057b8"),
    "cape-published": ("CAPE", "O(S+D)", "O(S²+SD)", "#d9843b"),
    "cape-helper": ("(capePCA, text: matrices D×D)", "", "3SD²", "#b5532a"),
    "zero-sum": ("(CAPE with another ratio)", "", "", "#b83b6f"),
    "pairwise": ("", "", "", "#3b6fd9"),
    "secure-sum": ("Bonawitz et al.", "O(S+D)", "O(S²+SD)", "#0b7a75"),
}
# Rows of the papers without a scheme here.
_OTHERS = (
    ("Heikkilä et al.", "Θ(DM)", "Θ(SDM)"),
    ("(Goryczka, sharing)", "", "O(S²)"),
    ("(Goryczka, others)", "", "O(S)"),
)


class _Phases:
    """Counts the bytes that pass between the coordinator and each site of another engine, by phase."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.bytes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.exchanges: dict[str, int] = defaultdict(int)

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        message = decode_message(next(iter(frames.values())))
        early = isinstance(message, Secure) and message.step in SET_UP_STEPS
        phase = "consent" if isinstance(message, Propose) else "set-up" if early else "round"
        self.exchanges[phase] += 1
        for name, reply in self._engine.exchange(frames):
            self.bytes[phase][name] += len(frames[name]) + (0 if reply is None else len(reply))
            yield name, reply


def message_sizes(scheme: str, sites: int, numbers: int) -> Table:
    """One row for each phase of a study of one mean."""
    question = MeanProgram(columns=tuple(f"c{at:05d}" for at in range(numbers)), clip=1.0)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        members = [
            Site(
                f"site-{at:02d}",
                Units.from_rows(rng.normal(size=(PEOPLE, numbers)) / math.sqrt(numbers)),
                Policy(population=f"p{at}", data="synthetic", epsilon=100.0, ledger=Path(folder, f"{at}.sqlite")),
                Identity(),
            )
            for at in range(sites)
        ]
        terms = Terms(
            sites=tuple(PlannedSite(site.name, PEOPLE) for site in members),
            epsilon=1.0,
            delta=1e-5,
            scheme=Scheme(scheme),
            coalition=Coalition.default(sites),
        )
        with closing(InProcess(members)) as engine:
            counting = _Phases(engine)
            execute(pin(make_plan(question, terms, "communication", noise="gaussian"), members), question, counting)
    _, of_site, of_aggregator, _ = _PRINTED[scheme]
    return [
        {
            "scheme": scheme,
            "sites": sites,
            "numbers": numbers,
            "phase": phase,
            "exchanges": counting.exchanges[phase],
            # the largest of any site, since names and thresholds may differ by a few bytes
            "site_bytes": max(counting.bytes[phase].values(), default=0),
            "aggregator_bytes": sum(counting.bytes[phase].values()),
            "paper_site": of_site,
            "paper_aggregator": of_aggregator,
        }
        for phase in ("consent", "set-up", "round")
    ]


def communication(run: Run) -> Table:
    """Bytes of every scheme, number of sites and number of columns. `seeds` and `data` have no effect, since sizes of
    messages do not depend on draws."""
    planned = [
        (scheme, sites, numbers)
        for scheme, facts in SCHEMES.items()
        if facts.noisy
        for sites in (*SITES, *(MORE_SITES if run.full else ()))
        for numbers in (*NUMBERS, *(MORE_NUMBERS if run.full else ()))
    ]
    rows: Table = []
    run.on_step(0, len(planned))
    for done, each in enumerate(planned, 1):
        rows += message_sizes(*each)
        run.on_step(done, len(planned))
    return rows


def growth(rows: Table, scheme: str, phase: str) -> tuple[float, float, float]:
    """Bytes of a site as a + b S + c D, by least squares over the measured settings: (a, b, c)."""
    own = [row for row in rows if (row["scheme"], row["phase"]) == (scheme, phase)]
    # The least-squares plane is exact up to bytes of encoding where the orders of the papers hold, O(S + D).
    design = np.array([[1.0, float(row["sites"]), float(row["numbers"])] for row in own])
    a, b, c = np.linalg.lstsq(design, np.array([float(row["site_bytes"]) for row in own]), rcond=None)[0]
    return float(a), float(b), float(c)


def _formula(rows: Table, scheme: str, phase: str) -> str:
    """The growth in words: terms below half a byte are left out."""
    a, b, c = growth(rows, scheme, phase)
    parts = [f"{value:.0f}{unit}" for value, unit in ((a, ""), (b, " S"), (c, " D")) if abs(value) >= 0.5]
    return " + ".join(parts).replace("+ -", "- ") or "0"


def summary(rows: Table) -> Table:
    """Bytes of a site at the largest number of columns, and the rows of the papers that have no scheme here."""
    largest = max(int(row["numbers"]) for row in rows)
    lines: dict[tuple[str, int], Row] = {}
    for row in rows:
        if row["numbers"] == largest:
            line = lines.setdefault((str(row["scheme"]), int(row["sites"])), dict(row))
            line[str(row["phase"])] = row["site_bytes"]
    blank = dict.fromkeys(("sites", "numbers", "set-up", "round"), "")
    others: Table = [
        {"scheme": name, **blank, "paper_site": of_site, "paper_aggregator": of_aggregator}
        for name, of_site, of_aggregator in _OTHERS
    ]
    return [*lines.values(), *others]


def draw(rows: Table, path: Path) -> None:
    """Set-up against sites, a round against sites and numbers, and the table of the papers with the measured growth."""
    from matplotlib.figure import Figure

    schemes = list(dict.fromkeys(str(row["scheme"]) for row in rows))
    sites, numbers = (sorted({int(row[column]) for row in rows}) for column in ("sites", "numbers"))
    figure = Figure(figsize=(13.5, 9.2), layout="constrained")
    grid = figure.subplot_mosaic("abc;ttt", height_ratios=[1.25, 1])
    panels = (
        ("a", "set-up", "sites", {"numbers": numbers[-1]}, "set-up, once a study"),
        ("b", "round", "sites", {"numbers": numbers[0]}, f"a round of {numbers[0]} numbers"),
        ("c", "round", "numbers", {"sites": sites[-1]}, f"a round of {sites[-1]} sites"),
    )
    for key, phase, along, fixed, title in panels:
        axes = grid[key]
        for at, scheme in enumerate(schemes):
            shown = [
                row
                for row in rows
                if (row["scheme"], row["phase"]) == (scheme, phase) and all(row[k] == v for k, v in fixed.items())
            ]
            if not any(row["site_bytes"] for row in shown):
                continue
            axes.plot(
                [float(row[along]) for row in shown],
                [float(row["site_bytes"]) for row in shown],
                label=scheme,
                color=_PRINTED[scheme][3],
                # Schemes with equal bytes remain visible: later lines are thinner and dashed.
                lw=3.4 - 0.35 * at,
                ls=("-", "--", "-.", ":")[at % 4],
                marker="o",
                markersize=4,
            )
        axes.set_xscale("log", base=10 if along == "numbers" else 2)
        axes.set_xticks([float(each) for each in (numbers if along == "numbers" else sites)])
        axes.set_xticklabels([f"{each:g}" for each in (numbers if along == "numbers" else sites)])
        axes.minorticks_off()
        axes.set_yscale("log")
        axes.set_xlabel("sites S" if along == "sites" else "numbers D")
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(color="#e5e8eb")
    grid["a"].set_ylabel("bytes to and from a site")
    grid["a"].text(0.04, 0.95, "the schemes with secure aggregation alike;\nnone for the others", va="top", fontsize=9,
                   transform=grid["a"].transAxes)  # fmt: skip
    handles, labels = grid["c"].get_legend_handles_labels()
    grid["c"].legend(handles, labels, fontsize=8.5)
    cells = [
        [scheme, *_PRINTED[scheme][:3], _formula(rows, scheme, "set-up"), _formula(rows, scheme, "round")]
        for scheme in schemes
    ]
    cells += [["not in Zerosum", name, of_site, of_aggregator, "", ""] for name, of_site, of_aggregator in _OTHERS]
    grid["t"].axis("off")
    table = grid["t"].table(
        cells,
        colLabels=["scheme", "row of the papers", "site", "aggregator", "measured, a site: set-up", "a round"],
        colWidths=[0.12, 0.25, 0.1, 0.11, 0.2, 0.22],
        loc="center",
        cellLoc="left",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9.5)
    table.scale(1, 1.45)
    for (line, _), cell in table.get_celld().items():
        cell.set_edgecolor("#d5dae0")
        if line == 0:
            cell.set_text_props(fontweight="bold")
    figure.suptitle(
        "Communication: table I of capeDJICA beside bytes measured (the aggregator: S times a site)", fontsize=13
    )
    figure.savefig(path, dpi=120)


EXPERIMENTS = (
    Experiment(
        "communication",
        communication,
        draw,
        summary,
        shown={
            "scheme": "scheme",
            "sites": "sites",
            "numbers": "numbers",
            "set-up": "set-up",
            "a round": "round",
            "paper: site": "paper_site",
            "aggregator": "paper_aggregator",
        },
        data=("none",),
    ),
)
