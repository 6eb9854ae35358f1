"""Plans that are written, approved and run; studies whose public and private parts are files of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command_line import STUDY, as_json, assert_refused, write_study
from helpers.command_line import zerosum_process as zerosum
from zerosum.errors import LedgerRefused, Refused

PUBLIC = STUDY + '\n[[sites]]\nname = "s0"\n\n[[sites]]\nname = "s1"\n\n[[sites]]\nname = "s2"\n'


def test_cli_run_of_written_plan_succeeds_once(tmp_path: Path) -> None:
    write_study(tmp_path)
    planned = as_json(zerosum("plan", "study.toml", "--out", "plan.json", "--json", cwd=tmp_path))
    done = zerosum("run", "study.toml", "--plan", "plan.json", "--out", "result", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    privacy = as_json(done)["privacy"]
    assert privacy["study"] == planned["study"] == json.loads((tmp_path / "plan.json").read_text())["study"]
    assert privacy["public_digest"] == planned["public_digest"]
    again = zerosum("run", "study.toml", "--plan", "plan.json", "--out", "again", "--json", cwd=tmp_path)
    assert_refused(again, "ledger", error=LedgerRefused)
    assert not (tmp_path / "again").exists()


def test_cli_plan_written_twice_differs_in_study_name_only(tmp_path: Path) -> None:
    write_study(tmp_path)
    records = []
    for name in ("one.json", "two.json"):
        planned = as_json(zerosum("plan", "study.toml", "--out", name, "--json", cwd=tmp_path))
        record = json.loads((tmp_path / name).read_text())
        records.append((record.pop("study"), record, planned["public_digest"], planned["plan_digest"]))
    (a, one, public, digest), (b, two, public2, digest2) = records
    assert a != b
    assert one == two
    assert public == public2
    assert digest != digest2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("upper = [100, 200]", "upper = [100, 201]"),
        ('columns = ["age", "pressure"]', 'columns = ["pressure", "age"]'),
        ("epsilon = 2.0", "epsilon = 2.1"),
        ('name = "s2"', 'name = "s3"'),
        ('kind = "person"', 'kind = "record"'),
    ],
)
def test_cli_run_plan_of_other_study_is_refused(old: str, new: str, tmp_path: Path) -> None:
    study = write_study(tmp_path)
    zerosum("plan", "study.toml", "--out", "plan.json", cwd=tmp_path)
    study.write_text(study.read_text().replace(old, new))
    done = zerosum("run", "study.toml", "--plan", "plan.json", "--out", "result", "--json", cwd=tmp_path)
    assert_refused(done, "digest", error=Refused)
    assert not (tmp_path / "state").exists()


def test_cli_run_file_without_plan_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path)
    for text in ("", "{}", "not json"):
        (tmp_path / "plan.json").write_text(text)
        done = zerosum("run", "study.toml", "--plan", "plan.json", "--out", "result", "--json", cwd=tmp_path)
        assert_refused(done, "plan")
    done = zerosum("run", "study.toml", "--plan", "nothing.json", "--out", "result", "--json", cwd=tmp_path)
    assert_refused(done, "read")


def test_cli_run_public_study_with_site_files_charges_each_ledger(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "public.toml").write_text(PUBLIC)
    whole = as_json(zerosum("plan", "study.toml", "--json", cwd=tmp_path))
    public = as_json(zerosum("plan", "public.toml", "--json", cwd=tmp_path))
    assert whole["public_digest"] == public["public_digest"]  # where data lie is no part of the question
    for s in range(3):
        (tmp_path / f"s{s}.toml").write_text(f'name = "s{s}"\ndata = "{s}.csv"\n\n[policy]\npopulation = "p{s}"\n')
    assert_refused(zerosum("run", "public.toml", "--out", "r", "--json", cwd=tmp_path), "'s0'")
    files = [argument for s in range(3) for argument in ("--site", f"s{s}.toml")]
    done = zerosum("run", "public.toml", *files, "--out", "result", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert len(list((tmp_path / "state" / "ledgers").glob("p*.sqlite"))) == 3


def test_cli_run_bad_site_file_gives_one_sentence(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "public.toml").write_text(PUBLIC)
    for text, word in (
        ('name = "stranger"\ndata = "0.csv"\n', "'stranger'"),
        ('name = "s0"\n', "data"),
        ('name = "s0"\ndata = "0.csv"\nfolder = "x"\n', "folder"),
        ('name = "s0"\ndata = "0.csv"\nepsilon = 3\n', "epsilon"),
        ("not toml", "TOML"),
    ):
        (tmp_path / "site.toml").write_text(text)
        done = zerosum("run", "study.toml", "--site", "site.toml", "--out", "r", "--json", cwd=tmp_path)
        assert_refused(done, word)
    assert_refused(zerosum("run", "study.toml", "--site", "none.toml", "--out", "r", "--json", cwd=tmp_path), "read")
    assert not (tmp_path / "r").exists()


def test_cli_run_result_has_question_and_quantities(tmp_path: Path) -> None:
    write_study(tmp_path)
    done = as_json(zerosum("run", "study.toml", "--out", "result", "--json", cwd=tmp_path))
    question = done["privacy"]["question"]
    assert question["columns"] == ["age", "pressure"]
    assert question["parameters"]["lower"] == [0, 60]
    mean = done["quantities"]["mean"]
    assert mean["kind"] == "mean"
    assert mean["axes"] == [{"name": "column", "labels": ["age", "pressure"]}]
    assert mean["std"] == done["estimate"]["noise_std"]


def test_cli_plan_onto_existing_file_is_refused(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    text = study.read_text()
    assert_refused(zerosum("plan", "study.toml", "--out", "study.toml", "--json", cwd=tmp_path), "study.toml")
    assert study.read_text() == text


def test_cli_run_plan_with_other_digest_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path)
    planned = as_json(zerosum("plan", "study.toml", "--out", "plan.json", "--json", cwd=tmp_path))
    approved = planned["plan_digest"]
    asked = ("run", "study.toml", "--plan", "plan.json", "--json")
    assert_refused(zerosum(*asked, "--digest", "0" * 64, "--out", "r", cwd=tmp_path), "digest")
    record = json.loads((tmp_path / "plan.json").read_text())
    for change in ({"study": "another"}, {"nosuch": 1}):
        (tmp_path / "changed.json").write_text(json.dumps(record | change))
        changed = ("run", "study.toml", "--plan", "changed.json", "--digest", approved, "--out", "r", "--json")
        assert zerosum(*changed, cwd=tmp_path).returncode == 2
    for site in record["sites"]:
        site["identity"] = "ab" * 32
    (tmp_path / "changed.json").write_text(json.dumps(record))
    pinned = zerosum("run", "study.toml", "--plan", "changed.json", "--out", "r", "--json", cwd=tmp_path)
    assert_refused(pinned, "identity")
    done = as_json(zerosum(*asked, "--digest", approved, "--out", "result", cwd=tmp_path))
    assert done["privacy"]["proposal_digest"] == approved
    assert done["privacy"]["plan_digest"] != approved  # with the keys of those who took part


def test_cli_plan_without_unit_is_refused(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    study.write_text(study.read_text().replace('[unit]\nkind = "person"\n', ""))
    assert_refused(zerosum("plan", "study.toml", "--json", cwd=tmp_path), "unit")


def test_cli_run_with_checkpoint_gives_same_result_again(tmp_path: Path) -> None:
    write_study(tmp_path, STUDY.replace("[privacy]", "[privacy]\nattempts = 2"))
    records = []
    for out in ("one", "two"):
        done = zerosum("run", "study.toml", "--checkpoint", "kept", "--out", out, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        records.append(as_json(done))
    assert records[0] | {"folder": ""} == records[1] | {"folder": ""}
    assert records[0]["privacy"]["attempts"] == 2
    write_study(tmp_path)
    other = zerosum("run", "study.toml", "--checkpoint", "kept", "--out", "three", "--json", cwd=tmp_path)
    assert_refused(other, "study")


def test_cli_run_missing_device_is_refused_before_spending(tmp_path: Path) -> None:
    """Whoever asks for one that is not here hears of it before anything is spent."""
    study = write_study(tmp_path)
    plain = as_json(zerosum("plan", "study.toml", "--json", cwd=tmp_path))
    done = zerosum("run", "study.toml", "--out", "result", "--device", "cuda:99", "--json", cwd=tmp_path)
    assert_refused(done, "PyTorch")
    assert not (tmp_path / "state").exists()
    study.write_text(study.read_text().replace('name = "s0"\n', 'name = "s0"\ndevice = "cuda:99"\n'))
    assert as_json(zerosum("plan", "study.toml", "--json", cwd=tmp_path))["public_digest"] == plain["public_digest"]
    assert_refused(zerosum("run", "study.toml", "--out", "result", "--json", cwd=tmp_path), "PyTorch")
    done = zerosum("run", "study.toml", "--out", "result", "--device", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    study.write_text(study.read_text().replace("cuda:99", "toaster"))
    assert_refused(zerosum("run", "study.toml", "--out", "again", "--json", cwd=tmp_path), "device")
