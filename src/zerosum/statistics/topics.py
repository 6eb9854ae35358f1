"""What topic models ask of a site whose rows are documents: counts of words, dense or sparse.

A count is rounded to a whole number between 0 and 2^20; what is not a number counts as 0. Documents may be looked at
through some of the columns only (`words`). A unit with several documents contributes the mean over them of what a
document contributes, each bounded by itself: every bound below is on a convex set, so the mean keeps to it.

Most contributions here have entries that are not negative, and norm at most 1. Two such vectors have an inner product
that is not negative, so they are at most sqrt(2) apart; added or removed, one moves a sum by at most 1. This is
"the corner" below. Numbers are divided by slightly more than a norm, so that rounding does not pass a bound.

Tested in tests/statistics/test_topic_statistics.py.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.sparse import csr_array, issparse

from zerosum.arrays import Array, Floats
from zerosum.kernel import coordinates
from zerosum.kernel.grid import BLOCK_ROWS, summation_slack
from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, Positive, to_numpy
from zerosum.kernel.units import Units, doubled, pieces, rows_at_once
from zerosum.statistics.rows import INSIDE, Exact, clip_rows, exponential, fold, sized

MOST = 2.0**20  # a word is counted so often in a document
_SURE = 1 + 1e-9  # norms from power sums are known to better than this
_RARE = 60.0  # a topic's share of a document below exp(-60) of the largest is that


def whole_counts(values: Floats) -> Floats:
    """Numbers as counts."""
    return np.asarray(np.rint(np.clip(np.where(np.isnan(values), 0.0, values), 0.0, MOST)))


def canonical(rows: csr_array) -> csr_array:
    """Sparse rows in which no word stands twice."""
    if not rows.has_canonical_format:
        rows = doubled(rows)
        rows.sum_duplicates()
    return rows


class DocumentStatistic(BoundedStatistic):
    """A statistic of documents in the corner."""

    takes_sparse: ClassVar[bool] = True
    columns: int = Field(gt=0)
    words: FloatArray | None = None  # the columns that are looked at, in this order; None: all

    @model_validator(mode="after")
    def _words_fit(self) -> Self:
        words = self.words
        if words is None:
            return self
        if words.ndim != 1 or not len(words) or not np.all((words >= 0) & (words < self.columns)):
            raise ValueError(f"words must be positions among the {self.columns} columns")
        if np.any(words != np.rint(words)) or len(np.unique(words)) < len(words):
            raise ValueError("words must be whole numbers, none of them twice")
        return self

    @property
    def width(self) -> int:
        """How many words are looked at."""
        return self.columns if self.words is None else len(self.words)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    @property
    def row_bytes(self) -> int:
        return 8 * (6 * self.width + 8)

    @cached_property
    def _positions(self) -> NDArray[np.intp] | None:
        return None if self.words is None else self.words.astype(np.intp)

    def counts(self, documents: Array) -> Floats:
        """The counts of the words that are looked at, one document a row."""
        if bool(issparse(documents)):
            rows = canonical(csr_array(documents))
            chosen = rows if self._positions is None else rows[:, self._positions]
            return whole_counts(chosen.toarray().astype(np.float64))
        table = to_numpy(documents)
        return whole_counts(table if self._positions is None else table[:, self._positions])

    def sum_block(self, block: Units) -> Array:
        """A person's documents are passed over in parts too: each is bounded by itself."""
        shares, most = block.row_weights(np.zeros(1)), rows_at_once(self.row_bytes)
        total = np.zeros(self.size)
        for part in pieces(len(shares), most):
            total += self.sum_documents(block.rows[part, ...], shares[part])
        return total

    @abstractmethod
    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The sum of what documents contribute, each times its share in its unit."""


class WordPresence(DocumentStatistic):
    """For each word the sum over documents of 1/sqrt(n) where it occurs, n being how many different words do.

    From this a vocabulary is bought.

    Sensitivity. A document's entries are 1/sqrt(n) in n places: the corner, D = sqrt(2), attained by two documents
    without a common word. Added or removed: 1. An empty document contributes zeros.
    """

    name: ClassVar[str] = "word_presence"

    @property
    def size(self) -> int:
        return self.width

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        if not bool(issparse(documents)) or self.words is not None:
            present = (self.counts(documents) > 0).astype(np.float64)
            return np.asarray((shares * _over_root(np.sum(present, axis=1))) @ present)
        rows = canonical(csr_array(documents))
        there = whole_counts(np.asarray(rows.data, dtype=np.float64)) > 0
        document = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[there]
        weights = shares * _over_root(np.bincount(document, minlength=rows.shape[0]).astype(np.float64))
        return np.asarray(np.bincount(rows.indices[there], weights[document], minlength=self.columns))


def _over_root(counts: Floats) -> Floats:
    """1/sqrt of whole numbers, 0 for 0."""
    return np.asarray((counts > 0) / (np.sqrt(np.maximum(counts, 1.0)) * INSIDE))


def unit_rows(counts: Floats, weights: Floats) -> Floats:
    """Documents as unit vectors: roots of counts times weights, normalised; zeros where it has none of the words."""
    rows = np.sqrt(counts) * weights
    norm = np.sqrt(fold(rows * rows)) * INSIDE
    return np.asarray(rows * (1 / np.where(norm > 0, norm, 1.0))[:, None])


def _check_weights(weights: Floats, width: int) -> None:
    if weights.shape != (width,) or not np.all((weights == 0) | ((weights >= 1e-6) & (weights <= 1e6))):
        raise ValueError(f"weights must hold 0 or a number between 1e-6 and 1e6 for each of the {width} words")


class WordPairs(DocumentStatistic):
    """The sum over documents of x x', in isometric coordinates: x is the unit vector of roots of counts times `weights`
    (0: the word is left out).

    Sensitivity. x x' and means of such have entries that are not negative and Frobenius norm at most 1: the corner, D =
    sqrt(2), attained by documents without a common word. Added or removed: 1.
    """

    name: ClassVar[str] = "word_pairs"
    weights: FloatArray

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        _check_weights(self.weights, self.width)
        return self

    @property
    def size(self) -> int:
        return coordinates.size(self.width)

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        rows = unit_rows(self.counts(documents), self.weights) * np.sqrt(shares)[:, None]
        return coordinates.pack(rows.T @ rows)

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric matrix."""
        return coordinates.unpack(release, self.width)


