"""What a program asks for, and what it gets back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zerosum.arrays import Floats


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
