"""Features from a frozen PyTorch module that a site knows by name, for example a public, pretrained network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, JsonValue, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import fold
from zerosum.compute.devices import array_on, to_numpy
from zerosum.errors import BadParameter, Refused, ZerosumError
from zerosum.statistics.features.base import FeatureMap
from zerosum.statistics.module_gradients import deterministic, largest_batch, own_device, torch_
from zerosum.statistics.module_registry import find_module


class ModuleFeatures(FeatureMap):
    """The output of a frozen module from the site's own registry (`zerosum.modules`) for each row, in evaluation mode.

    Rows are clamped to [`lowest`, `highest`], mapped to [0, 1] and given the `shape` of one example. Features of a row
    are
    divided by their norm. The module's factory sets the weights, from a public seed if they are random; they must be
    public
    and equal at all sites.

    A module may combine the rows of a batch. A test shows that it does not, and that it does not round a row by its
    position, before any row of a site is used: public random rows must have the same features at every position and
    beside
    any others, bit for bit, in batches of 64, or half as many, and so on, down to single rows.

    Parameters
    ----------
    module : str
        Name in the registry.
    settings : mapping
        Public settings of the factory.
    shape : tuple of int
        Shape of one example; its product is the number of inputs.
    outputs : int
        Number of features that the module gives for a row.
    lowest, highest : float
        Public range of all inputs.
    seed : int
        Seed of PyTorch's generator while the factory runs.
    """

    kind: ClassVar[str] = "module"
    module: str = Field(min_length=1, max_length=200)
    settings: Mapping[str, JsonValue] = Field(default_factory=dict)
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1, max_length=6)
    outputs: int = Field(gt=0, le=100_000)
    lowest: float = Field(default=0.0, ge=-1e9, le=1e9)
    highest: float = Field(default=255.0, ge=-1e9, le=1e9)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.highest - self.lowest < 1e-9:
            raise ValueError("highest must lie above lowest")
        return self

    @property
    def inputs(self) -> int:
        """The number of inputs of an example."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """The number of features."""
        return self.outputs

    @cached_property
    def _device(self) -> Any:
        """The device of this site, from its own environment."""
        return torch_().device(own_device())

    @cached_property
    def _frozen(self) -> Any:
        """The module in evaluation mode on the site's device, with weights from the public seed. The state of PyTorch's
        generator is restored.
        """
        torch, factory = torch_(), find_module(self.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            try:
                module = factory(**dict(self.settings))
            except Exception as error:  # the site's code and public settings: no data are near
                raise BadParameter(f"the module {self.module!r} cannot be built so: {error}") from error
        if not isinstance(module, torch.nn.Module):
            raise BadParameter(f"the factory of {self.module!r} does not return a torch.nn.Module")
        return module.eval().to(self._device)

    @cached_property
    def _together(self) -> int:
        """Rows per batch: the largest power-of-two part of `batch` in which no row changes the features of another."""
        rng = np.random.default_rng(0)
        try:
            with deterministic():
                together = largest_batch(
                    self.batch, lambda count: self._rows_are_independent(rng.random((count, self.inputs)))
                )
        except ZerosumError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:
            raise BadParameter(f"the module {self.module!r} does not take rows of this shape: {error}") from error
        if not together:
            raise Refused(f"the module {self.module!r} computes the same row differently each time")
        return together

    def _rows_are_independent(self, rows: Floats) -> bool:
        """Whether public rows have the same features at other positions and beside other rows, bit for bit.

        Parameters
        ----------
        rows : array of shape (batch, inputs)
            Public random rows in [0, 1].
        """
        count = len(rows)
        # The first run is the reference; a device that computes a row differently each time fails the shift of 0 below.
        base = self._run(rows)
        if base.shape != (count, self.outputs):
            raise BadParameter(
                f"the module {self.module!r} gives {base.shape[1:]} numbers for a row, {self.outputs} were said"
            )
        for shift in sorted({0, 1, count // 2, count - 1}):
            if not np.array_equal(self._run(np.roll(rows, shift, axis=0)), np.roll(base, shift, axis=0)):
                return False
        for other in (0.0, 1.0):
            beside = np.full_like(rows, other)
            beside[count // 2] = rows[count // 2]
            if count > 1 and not np.array_equal(self._run(beside)[count // 2], base[count // 2]):
                return False
        return True

    def _run(self, rows: Floats) -> Floats:
        """The output of the module for a batch of rows in [0, 1], shape (rows, outputs), in doubles."""
        torch = torch_()
        given = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)).to(self._device)
        with torch.no_grad():
            outputs = self._frozen(given.reshape(len(rows), *self.shape))
        return np.asarray(outputs.reshape(len(rows), -1).double().cpu().numpy())

    def ready(self) -> None:
        """Build and test the module, before any row is there."""
        _ = self._together

    def map_batch(self, rows: Array) -> Array:
        """The features of a batch, each row divided by its norm, in the batches that passed the test."""
        xp = array_namespace(rows)
        pixels = to_numpy(xp.clip((rows - self.lowest) / (self.highest - self.lowest), 0.0, 1.0))
        with deterministic():
            parts = [self._run(pixels[at : at + self._together]) for at in range(0, self.batch, self._together)]
        features = np.concatenate(parts)
        norm = np.sqrt(fold(features * features))[:, None]
        return array_on(features / np.where(norm > 0, norm, 1.0), rows)
