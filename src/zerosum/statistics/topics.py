"""Statistics for topic models, whose rows are documents: counts of words, dense or sparse.

A document is a vector c of counts over `columns` words, with length L = sum of c. A count is rounded to a whole number
between 0 and 2^20; a missing value counts as 0. Documents may be restricted to some of the columns (`words`). A unit
with several documents contributes the mean over them of the contribution of each document, and each document is bounded
by itself. Every bound below is on a convex set, so that the mean stays within it.

**The corner.** Most contributions here have no negative entry and norm at most 1. Two such vectors have an inner
product that is not negative, so that they are at most sqrt(2) apart. Adding or removing one moves a sum by at most 1.
The proofs below refer to this argument as "the corner". Numbers are divided by slightly more than a norm, so that
rounding does not exceed a bound.
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
from zerosum.compute.backends.exact import INSIDE, Exact, clip_rows, exponential, fold, sized
from zerosum.compute.devices import to_numpy
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units, doubled, pieces, rows_at_once
from zerosum.kernel import coordinates
from zerosum.kernel.grid import BLOCK_ROWS, summation_slack
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.constants import check_basis

# The largest count of a word in a document. Products of three counts stay exact or far from overflow. Chosen by hand;
# no benchmark recorded.
LARGEST_COUNT = 2.0**20
# Norms from power sums are multiplied by this. Their relative rounding error is smaller than 1e-9.
_ROUNDING_MARGIN = 1 + 1e-9
# Log-shares of topics are clipped at this distance below the largest: exp(-60) = 9e-27. It is also the limit of
# `exponential`.
_RARE = 60.0


def whole_counts(values: Floats) -> Floats:
    """Numbers as counts: NaN becomes 0, then clipped to [0, 2^20] and rounded; any shape."""
    return np.asarray(np.rint(np.clip(np.where(np.isnan(values), 0.0, values), 0.0, LARGEST_COUNT)))


def canonical(rows: csr_array) -> csr_array:
    """Sparse rows in which no column occurs twice in a row."""
    if not rows.has_canonical_format:
        # Duplicates are added up before counts are rounded, so that the sparse form does not change a count.
        rows = doubled(rows)
        rows.sum_duplicates()
    return rows


class DocumentStatistic(BoundedStatistic):
    """Base of statistics of documents that satisfy the corner.

    Parameters
    ----------
    columns : int
        The number of words of the data.
    words : array of int-valued floats, optional
        The positions of the columns that are used, in this order; None for all.
    """

    takes_sparse: ClassVar[bool] = True
    columns: int = Field(gt=0)
    words: FloatArray | None = None

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
        """V, the number of words that are used."""
        return self.columns if self.words is None else len(self.words)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The corner: sqrt(2) for a replaced unit, 1 for one added or removed."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    @property
    def row_bytes(self) -> int:
        """Working memory of one document in bytes."""
        return 8 * (6 * self.width + 8)

    @cached_property
    def _positions(self) -> NDArray[np.intp] | None:
        """The words as indices, or None for all."""
        return None if self.words is None else self.words.astype(np.intp)

    def counts(self, documents: Array) -> Floats:
        """The counts of the words that are used, shape (documents, V)."""
        if bool(issparse(documents)):
            rows = canonical(csr_array(documents))
            chosen = rows if self._positions is None else rows[:, self._positions]
            return whole_counts(chosen.toarray().astype(np.float64))
        table = to_numpy(documents)
        return whole_counts(table if self._positions is None else table[:, self._positions])

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, some documents at a time. Each document is bounded by itself, so that the documents
        of one unit may be split, too.
        """
        shares, most = block.row_weights(np.zeros(1)), rows_at_once(self.row_bytes)
        total = np.zeros(self.size)
        for part in pieces(len(shares), most):
            total += self.sum_documents(block.rows[part, ...], shares[part])
        return total

    @abstractmethod
    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The sum of the contributions of documents, each times its share in its unit; shape (size,).

        Parameters
        ----------
        documents : array or sparse array of shape (documents, columns)
            Raw rows of the data.
        shares : array of shape (documents,)
            One over the number of documents of the unit.
        """


class WordPresence(DocumentStatistic):
    """For each word the sum over documents of 1/sqrt(n) if it occurs, n the number of different words of the document.

    A program chooses a vocabulary from this release.

    Sensitivity. A document's entries are 1/sqrt(n) in n places, so that its norm is 1. By the corner D = sqrt(2),
    attained by two documents without a common word. Adding or removing a unit: 1. An empty document contributes zeros.

    Parameters
    ----------
    columns, words
        As for `DocumentStatistic`.
    """

    name: ClassVar[str] = "word_presence"

    @property
    def size(self) -> int:
        """V, one number for each word."""
        return self.width

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The sum of the normalised presence vectors; shape (V,)."""
        if not bool(issparse(documents)) or self.words is not None:
            present = (self.counts(documents) > 0).astype(np.float64)
            return np.asarray((shares * _over_root(np.sum(present, axis=1))) @ present)
        # Sparse rows over all words: stored entries are counted directly, without a dense table.
        rows = canonical(csr_array(documents))
        there = whole_counts(np.asarray(rows.data, dtype=np.float64)) > 0
        document = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[there]
        weights = shares * _over_root(np.bincount(document, minlength=rows.shape[0]).astype(np.float64))
        return np.asarray(np.bincount(rows.indices[there], weights[document], minlength=self.columns))


