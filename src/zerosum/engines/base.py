"""The interface between the coordinator and a carrier of frames: one method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from zerosum.protocol.codec import Frame


class Engine(Protocol):
    """Carries frames to named sites and brings back replies and losses as they arrive."""

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """For each site its reply, or None if there was none, in any order. In a tree (`zerosum.engines.tree`) the
        contribution of an inner node may stand for several sites, which then have no reply of their own.
        """
        ...
