"""PyTorch modules that a site knows by name. A coordinator sends a name and public settings, and never code.

A site's own modules come from entry points of the group `zerosum.modules` in its environment, or from `register_module`
in its own process. A factory takes settings that JSON can represent and returns a `torch.nn.Module`. Two modules are
built in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerosum.errors import BadParameter
from zerosum.statistics.registry import Registry

# Maps settings to a torch.nn.Module.
Factory = Callable[..., Any]

ENTRY_POINTS = "zerosum.modules"


def perceptron(features: int, classes: int, hidden: int = 64) -> Any:
    """One hidden layer of tanh units.

    Parameters
    ----------
    features, classes, hidden : int
        The numbers of inputs, outputs and hidden units.
    """
    from torch import nn  # type: ignore[import-not-found,unused-ignore]

    return nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def tanh_cnn(channels: int = 1, side: int = 28, classes: int = 10) -> Any:
    """Two convolutions and two linear layers with tanh units, 26 000 weights for 28 x 28 pixels of one channel.

    Bounded units keep gradients short, so that less of them is clipped (Papernot et al. 2021).

    Parameters
    ----------
    channels, side, classes : int
        The channels and the side length of the square images, and the number of outputs.
    """
    import torch
    from torch import nn

    layers = [
        nn.Conv2d(channels, 16, 8, 2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    ]
    with torch.no_grad():
        # The number of inputs of the first linear layer, from one pass of an image of zeros.
        width = nn.Sequential(*layers)(torch.zeros(1, channels, side, side)).shape[1]
    return nn.Sequential(*layers, nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, classes))


_BUILTIN: dict[str, Factory] = {"perceptron": perceptron, "tanh-cnn": tanh_cnn}

BUILTIN_MODULES = frozenset(_BUILTIN)
_registry: Registry[Factory] = Registry("module", ENTRY_POINTS, _BUILTIN)


def register_module(name: str, factory: Factory | None = None) -> Factory:
    """Register the factory of a PyTorch module in this process under a name; also usable as a decorator.

    Parameters
    ----------
    name : str
        The name in studies.
    factory : callable, optional
        Returns the module; None if used as a decorator.

    Raises
    ------
    BadParameter
        If another factory has the name.

    Examples
    --------
    >>> @register_module("two-outputs")
    ... def two_outputs(features):
    ...     from torch import nn
    ...     return nn.Linear(features, 2)
    >>> find_module("two-outputs") is two_outputs
    True
    """
    if factory is None:
        return lambda wrapped: register_module(name, wrapped)
    if not callable(factory):
        raise BadParameter(f"the module {name!r} must be given as a function that returns it")
    return _registry.register(name, factory)


def find_module(name: str) -> Factory:
    """The factory of that name in this site's own registry.

    Raises
    ------
    BadParameter
        If the site does not know the name.
    """
    factory = _registry.find(name)
    if factory is None:
        raise BadParameter(f"unknown module {name!r}; there are {', '.join(_registry)}")
    return factory
