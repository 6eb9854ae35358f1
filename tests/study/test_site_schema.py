"""A site's schema at its own desk: drafted, compared with the data, confirmed, and what a site that serves reads."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from helpers.brain_images import bids, mask, save, table, volumes
from zerosum.cli import load
from zerosum.cli.app import app
from zerosum.data import imaging
from zerosum.data.bids import Selection, find_recordings
from zerosum.errors import BadData, BadParameter, BadStudy, CheckFailed, PolicyRefused, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.site.policy import Policy
from zerosum.site.schema import ColumnSchema, DataSchema
from zerosum.study import SiteFile, Study
from zerosum.study.checking import check_study
from zerosum.study.site_data import load_for, review_question
from zerosum.study.site_schema import (
    check_schema,
    confirm_schema,
    confirmed_schema,
    data_version,
    draft_schema,
    ready_schema,
    schema_text,
    served_units,
)

VISITS = "who,age,dx,bmi\na,34,asthma,22\nb,55,none,NA\nb,61,none,30\nc,70,hiv,\n"


def site(folder: Path, text: str = VISITS, **more: Any) -> SiteFile:
    (folder / "data.csv").write_text(text)
    return SiteFile(name="north", data=Path("data.csv"), folder=folder, unit_column="who", **more)


def policy(folder: Path, **more: Any) -> Policy:
    settings: dict[str, Any] = {"minimum_units": 1, "data": "private"} | more
    return Policy(population="p", ledger=folder / "ledger.sqlite", **settings)


def plan(folder: Path, algorithm: str = "histogram", design: Any = None, **parameters: Any) -> Plan:
    tokens = parameters.pop("missing_tokens", ())
    if algorithm == "histogram":
        parameters = {"columns": ["dx"], "values": ["asthma", "none"]} | parameters
    study = Study(
        name="s",
        algorithm=algorithm,
        parameters=parameters,
        unit={"kind": "person"},
        privacy={"epsilon": 1.0, "delta": 1e-5},
        sites=[{"name": "north"}, {"name": "east"}, {"name": "west"}],
        folder=folder,
        missing_tokens=tokens,
        design=design,
    )
    return study.plan()


# ---- drafted and confirmed -------------------------------------------------------------------------------------------


def test_draft_of_a_table_has_types_and_counts_and_no_level(tmp_path: Path) -> None:
    drafted = draft_schema(site(tmp_path), policy(tmp_path))
    assert (drafted.units, drafted.rows_per_unit) == (3, 2)
    assert {name: (each.type, each.missing, each.tokens) for name, each in drafted.columns.items()} == {
        "age": ("number", False, ()),
        "dx": ("category", False, ()),
        "bmi": ("number", True, ("NA",)),
    }
    assert all(each.levels == () and each.range is None for each in drafted.columns.values())
    assert "hiv" not in schema_text(drafted)


def test_draft_under_add_remove_has_no_number_of_units(tmp_path: Path) -> None:
    assert draft_schema(site(tmp_path), policy(tmp_path, adjacency="add-remove")).units is None


def test_draft_written_to_a_file_reads_back_the_same(tmp_path: Path) -> None:
    drafted = draft_schema(site(tmp_path), policy(tmp_path))
    path = tmp_path / "schema.toml"
    path.write_text(schema_text(drafted))
    assert DataSchema.load(path) == drafted


def test_draft_of_an_array_counts_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((12, 5)))
    file = SiteFile(name="north", data=Path("a.npy"), folder=tmp_path)
    drafted = draft_schema(file, policy(tmp_path))
    assert (drafted.units, drafted.n_columns, drafted.missing) == (12, 5, False)
    assert check_schema(file, drafted, policy(tmp_path)).faults == []


def test_draft_of_documents_counts_people(tmp_path: Path) -> None:
    (tmp_path / "letters.text").write_text("a lake\na boat\n")
    file = SiteFile(name="north", data=Path("letters.text"), folder=tmp_path)
    drafted = draft_schema(file, policy(tmp_path))
    assert (drafted.kind, drafted.units, drafted.words) == ("documents", 2, None)
    assert check_schema(file, drafted, policy(tmp_path)).faults == []


def test_draft_of_images_has_clock_grid_and_confounds(tmp_path: Path) -> None:
    folder = bids(tmp_path / "data", {"sub-1": [("task-rest", 40)], "sub-2": [("task-rest", 30), ("task-play", 30)]})
    for run in folder.rglob("*_bold.nii.gz"):
        stem = run.name.removesuffix("_bold.nii.gz")
        columns = {"framewise_displacement": [0.1] * 40, "x": [1.0] * 40}
        table(run.with_name(f"{stem}_desc-confounds_timeseries.tsv"), columns)
    file = SiteFile(name="north", data=Path("data"), folder=tmp_path)
    drafted = draft_schema(file, policy(tmp_path))
    assert (drafted.kind, drafted.units, drafted.rows_per_unit) == ("images", 2, 60)
    images = drafted.images
    assert images is not None
    assert (images.volumes, images.confounds, images.shape) == (30, ("framewise_displacement", "x"), (5, 6, 4))
    assert images.selectable == {"task": ("play", "rest")}
    assert check_schema(file, drafted, policy(tmp_path)).faults == []
    claimed = drafted.model_copy(update={"images": images.model_copy(update={"volumes": 35})})
    (fault,) = check_schema(file, claimed, policy(tmp_path)).faults
    assert {"35", "30"} <= set(re.findall(r"\d+", fault))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("who,age,dx,bmi\na,34,asthma,22\nb,55,none,\n", r"\b3 units\b.*\b2\b"),
        (VISITS.replace("c,70", "b,70"), r"\b2 rows\b.*\b3\b"),
        (VISITS.replace("34", ""), "missing"),
        (VISITS.replace("34", "3o"), "row 1"),
        (VISITS.replace("age", "years"), "'age'"),
        (VISITS.replace("c,", ","), "'who'"),
    ],
)
def test_data_that_differ_from_the_schema_are_a_fault_at_the_desk(tmp_path: Path, text: str, word: str) -> None:
    file = site(tmp_path)
    schema = draft_schema(file, policy(tmp_path))
    assert check_schema(file, schema, policy(tmp_path)).faults == []
    site(tmp_path, text)
    faults = check_schema(file, schema, policy(tmp_path)).faults
    assert any(re.search(word, fault) for fault in faults), faults


def test_values_outside_the_declared_range_are_counted_for_the_steward(tmp_path: Path) -> None:
    file = site(tmp_path)
    schema = draft_schema(file, policy(tmp_path))
    age = schema.columns["age"].model_copy(update={"range": (18.0, 60.0)})
    schema = schema.model_copy(update={"columns": schema.columns | {"age": age}})
    (warning,) = check_schema(file, schema, policy(tmp_path)).warnings
    assert "'age'" in warning
    assert "2 values" in warning


def test_site_serves_only_by_a_confirmed_schema(tmp_path: Path) -> None:
    file = site(tmp_path)
    with pytest.raises(BadStudy, match="--confirm"):
        confirmed_schema(file)
    drafted = draft_schema(file, policy(tmp_path))
    file.schema_path.write_text(schema_text(drafted))
    with pytest.raises(BadStudy, match="--confirm"):
        ready_schema(file, policy(tmp_path))
    confirm_schema(file, drafted)
    assert ready_schema(file, policy(tmp_path)) == drafted
    file.schema_path.write_text(schema_text(drafted).replace("units = 3", "units = 4"))
    with pytest.raises(BadStudy, match="--confirm"):
        ready_schema(file, policy(tmp_path))
    confirm_schema(file, DataSchema.load(file.schema_path))
    with pytest.raises(CheckFailed, match=r"\b4 units\b.*\b3\b"):
        ready_schema(file, policy(tmp_path))


def test_command_drafts_then_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    load("site")
    assert runner.invoke(app, ["site", "init", "north"]).exit_code == 0
    home = tmp_path / "north"
    (home / "data.csv").write_text("age\n" + "\n".join(str(30 + at) for at in range(12)) + "\n")
    command = ["site", "schema", "--site", str(home / "site.toml")]
    assert isinstance(runner.invoke(app, [*command, "--confirm"]).exception, BadStudy)  # nothing to confirm yet
    first = runner.invoke(app, command)
    assert (first.exit_code, "--confirm" in first.output) == (0, True)
    assert runner.invoke(app, [*command, "--confirm"]).exit_code == 0
    assert confirmed_schema(SiteFile.load(home / "site.toml")).units == 12
    (home / "data.csv").write_text("age\n30\n")
    assert runner.invoke(app, command).exit_code == CheckFailed.exit_code


# ---- a proposal against the schema: no row decides -------------------------------------------------------------------


def answers(folder: Path, text: str, plans: list[Plan], schema: DataSchema) -> list[str]:
    """What a site that serves would do with each plan: the refusal, or the number and the width of its units."""
    file = site(folder, text)
    found = []
    for each in plans:
        try:
            review_question(each, file, schema)
            units = served_units(each, file, schema, data_version(file))
            found.append(f"{len(units)} units of {units.columns}")
        except ZerosumError as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_answer_to_any_categories_tokens_rules_and_levels_is_the_same_for_neighbours(tmp_path: Path) -> None:
    """Finding 1 of November 2026: categories left out, tokens that are a person's value, rules by column, levels."""
    design = {"response": "dx", "ranges": {"age": (0, 100)}, "levels": {"dx": ["asthma", "none"]}}
    plans = [
        plan(tmp_path),
        plan(tmp_path, values=["asthma", "none", "hiv"]),
        plan(tmp_path, "mean", columns=["age"], lower=[0], upper=[99], missing_tokens=(70,)),
        plan(tmp_path, "mean", columns=["bmi"], lower=[0], upper=[99], missing=20.0),
        plan(tmp_path, "mean", columns=["age", "bmi"], lower=[0, 0], upper=[99, 99], missing={"age": 1.0}),
        plan(tmp_path, "logistic-regression", design=design),
    ]
    schema = draft_schema(site(tmp_path), policy(tmp_path))
    mine = answers(tmp_path, VISITS, plans, schema)
    other = answers(tmp_path, VISITS.replace("c,70,hiv,", "c,71,none,25"), plans, schema)
    assert mine == other
    assert mine[:3] == ["3 units of 1"] * 3
    assert "'bmi'" in mine[4]  # by the schema, which says that bmi may be missing
    assert mine[5] == "3 units of 2"


