"""What NVIDIA FLARE is given.

Tested in tests/flare/test_jobs.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import app, flare_app
from zerosum.errors import BadParameter
from zerosum.report.record import read_plan


@flare_app.command("job")
def flare_job(
    study: Annotated[Path, typer.Argument(help="The study file (TOML), its public part.")],
    state: Annotated[Path, typer.Option(help="A new folder for the study, in the server's $ZEROSUM_COORDINATOR.")],
    out: Annotated[Path, typer.Option(help="A new folder for the result and the privacy report.")],
    job: Annotated[Path, typer.Option(help="A new folder for the job, which FLARE's administrator submits.")],
    plan: Annotated[Path | None, typer.Option(help="Run this plan, as it was approved.")] = None,
    seconds: Annotated[float, typer.Option(help="How long a site may take for a reply.")] = 600.0,
    wait: Annotated[float, typer.Option(help="How long to wait, in seconds, until every site has agreed.")] = 86400.0,
) -> None:
    """Begin a study on the FLARE server's machine, and write the job that carries it out, or goes on with it."""
    from zerosum.flare.jobs import write_job
    from zerosum.study.coordinating import Settings, begin

    if seconds <= 0 or wait <= 0:
        raise BadParameter("--seconds and --wait must be positive")
    settings = Settings(study=study.absolute(), out=out.absolute(), seconds=seconds, wait=wait)
    if job.exists():
        raise BadParameter(f"{job} exists already; choose another place for the job")
    chosen = begin(settings, state, None if plan is None else read_plan(plan))
    write_job(job, state.absolute().name, len(chosen.sites))
    terminal.out.print(f"plan {chosen.digest()}", soft_wrap=True)
    terminal.out.print(f"submit {job}; submitted again, it goes on where the study was", soft_wrap=True)


@flare_app.command("harden")
def flare_harden(kit: Annotated[Path, typer.Argument(help="A FLARE kit, of a site or of the server.")]) -> None:
    """Let a kit run Zerosum's classes only: no code from jobs, no shell, no logs sent away."""
    from zerosum.flare.jobs import harden

    changed = harden(kit)
    terminal.out.print(f"changed: {', '.join(changed)}" if changed else "nothing to change", soft_wrap=True)


@app.command()
def provision(
    study: Annotated[Path, typer.Argument(help="The study file (TOML), for its roster.")],
    out: Annotated[Path, typer.Option(help="A new folder for the project and its kits.")],
    server: Annotated[str, typer.Option(help="The FLARE server's host name, as sites reach it.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The one port that it listens on.")] = 443,
    admin: Annotated[str, typer.Option(help="Who submits jobs, by e-mail address.")] = "lead@coordinator.org",
) -> None:
    """Make the FLARE kits of a roster: for the server, every site and the administrator, hardened."""
    from zerosum.flare import provision as flare
    from zerosum.study import Study

    kits = flare.provision(out, [site.name for site in Study.load(study).sites], server, port, admin)
    terminal.out.print(f"written to {kits}: give every site its own, and keep no copy", soft_wrap=True)
