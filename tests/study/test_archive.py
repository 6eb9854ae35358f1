"""Whatever was spent, the result or the round's loss is on record, whenever the process is killed and wherever the disk
is full."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.process_kills import Killer, in_a_child
from zerosum import Policy, run
from zerosum.algorithms import KMeansProgram, MeanProgram
from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput, Refused, ZerosumError
from zerosum.protocol.progress import Observer, Progress, nobody
from zerosum.report.record import Result, read_estimate
from zerosum.site.ledger import Ledger
from zerosum.study.archive import ArchivedStudy, charged_ledgers, results_folder

QUESTION = KMeansProgram(columns=("a", "b"), lower=np.full(2, -3.0), upper=np.full(2, 3.0), n_clusters=1, rounds=1)
NAMES = ("north", "east", "south")


def tables() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(size=(30, 2)) for name in NAMES}


def study(ledgers: Path, observer: Observer = nobody, question: Any = QUESTION, **more: Any) -> Result:
    policies = {name: Policy(population=name, epsilon=1e5, ledger=ledgers / f"{name}.sqlite") for name in NAMES}
    return run(question, tables(), epsilon=1.0, delta=1e-5, unit="person", policies=policies, observer=observer, **more)


def spends(ledgers: Path) -> dict[str, set[int]]:
    """The rounds that every study was charged for, at whichever site."""
    found: dict[str, set[int]] = {}
    for path in ledgers.glob("*.sqlite"):
        with Ledger.inspect(path) as ledger:
            for entry in ledger.entries():
                found.setdefault(entry.spend.study, set()).add(entry.spend.round)
    return found


def assert_all_on_record(ledgers: Path, out: Path) -> list[str]:
    """Every round that was charged was released, and is exported, or is the last one asked; returns the states."""
    known = {kept.about["study"]: kept for kept in ArchivedStudy.all()}
    states = []
    for name, rounds in spends(ledgers).items():
        kept = known[name]
        record = kept.as_record()
        assert record["spent"].keys() == set(NAMES)
        asked, released = record["rounds"]["asked"], record["rounds"]["released"]
        assert max(rounds) < asked
        assert asked - released in (0, 1)
        folder = out / kept.id
        whole = kept.export(folder)
        assert whole == (released == record["rounds"]["planned"])
        if whole:
            assert np.all(np.isfinite(read_estimate(folder)["centers"].value))
        else:
            with np.load(folder / "releases.npz") as arrays:
                assert sorted(arrays.files) == [f"round_{r + 1}" for r in range(released)]
            assert json.loads((folder / "record.json").read_text())["rounds"] == record["rounds"]
        states.append(record["state"])
    return states


def calls_of_a_run(ledgers: Path) -> tuple[int, int]:
    """How many calls of functions a study makes, from consent to its last release, and to its end."""
    left, released = count(), 0

    def listen(seen: Progress) -> None:
        nonlocal released
        if seen.stage == "consent" and seen.done == seen.planned:
            sys.setprofile(lambda *_: next(left) and None)
        released = next(left)

    study(ledgers, listen)
    sys.setprofile(None)
    return released, next(left)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_archive_study_killed_at_random_has_spend_on_record(kills: int, tmp_path: Path) -> None:
    # The first run fills caches, which the children inherit: without it most moments would lie after a child's end.
    calls_of_a_run(tmp_path / "first")
    released, whole = calls_of_a_run(tmp_path / "counted")
    ledgers, rng = tmp_path / "ledgers", np.random.default_rng(random.getrandbits(64))
    moments = [*rng.integers(0, released, kills // 2).tolist(), *rng.integers(released, whole, kills // 2).tolist()]
    for calls in moments:
        in_a_child(partial(study, ledgers, Killer(calls, "consent")))
    states = assert_all_on_record(ledgers, tmp_path / "out")
    assert len(states) >= kills // 2
    assert any(state != "done" for state in states)
    print(f"{kills} kills, {len(states)} of them after something was spent: {sorted(states)}")


def test_archive_result_is_stored_and_exported_bit_for_bit(tmp_path: Path) -> None:
    result = study(tmp_path)
    kept = ArchivedStudy.load(result.kept)
    assert [each.name for each in sorted(kept.folder.iterdir())] == ["about.json", "result"]
    assert kept.export(tmp_path / "again")
    for name, quantity in read_estimate(tmp_path / "again").items():
        assert quantity.value.tobytes() == result.estimate[name].value.tobytes()
        assert quantity.axes == result.estimate[name].axes
    assert kept.spent() == pytest.approx(dict.fromkeys(NAMES, 1.0), rel=1e-6)
    assert json.loads((tmp_path / "again" / "result.json").read_text())["kept"] == result.kept
    with pytest.raises(BadInput, match="again"):
        kept.export(tmp_path / "again")
    with pytest.raises(BadInput, match="'nosuch'"):
        ArchivedStudy.load("nosuch")
    with pytest.raises(BadInput, match="''"):
        ArchivedStudy.load("")


class Stopped(Exception):
    pass


def stop_after(round: int, error: type[BaseException] = Stopped) -> Observer:
    def look(seen: Progress) -> None:
        if seen.stage == "round" and seen.done == round:
            raise error

    return look


def test_archive_study_stopped_after_last_release_is_computed_again(tmp_path: Path) -> None:
    with pytest.raises(Stopped) as told:
        study(tmp_path, stop_after(4))
    (kept,) = ArchivedStudy.all()
    assert kept.as_record()["state"] == "released"
    assert "4 of 4" in told.value.__notes__[0]
    assert f"zerosum results show {kept.id}" in told.value.__notes__[0]
    assert kept.export(tmp_path / "out")
    assert ArchivedStudy.load(kept.id).as_record()["state"] == "done"
    assert read_estimate(tmp_path / "out")["centers"].shape == (1, 2)


def test_archive_study_with_laplace_noise_is_computed_again(tmp_path: Path) -> None:
    question = MeanProgram(columns=("a", "b"), lower=np.full(2, -3.0), upper=np.full(2, 3.0))
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(1), question, noise="laplace")
    (kept,) = ArchivedStudy.all()
    assert kept.export(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["privacy"]["releases"][0]["noise"] == "laplace"
    assert read_estimate(tmp_path / "out")["mean"].shape == (2,)


def test_archive_study_interrupted_reports_spent_epsilon(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as told:
        study(tmp_path, stop_after(1, KeyboardInterrupt))
    assert "epsilon 0." in told.value.__notes__[0]
    assert "1 of 4" in told.value.__notes__[0]
    assert assert_all_on_record(tmp_path, tmp_path / "out") == ["stopped"]


def test_archive_refused_or_seeded_study_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZerosumError):
        run(QUESTION, {"a": np.zeros((2, 2)), "b": np.zeros((2, 2))}, epsilon=1.0, delta=1e-5, unit="person")
    assert not results_folder().exists() or list(results_folder().iterdir()) == []
    run(
        MeanProgram(columns=("a",), clip=1.0),
        {name: np.zeros((20, 1)) for name in NAMES},
        epsilon=1.0,
        delta=1e-5,
        random_state=0,
        policies={name: Policy.throwaway(name, tmp_path / name, unit="record") for name in NAMES},
    )
    assert ArchivedStudy.all() == []  # nobody's data: nothing was spent


def test_archive_resumed_checkpoint_is_stored_once(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(2), checkpoint=folder)
    (kept,) = ArchivedStudy.all()
    assert kept.as_record()["rounds"] == {"asked": 2, "released": 2, "planned": 4}
    result = study(tmp_path, checkpoint=folder)
    assert [each.id for each in ArchivedStudy.all()] == [kept.id] == [result.kept]
    again = study(tmp_path, checkpoint=folder)
    assert again.estimate["centers"].value.tobytes() == result.estimate["centers"].value.tobytes()


def test_archive_own_program_is_exported_as_releases(tmp_path: Path) -> None:
    class Own(KMeansProgram):
        pass

    own = Own(columns=("a", "b"), lower=np.full(2, -3.0), upper=np.full(2, 3.0), n_clusters=1, rounds=1)
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(4), own)
    (kept,) = ArchivedStudy.all()
    assert not kept.export(tmp_path / "out")
    with np.load(tmp_path / "out" / "releases.npz") as arrays:
        assert len(arrays.files) == 4
    assert kept.export(tmp_path / "whole", own)
    (other,) = ArchivedStudy.all()
    with pytest.raises(BadInput, match="whole"):
        other.export(tmp_path / "whole")


def test_archive_study_not_begun_or_without_journal_is_listed(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(1), checkpoint=tmp_path / "kept")
    (kept,) = ArchivedStudy.all()
    shutil.rmtree(tmp_path / "kept")
    record = kept.as_record()
    assert record["state"] == "unreadable"
    assert "journal" in record["fault"]
    assert all(spent is not None for spent in record["spent"].values())
    (results_folder() / "0123").mkdir()
    about = dict(kept.about) | {"study": "another", "journal": None}
    (results_folder() / "0123" / "about.json").write_text(json.dumps(about))
    assert ArchivedStudy.load("0123").as_record()["state"] == "not begun"
    assert len(ArchivedStudy.all()) == 2
    with pytest.raises(BadInput):
        ArchivedStudy.load("0123").export(tmp_path / "out")
    (results_folder() / "0123" / "about.json").write_text("{")
    with pytest.raises(BadInput, match="0123"):
        ArchivedStudy.load("0123")
    assert sorted(each.id for each in ArchivedStudy.all()) == sorted(["0123", kept.id])


def test_archive_removed_study_frees_space_and_keeps_ledgers(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(1))
    (kept,) = ArchivedStudy.all()
    (kept.folder / "notes.txt").write_text("a steward's own")
    running = Journal.open(kept.folder)
    assert running is not None
    with running, pytest.raises(Refused, match=kept.id):
        kept.remove()
    about: dict[str, Any] = dict(kept.about)
    inside = about | {"ledgers": {"s0": [str(kept.folder / "result" / "l.sqlite"), "elsewhere"]}}
    with pytest.raises(Refused, match="ledger"):
        ArchivedStudy(kept.id, kept.folder, inside).remove()
    kept.remove()
    assert ArchivedStudy.all() == []
    assert [path.name for path in kept.folder.iterdir()] == ["notes.txt"]
    assert all(Path(path).exists() for pair in about["ledgers"].values() for path in pair)


def test_archive_study_not_begun_or_damaged_can_be_removed(tmp_path: Path) -> None:
    hurt = study(tmp_path).kept
    (results_folder() / hurt / "about.json").write_text("{")
    (results_folder() / "0123").mkdir()
    (results_folder() / "0123" / "room").write_bytes(bytes(1 << 18))
    about: dict[str, Any] = {"study": "never", "began": "", "journal": None, "program": None, "ledgers": {}}
    (results_folder() / "0123" / "about.json").write_text(json.dumps(about))
    assert ArchivedStudy.load("0123").as_record()["state"] == "not begun"
    for id in (hurt, "0123"):
        ArchivedStudy.load(id, damaged=True).remove()
    assert not list(results_folder().iterdir())


def test_archive_removal_through_link_is_refused(tmp_path: Path) -> None:
    kept = ArchivedStudy.load(study(tmp_path).kept)
    moved = kept.folder.rename(tmp_path / "elsewhere")
    kept.folder.symlink_to(moved)
    before = sorted(moved.rglob("*"))
    with pytest.raises(Refused, match="link"):
        ArchivedStudy.load(kept.id).remove()
    assert sorted(moved.rglob("*")) == before
    kept.folder.unlink()
    moved.rename(kept.folder)
    (tmp_path / "link").symlink_to(kept.folder)
    for ledger in (tmp_path / "link" / "result" / "l.sqlite", kept.folder.parent / "x" / ".." / kept.id / "l.sqlite"):
        inside = dict(kept.about) | {"ledgers": {"s0": [str(ledger), "elsewhere"]}}
        with pytest.raises(Refused, match="ledger"):
            ArchivedStudy(kept.id, kept.folder, inside).remove()
    assert (kept.folder / "result" / "result.json").exists()


@pytest.mark.parametrize(
    "changed", [{"ledgers": {"s0": 3}}, {"ledgers": {"s0": ["one"]}}, {"journal": 3}, {"study": None}, {"began": []}]
)
def test_archive_record_with_other_value_types_is_damaged(changed: dict[str, Any], tmp_path: Path) -> None:
    id = study(tmp_path).kept
    path = results_folder() / id / "about.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changed))
    assert charged_ledgers() == []
    with pytest.raises(BadInput, match=r"about\.json"):
        ArchivedStudy.load(id)
    ArchivedStudy.load(id, damaged=True).remove()
    assert ArchivedStudy.all() == []


@pytest.mark.parametrize("hurt", ["journal", "about.json"])
def test_archive_damaged_study_that_may_have_spent_is_not_listed_as_not_begun(hurt: str, tmp_path: Path) -> None:
    """`results remove --not-begun` takes all of those away: a damaged journal, with ledgers out of reach, is none."""
    with pytest.raises(Stopped):
        study(tmp_path / "ledgers", stop_after(1), checkpoint=None if hurt == "journal" else tmp_path / "kept")
    (kept,) = ArchivedStudy.all()
    (kept.folder / hurt).write_bytes(b"{")
    (tmp_path / "ledgers").rename(tmp_path / "unmounted")
    (kept,) = ArchivedStudy.all()
    assert kept.as_record()["state"] == "unreadable"


@pytest.mark.parametrize(
    ("name", "text", "state"),
    [
        ("about.json", "[]", "done"),
        ("about.json", "{}", "done"),
        ("result/result.json", "{}", "damaged"),
        ("result/result.json", '{"study": ', "damaged"),
    ],
)
def test_archive_damaged_study_does_not_hide_others(name: str, text: str, state: str, tmp_path: Path) -> None:
    hurt, sound = (study(tmp_path).kept for _ in range(2))
    (results_folder() / hurt / name).write_text(text)
    states = {kept.id: kept.as_record()["state"] for kept in ArchivedStudy.all()}
    assert states == {hurt: state, sound: "done"}
    assert len(charged_ledgers()) == len(NAMES)
    with pytest.raises(BadInput, match=hurt):
        ArchivedStudy.load(hurt).export(tmp_path / "out")


def test_archive_study_stopped_before_it_is_stored_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zerosum.study.archive.make_room", stop)
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path)
    assert not list(results_folder().iterdir())


def test_archive_checkpoint_that_cannot_resume_stays_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(1), checkpoint=tmp_path / "kept")
    (before,) = ArchivedStudy.all()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zerosum.study.archive.make_room", full)
    with pytest.raises(BadInput, match="ZEROSUM_STATE"):
        study(tmp_path, checkpoint=tmp_path / "kept")
    assert [kept.as_record() for kept in ArchivedStudy.all()] == [before.as_record()]


# ---- full disks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB that is really full when it is full; it takes the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, at: Callable[[Progress], bool]) -> Observer:
    """Takes every byte that is left of a disk."""

    def look(seen: Progress) -> None:
        if at(seen):
            with (folder / "filler").open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(512)):
                        pass
                except OSError:
                    pass

    return look


def agreed(seen: Progress) -> bool:
    return seen.stage == "consent" and seen.done == seen.planned


def test_archive_result_is_stored_on_disk_that_fills_up(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(small_disk))
    result = study(tmp_path / "ledgers", fill(small_disk, agreed))
    assert ArchivedStudy.load(result.kept).export(tmp_path / "out")
    assert read_estimate(tmp_path / "out")["centers"].value.tobytes() == result.estimate["centers"].value.tobytes()


def test_archive_full_disk_of_ledgers_leaves_loss_on_record(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(small_disk))
    with pytest.raises(ZerosumError):
        study(small_disk / "ledgers", fill(small_disk, agreed))
    (small_disk / "filler").unlink()
    assert_all_on_record(small_disk / "ledgers", tmp_path / "out")


def test_archive_on_full_disk_requests_nothing(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(small_disk))
    fill(small_disk, lambda _: True)(Progress("round", 0, 1))
    with pytest.raises(BadInput, match="ZEROSUM_STATE"):
        study(tmp_path / "ledgers")
    assert spends(tmp_path / "ledgers") == {}


def test_archive_with_limited_file_size_requests_nothing(tmp_path: Path) -> None:
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        with pytest.raises(BadInput, match="ZEROSUM_STATE"):
            study(tmp_path / "ledgers")

    assert in_a_child(limited)
    assert spends(tmp_path / "ledgers") == {}
    assert list(results_folder().iterdir()) == []


def test_journal_torn_record_in_reserved_space_is_dropped(tmp_path: Path) -> None:
    from helpers.small_studies import make
    from zerosum.coordinator.journal import Journal

    with Journal.create(tmp_path, make("local")) as journal:
        journal.asked(0, 0, "aa")
        end = journal.path.stat().st_size
        journal.reserve(4096)
        journal.asked(0, 1, "aa")
        whole = journal.path.read_bytes()
        assert len(whole) == end + 4096
    for kept in range(end + 1, end + 120, 7):
        (tmp_path / "journal").write_bytes(whole[:kept] + bytes(4096))
        looked = Journal.inspect(tmp_path)
        assert looked is not None
        with looked:
            assert looked.extra == (1 if kept >= end + len(whole[end:].rstrip(b"\0")) else 0)
    assert (tmp_path / "journal").stat().st_size == kept + 4096  # looking changes nothing


@pytest.fixture
def everybody_may_read() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[bool, set[int]]:
    """The modes of everything in a folder, and of the folder: of folders (True), and of files."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for each in (folder, *folder.rglob("*")):
        found[each.is_dir()].add(stat.S_IMODE(each.stat().st_mode))
    return found


