"""A local page of running and past studies.

Tested in tests/cli/test_cli_watch.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import app
from zerosum.errors import BadInput, BadParameter

if TYPE_CHECKING:
    from zerosum.watch.app import Board


@app.command()
def watch(
    state: Annotated[
        list[Path] | None,
        typer.Option(help="A coordinator's: the folder of a study, or one that holds such folders. Several are taken."),
    ] = None,
    site: Annotated[
        Path | None, typer.Option(help="A site's: its file or its folder; site.toml, where that is here.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; a free one, if none is given.")] = 0,
    host: Annotated[
        str | None, typer.Option(help="Another address than loopback: others on the network can connect then.")
    ] = None,
) -> None:
    """Show running and past studies on a local page, as they go on; a site's steward approves or refuses there.

    Open the address that is printed: it has a token in it, and whoever has it can read the page and decide. It serves
    until Ctrl-C or SIGTERM.
    """
    try:
        from zerosum.watch.app import Watch
        from zerosum.watch.gate import LOOPBACK, Gate, is_loopback
        from zerosum.watch.server import bind, serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise BadInput("the page needs Starlette and Uvicorn: pip install 'zerosum[watch]'") from None
    board = _board(state or [], site)
    gate = Gate(host or LOOPBACK)
    listening = bind(gate.host, port)
    if not is_loopback(gate.host):
        terminal.err.print(
            f"warning: {gate.host} is not loopback. Whoever can reach this machine can try to connect, and what is "
            "shown and decided travels unencrypted: a tunnel (ssh -L) to loopback is safer.",
            soft_wrap=True,
        )
    if gate.everywhere:
        terminal.err.print(
            "the address that follows is for a browser on this machine; from another one, put this machine's own into "
            "its place",
            soft_wrap=True,
        )
    address = gate.address(listening.getsockname()[1])
    # print, not a console: nothing may be wrapped or coloured in an address
    serve(Watch(board, gate), listening, started=lambda: print(f"open {address}", flush=True))
    terminal.err.print("stopped")


def _board(state: list[Path], site: Path | None) -> Board:
    if site is not None and state:
        raise BadParameter("--state is a coordinator's and --site a site's: one page shows one of them")
    if site is None and not state and Path("site.toml").is_file():
        site = Path("site.toml")
    if site is not None:
        from zerosum.watch.site_board import SiteBoard

        return SiteBoard(site / "site.toml" if site.is_dir() else site)
    for folder in state:
        if not folder.is_dir():
            raise BadParameter(f"there is no folder {folder}")
    from zerosum.watch.coordinator_board import CoordinatorBoard

    return CoordinatorBoard(state)
