"""The published methods as programs: equal to plain NumPy, under every scheme, charged exactly."""

from __future__ import annotations

import math
from itertools import pairwise, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from zerosum import algorithms
from zerosum.algorithms import ALGORITHMS, build
from zerosum.algorithms.metrics import component_error
from zerosum.algorithms.program import Algorithm
from zerosum.algorithms.tensor import power_method
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods import functional
from zerosum.papers.methods.records import Records
from zerosum.papers.programs import (
    PROGRAMS,
    CapeAGNMixtureProgram,
    CapeAGNTopicsProgram,
    CapeDJICAProgram,
    CapeFMProgram,
    CapeNetworkProgram,
    CapePCAProgram,
    FLDPProgram,
)
from zerosum.papers.rehearsal import PublicData
from zerosum.report.record import Result
from zerosum.site.ledger import Ledger
from zerosum.site.policy import Policy
from zerosum.statistics.published import DistinctSecondMoment, DistinctThirdMoment, InfomaxGradient
from zerosum.study import Study
from zerosum.study.running import run

COLUMNS = ("a", "b", "c", "d")
SIZES = {"north": 60, "east": 25, "south": 110, "west": 44}


def tables(columns: int = 4, seed: int = 0) -> dict[str, Floats]:
    """Rows within the unit ball, of another spread in each direction."""
    rng = np.random.default_rng(seed)
    scale = np.linspace(1.0, 0.2, columns) / (4 * math.sqrt(columns))
    return {name: np.clip(rng.normal(size=(size, columns)), -4, 4) * scale for name, size in SIZES.items()}


def recordings(people: int, rows: int = 30) -> Units:
    rng = np.random.default_rng(people)
    mixed = rng.laplace(size=(people * rows, 3)) @ np.array([[1.0, 0.4, 0.1], [0.0, 1.0, 0.3], [0.2, 0.0, 1.0]])
    return Units(mixed, np.arange(0, people * rows + 1, rows))


def released(algorithm: Algorithm, data: Any, **terms: Any) -> Any:
    """The result of a run without noise."""
    settings = {"epsilon": 1.0, "delta": 1e-5, "scheme": "non-private"} | terms
    return synthetic_run(algorithm, data, **settings).estimate


def synthetic_run(algorithm: Algorithm, data: Any, **terms: Any) -> Result:
    """A run on synthetic data, whose ledgers are deleted."""
    with TemporaryDirectory() as folder:
        policies = {name: Policy.throwaway(name, Path(folder) / name) for name in data}
        return run(algorithm, data, policies=policies, unit="person", **terms)


# ---- how they are found ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_published_program_is_found_by_its_name_and_is_no_default(name: str) -> None:
    assert algorithms.find(name) is PROGRAMS[name]
    assert name not in ALGORITHMS


def test_unknown_algorithm_is_refused_with_published_names_listed() -> None:
    with pytest.raises(BadParameter, match="cape-djica"):
        algorithms.find("cape-nothing")


# ---- equal to plain NumPy -------------------------------------------------------------------------------------------


def test_cape_pca_without_noise_equals_numpy_components() -> None:
    data = tables()
    estimate = released(CapePCAProgram(columns=COLUMNS, n_components=2, clip=1.0), data)
    rows = np.concatenate(list(data.values()))
    theirs = np.linalg.eigh(rows.T @ rows)[1][:, :1:-1].T
    ours = np.asarray(estimate["components"])
    assert np.abs(np.abs(np.sum(ours * theirs, axis=1)) - 1).max() < 1e-12
    assert np.asarray(estimate["eigenvalues"]) == pytest.approx(np.linalg.eigvalsh(rows.T @ rows / len(rows))[:1:-1])


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_cape_fm_without_noise_equals_numpy_minimum(model: functional.Model) -> None:
    data = tables(5)
    rng = np.random.default_rng(1)
    for rows in data.values():
        drawn = rows[:, :4] @ [0.5, -1.0, 2.0, 0.0] + rng.normal(size=len(rows)) / 10
        rows[:, 4] = np.where(drawn > 0, 1.0, -1.0) if model == "logistic" else np.clip(drawn, -1, 1)
    algorithm = CapeFMProgram(columns=(*COLUMNS, "y"), lower=-np.ones(5), upper=np.ones(5), clip=1.0, model=model)
    estimate = released(algorithm, data)
    # The papers' logistic response is 0 or 1.
    sites = [
        Records(rows[:, :4], (rows[:, 4] + 1) / 2 if model == "logistic" else rows[:, 4]) for rows in data.values()
    ]
    theirs = functional.stationary(functional.coefficients(model, Records.joined(sites)))
    assert np.asarray(estimate["coefficients"]) == pytest.approx(theirs, rel=1e-10)
    assert float(np.asarray(estimate["intercept"])[0]) == 0.0


