"""The papers' ICA: gradients, clipping, noise, and what the programs and DP-djICA find."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms.metrics import amari_index
from zerosum.compute.units import Units
from zerosum.data.fmri import garch_sources
from zerosum.errors import BadData, BadParameter
from zerosum.papers.figures.separating import rehearsed
from zerosum.papers.methods import ica
from zerosum.papers.methods import ica_costs as costs
from zerosum.papers.methods.ica import Ascent, Settings
from zerosum.statistics.published import InfomaxGradient

Floats = NDArray[np.float64]


def mixture(people: int = 80, R: int = 4, sites: int = 4, seed: int = 5) -> tuple[list[Floats], Floats]:
    """Whitened sites and their mixing matrix."""
    rng = np.random.default_rng(seed)
    sources = garch_sources(people, R, rng=rng).reshape(-1, R)
    values, vectors = np.linalg.eigh(sources.T @ sources / len(sources))
    A = np.linalg.qr(rng.standard_normal((R, R)))[0] @ (vectors / np.sqrt(values)) @ vectors.T
    return np.split(sources @ A.T, sites), A


def objective(rows: Floats, W: Floats, b: Floats) -> float:
    """log abs(det W) + mean of sum log g'(z), whose ascent is infomax."""
    z = rows @ W.T + b
    slopes = -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))
    return float(np.linalg.slogdet(W)[1] + np.mean(np.sum(slopes, axis=1)))


def one_by_one(rows: Floats, W: Floats, b: Floats, clip: float) -> Floats:
    """The clipped gradient as Algorithm 4 writes it."""
    found = []
    for x in rows:
        z = W @ x + b
        y = 1 - 2 / (1 + np.exp(-z))
        G = (np.eye(len(W)) + np.outer(y, z)) @ W
        G = G / max(1.0, float(np.linalg.norm(G)) / clip)
        found.append(np.column_stack([G, y / max(1.0, float(np.linalg.norm(y)) / math.sqrt(clip))]))
    return np.asarray(np.mean(found, axis=0))


def some_point(R: int = 4) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(8)
    return rng.standard_t(4, (300, R)), np.eye(R) + 0.3 * rng.standard_normal((R, R)), 0.2 * rng.standard_normal(R)


def statistic(W: Floats, b: Floats, clip: float = 1e6) -> InfomaxGradient:
    """The gradient at (W, b); by default without clipping any of the rows here."""
    return InfomaxGradient(columns=len(W), unmixing=W, bias=b, clip=clip)


def gradient(rows: NDArray[np.floating[Any]], W: Floats, b: Floats, clip: float = 1e6) -> Floats:
    """[G h] of one person by plain arithmetic."""
    asked = statistic(W, b, clip)
    return np.column_stack(asked.split(ica.plain_gradient(asked, Units(rows, np.array([0, len(rows)])))))


def unmixed(
    sites: list[Floats], settings: Settings, method: str = "non-private", epsilon: float = 1.0, seed: int = 0
) -> Floats:
    """The unmixing matrix by a method, with people of 50 rows."""
    people = [Units(rows, np.arange(0, len(rows) + 1, 50)) for rows in sites]
    return rehearsed(method, people, epsilon, settings, np.random.default_rng(seed))[0]


def same_rows(W: Floats, other: Floats) -> Floats:
    """W with the signs of the rows of another matrix."""
    return np.asarray(W * np.sign(np.sum(W * other, axis=1))[:, None])


