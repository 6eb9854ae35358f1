"""The frozen messages between coordinator and site. `codec` makes bytes of them.

Tested in tests/protocol/test_codec.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Request

Steps = NDArray[np.int64]  # of a grid

# ---- coordinator to site ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Propose:
    """The whole plan; asked before any data is used. A site that has agreed to it goes on with the secrets it has if it
    is to `keep` them, and makes new ones otherwise."""

    plan: Plan
    keep: bool = False


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
class DrawSum:
    """The sum of all sites' draws, and of how many sites."""

    total: Steps
    sites: int


@dataclass(frozen=True, eq=False)
class PublicKeys:
    """The fresh keys of the sites, by their places on the roster."""

    keys: Mapping[int, bytes]


@dataclass(frozen=True, eq=False)
class DealtNoise:
    """What a trusted helper and the coordinator deal to one site."""

    from_helper: Floats
    from_coordinator: Floats


NoiseInput = DrawSum | PublicKeys | DealtNoise | None


@dataclass(frozen=True, eq=False)
class Contribute:
    """Send what is asked for, under noise. `noise_input` is what the others' part of the cancelling noise came to."""

    round: int
    attempt: int
    request: Request
    noise_input: NoiseInput = None


@dataclass(frozen=True)
class Dismiss:
    """Nothing more will be asked under the plan that was agreed to: the study is over, or did not begin."""


Message = Propose | Prepare | Secure | Contribute | Dismiss


# ---- site to coordinator ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Consent:
    """The site takes part. Its number of units is public, except where counts are data."""

    site: str
    units: int | None


@dataclass(frozen=True, eq=False)
class Prepared:
    """A masked vector of draws, or a fresh public key."""

    site: str
    payload: bytes


@dataclass(frozen=True, eq=False)
class Secured:
    """A site's answer within the secure sum."""

    site: str
    data: bytes


@dataclass(frozen=True, eq=False)
class Contribution:
    """Numbers, steps of the grid, or a masked vector as bytes (once it was read, a view of its frame); of a
    publication one row a unit."""

    site: str
    payload: Floats | Steps | bytes | bytearray | memoryview


@dataclass(frozen=True)
class Dismissed:
    """The site holds nothing back for the study any more."""

    site: str


@dataclass(frozen=True)
class Refusal:
    """The site says no, in one sentence that names no value of its data."""

    site: str
    error: ZerosumError


@dataclass(frozen=True)
class Lost:
    """No reply from this site, or one that comes to the same; made by an engine or the coordinator, never sent."""

    site: str
    why: str = ""


Reply = Consent | Prepared | Secured | Contribution | Dismissed | Refusal