def test_cape_djica_without_noise_equals_numpy_iteration() -> None:
    people = {"north": 4, "east": 9, "south": 5}
    data = {name: recordings(count) for name, count in people.items()}
    algorithm = CapeDJICAProgram(columns=("a", "b", "c"), n_components=3, rounds=25, step=0.2)
    estimate = released(algorithm, data)
    rows = np.concatenate([units.rows for units in data.values()])
    W, b = np.eye(3), np.zeros(3)
    for _ in range(25):
        z = rows @ W.T + b
        y = -np.tanh(z / 2)
        G = (np.eye(3) + np.einsum("ni,nj->nij", y, z)) @ W
        G /= np.maximum(1, np.linalg.norm(G, axis=(1, 2)) / 30)[:, None, None]  # the norm of y is below its clip
        W, b = W + 0.2 * G.mean(axis=0), b + 0.2 * y.mean(axis=0)
    turned = np.sign(np.sum(np.asarray(estimate["unmixing"]) * W, axis=1))
    # Sources are products in whole numbers of 26 bits: 2^-26 = 1.5e-8 in each round.
    assert np.asarray(estimate["unmixing"]) * turned[:, None] == pytest.approx(W, abs=2e-7)
    assert np.asarray(estimate["bias"]) * turned == pytest.approx(b, abs=2e-7)
    assert float(np.asarray(estimate["rounds"])[0]) == 25
    # A rehearsal takes plain sums.
    plain = PublicData(list(data.values())).rehearse(algorithm)
    assert np.asarray(plain["unmixing"]) * turned[:, None] == pytest.approx(W, abs=1e-12)
    assert np.asarray(plain["bias"]) * turned == pytest.approx(b, abs=1e-12)


def test_cape_djica_reduces_columns_before_it_separates() -> None:
    rng = np.random.default_rng(5)
    sources = {name: rng.laplace(size=(300 * count, 2)) for name, count in {"north": 6, "east": 8, "west": 7}.items()}
    mix = np.linalg.qr(rng.normal(size=(4, 2)))[0].T
    data = {name: Units(rows @ mix, np.arange(0, len(rows) + 1, 300)) for name, rows in sources.items()}
    algorithm = CapeDJICAProgram(columns=COLUMNS, n_components=2, rounds=150, step=0.5, row_clip=20.0)
    estimate = released(algorithm, data)
    gains = np.abs(np.asarray(estimate["unmixing"]) @ mix.T)
    assert np.sort(gains, axis=1)[:, 0].max() / np.sort(gains, axis=1)[:, 1].min() < 0.1


def reference(second: Floats, third: Floats, count: int) -> tuple[Floats, Floats]:
    """Components and weights from moments without noise, as the paper prints the steps."""
    values, vectors = np.linalg.eigh(second)
    order = np.argsort(-np.abs(values))[:count]
    root = np.sqrt(np.abs(values[order]))
    W, back = vectors[:, order] / root, vectors[:, order] * root
    sizes, found = power_method(np.einsum("ijk,ia,jb,kc->abc", third, W, W, W), count, 0)
    return (sizes[:, None] * found) @ back.T, 1 / sizes**2 / np.sum(1 / sizes**2)


