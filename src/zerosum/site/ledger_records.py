"""Records of a ledger: the account, its cap, and the cost of each release."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from zerosum.errors import BadParameter, LedgerRefused
from zerosum.kernel.accountant import epsilon, mixed_curve, mu_for, with_distance
from zerosum.kernel.amounts import check_delta, check_epsilon
from zerosum.kernel.computed_once import computed_once
from zerosum.kernel.events import LaplaceSum, Subsampled
from zerosum.kernel.laplace import FEWEST_MOVES
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Noise
from zerosum.site.accounting import accounted

_HOPELESS = 1e6  # a mu whose epsilon, about mu^2/2, exceeds any cap
# Relative tolerance of a cap: shares of a cap that are squared and added up again may exceed it by rounding. Chosen by
# hand; no benchmark recorded.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Spend:
    """The cost of a contribution by the public plan: `steps` releases of this `mu` each, sub-sampled if there is a
    `rate`.

    A phase is one spend, charged whole at its first step. Without a rate the spend is a Gaussian release of sqrt(steps)
    mu; with a rate it is `Subsampled(mu, rate, steps)`. With `laplace_moves` it is `LaplaceSum(mu, laplace_moves,
    steps)`: then `mu` is the pure epsilon of one release. `sensitivity` is in L2 norm, for Laplace noise in L1 norm.
    """

    study: str
    round: int
    attempt: int
    unit: str
    statistic: str
    sensitivity: float
    mu: float
    request: str  # hex digest of the request; empty in a spend that is only planned
    rate: float | None = None
    steps: int = 1
    kind: Literal["sum", "publication"] = "sum"
    distance: float = 0.0  # total variation between the release as drawn and as accounted
    laplace_moves: int | None = None  # K of `zerosum.kernel.laplace`; None: the noise is Gaussian

    def __post_init__(self) -> None:
        _check_names(self.unit, study=self.study, statistic=self.statistic)
        if self.round < 0 or self.attempt < 0:
            raise BadParameter(f"round and attempt count from 0, got {self.round} and {self.attempt}")
        for name, value in (("mu", self.mu), ("the sensitivity", self.sensitivity), ("the distance", self.distance)):
            if not (math.isfinite(value) and value >= 0):
                raise BadParameter(f"{name} must be finite and not negative, got {value:g}")
        if not re.fullmatch("[0-9a-f]*", self.request):
            raise BadParameter(f"the request is named by its digest in hex, got {self.request!r}")
        if self.kind not in ("sum", "publication"):
            raise BadParameter(f"a spend is for a sum or a publication, got {self.kind!r}")
        if self.laplace_moves is not None:
            if self.rate is not None or self.kind != "sum":
                raise BadParameter("Laplace noise is for single sums over all units")
            LaplaceSum(self.mu, self.laplace_moves, self.steps)  # checks all three
        elif self.rate is not None:
            Subsampled(self.mu, self.rate, self.steps)  # checks both
        elif self.steps < 1:
            raise BadParameter(f"steps must be at least 1, got {self.steps}")

    def as_record(self) -> dict[str, Any]:
        """The spend as a ledger writes it down. A spend with Gaussian noise reads as in earlier versions."""
        record = asdict(self)
        if self.laplace_moves is None:
            del record["laplace_moves"]
        return record

    @property
    def key(self) -> tuple[str, int, int]:
        """What identifies a spend in a ledger: it is recorded once."""
        return self.study, self.round, self.attempt

    def __str__(self) -> str:
        return f"study {self.study!r}, round {self.round}, attempt {self.attempt}"


@dataclass(frozen=True)
class Cap:
    """The largest epsilon, at this delta, that a population may spend in its lifetime."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    def exceeded(self, epsilon: float) -> bool:
        """Whether a total epsilon, at this delta, is above the cap by more than rounding.

        The ledger, the checks before it and budgets of several studies decide by this rule, so that they agree.

        >>> Cap(1.0, 1e-5).exceeded(1.0 + 1e-15), Cap(1.0, 1e-5).exceeded(1.001)
        (False, True)
        """
        return epsilon > self.epsilon * (1 + _ROUNDING)


