"""The application that commands register with.

Tested in tests/cli/test_cli.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerosum.version import VERSION

app = typer.Typer(
    help="One joint result from institutions that may not share records, under exactly accounted privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"zerosum {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


ledger_app = typer.Typer(help="A site's ledger: what was spent, and whether the record is sound.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
results_app = typer.Typer(help="Results of studies that spent: listed, shown and written again, free.")
app.add_typer(results_app, name="results")
site_app = typer.Typer(help="A site as a process of its own, beside its data.", no_args_is_help=True)
app.add_typer(site_app, name="site")
coordinator_app = typer.Typer(help="The coordinator, as a process of its own.", no_args_is_help=True)
app.add_typer(coordinator_app, name="coordinator")
flare_app = typer.Typer(help="What NVIDIA FLARE is given, where it carries the messages.", no_args_is_help=True)
app.add_typer(flare_app, name="flare")

Patience = Annotated[float, typer.Option(help="How long, resumed, to wait for sites it can go on without.")]
StateOption = Annotated[Path, typer.Option("--state", help="The folder of the study.")]
SiteOption = Annotated[Path, typer.Option("--site", help="The site's file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
