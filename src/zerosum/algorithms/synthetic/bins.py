"""Bins of columns after the first release: categories whose noise hides them are merged. Free post-processing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats

Coding = NDArray[np.intp]  # the bin of each category, or of each bin of another coding
_TINY = 1e-12  # least share that counts as one, so that empty categories never have bins of their own


def merged(shares: Floats, least: float, *, ordered: bool, most: int | None = None) -> Coding:
    """A coding of categories such that every bin has at least a given share, and that there are two bins or more.

    Parameters
    ----------
    shares : array of shape (categories,)
        Shares of the categories, the last of which is for missing values.
    least : float
        Least share of a bin.
    ordered : bool
        Whether the categories but the last are intervals in their order: then neighbours are merged. Otherwise the
        rare categories become one bin.
    most : int, optional
        Most bins.

    Returns
    -------
    bins : array of shape (categories,)
        The bin of each category: 0, 1, ... without gaps.

    >>> merged(np.array([0.5, 0.05, 0.05, 0.4, 0.0]), 0.1, ordered=True).tolist()
    [0, 1, 1, 2, 2]
    >>> merged(np.array([0.05, 0.5, 0.05, 0.4, 0.0]), 0.1, ordered=False).tolist()
    [2, 0, 2, 1, 2]
    """
    least = max(least, _TINY)
    while True:
        bins = _merged_in_order(shares, least) if ordered else _merged_rare(shares, least)
        if most is None or bins.max() < most:
            break
        least *= 1.25
    if bins.max() == 0:
        # One bin has no information on the column, and a release of pairs needs two.
        bins = (np.arange(len(shares)) != np.argmax(shares)).astype(np.intp)
    return bins


def _merged_in_order(shares: Floats, least: float) -> Coding:
    """`merged` for intervals: a bin ends where it has the least share, or where a large category follows.

    Parameters
    ----------
    shares : array of shape (categories,)
        The last one is for missing values.
    least : float
        Least share of a bin.
    """
    *intervals, missing = shares.tolist()
    bins, current, held = np.zeros(len(shares), dtype=np.intp), 0, 0.0
    for at, share in enumerate(intervals):
        # A large category would hide the small ones before it, which get a bin of their own from a third of the least
        # share on (prototype's value).
        if held >= least or (share >= least and held >= least / 3 and held > 0):
            current, held = current + 1, 0.0
        bins[at], held = current, held + share
    if held < least and current:
        bins[bins == current] = current - 1
        current -= 1
    # Missing values have a bin of their own where they are frequent, else they belong to the last one.
    bins[-1] = current + 1 if missing >= least else current
    return bins


def _merged_rare(shares: Floats, least: float) -> Coding:
    """`merged` for categories without an order: those below the least share become one bin, the last one.

    Parameters
    ----------
    shares : array of shape (categories,)
        Shares.
    least : float
        Least share of a bin.
    """
    order, large = np.argsort(-shares, kind="stable"), int(np.sum(shares >= least))
    bins = np.empty(len(shares), dtype=np.intp)
    bins[order] = np.minimum(np.arange(len(shares)), large)
    # The rare ones together may still be below it: they join the smallest of the others.
    if 0 < large < len(shares) and np.sum(shares[order[large:]]) < least:
        bins[bins == large] = large - 1
    return bins


def grouped(values: Floats, bins: Coding) -> Floats:
    """Sums of values by bin, shape (bins,)."""
    return np.asarray(np.bincount(bins, weights=values))


def one_hot(bins: Coding) -> NDArray[np.float32]:
    """The coding as a matrix of shape (categories, bins) with one 1 in each row."""
    return np.eye(int(bins.max()) + 1, dtype=np.float32)[bins]
