"""A site and a coordinator in operation: consent on a terminal, logs, stops in the middle, full disks, wrong files."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from helpers.coordinator_runs import settings
from helpers.deployment import COMMAND, NAMES, Deployment
from zerosum.cli import _run
from zerosum.coordinator.journal import Journal
from zerosum.engines.base import Engine
from zerosum.engines.sockets import Sockets
from zerosum.errors import Abandoned, BadParameter, NotAgreed, Refused
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_message, decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Dismiss,
    Dismissed,
    Message,
    Propose,
    Refusal,
    Reply,
    Secure,
)
from zerosum.study import Study
from zerosum.study.coordinating import Settings, begin, coordinate, leave_out
from zerosum.study.status import read_status


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("d"), epsilon=1000.0)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def nothing(sites: Mapping[str, str]) -> None:
    pass


# ---- consent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["yes", "no", "later"])
def test_site_terminal_consent_prompt_follows_answer_of_steward(said: str, tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, automatic=False)
    plan = Study.load(deployment.study(scheme="local")).plan()
    theirs, ours = pty.openpty()
    command = [*COMMAND, "site", "run", str(tmp_path / "north" / "site.toml")]
    process = subprocess.Popen(
        command,
        stdin=ours,
        stdout=ours,
        stderr=ours,
        env={**os.environ, "COLUMNS": "200"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # as a terminal's own process
    )
    deployment.running["north"] = process
    engine = Sockets({"north": deployment.site("north").socket}, plan.digest(), seconds=30.0)
    seen = b""

    def listen() -> None:
        nonlocal seen
        while b"take part?" not in seen:
            seen += os.read(theirs, 4096)

    try:
        deployment.wait("north")
        os.write(theirs, b"yes\n")  # before anything was asked: no answer
        (reply,) = engine.exchange({"north": encode(Propose(plan))})
        assert isinstance(decode_reply(reply[1] or b""), Refusal)
        listen()
        assert [line["event"] for line in deployment.log("north")] == ["started", "waiting"]
        assert plan.digest().encode() in seen
        assert b"epsilon 2.0000" in seen
        assert b"pressure: [60" in seen  # the ranges, and what is left of the cap
        assert b"of 10 at delta 1e-05 is spent; after this study one more may cost" in seen
        os.write(theirs, f"{said}\n".encode())
        end = time.monotonic() + 30
        while deployment.log("north")[-1]["event"] != "decided" and said != "later":
            assert time.monotonic() < end
            time.sleep(0.05)
        (reply,) = engine.exchange({"north": encode(Propose(plan))})
        answer = decode_reply(reply[1] or b"")
        assert isinstance(answer, Consent if said == "yes" else Refusal)
        if said == "later":
            assert isinstance(answer, Refusal)
            assert answer.error.code == "AwaitingConsent"
    finally:
        engine.close()
        deployment.stop()
        os.close(theirs)
        os.close(ours)
    assert process.returncode == 0


# ---- stops ----------------------------------------------------------------------------------------------------------


class Pausing:
    """Does something once, when a frame of some round is about to go out."""

    def __init__(self, engine: Engine, round: int, act: Callable[[], object]) -> None:
        self._engine, self._round, self._acts = engine, round, [act]

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        message = decode_message(next(iter(frames.values())))
        if isinstance(message, Contribute) and message.round == self._round and self._acts:
            self._acts.pop()()
        return self._engine.exchange(frames)


def test_site_stopped_during_round_answers_or_records_nothing(deployment: Deployment) -> None:
    """SIGTERM while frames are on their way: what is in the ledger was answered or is a loss; the process ends by
    itself, the others go on, and the site joins the next study."""
    name = "stopped"
    study = deployment.study("k-means", name=name, parameters="n_clusters = 1\nrounds = 57", seed=None)
    begin(settings(deployment, study, name), deployment.folder / name)
    known = Settings.load(deployment.folder / name)
    process = deployment.running.pop("east")

    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with known.connect(plan) as engine:
            yield Pausing(engine, 1, lambda: threading.Timer(0.001, process.terminate).start())

    try:
        result = coordinate(deployment.folder / name, nothing, connect=connect)
        assert process.wait(30) == 0
    finally:
        deployment.start("east")
    assert all(len(names) >= 3 for names in result.participants)
    assert "east" not in result.participants[-1]
    spent = [round for which, round, _ in deployment.spent("east") if which.startswith(name)]
    answered = [at for at, names in enumerate(result.participants) if "east" in names]
    assert set(answered) <= set(spent)
    lines = [line for line in deployment.log("east") if line.get("study", "").startswith(name)]
    assert sum(line["event"] == "released" for line in lines) == len(spent)
    assert [line["event"] for line in deployment.log("east")][-2:] == ["stopped", "started"]


def test_coordinator_stopped_finishes_round_and_resumes(deployment: Deployment) -> None:
    folder = deployment.folder
    study = deployment.study("k-means", name="halted", parameters="n_clusters = 1\nrounds = 27", seed=None)
    sites = [word for each, path in deployment.sockets().items() for word in ("--site", f"{each}={path}")]
    words = ["coordinator", "run", str(study), "--state", str(folder / "halted"), "--out", str(folder / "halted-out")]
    process = subprocess.Popen([*COMMAND, *words, *sites, "--log-json"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(json.loads(line))
        if seen[-1]["words"] == "round: 3 of 30":
            running = read_status(folder / "halted")
            process.send_signal(signal.SIGTERM)
            break
    with process.stderr:
        process.stderr.read()
    assert process.wait(30) == 130
    assert running["running"]
    assert running["traffic"]["exchanges"] > 9
    assert {line["event"] for line in seen} == {"begun", "attendance", "progress"}
    assert all({"time", "level", "words"} <= line.keys() for line in seen)
    assert _run(["coordinator", "health", "--state", str(folder / "halted")]) == 4
    with Journal.open(folder / "halted") or pytest.fail("there is a journal") as journal:
        assert journal.rounds >= 3
        assert not journal.in_flight(journal.rounds - 1)  # nothing was cut off in its middle
    result = coordinate(folder / "halted", nothing)
    assert result.participants == (NAMES,) * 30
    assert _run(["coordinator", "health", "--state", str(folder / "halted")]) == 0
    for name in NAMES:  # no attempt was bought, so none was needed
        assert [round for which, round, _ in deployment.spent(name) if which.startswith("halted")] == list(range(30))


# ---- losses ---------------------------------------------------------------------------------------------------------


class Deaf:
    """Loses one site at one moment."""

    def __init__(self, engine: Engine, name: str, when: Callable[[Message], bool]) -> None:
        self._engine, self._name, self._when = engine, name, when

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        message = decode_message(next(iter(frames.values())))
        for name, reply in self._engine.exchange(frames):
            yield name, None if name == self._name and self._when(message) else reply


def test_study_that_lost_site_in_set_up_restarts_without_it(tmp_path: Path) -> None:
    """By plan: the stewards approved the one plan that says so, and nothing else; nobody is asked again."""
    deployment = Deployment(tmp_path, automatic=False)
    study = deployment.study(name="short", seed=None)
    study.write_text(study.read_text().replace("dropouts = 1", "dropouts = 1\nabsences = 1"))
    plan = begin(settings(deployment, study, "short"), tmp_path / "short")
    try:
        deployment.start()
        for name in NAMES:
            assert _run(["site", "approve", plan.digest(), "--site", str(tmp_path / name / "site.toml")]) == 0
        known = Settings.load(tmp_path / "short")

        @contextmanager
        def connect(plan: Plan) -> Iterator[Engine]:
            with known.connect(plan) as engine:
                yield Deaf(engine, "east", lambda message: isinstance(message, Secure) and message.step == "share")

        with pytest.raises(Abandoned, match="released"):
            coordinate(tmp_path / "short", nothing, connect=connect)
        deployment.kill("east")
        with pytest.raises(BadParameter, match=r"\b1\b"):
            leave_out(tmp_path / "short", ["east", "west"])
        assert _run(["coordinator", "leave-out", "east", "--state", str(tmp_path / "short")]) == 0
        result = coordinate(tmp_path / "short", nothing)
        assert result.participants == (("north", "south", "west"),)
        with pytest.raises(Refused, match="begun"):
            leave_out(tmp_path / "short", ["west"])
        for name in ("north", "south", "west"):
            assert len(deployment.spent(name)) == 1
        assert deployment.spent("east") == []
    finally:
        deployment.stop()


def knows(told: Settings, plan: Plan, site: str) -> bool:
    """Whether a site holds a place for a study."""
    with told.connect(plan) as engine:
        ((_, frame),) = engine.exchange({site: encode(Secure("advertise"))})
    assert frame is not None
    reply = decode_reply(frame)
    return not (isinstance(reply, Refusal) and isinstance(reply.error, NotAgreed))


def test_sites_release_place_of_abandoned_study_that_is_given_up(deployment: Deployment) -> None:
    """Else eight studies that were abandoned after their first round keep all sites busy for two days."""
    name = "givenup"
    told = settings(deployment, deployment.study(name=name, seed=None), name)
    folder = deployment.folder / name
    plan = begin(told, folder)

    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with told.connect(plan) as engine:
            yield Deaf(Deaf(engine, "east", _contribution), "west", _contribution)

    with pytest.raises(Abandoned, match="round 1"):
        coordinate(folder, nothing, connect=connect)
    assert all(knows(told, plan, each) for each in NAMES)  # it may be resumed
    assert _run(["coordinator", "give-up", "--state", str(folder)]) == 0
    assert not any(knows(told, plan, each) for each in NAMES)
    assert json.loads((folder / "status.json").read_text())["ended"] == "given up"
    assert _run(["coordinator", "give-up", "--state", str(deployment.folder / "nothing")]) == 2


def _contribution(message: Message) -> bool:
    return isinstance(message, Contribute)


def test_sites_release_budget_of_study_that_did_not_begin_or_is_over(deployment: Deployment) -> None:
    """Else eight studies that one site would not take part in keep all the others busy for two days."""
    name = "dismissed"
    study = deployment.study(name=name, seed=None)
    told = settings(deployment, study, name).model_copy(update={"wait": 0.5, "every": 0.1})
    plan = begin(told, deployment.folder / name)
    deaf = True

    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with told.connect(plan) as engine:
            yield Deaf(engine, "east", lambda message: deaf and isinstance(message, Propose))

    with pytest.raises(Abandoned, match="'east'"):
        coordinate(deployment.folder / name, nothing, connect=connect)
    assert not any(knows(told, plan, each) for each in NAMES)
    deaf = False
    assert coordinate(deployment.folder / name, nothing, connect=connect).participants == (NAMES,)
    assert not any(knows(told, plan, each) for each in NAMES)


def test_coordinator_second_attempt_over_sockets_is_charged_twice_where_answered(deployment: Deployment) -> None:
    """Two sites lost in one round are more than L: it is tried once more, and charged twice where it was answered."""
    name = "again"
    study = deployment.study("k-means", name=name, attempts=1, parameters="n_clusters = 2\nrounds = 2", seed=None)
    plan = begin(settings(deployment, study, name), deployment.folder / name)
    known = Settings.load(deployment.folder / name)

    def first(message: Message) -> bool:
        return isinstance(message, Contribute) and (message.round, message.attempt) == (0, 0)

    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with known.connect(plan) as engine:
            yield Deaf(Deaf(engine, "east", first), "west", first)

    result = coordinate(deployment.folder / name, nothing, connect=connect)
    assert result.participants == (NAMES,) * plan.rounds
    for each in NAMES:
        spent = [(round, attempt) for which, round, attempt in deployment.spent(each) if which.startswith(name)]
        assert sorted(spent) == [(0, 0), (0, 1), *((round, 0) for round in range(1, plan.rounds))]


# ---- many studies ---------------------------------------------------------------------------------------------------


def figures(pid: int) -> tuple[int, int]:
    """Open files and bytes of memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")


