"""Principal components of people with many rows: two looks, put together, and what isotropic people would show."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from helpers.component_data import captured, names, without_noise
from zerosum.algorithms import PCAProgram
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.site.policy import Policy
from zerosum.study import run
from zerosum.study.rehearsal import Rehearsal


def test_pca_people_isotropic_data_have_no_component_above_noise() -> None:
    """Their moments stand far above the noise of privacy, and no direction of them above the others."""
    rng = np.random.default_rng(2)
    units = Units.from_list([rng.normal(size=(rows, 12)) for rows in rng.integers(8, 60, size=200)])
    algorithm = PCAProgram(columns=names(12), n_components=4, per_recording="standardise", clip=4.0)
    for epsilon in (1.0, 10.0):
        runs = Rehearsal(algorithm, 200, 3, epsilon, 1e-5).runs(units, range(10))
        assert all(float(each["above_noise"][0]) == 0 for each in runs)


def test_pca_people_two_passes_capture_as_much_as_one() -> None:
    """Where there is nothing to damp, both together see as much as one look with the whole budget."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(30, 30)))[0] * np.sqrt(1 / np.arange(1, 31))
    units = Units.from_list([rng.normal(size=(40, 30)) @ axes.T for _ in range(300)])
    truth = axes[:, :3] / np.linalg.norm(axes[:, :3], axis=0)
    energy = {}
    for passes in (1, 2):
        algorithm = PCAProgram(columns=names(30), n_components=3, per_recording="center", clip=10.0, n_passes=passes)
        runs = Rehearsal(algorithm, 300, 3, 1.0, 1e-5).runs(units, range(12))
        energy[passes] = np.mean([np.sum((np.asarray(each["components"]) @ truth) ** 2) / 3 for each in runs])
    assert energy[2] > energy[1] - 0.02


def test_pca_people_second_pass_finds_weak_components() -> None:
    """One direction ten times the others in everybody: it fills the first look, and is damped in the second."""
    rng = np.random.default_rng(7)
    basis = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    spread = np.concatenate([[10.0, 2.0, 2.0, 2.0], np.full(56, 0.3)])
    people = Units.from_list([(rng.normal(size=(80, 60)) * spread) @ basis.T for _ in range(150)])
    found: dict[int, list[float]] = {1: [], 2: []}
    for n_passes, kept in found.items():
        algorithm = PCAProgram(
            columns=names(60), n_components=4, clip=1.0, centering="none", per_recording="center", n_passes=n_passes
        )
        assert algorithm.passes == n_passes
        assert ("damped" in algorithm.describe) == (n_passes == 2)

        def noisy(request: Request) -> Release:
            total, std = request.statistic.total(people), 1.5 / np.sqrt(request.share)
            return Release(total + std * rng.normal(size=total.shape), std, 150.0, ("a", "b"))

        for _ in range(6):
            estimate, asked = drive(algorithm.program(Adjacency.REPLACE_ONE), noisy)
            assert [request.share for request in asked] == pytest.approx(
                [release.share for release in algorithm.releases(Adjacency.REPLACE_ONE)]
            )
            kept.append(float(np.linalg.norm(np.asarray(estimate["components"]) @ basis[:, 1:4]) ** 2 / 3))
            assert np.all(np.diff(estimate["eigenvalues"]) <= 1e-12)
    assert np.mean(found[2]) > np.mean(found[1]) + 0.1


def test_pca_people_two_passes_without_noise_equal_one() -> None:
    rng = np.random.default_rng(8)
    people = Units.from_list([rng.normal(size=(50, 6)) * [5, 4, 3, 1, 1, 1] for _ in range(200)])
    once, twice = (
        drive(
            PCAProgram(
                columns=names(6), n_components=3, clip=1.0, centering="none", per_recording="center", n_passes=n_passes
            ).program(Adjacency.REPLACE_ONE),
            without_noise(people),  # type: ignore[arg-type]
        )[0]
        for n_passes in (1, 2)
    )
    assert np.allclose(once["components"], twice["components"], atol=0.02)
    assert np.allclose(once["eigenvalues"], twice["eigenvalues"], rtol=0.01)


@pytest.mark.slow
def test_pca_abide_by_person_over_real_sites_reaches_floors(
    real_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(real_data("abide_cc200_858.npz")) as stored:
        q, at, scale, mean, site = (stored[key] for key in ("q", "offsets", "scale", "mean", "site"))
    people = [(q[:, a:b].T * scale[i] + mean[i]).astype(float) for i, (a, b) in enumerate(pairwise(at))]
    matrix = np.zeros((200, 200))
    for rows in people:
        own = rows - rows.mean(axis=0)
        own /= np.where(own.std(axis=0) > 0, own.std(axis=0), 1)
        matrix += own.T @ own / np.sum(own * own) / len(people)
    sites = {f"s{k}": Units.from_list([people[i] for i in np.flatnonzero(site == k)]) for k in range(20)}
    floors = {1.0: (0.78, 0.69), 2.0: (0.93, 0.84), 4.4: (0.98, 0.94)}
    for epsilon, floor in floors.items():
        for components, least in zip((5, 10), floor, strict=True):
            algorithm = PCAProgram(
                columns=names(200), n_components=components, clip=1.0, centering="none", per_recording="standardise"
            )
            found = []
            for seed in range(5):
                policies = {
                    name: Policy(population=f"{name} {epsilon} {components} {seed}", minimum_units=8) for name in sites
                }
                result = run(algorithm, sites, epsilon=epsilon, delta=1e-5, colluders=6, policies=policies)
                found.append(captured(matrix, np.asarray(result.estimate["components"])))
            with capsys.disabled():
                spread = f"{np.mean(found):.3f} +- {np.std(found):.3f}"
                print(f"\nABIDE, eps {epsilon}, top {components}: energy fraction {spread} (floor {least})")
            assert np.mean(found) > least
