"""What a feature map is: a public function of one row, computed in batches of one fixed shape.

Tested in tests/statistics/test_features.py.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import BaseModel, ConfigDict, ValidationError

from zerosum.arrays import Array
from zerosum.compute.backends.exact import doubles
from zerosum.errors import BadParameter, first_fault

_log = logging.getLogger(__name__)  # stays at the site


class FeatureMap(BaseModel, ABC):
    """A public map from a row of `inputs` numbers to one of `size`. Fields are its settings; unknown ones are refused.

    What it makes of a row must not depend on any other (`zerosum.compute.backends.exact`). Rows are taken in batches of
    `batch`, the last one filled up with zeros, so that a library never sees another shape, whoever takes part: how it
    computes a place of a batch can then depend neither on how many rows there are nor on what stands beside it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    kind: ClassVar[str]
    batch: ClassVar[int] = 64

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise BadParameter(f"features {self.kind!r}: {first_fault(error)}") from None

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many numbers a row has."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many features there are."""

    @abstractmethod
    def map_batch(self, rows: Array) -> Array:
        """The features of `batch` rows of doubles."""

    def ready(self) -> None:
        """Whatever can fail before any row is there: a site refuses then, and no row is to blame."""

    def __call__(self, rows: Array) -> Array:
        """The features of any number of rows, as single floats; each row is mapped by itself, and one for which the map
        fails has none: an error would tell whoever asks about a unit."""
        xp = array_namespace(rows)
        count = int(rows.shape[0])
        parts = [self._mapped(rows[at : min(at + self.batch, count), ...]) for at in range(0, count, self.batch)]
        return xp.concat(parts, axis=0) if parts else xp.zeros((0, self.size), dtype=xp.float32, device=device_of(rows))

    def _mapped(self, rows: Array) -> Array:
        xp, count = array_namespace(rows), int(rows.shape[0])
        filled = doubles(rows)
        if count < self.batch:
            rest = xp.zeros((self.batch - count, self.inputs), dtype=filled.dtype, device=device_of(rows))
            filled = xp.concat([filled, rest], axis=0)
        try:
            found = xp.astype(self.map_batch(filled), xp.float32)
            if found.shape == (self.batch, self.size):
                return found[:count, ...]
        except MemoryError:  # not any row's fault
            raise
        except Exception:
            _log.warning("features %r failed for some rows; only those at fault have none", self.kind, exc_info=True)
        if count == 1:
            return xp.zeros((1, self.size), dtype=xp.float32, device=device_of(rows))
        return xp.concat([self._mapped(rows[at : at + 1, ...]) for at in range(count)], axis=0)