def test_cape_agn_mixture_without_noise_equals_numpy_decomposition() -> None:
    rng = np.random.default_rng(3)
    truth = np.linalg.qr(rng.normal(size=(4, 3)))[0].T / 2
    data = {
        name: truth[rng.choice(3, 20 * size)] + 0.1 * rng.normal(size=(20 * size, 4)) for name, size in SIZES.items()
    }
    rows, eye, v = np.concatenate(list(data.values())), np.eye(4), 0.01
    part = np.einsum("i,jk->ijk", rows.mean(axis=0), eye)
    third = np.einsum("ni,nj,nk->ijk", rows, rows, rows) / len(rows)
    third -= v * (part + np.moveaxis(part, 0, 1) + np.moveaxis(part, 0, 2))
    means, weights = reference(rows.T @ rows / len(rows) - v * eye, third, 3)
    estimate = released(CapeAGNMixtureProgram(columns=COLUMNS, n_components=3, variance=v, clip=2.0), data)
    assert np.abs(np.asarray(estimate["means"]) - means).max() < 1e-12
    assert np.abs(np.asarray(estimate["weights"]) - weights).max() < 1e-12
    assert component_error(means, truth) < 0.05


def test_cape_agn_mixture_of_ranges_gives_means_in_units_of_the_data() -> None:
    rng = np.random.default_rng(4)
    truth = np.array([[0.6, 0.1, 0.0, 0.2], [-0.2, 0.5, 0.3, 0.0]])
    half, middle = np.array([10.0, 2.0, 50.0, 1.0]), np.array([40.0, 5.0, 120.0, -3.0])
    data = {
        name: middle + half * (truth[rng.choice(2, 50 * size)] + 0.1 * rng.normal(size=(50 * size, 4)))
        for name, size in SIZES.items()
    }
    estimate = released(
        CapeAGNMixtureProgram(columns=COLUMNS, n_components=2, variance=0.01, lower=middle - half, upper=middle + half),
        data,
    )
    assert component_error((np.asarray(estimate["means"]) - middle) / half, truth) < 0.02


def documents(length: int = 3, seed: int = 5) -> tuple[Floats, dict[str, Floats]]:
    """Two topics of four words, and the documents of each site."""
    rng = np.random.default_rng(seed)
    topics = np.array([[0.7, 0.2, 0.1, 0.0], [0.0, 0.1, 0.3, 0.6]])
    return topics, {
        name: rng.multinomial(length, topics[rng.choice(2, 20 * size)]).astype(float) for name, size in SIZES.items()
    }


@pytest.mark.parametrize("length", [3, 6])
def test_cape_agn_topics_without_noise_equal_numpy_decomposition_of_all_ordered_words(length: int) -> None:
    truth, data = documents(length)
    counts, second, third = np.concatenate(list(data.values())), np.zeros((4, 4)), np.zeros((4, 4, 4))
    for row in counts:
        words = np.repeat(np.arange(4), row.astype(int))
        for i, j in permutations(words, 2):
            second[i, j] += 1 / (length * (length - 1))
        for i, j, k in permutations(words, 3):
            third[i, j, k] += 1 / (length * (length - 1) * (length - 2))
    found, weights = reference(second / len(counts), third / len(counts), 2)
    found = np.maximum(found, 0) / np.maximum(found, 0).sum(axis=1, keepdims=True)
    estimate = released(CapeAGNTopicsProgram(columns=COLUMNS, n_components=2), data)
    assert np.abs(np.asarray(estimate["topics"]) - found).max() < 1e-12
    assert np.abs(np.asarray(estimate["weights"]) - weights).max() < 1e-12
    assert component_error(found, truth) < 0.1


def test_cape_agn_topics_of_sparse_documents_equal_those_of_dense_ones() -> None:
    _truth, data = documents(5)
    algorithm = CapeAGNTopicsProgram(columns=COLUMNS, n_components=2)
    sparse = {name: Units.from_rows(csr_array(rows)) for name, rows in data.items()}
    theirs, ours = released(algorithm, data), released(algorithm, sparse)
    assert np.array_equal(np.asarray(ours["topics"]), np.asarray(theirs["topics"]))


