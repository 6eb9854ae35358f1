"""An engine that counts the traffic of another one, for monitoring and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from zerosum.engines.base import Engine
from zerosum.protocol.codec import Frame


@dataclass
class Traffic:
    """Traffic to and from sites so far; `losses` counts exchanges in which a site did not answer."""

    exchanges: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    seconds: float = 0.0
    losses: dict[str, int] = field(default_factory=dict)


class TrafficCounter:
    """Counts the traffic of another engine in `traffic`, which a monitor may read at any time."""

    def __init__(self, engine: Engine, traffic: Traffic) -> None:
        self._engine, self._traffic = engine, traffic

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """Pass the frames on, and count frames, replies and losses."""
        traffic, began = self._traffic, time.monotonic()
        traffic.exchanges += 1
        traffic.bytes_out += sum(map(len, frames.values()))
        # Counted one by one: the coordinator adds a reply while others are still on their way, and may stop early.
        for name, reply in self._engine.exchange(frames):
            if reply is None:
                traffic.losses[name] = traffic.losses.get(name, 0) + 1
            else:
                traffic.bytes_in += len(reply)
            yield name, reply
        traffic.seconds += time.monotonic() - began
