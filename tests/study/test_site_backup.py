"""Backups of a site that serves, restorations that are killed, and the account for what was lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from helpers.process_kills import in_a_child
from helpers.small_studies import make
from zerosum.cli.site import site_init
from zerosum.errors import BadInput, BadParameter, LedgerRefused, Refused
from zerosum.kernel.accountant import mu_for
from zerosum.site.audit_chain import verify
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_file import read_counter
from zerosum.site.ledger_records import Spend
from zerosum.study import SiteFile
from zerosum.study.encrypted_file import decrypted, encrypted
from zerosum.study.site_backup import Restored, backup, restore

WORD = "a long passphrase"
KEY, DIGEST = "ab" * 32, "cd" * 32
STRICT = 'noise = ["gaussian"]\nmost_phases = 0\n'


def spend(number: int, mu: float = 0.01) -> Spend:
    return Spend("s", number, 0, "person", "mean", 2.0, mu, "aa")


class World:
    """One site in a folder, and its counter on another disk."""

    def __init__(self, folder: Path, more: str = "", *, counter: bool = True) -> None:
        self.folder, self.home = folder, folder / "north"
        site_init(self.home, json_=True)
        self.path = self.home / "site.toml"
        text = self.path.read_text().replace('noise = ["gaussian"]', "")
        place = f'counter = "{folder / "other" / "counter"}"\n' if counter else ""
        text = text.replace('ledger = "state/ledger.sqlite"\n', f'ledger = "state/ledger.sqlite"\n{place}{more}')
        self.path.write_text(text)
        self.backups = count()

    @property
    def site(self) -> SiteFile:
        return SiteFile.load(self.path)

    def separate_policy(self, place: str) -> tuple[str, str]:
        """The site's file with a separate policy, whose table is removed, and the entries of that table."""
        before, _, rest = self.path.read_text().partition("[policy]\n")
        policy, _, limits = rest.partition("[limits]\n")
        return f'policy = "{place}"\n{before}[limits]\n{limits}', policy

    def spend(self, first: int, last: int, mu: float = 0.01) -> None:
        policy = self.site.own_policy()
        with policy.open_ledger() as ledger:
            for number in range(first, last):
                ledger.record(spend(number, mu), policy.cap)

    def backup(self) -> Path:
        out = self.folder / f"backup-{next(self.backups)}"
        backup(self.path, out, WORD)
        return out

    def lose(self, *, counter: bool = False) -> None:
        """The disk of the site is lost, and perhaps that of the counter."""
        shutil.rmtree(self.home)
        if counter:
            shutil.rmtree(self.folder / "other", ignore_errors=True)

    def restore(self, file: Path, **more: float) -> Restored:
        return restore(file, self.home, WORD, **more)

    def epsilon(self) -> float:
        policy = self.site.own_policy()
        with policy.open_ledger() as ledger:
            return ledger.epsilon(policy.delta)


def test_backup_restores_everything_but_data(tmp_path: Path) -> None:
    """In 0.2 a copy of a running site's files lacked the write-ahead log, and withdrawn keys were forgotten."""
    world = World(tmp_path)
    identity = world.site.keep_identity().public.hex()
    consents, log = Consents(world.site.state_folder), AuditLog(world.site.audit_log)
    consents.withdraw(KEY)
    consents.decide(DIGEST, "refused", "not this year")
    for number in range(3):
        log.write("waiting", f"event {number}")
    policy = world.site.own_policy()
    with policy.open_ledger() as ledger:  # stays open, as at a serving site: its log is not in the main file
        for number in range(5):
            ledger.record(spend(number), policy.cap)
        file, spent = world.backup(), ledger.epsilon(policy.delta)
    assert file.stat().st_mode & 0o777 == 0o600
    assert identity.encode() not in file.read_bytes()
    world.lose()
    found = world.restore(file)
    assert (found.entries, found.lost, found.charged) == (5, 0, 0.0)
    assert world.site.keep_identity().public.hex() == identity
    consents = Consents(world.site.state_folder)
    assert consents.withdrawn() == {KEY}
    assert (consents.decision(DIGEST), consents.reason(DIGEST)) == ("refused", "not this year")
    assert verify(world.site.audit_log) == (1, 3)
    assert world.epsilon() == spent == found.epsilon
    world.spend(5, 6)


