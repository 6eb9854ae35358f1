"""The papers' PCA methods and the runs that compare them with Zerosum's."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.errors import BadData, BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.schemes import Scheme, SiteShape
from zerosum.kernel.view import mu_squared
from zerosum.papers.figures import pca, reproduce
from zerosum.papers.figures.experiment import Run, Table
from zerosum.papers.methods import pca as baselines
from zerosum.papers.programs import CapePCAProgram
from zerosum.papers.rehearsal import PublicData, published_tau

Floats = NDArray[np.float64]


def some_sites(sites: int = 4, records: int = 50, columns: int = 6) -> list[Floats]:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(sites * records, columns)) * np.arange(columns, 0, -1)
    rows -= rows.mean(axis=0)
    rows /= np.max(np.linalg.norm(rows, axis=1))
    return [rows[s::sites] for s in range(sites)]


def projector(vectors: Floats) -> Floats:
    return np.asarray(vectors @ vectors.T)


def components(sites: list[Floats], K: int = 3, scheme: str = "non-private", tau: float = 0.0, seed: int = 0) -> Floats:
    """Components (D, K) by the program under a scheme."""
    D = sites[0].shape[1]
    program = CapePCAProgram(columns=tuple(f"x{i}" for i in range(D)), n_components=K, clip=1.0)
    found = PublicData(sites).rehearse(program, scheme, tau, np.random.default_rng(seed))
    return np.asarray(found["components"]).T


def test_pca_methods_without_noise_equal_numpy_eigenvectors() -> None:
    sites, rng = some_sites(), np.random.default_rng(0)
    rows = np.concatenate(sites)
    best = projector(np.linalg.eigh(rows.T @ rows)[1][:, -3:])
    assert np.allclose(projector(components(sites)), best, atol=1e-12)
    for scheme in set(baselines.SCHEMES.values()):
        assert np.allclose(projector(components(sites, 3, scheme, 1e-9)), best, atol=1e-7)
    # The whole root: nothing is cut off.
    assert np.allclose(projector(baselines.dp_dis_pca(sites, 3, 0.0, rng, R=6)), best, atol=1e-9)
    alone = np.linalg.eigh(sites[0].T @ sites[0])[1][:, -3:]
    assert np.allclose(projector(components(sites[:1])), projector(alone), atol=1e-12)


def test_pca_baseline_root_of_lower_rank_keeps_nearly_all_energy() -> None:
    sites, rng = some_sites(), np.random.default_rng(0)
    matrix = baselines.second_moment(np.concatenate(sites))
    best, cut = components(sites), baselines.dp_dis_pca(sites, 3, 0.0, rng)
    kept = np.trace(cut.T @ matrix @ cut) / np.trace(best.T @ matrix @ best)
    assert 0.98 < kept <= 1 + 1e-12


@pytest.mark.parametrize(("method", "noise"), [("cape-broadcast", 2.0), ("cape-helper", 2.0), ("conv", 4.0)])
def test_cape_pca_has_the_noise_of_pooled_data_and_conv_more(method: str, noise: float) -> None:
    """Of zeros at four sites the decomposed matrix is noise alone; tau = 2. Its D eigenvalues give its Frobenius norm.

    7260 entries on and above the diagonal, those above counted twice: the relative standard error of the mean square is
    about sqrt(4/D^2) = 1.7 %. False alarm beyond five of them: 6e-7.
    """
    S, D, n = 4, 120, 5
    program = CapePCAProgram(columns=tuple(f"x{i}" for i in range(D)), n_components=D, clip=1.0)
    data = PublicData([np.zeros((n, D))] * S)
    found = data.rehearse(program, baselines.SCHEMES[method], 2.0, np.random.default_rng(1))
    square = float(np.sum(np.asarray(found["eigenvalues"]) ** 2)) / D**2
    assert square == pytest.approx((noise / (S * n)) ** 2, rel=5 * 2 / D)


def test_dp_dis_pca_of_zeros_has_the_noise_of_each_site() -> None:
    """Whole roots of noise alone: the mean of the positive parts of symmetric noise with entries tau/n."""
    D, n, tau = 60, 5, 2.0
    vectors = baselines.dp_dis_pca([np.zeros((n, D))] * 3, D, tau, np.random.default_rng(4), R=D)
    rng, parts = np.random.default_rng(4), []
    for _ in range(3):
        values, own = np.linalg.eigh(baselines.symmetric_noise(D, tau / n, rng))
        parts.append(own * np.maximum(values, 0) @ own.T)
    expected = np.linalg.eigh(np.mean(parts, axis=0))[1][:, ::-1]
    assert np.abs(np.sum(vectors * expected, axis=0)) == pytest.approx(np.ones(D), abs=1e-6)


def test_pca_baseline_symmetric_noise_has_equal_variance_everywhere() -> None:
    noise = baselines.symmetric_noise(300, 3.0, np.random.default_rng(2))
    assert np.array_equal(noise, noise.T)
    assert abs(np.var(noise[np.triu_indices(300)]) / 9 - 1) < 5 * math.sqrt(2 / 45150)
    assert abs(np.var(np.diag(noise)) / 9 - 1) < 5 * math.sqrt(2 / 300)


def test_pca_baseline_distinct_entries_move_by_at_most_sqrt_two() -> None:
    rng, D = np.random.default_rng(5), 4
    upper = np.triu_indices(D)

    def moved(x: Floats, y: Floats) -> float:
        return float(np.linalg.norm((np.outer(x, x) - np.outer(y, y))[upper]))

    axes = np.eye(D)
    assert math.isclose(moved(axes[0], axes[1]), baselines.SENSITIVITY)
    pairs = rng.normal(size=(5000, 2, D))
    pairs /= np.linalg.norm(pairs, axis=2, keepdims=True)
    assert max(moved(x, y) for x, y in pairs) < baselines.SENSITIVITY


@pytest.mark.parametrize("method", ["cape-broadcast", "cape-helper"])
def test_pca_baseline_halved_off_diagonal_noise_is_not_worst_case(method: str) -> None:
    S, honest = 5, [0, 1, 2, 3]
    law = Scheme(baselines.SCHEMES[method]).law([SiteShape()] * S, len(honest))
    halved = type(law)(law.mechanism, law.factor, law.weight, law.own, law.cancelling / math.sqrt(2))
    on, off = mu_squared(law, 1.0, 0, honest), mu_squared(halved, 1.0, 0, honest)
    assert on < off < 2 * on
    rng = np.random.default_rng(6)
    pairs = rng.normal(size=(5000, 2, 3))
    pairs /= np.linalg.norm(pairs, axis=2, keepdims=True)
    changes = np.einsum("nki,nkj->nkij", pairs, pairs)
    change = (changes[:, 0] - changes[:, 1]) ** 2
    diagonal = np.einsum("nii->n", change)
    above = (change.sum(axis=(1, 2)) - diagonal) / 2
    assert np.max(on * diagonal + off * above) < 2 * on


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 3.0, 10.0])
def test_pca_baseline_published_cape_calibration_costs_more_than_stated(epsilon: float) -> None:
    for method in ("cape-broadcast", "cape-helper"):
        assert baselines.exact_epsilon(method, epsilon, 1e-5, sites=5, colluders=1) > 1.2 * epsilon


def test_pca_baseline_published_calibration_equals_hand_calculation() -> None:
    epsilon, delta = 1.0, 1e-5
    tau = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    single = accountant.epsilon(math.sqrt(2) / tau, delta)
    for method in ("conv", "dp-dis-pca", "analyze-gauss", "pooled"):
        assert math.isclose(baselines.exact_epsilon(method, epsilon, delta, 5, 1), single)
    assert single > epsilon  # the root of two that the papers leave out
    cape = accountant.epsilon(math.sqrt(2 * 1.875) / tau, delta)  # privacy.md section 3: 1.875 at S = 5, C = 1
    assert math.isclose(baselines.exact_epsilon("cape-broadcast", epsilon, delta, 5, 1), cape)
    # below about 0.4 their loose formula makes up for the root of two where noise does not cancel
    assert baselines.exact_epsilon("conv", 0.1, delta, 5, 1) < 0.1


@pytest.mark.parametrize("method", list(baselines.SCHEMES))
def test_pca_baseline_tau_for_exact_epsilon_and_back_is_same(method: str) -> None:
    worth = baselines.exact_epsilon(method, 1.0, 1e-5, sites=5, colluders=1)
    assert math.isclose(baselines.tau_for_exact(method, worth, 1e-5, 5, 1), published_tau(1.0, 1e-5), rel_tol=1e-9)


def test_pca_baselines_bad_parameter_is_refused() -> None:
    sites, rng = some_sites(), np.random.default_rng(0)
    with pytest.raises(BadParameter, match="'ours'"):
        baselines.exact_epsilon("ours", 1.0, 1e-5, 5, 1)
    with pytest.raises(BadParameter, match="7"):
        baselines.leading(np.eye(6), 7)
    with pytest.raises(BadParameter, match="rank"):
        baselines.dp_dis_pca(sites, 2, 1.0, rng, R=7)


def test_pca_figure_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"covtype_60k\.npz"):
        pca.pca_epsilon(Run("covertype", tmp_path))
    with pytest.raises(BadData, match=r"mnist\.npz"):
        pca.pca_epsilon(Run("mnist"))
    with pytest.raises(BadParameter, match=r"'iris'.*covertype"):
        pca.pca_delta(Run("iris", tmp_path))
    with pytest.raises(BadParameter, match="'pca'"):
        reproduce("pca", "synthetic", None, tmp_path)
    (tmp_path / "mnist.npz").write_text("not an archive")
    with pytest.raises(BadData, match="'x_train'"):
        pca.load("mnist", tmp_path)
    np.savez(tmp_path / "covtype_60k.npz", X=np.zeros((3, 5)))
    with pytest.raises(BadData, match="54"):
        pca.load("covertype", tmp_path)


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pca.synthetic
    monkeypatch.setattr(pca, "synthetic", lambda rows: whole(rows, columns=20))
    monkeypatch.setitem(pca._COMPONENTS, "synthetic", 4)
    monkeypatch.setitem(pca._QUICK_ROWS, "synthetic", 2003)
    monkeypatch.setitem(pca._QUICK_SEEDS, "synthetic", 2)


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("name", [experiment.name for experiment in pca.EXPERIMENTS])
def test_pca_figure_quick_run_writes_csv_and_picture(name: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    rows = reproduce(name, "synthetic", None, tmp_path / "out", on_step=lambda *step: steps.append(step))
    assert steps == [(done, len(rows)) for done in range(len(rows) + 1)]
    assert (tmp_path / "out" / f"{name}-synthetic.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / f"{name}-synthetic.csv").open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == stored
    swept = {"pca-epsilon": "epsilon", "pca-samples": "records", "pca-delta": "delta"}[name]
    assert len({row[swept] for row in rows}) == 3
    assert {row["method"] for row in rows} == {"non-private", "zerosum", *baselines.SCHEMES}
    for row in rows:
        assert 0 < float(row["energy"]) <= 1 + 1e-9
        if row["method"] == "non-private":
            assert math.isclose(float(row["energy"]), 1.0)
        elif row["calibration"] == "exact":
            assert row["exact_epsilon"] == row["epsilon"]
        else:
            assert row["calibration"] == "published"
            asked, delta = float(row["epsilon"]), float(row["delta"])
            assert row["exact_epsilon"] == baselines.exact_epsilon(str(row["method"]), asked, delta, 5, 1)
    assert not (tmp_path / "state").exists()  # the ledgers were temporary


@pytest.mark.usefixtures("_tiny")
def test_pca_figure_same_seed_gives_same_rows() -> None:
    first, second = (pca.pca_epsilon(Run(seeds=1)) for _ in range(2))
    assert first == second


def energies(rows: Table, epsilon: float) -> dict[str, float]:
    return {
        str(line["method"]): float(line["energy"])
        for line in pca.summary(rows)
        if line["epsilon"] == epsilon and line["calibration"] == "exact"
    }


@pytest.mark.slow
def test_pca_figure_of_covertype_own_method_is_ahead(real_data: Callable[[str], Path]) -> None:
    rows = pca.pca_epsilon(Run("covertype", real_data("covtype_60k.npz").parent))
    small = energies(rows, 0.1)
    assert small["zerosum"] > 0.99
    for method in baselines.SCHEMES:
        assert small["zerosum"] > small[method]
    large = energies(rows, 1.0)
    assert large["zerosum"] > 0.998  # every record at norm one tilts the matrix a little, whatever epsilon
    assert large["cape-broadcast"] > large["conv"] > large["analyze-gauss"]


@pytest.mark.slow
def test_pca_figure_of_mnist_own_method_is_ahead(real_data: Callable[[str], Path]) -> None:
    rows = pca.pca_epsilon(Run("mnist", real_data("mnist.npz").parent, seeds=1))
    for epsilon in (0.1, 0.3, 1.0):
        found = energies(rows, epsilon)
        assert all(found["zerosum"] > found[method] for method in baselines.SCHEMES)
