"""capeAGN's decomposition, AVN, and what the published calibration is worth."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from zerosum.algorithms import Algorithm
from zerosum.algorithms.metrics import component_error
from zerosum.algorithms.program import Program
from zerosum.algorithms.tensor import parts
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.statistic import Adjacency
from zerosum.papers import rehearsal
from zerosum.papers.methods import tensor as published
from zerosum.papers.programs import CapeAGNMixtureProgram, CapeAGNTopicsProgram
from zerosum.statistics.published import DistinctPairMoment, DistinctTripleMoment

EXACT = (math.sqrt(2), 1.7)
AGAINST = {"sites": 5, "colluders": 1}


def mixture() -> tuple[Floats, Floats, Algorithm]:
    """Means, rows within the unit ball, and the program."""
    rng = np.random.default_rng(1)
    means = rng.normal(size=(3, 8))
    means /= 2 * np.linalg.norm(means, axis=1, keepdims=True)
    rows = means[rng.choice(3, 20_000)] + 0.1 * rng.normal(size=(20_000, 8))
    largest = float(np.max(np.linalg.norm(rows, axis=1)))
    columns = tuple(f"x{at}" for at in range(8))
    program = CapeAGNMixtureProgram(columns=columns, n_components=3, variance=0.01 / largest**2, clip=1.0)
    return means / largest, rows / largest, program


# ---- decomposition ---------------------------------------------------------------------------------------------------


def test_decomposition_of_exact_moments_gives_components_and_weights() -> None:
    rng = np.random.default_rng(0)
    components, weights = rng.normal(size=(3, 6)), np.array([0.5, 0.3, 0.2])
    found, shares = published.decomposed((components.T * weights) @ components, parts(weights, components), 3, seed=0)
    order = np.argsort(-shares)
    assert shares[order] == pytest.approx(weights, rel=1e-9)
    assert found[order] == pytest.approx(components, abs=1e-9)


def test_whitening_of_more_components_than_columns_is_refused() -> None:
    with pytest.raises(BadParameter, match="4"):
        published.whitening(np.eye(3), 4)


# ---- AVN -------------------------------------------------------------------------------------------------------------


def test_avn_with_little_noise_finds_means() -> None:
    means, rows, program = mixture()
    found = published.avn(program, Units.from_rows(rows), (1e-9, 1e-9), np.random.default_rng(0))
    assert component_error(np.asarray(found["means"]), means) < 0.05


class Noisy(CapeAGNTopicsProgram):
    """Returns its two releases."""

    def program(self, adjacency: Adjacency) -> Program:
        found = {}
        for name, request in zip(("second", "third"), self.requests(adjacency), strict=True):
            release = yield request
            found[name] = Quantity(release.value)
            found[f"{name}_std"] = Quantity(np.array([release.noise_std]))
        return found


def test_avn_noise_is_normal_on_second_moment_and_has_gamma_distributed_norm_on_tensor() -> None:
    """Documents of no words: the releases are noise. 1000 draws; every bound is four standard errors or more."""
    program, nothing = Noisy(columns=("a", "b", "c"), n_components=1), Units.from_rows(np.zeros((4, 3)))
    rng, size, b = np.random.default_rng(0), 10, 0.5
    drawn = [published.avn(program, nothing, (2.0, b), rng) for _ in range(1000)]
    assert np.std([np.asarray(each["second"]) for each in drawn]) == pytest.approx(2.0, rel=0.05)
    third = np.array([np.asarray(each["third"]) for each in drawn])
    norms = np.linalg.norm(third, axis=1)
    assert np.mean(norms) == pytest.approx(b * size, rel=0.05)
    assert np.std(norms) == pytest.approx(b * math.sqrt(size), rel=0.1)
    assert np.std(third) == pytest.approx(float(np.asarray(drawn[0]["third_std"])[0]), rel=0.05)
    assert np.linalg.norm(np.mean(third / norms[:, None], axis=0)) < 0.1  # about 1/sqrt(1000) = 0.03


# ---- privacy cost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", published.METHODS)
def test_exact_noise_costs_requested_epsilon(method: str) -> None:
    noise = published.exact_noise(method, 1.0, 0.01, EXACT, **AGAINST)
    assert published.exact_epsilon(method, noise, 0.01, EXACT, **AGAINST) == pytest.approx(1.0, rel=1e-6)
    if method != "avn":
        assert noise[0] / noise[1] == pytest.approx(EXACT[0] / EXACT[1])


def test_exact_epsilon_of_two_releases_composes_their_mu() -> None:
    """conv: mu = D/tau of each release."""
    mu = math.hypot(EXACT[0] / 3, EXACT[1] / 4)
    found = published.exact_epsilon("conv", (3.0, 4.0), 0.01, EXACT, **AGAINST)
    assert found == pytest.approx(accountant.epsilon(mu, 0.01), rel=1e-9)
    alone = rehearsal.exact_epsilon("pooled", 3.0, 0.01, **AGAINST, sensitivity=EXACT[0])
    assert published.exact_epsilon("avn", (3.0, 4.0), 0.01, EXACT, **AGAINST) == pytest.approx(alone + EXACT[1] / 4)


def test_published_noise_of_mixtures_has_too_large_third_sensitivity_and_cape_costs_more_than_conv() -> None:
    claims = published.mixture_claims(50, 0.05)
    assert claims == pytest.approx((1.0, 17.0))
    second, third = published.published_noise("conv", 1.0, 0.01, claims)
    assert third / second == pytest.approx(17)
    exact = (math.sqrt(2), 1.8385)
    plain, cape = (
        published.exact_epsilon(method, (second, third), 0.01, exact, **AGAINST)
        for method in ("conv", "cape-broadcast")
    )
    assert plain < cape < 1


@pytest.mark.parametrize("method", published.METHODS)
def test_exact_noise_of_topics_is_below_published(method: str) -> None:
    noise = published.published_noise(method, 1.0, 0.01, published.TOPIC_CLAIMS)
    assert 0.1 < published.exact_epsilon(method, noise, 0.01, published.TOPIC_CLAIMS, **AGAINST) < 1
    assert published.exact_noise(method, 1.0, 0.01, published.TOPIC_CLAIMS, **AGAINST)[0] < noise[0]


def test_topic_claims_are_attained_by_documents_of_three_words_and_exceeded_by_none() -> None:
    documents = [np.bincount(words, minlength=3)[None, :].astype(float) for words in product(range(3), repeat=3)]
    for statistic, claim in zip(
        (DistinctPairMoment(columns=3), DistinctTripleMoment(columns=3)), published.TOPIC_CLAIMS, strict=True
    ):
        moments = [statistic.total(Units.from_rows(each)) for each in documents]
        apart = max(float(np.linalg.norm(one - other)) for one, other in product(moments, repeat=2))
        assert apart == pytest.approx(claim, rel=1e-8)


def test_unknown_tensor_method_is_refused() -> None:
    with pytest.raises(BadParameter, match="'magic'"):
        published.published_noise("magic", 1.0, 0.01, published.TOPIC_CLAIMS)
    with pytest.raises(BadParameter, match="'magic'"):
        published.exact_noise("magic", 1.0, 0.01, EXACT, **AGAINST)
