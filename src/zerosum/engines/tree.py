"""The engine of a tree: frames go to the sites at the top, each with the frames of its branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerosum.engines.base import Engine
from zerosum.engines.counted import Traffic
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame
from zerosum.protocol.relaying import packed, split, unpacked

SECONDS = 600.0  # time-out of one site's reply, as in `zerosum.engines.sockets`


class Tree:
    """Carries the frames of one study along its tree, over an engine that reaches the sites at the top. For a plan
    without a tree these are all sites, and every frame is carried as it is.

    Parameters
    ----------
    plan, engine:
        The plan, and the engine.
    seconds:
        The time-out of one site's reply.
    traffic:
        Counts the losses of sites below the top.
    """

    def __init__(self, plan: Plan, engine: Engine, *, seconds: float = SECONDS, traffic: Traffic | None = None) -> None:
        self._plan, self._engine, self._seconds = plan, engine, seconds
        self._losses = Traffic().losses if traffic is None else traffic.losses

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """Replies of all sites as their branches answer. A partial sum stands for the sites in it."""
        plan = self._plan
        down = split(plan, plan.tree.top, frames)
        sent = {node: packed(plan, node, branch, self._seconds) for node, branch in down.items()}
        for node, reply in self._engine.exchange(sent):
            for name, each in unpacked(plan, node, down[node], reply):
                if each is None and not (name == node and reply is None):  # that loss is counted by `TrafficCounter`
                    self._losses[name] = self._losses.get(name, 0) + 1
                yield name, each
