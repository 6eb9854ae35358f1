"""Rehearsals of programs: the sums, the noise law of every scheme, and both calibrations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.algorithms.program import Program
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.events import Sampling
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Combine, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.programs import CapeAGNMixtureProgram, CapeDJICAProgram, CapePCAProgram
from zerosum.papers.rehearsal import PublicData, exact_epsilon, exact_tau, published_tau

COLUMNS = ("a", "b", "c")
PCA = CapePCAProgram(columns=COLUMNS, n_components=3, clip=1.0)


class Sampled(CapePCAProgram):
    """Asks for a sum over a sample of the units."""

    def program(self, adjacency: Adjacency) -> Program:
        yield PrivateSum(self._statistic(), sampling=Sampling(0.5, 2))
        return {}


def tables(sizes: tuple[int, ...] = (40, 40, 40, 40)) -> list[Floats]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-0.5, 0.5, (size, 3)) for size in sizes]


def matrix(found: object) -> Floats:
    """The decomposed matrix of a cape-pca with all components."""
    components, values = (np.asarray(found[name]) for name in ("components", "eigenvalues"))  # type: ignore[index]
    return np.asarray(components.T @ np.diag(values) @ components)


def test_rehearsal_without_noise_gives_the_mean_over_all_units() -> None:
    sites = tables((40, 5, 22))
    rows = np.concatenate(sites)
    found = PublicData(sites).rehearse(PCA)
    assert matrix(found) == pytest.approx(rows.T @ rows / len(rows), abs=1e-12)
    assert float(np.asarray(found["noise_std"])[0]) == 0.0


class Counted(PublicData):
    """Data that count the sums that were computed."""

    def __init__(self, sites: list[Floats]) -> None:
        super().__init__(sites)
        self.computed: list[str] = []

    def sums(self, request: PrivateSum) -> list[Floats]:
        self.computed.append(request.statistic.name)
        return super().sums(request)


def test_sums_of_requests_that_depend_on_no_release_are_computed_once() -> None:
    """Both moments of a mixture follow from public values; a second gradient depends on the first."""
    data, rng = Counted(tables()), np.random.default_rng(0)
    mixture = CapeAGNMixtureProgram(columns=COLUMNS, n_components=2, variance=0.01, clip=1.0)
    for _ in range(3):
        data.rehearse(mixture, "local", 1.0, rng)
    assert data.computed == ["distinct_second_moment", "distinct_third_moment"]
    data.computed.clear()
    for _ in range(2):
        data.rehearse(CapeDJICAProgram(columns=COLUMNS, n_components=3, rounds=2), "local", 100.0, rng)
    assert data.computed == ["infomax_gradient"] * 3


@pytest.mark.parametrize(
    ("scheme", "noise"),
    [("cape-published", 1.0), ("cape-helper", 1.0), ("pooled", 1.0), ("local", 2.0), ("secure-sum", 2.0)],
)
def test_rehearsal_has_the_noise_of_its_scheme_at_four_sites(scheme: str, noise: float) -> None:
    """2400 entries: a relative standard error of 1.44 %. False alarm beyond five of them: 6e-7."""
    data, tau = PublicData(tables()), 3.0
    silent = matrix(data.rehearse(PCA)) * 160
    rng = np.random.default_rng(1)
    upper = np.triu_indices(3)
    drawn = []
    for _ in range(400):
        found = data.rehearse(PCA, scheme, tau, rng)
        drawn.append((matrix(found) * 160 - silent)[upper])
        assert float(np.asarray(found["noise_std"])[0]) == pytest.approx(noise * tau / 160)
    assert np.std(drawn) == pytest.approx(noise * tau, rel=5 * math.sqrt(1 / (2 * 2400)))


def test_rehearsal_of_unequal_means_weights_every_site_alike() -> None:
    sites = tables((40, 10))
    found = PublicData(sites).rehearse(
        PCA, Scheme("cape-published", combine=Combine.MEANS), 1e-9, np.random.default_rng(0)
    )
    average = np.mean([rows.T @ rows / len(rows) for rows in sites], axis=0)
    assert matrix(found) == pytest.approx(average, abs=1e-8)


def test_rehearsal_takes_tau_from_each_request() -> None:
    asked: list[PrivateSum] = []

    def tau(request: PrivateSum) -> float:
        asked.append(request)
        return 2 * request.statistic.sensitivity(Adjacency.REPLACE_ONE)

    found = PublicData(tables()).rehearse(PCA, "pooled", tau, np.random.default_rng(0))
    assert [request.statistic.name for request in asked] == ["distinct_second_moment"]
    assert float(np.asarray(found["noise_std"])[0]) == pytest.approx(2 * math.sqrt(2) / 160)


def test_rehearsal_with_the_same_seed_repeats_and_differs_by_scale_only() -> None:
    data = PublicData(tables())
    silent = matrix(data.rehearse(PCA))
    one, other = (matrix(data.rehearse(PCA, "local", tau, np.random.default_rng(7))) - silent for tau in (1.0, 10.0))
    assert 10 * one == pytest.approx(other, abs=1e-12)


def test_rehearsal_of_persons_weights_each_person_alike() -> None:
    rows = tables((12,))[0]
    data = PublicData([Units(rows, np.array([0, 2, 12]))])
    persons = [rows[:2].T @ rows[:2] / 2, rows[2:].T @ rows[2:] / 10]
    assert matrix(data.rehearse(PCA)) == pytest.approx(np.mean(persons, axis=0), abs=1e-12)


def test_rehearsal_refuses_what_it_cannot_answer() -> None:
    data = PublicData(tables())
    with pytest.raises(BadData, match="no sites"):
        PublicData([])
    with pytest.raises(BadData, match="columns"):
        PublicData([np.zeros((3, 2))]).rehearse(PCA)
    with pytest.raises(BadParameter, match="generator"):
        data.rehearse(PCA, "local", 1.0)
    with pytest.raises(BadParameter, match="tau = 0"):
        data.rehearse(PCA, "local", 0.0, np.random.default_rng(0))
    with pytest.raises(BadParameter, match="sums over all units"):
        data.rehearse(Sampled(columns=COLUMNS, n_components=1, clip=1.0))


def test_both_calibrations_agree_with_hand_calculations() -> None:
    assert published_tau(0.5, 1e-5, 2.0) == pytest.approx(4 * math.sqrt(2 * math.log(1.25e5)))
    for scheme in ("cape-published", "cape-helper", "local", "pooled"):
        tau = exact_tau(scheme, 1.0, 1e-5, sites=5, colluders=1, sensitivity=1.5)
        assert exact_epsilon(scheme, tau, 1e-5, sites=5, colluders=1, sensitivity=1.5) == pytest.approx(1.0)
    assert exact_tau("local", 1.0, 1e-5, sites=5, colluders=1) == pytest.approx(
        exact_tau("pooled", 1.0, 1e-5, sites=5, colluders=1)
    )
