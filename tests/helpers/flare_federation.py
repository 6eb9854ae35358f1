"""A FLARE project on loopback: kits by `zerosum provision`, a server and clients as processes, ended by their ids."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from helpers.deployment import NAMES, Deployment, zerosum
from zerosum.flare.jobs import harden
from zerosum.flare.provision import PROJECT

BIN = Path(sys.executable).parent
LEAD = "lead@hub.org"
# FLARE's own interface for administrators, in a process of its own: it starts threads that outlive a test. All jobs are
# submitted, then waited for; how each ended is said in their order.
ADMIN = """
import sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
lead, kit, clients, *jobs = sys.argv[1:]
end = time.monotonic() + 120
while True:
    try:
        session = new_secure_session(lead, kit, timeout=5.0)
        if len(session.get_system_info().client_info) >= int(clients):
            break
        session.close()
    except Exception:
        if time.monotonic() > end:
            raise
    assert time.monotonic() < end, "the sites' FLARE clients did not come"
    time.sleep(0.3)
numbers = [session.submit_job(job) for job in jobs]
print("SUBMITTED", flush=True)
for number in numbers:
    while not (status := (session.get_job_meta(number) or {}).get("status", "")).startswith("FINISHED"):
        time.sleep(0.3)
    print(status, flush=True)
session.close()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Flare:
    """Kits, a server and clients. `before` are words that a process is started with, by its name: a site's, "server" or
    "admin"; `environment` is added to its own."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        host: str = "localhost",
        port: int = 0,
        before: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.deployment, self.folder = deployment, deployment.folder / "flare"
        self.host, self.port = host, port or free_port()
        self.before, self.environment = before or {}, environment or {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        study = deployment.study(name="roster")
        command = ["provision", study, "--out", self.folder, "--server", host, "--port", self.port, "--admin", LEAD]
        done = zerosum(*command, cwd=deployment.folder)
        assert done.returncode == 0, done.stderr
        self.kits = self.folder / "work" / PROJECT / "prod_00"
        for name in (host, *NAMES):
            assert harden(self.kits / name) == []  # it was
        self._keep_here()

    def _keep_here(self) -> None:
        """What FLARE would keep in a folder that all of this machine shares; and a scheduler that does not sleep."""
        path = self.kits / self.host / "local" / "resources.json"
        resources = json.loads(path.read_text())
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(self.folder / "snapshots")
        for each in resources["components"]:
            if each["id"] == "job_manager":
                each["args"]["uri_root"] = str(self.folder / "jobs")
            if each["id"] == "job_scheduler":
                each["args"] |= {"max_jobs": 4, "min_schedule_interval": 0.5, "max_schedule_interval": 1.0}
        path.write_text(json.dumps(resources))

    def start(self, *names: str) -> None:
        for name in names or ("server", *NAMES):
            if name == "server":
                words = ["server.server_train", "-m", self.kits / self.host, "-s", "fed_server.json"]
                known = {"ZEROSUM_COORDINATOR": str(self.deployment.folder / "studies")}
                self._spawn(name, [*words, "--set", "org=coordinator"], known)
            else:
                words = ["client.client_train", "-m", self.kits / name, "-s", "fed_client.json"]
                known = {"ZEROSUM_SITE_SOCKET": str(self.deployment.site(name).socket)}
                self._spawn(name, [*words, "--set", f"uid={name}", f"org={name}"], known)

    def _spawn(self, name: str, words: Sequence[object], environment: Mapping[str, str]) -> None:
        module, *rest = map(str, words)
        command = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{module}", *rest]
        given = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*self.before.get(name, ()), *command, "secure_train=true", "config_folder=config"],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**given, **environment, **self.environment.get(name, {})},
                start_new_session=True,
            )

    def job(
        self, study: Path, *, seconds: float = 30, wait: float = 60, patience: float = 60, absent: float = 300
    ) -> Path:
        """Begin a study and write its job, by the command."""
        folder, name = self.deployment.folder, study.stem
        command = ["flare", "job", study, "--state", folder / "studies" / name, "--out", folder / f"{name}-out"]
        job = folder / f"{name}-job"
        times = ["--seconds", seconds, "--wait", wait, "--patience", patience, "--absent", absent]
        done = zerosum(*command, "--job", job, *times, cwd=folder)
        assert done.returncode == 0, done.stderr
        return job

    def submit(self, *jobs: Path, kit: Path | None = None, clients: int = 4) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", ADMIN, LEAD, kit or self.kits / LEAD, clients, *jobs]
        command = [*self.before.get("admin", ()), *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self, submitted: subprocess.Popen[str]) -> list[str]:
        """How each of the jobs ended, in FLARE's words."""
        try:
            said, wrong = submitted.communicate(timeout=300)
        finally:
            submitted.kill()
        assert submitted.returncode == 0, said + wrong
        return [line for line in said.splitlines() if line.startswith("FINISHED")]

    def job_process(self, name: str) -> int:
        """The process that runs the job at the server or at a site: a descendant of one that was started here."""
        return job_process_of(self.running[name].pid)

    def kill(self, name: str) -> None:
        """The server or a client, with the processes of its jobs: as if its machine went down."""
        process = self.running.pop(name)
        for pid in family(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        for name in list(self.running):
            self.kill(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")


def family(pid: int) -> set[int]:
    """A process and its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    known = {pid}
    while more := {child for child, parent in parents.items() if parent in known} - known:
        known |= more
    return known


def job_process_of(parent: int) -> int:
    """The newest process of a job among a process of FLARE's server or client and its descendants."""
    words = {}
    for pid in family(parent):
        with suppress(OSError):
            words[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return max(pid for pid, said in words.items() if b"runner_process" in said or b"worker_process" in said)


def wait_for_rounds(state: Path, rounds: int) -> None:
    """Until so many rounds were released, by the journal, which the job's process holds."""
    end = time.monotonic() + 300
    while (state / "journal").read_bytes().count(b'"kind": "release"') < rounds:
        assert time.monotonic() < end
        time.sleep(0.02)
