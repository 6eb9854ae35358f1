"""Made-up fMRI: the sources' law, the maps, and volumes that are mixed on demand."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.data.bases import low_frequencies
from zerosum.data.fmri import Layout, garch_kurtosis, garch_sources, make_fmri, smooth_maps
from zerosum.errors import BadParameter


def test_garch_sources_have_unit_variance_and_kurtosis_of_law() -> None:
    alpha, beta = np.array([0.1, 0.05, 0.0]), np.array([0.8, 0.7, 0.0])
    found = garch_sources(800, 3, 250, rng=np.random.default_rng(1), omega=0.3, alpha=alpha, beta=beta)
    flat = found.reshape(-1, 3)
    assert np.allclose(np.mean(flat**2, axis=0), 1, atol=0.05)  # volatility lingers: a standard error is near 0.01
    assert np.allclose(np.mean(flat, axis=0), 0, atol=0.01)  # five standard errors are 0.011
    for k in range(3):
        kurtosis = np.mean(flat[:, k] ** 4) / np.mean(flat[:, k] ** 2) ** 2
        assert kurtosis == pytest.approx(garch_kurtosis(alpha[k], beta[k]), rel=0.03)


def test_garch_sources_default_is_heavy_tailed_and_uncorrelated() -> None:
    found = garch_sources(300, 5, 250, rng=np.random.default_rng(2)).transpose(0, 2, 1).reshape(-1, 250)
    assert np.mean(found**2) == pytest.approx(1, abs=0.03)
    assert 5 < np.mean(found**4) / np.mean(found**2) ** 2 < garch_kurtosis(0.3, 0.6)
    assert abs(np.mean(found[:, 1:] * found[:, :-1])) < 0.02
    squares = np.log(found**2)
    assert np.corrcoef(squares[:, 1:].ravel(), squares[:, :-1].ravel())[0, 1] > 0.05  # large ones follow large ones


def test_garch_kurtosis_without_fourth_moment_is_infinite() -> None:
    assert garch_kurtosis(0.5, 0.45) == np.inf


@pytest.mark.parametrize("layout", ["even", "random", "overlapping"])
def test_smooth_maps_are_linearly_independent_and_smooth(layout: Layout) -> None:
    maps = smooth_maps(20, 30, layout=layout, rng=np.random.default_rng(3))
    assert maps.shape == (20, 900)
    assert np.all(np.max(maps, axis=1) > 0.8)
    values = np.linalg.svd(maps, compute_uv=False)
    condition = values[0] / values[-1]
    assert condition < {"even": 3, "random": 1000, "overlapping": 2000}[layout]
    image = maps.reshape(20, 30, 30)
    assert np.max(np.abs(np.diff(image, axis=1))) < 0.65  # smooth
    assert (np.min(maps) < -0.3) == (layout == "overlapping")


def test_make_fmri_volumes_in_parts_equal_whole() -> None:
    study = make_fmri([3, 20, 5], components=4, points=12, side=6, site_effects=0.2, noise=0.3, seed=7)
    assert study.people == (3, 20, 5)
    for site in range(3):
        whole = study.observed(site)
        assert np.array_equal(np.concatenate(list(study.blocks(site))), whole.reshape(-1, 36))
        assert np.array_equal(study.observed(site, slice(1, 3)), whole[1:3])
        rows = whole.reshape(-1, 36)
        assert np.allclose(study.second_moment(site), rows.T @ rows / len(rows))
        basis = np.random.default_rng(0).standard_normal((36, 2))
        assert np.allclose(study.projected(site, basis), rows @ basis)
        assert np.allclose(study.observed(site, dtype=np.float32).mean(), whole.mean(), atol=0.05)
    assert not np.allclose(study.site_maps[0], study.site_maps[1])
    assert study.observed(0, dtype=np.float32).dtype == np.float32


def test_make_fmri_without_noise_shortcuts_equal_volumes() -> None:
    study = make_fmri(9, sites=2, components=3, points=15, side=5, seed=1)
    rows = study.observed(1).reshape(-1, 25)
    assert np.allclose(rows, study.sources[1].reshape(-1, 3) @ study.maps)
    assert np.allclose(study.second_moment(1), rows.T @ rows / len(rows))
    basis = np.eye(25)[:, :2]
    assert np.allclose(study.projected(1, basis), rows[:, :2])
    every = [np.linalg.norm(study.observed(s).reshape(-1, 25), axis=1) for s in range(2)]
    assert study.largest_norm() == pytest.approx(max(map(np.max, every)))


def test_make_fmri_same_seed_gives_same_study() -> None:
    first, again, other = (make_fmri(4, 2, 2, points=5, side=4, layout="random", seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.observed(0), again.observed(0))
    assert not np.allclose(first.observed(0), other.observed(0))


def test_fmri_bad_parameter_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BadParameter, match="alpha"):
        garch_sources(1, rng=rng, alpha=0.5, beta=0.5)
    with pytest.raises(BadParameter):
        garch_sources(0, rng=rng)
    with pytest.raises(BadParameter, match="1, 1, 1, 0"):
        make_fmri(3, sites=4)
    with pytest.raises(BadParameter, match="'random'"):
        smooth_maps(layout="random")
    with pytest.raises(BadParameter, match="'round'"):
        smooth_maps(layout="round")  # type: ignore[arg-type]
    with pytest.raises(BadParameter, match="-1"):
        make_fmri(8, noise=-1)
    with pytest.raises(BadParameter, match="2 x 2"):
        smooth_maps(3, 1)


def test_low_frequencies_are_orthonormal_and_span_smooth_maps() -> None:
    basis = low_frequencies(30, 12)
    assert np.allclose(basis.T @ basis, np.eye(144), atol=1e-12)
    assert np.allclose(basis[:, 0], 1 / 30)
    maps = smooth_maps(12, 30)
    kept = np.sum((maps @ basis) ** 2) / np.sum(maps**2)
    assert 0.99 < kept < 1
    with pytest.raises(BadParameter, match="6"):
        low_frequencies(5, 6)
