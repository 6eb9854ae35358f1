"""Everything that would stop a study is said at once, before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.command_line import STUDY, as_json, assert_refused, write_study, zerosum
from zerosum import Study
from zerosum.errors import BadStudy, BudgetExceeded, PolicyRefused
from zerosum.site.budget import check_budget
from zerosum.study import SiteFile
from zerosum.study.checking import check_study


def test_check_study_of_sound_study_has_no_fault_and_writes_nothing(tmp_path: Path) -> None:
    study = Study.load(write_study(tmp_path))
    before = sorted(tmp_path.iterdir())
    found = check_study(study)
    assert [(each.site, each.faults, each.warnings, each.units) for each in found] == [
        ("s0", [], [], 15),
        ("s1", [], [], 30),
        ("s2", [], [], 60),
    ]
    assert found[0].left is not None
    assert 8 < found[0].left < 10
    assert sorted(tmp_path.iterdir()) == before  # no ledger, no state folder


def test_cli_check_reports_all_faults_at_once(tmp_path: Path) -> None:
    text = STUDY.replace("upper = [100, 200]", "upper = [10, 200]").replace("epsilon = 2.0", "epsilon = 12.0")
    path = write_study(tmp_path, text)
    policy = 'policy = { population = "x", minimum_units = 100, statistics = ["histogram"], minimum_colluders = 2 }'
    path.write_text(path.read_text().replace('data = "0.csv"', f'data = "0.csv"\n{policy}'))
    (tmp_path / "1.csv").write_text("age,pressure\n50,120\n50,secret\n")
    done = zerosum("check", "study.toml", "--json", cwd=tmp_path)
    assert done.returncode == 4
    first, second, third = as_json(done)["sites"]
    for word in ("'vector_sum'", "2 colluding", "100 units", "cap of 10"):
        assert any(word in fault for fault in first["faults"]), word
    (warning,) = first["warnings"]
    assert all(word in warning for word in ("'age'", "100%", "0 to 10"))
    assert any("'pressure'" in fault for fault in second["faults"])
    assert "secret" not in done.stdout
    assert len(third["faults"]) == 1
    shown = zerosum("check", "study.toml", cwd=tmp_path).stdout
    assert "rehearsal" in shown
    assert "'pressure'" in shown
    assert not (tmp_path / "state").exists()


def test_cli_check_of_one_site_checks_own_part_only(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "public.toml").write_text(STUDY + "".join(f'\n[[sites]]\nname = "s{s}"\n' for s in range(3)))
    (tmp_path / "s1.toml").write_text('name = "s1"\ndata = "1.csv"\n\n[policy]\npopulation = "p1"\n')
    with pytest.raises(BadStudy, match="file"):
        check_study(Study.load(tmp_path / "public.toml"))
    (found,) = check_study(Study.load(tmp_path / "public.toml").with_sites([SiteFile.load(tmp_path / "s1.toml")]))
    assert (found.site, found.faults) == ("s1", [])
    said = zerosum("check", "public.toml", "--site", "s1.toml", cwd=tmp_path)
    assert said.returncode == 0
    assert "rehearsal" not in said.stdout


def test_cli_plan_above_cap_is_refused_without_reading_data(tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY.replace("epsilon = 2.0", "epsilon = 11.0"))
    for s in range(3):
        (tmp_path / f"{s}.csv").unlink()
    assert_refused(zerosum("plan", "study.toml", "--json", cwd=tmp_path), "cap of 10", error=BudgetExceeded)
    done = zerosum("run", "study.toml", "--out", "r", "--json", cwd=tmp_path)
    assert_refused(done, "cap of 10", error=BudgetExceeded)
    with pytest.raises(BudgetExceeded):
        Study.load(path).run()
    path.write_text(path.read_text().replace("epsilon = 11.0", "epsilon = 1.0\nrandom_state = 3"))
    with pytest.raises(PolicyRefused, match="seed"):
        Study.load(path).run()
    planned = as_json(zerosum("plan", "study.toml", "--json", cwd=tmp_path))
    assert "seed" in planned["refusals"][0]  # said, and shown all the same
    assert not (tmp_path / "state").exists()


def test_check_budget_after_run_counts_spent_epsilon(tmp_path: Path) -> None:
    text = STUDY.replace("delta = 1e-5", 'delta = 1e-5\nnoise = "gaussian"')
    study = Study.load(write_study(tmp_path, text))
    study.run()
    (file, *_), plan = study.site_files, study.plan()
    policy = file.load_policy("person", plan.adjacency)
    left = check_budget(plan, 0, policy)
    assert left is not None
    assert left == pytest.approx(9.2086, abs=1e-3)  # two studies of epsilon 2 under a cap of 10
    with pytest.raises(BudgetExceeded, match=r"epsilon 2\b"):
        check_budget(plan, 0, policy.model_copy(update={"epsilon": 2.5}))


def test_check_study_range_far_wider_than_data_is_warned_of(tmp_path: Path) -> None:
    study = Study.load(write_study(tmp_path, STUDY.replace("upper = [100, 200]", "upper = [1e6, 200]")))
    for each in check_study(study):
        assert all(word in each.warnings[0] for word in ("'age'", "0.0%"))


def test_check_study_ranges_of_description_are_warned_of(tmp_path: Path) -> None:
    text = STUDY.replace('"mean"', '"describe"').replace("lower = [0, 60]\n", "")
    text = text.replace("upper = [100, 200]", "ranges = { age = [500, 900], pressure = [60, 1e6] }")
    for each in check_study(Study.load(write_study(tmp_path, text))):
        first, second = each.warnings
        assert all(word in first for word in ("'age'", "100%", "500 to 900"))
        assert all(word in second for word in ("'pressure'", "0.0%"))


DESIGN = """
name = "outcome"
algorithm = "linear-regression"

