"""GuidedICA and Connectivity as estimators: fits over sites, what stays at a site, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerosum
from zerosum.compute.units import Units
from zerosum.data.fmri import make_fmri
from zerosum.errors import BadData, BadParameter

STUDY = make_fmri(60, sites=3, components=3, points=60, side=5, noise=0.2, seed=1)
SITES = {f"site {s}": STUDY.observed(s) for s in range(3)}
ROUGH = STUDY.maps + 0.3 * STUDY.maps.std() * np.random.default_rng(0).normal(size=STUDY.maps.shape)
SEEDED: dict[str, Any] = {"random_state": 0, "data": "synthetic"}
RNG = np.random.default_rng(3)
PEOPLE = {
    name: [
        np.hstack([RNG.normal(size=(60, 3)) + code * RNG.normal(size=(60, 1)), np.full((60, 1), float(code))])
        for code in (0, 1) * 20
    ]
    for name in ("a", "b", "c")
}


def test_guided_ica_fit_improves_on_rough_templates() -> None:
    found = zerosum.GuidedICA(ROUGH, per_recording="center", epsilon=50, **SEEDED).fit(SITES)
    unit = STUDY.maps / np.linalg.norm(STUDY.maps, axis=1)[:, None]
    before = np.mean(np.abs(np.sum(found.templates_ * unit, axis=1)))
    assert np.mean(np.abs(np.sum(found.maps_ * unit, axis=1))) > before
    assert found.public_factor_ == 0
    assert found.difference_.shape == (3, 25)


def test_guided_ica_public_people_enter_as_facts_only(tmp_path: Path) -> None:
    public = make_fmri(30, sites=1, components=3, points=60, side=5, noise=0.2, seed=2).observed(0)
    np.save(tmp_path / "maps.npy", ROUGH)
    found = zerosum.GuidedICA(tmp_path / "maps.npy", public=public, epsilon=4, **SEEDED).fit(SITES)
    assert 0 <= found.public_factor_ <= 1.2
    assert found.result_.plan.question.parameters["public_count"] == 30


def test_guided_ica_of_a_person_stays_at_the_site() -> None:
    found = zerosum.GuidedICA(ROUGH, epsilon=20, **SEEDED).fit(SITES)
    own = SITES["site 0"]
    assert [each.shape for each in found.time_courses(own)] == [(60, 3)] * len(own)
    maps = found.person_maps(Units.from_list(list(own)))
    # Dual regression leaves the part in the span of the maps as it is.
    np.testing.assert_allclose(maps[0] @ np.linalg.pinv(found.maps_), np.eye(3), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "data", "error", "word"),
    [
        ({"templates": None}, SITES, BadParameter, "templates"),
        ({"templates": ROUGH[:, 1:], "public": SITES["site 0"]}, SITES, BadParameter, "columns"),
        ({"templates": ROUGH, "public": SITES["site 0"], "basis": np.eye(25)}, SITES, BadParameter, "both"),
        ({"templates": ROUGH}, {"a": np.ones((4, 25)), "b": np.ones((4, 25))}, BadData, "whose"),
        ({"templates": ROUGH, "public": Units(np.ones((9, 25)))}, SITES, BadData, "single row"),
    ],
)
def test_guided_ica_input_that_does_not_fit_is_refused(settings: Any, data: Any, error: Any, word: str) -> None:
    with pytest.raises(error, match=word):
        zerosum.GuidedICA(**settings, **SEEDED).fit(data)


def test_connectivity_fit_finds_the_group_difference() -> None:
    found = zerosum.Connectivity(group="x3", levels=[0, 1], epsilon=20, **SEEDED).fit(PEOPLE)
    assert found.connectivity_.shape == (2, 3)
    assert np.all(found.difference_ > 0.1)
    assert found.global_p_value_[0] < 1e-3
    np.testing.assert_allclose(found.matrix()[np.triu_indices(3, 1)], found.difference_[0])
    assert np.all(found.interval_[..., 0] >= found.population_interval_[..., 0])


def test_connectivity_fit_on_covariates_has_the_same_difference() -> None:
    found = zerosum.Connectivity(covariates={"x3": (0, 1)}, epsilon=40, **SEEDED).fit(PEOPLE)
    assert found.coef_.shape == (1, 3)
    assert np.all(found.coef_ > 0.1)
    assert found.spread_.shape == (1,)


def test_connectivity_missing_region_is_refused_and_missing_group_counts_in_none() -> None:
    gap = {name: [each.copy() for each in people] for name, people in PEOPLE.items()}
    gap["a"][0][:, 3] = np.nan
    found = zerosum.Connectivity(group="x3", levels=[0, 1], epsilon=20, **SEEDED).fit(gap)
    assert found.difference_.shape == (1, 3)
    gap["a"][0][5, 0] = np.nan
    with pytest.raises(BadParameter, match="missing"):
        zerosum.Connectivity(group="x3", levels=[0, 1], **SEEDED).fit(gap)
