"""The connection of a site that is an inner node of a tree to the sites below it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from zerosum.engines.sockets import Sockets
from zerosum.site.service import Exchange
from zerosum.study.site_file import SiteFile


@contextmanager
def children_of(site: SiteFile, plan: str, seconds: float) -> Iterator[Exchange]:
    """Exchange frames with the children in a site's file, each by its socket.

    Parameters
    ----------
    site : SiteFile
        The inner node.
    plan : str
        Digest of the study's plan in hex.
    seconds : float
        Longest wait for the next bytes of a reply.
    """
    paths = {name: site.folder / path for name, path in site.children.items()}
    with closing(Sockets(paths, plan, seconds=seconds, frame_bytes=site.limits.frame_bytes)) as engine:
        yield engine.exchange
