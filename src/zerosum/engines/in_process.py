"""All sites in this process: the default engine. The sites run the code that real ones run, on the same bytes. They
consent one after another, so that nobody opens a ledger after a refusal, and contribute as many at a time as there are
cores.

Tested in tests/coordinator/test_conduct.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from zerosum.kernel.threads import side_by_side, threads
from zerosum.protocol.codec import decode_message
from zerosum.protocol.messages import Contribute, Message
from zerosum.site.host import answer
from zerosum.site.site import Site

Loses = Callable[[str, Message], bool]


class InProcess:
    """Sites held in memory. `loses(site, message)` says which messages never arrive, for tests and rehearsals."""

    def __init__(self, sites: Iterable[Site], loses: Loses | None = None) -> None:
        self._sites = {site.name: site for site in sites}
        self._loses = loses

    def close(self) -> None:
        """The study is over: sites let go of their ledgers."""
        for site in self._sites.values():
            site.close()

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        computes = any(isinstance(decode_message(frame), Contribute) for frame in set(frames.values()))
        with side_by_side(min(threads(), len(frames)) if computes else 1) as each:
            yield from zip(frames, each(self._heard, frames.items()), strict=True)

    def _heard(self, asked: tuple[str, bytes]) -> bytes | None:
        name, frame = asked
        lost = name not in self._sites or (self._loses is not None and self._loses(name, decode_message(frame)))
        return None if lost else answer(self._sites[name], frame)