def test_backup_of_lost_entries_with_surviving_counter_closes_the_account(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spend(0, 3, 0.2)
    file = world.backup()
    world.spend(3, 5, 0.2)
    before = world.epsilon()
    world.lose()
    found = world.restore(file)
    policy = world.site.own_policy()
    assert (found.entries, found.lost, found.charged) == (3, 2, mu_for(policy.epsilon, policy.delta))
    assert world.epsilon() > policy.epsilon > before
    with pytest.raises(Refused):
        world.spend(5, 6)
    assert (tmp_path / "other" / "counter.before-restore").exists()


@pytest.mark.parametrize("more", [STRICT, ""])
def test_backup_of_lost_entries_with_known_study_cost_charges_each(more: str, tmp_path: Path) -> None:
    world = World(tmp_path, more)
    world.spend(0, 3, 0.1)
    file = world.backup()
    world.spend(3, 7, 0.1)
    before = world.epsilon()
    world.lose()
    found = world.restore(file, each=0.5)
    policy = world.site.own_policy()
    whole = mu_for(policy.epsilon, policy.delta)
    assert found.charged == (2 * mu_for(0.5, policy.delta) if more else whole)
    assert before <= world.epsilon()
    assert (world.epsilon() < policy.epsilon) == bool(more)


@pytest.mark.parametrize("older", [0, 2, 3, 4])
def test_backup_with_older_copy_of_counter_charges_the_whole_cap(older: int, tmp_path: Path) -> None:
    """Such a counter was mistaken for one that shows no later entry, and nothing was charged."""
    world, counter = World(tmp_path), tmp_path / "other" / "counter"
    copies = []
    for number in range(4):
        world.spend(number, number)  # opens the ledger, which writes the counter
        copies.append(counter.read_bytes())
        world.spend(number, number + 1, 0.2)
    file = world.backup()
    world.spend(4, 5, 0.2)
    copies.append(counter.read_bytes())
    world.spend(5, 6, 0.2)
    spent = world.epsilon()
    world.lose()
    counter.write_bytes(copies[older])
    found, policy = world.restore(file), world.site.own_policy()
    # An older copy that was made after the backup cannot be recognised; it is ahead of the backup, and charged so.
    assert (found.lost, found.charged) == (1 if older == 4 else None, mu_for(policy.epsilon, policy.delta))
    assert world.epsilon() >= spent


@pytest.mark.parametrize("behind", [1, 2])
def test_backup_between_commit_and_counter_charges_nothing(behind: int, tmp_path: Path) -> None:
    """Processes that were killed after their commit had sent nothing."""
    world, counter = World(tmp_path), tmp_path / "other" / "counter"
    world.spend(0, 3)
    before = counter.read_bytes()
    world.spend(3, 3 + behind)
    counter.write_bytes(before)
    file = world.backup()
    world.lose()
    found = world.restore(file)
    assert (found.entries, found.lost, found.charged) == (3 + behind, 0, 0.0)
    assert world.epsilon() == found.epsilon


def test_backup_of_files_that_lie_in_the_state_folder(tmp_path: Path) -> None:
    """A schema there was written twice, and the restoration failed half-way; so did a ledger of such a name."""
    world = World(tmp_path)
    state = world.home / "state"
    text, policy = world.separate_policy("state/schema-policy.toml")
    state.mkdir(exist_ok=True)
    policy = policy.replace('"state/ledger.sqlite"', '"schema.sqlite"')
    (state / "schema-policy.toml").write_text(policy)
    world.path.write_text(text.replace('"schema.toml"', f'"{state}/../state/schema.toml"'))
    (state / "schema.toml").write_text("# the schema\n")
    (state / "schema.confirmed").write_text("confirmed")
    world.site.keep_identity()
    policy_now = world.site.own_policy()
    assert policy_now.ledger_path == state / "schema.sqlite"
    with policy_now.open_ledger() as ledger:
        ledger.record(spend(0), policy_now.cap)
        file = world.backup()
    spent = world.epsilon()
    world.lose()
    found = world.restore(file)
    assert (found.entries, found.lost, world.epsilon()) == (1, 0, spent)
    assert (state / "schema.toml").read_text() == "# the schema\n"
    assert (state / "schema.confirmed").read_text() == "confirmed"
    assert (state / "schema-policy.toml").read_text() == policy


def test_restore_that_is_refused_has_written_nothing(tmp_path: Path) -> None:
    """A separate policy file was written before the refusal, so that the next attempt was refused, too."""
    world = World(tmp_path)
    text, policy = world.separate_policy("policy.toml")
    books = tmp_path / "books"
    (world.home / "policy.toml").write_text(policy.replace('"state/ledger.sqlite"', f'"{books}/ledger.sqlite"'))
    world.path.write_text(text)
    world.spend(0, 2)
    file = world.backup()
    counter = tmp_path / "other" / "counter"
    known = counter.read_bytes()
    world.lose()
    shutil.rmtree(books)
    books.mkdir()
    (books / "ledger.sqlite-wal").touch()
    with pytest.raises(Refused, match="its log exists"):
        world.restore(file)
    (books / "ledger.sqlite-wal").unlink()
    counter.write_bytes(b"damaged")
    with pytest.raises(LedgerRefused, match="damaged"):
        world.restore(file)
    counter.write_bytes(known)
    assert list(world.home.iterdir()) == []
    assert world.restore(file).lost == 0
    world.spend(2, 3)


@pytest.mark.parametrize("moment", range(14))
def test_backup_with_decision_at_any_moment_has_the_plan(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that was moved after it was listed made the backup fail; one that was moved before was left out."""
    world, real, steps = World(tmp_path), Path.read_bytes, count()
    world.site.keep_identity()
    consents = Consents(world.site.state_folder)
    plans = [make("local", study=f"study {number}") for number in range(4)]
    for plan in plans:
        consents.keep(plan)
    consents.decide(plans[0].digest(), "approved")

    def read(path: Path) -> bytes:
        if next(steps) == moment:
            for plan in plans[1:3]:
                consents.decide(plan.digest(), "refused")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read)
        file = world.backup()
    assert next(steps) > 5
    world.lose()
    world.restore(file)
    restored = Consents(world.site.state_folder)
    for plan in plans:
        assert restored.plan(plan.digest()) == plan
        held = (world.site.state_folder / "plans" / f"{plan.digest()}.json").exists()
        assert not held or restored.decision(plan.digest()) is not None


@pytest.mark.parametrize("entries", [0, 4])
def test_backup_without_counter_charges_the_whole_cap(entries: int, tmp_path: Path) -> None:
    """It is unknown what was spent since; also if the site had no ledger when the backup was made."""
    world = World(tmp_path)
    world.site.keep_identity()
    if entries:
        world.spend(0, entries)
    file = world.backup()
    world.lose(counter=True)
    found = world.restore(file, cap=20.0)
    policy = world.site.own_policy()
    assert (found.entries, found.lost, found.charged) == (entries, None, mu_for(20.0, policy.delta))
    with pytest.raises(Refused):
        world.spend(entries, entries + 1)


def test_restore_does_not_replace_files_and_needs_passphrase(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spend(0, 2)
    file = world.backup()
    with pytest.raises(Refused, match="exists already"):
        world.restore(file)
    with pytest.raises(BadInput, match="passphrase"):
        restore(file, tmp_path / "new", "another passphrase")
    with pytest.raises(BadParameter, match="passphrase"):
        backup(world.path, tmp_path / "short", "short")
    with pytest.raises(BadInput, match="exists already"):
        backup(world.path, file, WORD)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadInput):
        restore(damaged, tmp_path / "new", WORD)
    assert not (tmp_path / "new" / "site.toml").exists()


def test_encrypted_file_with_any_change_does_not_open() -> None:
    content = bytes(range(256)) * 9000  # three parts
    whole = encrypted(content, WORD)
    assert decrypted(whole, WORD) == content
    rng = random.Random(0)
    for at in (0, 20, 34, 40, *(rng.randrange(len(whole)) for _ in range(10))):
        with pytest.raises(BadInput):
            decrypted(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], WORD)
    first = 33 + 4 + (1 << 20) + 16
    for cut in (whole[:33], whole[:first], whole[:-1], whole + b"\0", whole + whole[33:]):
        with pytest.raises(BadInput):
            decrypted(cut, WORD)
    for text in (b"", b"x", bytes(1 << 20)):
        assert decrypted(encrypted(text, WORD), WORD) == text


@pytest.mark.parametrize("seed", range(20))
def test_backup_at_random_moment_of_serving_never_gives_budget_back(seed: int, tmp_path: Path) -> None:
    """A thread spends while backups are made; the disk is lost; the restored site has spent at least as much."""
    rng, world = random.Random(seed), World(tmp_path, STRICT if seed % 2 else "")
    world.spend(0, 1)
    files: list[Path] = []
    moments = sorted(rng.randrange(1, 20) for _ in range(3))
    ready = [threading.Event() for _ in moments]

    def back_up() -> None:
        for event in ready:
            event.wait(60)
            files.append(world.backup())

    thread = threading.Thread(target=back_up)
    thread.start()
    for number in range(1, 20):
        for event, moment in zip(ready, moments, strict=True):
            if moment == number:
                event.set()
        world.spend(number, number + 1)
    thread.join()
    spent, keep = world.epsilon(), rng.random() < 0.7
    world.lose(counter=not keep)
    found = world.restore(rng.choice(files), **({"each": 0.2} if seed % 3 else {}))
    assert found.lost == (20 - found.entries if keep else None)
    assert world.epsilon() >= spent
    assert found.epsilon == world.epsilon()


def die_after(calls: int) -> None:
    left = count(calls, -1)

    def look(frame: object, event: str, argument: object) -> None:
        if next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="restorations are forked here")
@pytest.mark.parametrize("keep", [True, False])
def test_restore_killed_anywhere_leaves_no_site_with_too_much_budget(keep: bool, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spend(0, 3, 0.2)
    file = world.backup()
    world.spend(3, 5, 0.2)
    spent, counter = world.epsilon(), tmp_path / "other" / "counter"
    survived = counter.read_bytes()
    rng, completed = random.Random(7), 0
    calls = [rng.randrange(1, 9000) for _ in range(24)] + [1 << 40]
    for limit in calls:
        shutil.rmtree(world.home, ignore_errors=True)
        shutil.rmtree(counter.parent)
        counter.parent.mkdir()
        if keep:
            counter.write_bytes(survived)

        def work(limit: int = limit) -> None:
            die_after(limit)
            world.restore(file)

        completed += in_a_child(work)
        if not world.path.exists():  # no site: the same command again, in a new folder, with what is left of the disks
            shutil.rmtree(world.home, ignore_errors=True)
            world.restore(file)
        with suppress(LedgerRefused):  # or a ledger that does not open, for want of its counter
            assert world.epsilon() >= spent
    assert 0 < completed < len(calls)


def test_restored_ledger_counter_matches(tmp_path: Path) -> None:
    world = World(tmp_path, counter=False)
    world.spend(0, 2)
    file = world.backup()
    world.lose()
    world.restore(file)
    policy = world.site.own_policy()
    with Ledger.inspect(policy.ledger_path) as ledger:
        assert read_counter(policy.counter_path) == ledger.head
        assert ledger.entries()[-1].spend.study.startswith("lost with the ledger")
