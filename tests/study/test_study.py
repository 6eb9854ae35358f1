"""What the planner chooses: from public facts alone, and the same for the plan as for the run."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from zerosum import algorithms
from zerosum.algorithms.program import Program, PublicFacts, RangedAlgorithm
from zerosum.audit import audit
from zerosum.errors import BadStudy
from zerosum.kernel import accountant
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.vectors import VectorSum
from zerosum.study import Study, resolve, run


class Open(RangedAlgorithm):
    """Leaves its number of rounds to the planner: three where noise is small beside the units, else one."""

    name: ClassVar[str] = "open"
    rounds: int | None = None
    seen: ClassVar[list[PublicFacts]] = []

    def resolve(self, facts: PublicFacts) -> Self:
        self.seen.append(facts)
        if self.rounds is not None:
            return self
        return self.model_copy(update={"rounds": 3 if facts.noise < 0.01 * (facts.units or 0) else 1})

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        assert self.rounds is not None, "only a settled program is planned or run"
        return (PrivateSum(VectorSum(**self.bounds), 1 / self.rounds),) * self.rounds

    def program(self, adjacency: Adjacency) -> Program:
        for request in self.requests(adjacency):
            release = yield request
        return {"sum": Quantity(release.value)}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(algorithms.ALGORITHMS, "open", Open)
    Open.seen.clear()


def study(units: int | None = None, adjacency: str = "replace-one", folder: Path = Path(), **privacy: Any) -> Study:
    sites = [{"name": name, "data": f"{name}.npy", "units": units} for name in ("a", "b", "c")]
    return Study(
        name="s",
        algorithm="open",
        parameters={"columns": ["x"], "clip": 1.0},
        unit={"kind": "person", "adjacency": adjacency},
        privacy={"epsilon": 1.0, "delta": 1e-5, **privacy},
        sites=sites,
        folder=folder,
    )


def test_study_plan_has_releases_of_resolved_program() -> None:
    assert len(study(units=1000).plan().releases) == 3
    assert len(study(units=20).plan().releases) == 1
    assert len(study().plan().releases) == 1
    assert [facts.units for facts in Open.seen] == [3000, 60, None]


def test_resolve_from_plan_gives_same_choices() -> None:
    planned = study(units=1000).plan()
    assert resolve(study(units=1000).build_algorithm(), planned).rounds == 3  # type: ignore[attr-defined]
    first, second = Open.seen
    assert first == second  # although the plan has its releases by then


def test_resolve_noise_is_that_of_one_release_with_whole_budget() -> None:
    resolve(study().build_algorithm(), study().plan())
    alone = math.sqrt(3 / 2) / accountant.mu_for(1.0, 1e-5)  # secure sum, S = 3, one colluder
    assert Open.seen[-1].noise == pytest.approx(alone, rel=1e-3)
    silent = study().model_copy(update={"scheme": study().scheme.model_copy(update={"name": "non-private"})})
    silent.plan()
    assert Open.seen[-1].noise == 0


@pytest.mark.parametrize("adjacency", Adjacency)
def test_run_knows_number_of_units_only_if_public(adjacency: Adjacency) -> None:
    question = Open(columns=("x",), clip=1.0)
    sites = {name: np.full((1000, 1), 0.5) for name in ("a", "b", "c")}
    result = run(question, sites, epsilon=1.0, delta=1e-5, unit="person", adjacency=adjacency)
    public = adjacency is Adjacency.REPLACE_ONE
    assert {facts.units for facts in Open.seen} == {3000 if public else None}
    assert result.report.rounds == (3 if public else 1)


def test_study_file_runs_planned_rounds(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        np.save(tmp_path / f"{name}.npy", np.full((1000, 1), 0.5))
    for units, rounds in ((1000, 3), (None, 1)):
        asked = study(units=units, folder=tmp_path)
        assert asked.run().report.rounds == rounds


def test_audit_of_open_program_attacks_resolved_one() -> None:
    wide = Open(columns=tuple(f"x{i}" for i in range(2000)), clip=1.0)
    assert audit(Scheme("secure-sum"), wide, samples=2000).holds


def test_study_entry_of_0_1_names_new_entry(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'name = "s"\nalgorithm = "mean"\nsites = []\n[unit]\nkind = "person"\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-5\nseed = 1\n"
    )
    with pytest.raises(BadStudy, match=r"privacy\.random_state"):
        Study.load(file)


def test_study_builds_its_program_once_and_a_copy_builds_its_own() -> None:
    own = study(100)
    assert own.build_algorithm() is own.build_algorithm()
    other = own.model_copy(update={"parameters": {"columns": ["x"], "clip": 2.0}})
    assert other.build_algorithm().clip == 2.0  # type: ignore[attr-defined] # of the class above
    assert own.build_algorithm().clip == 1.0  # type: ignore[attr-defined] # as above


def test_rehearsal_with_databases_has_the_bits_of_one_with_files(tmp_path: Path) -> None:
    text = (
        'name = "s"\nalgorithm = "mean"\n[parameters]\ncolumns = ["x"]\nlower = [0]\nupper = [1]\n'
        '[unit]\nkind = "person"\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-5\nrandom_state = 1\n"
    )
    rng = np.random.default_rng(0)
    with sqlite3.connect(tmp_path / "all.sqlite") as connection:
        for name in "abc":
            rows = rng.uniform(size=(30, 1))
            np.save(tmp_path / f"{name}.npy", rows)
            connection.execute(f"CREATE TABLE {name} (x)")
            connection.executemany(f"INSERT INTO {name} VALUES (?)", rows.tolist())
    means = []
    query = 'source = {{ engine = "sqlite", database = "all.sqlite", table = "{name}" }}'
    for at, data in enumerate(('data = "{name}.npy"', query)):
        sites = [
            f'[[sites]]\nname = "{name}"\n{data.format(name=name)}\n'
            f'policy = {{ population = "{name} {at}", data = "synthetic" }}'
            for name in "abc"
        ]
        (tmp_path / "study.toml").write_text(text + "\n".join(sites))
        means.append(Study.load(tmp_path / "study.toml").run().estimate["mean"].value.tolist())
    assert means[0] == means[1]


@pytest.mark.parametrize(("good", "bad"), [("epsilon =", "epsilo ="), ("kind =", "knd =")])
def test_study_file_misspelt_entry_is_named_beside_the_missing_one(good: str, bad: str, tmp_path: Path) -> None:
    text = (
        'name = "s"\nalgorithm = "mean"\n[parameters]\ncolumns = ["x"]\nlower = [0]\nupper = [1]\n'
        '[unit]\nkind = "person"\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\n'
        '[[sites]]\nname = "a"\n[[sites]]\nname = "b"\n'
    )
    path = tmp_path / "study.toml"
    path.write_text(text)
    Study.load(path)
    path.write_text(text.replace(good, bad))
    with pytest.raises(BadStudy, match=repr(bad.split(" ")[0])):
        Study.load(path)


def test_study_file_labels_of_a_site_name_their_present_place(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'name = "s"\nalgorithm = "mean"\n[parameters]\ncolumns = ["x"]\nlower = [0]\nupper = [1]\n'
        '[unit]\nkind = "person"\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\n'
        '[[sites]]\nname = "a"\nlabels = { x = { w = "f" } }\n[[sites]]\nname = "b"\n'
    )
    with pytest.raises(BadStudy, match="schema"):
        Study.load(path)
