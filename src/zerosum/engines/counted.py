"""An engine that counts the traffic of another one, for monitoring and benchmarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    _mutex: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **amounts: float) -> None:
        """Add to the counters of these names. A monitor may read at the same time."""
        with self._mutex:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def lost(self, name: str) -> None:
        """Count an exchange in which a site did not answer."""
        with self._mutex:
            self.losses[name] = self.losses.get(name, 0) + 1

    def as_record(self) -> dict[str, Any]:
        """All counters at one moment, JSON-compatible."""
        with self._mutex:
            return {
                "exchanges": self.exchanges,
                "bytes_out": self.bytes_out,
                "bytes_in": self.bytes_in,
                "seconds": self.seconds,
                "losses": dict(self.losses),
            }


class TrafficCounter:
    """Counts the traffic of another engine in `traffic`, which a monitor may read at any time."""

    def __init__(self, engine: Engine, traffic: Traffic) -> None:
        self._engine, self._traffic = engine, traffic

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """Pass the frames on, and count frames, replies and losses."""
        traffic, began = self._traffic, time.monotonic()
        traffic.add(exchanges=1, bytes_out=sum(map(len, frames.values())))
        # Counted one by one: the coordinator adds a reply while others are still on their way, and may stop early.
        for name, reply in self._engine.exchange(frames):
            if reply is None:
                traffic.lost(name)
            else:
                traffic.add(bytes_in=len(reply))
            yield name, reply
        traffic.add(seconds=time.monotonic() - began)
