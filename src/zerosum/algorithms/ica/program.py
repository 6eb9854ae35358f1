"""Independent components over sites: the program that makes the releases and assembles the estimate.

Symbols
-------
D, R, n
    Numbers of columns, of components and of units (people).
X_i (T_i x D)
    Rows of unit i, centred or standardised within each recording. X_i = S_i A' plus noise of the data.
A (D x R)
    The mixing matrix, common to all units; its columns are the maps.
S_i (T_i x R)
    The time courses of unit i, independent of each other within the unit.
W (R x R)
    The unmixing matrix in white coordinates: rows x @ white @ W' are the time courses.
S(w)
    Standard deviation of the noise of a sum of sensitivity 1 that takes the share w of the budget: S(1)/sqrt(w).

What is released
----------------
Each contribution of a unit has norm at most 1, whatever the unit's length and scale, so all units have the same weight.
The sensitivity proofs are in the statistics.

====================  ===================================================================  ============================
stage                 releases, in order                                                   shares
====================  ===================================================================  ============================
reduction             one second moment per pass (`Scatter`), from the second pass on in   `_pass_shares`
(if D > R)            coordinates in which the strong directions are damped; beyond 2000
                      dimensions the first pass is subspace iteration
                      (`ScatterProduct`)
fixed-point solver    the second moment in R dimensions (`Scatter`), for whitening;        `_whitening_share`;
                      fourth cumulants (`FourthCumulants`), for a start;                   `_cumulant_share`;
                      then rounds of scores (`UnmixingScore`)                              `_round_shares`
second-order solver   second moments by frequency band (`BandScatter`)                     all that the reduction leaves
====================  ===================================================================  ============================

Everything else is post-processing and costs no privacy: the correction of spectra for noise (`pca.spectrum`),
directions from cumulants (`start`), the Kalman filter over rounds (`filter`), the joint fit of all rounds
(`likelihood`), the joint diagonalisation of bands (`joint_diagonalization`), and the planner's choices (`resolve`),
which depend on public facts only. All tuned constants are in `tuning`.

References: docs/ica.md (releases, the split of the budget, benchmarks); A. Hyvarinen, Fast and robust fixed-point
algorithms for independent component analysis, IEEE Trans. Neural Netw. 10, 1999; A. Belouchrani et al., A blind source
separation technique using second-order statistics, IEEE Trans. Signal Process. 45, 1997; H. Imtiaz and A. D. Sarwate,
djICA and capeDJICA, for the published form that docs/ica.md compares with.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.expectation import Expectation, found, resting_spectrum, separated
from zerosum.algorithms.ica.filter import Filter
from zerosum.algorithms.ica.joint_diagonalization import bootstrap_stability, separate
from zerosum.algorithms.ica.start import directions
from zerosum.algorithms.ica.tuning import TUNING
from zerosum.algorithms.pca.spectrum import (
    Coordinates,
    NoisySpectrum,
    ReplayedSpectra,
    best_count,
    combine_releases,
    correlation_variance,
    first_basis,
    signs,
    subspace_iteration,
    whiten_again,
)
from zerosum.algorithms.pca.subspace import GUESSED_UNITS, Schedule, choose_schedule
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Kind, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.bands import BandScatter
from zerosum.statistics.cumulants import FourthCumulants
from zerosum.statistics.scatter import PerRecording, Scatter, ScatterProduct
from zerosum.statistics.unmixing import UnmixingScore


class ICAProgram(Algorithm):
    """Temporal ICA in two private stages: reduce the dimensions, then separate the sources.

    Reduction. `n_passes` releases of the units' second moments find the space of the components. Each release after the
    first takes coordinates in which the strong directions of the earlier ones are damped (see `pca.spectrum`). With a
    public `basis` all releases lie in its span. The first pass leaves the strongest `left_dimensions` directions to the
    later ones: all directions, unless the wanted ones are expected to be weak relative to the noise.

    Solver. `fixed-point` releases one more second moment for whitening, fourth cumulants for a start
    (`FourthCumulants`), and then `rounds` rounds of scores at the current unmixing matrix (`UnmixingScore`). A filter
    corrects rotation and whitening together (see `filter`), and selects the score of each source from the released
    slopes: heavy tails, light tails, or a size that changes over time. `second-order` releases second moments by
    frequency band once and diagonalises them jointly: the method for autocorrelated, nearly Gaussian time courses.
    `auto` takes `second-order` if a band-pass is given or rows are less than five seconds apart. It uses no data.

    The planner chooses `left_dimensions`, `rounds`, `start_share` (share of the cumulants) and `reduction_share` (share
    of the reduction), unless they are given.

    Results, the strongest component first:

    - `maps` (R x D): one map a row, with norm 1 and its largest entry positive.
    - `unmixing` (R x D): one filter a row; time courses are rows @ unmixing'.
    - `strength` (R): fraction of the reduced variance of each component.
    - `stability` (R): expected correlation of each component with its version without privacy noise: the share of its
      directions that the reduction retains, times the correlation that the solver's noise leaves, by theory or by a
      parametric bootstrap.
    - `eigenvalues` (R): of the last pass.
    - `above_noise`: number of eigenvalues above the noise of the last pass, and at most the number of sources that the
      solver shows to be more than noise.

    Parameters
    ----------
    n_components : int
        R.
    solver : {"auto", "fixed-point", "second-order"}
        The method that separates the sources.
    window : int, optional
        Rows over which the size of a source is averaged.
    basis : array of shape (D, width), optional
        Public, linearly independent columns, in whose span the maps lie. Fewer dimensions have less noise.
    per_recording : {"none", "center", "standardise"}
        Bring each column of each recording to mean zero, and with "standardise" to variance one.
    n_passes : int
        Releases of the reduction.
    rounds, start_share, reduction_share, left_dimensions
        Choices of the planner, if they are not given.
    seconds : float, optional
        Seconds between rows, in place of the recordings' own.
    band : pair of float, optional
        Lowest and highest frequency of the data in hertz, after a band-pass.
    bands : int
        Bands of the second-order solver.
    subspace_rounds, subspace_growth
        The first pass beyond 2000 dimensions.
    start : int
        Public seed.
    """

    name: ClassVar[str] = "ica"
    rows_of_a_unit: ClassVar[int] = 30
    n_components: int = Field(ge=2)
    solver: Literal["auto", "fixed-point", "second-order"] = "auto"
    window: int | None = Field(default=None, gt=0)
    """Rows over which the size of a source is averaged: by default 9, or 1 if rows are autocorrelated."""
    basis: FloatArray | None = None
    per_recording: PerRecording = "center"
    n_passes: int = Field(default=2, gt=0)
    rounds: int | None = Field(default=None, gt=2)
    """Rounds of the fixed-point solver; by default the planner's choice."""
    start_share: float | None = Field(default=None, ge=0, le=0.9)
    """Share of the fourth cumulants, of the budget that the reduction leaves; by default the planner's choice."""
    reduction_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget for the reduction; by default the planner's choice."""
    left_dimensions: int | None = Field(default=None, gt=0)
    """Dimensions that the first pass leaves to the later ones; by default the planner's choice."""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    band: tuple[float, float] | None = None
    bands: int = Field(default=4, ge=2)
    subspace_rounds: int | None = Field(default=None, gt=0)
    """Beyond 2000 dimensions: rounds of the first pass; by default the planner's choice."""
    subspace_growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Beyond 2000 dimensions: share of the last of these rounds over that of the first; by default the planner's
    choice."""
    start: int = 0
    """Seed of the public first rotation, the public first basis and the simulations. It seeds no noise."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_nonlinearity(cls, given: Any) -> Any:
        """Refuse a parameter of 0.1 with a message that states what takes its place."""
        if isinstance(given, dict) and "nonlinearity" in given:
            raise ValueError(
                "nonlinearity is no longer a parameter, since the program selects it for each source: leave it out"
            )
        return given

    @model_validator(mode="after")
    def _validate(self) -> Self:
        """Refuse dimensions, bands and passes that contradict each other, before a plan is made."""
        if self.basis is not None:
            if self.basis.ndim != 2 or self.basis.shape[0] != len(self.columns):
                raise ValueError(f"the basis must have {len(self.columns)} rows, got shape {self.basis.shape}")
            if np.linalg.matrix_rank(self.basis.T @ self.basis, hermitian=True) < self.basis.shape[1]:
                raise ValueError("the columns of the basis must be linearly independent")
        if self.n_components > self.width:
            raise ValueError(
                f"n_components must be at most {self.width}, the number of dimensions, got {self.n_components}"
            )
        if self.left_dimensions is not None and not self.n_components <= self.left_dimensions <= self.width:
            raise ValueError(f"left_dimensions must be {self.n_components} to {self.width}, got {self.left_dimensions}")
        if self.left_dimensions is not None and (self._wide or self.n_passes < 2):
            raise ValueError("left_dimensions needs n_passes of at least 2 and at most 2000 dimensions")
        if self.band is not None and not 0 <= self.band[0] < self.band[1] < math.inf:
            raise ValueError("band must be two frequencies in hertz, the lower one first")
        if self.band is not None and self.seconds is not None and self.band[0] >= 0.5 / self.seconds:
            raise ValueError(
                f"band must begin below {0.5 / self.seconds:g} hertz, the largest frequency of rows {self.seconds:g} "
                f"seconds apart, got {self.band[0]:g}"
            )
        if self._wide and self.n_passes < 2:
            raise ValueError(f"n_passes must be at least 2 for {self.width} dimensions, got {self.n_passes}")
        if self.chosen == "second-order" and self.band is None and self.seconds is None:
            raise ValueError("second-order needs the band of frequencies, or the seconds between rows")
        return self

    @property
    def width(self) -> int:
        """Number of dimensions before the reduction."""
        return len(self.columns) if self.basis is None else int(self.basis.shape[1])

    @property
    def chosen(self) -> str:
        """The solver that runs."""
        if self.solver != "auto":
            return self.solver
        return "second-order" if self._autocorrelated else "fixed-point"

    @property
    def _autocorrelated(self) -> bool:
        """Whether the public metadata indicate autocorrelated rows."""
        return self.band is not None or (self.seconds is not None and self.seconds < TUNING.autocorrelation_seconds)

    @property
    def edges(self) -> Floats:
        """Edges of the bands of the second-order solver in hertz, of shape (bands + 1,); bands grow with the
        frequency."""
        low, high = self.band or (0.0, 0.5 / (self.seconds or 1.0))
        # Evenly spaced in the root of the frequency, so that widths grow with the frequency.
        return np.linspace(math.sqrt(low), math.sqrt(high), self.bands + 1) ** 2

    # ---- shares ------------------------------------------------------------------------------------------------

    @property
    def _wide(self) -> bool:
        """Whether the first pass is subspace iteration, since a square matrix would be too large."""
        return self.width > TUNING.matrix_columns

    @property
    def _pass_shares(self) -> tuple[float, ...]:
        """Share of the budget of each pass of the reduction; empty if there is nothing to reduce."""
        if self.width == self.n_components:
            return ()
        weights = [TUNING.pass_growth**r for r in range(self.n_passes)]
        return tuple(self._reduction_share * weight / math.fsum(weights) for weight in weights)

    @property
    def _reduction_share(self) -> float:
        """Share of the budget of the whole reduction."""
        if self.width == self.n_components:
            return 0.0
        return TUNING.reduction_share if self.reduction_share is None else self.reduction_share

    @property
    def _whitening_share(self) -> float:
        """Share of the budget of the whitening release of the fixed-point solver."""
        return 0.0 if self.chosen == "second-order" else TUNING.whitening_share * (1 - self._reduction_share)

    @property
    def _cumulant_share(self) -> float:
        """Share of the budget of the fourth cumulants; 0 if they are not released."""
        if self.chosen == "second-order" or self.n_components > TUNING.cumulant_sources:
            return 0.0
        return (TUNING.cumulant_share if self.start_share is None else self.start_share) * (1 - self._reduction_share)

    @property
    def _round_shares(self) -> tuple[float, ...]:
        """Share of the budget of each round of the fixed-point solver, growing geometrically."""
        rounds = TUNING.rounds if self.rounds is None else self.rounds
        weights = [TUNING.round_growth ** (r / (rounds - 1)) for r in range(rounds)]
        left = 1 - self._reduction_share - self._whitening_share - self._cumulant_share
        return tuple(left * weight / math.fsum(weights) for weight in weights)

    @property
    def _schedule(self) -> Schedule:
        """Rounds of subspace iteration, the first pass beyond 2000 dimensions."""
        usual = Schedule()
        extra = min(usual.extra, self.width - self.n_components)
        return Schedule(self.subspace_rounds or usual.rounds, self.subspace_growth or usual.growth, extra)

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the shares of the reduction and of the start, the number of rounds, and the dimensions of the passes.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.
        """
        planned = self
        if self.chosen == "fixed-point":
            if self.reduction_share is None and self.width > self.n_components:
                planned = planned.model_copy(update={"reduction_share": self._plan_reduction(facts)})
            share, rounds = planned._plan_start(facts)
            given = {"start_share": share, "rounds": rounds}
            planned = planned.model_copy(update={name: given[name] for name in given if getattr(self, name) is None})
        shares = planned._pass_shares
        if self._wide and shares:
            # Noise of one product that takes the share of the first pass: replacing a unit moves a product by sqrt(2).
            whole = facts.noise * math.sqrt(2 / shares[0])
            given_rounds = self.subspace_rounds, self.subspace_growth, self._schedule.extra
            schedule = choose_schedule(self.width, self.n_components, facts.units, whole, *given_rounds)
            return planned.model_copy(update={"subspace_rounds": schedule.rounds, "subspace_growth": schedule.growth})
        if len(shares) > 1 and self.left_dimensions is None:
            # R equally strong directions share the norm 1 of a unit's matrix: each has the eigenvalue n/sqrt(R).
            strength = TUNING.direction_strength * (facts.units or GUESSED_UNITS) / math.sqrt(self.n_components)
            noise, later = facts.noise * math.sqrt(2), math.fsum(shares[1:])
            count = best_count(self.width, self.n_components, strength, noise, shares[0], later)
            planned = planned.model_copy(update={"left_dimensions": count})
        return planned

    def expectation(self, facts: PublicFacts) -> Expectation | None:
        """Expected correlation of the maps with those without noise, for the spectrum of resting-state fMRI.

        The upper end is the accuracy of the space that all passes together find, as if separating the sources cost
        nothing. The lower end is that of the last pass alone, since a pass adds nothing to directions that the one
        before has lost in its noise, and of a separation that finds nothing: a random rotation.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        if facts.units is None or self._wide:
            return None
        planned, R = self.resolve(facts), self.n_components
        one = both = np.ones(R)
        if shares := planned._pass_shares:
            # Replacing a unit moves the second moment by sqrt(2).
            x, spectrum = math.sqrt(2) * facts.noise / max(facts.units, 1), resting_spectrum(self.width)
            one, both = (
                found(spectrum, R, self.width, x / math.sqrt(share))[1] for share in (shares[-1], math.fsum(shares))
            )
        why = "for the spectrum of resting-state fMRI; a separation that finds nothing, and one that costs nothing"
        return Expectation(separated(one)[0], separated(both)[1], why)

    def _clarity(self, facts: PublicFacts, share: float) -> float:
        """Predicted clarity of a start: the kurtosis of Laplace sources over the kurtosis that `directions` finds in
        noise, if the cumulants took this share of the budget. A rough approximation.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        share : float
            Share of the whole budget that the cumulants take.

        Returns
        -------
        float
            Dimensionless; compared with the limits `clarity_*` of `TUNING`.
        """
        # Replacing a unit moves the cumulants by at most 2.
        noise = 2 * facts.noise / math.sqrt(share)
        units = facts.units or GUESSED_UNITS
        return TUNING.kurtosis_ratio * units / (max(noise, 1e-300) * math.pow(self.n_components, 1.5))

    def _plan_reduction(self, facts: PublicFacts) -> float:
        """Share of the reduction, so that enough budget remains to separate the sources.

        Clarity grows with the root of the share, so the share (least clarity/clarity at share 1)^2 must remain.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        remaining = (TUNING.clarity_least / self._clarity(facts, 1.0)) ** 2
        return min(max(1 - remaining, TUNING.reduction_share_least), TUNING.reduction_share)

    def _plan_start(self, facts: PublicFacts) -> tuple[float, int]:
        """Share of the cumulants, of the budget that the reduction leaves, and number of rounds.

        The smaller the clarity, the larger is the share that a start needs. 12 rounds follow if there is no start from
        cumulants or no noise, 10 after a start of medium clarity, and 6 after a clear start or one near `clarity_least`
        (`rounds_many`, `rounds_medium` and `rounds_few` of `Tuning`).

        Below `clarity_half` the cumulants leave too little budget for rounds, so the rounds start from a random
        rotation. Rounds from a random rotation need nearly the whole budget. If a part of it goes to the reduction,
        cumulants are therefore released down to `clarity_least`, and the rounds only refine the start. Without noise
        rounds cost nothing, so there are enough of them to converge.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.

        Returns
        -------
        share : float
        rounds : int
        """
        clear = self._clarity(facts, 1 - self._reduction_share)
        least, half = TUNING.clarity_least, TUNING.clarity_half
        if clear < (TUNING.clarity_tolerance * least if self._reduction_share else half):
            return 0.0, TUNING.rounds_many
        # Clarity grows with the root of the share, so the share falls with the square of the clarity.
        most = float(np.interp(clear, [least, half], TUNING.cumulant_share_limits))
        share = min(max((TUNING.cumulant_clarity / clear) ** 2, TUNING.cumulant_share_least), most)
        if not facts.noise:
            return share, TUNING.rounds_many
        medium = half <= clear < max(TUNING.clarity_clear, TUNING.clarity_per_source * self.n_components)
        return share, TUNING.rounds_medium if medium else TUNING.rounds_few

    @property
    def describe(self) -> str:
        """The solver and the shares of its stages, for the plan."""
        fewer = "" if self._wide else f", by way of {self.left_dimensions}"
        spent = [
            f"{self._reduction_share:.3g} of the budget to reduce {self.width} dimensions to {self.n_components}"
            + (fewer if self.left_dimensions not in (None, self.width) else "")
        ]
        if self.chosen == "fixed-point":
            spent += [f"{self._whitening_share:.3g} to whiten", f"{self._cumulant_share:.3g} for fourth cumulants"]
            spent += [f"{sum(self._round_shares):.3g} for {len(self._round_shares)} rounds"]
        else:
            spent += [f"{1 - self._reduction_share:.3g} for {self.bands} bands up to {self.edges[-1]:.3g} Hz"]
        return f"solver {self.chosen}, {', '.join(spent)}"

    # ---- the program -------------------------------------------------------------------------------------------

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Templates in the order of the table of the module docstring. Coordinates and unmixing matrices are
        placeholders of zeros: sizes and sensitivities do not depend on them.
        """
        R, requests = self.n_components, list[PrivateSum]()
        inside, white = self._public_coordinates if not self._wide else None, _placeholder(len(self.columns), R)
        for share in self._pass_shares:
            if inside is None:
                Q = self._first_basis()
                requests += [self._product_request(Q, share * part) for part in self._schedule.shares]
                inside = _placeholder(len(self.columns), Q.shape[1])
            else:
                requests.append(self._moment_request(inside, share))
                if not self._wide and self.left_dimensions is not None:
                    inside = _placeholder(len(self.columns), self.left_dimensions)
        if self.chosen == "second-order":
            return (*requests, PrivateSum(self._band_statistic(white), 1 - self._reduction_share))
        requests.append(self._moment_request(white, self._whitening_share))
        if self._cumulant_share:
            requests.append(PrivateSum(self._cumulant_statistic(white), self._cumulant_share))
        score = self._score_statistic(white.projection.T)
        return (*requests, *[PrivateSum(score, share) for share in self._round_shares])

    def program(self, adjacency: Adjacency) -> Program:
        """The reduction, the whitening and the solver; then maps and filters in the units of the columns."""
        inside, values, above, simulated, columns = yield from self._reduce()
        if self.chosen == "second-order":
            white, reconstruction, B, stability, real = yield from self._second_order(inside, simulated, columns)
            above = min(above, real)
        else:
            white, reconstruction, left = yield from self._whiten(inside)
            B, stability, real = yield from self._fixed_point(inside.then(white, reconstruction), left)
            above = min(above, real)
            # Each source is a combination of the R reduced directions. Their retained shares, weighted by the squared
            # entries of the source, give the part of the source that the reduction retains.
            made_of = (reconstruction @ np.linalg.inv(B)) ** 2
            stability = stability * np.sqrt(simulated.share @ made_of / np.sum(made_of, axis=0))
        inside, back = inside.then(white, reconstruction), np.linalg.inv(B)
        unmixing, maps = B @ inside.projection.T, inside.reconstruction @ back
        axis = Axis.numbered("component", self.n_components)
        estimate = {
            name: Quantity(value, kind, (axis, self.column_axis)[: value.ndim])
            for name, (value, kind) in _in_order(maps, unmixing, stability).items()
        }
        return estimate | {
            "eigenvalues": Quantity(values, "eigenvalue", (axis,)),
            "above_noise": Quantity(np.array([float(above)]), "diagnostic"),
        }

    @cached_property
    def _public_coordinates(self) -> Coordinates:
        """The public coordinates before the reduction: the span of `basis`, or all columns."""
        return Coordinates.of(self.basis) if self.basis is not None else Coordinates.all(len(self.columns))

    def _reduce(self) -> Generator[Request, Release, tuple[Coordinates, Floats, int, ReplayedSpectra, Floats]]:
        """The reduction.

        Returns
        -------
        coordinates : Coordinates
            White coordinates of the R components, D x R.
        eigenvalues : array of shape (R,)
            Of the last pass, over the number of units.
        above : int
            Number of eigenvalues above the noise of the last pass.
        simulated : ReplayedSpectra
            Repetitions of the last pass.
        columns : array of shape (D, directions)
            Directions of the last pass in data columns, those of the components first.
        """
        R, shares = self.n_components, self._pass_shares
        if not shares:
            start = self._public_coordinates
            return start, np.zeros(R), R, ReplayedSpectra.exact(np.ones(R)), start.reconstruction
        inside = (yield from self._subspace(shares[0])) if self._wide else self._public_coordinates
        damped, scale, spectra = None, 1.0, list[NoisySpectrum]()
        for share in shares[1:] if self._wide else shares:
            if spectra:
                damped = spectra[-1].damp(R, None if self._wide else self.left_dimensions)
                inside = inside.then(damped.projection, damped.reconstruction)
            release = yield self._moment_request(inside, share)
            matrix, noise = coordinates.unpack(release.value, inside.projection.shape[1]), release.noise_std
            if damped is not None:
                # `scale` is the weight of a unit in this pass over its weight in the first.
                scale *= damped.scale(matrix)
                matrix, noise = combine_releases(matrix, noise, damped)
            spectra.append(NoisySpectrum.from_release(matrix, noise))
        last, above = spectra[-1], int(np.sum(spectra[-1].noisy_values[:R] > spectra[-1].edge))
        columns = inside.reconstruction @ last.vectors
        # Eigenvalues of the last pass in the scale of the first: damping shortened the directions by `lengths`.
        lengths = np.sum(columns[:, :R] ** 2, axis=0)
        simulated = last.replay(R, np.random.default_rng(self.start))
        strengths = simulated.values[:R] * lengths / scale
        simulated = replace(simulated, inside=spectra[0].span_share(len(last.vectors), strengths))
        eigenvalues = last.values[:R] / (release.units or 1.0)
        return inside.then(*last.white_coordinates(R)), eigenvalues, above, simulated, columns

    def _subspace(self, share: float) -> Generator[Request, Release, Coordinates]:
        """The first pass beyond 2000 dimensions: orthonormal coordinates of its span, at a share of the budget.

        Parameters
        ----------
        share : float
            Share of the budget of all rounds together.
        """
        parts = [share * part for part in self._schedule.shares]
        Q, _values, _release = yield from subspace_iteration(self._first_basis(), parts, self._product_request)
        return Coordinates(Q, Q) if self.basis is None else self._public_coordinates.then(Q, Q)

    def _whiten(self, inside: Coordinates) -> Generator[Request, Release, tuple[Floats, Floats, float]]:
        """The whitening release: projection and reconstruction (R x R), and the variance of the correlations left.

        Parameters
        ----------
        inside : Coordinates
            White coordinates by the reduction, D x R. Its errors leave correlations, which this release corrects.
        """
        release = yield self._moment_request(inside, self._whitening_share)
        matrix, noise = coordinates.unpack(release.value, self.n_components), release.noise_std
        return *whiten_again(matrix, noise), correlation_variance(matrix, noise)

    def _fixed_point(self, white: Coordinates, left: float) -> Generator[Request, Release, tuple[Floats, Floats, int]]:
        """The fixed-point solver.

        Parameters
        ----------
        white : Coordinates
            White coordinates, D x R.
        left : float
            Variance of the correlations that whitening left.

        Returns
        -------
        unmixing : array of shape (R, R)
            Rows of norm 1, in white coordinates.
        stability : array of shape (R,)
        real : int
            Number of sources that are more than noise.
        """
        R, shares = self.n_components, self._round_shares
        estimate = Filter.from_rotation(first_basis(R, R, self.start), left)
        if self._cumulant_share:
            statistic = self._cumulant_statistic(white)
            release = yield PrivateSum(statistic, self._cumulant_share)
            tensor, tensor_noise = statistic.split(release.value), release.noise_std
            estimate = Filter.from_cumulants(*directions(tensor), tensor_noise, left)
        # Many rounds can correct an overshoot, few cannot.
        overshoot = min(max(len(shares) / TUNING.overshoot_rounds, 1.0), TUNING.overshoot_most)
        late_from = math.ceil(TUNING.late_rounds * len(shares))
        probes_from = math.floor(TUNING.probe_rounds * len(shares))
        probe, noise = np.eye(R), 0.0
        for number, share in enumerate(shares):
            late, step = number >= late_from, overshoot if number < len(shares) // 2 else 1.0
            if number < probes_from:
                estimate.randomise_unresolved(number)
            else:
                # The noise of the last round predicts that of this round, at its share.
                probe = estimate.probe_rotation(noise / math.sqrt(share), len(shares) - probes_from, number)
            score = self._score_statistic(probe @ estimate.B @ white.projection.T, estimate, late)
            release = yield PrivateSum(score, share)
            noise = release.noise_std * math.sqrt(share)
            sums = score.split(release.value)
            estimate.update(score, sums, release.noise_std, share, late=late, step=step, probe=probe)
            if self._cumulant_share and tensor_noise > 0:
                estimate.refit(tensor, tensor_noise)
        stability, real = estimate.stability()
        # Without noise the stability is 1 by definition.
        if release.noise_std == 0:
            stability, real = np.ones(R), np.ones(R, dtype=bool)
        return estimate.B / np.linalg.norm(estimate.B, axis=1, keepdims=True), stability, int(np.sum(real))

    def _second_order(
        self, inside: Coordinates, simulated: ReplayedSpectra, columns: Floats
    ) -> Generator[Request, Release, tuple[Floats, Floats, Floats, Floats, int]]:
        """The second-order solver. Without a reduction the number of directions above the noise comes from the sum of
        all bands.

        Parameters
        ----------
        inside : Coordinates
            Reduced coordinates, D x R.
        simulated : ReplayedSpectra
            Repetitions of the last pass.
        columns : array of shape (D, directions)
            Directions of the last pass.

        Returns
        -------
        projection, reconstruction, rotation : array of shape (R, R)
        stability : array of shape (R,)
        above : int
        """
        statistic, R = self._band_statistic(inside), self.n_components
        release = yield PrivateSum(statistic, 1 - self._reduction_share)
        moments, noise = statistic.split(release.value), release.noise_std
        white, back, rotation = separate(moments, noise)
        if noise == 0:
            return white, back, rotation, np.ones(R), R
        if not self._pass_shares:
            simulated = ReplayedSpectra.exact(np.maximum(np.diag(np.sum(moments, axis=0)), noise))
        stability = bootstrap_stability(moments, noise, simulated, rotation, back, columns, self.start)
        if self._pass_shares:
            return white, back, rotation, stability, R
        # Noise of independent bands adds in squares. Only directions above the edge of that noise count as stable.
        spectrum = NoisySpectrum.from_release(np.sum(moments, axis=0), noise * math.sqrt(len(moments)))
        made_of, real = (spectrum.vectors.T @ back @ rotation.T) ** 2, spectrum.values > 0
        return white, back, rotation, stability * np.sqrt(real @ made_of / np.sum(made_of, axis=0)), int(np.sum(real))

    # ---- requests -----------------------------------------------------------------------------------------

    @property
    def _unit_parameters(self) -> dict[str, Any]:
        """Parameters of all statistics."""
        return {"columns": len(self.columns), "per_recording": self.per_recording}

    def _moment_request(self, inside: Coordinates, share: float) -> PrivateSum:
        """Request of a second moment in the coordinates `inside`.

        Parameters
        ----------
        inside : Coordinates
            Coordinates D x k, in which each unit's matrix is normalised.
        share : float
            Share of the budget.
        """
        # Products with the identity are left out.
        projection = None if inside.whole else inside.projection
        return PrivateSum(Scatter(**self._unit_parameters, projection=projection), share)

    def _first_basis(self) -> Floats:
        """The public first basis of subspace iteration, width x (R + extra)."""
        return first_basis(self.width, self.n_components + self._schedule.extra, self.start)

    def _product_request(self, Q: Floats, share: float) -> PrivateSum:
        """Request of a round of subspace iteration with the basis `Q`.

        Parameters
        ----------
        Q : array of shape (width, R + extra)
            Public or released basis with orthonormal columns.
        share : float
            Share of the budget.
        """
        projection = None if self.basis is None else self._public_coordinates.projection
        return PrivateSum(ScatterProduct(**self._unit_parameters, projection=projection, basis=Q), share)

    @property
    def _source_parameters(self) -> dict[str, Any]:
        """Parameters of statistics of time courses."""
        usual = TUNING.autocorrelation_window if self._autocorrelated else TUNING.window
        return self._unit_parameters | {"window": self.window or usual}

    def _cumulant_statistic(self, white: Coordinates) -> FourthCumulants:
        """Statistic of fourth cumulants in white coordinates."""
        return FourthCumulants(**self._source_parameters, unmixing=white.projection.T)

    def _score_statistic(self, unmixing: Floats, estimate: Filter | None = None, late: bool = False) -> UnmixingScore:
        """Statistic of a round at `unmixing` (R x D), with the scores that the filter selected, if there is one.

        Parameters
        ----------
        unmixing : array of shape (R, D)
            Where the scores are evaluated.
        estimate : Filter, optional
            Selects signs, scores and the weight of slopes. None: the first round, or a template.
        late : bool
            Whether the round is a late one, with less weight on slopes.
        """
        chosen: dict[str, Any] = {}
        if estimate is not None:
            chosen = {"signs": estimate.signs, "scores": estimate.scores, "slope_weight": estimate.slope_weight(late)}
        return UnmixingScore(**self._source_parameters, unmixing=unmixing, **chosen)

    def _band_statistic(self, inside: Coordinates) -> BandScatter:
        """Statistic of second moments by frequency band in the coordinates `inside`.

        Parameters
        ----------
        inside : Coordinates
            Coordinates D x R.
        """
        return BandScatter(
            **self._unit_parameters, projection=inside.projection, edges=self.edges, seconds=self.seconds
        )


def _placeholder(columns: int, width: int) -> Coordinates:
    """Placeholder coordinates of zeros (columns x width), for the sizes of planned requests."""
    return Coordinates(np.zeros((columns, width)), np.zeros((columns, width)))


def _in_order(maps: Floats, unmixing: Floats, stability: Floats) -> dict[str, tuple[Floats, Kind]]:
    """The results in order of strength, every map with norm 1 and its largest entry positive.

    A map that is scaled down scales its time course and so its filter up.

    Parameters
    ----------
    maps : array of shape (D, R)
        Columns of the mixing matrix in the units of the data.
    unmixing : array of shape (R, D)
        Filters.
    stability : array of shape (R,)
        In the order of the columns of `maps`.
    """
    norms = np.linalg.norm(maps, axis=0)
    order = np.argsort(-norms, kind="stable")
    scale = np.where(norms > 0, norms, 1.0) * signs(maps)
    return {
        "maps": ((maps / scale).T[order], "map"),
        "unmixing": ((unmixing * scale[:, None])[order], "filter"),
        "strength": ((norms**2 / max(float(np.sum(norms**2)), 1e-300))[order], "share"),
        "stability": (stability[order], "diagnostic"),
    }
