"""Keys of a site on the command line: replaced, vouched for, withdrawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerosum.cli import _run
from zerosum.errors import BadInput
from zerosum.study import SiteFile


def run(*words: object) -> int:
    return _run([str(word) for word in words])


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run("site", "init", tmp_path / "north", "--json") == 0
    capsys.readouterr()
    return tmp_path / "north" / "site.toml"


def test_a_new_key_with_a_statement_that_others_can_check(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_key_that_was_lost_is_withdrawn_and_vouches_for_nobody(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = SiteFile.load(site).keep_identity().public.hex()
    (site.parent / "identity.key").chmod(0o644)
    assert run("site", "health", "--site", site) == 4
    with pytest.raises(BadInput, match="rotate-key --lost"):
        SiteFile.load(site).keep_identity()
    assert run("site", "rotate-key", "--site", site) == 2  # an old key that others read does not vouch
    assert run("site", "rotate-key", "--lost", "--site", site, "--json") == 0
    said = json.loads(capsys.readouterr().out.split("}\n")[-2] + "}")
    assert said["statement"] is None
    assert (site.parent / "state" / "withdrawn" / before).exists()
    log = [json.loads(line) for line in (site.parent / "state" / "audit.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "decided"
    assert said["identity"] in log[-1]["words"]


def test_only_keys_are_withdrawn(site: Path) -> None:
    assert run("site", "withdraw", "ab" * 32, "--site", site) == 0
    for wrong in ("../../decisions", "AB" * 32, "ab"):
        assert run("site", "withdraw", wrong, "--site", site) == 2
    assert [path.name for path in (site.parent / "state" / "withdrawn").iterdir()] == ["ab" * 32]


def test_without_flare_requests_say_what_is_missing(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(site.parent / "bin" / "python"))
    assert run("site", "request", "--site", site) == 2
    assert run("site", "kit", site, "--fingerprint", "SHA256:00", "--site", site) == 2
    assert not (site.parent / "kit").exists()