class TopicSums(DocumentStatistic):
    """For each public topic k the sum over documents of r_k x: r is what share of a document each topic takes.

    r is proportional to exp(x . s_k + o_k), for the columns s_k of `scores` (words x topics) and `offsets` o. With
    `kind` "roots" x is the unit vector of square roots of counts times `weights`; with "shares" it is the document's
    counts over their sum, over `clip` and clipped to norm 1, and s multiplies the counts themselves: one round of EM
    of the single topic model, if s holds logarithms of probabilities.

    Sensitivity. x has no negative entries and norm at most 1, r adds up to at most 1: their outer product has norm
    norm(r) norm(x) <= 1, and no entry is negative: the corner, D = sqrt(2). Added or removed: 1.
    """

    name: ClassVar[str] = "topic_sums"
    kind: Literal["roots", "shares"] = "roots"
    scores: FloatArray
    offsets: FloatArray
    weights: FloatArray | None = None
    clip: Positive = 1.0

    @model_validator(mode="after")
    def _topics_fit(self) -> Self:
        scores = self.scores
        if scores.ndim != 2 or scores.shape[0] != self.width or scores.shape[1] == 0:
            raise ValueError(f"scores must have {self.width} rows and a column for each topic, got {scores.shape}")
        if self.offsets.shape != (scores.shape[1],):
            raise ValueError("offsets must hold one number for each topic")
        if np.max(np.abs(scores)) > 1e6 or np.max(np.abs(self.offsets)) > 1e6:
            raise ValueError("scores and offsets must not exceed 1e6")
        if self.weights is not None and self.kind == "shares":
            raise ValueError("only roots of counts have weights")
        if self.weights is not None:
            _check_weights(self.weights, self.width)
        return self

    @property
    def size(self) -> int:
        return int(self.scores.size)

    @property
    def row_bytes(self) -> int:
        return 8 * 8 * (self.width + int(self.scores.shape[1]))

    @cached_property
    def _exact(self) -> Exact:
        return Exact.of(self.scores)

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        counts = self.counts(documents)
        if self.kind == "roots":
            rows = seen = unit_rows(counts, np.ones(self.width) if self.weights is None else self.weights)
        else:
            seen, length = counts, np.sum(counts, axis=1)  # of whole numbers: exact
            rows = clip_rows(seen / np.maximum(length, 1.0)[:, None] / self.clip, 1.0)
        taken = self.responsibilities(seen) * shares[:, None]
        return np.asarray(np.ravel(taken.T @ rows))

    def responsibilities(self, seen: Floats) -> Floats:
        """What share of a document each topic takes."""
        scaled, size, norm = sized(seen)
        logs = self._exact.seen(scaled, norm) * (size * norm)[:, None] + self.offsets
        likely = exponential(np.clip(logs - np.max(logs, axis=1, keepdims=True), -_RARE, 0.0))
        return np.asarray(likely / (fold(likely + 0.0) * INSIDE)[:, None])

    def split(self, release: Floats) -> Floats:
        """A release as topics x words, in units of x."""
        return self.clip * release.reshape(self.scores.shape[1], self.width)


