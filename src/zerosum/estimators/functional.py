"""The private minimum of a polynomial loss of one's own, over sites.

Tested in tests/estimators/test_regression_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.errors import BadParameter
from zerosum.estimators.base import DataMark, Tables
from zerosum.estimators.regression import JointRegression
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class PolynomialLoss(JointRegression):
    """The private minimum of a polynomial loss of one's own: the functional mechanism.

    Parameters are those of `LinearRegression`, and `table`: `table[j][k]` multiplies (x.w)^j y^k in the loss of a row,
    where y is the response in its range mapped to -1 to 1. Squared error is `[[0, 0, 1], [0, -2, 0], [1, 0, 0]]`.

    Attributes
    ----------
    coef_, intercept_
        Of x.w, where the noisy loss is lowest.
    loss_ : float
        The noisy mean loss there.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [rows @ [0.5, -0.3] for rows in X]
    >>> squared = [[0, 0, 1], [0, -2, 0], [1, 0, 0]]
    >>> made_up = {"random_state": 0, "data": "synthetic"}
    >>> fitted = PolynomialLoss(squared, lower=-1, upper=1, response=(-1, 1), epsilon=3, **made_up).fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - [0.5, -0.3])) < 0.1)
    True
    """

    _algorithm: ClassVar[str] = "polynomial-loss"

    def __init__(
        self,
        table: ArrayLike | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        response: ArrayLike | None = None,
        center: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        fit_intercept: bool = True,
        standardise: Literal["auto", "dp", "none"] = "auto",
        clip: float | None = None,
        missing: Missing = None,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            lower=lower,
            upper=upper,
            response=response,
            center=center,
            scale=scale,
            fit_intercept=fit_intercept,
            standardise=standardise,
            clip=clip,
            missing=missing,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.table = table

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return self._numeric_range(tables)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        if self.table is None:
            raise BadParameter("give the table of the loss: table[j][k] multiplies (x.w)^j y^k")
        return super()._parameters(tables) | {"table": np.asarray(self.table, dtype=np.float64)}

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.loss_ = float(estimate["loss"][0])
