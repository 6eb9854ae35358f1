"""Principal components over sites."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import Floats, Outlook, Program, RangedAlgorithm
from zerosum.algorithms.schedule import Schedule, best
from zerosum.kernel import coordinates
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency

_MATRIX_COLUMNS = 2000  # up to here the whole second moment is released


class PCA(RangedAlgorithm):
    """The leading eigenvectors of the units' second moment, about a paid mean by default.

    Each unit's own matrix is divided by its norm (`normalise`, free) or clipped, so that one unit weighs no more than
    another. Up to 2000 columns the matrix itself is released once, in isometric coordinates, and columns that drown in
    noise are weighed down before it is decomposed (`shrink`, free); beyond, `rounds` rounds of subspace iteration
    release its product with the current basis, and no square matrix exists anywhere. `auto` chooses. How many rounds,
    how much more the last one gets than the first (`growth`) and how many columns the basis has beyond the components
    (`extra`) are left to the planner unless given.

    Results: `components` (one a row, largest entry positive), `eigenvalues` (of the mean of the units' matrices,
    corrected for what noise adds, zero where nothing stands above it), `eigenvalue_std` (their error bars),
    `noise_edge` (what pure noise reaches), `above_noise` (how many components stand above it), `mean`.
    """

    name: ClassVar[str] = "pca"
    components: int = Field(gt=0)
    centering: Literal["paid", "ranges", "nothing"] = "paid"
    mean_share: float = Field(default=0.08, gt=0, lt=1)
    shrink: bool = True
    within: Literal["nothing", "center", "standardise"] = "nothing"
    normalise: bool = True
    matrix_clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    solver: Literal["auto", "matrix", "subspace"] = "auto"
    rounds: int | None = Field(default=None, gt=0)
    growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    extra: int | None = Field(default=None, ge=0)
    start: int = 0  # seed of the public first basis, nothing else

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.components > len(self.columns):
            raise ValueError(f"at most {len(self.columns)} components can be had, got {self.components}")
        return self

    @property
    def chosen(self) -> str:
        """The solver that runs."""
        if self.solver != "auto":
            return self.solver
        return "matrix" if len(self.columns) <= _MATRIX_COLUMNS else "subspace"

    @property
    def schedule(self) -> Schedule:
        """The rounds of the subspace solver: as given or settled, the rest by default."""
        given = {"rounds": self.rounds, "growth": self.growth, "extra": self.extra}
        schedule = Schedule(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        return replace(schedule, extra=min(schedule.extra, len(self.columns) - self.components))

    def settled(self, outlook: Outlook) -> Self:
        if self.chosen == "matrix":
            return self
        whole = outlook.noise * math.sqrt(2 / self._left)  # the sensitivity of replacing a unit
        found = best(len(self.columns), self.components, outlook.units, whole, self.rounds, self.growth, self.extra)
        return self.model_copy(update=asdict(found))

    @property
    def says(self) -> str:
        if self.chosen == "matrix":
            return "solver matrix, the whole second moment at once"
        schedule = self.schedule
        shares = ", ".join(f"{self._left * share:.3g}" for share in schedule.shares)
        rounds = f"{schedule.rounds} round{'s' if schedule.rounds > 1 else ''}"
        return f"solver subspace, {rounds} at shares {shares}, a basis of {self.components} + {schedule.extra} columns"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        first = (self._mean_request(adjacency),) if self.centering == "paid" else ()
        center = self.middle if self.centering != "nothing" else np.zeros(len(self.columns))
        if self.chosen == "matrix":
            return (*first, self._matrix(center))
        basis = self._first_basis()
        return (*first, *[self._product(center, basis, share) for share in self.schedule.shares])

    def program(self, adjacency: Adjacency) -> Program:
        center = self.middle if self.centering != "nothing" else np.zeros(len(self.columns))
        if self.centering == "paid":
            release = yield self._mean_request(adjacency)
            total, units = release.value, release.units
            if units is None:
                total, units = total[1:], max(float(total[0]), 1.0)
            mean = total / units
            center = self.middle + self.half * (np.clip(mean, -1, 1) if self.lower is not None else mean)
        if self.chosen == "matrix":
            release = yield self._matrix(center)
            matrix = coordinates.unpack(release.value, len(self.columns))
            vectors = leading(matrix, release.noise_std, self.components, shrink=self.shrink)
            values = np.einsum("ji,jk,ki->i", vectors, matrix, vectors)
            edge = matrix_edge(len(matrix), release.noise_std)
            above = int(np.sum(np.linalg.eigvalsh(matrix) > edge)) if edge > 0 else self.components
        else:
            basis, values, vectors = self._first_basis(), np.zeros(0), np.zeros((0, 0))
            for share in self.schedule.shares:
                release = yield self._product(center, basis, share)
                product = release.value.reshape(basis.shape)
                vectors, values, _right = np.linalg.svd(product, full_matrices=False)
                basis = np.linalg.qr(vectors)[0]
            vectors, values = basis[:, : self.components], values[: self.components]
            # singular values of pure noise pass this once in 270 000 releases (Gaussian concentration)
            edge = release.noise_std * (np.sqrt(len(self.columns)) + np.sqrt(basis.shape[1]) + 5)
            above = int(np.sum(values > edge)) if edge > 0 else self.components
        units = release.units if release.units is not None else 1.0
        return {
            "components": _signed(vectors).T,
            "eigenvalues": np.where(np.arange(self.components) < above, _corrected(values, edge), 0.0) / units,
            "eigenvalue_std": np.full(self.components, release.noise_std / units),
            "noise_edge": np.array([edge / units]),
            "above_noise": np.array([float(min(above, self.components))]),
            "mean": center,
        }

    def _mean_request(self, adjacency: Adjacency) -> PrivateSum:
        count = {"count": True} if adjacency is Adjacency.ADD_REMOVE else {}
        return PrivateSum("vector_sum", self.bounds | count, self.mean_share)

    def _unit(self, center: Floats) -> dict[str, Any]:
        return {
            "columns": len(self.columns),
            "clip": self.matrix_clip,
            "normalise": self.normalise,
            "center": center,
            "within": self.within,
        }

    @property
    def _left(self) -> float:
        return 1 - self.mean_share if self.centering == "paid" else 1.0

    def _matrix(self, center: Floats) -> PrivateSum:
        return PrivateSum("scatter", self._unit(center), self._left)

    def _product(self, center: Floats, basis: Floats, share: float) -> PrivateSum:
        return PrivateSum("scatter_product", self._unit(center) | {"basis": basis}, self._left * share)

    def _first_basis(self) -> Floats:
        rng = np.random.default_rng(self.start)
        return np.linalg.qr(rng.normal(size=(len(self.columns), self.components + self.schedule.extra)))[0]


def matrix_edge(columns: int, noise: float) -> float:
    """What the largest eigenvalue of pure noise in isometric coordinates passes about once in 100 000 releases.

    The semicircle ends at noise sqrt(2 columns); beyond it the largest eigenvalue follows Tracy and Widom's law.
    """
    return float(noise * np.sqrt(2 * columns) * (1 + 3 * columns ** (-2 / 3)))


def leading(matrix: Floats, noise: float, count: int, *, shrink: bool) -> Floats:
    """The leading eigenvectors of a noisy symmetric matrix.

    `noise` is the standard deviation in isometric coordinates. With `shrink`, column j is weighed by d^2/(d^2 +
    noise^2), Wiener's filter, where d is its noisy diagonal entry, drawn towards the mean of all as far as their
    spread is noise (James and Stein): columns that hold nothing but noise no longer take part, and columns that are
    alike are weighed alike. That is free post-processing.
    """
    weights = np.ones(len(matrix))
    if shrink and noise > 0:
        diagonal = np.diag(matrix)
        kept = max(0.0, 1 - noise**2 / max(float(np.var(diagonal)), 1e-300))
        signal = np.maximum(np.mean(diagonal) + kept * (diagonal - np.mean(diagonal)), 0) ** 2
        weights = signal / (signal + noise**2) if np.any(signal > 0) else weights
    values, vectors = np.linalg.eigh(weights[:, None] * matrix * weights[None, :])
    return np.asarray(vectors[:, np.argsort(-values)[:count]])


def _signed(vectors: Floats) -> Floats:
    """Each column with its largest entry positive."""
    largest = np.argmax(np.abs(vectors), axis=0)
    return np.asarray(vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0))


def _corrected(values: Floats, edge: float) -> Floats:
    """Eigenvalues without what noise adds: l above the edge e of pure noise came from (l + sqrt(l^2 - e^2))/2."""
    return np.asarray((values + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2)
