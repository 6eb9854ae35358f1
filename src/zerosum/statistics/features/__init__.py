"""Public feature maps: functions of one row that are applied before a model is fitted. A closed registry, as for
statistics.

A study names a map by its `kind` and its public settings. A site builds it from its own registry, from entry points of
the group `zerosum.features` in its environment, or from `register` in its own process. No code travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from zerosum.errors import BadParameter
from zerosum.statistics.features.base import FeatureMap
from zerosum.statistics.features.module import ModuleFeatures
from zerosum.statistics.features.random import LinearFeatures, RandomFeatures
from zerosum.statistics.features.scattering import Scattering

_registry: dict[str, type[FeatureMap]] = {
    each.kind: each for each in (LinearFeatures, RandomFeatures, Scattering, ModuleFeatures)
}

ENTRY_POINTS = "zerosum.features"


def register(map_type: type[FeatureMap]) -> type[FeatureMap]:
    """Make a feature map known to this process; a name that is taken by another one is refused.

    Parameters
    ----------
    map_type : type
        A subclass of `FeatureMap` with a class variable `kind`.
    """
    known = _registry.setdefault(map_type.kind, map_type)
    if known is not map_type:
        raise BadParameter(f"features of the kind {map_type.kind!r} are registered already")
    return map_type


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
        raise BadParameter(f"features need a kind: one of {', '.join(sorted(_registry))}")
    if kind not in _registry:
        for point in entry_points(group=ENTRY_POINTS, name=kind):
            found = point.load()
            if not (isinstance(found, type) and issubclass(found, FeatureMap) and found.kind == kind):
                raise BadParameter(f"the entry point {kind!r} is no feature map of that kind")
            register(found)
    if kind not in _registry:
        raise BadParameter(f"there are no features of the kind {kind!r}; known are {', '.join(sorted(_registry))}")
    return _registry[kind]


__all__ = ["FeatureMap", "LinearFeatures", "ModuleFeatures", "RandomFeatures", "Scattering", "build", "register"]
