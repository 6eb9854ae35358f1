"""Data Collaboration: a classifier trained on noisy records that sites publish.

Tested in tests/estimators/test_collaboration_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import DataMark, JointEstimator, Tables
from zerosum.estimators.classifier import FeatureBased
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.statistics.features import FeatureMap
from zerosum.study import DEFAULT_SCHEME, Budget, Unit

_SHARP = 20.0  # how fast a negative estimate of a probability goes to zero


class DataCollaboration(FeatureBased):
    """Classifier trained on noisy records that every site publishes.

    **`FeatureClassifier` is better under the same guarantee, by far**: it trains through the private sum, where noise
    is shared by all units, and publishes nobody. This is for those who must have records. A site's policy has to allow
    it (`publications = true`).

    Every unit's reduced record is published once, together with its class, under noise that protects the whole record
    and the class. A site predicts its own records without noise.

    Parameters
    ----------
    features : str, dict or FeatureMap, default="random"
        As in `FeatureClassifier`.
    classes : sequence
        The classes, which are public.
    lower, upper : float or array of shape (n_features,)
        Public ranges of the columns, or of the pixels.
    n_components : int, optional
        How many numbers a record is reduced to; chosen from the noise, which is public, unless given.
    reduction : {"dp", "random"}, default="dp"
        Whether the reduction is bought from all sites by a private sum, or a public random projection.
    reduction_share : float, default=0.15
        The share of the budget that buys it.
    label_weight : float, optional
        How much the class weighs beside a record of norm 1.
    keep_records : bool, default=False
        Whether everything that was published is kept in `records_`.
    epsilon, delta, scheme, colluders, dropouts, unit, policies, random_state, data, budget
        As in `PCA`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    center_, projection_, weights_ : ndarrays
        What features are centred at, their reduction, and the weights of its directions, the constant last.
    noise_ : float
        The standard deviation of every published number.
    records_ : ndarray of shape (units, n_components + n_classes)
        With `keep_records`, what was published.
    privacy_, result_, notes_
        As in `PCA`.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [(rows[:, 0] > 0).astype(int) for rows in X]
    >>> made_up = {"random_state": 0, "data": "synthetic"}
    >>> joint = DataCollaboration("linear", classes=[0, 1], lower=-1, upper=1, epsilon=8, **made_up).fit(X, y)
    >>> bool(joint.score(X[0], y[0]) > 0.9)
    True
    """

    _algorithm: ClassVar[str] = "data-collaboration"

    def __init__(
        self,
        features: str | Mapping[str, Any] | FeatureMap = "random",
        *,
        classes: Sequence[Any] | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        n_components: int | None = None,
        reduction: Literal["dp", "random"] = "dp",
        reduction_share: float = 0.15,
        label_weight: float | None = None,
        keep_records: bool = False,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        JointEstimator.__init__(
            self,
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.features = features
        self.classes = classes
        self.lower = lower
        self.upper = upper
        self.n_components = n_components
        self.reduction = reduction
        self.reduction_share = reduction_share
        self.label_weight = label_weight
        self.keep_records = keep_records

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return {
            "classes": self._class_names,
            "features": self._settings(tables),
            "n_components": self.n_components,
            "reduction": self.reduction,
            "reduction_share": self.reduction_share,
            "label_weight": self.label_weight,
            "keep_records": self.keep_records,
        }

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.noise_ = float(estimate["noise"][0])
        if "records" in estimate:
            self.records_: Floats = estimate["records"].value.copy()
        self._note("FeatureClassifier trains through the private sum and is better under the same guarantee")

    def _logits(self, rows: Floats) -> Floats:
        """Least squares estimates probabilities, of which some are negative: those become small instead."""
        shares = self._directions(rows) @ self.weights_[:-1] + self.weights_[-1]
        return np.asarray(np.log(np.maximum(np.logaddexp(0, _SHARP * shares), 1e-300)))
