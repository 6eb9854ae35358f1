"""Backup of a site while it serves, restoration on another disk, and the account for what was lost in between.

A backup is a tar archive in an encrypted file (`zerosum.study.encrypted_file`):

    manifest.json    version, site, time, number of entries of the ledger and of its counter, and the path of every
                     member
    0, 1, ...        the site's file, its policy, keys and schema; decisions, plans, proposals, withdrawn keys; the
                     audit log with its head; the ledger

Consistency. Every file but two is replaced atomically by its writer, so that a copy is one of its versions. The ledger
is copied by SQLite's backup interface, which gives one committed state with the write-ahead log in it; its counter is
made from that state. The audit log is copied under its lock. The ledger is copied last: nothing else in the backup is
newer than the ledger. Data, FLARE's keys and the socket are not in a backup.

**What was spent after the backup.** A restored ledger lacks these entries, and a person's budget could be spent twice.
So a restoration charges them as one entry, before the site can serve:

    the counter survived, on another disk, and has the same last entry   nothing is charged
    the counter survived and is g entries ahead                          sqrt(g) mu_1, or mu_all if that is less
    the counter is gone, older than at the backup, or of another ledger  mu_all

The counter is advanced after an entry is committed and before the contribution is sent, and it is never moved back. So
a counter that survived is at least what it was at the backup, which the manifest has (`counter`), and no entry beyond
it was sent. It may be behind the ledger of the backup: by the entries that were committed at that moment, or whose
process was killed. A smaller number is that of an older copy, which says nothing about what was spent.

mu_all is the largest mu within the lifetime cap. Every entry that was lost was recorded under that cap, so all of
them together cost no more. The policy may have been changed after the backup: the steward states the largest cap
since then (`cap`), and the most that one study may have cost (`each`). mu_1 is the largest mu within `each`: an entry
is a part of one study, whose whole cost was within it. Without `each`, and if the policy admits Laplace noise or sub-
sampled phases, for which an epsilon at one delta bounds no mu, any gap costs mu_all. Gaussian releases compose as the
root of the sum of squares of mu. With mu_all the cap is reached: the site refuses every study until its steward
raises the cap, which is a decision about people and not a setting.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import sqlite3
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from zerosum.disk import make_folder, open_new, sync_folder
from zerosum.errors import BadInput, Refused, ZerosumError
from zerosum.kernel.accountant import mu_for
from zerosum.report.record import versions
from zerosum.site import audit_chain
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_file import connect, read_counter, refusing, write_counter
from zerosum.site.ledger_records import Spend
from zerosum.site.policy import Policy
from zerosum.study.encrypted_file import decrypt, encrypt
from zerosum.study.site_file import SiteFile

# A decision during a backup writes its file, then moves the plan from the proposals to the plans. In this order the
# plan is found in one of both or in both, and a plan among the plans has its decision.
_STATE_FOLDERS = ("proposals", "plans", "decisions", "approved", "withdrawn")
_FORMAT = 1


@dataclass(frozen=True)
class Restored:
    """What a restoration found.

    Attributes
    ----------
    site : Path
        The restored site's file.
    made : str
        Time of the backup.
    entries : int
        Entries of the ledger in the backup.
    lost : int or None
        Entries that were recorded later; None if the counter is gone or an older copy, so that their number is unknown.
    charged : float
        The mu that was charged for them.
    epsilon : float
        What a person has spent by the restored ledger, at the delta of the cap.
    """

    site: Path
    made: str
    entries: int
    lost: int | None
    charged: float
    epsilon: float


def backup(path: Path, out: Path, passphrase: str) -> int:
    """Write an encrypted backup of a site, which may be serving; return the number of entries of its ledger.

    Parameters
    ----------
    path : Path
        The site's file.
    out : Path
        The new file.
    passphrase : str
        Encrypts it.

    Raises
    ------
    BadInput
        If the target exists or cannot be written.
    LedgerRefused
        If the ledger is damaged.
    """
    if out.exists():
        raise BadInput(f"{out} exists already; choose another place")
    site = SiteFile.load(path)
    policy, home = site.own_policy(), path.absolute().parent
    try:
        make_folder(site.state_folder)
        # In the state folder, whose disk holds the key and the ledger anyway. The file has no name.
        with (
            tempfile.TemporaryFile(dir=site.state_folder) as plain,
            tempfile.TemporaryDirectory(prefix=".backup-", dir=site.state_folder) as scratch,
        ):
            entries, ledger = 0, None
            with tarfile.open(fileobj=plain, mode="w") as archive:
                places: dict[Path, str] = {}
                for source, content in _members(path, site, policy):
                    _add(archive, places, home, source, content)
                _add_audit_log(archive, places, home, site)
                if policy.ledger_path.exists():
                    copy = Path(scratch) / "ledger"
                    entries, ledger = _copy_ledger(policy, copy), str(len(places))
                    _add(archive, places, home, policy.ledger_path, copy.read_bytes())
                counter = read_counter(policy.counter_path)
                manifest = {
                    "format": _FORMAT,
                    "version": versions()["zerosum"],
                    "site": site.name,
                    "file": _place(home, path.absolute()),
                    "made": datetime.now(UTC).isoformat(timespec="seconds"),
                    "entries": entries,
                    # A ledger that this user can only read is copied without its counter, too.
                    "counter": entries if counter is None else counter[0],
                    "ledger": ledger,
                    "places": list(places.values()),
                }
                # Last, because it has the places of all members and the number of entries.
                _put(archive, "manifest.json", json.dumps(manifest, indent=2).encode())
            plain.seek(0)
            # Under another name until it is whole and on disk: half a backup must not look like one.
            fresh = out.with_name(f".{out.name}.new")
            fresh.unlink(missing_ok=True)
            try:
                with open_new(fresh, private=True) as target:
                    encrypt(plain, target, passphrase)
                    target.flush()
                    os.fsync(target.fileno())
                fresh.replace(out)
                sync_folder(out.absolute().parent)
            finally:
                fresh.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"the backup cannot be written: {error.strerror or error} ({error.filename or out})") from error
    return entries


def _members(path: Path, site: SiteFile, policy: Policy) -> Iterator[tuple[Path, bytes]]:
    """The files that are replaced atomically by their writers, with their content.

    Parameters
    ----------
    path : Path
        The site's file.
    site, policy : SiteFile, Policy
        The site and its policy.
    """
    identity = site.folder / site.identity
    fixed = [path, *([site.folder / site.policy] if isinstance(site.policy, Path) else [])]
    fixed += sorted({identity, *identity.parent.glob(f"{identity.name}.former-*")} & _existing(identity.parent))
    fixed += [site.schema_path] if site.schema_path.exists() else []
    for each in fixed:
        yield each, each.read_bytes()
    # Files of a ledger in the state folder may have names like these. It is copied by other means, and a copy of its
    # log would be applied to the restored ledger.
    ledger, counter = policy.ledger_path, policy.counter_path
    books = {ledger.with_name(f"{ledger.name}{ending}") for ending in ("", "-wal", "-shm", "-journal")}
    books = {_key(book) for book in (*books, counter, counter.with_name(f"{counter.name}.new"))}
    for pattern in ("schema*", *(f"{name}/*" for name in _STATE_FOLDERS)):
        for each in sorted(site.state_folder.glob(pattern)):
            # `.new-` is an unfinished file of `write_file`: its writer renames it at any moment.
            if each.name.startswith(".new-") or _key(each) in books or not each.is_file():
                continue
            try:
                content = each.read_bytes()
            except FileNotFoundError:  # a proposal that a decision moved to the plans, which are listed later
                continue
            yield each, content


def _key(path: Path) -> Path:
    """A path that is the same for every spelling of a file's folder. The file itself may be a link, and is then another
    file than its target.
    """
    return path.parent.resolve() / path.name


def _existing(folder: Path) -> set[Path]:
    """The entries of a folder."""
    return set(folder.iterdir()) if folder.is_dir() else set()


def _place(home: Path, path: Path) -> str:
    """Where a member belongs: relative to the site's folder if it lies there, else its absolute path."""
    path = path.absolute()
    return str(path.relative_to(home)) if path.is_relative_to(home) else str(path)


