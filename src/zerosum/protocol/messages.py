"""The frozen messages between coordinator and site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from zerosum.errors import ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum

# ---- coordinator to site ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Propose:
    """The whole plan, and a template of each planned request; asked once, before any data is used."""

    plan: Plan
    requests: tuple[PrivateSum, ...]


@dataclass(frozen=True)
class Prepare:
    """Draw this site's part of the noise that will cancel."""

    round: int
    attempt: int


@dataclass(frozen=True, eq=False)
class Secure:
    """A message of the secure sum itself: set-up, a list to sign, a list to open."""

    step: Literal["advertise", "share", "receive", "sign", "open"]
    attempt: int = 0
    data: bytes = b""


@dataclass(frozen=True, eq=False)
class Contribute:
    """Send the noisy sum. `dealt` is what the other parties' part of the cancelling noise came to."""

    round: int
    attempt: int
    request: PrivateSum
    noise_input: Any = None


Message = Propose | Prepare | Secure | Contribute


# ---- site to coordinator ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Consent:
    """The site takes part. Its number of units is public, except where counts are data."""

    site: str
    units: int | None


@dataclass(frozen=True, eq=False)
class Prepared:
    site: str
    payload: Any


@dataclass(frozen=True, eq=False)
class Secured:
    """A site's answer within the secure sum."""

    site: str
    data: bytes


@dataclass(frozen=True, eq=False)
class Contribution:
    """Floats, steps of the grid, or a masked vector as bytes."""

    site: str
    payload: Any


@dataclass(frozen=True)
class Refusal:
    """The site says no, in one sentence that names no value of its data."""

    site: str
    error: ZerosumError


@dataclass(frozen=True)
class Lost:
    """No reply from this site."""

    site: str


Reply = Consent | Prepared | Secured | Contribution | Refusal | Lost
