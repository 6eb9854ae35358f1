"""Figures without a display, and the picture of maps by several methods in rows, with a common order, sign and colour
scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.algorithms.metrics import matched
from zerosum.arrays import Floats


@dataclass(frozen=True)
class Panel:
    """One row of the picture: heading, notes, and maps (R x D) in the order of the truth."""

    heading: str
    notes: tuple[str, ...]
    maps: Floats


def aligned(maps: Floats, truth: Floats) -> Floats:
    """Maps in the order and with the signs of the truth, each with largest magnitude one."""
    pairs = matched(maps, truth)
    ordered = maps[pairs.order] * pairs.signs[:, None]
    largest = np.max(np.abs(ordered), axis=1, keepdims=True)
    return np.asarray(ordered / np.where(largest > 0, largest, 1.0))


def draw_panels(panels: Sequence[Panel], path: Path, *, title: str, subtitle: str, footnote: str = "") -> None:
    """Save the picture. Colours range from minus to plus the largest magnitude of a map. Lengths are in inches."""
    from matplotlib.figure import Figure

    R, D = panels[0].maps.shape
    side = math.isqrt(D)
    cell, left, top, bottom, right = (0.98 if R <= 12 else 0.72), 3.0, 1.12, 0.72, 0.75
    width, height = left + R * cell + right, top + len(panels) * (cell + 0.12) + bottom
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.text(0.25 / width, 1 - 0.36 / height, title, fontsize=16, fontweight="bold", va="center")
    figure.text(0.25 / width, 1 - 0.74 / height, subtitle, fontsize=10.5, color="#444", va="center")
    figure.text(0.25 / width, 0.34 / height, footnote, fontsize=9, color="#666", va="center")
    image = None
    for row, panel in enumerate(panels):
        floor = height - top - (row + 1) * (cell + 0.12)
        lines = len(panel.notes)
        middle = floor + 0.06 + cell / 2
        figure.text(0.25 / width, (middle + 0.095 * lines) / height, panel.heading, fontsize=11.5, fontweight="bold",
                    va="center")  # fmt: skip
        for at, note in enumerate(panel.notes):
            y = middle + 0.095 * lines - 0.21 * (at + 1)
            figure.text(0.25 / width, y / height, note, fontsize=9.5, color="#444", va="center")
        for at, each in enumerate(panel.maps):
            axes = figure.add_axes(
                ((left + at * cell + 0.03) / width, (floor + 0.06) / height, (cell - 0.06) / width, cell / height)
            )
            image = axes.imshow(each.reshape(side, side), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_color("#c9ced4")
                spine.set_linewidth(0.6)
    if image is not None:
        tall = min(2.6, len(panels) * cell * 0.6)
        bar = figure.add_axes(
            ((width - right + 0.12) / width, (bottom + (height - top - bottom - tall) / 2) / height, 0.13 / width,
             tall / height)
        )  # fmt: skip
        scale = figure.colorbar(image, cax=bar, ticks=[-1, 0, 1])
        scale.ax.tick_params(labelsize=9, length=2)
        scale.outline.set_linewidth(0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def subplots(rows: int = 1, columns: int = 1, *, figsize: tuple[float, float], **settings: Any) -> tuple[Any, Any]:
    """A figure of this size in inches and its axes, as those of `matplotlib.pyplot`, without a display or a list of
    open figures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    return figure, figure.subplots(rows, columns, **settings)
