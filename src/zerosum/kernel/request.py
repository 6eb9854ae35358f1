"""The frozen messages: what a program asks for, what it gets back, and what travels between coordinator and site."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.errors import ZerosumError
from zerosum.kernel.plan import Plan

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PrivateSum:
    """Asked of all sites: the sum over units of a named statistic, for a share of the study's mu^2."""

    statistic: str
    params: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0

    def digest(self) -> str:
        """SHA-256 of what is asked; the ledger keeps it with the spend."""
        text = json.dumps([self.statistic, self.share, dict(self.params)], sort_keys=True, default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Release:
    """What came of a private sum."""

    value: Floats
    noise_std: float
    units: float | None  # what to divide by for a mean: public, None where counts are data (add/remove)
    participants: tuple[str, ...]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return [str(value.dtype), list(value.shape), digest]
    raise TypeError(f"a request's parameters must be plain values or arrays, got {type(value).__name__}")


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
    dealt: Any = None


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
