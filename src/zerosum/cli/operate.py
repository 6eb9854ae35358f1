"""`zerosum site` commands for its operator and its auditor: show, audit verify, replay and forget, backup, restore,
upgrade.

None of them needs the serving process. `backup` may run beside it; `restore` makes a new folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from zerosum.cli import terminal
from zerosum.cli.app import DeskOption, Json, SiteOption, site_app
from zerosum.errors import BadInput, BadParameter, BadStudy, CheckFailed
from zerosum.kernel.names import counted, visible

audit_app = typer.Typer(help="The audit log of a site.", no_args_is_help=True)
site_app.add_typer(audit_app, name="audit")

PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="A file with the passphrase; by default $ZEROSUM_PASSPHRASE, or it is asked for."),
]


@site_app.command("show")
def site_show(site: SiteOption = Path("site.toml"), json_: Json = False) -> None:
    """Show the site's name, its identity for rosters, its policy and what is left of its budget. Nothing is changed."""
    from zerosum.site.ledger import Ledger
    from zerosum.site.ledger_records import Total, left_under
    from zerosum.study import SiteFile
    from zerosum.study.site_schema import confirmed_schema

    loaded = SiteFile.load(site)
    policy, key = loaded.own_policy(), loaded.folder / loaded.identity
    if not key.exists():  # `keep_identity` would make one
        raise BadInput(f"the site {loaded.name!r} has no key at {key}: zerosum site init, or restore a backup")
    # Before the first release there is no ledger, which `Ledger.inspect` would refuse: nothing was spent.
    total, releases = Total(), 0
    if policy.ledger_path.exists():
        with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
            total, releases = ledger.total, len(ledger.entries())
    try:
        # A new site has no confirmed schema yet. That must not hide its identity and its budget.
        schema: str | None = confirmed_schema(loaded).digest()
    except BadStudy:
        schema = None
    record: dict[str, Any] = {
        "site": loaded.name,
        "identity": loaded.keep_identity().public.hex(),
        "former": [each.public.hex() for each in loaded.former_identities()],
        "schema": schema,
        "consent": "automatic" if loaded.consent.automatic else "steward",
        "policy": policy.model_dump(mode="json", exclude_defaults=True),
        "ledger": str(policy.ledger_path),
        "counter": str(policy.counter_path),
        "cap": {"epsilon": policy.epsilon, "delta": policy.delta},
        "spent": total.epsilon(policy.delta),
        "left": left_under(total, policy.cap),
        "releases": releases,
    }
    if json_:
        terminal.print_json(record)
        return
    terminal.print_titled(visible(loaded.name), f": consent by {record['consent']}")
    terminal.out.print(f"identity, for the rosters of all sites: {record['identity']}", soft_wrap=True)
    for former in record["former"]:
        terminal.out.print(f"former identity, for studies that pin it: {former}", soft_wrap=True)
    terminal.out.print("schema: " + (f"confirmed, digest {schema}" if schema else "not confirmed"), soft_wrap=True)
    for name, value in record["policy"].items():
        # The brackets of lists are text and not console markup.
        terminal.out.print(f"policy: {name} = {visible(str(value))}", soft_wrap=True, markup=False)
    terminal.out.print(
        f"epsilon spent: {record['spent']:.4f} of {policy.epsilon:g} at delta {policy.delta:g}, in "
        f"{counted(releases, 'release')}; one more study may cost {record['left']:.4f}",
        soft_wrap=True,
    )


@site_app.command("ledger")
def site_ledger(
    desk: Annotated[Path, typer.Option(help="The auditors' socket of a serving site.")], json_: Json = False
) -> None:
    """Show a serving site's ledger to a user who may not read its files: studies, costs, what remains. It was verified
    just before."""
    from zerosum.site.desk import ask

    record = ask(desk, do="ledger")
    if json_:
        terminal.print_json(record)
    else:
        # Older entries with doubts are shown with their reasons by `zerosum ledger show` at the site.
        terminal.show_ledger(record | {"warning": None})


