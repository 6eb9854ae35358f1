"""The published methods as programs: equal to plain NumPy, under every scheme, charged exactly."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from zerosum import algorithms
from zerosum.algorithms import ALGORITHMS, build
from zerosum.algorithms.program import Algorithm
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods import functional
from zerosum.papers.programs import (
    PROGRAMS,
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
from zerosum.statistics.published import DistinctSecondMoment, InfomaxGradient
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
        functional.Sample(rows[:, :4], (rows[:, 4] + 1) / 2 if model == "logistic" else rows[:, 4])
        for rows in data.values()
    ]
    theirs = functional.stationary(functional.coefficients(model, functional.Sample.pooled(sites)))
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


# ---- study files ----------------------------------------------------------------------------------------------------

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "papers").glob("*.toml"))


def write_tables(folder: Path, columns: tuple[str, ...]) -> None:
    """Tables of three unequal sites; each person has three rows."""
    rng = np.random.default_rng(7)
    for name, people in {"north": 40, "east": 65, "south": 21}.items():
        rows = 3 * people
        cells = rng.laplace(size=(rows, len(columns)))
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
    }
    result = synthetic_run(build(name, parameters[name]), tables(), epsilon=1.5, delta=1e-5, scheme=scheme, colluders=1)
    assert result.plan.epsilon == 1.5
    assert all(np.all(np.isfinite(np.asarray(each))) for each in result.estimate.values())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cape-djica", {"n_components": 4}),
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
    ],
)
def test_published_program_refuses_parameters_that_do_not_fit(
    kind: type[Algorithm], parameters: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadParameter, match=field):
        kind(columns=COLUMNS, **parameters)


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
