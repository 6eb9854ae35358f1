"""Records and tables of a fitted model: free post-processing, as often as wanted.

The model is an array of shape (M, A): the probability of each category of each column in each of M components of equal
weight; the A categories of all columns stand side by side. Within a component columns are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.synthetic.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.errors import BadParameter

Codes = NDArray[np.intp]
# Rounds in which records with an impossible combination are drawn again before they are left out. Chosen by hand.
_REDRAWS = 50


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model.

    Parameters
    ----------
    probabilities : array of shape (M, A)
        Probability of each category in each component.
    sizes : sequence of int
        K_j, the number of categories of each column.
    impossible : sequence of dict
        Combinations of categories that no record has: category by column.
    """

    probabilities: Floats
    sizes: Sequence[int]
    impossible: Sequence[Mapping[int, int]] = ()

    @property
    def _offsets(self) -> list[int]:
        return [0, *np.cumsum(self.sizes).tolist()]

    def column(self, at: int) -> Floats:
        """The probabilities of a column, shape (M, K_j)."""
        return self.probabilities[:, self._offsets[at] : self._offsets[at + 1]]

    def table(self, columns: Sequence[int]) -> Floats:
        """The share of each combination of categories of some columns.

        Parameters
        ----------
        columns : sequence of int
            Different columns.

        Returns
        -------
        shares : array of shape (K_j for each column)
            The sum is 1; impossible combinations of these columns have 0. Where the model has impossible combinations
            only, all others are equal.
        """
        letters = "abcdefghijlmnopqrstuvwxyz"[: len(columns)]  # without k, the component
        subscripts = ",".join(f"k{letter}" for letter in letters)
        found = np.einsum(f"{subscripts}->{letters}", *(self.column(at) for at in columns), optimize=True)
        possible = np.ones(found.shape, dtype=bool)
        for combination in self.impossible:
            if set(combination) <= set(columns):
                possible[tuple(combination.get(at, slice(None)) for at in columns)] = False
        found = np.where(possible, found, 0.0)
        # Shares that noise has made 0 may leave nothing: a result is still needed, as its release is paid for.
        found = found if np.sum(found) > 0 else possible.astype(np.float64)
        return np.asarray(found / np.sum(found))

    def records(self, rows: int, rng: np.random.Generator) -> Codes:
        """Records whose histograms are those of the model up to about one record.

        Parameters
        ----------
        rows : int
            The number of records.
        rng : Generator
            For the assignment of categories to records.

        Returns
        -------
        codes : array of shape (rows, columns)
            The category of each column.
        """
        count = len(self.probabilities)
        # Records of each component; they differ by one at most.
        own = np.diff(np.floor(np.linspace(0, rows, count + 1)).astype(int))
        found = np.empty((rows, len(self.sizes)), dtype=np.intp)
        for at in range(len(self.sizes)):
            start = 0
            for some in _diffused(own, self.column(at), rng):
                # A permutation within a component: its columns are independent.
                found[start : start + len(some), at] = rng.permutation(some)
                start += len(some)
        component = np.repeat(np.arange(count), own)
        return self._possible(found, component, rng)

    def _possible(self, codes: Codes, component: Codes, rng: np.random.Generator) -> Codes:
        """The records with those redrawn that have an impossible combination, in random order.

        Parameters
        ----------
        codes : array of shape (rows, columns)
            Records.
        component : array of shape (rows,)
            The component of each.
        rng : Generator
            For the draws.
        """
        for _ in range(_REDRAWS if self.impossible else 0):
            wrong = np.flatnonzero(self._hit(codes))
            if not len(wrong):
                break
            for at in range(len(self.sizes)):
                # Inverse distribution function of the record's own component.
                rising = np.cumsum(self.column(at)[component[wrong]], axis=1)
                draws = rng.random((len(wrong), 1)) * rising[:, -1:]
                codes[wrong, at] = np.sum(rising <= draws, axis=1).clip(max=self.sizes[at] - 1)
        else:
            codes = self._others(codes) if self.impossible else codes
        return codes[rng.permutation(len(codes))]

    def _others(self, codes: Codes) -> Codes:
        """The records without an impossible combination. If there is none, all records, with missing values in place of
        the impossible combinations: a missing value is in no combination.

        Parameters
        ----------
        codes : array of shape (rows, columns)
            Records.
        """
        hit = self._hit(codes)
        if not np.all(hit):
            return codes[~hit]
        codes = codes.copy()
        for combination in self.impossible:
            rows = np.all([codes[:, at] == category for at, category in combination.items()], axis=0)
            first = next(iter(combination))
            codes[rows, first] = self.sizes[first] - 1
        return codes

    def _hit(self, codes: Codes) -> NDArray[np.bool_]:
        """Whether each record has one of the impossible combinations, shape (rows,)."""
        hit = np.zeros(len(codes), dtype=bool)
        for combination in self.impossible:
            hit |= np.all([codes[:, at] == category for at, category in combination.items()], axis=0)
        return hit


