"""The app that Flower is given: a project file without code. No Flower is needed to write it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from helpers.deployment import NAMES, Deployment
from zerosum.cli import _run
from zerosum.errors import BadInput, BadParameter
from zerosum.flower import keys
from zerosum.flower.bundle import refuse_tree, write_app
from zerosum.study import Study
from zerosum.study.coordinating import Settings


def test_flower_app_names_installed_modules_and_study_only(tmp_path: Path) -> None:
    write_app(tmp_path / "app", 'a "study"')
    assert [path.name for path in (tmp_path / "app").rglob("*")] == ["pyproject.toml"]
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"] == {"study": 'a "study"'}
    assert set(app["components"].values()) == {"zerosum.flower.server_app:app", "zerosum.flower.client_app:app"}
    with pytest.raises(BadInput, match="exists"):
        write_app(tmp_path / "app", "study")


def test_cli_flower_app_begins_study_with_approved_nodes(tmp_path: Path) -> None:
    deployment, folder = Deployment(tmp_path), tmp_path / "federation"
    study = deployment.study()
    words = ["flower", "provision", str(study), "--out", str(folder), "--server", "localhost"]
    for site in NAMES[:3]:
        assert _run(["flower", "request", "--site", str(tmp_path / site / "site.toml")]) == 0
        words += ["--request", str(tmp_path / site / f"{site}.flower.json")]
    assert _run(words) == 0
    state = tmp_path / "studies" / "vitals"
    command = ["flower", "app", str(study), "--state", str(state), "--out", str(tmp_path / "out")]
    command += ["--federation", str(folder), "--app", str(tmp_path / "app")]
    assert _run(command) == 2  # the node of the fourth site is not approved
    assert not state.exists()
    assert _run(["flower", "request", "--site", str(tmp_path / "west" / "site.toml")]) == 0
    assert _run([*words[:5], "--request", str(tmp_path / "west" / "west.flower.json")]) == 0
    assert _run([*command, "--seconds", "0"]) == 2
    assert _run(command) == 0
    assert Settings.load(state).nodes == keys.nodes(folder)
    assert (state / "journal").exists()
    assert _run(command) == 2


def test_flower_plan_with_tree_is_refused(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    plan = Study.load(deployment.study(parents={"north": "east"})).plan()
    with pytest.raises(BadParameter, match="tree"):
        refuse_tree(plan)