@pytest.mark.usefixtures("everybody_may_read")
def test_archive_state_folder_under_open_umask_is_private_to_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "new" / "state"
    monkeypatch.setenv("ZEROSUM_STATE", str(state))
    during = []

    def look(seen: Progress) -> None:
        if seen.stage == "round":
            during.append(modes(state))

    study(state / "ledgers", look)
    assert during
    assert all(each == {True: {0o700}, False: {0o600}} for each in [*during, modes(state.parent)])
    (kept,) = ArchivedStudy.all()
    assert kept.export(tmp_path / "out")  # what a user asks for goes by the umask, in a folder of the user
    assert modes(tmp_path / "out") == {True: {0o700}, False: {0o644}}


@pytest.mark.usefixtures("everybody_may_read")
def test_archive_result_computed_again_under_open_umask_is_private_to_owner(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        study(tmp_path, stop_after(4))
    (kept,) = ArchivedStudy.all()
    assert kept.export(tmp_path / "out")
    assert (kept.folder / "result" / "result.json").exists()
    assert modes(kept.folder) == {True: {0o700}, False: {0o600}}


@pytest.mark.usefixtures("everybody_may_read")
def test_archive_results_of_earlier_versions_become_private_to_owner(tmp_path: Path) -> None:
    results_folder().mkdir(parents=True)
    assert stat.S_IMODE(results_folder().stat().st_mode) == 0o755
    study(tmp_path)
    assert stat.S_IMODE(results_folder().stat().st_mode) == 0o700


def test_archive_result_under_strict_umask_is_private_to_owner(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        study(tmp_path).write(tmp_path / "out")
    finally:
        os.umask(before)
    assert modes(tmp_path / "out") == {True: {0o700}, False: {0o600}}