def test_cape_agn_topics_without_a_public_number_of_units_are_the_same() -> None:
    """Topics and weights do not depend on a common divisor of both moments."""
    rows = np.concatenate(list(documents()[1].values()))
    algorithm = CapeAGNTopicsProgram(columns=COLUMNS, n_components=2)

    def answered(adjacency: Adjacency, units: float | None) -> Any:
        totals = [request.statistic.total(Units.from_rows(rows)) for request in algorithm.requests(adjacency)]
        return drive(algorithm.program(adjacency), [Release(total, 0.0, units, ("north",)) for total in totals])[0]

    counted, uncounted = answered(Adjacency.REPLACE_ONE, len(rows)), answered(Adjacency.ADD_REMOVE, None)
    for name in ("topics", "weights"):
        assert np.asarray(uncounted[name]) == pytest.approx(np.asarray(counted[name]), abs=1e-12)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_cape_agn_divides_the_budget_as_asked_and_reports_its_noise(share: float) -> None:
    algorithm = CapeAGNMixtureProgram(columns=COLUMNS, n_components=2, variance=0.01, clip=1.0, moment_share=share)
    result = synthetic_run(algorithm, tables(), epsilon=1.0, delta=1e-5, scheme="pooled")
    noise = np.asarray(result.estimate["noise_std"])
    requests = algorithm.requests(Adjacency.REPLACE_ONE)
    # mu^2 of a release is its share: its noise is its sensitivity over the root of its share.
    wanted = [each.statistic.sensitivity(Adjacency.REPLACE_ONE) / math.sqrt(each.share) for each in requests]
    assert noise[1] / noise[0] == pytest.approx(wanted[1] / wanted[0], rel=1e-3)
    assert [each.share for each in requests] == pytest.approx([share, 1 - share])


# ---- study files ----------------------------------------------------------------------------------------------------

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "papers").glob("*.toml"))


def write_tables(folder: Path, columns: tuple[str, ...]) -> None:
    """Tables of three unequal sites; each person has three rows."""
    rng = np.random.default_rng(7)
    for name, people in {"north": 40, "east": 65, "south": 21}.items():
        rows = 3 * people
        cells = rng.laplace(size=(rows, len(columns)))
        if "cough" in columns:
            cells = np.abs(cells).round() + (np.arange(len(columns)) % 2 == rng.integers(0, 2, (rows, 1)))
        if "age" in columns:
            cells[:, :4] = np.array([59, 150, 35, 170]) + cells[:, :4] * [10, 15, 5, 30]
        if "smoker" in columns:
            cells[:, -1] = cells[:, 0] > 59
        lines = [f"p{at // 3}," + ",".join(f"{cell:.6g}" for cell in row) for at, row in enumerate(cells)]
        (folder / f"{name}.csv").write_text("\n".join([",".join(("patient", *columns)), *lines]) + "\n")
        (folder / f"{name}.toml").write_text(
            f'population = "{name}"\ndata = "synthetic"\nepsilon = 3.0\ntrusted_coordinator = true\n'
            f'ledger = "{name}.sqlite"\nminimum_units = 1\n'
        )


