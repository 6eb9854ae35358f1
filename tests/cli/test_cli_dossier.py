"""`zerosum dossier` at the command line: from a plan, a study file and a result, and with a site's own file."""

from __future__ import annotations

from pathlib import Path

from helpers.command_line import as_json, assert_refused, write_study, zerosum


def test_cli_dossier_of_plan_study_and_result_is_written_and_verified(tmp_path: Path) -> None:
    write_study(tmp_path)
    zerosum("plan", "study.toml", "--out", "plan.json", cwd=tmp_path)
    zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    for source, draft in (("plan.json", False), ("study.toml", True), ("result", False)):
        out = f"dossier-{Path(source).stem}"
        record = as_json(zerosum("dossier", source, "--out", out, "--json", cwd=tmp_path))
        assert record["draft"] is draft
        assert {Path(path).name for path in record["files"]} == {
            *("dossier.html", "dossier.json", "summary.html", "summary.json", "registry.json", "plan.json")
        }
        assert 0.5 < record["best_guess"]["reader"] < 1
        assert as_json(zerosum("verify", out, "--json", cwd=tmp_path))["absent"] == []


def test_cli_dossier_of_an_unknown_source_is_refused(tmp_path: Path) -> None:
    assert_refused(zerosum("dossier", "study.txt", "--json", cwd=tmp_path), ".toml")


def test_cli_dossier_with_the_file_of_another_site_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path)
    zerosum("plan", "study.toml", "--out", "plan.json", cwd=tmp_path)
    zerosum("site", "init", "elsewhere", cwd=tmp_path)
    done = zerosum("dossier", "plan.json", "--site", "elsewhere/site.toml", "--json", cwd=tmp_path)
    assert_refused(done, "elsewhere")
