"""What FLARE is given: jobs without code, and kits that run nothing but Zerosum. No FLARE is needed to write either."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from helpers.deployment import Deployment
from zerosum.cli import _run
from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput, BadParameter, Refused
from zerosum.flare.jobs import harden, keep_in, tidy, write_job
from zerosum.flare.provision import project, provision
from zerosum.study import Study
from zerosum.study.coordinating import Settings, begin, fewest


def make_kit(folder: Path) -> Path:
    """The two files of a FLARE 2.9 kit that matter here, shortened."""
    local = folder / "local"
    local.mkdir(parents=True)
    launcher = "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher"
    resources = {
        "class_list_enforcement_mode": "warn",
        "class_allow_list": ["nvflare.app_common.executors.task_script_runner.TaskScriptRunner"],
        "allow_log_streaming": True,
        "components": [
            {"id": "resource_manager", "path": "nvflare.x", "args": {}},
            {"id": "process_launcher", "path": launcher, "args": {}},
            {"id": "site_log_streamer", "path": "nvflare.y", "args": {}},
        ],
    }
    rights = {"permissions": {"project_admin": "any", "lead": {"submit_job": "any", "byoc": "any"}, "member": {}}}
    (local / "resources.json.default").write_text(json.dumps(resources))
    (local / "authorization.json.default").write_text(json.dumps(rights))
    return folder


def test_flare_hardened_kit_allows_own_classes_only(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    assert len(harden(kit)) == 2
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == ["zerosum.flare."]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert not resources["allow_log_streaming"]
    assert [each["id"] for each in resources["components"]] == ["resource_manager", "process_launcher"]
    assert resources["components"][1]["path"] == "zerosum.flare.launcher.Launcher"
    rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
    assert all((role["byoc"], role["shell_commands"]) == ("none", "none") for role in rights.values())
    assert rights["project_admin"]["submit_job"] == "any"
    assert harden(kit) == []
    with pytest.raises(BadInput, match="kit"):
        harden(tmp_path)


def test_flare_keep_in_moves_server_storage(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    path = kit / "local" / "resources.json.default"
    resources = json.loads(path.read_text())
    resources["snapshot_persistor"] = {"args": {"storage": {"args": {"root_dir": "/tmp/shared"}}}}
    resources["components"].append({"id": "job_manager", "args": {"uri_root": "/tmp/shared"}})
    path.write_text(json.dumps(resources))
    harden(kit)
    keep_in(kit, tmp_path / "own")
    text = (kit / "local" / "resources.json").read_text()
    assert "/tmp/shared" not in text
    assert text.count(str(tmp_path / "own")) == 2
    assert harden(kit) == []


def test_flare_tidy_removes_old_folders_of_jobs_only(tmp_path: Path) -> None:
    old, running, elsewhere = (str(uuid.UUID(int=at)) for at in range(3))
    for name in (old, running, "startup", "local", "transfer"):
        (tmp_path / name / "log").mkdir(parents=True)
        for place in (tmp_path / name / "log", tmp_path / name):
            os.utime(place, (0, 0))
    # The folder of a job that runs is as old, and its log is not.
    (tmp_path / running / "log" / "log.txt").touch()
    (tmp_path / elsewhere).symlink_to(tmp_path / "startup")
    assert _run(["flare", "tidy", str(tmp_path), "--days", "30"]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [running, elsewhere, "startup", "local", "transfer"]
    )
    assert tidy(tmp_path, 30) == []


def test_flare_tidy_of_a_folder_that_is_no_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="kit"):
        tidy(tmp_path, 30)


def test_flare_job_names_study_only(tmp_path: Path) -> None:
    write_job(tmp_path / "job", "vitals", 4)
    files = sorted(str(path.relative_to(tmp_path / "job")) for path in (tmp_path / "job").rglob("*") if path.is_file())
    assert files == ["app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json"]
    server = json.loads((tmp_path / "job" / files[1]).read_text())
    assert server["workflows"][0]["args"] == {"study": "vitals"}
    with pytest.raises(BadInput, match="job"):
        write_job(tmp_path / "job", "vitals", 4)


def test_cli_flare_job_and_harden_write_files(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    study = deployment.study()
    command = ["flare", "job", study, "--state", tmp_path / "studies" / "vitals", "--out", tmp_path / "out"]
    assert _run([str(word) for word in (*command, "--job", tmp_path / "job")]) == 0
    assert (tmp_path / "studies" / "vitals" / "journal").exists()
    assert json.loads((tmp_path / "job" / "meta.json").read_text())["min_clients"] == 4
    assert _run([str(word) for word in (*command, "--job", tmp_path / "job")]) == 2
    assert _run(["flare", "harden", str(make_kit(tmp_path / "kit"))]) == 0


def test_flare_job_without_all_sites_needs_study_under_way(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    plan = Study.load(deployment.study()).plan()
    with pytest.raises(BadInput, match="kept"):
        fewest(tmp_path / "kept")
    with Journal.create(tmp_path / "kept", plan) as journal:
        with pytest.raises(Refused, match="all sites"):
            fewest(tmp_path / "kept")
        journal.set_up(b"everybody's public keys")
        journal.asked(0, 0, "c0ffee")
        job = tmp_path / "job"
        assert _run(["flare", "resume", "--state", str(tmp_path / "kept"), "--job", str(job)]) == 0
    assert json.loads((job / "meta.json").read_text())["min_clients"] == 3
    assert json.loads((job / "app" / "config" / "config_fed_server.json").read_text())["workflows"][0]["args"] == {
        "study": "kept"
    }


def test_flare_controller_missing_variable_is_named_and_other_key_error_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")
    from zerosum.flare import controller

    class Heard(controller.Coordinator):
        said = ""

        def system_panic(self, reason: str, fl_ctx: object) -> None:
            self.said = reason

    monkeypatch.delenv("ZEROSUM_COORDINATOR", raising=False)
    heard = Heard("vitals")
    heard.control_flow(None, None)
    assert "ZEROSUM_COORDINATOR" in heard.said
    monkeypatch.setenv("ZEROSUM_COORDINATOR", str(tmp_path))
    heard.control_flow(None, None)
    assert str(tmp_path) in heard.said
    deployment = Deployment(tmp_path)
    begin(Settings(study=deployment.study(), out=tmp_path / "out"), tmp_path / "vitals")
    monkeypatch.setattr(controller, "coordinate", lambda *arguments, **more: dict[str, str]()["north"])
    with pytest.raises(KeyError, match="north"):  # FLARE logs it, with where it came from
        heard.control_flow(None, None)


def test_flare_project_lists_participants_and_bad_names_are_refused(tmp_path: Path) -> None:
    made = project(["north", "st.john-2"], "hub.example.org", 443, "lead@hub.org")
    kinds = [(each["name"], each["type"]) for each in made["participants"]]
    assert kinds[0] == ("hub.example.org", "server")
    assert kinds[1:3] == [("north", "client"), ("st.john-2", "client")]
    for sites, server, admin in ((["a b"], "hub", "x@y"), (["a"], "hub;", "x@y"), (["a"], "hub", "nobody")):
        with pytest.raises(BadParameter):
            provision(tmp_path / "kits", sites, server, 443, admin)
    with pytest.raises(BadInput, match=str(tmp_path)):
        provision(tmp_path, ["a"], "hub", 443, "x@y.org")