def test_every_published_program_has_a_study_file() -> None:
    assert {path.stem for path in EXAMPLES} == set(PROGRAMS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_study_file_of_a_published_program_runs_on_unequal_sites_and_charges_every_ledger(
    example: Path, tmp_path: Path
) -> None:
    text = example.read_text()
    for name in ("north", "east", "south"):
        text = text.replace(f'data = "{name}.csv"', f'data = "{name}.csv"\npolicy = "{name}.toml"')
    (tmp_path / "study.toml").write_text(text)
    study = Study.load(tmp_path / "study.toml")
    assert study.algorithm == example.stem
    write_tables(tmp_path, tuple(study.parameters["columns"]))
    result = study.run()
    assert all(np.all(np.isfinite(np.asarray(each))) for each in result.estimate.values())
    with Ledger.inspect(tmp_path / "north.sqlite") as ledger:
        assert ledger.verify() == result.plan.rounds
        assert ledger.epsilon(1e-5) <= 2.0


# ---- sensitivities --------------------------------------------------------------------------------------------------


def test_distinct_second_moment_of_two_axes_attains_its_sensitivity() -> None:
    statistic = DistinctSecondMoment(columns=3, clip=0.5)
    one, other = (statistic.total(Units.from_rows(0.5 * np.eye(3)[at : at + 1])) for at in (0, 1))
    assert np.linalg.norm(one - other) == pytest.approx(statistic.sensitivity(Adjacency.REPLACE_ONE), rel=1e-12)
    assert np.linalg.norm(one) == pytest.approx(statistic.sensitivity(Adjacency.ADD_REMOVE), rel=1e-12)


@pytest.mark.parametrize(("model", "joint"), functional.JOINT.items())
def test_cape_fm_has_the_joint_sensitivity_of_its_arrays(model: functional.Model, joint: float) -> None:
    algorithm = CapeFMProgram(columns=("a", "b", "y"), lower=-np.ones(3), upper=np.ones(3), model=model)
    (request,) = algorithm.requests(Adjacency.REPLACE_ONE)
    assert joint <= request.statistic.sensitivity(Adjacency.REPLACE_ONE) <= joint * 1.001


def test_infomax_gradient_of_many_sources_approaches_its_sensitivity() -> None:
    R = 60
    statistic = InfomaxGradient(columns=R, unmixing=np.eye(R), bias=np.zeros(R), clip=1.0)
    rows = np.full((2, R), 50.0)
    rows[1] = -50.0
    rows[:, 0] = 1e5
    one, other = (statistic.total(Units.from_rows(row[None, :])) for row in rows)
    bound = statistic.sensitivity(Adjacency.REPLACE_ONE)
    assert 0.98 * bound <= np.linalg.norm(one - other) <= bound


def test_infomax_gradient_of_extreme_rows_stays_within_its_bound() -> None:
    """Entries of W of 1e9 make the terms of a squared norm cancel; the bound on each part is 1."""
    rng = np.random.default_rng(3)
    for size in (1.0, 1e4, 1e9):
        W = rng.uniform(-size, size, (3, 3))
        statistic = InfomaxGradient(columns=3, unmixing=W, bias=np.zeros(3), clip=2.0)
        for rows in (np.linalg.inv(W), rng.normal(size=(5, 3)) / size, 1e300 * np.eye(3), np.zeros((1, 3))):
            for row in rows:
                part = statistic.total(Units.from_rows(row[None, :]))
                assert np.linalg.norm(part[:9]) <= 1 + 1e-12
                assert np.linalg.norm(part[9:]) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("columns", "variance"), [(1, 0.05), (1, 0.6), (2, 0.3), (3, 0.05), (3, 0.5), (4, 0.25), (10, 0.05), (12, 0.3)]
)
def test_distinct_third_moment_attains_its_sensitivity_and_no_row_exceeds_it(columns: int, variance: float) -> None:
    statistic = DistinctThirdMoment(columns=columns, clip=1.0, variance=variance)
    bound = statistic.sensitivity(Adjacency.ADD_REMOVE)

    def norm(row: Floats) -> float:
        return float(np.linalg.norm(statistic.total(Units.from_rows(row[None, :]))))

    # The rows of the proof, of every length; then rows in all other directions.
    axis, middle = np.eye(columns)[0], np.ones(columns) / math.sqrt(columns)
    proved = max(norm(size * row) for size in np.linspace(0.01, 1, 200) for row in (axis, middle))
    assert bound * (1 - 1e-3) <= proved <= bound
    rng = np.random.default_rng(0)
    for _ in range(1000):
        row = rng.normal(size=columns) * (rng.random(columns) < rng.random()) + 1e-12
        assert norm(row / np.linalg.norm(row) * rng.random() ** 0.2) <= bound
    one, other = (statistic.total(Units.from_rows(row[None, :])) for row in (axis, -axis))
    assert np.linalg.norm(one - other) <= statistic.sensitivity(Adjacency.REPLACE_ONE)


