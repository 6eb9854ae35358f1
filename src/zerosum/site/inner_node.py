"""A site as an inner node of a tree: it relays the frames of its branch, and adds up the masked vectors of the replies.

An inner node opens nothing and keeps nothing of an exchange. It relays for the sites that the plan's tree puts below
it, in both directions unchanged, except that it adds masked vectors: these it checks as the coordinator does in a star
(`zerosum.secagg.addition`). A fault below it loses the sites of that fault. Its own part in the study is not touched:
the frames for the site itself are answered as those of any other site.

For which plans a node relays is decided by `plan_of`: in one process for those that were proposed through it
(`ProposedPlans`), and at a serving site by its policy, its steward and its own part in the study
(`zerosum.site.service`). A node that restarted has no plan and refuses, and its branch is lost until the coordinator
proposes the plan again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from zerosum.errors import BadMessage, Malformed, Misdirected, NotAgreed
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_message, decode_reply, encode
from zerosum.protocol.messages import Contribute, Contribution, Message, Propose, Relay, Relayed
from zerosum.protocol.relaying import packed, split, unpacked
from zerosum.protocol.roster import branches, mask_context, roster, slot
from zerosum.secagg.addition import Addition
from zerosum.secagg.keys import Identity

# Sends frames to the site itself and to its children, with a time-out in seconds, and brings back what arrives.
Carry = Callable[[Mapping[str, bytes], float], Iterable[tuple[str, Frame | None]]]
# The plan of a digest for which a message is relayed, or an error; the message is the first one of the branch.
PlanOf = Callable[[str, Message], Plan]

MOST_PLANS = 32  # most plans that are remembered; chosen by hand, four times the default of studies at a site


class ProposedPlans:
    """The plans that were proposed through a node, the newest ones."""

    def __init__(self) -> None:
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._mutex = threading.Lock()

    def __call__(self, digest: str, first: Message) -> Plan:
        """The plan of a digest. A proposal brings it along."""
        with self._mutex:
            if isinstance(first, Propose) and first.plan.digest() == digest:
                self._plans[digest] = first.plan
                if len(self._plans) > MOST_PLANS:
                    self._plans.popitem(last=False)
            if digest not in self._plans:
                raise NotAgreed("no plan with this digest was proposed through this site, or it has restarted since")
            self._plans.move_to_end(digest)
            return self._plans[digest]


class InnerNode:
    """The relay of one site.

    Parameters
    ----------
    name:
        The site's name on rosters.
    identity:
        Gives the key with which the site signs under a plan.
    plan_of:
        Gives the plan for which a message is relayed; by default one that was proposed through this node.
    """

    def __init__(self, name: str, identity: Callable[[Plan], Identity], plan_of: PlanOf | None = None) -> None:
        self.name, self._identity = name, identity
        self._plan_of = plan_of or ProposedPlans()

    def relay(self, message: Relay, carry: Carry) -> Relayed:
        """Pass the frames of a branch on and collect the replies."""
        inside = [decode_message(frame) for frame in message.frames]
        # No frame contains frames of a branch again: a site would relay to itself, as often as the sender nests them.
        if any(type(each) is not type(inside[0]) or isinstance(each, Relay) for each in inside):
            raise Malformed("the frames of a branch are not of one kind of message for sites")
        plan = self._plan_of(message.plan, inside[0])
        if outside := sorted(set(message.to).difference(plan.tree.branch.get(self.name, ()))):
            raise Misdirected(f"{outside[0]!r} is not below {self.name!r} in the tree of the plan")
        frames = {name: message.frames[at] for name, at in message.to.items()}
        down = split(plan, plan.tree.children[self.name], frames)
        sent = {child: packed(plan, child, branch, message.seconds) for child, branch in down.items()}
        if self.name in frames:
            down[self.name], sent[self.name] = {self.name: frames[self.name]}, frames[self.name]
        vectors = self._addition(plan, inside[0])
        replies: dict[str, Frame] = {}
        for node, reply in carry(sent, message.seconds * plan.tree.height[self.name]):
            for name, each in unpacked(plan, node, down[node], reply):
                if each is not None and not (vectors is not None and _added(vectors, each)):
                    replies[name] = each
        if vectors is None or not vectors.arrived:
            return Relayed(self.name, replies)
        me = [site.name for site in plan.sites].index(self.name)
        total = vectors.partial_sum(me, self._identity(plan))
        return Relayed(self.name, replies, encode(Contribution(self.name, total)))

    def _addition(self, plan: Plan, message: Message) -> Addition | None:
        """An empty sum for the vectors that a request asks for; None for other messages, which bring no vectors."""
        if not isinstance(message, Contribute):
            return None
        if message.round >= plan.rounds or message.attempt > plan.attempts:
            raise Misdirected("the request is for a round or an attempt that is not planned")
        return Addition(
            roster(plan),
            slot(plan, message.round, message.attempt),
            plan.release(message.round).size,
            mask_context(plan, message.round, message.request),
            branches(plan, plan.tree.children[self.name])
            # Of its own site the node takes the vector and no partial sum.
            | {place: (place,) for place in branches(plan, (self.name,))},
        )


def _added(vectors: Addition, frame: Frame) -> bool:
    """Whether a reply brought vectors; they are added if they are sound, and else lost."""
    try:
        reply = decode_reply(frame)
        if not isinstance(reply, Contribution) or not isinstance(reply.payload, memoryview):
            return False
        vectors.take(reply.payload)
    except BadMessage:
        pass
    return True
