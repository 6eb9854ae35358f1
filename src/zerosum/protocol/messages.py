"""The messages between coordinator and site, as frozen records. `codec` converts them to bytes."""

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

Steps = NDArray[np.int64]  # integers in steps of a grid

# ---- coordinator to site ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Propose:
    """The whole plan, sent before any data is used. With `keep`, a site that has consented to it continues with its
    secrets; otherwise it makes new ones.
    """

    plan: Plan
    keep: bool = False


@dataclass(frozen=True)
class Prepare:
    """Draw this site's part of the cancelling noise."""

    round: int
    attempt: int


@dataclass(frozen=True, eq=False)
class Secure:
    """A message of secure aggregation: set-up, a list to sign, a list to open.

    Parameters
    ----------
    step:
        The method of `secagg.session.SiteSession` that answers it.
    attempt:
        Number of the keys (`protocol.roster.slot`); 0 in the set-up.
    data:
        A message of `secagg.wire`.
    """

    step: Literal["advertise", "share", "receive", "sign", "open"]
    attempt: int = 0
    data: bytes = b""


@dataclass(frozen=True, eq=False)
class DrawSum:
    """The sum of the draws of all participating sites, shape (size,), in steps, and the number of these sites."""

    total: Steps
    sites: int


@dataclass(frozen=True, eq=False)
class PublicKeys:
    """The fresh public keys of the sites, by their index on the roster."""

    keys: Mapping[int, bytes]


@dataclass(frozen=True, eq=False)
class DealtNoise:
    """The noise that a trusted helper and the coordinator deal to one site, each of shape (size,)."""

    from_helper: Floats
    from_coordinator: Floats


# One form for each mechanism with cancelling noise (`kernel.schemes.NoiseMechanism`); None for the others.
NoiseInput = DrawSum | PublicKeys | DealtNoise | None


@dataclass(frozen=True, eq=False)
class Contribute:
    """Request for a noisy contribution.

    Parameters
    ----------
    round:
        Index of the round in the plan, from 0.
    attempt:
        0, or the number of an extra attempt, counted over the whole study.
    request:
        The statistic and its share of the budget. A site compares them with its plan.
    noise_input:
        What the site needs from other parties to make its cancelling noise; None without such noise.
    """

    round: int
    attempt: int
    request: Request
    noise_input: NoiseInput = None


@dataclass(frozen=True)
class Dismiss:
    """No more requests follow under the plan: the study is over, or did not begin."""


@dataclass(frozen=True, eq=False)
class Relay:
    """Frames for a site and for sites below it in the plan's tree.

    Parameters
    ----------
    plan:
        Digest of the plan in hex.
    frames:
        Each different frame once.
    to:
        For each site that receives a frame its index in `frames`.
    seconds:
        The time-out of one site's reply. An inner node waits for its children as many times longer as there are levels
        below it.
    """

    plan: str
    frames: tuple[bytes, ...]
    to: Mapping[str, int]
    seconds: float


Message = Propose | Prepare | Secure | Contribute | Dismiss | Relay


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
    """A site's reply in secure aggregation."""

    site: str
    data: bytes


@dataclass(frozen=True, eq=False)
class Contribution:
    """Numbers, grid steps, or a masked vector as bytes (after decoding, a view of its frame); for a publication one row
    per unit.
    """

    site: str
    payload: Floats | Steps | bytes | bytearray | memoryview


@dataclass(frozen=True)
class Dismissed:
    """The site holds no reservation for the study any more."""

    site: str


@dataclass(frozen=True)
class Refusal:
    """The site refuses, with one sentence that contains no value of its data."""

    site: str
    error: ZerosumError


@dataclass(frozen=True, eq=False)
class Relayed:
    """The replies of a branch.

    Parameters
    ----------
    site:
        The inner node.
    replies:
        The frames of its sites, unchanged.
    total:
        The frame of a contribution of the inner node: the sum of the masked vectors that arrived, whose sites have no
        frame in `replies`. None: no vector arrived.
    """

    site: str
    replies: Mapping[str, bytes | bytearray | memoryview]
    total: bytes | bytearray | memoryview | None = None


@dataclass(frozen=True)
class Lost:
    """No reply from this site, or an unusable one; created by an engine or the coordinator, never sent."""

    site: str
    why: str = ""


Reply = Consent | Prepared | Secured | Contribution | Dismissed | Refusal | Relayed
