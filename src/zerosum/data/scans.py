"""One fMRI run: a 4D image with sidecar and confounds to preprocessed rows (volumes, columns).

All processing stays within the run, so that no row depends on two people. Messages do not contain file names, which
identify people; these are in the error's `detail`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.data.formats import number, readable, tsv_rows
from zerosum.data.masker import Masker
from zerosum.data.nifti import Nifti, nibabel
from zerosum.errors import BadData, BadInput, BadParameter

# Smallest number of volumes of a run, after scrubbing. Chosen by hand; no benchmark recorded.
MINIMUM_VOLUMES = 10
MOST_SMOOTHING_MM = 100.0  # mm, about half a head; wider kernels need unbounded memory
_CLOCK_TOLERANCE = 1e-3  # s, allowed difference between header and sidecar
# Standard deviation relative to the largest value below which a column is constant up to rounding. Chosen by hand; no
# benchmark recorded.
_STILL = 1e-7
Strategy = Literal["simple", "scrubbing", "compcor", "ica_aroma"]
# Names of denoising strategies of nilearn.
_STRATEGIES: tuple[Strategy, ...] = ("simple", "scrubbing", "compcor", "ica_aroma")
# fMRIPrep's column of head motion, mm.
MOTION_COLUMN = "framewise_displacement"
# fMRIPrep columns of differences, undefined for the first volume
_DIFFERENCES = ("framewise_displacement", "dvars", "std_dvars", "rmsd")


@dataclass(frozen=True)
class Preprocessing:
    """Processing of each run, in this order.

    Parameters
    ----------
    resample : bool
        Whether a run on another grid is resampled to that of the study by linear interpolation. Otherwise it is
        refused.
    smoothing_mm : float, optional
        Full width at half maximum of a spatial Gaussian filter, mm.
    detrend : bool
        Whether a linear trend is removed from every column.
    band : (float, float), optional
        Lowest and highest frequency to keep, Hz; lowest 0 for a low-pass filter.
    confounds : tuple of str
        Columns of the run's confound table that are regressed out. They are detrended and filtered likewise.
    strategy : str, optional
        Denoising strategy of nilearn (`load_confounds_strategy`) instead of columns, for runs of fMRIPrep.
    scrub_mm : float, optional
        Volumes with a larger `framewise_displacement`, mm, are removed at the end. The strategy "scrubbing" has a
        default of 0.2 and further rules.
    standardise : bool
        Whether every column is scaled to mean 0 and variance 1. Constant columns become 0.
    seconds : float, optional
        Interval between volumes, s, instead of the interval in the files.
    """

    confounds: tuple[str, ...] = ()
    strategy: Strategy | None = None
    scrub_mm: float | None = None
    resample: bool = False
    detrend: bool = False
    band: tuple[float, float] | None = None
    smoothing_mm: float | None = None
    standardise: bool = True
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse contradictory or impossible settings before any run is opened."""
        if len(set(self.confounds)) < len(self.confounds):
            twice = next(name for name in self.confounds if list(self.confounds).count(name) > 1)
            raise BadParameter(f"confounds must be different from each other, and {twice!r} occurs twice")
        if self.strategy is not None and self.strategy not in _STRATEGIES:
            raise BadParameter(f"strategy must be one of {', '.join(_STRATEGIES)}, got {self.strategy!r}")
        if self.strategy is not None and self.confounds:
            raise BadParameter(f"confounds and strategy = {self.strategy!r} are both given: leave one out")
        if self.strategy not in (None, "scrubbing") and self.scrub_mm is not None:
            raise BadParameter(
                f"scrub_mm needs confounds by name or strategy = 'scrubbing', got strategy = {self.strategy!r}"
            )
        if self.band is not None and not 0 <= self.band[0] < self.band[1] < np.inf:
            raise BadParameter(f"band must be a lowest and a higher frequency in Hz, got {list(self.band)}")
        for name, value in (
            ("smoothing_mm", self.smoothing_mm),
            ("seconds", self.seconds),
            ("scrub_mm", self.scrub_mm),
        ):
            if value is not None and not 0 < value < np.inf:
                raise BadParameter(f"{name} must be positive, got {value:g}")
        if self.smoothing_mm is not None and self.smoothing_mm > MOST_SMOOTHING_MM:
            raise BadParameter(f"smoothing_mm must be at most {MOST_SMOOTHING_MM:g}, got {self.smoothing_mm:g}")

    def check_libraries(self) -> None:
        """Raise `BadInput` if a required library is missing, before any run is opened. A later error would depend on
        whether a run is left after scrubbing, and so on people's motion."""
        if self.smoothing_mm or self.resample or self.detrend or self.band or self.confounds or self.strategy:
            _nilearn()


