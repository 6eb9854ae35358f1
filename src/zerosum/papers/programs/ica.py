"""capeDJICA: decentralised joint ICA by noisy infomax gradients (Imtiaz et al. 2019, appendix K, Algorithm 4).

Model. A time point x (d,) of a person is mixed from R sources: x = A s. First capePCA gives V (d, R), the leading
eigenvectors of the second moment of rows clipped to `row_clip` (no whitening, as published). Then, from W = I, b = 0,
every round releases the mean over people of the clipped gradients (`InfomaxGradient`) and steps along it:

    z = W V'x + b,  y = 1 - 2 g(z),    W <- W + rho mean (I + y z') W,    b <- b + rho mean y,    rho = 0.015/log R.

The iteration ends when norm(change of W)^2 falls below `tolerance`, or after `rounds`. If an entry of W exceeds
`upper_bound` it starts again at W = I with half the step. The papers ask for an "adjustment of the learning rate"
without a rule; this is ours (`zerosum.papers.methods.ica`, which also lists what else is incomplete there).

The scheme decides which published method this is: `cape-published` is capeDJICA, `non-private` djICA, `local` conv,
`pooled` the pooled DP-ICA. The figures rehearse this program (`zerosum.papers.rehearsal`). All time points of a person
are protected together. DP-djICA has Laplace noise on each time point and no guarantee as a whole; it stays a function
in `zerosum.papers.methods.ica`.

The papers' settings cannot reach their figures: docs/papers.md. Each round costs a share of the budget, so 1000 rounds
leave little to each; `step` and `rounds` can be set.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.pca.spectrum import signs
from zerosum.algorithms.program import Algorithm, Program
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods.ica import CLIP, PAPERS, Ascent, Settings
from zerosum.papers.methods.pca import leading
from zerosum.statistics.published import LARGEST_ENTRY, DistinctSecondMoment, InfomaxGradient


class CapeDJICAProgram(Algorithm):
    """Temporal ICA as published. `zerosum.ICA` is the better method on the same budget.

    Results: `unmixing` (R, d), the rows that give the sources, `mixing` (R, d), its pseudo-inverse transposed (maps
    where columns are positions), `bias`, `rounds` that were made, and `noise_std`, the noise of an entry of the mean
    gradient over its clip.
    """

    name: ClassVar[str] = "cape-djica"
    rows_of_a_unit: ClassVar[int] = 2

    n_components: int = Field(gt=1)
    """R, the number of sources."""
    rounds: int = Field(default=PAPERS.rounds, gt=0)
    """The largest number of gradient steps; each has an equal share of the budget."""
    step: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """rho; by default the papers' 0.015/log R."""
    clip: float = Field(default=CLIP, gt=0, le=1e6)
    """B_G, the largest Frobenius norm of a time point's gradient; that of the bias has the root of it."""
    tolerance: float = Field(default=PAPERS.tolerance, ge=0)
    """The squared spectral norm of a change of W at which the iteration stops."""
    upper_bound: float = Field(default=PAPERS.upper_bound, gt=1, le=LARGEST_ENTRY)
    """The size of an entry of W at which the iteration starts again with half the step."""
    row_clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The largest norm of a row in the second moment for the reduction; required with more columns than sources."""
    reduction_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of the budget for the second moment; not used where there are as many columns as sources."""

    @model_validator(mode="after")
    def _components_fit(self) -> Self:
        if self.n_components > len(self.columns):
            raise ValueError(f"n_components must be at most {len(self.columns)}, the columns, got {self.n_components}")
        if self._reduces and self.row_clip is None:
            raise ValueError("row_clip is required to reduce the columns: a public bound on the norm of a row")
        return self

    @property
    def _reduces(self) -> bool:
        return self.n_components < len(self.columns)

    @property
    def _share(self) -> float:
        """Share of one gradient step."""
        return (1 - (self.reduction_share if self._reduces else 0.0)) / self.rounds

    def _moment(self) -> DistinctSecondMoment:
        """The statistic of the reduction."""
        return DistinctSecondMoment(columns=len(self.columns), clip=self.row_clip)

    def _gradient(self, V: Floats | None, W: Floats, b: Floats) -> InfomaxGradient:
        """The statistic of one step at W (R, R) and b (R,) after the projection V (d, R)."""
        return InfomaxGradient(columns=len(self.columns), unmixing=W, bias=b, projection=V, clip=self.clip)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        if adjacency is Adjacency.ADD_REMOVE:
            raise BadParameter("cape-djica divides by the number of units, which must be public: use replace-one")
        R, D = self.n_components, len(self.columns)
        # Planned at the starting point: the clips, and with them the sensitivity, are the same at every W.
        step = PrivateSum(self._gradient(np.eye(D, R) if self._reduces else None, np.eye(R), np.zeros(R)), self._share)
        first = [PrivateSum(self._moment(), self.reduction_share)] if self._reduces else []
        return (*first, *[step] * self.rounds)

    def program(self, adjacency: Adjacency) -> Program:
        R = self.n_components
        V: Floats | None = None
        if self._reduces:
            moment = self._moment()
            release = yield PrivateSum(moment, self.reduction_share)
            # Not divided by the number of people: eigenvectors do not depend on the divisor.
            V = leading(moment.matrix(release.value), R)[1]
        ascent = Ascent(R, Settings(self.rounds, self.step, self.tolerance, self.upper_bound))
        noise = math.nan
        while not ascent.finished:
            statistic = self._gradient(V, ascent.W, ascent.b)
            release = yield PrivateSum(statistic, self._share)
            people = release.units or 1.0
            noise = release.noise_std / people
            # A step that restarts the ascent is counted and charged as any other: the data were used for it.
            ascent.move(*statistic.split(release.value / people))
        W, b = ascent.W, ascent.b
        # Sources are W V'x; the mixing of columns is the pseudo-inverse, as in DP-djICA, A = (W U')^+.
        unmixing = W if V is None else W @ V.T
        mixing = np.asarray(np.linalg.pinv(unmixing).T, dtype=np.float64)
        # ICA leaves the sign of a source open. A fixed convention makes runs comparable; the bias turns with its
        # source.
        turned = signs(mixing.T)
        axis = Axis.numbered("component", R)
        return {
            "unmixing": Quantity(unmixing * turned[:, None], "filter", (axis, self.column_axis)),
            "mixing": Quantity(mixing * turned[:, None], "map", (axis, self.column_axis)),
            "bias": Quantity(b * turned, "number", (axis,)),
            "rounds": Quantity(np.array([float(ascent.rounds)]), "diagnostic"),
            "noise_std": Quantity(np.array([noise]), "diagnostic"),
        }
