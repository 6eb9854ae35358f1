"""Events of the accountant, one type per mechanism.

Two data sets are neighbours if they differ in one unit of one site. A `Sum` over the sites and a `Publication` of one
site's units are Gaussian mechanisms with some mu; they compose by adding squares. `Subsampled` sums and sums with
Laplace noise (`LaplaceSum`) compose by their privacy loss distributions. `Sampling` describes the sampling of a phase
before its noise is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zerosum.errors import BadParameter
from zerosum.kernel.amounts import check_mu

MOST_STEPS = 1_000_000  # of one phase; chosen by hand


@dataclass(frozen=True)
class Sum:
    """A Gaussian mechanism on a sum over the units of all sites.

    For bounded contributions x_i in R^d of the units, it releases sum_i x_i + z, where z is the noise of the scheme
    (`zerosum.kernel.schemes`). For the units of one site the view of the worst coalition is mu-Gaussian-DP: mu = D /
    sigma, with D the largest L2 distance between the sums of neighbours and sigma the effective noise against that
    coalition. A phase of k steps without sub-sampling is one `Sum` with sqrt(k) times the mu of a step.
    """

    mu: float

    def __post_init__(self) -> None:
        check_mu(self.mu)


@dataclass(frozen=True)
class Publication:
    """A Gaussian mechanism on every unit of a site, one by one.

    For the vector x_i in R^d of each unit, it releases x_i + z_i with z_i ~ N(0, sigma^2 I) independent between units.
    Neighbours differ in one row, so the cost of the whole table is the cost of one row: mu = D / sigma, with D the
    largest distance between two possible rows.
    """

    mu: float

    def __post_init__(self) -> None:
        check_mu(self.mu)


@dataclass(frozen=True)
class Sampling:
    """Poisson sampling of a phase of `steps` sums: in each step, each unit takes part with probability `rate`,
    independently.

    At rate 1 every unit takes part in every step. The steps are then Gaussian releases without sub-sampling.
    """

    rate: float
    steps: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadParameter(f"the sampling rate must lie in (0, 1], got {self.rate:g}")
        if not 1 <= self.steps <= MOST_STEPS:
            raise BadParameter(f"steps must be a whole number from 1 to {MOST_STEPS}, got {self.steps}")

    @property
    def full(self) -> bool:
        """Whether every unit takes part in every step."""
        return self.rate == 1


@dataclass(frozen=True)
class Subsampled:
    """`steps` Gaussian sums, each over a fresh Poisson sample of the units at `rate`.

    In each step a unit is in the sample with probability `rate`, independently of all else, and the release is the sum
    over the sample plus Gaussian noise of effective standard deviation sigma. `mu` is one step's loss for a unit that
    is present or absent: C / sigma, with C the bound on the L2 norm of its contribution. The sensitivity D of a
    replaced unit is not sufficient here: D may be smaller than 2 C, and the loss of the sampled mechanism is not a
    function of D.
    """

    mu: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        check_mu(self.mu)
        Sampling(self.rate, 1)
        if self.steps < 1:
            raise BadParameter(f"steps must be at least 1, got {self.steps}")


@dataclass(frozen=True)
class LaplaceSum:
    """`steps` sums with Laplace noise in divisible shares (`zerosum.kernel.laplace`), each with fresh noise.

    For bounded contributions x_i in R^d of the units, a sum releases sum_i x_i + z on a grid. For the units of one site
    the view of the worst coalition is `epsilon` differentially private: epsilon = K s, with K (`moves`) the largest L1
    distance between the rounded sums of neighbours in grid steps, and s the loss of one step. Its privacy loss is at
    most that of one discrete Laplace variable that is moved by K steps.
    """

    epsilon: float
    moves: int
    steps: int = 1

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise BadParameter(f"epsilon must be positive and finite, got {self.epsilon:g}")
        if self.moves < 1 or self.steps < 1:
            raise BadParameter(f"moves and steps must be at least 1, got {self.moves} and {self.steps}")


Event = Sum | Subsampled | Publication | LaplaceSum
