"""All sites in this process: the default engine. The sites run the code that real ones run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from zerosum.errors import Refused, ZerosumError
from zerosum.protocol.messages import Lost, Message, Refusal, Reply
from zerosum.site.site import Site


def _nobody(site: str, message: Message) -> bool:
    return False


class InProcess:
    """Sites held in memory. `loses(site, message)` says which messages never arrive, for tests and rehearsals."""

    def __init__(self, sites: Iterable[Site], loses: Callable[[str, Message], bool] = _nobody) -> None:
        self._sites = {site.name: site for site in sites}
        self._loses = loses

    def close(self) -> None:
        """The study is over: sites let go of their ledgers."""
        for site in self._sites.values():
            site.close()

    def exchange(self, messages: Mapping[str, Message]) -> Iterator[Reply]:
        for name, message in messages.items():
            if name not in self._sites or self._loses(name, message):
                yield Lost(name)
            else:
                yield _answer(self._sites[name], message)


def _answer(site: Site, message: Message) -> Reply:
    try:
        return site.handle(message)
    except ZerosumError as error:
        return Refusal(site.name, error.public())
    except Exception as error:  # what it says may quote data
        refusal = Refused("this site met an internal error")
        refusal.__cause__ = error  # for whoever debugs in this process; no part of what travels
        return Refusal(site.name, refusal)
