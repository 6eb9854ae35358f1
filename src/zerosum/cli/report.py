"""`zerosum verify`, `zerosum site report` and `zerosum coordinator init`: signatures of reports.

A report is signed with the coordinator's key. A valid signature shows that no byte was changed since, but not whose key
it is: anyone can make a key and sign. Only a key that the reader knows from elsewhere proves the author, so `verify`
says by what the key was pinned: an option, an approved plan, or a policy. A plan that lies beside the report pins
nothing, because it comes from the same sender.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, SiteOption, app, coordinator_app, site_app
from zerosum.errors import BadInput, BadStudy, CheckFailed
from zerosum.kernel.names import check_identity, visible

if TYPE_CHECKING:
    from zerosum.site.policy import Policy

Report = Annotated[Path, typer.Argument(help="report.html, report.json, or the folder of both.")]


@app.command()
def verify(
    report: Report,
    key: Annotated[str | None, typer.Option(help="The coordinator's identity: 64 digits in hex.")] = None,
    plan: Annotated[Path | None, typer.Option(help="The plan that was approved, which may pin the key.")] = None,
    policy: Annotated[Path | None, typer.Option(help="A policy, or a site's file, that pins the key.")] = None,
    json_: Json = False,
) -> None:
    """Check that a report is unchanged since it was signed, and that its key is the expected one."""
    from zerosum.report import verify as module
    from zerosum.report.record import read_plan

    if key is not None:
        check_identity("--key", key)
    verification = module.verify(report)
    # What names the report's key, and what was given but names no key. A source that names another key raises an error.
    pinned: list[str] = []
    unpinned: list[str] = []
    if key is not None:
        module.check_key(verification, key)
        pinned.append("--key")
    if plan is not None:
        if not module.check_plan(verification, read_plan(plan)):
            unpinned.append("the plan pins no key")
        # Someone who forges a report puts a plan with the forged key beside it.
        elif plan.resolve().parent == (report if report.is_dir() else report.parent).resolve():
            unpinned.append("the plan beside a report comes from the author of the report")
        else:
            pinned.append("the plan")
    if policy is not None:
        if module.check_policy(verification, _policy(policy)):
            pinned.append("the policy")
        else:
            unpinned.append("the policy pins no key")
    # On the coordinator's own machine its key is at hand, and needs no other channel.
    own = verification.key == _own_key()
    if json_:
        written = (
            {}
            if verification.document is None
            else {"study": verification.document.study, "written": verification.document.written}
        )
        record = {
            "unchanged": True,
            "key": verification.key,
            "pinned_by": pinned,
            "own_key": own,
            "plan": plan is not None,
        }
        site_fields = {"site": verification.site or None, "redrawn": verification.redrawn}
        terminal.print_json(
            record | written | site_fields | {"files": list(verification.files), "absent": list(verification.absent)}
        )
        return
    terminal.out.print(f"unchanged since it was signed: {', '.join(map(visible, verification.files))}", soft_wrap=True)
    if verification.document is None:
        gone = f"absent, so not checked: {visible(verification.absent[0])}, and the files of the result, which it names"
        terminal.out.print(gone, soft_wrap=True)
    elif verification.absent:
        terminal.out.print(f"absent, so not checked: {', '.join(map(visible, verification.absent))}", soft_wrap=True)
    # Not an error: fonts and layout differ between versions of the libraries that draw the page.
    if verification.redrawn is False:
        terminal.err.print(
            "the page differs from the one that is rendered here from the JSON beside it: another version of Zerosum "
            "or matplotlib rendered it, or its content is different; only the JSON was checked",
            soft_wrap=True,
        )
    if plan is not None:
        terminal.out.print("it belongs to this plan, and states the plan's guarantee")
    terminal.out.print(f"signed with the key {verification.key}", soft_wrap=True)
    if pinned:
        whose = f" for the site {visible(verification.site)!r}" if verification.site and pinned != ["--key"] else ""
        terminal.out.print(f"which is the one that {' and '.join(pinned)} names{whose}", soft_wrap=True)
    if verification.site:
        terminal.err.print(
            f"this is the copy of the site {visible(verification.site)!r}, which that site signed: only the "
            "coordinator's own report proves what the coordinator wrote about the study",
            soft_wrap=True,
        )
    if pinned:
        return
    if own:
        terminal.out.print("which is this user's own")
        return
    terminal.err.print(
        f"{f'{unpinned[0]}, so ' if unpinned else ''}only integrity was checked: the owner of the key is unknown here, "
        "and a forger could have signed with a key of their own; get the coordinator's key over another channel "
        "(zerosum coordinator init prints it) and give it with --key",
        soft_wrap=True,
    )


def _own_key() -> str | None:
    """Identity of this user as a coordinator, or None. No key is created.

    A key that cannot be read counts as none: it is only used for a remark.
    """
    from zerosum.report.signature import coordinator_key, key_place

    try:
        return coordinator_key().public.hex() if key_place().exists() else None
    except BadInput:
        return None


def _policy(path: Path) -> Policy:
    """Policy from a policy file, or from a site's file.

    Parameters
    ----------
    path : Path
        A TOML file of either kind; stewards have the one or the other at hand.
    """
    from zerosum.site.policy import Policy
    from zerosum.study import SiteFile

    try:
        # A site file has an entry `policy` (a table, or the path of a file); a policy file has none.
        whole = "policy" in tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadStudy(f"the policy {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise BadStudy(f"the policy {path} is not a TOML file: {error}") from None
    return SiteFile.load(path).own_policy() if whole else Policy.load(path)


@site_app.command("report")
def site_report(
    report: Annotated[Path, typer.Argument(help="The coordinator's report.json, or its folder.")],
    out: Annotated[Path, typer.Option(help="A new folder for the site's own copy.")],
    site: SiteOption = Path("site.toml"),
    json_: Json = False,
) -> None:
    """Write a copy of a report for this site's steward, with what its ledger has spent and what its cap leaves."""
    from zerosum.report import verify as module
    from zerosum.report.build import PAGE, TEXT, signed_files, site_copy
    from zerosum.report.record import check_target, write_whole
    from zerosum.site.ledger import Ledger
    from zerosum.site.ledger_summary import statement
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    policy, identity = loaded.own_policy(), loaded.keep_identity()
    verification = module.verify(report)
    if verification.document is None:
        raise BadInput("report.json is needed to make a copy: put it beside the page")
    # A copy has the signature of the site that made it. Only the coordinator's own report proves what the coordinator
    # wrote.
    if verification.document.site:
        raise BadInput("this is a site's copy already: give the coordinator's own report")
    pinned = module.check_policy(verification, policy)
    check_target(out)
    with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
        ledger_summary = statement(ledger, policy.cap)
    # The ledger knows under which plan this site was charged. A report with another plan describes a study that this
    # site did not agree to.
    plans = {line["plan"] for line in ledger_summary["studies"] if line["study"] == verification.document.study}
    if plans - {verification.document.plan_digest, None}:
        raise CheckFailed("this site's ledger has the study under another plan than the report")
    try:
        page, text = signed_files(
            site_copy(verification.document, loaded.name, identity.public.hex(), ledger_summary), identity
        )
    # The document was signed, but its numbers come from the coordinator and need not fit together.
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise BadInput(
            f"the report cannot be drawn: its numbers do not fit together ({type(error).__name__})"
        ) from None
    write_whole(out / TEXT, text)
    write_whole(out / PAGE, page)
    if json_:
        terminal.print_json({"report": str(out / PAGE), "pinned": pinned, "taken_part": bool(plans)})
        return
    terminal.out.print(
        f"written: {out / PAGE}; it is for this site only: it mentions the site's other studies", soft_wrap=True
    )
    if not plans:
        terminal.out.print("this site's ledger has no entry of that study")
    if not pinned:
        terminal.out.print("the policy pins no coordinator's key: only integrity was checked", soft_wrap=True)


@coordinator_app.command("init")
def coordinator_init(json_: Json = False) -> None:
    """Print the identity of this user's signing key, for study files and policies. Creates a key if there is none."""
    from zerosum.report.signature import coordinator_key

    public = coordinator_key().public.hex()
    if json_:
        terminal.print_json({"identity": public})
        return
    terminal.out.print("in study files, and in sites' policies:")
    terminal.out.print(f'coordinator = "{public}"', soft_wrap=True)
