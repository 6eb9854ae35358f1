"""Brain maps drawn by nilearn on the MNI template: slices with an underlay, and glass brains.

Only for maps in MNI space: the underlay of another space would lie elsewhere. The template comes with nilearn, and
nothing is downloaded. Components may be named by their best match in a public atlas.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zerosum.arrays import Floats
from zerosum.data.masker import Masker
from zerosum.data.templates import load_templates
from zerosum.errors import BadData
from zerosum.report.maps import atomically, maps_image

_MOST_MAPS = 20  # maps in one picture
_RESOLUTION_MM = 2  # of the underlay
COLOURS = "RdBu_r"  # red is positive, as in all other pictures


def draw_brains(
    maps: ArrayLike, space: Masker, path: Path, *, labels: Sequence[str] | None = None, threshold: float = 0.0
) -> None:
    """Draw maps on the MNI template as a PNG file: for each, orthogonal slices with a colour bar and a glass brain.

    Parameters
    ----------
    maps : array of shape (R, columns)
        Finite values; the first twenty are drawn.
    space : Masker
        Public grid, in MNI space.
    path : Path
        A .png file.
    labels : sequence of str, optional
        Label of each map; by default its number.
    threshold : float
        Smaller magnitudes are not drawn, such as those within the noise.
    """
    from matplotlib.figure import Figure
    from nilearn.datasets import load_mni152_template
    from nilearn.image import index_img
    from nilearn.plotting import plot_glass_brain, plot_stat_map

    image = maps_image(maps, space)
    count = min(image.shape[3], _MOST_MAPS)
    names = [f"{at + 1}" for at in range(count)] if labels is None else list(labels)
    underlay = load_mni152_template(resolution=_RESOLUTION_MM)
    figure = Figure(figsize=(13, 2.4 * count), facecolor="white")
    for at in range(count):
        one = index_img(image, at)
        # A map of zeros has no colour scale of its own.
        largest = float(np.max(np.abs(one.get_fdata()))) or 1.0
        settings: dict[str, Any] = {"cmap": COLOURS, "vmax": largest, "vmin": -largest, "figure": figure}
        settings |= {"threshold": max(threshold, 1e-6 * largest), "annotate": True, "colorbar": True}
        bottom, height = 1 - (at + 1) / count, 0.96 / count
        title = names[at].replace("\n", " ")
        # A map of zeros, such as a difference that is all noise, has no strongest region to cut through.
        cuts = None if np.any(one.get_fdata()) else (0.0, 0.0, 0.0)
        slices = (0.0, bottom, 0.55, height)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about maps without values, and grids that differ
            plot_stat_map(one, bg_img=underlay, cut_coords=cuts, axes=slices, title=title, **settings)
            plot_glass_brain(one, axes=(0.57, bottom, 0.43, height), plot_abs=False, **settings)
    with atomically(path) as partial:
        # Without software metadata, equal maps give equal bytes.
        figure.savefig(partial, format="png", dpi=90, metadata={"Software": None})


def best_matches(maps: ArrayLike, space: Masker, atlas: Path) -> tuple[str, ...]:
    """The best match of each map in a public atlas, with the correlation.

    Parameters
    ----------
    maps : array of shape (R, columns)
        Maps of a result.
    space : Masker
        Public grid.
    atlas : Path
        A 4D NIfTI file of maps or a 3D one of regions, on the same grid. Names come from a file beside it of the same
        name with the ending .tsv (columns `index` and `name`, as in BIDS) or .txt (one name a line).

    Returns
    -------
    tuple of str
        "name (r = 0.81)" for each map; numbers where there are no names.
    """
    known = load_templates(atlas, space)
    names = _names(atlas, len(known))
    own = _standardised(np.atleast_2d(np.asarray(maps, dtype=np.float64)))
    correlation = own @ _standardised(known).T
    # The sign of a component is arbitrary.
    best = np.argmax(np.abs(correlation), axis=1)
    return tuple(f"{names[at]} (r = {abs(correlation[row, at]):.2f})" for row, at in enumerate(best.tolist()))


def _standardised(maps: Floats) -> Floats:
    apart = maps - maps.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(apart, axis=1, keepdims=True)
    return np.asarray(apart / np.where(norms > 0, norms, 1.0))


def _names(atlas: Path, count: int) -> tuple[str, ...]:
    """Names of an atlas from the file beside it, or numbers."""
    stem = atlas.name.removesuffix(".gz").removesuffix(".nii")
    table, lines = atlas.with_name(f"{stem}.tsv"), atlas.with_name(f"{stem}.txt")
    if table.is_file():
        with table.open(encoding="utf-8", newline="") as opened:
            found = tuple(str(row.get("name", "")) for row in csv.DictReader(opened, delimiter="\t"))
    elif lines.is_file():
        found = tuple(line.strip() for line in lines.read_text(encoding="utf-8").splitlines() if line.strip())
    else:
        return tuple(f"region {at + 1}" for at in range(count))
    if len(found) != count:
        raise BadData(f"{atlas} has {count} maps or regions, and {len(found)} names are beside it")
    return found
