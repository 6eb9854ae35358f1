"""A steward's decisions, plan by plan, in files that another process may write: `zerosum site approve`.

    proposals/DIGEST.json   a plan that waits for a decision, as it arrived
    plans/DIGEST.json       the same after a decision
    decisions/DIGEST        "approved" or "refused", the time and the user; on a second line the reason, if there is one
    approved/STUDY.json     an approved plan that allows sites to be left out, by the hash of its study's name
    withdrawn/IDENTITY      a key, of this site or of another, that is refused in every study

A decision is about one whole plan. It outlives the process, and a refusal takes effect at once, in the middle of a
study too.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.disk import make_folder, sync_folder
from zerosum.errors import BadInput, BadParameter, Refused, SiteFault
from zerosum.kernel.names import visible
from zerosum.kernel.plan import Plan

Decision = Literal["approved", "refused"]

MOST_WAITING = 100  # most plans that wait for a decision. Chosen by hand; no benchmark recorded
MOST_REASON = 300  # most characters of a reason


class Consents:
    """The decisions in a site's state folder. With `automatic`, plans that fit the policy need no decision."""

    def __init__(self, folder: Path, *, automatic: bool = False) -> None:
        self.automatic = automatic
        self._proposals, self._plans, self._decisions = folder / "proposals", folder / "plans", folder / "decisions"
        self._withdrawn, self._approved = folder / "withdrawn", folder / "approved"
        # digest of a plan with sites left out -> digest of the approved plan; this relation never changes
        self._covered: dict[str, str] = {}

    def decision(self, digest: str) -> Decision | None:
        """The decision about a plan; None if there is none."""
        text = self._content(digest)
        if text is None:
            return None
        match text.split():
            case ["approved", *_]:
                return "approved"
            case _:
                return "refused"  # any other content is not an approval

    def reason(self, digest: str) -> str:
        """The reason of a refusal, if the steward gave one."""
        if self.decision(digest) != "refused":
            return ""
        return visible((self._content(digest) or "").partition("\n")[2].strip()[:MOST_REASON])

    def _content(self, digest: str) -> str | None:
        """The content of the decision's file; None if there is none."""
        try:
            return (self._decisions / _checked(digest)).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused("this site cannot read what its steward decided", detail=str(error)) from error

    def decide(self, digest: str, decision: Decision, reason: str = "", user: str = "") -> None:
        """Store a decision, durable on return. The last decision is valid. The coordinator receives the reason of a
        refusal. `user` is the user of the operating system, who is stored with it.
        """
        reason = _one_line(reason)
        if reason and decision == "approved":
            raise BadParameter("a reason is for a refusal")
        by = f" by {visible(user)}" if user else ""
        text = f"{decision} {datetime.now(UTC).isoformat()}{by}\n" + (f"{reason}\n" if reason else "")
        # The decision first, then the move of the plan: after a crash in between the plan is still listed as waiting,
        # but its decision holds.
        write_file(self._decisions / _checked(digest), text.encode())
        if decision == "approved":
            with suppress(BadInput):  # it did not come yet
                self.remember(self.proposal(digest))
        with suppress(OSError):  # the plan has not arrived yet, or cannot be moved: only the decision matters
            self._plans.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._proposals / f"{digest}.json").replace(self._plans / f"{digest}.json")
        (self._proposals / f"{digest}.json").unlink(missing_ok=True)

    def remember(self, plan: Plan) -> None:
        """Store an approved plan if it covers others: the same study with sites left out."""
        if plan.absences and not self.covers(plan):
            write_file(self._approved / f"{_hashed(plan.study)}.json", plan.to_json())

    def covers(self, plan: Plan) -> bool:
        """Whether the steward approved a plan that equals this one except for sites that it allows to be left out, and
        under which no site pays less. Without the site that determined the noise, this plan may cost others more than
        the steward read.
        """
        digest = plan.digest()
        if digest not in self._covered:
            try:
                whole = Plan.from_json((self._approved / f"{_hashed(plan.study)}.json").read_bytes())
                missing = {site.name for site in whole.sites} - {site.name for site in plan.sites}
                # The plan is derived again from the approved one, and only the digest is compared: no field of the
                # proposal is trusted.
                if whole.without(sorted(missing)).digest() != digest or _dearer(plan, whole):
                    return False
            except (OSError, BadInput):
                return False
            self._covered[digest] = whole.digest()
        return self.decision(self._covered[digest]) == "approved"

    def approved(self, digest: str, study: str, sites: Sequence[str]) -> bool:
        """Whether the steward approved a plan of which only the digest, the study and the sites' names are known: this
        plan, or one that it follows from by leaving sites out.

        Parameters
        ----------
        digest : str
            Digest of the plan.
        study : str
            Name of the study.
        sites : sequence of str
            Names of the sites of the plan.
        """
        if self.decision(digest) == "approved":
            return True
        try:
            whole = Plan.from_json((self._approved / f"{_hashed(study)}.json").read_bytes())
            missing = sorted({site.name for site in whole.sites} - set(sites))
            return whole.without(missing).digest() == digest and self.decision(whole.digest()) == "approved"
        except (OSError, BadInput):
            return False

    def withdraw(self, identity: str) -> None:
        """Refuse a key from now on, in the middle of studies too. Durable on return."""
        if not re.fullmatch("[0-9a-f]{64}", identity):
            raise BadInput("a site's identity must be 64 digits in hex")
        write_file(self._withdrawn / identity, f"{datetime.now(UTC).isoformat()}\n".encode())

    def withdrawn(self) -> frozenset[str]:
        """All withdrawn keys."""
        try:
            return frozenset(path.name for path in self._withdrawn.iterdir())
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise Refused("this site cannot read which keys were withdrawn", detail=str(error)) from error

    def keep(self, plan: Plan) -> bool:
        """Store a plan for the steward; return whether it is a new one."""
        path = self._proposals / f"{plan.digest()}.json"
        if path.exists():
            return False
        # Any coordinator that can connect may propose: without a limit it could fill the disk.
        if len(self.waiting()) >= MOST_WAITING:
            raise Refused("this site has too many plans waiting for its steward")
        write_file(path, plan.to_json())
        return True

    def waiting(self) -> list[str]:
        """The digests of plans without a decision, the oldest first."""
        return [digest for digest, _ in self.waiting_since()]

    def waiting_since(self) -> list[tuple[str, float]]:
        """The digests of plans without a decision, with the time of their arrival in seconds since 1970."""
        if not self._proposals.is_dir():
            return []
        found = [path for path in self._proposals.glob("*.json") if re.fullmatch("[0-9a-f]{64}", path.stem)]
        dated = []
        for path in found:
            with suppress(FileNotFoundError):  # a decision was made meanwhile
                dated.append((path.stat().st_mtime_ns, path.stem))
        return [(digest, since / 1e9) for since, digest in sorted(dated)]

    def find(self, beginning: str) -> str:
        """The digest of a waiting plan by its first digits, eight at least. A complete digest may be of any plan."""
        if re.fullmatch("[0-9a-f]{64}", beginning):
            return beginning
        found = [digest for digest in self.waiting() if digest.startswith(beginning)]
        if len(beginning) < 8 or len(found) != 1:
            raise BadInput(
                f"{beginning!r} is the beginning of {len(found)} digests of waiting plans: give eight digits or more "
                "of one of them"
            )
        return found[0]

    def proposal(self, digest: str) -> Plan:
        """A waiting plan."""
        try:
            return Plan.from_json((self._proposals / f"{_checked(digest)}.json").read_bytes())
        except OSError:
            raise BadInput(f"no plan with the digest {digest} waits here") from None

    def plan(self, digest: str) -> Plan:
        """A waiting plan, or one about which a decision was made."""
        # proposals twice: the file may move between the two reads
        for folder in (self._proposals, self._plans, self._proposals):
            with suppress(OSError):
                found = Plan.from_json((folder / f"{_checked(digest)}.json").read_bytes())
                if found.digest() != digest:
                    raise BadInput(f"the file {folder / digest}.json holds a plan with another digest: restore it")
                return found
        raise BadInput(f"no plan with the digest {digest} is stored here, waiting or decided")


