"""Data Collaboration under differential privacy: every unit's reduced record is published once, under noise of its own,
and one model is trained on what was published.

As published (Yamashiro et al. 2024; `zerosum.papers.methods.collaboration`) every site reduces its records by its own
map, the server aligns the maps by anchor data that all sites share, and noise protects one pixel. Here whole units are
protected. The reduction is public, or bought from all sites by a private sum, so that every site has the same one and
there is nothing to align; no anchors are needed, and no guarantee rests on a map that the server does not know.

Labels are inside the published vector rather than randomised by themselves. Both stay within one budget; the joint
vector spends it where the planner puts it, on one mu with no second mechanism to compose, and its errors are normal, of
a known size and independent of the features', which is what the model below corrects for.

Tested in tests/algorithms/test_collaboration.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import shown
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.training.classifier import FeatureAlgorithm, whitener
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.records import LabelledRecords
from zerosum.statistics.softmax import FeatureMoments

_LABEL_WEIGHT = 1.5  # of the one-hot class beside a record of norm 1: best of 0.5, 1 and 1.5 from epsilon 4 to 50
_WIDTH = 1.5  # times the fourth root of the units over a record's noise: how many numbers are worth publishing
_GUESSED_NOISE = 0.5  # of a publication of sensitivity 1, before a plan says
_WHITENER_RIDGE = 0.2  # of the whitener, over the norm of its noise
_RIDGE = 8.0  # of the model, over the norm of the noise of the records' second moment


class DataCollaborationProgram(FeatureAlgorithm):
    """A classifier trained on noisy records that every site publishes. Columns are what features are made of and,
    last, the class.

    **Training through the private sum (`feature-classifier`) is better under the same guarantee, by far**: there the
    noise is that of one sum, here every record carries all of its own. This is for those who must have records.

    A row's public features are reduced to `n_components` numbers and brought to norm 1. `reduction = "dp"` buys their
    mean and second moments for `reduction_share` through a private sum, and whitens; `"random"` is a public random
    projection from `seed` about the public `center`, and buys nothing. A unit's record and the one-hot vector of its
    class times `label_weight` are published together: `zerosum.statistics.records.LabelledRecords` has the proof. How
    many numbers are published and how much the class weighs follows from the noise, which is public, unless given.

    One linear model is trained on the published records, corrected for their noise (`corrected_least_squares`). The
    way back is free: a site reduces its own records without noise and predicts.

    Results: `center`, `projection` and `weights` (the constant last), which classify features; `noise` (the standard
    deviation of every published number); with `keep_records`, `records`: all that was published.
    """

    name: ClassVar[str] = "data-collaboration"

    reduction: Literal["dp", "random"] = "dp"
    reduction_share: float = Field(default=0.15, gt=0, lt=1)
    n_components: int | None = Field(default=None, ge=1)
    label_weight: float | None = Field(default=None, ge=1e-3, le=1e3)
    center: FloatArray | None = None
    """With `reduction = "random"`, what is taken off the features, public."""
    seed: int = Field(default=0, ge=0)
    """Of the public random projection, nothing else."""
    keep_records: bool = False

    @model_validator(mode="after")
    def _reduction_fits(self) -> Self:
        size = self.feature_map.size
        if self.center is not None and self.reduction == "dp":
            raise ValueError("a public center is for a public reduction: with reduction = 'dp' it is bought")
        if self.center is not None and self.center.shape != (size,):
            raise ValueError(f"center must hold one number for each of the {size} features")
        if self.n_components is not None and self.n_components > size:
            raise ValueError(f"n_components must be at most the {size} features, got {self.n_components}")
        return self

    def resolve(self, facts: PublicFacts) -> Self:
        """Products of a record's noise and its class's are averaged over units: that says how many numbers pay."""
        weight = self.label_weight or _LABEL_WEIGHT
        alone = facts.noise if facts.published is None else facts.published
        noise = max(alone * math.sqrt((4 + 2 * weight**2) / self._left), 1e-3)
        fitting = round(_WIDTH * (facts.units or GUESSED_UNITS) ** 0.25 / noise)
        width = self.n_components or int(np.clip(fitting, 5, min(self.feature_map.size, 200)))
        return self.model_copy(update={"label_weight": weight, "n_components": min(width, self.feature_map.size)})

    @property
    def describe(self) -> str:
        width = f"{self.n_components} numbers" if self.n_components else "a few numbers"
        return (
            f"publishes a noisy record of every unit, {width} and its class at weight {self._weight:g}; better under "
            "the same guarantee: algorithm = 'feature-classifier', which trains through the private sum"
        )

    @property
    def _left(self) -> float:
        return 1 - self.reduction_share if self.reduction == "dp" else 1.0

    @property
    def _weight(self) -> float:
        return self.label_weight or _LABEL_WEIGHT

    @property
    def _width(self) -> int:
        if self.n_components is not None:
            return self.n_components
        return self.resolve(PublicFacts(_GUESSED_NOISE, None)).n_components or 1

    # ---- requests --------------------------------------------------------------------------------------------------

    def _moments(self) -> FeatureMoments:
        return FeatureMoments(columns=len(self.columns), features=self.features)

    def _records(self, center: Floats, projection: Floats) -> LabelledRecords:
        return LabelledRecords(
            columns=len(self.columns),
            features=self.features,
            classes=len(self.classes),
            center=center,
            projection=projection,
            label_weight=self._weight,
        )

    def _public(self) -> tuple[Floats, Floats]:
        """Where records are reduced about, and how, before anything is bought."""
        size = self.feature_map.size
        center = np.zeros(size) if self.center is None else self.center
        drawn = np.random.default_rng(self.seed).normal(size=(size, self._width))
        return center, np.linalg.qr(drawn)[0]

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        bought = (PrivateSum(self._moments(), self.reduction_share),) if self.reduction == "dp" else ()
        return (*bought, PrivatePublication(self._records(*self._public()), self._left))

    def program(self, adjacency: Adjacency) -> Program:
        center, projection = self._public()
        if self.reduction == "dp":
            statistic = self._moments()
            release = yield PrivateSum(statistic, self.reduction_share)
            second, first, _counted = statistic.split(release.value)
            units = release.units or 1.0
            center, noise = first / units, 2 * release.noise_std / units
            covariance = second / units - np.outer(center, center)
            projection = whitener(covariance, self._width, _WHITENER_RIDGE * noise)
        release = yield PrivatePublication(self._records(center, projection), self._left)
        weights = corrected_least_squares(release.value, self._width, release.noise_std, self._weight)
        return self._named(center, projection, weights, release.value, release.noise_std)

    def _named(
        self, center: Floats, projection: Floats, weights: Floats, records: Floats, noise: float
    ) -> dict[str, Quantity]:
        features = Axis.numbered("feature", self.feature_map.size)
        kept = tuple(str(at + 1) for at in range(self._width))
        classes = tuple(map(shown, self.classes))
        along = Axis("direction", (*kept, "constant")), Axis("class", classes)
        found = {
            "center": Quantity(center, "number", (features,)),
            "projection": Quantity(projection, "filter", (features, Axis("direction", kept))),
            "weights": Quantity(weights, "coefficient", along),
            "noise": Quantity(np.array([noise]), "diagnostic"),
        }
        if self.keep_records:
            numbers = Axis("number", (*kept, *(f"class {each}" for each in classes)))
            axes = Axis.numbered("record", len(records)), numbers
            found["records"] = Quantity(records, "number", axes, np.full(records.shape, noise))
        return found


def corrected_least_squares(records: Floats, width: int, noise: float, weight: float) -> Floats:
    """Weights of z and, last, a constant that give the probability of every class, from published (z, weight e).

    Noise adds noise^2 to the variance of every number and nothing to the covariance of z with e. So it is taken off
    the second moment of z, and a ridge as large as what noise leaves there on average keeps directions from being
    divided by noise.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.where(rng.random(20000) < 0.5, 1.0, -1.0)
    >>> table = np.column_stack([truth, truth > 0, truth < 0]) + 0.3 * rng.normal(size=(20000, 3))
    >>> corrected_least_squares(table, 1, 0.3, 1.0).round(1).tolist()
    [[0.5, -0.5], [0.5, 0.5]]
    """
    z, e = records[:, :width], records[:, width:] / weight
    center, shares = np.mean(z, axis=0), np.mean(e, axis=0)
    z = z - center
    moment = z.T @ z / len(z) - noise**2 * np.eye(width)
    values, vectors = np.linalg.eigh(moment)
    spread = max(float(np.trace(moment)) / width, 0.0)
    ridge = _RIDGE * noise * math.sqrt((2 * spread + noise**2) * width / len(z)) + 1e-9
    turned = vectors.T @ (z.T @ (e - shares) / len(z)) / (np.maximum(values, 0) + ridge)[:, None]
    slopes = vectors @ turned
    # classes' shares have noise too: shrunk as far as that goes (James and Stein), and as much as slopes are
    even = np.full(len(shares), 1 / len(shares))
    apart = float(np.sum((shares - even) ** 2)) + 1e-300
    kept = max(0.0, 1 - (len(shares) - 1) * (noise / weight) ** 2 / (len(z) * apart))
    kept *= spread / (spread + ridge)
    return np.vstack([slopes, even + kept * (shares - even) - center @ slopes])
