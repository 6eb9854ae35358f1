"""What lies in deploy/: units, a Containerfile and a bundle script that name only what exists."""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml  # type: ignore[import-untyped]  # PyYAML ships no types

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
    filters = re.findall(r"(?m)^SystemCallFilter=(.*)$", path.read_text())
    assert filters[:2] == ["@system-service", "~@privileged"]
    # The site gives its sockets for roles to their groups, and no unit needs another privileged call.
    assert filters[2:] == (["@chown"] if path.name == "zerosum-site.service" else [])
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


EXPOSURE = {
    "zerosum-site.service": 0.8,
    "zerosum-coordinator@.service": 0.8,
    "zerosum-flare-client.service": 1.5,
    "zerosum-flower-node.service": 1.5,
    "zerosum-flare-server.service": 1.8,
    "zerosum-tidy.service": 0.8,
}  # the largest that systemd-analyze may find, of 10


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_unit_has_low_exposure(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    # An instance of a template has a name of its own.
    copy = tmp_path / path.name.replace("@", "@i")
    shutil.copy(path, copy)
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze rates no files")
    (rating,) = re.findall(r"Overall exposure level for .*?: ([0-9.]+)", done.stdout)
    assert float(rating) <= EXPOSURE[path.name]


def manifests() -> list[dict[str, Any]]:
    return [
        each
        for name in ("site.yaml", "network.yaml")
        for each in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_manifest_is_valid(manifest: dict[str, Any], version: str) -> None:
    linter = pytest.importorskip("kubernetes_validate")
    linter.validate(manifest, version, strict=True)


def test_kubernetes_kustomization_names_every_manifest() -> None:
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in (DEPLOY / "kubernetes").iterdir()}


def test_kubernetes_site_is_one_restricted_pod_that_runs_known_commands() -> None:
    (site,) = (each for each in manifests() if each["kind"] == "StatefulSet")
    assert site["spec"]["replicas"] == 1
    pod = site["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert pod["terminationGracePeriodSeconds"] > 600  # the default of limits.seconds
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
    serving, client = pod["containers"]
    assert is_command(serving["args"])
    assert is_command(serving["readinessProbe"]["exec"]["command"][1:])
    assert client["command"][0].endswith("/startup/sub_start.sh")
    mounts = {each["name"]: each for each in serving["volumeMounts"]}
    assert mounts["data"]["readOnly"]
    assert {each["name"] for each in pod["volumes"]} == set(mounts)


def test_kubernetes_network_has_no_way_in_and_one_way_out() -> None:
    (policy,) = (each["spec"] for each in manifests() if each["kind"] == "NetworkPolicy")
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == []
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [443, 53, 53]
    (site,) = (each for each in manifests() if each["kind"] == "StatefulSet")
    assert policy["podSelector"] == site["spec"]["selector"]


def locked() -> dict[str, str]:
    text = (ROOT / "requirements" / "bundle.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, version = re.match(r"([\w.-]+)==(\S+)", line).groups()  # type: ignore[union-attr]
            found[name] = version
            digests = re.findall(r"--hash=(\S+)", line)
            assert digests
            assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in digests)
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_bundle_lock_has_digests_and_the_versions_of_ci() -> None:
    pins = {}
    for name in ("ci.txt", "flare.txt"):
        for line in (ROOT / "requirements" / name).read_text().splitlines():
            if "==" in line and not line.startswith("#"):
                pins[normal(line.split("==")[0])] = line.split("==")[1].split(";")[0].strip()
    known = locked()
    # Packages for other systems only are in no environment of CI.
    shared = {normal(name): version for name, version in known.items() if normal(name) in pins}
    assert shared == {name: pins[name] for name in shared}
    assert len(shared) > 60


def test_bundle_lock_has_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["nvflare"], *extras["watch"]]
    needed = {normal(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in named}
    assert needed <= {normal(name) for name in locked()}


def wheel(folder: Path, name: str, version: str, more: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n{more}\n")


def make_bill(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(DEPLOY / "sbom.py"), str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "0"},
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads((folder / "sbom.json").read_text(encoding="utf-8"))
    return found


def test_bill_of_materials_lists_wheels_with_licences_digests_and_dependencies(tmp_path: Path) -> None:
    wheel(tmp_path, "zerosum", "0.3", "License-Expression: Apache-2.0\nRequires-Dist: Some_Lib>=1\nRequires-Dist: gone")
    wheel(tmp_path, "some_lib", "1.2", "Classifier: License :: OSI Approved :: MIT License")
    wheel(tmp_path, "bare", "3", "")
    bill = make_bill(tmp_path)
    own, parts = bill["metadata"]["component"], {each["name"]: each for each in bill["components"]}
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert own["licenses"] == [{"expression": "Apache-2.0"}]
    assert parts["some-lib"]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert parts["bare"]["licenses"] == [{"license": {"name": "not stated"}}]
    digest = hashlib.sha256((tmp_path / "some_lib-1.2-py3-none-any.whl").read_bytes()).hexdigest()
    assert parts["some-lib"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert needs["pkg:pypi/zerosum@0.3"] == ["pkg:pypi/some-lib@1.2"]
    pins = (tmp_path / "requirements.txt").read_text().splitlines()
    assert f"some-lib==1.2 --hash=sha256:{digest}" in pins
    assert len(pins) == 3


def test_bill_of_materials_of_the_same_wheels_is_the_same(tmp_path: Path) -> None:
    wheel(tmp_path, "zerosum", "0.3", "")
    first = make_bill(tmp_path)
    assert make_bill(tmp_path) == first
    wheel(tmp_path, "other", "1", "")
    assert make_bill(tmp_path)["serialNumber"] != first["serialNumber"]


def test_bill_of_materials_is_what_pip_requires(tmp_path: Path) -> None:
    """A wheel that was changed after the list was made is not installed."""
    wheel(tmp_path, "zerosum", "0.3", "")
    make_bill(tmp_path)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-index",
        "--no-deps",
        "--disable-pip-version-check",
    ]
    command += ["--ignore-installed", "--find-links", str(tmp_path), "--require-hashes"]
    command += ["-r", str(tmp_path / "requirements.txt")]
    with zipfile.ZipFile(tmp_path / "zerosum-0.3-py3-none-any.whl", "a") as archive:
        archive.writestr("zerosum.py", "changed")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "HASH" in done.stderr.upper()


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
    named = re.findall(r"--extra (\w+)", (DEPLOY / "lock.sh").read_text())
    assert named == ["nvflare", "watch"]
    assert all(extra in extras for extra in named)


@pytest.mark.parametrize("name", ["bundle.sh", "lock.sh", "wheels.sh"])
def test_deploy_script_is_executable_shell(name: str) -> None:
    assert os.access(DEPLOY / name, os.X_OK)
    subprocess.run(["sh", "-n", DEPLOY / name], check=True)


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
