"""REDCap projects: columns from a data dictionary, and a table from an export.

A data dictionary is a CSV with a line for each field, as REDCap writes it ("Data Dictionary", or its API with short
names of columns). It states types, ranges and choices, so that what is proposed for a study follows from the design of
the project and never from records:

    text with a validation   numbers with their range; dates, which exports write as year, month, day
    calc, slider             numbers; a slider goes from 0 to 100 unless the dictionary states other ends
    radio, dropdown          categories by the names of the choices; exports have their codes, which become `labels`
    yesno, truefalse         0 and 1
    checkbox                 a column of 0 and 1 for each choice, FIELD___CODE

Free text, notes, files, and fields that are marked as identifiers are left out of the table. The first field is the
record's identifier, the column of units.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from zerosum.data.formats import number, readable
from zerosum.errors import BadData

# Columns of a dictionary: the short names of the API, and the headings of the file that the website writes.
_HEADINGS = {
    "field_name": "Variable / Field Name",
    "field_type": "Field Type",
    "select_choices_or_calculations": "Choices, Calculations, OR Slider Labels",
    "text_validation_type_or_show_slider_number": "Text Validation Type OR Show Slider Number",
    "text_validation_min": "Text Validation Min",
    "text_validation_max": "Text Validation Max",
    "identifier": "Identifier?",
    "branching_logic": "Branching Logic (Show field only if...)",
    "required_field": "Required Field?",
}
_DATES = {"date": "%Y-%m-%d", "datetime_seconds": "%Y-%m-%d %H:%M:%S", "datetime": "%Y-%m-%d %H:%M"}
_SLIDER = (0.0, 100.0)  # ends of a slider whose dictionary states none


@dataclass(frozen=True)
class Dictionary:
    """What a data dictionary declares."""

    record: str  # the field that identifies a record
    columns: dict[str, dict[str, Any]]  # entries of a schema, by column of the export
    left_out: tuple[str, ...]  # free text, files and identifiers


def read_dictionary(path: Path) -> Dictionary:
    """Read a data dictionary.

    Parameters
    ----------
    path : Path
        CSV in UTF-8.

    Raises
    ------
    BadData
        If a column of a dictionary is missing, or a field occurs twice.
    """
    with readable(path), path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    if not rows:
        raise BadData(f"{path} has no fields")
    for short, heading in _HEADINGS.items():
        if short not in rows[0] and heading not in rows[0]:
            raise BadData(f"{path} is no data dictionary of REDCap: it has no column {heading!r}")
    fields = [
        {short: (row.get(short) or row.get(heading) or "").strip() for short, heading in _HEADINGS.items()}
        for row in rows
    ]
    columns: dict[str, dict[str, Any]] = {}
    left_out = []
    for field in fields[1:]:
        found = {} if field["identifier"].lower() == "y" else dict(_columns(field))
        if not found and field["field_type"] != "descriptive":
            left_out.append(field["field_name"])
        if twice := found.keys() & columns.keys():
            raise BadData(f"{path} has the field {min(twice)!r} twice")
        columns |= found
    return Dictionary(fields[0]["field_name"], columns, tuple(left_out))


def _columns(field: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Columns of one field, with entries of a schema; none for free text and files."""
    name, kind = field["field_name"], field["field_type"]
    # A field that depends on others, or that may be left empty, has missing values by design.
    missing = field["required_field"].lower() != "y" or bool(field["branching_logic"])
    match kind:
        case "yesno" | "truefalse":
            yield name, {"type": "number", "missing": missing, "range": [0, 1]}
        case "checkbox":
            for code, _ in _choices(field):
                # REDCap writes codes of checkboxes in small letters, with _ for other signs.
                yield f"{name}___{re.sub(r'[^a-z0-9_]', '_', code.lower())}", {"type": "number", "range": [0, 1]}
        case "radio" | "dropdown":
            choices = _choices(field)
            names = [label for _, label in choices]
            # Equal labels of two codes would be one category.
            distinct = len(set(names)) == len(names)
            levels = names if distinct else [code for code, _ in choices]
            labels = {code: label for code, label in choices if code != label} if distinct else {}
            # A code that is the name of another choice would be ambiguous.
            if set(labels) & set(levels):
                levels, labels = [code for code, _ in choices], {}
            yield name, {"type": "category", "missing": missing, "levels": levels, "labels": labels}
        case "calc":
            yield name, {"type": "number", "missing": True}
        case "slider":
            yield name, {"type": "number", "missing": missing, "range": list(_range(field) or _SLIDER)}
        case "text":
            yield from _validated(name, field, missing=missing)


def _validated(name: str, field: Mapping[str, str], *, missing: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Column of a text field with a validation: a number or a date."""
    rule = field["text_validation_type_or_show_slider_number"]
    for start, pattern in _DATES.items():
        if re.fullmatch(f"{start}_(ymd|mdy|dmy)", rule):
            # Dates of dictionaries are written like those of exports.
            days = [_days(field[f"text_validation_{end}"]) for end in ("min", "max")]
            range_ = {"range": days} if None not in days and days[0] != days[1] else {}
            yield name, {"type": "number", "missing": missing, "date": pattern, **range_}
            return
    if rule == "integer" or re.match(r"number(_|$)", rule):
        found: dict[str, Any] = {"type": "number", "missing": missing}
        if rule.endswith("comma_decimal"):
            found["decimal"] = ","
        if (ends := _range(field)) is not None:
            found["range"] = list(ends)
        yield name, found


def _range(field: Mapping[str, str]) -> tuple[float, float] | None:
    """The range that a dictionary states, or None."""
    low, high = (number(field[f"text_validation_{end}"].replace(",", ".")) for end in ("min", "max"))
    return (low, high) if low < high else None  # false for NaN


def _days(text: str) -> int | None:
    """Days since 1970-01-01 of a date, or None."""
    try:
        return (date.fromisoformat(text[:10]) - date(1970, 1, 1)).days
    except ValueError:
        return None  # empty, or relative, such as "today"


def _choices(field: Mapping[str, str]) -> list[tuple[str, str]]:
    """Codes and labels of a field: "1, Male | 2, Female"."""
    parts = [each.partition(",") for each in field["select_choices_or_calculations"].split("|")]
    return [(code.strip(), label.strip() or code.strip()) for code, _, label in parts if code.strip()]
