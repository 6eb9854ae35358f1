"""All sites in this process: the default engine. The sites run the code that real ones run, on the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from zerosum.protocol.codec import decode_message
from zerosum.protocol.messages import Message, Relay, Relayed
from zerosum.site.host import answer
from zerosum.site.inner_node import InnerNode
from zerosum.site.site import Site

Loses = Callable[[str, Message], bool]


class InProcess:
    """Sites held in memory. `loses(site, message)` selects messages that never arrive, for tests and rehearsals."""

    def __init__(self, sites: Iterable[Site], loses: Loses | None = None) -> None:
        self._sites = {site.name: site for site in sites}
        self._nodes = {name: _node(site) for name, site in self._sites.items()}
        self._loses = loses

    def close(self) -> None:
        """The study is over: sites close their ledgers."""
        for site in self._sites.values():
            site.close()

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Replies of the sites in order, each computed when it is asked for."""
        for name, frame in frames.items():
            # The frame is decoded here only for `loses`; the site decodes it again from the bytes, as it would at its
            # own machine.
            lost = name not in self._sites or (self._loses is not None and self._loses(name, decode_message(frame)))
            yield name, None if lost else answer(self._sites[name], frame, partial(self._relayed, name))

    def _relayed(self, name: str, message: Relay) -> Relayed:
        """The replies of the branch of an inner node. The sites below it are reached by this engine, and lost, as any
        other site.
        """
        return self._nodes[name].relay(message, lambda frames, seconds: self.exchange(frames))


def _node(site: Site) -> InnerNode:
    """The relay of a site, which signs with the site's key under any plan."""
    return InnerNode(site.name, lambda plan: site.identity)