def test_site_processes_after_many_studies_hold_no_extra_files_or_memory(deployment: Deployment) -> None:
    """Three at a time through the same four processes, without a restart; files and memory are as before."""
    process = deployment.running["north"]

    def carry_out(name: str) -> None:
        study = deployment.study(name=name, seed=None)
        begin(settings(deployment, study, name), deployment.folder / name)
        coordinate(deployment.folder / name, nothing)

    def three(turn: int) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(carry_out, [f"many-{turn}-{at}" for at in range(3)]))

    for turn in range(3):  # as many as may be open at once, and the first that take their place
        three(turn)
    before = figures(process.pid)
    for turn in range(3, 6):
        three(turn)
    end = time.monotonic() + 20
    while figures(process.pid)[0] > before[0]:  # connections that are being closed
        assert time.monotonic() < end
        time.sleep(0.05)
    assert figures(process.pid)[1] - before[1] < 10 << 20
    for name in NAMES:
        spent = [each for each in deployment.spent(name) if each[0].startswith("many")]
        assert len(spent) == len(set(spent)) == 18


# ---- files that are wrong, disks that are full ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nseconds = 600.0", '\nseconds = "long"'),
        ("\nseconds = 600.0", "\nseconds = nan"),
        ("\nseconds = 600.0", "\nseconds = 0"),
        ("studies = 8", "studies = 2.5"),
        ("hold_seconds = 172800.0", "hold_seconds = -1"),
        ("connections = 64", "connections = true"),
        ("automatic = false", 'automatic = "yes"'),
        ("[limits]", "[limits]\nunheard = 1"),
        ('name = "north"', 'name = ""'),
        ("epsilon = 10.0", 'epsilon = "10"'),
        ("minimum_units = 10", "minimum_units = 0"),
        ("[limits]", "[policy.roster]\neast = 3\n[limits]"),
        ('identity = "identity.key"', 'identity = ["a"]'),
    ],
)
def test_site_run_with_bad_site_file_does_not_start(old: str, new: str, tmp_path: Path) -> None:
    assert _run(["site", "init", str(tmp_path / "north"), "--json"]) == 0
    path = tmp_path / "north" / "site.toml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert _run(["site", "run", str(path)]) == 2
    assert not (tmp_path / "north" / "state" / "socket").exists()


