"""The question of a study in public words: the part of a plan that a data steward reads and that its digest covers."""

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

# names or numbers in one list; longer lists are represented by their digest. Chosen by hand; no benchmark recorded
_LISTED = 1000


@dataclass(frozen=True)
class Question:
    """An algorithm's parameters, the columns in their order, the preprocessing, and the public files that the study
    reads.

    No cost is computed from a question; costs follow from the releases. Plans of version 0.1 have an empty question.
    Plans without a purpose and a permit leave both entries out (`zerosum.kernel.plan.Plan.to_json`).
    """

    columns: tuple[str, ...] = ()  # beyond 1000 columns only the first and the last
    n_columns: int = 0
    columns_digest: str = ""
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    preprocessing: Mapping[str, JsonValue] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # purpose of a file -> its SHA-256
    purpose: str = ""  # of the study, in the analyst's words
    permit: Mapping[str, str] = field(default_factory=dict)  # number, authority, controller and the like

    @property
    def missing(self) -> bool:
        """Whether there is a rule for missing values, for any column."""
        return self.parameters.get("missing") is not None

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of a site's table that the study may read, which policies name.

        Columns of a regression's design matrix, such as `sex=m` and `age:sex=m`, are made from columns of the table. A
        design names those that it may read in its ranges, its levels and its response.

        >>> design = {"response": "sick", "ranges": {"age": [0, 100]}, "levels": {"sex": ["f", "m"], "sick": [0, 1]}}
        >>> Question.of(["age", "sex=m", "sick"], {}, {"design": design}).sources
        ('age', 'sex', 'sick')
        """
        design = self.preprocessing.get("design")
        # Images and documents have no design: an entry of this name has no effect there, and must not hide the columns.
        if not isinstance(design, Mapping) or self.files.keys() & {"mask", "atlas", "vocabulary"}:
            return self.columns
        named: list[object] = []
        for entry in ("ranges", "levels"):
            if isinstance(given := design.get(entry), Mapping):
                named += given
        return tuple(dict.fromkeys(str(name) for name in (*named, design.get("response", ""))))

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        parameters: Mapping[str, Any],
        preprocessing: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> Question:
        """The question with its values in JSON form.

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
    """SHA-256 of the column names in their order. It represents the columns where there are too many to list."""
    return _sha256(json.dumps(list(columns)).encode())


def plain(value: Any) -> JsonValue:
    """A public parameter in JSON form; a large array by its shape and digest."""
    if isinstance(value, np.ndarray):
        if value.size <= _LISTED:
            return plain(value.tolist())
        # Little-endian doubles in row order, so that the digest is the same on every machine.
        raw = np.ascontiguousarray(value, dtype="<f8").tobytes()
        return {"shape": list(value.shape), "sha256": _sha256(raw)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise BadParameter(f"public parameters must be finite numbers, got {value}")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
