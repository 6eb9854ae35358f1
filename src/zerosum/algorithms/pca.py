"""Principal components over sites."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.program import Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.schedule import Schedule, best
from zerosum.algorithms.spectral import (
    NoisySpectrum,
    debiased,
    first_basis,
    leading,
    matrix_edge,
    product_edge,
    signs,
    subspace_iteration,
)
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.scatter import Scatter, ScatterNorms, ScatterProduct
from zerosum.statistics.vectors import VectorSum

_FIRST_LOOK = 0.3  # of two looks, the share of the one that tells which directions are strong
_MATRIX_COLUMNS = 2000  # up to here the whole second moment is released
_BINS, _SPAN = 20, 1e-6  # of the norms' histogram: each twice as far as the one before, over six decades


class PCA(RangedAlgorithm):
    """The leading eigenvectors of the units' second moment, about a paid mean by default.

    Each unit's own matrix is divided by its norm (`normalise`, free) or clipped at `matrix_clip`, so that one unit
    weighs no more than another. That is what rows inside the ranges or the clip reach unless given, or `"dp"`: then
    `clip_share` buys a noisy histogram of the matrices' norms over `clip_range`, and its `clip_quantile` is the clip.
    Up to 2000 columns the matrix itself is released once, in isometric coordinates, and columns that drown in
    noise are weighed down before it is decomposed (`shrink`, free). With two `n_passes`, the default where units own
    many rows (`per_recording`), a second look is taken in coordinates in which the directions that were strong in the
    first no longer fill every unit's matrix, and weaker ones come out of the noise (see `spectral`). Beyond 2000
    columns `rounds` rounds of subspace iteration release its product with the current basis, and no square matrix
    exists anywhere. `auto` chooses. How many rounds, how much more the last one gets than the first (`growth`) and how
    many columns the basis has beyond the components (`extra`) are left to the planner unless given.

    Results: `components` (one a row, largest entry positive), `eigenvalues` (of the mean of the units' matrices,
    corrected for what noise adds, zero where nothing stands above it), `eigenvalue_std` (their error bars),
    `noise_edge` (what pure noise reaches), `above_noise` (how many components stand above it), `mean` and `scale` (what
    was taken off each column, and what it was divided by then: half its public range with `scaling = "ranges"`, free),
    `matrix_clip` (the norm that matrices were clipped at; 1 where they were normalised).
    """

    name: ClassVar[str] = "pca"
    n_components: int = Field(gt=0)
    centering: Literal["dp", "ranges", "none"] = "dp"
    mean_share: float = Field(default=0.08, gt=0, lt=1)
    scaling: Literal["none", "ranges"] = "none"
    shrink: bool = True
    per_recording: Literal["none", "center", "standardise"] = "none"
    normalise: bool = True
    matrix_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["dp"] | None = None
    clip_share: float = Field(default=0.05, gt=0, lt=1)
    clip_quantile: float = Field(default=0.9, gt=0, lt=1)
    clip_range: tuple[float, float] | None = None
    n_passes: Literal[1, 2] | None = None
    solver: Literal["auto", "matrix", "subspace"] = "auto"
    rounds: int | None = Field(default=None, gt=0)
    growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    extra: int | None = Field(default=None, ge=0)
    start: int = 0  # seed of the public first basis, nothing else

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.n_components > len(self.columns):
            raise ValueError(f"at most {len(self.columns)} components can be had, got {self.n_components}")
        if self.scaling == "ranges" and not (self.lower is not None and np.all(self.half > 0)):
            raise ValueError("scaling by ranges needs a public range of positive width for every column")
        if self.normalise and self.matrix_clip is not None:
            raise ValueError("matrix_clip bounds matrices that are not normalised: set normalise to false, or leave it")
        if self.n_passes == 2 and not (self.normalise and self.chosen == "matrix"):
            raise ValueError("two passes are for normalised matrices that are released whole")
        if not self._left > 0:
            raise ValueError("mean_share and clip_share leave nothing for the components")
        if self.clip_range is not None and not 0 < self.clip_range[0] < self.clip_range[1] < math.inf:
            raise ValueError("clip_range must be two positive numbers, the lower one first")
        return self

    @property
    def chosen(self) -> str:
        """The solver that runs."""
        if self.solver != "auto":
            return self.solver
        return "matrix" if len(self.columns) <= _MATRIX_COLUMNS else "subspace"

    @property
    def looks(self) -> int:
        """How often the matrix is looked at: twice where units own many rows, of which `per_recording` speaks."""
        return self.n_passes or (
            2 if self.per_recording != "none" and self.normalise and self.chosen == "matrix" else 1
        )

    @property
    def reach(self) -> float:
        """The largest norm of a matrix of rows inside the public ranges, or inside the clip where there are none."""
        if self.per_recording == "standardise":
            return float(len(self.columns))
        if self.lower is None or self.upper is None:
            return self.radius**2
        far = np.maximum(np.abs(self.lower), np.abs(self.upper)) if self.centering == "none" else self.half
        return float(np.sum((far / self.scale) ** 2))

    @property
    def scale(self) -> Floats:
        """What columns are divided by."""
        return self.half if self.scaling == "ranges" else np.ones(len(self.columns))

    @property
    def schedule(self) -> Schedule:
        """The rounds of the subspace solver: as given or settled, the rest by default."""
        given = {"rounds": self.rounds, "growth": self.growth, "extra": self.extra}
        schedule = Schedule(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        return replace(schedule, extra=min(schedule.extra, len(self.columns) - self.n_components))

    def resolve(self, facts: PublicFacts) -> Self:
        if self.chosen == "matrix":
            return self
        whole = facts.noise * math.sqrt(2 / self._left)  # the sensitivity of replacing a unit
        found = best(len(self.columns), self.n_components, facts.units, whole, self.rounds, self.growth, self.extra)
        return self.model_copy(update=asdict(found))

    @property
    def describe(self) -> str:
        if self.chosen == "matrix":
            again = ", and again with its strong directions damped" if self.looks == 2 else ""
            return f"solver matrix, the whole second moment at once{again}"
        schedule = self.schedule
        shares = ", ".join(f"{self._left * share:.3g}" for share in schedule.shares)
        rounds = f"{schedule.rounds} round{'s' if schedule.rounds > 1 else ''}"
        return (
            f"solver subspace, {rounds} at shares {shares}, a basis of {self.n_components} + {schedule.extra} columns"
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        center = self.middle if self.centering != "none" else np.zeros(len(self.columns))
        mean = (self._mean_request(adjacency),) if self.centering == "dp" else ()
        norms = (self._norms(center),) if self.matrix_clip == "dp" else ()
        if self.chosen == "matrix":
            damped = [self._matrix(center, self._clip, np.zeros((len(self.columns),) * 2))] if self.looks == 2 else []
            return (*mean, *norms, self._matrix(center, self._clip), *damped)
        basis = self._first_basis()
        rounds = [self._product(center, self._clip, basis, share) for share in self.schedule.shares]
        return (*mean, *norms, *rounds)

    def program(self, adjacency: Adjacency) -> Program:
        center = self.middle if self.centering != "none" else np.zeros(len(self.columns))
        if self.centering == "dp":
            release = yield self._mean_request(adjacency)
            total, units = release.value, release.units
            if units is None:
                total, units = total[1:], max(float(total[0]), 1.0)
            mean = total / units
            center = self.middle + self.half * (np.clip(mean, -1, 1) if self.lower is not None else mean)
        clip = self._clip
        if self.matrix_clip == "dp":
            release = yield self._norms(center)
            counted = release.units if release.units is not None else float(np.sum(release.value))
            clip = self._quantile(nearest_probabilities(release.value, max(counted, 1.0)))
        if self.chosen == "matrix":
            release = yield self._matrix(center, clip)
            matrix = coordinates.unpack(release.value, len(self.columns))
            if self.looks == 2:
                look = NoisySpectrum.at(matrix, release.noise_std)
                damped, reconstruction = look.damped(self.n_components)
                again = yield self._matrix(center, clip, damped)
                look = NoisySpectrum.at(coordinates.unpack(again.value, len(self.columns)), again.noise_std)
                span = np.linalg.qr(reconstruction @ look.vectors[:, : self.n_components])[0]
                rising, turn = np.linalg.eigh(span.T @ matrix @ span)
                values, vectors = np.asarray(rising[::-1]), np.asarray(span @ turn[:, ::-1])
                edge, seen = matrix_edge(self.n_components, release.noise_std), look.released
                highest = matrix_edge(len(matrix), again.noise_std)
            else:
                vectors = leading(matrix, release.noise_std, self.n_components, shrink=self.shrink)
                values = np.einsum("ji,jk,ki->i", vectors, matrix, vectors)
                edge, seen = matrix_edge(len(matrix), release.noise_std), np.asarray(np.linalg.eigvalsh(matrix))
                highest = edge
            above = int(np.sum(seen > highest)) if edge > 0 else self.n_components
        else:
            ask = partial(self._product, center, clip)
            basis, values, release = yield from subspace_iteration(self._first_basis(), self.schedule.shares, ask)
            vectors, values = basis[:, : self.n_components], values[: self.n_components]
            edge = product_edge(len(self.columns), basis.shape[1], release.noise_std)
            above = int(np.sum(values > edge)) if edge > 0 else self.n_components
        worth = clip / (release.units if release.units is not None else 1.0)
        eigenvalues = np.where(np.arange(self.n_components) < above, debiased(values, edge), 0.0) * worth
        std = np.full(self.n_components, release.noise_std * worth)
        axis, columns = Axis.numbered("component", self.n_components), self.column_axis
        return {
            "components": Quantity((vectors * signs(vectors)).T, "component", (axis, columns)),
            "eigenvalues": Quantity(eigenvalues, "eigenvalue", (axis,), std),
            "eigenvalue_std": Quantity(std, "diagnostic", (axis,)),
            "noise_edge": Quantity(np.array([edge * worth]), "diagnostic"),
            "above_noise": Quantity(np.array([float(min(above, self.n_components))]), "diagnostic"),
            "mean": Quantity(center, "mean", (columns,)),
            "scale": Quantity(self.scale, "scale", (columns,)),
            "matrix_clip": Quantity(np.array([clip]), "diagnostic"),
        }

    def _mean_request(self, adjacency: Adjacency) -> PrivateSum:
        return PrivateSum(VectorSum(**self.bounds, count=adjacency is Adjacency.ADD_REMOVE), self.mean_share)

    def _unit(self, center: Floats) -> dict[str, Any]:
        scale = {"scale": self.scale} if self.scaling != "none" else {}
        unit = {"columns": len(self.columns), "center": center, "per_recording": self.per_recording}
        return unit | scale | self.filling

    @property
    def _left(self) -> float:
        mean = self.mean_share if self.centering == "dp" else 0.0
        return 1 - mean - (self.clip_share if self.matrix_clip == "dp" else 0.0)

    @property
    def _clip(self) -> float:
        """The clip, as far as it is known beforehand; no sensitivity depends on it."""
        if self.normalise:
            return 1.0
        return self.matrix_clip if isinstance(self.matrix_clip, float) else self.reach

    @property
    def _bins(self) -> dict[str, Any]:
        lowest, highest = self.clip_range or (_SPAN * self.reach, self.reach)
        return {"lowest": lowest, "highest": highest, "bins": _BINS}

    def _quantile(self, shares: Floats) -> float:
        """The upper end of the bin in which the quantile lies."""
        found = int(np.searchsorted(np.cumsum(shares), self.clip_quantile))
        return float(ScatterNorms(columns=len(self.columns), **self._bins).edges[min(found, _BINS - 1) + 1])

    def _norms(self, center: Floats) -> PrivateSum:
        return PrivateSum(ScatterNorms(**self._unit(center), **self._bins), self.clip_share)

    def _matrix(self, center: Floats, clip: float, damped: Floats | None = None) -> PrivateSum:
        if self.looks == 1:
            return PrivateSum(Scatter(**self._clipped(center, clip)), self._left)
        share = _FIRST_LOOK if damped is None else 1 - _FIRST_LOOK
        return PrivateSum(Scatter(**self._clipped(center, clip), projection=damped), self._left * share)

    def _product(self, center: Floats, clip: float, basis: Floats, share: float) -> PrivateSum:
        return PrivateSum(ScatterProduct(**self._clipped(center, clip), basis=basis), self._left * share)

    def _clipped(self, center: Floats, clip: float) -> dict[str, Any]:
        return self._unit(center) | {"clip": clip, "normalise": self.normalise}

    def _first_basis(self) -> Floats:
        return first_basis(len(self.columns), self.n_components + self.schedule.extra, self.start)