@audit_app.command("verify")
def site_audit_verify(
    site: SiteOption = Path("site.toml"),
    log: Annotated[Path | None, typer.Option(help="A copy of the log, with its rotated parts and its head.")] = None,
    desk: DeskOption = None,
    json_: Json = False,
) -> None:
    """Check that no line of the audit log and of its rotated parts was changed or removed; exit code 4 if one was."""
    from zerosum.site.audit_chain import verify
    from zerosum.site.desk import ask
    from zerosum.study import SiteFile

    # An auditor with a copy of the log, or with the socket alone, may not be able to read the site's file.
    path = log or desk or SiteFile.load(site).audit_log
    if desk is not None:
        found = ask(desk, do="audit")
        # The desk returns a fault as a value: here it has the exit code that a check of the files has.
        if found["fault"]:
            raise CheckFailed(found["fault"])
        first, last = found["first"], found["last"]
    else:
        first, last = verify(path)
    if json_:
        terminal.print_json({"log": str(path), "first": first, "last": last})
        return
    # A new log, or one of version 0.2: there is no chain yet, so "complete" would be a false statement.
    if not last:
        terminal.out.print(f"{path} has no numbered line yet", soft_wrap=True)
        return
    # Parts that were moved away and lines that were deleted at the beginning look the same from here.
    older = f"; it begins at line {first}: check the parts before it where they are kept" if first > 1 else ""
    terminal.out.print(f"the audit log is complete up to line {last}, and no line was changed{older}", soft_wrap=True)


@audit_app.command("replay")
def site_audit_replay(
    study: Annotated[str, typer.Argument(help="The study's name, or the first digits of its plan's digest.")],
    site: SiteOption = Path("site.toml"),
    received: Annotated[
        Path | None, typer.Option(help="The coordinator's folder of the study: compare with what it received.")
    ] = None,
    json_: Json = False,
) -> None:
    """Compute again what this site sent under the secure sum, from data, plan and secrets, and compare it with its
    commitments; exit code 4 if it differs. Nothing is charged or sent."""
    from zerosum.study.site_replay import MEANING, replay

    plan, found, missing = replay(site, study, received)
    wrong = [each for each in found if each.finding not in ("as committed", "long")]
    if json_ and not wrong:
        rows = [{"round": each.round, "attempt": each.attempt, "finding": each.finding} for each in found]
        terminal.print_json({"study": plan.study, "plan": plan.digest(), "found": rows, "not_kept": missing})
    if wrong:
        first = wrong[0]
        raise CheckFailed(
            f"{len(wrong)} of {counted(len(found), 'contribution')} differ; round {first.round + 1}, attempt "
            f"{first.attempt + 1}: {MEANING[first.finding]}"
        )
    if json_:
        return
    long = sum(each.finding == "long" for each in found)
    terminal.out.print(
        f"{visible(plan.study)}: data, plan and secrets give {counted(len(found) - long, 'contribution')} as committed",
        soft_wrap=True,
    )
    if long:
        terminal.out.print(f"not computed again, because the request was too long to be kept: {long}", soft_wrap=True)
    if missing:
        terminal.out.print(f"in the audit log, and their secrets were not kept: {missing}", soft_wrap=True)


@audit_app.command("forget")
def site_audit_forget(
    study: Annotated[str, typer.Argument(help="The study's name, or the first digits of its plan's digest.")],
    site: SiteOption = Path("site.toml"),
) -> None:
    """Delete the secrets of a study's contributions. What the site sent can no longer be computed again."""
    from zerosum.site.audit_log import AuditLog
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    plan = loaded.kept_secrets.plan(study)
    loaded.kept_secrets.forget(plan.digest())
    AuditLog(loaded.audit_log).write("decided", "the secrets of the contributions to this study were deleted", plan)
    terminal.out.print(f"deleted: the secrets of {visible(plan.study)}", soft_wrap=True)


@site_app.command("backup")
def site_backup(
    out: Annotated[Path, typer.Argument(help="A new file, on another disk.")],
    site: SiteOption = Path("site.toml"),
    passphrase_file: PassphraseFile = None,
    json_: Json = False,
) -> None:
    """Write an encrypted backup: file, keys, schema, decisions, withdrawn keys, audit log, ledger. The site may serve
    meanwhile. Data are not in it."""
    from zerosum.study.site_backup import backup

    entries = backup(site, out, _passphrase(passphrase_file, new=True))
    if json_:
        terminal.print_json({"file": str(out), "bytes": out.stat().st_size, "entries": entries})
        return
    terminal.out.print(f"written: {out}, with {counted(entries, 'entry', 'entries')} of the ledger", soft_wrap=True)


