"""Every error Zerosum raises, drawn once.

ZerosumError
├── BadInput              what was given is wrong                             exit code 2
│   ├── BadData             a site's records: not finite, empty, cut short
│   ├── BadParameter        a number or name outside its range
│   ├── BadStudy            a study or policy file that does not say what is needed
│   ├── UnknownStatistic    a name no registry here knows
│   └── BadMessage          a message to or from a site that does not fit
│       ├── Malformed         not in the format
│       ├── Unsupported       of another version
│       ├── Forged            a key, signature or seal that does not hold
│       ├── Misdirected       of another study, attempt or site
│       ├── OutOfTurn         not now, or not again
│       └── Inconsistent      at odds with what was said before
├── Refused               well-formed, but it must not happen                 exit code 2
│   ├── BudgetExceeded      the population's lifetime cap would be passed
│   ├── LedgerRefused       the ledger is damaged, older than its counter, or cannot be written
│   ├── PolicyRefused       the site's own policy says no
│   ├── AwaitingConsent     the site's steward has not decided yet
│   │   └── Busy              the site takes part in as many studies as it may
│   └── OutsidePlan         a release nobody declared
│       └── NotAgreed         the site has no session of this plan: it restarted, or was never asked
├── Abandoned             too many sites were lost; what was spent stays spent  exit code 3
├── CheckFailed           a verification ran and found a fault                exit code 4
└── Interrupted           stopped from the keyboard; what was spent is said     exit code 130
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pydantic import ValidationError


class ZerosumError(Exception):
    """The root of the tree; `exit_code` is the exit code of the command line.

    The message may be sent to other parties. Facts that only the holder of the data may read (a row, a count, a
    person's file) go into `detail`: tracebacks and the command line show it locally, and no `Refusal` contains it.
    """

    exit_code = 2

    @property
    def code(self) -> str:
        """Name of the error on the wire."""
        return type(self).__name__

    def __init__(self, message: str = "", *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        if detail:
            self.add_note(f"(not for others: {detail})")

    def about(self, what: str) -> Self:
        """The same error with its subject in front of the message."""
        return type(self)(f"{what}: {self}", detail=self.detail)

    def public(self) -> Self:
        """The same error without `detail`, as it may be sent."""
        return type(self)(str(self))


class DataWarning(UserWarning):
    """Warning for the owner of the data: a study runs, and some of the data count differently than one might expect."""


def first_fault(error: ValidationError) -> str:
    """The first fault that pydantic found, in one sentence."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where, reason = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    return f"{where}: {reason}" if where else reason


class BadInput(ZerosumError, ValueError):
    pass


class BadData(BadInput):
    pass


class BadParameter(BadInput):
    pass


class BadStudy(BadInput):
    pass


class UnknownStatistic(BadInput):
    pass


class BadMessage(BadInput):
    pass


class Malformed(BadMessage):
    pass


class Unsupported(BadMessage):
    pass


class Forged(BadMessage):
    pass


class Misdirected(BadMessage):
    pass


class OutOfTurn(BadMessage):
    pass


class Inconsistent(BadMessage):
    pass


class Refused(ZerosumError):
    pass


class BudgetExceeded(Refused):
    pass


class LedgerRefused(Refused):
    pass


class PolicyRefused(Refused):
    pass


class AwaitingConsent(Refused):
    pass


class Busy(AwaitingConsent):
    pass


class OutsidePlan(Refused):
    pass


class NotAgreed(OutsidePlan):
    pass


class Abandoned(ZerosumError):
    exit_code = 3


class CheckFailed(ZerosumError):
    exit_code = 4


class Interrupted(ZerosumError):
    exit_code = 130


def by_code(code: str) -> type[ZerosumError]:
    """The kind of error with this name on the wire; an unknown name is a refusal.

    >>> by_code("BudgetExceeded").__name__, by_code("NotYetInvented").__name__
    ('BudgetExceeded', 'Refused')
    """
    return _CODES.get(code, Refused)


def _tree(kind: type[ZerosumError]) -> dict[str, type[ZerosumError]]:
    return {kind.__name__: kind} | {code: each for sub in kind.__subclasses__() for code, each in _tree(sub).items()}


_CODES = _tree(ZerosumError)
