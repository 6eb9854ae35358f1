"""Per-example gradients of a PyTorch module that do not depend on the other examples of a batch.

Every example goes through the module as a batch of one; `torch.func.vmap` runs many of these at once. So no layer can
combine examples. Rounding remains: a matrix product or a convolution over several examples may round an example by its
position in the batch. One more person could then change the last bits of all other contributions, which the proofs for
sampling and for added or removed units do not cover. Therefore:

1. Examples are taken in batches of one fixed shape and layout, padded with zeros.
2. Before private data are used, a batch of public random examples is computed several times: at other positions and
   beside other, extreme examples. Outputs, gradients and norms must have the same bits each time. If they differ, half
   the batch is tried, down to one example at a time. A device that computes one example differently from one time to
   the next is refused.

Step 2 is a test, not a proof. It runs for every module, settings, shape, precision, device and number of threads, on
this machine. On CPUs all powers of two pass for convolutions and for linear layers whose widths are multiples of eight;
other widths go one example at a time. If rounding differs where the test found no difference, a clipped gradient
differs by a few units in the last place: for 32 bits, about 1e-7 of the clip.

Dropout is off (modules run in evaluation mode): the noise regularises. Layers that learn from batches (batch norm,
running statistics) are refused, and so is a module whose buffers change while it runs.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MethodType
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import squares
from zerosum.errors import BadParameter, Refused
from zerosum.statistics.module_registry import find_module

# PyTorch ships with its own types, but need not be installed.
Tensor = Any

# Environment variable with a site's own device: cpu, cuda, cuda:1.
DEVICE = "ZEROSUM_TORCH_DEVICE"
# Examples whose gradients are converted to doubles together on a processor, so that they stay in its cache. Chosen by
# hand; no benchmark recorded. It changes no result: each row is converted by itself.
_AT_ONCE = 8
_log = logging.getLogger(__name__)


def torch_() -> Any:
    """PyTorch, where it is installed."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise BadParameter("PyTorch is not installed here: pip install zerosum[torch]") from None
    return torch


@dataclass(frozen=True)
class Architecture:
    """The public description of a module. Hashable, as the key of a cache of modules.

    Parameters
    ----------
    module : str
        Name in the registries.
    settings : str
        Settings of the factory as JSON with sorted keys.
    shape : tuple of int
        Shape of one input.
    classes : int
        Number of outputs; 1 for a numeric response.
    precision : {"float32", "float64"}
        Precision of parameters and inputs.
    """

    module: str
    settings: str
    shape: tuple[int, ...]
    classes: int
    precision: str = "float32"

    @staticmethod
    def of(
        module: str, settings: Mapping[str, Any], shape: tuple[int, ...], classes: int, precision: str
    ) -> Architecture:
        """The architecture of settings that are a mapping."""
        return Architecture(module, json.dumps(dict(settings), sort_keys=True), shape, classes, precision)

    def built(self, seed: int = 0) -> Any:
        """The module in evaluation mode, with weights from a public seed.

        Parameters
        ----------
        seed : int
            Seed of PyTorch's generator while the factory runs. The state of the generator is restored afterwards.

        Raises
        ------
        BadParameter
            If the factory fails, or does not return a module with parameters of known sizes.
        Refused
            If a layer combines the examples of a batch.
        """
        torch, factory = torch_(), find_module(self.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = factory(**json.loads(self.settings))
            except Exception as error:
                # The message may travel: it comes from the site's code and the coordinator's settings, without data.
                raise BadParameter(
                    f"the module {self.module!r} cannot be built with these settings: {error}"
                ) from error
        if not isinstance(module, torch.nn.Module):
            raise BadParameter(f"the factory of {self.module!r} does not return a torch.nn.Module")
        _check_layers(module, self.module)
        return module.eval().to(getattr(torch, self.precision))

    def start(self, seed: int) -> Floats:
        """The first weights from a public seed, flat, in doubles, shape (n,)."""
        flat = [each.detach().flatten() for each in self.built(seed).parameters()]
        return np.asarray(torch_().cat(flat).double().numpy())


def _check_layers(module: Any, name: str) -> None:
    """Refuse layers whose output for one example depends on others, and parameters that cannot be trained."""
    nn = torch_().nn
    for layer in module.modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise Refused(
                f"the module {name!r} has a layer {kind}, which mixes the examples of a batch, so that no example's "
                "gradient is its own: use GroupNorm"
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            raise Refused(
                f"the module {name!r} has a layer {kind} that keeps statistics of the examples it saw: leave "
                "track_running_stats off, or use GroupNorm"
            )
        if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
            raise BadParameter(f"the module {name!r} has a layer {kind} without a size: give every layer its sizes")
    if not all(each.requires_grad for each in module.parameters()):
        raise BadParameter(f"the module {name!r} has frozen parameters: make them buffers, which do not train")
    if not list(module.parameters()):
        raise BadParameter(f"the module {name!r} has no parameters to train")


def own_device() -> str:
    """The device of this site, from its own environment; a coordinator cannot set it."""
    chosen = os.environ.get(DEVICE, "cpu")
    if chosen.startswith("cuda") and not torch_().cuda.is_available():
        raise BadParameter(f"{DEVICE} is {chosen!r}, but PyTorch finds no such device here")
    return chosen


def runner(architecture: Architecture, batch: int, device: str | None = None) -> Runner:
    """The module on a device, by default this site's, with a batch that passed the test."""
    return _runner(architecture, batch, device or own_device(), torch_().get_num_threads())


@lru_cache(maxsize=8)
def _runner(architecture: Architecture, batch: int, device: str, threads: int) -> Runner:
    """A cached runner. The number of threads is part of the key, since rounding may depend on it."""
    return Runner(architecture, batch, device)


@contextmanager
def deterministic() -> Iterator[None]:
    """PyTorch's deterministic kernels, as long as this lasts."""
    torch = torch_()
    filling = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        filling.fill_uninitialized_memory,
    )
    with warnings.catch_warnings(), torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):
        # PyTorch warns of kernels without a deterministic form; the test of the module docstring decides about them.
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        # PyTorch would fill new memory with NaN first, and so write every result twice.
        filling.fill_uninitialized_memory = False
        try:
            yield
        except torch.OutOfMemoryError as error:
            # as a MemoryError it is not attributed to the data of a unit
            raise MemoryError(str(error)) from None
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            filling.fill_uninitialized_memory = before[2]