def test_undeclared_category_counts_as_other_and_stays_in_the_sites_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, asked = site(tmp_path), plan(tmp_path)
    schema = draft_schema(file, policy(tmp_path))
    with caplog.at_level(logging.WARNING):
        units = served_units(asked, file, schema, data_version(file))
    assert [rows[:, 0].tolist() for rows in units.each()][:2] == [[0.0], [1.0, 1.0]]
    assert np.isnan(list(units.each())[2]).all()
    assert "'dx'" in caplog.text
    with pytest.raises(BadData, match="'dx'"):  # the owner of the data is told
        load_for(asked, file)


def test_undeclared_category_is_not_filled_in_by_a_rule_for_missing_values(tmp_path: Path) -> None:
    asked = plan(tmp_path, missing="none")
    file = site(tmp_path, VISITS.replace("34,asthma", "34,"))
    units = load_for(asked, file, None, [])
    values = [rows[:, 0].tolist() for rows in units.each()]
    assert np.isnan(values[0][0])  # missing: the rule applies
    assert values[2] == [-1.0]  # hiv: counts in no category


def test_data_changed_since_the_start_are_not_read(tmp_path: Path) -> None:
    file, asked = site(tmp_path), plan(tmp_path)
    schema, version = draft_schema(file, policy(tmp_path)), data_version(file)
    (tmp_path / "data.csv").write_text(VISITS + "d,40,none,20\n")
    with pytest.raises(BadData, match="changed"):
        served_units(asked, file, schema, version)
    (tmp_path / "data.csv").unlink()
    with pytest.raises(BadData):
        served_units(asked, file, schema, version)


