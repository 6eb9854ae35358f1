"""Reports at the command line: written with every result, verified, and a site's own copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command_line import STUDY, as_json, assert_refused, write_study, zerosum
from zerosum.errors import CheckFailed, PolicyRefused
from zerosum.secagg.keys import Identity


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_cli_run_writes_report_that_verifies(tmp_path: Path) -> None:
    write_study(tmp_path)
    done = zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    assert "result/report.html" in done.stdout
    identity = as_json(zerosum("coordinator", "init", "--json", cwd=tmp_path))["identity"]
    found = as_json(zerosum("verify", "result", "--json", cwd=tmp_path))
    assert found["unchanged"]
    assert found["own_key"]
    assert found["pinned_by"] == []
    assert found["key"] == identity
    assert len(found["files"]) == 5
    assert identity in zerosum("verify", "result", cwd=tmp_path).stdout
    known = zerosum("verify", "result/report.html", "--key", identity, "--plan", "result/plan.json", cwd=tmp_path)
    assert "--key" in known.stdout
    assert "plan" in known.stdout
    stranger = Identity().public.hex()
    assert_refused(
        zerosum("verify", "result", "--key", stranger, "--json", cwd=tmp_path), "--key", code=4, error=CheckFailed
    )
    assert_refused(zerosum("verify", "result", "--key", "abc", "--json", cwd=tmp_path), "32 bytes")
    assert_refused(zerosum("verify", "nothing", "--json", cwd=tmp_path), ".html")


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_cli_verify_changed_byte_is_refused(name: str, tmp_path: Path) -> None:
    write_study(tmp_path)
    zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    path = tmp_path / "result" / name
    size = path.stat().st_size
    for at in (0, size // 3, size - 300, size - 100, size - 1):
        flip(path, at)
        for given in ("result", "result/report.html", "result/report.json"):
            assert_refused(zerosum("verify", given, "--json", cwd=tmp_path), name, code=4)
        flip(path, at)
    assert zerosum("verify", "result", cwd=tmp_path).returncode == 0


def test_cli_verify_without_pinned_key_checks_integrity_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path)
    zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "elsewhere"))
    (tmp_path / "policy.toml").write_text('population = "p"\n')
    for more in ((), ("--plan", "result/plan.json"), ("--policy", "policy.toml")):
        done = zerosum("verify", "result", *more, cwd=tmp_path)
        assert done.returncode == 0
        assert "integrity" in done.stderr
    assert not (tmp_path / "elsewhere").exists()  # to verify makes no key


def test_cli_verify_accepts_coordinator_pinned_by_study_and_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = as_json(zerosum("coordinator", "init", "--json", cwd=tmp_path))["identity"]
    pinned = f'coordinator = "{identity}"\n'
    (tmp_path / "policy.toml").write_text(f'population = "p"\n{pinned}')
    study = write_study(tmp_path, pinned + STUDY)
    for at in range(3):
        data, policy = f'data = "{at}.csv"\n', f'policy = {{ population = "p{at}", {pinned.strip()} }}\n'
        study.write_text(study.read_text().replace(data, data + policy))
    zerosum("plan", "study.toml", "--out", "plan.json", cwd=tmp_path)
    assert json.loads((tmp_path / "plan.json").read_bytes())["coordinator"] == identity
    assert zerosum("run", "study.toml", "--plan", "plan.json", "--out", "result", cwd=tmp_path).returncode == 0
    more = ("--plan", "plan.json", "--policy", "policy.toml")
    found = as_json(zerosum("verify", "result", *more, "--json", cwd=tmp_path))
    assert found["pinned_by"] == ["the plan", "the policy"]
    assert "policy" in zerosum("verify", "result", *more, cwd=tmp_path).stdout
    # a plan that came with the report vouches for nobody
    assert as_json(zerosum("verify", "result", "--plan", "result/plan.json", "--json", cwd=tmp_path))["pinned_by"] == []
    # another user cannot run it, and spends nothing; a plan that pins nobody is refused by these sites
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "elsewhere"))
    done = zerosum("verify", "result/report.html", "--plan", "result/plan.json", cwd=tmp_path)
    assert "integrity" in done.stderr
    done = zerosum("run", "study.toml", "--out", "second", "--json", cwd=tmp_path)
    assert_refused(done, "coordinator", "key")
    assert not (tmp_path / "elsewhere" / "ledgers").exists()
    study.write_text(study.read_text().removeprefix(pinned))
    done = zerosum("run", "study.toml", "--out", "second", "--json", cwd=tmp_path)
    assert_refused(done, "coordinator", "identity", error=PolicyRefused)


def test_cli_results_export_has_report(tmp_path: Path) -> None:
    write_study(tmp_path)
    done = as_json(zerosum("run", "study.toml", "--out", "result", "--json", cwd=tmp_path))
    zerosum("results", "export", done["kept"], "--out", "again", cwd=tmp_path)
    assert as_json(zerosum("verify", "again", "--json", cwd=tmp_path))["study"] == done["study"]
    (tmp_path / "state" / "results" / done["kept"] / "result" / "plan.json").unlink()  # as it was kept before reports
    assert zerosum("results", "export", done["kept"], "--out", "old", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "old" / "report.html").exists()


def test_cli_site_report_copy_is_signed_by_site(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    text = study.read_text()
    made = as_json(zerosum("site", "init", "north", "--json", cwd=tmp_path))
    site = tmp_path / "north" / "site.toml"
    coordinator = as_json(zerosum("coordinator", "init", "--json", cwd=tmp_path))["identity"]
    site.write_text(site.read_text().replace('# coordinator = "64 digits"', f'coordinator = "{coordinator}"'))
    assert f'coordinator = "{coordinator}"' in site.read_text()
    policy = f'policy = {{ population = "north", ledger = "{tmp_path}/north/state/ledger.sqlite" }}\n'
    study.write_text(text.replace('data = "0.csv"\n', 'data = "0.csv"\n' + policy))
    zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    given = ("site", "report", "result", "--site", "north/site.toml", "--out", "own")
    done = as_json(zerosum(*given, "--json", cwd=tmp_path))
    assert done == {"report": "own/report.html", "pinned": True, "taken_part": True}
    page = (tmp_path / "own" / "report.html").read_text()
    for said in ("At north", "the cap", "epsilon 10 at delta 1e-05"):
        assert said in page
        assert said not in (tmp_path / "result" / "report.html").read_text()
    assert as_json(zerosum("verify", "own", "--json", cwd=tmp_path))["key"] == made["identity"]
    # what a site signs is never taken for the coordinator's, whoever pins the site's key
    (tmp_path / "roster.toml").write_text(f'population = "p"\nroster = {{ north = "{made["identity"]}" }}\n')
    found = as_json(zerosum("verify", "own", "--policy", "roster.toml", "--json", cwd=tmp_path))
    assert (found["site"], found["pinned_by"], found["redrawn"]) == ("north", ["the policy"], True)
    done = zerosum("verify", "own", "--policy", "roster.toml", cwd=tmp_path)
    assert "'north'" in done.stdout
    assert "'north'" in done.stderr
    assert "'north'" not in zerosum("verify", "result", cwd=tmp_path).stderr
    (tmp_path / "own" / "report.json").unlink()
    assert "report.json" in zerosum("verify", "own", cwd=tmp_path).stdout
    assert_refused(zerosum(*given, "--json", cwd=tmp_path), "own")
    zerosum(*given[:-1], "own2", cwd=tmp_path)
    again = ("site", "report", "own2", "--site", "north/site.toml", "--out", "third", "--json")
    assert_refused(zerosum(*again, cwd=tmp_path), "copy")
    flip(tmp_path / "result" / "report.json", 2000)
    assert_refused(zerosum(*given[:-1], "third", "--json", cwd=tmp_path), "changed", code=4, error=CheckFailed)
    assert not (tmp_path / "third").exists()
