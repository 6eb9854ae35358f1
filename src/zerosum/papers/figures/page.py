"""One HTML page with every figure beside the paper's claim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zerosum import html
from zerosum.papers.figures.catalogue import CATALOGUE
from zerosum.version import VERSION


@dataclass(frozen=True)
class Picture:
    """A figure that was made, or left out for a reason."""

    name: str
    stem: str  # of its files
    seconds: float
    reason: str = ""


def write_page(pictures: list[Picture], out: Path, *, full: bool) -> Path:
    """Write `out`/index.html, which shows the pictures beside it, and return its path.

    Parameters
    ----------
    pictures : list of Picture
        The figures, in the order of the page.
    out : Path
        Folder with their PNG and CSV files.
    full : bool
        Whether the figures have the papers' sizes.
    """
    out.mkdir(parents=True, exist_ok=True)
    shown = [(picture, CATALOGUE[picture.name]) for picture in pictures]
    page = out / "index.html"
    page.write_text(html.render("papers/figures.html", shown=shown, full=full, version=VERSION), encoding="utf-8")
    return page
