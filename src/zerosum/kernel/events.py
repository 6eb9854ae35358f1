"""What a release is to the accountant, one type per mechanism.

A `Sum` over the sites and a `Publication` of one site's units are Gaussian mechanisms of some mu: they compose by
adding squares. `Subsampled` sums compose by their privacy loss distributions.

Tested in tests/kernel/test_accountant.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosum.errors import BadParameter
from zerosum.kernel.amounts import check_mu


@dataclass(frozen=True)
class Sum:
    """One noisy sum over the sites; `mu` is what it costs the units of one site."""

    mu: float

    def __post_init__(self) -> None:
        check_mu(self.mu)


@dataclass(frozen=True)
class Publication:
    """One noisy vector for every unit of a site; `mu` is what it costs each of them."""

    mu: float

    def __post_init__(self) -> None:
        check_mu(self.mu)


@dataclass(frozen=True)
class Sampling:
    """A phase of `steps` sums, each over a Poisson sample of the units: everyone takes part with probability `rate`.

    At rate 1 everybody is in every step: nothing is sampled, and the steps are Gaussian releases like any others.
    """

    rate: float
    steps: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadParameter(f"the sampling rate must lie in (0, 1], got {self.rate:g}")
        if not 1 <= self.steps <= 1_000_000:
            raise BadParameter(f"steps must be a whole number from 1 to 1000000, got {self.steps}")

    @property
    def full(self) -> bool:
        """Whether everybody takes part in every step."""
        return self.rate == 1


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
        Sampling(self.rate, 1)
        if self.steps < 1:
            raise BadParameter(f"steps must be at least 1, got {self.steps}")


Event = Sum | Subsampled | Publication