def test_distinct_third_moment_of_the_paper_has_a_ninth_of_the_claimed_sensitivity() -> None:
    statistic = DistinctThirdMoment(columns=50, clip=1.0, variance=0.05)
    assert statistic.sensitivity(Adjacency.REPLACE_ONE) == pytest.approx(1.8385, abs=1e-4)
    row = np.eye(50)[:1]
    one, other = (statistic.total(Units.from_rows(each)) for each in (row, -row))
    assert np.linalg.norm(one - other) == pytest.approx(1.8385, abs=1e-4)


def test_distinct_third_moment_equals_full_tensor_of_unequal_persons() -> None:
    rng = np.random.default_rng(6)
    rows, offsets, v, eye = rng.normal(size=(7, 3)), np.array([0, 1, 4, 7]), 0.2, np.eye(3)
    statistic = DistinctThirdMoment(columns=3, clip=3.0, variance=v)
    clipped = rows * np.minimum(1, 3.0 / np.linalg.norm(rows, axis=1))[:, None]
    parts = np.einsum("ni,jk->nijk", clipped, eye)
    full = np.einsum("ni,nj,nk->nijk", clipped, clipped, clipped)
    full -= v * (parts + np.moveaxis(parts, 1, 2) + np.moveaxis(parts, 1, 3))
    wanted = sum(full[a:b].mean(axis=0) for a, b in pairwise(offsets))
    assert statistic.tensor(statistic.total(Units(rows, offsets))) == pytest.approx(wanted, abs=1e-12)


# ---- budgets and schemes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["secure-sum", "cape-published", "cape-helper", "local", "pooled", "pairwise"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_published_program_runs_under_every_scheme_at_the_exact_epsilon(name: str, scheme: str) -> None:
    parameters: dict[str, dict[str, Any]] = {
        "cape-pca": {"columns": COLUMNS, "n_components": 2, "clip": 1.0},
        "cape-fm": {"columns": COLUMNS, "lower": -np.ones(4), "upper": np.ones(4)},
        "cape-djica": {"columns": COLUMNS, "n_components": 2, "rounds": 3, "row_clip": 1.0},
        "cape-network": {"columns": COLUMNS, "lower": -1.0, "upper": 1.0, "hidden": 3, "steps": 2},
        "fl-dp": {"columns": COLUMNS, "lower": -1.0, "upper": 1.0, "hidden": [3], "rounds": 2, "largest_site": 110},
        "cape-agn-mixture": {"columns": COLUMNS, "n_components": 2, "variance": 0.01, "clip": 1.0},
        "cape-agn-topics": {"columns": COLUMNS, "n_components": 2},
    }
    data = documents()[1] if name == "cape-agn-topics" else tables()
    result = synthetic_run(build(name, parameters[name]), data, epsilon=1.5, delta=1e-5, scheme=scheme, colluders=1)
    assert result.plan.epsilon == 1.5
    assert all(np.all(np.isfinite(np.asarray(each))) for each in result.estimate.values())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cape-djica", {"n_components": 4}),
        ("cape-agn-mixture", {"n_components": 2, "variance": 0.1, "clip": 1.0}),
        ("cape-network", {"lower": -1.0, "upper": 1.0}),
        ("fl-dp", {"lower": -1.0, "upper": 1.0, "largest_site": 9}),
    ],
)
def test_published_program_that_divides_by_units_refuses_add_remove(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match="replace-one"):
        build(name, {"columns": COLUMNS, **parameters}).requests(Adjacency.ADD_REMOVE)


def test_fl_dp_charges_every_round_at_twice_the_clip() -> None:
    algorithm = FLDPProgram(columns=COLUMNS, lower=-1.0, upper=1.0, largest_site=9, clip=3.0, rounds=4, hidden=())
    requests = algorithm.requests(Adjacency.REPLACE_ONE)
    assert [each.share for each in requests] == [0.25] * 4
    assert {each.statistic.sensitivity(Adjacency.REPLACE_ONE) for each in requests} == {6.0}


