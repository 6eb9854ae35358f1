"""FHIR bulk data (NDJSON) of Patient, Observation and Condition: one row for each patient, by public definitions.

A definitions file names an index day and variables by codes, "system|code" as FHIR writes them in searches. Files of a
folder are read line by line; of each patient only the values of its variables are in memory. A patient's row depends on
the resources that refer to this patient, and on nothing else. Resources that refer to no patient of the folder, and
observations without a number, are skipped.

FHIR R4 and R5: `code.coding`, `valueQuantity`, `component` (blood pressure), `effectiveDateTime`, `effectivePeriod`,
`onsetDateTime`, `recordedDate`.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zerosum.data.formats import readable
from zerosum.errors import BadData, BadStudy, first_fault

# A code with its system; neither has spaces or another bar.
Code = Annotated[str, Field(pattern=r"^[^\s|]+\|[^\s|]+$")]


class FhirVariable(BaseModel):
    """Table [variables.NAME] of definitions for FHIR: one column."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["age", "sex", "condition", "observation"]
    """`age`: completed years on the index day. `sex`: `"female"`, `"male"` or `"other"`. `condition`: 1 with such a
    resource, else 0. `observation`: a number, missing without one."""
    codes: tuple[Code, ...] = ()
    """Codes of `condition` and `observation`: `["http://loinc.org|4548-4"]`."""
    days: tuple[int, int] = (-365, 0)
    """First and last day, from the index day."""
    value: Literal["last", "mean"] = "last"
    """Of several observations: the last one (of one time, the larger), or their mean."""
    unit: str | None = Field(None, min_length=1)
    """Only observations with this code or text of a unit."""
    range: tuple[float, float] | None = None
    """The plausible range, for schemas and studies. It changes no value."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        coded = self.kind in ("condition", "observation")
        if coded != bool(self.codes):
            raise ValueError(f"a variable of the kind {self.kind!r} {'needs' if coded else 'has no'} codes")
        if self.kind != "observation" and ({"value", "unit"} & self.model_fields_set):
            raise ValueError("value and unit are of observations")
        if not self.days[0] <= self.days[1] <= 0:
            raise ValueError(f"days are two whole numbers up to 0, the lower one first, got {list(self.days)}")
        if self.range is not None and (self.kind == "sex" or not self.range[0] < self.range[1]):
            raise ValueError("a range is of numbers, the lower one first")
        return self


class FhirDefinitions(BaseModel):
    """A public file that defines the columns of a table from FHIR bulk files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: date
    """The index day."""
    variables: dict[str, FhirVariable] = Field(min_length=1, max_length=1000)
    """The columns, by name."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file. Raises `BadStudy`."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise BadStudy(f"the definitions {path} cannot be read: {error.strerror or error}") from None
        except ValidationError as error:
            raise BadStudy(f"the definitions {path}: {first_fault(error)}") from None
        except ValueError as error:  # not UTF-8, or not TOML
            raise BadStudy(f"the definitions {path} are not a TOML file: {error}") from None

    def columns(self) -> dict[str, dict[str, Any]]:
        """What a schema declares about each column, as its entries."""
        found = {}
        for name, each in self.variables.items():
            meant = each.model_dump(mode="json", exclude_defaults=True, exclude={"range"})
            record = {"index": self.index.isoformat(), "variable": meant}
            own: dict[str, Any] = {"definition": json.dumps(record, sort_keys=True, separators=(",", ":"))}
            if each.kind == "sex":
                own |= {"type": "category", "levels": ["female", "male", "other"]}
            else:
                own |= {"type": "number", "missing": each.kind in ("age", "observation")}
            ends = each.range or ((0, 1) if each.kind == "condition" else None)
            found[name] = own | ({} if ends is None else {"range": list(ends)})
        return found


@dataclass
class _Patient:
    """Values of one patient."""

    born: date | None = None
    sex: str = "other"
    conditions: set[str] = field(default_factory=set)  # names of variables
    observations: dict[str, list[tuple[str, float]]] = field(default_factory=dict)  # time and value, by variable


def fhir_rows(definitions: FhirDefinitions, folder: Path) -> list[list[Any]]:
    """Rows of all patients, in the order of their identifiers.

    Parameters
    ----------
    definitions : FhirDefinitions
        The variables.
    folder : Path
        Folder with files that end in .ndjson.

    Raises
    ------
    BadData
        If there is no patient, or a line is not JSON. The message has the file and no content.
    """
    patients: dict[str, _Patient] = {}
    files = sorted(folder.glob("*.ndjson"))
    # Patients first: other files may come before theirs.
    for resource in _resources(files, "Patient"):
        own = resource.get("id")
        if not isinstance(own, str) or not own:
            raise BadData(f"a patient of {folder} has no id")
        patient = patients.setdefault(own, _Patient())
        patient.born = _day(resource.get("birthDate")) or patient.born
        sex = resource.get("gender")
        patient.sex = sex if sex in ("female", "male") else "other"
    if not patients:
        raise BadData(f"{folder} has no file *.ndjson with patients")
    for kind, read in (("Condition", _condition), ("Observation", _observation)):
        for resource in _resources(files, kind):
            owner = patients.get(_reference(resource))
            if owner is not None:
                read(definitions, owner, resource)
    return [
        [_cell(definitions, name, each, patients[at]) for name, each in definitions.variables.items()]
        for at in sorted(patients)
    ]


def _resources(files: list[Path], kind: str) -> Iterator[dict[str, Any]]:
    """Resources of a kind."""
    for path in files:
        with readable(path), path.open(encoding="utf-8") as file:
            for line in file:
                if not line.strip():
                    continue
                resource = json.loads(line)
                if isinstance(resource, dict) and resource.get("resourceType") == kind:
                    yield resource


def _reference(resource: dict[str, Any]) -> str:
    """Identifier of the patient that a resource refers to; empty if it is none."""
    subject = resource.get("subject")
    text = subject.get("reference") if isinstance(subject, dict) else None
    if not isinstance(text, str):
        return ""
    kind, _, own = text.removeprefix("urn:uuid:").rpartition("/")
    return own if kind == "" or kind.endswith("Patient") else ""


def _condition(definitions: FhirDefinitions, patient: _Patient, resource: dict[str, Any]) -> None:
    """Add a condition to its patient."""
    day = _day(resource.get("onsetDateTime")) or _day(resource.get("recordedDate"))
    codes = _codes(resource)
    for name, each in definitions.variables.items():
        if each.kind == "condition" and codes & set(each.codes) and _within(definitions, each, day):
            patient.conditions.add(name)


def _observation(definitions: FhirDefinitions, patient: _Patient, resource: dict[str, Any]) -> None:
    """Add an observation and its components to its patient."""
    period = resource.get("effectivePeriod")
    time = resource.get("effectiveDateTime") or (period.get("start") if isinstance(period, dict) else None)
    parts = resource.get("component")
    for part in [resource, *(parts if isinstance(parts, list) else [])]:
        quantity = part.get("valueQuantity") if isinstance(part, dict) else None
        value = quantity.get("value") if isinstance(quantity, dict) else None
        if not isinstance(quantity, dict) or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        codes, units = _codes(part), {quantity.get("code"), quantity.get("unit")}
        for name, each in definitions.variables.items():
            fits = each.kind == "observation" and codes & set(each.codes) and (each.unit is None or each.unit in units)
            if fits and _within(definitions, each, _day(time)):
                patient.observations.setdefault(name, []).append((str(time), float(value)))


def _codes(resource: dict[str, Any]) -> set[str]:
    """Codes of a resource, with their systems."""
    code = resource.get("code")
    codings = code.get("coding") if isinstance(code, dict) else None
    found = [each for each in codings if isinstance(each, dict)] if isinstance(codings, list) else []
    return {f"{each.get('system')}|{each.get('code')}" for each in found}


def _day(text: Any) -> date | None:
    """The day of a date or time, or None for an incomplete one."""
    try:
        return date.fromisoformat(text[:10]) if isinstance(text, str) else None
    except ValueError:
        return None


def _within(definitions: FhirDefinitions, variable: FhirVariable, day: date | None) -> bool:
    """Whether a day is one of a variable's days."""
    return day is not None and variable.days[0] <= (day - definitions.index).days <= variable.days[1]


def _cell(definitions: FhirDefinitions, name: str, variable: FhirVariable, patient: _Patient) -> Any:
    """The cell of a variable in the row of a patient."""
    match variable.kind:
        case "sex":
            return patient.sex
        case "condition":
            return float(name in patient.conditions)
        case "age":
            if patient.born is None:
                return None
            index, born = definitions.index, patient.born
            return float(index.year - born.year - ((index.month, index.day) < (born.month, born.day)))
    # In a fixed order, so that the value does not depend on the order of lines.
    found = sorted(patient.observations.get(name, []))
    if not found:
        return None
    return found[-1][1] if variable.value == "last" else math.fsum(value for _, value in found) / len(found)