@site_app.command("restore")
def site_restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    folder: Annotated[Path, typer.Argument(help="A new folder for the site.")],
    passphrase_file: PassphraseFile = None,
    cap: Annotated[
        float | None, typer.Option(help="Largest lifetime epsilon since the backup, if it was raised since.")
    ] = None,
    each: Annotated[
        float | None, typer.Option(help="Largest epsilon that a study since the backup can have cost.")
    ] = None,
    json_: Json = False,
) -> None:
    """Restore a site from a backup after its disk was lost. Whatever may have been spent since is charged: nothing if
    the ledger's counter survived and shows no later entry, otherwise up to the whole cap."""
    from zerosum.site.audit_log import AuditLog
    from zerosum.study import SiteFile
    from zerosum.study.site_backup import restore

    # The charge stays in the restored ledger for good: a wrong number has to stop here, before a file is written.
    for name, value in (("--cap", cap), ("--each", each)):
        if value is not None and not 0 < value < float("inf"):
            raise BadParameter(f"{name} must be positive")
    found = restore(file, folder, _passphrase(passphrase_file), cap=cap, each=each)
    lost = "an unknown number of" if found.lost is None else str(found.lost)
    words = (
        f"the site was restored from the backup of {found.made}, with {counted(found.entries, 'entry', 'entries')}; "
        f"{lost} later entries are lost"
    )
    words += f", and mu {found.charged:.4g} was charged for them" if found.charged else ", and nothing was charged"
    # A charge without a release needs an explanation later: a line of the kind "decided" names the user, too.
    AuditLog(SiteFile.load(found.site).audit_log).write("decided", words)
    if json_:
        record = {"site": str(found.site), "made": found.made, "entries": found.entries, "lost": found.lost}
        terminal.print_json(record | {"charged_mu": found.charged, "epsilon": found.epsilon})
        return
    terminal.out.print(f"{words}; epsilon spent: {found.epsilon:.4f}", soft_wrap=True)
    terminal.out.print(
        "for the steward, before the site serves: compare the policy with the one in force before the loss; withdraw "
        f"keys and refuse plans again that were withdrawn or refused after {found.made}; put the data back, or fetch "
        "them; then zerosum site upgrade --check",
        soft_wrap=True,
    )


@site_app.command("upgrade")
def site_upgrade(
    check: Annotated[bool, typer.Option("--check", help="Check whether this version can serve this site.")] = False,
    site: SiteOption = Path("site.toml"),
    json_: Json = False,
) -> None:
    """Before a new version serves: check that it can read the site's file, keys, schema, decisions, audit log and
    ledger, and which studies a restart would interrupt. Nothing is changed. Exit code 4 if something is wrong."""
    from zerosum.study.site_upgrade import check_site
    from zerosum.version import VERSION

    if not check:
        raise BadParameter("an upgrade needs no conversion of files; give --check to have them checked")
    found = check_site(site)
    if json_:
        terminal.print_json({"version": VERSION, "faults": found.faults, "notes": found.notes})
    else:
        terminal.show_warnings([f"fault: {visible(each)}" for each in found.faults])
        for each in found.notes:
            terminal.out.print(visible(each), soft_wrap=True)
        if not found.faults:
            terminal.out.print(f"Zerosum {VERSION} can serve this site", soft_wrap=True)
    if found.faults:
        # The faults were printed above, as JSON or text. `CheckFailed` would print them a second time.
        raise typer.Exit(CheckFailed.exit_code)


def _passphrase(file: Path | None, *, new: bool = False) -> str:
    """The passphrase of a backup.

    Parameters
    ----------
    file : Path or None
        Its first line is the passphrase.
    new : bool
        Whether a passphrase that is typed has to be typed twice.
    """
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").split("\n")[0]
        except (OSError, UnicodeError) as error:
            raise BadInput(f"{file} cannot be read: {error}") from None
    # For backups by a timer. There is no option for the passphrase: other users see arguments in the list of processes.
    if given := os.environ.get("ZEROSUM_PASSPHRASE"):
        return given
    # A new passphrase is typed twice, because an error in it would show only when the backup is needed. On stderr, so
    # that stdout has nothing but the JSON.
    return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=new, err=True))
