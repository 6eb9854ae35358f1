"""What a study asks, in public words: what a steward reads, and what a plan's digest covers beside its numbers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import JsonValue

from zerosum.errors import BadParameter

_LISTED = 1000  # names or numbers; longer lists are named by their digest


@dataclass(frozen=True)
class Question:
    """An algorithm's parameters, the columns in their order, what is done to data first, and the public files it reads.

    Nothing here is used to compute a cost: that is what releases are for. Plans of 0.1 have an empty one.
    """

    columns: tuple[str, ...] = ()  # where there are many: the first and the last
    n_columns: int = 0
    columns_digest: str = ""
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    preprocessing: Mapping[str, JsonValue] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # what a file is for, and its SHA-256

    @property
    def missing(self) -> bool:
        """Whether there is a rule for missing values, of whatever column."""
        return self.parameters.get("missing") is not None

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        parameters: Mapping[str, Any],
        preprocessing: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> Question:
        """
        >>> Question.of(["age", "bmi"], {"clip": 1.0, "lower": np.zeros(2)}).parameters["lower"]
        [0.0, 0.0]
        """
        listed = tuple(columns) if len(columns) <= _LISTED else (columns[0], columns[-1])
        return cls(
            listed,
            len(columns),
            columns_digest(columns),
            {name: plain(value) for name, value in parameters.items()},
            {name: plain(value) for name, value in (preprocessing or {}).items()},
            dict(files or {}),
        )


def columns_digest(columns: Sequence[str]) -> str:
    """SHA-256 of the names of columns in their order, by which plans name very many of them."""
    return _sha256(json.dumps(list(columns)).encode())


def plain(value: Any) -> JsonValue:
    """A public parameter as JSON; a large array by its shape and digest."""
    if isinstance(value, np.ndarray):
        if value.size <= _LISTED:
            return plain(value.tolist())
        raw = np.ascontiguousarray(value, dtype="<f8").tobytes()
        return {"shape": list(value.shape), "sha256": _sha256(raw)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise BadParameter("public parameters must be finite numbers")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