def _over_root(counts: Floats) -> Floats:
    """1/sqrt of whole numbers, 0 for 0; slightly less, by `INSIDE`."""
    return np.asarray((counts > 0) / (np.sqrt(np.maximum(counts, 1.0)) * INSIDE))


def unit_rows(counts: Floats, weights: Floats) -> Floats:
    """Documents as unit vectors: roots of counts times weights, normalised; zeros if a document has none of the words.

    Parameters
    ----------
    counts : array of shape (documents, V)
        Whole numbers.
    weights : array of shape (V,)
        A public weight for each word.
    """
    rows = np.sqrt(counts) * weights
    # `fold`: the norm depends on the document alone.
    norm = np.sqrt(fold(rows * rows)) * INSIDE
    return np.asarray(rows * (1 / np.where(norm > 0, norm, 1.0))[:, None])


def _check_weights(weights: Floats, width: int) -> None:
    """Raise unless weights hold 0 or a number in [1e-6, 1e6] for each of `width` words."""
    if weights.shape != (width,) or not np.all((weights == 0) | ((weights >= 1e-6) & (weights <= 1e6))):
        raise ValueError(f"weights must hold 0 or a number between 1e-6 and 1e6 for each of the {width} words")


class WordPairs(DocumentStatistic):
    """The sum over documents of x x', in isometric coordinates; x is the unit vector of weighted roots of counts.

    Sensitivity. x x', and means of such matrices, have no negative entry and Frobenius norm at most 1. By the corner D
    = sqrt(2), attained by documents without a common word. Adding or removing a unit: 1.

    Parameters
    ----------
    weights : array of shape (V,)
        The weight of each word; 0 leaves the word out.
    columns, words
        As for `DocumentStatistic`.
    """

    name: ClassVar[str] = "word_pairs"
    weights: FloatArray

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        _check_weights(self.weights, self.width)
        return self

    @property
    def size(self) -> int:
        """The distinct entries of a V x V matrix."""
        return coordinates.size(self.width)

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The packed sum of x x'."""
        rows = unit_rows(self.counts(documents), self.weights) * np.sqrt(shares)[:, None]
        return coordinates.pack(rows.T @ rows)

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric matrix of shape (V, V)."""
        return coordinates.unpack(release, self.width)


class TopicSums(DocumentStatistic):
    """For each public topic k the sum over documents of r_k x; r_k is the share of topic k in the document.

    r is proportional to exp(x . s_k + o_k), for the columns s_k of `scores` and `offsets` o. With `kind` "roots", x is
    the unit vector of square roots of counts times `weights`. With "shares", x is the document's counts over their sum,
    divided by `clip` and clipped to norm 1, and s multiplies the counts themselves: one round of EM of the single topic
    model, if s holds logarithms of probabilities.

    Sensitivity. x has no negative entry and norm at most 1, and r sums to at most 1. Their outer product has norm
    norm(r) norm(x) <= 1 and no negative entry. By the corner D = sqrt(2). Adding or removing a unit: 1.

    Parameters
    ----------
    kind : {"roots", "shares"}
        The form of x.
    scores : array of shape (V, T)
        One column for each of T topics.
    offsets : array of shape (T,)
        The log-weight of each topic.
    weights : array of shape (V,), optional
        Weights of words, for "roots" only.
    clip : float
        The norm at which word shares are clipped, for "shares".
    columns, words
        As for `DocumentStatistic`.
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
        """T V, one number for each topic and word."""
        return int(self.scores.size)

    @property
    def row_bytes(self) -> int:
        """Working memory of one document in bytes."""
        return 8 * 8 * (self.width + int(self.scores.shape[1]))

    @cached_property
    def _exact(self) -> Exact:
        """The scores in whole numbers, whose products do not round."""
        return Exact.of(self.scores)

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The sum of the outer products r x', topic after topic; shape (T V,)."""
        counts = self.counts(documents)
        if self.kind == "roots":
            rows = projections = unit_rows(counts, np.ones(self.width) if self.weights is None else self.weights)
        else:
            # Sums of whole numbers are exact in any order.
            projections, length = counts, np.sum(counts, axis=1)
            rows = clip_rows(projections / np.maximum(length, 1.0)[:, None] / self.clip, 1.0)
        taken = self.responsibilities(projections) * shares[:, None]
        return np.asarray(np.ravel(taken.T @ rows))

    def responsibilities(self, rows: Floats) -> Floats:
        """The share of each topic in every document, shape (documents, T).

        Parameters
        ----------
        rows : array of shape (documents, V)
            Unit vectors or counts, depending on `kind`.
        """
        scaled, size, norm = sized(rows)
        # `seen` of `Exact` multiplies the rows divided by their norm; size * norm puts the scale back.
        logs = self._exact.projections(scaled, norm) * (size * norm)[:, None] + self.offsets
        # The largest value is subtracted, so that exp does not overflow and the sum is at least 1.
        likely = exponential(np.clip(logs - np.max(logs, axis=1, keepdims=True), -_RARE, 0.0))
        return np.asarray(likely / (fold(likely + 0.0) * INSIDE)[:, None])

    def split(self, release: Floats) -> Floats:
        """A release as an array of shape (T, V), in units of x."""
        return self.clip * release.reshape(self.scores.shape[1], self.width)


