"""Independent components: exact without noise, private with it, on made-up and on real brains."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms import ICAProgram
from zerosum.algorithms.ica import program
from zerosum.algorithms.ica.tuning import TUNING
from zerosum.algorithms.metrics import amari_index, matched
from zerosum.algorithms.program import PublicFacts
from zerosum.audit import audit
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.data.fmri import garch_sources, make_fmri
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.figures.trial import run_trial
from zerosum.site.policy import Policy
from zerosum.statistics import build
from zerosum.study import run

Floats = NDArray[np.float64]


def names(columns: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(columns))


def people(volumes: NDArray[np.floating[Any]]) -> Units:
    count, points, columns = volumes.shape
    return Units(volumes.reshape(-1, columns), np.arange(0, count * points + 1, points))


def played(algorithm: ICAProgram, units: Units, noise: float = 0.0, seed: int = 0) -> dict[str, Floats]:
    """The estimate, and a check that what was asked for is what was planned. `noise`: of a sum of sensitivity 1."""
    rng = np.random.default_rng(seed)

    def answer(request: Request) -> Release:
        statistic = request.statistic
        total = statistic.total(units)
        std = noise * statistic.sensitivity(Adjacency.REPLACE_ONE) / np.sqrt(request.share)
        return Release(total + std * rng.normal(size=total.shape), std, float(len(units)), ("a", "b"))

    estimate, asked = drive(algorithm.program(Adjacency.REPLACE_ONE), answer)
    planned = algorithm.releases(Adjacency.REPLACE_ONE)
    assert [(request.statistic.name, request.statistic.size) for request in asked] == [
        (release.statistic, release.size) for release in planned
    ]
    assert [request.share for request in asked] == pytest.approx([release.share for release in planned])
    assert sum(release.share for release in planned) == pytest.approx(1.0)
    return {key: np.asarray(value) for key, value in estimate.items()}


def rotated(sources: Floats, seed: int = 0) -> tuple[Units, Floats]:
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(sources.shape[2],) * 2))[0]
    return people(sources @ Q.T), Q


def autoregressive(count: int, points: int, memory: Floats, rng: np.random.Generator) -> Floats:
    """Gaussian sources that differ in nothing but how fast they move."""
    out = np.zeros((count, points + 50, len(memory)))
    for t in range(1, points + 50):
        out[:, t] = memory * out[:, t - 1] + np.sqrt(1 - memory**2) * rng.normal(size=(count, len(memory)))
    return out[:, 50:]


# ---- separation without noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["garch", "heavy", "light", "mixed"])
def test_ica_sources_of_any_kurtosis_are_separated(kind: str) -> None:
    rng = np.random.default_rng(0)
    heavy, light = rng.laplace(size=(200, 150, 3)), rng.uniform(-1, 1, (200, 150, 3))
    sources = {
        "garch": garch_sources(200, 6, 150, rng=rng),
        "heavy": np.concatenate([heavy, heavy[::-1]], axis=2),
        "light": np.concatenate([light, light[::-1]], axis=2),
        "mixed": np.concatenate([heavy, light], axis=2),
    }[kind]
    units, Q = rotated(sources)
    found = played(ICAProgram(columns=names(6), n_components=6, per_recording="none"), units)
    assert amari_index(found["unmixing"], Q) < 0.03
    assert np.allclose(np.linalg.norm(found["maps"], axis=1), 1)
    assert np.all(found["maps"][np.arange(6), np.argmax(np.abs(found["maps"]), axis=1)] > 0)
    assert np.all(np.diff(found["strength"]) <= 1e-12)
    assert np.allclose(np.sum(found["unmixing"] * found["maps"], axis=1), 1, atol=1e-6)


def test_ica_gaussian_sources_of_different_speed_and_clock_are_separated() -> None:
    rng = np.random.default_rng(1)
    memory = np.array([0.2, 0.5, 0.7, 0.85, 0.95])
    fine = autoregressive(120, 600, memory, rng)
    mixing = rng.normal(size=(7, 5))
    fast, slow = fine[:60, :300] @ mixing.T, fine[60:, ::2] @ mixing.T  # the same sources, one and two seconds apart
    units = Units.from_runs([[p[:120], p[120:]] for p in fast] + [[p] for p in slow], [[1.0, 1.0]] * 60 + [[2.0]] * 60)
    found = played(ICAProgram(columns=names(7), n_components=5, band=(0.0, 0.25)), units)
    assert amari_index(found["unmixing"], mixing) < 0.06
    assert np.mean(matched(found["maps"], mixing.T).correlations) > 0.99


def test_ica_public_basis_gives_maps_over_all_columns() -> None:
    study = make_fmri(200, 1, 6, points=120, side=12)
    units = people(study.observed(0))
    basis = np.random.default_rng(0).normal(size=(144, 4))
    basis = np.hstack([study.maps.T @ np.random.default_rng(1).normal(size=(6, 6)), basis])
    found = played(ICAProgram(columns=names(144), n_components=6, basis=basis, per_recording="none"), units)
    assert amari_index(found["unmixing"], study.maps.T) < 0.03
    assert np.min(matched(found["maps"], study.maps).correlations) > 0.99
    template = played(ICAProgram(columns=names(144), n_components=6, basis=study.maps.T, per_recording="none"), units)
    assert amari_index(template["unmixing"], study.maps.T) < 0.03


@pytest.mark.parametrize("basis", [None, np.eye(144)])
def test_ica_many_columns_take_subspace_iteration_first(monkeypatch: pytest.MonkeyPatch, basis: Floats | None) -> None:
    monkeypatch.setattr(program, "TUNING", replace(TUNING, matrix_columns=100))
    study = make_fmri(100, 1, 4, points=120, side=12)
    wide = ICAProgram(columns=names(144), n_components=4, per_recording="none", basis=basis)
    resolve = wide.resolve(PublicFacts(noise=1.0, units=100))
    assert resolve == wide.resolve(PublicFacts(noise=1.0, units=100))
    largest = max(release.size for release in resolve.releases(Adjacency.REPLACE_ONE))
    assert largest <= 144 * 14  # never a matrix of all columns by all columns
    found = played(resolve, people(study.observed(0)))
    assert amari_index(found["unmixing"], study.maps.T) < 0.05
    with pytest.raises(BadParameter, match="144"):
        ICAProgram(columns=names(144), n_components=4, n_passes=1)
    square = ICAProgram(columns=names(144), n_components=144, rounds=3)  # nothing to reduce, however wide
    assert played(square, people(study.observed(0)[:2]))["maps"].shape == (144, 144)


# ---- what metadata decide ----------------------------------------------------------------------------------------


def test_ica_solver_follows_public_metadata_and_is_in_description() -> None:
    plain = ICAProgram(columns=names(5), n_components=3)
    assert plain.chosen == "fixed-point"
    assert ICAProgram(columns=names(5), n_components=3, seconds=2.0).chosen == "second-order"
    assert ICAProgram(columns=names(5), n_components=3, seconds=60.0).chosen == "fixed-point"
    filtered = ICAProgram(columns=names(5), n_components=3, band=(0.01, 0.1))
    assert filtered.chosen == "second-order"
    assert filtered.edges[[0, -1]] == pytest.approx([0.01, 0.1])
    told = ICAProgram(columns=names(5), n_components=3, band=(0.01, 0.1), solver="fixed-point")
    windows = [
        r.statistic.parameters()["window"]
        for r in told.requests(Adjacency.REPLACE_ONE)
        if r.statistic.name == "unmixing_score"
    ]
    assert set(windows) == {1}  # neighbouring rows are alike anyway
    assert "second-order" in filtered.describe
    assert {"10", "5", "3"} <= set(re.findall(r"\d+", plain.describe))  # rounds, columns, components


def test_ica_resolve_smaller_noise_plans_cumulant_start_and_fewer_rounds() -> None:
    """Much noise leaves all to rounds; the less there is, the smaller a share finds a start, in fewer rounds."""
    plain = ICAProgram(columns=names(20), n_components=20)
    planned = [plain.resolve(PublicFacts(noise=noise, units=700)) for noise in (5.0, 3.0, 1.0, 0.1)]
    assert [each.start_share == 0 for each in planned] == [True, False, False, False]
    assert [each.rounds for each in planned] == sorted((each.rounds for each in planned), key=lambda n: -(n or 0))
    for each in planned:
        asked = [request.statistic.name for request in each.requests(Adjacency.REPLACE_ONE)]
        assert asked == ["scatter"] + ["fourth_cumulants"] * bool(each.start_share) + ["unmixing_score"] * (
            each.rounds or 0
        )
    given = ICAProgram(columns=names(20), n_components=20, start_share=0.2, rounds=5)
    assert given.resolve(PublicFacts(noise=5.0, units=700)) == given


def test_ica_resolve_larger_noise_plans_fewer_dimensions() -> None:
    """Where there is much noise a first look leaves fewer dimensions to the second, and cumulants most of the rest."""
    plain = ICAProgram(columns=names(900), n_components=20, n_passes=3)
    planned = [plain.resolve(PublicFacts(noise=noise, units=1024)) for noise in (20.0, 4.3, 3.0, 0.5, 0.0)]
    assert [each.reduction_share for each in planned] == pytest.approx([0.4, 0.457, 0.6, 0.6, 0.6], abs=0.01)
    left = [each.left_dimensions or 0 for each in planned]
    assert left[0] < left[1] < left[2] < left[3] == left[4] == 900
    started = [each.start_share or 0.0 for each in planned]
    assert started[0] == 0 < started[2] < started[1]
    for each in planned:
        sizes = [request.statistic.size for request in each.requests(Adjacency.REPLACE_ONE)]
        inside = (each.left_dimensions or 0) * ((each.left_dimensions or 0) + 1) // 2
        assert sizes[:4] == [900 * 901 // 2, inside, inside, 20 * 21 // 2]
    given = ICAProgram(columns=names(900), n_components=20, reduction_share=0.3, left_dimensions=50)
    resolved = given.resolve(PublicFacts(noise=4.3, units=1024))
    assert (resolved.reduction_share, resolved.left_dimensions) == (0.3, 50)
    assert {"900", "20", "50"} <= set(re.findall(r"\d+", resolved.describe))
    assert planned[-1].describe.count("900") == 1
    frequencies = ICAProgram(columns=names(900), n_components=20, seconds=1.0)
    assert frequencies.resolve(PublicFacts(noise=4.3, units=1024)).reduction_share is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_components": 1}, "components"),
        ({"n_components": 4}, "components"),
        ({"left_dimensions": 1}, "dimensions"),
        ({"left_dimensions": 4}, "dimensions"),
        ({"basis": np.ones((2, 2))}, "basis"),
        ({"basis": np.ones((3, 2))}, "basis"),
        ({"basis": np.eye(3)[:, :1]}, "components"),
        ({"band": (0.1, 0.01)}, "band"),
        ({"solver": "second-order"}, "seconds"),
        ({"solver": "infomax"}, "solver"),
        ({"rounds": 2}, "rounds"),
        ({"start_share": 1.0}, "start_share"),
        ({"nonlinearity": "tanh"}, "nonlinearity"),
        ({"seconds": 0.0}, "seconds"),
        ({"band": (0.25, 0.5), "seconds": 2.0}, "band"),
    ],
)
def test_ica_bad_parameter_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        ICAProgram(**{"columns": names(3), "n_components": 2, **change})


@pytest.mark.filterwarnings("error")
def test_ica_without_reduction_counts_components_above_noise_from_bands() -> None:
    """As many components as columns take no look: noise alone must not count as components, nor as stable ones."""
    full = ICAProgram(columns=names(4), n_components=4, seconds=1.0)
    found = played(full, people(np.ones((120, 20, 4))), noise=3.0)
    assert found["above_noise"][0] == 0
    assert np.all(found["stability"] == 0)
    rows = autoregressive(300, 100, np.linspace(0.0, 0.9, 4), np.random.default_rng(2))
    seen = played(full, people(rows * [1, 1, 1, 1e-6]), noise=3.0)  # one column is lost in the noise of the others
    assert seen["above_noise"][0] == 3
    assert np.sum(seen["stability"] > 0.9) == 3
    assert np.min(seen["stability"]) < 0.5


def test_band_scatter_rows_without_clock_are_refused() -> None:
    statistic = build("band_scatter", {"columns": 2, "projection": np.eye(2), "edges": [0, 0.1, 0.2]})
    with pytest.raises(BadData, match="seconds"):
        statistic.check(Units.from_list([np.zeros((20, 2))]))


# ---- with noise --------------------------------------------------------------------------------------------------


def test_ica_two_passes_find_weak_components() -> None:
    """Two of six maps are four times weaker: one look loses them in the noise, the second finds them."""
    sources = garch_sources(300, 6, 100, rng=np.random.default_rng(3))
    mixing = np.linalg.qr(np.random.default_rng(4).normal(size=(80, 6)))[0] * [4, 4, 4, 4, 1, 1]
    units = people(sources @ mixing.T)
    found = {
        n_passes: np.mean(
            [
                amari_index(
                    played(
                        ICAProgram(columns=names(80), n_components=6, per_recording="none", n_passes=n_passes),
                        units,
                        1.2,
                        seed,
                    )["unmixing"],
                    mixing,
                )
                for seed in range(6)
            ]
        )
        for n_passes in (1, 2)
    }
    assert found[2] < 0.7 * found[1]


def test_ica_second_pass_in_fewer_dimensions_finds_more_of_maps() -> None:
    sources = garch_sources(150, 4, 30, rng=np.random.default_rng(3))
    mixing = np.linalg.qr(np.random.default_rng(4).normal(size=(160, 4)))[0]
    units, noise = people(sources @ mixing.T), 4.0
    held: dict[int, list[float]] = {}
    for left in (50, 160):
        algorithm = ICAProgram(columns=names(160), n_components=4, per_recording="none", rounds=3, left_dimensions=left)
        for seed in range(5):
            spanned = np.linalg.qr(played(algorithm, units, noise, seed)["maps"].T)[0]
            held.setdefault(left, []).append(float(np.sum((spanned.T @ mixing) ** 2)) / 4)
    assert np.mean(held[50]) > np.mean(held[160]) + 0.04


@pytest.mark.parametrize("solver", ["fixed-point", "second-order"])
def test_ica_stability_falls_with_noise(solver: str) -> None:
    rng = np.random.default_rng(5)
    memory = np.array([0.1, 0.5, 0.8, 0.95])
    sources = autoregressive(200, 200, memory, rng) * np.sqrt(garch_sources(200, 4, 200, rng=rng) ** 2 + 0.1)
    units, _ = rotated(sources)
    algorithm = ICAProgram(columns=names(4), n_components=4, solver=solver, seconds=1.0, per_recording="none")
    seen = [played(algorithm, units, noise) for noise in (0.0, 2.0, 30.0)]
    stability = [float(np.mean(found["stability"])) for found in seen]
    assert stability[0] == pytest.approx(1.0)
    assert stability[0] > stability[1] > stability[2]
    assert stability[1] > 0.9
    assert stability[2] < 0.9


@pytest.mark.parametrize(("rows", "memory"), [(5, 0.0), (30, 0.0), (120, 0.8)], ids=["five", "thirty", "alike"])
def test_ica_gaussian_sources_with_few_or_similar_rows_have_zero_stability(rows: int, memory: float) -> None:
    """Slopes over few rows, or over rows that are alike, look like light tails; known turns tell that from sources."""
    rng = np.random.default_rng(3)
    algorithm = ICAProgram(columns=names(5), n_components=5).resolve(PublicFacts(noise=2.0, units=1000))
    found = played(algorithm, people(autoregressive(1000, rows, np.full(5, memory), rng)), noise=2.0)
    assert found["above_noise"][0] == 0
    assert np.all(found["stability"] < 1e-3)
    if rows == 30:
        heavy = played(algorithm, people(rng.laplace(size=(1000, rows, 5))), noise=2.0)
        assert np.min(heavy["stability"]) > 0.9


def test_ica_private_run_finds_maps_and_charges_every_release(tmp_path: Path) -> None:
    study = make_fmri(320, 4, 5, points=100, side=10, seed=2)
    sites = {f"site {s}": people(study.observed(s)) for s in range(4)}
    policies = {
        name: Policy(population=name, data="synthetic", epsilon=100.0, minimum_units=1, ledger=tmp_path / f"{name}.db")
        for name in sites
    }
    algorithm = ICAProgram(columns=names(100), n_components=5, per_recording="none", rounds=6, start_share=0.2)
    result = run(algorithm, sites, epsilon=8.0, delta=1e-5, colluders=1, policies=policies, random_state=1)
    assert amari_index(np.asarray(result.estimate["unmixing"]), study.maps.T) < 0.1
    assert result.report.worst_epsilon == pytest.approx(8.0, rel=1e-3)
    for policy in policies.values():
        with policy.open_ledger() as ledger:
            assert [entry.spend.statistic for entry in ledger.entries()] == [
                request.statistic.name for request in algorithm.requests(Adjacency.REPLACE_ONE)
            ]


@pytest.mark.parametrize(
    "change",
    [
        {"solver": "second-order", "seconds": 2.0},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"start_share": 0.0}, marks=pytest.mark.slow),
    ],
)
def test_ica_audit_does_not_exceed_claim(change: dict[str, object]) -> None:
    algorithm = ICAProgram(**{"columns": names(8), "n_components": 3, "rounds": 3, **change})
    found = audit(Scheme("secure-sum"), algorithm, samples=400)
    assert found.holds
    assert found.reached > 0.8 * found.claimed  # the pair found is nearly the worst there is


# ---- real brains -------------------------------------------------------------------------------------------------

FLOORS = {5: (0.68, 0.90, 0.95), 10: (0.49, 0.66, 0.81)}  # of the design's prototype, at epsilon 2, 4.4 and 10


@pytest.mark.slow
def test_ica_abide_by_person_over_real_sites_reaches_floors(real_data: Callable[[str], Path]) -> None:
    sites = abide(real_data("abide_cc200_858.npz"))
    for components, floors in FLOORS.items():
        algorithm = ICAProgram(
            columns=names(200), n_components=components, per_recording="standardise", band=(0.009, 0.11)
        )
        truth = np.asarray(maps_of(algorithm, sites, 1.0, 0, "non-private"))
        for epsilon, floor in zip((2.0, 4.4, 10.0), floors, strict=True):
            found = [
                np.mean(matched(maps_of(algorithm, sites, epsilon, seed), truth).correlations) for seed in range(5)
            ]
            print(
                f"ABIDE, R={components}, eps {epsilon:g}: {np.mean(found):.3f} +- {np.std(found):.3f} (floor {floor})"
            )
            assert np.mean(found) > floor


def abide(path: Path) -> dict[str, Units]:
    """Everybody's regions over time, by scanner site, with the scanner's clock."""
    with np.load(path) as stored:
        q, offsets, scale, mean = (stored[key] for key in ("q", "offsets", "scale", "mean"))
        site, seconds, labels = stored["site"], stored["tr_seconds"], stored["site_names"]
    everyone = [q[:, a:b].T * scale[i] + mean[i] for i, (a, b) in enumerate(pairwise(offsets))]
    return {
        str(label): Units.from_runs(
            [[everyone[i]] for i in np.flatnonzero(site == s)], [[float(seconds[i])] for i in np.flatnonzero(site == s)]
        )
        for s, label in enumerate(labels)
    }


def maps_of(
    algorithm: ICAProgram, sites: dict[str, Units], epsilon: float, seed: int, scheme: str = "secure-sum"
) -> Floats:
    return np.asarray(
        run_trial(algorithm, sites, epsilon=epsilon, colluders=6, scheme=scheme, seed=seed).estimate["maps"]
    )
