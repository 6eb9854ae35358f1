"""Synthetic clinical tables of several hospitals, for demos. The random numbers are seeded data, not noise for
privacy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zerosum.errors import BadParameter

# Names of the columns, in order.
COLUMNS = ("age", "systolic", "bmi", "glucose", "cholesterol")

#: What the columns may hold, known to everyone before any record is seen: years, mmHg, kg/m2, mg/dL, mg/dL.
RANGES: dict[str, tuple[float, float]] = {
    "age": (18.0, 100.0),
    "systolic": (80.0, 220.0),
    "bmi": (12.0, 60.0),
    "glucose": (40.0, 400.0),
    "cholesterol": (80.0, 400.0),
}

# Unit of measurement of each column.
MEASURES = {"age": "years", "systolic": "mmHg", "bmi": "kg/m²", "glucose": "mg/dL", "cholesterol": "mg/dL"}

# Names of the first hospitals, and the normal distribution of the columns: means, standard deviations, correlations.
# Chosen by hand as plausible values.
_NAMES = ("Northgate", "St. Anne", "Lakeside", "University")
_MEANS = np.array([58.0, 132.0, 27.5, 108.0, 198.0])
_SPREADS = np.array([15.0, 18.0, 5.0, 28.0, 38.0])
_CORRELATION = np.array(
    [
        [1.00, 0.45, 0.10, 0.25, 0.20],
        [0.45, 1.00, 0.30, 0.25, 0.15],
        [0.10, 0.30, 1.00, 0.35, 0.20],
        [0.25, 0.25, 0.35, 1.00, 0.15],
        [0.20, 0.15, 0.20, 0.15, 1.00],
    ]
)
_HOSPITAL_EFFECT = 0.4  # standard deviation of a hospital's means, in standard deviations of a column


def hospitals(seed: int, sizes: Sequence[int] = (60, 150, 400, 900)) -> dict[str, NDArray[np.float64]]:
    """Generate the clinical table of each hospital, one patient per row.

    All hospitals draw patients from the same correlated normal distribution around their own means. Each hospital's
    estimate is therefore biased, and only the pooled estimate is close to the population.

    Parameters
    ----------
    seed : int
        The same seed gives the same tables.
    sizes : sequence of int
        Number of patients at each hospital.

    Returns
    -------
    dict
        Table of shape (patients, 5) by hospital name, with the columns `COLUMNS` within `RANGES`.

    Examples
    --------
    >>> tables = hospitals(seed=1)
    >>> {name: table.shape for name, table in tables.items()}
    {'Northgate': (60, 5), 'St. Anne': (150, 5), 'Lakeside': (400, 5), 'University': (900, 5)}
    """
    if min(sizes, default=0) < 1:
        raise BadParameter(f"every hospital must have a patient, got sizes {list(sizes)}")
    rng = np.random.default_rng(seed)
    low, high = np.array([RANGES[column] for column in COLUMNS]).T
    tables = {}
    for index, size in enumerate(sizes):
        name = _NAMES[index] if index < len(_NAMES) else f"hospital {index + 1}"
        effect = _HOSPITAL_EFFECT * rng.standard_normal(len(COLUMNS))
        patients = effect + rng.standard_normal((size, len(COLUMNS))) @ np.linalg.cholesky(_CORRELATION).T
        tables[name] = np.clip(np.round(_MEANS + _SPREADS * patients, 1), low, high)
    return tables
