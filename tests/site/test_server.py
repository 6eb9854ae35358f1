"""A site's socket: whoever connects gets frames or refusals, never the process."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.frame_mutations import mutated
from helpers.small_studies import QUESTION, make
from zerosum.compute.units import Units
from zerosum.errors import BadMessage, Refused
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Contribute, Dismiss, Prepare, Propose, Refusal, Secure
from zerosum.protocol.stream import NO_STUDY, alive, connect, read, write
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.server import Server, only_one
from zerosum.site.service import Service

MOST = 1 << 20
SERVERS: dict[Service, Server] = {}


def in_use(server: Server) -> int:
    """The number of connections on which a frame is arriving or being answered."""
    return len(server._open) - len(server._idle)


@contextmanager
def serving(folder: Path, seconds: float = 30.0) -> Iterator[tuple[Path, Service]]:
    policy = Policy(population="p", data="synthetic", epsilon=100.0, ledger=folder / "ledger.sqlite")
    rows = np.random.default_rng(0).normal(size=(40, 2)) * 0.3
    service = Service(
        "s0",
        policy,
        Identity(),
        lambda plan: Units.from_rows(rows),
        Consents(folder, automatic=True),
        AuditLog(folder / "audit.jsonl"),
        schema=DataSchema.of(Units.from_rows(rows), policy.adjacency),
    )
    server = Server(folder / "socket", service, frame_bytes=MOST, seconds=seconds)
    SERVERS[service] = server
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield folder / "socket", service
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
        assert not (folder / "socket").exists()
        service.close()
        del SERVERS[service]


def ask(path: Path, study: bytes, frame: bytes) -> bytes:
    with connect(path, 30.0) as stream:
        write(stream, study, frame)
        arrived = read(stream, MOST)
    assert arrived is not None
    return bytes(arrived[1])


def test_server_answers_frames_of_study_over_one_connection(tmp_path: Path) -> None:
    plan = make("local")
    study = bytes.fromhex(plan.digest())
    with serving(tmp_path) as (path, _):
        assert path.stat().st_mode & 0o777 == 0o600
        assert alive(path, 5.0)
        with connect(path, 30.0) as stream:
            for message in (Propose(plan), Contribute(0, 0, QUESTION.requests(Adjacency.REPLACE_ONE)[0])):
                write(stream, study, encode(message))
                arrived = read(stream, MOST)
                assert arrived is not None
                assert arrived[0] == study
                assert not isinstance(decode_reply(arrived[1]), Refusal)
    assert not alive(path, 1.0)


def test_server_long_path_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with serving(folder) as (path, _):
        assert alive(path, 5.0)


def test_server_too_large_frame_is_refused_before_reading(tmp_path: Path) -> None:
    with serving(tmp_path) as (path, _):
        with connect(path, 30.0) as stream:
            stream.sendall(struct.pack(">Q32s", 1 << 40, bytes(32)))
            arrived = read(stream, MOST)
            assert arrived is not None
            refusal = decode_reply(arrived[1])
            assert isinstance(refusal, Refusal)
            assert isinstance(refusal.error, BadMessage)
            assert stream.recv(1) == b""  # and nothing more is taken from there
        assert alive(path, 5.0)
        assert '"code": "Malformed"' in (tmp_path / "audit.jsonl").read_text()


def test_server_partial_frames_do_not_stop_it(tmp_path: Path) -> None:
    with serving(tmp_path, seconds=0.3) as (path, _):
        with connect(path, 30.0) as stream:
            stream.sendall(b"ab")  # not even a head
        with connect(path, 30.0) as stream:
            stream.sendall(struct.pack(">Q32s", 1000, bytes(32)) + b"half")
            assert stream.recv(1) == b""  # dropped after the time-out
        assert alive(path, 5.0)


def test_server_slow_frame_is_dropped_after_timeout(tmp_path: Path) -> None:
    """Each byte comes in time, the frame does not: nobody holds a connection for ever."""
    with serving(tmp_path, seconds=0.5) as (path, _), connect(path, 30.0) as stream:
        sent = 0
        with suppress(OSError):
            for sent in range(1000):
                stream.sendall((struct.pack(">Q32s", 1000, bytes(32)) + bytes(1000))[sent : sent + 1])
                time.sleep(0.02)
        assert sent < 500
        assert alive(path, 5.0)


def test_server_connections_beyond_limit_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as (path, service):
        held: list[socket.socket] = [connect(path, 30.0) for _ in range(64)]
        for stream in held:
            stream.sendall(b"\0")  # the first byte of a frame: these connections are in use
        end = time.monotonic() + 30
        while in_use(SERVERS[service]) < 64 and time.monotonic() < end:
            time.sleep(0.01)
        assert not alive(path, 5.0)
        for stream in held:
            stream.close()


def test_server_idle_connections_make_room_for_another(tmp_path: Path) -> None:
    """In 0.2 seventy idle connections of one local process made the health check fail."""
    with serving(tmp_path) as (path, _):
        held = []
        for _ in range(70):
            held.append(connect(path, 30.0))
            write(held[-1], NO_STUDY, b"")
            assert read(held[-1], 0) == (NO_STUDY, b"")
        assert alive(path, 5.0)
        assert held[0].recv(1) == b""  # the one that was idle for the longest time
        write(held[-1], NO_STUDY, b"")
        assert read(held[-1], 0) == (NO_STUDY, b"")
        for stream in held:
            stream.close()


def test_server_after_fifty_studies_has_no_open_files(tmp_path: Path) -> None:
    request = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
    with serving(tmp_path) as (path, service):
        open_files = []
        for n in range(50):
            plan = make("local", study=f"study {n}", epsilon=1.0)
            study = bytes.fromhex(plan.digest())
            assert isinstance(decode_reply(ask(path, study, encode(Propose(plan)))), Consent)
            assert not isinstance(decode_reply(ask(path, study, encode(Contribute(0, 0, request)))), Refusal)
            assert not isinstance(decode_reply(ask(path, study, encode(Dismiss()))), Refusal)
            open_files.append(len(list(Path("/proc/self/fd").iterdir())))
        assert not service._sessions
        assert max(open_files[10:]) <= max(open_files[:10]) + 4  # connections that are just being closed
        assert len(service._ledger.entries()) == 50


def test_only_one_process_per_state_folder_is_allowed(tmp_path: Path) -> None:
    with only_one(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        with pytest.raises(Refused, match="process"), only_one(tmp_path / "state"):
            pass
    with only_one(tmp_path / "state"):
        pass


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_server_mutated_frames_spend_nothing_beyond_consent(count: int, tmp_path: Path) -> None:
    """Against the socket of a site that has agreed to a study under secure-sum."""
    rng = random.Random(0)
    request = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
    with serving(tmp_path) as (path, service):
        plan = make("secure-sum")
        identities = [service.identity, *(Identity() for _ in range(3))]
        keys = [identity.public.hex() for identity in identities]
        plan = replace(plan, sites=tuple(replace(s, identity=k) for s, k in zip(plan.sites, keys, strict=True)))
        study = bytes.fromhex(plan.digest())
        messages = (
            Propose(plan),
            Secure("advertise"),
            Secure("share", data=b"x"),
            Contribute(0, 0, request),
            Prepare(0, 0),
        )
        frames = [encode(message) for message in messages]
        assert isinstance(decode_reply(ask(path, study, frames[0])), Consent)
        refusals = 0
        with connect(path, 60.0) as stream:
            for n in range(count):
                frame = mutated(frames[n % 5 if n % 10 else 0], rng)
                write(stream, study if n % 3 else rng.randbytes(32), frame)
                arrived = read(stream, MOST)
                assert arrived is not None
                reply = decode_reply(arrived[1])
                if isinstance(reply, Refusal):
                    refusals += 1
                    assert "internal" not in str(reply.error)  # whatever comes is foreseen
        assert refusals > 0.99 * count  # a byte of the plan's text that means nothing leaves it the same
        spent = {(each.spend.round, each.spend.attempt, each.plan) for each in service._ledger.entries()}
        assert spent <= {(0, 0, plan.digest())}  # a mutation that still asks for what was consented, and got no more
        assert alive(path, 5.0)
