"""The model of synthetic data: a mixture of products of distributions, fitted to all released tables at once.

Model
-----
Column j has A_j working bins. With M components of equal weight, p_kj (A_j numbers) is the distribution of column j in
component k, and the columns are independent within a component:

    P(x) = 1/M sum_k prod_j p_kj(x_j).

So every table follows by products and one sum: for a pair P_ij = 1/M sum_k p_ki p_kj'. The parameters are logits t_kj.

Fit. For each released table y with noise of standard deviation s per cell, the loss is |P - y|^2/(2 s^2), summed over
tables. Noise of many cells would be fitted as well, so a penalty is added: lambda times the mean over components of
KL(prod_j p_kj || prod_j h_j), h_j the released histograms. It draws every component to independent columns. lambda
starts large and is changed until the squared misfit is 0.9 of the noise variance (discrepancy principle), so that no
constant depends on epsilon, the number of units or the data.

The gradient is exact, in single precision: the noise of a cell is far above 1e-7. Adam (Kingma and Ba 2015) takes the
steps. Everything here is free post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.synthetic.tuning import TUNING
from zerosum.arrays import Floats

Singles = NDArray[np.float32]
_LEAST = np.float32(1e-12)  # added to probabilities in logarithms
_STEEPEST = np.float32(1e18)  # largest gradient: its square is below the largest single-precision number, 3e38
_FARTHEST = 10.0  # standard deviations of noise by which a released share may lie outside -1 to 1; chosen by hand
_HISTOGRAM_LEAST = 1e-7  # least probability of a working bin in logits: exp(-16), far below any released share


@dataclass(frozen=True)
class PairsTerm:
    """Centred pairs of all columns in one matrix, of B bins together.

    Attributes
    ----------
    merge : array of shape (A, B)
        Working bins to bins of the pairs.
    center : array of shape (B,)
        1/b_i for each bin of column i.
    mask : array of shape (B, B)
        1 where two bins belong to different columns.
    value : array of shape (B, B)
        Released shares, symmetric.
    std : float
        Noise of a cell.
    """

    merge: Singles
    center: Singles
    mask: Singles
    value: Singles
    std: float


@dataclass(frozen=True)
class TableTerm:
    """A released table of two or three columns.

    Attributes
    ----------
    columns : tuple of int
        Its columns.
    merges : tuple of arrays
        For each column, working bins to bins of the table, (A_j, b).
    value : array
        Released shares; for three columns the first two axes are one.
    std : float
        Noise of a cell.
    """

    columns: tuple[int, ...]
    merges: tuple[Singles, ...]
    value: Singles
    std: float


class Mixture:
    """The mixture with its parameters and measurements.

    Parameters
    ----------
    histograms : sequence of arrays
        h_j, the share of each working bin of each column.
    histogram_values, histogram_std : arrays of shape (A,)
        The same as released, with noise, and its standard deviation; A working bins in all.
    rng : Generator
        For the start only; the result is a function of the releases and its seed.
    components : int
        M.
    """

    def __init__(
        self,
        histograms: Sequence[Floats],
        histogram_values: Floats,
        histogram_std: Floats,
        rng: np.random.Generator,
        components: int = TUNING.components,
    ) -> None:
        self.offsets = np.concatenate([[0], np.cumsum([len(each) for each in histograms])])
        self.components = components
        self.base: Singles = np.log(np.maximum(np.concatenate(histograms), _HISTOGRAM_LEAST)).astype(np.float32)
        self.value = histogram_values.astype(np.float32)
        self.weight: Singles = (1 / histogram_std**2).astype(np.float32)
        spread = TUNING.start_spread * rng.standard_normal((components, len(self.base)))
        self.logits: Singles = (self.base + spread).astype(np.float32)
        self.penalty = TUNING.penalty_start
        self.pairs: PairsTerm | None = None
        self.tables: list[TableTerm] = []
        self.misfit = math.nan

    def at(self, column: int) -> slice:
        """The working bins of a column among all."""
        return slice(int(self.offsets[column]), int(self.offsets[column + 1]))

    @property
    def probabilities(self) -> Singles:
        """p, shape (M, A)."""
        p = self.logits.copy()
        for column in range(len(self.offsets) - 1):
            own = p[:, self.at(column)]
            own -= own.max(axis=1, keepdims=True)
            np.exp(own, out=own)
            own /= own.sum(axis=1, keepdims=True)
        return p

    def gradient(self, p: Singles) -> tuple[Singles, float]:
        """The gradient of the loss in the logits times M, and the squared misfit of pairs and tables over their noise.

        Parameters
        ----------
        p : array of shape (M, A)
            Probabilities.
        """
        count = np.float32(self.components)
        # d loss / d p of the histograms: the same for all components.
        g = np.tile((p.mean(axis=0) - self.value) * self.weight / count, (self.components, 1))
        squares, cells = 0.0, 0.0
        if self.pairs is not None:
            term = self.pairs
            q = p @ term.merge - term.center
            residual = (q.T @ q / count - term.value) * term.mask
            # The matrix has every pair twice: half of it counts.
            squares += float(np.sum((residual / np.float32(term.std)) ** 2)) / 2
            cells += float(np.sum(term.mask)) / 2
            g += (q @ (residual / np.float32(term.std**2)) / count) @ term.merge.T
        for table in self.tables:
            q3 = [p[:, self.at(column)] @ merge for column, merge in zip(table.columns, table.merges, strict=True)]
            # The first two columns of three as one, (M, b1 b2): the residual is then a matrix in both cases.
            left = q3[0] if len(q3) == 2 else (q3[0][:, :, None] * q3[1][:, None, :]).reshape(self.components, -1)
            residual = left.T @ q3[-1] / count - table.value
            squares += float(np.sum((residual / np.float32(table.std)) ** 2))
            cells += residual.size
            scaled = residual / np.float32(table.std**2) / count
            by_left, by_last = q3[-1] @ scaled.T, left @ scaled
            if len(q3) == 2:
                parts = [by_left, by_last]
            else:
                both = by_left.reshape(self.components, q3[0].shape[1], -1)
                parts = [
                    np.einsum("kab,kb->ka", both, q3[1]),
                    np.einsum("kab,ka->kb", both, q3[0]),
                    by_last,
                ]
            for column, merge, part in zip(table.columns, table.merges, parts, strict=True):
                g[:, self.at(column)] += part @ merge.T
        # d KL(p || h)/d p = log(p/h) + 1; the constant drops out below.
        g += np.float32(self.penalty) / count * (np.log(p + _LEAST) - self.base)
        for column in range(len(self.offsets) - 1):
            # Softmax: d p_a/d t_b = p_a (1{a = b} - p_b).
            own, p_own = g[:, self.at(column)], p[:, self.at(column)]
            own -= np.sum(p_own * own, axis=1, keepdims=True)
            own *= p_own
        return g * count, squares / max(cells, 1.0)

    def pair_misfit(self) -> Floats:
        """The sum of squared differences between the model's table of each pair and the released one, (d, d)."""
        columns = len(self.offsets) - 1
        if self.pairs is None:
            return np.zeros((columns, columns))
        term = self.pairs
        q = self.probabilities @ term.merge - term.center
        square = ((q.T @ q / np.float32(self.components) - term.value) * term.mask) ** 2
        # Which column a bin of the pairs belongs to, shape (columns, B).
        owner = np.array([np.any(term.merge[self.at(column)] > 0, axis=0) for column in range(columns)], dtype=float)
        return np.asarray(owner @ square.astype(np.float64) @ owner.T)

    def fit(self, iterations: int = TUNING.iterations) -> None:
        """Take the steps of Adam, and change the penalty until the misfit is that of the noise.

        Parameters
        ----------
        iterations : int
            Number of steps.
        """
        first, second = TUNING.moment_decay
        mean, square = np.zeros_like(self.logits), np.zeros_like(self.logits)
        for step in range(iterations):
            g, self.misfit = self.gradient(self.probabilities)
            g = np.clip(g, -_STEEPEST, _STEEPEST)
            mean += np.float32(1 - first) * (g - mean)
            square += np.float32(1 - second) * (g * g - square)
            # Cosine from the largest step to a small one (Loshchilov and Hutter 2017).
            fall = 0.5 * (1 + math.cos(math.pi * step / iterations)) + TUNING.final_rate
            rate = np.float32(TUNING.learning_rate * fall / (1 - first ** (step + 1)))
            unbiased = np.sqrt(square / np.float32(1 - second ** (step + 1)))
            self.logits -= rate * mean / (unbiased + np.float32(1e-8))  # 1e-8 as in Adam
            if step % TUNING.penalty_every == TUNING.penalty_every - 1:
                # Too small a misfit means that noise is fitted: a larger penalty.
                factor = math.sqrt(TUNING.misfit / max(self.misfit, 1e-12))
                self.penalty *= min(max(factor, TUNING.penalty_change[0]), TUNING.penalty_change[1])


