"""Networks trained through the private sum.

Every step releases one noisy sum of clipped per-unit gradients (`TwoLayerGradient`, `ModuleGradient`), as in DP-SGD
(Abadi et al. 2016). All steps are one phase of the accountant. Optional, a histogram of the predictions of held-out
units is the last release. Optimiser and averaging are free post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from pydantic import Field, JsonValue, model_validator

from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.training.evaluation import quality_of
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import Abandoned, BadParameter
from zerosum.kernel.events import Sampling
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.holdout import Part
from zerosum.statistics.module import ModuleGradient, ModulePredictions
from zerosum.statistics.module_gradients import Architecture, torch_
from zerosum.statistics.network import TwoLayer, TwoLayerGradient, TwoLayerPredictions

TWO_LAYER = "two-layer"

# Found by simulation on part of the training rows of synthetic classes, forest cover types and digits (800 to 9000
# weights), with noise from 3e-5 to 4e-3 of a unit's gradient. The best path length of the weights is inversely
# proportional to the noise, and shorter for more weights. The number of steps matters little unless steps are too long.
_TRAVEL = 0.4  # path length in clips, times the noise of a mean of sensitivity 1 for the whole budget, at _WEIGHTS
_WEIGHTS, _WEIGHTS_POWER = 1000.0, 0.25  # number of weights, and exponent of _WEIGHTS/weights in the path length
_LONGEST_STEP = 5.0  # length of a step in clips, where all gradients agree
_STEPS = 30, 300  # least and most steps
_CLIP = 1.0  # largest norm of a unit's gradient
_MOMENTUM = 0.9
_AVERAGED = 0.5  # share of the steps, the last ones, whose weights are averaged
_EPOCHS = 10.0  # least expected passes over the data of sampled training
_NORM = 2.0  # typical norm of an input of the two-layer net; inputs are clipped at 1.5 times it
_UNIFORM = math.sqrt(1 / 3)  # standard deviation of a uniform value in [-1, 1]
_FARTHEST = 1e6  # largest weight that statistics accept

#: PyTorch's optimisers that update each weight by itself. Others use the shapes of layers, which a flat vector lacks.
OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Rprop")


class NeuralClassifierProgram(RangedAlgorithm):
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
    """

    name: ClassVar[str] = "neural-classifier"

    classes: tuple[str | float | bool, ...] = Field(default=(0, 1), min_length=2, max_length=10_000)
    model: str = Field(default=TWO_LAYER, min_length=1)
    hidden: int = Field(default=16, gt=0, le=100_000)
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    center: FloatArray | None = None
    scale: FloatArray | None = None
    steps: int | None = Field(default=None, ge=1, le=100_000)
    rate: float = Field(default=1.0, gt=0, le=1)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    momentum: float = Field(default=_MOMENTUM, ge=0, lt=1)
    optimizer: str = "SGD"
    optimizer_settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of a PyTorch optimiser."""
    averaging: float = Field(default=_AVERAGED, ge=0, le=1)
    start: int = Field(default=0, ge=0)
    evaluate_share: float = Field(default=0.0, ge=0, lt=0.5)
    hold_out: float = Field(default=0.1, ge=0, le=0.9)
    batch: int = Field(default=256, ge=1, le=8192)
    """Examples whose gradients are computed at once; it changes memory and time, not the result."""
    precision: str = Field(default="float32", pattern="^float(32|64)$")
    """`float32` or `float64`, of gradients of PyTorch modules."""

    @model_validator(mode="before")
    @classmethod
    def _range_of_classes(cls, given: Any) -> Any:
        """Completes columns and ranges before validation.

        A single number is the bound of every feature. Ranges of the features alone are followed by that of the class, 0
        to the number of classes minus 1. Columns without names are numbered by the shape of the input.
        """
        if not isinstance(given, dict):
            return given
        if "columns" not in given and given.get("shape"):  # images have no names for their pixels
            given = {**given, "columns": (*(f"x{at}" for at in range(math.prod(given["shape"]))), "class")}
        for name in ("lower", "upper"):
            if np.shape(given.get(name)) == () and given.get(name) is not None:
                given = {**given, name: np.full(len(given.get("columns", ())) - 1, float(given[name]))}
        last = {"lower": 0.0, "upper": float(len(given.get("classes", (0, 1))) - 1)}
        for name, end in last.items():
            if given.get(name) is not None and np.shape(given[name]) == (len(given.get("columns", ())) - 1,):
                given = {**given, name: np.append(np.asarray(given[name], dtype=np.float64), end)}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
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
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.features,):
                raise ValueError(
                    f"{what} must hold one number for each of the {self.features} features, got {value.size}"
                )
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")
        if self.model == TWO_LAYER and (self.settings or self.shape):
            raise ValueError("settings and shape are for PyTorch modules only: leave them out with model = 'two-layer'")
        if math.prod(self.shape or (self.features,)) != self.features:
            raise ValueError(f"shape must have {self.features} numbers, one per feature, got {self.shape}")
        return self

    @property
    def features(self) -> int:
        return len(self.columns) - 1

    @property
    def categories(self) -> dict[str, tuple[str | float | bool, ...]]:  # type: ignore[override]
        return {self.columns[-1]: self.classes}

    @property
    def describe(self) -> str:
        who = "all units" if self.rate == 1 else f"a sample of {self.rate:.3g} of the units"
        return f"{self._turns} steps of {self.optimizer} over {who}, gradients clipped at {self._clip:.3g}"

    # ---- what is chosen --------------------------------------------------------------------------------------------

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets steps, clip and learning rate: with less noise a longer path of the weights, in more steps, is best."""
        units = (facts.units or GUESSED_UNITS) * (1 - self._held_out)
        noise = max(facts.noise / units, 1e-12)
        many = (_WEIGHTS / len(self.first_weights())) ** _WEIGHTS_POWER
        travel = min(_TRAVEL * many / noise, _LONGEST_STEP * _STEPS[1])
        full = int(np.clip(math.ceil(travel / _LONGEST_STEP), *_STEPS))
        steps = self.steps or (full if self.rate == 1 else max(full, math.ceil(_EPOCHS / self.rate)))
        clip = self.clip or _CLIP
        chosen = {
            "steps": steps,
            "clip": clip,
            "learning_rate": self.learning_rate or self._rate_for(travel / steps, clip),
        }
        return self.model_copy(update=chosen)

    def _rate_for(self, each: float, clip: float) -> float:
        """The learning rate at which a step has length `each`, in clips, if the gradients of all units agree."""
        if self.optimizer == "SGD":
            return each * (1 - self.momentum) / clip
        return 0.002  # other optimisers divide by the size of the gradients

    @property
    def _turns(self) -> int:
        return self.steps or _STEPS[0]

    @property
    def _clip(self) -> float:
        return self.clip or _CLIP

    @property
    def _held_out(self) -> float:
        return self.hold_out if self.evaluate_share else 0.0

    # ---- requests --------------------------------------------------------------------------------------------------

    def statistic(self, weights: Floats) -> TwoLayerGradient | ModuleGradient:
        """The statistic of a step at these weights."""
        common = self._common(weights, "fitted")
        return TwoLayerGradient(**common) if self.model == TWO_LAYER else ModuleGradient(**common)

    def _predictions(self, weights: Floats) -> TwoLayerPredictions | ModulePredictions:
        common = self._common(weights, "held-out")
        return TwoLayerPredictions(**common) if self.model == TWO_LAYER else ModulePredictions(**common)

    def _common(self, weights: Floats, part: Part) -> dict[str, Any]:
        common: dict[str, Any] = {
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
        }
        scale = None if self.scale is None else self.scale / self.half[:-1]
        if self.model == TWO_LAYER:
            each = np.full(self.features, _UNIFORM) if scale is None else scale
            each = each * math.sqrt(self.features) / _NORM
            return common | {"scale": each, "hidden": self.hidden, "radius": 1.5 * _NORM}
        how = {"batch": self.batch, "precision": self.precision, "shape": self.shape or (self.features,)}
        return common | how | {"scale": scale, "module": self.model, "settings": self.settings}

    def first_weights(self) -> Floats:
        """The first weights, from the public seed `start`."""
        if self.model == TWO_LAYER:
            return TwoLayer.start(self.features, self.hidden, len(self.classes), self.start)
        shape = self.shape or (self.features,)
        return Architecture.of(self.model, self.settings, shape, len(self.classes), self.precision).start(self.start)

    def _request(self, weights: Floats) -> PrivateSum:
        return PrivateSum(self.statistic(weights), 1 - self.evaluate_share, Sampling(self.rate, self._turns))

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        if adjacency is not Adjacency.REPLACE_ONE:
            raise BadParameter(
                "training divides by the number of units, which add-remove neighbours keep secret: plan it with "
                "replace-one neighbours"
            )
        weights = self.first_weights()
        judged = (PrivateSum(self._predictions(weights), self.evaluate_share),) if self.evaluate_share else ()
        return (self._request(weights), *judged)

    def program(self, adjacency: Adjacency) -> Program:
        weights = self.first_weights()
        optimiser = self._optimiser()
        average, averaged, taken = np.zeros_like(weights), 0, 0
        for step in range(self._turns):
            try:
                release = yield self._request(weights)
            except Abandoned:  # the phase is paid for: the next step may have its answers
                if step + 1 == self._turns and taken == 0:
                    raise
                continue
            taken += 1
            gradient = release.value / ((release.units or 1.0) * (1 - self._held_out))
            weights = np.clip(optimiser.step(weights, gradient), -_FARTHEST, _FARTHEST)
            if step >= (1 - self.averaging) * self._turns:
                averaged += 1
                average = average + (weights - average) / averaged
        weights = average if averaged else weights
        found: Estimate = {
            "weights": Quantity(weights, "coefficient"),
            "steps_taken": Quantity(np.array([float(taken)]), "diagnostic"),
        }
        if not self.evaluate_share:
            return found
        judging = self._predictions(weights)
        release = yield PrivateSum(judging, self.evaluate_share)
        return {**found, **quality_of(judging, release, self.classes)}

    def _optimiser(self) -> Optimiser:
        rate = self.learning_rate or self._rate_for(1.0, self._clip)
        if self.optimizer == "SGD" and not self.optimizer_settings:
            return Momentum(rate, self.momentum)
        return TorchOptimiser(self.optimizer, rate, self.momentum, self.optimizer_settings)

    # ---- what comes of it ------------------------------------------------------------------------------------------

    def probabilities(self, weights: Floats, features: Floats) -> Floats:
        """Probabilities of the classes (n, classes) for rows of features (n, features) in the units of the data."""
        rows = np.column_stack([np.asarray(features, dtype=np.float64), np.zeros(len(features))])
        statistic = self.statistic(np.asarray(weights))
        parts = [statistic.probabilities(block) for block in Units(rows).blocks(row_bytes=statistic.row_bytes)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes)))


