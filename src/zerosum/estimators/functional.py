"""Private minimum of a user-defined polynomial loss over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.errors import BadParameter
from zerosum.estimators.base import Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.regression import JointRegression
from zerosum.estimators.validation import RANGE, Constraint, optional


@documented
@dataclass(eq=False, repr=False)
class PolynomialLoss(JointRegression):
    """Private minimum of a polynomial loss that you define: the functional mechanism.

    Parameters
    ----------
    table : array of shape (degree + 1, k)
        The loss of a row: `table[j][k]` multiplies (x.w)^j y^k, with y the response mapped from its range to [-1, 1].
        Squared error is `[[0, 0, 1], [0, -2, 0], [1, 0, 0]]`.
    ridge : float, default=2.0
        Ridge of the quadratic part, over the norm of its noise.
    largest : float, optional
        Largest distance of the minimum from the origin, for a degree above 2; by default the program's choice.
    %(ranges)s
    %(response_range)s
    %(regression)s
    %(privacy)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients of x.w at the minimum of the noisy loss, in the units of the data.
    intercept_ : float
        Intercept of x.w there; 0 if `fit_intercept` is False.
    loss_ : float
        Noisy mean loss there.
    %(fitted)s

    %(notes)s

    The coefficients have no standard errors: the loss need not be a likelihood.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [rows @ [0.5, -0.3] for rows in X]
    >>> squared = [[0, 0, 1], [0, -2, 0], [1, 0, 0]]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> fitted = PolynomialLoss(squared, lower=-1, upper=1, response=(-1, 1), epsilon=3, **seeded).fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - [0.5, -0.3])) < 0.1)
    True
    """

    _algorithm: ClassVar[str] = "polynomial-loss"
    _not_parameters: ClassVar[Mapping[str, str]] = {
        **JointRegression._not_parameters,
        "offset": "the program refuses it: the loss depends on x.w alone",
        **dict.fromkeys(("evaluate_share", "hold_out", "draw"), "the program refuses it: there is no evaluation"),
    }
    _constraints: ClassVar[Mapping[str, Constraint]] = {**JointRegression._constraints, "response": optional(RANGE)}

    table: ArrayLike | None = None
    _: KW_ONLY
    ridge: float = 2.0
    largest: float | None = None

    def fit(self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, weights: Any = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        %(fit_x)s
        y : list or dict of vectors, or one vector
            Response of every row, by site as X.
        %(fit_sites)s
        weights : as y, optional
            Weight of every row, from 0 to 1. Weights are private, as all columns of a unit.

        %(fit_returns)s
        """
        return self._fit_to(X, y, sites, {"weights": weights})

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return self._numeric_range(tables)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        if self.table is None:
            raise BadParameter("give the table of the loss: table[j][k] multiplies (x.w)^j y^k")
        return super()._parameters(tables) | {"table": np.asarray(self.table, dtype=np.float64)}

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.loss_ = float(estimate["loss"][0])