def test_cape_network_charges_four_tensors_or_one_clip_of_all() -> None:
    for clipping, sensitivity in (("tensor", 2.0), ("joint", 1.0)):
        algorithm = CapeNetworkProgram(columns=COLUMNS, lower=-1.0, upper=1.0, clip=0.5, clipping=clipping, steps=7)
        (request,) = algorithm.requests(Adjacency.REPLACE_ONE)
        assert request.statistic.sensitivity(Adjacency.REPLACE_ONE) == sensitivity
        (release,) = algorithm.releases(Adjacency.REPLACE_ONE)
        assert (release.steps, release.sampled) == (7, None)


@pytest.mark.parametrize(
    ("kind", "parameters", "field"),
    [
        (CapePCAProgram, {"n_components": 5, "clip": 1.0}, "n_components"),
        (CapePCAProgram, {"n_components": 2}, "clip"),
        (CapeFMProgram, {"clip": 1.0}, "lower"),
        (CapeDJICAProgram, {"n_components": 2}, "row_clip"),
        (CapeDJICAProgram, {"n_components": 5}, "n_components"),
        (CapeDJICAProgram, {"n_components": 1}, "n_components"),
        (CapeNetworkProgram, {}, "lower"),
        (CapeNetworkProgram, {"lower": -1, "upper": 1, "rate": 0.1}, "rate"),
        (CapeNetworkProgram, {"lower": -1, "upper": 1, "optimizer": "Adam"}, "optimizer"),
        (CapeNetworkProgram, {"lower": -1, "upper": 1, "clipping": "each"}, "clipping"),
        (FLDPProgram, {"lower": -1, "upper": 1}, "largest_site"),
        (FLDPProgram, {"largest_site": 5}, "lower"),
        (FLDPProgram, {"lower": -1, "upper": 1, "largest_site": 0}, "largest_site"),
        (FLDPProgram, {"lower": -1, "upper": 1, "largest_site": 5, "rounds": 0}, "rounds"),
        (CapeAGNMixtureProgram, {"n_components": 5, "variance": 0.1, "clip": 1.0}, "n_components"),
        (CapeAGNMixtureProgram, {"n_components": 2, "clip": 1.0}, "variance"),
        (CapeAGNMixtureProgram, {"n_components": 2, "clip": 1.0, "variance": -0.1}, "variance"),
        (CapeAGNMixtureProgram, {"n_components": 2, "clip": 1.0, "variance": 1.1}, "variance"),
        (CapeAGNMixtureProgram, {"n_components": 2, "variance": 0.1}, "clip"),
        (CapeAGNMixtureProgram, {"n_components": 2, "variance": 0.1, "clip": 1.0, "moment_share": 1.0}, "moment_share"),
        (CapeAGNTopicsProgram, {"n_components": 5}, "n_components"),
        (CapeAGNTopicsProgram, {"n_components": 0}, "n_components"),
        (CapeAGNTopicsProgram, {"n_components": 2, "moment_share": 0.0}, "moment_share"),
    ],
)
def test_published_program_refuses_parameters_that_do_not_fit(
    kind: type[Algorithm], parameters: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadParameter, match=field):
        kind(columns=COLUMNS, **parameters)


def test_cape_agn_with_too_many_columns_for_a_tensor_is_refused() -> None:
    columns = tuple(f"x{at}" for at in range(101))
    with pytest.raises(BadParameter, match="at most 100 columns"):
        CapeAGNMixtureProgram(columns=columns, n_components=2, variance=0.1, clip=1.0)
    with pytest.raises(BadParameter, match="at most 60 words"):
        CapeAGNTopicsProgram(columns=columns[:61], n_components=2)


@pytest.mark.parametrize(
    "parameters",
    [
        {"unmixing": np.eye(2), "bias": np.zeros(2)},  # three columns need a projection
        {"unmixing": np.eye(3)[:2], "bias": np.zeros(2)},
        {"unmixing": np.eye(3), "bias": np.zeros(2)},
        {"unmixing": np.eye(3) * 1e10, "bias": np.zeros(3)},
        {"unmixing": np.eye(2), "bias": np.zeros(2), "projection": np.eye(2)},
    ],
)
def test_infomax_gradient_refuses_matrices_that_do_not_fit(parameters: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        InfomaxGradient(columns=3, **parameters)