@dataclass(frozen=True, eq=False)
class Scan:
    """A run whose header was read: image, interval between volumes (s), indices of the volumes to keep, and regressors
    of shape (volumes, n_regressors).

    Parameters
    ----------
    image : Nifti
        Header of the 4D image.
    seconds : float
        Interval between volumes, s.
    kept : array of int
        Indices of the volumes that scrubbing leaves.
    regressors : array of shape (volumes, n_regressors), optional
        For all volumes, the scrubbed ones included, since filters need equal intervals.
    """

    image: Nifti
    seconds: float
    kept: NDArray[np.intp]
    regressors: Floats | None = None

    @property
    def volumes(self) -> int:
        """Number of volumes to keep."""
        return len(self.kept)


def open_scan(
    path: Path,
    space: Masker,
    preprocessing: Preprocessing,
    *,
    sidecars: Sequence[Path] = (),
    confounds: Path | None = None,
) -> Scan:
    """Check a run without reading its volumes.

    Parameters
    ----------
    path : Path
        4D image.
    space : Masker
        Public grid.
    preprocessing : Preprocessing
        Its `seconds` replaces the interval in the files.
    sidecars : sequence of Path
        JSON files, nearest first. The first with RepetitionTime gives the interval, else the header.
    confounds : Path, optional
        Confound table.

    Raises
    ------
    BadData
        If the run does not fit the grid, the band or the number of confounds.
    """
    image = Nifti.open(path, called="an image")
    if len(image.shape) != 4:
        fault = f"it has {len(image.shape)}"
        raise image.wrong("{} has not the four dimensions of a run, the last of them time", fault)
    # A resampled run is moved to the study's grid later, so that its own grid may differ.
    if not preprocessing.resample:
        space.check_grid(image)
    if image.shape[3] < MINIMUM_VOLUMES:
        raise image.wrong(f"{{}} has fewer than the {MINIMUM_VOLUMES} volumes a run needs", f"it has {image.shape[3]}")
    seconds = preprocessing.seconds or _seconds(image, sidecars)
    # 0.5 / seconds is the Nyquist frequency.
    if preprocessing.band is not None and preprocessing.band[1] >= 0.5 / seconds:
        raise image.wrong(
            f"the band ends at {preprocessing.band[1]:g} Hz, beyond what the time between volumes of {{}} resolves",
            f"{seconds:g} s, so nothing beyond {0.5 / seconds:g} Hz",
        )
    volumes, regressors = _regressed(image, confounds, preprocessing)
    if regressors is not None and len(volumes) >= MINIMUM_VOLUMES:
        _check_many(image, regressors.shape[1], len(volumes))
    return Scan(image, seconds, volumes, regressors)


def _check_many(image: Nifti, confounds: int, volumes: int) -> None:
    """Require more volumes than regressors, including a constant and a trend.

    Parameters
    ----------
    image : Nifti
        The run, for the message.
    confounds : int
        Number of regressors.
    volumes : int
        Number of volumes after scrubbing.
    """
    # With as many regressors as volumes the residuals are zero, or rounding errors that are then standardised.
    if confounds + 2 >= volumes:
        raise image.wrong(f"{{}} has too few volumes for {confounds} confounds", f"it has {volumes}")


