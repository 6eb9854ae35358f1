"""Optimisers: from the current weights and a released gradient to the next weights. Free post-processing.

An optimiser is one `step`. "SGD" with momentum alone is NumPy arithmetic and needs no other library (`Momentum`). The
other names, and settings beyond the momentum, are PyTorch's own optimisers (`TorchOptimiser`). `make_optimiser` chooses
between them; no other code does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from zerosum.algorithms.training.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.statistics.module_gradients import torch_

SGD = "SGD"

#: PyTorch's optimisers that update each weight by itself. Others use the shapes of layers, which a flat vector lacks.
OPTIMIZERS = (SGD, "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Rprop")


class Optimiser(Protocol):
    """An optimiser of one flat vector of n weights, with a state of its own from step to step."""

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        """The next weights (n,) from the current ones (n,) and the mean gradient (n,) at them."""
        ...


def make_optimiser(name: str, rate: float, momentum: float, settings: Mapping[str, Any]) -> Optimiser:
    """The optimiser of a study.

    Parameters
    ----------
    name : str
        One of `OPTIMIZERS`.
    rate : float
        Learning rate.
    momentum : float
        Momentum of "SGD"; the other optimisers ignore it.
    settings : mapping
        Further arguments of PyTorch's optimiser of that name.

    Raises
    ------
    BadParameter
        If PyTorch is needed and not installed. Settings that PyTorch refuses are found in the first step.

    Examples
    --------
    >>> make_optimiser("SGD", 0.5, 0.0, {}).step(np.array([1.0]), np.array([2.0])).tolist()
    [0.0]
    """
    if name == SGD and not settings:
        return Momentum(rate, momentum)
    return TorchOptimiser(name, rate, momentum, settings)


def rate_for(name: str, length: float, momentum: float, clip: float) -> float:
    """The learning rate that the planner gives to an optimiser.

    Parameters
    ----------
    name : str
        One of `OPTIMIZERS`.
    length : float
        Length that a step should have if the gradients of all units agree, in clips.
    momentum : float
        Momentum of "SGD".
    clip : float
        Clip of a unit's gradient.
    """
    if name == SGD:
        # Under a constant gradient the velocity of momentum m grows to the gradient over 1 - m.
        return length * (1 - momentum) / clip
    return TUNING.adaptive_rate


class Momentum:
    """Gradient descent with momentum (heavy ball): velocity <- m velocity + g, weights <- weights - rate velocity.

    Parameters
    ----------
    rate : float
        Learning rate.
    momentum : float
        m, in [0, 1).
    """

    def __init__(self, rate: float, momentum: float) -> None:
        self._rate, self._momentum = rate, momentum
        self._velocity: Floats | float = 0.0

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        """The next weights (n,)."""
        # no factor 1 - m on the gradient, as in PyTorch's SGD: `rate_for` has it in the rate
        self._velocity = self._momentum * self._velocity + gradient
        return np.asarray(weights - self._rate * self._velocity)


class TorchOptimiser:
    """One of PyTorch's optimisers, on one flat vector of doubles.

    Parameters
    ----------
    name : str
        Name in `torch.optim`.
    rate : float
        Learning rate `lr`.
    momentum : float
        Momentum of "SGD"; the other optimisers ignore it.
    settings : mapping
        Further arguments.
    """

    def __init__(self, name: str, rate: float, momentum: float, settings: Mapping[str, Any]) -> None:
        self._torch = torch_()
        self._weights: Any = None
        own = {"momentum": momentum} if name == SGD else {}
        self._made: Any = getattr(self._torch.optim, name)
        self._settings = {"lr": rate, **own, **settings}
        self._optimiser: Any = None

    def step(self, weights: Floats, gradient: Floats) -> Floats:
        """The next weights (n,).

        Raises
        ------
        BadParameter
            If PyTorch refuses the settings.
        """
        torch = self._torch
        if self._optimiser is None:
            self._weights = torch.nn.Parameter(torch.from_numpy(np.array(weights)))
            try:
                self._optimiser = self._made([self._weights], **self._settings)
            except (TypeError, ValueError) as error:
                raise BadParameter(f"optimizer_settings do not suit the optimiser: {error}") from error
        # The program limits weights between steps, so that they are copied in again. The state of the optimiser stays.
        with torch.no_grad():
            self._weights.copy_(torch.from_numpy(np.array(weights)))
        self._weights.grad = torch.from_numpy(np.array(gradient))
        self._optimiser.step()
        return np.asarray(self._weights.detach().numpy().copy())
