"""The papers' reductions, and why one of them is not private."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.data.fmri import make_fmri
from zerosum.errors import BadParameter
from zerosum.papers.methods import reduction
from zerosum.papers.programs import CapePCAProgram
from zerosum.papers.rehearsal import PublicData


def kept(basis: np.ndarray, maps: np.ndarray) -> float:
    """The share of the maps' energy that lies in the span of a basis."""
    Q = np.linalg.qr(basis)[0]
    return float(np.sum((maps @ Q) ** 2) / np.sum(maps**2))


def test_reduction_with_little_noise_keeps_maps() -> None:
    study = make_fmri(24, sites=3, components=4, points=60, side=8, seed=2)
    moments = [study.second_moment(s) for s in range(3)]
    rng = np.random.default_rng(0)
    scatters = [moment * 480 for moment in moments]
    program = CapePCAProgram(columns=tuple(f"v{i}" for i in range(64)), n_components=4, clip=1.0)
    known = reduction.Scatters(scatters, 480)
    found = (
        np.asarray(known.rehearse(program)["components"]).T,
        np.asarray(known.rehearse(program, "cape-published", 1e-3, rng)["components"]).T,
        reduction.private_global_pca(scatters, 4, 1e6, rng),
        reduction.private_global_pca(scatters, 4, 1e6, rng, local=10),
    )
    for basis in found:
        assert basis.shape == (64, 4)
        assert np.allclose(np.linalg.norm(basis, axis=0), 1)
        assert kept(basis, study.maps) > 0.999
    assert kept(reduction.private_global_pca(scatters, 4, 1e-3, rng), study.maps) < 0.5


def test_scatters_answer_as_their_volumes_do() -> None:
    rng = np.random.default_rng(0)
    sites = [rng.uniform(-0.4, 0.4, (30, 5)) for _ in range(3)]
    program = CapePCAProgram(columns=tuple("abcde"), n_components=5, clip=1.0)
    known = reduction.Scatters([rows.T @ rows for rows in sites], 30)
    for scheme, tau in (("non-private", 0.0), ("local", 2.0)):
        one, other = (
            data.rehearse(program, scheme, tau, np.random.default_rng(1)) for data in (known, PublicData(sites))
        )
        for name in ("components", "eigenvalues", "noise_std"):
            assert np.asarray(one[name]) == pytest.approx(np.asarray(other[name]), abs=1e-10)


def test_whitened_rows_have_unit_second_moment() -> None:
    study = make_fmri(12, sites=2, components=3, points=50, side=6, layout="random", seed=4)
    basis = np.linalg.eigh(np.mean([study.second_moment(s) for s in range(2)], axis=0))[1][:, -3:]
    rows = np.concatenate([study.projected(s, basis) for s in range(2)])
    white = rows @ reduction.whitening(rows.T @ rows / len(rows))
    assert np.allclose(white.T @ white / len(white), np.eye(3))
    with pytest.raises(BadParameter):
        reduction.whitening(np.diag([1.0, 0.0]))


def test_wishart_noise_excludes_neighbour_with_expected_rate() -> None:
    """P(W - x x' has a negative eigenvalue) is 1 - e^-eps; four standard errors on each side."""
    rng, epsilon, draws = np.random.default_rng(1), 1.0, 4000
    x = np.array([0.6, 0.0, 0.8])
    out = np.mean(
        [np.linalg.eigvalsh(reduction.wishart(3, epsilon, rng) - np.outer(x, x))[0] < 0 for _ in range(draws)]
    )
    expected = 1 - math.exp(-epsilon)
    assert abs(out - expected) < 4 * math.sqrt(expected * (1 - expected) / draws)
    assert "not differentially private" in reduction.NOT_PRIVATE


def test_reduction_bad_rank_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BadParameter, match="rank"):
        reduction.private_global_pca([np.eye(4)] * 2, 3, 1.0, rng, local=2)
    with pytest.raises(BadParameter, match="5"):
        reduction.private_local_pca(np.eye(4), 5, 1.0, rng)