def test_ica_baseline_gradients_equal_infomax_finite_differences() -> None:
    rows, W, b = some_point()
    found = gradient(rows, W, b)
    G, h = found[:, :-1], found[:, -1]
    step = 1e-6
    eye = np.eye(4)
    for i in range(4):
        there, back = (objective(rows, W, b + t * eye[i]) for t in (step, -step))
        assert h[i] == pytest.approx((there - back) / (2 * step), abs=1e-6)
    relative = G @ np.linalg.inv(W)  # of (W, b) -> (I + E)(W, b)
    for i in range(4):
        for j in range(4):
            E = np.outer(eye[i], eye[j])
            there, back = (objective(rows, W + t * E @ W, b + t * E @ b) for t in (step, -step))
            assert relative[i, j] == pytest.approx((there - back) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("clip", [1.0, 3.0, 30.0, 1e6])
def test_ica_baseline_clipping_without_matrices_equals_clipping_with_them(clip: float) -> None:
    rows, W, b = some_point()
    assert np.allclose(gradient(rows, W, b, clip), one_by_one(rows, W, b, clip), atol=1e-12)
    single = gradient(rows.astype(np.float32), W, b, clip)
    assert np.allclose(single, one_by_one(rows, W, b, clip), atol=1e-5)


def test_ica_baseline_gradient_in_blocks_equals_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, W, b = some_point()
    whole = gradient(rows, W, b, 3.0)
    monkeypatch.setattr(ica, "_BLOCK", 7)
    assert np.allclose(gradient(rows, W, b, 3.0), whole, atol=1e-13)


def test_ica_baseline_plain_gradient_equals_exact_statistic_for_persons_of_unequal_length() -> None:
    """The statistic of a real run takes products in whole numbers of 26 bits: 1.5e-8 of an entry."""
    rows, W, b = some_point()
    people = Units(rows, np.array([0, 20, 150, 155, 300]))
    for V in (None, np.random.default_rng(1).normal(size=(4, 4))):
        asked = InfomaxGradient(columns=4, unmixing=W, bias=b, projection=V, clip=3.0)
        assert np.allclose(ica.plain_gradient(asked, people), asked.total(people), atol=1e-6)


def test_ica_baseline_person_moves_gradient_within_sensitivity() -> None:
    """Hill climbing on one person's volumes against another's, among people who stay."""
    rng = np.random.default_rng(11)
    R, T, people, clip = 3, 5, 4, 2.0
    W, b = np.eye(R) + 0.2 * rng.standard_normal((R, R)), 0.1 * rng.standard_normal(R)
    others = rng.standard_normal(((people - 1) * T, R))

    def moved(pair: Floats) -> tuple[float, float]:
        first, second = (gradient(np.vstack([others, mine]), W, b, clip) for mine in pair)
        change = first - second
        return float(np.linalg.norm(change[:, :-1])), float(np.linalg.norm(change[:, -1]))

    bounds = 2 * clip / people, 2 * math.sqrt(clip) / people
    reached = [0.0, 0.0]
    for which in range(2):
        for _ in range(5):
            pair = 10 ** rng.uniform(-1, 3) * rng.standard_normal((2, T, R))
            best = moved(pair)[which]
            for _ in range(300):
                tried = pair * np.exp(0.3 * rng.standard_normal(pair.shape)) * rng.choice([1, 1, 1, -1], pair.shape)
                if (found := moved(tried)[which]) > best:
                    pair, best = tried, found
            reached[which] = max(reached[which], best)
        assert reached[which] <= bounds[which] * (1 + 1e-12)
    assert reached[0] > 0.6 * bounds[0]  # y and z have opposite signs in every entry: the whole of 2B is out of reach
    ones = 1e3 * np.ones((T, R)) @ np.linalg.inv(W).T
    assert moved(np.array([ones, -ones]))[1] == pytest.approx(bounds[1])


def test_ica_baseline_published_noise_equals_hand_calculation() -> None:
    tau = costs.round_tau(0.5)
    assert tau * 30 / 256 == pytest.approx(2 * 30 / 256 / 0.5 * math.sqrt(2 * math.log(125)))
    assert costs.round_tau(1.0, 1e-5) == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)))


def test_ica_baseline_many_sites_equal_one_with_all_rows() -> None:
    sites, _ = mixture()
    settings = Settings(rounds=20)
    together = unmixed([np.concatenate(sites)], settings)
    for divided in (sites, [np.concatenate(sites[:3]), sites[3]]):
        assert np.allclose(unmixed(divided, settings), together, atol=1e-12)