# ---- moments of the single topic model -------------------------------------------------------------------------------


def chosen_twice(counts: Floats) -> tuple[Floats, Floats]:
    """The number of ordered pairs of a document's words, and the norm of how often each pair of words is among them."""
    length = np.sum(counts, axis=1)
    square = counts * counts
    total = fold(square + 0.0)
    same = square * (counts - 1.0) ** 2
    apart = total * total - fold(square * square) + fold(same + 0.0)
    return length * (length - 1.0), np.sqrt(np.maximum(apart, 0.0)) * _SURE


def chosen_thrice(counts: Floats) -> tuple[Floats, Floats]:
    """The same for ordered triples."""
    length = np.sum(counts, axis=1)
    square = counts * counts
    twice = square * (counts - 1.0) ** 2
    thrice = twice * (counts - 2.0) ** 2
    first, second, third = fold(square + 0.0), fold(square * square), fold(square * square * square)
    different = first**3 - 3 * first * second + 2 * third
    partly = fold(twice + 0.0) * first - fold(twice * square)
    norm = np.sqrt(np.maximum(different, 0.0) + 3 * np.maximum(partly, 0.0) + fold(thrice))
    return length * (length - 1.0) * (length - 2.0), norm * _SURE


def _factors(ways: Floats, norm: Floats, clip: float) -> Floats:
    """What the numbers of choices are multiplied by to become probabilities over `clip`, clipped to norm 1; 0 where
    there is nothing to choose."""
    some = (ways > 0) & (norm > 0)
    plain = 1 / (np.where(some, ways, 1.0) * clip)
    return np.where(some, np.minimum(plain, 1 / np.where(some, norm, 1.0)), 0.0)


class PairNorms(DocumentStatistic):
    """How many documents have a matrix of pair probabilities (`PairMoment`) whose norm lies in each of `bins` bins,
    evenly spaced in its logarithm between `lowest` and 1. Documents of fewer than two words have no pairs and count in
    none.

    Sensitivity. A document counts in at most one bin, a unit as the mean of such: the corner, D = sqrt(2). Added or
    removed: 1.
    """

    name: ClassVar[str] = "pair_norms"
    lowest: float = Field(default=0.01, ge=1e-6, le=0.5)
    bins: int = Field(default=24, gt=1, le=1000)

    @property
    def size(self) -> int:
        return self.bins

    @property
    def edges(self) -> Floats:
        """Where bins begin and the last one ends."""
        return np.geomspace(self.lowest, 1.0, self.bins + 1)

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        ways, norm = chosen_twice(self.counts(documents))
        norm = norm / np.maximum(ways, 1.0)
        which = np.sum(norm[:, None] >= self.edges[1:-1][None, :], axis=1)
        return np.asarray(np.bincount(which, np.where(ways > 0, shares, 0.0), minlength=self.bins))


