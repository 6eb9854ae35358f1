"""All errors that Zerosum raises.

ZerosumError
├── BadInput              invalid input                                       exit code 2
│   ├── BadData             records of a site: not finite, empty, truncated
│   ├── BadParameter        a number or name outside its range
│   ├── BadStudy            a study or policy file with missing or invalid entries
│   ├── UnknownStatistic    a name that is in no registry
│   └── BadMessage          an invalid message to or from a site
│       ├── Malformed         not in the expected format
│       ├── Unsupported       of a version that is not supported
│       ├── Forged            an invalid key, signature or authentication tag
│       ├── Misdirected       meant for another study, attempt or site
│       ├── OutOfTurn         out of order, or repeated
│       └── Inconsistent      contradicts an earlier message
├── Refused               a valid request that is not permitted               exit code 2
│   ├── BudgetExceeded      the lifetime cap of the population would be exceeded
│   ├── LedgerRefused       the ledger is damaged, older than its counter, or cannot be written
│   ├── PolicyRefused       the site's policy does not permit it
│   ├── AwaitingConsent     the steward of the site has not decided yet
│   │   └── Busy              the site already takes part in its largest number of studies
│   └── OutsidePlan         a release that the plan does not declare
│       └── NotAgreed         the site has no session of this plan, for instance after a restart
├── Abandoned             too many sites were lost; the cost remains charged  exit code 3
├── CheckFailed           a verification ran and found a fault                exit code 4
└── Interrupted           stopped from the keyboard; the message has the cost exit code 130
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


class ResultWarning(UserWarning):
    """Warning for the reader of a result: it has less in it than its form suggests."""


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
