"""The guide for four hospitals (docs/deployment.md), word for word, with real processes (`make test-flare`).

Its code blocks are run in their order, each on the machine that the comment before it names: a folder here. Only
the host name, the port, the proxy and what the guide has placeholders for (identities, the fingerprint) are another's.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from helpers.deployment import NAMES
from zerosum.protocol.stream import alive
from zerosum.site.ledger import Ledger

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")

GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"
BLOCK = re.compile(r"<!-- (on|file): (.*?) -->\n```(?:sh|toml)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    kind: str
    where: str
    marks: tuple[str, ...]
    text: str


def blocks() -> list[Block]:
    found = []
    for kind, said, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        where, *marks = said.split(", ")
        found.append(Block(kind, where, tuple(marks), text))
    return found


class Proxy:
    """A CONNECT proxy on loopback, and how many connections went through it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connected = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                return
            head += part
        method, target, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
        assert method == b"CONNECT"
        host, _, port = target.decode().rpartition(":")
        server = socket.create_connection((host, int(port)))
        self.connected += 1
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=_pump, args=(client, server), daemon=True).start()
        _pump(server, client)

    def close(self) -> None:
        self._listener.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(1 << 16):
            sink.sendall(part)
    except OSError:
        pass
    finally:
        for end in (source, sink):
            end.close()


class Consortium:
    """Five machines, each a folder, and what was started on them; ended by their ids."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proxy = folder, Proxy()
        self.running: list[subprocess.Popen[bytes]] = []
        self.known: dict[str, str] = {}  # what the guide has placeholders for
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        for name in ("hub", "bin", *NAMES):
            (folder / name).mkdir()
        shim = folder / "bin" / "zerosum"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from zerosum.cli import main; main()" "$@"\n')
        shim.chmod(0o755)
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "HOME": str(folder)}

    def text(self, block: Block, name: str) -> str:
        first = block.where.split("/")[0]
        text = block.text if name == first else re.sub(rf"\b{first}\b", name, block.text)
        text = text.replace("hub.example.org", "localhost").replace("--port 443", f"--port {self.port}")
        text = text.replace("proxy.example.org:3128", f"127.0.0.1:{self.proxy.port}")
        for placeholder, value in self.known.items():
            text = text.replace(placeholder, value)
        return text

    def run(self, block: Block, name: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", self.text(block, name)],
            cwd=self.folder / name,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{name}: {block.text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self, block: Block, name: str) -> None:
        with (self.folder / name / f"{len(self.running)}.log").open("wb") as log:
            command = ["bash", "-euc", self.text(block, name)]
            place = self.folder / name
            self.running.append(
                subprocess.Popen(
                    command, cwd=place, env=self._environment, stdout=log, stderr=log, start_new_session=True
                )
            )

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*/*.log"))

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
        self.proxy.close()


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[Consortium]:
    made = Consortium(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def write_data(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        f"p{at % 40},{rng.uniform(20, 90):.1f},{rng.uniform(90, 180):.1f},{rng.uniform(18, 40):.1f}" for at in range(60)
    ]
    (folder / "data.csv").write_text("\n".join(["patient,age,pressure,bmi", *rows]) + "\n")


def bring(consortium: Consortium) -> None:
    """What travels between the machines: requests and signed packages, the plan."""
    for name in NAMES:
        made, hub = consortium.folder / name / name / f"{name}.request.json", consortium.folder / "hub"
        if made.exists():
            (hub / made.name).write_bytes(made.read_bytes())
        for back in (hub / "project" / "signed" / f"{name}.signed.zip", hub / "plan.json"):
            if back.exists():
                (consortium.folder / name / back.name).write_bytes(back.read_bytes())


def until(condition: object, seconds: float, consortium: Consortium) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, consortium.logs()
        time.sleep(0.2)


def reached(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def test_flare_guide_commands_work_as_printed(consortium: Consortium) -> None:
    hub, instead = consortium.folder / "hub", {each.where for each in blocks() if "instead" in each.marks}
    for block in blocks():
        own = NAMES if block.where.split("/")[0] == "north" else (block.where.split("/")[0],)
        for name in own:
            if block.kind == "file":
                at = hub if name == "hub" else consortium.folder / name / name
                (at / Path(block.where).name).write_text(consortium.text(block, name))
            elif "until it is over" in block.marks:
                until(lambda: "finished" in consortium.run(block, name), 300, consortium)  # noqa: B023
            elif "serving" in block.marks:
                if "sub_start" in block.text and name in instead and "instead" not in block.marks:
                    continue
                consortium.serve(block, name)
                if "site run" in block.text:
                    until(lambda: alive(consortium.folder / name / name / "state" / "socket", 5.0), 60, consortium)  # noqa: B023
                elif name == "hub":
                    until(lambda: reached(consortium.port), 90, consortium)
            else:
                said = consortium.run(block, name)
                if "site init" in block.text:
                    consortium.known[f"IDENTITY OF {name}"] = re.findall(r"\b[0-9a-f]{64}\b", said)[0]
                    write_data(consortium.folder / name / name, NAMES.index(name))
                if "provision" in block.text:
                    consortium.known["SHA256:..."] = re.findall(r"SHA256:[0-9A-F:]+", said)[0]
                bring(consortium)
    result = json.loads((hub / "result" / "result.json").read_text())
    assert len(result["participants"][0]) >= 3
    assert result["privacy"]["private"]
    assert consortium.proxy.connected > 0
    for name in result["participants"][0]:
        home = consortium.folder / name / name
        with Ledger.inspect(home / "state" / "ledger.sqlite") as ledger:
            ledger.verify()
            assert {entry.spend.round for entry in ledger.entries()} == {0}
    keys = [path for path in consortium.folder.rglob("*.key") if path.parent.parent.name not in ("kit",)]
    assert {path.name for path in keys if hub in path.parents} <= {"rootCA.key", "server.key", "client.key"}
