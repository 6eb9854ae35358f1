"""A FLARE server and four sites, each a process of its own, with mutual TLS on loopback (`make test-flare`)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from deployed import NAMES, Deployment, zerosum
from zerosum.coordinator.journal import Journal
from zerosum.engines.in_process import InProcess
from zerosum.flare.jobs import harden
from zerosum.flare.provision import PROJECT
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study, execute
from zerosum.study.site_data import load_for

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")

BIN = Path(sys.executable).parent
LEAD = "lead@hub.org"
# FLARE's own interface for administrators, in a process of its own: it starts threads that outlive a test.
ADMIN = """
import sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
kit, clients, *jobs = sys.argv[1:]
end = time.monotonic() + 90
while True:
    try:
        session = new_secure_session("lead@hub.org", kit, timeout=5.0)
        break
    except Exception:
        if time.monotonic() > end:
            raise
        time.sleep(0.5)
while len(session.get_system_info().client_info) < int(clients):
    assert time.monotonic() < end, "the sites' FLARE clients did not come"
    time.sleep(0.3)
for job in jobs:
    number = session.submit_job(job)
    while True:
        status = (session.get_job_meta(number) or {}).get("status", "")
        if status.startswith("FINISHED"):
            print(status, flush=True)
            break
        time.sleep(0.3)
session.close()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Flare:
    """Kits, a server and clients; ends only what it started, each with the group it was started in."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.folder = deployment, deployment.folder / "flare"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        study = deployment.study(name="roster")
        command = ["provision", study, "--out", self.folder, "--server", "localhost", "--port", free_port()]
        done = zerosum(*command, "--admin", LEAD, cwd=deployment.folder)
        assert done.returncode == 0, done.stderr
        self.kits = self.folder / "work" / PROJECT / "prod_00"
        for name in ("localhost", *NAMES):
            assert harden(self.kits / name) == []  # it was
        self._keep_here()

    def _keep_here(self) -> None:
        """What FLARE would keep in a folder that all of this machine shares; and a scheduler that does not sleep."""
        path = self.kits / "localhost" / "local" / "resources.json"
        resources = json.loads(path.read_text())
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(self.folder / "snapshots")
        for each in resources["components"]:
            if each["id"] == "job_manager":
                each["args"]["uri_root"] = str(self.folder / "jobs")
            if each["id"] == "job_scheduler":
                each["args"] |= {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 2.0}
        path.write_text(json.dumps(resources))

    def start(self) -> None:
        server = [
            "server.server_train",
            "-m",
            self.kits / "localhost",
            "-s",
            "fed_server.json",
            "--set",
            "org=coordinator",
        ]
        self._spawn("server", server, ZEROSUM_COORDINATOR=str(self.deployment.folder / "studies"))
        for name in NAMES:
            client = ["client.client_train", "-m", self.kits / name, "-s", "fed_client.json", "--set"]
            where = str(self.deployment.site(name).socket)
            self._spawn(name, [*client, f"uid={name}", f"org={name}"], ZEROSUM_SITE_SOCKET=where)

    def _spawn(self, name: str, words: list[object], **environment: str) -> None:
        module, *rest = map(str, words)
        command = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{module}", *rest]
        path = f"{BIN}:{os.environ['PATH']}"
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*command, "secure_train=true", "config_folder=config"],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **environment},
                start_new_session=True,
            )

    def submit(self, *jobs: Path) -> subprocess.Popen[str]:
        command: list[str | Path] = [sys.executable, "-c", ADMIN, self.kits / LEAD, "4", *jobs]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self, submitted: subprocess.Popen[str]) -> list[str]:
        """How each of the jobs ended, in FLARE's words."""
        said, wrong = submitted.communicate(timeout=240)
        assert submitted.returncode == 0, said + wrong
        return [line for line in said.splitlines() if line.startswith("FINISHED")]

    def job_process(self, name: str) -> int:
        """The process that runs the job at the server or at a site: a descendant of one that was started here."""
        parents: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # gone meanwhile
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        known = {self.running[name].pid}
        while more := {pid for pid, parent in parents.items() if parent in known} - known:
            known |= more
        words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in known}
        found = [pid for pid, said in words.items() if b"runner_process" in said or b"worker_process" in said]
        return max(found)

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.running.values():
            process.wait(30)


@pytest.fixture(scope="module")
def flare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flare]:
    deployment = Deployment(tmp_path_factory.mktemp("f"), epsilon=1000.0)
    made = Flare(deployment)
    try:
        made.start()
        deployment.start()
        yield made
    finally:
        made.stop()
        deployment.stop()


def in_process(deployment: Deployment, study: Path, state: Path) -> Result:
    journal = Journal.open(state)
    assert journal is not None
    with journal:
        plan = journal.plan
    members = []
    for name in NAMES:
        file = deployment.site(name)
        policy = Policy.throwaway(name, state / f"{name}.sqlite")
        members.append(Site(name, load_for(plan, file), policy, file.keep_identity()))
    engine = InProcess(members)
    result = execute(plan, Study.load(study).build_algorithm(), engine)
    engine.close()
    return result


