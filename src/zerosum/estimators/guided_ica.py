"""Private guided ICA over sites: what people's dual regression changes about public template maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from zerosum.algorithms import Estimate
from zerosum.algorithms.guided_ica.public import PublicPeople
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.templates import load_templates
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import Tables, bad_data, dimensions
from zerosum.estimators.documentation import documented
from zerosum.estimators.people import PeopleEstimator
from zerosum.statistics.scatter import per_recording_rows


@documented
@dataclass(eq=False, repr=False)
class GuidedICA(PeopleEstimator):
    """Private guided ICA over sites.

    Public template maps are given. Each person's own maps follow by dual regression at the site; one release finds the
    mean difference of these maps from the templates, clipped, and shrinks it towards the templates by the known noise.
    A template that fits well scores nearly 1 by itself: judge a result by `difference_`, not by `maps_`.

    Parameters
    ----------
    templates : array of shape (n_components, n_features), path, or nilearn masker
        Public maps: an array, an `.npy` or NIfTI file, an atlas whose regions are masks, or a `NiftiMapsMasker` or
        `NiftiLabelsMasker`.
    public : list of arrays or Units, optional
        Recordings of public people, such as those of an open study: directions, weights, a clip and an expected
        difference come from them. They must not be people of the study.
    basis : array of shape (n_features, k), optional
        Without public people: public directions in which maps may differ.
    space : Masker, optional
        Grid of the study, for templates that are images.
    per_recording : {"none", "center", "standardise"}, default="standardise"
        Operation on each column of each recording before all others.
    directions : int, optional
        Number of directions that are released; by default the planner's choice.
    clip : float, optional
        Largest norm of the weighted difference of a person; by default the planner's choice.
    %(privacy)s

    Attributes
    ----------
    maps_ : ndarray of shape (n_components, n_features)
        Templates plus difference, of norm 1, in the order of the templates.
    difference_ : ndarray of shape (n_components, n_features)
        Difference from the templates, which have norm 1.
    templates_ : ndarray of shape (n_components, n_features)
        The templates, of norm 1.
    share_kept_ : ndarray of shape (n_components,)
        Energy of the difference over that of the noisy one: 0 if nothing is above the noise, and the map is the
        template.
    difference_noise_ : float
        Expected norm of the noise in the difference before it was shrunk.
    public_factor_ : float
        Factor of the public people's difference: 1 if those of the study differ from the templates in the same way; 0
        without public people.
    n_components_ : int
        Number of components.
    %(fitted)s

    %(notes)s

    The shrunk difference has no standard deviation per entry. Time courses and maps of persons stay at the site.

    %(example)s

    >>> from zerosum.data.fmri import make_fmri
    >>> study = make_fmri(60, sites=3, components=3, points=80, side=6, noise=0.1)
    >>> sites = [study.observed(s) for s in range(3)]
    >>> rough = study.maps + 0.3 * study.maps.std() * np.random.default_rng(0).normal(size=study.maps.shape)
    >>> guided = GuidedICA(rough, epsilon=20, random_state=0, data="synthetic").fit(sites)
    >>> guided.maps_.shape, guided.privacy_.private, len(guided.time_courses(study.observed(0)))
    ((3, 36), False, 20)
    """

    _algorithm: ClassVar[str] = "guided-ica"
    _not_parameters: ClassVar[Mapping[str, str]] = {
        **PeopleEstimator._not_parameters,
        **dict.fromkeys(
            ("public_difference", "public_spread", "public_sizes", "public_count"), "facts about the people of `public`"
        ),
    }

    templates: Any = None
    _: KW_ONLY
    public: Any = None
    basis: ArrayLike | None = None
    space: Any = None
    per_recording: Literal["none", "center", "standardise"] = "standardise"
    directions: int | None = None
    clip: float | None = None

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        if self.templates is None:
            raise BadParameter("give public template maps: templates=")
        with bad_data():
            maps = load_templates(self.templates, self.space)
        given = super()._parameters(tables) | {"templates": maps}
        if self.public is None:
            return given
        if self.basis is not None:
            raise BadParameter("give public people, whose directions are taken, or a basis, but not both")
        if maps.shape[1] != self.n_features_in_:
            raise BadParameter(f"templates have {maps.shape[1]} columns, the data {self.n_features_in_}")
        people = self._units(self.public, first=False)
        if people.offsets is None:
            raise BadData("public people have a single row each: give Units, or a list with an array for each person")
        return given | PublicPeople.of(people, maps, self.per_recording).parameters()

    def time_courses(self, people: Any) -> list[Floats]:
        """Time courses of the maps for each person of one site, by dual regression's first step.

        They are as private as the recordings and must stay at the site.

        Parameters
        ----------
        people : Units, list of (rows, n_features) arrays, or array of shape (people, rows, n_features)
            The persons of one site.

        Returns
        -------
        list of ndarray of shape (rows, n_components)
            Time courses of each person.
        """
        inverse = np.linalg.pinv(self._fitted_maps())
        return [np.asarray(rows @ inverse) for rows in self._recordings(people)]

    def person_maps(self, people: Any) -> list[Floats]:
        """Each person's own maps, by dual regression from the maps of the study.

        They are as private as the recordings and must stay at the site.

        Parameters
        ----------
        people : Units, list of (rows, n_features) arrays, or array of shape (people, rows, n_features)
            The persons of one site.

        Returns
        -------
        list of ndarray of shape (n_components, n_features)
            Maps of each person.
        """
        inverse = np.linalg.pinv(self._fitted_maps())
        return [np.asarray(np.linalg.lstsq(rows @ inverse, rows, rcond=None)[0]) for rows in self._recordings(people)]

    def _fitted_maps(self) -> Floats:
        check_is_fitted(self, "result_")
        return self.maps_

    def _recordings(self, people: Any) -> list[Floats]:
        """The rows of each person of one site, prepared as in the fit."""
        if not isinstance(people, Units) and dimensions(people) != 3:
            raise BadData("give the people of one site: Units, or an array for each person")
        units = self._named("this site", people, first=False)
        return [
            np.concatenate(
                [np.asarray(per_recording_rows(rows, self.per_recording, np)) for rows, _clock in recordings]
            )
            for recordings in units.recordings()
        ]

    def _learn(self, estimate: Estimate) -> None:
        self.maps_: Floats = np.asarray(estimate["maps"])
        self.difference_: Floats = np.asarray(estimate["map_difference"])
        self.templates_: Floats = np.asarray(estimate["templates"])
        self.share_kept_: Floats = np.asarray(estimate["share_kept"])
        self.difference_noise_ = float(estimate["difference_noise"][0])
        self.public_factor_ = float(estimate["public_factor"][0]) if "public_factor" in estimate else 0.0
        self.n_components_ = len(self.maps_)