def _regressed(
    image: Nifti, confounds: Path | None, preprocessing: Preprocessing
) -> tuple[NDArray[np.intp], Floats | None]:
    """Indices of the volumes to keep, and regressors (volumes, n) or None.

    Parameters
    ----------
    image : Nifti
        The run.
    confounds : Path or None
        Its table of confounds.
    preprocessing : Preprocessing
        Names the regressors and the rule for scrubbing.
    """
    volumes = image.shape[3]
    rows, regressors = np.arange(volumes), None
    if not (preprocessing.confounds or preprocessing.strategy or preprocessing.scrub_mm):
        return rows, None
    if confounds is None:
        raise image.wrong("there is no table of confounds beside {}")
    if preprocessing.confounds:
        _check_many(image, len(preprocessing.confounds), volumes)
        regressors = read_confounds(confounds, preprocessing.confounds, volumes)
    if preprocessing.strategy is not None:
        rows, regressors = _by_strategy(image, preprocessing.strategy, preprocessing.scrub_mm)
    elif preprocessing.scrub_mm is not None:
        rows = np.flatnonzero(read_confounds(confounds, [MOTION_COLUMN], volumes)[:, 0] <= preprocessing.scrub_mm)
    return rows, regressors


def _by_strategy(image: Nifti, strategy: Strategy, scrub_mm: float | None) -> tuple[NDArray[np.intp], Floats | None]:
    """Volumes and regressors by nilearn's strategy. nilearn's messages contain file names, so they go to the error's
    detail.

    Parameters
    ----------
    image : Nifti
        A run of fMRIPrep; nilearn finds the confounds by its name.
    strategy : str
        One of `_STRATEGIES`.
    scrub_mm : float, optional
        Threshold of the strategy "scrubbing", mm.

    Returns
    -------
    volumes : array of int
        Indices of the volumes to keep.
    regressors : array of shape (volumes, n) or None
    """
    _nilearn()
    from nilearn.interfaces.fmriprep import load_confounds_strategy

    volumes = image.shape[3]
    settings = {"fd_threshold": scrub_mm} if strategy == "scrubbing" and scrub_mm is not None else {}
    try:
        # nilearn's warnings contain file names, which identify people.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table, rows = load_confounds_strategy(str(image.path), denoise_strategy=strategy, **settings)
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise image.wrong(f"nilearn finds no confounds of the strategy {strategy!r} for {{}}", str(error)) from None
    places = np.arange(volumes) if rows is None else np.asarray(rows, dtype=np.intp)
    regressors = None if table is None or not table.shape[1] else np.asarray(table, dtype=np.float64)
    if regressors is not None and (len(regressors) != volumes or not np.isfinite(regressors).all()):
        raise image.wrong(f"the confounds of the strategy {strategy!r} are not a finite number for each volume of {{}}")
    return places, regressors


def read_scan(scan: Scan, space: Masker, preprocessing: Preprocessing, out: Floats | None = None) -> Floats:
    """Preprocessed rows of a run, shape (volumes kept, columns); written to `out` if given.

    Parameters
    ----------
    scan : Scan
        A run that `open_scan` has checked.
    space : Masker
        Public grid.
    preprocessing : Preprocessing
        The same as in `open_scan`.
    out : array of shape (volumes kept, columns), optional
        Where the rows are written, so that all runs of a site share one array.

    Raises
    ------
    BadData
        If values within the grid are not finite or too large.
    """
    # The output array is used directly unless volumes are removed by scrubbing.
    whole, values = scan.image.shape[3], out
    rows = values if values is not None and scan.volumes == whole else np.empty((whole, len(space.columns)))
    for start, volumes in scan.image.volumes():
        if preprocessing.resample:
            volumes = _resampled(volumes, scan.image, space)
        # Before smoothing, which spreads a NaN over its neighbours.
        if not np.isfinite(volumes[space.inside]).all():
            raise scan.image.wrong(f"{{}} has values within the {space.kind} that are not finite")
        if preprocessing.smoothing_mm is not None:
            volumes = _smoothed(volumes, space, preprocessing.smoothing_mm)
        rows[start : start + volumes.shape[3]] = space.transform(volumes)
    size = np.abs(rows).max(axis=0)
    # Squares of values above 1e154 overflow float64. 1e100 leaves a margin for sums; chosen by hand.
    if size.max() > 1e100:
        raise scan.image.wrong("{} has values beyond 1e100")
    if preprocessing.detrend or preprocessing.band is not None or scan.regressors is not None:
        cleaned = _cleaned(rows, scan, preprocessing)
    else:
        cleaned = rows[scan.kept] if scan.volumes < whole else rows
    if values is None:
        values = cleaned
    else:
        values[:] = cleaned
    if preprocessing.standardise:
        _standardise(values, size)
    return values


