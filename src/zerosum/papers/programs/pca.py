"""capePCA: the leading eigenvectors of one noisy second moment (Imtiaz and Sarwate 2018, Algorithm 2; Imtiaz et al.
2019, appendix J, Algorithm 3).

Model. Rows x (d,) of norm at most c = `clip`; A = mean over units of x x'. One release holds the distinct entries of
the sum (`DistinctSecondMoment`), with equal noise on and above the diagonal. The components are the eigenvectors of the
K largest eigenvalues of the noisy A.

The scheme decides which published method this is: `cape-helper` and `cape-published` are capePCA with and without a
helper, `local` is the papers' conv, `pooled` the centralised Analyze Gauss, `non-private` the reference. The figures
rehearse this program (`zerosum.papers.rehearsal`). DPdisPCA, in which each site sends the root of its own noisy matrix,
is not a sum over sites: `zerosum.papers.methods.pca`.

Choices where the papers are incomplete: they divide all rows by their largest norm and subtract the mean of all rows,
which discloses both. Here `clip`, or public ranges, are declared, and nothing is subtracted beyond the middle of the
ranges.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.pca.spectrum import signs
from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods.pca import leading
from zerosum.statistics.published import DistinctSecondMoment


class CapePCAProgram(RangedAlgorithm):
    """Principal components as published. `zerosum.PCA` is the better method on the same budget.

    Results: `components` (K, d), in half ranges where ranges are declared, `eigenvalues` of the noisy matrix, and
    `noise_std`, the standard deviation of the noise of its entries.
    """

    name: ClassVar[str] = "cape-pca"
    n_components: int = Field(gt=0)
    """K, the number of components."""

    @model_validator(mode="after")
    def _components_fit(self) -> Self:
        if self.n_components > len(self.columns):
            raise ValueError(f"n_components must be at most {len(self.columns)}, the columns, got {self.n_components}")
        return self

    def _statistic(self) -> DistinctSecondMoment:
        return DistinctSecondMoment(**self.bounds)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(self._statistic()),)

    def program(self, adjacency: Adjacency) -> Program:
        statistic = self._statistic()
        release = yield PrivateSum(statistic)
        # Without a public number of units the sum is decomposed: eigenvectors do not depend on the divisor.
        units = release.units or 1.0
        # The noisy matrix as it is: its noise has mean zero, so that eigenvalues are not corrected (Algorithm 2, line
        # 9).
        matrix = statistic.matrix(release.value) / units
        values, vectors = leading(matrix, self.n_components)
        axis = Axis.numbered("component", self.n_components)
        return {
            "components": Quantity((vectors * signs(vectors)).T, "component", (axis, self.column_axis)),
            "eigenvalues": Quantity(values, "eigenvalue", (axis,)),
            "noise_std": Quantity(np.array([release.noise_std / units]), "diagnostic"),
        }
