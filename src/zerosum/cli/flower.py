"""`zerosum flower`: keys, an app and a node for Flower.

Flower carries the bytes between coordinator and sites in place of sockets. The study itself is the same: `flower app`
begins it as `coordinator run` does and writes the Flower app that continues it at the SuperLink. Only `node` needs
Flower to be installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerosum.cli import complete, terminal
from zerosum.cli.app import (
    AgreementSeconds,
    ApprovedPlan,
    Patience,
    ProposalSeconds,
    PublicStudyFile,
    ReplySeconds,
    ResultFolder,
    SiteOption,
    flower_app,
)
from zerosum.errors import BadInput, BadParameter

FederationOption = Annotated[Path, typer.Option("--federation", help="The folder that `flower provision` made.")]


@flower_app.command("request")
def flower_request(site: SiteOption = Path("site.toml")) -> None:
    """Make the key of this site's node, which stays here, and a request for it, to send to the coordinator."""
    from zerosum.flower import keys
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    path = keys.request(loaded.folder, loaded.name, loaded.keep_identity())
    terminal.out.print(f"send {path} to the coordinator; the key stays in {loaded.folder / 'flower'}", soft_wrap=True)


@flower_app.command("provision")
def flower_provision(
    study: Annotated[
        Path, typer.Argument(help="The study file (TOML), for its roster.", autocompletion=complete.studies)
    ],
    out: Annotated[Path, typer.Option(help="A folder for the federation: a new one, or to approve more requests.")],
    request: Annotated[list[Path], typer.Option(help="A request that `zerosum flower request` made at a site.")],
    server: Annotated[str | None, typer.Option(help="The SuperLink's host name, as sites reach it.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port that sites connect to.")] = 443,
    local_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the SuperLink on this machine.")] = 8000,
    ca_certificate: Annotated[Path | None, typer.Option(help="An authority of your own (PEM).")] = None,
    ca_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of certificates in days.")] = 730,
) -> None:
    """Make a Flower federation for a study's roster: an authority, the SuperLink's certificate, scripts that start it,
    and the public keys of the sites' nodes, whose private keys stay at the sites."""
    from zerosum.flower import keys
    from zerosum.study import Study

    roster = {site.name: site.identity for site in Study.load(study).sites}
    if (ca_certificate is None) != (ca_key is None):
        raise BadParameter("an authority of your own is a certificate and its key: --ca-certificate and --ca-key")
    requests = [keys.NodeRequest.read(path) for path in request]
    own = None if ca_certificate is None or ca_key is None else (ca_certificate, ca_key)
    # The first call founds the federation; later calls approve more requests.
    if not out.exists():
        if server is None:
            raise BadParameter("--server is the host name of the SuperLink, as sites reach it")
        keys.found(out, server, port, days=days, local=local_port, ca=own)
        terminal.out.print(f"start {out / 'superlink.sh'}, {out / 'superexec.sh'} and a proxy", soft_wrap=True)
        terminal.out.print(f"send {out / 'ca.pem'} to every site over another channel", soft_wrap=True)
    for each in requests:
        public = keys.approve(out, roster, each)
        home = f"FLWR_TELEMETRY_ENABLED=0 FLWR_HOME={out / 'home'}"
        terminal.out.print(f"{home} flwr supernode register {public} {keys.CONNECTION}", soft_wrap=True)


@flower_app.command("app")
def flower_app_command(
    study: PublicStudyFile,
    state: Annotated[Path, typer.Option(help="A new folder for the study, in the SuperLink's $ZEROSUM_COORDINATOR.")],
    out: ResultFolder,
    app: Annotated[Path, typer.Option(help="A new folder for the Flower app, which `flwr run` starts.")],
    federation: FederationOption,
    plan: ApprovedPlan = None,
    seconds: ReplySeconds = 600.0,
    wait: AgreementSeconds = 86400.0,
    every: ProposalSeconds = 2.0,
    patience: Patience = 60.0,
) -> None:
    """Begin a study on the SuperLink's machine, and write the Flower app that runs or resumes it."""
    from zerosum.flower import keys
    from zerosum.flower.bundle import refuse_tree, write_app
    from zerosum.report.record import read_plan
    from zerosum.study import Study
    from zerosum.study.coordinating import Settings, begin

    times = {"seconds": seconds, "wait": wait, "every": every, "patience": patience}
    # As for `coordinator run`: zero would give up on every site at once, infinity never.
    if not all(0 < each < float("inf") for each in times.values()):
        raise BadParameter("--seconds, --wait, --every and --patience must be positive")
    known = keys.nodes(federation)
    if missing := [site.name for site in Study.load(study).sites if site.name not in known]:
        raise BadInput(f"there is no node for {', '.join(map(repr, missing))}: approve its request first")
    given = {"study": study.absolute(), "out": out.absolute(), "nodes": known}
    settings = Settings.model_validate(given | times)
    # Before `begin`, which cannot be repeated in the same state folder.
    if app.exists():
        raise BadParameter(f"{app} exists already; choose another place for the app")
    approved = None if plan is None else read_plan(plan)
    refuse_tree(approved or Study.load(study).plan())
    chosen = begin(settings, state, approved)
    write_app(app, state.absolute().name)
    terminal.out.print(f"plan {chosen.digest()}", soft_wrap=True)
    terminal.out.print(f"flwr run {app} {keys.CONNECTION}; run again, it resumes the study", soft_wrap=True)


@flower_app.command("node")
def flower_node(
    superlink: Annotated[str, typer.Option(help="Address of the SuperLink, HOST:PORT.")],
    ca: Annotated[Path, typer.Option(help="Certificate of the federation's authority, from its coordinator (PEM).")],
    site: SiteOption = Path("site.toml"),
    seconds: Annotated[float, typer.Option(min=1, help="Longest wait for a reply of the site's process.")] = 3600.0,
) -> None:
    """Connect this site to a SuperLink: carry its messages to the site's process, and run no code from there."""
    import signal

    try:
        from zerosum.flower.node import Node, load_key
    except ModuleNotFoundError as error:
        raise BadInput("Flower is not installed here: pip install 'zerosum[flower]'", detail=str(error)) from None
    from zerosum.flower.keys import NODE_KEY
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    try:
        authority = ca.read_bytes()
    except OSError as error:
        raise BadInput(f"{ca} cannot be read: {error.strerror}") from None
    node = Node(superlink, authority, load_key(loaded.folder / "flower" / NODE_KEY), loaded.socket, seconds)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: node.stop())
    node.run()
