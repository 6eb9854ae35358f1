"""Mixtures of spherical Gaussians over sites: moments for a start, then a few rounds of EM.

Model
-----
A row x (D columns, centred and scaled) has component k = 1..K with probability w_k and is N(a_k, v_k I). Wanted are the
means a (K, D), the weights w (K) and the variances v (K). With a centred mixture and one variance v, the second moment
is sum_k w_k a_k a_k' + v I: its K - 1 leading eigenvectors span the means, and the other eigenvalues are v.

Releases, with their sensitivity under replace-one:

1. a coarse mean (`VectorSum`);
2. a histogram of squared norms about it (`ScatterNorms`, sqrt(2)), whose quantile is the clip of release 3;
3. second and first moments (`AugmentedScatter`, sqrt(2)(1 + a^2)): center, subspace and v;
4. the start: the third moment in white coordinates (`ThirdMoment`, 2), or sums over public cells (`MixtureSums`, 2);
5. `rounds` rounds of EM in the subspace of the means, and one in all columns (`MixtureSums`, 2).

White coordinates: K - 1 leading directions, each divided by the root of its eigenvalue less v, and a constant 1. There
the vectors sqrt(w_k) (a_k, 1) are orthonormal, and the third moment, less the part 3 v x of spherical noise, is the sum
of w_k^(-1/2) times their third powers. `tensor.simultaneous` finds them; the last coordinate gives w_k.

All else is free post-processing. Tuned constants are in `tuning`.

References: D. Hsu and S. Kakade, Learning mixtures of spherical Gaussians, ITCS 2013; A. Anandkumar et al., Tensor
decompositions for learning latent variable models, JMLR 15, 2014; H. Imtiaz and A. D. Sarwate, 2018 (capeAGN, with
which docs/mixtures.md compares); W. James and C. Stein, Estimation with quadratic loss, 1961 (the shrinkage of the last
round).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.cells import farthest_points, weighted_kmeans
from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.mixture.components import (
    Components,
    Step,
    em_step,
    quantile,
    separations,
    shares_above_noise,
    shrink_moves,
)
from zerosum.algorithms.mixture.tuning import TUNING
from zerosum.algorithms.pca.spectrum import debiased, noise_edge
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.tensor import simultaneous
from zerosum.arrays import Floats
from zerosum.compute.statistic import BoundedStatistic
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.mixture import AugmentedScatter, MixtureSums, ThirdMoment
from zerosum.statistics.scatter import ScatterNorms
from zerosum.statistics.vectors import VectorSum


@dataclass(frozen=True, eq=False)
class Frame:
    """Center, subspace and variance from releases 1 to 3; rows enter as (x - center)/scale."""

    center: Floats  # (D,), in the units of the data
    units: float  # number of units, public or released
    variance: float  # v of a component, before EM
    spread: Floats  # (D, D), a square root of the second moment
    basis: Floats | None  # (D, K - 1), orthonormal basis of the subspace of the means; None: all columns
    strengths: Floats  # (K - 1,), variance of the means along the basis

    def in_columns(self, moves: Floats) -> Floats:
        """Vectors (K, K - 1) in the basis as vectors (K, D) in all columns."""
        return moves if self.basis is None else np.asarray(moves @ self.basis.T)


class MixtureProgram(RangedAlgorithm):
    """A mixture of spherical normal components.

    Releases and their shares of the budget:

    - a coarse mean (`mean_share`);
    - a histogram of norms about it, which gives the clip of the second moments (`clip_share`);
    - second moments and the mean again (`moment_share`). Their leading directions span the means. The other directions
      give the variance, unless it is public (`variance`, in the scale of the rows);
    - the start (`start_share`);
    - `rounds` rounds of EM in the span of the means (`refine_share` together);
    - one round of EM in all columns, with the rest.

    The planner sets shares that are not given, from the number of units, columns and components and from the budget.

    The start "tensor" is a third moment in white coordinates (K - 1 centred ones and a constant), decomposed into
    orthogonal parts. The start "cells", for more components than columns, is a round over public cells whose means are
    clustered. The moves of the last round are shrunk by the share that noise explains.

    Results:

    - `means`, `weights`, `variances` of the components and their weighted mean `variance`, in the scale of the rows;
    - `separations`: distance of each mean from the nearest other one, in standard deviations of the data;
    - `separation_noise`: distance by which noise moves the mean, in the same unit;
    - `carried`: 1 for a component that the budget supports. Its count is at least three standard deviations of noise,
      and its nearest neighbour is at least three times `separation_noise` and two standard deviations of the data away
      (nearer components have one peak);
    - `center` and `scale`: rows enter as (x - center)/scale.

    Parameters
    ----------
    n_components : int
        K.
    variance : float, optional
        v of all components, if it is public knowledge; then rounds do not estimate it.
    scaling : {"none", "ranges"}
        With "ranges" each column is divided by half its public range.
    start : {"auto", "tensor", "cells"}
        The start; "auto" takes "tensor" for at most D components.
    rounds : int
        Rounds of EM in the subspace of the means.
    mean_share, clip_share, moment_share, start_share, refine_share : float
        Shares of the budget; the last round has the rest.
    seed : int
        Public seed.
    columns, lower, upper, clip, missing
        As for `RangedAlgorithm`.
    """

    name: ClassVar[str] = "mixture"
    n_components: int = Field(gt=0, le=500)
    variance: float | None = Field(default=None, ge=1e-12, le=1e12)
    scaling: Literal["none", "ranges"] = "none"
    start: Literal["auto", "tensor", "cells"] = "auto"
    rounds: int = Field(default=3, ge=0, le=50)
    mean_share: float = Field(default=0.02, gt=0, lt=1)
    """Share of the budget for the coarse mean."""
    clip_share: float = Field(default=0.02, gt=0, lt=1)
    """Share of the budget for the histogram of norms."""
    moment_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget for second moments; the planner's choice if not given."""
    start_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget for the start; the planner's choice if not given."""
    refine_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget for the rounds before the last; the planner's choice if not given."""
    seed: int = Field(default=0, ge=0)
    """Seed of the public cells and of the starts of the decomposition only."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse shares that leave nothing for the last round, and a start that the number of columns does not
        allow.
        """
        if self.scaling == "ranges" and not (self.lower is not None and np.all(self.half > 0)):
            raise ValueError("scaling = 'ranges' needs lower and upper with lower < upper for every column")
        if self.start == "tensor" and self.n_components > len(self.columns):
            raise ValueError(
                f"start = 'tensor' needs at least as many columns as components, got {len(self.columns)} columns and "
                f"n_components = {self.n_components}: use start = 'cells'"
            )
        if not self._shares[-1] > 0:
            raise ValueError(
                "mean_share, clip_share, moment_share, start_share and refine_share must add up to less than 1, so "
                f"that the last round has a share, got {1 - self._shares[-1]:.3g}: lower one of them"
            )
        return self

    @property
    def chosen(self) -> Literal["tensor", "cells", "none"]:
        """The start that runs."""
        if self.n_components == 1:
            return "none"
        if self.start != "auto":
            return self.start
        return "tensor" if self.n_components <= len(self.columns) else "cells"

    @property
    def _cells(self) -> int:
        """Number of public cells of the start "cells": at least two for each component."""
        return max(min(TUNING.cells_per_component * self.n_components, TUNING.cells_most), 2 * self.n_components)

    @property
    def _turns(self) -> int:
        """Rounds of EM before the last; none for one component, whose responsibilities are all 1."""
        return self.rounds if self.n_components > 1 else 0

    @property
    def _shares(self) -> tuple[float, float, float, float]:
        """Shares of the second moments, the start, one round in the subspace, and the last round."""
        moment, start, refine = (
            part * TUNING.early_share if given is None else given
            for part, given in zip(
                TUNING.early_parts, (self.moment_share, self.start_share, self.refine_share), strict=True
            )
        )
        start = start if self.chosen != "none" else 0.0
        refine = refine if self._turns else 0.0
        left = 1 - self.mean_share - self.clip_share - moment - start - refine
        return moment, start, refine / max(self._turns, 1), left

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the shares before the last round (`early_share`)."""
        begun = early_share(facts, self.n_components, len(self.columns))
        names = ("moment_share", "start_share", "refine_share")
        return self.model_copy(
            update={
                name: getattr(self, name) or part * begun for name, part in zip(names, TUNING.early_parts, strict=True)
            }
        )

    @property
    def describe(self) -> str:
        """The start and the rounds, for the plan."""
        return f"{self.begun}, one in all columns"

    @property
    def begun(self) -> str:
        """The releases before the last, for the plan."""
        start = {"tensor": "the third moment", "cells": f"{self._cells} public cells", "none": "the mean"}[self.chosen]
        return f"start from {start}, {self._turns} rounds of EM among the means' directions"

    # ---- requests --------------------------------------------------------------------------------------------------

    @property
    def scale(self) -> Floats:
        """Divisor of each column: its half range, or 1."""
        return self.half if self.scaling == "ranges" else np.ones(len(self.columns))

    def _row_parameters(self, center: Floats) -> dict[str, Any]:
        """Parameters of all statistics of rows (x - center)/scale; `center` (D,) is public or released."""
        return {"columns": len(self.columns), "center": center, "scale": self.scale, **self.filling}

    def _mean(self, adjacency: Adjacency) -> VectorSum:
        """The statistic of the coarse mean."""
        return VectorSum(**self.bounds, count=adjacency is Adjacency.ADD_REMOVE)

    def _norms(self, center: Floats) -> ScatterNorms:
        """The statistic of the histogram of squared norms about `center` (D,), up to the squared diameter of the public
        domain.
        """
        ball = 2 * self.radius if self.lower is None else 2 * float(np.linalg.norm(self.half / self.scale))
        return ScatterNorms(
            **self._row_parameters(center), lowest=TUNING.norm_span * ball**2, highest=ball**2, bins=TUNING.norm_bins
        )

    def _moment(self, center: Floats, square: float, adjacency: Adjacency) -> AugmentedScatter:
        """The statistic of second and first moments.

        Parameters
        ----------
        center : array of shape (D,)
            The coarse mean.
        square : float
            Clip of a unit's second moment, the quantile of squared norms.
        adjacency : Adjacency
            Whether the release counts the units.
        """
        return AugmentedScatter(**self._row_parameters(center), clip=square, count=adjacency is Adjacency.ADD_REMOVE)

    def _third(self, center: Floats, white: Floats, correction: Floats, clip: float) -> ThirdMoment:
        """The statistic of the third moment.

        Parameters
        ----------
        center : array of shape (D,)
            The released center.
        white : array of shape (D, K - 1)
            Projection on white coordinates.
        correction : array of shape (K - 1,)
            Variance of spherical noise along each of them.
        clip : float
            Clip of a unit's tensor.
        """
        rows = self._row_parameters(center)
        return ThirdMoment(**rows, projection=white, correction=correction, constant=1.0, clip=clip)

    def sums(
        self, center: Floats, basis: Floats | None, at: Components, clips: Floats, *, projected: bool
    ) -> MixtureSums:
        """The statistic of one round of EM.

        Parameters
        ----------
        center : array of shape (D,)
            The released center.
        basis : array of shape (D, K - 1) or None
            Subspace of the means, in which responsibilities are computed.
        at : Components
            Means (in the scale of the rows, from the center), variances and weights of the components.
        clips : array of shape (K,)
            Clip of the residuals of each component.
        projected : bool
            Whether residuals are taken in the subspace, too.
        """
        clip = float(np.mean(clips))
        return MixtureSums(
            **self._row_parameters(center),
            clip=clip,
            means=np.clip(at.means / clip, -1e4, 1e4),
            variances=np.clip(at.variances / clip**2, 1e-8, 1e8),
            radii=clips / clip,
            weights=np.clip(at.weights, 1e-8, 1.0),
            basis=basis,
            projected=projected and basis is not None,
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Templates of the releases of the module docstring, at placeholders for all released numbers."""
        D, K = len(self.columns), self.n_components
        center, axes = self.middle, np.eye(D)[:, : K - 1]
        basis = axes if self.chosen == "tensor" else None

        def sums(count: int, *, projected: bool) -> MixtureSums:
            ones = np.ones(count)
            return self.sums(center, basis, Components(np.zeros((count, D)), ones, ones), ones, projected=projected)

        begun: list[BoundedStatistic] = []
        if self.chosen == "tensor":
            begun = [self._third(center, axes, np.zeros(K - 1), 1.0)]
        elif self.chosen == "cells":
            begun = [sums(self._cells, projected=False)]
        moment, start, refine, last = self._shares
        return (
            PrivateSum(self._mean(adjacency), self.mean_share),
            PrivateSum(self._norms(center), self.clip_share),
            PrivateSum(self._moment(center, 1.0, adjacency), moment),
            *[PrivateSum(each, start) for each in begun],
            *[PrivateSum(sums(K, projected=True), refine)] * self._turns,
            PrivateSum(sums(K, projected=False), last),
        )

    # ---- the program -----------------------------------------------------------------------------------------------

    def program(self, adjacency: Adjacency) -> Program:
        """The frame, the start, the rounds of EM in the subspace, and the last round in all columns."""
        frame, at = yield from self.begin(adjacency)
        step = yield from self._round(frame, at, self._shares[-1], projected=False)
        return self._report(frame, at, step)

    def begin(self, adjacency: Adjacency) -> Generator[Request, Release, tuple[Frame, Components]]:
        """All releases before the last: the frame, and the components after the rounds in the subspace.

        Parameters
        ----------
        adjacency : Adjacency
            Under add-remove the number of units comes from the releases.
        """
        frame = yield from self._estimate_frame(adjacency)
        at = yield from self._start_components(frame)
        for _ in range(self._turns):
            step = yield from self._round(frame, at, self._shares[2], projected=True)
            at = Components(at.means + frame.in_columns(step.moves), step.variances, step.weights)
        return frame, at

    def _estimate_frame(self, adjacency: Adjacency) -> Generator[Request, Release, Frame]:
        """Releases 1 to 3: the frame.

        Parameters
        ----------
        adjacency : Adjacency
            Under add-remove the number of units comes from the releases.
        """
        release = yield PrivateSum(self._mean(adjacency), self.mean_share)
        total, units = release.value, release.units
        if units is None:
            total, units = total[1:], max(float(total[0]), 1.0)
        mean = total / units
        center = self.middle + self.half * (np.clip(mean, -1, 1) if self.lower is not None else mean)
        norms = self._norms(center)
        release = yield PrivateSum(norms, self.clip_share)
        square, larger = quantile(
            norms.edges, shares_above_noise(release.value, release.noise_std), TUNING.unclipped_share
        )
        moments = self._moment(center, square, adjacency)
        release = yield PrivateSum(moments, self._shares[0])
        second, first, counted = moments.split(release.value)
        units = units if counted is None else max(counted, 1.0)
        shift = first / units
        # Covariance from raw moments; `larger` corrects its size for the clipped units
        moment = larger * (second / units - np.outer(shift, shift))
        noise = larger * square * release.noise_std / units
        return self._frame(center + self.scale * shift, units, moment, noise)

    def _frame(self, center: Floats, units: float, moment: Floats, noise: float) -> Frame:
        """The frame from the noisy covariance.

        Parameters
        ----------
        center : array of shape (D,)
            In the units of the data.
        units : float
            n.
        moment : array of shape (D, D)
            Noisy covariance in the scale of the rows.
        noise : float
            Standard deviation of its isometric coordinates.
        """
        rising, turned = np.linalg.eigh(moment)
        values, vectors = np.asarray(rising[::-1]), np.asarray(turned[:, ::-1])
        K, D, edge = self.n_components, len(moment), noise_edge(len(moment), noise)
        # Noise makes small eigenvalues negative or too small; roots and divisors below need a positive floor.
        least = max(TUNING.eigenvalue_floor * float(values[0]), TUNING.eigenvalue_noise_floor * edge, 1e-60)
        spread = vectors * np.sqrt(np.maximum(debiased(np.maximum(values, 0.0), edge), least))
        if self.chosen != "tensor":
            # No subspace: K cells of equal volume in D columns have about K^(-2/D) of the variance.
            each = float(np.mean(np.maximum(values, least))) * (1.0 if K == 1 else TUNING.cell_variance * K ** (-2 / D))
            return Frame(center, units, self.variance or each, spread, None, values)
        # In the subspace of the means the eigenvalues are v plus the variance of the means; outside they are v. The
        # mean of the others has no bias by noise, whose trace has mean zero.
        variance = self.variance or max(float(np.mean(values[K - 1 :])), least)
        strengths = debiased(np.maximum(values[: K - 1] - variance, 0.0), edge)
        # Roots of the strengths are divisors of white coordinates, so a direction below the noise gets a floor.
        floor = max(TUNING.strength_noise_floor * edge, TUNING.strength_floor * float(strengths[0]), least)
        strengths = np.maximum(strengths, floor)
        return Frame(center, units, variance, spread, vectors[:, : K - 1], strengths)

    # ---- starts ----------------------------------------------------------------------------------------------------

    def _start_components(self, frame: Frame) -> Generator[Request, Release, Components]:
        """The components before the first round, from the chosen start; one component starts at the center."""
        if frame.basis is not None:
            return (yield from self._from_tensor(frame, frame.basis))
        if self.chosen == "cells":
            return (yield from self._from_cells(frame))
        return Components(np.zeros((1, len(self.columns))), np.full(1, frame.variance), np.ones(1))

    def _from_tensor(self, frame: Frame, basis: Floats) -> Generator[Request, Release, Components]:
        """Start from the third moment in white coordinates (see the module's docstring). The last coordinate of each
        orthonormal vector is the root of its weight.

        Parameters
        ----------
        frame : Frame
            Releases 1 to 3.
        basis : array of shape (D, K - 1)
            `frame.basis`, which is not None on this path.
        """
        K, roots = self.n_components, np.sqrt(frame.strengths)
        correction = np.clip(frame.variance / frame.strengths, 0.0, 1e12)
        # A white row has expected squared norm K + sum of v/strength (the constant included), and its third power the
        # norm to the power 3.
        clip = TUNING.tensor_clip * (K + float(np.sum(correction))) ** 1.5
        third = self._third(frame.center, basis / roots, correction, clip)
        release = yield PrivateSum(third, self._shares[1])
        _values, vectors = simultaneous(third.split(release.value) / frame.units, K, self.seed)
        # The sign of a part is arbitrary for orthonormal vectors; sqrt(w_k) is positive.
        vectors = vectors * np.where(vectors[:, -1:] < 0, -1.0, 1.0)
        # The noisy weights are averaged with equal ones: their roots are divisors of the means.
        mixed = TUNING.equal_weights
        weights = (1 - mixed) * vectors[:, -1] ** 2 + mixed / K
        means = (vectors[:, :-1] / np.sqrt(weights)[:, None]) @ (basis * roots).T
        return Components(means, np.full(K, frame.variance), weights / np.sum(weights))

    def _from_cells(self, frame: Frame) -> Generator[Request, Release, Components]:
        """Start from public cells in the shape of the second moment; their noisy means are clustered by k-means.

        Parameters
        ----------
        frame : Frame
            Releases 1 to 3.
        """
        K, D, count = self.n_components, len(self.columns), self._cells
        rng = np.random.default_rng(self.seed)
        candidates = rng.normal(size=(TUNING.candidates_per_cell * count, D))
        # Uniform in a ball: the radius is the D-th root of a uniform number.
        length = TUNING.cell_radius * math.sqrt(D) * rng.uniform(size=(len(candidates), 1)) ** (1 / D)
        candidates *= length / np.linalg.norm(candidates, axis=1, keepdims=True)
        cells = farthest_points(candidates, count) @ frame.spread.T
        apart = np.sum((cells[:, None] - cells[None]) ** 2, axis=2)
        np.fill_diagonal(apart, np.inf)
        near = math.sqrt(float(np.median(np.min(apart, axis=1))))
        # A variance far below the distance of cells makes responsibilities nearly 0 or 1: a row goes to its cell.
        at = Components(cells, np.full(count, TUNING.cell_softness * near**2), np.ones(count))
        sums = self.sums(frame.center, None, at, np.full(count, near), projected=False)
        release = yield PrivateSum(sums, self._shares[1])
        counts, moved, _spreads = sums.split(release.value)
        valid = counts > TUNING.count_evidence * release.noise_std
        # k-means needs at least K points: with a small budget those of the largest counts, though they may be noise.
        if np.sum(valid) < K:
            valid = counts >= np.sort(counts)[-K]
        mass = np.maximum(counts[valid], 1.0)
        points = cells[valid] + moved[valid] / mass[:, None]
        means = weighted_kmeans(points, mass, K, self.seed)
        nearest = np.argmin(np.sum((points[:, None] - means[None]) ** 2, axis=2), axis=1)
        weights = np.maximum(np.bincount(nearest, mass, minlength=K) / np.sum(mass), TUNING.weight_least / K)
        return Components(means, np.full(K, frame.variance), weights / np.sum(weights))

    # ---- rounds and results ----------------------------------------------------------------------------------------

    def _round(
        self, frame: Frame, at: Components, share: float, *, projected: bool
    ) -> Generator[Request, Release, Step]:
        """One round of EM.

        Parameters
        ----------
        frame : Frame
            Releases 1 to 3.
        at : Components
            The current components.
        share : float
            Share of the budget.
        projected : bool
            Whether residuals are taken in the subspace of the means.
        """
        inside = projected and frame.basis is not None
        width = self.n_components - 1 if inside else len(self.columns)
        clips = (TUNING.residual_clip_subspace if inside else TUNING.residual_clip) * np.sqrt(at.variances * width)
        sums = self.sums(frame.center, frame.basis, at, clips, projected=projected)
        release = yield PrivateSum(sums, share)
        # The last round keeps the variances of the rounds before it, in which a spread has fewer columns and so less
        # sampling error; without such rounds it must estimate them itself.
        update = self.variance is None and (projected or not self._turns)
        return em_step(sums, release.value, release.noise_std, at, update_variances=update)

    def _report(self, frame: Frame, at: Components, step: Step) -> Estimate:
        """The estimate, with the moves of the last round shrunk.

        Parameters
        ----------
        frame : Frame
            Releases 1 to 3.
        at : Components
            The components of the last request.
        step : Step
            The result of the last round, in all columns.
        """
        means = at.means + shrink_moves(step, frame.basis)
        weights, weight_noise = nearest_probabilities(step.counts, frame.units), step.count_noise / frame.units
        present = step.counts > TUNING.count_evidence * step.count_noise
        apart, std = separations(means, step.variances, step.noise, present)
        # Root mean square length of the noise of a mean over all D directions, in standard deviations of the data.
        blurred = step.noise * np.sqrt(len(self.columns) / step.variances)
        alone = np.sum(present) == 1
        carried = present & (alone | (apart > np.maximum(TUNING.count_evidence * blurred, TUNING.peak_distance)))
        axis, columns = Axis.numbered("component", self.n_components), self.column_axis
        noise = step.noise[:, None] * self.scale[None, :]
        return {
            "means": Quantity(frame.center + self.scale * means, "center", (axis, columns), noise),
            "weights": Quantity(weights, "share", (axis,), weight_noise),
            "variances": Quantity(step.variances, "number", (axis,)),
            "variance": Quantity(np.array([weights @ step.variances])),
            "separations": Quantity(apart, "diagnostic", (axis,), std),
            "separation_noise": Quantity(blurred, "diagnostic", (axis,)),
            "carried": Quantity(carried.astype(np.float64), "diagnostic", (axis,)),
            "center": Quantity(frame.center, "mean", (columns,)),
            "scale": Quantity(self.scale, "scale", (columns,)),
        }


def early_share(facts: PublicFacts, components: int, columns: int) -> float:
    """Share of second moments, start and rounds in the subspace: it grows with the square root of the noise.

    Parameters
    ----------
    facts : PublicFacts
        Noise and number of units.
    components, columns : int
        K and D.
    """
    noise = facts.noise / (facts.units or GUESSED_UNITS) * components * math.sqrt(columns)
    return float(np.clip(TUNING.early_share * math.sqrt(noise / TUNING.usual_noise), *TUNING.early_share_limits))
