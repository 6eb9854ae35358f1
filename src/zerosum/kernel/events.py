"""What a ledger records besides plain releases: one type per mechanism.

Tested in tests/kernel/test_accountant.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosum.errors import BadParameter
from zerosum.kernel.amounts import check_mu


@dataclass(frozen=True)
class Subsampled:
    """`steps` releases, each over a Poisson sample of the units at `rate`.

    `mu` is one step's loss for a unit that is present or absent: the bound on its contribution's norm over the
    effective noise. A replaced unit's own sensitivity is not enough here: it may be smaller than twice that bound, and
    the sampled mechanism's loss is not a function of it.
    """

    mu: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        check_mu(self.mu)
        if not 0 < self.rate <= 1:
            raise BadParameter(f"the sampling rate must lie in (0, 1], got {self.rate:g}")
        if self.steps < 1:
            raise BadParameter(f"steps must be at least 1, got {self.steps}")