def largest_batch(most: int, independent: Callable[[int], bool]) -> int:
    """The largest of `most`, `most`/2, ... 1 rows for which `independent` holds; 0 if it holds for none.

    A kernel may round a row by its place in a large batch and not in a small one.

    >>> largest_batch(16, lambda count: count <= 5)
    4
    """
    while most and not independent(most):
        most //= 2
    return most


def _unfold(module: Any) -> None:
    """Replace the forward pass of plain convolutions by one matrix product per example. The library of a GPU takes far
    longer for per-example gradients of convolutions.
    """
    nn = torch_().nn
    for layer in module.modules():
        plain = isinstance(layer, nn.Conv2d) and layer.groups == 1 and layer.padding_mode == "zeros"
        if plain and layer.dilation == (1, 1) and not isinstance(layer.padding, str):
            layer.forward = MethodType(_unfolded, layer)


def _unfolded(layer: Any, x: Tensor) -> Tensor:
    """A convolution as a product of weights and patches.

    Patches are cut out along one side and then along the other: `functional.unfold` would start a kernel for every
    example.

    Parameters
    ----------
    layer : torch.nn.Conv2d
        Without groups, dilation or padding modes other than zeros.
    x : tensor of shape (..., channels, height, width)
        One example or a batch.
    """
    (tall, wide), (down, across), (high, broad) = layer.padding, layer.stride, layer.kernel_size
    torch = torch_()
    x = torch.nn.functional.pad(x, (wide, wide, tall, tall))
    # the size of the output, from the padded input
    height, width = (x.shape[-2] - high) // down + 1, (x.shape[-1] - broad) // across + 1
    # the last axes of `cut` are in the end: kernel row, kernel column, output row, output column
    cut = torch.stack([x[..., i : i + down * (height - 1) + 1 : down, :] for i in range(high)], dim=-3)
    cut = torch.stack([cut[..., i : i + across * (width - 1) + 1 : across] for i in range(broad)], dim=-3)
    out = layer.weight.flatten(1) @ cut.flatten(-2).flatten(-4, -2)
    if layer.bias is not None:
        out = out + layer.bias[:, None]
    return out.reshape(*x.shape[:-3], -1, height, width)