class PairMoment(DocumentStatistic):
    """The sum over documents of how likely each ordered pair of words is, if two of its words are drawn without
    returning the first: (c c' - diag c)/(L (L - 1)), over `clip` and clipped to Frobenius norm 1.

    Sensitivity. The entries are not negative, since counts are whole numbers: the corner, D = sqrt(2), attained by
    documents of one word each. Added or removed: 1. The norm comes from power sums of the counts. c c' and diag c are
    added up by themselves, and their norms are together at most 3 times what is left (a word that stands there twice):
    the rounding of the sum is so much more, and 2 times the planned slack is added.
    """

    name: ClassVar[str] = "pair_moment"
    clip: Positive = 1.0

    @property
    def size(self) -> int:
        return coordinates.size(self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return super().sensitivity(adjacency) + 2 * summation_slack()

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        counts = self.counts(documents)
        factors = _factors(*chosen_twice(counts), self.clip) * shares
        weighted = counts * factors[:, None]
        return coordinates.pack(weighted.T @ counts - np.diag(np.sum(weighted, axis=0)))

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric matrix of sums of probabilities."""
        return self.clip * coordinates.unpack(release, self.width)


class TripleMoment(DocumentStatistic):
    """The sum over documents of how likely each ordered triple of words is, if three are drawn without returning them,
    over `clip` and clipped to norm 1, then along the columns of `basis` (words x k, orthonormal; None: all words).

    Sensitivity. Before the basis: entries that are not negative, norm at most 1, hence the corner, D = sqrt(2),
    attained by documents of one word each. An orthonormal basis makes no tensor longer (its largest singular value,
    checked to exceed 1 by no more than 1e-9, is divided out). Added or removed: 1. The norm comes from power sums of
    the counts in time linear in the words, so that no tensor of all words is made for a document.

    Rounding. Triples with repetition and what is taken off them are added up by themselves, and their norms are
    together at most 10 times what is left (a word that stands there three times). Along a basis of k columns each of
    up to three products over all words rounds, too, relative to the absolute values of the basis, whose norm is at
    most sqrt(k): the slack is that of so many more terms, times 10 sqrt(k).
    """

    name: ClassVar[str] = "triple_moment"
    clip: Positive = 1.0
    basis: FloatArray | None = None

    @model_validator(mode="after")
    def _basis_fits(self) -> Self:
        if self.basis is None:
            if self.width > 60:
                raise ValueError("triples of more than 60 words need a basis")
            return self
        basis = self.basis
        if basis.ndim != 2 or basis.shape[0] != self.width or not 1 <= basis.shape[1] <= min(self.width, 200):
            raise ValueError(f"the basis must have {self.width} rows and no more columns, got shape {basis.shape}")
        sound = bool(np.max(np.abs(basis)) <= 1 + 1e-9)
        if not (sound and np.linalg.norm(basis.T @ basis - np.eye(basis.shape[1]), 2) <= 1e-9):
            raise ValueError("the columns of the basis must be orthonormal")
        return self

    @property
    def order(self) -> int:
        """The order of the tensor."""
        return self.width if self.basis is None else int(self.basis.shape[1])

    @property
    def size(self) -> int:
        return coordinates.size(self.order, 3)

    def sensitivity(self, adjacency: Adjacency) -> float:
        terms, longer = (0, 1.0) if self.basis is None else (3 * self.width, math.sqrt(self.order))
        slack = 10 * longer * summation_slack(rows=BLOCK_ROWS + terms)
        return super().sensitivity(adjacency) + slack - summation_slack()

    @property
    def row_bytes(self) -> int:
        return 8 * (8 * self.width + 2 * self.order**2)

    @cached_property
    def _axes(self) -> Floats:
        if self.basis is None:
            return np.eye(self.width)
        return np.asarray(self.basis / max(1.0, float(np.linalg.norm(self.basis, 2))))

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        counts, axes, order = self.counts(documents), self._axes, self.order
        factors = _factors(*chosen_thrice(counts), self.clip) * shares
        seen = counts if self.basis is None else counts @ axes
        weighted = counts * factors[:, None]
        pairs = (seen[:, :, None] * seen[:, None, :]).reshape(len(seen), -1)
        cubes = ((seen * factors[:, None]).T @ pairs).reshape(order, order, order)
        met = weighted.T @ seen  # a word that is drawn twice, and another one
        double = np.einsum("ia,ib,ic->abc", axes, axes, met, optimize=True)
        triple = np.einsum("i,ia,ib,ic->abc", np.sum(weighted, axis=0), axes, axes, axes, optimize=True)
        twice = double + np.moveaxis(double, 2, 0) + np.moveaxis(double, 2, 1)
        return coordinates.pack(cubes - twice + 2 * triple)

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric tensor of sums of probabilities."""
        return self.clip * coordinates.unpack(release, self.order, 3)
