"""`zerosum site` commands about keys: rotation, withdrawal, and certificates for NVIDIA FLARE.

A site has two keys. The identity (Ed25519) signs the messages of the protocol; rosters and policies of other parties
name it, so its replacement has to be announced. The TLS key belongs to FLARE's connection and carries bytes only. Both
private keys are made at the site and never leave it.

Rotation with the old key at hand needs no trust in the messenger: the statement is signed with both keys, and
`check-rotation` verifies it elsewhere. A lost or stolen key proves nothing, so the new key is announced over a channel
that the other sites trust.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import DeskOption, Json, SiteOption, site_app
from zerosum.errors import BadInput, Refused
from zerosum.kernel.names import visible

IdentityArgument = Annotated[str, typer.Argument(help="A site's identity: 64 digits in hex.")]


@site_app.command("rotate-key")
def site_rotate_key(
    site: SiteOption = Path("site.toml"),
    lost: Annotated[bool, typer.Option("--lost", help="The old key is lost or compromised.")] = False,
    json_: Json = False,
) -> None:
    """Replace this site's signing key. A running `zerosum site run` uses the new key after a restart."""
    from zerosum.report.record import write_whole
    from zerosum.site.audit_log import AuditLog
    from zerosum.site.decisions import Consents
    from zerosum.site.identity import rotate_identity
    from zerosum.study import SiteFile

    loaded, statements = SiteFile.load(site), list[Path]()
    path, consents = loaded.folder / loaded.identity, Consents(loaded.state_folder)
    # A withdrawn key may be in other hands: a rotation that it signs would replace the site's key by an attacker's.
    if not lost and path.exists() and loaded.keep_identity().public.hex() in consents.withdrawn():
        raise Refused("this site's key is withdrawn and cannot certify a new one: zerosum site rotate-key --lost")

    def before(old: str | None, new: str, statement: bytes) -> None:
        """Write the rotation statement and withdraw a lost key before the new key is stored. A command killed in
        between can be repeated and continues with the same key.

        Parameters
        ----------
        old : str or None
            The former public key; None if its file could not be read.
        new : str
            The new public key.
        statement : bytes
            The rotation, signed with both keys; empty for a lost key.
        """
        if old is not None and lost:
            consents.withdraw(old)
        elif old is not None:
            statements.append(loaded.folder / f"rotation-{new[:8]}.json")
            statements[0].unlink(missing_ok=True)  # left by a call that was killed
            write_whole(statements[0], statement)
        how = "is withdrawn here" if lost else "stays for studies that pin it"
        log = AuditLog(loaded.audit_log)
        log.write("decided", f"a new key {new} takes the place of {old or 'the one before'}, which {how}")

    old, new = rotate_identity(path, lost=lost, name=loaded.name, before=before)
    new_identity, statement = new.public.hex(), next(iter(statements), None)
    if json_:
        record = {"identity": new_identity, "former": None if old is None else old.public.hex()}
        terminal.print_json(record | {"statement": None if statement is None else str(statement)})
        return
    terminal.out.print(f"identity, for the rosters of all sites: {new_identity}", soft_wrap=True)
    if statement is not None:
        terminal.out.print(f"send {statement} to all sites: both keys signed it", soft_wrap=True)
    else:
        terminal.out.print("inform all sites by telephone, also that the old key is withdrawn", soft_wrap=True)
    terminal.out.print("restart the site: until then it uses the old key")


@site_app.command("check-rotation")
def site_check_rotation(
    statement: Annotated[Path, typer.Argument(help="The statement that another site's rotate-key wrote.")],
    json_: Json = False,
) -> None:
    """Check that a site's old key signed its new one, and print the roster's line for both."""
    from zerosum.site.identity import Rotation

    try:
        found = Rotation.from_json(statement.read_bytes())
    except OSError as error:
        raise BadInput(f"{statement} cannot be read: {error.strerror or error}") from None
    if json_:
        terminal.print_json({"site": found.site, "old": found.old, "new": found.new, "made": found.made})
        return
    terminal.out.print(f"both keys of {visible(found.site)} signed this; in [policy.roster]:")
    # Both keys: plans that pin the old key stay valid until their studies are over. The brackets are text and not
    # console markup.
    terminal.out.print(f'{visible(found.site)} = ["{found.new}", "{found.old}"]', soft_wrap=True, markup=False)


@site_app.command("withdraw")
def site_withdraw(identity: IdentityArgument, site: SiteOption = Path("site.toml"), desk: DeskOption = None) -> None:
    """Refuse all studies with the holder of this key, immediately, also running ones."""
    if desk is not None:
        from zerosum.site.desk import ask

        terminal.out.print(ask(desk, do="withdraw", identity=identity), soft_wrap=True)
        return
    from zerosum.site.audit_log import AuditLog
    from zerosum.site.decisions import Consents
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    # A file of the state folder, which the running site reads for every message: the refusal holds at once and after a
    # restart.
    Consents(loaded.state_folder).withdraw(identity)
    AuditLog(loaded.audit_log).write("decided", f"the key {identity} is withdrawn")
    terminal.out.print(f"{identity} is withdrawn here", soft_wrap=True)


@site_app.command("request")
def site_request(
    site: SiteOption = Path("site.toml"),
    project: Annotated[str, typer.Option(help="Name of the FLARE project, from its coordinator.")] = "zerosum",
) -> None:
    """Make a TLS key, which stays here, and a request for its certificate, to send to the coordinator."""
    from zerosum.flare import certificates
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    path = certificates.request(loaded.folder, loaded.name, loaded.keep_identity(), project)
    terminal.out.print(f"send {path} to the coordinator; the key stays in {loaded.folder / 'tls'}", soft_wrap=True)


@site_app.command("kit")
def site_kit(
    signed: Annotated[Path, typer.Argument(help="The signed package that the coordinator sent back.")],
    fingerprint: Annotated[
        str, typer.Option(help="Fingerprint of the project's authority, received over another channel.")
    ],
    site: SiteOption = Path("site.toml"),
) -> None:
    """Make this site's FLARE kit from its own key and its certificate; the kit runs only Zerosum's classes."""
    from zerosum.flare import certificates
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    kit = certificates.install(loaded.folder, signed, fingerprint)
    until = certificates.expires(kit).date()
    terminal.out.print(f"written to {kit}; its certificate is valid until {until}", soft_wrap=True)
