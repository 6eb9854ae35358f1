"""Coordinators that gather sites at the same time: all orders of their messages in small cases.

A state has, for each coordinator, its attendance list and the sites it has asked, and for each site the sessions that
are taken and its queue. A step is one message: a coordinator asks, a site answers, a coordinator gives one session
back, or a study ends. The rule is the one of `zerosum.coordinator.consent`; the answers are those of
`Service._admit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from zerosum.coordinator.consent import Attendance, to_ask, to_give_back

Rule = tuple[Callable[..., list[str]], Callable[..., list[str]]]
RULE: Rule = to_ask, to_give_back
# Version 0.2: every site is asked until it agrees, and nothing is given back.
FORMER: Rule = lambda known: [name for name, how in known.items() if how != "agreed"], lambda known: []


class State(NamedTuple):
    known: tuple[tuple[Attendance, ...], ...]  # by coordinator and site
    asked: tuple[frozenset[int], ...]  # by coordinator: sites that have not answered
    taken: tuple[frozenset[int], ...]  # by site: coordinators with a session
    queues: tuple[tuple[int, ...], ...]  # by site: coordinators that wait
    over: frozenset[int]


def put(values: Any, at: int, value: object) -> Any:
    return (*values[:at], value, *values[at + 1 :])


def steps(state: State, rule: Rule, slots: int) -> Iterator[State]:
    ask, give_back = rule
    sites = range(len(state.taken))
    for c, known in enumerate(state.known):
        if c in state.over:
            continue
        named: dict[str, Attendance] = {str(s): how for s, how in enumerate(known)}
        for name in set(ask(named)) - {str(s) for s in state.asked[c]}:
            yield state._replace(asked=put(state.asked, c, state.asked[c] | {int(name)}))
        for name in give_back(named):
            s = int(name)
            if s not in state.asked[c]:
                yield state._replace(
                    known=put(state.known, c, put(known, s, "ready")),
                    taken=put(state.taken, s, state.taken[s] - {c}),
                    queues=put(state.queues, s, tuple(each for each in state.queues[s] if each != c)),
                )
        for s in state.asked[c]:
            queue, taken = state.queues[s], state.taken[s]
            ahead = queue.index(c) if c in queue else len(queue)
            fits = c in taken or slots - len(taken) > ahead
            how: Attendance = "agreed" if fits else "busy with other studies"
            left = tuple(each for each in queue if each != c)
            yield State(
                put(state.known, c, put(known, s, how)),
                put(state.asked, c, state.asked[c] - {s}),
                put(state.taken, s, taken | {c}) if fits else state.taken,
                put(state.queues, s, left if fits else queue if c in queue else (*queue, c)),
                state.over,
            )
        if set(known) == {"agreed"} and not state.asked[c]:  # the study runs, ends, and dismisses its sites
            yield state._replace(taken=tuple(state.taken[s] - {c} for s in sites), over=state.over | {c})


def explored(coordinators: int, sites: int, rule: Rule, slots: int = 1) -> tuple[int, int]:
    """The number of reachable states, and of those from which the studies cannot all end any more."""
    absent: Attendance = "absent"
    start = State(
        ((absent,) * sites,) * coordinators,
        (frozenset(),) * coordinators,
        (frozenset(),) * sites,
        ((),) * sites,
        frozenset(),
    )
    before: dict[State, list[State]] = {start: []}
    todo = [start]
    while todo:
        state = todo.pop()
        for after in steps(state, rule, slots):
            if after not in before:
                before[after] = []
                todo.append(after)
            before[after].append(state)
    good = {state for state in before if len(state.over) == coordinators}
    todo = list(good)
    while todo:
        for state in before[todo.pop()]:
            if state not in good:
                good.add(state)
                todo.append(state)
    return len(before), len(before) - len(good)


@pytest.mark.parametrize(("coordinators", "sites", "slots"), [(2, 2, 1), (2, 3, 1), (3, 2, 1), (3, 2, 2)])
def test_gathering_rule_has_no_state_without_way_out(coordinators: int, sites: int, slots: int) -> None:
    states, stuck = explored(coordinators, sites, RULE, slots)
    assert states > 100
    assert stuck == 0


def test_gathering_rule_of_0_2_has_states_without_way_out() -> None:
    assert explored(2, 2, FORMER)[1] > 0
