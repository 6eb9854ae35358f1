"""Connectivity over sites: the program that makes the releases and assembles means, differences and tests.

Symbols
-------
k, E, N
    Numbers of networks or regions, of their pairs (edges), and of people.
f_i (E)
    Fisher z of the correlations of person i's time courses less a public centre z0, clipped together to norm c
    (`statistics.connectivity`).
x_i (q)
    Covariates of person i, mapped to [-1, 1] and clipped to norm b.
s
    Standard deviation of the noise of a released sum.

What is released
----------------
By group: one sum of f, counts and energies of all groups (`GroupedConnectivity`), sensitivity 2c. With sums F_g, counts
n_g and energies e_g, the mean of group g is z0 + F_g/n_g, with noise s/n_g, and the variance of its people over the
edges (e_g - norm(F_g)^2/n_g + E s^2/n_g)/(n_g E): noise adds E s^2 to the expectation of norm(F_g)^2.

On covariates: three sums of products centred at each site (`SiteCentredConnectivity`), sensitivities 4bc, 4b^2 and
4c^2. With the products S_xf and S_xx, summed over sites, the coefficients are beta = S_xx^-1 S_xf, which is least
squares with an effect of every site on every edge; for one edge

    cov(beta) = v S_xx^-1 + s^2 S_xx^-2,    v = energy/((N - sites - q) E)

with the sampling variance v of all edges together and the noise. The first term is not in the intervals of these
people, and both are in those of the population.

The clip follows from public facts: c^2 = E (1/(2 B T - 3 - g) + t^2 + m^2) for recordings of T seconds and a band of B
hertz, where the first term is the variance of Fisher's z (g = k - 2 variables are held constant by partial
correlations), t^2 the variance between people, and m the mean of an edge, 0 for components or with a public centre. A
smaller clip has less noise and biases differences towards 0; `clip` overrides it.

Tests. The p value of an edge is that of its z score with noise and sampling error, corrected for false discoveries by
Benjamini and Hochberg. The global test adds up the squared z scores; their mean is E, and their variance 2 E (1 + (E -
1) r h^2), with r the assumed mean squared correlation of two edges and h the share of sampling in their variance, so
that a chi-squared law with 2 E^2/variance degrees of freedom, scaled to the mean, is used (Satterthwaite 1946).

References: docs/connectivity.md; Y. Benjamini and Y. Hochberg, Controlling the false discovery rate, J. R. Stat. Soc. B
57, 1995.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.connectivity.tuning import TUNING
from zerosum.algorithms.intervals import ENDS, Z
from zerosum.algorithms.program import Algorithm, Program
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.kernel.names import visible
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.significance import adjusted
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.connectivity import GroupedConnectivity, Part, SiteCentredConnectivity
from zerosum.statistics.scatter import PerRecording

# Ridge of partial correlations, where none is given: a tenth of the correlation matrix is the unit matrix.
RIDGE = 0.1
TEST = Axis("test", ("statistic", "degrees of freedom", "p value"))


class ConnectivityProgram(Algorithm):
    """Mean connectivity by group with differences, or regression of connectivity on covariates within sites.

    Results by group (`group` or neither): `connectivity` and `spread`, with `connectivity_interval` and
    `connectivity_population_interval`; with at least two groups also `connectivity_difference` of each later group from
    the first one, with the same intervals, `edge_p_value`, `edge_q_value` (Benjamini and Hochberg) and `global_test`.
    On covariates: `connectivity_coefficients`, per unit of the covariate, with the same intervals and tests.

    Parameters
    ----------
    columns : tuple of str
        The regions, then the group or the covariates, which are equal in all rows of a person.
    maps : array of shape (k, V), optional
        Public maps of networks, whose time courses are the rows times the pseudo-inverse of `maps`; by default every
        region is a network.
    labels : tuple of str
        Names of the networks; by default numbers, or the regions' own.
    partial : bool
        Partial correlations instead of correlations.
    ridge : float
        Part of the unit matrix in the correlation matrix of a person, for partial correlations.
    group : str, optional
        The column of the group.
    levels : tuple
        Its public categories; the first one is the reference.
    covariates : dict of str to (float, float)
        Public range of each covariate; the range of a contrast of two codes is that of the codes.
    center : array of shape (E,), optional
        z0, public, such as the mean of public people.
    edge_basis : array of shape (E, m), optional
        Public orthonormal directions of edges; then only they are released, and `clip` is required.
    clip : float, optional
        c; by default from public facts.
    duration, band : optional
        Seconds of a recording, and its frequencies in hertz, for the clip.
    per_recording : {"none", "center", "standardise"}
        Operation on each region of each recording.
    """

    name: ClassVar[str] = "connectivity"
    rows_of_a_unit: ClassVar[int] = 30
    maps: FloatArray | None = None
    labels: tuple[str, ...] = ()
    partial: bool = False
    ridge: float = Field(default=RIDGE, ge=1e-6, lt=1)
    group: str | None = None
    levels: tuple[str | float | bool, ...] = ()
    covariates: dict[str, tuple[float, float]] = Field(default_factory=dict)
    center: FloatArray | None = None
    edge_basis: FloatArray | None = None
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    duration: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds of a recording, for the clip; by default six minutes are assumed."""
    band: tuple[float, float] | None = None
    per_recording: PerRecording = "standardise"

    @model_validator(mode="after")
    def _validate(self) -> Self:
        """Refuse columns, groups and covariates that contradict each other, before a plan is made."""
        if self.group is not None and self.covariates:
            raise ValueError("give a group or covariates: a group among covariates is a covariate with two codes")
        own = (*([] if self.group is None else [self.group]), *self.covariates)
        if unknown := [name for name in own if name not in self.columns]:
            raise ValueError(f"{unknown[0]!r} is not one of the columns")
        if set(own) != set(self.columns[len(self.columns) - len(own) :]):
            raise ValueError("the columns of the group and the covariates come after all regions")
        if self.group is not None and (len(self.levels) < 2 or len(set(self.levels)) < len(self.levels)):
            raise ValueError("levels must list at least two different categories of the group, the reference first")
        if self.group is None and self.levels:
            raise ValueError("levels are the categories of a group, and no group is given")
        for name, (low, high) in self.covariates.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"the range of covariate {name!r} must be two numbers, the lower one first")
        if self.regions < 2:
            raise ValueError(f"connectivity needs two regions, got {self.regions}")
        if self.maps is not None and (self.maps.ndim != 2 or self.maps.shape[1] != self.regions or len(self.maps) < 2):
            raise ValueError(
                f"maps must have a column for each of the {self.regions} regions and at least two rows, got shape "
                f"{self.maps.shape}"
            )
        if self.maps is not None and np.linalg.matrix_rank(self.maps) < len(self.maps):
            raise ValueError("maps must be linearly independent: leave out maps that others explain, or are empty")
        if self.labels and len(self.labels) != self.networks:
            raise ValueError(f"labels must name each of the {self.networks} networks, got {len(self.labels)}")
        if self.edge_basis is not None and self.clip is None:
            raise ValueError("directions of edges need a clip: the rule for all edges does not fit them")
        if self.band is not None and not 0 <= self.band[0] < self.band[1] < math.inf:
            raise ValueError("band must be two frequencies in hertz, the lower one first")
        if self.clip is None and not 2 * self._band * self._seconds - 3 - self._held > 1:
            raise ValueError(
                f"recordings of {self._seconds:g} s and a band of {self._band:g} Hz have too few independent values "
                f"for {self.networks} networks: give longer recordings, fewer networks, or a clip"
            )
        self.requests(Adjacency.REPLACE_ONE)  # the statistics check centre and directions
        return self

    @property
    def categories(self) -> dict[str, Sequence[str | float | bool]]:
        """The levels of the group."""
        return {} if self.group is None else {self.group: self.levels}

    @property
    def regions(self) -> int:
        """V."""
        return len(self.columns) - len(self.covariates) - (self.group is not None)

    @property
    def networks(self) -> int:
        """k."""
        return self.regions if self.maps is None else len(self.maps)

    @property
    def edges(self) -> int:
        """E."""
        return self.networks * (self.networks - 1) // 2

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the networks."""
        if self.labels:
            return self.labels
        return self.columns[: self.regions] if self.maps is None else tuple(str(at + 1) for at in range(self.networks))

    @cached_property
    def edge_axis(self) -> Axis:
        """The axis of edges: pairs of names."""
        row, column = np.triu_indices(self.networks, 1)
        return Axis("edge", tuple(f"{self.names[i]} - {self.names[j]}" for i, j in zip(row, column, strict=True)))

    @property
    def _seconds(self) -> float:
        return TUNING.seconds if self.duration is None else self.duration

    @property
    def _band(self) -> float:
        return TUNING.band if self.band is None else self.band[1] - self.band[0]

    @property
    def _held(self) -> int:
        """Variables that a partial correlation holds constant."""
        return self.networks - 2 if self.partial else 0

    @property
    def radius(self) -> float:
        """c."""
        if self.clip is not None:
            return self.clip
        mean = 0.0
        if self.maps is None and self.center is None:
            mean = TUNING.partial_mean if self.partial else TUNING.region_mean
        error = 1 / (2 * self._band * self._seconds - 3 - self._held)
        return math.sqrt(self.edges * (error + TUNING.between**2 + mean**2))

    @property
    def _alike(self) -> float:
        """Assumed mean squared correlation of two edges over people."""
        return TUNING.alike if self.maps is not None or self.partial else TUNING.regions_alike

    @cached_property
    def _common(self) -> dict[str, Any]:
        """Parameters that all statistics have."""
        return {
            "columns": len(self.columns),
            "regions": self.regions,
            "clip": self.radius,
            "projection": None if self.maps is None else np.linalg.pinv(self.maps),
            "center": self.center,
            "ridge": self.ridge if self.partial else None,
            "basis": self.edge_basis,
            "per_recording": self.per_recording,
        }

    def _grouped(self) -> GroupedConnectivity:
        """The statistic by group; counts are in it for both adjacencies."""
        group = None if self.group is None else self.columns.index(self.group)
        return GroupedConnectivity(**self._common, group=group, groups=max(1, len(self.levels)))

    def _within_sites(self, part: Part) -> SiteCentredConnectivity:
        """The statistic of a part of the regression on covariates."""
        places = tuple(self.columns.index(name) for name in self.covariates)
        lower, upper = np.array(list(self.covariates.values())).T
        return SiteCentredConnectivity(**self._common, covariates=places, lower=lower, upper=upper, part=part)

    @property
    def _shares(self) -> dict[Part, float]:
        """Share of each release on covariates."""
        own = TUNING.covariate_share if len(self.covariates) == 1 else TUNING.covariates_share
        return {"edges": 1 - own - TUNING.energy_share, "covariates": own, "energy": TUNING.energy_share}

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release by group; three on covariates."""
        if not self.covariates:
            return (PrivateSum(self._grouped()),)
        return tuple(PrivateSum(self._within_sites(part), share) for part, share in self._shares.items())

    @property
    def describe(self) -> str:
        """Networks, clip and what is compared, for the plan."""
        kind = "partial correlations" if self.partial else "correlations"
        about = f"{self.edges} {kind} of {self.networks} networks, clip {self.radius:.4g}"
        if self.covariates:
            return f"{about}, within sites on {', '.join(map(visible, self.covariates))}"
        return about + (f", by {visible(self.group)}" if self.group is not None else "")

    def check_missing(self, units: Units) -> None:
        """As in `Algorithm`. The group and covariates may be missing: such people are in no group, or at the middle."""
        units.check(range(self.regions, len(self.columns)), [f"column {name!r}" for name in self.columns])

    # ---- the program -------------------------------------------------------------------------------------------

    def program(self, adjacency: Adjacency) -> Program:
        """The releases, then means or coefficients with their errors."""
        if self.covariates:
            return (yield from self._on_covariates())
        return (yield from self._by_group())

    def _by_group(self) -> Program:
        """Means by group and differences from the first one."""
        statistic = self._grouped()
        release = yield PrivateSum(statistic)
        sums, counts, energies = statistic.split(release.value)
        if len(counts) == 1 and release.units is not None:
            counts = np.array([release.units])
        # Fewer than two people have no spread; a count that noise brings below it is not used as it is.
        counts = np.maximum(counts, 2.0)
        s, E = release.noise_std, self.edges
        means, noise = sums / counts[:, None], np.outer(s / counts, self._spread_of_noise)
        count_noise = 0.0 if len(counts) == 1 else statistic_count_noise(statistic, s)
        # Delta method: a mean over a noisy count has the error of the count times the mean.
        noise = np.hypot(noise, np.abs(self._whole(means)) * (count_noise / counts)[..., None] if count_noise else 0.0)
        variance = energies / counts - np.sum(means**2, axis=1) + statistic.width * (s / counts) ** 2
        variance = np.maximum(variance, 0.0) / E
        sampling = np.sqrt(variance / counts)[:, None] * self._spread_of_noise
        axes = (self._groups_axis, self.edge_axis)
        whole = self._whole(means) + (0.0 if self.center is None else self.center)
        energy_noise = math.sqrt(0.5) * self.radius * s / counts / E
        estimate = {
            "connectivity": Quantity(whole, "number", axes, noise),
            **_intervals(whole, noise, sampling, axes, "connectivity"),
            "spread": Quantity(
                np.sqrt(variance), "number", axes[:1], energy_noise / np.maximum(np.sqrt(variance), 1e-3)
            ),
            "group_size": Quantity(counts, "count", axes[:1], count_noise),
            "clip": Quantity(np.array([self.radius]), "diagnostic"),
        }
        if len(counts) > 1:
            later = (Axis(axes[0].name, tuple(f"{each} - {axes[0].labels[0]}" for each in axes[0].labels[1:])), axes[1])
            estimate |= self._compared(
                "connectivity_difference",
                whole[1:] - whole[0],
                np.hypot(noise[1:], noise[0]),
                np.hypot(sampling[1:], sampling[0]),
                later,
            )
        return estimate

    def _on_covariates(self) -> Program:
        """Coefficients within sites."""
        parts: dict[str, Floats] = {}
        noise: dict[str, float] = {}
        units: float | None = None
        sites = 1
        for part, share in self._shares.items():
            statistic = self._within_sites(part)
            release = yield PrivateSum(statistic, share)
            parts[part], noise[part] = statistic.split(release.value), release.noise_std
            units, sites = release.units, len(release.participants)
        q = len(self.covariates)
        # Under add-remove the number of people is private: it follows from the energy of covariates in their ranges.
        count = units if units is not None else max(float(np.trace(parts["covariates"])) / q, q + 2.0)
        values, vectors = np.linalg.eigh(parts["covariates"])
        inverse = (vectors / np.maximum(values, TUNING.least_eigenvalue * count)) @ vectors.T
        half = np.array([(high - low) / 2 for low, high in self.covariates.values()])
        free = max(count - sites - q, 1.0)
        variance = max(float(parts["energy"][0]) / free / self.edges, 0.0)
        edge = self._spread_of_noise
        beta = self._whole(inverse @ parts["edges"]) / half[:, None]
        # Noise of the products of covariates moves beta by inverse times that noise times beta.
        own = np.sqrt(np.diag(inverse @ inverse))[:, None] * np.sqrt(
            (noise["edges"] * edge) ** 2 + noise["covariates"] ** 2 * np.sum((beta * half[:, None]) ** 2, axis=0)
        )
        sampling = np.sqrt(np.diag(inverse) * variance)[:, None] * edge
        axes = (Axis("covariate", tuple(self.covariates)), self.edge_axis)
        estimate = self._compared(
            "connectivity_coefficients", beta, own / half[:, None], sampling / half[:, None], axes
        )
        estimate["spread"] = Quantity(np.array([math.sqrt(variance)]), "number")
        estimate["clip"] = Quantity(np.array([self.radius]), "diagnostic")
        return estimate

    @property
    def _groups_axis(self) -> Axis:
        """The axis of groups."""
        return Axis(self.group or "group", tuple(str(level) for level in self.levels) or ("all",))

    @cached_property
    def _spread_of_noise(self) -> Floats:
        """Standard deviation of each edge for noise of size 1 in what is released, shape (E,)."""
        return np.ones(self.edges) if self.edge_basis is None else np.linalg.norm(self.edge_basis, axis=1)

    def _whole(self, released: Floats) -> Floats:
        """Released numbers as edges: back from the directions of edges, if there are any."""
        return released if self.edge_basis is None else released @ self.edge_basis.T

    def _compared(
        self, name: str, value: Floats, noise: Floats, sampling: Floats, axes: tuple[Axis, Axis]
    ) -> dict[str, Quantity]:
        """An estimate with intervals, tests of edges with false-discovery control, and global tests.

        Parameters
        ----------
        name : str
            Name of the estimate.
        value, noise, sampling : array of shape (rows, E)
            Estimate, and the standard deviations of noise and of sampling.
        axes : tuple of Axis
            Its axes.
        """
        from scipy.special import gammaincc, ndtr

        # The square of the least error is a normal number, too.
        error = np.maximum(np.hypot(noise, sampling), 1e-150)
        p = 2 * ndtr(-np.abs(value / error))
        tests = []
        E = self.edges if self.edge_basis is None else int(self.edge_basis.shape[1])
        along = np.eye(self.edges) if self.edge_basis is None else self.edge_basis
        # Edges that no direction reaches are 0 without any error.
        reached = self._spread_of_noise > 0
        for row, (own, both) in enumerate(zip(sampling, error, strict=True)):
            size = float(np.mean((both[reached] / self._spread_of_noise[reached]) ** 2))
            statistic = float(np.sum((value[row] @ along) ** 2)) / size
            share = float(np.mean(own**2) / np.mean(both**2))
            inflation = 1 + (E - 1) * self._alike * share**2
            free = E / inflation
            tests.append((statistic, free, float(gammaincc(free / 2, statistic / inflation / 2))))
        found = _intervals(value, noise, sampling, axes, name)
        return {
            name: Quantity(value, "coefficient", axes, noise),
            **found,
            "edge_p_value": Quantity(p, "diagnostic", axes),
            "edge_q_value": Quantity(np.stack([adjusted(row, "benjamini-hochberg") for row in p]), "diagnostic", axes),
            "global_test": Quantity(np.array(tests), "diagnostic", (axes[0], TEST)),
        }


def statistic_count_noise(statistic: GroupedConnectivity, noise: float) -> float:
    """Standard deviation of the noise of a count in a release with this noise."""
    return noise / (math.sqrt(0.5) * statistic.clip)


def _intervals(value: Floats, noise: Floats, sampling: Floats, axes: tuple[Axis, ...], of: str) -> dict[str, Quantity]:
    """95 % intervals for these people (noise) and for the population (noise and sampling), with an axis of ends.

    Parameters
    ----------
    value, noise, sampling : array
        Estimate and standard deviations.
    axes : tuple of Axis
        Axes of the estimate.
    of : str
        Name of the estimate, for the names of its intervals.
    """
    sides = {"interval": Z * noise, "population_interval": Z * np.hypot(noise, sampling)}
    return {
        f"{of}_{kind}": Quantity(np.stack([value - side, value + side], axis=-1), "number", (*axes, ENDS))
        for kind, side in sides.items()
    }
