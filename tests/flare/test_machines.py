"""Machines that go down, a site behind a CONNECT proxy that is cut off, and strangers (`make slow-flare`)."""

from __future__ import annotations

import json
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from helpers.deployment import NAMES, Deployment, zerosum
from helpers.flare_federation import LEAD, Flare, wait_for_rounds
from zerosum.coordinator.journal import Journal
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Contribute, Propose, Secure
from zerosum.study import Study

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")
pytestmark = pytest.mark.slow


class Proxy:
    """A CONNECT proxy on loopback, which can be cut."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bytes = 0
        self._cut = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, cut: bool = True) -> None:
        """From now on nothing passes, and nobody hears that: as if a cable were pulled."""
        (self._cut.set if cut else self._cut.clear)()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        with suppress(OSError), stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += stream.recv(4096)
            method, where, _ = head.split(b"\r\n")[0].decode().split()
            self.asked.append(f"{method} {where}")
            if method != "CONNECT" or self._cut.is_set():
                return
            host, _, port = where.rpartition(":")
            with socket.create_connection((host, int(port))) as there:
                stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._carry(stream, there)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        while True:
            for ready in select.select([one, other], [], [], 1.0)[0]:
                part = ready.recv(1 << 16)
                if not part:
                    return
                if not self._cut.is_set():
                    self.bytes += len(part)
                    (other if ready is one else one).sendall(part)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


@pytest.fixture(scope="module")
def flare(proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flare]:
    deployment = Deployment(tmp_path_factory.mktemp("f"), epsilon=1000.0)
    behind = {"https_proxy": f"http://127.0.0.1:{proxy.port}", "no_proxy": "", "no_grpc_proxy": ""}
    made = Flare(deployment, environment={"west": behind})
    try:
        made.start()
        deployment.start()
        yield made
    finally:
        made.stop()
        deployment.stop()


def begin(flare: Flare, name: str, rounds: int) -> tuple[Path, Path]:
    parameters = f"n_clusters = 1\nrounds = {rounds - 3}"
    study = flare.deployment.study("k-means", name=name, parameters=parameters, seed=None)
    return flare.job(study), flare.deployment.folder / "studies" / name


def taken_part(flare: Flare, name: str) -> list[list[str]]:
    result = json.loads((flare.deployment.folder / f"{name}-out" / "result.json").read_text())
    took: list[list[str]] = result["participants"]
    return took


def each_round_once(flare: Flare, name: str) -> dict[str, int]:
    """How many rounds are in each ledger, none twice."""
    found = {}
    for each in NAMES:
        spent = [(round, attempt) for study, round, attempt in flare.deployment.spent(each) if study.startswith(name)]
        assert len(set(spent)) == len(spent)
        assert all(attempt == 0 for _, attempt in spent)
        found[each] = len(spent)
    return found


def test_flare_client_and_server_down_resume_without_double_spending(flare: Flare) -> None:
    """The site is lost in seconds and the others go on; a new server and the same job resume, with everybody."""
    job, state = begin(flare, "down", 60)
    submitted = flare.submit(job)
    wait_for_rounds(state, 3)
    flare.kill("east")
    killed = time.monotonic()
    before = (state / "journal").read_bytes().count(b'"kind": "release"')
    wait_for_rounds(state, before + 2)
    print(f"rounds went on {time.monotonic() - killed:.1f} s after the FLARE client was killed")
    wait_for_rounds(state, 12)
    flare.kill("server")
    submitted.kill()
    submitted.communicate()
    flare.start("server", "east")
    started = time.monotonic()
    assert flare.ended(flare.submit(job)) == ["FINISHED:COMPLETED"], flare.log("server")[-4000:]
    print(f"resumed and over {time.monotonic() - started:.1f} s after the server was started again")
    took = taken_part(flare, "down")
    assert len(took) == 60
    assert [name for name in NAMES if any(name not in names for names in took)] == ["east"]
    assert "east" in took[-1]
    found = each_round_once(flare, "down")
    assert [found[name] for name in NAMES if name != "east"] == [60] * 3
    assert found["east"] < 60


def test_flare_study_goes_on_without_absent_machine(flare: Flare) -> None:
    """A whole site and then the server go down; the server comes back, the site does not. FLARE would hold the study's
    own job back until it does."""
    deployment, folder = flare.deployment, flare.deployment.folder
    parameters = "n_clusters = 1\nrounds = 27"
    study = deployment.study("k-means", name="alone", attempts=1, parameters=parameters, seed=None)
    job, state = flare.job(study, patience=2), folder / "studies" / "alone"
    submitted = flare.submit(job)
    wait_for_rounds(state, 3)
    flare.kill("east")
    deployment.kill("east")
    flare.kill("server")
    submitted.kill()
    submitted.communicate()
    try:
        flare.start("server")
        done = zerosum("flare", "resume", "--state", state, "--job", folder / "alone-again", cwd=folder)
        assert done.returncode == 0, done.stderr
        again = flare.submit(folder / "alone-again", clients=3)
        assert flare.ended(again) == ["FINISHED:COMPLETED"], flare.log("server")[-4000:]
    finally:
        deployment.start("east")
        flare.start("east")
    took = taken_part(flare, "alone")
    assert len(took) == 30
    assert "east" in took[0]
    assert "east" not in took[-1]
    for name in NAMES:  # an attempt more, if the others had been told that the lost one is in the sum
        spent = [(round, attempt) for which, round, attempt in deployment.spent(name) if which.startswith("alone")]
        assert len(set(spent)) == len(spent)
        assert name == "east" or {round for round, _ in spent} == set(range(30))
        assert sum(attempt for _, attempt in spent) <= (name != "east")


def test_flare_site_behind_proxy_takes_part_and_cut_off_site_is_lost(flare: Flare, proxy: Proxy) -> None:
    assert set(proxy.asked) == {f"CONNECT localhost:{flare.port}"}
    carried = proxy.bytes
    job, state = begin(flare, "proxied", 30)
    submitted = flare.submit(job)
    wait_for_rounds(state, 3)
    assert proxy.bytes > carried + 10_000
    proxy.cut()
    wait_for_rounds(state, 12)
    proxy.cut(False)
    flare.ended(submitted)  # FLARE may call a job abnormal that lost a client for a while; the result counts
    took = taken_part(flare, "proxied")
    assert len(took) == 30
    assert "west" in took[0]
    assert [name for name in NAMES if any(name not in names for names in took)] == ["west"]
    each_round_once(flare, "proxied")
    flare.kill("west")  # FLARE comes back on its own after a while; a restart is quicker
    flare.start("west")


# ---- strangers -----------------------------------------------------------------------------------------------------

# A cell of FLARE with somebody's certificate: alone, or registered as that client; under its own name, or under the
# server's. It plays recorded frames to a relay, in their order and in another.
STRANGER = """
import json, random, sys, time
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.authenticator import Authenticator
from nvflare.private.fed.utils.fed_utils import fobs_initialize
fobs_initialize()
told = json.load(open(sys.argv[1]))
startup = told["startup"]
known = {"ca": startup + "/rootCA.pem", "cert": startup + "/client.crt", "key": startup + "/client.key"}
credentials = {
    DriverParams.CA_CERT.value: known["ca"],
    DriverParams.CLIENT_CERT.value: known["cert"],
    DriverParams.CLIENT_KEY.value: known["key"],
}
cell = Cell(
    fqcn=told["name"], root_url=told["url"], secure=True, credentials=credentials, create_internal_listener=False
)
cell.start()
headers = {}
if told["register"]:
    asked = Authenticator(
        cell=cell, project_name="zerosum", client_name=told["name"], client_type="regular",
        expected_sp_identity="localhost", secure_mode=True, root_cert_file=known["ca"], private_key_file=known["key"],
        cert_file=known["cert"], msg_timeout=5.0, retry_interval=1.0, timeout=20.0,
    )
    context = FLContext()
    token, signature, ssid, _ = asked.authenticate(context, Signal())
    headers = {
        CellMessageHeaderKeys.CLIENT_NAME: told["name"],
        CellMessageHeaderKeys.TOKEN: token,
        CellMessageHeaderKeys.TOKEN_SIGNATURE: signature,
        CellMessageHeaderKeys.SSID: ssid,
        CellMessageHeaderKeys.PROJECT_NAME: "zerosum",
    }
    def add(message):
        message.add_headers(headers)
    cell.core_cell.add_outgoing_request_filter(channel="*", topic="*", cb=add)
    cell.core_cell.add_outgoing_reply_filter(channel="*", topic="*", cb=add)
