"""Privacy budget shared by several studies of one process: total epsilon and delta, spent, left, refusals."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, Self

from zerosum.errors import BadParameter, BudgetExceeded, Refused
from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.terms import Noise
from zerosum.protocol.progress import Observer, Progress
from zerosum.site.budget import law_of, unpaid
from zerosum.site.ledger_records import Cap, Spend, StudyProgress, Total, left_under

_Payment = dict[str, list[Spend]]  # Spends of one study, by site name. One payment is one call of `Budget._pay`.


class Budget:
    """Total privacy cost that several studies may have together. Reports what is left and refuses studies beyond it.

    Pass one budget to several estimators (`budget=`) or to `zerosum.run`. Losses are composed exactly, site by site.
    The ledgers of the sites are charged as well, and their caps apply independently of this budget. A budget is valid
    in one process: a pickled copy, or the copy in a forked process, refuses every study.

    Parameters
    ----------
    epsilon, delta : float
        Upper bound on the cost of all studies together for any one unit.
    fits : int, optional
        Upper bound on the number of fits. By default only epsilon and delta limit them. Each fit is a separate study
        and is charged in full. A search for hyper-parameters (scikit-learn's `GridSearchCV`, `cross_val_score`) over
        private data is refused with or without this number, because its scores on held-out rows are not protected.

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
        # By site, since a site composes its own losses only. The site with the largest total decides.
        self._totals: dict[str, Total] = {}
        self._payments: list[_Payment] = []
        self._mutex, self._process = threading.Lock(), os.getpid()

    @property
    def epsilon(self) -> float:
        """Upper bound on the total epsilon, at this budget's delta."""
        return self._cap.epsilon

    @property
    def delta(self) -> float:
        """The delta at which epsilon is bounded."""
        return self._cap.delta

    @property
    def spent(self) -> float:
        """Exact epsilon spent so far, at this budget's delta, at the site with the largest cost."""
        return max((total.epsilon(self.delta) for total in self._totals.values()), default=0.0)

    @property
    def left(self) -> float:
        """Largest epsilon that one more study may cost.

        It exceeds `epsilon - spent`, because composing Gaussian losses costs less than adding their epsilons. It is for
        Gaussian noise; a study with Laplace noise may cost `left_for("laplace")`.
        """
        return self.left_for("gaussian")

    def left_for(self, noise: Noise) -> float:
        """Largest epsilon that one more study with this noise law may cost.

        Parameters
        ----------
        noise : {"gaussian", "laplace"}
            The law of its noise.
        """
        return min((left_under(total, self._cap, noise) for total in self._totals.values()), default=self.epsilon)

    @contextmanager
    def paying(self, plan: Plan, observer: Observer) -> Iterator[Observer]:
        """Context manager that charges a plan on entry and refunds it if the study fails before its first request.

        Parameters
        ----------
        plan : Plan
            The plan to charge. `BudgetExceeded` is raised on entry if it does not fit.
        observer : callable
            Receives the progress reports of the run.

        Yields
        ------
        callable
            The observer to pass to the run. The refund decision depends on its reports, so the run must call it.
        """
        begun = False

        def watch(progress: Progress) -> None:
            """Observer that records whether a site may have released data."""
            nonlocal begun
            # A site releases data at the earliest in the set-up or first round. Once all sites have consented the
            # ledgers may be charged too, so a later failure is not refunded.
            begun = (
                begun
                or progress.stage in ("set-up", "round")
                or (progress.stage == "consent" and progress.done == progress.planned)
            )
            observer(progress)

        payment = self._pay(plan)
        try:
            yield watch
        except BaseException:
            if not begun:
                self._refund(payment)
            raise

    def _refund(self, payment: _Payment) -> None:
        """Remove one payment and recompute the totals of the remaining payments."""
        with self._mutex:
            self._payments = [each for each in self._payments if each is not payment]
            # A composed `Total` cannot be subtracted from. The totals are therefore recomputed from all other payments.
            totals: dict[str, Total] = {}
            for each in self._payments:
                for site, spends in each.items():
                    totals[site] = totals.get(site, Total()).plus((spend, spend.mu) for spend in spends)
            self._totals, self.fitted = totals, self.fitted - 1

    def _pay(self, plan: Plan) -> _Payment:
        """Charge a plan to every site of the roster, or raise without any change.

        Raises
        ------
        Refused
            In another process than the one that made the budget.
        BudgetExceeded
            If no fit is left, or the composed loss of a site would exceed epsilon at delta.
        """
        # Two processes would each pay from the full budget, since copies do not share their totals.
        if self._process != os.getpid():
            raise Refused("a budget belongs to the process it was made in, and this is a copy: use n_jobs=1")
        with self._mutex:
            if self.fits is not None and self.fitted >= self.fits:
                raise BudgetExceeded(f"the budget pays for {counted(self.fits, 'fit')}, all of which are used")
            payment: _Payment = {}
            after = dict(self._totals)
            # Without noise there is no finite cost. The sites' policies admit such a plan for public or synthetic data
            # only.
            if plan.scheme.facts.noisy:
                for position, site in enumerate(plan.sites):
                    payment[site.name] = spends = unpaid(plan, position, StudyProgress())
                    total = after.get(site.name, Total()).plus((spend, spend.mu) for spend in spends)
                    if self._cap.exceeded(total.epsilon(self.delta)):
                        raise BudgetExceeded(
                            f"the budget of epsilon {self.epsilon:g} at delta {self.delta:g} has "
                            f"{self.left_for(law_of(plan)):.4g} left for one more study, and with this one "
                            f"{format_epsilon(total.epsilon(self.delta))} would be spent"
                        )
                    after[site.name] = total
            # Set after all sites have passed: a refusal changes nothing.
            self._totals, self.fitted = after, self.fitted + 1
            self._payments.append(payment)
            return payment

    def __repr__(self) -> str:
        paid = counted(self.fitted, "fit") if self.fits is None else f"{self.fitted} of {counted(self.fits, 'fit')}"
        return (
            f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}): {paid}, "
            f"epsilon {format_epsilon(self.spent)} spent, {self.left:.4g} left for one more study"
        )

    # scikit-learn clones estimators and copies their parameters. All clones must charge the same budget, so copying
    # returns the object itself.

    def __sklearn_clone__(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling: the totals, without lock, process and single payments."""
        return {"cap": self._cap, "fits": self.fits, "fitted": self.fitted, "totals": self._totals}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy that reports its totals and refuses to pay (process id 0 matches no process)."""
        self._cap, self.fits, self.fitted, self._totals = (state[key] for key in ("cap", "fits", "fitted", "totals"))
        self._mutex, self._process, self._payments = threading.Lock(), 0, []  # Process 0: `_pay` refuses.
