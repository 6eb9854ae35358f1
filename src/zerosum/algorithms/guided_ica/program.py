"""Guided ICA over sites: the program that makes one release and shrinks it towards public template maps.

Symbols
-------
R, V, N
    Numbers of templates, of columns and of people.
M (R x V)
    Template maps, public, of norm 1.
E_i (R x V)
    What dual regression finds for person i beyond the templates; zero in their span (`statistics.dual_regression`).
Q (V x d), G (R x d)
    Public directions outside the templates' span, and the mean of E_i Q over public people (0 without them).
w (R x d), c, k
    Public weights; the clip; and the mean factor by which the clip shrinks people.
s
    Standard deviation of the noise of a released sum.

What is released
----------------
One sum over people, with the whole budget: of w (E_i Q - G), each clipped to norm c (`DualRegression`), sensitivity 2c.
All else is public beforehand or post-processing of the release.

The estimate
------------
The release over N k w is y - G: y estimates the mean difference over the people of the study, and its noise has the
variance t = (s/(N k w))^2. Of y that part is kept which noise does not explain.

With public people, in each block of directions,

    a = <G, y>/<G, G> in the metric 1/t, shrunk to a (1 - var a/a^2), at least 0    factor of the public people
    u = sum of ((y - a G)^2 - t) over the sum of v, at least 0                      size of the rest, in units of v
    D = a G + (y - a G) u v/(u v + t)

v is the variance of a public person. If the public people differ from the templates as those of the study do, a is near
1 and the noise matters little; if they do not, a is near 0, and the rest is shrunk towards the template. Directions
that are not released have the factor a of all blocks together, and no rest.

Without public people D is y times one factor,

    (1 - T/Y) (1 - (q/z)^2),    Y = sum of y^2, T = sum of t, z = (Y - T)/(T sqrt(2/(R d))),    0 for z <= q

that is towards the template by the known noise (James and Stein 1961), and all the way unless the release has clearly
more energy than its noise, which is T with a relative standard deviation of sqrt(2/(R d)). Without the second factor a
chance excess of a few hundredths of a large noise is worse than the template. Shrinking singular values one by one was
tried and is worse: differences have no lower rank than R.

The maps are M + D Q'. A template that fits well scores nearly 1 by itself, so a result is judged by D.

Why in the complement of the templates only: dual regression cannot change a map inside the templates' span, whatever
the data. A rotation of the templates among themselves is not estimated.

References: Beckmann et al. 2009 (`statistics.dual_regression`); docs/guided-ica.md.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.expectation import Expectation
from zerosum.algorithms.guided_ica.public import candidates, complement, weights_of
from zerosum.algorithms.guided_ica.tuning import TUNING
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.dual_regression import DualRegression
from zerosum.statistics.scatter import PerRecording


class GuidedICAProgram(Algorithm):
    """What people's dual regression changes about public template maps, from one release.

    Results, one row for each template:

    - `maps` (R x V): templates plus difference, of norm 1 each; the order and the signs are those of the templates.
    - `map_difference` (R x V): the difference from the template, of which the template has norm 1; `templates` (R x V).
    - `share_kept` (R): energy of the released directions of the difference after they were shrunk, over that before: 0
      says that nothing was above the noise.
    - `difference_noise` (1): expected norm of the noise in the released difference before it was shrunk.
    - `public_factor` (1), with public people: the factor of their difference, 1 if these people differ from the
      templates as the public ones do, 0 if the public ones say nothing.

    Parameters
    ----------
    templates : array of shape (R, V)
        Public maps; they are scaled to norm 1.
    basis : array of shape (V, K), optional
        Public directions in which maps may differ, the most important first. Only their part outside the templates'
        span is used. By default all directions.
    public_difference, public_spread, public_sizes, public_count : optional
        Facts about public people in this basis (`guided_ica.public.PublicPeople`).
    per_recording : {"none", "center", "standardise"}
        Operation on each column of each recording before all others.
    directions, clip : optional
        d and c; by default the planner's choice.
    """

    name: ClassVar[str] = "guided-ica"
    rows_of_a_unit: ClassVar[int] = 30
    templates: FloatArray
    basis: FloatArray | None = None
    public_difference: FloatArray | None = None
    public_spread: FloatArray | None = None
    public_sizes: FloatArray | None = None
    public_count: int | None = Field(default=None, gt=3)
    per_recording: PerRecording = "standardise"
    directions: int | None = Field(default=None, gt=0)
    """Number of directions that are released; by default the planner's choice."""
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest norm of a person's weighted difference; by default the planner's choice."""

    @model_validator(mode="after")
    def _validate(self) -> Self:
        """Refuse templates, directions and facts that contradict each other, before a plan is made."""
        M, V = self.templates, len(self.columns)
        if M.ndim != 2 or M.shape[1] != V:
            raise ValueError(f"templates must have a column for each of the {V} columns of the data, got {M.shape}")
        if not 1 <= len(M) < V:
            raise ValueError(f"templates must be fewer than the {V} columns, got {len(M)}")
        if np.linalg.matrix_rank(self.maps_of_norm_1) < len(M):
            raise ValueError("templates must be linearly independent: leave out maps that others explain, or are empty")
        if self.basis is not None and (self.basis.ndim != 2 or self.basis.shape[0] != V):
            raise ValueError(f"the basis must have {V} rows, got shape {self.basis.shape}")
        if self.basis is not None and not self.outside.shape[1]:
            raise ValueError("the basis must reach outside the span of the templates")
        known = (self.public_difference, self.public_spread, self.public_sizes, self.public_count)
        if any(each is None for each in known) and any(each is not None for each in known):
            raise ValueError("facts about public people belong together: take all that PublicPeople.parameters gives")
        if self.public_difference is not None and self.public_spread is not None and self.public_sizes is not None:
            shape = (len(M), self.outside.shape[1])
            if self.basis is None or self.public_difference.shape != shape or self.public_spread.shape != shape:
                raise ValueError(f"facts about public people must have the shape {shape} of templates and directions")
            if not np.all(self.public_spread > 0) or self.public_sizes.shape[1:] != (3,):
                raise ValueError("the spread of public people must be positive, and their sizes a table of 3 columns")
        if self.directions is not None and self.directions > self.most:
            raise ValueError(f"directions must be at most {self.most}, got {self.directions}")
        if self.basis is None and self.directions not in (None, self.most):
            raise ValueError("fewer directions need a basis, which states the most important ones")
        return self

    @cached_property
    def maps_of_norm_1(self) -> Floats:
        """M."""
        norms = np.linalg.norm(self.templates, axis=1, keepdims=True)
        return np.asarray(self.templates / np.where(norms > 0, norms, 1.0))

    @cached_property
    def outside(self) -> Floats:
        """Orthonormal directions of the basis outside the templates' span, shape (V, K)."""
        return complement(self.maps_of_norm_1, np.zeros((len(self.columns), 0)) if self.basis is None else self.basis)

    @property
    def most(self) -> int:
        """The largest number of directions: those of the basis, or all outside the templates' span."""
        R, V = self.templates.shape
        return V - R if self.basis is None else int(self.outside.shape[1])

    @property
    def used(self) -> int:
        """d."""
        return self.most if self.directions is None else self.directions

    @property
    def informed(self) -> bool:
        """Whether there are public people."""
        return self.public_difference is not None

    @property
    def radius(self) -> float:
        """c."""
        if self.clip is not None:
            return self.clip
        if self.public_sizes is None:
            return TUNING.plain_clip * math.sqrt(len(self.templates))
        return float(self._size_of(self.used)[0])

    @property
    def mean_factor(self) -> float:
        """k, as public people have it at their own clip; 1 without them, where it is not known."""
        if self.public_sizes is None:
            return 1.0
        clip, factor = self._size_of(self.used)
        # For another clip than that of the public people: a person's norm is about theirs.
        return factor if self.clip is None else min(1.0, factor * self.clip / clip)

    def _size_of(self, directions: int) -> tuple[float, float]:
        """c_d and k_d of public people, interpolated between the candidates."""
        table = np.asarray(self.public_sizes)
        clip, factor = (float(np.interp(directions, table[:, 0], table[:, at])) for at in (1, 2))
        return clip, factor

    @property
    def weights(self) -> Floats:
        """w, shape (R, d); ones without public people."""
        if self.public_spread is None:
            return np.ones((len(self.templates), self.used))
        return weights_of(self.public_spread[:, : self.used])

    def _noise_variance(self, noise: float, units: float, directions: int) -> Floats:
        """t of the module docstring for a number of directions, shape (R, d).

        Parameters
        ----------
        noise : float
            Standard deviation of a released sum of sensitivity 1.
        units : float
            N.
        directions : int
            d.
        """
        chosen = self.model_copy(update={"directions": directions})
        scale = max(units, 1.0) * chosen.mean_factor * chosen.weights
        return np.asarray((2 * chosen.radius * noise / scale) ** 2)

    # ---- planning ----------------------------------------------------------------------------------------------

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the number of directions and the clip, from the noise, the number of people and public people.

        The number of directions is the candidate that leaves the least expected squared error: h t/(h + t) by block for
        the directions that are released and h for all others, where h is the expected square of the difference between
        the people of the study and the public ones.
        """
        planned = self
        if self.directions is None:
            chosen = self.most
            if self.informed:
                units = facts.units or GUESSED_UNITS
                chosen = min(candidates(self.most), key=lambda d: self._left(d, facts.noise, units))
            planned = planned.model_copy(update={"directions": chosen})
        return planned.model_copy(update={"clip": planned.radius}) if self.clip is None else planned

    def _expected_square(self, units: float) -> Floats:
        """h: expected squared difference of the people of the study from the public ones, shape (R, K)."""
        spread = np.asarray(self.public_spread)
        return spread * (TUNING.shift**2 + 1 / float(self.public_count or 1) + 1 / max(units, 1.0))

    def _left(self, directions: int, noise: float, units: float) -> float:
        """Expected squared error with this number of directions."""
        h, t = self._expected_square(units), self._noise_variance(noise, units, directions)
        left = float(np.sum(h[:, directions:]))
        for block in blocks(directions):
            signal, disturbed = float(np.sum(h[:, block])), float(np.sum(t[:, block]))
            left += signal * disturbed / (signal + disturbed)
        return left

    def expectation(self, facts: PublicFacts) -> Expectation | None:
        """Expected correlation of maps and of differences with those without noise (docs/guided-ica.md)."""
        if facts.units is None:
            return None
        planned = self.resolve(facts)
        if not self.informed:
            ends = [
                planned._plain_expectation(facts, *sizes) for sizes in (TUNING.good_template, TUNING.crude_template)
            ]
            maps, differences = zip(*ends, strict=True)
            why = (
                "without public people the size of the difference is unknown: the ends are those of a good template "
                f"(norm {TUNING.good_template[0]:g} of a map) and of a crude one ({TUNING.crude_template[0]:g})"
            )
            return Expectation(min(maps), max(maps), why, (min(differences), max(differences)))
        maps_expected, difference = planned._informed_expectation(facts)
        why = "from public people, if those of the study differ from them by a tenth of what one person does"
        return Expectation(maps_expected, maps_expected, why, (difference, difference))

    def _informed_expectation(self, facts: PublicFacts) -> tuple[float, float]:
        """With public people: correlation of maps, the mean over them, and of the difference.

        In a block, a is expected to be 1 less what its own noise takes, 1 - 1/i for the information i = sum of g/t, and
        the rest of the public people's difference is shrunk with what differs between the two populations.
        """
        units, d = float(facts.units or 1), self.used
        h, t = self._expected_square(units), self._noise_variance(facts.noise, units, d)
        spread = np.asarray(self.public_spread) / float(self.public_count or 1)
        g = np.maximum(np.asarray(self.public_difference) ** 2 - spread, 0.0)
        noise = np.maximum(t, 1e-300)
        overall = _expected_factor(g[:, :d], noise)
        # Directions that are not released have the factor of all blocks together, and no rest.
        common, estimate = overall * g, overall**2 * g
        for block in blocks(d):
            own, other, disturbed = g[:, block], h[:, block], noise[:, block]
            a = _expected_factor(own, disturbed)
            rest = (1 - a) ** 2 * own + other
            kept = float(np.sum(rest)) / (float(np.sum(rest)) + float(np.sum(disturbed)))
            common[:, block] = a * own + kept * ((1 - a) * own + other)
            estimate[:, block] = a * (a + 2 * kept * (1 - a)) * own + kept**2 * (rest + disturbed)
        true = (g + h).sum(axis=1)
        maps = (1 + common.sum(axis=1)) / np.sqrt((1 + true) * (1 + estimate.sum(axis=1)))
        difference = float(common.sum()) / math.sqrt(max(float(true.sum() * estimate.sum()), 1e-300))
        return float(np.mean(maps)), difference

    def _plain_expectation(self, facts: PublicFacts, size: float, person: float) -> tuple[float, float]:
        """Without public people: correlation of maps and of the difference.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of people.
        size : float
            Assumed norm of the difference of a map from its template.
        person : float
            The same of a person; a clip below it shrinks the mean difference.
        """
        units, rows = float(facts.units or 1), math.sqrt(len(self.templates))
        h = size**2 + person**2 / units
        t = float(np.sum(self._noise_variance(facts.noise, units, self.used)[0]))
        k = min(1.0, self.radius / (person * rows))
        factor = k * k * h / (k * k * h + t)
        maps = (1 + factor * k * h) / math.sqrt((1 + h) * (1 + factor**2 * (k * k * h + t)))
        return maps, math.sqrt(factor)

    @property
    def describe(self) -> str:
        """Directions, clip and public people, for the plan."""
        R, V = self.templates.shape
        people = f"{self.public_count} public people" if self.informed else "no public people"
        return f"{R} templates of {V} columns, {self.used} of {self.most} directions, clip {self.radius:.4g}, {people}"

    # ---- the program -------------------------------------------------------------------------------------------

    def _statistic(self, adjacency: Adjacency) -> DualRegression:
        """The statistic of the release; with a count under add-remove, where the number of people is private."""
        count = adjacency is Adjacency.ADD_REMOVE
        given: dict[str, Any] = {"columns": len(self.columns), "templates": self.maps_of_norm_1, "clip": self.radius}
        if self.basis is not None:
            given["directions"] = self.outside[:, : self.used]
        if self.public_difference is not None:
            given |= {"center": self.public_difference[:, : self.used], "weights": self.weights}
        return DualRegression(**given, per_recording=self.per_recording, count=count)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        return (PrivateSum(self._statistic(adjacency)),)

    def program(self, adjacency: Adjacency) -> Program:
        """One release, then the shrunk difference."""
        statistic = self._statistic(adjacency)
        release = yield PrivateSum(statistic)
        summed, counted = statistic.split(release.value)
        units = release.units if release.units is not None else max(counted or 1.0, 1.0)
        R, shape = len(self.templates), statistic.shape
        scale = units * self.mean_factor * (1.0 if self.basis is None else self.weights)
        raw = summed / scale
        variance = np.broadcast_to((release.noise_std / scale) ** 2, shape)
        noise = math.sqrt(float(np.sum(variance)) * self.used / shape[1])
        factor: float | None = None
        if self.public_difference is not None and self.public_spread is not None:
            G = self.public_difference
            raw = raw + G[:, : self.used]
            found, factor = informed(raw, variance, G, self.public_spread)
            difference = found @ self.outside.T
            # Directions that are not released are known from public people alone.
            kept, noisy = found[:, : self.used], raw
        else:
            if self.basis is None:
                # Noise in the templates' span is noise alone: no person differs there.
                inside = np.linalg.qr(self.maps_of_norm_1.T)[0]
                raw = raw - (raw @ inside) @ inside.T
            noisy = raw if self.basis is None else raw @ self.outside[:, : self.used].T
            # In the columns themselves only the directions outside the templates' span are left of the noise.
            difference = kept = shrunk(noisy, noise**2, R * self.used)
        maps = self.maps_of_norm_1 + difference
        energy = np.sum(noisy**2, axis=1)
        axes = (Axis.numbered("component", R), self.column_axis)
        estimate = {
            "maps": Quantity(maps / np.linalg.norm(maps, axis=1, keepdims=True), "map", axes),
            "map_difference": Quantity(difference, "map", axes),
            "templates": Quantity(self.maps_of_norm_1, "filter", axes),
            "share_kept": Quantity(
                np.clip(np.sum(kept**2, axis=1) / np.where(energy > 0, energy, 1.0), 0, 1), "diagnostic", axes[:1]
            ),
            "difference_noise": Quantity(np.array([noise]), "diagnostic"),
        }
        if factor is not None:
            estimate["public_factor"] = Quantity(np.array([factor]), "diagnostic")
        return estimate


def blocks(directions: int) -> list[slice]:
    """The blocks of directions that are shrunk together.

    >>> blocks(12)
    [slice(0, 5, None), slice(5, 10, None), slice(10, 12, None)]
    """
    ends = [0, *(end for end in TUNING.blocks if end < directions), directions]
    return [slice(a, b) for a, b in pairwise(ends)]


def informed(raw: Floats, variance: Floats, public: Floats, spread: Floats) -> tuple[Floats, float]:
    """The difference with public people: D of the module docstring, and the factor a of all directions.

    Parameters
    ----------
    raw, variance : array of shape (R, d)
        y and t.
    public, spread : array of shape (R, K)
        G and v.

    Returns
    -------
    difference : array of shape (R, K)
    factor : float
    """
    d = raw.shape[1]
    overall = _factor(raw, variance, public[:, :d])
    found = overall * public
    for block in blocks(d):
        y, t, G, v = raw[:, block], variance[:, block], public[:, block], spread[:, block]
        a = _factor(y, t, G)
        rest = y - a * G
        u = max(float(np.sum(rest**2 - t)) / float(np.sum(v)), 0.0)
        found[:, block] = a * G + rest * (u * v / (u * v + t) if u > 0 else 0.0)
    return found, overall


def _expected_factor(square: Floats, variance: Floats) -> float:
    """Expected a of the module docstring, where public people differ from the templates as those of the study do.

    Parameters
    ----------
    square, variance : array
        g, the squared difference of public people, and t.
    """
    information = float(np.sum(square / variance))
    return max(1 - 1 / information, 0.0) if information > 0 else 0.0


def _factor(y: Floats, t: Floats, public: Floats) -> float:
    """a of the module docstring."""
    if not np.all(t > 0):
        t = np.ones_like(t)
    information = float(np.sum(public**2 / t))
    if not information > 0:
        return 0.0
    a = float(np.sum(public * y / t)) / information
    # What remains disturbs a as noise does, so that its size enters the variance.
    excess = max(float(np.mean((y - a * public) ** 2 / t)), 1.0)
    return min(max(a * (1 - excess / information / a**2), 0.0), TUNING.most_factor) if a > 0 else 0.0


def shrunk(noisy: Floats, energy: float, numbers: int) -> Floats:
    """A noisy table times the factor for a release without public people (module docstring).

    Parameters
    ----------
    noisy : array
        y.
    energy : float
        T, the expected energy of the noise in it.
    numbers : int
        R d, the number of dimensions that have noise.

    >>> shrunk(np.array([[300.0, 100.0]]), 5e4, 5000).round().tolist(), shrunk(np.array([[1.0]]), 1.0, 1).tolist()
    ([[150.0, 50.0]], [[0.0]])
    """
    found = float(np.sum(noisy**2))
    if not energy > 0:
        return noisy
    score = (found / energy - 1) / math.sqrt(2 / numbers)
    if score <= TUNING.clear_excess:
        return np.zeros_like(noisy)
    return np.asarray(noisy * ((1 - energy / found) * (1 - (TUNING.clear_excess / score) ** 2)))
