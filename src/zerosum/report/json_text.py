"""JSON text for readers: one line per entry, tables of numbers in one line, no infinities or NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic_core import to_json


def finite(value: Any) -> Any:
    """The record with None for infinities and NaN, which JSON does not have.

    Parameters
    ----------
    value : JSON-compatible, with tuples and any floats
        A record, or a part of one.
    """
    if isinstance(value, float):  # the most frequent case first
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        with suppress(TypeError, OverflowError):  # not a list of numbers
            # Lists of finite numbers, the usual case, are copied without a call per element.
            if all(map(math.isfinite, value)):
                return list(value)
        return [finite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return value


def readable(value: Any, indent: str = "") -> str:
    """JSON text with one line for each entry, and each table of numbers in one line.

    >>> print(readable({"mean": [1.0, 2.0], "sites": [{"name": "a"}]}))
    {
      "mean": [1.0, 2.0],
      "sites": [
        {
          "name": "a"
        }
      ]
    }
    """
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        lines = [f"{inner}{json.dumps(key)}: {readable(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return "[\n" + ",\n".join(inner + readable(item, inner) for item in value) + f"\n{indent}]"
    # Maps and matrices have millions of numbers; with one line for each a file would be hard to read and large.
    if _table(value):
        return to_json(value).decode().replace(",", ", ")  # about ten times as fast as `json.dumps`
    return json.dumps(value)


def _table(value: Any) -> bool:
    """Whether a value is a list of floats, or a nested list of such lists."""
    if not isinstance(value, list):
        return False
    return all(type(item) is float for item in value) or all(_table(item) for item in value)
