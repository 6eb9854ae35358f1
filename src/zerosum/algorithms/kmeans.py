"""k-means: the start of a mixture, then rounds of Lloyd's algorithm on residuals.

Model
-----
Rows x (D columns, in half ranges where there are public ranges) belong to the nearest of K centers m_k. Lloyd's
algorithm moves each center to the mean of its rows, and repeats.

What is released
----------------
1. The frame and the start of a mixture of K spherical components (`mixture.program`, releases 1 to 4): a coarse mean, a
   histogram of norms, second moments, and the third moment in white coordinates or sums over public cells.
2. `MixtureProgram` rounds in the span of the centers, which is at most K - 1 of the D columns wide.
3. Rounds of Lloyd's algorithm in all columns. A round releases for each center the count, the sum of the residuals
   x - m_k of the rows nearest to it, clipped to a radius of its cluster, and their spread (`MixtureSums` with variances
   so small that a row belongs to its nearest center; sensitivity 2 if a unit is replaced).

A sum of residuals needs noise in proportion to the radius of a cluster. A sum of rows, which Lloyd's algorithm and
earlier private versions take, needs it in proportion to the radius of the whole domain. All else is free
post-processing.

References: S. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28 (1982); and those of
`mixture.program`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from zerosum.algorithms.mixture.components import Components, em_step, shrink_moves
from zerosum.algorithms.mixture.program import MixtureProgram, early_share
from zerosum.algorithms.mixture.tuning import TUNING as MIXTURE
from zerosum.algorithms.program import Program, PublicFacts, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.mixture import MixtureSums


@dataclass(frozen=True)
class Tuning:
    """Tuned constants of k-means, each with its unit and its source."""

    hardness: float = 1e-4
    """Variance of a component over the squared distance of the nearest two centers: so small that a row belongs to its
    nearest center. Chosen by hand; no effect while it is far below 1."""
    last_share: float = 0.5
    """Share of the last of several rounds of Lloyd's algorithm, of the budget of all of them: its noise stays in the
    result. Chosen by hand; no benchmark recorded."""


TUNING = Tuning()


class KMeansProgram(RangedAlgorithm):
    """k-means: the start of a mixture, then rounds of Lloyd's algorithm on residuals.

    Results: `centers` in the units of the data, `counts` of the last round, and `count_noise_std`.

    Parameters
    ----------
    n_clusters : int
        K.
    rounds : int
        Rounds of Lloyd's algorithm in all columns.
    start : int
        Public seed of cells and starts.
    columns, lower, upper, clip, missing
        As for `RangedAlgorithm`.
    """

    name: ClassVar[str] = "k-means"
    n_clusters: int = Field(gt=0, le=500)
    rounds: int = Field(default=3, gt=0)
    start: int = 0  # seed of public cells and starts, nothing else
    early_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget before the rounds in all columns; the planner's choice if not given."""

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the share of the releases before Lloyd's rounds, as for a mixture."""
        begun = self.early_share or early_share(facts, self.n_clusters, len(self.columns))
        return self.model_copy(update={"early_share": begun})

    @property
    def _mixture(self) -> MixtureProgram:
        """The mixture whose releases before the last one are the start."""
        begun = MIXTURE.early_share if self.early_share is None else self.early_share
        moment, start, refine = (part * begun for part in MIXTURE.early_parts)
        return MixtureProgram(
            columns=self.columns,
            lower=self.lower,
            upper=self.upper,
            clip=self.clip,
            missing=self.missing,
            n_components=self.n_clusters,
            scaling="none" if self.lower is None else "ranges",
            moment_share=moment,
            start_share=start,
            refine_share=refine,
            seed=self.start,
        )

    def _shares(self, left: float) -> list[float]:
        """The shares of Lloyd's rounds, which add up to `left`."""
        if self.rounds == 1:
            return [left]
        last = TUNING.last_share
        return [*[left * (1 - last) / (self.rounds - 1)] * (self.rounds - 1), left * last]

    @property
    def describe(self) -> str:
        """The start and the rounds, for the plan."""
        return f"{self._mixture.begun}, {self.rounds} rounds of Lloyd's algorithm in all columns"

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        """The releases of the mixture but the last, and Lloyd's rounds, whose statistic is that of the last."""
        *begun, last = self._mixture.requests(adjacency)
        return (*begun, *[PrivateSum(last.statistic, share) for share in self._shares(last.share)])

    def program(self, adjacency: Adjacency) -> Program:
        """The start of the mixture, then Lloyd's rounds."""
        mixture = self._mixture
        frame, at = yield from mixture.begin(adjacency)
        for share in self._shares(mixture.requests(adjacency)[-1].share):
            statistic = self._nearest(mixture, frame.center, at)
            release = yield PrivateSum(statistic, share)
            step = em_step(statistic, release.value, release.noise_std, at, update_variances=True)
            # A move that noise explains is shrunk, and so every round but the last needs little budget.
            at = Components(at.means + shrink_moves(step, frame.basis), step.variances, step.weights)
        axis = Axis.numbered("cluster", self.n_clusters)
        noise = step.noise[:, None] * mixture.scale[None, :]
        centers = self._inside(frame.center + mixture.scale * at.means)
        return {
            "centers": Quantity(centers, "center", (axis, self.column_axis), noise),
            "counts": Quantity(step.counts, "count", (axis,), step.count_noise),
            "count_noise_std": Quantity(np.array([step.count_noise]), "diagnostic"),
        }

    def _nearest(self, mixture: MixtureProgram, center: Floats, at: Components) -> MixtureSums:
        """The statistic of one of Lloyd's rounds: a row belongs to its nearest center.

        Parameters
        ----------
        mixture : MixtureProgram
            Gives the coordinates of the rows.
        center : array of shape (D,)
            The released center of the rows, in the units of the data.
        at : Components
            The centers, and the variances from which the radii of the clusters follow.
        """
        K = self.n_clusters
        squares = np.sum((at.means[:, None] - at.means[None]) ** 2, axis=2)
        np.fill_diagonal(squares, np.inf)
        # With equal weights and variances the largest responsibility is that of the nearest center; equal centers share
        # their rows. One cluster has all rows whatever the variance.
        least = float(np.min(squares)) if K > 1 else 1.0
        nearest = Components(at.means, np.full(K, TUNING.hardness * least), np.full(K, 1 / K))
        clips = MIXTURE.residual_clip * np.sqrt(at.variances * len(self.columns))
        return mixture.sums(center, None, nearest, clips, projected=False)

    def _inside(self, centers: Floats) -> Floats:
        """Centers (K, D) in the units of the data, projected into the public domain: noise can move them outside."""
        if self.lower is not None and self.upper is not None:
            return np.clip(centers, self.lower, self.upper)
        norms = np.linalg.norm(centers, axis=1, keepdims=True)
        return np.asarray(centers * np.minimum(1, self.radius / np.maximum(norms, 1e-300)))
