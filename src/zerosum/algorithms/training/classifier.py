"""A linear classifier on public features, trained by full-batch gradient descent through the private sum.

Model
-----
A row has public features f and a class y. With mean m and whitener W of the features, z = (W'(f - m), 1), and the
probabilities of the classes are softmax(z'B) with weights B (width + 1, classes). Releases:

1. mean and second moments of the features (`FeatureMoments`, share `whiten_share`): m and W;
2. in each of `rounds` rounds the sum of the units' gradients, each clipped to norm `clip` (`SoftmaxGradient`); all
   rounds are one phase of the accountant, with rate 1;
3. optional, a histogram of the predictions for held-out units (`SoftmaxPredictions`, share `evaluate_share`).

Steps, averaging and evaluation are free post-processing.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import shown
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.algorithms.training.evaluation import quality_of
from zerosum.arrays import Floats
from zerosum.kernel.events import Sampling
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.features import FeatureMap, build
from zerosum.statistics.softmax import FeatureMoments, SoftmaxGradient, SoftmaxPredictions

# Settings found by search at a noise of _NOISE of a mean gradient of norm 1: learning time (rounds times step), rounds
# and clip. At other noise they are multiplied by powers of _NOISE/noise, fitted over a factor of thirty in the noise,
# on two sets of images with 2000 to 50 000 images.
_NOISE, _TIME, _ROUNDS, _CLIP = 8.9e-4, 7100.0, 40.0, 0.33
_TIME_POWER, _ROUNDS_POWER, _CLIP_POWER = 0.68, 0.2, 0.14
_RIDGE = 0.2  # ridge of the whitener, over the noise of an entry of the second moment; chosen by hand
_FARTHEST = 1e6  # largest weight, as a limit on the arithmetic only
_AVERAGED = 0.85  # factor of the exponential average of the weights over rounds; chosen by hand


class FeatureAlgorithm(Algorithm):
    """Base class of algorithms on public features of all columns but the last, which holds the class.

    `classes` are public. Columns without names are called x0, x1, ... and class.
    """

    classes: tuple[str | float | bool, ...] = Field(min_length=2, max_length=1000)
    features: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _columns_follow(cls, parameters: Any) -> Any:
        """Names the columns x0, x1, ... and class if none are given, since pixels of images have no names."""
        if (
            isinstance(parameters, dict)
            and "columns" not in parameters
            and isinstance(parameters.get("features"), dict)
        ):
            numbered = (f"x{at}" for at in range(build(parameters["features"]).inputs))
            return parameters | {"columns": (*numbered, "class")}
        return parameters

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must be different from each other, got {list(self.classes)}")
        if self.feature_map.inputs != len(self.columns) - 1:
            raise ValueError(
                f"columns must be the {self.feature_map.inputs} inputs of the features and the class, "
                f"{self.feature_map.inputs + 1} in all, got {len(self.columns)}"
            )
        return self

    @cached_property
    def feature_map(self) -> FeatureMap:
        return build(self.features)

    @property
    def categories(self) -> dict[str, tuple[str | float | bool, ...]]:  # type: ignore[override]
        return {self.columns[-1]: self.classes}


class FeatureClassifierProgram(FeatureAlgorithm):
    """Softmax regression on public features. The columns are the inputs of the features and, last, the class.

    One release of the features' mean and second moments, for `whiten_share`, gives a whitener of up to `directions`
    directions. Then `rounds` rounds of gradient descent take the rest of the budget, as one phase in which all units
    take part in every round. Weights are averaged over the last rounds. The planner chooses rounds, learning rate and
    clip from the noise, which is public, unless they are given.

    `evaluate_share` pays for a histogram of the predictions of held-out units. A hash of a unit's own data decides
    whether it is held out; about `hold_out` of the units are, and they are not trained on. With `hold_out` 0 the
    histogram is over all units.

    Results: `center`, `projection` and `weights` (the bias last), which classify features; with `evaluate_share` also
    `accuracy`, `accuracy_interval_95`, `confusion` and `calibration`.
    """

    name: ClassVar[str] = "feature-classifier"

    directions: int = Field(default=400, ge=1)
    """Largest number of directions of the features."""
    whiten_share: float = Field(default=0.06, gt=0, lt=1)
    """Share of the budget for the features' mean and second moments."""
    evaluate_share: float = Field(default=0.0, ge=0, lt=0.5)
    hold_out: float = Field(default=0.1, ge=0, le=0.9)
    rounds: int | None = Field(default=None, ge=1, le=10_000)
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @property
    def describe(self) -> str:
        return f"{self._turns} rounds over all units, gradients clipped at {self._clip:.3g}"

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets rounds, clip and learning rate: less noise allows longer training, more rounds and a wider clip."""
        units = (facts.units or GUESSED_UNITS) * (1 - self._held_out)
        quiet = _NOISE / max(2 * facts.noise / units, 1e-12)
        rounds = self.rounds or int(np.clip(round(_ROUNDS * quiet**_ROUNDS_POWER), 5, 200))
        time = min(_TIME * quiet**_TIME_POWER, 1e6)
        chosen = {
            "rounds": rounds,
            "clip": self.clip or min(1.0, _CLIP * quiet**_CLIP_POWER),
            "learning_rate": self.learning_rate or time / rounds,
        }
        return self.model_copy(update=chosen)

    @property
    def _turns(self) -> int:
        return self.rounds or int(_ROUNDS)

    @property
    def _clip(self) -> float:
        return self.clip or _CLIP

    @property
    def _held_out(self) -> float:
        return self.hold_out if self.evaluate_share else 0.0

    @property
    def _width(self) -> int:
        return min(self.directions, self.feature_map.size)

    @property
    def _left(self) -> float:
        return 1 - self.whiten_share - self.evaluate_share

    # ---- requests --------------------------------------------------------------------------------------------------

    def _shared(self, *, judged: bool = False) -> dict[str, Any]:
        part = "all" if not self._held_out else ("held-out" if judged else "fitted")
        return {
            "columns": len(self.columns),
            "features": self.features,
            "part": part,
            "hold_out": self._held_out,
        }

    def _moments(self, adjacency: Adjacency) -> FeatureMoments:
        return FeatureMoments(**self._shared(), count=adjacency is Adjacency.ADD_REMOVE)

    def _gradient(self, center: Floats, projection: Floats, weights: Floats) -> PrivateSum:
        statistic = SoftmaxGradient(
            **self._shared(),
            classes=len(self.classes),
            center=center,
            projection=projection,
            weights=weights,
            clip=self._clip,
        )
        return PrivateSum(statistic, self._left, Sampling(1.0, self._turns))

    def _predictions(self, center: Floats, projection: Floats, weights: Floats) -> SoftmaxPredictions:
        return SoftmaxPredictions(
            **self._shared(judged=True),
            classes=len(self.classes),
            center=center,
            projection=projection,
            weights=weights,
        )

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        size = self.feature_map.size
        unknown = np.zeros(size), np.eye(size, self._width), np.zeros((self._width + 1, len(self.classes)))
        judged = (PrivateSum(self._predictions(*unknown), self.evaluate_share),) if self.evaluate_share else ()
        return (PrivateSum(self._moments(adjacency), self.whiten_share), self._gradient(*unknown), *judged)

    def program(self, adjacency: Adjacency) -> Program:
        statistic = self._moments(adjacency)
        release = yield PrivateSum(statistic, self.whiten_share)
        second, first, counted = statistic.split(release.value)
        units = counted if counted is not None else (release.units or 1.0) * (1 - self._held_out)
        units = max(units, 1.0)
        mean, noise = first / units, 2 * release.noise_std / units
        projection = whitener(second / units - np.outer(mean, mean), self._width, _RIDGE * noise)
        weights = np.zeros((self._width + 1, len(self.classes)))
        average, mass = np.zeros_like(weights), 0.0
        step = self.learning_rate or _TIME / self._turns
        for _ in range(self._turns):
            release = yield self._gradient(mean, projection, weights)
            weights = weights - step / units * release.value.reshape(weights.shape)
            weights = np.clip(weights, -_FARTHEST, _FARTHEST)
            average, mass = _AVERAGED * average + (1 - _AVERAGED) * weights, _AVERAGED * mass + 1 - _AVERAGED
        weights = average / mass
        found = self._named(mean, projection, weights)
        if not self.evaluate_share:
            return found
        judging = self._predictions(mean, projection, weights)
        release = yield PrivateSum(judging, self.evaluate_share)
        return {**found, **quality_of(judging, release, self.classes)}

    def _named(self, center: Floats, projection: Floats, weights: Floats) -> dict[str, Quantity]:
        size = self.feature_map.size
        names = Axis.numbered("feature", size)
        kept = tuple(str(at + 1) for at in range(self._width))
        classes = Axis("class", tuple(map(shown, self.classes)))
        return {
            "center": Quantity(center, "number", (names,)),
            "projection": Quantity(projection, "filter", (names, Axis("direction", kept))),
            "weights": Quantity(weights, "coefficient", (Axis("direction", (*kept, "bias")), classes)),
        }


def whitener(covariance: Floats, width: int, ridge: float) -> Floats:
    """Directions of largest variance, each divided by sqrt(variance + ridge of the noise's norm); (columns, width).

    Directions of negative variance, which are noise, are zero. `ridge` is for one entry of the noise: a symmetric noise
    matrix has spectral norm about sqrt(2 columns) times that.

    >>> whitener(np.diag([4.0, 1.0, -1.0]), 3, 0.0).round(3).tolist()
    [[0.5, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values, vectors = values[::-1][:width], vectors[:, ::-1][:, :width]
    vectors = vectors * np.where(np.max(vectors, axis=0) >= -np.min(vectors, axis=0), 1.0, -1.0)
    floor = ridge * math.sqrt(2 * len(covariance)) + 1e-7 * max(float(values[0]), 1e-300)
    return np.asarray(vectors * np.where(values > 0, 1 / np.sqrt(np.maximum(values, 0) + floor), 0.0))
