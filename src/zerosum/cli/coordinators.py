"""The coordinator as a process of its own.

Tested in tests/cli/test_coordinators.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, coordinator_app
from zerosum.errors import BadParameter
from zerosum.kernel.names import visible
from zerosum.report.record import read_plan

if TYPE_CHECKING:
    from zerosum.report.record import Result


@coordinator_app.command("run")
def coordinator_run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML), its public part.")],
    state: Annotated[Path, typer.Option(help="A new folder in which the study survives this process.")],
    out: Annotated[Path, typer.Option(help="A new folder for the result and the privacy report.")],
    site: Annotated[list[str], typer.Option(help="NAME=SOCKET: where a site listens.")],
    plan: Annotated[Path | None, typer.Option(help="Run this plan, as it was approved.")] = None,
    seconds: Annotated[float, typer.Option(help="How long a site may take for a reply.")] = 600.0,
    wait: Annotated[float, typer.Option(help="How long to wait, in seconds, until every site has agreed.")] = 86400.0,
    json_: Json = False,
) -> None:
    """Wait until every site has agreed, run the study, and write its result. Killed, it can be resumed."""
    from zerosum.study.coordinating import Settings, begin

    if seconds <= 0 or wait <= 0:
        raise BadParameter("--seconds and --wait must be positive")
    sites = dict(_parted(each) for each in site)
    settings = Settings(study=study.absolute(), out=out.absolute(), sites=sites, seconds=seconds, wait=wait)
    chosen = begin(settings, state, None if plan is None else read_plan(plan))
    terminal.err.print(f"plan {chosen.digest()}", soft_wrap=True)
    _carry_on(state, json_)


@coordinator_app.command("resume")
def coordinator_resume(
    state: Annotated[Path, typer.Option(help="The folder of the study that was stopped.")],
    json_: Json = False,
) -> None:
    """Go on with a study that was stopped. What was released is not asked again, and nothing is spent twice."""
    _carry_on(state, json_)


def _parted(said: str) -> tuple[str, Path]:
    name, equals, path = said.partition("=")
    if not (name and equals and path):
        raise BadParameter("--site is NAME=SOCKET")
    return name, Path(path).absolute()


def _carry_on(state: Path, as_json: bool) -> None:
    from zerosum.study.coordinating import Settings, coordinate

    def attend(sites: Mapping[str, str]) -> None:
        terminal.err.print(", ".join(f"{visible(name)}: {how}" for name, how in sites.items()), soft_wrap=True)

    with terminal.observed() as observer:
        result: Result = coordinate(state, attend, observer)
    out = Settings.load(state).out
    if as_json:
        terminal.print_json(result.as_record() | {"folder": str(out)})
        return
    terminal.show_report(result.report)
    terminal.out.print(f"\nwritten to {out}", soft_wrap=True)
