from __future__ import annotations

import os
import resource
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.process_kills import in_a_child
from helpers.small_studies import make, make_sites
from zerosum import algorithms
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.journal import Journal
from zerosum.engines.in_process import InProcess
from zerosum.errors import Abandoned, BadInput, Refused, ZerosumError
from zerosum.kernel.request import Release
from zerosum.site.policy import Policy
from zerosum.study import run

RELEASE = Release(np.array([[0.1, -2.0], [np.pi, 5e-324]]), 0.5, 12.5, ("a", "b"), (1, 1))


def written(folder: Path) -> list[int]:
    """A journal of two rounds; returns how long the file was after each record."""
    ends = []
    with Journal.create(folder, make("local")) as journal:
        ends.append(journal.path.stat().st_size)
        writes: list[Callable[[], None]] = [
            lambda: journal.asked(0, 0, "aa"),
            lambda: journal.released(0, RELEASE),
            lambda: journal.asked(1, 0, "bb"),
            lambda: journal.asked(1, 1, "bb"),
            lambda: journal.released(1, replace(RELEASE, units=None, rows=())),
            journal.finish,
        ]
        for write in writes:
            write()
            ends.append(journal.path.stat().st_size)
    return ends


def opened(folder: Path) -> Journal:
    journal = Journal.open(folder)
    assert journal is not None
    return journal


def test_journal_reopened_returns_releases_bit_for_bit(tmp_path: Path) -> None:
    written(tmp_path)
    with opened(tmp_path) as journal:
        assert journal.finished
        assert (journal.rounds, journal.extra, journal.plan.algorithm) == (2, 1, "mean")
        for round, request in enumerate(("aa", "bb")):
            back = journal.recall(round, request)
            assert back.value.tobytes() == RELEASE.value.tobytes()
            assert back.value.shape == (2, 2)
            assert (back.noise_std, back.participants) == (0.5, ("a", "b"))
        assert (journal.recall(0, "aa").units, journal.recall(0, "aa").rows) == (12.5, (1, 1))
        with pytest.raises(Refused):
            journal.recall(0, "bb")
        assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
        with pytest.raises(BadInput, match="journal"):
            Journal.create(tmp_path, make("local"))  # never over another one
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    assert Journal.open(tmp_path / "nowhere") is None


def test_journal_cut_at_any_byte_drops_last_record_only(tmp_path: Path) -> None:
    ends = written(tmp_path)
    whole = (tmp_path / "journal").read_bytes()
    for cut in sorted({*range(ends[0], len(whole), 23), *ends[:-1], *(end - 1 for end in ends[1:])}):
        (tmp_path / "journal").write_bytes(whole[:cut])
        records = sum(end <= cut for end in ends) - 1  # beside the plan
        with opened(tmp_path) as journal:
            assert journal.path.stat().st_size == ends[records]
            assert journal.rounds == (0, 1, 1, 2, 2, 2)[records]
            assert [journal.settled(round) for round in (0, 1)] == [records >= 2, records >= 5]
            assert journal.in_flight(1) == (records in (3, 4))
            journal.finish()  # it goes on from there
        with opened(tmp_path) as journal:
            assert journal.finished
    for cut in (0, 5, ends[0] - 1):
        (tmp_path / "journal").write_bytes(whole[:cut])
        with pytest.raises(BadInput, match="journal"):
            opened(tmp_path)


def test_journal_flipped_byte_is_refused_unless_in_last_record(tmp_path: Path) -> None:
    ends = written(tmp_path)
    whole = (tmp_path / "journal").read_bytes()
    for at in range(0, ends[-2], 7):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        (tmp_path / "journal").write_bytes(changed)
        try:
            with opened(tmp_path) as journal:  # a length that now points behind the end reads as torn
                assert not journal.finished
        except ZerosumError:
            pass
    (tmp_path / "journal").write_bytes(whole[:-1] + b"?")
    with opened(tmp_path) as journal:
        assert not journal.finished
    (tmp_path / "journal").write_bytes(whole[: ends[2]] + bytes(500))
    with opened(tmp_path) as journal:
        assert journal.rounds == 1


@pytest.mark.skipif(os.name != "posix", reason="locks of files")
def test_journal_opened_by_second_process_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    with opened(tmp_path), pytest.raises(Refused, match="journal"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_journal_abandoned_round_stays_abandoned_after_next_request(tmp_path: Path) -> None:
    with Journal.create(tmp_path, make("local")) as journal:
        journal.asked(0, 0, "aa")
        assert journal.in_flight(0)
        journal.asked(1, 0, "bb")
    with opened(tmp_path) as journal:
        assert journal.settled(0)
        assert journal.in_flight(1)
        with pytest.raises(Abandoned, match="1"):
            journal.recall(0, "aa")


def test_journal_of_other_plan_is_refused(tmp_path: Path) -> None:
    with Journal.create(tmp_path, make("local")) as journal, pytest.raises(Refused, match="plan"):
        conduct(make("local"), iter(()), InProcess(make_sites(tmp_path)), journal=journal)  # type: ignore[arg-type]


def test_journal_on_full_disk_stops_and_resumes_once_there_is_room(tmp_path: Path) -> None:
    """A limit on the size of files, in a process of its own: the record that did not fit is not there afterwards."""
    plan = make("local")
    with Journal.create(tmp_path, plan) as journal:
        journal.asked(0, 0, "ab")
    size = (tmp_path / "journal").stat().st_size

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200, resource.RLIM_INFINITY))
        journal = Journal.open(tmp_path)
        assert journal is not None
        with journal, pytest.raises(BadInput, match="journal"):
            journal.released(0, Release(np.zeros(100), 1.0, 4.0, ("s0",)))

    assert in_a_child(fill)
    with Journal.open(tmp_path) or pytest.fail("there is a journal") as journal:
        assert journal.in_flight(0)
        journal.released(0, Release(np.ones(100), 1.0, 4.0, ("s0",)))
        assert journal.recall(0, "ab").value.sum() == 100


def test_journal_with_changed_length_is_refused_and_unchanged(tmp_path: Path) -> None:
    data = {name: np.random.default_rng(n).normal(size=(30, 2)) for n, name in enumerate("ab")}
    policies = {name: Policy.throwaway(name, tmp_path / f"{name}.sqlite", unit="record") for name in data}
    program = algorithms.KMeansProgram(columns=("x", "y"), clip=1.0, n_clusters=2, rounds=3)
    run(program, data, epsilon=1.0, delta=1e-5, unit="record", policies=policies, checkpoint=tmp_path / "kept")
    path = tmp_path / "kept" / "journal"
    whole = path.read_bytes()
    at = len(b"zerosum journal 1\n")
    for _ in range(3):
        for bit in (7, 5, 2):  # of the length's bytes: a little longer, and far beyond the end
            changed = bytearray(whole)
            changed[at + bit] ^= 1
            path.write_bytes(changed)
            with pytest.raises(BadInput, match="damaged"):
                Journal.open(tmp_path / "kept")
            assert path.read_bytes() == bytes(changed)
        at += 48 + int.from_bytes(whole[at : at + 8], "big")
    path.write_bytes(whole)
    journal = Journal.open(tmp_path / "kept")
    assert journal is not None
    with journal:
        assert journal.finished
