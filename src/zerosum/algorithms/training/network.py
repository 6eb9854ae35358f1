"""Networks trained through the private sum: every step is one noisy sum of clipped gradients, and the rest is free.

Tested in tests/algorithms/training/test_network.py.
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
# weights), with noise from 3e-5 to 4e-3 of a unit's gradient: how far weights travel is best in inverse proportion to
# the noise, less where there are more of them, and the number of steps matters little as long as none is too long.
_TRAVEL = 0.4  # over the noise of a mean of sensitivity 1 that takes the whole budget, for so many weights:
_WEIGHTS, _WEIGHTS_POWER = 1000.0, 0.25
_LONGEST_STEP = 5.0  # of the average velocity, in clips
_STEPS = 30, 300  # at least, at most
_CLIP = 1.0
_MOMENTUM = 0.9
_AVERAGED = 0.5  # of the last steps, whose weights are averaged
_EPOCHS = 10.0  # of sampled training
_NORM = 2.0  # of an ordinary input of the net with one hidden layer; inputs are clipped at one and a half times that
_UNIFORM = math.sqrt(1 / 3)  # the deviation of a value anywhere in -1 to 1
_FARTHEST = 1e6  # of weights: statistics take no larger ones

#: PyTorch's optimisers that treat every weight by itself; others would look at shapes that one flat vector has not.
OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Rprop")


class NeuralClassifierProgram(RangedAlgorithm):
    """A network that tells classes apart: `columns` are the features and, last, the class.

    `model` is "two-layer", a net with one hidden layer of `hidden` rectified units that needs NumPy alone, or the name
    of a PyTorch module in every site's registry, built from the public `settings` for inputs of the public `shape`. Its
    weights begin where the public seed `start` puts them.

    Every step releases the sum of all units' gradients, each clipped to norm `clip` over all weights; a person with
    several rows is one unit. With `rate` 1 everybody takes part in every step, which for as many steps has less noise
    than any sampling has; with less, each site draws a secret Poisson sample for each step, which saves time. The
    optimiser works with what was released and costs nothing: "SGD" with momentum, or any of `OPTIMIZERS` by PyTorch.
    The result averages the weights of the last `averaging` of the steps.

    Ranges of the features are public and needed (one for the class may follow); `center` and `scale` declare an
    ordinary value and deviation of each. `steps`, `clip` and `learning_rate` are the planner's unless given.

    `evaluate_share` buys a histogram of predictions for units that a hash of their own data holds out (about `hold_out`
    of them, which are not trained on; 0: for all of them).

    Results: `weights`, in one flat vector, and `steps_taken`, since a step that too few sites answer is left out; where
    it was bought, `accuracy`, `accuracy_interval_95`, `confusion` and `calibration`.
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
        """One range is that of every feature. Where there are ranges for the features alone, classes have theirs: 0 to
        one less than there are. Columns without names are numbered by the shape of the input."""
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
            raise ValueError("give public ranges (lower and upper) of the features: data must not set their own bounds")
        if len(self.columns) < 2:
            raise ValueError("there must be a feature beside the class, which comes last")
        if (self.lower[-1], self.upper[-1]) != (0, len(self.classes) - 1):
            raise ValueError(f"classes are numbered: their range is 0 to {len(self.classes) - 1}")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two classes are the same")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.features,):
                raise ValueError(f"{what} must hold one number for each of the {self.features} features")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}")
        if self.model == TWO_LAYER and (self.settings or self.shape):
            raise ValueError("settings and a shape are for PyTorch modules")
        if math.prod(self.shape or (self.features,)) != self.features:
            raise ValueError(f"an input of shape {self.shape} does not have {self.features} numbers")
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
        """Less noise is worth a longer way, and that in more steps."""
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
        """The learning rate at which a step of gradients that all agree goes so far."""
        if self.optimizer == "SGD":
            return each * (1 - self.momentum) / clip
        return 0.002  # others divide by the gradients' size

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
        """What a step asks of the sites at these weights."""
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
        """Where the public seed puts them."""
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
        """Of every class, for rows of features in the units of the data: for whoever holds them."""
        rows = np.column_stack([np.asarray(features, dtype=np.float64), np.zeros(len(features))])
        statistic = self.statistic(np.asarray(weights))
        parts = [statistic.probabilities(block) for block in Units(rows).blocks(row_bytes=statistic.row_bytes)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes)))


class Optimiser(Protocol):
    """From a gradient to new weights."""

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
                raise BadParameter(f"the optimiser does not take these settings: {error}") from error
        with torch.no_grad():
            self._weights.copy_(torch.from_numpy(np.array(weights)))
        self._weights.grad = torch.from_numpy(np.array(gradient))
        self._optimiser.step()
        return np.asarray(self._weights.detach().numpy().copy())
