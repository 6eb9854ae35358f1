"""What a site reads for a plan by its public question alone: the same as the study's own file would make it read, for
every algorithm of study files; and whole studies of each by sites that serve."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from helpers.brain_images import SHAPE, atlas, mask, participants, save, volumes
from zerosum import statistic
from zerosum.algorithms import ALGORITHMS
from zerosum.arrays import Floats
from zerosum.data.imputation import ColumnModel, ImputationModel
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadInput, BadParameter, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.protocol.progress import nobody
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.service import Service
from zerosum.site.site import Site
from zerosum.study import SiteFile, Study, execute
from zerosum.study.site_data import load_for, review_question
from zerosum.study.site_file import digest
from zerosum.study.site_schema import draft_schema

HEAD = """
name = "s"
algorithm = "{algorithm}"
{top}
[parameters]
{parameters}

[unit]
kind = "{unit}"

[privacy]
epsilon = 5.0
delta = 1e-5
random_state = 1
"""

DESIGN = """
[design]
response = "{response}"
[design.ranges]
age = [0, 100]
visits = [0, 20]
[design.levels]
sex = ["f", "m"]
sick = [0, 1]
[design.missing]
age = 50
"""
IMPUTED = """
[design]
response = "visits"
imputations = 4
[design.ranges]
bmi = [10, 60]
visits = [0, 20]
[design.levels]
sex = ["f", "m"]
[design.missing]
bmi = "impute"
"""
RANGES = "lower = [0, 10]\nupper = [100, 60]"
PIXELS = 'features = { kind = "random", waves = 8, lower = [0, 10], upper = [100, 60] }'
IMAGING = '[imaging]\n{kind} = "grid/{kind}.nii.gz"\ntask = "rest"\ndetrend = true\n{more}'


def case(algorithm: str, parameters: str, top: str = "", more: str = "", unit: str = "person") -> str:
    return HEAD.format(algorithm=algorithm, parameters=parameters, top=top, unit=unit) + more


CASES = {
    "mean": case("mean", 'columns = ["age", "bmi"]\nclip = 1.0'),
    "missing": case(
        "mean",
        'columns = ["bmi", "age"]\nlower = [10, 0]\nupper = [60, 100]\nmissing = "own-rows"',
        'missing_tokens = { bmi = ["NA"] }',
    ),
    "histogram": case("histogram", 'columns = ["sex"]\nvalues = ["f", "m"]'),
    "edges": case("histogram", 'columns = ["age"]\nedges = [0, 30, 60, 100]'),
    "covariance": case("covariance", f'columns = ["age", "bmi"]\n{RANGES}'),
    "correlation": case("correlation", f'columns = ["age", "bmi"]\nmethod = "spearman"\n{RANGES}'),
    "synthetic-data": case(
        "synthetic-data",
        'columns = ["age", "sex", "bmi"]\nranges = { age = [0, 100], bmi = [10, 60] }\nlevels = { sex = ["f", "m"] }\n'
        'whole = ["age"]\nbins = 8',
    ),
    "additive-model": case(
        "additive-model",
        'columns = ["age", "bmi", "sex"]\nranges = { age = [0, 100], bmi = [10, 60] }\nlevels = { sex = ["f", "m"] }\n'
        'whole = ["age"]\nrounds = 2',
    ),
    "k-means": case("k-means", f'columns = ["age", "bmi"]\nn_clusters = 2\nrounds = 2\n{RANGES}'),
    "mixture": case("mixture", f'columns = ["age", "bmi"]\nn_components = 2\nrounds = 1\n{RANGES}'),
    "pca": case("pca", f'columns = ["age", "bmi"]\nn_components = 1\n{RANGES}'),
    "ica": case("ica", 'columns = ["age", "bmi", "visits"]\nn_components = 2\nrounds = 3\nn_passes = 1'),
    "guided-ica": case("guided-ica", 'columns = ["age", "bmi", "visits"]\ntemplates = [[1.0, 0.5, 0.0]]'),
    "guided images": case(
        "guided-ica", "clip = 1.0", 'templates = "templates.npy"', IMAGING.format(kind="mask", more="")
    ),
    "connectivity": case(
        "connectivity", 'columns = ["age", "bmi", "sex"]\ngroup = "sex"\nlevels = ["f", "m"]\nclip = 1.0'
    ),
    "covariates": case(
        "connectivity", 'columns = ["age", "bmi", "visits"]\ncovariates = { visits = [0, 20] }\nclip = 1.0'
    ),
    "statistic": case("statistic", 'columns = ["age", "bmi"]\nstatistic = "tests_site_data_rows"\nclip = 100.0'),
    "linear": case("linear-regression", "", more=DESIGN.format(response="visits")),
    "logistic": case("logistic-regression", "", more=DESIGN.format(response="sick")),
    "multinomial": case(
        "multinomial-regression",
        "",
        more='[design]\nresponse = "visits"\n[design.ranges]\nage = [0, 100]\n[design.missing]\nage = 50\n'
        f"[design.levels]\nvisits = {list(range(16))}\n",
    ),
    "poisson": case("poisson-regression", "", more=DESIGN.format(response="visits")),
    "polynomial": case(
        "polynomial-loss", "table = [[0, 0, 1], [0, -2, 0], [1, 0, 0]]", more=DESIGN.format(response="visits")
    ),
    "imputed": case(
        "linear-regression", "", 'imputation = "model.json"\nmissing_tokens = { bmi = ["NA"] }', more=IMPUTED
    ),
    "undesigned": case(
        "linear-regression", 'columns = ["age", "bmi", "visits"]\nlower = [0, 10, 0]\nupper = [100, 60, 20]'
    ),
    "feature-classifier": case(
        "feature-classifier", f'columns = ["age", "bmi", "sex"]\nclasses = ["f", "m"]\nrounds = 5\n{PIXELS}'
    ),
    "neural-classifier": case(
        "neural-classifier", f'columns = ["age", "bmi", "sex"]\nclasses = ["f", "m"]\nhidden = 3\nsteps = 4\n{RANGES}'
    ),
    "data-collaboration": case(
        "data-collaboration", f'columns = ["age", "bmi", "sex"]\nclasses = ["f", "m"]\n{PIXELS}'
    ),
    "topics": case("topics", "n_components = 2", 'vocabulary = "words.txt"', unit="record"),
    "images": case("pca", "n_components = 2\nclip = 1.0", more=IMAGING.format(kind="mask", more="")),
    "regions": case("mean", "clip = 1.0", more=IMAGING.format(kind="atlas", more='space = "MNI"')),
    "time courses": case(
        "ica",
        'n_components = 2\nsolver = "second-order"\nper_recording = "center"',
        more=IMAGING.format(kind="mask", more="frequencies = 6\nband = [0.01, 0.2]"),
    ),
    "basis": case(
        "ica", "n_components = 2\nrounds = 3\nn_passes = 1", 'basis = "basis.npy"', IMAGING.format(kind="mask", more="")
    ),
    "describe": case(
        "describe",
        'columns = ["bmi", "sex", "age"]\nranges = { age = [0, 100], bmi = [10, 60] }\n'
        'levels = { sex = ["f", "m"] }\nby = "sex"\nmissing = "observed"',
        'missing_tokens = { bmi = ["NA"] }',
    ),
    "quantiles": case("quantiles", 'columns = ["age"]\nranges = { age = [0, 100] }'),
    "cox": case(
        "cox-regression",
        'columns = ["bmi", "age", "sex"]\nevents = ["f", "m"]\nlower = [10, 0, 0]\nupper = [60, 100, 1]\n'
        "edges = [0, 20, 40, 60, 80, 100]",
    ),
    "hypothesis-test": case(
        "hypothesis-test",
        'test = "welch"\ncolumns = ["bmi", "sex"]\nranges = { bmi = [10, 60] }\n'
        'levels = { sex = ["f", "m"] }\nby = "sex"\nmissing = "observed"',
        'missing_tokens = { bmi = ["NA"] }',
    ),
    "survival": case("survival", 'columns = ["age", "sex"]\nevents = ["f", "m"]\nedges = [0, 50, 60]'),
}
MODEL = ImputationModel(
    columns={
        "bmi": ColumnModel(quantiles=[[10, 30], [30, 60]], probabilities=[[0.9, 0.1, 0.0], [0.3, 0.6, 0.1]]),
        "sex": ColumnModel(levels=("f", "m"), probabilities=[[0.8, 0.2, 0.0], [0.3, 0.7, 0.0]]),
        "visits": ColumnModel(quantiles=[[0, 4], [4, 20]], probabilities=[[0.7, 0.3, 0.0], [0.2, 0.8, 0.0]]),
    }
)
WORDS = ("lake", "boat", "engine", "road")
PUBLIC = ("words.txt", "model.json", "grid/mask.nii.gz", "grid/atlas.nii.gz")


@statistic("tests_site_data_rows", length=2)
def _rows(rows: Floats) -> Floats:
    return np.asarray(rows.mean(axis=0))


def of(text: str) -> str:
    """Which sort of data a study asks for."""
    return "images" if "[imaging]" in text else "documents" if "vocabulary" in text else "tables"


def write(folder: Path, text: str) -> Study:
    rng = np.random.default_rng(0)
    if of(text) == "images":
        save(folder / "grid" / "mask.nii.gz", mask())
        save(folder / "grid" / "atlas.nii.gz", atlas())
        np.save(folder / "basis.npy", np.linalg.qr(rng.normal(size=(24, 5)))[0])
        np.save(folder / "templates.npy", rng.normal(size=(2, 24)))
    (folder / "words.txt").write_text("\n".join(WORDS))
    (folder / "model.json").write_text(MODEL.content())
    for at, name in enumerate(("north", "east")):
        if of(text) == "images":
            people = [f"sub-{each}" for each in range(4)]
            participants(folder / name, people)
            for each in people:
                stem = folder / name / each / "func" / f"{each}_task-rest_space-MNI_bold.nii.gz"
                save(stem, volumes(10 * at + int(each[-1]), 24, SHAPE))
        elif of(text) == "documents":
            save_npz(folder / f"{name}.npz", csr_array(rng.integers(0, 4, size=(40, 4))))
        else:
            rows = [
                f"{'NA' if rng.random() < 0.1 and 'NA' in text else round(float(rng.uniform(18, 40)), 1)},"
                f"{rng.integers(20, 90)},{'fm'[rng.integers(2)]},{rng.integers(2)},p{rng.integers(15)},{rng.poisson(4)}"
                for _ in range(40)
            ]
            with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
                file.write("\n".join(["bmi,age,sex,sick,patient,visits", *rows]) + "\n")
        text += f'\n[[sites]]\nname = "{name}"\n' + entries(name, text)
        if "data-collaboration" in text:  # a publication needs counts
            text += f"units = {len(load_table(folder / f'{name}.csv.gz'))}\n"
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml")


def load_table(path: Path) -> set[str]:
    with gzip.open(path, "rt") as file:
        return {line.split(",")[4] for line in file.readlines()[1:]}


def entries(name: str, text: str) -> str:
    data = {"images": name, "documents": f"{name}.npz", "tables": f"{name}.csv.gz"}[of(text)]
    return f'data = "{data}"\n' + ('unit_column = "patient"\n' if of(text) == "tables" else "")


def site_file(folder: Path, study: Study, name: str = "north") -> SiteFile:
    """A site's own file: of the study it has copies of public files and nothing else."""
    known = next(file for file in study.site_files if file.name == name)
    files = tuple(Path(each) for each in PUBLIC if (folder / each).exists())
    return SiteFile(name=name, data=known.data, unit_column=known.unit_column, files=files, folder=folder)


