"""State folders as coordinators leave them: hundreds, damaged ones, and those that go away."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers.small_studies import make
from helpers.watch_page import coordinated
from zerosum.coordinator.journal import Journal
from zerosum.errors import Refused
from zerosum.protocol.progress import Progress
from zerosum.study.status import NAME, Status
from zerosum.watch.studies import StudyFolders, key_of


def test_study_folders_state_follows_study_from_begun_to_finished(tmp_path: Path) -> None:
    plan = make("local", study="vitals")
    coordinated(tmp_path / "vitals", plan, status=False)
    watched = StudyFolders([tmp_path / "vitals"])
    (study,) = watched.all()
    assert (study.state, study.name, study.rounds, study.planned) == ("begun", "vitals", 0, 1)
    with Journal.open(tmp_path / "vitals") or pytest.fail("no journal"):  # a process is at work
        status = Status(tmp_path / "vitals", plan)
        status.attended({"s0": "agreed", "s1": "waits for its steward", "s2": "absent", "s3": "absent"})
        (study,) = watched.all()
        assert (study.state, study.sites["s1"]) == ("gathering", "waits for its steward")
        status.progressed(Progress("round", 1, 1))
        (study,) = watched.all()
        assert (study.state, study.rounds, study.algorithm) == ("running", 1, "mean")
        status.end("finished")
    (study,) = watched.all()
    assert (study.state, study.ended) == ("finished", "")
    assert watched.plan(study) == plan
    assert watched.result(study) is None


def test_study_folders_ended_study_has_reason(tmp_path: Path) -> None:
    for name, how in {
        "refused": "PolicyRefused: site 'north': no: never",
        "failed": "Abandoned: too many sites were lost",
        "stopped": "stopped",
    }.items():
        status = coordinated(tmp_path / name)
        assert status is not None
        status.end(how)
    found = {study.name: study for study in StudyFolders([tmp_path]).all()}
    assert {name: study.state for name, study in found.items()} == {name: name for name in found}
    assert found["refused"].ended == "site 'north': no: never"
    assert found["stopped"].ended == ""


def test_study_folders_refusing_site_is_marked(tmp_path: Path) -> None:
    status = coordinated(tmp_path / "vitals")
    assert status is not None
    status.attended({"s0": "agreed", "s1": "waits for its steward", "s2": "absent", "s3": "absent"})
    status.end("PolicyRefused: site 's1': the steward of this site refused this study: " + "x" * 1_000_000)
    (study,) = StudyFolders([tmp_path]).all()
    assert len(study.ended) == 2000  # a site that has much to say does not fill the page
    assert study.sites == {"s0": "agreed", "s1": "refused", "s2": "absent", "s3": "absent"}


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"updated": "x"}', b'{"updated": 1}', b'{"updated": 1e400}'),
        json.dumps({"updated": 1.0, "stage": "round", "ended": 3, "sites": [], "study": {}}).encode(),
    ],
)
def test_study_folders_damaged_status_does_not_hide_others(tmp_path: Path, text: bytes) -> None:
    coordinated(tmp_path / "good")
    coordinated(tmp_path / "bad")
    (tmp_path / "bad" / NAME).write_bytes(text)
    found = {study.name: study.state for study in StudyFolders([tmp_path]).all()}
    assert found == {"good": "stopped", "bad": "damaged"}


def test_study_folders_damaged_journal_or_missing_settings_is_reported(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        coordinated(tmp_path / name, status=False)
    (tmp_path / "a" / "journal").write_bytes(b"zerosum journal 1\n\0\0")
    (tmp_path / "b" / "journal").unlink()
    (tmp_path / "b" / "journal").mkdir()
    (tmp_path / "c" / "settings.json").unlink()
    (tmp_path / "notes.txt").write_text("not a study")
    watched = StudyFolders([tmp_path, tmp_path / "nowhere"])
    assert {study.name: study.state for study in watched.all()} == {"a": "damaged", "b": "damaged", "c": "begun"}


def test_study_folders_hundreds_are_listed_and_removed_one_is_dropped(tmp_path: Path) -> None:
    plan = make("local", study="many")
    for at in range(300):
        coordinated(tmp_path / f"study-{at:03}", plan)
    watched = StudyFolders([tmp_path])
    found = watched.all()
    assert len({study.key for study in found}) == 300
    one = found[7]
    watched.plan(one)
    shutil.rmtree(one.folder)
    assert len(watched.all()) == 299
    assert watched.find(one.key) is None
    assert watched.find("../etc") is None
    assert key_of(one.folder) == one.key
    assert str(tmp_path) not in one.key


def test_study_folders_reading_does_not_block_coordinator(tmp_path: Path) -> None:
    """A look takes the journal's lock for a moment; whoever takes up the study waits for that moment."""
    import fcntl
    import threading

    coordinated(tmp_path / "study")
    look = (tmp_path / "study" / "journal").open("rb")
    fcntl.flock(look, fcntl.LOCK_SH)
    threading.Timer(0.05, look.close).start()
    with Journal.open(tmp_path / "study") or pytest.fail("no journal") as journal:
        assert journal.plan.study == "study"
        with pytest.raises(Refused, match="process"):
            Journal.open(tmp_path / "study")