@dataclass(frozen=True)
class Account:
    """The owner of a ledger: the population, the protected unit, and the neighbouring relation."""

    population: str
    unit: str
    adjacency: str
    rows_per_unit: int | None = None  # largest number of rows of a person; used when a spend is charged, not stored

    def __post_init__(self) -> None:
        _check_names(self.unit, population=self.population)
        if self.adjacency not in {each.value for each in Adjacency}:
            raise BadParameter(f"the adjacency must be 'replace-one' or 'add-remove', got {self.adjacency!r}")
        if self.rows_per_unit is not None and self.rows_per_unit < 1:
            raise BadParameter(f"rows_per_unit must be at least 1, got {self.rows_per_unit}")

    def __str__(self) -> str:
        return f"{self.population!r} ({self.unit}, {self.adjacency})"

    def charge(self, spend: Spend) -> float:
        """The mu that a spend costs one of this account's units, or a refusal.

        Parameters
        ----------
        spend : Spend
            A spend of the public plan.

        Returns
        -------
        float
            The mu of one step for one unit of this account.

        Raises
        ------
        LedgerRefused
            If the spend protects other units than the account and cannot be converted.
        """
        if spend.rate is not None and (spend.unit, "replace-one") != (self.unit, self.adjacency):
            raise LedgerRefused(
                f"{spend} samples by {spend.unit} and is accounted for replaced units, which cannot be"
                f" charged to {self}: run it without sub-sampling"
            )
        if spend.unit == self.unit or self.unit == "record":  # a guarantee for persons covers each record
            return spend.mu
        if self.rows_per_unit is None:
            raise LedgerRefused(
                f"{spend} protects a record and cannot be charged to {self}: state rows_per_unit, the most"
                " rows a person has, or protect persons"
            )
        # Group privacy of Gaussian-DP: k rows of one person differ, so mu is multiplied by k (Dong, Roth, Su 2022). The
        # epsilon of pure differential privacy is multiplied by k as well.
        return spend.mu * self.rows_per_unit


@dataclass(frozen=True)
class Entry:
    """One row of the ledger. `charged_mu` is the mu that one step of the spend costs one of the account's units."""

    number: int
    recorded: str
    spend: Spend
    charged_mu: float
    previous: str
    digest: str
    version: str | None = None  # version of Zerosum; None: 0.1, which did not record it
    plan: str | None = None  # digest of the plan; None: not recorded, so the study cannot be continued
    asked: Mapping[str, Any] | None = None  # the study in public words, at its first entry only
    cap: Cap | None = None  # the cap at that time; None: not recorded

    def doubt(self, adjacency: str) -> str | None:
        """What is wrong with the guarantee that an entry was charged under, where a fault is known; else None.

        Zerosum 0.1 charged too little for the sums of k-means, and for the second release of PCA where units are added
        or removed; its entries do not record which release of PCA they were. They count as charged: the true excess is
        unknown.
        """
        if self.version is not None:
            return None
        if self.spend.statistic == "cluster_sums":
            return "did not hold"
        if self.spend.statistic in ("scatter", "scatter_norms") and adjacency == Adjacency.ADD_REMOVE.value:
            return "may not have held"
        return None


@dataclass(frozen=True)
class Draw:
    """Ledger row for one step of a phase whose cost was charged when the phase began."""

    number: int
    recorded: str
    study: str
    round: int
    attempt: int
    request: str
    reservation: int  # number of the entry that paid for it


@dataclass(frozen=True)
class StudyProgress:
    """Progress of a study in a site's ledger. Rounds go forward, and none is answered twice under one attempt.

    Attempts beyond the first are numbered through the whole study, so that each is used once, whatever the round.
    """

    plan: str | None = None
    round: int = -1  # last round that was answered
    extra: int = 0  # last attempt beyond the first
    reservation: int = 0  # entry that steps are drawn from
    left: int = 0

    def after(self, plan: str | None, round: int, attempt: int, reservation: int, left: int) -> StudyProgress:
        """The progress after one more row."""
        return StudyProgress(plan, max(round, self.round), max(attempt, self.extra), reservation, left)

    def check(self, study: str, plan: str) -> None:
        """Refuse another plan under the same name: a study paid for under one plan is not continued under another."""
        if self.round >= 0 and self.plan != plan:
            raise LedgerRefused(
                f"study {study!r} is in the ledger already, under another plan or with other keys: what was paid for "
                "under one plan is not continued under another"
            )

    def check_turn(self, round: int, attempt: int) -> None:
        """Refuse a round or an attempt that is in the ledger already."""
        if round < self.round:
            raise LedgerRefused(f"round {round + 1} is over: a later one was answered")
        if attempt > 0 and attempt <= self.extra:
            raise LedgerRefused(f"attempt {attempt + 1} was used up: what was sent once is not sent again")
        if attempt == 0 and round == self.round:
            raise LedgerRefused(f"round {round + 1} is in the ledger already: what was sent once is not sent again")


def _check_names(unit: str, **names: str) -> None:
    if unit not in ("person", "record"):
        raise BadParameter(f"the unit must be 'person' or 'record', got {unit!r}")
    for what, name in names.items():
        if not name:
            raise BadParameter(f"the {what} must have a name, got an empty one")