def _put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file of mode 0600 to the archive."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))


def _add(archive: tarfile.TarFile, places: dict[Path, str], home: Path, source: Path, content: bytes) -> None:
    """Add the content of a file under the next number, and note its place. A file that was added already is left out,
    such as a schema that the site keeps in its state folder.

    Parameters
    ----------
    archive : TarFile
        The archive.
    places : dict
        Places of the members so far, by their files; the new one is appended.
    home : Path
        The site's folder.
    source : Path
        Where the file lies at the site.
    content : bytes
        Its content.
    """
    if _key(source) not in places:
        _put(archive, str(len(places)), content)
        places[_key(source)] = _place(home, source)


def _add_audit_log(archive: tarfile.TarFile, places: dict[Path, str], home: Path, site: SiteFile) -> None:
    """Add the audit log, its rotated parts and its head, while no process appends to it."""
    if not site.audit_log.parent.is_dir():
        return
    with audit_chain.locked(site.audit_log):
        for part in sorted(site.state_folder.glob(f"{site.audit_log.name}*")):
            _add(archive, places, home, part, part.read_bytes())
        head = audit_chain.head_path(site.audit_log)
        _add(archive, places, home, head, head.read_bytes())


def _copy_ledger(policy: Policy, copy: Path) -> int:
    """Copy the ledger with its write-ahead log in one committed state, verified; return the number of its entries."""
    # The original and the copy are verified: a backup of a damaged ledger would show its fault only after the loss.
    with refusing(policy.ledger_path):
        with closing(connect(policy.ledger_path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:  # the original, with its counter
            ledger.verify()
    with Ledger.inspect(copy, copy=True) as ledger:
        return ledger.verify()


def restore(
    file: Path, folder: Path, passphrase: str, *, cap: float | None = None, each: float | None = None
) -> Restored:
    """Restore a site from a backup into a new folder, and charge what may have been spent since.

    Parameters
    ----------
    file : Path
        The backup.
    folder : Path
        The new folder of the site; its ledger and keys outside that folder are restored to their places.
    passphrase : str
        Of the backup.
    cap : float, optional
        The largest lifetime epsilon that was in force since the backup, if it was above the one in the backup.
    each : float, optional
        The largest epsilon that a study since the backup can have cost.

    Raises
    ------
    BadInput
        If the backup does not open.
    LedgerRefused
        If the ledger in the backup, or the counter that survived, is damaged.
    Refused
        If one of the files exists already.
    """
    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder) as plain:
            with file.open("rb") as source:
                # To the end before a member is read: the content is authentic only then. The file has no name, because
                # it contains private keys.
                decrypt(source, plain, passphrase)
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:") as archive:
                return _restore(archive, folder, cap, each)
    except OSError as error:
        raise BadInput(f"the backup cannot be restored: {error.strerror or error}") from error
    except (tarfile.TarError, ValueError, LookupError, TypeError) as error:
        # Some errors of this package are ValueErrors too, and already have a sentence for the operator.
        if isinstance(error, ZerosumError):
            raise
        raise BadInput(f"the backup cannot be read ({error})") from None


def _restore(archive: tarfile.TarFile, folder: Path, cap: float | None, each: float | None) -> Restored:
    """Check everything, then write the ledger with its charge, then all other files, and the site's file last.

    Without its file the site cannot serve: a restoration that is killed leaves no site, or one with the charge.
    """
    manifest = json.loads(_content(archive, "manifest.json"))
    if manifest["format"] != _FORMAT:
        raise BadInput(f"the backup was made by Zerosum {manifest['version']}: restore it with that version")
    home = folder.absolute()
    # Members have numbers for names, and `tarfile` extracts none of them: the only paths are those of the manifest,
    # which the passphrase authenticates.
    # An absolute place stays where it is.
    targets = {str(at): home / place for at, place in enumerate(manifest["places"])}
    path = home / manifest["file"]
    numbers = {target: number for number, target in targets.items()}
    record = tomllib.loads(_content(archive, numbers[path]).decode())
    site = SiteFile(**record, folder=home)
    ledger = None if manifest["ledger"] is None else targets[manifest["ledger"]]
    # All targets are checked before the first is written, so that this refusal leaves nothing to remove.
    if taken := [target for target in targets.values() if target.exists()]:
        raise Refused(f"{taken[0]} exists already: restore into a new folder, and move remains of the old site away")
    policy = _policy(archive, numbers, site)
    log = policy.ledger_path.with_name(f"{policy.ledger_path.name}-wal")
    # Also if the backup has no ledger. A write-ahead log alone counts, since it may contain entries that are in no
    # database.
    if policy.ledger_path.exists() or log.exists():
        raise Refused(f"{policy.ledger_path} or its log exists already: it may be newer than the backup; keep it")
    content = None if ledger is None else _content(archive, manifest["ledger"])
    # Older backups lack the number: with them only a counter that has at least the last entry of the backup is valid.
    least = manifest.get("counter", manifest["entries"])
    settled = _settle(policy, content, max(cap or 0.0, policy.epsilon), each, least)
    for target, number in numbers.items():
        if target not in (path, ledger):
            _write(target, _content(archive, number))
    _write(path, _content(archive, numbers[path]))
    return Restored(path, manifest["made"], manifest["entries"], *settled)


def _policy(archive: tarfile.TarFile, numbers: dict[Path, str], site: SiteFile) -> Policy:
    """The policy of the site, before its file is written.

    Parameters
    ----------
    archive : TarFile
        The backup.
    numbers : dict
        The members' names by their targets.
    site : SiteFile
        The site in its new folder.
    """
    if not isinstance(site.policy, Path):
        return site.own_policy()
    file = site.folder / site.policy
    return Policy.parse(tomllib.loads(_content(archive, numbers[file]).decode()), file.parent, f"the policy {file}")


def _write(target: Path, content: bytes) -> None:
    """Write a new file of mode 0600, durable on return."""
    make_folder(target.parent)
    with open_new(target, private=True) as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    sync_folder(target.parent)


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    """One member of the archive."""
    found = archive.extractfile(name)
    if found is None:
        raise BadInput(f"the backup has no member {name!r}")
    return found.read()


def _settle(
    policy: Policy, content: bytes | None, cap: float, each: float | None, least: int
) -> tuple[int | None, float, float]:
    """Charge the entries that the restored ledger lacks; return their number, the charged mu, and the epsilon spent.

    Parameters
    ----------
    policy : Policy
        Names the ledger and its counter.
    content : bytes or None
        The ledger of the backup; None if the site had none. Then the charge is the first entry of a new one.
    cap, each : float
        As in `restore`; the cap is at least that of the policy.
    least : int
        The counter when the backup was made.
    """
    target, counter = policy.ledger_path, policy.counter_path
    with refusing(target):
        make_folder(target.parent)
        known = read_counter(counter)
        if known is not None and known[0] < least:
            # An older copy of the counter: it does not show what was recorded since, as if it were gone.
            known = None
        # The ledger gets its name when it has the charge, and not before.
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=target.parent) as scratch:
            copy = Path(scratch) / target.name
            if content is not None:
                _write(copy, content)
                with closing(connect(copy)) as stored:
                    last = stored.execute("SELECT number, digest FROM chain ORDER BY number DESC").fetchone()
                # `Ledger.open` refuses a ledger without its counter.
                write_counter(copy.with_name(f"{copy.name}.counter"), *last)
            with Ledger.open(copy, policy.account) as ledger:
                held, lost, charged = ledger.head[0], None if known is None else known[0], 0.0
                if known is not None and known[0] <= held and ledger.digest(known[0]) == known[1]:
                    # Behind the ledger only as far as it was at the backup: the entries in between were committed and
                    # are in the backup, and nothing was sent after them.
                    lost = 0
                else:
                    lost = known[0] - held if known is not None and known[0] > held else None
                    charged = _bound(policy, lost, cap, each)
                    ledger.record_loss(_loss(policy, charged, lost), policy.cap)
                epsilon, head = ledger.epsilon(policy.delta), ledger.head
            _into_place(copy, target, counter, head)
    return lost, charged, epsilon


