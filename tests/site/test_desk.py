"""Stewards and auditors who are other users of the machine: what each may do, and who is recorded."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.site_service import REQUEST, lines, refused, serve, tell
from helpers.small_studies import make
from zerosum.cli import _run
from zerosum.errors import AwaitingConsent, BadInput, SiteFault
from zerosum.kernel.plan import Plan
from zerosum.protocol.messages import Consent, Contribute, Propose
from zerosum.site.audit_log import AuditLog, os_user
from zerosum.site.decisions import Consents
from zerosum.site.desk import Desk, ask, serving
from zerosum.site.service import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_PEERCRED is Linux's")
OWN_GROUP = grp.getgrgid(os.getgid()).gr_name if sys.platform == "linux" else ""
ASK = """
import socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
stream.sendall(sys.argv[2].encode() + b"\\n")
print(stream.makefile().readline())
"""


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder, self.plan = folder, make("local")
        self.service: Service = serve(folder, automatic=False)
        self.desk = Desk(
            "s0", self.service.policy, Consents(folder), AuditLog(folder / "audit.jsonl"), folder / "audit.jsonl"
        )

    def proposed(self) -> Plan:
        assert isinstance(refused(tell(self.service, self.plan, Propose(self.plan))), AwaitingConsent)
        return self.plan


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder that all users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_desk_steward_approves_and_log_names_user(site: Site, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = site.proposed()
    desk = room / "steward"
    with serving(site.desk, room, {"steward": OWN_GROUP}):
        assert desk.stat().st_mode & 0o777 == 0o660
        assert [each["digest"] for each in ask(desk, do="status")["waiting"]] == [plan.digest()]
        assert Plan.from_json(ask(desk, do="plan", digest=plan.digest()[:8]).encode()) == plan
        assert _run(["site", "plan", plan.digest(), "--desk", str(desk), "--out", str(room / "plan.json")]) == 0
        capsys.readouterr()
        assert _run(["site", "plan", plan.digest(), "--desk", str(desk)]) == 0
        shown = capsys.readouterr().out
        assert all(name in shown for name in (*plan.question.columns, plan.digest(), plan.releases[0].statistic))
        assert _run(["site", "status", "--desk", str(desk), "--json"]) == 0
        assert _run(["site", "approve", str(room / "plan.json"), "--desk", str(desk)]) == 0
        assert isinstance(tell(site.service, plan, Propose(plan)), Consent)
        assert _run(["site", "refuse", plan.digest(), "--reason", "not now", "--desk", str(desk)]) == 0
        assert "not now" in str(refused(tell(site.service, plan, Contribute(0, 0, REQUEST))))
        assert _run(["site", "withdraw", "ab" * 32, "--desk", str(desk)]) == 0
        assert _run(["site", "withdraw", "ab", "--desk", str(desk)]) == 2
    assert not desk.exists()
    assert Consents(site.folder).withdrawn() == {"ab" * 32}
    assert {line["user"] for line in lines(site.folder) if line["event"] == "decided"} == {os_user(os.getuid())}
    assert os_user(os.getuid()) in (site.folder / "decisions" / plan.digest()).read_text()
    capsys.readouterr()


def test_desk_auditor_reads_ledger_and_changes_nothing(
    site: Site, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = site.proposed()
    Consents(site.folder).decide(plan.digest(), "approved")
    tell(site.service, plan, Propose(plan))
    tell(site.service, plan, Contribute(0, 0, REQUEST))
    desk = room / "auditor"
    with serving(site.desk, room, {"auditor": OWN_GROUP}):
        assert _run(["site", "ledger", "--desk", str(desk), "--json"]) == 0
        (study,) = json.loads(capsys.readouterr().out)["studies"]
        assert study["study"] == plan.study
        assert _run(["site", "ledger", "--desk", str(desk)]) == 0
        assert _run(["site", "audit", "verify", "--desk", str(desk)]) == 0
        for do in ("approve", "refuse", "withdraw", "plan", "nothing"):
            with pytest.raises(BadInput):
                ask(desk, do=do, digest=plan.digest())
        log = site.folder / "audit.jsonl"
        log.write_text("\n".join(log.read_text().splitlines()[:-1]) + "\n")
        assert _run(["site", "audit", "verify", "--desk", str(desk)]) == 4
    capsys.readouterr()


def test_desk_error_of_files_is_an_answer(site: Site, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection was closed without an answer."""
    with serving(site.desk, room, {"auditor": OWN_GROUP}):
        (site.folder / "audit.jsonl.1").mkdir()
        with pytest.raises(BadInput, match=r"audit log cannot be read.*audit\.jsonl\.1"):
            ask(room / "auditor", do="audit")

        def status(*_: object) -> None:
            raise PermissionError(13, "Permission denied", "/state/proposals")

        monkeypatch.setattr(site.desk, "answer", status)
        with pytest.raises(SiteFault, match=r"Permission denied \(/state/proposals\)"):
            ask(room / "auditor", do="status")


def test_desk_steward_cannot_read_the_ledger_entries(site: Site) -> None:
    with pytest.raises(BadInput, match="steward"):
        site.desk.answer("steward", {"do": "ledger"}, "ada")


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"do": 7}\n', b'{"do": "approve"}\n', b"\n"])
def test_desk_bad_request_is_an_error_and_connection_goes_on(line: bytes, site: Site, room: Path) -> None:
    import socket

    with serving(site.desk, room, {"steward": OWN_GROUP}), socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(room / "steward"))
        stream.sendall(line + b'{"do": "status"}\n')
        file = stream.makefile()
        assert json.loads(file.readline())["error"]["type"] == "BadInput"
        assert json.loads(file.readline())["ok"]["site"] == "s0"


def test_desk_unknown_group_is_refused_at_start(site: Site, room: Path) -> None:
    with pytest.raises(BadInput, match="no-such-group"), serving(site.desk, room, {"steward": "no-such-group"}):
        pass
    assert not (room / "steward").exists()
    with pytest.raises(BadInput, match="serving"):
        ask(room / "steward", do="status")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")
def test_desk_lets_in_members_of_the_group_only(site: Site, room: Path) -> None:
    nobody, group = pwd.getpwnam("nobody"), grp.getgrnam("games")
    plan = site.proposed()
    request = json.dumps({"do": "refuse", "digest": plan.digest()})

    def attempt(*groups: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/usr/bin/env", "python3", "-c", ASK, str(room / "steward"), request],
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=groups,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
        )

    with serving(site.desk, room, {"steward": "games"}):
        stranger = attempt()
        assert "PermissionError" in stranger.stderr, stranger
        assert Consents(site.folder).decision(plan.digest()) is None
        member = attempt(group.gr_gid)
        assert "ok" in member.stdout, member
    assert Consents(site.folder).decision(plan.digest()) == "refused"
    (line,) = [line for line in lines(site.folder) if line["event"] == "decided"]
    assert line["user"] == "nobody"
