"""Principal components: the public parameters of a study, and what the planner chooses from public facts.

The planner sees the number of columns D, the number of units n where it is public, and the noise S(1) of a sum of
sensitivity 1 that takes the whole budget. It sees no data, so that its choices cost no privacy. It chooses

- the number and the share of the centring releases (`_plan_centring`), from sqrt(D) S(1)/n, the size of the noise of a
  matrix relative to the units;
- whether records are rounded before the matrix is formed (`_may_round`);
- the rounds of the subspace solver (`subspace.choose_schedule`).

Symbols are those of `pca.program`. The clip of a study with its own centre is chosen later, from releases
(`centering.choose_clip`); with a public centre it is `_public_clip`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.expectation import (
    RECORDS,
    STEEP_RECORDS,
    Expectation,
    found,
    record_spectrum,
    resting_spectrum,
)
from zerosum.algorithms.pca.subspace import GUESSED_UNITS, Schedule, choose_schedule
from zerosum.algorithms.pca.tuning import TUNING
from zerosum.algorithms.program import PublicFacts, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.statistics.rounded_scatter import STEP


class PCAPlanning(RangedAlgorithm):
    """The parameters of `PCAProgram`, which documents them, their checks, and the planner's choices."""

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
        program = self
        if self.finds_centre:
            program = program.model_copy(update=self._plan_centring(facts))
        if self.chosen == "matrix":
            return (
                program if self.rounded is not None else program.model_copy(update={"rounded": self._may_round(facts)})
            )
        # Noise of one product that takes all of the share `_main_share`: replacing a unit moves a product by sqrt(2).
        whole = facts.noise * math.sqrt(2 / program._main_share)
        given = self.rounds, self.growth, self.extra
        schedule = choose_schedule(len(self.columns), self.n_components, facts.units, whole, *given)
        return program.model_copy(update=asdict(schedule))

    def expectation(self, facts: PublicFacts) -> Expectation | None:
        """Expected correlation of the components with those without noise, for an assumed spectrum.

        The lower end is that of single components, the upper end that of the space that they span. For records a
        steeper spectrum makes the upper end.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        if facts.units is None or self.chosen != "matrix":
            return None
        planned, D = self.resolve(facts), len(self.columns)
        # Replacing a unit moves the second moment by sqrt(2).
        x = math.sqrt(2 / planned._main_share) * facts.noise / max(facts.units, 1)
        if self.per_recording != "none":
            single, cosines = found(resting_spectrum(D), self.n_components, D, x)
            why = "for the spectrum of resting-state fMRI; single components, and the space that they span"
            return Expectation(single, max(single, float(np.mean(cosines))), why)
        single = found(record_spectrum(D, RECORDS), self.n_components, D, x)[0]
        space = float(np.mean(found(record_spectrum(D, STEEP_RECORDS), self.n_components, D, x)[1]))
        why = (
            f"for eigenvalues that fall as k^-{RECORDS:g}, single components, and as k^-{STEEP_RECORDS:g}, their space"
        )
        return Expectation(min(single, space), max(single, space), why)

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
    def _has_centring(self) -> bool:
        """Whether there are centring rounds. A share of 0 means that the planner found them too expensive."""
        return self.finds_centre and self.look_share != 0

    @property
    def _centring_count(self) -> int:
        """Number of centring rounds, two unless resolved otherwise."""
        return self.small_looks or 2

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
    def _first_center(self) -> Floats:
        """The public centre before any release, of shape (D,)."""
        return self.middle if self.centering != "none" else np.zeros(len(self.columns))