class Optimiser(Protocol):
    """An optimiser: new weights from the old ones and a gradient."""

    def step(self, weights: Floats, gradient: Floats) -> Floats: ...


class Momentum:
    """Gradient descent with momentum.

    >>> Momentum(0.5, 0.0).step(np.array([1.0]), np.array([2.0])).tolist()
    [0.0]
    """

    def __init__(self, rate: float, momentum: float) -> None:
        self._rate, self._momentum = rate, momentum
        self._velocity: Floats | float = 0.0

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        self._velocity = self._momentum * self._velocity + gradient
        return np.asarray(weights - self._rate * self._velocity)


class TorchOptimiser:
    """One of PyTorch's optimisers, on one flat vector of doubles."""

    def __init__(self, name: str, rate: float, momentum: float, settings: Mapping[str, Any]) -> None:
        self._torch = torch_()
        self._weights: Any = None
        own = {"momentum": momentum} if name == "SGD" else {}
        self._made: Any = getattr(self._torch.optim, name)
        self._settings = {"lr": rate, **own, **settings}
        self._optimiser: Any = None

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        torch = self._torch
        if self._optimiser is None:
            self._weights = torch.nn.Parameter(torch.from_numpy(np.array(weights)))
            try:
                self._optimiser = self._made([self._weights], **self._settings)
            except (TypeError, ValueError) as error:
                raise BadParameter(f"optimizer_settings do not suit the optimiser: {error}") from error
        with torch.no_grad():
            self._weights.copy_(torch.from_numpy(np.array(weights)))
        self._weights.grad = torch.from_numpy(np.array(gradient))
        self._optimiser.step()
        return np.asarray(self._weights.detach().numpy().copy())
