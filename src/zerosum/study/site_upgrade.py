"""Whether the installed version can serve a site whose files another version has written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from zerosum.errors import BadInput, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.protocol.stream import alive
from zerosum.report.record import versions
from zerosum.site import audit_chain, metrics
from zerosum.site.decisions import Consents
from zerosum.site.ledger import Ledger
from zerosum.study.site_file import SiteFile
from zerosum.study.site_schema import confirmed_schema


@dataclass
class Findings:
    """Faults that prevent serving, and notes for the operator."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, check: Callable[[], object]) -> None:
        """Run one check; an error is a fault."""
        try:
            check()
        except ZerosumError as error:
            self.faults.append(str(error))
        except OSError as error:
            self.faults.append(f"{error.filename or 'a file'} cannot be read: {error.strerror or error}")


def check_site(path: Path) -> Findings:
    """Read everything that a serving site reads at its start and during a study, and change nothing.

    Parameters
    ----------
    path : Path
        The site's file.

    Raises
    ------
    BadStudy
        If the file itself cannot be read, on which every other check depends.
    """
    found, site = Findings(), SiteFile.load(path)
    policy = site.own_policy()

    def keys() -> None:
        # `keep_identity` would make a new key, which no roster has.
        if not (site.folder / site.identity).exists():
            raise BadInput(f"the key {site.folder / site.identity} is missing")
        site.keep_identity()
        site.former_identities()

    def ledger() -> None:
        if not policy.ledger_path.exists():
            # A counter without its ledger is a loss, which `Ledger.open` would refuse.
            if policy.counter_path.exists():
                raise BadInput(f"the ledger {policy.ledger_path} is missing, but its counter is there")
            found.notes.append("there is no ledger yet")
            return
        with Ledger.inspect(policy.ledger_path, counter=policy.counter) as books:
            entries = books.entries()
            # Entries of version 0.1 have no version.
            by = entries[-1].version or "0.1" if entries else versions()["zerosum"]
            found.notes.append(f"the ledger is sound, with {len(entries)} entries; the last one is of version {by}")

    def plans() -> None:
        # A study that was approved under the old version goes on only if the new one can read its plan.
        for folder in ("proposals", "plans", "approved"):
            for each in sorted((site.state_folder / folder).glob("*.json")):
                try:
                    Plan.from_json(each.read_bytes())
                except ZerosumError as error:
                    raise error.about(f"the plan {each}") from None

    # Every check runs, so that the operator has all faults before the old version is stopped.
    for check in (keys, ledger, plans, lambda: confirmed_schema(site), lambda: audit_chain.verify(site.audit_log)):
        found.attempt(check)
    found.attempt(lambda: Consents(site.state_folder).withdrawn())
    if alive(site.socket, 5.0):  # s, as in `zerosum site health`
        found.attempt(lambda: _open_studies(found, site))
    return found


def _open_studies(found: Findings, site: SiteFile) -> None:
    """Note the studies that lose this site if it is restarted now."""
    record = metrics.read(site.state_folder)
    by = record.get("version", "0.2 or earlier")
    names = ", ".join(f"{each['study']!r} ({each['rounds']} of {each['planned']})" for each in record.get("open", []))
    then = f"; a restart interrupts {names}: wait until they are over" if names else ", and no study is in progress"
    found.notes.append(f"version {by} serves now{then}")