class Runner:
    """A module on a device, its parameters as one flat vector of n numbers.

    Parameters
    ----------
    architecture : Architecture
        The public description of the module.
    batch : int
        The largest batch, a power of two. The attribute `batch` is the one that passed the test.
    device : str
        Name of a PyTorch device.
    """

    def __init__(self, architecture: Architecture, batch: int, device: str) -> None:
        torch = torch_()
        self.architecture, self.device = architecture, torch.device(device)
        self.module = architecture.built().to(self.device)
        self.dtype = getattr(torch, architecture.precision)
        self._sizes = [(name, each.shape, each.numel()) for name, each in self.module.named_parameters()]
        self.size = sum(size for _name, _shape, size in self._sizes)
        self._check_outputs()
        # before the test, which must see the kernels that are used later
        if self.device.type != "cpu":
            _unfold(self.module)
        self.batch = self._promised(batch)
        if self.batch < batch:
            _log.warning(
                "%s goes in batches of %d: in larger ones rounding depends on places", self.architecture, self.batch
            )

    # ---- one batch -------------------------------------------------------------------------------------------------

    def parameters(self, weights: Floats) -> dict[str, Tensor]:
        """Flat weights (n,) as tensors by the names of the module's parameters."""
        torch = torch_()
        flat = torch.from_numpy(np.array(weights)).to(self.device, self.dtype)
        parts = torch.split(flat, [size for _name, _shape, size in self._sizes])
        return {name: part.reshape(shape) for (name, shape, _), part in zip(self._sizes, parts, strict=True)}

    def gradients(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
        """Per-example gradients of the loss.

        Parameters
        ----------
        parameters : dict
            From `parameters`.
        x, y : tensor
            A batch of inputs (batch, *shape) and of classes or responses (batch,).

        Returns
        -------
        gradients : list of tensor
            For each parameter of the module a tensor (batch, size of the parameter).
        """
        gradients = self._gradient(parameters, x, y)
        return [gradients[name].flatten(1) for name, _shape, _size in self._sizes]

    def outputs(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Outputs of every example, shape (batch, classes)."""
        with torch_().no_grad():
            return self._output(parameters, x)

    @cached_property
    def _output(self) -> Any:
        from torch.func import functional_call, vmap  # type: ignore[import-not-found,unused-ignore]

        return vmap(lambda p, x: functional_call(self.module, p, (x[None],))[0], in_dims=(None, 0))

    @cached_property
    def _gradient(self) -> Any:
        from torch.func import functional_call, grad, vmap

        torch, classes = torch_(), self.architecture.classes
        places = torch.arange(classes, device=self.device, dtype=self.dtype)

        def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            out = functional_call(self.module, p, (x[None],))
            if classes == 1:
                return 0.5 * (out.reshape(()) - y) ** 2
            # Cross-entropy by a mask. The gradient of a look-up is a scatter, which some devices add in any order.
            return -(torch.log_softmax(out[0], dim=0) * (places == y)).sum()

        return vmap(grad(loss), in_dims=(None, 0, 0))

    def rows(self, gradients: list[Tensor]) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Gradients over all tensors as rows of doubles, with their norms; on a processor a few examples at a time,
        which stay in its cache.

        Parameters
        ----------
        gradients : list of tensor
            From `gradients`.

        Yields
        ------
        own : slice
            Positions of the examples in the batch.
        rows : tensor of shape (examples, n)
            Their gradients in doubles.
        norms : tensor of shape (examples,)
            Euclidean norms of the rows.
        """
        torch = torch_()
        count = len(gradients[0])
        few = _AT_ONCE if self.device.type == "cpu" else count
        for start in range(0, count, few):
            own = slice(start, min(start + few, count))
            rows = torch.empty(own.stop - start, self.size, dtype=torch.float64, device=self.device)
            at = 0
            for each in gradients:
                rows[:, at : at + each.shape[1]] = each[own]
                at += each.shape[1]
            yield own, rows, self.norms(rows)

    def norms(self, rows: Tensor) -> Tensor:
        """Euclidean norms of rows of doubles, shape (rows,). The reduction of a GPU adds up a row in an order that
        depends on where the row begins in memory, so that there `squares` is used.
        """
        torch = torch_()
        return torch.linalg.vector_norm(rows, dim=1) if self.device.type == "cpu" else torch.sqrt(squares(rows))

    def batches(self, x: Tensor, y: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Examples in batches of the one shape: how many are real, and the batch, padded with zeros.

        Each batch is a tensor of its own. A slice of a table may have other strides or another alignment than a padded
        batch, and a library may multiply the two by different kernels, which round differently: the position of an
        example would then affect its bits.

        Parameters
        ----------
        x : tensor of shape (rows, columns - 1)
            Inputs.
        y : tensor of shape (rows,)
            Classes or responses.

        Yields
        ------
        real : int
            Number of examples that are not padding.
        own, label : tensor
            Inputs (batch, *shape) and responses (batch,).
        """
        torch = torch_()
        x = x.to(self.device, self.dtype).reshape(-1, *self.architecture.shape)
        y = y.to(self.device, self.dtype)
        for start in range(0, len(x), self.batch):
            real = min(self.batch, len(x) - start)
            own = torch.zeros(self.batch, *self.architecture.shape, dtype=self.dtype, device=self.device)
            label = torch.zeros(self.batch, dtype=self.dtype, device=self.device)
            own[:real] = x[start : start + real]
            label[:real] = y[start : start + real]
            yield real, own, label

    # ---- the test --------------------------------------------------------------------------------------------------

    def _check_outputs(self) -> None:
        """Refuse a module whose output has another shape than (1, classes), or that changes its buffers."""
        torch, wanted = torch_(), max(self.architecture.classes, 1)
        before = [each.clone() for each in self.module.buffers()]
        example = torch.zeros(1, *self.architecture.shape, dtype=self.dtype, device=self.device)
        try:
            with torch.no_grad():
                out = self.module(example)
        except Exception as error:
            # The message may travel: it is about an example of zeros, not about data.
            raise BadParameter(f"the module {self.architecture.module!r} does not take such inputs: {error}") from error
        if tuple(out.shape) != (1, wanted):
            raise BadParameter(
                f"the module {self.architecture.module!r} must give {wanted} numbers for an example, "
                f"it gives shape {tuple(out.shape[1:])}"
            )
        if not all(torch.equal(a, b) for a, b in zip(before, self.module.buffers(), strict=True)):
            raise Refused(f"the module {self.architecture.module!r} changes its buffers: it would remember examples")

    def _promised(self, batch: int) -> int:
        """The largest of `batch`, `batch`/2, ... in which no example changes the result of another."""
        with deterministic():
            promised = largest_batch(batch, self._examples_are_independent)
        if not promised:
            raise Refused(
                f"the module {self.architecture.module!r} computes the same example differently each time on "
                f"{self.device}: it cannot be used for private data"
            )
        return promised

    def _examples_are_independent(self, batch: int) -> bool:
        """Whether outputs, gradients and norms of `batch` public examples have the same bits at all positions and
        beside others.
        """
        torch = torch_()
        rng = np.random.default_rng(batch)
        x = torch.from_numpy(rng.normal(size=(batch, *self.architecture.shape))).to(self.device, self.dtype)
        y = torch.from_numpy(rng.integers(0, self.architecture.classes, batch)).to(self.device, self.dtype)
        parameters = {name: each.detach() for name, each in self.module.named_parameters()}

        def results(x: Tensor, y: Tensor) -> Tensor:
            parts = list(self.rows(self.gradients(parameters, x, y)))
            joined = [torch.cat([each[k] for each in parts]) for k in (1, 2)]
            return torch.cat([self.outputs(parameters, x).double(), joined[1][:, None], joined[0]], dim=1)

        base = results(x, y)
        # at other positions of the batch
        for shift in sorted({0, 1, 3 % batch, batch // 2, batch - 1}):
            if not torch.equal(results(x.roll(shift, 0), y.roll(shift, 0)), base.roll(shift, 0)):
                return False
        # beside other examples: zeros, large numbers, and NaN, which spreads through any sum over examples
        for factor in (0.0, 1e4, float("nan")) if batch > 1 else ():
            for place in {0, batch // 2 - 1, batch - 1}:
                beside = x.roll(1, 0) * factor
                beside[place] = x[place]
                labels = y.roll(1, 0)
                labels[place] = y[place]
                if not torch.equal(results(beside, labels)[place], base[place]):
                    return False
        return True