# ---- moments of the single topic model -------------------------------------------------------------------------------


def chosen_twice(counts: Floats) -> tuple[Floats, Floats]:
    """The number of ordered pairs of a document's words, and the norm of the matrix of pair counts.

    The matrix of pair counts is c c' - diag(c): entry (i, j) is c_i c_j for i != j, and c_i (c_i - 1) on the diagonal.
    Its squared norm is (sum c^2)^2 - sum c^4 + sum c^2 (c - 1)^2.

    Parameters
    ----------
    counts : array of shape (documents, V)
        Whole numbers.
    """
    length = np.sum(counts, axis=1)
    square = counts * counts
    total = fold(square + 0.0)
    same = square * (counts - 1.0) ** 2
    # The off-diagonal part, then the diagonal.
    apart = total * total - fold(square * square) + fold(same + 0.0)
    return length * (length - 1.0), np.sqrt(np.maximum(apart, 0.0)) * _ROUNDING_MARGIN


def chosen_thrice(counts: Floats) -> tuple[Floats, Floats]:
    """The number of ordered triples of a document's words, and the norm of the tensor of triple counts.

    The tensor has entries c_i c_j c_k for different words, c_i (c_i - 1) c_j if one word occurs twice (in three
    positions), and c_i (c_i - 1)(c_i - 2) for one word three times. With p_n = sum c^(2n), the squared norm of the
    first part is p_1^3 - 3 p_1 p_2 + 2 p_3.

    Parameters
    ----------
    counts : array of shape (documents, V)
        Whole numbers.
    """
    length = np.sum(counts, axis=1)
    square = counts * counts
    twice = square * (counts - 1.0) ** 2
    thrice = twice * (counts - 2.0) ** 2
    first, second, third = fold(square + 0.0), fold(square * square), fold(square * square * square)
    different = first**3 - 3 * first * second + 2 * third
    partly = fold(twice + 0.0) * first - fold(twice * square)
    # Cancellation may leave a small negative number, where the exact value is zero or positive.
    norm = np.sqrt(np.maximum(different, 0.0) + 3 * np.maximum(partly, 0.0) + fold(thrice))
    return length * (length - 1.0) * (length - 2.0), norm * _ROUNDING_MARGIN


