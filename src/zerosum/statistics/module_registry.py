"""PyTorch modules a site knows by name. A coordinator names one and gives public settings; no code travels.

A site's own come from entry points of the group `zerosum.modules` in its environment, or from `register_module` in its
own process: a function that takes settings (what JSON can say) and returns a `torch.nn.Module`. Some stand here.

Tested in tests/statistics/test_module.py.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from zerosum.errors import BadParameter

Factory = Callable[..., Any]  # settings to a torch.nn.Module

ENTRY_POINTS = "zerosum.modules"


def perceptron(features: int, classes: int, hidden: int = 64) -> Any:
    """One hidden layer of tanh units."""
    from torch import nn  # type: ignore[import-not-found,unused-ignore]

    return nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def tanh_cnn(channels: int = 1, side: int = 28, classes: int = 10) -> Any:
    """Two convolutions and two linear layers with tanh units, 26 000 weights for 28 x 28 pixels of one channel.

    Bounded units keep gradients short, so that less of them is clipped (Papernot et al. 2021).
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
        width = nn.Sequential(*layers)(torch.zeros(1, channels, side, side)).shape[1]
    return nn.Sequential(*layers, nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, classes))


_registry: dict[str, Factory] = {"perceptron": perceptron, "tanh-cnn": tanh_cnn}

BUILTIN_MODULES = frozenset(_registry)


def register_module(name: str, factory: Factory | None = None) -> Factory:
    """Make a PyTorch module known to this process under a name; also as a decorator of its factory.

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
    known = _registry.setdefault(name, factory)
    if known is not factory:
        raise BadParameter(f"a module named {name!r} is registered already")
    return factory


def find_module(name: str) -> Factory:
    """The factory of that name in this site's own registry."""
    if name not in _registry:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            register_module(name, point.load())
    if name not in _registry:
        raise BadParameter(f"unknown module {name!r}; there are {', '.join(sorted(_registry))}")
    return _registry[name]
