"""A SuperLink, four nodes and four sites, each a process of its own, with TLS and node keys on loopback
(`make test-flower`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from helpers.coordinator_runs import in_process, phase
from helpers.deployment import NAMES, Deployment
from helpers.flare_federation import wait_for_rounds
from helpers.flower_federation import SECONDS, Flower
from zerosum.protocol.messages import Message

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from zerosum.flower.keys import found
from zerosum.flower.node import Node, load_key

TESTS = Path(__file__).parent.parent

# A ClientApp that an uploader wrote: it leaves a file at every site where it runs, and then does what ours does.
UPLOADED = """
import os
from pathlib import Path
import zerosum.flower.client_app

Path(os.environ["ZEROSUM_TEST_MARK"]).touch()
app = zerosum.flower.client_app.app
"""


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    deployment = Deployment(tmp_path_factory.mktemp("f"), epsilon=1000.0, rows=20)
    marks = {name: {"ZEROSUM_TEST_MARK": str(deployment.folder / f"{name}.mark")} for name in NAMES}
    # For `helpers.flower_killer`, which the process of a run loads.
    tests = {"superexec": {"PYTHONPATH": str(TESTS), "ZEROSUM_TEST_NODES": str(deployment.folder)}}
    made = Flower(deployment, environment=marks | tests)
    try:
        made.start()
        deployment.start()
        yield made
    finally:
        made.stop()
        deployment.stop()


def same_bits(flower: Flower, name: str, study: Path, lost: str = "", at: str = "") -> None:
    """A study's estimate is that of one process to the bit, if the site `lost` is lost there at the same phase."""

    def loses(site: str, message: Message) -> bool:
        return site == lost and phase(message) in AFTER[at]

    folder = flower.deployment.folder
    expected = in_process(flower.deployment, study, folder / "studies" / name, loses if lost else None)
    with np.load(folder / f"{name}-out" / "estimate.npz") as estimate:
        for key, quantity in expected.estimate.items():
            assert estimate[key].tobytes() == quantity.value.tobytes()


# A node that is killed in a phase stays away for the rest of a study of one round.
AFTER = {"contribute": ("contribute", "sign", "open"), "open": ("open",)}


def test_flower_concurrent_studies_equal_in_process_results(flower: Flower) -> None:
    deployment = flower.deployment
    studies = {
        "mean": deployment.study(name="mean"),
        "pca": deployment.study("pca", name="pca", parameters="n_components = 2"),
        "free": deployment.study(name="free", seed=None),
    }
    runs = []
    for name, study in studies.items():
        runs.append(flower.run(flower.app(study)))
        # One after the other: SuperExec starts a process a second time that sends no heartbeat within 30 s.
        flower.wait_for_process(name)
    for name in studies:
        flower.result(name)
    for name in ("mean", "pca"):
        same_bits(flower, name, studies[name])
    assert flower.ended(runs[0]) == "finished:completed"
    for name in NAMES:
        spent = deployment.spent(name)
        assert len(set(spent)) == len(spent) >= 3
        assert {line["event"] for line in deployment.log(name)} == {"started", "consented", "released"}


@pytest.mark.parametrize("at", ["propose", "advertise", "contribute", "open"])
def test_flower_node_killed_in_phase_is_lost_site(flower: Flower, at: str) -> None:
    """In gathering the coordinator waits for the node, in set-up it gives up with nothing spent and goes on with the
    same app, in a round and its opening the others complete it."""
    deployment, name = flower.deployment, f"killed-{at}"
    study = deployment.study(name=name)
    before = {each: len(deployment.spent(each)) for each in NAMES}
    app = flower.app(study)
    (deployment.folder / "kill.json").write_text(json.dumps({"at": at, "pid": flower.running["east"].pid}))
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("zerosum.flower.server_app:app", "helpers.flower_killer:app"))
    run = flower.run(app)
    end = time.monotonic() + SECONDS
    while flower.running["east"].poll() is None:
        assert time.monotonic() < end, flower.log("superexec")[-4000:]
        time.sleep(0.05)
    flower.kill("east")
    if at == "advertise":
        assert flower.ended(run) == "finished:failed"
        assert {each: len(deployment.spent(each)) for each in NAMES} == before
    if at in ("propose", "advertise"):
        flower.start("east")
    if at == "advertise":
        flower.run(app)
    result = flower.result(name)
    expected = list(NAMES) if at != "contribute" else [each for each in NAMES if each != "east"]
    assert result["participants"] == [expected]
    same_bits(flower, name, study, *(("east", at) if at in AFTER else ()))
    for each in NAMES:
        spent = [entry[1:] for entry in deployment.spent(each) if entry[0].startswith(name)]
        # The frame of the round did not reach a site whose node was killed before it was sent.
        assert spent == ([] if at == "contribute" and each == "east" else [(0, 0)])
    if at in AFTER:
        flower.start("east")


