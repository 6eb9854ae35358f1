"""What a program asks for, and what it gets back.

Tested in tests/coordinator/test_publication.py.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.events import Sampling
from zerosum.kernel.statistic import BoundedMap, BoundedStatistic


@dataclass(frozen=True, eq=False)
class PrivateSum:
    """Asked of all sites: the sum over units of a statistic, for a share of the study's budget.

    With `sampling` it is one step of a phase: every site draws its own secret Poisson sample of units for each step,
    and the share pays for the whole phase, which is planned and charged at once.
    """

    statistic: BoundedStatistic
    share: float = 1.0
    sampling: Sampling | None = None

    def digest(self) -> str:
        """SHA-256 of what is asked; the ledger keeps it with the spend."""
        return _digest("sum", self.statistic, self.share, self.sampling)


@dataclass(frozen=True, eq=False)
class PrivatePublication:
    """Asked of all sites: the vector of every single unit, each under noise of its own that nobody shares."""

    statistic: BoundedMap
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.statistic.every_unit:
            raise BadParameter("a publication has a row for every unit: ask for no part of them")

    def digest(self) -> str:
        return _digest("publication", self.statistic, self.share, None)


Request = PrivateSum | PrivatePublication


@dataclass(frozen=True, eq=False)
class Release:
    """What came of a request: a sum, or the published rows of all participants, one site after the other."""

    value: Floats
    noise_std: float
    units: float | None  # what to divide by for a mean: public, None where counts are data (add/remove)
    participants: tuple[str, ...]
    rows: tuple[int, ...] = ()  # of a publication: how many rows each participant has

    def by_site(self) -> dict[str, Floats]:
        """The rows of a publication, by who published them."""
        ends = np.cumsum(self.rows)[:-1]
        return dict(zip(self.participants, np.split(self.value, ends), strict=True))


def _digest(kind: str, statistic: BoundedStatistic, share: float, sampling: Sampling | None) -> str:
    steps = None if sampling is None else [sampling.rate, sampling.steps]
    asked = [kind, statistic.name, share, steps, statistic.parameters()]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return [str(value.dtype), list(value.shape), digest]
    return dict(value)  # a read-only mapping
