"""Keys of a site on the command line: replaced, vouched for, withdrawn."""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from helpers.process_kills import in_a_child
from zerosum.cli import _run
from zerosum.cli.site import site_init
from zerosum.errors import BadInput
from zerosum.site import identity
from zerosum.site.identity import Rotation, rotate_identity
from zerosum.study import SiteFile


def run(*words: object) -> int:
    return _run([str(word) for word in words])


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run("site", "init", tmp_path / "north", "--json") == 0
    capsys.readouterr()
    return tmp_path / "north" / "site.toml"


def test_cli_rotate_key_writes_statement_that_checks(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = SiteFile.load(site).keep_identity().public.hex()
    assert run("site", "rotate-key", "--site", site, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["former"] == before != said["identity"] == SiteFile.load(site).keep_identity().public.hex()
    assert [each.public.hex() for each in SiteFile.load(site).former_identities()] == [before]
    assert run("site", "check-rotation", said["statement"], "--json") == 0
    assert {"site": "north", "old": before, "new": said["identity"]}.items() <= json.loads(
        capsys.readouterr().out
    ).items()
    assert run("site", "check-rotation", said["statement"]) == 0
    assert f'north = ["{said["identity"]}", "{before}"]' in capsys.readouterr().out
    statement = Path(said["statement"])
    statement.write_text(statement.read_text().replace("north", "east"))
    assert run("site", "check-rotation", statement) == 2
    assert run("site", "check-rotation", site) == 2
    assert run("site", "check-rotation", site.parent / "nothing") == 2


def test_cli_rotate_lost_key_withdraws_it_without_statement(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = SiteFile.load(site).keep_identity().public.hex()
    (site.parent / "identity.key").chmod(0o644)
    assert run("site", "health", "--site", site) == 4
    with pytest.raises(BadInput, match="--lost"):
        SiteFile.load(site).keep_identity()
    assert run("site", "rotate-key", "--site", site) == 2  # an old key that others read does not vouch
    assert run("site", "rotate-key", "--lost", "--site", site, "--json") == 0
    said = json.loads(capsys.readouterr().out.split("}\n")[-2] + "}")
    assert said["statement"] is None
    assert (site.parent / "state" / "withdrawn" / before).exists()
    log = [json.loads(line) for line in (site.parent / "state" / "audit.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "decided"
    assert said["identity"] in log[-1]["words"]


def test_cli_withdraw_accepts_keys_only(site: Path) -> None:
    assert run("site", "withdraw", "ab" * 32, "--site", site) == 0
    for wrong in ("../../decisions", "AB" * 32, "ab"):
        assert run("site", "withdraw", wrong, "--site", site) == 2
    assert [path.name for path in (site.parent / "state" / "withdrawn").iterdir()] == ["ab" * 32]


def test_cli_site_request_and_kit_without_flare_are_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(site.parent / "bin" / "python"))
    assert run("site", "request", "--site", site) == 2
    assert run("site", "kit", site, "--fingerprint", "SHA256:00", "--site", site) == 2
    assert not (site.parent / "kit").exists()


def test_cli_rotate_withdrawn_key_needs_lost_option(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a rotation of a lost key that was killed, and went on without saying that it is lost."""
    old = SiteFile.load(site).keep_identity()
    (site.parent / "identity.key.new").write_bytes(bytes(32))
    (site.parent / "identity.key.new").chmod(0o600)
    assert run("site", "withdraw", old.public.hex(), "--site", site) == 0
    capsys.readouterr()
    assert run("site", "rotate-key", "--site", site) == 2
    assert "--lost" in capsys.readouterr().err
    assert not list(site.parent.glob("rotation-*"))
    assert run("site", "rotate-key", "--lost", "--site", site) == 0
    assert SiteFile.load(site).keep_identity().private not in (old.private, bytes(32))


DISK = {"link", "fsync", "replace", "unlink", "write"}


def rotate_and_die(site: Path, lost: list[str], n: int) -> None:
    """Dies right before the n-th time that something happens to the disk."""
    left = count(n, -1)

    def look(frame: object, event: str, argument: object) -> None:
        touched = event == "c_call" and getattr(argument, "__name__", "") in DISK
        if touched and next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(*arguments: Any, **more: Any) -> Any:
        sys.setprofile(look)
        try:
            return rotate_identity(*arguments, **more)
        finally:
            sys.setprofile(None)

    identity.rotate_identity = watched  # in a child of its own
    run("site", "rotate-key", *lost, "--site", site, "--json")


@pytest.mark.parametrize("lost", [[], ["--lost"]])
def test_cli_rotate_key_killed_anywhere_completes_or_resumes_with_same_key(
    lost: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is a key at every moment; the new one is in place only when its statement is there, or the old one is
    withdrawn: nobody is left with a key that no one vouches for, or with a lost one that still counts."""
    ends = {"before": 0, "after": 0}
    for n in count():
        site = tmp_path / f"{n}" / "site.toml"
        site_init(site.parent, json_=True)
        old = SiteFile.load(site).keep_identity().public.hex()
        done = in_a_child(lambda: rotate_and_die(site, lost, n))  # noqa: B023
        new = SiteFile.load(site).keep_identity().public.hex()
        ends["before" if new == old else "after"] += not done
        if new == old:
            half = site.parent / "identity.key.new"
            begun = half.read_bytes() if half.exists() else None
            assert run("site", "rotate-key", *lost, "--site", site) == 0
            assert lost or begun in (None, (site.parent / "identity.key").read_bytes())
            new = SiteFile.load(site).keep_identity().public.hex()
        capsys.readouterr()
        assert new != old
        log = (site.parent / "state" / "audit.jsonl").read_text()
        assert any(new in line and old in line for line in log.splitlines())
        if lost:
            assert (site.parent / "state" / "withdrawn" / old).exists()
        else:
            told = Rotation.from_json((site.parent / f"rotation-{new[:8]}.json").read_bytes())
            assert (told.old, told.new) == (old, new)
            assert old in [each.public.hex() for each in SiteFile.load(site).former_identities()]
        if done:
            break
    assert ends["before"] > 5
    assert ends["after"] > 0
