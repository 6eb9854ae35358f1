"""A linear classifier on public features, trained by full-batch gradient descent through the private sum.

Model
-----
A row has public features f (F numbers) and a class y. With mean m (F) and whitener W (F, k) of the features, z =
W'(f - m) scaled to norm 1, and the probabilities of the classes are softmax((z, bias)'B) with weights B (k + 1,
classes). Each round is B <- B - step/n (sum of clipped gradients), from B = 0; the result is an exponential average of
B over the rounds. Releases:

1. mean and second moments of the features (`FeatureMoments`, share `whiten_share`, sensitivity sqrt(2)): m and W;
2. in each of `rounds` rounds the sum of the units' gradients, each clipped to norm `clip` (`SoftmaxGradient`,
   sensitivity 2 clip); all rounds are one phase of the accountant, with rate 1;
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
from zerosum.algorithms.training.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.events import Sampling
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.features import FeatureMap, build
from zerosum.statistics.softmax import FeatureMoments, SoftmaxGradient, SoftmaxPredictions


class FeatureAlgorithm(Algorithm):
    """Base class of algorithms on public features of all columns but the last, which holds the class.

    Columns without names are called x0, x1, ... and class.

    Parameters
    ----------
    classes : tuple
        Public classes, in the order of results.
    features : dict
        The feature map by its `kind` and settings (`zerosum.statistics.features`).
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
            # the feature map declares how many inputs it takes
            numbered = (f"x{at}" for at in range(build(parameters["features"]).inputs))
            return parameters | {"columns": (*numbered, "class")}
        return parameters

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse equal classes, and columns that are not the inputs of the features and the class."""
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
        """The feature map: from the inputs of a row to F features."""
        return build(self.features)

    @property
    def categories(self) -> dict[str, tuple[str | float | bool, ...]]:  # type: ignore[override]
        """The classes, in the last column."""
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

    Parameters
    ----------
    directions : int
        Largest number k of whitened directions.
    whiten_share, evaluate_share : float
        Shares of the budget for the moments and for the evaluation; the rounds have the rest.
    hold_out : float
        Share of units for the evaluation alone.
    rounds, clip, learning_rate
        Number of rounds, clip of a row's gradient and length of a step; the planner's choice if not given.
    classes, features, columns
        As for `FeatureAlgorithm`.
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
        """Rounds and clip, for the plan."""
        return f"{self._turns} rounds over all units, gradients clipped at {self._clip:.3g}"

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets rounds, clip and learning rate: less noise allows longer training, more rounds and a wider clip.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.
        """
        units = (facts.units or GUESSED_UNITS) * (1 - self._held_out)
        # Noise of a mean gradient of clip 1 (sensitivity 2) that takes the whole budget, relative to the reference.
        quiet = TUNING.reference_noise / max(2 * facts.noise / units, 1e-12)
        planned = TUNING.rounds * quiet**TUNING.rounds_exponent
        # A whitened row of norm 1 has mean square 1/k in each of k directions, so that the loss has a curvature of at
        # most 1/(2 k) there: time is counted in units of k, and a step beyond 4 k diverges (2 over the curvature).
        # Noise moves the predictor of a row by an amount that is proportional to the learning time and independent of
        # k. Fewer directions therefore need less time, and can afford more of it relative to k.
        directions = self._width / TUNING.directions
        time = TUNING.learning_time * quiet**TUNING.time_exponent * directions**TUNING.directions_exponent
        time, longest = min(time, TUNING.time_most), TUNING.rate_most * self._width
        # where steps would be too long there are more of them
        rounds = self.rounds or int(np.clip(round(max(planned, time / longest)), *TUNING.rounds_limits))
        chosen = {
            "rounds": rounds,
            "clip": self.clip or min(TUNING.clip_most, TUNING.clip * quiet**TUNING.clip_exponent),
            "learning_rate": self.learning_rate or min(time / rounds, longest),
        }
        return self.model_copy(update=chosen)

    @property
    def _turns(self) -> int:
        """Number of rounds, as declared or chosen by the planner."""
        return self.rounds or int(TUNING.rounds)

    @property
    def _clip(self) -> float:
        """Clip of a row's gradient."""
        return self.clip or TUNING.clip

    @property
    def _held_out(self) -> float:
        """Share of units that are held out: none without an evaluation."""
        return self.hold_out if self.evaluate_share else 0.0

    @property
    def _width(self) -> int:
        """k, the number of directions: at most the number of features."""
        return min(self.directions, self.feature_map.size)

    @property
    def _rounds_share(self) -> float:
        """Share of the budget for the rounds."""
        return 1 - self.whiten_share - self.evaluate_share

    # ---- requests --------------------------------------------------------------------------------------------------

    def _common_parameters(self, *, judged: bool = False) -> dict[str, Any]:
        """Parameters of all statistics; `judged`: of the held-out units, if there are any."""
        # Training and evaluation use disjoint parts, so that the accuracy is that of units the model has not seen.
        part = "all" if not self._held_out else ("held-out" if judged else "fitted")
        return {
            "columns": len(self.columns),
            "features": self.features,
            "part": part,
            "hold_out": self._held_out,
        }

    def _moments(self, adjacency: Adjacency) -> FeatureMoments:
        """The statistic of the first release. Under add/remove adjacency it also counts the units."""
        return FeatureMoments(**self._common_parameters(), count=adjacency is Adjacency.ADD_REMOVE)

    def _gradient(self, center: Floats, projection: Floats, weights: Floats) -> PrivateSum:
        """The request of one round.

        Parameters
        ----------
        center : array of shape (F,)
            m, released.
        projection : array of shape (F, k)
            W, released.
        weights : array of shape (k + 1, classes)
            B of this round.
        """
        statistic = SoftmaxGradient(
            **self._common_parameters(),
            classes=len(self.classes),
            center=center,
            projection=projection,
            weights=weights,
            clip=self._clip,
        )
        # Rate 1: under replace-one neighbours no sampling has less noise at the same number of rounds.
        return PrivateSum(statistic, self._rounds_share, Sampling(1.0, self._turns))

    def _predictions(self, center: Floats, projection: Floats, weights: Floats) -> SoftmaxPredictions:
        """The statistic of the evaluation, with the arguments of `_gradient`."""
        return SoftmaxPredictions(
            **self._common_parameters(judged=True),
            classes=len(self.classes),
            center=center,
            projection=projection,
            weights=weights,
        )

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        """The moments, one phase of rounds, then the evaluation (optional)."""
        # Templates: sensitivity and size of a release do not depend on the whitener and the weights.
        size = self.feature_map.size
        unknown = np.zeros(size), np.eye(size, self._width), np.zeros((self._width + 1, len(self.classes)))
        judged = (PrivateSum(self._predictions(*unknown), self.evaluate_share),) if self.evaluate_share else ()
        return (PrivateSum(self._moments(adjacency), self.whiten_share), self._gradient(*unknown), *judged)

    def program(self, adjacency: Adjacency) -> Program:
        """The moments, the rounds of gradient descent, and the evaluation."""
        statistic = self._moments(adjacency)
        release = yield PrivateSum(statistic, self.whiten_share)
        second, first, counted = statistic.split(release.value)
        # Number of fitted units: the noisy count, or the expected part of the public number. How many units the hash
        # really holds out is not released.
        units = counted if counted is not None else (release.units or 1.0) * (1 - self._held_out)
        units = max(units, 1.0)
        # `FeatureMoments` releases half of x x', so that an entry of the second moment has twice the noise.
        mean, noise = first / units, 2 * release.noise_std / units
        covariance = second / units - np.outer(mean, mean)
        projection = whitener(covariance, self._width, TUNING.whitener_ridge * noise)
        # At 0 all classes are equally likely. The loss is convex, so that no random start is needed.
        weights = np.zeros((self._width + 1, len(self.classes)))
        average, mass = np.zeros_like(weights), 0.0
        step = self.learning_rate or TUNING.learning_time / self._turns
        memory = TUNING.average_memory
        for _ in range(self._turns):
            release = yield self._gradient(mean, projection, weights)
            # Plain gradient descent: after whitening all directions have about the same length, so that one step size
            # serves all. Weights are limited, so that a long step under noise cannot overflow.
            weights = weights - step / units * release.value.reshape(weights.shape)
            weights = np.clip(weights, -TUNING.weight_most, TUNING.weight_most)
            # exponential average with its total mass, so that the first rounds are not averaged with the zeros before
            average, mass = memory * average + (1 - memory) * weights, memory * mass + 1 - memory
        weights = average / mass
        quantities = self._named(mean, projection, weights)
        if not self.evaluate_share:
            return quantities
        judging = self._predictions(mean, projection, weights)
        release = yield PrivateSum(judging, self.evaluate_share)
        return {**quantities, **quality_of(judging, release, self.classes)}

    def _named(self, center: Floats, projection: Floats, weights: Floats) -> dict[str, Quantity]:
        """Results with the names of their axes; arrays as for `_gradient`."""
        size = self.feature_map.size
        names = Axis.numbered("feature", size)
        directions = tuple(str(at + 1) for at in range(self._width))
        classes = Axis("class", tuple(map(shown, self.classes)))
        return {
            "center": Quantity(center, "number", (names,)),
            "projection": Quantity(projection, "filter", (names, Axis("direction", directions))),
            "weights": Quantity(weights, "coefficient", (Axis("direction", (*directions, "bias")), classes)),
        }


