"""A steward's questions, asked on the command line."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

from helpers.command_line import STUDY, as_json, assert_refused, write_study, zerosum

POLICY = """
population = "cohort 7"
epsilon = 8.0
delta = 1e-6
ledger = "ledgers/cohort-7.sqlite"
counter = "counters/cohort-7.counter"
"""


@pytest.fixture
def spent(tmp_path: Path) -> Path:
    """A folder with a study that was run, whose first site has a policy with a ledger and a counter of its own."""
    (tmp_path / "policy.toml").write_text(POLICY)
    study = write_study(tmp_path, STUDY.replace("[parameters]", 'measured_in = { age = "years" }\n\n[parameters]'))
    # Laplace noise, whose cost is no mu.
    study.write_text(study.read_text().replace("delta = 1e-5", 'delta = 1e-5\nnoise = "laplace"'))
    study.write_text(study.read_text().replace('data = "0.csv"', 'data = "0.csv"\npolicy = "policy.toml"'))
    done = zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "age (years)" in done.stdout
    assert "0 to 100" in done.stdout
    return tmp_path


def test_cli_ledger_show_has_study_columns_and_epsilon_left(spent: Path) -> None:
    record = as_json(zerosum("ledger", "show", "--policy", "policy.toml", "--json", cwd=spent))
    assert record["cap"] == {"epsilon": 8.0, "delta": 1e-6}
    assert record["delta"] == 1e-6
    # At a smaller delta than the study's: its Laplace noise has epsilon 2 at delta 0.
    assert record["epsilon"] == pytest.approx(2.0, abs=3e-6)
    assert 8 - record["epsilon"] < record["left"] < 8
    (study,) = record["studies"]
    assert study["asked"]["algorithm"] == "mean"
    assert study["asked"]["columns"] == ["age", "pressure"]
    assert study["asked"]["bounds"]["upper"] == [100, 200]
    assert study["asked"]["preprocessing"] == {"measured_in": {"age": "years"}}
    shown = zerosum("ledger", "show", "--policy", "policy.toml", cwd=spent).stdout
    for word in ("cohort 7", "vitals", "pressure (60 to 200)", "cap of 8", f"{record['left']:.4f}"):
        assert word in shown
    result = as_json(zerosum("results", "--json", cwd=spent))[0]
    assert study["plan"].startswith(result["id"])


def test_cli_ledger_without_path_finds_ledgers_of_runs(spent: Path) -> None:
    records = as_json(zerosum("ledger", "show", "--json", cwd=spent))
    assert sorted(record["account"]["population"] for record in records) == ["cohort 7", "s1", "s2"]
    assert "1 entry\n" in zerosum("ledger", "verify", cwd=spent).stdout
    assert as_json(zerosum("ledger", "verify", "--policy", "policy.toml", "--json", cwd=spent))["sound"]
    place = "ledgers/cohort-7.sqlite"
    counter = ("--counter", "counters/cohort-7.counter")
    for said in ((), counter):  # it is known where the counter lies
        record = as_json(zerosum("ledger", "show", place, *said, "--json", cwd=spent))
        assert record["entries"]
        assert record["newest"]
    assert_refused(zerosum("ledger", "show", place, "--counter", "nowhere", "--json", cwd=spent), "nowhere")
    (spent / "counters" / "cohort-7.counter").unlink()
    assert_refused(zerosum("ledger", "show", place, "--json", cwd=spent), "counter")
    assert_refused(zerosum("ledger", "show", *counter, "--json", cwd=spent), "--counter")
    assert_refused(zerosum("ledger", "show", "--csv", "--json", cwd=spent), "--csv")
    assert_refused(zerosum("ledger", "show", "--delta", "2", "--json", cwd=spent), "delta")


def test_cli_ledger_copy_without_counter_is_read_and_unchanged(spent: Path) -> None:
    """A ledger that is spent on is not: without its counter an older one could take its place."""
    (spent / "auditor").mkdir()
    copy = Path(shutil.copy(spent / "ledgers" / "cohort-7.sqlite", spent / "auditor" / "copy.sqlite"))
    before = copy.read_bytes()
    verified = as_json(zerosum("ledger", "verify", "auditor/copy.sqlite", "--json", cwd=spent))
    assert verified["sound"]
    assert "newest" in verified["note"]
    assert as_json(zerosum("ledger", "show", "auditor/copy.sqlite", "--json", cwd=spent))["newest"] is None
    witnessed = ("--counter", "counters/cohort-7.counter")
    assert as_json(zerosum("ledger", "show", "auditor/copy.sqlite", *witnessed, "--json", cwd=spent))["newest"]
    assert copy.read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == ["copy.sqlite"]
    copy.write_bytes(before.replace(b"vitals", b"vitalz"))
    assert zerosum("ledger", "verify", "auditor/copy.sqlite", cwd=spent).returncode == 4


def test_cli_ledger_show_csv_has_line_for_each_entry(spent: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(zerosum("ledger", "show", "--csv", cwd=spent).stdout)))
    assert len(lines) == 3
    assert {line["columns"] for line in lines} == {"age;pressure"}
    assert {line["algorithm"] for line in lines} == {"mean"}
    assert all(float(line["charged_mu"]) > 0 for line in lines)
    # The cost of a mean with Laplace noise is no mu; people see the law beside the number.
    assert {line["noise"] for line in lines} == {"laplace"}
    assert f"epsilon {float(lines[0]['charged_mu']):.4f}" in " ".join(
        zerosum("ledger", "show", cwd=spent).stdout.split()
    )


def test_cli_ledger_missing_file_is_named(tmp_path: Path) -> None:
    write_study(tmp_path)
    assert zerosum("run", "study.toml", "--out", "result", cwd=tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "state" / "ledgers")
    for command in ("show", "verify"):
        said = zerosum("ledger", command, cwd=tmp_path).stdout
        assert all(f"s{s}" in said for s in range(3))
    lines = as_json(zerosum("ledger", "verify", "--json", cwd=tmp_path))
    assert [line["sound"] for line in lines] == [False] * 3