def test_site_data_cases_have_every_algorithm() -> None:
    assert {text.split('algorithm = "')[1].split('"')[0] for text in CASES.values()} == set(ALGORITHMS)


@pytest.mark.parametrize("case", CASES)
def test_load_for_plan_reads_same_units_as_study(case: str, tmp_path: Path) -> None:
    study = write(tmp_path, CASES[case])
    plan = Plan.from_json(study.plan().to_json())  # as it arrives
    direct = study._load(study.site_files[0], study.build_algorithm(), nobody, None).units
    found = load_for(plan, site_file(tmp_path, study))
    assert len(found) == len(direct)
    assert found.is_sparse == direct.is_sparse
    own, expected = (each.rows.toarray() if each.is_sparse else np.asarray(each.rows) for each in (found, direct))
    assert np.array_equal(own, expected, equal_nan=True)
    assert (found.offsets is None) == (direct.offsets is None)
    assert found.offsets is None or np.array_equal(found.offsets, np.asarray(direct.offsets))
    assert (found.runs is None) == (direct.runs is None)
    assert found.runs is None or np.array_equal(found.runs.seconds, np.asarray(direct.runs and direct.runs.seconds))


class Served:
    """Sites that serve, in this process."""

    def __init__(self, services: Mapping[str, Service], plan: Plan) -> None:
        self._services, self._study = services, bytes.fromhex(plan.digest())

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, frame in frames.items():
            yield name, self._services[name].answer(self._study, frame)