def _factors(ways: Floats, norm: Floats, clip: float) -> Floats:
    """The factors that turn counts of choices into probabilities over `clip`, clipped to norm 1; 0 if there is no
    choice.

    Parameters
    ----------
    ways : array of shape (documents,)
        The number of ordered choices.
    norm : array of shape (documents,)
        The norm of the array of counts of choices.
    clip : float
        The norm at which the probabilities are clipped.
    """
    some = (ways > 0) & (norm > 0)
    plain = 1 / (np.where(some, ways, 1.0) * clip)
    return np.where(some, np.minimum(plain, 1 / np.where(some, norm, 1.0)), 0.0)


class PairNorms(DocumentStatistic):
    """The number of documents whose matrix of pair probabilities (`PairMoment`) has a norm in each of `bins` bins.

    Bins are evenly spaced in the logarithm between `lowest` and 1. Documents of fewer than two words have no pairs and
    do not count.

    Sensitivity. A document counts in at most one bin, and a unit contributes a mean of such vectors. By the corner D =
    sqrt(2). Adding or removing a unit: 1.

    Parameters
    ----------
    lowest : float
        The lower end of the histogram.
    bins : int
        The number of bins.
    columns, words
        As for `DocumentStatistic`.
    """

    name: ClassVar[str] = "pair_norms"
    lowest: float = Field(default=0.01, ge=1e-6, le=0.5)
    bins: int = Field(default=24, gt=1, le=1000)

    @property
    def size(self) -> int:
        """The number of bins."""
        return self.bins

    @property
    def edges(self) -> Floats:
        """The bin edges, shape (bins + 1,)."""
        return np.geomspace(self.lowest, 1.0, self.bins + 1)

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The counts by bin, shape (bins,)."""
        ways, norm = chosen_twice(self.counts(documents))
        norm = norm / np.maximum(ways, 1.0)
        # Only inner edges are compared: norms below `lowest` fall into the first bin.
        which = np.sum(norm[:, None] >= self.edges[1:-1][None, :], axis=1)
        return np.asarray(np.bincount(which, np.where(ways > 0, shares, 0.0), minlength=self.bins))


class PairMoment(DocumentStatistic):
    """The sum over documents of the probability of each ordered pair of words, drawn without replacement.

    For counts c and length L the matrix is (c c' - diag c)/(L (L - 1)), over `clip` and clipped to Frobenius norm 1.

    Sensitivity. The entries are not negative, because counts are whole numbers. By the corner D = sqrt(2), attained by
    documents of one word each. Adding or removing a unit: 1. The norm comes from power sums of the counts.

    Rounding. c c' and diag c are summed separately. Their norms together are at most 3 times that of the difference (a
    word that occurs twice). The rounding of the sum grows by the same factor, so that 2 times the planned slack is
    added.

    Parameters
    ----------
    clip : float
        The norm at which a matrix of probabilities is clipped.
    columns, words
        As for `DocumentStatistic`.
    """

    name: ClassVar[str] = "pair_moment"
    clip: Positive = 1.0

    @property
    def size(self) -> int:
        """The distinct entries of a V x V matrix."""
        return coordinates.size(self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The corner, with the slack for rounding."""
        return super().sensitivity(adjacency) + 2 * summation_slack()

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The packed sum of the matrices."""
        counts = self.counts(documents)
        factors = _factors(*chosen_twice(counts), self.clip) * shares
        weighted = counts * factors[:, None]
        # diag(c) is subtracted once for the whole sum: it is the pairs of a word position with itself.
        return coordinates.pack(weighted.T @ counts - np.diag(np.sum(weighted, axis=0)))

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric matrix of sums of probabilities, shape (V, V)."""
        return self.clip * coordinates.unpack(release, self.width)


