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
        """The same error with its subject in front of the message.

        Parameters
        ----------
        what : str
            The subject, such as the name of a site or file.
        """
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
    every = error.errors(include_url=False, include_context=False, include_input=False)
    first, *others = every
    where, reason = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    text = f"{where}: {reason}" if where else reason
    # An entry that is missing is often there under a misspelt name.
    unknown = [str(each["loc"][-1]) for each in others if each["type"] == "extra_forbidden" and each["loc"]]
    return f"{text}; there is an unknown entry {unknown[0]!r}" if first["type"] == "missing" and unknown else text


class BadInput(ZerosumError, ValueError):
    """Invalid input. Also a `ValueError`, as callers of Python libraries expect of a wrong argument."""


class BadData(BadInput):
    """Records of a site that cannot be used: not finite, empty, truncated."""


class BadParameter(BadInput):
    """A number or name outside its range."""


class BadStudy(BadInput):
    """A study or policy file with missing or invalid entries."""


class UnknownStatistic(BadInput):
    """A statistic that is in no registry of this installation."""


class BadMessage(BadInput):
    """An invalid message to or from a site."""


class Malformed(BadMessage):
    """A message that is not in the expected format."""


class Unsupported(BadMessage):
    """A message or plan of a version that this one does not read."""


class Forged(BadMessage):
    """An invalid key, signature or authentication tag."""


class Misdirected(BadMessage):
    """A message that is valid but meant for another study, attempt or site."""


class OutOfTurn(BadMessage):
    """A message out of order, or a repeated one."""


class Inconsistent(BadMessage):
    """A message that contradicts an earlier one of the same sender."""


class Refused(ZerosumError):
    """A valid request that is not permitted. Nothing was released for it."""


class BudgetExceeded(Refused):
    """The lifetime cap of the population would be exceeded."""


class LedgerRefused(Refused):
    """The ledger is damaged, older than its counter, or cannot be written: without it nothing may be charged."""


class PolicyRefused(Refused):
    """The site's policy does not permit the plan."""


class AwaitingConsent(Refused):
    """The steward of the site has not decided yet. The coordinator asks again."""


class Busy(AwaitingConsent):
    """The site already takes part in its largest number of studies. The coordinator asks again."""


class OutsidePlan(Refused):
    """A release that the agreed plan does not declare."""


class NotAgreed(OutsidePlan):
    """The site has no session of this plan, for instance after a restart; it has to agree again."""


class Abandoned(ZerosumError):
    """Too many sites were lost. The cost of begun rounds remains charged."""

    exit_code = 3


class CheckFailed(ZerosumError):
    """A verification ran and found a fault."""

    exit_code = 4


class Interrupted(ZerosumError):
    """Stopped from the keyboard; the message states the cost."""

    exit_code = 130


def by_code(code: str) -> type[ZerosumError]:
    """The kind of error with this name on the wire; an unknown name is a refusal.

    >>> by_code("BudgetExceeded").__name__, by_code("NotYetInvented").__name__
    ('BudgetExceeded', 'Refused')
    """
    # A later version may have more kinds; an unknown refusal is still a refusal, and no text from the wire chooses a
    # class.
    return _CODES.get(code, Refused)


def _tree(kind: type[ZerosumError]) -> dict[str, type[ZerosumError]]:
    """Every kind of error below and including this one, by its name."""
    return {kind.__name__: kind} | {code: each for sub in kind.__subclasses__() for code, each in _tree(sub).items()}


# Last in the module: the tree is read from the subclasses that exist by then, so a new kind of error needs no entry.
_CODES = _tree(ZerosumError)
