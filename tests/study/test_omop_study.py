"""A study of OMOP sites from end to end: public definitions, a database at each site, fetch, schema, served study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from pydantic import JsonValue

from helpers import omop_database as omop
from helpers.command_line import as_json
from helpers.command_line import zerosum as command
from helpers.deployment import Deployment, declare
from zerosum.errors import BadStudy, CheckFailed, PolicyRefused
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.study import SiteFile, Study
from zerosum.study.checking import check_study
from zerosum.study.coordinating import Settings, begin, coordinate
from zerosum.study.site_data import question_refusals
from zerosum.study.site_schema import check_schema, draft_schema, schema_text

pytest.importorskip("duckdb")
NAMES = ("north", "east", "south")
PEOPLE = 900
STUDY = """
name = "stroke in diabetes"
algorithm = "cox-regression"
{omop}

[unit]
kind = "person"
adjacency = "add-remove"

[design]
response = "stroke"
time = "days"

[design.ranges]
age = [20, 90]
sbp = [90, 180]
metformin = [0, 1]
days = [0, 1825]

[design.levels]
stroke = [0, 1]
sex = ["female", "male", "other"]

[design.missing]
sbp = 135

[privacy]
epsilon = 6.0
delta = 1e-5
random_state = 3
"""


@cache
def tables() -> omop.Tables:
    return omop.people(np.random.default_rng(8), PEOPLE)


def own_people(name: str) -> omop.Tables:
    """The records of the people of one site."""
    return omop.persons_of(tables(), lambda person: NAMES[person % 3] == name)


def study_file(folder: Path, roster: str, *, omop_file: bool = True) -> Path:
    path = folder / ("omop.toml" if omop_file else "plain.toml")
    path.write_text(STUDY.format(omop='omop = "variables.toml"' if omop_file else "") + roster)
    (folder / "variables.toml").write_text(omop.DEFINITIONS)
    return path


def rehearsal(folder: Path, *, omop_file: bool) -> Path:
    """The study with all sites in one process: their databases, or files with the variables by plain Python."""
    roster = ""
    for name in NAMES:
        own = own_people(name)
        if omop_file:
            omop.write_duckdb(folder / f"{name}.duckdb", own, "cdm")
            entries = f'kind = "omop", database = "{name}.duckdb", cdm_schema = "cdm", variables = "variables.toml"'
            data = f'source = {{ engine = "duckdb", {entries} }}'
        else:
            rows = [["" if cell != cell else str(cell) for cell in row] for row in omop.expected(own).values()]
            names = "age,sex,sbp,sbp_mean,metformin,days,stroke"
            (folder / f"{name}.csv").write_text("\n".join([names, *map(",".join, rows)]) + "\n")
            data = f'data = "{name}.csv"'
        policy = f'policy = {{ population = "{name}", adjacency = "add-remove", data = "synthetic" }}'
        roster += f'\n[[sites]]\nname = "{name}"\n{data}\n{policy}\n'
    return study_file(folder, roster, omop_file=omop_file)


def stated(result: Result) -> Mapping[str, JsonValue]:
    """The definitions in the plan of a result."""
    found = result.plan.question.preprocessing["definitions"]
    assert isinstance(found, Mapping)
    return found


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Three sites in processes of their own, whose data are in DuckDB."""
    made = Deployment(tmp_path_factory.mktemp("omop"), epsilon=100.0)
    (made.folder / "variables.toml").write_text(omop.DEFINITIONS)
    for name in NAMES:
        home = made.folder / name
        omop.write_duckdb(home / "people.duckdb", own_people(name), "cdm")
        lines = [line for line in (home / "site.toml").read_text().splitlines() if not line.startswith('data = "data')]
        text = "\n".join(lines).replace('adjacency = "replace-one"', 'adjacency = "add-remove"')
        text += '\n[source]\nkind = "omop"\nengine = "duckdb"\ndatabase = "people.duckdb"\n'
        text += 'cdm_schema = "cdm"\nvariables = "../variables.toml"\n'
        (home / "site.toml").write_text(text)
        fetched = as_json(command("site", "fetch", "--json", cwd=home))
        assert fetched["columns"][0] == "age"
        assert not list((home / "state").glob("*.part"))
        declare(made.site(name))
    try:
        made.start(*NAMES)
        yield made
    finally:
        made.stop()


def test_omop_study_of_served_sites_has_the_result_of_plain_files(deployment: Deployment, tmp_path: Path) -> None:
    folder = deployment.folder
    roster = "".join(f'\n[[sites]]\nname = "{name}"\nidentity = "{deployment.identities[name]}"\n' for name in NAMES)
    study = study_file(folder, roster)
    sockets = {name: deployment.site(name).socket for name in NAMES}
    coordinate_in = folder / "coordinator"
    begin(Settings(study=study, out=folder / "out", sites=sockets, seconds=60.0, wait=30.0, every=0.1), coordinate_in)
    coordinate(coordinate_in, lambda sites: None)
    found = Result.read(folder / "out")
    assert stated(found)["sbp"] == DataSchema.load(deployment.site("north").schema_path).columns["sbp"].definition
    plain = Study.load(rehearsal(tmp_path, omop_file=False)).run()
    for name, quantity in plain.estimate.items():
        assert np.allclose(found.estimate[name].value, quantity.value, rtol=1e-9, atol=1e-12, equal_nan=True), name


