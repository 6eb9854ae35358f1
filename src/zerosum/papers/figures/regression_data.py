"""Data sets of the capeFM paper's regressions: features and response in ranges of -1 to 1.

Crime has the ranges 0 to 1 of its description, without the columns with missing values. KEGG (in place of the paper's
Twitter set) is scaled to its smallest and largest values, and the synthetic columns to their largest magnitude: this is
the paper's preparation and is not private.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter

# Data set to file name.
_FILES = {"crime": "communities_crime.npz", "kegg": "keggundirected_data.csv.gz"}
# Synthetic data set to number of features.
_SYNTHETIC = {"synthetic": 20, "synthetic-50": 50}
DATA = (*_SYNTHETIC, *_FILES)


@dataclass(frozen=True, eq=False)
class Regression:
    """Records in random order. `weights` are the true coefficients with the intercept last, if known."""

    name: str
    x: Floats
    y: Floats
    weights: Floats | None = None


def load(data: str, folder: Path | None = None, rows: int = 10_000) -> Regression:
    """One of the four data sets. The two real ones are read from `folder`. `rows` is the size of a synthetic one."""
    if data not in DATA:
        raise BadParameter(f"unknown data {data!r}; there are {', '.join(DATA)}")
    if data in _SYNTHETIC:
        return synthetic(data, _SYNTHETIC[data], rows)
    if folder is None:
        raise BadData(f"the data set {data} is read from a folder: name one that holds {_FILES[data]} with --folder")
    path = folder / _FILES[data]
    if not path.exists():
        raise BadData(f"the data set {data} is not here: there is no file {path}")
    read: Callable[[Path], tuple[Floats, Floats]] = _crime if data == "crime" else _kegg
    try:
        x, y = read(path)
    except (OSError, ValueError, KeyError, EOFError, IndexError) as error:
        raise BadData(f"the file {path} is not the data set {data}: it cannot be read") from error
    order = np.random.default_rng(0).permutation(len(x))
    return Regression(data, x[order], y[order])


def synthetic(name: str, columns: int, rows: int, seed: int = 0, noise: float = 0.1) -> Regression:
    """Normal features, and a response that is linear in them plus noise of a tenth of its standard deviation."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(columns)
    x = rng.standard_normal((rows, columns))
    # Ranges of -1 to 1 first, weights second: the response then lies in -1 to 1 too, before its noise.
    x /= np.abs(x).max(axis=0)
    weights /= np.abs(x @ weights).max()
    y = x @ weights
    y = np.clip(y + noise * y.std() * rng.standard_normal(rows), -1, 1)
    return Regression(name, x, y, np.append(weights, 0.0))


def _crime(path: Path) -> tuple[Floats, Floats]:
    """Features and response of Communities and Crime."""
    with np.load(path) as stored:
        x, y = np.asarray(stored["X"], dtype=np.float64), np.asarray(stored["y"], dtype=np.float64)
    return 2 * x[:, ~np.isnan(x).any(axis=0)] - 1, 2 * y - 1


def _kegg(path: Path) -> tuple[Floats, Floats]:
    """Features and response of KEGG, without constant columns."""
    with gzip.open(path) as stored:
        table = np.loadtxt(stored, delimiter=",")
    low, high = table.min(axis=0), table.max(axis=0)
    table = 2 * ((table - low) / np.where(high > low, high - low, 1.0)) - 1
    varies = high > low
    return table[:, :-1][:, varies[:-1]], table[:, -1]