def _into_place(copy: Path, target: Path, counter: Path, head: tuple[int, str]) -> None:
    """Move the accounted ledger to its place, and write its counter. A ledger without its counter is refused, so that a
    crash in between leaves no site that serves.

    Parameters
    ----------
    copy : Path
        The ledger with its charge, closed, in a folder beside `target`: a rename within one disk is atomic.
    target, counter : Path
        Places of the ledger and of its counter.
    head : tuple of int and str
        Number and digest of the last entry.
    """
    make_folder(counter.parent)
    # Only the database is moved: an entry in its log, the charge above all, would be left behind.
    with closing(connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with copy.open("r+b") as file:
        os.fsync(file.fileno())
    if counter.exists():
        # Kept as evidence of the number of lost entries. After a crash between here and the last step a second
        # restoration finds no counter and charges mu_all.
        counter.replace(counter.with_name(f"{counter.name}.before-restore"))
    copy.replace(target)
    sync_folder(target.parent)
    write_counter(counter, *head)


def _bound(policy: Policy, lost: int | None, cap: float, each: float | None) -> float:
    """The largest mu that the lost entries can have cost together (the module's text has the argument).

    Parameters
    ----------
    policy : Policy
        Its delta, and whether an epsilon bounds a mu under it.
    lost : int or None
        Number of lost entries; None if unknown.
    cap, each : float
        As in `restore`; the cap is at least that of the policy.
    """
    whole = mu_for(cap, policy.delta)
    if lost is None or each is None or policy.noise != ("gaussian",) or policy.most_phases > 0:
        return whole
    return min(whole, math.sqrt(lost) * mu_for(each, policy.delta))


def _loss(policy: Policy, charged: float, lost: int | None) -> Spend:
    """The entry for what was lost."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    study = f"lost with the ledger, restored {now}"
    return Spend(
        study=study,
        round=0,
        attempt=0,
        unit=policy.unit,
        statistic="lost" if lost is None else f"{lost} lost",
        sensitivity=1.0,
        mu=charged,
        request=hashlib.sha256(study.encode()).hexdigest(),
    )