def read_confounds(path: Path, names: Sequence[str], volumes: int) -> Floats:
    """Named columns of a confound table (tab-separated, with a header), shape (volumes, names).

    `n/a` counts as 0 in the first row of difference columns, which have no previous volume.

    Parameters
    ----------
    path : Path
        The table; it may be in the data folder of a person, so that messages do not contain it.
    names : sequence of str
        Columns to read.
    volumes : int
        Volumes of the run; each has one row.
    """
    called, own = "a table of confounds", str(path)
    table = list(tsv_rows(path, called))
    header = [name.strip() for name in table[0]] if table else []
    if missing := [name for name in names if header.count(name) != 1]:
        raise BadData(f"{called} has no column {missing[0]!r}, or more than one", detail=own)
    if any(len(row) != len(header) for row in table):
        raise BadData(f"the rows of {called} do not all have as many cells as its header", detail=own)
    if len(table) - 1 != volumes:
        lengths = f"{path}: {len(table) - 1} rows, {volumes} volumes"
        raise BadData(f"{called} has not as many rows as its run has volumes", detail=lengths)
    confounds = np.empty((volumes, len(names)))
    for at, name in enumerate(names):
        cells = [row[header.index(name)].strip() for row in table[1:]]
        # fMRIPrep writes n/a there because a difference needs a previous volume. Elsewhere n/a is an error.
        if cells[0].lower() == "n/a" and ("derivative" in name or name in _DIFFERENCES):
            cells[0] = "0"
        confounds[:, at] = [number(cell) for cell in cells]
        if not np.isfinite(confounds[:, at]).all():
            row = int(np.argmin(np.isfinite(confounds[:, at]))) + 1
            where = f"{path}: data row {row}"
            raise BadData(f"column {name!r} of {called} is not a finite number in some row", detail=where)
    return confounds


def confound_names(path: Path) -> tuple[str, ...]:
    """Column names of a confound table. Only the header is read."""
    with closing(tsv_rows(path, "a table of confounds")) as rows:
        return tuple(name.strip() for name in next(rows, []))


def run_seconds(image: Nifti, sidecars: Sequence[Path]) -> float | None:
    """Interval between volumes, s, from the files; None if it is missing or contradictory.

    Parameters
    ----------
    image : Nifti
        The run.
    sidecars : sequence of Path
        JSON files, nearest first.
    """
    try:
        return _seconds(image, sidecars)
    except BadData:
        return None


def strategies_for(image: Nifti) -> tuple[str, ...]:
    """Strategies of nilearn whose columns exist in the confound table of a run."""
    strategies = []
    for strategy in _STRATEGIES:
        try:
            _by_strategy(image, strategy, None)
        except BadInput:  # columns or nilearn missing
            continue
        strategies.append(strategy)
    return tuple(strategies)


def _seconds(image: Nifti, sidecars: Sequence[Path]) -> float:
    """Interval between volumes, s. Raises `BadData` if it is missing or contradictory."""
    for sidecar in sidecars:
        with readable(sidecar, called="a JSON file of an image"):
            record = json.loads(sidecar.read_text(encoding="utf-8-sig"))
        if not isinstance(record, dict):
            raise BadData("a JSON file of an image is not a table of names and values", detail=str(sidecar))
        if "RepetitionTime" not in record:
            continue
        stated = record["RepetitionTime"]
        if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 < stated < np.inf:
            fault = "RepetitionTime in a JSON file of an image is not a positive number of seconds"
            raise BadData(fault, detail=str(sidecar))
        # A wrong interval shifts the band of the filter without any sign in the result, so that files must agree.
        if image.seconds is not None and abs(image.seconds - stated) > _CLOCK_TOLERANCE:
            raise image.wrong(
                "{} says another time between volumes than its JSON file: correct one of them, or give `seconds` in "
                "the study",
                f"{image.seconds:g} s, but {sidecar} says {stated:g} s",
            )
        return float(stated)
    if image.seconds is None:
        raise image.wrong(
            "{} does not say how many seconds lie between volumes: give RepetitionTime in a JSON file beside it, "
            "pixdim[4] and its unit in the header, or `seconds` in the study"
        )
    return image.seconds


