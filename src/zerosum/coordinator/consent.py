"""Before a study begins: which sites are present, and which have consented.

Sites are asked repeatedly, since a steward takes hours where a site takes milliseconds. A proposal costs no budget: a
site that waits keeps the plan, and a site that has consented is not asked again here.
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
    """Return when every site of a plan has consented. A refusal ends the study, and so does the time-out.

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
    """
    attendance: dict[str, Attendance] = {site.name: "absent" for site in plan.sites}
    last_report: dict[str, Attendance] = {}
    # `keep`: a site that consented in an earlier pass keeps the secrets of that consent.
    begun, frame = time.monotonic(), encode(Propose(plan, keep=True))
    end, enough = begun + seconds, begun + min(patience, seconds - every)
    while True:
        for name, reply in engine.exchange({name: frame for name, how in attendance.items() if how != "agreed"}):
            attendance[name] = _attendance(name, reply, resumed=spare > 0)
        if attendance != last_report:
            last_report = dict(attendance)
            on_change(last_report)
        missing = [name for name, how in attendance.items() if how != "agreed"]
        # A resumed study may go on without some sites, but waits `patience` for them: a lost site costs accuracy in
        # every later round.
        if not missing or (len(missing) <= spare and time.monotonic() >= enough):
            return
        if time.monotonic() + every > end:
            names = ", ".join(f"{name!r} ({attendance[name]})" for name in missing)
            how = "did not go on, and nothing more was" if spare else "did not start and nothing was"
            raise Abandoned(f"no agreement from {names}; the study {how} released")
        time.sleep(every)


def dismiss(engine: Engine, names: Iterable[str]) -> None:
    """Inform sites that no more requests follow, so that they release reserved budget. Sites that miss the message time
    out.
    """
    with suppress(Exception):  # a failure has no consequence
        for _ in engine.exchange(dict.fromkeys(names, encode(Dismiss()))):
            pass


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
        if resumed and isinstance(reply.error, LedgerRefused):  # the site restarted after its last round
            return "cannot go on"
        # A refusal by policy or budget does not change by waiting: it ends the study, with the site's name.
        raise reply.error.about(f"site {name!r}")
    return "agreed" if isinstance(reply, Consent) and reply.site == name else "absent"
