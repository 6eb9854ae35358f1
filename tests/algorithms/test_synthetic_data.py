"""Synthetic data: tables without noise, bins, the fit, records, public totals, impossible combinations, and twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.program_results import result_of
from zerosum.algorithms import SyntheticDataProgram
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.synthetic import program as synthetic_program
from zerosum.algorithms.synthetic.bins import merged
from zerosum.algorithms.synthetic.model import Mixture, PairsTerm, TableTerm, raked
from zerosum.algorithms.synthetic.program import Fit
from zerosum.algorithms.synthetic.records import Model, distance, shares_of
from zerosum.algorithms.synthetic.tuning import TUNING
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release
from zerosum.kernel.statistic import Adjacency

Floats = NDArray[np.float64]
PEOPLE: dict[str, Any] = {
    "columns": ("age", "sex", "smoker"),
    "ranges": {"age": (20, 80)},
    "whole": ("age",),
    "levels": {"sex": ("f", "m"), "smoker": ("no", "yes", "past")},
    "bins": 12,
}


def people(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, count)
    age = np.clip(rng.normal(45 + 10 * sex, 10, count), 20, 80).round()
    smoker = np.where(rng.random(count) < (age - 20) / 80, 2, rng.integers(0, 2, count))
    return np.column_stack([age, sex, smoker]).astype(np.float64)


def test_synthetic_data_without_noise_has_the_tables_of_the_data() -> None:
    program = SyntheticDataProgram(target="smoker", **PEOPLE)
    data = Units(people(20_000))
    found = result_of(program, data)
    model = Model(found["component_shares"], program.sizes)
    for at in ((0,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        # independent columns are 0.15 to 0.2 away
        assert distance(program.table(data, at), model.table(at)) < 0.02
    # nothing is missing in the data, so nothing is in the records
    assert model.table((1,))[-1] == 0


def test_synthetic_data_with_noise_is_nearer_than_independent_columns() -> None:
    program = SyntheticDataProgram(**PEOPLE)
    data = Units(people(8000))
    found = result_of(program, data, noise=40.0)
    model = Model(found["component_shares"], program.sizes)
    truth = program.table(data, (0, 2))
    independent = np.outer(truth.sum(axis=1), truth.sum(axis=0))
    assert distance(truth, model.table((0, 2))) < 0.7 * distance(truth, independent)


def test_synthetic_data_missing_values_are_a_category() -> None:
    rows = people(20_000)
    rows[:5000, 2] = np.nan
    program = SyntheticDataProgram(**PEOPLE)
    found = result_of(program, Units(rows))
    model = Model(found["component_shares"], program.sizes)
    assert model.table((2,))[-1] == pytest.approx(0.25, abs=0.01)


def test_synthetic_data_meet_public_totals() -> None:
    program = SyntheticDataProgram(**PEOPLE, totals={"sex": (3000.0, 1000.0)})
    found = result_of(program, Units(people(4000)), noise=20.0)
    model = Model(found["component_shares"], program.sizes)
    records = model.records(4000, np.random.default_rng(0))
    assert np.abs(np.bincount(records[:, 1], minlength=3) - [3000, 1000, 0]).max() <= 1


def test_synthetic_data_have_no_impossible_combination() -> None:
    program = SyntheticDataProgram(**PEOPLE, impossible=({"sex": "m", "smoker": "past"},))
    found = result_of(program, Units(people(4000)), noise=20.0)
    model = Model(found["component_shares"], program.sizes, program.forbidden)
    assert model.table((1, 2))[1, 2] == 0
    records = model.records(5000, np.random.default_rng(0))
    assert not np.any((records[:, 1] == 1) & (records[:, 2] == 2))
    assert len(records) > 4900


def test_synthetic_data_under_add_remove_estimate_the_number_of_units() -> None:
    program = SyntheticDataProgram(**PEOPLE)
    found = result_of(program, Units(people(5000)), Adjacency.ADD_REMOVE)
    assert found["unit_count"][0] == pytest.approx(5000)


@pytest.mark.parametrize("noise", [1e3, 1e6])
def test_synthetic_data_of_noise_alone_are_finite(noise: float) -> None:
    """A release cannot be bought again: whatever the noise, the program ends with a result."""
    program = SyntheticDataProgram(target="sex", **PEOPLE)
    for adjacency in Adjacency:
        found = result_of(program, Units(people(30)), adjacency, noise=noise)
        assert np.all(np.isfinite(found["component_shares"]))
        assert found["component_shares"].min() >= 0


@pytest.mark.parametrize("size", [1e9, 1e15, 1e30])
def test_synthetic_data_of_a_faulty_site_are_finite(size: float) -> None:
    """Numbers far beyond the stated noise, such as a faulty site may send, are no reason to lose the releases."""
    program = SyntheticDataProgram(target="sex", **PEOPLE)
    for adjacency in Adjacency:
        rng = np.random.default_rng(0)

        def answer(request: Any, rng: np.random.Generator = rng, adjacency: Adjacency = adjacency) -> Release:
            value = size * rng.normal(size=request.statistic.size)
            return Release(value, 0.1, 1e9 if adjacency is Adjacency.REPLACE_ONE else None, ())

        estimate, _ = drive(program.program(adjacency), answer)
        assert all(np.all(np.isfinite(each.value)) for each in estimate.values())


@pytest.mark.parametrize(
    "totals", [{"sex": (4000.0, 0.0)}, {"smoker": (0.0, 1.0, 0.0)}, {"sex": (1e300, 1e-300), "smoker": (1.0, 2.0, 3.0)}]
)
def test_synthetic_data_with_an_empty_public_level_have_none_of_it(totals: dict[str, tuple[float, ...]]) -> None:
    """The divisor of an empty level is 0 in iterative proportional fitting; a crash there would waste the budget."""
    program = SyntheticDataProgram(**PEOPLE, totals=totals)
    found = result_of(program, Units(people(500)), noise=5.0)
    model = Model(found["component_shares"], program.sizes)
    for name, counts in totals.items():
        shares = model.table((program.columns.index(name),))
        assert shares[:-1] == pytest.approx(np.array(counts) / sum(counts), abs=1e-5)


def test_raked_distributions_of_empty_categories_are_finite() -> None:
    p = raked(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([1.0, 0.0]))
    assert p.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_model_of_impossible_combinations_alone_has_possible_records() -> None:
    """Noise may leave shares that are impossible together: the tables stay finite, and the records are possible."""
    p = np.array([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]])
    model = Model(p, (3, 3), ({0: 0, 1: 0},))
    assert model.table((0, 1)).sum() == pytest.approx(1)
    assert model.table((0, 1))[0, 0] == 0
    records = model.records(10, np.random.default_rng(0))
    assert len(records) == 10
    assert not np.any((records[:, 0] == 0) & (records[:, 1] == 0))


def test_twin_of_very_many_units_has_fewer_records_and_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    program = SyntheticDataProgram(**PEOPLE)
    model = Model(np.full((1, sum(program.sizes)), 0.1), program.sizes)
    monkeypatch.setattr(synthetic_program, "TUNING", replace(TUNING, twin_numbers=3000))
    seen: list[float] = []
    take = Fit.take_histograms

    def looked_at(self: Fit, release: Release) -> None:
        take(self, release)
        seen.append(float(self.std[1]))

    monkeypatch.setattr(Fit, "take_histograms", looked_at)
    for units in (1000.0, 1e9):
        noise = [0.05 * units] * 3
        twin = program.twin(model, noise, units, Adjacency.REPLACE_ONE, np.random.default_rng(0))
        assert len(twin.codes) == 1000
    assert seen[0] == pytest.approx(seen[1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ("age",), "levels": {}},
        {"levels": {"sex": ("f", "m")}},
        {"target": "income"},
        {"whole": ("sex",)},
        {"totals": {"sex": (1.0, 2.0, 3.0)}},
        {"totals": {"sex": (0.0, 0.0)}},
        {"totals": {"income": (1.0,)}},
        {"totals": {"sex": (1.7e308, 1.7e308)}},
        {"totals": {"age": (1.0,) * 12}, "bins": None},
        {"impossible": tuple({"sex": a, "smoker": b} for a in ("f", "m") for b in ("no", "yes", "past"))},
        {"levels": {"sex": tuple(range(60_000)), "smoker": ("no", "yes")}},
        {"levels": {"sex": tuple(range(2000)), "smoker": tuple(range(2000))}},
        {"impossible": ({"sex": "m"},)},
        {"impossible": ({"sex": "m", "smoker": "often"},)},
        {"bins": 1},
        {"table_cells": 1},
    ],
)
def test_synthetic_data_parameters_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        SyntheticDataProgram(**(PEOPLE | wrong))


def test_synthetic_data_plan_warns_of_few_units() -> None:
    program = SyntheticDataProgram(**PEOPLE)
    few, many = (program.resolve(PublicFacts(5.0, units)).describe for units in (300, 100_000))
    assert "independent" in few
    assert "independent" not in many


def test_synthetic_data_plan_fits_its_requests_whatever_is_released() -> None:
    """The sizes of the releases are those of the plan, with 60 columns and a length that holds few tables."""
    count = 60
    program = SyntheticDataProgram(
        columns=tuple(f"c{at}" for at in range(count)),
        levels={f"c{at}": tuple(range(2 + at % 7)) for at in range(count)},
        table_cells=8,
    )
    planned = [request.statistic.size for request in program.requests(Adjacency.REPLACE_ONE)]
    assert sum(planned) < 100_000
    rng = np.random.default_rng(0)
    data = np.column_stack([rng.integers(0, 2 + at % 7, 300) for at in range(count)]).astype(np.float64)
    running = program.fitted(Adjacency.REPLACE_ONE, rng)
    request = next(running)
    for size in planned[:-1]:
        assert request.statistic.size == size
        total = request.statistic.total(Units(data))
        request = running.send(Release(total + rng.normal(0, 3, total.shape), 3.0, 300.0, ()))
    assert request.statistic.size == planned[-1] == 8


@pytest.mark.parametrize("ordered", [False, True])
def test_merged_bins_have_the_least_share_and_no_gaps(ordered: bool) -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        shares = rng.dirichlet(np.full(int(rng.integers(2, 30)), 0.3))
        least, most = float(rng.uniform(0, 0.6)), int(rng.integers(2, 9))
        bins = merged(shares, least, ordered=ordered, most=most)
        assert sorted(set(bins.tolist())) == list(range(int(bins.max()) + 1))
        assert 2 <= bins.max() + 1 <= most
        if ordered and bins.max() > 1:
            assert np.all(np.diff(bins[:-1]) >= 0)


def test_mixture_gradient_is_that_of_the_loss() -> None:
    rng = np.random.default_rng(4)
    histograms = [np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.4]), np.array([0.1, 0.2, 0.3, 0.4])]
    mixture = Mixture(histograms, np.concatenate(histograms), np.full(9, 0.1), rng, components=5)
    value = rng.normal(0, 0.1, (9, 9)).astype(np.float32)
    mask = np.ones((9, 9), dtype=np.float32)
    for at in range(3):
        mask[mixture.at(at), mixture.at(at)] = 0
    center = np.repeat([1 / 3, 1 / 2, 1 / 4], [3, 2, 4]).astype(np.float32)
    mixture.pairs = PairsTerm(
        np.eye(9, dtype=np.float32), center, mask, ((value + value.T) / 2).astype(np.float32), 0.2
    )
    eyes = [np.eye(size, dtype=np.float32) for size in (3, 2, 4)]
    mixture.tables = [
        TableTerm((0, 2), (eyes[0], eyes[2]), rng.uniform(0, 0.1, (3, 4)).astype(np.float32), 0.3),
        TableTerm((0, 1, 2), tuple(eyes), rng.uniform(0, 0.1, (6, 4)).astype(np.float32), 0.3),
    ]
    mixture.penalty = 0.7

    def loss(logits: Floats) -> float:
        p = np.concatenate(
            [
                np.exp(logits[:, mixture.at(a)]) / np.exp(logits[:, mixture.at(a)]).sum(1, keepdims=True)
                for a in range(3)
            ],
            1,
        )
        parts = [p[:, mixture.at(a)] for a in range(3)]
        found = np.sum((p.mean(0) - mixture.value) ** 2 * mixture.weight) / 2
        q = p - center
        found += np.sum(((q.T @ q / 5 - mixture.pairs.value) * mask) ** 2) / 0.2**2 / 4  # type: ignore[union-attr]
        two = np.einsum("ka,kb->ab", parts[0], parts[2]) / 5
        three = np.einsum("ka,kb,kc->abc", *parts).reshape(6, 4) / 5
        found += np.sum((two - mixture.tables[0].value) ** 2) / 0.3**2 / 2
        found += np.sum((three - mixture.tables[1].value) ** 2) / 0.3**2 / 2
        return float(found + 0.7 / 5 * np.sum(p * (np.log(p) - mixture.base)))

    logits = mixture.logits.astype(np.float64)
    gradient, _ = mixture.gradient(mixture.probabilities)
    for place in [(0, 0), (2, 4), (4, 8), (1, 3)]:
        step = np.zeros_like(logits)
        step[place] = 1e-5
        slope = (loss(logits + step) - loss(logits - step)) / 2e-5
        assert gradient[place] / 5 == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_records_meet_the_histograms_of_the_model() -> None:
    rng = np.random.default_rng(5)
    sizes = (3, 7)
    model = Model(np.concatenate([rng.dirichlet(np.ones(size), 20) for size in sizes], axis=1), sizes)
    for rows in (1, 7, 1000):
        records = model.records(rows, np.random.default_rng(0))
        assert records.shape == (rows, 2)
        for at in range(2):
            wanted = rows * model.table((at,))
            assert np.abs(np.bincount(records[:, at], minlength=sizes[at]) - wanted).max() < 2
    again = model.records(1000, np.random.default_rng(0))
    assert np.array_equal(records, again)


def test_records_of_a_rounded_model_meet_its_histograms() -> None:
    """The sum of rounded probabilities is not 1; the difference must not add up over the components."""
    p = np.tile(np.array([[0.6, 0.41]]), (300, 1))
    records = Model(p, (2,)).records(30_000, np.random.default_rng(0))
    assert np.bincount(records[:, 0]) == pytest.approx(30_000 * p[0] / p[0].sum(), abs=2)


def test_twin_has_errors_like_those_of_the_study() -> None:
    """Total variation of all pairs: the study's true error is within a factor of 2.5 of that of a twin."""
    program = SyntheticDataProgram(**PEOPLE)
    rows = people(6000)
    found = result_of(program, Units(rows), noise=30.0)
    model = Model(found["component_shares"], program.sizes)
    true = np.mean([distance(program.table(Units(rows), at), model.table(at)) for at in ((0, 1), (0, 2), (1, 2))])
    stated = found["pair_error"][np.triu_indices(3, 1)].mean()
    assert 0.4 < true / stated < 2.5


def test_shares_of_records_are_relative_frequencies() -> None:
    codes = np.array([[0, 1], [0, 1], [1, 0], [1, 1]])
    assert shares_of(codes, (2, 2), (0, 1)).tolist() == [[0.0, 0.5], [0.25, 0.25]]
