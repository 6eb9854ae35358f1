"""A site's auditor computes what was sent again: honest sites pass, and every other vector or noise is found."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.command_line import zerosum
from helpers.deployment import NAMES, Deployment
from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame
from zerosum.secagg import commitments, wire
from zerosum.secagg.wire import Kind
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.secrets_kept import FOLDER, Kept
from zerosum.site.service import Service
from zerosum.site.site import Site
from zerosum.study import Study, execute
from zerosum.study.site_data import load_for
from zerosum.study.site_replay import replay
from zerosum.study.site_schema import confirmed_schema


class Served:
    """The services of a deployment in this process, as an engine."""

    def __init__(self, plan: Plan, services: Mapping[str, Service]) -> None:
        self._study, self._services = bytes.fromhex(plan.digest()), services

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        for name, frame in frames.items():
            yield name, self._services[name].answer(self._study, frame)


def service(deployment: Deployment, name: str) -> Service:
    site = deployment.site(name)
    schema = confirmed_schema(site)
    return Service(
        name,
        site.own_policy(),
        site.keep_identity(),
        lambda plan: load_for(plan, site, schema, []),
        Consents(site.state_folder, automatic=True),
        AuditLog(site.audit_log),
        schema=schema,
        kept=site.kept_secrets,
    )


def run(deployment: Deployment, folder: Path, **study: Any) -> Plan:
    whole = Study.load(deployment.study(**study))
    plan = whole.plan()
    with ExitStack() as stack:
        services = {name: service(deployment, name) for name in NAMES}
        for each in services.values():
            stack.callback(each.close)
        with Journal.create(folder, plan) as journal:
            execute(plan, whole.build_algorithm(), Served(plan, services), journal=journal)
    return plan


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Deployment, Plan]:
    deployment = Deployment(tmp_path_factory.mktemp("d"), epsilon=1000.0)
    plan = run(deployment, deployment.folder / "kept", algorithm="pca", seed=None, parameters="n_components = 2\n")
    return deployment, plan


def site_file(deployment: Deployment, name: str = "east") -> Path:
    return deployment.folder / name / "site.toml"


def findings(deployment: Deployment, name: str = "east", received: bool = False) -> set[str]:
    folder = deployment.folder / "kept" if received else None
    return {each.finding for each in replay(site_file(deployment, name), "vitals", folder)[1]}


def test_replay_of_honest_sites_finds_every_contribution_as_committed(played: tuple[Deployment, Plan]) -> None:
    deployment, plan = played
    for name in NAMES:
        found_plan, found, missing = replay(site_file(deployment, name), "vitals", deployment.folder / "kept")
        assert found_plan.digest() == plan.digest()
        assert [(each.round, each.finding) for each in found] == [(r, "as committed") for r in range(plan.rounds)]
        assert not missing


def test_replay_without_a_seed_uses_the_noise_of_the_study(played: tuple[Deployment, Plan]) -> None:
    _, plan = played
    assert plan.seed is None
    assert plan.scheme.name == "secure-sum"


def test_replay_on_other_data_finds_another_vector(played: tuple[Deployment, Plan]) -> None:
    """One cell, a little different: the sum moves by more than a step of the grid."""
    deployment, _ = played
    path = deployment.folder / "east" / "data.csv"
    text = path.read_text()
    rows = text.splitlines()
    try:
        for at in random.Random(0).sample(range(1, len(rows)), 3):
            cells = rows[at].split(",")
            cells[0] = f"{float(cells[0]) + 0.01:.2f}"
            path.write_text("\n".join([*rows[:at], ",".join(cells), *rows[at + 1 :]]) + "\n")
            assert findings(deployment) == {"another vector"}
    finally:
        path.write_text(text)


def test_replay_finds_a_site_that_sent_something_else(tmp_path: Path) -> None:
    """Other sums, other noise, or no noise at all, under honest-looking commitments."""
    noisy = Site._noisy
    for at, change in enumerate((lambda v: v + 1, lambda v: 2 * v, np.zeros_like)):
        deployment = Deployment(tmp_path / str(at), epsilon=1000.0)

        def other(self: Site, *what: Any, change: Any = change) -> Any:
            found = noisy(self, *what)
            return change(found) if self.name == "east" else found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Site, "_noisy", other)
            run(deployment, deployment.folder / "kept", seed=None)
        assert findings(deployment, "east") == {"another vector"}
        assert findings(deployment, "west", received=True) == {"as committed"}


def changed(deployment: Deployment, plan: Plan, **fields: Any) -> Path:
    path = deployment.folder / "east" / "state" / FOLDER / plan.digest() / "0-0.json"
    kept = Kept.of_text(path.read_bytes())
    path.write_bytes(replace(kept, **{name: change(getattr(kept, name)) for name, change in fields.items()}).as_text())
    return path


@pytest.mark.parametrize(
    ("field", "finding"),
    [("secret", "another secret"), ("about", "another secret"), ("committed", "not signed")],
)
def test_replay_of_changed_files_is_no_agreement(played: tuple[Deployment, Plan], field: str, finding: str) -> None:
    deployment, plan = played
    path = deployment.folder / "east" / "state" / FOLDER / plan.digest() / "0-0.json"
    before = path.read_bytes()
    rng = random.Random(field)
    try:
        for _ in range(20):
            at = rng.randrange(32)
            changed(deployment, plan, **{field: lambda old, at=at: old[:at] + bytes([old[at] ^ 4]) + old[at + 1 :]})
            assert finding in findings(deployment)
            path.write_bytes(before)
    finally:
        path.write_bytes(before)


def test_replay_finds_commitments_that_were_not_logged_or_received(played: tuple[Deployment, Plan]) -> None:
    """A site that signs a second commitment for its auditor: the log and the coordinator have the first."""
    deployment, plan = played
    site, path = deployment.site("east"), deployment.folder / "east" / "state" / FOLDER / plan.digest() / "0-0.json"
    before = path.read_bytes()
    kept = Kept.of_text(before)
    secret = bytes(32)
    member = Site("east", load_for(plan, site, confirmed_schema(site), []), site.own_policy(), site.keep_identity())
    vector = member.recomputed(plan, replace(kept, secret=secret))
    body = bytes(wire.decode(kept.committed).body[:32]) + commitments.to_contribution(secret, vector, kept.about)
    body += commitments.to_secret(secret, kept.about)
    study, position = bytes.fromhex(plan.digest())[:16], [each.name for each in plan.sites].index("east")
    committed = wire.encode(Kind.COMMITTED, study, 0, position, body, site.keep_identity())
    log = site.audit_log.read_text()
    try:
        path.write_bytes(replace(kept, secret=secret, committed=committed).as_text())
        assert "not logged" in findings(deployment)
        assert replay(site_file(deployment), "vitals")[2] == 1  # the release that nothing was kept of
        forged = json.loads(log.splitlines()[-1]) | {"commitments": body[32:].hex()}
        site.audit_log.write_text(log + json.dumps(forged) + "\n")
        assert "not logged" not in findings(deployment)
        assert "not received" in findings(deployment, received=True)
    finally:
        path.write_bytes(before)
        site.audit_log.write_text(log)


def test_replay_command_prints_and_fails_by_what_it_found(played: tuple[Deployment, Plan]) -> None:
    deployment, plan = played
    home = deployment.folder / "north"
    done = zerosum("site", "audit", "replay", "vitals", "--received", str(deployment.folder / "kept"), cwd=home)
    assert done.returncode == 0, done.stderr
    assert "1 contribution as committed" in done.stdout
    record = json.loads(zerosum("site", "audit", "replay", plan.digest()[:10], "--json", cwd=home).stdout)
    assert [each["finding"] for each in record["found"]] == ["as committed"] * plan.rounds
    path = home / "data.csv"
    text = path.read_text()
    path.write_text(text.replace("\n", "\n20.00,90.00,18.00\n", 2).replace("20.00,90.00,18.00\n", "", 1))
    assert zerosum("site", "audit", "replay", "vitals", cwd=home).returncode != 0
    path.write_text(text)
    assert zerosum("site", "audit", "forget", "vitals", cwd=home).returncode == 0
    assert zerosum("site", "audit", "replay", "vitals", cwd=home).returncode == 2
    assert "deleted" in (home / "state" / "audit.jsonl").read_text().splitlines()[-1]
    with pytest.raises(BadInput, match="journal"):
        replay(site_file(deployment), "vitals", home)