@pytest.mark.parametrize("row", ["d,40,none,20\n", "d\n"])
def test_data_changed_while_they_are_read_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    """Whether the new rows could be read or not, the error is the same."""
    file, asked = site(tmp_path), plan(tmp_path)
    schema, version = draft_schema(file, policy(tmp_path)), data_version(file)

    def changed(*given: Any) -> Any:
        (tmp_path / "data.csv").write_text(VISITS + row)
        return load_for(*given)

    monkeypatch.setattr("zerosum.study.site_schema.load_for", changed)
    with pytest.raises(BadData, match="changed since"):
        served_units(asked, file, schema, version)


def test_label_for_a_category_that_no_plan_names_is_skipped(tmp_path: Path) -> None:
    """A site's labels serve many plans; which of them a plan names must not end in a refusal."""
    labels = {"A": "asthma", "H": "hiv", "none": "asthma"}
    file = site(tmp_path, VISITS.replace("34,asthma", "34,A"))
    schema = DataSchema(units=3, rows_per_unit=2, columns={"dx": ColumnSchema(type="category", labels=labels)})
    values = [rows[:, 0].tolist() for rows in load_for(plan(tmp_path), file, schema, []).each()]
    assert values[:2] == [[0.0], [1.0, 1.0]]  # the plan's own category comes before a label of that name


