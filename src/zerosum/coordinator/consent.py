"""Before a study begins: which sites are present, and which have consented.

Sites are asked repeatedly, since a steward takes hours where a site takes milliseconds. A proposal costs no budget: a
site that waits keeps the plan.

Consent takes a session at a site, of which a site has few, and several coordinators gather sites at the same time. If
each kept what it has while it waits for more, two of them could wait for each other for ever. So a coordinator that
waits for a session holds only sessions of sites whose names come before:

    order       sites are ordered by name, in all studies
    b           the first site in this order that answers "busy"
    rule        while b is busy, sites behind b are given back (`Dismiss`) and not asked for a session

Why no circle of waiting coordinators exists. Let P1 wait for a session at site b1 that P2 holds, P2 for one at b2 that
P3 holds, and so on, and the last of n for one at bn that P1 holds. A coordinator that holds b1 and waits for b2 has
b1 < b2 in the order, since both are sites of its plan, whose names are distinct, and it holds only sites before b2. So
b1 < b2 < ... < bn < b1, which is impossible. Some coordinator therefore holds all its sites, or waits for one that has
a free session, which the site gives to the first plan in its queue (`zerosum.site.service`). `tests/coordinator/
test_gathering_model.py` explores all orders of messages of small cases.

Sessions are also given back after a short random time while a site is absent or its steward has not decided, which may
take days. They are taken again when all these sites have answered. A resumed study gives nothing back, because its
sites hold the keys of its secure sum: it does not follow the order. That is why a new study also gives back what it
holds, after a random time, while it waits for a busy site.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Literal

from zerosum.engines.base import Engine
from zerosum.errors import Abandoned, AwaitingConsent, BadMessage, Busy, LedgerRefused, SiteFault
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_reply, encode
from zerosum.protocol.messages import Consent, Dismiss, Propose, Refusal

Attendance = Literal[
    "absent",
    "waits for its steward",
    "busy with other studies",  # the plan is in the site's queue
    "out of disk or memory",
    "cannot go on",
    "ready",  # it would agree; its session was given back while the study waits for others
    "agreed",
]
OnAttendance = Callable[[Mapping[str, Attendance]], None]

_UNDECIDED = ("absent", "waits for its steward", "out of disk or memory", "cannot go on")

# All constants below were chosen by hand; no benchmark recorded.
GIVE_BACK = 20.0  # s, sessions are given back after once to twice this time without the consent of all sites
REMIND = 300.0  # s between two proposals to a site that has agreed, which keep its session alive
DISMISS = 10.0  # s, the longest wait for the answers of dismissed sites


def gather(
    plan: Plan,
    engine: Engine,
    on_change: OnAttendance,
    *,
    seconds: float,
    every: float = 2.0,
    spare: int = 0,
    patience: float = 60.0,
    resumed: bool = False,
    absent: float | None = None,
) -> None:
    """Return when every site of a plan has consented. A refusal ends the study, and so does the time-out, also if a
    site accepts a message and does not answer.

    Parameters
    ----------
    plan, engine:
        The plan and the connection to its sites.
    on_change:
        Receives the state of all sites when it changes.
    seconds:
        The time-out.
    every:
        Seconds between two proposals.
    spare:
        How many sites a resumed study can continue without.
    patience:
        Seconds to wait for those sites.
    resumed:
        Whether sites hold keys of this study, so that none is dismissed.
    absent:
        Seconds after which a site that does not answer ends the study; None: the time-out only.
    """
    _Gathering(plan, engine, resumed=resumed or spare > 0).run(
        on_change, seconds=seconds, every=every, spare=spare, patience=patience, absent=absent
    )


class _Gathering:
    """The state of all sites of one study while they are gathered."""

    def __init__(self, plan: Plan, engine: Engine, *, resumed: bool) -> None:
        self._engine, self._resumed = engine, resumed
        # `keep`: a site that consented in an earlier pass keeps the secrets of that consent.
        self._frame = encode(Propose(plan, keep=True))
        self._attendance: dict[str, Attendance] = {site.name: "absent" for site in plan.sites}
        self._asked: dict[str, float] = {}  # time of the last answer of sites that have agreed
        self._pending: set[str] = set()  # sites that were asked and have not answered
        self._replies: queue.SimpleQueue[tuple[str, Frame | None] | Exception] = queue.SimpleQueue()
        self._since: dict[str, float] = {}  # since when a site is absent
        self._held_since: float | None = None
        self._next = 0.0  # time of the next proposals on the monotonic clock
        # Random, so that two coordinators do not give back and take again in step. It decides nothing that is private.
        self._limit = GIVE_BACK * (1 + random.random())  # noqa: S311

    def run(
        self,
        on_change: OnAttendance,
        *,
        seconds: float,
        every: float,
        spare: int,
        patience: float,
        absent: float | None,
    ) -> None:
        """The loop of `gather`, whose parameters it has."""
        begun, last_report = time.monotonic(), dict[str, Attendance]()
        end, enough = begun + seconds, begun + min(patience, seconds - every)
        self._since = dict.fromkeys(self._attendance, begun)
        while True:
            self._ask()
            self._listen(min(time.monotonic() + every, end))
            self._give_back()
            if self._attendance != last_report:
                last_report = dict(self._attendance)
                on_change(last_report)
            missing = [name for name, how in self._attendance.items() if how != "agreed"]
            # A resumed study may go on without some sites, but waits `patience` for them: a lost site costs accuracy in
            # every later round.
            now = time.monotonic()
            if not missing or (len(missing) <= spare and now >= enough):
                return
            gone = [name for name in missing if absent is not None and now - self._since.get(name, now) > absent]
            if gone or now + every > end:
                names = ", ".join(f"{name!r} ({self._attendance[name]})" for name in gone or missing)
                how = "did not go on, and nothing more was" if self._resumed else "did not start and nothing was"
                raise Abandoned(f"no agreement from {names}; the study {how} released")
            time.sleep(max(0.0, min(self._next - time.monotonic(), end - time.monotonic())))

    def _ask(self) -> None:
        """Propose the plan to the sites whose answer is needed now, in the background."""
        now = time.monotonic()
        wanted = to_ask(self._attendance, resumed=self._resumed)
        wanted += [name for name, at in self._asked.items() if now - at > REMIND and name not in wanted]
        if names := [name for name in wanted if name not in self._pending]:
            self._pending.update(names)
            frames = dict.fromkeys(names, self._frame)
            # A daemon: a site that never answers must not keep the process alive after the time-out.
            threading.Thread(target=self._carry, args=(frames,), name="zerosum-gather", daemon=True).start()

    def _carry(self, frames: Mapping[str, bytes]) -> None:
        """Exchange frames and pass the replies to the loop."""
        try:
            for name, reply in self._engine.exchange(frames):
                self._replies.put((name, reply))
        except Exception as error:  # raised again by the loop
            self._replies.put(error)

    def _listen(self, until: float) -> None:
        """Take replies until all have arrived, or until a time on the monotonic clock."""
        self._next = until
        while self._pending:
            try:
                arrived = self._replies.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                return
            if isinstance(arrived, Exception):
                raise arrived
            name, frame = arrived
            self._pending.discard(name)
            how = _attendance(name, frame, resumed=self._resumed)
            self._attendance[name] = how
            if how != "absent":
                self._since.pop(name, None)
            else:
                self._since.setdefault(name, time.monotonic())
            self._asked.pop(name, None)
            if how == "agreed":
                self._asked[name] = time.monotonic()

    def _give_back(self) -> None:
        """Dismiss the sites whose sessions this study may not hold while it waits."""
        held = [name for name, how in self._attendance.items() if how == "agreed"]
        if self._resumed or len(held) == len(self._attendance):
            return
        now = time.monotonic()
        if not held:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = now
        back = to_give_back(self._attendance)
        if self._held_since is not None and now - self._held_since > self._limit:
            back = sorted({*back, *held})
            self._held_since = None
        if back := [name for name in back if name not in self._pending]:
            dismiss(self._engine, back)
            for name in back:
                self._attendance[name] = "ready"
                self._asked.pop(name, None)


def to_ask(attendance: Mapping[str, Attendance], *, resumed: bool = False) -> list[str]:
    """The sites that are asked for a session now, by the rule of this module."""
    first = _first_busy(attendance)
    undecided = any(how in _UNDECIDED for how in attendance.values())
    names = []
    for name, how in attendance.items():
        if how == "ready":
            # A session is taken only when every site has answered, and in the order of names.
            wanted = not undecided and (first is None or name < first)
        elif how == "busy with other studies":
            wanted = name == first or resumed
        else:
            wanted = how != "agreed"
        if wanted:
            names.append(name)
    return names


def to_give_back(attendance: Mapping[str, Attendance]) -> list[str]:
    """The sites whose sessions, or places in their queues, are given back now, by the rule of this module."""
    first = _first_busy(attendance)
    # Also the places in the queues of later sites: a session there that is free for this study, and that this study may
    # not take yet, would be of no use to others.
    waiting = ("agreed", "busy with other studies")
    return [] if first is None else [name for name, how in attendance.items() if name > first and how in waiting]


def _first_busy(attendance: Mapping[str, Attendance]) -> str | None:
    """The first busy site in the order of names."""
    return min((name for name, how in attendance.items() if how == "busy with other studies"), default=None)


def dismiss(engine: Engine, names: Iterable[str], seconds: float = DISMISS) -> None:
    """Inform sites that no more requests follow, so that they release reserved budget. Sites that miss the message time
    out.

    Parameters
    ----------
    engine, names:
        The connection, and the sites.
    seconds:
        Longest wait for their answers, which have no consequence.
    """
    frames = dict.fromkeys(names, encode(Dismiss()))

    def carry() -> None:
        with suppress(Exception):  # a failure has no consequence
            for _ in engine.exchange(frames):
                pass

    thread = threading.Thread(target=carry, name="zerosum-dismiss", daemon=True)
    thread.start()
    thread.join(seconds)


def _attendance(name: str, frame: Frame | None, *, resumed: bool) -> Attendance:
    """The state of a site by its reply. Raises a refusal that waiting cannot change."""
    if frame is None:
        return "absent"
    try:
        reply = decode_reply(frame)
    except BadMessage:
        return "absent"
    if isinstance(reply, Refusal) and reply.site == name:
        if isinstance(reply.error, Busy):
            return "busy with other studies"
        if isinstance(reply.error, AwaitingConsent):
            return "waits for its steward"
        if isinstance(reply.error, SiteFault):
            return "out of disk or memory"
        if resumed and isinstance(reply.error, LedgerRefused):  # the site restarted after its last round
            return "cannot go on"
        # A refusal by policy or budget does not change by waiting: it ends the study, with the site's name.
        raise reply.error.about(f"site {name!r}")
    return "agreed" if isinstance(reply, Consent) and reply.site == name else "absent"
