"""`zerosum watch`: local web page of running and past studies.

The command only chooses the pages (a coordinator's or a site's), binds the socket and prints the address; access
control is in `zerosum.watch.access`. The server listens on loopback unless `--host` names another address, since the
connection is not encrypted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import app
from zerosum.errors import BadInput, BadParameter

if TYPE_CHECKING:
    from zerosum.watch.app import Pages


@app.command()
def watch(
    state: Annotated[
        list[Path] | None,
        typer.Option(help="For a coordinator: the folder of a study, or a folder of such folders. May be repeated."),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(help="For a site: its file or its folder; by default site.toml in the current folder."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; by default a free one.")] = 0,
    host: Annotated[
        str | None, typer.Option(help="An address other than loopback, which lets others on the network connect.")
    ] = None,
) -> None:
    """Show running and past studies on a local page; a site's steward approves or refuses plans there.

    Open the address that is printed. It contains a token: every holder of the token can read the page and decide. The
    server runs until Ctrl-C or SIGTERM.
    """
    try:
        from zerosum.watch.access import LOOPBACK, AccessControl, is_loopback
        from zerosum.watch.app import Watch
        from zerosum.watch.server import bind, serve
    # The web libraries are an extra. Any other missing module is a fault of the program and passes through.
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise BadInput("the page needs Starlette and Uvicorn: pip install 'zerosum[watch]'") from None
    pages = _pages(state or [], site)
    access = AccessControl(host or LOOPBACK)
    # Bound before the address is printed: the port may be chosen by the system, and it must be known to be free.
    listening = bind(access.host, port)
    if not is_loopback(access.host):
        terminal.err.print(
            f"warning: {access.host} is not loopback. Every machine that can reach this one can try to connect, and "
            "pages and decisions travel unencrypted: a tunnel (ssh -L) to loopback is safer.",
            soft_wrap=True,
        )
    if access.everywhere:
        terminal.err.print(
            "the following address is for a browser on this machine; on another one, replace the host by this "
            "machine's address",
            soft_wrap=True,
        )
    address = access.address(listening.getsockname()[1])
    # print instead of a console: an address must not be wrapped or coloured
    serve(Watch(pages, access), listening, started=lambda: print(f"open {address}", flush=True))
    terminal.err.print("stopped")


def _pages(state: list[Path], site: Path | None) -> Pages:
    """Pages of a coordinator or of a site.

    Parameters
    ----------
    state : list of Path
        State folders of studies, or folders of such folders.
    site : Path or None
        A site file, or its folder. Without both, a `site.toml` in the current folder is taken; else the archived
        results of this user are shown.
    """
    if site is not None and state:
        raise BadParameter("--state is for a coordinator and --site for a site: give one of them")
    if site is None and not state and Path("site.toml").is_file():
        site = Path("site.toml")
    if site is not None:
        from zerosum.watch.site_pages import SitePages

        return SitePages(site / "site.toml" if site.is_dir() else site)
    for folder in state:
        if not folder.is_dir():
            raise BadParameter(f"there is no folder {folder}")
    from zerosum.watch.coordinator_pages import CoordinatorPages

    return CoordinatorPages(state)
