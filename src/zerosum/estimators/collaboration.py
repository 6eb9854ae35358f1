"""Data Collaboration: a classifier trained on noisy records that sites publish."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.classifier import FeatureBased
from zerosum.estimators.documentation import documented

# Steepness of the soft maximum that replaces negative estimates of probabilities. Chosen by hand; no benchmark
# recorded.
_STEEPNESS = 20.0


@documented
@dataclass(eq=False, repr=False)
class DataCollaboration(FeatureBased):
    """Classifier trained on noisy records that every site publishes.

    **`FeatureClassifier` is much better under the same guarantee**: it trains through the private sum, where all units
    share the noise, and publishes no records. Use this class only if records are required. The policy of a site has to
    allow it (`publications = true`).

    The reduced record of every unit is published once, together with its class, with noise that protects the whole
    record and the class. A site predicts its own records without noise.

    Parameters
    ----------
    features : str, dict or FeatureMap, default="random"
        Public features, as in `FeatureClassifier`.
    %(classes)s
    %(ranges)s
    n_components : int, optional
        Number of entries of a reduced record; by default chosen from the noise.
    reduction : {"dp", "random"}, default="dp"
        Whether the reduction is estimated from all sites by a private sum, or is a public random projection.
    reduction_share : float, default=0.15
        Share of the budget for the private reduction.
    label_weight : float, optional
        Weight of the class relative to a record of norm 1; by default the program's choice.
    center : array of shape (features,), optional
        With `reduction="random"`: public centre that is subtracted from the features.
    seed : int, default=0
        Seed of the public random projection. It does not affect privacy.
    keep_records : bool, default=False
        Whether the published records are stored in `records_`.
    %(privacy)s

    Attributes
    ----------
    %(feature_model)s
    projection_ : ndarray of shape (features, n_components)
        Reduction of the features.
    weights_ : ndarray of shape (n_components + 1, n_classes)
        Weights of the directions; those of the constant are last.
    noise_std_ : float
        Standard deviation that privacy adds to every published number.
    records_ : ndarray of shape (units, n_components + n_classes)
        The published records; only with `keep_records`.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [(rows[:, 0] > 0).astype(int) for rows in X]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> joint = DataCollaboration("linear", classes=[0, 1], lower=-1, upper=1, epsilon=8, **seeded).fit(X, y)
    >>> bool(joint.score(X[0], y[0]) > 0.9)
    True
    """

    _algorithm: ClassVar[str] = "data-collaboration"

    _: KW_ONLY
    n_components: int | None = None
    reduction: Literal["dp", "random"] = "dp"
    reduction_share: float = 0.15
    label_weight: float | None = None
    center: ArrayLike | None = None
    seed: int = 0
    keep_records: bool = False

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.noise_std_ = float(estimate["noise"][0])
        if "records" in estimate:
            self.records_: Floats = estimate["records"].value.copy()
        self._note("FeatureClassifier trains through the private sum and is better under the same guarantee")

    def _logits(self, rows: Floats) -> Floats:
        """Logarithms of least-squares estimates of probabilities; a soft maximum makes negative estimates small."""
        # The last row of the weights belongs to the constant.
        shares = self._directions(rows) @ self.weights_[:-1] + self.weights_[-1]
        # 1e-300 keeps the logarithm finite where the soft maximum underflows.
        return np.asarray(np.log(np.maximum(np.logaddexp(0, _STEEPNESS * shares), 1e-300)))