def test_ica_baseline_without_noise_separates_sources() -> None:
    sites, A = mixture()
    settings = Settings(rounds=800, step=0.1, tolerance=1e-12)
    assert amari_index(unmixed(sites, replace(settings, rounds=1)), A) > 0.3
    assert amari_index(unmixed(sites, settings), A) < 0.05


@pytest.mark.parametrize("method", costs.SCHEMES)
def test_ica_baseline_with_tiny_noise_equals_djica(method: str) -> None:
    sites, _ = mixture()
    settings = Settings(rounds=30)
    found = unmixed(sites, settings, method, 1e12)
    best = unmixed(sites[:1] if method == "single-site" else sites, settings)
    assert np.allclose(same_rows(found, best), best, atol=1e-8)


def test_ica_baseline_noise_of_one_round_has_stated_std() -> None:
    """One round from W = I: the distance from the noiseless step is the noise of the average, here of 400 people.

    1600 entries: a relative standard error of 1.8 %. False alarm beyond five of them: 6e-7.
    """
    sites, _ = mixture(R=4)
    step = 1e-3
    settings = Settings(rounds=1, step=step)
    best = unmixed(sites, settings)
    people = sum(len(rows) for rows in sites) // 50
    expected = step * 30 * costs.round_tau(1.0) / people
    for method, factor in (("cape-djica", 1.0), ("pooled", 1.0), ("conv", 2.0)):
        draws = [same_rows(unmixed(sites, settings, method, 1.0, s), best) - best for s in range(100)]
        assert float(np.std(draws)) == pytest.approx(factor * expected, rel=5 / math.sqrt(2 * 1600)), method


def test_ica_baseline_dp_djica_with_laplace_noise_does_not_separate() -> None:
    sites, A = mixture(people=40)
    settings = Settings(rounds=300, step=0.1)
    found = ica.dp_djica(sites, 1.0, np.random.default_rng(0), settings, ambient=900)
    assert amari_index(found.W, A) > 0.25
    calm = ica.dp_djica(sites, 1e9, np.random.default_rng(0), Settings(rounds=1000, step=0.1, tolerance=1e-12))
    assert amari_index(calm.W, A) < 0.15


def test_infomax_divergence_restarts_with_smaller_step() -> None:
    ascent, seen = Ascent(2, Settings(rounds=9, step=1.0, upper_bound=10.0)), []
    while not ascent.finished:
        ascent.move(ascent.W, ascent.b)
        seen.append(float(ascent.W[0, 0]))
    assert seen == [2, 4, 8, 1, 1.5, 2.25, 3.375, 5.0625, 7.59375]
    assert ascent.rounds == 9  # those in vain were paid for too
    broken = Ascent(2, Settings(rounds=3))
    for _ in range(3):
        broken.move(np.full((2, 2), np.nan), np.zeros(2))
    assert broken.finished
    assert np.array_equal(broken.W, np.eye(2))


def test_infomax_tolerance_stops_the_rounds() -> None:
    ascent = Ascent(2, Settings(rounds=500, step=0.1, tolerance=1e-4))
    while not ascent.finished:
        ascent.move(np.eye(2) * 0.5**ascent.rounds, np.zeros(2))
    assert 0.1 * 0.5 ** (ascent.rounds - 1) < 1e-2 <= 0.1 * 0.5 ** (ascent.rounds - 2)


def test_ica_baselines_bad_data_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BadData, match="columns"):
        ica.dp_djica([np.zeros((3, 2)), np.zeros((3, 4))], 1.0, rng)
    with pytest.raises(BadData, match="rows"):
        ica.dp_djica([np.zeros((0, 2))], 1.0, rng)
    with pytest.raises(BadData, match="zero"):
        ica.dp_djica([np.zeros((3, 2))], 1.0, rng)
    with pytest.raises(BadParameter, match="epsilon"):
        ica.dp_djica([np.ones((3, 2))], 0.0, rng)
