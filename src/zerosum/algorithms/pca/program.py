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

=====================  ==========================================================  =================================
path                   releases, in order                                          shares
=====================  ==========================================================  =================================
centre and clip found  per centring round: a histogram of norms and a centring     `TUNING.histogram_share` each;
(`_has_centring`),     release of augmented rows; then a histogram and the main    `_centring_share` each;
matrix                 release                                                     `_main_share`
centre and clip found  the same; instead of the main release, rounds of products   `_main_share` times
(`_has_centring`),                                                                 `schedule.shares`
subspace
public centre, matrix  one matrix; or, with two passes, a matrix and one in        1; or `TUNING.first_pass_share`
                       damped coordinates                                          and the rest
public centre,         rounds of products                                          `schedule.shares`
subspace
=====================  ==========================================================  =================================

Everything else is post-processing and costs no privacy: the choice of centre and clip (`centering`), the correction
of eigenvalues and vectors for noise (`spectrum`), and the planner's choices (`resolve`, `subspace`), which depend on
public facts only. All tuned constants are in `tuning`.

References: docs/pca.md (releases, the split of the budget, benchmarks); H. Imtiaz and A. D. Sarwate, capePCA, for the
published form that docs/pca.md compares with; `centering` and `spectrum` for the statistics.

Words: the centring releases find the centre, the main release the components. The fields `small_looks` and `look_share`
of study files are the number of centring rounds and the share of each centring release. "Lift" is the constant a that
is appended to rows (`centering`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.pca.centering import (
    AugmentedMoments,
    CentringResult,
    Norms,
    choose_clip,
    count_components,
    count_product_components,
)
from zerosum.algorithms.pca.spectrum import (
    NoisySpectrum,
    combine_releases,
    debiased,
    first_basis,
    leading_vectors,
    matrix_edge,
    product_edge,
    signs,
    subspace_iteration,
)
from zerosum.algorithms.pca.subspace import GUESSED_UNITS, Schedule, choose_schedule
from zerosum.algorithms.pca.tuning import TUNING
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.compute.threads import at_once
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.rounded_scatter import STEP, RoundedScatter
from zerosum.statistics.scatter import Scatter, ScatterColumn, ScatterNorms, ScatterProduct


class PCAProgram(RangedAlgorithm):
    """The leading eigenvectors of the units' second moment, by default about the units' own centre.

    Each unit's matrix is divided by a clip, or by its norm if that is larger, so that no unit weighs more than 1.

    Centre and clip. With `centering = "auto"` both are estimated from releases. `small_looks` releases of augmented
    rows (`look_share` each) give the centre. Histograms of norms give the scale. The clip is the quantile of the norms
    with the smallest predicted loss. The remaining error of the centre is contained in the main release and subtracted
    there (see `centering`). If the noise of a histogram would be too large, the whole budget goes to one release about
    the middle of the ranges. With `"ranges"` or `"none"` rows are centred at the middle of the ranges or at zero.
    Matrices are then divided by their own norms (`normalise`), or clipped at `matrix_clip`, which is by default the
    largest norm of rows inside the ranges or the clip. Rows that are centred within recordings (`per_recording`) need
    no centre.

    Solver. Up to 2000 columns the matrix itself is released, in isometric coordinates. Columns below the noise get
    small weights before the decomposition (`shrink`, post-processing). With two `n_passes`, the default for units with
    many rows (`per_recording`), the second release is taken in coordinates in which the strong directions of the first
    are damped, so that weaker ones exceed the noise (see `spectrum`). Beyond 2000 columns, rounds of subspace iteration
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

    Parameters
    ----------
    n_components : int
        K.
    centering : {"auto", "ranges", "none"}
        Where rows are centred: at a released centre, at the middle of the ranges, or at zero.
    look_share, small_looks
        Share and number of the centring releases; the planner's choice if not given.
    scaling : {"none", "ranges"}
        With "ranges" each column is divided by half its public range.
    shrink : bool
        Whether columns below the noise get small weights before the decomposition.
    per_recording : {"none", "center", "standardise"}
        Bring each column of each recording to mean zero, and with "standardise" to variance one.
    normalise : bool
        Whether each unit's matrix is divided by its own norm, with a public centre.
    matrix_clip : float, optional
        c, with a public centre and without `normalise`.
    n_passes : {1, 2}, optional
        Releases of the matrix, with a public centre.
    rounded : bool, optional
        Whether records are rounded to 11 bits.
    solver : {"auto", "matrix", "subspace"}
        Release of the whole matrix, or of its products with a basis.
    rounds, growth, extra
        The subspace solver; the planner's choice if not given.
    start : int
        Public seed.
    columns, lower, upper, clip, missing
        As for `RangedAlgorithm`.
    """

    name: ClassVar[str] = "pca"
    n_components: int = Field(gt=0)
    centering: Literal["auto", "ranges", "none"] = "auto"
    look_share: float | None = Field(default=None, ge=0, le=0.25)
    """Share of each centring release, of the budget of all releases but the histograms; by default the planner's
    choice."""
    small_looks: Literal[2, 4] | None = None
    """Number of centring rounds: by default two, or four if the noise is large."""
    scaling: Literal["none", "ranges"] = "none"
    shrink: bool = True
    per_recording: Literal["none", "center", "standardise"] = "none"
    normalise: bool = True
    matrix_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    n_passes: Literal[1, 2] | None = None
    rounded: bool | None = None
    """Whether records are rounded to 11 bits before a whole matrix is formed, which is faster. By default they are if
    the rounding error is far below the noise."""
    solver: Literal["auto", "matrix", "subspace"] = "auto"
    rounds: int | None = Field(default=None, gt=0)
    growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Subspace solver: share of the last round over that of the first; by default the planner's choice."""
    extra: int | None = Field(default=None, ge=0)
    """Subspace solver: number of columns of the basis beyond the components; by default the planner's choice."""
    start: int = 0
    """Seed of the public first basis. It seeds no noise."""

    @model_validator(mode="after")
    def _validate(self) -> Self:
        """Refuse parameters of one path beside another: each of them would have no effect, without a message."""
        if self.n_components > len(self.columns):
            raise ValueError(
                f"n_components must be at most {len(self.columns)}, the number of columns, got {self.n_components}"
            )
        if self.scaling == "ranges" and not (self.lower is not None and np.all(self.half > 0)):
            raise ValueError("scaling by ranges needs a public range of positive width for every column")
        if self.normalise and self.matrix_clip is not None:
            raise ValueError(
                "matrix_clip bounds matrices that are not normalised: set normalise to false, or leave matrix_clip out"
            )
        if self.finds_centre and not self.normalise:
            raise ValueError(
                "centering = 'auto' estimates the clip: leave normalise out, or set centering to 'ranges' or 'none'"
            )
        if self.finds_centre and not 1 / TUNING.norm_limit <= self.reach <= TUNING.norm_limit:
            limits = f"{1 / TUNING.norm_limit:g} to {TUNING.norm_limit:g}"
            raise ValueError(
                f"rows inside the ranges or the clip must reach a squared norm of {limits}, got {self.reach:g}: "
                "widen or narrow them, or set centering to 'ranges' or 'none'"
            )
        most = TUNING.centring_share_total / 4
        if self.small_looks == 4 and (self.look_share or 0.0) > most:
            raise ValueError(f"look_share must be at most {most:g} with four small_looks, got {self.look_share:g}")
        if self.n_passes == 2 and not (self.normalise and self.chosen == "matrix"):
            raise ValueError("n_passes = 2 needs normalise = true and the matrix solver")
        if self.n_passes == 2 and self.finds_centre:
            raise ValueError(
                "n_passes = 2 needs units with many rows: set per_recording, or set centering to 'ranges' or 'none'"
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
        return "matrix" if len(self.columns) <= TUNING.matrix_columns else "subspace"

    @property
    def passes(self) -> int:
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
        """Sets number and share of the centring releases, whether records are rounded, and the rounds of the subspace
        solver.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.
        """
        found = self
        if self.finds_centre:
            found = found.model_copy(update=self._plan_centring(facts))
        if self.chosen == "matrix":
            return found if self.rounded is not None else found.model_copy(update={"rounded": self._may_round(facts)})
        # Noise of one product that takes all of the share `_main_share`: replacing a unit moves a product by sqrt(2).
        whole = facts.noise * math.sqrt(2 / found._main_share)
        given = self.rounds, self.growth, self.extra
        schedule = choose_schedule(len(self.columns), self.n_components, facts.units, whole, *given)
        return found.model_copy(update=asdict(schedule))

    def _plan_centring(self, facts: PublicFacts) -> dict[str, Any]:
        """Number and share of the centring releases, as updates of the fields `small_looks` and `look_share`.

        A release shows directions that hold more than about sqrt(2) S(w) sqrt(D/2) = sqrt(D) S(w) of the n units (half
        the edge of its noise). So the share grows with sqrt(D) S(1)/n. The factor is `TUNING.centring_share_factor`. If
        the noise is large, four releases of half the share locate the centre better than two: each divides the distance
        to the centre by a factor. If the noise is small, two are enough.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        units = facts.units or GUESSED_UNITS
        # Share of half of the centring releases, before its limits.
        half = TUNING.centring_share_factor * math.sqrt(len(self.columns)) * facts.noise / units
        given, least = self.look_share, TUNING.centring_share_least
        # Four releases of a large given share would take more than half of the budget; the validator refuses them.
        many = half > least and (given is None or given <= TUNING.centring_share_total / 4)
        count = self.small_looks or (4 if many else 2)
        share = min(max(half, least), TUNING.centring_share_most) * 2 / count
        # With too few units the noise of a histogram hides the norms. A share of 0 means no centring rounds.
        if TUNING.centring_units * facts.noise > units:
            share = 0.0
        # With little noise the last column alone locates the centre.
        if half < TUNING.column_threshold and count == 2:
            share = TUNING.column_share
        return {"look_share": share if given is None else given, "small_looks": count}

    def _may_round(self, facts: PublicFacts) -> bool:
        """Whether rounding records to 11 bits adds a negligible error.

        Rounding adds a standard deviation of about sqrt(2 n/D) `STEP` to an entry of the sum; the noise of a release
        that takes the whole budget is sqrt(2) S(1). Units with many rows are not rounded. Neither are few columns:
        products are cheap there, and equal records, which are more frequent with few columns, have equal rounding
        errors.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        units, columns = facts.units or GUESSED_UNITS, len(self.columns)
        negligible = math.sqrt(2 * units / columns) * STEP < TUNING.rounding_error * math.sqrt(2) * facts.noise
        return negligible and columns >= TUNING.rounding_columns and self.per_recording == "none"

    @property
    def describe(self) -> str:
        """The solver, its rounds and the centring releases, for the plan."""
        if self.chosen == "matrix":
            again = ", and again with its strong directions damped" if self.passes == 2 else ""
            text = f"solver matrix, the whole second moment at once{again}"
        else:
            schedule = self.schedule
            shares = ", ".join(f"{self._main_share * share:.3g}" for share in schedule.shares)
            rounds = f"{schedule.rounds} round{'s' if schedule.rounds > 1 else ''}"
            width = f"{self.n_components} + {schedule.extra}"
            text = f"solver subspace, {rounds} at shares {shares}, a basis of {width} columns"
        if self._has_centring:
            count = "two" if self._centring_count == 2 else "four"
            centring = f"{count} centring releases at {self._centring_share:.3g}"
            return f"{text}; centre and clip from {centring} and histograms at {TUNING.histogram_share:g}"
        skipped = "; about the middle of the ranges, since the search for a centre would cost too much"
        return text + (skipped if self.finds_centre else "")

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Templates of the chosen path, in the order of the table of the module docstring. Centre, lift, clip and basis
        are placeholders: the sensitivity depends on none of them.
        """
        center = self._first_center
        if self._has_centring:
            norms = self._histogram_request(center)
            small = [
                each
                for number in range(self._centring_count)
                for each in (norms, self._centring_request(center, 1.0, number))
            ]
            main = (
                (self._main_request(center, 1.0, 1.0),)
                if self.chosen == "matrix"
                else tuple(
                    self._augmented_product_request(center, 1.0, self._first_basis(), s) for s in self.schedule.shares
                )
            )
            return (*small, norms, *main)
        if self.chosen == "matrix":
            damped = [self._matrix_request(center, np.zeros((len(self.columns),) * 2))] if self.passes == 2 else []
            return (self._matrix_request(center), *damped)
        return tuple(self._product_request(center, self._first_basis(), share) for share in self.schedule.shares)

    def program(self, adjacency: Adjacency) -> Program:
        """The releases of the chosen path, then the estimate."""
        if self._has_centring:
            found = yield from (
                self._matrix_after_centring() if self.chosen == "matrix" else self._subspace_after_centring()
            )
        elif self.chosen == "subspace":
            ask = partial(self._product_request, self._first_center)
            found = yield from self._subspace(ask)
        else:
            found = yield from (self._two_passes() if self.passes == 2 else self._one_pass())
        return self._estimate(found)

    def _one_pass(self) -> Generator[Request, Release, _Solution]:
        """One release of the whole matrix about a public centre, with the whole budget."""
        release = yield self._matrix_request(self._first_center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        vectors = leading_vectors(matrix, release.noise_std, self.n_components, shrink=self.shrink)
        edge = matrix_edge(len(matrix), release.noise_std)
        # If the centre should have been found and was too expensive, one large eigenvalue may belong to the mean. A
        # corner of 0 makes `count_above_noise` subtract one from the count.
        if self.finds_centre:
            above = AugmentedMoments(matrix, np.zeros(len(matrix)), 0.0, release.noise_std).count_above_noise(
                self.n_components
            )
        else:
            falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
            above = count_components(falling, release.noise_std, self.n_components)
        total = float(np.trace(matrix))
        return _Solution(
            vectors,
            _quadratic_forms(matrix, vectors),
            edge,
            above,
            release,
            self._first_center,
            self._public_clip,
            total,
        )

    def _two_passes(self) -> Generator[Request, Release, _Solution]:
        """Two releases: the matrix, and the matrix in coordinates in which its strong directions are damped."""
        center = self._first_center
        release = yield self._matrix_request(center)
        matrix = coordinates.unpack(release.value, len(self.columns))
        damped = NoisySpectrum.from_release(matrix, release.noise_std).damp(self.n_components)
        again = yield self._matrix_request(center, damped.projection)
        second = coordinates.unpack(again.value, len(self.columns))
        both, noise = combine_releases(second, again.noise_std, damped)
        spectrum = NoisySpectrum.from_release(both, noise)
        # The components span the K leading directions of both releases, mapped back to the columns and orthonormalised.
        span = np.linalg.qr(damped.reconstruction @ spectrum.vectors[:, : self.n_components])[0]
        # Order and eigenvalues come from the first release: the second has other norms, so its scale is not that of Z.
        rising, turn = np.linalg.eigh(span.T @ matrix @ span)
        falling = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
        spectra = (falling, release.noise_std), (spectrum.noisy_values, noise)
        # A component that either test shows counts. Both together gave no false alarm in the isotropic runs of
        # docs/pca.md.
        above = max(count_components(values, spread, self.n_components) for values, spread in spectra)
        # Noise of the K x K matrix span' A span. The edge of order K treats the span as independent of the first
        # release, which holds only approximately.
        edge = matrix_edge(self.n_components, release.noise_std)
        return _Solution(
            np.asarray(span @ turn[:, ::-1]), np.asarray(rising[::-1]), edge, above, again, center, self._public_clip
        )

    def _subspace(
        self,
        ask: Callable[[Floats, float], PrivateSum],
        read: Callable[[Release, Floats], Floats] | None = None,
        counted: float | None = None,
    ) -> Generator[Request, Release, _Solution]:
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
        above = count_product_components(values[:K], edge, len(self.columns), units or 0.0)
        return _Solution(basis[:, :K], values[:K], edge, above, release, self._first_center, self._public_clip)

    def _find_centre(self) -> Generator[Request, Release, CentringResult]:
        """The centring rounds. Each releases a histogram of norms and then augmented rows, both about the current
        centre.

        Lists: `here` has the histograms about the current centre, `releases` all releases of augmented rows, `scales`
        the median norm and 1 + a^2/median of those that hold the whole matrix. `square` is a^2 over the median norm.

        Returns
        -------
        CentringResult
            The centre (D,), the releases that hold the whole matrix (or else the last one), the mean contribution of a
            unit in each, the distribution of norms about the centre, its median, and the number of units.
        """
        center, square = self._first_center, TUNING.search_lift
        here, releases, scales = list[Release](), list[AugmentedMoments](), list[tuple[float, float]]()
        for number in range(self._centring_count):
            here.append((yield self._histogram_request(center)))
            # Histograms about the same centre are averaged: each has fresh noise.
            median = self._norm_distribution(here).quantile(0.5)
            lift = math.sqrt(square * median)
            release = yield self._centring_request(center, lift, number)
            whole = self._includes_matrix(number)
            releases.append(
                (AugmentedMoments.from_release if whole else AugmentedMoments.from_column)(
                    release.value, len(center), release.noise_std
                )
            )
            if whole:
                scales.append((median, 1 + square))
            # If the centre moves, the histograms no longer apply, and the lift is large for an accurate mean. If the
            # mean is not significant, the centre has converged: a small lift leaves more of the norm to the second
            # moment.
            offset = releases[-1].mean_offset(lift)
            if np.any(offset):
                center, square, here = self._move(center, offset), TUNING.search_lift, []
            else:
                square = TUNING.main_lift
        here.append((yield self._histogram_request(center)))
        norms = self._norm_distribution(here)
        median = norms.quantile(0.5)
        # Mean fraction of a unit's norm about the final centre in each centring release. A unit was divided by its norm
        # about an earlier centre (`earlier` instead of `median`) and by the part of the lift (1 + a^2/median).
        contributions = np.array([min(median / earlier, 1.0) / factor for earlier, factor in scales])
        # The last releases are those with a matrix: with two rounds at most the second has one.
        last = releases[-max(len(contributions), 1) :]
        return CentringResult(center, last, contributions, norms, median, self._unit_count(here[-1]))

    def _matrix_after_centring(self) -> Generator[Request, Release, _Solution]:
        """Centring rounds, then the main release of the whole matrix at the chosen clip."""
        columns, K, share = len(self.columns), self.n_components, self.look_share or 0.0
        found = yield from self._find_centre()
        square, left = TUNING.main_lift * found.median, 1 - self._centring_count * share
        lift = math.sqrt(square)
        choice = choose_clip(found.releases[-1], found.norms, square, found.contributions, share, left, found.units, K)
        release = yield self._main_request(found.center, lift, choice.clip)
        moments = AugmentedMoments.from_release(release.value, columns, release.noise_std)
        matrix, noise = moments.centred_matrix(), moments.noise
        # The components may come from a mean of all releases. Eigenvalues always come from the main release, whose clip
        # they refer to.
        combined, spread = matrix, noise
        if choice.adds_centring:
            # A release of mean contribution f and noise variance proportional to 1/share gets the weight share f, which
            # maximises the ratio of signal to noise.
            weights = np.append(share * found.contributions, left * choice.contribution)
            weights /= np.sum(weights)
            combined = weights[-1] * matrix
            for weight, each in zip(weights, found.releases, strict=False):  # the last weight is the main release's
                combined += weight * each.centred_matrix()
            # Independent noise: variances add with squared weights.
            spread = float(np.linalg.norm(weights * [*(each.noise for each in found.releases), noise]))
        above, vectors = at_once(
            partial(moments.count_above_noise, K), partial(leading_vectors, combined, spread, K, shrink=self.shrink)
        )
        center = self._move(found.center, moments.mean_offset(lift))
        # If fewer than K components exceed the noise, the last one may be noise: the direction of the mean may be
        # better.
        if above < K:
            vectors = moments.replace_last(vectors, center / self.scale)
        clip = choice.clip if choice.quantile else 1.0
        edge, total = matrix_edge(columns, noise), float(np.trace(matrix))
        return _Solution(vectors, _quadratic_forms(matrix, vectors), edge, above, release, center, clip, total)

    def _subspace_after_centring(self) -> Generator[Request, Release, _Solution]:
        """Centring rounds on the last column alone, then rounds of products.

        Each product has the last column of the augmented matrix as its own last column, for the correction of the mean.
        The reported centre is that of the centring rounds; the correction by the last product is not added to it.
        """
        columns = len(self.columns)
        known = yield from self._find_centre()
        lift = math.sqrt(TUNING.main_lift * known.median)

        def read(release: Release, basis: Floats) -> Floats:
            # (D + 1) x (width + 1): the product M Q above left, and v and W in the last column.
            product = release.value.reshape(columns + 1, -1)
            moments = AugmentedMoments.from_column(product[:, -1], columns, release.noise_std)
            return moments.centred_product(product[:-1, :-1], basis)

        ask = partial(self._augmented_product_request, known.center, lift)
        found = yield from self._subspace(ask, read, known.units)
        return replace(found, center=known.center)

    def _estimate(self, found: _Solution) -> Estimate:
        """The estimate from a solution. Without public n, `worth` leaves eigenvalues as sums over the units.

        Parameters
        ----------
        found : _Solution
            The result of one path.
        """
        # A contribution is a matrix over the clip, so a mean over units is the sum times clip/n.
        release, worth = found.release, found.clip / (found.release.units if found.release.units is not None else 1.0)
        # Without noise all components count.
        above = min(found.above, self.n_components) if found.edge > 0 else self.n_components
        eigenvalues = np.where(np.arange(self.n_components) < above, debiased(found.values, found.edge), 0.0) * worth
        std = np.full(self.n_components, release.noise_std * worth)
        axis, columns = Axis.numbered("component", self.n_components), self.column_axis
        estimate = {
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
            estimate["total"] = Quantity(np.array([found.total * worth]), "diagnostic", std=np.array([spread]))
        return estimate

    def _unit_parameters(self, center: Floats) -> dict[str, Any]:
        """Parameters of `UnitMoment`. A scale of ones is left out of the request.

        Parameters
        ----------
        center : array of shape (D,)
            In the units of the data.
        """
        scale = {"scale": self.scale} if self.scaling != "none" else {}
        unit = {"columns": len(self.columns), "center": center, "per_recording": self.per_recording}
        return unit | scale | self.filling

    @property
    def _first_center(self) -> Floats:
        """The public centre before any release, of shape (D,)."""
        return self.middle if self.centering != "none" else np.zeros(len(self.columns))

    @property
    def _has_centring(self) -> bool:
        """Whether there are centring rounds. A share of 0 means that the planner found them too expensive."""
        return self.finds_centre and self.look_share != 0

    @property
    def _matrix_statistic(self) -> type[Scatter]:
        """The statistic of a whole matrix."""
        return RoundedScatter if self.rounded else Scatter

    @property
    def _centring_count(self) -> int:
        """Number of centring rounds, two unless resolved otherwise."""
        return self.small_looks or 2

    def _includes_matrix(self, number: int) -> bool:
        """Whether centring round `number` (from 0) releases the whole matrix, rather than the last column.

        With four rounds all do, since they may be added to the main release. With two only the last does, for the
        spectrum by which the clip is chosen, and only if its share exceeds `TUNING.column_share`. A column costs a site
        no matrix product. The subspace solver always takes the column.
        """
        share = self.look_share or TUNING.centring_share_least
        wanted = self._centring_count == 4 or (number == 1 and share > TUNING.column_share)
        return self.chosen == "matrix" and wanted

    @property
    def _share_of_moments(self) -> float:
        """Share of the budget of all releases but the histograms, of which there is one more than centring rounds."""
        return 1 - (self._centring_count + 1) * TUNING.histogram_share

    @property
    def _centring_share(self) -> float:
        """Share of the whole budget of one centring release; `look_share` is a share of `_share_of_moments`."""
        return self._share_of_moments * (TUNING.centring_share_least if self.look_share is None else self.look_share)

    @property
    def _main_share(self) -> float:
        """Share of the whole budget of the main release, or of all rounds of the subspace solver."""
        return self._share_of_moments - self._centring_count * self._centring_share if self._has_centring else 1.0

    @property
    def _public_clip(self) -> float:
        """The clip of paths with a public centre; 1 if matrices are normalised. No sensitivity depends on it."""
        return 1.0 if self.normalise else self.matrix_clip or self.reach

    @property
    def _histogram_parameters(self) -> dict[str, Any]:
        """Parameters of the histogram of norms."""
        return {"lowest": TUNING.histogram_span * self.reach, "highest": self.reach, "bins": TUNING.histogram_bins}

    def _norm_distribution(self, releases: Sequence[Release]) -> Norms:
        """Distribution of the norms from the mean of histograms about one centre.

        Parameters
        ----------
        releases : sequence of Release
            Histograms about the same centre; their mean has less noise.
        """
        counts = np.mean([each.value for each in releases], axis=0)
        # The edges of `ScatterNorms`: evenly spaced in the logarithm.
        edges = np.geomspace(TUNING.histogram_span * self.reach, self.reach, TUNING.histogram_bins + 1)
        return Norms.from_counts(edges, counts, releases[-1].units)

    def _unit_count(self, release: Release) -> float:
        """Number of units: public, or the sum of a noisy histogram; at least 1, as it is a divisor."""
        return max(release.units if release.units is not None else float(np.sum(release.value)), 1.0)

    def _move(self, center: Floats, offset: Floats) -> Floats:
        """The centre moved by the released mean, shape (D,).

        Noise must not carry the centre away. With ranges each step is at most the width of the range in each column.
        Without ranges the centre stays inside the clip.

        Parameters
        ----------
        center : array of shape (D,)
            In the units of the data.
        offset : array of shape (D,)
            In scaled units.
        """
        step = offset * self.scale
        if self.lower is not None:
            return center + np.clip(step, -2 * self.half, 2 * self.half)
        center = center + step
        return np.asarray(center * min(1.0, self.radius / max(float(np.linalg.norm(center)), 1e-300)))

    def _histogram_request(self, center: Floats) -> PrivateSum:
        """Request of a histogram of the norms of the units' matrices about `center`."""
        statistic = ScatterNorms(**self._unit_parameters(center), **self._histogram_parameters)
        return PrivateSum(statistic, TUNING.histogram_share)

    def _centring_request(self, center: Floats, lift: float, number: int) -> PrivateSum:
        """Request of centring round `number`: augmented rows, each unit's matrix divided by its own norm.

        Parameters
        ----------
        center : array of shape (D,)
            The current centre.
        lift : float
            a, in the units of scaled rows.
        number : int
            Number of the centring round, from 0.
        """
        kind = self._matrix_statistic if self._includes_matrix(number) else ScatterColumn
        return PrivateSum(kind(**self._unit_parameters(center), lift=lift), self._centring_share)

    def _main_request(self, center: Floats, lift: float, clip: float) -> PrivateSum:
        """Request of the main release: augmented rows, each unit's matrix divided by max(clip, its norm).

        Parameters
        ----------
        center : array of shape (D,)
            The centre by the centring rounds.
        lift : float
            a.
        clip : float
            c, the norm of a unit's matrix at which it is clipped.
        """
        parameters = self._unit_parameters(center) | {"lift": lift, "clip": clip, "normalise": False}
        return PrivateSum(self._matrix_statistic(**parameters), self._main_share)

    def _augmented_product_request(self, center: Floats, lift: float, basis: Floats, share: float) -> PrivateSum:
        """Request of a round of products with augmented rows; `share` is a share of what the centring leaves.

        Parameters
        ----------
        center : array of shape (D,)
            The centre.
        lift : float
            a.
        basis : array of shape (D, width)
            Orthonormal columns.
        share : float
            Share of `_main_share`.
        """
        # The augmented basis is block-diagonal: `basis` (D x width) and a 1 for the lift, still orthonormal.
        beside = np.zeros((basis.shape[0] + 1, basis.shape[1] + 1))
        beside[:-1, :-1], beside[-1, -1] = basis, 1.0
        return PrivateSum(
            ScatterProduct(**self._unit_parameters(center), lift=lift, basis=beside), self._main_share * share
        )

    def _matrix_request(self, center: Floats, damped: Floats | None = None) -> PrivateSum:
        """Request of a whole matrix about a public centre: the only one, the first of two, or the second, which has
        its projection in `damped` (D x D).

        Parameters
        ----------
        center : array of shape (D,)
            The public centre.
        damped : array of shape (D, D), optional
            Projection of the second pass.
        """
        if self.passes == 1:
            return PrivateSum(self._matrix_statistic(**self._matrix_parameters(center)))
        share = TUNING.first_pass_share if damped is None else 1 - TUNING.first_pass_share
        return PrivateSum(Scatter(**self._matrix_parameters(center), projection=damped), share)

    def _product_request(self, center: Floats, basis: Floats, share: float) -> PrivateSum:
        """Request of a round of products about a public centre.

        Parameters
        ----------
        center : array of shape (D,)
            The public centre.
        basis : array of shape (D, width)
            Orthonormal columns.
        share : float
            Share of the whole budget.
        """
        return PrivateSum(ScatterProduct(**self._matrix_parameters(center), basis=basis), share)

    def _matrix_parameters(self, center: Floats) -> dict[str, Any]:
        """Parameters of `Scatter` about a public centre."""
        return self._unit_parameters(center) | {"clip": self._public_clip, "normalise": self.normalise}

    def _first_basis(self) -> Floats:
        """The public first basis, D x (K + extra)."""
        return first_basis(len(self.columns), self.n_components + self.schedule.extra, self.start)


@dataclass(frozen=True, eq=False)
class _Solution:
    """The result of one path, in sums over units of contributions of norm at most 1."""

    vectors: Floats  # D x K, one component a column
    values: Floats  # (K), noisy eigenvalues along them
    edge: float  # largest eigenvalue of pure noise
    above: int  # number of components above the noise
    release: Release  # the last release, for its noise and its number of units
    center: Floats  # (D)
    clip: float  # 1 if matrices were normalised
    total: float | None = None  # the trace, where the whole matrix was released


def _quadratic_forms(matrix: Floats, vectors: Floats) -> Floats:
    """The quadratic forms v'A v along each column v of `vectors` (D x K), with A = `matrix` (D x D)."""
    return np.asarray(np.sum(vectors * (matrix @ vectors), axis=0))