def imaging_plan(folder: Path, **prepared: Any) -> Plan:
    study = Study(
        name="s",
        algorithm="pca",
        parameters={"n_components": 2, "clip": 10.0},
        unit={"kind": "person"},
        privacy={"epsilon": 1.0, "delta": 1e-5},
        sites=[{"name": "north"}, {"name": "east"}, {"name": "west"}],
        folder=folder,
        imaging={"mask": "mask.nii.gz", **prepared},
    )
    return study.plan()


def test_run_that_does_not_fit_the_preprocessing_counts_as_zeros(tmp_path: Path) -> None:
    """Findings 2 of November 2026: one person's motion, clock or run length must not change count or consent."""
    runs: dict[str, Sequence[tuple[str, int]]] = {f"sub-{at}": [("task-rest", 40)] for at in range(1, 4)}
    for name, moved, seconds in (("calm", 0.1, 2.0), ("moving", 9.0, 2.0), ("slow", 0.1, 8.0)):
        folder = bids(tmp_path / name / "data", runs)
        save(tmp_path / name / "mask.nii.gz", mask(), None)
        for at, run in enumerate(sorted(folder.rglob("*_bold.nii.gz"))):
            if at == 1:
                save(run, volumes(5), seconds)
            own = [moved] * 40 if at == 1 else [0.1] * 40
            stem = run.name.removesuffix("_bold.nii.gz")
            table(run.with_name(f"{stem}_desc-confounds_timeseries.tsv"), {"framewise_displacement": own})
    files = {
        name: SiteFile(name="north", data=Path("data"), folder=tmp_path / name, files=(Path("mask.nii.gz"),))
        for name in ("calm", "moving", "slow")
    }
    schema = draft_schema(files["calm"], policy(tmp_path))
    for prepared in ({"scrub_mm": 0.5}, {"band": (0.01, 0.1)}, {}):
        asked = imaging_plan(tmp_path / "calm", **prepared)
        for name, file in files.items():
            review_question(asked, file, schema)
            units = served_units(asked, file, schema, data_version(file))
            assert len(units) == 3
            second = list(units.each())[1]
            gone = (name, prepared) in (("moving", {"scrub_mm": 0.5}), ("slow", {"band": (0.01, 0.1)}))
            assert bool(np.all(second == 0)) == gone


@pytest.mark.parametrize(
    "prepared",
    [
        {"band": (0.01, 0.3)},
        {"confounds": ("x",)},
        {"strategy": "compcor"},
        {"scrub_mm": 0.5},
        {"task": "play"},
    ],
)
def test_preprocessing_that_the_declared_runs_do_not_allow_is_refused(tmp_path: Path, prepared: dict[str, Any]) -> None:
    bids(tmp_path / "data", {"sub-1": [("task-rest", 40)]})
    save(tmp_path / "mask.nii.gz", mask(), None)
    file = SiteFile(name="north", data=Path("data"), folder=tmp_path, files=(Path("mask.nii.gz"),))
    schema = draft_schema(file, policy(tmp_path))
    review_question(imaging_plan(tmp_path), file, schema)
    with pytest.raises(PolicyRefused):
        review_question(imaging_plan(tmp_path, **prepared), file, schema)


def test_grid_that_is_not_the_declared_one_is_refused_without_resampling(tmp_path: Path) -> None:
    bids(tmp_path / "data", {"sub-1": [("task-rest", 40)]})
    save(tmp_path / "mask.nii.gz", np.ones((3, 3, 3), np.uint8), None)
    file = SiteFile(name="north", data=Path("data"), folder=tmp_path, files=(Path("mask.nii.gz"),))
    schema = draft_schema(file, policy(tmp_path))
    with pytest.raises(PolicyRefused, match="resample"):
        review_question(imaging_plan(tmp_path), file, schema)
    review_question(imaging_plan(tmp_path, resample=True), file, schema)