@dataclass(frozen=True)
class Total:
    """The total of all charges, as exact sums (fractions), so that it does not depend on order and one more entry costs
    constant time.
    """

    squares: Fraction = Fraction(0)  # sum of mu^2 of releases without sub-sampling
    distance: Fraction = Fraction(0)
    sampled: tuple[Subsampled, ...] = ()
    laplace: tuple[LaplaceSum, ...] = ()

    def plus(self, charges: Iterable[tuple[Spend, float]]) -> Total:
        """The total with these spends, each at its charged mu.

        Parameters
        ----------
        charges : iterable of (Spend, float)
            Spends with the mu that each step is charged (`Account.charge`).
        """
        # Fractions are exact, so that the total of a ledger is equal for every order in which its rows are read.
        squares, distance = self.squares, self.distance
        # Phases with equal mu and rate are one event with more steps, whose loss is computed once.
        steps = Counter({(event.mu, event.rate): event.steps for event in self.sampled})
        pure = Counter({(event.epsilon, event.moves): event.steps for event in self.laplace})
        for spend, mu in charges:
            distance += Fraction(spend.distance)
            if spend.laplace_moves is not None:
                # k rows of one person move the sum k times as far; the charge has the same factor.
                pure[mu, spend.laplace_moves * max(1, round(mu / spend.mu))] += spend.steps
            elif spend.rate is None:
                # limited, since the epsilon is infinite beyond it
                squares += spend.steps * Fraction(min(mu, 2 * _HOPELESS) ** 2)
            else:
                steps[mu, spend.rate] += spend.steps
        sampled = tuple(Subsampled(*each, count) for each, count in steps.items())
        return Total(squares, distance, sampled, tuple(LaplaceSum(*each, count) for each, count in pure.items()))

    @property
    def mu(self) -> float:
        """The mu of the releases with Gaussian noise that were not sub-sampled."""
        return math.sqrt(self.squares)

    def epsilon(self, delta: float) -> float:
        """The eps of all charges, finite arithmetic included: delta pays (1 + e^eps) times all the distances."""
        if self.mu > _HOPELESS:
            return math.inf
        if not self._slow:
            return _epsilon(self, delta)
        # Sorted, since the epsilon does not depend on the order of the entries and the cache key must not either.
        sampled, pure = tuple(sorted(self.sampled, key=astuple)), tuple(sorted(self.laplace, key=astuple))
        return accounted(_mixed_epsilon, replace(self, sampled=sampled, laplace=pure), delta)

    @property
    def _slow(self) -> bool:
        """Whether the epsilon needs privacy loss distributions."""
        return bool(self.sampled or self.laplace)


def _epsilon(total: Total, delta: float) -> float:
    others: tuple[Subsampled | LaplaceSum, ...] = (*total.sampled, *total.laplace)
    return with_distance(mixed_curve(total.mu, others), float(total.distance), delta)


# takes from 30 ms to seconds, depending on the number of different entries
_mixed_epsilon = computed_once(maxsize=1024)(_epsilon)


def left_under(total: Total, cap: Cap, noise: Noise = "gaussian") -> float:
    """The largest epsilon that one more study may cost at the cap's delta. Losses do not compose by adding epsilons, so
    the result is larger than the difference of cap and total; for a study with Laplace noise hardly so.

    Parameters
    ----------
    total : Total
        What was spent.
    cap : Cap
        The bound, with its delta.
    noise : str
        The noise law of that study; with "laplace" it is one release.

    >>> spend = Spend("s", 0, 0, "person", "mean", 1.0, mu_for(1.0, 1e-5), "aa")
    >>> spent, cap = Total().plus([(spend, spend.mu)]), Cap(1.5, 1e-5)
    >>> round(left_under(spent, cap), 4), round(left_under(spent, cap, "laplace"), 4)
    (1.0467, 0.6219)
    """

    def fits(more: float) -> bool:
        if noise == "laplace":
            after = replace(total, laplace=(*total.laplace, LaplaceSum(more, FEWEST_MOVES)))
        else:
            after = replace(total, squares=total.squares + Fraction(more) ** 2)
        return _epsilon(after, cap.delta) <= cap.epsilon

    # Bisection over the parameter of one more study; the largest one is that of an empty ledger.
    low, high = 0.0, cap.epsilon if noise == "laplace" else mu_for(cap.epsilon, cap.delta)
    slow = total.sampled or total.laplace or noise == "laplace"
    for _ in range(16 if slow else 60):  # loss distributions are slow to compute; `low` is always allowed
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low if noise == "laplace" else epsilon(low, cap.delta) if low > 0 else 0.0