def test_mean_and_pca_over_flare_bit_for_bit_as_in_process(flare: Flare) -> None:
    deployment, folder = flare.deployment, flare.deployment.folder
    studies = {
        "mean": deployment.study(name="mean"),
        "pca": deployment.study("pca", name="pca", parameters="n_components = 2"),
        "open": deployment.study(name="open", seed=None),
    }
    for name, study in studies.items():
        command = ["flare", "job", study, "--state", folder / "studies" / name, "--out", folder / f"{name}-out"]
        done = zerosum(*command, "--job", folder / f"{name}-job", "--seconds", 30, "--wait", 60, cwd=folder)
        assert done.returncode == 0, done.stderr
    ended = flare.ended(flare.submit(*(folder / f"{name}-job" for name in studies)))
    assert ended == ["FINISHED:COMPLETED"] * 3, (flare.folder / "server.log").read_text()[-4000:]
    for name in ("mean", "pca"):
        expected = in_process(deployment, studies[name], folder / "studies" / name)
        with np.load(folder / f"{name}-out" / "estimate.npz") as found:
            for key, quantity in expected.estimate.items():
                assert found[key].tobytes() == quantity.value.tobytes()
    for name in NAMES:
        spent = deployment.spent(name)
        assert len(set(spent)) == len(spent) >= 4
        assert {line["event"] for line in deployment.log(name)} == {"started", "consented", "released"}
    assert flare.ended(flare.submit(folder / "open-job")) == ["FINISHED:COMPLETED"]  # over: nobody is asked
    assert deployment.spent("west") == spent


def test_what_jobs_and_kits_name_is_there() -> None:
    names = "zerosum.flare.controller.Coordinator", "zerosum.flare.relay.Relay", "zerosum.flare.launcher.Launcher"
    code = "import sys, pydoc; [pydoc.locate(name, forceload=False).__module__ for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *names, "zerosum.flare.cells.Cells.exchange"], check=True)


@pytest.mark.parametrize("where", ["server", "client"])
def test_a_job_with_other_classes_than_ours_runs_nowhere(where: str, flare: Flare) -> None:
    """Not even with FLARE's own: an administrator of FLARE runs nothing beside the data."""
    folder, name = flare.deployment.folder, f"strange-{where}"
    study, job = flare.deployment.study(name=name), folder / f"{name}-job"
    command = ["flare", "job", study, "--state", folder / "studies" / name, "--out", folder / f"{name}-out"]
    assert zerosum(*command, "--job", job, "--seconds", 5, "--wait", 5, cwd=folder).returncode == 0
    path = job / "app" / "config" / f"config_fed_{where}.json"
    config = json.loads(path.read_text())
    if where == "server":
        config["workflows"][0] = {"id": "other", "path": "nvflare.app_common.workflows.cyclic_ctl.CyclicController"}
    else:
        config["executors"][0]["executor"] = {"path": "nvflare.app_common.np.np_trainer.NPTrainer", "args": {}}
    path.write_text(json.dumps(config))
    assert flare.ended(flare.submit(job)) != ["FINISHED:COMPLETED"]
    who = "localhost" if where == "server" else "north"
    logs = "".join(each.read_text(errors="replace") for each in (flare.kits / who).rglob("*log*.txt"))
    logs += (flare.folder / f"{'server' if where == 'server' else 'north'}.log").read_text(errors="replace")
    assert f"{'CyclicController' if where == 'server' else 'NPTrainer'}'" in logs
    assert "is not in allow_list" in logs
    assert not (folder / f"{name}-out").exists()


def test_a_relay_and_then_the_coordinators_job_are_killed(flare: Flare) -> None:
    """A killed relay is a lost site; a killed job is resumed by the next one, and nothing is spent twice."""
    deployment, folder = flare.deployment, flare.deployment.folder
    name, state = "shot", folder / "studies" / "shot"
    parameters = "n_clusters = 2\nrounds = 40"
    study = deployment.study("k-means", name=name, attempts=3, parameters=parameters, seed=None)
    command = ["flare", "job", study, "--state", state, "--out", folder / "shot-out", "--job", folder / "shot-job"]
    assert zerosum(*command, "--seconds", 30, "--wait", 60, cwd=folder).returncode == 0
    submitted = flare.submit(folder / "shot-job")
    wait_for_rounds(state, 3)
    os.kill(flare.job_process("east"), signal.SIGKILL)
    wait_for_rounds(state, 8)
    os.kill(flare.job_process("server"), signal.SIGKILL)
    assert flare.ended(submitted) != ["FINISHED:COMPLETED"]
    assert flare.ended(flare.submit(folder / "shot-job")) == ["FINISHED:COMPLETED"]
    result = json.loads((folder / "shot-out" / "result.json").read_text())
    assert len(result["participants"]) == 40
    assert any("east" not in names for names in result["participants"])
    assert "east" in result["participants"][-1]  # a new job is a new relay, and the site's process never went away
    for each in NAMES:
        spent = [(round, attempt) for which, round, attempt in deployment.spent(each) if which.startswith("shot")]
        assert len(set(spent)) == len(spent) <= 41


def wait_for_rounds(state: Path, rounds: int) -> None:
    """Until so many rounds were released, by the length of the journal, which the job's process holds."""
    end = time.monotonic() + 120
    while (state / "journal").read_bytes().count(b'"kind": "release"') < rounds:
        assert time.monotonic() < end
        time.sleep(0.02)