def test_cli_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["site", "run", str(tmp_path / "site.toml")]) == 2
    assert "site.toml" in re.sub(r"\s", "", capsys.readouterr().err)
    assert _run(["coordinator", "health", "--state", str(tmp_path)]) == 2
    assert "journal" in capsys.readouterr().err


def ask(engine: Sockets, message: Message) -> Reply:
    ((_, frame),) = engine.exchange({"north": encode(message)})
    return decode_reply(frame or b"")


def test_site_on_full_disk_sends_nothing_and_resumes_once_there_is_room(tmp_path: Path) -> None:
    """A limit on the size of files, which the system enforces as it does the end of a disk; the ledger meets it."""
    deployment = Deployment(tmp_path, epsilon=1000.0)
    study = Study.load(deployment.study(scheme="local"))
    request = study.build_algorithm().requests(study.plan().adjacency)[0]
    full = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (40000, resource.RLIM_INFINITY)); "
    command = [COMMAND[0], "-c", full + "from zerosum.cli import main; main()"]
    path, released = deployment.site("north").socket, 0
    words = ["site", "run", str(tmp_path / "north" / "site.toml")]
    process = subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL)
    deployment.running["north"] = process
    try:
        deployment.wait("north")
        for _ in range(40):
            plan = study.plan()
            with closing(Sockets({"north": path}, plan.digest(), seconds=30.0)) as engine:
                answer = ask(engine, Propose(plan))
                if isinstance(answer, Consent):
                    answer = ask(engine, Contribute(0, 0, request))
                if isinstance(answer, Refusal):
                    break
                assert isinstance(ask(engine, Dismiss()), Dismissed)
            released += 1
        assert isinstance(answer, Refusal)
        assert answer.error.code in ("LedgerRefused", "SiteFault")
        assert 0 < released < 40
        assert process.poll() is None
    finally:
        deployment.stop()
    before = len(deployment.spent("north"))
    assert released <= before <= released + 1  # too much may be counted, never too little
    deployment.start("north")
    try:
        plan = study.plan()
        with closing(Sockets({"north": path}, plan.digest(), seconds=30.0)) as engine:
            assert isinstance(ask(engine, Propose(plan)), Consent)
            assert isinstance(ask(engine, Contribute(0, 0, request)), Contribution)
    finally:
        deployment.stop()
    assert len(deployment.spent("north")) == before + 1
