"""Guided ICA with scripted releases: exactness without noise, shrinkage, planning and expectations."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from helpers.program_results import result_of
from zerosum.algorithms.guided_ica.program import GuidedICAProgram, blocks, informed
from zerosum.algorithms.guided_ica.public import PublicPeople, complement, weights_of
from zerosum.algorithms.guided_ica.tuning import TUNING
from zerosum.algorithms.program import PublicFacts
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency

V, R = 20, 3
COLUMNS = tuple(f"r{at}" for at in range(V))
RNG = np.random.default_rng(0)
TRUE = np.linalg.qr(RNG.normal(size=(V, R)))[0].T
TEMPLATES = TRUE + 0.15 * RNG.normal(size=TRUE.shape)


def people(count: int, seed: int = 0, own: float = 0.1) -> Units:
    rng = np.random.default_rng(seed)
    return Units.from_list(
        [
            rng.normal(size=(80, R)) @ (3 * TRUE + own * rng.normal(size=TRUE.shape)) + 0.5 * rng.normal(size=(80, V))
            for _ in range(count)
        ]
    )


def program(**more: Any) -> GuidedICAProgram:
    return GuidedICAProgram(columns=COLUMNS, templates=TEMPLATES, per_recording="center", **more)


def agreement(one: Any, other: Any) -> float:
    return float(np.sum(one * other) / (np.linalg.norm(one) * np.linalg.norm(other)))


INFORMED = PublicPeople.of(people(40, seed=1), TEMPLATES / np.linalg.norm(TEMPLATES, axis=1)[:, None], "center")


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("more", [{}, INFORMED.parameters()], ids=["templates only", "public people"])
def test_guided_ica_without_noise_finds_the_difference(more: dict[str, Any], adjacency: Adjacency) -> None:
    units = people(30)
    facts = PublicFacts(noise=1e-6, units=30)
    found = result_of(program(**more).resolve(facts), units, adjacency)
    exact = result_of(program(clip=1e6), units)
    assert agreement(found["map_difference"], exact["map_difference"]) > 0.98
    np.testing.assert_allclose(np.linalg.norm(found["maps"], axis=1), 1)
    assert np.all(np.abs(found["map_difference"] @ TEMPLATES.T) < 1e-6)
    assert np.mean(np.sum(found["maps"] * found["templates"], axis=1)) < 1


def test_guided_ica_of_noise_alone_returns_the_templates() -> None:
    found = result_of(program().resolve(PublicFacts(noise=1e4, units=30)), people(30), noise=1e5)
    np.testing.assert_allclose(found["maps"], found["templates"], atol=0.1)
    assert np.all(found["share_kept"] < 0.1)


def test_guided_ica_is_hardly_below_its_template_at_any_noise() -> None:
    units = people(60, own=0.3)
    exact = result_of(program(clip=1e6), units)
    for more in ({}, INFORMED.parameters()):
        for noise in (0.01, 1.0, 10.0, 100.0):
            found = result_of(program(**more).resolve(PublicFacts(noise=noise, units=60)), units, noise=noise)
            before = np.mean(np.sum(exact["templates"] * exact["maps"], axis=1))
            assert np.mean(np.sum(found["maps"] * exact["maps"], axis=1)) > before - 0.005


def test_guided_ica_planner_releases_more_directions_with_less_noise() -> None:
    planned = [program(**INFORMED.parameters()).resolve(PublicFacts(noise=noise, units=400)) for noise in (1e-4, 30.0)]
    assert planned[0].used > planned[1].used
    assert planned[0].clip == planned[0].radius
    assert planned[0].resolve(PublicFacts(noise=30.0, units=400)).used == planned[0].used


def test_guided_ica_expectation_falls_with_noise_and_needs_the_number_of_people() -> None:
    chosen = program(**INFORMED.parameters())
    assert chosen.expectation(PublicFacts(noise=1.0, units=None)) is None
    found = [chosen.expectation(PublicFacts(noise=noise, units=100)) for noise in (0.01, 1.0, 100.0)]
    differences = [each.judged[0] for each in found if each is not None]
    assert differences == sorted(differences, reverse=True)
    plain = program().expectation(PublicFacts(noise=6.0, units=24))
    assert plain is not None
    assert plain.judged[0] < plain.judged[1]
    assert not plain.enough


def test_informed_difference_uses_public_people_only_where_the_release_agrees() -> None:
    rng = np.random.default_rng(2)
    public, spread = rng.normal(size=(R, 10)), np.full((R, 10), 0.01)
    noise = np.full((R, 10), 0.01)
    noisy = 0.1 * rng.normal(size=(R, 10))
    _agreeing, factor = informed(public + noisy, noise, public, spread)
    other, none = informed(noisy, noise, public, spread)
    assert factor > 0.9
    assert none < 0.1
    assert np.linalg.norm(other) < 0.2 * np.linalg.norm(public)


def test_blocks_end_with_the_directions() -> None:
    for count in (3, 5, 45, 190):
        found = blocks(count)
        assert (found[0].start, found[-1].stop) == (0, count)
        assert all(a.stop == b.start for a, b in pairwise(found))
    assert set(TUNING.blocks) <= {each.stop for each in blocks(500)}


def test_complement_is_orthonormal_and_outside_the_templates() -> None:
    found = complement(TEMPLATES, np.hstack([TEMPLATES.T, np.eye(V)]))
    assert found.shape == (V, V - R)
    np.testing.assert_allclose(found.T @ found, np.eye(V - R), atol=1e-12)
    np.testing.assert_allclose(TEMPLATES @ found, 0, atol=1e-12)


def test_weights_make_the_mean_square_of_a_person_one() -> None:
    spread = np.random.default_rng(0).uniform(0.1, 2, (3, 4))
    assert np.sum(weights_of(spread) ** 2 * spread) == pytest.approx(1)


def test_public_people_are_refused_if_they_do_not_fit() -> None:
    with pytest.raises(BadData, match="columns"):
        PublicPeople.of(people(5), TEMPLATES[:, 1:])
    with pytest.raises(BadData, match="at least 4"):
        PublicPeople.of(people(3), TEMPLATES)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"templates": np.ones((2, V))}, "independent"),
        ({"templates": np.eye(V)}, "fewer"),
        ({"templates": np.ones((1, 3))}, "column"),
        ({"templates": TEMPLATES, "basis": TEMPLATES.T}, "outside"),
        ({"templates": TEMPLATES, "directions": 3}, "basis"),
        ({"templates": TEMPLATES, "public_count": 9}, "together"),
        ({"templates": TEMPLATES, "basis": np.eye(V), "directions": 19}, "at most"),
    ],
)
def test_guided_ica_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        GuidedICAProgram(columns=COLUMNS, **parameters)
