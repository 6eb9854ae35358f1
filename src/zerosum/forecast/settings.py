"""Settings of a forecast: epsilon, sites, colluders and number of units, and studies changed in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.amounts import check_count
from zerosum.kernel.schemes import SiteShape
from zerosum.study.planning import coalition_of
from zerosum.study.study_file import Study

# Factors of epsilon and of the number of units. Chosen by hand; no benchmark recorded.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Numbers of sites; the four nearest to the study's own (by ratio) are shown. Chosen by hand; no benchmark recorded.
_ROSTERS = (2, 3, 5, 10, 20, 50, 100)
# What may vary, in the order of the tables.
KINDS = ("epsilon", "people", "sites", "colluders")


@dataclass(frozen=True)
class Setting:
    """Public quantities that determine the accuracy of a given question."""

    epsilon: float
    sites: int
    colluders: int
    people: int

    @classmethod
    def of(cls, study: Study, people: int | None = None) -> Setting:
        """The study's own setting. The number of units is `people`, or what the roster declares."""
        if people is None:
            declared = [site.units for site in study.sites]
            if any(each is None for each in declared):
                raise BadParameter(
                    "give the number of people at all sites (--people): not every site of the study declares its units"
                )
            people = sum(each or 0 for each in declared)
        check_count("the number of people", people)
        if people < len(study.sites):
            raise BadParameter("every site must have at least one person")
        colluders = coalition_of(study.coalition.colluders, study.coalition.dropouts, len(study.sites)).colluders
        return cls(study.privacy.epsilon, len(study.sites), colluders, people)

    def around(self) -> Iterator[tuple[str, Setting]]:
        """Yield (kind, setting) pairs that differ from this setting in one quantity. Each kind includes this setting
        itself."""
        for factor in _FACTORS:
            yield "epsilon", replace(self, epsilon=self.epsilon * factor)
        for factor in _FACTORS:
            yield "people", replace(self, people=max(round(self.people * factor), 1))
        # Distance on a logarithmic scale, so that 5 is as near to 10 as 20 is.
        near = sorted(set(_ROSTERS) - {self.sites}, key=lambda each: abs(np.log(each / self.sites)))[:4]
        for sites in sorted({self.sites, *near}):
            if sites <= self.people:
                yield "sites", replace(self, sites=sites)
        # A few, half and all other sites; duplicates vanish in the set.
        colluding = {self.colluders, 1, 2, self.sites // 2, self.sites - 1}
        for colluders in sorted(each for each in colluding if 0 <= each < self.sites):
            yield "colluders", replace(self, colluders=colluders)

    def as_record(self) -> dict[str, float | int]:
        """JSON-compatible form."""
        return {"epsilon": self.epsilon, "sites": self.sites, "colluders": self.colluders, "people": self.people}


def study_in_setting(study: Study, setting: Setting) -> Study:
    """The study in another setting, without private parts.

    If the roster declares numbers of units, they are scaled to the setting. A roster with another number of sites has
    sites of equal size.

    Parameters
    ----------
    study : Study
        The study.
    setting : Setting
        Epsilon, sites, colluders and number of units.
    """
    roster = study.sites
    if setting.sites != len(roster):
        roster = tuple(roster[0].model_copy(update=_equal_site(at)) for at in range(setting.sites))
    # Whether numbers of units are public is part of the question and stays as it is.
    declared = all(site.units is not None for site in study.sites)
    units = units_per_site(setting.people, [site.units or 1 for site in roster]) if declared else None
    sites = tuple(
        site.model_copy(update={"units": None if units is None else int(units[at]), "identity": None})
        for at, site in enumerate(roster)
    )
    return study.model_copy(
        update={
            "sites": sites,
            "site_files": (),
            "privacy": study.privacy.model_copy(update={"epsilon": setting.epsilon}),
            "coalition": study.coalition.model_copy(update={"colluders": setting.colluders}),
        }
    )


def _equal_site(at: int) -> dict[str, object]:
    """Fields of a site in a roster of equal sites."""
    shape = SiteShape()
    return {"name": f"site {at + 1}", "units": 1, "scale": shape.scale, "weight": shape.weight, "identity": None}


def split_by_site(people: Units, by: list[int]) -> list[Units]:
    """Divide units among sites in proportion to these sizes."""
    ends = np.cumsum(units_per_site(len(people), by)).tolist()
    return [people.between(first, last) for first, last in pairwise([0, *ends])]


def units_per_site(people: int, by: list[int]) -> NDArray[np.int64]:
    """Number of units per site in proportion to these sizes, at least one each.

    Parameters
    ----------
    people : int
        Number of units, at least one for each site.
    by : list of int
        Sizes of the sites.

    >>> units_per_site(10, [1, 1, 2]).tolist(), units_per_site(3, [1, 1000, 1]).tolist()
    ([3, 2, 5], [1, 1, 1])
    """
    if people < len(by):
        raise BadParameter("every site must have at least one person")
    # Cumulative shares are rounded, so that the numbers add up to `people`.
    ends = np.floor(np.cumsum(by) / np.sum(by) * people + 0.5).astype(np.int64)
    units = np.maximum(np.diff(ends, prepend=0), 1)
    # Sites rounded down to 0 received one unit. These units are taken from the largest sites.
    while (over := int(np.sum(units)) - people) > 0:
        at = int(np.argmax(units))
        units[at] -= min(over, int(units[at]) - 1)
    return np.asarray(units)
