"""The seam: one method between the coordinator and whatever carries its messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from zerosum.protocol.messages import Message, Reply


class Engine(Protocol):
    """Carries messages to named sites and brings back replies and losses as they arrive."""

    def exchange(self, messages: Mapping[str, Message]) -> Iterator[Reply]:
        """One reply per message, `Lost` where there was none, in any order."""
        ...
