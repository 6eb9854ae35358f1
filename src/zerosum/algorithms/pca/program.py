"""Principal components over sites: the program that makes the releases and assembles the estimate.

Symbols
-------
D, K, n
    Numbers of columns, of components and of units.
Z_i (D x D)
    Matrix of unit i: the mean of z z' over its rows, with z a row less a public centre, over a public scale.
c
    The clip. A unit contributes Z_i/max(c, norm(Z_i)), with the Frobenius norm, or Z_i/norm(Z_i) if matrices are
    normalised. Its norm is at most 1 either way, so no sensitivity depends on c.
S(w)
    Standard deviation of the noise of a sum of sensitivity 1 that takes the share w of the budget: S(1)/sqrt(w).

What is released
----------------
All contributions are positive semidefinite with norm at most 1. Replacing one unit therefore moves a matrix, or its
product with an orthonormal basis, by at most sqrt(2), and a single column of it by at most 1 (`statistics.scatter`).

=====================  ==============================================================  ====================
path                   releases, in order                                              shares
=====================  ==============================================================  ====================
centre and clip found  per centring round: histogram of norms, small release of        `_NORMS_SHARE` each;
(`_lifts`), matrix     augmented rows; then a histogram and the main release           `_small_look`; `_left`
centre and clip found  the same; instead of the main release, rounds of products       `_left` times
(`_lifts`), subspace                                                                   `schedule.shares`
public centre, matrix  one matrix; or, with two passes, a matrix and one in damped     1; or `_FIRST_LOOK`
                       coordinates                                                     and the rest
public centre,         rounds of products                                              `schedule.shares`
subspace
=====================  ==============================================================  ====================

Everything else is post-processing and costs no privacy: the choice of centre and clip (`lifted`), the correction of
eigenvalues and vectors for noise (`spectral`), and the planner's choices (`resolve`, `schedule`), which depend on
public facts only.

References: docs/pca.md (releases, the split of the budget, benchmarks); H. Imtiaz and A. D. Sarwate, capePCA, for the
published form that docs/pca.md compares with; `lifted` and `spectral` for the statistics.

Words: a "look" in names and parameters is one release of second moments, a "lift" the constant that is appended to
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.pca.centering import AugmentedMoments, Centred, Norms, beyond, choose, standing
from zerosum.algorithms.pca.spectrum import (
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
from zerosum.algorithms.pca.subspace import GUESSED_UNITS, Schedule, best
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.compute.threads import at_once
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.rounded_scatter import STEP, RoundedScatter
from zerosum.statistics.scatter import Scatter, ScatterColumn, ScatterNorms, ScatterProduct

# Share of the budget that the first of two passes takes; the second takes the rest. Chosen by hand. docs/pca.md (ABIDE,
# walkers) compares two passes with one, not other shares.
_FIRST_LOOK = 0.3

# Largest number of columns for which `solver = "auto"` releases the whole matrix (2 million numbers). Chosen by hand;
# no benchmark recorded.
_MATRIX_COLUMNS = 2000

# Histograms of norms: number of bins, and the lowest edge as a fraction of the largest possible norm. Six decades in
# steps of a factor of 1.4. Chosen by hand; no benchmark recorded.
_BINS, _SPAN = 40, 1e-6

# Largest (and, inverted, smallest) squared norm of a row. Clips and lifts that follow from it stay within the limits of
# the parameters of a statistic (`kernel.statistic`). Chosen by hand.
_FARTHEST = 1e90

# Share of the budget of each histogram of norms. Chosen by hand; the prototype had 0.01. No benchmark recorded.
_NORMS_SHARE = 0.005

# Fewest units for a search of the centre, in multiples of S(1). A histogram of share 0.01 and sensitivity sqrt(2) has
# noise sqrt(2) S(0.01) = 14.1 S(1) per bin; n must be at least 8 times that. The factor 8 was chosen by hand.
_TOO_FEW = 113.0

# Limits of the share of half of the small releases, of the budget of all releases but the histograms. Tuned by hand on
# the data of docs/pca.md; no sweep recorded.
_LEAST_LOOK, _MOST_LOOK = 0.03, 0.09

# If the formula for that share gives less than `_LITTLE`, small releases hold the last column only and take
# `_COLUMN_LOOK` each. The captured energy falls by at most 0.002 on the data of docs/pca.md ("The split"; 0.026 if
# ranges are 3000 times too wide), and messages are half as long.
_LITTLE, _COLUMN_LOOK = 0.01, 0.015

# Records are rounded to 11 bits from this many columns, if the rounding adds less than this fraction of the noise.
# Chosen by hand: with fewer columns the products are cheap (docs/pca.md, "Whole numbers").
_MANY_COLUMNS, _ROUNDING = 100, 0.05

# a^2, the square of the lift, over the median norm: while the centre moves, and once it has converged. A large lift
# gives an accurate mean, and takes a part of each unit's norm from its second moment. Tuned by hand on the data of
# docs/pca.md; no sweep recorded.
_FAR, _NEAR = 0.5, 0.015


class PCAProgram(RangedAlgorithm):
    """The leading eigenvectors of the units' second moment, by default about the units' own centre.

    Each unit's matrix is divided by a clip, or by its norm if that is larger, so that no unit weighs more than 1.

    Centre and clip. With `centering = "auto"` both are estimated from releases. `small_looks` releases of augmented
    rows (`look_share` each) give the centre. Histograms of norms give the scale. The clip is the quantile of the norms
    with the smallest predicted loss. The remaining error of the centre is contained in the main release and subtracted
    there (see `lifted`). If the noise of a histogram would be too large, the whole budget goes to one release about the
    middle of the ranges. With `"ranges"` or `"none"` rows are centred at the middle of the ranges or at zero. Matrices
    are then divided by their own norms (`normalise`), or clipped at `matrix_clip`, which is by default the largest norm
    of rows inside the ranges or the clip. Rows that are centred within recordings (`per_recording`) need no centre.

    Solver. Up to 2000 columns the matrix itself is released, in isometric coordinates. Columns below the noise get
    small weights before the decomposition (`shrink`, post-processing). With two `n_passes`, the default for units with
    many rows (`per_recording`), the second release is taken in coordinates in which the strong directions of the first
    are damped, so that weaker ones exceed the noise (see `spectral`). Beyond 2000 columns, rounds of subspace iteration
    release the product of the matrix with the current basis, and no square matrix is formed. The planner chooses the
    number of rounds (`rounds`), the ratio of the last share to the first (`growth`) and the number of additional
    columns of the basis (`extra`), unless they are given.

    Results:

    - `components` (K x D): one component a row, its largest entry positive.
    - `eigenvalues` (K): of the mean of the units' matrices, corrected for noise; zero from `above_noise` on. If the
      number of units is not public, of the sum instead of the mean.
    - `eigenvalue_std` (K): standard deviation of the noise in each eigenvalue.
    - `noise_edge`: the largest eigenvalue of pure noise.
    - `above_noise`: the number of components that exceed both the noise and the spectrum of isotropic units.
    - `mean`, `scale` (D): the centre that was subtracted from each column, and the divisor after that (half the public
      range with `scaling = "ranges"`, else 1).
    - `matrix_clip`: the clip; 1 if matrices were normalised.
    - `total`: the trace of the matrix, the sum of all eigenvalues; only if the whole matrix was released in one pass.
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
        """Whether the centre is to be estimated from releases."""
        return self.centering == "auto" and self.per_recording == "none"

    @property
    def chosen(self) -> str:
        """The solver that runs."""
        if self.solver != "auto":
            return self.solver
        return "matrix" if len(self.columns) <= _MATRIX_COLUMNS else "subspace"

    @property
    def looks(self) -> int:
        """Number of passes: as given, or two for units with many rows, which `per_recording` indicates."""
        return self.n_passes or (
            2 if self.per_recording != "none" and self.normalise and self.chosen == "matrix" else 1
        )

    @property
    def reach(self) -> float:
        """Largest Frobenius norm of a unit's matrix, for rows inside the public ranges or, without them, the clip.

        For rows z it is the largest |z|^2, since the norm of a mean of z z' is at most the mean of |z|^2.
        """
        # Standardised columns have variance 1, so the trace is D, and no norm exceeds the trace.
        if self.per_recording == "standardise":
            return float(len(self.columns))
        if self.lower is None or self.upper is None:
            return self.radius**2
        far = np.maximum(np.abs(self.lower), np.abs(self.upper)) if self.centering == "none" else self.half
        return float(np.sum((far / self.scale) ** 2))

    @property
    def scale(self) -> Floats:
        """Divisor of each column, of shape (D,)."""
        return self.half if self.scaling == "ranges" else np.ones(len(self.columns))

    @property
    def schedule(self) -> Schedule:
        """The rounds of the subspace solver: what is given or resolved, else the defaults of `Schedule`."""
        given = {"rounds": self.rounds, "growth": self.growth, "extra": self.extra}
        schedule = Schedule(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        return replace(schedule, extra=min(schedule.extra, len(self.columns) - self.n_components))

    def resolve(self, facts: PublicFacts) -> Self:
        found = self
        if self.finds_centre:
            found = found.model_copy(update=self._planned_looks(facts))
        if self.chosen == "matrix":
            return found if self.rounded is not None else found.model_copy(update={"rounded": self._roundable(facts)})
        # Noise of one product that takes all of the share `_left`: replacing a unit moves a product by sqrt(2).
        whole = facts.noise * math.sqrt(2 / found._left)
        given = self.rounds, self.growth, self.extra
        schedule = best(len(self.columns), self.n_components, facts.units, whole, *given)
        return found.model_copy(update=asdict(schedule))

    def _planned_looks(self, facts: PublicFacts) -> dict[str, Any]:
        """Number and share of the centring releases, as updates of the fields `small_looks` and `look_share`.

        A release shows directions that hold more than about sqrt(2) S(w) sqrt(D/2) = sqrt(D) S(w) of the n units (half
        the edge of its noise). So the share grows with sqrt(D) S(1)/n. The factor 4 was tuned by hand. If the noise is
        large, four releases of half the share locate the centre better than two: each divides the distance to the
        centre by a factor. If the noise is small, two are enough.
        """
        units = facts.units or GUESSED_UNITS
        wanted, given = 4 * math.sqrt(len(self.columns)) * facts.noise / units, self.look_share
        # Four releases of a given share above 0.125 would take more than half of the budget; the validator refuses
        # them.
        many = wanted > _LEAST_LOOK and (given is None or given <= 0.125)
        count = self.small_looks or (4 if many else 2)
        share = min(max(wanted, _LEAST_LOOK), _MOST_LOOK) * 2 / count if _TOO_FEW * facts.noise <= units else 0.0
        share = _COLUMN_LOOK if wanted < _LITTLE and count == 2 else share
        return {"look_share": share if given is None else given, "small_looks": count}

    def _roundable(self, facts: PublicFacts) -> bool:
        """Whether rounding records to 11 bits adds a negligible error.

        Rounding adds a standard deviation of about sqrt(2 n/D) `STEP` to an entry of the sum; the noise of a release
        that takes the whole budget is sqrt(2) S(1). Units with many rows are not rounded. Neither are few columns:
        products are cheap there, and equal records, which are more frequent with few columns, have equal rounding
        errors.
        """
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
        """One release of the whole matrix about a public centre, with the whole budget."""
        release = yield self._matrix(self._first_center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        vectors = leading(matrix, release.noise_std, self.n_components, shrink=self.shrink)
        edge = matrix_edge(len(matrix), release.noise_std)
        # If the centre should have been found and was too expensive, one large eigenvalue may belong to the mean. A
        # corner of 0 makes `Look.above` subtract one from the count.
        if self.finds_centre:
            above = AugmentedMoments(matrix, np.zeros(len(matrix)), 0.0, release.noise_std).above(self.n_components)
        else:
            falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
            above = standing(falling, release.noise_std, self.n_components)
        total = float(np.trace(matrix))
        return _Found(vectors, _along(matrix, vectors), edge, above, release, self._first_center, self._clip, total)

    def _two_looks(self) -> Generator[Request, Release, _Found]:
        """Two releases: the matrix, and the matrix in coordinates in which its strong directions are damped."""
        center = self._first_center
        release = yield self._matrix(center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        damped = NoisySpectrum.at(matrix, release.noise_std).damped(self.n_components)
        again = yield self._matrix(center, damped.projection)
        second = coordinates.unpack(again.value, len(self.columns))
        both, noise = together(second, again.noise_std, damped)
        look = NoisySpectrum.at(both, noise)
        # The components span the K leading directions of both releases, mapped back to the columns and orthonormalised.
        span = np.linalg.qr(damped.reconstruction @ look.vectors[:, : self.n_components])[0]
        # Order and eigenvalues come from the first release: the second has other norms, so its scale is not that of Z.
        rising, turn = np.linalg.eigh(span.T @ matrix @ span)
        falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
        found = (falling, release.noise_std), (look.released, noise)
        # A component that either test shows counts. Both together gave no false alarm in the isotropic runs of
        # docs/pca.md.
        above = max(standing(values, spread, self.n_components) for values, spread in found)
        # Noise of the K x K matrix span' A span. The edge of order K treats the span as independent of the first
        # release, which holds only approximately.
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
        """Rounds of subspace iteration.

        Parameters
        ----------
        ask : callable
            Makes the request of a round from a basis (D x (K + extra)) and the share of the round.
        read : callable, optional
            Makes the product (D x (K + extra)) from a release and its basis; by default the release is the product.
        counted : float, optional
            The number of units by earlier releases, used where it is not public.
        """
        rounds = subspace_iteration(self._first_basis(), self.schedule.shares, ask, read)
        basis, values, release = yield from rounds
        edge = product_edge(len(self.columns), basis.shape[1], release.noise_std)
        K, units = self.n_components, release.units if release.units is not None else counted
        above = beyond(values[:K], edge, len(self.columns), units or 0.0)
        return _Found(basis[:, :K], values[:K], edge, above, release, self._first_center, self._clip)

    def _centred(self) -> Generator[Request, Release, Centred]:
        """The centring rounds. Each releases a histogram of norms and then augmented rows, both about the current
        centre.

        Lists: `here` has the histograms about the current centre, `looks` all releases of augmented rows, `scales` the
        median norm and 1 + a^2/median of those that hold the whole matrix. `square` is a^2 over the median norm.
        """
        center, square, here, looks, scales = self._first_center, _FAR, [], [], []
        for number in range(self._small_looks):
            here.append((yield self._norms(center)))
            # Histograms about the same centre are averaged: each has fresh noise.
            median = self._seen_norms(here).quantile(0.5)
            lift = math.sqrt(square * median)
            release = yield self._small(center, lift, number)
            whole = self._whole(number)
            looks.append(
                (AugmentedMoments.at if whole else AugmentedMoments.at_column)(
                    release.value, len(center), release.noise_std
                )
            )
            if whole:
                scales.append((median, 1 + square))
            # If the centre moves, the histograms no longer apply, and the lift is large for an accurate mean. If the
            # mean is not significant, the centre has converged: a small lift leaves more of the norm to the second
            # moment.
            apart = looks[-1].apart(lift)
            if np.any(apart):
                center, square, here = self._moved(center, apart), _FAR, []
            else:
                square = _NEAR
        here.append((yield self._norms(center)))
        norms = self._seen_norms(here)
        middle = norms.quantile(0.5)
        # Mean fraction of a unit's norm about the final centre in each centring release. A unit was divided by its norm
        # about an earlier centre (`median` instead of `middle`) and by the part of the lift (1 + a^2/median).
        held = np.array([min(middle / median, 1.0) / lifted for median, lifted in scales])
        return Centred(center, looks[-max(len(held), 1) :], held, norms, middle, self._counted(here[-1]))

    def _lifted_matrix(self) -> Generator[Request, Release, _Found]:
        """Centring rounds, then the main release of the whole matrix at the chosen clip."""
        columns, K, share = len(self.columns), self.n_components, self.look_share or 0.0
        found = yield from self._centred()
        square, left = _NEAR * found.middle, 1 - self._small_looks * share
        lift = math.sqrt(square)
        choice = choose(found.looks[-1], found.norms, square, found.held, share, left, found.units, K)
        release = yield self._main(found.center, lift, choice.clip)
        look = AugmentedMoments.at(release.value, columns, release.noise_std)
        matrix, noise = look.corrected(), look.noise
        # The components may come from a mean of all releases. Eigenvalues always come from the main release, whose clip
        # they refer to.
        mixed, spread = matrix, noise
        if choice.mixed:
            # A release of mean contribution f and noise variance proportional to 1/share gets the weight share f, which
            # maximises the ratio of signal to noise.
            weights = np.append(share * found.held, left * choice.kept)
            weights /= np.sum(weights)
            mixed = weights[-1] * matrix
            for weight, each in zip(weights, found.looks, strict=False):  # the last weight is the main release's
                mixed += weight * each.corrected()
            # Independent noise: variances add with squared weights.
            spread = float(np.linalg.norm(weights * [*(each.noise for each in found.looks), noise]))
        above, vectors = at_once(partial(look.above, K), partial(leading, mixed, spread, K, shrink=self.shrink))
        center = self._moved(found.center, look.apart(lift))
        # If fewer than K components exceed the noise, the last one may be noise: the direction of the mean may be
        # better.
        if above < K:
            vectors = look.with_known(vectors, center / self.scale)
        clip = choice.clip if choice.quantile else 1.0
        edge, total = matrix_edge(columns, noise), float(np.trace(matrix))
        return _Found(vectors, _along(matrix, vectors), edge, above, release, center, clip, total)

    def _lifted_subspace(self) -> Generator[Request, Release, _Found]:
        """Centring rounds on the last column alone, then rounds of products.

        Each product has the last column of the augmented matrix as its own last column, for the correction of the mean.
        The reported centre is that of the centring rounds; the correction by the last product is not added to it.
        """
        columns = len(self.columns)
        known = yield from self._centred()
        lift = math.sqrt(_NEAR * known.middle)

        def read(release: Release, basis: Floats) -> Floats:
            # (D + 1) x (width + 1): the product M Q above left, and v and W in the last column.
            product = release.value.reshape(columns + 1, -1)
            look = AugmentedMoments.at_column(product[:, -1], columns, release.noise_std)
            return look.corrected_product(product[:-1, :-1], basis)

        found = yield from self._subspace(partial(self._lifted_product, known.center, lift), read, known.units)
        return replace(found, center=known.center)

    def _told(self, found: _Found) -> Estimate:
        """The estimate from what was found. Without public n, `worth` leaves eigenvalues as sums over the units."""
        # A contribution is a matrix over the clip, so a mean over units is the sum times clip/n.
        release, worth = found.release, found.clip / (found.release.units if found.release.units is not None else 1.0)
        # Without noise all components count.
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
            # A trace is the sum of D diagonal entries with independent noise.
            spread = release.noise_std * worth * math.sqrt(len(self.columns))
            told["total"] = Quantity(np.array([found.total * worth]), "diagnostic", std=np.array([spread]))
        return told

    def _unit(self, center: Floats) -> dict[str, Any]:
        """Parameters of `UnitMoment` about `center`, of shape (D,). A scale of ones is left out of the request."""
        scale = {"scale": self.scale} if self.scaling != "none" else {}
        unit = {"columns": len(self.columns), "center": center, "per_recording": self.per_recording}
        return unit | scale | self.filling

    @property
    def _first_center(self) -> Floats:
        """The public centre before any release, of shape (D,)."""
        return self.middle if self.centering != "none" else np.zeros(len(self.columns))

    @property
    def _lifts(self) -> bool:
        """Whether there are centring rounds. A share of 0 means that the planner found them too expensive."""
        return self.finds_centre and self.look_share != 0

    @property
    def _moment(self) -> type[Scatter]:
        """The statistic of a whole matrix."""
        return RoundedScatter if self.rounded else Scatter

    @property
    def _small_looks(self) -> int:
        """Number of centring rounds, two unless resolved otherwise."""
        return self.small_looks or 2

    def _whole(self, number: int) -> bool:
        """Whether centring round `number` (from 0) releases the whole matrix, rather than the last column.

        With four rounds all do, since they may be added to the main release. With two only the last does, for the
        spectrum by which the clip is chosen, and only if its share exceeds `_COLUMN_LOOK`. A column costs a site no
        matrix product. The subspace solver always takes the column.
        """
        told = self._small_looks == 4 or (number == 1 and (self.look_share or _LEAST_LOOK) > _COLUMN_LOOK)
        return self.chosen == "matrix" and told

    @property
    def _looks_share(self) -> float:
        """Share of the budget of all releases but the histograms, of which there is one more than centring rounds."""
        return 1 - (self._small_looks + 1) * _NORMS_SHARE

    @property
    def _small_look(self) -> float:
        """Share of the whole budget of one small release; `look_share` is a share of `_looks_share`."""
        return self._looks_share * (_LEAST_LOOK if self.look_share is None else self.look_share)

    @property
    def _left(self) -> float:
        """Share of the whole budget of the main release, or of all rounds of the subspace solver."""
        return self._looks_share - self._small_looks * self._small_look if self._lifts else 1.0

    @property
    def _clip(self) -> float:
        """The clip of paths with a public centre; 1 if matrices are normalised. No sensitivity depends on it."""
        return 1.0 if self.normalise else self.matrix_clip or self.reach

    @property
    def _bins(self) -> dict[str, Any]:
        """Parameters of the histogram of norms."""
        return {"lowest": _SPAN * self.reach, "highest": self.reach, "bins": _BINS}

    def _seen_norms(self, releases: Sequence[Release]) -> Norms:
        """Distribution of the norms from the mean of histograms about one centre."""
        counts = np.mean([each.value for each in releases], axis=0)
        return Norms.at(np.geomspace(_SPAN * self.reach, self.reach, _BINS + 1), counts, releases[-1].units)

    def _counted(self, release: Release) -> float:
        """Number of units: public, or the sum of a noisy histogram; at least 1, as it is a divisor."""
        return max(release.units if release.units is not None else float(np.sum(release.value)), 1.0)

    def _moved(self, center: Floats, apart: Floats) -> Floats:
        """The centre moved by `apart`, the mean in scaled units; both of shape (D,).

        Noise must not carry the centre away. With ranges each step is at most the width of the range in each column.
        Without ranges the centre stays inside the clip.
        """
        step = apart * self.scale
        if self.lower is not None:
            return center + np.clip(step, -2 * self.half, 2 * self.half)
        center = center + step
        return np.asarray(center * min(1.0, self.radius / max(float(np.linalg.norm(center)), 1e-300)))

    def _norms(self, center: Floats) -> PrivateSum:
        """Request of a histogram of the norms of the units' matrices about `center`."""
        return PrivateSum(ScatterNorms(**self._unit(center), **self._bins), _NORMS_SHARE)

    def _small(self, center: Floats, lift: float, number: int) -> PrivateSum:
        """Request of centring round `number`: augmented rows, each unit's matrix divided by its own norm."""
        kind = self._moment if self._whole(number) else ScatterColumn
        return PrivateSum(kind(**self._unit(center), lift=lift), self._small_look)

    def _main(self, center: Floats, lift: float, clip: float) -> PrivateSum:
        """Request of the main release: augmented rows, each unit's matrix divided by max(clip, its norm)."""
        lifted = self._unit(center) | {"lift": lift, "clip": clip, "normalise": False}
        return PrivateSum(self._moment(**lifted), self._left)

    def _lifted_product(self, center: Floats, lift: float, basis: Floats, share: float) -> PrivateSum:
        """Request of a round of products with augmented rows; `share` is a share of what the centring leaves."""
        # The augmented basis is block-diagonal: `basis` (D x width) and a 1 for the lift, still orthonormal.
        beside = np.zeros((basis.shape[0] + 1, basis.shape[1] + 1))
        beside[:-1, :-1], beside[-1, -1] = basis, 1.0
        return PrivateSum(ScatterProduct(**self._unit(center), lift=lift, basis=beside), self._left * share)

    def _matrix(self, center: Floats, damped: Floats | None = None) -> PrivateSum:
        """Request of a whole matrix about a public centre: the only one, the first of two, or the second, which has
        its projection in `damped` (D x D)."""
        if self.looks == 1:
            return PrivateSum(self._moment(**self._clipped(center)))
        share = _FIRST_LOOK if damped is None else 1 - _FIRST_LOOK
        return PrivateSum(Scatter(**self._clipped(center), projection=damped), share)

    def _product(self, center: Floats, basis: Floats, share: float) -> PrivateSum:
        """Request of a round of products about a public centre."""
        return PrivateSum(ScatterProduct(**self._clipped(center), basis=basis), share)

    def _clipped(self, center: Floats) -> dict[str, Any]:
        """Parameters of `Scatter` about a public centre."""
        return self._unit(center) | {"clip": self._clip, "normalise": self.normalise}

    def _first_basis(self) -> Floats:
        """The public first basis, D x (K + extra)."""
        return first_basis(len(self.columns), self.n_components + self.schedule.extra, self.start)


@dataclass(frozen=True, eq=False)
class _Found:
    """What a path found, in sums over units of contributions of norm at most 1."""

    vectors: Floats  # D x K, one component a column
    values: Floats  # (K), noisy eigenvalues along them
    edge: float  # largest eigenvalue of pure noise
    above: int  # number of components above the noise
    release: Release  # the last release, for its noise and its number of units
    center: Floats  # (D)
    clip: float  # 1 if matrices were normalised
    total: float | None = None  # the trace, where the whole matrix was released


def _along(matrix: Floats, vectors: Floats) -> Floats:
    """The quadratic forms v'A v along each column v of `vectors` (D x K), with A = `matrix` (D x D)."""
    return np.asarray(np.sum(vectors * (matrix @ vectors), axis=0))