def plausible(shares: Floats, std: Floats | float) -> Floats:
    """Released shares, or centred ones, limited to what noise can make of numbers from -1 to 1.

    A faulty site may add anything to a sum. The fit must still end with a result, as the release is paid for.

    Parameters
    ----------
    shares : array
        Released shares.
    std : array or float
        Standard deviation of their noise.

    >>> plausible(np.array([0.3, 1e15]), 0.1).tolist()
    [0.3, 2.0]
    """
    reach = 1 + _FARTHEST * np.asarray(std)
    return np.asarray(np.clip(shares, -reach, reach))


def raked(p: Floats, shares: Floats) -> Floats:
    """Distributions of a column in all components, scaled alike until their mean is a public histogram.

    Parameters
    ----------
    p : array of shape (M, A)
        The distributions.
    shares : array of shape (A,)
        The public histogram.

    >>> p = raked(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0.4, 0.6]))
    >>> p.mean(axis=0).round(6).tolist()
    [0.4, 0.6]
    """
    # Iterative proportional fitting (Deming and Stephan 1940) of columns and rows; 200 rounds agree to 1e-9 unless a
    # category is almost empty. The least value keeps categories without any mass from staying there.
    p = np.maximum(p, _HISTOGRAM_LEAST)
    for _ in range(200):
        mean = np.mean(p, axis=0)
        # A category with the public total 0 is 0 from the first round on.
        p = p * np.divide(shares, mean, out=np.zeros_like(mean), where=mean > 0)
        p = p / np.sum(p, axis=1, keepdims=True)
    return np.asarray(p)
