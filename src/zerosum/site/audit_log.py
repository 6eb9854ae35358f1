"""A site's audit log: JSON lines with one sentence for each request, decision and release. It stays at the site.

Every line has `time`, `event` and `words`, and its place in a hash chain (`zerosum.site.audit_chain`). A decision has
the user of the operating system who made it. Lines about a study also have `study` and `plan`, the digest; a consent
has the planned number of `rounds`, a release its `round`. The budget is enforced by the ledger; the log is for
people.

Refusals, and repetitions that cost nothing, can arrive as fast as a client sends frames. Of each kind the first
`_ALL_OF` are written, then one line each time their number has doubled.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from zerosum.disk import make_folder
from zerosum.errors import SiteFault, ZerosumError
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Request
from zerosum.kernel.schemes import NoiseMechanism
from zerosum.site import audit_chain

Event = Literal[
    "fetched", "started", "stopped", "waiting", "decided", "consented", "relayed", "released", "repeated", "refused"
]

if sys.platform != "win32":
    import pwd

_ALL_OF = 20  # refusals or repetitions of one kind that are each written


class AuditLog:
    """Appends to one file, a line at a time, synced before it returns. `echo` receives each line without its detail."""

    def __init__(self, path: Path, echo: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._path, self._echo = path, echo
        self._mutex = threading.Lock()
        self._counts: Counter[tuple[str | None, str]] = Counter()

    def write(self, event: Event, words: str, plan: Plan | None = None, **more: Any) -> None:
        """Parameters
        ----------
        event : str
            The kind of the line, one of `Event`.
        words : str
            The sentence that people read.
        plan : Plan, optional
            The study that the line is about.
        **more
            Further fields, such as `round` or `detail`.

        Raises
        ------
        SiteFault
            If the line cannot be written whole and synced. The caller must not send the reply then.
        """
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        if plan is not None:
            line |= {"study": plan.study, "plan": plan.digest()}
        line |= {"words": words} | more
        if event == "decided":
            line |= {"user": os_user()} | line
        try:
            with self._mutex:
                make_folder(self._path.parent)
                with audit_chain.locked(self._path) as head:
                    self._append(line, head)
        except OSError as error:  # what cannot be recorded does not leave
            raise SiteFault("this site cannot write its audit log", detail=str(error)) from error
        # The detail may name files or values of the site: it stays in the log file.
        if self._echo is not None:
            self._echo({name: value for name, value in line.items() if name not in ("detail", "time")})

    def _append(self, line: dict[str, Any], head: int) -> None:
        """Append a line and sync it, then advance the head of the chain, whose file is locked."""
        # Opened for every line, so that a log file that was rotated away meanwhile is created again. Only the owner may
        # read it.
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            content, after = audit_chain.linked(line, audit_chain.last(head, handle))
            text, size = content + b"\n", os.fstat(handle).st_size
            try:
                if os.write(handle, text) < len(text):  # a disk that is nearly full takes a part
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            except OSError:
                # Half a line would join the next one, and neither could be read.
                os.ftruncate(handle, size)
                raise
            audit_chain.advance(head, after)
        finally:
            os.close(handle)

    def refused(self, error: ZerosumError, plan: Plan | None) -> None:
        """Write a refusal, with its detail, which stays in the file. A flood of equal refusals is thinned."""
        more = {"detail": error.detail} if error.detail else {}
        self._write_some("refused", str(error), plan, error.code, code=error.code, **more)

    def again(self, event: Event, words: str, plan: Plan, **more: Any) -> None:
        """Write a consent or a repeated release, which a coordinator may request any number of times; a flood is
        thinned.
        """
        self._write_some(event, words, plan, event, **more)

    def _write_some(self, event: Event, words: str, plan: Plan | None, kind: str, **more: Any) -> None:
        """Write a line, unless it is one of a flood: after the first `_ALL_OF` of a kind only counts that are powers of
        two.
        """
        # Counted by plan: a flood for one study does not suppress the first refusals of another.
        key = (None if plan is None else plan.digest(), kind)
        with self._mutex:
            self._counts[key] += 1
            count = self._counts[key]
        # Powers of two: a flood of a million refusals takes 20 + 15 lines, and the count in the last one shows its
        # size.
        if count <= _ALL_OF or count & (count - 1) == 0:
            self.write(event, words, plan, count=count, **more)


def os_user(uid: int | None = None) -> str:
    """The name of a user of the operating system; by default of this process, with the user who called `sudo`.

    Parameters
    ----------
    uid : int, optional
        Number of the user.
    """
    if uid is None and not hasattr(os, "getuid"):  # Windows
        return os.environ.get("USERNAME", "")
    number = os.getuid() if uid is None else uid
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a user that this machine does not know, as in containers
        name = f"uid {number}"
    # `sudo` sets this variable; it is a statement of the caller's environment, while the number is the system's.
    caller = os.environ.get("SUDO_USER") if uid is None else None
    return f"{name} (sudo by {caller})" if caller else name


def consent_in_words(plan: Plan, site: int) -> str:
    """The sentence about an agreement: what will be computed, of which columns, with which sites, and the largest cost.

    Parameters
    ----------
    plan : Plan
        The plan with consent.
    site : int
        Index of this site on the roster, whose cost is stated.
    """
    names = plan.question.columns
    # Eight names keep the line readable.
    shown = ", ".join(map(repr, names[:8])) + (", ..." if plan.question.n_columns > 8 else "")
    columns = f" of the columns {shown}" if names else ""
    out = any(release.kind == "publication" for release in plan.releases)
    publishes = f", which publishes a noisy record of every {plan.unit} here," if out else ""
    epsilon = plan.site_epsilon(site) if plan.scheme.facts.noisy else float("inf")
    return (
        f"agreed to {plan.algorithm!r}{columns}{publishes} with {len(plan.sites)} sites under {plan.scheme.name!r}: "
        f"{counted(plan.rounds, 'round')}, at a cost for each {plan.unit} here of at most epsilon {epsilon:.4g} at "
        f"delta {plan.delta:g} with {counted(plan.coalition.colluders, 'site')} colluding with the coordinator"
    )


def release_in_words(plan: Plan, site: int, round: int, attempt: int, request: Request) -> str:
    """The sentence about a release: what left the site, under which noise, and its cost.

    Parameters
    ----------
    plan : Plan
        The plan with consent.
    site : int
        Index of this site on the roster.
    round, attempt : int
        Which round was answered, both from 0.
    request : Request
        The request, whose sampling decides which units are named.
    """
    planned, law = plan.release(round), plan.law(round)
    again = f", attempt {attempt + 1}" if attempt else ""
    if planned.kind == "publication":
        what = f"a noisy row of {counted(planned.size, 'number')} ({planned.statistic}) for every {plan.unit}"
    else:
        of = f"a secret sample of the {plan.unit}s" if planned.sampled else f"all {plan.unit}s"
        what = f"{counted(planned.size, 'number')}, the sum of {planned.statistic!r} over {of} here"
    if not plan.scheme.facts.noisy:
        return f"round {round + 1} of {plan.rounds}{again}: {what}, without noise"
    hidden = ", readable only in the sum over all sites" if law.mechanism is NoiseMechanism.MASKED else ""
    hidden = f", readable as it is, {plan.unit} by {plan.unit}" if planned.kind == "publication" else hidden
    return (
        f"round {round + 1} of {plan.rounds}{again}: {what}, under noise{hidden}; no {plan.unit} moves it by more than "
        f"{planned.sensitivity:.4g}; it costs {'epsilon' if planned.laplace else 'mu'} "
        f"{float(plan.mus(round)[site]):.4g} and is in the ledger"
    )