def test_plan_for_another_kind_of_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.text").write_text("a lake\na boat\n")
    file = SiteFile(name="north", data=Path("letters.text"), folder=tmp_path)
    schema = draft_schema(file, policy(tmp_path))
    with pytest.raises(PolicyRefused, match="documents"):
        review_question(plan(tmp_path), file, schema)


def test_check_compares_data_and_plan_with_the_confirmed_schema(tmp_path: Path) -> None:
    """At the steward's desk: both what the site would refuse, and what does not fit its schema."""
    file = site(tmp_path, policy={"population": "p", "minimum_units": 1, "ledger": "ledger.sqlite"})
    study = Study(
        name="s",
        algorithm="mean",
        parameters={"columns": ["age", "bmi"], "lower": [0, 0], "upper": [99, 99], "missing": {"age": 50.0}},
        unit={"kind": "person"},
        privacy={"epsilon": 1.0, "delta": 1e-5},
        sites=[{"name": "north"}, {"name": "east"}, {"name": "west"}],
        folder=tmp_path,
    ).with_sites([file])
    (before,) = check_study(study)
    schema = draft_schema(file, policy(tmp_path))
    file.schema_path.write_text(schema_text(schema))
    confirm_schema(file, schema)
    (after,) = check_study(study)
    (fault,) = set(after.faults) - set(before.faults)
    assert "'bmi'" in fault
    site(tmp_path, VISITS + "d,1,none,1\n")
    (grown,) = check_study(study)
    assert any(re.search(r"\b3 units\b.*\b4\b", fault) for fault in grown.faults)


def test_draft_of_a_parquet_file_has_days_and_leaves_lists_out(tmp_path: Path) -> None:
    """No plan can ask about a column that holds neither numbers, dates nor text."""
    columns = {
        "age": [34.0, 55.0],
        "day": pa.array([0, 86400], pa.timestamp("s")),
        "seen": [[0], [1]],
        "who": ["a", "b"],
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    file = SiteFile(name="north", data=Path("data.parquet"), folder=tmp_path, unit_column="who")
    drafted = draft_schema(file, policy(tmp_path))
    assert list(drafted.columns) == ["age", "day"]
    assert (drafted.columns["day"].type, drafted.columns["day"].date) == ("number", "%Y-%m-%d")
    assert check_schema(file, drafted, policy(tmp_path)).faults == []
    with pytest.raises(PolicyRefused, match="'seen'"):
        review_question(plan(tmp_path, "mean", columns=["seen"], lower=[0], upper=[9]), file, drafted)


# ---- found by a reader with fresh eyes: most broke the rule for two data sets that fit one schema --------------------


@pytest.mark.parametrize(
    ("kind", "cells", "values"),
    [
        (pa.bool_(), [True, False, True, True], [0, 1]),
        (pa.int64(), [2**53, 2**53 + 1, 1, 2], [2.0**53, 1]),
        (pa.float64(), [float("nan"), 1.0, 2.0, 1.0], ["nan", 1]),
        (pa.int8(), [1, 2, 3, 1], ["1", 2]),
    ],
)
def test_null_of_one_person_leaves_the_cells_of_others_as_they_are(
    tmp_path: Path, kind: Any, cells: list[Any], values: list[Any]
) -> None:
    """A column was decoded as numbers without nulls and as text with one, and so for everybody in its batch."""
    loaded = []
    for last in (cells[-1], None):
        pq.write_table(pa.table({"dx": pa.array([*cells[:-1], last], kind)}), tmp_path / "data.parquet")
        file = SiteFile(name="north", data=Path("data.parquet"), folder=tmp_path)
        asked = plan(tmp_path, values=values, missing="observed")
        loaded.append(np.asarray(load_for(asked, file, None, []).rows)[:-1].tobytes())
    assert loaded[0] == loaded[1]


def test_smoothing_that_needs_memory_without_bound_is_refused_by_the_plan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="smoothing_mm"):
        imaging_plan(tmp_path, smoothing_mm=1e14)


def test_run_that_takes_too_much_memory_counts_as_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a run is left to be cleaned depends on motion: no memory for it is that run's fault, and no refusal."""
    bids(tmp_path / "data", {"sub-1": [("task-rest", 40)], "sub-2": [("task-rest", 40)]})
    save(tmp_path / "mask.nii.gz", mask(), None)
    file = SiteFile(name="north", data=Path("data"), folder=tmp_path, files=(Path("mask.nii.gz"),))

    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(imaging, "read_scan", full)
    units = load_for(imaging_plan(tmp_path), file, None, [])
    assert [bool(np.all(rows == 0)) for rows in units.each()] == [True, True]