class TripleMoment(DocumentStatistic):
    """The sum over documents of the probability of each ordered triple of words, drawn without replacement.

    The tensor is divided by `clip`, clipped to norm 1 and then projected on the columns of `basis` (None: all words).

    Sensitivity. Before the basis: no negative entry, norm at most 1, hence by the corner D = sqrt(2), attained by
    documents of one word each. An orthonormal basis makes no tensor longer; its largest singular value, checked to
    exceed 1 by no more than 1e-9, is divided out. Adding or removing a unit: 1. The norm comes from power sums of the
    counts in time linear in the words, so that no tensor over all words is made for a document.

    Rounding. Triples with repetition and their corrections are summed separately. Their norms together are at most 10
    times that of the difference (a word that occurs three times). Along a basis of k columns each of up to three
    products over all words rounds, too, relative to the absolute values of the basis, whose norm is at most sqrt(k).
    The slack is that of this many more terms, times 10 sqrt(k).

    Parameters
    ----------
    clip : float
        The norm at which a tensor of probabilities is clipped.
    basis : array of shape (V, k), optional
        Orthonormal columns, at most 200. Without a basis there may be at most 60 words.
    columns, words
        As for `DocumentStatistic`.
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
        check_basis(self.basis, self.width, 200)
        return self

    @property
    def order(self) -> int:
        """k, the order of the tensor: the number of columns of the basis, or of words."""
        return self.width if self.basis is None else int(self.basis.shape[1])

    @property
    def size(self) -> int:
        """The distinct entries of a symmetric k x k x k tensor."""
        return coordinates.size(self.order, 3)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The corner, with the slack for rounding in place of the planned one."""
        terms, longer = (0, 1.0) if self.basis is None else (3 * self.width, math.sqrt(self.order))
        slack = 10 * longer * summation_slack(rows=BLOCK_ROWS + terms)
        return super().sensitivity(adjacency) + slack - summation_slack()

    @property
    def row_bytes(self) -> int:
        """Working memory of one document in bytes."""
        return 8 * (8 * self.width + 2 * self.order**2)

    @cached_property
    def _axes(self) -> Floats:
        """The basis with its largest singular value divided out, if that exceeds 1; shape (V, k)."""
        if self.basis is None:
            return np.eye(self.width)
        return np.asarray(self.basis / max(1.0, float(np.linalg.norm(self.basis, 2))))

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The packed sum of the projected tensors."""
        counts, axes, order = self.counts(documents), self._axes, self.order
        factors = _factors(*chosen_thrice(counts), self.clip) * shares
        projections = counts if self.basis is None else counts @ axes
        weighted = counts * factors[:, None]
        pairs = (projections[:, :, None] * projections[:, None, :]).reshape(len(projections), -1)
        # c c c, projected: products of the projected counts.
        cubes = ((projections * factors[:, None]).T @ pairs).reshape(order, order, order)
        # c_i c_j where word i is drawn twice from one position: inclusion and exclusion subtracts it in three
        # placements and adds 2 diag(c) back.
        met = weighted.T @ projections
        double = np.einsum("ia,ib,ic->abc", axes, axes, met, optimize=True)
        triple = np.einsum("i,ia,ib,ic->abc", np.sum(weighted, axis=0), axes, axes, axes, optimize=True)
        twice = double + np.moveaxis(double, 2, 0) + np.moveaxis(double, 2, 1)
        return coordinates.pack(cubes - twice + 2 * triple)

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric tensor of sums of probabilities, shape (k, k, k)."""
        return self.clip * coordinates.unpack(release, self.order, 3)
