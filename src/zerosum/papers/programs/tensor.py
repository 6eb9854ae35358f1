"""capeAGN: mixtures of Gaussians and the single topic model by orthogonal tensor decomposition (Imtiaz and Sarwate
2018, Algorithm 3 and appendices B and C).

Model. Both models have K components a_k (D,) with weights w_k, and moments

    M2 = sum_k w_k a_k a_k'  (D, D),        M3 = sum_k w_k a_k (x) a_k (x) a_k  (D, D, D).

- Mixture of Gaussians: a row t (D,) of norm at most c = `clip` is a_k plus noise of a known variance v in each
  direction. M2 = E[t t'] - v I and M3 = E[t (x) t (x) t - v c(t)], c(t)_ijk = t_i d_jk + t_j d_ik + t_k d_ij.
- Single topic model: all words of a document are drawn from one topic a_k. M2 and M3 are the probabilities of pairs and
  triples of different words of a document.

Two releases: the distinct entries of M2 (`DistinctSecondMoment`, `DistinctPairMoment`) and those of M3
(`DistinctThirdMoment`, `DistinctTripleMoment`), each with equal noise on all of them. The rest is free. W = U D^(-1/2)
of the K largest singular values of M2 whitens M3. The tensor power method finds the orthogonal parts l_k, v_k of M3(W,
W, W), and a_k = l_k U D^(1/2) v_k, w_k = 1/l_k^2 (`zerosum.papers.methods.tensor`).

The scheme decides which published method this is: `cape-helper` is capeAGN and `cape-published` the same without a
helper, `local` is the papers' conv, `pooled` is AGN of one holder of all data, `non-private` the reference. AVN, whose
noise is not normal, is no scheme: `zerosum.papers.methods.tensor.avn`.

Choices where the paper is incomplete:

- It divides all rows by their largest norm, which discloses it. Here `clip`, or public ranges, are declared.
- It takes the first two and the first three words of each document. Counts of words have no order: the moments are the
  means over all ordered pairs and triples of a document's words.
- Its sites send M3(W, W, W) of their noisy tensor, to send less. Here they send the whole noisy tensor, which gives the
  same result, and the cancelling noise is symmetric, as the own noise is.
- It divides epsilon and delta equally between the moments. Half of the budget is the default of `moment_share`.

The costs of both releases are added up, as in the paper. That is exact for topics. For mixtures the pairs of rows that
attain the two sensitivities differ (two axes; t and -t), so that the cost is an upper bound.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import Algorithm, Program, RangedAlgorithm
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods.tensor import decomposed, valid
from zerosum.statistics.published import (
    DistinctPairMoment,
    DistinctSecondMoment,
    DistinctThirdMoment,
    DistinctTripleMoment,
)

# Most words of a tensor of all triples: the limit of `zerosum.statistics.topics.TripleMoment` without a basis.
_MOST_WORDS = 60
# Clip of the probabilities of a document. Their norm is at most 1, which the statistics overestimate by 1e-9: with a
# slightly larger clip no document is clipped.
_PROBABILITIES = 1 + 2.0**-26


class _TensorAlgorithm(Algorithm):
    """Fields that both models have."""

    n_components: int = Field(gt=0)
    """K, the number of components."""
    moment_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the budget for second moments; third moments get the rest. The paper divides equally."""
    seed: int = Field(default=0, ge=0)
    """Seed of the starts of the tensor power method only."""

    @model_validator(mode="after")
    def _components_fit(self) -> Self:
        if self.n_components > len(self.columns):
            raise ValueError(f"n_components must be at most {len(self.columns)}, the columns, got {self.n_components}")
        return self

    def _noise(self, second: float, third: float) -> Quantity:
        """The standard deviation of the noise of an entry of each mean moment."""
        return Quantity(np.array([second, third]), "diagnostic", (Axis("moment", ("second", "third")),))


