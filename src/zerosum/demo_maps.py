"""Demo of independent component analysis: brain maps of synthetic people at four sites, with and without privacy.

Four methods separate the same data: without privacy, Zerosum over four sites, one site alone with the same budget, and
capeDJICA as published. The methods and the comparison are those of the figures of the papers
(`zerosum.papers.figures.separating`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.data.fmri import make_fmri
from zerosum.papers.figures.panels import Panel, aligned, draw_panels
from zerosum.papers.figures.separating import OURS, OURS_ALONE, OURS_OPEN, PAPERS_ROUNDS, Separating, Trial

# Budget of a study.
EPSILON, DELTA = 1.0, 1e-5
# Synthetic study: sites, components, volumes per person, pixels along a side, cosines per axis of the public basis.
SITES, COMPONENTS, POINTS, SIDE, PER_AXIS = 4, 12, 250, 30, 10
# Published method: epsilon, and the number of rounds that its rounds are compressed to.
CAPE_EPSILON, CAPE_ROUNDS = 0.5, 20

# Headings and methods.
_TRIALS = (
    ("No privacy", Trial(OURS_OPEN)),
    ("Zerosum, four sites", Trial(OURS, "exact", EPSILON, DELTA)),
    ("One site alone", Trial(OURS_ALONE, "exact", EPSILON, DELTA)),
    ("capeDJICA as published", Trial("cape-djica", "published", CAPE_EPSILON, DELTA)),
)


@dataclass(frozen=True)
class Line:
    """One method: exact cost for a person (None: no privacy), and similarity of its maps to the true ones.

    The published dimension reduction protects a single volume. `with_reduction` is the cost for a person including that
    step.
    """

    method: str
    heading: str
    rounds: int
    epsilon: float | None
    with_reduction: float | None
    correlation: float
    amari_index: float


@dataclass(frozen=True)
class Maps:
    """Result of the demo. `found` holds the maps of each line, in the order and with the signs of the true maps."""

    people: int
    truth: NDArray[np.float64]
    lines: tuple[Line, ...]
    found: tuple[NDArray[np.float64], ...]

    @property
    def description(self) -> str:
        """Description of the data."""
        return f"{self.people} people at {SITES} sites, one colluding, {COMPONENTS} maps that everyone shares"

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        return {
            "sites": SITES,
            "people": self.people,
            "components": COMPONENTS,
            "delta": DELTA,
            "methods": [vars(line) for line in self.lines],
        }


def play(people: int = 256, on_step: Callable[[int, int], None] = lambda done, planned: None) -> Maps:
    """Separate the same data, `people` at each site, by every method. The noise of Zerosum comes from the operating
    system."""
    study = make_fmri([people] * SITES, components=COMPONENTS, points=POINTS, side=SIDE, seed=7)
    separating = Separating(study, CAPE_ROUNDS, PER_AXIS)
    lines, maps = [], []
    on_step(0, len(_TRIALS))
    # None: no seed, so the noise comes from the operating system.
    for done, (heading, trial) in enumerate(_TRIALS, 1):
        result = separating.separate(trial, None)
        lines.append(
            Line(
                method=trial.method,
                heading=heading,
                rounds=result.rounds,
                epsilon=_finite(result.exact_epsilon),
                with_reduction=_finite(result.with_reduction),
                correlation=result.correlation(study.maps),
                amari_index=result.amari_index(study.maps),
            )
        )
        # Components have no order and no sign of their own; they are matched to the true ones for the picture.
        maps.append(aligned(result.maps, study.maps))
        on_step(done, len(_TRIALS))
    return Maps(people * SITES, study.maps, tuple(lines), tuple(maps))


def _finite(value: float) -> float | None:
    """A finite number, or None."""
    return value if math.isfinite(value) else None


def draw(maps: Maps, path: Path) -> None:
    """Save a picture with one row per method and one column per map."""
    # The truth aligned with itself, so that its maps are scaled like those of the methods.
    panels = [Panel("True maps", ("what everyone's brain shares",), aligned(maps.truth, maps.truth))]
    for line, found in zip(maps.lines, maps.found, strict=True):
        notes = (_price(line), f"mean correlation {line.correlation:.2f}")
        panels.append(Panel(line.heading, notes, found))
    draw_panels(
        panels,
        path,
        title=f"Four sites find together what none can find alone, at ε = {EPSILON:g}",
        subtitle=f"{maps.description}. ε is exact, for a person with all its {POINTS} volumes, at δ = {DELTA:g}.",
        footnote=f"Zerosum works in a public basis, the {PER_AXIS} x {PER_AXIS} lowest cosines of the image; capeDJICA "
        f"is given exact whitening for nothing, and its {PAPERS_ROUNDS} rounds are compressed to {CAPE_ROUNDS} of the "
        "same total ε.\n"
        "Maps are matched to the true ones in order and sign; colours are shares of a map's largest value.",
    )


def _price(line: Line) -> str:
    """Exact cost of a method as text."""
    if line.epsilon is None or line.with_reduction is None:
        return "no noise"
    # A relative difference below 0.1 % is not shown.
    more = line.with_reduction > 1.001 * line.epsilon
    return f"ε = {line.epsilon:.3g}" + (f" ({line.with_reduction:.0f} with its reduction)" if more else "")
