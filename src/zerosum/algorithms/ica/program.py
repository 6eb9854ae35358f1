"""Independent components over sites: maps that people share, each with a time course of its own in every person."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.ica.filter import Filter
from zerosum.algorithms.ica.joint_diagonalization import replayed, separated
from zerosum.algorithms.ica.start import directions
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

_MATRIX_COLUMNS = 2000  # beyond, a few more dimensions than components are found by subspace iteration first
_FAST_SECONDS = 5.0  # sampled faster than this, blood flow is autocorrelated
_REDUCTION, _LEAST_REDUCTION = 0.6, 0.4  # of the budget, where something is to be reduced
_STRENGTH = 0.85  # of a direction, over what it would be if all were alike in everybody and there were no others
_SHOWN, _CLEAR = 4.2, 5.0  # how clear sources are where nearly all, and where half is needed to show them
_WHITENING = 0.05  # of what is left
_START, _ROUNDS = 0.3, 10  # the share of the cumulants in what is left, and rounds, where no planner was asked
_SETTLED = 0.6  # of the rounds: by then it should be known what each source is like
_GROWTH = 2.0  # the last round's share over the first's
_MOST_SOURCES = 40  # beyond, no tensor of fourth cumulants is asked for: 123 410 numbers


class ICAProgram(Algorithm):
    """Temporal ICA in three stages, all paid: find the space of the components, whiten it, turn it.

    1. `n_passes` looks at people's second moments, each in coordinates where the last one's strong directions are
       damped (see `spectral`); in the span of a public `basis`, where one is given. The first leaves only the
       strongest `left_dimensions` to the others: all, unless directions are expected to be weak in the noise.
    2. The solver. `fixed-point` takes one more release to whiten, one of fourth cumulants (see `FourthCumulants`) for a
       start, and then `rounds` rounds in which each person tells how its sources are still mixed (see `UnmixingScore`),
       from which a filter corrects rotation and whitening together (see `unmixing`). What was released decides which
       score suits which source: heavy tails, light tails, or sizes that change over time. `second-order` asks once for
       second moments by frequency and diagonalises them jointly: the way for autocorrelated, nearly Gaussian time
       courses. `auto` takes it where a band-pass is named or rows are less than five seconds apart, and looks at
       nothing else.

    `window` is over how many rows the size of a source is taken, 9, or 1 where the same metadata say that rows are
    autocorrelated. `left_dimensions`, `rounds`, `start_share`, the cumulants' part of the budget, and
    `reduction_share`, that of the looks, are left to the planner.

    Every person weighs the same, whatever its length and scale. Results, strongest first: `maps` (one a row, norm 1,
    largest entry positive), `unmixing` (one a row: time courses are rows @ unmixing'), `strength` (how much of the
    reduced variance each makes up), `stability` (the correlation of each with what it would be without noise: what the
    last pass holds of its directions, times what the solver's noise leaves, by theory or by playing it again),
    `eigenvalues` of the last pass, and `above_noise`: how many of these stand above its noise, and no more than there
    are sources that the rounds of `fixed-point` prove to be more than noise.
    """

    name: ClassVar[str] = "ica"
    rows_of_a_unit: ClassVar[int] = 30
    n_components: int = Field(ge=2)
    solver: Literal["auto", "fixed-point", "second-order"] = "auto"
    window: int | None = Field(default=None, gt=0)
    """Rows over which the size of a source is taken: 9, or 1 where rows are autocorrelated."""
    basis: FloatArray | None = None
    per_recording: PerRecording = "center"
    n_passes: int = Field(default=2, gt=0)
    rounds: int | None = Field(default=None, gt=2)
    """Rounds of the fixed-point solver, by default the planner's choice."""
    start_share: float | None = Field(default=None, ge=0, le=0.9)
    """What the fourth cumulants cost, as a share of what the reduction leaves, by default the planner's choice."""
    reduction_share: float | None = Field(default=None, gt=0, lt=1)
    """What finding the space of the components costs, as a share of the budget."""
    left_dimensions: int | None = Field(default=None, gt=0)
    """How many dimensions the first look leaves to the others, by default the planner's choice."""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    band: tuple[float, float] | None = None
    bands: int = Field(default=4, ge=2)
    subspace_rounds: int | None = Field(default=None, gt=0)
    """Beyond 2000 dimensions: rounds of the first look, by default the planner's choice."""
    subspace_growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """And how much more the last of them gets than the first."""
    start: int = 0
    """Seed of the public first rotation, nothing else."""

    @model_validator(mode="before")
    @classmethod
    def _chooses_itself(cls, given: Any) -> Any:
        if isinstance(given, dict) and "nonlinearity" in given:
            raise ValueError("nonlinearity is no parameter any more: it is chosen for each source. Leave it out")
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.basis is not None:
            if self.basis.ndim != 2 or self.basis.shape[0] != len(self.columns):
                raise ValueError(f"the basis must have {len(self.columns)} rows, got shape {self.basis.shape}")
            if np.linalg.matrix_rank(self.basis.T @ self.basis, hermitian=True) < self.basis.shape[1]:
                raise ValueError("the columns of the basis must be linearly independent")
        if self.n_components > self.width:
            raise ValueError(f"at most {self.width} components can be had, got {self.n_components}")
        if self.left_dimensions is not None and not self.n_components <= self.left_dimensions <= self.width:
            raise ValueError(f"the first look leaves {self.n_components} to {self.width} dimensions to the others")
        if self.left_dimensions is not None and (self._wide or self.n_passes < 2):
            raise ValueError("left_dimensions is for two passes or more over at most 2000 dimensions")
        if self.band is not None and not 0 <= self.band[0] < self.band[1] < math.inf:
            raise ValueError("band must be two frequencies in hertz, the lower one first")
        if self.band is not None and self.seconds is not None and self.band[0] >= 0.5 / self.seconds:
            raise ValueError(
                f"rows {self.seconds:g} seconds apart show frequencies up to {0.5 / self.seconds:g} hertz, and "
                "the band lies above that"
            )
        if self._wide and self.n_passes < 2:
            raise ValueError(
                f"{self.width} dimensions take two passes at least: subspace iteration, and a look at what it found"
            )
        if self.chosen == "second-order" and self.band is None and self.seconds is None:
            raise ValueError("second-order needs the band of frequencies, or the seconds between rows")
        return self

    @property
    def width(self) -> int:
        """How many dimensions there are before reduction."""
        return len(self.columns) if self.basis is None else int(self.basis.shape[1])

    @property
    def chosen(self) -> str:
        """The solver that runs."""
        if self.solver != "auto":
            return self.solver
        return "second-order" if self._autocorrelated else "fixed-point"

    @property
    def _autocorrelated(self) -> bool:
        return self.band is not None or (self.seconds is not None and self.seconds < _FAST_SECONDS)

    @property
    def edges(self) -> Floats:
        """The bands of the second-order solver in hertz, wider where frequencies are higher."""
        low, high = self.band or (0.0, 0.5 / (self.seconds or 1.0))
        return np.linspace(math.sqrt(low), math.sqrt(high), self.bands + 1) ** 2

    # ---- shares ------------------------------------------------------------------------------------------------

    @property
    def _wide(self) -> bool:
        return self.width > _MATRIX_COLUMNS

    @property
    def _pass_shares(self) -> tuple[float, ...]:
        """The shares of the looks in which dimensions are reduced."""
        if self.width == self.n_components:
            return ()
        weights = [1.6**r for r in range(self.n_passes)]
        return tuple(self._reduction * weight / math.fsum(weights) for weight in weights)

    @property
    def _reduction(self) -> float:
        if self.width == self.n_components:
            return 0.0
        return _REDUCTION if self.reduction_share is None else self.reduction_share

    @property
    def _whitening(self) -> float:
        return 0.0 if self.chosen == "second-order" else _WHITENING * (1 - self._reduction)

    @property
    def _starting(self) -> float:
        """The share of the cumulants."""
        if self.chosen == "second-order" or self.n_components > _MOST_SOURCES:
            return 0.0
        return (_START if self.start_share is None else self.start_share) * (1 - self._reduction)

    @property
    def _turns(self) -> tuple[float, ...]:
        rounds = _ROUNDS if self.rounds is None else self.rounds
        weights = [_GROWTH ** (r / (rounds - 1)) for r in range(rounds)]
        left = 1 - self._reduction - self._whitening - self._starting
        return tuple(left * weight / math.fsum(weights) for weight in weights)

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.subspace_rounds or 3, self.subspace_growth or 2.0, min(10, self.width - self.n_components))

    def resolve(self, facts: PublicFacts) -> Self:
        planned = self
        if self.chosen == "fixed-point":
            if self.reduction_share is None and self.width > self.n_components:
                planned = planned.model_copy(update={"reduction_share": self._planned_reduction(facts)})
            share, rounds = planned._planned(facts)
            given = {"start_share": share, "rounds": rounds}
            planned = planned.model_copy(update={name: given[name] for name in given if getattr(self, name) is None})
        shares = planned._pass_shares
        if self._wide and shares:
            whole = facts.noise * math.sqrt(2 / shares[0])
            asked = self.subspace_rounds, self.subspace_growth, self._schedule.extra
            found = choose_schedule(self.width, self.n_components, facts.units, whole, *asked)
            return planned.model_copy(update={"subspace_rounds": found.rounds, "subspace_growth": found.growth})
        if len(shares) > 1 and self.left_dimensions is None:
            strength = _STRENGTH * (facts.units or GUESSED_UNITS) / math.sqrt(self.n_components)
            noise, later = facts.noise * math.sqrt(2), math.fsum(shares[1:])
            count = best_count(self.width, self.n_components, strength, noise, shares[0], later)
            planned = planned.model_copy(update={"left_dimensions": count})
        return planned

    def _clear(self, facts: PublicFacts, share: float) -> float:
        """About how far the kurtosis of Laplace sources would stand above what `directions` finds in noise, if this
        share of the budget were spent on it."""
        noise = 2 * facts.noise / math.sqrt(share)
        return 4.3 * (facts.units or GUESSED_UNITS) / (max(noise, 1e-300) * math.pow(self.n_components, 1.5))

    def _planned_reduction(self, facts: PublicFacts) -> float:
        """No more than leaves enough to show the sources: of directions alone nobody can make maps."""
        return min(max(1 - (_SHOWN / self._clear(facts, 1.0)) ** 2, _LEAST_REDUCTION), _REDUCTION)

    def _planned(self, facts: PublicFacts) -> tuple[float, int]:
        """The share of the cumulants in what the reduction leaves, and how many rounds.

        The less `_clear`, the more is needed for a start, and the more rounds. Below 5 it leaves too little for rounds,
        which then start from anywhere. That takes nearly the whole budget, so where dimensions are reduced cumulants
        are asked for down to 4.2, and rounds only finish what these begin. Without noise rounds cost nothing, and there
        are as many as it takes to converge.
        """
        clear = self._clear(facts, 1 - self._reduction)
        if clear < (0.99 * _SHOWN if self._reduction else _CLEAR):
            return 0.0, 12
        most = float(np.interp(clear, [_SHOWN, _CLEAR], [0.8, 0.45]))
        share = min(max((5.5 / clear) ** 2, 0.12), most)
        if not facts.noise:
            return share, 12
        return share, 10 if _CLEAR <= clear < max(9.0, 0.9 * self.n_components) else 6

    @property
    def describe(self) -> str:
        fewer = "" if self._wide else f", by way of {self.left_dimensions}"
        spent = [
            f"{self._reduction:.3g} of the budget to reduce {self.width} dimensions to {self.n_components}"
            + (fewer if self.left_dimensions not in (None, self.width) else "")
        ]
        if self.chosen == "fixed-point":
            spent += [f"{self._whitening:.3g} to whiten", f"{self._starting:.3g} for fourth cumulants"]
            spent += [f"{sum(self._turns):.3g} for {len(self._turns)} rounds"]
        else:
            spent += [f"{1 - self._reduction:.3g} for {self.bands} bands up to {self.edges[-1]:.3g} Hz"]
        return f"solver {self.chosen}, {', '.join(spent)}"

    # ---- the program -------------------------------------------------------------------------------------------

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        R, asked = self.n_components, []
        inside, white = self._start if not self._wide else None, _shaped(len(self.columns), R)
        for share in self._pass_shares:
            if inside is None:
                Q = self._first_basis()
                asked += [self._product(Q, share * part) for part in self._schedule.shares]
                inside = _shaped(len(self.columns), Q.shape[1])
            else:
                asked.append(self._moment(inside, share))
                if not self._wide and self.left_dimensions is not None:
                    inside = _shaped(len(self.columns), self.left_dimensions)
        if self.chosen == "second-order":
            return (*asked, PrivateSum(self._by_band(white), 1 - self._reduction))
        asked.append(self._moment(white, self._whitening))
        if self._starting:
            asked.append(PrivateSum(self._cumulants(white), self._starting))
        score = self._score(white.projection.T)
        return (*asked, *[PrivateSum(score, share) for share in self._turns])

    def program(self, adjacency: Adjacency) -> Program:
        inside, values, above, again, columns = yield from self._reduced()
        if self.chosen == "second-order":
            white, reconstruction, B, stability, real = yield from self._by_frequency(inside, again, columns)
            above = min(above, real)
        else:
            white, reconstruction, left = yield from self._whitened(inside)
            B, stability, real = yield from self._unmixed(inside.then(white, reconstruction), left)
            above = min(above, real)
            made_of = (reconstruction @ np.linalg.inv(B)) ** 2
            stability = stability * np.sqrt(again.share @ made_of / np.sum(made_of, axis=0))
        inside, back = inside.then(white, reconstruction), np.linalg.inv(B)
        unmixing, maps = B @ inside.projection.T, inside.reconstruction @ back
        axis = Axis.numbered("component", self.n_components)
        estimate = {
            name: Quantity(value, kind, (axis, self.column_axis)[: value.ndim])
            for name, (value, kind) in _ordered(maps, unmixing, stability).items()
        }
        return estimate | {
            "eigenvalues": Quantity(values, "eigenvalue", (axis,)),
            "above_noise": Quantity(np.array([float(above)]), "diagnostic"),
        }

    @cached_property
    def _start(self) -> Coordinates:
        return Coordinates.of(self.basis) if self.basis is not None else Coordinates.all(len(self.columns))

    def _reduced(self) -> Generator[Request, Release, tuple[Coordinates, Floats, int, ReplayedSpectra, Floats]]:
        """The space of the components, the last pass's eigenvalues, how many stand above the noise, looks like the last
        one played again, and its directions in columns, those of the components first."""
        R, shares = self.n_components, self._pass_shares
        if not shares:
            return self._start, np.zeros(R), R, ReplayedSpectra.exact(np.ones(R)), self._start.reconstruction
        inside = (yield from self._subspace(shares[0])) if self._wide else self._start
        damped, scale, looks = None, 1.0, list[NoisySpectrum]()
        for share in shares[1:] if self._wide else shares:
            if looks:
                damped = looks[-1].damp(R, None if self._wide else self.left_dimensions)
                inside = inside.then(damped.projection, damped.reconstruction)
            release = yield self._moment(inside, share)
            look, noise = coordinates.unpack(release.value, inside.projection.shape[1]), release.noise_std
            if damped is not None:
                scale *= damped.scale(look)
                look, noise = combine_releases(look, noise, damped)
            looks.append(NoisySpectrum.from_release(look, noise))
        last, above = looks[-1], int(np.sum(looks[-1].noisy_values[:R] > looks[-1].edge))
        columns = inside.reconstruction @ last.vectors
        lengths = np.sum(columns[:, :R] ** 2, axis=0)  # what damping has made shorter
        again = last.replay(R, np.random.default_rng(self.start))
        again = replace(again, inside=looks[0].span_share(len(last.vectors), again.values[:R] * lengths / scale))
        return inside.then(*last.white_coordinates(R)), last.values[:R] / (release.units or 1.0), above, again, columns

    def _subspace(self, share: float) -> Generator[Request, Release, Coordinates]:
        parts = [share * part for part in self._schedule.shares]
        Q, _values, _release = yield from subspace_iteration(self._first_basis(), parts, self._product)
        return Coordinates(Q, Q) if self.basis is None else self._start.then(Q, Q)

    def _whitened(self, inside: Coordinates) -> Generator[Request, Release, tuple[Floats, Floats, float]]:
        """White coordinates and back, and the variance of the correlations that noise leaves in them."""
        release = yield self._moment(inside, self._whitening)
        matrix, noise = coordinates.unpack(release.value, self.n_components), release.noise_std
        return *whiten_again(matrix, noise), correlation_variance(matrix, noise)

    def _unmixed(self, white: Coordinates, left: float) -> Generator[Request, Release, tuple[Floats, Floats, int]]:
        """The unmixing matrix of white coordinates, rows of norm 1, the stability of each source, and how many are more
        than noise."""
        R, shares = self.n_components, self._turns
        found = Filter.blind(first_basis(R, R, self.start), left)
        if self._starting:
            statistic = self._cumulants(white)
            release = yield PrivateSum(statistic, self._starting)
            tensor, tensor_noise = statistic.split(release.value), release.noise_std
            found = Filter.started(*directions(tensor), tensor_noise, left)
        settled, overshoot = math.ceil(_SETTLED * len(shares)), min(max(len(shares) / 6, 1.0), 2.0)
        first, tried, noise = 2 * len(shares) // 3, np.eye(R), 0.0
        for number, share in enumerate(shares):
            late, step = number >= settled, overshoot if number < len(shares) // 2 else 1.0
            if number < first:
                found.stray(number)
            else:  # with the last round's noise, at this one's share
                tried = found.tried(noise / math.sqrt(share), len(shares) - first, number)
            score = self._score(tried @ found.B @ white.projection.T, found, late)
            release = yield PrivateSum(score, share)
            noise = release.noise_std * math.sqrt(share)
            told = score.split(release.value)
            found.update(score, told, release.noise_std, share, late=late, step=step, tried=tried)
            if self._starting and tensor_noise > 0:
                found.refit(tensor, tensor_noise)
        stability, real = found.stability()
        if release.noise_std == 0:
            stability, real = np.ones(R), np.ones(R, dtype=bool)
        return found.B / np.linalg.norm(found.B, axis=1, keepdims=True), stability, int(np.sum(real))

    def _by_frequency(
        self, inside: Coordinates, again: ReplayedSpectra, columns: Floats
    ) -> Generator[Request, Release, tuple[Floats, Floats, Floats, Floats, int]]:
        """White coordinates and back, the rotation, the stability of each source, and how many directions are more than
        noise: where there was nothing to reduce, and thus no look, the sum of all bands has to say that."""
        statistic, R = self._by_band(inside), self.n_components
        release = yield PrivateSum(statistic, 1 - self._reduction)
        moments, noise = statistic.split(release.value), release.noise_std
        white, back, rotation = separated(moments, noise)
        if noise == 0:
            return white, back, rotation, np.ones(R), R
        if not self._pass_shares:
            again = ReplayedSpectra.exact(np.maximum(np.diag(np.sum(moments, axis=0)), noise))
        stability = replayed(moments, noise, again, rotation, back, columns, self.start)
        if self._pass_shares:
            return white, back, rotation, stability, R
        look = NoisySpectrum.from_release(np.sum(moments, axis=0), noise * math.sqrt(len(moments)))
        made_of, real = (look.vectors.T @ back @ rotation.T) ** 2, look.values > 0
        return white, back, rotation, stability * np.sqrt(real @ made_of / np.sum(made_of, axis=0)), int(np.sum(real))

    # ---- what is asked -----------------------------------------------------------------------------------------

    @property
    def _common(self) -> dict[str, Any]:
        return {"columns": len(self.columns), "per_recording": self.per_recording}

    def _moment(self, inside: Coordinates, share: float) -> PrivateSum:
        return PrivateSum(Scatter(**self._common, projection=None if inside.whole else inside.projection), share)

    def _first_basis(self) -> Floats:
        return first_basis(self.width, self.n_components + self._schedule.extra, self.start)

    def _product(self, Q: Floats, share: float) -> PrivateSum:
        projection = None if self.basis is None else self._start.projection
        return PrivateSum(ScatterProduct(**self._common, projection=projection, basis=Q), share)

    @property
    def _sources(self) -> dict[str, Any]:
        return self._common | {"window": self.window or (1 if self._autocorrelated else 9)}

    def _cumulants(self, white: Coordinates) -> FourthCumulants:
        return FourthCumulants(**self._sources, unmixing=white.projection.T)

    def _score(self, unmixing: Floats, found: Filter | None = None, late: bool = False) -> UnmixingScore:
        chosen: dict[str, Any] = {}
        if found is not None:
            chosen = {"signs": found.signs, "scores": found.scores, "slope_weight": found.slope_weight(late)}
        return UnmixingScore(**self._sources, unmixing=unmixing, **chosen)

    def _by_band(self, inside: Coordinates) -> BandScatter:
        return BandScatter(**self._common, projection=inside.projection, edges=self.edges, seconds=self.seconds)


def _shaped(columns: int, width: int) -> Coordinates:
    """Coordinates of the right shape, before there are any."""
    return Coordinates(np.zeros((columns, width)), np.zeros((columns, width)))


def _ordered(maps: Floats, unmixing: Floats, stability: Floats) -> dict[str, tuple[Floats, Kind]]:
    """The strongest first, every map with norm 1 and its largest entry positive."""
    norms = np.linalg.norm(maps, axis=0)
    order = np.argsort(-norms, kind="stable")
    scale = np.where(norms > 0, norms, 1.0) * signs(maps)
    return {
        "maps": ((maps / scale).T[order], "map"),
        "unmixing": ((unmixing * scale[:, None])[order], "filter"),
        "strength": ((norms**2 / max(float(np.sum(norms**2)), 1e-300))[order], "share"),
        "stability": (stability[order], "diagnostic"),
    }
