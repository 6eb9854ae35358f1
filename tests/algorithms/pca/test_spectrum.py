"""What is made of noisy looks, against what the noise-free ones would say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms.ica.joint_diagonalization import bootstrap_stability, joint_rotation, separate
from zerosum.algorithms.pca.spectrum import (
    Coordinates,
    DampedCoordinates,
    NoisySpectrum,
    ReplayedSpectra,
    best_count,
    combine_releases,
    correlation_variance,
    noise_edge,
    whiten_again,
)
from zerosum.kernel import coordinates

Floats = NDArray[np.float64]


def noisy(matrix: Floats, noise: float, rng: np.random.Generator) -> Floats:
    return coordinates.unpack(
        coordinates.pack(matrix) + noise * rng.normal(size=coordinates.size(len(matrix))), len(matrix)
    )


def test_noisy_spectrum_eigenvalues_and_forms_are_corrected_for_noise() -> None:
    rng = np.random.default_rng(0)
    truth = np.zeros(300)
    truth[:3] = 60.0, 40.0, 5.0
    looks = [NoisySpectrum.from_release(noisy(np.diag(truth), 1.0, rng), 1.0) for _ in range(8)]
    assert noise_edge(300, 1.0) == pytest.approx(np.sqrt(600))
    values = np.mean([look.values[:3] for look in looks], axis=0)
    assert values[:2] == pytest.approx(truth[:2], rel=0.05)
    assert values[2] < 25  # below half the edge: not to be told from noise
    held = np.mean([[look.vectors[k, k] ** 2 for k in range(2)] for look in looks], axis=0)
    assert np.mean([look.cosines[:2] for look in looks], axis=0) == pytest.approx(held, abs=0.03)
    kept = np.mean([[v @ np.diag(truth) @ v for v in look.vectors[:, :2].T] for look in looks], axis=0)
    assert np.mean([look.forms[:2] for look in looks], axis=0) == pytest.approx(kept, rel=0.05)


def test_damp_strong_directions_shrink_and_order_stays() -> None:
    look = NoisySpectrum.from_release(np.diag([100.0, 10.0, 4.0, 1.0]), 0.0)
    damped = look.damp(3)
    assert np.allclose(damped.projection @ damped.reconstruction, np.eye(4))
    inside = damped.projection.T @ np.diag([100.0, 10.0, 4.0, 1.0]) @ damped.projection
    assert np.diag(inside) == pytest.approx([6.0, 6.0, 4.0, 1.0])
    assert np.allclose(damped.known, inside)
    assert (damped.trace, damped.most) == pytest.approx((17.0, 100 / 6))
    fewer = look.damp(3, 3)
    assert np.allclose(fewer.projection.T @ fewer.reconstruction, np.eye(3))
    assert np.allclose(fewer.known, inside[:3, :3])
    assert (fewer.trace, fewer.most) == (damped.trace, damped.most)


def test_coordinates_projection_then_reconstruction_restores_rows() -> None:
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(9, 4))
    per_recording = Coordinates.of(basis)
    look = NoisySpectrum.from_release(np.diag([5.0, 3.0, 2.0, 1.0]), 0.0)
    white = per_recording.then(look.damp(2).projection, look.damp(2).reconstruction).then(*look.white_coordinates(4))
    rows = rng.normal(size=(20, 4)) @ basis.T
    assert np.allclose(rows @ white.projection @ white.reconstruction.T, rows)
    assert np.allclose(Coordinates.all(4).then(*look.white_coordinates(2)).projection, look.white_coordinates(2)[0])


def test_whiten_again_leaves_differences_within_noise() -> None:
    rng = np.random.default_rng(2)
    pure = [whiten_again(noisy(50 * np.eye(8), 1.0, rng), 1.0)[0] for _ in range(20)]
    apart = np.mean([np.linalg.norm(white @ white.T - np.eye(8)) for white in pure])
    assert apart < 0.5 * np.sqrt(2 * 36) / 50  # a plain inverse root would be off by all the noise
    clear = np.diag(np.arange(4.0, 12.0))
    white, reconstruction = whiten_again(clear, 1e-9)
    assert np.allclose(white.T @ clear @ white / np.mean(np.diag(clear)), np.eye(8))
    assert np.allclose(white @ reconstruction.T, np.eye(8))


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_whiten_again_stated_correlation_equals_remaining_correlation(spread: float) -> None:
    """Coordinates that are white already, that differ from it as much as the noise, and far more."""
    rng, left, said = np.random.default_rng(5), [], []
    for _ in range(40):
        truth = noisy(100 * np.eye(12), spread, rng)
        look = noisy(truth, 1.0, rng)
        white = whiten_again(look, 1.0)[0]
        found = white.T @ truth @ white
        size = np.sqrt(np.diag(found))
        left.append(np.mean((found / size / size[:, None])[np.triu_indices(12, 1)] ** 2))
        said.append(correlation_variance(look, 1.0))
    expected = 0.5e-4 * spread**2 / (1 + spread**2)
    assert np.mean(left) == pytest.approx(expected, rel=0.25, abs=1e-5)
    assert 0.9 * np.mean(left) < np.mean(said) < np.mean(left) + 1.5e-5


def test_combine_releases_two_passes_keep_as_much_as_one_with_both_budgets() -> None:
    rng = np.random.default_rng(6)
    truth = np.zeros((200, 200))
    truth[range(5), range(5)] = 18.0  # half the edge of one look is 14
    kept: dict[str, list[float]] = {"one": [], "two": [], "both": []}
    for _ in range(6):
        first, second = noisy(truth, 1.4, rng), noisy(truth, 1.4, rng)
        before = DampedCoordinates(np.eye(200), np.eye(200), first, 1.4, float(np.trace(first)), 1.0)
        both, noise = combine_releases(second, 1.4, before)
        assert noise == pytest.approx(1.4 / np.sqrt(2), rel=0.05)
        for name, look, std in (("one", second, 1.4), ("two", both, noise), ("both", noisy(truth, 0.99, rng), 0.99)):
            kept[name].append(float(np.sum(NoisySpectrum.from_release(look, std).vectors[:5, :5] ** 2)) / 5)
    assert np.mean(kept["two"]) == pytest.approx(np.mean(kept["both"]), abs=0.05)
    assert np.mean(kept["two"]) > np.mean(kept["one"]) + 0.1


def test_combine_releases_damped_first_pass_has_little_weight() -> None:
    """A strong direction made everything else small; without noise the last look is all there is."""
    before = NoisySpectrum.from_release(np.diag([100.0, 1.0, 0.2]), 0.0).damp(2)
    assert np.diag(before.known) == pytest.approx([1.5, 1.0, 0.2])
    look = 10 * before.known
    assert combine_releases(look, 1.0, before) == (look, 1.0)
    both, noise = combine_releases(look, 1.0, replace(before, noise=1.0))
    assert noise == pytest.approx(1.0, rel=0.01)
    assert np.allclose(both, look)
    assert np.all(np.isfinite(combine_releases(look, 1.0, NoisySpectrum.from_release(-np.eye(3), 1.0).damp(2))[0]))


def test_best_count_weak_directions_are_found_in_fewer_dimensions() -> None:
    """Five directions just below what one look can see. A look is as strong in whatever dimensions it is taken in."""
    rng = np.random.default_rng(7)
    order, wanted, strength, noise = 400, 5, 20.0, 1.5  # half the edge of the first look is 21
    count = best_count(order, wanted, strength, noise, 1.0, 1.0)
    assert 40 < count < 240
    held: dict[int, list[float]] = {order: [], count: []}
    inside, said = [], []
    for _ in range(6):
        truth = np.zeros((order, order))
        truth[range(wanted), range(wanted)] = strength
        first = NoisySpectrum.from_release(noisy(truth, noise, rng), noise)
        inside.append(np.sum(first.vectors[:wanted, :count] ** 2) / wanted)
        said.append(first.span_share(count, np.full(wanted, strength))[0])
        for fewer in held:
            damped = first.damp(wanted, fewer)
            seen = damped.projection.T @ truth @ damped.projection
            seen *= strength * wanted / np.trace(seen)
            both, its = combine_releases(noisy(seen, noise, rng), noise, damped)
            found = damped.reconstruction @ NoisySpectrum.from_release(both, its).vectors[:, :wanted]
            held[fewer].append(float(np.sum(np.linalg.qr(found)[0][:wanted] ** 2)) / wanted)
    assert np.mean(held[count]) > np.mean(held[order]) + 0.05
    assert np.mean(said) == pytest.approx(np.mean(inside), abs=0.05)


def test_best_count_strong_directions_or_no_noise_takes_all_dimensions() -> None:
    for noise in (0.0, 1e-200, 1e-9):
        assert best_count(400, 5, 20.0, noise, 1.0, 1.0) == 400
    assert best_count(400, 5, 200.0, 1.5, 1.0, 1.0) == 400
    assert best_count(400, 5, 1e-3, 1.5, 1.0, 1.0) == 10  # nothing can be seen
    assert best_count(6, 5, 1e-3, 1.5, 1.0, 1.0) == 6
    weaker = [best_count(400, 5, strength, 1.5, 1.0, 1.0) for strength in (40.0, 20.0, 15.0, 10.0)]
    assert weaker == sorted(weaker, reverse=True)


def test_noisy_spectrum_pure_noise_gives_finite_results() -> None:
    rng = np.random.default_rng(3)
    for matrix in (np.zeros((5, 5)), -np.eye(5), noisy(np.zeros((5, 5)), 1.0, rng)):
        for noise in (0.0, 1.0):
            look = NoisySpectrum.from_release(matrix, noise)
            damped = [look.damp(2), look.damp(2, 3)]
            parts = [part for each in damped for part in (each.projection, each.reconstruction, each.known)]
            for part in (
                *parts,
                *look.white_coordinates(2),
                *whiten_again(matrix, noise),
                look.span_share(3, look.values[:2]),
            ):
                assert np.all(np.isfinite(part))


def test_span_share_more_real_directions_than_wanted_is_at_least_chance() -> None:
    """All of sixty are real and as strong as each other; a later look says less of some than this one."""
    first = NoisySpectrum.from_release(noisy(12 * np.eye(60), 1.0, np.random.default_rng(5)), 1.0)
    assert np.sum(first.noisy_values > first.edge) > 20
    inside = first.span_share(20, first.edge * np.array([0.25, 0.5, 0.75, 1.0, 2.0]))
    assert np.all(inside >= 1 / 3)
    assert inside[-1] > 0.5
    moments = np.stack([noisy(np.eye(3), 1.0, np.random.default_rng(seed)) for seed in range(3)])
    _white, back, rotation = separate(moments, 1.0)
    looks = replace(ReplayedSpectra.exact(np.ones(3)), inside=inside[1:4])
    stability = bootstrap_stability(moments, 1.0, looks, rotation, back, np.eye(60)[:, :3])
    assert np.all((stability >= 0) & (stability <= 1))


def test_joint_rotation_noisy_matrices_give_common_axes() -> None:
    rng = np.random.default_rng(4)
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    stack = np.stack([noisy(Q @ np.diag(rng.uniform(0, 1, 6)) @ Q.T, 0.01, rng) for _ in range(5)])
    found = np.abs(joint_rotation(stack).T @ Q)
    assert np.min(np.max(found, axis=1)) > 0.99
    assert np.allclose(joint_rotation(stack).T @ joint_rotation(stack), np.eye(6))


@pytest.mark.parametrize("order", [2, 3, 7, 12])
def test_joint_rotation_even_or_odd_order_diagonalises_every_pair(order: int) -> None:
    rng = np.random.default_rng(order)
    Q = np.linalg.qr(rng.normal(size=(order, order)))[0]
    stack = np.stack([Q @ np.diag(rng.normal(size=order)) @ Q.T for _ in range(4)])
    found = joint_rotation(stack)
    left = found.T @ stack @ found
    assert np.max(np.abs(left - left * np.eye(order))) < 1e-7
    assert np.allclose(found.T @ found, np.eye(order))


@pytest.mark.parametrize(("noise", "tail"), [(0.1, 0.0), (0.1, 0.3), (0.4, 0.3)])
def test_replay_share_near_unwanted_directions_equals_true_share(noise: float, tail: float) -> None:
    """The fifth level is about as close to the fourth as noise drives two apart: these change places now and then.

    With the larger noise half of the levels are below its edge; the look still holds something of them."""
    levels, said, true = np.full(40, tail), [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        levels[:6] = 4.0, 3.0, 2.5, 2.2, rng.uniform(1.8, 2.1), 1.5
        spectrum = NoisySpectrum.from_release(noisy(np.diag(levels), noise, rng), noise)
        said.append(spectrum.replay(4, rng).share)
        true.append(np.sum(spectrum.vectors[:4, :4] ** 2, axis=0))
    np.testing.assert_allclose(np.mean(said, axis=0), np.mean(true, axis=0), atol=0.06)
    np.testing.assert_allclose(NoisySpectrum.from_release(np.diag(levels), 0.0).replay(4, rng).share, 1.0)


def test_replay_share_of_pure_noise_is_small() -> None:
    rng = np.random.default_rng(5)
    said = [
        NoisySpectrum.from_release(noisy(np.zeros((60, 60)), 1.0, rng), 1.0).replay(4, rng).share for _ in range(10)
    ]
    assert np.mean(said) < 0.2


def test_white_coordinates_direction_without_energy_stays_bounded() -> None:
    """Its eigenvalue may be zero or less by chance; a white coordinate of it would be as loud as that is small."""
    matrix = np.diag([100.0, 60.0, 30.0, -1.0])
    projection, back = NoisySpectrum.from_release(matrix, 2.0).white_coordinates(4)
    assert np.max(np.linalg.norm(projection, axis=0)) < 2
    assert np.allclose(projection.T @ back, np.eye(4))
