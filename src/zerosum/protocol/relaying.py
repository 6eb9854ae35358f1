"""Frames along the tree of a study: those of a branch travel in one frame, and so do their replies.

At every node, first at the coordinator, `packed` makes the frame for each branch below it, and `unpacked` takes the
replies of the branch apart. Frames and replies of single sites are carried unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerosum.errors import BadMessage, Malformed
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_reply, encode
from zerosum.protocol.messages import Contribution, Refusal, Relay, Relayed, Reply
from zerosum.secagg.addition import sites_and_vector


def split(plan: Plan, nodes: tuple[str, ...], frames: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """The frames of every branch that begins at one of these sites, without branches that have none."""
    branches = {node: {name: frames[name] for name in plan.tree.branch[node] if name in frames} for node in nodes}
    return {node: branch for node, branch in branches.items() if branch}


def packed(plan: Plan, node: str, branch: Mapping[str, bytes], seconds: float) -> bytes:
    """The frame that carries the frames of a branch to the site where it begins.

    Parameters
    ----------
    plan, node, branch:
        The plan, the site, and the frames by site.
    seconds:
        The time-out of one site's reply.
    """
    if set(branch) == {node}:
        return branch[node]
    # Most exchanges send the same frame to all sites. It travels once for a branch.
    distinct = list(dict.fromkeys(branch.values()))
    index = {frame: at for at, frame in enumerate(distinct)}
    to = {name: index[frame] for name, frame in branch.items()}
    return encode(Relay(plan.digest(), tuple(distinct), to, seconds))


def unpacked(
    plan: Plan, node: str, branch: Mapping[str, bytes], reply: Frame | None
) -> Iterator[tuple[str, Frame | None]]:
    """The replies of the sites of a branch, and None for each site that is lost. A partial sum of masked vectors comes
    under the name of the inner node, and its sites have no replies of their own.

    Parameters
    ----------
    plan, node, branch:
        As in `packed`.
    reply:
        The reply of the site where the branch begins; None if there was none.
    """
    if reply is None or set(branch) == {node}:
        yield from ((name, reply) for name in branch)
        return
    missing = set(branch)
    try:
        arrived = decode_reply(reply)
    except BadMessage:
        arrived = None
    if isinstance(arrived, Refusal):  # of the whole branch, by the inner node
        missing.discard(node)
        yield node, reply
    elif isinstance(arrived, Relayed) and arrived.site == node:
        # An inner node has no part in the exchange with sites outside its branch, and one reply of each site counts.
        missing -= arrived.replies.keys()
        yield from ((name, each) for name, each in arrived.replies.items() if name in branch)
        if arrived.total is not None and (summed := _summed(plan, arrived.total)):
            missing -= summed
            yield node, arrived.total
    yield from ((name, None) for name in branch if name in missing)


def _summed(plan: Plan, frame: Frame) -> set[str]:
    """The sites whose masked vectors a reply contains; none if it is no contribution."""
    try:
        return set(masked_vector(plan, decode_reply(frame))[0])
    except BadMessage:
        return set()


def masked_vector(plan: Plan, reply: Reply) -> tuple[tuple[str, ...], memoryview]:
    """The sites whose masked vectors are in a contribution, and the sum of these vectors, as the contribution claims.
    Raises `BadMessage` for any other reply.
    """
    if not isinstance(reply, Contribution) or not isinstance(reply.payload, memoryview):
        raise Malformed("a reply holds no masked vector")
    places, vector = sites_and_vector(reply.payload, len(plan.sites))
    if max(places, default=0) >= len(plan.sites):
        raise Malformed("a masked vector names a site that is not on the roster")
    return tuple(plan.sites[place].name for place in places), vector
