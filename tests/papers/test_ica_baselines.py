"""The papers' ICA: gradients, clipping, noise, and what the methods find."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms.metrics import amari_index
from zerosum.data.fmri import garch_sources
from zerosum.errors import BadData, BadParameter
from zerosum.papers.methods import ica
from zerosum.papers.methods.ica import Settings

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


def test_ica_baseline_gradients_equal_infomax_finite_differences() -> None:
    rows, W, b = some_point()
    found = ica.gradient(rows, W, b)
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


@pytest.mark.parametrize("clip", [1.0, 3.0, 30.0, math.inf])
def test_ica_baseline_clipping_without_matrices_equals_clipping_with_them(clip: float) -> None:
    rows, W, b = some_point()
    assert np.allclose(ica.gradient(rows, W, b, clip), one_by_one(rows, W, b, clip), atol=1e-12)
    single = ica.gradient(rows.astype(np.float32), W, b, clip)
    assert np.allclose(single, one_by_one(rows, W, b, clip), atol=1e-5)


def test_ica_baseline_gradient_in_blocks_equals_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, W, b = some_point()
    whole = ica.gradient(rows, W, b, 3.0)
    monkeypatch.setattr(ica, "_BLOCK", 7)
    assert np.allclose(ica.gradient(rows, W, b, 3.0), whole, atol=1e-13)


def test_ica_baseline_person_moves_gradient_within_sensitivity() -> None:
    """Hill climbing on one person's volumes against another's, among people who stay."""
    rng = np.random.default_rng(11)
    R, T, people, clip = 3, 5, 4, 2.0
    W, b = np.eye(R) + 0.2 * rng.standard_normal((R, R)), 0.1 * rng.standard_normal(R)
    others = rng.standard_normal(((people - 1) * T, R))

    def moved(pair: Floats) -> tuple[float, float]:
        first, second = (ica.gradient(np.vstack([others, mine]), W, b, clip) for mine in pair)
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
    matrix, bias = ica.published_tau(0.5, people=256)
    assert matrix == pytest.approx(2 * 30 / 256 / 0.5 * math.sqrt(2 * math.log(125)))
    assert bias == pytest.approx(2 * math.sqrt(30) / 256 / 0.5 * math.sqrt(2 * math.log(125)))
    assert ica.published_tau(0.5, 1024)[0] == pytest.approx(matrix / 4)
    with pytest.raises(BadParameter, match="person"):
        ica.published_tau(1.0, 0)


def test_ica_baseline_cape_noise_cancels_to_pooled_noise() -> None:
    S, R, tau = 4, 150, np.array([*[2.0] * 150, 0.5])
    zeros, rng = np.zeros((S, R, R + 1)), np.random.default_rng(1)
    sent = ica.cape_messages(zeros, tau, rng)
    conv = ica.conv_messages(zeros, tau, rng)
    for part, scale in ((np.s_[:, :R], 2.0), (np.s_[:, R:], 0.5)):
        spread = math.sqrt(2 / zeros[0][part].size)  # relative, of a variance
        average, other = sent.mean(axis=0)[part], conv.mean(axis=0)[part]
        assert abs(np.var(average) / (scale / S) ** 2 - 1) < 5 * spread
        assert abs(np.var(other) / (scale**2 / S) - 1) < 5 * spread
        assert abs(np.var(sent[0][part]) / scale**2 - 1) < 5 * spread  # one message carries all of tau


def test_ica_baseline_many_sites_equal_one_with_all_rows() -> None:
    sites, _ = mixture()
    settings = Settings(rounds=20)
    together = ica.djica([np.concatenate(sites)], settings=settings)
    apart = ica.djica(sites, settings=settings)
    unequal = ica.djica([np.concatenate(sites[:3]), sites[3]], settings=settings)
    assert np.allclose(apart.W, together.W)
    assert np.allclose(unequal.W, together.W)
    assert np.allclose(apart.b, together.b)


def test_ica_baseline_without_noise_separates_sources() -> None:
    sites, A = mixture()
    seen: list[float] = []
    settings = Settings(rounds=800, step=0.1, tolerance=1e-12)
    found = ica.djica(sites, settings=settings, on_round=lambda done, W: seen.append(amari_index(W, A)))
    assert len(seen) == found.rounds
    assert seen[0] > 0.3
    assert amari_index(found.W, A) < 0.05


@pytest.mark.parametrize("method", ["cape-djica", "conv", "pooled", "single-site"])
def test_ica_baseline_with_tiny_noise_equals_djica(method: str) -> None:
    sites, _ = mixture()
    settings = Settings(rounds=30)
    found = ica.METHODS[method](sites, 20, 1e12, np.random.default_rng(0), settings)
    best = ica.djica(sites[:1] if method == "single-site" else sites, settings=settings)
    assert np.allclose(found.W, best.W, atol=1e-8)


def test_ica_baseline_noise_of_one_round_has_stated_std() -> None:
    """One round from W = I: the distance from the noiseless step is the noise of the average."""
    sites, _ = mixture(R=4)
    settings = Settings(rounds=1, step=1.0)
    best = ica.djica(sites, settings=settings).W
    away = {}
    for method in ("cape-djica", "conv", "pooled"):
        draws = [ica.METHODS[method](sites, 20, 1.0, np.random.default_rng(s), settings).W - best for s in range(100)]
        away[method] = float(np.std(draws))
    tau = ica.published_tau(1.0, 20)[0]
    spread = 5 / math.sqrt(2 * 1600)  # relative, of a standard deviation
    assert away["cape-djica"] == pytest.approx(tau / 4, rel=spread)
    assert away["pooled"] == pytest.approx(tau / 4, rel=spread)
    assert away["conv"] == pytest.approx(tau / 2, rel=spread)


def test_ica_baseline_dp_djica_with_laplace_noise_does_not_separate() -> None:
    sites, A = mixture(people=40)
    settings = Settings(rounds=300, step=0.1)
    found = ica.dp_djica(sites, 10, 1.0, np.random.default_rng(0), settings, ambient=900)
    assert amari_index(found.W, A) > 0.25
    calm = ica.dp_djica(sites, 10, 1e9, np.random.default_rng(0), Settings(rounds=1000, step=0.1, tolerance=1e-12))
    assert amari_index(calm.W, A) < 0.15


def test_infomax_divergence_restarts_with_smaller_step() -> None:
    seen: list[float] = []

    def growing(W: Floats, b: Floats) -> Floats:
        return np.column_stack([W, b])

    settings = Settings(rounds=9, step=1.0, upper_bound=10.0)
    found = ica.infomax(2, growing, settings, lambda done, W: seen.append(float(W[0, 0])))
    assert seen == [2, 4, 8, 1, 1.5, 2.25, 3.375, 5.0625, 7.59375]
    assert found.rounds == 9  # those in vain were paid for too
    nothing = ica.infomax(2, lambda W, b: np.full((2, 3), np.nan), Settings(rounds=3), lambda done, W: None)
    assert np.array_equal(nothing.W, np.eye(2))


def test_infomax_tolerance_stops_and_annealing_reduces_movement() -> None:
    sites, _ = mixture()
    assert ica.djica(sites, settings=Settings(rounds=500, step=0.1, tolerance=1e-4)).rounds < 500
    noisy = ica.conv(sites, 20, 0.1, np.random.default_rng(0), Settings(rounds=60, tolerance=0))
    frozen = ica.conv(sites, 20, 0.1, np.random.default_rng(0), Settings(rounds=60, tolerance=0, anneal=0.5))
    assert np.linalg.norm(frozen.W - np.eye(4)) < np.linalg.norm(noisy.W - np.eye(4))


def test_ica_baselines_bad_data_are_refused() -> None:
    with pytest.raises(BadData, match="columns"):
        ica.djica([np.zeros((3, 2)), np.zeros((3, 4))])
    with pytest.raises(BadData, match="rows"):
        ica.djica([np.zeros((0, 2))])
    with pytest.raises(BadData):
        ica.dp_djica([np.zeros((3, 2))], 1, 1.0, np.random.default_rng(0))
