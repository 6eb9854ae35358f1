"""Brain maps of a result: NIfTI files, BIDS sidecars and PNG drawings."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zerosum.arrays import Floats
from zerosum.data.masker import Masker
from zerosum.data.nifti import is_nifti, nibabel
from zerosum.errors import BadInput, BadParameter
from zerosum.version import VERSION

PLANES = ((0, "x"), (1, "y"), (2, "z"))  # axis perpendicular to a slice, and its name
_MOST_ROWS = 10  # largest number of components in one column of a drawing


def write_maps(maps: ArrayLike, space: Masker, path: Path) -> None:
    """Write maps as one 4D float32 image on the study's grid, atomically. Equal maps give equal bytes.

    Parameters
    ----------
    maps : array of shape (R, columns)
        Finite values.
    space : Masker
        Public grid. With an atlas every voxel of a region gets the region's value.
    path : Path
        A .nii or .nii.gz file.
    """
    library = nibabel()
    if not is_nifti(path.name):
        raise BadParameter(f"maps are written to .nii or .nii.gz, not to {path.name!r}")
    image = maps_image(maps, space)
    with atomically(path) as partial:
        library.save(image, partial)


def maps_image(maps: ArrayLike, space: Masker) -> Any:
    """Maps as one 4D image, as programs of the field take it.

    Parameters
    ----------
    maps : array of shape (R, columns)
        Finite values.
    space : Masker
        Public grid. With an atlas every voxel of a region gets the region's value.

    Returns
    -------
    nibabel.Nifti1Image
        One map a volume, float32, in mm.

    Examples
    --------
    >>> space = Masker.from_array(np.ones((2, 2, 2)), np.eye(4), "mask")
    >>> maps_image(np.ones((3, 8)), space).shape
    (2, 2, 2, 3)
    """
    # float32, as imaging programs expect; the exact doubles are in estimate.npz.
    volumes = space.inverse_transform(_finite_maps(maps)).astype(np.float32)
    image = nibabel().Nifti1Image(volumes, space.affine)
    image.header.set_xyzt_units("mm")
    return image


def write_sidecars(images: Sequence[Path], content: Mapping[str, Any]) -> list[Path]:
    """Write a JSON sidecar for every image, and the dataset_description.json of a BIDS derivative. Returns their paths.

    Parameters
    ----------
    images : sequence of Path
        The image files, at least one.
    content : mapping
        Content of the sidecars. It must have the key "Study".
    """
    written = [path.with_name(path.name.removesuffix(".nii.gz") + ".json") for path in images]
    for path in written:
        what = {"Description": f"{path.stem} of a joint study under differential privacy, one a volume"}
        path.write_text(json.dumps(what | dict(content), indent=2) + "\n", encoding="utf-8")
    described = images[0].with_name("dataset_description.json")
    record = {
        "Name": content["Study"],
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "zerosum", "Version": VERSION}],
    }
    described.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return [*written, described]


def draw_maps(
    maps: ArrayLike, space: Masker, path: Path, *, labels: Sequence[str] | None = None, threshold: float = 0.0
) -> None:
    """Draw maps as a PNG file: for each, three slices through its strongest region with the outline of the grid.

    The left side of the body is on the left ("L"). The colour scale of each map is symmetric about 0, red is positive.

    Parameters
    ----------
    maps : array of shape (R, columns)
        Finite values.
    space : Masker
        Public grid.
    path : Path
        A .png file.
    labels : sequence of str, optional
        Label of each map; by default its number.
    threshold : float
        Smaller magnitudes are not drawn, such as those within the noise.
    """
    from matplotlib.figure import Figure

    if path.suffix.lower() != ".png":
        raise BadParameter(f"pictures are written to .png, not to {path.name!r}")
    values = _finite_maps(maps)
    names = [f"{at + 1}" for at in range(len(values))] if labels is None else list(labels)
    if len(names) != len(values):
        raise BadParameter(f"there are {len(values)} maps, but {len(names)} labels")
    volumes, inside, affine = canonical(space.inverse_transform(values), space)
    zooms = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))
    # Rounded up: `-(-a // b)` is the ceiling of a / b in whole numbers.
    blocks = -(-len(values) // _MOST_ROWS)
    rows = -(-len(values) // blocks)
    figure = Figure(figsize=(5.4 * blocks, 1.7 * rows), facecolor="white")
    for at, name in enumerate(names):
        block, row = divmod(at, rows)
        # Fractions of a block's width: 0.12 for the label, three slices, and the rest for the colour bar.
        axes = [
            figure.add_axes(((block + 0.12 + 0.27 * cut) / blocks, 1 - (row + 0.95) / rows, 0.25 / blocks, 0.8 / rows))
            for cut in range(3)
        ]
        bar = figure.add_axes(((block + 0.935) / blocks, 1 - (row + 0.85) / rows, 0.012 / blocks, 0.6 / rows))
        _draw(axes, bar, np.where(np.abs(volumes[..., at]) < threshold, 0.0, volumes[..., at]), inside, affine, zooms)
        figure.text((block + 0.06) / blocks, 1 - (row + 0.55) / rows, name, fontsize=8, ha="center", va="center")
    with atomically(path) as partial:
        # Without software metadata, equal maps give equal bytes.
        figure.savefig(partial, format="png", dpi=120, metadata={"Software": None})


def _draw(axes: Any, bar: Any, volume: Floats, inside: Any, affine: Floats, zooms: Floats) -> None:
    """Draw three slices of one volume and a colour bar. `zooms` are voxel sizes, mm."""
    peak, middle = strongest_region(np.where(inside, volume, 0))
    largest = float(np.abs(volume[peak])) or 1.0
    place = affine @ [*middle, 1]
    for axis, (cut, called) in zip(axes, PLANES, strict=True):
        within = np.take(inside, middle[cut], axis=cut).T
        shown = np.ma.masked_where(~within, np.take(volume, middle[cut], axis=cut).T)
        across, up = (zooms[at] for at in range(3) if at != cut)
        drawn = axis.imshow(
            shown, origin="lower", cmap="RdBu_r", vmin=-largest, vmax=largest, aspect=up / across, interpolation="none"
        )
        framed = np.pad(within.astype(float), 1)  # padding closes the outline where the mask meets the border
        ticks = [np.arange(-1, length + 1) for length in within.shape]
        axis.contour(ticks[1], ticks[0], framed, levels=[0.5], colors="0.5", linewidths=0.7)
        axis.set_axis_off()
        # The first axis of the body runs from left to right in all slices but those across it.
        for side, place_ in (("L", 0.02), ("R", 0.98)) if cut else ():
            axis.text(place_, 0.02, side, transform=axis.transAxes, fontsize=6, color="0.3", ha="center")
        axis.set_title(f"{called} = {place[cut]:.0f} mm", fontsize=6, color="0.3", pad=2)
    bar.figure.colorbar(drawn, cax=bar, ticks=[-largest, 0, largest], format="%.2g").ax.tick_params(
        labelsize=5, length=2
    )


def strongest_region(volume: Floats) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Find the strongest region of a volume.

    Slices go through its centre: peaks are often at the border of the brain, where a slice shows little of the region.

    Parameters
    ----------
    volume : array of shape (x, y, z)
        Values, 0 outside the grid.

    Returns
    -------
    peak : tuple of int
        Index of the largest magnitude.
    middle : tuple of int
        Voxel nearest to the centre of the region around the peak with the same sign and at least half the magnitude.
    """
    from scipy import ndimage

    peak = tuple(int(at) for at in np.unravel_index(int(np.argmax(np.abs(volume))), volume.shape))
    # Connected voxels above half of the peak's magnitude and of its sign. `label` numbers the regions from 1; 0 is
    # outside of all.
    alike, _count = ndimage.label(volume * np.sign(volume[peak]) > 0.5 * np.abs(volume[peak]))
    region = np.argwhere(alike == alike[peak]) if alike[peak] else np.array([peak])
    # The centre of mass of a curved region may lie outside of it, so the nearest voxel of the region is taken.
    near = region[int(np.argmin(((region - region.mean(axis=0)) ** 2).sum(axis=1)))]
    return peak, tuple(int(at) for at in near)


def canonical(volumes: Floats, space: Masker) -> tuple[Floats, Any, Floats]:
    """Volumes, mask and affine in the closest canonical orientation (axes to the right, front and top)."""
    library = nibabel()
    image = library.as_closest_canonical(library.Nifti1Image(volumes, space.affine))
    # The mask is reoriented in the same way as the maps.
    mask = library.as_closest_canonical(library.Nifti1Image(space.inside.astype(np.uint8), space.affine))
    return image.get_fdata(), np.asarray(mask.dataobj) > 0, image.affine


def _finite_maps(maps: ArrayLike) -> Floats:
    """Maps as a finite 2D array. Raises `BadParameter`."""
    values = np.atleast_2d(np.asarray(maps, dtype=np.float64))
    if values.size == 0 or not np.isfinite(values).all():
        raise BadParameter("there are no maps, or some of their values are not finite")
    return values


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `path` when the block ends without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In a folder beside the target: a rename is atomic only within one file system, and the suffix of the name
        # decides the format.
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            partial = Path(folder, path.name)
            yield partial
            partial.replace(path)
    except OSError as error:
        raise BadInput(f"{path} could not be written: {error.strerror}") from error
