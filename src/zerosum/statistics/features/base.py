"""Base class of feature maps: a public function of one row, computed in batches of one fixed shape."""

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

    The features of a row must not depend on any other row (`zerosum.compute.backends.exact`). Rows are taken in batches
    of `batch`, the last one padded with zeros, so that a library receives one shape only. Its rounding can then depend
    neither on the number of rows nor on the neighbours of a row in its batch.
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
        """The features of `batch` rows of doubles.

        Parameters
        ----------
        rows : array of shape (batch, inputs)
            Doubles; the last rows may be padding of zeros.

        Returns
        -------
        array of shape (batch, size)
        """

    def ready(self) -> None:
        """Run all steps that can fail without data, so that a site refuses before a row is read."""

    def __call__(self, rows: Array) -> Array:
        """The features of any number of rows, in single precision.

        Each row is mapped by itself. A row on which the map fails has zero features: an error would reveal
        information about a unit to the coordinator.

        Parameters
        ----------
        rows : array of shape (rows, inputs)
            Rows of one block of units.

        Returns
        -------
        array of shape (rows, size)
            Single floats; in the namespace and on the device of the rows.
        """
        xp = array_namespace(rows)
        count = int(rows.shape[0])
        parts = [self._mapped(rows[at : min(at + self.batch, count), ...]) for at in range(0, count, self.batch)]
        return xp.concat(parts, axis=0) if parts else xp.zeros((0, self.size), dtype=xp.float32, device=device_of(rows))

    def _mapped(self, rows: Array) -> Array:
        """The features of at most `batch` rows, shape (rows, size). If the map fails, each row is mapped alone, down to
        the row at fault, which gets zeros.
        """
        xp, count = array_namespace(rows), int(rows.shape[0])
        filled = doubles(rows)
        # Padded to the full batch, so that a library always receives one shape and rounds a row equally.
        if count < self.batch:
            rest = xp.zeros((self.batch - count, self.inputs), dtype=filled.dtype, device=device_of(rows))
            filled = xp.concat([filled, rest], axis=0)
        try:
            features = xp.astype(self.map_batch(filled), xp.float32)
            if features.shape == (self.batch, self.size):
                return features[:count, ...]
        except MemoryError:  # not any row's fault
            raise
        except Exception:
            _log.warning("features %r failed for some rows; only those at fault have none", self.kind, exc_info=True)
        if count == 1:
            return xp.zeros((1, self.size), dtype=xp.float32, device=device_of(rows))
        return xp.concat([self._mapped(rows[at : at + 1, ...]) for at in range(count)], axis=0)
