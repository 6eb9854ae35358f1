"""Principal components over sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.lifted import Look, Norms, choose, standing
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.schedule import GUESSED_UNITS, Schedule, best
from zerosum.algorithms.spectral import (
    NoisySpectrum,
    debiased,
    first_basis,
    leading,
    matrix_edge,
    product_edge,
    signs,
    subspace_iteration,
    together,
)
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.scatter import Scatter, ScatterNorms, ScatterProduct

_FIRST_LOOK = 0.3  # of two looks, the share of the one that tells which directions are strong
_MATRIX_COLUMNS = 2000  # up to here the whole second moment is released
_BINS, _SPAN = 40, 1e-6  # of the norms' histograms: six decades
_FARTHEST = 1e90  # squared norms up to here, clips and lifts that follow from them are parameters that a site takes
_NORMS_SHARE = 0.01  # of each of three
_LEAST_LOOK, _MOST_LOOK = 0.03, 0.07  # of the budget of all looks, what a small one may take
_LIFT, _MAIN_LIFT = 0.5, 0.015  # squares of the lifts, over the median norm


class PCA(RangedAlgorithm):
    """The leading eigenvectors of the units' second moment, about their own centre by default.

    Each unit's own matrix is divided by a clip, or by its norm where that is larger, so that no unit weighs more than
    1. By default (`centering = "auto"`) both are found on the way: two small looks at lifted rows (`look_share` each)
    find the centre, histograms of norms the scale, and the clip is the quantile of norms that loses least of the
    spectrum seen so far; what error the centre has left is in the main look itself and is subtracted there (see
    `lifted`). Where a histogram would be lost in noise the whole budget goes to one look about the middle of the
    ranges. With `"ranges"` or `"none"` rows are centred at that middle or at zero, and matrices are divided by their
    own norms (`normalise`), or clipped at `matrix_clip`: by default what rows inside the ranges or the clip reach.
    Rows that are centred within recordings (`per_recording`) need no centre.

    Up to 2000 columns the matrix itself is released, in isometric coordinates, and columns that drown in noise are
    weighed down before it is decomposed (`shrink`, free). With two `n_passes`, the default where units own many rows
    (`per_recording`), a second look is taken in coordinates in which the directions that were strong in the first no
    longer fill every unit's matrix, and weaker ones come out of the noise (see `spectral`). Beyond 2000 columns
    `rounds` rounds of subspace iteration release its product with the current basis, and no square matrix exists
    anywhere. `auto` chooses. How many rounds, how much more the last one gets than the first (`growth`) and how many
    columns the basis has beyond the components (`extra`) are left to the planner unless given.

    Results: `components` (one a row, largest entry positive), `eigenvalues` (of the mean of the units' matrices,
    corrected for what noise adds, zero where nothing stands above it), `eigenvalue_std` (their error bars),
    `noise_edge` (what pure noise reaches), `above_noise` (how many components stand above it and above what isotropic
    units would show), `mean` and `scale` (what was taken off each column, and what it was divided by then: half its
    public range with `scaling = "ranges"`, free), `matrix_clip` (the norm that matrices were clipped at; 1 where they
    were normalised), and, where the matrix was released, `total` (its trace, what all eigenvalues add up to).
    """

    name: ClassVar[str] = "pca"
    n_components: int = Field(gt=0)
    centering: Literal["auto", "ranges", "none"] = "auto"
    look_share: float | None = Field(default=None, ge=0, le=0.25)
    """What each of the two small looks that find the centre costs, by default the planner's choice."""
    scaling: Literal["none", "ranges"] = "none"
    shrink: bool = True
    per_recording: Literal["none", "center", "standardise"] = "none"
    normalise: bool = True
    matrix_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    n_passes: Literal[1, 2] | None = None
    solver: Literal["auto", "matrix", "subspace"] = "auto"
    rounds: int | None = Field(default=None, gt=0)
    growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Of the subspace solver: how much more the last round gets than the first, by default the planner's choice."""
    extra: int | None = Field(default=None, ge=0)
    """Of the subspace solver: how many columns the basis has beyond the components, by default the planner's choice."""
    start: int = 0
    """Seed of the public first basis, nothing else."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.n_components > len(self.columns):
            raise ValueError(f"at most {len(self.columns)} components can be had, got {self.n_components}")
        if self.scaling == "ranges" and not (self.lower is not None and np.all(self.half > 0)):
            raise ValueError("scaling by ranges needs a public range of positive width for every column")
        if self.normalise and self.matrix_clip is not None:
            raise ValueError("matrix_clip bounds matrices that are not normalised: set normalise to false, or leave it")
        if self.finds_centre and not self.normalise:
            raise ValueError(
                "with centering = 'auto' the clip is found: leave normalise, or centre at 'ranges' or 'none'"
            )
        if self.finds_centre and not 1 / _FARTHEST <= self.reach <= _FARTHEST:
            raise ValueError(
                f"rows inside the ranges or the clip must reach a squared norm of {1 / _FARTHEST:g} to {_FARTHEST:g}: "
                "widen or narrow them, or centre at 'ranges' or 'none'"
            )
        if self.n_passes == 2 and not (self.normalise and self.chosen == "matrix"):
            raise ValueError("two passes are for normalised matrices that are released whole")
        if self.n_passes == 2 and self.finds_centre:
            raise ValueError(
                "two passes are for units with many rows: set per_recording, or centre at 'ranges' or 'none'"
            )
        return self

    @property
    def finds_centre(self) -> bool:
        """Whether the centre of the rows is left to be found."""
        return self.centering == "auto" and self.per_recording == "none"

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
        found = self
        if self.finds_centre and self.look_share is None:
            found = found.model_copy(update={"look_share": self._small_share(facts)})
        if self.chosen == "matrix":
            return found
        whole = facts.noise * math.sqrt(2 / found._left)  # the sensitivity of replacing a unit
        given = self.rounds, self.growth, self.extra
        schedule = best(len(self.columns), self.n_components, facts.units, whole, *given)
        return found.model_copy(update=asdict(schedule))

    def _small_share(self, facts: PublicFacts) -> float:
        """What a small look takes of the budget of all looks: more, the more its noise is of what the units add up to,
        and nothing where even a histogram of norms would be noise."""
        units = facts.units or GUESSED_UNITS
        if 8 * math.sqrt(2 / _NORMS_SHARE) * facts.noise > units:
            return 0.0
        share = 4 * math.sqrt(len(self.columns)) * facts.noise / units
        return min(max(share, _LEAST_LOOK), _MOST_LOOK)

    @property
    def describe(self) -> str:
        if self.chosen == "matrix":
            again = ", and again with its strong directions damped" if self.looks == 2 else ""
            told = f"solver matrix, the whole second moment at once{again}"
        else:
            schedule = self.schedule
            shares = ", ".join(f"{self._left * share:.3g}" for share in schedule.shares)
            rounds = f"{schedule.rounds} round{'s' if schedule.rounds > 1 else ''}"
            width = f"{self.n_components} + {schedule.extra}"
            told = f"solver subspace, {rounds} at shares {shares}, a basis of {width} columns"
        if self._lifts:
            small = self._small_look
            return f"{told}; centre and clip from two small looks at {small:.3g} and histograms at {_NORMS_SHARE:g}"
        return (
            f"{told}; about the middle of the ranges, since finding a centre would cost too much"
            if (self.finds_centre)
            else told
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        center = self._first_center
        if self._lifts:
            norms, small = self._norms(center), self._small(center, 1.0)
            main = (
                (self._main(center, 1.0, 1.0),)
                if self.chosen == "matrix"
                else tuple(self._lifted_product(center, 1.0, self._first_basis(), s) for s in self.schedule.shares)
            )
            return (norms, small, norms, small, norms, *main)
        if self.chosen == "matrix":
            damped = [self._matrix(center, np.zeros((len(self.columns),) * 2))] if self.looks == 2 else []
            return (self._matrix(center), *damped)
        return tuple(self._product(center, self._first_basis(), share) for share in self.schedule.shares)

    def program(self, adjacency: Adjacency) -> Program:
        if self._lifts:
            found = yield from (self._lifted_matrix() if self.chosen == "matrix" else self._lifted_subspace())
        elif self.chosen == "subspace":
            ask = partial(self._product, self._first_center)
            found = yield from self._subspace(ask, None)
        else:
            found = yield from (self._two_looks() if self.looks == 2 else self._one_look())
        return self._told(found)

    def _one_look(self) -> Generator[Request, Release, _Found]:
        release = yield self._matrix(self._first_center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        vectors = leading(matrix, release.noise_std, self.n_components, shrink=self.shrink)
        edge = matrix_edge(len(matrix), release.noise_std)
        look = Look(matrix, np.zeros(len(matrix)), 0.0, release.noise_std)
        falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
        above = (
            look.above(self.n_components)
            if self.finds_centre
            else standing(falling, release.noise_std, self.n_components)
        )
        total = float(np.trace(matrix))
        return _Found(vectors, _along(matrix, vectors), edge, above, release, self._first_center, self._clip, total)

    def _two_looks(self) -> Generator[Request, Release, _Found]:
        center = self._first_center
        release = yield self._matrix(center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        damped, reconstruction = NoisySpectrum.at(matrix, release.noise_std).damped(self.n_components)
        again = yield self._matrix(center, damped)
        second = coordinates.unpack(again.value, len(self.columns))
        both, noise = together(second, again.noise_std, matrix, release.noise_std, damped)
        look = NoisySpectrum.at(both, noise)
        span = np.linalg.qr(reconstruction @ look.vectors[:, : self.n_components])[0]
        rising, turn = np.linalg.eigh(span.T @ matrix @ span)
        falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
        found = (falling, release.noise_std), (look.released, noise)
        above = max(standing(values, spread, self.n_components) for values, spread in found)
        edge = matrix_edge(self.n_components, release.noise_std)
        return _Found(
            np.asarray(span @ turn[:, ::-1]), np.asarray(rising[::-1]), edge, above, again, center, self._clip
        )

    def _subspace(
        self, ask: Callable[[Floats, float], PrivateSum], read: Callable[[Release, Floats], Floats] | None
    ) -> Generator[Request, Release, _Found]:
        rounds = subspace_iteration(self._first_basis(), self.schedule.shares, ask, read)
        basis, values, release = yield from rounds
        edge = product_edge(len(self.columns), basis.shape[1], release.noise_std)
        K = self.n_components
        return _Found(
            basis[:, :K], values[:K], edge, int(np.sum(values > edge)), release, self._first_center, self._clip
        )

    def _lifted_matrix(self) -> Generator[Request, Release, _Found]:
        """Two small looks, each about what is known of the centre by then, and the main one."""
        columns, K, share = len(self.columns), self.n_components, self.look_share or 0.0
        center, medians, small = self._first_center, [], []
        for _turn in range(2):
            release = yield self._norms(center)
            medians.append(self._seen_norms(release).quantile(0.5))
            lift = math.sqrt(_LIFT * medians[-1])
            release = yield self._small(center, lift)
            small.append(Look.at(release.value, columns, release.noise_std))
            center = self._moved(center, small[-1].apart(lift))
        release = yield self._norms(center)
        norms, units = self._seen_norms(release), self._counted(release)
        middle = norms.quantile(0.5)
        first, second = (min(middle / each, 1.0) / (1 + _LIFT) for each in medians)
        square = _MAIN_LIFT * middle
        lift = math.sqrt(square)
        choice = choose(small[-1], norms, square, (first, second), share, units, K)
        release = yield self._main(center, lift, choice.clip)
        look = Look.at(release.value, columns, release.noise_std)
        matrix, noise = look.corrected(), look.noise
        mixed, spread = matrix, noise
        if choice.mixed:
            parts = [*(each.corrected() for each in small), matrix]
            weights = np.array([share * first, share * second, (1 - 2 * share) * choice.kept])
            weights /= np.sum(weights)
            mixed = np.einsum("i,ijk->jk", weights, np.stack(parts))
            spread = float(np.linalg.norm(weights * [*(each.noise for each in small), noise]))
        vectors = leading(mixed, spread, K, shrink=self.shrink)
        values = _along(matrix, vectors)
        clip = choice.clip if choice.quantile else 1.0
        edge, above, total = matrix_edge(columns, noise), look.above(K), float(np.trace(matrix))
        return _Found(vectors, values, edge, above, release, self._moved(center, look.apart(lift)), clip, total)

    def _lifted_subspace(self) -> Generator[Request, Release, _Found]:
        """The same with products: the small looks are products with the lifted column, the rounds have it beside the
        basis."""
        columns, center = len(self.columns), self._first_center
        for _turn in range(2):
            release = yield self._norms(center)
            lift = math.sqrt(_LIFT * self._seen_norms(release).quantile(0.5))
            release = yield self._small(center, lift)
            center = self._moved(center, _product_look(release.value, release.noise_std).apart(lift))
        release = yield self._norms(center)
        lift = math.sqrt(_MAIN_LIFT * self._seen_norms(release).quantile(0.5))

        def read(release: Release, basis: Floats) -> Floats:
            product = release.value.reshape(columns + 1, -1)
            return _product_look(product[:, -1], release.noise_std).corrected_product(product[:-1, :-1], basis)

        found = yield from self._subspace(partial(self._lifted_product, center, lift), read)
        return replace(found, center=center)

    def _told(self, found: _Found) -> Estimate:
        release, worth = found.release, found.clip / (found.release.units if found.release.units is not None else 1.0)
        above = min(found.above, self.n_components) if found.edge > 0 else self.n_components
        eigenvalues = np.where(np.arange(self.n_components) < above, debiased(found.values, found.edge), 0.0) * worth
        std = np.full(self.n_components, release.noise_std * worth)
        axis, columns = Axis.numbered("component", self.n_components), self.column_axis
        told = {
            "components": Quantity((found.vectors * signs(found.vectors)).T, "component", (axis, columns)),
            "eigenvalues": Quantity(eigenvalues, "eigenvalue", (axis,), std),
            "eigenvalue_std": Quantity(std, "diagnostic", (axis,)),
            "noise_edge": Quantity(np.array([found.edge * worth]), "diagnostic"),
            "above_noise": Quantity(np.array([float(above)]), "diagnostic"),
            "mean": Quantity(found.center, "mean", (columns,)),
            "scale": Quantity(self.scale, "scale", (columns,)),
            "matrix_clip": Quantity(np.array([found.clip]), "diagnostic"),
        }
        if found.total is not None:
            spread = release.noise_std * worth * math.sqrt(len(self.columns))
            told["total"] = Quantity(np.array([found.total * worth]), "diagnostic", std=np.array([spread]))
        return told

    def _unit(self, center: Floats) -> dict[str, Any]:
        scale = {"scale": self.scale} if self.scaling != "none" else {}
        unit = {"columns": len(self.columns), "center": center, "per_recording": self.per_recording}
        return unit | scale | self.filling

    @property
    def _first_center(self) -> Floats:
        return self.middle if self.centering != "none" else np.zeros(len(self.columns))

    @property
    def _lifts(self) -> bool:
        return self.finds_centre and self.look_share != 0

    @property
    def _small_look(self) -> float:
        share = _LEAST_LOOK if self.look_share is None else self.look_share
        return (1 - 3 * _NORMS_SHARE) * share

    @property
    def _left(self) -> float:
        """What is left for the main look or its rounds."""
        return 1 - 3 * _NORMS_SHARE - 2 * self._small_look if self._lifts else 1.0

    @property
    def _clip(self) -> float:
        """The clip, as far as it is known beforehand; no sensitivity depends on it."""
        return 1.0 if self.normalise else self.matrix_clip or self.reach

    @property
    def _bins(self) -> dict[str, Any]:
        return {"lowest": _SPAN * self.reach, "highest": self.reach, "bins": _BINS}

    def _seen_norms(self, release: Release) -> Norms:
        return Norms.at(np.geomspace(_SPAN * self.reach, self.reach, _BINS + 1), release.value, release.units)

    def _counted(self, release: Release) -> float:
        return max(release.units if release.units is not None else float(np.sum(release.value)), 1.0)

    def _moved(self, center: Floats, apart: Floats) -> Floats:
        """A centre moved as far as a look says, no further than the ranges are wide."""
        step = apart * self.scale
        if self.lower is not None:
            step = np.clip(step, -2 * self.half, 2 * self.half)
        return center + step

    def _norms(self, center: Floats) -> PrivateSum:
        return PrivateSum(ScatterNorms(**self._unit(center), **self._bins), _NORMS_SHARE)

    def _small(self, center: Floats, lift: float) -> PrivateSum:
        """Lifted rows, each divided by its own norm; of the subspace solver the lifted column only."""
        lifted = self._unit(center) | {"lift": lift}
        if self.chosen == "matrix":
            return PrivateSum(Scatter(**lifted), self._small_look)
        basis = np.zeros((len(self.columns) + 1, 1))
        basis[-1] = 1.0
        return PrivateSum(ScatterProduct(**lifted, basis=basis), self._small_look)

    def _main(self, center: Floats, lift: float, clip: float) -> PrivateSum:
        lifted = self._unit(center) | {"lift": lift, "clip": clip, "normalise": False}
        return PrivateSum(Scatter(**lifted), self._left)

    def _lifted_product(self, center: Floats, lift: float, basis: Floats, share: float) -> PrivateSum:
        beside = np.zeros((basis.shape[0] + 1, basis.shape[1] + 1))
        beside[:-1, :-1], beside[-1, -1] = basis, 1.0
        return PrivateSum(ScatterProduct(**self._unit(center), lift=lift, basis=beside), self._left * share)

    def _matrix(self, center: Floats, damped: Floats | None = None) -> PrivateSum:
        if self.looks == 1:
            return PrivateSum(Scatter(**self._clipped(center)))
        share = _FIRST_LOOK if damped is None else 1 - _FIRST_LOOK
        return PrivateSum(Scatter(**self._clipped(center), projection=damped), share)

    def _product(self, center: Floats, basis: Floats, share: float) -> PrivateSum:
        return PrivateSum(ScatterProduct(**self._clipped(center), basis=basis), share)

    def _clipped(self, center: Floats) -> dict[str, Any]:
        return self._unit(center) | {"clip": self._clip, "normalise": self.normalise}

    def _first_basis(self) -> Floats:
        return first_basis(len(self.columns), self.n_components + self.schedule.extra, self.start)


@dataclass(frozen=True, eq=False)
class _Found:
    """Directions (columns), what the last look holds along them, the end of its noise, how many stand above."""

    vectors: Floats
    values: Floats
    edge: float
    above: int
    release: Release
    center: Floats
    clip: float
    total: float | None = None  # the trace, where it was released


def _along(matrix: Floats, vectors: Floats) -> Floats:
    return np.asarray(np.einsum("ji,jk,ki->i", vectors, matrix, vectors))


def _product_look(column: Floats, noise: float) -> Look:
    """The cross block and the corner of a product with the lifted column; all of its entries have the same noise."""
    return Look(np.empty((0, 0)), column[:-1], float(column[-1]), math.sqrt(2) * noise)