[design]
response = "pressure"
ranges = {{ age = [0, 100], chol = [100, 400], dose = [0, 10], pressure = [60, 200] }}
missing = {{ chol = "own-rows" }}

[unit]
kind = "person"

[privacy]
epsilon = 2.0
delta = 1e-5

{sites}"""


def design_study(folder: Path, doses: str) -> Study:
    for s in range(3):
        # Cholesterol of half of the people is missing, and that of the others lies at one end of the range.
        rows = [f"{20 + i},{150 if i % 2 else ''},{doses},{100 + i}" for i in range(40)]
        rows[0] = rows[0].replace("20,", "120,", 1)
        (folder / f"{s}.csv").write_text("age,chol,dose,pressure\n" + "\n".join(rows) + "\n")
    sites = "".join(f'\n[[sites]]\nname = "s{s}"\ndata = "{s}.csv"\n' for s in range(3))
    (folder / "study.toml").write_text(DESIGN.format(sites=sites))
    return Study.load(folder / "study.toml")


def test_check_study_of_design_counts_values_outside_and_warns_of_moved_mean(tmp_path: Path) -> None:
    for found in check_study(design_study(tmp_path, "5")):
        assert found.faults == []
        outside, moved = found.warnings[:2]
        assert all(word in outside for word in ("'age'", "1 of 40", "0 to 100"))
        assert all(word in moved for word in ("'chol'", "50%", "own-rows", "150", "200"))


def test_check_study_missing_values_are_named_once_with_rules_of_algorithm(tmp_path: Path) -> None:
    study = design_study(tmp_path, "")
    for s in range(3):
        text = (tmp_path / f"{s}.csv").read_text()
        (tmp_path / f"{s}.csv").write_text(text.replace(",139", ","))
    for found in check_study(study):
        (fault,) = found.faults
        assert "'dose' and column 'pressure'" in fault
        assert fault.count("complete-cases") == 1
        assert "observed" not in fault


def test_check_study_decimal_comma_is_named(tmp_path: Path) -> None:
    for found in check_study(design_study(tmp_path, '"3,5"')):
        assert "decimal comma" in found.faults[0]
        assert "3,5" not in found.faults[0]
