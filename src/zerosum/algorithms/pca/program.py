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
of eigenvalues and vectors for noise (`spectrum`), and the planner's choices (`planning`, `subspace`), which depend on
public facts only. `releases` has the request of each line of the table. All tuned constants are in `tuning`.

References: docs/pca.md (releases, the split of the budget, benchmarks); H. Imtiaz and A. D. Sarwate, capePCA, for the
published form that docs/pca.md compares with; `centering` and `spectrum` for the statistics.

Words: the centring releases find the centre, the main release the components. The fields `small_looks` and `look_share`
of study files are the number of centring rounds and the share of each centring release. "Lift" is the constant a that
is appended to rows (`centering`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from zerosum.algorithms.pca.centering import (
    AugmentedMoments,
    CentringResult,
    Norms,
    choose_clip,
    count_components,
    count_product_components,
)
from zerosum.algorithms.pca.releases import PCAReleases
from zerosum.algorithms.pca.spectrum import (
    NoisySpectrum,
    combine_releases,
    debiased,
    leading_vectors,
    matrix_edge,
    product_edge,
    signs,
    subspace_iteration,
)
from zerosum.algorithms.pca.tuning import TUNING
from zerosum.algorithms.program import Estimate, Program
from zerosum.arrays import Floats
from zerosum.compute.threads import at_once
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency


class PCAProgram(PCAReleases):
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

    def program(self, adjacency: Adjacency) -> Program:
        """The releases of the chosen path, then the estimate."""
        if self._has_centring:
            solution = yield from (
                self._matrix_after_centring() if self.chosen == "matrix" else self._subspace_after_centring()
            )
        elif self.chosen == "subspace":
            ask = partial(self._product_request, self._first_center)
            solution = yield from self._subspace(ask)
        else:
            solution = yield from (self._two_passes() if self.passes == 2 else self._one_pass())
        return self._estimate(solution)

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
        centring = yield from self._find_centre()
        square, left = TUNING.main_lift * centring.median, 1 - self._centring_count * share
        lift = math.sqrt(square)
        choice = choose_clip(
            centring.releases[-1], centring.norms, square, centring.contributions, share, left, centring.units, K
        )
        release = yield self._main_request(centring.center, lift, choice.clip)
        moments = AugmentedMoments.from_release(release.value, columns, release.noise_std)
        matrix, noise = moments.centred_matrix(), moments.noise
        # The components may come from a mean of all releases. Eigenvalues always come from the main release, whose clip
        # they refer to.
        combined, spread = matrix, noise
        if choice.adds_centring:
            # A release of mean contribution f and noise variance proportional to 1/share gets the weight share f, which
            # maximises the ratio of signal to noise.
            weights = np.append(share * centring.contributions, left * choice.contribution)
            weights /= np.sum(weights)
            combined = weights[-1] * matrix
            for weight, each in zip(weights, centring.releases, strict=False):  # the last weight is the main release's
                combined += weight * each.centred_matrix()
            # Independent noise: variances add with squared weights.
            spread = float(np.linalg.norm(weights * [*(each.noise for each in centring.releases), noise]))
        above, vectors = at_once(
            partial(moments.count_above_noise, K), partial(leading_vectors, combined, spread, K, shrink=self.shrink)
        )
        center = self._move(centring.center, moments.mean_offset(lift))
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
        solution = yield from self._subspace(ask, read, known.units)
        return replace(solution, center=known.center)

    def _estimate(self, solution: _Solution) -> Estimate:
        """The estimate from a solution. Without public n, `worth` leaves eigenvalues as sums over the units.

        Parameters
        ----------
        solution : _Solution
            The result of one path.
        """
        # A contribution is a matrix over the clip, so a mean over units is the sum times clip/n.
        release, worth = (
            solution.release,
            solution.clip / (solution.release.units if solution.release.units is not None else 1.0),
        )
        # Without noise all components count.
        above = min(solution.above, self.n_components) if solution.edge > 0 else self.n_components
        eigenvalues = (
            np.where(np.arange(self.n_components) < above, debiased(solution.values, solution.edge), 0.0) * worth
        )
        std = np.full(self.n_components, release.noise_std * worth)
        axis, columns = Axis.numbered("component", self.n_components), self.column_axis
        estimate = {
            "components": Quantity((solution.vectors * signs(solution.vectors)).T, "component", (axis, columns)),
            "eigenvalues": Quantity(eigenvalues, "eigenvalue", (axis,), std),
            "eigenvalue_std": Quantity(std, "diagnostic", (axis,)),
            "noise_edge": Quantity(np.array([solution.edge * worth]), "diagnostic"),
            "above_noise": Quantity(np.array([float(above)]), "diagnostic"),
            "mean": Quantity(solution.center, "mean", (columns,)),
            "scale": Quantity(self.scale, "scale", (columns,)),
            "matrix_clip": Quantity(np.array([solution.clip]), "diagnostic"),
        }
        if solution.total is not None:
            # A trace is the sum of D diagonal entries with independent noise.
            spread = release.noise_std * worth * math.sqrt(len(self.columns))
            estimate["total"] = Quantity(np.array([solution.total * worth]), "diagnostic", std=np.array([spread]))
        return estimate

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
