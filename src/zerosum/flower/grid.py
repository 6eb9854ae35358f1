"""The engine over Flower's Grid: one message a site and exchange, replies as they come.

Flower's SuperLink keeps messages until a node pulls them. A node that is offline, by its heartbeats, is lost at once;
one that stops in the middle of an exchange is lost when Flower takes it as offline, 20 s after its last heartbeat.
While Flower itself ends the run, a missing reply is no loss: the exchange is interrupted, the journal gets no record of
it, and a new run resumes the study.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from zerosum.errors import Malformed
from zerosum.flower.messages import QUERY, pack, unpack
from zerosum.protocol.codec import Frame

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Tuning:
    """Times in seconds of the engine, chosen by hand."""

    #: First and longest pause between two requests for replies. Each request costs the SuperLink about 10 ms; the
    #: pause grows by half each time, so that a long computation of a site costs few requests.
    first_pause: float = 0.1
    longest_pause: float = 1.0
    growth: float = 1.5
    #: Time that Flower keeps a message beyond the time-out of its reply.
    margin: float = 60.0


TUNING = Tuning()


class Interrupted(Exception):
    """Flower is ending the run, or its SuperLink does not answer; no site is to blame."""


class FlowerGrid:
    """Carries the frames of one study, named by its plan's digest, to the nodes of its sites.

    Implements `zerosum.engines.base.Engine`.

    Parameters
    ----------
    grid : Grid
        Flower's Grid of this run.
    nodes : mapping of str to str
        Public key (PEM) of each site's node, by the name of the site. Flower authenticates nodes by these keys; the
        numbers and names that it gives nodes are not used to find a site.
    plan : str
        Digest of the plan in hex. It precedes every frame, so that the site's process can find the study.
    seconds : float
        Longest time that a site may take for one reply.
    """

    def __init__(self, grid: Grid, nodes: Mapping[str, str], plan: str, seconds: float) -> None:
        self._grid, self._study, self._seconds = grid, bytes.fromhex(plan), seconds
        self._keys = {key.encode(): name for name, key in nodes.items()}

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """Send a frame to each site.

        Parameters
        ----------
        frames : mapping of str to bytes
            Frame by the name of a site.

        Yields
        ------
        tuple of str and Frame or None
            Name and reply, in the order of arrival; None for a lost site.

        Raises
        ------
        Interrupted
            If Flower is ending the run.
        """
        end = time.monotonic() + self._seconds
        nodes = _asked(self._online)
        names = [name for name in frames if name in nodes]
        keep = self._seconds + TUNING.margin
        messages = [Message(pack(self._study + frames[name]), nodes[name], QUERY, ttl=keep) for name in names]
        numbers = _asked(lambda: list(self._grid.push_messages(messages))) if messages else []
        # Flower returns no number for a message that it does not take.
        waiting = {number: name for number, name in zip(numbers, names, strict=True) if number}
        for name in frames:
            if name not in waiting.values():
                yield name, None
        pause = TUNING.first_pause
        while waiting and time.monotonic() < end:
            replies = _asked(lambda: list(self._grid.pull_messages(list(waiting))))
            for reply in replies:
                name = waiting.pop(reply.metadata.reply_to_message_id)
                yield name, _frame(reply)
            time.sleep(pause)
            pause = TUNING.first_pause if replies else min(pause * TUNING.growth, TUNING.longest_pause)
        for name in waiting.values():
            yield name, None

    def _online(self) -> dict[str, int]:
        """Flower's number of each site's node that is online now."""
        nodes = {self._keys.get(node.public_key): node.node_id for node in self._grid.get_nodes()}
        return {name: number for name, number in nodes.items() if name is not None}


def _asked(request: Callable[[], _Value]) -> _Value:
    """The result of a request to the SuperLink."""
    try:
        return request()
    # Flower documents no exceptions of its Grid. Whatever it raises concerns the run or the SuperLink: if it were taken
    # as a loss, the coordinator would record sites as lost, and the resumed study would go on without them.
    except Exception as error:
        raise Interrupted("Flower's SuperLink does not carry this run on: start it again to go on") from error


def _frame(reply: Any) -> Frame | None:
    """The frame of a reply; None if the site is lost."""
    # Flower answers itself, with an error, for a node that is offline and for a ClientApp that failed.
    if reply.has_error():
        return None
    try:
        return unpack(reply.content)
    except Malformed:
        return None
