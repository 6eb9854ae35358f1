"""Closed registries of what a plan may name: statistics, feature maps, PyTorch modules.

A plan has names and public settings only; no code travels. A site resolves a name in its own process: among the entries
of the package, those that `register` added in this process, and the entry points of its environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from zerosum.errors import BadParameter

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by name, each name once.

    Parameters
    ----------
    noun : str
        What an entry is, for messages.
    group : str
        Group of entry points in the site's environment that may add entries.
    builtin : mapping of str to Entry
        The entries of the package.
    fits : callable, optional
        Whether an object that an entry point loaded is an entry of that name. By default every object is.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        builtin: Mapping[str, Entry],
        fits: Callable[[Any, str], bool] = lambda loaded, name: True,
    ) -> None:
        self._noun, self._group, self._fits = noun, group, fits
        self._entries = dict(builtin)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def register(self, name: str, entry: Entry) -> Entry:
        """Make an entry known to this process, and return it. Raises `BadParameter` if another one has the name."""
        # Two entries of one name would let a plan mean different computations at different sites.
        if self._entries.setdefault(name, entry) is not entry:
            raise BadParameter(f"a {self._noun} named {name!r} is registered already")
        return entry

    def find(self, name: str) -> Entry | None:
        """The entry of that name, or None. Raises `BadParameter` if the entry point of this name gives another object.

        Parameters
        ----------
        name : str
            As in the plan, which comes from the coordinator.
        """
        if name not in self._entries:
            # Loaded on demand, since an entry point may import a large library.
            for point in entry_points(group=self._group, name=name):
                loaded = point.load()
                if not self._fits(loaded, name):
                    raise BadParameter(f"the entry point {name!r} is not a {self._noun} of that name")
                self.register(name, loaded)
        return self._entries.get(name)