def whitener(covariance: Floats, width: int, ridge: float) -> Floats:
    """Directions of largest variance, each divided by sqrt(variance + ridge of the noise's norm).

    Directions of negative variance, which are noise, are zero.

    Parameters
    ----------
    covariance : array of shape (columns, columns)
        Noisy; it is symmetrised first.
    width : int
        Number of directions.
    ridge : float
        For one entry of the noise: a symmetric noise matrix has spectral norm about sqrt(2 columns) times that.

    Returns
    -------
    projection : array of shape (columns, width)
        Each column with the sign that makes its largest absolute entry positive.

    >>> whitener(np.diag([4.0, 1.0, -1.0]), 3, 0.0).round(3).tolist()
    [[0.5, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values, vectors = values[::-1][:width], vectors[:, ::-1][:, :width]
    # An eigenvector has no sign of its own: fixed, so that results do not depend on the library of linear algebra.
    vectors = vectors * np.where(np.max(vectors, axis=0) >= -np.min(vectors, axis=0), 1.0, -1.0)
    # Without a ridge, directions whose variance is below its noise would be enlarged to the size of the others. The
    # second term keeps the root finite without noise.
    floor = ridge * math.sqrt(2 * len(covariance)) + 1e-7 * max(float(values[0]), 1e-300)
    return np.asarray(vectors * np.where(values > 0, 1 / np.sqrt(np.maximum(values, 0) + floor), 0.0))