def connect(node: Node) -> None:
    with closing(node._client):
        node._activate()


def test_flower_stranger_is_no_node_and_false_superlink_is_not_served(flower: Flower, tmp_path: Path) -> None:
    address, socket = f"localhost:{flower.port}", tmp_path / "socket"
    authority, stranger = (flower.folder / "ca.pem").read_bytes(), ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(httpx.HTTPStatusError):
        connect(Node(address, authority, stranger, socket, 1.0))
    own = load_key(flower.deployment.folder / "north" / "flower" / "node.key")
    found(tmp_path / "other", "localhost", 8443, days=2)
    with pytest.raises(httpx.ConnectError, match="certificate"):
        connect(Node(address, (tmp_path / "other" / "ca.pem").read_bytes(), own, socket, 1.0))


def test_flower_proxy_of_the_hub_passes_the_interface_of_nodes_only(flower: Flower, tmp_path: Path) -> None:
    if (nginx := shutil.which("nginx")) is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    logs = f"pid {tmp_path}/pid;\nerror_log {tmp_path}/error;\nevents {{}}\n"
    temporary = "".join(f"{name}_temp_path {tmp_path}/{name};\n" for name in ("client_body", "proxy", "fastcgi"))
    temporary += "".join(f"{name}_temp_path {tmp_path}/{name};\n" for name in ("uwsgi", "scgi"))
    inner = f"http {{\naccess_log off;\n{temporary}include {flower.folder}/nginx.conf;\n}}\n"
    (tmp_path / "nginx.conf").write_text(logs + inner)
    proxy = subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf", "-p", tmp_path, "-g", "daemon off;"])
    try:
        verify = ssl.create_default_context(cafile=str(flower.folder / "ca.pem"))
        with httpx.Client(verify=verify) as client:

            def status(port: int, path: str) -> int:
                return int(client.post(f"https://localhost:{port}/v1/{path}").status_code)

            end = time.monotonic() + 60
            while True:
                try:
                    passed = status(flower.outer, "fleet/pull-messages")
                    break
                except httpx.ConnectError:
                    assert time.monotonic() < end, (tmp_path / "error").read_text()
                    time.sleep(0.1)
            assert passed == status(flower.port, "fleet/pull-messages") != 404
            for path in ("control/start-run", "control/list-runs", "runtime/acquire-task"):
                assert status(flower.outer, path) == 404
                assert status(flower.port, path) != 404
    finally:
        proxy.terminate()
        proxy.wait(30)


def test_flower_killed_server_app_and_superlink_resume_without_double_spending(flower: Flower) -> None:
    deployment, folder = flower.deployment, flower.deployment.folder
    study = deployment.study("k-means", name="shot", parameters="n_clusters = 1\nrounds = 2", seed=None)
    app, state = flower.app(study), folder / "studies" / "shot"
    flower.run(app)
    wait_for_rounds(state, 1)
    for pid in flower.server_apps():
        os.kill(pid, signal.SIGKILL)
    flower.run(app)
    wait_for_rounds(state, 2)
    for name in ("superexec", "superlink"):
        flower.kill(name)
    flower.start("superlink", "superexec")
    flower.run(app)
    participants = flower.result("shot")["participants"]
    assert isinstance(participants, list)
    assert len(participants) == 5
    for each in NAMES:
        spent = [(round, attempt) for name, round, attempt in deployment.spent(each) if name.startswith("shot")]
        assert len(set(spent)) == len(spent) <= 5


def test_flower_code_of_an_uploader_runs_at_a_supernode_and_not_at_a_node(flower: Flower) -> None:
    """Also that both kinds of node take part in one study, with the same bits."""
    deployment, name = flower.deployment, "uploaded"
    west = flower.running.pop("west")
    west.terminate()
    assert west.wait(60) == 0
    flower.supernodes.add("west")
    flower.start("west")
    study = deployment.study(name=name)
    app = flower.app(study)
    (app / "uploaded.py").write_text(UPLOADED)
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("zerosum.flower.client_app:app", "uploaded:app"))
    flower.run(app)
    assert flower.result(name)["participants"] == [list(NAMES)]
    same_bits(flower, name, study)
    marked = [each for each in NAMES if (deployment.folder / f"{each}.mark").exists()]
    assert marked == ["west"]