def _smoothed(volumes: Floats, space: Masker, width: float) -> Floats:
    """Volumes smoothed with full width `width` mm.

    Parameters
    ----------
    volumes : array of shape (x, y, z, n)
        Some volumes on the grid of `space`.
    space : Masker
        Its affine gives the size of a voxel.
    width : float
        Full width at half maximum, mm.
    """
    library = nibabel()
    _nilearn()
    from nilearn.image import smooth_img

    whole = np.where(np.isfinite(volumes), volumes, 0.0)  # values outside the brain may be NaN
    return np.asarray(smooth_img(library.Nifti1Image(whole, space.affine), width).get_fdata())


def _resampled(volumes: Floats, image: Nifti, space: Masker) -> Floats:
    """Volumes of a run on the study's grid; 0 outside the run's grid.

    Parameters
    ----------
    volumes : array of shape (x, y, z, n)
        Some volumes on the run's own grid.
    image : Nifti
        The run, whose affine places its voxels.
    space : Masker
        The study's grid.
    """
    library = nibabel()
    _nilearn()
    from nilearn.image import resample_img

    whole = np.where(np.isfinite(volumes), volumes, 0.0)
    moved = resample_img(
        library.Nifti1Image(whole, image.affine),
        target_affine=space.affine,
        target_shape=space.shape,
        interpolation="linear",
        copy_header=True,
        force_resample=True,
    )
    return np.asarray(moved.get_fdata())


def _cleaned(rows: Floats, scan: Scan, preprocessing: Preprocessing) -> Floats:
    """Detrended and filtered rows with confounds regressed out, without scrubbed volumes.

    Parameters
    ----------
    rows : array of shape (volumes, columns)
        All volumes, before scrubbing.
    scan : Scan
        Interval, regressors and volumes to keep.
    preprocessing : Preprocessing
        Trend and band.

    Returns
    -------
    array of shape (volumes kept, columns)
    """
    _nilearn()
    from nilearn.signal import clean

    low, high = preprocessing.band or (0.0, None)
    cleaned = clean(
        rows,
        detrend=preprocessing.detrend,
        standardize=None,
        confounds=scan.regressors,
        # nilearn removes scrubbed volumes after the filter, which needs equal intervals and interpolates them.
        sample_mask=None if scan.volumes == len(rows) else scan.kept,
        filter="butterworth" if preprocessing.band is not None else False,
        high_pass=low or None,
        low_pass=high,
        t_r=scan.seconds,
        butterworth__copy=True,  # filters all columns in one call
        # 33 is SciPy's default for this filter; it must be less than the number of rows
        butterworth__padlen=min(33, len(rows) - 1),
    )
    return np.asarray(cleaned)


def _standardise(rows: Floats, size: Floats) -> None:
    """Standardise columns in place. `size` is the largest absolute value of each column before cleaning.

    Parameters
    ----------
    rows : array of shape (volumes, columns)
        Cleaned rows; changed in place.
    size : array of shape (columns,)
        Largest absolute value of each column before cleaning.
    """
    rows -= rows.mean(axis=0)
    spread = rows.std(axis=0)
    # Relative to the values before cleaning: what regression leaves of a constant column is rounding error, which
    # must not be scaled up to variance 1.
    varies = spread > _STILL * size
    rows[:, ~varies] = 0
    rows /= np.where(varies, spread, 1.0)


def _nilearn() -> None:
    """Raise `BadInput` with install instructions if nilearn is missing."""
    try:
        import nilearn  # noqa: F401  (whether it is there)
    except ImportError:
        raise BadInput("to clean and smooth brain images, install nilearn: pip install zerosum[neuro]") from None