def _diffused(own: Codes, probabilities: Floats, rng: np.random.Generator) -> list[Codes]:
    """Categories of each component's records: counts are rounded, and what rounding leaves is carried on.

    Independent draws would add the sampling error of a histogram to every sample. Error diffusion meets the model's
    histogram up to about one record.

    Parameters
    ----------
    own : array of shape (M,)
        Records of each component.
    probabilities : array of shape (M, K)
        Of one column.
    rng : Generator
        Breaks ties between categories with nearly equal remainders.
    """
    carried = np.zeros(probabilities.shape[1])
    found = []
    # Equal weights, although the numbers of records differ by one between components.
    each = float(np.sum(own)) / len(own)
    for rows, p in zip(own.tolist(), probabilities, strict=True):
        # A stored model is rounded: without the division its error would add up over many records.
        carried += each * (p / np.sum(p))
        whole = np.maximum(np.floor(carried), 0).astype(int)
        while whole.sum() > rows:
            # What was carried may exceed the records of the component: least harm where the excess is largest.
            whole[np.argmax(np.where(whole > 0, whole - carried, -np.inf))] -= 1
        if short := rows - int(whole.sum()):
            order = carried - whole + 0.5 * rng.random(len(whole))
            whole[np.argpartition(-order, short - 1)[:short]] += 1
        carried -= whole
        found.append(np.repeat(np.arange(len(whole)), whole))
    return found


@dataclass(frozen=True, eq=False)
class Twin:
    """A repetition of a study on records of a model.

    Attributes
    ----------
    model : Model
        What the repetition released.
    codes : array of shape (records, columns)
        The records, whose tables are what the repetition estimates.
    pair_codings : sequence of arrays
        The coding of each column in the release of pairs.
    pair_misfit : array of shape (d, d)
        As of `Fitted`.
    """

    model: Model
    codes: Codes
    pair_codings: Sequence[Codes]
    pair_misfit: Floats

    def errors(self, columns: Sequence[int]) -> Floats:
        """The repetition's table of some columns, less that of its records."""
        return self.model.table(columns) - shares_of(self.codes, self.model.sizes, columns)

    def coarse_square(self, columns: tuple[int, int]) -> float:
        """The sum of squared errors of a pair's table on the bins of the release of pairs."""
        i, j = (np.eye(int(self.pair_codings[at].max()) + 1)[self.pair_codings[at]] for at in columns)
        return float(np.sum((i.T @ self.errors(columns) @ j) ** 2))

    def distance(self, columns: Sequence[int]) -> float:
        """The total variation distance of both tables."""
        return float(np.sum(np.abs(self.errors(columns))) / 2)


def shares_of(codes: Codes, sizes: Sequence[int], columns: Sequence[int]) -> Floats:
    """The share of each combination of categories of some columns in records.

    Parameters
    ----------
    codes : array of shape (records, all columns)
        Categories.
    sizes : sequence of int
        Number of categories of each column.
    columns : sequence of int
        Positions of the columns.
    """
    shape = tuple(sizes[at] for at in columns)
    places = np.ravel_multi_index([codes[:, at] for at in columns], shape)
    return np.asarray(np.bincount(places, minlength=math.prod(shape)).reshape(shape) / len(codes))


def distance(first: Floats, second: Floats) -> float:
    """Total variation distance of two tables of shares.

    >>> distance(np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    0.5
    """
    if first.shape != second.shape:
        raise BadParameter(f"tables of one shape can be compared, got {first.shape} and {second.shape}")
    return float(np.sum(np.abs(first - second)) / 2)


def excess(pair_misfit: Floats, twins: Sequence[Twin]) -> Floats:
    """By how much the model's table of each pair is worse than those of repetitions, as a factor of 1 or more, (d, d).

    A repetition is a study of records that a mixture made: its fit loses less than a fit of real data. What is lost is
    visible: with the noise e, the misfit |P - y|^2 of a released table has the expectation |P - truth|^2 + |e|^2 less
    twice the covariance of P and e. The last two are the same in repetitions, as far as the fits are alike. So the
    misfit of the study less the mean misfit of repetitions estimates by how much |P - truth|^2 is larger.

    Parameters
    ----------
    pair_misfit : array of shape (d, d)
        Sum of squared differences between the released table of each pair and that of the model.
    twins : sequence of Twin
        Its repetitions.
    """
    more = pair_misfit - np.mean([twin.pair_misfit for twin in twins], axis=0)
    known = np.mean([by_pair(len(more), twin.coarse_square) for twin in twins], axis=0)
    # A pair that was not released (a column of one bin) has neither.
    ratio = np.divide(np.maximum(more, 0.0), known, out=np.zeros_like(more), where=known > 0)
    return np.asarray(np.sqrt(1 + np.minimum(ratio, TUNING.excess_most**2)))


def by_pair(count: int, value: Callable[[tuple[int, int]], float]) -> Floats:
    """A symmetric matrix of shape (count, count) with a value for each pair of columns; 0 on the diagonal.

    Parameters
    ----------
    count : int
        The number of columns.
    value : callable
        From the positions of two columns.
    """
    found = np.zeros((count, count))
    for i, j in combinations(range(count), 2):
        found[i, j] = found[j, i] = value((i, j))
    return found
