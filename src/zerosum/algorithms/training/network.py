"""Networks trained through the private sum.

Model
-----
A row has features x (p numbers, in half ranges, optionally centred and scaled) and a class. A network (`models`) with
weights w (n numbers in one flat vector) gives the probability of each class, and the loss is the cross-entropy. With
N fitted units and the clip c, step t is

    G_t = sum over units of g_i min(1, c/|g_i|) + noise (n),    w_{t+1} = optimiser(w_t, G_t/N),

g_i the gradient of unit i at w_t, as in DP-SGD (Abadi et al. 2016). The result is the mean of w over the last steps.

Releases
--------
1. In each step the sum G_t (`ClippedGradient`, sensitivity 2 c). All steps are one phase of the accountant, over all
   units or over a secret Poisson sample of rate `rate` at each site.
2. Optional, `evaluate_share`: a histogram of the predictions for held-out units (`PredictionHistogram`).

First weights and the model are public. Optimiser (`optimisers`), averaging and evaluation are free post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, JsonValue, model_validator

from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.training.evaluation import quality_of
from zerosum.algorithms.training.models import TWO_LAYER, Model, make_model
from zerosum.algorithms.training.optimisers import OPTIMIZERS, make_optimiser, rate_for
from zerosum.algorithms.training.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import Abandoned, BadParameter
from zerosum.kernel.events import Sampling
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.holdout import Part
from zerosum.statistics.network import ClippedGradient, Examples
from zerosum.statistics.predictions import PredictionHistogram


class RowClassifier(RangedAlgorithm):
    """Base of classifiers on rows: `columns` are the features and, last, the class. Public ranges of the features are
    required; one of the class, 0 to the number of classes minus 1, may follow.
    """

    classes: tuple[str | float | bool, ...] = Field(default=(0, 1), min_length=2, max_length=10_000)
    """Public classes, in the order of their numbers 0, 1, ..."""

    @model_validator(mode="before")
    @classmethod
    def _range_of_classes(cls, given: Any) -> Any:
        """Completes ranges before validation.

        A single number is the bound of every feature. Ranges of the features alone are followed by that of the class, 0
        to the number of classes minus 1.
        """
        if not isinstance(given, dict):
            return given
        features = len(given.get("columns", ())) - 1
        last = {"lower": 0.0, "upper": float(len(given.get("classes", (0, 1))) - 1)}
        for name, end in last.items():
            bound: Any = given.get(name)
            if bound is not None and np.shape(bound) == ():
                bound = np.full(features, float(bound))
            if bound is not None and np.shape(bound) == (features,):
                given = {**given, name: np.append(np.asarray(bound, dtype=np.float64), end)}
        return given

    @model_validator(mode="after")
    def _classes_fit(self) -> Self:
        """Refuse ranges and classes that do not fit each other, before a plan is made."""
        if self.lower is None or self.upper is None:
            raise ValueError("lower and upper are required: public ranges of the features, not taken from the data")
        if len(self.columns) < 2:
            raise ValueError(f"columns must be at least one feature and, last, the class, got {list(self.columns)}")
        if (self.lower[-1], self.upper[-1]) != (0, len(self.classes) - 1):
            raise ValueError(
                f"the range of the class must be 0 to {len(self.classes) - 1}, since classes are numbered, got "
                f"{self.lower[-1]:g} to {self.upper[-1]:g}: leave it out"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must be different from each other, got {list(self.classes)}")
        return self

    @property
    def features(self) -> int:
        """p, the number of features."""
        return len(self.columns) - 1

    @property
    def categories(self) -> dict[str, tuple[str | float | bool, ...]]:  # type: ignore[override]
        """The classes, in the last column."""
        return {self.columns[-1]: self.classes}

    @abstractmethod
    def statistic(self, weights: Floats) -> Examples:
        """The statistic of a step at these weights (n,)."""

    def probabilities(self, weights: Floats, features: Floats) -> Floats:
        """Probabilities of the classes for rows in the units of the data, as a site would compute them.

        Parameters
        ----------
        weights : array of shape (n,)
            Weights of the network.
        features : array of shape (rows, features)
            Rows without the class.

        Returns
        -------
        probabilities : array of shape (rows, classes)
        """
        # A statistic expects a class in the last column, which predictions do not use.
        rows = np.column_stack([np.asarray(features, dtype=np.float64), np.zeros(len(features))])
        statistic = self.statistic(np.asarray(weights))
        parts = [statistic.probabilities(block) for block in Units(rows).blocks(row_bytes=statistic.row_bytes)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes)))


class NeuralClassifierProgram(RowClassifier):
    """A neural network classifier. `columns` are the features and, last, the class.

    `model` is "two-layer", a network with one hidden layer of `hidden` rectified units that needs NumPy alone, or the
    name of a PyTorch module in every site's registry, built from the public `settings` for inputs of the public
    `shape`. The public seed `start` sets the first weights.

    Every step releases the sum of all units' gradients, each clipped to norm `clip` over all weights. A person with
    several rows is one unit. With `rate` 1 all units take part in every step, which has the least noise for a given
    number of steps. With a smaller rate each site draws a secret Poisson sample for each step, which saves time. The
    optimiser uses released gradients only and costs no budget: "SGD" with momentum, or one of `OPTIMIZERS` of PyTorch.
    The result is the mean of the weights over the last `averaging` of the steps.

    Public ranges of the features are required (one for the class may follow). `center` and `scale` declare a typical
    value and deviation of each feature. The planner chooses `steps`, `clip` and `learning_rate` unless they are given.

    `evaluate_share` pays for a histogram of the predictions of held-out units. A hash of a unit's own data decides
    whether it is held out; about `hold_out` of the units are, and they are not trained on. With `hold_out` 0 the
    histogram is over all units.

    Results: `weights` in one flat vector, and `steps_taken`, since a step that too few sites answer is left out; with
    `evaluate_share` also `accuracy`, `accuracy_interval_95`, `confusion` and `calibration`.

    Parameters
    ----------
    classes : tuple
        Public classes, in the order of their numbers 0, 1, ...
    model, hidden, settings, shape, batch, precision
        The network (`models.make_model`).
    center, scale : array of shape (features,), optional
        Typical value and deviation of each feature, in the units of the data.
    steps, clip, learning_rate
        Number of steps, clip of a unit's gradient and length of a step; the planner's choice if not given.
    rate : float
        Probability with which a unit takes part in a step.
    optimizer, momentum, optimizer_settings
        The optimiser (`optimisers.make_optimiser`).
    averaging : float
        Share of the steps, the last ones, whose weights are averaged.
    start : int
        Public seed of the first weights.
    evaluate_share, hold_out : float
        Share of the budget for the evaluation, and share of the units that it uses.
    """

    name: ClassVar[str] = "neural-classifier"

    model: str = Field(default=TWO_LAYER, min_length=1)
    hidden: int = Field(default=16, gt=0, le=100_000)
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    center: FloatArray | None = None
    scale: FloatArray | None = None
    steps: int | None = Field(default=None, ge=1, le=100_000)
    rate: float = Field(default=1.0, gt=0, le=1)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    momentum: float = Field(default=TUNING.momentum, ge=0, lt=1)
    optimizer: str = "SGD"
    optimizer_settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of a PyTorch optimiser."""
    averaging: float = Field(default=TUNING.averaging, ge=0, le=1)
    start: int = Field(default=0, ge=0)
    evaluate_share: float = Field(default=0.0, ge=0, lt=0.5)
    hold_out: float = Field(default=0.1, ge=0, le=0.9)
    batch: int = Field(default=256, ge=1, le=8192)
    """Examples whose gradients are computed at once; it changes memory and time, not the result."""
    precision: str = Field(default="float32", pattern="^float(32|64)$")
    """`float32` or `float64`, of gradients of PyTorch modules."""

    @model_validator(mode="before")
    @classmethod
    def _columns_of_shape(cls, given: Any) -> Any:
        """Numbers the columns by the shape of the input: images have no names for their pixels."""
        if isinstance(given, dict) and "columns" not in given and given.get("shape"):
            return {**given, "columns": (*(f"x{at}" for at in range(math.prod(given["shape"]))), "class")}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse scales, optimisers and models that do not fit, before a plan is made."""
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.features,):
                raise ValueError(
                    f"{what} must hold one number for each of the {self.features} features, got {value.size}"
                )
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")
        # Raises if settings and shape do not fit the model. No module is built and no weights are drawn here.
        _ = self.network
        return self

    @property
    def describe(self) -> str:
        """Steps, sampling and clip, for the plan."""
        who = "all units" if self.rate == 1 else f"a sample of {self.rate:.3g} of the units"
        return f"{self._turns} steps of {self.optimizer} over {who}, gradients clipped at {self._clip:.3g}"

    # ---- what is chosen --------------------------------------------------------------------------------------------

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets steps, clip and learning rate: with less noise a longer path of the weights, in more steps, is best.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.
        """
        units = (facts.units or GUESSED_UNITS) * (1 - self._held_out)
        noise = max(facts.noise / units, 1e-12)
        # The best path of the weights, in clips, is inversely proportional to the noise (`TUNING.path_length`). Its
        # limit is the longest step in each of the most steps.
        many = (TUNING.path_weights / len(self.first_weights())) ** TUNING.path_exponent
        path = min(TUNING.path_length * many / noise, TUNING.step_most * TUNING.steps_limits[1])
        # As few steps as the longest step allows. A sample sees only `rate` of the units, so sampled training needs
        # enough steps for several passes over the data.
        full = int(np.clip(math.ceil(path / TUNING.step_most), *TUNING.steps_limits))
        steps = self.steps or (full if self.rate == 1 else max(full, math.ceil(TUNING.epochs_least / self.rate)))
        clip = self.clip or TUNING.gradient_clip
        chosen = {
            "steps": steps,
            "clip": clip,
            "learning_rate": self.learning_rate or rate_for(self.optimizer, path / steps, self.momentum, clip),
        }
        return self.model_copy(update=chosen)

    @property
    def _turns(self) -> int:
        """Number of steps, as declared or chosen by the planner."""
        return self.steps or TUNING.steps_limits[0]

    @property
    def _clip(self) -> float:
        """Clip of a unit's gradient."""
        return self.clip or TUNING.gradient_clip

    @property
    def _held_out(self) -> float:
        """Share of units that are held out: none without an evaluation."""
        return self.hold_out if self.evaluate_share else 0.0

    # ---- requests --------------------------------------------------------------------------------------------------

    @property
    def network(self) -> Model:
        """The model behind its interface: the two-layer network, or a PyTorch module."""
        return make_model(
            self.model,
            self.features,
            len(self.classes),
            hidden=self.hidden,
            settings=self.settings,
            shape=self.shape,
            batch=self.batch,
            precision=self.precision,
        )

    def first_weights(self) -> Floats:
        """The first weights (n,), from the public seed `start`."""
        return self.network.first_weights(self.start)

    def statistic(self, weights: Floats) -> ClippedGradient:
        """The statistic of a step at these weights (n,)."""
        return self.network.gradient(**self._parameters(weights, "fitted"))

    def _predictions(self, weights: Floats) -> PredictionHistogram:
        """The statistic of the evaluation at these weights (n,)."""
        return self.network.predictions(**self._parameters(weights, "held-out"))

    def _parameters(self, weights: Floats, part: Part) -> dict[str, Any]:
        """Parameters of a statistic at these weights (n,), over one part of the units.

        Parameters
        ----------
        weights : array of shape (n,)
            Weights of the network.
        part : {"fitted", "held-out"}
            Which units take part, if units are held out.
        """
        # Statistics see features in half ranges from the middle of their range: center and scale follow.
        scale = None if self.scale is None else self.scale / self.half[:-1]
        return {
            "part": part if self._held_out else "all",
            "hold_out": self._held_out,
            "columns": len(self.columns),
            "lower": self.lower,
            "upper": self.upper,
            "classes": len(self.classes),
            "clip": self._clip,
            "weights": weights,
            "center": None if self.center is None else (self.center - self.middle[:-1]) / self.half[:-1],
            **self.filling,
            **self.network.parameters(scale),
        }

    def _request(self, weights: Floats) -> PrivateSum:
        """The request of one step at these weights (n,); all steps are one phase of the accountant."""
        return PrivateSum(self.statistic(weights), 1 - self.evaluate_share, Sampling(self.rate, self._turns))

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        """One phase of steps, then the evaluation (optional). Templates are at the first weights: the sensitivity
        depends on the clip alone.
        """
        if adjacency is not Adjacency.REPLACE_ONE:
            raise BadParameter(
                "training divides by the number of units, which add-remove neighbours keep secret: plan it with "
                "replace-one neighbours"
            )
        weights = self.first_weights()
        judged = (PrivateSum(self._predictions(weights), self.evaluate_share),) if self.evaluate_share else ()
        return (self._request(weights), *judged)

    def program(self, adjacency: Adjacency) -> Program:
        """The steps, the average of the weights, and the evaluation.

        Parameters
        ----------
        adjacency : Adjacency
            Replace-one; `requests` refuses the other.
        """
        weights = self.first_weights()
        rate = self.learning_rate or rate_for(self.optimizer, 1.0, self.momentum, self._clip)
        optimiser = make_optimiser(self.optimizer, rate, self.momentum, self.optimizer_settings)
        average, averaged, taken = np.zeros_like(weights), 0, 0
        for step in range(self._turns):
            try:
                release = yield self._request(weights)
            except Abandoned:
                # The whole phase is paid for, so that a lost step saves nothing: the next step goes on from the same
                # weights. Only a study without any step ends here.
                if step + 1 == self._turns and taken == 0:
                    raise
                continue
            taken += 1
            # The mean gradient over the fitted units. The number of held-out units is their expected number: the
            # true one is not released.
            gradient = release.value / ((release.units or 1.0) * (1 - self._held_out))
            # a long step under noise must not end the study: statistics refuse larger weights
            weights = np.clip(optimiser.step(weights, gradient), -TUNING.weight_most, TUNING.weight_most)
            if step >= (1 - self.averaging) * self._turns:
                # running mean (Polyak and Ruppert): it has less noise than the last weights
                averaged += 1
                average = average + (weights - average) / averaged
        weights = average if averaged else weights
        quantities: Estimate = {
            "weights": Quantity(weights, "coefficient"),
            "steps_taken": Quantity(np.array([float(taken)]), "diagnostic"),
        }
        if not self.evaluate_share:
            return quantities
        judging = self._predictions(weights)
        release = yield PrivateSum(judging, self.evaluate_share)
        return {**quantities, **quality_of(judging, release, self.classes)}