@pytest.mark.parametrize("case", CASES)
def test_site_services_give_same_result_as_study_in_process(case: str, tmp_path: Path) -> None:
    study = write(tmp_path, CASES[case])
    keys = {name: Identity() for name in ("north", "east")}
    plan = study.plan()
    plan = replace(plan, sites=tuple(replace(site, identity=keys[site.name].public.hex()) for site in plan.sites))
    services, members = {}, []
    for name, key in keys.items():
        file, home = site_file(tmp_path, study, name), tmp_path / f"state-{name}"
        own = {"minimum_units": 3, "statistics": tuple({each.statistic for each in plan.releases}), "unit": plan.unit}
        served = Policy.throwaway(name, home / "ledger.sqlite", **own)
        log, consents = AuditLog(home / "audit.jsonl"), Consents(home, automatic=True)
        schema = draft_schema(file, served)
        load, review = partial(load_for, site=file, faults=[]), partial(review_question, site=file, schema=schema)
        services[name] = Service(name, served, key, load, consents, log, schema=schema, review=review)
        policy = Policy.throwaway(name, home / "direct.sqlite", **own)
        members.append(Site(name, load_for(plan, file), policy, key))
    result = execute(plan, study.build_algorithm(), Served(services, plan))
    expected = execute(plan, study.build_algorithm(), InProcess(members))
    for key_, quantity in expected.estimate.items():
        assert np.asarray(result.estimate[key_].value).tobytes() == np.asarray(quantity.value).tobytes(), key_
    for service, member in zip(services.values(), members, strict=True):
        with member.policy.open_ledger() as ledger:
            spent = [(entry.spend, entry.charged_mu) for entry in ledger.entries()]
        assert [(entry.spend, entry.charged_mu) for entry in service._ledger.entries()] == spent
        service.close()
        member.close()


