"""Private connectivity over sites: means by group, differences, and regression on covariates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.data.templates import load_templates
from zerosum.errors import BadParameter
from zerosum.estimators.base import Tables, bad_data
from zerosum.estimators.documentation import documented
from zerosum.estimators.people import PeopleEstimator
from zerosum.estimators.validation import LIST, RANGES, Constraint, optional
from zerosum.kernel.quantity import Quantity

# The main estimate of a result: the first of these that it has.
_MAIN = ("connectivity_coefficients", "connectivity_difference", "connectivity")


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class Connectivity(PeopleEstimator):
    """Private connectivity between networks or regions over sites.

    A person's connectivity is Fisher's z of the correlations, or partial correlations, of the time courses of all pairs
    of networks. One release has its mean and spread by group; or three releases the coefficients of a regression on
    covariates, within sites: effects of sites on the mean are removed.

    The group and the covariates are columns of the data beside the regions, equal in all rows of a person, and come
    last.

    Parameters
    ----------
    maps : array of shape (k, n_regions), path, or nilearn masker, optional
        Public maps of networks; by default every region is a network.
    labels : sequence of str
        Names of the networks.
    partial : bool, default=False
        Partial correlations instead of correlations.
    ridge : float, default=0.1
        Part of the unit matrix in a person's correlation matrix, for partial correlations.
    group : str, optional
        Name of the column with the group of a person.
    levels : sequence
        Public categories of the group, the reference first. In arrays groups are codes: 0 for the first level, 1 for
        the next.
    covariates : dict of str to tuple, optional
        Public lowest and highest value of each covariate; those of a contrast are its two codes.
    center : array of shape (n_edges,), optional
        Public mean connectivity, which is subtracted before the clip.
    edge_basis : array of shape (n_edges, m), optional
        Public orthonormal directions of edges; then only these are released, and `clip` is required.
    clip : float, optional
        Largest norm of a person's connectivity about the centre; by default from public facts.
    duration : float, optional
        Seconds of a recording, for the clip; six minutes by default.
    band : (float, float), optional
        Frequencies of the recordings in hertz, for the clip; a width of 0.09 by default.
    space : Masker, optional
        Grid of the study, for maps that are images.
    per_recording : {"none", "center", "standardise"}, default="standardise"
        Operation on each region of each recording.
    %(privacy)s

    Attributes
    ----------
    connectivity_ : ndarray of shape (n_groups, n_edges)
        Mean Fisher z by group; only without covariates.
    difference_ : ndarray of shape (n_groups - 1, n_edges)
        Difference of each later group from the first one; only with groups.
    coef_ : ndarray of shape (n_covariates, n_edges)
        Change of Fisher z per unit of each covariate, within sites; only with covariates.
    noise_std_ : ndarray
        Standard deviation that privacy adds to `coef_`, `difference_` or `connectivity_`, the first of these that is
        there.
    interval_ : ndarray of shape (..., 2)
        95 %% interval of the same for these people: privacy noise.
    population_interval_ : ndarray of shape (..., 2)
        95 %% interval of the same for the population: privacy noise and sampling.
    p_value_ : ndarray
        P value of each edge of a difference or coefficient, with noise and sampling.
    q_value_ : ndarray
        The same, corrected for false discoveries among all edges (Benjamini and Hochberg).
    global_p_value_ : ndarray
        P value of the test that no edge differs, one for each difference or covariate.
    spread_ : ndarray
        Standard deviation between people, the root mean square over edges; by group, or within sites.
    edges_ : tuple of str
        Names of the edges, "i - j".
    clip_ : float
        The clip.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> def person(code):
    ...     common = rng.normal(size=(200, 1)) * 0.6 * (1 + code)
    ...     return np.hstack([rng.normal(size=(200, 3)) + common, np.full((200, 1), float(code))])
    >>> sites = [[person(at % 2) for at in range(200)] for _ in range(3)]
    >>> found = Connectivity(group="x3", levels=[0, 1], epsilon=4, random_state=0, data="synthetic").fit(sites)
    >>> found.difference_.shape, bool(found.global_p_value_[0] < 0.01), found.edges_
    ((1, 3), True, ('x0 - x1', 'x0 - x2', 'x1 - x2'))
    """

    _algorithm: ClassVar[str] = "connectivity"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **PeopleEstimator._constraints,
        "covariates": optional(RANGES),
        "levels": LIST,
        "labels": LIST,
    }

    maps: Any = None
    labels: Sequence[str] = ()
    partial: bool = False
    ridge: float | None = None
    group: str | None = None
    levels: Sequence[str | float | bool] = ()
    covariates: Mapping[str, tuple[float, float]] | None = None
    center: ArrayLike | None = None
    edge_basis: ArrayLike | None = None
    clip: float | None = None
    duration: float | None = None
    band: tuple[float, float] | None = None
    space: Any = None
    per_recording: Literal["none", "center", "standardise"] = "standardise"

    @property
    def _allows_missing(self) -> bool:
        return True  # the program refuses missing values in regions

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        given = super()._parameters(tables) | {
            "levels": tuple(self.levels),
            "labels": tuple(self.labels),
            "covariates": {name: tuple(each) for name, each in (self.covariates or {}).items()},
        }
        if self.maps is not None:
            with bad_data():
                given["maps"] = load_templates(self.maps, self.space)
        own = {*given["covariates"], *([] if self.group is None else [self.group])}
        regions = [at for at, name in enumerate(self._columns) if name not in own]
        for name, units in tables.items():
            rows = np.asarray(units.rows)
            if not np.isfinite(rows[:, regions]).all():
                raise BadParameter(
                    f"{name!r}: regions have values that are missing or not finite: clean the recordings"
                )
        return given

    def _learn(self, estimate: Estimate) -> None:
        main = next(name for name in _MAIN if name in estimate)
        if "connectivity" in estimate:
            self.connectivity_: Floats = np.asarray(estimate["connectivity"])
        if "connectivity_difference" in estimate:
            self.difference_: Floats = np.asarray(estimate["connectivity_difference"])
        if "connectivity_coefficients" in estimate:
            self.coef_: Floats = np.asarray(estimate["connectivity_coefficients"])
        self.noise_std_: Floats = np.asarray(estimate[main].std)
        self.interval_: Floats = np.asarray(estimate[f"{main}_interval"])
        self.population_interval_: Floats = np.asarray(estimate[f"{main}_population_interval"])
        if "edge_p_value" in estimate:
            self.p_value_: Floats = np.asarray(estimate["edge_p_value"])
            self.q_value_: Floats = np.asarray(estimate["edge_q_value"])
            self.global_p_value_: Floats = np.asarray(estimate["global_test"])[:, 2]
        self.spread_: Floats = np.asarray(estimate["spread"])
        self.edges_: tuple[str, ...] = estimate[main].axes[1].labels
        self.clip_ = float(estimate["clip"][0])

    def matrix(self, row: int = 0) -> Floats:
        """One row of the result as a symmetric matrix between networks, with zeros on the diagonal.

        Parameters
        ----------
        row : int
            Group, difference or covariate.

        Returns
        -------
        ndarray of shape (k, k)
            Coefficients, differences or means, the first of these that the result has.
        """
        found: Quantity = next(self.result_.estimate[name] for name in _MAIN if name in self.result_.estimate)
        values = found.value[row]
        size = round((1 + np.sqrt(1 + 8 * len(values))) / 2)
        square = np.zeros((size, size))
        square[np.triu_indices(size, 1)] = values
        return square + square.T
