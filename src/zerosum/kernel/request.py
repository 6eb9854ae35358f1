"""Requests of a program, and the releases that answer them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.events import Sampling
from zerosum.kernel.statistic import PublishableStatistic, Statistic


@dataclass(frozen=True, eq=False)
class PrivateSum:
    """Request to all sites: the sum over units of a statistic, for a share of the study's budget.

    With `sampling` it is one step of a phase. Every site draws its own secret Poisson sample of units for each step.
    The share pays for the whole phase, which is planned and charged at once.
    """

    statistic: Statistic
    share: float = 1.0
    sampling: Sampling | None = None

    def digest(self) -> str:
        """SHA-256 of the request; the ledger stores it with the spend."""
        return _digest("sum", self.statistic, self.share, self.sampling)


@dataclass(frozen=True, eq=False)
class PrivatePublication:
    """Request to all sites: the vector of every unit, each with independent noise of its own."""

    statistic: PublishableStatistic
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.statistic.every_unit:
            raise BadParameter("a publication has a row for every unit: ask for no part of them")

    def digest(self) -> str:
        """SHA-256 of the request; the ledger stores it with the spend."""
        return _digest("publication", self.statistic, self.share, None)


Request = PrivateSum | PrivatePublication


@dataclass(frozen=True, eq=False)
class Release:
    """The answer to a request: a noisy sum, or the published rows of all participants, site after site.

    Parameters
    ----------
    value:
        Shape (size,) for a sum, (rows, size) for a publication.
    noise_std:
        Standard deviation of the noise in each number.
    units:
        Divisor for a mean over units: public. None where counts are data (add-remove neighbours).
    participants:
        Names of the sites in the release.
    rows:
        For a publication, the number of rows of each participant.
    """

    value: Floats
    noise_std: float
    units: float | None  # divisor for a mean
    participants: tuple[str, ...]
    rows: tuple[int, ...] = ()  # publications only

    def by_site(self) -> dict[str, Floats]:
        """The rows of a publication by site name."""
        ends = np.cumsum(self.rows)[:-1]
        return dict(zip(self.participants, np.split(self.value, ends), strict=True))


def _digest(kind: str, statistic: Statistic, share: float, sampling: Sampling | None) -> str:
    """SHA-256 of canonical JSON. Arrays enter by their type, shape and digest, so that the digest does not depend on
    printing.
    """
    steps = None if sampling is None else [sampling.rate, sampling.steps]
    asked = [kind, statistic.name, share, steps, statistic.parameters()]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON form of an array or of a read-only mapping."""
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return [str(value.dtype), list(value.shape), digest]
    return dict(value)  # a read-only mapping