def test_library_that_is_not_installed_is_a_refusal_for_every_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bids(tmp_path / "data", {"sub-1": [("task-rest", 40)]})
    save(tmp_path / "mask.nii.gz", mask(), None)
    file = SiteFile(name="north", data=Path("data"), folder=tmp_path, files=(Path("mask.nii.gz"),))
    schema, asked = draft_schema(file, policy(tmp_path)), imaging_plan(tmp_path, detrend=True)
    review_question(asked, file, schema)
    monkeypatch.setitem(sys.modules, "nilearn", None)
    with pytest.raises(ZerosumError, match="nilearn"):
        review_question(asked, file, schema)


def test_names_of_a_wide_table_are_read_in_its_own_encoding(tmp_path: Path) -> None:
    """The header was decoded as UTF-8 whatever the site's file says, and with it the first rows."""
    names = ["name", *(f"x{at}" for at in range(1200))]
    for first in ("Mueller", "Müller"):
        lines = [";".join(names), *(";".join([first, *["1"] * 1200]) for _ in range(3))]
        (tmp_path / "data.csv").write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
        file = SiteFile(name="north", data=Path("data.csv"), folder=tmp_path, delimiter=";", encoding="latin-1")
        schema = draft_schema(file, policy(tmp_path))
        assert schema.n_columns == 1201
        assert schema.columns["name"].type == "category"  # what is no number is listed
        assert check_schema(file, schema, policy(tmp_path)).faults == []
        asked = plan(tmp_path, "mean", columns=names[1:], lower=[0] * 1200, upper=[2] * 1200)
        with pytest.raises(BadParameter, match="columns"):
            review_question(asked, file, schema)


def test_link_of_one_person_is_a_fault_whatever_is_selected(tmp_path: Path) -> None:
    folder = bids(tmp_path / "data", {"sub-1": [("task-rest", 40)], "sub-2": [("task-rest", 40)]})
    outside = save(tmp_path / "elsewhere.nii.gz", volumes(3))
    (folder / "sub-2/func/sub-2_task-play_bold.nii.gz").symlink_to(outside)
    for selection in (None, Selection(task="rest"), Selection(task="play")):
        with pytest.raises(BadData, match="link"):
            find_recordings(folder, selection, [])


def test_design_with_too_many_terms_is_refused_before_they_are_listed(tmp_path: Path) -> None:
    levels = {name: [f"{name}{at}" for at in range(900)] for name in ("a", "b")} | {"dx": ["asthma", "none"]}
    with pytest.raises(ValueError, match="809999 terms"):
        plan(tmp_path, "logistic-regression", design={"response": "dx", "levels": levels, "interactions": [["a", "b"]]})


def test_table_with_two_columns_of_one_name_is_a_fault_at_the_desk(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="columns"):
        draft_schema(site(tmp_path, "who,age,age\na,1,2\n"), policy(tmp_path))


def test_check_schema_numeric_token_in_quotes_counts_as_missing(tmp_path: Path) -> None:
    file = site(tmp_path, VISITS.replace("34", "-9"))
    schema = draft_schema(file, policy(tmp_path))
    age = schema.columns["age"].model_copy(update={"tokens": ("-9",)})
    schema = schema.model_copy(update={"columns": schema.columns | {"age": age}})
    (fault,) = check_schema(file, schema, policy(tmp_path)).faults
    assert "'age'" in fault


def test_file_put_in_place_with_the_same_size_and_time_is_another_version(tmp_path: Path) -> None:
    file = site(tmp_path)
    before, old = data_version(file), file.path.stat()
    (tmp_path / "new").write_text(VISITS.replace("34", "43"))
    os.utime(tmp_path / "new", ns=(old.st_atime_ns, old.st_mtime_ns))
    (tmp_path / "new").replace(file.path)
    assert data_version(file) != before


def test_column_name_with_a_control_character_is_written_as_toml(tmp_path: Path) -> None:
    drafted = draft_schema(site(tmp_path, 'who,a\x7fb "c"\na,1\n'.replace('"c"', "c")), policy(tmp_path))
    path = tmp_path / "schema.toml"
    path.write_text(schema_text(drafted))
    assert DataSchema.load(path) == drafted
