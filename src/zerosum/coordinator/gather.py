"""Before a study begins: who is there, who has agreed, and for whom it waits.

Sites are asked again and again, since a steward takes hours where a site takes milliseconds. Asking is free: a site
that waits keeps the plan, and one that agreed is not asked here again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Literal

from zerosum.engines.base import Engine
from zerosum.errors import Abandoned, AwaitingConsent, BadMessage, Busy, LedgerRefused
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_reply, encode
from zerosum.protocol.messages import Consent, Dismiss, Propose, Refusal

Attendance = Literal["absent", "waits for its steward", "busy with other studies", "cannot go on", "agreed"]
OnAttendance = Callable[[Mapping[str, Attendance]], None]


def gather(
    plan: Plan,
    engine: Engine,
    on_change: OnAttendance,
    *,
    seconds: float,
    every: float = 2.0,
    spare: int = 0,
    patience: float = 60.0,
) -> None:
    """Return once every site of a plan has agreed to it. A refusal ends the study, and so does the time-out.

    A study that goes on can do without `spare` sites: they are waited for no longer than `patience` seconds."""
    found: dict[str, Attendance] = {site.name: "absent" for site in plan.sites}
    told: dict[str, Attendance] = {}
    begun, frame = time.monotonic(), encode(Propose(plan, keep=True))
    end, enough = begun + seconds, begun + min(patience, seconds - every)
    while True:
        for name, reply in engine.exchange({name: frame for name, how in found.items() if how != "agreed"}):
            found[name] = _attendance(name, reply, resumed=spare > 0)
        if found != told:
            told = dict(found)
            on_change(told)
        missing = [name for name, how in found.items() if how != "agreed"]
        if not missing or (len(missing) <= spare and time.monotonic() >= enough):
            return
        if time.monotonic() + every > end:
            names = ", ".join(f"{name!r} ({found[name]})" for name in missing)
            how = "did not go on, and nothing more was" if spare else "did not start and nothing was"
            raise Abandoned(f"no agreement from {names}; the study {how} released")
        time.sleep(every)


def dismiss(engine: Engine, names: Iterable[str]) -> None:
    """Tell sites that nothing more will be asked, so that they hold neither budget nor a place back. One that does not
    hear of it finds out by the silence."""
    with suppress(Exception):  # nothing rests on it
        for _ in engine.exchange(dict.fromkeys(names, encode(Dismiss()))):
            pass


def _attendance(name: str, frame: Frame | None, *, resumed: bool) -> Attendance:
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
        if resumed and isinstance(reply.error, LedgerRefused):  # it restarted after its last round
            return "cannot go on"
        raise reply.error.about(f"site {name!r}")
    return "agreed" if isinstance(reply, Consent) and reply.site == name else "absent"