def _dearer(plan: Plan, whole: Plan) -> bool:
    """Whether a release costs some site more under `plan` than under `whole`, the plan with more sites that it follows
    from.
    """
    places = {site.name: at for at, site in enumerate(whole.sites)}
    same = [places[site.name] for site in plan.sites]
    firsts = [plan.first_round(release) for release in range(len(plan.releases))]
    return any(bool(np.any(plan.mus(round) > whole.mus(round)[same] * (1 + 1e-9))) for round in firsts)


def _one_line(reason: str) -> str:
    """A reason in the form that is stored and sent: one line without invisible characters."""
    line = " ".join(reason.split())
    if len(line) > MOST_REASON:
        raise BadParameter(f"a reason has {MOST_REASON} characters at most")
    if visible(line) != line:
        raise BadParameter("the reason has characters that cannot be seen")
    return line


def _hashed(study: str) -> str:
    return hashlib.sha256(study.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(digest: str) -> str:
    """A digest, checked before it becomes a file's name."""
    # The digest becomes a part of a path: anything else, such as "../", could leave the folder.
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise BadInput("a plan's digest must be 64 digits in hex")
    return digest


def write_file(path: Path, text: bytes) -> None:
    """Write a file atomically and durably, readable by its owner only."""
    try:
        make_folder(path.parent)
        handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
            # The rename is durable only after the folder is synced: a refusal must survive a power cut.
            with suppress(PermissionError):  # a folder that this user may write and not read cannot be synced
                sync_folder(path.parent)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise SiteFault("this site cannot write to its state folder", detail=str(error)) from error
