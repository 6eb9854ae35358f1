"""Gradients of any PyTorch module that a site knows by name: what training with the extra `torch` asks of a site."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import is_torch_array
from pydantic import Field, JsonValue, model_validator

from zerosum.arrays import Array, Floats
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency, FloatArray, to_numpy
from zerosum.kernel.units import Units
from zerosum.statistics.module_gradients import Architecture, Runner, Tensor, deterministic, runner, torch_
from zerosum.statistics.module_registry import find_module
from zerosum.statistics.network import Examples
from zerosum.statistics.predictions import PredictionHistogram
from zerosum.statistics.rows import INSIDE, exponential, fold


class ModuleExamples(Examples):
    """What statistics of PyTorch modules share: the module by its name, its public weights, and how examples go in."""

    in_threads: ClassVar[bool] = False  # PyTorch has threads of its own
    module: str = Field(min_length=1, max_length=200)
    settings: Mapping[str, JsonValue] = Field(default_factory=dict)
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1, max_length=6)
    weights: FloatArray
    batch: int = Field(default=256, ge=1, le=8192)
    precision: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if math.prod(self.shape) != self.columns - 1:
            raise ValueError(f"an input of shape {self.shape} does not have {self.columns - 1} numbers")
        if self.batch & (self.batch - 1):
            raise ValueError("batch must be a power of two")
        if self.weights.ndim != 1:
            raise ValueError("weights must be one flat vector")
        return self

    @property
    def architecture(self) -> Architecture:
        return Architecture.of(self.module, self.settings, self.shape, self.classes, self.precision)

    def runner(self, units: Units) -> Runner:
        """The module on the device where the units are or go, or else on this site's own, once its batch has passed the
        test."""
        device = units.device
        if is_torch_array(units.rows) and units.rows.device.type != "cpu":
            device = str(units.rows.device)
        found = runner(self.architecture, self.batch, device)
        if len(self.weights) != found.size:
            raise BadParameter(f"the module {self.module!r} has {found.size} weights, {len(self.weights)} were given")
        return found

    @classmethod
    def ready_for(cls, parameters: Mapping[str, Any]) -> None:
        find_module(str(parameters.get("model")))
        torch_()

    def check(self, units: Units) -> None:
        """Also refuse a module that is not known here, cannot run, or breaks the promise; no data are used for that."""
        super().check(units)
        self.runner(units)

    def total(self, units: Units) -> Floats:
        self.runner(units)  # what fails here is nobody's fault among the units
        return super().total(units)

    @property
    def row_bytes(self) -> int:
        return 8 * 6 * self.columns

    def probabilities(self, block: Units) -> Floats:
        """Of every class, for each row; in the batches of the test, so that nobody else changes them."""
        torch, run = torch_(), self.runner(block)
        parameters = run.parameters(self.weights)
        x, y = self.tensors(block)
        with deterministic():
            found = [run.outputs(parameters, own)[:real] for real, own, _label in run.batches(x, y)]
        logits = to_numpy(torch.cat(found).double().cpu()) if found else np.zeros((0, self.classes))
        growth = exponential(np.clip(logits - logits.max(axis=1, keepdims=True), -60.0, 0.0))
        return np.asarray(growth / fold(growth.copy())[:, None])

    def tensors(self, block: Units) -> tuple[Tensor, Tensor]:
        """Inputs and responses of every row."""
        x, y = self.examples(block)
        if is_torch_array(x):
            return x, y
        torch = torch_()
        return torch.from_numpy(np.ascontiguousarray(to_numpy(x))), torch.from_numpy(to_numpy(y))


class ModuleGradient(ModuleExamples):
    """The sum over units of the gradient of the loss at public weights, clipped to norm c over all tensors together.

    The loss is the cross-entropy of `classes` classes or, with one, half the squared error of a response in -1 to 1. A
    unit with several rows contributes the average of its rows' gradients, clipped once. A gradient that is not finite
    counts as zero, which its unit alone decides. What is computed for an example is its own, bit for bit, as far as
    `module_gradients` tests it; norms, averages and sums are in doubles.

    Sensitivity. Contributions lie in the ball of radius c: one replaced moves the sum by 2c at most, one added or
    removed by c, whatever the module computes. Attained by examples whose gradients are opposite and longer than c.
    """

    name: ClassVar[str] = "module_gradient"

    @property
    def size(self) -> int:
        return len(self.weights)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def sum_block(self, block: Units) -> Array:
        x, y = self.tensors(block)
        run = self.runner(block)
        with deterministic():
            if block.offsets is None:
                return self._records(run, x, y)
            return self._people(run, x, y, np.diff(block.offsets).tolist())

    def _records(self, run: Runner, x: Tensor, y: Tensor) -> Array:
        torch = torch_()
        parameters = run.parameters(self.weights)
        total = torch.zeros(run.size, dtype=torch.float64, device=run.device)
        for real, own, label in run.batches(x, y):
            for where, rows, norms in run.rows(run.gradients(parameters, own, label)):
                factors, sound = self._factors(norms)
                factors[max(real - where.start, 0) :] = 0
                if not bool(sound.all()):
                    rows = torch.where(sound[:, None], rows, torch.zeros_like(rows))
                total += factors @ rows
        return total if x.device == run.device and run.device.type != "cpu" else np.asarray(total.cpu().numpy())

    def _people(self, run: Runner, x: Tensor, y: Tensor, sizes: list[int]) -> Array:
        """Unit after unit, row after row: an average rounds as its unit's rows say, wherever these stand."""
        torch = torch_()
        parameters = run.parameters(self.weights)
        total, mean = torch.zeros(2, run.size, dtype=torch.float64, device=run.device)
        units = iter(sizes)
        size = left = next(units)
        for real, own, label in run.batches(x, y):
            for where, rows, _norms in run.rows(run.gradients(parameters, own, label)):
                for row in rows[: max(real - where.start, 0)]:
                    mean += row / size
                    left -= 1
                    if left == 0:
                        factor, sound = self._factors(run.norms(mean[None, :]))
                        if bool(sound):
                            total += factor * mean
                        mean.zero_()
                        size = left = next(units, 0)
        return total if x.device == run.device and run.device.type != "cpu" else np.asarray(total.cpu().numpy())

    def _factors(self, norms: Tensor) -> tuple[Tensor, Tensor]:
        """What gradients of these norms are multiplied by, and which of them are numbers at all."""
        torch = torch_()
        sound = torch.isfinite(norms)
        factors = torch.clamp(self.clip / torch.clamp(norms * INSIDE, min=1e-300), max=1.0)
        return torch.where(sound, factors, torch.zeros_like(factors)), sound

    def _nobody(self, add: Callable[[Units], Array]) -> Floats:
        return np.zeros(self.size)  # zero is in the ball, and an example of zeros need not be


class ModulePredictions(ModuleExamples, PredictionHistogram):
    """What a module predicts, as a `PredictionHistogram`."""

    name: ClassVar[str] = "module_predictions"
    classes: int = Field(default=2, ge=2, le=1000)