class CapeAGNMixtureProgram(_TensorAlgorithm, RangedAlgorithm):
    """A mixture of spherical Gaussians as published. `zerosum.GaussianMixture` is the better method on the same budget.

    Results: `means` (K, D) in the units of the data, `weights` (K,), and `noise_std`, the standard deviation of the
    noise of the entries of the second and of the third moment.
    """

    name: ClassVar[str] = "cape-agn-mixture"
    variance: float = Field(ge=0, allow_inf_nan=False)
    """v, the known variance of a component in each direction; in half ranges where ranges are declared."""

    @model_validator(mode="after")
    def _moments_fit(self) -> Self:
        # The statistic names what does not fit: too many columns for a tensor, or a variance above the squared clip.
        try:
            self._third()
        except BadParameter as error:
            raise ValueError(str(error)) from None
        return self

    def _second(self) -> DistinctSecondMoment:
        return DistinctSecondMoment(**self.bounds)

    def _third(self) -> DistinctThirdMoment:
        return DistinctThirdMoment(**self.bounds, variance=self.variance)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        if adjacency is Adjacency.ADD_REMOVE:
            raise BadParameter("cape-agn-mixture divides by the number of units, which must be public: use replace-one")
        return PrivateSum(self._second(), self.moment_share), PrivateSum(self._third(), 1 - self.moment_share)

    def program(self, adjacency: Adjacency) -> Program:
        D = len(self.columns)
        second, third = self._second(), self._third()
        release = yield PrivateSum(second, self.moment_share)
        units = release.units or 1.0
        # The mean of v I is public and is subtracted here.
        moment = second.matrix(release.value) / units - self.variance * np.eye(D)
        noise = release.noise_std / units
        release = yield PrivateSum(third, 1 - self.moment_share)
        # The division by the units must be the same in both moments: l_k grows with M3 and falls with M2^(3/2).
        means, weights = decomposed(moment, third.tensor(release.value) / units, self.n_components, self.seed)
        axis = Axis.numbered("component", self.n_components)
        return {
            "means": Quantity(self.middle + self.half * means, "mean", (axis, self.column_axis)),
            "weights": Quantity(weights, "share", (axis,)),
            "noise_std": self._noise(noise, third.clip**3 * release.noise_std / units),
        }


class CapeAGNTopicsProgram(_TensorAlgorithm):
    """The single topic model as published. `zerosum.TopicModel` is the better method on the same budget.

    A row holds the counts of the words (columns) in one document, dense or sparse. Results: `topics` (K, D),
    probabilities of the words, `weights` (K,), and `noise_std`, the standard deviation of the noise of the
    probabilities of pairs and of triples. As published, negative entries become 0 and a topic is divided by its sum.
    """

    name: ClassVar[str] = "cape-agn-topics"

    @model_validator(mode="after")
    def _words_fit(self) -> Self:
        if len(self.columns) > _MOST_WORDS:
            raise ValueError(
                f"columns must be at most {_MOST_WORDS} words, whose triples are released, got {len(self.columns)}"
            )
        return self

    def _second(self) -> DistinctPairMoment:
        return DistinctPairMoment(columns=len(self.columns), clip=_PROBABILITIES)

    def _third(self) -> DistinctTripleMoment:
        return DistinctTripleMoment(columns=len(self.columns), clip=_PROBABILITIES)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return PrivateSum(self._second(), self.moment_share), PrivateSum(self._third(), 1 - self.moment_share)

    def program(self, adjacency: Adjacency) -> Program:
        second, third = self._second(), self._third()
        release = yield PrivateSum(second, self.moment_share)
        # Without a public number of units the sums are decomposed: a common divisor changes the size of all topics
        # alike, and they are divided by their sums.
        units = release.units or 1.0
        moment, noise = second.split(release.value) / units, release.noise_std / units
        release = yield PrivateSum(third, 1 - self.moment_share)
        components, weights = decomposed(moment, third.split(release.value) / units, self.n_components, self.seed)
        axis = Axis.numbered("topic", self.n_components)
        return {
            "topics": Quantity(valid(components), "share", (axis, self.column_axis)),
            "weights": Quantity(weights, "share", (axis,)),
            "noise_std": self._noise(noise, release.noise_std / units),
        }
