"""`zerosum flare` and `zerosum provision`: jobs, kits and certificates for NVIDIA FLARE.

FLARE carries the bytes between coordinator and sites in place of sockets. The study itself is the same: `flare job`
begins it as `coordinator run` does and writes the job that continues it on the FLARE server. Only
`provision` needs FLARE to be installed.
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
    StateOption,
    app,
    flare_app,
)
from zerosum.errors import BadParameter
from zerosum.kernel.names import counted, visible


@flare_app.command("job")
def flare_job(
    study: PublicStudyFile,
    state: Annotated[Path, typer.Option(help="A new folder for the study, in the server's $ZEROSUM_COORDINATOR.")],
    out: ResultFolder,
    job: Annotated[Path, typer.Option(help="A new folder for the job, which FLARE's administrator submits.")],
    plan: ApprovedPlan = None,
    seconds: ReplySeconds = 600.0,
    wait: AgreementSeconds = 86400.0,
    every: ProposalSeconds = 2.0,
    patience: Patience = 60.0,
    ping: Annotated[float, typer.Option(help="Seconds until a silent relay counts as lost.")] = 2.0,
    absent: Annotated[
        float, typer.Option(help="Seconds of silence of a site before the first round after which the job ends.")
    ] = 300.0,
) -> None:
    """Begin a study on the FLARE server's machine, and write the job that runs or resumes it."""
    from zerosum.flare.jobs import refuse_tree, write_job
    from zerosum.report.record import read_plan
    from zerosum.study import Study
    from zerosum.study.coordinating import Settings, begin

    times = {"seconds": seconds, "wait": wait, "every": every, "patience": patience, "ping": ping, "absent": absent}
    # As for `coordinator run`: zero would give up on every site at once, infinity never.
    if not all(0 < each < float("inf") for each in times.values()):
        raise BadParameter("--seconds, --wait, --every, --patience, --ping and --absent must be positive")
    settings = Settings.model_validate({"study": study.absolute(), "out": out.absolute(), **times})
    # Before `begin`, which cannot be repeated in the same state folder.
    if job.exists():
        raise BadParameter(f"{job} exists already; choose another place for the job")
    approved = None if plan is None else read_plan(plan)
    refuse_tree(approved or Study.load(study).plan())
    chosen = begin(settings, state, approved)
    write_job(job, state.absolute().name, len(chosen.sites))
    terminal.out.print(f"plan {chosen.digest()}", soft_wrap=True)
    terminal.out.print(f"submit {job}; submitted again, it resumes the study", soft_wrap=True)


@flare_app.command("resume")
def flare_resume(
    state: StateOption,
    job: Annotated[Path, typer.Option(help="A new folder for the job, which FLARE's administrator submits.")],
) -> None:
    """Write a job that resumes a study without absent sites, as many as its plan tolerates. FLARE starts the first job
    of a study only when every site is connected, so that job would wait for the absent sites."""
    from zerosum.flare.jobs import write_job
    from zerosum.study.coordinating import fewest

    write_job(job, state.absolute().name, fewest(state))
    terminal.out.print(f"submit {job}: the study resumes with the sites that are connected then", soft_wrap=True)


@flare_app.command("harden")
def flare_harden(kit: Annotated[Path, typer.Argument(help="A FLARE kit, of a site or of the server.")]) -> None:
    """Restrict a kit to Zerosum's classes: no code from jobs, no shell, no export of logs."""
    from zerosum.flare.jobs import harden

    changed = harden(kit)
    terminal.out.print(f"changed: {', '.join(changed)}" if changed else "nothing to change", soft_wrap=True)


@flare_app.command("tidy")
def flare_tidy(
    kit: Annotated[Path, typer.Argument(help="The FLARE kit of a site.")],
    days: Annotated[float, typer.Option(min=0.0, help="Keep folders in which something changed since.")] = 30.0,
) -> None:
    """Remove the folders of finished jobs, which FLARE leaves in a kit. They hold logs, no results and no data."""
    from zerosum.flare.jobs import tidy

    removed = tidy(kit, days)
    terminal.out.print(f"removed {counted(len(removed), 'folder')} of finished jobs", soft_wrap=True)


@app.command()
def provision(
    study: Annotated[
        Path, typer.Argument(help="The study file (TOML), for its roster.", autocompletion=complete.studies)
    ],
    out: Annotated[Path, typer.Option(help="A folder for the project: a new one, or to approve more requests.")],
    server: Annotated[str | None, typer.Option(help="The FLARE server's host name, as sites reach it.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port that it listens on.")] = 443,
    admin: Annotated[str, typer.Option(help="E-mail address of the user who submits jobs.")] = "lead@coordinator.org",
    request: Annotated[
        list[Path] | None, typer.Option(help="A request that `zerosum site request` made at a site.")
    ] = None,
    ca_certificate: Annotated[Path | None, typer.Option(help="An authority of your own (PEM).")] = None,
    ca_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of certificates in days.")] = 730,
) -> None:
    """Make a FLARE project for a study's roster: an authority, kits of the server and the administrator, and
    certificates for the requests of sites, whose keys stay at the sites. Without requests all keys are made here, for
    rehearsals."""
    from zerosum.flare import certificates
    from zerosum.flare import provision as flare
    from zerosum.study import Study

    # The roster says which identity may ask for a certificate in the name of a site.
    roster = {site.name: site.identity for site in Study.load(study).sites}
    if not request:
        terminal.err.print(f"making an authority and {counted(len(roster) + 2, 'kit')}, which may take a minute")
        kits = flare.provision(out, list(roster), _required_server(server), port, admin)
        terminal.out.print(f"written to {kits}: give every site its own, and keep no copy", soft_wrap=True)
        terminal.err.print("a rehearsal: the TLS keys of all sites were made here; in a real study give --request")
        return
    if (ca_certificate is None) != (ca_key is None):
        raise BadParameter("an authority of your own is a certificate and its key: --ca-certificate and --ca-key")
    requests = [certificates.Request.read(path) for path in request]
    # An institution may have an authority whose key is kept and revoked by its own rules.
    own = None if ca_certificate is None or ca_key is None else (ca_certificate, ca_key)
    # The first call founds the project; later calls approve more requests with its authority.
    if not out.exists():
        # FLARE's tool starts anew for each certificate, which takes seconds.
        terminal.err.print("making the authority and the kits of the server and the administrator", soft_wrap=True)
        certificates.found(out, _required_server(server), port, admin, days=days, ca=own)
        terminal.out.print(f"kits of the server and of {admin}: {out / 'kits'}", soft_wrap=True)
    for at, each in enumerate(requests, start=1):
        terminal.err.print(f"signing the request of {visible(each.site)}, {at} of {len(requests)}", soft_wrap=True)
        terminal.out.print(f"send back {certificates.approve(out, roster, each, days=days)}", soft_wrap=True)
    # A fingerprint that travels with the signed package proves nothing: an attacker who replaces the package would
    # replace both.
    terminal.out.print(
        f"send to every site over another channel: --fingerprint {certificates.fingerprint(out)}", soft_wrap=True
    )


def _required_server(server: str | None) -> str:
    """The host name of the server, which only the founding of a project needs.

    It is an option and not required by the parser, because approving more requests takes none.
    """
    if server is None:
        raise BadParameter("--server is the host name of the FLARE server, as sites reach it")
    return server
