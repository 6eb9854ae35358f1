"""Independent components over sites: maps that people share, each with a time course of its own in every person."""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.joint_diagonalization import joint_rotation
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.algorithms.schedule import Schedule, best
from zerosum.algorithms.spectral import Coordinates, NoisySpectrum, first_basis, refined, signs, subspace_iteration
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Axis, Kind, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.bands import BandScatter
from zerosum.statistics.rotation import Nonlinearity, RotationScore
from zerosum.statistics.scatter import PerRecording, Scatter, ScatterProduct

_MATRIX_COLUMNS = 2000  # beyond, a few more dimensions than components are found by subspace iteration first
_FAST_SECONDS = 5.0  # sampled faster than this, blood flow is autocorrelated
_REDUCTION, _WHITENING = 0.6, 0.07  # shares of the budget, where something is to be reduced
_GROWTH, _FIRST_STEP = 2.0, 2.0  # the last round's share over the first's; how far first steps overshoot
_REPEATS = 20  # draws behind the stability of second-order components


class ICA(Algorithm):
    """Temporal ICA in three stages, all paid: find the space of the components, whiten it, turn it.

    1. `n_passes` looks at people's second moments, each in coordinates where the last one's strong directions are
       damped (see `spectral`); in the span of a public `basis`, where one is given.
    2. The solver. `fixed-point` takes one more release to whiten and then `rounds` rounds of rotation, each person
       saying in which direction (see `RotationScore`), the last third averaged. `second-order` asks once for second
       moments by frequency and diagonalises them jointly: the way for autocorrelated, nearly Gaussian time courses.
       `auto` takes it where a band-pass is named or rows are less than five seconds apart, and looks at nothing else.

    The `nonlinearity` is "volatility" (sources whose size changes over time; it sees twice as much as tanh in those of
    the papers) or "tanh", which is left where the same metadata say that rows are autocorrelated.

    Every person weighs the same, whatever its length and scale. Results, strongest first: `maps` (one a row, norm 1,
    largest entry positive), `unmixing` (one a row: time courses are rows @ unmixing'), `strength` (how much of the
    reduced variance each makes up), `stability` (the correlation of each with what it would be without noise: what the
    last pass holds of its directions, times what the solver's noise leaves, by theory or by playing it again),
    `eigenvalues` and `above_noise` of the last pass.
    """

    name: ClassVar[str] = "ica"
    rows_of_a_unit: ClassVar[int] = 30
    n_components: int = Field(ge=2)
    solver: Literal["auto", "fixed-point", "second-order"] = "auto"
    nonlinearity: Nonlinearity | None = None
    window: int = Field(default=9, gt=0)
    """Rows over which the size of a source is taken."""
    basis: FloatArray | None = None
    per_recording: PerRecording = "center"
    n_passes: int = Field(default=2, gt=0)
    rounds: int = Field(default=12, gt=2)
    reduction_share: float | None = Field(default=None, gt=0, lt=1)
    """What finding the space of the components costs, as a share of the budget."""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    band: tuple[float, float] | None = None
    bands: int = Field(default=4, ge=2)
    subspace_rounds: int | None = Field(default=None, gt=0)
    """Beyond 2000 dimensions: rounds of the first look, by default the planner's choice."""
    subspace_growth: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """And how much more the last of them gets than the first."""
    start: int = 0
    """Seed of the public first rotation, nothing else."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.basis is not None:
            if self.basis.ndim != 2 or self.basis.shape[0] != len(self.columns):
                raise ValueError(f"the basis must have {len(self.columns)} rows, got shape {self.basis.shape}")
            if np.linalg.matrix_rank(self.basis.T @ self.basis, hermitian=True) < self.basis.shape[1]:
                raise ValueError("the columns of the basis must be linearly independent")
        if self.n_components > self.width:
            raise ValueError(f"at most {self.width} components can be had, got {self.n_components}")
        if self.band is not None and not 0 <= self.band[0] < self.band[1] < math.inf:
            raise ValueError("band must be two frequencies in hertz, the lower one first")
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
    def score(self) -> Nonlinearity:
        """The nonlinearity of the fixed-point solver."""
        return self.nonlinearity or ("tanh" if self._autocorrelated else "volatility")

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
        return 0.0 if self.chosen == "second-order" else _WHITENING * (1 - self._reduction) / (1 - _REDUCTION)

    @property
    def _turns(self) -> tuple[float, ...]:
        weights = [_GROWTH ** (r / (self.rounds - 1)) for r in range(self.rounds)]
        left = 1 - self._reduction - self._whitening
        return tuple(left * weight / math.fsum(weights) for weight in weights)

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.subspace_rounds or 3, self.subspace_growth or 2.0, min(10, self.width - self.n_components))

    def resolve(self, facts: PublicFacts) -> Self:
        if not self._wide or not self._pass_shares:
            return self
        whole = facts.noise * math.sqrt(2 / self._pass_shares[0])
        extra = self._schedule.extra
        found = best(
            self.width, self.n_components, facts.units, whole, self.subspace_rounds, self.subspace_growth, extra
        )
        return self.model_copy(update={"subspace_rounds": found.rounds, "subspace_growth": found.growth})

    @property
    def describe(self) -> str:
        spent = [f"{self._reduction:.3g} of the budget to reduce {self.width} dimensions to {self.n_components}"]
        if self.chosen == "fixed-point":
            spent += [f"{self._whitening:.3g} to whiten", f"{sum(self._turns):.3g} for {self.rounds} rounds"]
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
        if self.chosen == "second-order":
            return (*asked, PrivateSum(self._by_band(white), 1 - self._reduction))
        turn = _shaped(R, R).projection
        score = self._score(turn, white)
        return (*asked, self._moment(white, self._whitening), *[PrivateSum(score, s) for s in self._turns])

    def program(self, adjacency: Adjacency) -> Program:
        inside, values, above, held = yield from self._reduced()
        if self.chosen == "second-order":
            white, reconstruction, rotation, stability = yield from self._by_frequency(inside)
        else:
            white, reconstruction = yield from self._whitened(inside)
            rotation, stability = yield from self._turned(inside.then(white, reconstruction))
        inside, made_of = inside.then(white, reconstruction), (reconstruction @ rotation.T) ** 2
        unmixing, maps = rotation @ inside.projection.T, inside.reconstruction @ rotation.T
        stability = stability * np.sqrt(held @ made_of / np.sum(made_of, axis=0))
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

    def _reduced(self) -> Generator[Request, Release, tuple[Coordinates, Floats, int, Floats]]:
        """The space of the components, the last pass's eigenvalues, how many stand above the noise, and what share of
        each direction is real."""
        R, shares = self.n_components, self._pass_shares
        values, above, real = np.zeros(R), R, np.ones(R)
        wide = self._wide and len(shares) > 0
        inside = (yield from self._subspace(shares[0])) if wide else self._start
        shares = shares[1:] if wide else shares
        for number, share in enumerate(shares):
            release = yield self._moment(inside, share)
            spectrum = NoisySpectrum.at(
                coordinates.unpack(release.value, inside.projection.shape[1]), release.noise_std
            )
            values, above = (
                spectrum.values[:R] / (release.units or 1.0),
                int(np.sum(spectrum.released[:R] > spectrum.edge)),
            )
            real = spectrum.real[:R]
            last = number == len(shares) - 1
            inside = inside.then(*(spectrum.leading(R) if last else spectrum.damped(R)))
        return inside, values, above, real

    def _subspace(self, share: float) -> Generator[Request, Release, Coordinates]:
        parts = [share * part for part in self._schedule.shares]
        Q, _values, _release = yield from subspace_iteration(self._first_basis(), parts, self._product)
        return Coordinates(Q, Q) if self.basis is None else self._start.then(Q, Q)

    def _whitened(self, inside: Coordinates) -> Generator[Request, Release, tuple[Floats, Floats]]:
        release = yield self._moment(inside, self._whitening)
        return refined(coordinates.unpack(release.value, self.n_components), release.noise_std)

    def _turned(self, inside: Coordinates) -> Generator[Request, Release, tuple[Floats, Floats]]:
        """Rotations by Newton's steps: those of the last third are averaged, by taking less and less of each."""
        R, shares = self.n_components, self._turns
        rotation = first_basis(R, R, self.start)
        turned, settling = np.ones(R), self.rounds - max(1, self.rounds // 3)
        slopes, doubt, precision = np.zeros(R), 0.0, 0.0  # the mean slope of the last third, and its variance
        for number, share in enumerate(shares):
            statistic = self._score(rotation, inside, turned)
            release = yield PrivateSum(statistic, share)
            skew, slope = statistic.split(release.value)
            if number < settling:
                step = _FIRST_STEP + (1 - _FIRST_STEP) * number / settling
            else:
                step = share / math.fsum(shares[settling : number + 1])
                weight = share / math.fsum(shares[settling:])
                slopes, doubt = slopes + weight * slope, doubt + (weight * release.noise_std / statistic.diagonal) ** 2
                precision += 1 / max(2 * release.noise_std**2, 1e-300)
            rotation = _polar(np.diag(slope) - step * skew) @ rotation
            wrong = slope < -2 * release.noise_std / statistic.diagonal
            turned = np.where(wrong, -turned, turned)
        gains = np.maximum((slopes[:, None] + slopes[None, :]) ** 2 - 2 * doubt, 0.0)  # squared
        angles = 1 / np.maximum(gains * precision, 1e-12)  # their variances
        return rotation, 1 / np.sqrt(1 + np.sum(angles, axis=1) - np.diag(angles))

    def _by_frequency(self, inside: Coordinates) -> Generator[Request, Release, tuple[Floats, Floats, Floats, Floats]]:
        statistic = self._by_band(inside)
        release = yield PrivateSum(statistic, 1 - self._reduction)
        moments, noise = statistic.split(release.value), release.noise_std
        white, reconstruction = refined(np.sum(moments, axis=0), noise * math.sqrt(self.bands))
        moments = white.T @ moments @ white
        rotation = joint_rotation(moments).T
        stability = np.ones(self.n_components)
        if noise > 0:
            again = np.zeros((_REPEATS, self.n_components))
            rng = np.random.default_rng(self.start)
            size = coordinates.size(self.n_components)
            for draw in again:
                drawn = [coordinates.unpack(noise * rng.normal(size=size), self.n_components) for _ in moments]
                other = joint_rotation(rotation @ (moments + white.T @ np.stack(drawn) @ white) @ rotation.T)
                draw[:] = np.max(np.abs(other), axis=1)
            stability = np.mean(again, axis=0)
        return white, reconstruction, rotation, stability

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

    def _score(self, rotation: Floats, inside: Coordinates, turned: Floats | None = None) -> RotationScore:
        unmixing = rotation @ inside.projection.T
        shape = {"nonlinearity": self.score, "window": self.window}
        return RotationScore(**self._common, unmixing=unmixing, signs=turned, **shape)

    def _by_band(self, inside: Coordinates) -> BandScatter:
        return BandScatter(**self._common, projection=inside.projection, edges=self.edges, seconds=self.seconds)


def _shaped(columns: int, width: int) -> Coordinates:
    """Coordinates of the right shape, before there are any."""
    return Coordinates(np.zeros((columns, width)), np.zeros((columns, width)))


def _polar(matrix: Floats) -> Floats:
    """The nearest rotation."""
    left, _values, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)


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
