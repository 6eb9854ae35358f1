"""What lies in deploy/: units, a Containerfile and a bundle script that name only what exists."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

import zerosum.cli
from zerosum.cli.app import app
from zerosum.study import SiteFile

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NOTIFY = DEPLOY / "zerosum-notify.service"  # starts a mail program, which needs rights that the others have not
UNITS = sorted(set(DEPLOY.glob("*.service")) - {NOTIFY})


def parse(path: Path) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(strict=False, comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(path.read_text())
    return found


def is_command(words: list[str]) -> bool:
    """Whether these words are one of our commands, and each option one of its own."""
    zerosum.cli.load()
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest:
        command = command.commands.get(rest.pop(0))
        if command is None:
            return False
    known = {name for each in command.params for name in each.opts}
    return all(word in known for word in rest if word.startswith("--"))


def test_is_command_knows_commands_and_options() -> None:
    assert is_command(["site", "run", "site.toml", "--log-json"])
    assert not is_command(["site", "serve"])
    assert not is_command(["site", "run", "--unheard"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_unit_runs_known_command_in_sandbox(path: Path) -> None:
    unit = parse(path)
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    if Path(program).name == "zerosum":
        assert is_command(words)
        assert int(service["TimeoutStopSec"]) > 600  # the default of limits.seconds and of --seconds
    else:
        assert program.endswith("/startup/sub_start.sh")
        assert words == ["--once"]
        text = path.read_text()
        named = re.findall(r"ZEROSUM_\w+", text)
        assert named
        sources = "".join(each.read_text() for each in (ROOT / "src" / "zerosum" / "flare").glob("*.py"))
        assert all(name in sources for name in named)
    assert (service["NoNewPrivileges"], service["ProtectSystem"], service["UMask"]) == ("yes", "strict", "0077")
    assert service["User"] == "zerosum"


def test_systemd_notification_runs_when_a_plan_arrives() -> None:
    service, path = parse(NOTIFY)["Service"], parse(DEPLOY / "zerosum-notify.path")["Path"]
    shell, flag, line = shlex.split(service["ExecStart"])
    assert (shell, flag) == ("/bin/sh", "-c")
    assert is_command(shlex.split(line.partition("|")[0])[1:])
    site = parse(DEPLOY / "zerosum-site.service")["Service"]["WorkingDirectory"]
    assert path["PathChanged"] == f"{site}/state/proposals"
    assert service["WorkingDirectory"] == site


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_unit_allows_few_system_calls(path: Path) -> None:
    service = parse(path)["Service"]
    assert service["SystemCallFilter"] == "@system-service"
    assert {
        service[name] for name in ("RestrictNamespaces", "ProtectClock", "ProtectKernelLogs", "LockPersonality")
    } == {"yes"}


def test_logrotate_names_audit_log_and_keeps_its_parts_readable() -> None:
    text = (DEPLOY / "logrotate").read_text()
    site = parse(DEPLOY / "zerosum-site.service")["Service"]["WorkingDirectory"]
    assert f"{site}/state/audit.jsonl {{" in text
    assert "nocompress" in text  # `zerosum site audit verify` reads the parts
    assert "copytruncate" not in text  # which would cut the chain


def test_systemd_unit_of_site_has_no_network() -> None:
    service = parse(DEPLOY / "zerosum-site.service")["Service"]
    assert service["PrivateNetwork"] == "yes"
    assert service["RestrictAddressFamilies"] == "AF_UNIX"


def test_systemd_analyze_accepts_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for path in UNITS:  # with programs that exist here
        text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", path.read_text())
        (tmp_path / path.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / path.name) for path in UNITS)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(tmp_path)}
    )
    ours = [line for line in done.stderr.splitlines() if "zerosum" in line and "instance" not in line]
    assert ours == []


def test_containerfile_names_existing_files_and_commands() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in lines} == known
    assert lines[0][0] == "FROM"
    for word, rest in lines:
        if word == "COPY":
            source = rest.split()[0]
            assert (ROOT / source).exists() or source == "build/bundle"  # which `make bundle` makes
    entry = next(rest for word, rest in lines if word == "ENTRYPOINT")
    assert entry == '["zerosum"]'
    command = next(rest for word, rest in lines if word == "CMD")
    assert is_command(re.findall(r'"([^"]*)"', command))
    health = next(rest for word, rest in lines if word == "HEALTHCHECK")
    assert is_command(re.findall(r'"([^"]*)"', health)[1:])
    assert [rest for word, rest in lines if word == "USER"] == ["zerosum"]
    assert "bundle" in (ROOT / "Makefile").read_text()


def test_bundle_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in (ROOT / "requirements" / "bundle.txt", DEPLOY / "bundle.sh"):
        named = re.findall(r"\[([a-z,]+)\]", path.read_text())
        assert named
        assert all(extra in extras for each in named for extra in each.split(","))
    assert os.access(DEPLOY / "bundle.sh", os.X_OK)
    subprocess.run(["sh", "-n", DEPLOY / "bundle.sh"], check=True)


def test_deployment_guide_site_file_loads(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- file: north/site.toml -->\n```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "site.toml").write_text(text)
    assert SiteFile.load(tmp_path / "site.toml").own_policy().study_epsilon == 2.0


def test_deployment_guide_commands_exist() -> None:
    """All of them, in blocks and in sentences; test_guide runs those in blocks."""
    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) + re.findall(r"(?m)^    (zerosum .*)$", guide)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`(zerosum [a-z][^`]*)`", guide)
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("zerosum ")]
    assert len(commands) > 30
    for words in commands:
        assert is_command([word for word in words if word.lower() == word or word.startswith("--")]), words
