"""Records as JSON that people read: a line for each entry, and no number that JSON does not have.

Tested in tests/report/test_json_text.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic_core import to_json


def finite(value: Any) -> Any:
    """The same record with None where JSON has no number: infinities and NaN."""
    if isinstance(value, float):  # nearly everything is
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        with suppress(TypeError, OverflowError):  # not a row of numbers
            if all(map(math.isfinite, value)):
                return list(value)
        return [finite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return value


def readable(value: Any, indent: str = "") -> str:
    """A record as JSON with a line for each of its entries, and tables of numbers in one line each.

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
    if _table(value):
        return to_json(value).decode().replace(",", ", ")  # ten times as fast as `dumps`
    return json.dumps(value)


def _table(value: Any) -> bool:
    """Whether these are numbers in rows, or rows of such rows."""
    if not isinstance(value, list):
        return False
    return all(type(item) is float for item in value) or all(_table(item) for item in value)
