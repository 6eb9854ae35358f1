"""Public bases for maps: a (columns, K) matrix from a file, or low-frequency cosines on the grid."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.formats import readable
from zerosum.data.masker import Masker
from zerosum.data.nifti import Nifti, is_nifti
from zerosum.errors import BadData, BadParameter

# Relative norm below which a cosine counts as linearly dependent on the others. Chosen by hand; no benchmark recorded.
_DEPENDENT = 1e-6


def load_basis(path: Path, space: Masker | None = None) -> Floats:
    """Read a basis of shape (columns, K).

    Parameters
    ----------
    path : Path
        `.npy`: an array of that shape. `.nii`, `.nii.gz`: K public maps (volumes) on the grid of `space`. Voxels of the
        mask, or means over the regions of the atlas, become columns.
    space : Masker, optional
        Public grid; required for images.

    Raises
    ------
    BadData
        If the file cannot be read, has another shape, or has values that are not finite.
    """
    if is_nifti(path.name):
        basis = _from_maps(path, space)
    elif path.suffix.lower() != ".npy":
        raise BadData(f"{path} is no basis: .npy, or with [imaging] .nii or .nii.gz")
    elif not path.is_file():
        raise BadData(f"there is no file {path}")
    else:
        with readable(path):
            basis = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
    if basis.ndim != 2 or basis.size == 0:
        raise BadData(f"{path} has the shape {basis.shape}; a basis is a table with a row for each column of the study")
    if not np.isfinite(basis).all():
        raise BadData(f"{path} has values that are not finite")
    return basis


def cosines(space: Masker, count: int) -> Floats:
    """Products of the `count` lowest cosines along each axis of the grid, a basis (columns, K) with columns of norm 1.

    These smooth maps do not depend on data. A mask or atlas may make some of them linearly dependent. A pivoted QR
    decomposition drops those with a residual below 1e-6.

    >>> space = Masker.from_array(np.ones((9, 9, 1)), np.eye(4), "mask")
    >>> cosines(space, 3).shape, cosines(Masker.from_array(np.ones((2, 2, 2)), np.eye(4), "mask"), 3).shape
    ((81, 9), (8, 8))
    """
    if count < 1:
        raise BadParameter(f"frequencies must be at least 1, got {count}")
    along = [_waves(length, count) for length in space.shape]
    parts = []
    # one pair of frequencies at a time, to limit memory
    for first, second in itertools.product(*(range(each.shape[1]) for each in along[:2])):
        plane = np.multiply.outer(along[0][:, first], along[1][:, second])
        parts.append(space.transform(plane[:, :, None, None] * along[2][None, None]))
    every = np.concatenate(parts).T
    norms = np.linalg.norm(every, axis=0)
    # Some cosines vanish on the mask, up to rounding. They are dropped before the division by their norms.
    every = every[:, norms > _DEPENDENT * norms.max()]
    every /= np.linalg.norm(every, axis=0)
    from scipy.linalg import qr

    # Pivoting takes the column with the largest residual first, so that small residuals are at the end.
    triangle, order = qr(every, mode="r", pivoting=True)
    # With pivoting the diagonal of R is the residual norm of each column given the columns before it.
    rank = int(np.sum(np.abs(np.diag(triangle)) > _DEPENDENT))
    # In the order of frequencies, so that the basis does not depend on the order of pivots.
    return np.asarray(every[:, np.sort(order[:rank])])


def low_frequencies(side: int = 30, per_axis: int = 8) -> Floats:
    """The lowest cosines of a square image, orthonormal columns of a (side * side, per_axis ** 2) matrix.

    >>> low_frequencies(30, 8).shape
    (900, 64)
    """
    if not 0 < per_axis <= side:
        raise BadParameter(f"an image of {side} x {side} has between 1 and {side} cosines an axis, got {per_axis}")
    waves = _waves(side, per_axis)
    # The Kronecker product of orthonormal bases is orthonormal.
    waves /= np.linalg.norm(waves, axis=0)
    return np.asarray(np.kron(waves, waves), dtype=np.float64)


def _waves(length: int, count: int) -> Floats:
    """The lowest `count` cosines over `length` voxels, shape (length, min(count, length)). They are the basis of the
    DCT-II."""
    place = (np.arange(length) + 0.5) / length
    return np.cos(np.pi * np.outer(place, np.arange(min(count, length))))


def _from_maps(path: Path, space: Masker | None) -> Floats:
    """Basis from a 4D image, one column per volume."""
    if space is None:
        raise BadData(f"{path} is an image: a basis of maps needs an [imaging] table, which says what becomes a column")
    image = Nifti.open(path)
    if len(image.shape) != 4:
        raise BadData(f"{path} has {len(image.shape)} dimensions; a basis of maps has four, one volume a map")
    space.check_grid(image)
    return np.concatenate([space.transform(volumes) for _first, volumes in image.volumes()]).T
