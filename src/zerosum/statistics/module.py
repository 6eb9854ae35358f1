"""Gradients of PyTorch modules that a site knows by name: the statistic for training with the extra `torch`.

The map of one unit: the gradient of the loss at public weights w of length n, averaged over the unit's rows and clipped
to norm c; shape (n,). `module_gradients` describes how gradients are computed for every example by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import is_torch_array
from pydantic import Field, JsonValue, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import INSIDE, exponential, fold
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.statistics.module_gradients import Architecture, Runner, Tensor, deterministic, runner, torch_
from zerosum.statistics.module_registry import find_module
from zerosum.statistics.network import ClippedGradient, Examples
from zerosum.statistics.predictions import PredictionHistogram


class ModuleExamples(Examples):
    """Base of statistics of PyTorch modules: the module by its name, its public weights, and the form of its inputs.

    Parameters
    ----------
    module : str
        The name in the site's registry (`module_registry`).
    settings : mapping
        Public settings of the module's factory.
    shape : tuple of int
        The shape of one input; its product is `columns` - 1.
    weights : array of shape (n,)
        All parameters of the module in one flat vector.
    batch : int
        Examples that go through the module together, a power of two; halved until the test of `module_gradients`
        passes.
    precision : {"float32", "float64"}
        The precision of the module.
    columns, classes, center, scale, part, hold_out, clip, lower, upper, fill, own_rows
        As for `Examples`.
    """

    # PyTorch uses threads of its own.
    in_threads: ClassVar[bool] = False
    module: str = Field(min_length=1, max_length=200)
    settings: Mapping[str, JsonValue] = Field(default_factory=dict)
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1, max_length=6)
    batch: int = Field(default=256, ge=1, le=8192)
    precision: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if math.prod(self.shape) != self.columns - 1:
            raise ValueError(f"an input of shape {self.shape} does not have {self.columns - 1} numbers")
        if self.batch & (self.batch - 1):
            raise ValueError(f"batch must be a power of two, got {self.batch}")
        if self.weights.ndim != 1:
            raise ValueError(f"weights must be one flat vector, got shape {self.weights.shape}")
        return self

    @property
    def architecture(self) -> Architecture:
        """The public description of the module."""
        return Architecture.of(self.module, self.settings, self.shape, self.classes, self.precision)

    def runner(self, units: Units) -> Runner:
        """The module on the device of the units, or on this site's own device, once its batch has passed the test.

        Parameters
        ----------
        units : Units
            Only their device is used.
        """
        # Rows that lie on a GPU already are not moved; a site's own setting decides otherwise.
        device = units.device
        if is_torch_array(units.rows) and units.rows.device.type != "cpu":
            device = str(units.rows.device)
        result = runner(self.architecture, self.batch, device)
        if len(self.weights) != result.size:
            raise BadParameter(f"the module {self.module!r} has {result.size} weights, {len(self.weights)} were given")
        return result

    @classmethod
    def ready_for(cls, parameters: Mapping[str, Any]) -> None:
        """Refuse a study whose module is not known here, or if PyTorch is not installed."""
        find_module(str(parameters.get("model")))
        torch_()

    def check(self, units: Units) -> None:
        """Also refuse a module that is not known here, cannot run, or fails the test; no data are used for that."""
        super().check(units)
        self.runner(units)

    def total(self, units: Units) -> Floats:
        """The sum over all units; the module is built first."""
        # A failure at this step is not caused by any unit and must not be attributed to one.
        self.runner(units)
        return super().total(units)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 6 * self.columns

    def probabilities(self, block: Units) -> Floats:
        """The probability of every class for each row, shape (rows, classes), in the batches of the test."""
        torch, run = torch_(), self.runner(block)
        parameters = run.parameters(self.weights)
        x, y = self.tensors(block)
        with deterministic():
            outputs = [run.outputs(parameters, own)[:real] for real, own, _label in run.batches(x, y)]
        logits = to_numpy(torch.cat(outputs).double().cpu()) if outputs else np.zeros((0, self.classes))
        # The largest logit is subtracted, and differences below -60 count as -60 (exp(-60) = 9e-27), the limit of
        # `exponential`. It is made of elementwise operations, so that each row rounds by itself.
        growth = exponential(np.clip(logits - logits.max(axis=1, keepdims=True), -60.0, 0.0))
        return np.asarray(growth / fold(growth.copy())[:, None])

    def tensors(self, block: Units) -> tuple[Tensor, Tensor]:
        """Inputs of shape (rows, columns - 1) and responses of shape (rows,), as tensors.

        Parameters
        ----------
        block : Units
            Some units. Rows that are tensors already stay on their device.
        """
        x, y = self.examples(block)
        if is_torch_array(x):
            return x, y
        torch = torch_()
        return torch.from_numpy(np.ascontiguousarray(to_numpy(x))), torch.from_numpy(to_numpy(y))


class ModuleGradient(ModuleExamples, ClippedGradient):
    """The sum over units of the gradient of the loss at public weights, clipped to norm c over all tensors together.

    The loss is the cross-entropy of `classes` classes or, with one class, half the squared error of a response in [-1,
    1]. A unit with several rows contributes the average of its rows' gradients, clipped once. A gradient that is not
    finite counts as zero, which its unit alone decides. The numbers computed for an example depend on it alone, bit for
    bit, as far as `module_gradients` tests it. Norms, averages and sums are in doubles.

    Sensitivity. That of `ClippedGradient`, for any module. Attained by examples whose gradients are opposite and longer
    than c.

    Parameters
    ----------
    clip : float
        c, the largest norm of a unit's gradient.
    module, settings, shape, weights, batch, precision and the other parameters
        As for `ModuleExamples`.
    """

    name: ClassVar[str] = "module_gradient"

    def sum_block(self, block: Units) -> Array:
        """The sum of the clipped gradients of a block, shape (n,)."""
        x, y = self.tensors(block)
        run = self.runner(block)
        with deterministic():
            if block.offsets is None:
                return self._records(run, x, y)
            return self._people(run, x, y, np.diff(block.offsets).tolist())

    def _records(self, run: Runner, x: Tensor, y: Tensor) -> Array:
        """The sum for units of one row each.

        Parameters
        ----------
        run : Runner
            The module.
        x, y : tensor
            Inputs (units, columns - 1) and responses (units,).
        """
        torch = torch_()
        parameters = run.parameters(self.weights)
        # Gradients may be single floats; their sum over units is in doubles, as the planned rounding error assumes.
        total = torch.zeros(run.size, dtype=torch.float64, device=run.device)
        for real, own, label in run.batches(x, y):
            for where, rows, norms in run.rows(run.gradients(parameters, own, label)):
                factors, sound = self._factors(norms)
                # The padding of the last batch does not count.
                factors[max(real - where.start, 0) :] = 0
                if not bool(sound.all()):
                    # 0 times infinity is NaN: rows that are not finite are set to zero, and not only their factors.
                    rows = torch.where(sound[:, None], rows, torch.zeros_like(rows))
                total += factors @ rows
        return total if x.device == run.device and run.device.type != "cpu" else np.asarray(total.cpu().numpy())

    def _people(self, run: Runner, x: Tensor, y: Tensor, sizes: list[int]) -> Array:
        """The sum for units of several rows, unit after unit and row after row: an average rounds by its own unit's
        rows alone.

        Parameters
        ----------
        run : Runner
            The module.
        x, y : tensor
            Inputs and responses of all rows.
        sizes : list of int
            The number of rows of each unit.
        """
        torch = torch_()
        parameters = run.parameters(self.weights)
        total, mean = torch.zeros(2, run.size, dtype=torch.float64, device=run.device)
        units = iter(sizes)
        size = left = next(units)
        for real, own, label in run.batches(x, y):
            for where, rows, _norms in run.rows(run.gradients(parameters, own, label)):
                for row in rows[: max(real - where.start, 0)]:
                    # Batches may end in the middle of a unit; `mean` and `left` carry over to the next batch.
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
        """The clip factors of gradients of these norms, and which of them are finite.

        Parameters
        ----------
        norms : tensor of shape (rows,)
            Euclidean norms of gradients, which may be infinite or NaN.
        """
        torch = torch_()
        # `INSIDE` makes the norm slightly larger, so that a rounded product stays within the ball.
        sound = torch.isfinite(norms)
        factors = torch.clamp(self.clip / torch.clamp(norms * INSIDE, min=1e-300), max=1.0)
        return torch.where(sound, factors, torch.zeros_like(factors)), sound

    def _nobody(self, add: Callable[[Units], Array]) -> Floats:
        """The contribution of a unit that fails."""
        # Zero lies in the ball. The gradient of an example of zeros need not be finite.
        return np.zeros(self.size)


class ModulePredictions(ModuleExamples, PredictionHistogram):
    """The predictions of a module, as a `PredictionHistogram`."""

    name: ClassVar[str] = "module_predictions"
    classes: int = Field(default=2, ge=2, le=1000)
