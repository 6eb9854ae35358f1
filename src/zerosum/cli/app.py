"""The typer application and its groups, with which commands register, and options that several commands share.

Modules of commands import this one and decorate their functions with `app.command()` or that of a group. This module
imports none of them, so that `zerosum.cli.load` decides which modules a start loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import complete
from zerosum.version import VERSION

if TYPE_CHECKING:
    from zerosum.study import Study

app = typer.Typer(
    help="One joint result from institutions that may not share records, under exactly accounted privacy.",
    no_args_is_help=True,
    # A foreseeable error is printed as one sentence by `zerosum.cli._run`. In some versions typer's own display of
    # a traceback shows local variables, which may hold records of people.
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    """Print the version and exit, before the command itself is parsed."""
    if requested:
        typer.echo(f"zerosum {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# Groups are created here and filled by their modules: the list of groups in `zerosum --help` does not depend on which
# module was loaded.
ledger_app = typer.Typer(help="A site's ledger: its entries, costs and integrity.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
results_app = typer.Typer(help="Archived results of studies: list, show and export, at no privacy cost.")
app.add_typer(results_app, name="results")
site_app = typer.Typer(help="A site: a process beside its data.", no_args_is_help=True)
app.add_typer(site_app, name="site")
coordinator_app = typer.Typer(help="The coordinator process.", no_args_is_help=True)
app.add_typer(coordinator_app, name="coordinator")
synth_app = typer.Typer(help="Records and tables of synthetic data, at no privacy cost.", no_args_is_help=True)
app.add_typer(synth_app, name="synth")
flare_app = typer.Typer(help="Jobs and kits for NVIDIA FLARE as the transport.", no_args_is_help=True)
app.add_typer(flare_app, name="flare")
flower_app = typer.Typer(help="Keys, apps and nodes for Flower as the transport.", no_args_is_help=True)
app.add_typer(flower_app, name="flower")

# Shared options have one help text and one type, so that they mean the same in every command.
Patience = Annotated[float, typer.Option(help="Seconds that a resumed study waits for sites it can do without.")]
StateOption = Annotated[Path, typer.Option("--state", help="The folder of the study.")]
SiteOption = Annotated[Path, typer.Option("--site", help="The site's file.")]
DeskOption = Annotated[
    Path | None, typer.Option("--desk", help="Socket of your role at a serving site, instead of the site's file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
StudyFile = Annotated[Path, typer.Argument(help="The study file (TOML).", autocompletion=complete.studies)]
PublicStudyFile = Annotated[
    Path, typer.Argument(help="The study file (TOML), its public part.", autocompletion=complete.studies)
]
SiteFiles = Annotated[
    list[Path] | None,
    typer.Option("--site", help="A site's own file, where the study file holds the public part only."),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Go on although the expected correlation with the noise-free maps is below .3.")
]
ResultFolder = Annotated[Path, typer.Option("--out", help="A new folder for the result and the privacy report.")]
ApprovedPlan = Annotated[Path | None, typer.Option("--plan", help="Run this plan, as it was approved.")]
ReplySeconds = Annotated[float, typer.Option("--seconds", help="Seconds a site may take for a reply.")]
AgreementSeconds = Annotated[float, typer.Option("--wait", help="Seconds to wait until every site has agreed.")]
ProposalSeconds = Annotated[
    float, typer.Option("--every", help="Seconds until a site that has not agreed is asked again.")
]


def load_study(study: Path, sites: Sequence[Path] | None) -> Study:
    """The study of a file, with the private parts of its sites.

    Parameters
    ----------
    study : Path
        The study file.
    sites : sequence of Path, optional
        The sites' own files, where the study file holds the public part only.
    """
    from zerosum.study import SiteFile, Study

    loaded = Study.load(study)
    return loaded.with_sites([SiteFile.load(path) for path in sites]) if sites else loaded
