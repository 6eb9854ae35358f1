"""The filter of noisy scores: it ends where the sources are, says how well, and finds out which score suits them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms.ica.filter import Filter
from zerosum.algorithms.ica.joint_diagonalization import bootstrap_stability, separate
from zerosum.algorithms.metrics import matched
from zerosum.algorithms.pca.spectrum import ReplayedSpectra
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.statistics.unmixing import UnmixingScore

Floats = NDArray[np.float64]


def people(kind: str, rng: np.random.Generator, R: int = 4) -> Floats:
    """People x rows x sources."""
    shape = (150, 100, R)
    if kind == "normal":
        return rng.normal(size=shape)
    if kind == "bursts":
        size = np.exp(np.repeat(rng.normal(size=(150, 10, R)), 10, axis=1))
        return np.asarray(size * rng.normal(size=shape))
    return np.asarray(rng.laplace(size=shape) if kind == "heavy" else rng.uniform(-1, 1, shape))


def filtered(sources: Floats, mixing: Floats, noise: float, rounds: int = 8, seed: int = 0) -> Filter:
    R, rng = len(mixing), np.random.default_rng(seed)
    rows = sources @ mixing.T
    units = Units(rows.reshape(-1, R), np.arange(0, rows.shape[0] * rows.shape[1] + 1, rows.shape[1]))
    found = Filter.from_rotation(np.eye(R), 0.01)
    for number in range(rounds):
        late = number >= 0.6 * rounds
        weight = found.slope_weight(late)
        score = UnmixingScore(columns=R, unmixing=found.B, signs=found.signs, scores=found.scores, slope_weight=weight)
        value = score.total(units) + noise * rng.normal(size=score.size)
        found.update(score, score.split(value), noise, 1 / rounds, late=late)
    return found


def left_over(found: Filter, mixing: Floats) -> Floats:
    gains = found.B @ mixing
    gains /= np.linalg.norm(gains, axis=1, keepdims=True)
    return np.asarray(np.max(np.abs(gains), axis=1))


def nearly_white(R: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    skew = 0.25 * rng.normal(size=(R, R))
    return np.asarray(np.eye(R) + (skew - skew.T) / 2 + 0.05 * rng.normal(size=(R, R)))


@pytest.mark.parametrize(
    ("kind", "sign", "score"), [("heavy", 1, "tanh"), ("light", -1, "cube"), ("bursts", 1, "volatility")]
)
def test_ica_filter_noisy_releases_identify_kind_of_source(kind: str, sign: int, score: str) -> None:
    mixing = nearly_white(4, 1)
    found = filtered(people(kind, np.random.default_rng(2)), mixing, noise=0.5)
    assert np.all(found.signs == sign)
    assert found.scores == (score,) * 4
    assert np.min(left_over(found, mixing)) > 0.995


def test_ica_filter_correlated_coordinates_corrects_rotation_and_whitening() -> None:
    """Correlated coordinates: no rotation would do."""
    mixing = np.array([[1.0, 0.3, 0.0], [0.1, 1.0, 0.2], [0.0, -0.1, 1.0]])
    found = filtered(people("heavy", np.random.default_rng(3), 3), mixing, noise=0.3)
    best = np.linalg.svd(mixing.T)
    turned = np.abs((best[0] @ best[2]) @ mixing)
    by_rotation = np.max(turned, axis=1) / np.linalg.norm(turned, axis=1)
    assert np.min(left_over(found, mixing)) > 0.998 > np.mean(by_rotation)


def test_ica_filter_stability_equals_mean_overlap_with_sources() -> None:
    """The mean over runs, where noise is small and where it is not."""
    sources, mixing = people("light", np.random.default_rng(4)), nearly_white(4, 5)
    for noise in (1.0, 6.0):
        runs = [filtered(sources, mixing, noise, seed=seed) for seed in range(8)]
        said = np.mean([np.mean(found.stability()[0]) for found in runs])
        true = np.mean([np.mean(left_over(found, mixing)) for found in runs])
        assert said == pytest.approx(true, abs=0.03)
        assert all(np.all(found.stability()[1]) for found in runs)


@pytest.mark.parametrize("kind", ["light", "normal"])
def test_ica_filter_pure_noise_has_zero_stability(kind: str) -> None:
    """Sources that drown, and sources that are none."""
    noise = 300.0 if kind == "light" else 5.0
    for seed in range(5):
        stability, real = filtered(people(kind, np.random.default_rng(seed)), np.eye(4), noise, seed=seed).stability()
        assert np.max(stability) == 0
        assert not np.any(real)


def test_ica_filter_little_evidence_after_blind_start_has_lower_stability() -> None:
    """Sources a standard deviation or two above nothing may be halves of two; with much evidence it makes no odds."""
    stabilities = {}
    for evidence in (1.5, 40.0):
        for blind in (True, False):
            found = Filter.from_rotation(np.eye(20), 0.01)
            if not blind:
                found = Filter.from_cumulants(np.eye(20), np.full(20, 9.0), 0.01, 0.01)
            found.P *= 1e-3
            found.proof = np.stack([np.full(20, evidence), np.ones(20)])
            stabilities[evidence, blind] = np.mean(found.stability()[0])
    assert stabilities[1.5, True] < 0.9 < 0.95 < stabilities[1.5, False]
    assert stabilities[40.0, True] > 0.95


def test_ica_filter_heavy_tails_with_weak_known_turns_count_as_real() -> None:
    """Rows that are alike feign bursts, not heavy tails: with these sources count, for the part that turns show."""
    stabilities = []
    for tails, shown in ((4.0, 1.5), (4.0, 0.75), (0.0, 1.5)):
        found = Filter.from_rotation(np.eye(10), 0.0)
        found.P *= 1e-3
        found.proof, found.tails = np.stack([np.full(10, 20.0), np.ones(10)]), np.full(10, tails)
        found.own = np.full(10, 6.0)
        found.response = np.stack([np.full(45, 2 * shown), np.ones(45)]) * 0.01
        stability, real = found.stability()
        stabilities.append(np.mean(stability))
        assert np.all(real) == (tails > 0)
    assert 0.99 > stabilities[0] > stabilities[1] > 0.5 > 0.01 > stabilities[2]


def test_ica_filter_two_sources_of_opposite_sign_are_both_stable() -> None:
    """One of heavy tails and one of light ones, with steeper slopes: both are proven by what their only pair shows."""
    found = Filter.from_rotation(np.eye(2), 0.0)
    found.P *= 1e-3
    found.signs = np.array([1.0, -1.0])
    found.proof, found.own = np.stack([np.full(2, 40.0), np.ones(2)]), np.array([2.0, 6.0])
    found.response = np.array([[4.5 * 1.5], [1.5]])  # little more than half of what it should show
    assert np.min(found.stability()[0]) > 0.9 * np.max(found.stability()[0]) > 0.8
    assert np.all(found.stability()[1])


def test_ica_filter_without_noise_is_finite() -> None:
    found = filtered(people("heavy", np.random.default_rng(6)), nearly_white(4, 7), noise=0.0)
    assert np.all(np.isfinite(found.B))
    assert np.min(found.stability()[0]) > 0.99


def test_ica_filter_faint_kurtoses_take_sign_of_others() -> None:
    kurtoses = np.array([60.0, 70.0, 50.0, 0.5, -0.5])
    found = Filter.from_cumulants(np.eye(5), kurtoses, 1.0, 0.01)
    assert found.signs.tolist() == [1.0] * 5
    assert Filter.from_cumulants(np.eye(2), np.zeros(2), 0.0, 0.0).signs.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("turned", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("strong", [1.0, 5.0])
def test_bootstrap_stability_equals_overlap_with_sources(turned: float, strong: float) -> None:
    """Of four sources in 40 columns, two with nearly the same spectrum; the weak directions turned towards others.

    Where one direction is much of all maps, these are alike however sources are mixed."""
    rng, angles = np.random.default_rng(8), turned * np.array([0.0, 0.3, 0.5, 1.0])
    spectra = np.array([[30.0, 5, 5, 60], [10, 40, 30, 20], [12, 37, 33, 18], [70, 10, 10, 10]])
    mixing = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    clean = np.stack([mixing @ np.diag(band) @ mixing.T for band in spectra.T])
    columns = np.linalg.qr(rng.normal(size=(40, 8)))[0] * [strong, 1, 1, 1, 1, 1, 1, 1]
    vectors = np.concatenate([np.diag(np.cos(angles)), np.diag(np.sin(angles))])
    looks = ReplayedSpectra(np.ones(8), vectors[None], np.ones((1, 4)), np.ones(4))
    for noise in (0.3, 2.0):
        said, true = [], []
        for seed in range(15):
            other = np.sin(angles) ** 2 * np.eye(4) * spectra[rng.integers(4)][:, None, None]
            drawn = np.stack([coordinates.unpack(noise * rng.normal(size=10), 4) for _ in clean])
            moments = np.cos(angles)[:, None] * clean * np.cos(angles) + other + drawn
            _white, back, rotation = separate(moments, noise)
            said.append(bootstrap_stability(moments, noise, looks, rotation, back, columns, seed))
            true.append(matched((columns @ vectors @ back @ rotation.T).T, (columns[:, :4] @ mixing).T).correlations)
        assert np.mean(said) == pytest.approx(np.mean(true), abs=0.06)
    outside = ReplayedSpectra(np.ones(4), np.eye(4)[None], np.ones((1, 4)), np.full(4, 1e-12))
    assert np.all(bootstrap_stability(moments, noise, outside, rotation, back, columns[:, :4]) < 1e-3)