frames = [bytes.fromhex(frame) for frame in told["frames"]]
mixed = random.Random(0).sample(frames, len(frames))
for origin in told["origins"]:
    cell.core_cell.my_info.fqcn = origin
    for payload in frames + mixed:
        for send in (cell.send_request, cell.core_cell.send_request):  # streamed, and plain
            message = new_cell_message(dict(headers), payload)
            reply = send(channel="zerosum", topic="frame", target=told["target"], request=message, timeout=1.0,
                         optional=True)
            code = reply.get_header(MessageHeaderKey.RETURN_CODE)
            print("REPLY", code, len(reply.payload or b""), flush=True)
import os
os._exit(0)
"""


def played(flare: Flare, kit: Path, told: dict[str, object]) -> list[str]:
    path = flare.folder / "stranger.json"
    path.write_text(json.dumps(told | {"startup": str(kit / "startup"), "url": f"grpc://localhost:{flare.port}"}))
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, path], capture_output=True, text=True, check=False, timeout=200
    )
    replies = [line for line in done.stdout.splitlines() if line.startswith("REPLY")]
    assert replies, done.stdout + done.stderr
    return replies


def greeted(flare: Flare, kit: Path | None) -> bytes:
    """What the server says to somebody with the certificate of a kit, who knows the project's authority."""
    context = ssl.create_default_context(cafile=str(flare.kits / "east" / "startup" / "rootCA.pem"))
    context.set_alpn_protocols(["h2"])
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    try:
        with (
            socket.create_connection(("localhost", flare.port), 10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as stream,
        ):
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            return stream.recv(1024)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_flare_server_refuses_unknown_certificates_and_replayed_traffic(flare: Flare, tmp_path: Path) -> None:
    """No certificate, another project's, an administrator's; and a client's own, with traffic that was recorded."""
    other = Flare(Deployment(tmp_path), port=flare.port)
    assert greeted(flare, flare.kits / "east") != b""  # so this tells who gets in
    assert greeted(flare, None) == greeted(flare, other.kits / "east") == b""

    job, state = begin(flare, "watched", 1500)
    submitted = flare.submit(job)
    wait_for_rounds(state, 3)
    words = Path(f"/proc/{flare.job_process('north')}/cmdline").read_bytes().split(b"\0")
    number = words[words.index(b"-n") + 1].decode()
    study = Study.load(flare.deployment.folder / "watched.toml")
    (tmp_path / "copy").mkdir()
    shutil.copy(state / "journal", tmp_path / "copy")  # the job's process holds the journal itself
    with closing(Journal(tmp_path / "copy" / "journal")) as journal:
        plan = journal.plan
    request = study.build_algorithm().requests(plan.adjacency)[0]
    digest = bytes.fromhex(plan.digest())
    messages = (Propose(plan), Secure("advertise"), Contribute(0, 0, request))
    told = {"frames": [(digest + encode(message)).hex() for message in messages], "target": f"north.{number}"}

    refused_before = len(flare.deployment.log("north"))
    for who, kit, register in (
        (LEAD, flare.kits / LEAD, False),
        ("east", flare.kits / "east", False),
        ("east", flare.kits / "east", True),
    ):
        if register:
            flare.kill("east")  # the attacker takes its place
        own = "stranger" if not register else "east"
        replies = played(
            flare, kit, told | {"name": own, "register": register, "origins": [own, f"server.{number}", "server"]}
        )
        assert not [line for line in replies if line.startswith("REPLY ok")], (who, replies)
        assert all(line.endswith(" 0") for line in replies), (who, replies)
        assert register == any(line.startswith("REPLY invalid_request") for line in replies), (who, replies)
    lines = flare.deployment.log("north")[refused_before:]
    assert {line["event"] for line in lines} <= {"released"}  # nothing of it came to the site: only the study's own
    rounds = [line["words"].split(" of ")[0] for line in lines]
    assert len(set(rounds)) == len(rounds)
    submitted.kill()
    submitted.communicate()
