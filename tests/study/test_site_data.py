"""What a site reads for a plan is what the study would have read, whatever the question."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zerosum.errors import BadData, ZerosumError
from zerosum.protocol.progress import nobody
from zerosum.study import SiteFile, Study
from zerosum.study.site_data import load_for

HEAD = """
name = "s"
algorithm = "{algorithm}"
{top}
[parameters]
{parameters}

[unit]
kind = "person"

[privacy]
epsilon = 5.0
delta = 1e-5
random_state = 1
"""

DESIGN = """
[design]
response = "sick"
[design.ranges]
age = [0, 100]
[design.levels]
sex = ["f", "m"]
sick = [0, 1]
[design.missing]
age = 50
"""

CASES = {
    "mean": HEAD.format(algorithm="mean", top="", parameters='columns = ["age", "bmi"]\nclip = 1.0'),
    "missing": HEAD.format(
        algorithm="mean",
        top='missing_tokens = { bmi = ["NA"] }',
        parameters='columns = ["bmi", "age"]\nlower = [10, 0]\nupper = [60, 100]\nmissing = "own-rows"',
    ),
    "histogram": HEAD.format(algorithm="histogram", top="", parameters='columns = ["sex"]\nvalues = ["f", "m"]'),
    "pca": HEAD.format(
        algorithm="pca",
        top="",
        parameters='columns = ["age", "bmi"]\nn_components = 1\nlower = [0, 10]\nupper = [100, 60]',
    ),
    "describe": HEAD.format(
        algorithm="describe",
        top='missing_tokens = { bmi = ["NA"] }',
        parameters='columns = ["bmi", "sex", "age"]\nranges = { age = [0, 100], bmi = [10, 60] }\n'
        'levels = { sex = ["f", "m"] }\nby = "sex"\nmissing = "observed"',
    ),
    "survival": HEAD.format(
        algorithm="survival",
        top="",
        parameters='columns = ["age", "sex"]\nevents = ["f", "m"]\nedges = [0, 50, 60]',
    ),
    "logistic": HEAD.format(algorithm="logistic-regression", top="", parameters="") + DESIGN,
}


def sites(folder: Path, text: str) -> Study:
    rng = np.random.default_rng(0)
    for name in ("north", "east"):
        rows = [
            f"{'NA' if rng.random() < 0.1 and 'NA' in text else round(float(rng.uniform(18, 40)), 1)},"
            f"{rng.integers(20, 90)},{'fm'[rng.integers(2)]},{rng.integers(2)},p{rng.integers(15)}"
            for _ in range(40)
        ]
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write("\n".join(["bmi,age,sex,sick,patient", *rows]) + "\n")
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv.gz"\nunit_column = "patient"\n'
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml")


@pytest.mark.parametrize("case", CASES)
def test_a_site_reads_what_the_study_would(case: str, tmp_path: Path) -> None:
    study = sites(tmp_path, CASES[case])
    plan = study.plan()
    file = SiteFile(name="north", data=Path("north.csv.gz"), unit_column="patient", folder=tmp_path)
    direct = study._load(study.site_files[0], study.build_algorithm(), nobody, None).units
    found = load_for(plan, file)
    assert len(found) == len(direct) < 40
    assert np.array_equal(np.asarray(found.rows), np.asarray(direct.rows), equal_nan=True)


def test_a_plan_that_says_other_columns_than_it_would_have_read_is_refused(tmp_path: Path) -> None:
    """Policies go by the columns that a plan names."""
    file = SiteFile(name="north", data=Path("north.csv.gz"), unit_column="patient", folder=tmp_path)
    plan = sites(tmp_path, CASES["logistic"]).plan()
    lie = replace(plan, question=replace(plan.question, columns=("bmi", *plan.question.columns[1:])))
    with pytest.raises(BadData, match="columns"):
        load_for(lie, file)
    plan = sites(tmp_path, CASES["mean"]).plan()
    for columns in (("age", "sick"), ("bmi", "age")):
        with pytest.raises(ZerosumError, match="columns"):
            load_for(replace(plan, question=replace(plan.question, columns=columns)), file)
    hidden = replace(plan.question, columns=("age", "bmi"), n_columns=1001)
    with pytest.raises(BadData):
        load_for(replace(plan, question=hidden), file)
