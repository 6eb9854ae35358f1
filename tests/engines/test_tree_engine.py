"""Studies along a tree: the result of a star, with losses, lying and restarted inner nodes, and a resumed study."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.frame_mutations import mutated
from helpers.small_studies import QUESTION, entries
from helpers.trees import NAMES, along_tree, tree_plan, tree_sites
from zerosum.coordinator.journal import Journal
from zerosum.engines.counted import Traffic, TrafficCounter
from zerosum.engines.in_process import InProcess
from zerosum.engines.tree import Tree
from zerosum.errors import Abandoned, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_message, decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Dismiss,
    Message,
    Propose,
    Refusal,
    Relay,
    Relayed,
    Secure,
)
from zerosum.protocol.progress import Progress
from zerosum.protocol.relaying import unpacked
from zerosum.secagg.keys import Identity
from zerosum.site.inner_node import InnerNode
from zerosum.site.site import Site
from zerosum.study import execute, pin

Reply = Callable[[Relay, Relayed], Relayed | None]


def asked(message: Relay) -> Message:
    return decode_message(message.frames[0])


class Lying(InProcess):
    """All sites in one process, of which one sends the replies of its branch as `change` writes them."""

    def __init__(self, sites: list[Site], liar: str, change: Reply) -> None:
        super().__init__(sites)
        self._liar, self._change = liar, change

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, frame in frames.items():
            reply = dict(super().exchange({name: frame}))[name]
            message, relayed = decode_message(frame), None if reply is None else decode_reply(reply)
            if name == self._liar and isinstance(message, Relay) and isinstance(relayed, Relayed):
                changed = self._change(message, relayed)
                reply = None if changed is None else encode(changed)
            yield name, reply


def with_liar(plan: Plan, sites: list[Site], liar: str, change: Reply) -> tuple[str, ...]:
    """The sites in the release of a study with a lying inner node."""
    pinned = pin(plan, sites)
    return execute(pinned, QUESTION, Tree(pinned, Lying(sites, liar, change))).participants[0]


def in_round(message: Message) -> bool:
    return isinstance(message, Contribute) or (isinstance(message, Relay) and in_round(asked(message)))


def test_tree_study_gives_result_of_star(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    tree = along_tree(tree_plan(seed=5, study="tree"), sites)
    star = along_tree(tree_plan(seed=5, study="star", parents={}), sites)
    assert np.array_equal(tree.estimate["mean"].value, star.estimate["mean"].value)
    assert tree.participants == star.participants == (NAMES,)


def test_tree_coordinator_receives_one_vector_of_each_branch(tmp_path: Path) -> None:
    plan, seen = tree_plan(), list[tuple[str, Frame | None]]()
    sites = tree_sites(tmp_path)
    pinned = pin(plan, sites)
    tree = Tree(pinned, InProcess(sites))

    class Seen:
        def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
            for name, reply in tree.exchange(frames):
                seen.append((name, reply))
                yield name, reply

    execute(pinned, QUESTION, Seen())
    replies = [(name, decode_reply(frame)) for name, frame in seen if frame is not None]
    assert [name for name, reply in replies if isinstance(reply, Contribution)] == ["s0", "s1"]
    assert sorted(name for name, reply in replies if isinstance(reply, Consent)) == list(NAMES)


@pytest.mark.parametrize(
    ("lost", "gone"),
    [("s6", {"s6"}), ("s2", {"s2", "s6"}), ("s3", {"s3"}), ("s5", {"s5"})],
)
def test_tree_lost_site_loses_its_branch_and_no_more(lost: str, gone: set[str], tmp_path: Path) -> None:
    result = along_tree(tree_plan(), tree_sites(tmp_path), lambda site, message: site == lost and in_round(message))
    assert set(result.participants[0]) == set(NAMES) - gone


def test_tree_inner_node_that_is_lost_itself_still_relays(tmp_path: Path) -> None:
    def loses(site: str, message: Message) -> bool:
        return site == "s0" and isinstance(message, Contribute)

    assert along_tree(tree_plan(), tree_sites(tmp_path), loses).participants[0] == NAMES[1:]


def test_tree_branch_beyond_dropouts_abandons_round_before_opening(tmp_path: Path) -> None:
    opened = list[str]()

    def loses(site: str, message: Message) -> bool:
        if isinstance(message, Secure) and message.step in ("sign", "open"):
            opened.append(site)
        return site == "s0" and in_round(message)

    with pytest.raises(Abandoned):
        along_tree(tree_plan(dropouts=2), tree_sites(tmp_path), loses)
    assert not opened


@pytest.mark.parametrize("step", ["sign", "open"])
def test_tree_inner_node_lost_before_opening_leaves_sum_of_all(step: str, tmp_path: Path) -> None:
    def loses(site: str, message: Message) -> bool:
        seen = asked(message) if isinstance(message, Relay) else message
        return site == "s2" and isinstance(seen, Secure) and seen.step == step

    assert along_tree(tree_plan(), tree_sites(tmp_path), loses).participants[0] == NAMES


def test_tree_losses_are_counted_by_site(tmp_path: Path) -> None:
    sites, traffic = tree_sites(tmp_path), Traffic()
    plan = pin(tree_plan(), sites)
    engine = InProcess(sites, lambda site, message: site == "s2" and in_round(message))
    execute(plan, QUESTION, Tree(plan, TrafficCounter(engine, traffic), traffic=traffic))
    assert traffic.losses == {"s2": 1, "s6": 1}


def test_tree_bytes_at_coordinator_are_fewer_than_in_star(tmp_path: Path) -> None:
    counted = {}
    for name, parents in (("tree", tree_plan().parents), ("star", {})):
        sites, traffic = tree_sites(tmp_path / name), Traffic()
        plan = pin(tree_plan(parents=parents), sites)
        execute(plan, QUESTION, Tree(plan, TrafficCounter(InProcess(sites), traffic), traffic=traffic))
        counted[name] = traffic.bytes_out
    assert counted["tree"] < counted["star"] / 2


# ---- inner nodes that lie --------------------------------------------------------------------------------------


def no_total(message: Relay, relayed: Relayed) -> Relayed:
    return replace(relayed, total=None)


def garbled(message: Relay, relayed: Relayed) -> Relayed:
    return relayed if relayed.total is None else replace(relayed, total=bytes(relayed.total)[:-1] + b"?")


def own_total_twice(message: Relay, relayed: Relayed) -> Relayed:
    return relayed if relayed.total is None else replace(relayed, replies={"s4": relayed.total, "s5": relayed.total})


@pytest.mark.parametrize("change", [no_total, garbled])
def test_tree_node_with_false_sum_loses_its_branch(change: Reply, tmp_path: Path) -> None:
    found = with_liar(tree_plan(), tree_sites(tmp_path), "s2", change)
    assert set(found) == set(NAMES) - {"s2", "s6"}


def test_tree_node_that_repeats_its_sum_adds_it_once(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    assert with_liar(tree_plan(seed=5), sites, "s1", own_total_twice) == NAMES


def test_tree_node_that_replays_sum_of_earlier_round_loses_its_branch(tmp_path: Path) -> None:
    kept = list[Frame]()

    def replayed(message: Relay, relayed: Relayed) -> Relayed:
        if relayed.total is None:
            return relayed
        kept.append(bytes(relayed.total))
        return replace(relayed, total=kept[0])

    sites = tree_sites(tmp_path)
    first = with_liar(tree_plan(study="one"), sites, "s2", replayed)
    second = with_liar(tree_plan(study="two"), sites, "s2", replayed)
    assert first == NAMES
    assert set(second) == set(NAMES) - {"s2", "s6"}


def test_tree_node_cannot_answer_for_sites_outside_its_branch(tmp_path: Path) -> None:
    def meddling(message: Relay, relayed: Relayed) -> Relayed:
        refusals = {name: encode(Refusal(name, Abandoned("no"))) for name in ("s0", "s3", "s4")}
        return replace(relayed, replies={**refusals, **relayed.replies})

    assert with_liar(tree_plan(), tree_sites(tmp_path), "s2", meddling) == NAMES


def test_tree_node_that_repeats_a_confirmation_does_not_hide_a_lost_one(tmp_path: Path) -> None:
    """One reply of each site counts: the set-up needs the confirmation of every site."""

    def hiding(message: Relay, relayed: Relayed) -> Relayed:
        step = asked(message)
        if not (isinstance(step, Secure) and step.step == "receive"):
            return relayed
        own = relayed.replies["s1"]
        return Relayed("s1", {"s1": own, "s4": own}, own)

    with pytest.raises(Abandoned):
        with_liar(tree_plan(), tree_sites(tmp_path), "s1", hiding)


def test_mutated_replies_of_a_branch_are_read_or_lost(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    plan, rng = pin(tree_plan(), sites), random.Random(1)
    masked = Identity().sign(b"") * 3
    replies = {name: encode(Consent(name, 12)) for name in ("s2", "s6")}
    frame = encode(Relayed("s2", replies, encode(Contribution("s2", masked))))
    branch, lost = dict.fromkeys(("s2", "s6"), b""), 0
    for _ in range(3000):
        found = list(unpacked(plan, "s2", branch, mutated(frame, rng)))
        assert {name for name, _ in found} == set(branch)
        lost += all(reply is None for _, reply in found)
    assert lost > 1500


def test_mutated_frames_of_a_branch_are_relayed_or_refused(tmp_path: Path) -> None:
    """By an inner node of a study in progress: any frame that can be read is answered, or refused by a known error."""
    sites = tree_sites(tmp_path)
    plan, rng = pin(tree_plan(), sites), random.Random(2)
    node = InnerNode("s2", lambda plan: sites[2].identity)
    request = QUESTION.requests(plan.adjacency)[0]
    frames = [
        encode(Relay(plan.digest(), (encode(message),), {"s2": 0, "s6": 0}, 1.0))
        for message in (Propose(plan), Contribute(0, 0, request), Secure("open", 0, bytes(200)), Dismiss())
    ]
    refusals = 0
    for number in range(2000):
        try:
            message = decode_message(frames[number] if number < 4 else mutated(frames[number % 4], rng))
            if isinstance(message, Relay):
                node.relay(message, lambda frames, seconds: ((name, None) for name in frames))
        except ZerosumError:
            refusals += 1
    assert 1000 < refusals < 2000


def test_tree_silent_node_in_set_up_ends_study_before_spending(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)

    def silent(message: Relay, relayed: Relayed) -> Relayed | None:
        return None if isinstance(asked(message), Secure) else relayed

    with pytest.raises(Abandoned):
        with_liar(tree_plan(), sites, "s1", silent)
    assert not any(entries(site) for site in sites)


# ---- inner nodes and coordinators that restart -------------------------------------------------------------------


def refusal(node: InnerNode, message: Relay) -> str:
    """The kind of refusal with which a node meets a message, with children that do not answer."""
    try:
        node.relay(message, lambda frames, seconds: ())
    except ZerosumError as error:
        return type(error).__name__
    return ""


def test_inner_node_relays_for_its_branch_of_a_proposed_plan_only(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    plan, other = pin(tree_plan(study="one"), sites), pin(tree_plan(study="two"), sites)
    node = InnerNode("s2", lambda plan: sites[2].identity)
    dismissed = Relay(plan.digest(), (encode(Dismiss()),), {"s6": 0}, 1.0)
    assert refusal(node, dismissed) == "NotAgreed"
    assert refusal(node, Relay(other.digest(), (encode(Propose(plan)),), {"s6": 0}, 1.0)) == "NotAgreed"
    assert refusal(node, Relay(plan.digest(), (encode(Propose(plan)),), {"s6": 0}, 1.0)) == ""
    assert refusal(node, dismissed) == ""
    assert refusal(node, replace(dismissed, to={"s5": 0})) == "Misdirected"


def test_inner_node_refuses_nested_branches_and_unplanned_rounds(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    plan = pin(tree_plan(), sites)
    node = InnerNode("s2", lambda plan: sites[2].identity)
    proposed = Relay(plan.digest(), (encode(Propose(plan)),), {"s2": 0}, 1.0)
    assert refusal(node, proposed) == ""
    assert refusal(node, replace(proposed, frames=(encode(proposed),))) == "Malformed"
    mixed = replace(proposed, frames=(encode(Dismiss()), encode(proposed)), to={"s2": 1, "s6": 0})
    assert refusal(node, mixed) == "Malformed"
    request = QUESTION.requests(plan.adjacency)[0]
    for round, attempt in ((1, 0), (0, 1)):
        asked_for = replace(proposed, frames=(encode(Contribute(round, attempt, request)),))
        assert refusal(node, asked_for) == "Misdirected"


def test_tree_restarted_inner_node_loses_its_branch(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    plan = pin(tree_plan(), sites)
    engine = InProcess(sites)

    def restart(seen: Progress) -> None:
        if seen.stage == "set-up" and seen.done == seen.planned:
            engine._nodes["s2"] = InnerNode("s2", lambda plan: sites[2].identity)

    result = execute(plan, QUESTION, Tree(plan, engine), restart)
    assert set(result.participants[0]) == set(NAMES) - {"s2", "s6"}


@pytest.mark.parametrize("stopped", ["Contribute", "sign", "open"])
def test_tree_study_stopped_in_round_is_resumed_without_second_charge(stopped: str, tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    plan = pin(tree_plan(), sites)
    (tmp_path / "state").mkdir()
    Journal.create(tmp_path / "state", plan).close()

    class Killed(BaseException):
        pass

    def kills(site: str, message: Message) -> bool:
        if site == "s6" and stopped == (message.step if isinstance(message, Secure) else type(message).__name__):
            raise Killed
        return False

    def go(loses: Callable[[str, Message], bool] | None) -> tuple[tuple[str, ...], ...]:
        journal = Journal.open(tmp_path / "state")
        assert journal is not None
        with journal:
            return execute(plan, QUESTION, Tree(plan, InProcess(sites, loses)), journal=journal).participants

    with pytest.raises(Killed):
        go(kills)
    assert go(None) == (NAMES,)
    assert all(entries(site) == 1 for site in sites)


def test_tree_study_resumed_without_a_branch_goes_on_with_recorded_keys(tmp_path: Path) -> None:
    sites = tree_sites(tmp_path)
    plan = pin(tree_plan(), sites)
    (tmp_path / "state").mkdir()
    Journal.create(tmp_path / "state", plan).close()

    class Killed(BaseException):
        pass

    def kills(site: str, message: Message) -> bool:
        if site == "s5" and isinstance(message, Contribute):
            raise Killed
        return False

    for loses, survivors in ((kills, None), (lambda site, message: site == "s2", set(NAMES) - {"s2", "s6"})):
        journal = Journal.open(tmp_path / "state")
        assert journal is not None
        with journal:
            tree = Tree(plan, InProcess(sites, loses))
            if survivors is None:
                with pytest.raises(Killed):
                    execute(plan, QUESTION, tree, journal=journal)
            else:
                assert set(execute(plan, QUESTION, tree, journal=journal).participants[0]) == survivors
