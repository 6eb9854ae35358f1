"""A budget that several studies of one process share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, Self

from zerosum.errors import BadParameter, BudgetExceeded, Refused
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.protocol.progress import Observer, Progress
from zerosum.site.account import Cap, Spend, Standing, Total, left_under, rounded_up
from zerosum.site.costs import unpaid

_Payment = dict[str, list[Spend]]  # what one study costs each of its sites


class Budget:
    """What several studies may cost together: it shows what is left, and refuses what goes beyond.

    Give one to several estimators (`budget=`), or to `zerosum.run`. Losses are added up exactly, site by site. The
    ledgers of the sites are charged all the same, and their caps hold whatever a budget says. A budget lives in one
    process: a copy that was pickled, or that a forked process has, pays for nothing.

    Parameters
    ----------
    epsilon, delta : float
        What all studies together may cost any one unit.
    fits : int, optional
        The most fits it pays for, whatever they cost; by default as many as epsilon and delta allow. Each fit is a
        study of its own, charged in full. A search for hyper-parameters (scikit-learn's `GridSearchCV`,
        `cross_val_score`) over private data is refused with or without this number: its scores on held-out rows are
        not protected.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-5)
    >>> budget.spent, round(budget.left, 4)
    (0.0, 1.0)
    """

    def __init__(self, epsilon: float, delta: float = 1e-5, *, fits: int | None = None) -> None:
        if fits is not None and (isinstance(fits, bool) or not isinstance(fits, int) or fits < 1):
            raise BadParameter(f"fits must be a whole number, at least 1, got {fits!r}")
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if isinstance(value, bool) or not isinstance(value, Real):
                raise BadParameter(f"{name} must be a number, got {value!r}")
        self._cap, self.fits, self.fitted = Cap(float(epsilon), float(delta)), fits, 0
        self._totals: dict[str, Total] = {}
        self._payments: list[_Payment] = []
        self._mutex, self._process = threading.Lock(), os.getpid()

    @property
    def epsilon(self) -> float:
        return self._cap.epsilon

    @property
    def delta(self) -> float:
        return self._cap.delta

    @property
    def spent(self) -> float:
        """What was spent so far at the worst-off site, exact, at this budget's delta."""
        return max((total.epsilon(self.delta) for total in self._totals.values()), default=0.0)

    @property
    def left(self) -> float:
        """The most that one more study may cost; more than the difference, as losses do not add up by epsilons."""
        return min((left_under(total, self._cap) for total in self._totals.values()), default=self.epsilon)

    @contextmanager
    def paying(self, plan: Plan, observer: Observer) -> Iterator[Observer]:
        """Pay for a plan, or refuse it; what was not begun is given back. Whoever runs it calls the observer."""
        begun = False

        def watch(seen: Progress) -> None:
            nonlocal begun
            begun = (
                begun or seen.stage in ("set-up", "round") or (seen.stage == "consent" and seen.done == seen.planned)
            )
            observer(seen)

        payment = self._pay(plan)
        try:
            yield watch
        except BaseException:
            if not begun:
                self._give_back(payment)
            raise

    def _give_back(self, payment: _Payment) -> None:
        """Take one payment out, and leave what others have paid meanwhile."""
        with self._mutex:
            self._payments = [each for each in self._payments if each is not payment]
            totals: dict[str, Total] = {}
            for each in self._payments:
                for site, spends in each.items():
                    totals[site] = totals.get(site, Total()).plus((spend, spend.mu) for spend in spends)
            self._totals, self.fitted = totals, self.fitted - 1

    def _pay(self, plan: Plan) -> _Payment:
        if self._process != os.getpid():
            raise Refused("a budget belongs to the process it was made in, and this is a copy: use n_jobs=1")
        with self._mutex:
            if self.fits is not None and self.fitted >= self.fits:
                raise BudgetExceeded(f"the budget pays for {counted(self.fits, 'fit')}, all of which are used")
            payment: _Payment = {}
            after = dict(self._totals)
            if plan.scheme.facts.noisy:
                for position, site in enumerate(plan.sites):
                    payment[site.name] = spends = unpaid(plan, position, Standing())
                    total = after.get(site.name, Total()).plus((spend, spend.mu) for spend in spends)
                    if total.epsilon(self.delta) > self.epsilon * (1 + 1e-12):
                        raise BudgetExceeded(
                            f"the budget of epsilon {self.epsilon:g} at delta {self.delta:g} has {self.left:.4g} left "
                            f"for one more study, and with this one {rounded_up(total.epsilon(self.delta))} would be "
                            "spent"
                        )
                    after[site.name] = total
            self._totals, self.fitted = after, self.fitted + 1
            self._payments.append(payment)
            return payment

    def __repr__(self) -> str:
        paid = counted(self.fitted, "fit") if self.fits is None else f"{self.fitted} of {counted(self.fits, 'fit')}"
        return (
            f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}): {paid}, epsilon {rounded_up(self.spent)} spent, "
            f"{self.left:.4g} left for one more study"
        )

    # scikit-learn copies parameters; a budget that is shared stays the same one

    def __sklearn_clone__(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"cap": self._cap, "fits": self.fits, "fitted": self.fitted, "totals": self._totals}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._cap, self.fits, self.fitted, self._totals = (state[key] for key in ("cap", "fits", "fitted", "totals"))
        self._mutex, self._process, self._payments = threading.Lock(), 0, []  # of no process: it pays for nothing