def test_load_for_plan_with_many_columns_reads_in_order_of_file(tmp_path: Path) -> None:
    """Of a thousand and more columns a plan has the digest: pixels without names, with their class last."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(size=(30, 1200)), rng.integers(1, 4, size=30)])
    np.save(tmp_path / "north.npy", rows)
    text = case(
        "neural-classifier",
        "shape = [1, 30, 40]\nclasses = [1, 2, 3]\nhidden = 2\nsteps = 2\nlower = 0.0\nupper = 1.0".replace(
            "shape = [1, 30, 40]\n", f"columns = {[*(f'x{at}' for at in range(1200)), 'class']}\n"
        ),
    )
    text += '\n[[sites]]\nname = "north"\ndata = "north.npy"\n[[sites]]\nname = "east"\ndata = "north.npy"\n'
    (tmp_path / "study.toml").write_text(text)
    study = Study.load(tmp_path / "study.toml")
    plan = Plan.from_json(study.plan().to_json())
    assert len(plan.question.columns) == 2
    file = SiteFile(name="north", data=Path("north.npy"), folder=tmp_path)
    found = load_for(plan, file)
    assert np.array_equal(np.asarray(found.rows)[:, -1], rows[:, -1] - 1)  # as categories, not as they lie
    assert np.array_equal(np.asarray(found.rows)[:, :-1], rows[:, :-1])
    np.savez(tmp_path / "named.npz", data=rows, columns=np.array([f"c{at}" for at in range(1201)]))
    with pytest.raises(BadInput, match="column"):
        load_for(plan, SiteFile(name="north", data=Path("named.npz"), folder=tmp_path))
    huge = replace(plan, question=replace(plan.question, n_columns=10**15))
    with pytest.raises(BadParameter, match="columns"):
        load_for(huge, file)


@pytest.mark.parametrize(
    "parameters",
    [{"classes": 3}, {"classes": None}, {}, {"classes": {"a": 1}}, {"classes": [[1], [2]]}, {"missing": [1]}],
)
def test_load_for_plan_with_bad_question_is_refused(parameters: dict[str, Any], tmp_path: Path) -> None:
    study = write(tmp_path, CASES["neural-classifier"])
    plan = study.plan()
    lie = replace(plan, question=replace(plan.question, parameters=parameters))
    with pytest.raises(BadInput):
        load_for(lie, site_file(tmp_path, study))
    with pytest.raises(BadInput, match="algorithm"):
        load_for(replace(plan, algorithm="unheard-of"), site_file(tmp_path, study))


@pytest.mark.parametrize("formula", ["(age + bmi)**30", "age - bmi", "*".join(["age", "bmi"] * 20)])
def test_load_for_plan_with_formula_to_expand_is_refused(formula: str, tmp_path: Path) -> None:
    study = write(tmp_path, CASES["linear"])
    plan = study.plan()
    preprocessing: dict[str, Any] = dict(plan.question.preprocessing)
    preprocessing["design"] = preprocessing["design"] | {"formula": formula}
    lie = replace(plan, question=replace(plan.question, preprocessing=preprocessing))
    with pytest.raises(BadParameter, match=r"expanded|factors"):
        load_for(lie, site_file(tmp_path, study))


@pytest.mark.parametrize("case", ["topics", "images"])
def test_load_for_plan_without_own_copy_of_public_file_is_refused(case: str, tmp_path: Path) -> None:
    study = write(tmp_path, CASES[case])
    with pytest.raises(BadParameter, match="files"):
        load_for(study.plan(), site_file(tmp_path, study).model_copy(update={"files": ()}))


def test_load_for_plan_with_other_columns_than_named_is_refused(tmp_path: Path) -> None:
    """Policies go by the columns that a plan names."""
    file = SiteFile(name="north", data=Path("north.csv.gz"), unit_column="patient", folder=tmp_path)
    plan = write(tmp_path, CASES["logistic"]).plan()
    lie = replace(plan, question=replace(plan.question, columns=("bmi", *plan.question.columns[1:])))
    with pytest.raises(BadParameter, match="columns"):
        load_for(lie, file)
    plan = write(tmp_path, CASES["mean"]).plan()
    for columns in (("age", "sick"), ("bmi", "age")):
        with pytest.raises(ZerosumError, match="columns"):
            load_for(replace(plan, question=replace(plan.question, columns=columns)), file)
    hidden = replace(plan.question, columns=("age", "bmi"), n_columns=1001)
    with pytest.raises(BadParameter):
        load_for(replace(plan, question=hidden), file)


@pytest.mark.parametrize("case", ["linear", "logistic", "poisson"])
def test_policy_names_columns_of_the_table_and_not_of_the_design(case: str, tmp_path: Path) -> None:
    """In 0.2 a policy that listed `sex` refused a design with levels of `sex`: it allowed no column 'sex=m'."""
    plan = write(tmp_path, CASES[case]).plan()
    assert "sex=m" in plan.question.columns
    policy = Policy(population="p", columns=("age", "visits", "sex", "sick"))
    assert not list(policy._review_question(plan))
    for missing in ("sex", "age"):
        left = tuple(name for name in policy.columns or () if name != missing)
        (refusal,) = policy.model_copy(update={"columns": left})._review_question(plan)
        assert repr(missing) in str(refusal)
    (refusal,) = policy.model_copy(update={"columns": plan.question.columns})._review_question(plan)
    assert "'sex'" in str(refusal)


def test_policy_column_cannot_be_hidden_by_a_false_design(tmp_path: Path) -> None:
    policy = Policy(population="p", columns=("age",))
    file = SiteFile(name="north", data=Path("north.csv.gz"), unit_column="patient", folder=tmp_path)
    false: dict[str, Any] = {"design": {"response": "age", "ranges": {"age": [0, 100]}}}
    # a table without a design: the site reads by the design, whose columns are not those of the plan
    plan = write(tmp_path, CASES["mean"]).plan()
    lie = replace(plan, question=replace(plan.question, preprocessing=false))
    assert not list(policy._review_question(lie))
    with pytest.raises(BadParameter):
        load_for(lie, file)
    # images: a design has no effect there
    lie = replace(lie, question=replace(lie.question, files={"mask": "ab" * 32}))
    assert list(policy._review_question(lie))
    # a design that reads a column which it does not declare
    plan = write(tmp_path, CASES["linear"]).plan()
    design: Any = plan.question.preprocessing["design"]
    for formula in ("age + bmi", "log(bmi)"):
        lie = replace(plan, question=replace(plan.question, preprocessing={"design": {**design, "formula": formula}}))
        with pytest.raises(BadInput):
            load_for(lie, file)


def test_plan_with_imputation_is_refused_before_rows_are_read_where_its_model_is_not_there(tmp_path: Path) -> None:
    study = write(tmp_path, CASES["imputed"])
    plan, file = study.plan(), site_file(tmp_path, study)
    schema = draft_schema(file, Policy(population="p"))
    review_question(plan, file, schema)
    (tmp_path / file.path).unlink()
    # no copy; a copy of another file under its digest; a design that imputes without a model; a model without a rule
    with pytest.raises(BadParameter):
        review_question(plan, file.model_copy(update={"files": ()}), schema)
    words = replace(plan.question, files={"imputation": digest(tmp_path / "words.txt")})
    with pytest.raises(BadParameter):
        review_question(replace(plan, question=words), file, schema)
    with pytest.raises(BadParameter):
        review_question(replace(plan, question=replace(plan.question, files={})), file, schema)
    design: Any = plan.question.preprocessing["design"]
    bare = replace(plan.question, preprocessing={"design": design | {"missing": {"bmi": 30.0}}})
    with pytest.raises(BadParameter):
        review_question(replace(plan, question=bare), file, schema)


def test_study_with_a_model_and_no_rule_for_it_is_refused(tmp_path: Path) -> None:
    for name, top in (("mean", 'imputation = "model.json"'), ("linear", 'imputation = "model.json"')):
        text = CASES[name].replace("[parameters]", f"{top}\n[parameters]", 1)
        with pytest.raises(BadInput):
            write(tmp_path, text).plan()
    with pytest.raises(BadInput):
        write(tmp_path, CASES["imputed"].replace('imputation = "model.json"', "")).plan()
