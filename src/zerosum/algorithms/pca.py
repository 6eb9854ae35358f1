"""Principal components over sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.lifted import Centred, Look, Norms, beyond, choose, standing
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
from zerosum.kernel.threads import at_once
from zerosum.statistics.rounded_scatter import STEP, RoundedScatter
from zerosum.statistics.scatter import Scatter, ScatterColumn, ScatterNorms, ScatterProduct

_FIRST_LOOK = 0.3  # of two looks, the share of the one that tells which directions are strong
_MATRIX_COLUMNS = 2000  # up to here the whole second moment is released
_BINS, _SPAN = 40, 1e-6  # of the norms' histograms: six decades
_FARTHEST = 1e90  # squared norms up to here, clips and lifts that follow from them are parameters that a site takes
_NORMS_SHARE = 0.005  # of each
_TOO_FEW = 113.0  # times the noise of the whole budget: so few units are not worth a search for their centre
_LEAST_LOOK, _MOST_LOOK = 0.03, 0.09  # of the budget of all looks, what half of the small ones may take
_LITTLE, _COLUMN_LOOK = 0.01, 0.015  # where they should take less, they show no spectrum, and take so much each
_MANY_COLUMNS, _ROUNDING = 100, 0.05  # from how many records may be rounded, if that adds less than so much of noise
_FAR, _NEAR = 0.5, 0.015  # squares of the lifts, over the median norm: while the centre moves, and where it stands


class PCA(RangedAlgorithm):
    """The leading eigenvectors of the units' second moment, about their own centre by default.

    Each unit's own matrix is divided by a clip, or by its norm where that is larger, so that no unit weighs more
    than 1. By default (`centering = "auto"`) both are found on the way: `small_looks` at lifted rows (`look_share`
    each) find the centre, histograms of norms the scale, and the clip is the quantile of norms that loses least of
    the spectrum seen so far; what error the centre has left is in the main look itself and is subtracted there (see
    `lifted`). Where a histogram would be lost in noise the whole budget goes to one look about the middle of the
    ranges. With `"ranges"` or `"none"` rows are centred at that middle or at zero, and matrices are divided by
    their own norms (`normalise`), or clipped at `matrix_clip`: by default what rows inside the ranges or the clip
    reach. Rows that are centred within recordings (`per_recording`) need no centre.

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
    """What each of the small looks that find the centre costs, by default the planner's choice."""
    small_looks: Literal[2, 4] | None = None
    """How many there are: two, or four where noise is large, unless given."""
    scaling: Literal["none", "ranges"] = "none"
    shrink: bool = True
    per_recording: Literal["none", "center", "standardise"] = "none"
    normalise: bool = True
    matrix_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    n_passes: Literal[1, 2] | None = None
    rounded: bool | None = None
    """Whether records enter a whole matrix as numbers of 11 bits, which is faster: by default where what that rounds
    away is far less than the noise."""
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
        if self.small_looks == 4 and (self.look_share or 0.0) > 0.125:
            raise ValueError("four small looks may cost 0.125 each, half of the budget together: lower look_share")
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
        if self.finds_centre:
            found = found.model_copy(update=self._planned_looks(facts))
        if self.chosen == "matrix":
            return found if self.rounded is not None else found.model_copy(update={"rounded": self._roundable(facts)})
        whole = facts.noise * math.sqrt(2 / found._left)  # the sensitivity of replacing a unit
        given = self.rounds, self.growth, self.extra
        schedule = best(len(self.columns), self.n_components, facts.units, whole, *given)
        return found.model_copy(update=asdict(schedule))

    def _planned_looks(self, facts: PublicFacts) -> dict[str, Any]:
        """How many small looks there are and what each takes of the budget of all looks: more, the more their noise is
        of what the units add up to, and nothing where even a histogram of norms would be noise. A look brings the
        centre nearer by a factor that grows with its noise, and two of half the share by more than one, unless noise is
        small: then two are enough."""
        units = facts.units or GUESSED_UNITS
        wanted, given = 4 * math.sqrt(len(self.columns)) * facts.noise / units, self.look_share
        many = wanted > _LEAST_LOOK and (given is None or given <= 0.125)
        count = self.small_looks or (4 if many else 2)
        share = min(max(wanted, _LEAST_LOOK), _MOST_LOOK) * 2 / count if _TOO_FEW * facts.noise <= units else 0.0
        share = _COLUMN_LOOK if wanted < _LITTLE and count == 2 else share
        return {"look_share": share if given is None else given, "small_looks": count}

    def _roundable(self, facts: PublicFacts) -> bool:
        """Whether rounding adds little to the noise: to an entry of x x' about sqrt(2/columns) times `STEP` a unit.
        Not of units with many rows, nor of few columns: these cost little, and equal records are rounded alike."""
        units, columns = facts.units or GUESSED_UNITS, len(self.columns)
        little = math.sqrt(2 * units / columns) * STEP < _ROUNDING * math.sqrt(2) * facts.noise
        return little and columns >= _MANY_COLUMNS and self.per_recording == "none"

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
            count = "two" if self._small_looks == 2 else "four"
            return f"{told}; centre and clip from {count} small looks at {small:.3g} and histograms at {_NORMS_SHARE:g}"
        dear = "; about the middle of the ranges, since finding a centre would cost too much"
        return told + (dear if self.finds_centre else "")

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        center = self._first_center
        if self._lifts:
            norms = self._norms(center)
            small = [each for number in range(self._small_looks) for each in (norms, self._small(center, 1.0, number))]
            main = (
                (self._main(center, 1.0, 1.0),)
                if self.chosen == "matrix"
                else tuple(self._lifted_product(center, 1.0, self._first_basis(), s) for s in self.schedule.shares)
            )
            return (*small, norms, *main)
        if self.chosen == "matrix":
            damped = [self._matrix(center, np.zeros((len(self.columns),) * 2))] if self.looks == 2 else []
            return (self._matrix(center), *damped)
        return tuple(self._product(center, self._first_basis(), share) for share in self.schedule.shares)

    def program(self, adjacency: Adjacency) -> Program:
        if self._lifts:
            found = yield from (self._lifted_matrix() if self.chosen == "matrix" else self._lifted_subspace())
        elif self.chosen == "subspace":
            ask = partial(self._product, self._first_center)
            found = yield from self._subspace(ask)
        else:
            found = yield from (self._two_looks() if self.looks == 2 else self._one_look())
        return self._told(found)

    def _one_look(self) -> Generator[Request, Release, _Found]:
        release = yield self._matrix(self._first_center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        vectors = leading(matrix, release.noise_std, self.n_components, shrink=self.shrink)
        edge = matrix_edge(len(matrix), release.noise_std)
        if self.finds_centre:
            above = Look(matrix, np.zeros(len(matrix)), 0.0, release.noise_std).above(self.n_components)
        else:
            falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
            above = standing(falling, release.noise_std, self.n_components)
        total = float(np.trace(matrix))
        return _Found(vectors, _along(matrix, vectors), edge, above, release, self._first_center, self._clip, total)

    def _two_looks(self) -> Generator[Request, Release, _Found]:
        center = self._first_center
        release = yield self._matrix(center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        damped = NoisySpectrum.at(matrix, release.noise_std).damped(self.n_components)
        again = yield self._matrix(center, damped.projection)
        second = coordinates.unpack(again.value, len(self.columns))
        both, noise = together(second, again.noise_std, damped)
        look = NoisySpectrum.at(both, noise)
        span = np.linalg.qr(damped.reconstruction @ look.vectors[:, : self.n_components])[0]
        rising, turn = np.linalg.eigh(span.T @ matrix @ span)
        falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
        found = (falling, release.noise_std), (look.released, noise)
        above = max(standing(values, spread, self.n_components) for values, spread in found)
        edge = matrix_edge(self.n_components, release.noise_std)
        return _Found(
            np.asarray(span @ turn[:, ::-1]), np.asarray(rising[::-1]), edge, above, again, center, self._clip
        )

    def _subspace(
        self,
        ask: Callable[[Floats, float], PrivateSum],
        read: Callable[[Release, Floats], Floats] | None = None,
        counted: float | None = None,
    ) -> Generator[Request, Release, _Found]:
        """`counted` is how many units there are by earlier releases, where that is not public."""
        rounds = subspace_iteration(self._first_basis(), self.schedule.shares, ask, read)
        basis, values, release = yield from rounds
        edge = product_edge(len(self.columns), basis.shape[1], release.noise_std)
        K, units = self.n_components, release.units if release.units is not None else counted
        above = beyond(values[:K], edge, len(self.columns), units or 0.0)
        return _Found(basis[:, :K], values[:K], edge, above, release, self._first_center, self._clip)

    def _centred(self) -> Generator[Request, Release, Centred]:
        """Small looks, each about what is known of the centre by then. A lift is large as long as the centre moves;
        about one that stands histograms are added up."""
        center, square, here, looks, scales = self._first_center, _FAR, [], [], []
        for number in range(self._small_looks):
            here.append((yield self._norms(center)))
            median = self._seen_norms(here).quantile(0.5)
            lift = math.sqrt(square * median)
            release = yield self._small(center, lift, number)
            whole = self._whole(number)
            looks.append((Look.at if whole else Look.at_column)(release.value, len(center), release.noise_std))
            if whole:
                scales.append((median, 1 + square))
            apart = looks[-1].apart(lift)
            if np.any(apart):
                center, square, here = self._moved(center, apart), _FAR, []
            else:
                square = _NEAR
        here.append((yield self._norms(center)))
        norms = self._seen_norms(here)
        middle = norms.quantile(0.5)
        held = np.array([min(middle / median, 1.0) / lifted for median, lifted in scales])
        return Centred(center, looks[-max(len(held), 1) :], held, norms, middle, self._counted(here[-1]))

    def _lifted_matrix(self) -> Generator[Request, Release, _Found]:
        """Small looks, and the main one."""
        columns, K, share = len(self.columns), self.n_components, self.look_share or 0.0
        found = yield from self._centred()
        square, left = _NEAR * found.middle, 1 - self._small_looks * share
        lift = math.sqrt(square)
        choice = choose(found.looks[-1], found.norms, square, found.held, share, left, found.units, K)
        release = yield self._main(found.center, lift, choice.clip)
        look = Look.at(release.value, columns, release.noise_std)
        matrix, noise = look.corrected(), look.noise
        mixed, spread = matrix, noise
        if choice.mixed:
            weights = np.append(share * found.held, left * choice.kept)
            weights /= np.sum(weights)
            mixed = weights[-1] * matrix
            for weight, each in zip(weights, found.looks, strict=False):
                mixed += weight * each.corrected()
            spread = float(np.linalg.norm(weights * [*(each.noise for each in found.looks), noise]))
        above, vectors = at_once(partial(look.above, K), partial(leading, mixed, spread, K, shrink=self.shrink))
        center = self._moved(found.center, look.apart(lift))
        if above < K:
            vectors = look.with_known(vectors, center / self.scale)
        clip = choice.clip if choice.quantile else 1.0
        edge, total = matrix_edge(columns, noise), float(np.trace(matrix))
        return _Found(vectors, _along(matrix, vectors), edge, above, release, center, clip, total)

    def _lifted_subspace(self) -> Generator[Request, Release, _Found]:
        """The same with products: small looks are at the lifted column only, and rounds have it beside the basis."""
        columns = len(self.columns)
        known = yield from self._centred()
        lift = math.sqrt(_NEAR * known.middle)

        def read(release: Release, basis: Floats) -> Floats:
            product = release.value.reshape(columns + 1, -1)
            look = Look.at_column(product[:, -1], columns, release.noise_std)
            return look.corrected_product(product[:-1, :-1], basis)

        found = yield from self._subspace(partial(self._lifted_product, known.center, lift), read, known.units)
        return replace(found, center=known.center)

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
    def _moment(self) -> type[Scatter]:
        return RoundedScatter if self.rounded else Scatter

    @property
    def _small_looks(self) -> int:
        return self.small_looks or 2

    def _whole(self, number: int) -> bool:
        """Whether a small look is at the whole matrix: all of four, to be added to the main one, and the last of two,
        which tells the spectrum, unless it gets little. Others are at the lifted column, which takes no product."""
        told = self._small_looks == 4 or (number == 1 and (self.look_share or _LEAST_LOOK) > _COLUMN_LOOK)
        return self.chosen == "matrix" and told

    @property
    def _looks_share(self) -> float:
        """What the histograms leave."""
        return 1 - (self._small_looks + 1) * _NORMS_SHARE

    @property
    def _small_look(self) -> float:
        return self._looks_share * (_LEAST_LOOK if self.look_share is None else self.look_share)

    @property
    def _left(self) -> float:
        """What is left for the main look or its rounds."""
        return self._looks_share - self._small_looks * self._small_look if self._lifts else 1.0

    @property
    def _clip(self) -> float:
        """The clip, as far as it is known beforehand; no sensitivity depends on it."""
        return 1.0 if self.normalise else self.matrix_clip or self.reach

    @property
    def _bins(self) -> dict[str, Any]:
        return {"lowest": _SPAN * self.reach, "highest": self.reach, "bins": _BINS}

    def _seen_norms(self, releases: Sequence[Release]) -> Norms:
        """By the mean of histograms about one centre."""
        counts = np.mean([each.value for each in releases], axis=0)
        return Norms.at(np.geomspace(_SPAN * self.reach, self.reach, _BINS + 1), counts, releases[-1].units)

    def _counted(self, release: Release) -> float:
        return max(release.units if release.units is not None else float(np.sum(release.value)), 1.0)

    def _moved(self, center: Floats, apart: Floats) -> Floats:
        """A centre moved as far as a look says, no further than the ranges are wide, or than the clip reaches."""
        step = apart * self.scale
        if self.lower is not None:
            return center + np.clip(step, -2 * self.half, 2 * self.half)
        center = center + step
        return np.asarray(center * min(1.0, self.radius / max(float(np.linalg.norm(center)), 1e-300)))

    def _norms(self, center: Floats) -> PrivateSum:
        return PrivateSum(ScatterNorms(**self._unit(center), **self._bins), _NORMS_SHARE)

    def _small(self, center: Floats, lift: float, number: int) -> PrivateSum:
        """Lifted rows, each divided by its own norm."""
        kind = self._moment if self._whole(number) else ScatterColumn
        return PrivateSum(kind(**self._unit(center), lift=lift), self._small_look)

    def _main(self, center: Floats, lift: float, clip: float) -> PrivateSum:
        lifted = self._unit(center) | {"lift": lift, "clip": clip, "normalise": False}
        return PrivateSum(self._moment(**lifted), self._left)

    def _lifted_product(self, center: Floats, lift: float, basis: Floats, share: float) -> PrivateSum:
        beside = np.zeros((basis.shape[0] + 1, basis.shape[1] + 1))
        beside[:-1, :-1], beside[-1, -1] = basis, 1.0
        return PrivateSum(ScatterProduct(**self._unit(center), lift=lift, basis=beside), self._left * share)

    def _matrix(self, center: Floats, damped: Floats | None = None) -> PrivateSum:
        if self.looks == 1:
            return PrivateSum(self._moment(**self._clipped(center)))
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
    return np.asarray(np.sum(vectors * (matrix @ vectors), axis=0))
