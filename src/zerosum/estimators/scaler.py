"""Private standardisation of columns over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import ColumnRanges, Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.validation import BOOLEAN, Constraint
from zerosum.kernel.missing import Missing


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class StandardScaler(OneToOneFeatureMixin, TransformerMixin, ColumnRanges):  # type: ignore[misc]  # sklearn is untyped
    """Columns minus their joint private mean, divided by their joint private standard deviation.

    Means and standard deviations of all columns come from one release.

    Parameters
    ----------
    %(ranges)s
    missing : float, str or dict, optional
        Rule for missing values (NaN) in `fit`, for all columns or by column name: a number that replaces them, or
        "observed", which uses the observed units only. By default missing values are refused.
    with_mean, with_std : bool, default=True
        Whether columns are centred, and whether they are scaled.
    %(privacy)s

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of each column, of values clamped to their ranges.
    noise_std_ : ndarray of shape (n_features,)
        Standard deviation that privacy adds to each mean.
    scale_ : ndarray of shape (n_features,)
        Standard deviation of each column; 1 if the noise exceeds it.
    %(fitted)s

    %(notes)s

    A seeded run may leave the ranges out; it takes the extremes of the data and adds a note to `notes_`.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([50, 120], [10, 15], size=(900, 2)) for name in ("north", "east", "south")}
    >>> scaler = StandardScaler(lower=[0, 50], upper=[100, 250], random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(scaler.transform(sites["north"]).std(axis=0) - 1) < 0.2))
    True
    """

    _algorithm: ClassVar[str] = "describe"
    _not_parameters: ClassVar[Mapping[str, str]] = {
        **ColumnRanges._not_parameters,
        **dict.fromkeys(("levels", "by"), "a scaler has no categories and no groups"),
        **dict.fromkeys(("probabilities", "whole", "bins"), "a scaler has no quantiles"),
        **dict.fromkeys(("parts", "shares"), "a scaler releases means only"),
    }
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **ColumnRanges._constraints,
        "with_mean": BOOLEAN,
        "with_std": BOOLEAN,
    }

    missing: Missing = None
    with_mean: bool = True
    with_std: bool = True

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        if (self.lower is None) != (self.upper is None):
            raise BadParameter("lower and upper belong together: give both or neither")
        lower, upper = self._bounds_or_extremes(tables)
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        # The program takes ranges by name; both forms of the constructor become that form.
        ranges = dict(zip(self._columns, pairs, strict=True))
        return super()._parameters(tables) | {"ranges": ranges, "parts": ("means",)}

    def _width_of_constant(self, value: Floats) -> Floats:
        # In proportion to the value, so that a constant of 1e9 has a range wider than its rounding.
        return np.asarray(np.maximum(np.abs(value), 1.0))

    def _learn(self, estimate: Estimate) -> None:
        self.mean_: Floats = np.asarray(estimate["mean"])[0]
        self.noise_std_: Floats = np.asarray(estimate["mean"].std)[0]
        spread = np.asarray(estimate["sd"])[0]
        # Noise may leave a variance that is not positive; the column is then centred only.
        self.scale_: Floats = np.where(spread > 0, spread, 1.0)

    def transform(self, X: ArrayLike) -> Floats:
        """Centre and scale rows.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_features)
            The rows minus the mean, divided by the scale.
        """
        rows = self._own_rows(X)
        rows = rows - self.mean_ if self.with_mean else rows
        return np.asarray(rows / self.scale_ if self.with_std else rows)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Undo `transform`.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Transformed rows.

        Returns
        -------
        ndarray of shape (rows, n_features)
            The rows in the units of the data.
        """
        rows = self._own_rows(X)
        rows = rows * self.scale_ if self.with_std else rows
        return np.asarray(rows + self.mean_ if self.with_mean else rows)
