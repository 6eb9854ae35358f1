"""All rounds and the fourth cumulants fitted at once: the model is what is told, its gradient is right, and rounds that
asked far from the sources are not lost."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms.ica.filter import Filter
from zerosum.algorithms.ica.likelihood import Cumulants, ScoreRelease, _by_cumulants, _by_round, maximise, rotated
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.statistics.unmixing import UnmixingScore

Floats = NDArray[np.float64]
R = 5
PAIRS = R * (R - 1) // 2


def rotation(seed: int) -> Floats:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).normal(size=(R, R)))[0])


def tensor_of(mixing: Floats, level: float) -> Floats:
    return np.asarray(level * np.einsum("ak,bk,ck,dk->abcd", mixing, mixing, mixing, mixing))


def told_at(mixing: Floats, B: Floats, noise: float, rng: np.random.Generator) -> ScoreRelease:
    """A round as the model has it, with noise."""
    silent = ScoreRelease(
        B, -np.ones(R), np.ones(R), np.full((R, R), -100.0), np.zeros(PAIRS), np.zeros(R), noise, np.full(R, 5 * noise)
    )
    expected = -_by_round(silent, mixing, np.ones(R))[0] + rng.normal(size=PAIRS + R)
    turns, own = noise * expected[:PAIRS], 5 * noise * expected[PAIRS:]
    return ScoreRelease(B, silent.signs, silent.cube, silent.slopes, turns, own, noise, silent.own_noise)


@pytest.mark.parametrize("cube", [0.0, 1.0])
def test_ica_likelihood_round_jacobian_equals_finite_differences(cube: float) -> None:
    rng = np.random.default_rng(1)
    B, mixing = rotation(2) + 0.05 * rng.normal(size=(R, R)), rotation(3)
    noise = 0.7, np.full(R, 0.4)
    heard = ScoreRelease(
        B, -np.ones(R), np.full(R, cube), rng.normal(size=(R, R)), np.zeros(PAIRS), np.zeros(R), *noise
    )
    parts = 1 + 0.1 * rng.normal(size=R)
    _beyond, J = _by_round(heard, mixing, parts)
    for number in range(PAIRS + R):
        change = np.zeros(PAIRS + R)
        change[number] = 1e-5
        ends = [
            _by_round(heard, mixing @ rotated(-each[:PAIRS], R), parts + each[PAIRS:])[0] for each in (change, -change)
        ]
        assert np.allclose(J[:, number], (ends[1] - ends[0]) / 2e-5, atol=1e-6)


def test_ica_likelihood_cumulant_gradient_equals_finite_differences() -> None:
    tensor = coordinates.unpack(np.random.default_rng(4).normal(size=coordinates.size(R, 4)), R, 4)
    cumulants, mixing, signs = Cumulants(tensor, 0.5, 3.0), rotation(5), np.array([1.0, -1, 1, 1, -1])
    gradient = _by_cumulants(cumulants, mixing, signs)[1]
    for number in range(PAIRS):
        change = np.zeros(PAIRS)
        change[number] = 1e-5
        ends = [_by_cumulants(cumulants, mixing @ rotated(-each, R), signs)[0] for each in (change, -change)]
        assert gradient[number] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-4)


def test_ica_likelihood_model_of_light_tails_predicts_scores_at_any_rotation() -> None:
    """Of 400 people, without noise: scores of mixtures, as far from the sources as a random rotation is."""
    rng = np.random.default_rng(6)
    sources = rng.uniform(-1, 1, (400, 200, R))
    units = Units(sources.reshape(-1, R), np.arange(0, 400 * 200 + 1, 200))
    usual, seen = np.full((R, R), -1.4), []
    for seed in range(6):
        B = rotated(rng.normal(0, 0.1 * seed, PAIRS), R)
        score = UnmixingScore(columns=R, unmixing=B, signs=-np.ones(R), scores=("cube",) * R)
        told = score.split(score.total(units))
        slopes = told.scale * usual
        heard = ScoreRelease(B, -np.ones(R), np.ones(R), slopes, told.turns, told.slopes[2], told.scale, np.ones(R))
        beyond = _by_round(heard, np.eye(R), np.ones(R))[0][:PAIRS]
        seen.append((told.turns / told.scale, told.turns / told.scale - beyond))
    turns, expected = np.array(seen).transpose(1, 0, 2)
    assert np.std(turns) > 0.1
    assert np.std(turns - expected) < 0.2 * np.std(turns)


def test_ica_likelihood_fit_of_distant_rounds_states_its_angle_errors() -> None:
    """Cumulants too noisy by themselves, and four rounds that asked about half a radian away."""
    errors, said = [], []
    for seed in range(8):
        rng, mixing = np.random.default_rng(seed), rotation(10 + seed)
        noisy = coordinates.unpack(rng.normal(size=coordinates.size(R, 4)), R, 4)
        cumulants = Cumulants(tensor_of(mixing, -6.0) + noisy, 1.0, 6.0)
        away = [rotated(rng.normal(0, 0.25, PAIRS), R) @ mixing.T for _ in range(4)]
        fit = maximise(away[0].T, -np.ones(R), [told_at(mixing, B, 5.0, rng) for B in away], cumulants, 40)
        turned = mixing.T @ fit.mixing
        assert np.min(np.max(np.abs(turned), axis=0)) > 0.97
        errors.append(turned[np.triu_indices(R, 1)])
        said.append(fit.angles)
        assert np.all(np.abs(fit.parts - 1) < 5 * np.sqrt(fit.doubt))
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.sqrt(np.mean(said)), rel=0.4)


def test_ica_filter_randomise_unresolved_moves_unresolved_sources_only() -> None:
    rng, mixing = np.random.default_rng(20), rotation(21)
    cumulants = Cumulants(tensor_of(mixing, -6.0), 1.0, 6.0)
    found = Filter.from_cumulants(mixing.T, np.full(R, -6.0), 1.0, 0.001)
    before = found.B.copy()
    found.randomise_unresolved(0)
    assert np.array_equal(found.B, before)  # nothing is fitted yet
    half = np.eye(R)
    half[:2, :2] = np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    heard = [told_at(mixing, half @ mixing.T, 5.0, rng) for _ in range(3)]
    found.fit = maximise((half @ mixing.T).T, -np.ones(R), heard, cumulants, 0)
    parts = np.array([0.4, 0.5, 1.0, 0.9, 1.1])
    found.fit = type(found.fit)(found.fit.mixing, parts, 0.0, found.fit.angles, np.full(R, 0.15**2))
    found.randomise_unresolved(0)
    moved = found.B @ before.T
    assert np.allclose(moved[2:, 2:], np.eye(3))
    assert abs(moved[0, 1]) > 0.05
