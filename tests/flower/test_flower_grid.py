"""The engine over a Grid that a test writes: what is a loss, and what interrupts a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.supercore.task_identity import TaskIdentity

from zerosum.engines.local_site import LocalSite
from zerosum.errors import BadInput, Malformed
from zerosum.flower.client_app import answer
from zerosum.flower.grid import FlowerGrid, Interrupted
from zerosum.flower.keys import request
from zerosum.flower.messages import pack, unpack
from zerosum.flower.node import TUNING, Node, _Again, load_key
from zerosum.secagg.keys import Identity

PLAN = "ab" * 32


@pytest.fixture(autouse=True)
def run_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower sets in the process of a run, before it calls a ServerApp."""
    for name, value in {"_run_id": 1, "_node_id": 9, "_task_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)


class Fake:
    """A Grid whose nodes answer with what `reply` makes of a message; None: not at all."""

    def __init__(self, reply: Callable[[Message], Message | None], keys: tuple[str, ...] = ("n", "e")) -> None:
        self._reply, self._keys = reply, keys
        self.sent: dict[str, Message] = {}

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(public_key=key.encode(), node_id=at + 1) for at, key in enumerate(self._keys)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            message.metadata.__dict__.update(_message_id=f"m{len(self.sent)}", _src_node_id=9, _run_id=1)
            self.sent[message.metadata.message_id] = message
            numbers.append(message.metadata.message_id)
        return numbers

    def pull_messages(self, numbers: Iterable[str]) -> list[Message]:
        return [reply for number in numbers if (reply := self._reply(self.sent[number])) is not None]


def asked(reply: Callable[[Message], Message | None], **more: Any) -> dict[str, bytes | None]:
    engine = FlowerGrid(Fake(reply, **more), {"north": "n", "east": "e"}, PLAN, 0.2)
    return {name: None if found is None else bytes(found) for name, found in engine.exchange(FRAMES)}


FRAMES = {"north": b"to north", "east": b"to east"}


def echo(message: Message) -> Message:
    return Message(pack(unpack(message.content)[32:]), reply_to=message)


def test_flower_frames_go_to_nodes_by_their_keys_with_digest_of_plan() -> None:
    assert asked(echo) == FRAMES
    assert asked(echo, keys=("other", "e", "n", "strange")) == FRAMES
    assert asked(lambda message: Message(pack(unpack(message.content)[:32]), reply_to=message)) == dict.fromkeys(
        FRAMES, bytes.fromhex(PLAN)
    )


def test_flower_node_that_is_offline_or_silent_or_fails_is_lost() -> None:
    lost = {"north": b"to north", "east": None}
    assert asked(echo, keys=("n",)) == lost

    def but_east(reply: Callable[[Message], Message | None]) -> Callable[[Message], Message | None]:
        return lambda message: reply(message) if message.metadata.dst_node_id == 2 else echo(message)

    assert asked(but_east(lambda message: None)) == lost
    assert asked(but_east(lambda message: Message(Error(ErrorCode.NODE_UNAVAILABLE), reply_to=message))) == lost
    assert asked(but_east(lambda message: Message(RecordDict({"1": ConfigRecord()}), reply_to=message))) == lost


def test_flower_fault_of_superlink_interrupts_and_is_no_loss() -> None:
    def gone(message: Message) -> Message:
        raise ConnectionError("the run has ended")

    with pytest.raises(Interrupted):
        asked(gone)


@pytest.mark.parametrize("size", [0, 1, (4 << 20) - 1, 4 << 20, (8 << 20) + 5])
def test_flower_content_of_any_size_is_unpacked_as_packed(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    assert unpack(pack(content[:size])) == content[:size]


@pytest.mark.parametrize(
    "records",
    [
        {"1": ConfigRecord({"bytes": b"x"})},
        {"0": ConfigRecord({"bytes": "text"})},
        {"0": ConfigRecord({"other": b"x"})},
        {"0": ConfigRecord({"bytes": b"x"}), "2": ConfigRecord({"bytes": b"x"})},
    ],
)
def test_flower_records_of_another_form_are_malformed(records: dict[str, ConfigRecord]) -> None:
    with pytest.raises(Malformed):
        unpack(RecordDict(records))


@pytest.mark.parametrize("content", [pack(b"short"), pack(bytes(40)), RecordDict()])
def test_flower_site_that_does_not_answer_gives_error_without_text(content: RecordDict, tmp_path: Path) -> None:
    message = Message(content, 1, "query")
    message.metadata.__dict__.update(_message_id="m", _src_node_id=9, _run_id=1)
    reply = answer(message, LocalSite(tmp_path / "socket", 1.0))
    assert reply.has_error()
    assert not reply.error.reason


def test_flower_node_key_is_read_as_request_wrote_it(tmp_path: Path) -> None:
    request(tmp_path, "north", Identity())
    key = load_key(tmp_path / "flower" / "node.key")
    assert isinstance(key.curve, ec.SECP384R1)
    with pytest.raises(BadInput, match="request"):
        load_key(tmp_path / "none")
    (tmp_path / "bad").write_text("no key")
    with pytest.raises(BadInput, match="key"):
        load_key(tmp_path / "bad")


def test_flower_node_without_superlink_tries_again_until_stopped(tmp_path: Path) -> None:
    from helpers.flare_federation import free_port
    from zerosum.flower.keys import found

    found(tmp_path / "made", "localhost", 8443, days=2)
    authority = (tmp_path / "made" / "ca.pem").read_bytes()
    key = ec.generate_private_key(ec.SECP384R1())
    node = Node(f"localhost:{free_port()}", authority, key, tmp_path / "socket", 1.0)
    node.stop()
    node.run()


def test_flower_request_on_a_broken_connection_is_sent_again() -> None:
    left = [httpx.RemoteProtocolError("closed"), httpx.ReadError("closed")]

    def send(context: object) -> str:
        if left:
            raise left.pop()
        return f"sent {context}"

    assert _Again().intercept("it", send) == "sent it"
    left = [httpx.RemoteProtocolError("closed") for _ in range(3)]
    with pytest.raises(httpx.RemoteProtocolError):
        _Again().intercept("it", send)


def test_node_goes_on_after_a_message_that_cannot_be_read(tmp_path: Path) -> None:
    from zerosum.flower.keys import found

    found(tmp_path / "made", "localhost", 8443, days=2)
    key, authority = ec.generate_private_key(ec.SECP384R1()), (tmp_path / "made" / "ca.pem").read_bytes()
    node = Node("localhost:1", authority, key, tmp_path / "socket", 1.0)
    faulty = PullMessagesResponse()
    # A record of no kind, which Flower's reader refuses with an error.
    faulty.messages_list.add().content.items.add(key="x")
    asked: list[object] = []

    def pulled(request: object) -> PullMessagesResponse:
        asked.append(request)
        if len(asked) > 1:
            node.stop()
        return faulty if len(asked) == 1 else PullMessagesResponse()

    node._client = SimpleNamespace(PullMessages=pulled)
    node._serve()
    node._pool.shutdown()
    assert len(asked) == 2
    assert node._free._value == TUNING.threads
