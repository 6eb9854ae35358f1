"""Public feature maps: functions of one row that are applied before a model is fitted. A closed registry, as for
statistics.

A study names a map by its `kind` and its public settings. A site builds it from its own registry, from entry points of
the group `zerosum.features` in its environment, or from `register` in its own process. No code travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosum.errors import BadParameter
from zerosum.statistics.features.base import FeatureMap
from zerosum.statistics.features.module import ModuleFeatures
from zerosum.statistics.features.random import LinearFeatures, RandomFeatures
from zerosum.statistics.features.scattering import Scattering
from zerosum.statistics.registry import Registry

ENTRY_POINTS = "zerosum.features"


def _is_map(loaded: object, kind: str) -> bool:
    """Whether an object from an entry point is the feature map of that kind."""
    return isinstance(loaded, type) and issubclass(loaded, FeatureMap) and loaded.kind == kind


_registry: Registry[type[FeatureMap]] = Registry(
    "feature map",
    ENTRY_POINTS,
    {each.kind: each for each in (LinearFeatures, RandomFeatures, Scattering, ModuleFeatures)},
    _is_map,
)


def register(map_type: type[FeatureMap]) -> type[FeatureMap]:
    """Make a feature map known to this process; a name that is taken by another one is refused.

    Parameters
    ----------
    map_type : type
        A subclass of `FeatureMap` with a class variable `kind`.
    """
    return _registry.register(map_type.kind, map_type)


def build(settings: Mapping[str, Any]) -> FeatureMap:
    """A feature map from its `kind` and its settings.

    Parameters
    ----------
    settings : mapping
        The public settings of a plan, with the key `kind`. Unknown settings are refused.

    >>> build({"kind": "scattering", "height": 28, "width": 28}).size
    625
    """
    return find(settings.get("kind"))(**{name: value for name, value in settings.items() if name != "kind"})


def find(kind: object) -> type[FeatureMap]:
    """The feature map of that kind in this site's own registry.

    Parameters
    ----------
    kind : object
        As in the plan, which comes from the coordinator: its type is not trusted.
    """
    if not isinstance(kind, str):
        raise BadParameter(f"features need a kind: one of {', '.join(_registry)}")
    map_type = _registry.find(kind)
    if map_type is None:
        raise BadParameter(f"there are no features of the kind {kind!r}; known are {', '.join(_registry)}")
    return map_type


__all__ = ["FeatureMap", "LinearFeatures", "ModuleFeatures", "RandomFeatures", "Scattering", "build", "register"]