def test_omop_rehearsal_has_the_bits_of_plain_files_and_finds_the_slopes(tmp_path: Path) -> None:
    study = Study.load(rehearsal(tmp_path, omop_file=True))
    found, plain = study.run(), Study.load(rehearsal(tmp_path, omop_file=False)).run()
    for name, quantity in plain.estimate.items():
        assert found.estimate[name].value.tobytes() == quantity.value.tobytes(), name
    # The slopes of age and blood pressure that the records were made with.
    slopes, errors = (found.estimate[name].value[:2] for name in ("coefficients", "population_std"))
    assert np.all(np.abs(slopes - [0.06, 0.04]) < 3 * errors)
    assert np.all(errors < 0.01)
    # The definitions are in the plan, for the steward and the ledger; the plain study has none.
    assert "definitions" not in plain.plan.question.preprocessing
    assert set(stated(found)) == {"age", "sbp", "metformin", "days", "stroke", "sex"}


def test_omop_plan_with_another_definition_is_refused_by_the_schema_alone(deployment: Deployment) -> None:
    roster = "".join(f'\n[[sites]]\nname = "{name}"\n' for name in NAMES)
    study = Study.load(study_file(deployment.folder, roster))
    site = deployment.site("north")
    schema = DataSchema.load(site.schema_path)
    assert list(question_refusals(study.plan(), site, schema)) == []
    (deployment.folder / "variables.toml").write_text(omop.DEFINITIONS.replace("days = [-90, 0]", "days = [-91, 0]"))
    other = Study.load(deployment.folder / "omop.toml").plan()
    (refusal,) = question_refusals(other, site, schema)
    assert isinstance(refusal, PolicyRefused)
    assert "'metformin'" in str(refusal)
    (deployment.folder / "variables.toml").write_text(omop.DEFINITIONS)


def test_omop_site_whose_schema_has_other_definitions_than_its_snapshot_does_not_serve(tmp_path: Path) -> None:
    omop.write_duckdb(tmp_path / "people.duckdb", own_people("north"))
    (tmp_path / "variables.toml").write_text(omop.DEFINITIONS)
    entries = {"kind": "omop", "engine": "duckdb", "database": "people.duckdb", "variables": "variables.toml"}
    site = SiteFile.model_validate({"name": "north", "source": entries, "folder": tmp_path})
    policy = Policy(population="p", adjacency="add-remove", minimum_units=1)
    with pytest.raises(BadStudy, match="site fetch"):
        draft_schema(site, policy)
    site.fetch()
    schema = draft_schema(site, policy)
    site.schema_path.write_text(schema_text(schema))
    assert DataSchema.load(site.schema_path) == schema
    assert check_schema(site, schema, policy).faults == []
    (tmp_path / "variables.toml").write_text(omop.DEFINITIONS.replace("prior_days = 180", "prior_days = 30"))
    # An edit of the file alone changes nothing; after a new fetch no column is what was declared.
    assert check_schema(site, schema, policy).faults == []
    site.fetch()
    faults = check_schema(site, schema, policy).faults
    assert sum("definition" in each for each in faults) == len(schema.columns)


def test_omop_rehearsal_with_other_definitions_at_a_site_is_refused(tmp_path: Path) -> None:
    path = rehearsal(tmp_path, omop_file=True)
    (tmp_path / "other.toml").write_text(omop.DEFINITIONS.replace("prior_days = 180", "prior_days = 30"))
    text = path.read_text().replace('variables = "variables.toml"', 'variables = "other.toml"', 1)
    path.write_text(text)
    with pytest.raises(BadStudy, match="'north'"):
        Study.load(path).run()
    found = check_study(Study.load(path))
    assert [bool(each.faults) for each in found] == [True, False, False]


def test_omop_study_of_a_column_that_is_not_defined_is_refused(tmp_path: Path) -> None:
    path = rehearsal(tmp_path, omop_file=True)
    path.write_text(path.read_text().replace("sbp = ", "crp = "))
    with pytest.raises(BadStudy, match="'crp'"):
        Study.load(path).plan()


def test_omop_command_line_names_a_definitions_file_that_is_not_there(tmp_path: Path) -> None:
    path = rehearsal(tmp_path, omop_file=True)
    (tmp_path / "variables.toml").unlink()
    done = command("check", path.name, cwd=tmp_path)
    assert done.returncode != 0
    assert "variables.toml" in done.stderr
    assert done.returncode != CheckFailed.exit_code
