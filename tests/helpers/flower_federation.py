"""A Flower federation on loopback: keys by `zerosum flower`, a SuperLink and nodes as processes, ended by their ids."""

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

from helpers.deployment import COMMAND, NAMES, Deployment
from helpers.flare_federation import family, free_port
from zerosum.cli import _run
from zerosum.coordinator.journal import Journal
from zerosum.errors import Refused

BIN = Path(sys.executable).parent
HUB = ("superlink", "superexec")
SECONDS = 300.0  # after which a test gives up
# The commands that `zerosum flower provision` prints, in one process: Flower's tool takes seconds to start.
REGISTER = """
import sys
from flwr.cli.app import app
for key in sys.argv[1:]:
    app(["supernode", "register", key, "zerosum"], standalone_mode=False)
"""


def command(*words: object) -> None:
    """One command of Zerosum, in this process."""
    assert _run([str(word) for word in words]) == 0


class Flower:
    """Keys, a SuperLink and nodes. The nodes of the sites in `supernodes` are Flower's own, which run the app of a run;
    `environment` is added to that of a process, by its name: a site's, "superlink" or "superexec"."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        supernodes: Sequence[str] = (),
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.deployment, self.folder, self.port = deployment, deployment.folder / "federation", free_port()
        self.supernodes, self.environment = set(supernodes), environment or {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        study = deployment.study(name="roster")
        words: list[object] = ["flower", "provision", study, "--out", self.folder, "--server", "localhost"]
        for name in NAMES:
            home = deployment.folder / name
            command("flower", "request", "--site", home / "site.toml")
            words += ["--request", home / f"{name}.flower.json"]
        self.outer = free_port()  # of a proxy
        command(*words, "--local-port", self.port, "--port", self.outer)
        self._registered = False

    def start(self, *names: str) -> None:
        for name in names or (*HUB, *NAMES):
            if name in HUB:
                coordinator = {"ZEROSUM_COORDINATOR": str(self.deployment.folder / "studies")}
                quick = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
                self._spawn(name, [self.folder / f"{name}.sh"], coordinator | quick)
                if name == "superlink":
                    self._wait_for_superlink()
            elif name in self.supernodes:
                self._spawn(name, self._supernode(name), {"FLWR_HOME": str(self.folder / f"home-{name}")})
            else:
                home = self.deployment.folder / name
                words = [*COMMAND, "flower", "node", "--site", home / "site.toml", "--ca", self.folder / "ca.pem"]
                self._spawn(name, [*words, "--superlink", f"localhost:{self.port}"], {})
        if not self._registered:
            keys = [self.folder / "nodes" / f"{name}.pub" for name in NAMES]
            tool = (sys.executable, "-c", REGISTER, *keys)
            given = self._environment("") | {"FLWR_HOME": str(self.folder / "home")}
            subprocess.run(list(map(str, tool)), check=True, capture_output=True, env=given)
            self._registered = True

    def _supernode(self, name: str) -> list[object]:
        """Flower's own node, which starts the ClientApp of a run."""
        key = self.deployment.folder / name / "flower" / "node.key"
        words = ["flower-supernode", "--superlink", f"localhost:{self.port}", "--port", free_port()]
        return [*words, "--root-certificates", self.folder / "ca.pem", "--auth-supernode-private-key", key]

    def _environment(self, name: str) -> dict[str, str]:
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        given = {**os.environ, **quiet, "PATH": f"{BIN}:{os.environ['PATH']}", **self.environment.get(name, {})}
        if name in NAMES:
            given["ZEROSUM_SITE_SOCKET"] = str(self.deployment.site(name).socket)
        return given

    def _spawn(self, name: str, words: Sequence[object], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                list(map(str, words)),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**self._environment(name), **environment},
                start_new_session=True,
            )

    def _wait_for_superlink(self) -> None:
        """Until it listens. Its log is no sign: after a restart it still has the lines of the process before."""
        end = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5.0).close()
                return
            except OSError:
                assert self.running["superlink"].poll() is None, self.log("superlink")
                assert time.monotonic() < end
                time.sleep(0.1)

    def app(self, study: Path, *, seconds: float = 60, wait: float = 200, patience: float = 60) -> Path:
        """Begin a study and write its app, by the command."""
        folder, name = self.deployment.folder, study.stem
        words = ["flower", "app", study, "--state", folder / "studies" / name, "--out", folder / f"{name}-out"]
        app = folder / f"{name}-app"
        times = ["--seconds", seconds, "--wait", wait, "--patience", patience, "--every", 0.5]
        command(*words, "--app", app, "--federation", self.folder, *times)
        return app

    def flwr(self, *words: object) -> dict[str, object]:
        """One command of Flower's own command line, with its JSON."""
        line = [str(word) for word in (BIN / "flwr", *words, "--format", "json")]
        home = {"FLWR_HOME": str(self.folder / "home")}
        # Flower's tool looks for the modules that an app names.
        home |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=self._environment("") | home)
        found: dict[str, object] = json.loads(done.stdout[done.stdout.index("{") :])
        assert found["success"], done.stdout + done.stderr
        return found

    def run(self, app: Path) -> str:
        """Start a run of an app; its number."""
        return str(self.flwr("run", app, "zerosum")["run-id"])

    def status(self, run: str) -> str:
        runs = self.flwr("ls", "zerosum", "--run-id", run)["runs"]
        assert isinstance(runs, list)
        return str(runs[0]["status"])

    def ended(self, run: str) -> str:
        """How a run ended, in Flower's words."""
        end = time.monotonic() + 2 * SECONDS
        while not (status := self.status(run)).startswith("finished"):
            assert time.monotonic() < end, self.log("superexec")[-4000:]
            time.sleep(3.0)  # each question starts a process of Flower's tool
        return status

    def result(self, name: str) -> dict[str, object]:
        """The result of a study, when it is there."""
        path = self.deployment.folder / f"{name}-out" / "result.json"
        end = time.monotonic() + 2 * SECONDS
        while not path.exists() or self._at_work(name):
            assert time.monotonic() < end, self.log("superexec")[-4000:]
            time.sleep(0.1)
        found: dict[str, object] = json.loads(path.read_text())
        return found

    def wait_for_process(self, name: str) -> None:
        """Until a process of Flower carries a study out, by its status."""
        end = time.monotonic() + SECONDS
        while not (self.deployment.folder / "studies" / name / "status.json").exists():
            assert time.monotonic() < end, self.log("superexec")[-4000:]
            time.sleep(0.2)

    def _at_work(self, name: str) -> bool:
        """Whether a process still holds the journal of a study."""
        try:
            Journal(self.deployment.folder / "studies" / name / "journal").close()
        except Refused:
            return True
        return False

    def server_apps(self) -> list[int]:
        """The processes that run studies."""
        found = []
        for pid in family(self.running["superexec"].pid):
            with suppress(OSError):
                if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def kill(self, name: str) -> None:
        """A process with its descendants: as if its machine went down."""
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
